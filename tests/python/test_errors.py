"""Bad input raises what PyTorch raises, names the operator and the operands, and leaves the process working."""

import pytest
import torch
import torch.nn.functional as F


def ones(device, *sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype, device=device)


MISUSE = {
    "add shapes": lambda d: ones(d, 2, 3) + ones(d, 4),
    "mm shapes": lambda d: torch.mm(ones(d, 2, 3), ones(d, 2, 3)),
    "mm dims": lambda d: torch.mm(ones(d, 2), ones(d, 2, 3)),
    "mm dtypes": lambda d: torch.mm(ones(d, 2, 2), ones(d, 2, 2, dtype=torch.float64)),
    "bmm batch": lambda d: torch.bmm(ones(d, 2, 2, 2), ones(d, 3, 2, 2)),
    "matmul": lambda d: ones(d, 2, 3) @ ones(d, 4, 2),
    "linear": lambda d: F.linear(ones(d, 2, 3), ones(d, 4, 5)),
    "conv channels": lambda d: F.conv2d(ones(d, 1, 3, 5, 5), ones(d, 2, 4, 3, 3)),
    "conv kernel too large": lambda d: F.conv2d(ones(d, 1, 1, 2, 2), ones(d, 1, 1, 5, 5)),
    "view size": lambda d: ones(d, 2, 3).view(4),
    "view stride": lambda d: ones(d, 2, 3).t().view(6),
    "reshape": lambda d: ones(d, 2, 3).reshape(4, 2),
    "cat shapes": lambda d: torch.cat([ones(d, 2, 3), ones(d, 2, 4)]),
    "cat empty list": lambda d: torch.cat([]),
    "stack": lambda d: torch.stack([ones(d, 2), ones(d, 3)]),
    "expand": lambda d: ones(d, 2, 3).expand(3, 3),
    "copy shapes": lambda d: ones(d, 2).copy_(ones(d, 3)),
    "in-place result larger": lambda d: ones(d, 1).add_(ones(d, 3)),
    "in-place cast": lambda d: ones(d, 2, dtype=torch.int64).add_(1.5),
    "in-place bool": lambda d: ones(d, 2, dtype=torch.bool).add_(2),
    "bool minus": lambda d: ones(d, 2, dtype=torch.bool) - ones(d, 2, dtype=torch.bool),
    "bitwise float": lambda d: ones(d, 2) & ones(d, 2),
    "dim": lambda d: ones(d, 2, 3).sum(5),
    "dim twice": lambda d: ones(d, 2, 3).sum((0, 0)),
    "softmax dim": lambda d: ones(d, 2, 3).softmax(2),
    "transpose dim": lambda d: ones(d, 2).transpose(0, 1),
    "select index": lambda d: ones(d, 2)[5],
    "too many indices": lambda d: ones(d, 2)[0, 0],
    "index dtype": lambda d: ones(d, 4)[ones(d, 2)],
    "index shapes": lambda d: ones(d, 4, 4)[[0, 1], [0, 1, 2]],
    "mask shape": lambda d: ones(d, 4)[ones(d, 3, dtype=torch.bool)],
    "gather dtype": lambda d: ones(d, 4).gather(0, ones(d, 1)),
    "gather dims": lambda d: ones(d, 4).gather(0, ones(d, 1, 1, dtype=torch.int64)),
    "scatter dtype": lambda d: ones(d, 4).scatter_(0, ones(d, 1, dtype=torch.int64), ones(d, 1, dtype=torch.int64)),
    "mean of integers": lambda d: ones(d, 2, dtype=torch.int64).mean(),
    "max of nothing": lambda d: ones(d, 0).max(),
    "argmax of nothing": lambda d: ones(d, 2, 0).argmax(1),
    "narrow": lambda d: ones(d, 3).narrow(0, 2, 4),
    "topk": lambda d: ones(d, 3).topk(5),
    "layer norm shape": lambda d: F.layer_norm(ones(d, 2, 3), (4,)),
    "cross entropy shapes": lambda d: F.cross_entropy(ones(d, 2, 3), ones(d, 4, dtype=torch.int64)),
    "nll dtype": lambda d: F.nll_loss(ones(d, 2, 3), ones(d, 2)),
    "embedding dtype": lambda d: F.embedding(ones(d, 2), ones(d, 2, 2)),
    "item of many": lambda d: ones(d, 2).item(),
    "bool of many": lambda d: bool(ones(d, 2)),
    "arange step": lambda d: torch.arange(0, 3, -1, device=d),
    "negative size": lambda d: torch.empty(-1, device=d),
    "out dtype": lambda d: torch.add(ones(d, 2), ones(d, 2), out=ones(d, 2, dtype=torch.int64)),
    "tril dims": lambda d: ones(d, 2).tril(),
    "dropout p": lambda d: F.dropout(ones(d, 2), 1.5),
    "clamp nothing": lambda d: ones(d, 2).clamp(),
    "repeat dims": lambda d: ones(d, 2, 2).repeat(2),
    "unfold": lambda d: ones(d, 2).unfold(0, 5, 1),
    "addmm": lambda d: torch.addmm(ones(d, 5), ones(d, 2, 3), ones(d, 3, 2)),
    "pad": lambda d: F.pad(ones(d, 2), (-3, 0)),
    "max_pool": lambda d: F.max_pool2d(ones(d, 1, 1, 2, 2), 5),
    "batch norm": lambda d: F.batch_norm(ones(d, 1, 3), None, None, training=True),
}


