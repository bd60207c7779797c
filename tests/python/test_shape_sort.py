"""Operators that move, repeat and pad, and those that sort and search."""

import pytest
import torch
import torch.nn.functional as F

from helpers import assert_same, check

NAN, INF = float("nan"), float("inf")
DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


def sample(*sizes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 9, sizes, generator=generator).to(dtype)


MOVES = {
    "cat": lambda x: torch.cat([x, x[:, :1], x], 1),
    "cat empty": lambda x: torch.cat([x.new_empty(0), x, x.new_empty(0)]),
    "cat negative": lambda x: torch.cat((x, x.flip(0)), -1),
    "stack": lambda x: torch.stack([x, x.flip(1)], 1),
    "stack last": lambda x: torch.stack([x, x], -1),
    "hstack": lambda x: torch.hstack([x, x]),
    "flip": lambda x: x.flip(0, -1),
    "flip of a view": lambda x: x.permute(2, 0, 1).flip(1),
    "roll": lambda x: x.roll((1, -2), (0, 2)),
    "roll all": lambda x: x.roll(4),
    "rot90": lambda x: x.rot90(1, (0, 2)),
    "repeat": lambda x: x.repeat(2, 1, 3, 1),
    "repeat none": lambda x: x.repeat(2, 0, 1),
    "tile": lambda x: x.tile(2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "repeat_interleave tensor": lambda x: x.repeat_interleave(torch.tensor([2, 0, 1], device=x.device), 0),
    "repeat_interleave sized": lambda x: x.repeat_interleave(
        torch.tensor([2, 0, 1], device=x.device), 0, output_size=3
    ),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-1),
    "trace": lambda x: x[0].trace() if x.dtype != torch.bool else x,
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=1),
    "pad negative": lambda x: F.pad(x, (-1, 2, 1, -2)),
    "pad reflect": lambda x: F.pad(x, (1, 2), "reflect") if x.dtype not in (torch.bool,) else x,
    "pad reflect 2d": lambda x: F.pad(x, (1, 2, 3, 0), "reflect") if x.dtype not in (torch.bool,) else x,
    "pad replicate": lambda x: F.pad(x, (1, 2, 3, 0), "replicate") if x.dtype not in (torch.bool,) else x,
    "pad circular": lambda x: F.pad(x, (1, 2), "circular"),
    "diag_embed": lambda x: x.diag_embed(1),
    "block_diag": lambda x: torch.block_diag(x[0], x[1]),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="ij")[1].contiguous(),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moves(name, dtype):
    check(MOVES[name], sample(3, 4, 5, dtype=dtype))


IMAGES = {
    "pad": lambda x: F.pad(x, (1, 1, 2, 0)),
    "reflect": lambda x: F.pad(x, (1, 1, 2, 0), "reflect"),
    "replicate": lambda x: F.pad(x, (1, 1, 2, 0), "replicate"),
    "cat": lambda x: torch.cat([x, x], 1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 4),
    "unfold": lambda x: F.unfold(x, (2, 3), dilation=(2, 1), padding=1, stride=(1, 2)),
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_images(name, channels_last):
    x = sample(2, 8, 4, 6)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    check(IMAGES[name], x)


def test_fold():
    check(lambda x: F.fold(x, (4, 5), (2, 3), padding=1), sample(2, 12, 25), rtol=1e-5, atol=1e-6)
    check(lambda x: F.fold(x, (4, 4), 2, stride=2), sample(12, 4), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "constant"])
def test_volume_padding(mode):
    check(lambda x: F.pad(x, (1, 2, 1, 0, 2, 1), mode), sample(2, 3, 3, 4, 5))


def test_cat_promotes():
    check(lambda x, y: torch.cat([x, y]), sample(2), torch.arange(3))
    check(lambda x, y: torch.stack([x, y]), torch.ones(3, dtype=torch.int32), torch.ones(3, dtype=torch.bool))
    check(lambda x, y, out: torch.cat([x, y], out=out), sample(2), sample(3), torch.empty(0))
    check(lambda x: torch.cat([x] * 200, 1), sample(2, 3))


