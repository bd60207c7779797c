"""Random programs of views and writes (programs.py), and what they found.

`make programs` runs thousands of new ones; the seeds of these here are fixed.
"""

import warnings

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from captured_programs import run_captured
from helpers import check
from programs import Choices, run_program

pytestmark = pytest.mark.filterwarnings("ignore")


class Drawn(Choices):
    """Draws by hypothesis, which makes a failing program short."""

    def __init__(self, data):
        self._data = data

    def integer(self, low, high):
        return self._data.draw(st.integers(low, high))


def fixed(count):
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


@given(st.data())
@fixed(40)
def test_drawn_programs(data):
    run_program(Drawn(data))


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_seeded_programs(first):
    for seed in range(first, first + 20):
        run_program(Choices(seed))


def test_seeded_programs_in_debug():
    with torch.tpu.set_eager_mode("debug"):
        for seed in range(1000, 1030):
            run_program(Choices(seed), check_always=True)


def test_recorded_programs():
    for seed in range(2000, 2025):
        run_captured(seed)


# ---- what they found, by kind ----
def outcome(function):
    """What a function of the device gives, or the class of what it raises, on both devices."""
    results = []
    for device in ("cpu", "tpu"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = function(device)
            results.append([t.tolist() for t in value] if isinstance(value, (list, tuple)) else value)
        except Exception as error:
            results.append(type(error))
    return results


def assert_alike(function):
    expected, actual = outcome(function)
    assert actual == expected, (actual, expected)


@pytest.mark.parametrize(
    "to, source", [((0, 3), (0, 6)), ((0, 3), (4, 4)), ((1, 0), (0, 1)), ((0,), (2,)), ((0,), (1,))]
)
@pytest.mark.parametrize("where", ["device", "host"])
def test_copies_of_nothing_check_shapes(to, source, where):
    def copy(device):
        x = torch.zeros(source, device=device if where == "device" else "cpu")
        return torch.zeros(to, device=device).copy_(x).shape

    assert_alike(copy)


EXPANDED = {
    "fill": lambda x, m: x.fill_(5),
    "zero": lambda x, m: x.zero_(),
    "fill with a tensor": lambda x, m: x.fill_(torch.tensor(5.0, device=x.device)),
    "setitem": lambda x, m: x.__setitem__(slice(0, 1), 7),
    "masked_fill": lambda x, m: x.masked_fill_(m, 5),
    "masked_fill, mask of one row": lambda x, m: x.masked_fill_(m[0], 5),
    "index_fill": lambda x, m: x.index_fill_(1, torch.tensor([1], device=x.device), 5),
    "add": lambda x, m: x.add_(1),
    "sign": lambda x, m: x.sign_(),
    "copy": lambda x, m: x.copy_(x.clone()),
    "copy of itself": lambda x, m: x.copy_(x.view_as(x)),
}


@pytest.mark.parametrize("name", EXPANDED)
@pytest.mark.parametrize("rows", [4, 0])
def test_writes_to_expanded_tensors(name, rows):
    def write(device):
        x = torch.arange(1.0, 4.0, device=device)
        mask = (torch.arange(rows * 3, device=device) % 5 == 1).view(rows, 3)
        EXPANDED[name](x.expand(rows, 3), mask if rows else mask.expand(rows, 3))
        return [x]

    if not (rows == 0 and "one row" in name):
        assert_alike(write)


OVERLAPPING = {
    "index_put": lambda x, i: x.index_put_((i,), x),
    "index_put, index": lambda x, i: i.index_put_((i,), i.clone()),
    "setitem": lambda x, i: x.__setitem__(i, x),
    "index_copy": lambda x, i: x.index_copy_(0, i, x),
    "index_add": lambda x, i: x.index_add_(0, i, x),
    "index_reduce": lambda x, i: x.index_reduce_(0, i, x, "prod"),
    "index_fill, index": lambda x, i: i.index_fill_(0, i, 1),
    "index_select": lambda x, i: torch.index_select(x, 0, i, out=x),
    "gather": lambda x, i: torch.gather(x, 0, i, out=x),
    "scatter": lambda x, i: x.scatter_(0, i, x),
    "scatter, index": lambda x, i: i.scatter_(0, i, 1),
    "scatter_add": lambda x, i: x.scatter_add_(0, i, x),
    "scatter_reduce": lambda x, i: x.scatter_reduce_(0, i, x, "sum"),
    "take": lambda x, i: torch.take(x, i, out=x),
    "put": lambda x, i: x.put_(i, x),
    "cat": lambda x, i: torch.cat([x[:2], x[2:]], 0, out=x),
    "masked_select": lambda x, i: torch.masked_select(x, x > -1, out=x),
    "masked_fill by itself": lambda x, i: (x > 1).masked_fill_(x > 1, False),
    "copy from a shifted view": lambda x, i: x[1:].copy_(x[:-1]),
    "copy to another stride of one row": lambda x, i: x.view(4, 1)[:, ::3].copy_(x.view(4, 1)),
    "add of a shifted view": lambda x, i: x[:3].add_(x[1:]),
    "add of itself": lambda x, i: x.add_(x),
    "cumsum": lambda x, i: torch.cumsum(x, 0, out=x),
    "sort": lambda x, i: torch.sort(x, out=(x, i)),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_operands_that_are_the_result(name):
    def write(device):
        x, i = torch.tensor([3.0, 1, 2, 0], device=device), torch.tensor([2, 0, 1, 3], device=device)
        OVERLAPPING[name](x, i)
        return x, i

    assert_alike(write)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.int8])