def error_of(function, device):
    with pytest.raises(Exception) as caught:
        result = function(device)
        if isinstance(result, torch.Tensor):
            result.cpu()
    return caught.value


@pytest.mark.parametrize("mode", ["strict", "debug"])
@pytest.mark.parametrize("name", MISUSE)
def test_misuse(name, mode):
    expected = error_of(MISUSE[name], "cpu")
    with torch.tpu.set_eager_mode(mode):
        actual = error_of(MISUSE[name], "tpu")
        assert type(actual) is type(expected), f"{actual!r}, on the CPU {expected!r}"
        assert len(str(actual)) > 20 and "INTERNAL ASSERT" not in str(actual)
        assert (ones("tpu", 3) + 1).cpu().tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "function",
    [
        lambda: ones("tpu", 2) + ones("cpu", 2),
        lambda: ones("cpu", 2) * ones("tpu", 2),
        lambda: torch.mm(ones("tpu", 2, 2), ones("cpu", 2, 2)),
        lambda: F.linear(ones("cpu", 2, 2), ones("tpu", 2, 2)),
        lambda: torch.cat([ones("tpu", 2), ones("cpu", 2)]),
        lambda: F.embedding(torch.zeros(2, dtype=torch.long), ones("tpu", 2, 2)),
        lambda: torch.where(ones("cpu", 2) > 0, ones("tpu", 2), ones("tpu", 2)),
        lambda: ones("tpu", 2).add_(ones("cpu", 2)),
        lambda: torch.add(ones("tpu", 2), 1, out=ones("cpu", 2)),
        lambda: F.cross_entropy(ones("tpu", 2, 3), torch.zeros(2, dtype=torch.long)),
    ],
)
def test_mixed_devices(function):
    with pytest.raises(RuntimeError, match="device") as caught:
        function()
    assert "tpu" in str(caught.value) and "cpu" in str(caught.value), caught.value
    assert (ones("tpu", 2) + 1).sum().item() == 4


def test_messages_name_operator_and_operands():
    with pytest.raises(RuntimeError) as caught:
        torch.mm(ones("tpu", 2, 3), ones("tpu", 4, 5))
    message = str(caught.value)
    assert "mm" in message or "mat1" in message
    assert all(number in message for number in "2345"), message
    with pytest.raises(RuntimeError) as caught:
        ones("tpu", 2, 3) + ones("tpu", 7)
    assert "3" in str(caught.value) and "7" in str(caught.value)


