"""Builds the shim for a PyTorch that the package has no binary for: once, into the user's cache."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

from torch_tpu import _lib

SHARE_DIR = os.path.join(os.path.dirname(_lib.LIB_DIR), "share")


def build_or_reuse(minor):
    """Path of the shim for the installed PyTorch, whose minor version is `minor`."""
    directory = _cache_dir()
    sources = _source_key()
    compiler = _find_compiler()
    if compiler is None:
        # A shim that some compiler made earlier is as good.
        found = [name for name in _entries(directory) if name.startswith(f"shim_{minor}_{sources}_")]
        if found:
            return os.path.join(directory, found[0])
        raise RuntimeError(
            f"there is no shim for PyTorch {minor} in {_lib.LIB_DIR}, and no C++ compiler to build one: install g++ "
            f"(or clang++, or set CXX), or a PyTorch that the package has a shim for ({_prebuilt() or 'none'})"
        )
    target = os.path.join(directory, f"shim_{minor}_{sources}_{_compiler_key(compiler)}.so")
    if not os.path.exists(target):
        with _locked(target + ".lock"):
            if not os.path.exists(target):  # another process may have built it meanwhile
                _build(compiler, minor, target)
    return target


def _build(compiler, minor, target):
    import torch

    root = os.path.dirname(torch.__file__)
    sources = sorted(
        os.path.join(SHARE_DIR, "src/torch", name)
        for name in os.listdir(os.path.join(SHARE_DIR, "src/torch"))
        if name.endswith(".cpp")
    )
    print(
        f"torch_tpu: building the shim for PyTorch {torch.__version__}, once (about 30 s)", file=sys.stderr, flush=True
    )
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as work:
        flags = [
            *("-std=c++20", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-w"),
            *("-DAT_PER_OPERATOR_HEADERS", f'-DTT_TORCH_VERSION="{minor}"', f'-DTT_VERSION="{_version()}"'),
            *("-I", os.path.join(SHARE_DIR, "src"), "-I", os.path.join(SHARE_DIR, "include")),
            *("-isystem", os.path.join(root, "include")),
            *("-isystem", os.path.join(root, "include/torch/csrc/api/include")),
            *("-isystem", os.path.join(root, "include/kineto")),
        ]
        objects = [os.path.join(work, f"{index}.o") for index in range(len(sources))]
        commands = [[*compiler, *flags, "-c", source, "-o", o] for source, o in zip(sources, objects)]
        _run_all(commands)
        built = os.path.join(work, "shim.so")
        libraries = [
            os.path.join(_lib.LIB_DIR, "libtorchtpu.so"),
            os.path.join(root, "lib/libtorch_cpu.so"),
            os.path.join(root, "lib/libc10.so"),
        ]
        # At run time the process has loaded these libraries already; they are found by name.
        _run_all(
            [[*compiler, "-shared", "-o", built, *objects, *libraries, "-Wl,--allow-shlib-undefined", "-lpthread"]]
        )
        os.replace(built, target)


def _run_all(commands):
    """Runs the commands, as many at a time as there are CPUs."""
    pending = list(commands)
    running = []
    while pending or running:
        while pending and len(running) < (os.cpu_count() or 1):
            command = pending.pop(0)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            running.append((command, process))
        command, process = running.pop(0)
        output, _ = process.communicate()
        if process.returncode != 0:
            for _, other in running:
                other.kill()
                other.communicate()
            raise RuntimeError(f"building the shim failed: {' '.join(command)}\n{output[-4000:]}")


def _find_compiler():
    if os.environ.get("CXX"):
        command = os.environ["CXX"].split()
        return command if shutil.which(command[0]) else None
    path = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    return [path] if path else None


def _compiler_key(compiler):
    """Changes when the compiler is replaced; running it to ask its version would cost at each import."""
    path = os.path.realpath(shutil.which(compiler[0]))
    stat = os.stat(path)
    return _digest(" ".join(compiler), path, str(stat.st_size), str(stat.st_mtime_ns))


def _source_key():
    """Changes with PyTorch's build, with the C library, and with the shim's sources."""
    import torch

    parts = [torch.__version__, torch.version.git_version or ""]
    for top in (os.path.join(SHARE_DIR, "src"), os.path.join(SHARE_DIR, "include")):
        if not os.path.isdir(top):
            raise RuntimeError(f"{top} is missing, so the shim can't be built: reinstall the package")
        for directory, _, names in sorted(os.walk(top)):
            for name in sorted(names):
                with open(os.path.join(directory, name), "rb") as file:
                    parts.append(name + hashlib.sha256(file.read()).hexdigest())
    return _digest(*parts)


def _version():
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torchtpu")
    except PackageNotFoundError:
        return "unknown"


def _digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _prebuilt():
    return ", ".join(name[len("libtorchtpu_shim_") : -3] for name in _entries(_lib.LIB_DIR) if "_shim_" in name)


def _entries(directory):
    return sorted(name for name in os.listdir(directory) if name.endswith(".so"))


def _cache_dir():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for directory in (os.path.join(base, "torch_tpu"), os.path.join(tempfile.gettempdir(), f"torch_tpu_{os.getuid()}")):
        with contextlib.suppress(OSError):
            os.makedirs(directory, mode=0o700, exist_ok=True)
            # What is loaded from here runs as this user: nobody else may write to it.
            stat = os.stat(directory)
            if stat.st_uid == os.getuid() and not stat.st_mode & 0o022 and os.access(directory, os.W_OK):
                return directory
    raise RuntimeError("no directory for the built shim: set XDG_CACHE_HOME to one that only you can write to")


@contextlib.contextmanager
def _locked(path):
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, also by a crash
        yield
