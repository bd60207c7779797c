"""Scaled dot-product attention, modules built on it, and recurrent cells."""

import copy

import pytest
import torch
import torch.nn.functional as F

from gradients import check_gradients, to_tpu

sdpa = F.scaled_dot_product_attention
TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 2e-5},
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
    torch.float16: {"rtol": 4e-3, "atol": 4e-3},
}
B, H, T, S, E = 2, 3, 5, 7, 4


def make(*sizes, dtype=torch.float32):
    return torch.randn(sizes, dtype=dtype)


def qkv(queries=T, keys=S, heads=H, key_heads=H, dtype=torch.float32):
    torch.manual_seed(queries + keys)
    return [make(B, h, n, E, dtype=dtype) for h, n in ((heads, queries), (key_heads, keys), (key_heads, keys))]


def is_fused(out):
    return "Overrideable" in type(out.grad_fn).__name__


def check_attention(tensors, mask=None, **options):
    """Mask gradients too, if it wants them."""
    dtype = tensors[0].dtype
    extra = [mask] if mask is not None and mask.is_floating_point() else []

    def run(q, k, v, bias=None):
        m = bias if extra else mask if mask is None else mask.to(q.device)
        out = sdpa(q, k, v, attn_mask=m, **options)
        assert q.device.type == "cpu" or is_fused(out)
        return out

    check_gradients(run, *tensors, *extra, **TOLERANCES.get(dtype, {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("queries, keys", [(T, S), (T, T), (S, T), (1, S)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(queries, keys, causal, dtype):
    check_attention(qkv(queries, keys, dtype=dtype), is_causal=causal)


@pytest.mark.parametrize("scale", [0.3, -0.5])
def test_scale(scale):
    check_attention(qkv(), scale=scale)


def test_layouts_and_widths():
    torch.manual_seed(0)
    check_attention([make(B, T, H, E).transpose(1, 2) for _ in range(3)])
    q, k, _ = qkv()
    # The CPU has no fused kernel for it, whose layout would be the query's.
    check_gradients(lambda q, k, v: sdpa(q, k, v), q, k, make(B, H, S, 6), **TOLERANCES[torch.float32])


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("sizes", [(T, S), (1, S), (B, 1, T, S), (B, H, T, S), (1, 1, 1, S), (H, T, S), (B, 1, 1, S)])
def test_mask(sizes, kind):
    tensors = qkv()
    check_attention(tensors, torch.rand(sizes) > 0.3 if kind == "bool" else make(*sizes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fully_masked_rows_are_zeros(dtype):
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[1] = False
    check_attention(qkv(dtype=dtype), mask)
    out = sdpa(*(t.to("tpu") for t in qkv(dtype=dtype)), attn_mask=mask.to("tpu"))
    assert not out[:, :, 1].any() and not out.isnan().any()


@pytest.mark.parametrize("key_heads", [1, 2, 3, 6])
def test_grouped_queries(key_heads):
    check_attention(qkv(heads=6, key_heads=key_heads), enable_gqa=True)
    check_attention(qkv(T, T, heads=6, key_heads=key_heads), enable_gqa=True, is_causal=True)


def test_dropout():
    q, k, v = (t.to("tpu").requires_grad_() for t in qkv(64, 64, dtype=torch.float64))

    def run():
        torch.manual_seed(3)
        return sdpa(q, k, v, dropout_p=0.4)

    out = run()
    assert is_fused(out)
    assert torch.equal(out.cpu(), run().cpu())
    assert not torch.equal(out.cpu(), sdpa(q, k, v, dropout_p=0.4).cpu())
    g = torch.randn(out.shape, dtype=torch.float64).to("tpu")
    gradients = torch.autograd.grad(out, [q, k, v], g)
    for x, gradient in zip((q, k, v), gradients, strict=True):  # the backward pass drops what the forward dropped
        d = torch.randn(x.shape, dtype=torch.float64).to("tpu")
        with torch.no_grad():
            x += 1e-6 * d
            up = (run() * g).sum()
            x -= 2e-6 * d
            down = (run() * g).sum()
            x += 1e-6 * d
        torch.testing.assert_close(((up - down) / 2e-6).cpu(), (gradient * d).sum().cpu(), rtol=1e-5, atol=1e-5)


def test_dropout_of_everything_and_of_the_right_part():
    ones = torch.ones(1, 1, 2000, 4, device="tpu")
    assert not sdpa(ones[:, :, :4], ones, ones, dropout_p=1.0).any()
    assert abs(sdpa(ones[:, :, :64], ones, ones, dropout_p=0.3).mean().item() - 1) < 0.02


def test_errors_are_pytorchs():
    q, k, v = (t.to("tpu") for t in qkv())
    with pytest.raises(RuntimeError, match="Expected query, key, and value to have the same dtype"):
        sdpa(q, k.double(), v)
    with pytest.raises(RuntimeError, match="Explicit attn_mask should not be set when is_causal=True"):
        sdpa(q, k, v, attn_mask=torch.ones(T, S, device="tpu"), is_causal=True)
    with pytest.raises(RuntimeError, match="Expected size for first two dimensions"):
        sdpa(q, k[..., :3], v)


# ---- modules ----
def check_module(module, *inputs, rtol=1e-4, atol=2e-5):
    on_tpu = copy.deepcopy(module).to("tpu")
    inputs_cpu = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    inputs_tpu = [to_tpu(x).requires_grad_(x.is_floating_point()) for x in inputs]
    expected, actual = module(*inputs_cpu), on_tpu(*inputs_tpu)
    if isinstance(expected, tuple):
        expected, actual = expected[0], actual[0]
    torch.testing.assert_close(actual.cpu(), expected, rtol=rtol, atol=atol)
    g = torch.randn_like(expected)
    expected.backward(g)
    actual.backward(g.to("tpu"))
    for a, e in zip([*on_tpu.parameters(), *inputs_tpu], [*module.parameters(), *inputs_cpu], strict=True):
        if e.grad is not None:
            torch.testing.assert_close(a.grad.cpu(), e.grad, rtol=10 * rtol, atol=10 * atol)


def test_multihead_attention():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    check_module(torch.nn.MultiheadAttention(8, 2, batch_first=True), x, x, x)


def test_transformer_layers():
    torch.manual_seed(0)
    check_module(torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True), torch.randn(2, 5, 8))
    check_module(torch.nn.TransformerDecoderLayer(8, 2, 16, dropout=0), torch.randn(5, 2, 8), torch.randn(3, 2, 8))


RECURRENT = {
    "lstm": (torch.nn.LSTM, {}),
    "lstm_deep": (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "lstm_projected": (torch.nn.LSTM, {"proj_size": 3}),
    "lstm_no_bias": (torch.nn.LSTM, {"bias": False}),
    "gru": (torch.nn.GRU, {}),
    "gru_deep": (torch.nn.GRU, {"num_layers": 2, "bidirectional": True}),
    "gru_no_bias": (torch.nn.GRU, {"bias": False}),
    "rnn_tanh": (torch.nn.RNN, {}),
    "rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent(name, dtype):
    torch.manual_seed(0)
    kind, options = RECURRENT[name]
    tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    check_module(kind(4, 5, **options).to(dtype), torch.randn(6, 3, 4).to(dtype), **tolerance)


def test_packed_sequence():
    torch.manual_seed(0)
    module, x = torch.nn.LSTM(4, 5), torch.randn(6, 3, 4)
    pack = torch.nn.utils.rnn.pack_padded_sequence
    expected = module(pack(x, [6, 4, 2]))[0].data
    actual = copy.deepcopy(module).to("tpu")(pack(x.to("tpu"), [6, 4, 2]))[0].data
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_cells_twice_differentiable(kind):
    torch.manual_seed(0)
    module, x = kind(4, 5), torch.randn(3, 4)

    def second(module, x):
        x.requires_grad_()
        y = module(x)
        y = y[0] if isinstance(y, tuple) else y
        (g,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    expected, actual = second(module, x.clone()), second(copy.deepcopy(module).to("tpu"), x.to("tpu"))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
