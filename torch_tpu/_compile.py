"""torch.compile on tpu: a graph of Dynamo becomes a forward and a backward graph, and each of them one program.

A graph is recorded when it is first called, by running its operators on stand-ins for its inputs. One that can't
be recorded, because it has no rule, reads a value or lives on the CPU, runs by itself between two programs.
"""

import functools
import operator
import struct
import warnings
import weakref

import torch
from torch.utils import _pytree as pytree

from torch_tpu import _xla_options

_ops = torch.ops.torchtpu


def compile_graph(graph, example_inputs, mode=None, options=None):
    if not _is_on_tpu(graph, example_inputs):
        # XLA's options are for the graphs on tpu of the same function.
        options = {name: value for name, value in (options or {}).items() if not str(name).startswith("xla_")} or None
        return torch._TorchCompileInductorWrapper(mode or "default", options, None)(graph, example_inputs)
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    options = _xla_options.read(options, 'backend "tpu"')
    compiler = aot_autograd(
        fw_compiler=functools.partial(_compile, "forward", options),
        bw_compiler=functools.partial(_compile, "backward", options),
        inference_compiler=functools.partial(_compile, "inference", options),
        partition_fn=min_cut_rematerialization_partition,
        decompositions={torch.ops.aten.index_put.default: _put_by_mask},
        keep_inference_input_mutations=True,
    )
    return compiler(graph, example_inputs)


def _is_on_tpu(graph, example_inputs):
    if any(isinstance(x, torch.Tensor) and x.device.type == "tpu" for x in example_inputs):
        return True
    for node in graph.graph.nodes:
        leaves = pytree.tree_leaves((node.meta.get("example_value"), node.args, node.kwargs))
        for leaf in leaves:
            device = leaf if isinstance(leaf, torch.device) else getattr(leaf, "device", None)
            if (isinstance(device, torch.device) and device.type == "tpu") or device == "tpu":
                return True
    return any(p.device.type == "tpu" for p in (*graph.parameters(), *graph.buffers()))


def _compile(kind, options, graph, example_inputs):
    run = Graph(graph, kind, _dying() if kind == "backward" else (), options)
    run._boxed_call = True
    return run


def _put_by_mask(self, indices, values, accumulate=False):
    """x[mask] = number, which needs no positions; other forms stay as they are."""
    masks = [x for x in indices if x is not None]
    if accumulate or len(masks) != 1 or masks[0].dtype != torch.bool or values.dim() != 0:
        return NotImplemented
    mask, before = masks[0], next(i for i, x in enumerate(indices) if x is not None)
    after = self.dim() - before - mask.dim()
    if tuple(mask.shape) != tuple(self.shape[before : before + mask.dim()]) or mask.dim() == 0:
        return NotImplemented
    return torch.where(mask.reshape(*mask.shape, *(1,) * after), values.to(self.device), self)


def _dying():
    """The positions of a backward graph's inputs that are not used again."""
    context = torch._guards.TracingContext.try_get()
    return (context and context.fw_metadata and context.fw_metadata.bw_donated_idxs) or ()


# ---- nodes ----
def _values(node):
    return pytree.tree_leaves(node.meta.get("val"))


def _is_host_tensor(value):
    return isinstance(value, torch.Tensor) and value.device.type != "tpu"


