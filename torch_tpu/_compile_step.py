"""torch.tpu.compile_step: a training step, forward, backward and optimizer, as one program.

The step is recorded by running it once in Python while the tensors it works on (parameters, buffers, the optimizer's
state, the batch) have stand-ins for their data. From then on a step is one call of the program. What Python decided on
the way is part of the key that a program is found by; what is not in the key and changes all the same is refused when
the step is recorded.
"""

import contextlib
import inspect
import warnings
import weakref

import torch
from torch.utils import _pytree as pytree

from torch_tpu import _xla_options

_ops = torch.ops.torchtpu


class CompiledStep:
    """See torch.tpu.compile_step()."""

    def __init__(self, model, optimizer, loss_fn, accumulate, clip_norm, options=None):
        if accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, not {accumulate}")
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.accumulate, self.clip_norm = accumulate, clip_norm
        self.options = _xla_options.read(options, "compile_step")
        self.modules = list(model.modules())
        self.homes = [(home, name) for m in self.modules for home in (m._parameters, m._buffers) for name in home]
        self.programs = {}
        self.static_rates = False  # the optimizer takes no tensor as its learning rate
        _make_capturable(optimizer)

    def __call__(self, *args, **kwargs):
        leaves, spec = pytree.tree_flatten((args, kwargs))
        batch = [x for x in leaves if isinstance(x, torch.Tensor)]
        rest = tuple(None if isinstance(x, torch.Tensor) else x for x in leaves)
        optimizer = self.optimizer
        held = [home[name] for home, name in self.homes if home[name] is not None]
        grads = tuple([x.requires_grad for x in held])
        of_model = len(held)
        held += [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]
        held += [group["lr"] for group in optimizer.param_groups if isinstance(group["lr"], torch.Tensor)]
        key = (
            spec,
            rest,
            tuple([(x.shape, x.dtype, x.requires_grad) for x in batch]),
            len(held),
            tuple([module.training for module in self.modules]),
            grads,
            tuple([_settings(group, self.static_rates) for group in optimizer.param_groups]),
            _autocast(),
        )
        program = self.programs.get(key)
        if program is None:
            if _make_capturable(optimizer):  # a state was loaded that isn't
                return self(*args, **kwargs)
            program = _Program(self, leaves, spec)
        try:
            result = program.run(held, batch)
            torch.autograd.graph.increment_version(held[:of_model])
        except _Again:
            return self(*args, **kwargs)
        if key not in self.programs:
            self.programs[key] = program
            if len(self.programs) in (8, 64):
                self.warn()
        return result

    def warn(self):
        """Says what makes one program after the other."""
        before, last = list(self.programs)[-2:]
        changed = [name for name, a, b in zip(_KEY, before, last) if a != b]
        for a, b in zip(before[_KEY.index("the optimizer's settings")], last[_KEY.index("the optimizer's settings")]):
            changed += [f"{name!r} of the optimizer" for (name, old), (_, new) in zip(a, b) if old != new]
        warnings.warn(
            f"compile_step has compiled {len(self.programs)} programs; the last for other {', '.join(changed)}. Only "
            "learning rates may change at each step without another program",
            stacklevel=3,
        )


_KEY = (
    "arguments",
    "arguments that are no tensors",
    "shapes of the batch",
    "tensors in the optimizer's state",
    "modes of modules",
    "gradients that are required",
    "the optimizer's settings",
    "autocast",
)


