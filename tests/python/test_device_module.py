"""torch.tpu and torch.accelerator: every function, on one device and on two."""

import re

import pytest
import torch

from helpers import ROOT
from torch_tpu import _lib


def test_every_name_exists():
    for name in torch.tpu.__all__:
        assert hasattr(torch.tpu, name), name
    import torch.tpu as module

    assert module is torch.tpu


def test_covers_what_other_device_modules_have():
    # What torch.xpu and torch.mtia both offer is what a device module is.
    common = set(dir(torch.xpu)) & set(dir(torch.mtia))
    missing = {name for name in common if not name.startswith("_") and callable(getattr(torch.xpu, name))}
    missing -= set(dir(torch.tpu)) | {"Any", "Device", "classproperty"}
    assert missing <= {"graph", "graph_pool_handle"}, missing  # programs are captured by torch.compile


@pytest.mark.parametrize("structure, name", [(_lib.Counters, "tt_counters"), (_lib.MemoryStats, "tt_memory_stats")])
def test_structures_match_the_header(structure, name):
    header = (ROOT / "include/torchtpu/torchtpu.h").read_text()
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", header, re.DOTALL).group(1)
    body = re.sub(r"//.*", "", body)
    fields = [f for line in re.findall(r"int64_t ([^;]+);", body) for f in re.split(r",\s*", line)]
    assert fields == [field for field, _ in structure._fields_]


def test_statuses_become_exceptions():
    with pytest.raises(RuntimeError, match="99"):
        torch.tpu.set_device(99)


def test_availability_and_init():
    assert torch.tpu.is_available() is True
    torch.tpu.init()
    assert torch.tpu.is_initialized() is True
    assert torch.tpu._is_in_bad_fork() is False
    assert torch.tpu.platform() in ("cpu", "tpu")


def test_device_queries():
    count = torch.tpu.device_count()
    assert count >= 1
    name = torch.tpu.get_device_name()
    assert isinstance(name, str) and name
    assert torch.tpu.get_device_name("tpu:0") == torch.tpu.get_device_name(0)
    properties = torch.tpu.get_device_properties(0)
    assert properties.name == torch.tpu.get_device_name(0)
    assert properties.platform == torch.tpu.platform()
    assert properties.total_memory > 0
    assert properties.multi_processor_count >= 1
    assert properties.plugin.endswith(".so")
    assert torch.tpu.get_device_capability() == (properties.major, properties.minor)
    if torch.tpu.platform() == "cpu":
        assert "CPU" in name.upper()


def test_current_device():
    torch.tpu.set_device(0)
    torch.tpu.set_device("tpu:0")
    torch.tpu.set_device(torch.device("tpu", 0))
    assert torch.tpu.current_device() == 0
    with torch.tpu.device(0):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device(None), torch.tpu.device(-1), torch.tpu.device("tpu"):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device_of(torch.ones(1, device="tpu")), torch.tpu.device_of(torch.ones(1)):
        assert torch.tpu.current_device() == 0
    with pytest.raises(ValueError, match="tpu device"):
        torch.tpu.set_device("cpu")
    with pytest.raises(RuntimeError), torch.tpu.device(1234):
        pass


