"""What is easily lost between PyTorch and a compiler: NaN, ties, the signs of zeros, roundings, types, late errors."""

import itertools
import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from helpers import both, check

NAN, INF = math.nan, math.inf
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]


# ---- NaN and ties ----
TIES = torch.tensor(
    [
        [1.0, 3.0, 3.0, -1.0, -1.0, 0.0, -0.0],
        [NAN, 3.0, NAN, -INF, INF, INF, 2.0],
        [-NAN, -INF, -INF, INF, 5.0, 5.0, NAN],
        [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
        [-0.0, 0.0, -0.0, 0.0, 0.0, -0.0, 1.0],
        [NAN, NAN, NAN, NAN, NAN, NAN, NAN],
    ]
)
ORDERED = {  # with positions: PyTorch says which of several equals it takes
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(1),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(1, keepdim=True),
    "sort": lambda x: x.sort(dim=1, stable=True),
    "sort down": lambda x: x.sort(dim=1, descending=True, stable=True),
    "argsort": lambda x: x.argsort(dim=0, descending=True, stable=True),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(1),
    "aminmax": lambda x: x.aminmax(dim=0),
    "amax": lambda x: x.amax((0, 1)),
    "maximum": lambda x: torch.maximum(x, x.flip(1)),
    "fmin": lambda x: torch.fmin(x, x.flip(1)),
    "clamp": lambda x: x.clamp(-1, 3),
    "clamp by tensors": lambda x: x.clamp(x.flip(0), x.flip(1)),
    "clamp to NaN": lambda x: x.clamp(max=NAN) if x.is_floating_point() else x,
    "clamp crossed": lambda x: x.clamp(3, -1),
    "isin": lambda x: torch.isin(x, x[0]),
    "eq": lambda x: x == x,
    "unique_consecutive": lambda x: x[0].unique_consecutive(return_counts=True),
    "searchsorted": lambda x: torch.searchsorted(x[3], x[0].contiguous(), right=True),
    "bucketize": lambda x: torch.bucketize(x, x[0, 3:6].sort()[0]),
    "logical_xor": lambda x: x.logical_xor(x.flip(0)),
    "any": lambda x: x.any(0),
    "all": lambda x: x.all(1),
    "count_nonzero": lambda x: x.count_nonzero(1),
    "nonzero": lambda x: x.nonzero().contiguous(),
    "signbit": torch.signbit,
}
VALUES = {  # only the values: which position is not said
    "topk": lambda x: x.topk(4, 1)[0],
    "topk least": lambda x: x.topk(4, 1, largest=False)[0],
    "kthvalue": lambda x: x.kthvalue(3, 1)[0],
    "median": lambda x: x.median(1)[0],
    "median of all": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(1)[0],
    "mode": lambda x: x[:1].mode(1)[0],
    "sort unstable": lambda x: x.sort(1)[0],
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", [*ORDERED, *VALUES])
def test_order(name, dtype):
    check({**ORDERED, **VALUES}[name], TIES.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8], ids=str)
def test_order_of_integers(dtype):
    x = torch.tensor([[3, 1, 3, 1, 2, 2, 3], [0, 0, 0, 0, 0, 0, 0], [5, 4, 3, 2, 1, 0, 255]]).to(dtype)
    for name, function in {**ORDERED, **VALUES}.items():
        if name not in ("searchsorted", "clamp by tensors") and not (dtype == torch.uint8 and "clamp" in name):
            check(function, x)


def test_modes():
    for values in ([2, 1, 2, 1, 3], [5, 5, 4, 4, 4], [7], [-1, -1, -2, -2]):
        check(lambda x: x.mode()[0], torch.tensor(values))
        check(lambda x: x.mode()[0], torch.tensor(values).double())


# ---- integer division ----
DIVISIONS = {
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "by a number": lambda x, y: x // 0,
    "remainder by a number": lambda x, y: x % 0,
    "of a number": lambda x, y: 7 // y,
    "in place": lambda x, y: x.floor_divide_(y),
    "out": lambda x, y: torch.remainder(x, y, out=torch.zeros_like(x)),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", DIVISIONS)
def test_integer_division_by_zero(name, dtype):
    for device in ("cpu", "tpu"):
        x = torch.tensor([5, 0, 1], dtype=dtype, device=device)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            DIVISIONS[name](x, torch.zeros_like(x))
            torch.tpu.synchronize()
        with torch.tpu.set_eager_mode("debug"), pytest.raises(RuntimeError, match="ZeroDivisionError"):
            DIVISIONS[name](x, x - x)
        assert DIVISIONS[name](x[:0], x[:0] - x[:0]).tolist() == []
    torch.tpu.synchronize()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_rounding_modes(dtype):
    values = [-7, -6, -1, 1, 3, 7]
    x, y = (t.to(dtype).contiguous() for t in torch.meshgrid(torch.tensor(values), torch.tensor(values), indexing="ij"))
    for mode, divisor in itertools.product((None, "trunc", "floor"), (None, 3, -2.5)):
        check(lambda x, y, m=mode, d=divisor: torch.div(x, y if d is None else d, rounding_mode=m), x, y)
    check(lambda x, y: x % y, x, y)
    check(lambda x, y: (x % 3, x % -3, 7 % y, x.fmod(-3)), x, y)
    if dtype.is_floating_point:
        zeros = torch.tensor([0.0, -0.0, 5, -5, NAN, INF]).to(dtype)
        for function in (torch.floor_divide, torch.remainder, torch.fmod, torch.div):
            check(lambda x, f=function: f(x, torch.zeros_like(x)), zeros)
            check(lambda x, f=function: f(x, x.flip(0)), zeros)


# ---- types ----
ALL = [*FLOATS, *INTS, torch.bool, *COMPLEX]


@pytest.mark.parametrize("a", ALL, ids=str)
def test_promotion_of_every_pair(a):
    """Dtypes alone, from what the device would return: tensors, 0-d tensors on either side, and numbers."""
    for b in ALL:
        for left, right in itertools.product(((2,), ()), ((2,), ())):
            x, y = torch.ones(left, dtype=a), torch.ones(right, dtype=b)
            if torch.float16 in (a, b) and torch.result_type(x, y) == torch.complex32:
                continue
            assert torch.result_type(x.tpu(), y.tpu()) == torch.result_type(x, y)
            assert torch.result_type(x.tpu(), y) == torch.result_type(x, y)
    for number in (True, 2, 1.5, 1j):
        for shape in ((2,), ()):
            x = torch.ones(shape, dtype=a)
            if a == torch.float16 and number == 1j:
                continue
            actual, expected = both(lambda x, n=number: x * n, x)
            assert actual.dtype == expected.dtype and actual.cpu().tolist() == expected.tolist()
            actual, expected = both(lambda x, n=number: torch.true_divide(n, x), x)
            assert actual.dtype == expected.dtype


@pytest.mark.parametrize("b", ALL, ids=str)
def test_mixed_ranks(b):
    for a in (torch.int64, torch.float32, torch.bfloat16, torch.bool):
        for function in (torch.add, torch.where):
            for left, right in (((2,), ()), ((), (2,))):
                x, y = torch.ones(left, dtype=a), torch.ones(right, dtype=b)
                if function is torch.add:
                    check(torch.add, x, y)
                else:
                    check(lambda x, y: torch.where(torch.ones(2, dtype=torch.bool, device=x.device), x, y), x, y)


ACCUMULATIONS = {
    "sum": lambda x: x.sum(),
    "sum of a dim": lambda x: x.sum(0),
    "cumsum": lambda x: x.cumsum(0),
    "prod": lambda x: x[:5].prod(),
    "cumprod": lambda x: x[:5].cumprod(0),
    "sum as float64": lambda x: x.sum(0, dtype=torch.float64),
    "sum as int32": lambda x: x.sum(dtype=torch.int32) if not x.is_complex() else x.sum(),
    "cumsum as float32": lambda x: x.cumsum(0, dtype=torch.float32) if not x.is_complex() else x.cumsum(0),
    "nansum": lambda x: x.nansum() if not x.is_complex() else x.sum(),
}
MEANS = {
    "mean": lambda x: x.mean(0),
    "mean as float32": lambda x: x.mean(dtype=torch.float32),
    "norm": lambda x: torch.linalg.vector_norm(x, 2, 0),
    "norm as float64": lambda x: torch.linalg.vector_norm(x, 1, dtype=torch.float64),
    "norm inf": lambda x: torch.linalg.vector_norm(x, INF),
    "var": lambda x: x.var(0),
    "softmax as float32": lambda x: x.softmax(0, dtype=torch.float32),
    "logsumexp": lambda x: x.logsumexp(0),
}


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("name", ACCUMULATIONS)
def test_accumulations(name, dtype):
    x = (torch.arange(300) % 7).to(dtype)  # more than a small integer or float holds
    check(ACCUMULATIONS[name], x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", MEANS)
def test_means(name, dtype):
    tolerance = {torch.bfloat16: 8e-3, torch.float16: 1e-3}.get(dtype, 3e-6)
    check(MEANS[name], (torch.arange(300) % 7).to(dtype) / 4, rtol=tolerance, atol=tolerance)


def test_norms_do_not_narrow():
    for device in ("cpu", "tpu"):
        for wide, narrow in (
            (torch.float64, torch.float32),
            (torch.float32, torch.bfloat16),
            (torch.float16, torch.bfloat16),
        ):
            with pytest.raises(RuntimeError, match="without narrowing"):
                torch.linalg.vector_norm(torch.ones(3, dtype=wide, device=device), dtype=narrow)


# ---- roundings and zeros ----
@pytest.mark.parametrize("small", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.int32, torch.int64], ids=str)
def test_conversions_round_to_even(small, source):
    one = 1 + torch.arange(-4, 5, dtype=torch.float64) * torch.finfo(small).eps / 4
    values = torch.cat([one, -one, one * 2**10, torch.tensor([65504.0, 65519, 65520, 3e38, 0.0, -0.0, INF, -INF, NAN])])
    values = torch.cat([values, torch.tensor([257.0, 2049, 2051, 16777217, -16777219])])
    if not source.is_floating_point:
        values = values[values.isfinite() & (values.abs() < 2**30)]
    if source == torch.float64:
        values = values.float().double()  # a number between two float32 is rounded twice on the CPU, too
    check(lambda x: x.to(small), values.to(source))


@pytest.mark.parametrize("small", [torch.bfloat16, torch.float16], ids=str)
def test_small_arithmetic_rounds_once(small):
    values = torch.linspace(-3, 3, 41).to(small)
    x, y = (t.contiguous() for t in torch.meshgrid(values, values, indexing="ij"))
    for function in (torch.add, torch.sub, torch.mul, torch.div):
        check(function, x, y)
    check(lambda x, y: torch.add(x, y, alpha=0.3), x, y, rtol=torch.finfo(small).eps, atol=0)
    check(lambda x, y: x * 0.1 + 1, x, y)


SIGNED = [torch.neg, torch.abs, torch.round, torch.trunc, torch.ceil, torch.floor, torch.sqrt, torch.sin, torch.tanh]
SIGNED += [torch.sign, torch.asinh, torch.expm1, torch.frac, torch.reciprocal, F.leaky_relu, F.gelu, F.silu, F.elu]
SIGNED += [torch.erf, torch.atan]
SIGNED_FORMS = {function.__name__: function for function in SIGNED} | {
    "cumsum": lambda x: x.cumsum(0),
    "x * 0": lambda x: x * 0,
    "0 * x": lambda x: 0 * x,
    "x + 0": lambda x: x + 0.0,
    "x + -0": lambda x: x + -0.0,
    "x - x": lambda x: x - x,
    "clamp above": lambda x: x.clamp(max=0),
    "clamp above -0": lambda x: x.clamp(max=-0.0),
    "clamp below": lambda x: x.clamp(min=0),
    "clamp to zero": lambda x: x.clamp(0, 0),
    "clamp by tensors": lambda x: x.clamp(torch.zeros(1, device=x.device), -torch.zeros(1, device=x.device)),
    "clamp each": lambda x: torch._foreach_clamp_max(torch._foreach_clamp_min([x], 0.0), -0.0)[0],
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.0, 0.0),
    "round decimals": lambda x: torch.round(x / 100, decimals=1),
    "round tens": lambda x: torch.round(x, decimals=-1),
    "sum": lambda x: x.sum(),
    "prod": lambda x: x[:2].prod(),
    "sum of zeros": lambda x: x[:2].sum(0),
    "-x + -x": lambda x: -x + -x,
    "products": lambda x: x.flip(0) * x,
    "copysign": lambda x: torch.copysign(torch.ones_like(x), x),
    "bfloat16": lambda x: x.to(torch.bfloat16),
    "complex": lambda x: torch.view_as_real(x.to(torch.complex64)),
    "complex negation": lambda x: torch.view_as_real(-torch.complex(x, x.flip(0))),
    "complex product": lambda x: torch.view_as_real(torch.complex(x, x) * torch.complex(x, x.flip(0))),
    "conj": lambda x: torch.view_as_real(torch.complex(x, x).conj().resolve_conj()),
    "remainder": lambda x: x % 1,
    "fmod": lambda x: x.fmod(1),
    "x / inf": lambda x: x / INF,
    "cube": lambda x: x.pow(3),
    "square": lambda x: x.pow(2),
    "pow 1": lambda x: x**1,
    "atan2": lambda x: x.atan2(x),
    "addcmul": lambda x: x.addcmul(x, x),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "where": lambda x: torch.where(x == 0, x, x),
    "masked_fill": lambda x: x.masked_fill(x == 0, -0.0),
    "fill": lambda x: torch.full_like(x, -0.0),
    "arange": lambda x: torch.arange(-1.0, 1.0, 0.5, device=x.device),
    "sort": lambda x: x.sort(stable=True)[0],
    "index_add": lambda x: x.index_add(0, torch.tensor([1], device=x.device), x[1:2]),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "nan_to_num": lambda x: x.nan_to_num(),
    "deg2rad": lambda x: x.deg2rad(),
    "double": lambda x: x.double().float(),
    "item": lambda x: torch.tensor(x[1].item()),
}


# Not among them: the greatest of 0.0 and -0.0 (max, cummax, fmax), which on the CPU is the one or the other by its
# place, and the sum of a single -0.0, which is 0.0 on the CPU.
@pytest.mark.parametrize("name", SIGNED_FORMS)
def test_signs_of_zeros(name):
    actual, expected = both(SIGNED_FORMS[name], torch.tensor([0.0, -0.0, 1.0, -1.0]))
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)
    values = expected
    actual, expected = torch.signbit(actual).cpu(), torch.signbit(expected)
    assert (actual == expected)[~values.isnan()].all()


