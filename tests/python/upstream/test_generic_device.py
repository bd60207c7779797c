"""The device-generic tests that PyTorch ships in its wheel (torch.testing._internal), run on this device."""

import pytest
import torch
from torch.testing._internal import autocast_test_lists, custom_op_db
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_device_type import (
    instantiate_device_type_tests,
    onlyCPU,
    onlyCUDA,
    onlyNativeDeviceTypes,
    onlyPRIVATEUSE1,
    ops,
    skipPRIVATEUSE1If,
)
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
    op_db,
)
from torch.testing._internal.common_utils import TestCase

pytestmark = pytest.mark.filterwarnings("ignore")


# ---- the framework itself ----
class TestDeviceTypes(TestCase):
    ran = []

    def test_device(self, device):
        assert device == "tpu:0" and self.device_type == "tpu" and self.get_all_devices()[0] == "tpu:0"
        self.assertEqual(torch.ones(3, device=device) + 1, torch.full((3,), 2.0))

    @onlyNativeDeviceTypes
    def test_native(self, device):
        assert torch.device(device).type == "tpu"

    @onlyPRIVATEUSE1
    def test_only_here(self, device):
        assert torch.device(device).type == "tpu"

    @onlyCPU
    def test_only_cpu(self, device):
        raise AssertionError("runs on the CPU alone")

    @onlyCUDA
    def test_only_cuda(self, device):
        raise AssertionError("runs on CUDA alone")

    @skipPRIVATEUSE1If(True, "says so")
    def test_skipped(self, device):
        raise AssertionError("is skipped")

    @ops([op for op in op_db if op.name in ("add", "cumsum", "nn.functional.gelu")], allowed_dtypes=(torch.float32,))
    def test_samples(self, device, dtype, op):
        for sample in list(op.sample_inputs(device, dtype))[:3]:
            assert op(sample.input, *sample.args, **sample.kwargs).device.type == "tpu"


instantiate_device_type_tests(TestDeviceTypes, globals(), only_for="tpu")


def test_instantiated():
    names = [name for name in globals() if name.startswith("TestDeviceTypes")]
    # The second, if an instantiated class was set up before in this process: the base then has the device's name.
    assert names in (["TestDeviceTypesPRIVATEUSE1"], ["TestDeviceTypesTPU"])
    assert hasattr(globals()[names[0]], "test_samples_nn_functional_gelu_tpu_float32")


# ---- databases of operators ----
def first_samples(info, device, dtype, count=2, **options):
    return list(info.sample_inputs(device, dtype, **options))[:count]


def moved(value, device):
    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().to(device, copy=True).requires_grad_(t.requires_grad), value
    )


def leaves(value):
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def compare(actual, expected):
    for a, e in zip(leaves(actual), leaves(expected), strict=True):
        assert a.dtype == e.dtype and a.shape == e.shape
        torch.testing.assert_close(a.detach().cpu(), e.detach().cpu(), rtol=1e-5, atol=1e-5, equal_nan=True)


def compare_with_gradients(info, dtype, gradients=True):
    for sample in first_samples(info, "cpu", dtype, requires_grad=gradients):
        results, grads = [], []
        for device in ("cpu", "tpu"):
            value, args, kwargs = (moved(v, device) for v in (sample.input, sample.args, sample.kwargs))
            result = info.op(value, *args, **kwargs)
            wanted = [t for t in leaves((value, args, kwargs)) if t.requires_grad]
            results.append(result)
            total = sum(t.sum() for t in leaves(result) if t.requires_grad)
            if gradients and isinstance(total, torch.Tensor):
                grads.append([g for g in torch.autograd.grad(total, wanted, allow_unused=True) if g is not None])
        compare(results[1], results[0])
        if grads:
            compare(grads[1], grads[0])


# This one writes through tensor.cpu().numpy(), which is the tensor's own memory on the CPU only.
FUNCTIONS = [info for info in autograd_function_db if info.name != "NumpyExpMarkDirtyAutogradFunction"]


@pytest.mark.parametrize("info", FUNCTIONS, ids=lambda info: info.name)
def test_autograd_functions(info):
    compare_with_gradients(info, torch.float32)


CUSTOM = [info for info in custom_op_db.custom_op_db if torch.float32 in info.dtypes]


