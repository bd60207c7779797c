"""Runs the checks: python tests/opinfo/run.py [--quick] [--filter REGEX] ...

Each entry and dtype is a test of the device-type classes in test_*.py, and runs in a worker process; one that dies or
takes too long loses its test alone. Results are lines of JSON in build/opinfo/, and a run goes on where an earlier one
stopped.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path

import pool
import skips
import suites

ROOT = Path(__file__).resolve().parents[2]
WORST = ("abort", "timeout", "fail", "soft", "pass", "skip")
BAD = WORST[:3]


def read(path):
    """The results in a file; of two for one test, the later."""
    results = {}
    if path.exists():
        for line in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # the last line of a run that was killed
                result = json.loads(line)
                results[result.get("suite", "ops"), result["entry"], result["dtype"]] = result
    return results


def skipped(task):
    """Why a task is left out; None if it is not."""
    return skips.reason(task.entry, task.dtype) or (None if task.method else skips.NO_CPU)


def choose(options, known):
    """What there is to do, and the results of what is skipped."""
    everything = [task for suite in options.suites for task in suites.tasks(suite)]
    if options.filter:
        everything = [task for task in everything if re.search(options.filter, task.entry)]
    if options.dtypes:
        everything = [task for task in everything if task.dtype in options.dtypes or not task.method]
    if options.quick:
        everything = suites.quick(everything, options.day)
    if options.part:
        part, parts = options.part
        everything = [task for index, task in enumerate(everything) if index % parts == part % parts]
    again = [t for t in everything if t.key not in known or known[t.key]["status"] in options.again]
    todo = [task for task in again if skipped(task) is None]
    return todo, [task for task in again if skipped(task) is not None]


def summary(results):
    """Lines about how a set of results stands: entries, then entry and dtype pairs, then kinds of failures."""
    by_entry, kinds = collections.defaultdict(set), collections.Counter()
    fallback, forward = set(), set()
    for result in results:
        entry = (result.get("suite", "ops"), result["entry"])
        by_entry[entry].add(result["status"])
        kinds.update({failure["kind"] for failure in result.get("failures", ())})
        if result.get("fallback"):
            fallback.add(entry)
            if "forward" in result["fallback"]:
                forward.add(entry)
    each = collections.Counter(min(statuses, key=WORST.index) for statuses in by_entry.values())
    pairs = collections.Counter(result["status"] for result in results)

    def row(counter):
        return ", ".join(f"{counter[status]} {status}" for status in reversed(WORST) if counter[status])

    yield f"entries {len(by_entry)}: {row(each)}"
    yield f"entry and dtype pairs {sum(pairs.values())}: {row(pairs)}"
    yield f"entries with a CPU fallback: {len(fallback)}, of them in the forward pass {len(forward)}"
    yield "pairs by kind of difference: " + (", ".join(f"{n} {kind}" for kind, n in kinds.most_common()) or "none")


def arguments(argv=None):
    parser = argparse.ArgumentParser(description="Compares device tpu with the CPU over PyTorch's databases of tests.")
    add = parser.add_argument
    add("--workers", type=int, default=min(8, os.cpu_count() or 1))
    add("--threads", type=int, default=1, help="CPU threads of PyTorch in each worker")
    add("--suites", type=lambda text: text.split(","), default=suites.NAMES, help="of ops,modules,optims")
    add("--dtypes", type=lambda text: set(text.split(",")), help="names, with commas: float32,int64")
    add("--filter", help="entries whose full name has this regular expression")
    add("--quick", action="store_true", help="one dtype an entry, and of the other dtypes a tenth that changes daily")
    add("--day", type=int, default=suites.today(), help="the number of the day that chooses the tenth")
    add("--part", type=lambda text: tuple(map(int, text.split("/"))), help="I/N: of the tests each N-th, from the I-th")
    add("--samples", type=int, help="samples an entry and dtype (3; with --quick 2)")
    add("--budget", type=float, default=30, help="seconds after which a check takes no further sample")
    add("--timeout", type=float, default=120, help="seconds after which a worker is killed")
    add("--minutes", type=float, help="stop starting tests after this long")
    add(
        "--mode",
        choices=("debug", "strict", "fused"),
        help="the eager mode: debug waits for each operator; fused checks all "
        "three times, so that at the end programs run that were recorded before",
    )
    add("--default-options", action="store_true", help="the compiler's own options instead of the fastest to compile")
    add("--again", type=lambda text: set(text.split(",")), default=set(), help="repeat results of these statuses")
    add("--fresh", action="store_true", help="forget earlier results")
    add("--table", action="store_true", help="write docs/reference/operators.md at the end, if this is the full run")
    add("--output", type=Path, help="the results (build/opinfo/full.jsonl or the like)")
    options = parser.parse_args(argv)
    options.samples = options.samples or (2 if options.quick else 3)
    if options.output is None:
        name = "-".join(
            filter(
                None,
                (
                    "quick" if options.quick else "full",
                    options.mode,
                    "default" if options.default_options else None,
                ),
            )
        )
        options.output = ROOT / "build" / "opinfo" / f"{name}.jsonl"
    return options


def environment(options):
    """What the workers find there when they start."""
    os.environ["TORCH_TPU_FAST_COMPILE"] = "0" if options.default_options else "1"
    if options.mode:
        os.environ["TORCH_TPU_EAGER_MODE"] = options.mode


def line(result):
    """What is printed of a result that is not a plain pass."""
    first = (result.get("failures") or [{"kind": "", "stage": "", "message": result.get("reason", "")}])[0]
    name = f"{result['suite']}: {result['entry']} {result['dtype']}"
    return f"{result['status']} {name}: {first['kind']} in {first['stage']}: {first['message'][:100]}"


def main(argv=None):
    options = arguments(argv)
    environment(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        options.output.unlink(missing_ok=True)
    known = read(options.output)
    todo, left_out = choose(options, known)
    print(f"{len(todo)} to do, {len(known)} known, {len(left_out)} skipped: {options.output}", flush=True)
    begin, count = time.monotonic(), 0
    with options.output.open("a") as file:

        def put(task, result):
            file.write(json.dumps({"suite": task.suite, "entry": task.entry, "dtype": task.dtype, **result}) + "\n")
            file.flush()

        def write(task, result):
            nonlocal count
            count += 1
            put(task, result)
            if result["status"] not in ("pass", "skip"):
                text = line({"suite": task.suite, "entry": task.entry, "dtype": task.dtype, **result})
                print(f"[{count}/{len(todo)}] {text}", flush=True)

        for task in left_out:
            put(task, {"status": "skip", "reason": skipped(task)})
        from cases import Options

        settings = pool.Settings(
            Options(options.samples, options.budget, deep=not options.quick),
            options.output.with_suffix(".logs"),
            workers=options.workers,
            threads=options.threads,
            timeout=options.timeout,
            minutes=options.minutes,
        )
        pool.Pool(settings, todo, write).run()
    results = [r for r in read(options.output).values() if re.search(options.filter or "", r["entry"])]
    print(f"{count} done in {time.monotonic() - begin:.0f} s")
    import table

    for text in [*summary(results), *table.totals(results)]:
        print(text)
    if options.table and options.output.name == "full.jsonl":
        table.write([options.output])
    sys.exit(any(result["status"] in BAD for result in results))


if __name__ == "__main__":
    main()
