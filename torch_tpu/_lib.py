"""The control calls of the C library, through ctypes.

Operators don't come through here: they go from PyTorch's dispatcher straight to the shim. A call that reports failure
raises the exception class that PyTorch uses for it.
"""

import ctypes
import os

LIB_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")

_Status = ctypes.c_void_p  # tt_status *
_string = ctypes.c_char_p
_int = ctypes.c_int32


class Counters(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "compiles",
            "compile_ns",
            "executions",
            "cache_hits",
            "cache_misses",
            "host_to_device",
            "device_to_host",
            "host_to_device_bytes",
            "device_to_host_bytes",
            "synchronizations",
            "fallbacks",
            "disk_hits",
            "shared_hits",
            "disk_misses",
            "disk_stores",
            "disk_rejected",
            "disk_evicted",
            "disk_lock_waits",
            "disk_read_bytes",
            "disk_written_bytes",
            "disk_saved_ns",
        )
    ]


class MemoryStats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "allocated",
            "allocated_peak",
            "allocated_total",
            "freed_total",
            "reserved",
            "reserved_peak",
            "allocation_count",
            "free_count",
            "active",
            "limit",
            "oom_count",
        )
    ]


class CacheSummary(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64) for name in ("entries", "bytes", "bad", "unfinished", "removed", "oldest", "newest")
    ]


CACHE_REPORT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _string, _string)

Locator = ctypes.CFUNCTYPE(_int, ctypes.c_void_p, ctypes.c_size_t)


class Note(ctypes.Structure):
    _fields_ = [
        ("kind", _int),
        ("what", _string),
        ("place", _string),
        ("count", ctypes.c_int64),
        ("amount", ctypes.c_int64),
    ]


_PROTOTYPES = {
    "tt_status_code": (ctypes.c_int, [_Status]),
    "tt_status_message": (_string, [_Status]),
    "tt_status_free": (None, [_Status]),
    "tt_set_plugin_candidates": (None, [_string, _string]),
    "tt_init": (_Status, []),
    "tt_is_initialized": (ctypes.c_bool, []),
    "tt_in_bad_fork": (ctypes.c_bool, []),
    "tt_is_available": (ctypes.c_bool, []),
    "tt_device_count": (_int, []),
    "tt_platform": (_Status, [ctypes.POINTER(_string)]),
    "tt_platform_version": (_Status, [ctypes.POINTER(_string)]),
    "tt_device_name": (_Status, [_int, ctypes.POINTER(_string)]),
    "tt_plugin_info": (_Status, [ctypes.POINTER(_string), ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)]),
    "tt_current_device": (_int, []),
    "tt_set_current_device": (_Status, [_int]),
    "tt_get_eager_mode": (ctypes.c_int, []),
    "tt_set_eager_mode": (None, [ctypes.c_int]),
    "tt_wait_for_compiles": (None, []),
    "tt_set_check_nan": (None, [ctypes.c_bool]),
    "tt_set_matmul_precision": (None, [_int]),
    "tt_get_matmul_precision": (_int, []),
    "tt_synchronize": (_Status, [_int]),
    "tt_is_idle": (ctypes.c_bool, [_int]),
    "tt_get_counters": (None, [ctypes.POINTER(Counters)]),
    "tt_get_memory_stats": (_Status, [_int, ctypes.POINTER(MemoryStats)]),
    "tt_reset_peak_memory": (_Status, [_int]),
    "tt_empty_cache": (_Status, []),
    "tt_clear_compile_cache": (_Status, []),
    "tt_compile_cache_settings": (None, [_string, _string, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int64)]),
    "tt_compile_cache_inspect": (
        _Status,
        [_string, ctypes.c_int, CACHE_REPORT, ctypes.c_void_p, ctypes.POINTER(CacheSummary)],
    ),
    "tt_trace_start_all": (None, []),
    "tt_trace_stop_to": (_Status, [_string]),
    "tt_rule_name_at": (_string, [_int]),
    "tt_set_locator": (None, [Locator]),
    "tt_explain_start": (None, []),
    "tt_explain_stop": (None, []),
    "tt_explain_note_at": (ctypes.c_bool, [_int, ctypes.POINTER(Note)]),
}
_SHIM_PROTOTYPES = {
    "tt_shim_set_fallback_mode": (None, [ctypes.c_int]),
    "tt_shim_get_fallback_mode": (ctypes.c_int, []),
    "tt_shim_fallback_ops": (_string, []),
}

_runtime = None
_shim = None


def _exception_class(code):
    import torch

    return {
        2: IndexError,
        3: TypeError,
        4: ValueError,
        5: NotImplementedError,
        6: torch.OutOfMemoryError,
        7: torch.linalg.LinAlgError,
    }.get(code, RuntimeError)


def _raise_status(status, function, arguments):
    if status:
        code = _runtime.tt_status_code(status)
        message = _runtime.tt_status_message(status).decode(errors="replace")
        _runtime.tt_status_free(status)
        raise _exception_class(code)(message)


def _declare(library, prototypes):
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
        if result is _Status:
            function.errcheck = _raise_status
    return library


def load_runtime():
    """libtorchtpu.so; loaded once."""
    global _runtime
    if _runtime is None:
        path = os.path.join(LIB_DIR, "libtorchtpu.so")
        if not os.path.exists(path):
            raise ImportError(f"{path} is missing: install the package, or run `make build` in its source tree")
        _runtime = _declare(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), _PROTOTYPES)
    return _runtime


def load_shim(path):
    """The shim registers the device's kernels with PyTorch as it is loaded."""
    global _shim
    if _shim is None:
        _shim = _declare(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), _SHIM_PROTOTYPES)
    return _shim


def runtime():
    if _runtime is None:
        raise RuntimeError('device "tpu" is not loaded: call torch_tpu.load()')
    return _runtime


def shim():
    if _shim is None:
        raise RuntimeError('device "tpu" is not loaded: call torch_tpu.load()')
    return _shim


def get_string(name, *arguments):
    """What a call writes to its `const char **` argument."""
    result = _string()
    getattr(runtime(), name)(*arguments, ctypes.byref(result))
    return result.value.decode(errors="replace")


def cache_settings():
    """Directory of the compile cache (None: off), the shared one (None: none), and the bound in bytes."""
    size = 1 << 16
    directory, shared, limit = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size), ctypes.c_int64()
    load_runtime().tt_compile_cache_settings(directory, shared, size, ctypes.byref(limit))
    return os.fsdecode(directory.value) or None, os.fsdecode(shared.value) or None, limit.value


def get_struct(structure, name, *arguments):
    """What a call writes to its `structure *` argument, as a dict."""
    result = structure()
    getattr(runtime(), name)(*arguments, ctypes.byref(result))
    return {field: getattr(result, field) for field, _ in structure._fields_}
