"""Autocast and gradient scaling."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def test_dtypes():
    assert set(torch.tpu.get_amp_supported_dtype()) == {torch.bfloat16, torch.float16}
    assert torch.tpu.is_bf16_supported()
    assert torch.amp.is_autocast_available("tpu")
    assert not torch.tpu.is_autocast_enabled()
    with torch.autocast("tpu"):
        assert torch.tpu.is_autocast_enabled() and torch.is_autocast_enabled("tpu")
        assert torch.tpu.get_autocast_dtype() == torch.get_autocast_dtype("tpu") == torch.float16  # as on cuda
    with torch.tpu.amp.autocast(dtype=torch.bfloat16):
        assert torch.tpu.get_autocast_dtype() == torch.bfloat16
    assert not torch.tpu.is_autocast_enabled()
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("tpu", dtype=torch.int32):
        assert not torch.tpu.is_autocast_enabled()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_policies(dtype):
    x = torch.randn(4, 8, device="tpu")
    image = torch.randn(2, 3, 6, 6, device="tpu")
    linear, conv = nn.Linear(8, 8).tpu(), nn.Conv2d(3, 4, 3).tpu()
    with torch.autocast("tpu", dtype=dtype):
        low = [
            linear(x),
            x @ linear.weight,
            torch.mm(x, linear.weight),
            torch.bmm(x[None], linear.weight[None]),
            conv(image),
            F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
        ]
        assert [t.dtype for t in low] == [dtype] * len(low)
        half = linear(x)
        full = [half.softmax(1), half.log_softmax(1), half.exp(), half.sum(), F.layer_norm(half, (8,)), half.pow(2)]
        assert [t.dtype for t in full] == [torch.float32] * len(full)
        assert F.cross_entropy(half, torch.zeros(4, dtype=torch.long, device="tpu")).dtype == torch.float32
        assert (half + x).dtype == torch.float32  # promotes
        assert (half * 2).dtype == dtype
        with torch.autocast("tpu", enabled=False):
            assert linear(x).dtype == torch.float32
    assert linear(x).dtype == torch.float32


def test_values_and_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    x, target = torch.randn(32, 8), torch.randint(4, (32,))
    gradients = {}
    for device in ("cpu", "tpu"):
        copy = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
        copy.load_state_dict(model.state_dict())
        copy.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(copy(x.to(device)), target.to(device))
        assert loss.dtype == torch.float32
        loss.backward()
        gradients[device] = [p.grad.cpu() for p in copy.parameters()]
        assert all(g.dtype == torch.float32 for g in gradients[device])
    for a, b in zip(gradients["tpu"], gradients["cpu"]):
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.01)


def test_cast_cache():
    weight = torch.randn(8, 8, device="tpu", requires_grad=True)
    x = torch.randn(2, 8, device="tpu")
    with torch.autocast("tpu"):
        y = x @ weight
        z = (y.float() @ weight).sum()
    z.backward()
    assert weight.grad.dtype == torch.float32 and weight.grad.isfinite().all().item()


def test_grad_scaler():
    model = nn.Linear(4, 1).tpu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("tpu", init_scale=1024.0, growth_interval=2)
    x = torch.ones(8, 4, device="tpu")

    def step(factor):
        optimizer.zero_grad()
        with torch.autocast("tpu", dtype=torch.float16):
            loss = (model(x) * factor).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        gradient = model.weight.grad.cpu()
        scaler.step(optimizer)
        scaler.update()
        return gradient

    before = model.weight.detach().cpu()
    gradient = step(1.0)
    torch.testing.assert_close(gradient, torch.ones(1, 4))
    torch.testing.assert_close(model.weight.detach().cpu(), before - 0.1)
    step(1.0)
    assert scaler.get_scale() == 2048.0  # two good steps
    before = model.weight.detach().cpu()
    step(float("inf"))
    assert torch.equal(model.weight.detach().cpu(), before) and scaler.get_scale() == 1024.0
    assert isinstance(torch.tpu.amp.GradScaler(enabled=False), torch.amp.GradScaler)
    assert scaler.state_dict()["scale"] == 1024.0


def test_custom_function():
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="tpu", cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            assert not torch.is_autocast_enabled("tpu")
            return x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type="tpu")
        def backward(ctx, gradient):
            return 2 * ctx.saved_tensors[0] * gradient

    x = torch.ones(2, device="tpu", requires_grad=True)
    with torch.autocast("tpu"):
        y = Square.apply(x.bfloat16())
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad.cpu().tolist() == [2, 2]
