"""Random programs of views, writes and reads, run on the CPU and on the device side by side.

A program is lines of Python over tensors t0, t1, ... and the device `D`; each line runs in two worlds. After each line
what can be seen without reading a value must agree (sizes, strides, offset, dtype, version, who shares memory with
whom, the exception's class), at reads and at the end the values. Nothing is read in between, so that a program queues
as a user's does. What PyTorch leaves undefined is not written: memory written twice by one operator, and operands
that overlap a result in part without an error.

    python tests/python/programs.py --count 5000        # new seeds; --seed S runs one, --resume goes on
"""

import argparse
import json
import os
import random
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("TORCH_TPU_FAST_COMPILE", "1")
os.environ.setdefault("TORCH_TPU_CACHE", "0")

import torch

FLOATS = ("float32", "float64", "bfloat16", "float16")
DTYPES = FLOATS + ("int64", "int32", "int16", "uint8", "int8", "bool", "complex64")
SHAPES = ((2, 3, 4), (4, 6), (6,), (3, 2), (1, 4), (), (0, 3), (2, 1, 3), (4, 4), (2, 2, 2, 2), (8,))
VALUES = (0, 1, -1, 2, 3, 0.5, -2.5)
MOST = 300.0  # no operand of a product is larger, so that all arithmetic stays exact


class Choices:
    """Draws for a generator of programs; this one from a seed."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def integer(self, low, high):
        return self._random.randint(low, high)

    def pick(self, sequence):
        return sequence[self.integer(0, len(sequence) - 1)]

    def chance(self, percent):
        return self.integer(1, 100) <= percent


class Mismatch(AssertionError):
    pass


def make(shape, dtype, device, start=0, grad=False):
    """Small numbers of every sign that the dtype has, none of them alike beside one another."""
    dtype = getattr(torch, dtype)
    values = (torch.arange(torch.Size(shape).numel()) * 5 + start) % 11
    if dtype == torch.bool:
        values = values % 2
    elif dtype != torch.uint8:
        values = values - 4
    if dtype.is_complex:
        values = torch.complex(values.float(), (values * 3 % 7).float())
    return values.reshape(shape).to(dtype).clone().to(device).requires_grad_(grad)


class World:
    def __init__(self, device):
        self.device = device
        self.names = {"torch": torch, "D": device, "make": make}

    def run(self, line):
        """The exception that the line raised, or None."""
        self.names.pop("r", None)
        try:
            exec(line, self.names)
        except Exception as error:
            return error
        return None


def memory(t):
    """The addresses of a tensor's elements, in bytes, in the order of the elements."""
    where = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(t.shape, t.stride()):
        where = where.unsqueeze(-1) + torch.arange(size) * stride
    return ((where + t.storage_offset()) * t.element_size()).reshape(-1).tolist()


def storage_of(t):
    return t.untyped_storage()._cdata


def grad_of(t):
    """What autograd says of a tensor, or the class of what it raises: a view may have lost its base."""
    try:
        return t.requires_grad, t.is_leaf, t.grad is None
    except RuntimeError as error:
        return type(error)


