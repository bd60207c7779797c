"""Checks one entry of PyTorch's OpInfo database in one dtype: device "tpu" against the CPU.

A `Check` reports each difference as a `Failure`: its kind, the stage, a message. The kinds:
raised      an exception where the CPU has none; `exception`: of another class than the CPU's
no error    the reverse of raised, of operands that are bad; `accepts`: of a sample that the CPU does not support
value       numbers differ; `precision`: beyond the dtype's tolerance, but within 1e-3, or as near as
            the CPU's to those of the same call in float64
shape, dtype, device, stride, structure
alias       a result shares its storage with other tensors than on the CPU, or lies elsewhere in it
input       an operand was changed, or was not
grad        a gradient is missing, or is one too many
"""

import contextlib
import time
import warnings
from dataclasses import asdict, dataclass
from unittest import mock

import skips
import torch
from torch.testing._comparison import default_tolerances
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

DEVICE = "tpu"
# Differences that leave the entry usable: counted, and listed apart from failures.
SOFT = {"stride", "precision", "accepts"}
LOOSE = 1e-3
MESSAGE = 400
SEED = 42  # that of `wrapper_set_seed`, which wraps random entries


@dataclass
class Failure:
    kind: str
    stage: str
    message: str


class Skip(Exception):
    """The part of the check cannot be done; the reason is the message."""


def is_strided(tensor):
    return tensor.layout is torch.strided and not tensor.is_nested


def storage_id(tensor):
    return tensor.untyped_storage()._cdata


def leaves_of(result):
    """The tensors in a result."""
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]


class Mover:
    """Copies arguments to a device with their strides, offsets and shared storages."""

    def __init__(self, device=DEVICE):
        self.device = device
        self.storages = {}
        self.tensors = {}

    def tensor(self, source):
        if id(source) in self.tensors:
            return self.tensors[id(source)][1]
        moved = self._copy(source)
        if not source.is_leaf and source.requires_grad:
            raise Skip("an operand with a history")
        moved.requires_grad_(source.requires_grad)
        self.tensors[id(source)] = (source, moved)  # holds the source, whose id is the key
        return moved

    def _copy(self, source):
        if not is_strided(source):
            raise Skip(f"an operand of layout {source.layout}")
        if source.device.type != "cpu":
            raise Skip(f"an operand on {source.device}")
        plain = source.detach()
        if plain.is_conj():
            return self._copy(plain.conj()).conj()
        if plain.is_neg():
            return self._copy(torch._neg_view(plain))._neg_view()
        storage = plain.untyped_storage()
        count = storage.nbytes() // plain.element_size()
        key = (storage._cdata, plain.dtype)
        if key not in self.storages:
            flat = torch.empty(0, dtype=plain.dtype).set_(storage, 0, (count,), (1,))
            self.storages[key] = (storage, flat.to(self.device, copy=True))
        flat = self.storages[key][1]
        if plain.is_contiguous() and plain.numel() == count:
            return flat.view(plain.shape)
        return flat.as_strided(plain.size(), plain.stride(), plain.storage_offset())

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.Generator):
            return torch.Generator(self.device).manual_seed(value.initial_seed())
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return type(value)(self.device)
        return value

    def call(self, call):
        """The call with its arguments on the device."""
        args, kwargs = (call.args, call.kwargs) if call.host else tree_map(self, (call.args, call.kwargs))
        return Call(tree_map(self, call.input), args, kwargs, call.process, call.host)


@dataclass
class Call:
    """One sample's arguments."""

    input: object
    args: tuple
    kwargs: dict
    process: object = staticmethod(lambda result: result)
    host: bool = False  # all but the first stay on the CPU

    @classmethod
    def of(cls, sample, op=None):
        host = op is not None and op.name in skips.HOST
        return cls(sample.input, tuple(sample.args), dict(sample.kwargs), sample.output_process_fn_grad, host)

    def tensors(self):
        leaves = tree_flatten((self.input, self.args, self.kwargs))[0]
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def widened(self):
        """The call in float64 or complex128."""

        def widen(value):
            if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
                wide = torch.complex128 if value.is_complex() else torch.float64
                return value.detach().to(wide).requires_grad_(value.requires_grad)
            return value

        return Call(*(tree_map(widen, part) for part in (self.input, self.args, self.kwargs)))

    def run(self, function, **more):
        return function(self.input, *self.args, **self.kwargs, **more)