def test_two_devices(run_python):
    run_python(
        """
        import torch
        assert torch.tpu.device_count() == 2 and not torch.tpu.is_initialized()
        x = torch.ones(3, device="tpu:1")
        assert x.device == torch.device("tpu", 1) and x.get_device() == 1
        assert torch.tpu.device_count() == 2 and torch.accelerator.device_count() == 2
        with torch.tpu.device(1):
            assert torch.tpu.current_device() == 1
            assert torch.ones(2, device="tpu").device.index == 1
            assert torch.accelerator.current_device_index() == 1
        assert torch.tpu.current_device() == 0
        with torch.tpu.device_of(x):
            assert torch.tpu.current_device() == 1
        assert torch.tpu.can_device_access_peer(0, 1) is False
        y = x.to("tpu:0")
        assert y.device.index == 0 and y.cpu().tolist() == [1, 1, 1]
        y.copy_(x * 3)
        assert y.cpu().tolist() == [3, 3, 3]
        try:
            x + y
            raise AssertionError("devices mixed")
        except RuntimeError as error:
            assert "tpu:1" in str(error) and "tpu:0" in str(error), error
        assert len(torch.tpu.default_generators) == 2
        torch.tpu.manual_seed_all(5)
        a, b = torch.rand(4, device="tpu:0"), torch.rand(4, device="tpu:1")
        assert torch.equal(a.cpu(), b.cpu())
        torch.tpu.synchronize(1)
        torch.accelerator.set_device_index(1)
        assert torch.tpu.current_device() == 1
        stream = torch.tpu.Stream(0)
        assert stream.device.index == 0
        assert torch.tpu.memory_allocated(1) > 0
        z = torch.zeros(2, 2)
        torch.save({"w": x}, "w.pt")
        assert torch.load("w.pt")["w"].device.index == 1
        assert torch.load("w.pt", map_location={"tpu:1": "tpu:0"})["w"].device.index == 0
        """,
        TORCH_TPU_PLATFORM="cpu",
        TORCH_TPU_CPU_DEVICES=2,
    )


def test_synchronize():
    x = torch.ones(64, device="tpu")
    for _ in range(10):
        x = x + 1
    torch.tpu.synchronize()
    torch.tpu.synchronize(0)
    torch.tpu.synchronize("tpu:0")
    with pytest.raises(RuntimeError, match="tpu:7 does not exist"):
        torch.tpu.synchronize(7)
    assert _lib.runtime().tt_is_idle(-1)


def test_tensor_and_module_methods():
    x = torch.ones(2)
    assert not x.is_tpu
    y = x.tpu()
    assert y.is_tpu and y.device == torch.device("tpu", 0) and y.tpu() is y
    assert x.tpu(0).is_tpu and x.to("tpu", non_blocking=True).is_tpu
    module = torch.nn.Linear(2, 2).tpu()
    assert all(p.is_tpu for p in module.parameters())
    assert module.cpu().weight.device.type == "cpu"
    assert y.untyped_storage().is_tpu
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert packed.tpu().is_tpu


def test_accelerator():
    accelerator = torch.accelerator
    assert accelerator.current_accelerator() == torch.device("tpu")
    assert accelerator.is_available() and accelerator.device_count() == torch.tpu.device_count()
    assert accelerator.current_device_index() == 0
    accelerator.set_device_index(0)
    with accelerator.device_index(0):
        pass
    stream = accelerator.current_stream()
    assert stream.device.type == "tpu"
    accelerator.set_stream(stream)
    x = torch.ones(1 << 10, device="tpu")
    accelerator.synchronize()
    assert accelerator.memory_allocated() == torch.tpu.memory_allocated() > 0
    assert accelerator.max_memory_allocated() == torch.tpu.max_memory_allocated()
    assert accelerator.memory_reserved() == torch.tpu.memory_reserved()
    assert accelerator.max_memory_reserved() == torch.tpu.max_memory_reserved()
    stats = accelerator.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_stats()["allocated_bytes.all.current"]
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total and total == torch.tpu.mem_get_info()[1]
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    accelerator.empty_cache()
    accelerator.empty_host_cache()
    assert isinstance(accelerator.get_device_capability(), dict)
    del x


def test_eager_mode():
    assert torch.tpu.eager_mode() is torch.tpu.EagerMode.STRICT
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEBUG):
        assert torch.tpu.eager_mode() is torch.tpu.EagerMode.DEBUG
        assert (torch.ones(2, device="tpu") + 1).cpu().tolist() == [2, 2]
        with torch.tpu.set_eager_mode("strict"):
            assert torch.tpu.eager_mode() is torch.tpu.EagerMode.STRICT
        assert torch.tpu.eager_mode() is torch.tpu.EagerMode.DEBUG
    assert torch.tpu.eager_mode() is torch.tpu.EagerMode.STRICT
    torch.tpu.set_eager_mode("debug")
    assert torch.tpu.eager_mode() is torch.tpu.EagerMode.DEBUG
    with pytest.raises(ValueError, match="'strict', 'debug'"):
        torch.tpu.set_eager_mode("fast")