GRADIENTS = {
    "cat": lambda x: torch.cat([x, x[:, :2]], 1),
    "stack": lambda x: torch.stack([x, x * 2]),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, 0),
    "repeat": lambda x: x.repeat(2, 1, 1),
    "tril": lambda x: x.tril(),
    "pad": lambda x: F.pad(x, (1, -1)),
    "reflect": lambda x: F.pad(x, (2, 3, 1, 2), "reflect"),
    "replicate": lambda x: F.pad(x, (2, 3, 1, 2), "replicate"),
    "replicate negative": lambda x: torch.ops.aten.replication_pad2d(x, (-1, 3, 1, -2)),
    "reflect negative": lambda x: torch.ops.aten.reflection_pad1d(x, (-1, 3)),
    "fold": lambda x: F.fold(x.reshape(1, 4, 15), (4, 6), 2),
    "unfold": lambda x: F.unfold(x[None], 2),
    "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(2, 1)[0],
    "kthvalue": lambda x: x.kthvalue(2, 1)[0],
    "median": lambda x: x.median(1)[0],
    "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor([2, 0, 1], device=x.device), 0),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    results = []
    for device in ("cpu", "tpu"):
        x = sample(3, 4, 5).to(device).requires_grad_()
        out = GRADIENTS[name](x)
        (grad,) = torch.autograd.grad(out, x, sample(*out.shape, seed=1).to(device))
        results.append((out.detach(), grad))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)


SORTS = {
    "sort": lambda x: x.sort(dim=1, stable=True),
    "sort down": lambda x: x.sort(dim=0, descending=True, stable=True),
    "sort of a view": lambda x: x.permute(2, 0, 1).sort(dim=1, stable=True),
    "argsort": lambda x: x.argsort(dim=1, stable=True),
    "msort": lambda x: x.msort(),
    "kthvalue": lambda x: x.kthvalue(2, 1)[0],
    "median": lambda x: x.median(1)[0],
    "median all": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(1, keepdim=True)[0],
    "nanmedian all": lambda x: x.nanmedian(),
    "mode": lambda x: x.mode(1)[0],
    "topk": lambda x: x.topk(2, 1)[0],
    "topk least": lambda x: x.topk(3, 0, largest=False)[0],
    "topk all": lambda x: x.topk(5)[0],
    "topk none": lambda x: x.topk(0),
    "quantile": lambda x: x.quantile(0.3, 1) if x.dtype == torch.float32 else x,
    "unique": lambda x: x.unique(),
}


@pytest.mark.parametrize("name", SORTS)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.is_complex] + [torch.float16], ids=str)
def test_sorts(name, dtype):
    if dtype == torch.bool and (
        "median" in name or name in ("kthvalue", "topk", "topk least", "topk all", "topk none")
    ):
        with pytest.raises(RuntimeError, match=r"[Bb]ool"):
            SORTS[name](sample(3, 4, 5, dtype=dtype).tpu())
        return
    check(SORTS[name], sample(3, 4, 5, dtype=dtype), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in SORTS if n not in ("unique", "mode", "quantile")])
def test_sorts_with_nan(name):
    x = sample(3, 4, 5)
    x[0, 1, 2], x[0, 3, 2], x[2, 2, :], x[1, 0, 0], x[1, 1, 0] = NAN, -NAN, -NAN, INF, -INF
    check(SORTS[name], x)
    check(SORTS[name], torch.tensor([[[-0.0, 0.0, -0.0, 0.0, 1.0]] * 4] * 3))


def test_sort_positions():
    x = sample(3, 40)
    x[0, 5], x[0, 9] = NAN, NAN
    for function in (
        lambda x: x.kthvalue(3, 1),
        lambda x: x.topk(39, 1)[1][:, 2:],
        lambda x: x.topk(30, 1, largest=False),
        lambda x: x.nanmedian(1),
        lambda x: x.median(1),
    ):
        check(function, x)
    for function in (
        lambda x: x.sort(0),
        lambda x: x.kthvalue(1),
        lambda x: x.median(0),
        lambda x: x.topk(1),
        lambda x: x.mode(),
    ):
        check(function, torch.tensor(3.0))
    check(lambda x: x.sort(0), torch.zeros(0, 3))
    check(lambda x: x.median(), torch.zeros(0))
    check(
        lambda x, v, i: torch.sort(x, dim=1, stable=True, out=(v, i)),
        x,
        torch.empty(0),
        torch.empty(0, dtype=torch.long),
    )


