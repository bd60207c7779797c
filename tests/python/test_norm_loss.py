"""Softmax, normalisation and losses, forward and backward, agree with the CPU's."""

import pytest
import torch
import torch.nn.functional as F

from helpers import assert_same, check

NAN, INF = float("nan"), float("inf")


def sample(*sizes, dtype=torch.float32, seed=0):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check_gradients(function, *tensors, rtol=1e-4, atol=1e-5):
    """The results of function and the gradients of its floating operands."""
    results = []
    for device in ("cpu", "tpu"):
        leaves = [t.detach().to(device).requires_grad_(t.is_floating_point()) for t in tensors]
        out = function(*leaves)
        weight = sample(*out.shape, seed=7).to(out)
        wanted = [t for t in leaves if t.requires_grad]
        results.append([out.detach(), *torch.autograd.grad(out, wanted, weight)])
    for expected, actual in zip(*results, strict=True):
        assert_same(actual, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, F.softmin], ids=lambda f: f.__name__)
def test_softmax(function, dim):
    check_gradients(lambda x: function(x, dim), sample(3, 4, 5))
    check_gradients(lambda x: function(x.permute(2, 0, 1), dim), sample(3, 4, 5))
    check(lambda x: function(x, dim), sample(3, 4, 5, dtype=torch.bfloat16), rtol=1.6e-2, atol=1e-3)
    check(lambda x: function(x, dim, dtype=torch.float64), sample(3, 4, 5, dtype=torch.float16), rtol=1e-9, atol=1e-9)
    check(lambda x: function(x, dim), torch.zeros(0, 3, 0))


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax], ids=lambda f: f.__name__)
def test_softmax_of_extremes(function):
    x = torch.tensor([[-INF, 0.0, 1.0], [-INF, -INF, -INF], [INF, 0.0, 1.0], [NAN, 0.0, 1.0], [1e4, 1e4 - 1, -1e4]])
    check(lambda x: function(x, 1), x, rtol=1e-5, atol=1e-6)
    check(lambda x: function(x, 0), torch.tensor(3.0))
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        function(torch.zeros(3, dtype=torch.long, device="tpu"), 0)


def test_safe_softmax():
    x = torch.tensor([[-INF, -INF], [-INF, 1.0], [0.0, 1.0]])
    check_gradients(lambda x: torch._safe_softmax(x, 1), x)


@pytest.mark.parametrize("native", [False, True])
def test_layer_norm_of_mixed_dtypes(native):
    halves, others = [torch.float16, torch.bfloat16], [torch.float32, torch.float64, torch.int64]
    norm = torch.native_layer_norm if native else F.layer_norm
    for dtype in halves + others:
        for pair in [
            (torch.float32, torch.float32),
            (torch.bfloat16, None),
            (None, torch.float64),
            (dtype, torch.float32),
        ]:
            outcomes = []
            for device in ("cpu", "tpu"):
                weight, bias = (p and torch.ones(5, dtype=p, device=device) for p in pair)
                try:
                    out = norm(torch.ones(3, 5, dtype=dtype, device=device), (5,), weight, bias, 1e-5)
                    outcomes.append([y.dtype for y in (out if native else (out,))])
                except RuntimeError as error:
                    outcomes.append(type(error))
            assert outcomes[0] == outcomes[1], (dtype, pair)


def test_half_to_float():
    x = sample(3, 4, dtype=torch.float16)
    y = torch._softmax(x.tpu(), 1, True)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.cpu(), torch.softmax(x.float(), 1))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5)], ids=str)
def test_layer_norm(shape, affine):
    x = sample(2, 3, 4, 5) * 3 + 1
    if affine:
        check_gradients(lambda x, w, b: F.layer_norm(x, shape, w, b), x, sample(*shape, seed=1), sample(*shape, seed=2))
    else:
        check_gradients(lambda x: F.layer_norm(x, shape), x)
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    check_gradients(lambda x: F.layer_norm(x.as_strided(x.shape, strided.stride()), shape, eps=1e-3), x)


@pytest.mark.parametrize("sizes", [(700, 33), (1, 1), (2, 5000), (3000, 3), (4, 0, 5)], ids=str)
def test_layer_norm_of_many_rows_and_columns(sizes):
    x, w, b = sample(*sizes) * 2 + 1, sample(sizes[-1], seed=1), sample(sizes[-1], seed=2)
    check_gradients(lambda x, w, b: F.layer_norm(x, sizes[-1:], w, b), x, w, b, rtol=1e-4, atol=2e-4)


def test_layer_norm_of_undefined_rows():
    x = sample(4, 6)
    x[1, 2], x[2, 3] = NAN, INF
    check(lambda x: F.layer_norm(x, (6,)), x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [1234.567, -0.1, 3e7])
