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
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import collect
from child import Child

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGIES = ("v5e:2x2", "v6e:1x1", "tpu7x:2x2x1")
# How many modules of one rule and one set of dtypes: on the first topology, and on the others.
CHOSEN, CHOSEN_ELSEWHERE = 2, 1
# Dtypes that a TPU emulates (minutes of compiling in all) or computes as another: one module, on the first topology.
RARE = {"f64", "complex<f64>", "f16", "ui8"}
LIMIT = 60  # seconds of CPU for one module
SLOW = 10  # seconds, after which a module is named


# --- What there is ----------------------------------------------------------------------------------------------------
def libtpu():
    """The path of libtpu.so, or None."""
    spec = find_spec("libtpu")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / "libtpu.so").exists():
            return path
    return None


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
    for file in [*files, ROOT / "tests" / "opinfo" / "check.py"]:
        if file.name != "check.py" or file.parent.name == "opinfo":
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
    """The modules of this build."""
    folder, mark = options.folder / "modules", options.folder / "modules.stamp"
    now = stamp(fake)
    if not options.keep and (not mark.exists() or mark.read_text() != now):
        begin = time.monotonic()
        for old in folder.glob("*") if folder.exists() else ():
            old.unlink()
        failed, count = collect.collect(folder, fake, options.folder / "collect.log")
        lines = [f"{a.line}: {a.status}: {a.message}" for a in failed]
        (options.folder / "collect.txt").write_text("\n".join(lines) + "\n")
        lost = [line for line, a in zip(lines, failed) if a.status != "error"]
        print(f"{count} tasks collected in {time.monotonic() - begin:.0f} s, {len(lost)} of them died", flush=True)
        for line in lost:
            print(f"  {line}")
        mark.write_text(now)
    return [Module(path) for path in sorted(folder.glob("*.mlir"))]


def compile_all(options, topology, modules, results, end):
    """Compiles what has no result yet; how many were left for want of time."""
    todo = [m for m in modules if (topology, m.hash) not in results.known]
    command = [options.compiler, libtpu(), topology]
    variables = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    child = Child(command, variables, options.folder / "compile.log", options.limit, lines_per_process=1500)
    left, seen = len(todo), set()
    for module in todo:
        if time.monotonic() > end:
            break
        left -= 1
        if module.hash in seen:
            continue
        seen.add(module.hash)
        answer = child.ask(str(module.path))
        results.put(topology, module, answer)
        if answer.status != "ok":
            first = answer.message.splitlines()[0] if answer.message else ""
            print(f"{topology} {module.rule} {answer.status}: {first[:300]}\n  {module.path}", flush=True)
        elif answer.ms > 1000 * SLOW:
            print(f"{topology} {module.rule} took {answer.ms / 1000:.0f} s: {module.path}", flush=True)
    child.stop()
    return left


def slice_of(rules, day):
    """The rules in the order of a day: each day begins where none of the last ones did."""
    names = sorted(rules, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    begin = day * 61 % len(names)
    return names[begin:] + names[:begin]


# --- The report -------------------------------------------------------------------------------------------------------
def report(options, chosen, results, rules):
    """Prints how things stand and writes results.json; the number of faults."""
    summary = {"libtpu": version("libtpu"), "topologies": {}, "rules": {}}
    failed = collections.defaultdict(dict)
    for topology, modules in chosen.items():
        counts = collections.Counter()
        for module in {m.hash: m for m in modules}.values():
            result = results.known.get((topology, module.hash))
            counts[result["status"] if result else "not run"] += 1
        for module in modules:
            result = results.known.get((topology, module.hash))
            if result and result["status"] != "ok":
                text = (result.get("message") or result["status"]).splitlines()[0]
                failed[module.rule].setdefault((topology, " ".join(sorted(module.dtypes))), text)
        seconds = sum(
            results.known[topology, h]["ms"] for h in {m.hash for m in modules} if (topology, h) in results.known
        )
        summary["topologies"][topology] = {**counts, "seconds": round(seconds / 1000)}
        print(
            f"{topology}: {', '.join(f'{n} {what}' for what, n in counts.items())}; {seconds / 1000:.0f} s of compiling"
        )
    having = collections.defaultdict(set)
    for module in itertools.chain(*chosen.values()):
        having[module.rule] |= module.dtypes
    for rule in rules:
        faults = [{"topology": t, "dtypes": d, "message": m} for (t, d), m in failed.get(rule, {}).items()]
        summary["rules"][rule] = {"dtypes": sorted(having.get(rule, ())), "failures": faults}
    (options.folder / "results.json").write_text(json.dumps(summary, indent=1) + "\n")
    return failed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--topologies", type=lambda text: tuple(text.split(",")), default=TOPOLOGIES)
    add("--minutes", type=float, help="stop compiling after this long")
    add("--slice", type=float, metavar="SECONDS", help="as many rules as the time allows, others each day")
    add("--rule", help="only rules whose name has this regular expression")
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
    missing = sorted(set(rules) - {m.rule for m in modules})
    chosen = {t: choose(modules, t == TOPOLOGIES[0]) for t in options.topologies}
    if options.rule:
        chosen = {t: [m for m in each if re.search(options.rule, m.rule)] for t, each in chosen.items()}
    results = Results(options.folder / f"compiled-{version('libtpu')}.jsonl")
    if options.again:
        results.known = {key: r for key, r in results.known.items() if r["status"] == "ok"}
    seconds = options.slice or (60 * options.minutes if options.minutes else float("inf"))
    if options.slice:
        order = {name: i for i, name in enumerate(slice_of(rules, datetime.date.today().toordinal()))}
        for each in chosen.values():
            each.sort(key=lambda m: (order.get(m.rule, -1), m.hash))
    left = 0
    for index, (topology, each) in enumerate(chosen.items()):
        now = time.monotonic()
        end = now + (begin + seconds - now) / (len(chosen) - index)
        left += compile_all(options, topology, each, results, end)
    failed = report(options, chosen, results, rules)
    print(f"{len(rules)} rules, {len(missing)} without a module, {len(failed)} rejected in a form, {left} modules left")
    for name in missing:
        print(f"  no module: {name}: drive it in tests/tpu/extra.py")
    for rule, faults in sorted(failed.items()):
        for (topology, dtypes), message in faults.items():
            print(f"  {rule} [{dtypes}] on {topology}: {message[:300]}")
    return 1 if missing or failed or (left and not options.slice and not options.minutes) else 0


if __name__ == "__main__":
    sys.exit(main())
