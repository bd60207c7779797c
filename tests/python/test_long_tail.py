"""Operators that few programs call, each of its own kind."""

import pytest
import torch
import torch.nn.functional as F

from helpers import assert_same, check

pytestmark = pytest.mark.usefixtures("no_fallback")

A = torch.ops.aten
NAN, INF = float("nan"), float("inf")


def sample(*sizes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 9, sizes, generator=generator).to(dtype)


def check_refused(function, *tensors):
    with pytest.raises(Exception) as expected:
        function(*tensors)
    with pytest.raises(expected.type) as actual:
        function(*(t.to("tpu") for t in tensors))
    assert type(actual.value) is expected.type


# --- hash_tensor -----------------------------------------------------------------------------------------------------
HASHED = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", HASHED, ids=str)
def test_hash(dtype):
    x = sample(5, 6, dtype=dtype)
    if dtype != torch.bool and dtype != torch.uint8:
        x = -3 * x
    check(torch.hash_tensor, x)
    check(lambda x: torch.hash_tensor(x, 0, keepdim=True), x.t()[::2])


def test_hash_of_special_values():
    for value in (NAN, -NAN, INF, -INF, 0.0, -0.0, 1e-45, -3e-39, 1.17549435e-38, 3.4028235e38):
        check(torch.hash_tensor, torch.tensor(value))
    check(torch.hash_tensor, torch.tensor([6e-8, -3e-5, 65504.0], dtype=torch.float16))
    check(lambda x: torch.hash_tensor(x, 1), torch.zeros(0, 3))
    check(
        lambda x: torch.hash_tensor(x, (0, -1), out=torch.empty(0, dtype=torch.uint64, device=x.device)), sample(2, 3)
    )


def test_hash_refused():
    check_refused(torch.hash_tensor, torch.zeros(0))
    check_refused(lambda x: torch.hash_tensor(x, 0), torch.zeros(0))
    check_refused(lambda x: torch.hash_tensor(x, 1), torch.zeros(2))
    check_refused(lambda x: torch.hash_tensor(x, (0, 0)), torch.zeros(2))
    check_refused(lambda x: torch.hash_tensor(x, mode=1), torch.zeros(2))
    check_refused(torch.hash_tensor, torch.zeros(2, dtype=torch.complex64))
    check_refused(lambda x: torch.hash_tensor(x, out=torch.empty(0, device=x.device)), torch.zeros(2))


# --- narrow_copy -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bool, torch.complex64], ids=str)
def test_narrow_copy(dtype):
    x = sample(3, 4, dtype=dtype)
    for dim, start, length in ((1, 1, 2), (-1, -3, 2), (0, 3, 0), (0, 0, 3)):
        check(
            lambda x, *place: torch.narrow_copy(x, *(int(p) for p in place)),
            x,
            *map(torch.tensor, (dim, start, length)),
        )
    check(lambda x: torch.narrow_copy(x, 0, 1, 2), x.t())


def test_narrow_copy_out():
    """Into any tensor; the CPU's own kernel ignores the strides of out=."""
    x = sample(3, 4)
    for out in (torch.zeros(3, 2), torch.zeros(2, 3).t(), torch.zeros(0)):
        result = torch.narrow_copy(x.to("tpu"), 1, 1, 2, out=out.to("tpu"))
        assert_same(result, torch.empty_strided((3, 2), out.stride() if out.numel() else (2, 1)).copy_(x[:, 1:3]))


def test_narrow_copy_refused():
    for dim, start, length in ((0, 2, 2), (0, 4, 0), (0, 0, -1), (2, 0, 1), (0, -4, 1)):
        check_refused(lambda x, d=dim, s=start, n=length: torch.narrow_copy(x, d, s, n), sample(3, 4))
    check_refused(lambda x: torch.narrow_copy(x, 0, 0, 1), torch.tensor(1.0))
    check_refused(
        lambda x: torch.narrow_copy(x, 0, 0, 1, out=torch.empty(0, device=x.device)), sample(3, dtype=torch.int8)
    )


# --- zeros without memory --------------------------------------------------------------------------------------------
ZEROS = {
    "add": lambda z, x: z + x,
    "mul": lambda z, x: (z * x).clone(),
    "matmul": lambda z, x: z @ x.t(),
    "sum": lambda z, x: z.sum(),
    "view": lambda z, x: z.t()[1:].clone(),
    "copy": lambda z, x: x.clone().copy_(z),
    "cat": lambda z, x: torch.cat([z, x]),
    "where": lambda z, x: torch.where(x > 0, x, z),
    "clone": lambda z, x: z.clone(),
}


@pytest.mark.parametrize("name", ZEROS)
def test_zero_tensor(name):
    x = sample(2, 3)
    expected = ZEROS[name](torch._efficientzerotensor((2, 3)), x)
    zero = torch._efficientzerotensor((2, 3), device="tpu")
    assert zero._is_zerotensor()
    assert zero.device == torch.device("tpu", 0)
    assert_same(ZEROS[name](zero, x.to("tpu")), expected)


def test_zero_tensor_is_immutable():
    with pytest.raises(RuntimeError, match="immutable"):
        torch._efficientzerotensor((2, 3), device="tpu").add_(1)


@pytest.mark.parametrize("name", ["sgn", "round", "floor", "sign", "ceil"])
def test_gradients_that_are_zero(name):
    def gradient(x):
        x = x.clone().requires_grad_()
        getattr(torch, name)(x).sum().backward()
        return x.grad

    check(gradient, sample(2, 3))


def test_forward_mode():
    def tangent(x, dx):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, dx)
            y = torch.stack([dual * dual, torch.sgn(dual), x * 2])  # a tangent, one of zeros, none
            return torch.autograd.forward_ad.unpack_dual(y).tangent

    check(tangent, sample(2, 3), sample(2, 3, seed=1))


# --- glu in forward mode ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_glu_jvp(dtype):
    x, dx, g, dg = (sample(4, 6, dtype=dtype, seed=i) for i in range(4))
    for dim in (0, -1):
        check(lambda x, dx, d=dim: A.glu_jvp(F.glu(x, d), x, dx, d), x, dx)

        def back(x, dx, g, dg, dim=dim):
            return A.glu_backward_jvp(A.glu_backward(g, x, dim), g, x, dg, dx, dim)

        check(back, x, dx, g.narrow(dim, 0, g.shape[dim] // 2), dg.narrow(dim, 0, g.shape[dim] // 2))
    check(lambda x, dx: A.glu_jvp(F.glu(x, 0), x, dx, 0), x.t(), dx.t())
    check(lambda x, dx: torch.func.jvp(torch.func.grad(lambda v: F.glu(v).sum()), (x,), (dx,))[1], x, dx)


def test_glu_jvp_refused():
    x = sample(2, 4)
    check_refused(lambda x: A.glu_jvp(F.glu(x).half(), x.half(), x.half(), 1), x)
    check_refused(lambda x: A.glu_jvp(x, x, x, 1), x)
    check_refused(lambda x: A.glu_jvp(x[:, :2].long(), x.long(), x.long(), 1), x)


# --- out= forms of pooling -------------------------------------------------------------------------------------------
def test_adaptive_out():
    def run(x, y):
        empty = x.new_empty
        return (
            A.adaptive_avg_pool2d.out(x, [2, 3], out=empty(0)),
            A.adaptive_avg_pool3d.out(y, [2, 3, 1], out=empty(0)),
            A.adaptive_avg_pool3d_backward.grad_input(F.adaptive_avg_pool3d(y, 2), y, grad_input=empty(0)),
        )

    check(run, sample(2, 3, 5, 7), sample(2, 3, 5, 4, 6))
