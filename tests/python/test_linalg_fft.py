"""Cholesky factors, triangular systems, distances and Fourier transforms."""

import pytest
import torch

from gradients import check_gradients
from helpers import check

DTYPES = [torch.float32, torch.float64, torch.complex64]
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
aten = torch.ops.aten


def make(*sizes, dtype=torch.float32):
    torch.manual_seed(sum(sizes))
    return torch.randn(sizes, dtype=dtype)


def positive(*batch, n=4, dtype=torch.float32):
    a = make(*batch, n, n, dtype=dtype)
    return a @ a.mH + n * torch.eye(n, dtype=dtype)


# ---- Cholesky ----
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 0)])
def test_cholesky(batch, upper, dtype):
    a = positive(*batch, dtype=dtype)
    check(lambda a: torch.linalg.cholesky_ex(a, upper=upper), a, **TOLERANCE)
    check(lambda a: torch.linalg.cholesky(a, upper=upper), a, **TOLERANCE)
    check(lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a, upper=upper), upper=upper), a, **TOLERANCE)
    if a.numel():
        check_gradients(lambda a: torch.linalg.cholesky((a + a.mH) / 2, upper=upper), a, **TOLERANCE)
        check_gradients(lambda a, b: torch.cholesky_solve(b, a, upper=upper), torch.linalg.cholesky(a, upper=upper),
                        make(*batch, 4, 2, dtype=dtype), **TOLERANCE)  # fmt: skip


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_says_which_minor_fails(upper):
    a = torch.stack([positive(n=3), -positive(n=3), torch.tensor([[4.0, 2, 0], [2, 1, 0], [0, 0, 1]]), positive(n=3)])
    expected, actual = (torch.linalg.cholesky_ex(x, upper=upper) for x in (a, a.to("tpu")))
    assert actual.info.dtype == torch.int32 and actual.info.tolist() == expected.info.tolist() == [0, 1, 2, 0]
    torch.testing.assert_close(actual.L.cpu()[[0, 3]], expected.L[[0, 3]])
    with pytest.raises(torch.linalg.LinAlgError, match=r"Batch element 1.*leading minor of order 1"):
        torch.linalg.cholesky(a.to("tpu"))


def test_cholesky_errors():
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError, match="must be batches of square matrices, but they are 3 by 4 matrices"):
            torch.linalg.cholesky(make(3, 4).to(device))
        with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
            torch.linalg.cholesky(make(3).to(device))
        with pytest.raises(NotImplementedError, match="\"cholesky_cpu\" not implemented for 'Half'"):
            torch.linalg.cholesky(make(3, 3).half().to(device))
        with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
            torch.linalg.cholesky_ex(-positive().to(device), check_errors=True)
            torch.tpu.synchronize()


# ---- triangular systems ----
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_solve_triangular(unit, left, upper, dtype):
    function = lambda a, b: torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)  # noqa: E731
    b = make(*((4, 2) if left else (2, 4)), dtype=dtype)
    check_gradients(function, positive(dtype=dtype), b, **TOLERANCE)
    check_gradients(function, positive(3, 1, dtype=dtype), b.expand(2, *b.shape).contiguous(), **TOLERANCE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transpose", [False, True])
def test_triangular_solve(transpose):
    check(lambda b, a: torch.triangular_solve(b, a, transpose=transpose), make(4, 2), positive(3), **TOLERANCE)


def test_solve_triangular_errors():
    for device in ("cpu", "tpu"):
        a, b = positive(n=3).to(device), make(2, 2).to(device)
        with pytest.raises(
            RuntimeError, match=r"Incompatible shapes of A and B for the equation AX = B \(3x3 and 2x2\)"
        ):
            torch.linalg.solve_triangular(a, b, upper=True)


# ---- products and distances ----
def test_cross():
    check_gradients(lambda x, y: torch.linalg.cross(x, y), make(4, 3), make(1, 3), rtol=1e-5, atol=1e-5)
    check_gradients(
        lambda x, y: torch.linalg.cross(x, y, dim=0),
        make(3, 2, dtype=torch.complex64),
        make(3, 2, dtype=torch.complex64),
        rtol=1e-5,
        atol=1e-5,
    )
    check(lambda x, y: torch.linalg.cross(x, y), torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 7]]))
    with pytest.raises(RuntimeError, match=r"inputs dimension -1 must have length 3\. Got 2 and 2"):
        torch.linalg.cross(make(3, 2).to("tpu"), make(3, 2).to("tpu"))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p):
    x, y = make(2, 5, 3), make(2, 4, 3)
    y[0, 1] = x[0, 2]
    check_gradients(lambda x, y: torch.cdist(x, y, p), x, y, rtol=1e-4, atol=1e-4)
    check_gradients(lambda x: torch.pdist(x, p), x[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist_if_necessary"]
)
def test_euclidean_modes(mode):
    check_gradients(
        lambda x, y: torch.cdist(x, y, compute_mode=mode), make(30, 6), make(2, 40, 6), rtol=1e-3, atol=1e-3
    )


def test_many_rows_of_pdist():
    check(torch.pdist, make(130, 2), rtol=1e-4, atol=1e-5)


# ---- Fourier transforms ----
NORMS = [None, "ortho", "forward"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_fft_1d(name, norm):
    complex_input = name not in ("rfft", "ihfft")
    x = make(4, 7, 6, dtype=torch.complex64 if complex_input else torch.float32)
    for dim, n in ((-1, None), (0, 5), (1, 9), (1, 4)):
        function = lambda x, dim=dim, n=n: getattr(torch.fft, name)(x, n, dim, norm)  # noqa: E731
        check_gradients(function, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_fft_nd(name, norm):
    x = make(3, 4, 5, 6, dtype=torch.float32 if name == "rfftn" else torch.complex64)
    for dims in ((-2, -1), (0, 2), (2, 0), (1, 2, 3), (0, 1, 2, 3)):
        check(lambda x, dims=dims: getattr(torch.fft, name)(x, dim=dims, norm=norm), x, rtol=1e-4, atol=1e-4)
    check_gradients(lambda x: getattr(torch.fft, name)(x, dim=(1, 3), norm=norm), x, rtol=1e-4, atol=1e-4)


def test_fft_of_other_types():
    check(torch.fft.fft, torch.arange(6), rtol=1e-5, atol=1e-5)
    check(torch.fft.rfft, make(5, dtype=torch.float64))
    check(torch.fft.ifft, make(5, dtype=torch.complex128))
    check(lambda x: aten._fft_r2c(x, [0, 1], 0, False), make(4, 6), rtol=1e-5, atol=1e-5)
    check(lambda x: torch.fft.fft(x.transpose(0, 1)), make(4, 6), rtol=1e-5, atol=1e-5)
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError, match="Half"):
            torch.fft.rfft(make(6).half().to(device))


def test_stft_and_back():
    window = torch.hann_window(16)
    check_gradients(
        lambda x: torch.stft(x, 16, window=window.to(x.device), return_complex=True),
        make(2, 100),
        strides=False,
        rtol=1e-4,
        atol=1e-4,
    )
    x = make(2, 96)
    spectrum = torch.stft(x, 16, window=window, return_complex=True)
    back = torch.istft(spectrum.to("tpu"), 16, window=window.to("tpu"))
    torch.testing.assert_close(back.cpu(), torch.istft(spectrum, 16, window=window), rtol=1e-4, atol=1e-5)
