"""Compiles what the rules build with the compiler of real TPUs, for topologies that need not be there.

python tests/tpu/check.py [--minutes M | --slice SECONDS] [--topologies v5e:2x2,...] [--rule REGEX]

1. collect.py drives the operators and keeps their modules (again only when the library or the drivers changed).
2. Of each rule and set of dtypes a few modules of different structure are chosen.
3. Each is compiled in a process that may die. Results are kept by the hash of the text, in build/tpu/, so that a run
   goes on where an earlier one stopped, and a module that has not changed is never compiled twice.

Fails if a module is rejected, or if a rule of the table has no module.
"""

import argparse
import collections
import datetime
import hashlib
import itertools
import json
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import collect
from compiler import compiler, libtpu

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "tpu.md"
TOPOLOGIES = ("v5e:2x2", "v6e:1x1", "tpu7x:2x2x1")
# How many modules of one rule and one set of dtypes: on the first topology, and on the others.
CHOSEN, CHOSEN_ELSEWHERE = 2, 1
# Dtypes that a TPU emulates (minutes of compiling in all) or computes as another: one module, on the first topology.
RARE = {"f64", "complex<f64>", "f16", "ui8"}
PARTS = 10  # days after which `make test` has had every task
LIMIT = 60  # seconds of CPU for one module
SLOW = 10  # seconds, after which a module is named


# --- What there is ----------------------------------------------------------------------------------------------------
def rule_names():
    """The table's rules, as modules are named by them."""
    import ctypes

    library = ctypes.CDLL(str(ROOT / "torch_tpu" / "lib" / "libtorchtpu.so"))
    library.tt_rule_name_at.restype = ctypes.c_char_p
    names = itertools.takewhile(bool, map(library.tt_rule_name_at, itertools.count()))
    return [name.decode().removeprefix("aten::").replace(":", "_") for name in names]


def stamp(fake):
    """A digest of all that decides what the modules are."""
    digest = hashlib.sha256(version("torch").encode())
    files = [*sorted((ROOT / "torch_tpu" / "lib").glob("*.so")), Path(fake)]
    files += sorted((ROOT / "tests" / "tpu").glob("*.py")) + sorted((ROOT / "torch_tpu").glob("**/*.py"))
    for file in [*files, *(ROOT / "tests" / "opinfo" / name for name in ("check.py", "compare.py", "suites.py"))]:
        if file != Path(__file__):
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Module:
    """A file, and what is known of it from its text."""

    def __init__(self, path):
        self.path = path
        self.rule = path.name.rsplit("-", 1)[0]
        text = path.read_text()
        self.hash = hashlib.sha256(text.encode()).hexdigest()[:24]
        self.size = len(text)
        self.dtypes = frozenset(re.findall(r"tensor<(?:\d+x)*(complex<\w+>|[a-z]\w*)>", text))
        text = re.sub(r"tensor<[\dx]*", "tensor<", text)
        text = re.sub(r"\[[-\d, :]*\]|(?<=array<i64: )[^>]*|(?<=dense<)[^>]*|(?<== )-?\d+|%\w+", "", text)
        self.structure = hashlib.sha256(text.encode()).hexdigest()


def choose(modules, first):
    """What to compile: of each rule and set of dtypes the shortest module, then the longest, in that order."""
    groups = collections.defaultdict(dict)
    for module in sorted(modules, key=lambda m: (m.size, m.hash)):
        groups[module.rule, module.dtypes].setdefault(module.structure, module)
    chosen = []
    for (_, dtypes), group in groups.items():
        each, rare = list(group.values()), dtypes & RARE
        count = (1 if rare else CHOSEN) if first else 0 if rare else CHOSEN_ELSEWHERE
        chosen += [(bool(rare), i, m.hash, m) for i, m in enumerate([each[0], *reversed(each[1:])][:count])]
    return [module for *_, module in sorted(chosen, key=lambda key: key[:3])]