def test_check_nan():
    with torch.tpu.set_eager_mode("debug"):
        torch.tpu.set_check_nan(True)
        x = torch.tensor([0.0, 1.0], device="tpu")
        assert (x + 1).cpu().tolist() == [1, 2]
        with pytest.raises(RuntimeError, match=r"(?i)nan"):
            x / x
        y = torch.tensor([1.0, 0.0, 2.0, 0.0], device="tpu")
        for write in (lambda: y[::2].div_(0), lambda: torch.div(y, y, out=torch.empty(4, device="tpu"))):
            y[:] = torch.tensor([1.0, 0.0, 0.0, 1.0], device="tpu")
            with pytest.raises(RuntimeError, match=r"div_?\(\): result 0 has a NaN"):
                write()
        y[::2] = 1
        y[1:2] = torch.tensor([torch.nan])  # what lies beside a result isn't looked at
        assert y[::2].mul_(2).cpu().tolist() == [2, 2]
        with pytest.raises(RuntimeError, match=r"(?i)nan"):
            torch.view_as_complex(y.reshape(2, 2)) * 2
        torch.tpu.set_check_nan(False)
        assert torch.isnan((x / x).cpu()[0])


# An operator that has a kernel for the CPU only.
TWICE = """
import torch
library = torch.library.Library("torchtpu_test", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
"""


_twice_space = {}  # the library lives as long as the process


def _twice():
    if not _twice_space:
        exec(TWICE, _twice_space)
    return torch.ops.torchtpu_test.twice(torch.ones(2, device="tpu"))


def test_cpu_fallback(run_python):
    with torch.tpu.cpu_fallback("silent"):
        before = torch.tpu.counters()["fallbacks"]
        result = _twice()
        assert torch.tpu.counters()["fallbacks"] == before + 1
        assert any("twice" in name for name in torch.tpu.fallback_ops())
        assert result.is_tpu and result.cpu().tolist() == [2, 2]
        with torch.tpu.cpu_fallback("error"), pytest.raises(NotImplementedError, match="twice"):
            _twice()
        _twice()
    with pytest.raises(ValueError, match="'silent', 'warn', 'error'"):
        torch.tpu.cpu_fallback("loud")

    code = (
        TWICE
        + """
for _ in range(3):
    torch.ops.torchtpu_test.twice(torch.ones(2, device="tpu"))
print(torch.tpu.fallback_ops())
"""
    )
    for setting, times in ((None, 1), ("warn", 1), ("silent", 0)):  # named once, counted each time
        done = run_python(code, TORCH_TPU_CPU_FALLBACK=setting)
        assert done.stdout == "{'torchtpu_test::twice': 3}\n"
        assert done.stderr.count("torchtpu_test::twice has no rule") == times, done.stderr
    assert "NotImplementedError" in run_python(code, TORCH_TPU_CPU_FALLBACK="error", check=False).stderr
    assert "cpu_fallback" in run_python("import torch", TORCH_TPU_CPU_FALLBACK="loud").stderr


def test_counters():
    before = torch.tpu.counters()
    x = torch.ones(5, 7, device="tpu")
    (x * 2).cpu()
    after = torch.tpu.counters()
    assert set(after) == {field for field, _ in _lib.Counters._fields_}
    assert after["executions"] > before["executions"]
    assert after["device_to_host"] > before["device_to_host"]
    assert after["device_to_host_bytes"] >= before["device_to_host_bytes"] + 5 * 7 * 4
    assert torch.tpu.compile_count() == after["compiles"]
    torch.tpu.clear_compile_cache()
    assert (x * 2).cpu().sum() == 70
    assert torch.tpu.compile_count() > after["compiles"]


def test_trace(tmp_path):
    import json

    with torch.tpu.trace(tmp_path / "trace.json"):
        (torch.ones(3, device="tpu") + 1).cpu()
    events = json.loads((tmp_path / "trace.json").read_text())
    assert events if isinstance(events, list) else events["traceEvents"]


