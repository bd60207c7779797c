"""The inference paths of nn.MultiheadAttention and the transformer's layers."""

import copy
import warnings

import pytest
import torch
from torch import nn

from helpers import check

A = torch.ops.aten
B, T, D, H = 2, 3, 8, 2
TOLERANCE = {torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}, torch.float16: {"rtol": 4e-3, "atol": 4e-3}}


@pytest.fixture(autouse=True)
def no_fallback():
    with torch.tpu.cpu_fallback("error"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # masks of floats become masks of bools
        yield


def sample(*sizes, dtype=torch.float32, seed=0):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def weights(dtype=torch.float32):
    sizes = [(3 * D, D), (3 * D,), (D, D), (D,)]
    return [sample(*size, dtype=dtype, seed=i) / 2 for i, size in enumerate(sizes)]


SOURCE = torch.tensor([[False, True, False], [False, False, False], [True, True, True]])
PADDING = torch.tensor([[False, False, True], [True, True, True]])
MASKS = {
    "none": (None, None),
    "source": (SOURCE, 0),
    "padding": (PADDING, 1),
    "both": ((SOURCE | PADDING.view(B, 1, 1, T)).expand(B, H, T, T), 2),
    "floats": (torch.zeros(B, T).masked_fill(PADDING, -float("inf")), 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_attention(name, dtype):
    mask, kind = MASKS[name]

    def run(x, *w):
        device_mask = None if mask is None else mask.to(x.device)
        return A._native_multi_head_attention(x, x, x, D, H, *w, device_mask, True, True, kind)

    check(run, sample(B, T, D, dtype=dtype), *weights(dtype), **TOLERANCE.get(dtype, {}))


def test_masked_softmax():
    for kind, mask in ((0, SOURCE), (1, PADDING), (2, SOURCE.expand(B, H, T, T))):
        check(lambda x, m, k=kind: torch._masked_softmax(x, m, 3, k), sample(B, H, T, T), mask)


def test_attention_forms():
    def run(q, k, v, *w):
        attend = A._native_multi_head_attention
        return (
            *attend(q, k, v, D, H, *w, None, True, False),
            *attend(q, k, k, D, 4, *w),
            attend(q, q, q, D, 1, *w, None, False)[0],
            attend(q, q, q, D, H, *w, None, False)[1],
            attend(q[:, :0], q[:, :0], q[:, :0], D, H, *w)[1],
            *A._transform_bias_rescale_qkv(torch.cat([q, k, v], 2), w[1], H),
        )

    check(run, *(sample(B, T, D, seed=i) for i in range(3)), *weights())
    check(run, *(sample(T, B, D, seed=i).transpose(0, 1) for i in range(3)), *weights())


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_encoder_layer(gelu, norm_first, dtype):
    layer = nn.TransformerEncoderLayer(
        D, H, 16, activation="gelu" if gelu else "relu", norm_first=norm_first, batch_first=True
    )
    layer = layer.eval().to(dtype)
    on_tpu = copy.deepcopy(layer).to("tpu")
    x = sample(4, T, D, dtype=dtype)
    options = {torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2}}.get(dtype, {"rtol": 1e-5, "atol": 1e-5})
    with torch.no_grad():
        for masks in ({}, {"src_mask": SOURCE}, {"src_key_padding_mask": PADDING.repeat(2, 1)}):
            expected = layer(x, **masks)
            actual = on_tpu(x.to("tpu"), **{name: mask.to("tpu") for name, mask in masks.items()})
            assert actual.stride() == expected.stride()
            torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, **options)


def test_layer_is_one_program():
    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True).eval().to("tpu")
    x = sample(B, T, D).to("tpu")
    with torch.no_grad():
        layer(x)
        torch.tpu.synchronize()
        before = torch.tpu.counters()["executions"]
        layer(x)
        torch.tpu.synchronize()
        assert torch.tpu.counters()["executions"] == before + 1


def test_encoder_layer_of_nothing():
    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True).eval().to("tpu")
    with torch.no_grad():
        assert layer(torch.zeros(0, T, D, device="tpu")).shape == (0, T, D)