class Program:
    """Both worlds, the lines so far, and what may be said about the tensors."""

    def __init__(self, choices, check_always=False):
        self.c = choices
        self.cpu, self.tpu = World("cpu"), World("tpu")
        self.lines = []
        self.live = []
        self.count = 0
        self.check_always = check_always

    # ---- what a line may use ----
    def tensor(self, name):
        return self.cpu.names[name]

    def any(self, wanted=lambda t: True):
        found = [name for name in self.live if wanted(self.tensor(name))]
        return self.c.pick(found) if found else None

    def new(self):
        self.count += 1
        return f"t{self.count - 1}"

    def overlaps_itself(self, name):
        addresses = memory(self.tensor(name))
        return len(set(addresses)) != len(addresses)

    def undefined_write(self, name):
        """The elements share memory, and PyTorch's check can't see it: only a stride of 0 is seen."""
        t = self.tensor(name)
        return self.overlaps_itself(name) and not any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape))

    def conflict(self, target, source):
        a, b = self.tensor(target), self.tensor(source)
        if storage_of(a) != storage_of(b):
            return False
        if (a.shape, a.stride(), a.storage_offset(), a.dtype) == (b.shape, b.stride(), b.storage_offset(), b.dtype):
            return False
        first, second = memory(a), memory(b)
        low, high = a.element_size(), b.element_size()
        bytes_a = {x + i for x in first for i in range(low)}
        return any(x + i in bytes_a for x in second for i in range(high))

    def small(self, name):
        t = self.tensor(name).detach()
        return (
            t.numel() == 0 or bool((t.abs() if t.dtype != torch.bool else t).max().item() <= MOST)
            if not (t.is_complex())
            else bool((torch.view_as_real(t.resolve_conj()).abs() <= MOST).all())
        )

    def has_subnormals(self):
        """Bits seen as another type may be; XLA:CPU's arithmetic takes them for zeros."""
        for name in self.live:
            t = self.tensor(name).detach()
            t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
            if t.is_floating_point() and t.dtype != torch.float16:
                size = t.abs()
                if bool(((size > 0) & (size < torch.finfo(t.dtype).tiny)).any()):
                    return True
        return False

    def operand(self, target):
        """A tensor, or a copy of one, that broadcasts to the target's shape; else a number."""
        shape = self.tensor(target).shape

        def fits(t):
            try:
                return torch.broadcast_shapes(t.shape, shape) == shape
            except RuntimeError:
                return False

        source = self.any(fits) if self.c.chance(75) else None
        if source is None or not self.small(source):
            return repr(self.c.pick(VALUES))
        if self.conflict(target, source):
            return f"{source}.clone()"
        return source

    # ---- running ----
    def run(self, line):
        self.lines.append(line)
        expected, actual = self.cpu.run(line), self.tpu.run(line)
        if type(expected) is not type(actual):
            raise Mismatch(f"raised on the CPU: {expected!r}, on the device: {actual!r}")
        for name in [n for n in self.cpu.names if n[0] == "t" and n[1:].isdigit()]:
            if name not in self.live:
                self.live.append(name)
        self.check_seen()
        if "r" in self.cpu.names:
            self.check_value("r", self.cpu.names["r"], self.tpu.names["r"])
        if self.check_always:
            self.check_values()
        return expected

    def forget(self, name):
        self.live.remove(name)
        self.lines.append(f"del {name}")
        del self.cpu.names[name], self.tpu.names[name]

    def check_seen(self):
        for name in self.live:
            a, e = self.tpu.names[name], self.cpu.names[name]
            for what, of_a, of_e in (
                ("device", a.device.type, "tpu"),
                ("shape", a.shape, e.shape),
                ("strides", a.stride(), e.stride()),
                ("offset", a.storage_offset(), e.storage_offset()),
                ("dtype", a.dtype, e.dtype),
                ("version", a._version, e._version),
                ("view", a._is_view(), e._is_view()),
                ("conj", (a.is_conj(), a.is_neg()), (e.is_conj(), e.is_neg())),
                ("grad", grad_of(a), grad_of(e)),
                ("bytes", a.untyped_storage().nbytes(), e.untyped_storage().nbytes()),
            ):
                if of_a != of_e:
                    raise Mismatch(f"{name}: {what} is {of_a}, on the CPU {of_e}")
        for world_a, world_e in zip(self.sharing(self.tpu), self.sharing(self.cpu)):
            if world_a != world_e:
                raise Mismatch(f"memory is shared by {world_a}, on the CPU by {world_e}")

    def sharing(self, world):
        groups = {}
        for name in self.live:
            groups.setdefault(storage_of(world.names[name]), []).append(name)
        return sorted(groups.values())

    def check_value(self, name, a, e):
        if isinstance(e, torch.Tensor):
            a, e = a.detach().cpu().resolve_conj(), e.detach().cpu().resolve_conj()
            if a.dtype != e.dtype or a.shape != e.shape or not torch.equal(a.nan_to_num(77), e.nan_to_num(77)):
                raise Mismatch(f"{name} is\n{a}\non the CPU\n{e}")
        elif a != e and not (a != a and e != e):
            raise Mismatch(f"{name} is {a}, on the CPU {e}")

    def check_values(self):
        for name in self.live:
            a, e = self.tpu.names[name], self.cpu.names[name]
            self.check_value(name, a, e)
            if isinstance(grad_of(e), tuple) and e.grad is not None:
                self.check_value(f"{name}.grad", a.grad, e.grad)

    def text(self):
        return "\n".join(self.lines)