def test_layer_norm_of_equal_elements(value):
    """Which are all mean, though their sum is rounded: what is left is multiplied by 1 / sqrt(eps)."""
    x = torch.full((3, 768), value)
    check(lambda x: torch.native_layer_norm(x, (768,), None, None, 1e-5), x, rtol=1e-6, atol=0)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)], ids=str)
def test_some_gradients_of_layer_norm(wanted):
    def gradients(x, w, b):
        _, mean, rstd = torch.native_layer_norm(x, (6,), w, b, 1e-5)
        found = torch.ops.aten.native_layer_norm_backward(x.cos(), x, (6,), mean, rstd, w, b, wanted)
        assert [g is not None for g in found] == list(wanted)
        return [g for g in found if g is not None]

    check(gradients, sample(5, 6), sample(6, seed=1), sample(6, seed=2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_of_half(dtype):
    x, w, b = sample(4, 6, dtype=dtype), sample(6, seed=1, dtype=dtype), sample(6, seed=2, dtype=dtype)
    check_gradients(lambda x, w, b: F.layer_norm(x, (6,), w, b), x, w, b, rtol=3e-2, atol=3e-2)
    check_gradients(lambda x, w, b: F.layer_norm(x, (6,), w, b), x, w.float(), b.float(), rtol=3e-2, atol=3e-2)
    check_gradients(lambda x, w, b: F.group_norm(x, 2, w, b), x, w, b, rtol=3e-2, atol=3e-2)
    check_gradients(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, w.float(), b.float(), rtol=3e-2, atol=3e-2
    )


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("channels_last", [False, True])
def test_group_norm(groups, channels_last):
    x = sample(2, 6, 3, 4)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    w, b = sample(6, seed=1), sample(6, seed=2)
    results = []
    for device in ("cpu", "tpu"):
        leaves = [t.detach().to(device).requires_grad_() for t in (x, w, b)]
        y = F.group_norm(leaves[0], groups, leaves[1], leaves[2])
        results.append([y.detach(), *torch.autograd.grad(y, leaves, sample(2, 6, 3, 4, seed=3).to(device))])
    assert results[0][0].stride() == results[1][0].stride()
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 5), (2, 3, 4, 4)], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("momentum", [0.1, 0.3])
def test_batch_norm(shape, training, momentum):
    def function(x, w, b, mean, var):
        return F.batch_norm(x, mean, var, w, b, training, momentum, 1e-4)

    x, w, b = sample(*shape), sample(3, seed=1), sample(3, seed=2)
    mean, var = sample(3, seed=3), sample(3, seed=4).abs() + 0.5
    check(function, x, w, b, mean, var, rtol=1e-4, atol=1e-5)  # the running statistics too
    grad = [t for t in (x, w, b)]
    results = []
    for device in ("cpu", "tpu"):
        leaves = [t.detach().to(device).requires_grad_() for t in grad]
        y = function(*leaves, mean.to(device), var.to(device))
        results.append(torch.autograd.grad(y, leaves, sample(*shape, seed=5).to(device)))
    for expected, actual in zip(*results, strict=True):
        assert_same(actual, expected, rtol=1e-4, atol=1e-4)


def test_batch_norm_module_trains():
    modules = [torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3).to("tpu")]
    for _ in range(3):
        x = sample(4, 3, 2, 2)
        for module in modules:
            module(x.to(next(module.parameters()).device)).square().sum().backward()
    for expected, actual in zip(modules[0].state_dict().values(), modules[1].state_dict().values(), strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_other_norms():
    check_gradients(lambda x: F.instance_norm(x), sample(2, 3, 4))
    check_gradients(lambda x, w: F.rms_norm(x, (4,), w), sample(2, 3, 4), sample(4, seed=1))
    check_gradients(lambda x: F.normalize(x, dim=1), sample(2, 3, 4))
    check_gradients(lambda x: torch.renorm(x, 2, 0, 0.5), sample(3, 4))
    check_gradients(lambda x: torch.renorm(x, 1, 1, 2.5), sample(3, 4))
    check_gradients(lambda v, g: torch._weight_norm(v, g, 0), sample(3, 4), sample(3, 1))
    check_gradients(lambda v, g: torch._weight_norm(v, g, 1), sample(3, 4), sample(1, 4))


TARGETS = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "smooth_l1 beta": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.3),
    "smooth_l1 zero": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.0),
    "huber": F.huber_loss,
    "huber delta": lambda x, y, reduction: F.huber_loss(x, y, reduction=reduction, delta=0.3),
    "bce": lambda x, y, reduction: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=reduction),
    "bce weight": lambda x, y, reduction: (
        F.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid(), y.detach().abs(), reduction=reduction) + 0 * y.sum()
    ),
    "bce logits": lambda x, y, reduction: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=reduction),
    "bce pos_weight": lambda x, y, reduction: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), reduction=reduction, pos_weight=torch.tensor([1.0, 2, 3, 4], device=x.device)
    ),
    "soft margin": lambda x, y, reduction: F.soft_margin_loss(x, y.detach().sign(), reduction=reduction) + 0 * y.sum(),
    "kl_div": lambda x, y, reduction: F.kl_div(x.log_softmax(1), y.softmax(1), reduction=reduction),
    "gaussian": lambda x, y, reduction: F.gaussian_nll_loss(x, y, x.detach().abs(), reduction=reduction),
    "poisson": lambda x, y, reduction: F.poisson_nll_loss(x, y.abs(), reduction=reduction),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", TARGETS)
