"""A loop that compiles at every turn is told once a line, with what changes; a program's first passes are not."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn


@pytest.fixture(params=["strict", "fused"])
def mode(request):
    torch.tpu.synchronize()
    torch.tpu.clear_compile_cache()
    with torch.tpu.set_eager_mode(request.param):
        yield request.param
        torch.tpu.synchronize()


def warned(function):
    """The texts that the function's warnings have, of those that are about compiling."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(w.message) for w in caught if "compiled" in str(w.message) and w.category is UserWarning]


def here(text):
    return text.startswith(f"{__file__}:")


def test_a_size_that_grows():
    x = torch.randn(3, 64).tpu()

    def loop():
        for n in range(31, 43):
            x[:, :n].exp()

    (text,) = warned(loop)
    assert here(text)
    assert "aten::exp is compiled again and again: size 1 of operand 'self' was ..., 32, 33, 34, 35, 36, 37" in text
    assert "Pad it to a fixed size" in text
    torch.tpu.clear_compile_cache()
    assert warned(loop) == []  # once a line


def test_an_argument_that_changes(mode):
    x = torch.randn(2, 40).tpu()

    def strict():
        for k in range(12):
            torch.roll(x, k, 1)

    def fused():
        for k in range(12):
            x.roll(k, 1)

    (text,) = warned(strict if mode == "strict" else fused)
    assert here(text)
    assert "aten::roll is compiled again and again: argument 'shifts'[0] was ..., 1, 2, 3, 4" in text
    assert "tensor" in text


def test_two_lines_that_alternate():
    def loop():
        cache = torch.randn(1, 2, 4, 8, device="tpu")
        fresh = torch.randn(1, 2, 1, 8, device="tpu")
        for _ in range(12):
            cache = torch.cat([cache, fresh], 2)
            other = torch.cat([cache[:, :1], cache[:, 1:]], 3)  # the same operator, another growth
        return other

    texts = warned(loop)
    assert all(here(text) for text in texts)
    cats = [text for text in texts if "aten::cat" in text]
    assert len(cats) == 2 and all("size 2 of operand 'tensors'[0] was" in text for text in cats)


def test_batches_of_every_length(mode):
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)).tpu()
    lengths = [17, 5, 29, 11, 23, 8, 14, 26, 20, 3, 31, 12]

    def strict():
        for length in lengths:
            model(torch.randn(length, 6).tpu()).sum().backward()

    def fused():
        for length in lengths:
            model(torch.randn(length, 6).tpu()).mean().backward()

    texts = warned(strict if mode == "strict" else fused)
    assert any("aten::addmm" in text and "size 0 of operand 'mat1'" in text for text in texts), texts
    assert any("(backward)" in text for text in texts), texts
    assert all(here(text) for text in texts)


def test_as_an_error():
    x = torch.randn(64).tpu()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*compiled again and again")
        with pytest.raises(UserWarning, match="aten::sin"):
            for n in range(1, 20):
                x[:n].sin()
    torch.testing.assert_close(x[:9].sin().cpu(), x[:9].cpu().sin())


def test_the_environment(run_python):
    code = """
        import sys, torch
        x = torch.randn(64).tpu()
        for n in range(1, int(sys.argv[1])):
            x[:n].sin()
    """
    assert "again and again" in run_python(code, 6, TORCH_TPU_RECOMPILE_WARNING=3).stderr
    assert "compiled" not in run_python(code, 14, TORCH_TPU_RECOMPILE_WARNING=0).stderr


def test_a_stretch_that_keeps_changing():
    x = torch.randn(8).tpu()

    def loop(count, again):
        for length in range(1, count):
            for _ in range(2):
                y = x
                for _ in range(length):
                    y = y * 0.5
                y.sum().item()  # cut
            torch.tpu.wait_for_compiles()
            if again:
                (x * 0.5).sum().item()

    torch.tpu.synchronize()
    torch.tpu.clear_compile_cache()
    with torch.tpu.set_eager_mode("fused"):
        assert warned(lambda: loop(12, True)) == []
        torch.tpu.clear_compile_cache()
        (text,) = warned(lambda: loop(11, False))
        torch.tpu.synchronize()
    assert here(text) and "9 programs that begin with aten::mul.Tensor were compiled, and none was run again" in text


# ---- programs that compile much, but once ----
class Dense(nn.Module):
    """Each layer reads what all before it wrote: channels in an arithmetic progression, on one line."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(4 + 2 * i) for i in range(11))
        self.layers = nn.ModuleList(nn.Conv2d(4 + 2 * i, 2, 1) for i in range(11))

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers):
            x = torch.cat([x, layer(F.relu(norm(x)))], 1)
        return x


class Residual(nn.Module):
    """Stages of other widths and sizes."""

    def __init__(self):
        super().__init__()
        widths = [3, 4, 6, 8, 10, 12, 14, 16, 18, 20]
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1, stride=1 + i % 2), nn.BatchNorm2d(b), nn.SiLU())
            for i, (a, b) in enumerate(itertools.pairwise(widths))
        )
        self.head = nn.Linear(widths[-1], 5)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("kind", [Dense, Residual])
def test_first_passes_through_networks(kind, mode):
    foreach = mode == "strict"

    def run():
        torch.manual_seed(0)
        model = kind().tpu()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)
        for _ in range(2):
            loss = model(torch.randn(2, 4 if kind is Dense else 3, 8, 8).tpu()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()
        if foreach:
            model.half().float()

    assert warned(run) == []


def test_a_few_sizes_in_turn(mode):
    x = torch.randn(64).tpu()

    def loop():
        for turn in range(40):
            x[: 4 * (turn % 8) + 1].cos().sum().item()

    assert warned(loop) == []


def test_slices_compile_once(mode):
    x = torch.randn(40, 3).tpu()

    def loop():
        for i in range(40):
            (x[i] * 0.5 + float(i)).sum().item()

    assert warned(loop) == []
