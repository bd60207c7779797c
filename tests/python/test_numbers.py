"""Python numbers above the largest int64, and what else is at the edge of the core's contracts."""

import pytest
import torch

BIG = 2**63 + 5


def outcome(function, device):
    try:
        return function(device).cpu()
    except Exception as error:
        return type(error)


CALLS = {
    "fill_ uint64": lambda d: torch.ones(2, dtype=torch.uint64, device=d).fill_(BIG),
    "fill_ uint64 of the greatest": lambda d: torch.ones(2, dtype=torch.uint64, device=d).fill_(2**64 - 1),
    "fill_ float32": lambda d: torch.ones(2, device=d).fill_(BIG),
    "fill_ int64": lambda d: torch.ones(2, dtype=torch.int64, device=d).fill_(BIG),
    "fill_ bool": lambda d: torch.zeros(2, dtype=torch.bool, device=d).fill_(BIG),
    "full": lambda d: torch.full((2,), BIG, device=d),
    "arange of too many": lambda d: torch.arange(2**62 + 2**61, device=d),
    "arange of the greatest double": lambda d: torch.arange(0, 1e300, dtype=torch.int64, device=d),
    "add float32": lambda d: torch.zeros(2, device=d) + BIG,
    "add int64": lambda d: torch.zeros(2, dtype=torch.int64, device=d) + BIG,
    "add alpha": lambda d: torch.add(torch.zeros(2, device=d), torch.ones(2, device=d), alpha=BIG),
    "lt": lambda d: torch.zeros(2, device=d) < BIG,
    "eq uint64": lambda d: torch.tensor([BIG, 5], dtype=torch.uint64, device=d) == BIG,
    "where": lambda d: torch.where(torch.tensor([True, False], device=d), torch.ones((), device=d), BIG),
}


@pytest.mark.parametrize("name", CALLS)
def test_above_int64(name):
    expected, actual = outcome(CALLS[name], "cpu"), outcome(CALLS[name], "tpu")
    if isinstance(expected, type):
        assert actual is expected
    else:
        torch.testing.assert_close(actual, expected)


def test_item_above_int64():
    assert torch.tensor(BIG, dtype=torch.uint64, device="tpu").item() == BIG


def test_too_many_dimensions():
    """More than XLA's programs take: the message says so."""
    x = torch.zeros([1] * 33)
    y = torch.ones([1] * 32, device="tpu")
    for call in (lambda: x.to("tpu"), lambda: torch.zeros([1] * 33, device="tpu"), lambda: y[None].cpu()):
        with pytest.raises(RuntimeError, match="33 dimensions; at most 32"):
            call()


def test_reset_accumulated():
    x = torch.ones(1000, device="tpu")
    torch.tpu.reset_accumulated_memory_stats()
    torch.ones(500, device="tpu")
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 2000
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 1
    assert stats["allocated_bytes.all.current"] >= x.numel() * 4
    assert torch.accelerator.memory_stats()["allocated_bytes.all.allocated"] == 2000


TWO_DEVICES = """
import torch

try:
    torch.rand(3, device="tpu:1", generator=torch.Generator("tpu:0"))
    raise SystemExit("accepted")
except RuntimeError as error:
    assert "tpu:1" in str(error) and "tpu:0" in str(error), error
assert torch.rand(3, device="tpu:1", generator=torch.Generator("tpu:1")).shape == (3,)
print("ok")
"""


def test_generator_of_another_device(run_python):
    assert "ok" in run_python(TWO_DEVICES, TORCH_TPU_CPU_DEVICES="2").stdout


@pytest.mark.parametrize("count", ["0", "129", "two", "2x"])
def test_number_of_devices(run_python, count):
    code = "import torch\ntry:\n  torch.ones(1, device='tpu')\nexcept ValueError as e:\n  print(e)"
    assert "from 1 to 128" in run_python(code, TORCH_TPU_CPU_DEVICES=count).stdout