def test_subnormals():
    """They survive whatever moves them; XLA:CPU's arithmetic, as a TPU's, may take them for zeros."""
    tiny = torch.tensor([1e-40, -1e-45, 1e-38, 0.0])
    for function in (
        lambda x: x,
        lambda x: x.clone(),
        lambda x: x.flip(0),
        lambda x: x[::2],
        lambda x: torch.cat([x, x]),
        lambda x: x.view(torch.int32),
        lambda x: torch.where(torch.ones(4, dtype=torch.bool, device=x.device), x, x),
        lambda x: x.index_select(0, torch.tensor([1, 0], device=x.device)),
        lambda x: torch.zeros(2, 4, device=x.device).copy_(x),
        lambda x: x.repeat(2),
        lambda x: x.to(torch.float64).to(torch.float32) if x.device.type == "cpu" else x,
    ):
        actual, expected = both(function, tiny)
        assert torch.equal(actual.cpu().view(torch.int32), expected.view(torch.int32))
    doubled = (tiny.tpu() * 2).cpu()
    assert ((doubled == tiny * 2) | (doubled == 0)).all()
    assert ((tiny.half() * 2).tolist()) == (tiny.half().tpu() * 2).tolist()
    half = torch.tensor([6e-8, 5e-5, -6e-6]).half()
    assert (half * 2).tolist() == (half.tpu() * 2).tolist()  # float16's are ordinary float32


