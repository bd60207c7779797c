"""LU factors and what rests on them: systems, inverses, determinants; the exponential of a matrix; L D L^T."""

import pytest
import torch

from gradients import check_gradients
from helpers import both, check

pytestmark = pytest.mark.usefixtures("no_fallback")

DTYPES = [torch.float32, torch.float64, torch.complex64]
TOLERANCE = {"rtol": 1e-3, "atol": 1e-3}
aten = torch.ops.aten


def make(*sizes, dtype=torch.float32):
    torch.manual_seed(sum(sizes))
    return torch.randn(sizes, dtype=dtype)


def regular(*batch, n=4, dtype=torch.float32):
    return make(*batch, n, n, dtype=dtype) + 2 * torch.eye(n, dtype=dtype)


# ---- factors ----
CASES = [((2, 5, 3), dtype) for dtype in DTYPES]
CASES += [(sizes, torch.float32) for sizes in ((2, 1, 3, 5), (1, 1), (0, 3), (3, 0), (0, 4, 4))]
CASES += [((120, 100), torch.complex64)]


@pytest.mark.parametrize(("sizes", "dtype"), CASES, ids=str)
def test_factors(sizes, dtype):
    a = make(*sizes, dtype=dtype)
    check(torch.linalg.lu_factor_ex, a, **TOLERANCE)
    check(torch.linalg.lu, a, **TOLERANCE)
    check(torch.lu_unpack, *torch.linalg.lu_factor(a), **TOLERANCE)


def test_wide_by_blocks():
    check(torch.linalg.lu_factor_ex, make(2, 100, 130), **TOLERANCE)


def test_unpacks_a_part():
    a, pivots = torch.linalg.lu_factor(make(2, 5, 3))
    check(lambda a, p: torch.lu_unpack(a, p, unpack_data=False), a, pivots)
    check(lambda a, p: torch.lu_unpack(a, p, unpack_pivots=False), a, pivots)


def test_equal_pivots_and_nan():
    check(torch.linalg.lu_factor_ex, torch.tensor([[1.0, 2, 3], [-1, 2, 4], [1, 5, 6]]))
    check(torch.linalg.lu_factor_ex, torch.zeros(2, 3, 3))
    a = make(3, 3).to("tpu")
    a[1, 1] = float("nan")
    assert torch.linalg.lu_factor_ex(a).LU.isnan().any()


def test_out():
    a = make(3, 5).to("tpu")
    expected = torch.linalg.lu_factor(a)
    out = torch.empty(3, 5, device="tpu"), torch.empty(0, dtype=torch.int32, device="tpu")
    torch.linalg.lu_factor(a, out=out)
    assert torch.equal(out[0], expected.LU) and torch.equal(out[1], expected.pivots)
    with pytest.raises(RuntimeError, match="to have dtype Float, but got Long"):
        torch.linalg.lu_factor(a, out=(torch.empty(3, 5, device="tpu", dtype=torch.int64), out[1]))
    b = regular().to("tpu")
    for function in (torch.linalg.inv, torch.linalg.det, lambda x, **o: torch.linalg.solve(x, x, **o)):
        out = torch.empty(0, device="tpu")
        function(b, out=out)
        assert torch.equal(out, function(b))


# ---- systems ----
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("left", [True, False])
def test_solve(left, dtype):
    b = make(4, 2, dtype=dtype) if left else make(2, 4, dtype=dtype)
    function = lambda a, b: torch.linalg.solve(a, b, left=left)  # noqa: E731
    check_gradients(function, regular(dtype=dtype), b, **TOLERANCE)
    check(lambda a, b: aten._linalg_solve_ex(a, b, left=left), regular(3, 1, dtype=dtype), b.expand(2, *b.shape),
          **TOLERANCE)  # fmt: skip
    factors = torch.linalg.lu_factor(regular(3, dtype=dtype))
    for adjoint in (False, True):
        check(
            lambda *x, adjoint=adjoint: torch.linalg.lu_solve(*x, left=left, adjoint=adjoint), *factors, b, **TOLERANCE
        )


