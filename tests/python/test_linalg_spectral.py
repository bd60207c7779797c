"""Eigenvalues, singular values and what is made of them. Vectors are not unique: products that are get compared."""

import warnings

import pytest
import torch

from gradients import check_gradients
from helpers import assert_same, check

pytestmark = pytest.mark.usefixtures("no_fallback")

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
aten = torch.ops.aten


def make(*sizes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(sizes, dtype=dtype, generator=generator)


def hermitian(*sizes, dtype=torch.float64):
    a = make(*sizes, dtype=dtype)
    return a + a.mH


def rotation(n, seed=0):
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))[0]


def tolerance(a):
    """What LAPACK keeps too: some units in the last place of the largest element."""
    largest = a.abs().max().item() if a.numel() else 0
    return 40 * torch.finfo(a.dtype).eps * (largest or 1)


def assert_close_to(actual, expected, atol):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def assert_orthonormal(q):
    eye = torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1)
    assert_close_to(q.mH @ q, eye, 40 * torch.finfo(q.dtype).eps)


def check_eigh(a, uplo="L"):
    expected = torch.linalg.eigh(a, UPLO=uplo)
    actual = torch.linalg.eigh(a.to("tpu"), UPLO=uplo)
    assert_same(actual.eigenvalues, expected.eigenvalues, rtol=0, atol=tolerance(a))
    assert actual.eigenvectors.stride() == expected.eigenvectors.stride()
    assert actual.eigenvectors.dtype == a.dtype
    values, q = actual.eigenvalues.cpu(), actual.eigenvectors.cpu()
    assert (values.diff(dim=-1) >= 0).all()
    assert_orthonormal(q)
    a = a - 1j * torch.diag(a.diagonal().imag) if a.is_complex() and a.dim() == 2 else a  # the diagonal counts as real
    full = a.tril() + a.tril(-1).mH if uplo == "L" else a.triu() + a.triu(1).mH
    assert_close_to((q * values.unsqueeze(-2)) @ q.mH, full, tolerance(a))