SEARCHES = {
    "searchsorted": lambda x, v: torch.searchsorted(x.sort()[0], v),
    "right": lambda x, v: torch.searchsorted(x.sort()[0], v, right=True, out_int32=True),
    "side": lambda x, v: torch.searchsorted(x.sort()[0], v, side="right"),
    "rows": lambda x, v: torch.searchsorted(x.view(2, -1).sort()[0], v.view(2, -1)),
    "sorter": lambda x, v: torch.searchsorted(x, v, sorter=x.argsort(stable=True)),
    "scalar": lambda x, v: torch.searchsorted(x.sort()[0], 0.25),
    "bucketize": lambda x, v: torch.bucketize(v.view(2, -1), x.sort()[0]),
    "bucketize scalar": lambda x, v: torch.bucketize(0.5, x.sort()[0], right=True),
    "isin": lambda x, v: torch.isin(v, x[::2]),
    "isin inverted": lambda x, v: torch.isin(v.view(2, -1), x, invert=True),
    "isin scalar": lambda x, v: torch.isin(v, 1),
    "histc": lambda x, v: v.float().histc(5, -1, 1.5),
    "histc data": lambda x, v: v.float().clamp(-5, 5).histc(7),
}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("length", [6, 64, 300])
def test_searches(name, length):
    x, v = sample(length), torch.cat([sample(10, seed=1), torch.tensor([1.0, -INF, INF, 0.0])])
    v[3:5] = x[1:3]
    check(SEARCHES[name], x, v)
    check(SEARCHES[name], (x * 4).long(), (v.clamp(-5, 5) * 4).long())


COMPLAINTS = {
    "cat ranks": (RuntimeError, "same number of dimensions: got 2 and 1", lambda x: torch.cat([x, x[0]])),
    "cat sizes": (
        RuntimeError,
        "Sizes of tensors must match except in dimension 0",
        lambda x: torch.cat([x, x[:, 1:]]),
    ),
    "cat scalars": (RuntimeError, r"zero-dimensional tensor \(at position 0\)", lambda x: torch.cat([x[0, 0], x])),
    "stack": (RuntimeError, "stack expects each tensor to be equal size, but got", lambda x: torch.stack([x, x[0]])),
    "flip twice": (RuntimeError, "dim 0 appears multiple times", lambda x: x.flip(0, 0)),
    "roll": (RuntimeError, "shifts and dimensions must align", lambda x: x.roll((1, 2), 0)),
    "repeat": (RuntimeError, "Number of dimensions of repeat dims", lambda x: x.repeat(2)),
    "repeat negative": (RuntimeError, "negative dimension", lambda x: x.repeat(2, -1)),
    "tril": (RuntimeError, "at least 2 dimensions", lambda x: x[0].tril()),
    "trace": (RuntimeError, "expected a matrix", lambda x: x[0].trace()),
    "pad": (RuntimeError, "negative", lambda x: F.pad(x, (-2, -2))),
    "reflect": (RuntimeError, "Padding size should be less than", lambda x: F.pad(x, (3, 0), "reflect")),
    "diag_embed": (RuntimeError, "diagonal dimensions cannot be identical", lambda x: x.diag_embed(0, 1, 1)),
    "kthvalue": (RuntimeError, "selected number k out of range", lambda x: x.kthvalue(4)),
    "topk": (RuntimeError, "selected index k out of range", lambda x: x.topk(4)),
    "sort dim": (IndexError, "Dimension out of range", lambda x: x.sort(2)),
    "median": (IndexError, "Expected reduction dim 1 to have non-zero size", lambda x: x[:, :0].median(1)),
    "sort complex": (RuntimeError, "complex", lambda x: x.to(torch.complex64).sort()),
    "searchsorted": (RuntimeError, "boundaries tensor should be 1 dimension", lambda x: torch.searchsorted(x, x[0])),
}


@pytest.mark.parametrize("name", COMPLAINTS)
@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_complaints(name, device):
    error, match, function = COMPLAINTS[name]
    with pytest.raises(error, match=match):
        function(torch.zeros(2, 3, device=device))


def test_unsupported_is_asserted_later():
    with pytest.raises(RuntimeError, match="allocated size does not match required size"):
        torch.repeat_interleave(torch.tensor([1, 2], device="tpu"), output_size=4)
        torch.tpu.synchronize()


def test_layouts_of_cat():
    a, b = sample(2, 4, 3, 3).to(memory_format=torch.channels_last), sample(2, 4, 3, 3)
    check(lambda x, y: torch.cat([x, y], 1), a, b)
    check(lambda x, y: torch.cat([x, x], 1), a, b)
    assert_same(torch.cat([a.tpu(), a.tpu()]), torch.cat([a, a]))
