"""QR, products of reflectors and least squares."""

import pytest
import torch

from gradients import check_gradients
from helpers import both, check

pytestmark = pytest.mark.usefixtures("no_fallback")

DTYPES = [torch.float32, torch.float64, torch.complex64]
TOLERANCE = {"rtol": 1e-3, "atol": 1e-3}


def make(*sizes, dtype=torch.float32):
    torch.manual_seed(sum(sizes))
    return torch.randn(sizes, dtype=dtype)


# ---- factors ----
CASES = [((2, 5, 3), dtype) for dtype in DTYPES]
CASES += [(sizes, torch.float32) for sizes in ((2, 1, 3, 5), (1, 1), (0, 3), (3, 0), (0, 4, 4))]


@pytest.mark.parametrize(("sizes", "dtype"), CASES, ids=str)
def test_factors(sizes, dtype):
    a = make(*sizes, dtype=dtype)
    for mode in ("reduced", "complete", "r"):
        check(lambda a, mode=mode: torch.linalg.qr(a, mode), a, **TOLERANCE)
    check(torch.geqrf, a, **TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_gradients(dtype):
    check_gradients(lambda a: torch.linalg.qr(a).R, make(2, 5, 3, dtype=dtype), **TOLERANCE)
    check_gradients(lambda a: torch.linalg.qr(a).Q, make(4, 4, dtype=dtype), **TOLERANCE)
    a, tau = torch.geqrf(make(5, 3, dtype=dtype))
    check_gradients(torch.linalg.householder_product, a, tau, **TOLERANCE)


# Square complex factors of this size have a last reflector that MKL leaves out and LAPACK doesn't.
@pytest.mark.parametrize(("sizes", "dtype"), [((130, 100), torch.complex64), ((2, 100, 130), torch.float32)])
def test_by_blocks(sizes, dtype):
    check(torch.geqrf, make(*sizes, dtype=dtype), **TOLERANCE)


def test_extreme_and_zero_columns():
    a = make(4, 3)
    a[:, 1] = 0
    for x in (torch.stack([a, torch.zeros(4, 3)]), torch.stack([a + 0j, 1j * torch.eye(4, 3)])):
        check(torch.geqrf, x, **TOLERANCE)
    check(torch.geqrf, make(4, 3) * 1e25, rtol=1e-4, atol=1e-4)
    actual, expected = both(torch.geqrf, make(4, 3) * 1e-25)
    torch.testing.assert_close(actual[0].cpu() * 1e25, expected[0] * 1e25, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "dtype"), [((2, 5, 3), torch.float32), ((3, 3), torch.complex128), ((3, 0), torch.float32)], ids=str
)
def test_products(sizes, dtype):
    a, tau = torch.geqrf(make(*sizes, dtype=dtype))
    check(torch.linalg.householder_product, a, tau, **TOLERANCE)
    other = make(*sizes[:-1], 2, dtype=dtype)
    for transpose in (False, True):
        for left in (True, False):
            function = lambda *x, left=left, transpose=transpose: torch.ormqr(*x, left, transpose)  # noqa: E731
            check(function, a, tau, other if left else other.mT.contiguous(), **TOLERANCE)


def test_out():
    a = make(5, 3).to("tpu")
    for function in (torch.linalg.qr, torch.geqrf):
        expected = function(a)
        out = torch.empty(0, device="tpu"), torch.empty(0, device="tpu")
        function(a, out=out)
        assert torch.equal(out[0], expected[0]) and torch.equal(out[1], expected[1])
        assert [x.stride() for x in out] == [x.stride() for x in expected]


@pytest.mark.parametrize(
    ("function", "error", "match"),
    [
        (lambda a: torch.linalg.qr(a[0]), RuntimeError, "must have at least 2 dimensions"),
        (lambda a: torch.linalg.qr(a, "full"), RuntimeError, "unrecognized mode 'full'"),
        (lambda a: torch.linalg.qr(a.half()), NotImplementedError, "\"geqrf_cpu\" not implemented for 'Half'"),
        (lambda a: torch.linalg.qr(a.long()), RuntimeError, "Expected a floating point or complex tensor"),
        (lambda a: torch.geqrf(a.long()), NotImplementedError, "\"geqrf_cpu\" not implemented for 'Long'"),
        (lambda a: torch.linalg.householder_product(a[:2], a[0]), RuntimeError, "greater than or equal to"),
        (lambda a: torch.linalg.householder_product(a, a), RuntimeError, "tau"),
        (lambda a: torch.ormqr(a, a[0], a[:2]), RuntimeError, "other.shape"),
        (lambda a: torch.linalg.lstsq(a[0], a), RuntimeError, "input must have at least 2 dimensions"),
        (lambda a: torch.linalg.lstsq(a, a[:2]), RuntimeError, "should match other.size"),
        (lambda a: torch.linalg.lstsq(a, a.double()), RuntimeError, "to have the same dtype"),
        (lambda a: torch.linalg.lstsq(a, a, driver="x"), RuntimeError, "should be one of"),
        (lambda a: torch.linalg.lstsq(a.half(), a.half()), RuntimeError, "doesn't handle types other than"),
        (lambda a: torch.linalg.lstsq(a[None], a[None, None, None]), RuntimeError, "input.dim"),
    ],
)
def test_errors(function, error, match):
    for device in ("cpu", "tpu"):
        with pytest.raises(error, match=match):
            function(torch.eye(3).to(device))


# ---- least squares ----
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd"])
def test_least_squares(driver, dtype):
    function = lambda a, b: torch.linalg.lstsq(a, b, driver=driver)  # noqa: E731
    for sizes in ((5, 3), (2, 3, 5)):
        check(function, make(*sizes, dtype=dtype), make(*sizes[:-1], 2, dtype=dtype), **TOLERANCE)
    check(function, make(2, 5, 3, dtype=dtype), make(2, 5, dtype=dtype), **TOLERANCE)
    if driver != "gels":
        a = make(5, 2, dtype=dtype) @ make(2, 4, dtype=dtype)
        check(function, a, make(5, 2, dtype=dtype), **TOLERANCE)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_of_nothing(driver):
    function = lambda a, b: torch.linalg.lstsq(a, b, driver=driver)  # noqa: E731
    for a, b in (((0, 3), (0, 2)), ((0, 0), (0, 2)), ((0, 4, 3), (0, 4, 2)), ((2, 0, 3), (2, 0, 2))):
        check(function, make(*a), make(*b))
    check(function, torch.zeros(4, 3), make(4, 2))


def test_least_squares_gradients():
    check_gradients(lambda a, b: torch.linalg.lstsq(a, b), make(5, 3), make(5, 2), **TOLERANCE)


# Ranks that depend on how the condition is estimated: LAPACK's gelsy gives these.
def test_rank_by_condition():
    torch.manual_seed(1)
    a = torch.randn(6, 5, dtype=torch.float64)
    ranks = {rcond: torch.linalg.lstsq(a.to("tpu"), a[:, :1].to("tpu"), rcond=rcond).rank.item() for rcond in RANKS}
    assert ranks == RANKS


RANKS = {0.5: 3, 0.3: 4, 0.2: 5, 0.01: 5}
