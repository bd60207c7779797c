"""torch.tpu.explain: counts, cuts with their reasons and lines, compiles, waits, fallbacks."""

import dataclasses
import inspect
import random
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn


@pytest.fixture(params=["strict", "fused", "debug"])
def mode(request):
    torch.tpu.synchronize()
    with torch.tpu.set_eager_mode(request.param):
        yield request.param
        torch.tpu.synchronize()


@pytest.fixture
def fused():
    torch.tpu.synchronize()
    with torch.tpu.set_eager_mode("fused"):
        yield
        torch.tpu.synchronize()


def line_of(function, text):
    """ "file.py:12" of the line of the function that has the text."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [i for i, line in enumerate(lines) if text in line and "line_of(" not in line]
    return f"{inspect.getsourcefile(function)}:{first + offset}"


def test_a_training_step(mode):
    model = nn.Sequential(nn.Linear(7, 11), nn.GELU(), nn.Linear(11, 3)).tpu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(5, 7).tpu(), torch.randint(3, (5,)).tpu()

    def step(scale, *, offset):
        loss = F.cross_entropy(model(x * scale + offset), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    step(1.0, offset=0.0)
    found = torch.tpu.explain(step, 0.5, offset=0.25)
    assert found.mode == mode
    assert isinstance(found.result, float)
    assert len(found.steps) == 3
    last = found.steps[-1]
    assert last.ops == found.ops / 3
    assert last.compiles == 0 and last.cache_misses == 0 and last.cache_hits == last.ops
    assert found.fallbacks == []
    assert [(s.kind, s.location, s.count, s.nbytes) for s in found.syncs] == [
        ("item()", line_of(test_a_training_step, "return loss.item()"), 3, 12)
    ]
    assert found.bytes_to_host == 12
    if mode == "fused":
        # Forward, backward and optimizer, of which that is one operator.
        assert last.executions == 3 and last.stretches == 2 and last.fused_ops == last.ops - 1
        assert found.compiles == sum(c.count for c in found.compiled) >= 1
        assert "tpu::fused" in [c.operator for c in found.compiled]
        (cut,) = [cut for cut in found.cuts if cut.reason != "another section"]
        assert (cut.reason, cut.location, cut.count) == ("host read: item()", found.syncs[0].location, 3)
        assert sum(cut.count for cut in found.cuts) == 9
    else:
        assert found.executions == found.ops and found.cuts == [] and found.stretches == 0
    text = str(found)
    assert f"{mode} mode" in text and "item()" in text and "test_explain.py:" in text


def test_every_reason_of_a_cut(fused):
    x = torch.randn(4, 4).tpu()

    def step():
        y = x * 2 + 1
        if y.sum() > 1e9:  # an if
            y += 1
        z = (y - 1).tanh()
        z.cpu()  # a copy
        z = (z - 2).tanh()
        str(z)  # a print
        z = (z - 3).tanh()
        event = torch.tpu.Event()
        event.record()  # an event
        z = (z - 4).tanh()
        torch.tpu.synchronize()  # a synchronisation
        z = (z - 5).tanh()
        with torch.tpu.set_eager_mode("strict"):
            return z + 6  # another mode

    found = torch.tpu.explain(step)
    cuts = {(cut.reason, cut.location): cut.count for cut in found.cuts}
    at = {name: line_of(test_every_reason_of_a_cut, f"# {name}") for name in ("an if", "a copy", "a print")}
    assert cuts["host read: item()", at["an if"]] == 3
    assert cuts["host read: copy to the host", at["a copy"]] == 3
    assert any(place == at["a print"] for _, place in cuts)
    assert cuts["event", line_of(test_every_reason_of_a_cut, "# an event")] == 3
    assert cuts["synchronize", line_of(test_every_reason_of_a_cut, "# a synchronisation")] == 3
    assert cuts["mode change", line_of(test_every_reason_of_a_cut, "# another mode")] == 3
    assert {"synchronize", "item()", "copy to the host"} <= {sync.kind for sync in found.syncs}


def test_content_and_unknown_continuations(fused):
    x = torch.randn(3, 3).tpu()
    turn = 0

    operators = [
        lambda x: x * 1.01,
        lambda x: x - 0.5,
        lambda x: x.tanh(),
        lambda x: x.t().contiguous(),
        lambda x: torch.maximum(x, x.t()),
    ]
    chosen = random.Random(5).choices(operators, k=400)

    def step():
        nonlocal x, turn
        turn += 1
        for i, operator in enumerate(chosen):
            x = operator(x) if turn < 9 or i % 101 < 100 else x.sin()  # other ones at last
        return x

    found = torch.tpu.explain(step, steps=9)
    reasons = {cut.reason for cut in found.cuts}
    assert reasons <= {"content", "unknown continuation", "synchronize"}, reasons
    assert "content" in reasons and "unknown continuation" in reasons
    assert all(cut.location.startswith(__file__) for cut in found.cuts)
    assert found.steps[-2].executions < found.steps[-2].ops / 4


def test_fallbacks_and_compiles_have_lines(mode):
    x = torch.randn(9, 5).tpu()
    torch.tpu.clear_compile_cache()

    def step():
        y = x.tan()  # compiles
        return torch.ops.explaintest.twice(y)  # falls back

    with torch.tpu.cpu_fallback("silent"), torch.library._scoped_library("explaintest", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        found = torch.tpu.explain(step, steps=2)
    (tan,) = [c for c in found.compiled if c.operator == "aten::tan"]
    assert tan.count == 1 and tan.seconds > 0
    assert tan.location == line_of(test_fallbacks_and_compiles_have_lines, "# compiles")
    place = line_of(test_fallbacks_and_compiles_have_lines, "# falls back")
    assert found.fallbacks == [torch.tpu.Fallback("explaintest::twice", place, 2)]
    assert found.counters["fallbacks"] == 2
    assert found.steps[1].compiles == 0 or mode == "fused"


def test_backward_on_autograds_thread_has_the_line_that_waits():
    x = torch.randn(17, 3).tpu().requires_grad_()
    torch.tpu.clear_compile_cache()

    def step():
        with torch.autograd.set_multithreading_enabled(True):
            x.sin().sum().backward()  # goes back

    found = torch.tpu.explain(step, steps=1)
    place = line_of(test_backward_on_autograds_thread_has_the_line_that_waits, "# goes back")
    assert {c.location for c in found.compiled} == {place, f"{place} (backward)"}


def test_threads_and_errors(fused):
    x = torch.randn(6, 6).tpu()

    def step():
        def work():
            for _ in range(20):
                (x @ x).sum().item()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = torch.tpu.explain(step, steps=2)
    assert sum(sync.count for sync in found.syncs) == 120
    assert {sync.location for sync in found.syncs} == {line_of(test_threads_and_errors, "(x @ x).sum().item()")}

    def fail():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        torch.tpu.explain(fail)
    with pytest.raises(RuntimeError, match="already running"):
        torch.tpu.explain(lambda: torch.tpu.explain(step))
    with pytest.raises(ValueError, match="at least one step"):
        torch.tpu.explain(step, steps=0)
    assert torch.tpu.explain(lambda: None, steps=1).ops == 0


def test_the_attributes_are_documented():
    for kind in (torch.tpu.Explanation, torch.tpu.Cut, torch.tpu.Compile, torch.tpu.Fallback, torch.tpu.Sync):
        assert dataclasses.is_dataclass(kind) and kind.__doc__