# ---- steps: each gives a line, or None where it has nothing to work on ----
def dim_of(p, t):
    return p.c.integer(-max(t.dim(), 1), max(t.dim(), 1) - (0 if p.c.chance(3) else 1))


def create(p):
    c, name = p.c, p.new()
    shape, dtype = c.pick(SHAPES), c.pick(DTYPES)
    grad = dtype in ("float32", "float64") and c.chance(25)
    form = c.integer(0, 9)
    if form <= 5:
        return f"{name} = make({shape}, '{dtype}', D, {c.integer(0, 9)}, {grad})"
    if form == 6:
        return f"{name} = torch.{c.pick(('zeros', 'ones'))}({shape}, dtype=torch.{dtype}, device=D)"
    if form == 7:
        return f"{name} = torch.arange({c.integer(0, 3)}, {c.integer(4, 9)}, {c.integer(1, 2)}, device=D)"
    like = p.any()
    if form == 8 and like:
        return f"{name} = torch.{c.pick(('zeros_like', 'ones_like'))}({like})"
    if like and c.chance(50):
        return f"{name} = {like}.new_full({shape}, {c.integer(0, 3)})"
    return f"{name} = torch.full({shape}, {c.pick((0, 1, 3))}, dtype=torch.{dtype}, device=D)"


def view(p):
    c, source = p.c, p.any()
    if source is None:
        return None
    t, name = p.tensor(source), p.new()
    d, e, n = dim_of(p, t), dim_of(p, t), t.dim()
    size = t.shape[d] if -n <= d < n else 1
    start, length = c.integer(0, max(size - 1, 0)), c.integer(1, max(size, 1))
    order = list(range(n))
    for i in range(n - 1):
        j = c.integer(i, n - 1)
        order[i], order[j] = order[j], order[i]
    number = t.numel()
    forms = [
        f"transpose({d}, {e})",
        f"permute({order})",
        f"select({d}, {start - (size if c.chance(30) else 0)})",
        f"narrow({d}, {start}, {min(length, max(size - start, 0))})",
        "flatten()",
        "detach()",
        "contiguous()",
        "view(-1)",
        "reshape(-1)",
        f"unsqueeze({d})",
        "squeeze()",
        f"squeeze({d})",
        f"movedim({d}, {e})",
        "mT",
        "T" if n == 2 else "t()",
        f"diagonal({c.integer(-1, 1)}, {d}, {e})",
        f"unfold({d}, {min(length, 3)}, {c.integer(1, 2)})",
        f"chunk({c.integer(1, 3)}, {d})[-1]",
        f"split({length}, {d})[0]",
        f"tensor_split({c.integer(1, 3)}, {d})[-1]",
        f"unbind({d})[{c.pick((0, -1))}]",
        f"unflatten({d}, ({length}, -1))",
        f"expand({[c.integer(2, 3), *([s if s != 1 or c.chance(30) else 3 for s in t.shape])]})",
        f"expand_as({p.any()})",
        f"view({[length, -1]})",
        f"reshape({[-1, c.pick((1, 2, 3, 4))]})",
        f"view_as({p.any()})",
        f"view(torch.{c.pick(DTYPES)})",
        "conj()",
        "real",
        "imag",
        "view_as_real(x)",
        "view_as_complex(x)",
        f"swapaxes({d}, {e})",
        "ravel()",
        "alias(x)",
        "atleast_2d(x)",
        f"[{index(p, t, source, views=True)}]",
        f"[{index(p, t, source, views=True)}]",
        f"[{index(p, t, source, views=True)}]",
        f"as_strided({strided(p, t)})",
        f"as_strided({strided(p, t)})",
        f"to(torch.{str(t.dtype)[6:]})",
        "data",
        f"T.reshape({[number]})",
    ]
    form = c.pick(forms)
    if form.startswith("view(torch.") and "bool" in form + str(t.dtype):
        return None  # bytes other than 0 and 1 are no booleans
    if form.endswith("(x)"):
        where = "torch.ops.aten" if form.startswith("alias") else "torch"
        if form.startswith("view_as_complex") and t.dtype == torch.float16:
            return None  # complex numbers of halves are not supported
        return f"{name} = {where}.{form[:-3]}({source})"
    return f"{name} = {source}{'' if form[0] == '[' else '.'}{form}"