def _call(node, values):
    """The node's result, its arguments taken from `values`."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_function":
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    raise NotImplementedError(f"a node {node.op}")


def _name(node):
    target = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


# They put another state into the generator, which only Python sees.
_ALONE = ("graphsafe_run_with_rng_state", "run_with_rng_state", "run_and_save_rng_state")


class _NodeError(Exception):
    def __init__(self, node, cause):
        super().__init__(node, cause)
        self.node, self.cause = node, cause


class _Unrecorded(Exception):
    """A part that runs, but not as a program."""


# ---- programs ----
_NO_OPTIONS = _xla_options.XlaOptions()


class Part:
    """Nodes that follow one another and run as one program."""

    def __init__(self, nodes, inputs, outputs, constants, name, dying=(), options=_NO_OPTIONS):
        self.nodes, self.inputs, self.outputs, self.constants = nodes, inputs, outputs, constants
        self.options = options
        self.handle = options.create_graph(name)
        weakref.finalize(self, _ops.free_graph, self.handle).atexit = False
        self.geometries = {}  # offsets of the inputs that it was recorded for
        self.dying = dying  # positions of inputs, where there are tensors alone
        self.copied = set()  # inputs whose offset varies: copies of them are one program for all
        self.extras = {}  # results that are no tensors, by what they follow from
        self.plain = True  # tensors come in, tensors go out
        self.tensor_at = []
        for i, node in enumerate(inputs):
            if isinstance(node.meta.get("val"), torch.Tensor):
                self.tensor_at.append(i)
            else:
                self.plain = False

    def __call__(self, args):
        if self.plain:
            results, found = _ops.run_graph.default(self.handle, args, ())
            if found:
                return results
        return self.call_slowly(args)

    def call_slowly(self, args):
        """Sorts the arguments, and records a variant where there is none."""
        for _ in range(4):
            tensors = [args[i].clone() if i in self.copied else args[i] for i in self.tensor_at]
            numbers = _numbers(args)
            key = numbers, tuple([x.shape for x in tensors])
            results, found = _ops.run_graph.default(self.handle, tensors, numbers)
            if found and key in self.extras:
                return self.merge(results, self.extras[key])
            if not self.note_offsets(tensors):
                self.extras[key] = self.record(args, tensors, numbers)
        raise RuntimeError("torch.compile: the arguments of a graph change while it is recorded")

    def note_offsets(self, tensors):
        """Whether there is an input that has to be copied from now on, since only its offset is new."""
        offsets = [x.storage_offset() for x in tensors]
        known = self.geometries.setdefault(tuple((x.shape, x.stride(), x.dtype) for x in tensors), offsets)
        vary = {self.tensor_at[k] for k, (a, b) in enumerate(zip(known, offsets)) if a != b}
        vary -= self.copied | self.written()
        self.copied |= vary
        self.plain = self.plain and not self.copied
        return bool(vary)

    def written(self):
        """Inputs that the nodes write to."""
        written = set()
        for node in self.nodes:
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.is_mutable:
                written.update(node.all_input_nodes)
        return {i for i, node in enumerate(self.inputs) if node in written}

    @staticmethod
    def merge(results, extras):
        if extras is None:
            return results
        next_result = iter(results)
        return [next(next_result) if is_tensor else value for is_tensor, value in extras]

    def record(self, args, tensors, numbers):
        """Makes a program. Gives for each result whether it is a tensor, and else what it is; None if all are."""
        try:
            with torch.no_grad():
                outputs = self.replay(args, _ops.begin_graph(self.handle, tensors, numbers, self.dying))
                results = [_settled(x) for x in outputs if isinstance(x, torch.Tensor)]
                try:
                    _ops.end_graph(results)
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:
                    if self.options.blames(error):
                        raise
                    raise _Unrecorded(str(error)) from error
        finally:
            _ops.abort_graph()
        if len(results) == len(outputs):
            return None
        self.plain = False
        return [(True, None) if isinstance(x, torch.Tensor) else (False, x) for x in outputs]

    def replay(self, args, stand_ins):
        values = dict(self.constants)
        values.update(zip(self.inputs, args))
        values.update((self.inputs[i], stand_in) for i, stand_in in zip(self.tensor_at, stand_ins))
        for node in self.nodes:
            try:
                values[node] = _call(node, values)
            except Exception as error:
                raise _NodeError(node, error) from error
        return [values[node] for node in self.outputs]

    def run_eagerly(self, args):
        values = dict(self.constants)
        values.update(zip(self.inputs, args))
        for node in self.nodes:
            values[node] = _call(node, values)
        return [values[node] for node in self.outputs]


def _settled(tensor):
    """Lazy conjugation and negation, and zeros without memory, are nothing that a program returns."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor.resolve_conj().resolve_neg()


def _numbers(args):
    """What isn't a tensor, as integers for the key."""
    numbers = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            continue
        if isinstance(arg, (float, torch.SymFloat)):
            numbers += (1, struct.unpack("q", struct.pack("d", float(arg)))[0])
        elif arg is None:
            numbers.append(2)
        elif isinstance(arg, (int, torch.SymInt, torch.SymBool)):
            numbers += (0, int(arg))
        else:
            raise _Unrecorded(f"an input of type {type(arg).__name__}")
    return tuple(numbers)


