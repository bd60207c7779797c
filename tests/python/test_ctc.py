"""ctc_loss and its gradient."""

import pytest
import torch
import torch.nn.functional as F

from helpers import assert_same, check

pytestmark = pytest.mark.usefixtures("no_fallback")

A = torch.ops.aten
INF = float("inf")


def log_probs(steps, batch, labels, dtype=torch.float32):
    generator = torch.Generator().manual_seed(steps)
    return (2 * torch.randn(steps, batch, labels, generator=generator, dtype=dtype)).log_softmax(2)


def labels(*sizes, high=5):
    return torch.randint(1, high, sizes, generator=torch.Generator().manual_seed(3))


def loss_and_grad(probs, targets, inputs, lengths, grad, blank=0, zero_infinity=False):
    """The losses and the gradient; log_alpha where a path can be."""
    loss, alpha = A._ctc_loss(probs, targets, inputs, lengths, blank, zero_infinity)
    back = A._ctc_loss_backward(grad, probs, targets, inputs, lengths, loss, alpha, blank, zero_infinity)
    known = [alpha[b, :t, : 2 * n + 1].contiguous() for b, (t, n) in enumerate(zip(inputs, lengths, strict=True))]
    return loss, back, *known


GRAD = torch.tensor([1.0, -2.0, 0.5])


@pytest.mark.parametrize("zero_infinity, dtype", [(False, torch.float32), (True, torch.float64)], ids=str)
@pytest.mark.parametrize(
    "inputs, lengths",
    [
        ([9, 9, 9], [4, 4, 4]),
        ([9, 5, 7], [4, 2, 3]),
        ([9, 0, 1], [0, 2, 3]),
        ([4, 0, 7], [4, 0, 1]),
        ([4, 0, 7], [0, 0, 0]),
    ],
    ids=str,
)
def test_lengths(inputs, lengths, zero_infinity, dtype):
    probs, targets = log_probs(9, 3, 5, dtype), labels(3, 4)
    flat = torch.cat([row[:n] for row, n in zip(targets, lengths, strict=True)])

    def run(probs, targets, grad):
        return loss_and_grad(probs, targets, inputs, lengths, grad, zero_infinity=zero_infinity)

    check(run, probs, targets, GRAD.to(dtype))
    check(run, probs, flat.int(), GRAD.to(dtype))


def test_blank_and_strides():
    def run(probs, targets, grad):
        return loss_and_grad(probs, targets, [6, 9, 7], [4, 4, 4], grad, 4)

    for targets in (labels(3, 4, high=4), labels(4, 3, high=4).t(), labels(24, high=4)[::2]):
        check(run, log_probs(9, 3, 5), targets, GRAD)
    check(run, log_probs(3, 9, 5).transpose(0, 1), labels(3, 4, high=4), GRAD.new_ones(1).expand(3))


def test_impossible_labels():
    probs = log_probs(7, 3, 5)
    probs[:, :, 3] = -INF
    probs[2, 1] = -INF
    targets = torch.tensor([[1, 2, 3], [1, 2, 4], [2, 1, 1]])
    check(lambda p, t, g: loss_and_grad(p, t, [7, 6, 7], [3, 2, 3], g), probs, targets, GRAD)
    check(lambda p, t, g: loss_and_grad(p, t, [7, 6, 7], [2, 2, 3], g, 0, True), probs, targets, GRAD)


def test_unused_labels_may_be_anything():
    targets = torch.tensor([[1, -100, 99], [1, 2, -1], [2, 1, 1]])
    check(lambda p, t, g: loss_and_grad(p, t, [7, 6, 7], [1, 2, 3], g), log_probs(7, 3, 5), targets, GRAD)


def test_long():
    """Likelihoods far below what a float32 holds."""
    probs, targets = log_probs(150, 2, 20), labels(2, 40, high=20)
    check(
        lambda p, t, g: loss_and_grad(p, t, [150, 120], [40, 33], g)[:2], probs, targets, GRAD[:2], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_functional(reduction):
    def run(x, targets, kind, device):
        inputs, lengths = kind([9, 8, 7]), kind([4, 2, 0])
        if isinstance(inputs, torch.Tensor):
            inputs, lengths = inputs.to(device), lengths.to(device)
        x = x.clone().requires_grad_()
        loss = F.ctc_loss(x.log_softmax(2), targets, inputs, lengths, reduction=reduction)
        loss.sum().backward()
        return loss.detach(), x.grad

    x, targets = torch.randn(9, 3, 5), labels(3, 4)
    for kind in (tuple, torch.tensor):
        expected = run(x, targets, kind, "cpu")
        actual = run(x.to("tpu"), targets.to("tpu"), kind, "tpu")
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e)
    one = F.ctc_loss(x[:, 0].to("tpu"), targets[0].to("tpu"), torch.tensor(9), torch.tensor(4))
    torch.testing.assert_close(one.cpu(), F.ctc_loss(x[:, 0], targets[0], torch.tensor(9), torch.tensor(4)))


def test_lengths_as_tensors():
    inputs, lengths = torch.tensor([9, 5, 7]), torch.tensor([4, 2, 3], dtype=torch.int32)

    def run(probs, targets, inputs, lengths, grad):
        loss, alpha = A._ctc_loss.Tensor(probs, targets, inputs, lengths)
        return loss, A._ctc_loss_backward.Tensor(grad, probs, targets, inputs, lengths, loss, alpha, 0)

    check(run, log_probs(9, 3, 5), labels(3, 4), inputs, lengths, GRAD)


def test_other_lengths_compile_nothing():
    probs, targets, grad = log_probs(9, 3, 5).to("tpu"), labels(3, 4).to("tpu"), GRAD.to("tpu")
    for inputs, lengths in (([9, 5, 7], [4, 2, 3]), ([8, 9, 4], [1, 4, 2])):
        before = torch.tpu.compile_count()
        loss, alpha = A._ctc_loss(probs, targets, inputs, lengths)
        A._ctc_loss_backward(grad, probs, targets, inputs, lengths, loss, alpha, 0)
    assert torch.tpu.compile_count() == before


P, T = log_probs(5, 2, 4), labels(2, 3, high=4)
REFUSED = {
    "input too long": (P, T, [6, 4], [2, 1]),
    "target too long": (P, T, [5, 4], [4, 1]),
    "negative input": (P, T, [-1, 4], [2, 1]),
    "negative target": (P, T, [5, 4], [-1, 1]),
    "sum of targets": (P, T[0], [5, 4], [3, 1]),
    "number of inputs": (P, T, [5], [2, 1]),
    "number of targets": (P, T, [5, 4], [2]),
    "blank": (P, T, [5, 4], [2, 1], 4),
    "negative blank": (P, T, [5, 4], [2, 1], -1),
    "two dims": (P[0], T, [5, 4], [2, 1]),
    "three dims of targets": (P, T[None], [5, 4], [2, 1]),
    "rows of targets": (P, T[:1], [5, 4], [2, 1]),
    "half": (P.half(), T, [5, 4], [2, 1]),
    "integers": (P.long(), T, [5, 4], [2, 1]),
    "labels of floats": (P, T.float(), [5, 4], [2, 1]),
    "no batch": (P[:, :0], T[:0], [], []),
    "no steps": (P[:0], T, [0, 0], [0, 0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    arguments = REFUSED[name]
    with pytest.raises(Exception) as expected:
        A._ctc_loss(*arguments)
    with pytest.raises(expected.type) as actual:
        A._ctc_loss(*(a.to("tpu") if isinstance(a, torch.Tensor) else a for a in arguments))
    assert type(actual.value) is expected.type