def strided(p, t):
    """Sizes, strides and an offset that stay inside the storage."""
    c = p.c
    room = t.untyped_storage().nbytes() // t.element_size()
    sizes = [c.integer(1, 3) for _ in range(c.integer(0, 3))]
    strides = [c.integer(0 if c.chance(20) else 1, 4) for _ in sizes]
    last = sum((n - 1) * s for n, s in zip(sizes, strides))
    if last >= room:
        sizes, strides, last = [0], [1], room
    return f"{sizes}, {strides}, {c.integer(0, max(room - last - 1, 0))}"


def index(p, t, target, views=False):
    """A subscript for t; with `views` one that copies nothing."""
    c, parts = p.c, []
    skip = c.integer(0, t.dim()) if c.chance(30) else None
    tensors = 0
    for d, size in enumerate(t.shape):
        if skip == d:
            parts.append("...")
            break
        if c.chance(10):
            parts.append("None")
        kind = c.integer(0, 9)
        if kind <= 2 and size:
            parts.append(str(c.integer(-size, size - 1)))
        elif kind <= 6 or views or not size:
            low = c.integer(0, size)
            parts.append(f"{low or ''}:{c.pick(('', str(c.integer(low, size))))}:{c.pick(('', '', '2', '3'))}")
        elif kind <= 8 and not tensors:
            tensors += 1
            places = list(range(-size, size))
            chosen = [places.pop(c.integer(0, len(places) - 1)) for _ in range(c.integer(1, min(size, 3)))]
            # No place twice: what a write would leave there is undefined.
            chosen = list({x % size: x for x in chosen}.values())
            parts.append(f"torch.tensor({chosen}, device=D)" if c.chance(70) else str(chosen))
        else:
            parts.append(":")
        if c.chance(25):
            break
    return ", ".join(parts) or "..."


def in_place(p):
    """Unary, or with one operand."""
    c, target = p.c, p.any()
    if target is None or p.undefined_write(target):
        return None
    t = p.tensor(target)
    form = c.integer(0, 11)
    if form <= 2:
        unary = c.pick(("zero_()", "neg_()", "abs_()", "fill_(3)", "clamp_(-2, 5)", "sign_()", "square_()", "relu_()"))
        if unary == "square_()" and not p.small(target):
            return None
        return f"{target}.{unary}"
    if form == 3:
        # Some that leave certain dtypes alone do so on the CPU without a look at whether the target overlaps itself.
        more = () if p.overlaps_itself(target) else ("conj_physical_()", "nan_to_num_()")
        return f"{target}.{c.pick(('logical_not_()', 'bitwise_not_()', 'trunc_()', *more))}"
    if form <= 6:
        if not p.small(target):
            return f"{target}.zero_()"
        last = "copysign_" if t.is_floating_point() else "eq_"
        return f"{target}.{c.pick(('add_', 'sub_', 'mul_', 'add_', last))}({p.operand(target)})"
    if form == 7:
        return f"{target}.{c.pick(('eq_', 'lt_', 'ge_', 'logical_and_', 'logical_or_', 'ne_'))}({p.operand(target)})"
    operator = c.pick(("+=", "-=", "*=", "+="))
    if form == 8 and p.small(target):
        return f"{target} {operator} {p.operand(target)}"
    return copy(p)


