"""What PyTorch's example of an out-of-tree backend (torch_openreg) checks of itself, asked of this device.

Only what the other tests don't have: streams, seeds, files and processes have their own.
"""

import collections
import copy
import io
import json
import threading
import types
import unittest.mock

import pytest
import torch
from torch import nn


# ---- the backend's names ----
def test_names():
    assert torch._C._get_privateuse1_backend_name() == "tpu"
    torch.utils.rename_privateuse1_backend("tpu")  # the same again is fine
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("other")
    with pytest.raises(RuntimeError, match="The runtime module of"):
        torch._register_device_module("tpu", types.ModuleType("fake"))
    with pytest.raises(RuntimeError, match="Expected one of cpu"):
        torch._register_device_module("other", types.ModuleType("fake"))
    with pytest.raises(RuntimeError, match="The custom device module of"):
        torch.utils.generate_methods_for_privateuse1_backend()


def test_module_functions():
    find = torch.utils.backend_registration._get_custom_mod_func
    assert find("device_count")() == torch.tpu.device_count()
    with pytest.raises(RuntimeError, match=r"Try to call torch\.tpu"):
        find("no_such_function")


@pytest.mark.parametrize("owner", ["torch._C._profiler.ProfilerActivity", "torch._C._autograd.DeviceType"])
def test_aliases(owner):
    module, _, name = owner.rpartition(".")
    enum = getattr(__import__(module, fromlist=[name]), name)
    if not hasattr(enum, "TPU"):
        pytest.skip(f"this PyTorch names no {name} after the backend")
    assert enum.PrivateUse1 == enum.TPU and enum.TPU.name == "TPU"


GENERATED = [torch.Tensor, torch.TypedStorage, torch.UntypedStorage, nn.utils.rnn.PackedSequence]


@pytest.mark.parametrize("owner", GENERATED, ids=lambda owner: owner.__name__)
def test_generated_methods(owner):
    assert hasattr(owner, "is_tpu") and hasattr(owner, "tpu")
    assert hasattr(nn.Module, "tpu")


def test_moves_by_method():
    x = torch.rand(5, 3)
    assert not x.is_tpu
    for where in (torch.device("tpu"), torch.device("tpu:0"), 0, None):
        assert x.tpu(where).is_tpu
    packed = nn.utils.rnn.PackedSequence(x, torch.ones(5, dtype=torch.int64))
    assert not packed.is_tpu and packed.tpu().is_tpu and packed.tpu().data.is_tpu
    for storage in (x.untyped_storage(), x.storage()):
        assert not storage.is_tpu
        there = storage.tpu()
        assert there.is_tpu and there.nbytes() == storage.nbytes()


def test_type_names():
    names = {
        torch.bool: "Bool",
        torch.float64: "Double",
        torch.float32: "Float",
        torch.float16: "Half",
        torch.bfloat16: "BFloat16",
        torch.int32: "Int",
        torch.int64: "Long",
        torch.int8: "Char",
        torch.int16: "Short",
        torch.uint8: "Byte",
    }
    for dtype, name in names.items():
        x = torch.empty(4, 4, dtype=dtype, device="tpu")
        assert x.type() == f"torch.tpu.{name}Tensor"
        assert x.storage().type() == "torch.storage.TypedStorage"
    assert torch.ones(2).tpu().cpu().type() == "torch.FloatTensor"