def check_svd(a, full):
    expected = torch.linalg.svd(a, full_matrices=full)
    actual = torch.linalg.svd(a.to("tpu"), full_matrices=full)
    assert_same(actual.S, expected.S, rtol=0, atol=tolerance(a))
    for x, y in zip(actual, expected, strict=True):
        assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
    u, s, vh = (x.cpu() for x in actual)
    k = s.shape[-1]
    assert (s.diff(dim=-1) <= 0).all()
    assert_orthonormal(u)
    assert_orthonormal(vh.mH)
    assert_close_to((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, tolerance(a))


def paired(values, expected):
    """`values` in the order of `expected`, each with the nearest that is left."""
    left, out = list(values.flatten()), []
    for x in expected.flatten():
        out.append(left.pop(min(range(len(left)), key=lambda i: abs(left[i] - x))))
    return torch.stack(out) if out else values


def check_eig(a, values_atol=None):
    expected = torch.linalg.eig(a)
    actual = torch.linalg.eig(a.to("tpu"))
    for x, y in zip(actual, expected, strict=True):
        assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
    values, vectors = (x.cpu() for x in actual)
    only, n = torch.linalg.eigvals(a.to("tpu")).cpu(), a.shape[-1]
    for x in (values, only):
        for mine, theirs in zip(x.reshape(-1, n), expected.eigenvalues.reshape(-1, n), strict=True):
            assert_close_to(paired(mine, theirs), theirs, values_atol or tolerance(a))
            if not a.is_complex():
                pairs = mine[mine.imag != 0]
                assert torch.equal(pairs[0::2], pairs[1::2].conj()) and (pairs[0::2].imag > 0).all()
    assert_close_to(
        torch.linalg.vector_norm(vectors, dim=-2), torch.ones_like(values.real), tolerance(values.new_ones(1))
    )
    assert_close_to(a.to(vectors.dtype) @ vectors, vectors * values.unsqueeze(-2), tolerance(a))
    if not a.is_complex():
        assert (vectors.imag.mT[values.imag == 0] == 0).all()


# ---- decompositions: each dtype in batches, each size once ----
def cases(batch, *sizes):
    return pytest.mark.parametrize(("sizes", "dtype"), [(batch, d) for d in DTYPES] + list(sizes), ids=str)


@cases((2, 3, 4, 4), ((1, 1), torch.complex64), ((2, 2), torch.float32), ((7, 7), torch.float64))
def test_eigh(sizes, dtype):
    check_eigh(hermitian(*sizes, dtype=dtype))


def test_eigh_reads_one_triangle():
    a = make(5, 5, dtype=torch.complex128)
    for uplo in ("L", "U"):
        check_eigh(a, uplo)
    for uplo in ("l", "u"):
        check(lambda a, uplo=uplo: torch.linalg.eigvalsh(a, UPLO=uplo), a)
    check_eigh(make(4, 8).mT[::2])  # strided


@cases(
    (2, 3, 3, 5),
    ((1, 1), torch.float32),
    ((3, 1), torch.complex64),
    ((7, 7), torch.float64),
    ((6, 4), torch.complex128),
)
def test_svd(sizes, dtype):
    for full in (True, False) if dtype in (torch.float32, torch.complex128) else (True,):
        check_svd(make(*sizes, dtype=dtype), full)


@cases((2, 3, 4, 4), ((1, 1), torch.float32), ((2, 2), torch.float64), ((8, 8), torch.complex64))
def test_eig(sizes, dtype):
    check_eig(make(*sizes, dtype=dtype))


def test_larger_matrices():
    check_eigh(hermitian(40, 40))
    check_svd(make(40, 34), False)
    check_eig(make(24, 24), 1e-12)


N = 9
SPECIAL = {
    "zero": torch.zeros(N, N),
    "identity": torch.eye(N),
    "ones": torch.ones(N, N),
    "diagonal": torch.diag(torch.arange(N) - 4),
    "rank 2": make(N, 2) @ make(2, N),
    "symmetric of rank 2": make(N, 2) @ make(N, 2).T,
    "multiple eigenvalues": (rotation(N) * torch.tensor([1.0] * 4 + [2] * 3 + [-3] * 2)) @ rotation(N).T,
    "multiple singular values": (rotation(N) * torch.tensor([1.0] * 4 + [2] * 3 + [0] * 2)) @ rotation(N, 1).T,
    "graded": (rotation(N) * torch.logspace(0, -30, N)) @ rotation(N).T,
    "orthogonal": rotation(N),
    "cycle": torch.eye(N).roll(1, 0),
    "equal blocks": torch.block_diag(make(3, 3), make(3, 3), make(3, 3)),
    "second differences": 2 * torch.eye(N) - torch.eye(N).roll(1, 0).triu() - torch.eye(N).roll(-1, 0).tril(),
    "Wilkinson": torch.diag((torch.arange(N) - 4).abs()) + torch.ones(N, N).triu(-1).tril(1),
    "tiny": hermitian(N, N) * 1e-200,
    "huge": hermitian(N, N) * 1e200,
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_spectra(name):
    a = SPECIAL[name].double()
    check_eigh((a + a.T) / 2)
    check_svd(a, True)
    check_eig(a, 1e-6 if "rank" in name else None)


def test_triangular_matrices_keep_their_eigenvalues():
    a = make(6, 6)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    x = torch.stack([a.triu(), a.tril(), a.triu()[order][:, order], torch.ones_like(a).triu(1)])
    values = torch.linalg.eigvals(x.to("tpu")).cpu()
    expected = x.diagonal(dim1=-2, dim2=-1).sort(-1).values
    assert torch.equal(values.real.sort(-1).values, expected) and (values.imag == 0).all()


def test_eigenvalues_of_a_badly_scaled_matrix():
    a, scale = make(6, 6), torch.logspace(0, 8, 6, dtype=torch.float64)
    x = (a * scale / scale[:, None]).float().to("tpu")
    values = torch.linalg.eigvals(x).cpu()
    expected = torch.linalg.eigvals(a)
    torch.testing.assert_close(paired(values.to(expected.dtype), expected), expected, rtol=1e-5, atol=1e-5)
    values, vectors = torch.linalg.eig(x)
    vectors = vectors.cpu().to(expected.dtype) * scale[:, None]  # of `a` itself
    vectors = vectors / torch.linalg.vector_norm(vectors, dim=0)
    assert_close_to(a.to(vectors.dtype) @ vectors, vectors * values.cpu(), 1e-5)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3, 3), (2, 0, 0)], ids=str)
def test_empty(sizes):
    a = torch.zeros(sizes)
    for f in (torch.linalg.eigh, torch.linalg.eigvalsh, torch.linalg.eig, torch.linalg.eigvals):
        check(f, a)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (3, 0), (0, 3, 2), (2, 0, 3)], ids=str)
def test_empty_svd(sizes):
    for full in (True, False):
        check(lambda a, full=full: torch.linalg.svd(a, full_matrices=full), torch.zeros(sizes))
    check(torch.linalg.svdvals, torch.zeros(sizes))


def test_out():
    a = make(4, 4, dtype=torch.float32)

    def run(a):
        new = a.new_empty
        eigh = torch.linalg.eigh(a, out=(new(0), new(0)))
        svd = torch.linalg.svd(a, out=(new(0), new(4), new(4, 4)))
        eig = torch.linalg.eig(a, out=(new(0, dtype=torch.complex128), new(0, dtype=torch.complex64)))
        return eigh[0], svd[1], eig[0].abs().sort().values, torch.linalg.eigvalsh(a, out=new(4)), torch.linalg.svdvals(
            a, out=new(0)), torch.linalg.eigvals(a, out=new(0, dtype=torch.complex64)).abs().sort().values  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(run, a, rtol=1e-4, atol=1e-5)


