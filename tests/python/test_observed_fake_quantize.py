"""Fake quantization that observes: extremes move, scales follow from them, in the CPU's way."""

import math

import pytest
import torch

from helpers import check

quantize = torch.ops.aten._fused_moving_avg_obs_fq_helper


@pytest.fixture(autouse=True)
def _no_fallback():
    with torch.tpu.cpu_fallback("error"):
        yield


def state(count=1, observe=1, enabled=1):
    infinite = torch.full((count,), math.inf)
    return (
        torch.tensor([observe]),
        torch.tensor([enabled]),
        infinite,
        -infinite,
        torch.ones(count),
        torch.zeros(count, dtype=torch.int32),
    )


def twice(*options):
    """The second time the extremes move towards those of other values."""

    def run(x, *tensors):
        return *quantize(x, *tensors, 0.01, *options), *quantize(x * 2, *tensors, 0.01, *options), *tensors

    return run


def sample(*sizes):
    return 3 * torch.randn(sizes, generator=torch.Generator().manual_seed(0))


SAMPLES = {
    "normal": sample(7, 9),
    "positive": sample(3, 4).abs() + 1,
    "negative": -sample(3, 4).abs() - 1,
    "zeros": torch.zeros(3, 4),
    "small": sample(3, 4) * 1e-5,
    "small and positive": sample(3, 4).abs() * 1e-5,
    "small and negative": -sample(3, 4).abs() * 1e-5,
    "NaN": torch.tensor([1.0, math.nan, -2.0]),
    "channels last": sample(2, 3, 4, 5).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_one_scale(name):
    for options in ((0, 255, 0), (-128, 127, 0, False, True), (-8, 7, 0)):
        check(twice(*options), SAMPLES[name], *state())


@pytest.mark.parametrize("count", [0, 3])
def test_each_channel(count):
    for symmetric in (False, True):
        check(twice(-128, 127, 0, True, symmetric), sample(3, 4), *state(count))
    check(twice(0, 255, 0, True), sample(3, 4, 2), *state(count))


@pytest.mark.parametrize(("observe", "enabled"), [(0, 1), (1, 0), (0, 0)])
def test_switched_off(observe, enabled):
    check(twice(0, 255, 0), sample(3, 4), *state(1, observe, enabled))
    check(twice(0, 255, 0, True), sample(3, 4), *state(3, observe, enabled))


def test_functional_and_gradient():
    functional = torch.ops.aten._fused_moving_avg_obs_fq_helper_functional
    check(lambda *ts: functional(*ts, 0.01, 0, 255, 0), sample(3, 4), *state())

    def gradient(x, *tensors):
        x = x.clone().requires_grad_()
        y = torch.fused_moving_avg_obs_fake_quant(x, *tensors, 0.01, 0, 255, 0)
        z = torch.fused_moving_avg_obs_fake_quant(x * 2, *tensors, 0.01, 0, 255, 0)
        return torch.autograd.grad((y + z * y.detach()).sum(), x)

    check(gradient, sample(3, 4), *state())


def test_module():
    from torch.ao.quantization import FusedMovingAvgObsFakeQuantize

    outs = []
    for device in ("cpu", "tpu"):
        module = FusedMovingAvgObsFakeQuantize().to(device)
        outs.append([module(sample(5, 6).to(device)).cpu(), *(b.cpu() for b in module.buffers())])
    torch.testing.assert_close(outs[1], outs[0])


@pytest.mark.parametrize(
    ("x", "count", "options"),
    [
        (sample(3, 4).double(), 1, (0, 255, 0)),
        (sample(3, 4).long(), 1, (0, 255, 0)),
        (sample(3, 4), 1, (0, 255, 5)),
        (sample(3, 4), 0, (0, 255, 1, True)),
        (sample(0, 4), 1, (0, 255, 0)),
    ],
)
def test_refusals(x, count, options):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError):
            quantize(x.to(device), *(t.to(device) for t in state(count)), 0.01, *options)