# ---- devices ----
def test_capability():
    capability = torch.accelerator.get_device_capability("tpu:0")
    dtypes = capability["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64} <= set(dtypes)
    for dtype in dtypes:
        if dtype.is_floating_point or dtype in (torch.int64, torch.bool):
            assert torch.zeros(2, device="tpu").to(dtype).cpu().dtype == dtype


def test_out_of_range():
    with pytest.raises(RuntimeError):
        torch.accelerator.set_device_index(torch.accelerator.device_count())
    assert torch.accelerator.current_device_index() == 0


def test_current_device(run_python):
    run_python(
        """
        import threading
        import torch
        a = torch.accelerator
        assert a.device_count() == 2
        for i in (1, 0):
            a.set_device_index(i)
            assert a.current_device_index() == i
        with a.device_index(None):
            assert a.current_device_index() == 0
        try:
            with a.device_index(1):
                assert torch.randn(2, device="tpu").device.index == 1
                with a.device_index(0):
                    assert a.current_device_index() == 0
                    raise ValueError
        except ValueError:
            pass
        assert a.current_device_index() == 0
        x = torch.randn(5, 5, device="tpu:1")
        assert (x @ x).sum().device.index == 1 and a.current_device_index() == 0
        try:
            torch.randn(5, 5, device="tpu") @ torch.randn(3, 3, device="tpu")
            raise AssertionError
        except RuntimeError:
            pass
        assert a.current_device_index() == 0

        errors, barrier = [], threading.Barrier(4)
        def work(device):
            try:
                barrier.wait()
                for _ in range(20):
                    a.set_device_index(device)
                    y = torch.randn(10, 10, device="tpu")
                    z = (y @ y).sum()
                    assert (a.current_device_index(), y.device.index, z.device.index) == (device,) * 3
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not errors, errors
        assert a.current_device_index() == 0

        x, y = torch.empty(100, device="tpu:0"), torch.empty(100, device="tpu:1")
        assert x.data_ptr() != y.data_ptr()
        assert torch.ones(10, device="tpu:0").to("tpu:1").cpu().tolist() == [1] * 10
        assert torch.Generator("tpu:1").device.index == 1

        stream = torch.Stream(device="tpu:1")
        assert stream.device_index == 1 and "device_type=tpu, device_index=1" in repr(stream)
        assert torch.Stream(1) .device_index == 1
        same = torch.Stream(stream_id=stream.stream_id, device_type=stream.device_type, device_index=1)
        assert same == stream
        with stream as inside:
            assert a.current_stream() == inside and a.current_device_index() == 1
        assert a.current_device_index() == 0
        event = stream.record_event()
        assert event.device.index == 1 and event.event_id != 0
        torch.Stream(device="tpu:0").wait_stream(stream)
        assert torch.serialization.location_tag(torch.UntypedStorage(4, device="tpu:1")) == "tpu:1"
        assert torch.serialization.default_restore_location(torch.empty(4).storage(), "tpu:1").device.index == 1
        # One thread of autograd for each device.
        import pathlib
        (torch.ones(2, device="tpu:1", requires_grad=True) * 2).sum().backward()
        names = {p.read_text().strip() for p in pathlib.Path("/proc/self/task").glob("*/comm")}
        assert {"pt_autograd_0", "pt_autograd_1"} <= names, names
        """,
        TORCH_TPU_PLATFORM="cpu",
        TORCH_TPU_CPU_DEVICES=2,
    )


# ---- events and streams ----
def test_event_before_and_after_recording():
    for event in (torch.Event(device="tpu"), torch.Event(device="tpu:0"), torch.Event()):
        assert event.device.type == "tpu" and event.event_id == 0
        assert event.query()
        event.synchronize()
    stream = torch.Stream(device="tpu")
    first, second = stream.record_event(), stream.record_event()
    assert 0 not in (first.event_id, second.event_id) and first.event_id != second.event_id
    assert first.device.index == 0
    first.synchronize()
    assert first.query()
    first.record(stream)  # again
    stream.synchronize()
    assert first.query()


def test_elapsed_time():
    stream = torch.Stream(device="tpu")
    first, second = (torch.Event(device="tpu", enable_timing=True) for _ in range(2))
    x = torch.randn(200, 200, device="tpu")
    first.record(stream)
    for _ in range(5):
        x = x @ x
    second.record()
    second.synchronize()
    assert first.elapsed_time(second) > 0
    first, second = (torch.Event(device="tpu", enable_timing=False) for _ in range(2))
    first.record(stream)
    second.record(stream)
    stream.synchronize()
    with pytest.raises((ValueError, RuntimeError), match="timing"):
        first.elapsed_time(second)


def test_streams_wait():
    streams = [torch.Stream(device="tpu") for _ in range(3)]
    assert len({s.stream_id for s in streams}) == 3
    x = torch.randn(30, 30, device="tpu")
    event = streams[0].record_event()
    results = []
    for stream in streams[1:]:
        stream.wait_event(event)
        with stream:
            assert torch.accelerator.current_stream() == stream
            results.append(x @ x)
    torch.accelerator.synchronize()
    assert event.query() and torch.equal(*results)
    before = torch.accelerator.current_stream()
    for stream in streams:
        torch.accelerator.set_stream(stream)
        assert torch.accelerator.current_stream().stream_id == stream.stream_id
    torch.accelerator.set_stream(before)


# ---- memory ----
LEAKS = {
    "empty": lambda: torch.empty(1000, device="tpu"),
    "several sizes": lambda: [torch.empty(n, device="tpu") for n in (100, 500, 1000)],
    "copies": lambda: torch.ones(500, device="tpu").cpu().tpu().clone(),
    "views": lambda: torch.ones(1000, device="tpu").view(10, 100)[2:4].reshape(20, 10),
    "in place": lambda: torch.ones(1000, device="tpu").add_(1).mul_(2).div_(2).sub_(1),
    "graph": lambda: torch.ones(100, device="tpu", requires_grad=True) + torch.ones(100, device="tpu"),
    "backward": lambda: (torch.ones(100, device="tpu", requires_grad=True) * 2).sum().backward(),
}


@pytest.mark.parametrize("name", LEAKS)
def test_nothing_leaks(name):
    LEAKS[name]()
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    for _ in range(50):
        LEAKS[name]()
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before


def test_data_of_another_device():
    for here, there in (("cpu", "tpu"), ("tpu", "cpu")):
        x, y = torch.zeros(4, 4, device=here), torch.ones(4, 4, device=there)
        assert torch._has_compatible_shallow_copy_type(x, y)
        x.data = y
        assert x.device == y.device and x.data_ptr() == y.data_ptr() and torch.equal(x, y)


def test_addresses():
    x = torch.ones(100, device="tpu")
    address = x.data_ptr()
    x.add_(1).mul_(2)
    assert x.data_ptr() == address and x.view(10, 10).data_ptr() == address and x.view_as(x).data_ptr() == address
    assert x[10:].data_ptr() == address + 40
    assert x[:1].expand(5).data_ptr() == address
    assert x.clone().data_ptr() != address and x.to("tpu").data_ptr() == address
    assert x.to("tpu", copy=True).data_ptr() != address
    y = torch.empty(2, device="tpu").set_(x)
    assert y.data_ptr() == address and y.is_set_to(x)


def test_pinned_memory():
    x = torch.randn(10)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned[2:5].is_pinned() and torch.equal(pinned, x)
    for storage in (x.storage(), x.untyped_storage()):
        assert not storage.is_pinned("tpu")
        assert storage.pin_memory("tpu").is_pinned("tpu")
    part = torch.tensor(()).set_(pinned.untyped_storage()[8:], size=(5,), stride=(1,), storage_offset=0)
    assert part.is_pinned() and part.data_ptr() != pinned.data_ptr()
    assert torch.equal(pinned.to("tpu", non_blocking=True).cpu(), x)


# ---- files ----
def test_locations():
    for device in ("tpu", "tpu:0"):
        assert torch.serialization.location_tag(torch.UntypedStorage(4, device=device)) == "tpu:0"
    assert torch.serialization.default_restore_location(torch.empty(4, 4).storage(), "tpu:0").is_tpu


def test_without_storages():
    """The form of files of backends that have no storages; rebuilt by copying from a CPU tensor, or from NumPy's."""
    x = torch.randn(2, 3)
    file = io.BytesIO()
    with unittest.mock.patch.object(torch._C, "_has_storage", return_value=False):
        rebuild = x.tpu()._reduce_ex_internal(torch.serialization.DEFAULT_PROTOCOL)[0]
        assert rebuild is torch._utils._rebuild_device_tensor_from_cpu_tensor
        torch.save({"x": x.tpu()}, file)
    for where in (None, "cpu"):
        file.seek(0)
        loaded = torch.load(file, weights_only=True, map_location=where)["x"]
        assert loaded.is_tpu == (where is None) and torch.equal(loaded.cpu(), x)
    old = torch._utils._rebuild_device_tensor_from_numpy(x.numpy(), torch.float32, "tpu:0", False)
    assert old.is_tpu and torch.equal(old.cpu(), x)


def test_backend_metadata():
    """There is none, which copying and saving must survive."""
    x = torch.empty(3, 3, device="tpu")
    assert torch._utils.get_tensor_metadata(x) == {}
    if hasattr(torch._C, "_copy_backend_meta"):
        torch._C._copy_backend_meta(x, torch.empty(3, 3, device="tpu"))
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch._utils.get_tensor_metadata(torch.load(file)) == {}


# ---- operators ----
def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    real = torch.ones(3, 3, device="tpu")
    with FakeTensorMode() as mode:
        x, y = torch.empty(3, 3, device="tpu"), torch.empty(3, 3, device="tpu:0")
        z = (x + y) @ x
        assert z.device.type == "tpu" and z.shape == (3, 3)
        fake = mode.from_tensor(real)
        assert isinstance(fake, FakeTensor) and fake.device == real.device


def test_out_of_strided_views():
    def write(device):
        x = torch.arange(-6.0, 6.0, device=device).view(2, 2, 3)
        out = torch.zeros(2, 2, 6, device=device)
        torch.abs(x, out=out[:, :, 0:6:2])
        with pytest.warns(UserWarning, match="resized"):
            torch.abs(x, out=out[:, :, 0:6:3])
        return out.tolist()

    assert write("cpu") == write("tpu")


def test_factories():
    x = torch.empty(1, 2, 3, 4, device="tpu", memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.tensor((), device="tpu").shape == (0,)
    assert torch.equal(torch.triu_indices(3, 3, device="tpu").cpu(), torch.triu_indices(3, 3))
    assert torch.empty_strided((3, 4), (1, 3), device="tpu").stride() == (1, 3)
    with pytest.raises((RuntimeError, NotImplementedError), match=r"tpu|PrivateUse1"):
        torch.quantize_per_tensor(torch.randn(3, device="tpu"), 0.1, 10, torch.qint8)


def test_custom_function():
    class ReturnsItself(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 0.5

    class Aliases(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g * 3

    for function, factor in ((ReturnsItself, 0.5), (Aliases, 3)):
        x = torch.randn(4, device="tpu", requires_grad=True)
        function.apply(x).sum().backward()
        assert x.grad.tolist() == [factor] * 4


def test_attention_of_the_device():
    q, k, v = (torch.randn(2, 2, 16, 8, dtype=torch.float16).tpu() for _ in range(3))
    choice = torch._fused_sdp_choice(q, k, v)
    assert choice == torch.nn.attention.SDPBackend.OVERRIDEABLE.value
    bias = torch.zeros(2, 2, 16, 16, dtype=torch.float16, device="tpu")
    forward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(q, k, v, attn_bias=bias)
    out, logsumexp, _, _, max_q, max_k, seed, offset, _ = forward
    grads = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward(
        torch.ones_like(out),
        q,
        k,
        v,
        bias,
        [True] * 4,
        out,
        logsumexp,
        None,
        None,
        max_q,
        max_k,
        0.0,
        False,
        seed,
        offset,
    )
    assert [g.shape for g in grads] == [q.shape, k.shape, v.shape, bias.shape]


# ---- recurrent layers ----
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 3}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}],
    ids=["one", "three layers", "both directions", "batch first"],
)
def test_lstm(options):
    torch.manual_seed(0)
    layer = nn.LSTM(8, 16, **options)
    there = copy.deepcopy(layer).tpu()
    x = torch.randn(4, 3, 8)
    for a, e in zip((there(x.tpu())[0], *there(x.tpu())[1]), (layer(x)[0], *layer(x)[1])):
        assert a.is_tpu
        torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-5)


