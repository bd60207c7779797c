"""Fused eager: the same results as strict, in fewer programs, and nothing compiled after a loop's first turns."""

import copy
import random
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn


@pytest.fixture(autouse=True)
def _fused():
    torch.tpu.synchronize()
    with torch.tpu.set_eager_mode("fused"):
        yield
        torch.tpu.synchronize()


def executions():
    """Programs launched so far, what is queued included: waits for that, without a synchronisation."""
    while not torch.tpu.current_stream().query():
        time.sleep(0.001)
    return torch.tpu.counters()["executions"]


def turns(function, count=6):
    """What each turn returns, how many programs it launched, and how many modules it had compiled."""
    results, launched, compiled = [], [], []
    for turn in range(count):
        before, modules = executions(), torch.tpu.compile_count()
        results.append(function(turn))
        launched.append(executions() - before)
        torch.tpu.wait_for_compiles()
        compiled.append(torch.tpu.compile_count() - modules)
    return results, launched, compiled


def test_a_chain_is_one_program():
    def chain(x):
        for _ in range(500):
            x = x * 1.001 + 0.25
        return x

    x = torch.randn(7, 5)
    expected = chain(x)
    on_tpu = x.tpu()
    results, launched, compiled = turns(lambda turn: chain(on_tpu).cpu(), 4)
    for result in results:
        torch.testing.assert_close(result, expected)
    assert launched[0] == 1000
    assert launched[-1] == 1
    assert compiled[-2:] == [0, 0]


@pytest.mark.parametrize("length", [41, 300, 907, 1531])
def test_loops_settle_without_a_synchronisation(length):
    operators = [
        lambda x: x * 1.01,
        lambda x: x - x.mean(),
        lambda x: x.tanh(),
        lambda x: x.t().contiguous(),
        lambda x: torch.maximum(x, x.t()),
        lambda x: x @ x * 0.1,
        lambda x: x.clamp(-1, 1),
    ]
    chosen = random.Random(length).choices(operators, k=length)
    state = torch.randn(4, 4).tpu()

    def turn(_):
        nonlocal state
        for operator in chosen:
            state = operator(state)

    _, launched, compiled = turns(turn, 9)
    if length >= 300:
        assert not any(compiled[3:]), compiled
    assert not any(compiled[-2:]), compiled
    assert launched[-1] <= max(length / 40, 4), launched


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(13, 16)
        self.norm, self.lstm = nn.LayerNorm(16), nn.LSTM(16, 16, batch_first=True)
        self.drop, self.head = nn.Dropout(0.25), nn.Linear(16, 13)
        self.batch_norm = nn.BatchNorm1d(16)

    def forward(self, tokens):
        x, _ = self.lstm(self.norm(self.embed(tokens)))
        x = self.batch_norm(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.drop(F.gelu(x)))


def train(mode, steps, read_every=1):
    """Losses and parameters of a few steps with dropout: the random numbers are the same in every mode."""
    with torch.tpu.set_eager_mode(mode):
        torch.manual_seed(3)
        model = Net()
        data = torch.randint(13, (steps, 4, 9))
        model.tpu()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        losses = []

        def step(turn):
            batch = data[turn].tpu()
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
            if turn % read_every == 0:
                loss.item()

        _, launched, compiled = turns(step, steps)
        return (
            [loss.item() for loss in losses],
            [p.detach().cpu() for p in model.state_dict().values()],
            launched,
            compiled,
        )


