"""What rules do for a TPU: their own forms, run on XLA:CPU by a plugin that poses as a TPU; and what a TPU lacks."""

import pytest


@pytest.fixture
def posing(count_plugin):
    """Environment in which rules build for a TPU, and XLA:CPU runs it."""
    options = "xla_backend_optimization_level=0,xla_cpu_use_fusion_emitters=false,xla_cpu_enable_fast_min_max=false"
    return {
        **count_plugin,
        "COUNT_PJRT_PLATFORM": "tpu",
        "TORCH_TPU_PLATFORM": "tpu",
        "TORCH_TPU_XLA_OPTIONS": options,
        "TORCH_TPU_CPU_FALLBACK": "error",
    }


COMPARE = """
    import torch
    from torch import fft
    from torch.nn import functional as F

    assert "CPU" not in torch.tpu.get_device_name()
    torch.manual_seed(0)

    def same(function, *tensors, **tolerance):
        expected, actual = function(*tensors), function(*(t.to("tpu") for t in tensors))
        assert actual.stride() == expected.stride(), (actual.stride(), expected.stride())
        torch.testing.assert_close(actual.cpu(), expected, **tolerance)
"""


def test_fourier_transforms_of_float64(run_python, posing):
    run_python(
        COMPARE
        + """
    for n in (1, 2, 7, 8):
        z = torch.randn(3, n, 4, dtype=torch.complex128)
        x = torch.randn(3, n, 4, dtype=torch.float64)
        for function, operand in [
            (lambda t: fft.fft(t, dim=1), z),
            (lambda t: fft.ifftn(t, norm="ortho"), z),
            (lambda t: fft.rfftn(t, dim=(0, 1)), x),
            (lambda t: fft.irfft(t, dim=1, n=2 * n), z),
            (lambda t: fft.irfftn(t, s=(2 * n + 1, 5), dim=(0, 1)), z),
            (lambda t: fft.fft(t, dim=0), x),
        ]:
            same(function, operand, rtol=1e-12, atol=1e-12)
    """,
        **posing,
    )


def test_products_and_convolutions_of_int64(run_python, posing):
    run_python(
        COMPARE
        + """
    def integers(*sizes):
        return torch.randint(-(2**40), 2**40, sizes)

    same(torch.mm, integers(3, 4), integers(4, 5))
    same(torch.bmm, integers(2, 3, 4), integers(2, 4, 5))
    same(lambda x, w: F.conv1d(x, w, padding=2, dilation=2), integers(2, 4, 9), integers(6, 4, 3))
    same(lambda x, w: F.conv2d(x, w, stride=2, groups=2), integers(2, 4, 7, 8), integers(6, 2, 3, 2))
    same(lambda x, w: F.conv2d(x, w, groups=4), integers(1, 4, 5, 5), integers(8, 1, 3, 3))
    same(lambda x, w: F.conv3d(x, w), integers(1, 2, 4, 4, 4), integers(3, 2, 2, 2, 2))
    same(lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1, groups=2),
         integers(2, 4, 3, 4), integers(4, 3, 2, 3))
    same(lambda x, w: F.conv1d(x, w), torch.zeros(0, 4, 9, dtype=torch.int64), integers(6, 4, 3))
    """,
        **posing,
    )


def test_bfloat16_attention_and_convolution(run_python, posing):
    run_python(
        COMPARE
        + """
    q, k, v = (torch.randn(2, 2, 5, 8).bfloat16() for _ in range(3))
    same(F.scaled_dot_product_attention, q, k, v, rtol=2e-2, atol=2e-2)
    x, w = torch.randn(2, 4, 7, 8).bfloat16(), torch.randn(4, 1, 3, 3).bfloat16()
    same(lambda x, w: F.conv2d(x, w, groups=4), x, w, rtol=2e-2, atol=2e-2)

    def gradient(x, w):
        w.requires_grad_()
        return torch.autograd.grad(F.conv2d(x, w, padding=1).sum(), w)[0]

    same(gradient, torch.randn(2, 4, 7, 8), torch.randn(6, 4, 3, 3), rtol=1e-4, atol=1e-4)
    """,
        **posing,
    )


def test_what_a_tpu_lacks_is_refused_before_the_compiler_sees_it(run_python, fake):
    done = run_python(
        """
    import torch
    assert torch.tpu.get_device_name() == "TPU v5 lite"
    for make in (lambda: torch.fft.fft(torch.zeros(8193, dtype=torch.complex128, device="tpu")),
                 lambda: torch.fft.rfft(torch.zeros(2, 9000, dtype=torch.float64, device="tpu")),
                 lambda: torch.fft.irfft(torch.zeros(5000, dtype=torch.complex128, device="tpu"))):
        before = torch.tpu.compile_count()
        try:
            make()
        except NotImplementedError as error:
            print(error)
        else:
            raise AssertionError("accepted")
        assert torch.tpu.compile_count() <= before + 1  # of the operand
    x, w = (torch.zeros(2, 4, 3, dtype=torch.int64, device="tpu") for _ in range(2))
    try:
        torch.ops.aten.convolution_backward_overrideable(
            torch.zeros(2, 2, 1, dtype=torch.int64, device="tpu"), x, w, [1], [0], [1], False, [0], 1, [True] * 3)
    except NotImplementedError as error:
        assert "TPU v5 lite has no gradients of int64 convolutions: convert" in str(error), error
    else:
        raise AssertionError("accepted")
    torch.fft.fft(torch.zeros(8192, dtype=torch.complex128, device="tpu"))
    torch.fft.fft(torch.zeros(9000, dtype=torch.complex64, device="tpu"))
    """,
        **fake,
    )
    first = done.stdout.splitlines()[0]
    assert first.startswith("_fft_c2c(): TPU v5 lite has no Fourier transforms of float64 and complex128 over")
    assert "8193" in first and "complex64" in first and "CPU" in first


def test_nothing_is_refused_on_xla_cpu(run_python, cpu_plugin):
    code = 'import torch; torch.fft.fft(torch.ones(8193, dtype=torch.complex128, device="tpu")).cpu()'
    run_python(code, TORCH_TPU_PLATFORM="cpu", TORCH_TPU_PJRT_PLUGIN=None)


def test_modules_are_kept(run_python, fake, tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    code = 'import torch; x = torch.ones(3, device="tpu"); (x + x, x + x, x * 2, x.add_(x)); torch.tpu.synchronize()'
    run_python(code, TORCH_TPU_DUMP_MODULES=folder, **fake)
    names = sorted(path.name.rsplit("-", 1)[0] for path in folder.iterdir())
    assert names.count("add.Tensor") == 2 and names.count("mul.Tensor") == 1, names  # add_ writes its operand
    assert all(path.suffix == ".mlir" and path.read_text().startswith("module @") for path in folder.iterdir())
    none = tmp_path / "none"
    done = run_python(code, TORCH_TPU_DUMP_MODULES=none, TORCH_TPU_DUMP_LAUNCHES=none / "launches", **fake)
    for name in ("TORCH_TPU_DUMP_MODULES", "TORCH_TPU_DUMP_LAUNCHES"):  # warnings, no failure
        assert name in done.stderr
