"""Reductions and running reductions agree with the CPU's in values, types, layouts and complaints."""

import pytest
import torch

from helpers import assert_same, check

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
TOLERANCE = {
    torch.float32: (1e-5, 1e-5),
    torch.float64: (1e-12, 1e-12),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (2e-3, 2e-3),
    torch.complex64: (1e-5, 1e-5),
}


def tolerance(dtype):
    rtol, atol = TOLERANCE.get(dtype, (0, 0))
    return {"rtol": rtol, "atol": atol}


def sample(*sizes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, generator=generator, dtype=torch.complex64 if dtype.is_complex else None).to(dtype)
    low = 0 if dtype in (torch.uint8, torch.bool) else -4
    return torch.randint(low, 2 if dtype == torch.bool else 5, sizes, generator=generator).to(dtype)


SUMS = {
    "sum": lambda x: x.sum(),
    "sum dim": lambda x: x.sum(1),
    "sum dims keepdim": lambda x: x.sum((0, -1), keepdim=True),
    "sum no dims": lambda x: x.sum(dim=()),
    "sum dtype": lambda x: x.sum(1, dtype=torch.float64) if not x.is_complex() else x.sum(1, dtype=torch.complex128),
    "prod": lambda x: x.prod(),
    "prod dim": lambda x: x.prod(2),
    "any": lambda x: x.any(),
    "any dim": lambda x: x.any(1),
    "any no dims": lambda x: torch.any(x, dim=()),
    "all": lambda x: x.all(),
    "all dims": lambda x: x.all((0, 2), keepdim=True),
    "count_nonzero": lambda x: x.count_nonzero(),
    "count_nonzero dim": lambda x: x.count_nonzero((0, 1)),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(-1),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool, torch.complex64], ids=str)
def test_sums(name, dtype):
    check(SUMS[name], sample(3, 4, 5, dtype=dtype), **tolerance(dtype))


MEANS = {
    "mean": lambda x: x.mean(),
    "mean dims": lambda x: x.mean((0, 2)),
    "var": lambda x: x.var(),
    "var biased": lambda x: x.var(1, unbiased=False),
    "std correction": lambda x: x.std((0, 1), correction=2, keepdim=True),
    "std fraction": lambda x: torch.std(x, 1, correction=0.5),
    "var_mean": lambda x: torch.var_mean(x, 2),
    "std_mean": lambda x: torch.std_mean(x),
    "norm": lambda x: x.norm(),
    "norm 1": lambda x: x.norm(1, dim=1),
    "norm 3": lambda x: x.norm(3, dim=(0, 2), keepdim=True),
    "norm -1.5": lambda x: torch.linalg.vector_norm(x, -1.5, dim=1),
    "norm 0": lambda x: torch.linalg.vector_norm(x, 0, dim=1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, INF),
    "norm -inf": lambda x: torch.linalg.vector_norm(x, -INF, dim=2),
    "logsumexp": lambda x: x.logsumexp(1),
    "logsumexp all": lambda x: x.logsumexp((0, 1, 2), keepdim=True),
}


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64], ids=str)
def test_means(name, dtype):
    check(MEANS[name], sample(3, 4, 5, dtype=dtype), **tolerance(dtype))


EXTREMES = {
    "amax": lambda x: x.amax(1),
    "amin all": lambda x: x.amin(),
    "amax dims": lambda x: x.amax((0, 2), keepdim=True),
    "aminmax": lambda x: x.aminmax(dim=1),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max dim": lambda x: x.max(1),
    "min dim": lambda x: x.min(-1, keepdim=True),
    "argmax": lambda x: x.argmax(),
    "argmax keepdim": lambda x: x.argmax(keepdim=True),
    "argmin dim": lambda x: x.argmin(1),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(0),
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool], ids=str)
def test_extremes(name, dtype):
    if dtype == torch.bool and "arg" in name:
        with pytest.raises(RuntimeError, match="does not support bool"):
            EXTREMES[name](sample(3, 4, 5, dtype=dtype).tpu())
        return
    x = sample(3, 4, 5, dtype=dtype)
    check(EXTREMES[name], x)  # ties abound: the first position counts
    check(EXTREMES[name], torch.zeros_like(x))


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_with_nan(name):
    x = sample(3, 4, 5)
    x[0, 1, 2], x[0, 3, 2], x[2, 2, :], x[1, 0, 0] = NAN, NAN, -NAN, INF
    check(EXTREMES[name], x)


ALL = {**SUMS, **MEANS, **EXTREMES}


@pytest.mark.parametrize("name", ALL)
def test_strided(name):
    check(lambda x: ALL[name](x.permute(2, 0, 1)[:, 1:]), sample(5, 4, 3), rtol=1e-5, atol=1e-6)


SCALARS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "max": lambda x: x.max(0),
    "argmin": lambda x: x.argmin(0),
    "var": lambda x: x.var(0),
    "any": lambda x: x.any(0),
    "amax": lambda x: x.amax(-1),
    "cumsum": lambda x: x.cumsum(0),
    "cummax": lambda x: x.cummax(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(0),
    "prod": lambda x: x.prod(0),
}


@pytest.mark.parametrize("name", SCALARS)
def test_of_a_scalar(name):
    check(SCALARS[name], torch.tensor(2.5))