# --- Running ----------------------------------------------------------------------------------------------------------
class Results:
    """Lines of JSON by topology and hash; made by one version of libtpu."""

    def __init__(self, path):
        self.path, self.known = path, {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    result = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the last line of a run that was killed
                self.known[result["topology"], result["hash"]] = result

    def put(self, topology, module, answer):
        result = {"topology": topology, "hash": module.hash, "status": answer.status, "ms": answer.ms}
        if answer.message:
            result["message"] = answer.message[:2000]
        self.known[topology, module.hash] = result
        with self.path.open("a") as file:
            file.write(json.dumps(result) + "\n")
        return result


def gather(options, fake):
    """The modules of this build; with --slice those of a part of the tasks, another each day."""
    name, chosen = "modules", lambda task: True
    now = stamp(fake)
    if options.slice:
        part = datetime.date.today().toordinal() % PARTS
        name, now = "slice", f"{now} {part}"

        def chosen(task):
            return int(hashlib.sha256(task.encode()).hexdigest(), 16) % PARTS == part

    folder, mark = options.folder / name, options.folder / f"{name}.stamp"
    if not options.keep and (not mark.exists() or mark.read_text() != now):
        begin = time.monotonic()
        for old in folder.glob("*") if folder.exists() else ():
            old.unlink()
        failed, count = collect.collect(folder, fake, options.folder / "collect.log", chosen)
        lines = [f"{a.line}: {a.status}: {a.message}" for a in failed]
        (options.folder / "collect.txt").write_text("\n".join(lines) + "\n")
        lost = [line for line, a in zip(lines, failed) if a.status != "error"]
        print(f"{count} tasks collected in {time.monotonic() - begin:.0f} s, {len(lost)} of them died", flush=True)
        for line in lost:
            print(f"  {line}")
        mark.write_text(now)
    return [Module(path) for path in sorted(folder.glob("*.mlir"))]


def compile_all(options, topology, modules, results, end):
    """Compiles what has no result yet, several at a time; how many were left for want of time."""
    todo = {m.hash: m for m in modules if (topology, m.hash) not in results.known}
    waiting, lock = list(reversed(todo.values())), threading.Lock()

    def note(module, answer):
        results.put(topology, module, answer)
        if answer.status != "ok":
            first = answer.message.splitlines()[0] if answer.message else ""
            print(f"{topology} {module.rule} {answer.status}: {first[:300]}\n  {module.path}", flush=True)
        elif answer.ms > 1000 * SLOW:
            print(f"{topology} {module.rule} took {answer.ms / 1000:.0f} s: {module.path}", flush=True)

    def work(number):
        log = options.folder / f"compile-{number}.log"
        child = compiler(options.compiler, topology, log, options.limit, lines_per_process=1500)
        while time.monotonic() < end:
            with lock:
                if not waiting:
                    break
                module = waiting.pop()
            answer = child.ask(str(module.path))
            with lock:
                note(module, answer)
        child.stop()

    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(work, range(options.workers)))  # raises what they raised
    return len(waiting)


# --- The report -------------------------------------------------------------------------------------------------------
def limits():
    """What the library itself refuses on a TPU, as (rules, device kinds, what)."""
    import ctypes

    library = ctypes.CDLL(str(ROOT / "torch_tpu" / "lib" / "libtorchtpu.so"))
    found, texts = [], [ctypes.c_char_p() for _ in range(3)]
    while library.tt_tpu_limit_at(len(found), *map(ctypes.byref, texts)) & 1:
        found.append([text.value.decode() if text.value else "" for text in texts])
    return found


def summarize(chosen, results, rules):
    """How things stand, for results.json."""
    summary = {"libtpu": version("libtpu"), "limits": limits(), "topologies": {}, "rules": {}}
    failed, having = collections.defaultdict(dict), collections.defaultdict(set)
    for topology, modules in chosen.items():
        counts, seconds = collections.Counter(), 0.0
        for module in {m.hash: m for m in modules}.values():
            result = results.known.get((topology, module.hash), {"status": "not run", "ms": 0})
            counts[result["status"]] += 1
            seconds += result["ms"] / 1000
        for module in modules:
            having[module.rule] |= module.dtypes
            result = results.known.get((topology, module.hash))
            if result and result["status"] != "ok":
                text = (result.get("message") or result["status"]).splitlines()[0]
                failed[module.rule].setdefault((topology, " ".join(sorted(module.dtypes))), text)
        summary["topologies"][topology] = {**counts, "seconds": round(seconds)}
    for rule in rules:
        faults = [{"topology": t, "dtypes": d, "message": m} for (t, d), m in failed.get(rule, {}).items()]
        summary["rules"][rule] = {"dtypes": sorted(having.get(rule, ())), "failures": faults}
    return summary