@pytest.mark.parametrize("need_weights", [False, True])
def test_module(need_weights):
    attention = nn.MultiheadAttention(D, H, batch_first=True).eval()
    on_tpu = copy.deepcopy(attention).to("tpu")
    x = sample(B, T, D)
    masks = {"key_padding_mask": PADDING, "attn_mask": SOURCE}
    with torch.no_grad():
        for chosen in ((), ("key_padding_mask",), ("attn_mask",), tuple(masks)):
            options = {name: masks[name] for name in chosen}
            there = {k: v.to("tpu") for k, v in options.items()}
            expected = attention(x, x, x, need_weights=need_weights, **options)
            y = x.to("tpu")
            actual = on_tpu(y, y, y, need_weights=need_weights, **there)
            torch.testing.assert_close(actual[0].cpu(), expected[0], equal_nan=True)
            assert (actual[1] is None) == (expected[1] is None)
            if need_weights:
                torch.testing.assert_close(actual[1].cpu(), expected[1], equal_nan=True)


PADDINGS = {
    "at the end": [[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]],
    "in all": [[0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1]],
    "before": [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]],
}


@pytest.mark.parametrize("mask_check", [True, False])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("norm", [False, True])
def test_encoder_with_padding(padding, norm, mask_check):
    """PyTorch packs the sequences, and writes zeros where the padding was."""
    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D) if norm else None, mask_check=mask_check).eval()
    on_tpu = copy.deepcopy(encoder).to("tpu")
    x, mask = sample(3, 4, D), torch.tensor(PADDINGS[padding]).bool()
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=mask)
        actual = on_tpu(x.to("tpu"), src_key_padding_mask=mask.to("tpu"))
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert (on_tpu.norm is not None) == norm
    result = on_tpu(x.to("tpu"), src_key_padding_mask=mask.to("tpu"))  # with gradients nothing is packed
    result.sum().backward()
    expected = encoder(x, src_key_padding_mask=mask)
    torch.testing.assert_close(result.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-5)
    on_tpu.train()(x.to("tpu"), src_key_padding_mask=mask.to("tpu"))


def test_encoder_scripts():
    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    x = sample(2, 3, D)
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.script(encoder)(x), encoder(x))


X, W = sample(B, T, D), weights()
REFUSED = {
    "shapes": lambda x, *w: A._native_multi_head_attention(x, x[:, :2], x[:, :2], D, H, *w),
    "embed_dim": lambda x, *w: A._native_multi_head_attention(x, x, x, 2 * D, H, *w),
    "heads": lambda x, *w: A._native_multi_head_attention(x, x, x, D, 3, *w),
    "dims": lambda x, *w: A._native_multi_head_attention(x[0], x[0], x[0], D, H, *w),
    "weight": lambda x, w, *more: A._native_multi_head_attention(x, x, x, D, H, w[:D], *more),
    "bias": lambda x, w, b, *more: A._native_multi_head_attention(x, x, x, D, H, w, b[:D], *more),
    "bias of projection": lambda x, *w: A._native_multi_head_attention(x, x, x, D, H, *w[:3], w[3][:2]),
    "dtype of weight": lambda x, w, *more: A._native_multi_head_attention(x, x, x, D, H, w.double(), *more),
    "integers": lambda x, *w: A._native_multi_head_attention(*[x.long()] * 3, D, H, *(v.long() for v in w)),
    "no mask type": lambda x, *w: A._native_multi_head_attention(x, x, x, D, H, *w, x[0, :, :3] > 0),
    "mask type": lambda x, *w: A._native_multi_head_attention(x, x, x, D, H, *w, x[0, :, :3] > 0, True, True, 3),
    "source mask": lambda x, *w: A._native_multi_head_attention(x, x, x, D, H, *w, x[0, :2, :3] > 0, True, True, 0),
    "padding mask": lambda x, *w: A._native_multi_head_attention(x, x, x, D, H, *w, x[0, :, :3] > 0, True, True, 1),
    "full mask": lambda x, *w: A._native_multi_head_attention(x, x, x, D, H, *w, x[0, :, :3] > 0, True, True, 2),
    "heads of three": lambda x, w, b, *more: A._transform_bias_rescale_qkv(x.repeat(1, 1, 3), b, 3),
    "three of integers": lambda x, w, b, *more: A._transform_bias_rescale_qkv(x.repeat(1, 1, 3).long(), b.long(), H),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(Exception) as expected:
        REFUSED[name](X, *W)
    with pytest.raises(expected.type) as actual:
        REFUSED[name](X.to("tpu"), *(w.to("tpu") for w in W))
    assert type(actual.value) is expected.type
