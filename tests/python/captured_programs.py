"""Random programs (programs.py) whose later lines are recorded as a graph."""

import re

import torch

from programs import Choices, Mismatch, Program, World, run_program, storage_of

# What changes a tensor object rather than values, or asks for more than values: not what graphs are made of.
NOT_RECORDED = re.compile(
    r"^r = |^del |grad|backward|hook|\.data\b|set_\(|resize|out=|_version|"
    r"\.(t|transpose|squeeze|unsqueeze|swapaxes|swapdims|movedim|as_strided|detach)_\("
)


def run_captured(seed):
    """A program's later lines recorded as a graph, whose inputs are what the earlier ones made."""
    lines = run_program(Choices(seed)).lines
    start = 1 + len(lines) // 3
    skipped = {line for line in lines[start:] if NOT_RECORDED.search(line)}
    while True:
        try:
            with torch.no_grad():
                return _captured(lines[:start], [line for line in lines[start:] if line not in skipped])
        except _NotRecorded as error:
            skipped.add(error.args[0])
        except Mismatch as error:
            rest = "\n".join(line for line in lines[start:] if line not in skipped)
            raise Mismatch(f"{error}\nprogram:\n" + "\n".join(lines[:start]) + f"\nrecorded:\n{rest}") from None


class _NotRecorded(Exception):
    pass


def _tensors(world):
    return {n: t for n, t in world.names.items() if n[0] == "t" and n[1:].isdigit()}


def _captured(before, recorded):
    cpu, tpu, inside = World("cpu"), World("tpu"), World("tpu")
    for line in before:
        cpu.run(line)
        tpu.run(line)
    inputs = _tensors(tpu)
    reference = {name: t.detach() for name, t in _tensors(cpu).items()}  # as they lie now
    graph = torch.ops.torchtpu.create_graph("program")
    inside.names.update(zip(inputs, torch.ops.torchtpu.begin_graph(graph, list(inputs.values()), ())))
    try:
        for line in recorded:
            actual = inside.run(line)
            if actual is not None and ("capture" in str(actual) or isinstance(actual, NotImplementedError)):
                raise _NotRecorded(line)
            expected = cpu.run(line)
            if isinstance(expected, IndexError) and actual is None:  # of an index on the device: heard of later
                raise _NotRecorded(line)
            if type(expected) is not type(actual):
                raise Mismatch(f"{line} raised on the CPU: {expected!r}, while recorded: {actual!r}")
        names = [n for n, t in _tensors(inside).items() if not t.is_conj() and not t.is_neg()]
        torch.ops.torchtpu.end_graph([inside.names[n] for n in names])
    finally:
        torch.ops.torchtpu.abort_graph()
    results, found = torch.ops.torchtpu.run_graph(graph, list(inputs.values()), ())
    if not found:
        raise Mismatch("the graph does not know its own inputs")
    program = Program(Choices(0))
    for name, result in zip(names, results):
        expected = cpu.names[name]
        for what in (torch.Tensor.size, torch.Tensor.stride, torch.Tensor.storage_offset):
            if what(result) != what(expected):
                raise Mismatch(f"{name}: {what.__name__} is {what(result)}, on the CPU {what(expected)}")
        program.check_value(name, result, expected)
    for name, tensor in inputs.items():
        program.check_value(f"the input {name}", tensor, reference[name])
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    of = dict(zip(names, results))
    for a, b in pairs:
        if (storage_of(of[a]) == storage_of(of[b])) != (storage_of(cpu.names[a]) == storage_of(cpu.names[b])):
            raise Mismatch(f"{a} and {b} share memory in one world alone")
    torch.ops.torchtpu.free_graph(graph)