# ---- again and again ----
def test_results_repeat():
    torch.manual_seed(0)
    x, w = torch.randn(64, 257).tpu(), torch.randn(257, 33).tpu()
    index = torch.randint(0, 5, (64,)).tpu()
    functions = [
        lambda: x @ w,
        lambda: x.sum(),
        lambda: x.softmax(1),
        lambda: x.var(0),
        lambda: torch.zeros(5, 257, device="tpu").index_add_(0, index, x),
        lambda: torch.zeros(5, 257, device="tpu").scatter_add_(0, index[:, None].expand(64, 257), x),
        lambda: torch.zeros(5, 257, device="tpu").index_put_((index,), x, accumulate=True),
        lambda: x.cumsum(0),
        lambda: F.layer_norm(x, (257,)),
        lambda: F.embedding_bag(index.view(8, 8), x[:5], mode="mean"),
    ]
    for function in functions:
        first = function().cpu()
        assert all(torch.equal(function().cpu(), first) for _ in range(3))


# ---- indices out of range: the operator is named ----
def bag(x, i):
    return F.embedding_bag(i, x, torch.tensor([0], device=x.device))


def source(x, i):
    return torch.ones(len(i), 4, device=x.device)


OUT_OF_RANGE = {  # x is 3 by 4, the index a vector of two
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "take": lambda x, i: x.take(i * 4),
    "index_select": lambda x, i: x.index_select(0, i),
    "index": lambda x, i: x[i],
    "index of the second dim": lambda x, i: x[:, i + 1],
    "index of two": lambda x, i: x[i, i],
    "index_put": lambda x, i: x.index_put_((i,), source(x, i)),
    "setitem": lambda x, i: x.__setitem__(i, 1.0),
    "put": lambda x, i: x.put_(i * 4, source(x, i)[:, 0]),
    "index_add": lambda x, i: x.index_add_(0, i, source(x, i)),
    "index_copy": lambda x, i: x.index_copy_(0, i, source(x, i)),
    "index_fill": lambda x, i: x.index_fill_(0, i, 2),
    "index_reduce": lambda x, i: x.index_reduce_(0, i, source(x, i), "amax"),
    "scatter": lambda x, i: x.scatter_(0, i[:, None], source(x, i)),
    "scatter of a value": lambda x, i: x.scatter_(0, i[:, None], 2.0),
    "scatter_add": lambda x, i: x.scatter_add_(0, i[:, None], source(x, i)),
    "scatter_reduce": lambda x, i: x.scatter_reduce_(0, i[:, None], source(x, i), "amin"),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": bag,
    "embedding_bag, max": lambda x, i: F.embedding_bag(i[None], x, mode="max"),
    "nll_loss": lambda x, i: F.nll_loss(x[:2, :3], i),
    "nll_loss of images": lambda x, i: F.nll_loss(x[None, :, :2], i[None]),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2, :3], i),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:2, :3], i),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "select by a tensor": lambda x, i: x.index_select(0, i[1:])[0],
}
NEGATIVE_IS_FINE = (
    "index",
    "index_fill",
    "take",
    "put",
    "setitem",
    "index_put",
    "index of two",
    "index of the second dim",
)


