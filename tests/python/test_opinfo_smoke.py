"""A few entries of PyTorch's OpInfo database, and that the checker sees what is wrong. All of them: `make opinfo`."""

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("expecttest")
sys.path.append(str(Path(__file__).resolve().parents[1] / "opinfo"))

import check
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

ENTRIES = (
    "add",
    "cumsum",
    "index_put",
    "linalg_vector_norm",
    "matmul",
    "nn_functional_linear",
    "softmax",
    "sort",
    "split",
)
TABLE = {op.formatted_name: op for op in op_db if op.formatted_name in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry(entry):
    result = check.Check(TABLE[entry], torch.float32, samples=2)()
    assert result["status"] in ("pass", "soft"), result["failures"]
    assert not result["fallback"]


def differing(on_tpu, on_cpu=torch.exp):
    """The kinds of differences of an entry that computes one function on the device and another on the CPU."""

    def samples(op, device, dtype, requires_grad, **kwargs):
        yield SampleInput(torch.rand(3, 4, dtype=dtype).t().requires_grad_(requires_grad))

    entry = OpInfo(
        "differing",
        op=lambda x: on_tpu(x) if x.device.type == "tpu" else on_cpu(x),
        dtypes=(torch.float32,),
        sample_inputs_func=samples,
        supports_out=False,
    )
    return {failure["kind"] for failure in check.Check(entry, torch.float32)()["failures"]}


def raises(x):
    raise IndexError("never")


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: x.exp() + 1, "value"),
        (lambda x: x.exp() + 1e-4, "precision"),
        (lambda x: x.exp().sum(), "shape"),
        (lambda x: x.exp().double(), "dtype"),
        (lambda x: x.exp().contiguous(), "stride"),
        (lambda x: x.exp().cpu(), "device"),
        (lambda x: (x.exp(),), "structure"),
        (lambda x: x.exp().detach(), "grad"),
        (lambda x: x.exp().detach() + x - x.detach(), "value"),
        (raises, "raised"),
    ],
)
def test_checker_sees(function, kind):
    assert kind in differing(function)


def test_checker_sees_errors_and_aliases():
    assert differing(torch.exp) == set()
    assert differing(torch.exp, raises) == {"accepts"}
    assert differing(lambda x: x + 0, lambda x: x.view_as(x)) == {"alias"}
    assert "input" in differing(lambda x: x.detach().add_(1) - 1, lambda x: x.detach() + 0)
