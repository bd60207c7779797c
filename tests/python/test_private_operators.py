"""Operators that PyTorch's own Python code and exported programs call by name."""

import math

import pytest
import torch

from helpers import check

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _no_fallback():
    with torch.tpu.cpu_fallback("error"):
        yield


def same_error(call):
    errors = []
    for device in ("cpu", "tpu"):
        with pytest.raises(Exception) as caught:  # which one, the CPU says
            call(device)
        errors.append(caught.type)
    assert errors[0] is errors[1], errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64])
def test_add_relu(dtype):
    x, y = torch.tensor([1, 100, -100, 120]).to(dtype), torch.tensor([1, 100, -100, -3]).to(dtype)
    check(aten._add_relu.Tensor, x, y)
    check(aten._add_relu_.Tensor, x, y)
    check(lambda x, y: aten._add_relu.Tensor(x, y, alpha=2), x, y)
    check(lambda x: aten._add_relu.Scalar(x, 3, 2), x)
    check(lambda x: aten._add_relu_.Scalar(x, -3), x)


def test_add_relu_of_unlike_operands():
    special = torch.tensor([1.0, -2.0, math.inf, math.nan, -math.inf])
    check(aten._add_relu.Tensor, special, special)
    check(aten._add_relu.Tensor, torch.tensor([1, 2]), torch.tensor([1.5, 2]))
    check(aten._add_relu.Tensor, torch.ones(2, 1), torch.ones(3))
    check(lambda x: aten._add_relu.Scalar(x, 1.5), torch.tensor([1, 2]))
    check(lambda x, y: aten._add_relu.out(x, y, out=torch.empty_like(x)), torch.ones(2, 3).t(), torch.ones(3, 2))
    same_error(lambda d: aten._add_relu.Tensor(torch.ones(2, device=d).bool(), torch.ones(2, device=d).bool()))
    same_error(lambda d: aten._add_relu_.Tensor(torch.ones(2, device=d).int(), torch.ones(2, device=d)))


def test_sum_of_powers():
    for p in (0, 0.5, 1, 2, 3, -1, math.inf, -math.inf):
        check(lambda x, p=p: aten.linalg__powsum(x, p, [1]), torch.tensor([[1.0, -2.0], [3, 0]]))
    check(lambda x: aten.linalg__powsum(x, math.inf), torch.empty(0))
    check(lambda x: aten.linalg__powsum(x, 3), torch.tensor([1 + 2j]))
    check(lambda x: aten.linalg__powsum(x, 3, dtype=torch.float64), torch.tensor([1.0, 2]))
    check(lambda x: aten.linalg__powsum(x, 3, None, True), torch.ones(2, 3, dtype=torch.bfloat16))
    same_error(lambda d: aten.linalg__powsum(torch.ones(2, dtype=torch.int64, device=d), 2))


@pytest.mark.parametrize(
    ("dtype", "statistics"),
    [(torch.float32,) * 2, (torch.bfloat16, torch.float32), (torch.bfloat16,) * 2, (torch.float64,) * 2],
)
def test_batch_norm_update_stats(dtype, statistics):
    torch.manual_seed(0)
    running = torch.zeros(3, dtype=statistics), torch.ones(3, dtype=statistics)
    check(lambda x, m, v: aten.batch_norm_update_stats(x, m, v, 0.1), torch.randn(2, 3, 4).to(dtype), *running)


def test_batch_norm_update_stats_alone_and_wrong():
    check(lambda x: aten.batch_norm_update_stats(x, None, None, 0.1), torch.randn(2, 3, 4))
    check(lambda x, m, v: aten.batch_norm_update_stats(x, m, v, 0.1), torch.randn(1, 3), torch.zeros(3), torch.zeros(3))
    for x in (torch.zeros(0, 3), torch.zeros(3), torch.zeros(2, 3, dtype=torch.int64)):
        same_error(lambda d, x=x: aten.batch_norm_update_stats(x.to(d), None, None, 0.1))


def test_cummax_helpers():
    for helper in (aten._cummax_helper, aten._cummin_helper):
        operands = torch.randn(3, 4), torch.empty(3, 4), torch.empty(3, 4, dtype=torch.int64)
        check(lambda *ts, helper=helper: (helper(*ts, 1), *ts)[1:], *operands)


def test_assertions_in_order():
    token = aten._make_dep_token(device="tpu", dtype=torch.int64)
    assert token.shape == () and token.device.type == "tpu" and token.dtype == torch.int64
    check(lambda x, t: aten._functional_assert_async.msg(x, "never", t), torch.tensor(True), torch.tensor(2.0))
    with pytest.raises(RuntimeError, match="not so"):
        aten._functional_assert_async.msg(torch.tensor(0, device="tpu"), "not so", token).cpu()


@pytest.mark.parametrize("size", [[2, 3], [9, 13], [3, 9]])
def test_lanczos(size):
    torch.manual_seed(0)
    image, grad = torch.randn(2, 3, 6, 7), torch.randn(2, 3, *size)
    for align in (False, True):
        check(lambda x, a=align: aten._upsample_lanczos2d_aa(x, size, a), image)
        check(lambda x, a=align: aten._upsample_lanczos2d_aa(x, size, a), (image * 60 + 120).byte())
        check(lambda g, a=align: aten._upsample_lanczos2d_aa_backward(g, size, image.shape, a), grad)
    check(lambda x: aten._upsample_lanczos2d_aa(x, size, False), image.double().to(memory_format=torch.channels_last))
    same_error(lambda d: aten._upsample_lanczos2d_aa(image.to(d, torch.int64), size, False))


SLOW = {
    "thnn_conv2d": (torch._C._nn.thnn_conv2d, 2, False),
    "slow_conv3d": (torch._C._nn.slow_conv3d, 3, False),
    "slow_conv_dilated2d": (torch._C._nn.slow_conv_dilated2d, 2, False),
    "slow_conv_dilated3d": (torch._C._nn.slow_conv_dilated3d, 3, False),
    "slow_conv_transpose2d": (torch._C._nn.slow_conv_transpose2d, 2, True),
    "slow_conv_transpose3d": (torch._C._nn.slow_conv_transpose3d, 3, True),
}


@pytest.mark.parametrize("name", SLOW)
def test_slow_convolutions(name):
    function, dims, transposed = SLOW[name]
    torch.manual_seed(0)
    weight = torch.randn(*((2, 3) if transposed else (3, 2)), *(3,) * dims)
    options = {"output_padding": 1, "dilation": 2} if transposed else {"dilation": 2} if "dilated" in name else {}

    def run(x, w, b):
        x, w, b = (t.clone().requires_grad_() for t in (x, w, b))
        y = function(x, w, [3] * dims, b, 2, 1, **options)
        return y.detach(), *torch.autograd.grad(y.sin().sum(), (x, w, b))

    check(run, torch.randn(2, 2, *(6,) * dims), weight, torch.randn(3), rtol=1e-4, atol=1e-4)
    if "dilated" in name:  # the CPU's others want a batch, and read beyond a kernel of other sizes
        check(lambda x, w: function(x, w, [3] * dims), torch.randn(2, *(6,) * dims), weight, rtol=1e-4, atol=1e-4)
        same_error(lambda d: function(torch.randn(1, 2, *(6,) * dims, device=d), weight.to(d), [2] * dims))
