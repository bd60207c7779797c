"""torch.tpu.explain: where the time of a program goes."""

import dataclasses
import os
import threading
import time

from torch_tpu import _lib

from .execution import counters, eager_mode, wait_for_compiles

__all__ = ["Compile", "Cut", "Explanation", "Fallback", "Sync", "explain"]

_CUT, _STRETCH, _COMPILE, _SYNC, _FALLBACK = range(5)  # tt_note_kind
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Cut:
    """Where a stretch of operators ended (fused mode).

    reason: "host read: item()" (or bool(), int(), an if), "host read: copy to the host" (.cpu(), print), "event",
    "synchronize", "content" (a place that the program itself chooses, so that a loop gives the same stretches each
    turn; the line is where it was decided, up to 128 operators later), "unknown continuation" (operators were held,
    and another one came than those known), "bound on steps", "bound on bytes", "mode change".
    """

    reason: str
    location: str  # "file.py:12"; "" if there is none
    count: int


@dataclasses.dataclass(frozen=True)
class Compile:
    """Modules compiled for one operator at one line; "tpu::fused" are whole stretches, compiled in the background."""

    operator: str
    location: str
    count: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Fallback:
    """An operator that ran on the CPU."""

    operator: str
    location: str
    count: int


@dataclasses.dataclass(frozen=True)
class Sync:
    """Where the host waited for the device: "item()", "copy to the host", "synchronize", "wait for an event"."""

    kind: str
    location: str
    count: int
    nbytes: int  # read


@dataclasses.dataclass
class Explanation:
    """What `explain` found. Prints as a table.

    All numbers are sums over the steps; `steps` has an Explanation of each, of which the last shows what a loop costs
    once everything is known. `result` is what the last call returned.
    """

    mode: str
    ops: int = 0  # operators that the engine was called with
    executions: int = 0  # programs launched
    stretches: int = 0  # of these, programs made of many operators (fused mode)
    fused_ops: int = 0  # operators in those
    cuts: list = dataclasses.field(default_factory=list)
    compiles: int = 0
    compile_seconds: float = 0.0
    compiled: list = dataclasses.field(default_factory=list)
    cache_hits: int = 0
    cache_misses: int = 0
    disk_hits: int = 0  # modules that came from the cache on disk, where there is one
    disk_misses: int = 0
    fallbacks: list = dataclasses.field(default_factory=list)
    syncs: list = dataclasses.field(default_factory=list)
    bytes_to_device: int = 0
    bytes_to_host: int = 0
    seconds: float = 0.0
    steps: list = dataclasses.field(default_factory=list, repr=False)
    result: object = dataclasses.field(default=None, repr=False)
    counters: dict = dataclasses.field(default_factory=dict, repr=False)  # the differences of torch.tpu.counters()

    def __str__(self):
        return "\n".join(_table(self))


def explain(fn, *args, steps=3, **kwargs):
    """Calls `fn(*args, **kwargs)` `steps` times in the current eager mode; returns an Explanation of where time went.

    Three steps, since operators are compiled in the first and the stretches of fused mode in the second. Compiles in
    the background end before the next step. Nothing is synchronised between steps, so that an operator may be launched
    in the step after its own.

    >>> print(torch.tpu.explain(train_step, batch))
    """
    if steps < 1:
        raise ValueError(f"explain() needs at least one step, not {steps}")
    if not _lock.acquire(blocking=False):
        raise RuntimeError("explain() is already running")
    try:
        _settle(synchronize=True)
        return _run(fn, args, kwargs, steps)
    finally:
        _lib.runtime().tt_explain_stop()
        _lock.release()


def _run(fn, args, kwargs, steps):
    total = Explanation(mode=eager_mode().name.lower())
    first = counters()
    for index in range(steps):
        before = counters()
        _lib.runtime().tt_explain_start()
        begin = time.perf_counter()
        total.result = fn(*args, **kwargs)
        seconds = time.perf_counter() - begin
        _settle()
        _lib.runtime().tt_explain_stop()
        if index == steps - 1:
            _settle(synchronize=True)
        step = Explanation(mode=total.mode, seconds=seconds)
        _take_counters(step, before)
        _take_notes(step)
        total.steps.append(step)
    _take_counters(total, first)
    _add_up(total)
    return total


def _settle(synchronize=False):
    """Waits until nothing is queued and nothing left to compile; without a synchronisation unless asked for one."""
    runtime = _lib.runtime()
    if not runtime.tt_is_initialized():
        return
    if synchronize:
        runtime.tt_synchronize(-1)
    wait_for_compiles()
    while not runtime.tt_is_idle(-1):
        time.sleep(0.0005)


def _take_counters(explanation, before):
    now = counters()
    change = explanation.counters = {name: now[name] - before[name] for name in now}
    explanation.ops = change["cache_hits"] + change["cache_misses"]
    explanation.executions = change["executions"]
    explanation.compiles = change["compiles"]
    explanation.compile_seconds = change["compile_ns"] / 1e9
    explanation.cache_hits, explanation.cache_misses = change["cache_hits"], change["cache_misses"]
    explanation.disk_hits, explanation.disk_misses = change.get("disk_hits", 0), change.get("disk_misses", 0)
    explanation.bytes_to_device = change["host_to_device_bytes"]
    explanation.bytes_to_host = change["device_to_host_bytes"]


