"""The C fuzzers know every rule: they have no PyTorch, and read its schemas from a generated header."""

import re
import runpy

from helpers import ROOT


def test_every_rule_has_a_schema():
    generator = runpy.run_path(str(ROOT / "tools/gen_fuzz_schemas.py"))
    header = (ROOT / "tests/support/fuzz_schemas.h").read_text()
    known = re.findall(r'^    "(\w+::[\w.]+)\|', header, re.MULTILINE)
    assert known == [*(n for n in generator["rule_names"]() if not n.startswith("tt::")), *known[-4:]], (
        "run tools/gen_fuzz_schemas.py"
    )
