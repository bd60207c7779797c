"""Nested tensors: jagged ones have the CPU's values, gradients and refusals, those of layout strided are refused."""

import pytest
import torch
import torch.nn.functional as F

from helpers import assert_same, check

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten
LENGTHS = (3, 5, 0, 2)


@pytest.fixture(autouse=True)
def _no_fallback():
    with torch.tpu.cpu_fallback("error"):
        yield


def plain(x):
    if isinstance(x, torch.Tensor) and x.is_nested:
        return x.values().contiguous() if x.lengths() is None else torch.cat(x.unbind())
    return x


def results(device, function, gradients):
    torch.manual_seed(0)
    parts = [torch.randn(n, 8).to(device).requires_grad_(gradients) for n in LENGTHS]
    try:
        out = plain(function(torch.nested.as_nested_tensor(parts, layout=torch.jagged)))
        if out.requires_grad:
            (out * torch.linspace(0, 1, out.numel(), device=device).reshape(out.shape)).sum().backward()
        return [out.detach(), *(p.grad for p in parts)]
    except Exception as error:  # which one, the CPU says
        return type(error)


def heads(x):
    return x.unflatten(-1, [1, 8]).transpose(1, 2)


def matrix(x, *sizes):
    return torch.linspace(-1, 1, sizes[0] * sizes[1], device=x.device).reshape(sizes)


OPERATIONS = {
    "to_padded_tensor": lambda x: x.to_padded_tensor(0.5),
    "to_padded_tensor, longer": lambda x: x.to_padded_tensor(0.0, (4, 8, 8)),
    "sum": lambda x: x.sum(),
    "sum of sequences": lambda x: x.sum(dim=1),
    "sum of sequences, kept": lambda x: x.sum(dim=1, keepdim=True),
    "mean of sequences": lambda x: x.mean(dim=1),
    "mean of rows": lambda x: x.mean(dim=2),
    "amax of sequences": lambda x: x.amax(dim=1),
    "any of sequences": lambda x: (x > 0).any(dim=1),
    "softmax of sequences": lambda x: x.softmax(dim=1),
    "softmax of rows": lambda x: x.softmax(dim=-1),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "layer_norm of sequences": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "linear": lambda x: F.linear(x, matrix(x, 3, 8)),
    "matmul": lambda x: x @ matrix(x, 8, 4),
    "unbind": lambda x: torch.cat([t * 2 for t in x.unbind()]),
    "cat": lambda x: torch.cat([x, x * 2], dim=2),
    "narrow": lambda x: torch.narrow(x, 2, 1, 3),
    "chunk": lambda x: x.chunk(2, dim=-1)[1],
    "select": lambda x: x[1],
    "arithmetic": lambda x: F.gelu(x) * torch.arange(8.0, device=x.device) + x,
    "where": lambda x: torch.where(x > 0, x, 0.0).masked_fill(x > 1, 2.0),
    "embedding": lambda x: F.embedding((x * 0).long().select(2, 0), matrix(x, 4, 4)),
    "to": lambda x: x.to(torch.bfloat16),
    "attention": lambda x: F.scaled_dot_product_attention(heads(x), heads(x * 2), heads(x + 1)),
    "attention, scaled": lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), scale=0.1),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name, gradients):
    expected = results("cpu", OPERATIONS[name], gradients)
    actual = results("tpu", OPERATIONS[name], gradients)
    if isinstance(expected, type):
        assert actual is expected
        return
    assert not isinstance(actual, type), actual
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e) if e is not None else None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("indices", [torch.int32, torch.int64])
def test_padding_operators(dtype, indices):
    values = torch.arange(20).reshape(10, 2).to(dtype)
    offsets = torch.tensor([0, 3, 8, 8, 10], dtype=indices)
    for most, padding in ((5, 0.0), (7, 1.0), (2, 0.0), (0, 0.0)):  # the third cuts sequences off
        check(lambda v, o, m=most, p=padding: aten._jagged_to_padded_dense_forward(v, [o], [m], p), values, offsets)
    padded = torch.arange(48).reshape(4, 6, 2).to(dtype)
    check(lambda p, o: aten._padded_dense_to_jagged_forward(p, [o]), padded, offsets)
    check(lambda p, o: aten._padded_dense_to_jagged_forward(p, [o], 10), padded, offsets)


def test_padding_of_other_sizes():
    offsets = torch.tensor([0, 2, 5])
    for shape in ((5,), (5, 0), (5, 2, 3)):
        check(lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [3], 2.0), torch.randn(shape), offsets)
    check(lambda v, o: aten._jagged_to_padded_dense_forward(v.t(), [o], [3]), torch.randn(4, 5), offsets)
    none = torch.zeros(1, dtype=torch.int64)
    check(lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [3]), torch.randn(0, 2), none)
    check(lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [3]), torch.randn(0, 2), torch.tensor([0, 0, 0]))
    check(lambda p, o: aten._padded_dense_to_jagged_forward(p, [o]), torch.randn(2, 0, 3), torch.tensor([0, 0, 0]))
    many = torch.arange(0, 401, 4)  # enough sequences that they are searched for
    check(lambda p, o: aten._padded_dense_to_jagged_forward(p, [o]), torch.randn(100, 4, 2), many)
    check(lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [4]), torch.randn(400, 2), many)