def test_float32_products_are_float32():
    a = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close((a.tpu() @ a.tpu()).cpu(), a @ a, rtol=1e-5, atol=1e-5)


def test_default_dtype_is_followed():
    integers = torch.arange(3, device="tpu")
    previous = torch.get_default_dtype()
    try:
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            torch.set_default_dtype(dtype)
            assert (integers / 2).dtype == integers.sqrt().dtype == (integers * 1.5).dtype == dtype
    finally:
        torch.set_default_dtype(previous)


def test_matmul_precision_is_followed():
    x = torch.ones(3, 5, device="tpu")
    previous = torch.get_float32_matmul_precision()
    try:
        for number, precision in enumerate(("medium", "high", "highest")):
            torch.set_float32_matmul_precision(precision)
            assert _lib.runtime().tt_get_matmul_precision() == number
            assert (x @ x.T).sum().item() == 45
        with pytest.warns(UserWarning, match="no effect"):
            torch.set_float32_matmul_precision("low")
        assert _lib.runtime().tt_get_matmul_precision() == 2
    finally:
        torch.set_float32_matmul_precision(previous)


def test_repr():
    assert "device='tpu:0'" in repr(torch.ones(2, device="tpu"))
    assert repr(torch.tensor([1.5, 2.0], device="tpu")) == "tensor([1.5000, 2.0000], device='tpu:0')"


def test_conversion_to_host_objects():
    x = torch.tensor([[1, 2], [3, 4]], device="tpu")
    assert x.tolist() == [[1, 2], [3, 4]]
    assert x[1, 1].item() == 4 and int(x[0, 0]) == 1 and float(x[0, 1]) == 2.0 and bool(x[0, 0])
    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        x.numpy()
    import numpy

    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        numpy.asarray(x)


def test_dlpack():
    x = torch.arange(3.0, device="tpu")
    kind, index = x.__dlpack_device__()
    assert (int(kind), index) == (12, 0)
    with pytest.raises(BufferError, match=r"tensor\.cpu\(\)"):
        torch.from_dlpack(x)
    with pytest.raises(BufferError, match="require gradient"):
        x.clone().requires_grad_().__dlpack__(dl_device=(1, 0))
    import numpy

    assert numpy.from_dlpack(x, device="cpu").tolist() == [0, 1, 2]
    assert torch.from_dlpack(x.cpu()).tolist() == [0, 1, 2]
    assert torch.arange(3.0).__dlpack_device__() == (1, 0)


def test_pin_memory():
    x = torch.arange(6.0).pin_memory()
    assert x.is_pinned() and not torch.arange(6.0).is_pinned()
    assert x.to("tpu", non_blocking=True).cpu().tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.empty(3, pin_memory=True).is_pinned()


def test_deepcopy_and_pickle():
    import copy
    import pickle

    x = torch.arange(6.0, device="tpu").view(2, 3).t()
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.is_tpu and y.stride() == x.stride() and torch.equal(y.cpu(), x.cpu())
        y.fill_(9)
    assert x.max().item() == 5
    module = torch.nn.Linear(2, 2).tpu()
    other = copy.deepcopy(module)
    assert torch.equal(other.weight.cpu(), module.weight.cpu()) and other.weight is not module.weight


def test_torch_compile_backend():
    def function(x, index, value):
        x[:, index] = value
        return x.sin() * 2

    compiled = torch.compile(function, backend="tpu")
    arguments = (torch.zeros(2, 3), torch.tensor([1]), torch.ones(2, 1))
    actual = [t.tpu() for t in arguments]
    result, expected = compiled(*actual), function(*arguments)
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(actual[0].cpu(), arguments[0])

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    on_tpu = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    on_tpu.load_state_dict(model.state_dict())
    on_tpu = torch.compile(on_tpu.tpu(), backend="tpu")
    x = torch.randn(5, 3)
    model(x).sum().backward()
    on_tpu(x.tpu()).sum().backward()
    for a, b in zip(on_tpu.parameters(), model.parameters()):
        torch.testing.assert_close(a.grad.cpu(), b.grad)
    assert "tpu" in torch._dynamo.list_backends()
