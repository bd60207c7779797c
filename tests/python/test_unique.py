"""Operators whose result is as large as the data says: unique and its kin, bincount."""

import pytest
import torch

from helpers import check

pytestmark = pytest.mark.usefixtures("no_fallback")

NAN = float("nan")
A = torch.ops.aten


def values(*sizes, dtype=torch.int64, high=5):
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randint(0, 2 if dtype == torch.bool else high, sizes, generator=generator).to(dtype)


DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint64,
    torch.bool,
]
FORMS = {
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique values": lambda x: A._unique2(x, True, False, False),
    "unique counts": lambda x: A._unique2(x, False, False, True),
    "old unique": lambda x: A._unique(x, True, True),
    "old unique values": lambda x: A._unique(x, False, False),
    "consecutive": lambda x: A.unique_consecutive(x, True, True),
    "consecutive values": lambda x: A.unique_consecutive(x),
    "rows": lambda x: torch.unique(x, return_inverse=True, return_counts=True, dim=0),
    "columns": lambda x: A.unique_dim(x, -1),
    "consecutive rows": lambda x: A.unique_consecutive(x, False, False, 0),
    "consecutive columns": lambda x: A.unique_dim_consecutive(x, 1, True, True),
}


@pytest.mark.parametrize("name", FORMS)
def test_unique(name):
    check(FORMS[name], values(9, 2))


@pytest.mark.parametrize("name", ["unique", "rows", "consecutive"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unique_dtypes(name, dtype):
    check(FORMS[name], values(9, 2, dtype=dtype))


@pytest.mark.parametrize("name", FORMS)
def test_unique_of_a_view(name):
    check(lambda x: FORMS[name](x[1::2, :, 1].t()), values(9, 7, 3, high=2))


def test_unique_of_special_values():
    x = torch.tensor([3.0, NAN, 1.0, NAN, 1.0, -0.0, 0.0, float("inf"), -float("inf")])
    check(FORMS["unique"], x)
    check(FORMS["consecutive"], x)
    check(FORMS["unique"], torch.tensor([2**63 - 1, -(2**63), 0, 2**63 - 1]))


def test_unique_of_many():
    check(FORMS["unique"], values(5000, high=300))
    check(FORMS["rows"], values(200, 4, 3, high=2))


@pytest.mark.parametrize("x", [torch.tensor(3.0), torch.zeros(0, 3), torch.zeros(0)], ids=["0-d", "no rows", "none"])
def test_unique_of_little(x):
    for name in ("unique", "unique values", "unique counts", "old unique", "consecutive", "consecutive values"):
        check(FORMS[name], x)
    if x.dim():
        check(FORMS["rows"], x)
        check(FORMS["consecutive rows"], x)


REFUSED = {
    "no dims": lambda d: torch.unique(torch.tensor(3, device=d), dim=0),
    "empty": lambda d: torch.unique(torch.zeros(0, 3, device=d), dim=1),
    "twice empty": lambda d: torch.unique(torch.zeros(0, 0, device=d), dim=1),
    "dim": lambda d: torch.unique(torch.zeros(2, device=d), dim=1),
    "complex": lambda d: torch.unique(torch.zeros(2, device=d, dtype=torch.complex64)),
    "complex rows": lambda d: torch.unique(torch.zeros(2, 2, device=d, dtype=torch.complex64), dim=0),
    "bincount of floats": lambda d: torch.bincount(torch.ones(2, device=d)),
    "bincount of bools": lambda d: torch.bincount(torch.ones(2, device=d, dtype=torch.bool)),
    "bincount of rows": lambda d: torch.bincount(torch.ones(2, 2, device=d, dtype=torch.int64)),
    "bincount below 0": lambda d: torch.bincount(torch.tensor([1, -1], device=d)),
    "bincount minlength": lambda d: torch.bincount(torch.tensor([1], device=d), minlength=-1),
    "bincount of a great number": lambda d: torch.bincount(torch.tensor([2**63 - 1], device=d)),
    "bincount with a great minlength": lambda d: torch.bincount(torch.tensor([1], device=d), minlength=2**62 + 1),
    "bincount weights": lambda d: torch.bincount(torch.tensor([1, 2], device=d), torch.ones(1, device=d)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(Exception) as expected:
        REFUSED[name]("cpu")
    with pytest.raises(expected.type) as actual:
        REFUSED[name]("tpu")
    assert type(actual.value) is expected.type


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_bincount(dtype):
    x = values(40, dtype=dtype, high=30)
    check(torch.bincount, x)
    check(lambda x: torch.bincount(x, minlength=50), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_weighted_bincount(dtype):
    weights = values(40, dtype=dtype)
    check(torch.bincount, values(40, high=7), weights)
    check(lambda x, w: torch.bincount(x[::2], w[1::2]), values(40, high=7), weights)


def test_bincount_of_nothing():
    none = torch.zeros(0, dtype=torch.int64)
    check(lambda x: torch.bincount(x, minlength=3), none)
    check(lambda x, w: torch.bincount(x, w), none, torch.zeros(0))


def test_other_sizes_of_results_compile_nothing():
    few, more = torch.tensor([1, 1, 1, 2], device="tpu"), torch.tensor([1, 2, 3, 4], device="tpu")
    torch.unique(few), torch.bincount(few)
    before = torch.tpu.compile_count()
    assert torch.unique(more).numel() == 4
    assert torch.bincount(more).numel() == 5
    assert torch.tpu.compile_count() == before
