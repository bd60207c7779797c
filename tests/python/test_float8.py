"""float8: casts that equal the CPU's bit for bit, and products of scaled matrices."""

import pytest
import torch

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def every_16_bits(dtype):
    return torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(dtype)


def around_the_ties(dtype):
    """Every value, every midpoint of two values, and what lies just beside them."""
    values = torch.arange(256, dtype=torch.uint8).view(dtype).double()
    values = values[torch.isfinite(values)].unique()
    middles = (values[1:] + values[:-1]) / 2
    beside = [middles * (1 + sign * 2.0**-bits) for sign in (1, -1) for bits in (23, 24, 30, 50)]
    return torch.cat([values, middles, *beside])


def float32_patterns():
    tops = torch.arange(0, 2**32, 2**16, dtype=torch.int64)
    bits = (tops[:, None] + torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])).flatten()
    return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32).view(torch.float32)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_casts_to_float8(dtype):
    sources = [
        every_16_bits(torch.float16),
        every_16_bits(torch.bfloat16),
        float32_patterns(),
        around_the_ties(dtype),
        around_the_ties(dtype).float(),
        torch.arange(-70_000, 70_000),
        torch.tensor([True, False]),
    ]
    for source in sources:
        expected = source.to(dtype).view(torch.uint8)
        assert torch.equal(source.to("tpu").to(dtype).view(torch.uint8).cpu(), expected), source.dtype


@pytest.mark.parametrize("dtype", FLOAT8)
def test_casts_from_float8(dtype):
    source = torch.arange(256, dtype=torch.uint8).view(dtype)
    for to in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool, torch.complex64):
        torch.testing.assert_close(source.to("tpu").to(to).cpu(), source.to(to), rtol=0, atol=0, equal_nan=True)


def scaled(device, a=FLOAT8[0], b=FLOAT8[0], rows=False, **options):
    torch.manual_seed(3)
    x, y = torch.randn(32, 64).to(a).to(device), torch.randn(48, 64).to(b).to(device).t()
    if rows:
        scales = torch.arange(1.0, 33).to(device)[:, None], torch.arange(1.0, 49).to(device)[None]
    else:
        scales = torch.tensor(0.5, device=device), torch.tensor(2.0, device=device)
    if "bias" in options:
        options["bias"] = torch.linspace(-1, 1, 48, dtype=options["bias"]).to(device)
    return torch._scaled_mm(x, y, *scales, **options)


@pytest.mark.parametrize("a", FLOAT8)
@pytest.mark.parametrize("b", FLOAT8)
@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.float16])
def test_scaled_mm(a, b, out):
    with torch.tpu.cpu_fallback("error"):
        actual = scaled("tpu", a, b, out_dtype=out, use_fast_accum=True)
    torch.testing.assert_close(actual.cpu(), scaled("cpu", a, b, out_dtype=out), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scaled_mm_by_rows_and_with_bias(rows, dtype):
    for options in ({}, {"bias": dtype}):
        actual = scaled("tpu", rows=rows, out_dtype=dtype, **options)
        expected = scaled("cpu", rows=rows, out_dtype=dtype, **options)
        # The order of a sum moves it by an ulp, which the scales then enlarge.
        tolerance = {"rtol": 1.3e-6, "atol": 1e-6 * 32 * 48} if rows and dtype is torch.float32 else {}
        torch.testing.assert_close(actual.cpu(), expected, **tolerance)


def product(device, x=(4, 16), y=(16, 8), a=(), b=(), dtype=FLOAT8[0], **options):
    ones = [torch.ones(size).to(dtype).to(device) for size in (x, y)]
    return torch._scaled_mm(*ones, torch.ones(a, device=device), torch.ones(b, device=device), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"x": (4, 15)},
        {"x": (16,)},
        {"dtype": torch.float32},
        {"a": (4, 1)},
        {"a": (3, 1), "b": (1, 8)},
        {"out_dtype": torch.int32},
    ],
)
def test_what_scaled_mm_refuses(options):
    kinds = []
    for device in ("cpu", "tpu"):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            product(device, **options)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_int8_weights(dtype):
    torch.manual_seed(0)
    x, weights = torch.randn(5, 64).to(dtype), torch.randint(-127, 127, (48, 64), dtype=torch.int8)
    scales = torch.linspace(0.1, 1, 48).to(dtype)
    actual = torch._weight_int8pack_mm(x.to("tpu"), weights.to("tpu"), scales.to("tpu"))
    tolerance = {"rtol": 2e-5, "atol": 1e-3} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 0.5}
    torch.testing.assert_close(actual.cpu(), torch._weight_int8pack_mm(x, weights, scales), **tolerance)
    with pytest.raises(RuntimeError):
        torch._weight_int8pack_mm(x.to("tpu"), weights.to("tpu"), scales[:4].to("tpu"))


def test_int_mm_into_a_result():
    x, y = torch.randint(-9, 9, (3, 5), dtype=torch.int8), torch.randint(-9, 9, (5, 4), dtype=torch.int8)
    out = torch.empty(3, 4, dtype=torch.int32, device="tpu")
    torch._int_mm(x.to("tpu"), y.to("tpu"), out=out)
    assert torch.equal(out.cpu(), torch._int_mm(x, y))
    for wrong in (torch.empty(3, 4, dtype=torch.int64), torch.empty(2, 4, dtype=torch.int32)):
        with pytest.raises(RuntimeError):
            torch._int_mm(x.to("tpu"), y.to("tpu"), out=wrong.to("tpu"))


@pytest.mark.parametrize("out", FLOAT8)
def test_scaled_mm_into_float8(out):
    for options in ({}, {"bias": torch.float32}):
        actual, expected = (scaled(d, out_dtype=out, **options).view(torch.uint8).cpu() for d in ("tpu", "cpu"))
        assert torch.equal(actual, expected)
    for size in (16, 2048):  # which e4m3fn does not hold
        x, y = torch.ones(4, size).to(out), torch.ones(size, 8).to(out)
        one = torch.ones(())
        actual = torch._scaled_mm(x.to("tpu"), y.to("tpu"), one.to("tpu"), one.to("tpu")).cpu().float()
        torch.testing.assert_close(actual, torch._scaled_mm(x, y, one, one).float(), equal_nan=True)


def test_nan_to_uint64():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.tensor([float("nan"), 3.0, float("inf"), -2.0]).to(dtype)
        assert x.to("tpu").to(torch.uint64).cpu().tolist() == x.to(torch.uint64).tolist()
