"""torch.tpu: devices, streams, random numbers, memory, and what the backend counts.

Importing it, asking whether a device is available, and seeding create no client; the first tensor does, or `init()`.
"""

import functools
import re
from dataclasses import dataclass

from torch_tpu import _lib

from . import _utils, amp, memory, random, streams  # noqa: F401  # PyTorch uses _utils
from ._utils import _get_device_index
from .amp import (
    get_amp_supported_dtype,
    get_autocast_dtype,
    is_autocast_enabled,
    is_bf16_supported,
    set_autocast_dtype,
    set_autocast_enabled,
)
from .execution import (
    EagerMode,
    clear_compile_cache,
    compile_cache_stats,
    compile_count,
    compile_step,
    counters,
    cpu_fallback,
    eager_mode,
    fallback_ops,
    is_deferred,
    set_check_nan,
    set_eager_mode,
    trace,
    trace_start,
    trace_stop,
    wait_for_compiles,
)
from .explanation import Compile, Cut, Explanation, Fallback, Sync, explain
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from .random import (
    _get_generator,  # noqa: F401
    _get_rng_state_offset,  # noqa: F401
    _set_rng_state_offset,  # noqa: F401
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    _set_stream_by_id,  # noqa: F401
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "Compile",
    "Cut",
    "EagerMode",
    "Event",
    "Explanation",
    "Fallback",
    "Stream",
    "StreamContext",
    "Sync",
    "amp",
    "can_device_access_peer",
    "clear_compile_cache",
    "compile_cache_stats",
    "compile_count",
    "compile_step",
    "counters",
    "cpu_fallback",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "eager_mode",
    "empty_cache",
    "explain",
    "fallback_ops",
    "get_amp_supported_dtype",
    "get_autocast_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_autocast_enabled",
    "is_available",
    "is_bf16_supported",
    "is_deferred",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "platform",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_check_nan",
    "set_device",
    "set_eager_mode",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
    "trace",
    "trace_start",
    "trace_stop",
    "wait_for_compiles",
]

_runtime = _lib.runtime()


def __getattr__(name):
    # The number of generators is known once the devices are.
    if name == "default_generators":
        return random._default_generators()
    if name == "_initialized":  # torch.utils.checkpoint looks at it
        return is_initialized()
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")


# ---- state ----
def is_available():
    """Whether a plugin that can drive the device was found. Creates no client."""
    return _runtime.tt_is_available()


def is_initialized():
    """Whether the client exists."""
    return _runtime.tt_is_initialized() and not _runtime.tt_in_bad_fork()


def init():
    """Creates the client, which the first use of a device does by itself."""
    _lazy_init()
    _runtime.tt_init()


def _lazy_init():
    """PyTorch calls it wherever the device is named. Naming it creates no client, only using it does."""
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize tpu in forked subprocess. To use tpu with multiprocessing, you must use the 'spawn' "
            "start method"
        )


def _is_in_bad_fork():
    return _runtime.tt_in_bad_fork()


def platform():
    """ "tpu", or "cpu" where the device runs on XLA:CPU."""
    return _lib.get_string("tt_platform")


# ---- devices ----
def device_count():
    return _runtime.tt_device_count()


def current_device():
    """Index of the calling thread's device."""
    return _runtime.tt_current_device()


def set_device(device):
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _runtime.tt_set_current_device(index)


def _exchange_device(index):
    previous = _runtime.tt_current_device()
    if index >= 0:
        _runtime.tt_set_current_device(index)
    return previous


_maybe_exchange_device = _exchange_device


class device:
    """Context manager that makes `device` the current one. Does nothing for None or a negative index."""

    def __init__(self, device):
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exception):
        _maybe_exchange_device(self.prev_idx)
        return False


_DeviceGuard = device


class device_of(device):
    """Context manager that makes the device of a tensor or storage the current one, if that is on a tpu device."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_tpu else None)


def get_device_name(device=None):
    return _lib.get_string("tt_device_name", _get_device_index(device, optional=True))


@dataclass(frozen=True)
class DeviceProperties:
    name: str
    platform: str
    platform_version: str
    total_memory: int  # bytes that the backend may use
    multi_processor_count: int
    major: int  # the TPU's generation; 0 on XLA:CPU
    minor: int
    plugin: str
    plugin_api: tuple


@functools.cache
def _properties(index):
    import ctypes
    import os

    name = get_device_name(index)
    version = _lib.get_string("tt_platform_version")
    path, major, minor = ctypes.c_char_p(), ctypes.c_int(), ctypes.c_int()
    _runtime.tt_plugin_info(ctypes.byref(path), ctypes.byref(major), ctypes.byref(minor))
    generation = re.search(r"(?:v|TPU)(\d+)", name)
    on_tpu = platform() == "tpu"
    return DeviceProperties(
        name=name,
        platform=platform(),
        platform_version=version,
        total_memory=memory.mem_get_info(index)[1],
        multi_processor_count=1 if on_tpu else os.cpu_count() or 1,
        major=int(generation.group(1)) if on_tpu and generation else 0,
        minor=0,
        plugin=path.value.decode(errors="replace"),
        plugin_api=(major.value, minor.value),
    )


def get_device_properties(device=None):
    return _properties(_get_device_index(device, optional=True))


def get_device_capability(device=None):
    """(generation, 0) of a TPU; (0, 0) on XLA:CPU."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device, peer_device):
    """False: a program on one device can't address another's memory. Copies between devices work."""
    for index in (_get_device_index(device, optional=True), _get_device_index(peer_device, optional=True)):
        if not 0 <= index < device_count():
            raise ValueError(f"invalid device tpu:{index}: there are {device_count()} devices")
    return False


def synchronize(device=None):
    """Waits for everything enqueued on `device`, and raises the first error in it."""
    _lazy_init()
    if _runtime.tt_is_initialized():
        _runtime.tt_synchronize(_get_device_index(device, optional=True))
