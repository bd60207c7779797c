"""Where the package has no shim for the installed PyTorch, one is built: once, by one process, into a cache."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torch_tpu import _lib

# An editable install finds its own source tree before anything on the path.
SETUP = (
    "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__]; import torch; "
)
USE = SETUP + "print(torch.ones(2, device='tpu').sum().item())"


@pytest.fixture
def package(tmp_path):
    """A copy of the package without its shim, and the environment that finds it."""
    source = Path(_lib.LIB_DIR).parent
    if not (source / "share/src/torch").is_dir():
        pytest.skip("the shim's sources are not installed")
    target = tmp_path / "path/torch_tpu"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    (target / "lib").mkdir()
    (target / "lib/libtorchtpu.so").symlink_to(Path(_lib.LIB_DIR) / "libtorchtpu.so")
    environment = dict(
        os.environ,
        PYTHONPATH=str(tmp_path / "path"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        TORCH_TPU_PLATFORM="cpu",
    )
    return target, environment


def start(environment):
    return subprocess.Popen(
        [sys.executable, "-c", USE], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_builds_once(package, tmp_path):
    target, environment = package
    processes = [start(environment) for _ in range(2)]
    outputs = [process.communicate(timeout=800) for process in processes]
    assert [out for out, _ in outputs] == ["2.0\n"] * 2, outputs
    said = "".join(error for _, error in outputs)
    assert said.count("building the shim") == 1, said
    (shim,) = (tmp_path / "cache/torch_tpu").glob("*.so")

    # From the cache, also when the compiler is gone.
    for path in (environment["PATH"], str(tmp_path)):
        out, error = start({**environment, "PATH": path}).communicate(timeout=100)
        assert out == "2.0\n" and "building" not in error, error

    # Changed sources make another one; one that does not compile is a warning, and `import torch` works.
    broken = target / "share/src/torch/broken.cpp"
    broken.write_text("this is no C++\n")
    out, error = start(environment).communicate(timeout=800)
    assert out == "" and "building the shim failed" in error and "broken.cpp" in error
    assert list((tmp_path / "cache/torch_tpu").glob("*.so")) == [shim]


def test_no_compiler_is_a_clear_warning(package, tmp_path):
    _, environment = package
    code = SETUP + "print((torch.ones(2) + 1).sum().item(), hasattr(torch, 'tpu'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        cwd="/",
    )
    assert done.stdout == "4.0 False\n"
    assert "no C++ compiler" in done.stderr and "g++" in done.stderr


def test_cache_directory_of_others_is_not_used(monkeypatch, tmp_path):
    from torch_tpu import _shim_build

    theirs = tmp_path / "torch_tpu"
    theirs.mkdir()
    theirs.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _shim_build._cache_dir() != str(theirs)
    theirs.chmod(0o700)
    assert _shim_build._cache_dir() == str(theirs)