# ---- graphs ----
class Graph:
    """A graph as AOTAutograd leaves it: called with a list of arguments, which it empties."""

    def __init__(self, module, kind, dying=(), options=_NO_OPTIONS):
        self.module, self.kind, self.dying, self.options = module, kind, dying, options
        self.host = set()  # nodes that turned out to run by themselves
        self.constants = {}
        self.nodes = list(module.graph.nodes)
        self.placeholders = [node for node in self.nodes if node.op == "placeholder"]
        self.result = self.nodes[-1].args[0]
        self.plan()

    # ---- planning ----
    def plan(self):
        """Divides the nodes into parts, which become programs, and nodes that run by themselves."""
        self.steps, part = [], []
        for node in self.nodes:
            if node.op in ("placeholder", "output") or node in self.constants:
                continue
            if node.op == "get_attr":
                self.constants[node] = operator.attrgetter(node.target)(self.module)
            elif self.fold(node):
                continue
            elif self.runs_on_host(node):
                self.steps += [part, node]
                part = []
            else:
                part.append(node)
        self.steps.append(part)
        self.steps = [step for step in self.steps if step != []]
        self.link()

    def fold(self, node):
        """Computes what follows from constants of the CPU alone."""
        inputs = node.all_input_nodes
        if not inputs or not all(n in self.constants for n in inputs) or not any(map(_is_host_tensor, _values(node))):
            return False
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
            return False
        if torch.Tag.nondeterministic_seeded in target.tags:
            return False
        with (
            torch.utils._python_dispatch._disable_current_modes(),
            torch.no_grad(),
        ):  # a compiler runs with fake tensors
            self.constants[node] = _call(node, self.constants)
        return True

    def runs_on_host(self, node):
        if node in self.host or _name(node) in _ALONE or any(map(_is_host_tensor, _values(node))):
            return True
        if node.target is operator.getitem:
            return node.args[0] in self.host
        return any(
            _is_host_tensor(value) and value.dim() > 0
            for n in node.all_input_nodes
            if n not in self.constants
            for value in _values(n)
        )

    def link(self):
        """Makes parts of lists of nodes: what each takes and gives, and when values are done with."""
        last_use, results = {}, set(self.nodes[-1].all_input_nodes)
        for i, step in enumerate(self.steps):
            for node in step if isinstance(step, list) else [step]:
                for source in node.all_input_nodes:
                    last_use[source] = i
        self.drops = [[] for _ in self.steps]
        for node, i in last_use.items():
            if node not in results and node not in self.constants:
                self.drops[i].append(node)
        for i, step in enumerate(self.steps):
            if isinstance(step, list):
                inside = set(step)
                inputs = dict.fromkeys(
                    n for node in step for n in node.all_input_nodes if n not in inside and n not in self.constants
                )
                outputs = [n for n in step if n in results or last_use.get(n, -1) > i]
                self.steps[i] = self.part(step, list(inputs), outputs)
        self.whole = self.make_whole()

    def part(self, nodes, inputs, outputs, dying=()):
        return Part(nodes, inputs, outputs, self.constants, f"{self.kind} graph", dying, self.options)

    def make_whole(self):
        """The one part that the graph is, where it is one: called with the graph's own arguments and results."""
        if len(self.steps) != 1 or not isinstance(self.steps[0], Part):
            return None
        part, results = self.steps[0], self.result
        if not isinstance(results, (list, tuple)) or any(n in self.constants for n in results):
            return None
        if any(n in self.placeholders and not _tensor_on_tpu(n) for n in results):
            return None
        if any(_is_host_tensor(v) and v.dim() > 0 for n in self.placeholders for v in _values(n)):
            return None
        if not all(isinstance(n, torch.fx.Node) for n in results):
            results = [n for n in results if isinstance(n, torch.fx.Node)]
            self.blanks = [(isinstance(n, torch.fx.Node), n) for n in self.result]
        else:
            self.blanks = None
        plain = all(isinstance(n.meta.get("val"), torch.Tensor) for n in (*self.placeholders, *results))
        dying = self.dying if plain else ()
        return self.part(part.nodes, self.placeholders, list(results), dying)

    # ---- calling ----
    def __call__(self, args):
        while self.whole is not None:
            part = self.whole
            try:
                results = part(args)
            except (_NodeError, _Unrecorded) as error:
                self.give_up(part, error)
                self.plan()
                continue
            args.clear()
            if self.blanks is None:
                return results
            next_result = iter(results)
            return [next(next_result) if is_node else value for is_node, value in self.blanks]
        return self.run_steps(args)

    def run_steps(self, args):
        values = dict(self.constants)
        values.update(zip(self.placeholders, args))
        args.clear()
        stale = False
        for step, drops in zip(self.steps, self.drops):
            if isinstance(step, Part):
                inputs = [values[n] for n in step.inputs]
                try:
                    results = step(inputs)
                except (_NodeError, _Unrecorded) as error:
                    # What ran before must not run again, so this part runs operator by operator, this once.
                    self.give_up(step, error)
                    stale = True
                    results = step.run_eagerly(inputs)
                values.update(zip(step.outputs, results))
            else:
                values[step] = _call(step, values)
            for node in drops:
                values.pop(node, None)
        results = torch.fx.node.map_arg(self.result, self.result_from(values))
        if stale:
            self.plan()
        return list(results) if isinstance(results, (list, tuple)) else results

    def result_from(self, values):
        """What a node gives as a result: of a constant a copy, which its owner may write to."""
        return lambda node: values[node].clone() if node in self.constants else values[node]

    def give_up(self, part, error):
        """Has a node, or all of a part, run by itself from the next plan on."""
        if isinstance(error, _NodeError):
            self.host.add(error.node)
            what = f"{_name(error.node)} runs outside of the compiled program: {error.cause}"
        else:
            self.host.update(part.nodes)
            what = f"a {self.kind} graph of {len(part.nodes)} operators runs without being compiled: {error}"
        warnings.warn(f"torch.compile: {what}", RuntimeWarning, stacklevel=2)


def _tensor_on_tpu(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "tpu"
