"""Fractional max pooling and its gradient."""

import pytest
import torch

from helpers import check

pytestmark = pytest.mark.usefixtures("no_fallback")

A = torch.ops.aten
POOL = {2: A.fractional_max_pool2d, 3: A.fractional_max_pool3d}
BACKWARD = {2: A.fractional_max_pool2d_backward, 3: A.fractional_max_pool3d_backward}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def sample(*sizes, dtype=torch.float32, seed=0):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def numbers(*sizes, dtype=torch.float32):
    return torch.rand(sizes, generator=torch.Generator().manual_seed(1)).to(dtype)


def forward_and_backward(dims, kernel, out):
    def run(x, samples):
        output, indices = POOL[dims](x, kernel, out, samples)
        return output, indices, BACKWARD[dims](output, x, kernel, out, indices)

    return run


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pool(dtype):
    x, samples = sample(2, 3, 9, 11, dtype=dtype), numbers(2, 3, 2, dtype=dtype)
    check(forward_and_backward(2, [2, 3], [4, 5]), x, samples)
    x, samples = sample(2, 2, 6, 7, 9, dtype=dtype), numbers(2, 2, 3, dtype=dtype)
    check(forward_and_backward(3, [2, 3, 1], [3, 2, 5]), x, samples)


def test_forms():
    run = forward_and_backward(2, [2, 2], [3, 1])
    check(run, sample(3, 6, 7), numbers(1, 3, 2))
    check(run, sample(3, 6, 7), numbers(2, 3, 2))
    check(run, sample(2, 3, 6, 7).to(memory_format=torch.channels_last), numbers(2, 3, 2))
    check(run, sample(0, 3, 6, 7), numbers(0, 3, 2))
    check(forward_and_backward(2, [2, 2], [0, 3]), sample(2, 3, 6, 7), numbers(2, 3, 2))
    check(forward_and_backward(3, [2, 2, 2], [3, 3, 3]), sample(3, 6, 7, 5).transpose(1, 3), numbers(1, 3, 3))
    for edge in (0.0, 0.99999994):
        check(forward_and_backward(2, [2, 2], [7, 9]), sample(2, 3, 19, 17), torch.full((2, 3, 2), edge))


def test_many_windows():
    """Places of windows are right to the last one."""
    check(forward_and_backward(2, [2, 3], [33, 41]), sample(5, 7, 64, 80), numbers(5, 7, 2))


def test_special_values():
    x = sample(2, 3, 6, 7)
    x[0, :, 2:4] = float("nan")
    x[1] = -float("inf")
    check(lambda x, s: A.fractional_max_pool2d(x, [2, 3], [3, 2], s), x, numbers(2, 3, 2))


def test_out():
    def pool(x, s):
        output, indices = x.new_empty(0), x.new_empty(0, dtype=torch.int64)
        return A.fractional_max_pool2d.output(x, [2, 2], [3, 3], s, output=output, indices=indices)

    check(pool, sample(2, 3, 6, 7), numbers(2, 3, 2))


def test_module():
    for module in (torch.nn.FractionalMaxPool2d(2, output_ratio=0.6), torch.nn.FractionalMaxPool3d(2, output_size=3)):
        dims = 2 if isinstance(module, torch.nn.FractionalMaxPool2d) else 3
        x = sample(2, 3, *[8] * dims).to("tpu").requires_grad_()
        y = module(x)
        y.sum().backward()
        assert x.grad.sum().item() == y.numel()


S = numbers(2, 3, 2)
REFUSED = {
    "dtype of samples": lambda x, s: A.fractional_max_pool2d(x, [2, 2], [3, 3], s.double()),
    "dims of samples": lambda x, s: A.fractional_max_pool2d(x, [2, 2], [3, 3], s[0]),
    "batch of samples": lambda x, s: A.fractional_max_pool2d(x, [2, 2], [3, 3], s[:1]),
    "channels of samples": lambda x, s: A.fractional_max_pool2d(x, [2, 2], [3, 3], s[:, :2]),
    "size of samples": lambda x, s: A.fractional_max_pool2d(x, [2, 2], [3, 3], s[..., :1]),
    "kernel": lambda x, s: A.fractional_max_pool2d(x, [7, 2], [1, 3], s),
    "output": lambda x, s: A.fractional_max_pool2d(x, [2, 2], [3, 7], s),
    "kernel sizes": lambda x, s: A.fractional_max_pool2d(x, [2, 2, 2], [3, 3], s),
    "dims": lambda x, s: A.fractional_max_pool2d(x[0, 0], [2, 2], [3, 3], s),
    "no channels": lambda x, s: A.fractional_max_pool2d(x[:, :0], [2, 2], [3, 3], s[:, :0]),
    "integers": lambda x, s: A.fractional_max_pool2d(x.long(), [2, 2], [3, 3], s.long()),
    "gradient's sizes": lambda x, s: A.fractional_max_pool2d_backward(x, x, [2, 2], [3, 3], x.long()),
    "gradient's dtype": lambda x, s: A.fractional_max_pool2d_backward(
        x[..., :3, :3].double(), x, [2, 2], [3, 3], x[..., :3, :3].long()
    ),
    "index dtype": lambda x, s: A.fractional_max_pool2d_backward(
        x[..., :3, :3], x, [2, 2], [3, 3], x[..., :3, :3].int()
    ),
    "index": lambda x, s: A.fractional_max_pool2d_backward(
        x[..., :3, :3], x, [2, 2], [3, 3], torch.full_like(x[..., :3, :3], 42).long()
    ).cpu(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    x = sample(2, 3, 6, 7)
    with pytest.raises(Exception) as expected:
        REFUSED[name](x, S)
    with pytest.raises(expected.type) as actual:
        REFUSED[name](x.to("tpu"), S.to("tpu"))
    assert type(actual.value) is expected.type