def test_losses(name, reduction):
    check_gradients(lambda x, y: TARGETS[name](x, y, reduction=reduction), sample(3, 4), sample(3, 4, seed=1))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 4, 3), (2, 4, 3, 2)], ids=str)
def test_cross_entropy(shape, weighted, reduction):
    target_shape = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.randint(0, 4, target_shape, generator=torch.Generator().manual_seed(0))
    if target.dim():
        target.view(-1)[1] = -100
    weight = torch.tensor([0.5, 1.0, 2.0, 0.0]) if weighted else None

    def function(x, y):
        return F.cross_entropy(x, y, None if weight is None else weight.to(x.device), reduction=reduction)

    check_gradients(function, sample(*shape), target)
    check_gradients(
        lambda x, y: F.cross_entropy(x, y, reduction=reduction, label_smoothing=0.1), sample(*shape), target
    )
    check_gradients(lambda x, y: F.nll_loss(x, y, reduction=reduction, ignore_index=2), sample(*shape), target.clamp(0))


def test_cross_entropy_edges():
    x = sample(3, 4)
    check(lambda x, y: F.cross_entropy(x, y), x, torch.full((3,), -100))  # nan
    check(lambda x, y: F.cross_entropy(x, y, reduction="sum"), torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    check(lambda x, y: F.nll_loss(x, y), x, torch.tensor([0, 1, 3], dtype=torch.uint8))
    for loss in (F.multi_margin_loss, lambda a, b: F.multi_margin_loss(a, b, p=2, margin=0.5, reduction="none")):
        check_gradients(loss, x, torch.tensor([1, 3, 0]))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_multilabel_margin(reduction):
    labels = torch.tensor([[1, 2, -1, 0], [3, -1, 2, 1], [-1, 0, 1, 2]])
    check_gradients(lambda a, b: F.multilabel_margin_loss(a, b, reduction=reduction), sample(3, 4), labels)


def test_targets_are_checked():
    x = sample(3, 4).tpu()
    with pytest.raises(IndexError, match="out of bounds"):
        F.cross_entropy(x, torch.tensor([0, 1, 4], device="tpu"))
        torch.tpu.synchronize()
    with pytest.raises(RuntimeError, match="expected target dtype to be Long or Byte, but got Int"):
        F.nll_loss(x, torch.zeros(3, dtype=torch.int32, device="tpu"))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(x * 10, x.sigmoid())
        torch.tpu.synchronize()
    with pytest.raises(RuntimeError, match="does not support negative values for beta"):
        F.smooth_l1_loss(x, x, beta=-1.0)
        torch.tpu.synchronize()
    with pytest.raises(RuntimeError, match=r"Given normalized_shape=\[5\], expected input with shape \[\*, 5\]"):
        F.layer_norm(x, (5,))
    assert torch.isfinite(F.cross_entropy(x, torch.tensor([0, 1, 3], device="tpu"))).item()


@pytest.mark.parametrize("weight", [None, torch.bfloat16, torch.float32])
def test_type_of_the_statistics(weight):
    """The statistics that the backward pass takes have the input's type, or the wider one of the parameters."""

    def types(device):
        w = None if weight is None else torch.ones(3, dtype=weight, device=device)
        x = torch.ones(2, 3, dtype=torch.bfloat16, device=device)
        results = torch.native_layer_norm(x, [3], w, w, 1e-5) + torch.native_batch_norm(x, w, w, w, w, True, 0.1, 1e-5)
        return [t.dtype for t in results]

    assert types("tpu") == types("cpu")


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2, 2), (3,)])
def test_nll_loss_weight_of_another_dtype(shape):
    for device in ("cpu", "tpu"):
        target = torch.zeros(shape[:1] + shape[2:] if len(shape) > 1 else (), dtype=torch.int64, device=device)
        with pytest.raises(RuntimeError, match="expected scalar type Double but found Half"):
            F.nll_loss(torch.zeros(shape, dtype=torch.float64, device=device), target, torch.ones(3).half().to(device))
