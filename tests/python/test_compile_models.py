"""Whole models under torch.compile and compile_step: equal to eager on tpu and on the CPU, without a graph break."""

import copy
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from helpers import ROOT

sys.path += [str(ROOT / "bench"), str(ROOT / "examples")]

import train_gpt

import models

VOCABULARY = 32


def tokens():
    x = torch.randint(VOCABULARY, (2, 8))
    return (x,), (x * 5 + 3) % VOCABULARY


def images():
    return (torch.randn(2, 3, 16, 16),), torch.randint(10, (2,))


def noise():
    return (torch.randn(2, 3, 8, 8), torch.rand(2)), torch.randn(2, 3, 8, 8)


def bags():
    ragged = torch.randint(20, (7,)), torch.tensor([0, 2, 2, 5])
    return (torch.randn(4, 6), [torch.randint(50, (4, 3)), torch.randint(30, (4, 2)), ragged]), torch.rand(4)


LLAMA = {"vocabulary": VOCABULARY, "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "length": 8}
CASES = {
    "gpt": (lambda: train_gpt.GPT(VOCABULARY, 8, 2, 16, 2), tokens),
    "resnet": (lambda: models.ResNet(4), images),
    "llama": (lambda: models.Llama(**LLAMA), tokens),
    "qwen3": (lambda: models.qwen3(**LLAMA), tokens),
    "unet": (lambda: models.UNet(), noise),
    "dlrm": (lambda: models.DLRM(), bags),
    "lstm": (lambda: models.LSTM(VOCABULARY, 16), tokens),
    "mixture": (lambda: models.Mixture(VOCABULARY, 1, 16, 2, 32), tokens),
}
# Of the largest number. ResNet normalises over two images, which magnifies what rounds.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 4e-2}


@pytest.fixture(autouse=True)
def strict_and_fresh(no_fallback):
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # nothing may run outside of a program
        yield


def move(tree, to):
    return pytree.tree_map_only(torch.Tensor, lambda x: x.to(to) if x.is_floating_point() else x, tree)


def on_tpu(tree):
    return pytree.tree_map_only(torch.Tensor, lambda x: x.to("tpu"), tree)


def make(name, dtype):
    build, batch = CASES[name]
    model = build().to(dtype)
    inputs, target = batch()
    return model, move(inputs, dtype), target


def loss_of(model, inputs, target):
    out = model(*inputs).float()
    return (
        F.mse_loss(out, target) if target.is_floating_point() else F.cross_entropy(out.flatten(0, -2), target.flatten())
    )


def optimizer_of(model):
    # So large an epsilon that the update is smooth in the gradient: else it is the sign of what rounds.
    return torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-2)


def train(model, run, batch, steps=2):
    """Losses and parameters."""
    optimizer = optimizer_of(model)
    losses = []
    for _ in range(steps):
        loss = run(model, *batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *model.parameters()]


def train_whole(model, batch, steps=2):
    """As train(), a step as one program."""
    step = torch.tpu.compile_step(model, optimizer_of(model), loss_of)
    losses = torch.stack([step(*batch).detach() for _ in range(steps)])
    return [losses, *model.parameters()]


def assert_near(actual, expected, dtype):
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype and a.shape == e.shape
        a, e = a.detach().cpu().float(), e.detach().cpu().float()
        torch.testing.assert_close(a, e, rtol=0, atol=TOLERANCE[dtype] * max(1.0, e.abs().max().item()))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_inference(name, dtype):
    model, inputs, _ = make(name, dtype)
    model.eval()
    device, batch = copy.deepcopy(model).to("tpu"), on_tpu(inputs)
    with torch.no_grad():
        actual = torch.compile(device, backend="tpu", fullgraph=True)(*batch)
        assert_near([actual], [device(*batch)], dtype)
        assert_near([actual], [model(*inputs)], dtype)


@pytest.mark.parametrize("name", CASES)
def test_training(name):
    """Through torch.compile, and as one program with the optimizer."""
    model, *batch = make(name, torch.float32)
    device, whole = (copy.deepcopy(model).to("tpu") for _ in range(2))
    moved = on_tpu(batch)
    expected = train(model, loss_of, batch)
    assert_near(train(device, torch.compile(loss_of, backend="tpu", fullgraph=True), moved), expected, torch.float32)
    assert_near(train_whole(whole, moved), expected, torch.float32)


@pytest.mark.parametrize("name", CASES)
def test_training_in_bfloat16(name):
    model, *batch = make(name, torch.bfloat16)
    eager, whole = (copy.deepcopy(model).to("tpu") for _ in range(2))
    moved = on_tpu(batch)
    expected = train(eager, loss_of, moved)
    assert_near(train_whole(whole, moved), expected, torch.bfloat16)
