"""What torch.optim stands on: _foreach_ operators, fused steps, the gradient scaler."""

import math

import pytest
import torch
from torch import nn, optim

from helpers import assert_same

DTYPES = [torch.float32, torch.int64, torch.bfloat16]


def tensors(dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(s, generator=generator) * 3 for s in ((3, 4), (), (5,), (2, 0), (4, 3))]
    made[-1] = made[-1].t()
    return [t.to(dtype) if dtype.is_floating_point else t.round().to(dtype) for t in made]


def compare(function, dtype):
    """The same results, the same changes to the operands, or the same error."""

    def run(device):
        lists = [[t.to(device) for t in tensors(dtype, seed)] for seed in (1, 2, 3)]
        return list(function(*lists) or []) + lists[0]

    tolerance = {"rtol": 1.6e-2, "atol": 1e-2} if dtype is torch.bfloat16 else {"rtol": 3e-5, "atol": 1e-5}
    try:
        expected = run("cpu")
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)) as caught:
            run("tpu")
        assert str(error)[:40] in str(caught.value)
        return
    for a, e in zip(run("tpu"), expected, strict=True):
        if e.numel() > 0:
            assert_same(a, e, **tolerance)


UNARY = "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal"
UNARY += " round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY.split())
def test_foreach_unary(name, dtype):
    compare(lambda a, b, c: getattr(torch, f"_foreach_{name}")(a), dtype)
    compare(lambda a, b, c: getattr(torch, f"_foreach_{name}_")(a), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow"])
def test_foreach_binary(name, suffix, dtype):
    function = getattr(torch, f"_foreach_{name}{suffix}")
    for number in (2, 0.5, -1, True):
        compare(lambda a, b, c, n=number: function(a, n), dtype)
    compare(lambda a, b, c: function(a, b), dtype)
    compare(lambda a, b, c: function(a, a), dtype)
    compare(lambda a, b, c: function(a, [1.5, 2, 3.0, 4.0, 0.25]), dtype)
    compare(lambda a, b, c: function(a, b[:2]), dtype)
    compare(lambda a, b, c: function(a, [1.0, 2.0]), dtype)
    if name in ("add", "sub"):
        compare(lambda a, b, c: function(a, b, alpha=2), dtype)
    if name in ("add", "mul", "div"):
        compare(lambda a, b, c: function(a, torch.tensor(1.5)), dtype)
        compare(lambda a, b, c: function(a, torch.tensor(1.5, device=a[0].device)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", ["", "_"])
@pytest.mark.parametrize("name", ["addcmul", "addcdiv", "lerp"])
def test_foreach_ternary(name, suffix, dtype):
    function = getattr(torch, f"_foreach_{name}{suffix}")
    numbers = [0.1, 0.2, 0.3, 0.7, 0.9]
    if name == "lerp":
        compare(lambda a, b, c: function(a, b, 0.3), dtype)
        compare(lambda a, b, c: function(a, b, numbers), dtype)
    else:
        compare(lambda a, b, c: function(a, b, c, value=0.3), dtype)
        compare(lambda a, b, c: function(a, b, c, numbers), dtype)
        compare(lambda a, b, c: function(a, b, c, torch.tensor(numbers)), dtype)
    compare(lambda a, b, c: function(a, b, c), dtype)


def test_foreach_others():
    for dtype in (torch.float32, torch.bfloat16):
        for order in (0, 1, 2, 3, math.inf, -math.inf):
            compare(lambda a, b, c, o=order: torch._foreach_norm([t for t in a if t.numel()], o), dtype)
    compare(lambda a, b, c: torch._foreach_norm(a, 2, dtype=torch.float64), torch.float32)
    compare(lambda a, b, c: torch._foreach_pow(2.0, a), torch.float32)
    compare(lambda a, b, c: torch._foreach_zero_(a), torch.float32)
    compare(lambda a, b, c: torch._foreach_copy_(a, b), torch.float32)
    compare(lambda a, b, c: torch._foreach_copy_(a, [t.double() for t in b]), torch.float32)


def model(device, dtype):
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    return made.to(dtype).to(device)


def train(device, dtype, make, steps=4):
    net = model(device, dtype)
    optimizer = make(net.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x, y = (torch.randn(5, n, generator=generator).to(dtype).to(device) for n in (8, 3))
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimizer.step()
    return [p.detach().cpu() for p in net.parameters()]


OPTIMIZERS = {
    "SGD": (optim.SGD, {"lr": 0.1}),
    "SGD nesterov": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "SGD dampening": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "maximize": True}),
    "Adam": (optim.Adam, {"lr": 0.01}),
    "Adam amsgrad": (optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    "AdamW": (optim.AdamW, {"lr": 0.01}),
    "AdamW maximize": (optim.AdamW, {"lr": 0.01, "amsgrad": True, "maximize": True, "weight_decay": 0.0}),
    "Adagrad": (optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}),
    "RMSprop": (optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "Adadelta": (optim.Adadelta, {}),
    "Adamax": (optim.Adamax, {}),
    "NAdam": (optim.NAdam, {}),
    "RAdam": (optim.RAdam, {}),
    "ASGD": (optim.ASGD, {}),
    "Rprop": (optim.Rprop, {}),
}
MODES = {
    "plain": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "fused, tensor lr": {"fused": True, "lr": torch.tensor(0.01)},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, mode):
    kind, options = OPTIMIZERS[name]
    if "fused" in mode and kind not in (optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad):
        pytest.skip("has no fused form")
    used = {**options, **MODES[mode]}
    reference = {**options, "foreach": False, **({"lr": 0.01} if "lr" in MODES[mode] else {})}
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 3e-2)):
        expected = train("cpu", dtype, lambda p: kind(p, **reference))
        actual = train("tpu", dtype, lambda p: kind(p, **used))
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("fused", [False, True])
def test_steps_after_the_first_two_compile_nothing(fused):
    net = model("tpu", torch.float32)
    optimizer = optim.AdamW(net.parameters(), lr=0.1, fused=fused)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    counts = []
    for _ in range(5):
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        schedule.step()
        counts.append(torch.tpu.compile_count())
    assert counts[1] == counts[-1]


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad])
def test_gradient_scaler(kind):
    """A step with an infinity is skipped and shrinks the scale; the others are those without a scaler."""

    def run(device, fused):
        net = model(device, torch.float32)
        optimizer = kind(net.parameters(), lr=0.01, fused=fused)
        scaler = torch.amp.GradScaler(device, init_scale=64.0, growth_interval=2)
        scales = []
        for i in range(6):
            optimizer.zero_grad()
            x = torch.full((2, 8), math.inf if i == 3 else 0.1 * i, device=device)
            scaler.scale(net(x).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, [p.detach().cpu() for p in net.parameters()]

    expected = run("cpu", False)
    for fused in (False, True):
        scales, parameters = run("tpu", fused)
        assert scales == expected[0]
        for a, e in zip(parameters, expected[1], strict=True):
            torch.testing.assert_close(a, e, rtol=2e-5, atol=2e-5)


def test_clip_grad_norm():
    for norm in (2.0, 1.0, math.inf):
        nets = [model(d, torch.float32) for d in ("cpu", "tpu")]
        totals = []
        for net in nets:
            net(torch.ones(2, 8, device=next(net.parameters()).device)).square().sum().backward()
            totals.append(nn.utils.clip_grad_norm_(net.parameters(), 0.1, norm).cpu())
        torch.testing.assert_close(totals[1], totals[0])
        for a, e in zip(nets[1].parameters(), nets[0].parameters(), strict=True):
            torch.testing.assert_close(a.grad.cpu(), e.grad, rtol=1e-5, atol=1e-6)