@pytest.mark.parametrize("info", CUSTOM, ids=lambda info: info.name)
def test_custom_operators(info):
    """Schema and fake tensors: torch.library.opcheck on tensors of the device (its autograd check knows CUDA alone)."""
    sample = first_samples(info, "tpu", torch.float32, 1, requires_grad=info.supports_autograd)[0]
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(info.op, (sample.input, *sample.args), sample.kwargs, test_utils=tests)


FOREACH = [*foreach_unary_op_db, *foreach_binary_op_db, *foreach_pointwise_op_db, *foreach_reduce_op_db]


@pytest.mark.parametrize("info", FOREACH, ids=lambda info: info.name)
def test_foreach(info):
    """Lists against the CPU, out of place and in place."""
    for sample in first_samples(info, "cpu", torch.float32, 40)[::13]:
        for variant in (info.method_variant, info.inplace_variant):
            if variant is None:
                continue
            results = []
            for device in ("cpu", "tpu"):
                value, args = moved(sample.input, device), moved(sample.args, device)
                keywords = {k: v for k, v in sample.kwargs.items() if k in ("alpha", "value", "values", "ord", "dtype")}
                try:
                    result = variant(value, *args, **moved(keywords, device))
                    results.append(result if result is not None else value)
                except Exception as error:
                    results.append(type(error))
            if isinstance(results[0], type):
                assert results[1] == results[0], results
            else:
                compare(results[1], results[0])


# ---- gradients by finite differences, on the device ----
CHECKED = [
    "exp",
    "sin",
    "tanh",
    "sigmoid",
    "sqrt",
    "rsqrt",
    "log",
    "erf",
    "atan",
    "mul",
    "div",
    "pow",
    "cumsum",
    "cumprod",
    "prod",
    "logsumexp",
    "softmax",
    "std",
    "var",
    "matmul",
    "bmm",
    "addmm",
    "index_select",
    "gather",
    "scatter_add",
    "index_add",
    "take_along_dim",
    "masked_fill",
    "where",
    "clamp",
    "roll",
    "flip",
    "unfold",
    "diagonal",
    "tril",
    "kron",
    "cross",
    "norm",
    "amax",
    "median",
    "sort",
    "topk",
    "nn.functional.gelu",
    "nn.functional.silu",
    "nn.functional.layer_norm",
    "nn.functional.conv2d",
    "nn.functional.max_pool2d",
    "nn.functional.avg_pool2d",
    "nn.functional.mse_loss",
    "nn.functional.cross_entropy",
    "nn.functional.interpolate",
    "nn.functional.embedding",
    "expand",
    "cat",
    "stack",
]


@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck(name):
    infos = [i for i in op_db if i.name == name and i.supports_autograd and torch.float64 in i.dtypes]
    assert infos, name
    info = infos[0]
    for sample in first_samples(info, "tpu", torch.float64, 1, requires_grad=True):
        inputs = [t for t in leaves((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
        if not inputs or sum(t.numel() for t in inputs) == 0:
            continue

        def function(*_, sample=sample):
            result = info(sample.input, *sample.args, **sample.kwargs)
            result = sample.output_process_fn_grad(result)
            return tuple(t for t in leaves(result) if t.requires_grad)

        assert torch.autograd.gradcheck(function, inputs, fast_mode=True, nondet_tol=0.0)


# ---- mixed precision ----
def test_autocast_lists():
    """What runs in the small type on other accelerators does so here, and what needs float32 gets it."""
    lists = autocast_test_lists.AutocastTestLists("tpu")
    small, wide = 0, 0
    for entry in [*lists.torch_fp16, *lists.nn_fp16]:
        name, args, *rest = entry
        function = getattr(torch, name, None) or getattr(torch._C._nn, name, None)
        if function is None or "cudnn" in name or rest[:1] == [True] or isinstance(args[0], str):
            continue
        with torch.autocast("tpu", dtype=torch.float16):
            result = function(*args, **(rest[-1] if rest and isinstance(rest[-1], dict) else {}))
        result = leaves(result)[0]
        assert result.dtype == torch.float16, (name, result.dtype)
        small += 1
    for entry in [*lists.torch_fp32, *lists.nn_fp32]:
        name, args, *rest = entry
        function = getattr(torch, name, None) or getattr(torch._C._nn, name, None)
        if function is None or any(isinstance(a, str) for a in args):
            continue
        with torch.autocast("tpu", dtype=torch.float16):
            result = leaves(function(*args, **(rest[-1] if rest and isinstance(rest[-1], dict) else {})))[0]
        assert result.dtype == torch.float32, (name, result.dtype)
        wide += 1
    assert small > 15 and wide > 20, (small, wide)
