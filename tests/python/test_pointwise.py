"""Elementwise operators and activations: PyTorch's own samples of each, and the edges that samples leave out."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from helpers import assert_same, check

NAMES = """
abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma
log log10 log1p log2 neg reciprocal round round.decimals_3 round.decimals_neg_3 rsqrt sgn sigmoid sign sin
sinc sinh sqrt tan tanh trunc conj_physical isnan isinf isposinf isneginf signbit angle nan_to_num frexp
logit square i0 polygamma.polygamma_n_0 polygamma.polygamma_n_1 polygamma.polygamma_n_3
mvlgamma.mvlgamma_p_3 special.i0e special.i1 special.i1e special.entr special.erfcx special.log_ndtr
special.ndtri special.zeta special.xlog1py special.bessel_j0 special.bessel_y1 special.airy_ai
special.spherical_bessel_j0 special.modified_bessel_k0 special.scaled_modified_bessel_k1
special.chebyshev_polynomial_t special.shifted_chebyshev_polynomial_w special.hermite_polynomial_h
special.laguerre_polynomial_l special.legendre_polynomial_p igamma igammac add sub mul div.no_rounding_mode
div.trunc_rounding div.floor_rounding rsub floor_divide remainder fmod pow float_power maximum minimum fmax
fmin atan2 hypot heaviside copysign nextafter logaddexp logaddexp2 xlogy gcd lcm lerp addcmul addcdiv
complex polar eq ne lt le gt ge logical_and logical_or logical_xor logical_not bitwise_and bitwise_or
bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift where masked_fill clamp clamp_min clamp_max
nn.functional.relu nn.functional.relu6 nn.functional.gelu nn.functional.silu nn.functional.mish
nn.functional.elu nn.functional.celu nn.functional.selu nn.functional.leaky_relu nn.functional.hardtanh
nn.functional.hardswish nn.functional.hardsigmoid nn.functional.softplus nn.functional.softshrink
nn.functional.hardshrink nn.functional.threshold nn.functional.glu nn.functional.logsigmoid
nn.functional.prelu arange linspace logspace eye full full_like zeros ones tril_indices triu_indices
"""
DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.complex64, torch.uint8, torch.bool]
TOLERANCES = {torch.bfloat16: (1.6e-2, 1e-2), torch.float32: (3e-5, 1e-5), torch.complex64: (3e-5, 1e-5)}
TOLERANCES |= {torch.float64: (1e-7, 1e-7), torch.complex128: (1e-7, 1e-7)}
NAMES = NAMES.split()
OPS = {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}


def tolerance(dtype):
    rtol, atol = TOLERANCES.get(dtype, (0, 0))
    return {"rtol": rtol, "atol": atol}


def to_device(sample):
    """Copies with the same strides, through copies of the storages."""

    def move(x):
        if isinstance(x, torch.Tensor):
            flat = x.detach().as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
            view = flat.to("tpu").as_strided(x.shape, x.stride(), x.storage_offset())
            return view.requires_grad_(x.requires_grad)
        return "tpu" if x == "cpu" or isinstance(x, torch.device) else x

    return tree_map(move, sample)


def compare(run, sample):
    """run(sample) gives the same on both devices, the same kind of error included."""
    try:
        expected = run(sample)
    except (RuntimeError, NotImplementedError) as error:
        if "ZeroDivision" not in str(error):  # the CPU's alone
            with pytest.raises(type(error)):
                run(to_device(sample))
        return
    for a, e in zip(tree_flatten(run(to_device(sample)))[0], tree_flatten(expected)[0], strict=True):
        if e is not None and e.numel() > 0:
            assert_same(a.detach(), e.detach(), **tolerance(e.dtype))


def samples(op, dtype, limit, grad=False):
    found = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    return [(s.input, s.args, s.kwargs) for s in found[:: -(-len(found) // limit)]]


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, d) for n in NAMES for d in DTYPES if d in OPS[n].supported_dtypes("cpu")]
)
def test_samples(name, dtype):
    op = OPS[name]
    for s in samples(op, dtype, 3):
        compare(lambda s: op(s[0], *s[1], **s[2]), s)


@pytest.mark.parametrize("name", [n for n in NAMES if torch.float32 in OPS[n].supported_backward_dtypes("cpu")])
def test_gradients(name):
    op = OPS[name]

    def gradients(s):
        results = [t for t in tree_flatten(op(s[0], *s[1], **s[2]))[0] if t.requires_grad]
        inputs = [t for t in tree_flatten(s)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
        torch.manual_seed(0)
        weights = [torch.randn(t.shape, dtype=t.dtype).to(t.device) for t in results]
        return [g for g in torch.autograd.grad(results, inputs, weights, allow_unused=True) if g is not None]

    if op.supports_autograd:
        for s in samples(op, torch.float32, 3, grad=True):
            compare(gradients, s)


@pytest.mark.parametrize("name", [n for n in NAMES if OPS[n].get_inplace()])
def test_in_place_through_a_view(name):
    op = OPS[name]

    def write(s):
        base = torch.zeros((2, *s[0].shape), dtype=s[0].dtype, device=s[0].device)
        base[1] = s[0]
        op.get_inplace()(base[1], *s[1], **s[2])
        return base

    dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64
    for s in samples(op, dtype, 2):
        if isinstance(s[0], torch.Tensor):
            compare(write, s)


@pytest.mark.parametrize("name", [n for n in NAMES if OPS[n].supports_out])
def test_out(name):
    op = OPS[name]

    def fill(s):
        result = op(s[0], *s[1], **s[2])
        if isinstance(result, tuple):
            out = tuple(torch.empty_like(t) for t in result)
            op(s[0], *s[1], **s[2], out=out)
            return out
        resized = torch.empty(0, dtype=result.dtype, device=result.device)
        op(s[0], *s[1], **s[2], out=resized)
        return resized

    dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64
    for s in samples(op, dtype, 2):
        compare(fill, s)


# No subnormals: XLA:CPU and the TPU take them for zeros. No 3e38: the CPU's own kernels overflow on the way.
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, math.inf, -math.inf, math.nan, 3e18, 1e-18, 88.8, -104.0])
UNARY = "abs sign sgn neg relu sigmoid tanh exp expm1 log log1p log2 sqrt rsqrt floor ceil round trunc frac erf erfinv"
UNARY += " lgamma digamma sinc asin acosh isnan isinf signbit reciprocal sinh atan exp2"
ACTIVATIONS = "silu mish elu selu hardswish hardsigmoid softplus logsigmoid leaky_relu hardtanh relu6"
BINARY = "add mul div maximum minimum fmax fmin remainder fmod pow atan2 hypot copysign logaddexp xlogy floor_divide"
BINARY += " eq lt ge"


@pytest.mark.parametrize("name", UNARY.split())
def test_special_values_of_one(name):
    check(getattr(torch, name), SPECIAL, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS.split())
def test_special_values_of_activations(name):
    check(getattr(F, name), SPECIAL, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("name", BINARY.split())
def test_special_values_of_two(name):
    x, y = SPECIAL[:, None].expand(13, 13).contiguous(), SPECIAL.expand(13, 13).contiguous()
    check(getattr(torch, name), x, y, rtol=3e-5, atol=1e-6)
    if name in ("add", "mul", "copysign", "remainder"):  # the sign of zeros too
        check(lambda x, y: torch.signbit(torch.nan_to_num(getattr(torch, name)(x, y))), x, y)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "trunc", "pow", "gcd", "lcm"])
def test_whole_numbers(name, dtype):
    values = torch.tensor([-7, -3, -2, -1, 1, 2, 3, 7, 100] if dtype != torch.uint8 else [1, 2, 3, 7, 100])
    x, y = (t.to(dtype).contiguous() for t in torch.meshgrid(values, values, indexing="ij"))
    function = getattr(torch, name) if name != "trunc" else lambda x, y: torch.div(x, y, rounding_mode="trunc")
    check(function, x, y.abs() if name == "pow" else y)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_float_to_whole(dtype):
    values = [0.0, 1.9, -1.9, 300.0, -300.0, 3e9, -3e9, 1e18, -2147483648.0, 2147483648.0]
    if dtype in (torch.int32, torch.int64, torch.bool):  # what C leaves undefined for the others
        values += [math.nan, math.inf, -math.inf, 1e30]
    for source in (torch.float32, torch.float64):
        check(lambda x: x.to(dtype), torch.tensor(values, dtype=source))


ALL = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32]
ALL += [torch.float64, torch.complex64]


@pytest.mark.parametrize(("a", "b"), itertools.combinations_with_replacement(ALL, 2))
def test_promotion(a, b):
    x, y = torch.ones(3, dtype=a), torch.full((3,), 2).to(b)
    if torch.float16 in (a, b) and (a.is_complex or b.is_complex):
        pytest.skip("complex numbers of halves are not supported")
    for function in (torch.add, torch.mul, torch.div, torch.eq):
        check(function, x, y)
        check(function, x, y[0])
        check(function, x[0], y)
        check(function, x[0], y[0])


@pytest.mark.parametrize("dtype", ALL)
def test_promotion_with_numbers(dtype):
    numbers = (True, 3, 0.1) if dtype is torch.float16 else (True, 3, 0.1, 1j)
    for number, function in itertools.product(numbers, (torch.add, torch.mul, torch.div)):
        check(lambda x, f=function, n=number: f(x, n), torch.ones(3, dtype=dtype), rtol=1e-6, atol=1e-6)


def test_small_floats_round_once():
    x = torch.randn(1000).bfloat16()
    check(lambda x: (x * 0.1, x / 0.1, x + 0.1, x % 0.1, x.lerp(x * 2, 0.1)), x, rtol=0, atol=0)


def test_a_changing_number_compiles_nothing_new():
    x = torch.randn(7, device="tpu")

    def step(number):
        y = (x * number + number - x / number) ** (number + 0.25)
        y = torch.clamp(y, -number, number).masked_fill(x > number, number)
        y = F.leaky_relu(F.elu(y, number), number) + torch.lerp(x, y, number) + x.addcmul(x, y, value=number)
        return y.fill_(number).add(x, alpha=number)

    step(1.3)
    before = torch.tpu.compile_count()
    for i in range(4):
        step(1.7 + i)
    assert torch.tpu.compile_count() == before


LAYOUTS = {
    "contiguous": lambda: torch.randn(2, 3, 4, 5),
    "transposed": lambda: torch.randn(5, 4, 3, 2).permute(3, 2, 1, 0),
    "channels last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "sliced": lambda: torch.randn(4, 3, 4, 10)[::2, ..., ::2],
    "expanded": lambda: torch.randn(2, 1, 4, 1).expand(2, 3, 4, 5),
}


@pytest.mark.parametrize(("a", "b"), itertools.product(LAYOUTS, LAYOUTS))
def test_strides_are_the_cpus(a, b):
    x, y = LAYOUTS[a](), LAYOUTS[b]()
    on_tpu = [t.to("tpu").as_strided(t.shape, t.stride()) if t.is_contiguous() else to_device(t) for t in (x, y)]
    for function in (torch.add, lambda x, y: torch.where(x > 0, x, y), lambda x, y: x.exp(), lambda x, y: F.gelu(y)):
        assert_same(function(*on_tpu), function(x, y), rtol=3e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda x: x + x[:, :2], RuntimeError, "The size of tensor a (3) must match the size of tensor b (2)"),
        (lambda x: x.int().div_(2.5), RuntimeError, "result type Float can't be cast to the desired output type Int"),
        (
            lambda x: x.new_ones(3).add_(x),
            RuntimeError,
            "output with shape [3] doesn't match the broadcast shape [2, 3]",
        ),
        (lambda x: -(x > 0), RuntimeError, "Negation, the `-` operator, on a bool tensor"),
        (lambda x: (x > 0) - (x > 0), RuntimeError, "with two bool tensors is not supported"),
        (lambda x: x.int() & x, NotImplementedError, "\"bitwise_and_cpu\" not implemented for 'Float'"),
        (lambda x: torch.erf(x + 1j), NotImplementedError, "not implemented for 'ComplexFloat'"),
        (lambda x: x.int().clamp(), RuntimeError, "At least one of 'min' or 'max' must not be None"),
        (lambda x: x.lerp(x.double(), 0.5), RuntimeError, "expected dtype float for `end` but got dtype double"),
        (lambda x: torch.where(x, x, x), RuntimeError, "where expected condition to be a boolean tensor"),
        (lambda x: x.masked_fill(x.int(), 1), RuntimeError, "only supports boolean masks"),
        (lambda x: torch.div(x, x, rounding_mode="up"), RuntimeError, "found 'up'"),
        (lambda x: x.int().addcdiv(x.int(), x.int()), RuntimeError, "Integer division with addcdiv"),
        (lambda x: F.glu(x), RuntimeError, "Halving dimension must be even, but dimension 1 is size 3"),
        (lambda x: x.half().fill_(1e6), RuntimeError, "cannot be converted to type c10::Half without overflow"),
        (lambda x: x.to(torch.uint16) + x.int(), RuntimeError, "Promotion for uint16, uint32, uint64 types"),
        (lambda x: torch.arange(5, 1, device=x.device), RuntimeError, "inconsistent with step sign"),
    ],
)
def test_errors(function, error, words):
    for device in ("cpu", "tpu"):
        with pytest.raises(error) as caught:
            function(torch.ones(2, 3, device=device))
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("start", "end", "step", "dtype"),
    [(0, 10, 3, torch.int64), (5, -5, -2, torch.int32), (0, 1, 0.1, torch.float32), (-2, 2, 0.3, torch.float64)]
    + [(1, 100, 7, torch.bfloat16), (2**60, 2**60 + 9, 2, torch.int64), (0.5, 9, 2, torch.int64), (0, 0, 1, None)],
)
def test_arange(start, end, step, dtype):
    assert_same(torch.arange(start, end, step, dtype=dtype, device="tpu"), torch.arange(start, end, step, dtype=dtype))


@pytest.mark.parametrize(("rows", "cols", "offset"), itertools.product((0, 3, 120), (0, 4, 95), (-50, -1, 0, 2, 60)))
def test_triangle_indices(rows, cols, offset):
    for function in (torch.tril_indices, torch.triu_indices):
        assert_same(function(rows, cols, offset, device="tpu"), function(rows, cols, offset))


def test_async_assertion():
    torch._assert_async(torch.tensor(True, device="tpu"), "unused")
    torch._assert_async(torch.tensor(0, device="tpu"), "three is not four")
    with pytest.raises(RuntimeError, match="three is not four"):
        torch.tpu.synchronize()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64, torch.bool, torch.uint8], ids=str)
def test_native_dropout_backward(dtype):
    """Of integers too, the product with a scale is a float."""
    grad, mask = torch.tensor([0, 1, 1, 0, 1]).to(dtype), torch.tensor([True, True, False, True, True])
    check(lambda g, m: torch.ops.aten.native_dropout_backward(g, m, 1.5), grad, mask)