def test_lstm_of_packed_sequences():
    torch.manual_seed(0)
    layer = nn.LSTM(4, 6)
    packed = nn.utils.rnn.pack_sequence([torch.randn(n, 4) for n in (5, 3, 1)])
    expected, (h, _) = layer(packed)
    actual, (h_there, _) = layer.tpu()(packed.to("tpu"))
    torch.testing.assert_close(actual.data.cpu(), expected.data, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(h_there.cpu(), h, rtol=1e-4, atol=1e-5)


# ---- mixed precision ----
def test_autocast():
    assert torch.get_autocast_dtype("tpu") == torch.float16  # PyTorch's for every device of its kind
    x, y = torch.randn(2, 3, device="tpu"), torch.randn(3, 3, device="tpu")
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("tpu", dtype=dtype):
            assert (x @ y).dtype == dtype
    with pytest.warns(UserWarning, match="is not supported"), torch.autocast("tpu", dtype=torch.float64):
        assert (x @ y).dtype == torch.float32


# ---- profiler ----
def test_profiler(tmp_path):
    from torch.autograd.profiler import profile

    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10)).tpu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with profile(use_device="tpu", record_shapes=True) as profiler:
        for step in range(2):
            with torch.profiler.record_function(f"step_{step}"):
                model(torch.randn(8, 10, device="tpu")).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        with torch.Stream(device="tpu"):
            torch.ones(3, device="tpu") + 1
    names = [event.name for event in profiler.function_events]
    assert {"step_0", "step_1"} <= set(names)
    assert any("addmm" in n or "linear" in n for n in names) and any("Backward" in n for n in names)
    assert "step_0" in profiler.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=50)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert len(trace["traceEvents"] if isinstance(trace, dict) else trace) > 0
    try:
        with profile(use_device="tpu") as profiler:
            torch.ones(2, device="tpu")
            raise KeyError
    except KeyError:
        assert isinstance(profiler.function_events, list)


