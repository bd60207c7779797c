"""Worker processes that run tests: one that dies or takes too long loses its test alone.

Workers are forked from a process that has imported PyTorch and the databases but has not used the device, so a fresh
one takes a moment instead of seconds.
"""

import collections
import contextlib
import functools
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing import connection, forkserver
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
TASKS_PER_WORKER = 100  # then a new process, which returns the memory of compiled programs
START_LIMIT = 120.0


def context():
    """Where workers come from. The server finds this folder by PYTHONPATH: it has no script."""
    if str(HERE) not in sys.path:
        sys.path.append(str(HERE))
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["preload"])
    paths = [str(HERE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # Workers take from each other what is compiled; from an earlier run, and from the user's cache, nothing.
    settings = {"TORCH_TPU_CACHE": "1", "TORCH_TPU_CACHE_DIR": compiled().name}
    settings["TORCH_TPU_RECOMPILE_WARNING"] = "0"  # one line calls an operator with every shape
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(paths), **settings):
        forkserver.ensure_running()
    return server


@functools.cache
def compiled():
    """The compile cache of this run, removed at its end."""
    return tempfile.TemporaryDirectory(prefix="opinfo-compiled")


# --- The worker ------------------------------------------------------------------------------------------------------
def work(pipe, log, options, threads):
    """Takes (suite, method) from the pipe; answers with stages, failures and at last the result."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    import torch

    import suites

    torch.set_num_threads(threads)
    torch.tpu.cpu_fallback("silent")
    torch.ones(1, device="tpu").cpu()
    options.progress = {
        "tell": lambda stage: pipe.send(("stage", stage)),
        "report": lambda failure: pipe.send(("failure", vars(failure))),
    }
    pipe.send(("ready", None))
    for suite, method in iter(pipe.recv, None):
        result = suites.run(suite, method, options)
        gc.collect()
        pipe.send(("done", result))


class Worker:
    """A process that runs tests one after the other."""

    def __init__(self, number, server, settings):
        self.log = settings.logs / f"worker{number}.log"
        self.pipe, theirs = server.Pipe()
        arguments = (theirs, str(self.log), settings.options, settings.threads)
        self.process = server.Process(target=settings.work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.done, self.task, self.ready = 0, None, False
        self.limit, self.since = START_LIMIT, time.monotonic()

    def start(self, task, limit):
        self.task, self.stage, self.failures = task, "samples", []
        self.since, self.limit = time.monotonic(), limit
        self.pipe.send((task.suite, task.method))

    def dead(self, status):
        """Ends the process; the result of the task that it had."""
        self.process.kill()
        self.process.join()
        if self.task is None:
            return None
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


class Settings:
    """How a pool runs. `work` is what the processes run: tests of the pool itself give another."""

    def __init__(self, options, logs, *, workers=2, threads=1, timeout=120.0, minutes=None, work=work):
        self.options, self.logs, self.workers, self.threads = options, Path(logs), workers, threads
        self.timeout, self.minutes, self.work = timeout, minutes, work
        self.logs.mkdir(parents=True, exist_ok=True)


class Pool:
    """Runs tasks on workers until none is left or the time is over. `write(task, result)` hears each result."""

    def __init__(self, settings, tasks, write):
        self.settings, self.queue, self.write = settings, collections.deque(tasks), write
        self.workers, self.numbers, self.server = [], iter(range(1 << 30)), context()
        self.retried, self.broken, self.stopped = set(), 0, False

    def stop(self):
        """From another thread: no further task."""
        self.stopped = True

    def run(self):
        minutes = self.settings.minutes
        end = time.monotonic() + minutes * 60 if minutes else float("inf")
        try:
            while self.queue or any(worker.task for worker in self.workers):
                if self.stopped or time.monotonic() > end:
                    self.queue.clear()
                self.fill()
                for pipe in connection.wait([worker.pipe for worker in self.workers], timeout=0.5):
                    self.hear(next(w for w in self.workers if w.pipe is pipe))
                for worker in list(self.workers):
                    self.feed(worker)
        finally:
            for worker in self.workers:
                worker.stop()

    def fill(self):
        wanted = len(self.queue) + sum(bool(worker.task) for worker in self.workers)
        while len(self.workers) < min(self.settings.workers, wanted):
            self.workers.append(Worker(next(self.numbers) % 64, self.server, self.settings))

    def hear(self, worker):
        """One message of a worker, or its end."""
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, OSError):
            self.ended(worker)
            return
        if kind == "stage":
            worker.stage = content
        elif kind == "failure":
            worker.failures.append(content)
        elif kind == "done":
            self.write(worker.task, content)
            worker.task, worker.done = None, worker.done + 1
        else:
            worker.ready = True

    def ended(self, worker):
        task, result = worker.task, worker.dead("abort")
        self.workers.remove(worker)
        if task is None:
            self.unstarted(worker)
        elif worker.done and task not in self.retried:  # whose fault it was, a fresh process says
            self.retried.add(task)
            self.queue.appendleft(task)
        else:
            self.write(task, result)

    def unstarted(self, worker):
        self.broken += 1
        if self.broken > 3:
            raise RuntimeError(f"workers do not start: see {worker.log}")

    def feed(self, worker):
        """Gives a free worker a task, or ends it; ends one that takes too long."""
        if worker.ready and worker.task is None:
            if worker.done >= TASKS_PER_WORKER or not self.queue:
                worker.stop()
                self.workers.remove(worker)
            else:
                worker.start(self.queue.popleft(), self.settings.timeout)
        elif time.monotonic() - worker.since > worker.limit:
            task, result = worker.task, worker.dead("timeout")
            self.workers.remove(worker)
            if task is not None:
                self.write(task, result)
            else:
                self.unstarted(worker)