# ---- what is made of them ----
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_derived(dtype):
    a = make(2, 5, 3, dtype=dtype)
    close = {"rtol": 1e-4, "atol": 1e-5}
    check(torch.linalg.pinv, a, **close)
    check(lambda a: torch.linalg.pinv(a @ a.mH, hermitian=True, rtol=1e-3), a, **close)
    check(torch.linalg.matrix_rank, a)
    check(lambda a: torch.linalg.matrix_rank(a @ a.mH, hermitian=True), a)
    check(lambda a: (torch.linalg.cond(a), torch.linalg.cond(a, -2)), a, **close)
    check(lambda a: torch.stack([torch.linalg.matrix_norm(a, p) for p in ("nuc", 2, -2)]), a, **close)


def test_low_rank():
    a = make(12, 3) @ make(3, 8)
    u, s, v = torch.svd_lowrank(a.to("tpu"), q=4)
    torch.testing.assert_close(((u * s) @ v.mT).cpu(), a)
    u, s, v = torch.pca_lowrank(a.to("tpu"), q=4)
    torch.testing.assert_close(((u * s) @ v.mT).cpu(), a - a.mean(0))


# ---- gradients ----
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_gradients(dtype):
    a, b = make(2, 4, 4, dtype=dtype), make(5, 3, dtype=dtype)

    def by_eigh(a):
        values, q = torch.linalg.eigh((a + a.mH) / 2)
        return (q * values.sin().unsqueeze(-2)) @ q.mH

    def by_svd(a):
        u, s, vh = torch.linalg.svd(a, full_matrices=False)
        return (u * s.sin().unsqueeze(-2)) @ vh

    def by_eig(a):
        values, v = torch.linalg.eig(a)
        return torch.linalg.solve(v, v * values.sin().unsqueeze(-2), left=False)

    for f, x in ((by_eigh, a), (by_svd, b.mT if dtype.is_complex else b), (by_eig, a)):
        check_gradients(f, x, strides=False)
    if dtype.is_complex:
        return
    check_gradients(lambda a: torch.linalg.eigvalsh((a + a.mH) / 2), a)
    check_gradients(torch.linalg.svdvals, b)
    check_gradients(lambda a: torch.linalg.eigvals(a).abs().sort().values, a, strides=False)
    check_gradients(torch.linalg.pinv, b, strides=False)


# ---- errors ----
def test_wrong_operands():
    cases = [
        (torch.linalg.eigh, make(3), RuntimeError, "linalg.eigh: The input tensor A must have at least 2 dimensions"),
        (torch.linalg.eigh, make(2, 3), RuntimeError, "linalg.eigh: A must be batches of square matrices, but they"),
        (torch.linalg.eigh, make(3, 3).half(), NotImplementedError, "linalg_eigh_cpu\" not implemented for 'Half'"),
        (lambda a: torch.linalg.eigh(a, UPLO="X"), make(3, 3), RuntimeError, "Expected UPLO argument to be 'L' or 'U'"),
        (torch.linalg.svd, make(3), RuntimeError, "linalg.svd: The input tensor A must have at least 2 dimensions"),
        (torch.linalg.svd, make(3, 3).int(), RuntimeError, "Expected a floating point or complex tensor as input."),
        (torch.linalg.svd, make(3, 3).bfloat16(), NotImplementedError, "not implemented for 'BFloat16'"),
        (lambda a: torch.linalg.svd(a, driver="gesvd"), make(3, 3), RuntimeError, "only supported on CUDA inputs"),
        (torch.linalg.eig, make(2, 3), RuntimeError, "linalg.eig: A must be batches of square matrices"),
        (torch.linalg.eig, make(3, 3).half(), NotImplementedError, "not implemented for 'Half'"),
        (torch.linalg.eigvals, make(3), RuntimeError, "linalg.eigvals: The input tensor A must have at least 2"),
        (lambda a: torch.linalg.eigvals(a, out=a.new_empty(0)), make(3, 3), RuntimeError, "to be safely castable from"),
        (lambda a: torch.linalg.eigh(a, out=(a.float(), a.clone())), make(3, 3), RuntimeError, "dtype"),
    ]  # fmt: skip
    for function, a, kind, text in cases:
        for device in ("cpu", "tpu"):
            with pytest.raises(kind) as raised:
                function(a.to(device))
            assert text in str(raised.value) and raised.type is kind, (device, raised.value)


def test_matrices_that_are_not_finite():
    a = make(2, 3, 4, 4)
    a[1, 2, 2, 2] = float("nan")
    x = a.to("tpu")
    for f in (torch.linalg.svd, torch.linalg.svdvals):
        for y in (a, x):
            with pytest.raises(torch.linalg.LinAlgError, match="contained non-finite values"):
                f(y)
                torch.tpu.synchronize()
    for y in (a, x):
        with pytest.raises(RuntimeError, match="input tensor should not contain infs or NaNs"):
            torch.linalg.eig(y)
            torch.tpu.synchronize()
    for f in (torch.linalg.eigvalsh, torch.linalg.eigvals):
        values = f(x).cpu()
        assert not values[0].isnan().any() and values[1, 2].isnan().any()
    a[1, 2, 2, 2] = float("inf")
    assert torch.linalg.svdvals(a)[1, 2].isnan().all() and torch.linalg.svdvals(a.to("tpu"))[1, 2].isnan().all().item()