@pytest.mark.parametrize("mode", ["strict", "debug"])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_indices_out_of_range(name, mode):
    function = OUT_OF_RANGE[name]
    for bad in (3, -1000) if name in NEGATIVE_IS_FINE else (3, -1):
        errors = []
        for device in ("cpu", "tpu"):
            x, i = torch.zeros(3, 4, device=device), torch.tensor([0, bad], device=device)
            torch.tpu.synchronize()
            with torch.tpu.set_eager_mode(mode), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    function(x, i)
                    if mode == "strict":
                        torch.tpu.synchronize()
                except (IndexError, RuntimeError) as error:
                    errors.append(error)
        torch.tpu.synchronize()  # once
        assert len(errors) == 2, (bad, errors)
        # The CPU says IndexError of some, RuntimeError of others; the device says IndexError of more.
        assert type(errors[1]) in (IndexError, type(errors[0])), errors
        assert "(" in str(errors[1]).split(":")[0], errors[1]  # "operator(): ..."


def test_ignored_targets_may_be_anything():
    x = torch.randn(3, 4)
    check(lambda x, i: F.cross_entropy(x, i, ignore_index=77), x, torch.tensor([0, 77, 3]))
    check(lambda x, i: F.nll_loss(x, i, ignore_index=-100), x, torch.tensor([-100, 1, 2]))
    check(lambda x, i: F.embedding(i, x, padding_idx=0), x, torch.tensor([0, 2]))
