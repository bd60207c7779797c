"""Runs the checks: python tests/opinfo/run.py [--quick] [--filter REGEX] ...

Each entry and dtype is a task for a worker process; one that dies or takes too long loses its task alone. Results are
lines of JSON in build/opinfo/, and a run goes on where an earlier one stopped.
"""

import argparse
import collections
import contextlib
import gc
import json
import multiprocessing
import os
import re
import sys
import time
from multiprocessing import connection
from pathlib import Path

import skips

ROOT = Path(__file__).resolve().parents[2]
TASKS_PER_WORKER = 60  # then a new process, which returns the memory of compiled programs


def dtype_names(op):
    """The dtypes an entry lists for the CPU, the usual ones first."""
    order = ("float32", "int64", "bool", "complex64", "bfloat16", "float16", "float64", "int32")
    names = [str(dtype).removeprefix("torch.") for dtype in op.dtypes]
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def entries():
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.formatted_name: op for op in op_db}


# --- The worker ------------------------------------------------------------------------------------------------------
def work(pipe, log, options):
    """Takes (entry, dtype, first) from the pipe; answers with stages, failures and at last the result."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    import check
    import torch

    torch.set_num_threads(options.threads)
    torch.tpu.cpu_fallback("silent")
    table = entries()
    torch.ones(1, device="tpu").cpu()
    pipe.send(("ready", None))
    for entry, dtype, first in iter(pipe.recv, None):
        runner = check.Check(
            table[entry],
            getattr(torch, dtype),
            options.samples,
            options.budget,
            errors=first,
            tell=lambda stage: pipe.send(("stage", stage)),
            report=lambda failure: pipe.send(("failure", vars(failure))),
        )
        try:
            result = runner()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[: check.MESSAGE]
            failures = [vars(f) for f in runner.failures]
            failures.append({"kind": "harness", "stage": runner.stage, "message": text})
            result = {"status": "fail", "failures": failures, "fallback": runner.fallback}
        with contextlib.suppress(Exception):
            torch.tpu.synchronize()
        gc.collect()
        pipe.send(("done", result))


class Worker:
    """A process that runs tasks one after the other."""

    def __init__(self, number, options):
        self.log = options.output.with_suffix(f".worker{number}.log")
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, str(self.log), options), daemon=True)
        self.process.start()
        theirs.close()
        self.done, self.task, self.ready = 0, None, False
        self.limit, self.since = 120.0, time.monotonic()

    def start(self, task, limit):
        self.task, self.stage, self.failures = task, "samples", []
        self.since, self.limit = time.monotonic(), limit
        self.pipe.send(task)

    def dead(self, status):
        """Ends the process; the result of the task that it had."""
        self.process.kill()
        self.process.join()
        code = self.process.exitcode
        tail = self.log.read_text(errors="replace")[-600:] if self.log.exists() else ""
        what = f"exit {code}" if status == "abort" else f"after {self.limit:.0f} s"
        last = {"kind": status, "stage": self.stage, "message": f"{what}: {' '.join(tail.split())[-300:]}"}
        return {
            "status": status,
            "failures": [*self.failures, last],
            "fallback": {},
            "seconds": round(time.monotonic() - self.since, 2),
        }

    def stop(self):
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.process.join(10)
        self.process.kill()


# --- The driver ------------------------------------------------------------------------------------------------------
def read(path):
    """The results in a file; of two for one entry and dtype, the later."""
    results = {}
    if path.exists():
        for line in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # the last line of a run that was killed
                result = json.loads(line)
                results[result["entry"], result["dtype"]] = result
    return results


def tasks(options, known):
    """What there is to do, and the results of what is skipped."""
    todo, skipped, everything = [], [], []
    for entry, op in entries().items():
        if options.filter and not re.search(options.filter, entry):
            continue
        names = dtype_names(op)
        if options.dtypes:
            names = [name for name in names if name in options.dtypes]
        if options.quick:
            names = [name for name in names if skips.reason(entry, name) is None][:1] or names[:1]
        if not op.dtypes:
            skipped.append(
                {"entry": entry, "dtype": "", "status": "skip", "reason": skips.reason(entry) or skips.NO_CPU}
            )
        for index, name in enumerate(names):
            everything.append((entry, name))
            before = known.get((entry, name))
            if before is not None and before["status"] not in options.again:
                continue
            why = skips.reason(entry, name)
            if why:
                skipped.append({"entry": entry, "dtype": name, "status": "skip", "reason": why})
            else:
                todo.append((entry, name, index == 0))
    if options.part:
        part, parts = options.part
        chosen = {pair for i, pair in enumerate(everything) if i % parts == part % parts}
        todo = [task for task in todo if task[:2] in chosen]
    return todo, [s for s in skipped if (s["entry"], s["dtype"]) not in known]


def summary(results):
    """Lines about how a set of results stands: entries, then entry and dtype pairs, then kinds of failures."""
    worst = ("abort", "timeout", "fail", "soft", "pass", "skip")
    by_entry, kinds = collections.defaultdict(set), collections.Counter()
    fallback, forward = set(), set()
    for result in results:
        by_entry[result["entry"]].add(result["status"])
        kinds.update({failure["kind"] for failure in result.get("failures", ())})
        if result.get("fallback"):
            fallback.add(result["entry"])
            if "forward" in result["fallback"]:
                forward.add(result["entry"])
    each = collections.Counter(min(statuses, key=worst.index) for statuses in by_entry.values())
    pairs = collections.Counter(result["status"] for result in results)

    def row(counter):
        return ", ".join(f"{counter[status]} {status}" for status in reversed(worst) if counter[status])

    yield f"entries {len(by_entry)}: {row(each)}"
    yield f"entry and dtype pairs {sum(pairs.values())}: {row(pairs)}"
    yield f"entries with a CPU fallback: {len(fallback)}, of them in the forward pass {len(forward)}"
    yield "pairs by kind of difference: " + (", ".join(f"{n} {kind}" for kind, n in kinds.most_common()) or "none")


def drive(options, todo, write):
    """Runs the tasks on workers until none is left or the time is over."""
    end = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    queue, workers, numbers = collections.deque(todo), [], iter(range(1 << 30))
    retried, broken = set(), 0
    while queue or any(worker.task for worker in workers):
        if time.monotonic() > end:
            queue.clear()
        while len(workers) < min(options.workers, len(queue) + sum(bool(w.task) for w in workers)):
            workers.append(Worker(next(numbers) % 64, options))
        busy = [worker.pipe for worker in workers]
        for pipe in connection.wait(busy, timeout=0.5):
            worker = next(w for w in workers if w.pipe is pipe)
            try:
                kind, content = pipe.recv()
            except (EOFError, OSError):
                task, result = worker.task, worker.dead("abort")
                workers.remove(worker)
                if task is None:
                    broken += 1
                    if broken > 3:
                        sys.exit(f"workers do not start: see {worker.log}")
                elif worker.done and task not in retried:  # whose fault it was, a fresh process says
                    retried.add(task)
                    queue.appendleft(task)
                else:
                    write(task, result)
                continue
            if kind == "stage":
                worker.stage = content
            elif kind == "failure":
                worker.failures.append(content)
            elif kind == "done":
                write(worker.task, content)
                worker.task, worker.done = None, worker.done + 1
            else:
                worker.ready = True
        for worker in list(workers):
            if worker.ready and worker.task is None:
                if worker.done >= TASKS_PER_WORKER or not queue:
                    worker.stop()
                    workers.remove(worker)
                else:
                    worker.start(queue.popleft(), options.timeout)
            elif time.monotonic() - worker.since > worker.limit:
                result = worker.dead("timeout")
                if worker.task is not None:
                    write(worker.task, result)
                workers.remove(worker)
    for worker in workers:
        worker.stop()


def arguments(argv=None):
    parser = argparse.ArgumentParser(description="Compares device tpu with the CPU over PyTorch's OpInfo database.")
    add = parser.add_argument
    add("--workers", type=int, default=1)
    add("--threads", type=int, default=1, help="CPU threads of PyTorch in each worker")
    add("--dtypes", type=lambda text: set(text.split(",")), help="names, with commas: float32,int64")
    add("--filter", help="entries whose full name has this regular expression")
    add("--quick", action="store_true", help="one dtype an entry")
    add("--part", type=lambda text: tuple(map(int, text.split("/"))), help="I/N: of the pairs each N-th, from the I-th")
    add("--samples", type=int, help="samples an entry and dtype (3; with --quick 2)")
    add("--budget", type=float, default=30, help="seconds after which a check takes no further sample")
    add("--timeout", type=float, default=120, help="seconds after which a worker is killed")
    add("--minutes", type=float, help="stop starting tasks after this long")
    add("--again", type=lambda text: set(text.split(",")), default=set(), help="repeat results of these statuses")
    add("--fresh", action="store_true", help="forget earlier results")
    add("--output", type=Path, help="the results (build/opinfo/full.jsonl or quick.jsonl)")
    options = parser.parse_args(argv)
    options.samples = options.samples or (2 if options.quick else 3)
    options.output = options.output or ROOT / "build" / "opinfo" / ("quick.jsonl" if options.quick else "full.jsonl")
    return options


def main():
    options = arguments()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        options.output.unlink(missing_ok=True)
    known = read(options.output)
    todo, skipped = tasks(options, known)
    print(f"{len(todo)} to do, {len(known)} known, {len(skipped)} skipped: {options.output}", flush=True)
    begin, total, count = time.monotonic(), len(todo), 0
    with options.output.open("a") as file:

        def put(result):
            file.write(json.dumps(result) + "\n")
            file.flush()

        def write(task, result):
            nonlocal count
            count += 1
            put({"entry": task[0], "dtype": task[1], **result})
            if result["status"] != "pass":
                first = result["failures"][0] if result["failures"] else {"kind": "", "stage": "", "message": ""}
                text = f"{first['kind']} in {first['stage']}: {first['message'][:100]}"
                print(f"[{count}/{total}] {result['status']} {task[0]} {task[1]}: {text}", flush=True)

        for result in skipped:
            put(result)
        drive(options, todo, write)
    results = [r for (entry, _), r in read(options.output).items() if re.search(options.filter or "", entry)]
    print(f"{count} done in {time.monotonic() - begin:.0f} s")
    for line in summary(results):
        print(line)
    bad = sum(result["status"] in ("fail", "abort", "timeout") for result in results)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
