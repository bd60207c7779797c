"""Memory statistics of torch.tpu: "allocated" counts the bytes of live tensors, "reserved" those of device buffers."""

from collections import OrderedDict

import torch

from torch_tpu import _lib

from ._utils import _get_device_index

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def _stats(device=None):
    return _lib.get_struct(_lib.MemoryStats, "tt_get_memory_stats", _get_device_index(device, optional=True))


def memory_allocated(device=None):
    """Bytes of live tensors' storages."""
    return _stats(device)["allocated"]


def max_memory_allocated(device=None):
    return _stats(device)["allocated_peak"]


def memory_reserved(device=None):
    """Bytes of buffers on the device: live values, and results not yet computed."""
    return _stats(device)["reserved"]


def max_memory_reserved(device=None):
    return _stats(device)["reserved_peak"]


def memory_stats(device=None):
    """Statistics under the names that torch.cuda.memory_stats uses, as far as they have a meaning here."""
    return OrderedDict(sorted(_flatten("", memory_stats_as_nested_dict(device))))


def memory_stats_as_nested_dict(device=None):
    stats = _stats(device)
    allocations = {
        "current": stats["active"],
        "allocated": stats["allocation_count"],
        "freed": stats["free_count"],
    }
    allocated = {
        "current": stats["allocated"],
        "peak": stats["allocated_peak"],
        "allocated": stats["allocated_total"],
        "freed": stats["freed_total"],
    }
    return {
        "allocation": {"all": allocations},
        "active": {"all": dict(allocations)},
        "allocated_bytes": {"all": allocated},
        "active_bytes": {"all": dict(allocated)},
        "reserved_bytes": {"all": {"current": stats["reserved"], "peak": stats["reserved_peak"]}},
        "num_alloc_retries": 0,
        "num_ooms": stats["oom_count"],
        "limit_bytes": stats["limit"],
    }


def _flatten(prefix, value):
    if not isinstance(value, dict):
        return [(prefix, value)]
    return [item for key, inner in value.items() for item in _flatten(f"{prefix}.{key}" if prefix else key, inner)]


def memory_summary(device=None, abbreviated=False):
    """The statistics as a table."""
    stats = _stats(device)
    rows = [
        ("allocated", stats["allocated"], stats["allocated_peak"]),
        ("reserved", stats["reserved"], stats["reserved_peak"]),
    ]
    lines = [
        f"tpu:{_get_device_index(device, optional=True)} memory (MiB)",
        f"{'':<10} {'current':>12} {'peak':>12}",
        *(f"{name:<10} {now / 2**20:>12.2f} {peak / 2**20:>12.2f}" for name, now, peak in rows),
        f"{'limit':<10} {stats['limit'] / 2**20:>12.2f}",
    ]
    if not abbreviated:
        lines.append(
            f"storages: {stats['active']} live, {stats['allocation_count']} allocated, {stats['free_count']} freed; "
            f"out of memory {stats['oom_count']} times"
        )
    return "\n".join(lines)


def reset_peak_memory_stats(device=None):
    _lib.runtime().tt_reset_peak_memory(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device=None):
    torch.accelerator.reset_accumulated_memory_stats(_get_device_index(device, optional=True))


def empty_cache():
    """Frees what is kept only for speed."""
    if _lib.runtime().tt_is_initialized():
        _lib.runtime().tt_empty_cache()


def mem_get_info(device=None):
    """(free, total) bytes of what the backend may use. Creates the client."""
    _lib.runtime().tt_init()
    stats = _stats(device)
    return max(0, stats["limit"] - max(stats["reserved"], stats["allocated"])), stats["limit"]
