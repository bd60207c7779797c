"""Fixtures. Compiled code is left unoptimised, which changes no result that a test looks at and saves minutes."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

os.environ.setdefault("TORCH_TPU_FAST_COMPILE", "1")
# Tests count compiles, and what an earlier run compiled must not change them; those of the cache turn it on.
os.environ["TORCH_TPU_CACHE"] = "0"

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]  # others have it from helpers: another folder has a conftest of its own


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than half a minute")
    if not hasattr(torch, "tpu"):
        pytest.exit('device "tpu" is not registered: install the package (`make build`)', returncode=3)


@pytest.fixture
def run_python(tmp_path):
    """Runs code in a fresh interpreter and returns its output. A value of None unsets an environment variable."""

    def run(code, *arguments, check=True, timeout=200, **environment):
        variables = dict(os.environ)
        for name, value in environment.items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = str(value)
        script = tmp_path / "script.py"  # a file, so that spawned processes can import it
        script.write_text(textwrap.dedent(code))
        done = subprocess.run(
            [sys.executable, str(script), *map(str, arguments)],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return done

    return run


@pytest.fixture
def no_fallback():
    """Nothing may run on the CPU in the device's stead."""
    with torch.tpu.cpu_fallback("error"):
        yield


@pytest.fixture
def cpu_plugin():
    from torch_tpu import _plugins

    path = _plugins.candidates()[1]
    if path is None:
        pytest.skip("no XLA:CPU plugin is installed")
    return path


@pytest.fixture
def count_plugin(cpu_plugin):
    """Environment in which a plugin counts every call on its way to XLA:CPU."""
    path = os.environ.get("TT_TEST_COUNT_PLUGIN") or str(ROOT / "build/release/lib/count_pjrt.so")
    if not os.path.exists(path):
        pytest.skip("the counting plugin is not built (TT_TEST_COUNT_PLUGIN)")
    return {"TORCH_TPU_PJRT_PLUGIN": path, "COUNT_PJRT_REAL": cpu_plugin, "TORCH_TPU_PLATFORM": "cpu"}


@pytest.fixture(autouse=True)
def _no_leftover_state():
    """A test that changes a mode must not change the next one."""
    mode, device = torch.tpu.eager_mode(), torch.tpu.current_device()
    yield
    torch.tpu.set_eager_mode(mode)
    torch.tpu.set_check_nan(False)
    torch.tpu.set_device(device)
    torch.tpu.synchronize()


@pytest.fixture
def fake():
    """Environment with a device that says it is a TPU v5e, and computes nothing."""
    path = os.environ.get("TT_TEST_FAKE_PLUGIN")
    if not path:
        pytest.skip("TT_TEST_FAKE_PLUGIN is not set")
    return {"TORCH_TPU_PJRT_PLUGIN": path, "TORCH_TPU_PLATFORM": "tpu", "FAKE_PJRT_TPU": "5", "FAKE_PJRT_ONES": "1"}