def _make_capturable(optimizer):
    """Has what changes at each step in tensors on the device. Says whether something had to be changed for it."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"compile_step: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    changed = False
    for group in optimizer.param_groups:
        if not group.get("capturable", True):
            group["capturable"] = changed = True
        for p in group["params"]:
            if p.device.type != "tpu":
                raise ValueError(f"compile_step: a parameter is on {p.device}; move the model to tpu first")
    _initialize(optimizer)
    for p, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() == 0:
                state[name] = value.to(p.device)
                changed = True
    return changed


def _initialize(optimizer):
    """Makes the state that the optimizer would make in its first step: else that step is a program of its own."""
    make = getattr(optimizer, "_init_group", None)
    if make is None:
        return
    count = len(inspect.signature(make).parameters) - 1
    for group in optimizer.param_groups:
        missing = [p for p in group["params"] if p.requires_grad and not optimizer.state.get(p)]
        grads = [p.grad for p in missing]
        try:
            for p in missing:
                p.grad = p.detach()
            with torch.no_grad():
                make({**group, "params": missing}, *([] for _ in range(count)))
        except Exception:
            for p in missing:  # the first step will do
                optimizer.state.pop(p, None)
        finally:
            for p, grad in zip(missing, grads):
                p.grad = grad
        for p in missing:
            if p in optimizer.state and not optimizer.state[p]:
                del optimizer.state[p]


def _settings(group, static_rates):
    return tuple(
        [
            (name, value if isinstance(value, (int, float, bool, str, tuple, type(None))) else id(value))
            for name, value in group.items()
            if name != "params" and name not in _SCHEDULES and (static_rates or name != "lr")
        ]
    )


_SCHEDULES = ("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "max_decay", "swa_lr")


def _autocast():
    return torch.is_autocast_enabled("tpu") and (torch.get_autocast_dtype("tpu"), torch.is_autocast_cache_enabled())


class _Program:
    """The step for one key."""

    def __init__(self, step, leaves, spec):
        self.step, self.leaves, self.spec = weakref.proxy(step), leaves, spec
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.tensor_at = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.handle = step.options.create_graph("training step")
        weakref.finalize(self, _ops.free_graph, self.handle).atexit = False
        self.recorded = False

    def run(self, held, batch):
        rates = [] if self.step.static_rates else self.rates()
        inputs = [*held, *batch, *rates]
        found = self.recorded
        if found:
            results, found = _ops.run_graph.default(self.handle, inputs, ())
        if not found:
            self.record(held, batch, rates)
            results, found = _ops.run_graph.default(self.handle, inputs, ())
            if not found:
                raise RuntimeError("compile_step: the arguments of a step change while it is recorded")
        for (home, name), tensor in zip(self.born, results[len(results) - len(self.born) :]):
            home[name] = tensor
        return pytree.tree_unflatten([results[x] if kind else x for kind, x in self.returned], self.returned_spec)

    def rates(self):
        """Learning rates, as scalars that the program takes."""
        groups = self.step.optimizer.param_groups
        return [torch.tensor(g["lr"], dtype=torch.float32) for g in groups if not isinstance(g["lr"], torch.Tensor)]

    # ---- recording ----
    def record(self, held, batch, rates):
        step = self.step
        try:
            self.record_once(held, batch, rates)
        except Exception:
            if step.static_rates or not rates:
                raise
            # Perhaps the optimizer takes no tensor as a learning rate: then that is a constant of the program.
            try:
                self.record_once(held, batch, rates, tensor_rates=False)
            except Exception:
                pass
            else:
                step.static_rates = True
                self.returned = None
                step.programs.clear()
                raise _Again from None
            raise
        self.recorded = True

    def record_once(self, held, batch, rates, tensor_rates=True):
        step, optimizer = self.step, self.step.optimizer
        before = _Snapshot(step)
        try:
            stand_ins = _ops.begin_graph(self.handle, [*held, *batch, *rates], ())
            ours, theirs, numbers = (
                stand_ins[: len(held)],
                stand_ins[len(held) : len(held) + len(batch)],
                stand_ins[len(held) + len(batch) :],
            )
            leaves = list(self.leaves)
            for i, stand_in in zip(self.tensor_at, theirs):
                leaves[i] = stand_in
            args, kwargs = pytree.tree_unflatten(leaves, self.spec)
            with _swapped(held, ours), _rates(optimizer, numbers if tensor_rates else ()), _recording():
                outcome = self.train(args, kwargs)
                results, self.returned, self.returned_spec = _flatten(outcome)
                self.born = before.new_tensors()
                born = [home[name].detach() for home, name in self.born]
                before.check_numbers()
                _ops.end_graph([x.resolve_conj().resolve_neg() for x in (*results, *born)])
        finally:
            _ops.abort_graph()
            before.restore()

    def train(self, args, kwargs):
        step = self.step
        parameters = [p for group in step.optimizer.param_groups for p in group["params"]]
        for p in parameters:
            p.grad = None
        outcomes = []
        for part in range(step.accumulate):
            part_args, part_kwargs = _part((args, kwargs), part, step.accumulate)
            outcome = step.loss_fn(step.model, *part_args, **part_kwargs)
            loss = outcome[0] if isinstance(outcome, (tuple, list)) else outcome
            (loss / step.accumulate if step.accumulate > 1 else loss).backward()
            outcomes.append(pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, outcome))
        if step.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, step.clip_norm)
        step.optimizer.step()
        if step.accumulate == 1:
            return outcomes[0]
        flat = [pytree.tree_flatten(outcome) for outcome in outcomes]
        return pytree.tree_unflatten([_mean(parts) for parts in zip(*(leaves for leaves, _ in flat))], flat[0][1])


class _Again(Exception):
    pass


def _mean(parts):
    if not isinstance(parts[0], torch.Tensor) or not parts[0].is_floating_point():
        return parts[-1]
    return torch.stack(parts).mean(0)


def _part(tree, part, count):
    def cut(x):
        if x.dim() == 0:
            return x
        if x.shape[0] % count:
            raise ValueError(f"compile_step: a batch of {x.shape[0]} can't be divided by accumulate={count}")
        size = x.shape[0] // count
        return x[part * size : (part + 1) * size]

    return tree if count == 1 else pytree.tree_map_only(torch.Tensor, cut, tree)


def _flatten(outcome):
    """Tensors among the results, and where they go."""
    leaves, spec = pytree.tree_flatten(outcome)
    results, returned = [], []
    for leaf in leaves:
        returned.append((True, len(results)) if isinstance(leaf, torch.Tensor) else (False, leaf))
        if isinstance(leaf, torch.Tensor):
            results.append(leaf.detach())
    return results, returned, spec


class _Snapshot:
    """What the step may change in Python: gradients, and what is in the optimizer's state and the modules."""

    def __init__(self, step):
        self.optimizer = step.optimizer
        self.parameters = [p for group in step.optimizer.param_groups for p in group["params"]]
        self.grads = [p.grad for p in self.parameters]
        self.states = {p: dict(state) for p, state in step.optimizer.state.items()}
        self.homes = [(home, dict(home)) for m in step.modules for home in (m._parameters, m._buffers)]
        # What a module keeps for later steps beside them: a cache, say.
        self.attributes = [(m.__dict__, dict(m.__dict__)) for m in step.modules]

    def places(self):
        for p, state in self.optimizer.state.items():
            yield state, self.states.get(p, {})
        yield from self.homes
        yield from self.attributes

    def new_tensors(self):
        """Where a tensor is that wasn't there before."""
        return [
            (home, name)
            for home, old in self.places()
            for name, value in home.items()
            if isinstance(value, torch.Tensor) and value is not old.get(name)
        ]

    def check_numbers(self):
        for p, state in self.optimizer.state.items():
            old = self.states.get(p, {})
            for name, value in state.items():
                if not isinstance(value, torch.Tensor) and name in old and old[name] != value:
                    raise RuntimeError(
                        f"compile_step: the optimizer's state {name!r} is a Python number that changes at each step "
                        f"({old[name]} to {value}), which a program would not see: it must be a tensor"
                    )

    def restore(self):
        for p, grad in zip(self.parameters, self.grads):
            p.grad = grad
        for p, state in list(self.optimizer.state.items()):
            if p in self.states:
                state.clear()
                state.update(self.states[p])
            else:
                state.clear()
        for home, old in self.homes:
            home.clear()
            home.update(old)
        for home, old in self.attributes:
            for name, value in list(home.items()):
                if isinstance(value, torch.Tensor) and value is not old.get(name):
                    home.pop(name)
                    if name in old:
                        home[name] = old[name]


@contextlib.contextmanager
def _swapped(tensors, stand_ins):
    """The tensors with the stand-ins' data."""
    real = [(x, x.data) for x in tensors]
    try:
        for x, stand_in in zip(tensors, stand_ins):
            x.data = stand_in
        yield
    finally:
        for x, data in real:
            x.data = data


@contextlib.contextmanager
def _rates(optimizer, numbers):
    groups = [group for group in optimizer.param_groups if not isinstance(group["lr"], torch.Tensor)]
    real = [group["lr"] for group in groups]
    try:
        for group, number in zip(groups, numbers):
            group["lr"] = number
        yield
    finally:
        for group, rate in zip(groups, real):
            group["lr"] = rate


@contextlib.contextmanager
def _recording():
    """Everything on this thread, and as a compiler would see it."""
    compiler = torch.compiler
    flag = compiler._is_compiling_flag
    with (
        torch.enable_grad(),
        torch.autograd.set_multithreading_enabled(False),
        compiler.set_stance("force_eager"),
    ):
        compiler._is_compiling_flag = True
        torch.clear_autocast_cache()  # of an autocast around the step: what was cast has data or not, as the step has
        try:
            yield
        finally:
            torch.clear_autocast_cache()
            compiler._is_compiling_flag = flag