def castable(source, target):
    """What a conversion gives is defined: the numbers are in the target's range."""
    if target.is_floating_point or target.is_complex or target == torch.bool or source.numel() == 0:
        return True
    s = source.detach().resolve_conj()
    if s.is_complex():
        s = s.real
    if s.dtype == torch.bool:
        return True
    limits = torch.iinfo(target)
    return bool(((s >= max(limits.min, -120)) & (s <= min(limits.max, 120))).all())


def copy(p):
    c, target = p.c, p.any()
    source = p.any()
    if target is None or p.undefined_write(target) or not castable(p.tensor(source), p.tensor(target).dtype):
        return None
    if p.conflict(target, source) and not c.chance(10):
        source = f"{source}.clone()"
    elif p.conflict(target, source) and not both_dense(p, target, source):
        return None
    return f"{target}.copy_({source})"


def both_dense(p, target, source):
    """Operands whose partial overlap PyTorch sees, and refuses."""
    return all(torch._debug_has_internal_overlap(p.tensor(x)) == 0 for x in (target, source))


def set_item(p):
    c, target = p.c, p.any()
    # Writes by index to expanded tensors, which the CPU warns of, are refused on the device.
    if target is None or p.overlaps_itself(target):
        return None
    t = p.tensor(target)
    if c.chance(15):
        mask = p.any(lambda m: m.dtype == torch.bool and m.dim() <= t.dim() and m.shape == t.shape[: m.dim()])
        if mask and not p.conflict(target, mask):
            return f"{target}[{mask}] = {c.pick(VALUES)}"
        return f"{target}[{target} > 1] = {c.pick(VALUES)}" if not t.is_complex() else None
    subscript = index(p, t, target)
    chosen = World("cpu")
    chosen.names["t"] = t.detach().clone()
    if chosen.run(f"r = t[{subscript}]") is not None:
        return None
    piece = chosen.names["r"]
    if c.chance(50):
        return f"{target}[{subscript}] = {c.pick(VALUES)}"

    def fits(s):
        try:
            # The CPU assigns a 0-d tensor by fill_, after which even whole numbers require a gradient.
            odd = s.requires_grad and s.dim() == 0 and not t.is_floating_point()
            return torch.broadcast_shapes(s.shape, piece.shape) == piece.shape and castable(s, t.dtype) and not odd
        except RuntimeError:
            return False

    source = p.any(fits)
    if source is None:
        return f"{target}[{subscript}] {c.pick(('+=', '-='))} 1" if t.dtype != torch.bool and p.small(target) else None
    return f"{target}[{subscript}] = {source}{'.clone()' if p.conflict(target, source) else ''}"


