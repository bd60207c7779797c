"""Faults that other backends had: small checks that lie beside a checkout of the project, not in it."""

import importlib.util
import warnings

import pytest
import torch

from helpers import ROOT

PATH = ROOT.parent / "shared" / "cases" / "backend_cases.py"

# What isn't right yet, by case: the operator that is missing.
EXPECTED_FAILURES = {}


def load():
    if not PATH.exists():
        return {}
    spec = importlib.util.spec_from_file_location("backend_cases", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: function for name, function in vars(module).items() if name.startswith("case_")}


CASES = load()


def parameters():
    for name in sorted(CASES, key=lambda name: int(name[5:])):
        marks = []
        if name in EXPECTED_FAILURES:
            marks = [pytest.mark.xfail(strict=True, reason=EXPECTED_FAILURES[name])]
        yield pytest.param(name, marks=marks)


@pytest.mark.skipif(not CASES, reason="there is no ../shared/cases/backend_cases.py beside this checkout")
@pytest.mark.parametrize("name", list(parameters()) or ["none"])
def test_case(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CASES[name]("tpu")


@pytest.mark.skipif(not CASES, reason="there is no ../shared/cases/backend_cases.py beside this checkout")
@pytest.mark.parametrize("name", list(parameters()) or ["none"])
def test_case_in_fused(name):
    with torch.tpu.set_eager_mode("fused"):
        for _ in range(3):  # the third time a program runs that was compiled as a whole
            test_case(name)
            torch.tpu.wait_for_compiles()


def test_expected_failures_are_cases():
    assert not CASES or set(EXPECTED_FAILURES) <= set(CASES)
