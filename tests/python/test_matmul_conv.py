"""Products and convolutions."""

import re

import pytest
import torch
import torch.nn.functional as F

from gradients import check_gradients
from helpers import check

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
DTYPES = [*FLOATS, torch.complex64, torch.int64, torch.int8, torch.uint8]
TOLERANCES = {
    torch.float32: {"rtol": 1e-5, "atol": 2e-5},
    torch.complex64: {"rtol": 1e-5, "atol": 5e-5},
    torch.bfloat16: {"rtol": 2e-2, "atol": 5e-2},
    torch.float16: {"rtol": 2e-3, "atol": 1e-2},
}
channels_last = torch.channels_last


def make(*sizes, dtype=torch.float32):
    torch.manual_seed(sum(sizes) + 7 * len(sizes))
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, dtype=dtype)
    return torch.randint(0, 9, sizes).to(dtype)


# ---- products ----
PRODUCTS = {
    "mm": (torch.mm, [(3, 4), (4, 5)]),
    "mm_empty": (torch.mm, [(3, 0), (0, 5)]),
    "mm_transposed": (lambda x, y: torch.mm(x.t(), y.t()), [(4, 3), (5, 4)]),
    "bmm": (torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    "mv": (torch.mv, [(3, 4), (4,)]),
    "dot": (torch.dot, [(5,), (5,)]),
    "vdot": (torch.vdot, [(5,), (5,)]),
    "addmm": (torch.addmm, [(5,), (3, 4), (4, 5)]),
    "addmm_scaled": (lambda s, x, y: torch.addmm(s, x, y, beta=2, alpha=3), [(3, 1), (3, 4), (4, 5)]),
    "addmv": (lambda s, x, y: torch.addmv(s, x, y, beta=2, alpha=3), [(3,), (3, 4), (4,)]),
    "baddbmm": (lambda s, x, y: torch.baddbmm(s, x, y, beta=2, alpha=3), [(3, 5), (2, 3, 4), (2, 4, 5)]),
    "addbmm": (lambda s, x, y: torch.addbmm(s, x, y, beta=2, alpha=3), [(3, 5), (2, 3, 4), (2, 4, 5)]),
    "addr": (lambda s, x, y: torch.addr(s, x, y, beta=2, alpha=3), [(3, 5), (3,), (5,)]),
    "matmul_batched": (torch.matmul, [(2, 1, 3, 4), (5, 4, 2)]),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), [(2, 3, 4), (2, 5, 4)]),
    "linear": (F.linear, [(2, 3, 4), (5, 4), (5,)]),
    "outer": (torch.outer, [(3,), (4,)]),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name, dtype):
    function, sizes = PRODUCTS[name]
    tensors = [make(*s, dtype=dtype) for s in sizes]
    run = check_gradients if dtype.is_floating_point or dtype.is_complex else check
    run(function, *tensors, **TOLERANCES.get(dtype, {}))


def test_beta_zero_ignores_self():
    nan = torch.full((3, 5), float("nan"))
    check(lambda s, x, y: torch.addmm(s, x, y, beta=0), nan, make(3, 4), make(4, 5))
    check(lambda s, x, y: torch.addr(s, x, y, beta=0), nan, make(3), make(5))
    check(lambda s, x, y: s.addmm_(x, y, beta=0), nan, make(3, 4), make(4, 5))


def test_in_place_and_out():
    check(lambda s, x, y: s[1:, ::2].addmm_(x, y, alpha=0.5), make(4, 6), make(3, 4), make(4, 3))
    check(lambda x, y, o: torch.mm(x, y, out=o), make(3, 4), make(4, 5), make(3, 5))
    check(lambda x, y, o: torch.bmm(x, y, out=o.transpose(1, 2)), make(2, 3, 4), make(2, 4, 5), make(2, 5, 3))


def test_conjugated_operands():
    x, y = make(3, 4, dtype=torch.complex64), make(3, 5, dtype=torch.complex64)
    check(lambda x, y: torch.mm(x.mH, y), x, y, rtol=1e-5, atol=1e-5)


def test_addr_of_bool():
    check(lambda s, x, y: torch.addr(s, x, y, beta=2), make(2, 3) > 0, make(2) > 0, make(3) > 0)


def test_int_mm():
    x, y = make(20, 8, dtype=torch.int8) - 4, make(8, 16, dtype=torch.int8) - 4
    check(torch._int_mm, x, y)


