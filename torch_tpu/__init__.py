"""Device "tpu" for PyTorch.

`import torch` is enough: the entry point `_autoload` registers the device at the end of it. `import torch_tpu`
registers it too, also where autoloading is off or declined to.
"""

import os
import sys

__all__ = ["__version__", "load", "verify_plugin"]


def _autoload():
    """Entry point of the group torch.backends. Never fails: `import torch` must work whatever is wrong here."""
    try:
        if os.environ.get("TORCH_TPU_AUTOLOAD", "1") != "0":
            from torch_tpu import _loader

            if _loader.autoload():
                return
    except Exception as error:
        import warnings

        warnings.warn(
            f'device "tpu" is not available: {error} (TORCH_TPU_AUTOLOAD=0 turns loading off)',
            RuntimeWarning,
            stacklevel=2,
        )
    # A later `import torch_tpu` asks for the device: it must run this module again.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_tpu"]:
        del sys.modules[name]


def load():
    """Registers device "tpu" with PyTorch. Does nothing if it is registered."""
    from torch_tpu import _loader

    _loader.load()


def __getattr__(name):
    if name == "__version__":
        from importlib.metadata import version

        return version("torchtpu")
    if name == "verify_plugin":
        from torch_tpu._plugins import verify_plugin

        return verify_plugin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _imported_by_autoload():
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return getattr(spec, "_initializing", False)


if not _imported_by_autoload():
    import torch  # noqa: F401  # may call _autoload

    load()