@pytest.mark.parametrize("value", [-1, -2.5, -0.5, 0.5, 255, 255.5, 300, -300, -256, float("nan"), float("inf")])
def test_fill_values_out_of_range(dtype, value):
    assert_alike(lambda device: [torch.zeros(2, dtype=dtype, device=device).fill_(value)])


LAYOUTS = {
    "empty, sliced": lambda x: x[2:3, 2:2],
    "empty, transposed": lambda x: x[:0].t(),
    "empty, one dim": lambda x: x[:0, 1],
    "empty, three dims": lambda x: x[2:2, None, ::3],
    "one row": lambda x: x[1:2, ::2],
    "dims of one between": lambda x: x[:2, :3].reshape(2, 1, 3).transpose(1, 2),
    "dims of one in front": lambda x: x[:2, :3].reshape(2, 1, 3).transpose(0, 1),
}
RESULTS = {
    "x + x": lambda x: x + x,
    "x * 2": lambda x: x * 2,
    "2.5 - x": lambda x: 2.5 - x,
    "x + one": lambda x: x + torch.ones((), device=x.device),
    "x > 1": lambda x: x > 1,
    "neg": lambda x: -x,
    "clamp": lambda x: x.clamp(0, 1),
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, 0),
    "clone": lambda x: x.clone(),
    "ones_like": torch.ones_like,
    "bool": lambda x: x.bool(),
    "where": lambda x: torch.where(x > 0, x, 3),
    "cumsum": lambda x: x.cumsum(0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_empty_and_thin_results(layout):
    for name, function in RESULTS.items():
        strides = [function(LAYOUTS[layout](torch.zeros(4, 4, device=d))).stride() for d in ("cpu", "tpu")]
        assert strides[0] == strides[1], (name, strides)
    complex_zeros = [torch.zeros(4, 4, dtype=torch.complex64, device=d) for d in ("cpu", "tpu")]
    strides = [LAYOUTS[layout](x).abs().stride() for x in complex_zeros]
    assert strides[0] == strides[1], strides


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16], ids=str)
@pytest.mark.parametrize("a, b", [((2,), (3,)), ((0, 3), (8,)), ((2,), (2,)), ((0,), (0,))])
def test_equal_of_different_dtypes(a, b, dtype):
    assert_alike(lambda d: torch.equal(torch.ones(a, device=d), torch.ones(b, dtype=dtype, device=d)))
    assert_alike(lambda d: torch.equal(torch.full(a, 1.5, device=d), torch.ones(b, dtype=dtype, device=d)))


@pytest.mark.parametrize("out", [torch.bool, torch.int8, torch.float32], ids=str)
@pytest.mark.parametrize("source", [torch.bool, torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "sum", "mean"])
def test_dtypes_of_out(name, source, out):
    shape = (3,) if "cum" in name else ()

    def into(device):
        x = torch.ones(3, dtype=source, device=device)
        return [getattr(torch, name)(x, 0, out=torch.zeros(shape, dtype=out, device=device))]

    assert_alike(into)


def test_rebound_data_shares_memory():
    def rebind(x):
        y = x[1:3]
        z = torch.zeros(2, 2, device=x.device)
        z.data = y
        z.mul_(2)
        z.t_()
        z.add_(1)
        return x, y, z

    check(rebind, torch.arange(12.0).reshape(4, 3))
