"""Which PJRT plugins there are on this machine. Packages are located, never imported."""

import os
from dataclasses import dataclass

# The default plugin, and what its file must be; docs/plugins.md says where it comes from.
DEFAULT_PACKAGE = "fastatomstruct-xla-cpu"
DEFAULT_VERSION = "2026.6.23"
DEFAULT_SHA256 = "0a0fe56ca17be9efc7b942e89e534e5e0ad4a0f1e369b66d27b62184509015b9"
DEFAULT_LICENSE = "Apache-2.0"

_TPU_LIBRARIES = [("libtpu", "libtpu.so")]
_CPU_LIBRARIES = [
    ("fastatomstruct_xla_cpu", "libpjrt_cpu.so"),
    ("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
]

# Google's PCI devices are also network cards and disks, so the vendor alone doesn't tell.
_GOOGLE = "0x1ae0"
_TPU_IDS = {"0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076", "0x007c", "0x0083"}
_PROCESSING_ACCELERATOR = "0x12"  # the first byte of a PCI class


def asked_for():
    """Whether the environment says that device "tpu" is wanted."""
    return os.environ.get("TORCH_TPU_PLATFORM", "auto") in ("cpu", "tpu") or bool(
        os.environ.get("TORCH_TPU_PJRT_PLUGIN")
    )


def has_tpu(root="/"):
    """Whether this machine has a TPU, from the files of the kernel under `root`."""
    devices = os.path.join(root, "sys/bus/pci/devices")
    try:
        names = os.listdir(devices)
    except OSError:
        names = []
    for name in names:
        directory = os.path.join(devices, name)
        if _read(directory, "vendor") == _GOOGLE and (
            _read(directory, "device") in _TPU_IDS or _read(directory, "class").startswith(_PROCESSING_ACCELERATOR)
        ):
            return True
    if _numbered(os.path.join(root, "dev"), "accel"):
        return True
    # Other devices are passed through VFIO too: believed only where PCI can't be read, as in some containers.
    return not names and _numbered(os.path.join(root, "dev/vfio"), "")


def candidates():
    """Paths (or None) of a TPU plugin to use and of a CPU plugin."""
    tpu = None
    if os.environ.get("TORCH_TPU_PLATFORM") == "tpu" or has_tpu():
        tpu = _first(_TPU_LIBRARIES)
    return tpu, _first(_CPU_LIBRARIES)


@dataclass(frozen=True)
class PluginCheck:
    path: str
    version: str
    sha256: str
    matches: bool  # the file is the pinned one


def verify_plugin():
    """Compares the installed default plugin with the pinned version and hash. Reads the whole file: about a second."""
    import hashlib
    from importlib.metadata import PackageNotFoundError, version

    path = _first(_CPU_LIBRARIES[:1])
    if path is None:
        raise FileNotFoundError(f"the package {DEFAULT_PACKAGE} is not installed")
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _sha256(file)
    try:
        installed = version(DEFAULT_PACKAGE)
    except PackageNotFoundError:
        installed = "unknown"
    return PluginCheck(path, installed, digest, digest == DEFAULT_SHA256)


def _sha256(file):  # Python 3.10
    import hashlib

    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _first(libraries):
    from importlib.util import find_spec

    for package, library in libraries:
        spec = find_spec(package)
        for directory in (spec.submodule_search_locations or []) if spec else []:
            path = os.path.join(directory, library)
            if os.path.exists(path):
                return path
    return None


def _read(directory, name):
    try:
        with open(os.path.join(directory, name)) as file:
            return file.read().strip()
    except OSError:
        return ""


def _numbered(directory, prefix):
    try:
        return any(name.startswith(prefix) and name[len(prefix) :].isdigit() for name in os.listdir(directory))
    except OSError:
        return False