def _take_notes(step):
    note, index = _lib.Note(), 0
    while _lib.runtime().tt_explain_note_at(index, note):
        what, place = note.what.decode(errors="replace"), note.place.decode(errors="replace")
        if note.kind == _CUT:
            step.cuts.append(Cut(what, place, note.count))
        elif note.kind == _STRETCH:
            step.stretches += note.count
            step.fused_ops += note.amount
        elif note.kind == _COMPILE:
            step.compiled.append(Compile(what, place, note.count, note.amount / 1e9))
        elif note.kind == _SYNC:
            step.syncs.append(Sync(what, place, note.count, note.amount))
        elif note.kind == _FALLBACK:
            step.fallbacks.append(Fallback(what, place, note.count))
        index += 1


def _add_up(total):
    for step in total.steps:
        total.seconds += step.seconds
        total.stretches += step.stretches
        total.fused_ops += step.fused_ops
    for name in ("cuts", "compiled", "syncs", "fallbacks"):
        rows = {}
        for step in total.steps:
            for row in getattr(step, name):
                # Two rows are one if they have the same texts; their numbers add up.
                key = tuple(value for value in dataclasses.astuple(row) if isinstance(value, str))
                numbers = [value for value in dataclasses.astuple(row) if not isinstance(value, str)]
                old = rows.get(key)
                rows[key] = (type(row), [a + b for a, b in zip(old[1], numbers)] if old else numbers)
        setattr(total, name, [kind(*key, *numbers) for key, (kind, numbers) in rows.items()])


# ---- printing ----
def _bytes(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _place(location):
    path, colon, line = location.partition(".py:")
    if not colon:
        return location or "-"
    near = os.path.relpath(path) if os.path.isabs(path) else path
    return (near if len(near) < len(path) else path) + colon + line


def _rows(title, head, rows, limit=20):
    """A small table: columns of numbers to the right, of text to the left."""
    if not rows:
        return
    cells = [head, *[[str(cell) for cell in row] for row in rows[:limit]]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    numeric = [not isinstance(cell, str) for cell in rows[0]]
    yield ""
    yield title
    for row in cells:
        aligned = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric)]
        yield ("  " + "  ".join(aligned)).rstrip()
    if len(rows) > limit:
        yield f"  ... and {len(rows) - limit} more"


def _table(explanation):
    last = explanation.steps[-1] if len(explanation.steps) > 1 else None
    lines = [
        ("operators", lambda e: e.ops),
        ("programs launched", lambda e: e.executions),
        ("  of many operators", lambda e: f"{e.stretches} ({e.fused_ops} operators)"),
        ("cuts", lambda e: sum(cut.count for cut in e.cuts)),
        ("compiles", lambda e: f"{e.compiles} ({e.compile_seconds:.3f} s)"),
        ("op cache hits, misses", lambda e: f"{e.cache_hits}, {e.cache_misses}"),
        ("disk cache hits, misses", lambda e: f"{e.disk_hits}, {e.disk_misses}"),
        ("CPU fallbacks", lambda e: sum(row.count for row in e.fallbacks)),
        ("host waits", lambda e: sum(row.count for row in e.syncs)),
        ("to the device", lambda e: _bytes(e.bytes_to_device)),
        ("to the host", lambda e: _bytes(e.bytes_to_host)),
        ("host time", lambda e: f"{e.seconds:.4f} s"),
    ]
    if "disk_hits" not in explanation.counters:
        lines = [line for line in lines if not line[0].startswith("disk")]
    count = max(len(explanation.steps), 1)
    shown = [[name, str(value(explanation)), *([str(value(last))] if last else [])] for name, value in lines]
    heads = ["", f"{count} step{'s' * (count > 1)}", *(["the last"] if last else [])]
    widths = [max(len(row[i]) for row in [heads, *shown]) for i in range(len(heads))]
    yield f"{explanation.mode} mode"
    for row in [heads, *shown]:
        yield "  ".join([row[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(row[1:], widths[1:])]]).rstrip()

    def ordered(rows):
        return sorted(rows, key=lambda row: -row.count)

    yield from _rows(
        "cuts", ["count", "reason", "at"], [(c.count, c.reason, _place(c.location)) for c in ordered(explanation.cuts)]
    )
    yield from _rows(
        "host waits",
        ["count", "bytes", "by", "at"],
        [(s.count, s.nbytes, s.kind, _place(s.location)) for s in ordered(explanation.syncs)],
    )
    yield from _rows(
        "CPU fallbacks",
        ["count", "operator", "at"],
        [(f.count, f.operator, _place(f.location)) for f in ordered(explanation.fallbacks)],
    )
    compiled = sorted(explanation.compiled, key=lambda row: -row.seconds)
    yield from _rows(
        "compiled",
        ["seconds", "count", "operator", "at"],
        [(_Seconds(c.seconds), c.count, c.operator, _place(c.location)) for c in compiled],
    )


class _Seconds(float):
    def __str__(self):
        return f"{self:.3f}"
