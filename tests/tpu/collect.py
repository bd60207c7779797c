"""Collects the modules that operators become on a TPU: drives them from Python on a plugin that poses as one.

Nothing is computed: results are ones. So what an operator does after it has read a result may differ; each module is
nevertheless one that a TPU has to take. The rule of each is in its file's name (src/eager/dump.c).

python tests/tpu/collect.py --work      tasks on stdin, a line each; answers "ok MS TASK" or "error TASK MESSAGE"
"""

import contextlib
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "opinfo"), str(ROOT / "tests" / "tpu")]
DTYPES = ("float32", "bfloat16", "int32", "int64", "bool", "complex64", "float16", "uint8", "float64", "complex128")
SAMPLES = {"float32": 3, "bfloat16": 2, "int64": 2, "complex64": 2}  # else 1


def environment(fake, modules, kind=5):
    """Variables under which a process runs on a TPU that isn't one, and keeps its modules."""
    return {
        "TORCH_TPU_PLATFORM": "tpu",
        "TORCH_TPU_CACHE": "0",
        "TORCH_TPU_PJRT_PLUGIN": str(fake),
        "TORCH_TPU_DUMP_MODULES": str(modules),
        "TORCH_TPU_CPU_FALLBACK": "error",
        "FAKE_PJRT_TPU": str(kind),
        "FAKE_PJRT_ONES": "1",
        "OMP_NUM_THREADS": "1",
    }


def entries():
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.formatted_name: op for op in op_db}


def tasks():
    """Names of everything to drive, "opinfo ENTRY DTYPE" or "extra NAME DTYPE"."""
    import extra
    import extra_private  # noqa: F401  adds to extra.CASES
    import large

    import skips
    from suites import dtype_names

    names = [
        f"opinfo {entry} {dtype}"
        for entry, op in entries().items()
        for dtype in dtype_names(op)
        if dtype in DTYPES and skips.reason(entry, dtype) is None
    ]
    names += [f"extra {name} {dtype}" for name in extra.CASES for dtype in extra.DTYPES]
    return names + [f"large {name} {dtype}" for name in large.CASES for dtype in large.DTYPES]


class Driver:
    """Runs tasks; errors are counted, not raised: many samples are refused, and results are no results."""

    def __init__(self):
        import torch

        self.table, self.torch, self.errors = entries(), torch, []

    def attempt(self, function):
        try:
            result = function()
            self.torch.tpu.synchronize()
            return result
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")
            with contextlib.suppress(Exception):
                self.torch.tpu.synchronize()
            return None

    def backward(self, result, inputs):
        from torch.utils._pytree import tree_flatten

        torch = self.torch
        leaves = [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor) and x.requires_grad]
        wanted = [t for t in inputs if t.requires_grad]
        if leaves and wanted:

            def run():
                seeds = [torch.ones_like(leaf) for leaf in leaves]
                return torch.autograd.grad(leaves, wanted, seeds, allow_unused=True)

            self.attempt(run)

    def opinfo(self, entry, dtype):
        import check

        op, torch = self.table[entry], self.torch
        kind = getattr(torch, dtype)
        differentiable = op.supports_autograd and kind in op.supported_backward_dtypes("cpu")
        samples = self.attempt(lambda: list(op.sample_inputs("cpu", kind, requires_grad=differentiable)))
        for sample in check.pick(samples or [], SAMPLES.get(dtype, 1)):
            self.sample(op, sample)

    def sample(self, op, sample):
        import compare

        call = self.attempt(lambda: compare.Mover().call(compare.Call.of(sample, op)))
        if call is None:
            return
        result = self.attempt(lambda: call.run(op.get_op()))
        self.backward(result, call.tensors())
        in_place = op.get_inplace()
        if in_place is not None and isinstance(call.input, self.torch.Tensor):
            with self.torch.no_grad():
                self.attempt(lambda: in_place(call.input.clone(), *call.args, **call.kwargs))

    def extra(self, name, dtype):
        import extra
        import extra_private  # noqa: F401  adds to extra.CASES

        self.attempt(lambda: extra.CASES[name](getattr(self.torch, dtype)))

    def large(self, name, dtype):
        import large

        self.attempt(lambda: large.CASES[name](getattr(self.torch, dtype)))

    def __call__(self, task):
        kind, name, dtype = task.split()
        self.errors = []
        getattr(self, kind)(name, dtype)
        return self.errors


def work():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed is no answer
    import warnings

    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    driver = Driver()
    torch.ones(1, device="tpu").cpu()
    for line in sys.stdin:
        task, begin = line.strip(), time.monotonic()
        answers.write(f"begin {task}\n")
        torch.manual_seed(0)
        try:
            errors = driver(task)
        except Exception as error:  # of a generator of samples, say
            errors = [f"{type(error).__name__}: {error}"]
        if errors:
            text = " ".join(errors[0].split())[:300]
            answers.write(f"error {task} {len(errors)} of its calls: {text}\n")
        else:
            answers.write(f"ok {1e3 * (time.monotonic() - begin):.0f} {task}\n")


def collect(modules, fake, log, chosen=lambda name: True):
    """Fills the folder `modules` from the chosen tasks; the answers of those that failed, and how many there were."""
    import subprocess

    from child import Child

    modules.mkdir(parents=True, exist_ok=True)
    variables = {**environment(fake, modules), "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    names = subprocess.run(
        [sys.executable, __file__], env={**os.environ, **variables}, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    names = [name for name in names if chosen(name)]
    child = Child([sys.executable, __file__, "--work"], variables, log, limit=60, lines_per_process=400)
    answers = [child.ask(name) for name in names]
    child.stop()
    return [answer for answer in answers if answer.status != "ok"], len(names)


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    else:
        print("\n".join(tasks()))
