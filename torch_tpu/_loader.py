"""Registers device "tpu" with PyTorch. Creates no client and sets no environment variable."""

import os
import sys
import threading

_lock = threading.RLock()
_loaded = False


def load():
    """Loads the C library and the shim, names the device, and adds `torch.tpu`. Idempotent."""
    global _loaded
    with _lock:
        if not _loaded:
            _load()
            _loaded = True


def autoload():
    """`load`, but not where PyTorch was built for another accelerator and there is no TPU. True if it loaded."""
    import torch

    from torch_tpu import _plugins

    build = next((name for name in ("cuda", "hip", "xpu") if getattr(torch.version, name, None)), None)
    if build and not _plugins.asked_for() and not _plugins.has_tpu():
        import warnings

        warnings.warn(
            f'torch_tpu leaves device "tpu" unregistered: this PyTorch is built for {build} and the machine has no '
            "TPU. TORCH_TPU_PLATFORM=cpu, or `import torch_tpu`, registers it, to run on XLA:CPU. "
            "TORCH_TPU_AUTOLOAD=0 silences this.",
            stacklevel=4,
        )
        return False
    load()
    return True


def _init_device(device="tpu"):
    """Loads the backend and returns the device."""
    import torch

    if torch.device(device).type != "tpu" if _loaded else str(device).partition(":")[0] != "tpu":
        raise ValueError(f'torch_tpu has the device "tpu", not {str(device)!r}')
    load()
    return torch.device(device)


def _load():
    import torch

    from torch_tpu import _lib, _plugins

    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "tpu"):
        raise RuntimeError(f"PyTorch has room for one out-of-tree device, and {name!r} is already it")

    runtime = _lib.load_runtime()
    runtime.tt_set_plugin_candidates(*(path and os.fsencode(path) for path in _plugins.candidates()))
    _lib.load_shim(_shim_path(torch))

    torch.utils.rename_privateuse1_backend("tpu")
    from torch_tpu import _integration, tpu

    mode = os.environ.get("TORCH_TPU_CPU_FALLBACK")
    if mode:
        tpu.cpu_fallback(mode)  # here, so that a wrong one leaves nothing half done
    torch._register_device_module("tpu", tpu)
    for name in ("amp", "memory", "random", "streams"):
        sys.modules[f"torch.tpu.{name}"] = getattr(tpu, name)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _integration.install()


def _shim_path(torch):
    from torch_tpu import _lib

    minor = ".".join(torch.__version__.split(".")[:2])
    path = os.path.join(_lib.LIB_DIR, f"libtorchtpu_shim_{minor}.so")
    if os.path.exists(path):
        return path
    from torch_tpu import _shim_build

    return _shim_build.build_or_reuse(minor)
