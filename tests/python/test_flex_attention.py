"""flex_attention without torch.compile: the values are the CPU's, the gradients those of dense attention."""

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from helpers import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _no_fallback():
    with torch.tpu.cpu_fallback("error"):
        yield


def operands(dtype=torch.float32, batch=(2, 2), heads=(4, 4), lengths=(16, 16), sizes=(8, 8)):
    shapes = (batch[0], heads[0], lengths[0], sizes[0]), (batch[1], heads[1], lengths[1], sizes[0])
    return [torch.randn(s, dtype=dtype) for s in (*shapes, (*shapes[1][:3], sizes[1]))]


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q - k).abs() <= h + b


def nothing_for_some(b, h, q, k):
    return (q > 2) & (k < q)


def relative(score, b, h, q, k):
    return score + (q - k) * 0.25


def softcap(score, b, h, q, k):
    return 2 * torch.tanh(score / 2)


def masked_by_score(score, b, h, q, k):
    return torch.where(q >= k, score, -float("inf"))


def call(device, tensors, score_mod=None, mask_mod=None, mask_sizes=(None, None), **options):
    query, key, value = (t.to(device) for t in tensors)
    if mask_mod is not None:
        lengths = query.size(2), key.size(2)
        options["block_mask"] = flex.create_block_mask(mask_mod, *mask_sizes, *lengths, device=device)
    return flex.flex_attention(query, key, value, score_mod, **options)