def scatter(p):
    """Writes by index."""
    c, target = p.c, p.any(lambda t: t.dim() >= 1 and t.numel() > 0)
    if target is None or p.overlaps_itself(target) or not p.small(target):
        return None
    t = p.tensor(target)
    d = c.integer(0, t.dim() - 1)
    size = t.shape[d]
    picks = list(range(size))
    chosen = [picks.pop(c.integer(0, len(picks) - 1)) for _ in range(c.integer(1, min(size, 2)))]
    places = f"torch.tensor({chosen}, device=D)"
    shape = [*t.shape[:d], len(chosen), *t.shape[d + 1 :]]
    kind = str(t.dtype)[6:]
    source = f"make({shape}, '{kind}', D, {c.integer(0, 9)})"
    whole = [1] * t.dim()
    whole[d] = len(chosen)
    grid = f"torch.tensor({chosen}, device=D).reshape({whole}).expand({shape})"
    mask = f"make({list(t.shape)}, 'bool', D, {c.integer(0, 9)})"
    return f"{target}." + c.pick(
        (
            f"index_fill_({d}, {places}, {c.pick(VALUES)})",
            f"index_add_({d}, {places}, {source})",
            f"index_copy_({d}, {places}, {source})",
            f"scatter_({d}, {grid}, {source})",
            f"scatter_({d}, {grid}, {c.integer(0, 3)})",
            f"scatter_add_({d}, {grid}, {source})",
            f"masked_fill_({mask}, {c.pick(VALUES)})",
            f"masked_scatter_({mask}, make({[t.numel()]}, '{kind}', D, 2))",
            f"put_(torch.tensor({[c.integer(0, t.numel() - 1)]}, device=D), make([1], '{kind}', D, 5))",
            f"index_put_((torch.tensor({[c.integer(0, t.shape[0] - 1)]}, device=D),), make([], '{kind}', D, 3))",
            f"index_put_((torch.tensor({[0, 0]}, device=D),), make([], '{kind}', D, 6), accumulate=True)",
            f"fill_diagonal_({c.integer(0, 3)})",
        )
    )


def functional(p):
    c, source = p.c, p.any()
    if source is None or not p.small(source):
        return None
    t, name = p.tensor(source), p.new()
    d = dim_of(p, t)
    other = p.operand(source).replace(".clone()", "")
    same = p.any(lambda s: s.dtype == t.dtype and s.dim() == t.dim())
    form = c.pick(
        (
            f"{source} + {other}",
            f"{source} * {other}",
            f"{other} - {source}",
            f"-{source}",
            f"{source} > {other}",
            f"{source} == {other}",
            f"{source}.sum({d})",
            f"{source}.sum()",
            f"{source}.amax({d})" if t.numel() else f"{source}.abs()",
            f"{source}.cumsum({d})",
            f"torch.cat([{source}, {same}], {d})",
            f"torch.stack([{source}, {source}], {d})",
            f"{source}.flip({min(d, t.dim() - 1)})",
            f"{source}.roll(1, {d})" if t.dim() else f"{source}.clone()",
            f"torch.where({source} != 0, {source}, {source})",
            f"{source}.clone()",
            f"{source}.clone(memory_format=torch.contiguous_format)",
            f"{source}.to(torch.{c.pick(FLOATS)})",
            f"{source}.repeat({[2] * t.dim()})",
            f"{source}.tril()" if t.dim() >= 2 else f"{source}.bool()",
            f"{source}.sort({d}, stable=True)[0]"
            if not t.is_complex()
            else f"{source}.abs().round()",  # magnitudes are not exact, on neither device
            f"{source}[{index(p, t, source)}]",
            f"{source} @ {source}.mT" if t.dim() >= 2 and t.is_floating_point() else f"{source}.any()",
            f"torch.nn.functional.pad({source}, (1, 1))" if t.dim() and t.dtype != torch.bool else f"{source}.all()",
        )
    )
    return f"{name} = {form}"


def out(p):
    """A result written into a tensor that is there."""
    c, target = p.c, p.any()
    if target is None or p.overlaps_itself(target) or p.tensor(target).requires_grad:
        return None
    t = p.tensor(target)
    source = p.any(lambda s: s.shape == t.shape and s.dtype == t.dtype and not s.requires_grad)
    if source is None or not p.small(source):
        return None
    x = f"{source}.clone()" if p.conflict(target, source) else source
    return c.pick(
        (
            f"torch.add({x}, 2, out={target})",
            f"torch.mul({x}, {x}, out={target})",
            f"torch.neg({x}, out={target})",
            f"torch.cumsum({x}.clone(), 0, out={target})",
            f"torch.clone({x}).abs_()",
            f"torch.cat([{x}.clone()], 0, out={target})" if t.dim() else f"torch.abs({x}, out={target})",
            f"torch.maximum({x}, {x}, out={target})",
            f"torch.stack([{x}.clone()], 0, out={target})",
        )
    )


