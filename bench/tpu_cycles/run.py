"""What a training step costs a TPU by its compiler's own estimate: strict, fused, compiled. No TPU is needed.

python bench/tpu_cycles/run.py [--models gpt-m,llama] [--topologies v6e:1x1] [--minutes M] [--top 20] [--report]

1. record.py takes steps on a plugin that poses as a TPU; the launches of a settled step are what counts.
2. Each program among them is compiled for the topology by libtpu, in a process that may die. What it made of a program
   is kept in build/tpu_cycles by the hash of the program's text, so that nothing is compiled twice.
3. tpu_cost adds up the cycles that the compiler estimates, loops as often as they turn; each program counts as often as
   the step launches it. What a launch itself costs is no part of it.
"""

import argparse
import collections
import hashlib
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tpu"), str(Path(__file__).parent)]

from collect import environment  # noqa: E402
from compiler import compiler, libtpu  # noqa: E402

import models  # noqa: E402

TOPOLOGIES = ("v5e:1x1", "v6e:1x1", "tpu7x:2x2x1")
# How operators are launched; or torch.compile of the model, or of the whole step (torch.tpu.compile_step).
MODES = ("strict", "fused", "compile", "step")
DOCUMENT = ROOT / "docs" / "reference" / "tpu_cycles.md"
LIMIT = 900  # seconds of CPU for one program
NOTE = "Cycles are the TPU compiler's estimate, not a measurement; what a launch itself costs is not in them."


def stamp(options):
    """A digest of all that decides what a step launches."""
    digest = hashlib.sha256(version("torch").encode())
    package = ROOT / "torch_tpu"
    here = [path for path in Path(__file__).parent.glob("*.py") if path != Path(__file__)]
    for path in [Path(options.fake), *sorted([*package.glob("lib/*.so"), *package.glob("**/*.py"), *here])]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def record(options, model, mode, now):
    """The names of the modules that a step launches, in order, and the folder that has them."""
    folder = options.folder / "steps" / f"{model}-{mode}"
    mark = folder / "step.json"
    if mark.exists() and (known := json.loads(mark.read_text()))["stamp"] == now:
        return folder, known["launches"]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    variables = {
        **os.environ,
        "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
        **environment(options.fake, folder),
        "TORCH_TPU_DUMP_LAUNCHES": str(folder / "launches"),
        "TORCH_TPU_EAGER_MODE": "fused" if mode == "fused" else "strict",
    }
    command = [sys.executable, str(Path(__file__).parent / "record.py"), model, mode]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{model}, {mode}: the step can't be recorded: {done.stderr[-2000:]}")
    launches = done.stdout.split()
    mark.write_text(json.dumps({"stamp": now, "launches": launches}))
    return folder, launches


def compile_all(options, topology, paths):
    """Compiles what was not yet; by stem the file of the optimized program, or None."""
    folder = options.folder / f"libtpu-{version('libtpu')}" / topology.replace(":", "-")
    folder.mkdir(parents=True, exist_ok=True)
    binary, log = options.binaries / "tpu_compile", options.folder / "compile.log"
    child = compiler(binary, topology, log, LIMIT, keep=folder)
    programs = {}
    for path in paths:
        program = folder / f"{path.stem}.hlo.pb"
        if not program.exists() and time.monotonic() < options.end:
            answer = child.ask(str(path))
            if answer.status != "ok":
                print(f"{topology} {path.stem} {answer.status}: {answer.message[:500]}\n  {path}", flush=True)
        programs[path.stem] = program if program.exists() else None
    child.stop()
    return programs


def costs(options, programs):
    """What tpu_cost says, by file."""
    if not programs:
        return {}
    command = [options.binaries / "tpu_cost", "--top", "1000000", *programs]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {Path(each["file"]): each for each in map(json.loads, output.splitlines())}


def step_cost(launches, programs, cost):
    """The sums of a step, and its dearest instructions."""
    count, row = collections.Counter(Path(name).stem for name in launches), collections.Counter()
    groups, dearest = collections.defaultdict(collections.Counter), []
    for stem, times in count.items():
        each = cost[programs[stem]]
        for key in ("cycles", "bytes", "copied_bytes", "instructions", "unknown_loops"):
            row[key] += times * each[key]
        for item in each["top"]:
            runs = times * item["times"]
            name = item["name"].rstrip("0123456789.")
            cycles = runs * item["cycles"]
            groups[f"{item['opcode']} {name}"].update(runs=runs, cycles=cycles, bytes=runs * item["bytes"])
            dearest.append((cycles, runs, f"{item['name']} of {stem}"))
    return {
        "launches": len(launches),
        "programs": len(count),
        **row,
        "groups": dict(sorted(groups.items(), key=lambda pair: -pair[1]["cycles"])[:100]),
        "dearest": sorted(dearest, reverse=True)[:100],
        "by_program": {
            stem: {"launches": times, "cycles": times * cost[programs[stem]]["cycles"]}
            for stem, times in sorted(count.items(), key=lambda pair: -pair[1] * cost[programs[pair[0]]]["cycles"])
        },
    }


