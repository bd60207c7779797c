"""Pooling, resizing and sampling of images."""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F

from gradients import check_gradients
from helpers import check

aten = torch.ops.aten
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def image(*sizes, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return (torch.randn(sizes) * 20).to(dtype)


def last(x):
    return x.to(memory_format=FORMATS[x.ndim])


# ---- max ----
MAX = {
    "plain": ((2, 3, 8, 8), {"kernel_size": 2}),
    "overlapping": ((2, 3, 9, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "uneven": ((2, 3, 9, 8), {"kernel_size": (3, 2), "stride": (1, 3), "padding": (0, 1)}),
    "ceil": ((2, 3, 10, 7), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    "dilated": ((2, 3, 11, 9), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    "gaps": ((2, 3, 11, 9), {"kernel_size": 2, "stride": 4}),
    "large": ((2, 3, 14, 13), {"kernel_size": 9, "stride": 2, "padding": 4}),
    "whole": ((2, 3, 12, 12), {"kernel_size": 12}),
    "unbatched": ((3, 8, 8), {"kernel_size": 2}),
    "no_batch": ((0, 3, 8, 8), {"kernel_size": 2}),
    "3d": ((2, 3, 5, 6, 7), {"kernel_size": 2, "stride": 2, "padding": 1}),
    "3d_dilated": (
        (2, 3, 8, 6, 7),
        {"kernel_size": (2, 3, 2), "stride": (3, 1, 2), "padding": 1, "dilation": (2, 1, 2)},
    ),
    "1d": ((2, 3, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
}


def max_pool(name):
    sizes, options = MAX[name]
    n = 1 if name == "1d" else 3 if name.startswith("3d") else 2
    return sizes, lambda x: getattr(F, f"max_pool{n}d")(x, return_indices=True, **options)


@pytest.mark.parametrize("name", MAX)
def test_max_pool(name):
    sizes, function = max_pool(name)
    check(function, image(*sizes))
    check_gradients(function, image(*sizes))


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.uint8], ids=str
)
@pytest.mark.parametrize("name", ["overlapping", "large"])
def test_max_pool_dtypes(name, dtype):
    sizes, function = max_pool(name)
    check(function, image(*sizes, dtype=dtype))


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
@pytest.mark.parametrize("name", ["plain", "overlapping", "large", "whole"])
def test_max_pool_special_values(name, value):
    sizes, function = max_pool(name)
    x = image(*sizes)
    x.view(-1)[torch.randperm(x.numel())[: x.numel() // 3]] = value
    check(function, x)
    check(function, torch.full(sizes, value))


@pytest.mark.parametrize("sizes", [(2, 3, 8, 7), (2, 3, 6, 5, 6)])
def test_pool_layouts(sizes):
    n = len(sizes) - 2
    x = last(image(*sizes))
    check_gradients(lambda x: getattr(F, f"max_pool{n}d")(x, 2, return_indices=True), x)
    check_gradients(lambda x: getattr(F, f"avg_pool{n}d")(x, 2), x)
    check_gradients(lambda x: getattr(F, f"adaptive_avg_pool{n}d")(x, 3), x)
    check_gradients(lambda x: getattr(F, f"adaptive_max_pool{n}d")(x, 3), x)


# ---- average ----
AVERAGE = {
    "plain": ((2, 3, 8, 8), {"kernel_size": 2}),
    "overlapping": ((2, 3, 9, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "ceil": ((2, 3, 10, 7), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    "gaps": ((2, 3, 11, 9), {"kernel_size": 2, "stride": 4}),
    "large": ((2, 3, 14, 13), {"kernel_size": 9, "stride": 1, "padding": 4}),
    "3d": ((2, 3, 5, 6, 7), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "1d": ((2, 3, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
}


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("name", AVERAGE)
def test_avg_pool(name, count_include_pad):
    sizes, options = AVERAGE[name]
    function = getattr(F, f"avg_pool{len(sizes) - 2}d")
    check_gradients(
        lambda x: function(x, count_include_pad=count_include_pad, **options), image(*sizes), rtol=1e-5, atol=1e-5
    )


def test_avg_pool_divisor_and_dtypes():
    check_gradients(lambda x: F.avg_pool2d(x, 3, 1, 1, divisor_override=4), image(2, 3, 7, 7), rtol=1e-5, atol=1e-5)
    check(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), image(2, 3, 7, 7, dtype=torch.int64))
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), image(2, 3, 7, 7, dtype=torch.bfloat16), rtol=1e-2, atol=1e-2)


# ---- adaptive ----
@pytest.mark.parametrize("name", ["avg", "max"])
@pytest.mark.parametrize("sizes, out", [((2, 3, 8, 6), (4, 3)), ((2, 3, 7, 9), (3, 4)), ((2, 3, 5, 4), (7, 9)), ((3, 8, 8), 1),  # noqa: E501
                                        ((0, 3, 8, 8), 2), ((2, 3, 20, 9), (3, 2)), ((2, 3, 5, 6, 7), (2, 4, 3)),
                                        ((2, 3, 10), 4)])  # fmt: skip
def test_adaptive_pool(name, sizes, out):
    n = 1 if len(sizes) == 3 and sizes[-1] == 10 else 3 if len(sizes) == 5 else 2
    function = getattr(F, f"adaptive_{name}_pool{n}d")
    options = {"return_indices": True} if name == "max" else {}
    check(lambda x: function(x, out, **options), image(*sizes), rtol=1e-5, atol=1e-5)
    check_gradients(lambda x: function(x, out, **options), image(*sizes), rtol=1e-5, atol=1e-5)


def test_adaptive_keeps_infinities_in_their_windows():
    x = image(1, 1, 7, 7)
    x[0, 0, 2, 3], x[0, 0, 6, 6] = float("inf"), float("nan")
    check(lambda x: F.adaptive_avg_pool2d(x, 3), x, rtol=1e-5, atol=1e-5)
    check(lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True), x)


def test_max_unpool():
    x, i = F.max_pool2d(image(2, 3, 8, 8), 2, return_indices=True)
    check(lambda x, i: F.max_unpool2d(x, i, 2), x, i)
    x, i = F.max_pool3d(image(2, 3, 4, 6, 4), 2, return_indices=True)
    check(lambda x, i: F.max_unpool3d(x, i, 2), x, i)
    check(lambda x, i: aten.max_unpool3d(x, i, [0, 6, 4], [2, 2, 2], [0, 0, 0]), x, i)
    with pytest.raises(RuntimeError):
        aten.max_unpool3d(x.to("tpu"), i.to("tpu"), [2**40, 2**40, 1], [2, 2, 2], [0, 0, 0])


POOL_ERRORS = [
    (
        lambda x: aten.max_pool2d_with_indices(x, [2, 2]),
        (8, 8),
        "non-empty 3D or 4D (batch mode) tensor expected for input",
    ),
    (
        lambda x: F.max_pool2d(x, 2, 1, 2),
        (1, 2, 8, 8),
        "pad should be at most half of effective kernel size, but got pad=2, kernel_size=2 and dilation=1",
    ),
    (
        lambda x: F.max_pool2d(x, 9),
        (1, 2, 8, 8),
        "Given input size: (2x8x8). Calculated output size: (2x0x0). Output size is too small",
    ),
    (lambda x: aten.max_pool2d_with_indices(x, [2, 2], [0, 1]), (1, 2, 8, 8), "stride should not be zero"),
    (lambda x: F.avg_pool2d(x, 2, divisor_override=0), (1, 2, 8, 8), "divisor must be not zero"),
    (
        lambda x: F.avg_pool3d(x, (9, 2, 2)),
        (1, 2, 8, 8, 8),
        "input image (T: 8 H: 8 W: 8) smaller than kernel size (kT: 9 kH: 2 kW: 2)",
    ),
    (lambda x: F.adaptive_avg_pool2d(x, 3), (1, 2, 0, 8), "with dimension 2 being empty"),
    (lambda x: F.max_pool2d(x > 0, 2), (1, 2, 8, 8), "\"max_pool2d\" not implemented for 'Bool'"),
]


@pytest.mark.parametrize("function, sizes, text", POOL_ERRORS, ids=range(len(POOL_ERRORS)))
def test_pool_errors(function, sizes, text):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError, match=re.escape(text)):
            function(image(*sizes).to(device))


# ---- resizing ----
MODES = {
    "nearest": [3, 4, 5],
    "nearest-exact": [3, 4, 5],
    "linear": [3],
    "bilinear": [4],
    "bicubic": [4],
    "trilinear": [5],
    "area": [3, 4, 5],
}
RESIZE = [
    (mode, rank, size, align)
    for mode, ranks in MODES.items()
    for rank in ranks
    for size in (
        {"scale_factor": 2},
        {"scale_factor": 0.6},
        {"size": 7},
        {"size": 5},
        {"size": 1},
        {"scale_factor": 1.7},
    )
    for align in ((False, True) if "linear" in mode or "cubic" in mode else (None,))
]


@pytest.mark.parametrize("mode, rank, size, align", RESIZE)
def test_interpolate(mode, rank, size, align):
    x = image(2, 3, *(5, 6, 4)[: rank - 2])

    def function(x):
        return F.interpolate(x, mode=mode, align_corners=align, **size)

    check_gradients(function, x, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size, align", [*itertools.product([(3, 4), (13, 9), (1, 1), (4, 20)], [False, True])])
def test_antialias(mode, size, align):
    def function(x):
        return F.interpolate(x, size, mode=mode, align_corners=align, antialias=True)

    check_gradients(function, image(2, 3, 9, 11), rtol=1e-5, atol=5e-5)
    if size != (1, 1):  # the CPU's kernel for uint8 fails an assertion
        check(function, image(2, 3, 9, 11).abs().to(torch.uint8))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolate_bytes(mode):
    x = (torch.rand(2, 3, 20, 17, generator=torch.Generator().manual_seed(0)) * 255).to(torch.uint8)
    for size in ((7, 9), (40, 34), (20, 30)):
        check(lambda x, size=size: F.interpolate(x, size, mode=mode), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolate_dtypes(mode, dtype):
    tolerance = {} if dtype == torch.float64 else {"rtol": 2e-2, "atol": 0.3}
    check_gradients(lambda x: F.interpolate(x, (7, 9), mode=mode), image(2, 3, 5, 6, dtype=dtype), **tolerance)


@pytest.mark.parametrize(
    "mode, rank", [("nearest", 4), ("bilinear", 4), ("bicubic", 4), ("nearest", 5), ("trilinear", 5)]
)
def test_interpolate_layout(mode, rank):
    x = last(image(2, 3, *(5, 6, 4)[: rank - 2]))
    check_gradients(lambda x: F.interpolate(x, scale_factor=2, mode=mode), x, rtol=1e-5, atol=5e-5)


def test_resize_errors():
    for device in ("cpu", "tpu"):
        x = image(2, 3, 4, 4).to(device)
        with pytest.raises(RuntimeError, match="Input and output sizes should be greater than 0"):
            F.interpolate(x, (0, 3))
        with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
            F.interpolate(x.long(), (6, 6), mode="bilinear")


# ---- sampling ----
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    "mode, rank", [("bilinear", 4), ("nearest", 4), ("bicubic", 4), ("bilinear", 5), ("nearest", 5)]
)
def test_grid_sample(mode, rank, padding, align):
    x = image(2, 3, *(5, 6, 4)[: rank - 2]) / 20
    torch.manual_seed(1)
    grid = torch.randn(2, *(4, 3, 5)[: rank - 2], rank - 2) * 1.2

    def function(x, g):
        return F.grid_sample(x, g, mode, padding, align)

    check_gradients(function, x, grid, rtol=1e-4, atol=5e-5)


def test_affine_grid():
    theta = torch.tensor([[[0.9, 0.1, 0.2], [-0.2, 1.1, 0.0]]])
    check_gradients(lambda t: F.affine_grid(t, (1, 3, 4, 5), align_corners=False), theta, rtol=1e-5, atol=1e-5)


def test_grid_sample_errors():
    for device in ("cpu", "tpu"):
        x, g = image(2, 3, 4, 4).to(device), image(2, 5, 5, 3).to(device)
        with pytest.raises(RuntimeError, match="expected grid to have size 2 in last dimension"):
            F.grid_sample(x, g, align_corners=False)
