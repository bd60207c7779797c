"""segment_reduce and its gradient."""

import itertools

import pytest
import torch

from helpers import assert_same, check

pytestmark = pytest.mark.usefixtures("no_fallback")

NAN = float("nan")
REDUCTIONS = ["sum", "mean", "max", "min", "prod"]


def sample(*sizes, dtype=torch.float32):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


def gradient(data, reduce, grad, **options):
    data = data.clone().requires_grad_()
    result = torch.segment_reduce(data, reduce, **options)
    result.backward(grad)
    return result.detach(), data.grad


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("initial", [None, 1.5])
def test_lengths(reduce, initial):
    check(
        lambda x, lengths, g: gradient(x, reduce, g, lengths=lengths, initial=initial),
        sample(7, 2),
        torch.tensor([2, 0, 4, 1]),
        sample(4, 2),
    )


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_offsets(reduce):
    offsets = torch.tensor([1, 2, 2, 6], dtype=torch.int32)
    check(lambda x, o, g: gradient(x, reduce, g, offsets=o), sample(7, 2), offsets, sample(3, 2))


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_lengths_of_each_row(reduce):
    lengths = torch.tensor([[1, 9, 2], [0, 9, 3], [3, 9, 0], [2, 9, 1]])[:, ::2]
    for x in (sample(4, 3, 2), sample(4, 2, 3).transpose(1, 2)):
        check(lambda x, n: torch.segment_reduce(x, reduce, lengths=n, axis=1), x, lengths)
    check(lambda x, n: torch.segment_reduce(x, reduce, lengths=n, axis=-1, unsafe=True), sample(4, 5), lengths)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(dtype):
    lengths = torch.tensor([2, 0, 1])
    for reduce in REDUCTIONS:
        check(
            lambda x, n, g, how=reduce: gradient(x, how, g, lengths=n),
            sample(3, dtype=dtype),
            lengths,
            sample(3, dtype=dtype),
        )


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_special_values(reduce):
    """Zeros and NaNs in products, equal extremes, gradients of both signs."""
    parts = [[1, 2, 0, 3], [0, 2, 0], [NAN, 2, 2], [NAN, NAN, 1], [2, 2, 1, 1], [0, NAN], [-1, -1]]
    data = torch.tensor(list(itertools.chain(*parts)))
    lengths = torch.tensor([len(part) for part in parts])
    grad = torch.tensor([1.5, -2, 3, -1, 2, 1, -3])
    expected = gradient(data, reduce, grad, lengths=lengths)
    actual = gradient(data.to("tpu"), reduce, grad.to("tpu"), lengths=lengths.to("tpu"))
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e)


def test_little():
    none = torch.zeros(3, dtype=torch.int64)
    for reduce in REDUCTIONS:
        check(lambda x, n, how=reduce: torch.segment_reduce(x, how, lengths=n), torch.zeros(0), none)
    check(lambda x, n: torch.segment_reduce(x, "sum", lengths=n), torch.zeros(3, 0), torch.tensor([1, 2]))
    check(lambda x, n: torch.segment_reduce(x, "sum", offsets=n), torch.zeros(0), none[:1])


REFUSED = {
    "reduction": lambda x, n: torch.segment_reduce(x, "median", lengths=n),
    "neither": lambda x, n: torch.segment_reduce(x, "sum"),
    "indices": lambda x, n: torch.segment_reduce(x, "sum", lengths=n, indices=n),
    "sum of lengths": lambda x, n: torch.segment_reduce(x, "sum", lengths=n + 1).cpu(),
    "negative length": lambda x, n: torch.segment_reduce(x, "sum", lengths=n - 2).cpu(),
    "negative, unsafe": lambda x, n: torch.segment_reduce(x, "sum", lengths=n - 2, unsafe=True).cpu(),
    "offsets": lambda x, n: torch.segment_reduce(x, "sum", offsets=n.flip(0)).cpu(),
    "axis": lambda x, n: torch.segment_reduce(x.view(1, 3), "sum", lengths=n, axis=1),
    "dims": lambda x, n: torch.segment_reduce(x, "sum", lengths=n.view(2, 1)),
    "length dtype": lambda x, n: torch.segment_reduce(x, "sum", lengths=n.short()),
    "integers": lambda x, n: torch.segment_reduce(x.long(), "sum", lengths=n),
    "complex": lambda x, n: torch.segment_reduce(x.to(torch.complex64), "sum", lengths=n),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    x, lengths = sample(3), torch.tensor([1, 2])
    with pytest.raises(Exception) as expected:
        REFUSED[name](x, lengths)
    with pytest.raises(expected.type) as actual:
        REFUSED[name](x.to("tpu"), lengths.to("tpu"))
    assert type(actual.value) is expected.type
