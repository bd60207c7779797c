"""How operators run, and what the backend counts."""

import contextlib
import enum

from torch_tpu import _lib


class EagerMode(enum.Enum):
    """How operators run.

    STRICT launches each operator by itself, asynchronously. DEBUG waits for each and raises at its line. FUSED records
    operators and launches many as one program once it has met them before.
    """

    STRICT = 0
    DEBUG = 1
    FUSED = 2
    DEFER_NEVER = STRICT  # the names that torch_tpu has for them
    DEFER_NEVER_AND_LAUNCH_BLOCKING = DEBUG
    DEFER_AND_FUSE = FUSED


def eager_mode():
    return EagerMode(_lib.runtime().tt_get_eager_mode())


class set_eager_mode:
    """Sets how operators run: an EagerMode or its name. As a context manager it puts the former mode back."""

    def __init__(self, mode):
        self._previous = eager_mode()
        _lib.runtime().tt_set_eager_mode(_member(EagerMode, mode, "eager mode").value)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        _lib.runtime().tt_set_eager_mode(self._previous.value)
        return False


def is_deferred(tensor):
    """Whether the tensor's value is only recorded (FUSED), so that reading it would have to launch it first."""
    import torch

    return torch.ops.torchtpu.is_deferred(tensor)


def set_check_nan(enabled):
    """In DEBUG mode, makes a NaN in a floating result raise RuntimeError."""
    _lib.runtime().tt_set_check_nan(bool(enabled))


class _Fallback(enum.Enum):
    SILENT = 0
    WARN = 1
    ERROR = 2


class cpu_fallback:
    """What an operator without a rule does: "warn" (run on the CPU and name it once; the default), "error", "silent".

    As a context manager it puts the former setting back.
    """

    def __init__(self, mode):
        self._previous = _lib.shim().tt_shim_get_fallback_mode()
        _lib.shim().tt_shim_set_fallback_mode(_member(_Fallback, mode, "cpu_fallback mode").value)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        _lib.shim().tt_shim_set_fallback_mode(self._previous)
        return False


def _member(kind, value, what):
    if isinstance(value, kind):
        return value
    try:
        return kind[str(value).upper()]
    except KeyError:
        names = ", ".join(repr(member.name.lower()) for member in kind)
        raise ValueError(f"{what} {value!r} is none of {names}") from None


def fallback_ops():
    """The operators that ran on the CPU so far, each with how often."""
    lines = (_lib.shim().tt_shim_fallback_ops() or b"").decode().splitlines()
    return {name: int(count) for name, count in (line.rsplit(" ", 1) for line in lines if line)}


def counters():
    """What happened since the process began: compiles, executions, cache hits and misses, transfers, fallbacks."""
    return _lib.get_struct(_lib.Counters, "tt_get_counters")


def wait_for_compiles():
    """Waits until nothing is left to compile in the background (fused mode)."""
    _lib.runtime().tt_wait_for_compiles()


def compile_count():
    return counters()["compiles"]


def compile_cache_stats():
    """What the compile cache on disk did since the process began.

    `disk_hits` and `shared_hits` are modules that were loaded instead of compiled, `misses` were compiled, `stores` are
    entries written, `rejected` ones that were damaged and replaced; `seconds_saved` is the compiler's time less the
    loading. `directory` is None where the cache is off (TORCH_TPU_CACHE=0), `shared_directory` where there is none.
    """
    directory, shared, limit = _lib.cache_settings()
    counted = counters()
    stats = {"directory": directory, "shared_directory": shared, "limit_bytes": limit}
    stats.update({name: counted[name] for name in ("disk_hits", "shared_hits")})
    for name in ("misses", "stores", "rejected", "evicted", "lock_waits", "read_bytes", "written_bytes"):
        stats[name] = counted["disk_" + name]
    stats["seconds_saved"] = counted["disk_saved_ns"] / 1e9
    return stats


def clear_compile_cache():
    """Forgets every compiled operator in memory. Tensors stay valid.

    What is on disk stays, and is loaded from there when it is needed again: `torch-tpu cache clear` removes that.
    """
    _lib.runtime().tt_clear_compile_cache()


def trace_start():
    """Starts recording spans: operators, compiles, launches, transfers."""
    _lib.runtime().tt_trace_start_all()


def trace_stop(path):
    """Stops recording and writes a trace that chrome://tracing and Perfetto read."""
    import os

    _lib.runtime().tt_trace_stop_to(os.fsencode(path))


@contextlib.contextmanager
def trace(path):
    trace_start()
    try:
        yield
    finally:
        trace_stop(path)


def compile_step(model, optimizer, loss_fn, *, accumulate=1, clip_norm=None, options=None):
    """Makes one program of a training step: forward, backward and the optimizer's update.

        step = torch.tpu.compile_step(model, optimizer, lambda model, x, y: F.cross_entropy(model(x), y))
        for x, y in batches:
            loss = step(x, y)

    `loss_fn(model, *batch)` gives the loss, or a tuple that begins with it; a step returns the same, detached. The
    first step with batches of a shape, and the first after the model's mode or the optimizer's settings changed, runs
    the Python code once to record it, without running an operator, and compiles; the following ones run the program.
    So what the Python code does beside tensors (printing, counting) happens once a program, and it can't read a
    tensor's value. Learning rates are operands: schedulers work and compile nothing.

    Parameters, buffers and the optimizer's state keep their tensors and are updated in place. Gradients exist within
    the program alone; `.grad` is neither read nor written. Optimizers that have `capturable` are set to it. With
    `accumulate=n` the batch is cut along its first dimension into n parts whose gradients are averaged; `clip_norm` is
    the max_norm of torch.nn.utils.clip_grad_norm_(). `options={"xla_...": value}` are XLA options that the step's
    programs are compiled with, as those of torch.compile; the plugin refuses what it doesn't know.
    """
    from torch_tpu._compile_step import CompiledStep

    return CompiledStep(model, optimizer, loss_fn, accumulate, clip_norm, options)