def test_scalars_are_operands():
    s, x, y = (make(*n).to("tpu") for n in ((3, 5), (3, 4), (4, 5)))
    torch.addmm(s, x, y, beta=0.3, alpha=0.7).cpu()
    before = torch.tpu.compile_count()
    for k in range(3):
        torch.addmm(s, x, y, beta=0.1 + k, alpha=2.5 + k).cpu()
    assert torch.tpu.compile_count() == before


PRODUCT_ERRORS = [
    (torch.mm, [(2, 3), (4, 5)], RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
    (torch.mm, [(2, 3), (3,)], RuntimeError, "mat2 must be a matrix"),
    (
        torch.bmm,
        [(2, 3, 4), (2, 5, 4)],
        RuntimeError,
        "Expected size for first two dimensions of batch2 tensor to be: [2, 4] but got: [2, 5].",
    ),
    (
        torch.addmm,
        [(3,), (2, 3), (3, 2)],
        RuntimeError,
        "The expanded size of the tensor (2) must match the existing size (3) at non-singleton dimension 1.  Target sizes: [2, 2].  Tensor sizes: [3]",  # noqa: E501
    ),
    (torch.mv, [(2, 3), (4,)], RuntimeError, "size mismatch, got input (2), mat (2x3), vec (4)"),
    (
        torch.dot,
        [(2,), (3,)],
        RuntimeError,
        "inconsistent tensor size, expected tensor [2] and src [3] to have the same number of elements, but got 2 and 3 elements respectively",  # noqa: E501
    ),
    (torch.dot, [(2,), (2, 1)], RuntimeError, "1D tensors expected, but got 1D and 2D tensors"),
]


@pytest.mark.parametrize("function, sizes, error, text", PRODUCT_ERRORS, ids=range(len(PRODUCT_ERRORS)))
def test_product_errors(function, sizes, error, text):
    for device in ("cpu", "tpu"):
        with pytest.raises(error, match=re.escape(text)):
            function(*(make(*s).to(device) for s in sizes))


def test_dtype_errors():
    x, y = make(2, 3).to("tpu"), make(3, 2).to("tpu")
    with pytest.raises(RuntimeError, match="expected m1 and m2 to have the same dtype, but got: float != double"):
        torch.mm(x, y.double())
    with pytest.raises(NotImplementedError, match="\"addmm_impl_cpu_\" not implemented for 'Bool'"):
        torch.mm(x > 0, y > 0)


# ---- convolutions ----
def conv(n, transposed=False, **options):
    function = getattr(F, f"conv_transpose{n}d" if transposed else f"conv{n}d")
    return lambda x, w, b=None: function(x, w, b, **options)


CONVOLUTIONS = {
    "1d": (conv(1, stride=2, padding=1), [(2, 3, 9), (4, 3, 3), (4,)]),
    "2d": (conv(2, padding=1), [(2, 3, 8, 7), (4, 3, 3, 3), (4,)]),
    "2d_strided": (conv(2, stride=(2, 3), padding=(1, 2)), [(2, 3, 9, 8), (4, 3, 3, 5)]),
    "2d_dilated": (conv(2, dilation=(2, 1), padding=2), [(2, 3, 9, 8), (4, 3, 3, 3), (4,)]),
    "2d_grouped": (conv(2, groups=2, padding=1), [(2, 4, 6, 6), (6, 2, 3, 3), (6,)]),
    "2d_many_groups": (conv(2, groups=16, padding=1), [(2, 32, 5, 5), (32, 2, 3, 3)]),
    "2d_depthwise": (conv(2, groups=3, padding=1, stride=2), [(2, 3, 7, 7), (3, 1, 3, 3), (3,)]),
    "2d_depthwise_multiplied": (conv(2, groups=3), [(2, 3, 7, 7), (6, 1, 3, 2)]),
    "2d_pointwise": (conv(2), [(2, 3, 5, 5), (4, 3, 1, 1), (4,)]),
    "2d_pointwise_strided": (conv(2, stride=2), [(2, 3, 9, 9), (4, 3, 1, 1)]),
    "2d_unbatched": (conv(2, padding=1), [(3, 5, 5), (4, 3, 3, 3), (4,)]),
    "2d_wide_padding": (conv(2, padding=4), [(2, 2, 5, 5), (3, 2, 2, 2)]),
    "2d_large_batch": (conv(2, padding=1), [(40, 2, 16, 16), (3, 2, 3, 3), (3,)]),
    "2d_no_batch": (conv(2, padding=1), [(0, 3, 5, 5), (4, 3, 3, 3), (4,)]),
    "3d": (conv(3, padding=1, stride=(1, 2, 1)), [(1, 2, 4, 5, 6), (3, 2, 3, 2, 3), (3,)]),
    "transposed_1d": (conv(1, True, stride=2, output_padding=1), [(2, 3, 5), (3, 4, 3), (4,)]),
    "transposed_2d": (conv(2, True, stride=2, padding=1, output_padding=1), [(2, 4, 5, 5), (4, 3, 3, 3), (3,)]),
    "transposed_2d_grouped": (conv(2, True, stride=2, groups=2, dilation=2), [(2, 4, 5, 4), (4, 3, 3, 2), (6,)]),
    "transposed_2d_depthwise": (conv(2, True, stride=2, groups=4), [(2, 4, 5, 4), (4, 1, 3, 2)]),
    "transposed_output_padding": (
        conv(2, True, stride=(3, 2), padding=(1, 2), output_padding=(2, 3), groups=2, dilation=(4, 4)),
        [(2, 2, 4, 4), (2, 2, 4, 5), (4,)],
    ),
    "transposed_3d": (conv(3, True, stride=2, padding=1), [(1, 2, 3, 4, 3), (2, 3, 3, 3, 3), (3,)]),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, dtype):
    function, sizes = CONVOLUTIONS[name]
    tolerance = {
        torch.float32: {"rtol": 1e-4, "atol": 5e-5},
        torch.bfloat16: {"rtol": 3e-2, "atol": 0.3},
        torch.float16: {"rtol": 4e-3, "atol": 4e-2},
    }.get(dtype, {})
    check_gradients(function, *(make(*s, dtype=dtype) for s in sizes), **tolerance)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_integer_convolution(dtype):
    check(conv(2, padding=1, stride=2), make(2, 3, 7, 7, dtype=dtype), make(4, 3, 3, 3, dtype=dtype))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("channels", [1, 3])
def test_convolution_layout(channels, which, transposed):
    tensors = [make(2, channels, 6, 6), make(*((channels, 4) if transposed else (4, channels)), 3, 3)]
    for i in which:
        tensors[i] = tensors[i].to(memory_format=channels_last)
    check_gradients(conv(2, transposed), *tensors, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("mask", [(True, False, False), (False, True, True)])
def test_output_mask(mask):
    def backward(g, x, w):
        results = torch.ops.aten.convolution_backward(g, x, w, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask)
        assert [r is not None for r in results] == list(mask)
        return [r for r in results if r is not None]

    check(backward, make(2, 4, 4, 4), make(2, 3, 6, 6), make(4, 3, 3, 3), rtol=1e-4, atol=2e-5)


def test_double_backward():
    x, w = make(2, 3, 5, 5), make(4, 3, 3, 3)

    def second(x, w):
        x.requires_grad_(), w.requires_grad_()
        (g,) = torch.autograd.grad(F.conv2d(x, w).pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(g.pow(2).sum(), [x, w])

    expected, actual = second(x.clone(), w.clone()), second(x.to("tpu"), w.to("tpu"))
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-2)


CONVOLUTION_ERRORS = [
    (
        conv(2),
        [(1, 2, 8, 8), (4, 3, 3, 3)],
        "Given groups=1, weight of size [4, 3, 3, 3], expected input[1, 2, 8, 8] to have 3 channels, but got 2 channels instead",  # noqa: E501
    ),
    (
        conv(2),
        [(1, 2, 8, 8), (4, 2, 3, 3), (3,)],
        "Given weight of size [4, 2, 3, 3], expected bias to be 1-dimensional with 4 elements, but got bias of size [3] instead",  # noqa: E501
    ),
    (
        conv(2),
        [(1, 2, 2, 2), (4, 2, 3, 3)],
        "Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3). Kernel size can't be greater than actual input size",  # noqa: E501
    ),
    (conv(2, stride=0), [(1, 2, 8, 8), (4, 2, 3, 3)], "non-positive stride is not supported"),
    (conv(2, groups=2), [(1, 2, 8, 8), (3, 1, 3, 3)], "expected weight to be divisible by 2 at dimension 0"),
    (
        conv(2, True),
        [(1, 2, 8, 8), (3, 4, 3, 3)],
        "Given transposed=1, weight of size [3, 4, 3, 3], expected input[1, 2, 8, 8] to have 3 channels, but got 2 channels instead",  # noqa: E501
    ),
    (
        conv(2, True, output_padding=1),
        [(1, 2, 8, 8), (2, 4, 3, 3)],
        "output padding must be smaller than either stride or dilation",
    ),
]


@pytest.mark.parametrize("function, sizes, text", CONVOLUTION_ERRORS, ids=range(len(CONVOLUTION_ERRORS)))
def test_convolution_errors(function, sizes, text):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError, match=re.escape(text)):
            function(*(make(*s).to(device) for s in sizes))