@dataclass
class Outcome:
    """What a call returned or raised, and whether it took random numbers."""

    result: object = None
    error: BaseException = None
    random: bool = False

    @classmethod
    def of(cls, function, *args, **kwargs):
        before = torch.default_generator.manual_seed(SEED).get_state()
        try:
            result, error = function(*args, **kwargs), None
            torch.tpu.synchronize()
        except Skip:
            raise
        except Exception as caught:
            result, error = None, caught
            with contextlib.suppress(Exception):
                torch.tpu.synchronize()
        return cls(result, error, not torch.equal(before, torch.get_rng_state()))


class Recorder(TorchDispatchMode):
    """The names of the operators that reach the backend."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.name())
        return function(*args, **(kwargs or {}))


def tolerances(op, dtype):
    """(rtol, atol): PyTorch's for the dtype, or the entry's own where that is wider."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0, 0.0
    rtol, atol = default_tolerances(dtype)
    for decorate in op.decorators:
        for inner in getattr(decorate, "decorators", [decorate]):
            override = getattr(inner, "d", {})
            applies = getattr(decorate, "cls_name", None) in (None, "TestCommon", "TestUnaryUfuncs", "TestBinaryUfuncs")
            if applies and isinstance(override, dict) and dtype in override:
                wider = override[dtype]  # of precisionOverride, a number: atol alone
                rtol, atol = max(rtol, getattr(wider, "rtol", 0.0)), max(atol, getattr(wider, "atol", wider))
    return rtol, atol


