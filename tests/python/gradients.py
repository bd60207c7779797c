"""Forward and backward on both devices."""

import torch

from helpers import assert_same


def to_tpu(tensor):
    """A copy with the same strides."""
    if tensor.numel() == 0:
        return tensor.detach().to("tpu")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="tpu").copy_(tensor)


def check_gradients(function, *tensors, strides=True, **tolerance):
    """function's result (its first, if several) and its floating-point operands' gradients are the CPU's."""
    on_cpu = [t.detach().clone() for t in tensors]
    on_tpu = [to_tpu(t) for t in tensors]
    for t in on_cpu + on_tpu:
        t.requires_grad_(t.is_floating_point() or t.is_complex())
    expected, actual = function(*on_cpu), function(*on_tpu)
    if isinstance(expected, tuple):
        expected, actual = expected[0], actual[0]
    if strides:
        assert_same(actual.detach(), expected.detach(), **tolerance)
    else:
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True, **tolerance)
    g = torch.randn_like(expected)
    expected.backward(g)
    actual.backward(g.to("tpu"))
    for a, e in zip(on_tpu, on_cpu, strict=True):
        if e.grad is not None:
            torch.testing.assert_close(a.grad.cpu(), e.grad, equal_nan=True, **tolerance)