EMPTY = {
    "sum": lambda x: x.sum(),
    "sum dim": lambda x: x.sum(0),
    "prod": lambda x: x.prod(0),
    "mean": lambda x: x.mean(0),
    "var": lambda x: x.var(0),
    "all": lambda x: x.all(0),
    "amax other": lambda x: x.amax(1),
    "max other": lambda x: x.max(1),
    "argmax other": lambda x: x.argmax(1),
    "norm": lambda x: x.norm(dim=0),
    "logsumexp": lambda x: x.logsumexp(0),
    "cumsum": lambda x: x.cumsum(0),
    "cummax": lambda x: x.cummax(0),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
}


@pytest.mark.parametrize("name", EMPTY)
def test_of_nothing(name):
    check(EMPTY[name], torch.zeros(0, 3))


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 32, 33, 100, 257, 1000])
@pytest.mark.parametrize("dim", [0, 1])
def test_running_lengths(length, dim):
    x = sample(length, 3) if dim == 0 else sample(3, length)
    check(lambda x: x.cumsum(dim), x, rtol=1e-4, atol=1e-4)
    check(lambda x: x.cummax(dim), x)
    check(lambda x: x.logcumsumexp(dim), x, rtol=1e-5, atol=1e-5)
    check(lambda x: x.cumsum(dim), (x * 10).long())


def test_running_sums_keep_to_their_side():
    x = sample(64)
    x[40], x[50] = INF, NAN
    check(lambda x: x.cumsum(0), x, rtol=1e-4, atol=1e-5)
    x = torch.tensor([-INF, -INF, 0.0, INF, INF, 1.0, NAN, 2.0])
    check(lambda x: x.logcumsumexp(0), x)


def test_nansum_and_infinities():
    x = sample(4, 5)
    x[0, 1], x[2, 3] = NAN, NAN
    check(lambda x: x.nansum(1), x, rtol=1e-5, atol=1e-6)
    check(lambda x: x.nanmean(), x, rtol=1e-5, atol=1e-6)
    y = torch.tensor([[-INF, -INF], [INF, 1.0], [-INF, 2.0]])
    check(lambda x: x.logsumexp(1), y)


def test_large_sums_are_accurate():
    x = torch.rand(1 << 20, generator=torch.Generator().manual_seed(1))
    exact = x.double().sum()
    assert abs(x.tpu().sum().cpu() - exact) / exact < 1e-6
    assert torch.ones(70000, dtype=torch.bool).tpu().sum().item() == 70000
    assert torch.full((70000,), 2**31 - 1, dtype=torch.int32).tpu().sum().item() == 70000 * (2**31 - 1)
    half = torch.full((4096,), 16.0, dtype=torch.float16).tpu()
    assert half.mean().item() == 16  # the sum alone would overflow


def test_out_and_in_place():
    x = sample(3, 4)
    for function in (
        lambda a, out: torch.sum(a, 1, out=out),
        lambda a, out: torch.amax(a, 1, out=out),
        lambda a, out: torch.mean(a, 1, out=out),
        lambda a, out: torch.logsumexp(a, 1, out=out),
    ):
        for size in (3, 0):
            check(function, x, torch.empty(size), rtol=1e-5, atol=1e-6)
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    check(lambda a, v, i: torch.max(a, 0, out=(v, i)), x, values, indices)
    check(lambda a: a[:, 1].cumsum_(0), x, rtol=1e-5, atol=1e-6)
    check(lambda a: a.int().cumsum_(0), x * 3)


COMPLAINTS = {
    "dim": (
        IndexError,
        r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)",
        lambda x: x.sum(2),
    ),
    "dim twice": (RuntimeError, "dim 0 appears multiple times", lambda x: x.sum((0, -2))),
    "mean of ints": (RuntimeError, "could not infer output dtype", lambda x: x.long().mean()),
    "var of ints": (RuntimeError, "only support floating point and complex", lambda x: x.long().var()),
    "norm of ints": (RuntimeError, "Expected a floating point or complex tensor", lambda x: x.long().norm()),
    "amax of nothing": (IndexError, "Expected reduction dim 1 to have non-zero size", lambda x: x[:, :0].amax(1)),
    "max of nothing": (RuntimeError, "Expected reduction dim to be specified", lambda x: x[:0].max()),
    "argmax of nothing": (IndexError, "Expected reduction dim to be specified", lambda x: x[:0].argmax()),
    "max of complex": (RuntimeError, "not implemented for 'ComplexFloat'", lambda x: x.to(torch.complex64).max()),
}


@pytest.mark.parametrize("name", COMPLAINTS)
@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_complaints(name, device):
    error, match, function = COMPLAINTS[name]
    with pytest.raises(error, match=match):
        function(torch.zeros(2, 3, device=device))


GRADIENTS = {
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean((0, 1)),
    "prod": lambda x: x.prod(1),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(0),
    "norm": lambda x: x.norm(dim=1),
    "norm 3": lambda x: x.norm(3),
    "amax": lambda x: x.amax(1),
    "max": lambda x: x.max(1)[0],
    "logsumexp": lambda x: x.logsumexp(1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: x.cummax(1)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "nansum": lambda x: x.nansum(0),
    "var_mean": lambda x: torch.var_mean(x, 1)[0] * torch.var_mean(x, 1)[1],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    x = sample(3, 4).requires_grad_()
    y = x.detach().tpu().requires_grad_()
    expected, actual = GRADIENTS[name](x), GRADIENTS[name](y)
    weight = sample(*expected.shape, seed=2)
    expected.backward(weight)
    actual.backward(weight.tpu())
    assert_same(y.grad, x.grad, rtol=1e-4, atol=1e-5)
