"""Fake quantization and its gradients."""

import pytest
import torch

from helpers import check

pytestmark = pytest.mark.usefixtures("no_fallback")

A = torch.ops.aten
NAN, INF = float("nan"), float("inf")
X = torch.tensor([[-1.0, 0.26, 0.25, 0.75], [NAN, INF, 5.0, -0.25], [-INF, 0.1, 1e9, -1e30]])
SCALES, ZEROS = torch.tensor([0.5, 0.25, 0.013]), torch.tensor([1.3, 0.3, -1.7])
CHANNELS = A.fake_quantize_per_channel_affine_cachemask


def sample(*sizes, seed=0):
    return 2 * torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_one_scale(dtype):
    for x in (X.to(dtype), sample(9, 11).to(dtype).t()):
        check(lambda x: A.fake_quantize_per_tensor_affine_cachemask(x, 0.5, 1, -3, 4), x)
        check(lambda x: A.fake_quantize_per_tensor_affine_cachemask(x, 0.0131, 101, 0, 255), x)


@pytest.mark.parametrize("enabled", [0, 1])
def test_parameters_as_tensors(enabled):
    quantize = A._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    zero = torch.tensor([1], dtype=torch.int32)
    check(lambda x, *p: quantize(x, *p, -3, 4), X, SCALES[:1], zero, torch.tensor([enabled]))


@pytest.mark.parametrize("zero", [torch.int32, torch.float32, torch.float16], ids=str)
def test_channels(zero):
    for x, axis in ((X, 0), (X.t(), 1)):
        check(lambda x, s, z, a=axis: CHANNELS(x, s, z, a, -3, 4), x, SCALES, ZEROS.to(zero))


def test_learnable():
    def one(x, grad, s, z):
        forward = A._fake_quantize_learnable_per_tensor_affine(x, s, z, -3, 4, 0.1)
        return forward, *A._fake_quantize_learnable_per_tensor_affine_backward(grad, x, s, z, -3, 4, 0.1)

    def each(x, grad, s, z):
        forward = A._fake_quantize_learnable_per_channel_affine(x, s, z, 0, -3, 4, 0.1)
        return forward, *A._fake_quantize_learnable_per_channel_affine_backward(grad, x, s, z, 0, -3, 4, 0.1)

    check(one, sample(3, 5), sample(3, 5, seed=1), SCALES[:1], ZEROS[:1])
    check(each, sample(3, 5), sample(3, 5, seed=1), SCALES, ZEROS)


REFUSED = {
    "integers": lambda x, s, z: A.fake_quantize_per_tensor_affine_cachemask(x.long(), 0.5, 1, -3, 4),
    "zero point": lambda x, s, z: A.fake_quantize_per_tensor_affine_cachemask(x, 0.5, 10, -3, 4)[0].cpu(),
    "limits": lambda x, s, z: A.fake_quantize_per_tensor_affine_cachemask(x, 0.5, 1, 4, -3),
    "dtype of zero points": lambda x, s, z: CHANNELS(x, s, z.long(), 0, -3, 4),
    "dtype of scales": lambda x, s, z: CHANNELS(x, s.double(), z, 0, -3, 4),
    "axis": lambda x, s, z: CHANNELS(x, s, z, 2, -3, 4),
    "negative axis": lambda x, s, z: CHANNELS(x, s, z, -2, -3, 4),
    "sizes": lambda x, s, z: CHANNELS(x, s[:1], z, 0, -3, 4),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    tensors = sample(3, 4), SCALES, ZEROS.int()
    with pytest.raises(Exception) as expected:
        REFUSED[name](*tensors)
    with pytest.raises(expected.type) as actual:
        REFUSED[name](*(t.to("tpu") for t in tensors))
    assert type(actual.value) is expected.type