def test_solve_vectors_and_empty():
    check(torch.linalg.solve, regular(2, 3), make(2, 3, 4), **TOLERANCE)
    check(torch.linalg.solve, regular(), make(4), **TOLERANCE)
    check(torch.linalg.solve, regular(n=0), make(0, 3))
    check(torch.linalg.solve, regular(0), make(4, 3))
    check(torch.linalg.solve, regular().mT, make(2, 4).mT, **TOLERANCE)
    check(torch.linalg.tensorsolve, make(2, 3, 6), make(2, 3), **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_inverse(dtype):
    check_gradients(torch.linalg.inv, regular(2, dtype=dtype), **TOLERANCE)
    check(torch.linalg.inv_ex, regular(0, dtype=dtype))
    check(lambda a: torch.linalg.matrix_power(a, -3), regular(dtype=dtype), **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_determinants(dtype):
    a = regular(2, 3, dtype=dtype).mT
    check_gradients(torch.linalg.det, a, **TOLERANCE)
    check_gradients(lambda a: torch.linalg.slogdet(a).logabsdet, a, **TOLERANCE)
    check(torch.linalg.slogdet, a, **TOLERANCE)
    check(torch.linalg.det, regular(dtype=dtype), **TOLERANCE)  # by rows
    for a in (make(2, 0, 0, dtype=dtype), torch.zeros(3, 3, dtype=dtype)):
        check(torch.linalg.det, a)
        check(torch.linalg.slogdet, a)


def test_singular():
    a = torch.stack([torch.eye(3), torch.tensor([[1.0, 2, 3], [2, 4, 6], [0, 0, 1]]), torch.zeros(3, 3)])
    actual, expected = both(torch.linalg.inv_ex, a)
    assert actual.info.tolist() == expected.info.tolist() == [0, 2, 1]
    for device in ("cpu", "tpu"):
        x = a.to(device)
        for function in (torch.linalg.inv, lambda x: torch.linalg.solve(x, x)):
            with pytest.raises(torch.linalg.LinAlgError, match=r"Batch element 1.*singular"):
                function(x)
        with pytest.raises(RuntimeError, match=r"Batch element 1.*U\[2,2\] is zero"):
            torch.linalg.lu_factor(x)
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            torch.linalg.inv_ex(x, check_errors=True)
            torch.tpu.synchronize()


@pytest.mark.parametrize(
    ("function", "error", "match"),
    [
        (lambda a: torch.linalg.inv(a[:2]), RuntimeError, "must be batches of square matrices, but they are 2 by 3"),
        (lambda a: torch.linalg.inv(a.half()), RuntimeError, "Low precision dtypes not supported. Got Half"),
        (lambda a: torch.linalg.inv(a.long()), RuntimeError, "Expected a floating point or complex tensor"),
        (lambda a: torch.linalg.det(a[0]), RuntimeError, "must have at least 2 dimensions"),
        (lambda a: torch.linalg.det(a.half()), NotImplementedError, "\"lu_cpu\" not implemented for 'Half'"),
        (lambda a: torch.linalg.lu(a.long()), NotImplementedError, "\"lu_cpu\" not implemented for 'Long'"),
        (lambda a: torch.linalg.lu_factor(a, pivot=False), RuntimeError, "LU without pivoting is not implemented"),
        (lambda a: torch.linalg.lu_factor(a[0]), RuntimeError, r"2 or more dimensions. Got size: \[3\]"),
        (lambda a: torch.linalg.solve(a, a.double()), RuntimeError, "to have the same dtype, but found A of type"),
        (lambda a: torch.linalg.solve(a, a[:2]), RuntimeError, r"the equation AX = B \(3x3 and 2x3\)"),
        (lambda a: torch.linalg.lu_solve(a, a[0].long(), a), RuntimeError, "pivots should be a Tensor of scalar type"),
        (lambda a: torch.linalg.lu_solve(a, a[0, :2].int(), a), RuntimeError, "Number of pivots per batch"),
        (lambda a: torch.lu_unpack(a, a[0].long()), RuntimeError, "LU_pivots is expected to be"),
        (lambda a: torch.lu_unpack(a, a[0].int() + 3).P.cpu(), RuntimeError, "must be between 1 and"),
        (lambda a: torch.linalg.lu_solve(a, a[0].int() + 3, a).cpu(), RuntimeError, "Pivots given to lu_solve"),
        (lambda a: torch.matrix_exp(a[:2]), RuntimeError, "must be batches of square matrices"),
        (lambda a: torch.matrix_exp(a.long()), RuntimeError, "Expected a floating point or complex tensor"),
        (lambda a: torch.linalg.ldl_factor(a[:2]), RuntimeError, "must be batches of square matrices"),
        (lambda a: torch.linalg.ldl_solve(a, a[0], a), RuntimeError, "Expected pivots to be integers"),
        (lambda a: torch.linalg.ldl_solve(a, a[0].int() + 8, a).cpu(), RuntimeError, "must all satisfy"),
    ],
)
def test_errors(function, error, match):
    for device in ("cpu", "tpu"):
        with pytest.raises(error, match=match):
            function(torch.eye(3).to(device))


# ---- exponential ----
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_exponential(dtype):
    check_gradients(torch.matrix_exp, make(3, 3, dtype=dtype), rtol=1e-4, atol=1e-4)
    for sizes in ((0, 0), (2, 1, 1), (0, 3, 3)):
        check(torch.matrix_exp, make(*sizes, dtype=dtype), rtol=1e-5, atol=1e-5)
    # Each matrix is squared as often as it needs.
    a = torch.stack([torch.zeros(4, 4), make(4, 4) / 1000, make(4, 4), make(4, 4) * 8]).to(dtype)
    check(torch.matrix_exp, a, rtol=1e-4, atol=1e-4)


def test_exponential_of_small_types_and_infinities():
    a = make(3, 3).bfloat16()
    torch.testing.assert_close(torch.matrix_exp(a.to("tpu")).cpu(), torch.matrix_exp(a.float()).bfloat16())
    assert torch.matrix_exp(torch.full((2, 2), float("inf"), device="tpu")).isnan().all()


# ---- L D L^T ----
@pytest.mark.parametrize(
    ("dtype", "hermitian"), [(torch.float32, False), (torch.complex64, False), (torch.complex128, True)], ids=str
)
@pytest.mark.parametrize("sizes", [(3, 6, 6), (2, 0, 0), (1, 1)], ids=str)
def test_symmetric(sizes, hermitian, dtype):
    a = make(*sizes, dtype=dtype)
    a = a + (a.mH if hermitian else a.mT)
    if a.numel() > 9:
        a[..., 0, 0] = 0  # blocks of two
        a[..., 1, 1] = 0
    check(lambda a: torch.linalg.ldl_factor_ex(a, hermitian=hermitian), a, **TOLERANCE)
    ld, pivots = torch.linalg.ldl_factor(a, hermitian=hermitian)
    b = make(*sizes[:-1], 2, dtype=dtype)
    check(lambda *x: torch.linalg.ldl_solve(*x, hermitian=hermitian), ld, pivots, b, **TOLERANCE)


def test_symmetric_and_singular():
    check(torch.linalg.ldl_factor_ex, torch.stack([torch.zeros(3, 3), torch.ones(3, 3), torch.eye(3)]))
