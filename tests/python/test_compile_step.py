"""torch.tpu.compile_step: a training step as one program does what the eager step does."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self, checkpointed=False):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 4)
        self.checkpointed = checkpointed
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def body(self, x):
        return self.drop(F.gelu(self.norm(self.first(x))))

    def forward(self, x):
        self.calls.add_(1)
        return self.head(checkpoint(self.body, x, use_reentrant=False) if self.checkpointed else self.body(x))


def loss_of(model, x, y):
    return F.cross_entropy(model(x), y)


def batches(count, size=6):
    return [(torch.randn(size, 8, device="tpu"), torch.randint(4, (size,)).to("tpu")) for _ in range(count)]


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "AdamW single": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False, amsgrad=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-1),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=1e-1, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-2),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}


def eager(model, optimizer, data, clip=None, scheduler=None):
    losses = []
    for batch in data:
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    return losses


def state_of(model):
    return [x.detach().cpu() for x in (*model.parameters(), *model.buffers())]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_is_the_eager_step(name):
    model = Model().to("tpu")
    twin = copy.deepcopy(model)
    data = batches(5)
    optimizer, other = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](twin.parameters())
    decay, decay_other = (torch.optim.lr_scheduler.ExponentialLR(o, 0.7) for o in (optimizer, other))
    torch.tpu.manual_seed(1)
    expected = eager(twin, other, data, clip=1.0, scheduler=decay_other)
    torch.tpu.manual_seed(1)
    step, losses, counts = torch.tpu.compile_step(model, optimizer, loss_of, clip_norm=1.0), [], []
    addresses = [p.data_ptr() for p in model.parameters()]
    for batch in data:
        torch.tpu.synchronize()
        before = torch.tpu.counters()["executions"], torch.tpu.compile_count()
        loss = step(*batch)
        torch.tpu.synchronize()
        counts.append((torch.tpu.counters()["executions"] - before[0], torch.tpu.compile_count() - before[1]))
        assert not loss.requires_grad
        losses.append(loss.item())
        decay.step()
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state_of(model), state_of(twin), rtol=1e-4, atol=1e-5)
    assert counts[0][0] == 1 and counts[2:] == [(1, 0)] * 3  # SGD has no momentum yet in its first step
    assert [p.data_ptr() for p in model.parameters()] == addresses
    assert all(p.grad is None for p in model.parameters())


def test_goes_on_from_eager_and_back():
    model = Model().to("tpu")
    twin = copy.deepcopy(model)
    data = batches(6)
    optimizer, other = OPTIMIZERS["AdamW"](model.parameters()), OPTIMIZERS["AdamW"](twin.parameters())
    torch.tpu.manual_seed(1)
    eager(twin, other, data)
    torch.tpu.manual_seed(1)
    eager(model, optimizer, data[:2])
    step = torch.tpu.compile_step(model, optimizer, loss_of)
    for batch in data[2:4]:
        step(*batch)
    saved = copy.deepcopy(optimizer.state_dict())
    for group in saved["param_groups"]:
        group["capturable"] = False
    for state in saved["state"].values():
        state["step"] = state["step"].cpu()
    optimizer.load_state_dict(saved)  # the state has new tensors now, as an eager optimizer would have saved them
    step(*data[4])
    eager(model, optimizer, data[5:])
    torch.testing.assert_close(state_of(model), state_of(twin), rtol=1e-4, atol=1e-5)


def test_accumulates():
    model = Model().to("tpu").eval()
    twin = copy.deepcopy(model)
    data = batches(3, size=8)
    optimizer, other = OPTIMIZERS["SGD"](model.parameters()), OPTIMIZERS["SGD"](twin.parameters())
    step = torch.tpu.compile_step(model, optimizer, loss_of, accumulate=4)
    expected = eager(twin, other, data)
    losses = [step(*batch).item() for batch in data]
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    twin.calls.fill_(12)
    torch.testing.assert_close(state_of(model), state_of(twin), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="can't be divided"):
        step(*batches(1, size=7)[0])


def test_checkpoint_drops_the_same():
    model = Model().to("tpu")
    other = copy.deepcopy(model)
    other.checkpointed = True
    data = batches(3)
    losses = []
    for m in (model, other):
        torch.tpu.manual_seed(1)
        step = torch.tpu.compile_step(m, OPTIMIZERS["SGD"](m.parameters()), loss_of)
        losses.append([step(*batch).item() for batch in data])
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-5)


def test_new_keys():
    model = Model().to("tpu")
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    step = torch.tpu.compile_step(model, optimizer, lambda m, x, y: (loss_of(m, x, y), {"logits": m(x), "n": len(x)}))
    counts = []

    def run(*batch):
        torch.tpu.wait_for_compiles()
        before = torch.tpu.compile_count()
        loss, more = step(*batch)
        counts.append(torch.tpu.compile_count() - before)
        assert more["n"] == len(batch[0]) and more["logits"].shape == (more["n"], 4) and loss.dim() == 0

    run(*batches(1)[0])
    run(*batches(1)[0])
    run(*batches(1, size=3)[0])
    model.eval()
    run(*batches(1)[0])
    optimizer.param_groups[0]["weight_decay"] = 0.5
    run(*batches(1)[0])
    model.train()
    optimizer.param_groups[0]["weight_decay"] = 1e-2
    run(*batches(1)[0])
    assert counts == [1, 0, 1, 1, 1, 0]


def test_memory_is_reused():
    model = nn.Linear(256, 256).to("tpu")
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    step = torch.tpu.compile_step(model, optimizer, lambda m, x: m(x).square().mean())
    x = torch.randn(4, 256, device="tpu")
    for _ in range(2):
        step(x)
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_reserved()
    for _ in range(3):
        step(x)
    torch.tpu.synchronize()
    assert torch.tpu.memory_reserved() == before
    assert torch.tpu.max_memory_reserved() - before < 256 * 256 * 4


def test_refuses():
    model = Model()
    with pytest.raises(ValueError, match="move the model to tpu"):
        torch.tpu.compile_step(model, OPTIMIZERS["SGD"](model.parameters()), loss_of)
    model = model.to("tpu")
    before = state_of(model)
    optimizer = OPTIMIZERS["SGD momentum"](model.parameters())
    data = batches(1)[0]
    step = torch.tpu.compile_step(model, optimizer, lambda m, x, y: loss_of(m, x, y) * loss_of(m, x, y).item())
    with pytest.raises(RuntimeError, match="captured"):
        step(*data)
    outside = torch.zeros(4, device="tpu")
    step = torch.tpu.compile_step(model, optimizer, lambda m, x, y: (loss_of(m, x, y), outside.add_(1)))
    with pytest.raises(RuntimeError, match="not among its inputs"):
        step(*data)
    # Nothing of the failed recordings is left.
    torch.testing.assert_close(state_of(model), before, rtol=0, atol=0)
    assert all(not state for state in optimizer.state.values())
    eager(model, optimizer, [data])


def test_module_keeps_a_tensor():
    class Caching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)
            self.table = None

        def forward(self, x):
            if self.table is None or self.table.shape != x.shape:
                self.table = torch.ones_like(x) * 2
            return self.layer(x * self.table)

    model = Caching().to("tpu")
    step = torch.tpu.compile_step(model, OPTIMIZERS["SGD"](model.parameters()), loss_of)
    for _ in range(2):
        for batch in batches(2) + batches(1, size=3):
            step(*batch)
            assert (model.table == 2).all() and model.table.shape == batch[0].shape


def test_autocast_and_compiled_model():
    model = Model().to("tpu")
    twin = copy.deepcopy(model)
    data = batches(3)
    optimizer, other = OPTIMIZERS["SGD"](model.parameters()), OPTIMIZERS["SGD"](twin.parameters())
    step = torch.tpu.compile_step(torch.compile(model, backend="tpu"), optimizer, loss_of)
    torch.tpu.manual_seed(1)
    expected = []
    for batch in data:
        with torch.autocast("tpu", dtype=torch.bfloat16):  # which keeps the weights that it has cast
            expected += eager(twin, other, [batch])
    torch.tpu.manual_seed(1)
    with torch.autocast("tpu", dtype=torch.bfloat16):
        losses = [step(*batch).item() for batch in data]
        loss_of(model, *data[0]).backward()  # eager again, in the same context
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-3)
    model.calls.sub_(1)
    torch.testing.assert_close(state_of(model), state_of(twin), rtol=2e-2, atol=2e-3)


def test_nothing_is_left():
    import gc

    gc.collect()
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated(), torch.tpu.memory_reserved()
    model = nn.Linear(64, 64).to("tpu")
    step = torch.tpu.compile_step(model, OPTIMIZERS["AdamW"](model.parameters()), lambda m, x: m(x).sum())
    x = torch.randn(2, 64, device="tpu")
    step(x)
    run = torch.compile(model, backend="tpu")
    run(x).sum().backward()
    del model, step, run, x
    torch._dynamo.reset()
    gc.collect()
    torch.tpu.synchronize()
    torch.tpu.empty_cache()
    assert (torch.tpu.memory_allocated(), torch.tpu.memory_reserved()) <= before


def test_says_what_changes_each_time():
    model = nn.Linear(2, 2).to("tpu")
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    step = torch.tpu.compile_step(model, optimizer, lambda m, x: m(x).sum())
    x = torch.randn(2, 2, device="tpu")
    with pytest.warns(UserWarning, match="8 programs.*'betas' of the optimizer"):
        for i in range(8):
            optimizer.param_groups[0]["betas"] = 0.9 - i / 100, 0.999
            step(x)
