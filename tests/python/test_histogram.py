"""histogram, histogramdd."""

import pytest
import torch

from helpers import check

pytestmark = pytest.mark.usefixtures("no_fallback")

A = torch.ops.aten
NAN, INF = float("nan"), float("inf")


def sample(*sizes, dtype=torch.float32):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


HISTOGRAMS = {
    "counts": lambda x: torch.histogram(x, 7),
    "range": lambda x: torch.histogram(x, 4, range=(-1.0, 0.5)),
    "empty range": lambda x: torch.histogram(x, 4, range=(1.0, 1.0)),
    "weights": lambda x: torch.histogram(x, 3, weight=x * x),
    "density": lambda x: torch.histogram(x, 5, density=True),
    "edges": lambda x: torch.histogram(x, torch.tensor([-1, -0.5, -0.5, 0, 2], device=x.device).to(x.dtype)),
    "edges density": lambda x: torch.histogram(
        x, torch.tensor([-1, -0.5, 0, 2], device=x.device).to(x.dtype), weight=x.abs(), density=True
    ),
    "many edges": lambda x: torch.histogram(x, x.abs().sort().values.flatten().unique()),
}


@pytest.mark.parametrize("name", HISTOGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histogram(name, dtype):
    check(HISTOGRAMS[name], sample(9, 10, dtype=dtype).t()[:, ::2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_histogram_of_halves(dtype):
    for name in ("range", "edges"):
        check(HISTOGRAMS[name], sample(50, dtype=dtype))


def test_histogram_of_little():
    for name in ("counts", "range", "density", "edges"):
        check(HISTOGRAMS[name], sample(0))
        check(HISTOGRAMS[name], sample(1)[0])
    special = torch.tensor([NAN, INF, 0.0, -INF, 0.5, -1.0])
    check(HISTOGRAMS["range"], special)
    check(HISTOGRAMS["edges"], special)


def test_edges_belong_to_the_right():
    check(lambda x: torch.histogram(x, 10), torch.arange(0, 101) / 10)
    check(lambda x: torch.histogram(x, 30, range=(0.0, 3.0)), torch.arange(0, 31) / 10)


def test_histogram_out():
    def out(x):
        hist, edges = x.new_empty(0), x.new_empty(0)
        return torch.histogram(x, 3, out=(hist, edges))

    check(out, sample(20))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_histc(dtype):
    x = 4 * sample(200, dtype=dtype)
    check(lambda x: torch.histc(x, 100), x)
    check(lambda x: torch.histc(x, 33, -3.3, 3.1), x)


DD = {
    "counts": lambda x: A._histogramdd_from_bin_cts(x, [3, 2]),
    "edges of counts": lambda x: A._histogramdd_bin_edges(x, [3, 2]),
    "range": lambda x: A._histogramdd_from_bin_cts(x, [3, 2], range=[-1.0, 1.0, 0.0, 2.0]),
    "weights": lambda x: A._histogramdd_from_bin_cts(x, [3, 2], weight=x[..., 0] ** 2, density=True),
    "edges": lambda x: A._histogramdd_from_bin_tensors(
        x, [torch.tensor(e, device=x.device, dtype=x.dtype) for e in ([-1, 0, 1], [-2, 0.5, 0.7, 3])], density=True
    ),
    "both": lambda x: (torch.histogramdd(x, 3).hist, *torch.histogramdd(x, 3).bin_edges),
}


@pytest.mark.parametrize("name", DD)
def test_histogramdd(name):
    check(DD[name], sample(20, 2))
    check(DD[name], sample(4, 5, 2, dtype=torch.float64))


def test_histogramdd_of_little():
    check(lambda x: A._histogramdd_from_bin_cts(x, []), sample(3, 0))
    check(lambda x: A._histogramdd_from_bin_cts(x, [2, 1]), sample(0, 2))


REFUSED = {
    "integers": lambda x: torch.histogram(x.long(), 3),
    "integers and range": lambda x: torch.histogram(x.long(), 3, range=(0.0, 1.0)),
    "halves without range": lambda x: torch.histogram(x.half(), 3),
    "complex": lambda x: torch.histogram(x.to(torch.complex64), 3),
    "no bins": lambda x: torch.histogram(x, 0),
    "enormous bins": lambda x: torch.histogram(x, 2**63 - 1),
    "negative bins": lambda x: torch.histogram(x, -1),
    "short range": lambda x: torch.histogram(x, 2, range=(1.0,)),
    "reversed range": lambda x: torch.histogram(x, 2, range=(1.0, 0.0)),
    "infinite range": lambda x: torch.histogram(x, 2, range=(1.0, INF)),
    "infinite data": lambda x: torch.histogram(x / 0, 2)[0].cpu(),
    "weight dtype": lambda x: torch.histogram(x, 2, weight=x.double()),
    "weight shape": lambda x: torch.histogram(x, 2, weight=x[:1]),
    "edges of rows": lambda x: torch.histogram(x, x),
    "one edge": lambda x: torch.histogram(x, x[0, :1]),
    "edges dtype": lambda x: torch.histogram(x, x[0].double()),
    "out dtype": lambda x: torch.histogram(x, 2, out=(x.new_empty(0).double(), x.new_empty(0))),
    "dd of one dim": lambda x: torch.histogramdd(x[0], [2]),
    "dd bins": lambda x: torch.histogramdd(x, [2]),
    "dd range": lambda x: torch.histogramdd(x, [2, 2], range=[0.0, 1.0]),
    "dd weight": lambda x: torch.histogramdd(x, [2, 2], weight=x[0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    x = sample(3, 2)
    with pytest.raises(Exception) as expected:
        REFUSED[name](x)
    with pytest.raises(expected.type) as actual:
        REFUSED[name](x.to("tpu"))
    assert type(actual.value) is expected.type
