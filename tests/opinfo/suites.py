"""The three databases of PyTorch as suites: what there is to test, and the tests by name."""

import datetime
import functools
import importlib
import os
import unittest
from typing import NamedTuple

import skips

NAMES = ("ops", "modules", "optims")
# The usual ones first: the first that an entry has stands for it in a quick run.
ORDER = ("float32", "int64", "bool", "complex64", "bfloat16", "float16", "float64", "int32")
PARTS = 10  # a quick run takes one of so many parts of the other dtypes, another one each day


class Task(NamedTuple):
    suite: str
    entry: str
    dtype: str
    method: str  # the test's name; empty if there is no test

    @property
    def key(self):
        return self.suite, self.entry, self.dtype


def dtype_names(info):
    """The dtypes an entry lists for the CPU, the usual ones first."""
    names = [str(dtype).removeprefix("torch.") for dtype in info.dtypes]
    return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def _ops():
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        for dtype in dtype_names(op):
            yield Task("ops", op.formatted_name, dtype, f"test_op_{op.formatted_name}_tpu_{dtype}")
        if not op.dtypes:
            yield Task("ops", op.formatted_name, "", "")


def module_modes(info):
    """(training, suffix of the entry, suffix of the test's name)"""
    if not info.train_and_eval_differ:
        return [(True, "", "")]
    return [(True, " train", "_train_mode"), (False, " eval", "_eval_mode")]


def module_entry(info, training):
    return info.name + next(entry for mode, entry, _ in module_modes(info) if mode == training)


def _modules():
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for _, entry, suffix in module_modes(info):
            for dtype in dtype_names(info):
                yield Task(
                    "modules", info.name + entry, dtype, f"test_module_{info.formatted_name}{suffix}_tpu_{dtype}"
                )


def _optims():
    from torch.testing._internal.common_optimizers import optim_db

    from test_optims import DTYPES

    for info in optim_db:
        for dtype in (str(dtype).removeprefix("torch.") for dtype in DTYPES):
            yield Task("optims", info.name, dtype, f"test_optim_{info.name}_tpu_{dtype}")


def tasks(suite):
    return list({"ops": _ops, "modules": _modules, "optims": _optims}[suite]())


def today():
    """The day that chooses the part: TORCH_TPU_OPINFO_DAY, or the date."""
    return int(os.environ.get("TORCH_TPU_OPINFO_DAY") or datetime.date.today().toordinal())


def quick(everything, day):
    """Of each entry the first dtype that is not skipped, and a part of the others that changes with the day."""
    first, others = {}, []
    for task in everything:
        key = (task.suite, task.entry)
        if key not in first and skips.reason(task.entry, task.dtype) is None:
            first[key] = task
        else:
            others.append(task)
    chosen = {*first.values(), *(task for index, task in enumerate(others) if index % PARTS == day % PARTS)}
    return [task for task in everything if task in chosen]


@functools.cache
def case_class(suite):
    """The instantiated device-type test class of a suite."""
    from cases import CheckCase

    module = importlib.import_module(f"test_{suite}")
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, CheckCase) and value is not CheckCase
    )


def run(suite, method, options):
    """Runs one test and returns its check's result."""
    kind = case_class(suite)
    kind.options, kind.result = options, None
    outcome = unittest.TestResult()
    kind(method).run(outcome)
    if kind.result is not None:
        return kind.result
    if outcome.skipped:
        return {"status": "skip", "reason": outcome.skipped[0][1]}
    text = " ".join(("".join(message for _, message in outcome.errors + outcome.failures) or "no result").split())
    return {"status": "fail", "failures": [{"kind": "harness", "stage": "", "message": text[-400:]}], "fallback": {}}