@pytest.mark.parametrize(
    "call",
    [
        lambda v, o: aten._jagged_to_padded_dense_forward(v, [o, o], [3, 3]),
        lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [-1]),
        lambda v, o: aten._jagged_to_padded_dense_forward(v, [o[None]], [3]),
        lambda v, o: aten._padded_dense_to_jagged_forward(v, [o], 4),  # not where the offsets end
        lambda v, o: aten._padded_dense_to_jagged_forward(v[:, :1], [o]),  # shorter than a sequence
        lambda v, o: aten._padded_dense_to_jagged_forward(v[:, 0, 0], [o]),
    ],
)
def test_wrong_operands(call):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError):
            call(torch.randn(2, 3, 2, device=device), torch.tensor([0, 2, 5], device=device)).cpu()


def test_narrowed_views():
    def gaps(x, start, length):
        return plain(torch.nested.narrow(x, 1, start, length, layout=torch.jagged).contiguous())

    check(gaps, torch.arange(40.0).reshape(4, 10), torch.tensor([0, 1, 2, 3]), torch.tensor([3, 2, 4, 5]))


def attend(device, lengths, key_lengths=None, dtype=torch.float32, **options):
    torch.manual_seed(0)
    tensors = []
    for counts in (lengths, key_lengths or lengths):
        offsets = torch.tensor([0, *counts]).cumsum(0).to(device)
        values = torch.randn(2, sum(counts), 16, dtype=dtype)
        tensors.append([torch.nested.nested_tensor_from_jagged(v.to(device), offsets) for v in values])
    key = tensors[1][0]
    value = torch.nested.nested_tensor_from_jagged(tensors[1][1].values(), key.offsets())
    split = [x.unflatten(-1, [2, 8]).transpose(1, 2) for x in (tensors[0][0], key, value)]
    return F.scaled_dot_product_attention(*split, **options)


def test_attention_between_sequences():
    for lengths, key_lengths, options in (
        ((3, 5, 2), (4, 1, 6), {}),
        ((3, 1, 2), (2, 0, 3), {}),  # nothing to attend to
        ((3, 5, 2), None, {"dropout_p": 1.0}),
    ):
        expected, actual = (attend(d, lengths, key_lengths, **options) for d in ("cpu", "tpu"))
        assert actual._ragged_idx == expected._ragged_idx
        assert_same(actual.values(), expected.values())
    low = attend("tpu", (3, 5), dtype=torch.bfloat16)
    assert low.dtype == torch.bfloat16
    # Each rounds its intermediate values: both are within 0.006 of the exact result.
    torch.testing.assert_close(
        low.values().cpu(), attend("cpu", (3, 5), dtype=torch.bfloat16).values(), rtol=0, atol=0.012
    )
    with torch.autocast("tpu", dtype=torch.bfloat16):
        assert attend("tpu", (3, 5)).dtype == torch.bfloat16


def test_causal_attention():
    """Which the CPU doesn't have: each sequence as if alone."""
    actual = attend("tpu", (3, 5), is_causal=True)
    torch.manual_seed(0)
    query, _ = torch.randn(2, 8, 16)
    key, value = torch.randn(2, 8, 16)
    for part, at in zip(actual.unbind(), (slice(0, 3), slice(3, 8)), strict=True):
        alone = [x[at].unflatten(-1, [2, 8]).transpose(0, 1) for x in (query, key, value)]
        torch.testing.assert_close(part.cpu(), F.scaled_dot_product_attention(*alone, is_causal=True))


def test_attention_refusals():
    for device in ("cpu", "tpu"):
        with pytest.raises(ValueError, match="Masks"):
            attend(device, (3, 5), attn_mask=torch.ones(5, 5, device=device))
        with pytest.raises(RuntimeError):
            attend(device, (3, 5), (2, 3, 4))


@pytest.mark.parametrize(
    "make",
    [
        lambda ts: torch.nested.as_nested_tensor([t.requires_grad_() for t in ts]),
        torch.nested.nested_tensor,
        lambda ts: torch.nested.nested_tensor([t.cpu() for t in ts]).to("tpu"),
        lambda ts: torch.nested.nested_tensor([t.cpu() for t in ts], device="tpu", requires_grad=True) * 2,
        lambda ts: torch._nested_tensor_from_mask(ts[0][None], torch.ones(1, 3, device="tpu").bool(), mask_check=False),
        lambda ts: torch._nested_from_padded(ts[0][None], torch.tensor([[3, 8]])),
    ],
)
def test_strided_layout_is_refused(make):
    with pytest.raises(NotImplementedError, match=r"layout=torch\.jagged"):
        make([torch.randn(n, 8, device="tpu") for n in (3, 5)])
