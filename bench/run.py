"""Measures device "tpu" beside plain CPU PyTorch, the peer and JAX.

    python bench/run.py                       # everything that needs no other environment
    python bench/run.py --quick               # a few minutes
    python bench/run.py --only gpt-s,enqueue  # sets (enqueue, chain, train, loops, start) or single cases of theirs
    python bench/run.py --peer-env DIR        # also torch-tpu, where DIR has env.sh and an environment with it
    python bench/run.py --jax-env PYTHON      # also JAX, whose Python this is

docs/reference/benchmarks.md says what is measured and how to read it.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import protocol
import report
import sets
from figures import Figures

OUTPUT = os.path.join(protocol.ROOT, "build", "bench")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and little of what is slow")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="sets or cases; may be repeated")
    parser.add_argument("--peer-env", metavar="DIR", help="environment with torch-tpu and an env.sh that names it")
    parser.add_argument(
        "--jax-env",
        metavar="PYTHON",
        nargs="?",
        const=sys.executable,
        help="a Python that has JAX; without a value, this one (make setup-jax)",
    )
    parser.add_argument("--json", metavar="FILE", default=os.path.join(OUTPUT, "results.json"))
    parser.add_argument("--plots", metavar="DIR", default=OUTPUT, help="where plots go")
    parser.add_argument("--rounds", type=int, help="turns of each variant (default 25, quick 8)")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="of each variant")
    parser.add_argument("--cpu-threads", type=int, help="of plain CPU PyTorch, where others use the machine, too")
    parser.add_argument("--variants", metavar="A,B", help="only these of: " + ", ".join(VARIANTS))
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed or a result is wrong")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # for tests: figures mean nothing
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.only = [name for names in options.only for name in names.split(",")]
    known = {*sets.SETS, *(case for cases in sets.CASES_OF.values() for case in cases)}
    unknown = [name for name in options.only if name not in known]
    if unknown:
        parser.error(f"no set or case {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    if options.rounds is None:
        options.rounds = 8 if options.quick else 25
    return options


VARIANTS = ("cpu", "tpu strict", "tpu fused", "tpu debug", "peer strict", "peer fused", "jax")


def variants_of(options):
    chosen = options.variants.split(",") if options.variants else VARIANTS
    return [
        variant
        for variant in VARIANTS
        if variant in chosen
        and (options.peer_env or not variant.startswith("peer"))
        and (options.jax_env or variant != "jax")
    ]


def first_line(command):
    try:
        done = subprocess.run(command, cwd=protocol.ROOT, capture_output=True, text=True, timeout=20)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def about(options):
    """The machine and what was measured on it."""
    commit = first_line(["git", "rev-parse", "HEAD"])
    changed = bool(first_line(["git", "status", "--porcelain", "--untracked-files=no"]))
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit and commit + (" with changes" if changed else ""),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        },
        "python": platform.python_version(),
        "threads": options.threads,
        "cpu_threads": options.cpu_threads or options.threads,
    }


def run(options):
    """Runs the sets that were asked for; the context has what came out."""
    context = sets.Context(
        figures=Figures(),
        settings=protocol.Settings(
            options.threads,
            options.cpu_threads or options.threads,
            options.peer_env and os.path.abspath(options.peer_env),
            options.jax_env,
        ),
        variants=variants_of(options),
        rounds=options.rounds,
        quick=options.quick,
        tiny=options.tiny,
        worker=protocol.LocalWorker if options.in_process else protocol.Worker,
        say=lambda words: print(words, file=sys.stderr, flush=True),
    )
    for name, function in sets.SETS.items():
        cases = set(options.only) & set(sets.CASES_OF[name])
        if options.only and name not in options.only and not cases:
            continue
        context.only_cases = set() if name in options.only else cases
        began = time.monotonic()
        function(context)
        context.say(f"{name}: {time.monotonic() - began:.0f} s")
    return context


def main(arguments=None):
    options = parse(arguments)
    facts = about(options)
    context = run(options)
    results = report.results_of(context)
    print(report.text(context, results, facts["machine"]["load_at_start"]))
    report.write_json(options.json, context, results, facts)
    plots = report.plot(options.plots, context.figures)
    print(f"figures: {options.json}")
    print("plots: " + (" ".join(plots) if plots is not None else "none, matplotlib is not installed"))
    wrong = any(not entry["agrees"] for entry in context.agreement) or context.failures
    return 1 if options.check and (wrong or not all(bar["held"] for bar in results)) else 0


if __name__ == "__main__":
    sys.exit(main())