def pick(samples, count):
    """The first sample, others spread over the list, and one with a zero-size tensor if there is room for it."""
    if len(samples) <= count:
        return samples
    chosen = [round(i * (len(samples) - 1) / max(count - 1, 1)) for i in range(count)] if count > 2 else [0]
    if count == 2:
        chosen.append(len(samples) // 2)

    def empty(index):
        return any(t.numel() == 0 for t in Call.of(samples[index]).tensors())

    if count > 2 and not any(map(empty, chosen)):
        chosen[-1] = next(filter(empty, range(len(samples))), chosen[-1])
    return [samples[i] for i in sorted(set(chosen))]


class Check:
    """One entry in one dtype. `tell(stage)` hears where the check is, `report(failure)` each difference."""

    def __init__(self, op, dtype, samples=3, budget=60.0, errors=True, tell=None, report=None):
        self.op, self.dtype, self.samples, self.errors = op, dtype, samples, errors
        self.deadline = time.monotonic() + budget
        self.tell = tell or (lambda stage: None)
        self.report = report or (lambda failure: None)
        self.failures, self.stages, self.skipped = [], {}, {}
        self.fallback, self.operators, self.counts = {}, [], torch.tpu.fallback_ops()
        self.stage = ""
        self.random = False
        self.wide, self.index = None, 0

    # --- Reporting ---------------------------------------------------------------------------------------------------
    def fail(self, kind, message, where=""):
        failure = Failure(kind, self.stage + where, " ".join(str(message).split())[:MESSAGE])
        same = [f for f in self.failures if (f.kind, f.stage.split()[0]) == (kind, self.stage.split()[0])]
        if len(same) < 3:
            self.failures.append(failure)
            self.report(failure)

    @contextlib.contextmanager
    def at(self, stage):
        """A stage: named in failures, its fallbacks counted, what it cannot do kept from the other stages."""
        outer, group = self.stage, stage.split()[0]
        self.tally(outer)
        self.wide = None  # results of the same call in float64, where a stage can have them
        self.stage = stage
        self.tell(stage)
        try:
            yield
            self.stages[group] = self.stages.get(group, 0) + 1
        except Skip as skip:
            self.skipped[group] = str(skip)
        self.tally(stage)
        self.stage = outer

    def tally(self, stage):
        """Counts the fallbacks since the last call as the stage's."""
        now = torch.tpu.fallback_ops()
        for name, count in now.items():
            if stage and count > self.counts.get(name, 0):
                group = self.fallback.setdefault(stage.split()[0], {})
                group[name] = group.get(name, 0) + count - self.counts.get(name, 0)
        self.counts = now

    def late(self):
        return time.monotonic() > self.deadline

    # --- Comparing ---------------------------------------------------------------------------------------------------
    def same_error(self, cpu, tpu):
        """True if both returned; reports it if only one raised or the classes differ."""
        if cpu.error is None and tpu.error is None:
            return True
        if cpu.error is None:
            self.fail("raised", f"{type(tpu.error).__name__}: {tpu.error}")
        elif tpu.error is None:
            kind = "no error" if self.stage.split()[0] in ("errors", "out") else "accepts"
            self.fail(kind, f"the CPU raises {type(cpu.error).__name__}: {cpu.error}")
        elif isinstance(tpu.error, IndexError) and "out of" in str(cpu.error):
            pass  # an index out of range is an IndexError in every operator; on the CPU, in most
        elif type(cpu.error) is not type(tpu.error):
            self.fail("exception", f"{type(tpu.error).__name__}: {tpu.error}; the CPU: {type(cpu.error).__name__}")
        return False

    def compare_values(self, cpu, tpu, where=""):
        cpu, tpu = cpu.detach(), tpu.detach()
        if not (is_strided(cpu) and is_strided(tpu)):
            return
        try:
            tpu = tpu.cpu()
        except Exception as error:
            self.fail("raised", f"reading: {type(error).__name__}: {error}", where)
            return
        cpu, tpu = cpu.resolve_conj().resolve_neg(), tpu.resolve_conj().resolve_neg()
        rtol, atol = tolerances(self.op, cpu.dtype)
        own = tolerances(self.op, self.dtype)  # a float64 or real result of a float32 or complex operand
        if cpu.dtype.is_floating_point or cpu.dtype.is_complex:
            rtol, atol = max(rtol, own[0]), max(atol, own[1])

        def close(rtol, atol):
            torch.testing.assert_close(tpu, cpu, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)

        try:
            close(rtol, atol)
        except AssertionError as difference:
            kind = "value"
            if cpu.dtype.is_floating_point or cpu.dtype.is_complex:
                with contextlib.suppress(AssertionError):
                    close(max(rtol, LOOSE), max(atol, LOOSE))
                    kind = "precision"
                if kind == "value" and self.as_exact(cpu, tpu):
                    kind = "precision"
            self.fail(kind, str(difference).replace("Tensor-likes are not close!", ""), where)

    def as_exact(self, cpu, tpu):
        """Whether the result is as near as the CPU's to that of the same call in float64."""
        try:
            wide = self.wide()[self.index].detach().resolve_conj().resolve_neg()
        except Exception:  # the call has no such form
            return False
        if wide.shape != cpu.shape or wide.dtype not in (torch.float64, torch.complex128) or not wide.numel():
            return False
        if not torch.equal(cpu.isfinite(), tpu.isfinite()) or not torch.equal(cpu.isnan(), tpu.isnan()):
            return False
        finite = cpu.isfinite() & wide.isfinite()
        theirs, mine = ((t.to(wide.dtype) - wide)[finite].abs() for t in (cpu, tpu))
        size = wide[finite].abs()
        if not size.numel() or theirs.max() > 0.05 * size.max():  # another answer, not a rounded one
            return False
        return bool((mine <= 3 * theirs.max() + 2 * torch.finfo(cpu.dtype).eps * size).all())

    def compare_tensor(self, cpu, tpu, where="", values=True, strides=True):
        if cpu.shape != tpu.shape:
            return self.fail("shape", f"{tuple(tpu.shape)}, the CPU: {tuple(cpu.shape)}", where)
        if cpu.dtype != tpu.dtype:
            return self.fail("dtype", f"{tpu.dtype}, the CPU: {cpu.dtype}", where)
        if cpu.layout != tpu.layout:
            return self.fail("structure", f"{tpu.layout}, the CPU: {cpu.layout}", where)
        if strides and is_strided(cpu):
            mine, theirs = (
                tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else () for t in (tpu, cpu)
            )
            if mine != theirs:
                self.fail("stride", f"{tpu.stride()}, the CPU: {cpu.stride()}, sizes {tuple(cpu.shape)}", where)
        if strides and (cpu.is_conj(), cpu.is_neg()) != (tpu.is_conj(), tpu.is_neg()):
            self.fail("alias", "the lazy conjugate or negative bits differ", where)
        if values:
            self.compare_values(cpu, tpu, where)
        return None

    def compare(self, cpu, tpu, values=True, strides=True):
        """Two results, of any structure."""
        theirs, spec = tree_flatten(cpu)
        mine, other = tree_flatten(tpu)
        if len(theirs) != len(mine) or str(spec) != str(other):
            return self.fail("structure", f"{other}, the CPU: {spec}")
        for index, (a, b) in enumerate(zip(theirs, mine)):
            place, self.index = f" result {index}" if len(mine) > 1 else "", index
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                self.compare_tensor(a, b, place, values, strides)
            elif isinstance(a, (float, complex)) and isinstance(b, type(a)):
                if values:
                    self.compare_values(torch.tensor(a), torch.tensor(b), place)
            elif type(a) is not type(b):
                self.fail("structure", f"{type(b).__name__}, the CPU: {type(a).__name__}", place)
            elif values and not isinstance(a, (torch.device, torch.Generator)) and a != b:
                self.fail("value", f"{b!r}, the CPU: {a!r}", place)
        return None

    def compare_aliases(self, cpu_in, cpu_out, tpu_in, tpu_out):
        """Which results share a storage with an operand or with each other, and where in it."""

        def pattern(operands, results):
            names = {}
            for tensor in operands:
                if is_strided(tensor):
                    names.setdefault(storage_id(tensor), f"operand {len(names)}")
            rows = []
            for tensor in tree_flatten(results)[0]:
                if not isinstance(tensor, torch.Tensor) or not is_strided(tensor):
                    rows.append(None)
                    continue
                known = storage_id(tensor) in names
                name = names.setdefault(storage_id(tensor), f"result {len(rows)}")
                rows.append((name, tensor.storage_offset() if known and tensor.numel() else 0))
            return rows

        theirs, mine = pattern(cpu_in, cpu_out), pattern(tpu_in, tpu_out)
        if theirs != mine:
            self.fail("alias", f"storages and offsets {mine[:4]}, the CPU: {theirs[:4]}")
        if tpu_in:
            for tensor in tree_flatten(tpu_out)[0]:
                if isinstance(tensor, torch.Tensor) and tensor.device.type != DEVICE:
                    self.fail("device", f"a result lies on {tensor.device}")

    # --- The parts ---------------------------------------------------------------------------------------------------
    def call_both(self, function, call, other=None):
        cpu = Outcome.of(call.run, function)
        tpu = Outcome.of((other or Mover().call(call)).run, function)
        return cpu, tpu

    def forward(self, call, backward=True, inputs=False):
        """Forward, aliasing, and backward if anything requires a gradient."""
        other = Mover().call(call)
        cpu, tpu = self.call_both(self.op.get_op(), call, other)
        self.random |= cpu.random
        if not self.same_error(cpu, tpu):
            return
        values = not cpu.random and self.op.name not in skips.UNINITIALISED
        self.compare_aliases(call.tensors(), cpu.result, other.tensors(), tpu.result)
        self.wide = lambda: leaves_of(call.process(call.widened().run(self.op.get_op())))
        self.processed(call, cpu, tpu, values)
        self.wide = None
        if inputs and values:
            for index, (a, b) in enumerate(zip(call.tensors(), other.tensors())):
                before = len(self.failures)
                self.compare_tensor(a, b, f" operand {index}", strides=False)
                if len(self.failures) > before:
                    self.failures[-1].kind = "input"
        if backward and any(t.requires_grad for t in call.tensors()):
            with self.at(self.stage.replace(self.stage.split()[0], "backward", 1)):
                self.backward(call, other, cpu.result, tpu.result, values)

    def processed(self, call, cpu, tpu, values, strides=True):
        """Compares results; values after the sample's own removal of what is arbitrary in them (signs, phases)."""
        if not values:
            return self.compare(cpu.result, tpu.result, values, strides)
        a, b = Outcome.of(call.process, cpu.result), Outcome.of(call.process, tpu.result)
        if a.error is not None or a.result is cpu.result or not self.same_error(a, b):
            return self.compare(cpu.result, tpu.result, values, strides)
        self.compare(cpu.result, tpu.result, False, strides)
        before, self.stage = self.stage, self.stage + " processed"
        theirs, mine = ([leaf for leaf in tree_flatten(o.result)[0] if isinstance(leaf, torch.Tensor)] for o in (a, b))
        for self.index, (x, y) in enumerate(zip(theirs, mine)):
            self.compare_tensor(x, y, strides=False)
        self.stage = before
        return None

    def backward(self, call, other, cpu, tpu, values):
        def differentiable(result):
            leaves = tree_flatten(call.process(result))[0]
            return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

        theirs, mine = differentiable(cpu), differentiable(tpu)
        if len(theirs) != len(mine):
            self.fail("grad", f"{len(mine)} results require a gradient, on the CPU {len(theirs)}")
            return
        if not theirs:
            return
        generator = torch.Generator().manual_seed(7)
        seeds = []
        for result in theirs:
            wide = torch.complex128 if result.is_complex() else torch.float64
            seeds.append(torch.randn(result.shape, dtype=wide, generator=generator).to(result.dtype))
        wanted = [i for i, t in enumerate(call.tensors()) if t.requires_grad]
        operands = [[c.tensors()[i] for i in wanted] for c in (call, other)]

        def gradients(results, inputs, seeds):
            return torch.autograd.grad(results, inputs, seeds, allow_unused=True)

        a = Outcome.of(gradients, theirs, operands[0], seeds)
        b = Outcome.of(lambda: gradients(mine, operands[1], [seed.to(DEVICE) for seed in seeds]))
        if not self.same_error(a, b):
            return

        def wide():
            copy = call.widened()
            exact = [leaf for leaf in leaves_of(call.process(copy.run(self.op.get_op()))) if leaf.requires_grad]
            seed = [s.to(e.dtype) for s, e in zip(seeds, exact)]
            return gradients(exact, [copy.tensors()[i] for i in wanted], seed)

        self.wide = wide
        for index, (x, y) in enumerate(zip(a.result, b.result)):
            self.index = index
            where = f" operand {wanted[index]}"
            if (x is None) != (y is None):
                self.fail("grad", f"{'no ' if y is None else 'a '}gradient where the CPU has the opposite", where)
            elif x is not None:
                self.compare_tensor(x, y, where, values and not (a.random or self.random), strides=False)

    def in_place(self, call):
        """The in-place form on a copy of the input, with its gradient where it has one."""
        function = self.op.get_inplace()
        if not isinstance(call.input, torch.Tensor):
            raise Skip("the first operand is no tensor")
        other = Mover().call(call)
        grad = self.op.supports_inplace_autograd

        def run(arguments):
            mine = arguments.input if grad else arguments.input.detach()
            target = mine.clone(memory_format=torch.preserve_format)
            returned = function(target, *arguments.args, **arguments.kwargs)
            return returned, returned is target

        cpu, tpu = Outcome.of(run, call), Outcome.of(run, other)
        if not self.same_error(cpu, tpu):
            return
        if cpu.result[1] != tpu.result[1]:
            self.fail("alias", "does not return its first operand")
        values = not cpu.random and self.op.name not in skips.UNINITIALISED
        self.wide = lambda: leaves_of(call.widened().run(self.op.get_op()))
        self.compare(cpu.result[0], tpu.result[0], values)
        if grad and any(t.requires_grad for t in call.tensors()):
            plain = Call(call.input, call.args, call.kwargs)
            self.backward(plain, Call(other.input, other.args, other.kwargs), cpu.result[0], tpu.result[0], values)

    def out(self, call):
        """The out= form: into the right size, an empty tensor, a strided one, and one of a wrong dtype."""
        with torch.no_grad():
            expected = Outcome.of(call.run, self.op.get_op())
        if expected.error is not None:
            raise Skip("the functional form raises")
        results, spec = tree_flatten(expected.result)
        if not results or not all(isinstance(r, torch.Tensor) and is_strided(r) for r in results):
            raise Skip("results that are no tensors")
        values = not expected.random and self.op.name not in skips.UNINITIALISED

        def exact(result):
            return torch.full_like(result, 1)

        def empty(result):
            return torch.empty(0, dtype=result.dtype)

        def strided(result):
            shape = (*result.shape[::-1], 2)
            base = torch.ones(shape, dtype=result.dtype)[..., 0]
            return base.permute(tuple(reversed(range(result.dim()))))

        def wrong(result):
            return torch.ones(result.shape, dtype=torch.int64 if result.dtype != torch.int64 else torch.bool)

        for make in (exact, empty, strided, wrong):
            with self.at(f"out {make.__name__}"), torch.no_grad():
                outs = [[make(r) for r in results]]
                mover = Mover()
                outs.append([mover(o) for o in outs[0]])
                other = mover.call(call)

                def run(arguments, out):
                    given = out[0] if isinstance(expected.result, torch.Tensor) else tuple(out)
                    return arguments.run(self.op.get_op(), out=given)

                cpu, tpu = Outcome.of(run, call, outs[0]), Outcome.of(run, other, outs[1])
                if not self.same_error(cpu, tpu):
                    continue
                self.compare(cpu.result, tpu.result, values=False)
                # Not the CPU's own values: some of its out= forms are wrong for strided tensors.
                pair = (outs[0] if make is wrong else results, outs[1])
                theirs, mine = (Outcome(tree_unflatten(leaves, spec)) for leaves in pair)
                if make is not wrong:
                    self.wide = lambda: leaves_of(call.process(call.widened().run(self.op.get_op())))
                self.processed(call, theirs, mine, values, strides=False)
                self.compare_aliases(outs[0], cpu.result, outs[1], tpu.result)

    def error_inputs(self):
        """Each error input raises the class that the CPU raises, at the call or at the next synchronisation."""
        try:
            cases = list(self.op.error_inputs("cpu"))
        except Exception as error:
            raise Skip(f"the generator raises {type(error).__name__}") from None
        for index, case in enumerate(cases):
            if self.late():
                self.skipped["errors"] = f"time: {index} of {len(cases)} done"
                break
            with self.at(f"errors {index}"):
                call = Call.of(case.sample_input, self.op)
                other = Mover().call(call)
                cpu, tpu = self.call_both(self.op.get_op(), call, other)
                if cpu.error is not None:
                    self.same_error(cpu, tpu)

    def record(self, call):
        """Which operators the entry reaches on the device."""
        other, recorder = Mover().call(call), Recorder()
        with torch.no_grad(), contextlib.suppress(Exception), recorder:
            other.run(self.op.get_op())
        self.operators = sorted(recorder.names)
        self.counts = torch.tpu.fallback_ops()

    # --- The whole ---------------------------------------------------------------------------------------------------
    def make_samples(self, grad):
        torch.manual_seed(0)
        return pick(list(self.op.sample_inputs("cpu", self.dtype, requires_grad=grad)), self.samples)

    def __call__(self):
        """Runs the check and returns a dictionary for JSON."""
        begin = time.monotonic()
        # Random entries restore the generator's state, which says here that they are random.
        unfrozen = mock.patch("torch.testing._utils.freeze_rng_state", contextlib.nullcontext)
        with warnings.catch_warnings(), unfrozen:
            warnings.simplefilter("ignore")
            grad = self.op.supports_autograd and self.dtype in self.op.supported_backward_dtypes("cpu")
            samples = self.make_samples(grad)
            self.whole(samples, grad)
        kinds = {failure.kind for failure in self.failures}
        return {
            "status": "pass" if not kinds else "soft" if kinds <= SOFT else "fail",
            "failures": [asdict(failure) for failure in self.failures],
            "stages": self.stages,
            "skipped": self.skipped,
            "fallback": self.fallback,
            "operators": self.operators,
            "random": self.random,
            "seconds": round(time.monotonic() - begin, 2),
        }

    def whole(self, samples, grad):
        op = self.op
        allowed = {s for s, entries in skips.STAGES.items() if op.formatted_name not in entries}
        for index, sample in enumerate(samples):
            if index and self.late():
                self.skipped["forward"] = f"time: {index} of {len(samples)} samples"
                break
            with self.at(f"forward {index}"):
                self.forward(Call.of(sample, op), inputs=index == 0)
        if not samples:
            self.skipped["forward"] = "no samples"
            return
        with self.at("record"):
            self.record(Call.of(samples[0], op))
        fitting = next((s for s in samples if Call.of(s).tensors()), samples[0])
        if op.get_inplace() is not None and not self.late() and "in-place" in allowed:
            target = next((s for s in samples if not s.broadcasts_input), None)
            if target is not None:
                with self.at("in-place"):
                    self.in_place(Call.of(target, op))
        if op.supports_out and not self.late() and "out" in allowed:
            with self.at("out"):
                self.out(Call.of(fitting, op))
        if "noncontiguous" in allowed and Call.of(fitting, op).tensors() and not self.late():
            with self.at("noncontiguous"):
                self.forward(Call.of(fitting.noncontiguous(), op))
        if self.errors and op.error_inputs_func is not None and not self.late():
            with self.at("errors"):
                self.error_inputs()