@pytest.mark.parametrize(
    ("score_mod", "mask_mod"),
    [(None, None), (relative, causal), (softcap, nothing_for_some), (masked_by_score, None)],
)
def test_forward(score_mod, mask_mod):
    torch.manual_seed(0)
    tensors = operands()
    expected, actual = (call(d, tensors, score_mod, mask_mod) for d in ("cpu", "tpu"))
    assert_same(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    torch.manual_seed(0)
    tensors = operands(dtype, lengths=(5, 7), sizes=(4, 6))
    expected, actual = (call(d, tensors, relative, causal) for d in ("cpu", "tpu"))
    assert_same(actual, expected)


def test_masks_of_batch_and_head_grouped_heads_and_strides():
    torch.manual_seed(0)
    query, key, value = operands(heads=(4, 2), lengths=(9, 12))
    tensors = query.transpose(1, 2).contiguous().transpose(1, 2), key, value
    options = {"mask_mod": window, "mask_sizes": (2, 4), "enable_gqa": True, "scale": 0.3}
    expected, actual = (call(d, tensors, **options) for d in ("cpu", "tpu"))
    assert_same(actual, expected)
    tensors = operands(batch=(3, 1))  # keys shared by the batch
    options = {"mask_mod": window, "mask_sizes": (3, 4)}
    expected, actual = (call(d, tensors, **options) for d in ("cpu", "tpu"))
    assert_same(actual, expected)


def test_block_mask():
    def many(b, h, q, k):
        return (q >= k) & (q // 100 == k // 100)

    arguments = many, 1, 2, 300, 257
    expected, actual = (flex.create_block_mask(*arguments, device=d, BLOCK_SIZE=64) for d in ("cpu", "tpu"))
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices"):
        assert_same(getattr(actual, name), getattr(expected, name))
    assert_same(actual.to_dense(), expected.to_dense())
    assert actual.sparsity() == expected.sparsity() and str(actual) == str(expected)
    assert_same(actual[:, 1:].kv_indices, expected[:, 1:].kv_indices)
    assert actual.to("cpu").kv_indices.device.type == "cpu"
    assert_same(expected.to("tpu").kv_indices, expected.kv_indices)
    assert flex.create_block_mask(causal, None, None, 16, 16).kv_indices.device.type == "tpu"  # the accelerator
    masks = [flex.create_mask(flex.and_masks(causal, window), 2, 2, 5, 6, device=d) for d in ("cpu", "tpu")]
    assert_same(masks[1], masks[0])


def dense(query, key, value, bias, allowed):
    """The reference: scores, a bias of each head times the distance, a mask."""
    groups = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    q, k = (torch.arange(n, device=scores.device) for n in scores.shape[-2:])
    scores = scores + bias[:, None, None] * (q[:, None] - k)
    scores = scores.masked_fill(~allowed(None, None, q[:, None], k), -float("inf"))
    return scores.softmax(-1) @ value, scores.logsumexp(-1), scores.amax(-1)


@pytest.mark.parametrize(("dtype", "heads"), [(torch.float64, (4, 4)), (torch.float32, (4, 2))])
def test_gradients(dtype, heads):
    torch.manual_seed(0)
    tensors = [*operands(dtype, heads=heads, lengths=(6, 10), sizes=(8, 5)), torch.randn(4, dtype=dtype)]
    weights = torch.randn(2, 4, 6, 5, dtype=dtype)
    on_cpu = [t.clone().requires_grad_() for t in tensors]
    on_tpu = [t.to("tpu").requires_grad_() for t in tensors]
    out, lse, scores = dense(*on_cpu, causal)
    ((out * weights).sum() + lse.sin().sum()).backward()

    bias = on_tpu[3]
    mask = flex.create_block_mask(causal, None, None, 6, 10, device="tpu")
    request = flex.AuxRequest(lse=True, max_scores=True)
    actual, aux = flex.flex_attention(
        *on_tpu[:3],
        lambda score, b, h, q, k: score + bias[h] * (q - k),
        mask,
        enable_gqa=heads[0] != heads[1],
        return_aux=request,
    )
    ((actual * weights.to("tpu")).sum() + aux.lse.sin().sum()).backward()
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for a, e in zip((actual, aux.lse, aux.max_scores), (out, lse, scores), strict=True):
        torch.testing.assert_close(a.detach().cpu(), e.detach(), **tolerance)
    for a, e in zip(on_tpu, on_cpu, strict=True):
        assert_same(a.grad, e.grad, **tolerance)


def test_lse_and_rows_without_keys():
    torch.manual_seed(0)
    tensors = operands()
    mask = flex.create_block_mask(nothing_for_some, None, None, 16, 16, device="tpu")
    query, key, value = (t.to("tpu").requires_grad_() for t in tensors)
    out, lse = flex.flex_attention(query, key, value, block_mask=mask, return_lse=True)
    assert (out[:, :, :3] == 0).all() and (lse[:, :, :3] == -float("inf")).all()
    out.sum().backward()
    assert query.grad.isfinite().all() and (query.grad[:, :, :3] == 0).all()


def test_autocast():
    torch.manual_seed(0)
    tensors = operands()
    outs = []
    for device in ("cpu", "tpu"):
        with torch.autocast(device, dtype=torch.bfloat16):
            outs.append(call(device, tensors, relative, causal))
    assert outs[1].dtype == torch.bfloat16
    assert_same(outs[1], outs[0])


@pytest.mark.parametrize("backend", ["eager", "tpu"])
def test_compiled(backend):
    torch.manual_seed(0)
    torch._dynamo.reset()
    tensors = operands()
    expected = call("cpu", tensors, relative, causal)
    mask = flex.create_block_mask(causal, None, None, 16, 16, device="tpu")
    compiled = torch.compile(flex.flex_attention, backend=backend)
    on_tpu = [t.to("tpu").requires_grad_() for t in tensors]
    actual = compiled(*on_tpu, relative, mask)
    assert_same(actual.detach(), expected)
    actual.sum().backward()
    assert all(t.grad is not None for t in on_tpu)


def test_wrong_operands():
    query, key, value = operands()
    for tensors, options in (
        ((query, key[..., :4], value), {}),
        ((query, key[:, :2], value[:, :2]), {}),
        ((query[0], key[0], value[0]), {}),
        ((query, key[:1], value[:1]), {}),
        ((query, key, value), {"block_mask": flex.create_block_mask(causal, None, None, 32, 32, device="cpu")}),
    ):
        errors = []
        for device in ("cpu", "tpu"):
            if device == "tpu" and "block_mask" in options:
                options = {"block_mask": options["block_mask"].to("tpu")}
            with pytest.raises(Exception) as caught:  # which one, the CPU says
                flex.flex_attention(*(t.to(device) for t in tensors), **options)
            errors.append(caught.type)
        assert errors[0] is errors[1], errors
    mask = flex.create_block_mask(causal, None, None, 16, 16, device="cpu")
    with pytest.raises(RuntimeError, match="same device"):
        flex.flex_attention(query.to("tpu"), key.to("tpu"), value.to("tpu"), block_mask=mask)
    with pytest.raises(ValueError, match="only supported on"):
        flex.flex_attention(*(t.to("meta") for t in (query, key, value)))


def test_import_is_lazy(run_python):
    run_python(
        """
        import sys
        import torch
        name = "torch.nn.attention.flex_attention"
        assert torch.tpu.is_available() and name not in sys.modules
        import torch.nn.attention.flex_attention as flex
        import inspect
        assert inspect.getsource(flex.flex_attention) and flex.__spec__.name == name
        x = torch.ones(1, 1, 2, 8, device="tpu")
        flex._validate_device(x, x, x)
        """
    )
