"""The edges: float8's limits, transforms, padded batches, windows, and the end of the interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, vmap

from helpers import assert_same, both, check

EDGES = [447.9, 448, 464, 464.1, 480, 1e9, float("inf"), float("nan"), 0.0019, 0.00097, 0.0]


@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_float8_e4m3fn_saturates(source):
    x = torch.tensor(EDGES + [-edge for edge in EDGES]).to(source)
    actual, expected = both(lambda x: x.to(torch.float8_e4m3fn), x)
    assert_same(actual.float(), expected.float())
    actual, expected = both(lambda x: torch.zeros(22, device=x.device, dtype=torch.float8_e4m3fn).copy_(x), x)
    assert_same(actual.float(), expected.float())


def test_integers_to_float8_e4m3fn_saturate():
    x = torch.tensor([0, 7, -447, 449, 500, -(2**40)])
    actual, expected = both(lambda x: x.to(torch.float8_e4m3fn), x)
    assert_same(actual.float(), expected.float())


@pytest.mark.parametrize("causal", [False, True])
def test_attention_under_transforms(causal):
    q, k, v = torch.randn(3, 2, 1, 2, 3, 4).unbind(0)

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def loss(q, k, v):
        return attend(q, k, v).sin().sum()

    def losses(q, k, v):
        return vmap(loss)(q, k, v).sum()

    for function in (vmap(attend), vmap(grad(loss)), grad(losses)):
        actual, expected = both(function, q, k, v)
        torch.testing.assert_close(actual.cpu(), expected)
    actual, expected = both(vmap(attend, in_dims=(None, 0, None)), q[0], k, v[0])
    torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("batch_first", [False, True])
def test_transformer_encoder_takes_a_padded_batch(mode, batch_first):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first), 2).eval()
    padding = torch.tensor([[False, False, True], [False, False, False]])
    x = torch.randn(2, 3, 8) if batch_first else torch.randn(3, 2, 8)
    keep = ~padding if batch_first else ~padding.t()
    with mode():
        expected = encoder(x, src_key_padding_mask=padding)[keep]
        actual = encoder.to("tpu")(x.to("tpu"), src_key_padding_mask=padding.to("tpu")).cpu()[keep]
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [0, 1, 2, 5])
@pytest.mark.parametrize("periodic", [False, True])
def test_kaiser_window(dtype, length, periodic):
    expected = torch.kaiser_window(length, periodic, 8.0, dtype=dtype)
    assert_same(torch.kaiser_window(length, periodic, 8.0, dtype=dtype, device="tpu"), expected)


def test_overlapping_and_reinterpreted_memory():
    def overlap(x):
        x[1:] += x[:-1].clone()
        x.unfold(0, 4, 2)[::2].mul_(2)
        y = x.view(torch.int32)
        y[::3] = 0
        y.view(torch.uint8)[5] = 1
        return x.clone(), y.clone(), x.as_strided((4, 3), (2, 1)).clone()

    check(overlap, torch.arange(12.0))


def test_the_process_ends_well_after_backward(run_python):
    for _ in range(8):
        run_python("""
            import torch
            x = torch.ones(3, device="tpu", requires_grad=True)
            (x * 2).sum().backward()
        """)


@pytest.mark.parametrize("views", [lambda x: [x[:3], x[1:4]], lambda x: [x, x], lambda x: [x[::2], x[1::2], x]])
def test_foreach_over_shared_memory(views):
    """As a loop over the list: each tensor sees what was written to those before it."""
    results = []
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0, device=device)
        tensors = views(x)
        torch._foreach_add_(tensors, 1.0)
        torch._foreach_mul_(tensors, [t.clone() for t in tensors])
        torch._foreach_sqrt_(tensors)
        results.append(x.cpu())
    torch.testing.assert_close(results[1], results[0])
