"""Indexing with tensors, gather and scatter, embeddings, and the gradients of views."""

import pytest
import torch
import torch.nn.functional as F

from helpers import assert_same, check

DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
]
L = torch.long


def sample(*sizes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 9, sizes, generator=generator).to(dtype)


def at(*values):
    return torch.tensor(values)


def index(size, *shape, seed=3):
    return torch.randint(0, size, shape, generator=torch.Generator().manual_seed(seed))


INDEXINGS = {
    "one": lambda x, i, j: x[i],
    "second": lambda x, i, j: x[:, i],
    "last": lambda x, i, j: x[..., j],
    "adjacent": lambda x, i, j: x[:, i, j],
    "front pair": lambda x, i, j: x[i, j],
    "apart": lambda x, i, j: x[i, :, j],
    "all": lambda x, i, j: x[i, j, i],
    "negative": lambda x, i, j: x[i - 2],
    "matrix": lambda x, i, j: x[:, i.view(2, 2)],
    "broadcast": lambda x, i, j: x[i.view(4, 1), j.view(1, 4)],
    "scalar index": lambda x, i, j: x[i[0], :, j[1]],
    "with new dim": lambda x, i, j: x[:, None, i],
    "with slice": lambda x, i, j: x[1:, i % 3],
    "of a view": lambda x, i, j: x.permute(2, 0, 1)[:, i],
    "of a view, transposed index": lambda x, i, j: x.permute(2, 0, 1)[:, i.view(2, 2).t()],
    "none chosen": lambda x, i, j: x[i[:0]],
    "mask": lambda x, i, j: x[x.real > 0] if x.is_complex() else x[x > 0],
    "mask row": lambda x, i, j: x[(i > 1).repeat(1)[:3]],
    "int32": lambda x, i, j: x[i.int()],
}


@pytest.mark.parametrize("name", INDEXINGS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reads(name, dtype):
    if name == "mask row" or name == "int32":
        dtype = torch.float32
    i, j = index(3, 4), index(3, 4, seed=4)
    check(INDEXINGS[name], sample(3, 4, 5, dtype=dtype), i, j)


def put(values, **options):
    def function(x, i, j):
        x.index_put_((i, j), values.to(x), **options)
        return x

    return function


WRITES = {
    "row": lambda x, i, j: x.__setitem__(i, 1),
    "column": lambda x, i, j: x.__setitem__((slice(None), i), torch.arange(5).to(x)),
    "pair": put(torch.arange(20).view(4, 5)),
    "pair scalar": put(torch.tensor(3)),
    "accumulate": put(torch.tensor(1), accumulate=True),
    "through a view": lambda x, i, j: x.transpose(0, 2)[1:].__setitem__((slice(None), i % 3), 2),
    "mask": lambda x, i, j: x.__setitem__(x == x[0, 0, 0], 1),
    "index_add": lambda x, i, j: x.index_add_(1, i, x[:, :4].clone()),
    "index_copy": lambda x, i, j: x.index_copy_(1, torch.tensor([2, 0], device=x.device), x[:, 2:4].clone()),
    "index_fill": lambda x, i, j: x.index_fill_(2, i - 1, 1),
    "masked_fill": lambda x, i, j: x.masked_fill_(x == x[0, 0, 0], 1),
    "masked_scatter": lambda x, i, j: x.masked_scatter_(x.abs() > 0 if x.is_complex() else x > 0, x.flip(0)),
    "put": lambda x, i, j: x.put_(i * 7 - 3, x.view(-1)[:4].clone()),
    "put accumulate": lambda x, i, j: x.put_(i, x.view(-1)[:4].clone(), accumulate=True),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_writes(name, dtype):
    # Positions are distinct where the last write would win.
    i = torch.tensor([0, 2, 1, 3]) if "accumulate" not in name else torch.tensor([0, 2, 2, 0])
    j = torch.tensor([3, 1, 0, 2]) if "accumulate" not in name else torch.tensor([1, 1, 1, 1])
    check(lambda x, i, j: (WRITES[name](x, i, j), x)[1], sample(4, 4, 5, dtype=dtype), i, j, rtol=1e-2, atol=1e-5)


GATHERS = {
    "gather": lambda x, i: x.gather(1, i),
    "gather smaller": lambda x, i: x.gather(1, i[:2, :, :3]),
    "gather view": lambda x, i: x.transpose(0, 2).gather(0, i.transpose(0, 2)),
    "take": lambda x, i: x.take(i),
    "take negative": lambda x, i: x.take(i - 4),
    "take_along_dim": lambda x, i: x.take_along_dim(i[:1], 1),
    "index_select": lambda x, i: x.index_select(2, i[0, 0]),
    "embedding": lambda x, i: F.embedding(i, x.reshape(12, 5)) if x.dtype != torch.bool else x,
}


@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gathers(name, dtype):
    check(GATHERS[name], sample(3, 4, 5, dtype=dtype), index(4, 3, 4, 5))


SCATTERS = {
    "value": lambda x, i, s: x.scatter(1, i, 3),
    "add": lambda x, i, s: x.scatter_add(1, i, s),
    "add smaller": lambda x, i, s: x.scatter_add(0, i[:2, :3] % 3, s),
    "old add": lambda x, i, s: x.scatter(1, i, s, reduce="add"),
    "old multiply": lambda x, i, s: x.scatter(1, i, 2, reduce="multiply"),
    "sum": lambda x, i, s: x.scatter_reduce(1, i, s, "sum"),
    "prod": lambda x, i, s: x.scatter_reduce(1, i, s, "prod", include_self=False),
    "mean": lambda x, i, s: x.scatter_reduce(1, i, s, "mean"),
    "mean alone": lambda x, i, s: x.scatter_reduce(1, i, s, "mean", include_self=False),
    "amax": lambda x, i, s: x.scatter_reduce(1, i, s, "amax"),
    "amin alone": lambda x, i, s: x.scatter_reduce(1, i, s, "amin", include_self=False),
    "in place": lambda x, i, s: x[1:].scatter_add_(1, i[1:], s),
}


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32], ids=str)
def test_scatters(name, dtype):
    half = dtype == torch.bfloat16
    check(
        SCATTERS[name],
        sample(3, 4, 5, dtype=dtype),
        index(4, 3, 4, 5),
        sample(3, 4, 5, dtype=dtype, seed=1),
        rtol=5e-2 if half else 1e-5,
        atol=5e-2 if half else 1e-5,
    )


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_index_reduce(reduce, include_self):
    check(
        lambda x, i, s: x.index_reduce(1, i, s, reduce, include_self=include_self),
        sample(3, 4, 2),
        at(0, 2, 0),
        sample(3, 3, 2, seed=1),
        rtol=1e-5,
        atol=1e-6,
    )


