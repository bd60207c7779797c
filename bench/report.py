"""The table, the JSON file and the plots."""

import json
import math
import os

import bars
from figures import quartiles, ratio

COLUMNS = ("", "variant", "median", "quartiles", "/ cpu", "/ strict", "/ peer")


def in_order(variants):
    return sorted(variants, key=lambda variant: list(COLORS).index(variant) if variant in COLORS else len(COLORS))


def number(value):
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def times(over, under):
    """A ratio as text, with what half its spread is."""
    if not over or not under:
        return ""
    value, low, high = ratio(over, under)
    spread = "" if math.isnan(low) else f" ±{number((high - low) / 2)}"
    return f"{number(value)}x{spread}"


def lay_out(rows, header):
    """Columns: the first two to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row):
        cells = [cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        return "  ".join(cells).rstrip()

    return [line(header), "  ".join("-" * width for width in widths), *map(line, rows)]


def set_table(figures, set_):
    rows = []
    for (name, case, measure), row in figures.rows.items():
        if name != set_:
            continue
        samples, first = row["samples"], True
        for variant in in_order(samples):
            values = samples[variant]
            low, middle, high = quartiles(values)
            family, _, mode = variant.partition(" ")
            peer = samples.get(f"peer {mode}") if family == "tpu" else None
            rows.append(
                (
                    f"{case} {measure}" + (f", {row['unit']}" if row["unit"] else "") if first else "",
                    variant,
                    number(middle),
                    f"{number(low)}..{number(high)}",
                    times(values, samples.get("cpu")) if variant != "cpu" and row["unit"] else "",
                    times(values, samples.get("tpu strict")) if variant == "tpu fused" and row["unit"] else "",
                    times(values, peer),
                )
            )
            first = False
    return lay_out(rows, COLUMNS) if rows else []


def bar_table(results):
    rows = [
        (
            bar["name"],
            "held" if bar["held"] else "missed",
            number(bar["value"]),
            "" if math.isnan(bar["low"]) else f"{number(bar['low'])}..{number(bar['high'])}",
            number(bar["limit"]),
        )
        for bar in results
    ]
    return lay_out(rows, ("bar", "", "is", "spread", "at most")) if rows else []


def text(context, results, load=0.0):
    lines = []
    if load and load > 0.5:
        lines += [
            f"The load was {load:.1f} before: what waits for several threads, as CPU PyTorch does, was slowed.",
            "",
        ]
    for set_ in dict.fromkeys(key[0] for key in context.figures.rows):
        lines += [f"== {set_}", *set_table(context.figures, set_), ""]
    wrong = [entry for entry in context.agreement if not entry["agrees"]]
    for entry in wrong:
        lines.append(
            f"WRONG: {entry['set']} {entry['case']}, {entry['variant']} computes something else than "
            f"{entry['against']}: {entry['worst']:.2g} off (tolerance {entry['tolerance']:.2g})"
        )
    if context.agreement and not wrong:
        lines.append(f"All variants computed the same ({len(context.agreement)} comparisons).")
    for failure in context.failures:
        lines.append(f"FAILED: {failure['set']} {failure['case']}, {failure['variant']}")
    held = sum(bar["held"] for bar in results)
    lines += ["", *bar_table(results), f"{held} of {len(results)} bars held"]
    return "\n".join(lines)


def finite(value):
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def ratios(figures):
    out = []
    for (set_, case, measure), row in figures.rows.items():
        for variant, samples in row["samples"].items():
            for against, others in row["samples"].items():
                if variant != against and row["unit"]:
                    value, low, high = ratio(samples, others)
                    entry = {"set": set_, "case": case, "measure": measure, "variant": variant, "against": against}
                    out.append({**entry, "ratio": value, "spread": [low, high]})
    return out


def write_json(path, context, results, about):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    content = {
        **about,
        "versions": context.versions,
        "rounds": context.rounds,
        "quick": context.quick,
        "medians": context.figures.summary(),
        "ratios": ratios(context.figures),
        "bars": results,
        "agreement": context.agreement,
        "failures": context.failures,
    }
    with open(path, "w") as file:
        json.dump(finite(content), file, indent=1, allow_nan=False)
        file.write("\n")


# ---- plots ----
COLORS = {
    "cpu": "#8c8c8c",
    "tpu strict": "#1f77b4",
    "tpu fused": "#2ca02c",
    "tpu debug": "#9edae5",
    "peer strict": "#ff9896",
    "peer fused": "#d62728",
    "jax": "#9467bd",
}
# Of each set: the measure, what the others are divided by, and the words.
PLOTS = {
    "enqueue": ("enqueue", "cpu", "time to enqueue a call, relative to CPU PyTorch"),
    "chain": ("step", "cpu", "1,000 elementwise operators and a read, relative to CPU PyTorch"),
    "train": ("step", "cpu", "time of a step, relative to CPU PyTorch"),
    "loops": ("step", "tpu strict", "time of a loop's turn, relative to strict"),
    "start": (("cold", "warm"), None, "from the first touch of the device to the end of its first step, seconds"),
}


def plot_data(figures, set_):
    """[(case, {variant: (value, low, high)})] of a set's plot."""
    measures, base, _ = PLOTS[set_]
    measures = (measures,) if isinstance(measures, str) else measures
    out = []
    for (name, case, measure), row in figures.rows.items():
        samples = row["samples"]
        if name != set_ or measure not in measures or (base and base not in samples):
            continue
        values = {}
        for variant, own in samples.items():
            if base:
                values[variant] = ratio(own, samples[base])
            else:
                low, middle, high = quartiles(own)
                values[variant] = (middle, low, high)
        out.append((case if base else f"{case}, {measure}", values))
    return out


