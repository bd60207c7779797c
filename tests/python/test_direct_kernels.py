"""Kernels that do without what PyTorch puts between an operator and the device: nobody may notice."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import both, check

CPU_AND_TPU = pytest.mark.parametrize("device", ["cpu", "tpu"])


def numbers(*sizes, seed=0, dtype=torch.float32):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.names.append(function.name())
        return function(*arguments, **(keywords or {}))


def outcome(function):
    """What a call gives, or the class of what it raises."""
    try:
        return function()
    except Exception as error:
        return type(error)


# ---- layer_norm: one program if nobody looks, PyTorch's composition otherwise ----
X, W, B = numbers(3, 8), numbers(8, seed=1), numbers(8, seed=2)


def norm(x, w=None, b=None, eps=1e-5):
    return F.layer_norm(x, (8,), w, b, eps)


PLAIN = {
    "affine": lambda x, w, b: norm(x, w, b),
    "weight alone": lambda x, w, b: norm(x, w),
    "bias alone": lambda x, w, b: norm(x, None, b),
    "bare": lambda x, w, b: norm(x),
    "other epsilon": lambda x, w, b: norm(x, w, b, 0.3),
    "zero epsilon": lambda x, w, b: norm(x, w, b, 0.0),
    "strided": lambda x, w, b: norm(x.t().contiguous().t()[::2], w.flip(0), b[:1].expand(8)),
    "two dims": lambda x, w, b: F.layer_norm(x, (3, 8)),
    "no rows": lambda x, w, b: norm(x[:0], w, b),
    "low precision": lambda x, w, b: norm(x.bfloat16(), w, b),
    "lazy negative": lambda x, w, b: norm(torch._neg_view(x), torch._neg_view(w), b),
    "in module": lambda x, w, b: torch.nn.LayerNorm(8, elementwise_affine=False)(x),
}


@pytest.mark.parametrize("name", PLAIN)
def test_layer_norm(name):
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if name == "low precision" else {"rtol": 1e-5, "atol": 1e-5}
    check(PLAIN[name], X, W, B, **tolerance)
    with torch.inference_mode():
        check(PLAIN[name], X, W, B, **tolerance)


WRONG = {
    "shape": lambda x, w, b: F.layer_norm(x, (4,)),
    "no shape": lambda x, w, b: F.layer_norm(x, ()),
    "weight's shape": lambda x, w, b: norm(x, w[:4], b),
    "bias' shape": lambda x, w, b: norm(x, w, b[:4]),
    "integers": lambda x, w, b: norm(x.long()),
    "rank": lambda x, w, b: F.layer_norm(x[0, 0], (8,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_layer_norm_refuses(name):
    actual, expected = both(lambda *operands: outcome(lambda: WRONG[name](*operands)), X, W, B)
    assert isinstance(expected, type) and actual is expected


def test_layer_norm_refuses_a_cpu_operand():
    with pytest.raises(RuntimeError):
        norm(X.tpu(), W)
    with pytest.raises(RuntimeError):
        norm(X, W.tpu())


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1, 2)])
def test_layer_norm_gradients(wanted):
    def gradients(*operands):
        operands = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(operands)]
        y = norm(*operands)
        first = torch.autograd.grad((y**3).sum(), [operands[i] for i in wanted], create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), [operands[i] for i in wanted])
        with torch.no_grad():
            assert norm(*operands).grad_fn is None and not norm(*operands).requires_grad
        return (y.detach(), *(g.detach() for g in first), *second)

    actual, expected = both(gradients, X, W, B)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-3)


def tangent_of(x, w, b, t):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, t)
        with torch.no_grad():
            return tuple(torch.autograd.forward_ad.unpack_dual(norm(dual, w, b)))


TRANSFORMED = {
    "forward mode": tangent_of,
    "jvp": lambda x, w, b, t: torch.func.jvp(lambda x: norm(x, w, b), (x,), (t,))[1],
    "grad": lambda x, w, b, t: torch.func.grad(lambda x: (norm(x, w, b) ** 3).sum())(x),
    "vmap": lambda x, w, b, t: torch.func.vmap(lambda x: norm(x, w, b))(torch.stack([x, t])),
    "vmap of weights": lambda x, w, b, t: torch.func.vmap(lambda w: norm(x, w, b))(torch.stack([w, b])),
    "per-sample gradient": lambda x, w, b, t: torch.func.vmap(torch.func.grad(lambda x: norm(x, w, b)[0].sum()))(
        torch.stack([x, t])
    ),
    "functionalize": lambda x, w, b, t: torch.func.functionalize(lambda x: norm(x, w, b))(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_layer_norm_transformed(name):
    actual, expected = both(TRANSFORMED[name], X, W, B, numbers(3, 8, seed=3))
    torch.testing.assert_close(torch.utils._pytree.tree_map(lambda t: t.cpu(), actual), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layer_norm_under_autocast_is_float32(dtype):
    with torch.autocast("tpu", dtype):
        y = norm(X.to("tpu", dtype), W.to("tpu", dtype), B.to("tpu", dtype))
    expected = norm(X.to(dtype).float(), W.to(dtype).float(), B.to(dtype).float())
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-4)


@CPU_AND_TPU
def test_layer_norm_is_traced_as_its_parts(device):
    x, w, b = X.to(device), W.to(device), B.to(device)
    parts = ["aten::native_layer_norm"]
    with Seen() as seen:
        norm(x, w, b)
    assert seen.names == parts
    for tracing_mode in ("real", "fake", "symbolic"):
        graph = make_fx(lambda x, w, b: norm(x, w, b), tracing_mode=tracing_mode)(x, w, b)
        targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        assert targets[0] == "aten.native_layer_norm.default", targets
        torch.testing.assert_close(graph(x, w, b), norm(x, w, b), rtol=1e-5, atol=1e-5)
    program = torch.export.export(torch.nn.LayerNorm(8).to(device), (x,)).run_decompositions()
    assert "native_layer_norm" in str(program.graph)
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = norm(torch.empty(3, 8, device=device), w, b)
    assert fake.shape == (3, 8) and fake.device.type == device


def test_layer_norm_of_subclasses():
    class Named(torch.Tensor):
        calls = []

        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            cls.calls.append(function.__name__)
            return super().__torch_function__(function, types, arguments, keywords or {})

    class Wrapper(torch.Tensor):
        names = []

        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
            cls.names.append(function.name())
            plain = torch.utils._pytree.tree_map_only(cls, lambda t: t.inner, arguments)
            return torch.utils._pytree.tree_map_only(torch.Tensor, cls, function(*plain, **(keywords or {})))

    class Mode(TorchFunctionMode):
        seen = False

        def __torch_function__(self, function, types, arguments=(), keywords=None):
            Mode.seen = Mode.seen or function in (F.layer_norm, torch.layer_norm)
            return function(*arguments, **(keywords or {}))

    x, w, b = X.tpu(), W.tpu(), B.tpu()
    y = norm(x.as_subclass(Named), w, b)
    assert type(y) is Named and "layer_norm" in Named.calls
    z = norm(Wrapper(x), w, b)
    assert type(z) is Wrapper and Wrapper.names == ["aten::native_layer_norm"]
    with Mode():
        norm(x, w, b)
    assert Mode.seen
    for result in (y.as_subclass(torch.Tensor), z.inner):
        torch.testing.assert_close(result.cpu(), norm(X, W, B), rtol=1e-5, atol=1e-5)


def test_layer_norm_without_gradients_has_one_result():
    x, w, b = X.tpu(), W.tpu(), B.tpu()
    torch.tpu.set_eager_mode("strict")
    norm(x, w, b)
    gc.collect()
    before, live = torch.tpu.counters()["executions"], torch.tpu.memory_allocated()
    y = norm(x, w, b)
    torch.tpu.synchronize()
    assert torch.tpu.counters()["executions"] == before + 1
    assert torch.tpu.memory_allocated() == live + y.nbytes


# ---- copy_ ----
COPIES = {
    "all of it": lambda a, b: a.copy_(b),
    "itself": lambda a, b: a.copy_(a),
    "part": lambda a, b: a[1:3].copy_(b[:2]),
    "steps": lambda a, b: a[::2, ::3].copy_(b[::2, 1::3]),
    "transposed": lambda a, b: a.t().copy_(b.t()),
    "row to all": lambda a, b: a.copy_(b[0]),
    "column to all": lambda a, b: a.copy_(b[:, :1]),
    "more dims": lambda a, b: a.unsqueeze(0).copy_(b),
    "0-d": lambda a, b: a.copy_(b[0, 0]),
    "0-d of the CPU": lambda a, b: a.copy_(torch.tensor(2.5)),
    "of the CPU": lambda a, b: a[1:].copy_(torch.ones(3, 6, dtype=torch.float64)),
    "nothing": lambda a, b: a[:0].copy_(b[:0]),
    "assignment": lambda a, b: a.__setitem__(slice(1, 3), b[:2]),
    "assignment of a row": lambda a, b: a.__setitem__((slice(None), 2), b[:, 0]),
    "assignment of a number": lambda a, b: a.__setitem__(slice(1, 2), 7),
    "to lazy negative": lambda a, b: torch._neg_view(a).copy_(b),
    "of lazy negative": lambda a, b: a.copy_(torch._neg_view(b)),
    "whole onto itself": lambda a, b: a[1:].copy_(a[1:]),
    # refused
    "partly onto itself": lambda a, b: a.view(-1)[1:].copy_(a.view(-1)[:-1]),
    "to expanded": lambda a, b: a[:1].expand(4, 6).copy_(b),
    "wrong sizes": lambda a, b: a.copy_(b[:3]),
    "too many dims": lambda a, b: a.copy_(b.unsqueeze(0)),
    "larger": lambda a, b: a[:1].copy_(b),
    "meta": lambda a, b: a.copy_(torch.empty(4, 6, device="meta")),
    "leaf": lambda a, b: a.requires_grad_().copy_(b),
}
TYPES = [
    (torch.float32, torch.float32),
    (torch.float32, torch.bfloat16),
    (torch.int32, torch.float32),
    (torch.bool, torch.float32),
    (torch.complex64, torch.float32),
]


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("name", COPIES)
def test_copy(name, types):
    if name == "leaf" and not types[0].is_floating_point:
        pytest.skip("integers have no gradients")
    if "negative" in name and torch.bool in types:
        pytest.skip("booleans can't be negative")

    def run(a, b):
        result = outcome(lambda: COPIES[name](a, b))
        return result if isinstance(result, type) else a.detach()

    a, b = numbers(4, 6).mul(3).to(types[0]), numbers(4, 6, seed=1).mul(3).to(types[1])
    actual, expected = both(run, a, b)
    if isinstance(expected, type):
        assert actual is expected
    else:
        torch.testing.assert_close(actual.cpu(), expected)


def test_copy_of_lazy_conjugates():
    check(lambda a, b: a.copy_(b.conj()), numbers(4).to(torch.complex64), numbers(4, seed=1) * 1j)
    check(lambda a, b: a.conj().copy_(b), numbers(4).to(torch.complex64), numbers(4, seed=1) * 1j)


def test_copy_is_seen_by_autograd():
    def run(a, b):
        b = b.detach().requires_grad_()
        base = a * 2
        version = base._version
        base[1:3].copy_(b)
        base[0] = b[1]
        assert base._version == version + 2
        (base**2).sum().backward()
        return b.grad

    actual, expected = both(run, numbers(4, 6), numbers(2, 6, seed=1))
    torch.testing.assert_close(actual.cpu(), expected)
    with torch.inference_mode():
        check(lambda a, b: a[1:3].copy_(b), numbers(4, 6), numbers(2, 6, seed=1))


@CPU_AND_TPU
def test_copy_is_traced_as_itself(device):
    a, b = numbers(4).to(device), numbers(4, seed=1).to(device)
    with Seen() as seen:
        a.copy_(b)
    assert seen.names == ["aten::copy_"]
    torch.func.vmap(lambda a, b: a.copy_(b))(a, b + 1)
    torch.testing.assert_close(a, b + 1)


# ---- forms with common signatures, which are called without a stack ----
def test_direct_forms_take_what_boxed_ones_take():
    z, w = torch.complex(numbers(3), numbers(3, seed=1)), torch.complex(numbers(3, seed=2), numbers(3, seed=3))
    check(lambda z, w: torch.add(z.conj(), w, alpha=2), z, w)
    check(lambda z, w: z * w.conj(), z, w)
    check(lambda z, w: (z.imag + w.conj().imag).exp(), z, w)
    check(lambda z, w: torch.mm(z.conj()[None], w[:, None].conj()), z, w)
    check(lambda x: x + torch.tensor(2.0), X)
    check(lambda x: torch.tensor(2, dtype=torch.float64) * x, X)
    check(lambda x: x.bfloat16() + torch.tensor(2.0, dtype=torch.float64), X)
    check(lambda x: torch.addmm(x[:, 0], x[:, :3], x[:, 3:6], beta=0.5, alpha=2), X)
    check(lambda x: torch.sub(x, 2, alpha=3), X)
    assert torch.ops.aten.add.Tensor(X.tpu(), X.tpu(), alpha=2).device.type == "tpu"


REFUSED = {
    "integers": lambda x: torch.add(x.long(), x.long(), alpha=0.5),
    "sizes": lambda x: x + x[:, :3],
    "cpu": lambda x: x.to("tpu") + torch.ones(3, 8),
    "matrices": lambda x: torch.mm(x, x),
    "types": lambda x: torch.mm(x, x.t().double()),
    "bitwise": lambda x: x & x,
}


@pytest.mark.parametrize("name", REFUSED)
def test_direct_forms_refuse(name):
    actual, expected = both(lambda x: outcome(lambda: REFUSED[name](x)), X)
    assert actual is expected and isinstance(expected, type)
