"""The bars: what figures should come to. Data, and one function that holds figures against it."""

import statistics
from dataclasses import dataclass

from figures import ratio

MODES = ("strict", "fused")
STARTS = ("mlp", "gpt-s", "resnet")
LOOPS = ("300", "907", "1531")


@dataclass(frozen=True)
class Bar:
    """`value`, divided by `against` where there is one, is at most `limit`. Both are (set, case, measure, variant)."""

    name: str
    value: tuple
    against: tuple | None
    limit: float


def _than(name, set_, case, measure, variant, other, limit):
    return Bar(name, (set_, case, measure, variant), (set_, case, measure, other), limit)


def _enqueue(operator, mode, limit, other="cpu"):
    name = f"enqueue of {operator}, {mode} / {other}"
    return _than(name, "enqueue", operator, "enqueue", f"tpu {mode}", other, limit)


def _step(case, variant, other, limit, measure="step"):
    return _than(f"{case}, {measure}: {variant} / {other}", "train", case, measure, variant, other, limit)


BARS = (
    *(_enqueue(operator, "fused", 1.2) for operator in ("add", "layer_norm", "slice_assign")),
    *(_enqueue(operator, "strict", 2.0) for operator in ("add", "layer_norm", "slice_assign", "mm")),
    *(_enqueue("view", mode, 1.2) for mode in ("strict", "fused", "debug")),
    *(
        _enqueue(operator, mode, 1 / 5, f"peer {mode}")
        for operator in ("add", "layer_norm", "slice_assign")
        for mode in MODES
    ),
    Bar("chain of 1,000: programs in fused", ("chain", "1000", "executions", "tpu fused"), None, 1),
    _than("chain of 1,000: fused / peer fused", "chain", "1000", "step", "tpu fused", "peer fused", 1 / 8),
    _than("chain of 1,000: fused / cpu", "chain", "1000", "step", "tpu fused", "cpu", 1.0),
    _step("gpt-s", "tpu fused", "cpu", 0.9),
    _step("gpt-m", "tpu fused", "cpu", 1.1),
    _step("mlp", "tpu fused", "cpu", 1.0),
    *(_step(case, f"tpu {mode}", f"peer {mode}", 1 / 1.5) for case in ("mlp", "gpt-s") for mode in MODES),
    *(
        _step(case, "tpu fused", "tpu strict", limit, measure)
        for case in ("mlp", "gpt-s", "gpt-m", "resnet", "decode")
        for measure, limit in (("first ten", 1.15), ("20 to 29", 1.03), ("step", 1.03))
    ),
    *(
        _than(f"loop of {loop}: fused / strict", "loops", loop, "step", "tpu fused", "tpu strict", 1.03)
        for loop in LOOPS
    ),
    *(
        Bar(f"loop of {loop}, {mode}: {what}", ("loops", loop, measure, f"tpu {mode}"), None, limit)
        for loop in LOOPS
        for mode in MODES
        for measure, what, limit in (
            ("last compile", "last step that compiles", 3),
            ("host syncs", "waits for the device", 0),
        )
    ),
    Bar("import torch: added by the device", ("start", "import torch", "added", "tpu strict"), None, 0.05),
    *(
        Bar(f"start of {case}, {mode}: compiles when warm", ("start", case, "warm, compiles", f"tpu {mode}"), None, 0)
        for case in STARTS
        for mode in MODES
    ),
    *(
        Bar(
            f"start of {case}, {mode}: warm / cold",
            ("start", case, "warm", f"tpu {mode}"),
            ("start", case, "cold", f"tpu {mode}"),
            0.15,
        )
        for case in STARTS
        for mode in MODES
    ),
)


def evaluate(figures, bars=BARS):
    """A dictionary a bar that was measured."""
    out = []
    for bar in bars:
        over = figures.samples(*bar.value)
        under = figures.samples(*bar.against) if bar.against else None
        if not over or (bar.against and not under):
            continue
        value, low, high = ratio(over, under) if under else (statistics.median(over), min(over), max(over))
        out.append(
            {
                "name": bar.name,
                "value": value,
                "low": low,
                "high": high,
                "limit": bar.limit,
                "held": value <= bar.limit,
                "unit": "x" if bar.against else figures.unit(*bar.value[:3]),
            }
        )
    return out
