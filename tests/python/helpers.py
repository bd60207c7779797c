"""Comparisons and paths that tests share."""

from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def both(function, *tensors, **options):
    """function's results on the CPU and on the device, from copies of the same tensors."""
    expected = function(*(t.clone() for t in tensors), **options)
    actual = function(*(t.to("tpu") for t in tensors), **options)
    return actual, expected


def assert_same(actual, expected, **tolerance):
    """The device's tensor has the CPU's values, dtype, sizes and strides."""
    assert actual.device.type == "tpu"
    assert actual.stride() == expected.stride(), (actual.stride(), expected.stride())
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, **tolerance)


def check(function, *tensors, **tolerance):
    """function's result, and what it did to its operands, are the CPU's."""
    on_cpu = [t.clone() for t in tensors]
    on_tpu = [t.to("tpu") for t in tensors]
    expected, actual = function(*on_cpu), function(*on_tpu)
    if not isinstance(expected, (tuple, list)):
        expected, actual = [expected], [actual]
    for a, e in zip(actual, expected, strict=True):
        if isinstance(e, torch.Tensor):
            assert_same(a, e, **tolerance)
        else:
            assert a == e
    for a, e in zip(on_tpu, on_cpu, strict=True):
        torch.testing.assert_close(a.cpu(), e, equal_nan=True, **tolerance)