OUT_OF_RANGE = {
    "gather": lambda x, i: x.gather(0, i),
    "index_select": lambda x, i: x.index_select(0, i),
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put_((i,), x[:1]),
    "index_add": lambda x, i: x.index_add_(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy_(0, i, x[:1]),
    "scatter": lambda x, i: x.scatter_(0, i, x[:1]),
    "scatter_add": lambda x, i: x.scatter_add_(0, i, x[:1]),
    "embedding": lambda x, i: F.embedding(i, x[:, None]),
    "take": lambda x, i: x.take(i),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "nll_loss": lambda x, i: F.nll_loss(x[None], i),
    "cross_entropy": lambda x, i: F.cross_entropy(x[None], i),
}


@pytest.mark.parametrize("index", [3, 1000, -4])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_index_out_of_range(name, index):
    """Raised at the next synchronisation, once; what was there before stays; in debug mode at the line."""
    function = OUT_OF_RANGE[name]
    x, i = torch.tensor([1.0, 2.0, 3.0], device="tpu"), torch.tensor([index], device="tpu")
    torch.tpu.synchronize()
    with pytest.raises((IndexError, RuntimeError)):
        function(x, i)
        torch.tpu.synchronize()
    torch.tpu.synchronize()  # once
    assert x.cpu().tolist() == [1, 2, 3]
    with torch.tpu.set_eager_mode("debug"), pytest.raises((IndexError, RuntimeError)):
        function(x, i)
    assert (x + 1).cpu().tolist() == [2, 3, 4]


def test_index_error_names_the_operator():
    x = torch.ones(3, device="tpu")
    with pytest.raises(IndexError, match=r"index_select|out of range|out of bounds"):
        x.index_select(0, torch.tensor([7], device="tpu")).cpu()


def test_unsupported_dtypes():
    for dtype in (torch.complex32, torch.quint8):
        with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
            torch.empty(2, dtype=dtype, device="tpu").cpu()
    assert torch.ones(1, device="tpu").item() == 1


def test_no_such_device():
    with pytest.raises(RuntimeError, match="tpu:55"):
        torch.ones(2, device="tpu:55")
    assert torch.ones(2, device="tpu").sum().item() == 2


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_is_refused(layout):
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.eye(2, device="tpu").to_sparse(layout=layout).to_dense().cpu() + torch.sparse_coo_tensor(
            size=(2, 2), device="tpu"
        )
    assert torch.ones(1, device="tpu").item() == 1


# ---- plugins, each in a process of its own ----
USE = """
    import sys, torch
    try:
        torch.ones(2, device="tpu")
        sys.exit("no error")
    except (RuntimeError, ValueError) as error:
        print(error)
    try:
        torch.tpu.init()
        sys.exit("no error the second time")
    except (RuntimeError, ValueError):
        pass
    assert not torch.tpu.is_initialized()
    assert (torch.ones(2) + 1).sum().item() == 4
    torch.manual_seed(0)
"""


def test_missing_plugin(run_python):
    done = run_python(USE, TORCH_TPU_PJRT_PLUGIN="/nonexistent/plugin.so")
    assert "/nonexistent/plugin.so" in done.stdout


def test_plugin_is_a_text_file(run_python, tmp_path):
    path = tmp_path / "plugin.so"
    path.write_text("This is a text file.\n")
    done = run_python(USE, TORCH_TPU_PJRT_PLUGIN=path)
    assert str(path) in done.stdout


def test_plugin_is_corrupt(run_python, tmp_path, cpu_plugin):
    path = tmp_path / "plugin.so"
    with open(cpu_plugin, "rb") as file:
        path.write_bytes(file.read(100_000))
    done = run_python(USE, TORCH_TPU_PJRT_PLUGIN=path)
    assert str(path) in done.stdout


def test_plugin_is_another_library(run_python):
    from torch_tpu import _lib

    done = run_python(USE, TORCH_TPU_PJRT_PLUGIN=f"{_lib.LIB_DIR}/libtorchtpu.so")
    assert "GetPjrtApi" in done.stdout


def test_plugin_is_a_directory(run_python, tmp_path):
    assert str(tmp_path) in run_python(USE, TORCH_TPU_PJRT_PLUGIN=tmp_path).stdout


def test_platform_that_is_not_there(run_python):
    from torch_tpu import _plugins

    if _plugins.has_tpu():
        pytest.skip("this machine has a TPU")
    done = run_python(USE, TORCH_TPU_PLATFORM="tpu", TORCH_TPU_PJRT_PLUGIN=None, TPU_SKIP_MDS_QUERY=1)
    assert "tpu" in done.stdout.lower()
    assert "TORCH_TPU_PLATFORM" in run_python(USE, TORCH_TPU_PLATFORM="abacus").stdout


def test_partial_overlap():
    """A result may be an operand, but not lie across one."""
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0, device=device)
        with pytest.raises(RuntimeError, match="unsupported operation"):
            x[1:].add_(x[:-1])
        with pytest.raises(RuntimeError, match="unsupported operation"):
            torch.mul(x[:3], 2, out=x[1:4])
        x[::2].add_(x[1::2])
        x.add_(x)
        assert x.tolist() == [2.0, 2.0, 10.0, 6.0, 18.0, 10.0]


