"""What was measured: samples a variant, medians, and ratios of medians with their spread."""

import math
import statistics

import numpy as np

RESAMPLES = 400


class Figures:
    """Samples by (set, case, measure) and variant; samples of the same round have the same index."""

    def __init__(self):
        self.rows = {}

    def add(self, set_, case, measure, unit, variant, samples):
        row = self.rows.setdefault((set_, case, measure), {"unit": unit, "samples": {}})
        row["samples"].setdefault(variant, []).extend(float(sample) for sample in samples)

    def samples(self, set_, case, measure, variant):
        """None where it wasn't measured."""
        row = self.rows.get((set_, case, measure))
        return (row["samples"].get(variant) or None) if row else None

    def unit(self, set_, case, measure):
        return self.rows[(set_, case, measure)]["unit"]

    def summary(self):
        """The medians and quartiles as JSON has them."""
        out = []
        for (set_, case, measure), row in self.rows.items():
            for variant, samples in row["samples"].items():
                low, middle, high = quartiles(samples)
                out.append(
                    {
                        "set": set_,
                        "case": case,
                        "measure": measure,
                        "variant": variant,
                        "unit": row["unit"],
                        "median": middle,
                        "quartiles": [low, high],
                        "count": len(samples),
                    }
                )
        return out


def quartiles(samples):
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    return tuple(statistics.quantiles(samples, n=4, method="inclusive"))


def ratio(over, under):
    """(ratio of the medians, and where nine tenths of the ratios of resampled rounds lie).

    Where both have a sample a round the rounds are drawn, not the samples: what was slow in both is no spread.
    """
    value = statistics.median(over) / max(statistics.median(under), 1e-12)
    over, under = np.asarray(over), np.asarray(under)
    if len(over) < 3 or len(under) < 3:
        return value, math.nan, math.nan
    generator = np.random.default_rng(0)
    i = generator.integers(len(over), size=(RESAMPLES, len(over)))
    j = i if len(over) == len(under) else generator.integers(len(under), size=(RESAMPLES, len(under)))
    ratios = np.median(over[i], axis=1) / np.maximum(np.median(under[j], axis=1), 1e-12)
    low, high = np.quantile(ratios, [0.05, 0.95])
    return value, float(low), float(high)
