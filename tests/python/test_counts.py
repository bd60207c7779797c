"""A loop compiles in its first turn only. Counted by torch.tpu, and by a plugin that sees what really happens."""

import pytest
import torch

TRAINING = """
    import ctypes, os, sys, torch
    from torch import nn
    import torch.nn.functional as F

    plugin = ctypes.CDLL(os.environ["TORCH_TPU_PJRT_PLUGIN"])
    plugin.count_pjrt_get.restype = ctypes.c_int64

    def compiles():
        ours, theirs = torch.tpu.compile_count(), plugin.count_pjrt_get(b"compiles")
        assert ours == theirs, (ours, theirs)
        return theirs

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width), nn.Dropout(0.1))

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.mlp(x)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 16), Block(16), Block(16), nn.Linear(16, 20)).tpu()
    optimizer = OPTIMIZER
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    data = torch.randint(20, (20, 4, 9))

    history = []
    for turn in range(8):
        before = compiles()
        batch = data[turn].tpu()
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=SET_TO_NONE)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0 + turn)
        optimizer.step()
        schedule.step()
        print(f"{loss.item():.3f}", file=sys.stderr)
        history.append(compiles() - before)
    torch.tpu.synchronize()
    assert plugin.count_pjrt_get(b"executes") == torch.tpu.counters()["executions"]
    assert not torch.tpu.fallback_ops(), torch.tpu.fallback_ops()
    print(history)
"""


@pytest.mark.parametrize(
    "optimizer",
    [
        "torch.optim.AdamW(model.parameters(), lr=1e-3)",
        "torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)",
        "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)",
    ],
    ids=["AdamW", "Adam, single", "SGD"],
)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_training_compiles_in_its_first_turn(run_python, count_plugin, optimizer, set_to_none):
    code = TRAINING.replace("OPTIMIZER", optimizer).replace("SET_TO_NONE", str(set_to_none))
    history = eval(run_python(code, **count_plugin).stdout.splitlines()[-1])
    assert history[0] > 0
    # Momentum appears after the first turn; gradients that stay are accumulated into from the second on.
    first = 2 if not set_to_none or "SGD" in optimizer else 1
    assert history[first:] == [0] * (len(history) - first), history


def compiles_of(function, *arguments):
    """How many compiles each call brings."""
    counts = []
    for argument in arguments:
        before = torch.tpu.compile_count()
        function(argument)
        torch.tpu.synchronize()
        counts.append(torch.tpu.compile_count() - before)
    return counts


LOOPS = {
    "scalar operand": (lambda x, i: x + i * 0.37, range(1, 6)),
    "integer scalar": (lambda x, i: x * i, range(2, 8)),
    "alpha": (lambda x, i: torch.add(x, x, alpha=i + 0.5), range(2, 8)),
    "in-place scalar": (lambda x, i: x.clone().mul_(i + 0.25), range(5)),
    "fill": (lambda x, i: x.clone().fill_(i + 0.5), range(5)),
    "clamp": (lambda x, i: x.clamp(-i - 0.5, i + 0.5), range(1, 6)),
    "select": (lambda x, i: x[i], range(6)),
    "select assignment": (lambda x, i: x.clone().__setitem__(i, 1.0), range(6)),
    "slice": (lambda x, i: x[i : i + 2] + 1, range(5)),
    "slice assignment": (lambda x, i: x.clone().__setitem__(slice(i, i + 2), float(i)), range(5)),
    "narrow": (lambda x, i: x.narrow(1, i, 3).sum(), range(5)),
    "seed": (lambda x, i: (torch.manual_seed(i), torch.rand(6, 8, device="tpu")), range(5)),
    "dropout": (lambda x, i: torch.nn.functional.dropout(x, 0.1), range(5)),
    "dropout p": (lambda x, i: torch.nn.functional.dropout(x, 0.1 * i + 0.1), range(5)),
    "full": (lambda x, i: torch.full((3, 3), i + 0.5, device="tpu"), range(5)),
    "index": (lambda x, i: x[torch.tensor([i, 0], device="tpu")], range(5)),
    "masked_fill": (lambda x, i: x.masked_fill(x > i, i + 0.5), range(1, 6)),
    "where": (lambda x, i: torch.where(x > i + 0.5, x, i + 0.25), range(5)),
    "threshold": (lambda x, i: torch.nn.functional.leaky_relu(x, 0.01 * i + 0.02), range(5)),
    "lerp": (lambda x, i: x.lerp(x * 2, 0.1 * i + 0.05), range(5)),
    "addcmul": (lambda x, i: torch.addcmul(x, x, x, value=i + 1.5), range(5)),
    "foreach": (lambda x, i: torch._foreach_add([x, x], i + 0.5), range(5)),
    "eps": (lambda x, i: torch.nn.functional.layer_norm(x, (8,), eps=1e-5 * (i + 2)), range(5)),
    "host scalar": (lambda x, i: x * torch.tensor(i + 0.5), range(5)),
    "copy in": (lambda x, i: torch.full((6, 8), float(i)).tpu() + x, range(5)),
    "arange": (lambda x, i: torch.arange(i, i + 4, device="tpu"), range(2, 7)),
    "arange of floats": (lambda x, i: torch.arange(0.5 * i, 0.5 * i + 2, 0.5, device="tpu"), range(1, 6)),
    "uniform bounds": (lambda x, i: torch.empty(4, device="tpu").uniform_(-i - 1.5, i + 1.5), range(5)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_what_changes_is_an_operand(name):
    function, values = LOOPS[name]
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).tpu()
    counts = compiles_of(lambda i: function(x, i), *values)
    assert counts[1:] == [0] * (len(counts) - 1), counts


def test_changing_values_are_right():
    x = torch.arange(6.0)
    y = x.tpu()
    for i in range(1, 6):
        assert torch.equal((y * i + i * 0.5)[i - 1 : i + 1].cpu(), (x * i + i * 0.5)[i - 1 : i + 1])
        assert y[i].item() == i


def test_live_buffers_return(run_python, count_plugin):
    run_python(
        """
        import ctypes, gc, os, torch
        plugin = ctypes.CDLL(os.environ["TORCH_TPU_PJRT_PLUGIN"])
        plugin.count_pjrt_get.restype = ctypes.c_int64

        def live():
            gc.collect()
            torch.tpu.synchronize()
            torch.tpu.empty_cache()
            return plugin.count_pjrt_get(b"live_buffers")

        def work():
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).tpu()
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(3):
                model(torch.ones(4, 8, device="tpu")).sum().backward()
                optimizer.step()

        work()
        start = live()
        for _ in range(3):
            work()
            assert live() == start, (live(), start)
        x = torch.ones(5, device="tpu")
        y = x + 1
        assert start < live() <= start + 2
        """,
        **count_plugin,
    )


def test_an_update_in_place_is_donated(run_python, count_plugin):
    """A large tensor that is updated in place needs no second buffer of its size."""
    run_python(
        """
        import torch
        x = torch.zeros(4 << 20, device="tpu")
        x += 1
        torch.tpu.synchronize()
        torch.tpu.reset_peak_memory_stats()
        for _ in range(5):
            x += 1
            torch.tpu.synchronize()
        assert torch.tpu.max_memory_reserved() < 1.5 * (16 << 20), torch.tpu.max_memory_reserved()
        assert x[0].item() == 6
        """,
        **count_plugin,
    )
