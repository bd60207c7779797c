"""Runs the tests of this folder in worker processes, two at a time; one that dies or hangs fails alone.

Without -k or a test's name only a part of them is taken, which changes from day to day: TORCH_TPU_OPINFO_DAY chooses
it, TORCH_TPU_OPINFO=all takes every one. TORCH_TPU_OPINFO_WORKERS=0 runs them in this process, for a debugger.
"""

import os
import tempfile
import threading

import pytest

import pool
import suites
from cases import CheckCase, Options, describe

os.environ.setdefault("TORCH_TPU_CACHE", "0")  # of this process; workers have a directory of their own (pool.py)
os.environ.setdefault("TORCH_TPU_FAST_COMPILE", "1")  # for the workers, and read at the first use of the device
WORKERS = int(os.environ.get("TORCH_TPU_OPINFO_WORKERS") or min(2, os.cpu_count() or 1))


def suite_of(item):
    """The suite of a collected test, or None if it is another folder's."""
    kind = getattr(item, "cls", None)
    if kind is None or not issubclass(kind, CheckCase):
        return None
    return next(name for name in suites.NAMES if suites.case_class(name).__name__ == kind.__name__)


class Results:
    """What the workers have found; waits for what they have not."""

    def __init__(self, tasks):
        self.found, self.error, self.news = {}, None, threading.Condition()
        self.folder = tempfile.TemporaryDirectory(prefix="opinfo")
        settings = pool.Settings(Options(), self.folder.name, workers=WORKERS)
        self.pool = pool.Pool(settings, tasks, self.write)
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        try:
            self.pool.run()
        except Exception as error:
            self.error = error
        with self.news:
            self.error = self.error or RuntimeError("the workers have ended")
            self.news.notify_all()

    def write(self, task, result):
        with self.news:
            self.found[task.suite, task.method] = result
            self.news.notify_all()

    def get(self, key):
        if not self.thread.is_alive() and self.error is None:
            self.thread.start()
        with self.news:
            self.news.wait_for(lambda: key in self.found or self.error is not None)
            if key not in self.found:
                raise self.error
            return self.found[key]

    def stop(self):
        self.pool.stop()
        if self.thread.is_alive():
            self.thread.join(60)
        self.folder.cleanup()


@pytest.hookimpl(trylast=True)  # after -k has chosen
def pytest_collection_modifyitems(config, items):
    mine = [(item, suite) for item in items if (suite := suite_of(item)) is not None]
    if not mine:
        return
    tasks = {(task.suite, task.method): task for name in suites.NAMES for task in suites.tasks(name)}
    named = config.option.keyword or any("::" in argument for argument in config.args)
    if os.environ.get("TORCH_TPU_OPINFO") != "all" and not named:
        chosen = {(t.suite, t.method) for t in suites.quick(tasks.values(), suites.today())}
        left_out = {id(item) for item, suite in mine if (suite, item.name) not in chosen}
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]
        mine = [(item, suite) for item, suite in mine if id(item) not in left_out]
    if WORKERS and not config.option.collectonly:
        config.opinfo = Results([tasks[suite, item.name] for item, suite in mine])
        for item, suite in mine:
            item.runtest = lambda key=(suite, item.name): report(config.opinfo.get(key))


def report(result):
    """A result as pytest's outcome."""
    if result["status"] == "skip":
        pytest.skip(result["reason"])
    text = describe(result)
    if text:
        pytest.fail(text, pytrace=False)


def pytest_sessionfinish(session):
    results = getattr(session.config, "opinfo", None)
    if results is not None:
        results.stop()
