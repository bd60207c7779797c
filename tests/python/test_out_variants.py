"""The contracts of out= forms: which dtypes they take, and which operands they may be."""

import pytest
import torch

DEVICES = ("cpu", "tpu")
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.int64, torch.int16, torch.uint8, torch.bool)


def outcome(function, *operands, **options):
    """The class of what a call raises, or its result."""
    try:
        result = function(*operands, **options)
    except Exception as error:
        return type(error)
    return [t.cpu() for t in (result if isinstance(result, tuple) else (result,))]


def same(cpu, tpu, what):
    if isinstance(cpu, type) or isinstance(tpu, type):
        assert cpu is tpu, f"{what}: {tpu}, the CPU: {cpu}"
    else:
        for a, b in zip(cpu, tpu, strict=True):
            torch.testing.assert_close(b, a, msg=lambda text: f"{what}: {text}")


def x(device, dtype=torch.float32):
    return torch.tensor([[1, 0, 3], [2, 1, 1]], device=device).to(dtype)


# One operator of each kind: elementwise of one dtype, elementwise that casts, predicates, reductions that compute in
# the out='s dtype, those that don't, moves, lists, products, forms that PyTorch generates.
UNARY = {
    "ceil": torch.ceil,
    "abs": torch.abs,
    "neg": torch.neg,
    "hardtanh": lambda x, out: torch._C._nn.hardtanh(x, out=out),
    "clamp": lambda x, out: torch.clamp(x, 0, out=out),
    "sin": torch.sin,
    "add": lambda x, out: torch.add(x, x, out=out),
    "heaviside": lambda x, out: torch.heaviside(x, x, out=out),
    "isposinf": torch.isposinf,
    "signbit": torch.signbit,
    "eq": lambda x, out: torch.eq(x, x, out=out),
    "logical_not": torch.logical_not,
    "where": lambda x, out: torch.where(x != 0, x, x, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "tril": torch.tril,
    "cat": lambda x, out: torch.cat([x[:1], x[1:]], out=out),
    "relu": torch.ops.aten.relu.out,
    "mul.Scalar": lambda x, out: torch.ops.aten.mul.Scalar_out(x, 2, out=out),
    "isin": lambda x, out: torch.isin(x, x[0], out=out),
    "gather": lambda x, out: torch.gather(x, 0, torch.zeros(2, 3, dtype=torch.int64, device=x.device), out=out),
}
REDUCED = {
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "sum dtype": lambda x, out: torch.sum(x, 1, dtype=torch.float32, out=out),
    "sum generated": lambda x, out: torch.ops.aten.sum.out(x, out=out),
    "nansum": lambda x, out: torch.nansum(x, 1, out=out),
    "prod": lambda x, out: torch.prod(x, 1, out=out),
    "mean": lambda x, out: torch.mean(x, 1, out=out),
    "amax": lambda x, out: torch.amax(x, 1, out=out),
    "max": lambda x, out: torch.max(x, out=out),
    "all": lambda x, out: torch.all(x, 1, out=out),
    "var": lambda x, out: torch.var(x, 1, out=out),
    "argmax": lambda x, out: torch.argmax(x, 1, out=out),
    "logsumexp": lambda x, out: torch.logsumexp(x, 1, out=out),
    "masked_select": lambda x, out: torch.masked_select(x, x != 0, out=out),
    "nonzero": torch.nonzero,
    "mse_loss": lambda x, out: torch._C._nn.mse_loss(x, x, out=out),
    "normal": lambda x, out: torch.normal(x, x * 0, out=out),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*UNARY, *REDUCED])
def test_dtypes(name):
    function = (UNARY | REDUCED)[name]
    for dtype in {"abs": (torch.complex64,), "mse_loss": (torch.float32,)}.get(name, (torch.float32, torch.int16)):
        for out in DTYPES:
            call = [outcome(function, x(d, dtype), out=torch.empty(0, dtype=out, device=d)) for d in DEVICES]
            same(*call, f"{name} of {dtype} into {out}")


def empties(device, dtypes):
    return tuple(torch.empty(0, dtype=dtype, device=device) for dtype in dtypes)


def test_two_results():
    """Each of several results has its own dtype."""
    for outs in ((torch.float32, torch.int32), (torch.float64, torch.int64), (torch.float32, torch.int64)):
        for function in (lambda x, out: torch.max(x, 1, out=out), lambda x, out: torch.sort(x, 1, out=out)):
            both = [outcome(function, x(d), out=empties(d, outs)) for d in DEVICES]
            same(*both, outs)


def long(device):
    return torch.arange(4, device=device)