def test_out_that_is_an_operand_and_too_small():
    x = torch.zeros(0, device="tpu")
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat([x, torch.zeros(4, 6, device="tpu")], dim=0, out=x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.expand(2**40) + 1,
        lambda x: x.expand(2**40).contiguous(),
        lambda x: x.expand(2**21, 1) + x.expand(1, 2**21),
        lambda x: x.repeat(2**60),
        lambda x: torch.ones(2**62, dtype=torch.int8, device="tpu"),
    ],
)
def test_results_of_absurd_size(function):
    """Refused before they reach the compiler."""
    x = torch.ones(1, device="tpu")
    with pytest.raises(torch.OutOfMemoryError):
        function(x)
    assert (x + 1).item() == 2


ops = torch.ops.aten
ODD = {
    "slice_scatter": lambda d: torch.slice_scatter(torch.zeros((), device=d), torch.zeros((), device=d)),
    "slice_backward": lambda d: ops.slice_backward(torch.zeros((), device=d), [], 0, 0, 1, 1),
    "embedding_dense_backward": lambda d: ops.embedding_dense_backward(
        torch.zeros((), device=d), torch.zeros(1, dtype=torch.int64, device=d), 3, -1, False
    ),
    "index_put": lambda d: ops.index_put(torch.zeros(3, device=d), [None], torch.ones(3, device=d)),
    "narrow_copy": lambda d: torch.narrow_copy(ones(d, 3), 0, 0, 2, out=ones(d, 2, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_operands(name):
    """Operands without a result raise the CPU's class, not a general refusal."""
    with pytest.raises(Exception) as expected:
        ODD[name]("cpu")
    with pytest.raises(expected.type):
        ODD[name]("tpu")


@pytest.mark.parametrize("name", ["copysign_", "clamp_min_", "fmod_", "lt_", "logaddexp_", "bitwise_and_", "lerp_"])
def test_in_place_with_a_result_that_does_not_fit(name):
    """The class of the error is the CPU's where the result has no kernel and the tensor can't hold it."""
    for dtype in (torch.bool, torch.int64, torch.bfloat16):
        for other in (torch.float32, torch.complex64):
            classes = []
            for device in ("cpu", "tpu"):
                x, y = torch.ones(3, dtype=dtype, device=device), torch.ones(3, dtype=other, device=device)
                try:
                    getattr(x, name)(y, *([0.5] if name == "lerp_" else []))
                    classes.append(None)
                except Exception as error:
                    classes.append(type(error))
            assert classes[0] == classes[1], (name, dtype, other)


def test_workspace_of_another_cell():
    for workspace in (torch.zeros((), device="tpu"), torch.zeros(2, 16, device="tpu")):
        with pytest.raises(RuntimeError, match="workspace"):
            ops._thnn_fused_gru_cell_backward(torch.zeros(2, 3, device="tpu"), workspace, True)


def test_narrow_copy_into_a_strided_tensor():
    x, out = torch.arange(12.0).view(3, 4).tpu(), torch.zeros(4, 3, 2, device="tpu")[..., 0].t()
    torch.narrow_copy(x, 1, 0, 4, out=out)
    assert torch.equal(out.cpu(), x.cpu())
