"""Training: the examples' models track CPU PyTorch, give their memory back, and don't leak."""

import copy
import gc
import os
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import ROOT

sys.path.insert(0, str(ROOT / "examples"))


def live_bytes():
    gc.collect()
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated()


def train(model, make_optimizer, batches, loss_of, device):
    model = copy.deepcopy(model).to(device)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for batch in batches:
        loss = loss_of(model, *(t.to(device) for t in batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    return losses, state


def tracks(model, make_optimizer, batches, loss_of, tolerance=1e-4):
    expected, expected_state = train(model, make_optimizer, batches, loss_of, "cpu")
    start = live_bytes()
    losses, state = train(model, make_optimizer, batches, loss_of, "tpu")
    assert live_bytes() == start
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
    assert worst < tolerance, (worst, losses, expected)
    assert losses[-1] < losses[0]
    return state, expected_state


def test_gpt():
    import train_gpt

    torch.manual_seed(0)
    text = train_gpt.Text(0)
    model = train_gpt.GPT(len(text.characters), length=16, layers=2, width=32, heads=4)
    batches = [text.batch(4, 16) for _ in range(20)]

    def adamw(parameters):
        return torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95))

    tracks(model, adamw, batches, lambda m, x, y: m(x, y))


def test_gpt_generates():
    import train_gpt

    torch.manual_seed(0)
    model = train_gpt.GPT(50, length=8, layers=1, width=16, heads=2).tpu()
    prompt = torch.randint(50, (1, 8), device="tpu")
    train_gpt.generate(model, prompt, 10)
    compiles = torch.tpu.compile_count()
    tokens = train_gpt.generate(model, prompt, 10)
    assert len(tokens) == 10 and all(0 <= token < 50 for token in tokens)
    assert torch.tpu.compile_count() == compiles


def test_resnet():
    pytest.importorskip("sklearn")
    import resnet_digits

    torch.manual_seed(0)
    training, _ = resnet_digits.datasets()
    batches = [training[i * 32 : (i + 1) * 32] for i in range(20)]
    model = resnet_digits.ResNet(width=8)

    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4)

    state, expected = tracks(model, sgd, batches, lambda m, x, y: F.cross_entropy(m(x), y))
    for name in state:
        if "running" in name or "num_batches" in name:
            torch.testing.assert_close(state[name], expected[name], rtol=1e-3, atol=1e-4)


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "SGD nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.01),
    "AdamW single": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.005, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.005),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(64, 6)
    batches = [(x, x.sum(1, keepdim=True).sin())] * 8
    tracks(model, OPTIMIZERS[name], batches, lambda m, x, y: F.mse_loss(m(x), y))


LAYERS = {
    "lstm": lambda: nn.LSTM(5, 7, batch_first=True),
    "gru": lambda: nn.GRU(5, 7, batch_first=True, bidirectional=True),
    "transformer": lambda: nn.TransformerEncoderLayer(5, 1, 8, dropout=0.0, batch_first=True),
    "conv1d": lambda: nn.Sequential(nn.Conv1d(6, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU()),
    "mlp": lambda: nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Dropout(0.0), nn.Linear(9, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    torch.manual_seed(2)
    model = LAYERS[name]()
    x = torch.randn(4, 6, 5)

    def loss_of(m, x):
        y = m(x)
        return (y[0] if isinstance(y, tuple) else y).pow(2).mean()

    tracks(model, lambda p: torch.optim.SGD(p, lr=0.05), [(x,)] * 5, loss_of)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_memory_is_flat_over_2000_steps():
    torch.manual_seed(0)
    start = live_bytes()
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).tpu()
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(64, 32), torch.randint(8, (64,))
    resident, live, compiles = [], [], []
    for step in range(2000):
        loss = F.cross_entropy(model(x.tpu()), y.tpu())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            loss.item()
            gc.collect()
            resident.append(resident_bytes())
            live.append(torch.tpu.memory_allocated())
            compiles.append(torch.tpu.compile_count())
    assert live[-1] == live[0] and compiles[-1] == compiles[0]
    growth = max(resident[1:]) - resident[0]
    assert growth < 8 << 20, [f"{r / 2**20:.1f}" for r in resident]
    del model, optimizer, loss
    assert live_bytes() == start


def run_example(run_python, name, *arguments):
    code = f"""
        import runpy, sys
        sys.argv[0] = {name!r}
        sys.path.insert(0, {str(ROOT)!r})
        runpy.run_path({str(ROOT / name)!r}, run_name="__main__")
    """
    return run_python(code, *arguments)


def test_gpt_example(run_python):
    done = run_example(
        run_python,
        "examples/train_gpt.py",
        *("--steps", 12, "--compare-steps", 5, "--batch", 2, "--length", 8, "--layers", 1, "--width", 16),
        *("--heads", 2, "--sample", 10),
    )
    assert "0 in the 11 after it" in done.stdout and "first 5 losses" in done.stdout


def test_gpt_example_on_the_cpu(run_python):
    done = run_example(
        run_python,
        "examples/train_gpt.py",
        *("--device", "cpu", "--steps", 3, "--batch", 2, "--length", 8, "--layers", 1, "--width", 16, "--heads", 2),
        *("--sample", 5),
    )
    assert "cpu" in done.stdout and "compiles" not in done.stdout