def test_scatter_source_and_order():
    x, s = sample(3, 5), sample(3, 5, seed=1)
    i = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(k)) for k in range(3)])
    check(lambda x, i, s: x.scatter(1, i, s), x, i, s)
    check(lambda x, i, s: x.scatter(1, i[:, :2], s), x, i, s)
    check(lambda x, i, s: x.scatter(1, i[:0], s), x, i, s)


SCALARS = {
    "gather": lambda x, i: x.gather(0, i),
    "scatter": lambda x, i: x.scatter(0, i, 4.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x),
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x.take(i),
    "index_fill": lambda x, i: x.index_fill(0, i, 7.0),
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalars(name):
    check(SCALARS[name], torch.tensor(2.0), torch.tensor(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("padding", [None, 0, 3])
@pytest.mark.parametrize("by_freq", [False, True])
def test_embedding_gradient(padding, by_freq, dtype):
    results = []
    for device in ("cpu", "tpu"):
        weight = sample(6, 4, dtype=dtype).to(device).requires_grad_()
        out = F.embedding(index(6, 3, 5).to(device), weight, padding, scale_grad_by_freq=by_freq)
        out.backward(sample(3, 5, 4, seed=2, dtype=dtype).to(device))
        results.append((out.detach(), weight.grad))
    tolerance = {"rtol": 4e-2, "atol": 4e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    for expected, actual in zip(*results, strict=True):
        assert_same(actual, expected, **tolerance)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("last", [False, True])
def test_embedding_bag(mode, padding, last):
    results = []
    indices, offsets = at(1, 2, 4, 2, 5, 1, 0), at(0, 3, 3, 5, 7) if last else at(0, 3, 3, 5)
    for device in ("cpu", "tpu"):
        weight = sample(6, 3).to(device).requires_grad_()
        samples = sample(7, seed=4).to(device).requires_grad_() if mode == "sum" else None
        out = F.embedding_bag(
            indices.to(device),
            weight,
            offsets.to(device),
            mode=mode,
            padding_idx=padding,
            per_sample_weights=samples,
            include_last_offset=last,
        )
        wanted = [weight, samples] if samples is not None else [weight]
        results.append([out.detach(), *torch.autograd.grad(out, wanted, sample(*out.shape, seed=2).to(device))])
    for expected, actual in zip(*results, strict=True):
        assert_same(actual, expected, rtol=1e-5, atol=1e-6)


def test_embedding_renorm():
    check(lambda w, i: torch.embedding_renorm_(w, i, 0.7, 2.0), sample(5, 3), at(0, 2, 2, 4), rtol=1e-5, atol=1e-6)
    check(
        lambda w, i: F.embedding(i, w, max_norm=0.9, norm_type=1.0), sample(5, 3), at(0, 2, 2, 4), rtol=1e-5, atol=1e-6
    )


GRADIENTS = {
    "index": lambda x, i: x[i],
    "index pair": lambda x, i: x[:, i, :2][:, :, 0],
    "select": lambda x, i: x[1] * x[2],
    "select last": lambda x, i: x[..., -1],
    "slice": lambda x, i: x[1:, :3] * 2,
    "slice step": lambda x, i: x[:, 1::2, ::3],
    "slice none": lambda x, i: x[:, 2:2].sum() + x.sum(),
    "diagonal": lambda x, i: x.diagonal(1, 1, 2) * 3,
    "diagonal below": lambda x, i: x.diagonal(-1, 0, 2),
    "unfold": lambda x, i: x.unfold(2, 3, 1),
    "unfold step": lambda x, i: x.unfold(2, 2, 2),
    "unfold wide": lambda x, i: x.unfold(1, 4, 3),
    "gather": lambda x, i: x.gather(1, i.view(1, 4, 1).expand(3, 4, 5)),
    "take": lambda x, i: x.take(i),
    "index_select": lambda x, i: x.index_select(1, i),
    "index_add": lambda x, i: x.index_add(1, i, x, alpha=2),
    "index_copy": lambda x, i: x.index_copy(0, i[:2], x[1:]),
    "index_fill": lambda x, i: x.index_fill(1, i, 2.0),
    "index_put": lambda x, i: x.index_put((i[:3],), x * 2),
    "masked_scatter": lambda x, i: x.masked_scatter(x > 0, x * 3),
    "masked_select": lambda x, i: x.masked_select(x > 0),
    "scatter_add": lambda x, i: x.scatter_add(1, i.view(1, 4, 1).expand(3, 4, 5), x),
    "scatter amax": lambda x, i: x.scatter_reduce(1, i.view(1, 4, 1).expand(3, 4, 5), x * 2, "amax"),
    "select_scatter": lambda x, i: x.select_scatter(x[0] * 2, 0, 1),
    "slice_scatter": lambda x, i: x.slice_scatter(x[:, :2] * 2, 1, 0, 4, 2),
    "diagonal_scatter": lambda x, i: x.diagonal_scatter(x[:, :, 0] * 2, 0, 1, 2),
    "diag_embed": lambda x, i: x.diag_embed(1),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    results = []
    for device in ("cpu", "tpu"):
        x = sample(3, 4, 5).to(device).requires_grad_()
        out = GRADIENTS[name](x, at(0, 2, 1, 2).to(device)[: 4 if "copy" not in name and "put" not in name else 3])
        (grad,) = torch.autograd.grad(out, x, sample(*out.shape, seed=1).to(device))
        results.append((out.detach(), grad))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)


PARTS = {
    "select_scatter": lambda x: x.select_scatter(torch.ones(3, 5, device=x.device), 1, -1),
    "slice_scatter": lambda x: x.slice_scatter(torch.ones(3, 2, 5, device=x.device), 1, -3, -1),
    "slice_scatter step": lambda x: x.slice_scatter(torch.ones(3, 4, 2, device=x.device), 2, 1, 5, 2),
    "slice_scatter open": lambda x: x.slice_scatter(torch.ones(3, 4, 5, device=x.device), 2),
    "diagonal_scatter": lambda x: (
        x.diagonal_scatter(torch.ones(5, 3, device=x.device), -1, 1, 0)
        if False
        else x.diagonal_scatter(torch.ones(5, 2, device=x.device), -1, 0, 1)
    ),
    "as_strided_scatter": lambda x: x.as_strided_scatter(torch.ones(2, 2, device=x.device), (2, 2), (3, 1), 4),
    "diag_embed": lambda x: x.diag_embed(-2, 0, 2),
    "diag": lambda x: x[0, 0].diag(1),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_replaced(name):
    check(PARTS[name], sample(3, 4, 5))


def test_positions_do_not_recompile():
    x = sample(64, 8).tpu().requires_grad_()

    def step(k):
        (x[k] * x[k : k + 2].sum()).sum().backward()

    step(1)
    before = torch.tpu.counters()["compiles"] if hasattr(torch.tpu, "counters") else None
    for k in range(2, 6):
        step(k)
    torch.tpu.synchronize()
    if before is not None:
        assert torch.tpu.counters()["compiles"] == before


BAD_INDICES = {
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put_((i,), torch.ones((), device=x.device)),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add_(0, i, torch.ones(2, 4, device=x.device)),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter_(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add_(0, i[:, None], torch.ones(2, 1, device=x.device)),
    "embedding": lambda x, i: F.embedding(i, x),
    "take": lambda x, i: x.take(i * 100),
}


@pytest.mark.parametrize("name", BAD_INDICES)
@pytest.mark.parametrize("bad", [3, -4])
def test_indices_are_checked(name, bad):
    x = torch.zeros(3, 4, device="tpu")
    with pytest.raises(IndexError, match="out of bounds"):
        BAD_INDICES[name](x, torch.tensor([0, bad], device="tpu"))
        torch.tpu.synchronize()
    assert x[1:].cpu().count_nonzero() == 0  # the bad index stored nothing
    torch.tpu.synchronize()


COMPLAINTS = {
    "too many": (IndexError, "too many indices", lambda x, i: x[i, i, i]),
    "shapes": (IndexError, "could not be broadcast together", lambda x, i: x[i[:2], torch.cat([i, i])]),
    "float index": (IndexError, "must be long, int, byte or bool", lambda x, i: x[i.float()]),
    "put shape": (
        RuntimeError,
        "shape mismatch: value tensor",
        lambda x, i: x.index_put_((i,), torch.ones(3, device=x.device)),
    ),
    "put dtype": (
        RuntimeError,
        "Index put requires the source and destination dtypes match",
        lambda x, i: x.index_put_((i,), torch.ones(4, device=x.device, dtype=torch.double)),
    ),
    "gather rank": (RuntimeError, "same number of dimensions", lambda x, i: x.gather(0, i)),
    "gather size": (
        RuntimeError,
        "Size does not match at dimension",
        lambda x, i: x.gather(1, i[:, None].expand(2, 1).repeat(3, 1)),
    ),
    "scatter dtype": (
        RuntimeError,
        "Expected self.dtype to be equal to src.dtype",
        lambda x, i: x.scatter(0, i[:, None], x.double()),
    ),
    "select vector": (IndexError, "supposed to be a vector", lambda x, i: x.index_select(0, i[None])),
    "add dtype": (RuntimeError, "must have the same scalar type", lambda x, i: x.index_add(0, i, x[:2].double())),
    "reduce": (
        RuntimeError,
        "reduce argument must be either",
        lambda x, i: x.scatter_reduce(0, i[:, None], x, "median"),
    ),
    "weight": (RuntimeError, "'weight' must be 2-D", lambda x, i: F.embedding(i, x[0])),
}


@pytest.mark.parametrize("name", COMPLAINTS)
@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_complaints(name, device):
    error, match, function = COMPLAINTS[name]
    with pytest.raises(error, match=match):
        function(torch.zeros(3, 4, device=device), torch.tensor([0, 1], device=device))


def test_masked_scatter_needs_enough():
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
        torch.zeros(3, device="tpu").masked_scatter(
            torch.tensor([True, True, False], device="tpu"), torch.ones(1, device="tpu")
        )
        torch.tpu.synchronize()


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("kind", ["none", "all", "some", "strided"])
def test_nonzero_is_laid_out_by_columns(shape, kind):
    x = torch.arange(torch.Size(shape).numel()).reshape(shape) % 3
    x = {"none": x * 0, "all": x * 0 + 1, "some": x, "strided": x.mT if x.dim() > 1 else x}[kind]
    results = []
    for device in ("cpu", "tpu"):
        y, out = x.to(device), torch.empty(0, dtype=torch.int64, device=device)
        torch.nonzero(y, out=out)
        results.append([torch.nonzero(y), torch.argwhere(y), out])
    for expected, actual in zip(*results):
        assert actual.stride() == expected.stride()
        assert torch.equal(actual.cpu(), expected)