def rebind(p):
    """Changes of a tensor rather than of its values."""
    c, target = p.c, p.any()
    if target is None:
        return None
    t, other = p.tensor(target), p.any()
    d, e = dim_of(p, t), dim_of(p, t)
    form = c.pick(
        (
            f"{target}.t_()",
            f"{target}.transpose_({d}, {e})",
            f"{target}.squeeze_({d})",
            f"{target}.unsqueeze_({d})",
            f"{target}.as_strided_({strided(p, t)})",
            f"{target}.resize_({list(c.pick(((2, 2), (6,), tuple(t.shape), (1, 3))))})",
            f"{target}.resize_as_({other})",
            f"{target}.set_({other})",
            f"{target}.set_({target}.untyped_storage(), {strided_set(p, t)})",
            f"{target}.data = {other}",
            f"{target}.data = {other}.clone()",
            f"{target}.detach_()",
            f"{target}.swapaxes_({d}, {e})",
            f"{target}.data.fill_({c.integer(0, 3)})" if not p.undefined_write(target) else f"{target}.detach_()",
            f"{target}.data.copy_({target}.detach() + 1)"
            if not p.undefined_write(target) and p.small(target) and t.dtype != torch.uint8
            else f"{target}.t_()",
        )
    )
    if "resize_" in form and grows(p, target, form):
        return f"{form}.fill_(1)"  # what new memory holds is undefined
    return form


def strided_set(p, t):
    text = strided(p, t)
    cut = text.index("], [") + 1
    strides, offset = text[cut + 2 :].rsplit(", ", 1)
    return f"{offset}, {text[:cut]}, {strides}"


def grows(p, target, form):
    t = p.tensor(target)
    room = t.untyped_storage().nbytes()
    trial = World("cpu")
    trial.names["x"] = t.detach()
    if "resize_as_" in form:
        needed = p.tensor(form[form.index("resize_as_(") + 11 : -1]).numel()
    else:
        needed = torch.Size(eval(form[form.index("resize_(") + 8 : -1])).numel()
    return (needed + t.storage_offset()) * t.element_size() > room


def read(p):
    c, source = p.c, p.any()
    if source is None:
        return None
    t, other = p.tensor(source), p.any()
    real = f"{source}.detach()"
    return "r = " + c.pick(
        (
            f"{source}.tolist()",
            f"{source}.cpu().clone()",
            f"{source}.sum().item()" if p.small(source) else f"{source}.numel()",
            f"{real}.flatten()[0].item()" if t.numel() else f"{source}.shape",
            f"torch.equal({source}, {other})",
            f"bool({source}.any())",
            f"({source} == {source}).all().item()",
            f"{source}.item()",
            f"{source}.detach().cpu().resolve_conj().resolve_neg().numpy().tolist()"
            if t.dtype != torch.bfloat16
            else f"{source}.tolist()",
            f"''.join(repr({source}).replace('device=\\'tpu:0\\'', '').replace(',', ' ').split())"
            if not t.is_complex()  # the signs of their zeros differ
            else f"{source}.tolist()",
            f"int({source}.numel() and {real}.reshape(-1)[-1] != 0)",
            f"{real}.nonzero()",
            f"({source} != 0).sum().item()",
        )
    )