# The written tensor is an operand: refused by the operators that look operands up by index.
SHARED = {
    "gather": lambda x, i: torch.gather(x, 0, i, out=x),
    "gather index": lambda x, i: torch.gather(i, 0, x, out=x),
    "index_select": lambda x, i: torch.index_select(i, 0, x, out=x),
    "take": lambda x, i: torch.take(x, i, out=x),
    "take index": lambda x, i: torch.take(i, x, out=x),
    "put_": lambda x, i: x.put_(i, x),
    "index_add_": lambda x, i: x.index_add_(0, i, x),
    "index_copy_": lambda x, i: x.index_copy_(0, x, i),
    "index_reduce_": lambda x, i: x.index_reduce_(0, i, x, "amax"),
    "index_fill_": lambda x, i: x.index_fill_(0, x, 1),
    "scatter_": lambda x, i: x.scatter_(0, i, x),
    "scatter_ index": lambda x, i: x.scatter_(0, x, 1),
    "scatter_add_": lambda x, i: x.scatter_add_(0, i, x),
    "scatter_reduce_": lambda x, i: x.scatter_reduce_(0, x, i, "amax"),
    "index_put_": lambda x, i: x.index_put_((i,), x),
    "index_put_ index": lambda x, i: x.index_put_((x,), i),
    "index": lambda x, i: torch.ops.aten.index.Tensor_out(x, [i], out=x),
    "cat": lambda x, i: torch.cat([x[:2], x[2:]], out=x),
    "cross": lambda x, i: torch.linalg.cross(x[:3], i[:3], out=x[:3]),
    "masked_select": lambda x, i: torch.masked_select(x, i > 1, out=x),
    "nonzero": lambda x, i: torch.nonzero(x, out=x),
    "masked_scatter_": lambda x, i: x.masked_scatter_(i > 1, x),
    "add": lambda x, i: torch.add(x, i, out=x),
    "add across": lambda x, i: torch.add(x[1:], 1, out=x[:-1]),
    "where": lambda x, i: torch.where(i > 1, x, x, out=x),
    "flip across, generated": lambda x, i: torch.ops.aten.flip.out(x[1:], [0], out=x[:-1]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHARED)
def test_out_that_is_an_operand(name):
    same(*(outcome(SHARED[name], long(d), long(d)) for d in DEVICES), name)


LAYOUTS = {
    "cholesky": torch.linalg.cholesky,
    "cholesky_ex": lambda x, out: torch.ops.aten.linalg_cholesky_ex.L(
        x, L=out, info=torch.empty(0, dtype=torch.int32, device=x.device)
    ),
    "old cholesky": torch.cholesky,
    "inv": torch.linalg.inv,
    "solve": lambda x, out: torch.linalg.solve(x, x, out=out),
    "qr": lambda x, out: torch.linalg.qr(x, out=(out, torch.empty_like(out))),
    "fft": lambda x, out: torch.fft.fft(x.mT, out=out),
    "ifft": lambda x, out: torch.fft.ifft(x.mT, dim=0, out=out),
    "irfft": lambda x, out: torch.fft.irfft(x.mT, out=out),
    "rfft": lambda x, out: torch.fft.rfft(x.real.mT.contiguous().mT, dim=1, out=out),
    "gather": lambda x, out: torch.index_select(x.mT, 0, torch.tensor([1], device=x.device), out=out),
    "add": lambda x, out: torch.add(x.mT, 1, out=out),
    "mm": lambda x, out: torch.mm(x.mT, x, out=out),
    "generated": lambda x, out: torch.ops.aten.relu.out(x.real.mT, out=out),
    "copy": lambda x, out: torch.ops.aten.clone.out(x.mT, out=out),
    "where": lambda x, out: torch.where(x.mT != 0, x.mT, x.mT, out=out),
    "eq": lambda x, out: torch.logical_and(x.mT, x.mT, out=out),
    "sum": lambda x, out: torch.sum(x.mT[..., None], 2, out=out),
    "cumsum": lambda x, out: torch.cumsum(x.mT, 0, out=out),
    "flip of two": lambda x, out: torch.mul(x.mT, x, out=out),
    "clamp": lambda x, out: torch.clamp(x.real.mT, 0.1, out=out),
    "softmax": lambda x, out: torch.softmax(x.real.mT, 0, out=out),
    "cat": lambda x, out: torch.cat([x.mT, x.mT], out=out),
    "polar": lambda x, out: torch.polar(x.real.mT.abs(), x.real.mT, out=out),
    "complex": lambda x, out: torch.complex(x.real.mT, x.real.mT, out=out),
    "real function": lambda x, out: torch.erf(x.real.mT, out=out),
}


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_of_an_empty_tensor(name):
    """An empty out= tensor gets the strides that the CPU gives it."""
    a = torch.eye(3, dtype=torch.complex64) * 2
    a[0, 1] = a[1, 0] = 0.5
    outs = []
    for device in DEVICES:
        real = name in ("irfft", "generated", "clamp", "softmax", "real function")
        dtype = torch.float32 if real else torch.bool if name == "eq" else torch.complex64
        out = torch.empty(0, dtype=dtype, device=device)
        LAYOUTS[name](a.to(device), out=out)
        outs.append(out)
    assert outs[0].stride() == outs[1].stride() and outs[0].shape == outs[1].shape
    torch.testing.assert_close(outs[1].cpu(), outs[0])
