"""Compares device "tpu" with the CPU: arguments on both, one call on each, every difference a `Failure`.

A `Failure` has a kind, the stage where it was found, and a message. The kinds:
raised      an exception where the CPU has none; `exception`: of another class than the CPU's
no error    the reverse of raised, of operands that are bad; `accepts`: of a sample that the CPU does not support, or
            of an out= tensor of a wider dtype, which gets the right numbers
value       numbers differ; `precision`: beyond the dtype's tolerance, but as near as the CPU's are to those of the
            same call in float64
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

import torch
from torch.testing._comparison import default_tolerances
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import skips

DEVICE = "tpu"
# Differences that leave the entry usable: counted, and listed apart from failures.
SOFT = {"stride", "precision", "accepts"}
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


def picked(call, position, indices):
    """The elements of the call's input that indices along one dimension name; the dimension's position in the call."""
    dim = call.kwargs.get("dim", call.args[position] if len(call.args) > position else -1)
    source, indices = call.input.detach(), indices.cpu()
    if not source.dim():
        return source.expand_as(indices)
    if indices.dim() < source.dim():
        return source.gather(dim, indices.unsqueeze(dim)).squeeze(dim)
    return source.gather(dim, indices)


def as_leaves(*parts):
    """The parts, with views that a generator took of a leaf (and that get no gradient themselves) as leaves."""
    known = {}

    def leaf(value):
        if isinstance(value, torch.Tensor) and is_strided(value) and value.is_leaf and value.requires_grad:
            return known.setdefault(id(value), value.detach().requires_grad_()) if value._is_view() else value
        return value

    return tree_map(leaf, parts)


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
        parts = as_leaves(sample.input, tuple(sample.args), dict(sample.kwargs))
        call = cls(*parts, sample.output_process_fn_grad, host)
        if op is not None and op.name in skips.TIES and not call.kwargs.get("stable"):
            position = skips.TIES[op.name]
            call.process = lambda result: (
                (result[0], picked(call, position, result[1]))
                if isinstance(result, (tuple, list))
                else picked(call, position, result)
            )
        return call

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

        parts = (tree_map(widen, part) for part in (self.input, self.args, self.kwargs))
        return Call(*parts, self.process, self.host)

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


# The tests of PyTorch whose overrides of tolerances say how near a device comes, and those of them that say it of
# something else: of reimplementations in Python, of NumPy, of files.
SUITES = {None, "TestCommon", "TestUnaryUfuncs", "TestBinaryUfuncs", "TestModule", "TestOptimRenewed"}
OTHER_TESTS = ("test_python_ref", "test_complex_half", "test_numpy_ref", "test_save_load", "test_memory_format")
OTHER_DEVICES = ("mps", "xpu", "hpu")


def tolerances(op, dtype):
    """(rtol, atol): PyTorch's for the dtype, or the entry's own where that is wider."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0, 0.0
    rtol, atol = default_tolerances(dtype)
    for decorate in op.decorators:
        test = getattr(decorate, "test_name", None) or ""
        applies = (
            getattr(decorate, "cls_name", None) in SUITES
            and getattr(decorate, "device_type", None) not in OTHER_DEVICES
            and not test.startswith(OTHER_TESTS)
        )
        for inner in getattr(decorate, "decorators", [decorate]):
            override = getattr(inner, "d", {})
            if applies and isinstance(override, dict) and dtype in override:
                wider = override[dtype]  # of precisionOverride, a number: atol alone
                rtol, atol = max(rtol, getattr(wider, "rtol", 0.0)), max(atol, getattr(wider, "atol", wider))
    return rtol, atol