def gradient(p):
    """Backward from one tensor, or a hook."""
    c, source = p.c, p.any(lambda t: t.requires_grad)
    if source is None:
        return None
    t = p.tensor(source)
    form = c.integer(0, 6)
    if form == 0:
        return f"{source}.register_hook(lambda g: g * 2)"
    if form == 1 and not t.is_leaf:
        return f"{source}.retain_grad()"
    if form == 2:
        return (
            f"with torch.no_grad(): {source}.{c.pick(('mul_(2)', 'zero_()', 'add_(1)'))}"
            if (not p.undefined_write(source) and p.small(source))
            else None
        )
    if form == 3:
        name = p.new()
        return f"with torch.no_grad(): {name} = {source}.view(-1)[::2]"
    if form == 4:
        return f"{source}.requires_grad_(False)"
    return f"{source}.sum().backward(retain_graph={c.chance(60)})"


STEPS = (
    (
        [view] * 9
        + [in_place] * 5
        + [copy] * 2
        + [set_item] * 4
        + [scatter] * 3
        + [functional] * 4
        + [out]
        + [rebind] * 2
    )
    + [read] * 2
    + [gradient] * 2
    + [create] * 2
)


def run_program(choices, length=14, check_always=False):
    """Runs one program; Mismatch, with its text, where the worlds differ."""
    p = Program(choices, check_always)
    try:
        p.run(create(p))
        tries = 0
        while len(p.lines) < length and tries < 4 * length:
            tries += 1
            if len(p.live) > 9:
                p.forget(p.live[choices.integer(0, len(p.live) - 1)])
            line = choices.pick(STEPS)(p)
            if line is not None:
                p.run(line)
            if p.has_subnormals():
                break
        p.check_values()
    except Mismatch as error:
        raise Mismatch(f"{error}\nprogram:\n{p.text()}") from None
    except Exception:
        raise Mismatch(f"{traceback.format_exc()}\nprogram:\n{p.text()}") from None
    return p


def run_fused(seed, times=3):
    """Runs a program until it is known: what ran step by step is then compiled as one, and runs as that."""
    for _ in range(times):
        program = run_program(Choices(seed))
        torch.tpu.wait_for_compiles()
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, help="runs this program alone, with a check after each line")
    parser.add_argument("--first", type=int, help="the first of the seeds (new ones if it is not given)")
    parser.add_argument("--shard", default="0/1", help="K/N: every N-th seed, from the K-th")
    parser.add_argument("--resume", action="store_true", help="the seeds of the last run that are not done")
    parser.add_argument("--mode", default="strict", choices=("strict", "debug", "fused"))
    parser.add_argument("--output", default="build/programs/results.jsonl")
    options = parser.parse_args()
    torch.tpu.set_eager_mode(options.mode)
    import warnings

    warnings.simplefilter("ignore")
    if options.seed is not None:
        print(run_program(Choices(options.seed), check_always=True).text())
        return 0
    shard, shards = map(int, options.shard.split("/"))
    path = Path(options.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    done, first = {}, options.first
    if options.resume and path.exists():
        for record in map(json.loads, path.read_text().splitlines()):
            if "first" in record:
                first = record["first"]
            else:
                done[record["seed"]] = record
    else:
        path.write_text("")
    first = first if first is not None else int(time.time()) * 100_000
    started, ran, failed = time.monotonic(), 0, [s for s, r in done.items() if r["error"]]
    with path.open("a") as log:
        log.write(json.dumps({"first": first, "mode": options.mode}) + "\n")
        for seed in range(first + shard, first + options.count, shards):
            if seed in done:
                continue
            # A program that ends the process leaves this line, and is not run again.
            log.write(json.dumps({"seed": seed, "error": "the process ended"}) + "\n")
            log.flush()
            error = None
            try:
                run_fused(seed) if options.mode == "fused" else run_program(Choices(seed))
            except Mismatch as mismatch:
                error = str(mismatch)
                failed.append(seed)
                print(f"seed {seed}: {error}\n", flush=True)
            log.write(json.dumps({"seed": seed, "error": error}) + "\n")
            ran += 1
    print(
        f"{ran} programs in {time.monotonic() - started:.0f} s, from seed {first}: {len(failed)} failed {failed[:20]}"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
