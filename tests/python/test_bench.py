"""The benchmarks: the driver runs, its outputs are there, and bars are judged rightly. Nothing here is timed."""

import json
import sys

import pytest

from helpers import ROOT

sys.path.append(str(ROOT / "bench"))

import bars
import figures
import protocol

SAME = ("set", "case", "step")


def made_up(**samples):
    out = figures.Figures()
    for variant, values in samples.items():
        out.add(*SAME, "ms", variant, values)
    return out


def judge(limit, value="ours", against="other", **samples):
    bar = bars.Bar("a bar", (*SAME, value), against and (*SAME, against), limit)
    return bars.evaluate(made_up(**samples), (bar,))


def test_a_bar_is_held_at_its_limit_and_missed_above_it():
    (result,) = judge(0.5, ours=[1, 1, 1, 9], other=[2, 2, 2, 2])
    assert result["held"] and result["value"] == 0.5 and result["unit"] == "x"
    (result,) = judge(0.49, ours=[1, 1, 1, 9], other=[2, 2, 2, 2])
    assert not result["held"]


def test_a_bar_over_a_count_needs_nothing_to_compare_with():
    assert judge(0, against=None, ours=[0, 0, 0])[0]["held"]
    (result,) = judge(0, against=None, ours=[1, 1, 1])
    assert not result["held"] and result["value"] == 1 and result["unit"] == "ms"


@pytest.mark.parametrize("samples", [{}, {"ours": [1]}, {"other": [1]}, {"ours": [], "other": [1]}])
def test_what_was_not_measured_is_not_judged(samples):
    assert judge(1, **samples) == []


def test_the_spread_of_a_ratio_is_that_of_rounds():
    # Each round is slow for both alike.
    both = [1.0, 5.0, 2.0, 9.0, 3.0, 7.0, 4.0]
    value, low, high = figures.ratio([2 * sample for sample in both], both)
    assert value == low == high == 2
    value, low, high = figures.ratio([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5)
    assert value == 3 and 1 <= low < 3 < high <= 5


def test_bars_name_figures_that_are_measured():
    import sets

    assert len({bar.name for bar in bars.BARS}) == len(bars.BARS)
    for bar in bars.BARS:
        for set_, case, _, _ in filter(None, (bar.value, bar.against)):
            assert set_ in sets.SETS
            assert not sets.CASES_OF[set_] or case in sets.CASES_OF[set_]


def test_variants_that_compute_something_else_are_found():
    import sets

    context = sets.Context(figures=None, settings=None, variants=[], rounds=1)
    values = {"cpu": [1.0, 2.0], "right": [1.0, 2.00001], "wrong": [1.0, 2.1], "nan": [1.0, float("nan")]}
    sets.agree(context, "train", "mlp", values, 1e-3)
    agrees = {entry["variant"]: entry["agrees"] for entry in context.agreement}
    assert agrees == {"cpu": True, "right": True, "wrong": False, "nan": False}


def test_the_driver_measures_tabulates_and_draws(run_python, tmp_path):
    done = run_python(
        f"import runpy; runpy.run_path({str(ROOT / 'bench/run.py')!r}, run_name='__main__')",
        *("--tiny", "--in-process", "--rounds", 2, "--only", "add,slice_assign,chain,mlp,loops"),
        *("--json", tmp_path / "results.json", "--plots", tmp_path / "plots"),
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["threads"] and results["commit"] and results["machine"]["cores"]
    assert set(results["versions"]) == {"cpu", "tpu strict", "tpu fused", "tpu debug"}
    measured = {(row["set"], row["case"], row["variant"]) for row in results["medians"]}
    for variant in ("cpu", "tpu strict", "tpu fused"):
        assert {("enqueue", "add", variant), ("chain", "20", variant), ("train", "mlp", variant)} <= measured
    assert results["agreement"] and all(entry["agrees"] for entry in results["agreement"])
    assert not results["failures"]
    judged = {bar["name"]: bar["held"] for bar in results["bars"]}
    assert "enqueue of add, fused / cpu" in judged and "mlp, step: tpu fused / cpu" in judged
    for name in ("== enqueue", "== chain", "== train", "slice_assign enqueue, us", "mlp step, ms", "bars held"):
        assert name in done.stdout
    assert done.stdout.count("held") + done.stdout.count("missed") >= len(judged)
    pytest.importorskip("matplotlib")
    for name in ("enqueue", "chain", "train", "loops"):
        assert (tmp_path / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_workers_take_turns_and_one_that_fails_is_left_out():
    with protocol.Team(["cpu", "no such thing"], protocol.Settings(threads=1)) as team:
        assert list(team.workers) == ["cpu"] and "KeyError" in team.failures["no such thing"]
        team.ask("start", {"batch": 4, "width": 8}, program="mlp")
        answer = team.ask("turn", {"count": 2})["cpu"]
        assert len(answer["seconds"]) == len(answer["values"]) == 2
        team.ask("turn", {"no such": 1})
        assert not team.workers and "TypeError" in team.failures["cpu"]
