"""The operators with a rule reach it: none of their forms is left to a composite kernel."""

import itertools

import pytest
import torch

from torch_tpu import _lib


def rules():
    names = []
    for index in itertools.count():
        name = _lib.runtime().tt_rule_name_at(index)
        if name is None:
            return names
        names.append(name.decode())


RULES = rules()
ATEN = [name for name in RULES if name.startswith("aten::")]


def registered(name):
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")


ALL = set(torch._C._dispatch_get_all_op_names())


def full_name(schema):
    return schema.name + (f".{schema.overload_name}" if schema.overload_name else "")


def forms():
    """Each rule's operator with its in-place and out= forms, by PyTorch's schemas."""
    schemas = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            schemas.setdefault(schema.name, []).append(schema)
    for rule in ATEN:
        base, _, overload = rule.partition(".")
        if rule not in ALL:
            continue
        functional = next(s for s in schemas[base] if s.overload_name == overload)
        yield rule, rule
        operands = [(a.name, str(a.type)) for a in functional.arguments]
        for schema in schemas.get(base + "_", []):
            if [(a.name, str(a.type)) for a in schema.arguments] == operands:
                yield rule, full_name(schema)
        for schema in schemas[base]:
            rest = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
            if len(rest) < len(schema.arguments) and rest == operands:
                yield rule, full_name(schema)


def test_count():
    operators = {name.partition(".")[0] for name in ATEN}
    assert len(operators) >= 150, len(operators)
    assert len(set(RULES)) == len(RULES), "a rule stands twice in the table"


def test_every_rule_names_an_operator():
    unknown = [name for name in ATEN if name not in ALL]
    assert not unknown, unknown


def test_every_form_is_registered():
    missing = {form: rule for rule, form in forms() if not registered(form)}
    assert not missing, missing


def test_no_form_is_computed_by_a_composite_kernel():
    composite = []
    for _, form in forms():
        table = torch._C._dispatch_dump_table(form)
        line = next(line for line in table.splitlines() if line.startswith("PrivateUse1:"))
        if "Composite" in line or "fallback" in line.lower():
            composite.append(line)
    assert not composite, composite


@pytest.mark.parametrize("name", ["aten::add.Tensor", "aten::add_.Tensor", "aten::add.out", "aten::mm", "aten::mm.out"])
def test_some_by_name(name):
    assert registered(name)
