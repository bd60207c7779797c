"""bench/tpu_cycles: launches of a step are recorded, and what the TPU compiler estimates for them is added up."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build" / "release" / "bin"


def test_launches_name_their_modules(run_python, fake, tmp_path):
    code = """
    import torch

    x = torch.ones(4, device="tpu")
    torch.tpu.synchronize()
    for _ in range(4):
        y = ((x + 1) * x).sum()
        torch.tpu.synchronize()
        torch.tpu.wait_for_compiles()
    """
    for mode, rules in (("strict", ["add.Tensor", "mul.Tensor", "sum"]), ("fused", ["tpu__fused"])):
        folder, log = tmp_path / mode, tmp_path / f"{mode}.launches"
        folder.mkdir()
        variables = {"TORCH_TPU_DUMP_MODULES": folder, "TORCH_TPU_DUMP_LAUNCHES": log, "TORCH_TPU_EAGER_MODE": mode}
        run_python(code, **variables, **fake)
        names = log.read_text().split()
        assert [name.rsplit("-", 1)[0] for name in names[-len(rules) :]] == rules
        assert all((folder / name).exists() for name in names)


def test_a_step_is_measured(fake, tmp_path):
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed")
    if not (BINARIES / "tpu_cost").exists():
        pytest.skip("the programs of `make build` are not there")
    output = tmp_path / "cycles.json"
    command = [sys.executable, ROOT / "bench" / "tpu_cycles" / "run.py", "--models", "mlp", "--topologies", "v6e:1x1"]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [*map(str, command), "--folder", str(tmp_path), "--output", str(output)],
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "estimate, not a measurement" in done.stdout
    strict, fused, compiled, step = json.loads(output.read_text())["rows"]
    assert [row["mode"] for row in (strict, fused, compiled, step)] == ["strict", "fused", "compile", "step"]
    assert strict["launches"] > 20 and fused["launches"] == 1
    assert step["launches"] == 1 and 0 < step["cycles"] < compiled["cycles"] < strict["cycles"]
    assert 0 < fused["cycles"] < strict["cycles"] and 0 < fused["bytes"] < strict["bytes"]
    assert fused["unknown_loops"] == 0 and fused["instructions"] > 5