def measure(options):
    """Rows, one for each model, topology and mode."""
    rows, now = [], stamp(options)
    for model in options.models:
        steps = {mode: record(options, model, mode, now) for mode in MODES}
        for topology in options.topologies:
            for mode, (folder, launches) in steps.items():
                paths = [folder / name for name in dict.fromkeys(launches)]
                programs = compile_all(options, topology, paths)
                row = {"model": model, "topology": topology, "mode": mode}
                if all(programs.values()):
                    row.update(step_cost(launches, programs, costs(options, programs.values())))
                else:
                    row["failed"] = sorted(stem for stem, program in programs.items() if program is None)
                rows.append(row)
                print(" | ".join(cells(row, rows)), flush=True)
    return rows


# --- The report -------------------------------------------------------------------------------------------------------
HEAD = (
    "Model",
    "Topology",
    "Mode",
    "Launches",
    "Programs",
    "Kernels",
    "Cycles, thousands",
    "HBM, MB",
    "Cycles, strict / mode",
    "HBM, strict / mode",
)


def ratio(row, rows, key):
    same = (row["model"], row["topology"])
    strict = [r for r in rows if (r["model"], r["topology"]) == same and r["mode"] == "strict" and key in r]
    return f"{strict[0][key] / row[key]:.2f}" if strict and row.get(key) else ""


def cells(row, rows):
    start = [row["model"], row["topology"], row["mode"]]
    if "failed" in row:
        return [*start, f"{len(row['failed'])} programs are not compiled", *[""] * (len(HEAD) - 4)]
    numbers = [row["launches"], row["programs"], row["instructions"]]
    amounts = [f"{row['cycles'] / 1e3:.0f}", f"{row['bytes'] / 1e6:.1f}"]
    return [*start, *map(str, numbers), *amounts, ratio(row, rows, "cycles"), ratio(row, rows, "bytes")]


def document(rows):
    """Lines of docs/reference/tpu_cycles.md."""
    yield "# What a training step costs a TPU, by its compiler's estimate"
    yield ""
    yield (
        f"Written by `make tpu-cycles`; `docs/design/tpu.md` says how. No TPU was there. {NOTE} "
        f"libtpu {version('libtpu')}, AdamW, float32, a synchronise at each step's end."
    )
    yield ""
    for model in dict.fromkeys(row["model"] for row in rows):
        yield f"- {model}: {models.MODELS[model][0]}"
    yield ""
    yield "| " + " | ".join(HEAD) + " |"
    yield "| " + " | ".join("---" for _ in HEAD) + " |"
    for row in rows:
        yield "| " + " | ".join(cells(row, rows)) + " |"
    yield ""
    yield (
        "Kernels are the instructions with an estimate, as often as they run. HBM counts operands and results of each "
        "instruction that lie there, padded to tiles, operands in whole; copies between HBM and the core's own memory "
        "that run beside the kernels are part of it, and have no estimate in cycles."
    )


def print_top(rows, count):
    for row in rows:
        if not count or "groups" not in row:
            continue
        print(f"\n{row['model']}, {row['topology']}, {row['mode']}: the dearest instructions")
        for name, group in list(row["groups"].items())[:count]:
            print(f"  {group['cycles']:>10} cycles {group['runs']:>6} runs {group['bytes'] / 1e6:>8.2f} MB  {name}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--models", type=lambda text: text.split(","), default=models.DEFAULT, help=", ".join(models.MODELS))
    add("--topologies", type=lambda text: text.split(","), default=TOPOLOGIES)
    add("--minutes", type=float, default=float("inf"), help="compile no more after this long")
    add("--top", type=int, default=0, help="print so many kinds of instructions, the dearest first")
    add("--report", action="store_true", help="write docs/reference/tpu_cycles.md")
    add("--folder", type=Path, default=ROOT / "build" / "tpu_cycles")
    add("--output", type=Path, default=ROOT / "build" / "bench" / "tpu_cycles.json")
    add("--binaries", type=Path, default=ROOT / "build" / "release" / "bin")
    add("--fake", default=os.environ.get("TT_TEST_FAKE_PLUGIN") or ROOT / "build" / "release" / "lib" / "fake_pjrt.so")
    options = parser.parse_args()
    options.end = time.monotonic() + 60 * options.minutes
    return options


def main():
    options = arguments()
    if libtpu() is None:
        print("skipped: libtpu is not installed (make setup-tpu)")
        return 0
    print(NOTE)
    print(" | ".join(HEAD))
    rows = measure(options)
    print_top(rows, options.top)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"note": NOTE, "libtpu": version("libtpu"), "rows": rows}, indent=1) + "\n")
    if options.report:
        DOCUMENT.write_text("\n".join(document(rows)) + "\n")
    return 1 if any("failed" in row for row in rows) and options.end == float("inf") else 0


if __name__ == "__main__":
    sys.exit(main())