def test_training_is_strict_training():
    losses, parameters, strict, _ = train("strict", 8)
    fused_losses, fused_parameters, launched, compiled = train("fused", 8)
    torch.testing.assert_close(fused_losses, losses, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(fused_parameters, parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert launched[-1] <= 4 < strict[-1] // 4
    assert not any(compiled[-3:]), compiled


def test_modes_may_change_in_the_middle():
    x = torch.arange(6.0).tpu()
    for turn in range(12):
        torch.tpu.set_eager_mode(("fused", "strict", "debug")[turn % 3])
        y = x * 2
        torch.tpu.set_eager_mode(("strict", "fused", "fused", "debug")[turn % 4])
        y += x
        y[1:3].mul_(10)
        torch.testing.assert_close(y.cpu(), torch.tensor([0.0, 30, 60, 9, 12, 15]))
        torch.tpu.set_eager_mode("fused")


def test_writes_and_views_inside_a_program():
    base = torch.arange(24.0).view(4, 6)

    def program(x):
        y = x * 1
        view = y[1:3, ::2]
        view += 100
        y.t()[0] = -1
        old = y.clone()
        y.zero_()
        alias = y.view(-1)
        alias[5:9].fill_(3)
        return old, y, view, alias.as_strided((3, 3), (1, 2), 4).sum()

    expected = program(base)
    x = base.tpu()
    results, launched, _ = turns(lambda turn: [t.cpu() for t in program(x)], 5)
    for result in results:
        for ours, theirs in zip(result, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert launched[-1] < launched[0]


# Writes whose values are read from other places of what they overwrite: XLA:CPU, given them in one program, would read
# what is overwritten already.
SHIFTS = {
    "clones": lambda x: (x[1:].copy_(x[:-1].clone()), x[2:].copy_(x[:-2].clone())),
    "expressions": lambda x: (x[1:].copy_(x[:-1] * 2), x[:3].copy_(x[1:4] + 1), x[2:].copy_(x[:-2] - 1)),
    "flips": lambda x: (x[1:].copy_(x.flip(0)[1:]), x[:3].copy_(x.flip(0)[:3])),
    "a walk": lambda x: [x[i : i + 2].copy_(x[i - 1 : i + 1] + 1) for i in range(1, 4)],
    "fills between": lambda x: (x[1:3].fill_(5), x[2:].copy_(x[:-2].clone()), x[0:1].zero_(), x[1:] + x[:-1]),
    "strides": lambda x: (x[1:6:2].copy_(x[:3].clone()), x[0:1].fill_(3)),
    "sums": lambda x: (x[1:].copy_(x.cumsum(0)[:-1]), x[:2].copy_(x.sum(0, keepdim=True).expand_as(x[:2]))),
    "scatters": lambda x: (x.index_copy_(0, torch.arange(1, 4, device=x.device), x[:3].clone()), x[1:].add_(x[:1])),
    "views of one place": lambda x: (x[1:4].mul_(2), x[2:5].add_(1), x[0:2].mul_(3)),
    "through other tensors": lambda x: (
        torch.stack([x, x])[0, 1:].mul_(2),
        x[1:].copy_((x[:-1] + x[1:]) / 2),
        x[0].zero_(),
    ),
}


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("shape", [(7,), (6, 5)], ids=str)
def test_writes_that_read_what_they_overwrite(name, shape):
    def shift(device):
        x = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).cos().to(device)
        SHIFTS[name](x)
        return x.cpu()

    expected = shift("cpu")
    results, launched, _ = turns(lambda turn: shift("tpu"), 3)
    for result in results:
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    assert launched[-1] <= 2  # as one program


def test_random_numbers_are_those_of_strict():
    def draw(mode):
        with torch.tpu.set_eager_mode(mode):
            torch.manual_seed(11)
            drawn = []
            for _ in range(5):
                x = torch.rand(3, device="tpu") + torch.randn(3, device="tpu")
                drawn.append(F.dropout(x, 0.5).cpu())
                torch.tpu.wait_for_compiles()
            return torch.stack(drawn)

    assert torch.equal(draw("fused"), draw("strict"))


def test_live_results_may_differ_from_turn_to_turn():
    x = torch.randn(5)
    on_tpu = x.tpu()
    kept = []

    def turn(i):
        a = on_tpu * 2
        b = a + 1
        c = b.sin()
        if i % 3 == 1:
            kept.append((a, x * 2))
        if i % 3 == 2:
            kept.append((b, x * 2 + 1))
        return c.cpu()

    results, _, _ = turns(turn, 12)
    for result in results:
        torch.testing.assert_close(result, (x * 2 + 1).sin())
    for ours, theirs in kept:
        torch.testing.assert_close(ours.cpu(), theirs)


def test_an_index_out_of_range_is_reported_at_the_synchronisation():
    table = torch.randn(4, 2).tpu()
    good, bad = torch.tensor([0, 3]).tpu(), torch.tensor([0, 4]).tpu()

    def turn(i):
        return (F.embedding(bad if i == 5 else good, table) * 2).cpu()

    turns(turn, 5)
    with pytest.raises(IndexError, match="embedding"):
        turn(5)
    turn(6)


def test_memory_is_given_back():
    x = torch.zeros(1 << 18).tpu()

    def turn(_):
        nonlocal x
        for _ in range(20):
            x.add_(1)
            x = x.mul(1)
        x.sum().item()

    turns(turn, 5)
    torch.tpu.synchronize()
    before = torch.tpu.memory_stats()
    turns(turn, 5)
    after = torch.tpu.memory_stats()
    assert after["reserved_bytes.all.current"] <= before["reserved_bytes.all.current"] + (1 << 20)
    assert x[0].item() == 200


def test_threads_record_on_one_tape():
    expected = torch.arange(8.0)
    for _ in range(30):
        expected = (expected * 1.5 + 1).remainder(7)
    failures = []

    def work(seed):
        x = torch.arange(8.0).tpu()
        for _ in range(6):
            y = x
            for _ in range(30):
                y = (y * 1.5 + 1).remainder(7)
            if not torch.allclose(y.cpu(), expected, atol=1e-4):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_is_deferred():
    x = torch.ones(3).tpu()

    def turn(_):
        y = x + 1
        deferred = torch.tpu.is_deferred(y)
        y = y * 2
        y.cpu()
        return deferred

    results, _, _ = turns(turn, 4)
    assert results[0] is False
    assert results[-1] is True
    assert torch.tpu.is_deferred(x) is False


def test_deepcopy_and_state_dict_see_what_is_recorded():
    layer = nn.Linear(3, 3).tpu()
    with torch.no_grad():
        for _ in range(4):
            layer.weight.mul_(2)
            layer.bias.add_(1)
            other = copy.deepcopy(layer)
            torch.testing.assert_close(other.state_dict()["weight"].cpu(), layer.weight.cpu())
            torch.tpu.wait_for_compiles()


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_stretch_ends_where_another_thread_goes_on():
    x = torch.arange(8.0).tpu()
    deferred = []

    def turn(_):
        y = x
        for _ in range(3):
            y = (y * 2 + 1).remainder(7)
        deferred.append(torch.tpu.is_deferred(y))
        out = []

        def rest():
            z = y
            for _ in range(3):
                z = (z - 3).abs() * 2
            out.append(z)

        in_thread(rest)
        return out[0].cpu()

    results, launched, compiled = turns(turn, 6)
    expected = x.cpu()
    for _ in range(3):
        expected = (expected * 2 + 1).remainder(7)
    for _ in range(3):
        expected = (expected - 3).abs() * 2
    for result in results:
        torch.testing.assert_close(result, expected)
    assert launched[-1] == 2  # a program each
    assert compiled[-1] == 0
    assert deferred[-1] is False  # the first doesn't wait for the other thread's first call


def test_backward_is_on_the_callers_thread():
    """Autograd's thread and the caller would have to wake each other. Whoever wants its threads asks for them."""
    seen = []

    def step():
        w = torch.randn(3).tpu().requires_grad_()
        y = w.sin()
        y.register_hook(lambda grad: seen.append(threading.get_ident()))
        y.sum().backward()
        return threading.get_ident()

    assert step() == seen[-1]
    with torch.inference_mode():
        torch.ones(3, device="tpu") + 1
    assert step() == seen[-1]
    other = []
    in_thread(lambda: other.append(step()))
    assert other == [seen[-1]]
    with torch.autograd.set_multithreading_enabled(True):
        assert step() != seen[-1]
    assert step() == seen[-1]


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_a_chain_is_one_program_whatever_comes_before(size):
    """Where the last turn's end is looked at, too, a place is no end of the operators alone."""
    x = torch.linspace(-1, 1, size * size).view(size, size)
    on_tpu = x.tpu()

    def chain(x):
        for _ in range(150):
            x = x * 0.999
            x = x + 0.001
        return x[0, 0].item()

    results, launched, _ = turns(lambda turn: chain(on_tpu), 6)
    assert launched[-1] == 1, launched
    for result in results:
        assert result == pytest.approx(chain(x), abs=1e-5)


def test_a_training_step_is_three_programs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    other = copy.deepcopy(model).tpu()
    data = torch.randn(4, 8)

    def train(model, data):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(_):
            loss = model(data).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        return turns(step, 8)

    expected, _, _ = train(model, data)
    losses, launched, _ = train(other, data.tpu())
    torch.testing.assert_close(losses, expected)
    assert launched[-1] == 3


def test_what_is_read_beside_its_update_keeps_its_memory(run_python, tmp_path):
    """XLA:CPU would copy a weight that its update writes over, since the gradient of the input still reads it."""
    run_python(
        """
        import torch
        weight, state = torch.ones(6, 5, device="tpu"), torch.ones(7, device="tpu")
        x, slope = torch.ones(3, 5, device="tpu"), torch.ones(3, 6, device="tpu")
        for _ in range(6):
            before, grad = slope @ weight, slope.t() @ x
            weight.sub_(grad)
            state.mul_(0.5)
            assert before[0, 0].item() == 6 * weight[0, 0].item() + 18
            torch.tpu.wait_for_compiles()
        """,
        TORCH_TPU_EAGER_MODE="fused",
        TORCH_TPU_DUMP_MODULES=tmp_path,
    )
    heads = [text[: text.index(") -> ")] for text in (path.read_text() for path in tmp_path.glob("*_fused*"))]
    both = [head for head in heads if "tensor<6x5xf32>" in head and "tensor<7xf32>" in head]
    assert both
    for head in both:
        assert "tensor<7xf32> {tf.aliasing_output" in head
        assert "tensor<6x5xf32> {tf.aliasing_output" not in head