def normal(shape, dtype, seed):
    """Random numbers that do not depend on the dtype."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, dtype=wide, generator=torch.Generator().manual_seed(seed)).to(dtype)


@contextlib.contextmanager
def only_devices_that_exist():
    """Seeds no others: each seed would keep a traceback for each of them, and a generator seeds at each sample."""
    with contextlib.ExitStack() as stack:
        for name in ("cuda", "mtia", "xpu"):
            stack.enter_context(mock.patch(f"torch.{name}.manual_seed_all", lambda seed: None))
        yield


def same_specials(a, b):
    """Whether infinities and NaNs are at the same places."""
    return torch.equal(a.isfinite(), b.isfinite()) and torch.equal(a.isnan(), b.isnan())


class Comparer:
    """What the checks of operators, modules and optimizers share.

    `tell(stage)` hears where the check is, `report(failure)` each difference.
    """

    def __init__(self, op, dtype, entry, *, samples=3, budget=60.0, tell=None, report=None):
        self.op, self.dtype, self.entry, self.samples = op, dtype, entry, samples
        self.deadline = time.monotonic() + budget
        self.tell = tell or (lambda stage: None)
        self.report = report or (lambda failure: None)
        self.failures, self.known, self.stages, self.skipped = [], [], {}, {}
        self.fallback, self.operators, self.counts = {}, [], torch.tpu.fallback_ops()
        self.stage = ""
        self.random = False
        self.wide, self.index = None, 0

    # --- Reporting ---------------------------------------------------------------------------------------------------
    def fail(self, kind, message, where=""):
        failure = Failure(kind, self.stage + where, " ".join(str(message).split())[:MESSAGE])
        why = skips.fault(self.entry, str(self.dtype).removeprefix("torch."), failure.stage, kind)
        if why is not None:
            if why not in self.known:
                self.known.append(why)
            return
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

        try:
            torch.testing.assert_close(tpu, cpu, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
        except AssertionError as difference:
            floating = cpu.dtype.is_floating_point or cpu.dtype.is_complex
            kind = "precision" if floating and self.as_exact(cpu, tpu) else "value"
            self.fail(kind, str(difference).replace("Tensor-likes are not close!", ""), where)

    def as_exact(self, cpu, tpu):
        """Whether the result is as near as the CPU's to that of the same call in float64."""
        try:
            wide = self.wide()[self.index].detach().resolve_conj().resolve_neg()
        except Exception:  # the call has no such form
            return False
        if wide.shape != cpu.shape or wide.dtype not in (torch.float64, torch.complex128) or not wide.numel():
            return False
        limit = torch.finfo(cpu.dtype).max
        differ = ~((cpu == tpu) | (cpu.isnan() & tpu.isnan()))  # both may overflow on the way to a small number
        finite = wide.isfinite() & (wide.abs() <= limit)  # where the CPU, of rounded steps, may have overflowed
        special = differ & ~finite & ~(wide.isfinite() & (tpu == wide.to(cpu.dtype)))  # but for what is just too large
        if not bool(tpu.isfinite()[finite & differ].all()) or not same_specials(cpu[special], tpu[special]):
            return False
        if not bool((finite & differ).any()):
            return True
        theirs, mine = ((t.to(wide.dtype) - wide).abs() for t in (cpu, tpu))
        rounding = 2 * torch.finfo(cpu.dtype).eps * wide.abs()
        if bool((mine <= theirs.nan_to_num(nan=limit) + rounding)[finite & differ].all()):
            return True
        known = theirs[finite & theirs.isfinite()]  # of all elements: those that differ may be few
        if not known.numel() or known.max() > 0.05 * wide[finite].abs().max():  # another answer, not a rounded one
            return False
        return bool((mine <= 3 * known.max() + rounding)[finite & differ].all())

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

    def compare_gradients(self, cpu, tpu, values=True, names=None):
        for index, (x, y) in enumerate(zip(cpu, tpu)):
            self.index, where = index, names[index] if names else f" result {index}"
            if (x is None) != (y is None):
                self.fail("grad", f"{'no ' if y is None else 'a '}gradient where the CPU has the opposite", where)
            elif x is not None:
                self.compare_tensor(x, y, where, values, strides=False)

    # --- The whole ---------------------------------------------------------------------------------------------------
    def allowed(self, stage):
        """Whether there is time for a stage, and no reason to leave it out."""
        why = skips.stage(self.entry, stage)
        if why is None and self.late():
            why = "time"
        if why is not None:
            self.skipped[stage] = why
        return why is None

    def __call__(self):
        """Runs the check and returns a dictionary for JSON."""
        begin, work = time.monotonic(), time.process_time()
        # Random entries restore the generator's state, which says here that they are random.
        unfrozen = mock.patch("torch.testing._utils.freeze_rng_state", contextlib.nullcontext)
        with warnings.catch_warnings(), unfrozen, only_devices_that_exist():
            warnings.simplefilter("ignore")
            self.whole()
        return self.result(time.monotonic() - begin, time.process_time() - work)

    def result(self, seconds=0.0, work=0.0):
        kinds = {failure.kind for failure in self.failures}
        return {
            "status": "pass" if not kinds else "soft" if kinds <= SOFT else "fail",
            "failures": [asdict(failure) for failure in self.failures],
            "known": self.known,
            "stages": self.stages,
            "skipped": self.skipped,
            "fallback": self.fallback,
            "operators": self.operators,
            "random": self.random,
            "seconds": round(seconds, 2),
            "cpu_seconds": round(work, 2),  # of all threads: it does not depend on what else the machine does
        }