def document(summary):
    """Lines of docs/reference/tpu.md."""
    rules = summary["rules"]
    yield "# What the TPU compiler takes"
    yield ""
    yield (
        f"Modules of every rule, compiled by libtpu {summary['libtpu']} for topologies that need not be there. "
        "Written by `make check-tpu`; `docs/design/tpu.md` says how. Compiling is no running: no number was checked on "
        "a TPU."
    )
    yield ""
    yield "| Topology | Modules | Compiled | Rejected | No answer within the limit | Not run |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for topology, counts in summary["topologies"].items():
        known = {word: counts.get(word, 0) for word in ("ok", "error", "died", "timeout", "not run")}
        rejected = known["error"] + known["died"]
        row = (topology, sum(known.values()), known["ok"], rejected, known["timeout"], known["not run"])
        yield "| " + " | ".join(map(str, row)) + " |"
    yield ""
    with_module = [name for name in rules if rules[name]["dtypes"]]
    yield f"{len(with_module)} of {len(rules)} rules have a module. Rules with a module in a dtype:"
    yield ""
    count = collections.Counter(dtype for name in with_module for dtype in rules[name]["dtypes"])
    yield ", ".join(f"`{dtype}` {n}" for dtype, n in count.most_common()) + "."
    yield ""
    yield "## Refused before compiling"
    yield ""
    for names, kinds, what in summary["limits"]:
        yield f"- {what} (rules `{names}*`, {kinds or 'every generation'}): a NotImplementedError with the cure."
    yield ""
    yield "## Rejected, or too slow"
    yield ""
    faults = [(name, fault) for name in rules for fault in rules[name]["failures"]]
    for name, fault in faults:
        message = fault["message"].replace("|", " ")[:160]
        yield f"- `{name}` [{fault['dtypes']}] on {fault['topology']}: {message}"
    if not faults:
        yield "Nothing."


def report(options, summary, missing, left):
    """Prints and writes the summary; whether all is well."""
    for topology, counts in summary["topologies"].items():
        row = ", ".join(f"{n} {what}" for what, n in counts.items() if what != "seconds")
        print(f"{topology}: {row}; {counts['seconds']} s of compiling")
    faulty = {name: rule["failures"] for name, rule in summary["rules"].items() if rule["failures"]}
    count = len(summary["rules"])
    print(f"{count} rules, {len(missing)} without a module, {len(faulty)} with a fault, {left} modules left")
    for name in missing:
        print(f"  no module: {name}: drive it in tests/tpu/extra.py")
    for name, faults in sorted(faulty.items()):
        for fault in faults:
            print(f"  {name} [{fault['dtypes']}] on {fault['topology']}: {fault['message'][:300]}")
    if not options.slice and not options.rule:
        (options.folder / "results.json").write_text(json.dumps(summary, indent=1) + "\n")
    if options.report:
        DOCUMENT.parent.mkdir(parents=True, exist_ok=True)
        DOCUMENT.write_text("\n".join(document(summary)) + "\n")
    if options.slice:  # a busy machine must not fail `make test`; what is rejected does
        faulty = {n: f for n, f in faulty.items() if any(not x["message"].startswith("no answer") for x in f)}
    return not missing and not faulty and (not left or options.slice or options.minutes)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--topologies", type=lambda text: tuple(text.split(",")), default=TOPOLOGIES)
    add("--minutes", type=float, help="stop compiling after this long")
    add(
        "--slice",
        type=float,
        metavar="SECONDS",
        help="what the time allows of a part of the tasks, another part each day",
    )
    add("--report", action="store_true", help="write docs/reference/tpu.md")
    add("--rule", help="only rules whose name has this regular expression")
    add("--workers", type=int, default=min(4, os.cpu_count() or 1), help="compilers at a time")
    add("--limit", type=float, default=LIMIT, help="seconds of CPU for one module")
    add("--keep", action="store_true", help="the modules that are there, though the library changed")
    add("--again", action="store_true", help="compile once more what failed")
    add("--folder", type=Path, default=ROOT / "build" / "tpu")
    add("--compiler", type=Path, default=ROOT / "build" / "release" / "bin" / "tpu_compile")
    return parser.parse_args()


def main():
    options = arguments()
    if libtpu() is None:
        print("skipped: libtpu is not installed (make setup-tpu)")
        return 0
    fake = os.environ.get("TT_TEST_FAKE_PLUGIN") or ROOT / "build" / "release" / "lib" / "fake_pjrt.so"
    options.folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    modules = gather(options, fake)
    rules = rule_names()
    missing = [] if options.slice else sorted(set(rules) - {m.rule for m in modules})
    chosen = {t: choose(modules, t == TOPOLOGIES[0]) for t in options.topologies}
    if options.rule:
        chosen = {t: [m for m in each if re.search(options.rule, m.rule)] for t, each in chosen.items()}
    results = Results(options.folder / f"compiled-{version('libtpu')}.jsonl")
    if options.again:
        results.known = {key: r for key, r in results.known.items() if r["status"] == "ok"}
    seconds = options.slice or (60 * options.minutes if options.minutes else float("inf"))
    left = 0
    for index, (topology, each) in enumerate(chosen.items()):
        now = time.monotonic()
        end = now + (begin + seconds - now) / (len(chosen) - index)
        left += compile_all(options, topology, each, results, end)
    good = report(options, summarize(chosen, results, rules), missing, left)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