def draw(axes, data):
    variants = in_order({variant for _, values in data for variant in values})
    width = 0.8 / len(variants)
    for k, variant in enumerate(variants):
        places = [i for i, (_, values) in enumerate(data) if variant in values]
        found = [data[i][1][variant] for i in places]
        heights = [value for value, _, _ in found]
        below = [0 if math.isnan(low) else max(0, value - low) for value, low, _ in found]
        above = [0 if math.isnan(high) else max(0, high - value) for value, _, high in found]
        offset = (k - (len(variants) - 1) / 2) * width
        drawn = axes.bar(
            [i + offset for i in places],
            heights,
            width,
            yerr=[below, above],
            label=variant,
            color=COLORS.get(variant),
            error_kw={"elinewidth": 0.8},
        )
        axes.bar_label(drawn, [number(height) for height in heights], fontsize=7, padding=2)
    axes.set_xticks(range(len(data)), [case for case, _ in data])


def plot(folder, figures):
    """Writes a PNG a set; returns their paths, or None where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    os.makedirs(folder, exist_ok=True)
    paths = []
    for set_, (_, base, words) in PLOTS.items():
        data = plot_data(figures, set_)
        if not data:
            continue
        figure, axes = plt.subplots(figsize=(max(6, 2.2 * len(data)), 4.5), layout="constrained")
        draw(axes, data)
        axes.set_ylabel(f"ratio to {base} (lower is better)" if base else "seconds (lower is better)")
        axes.set_title(words, fontsize=10)
        if base:
            axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
        highest = max(value for _, values in data for value, _, _ in values.values())
        lowest = min(value for _, values in data for value, _, _ in values.values())
        if lowest > 0 and highest / lowest > 20:
            axes.set_yscale("log")
            axes.set_ylabel(axes.get_ylabel() + ", logarithmic")
        axes.margins(y=0.15)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False)
        path = os.path.join(folder, f"{set_}.png")
        figure.savefig(path, dpi=130)
        plt.close(figure)
        paths.append(path)
    return paths


def results_of(context):
    return bars.evaluate(context.figures)
