"""What the device-type tests share: each runs one check, and fails with what it found."""

import contextlib
import unittest
from dataclasses import dataclass, field

import torch
from torch.testing._internal.common_device_type import PrivateUse1TestBase
from torch.testing._internal.common_utils import TestCase

import skips

PrivateUse1TestBase.setUpClass()  # the instantiated classes are then named after the device: TestOpsTPU


@dataclass
class Options:
    """How much a check does, and who hears of its progress."""

    samples: int = 2
    budget: float = 30.0
    deep: bool = False
    progress: dict = field(default_factory=dict)  # `tell` and `report`


class CheckCase(TestCase):
    """Tests whose body is `self.check(...)`. The result of the last check is `result`."""

    options = Options()
    result = None

    def check(self, kind, subject, dtype, entry, **more):
        type(self).result = None
        name = str(dtype).removeprefix("torch.")
        why = skips.reason(entry, name)
        if why is not None:
            type(self).result = {"status": "skip", "reason": why}
            raise unittest.SkipTest(why)
        options = self.options
        arguments = dict(samples=options.samples, budget=options.budget, **options.progress, **more)
        if torch.tpu.eager_mode() == torch.tpu.EagerMode.FUSED:
            self.rehearse(kind, subject, dtype, arguments)
        runner = kind(subject, dtype, **arguments)
        try:
            result = runner()
        except Exception as error:  # of a generator of samples, or of the harness
            runner.fail("harness", f"{type(error).__name__}: {error}")
            result = runner.result()
        with contextlib.suppress(Exception):
            torch.tpu.synchronize()
        type(self).result = result
        text = describe(result)
        if text:
            self.fail(text)

    @staticmethod
    def rehearse(kind, subject, dtype, arguments):
        """Runs the check until its programs are known to the fused engine, which then has compiled them."""
        for _ in range(2):
            with contextlib.suppress(Exception):  # what it finds is found once more
                kind(subject, dtype, **arguments)()
            torch.tpu.wait_for_compiles()


def describe(result):
    """What a test says of a result; empty if it passes."""
    if result["status"] in ("pass", "soft", "skip"):
        return ""
    rows = [f"{f['kind']} in {f['stage']}: {f['message']}" for f in result["failures"]]
    return "\n".join([result["status"], *rows])