# ---- exchange ----
def test_dlpack():
    """Its memory is nobody else's to address: refused, in words that say what to do."""
    x = torch.randn(2, 3, device="tpu")
    with pytest.raises(BufferError, match=r"cpu\(\)"):
        torch.from_dlpack(x)
    for export in (torch.utils.dlpack.to_dlpack, torch.to_dlpack):
        with pytest.raises(BufferError):
            export(x)
    assert torch.equal(torch.from_dlpack(x.cpu()).tpu().cpu(), x.cpu())


def test_foreign_storages_are_refused():
    x = torch.ones(2, 3, device="tpu")
    foreign = torch.from_dlpack(torch._C._to_dlpack(x))
    uses = [lambda t: t.cpu(), lambda t: t + 1, lambda t: t.fill_(2), lambda t: x.copy_(t), lambda t: t.resize_(99)]
    for use in (*uses, lambda t: t.untyped_storage().resize_(0), lambda t: torch._lazy_clone(x)):
        with pytest.raises(RuntimeError):
            use(foreign)
    assert x.sum().item() == 6


def test_threads_seed_alike():
    results = collections.defaultdict(list)

    def work(name):
        generator = torch.Generator(device="tpu").manual_seed(42)
        assert generator.initial_seed() == 42
        results[name].append(torch.rand(5, device="tpu", generator=generator).tolist())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 3 and len({str(v) for v in results.values()}) == 1
