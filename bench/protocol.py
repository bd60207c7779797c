"""The driver's side of the workers: one a variant, of which only the one whose turn it is runs.

Between its turns a worker is stopped (SIGSTOP): threads that spin, and what is compiled in the background, take their
own worker's time and nobody else's.
"""

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


class WorkerFailed(RuntimeError):
    pass


def peer_environment(directory):
    """What directory/env.sh exports, on top of this process's environment."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    with open(os.path.join(directory, "env.sh")) as file:
        for line in file:
            words = shlex.split(line, comments=True)
            if len(words) == 2 and words[0] == "export":
                name, _, value = words[1].partition("=")
                environment[name] = value
    return environment


class Settings:
    """How workers are started."""

    def __init__(self, threads, cpu_threads=None, peer_env=None, jax_python=None, timeout=900.0):
        self.threads, self.cpu_threads, self.timeout = threads, cpu_threads or threads, timeout
        self.peer_env, self.jax_python = peer_env, jax_python

    def threads_of(self, variant):
        return self.cpu_threads if variant == "cpu" else self.threads

    def command(self, variant):
        """(program and arguments that run a script for the variant, environment, folder)"""
        environment, python, flags, folder = dict(os.environ), sys.executable, [], ROOT
        if variant.startswith("peer"):
            environment = peer_environment(self.peer_env)
            # From another folder, and without the script's on the path at first: `torch_tpu` there is the peer's.
            python, flags, folder = environment["PEER_PYTHON"], ["-P"], self.peer_env
        elif variant == "jax":
            environment.pop("PYTHONPATH", None)
            environment["JAX_PLATFORMS"] = "cpu"
            python = self.jax_python
        else:
            paths = [ROOT, environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        if variant == "cpu":
            environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = str(self.threads_of(variant))
        environment["TORCH_TPU_CACHE"] = "0"  # else one variant loads what another has compiled
        return [python, *flags], environment, folder


class Worker:
    """A worker process. Use `running` around anything that asks it."""

    def __init__(self, variant, settings):
        self.variant, self.timeout = variant, settings.timeout
        self.errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115  # closed by close()
        python, environment, folder = settings.command(variant)
        self.process = subprocess.Popen(
            [*python, os.path.join(HERE, "worker.py"), variant, str(settings.threads_of(variant))],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            bufsize=0,
        )
        self.pending = b""
        self.hello = None

    def failed(self, what):
        self.errors.seek(0)
        tail = self.errors.read()[-2000:]
        return WorkerFailed(f"{self.variant}: {what}\n{tail}")

    def read(self):
        end = time.monotonic() + self.timeout
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise self.failed(f"no answer within {self.timeout:.0f} s")
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise self.failed(f"ended with {self.process.wait()}")
            self.pending += piece
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def greet(self):
        """Waits until the worker is ready, and stops it."""
        self.hello = self.read()
        self.pause()
        return self.hello

    def pause(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def ask(self, what, options=None, **more):
        request = json.dumps({"do": what, "options": options or {}, **more}) + "\n"
        os.kill(self.process.pid, signal.SIGCONT)
        try:
            self.process.stdin.write(request.encode())
            answer = self.read()
        except OSError as error:
            raise self.failed(str(error)) from None
        self.pause()
        return answer

    def close(self):
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            file.close()


class LocalWorker:
    """The same in this process, where modes are changed between turns and nothing is stopped."""

    def __init__(self, variant, settings):
        from worker import Server

        self.variant, self.server = variant, Server(variant, settings.threads_of(variant))

    def greet(self):
        self.hello = self.server.answer({"do": "hello"})
        return self.hello

    def ask(self, what, options=None, **more):
        return self.server.answer({"do": what, "options": options or {}, **more})

    def close(self):
        self.server.program = None


class Team:
    """The workers of some variants, which start together and are asked in turn. One that fails is left out."""

    def __init__(self, variants, settings, kind=Worker):
        self.workers, self.failures, self.round = {}, {}, 0
        for variant in variants:
            self._try(variant, lambda variant=variant: self.workers.__setitem__(variant, kind(variant, settings)))
        for variant, worker in list(self.workers.items()):
            self._try(variant, worker.greet)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for worker in self.workers.values():
            worker.close()

    def _try(self, variant, function):
        try:
            return function()
        except (WorkerFailed, OSError, json.JSONDecodeError) as error:
            self.failures[variant] = str(error)
            if variant in self.workers:
                self.workers.pop(variant).close()
            return None

    def ask(self, what, options=None, only=None, **more):
        """{variant: answer}. Each time another variant is the first."""
        variants = [variant for variant in self.workers if only is None or variant in only]
        shift = self.round % max(1, len(variants))
        self.round += 1
        answers = {}
        for variant in variants[shift:] + variants[:shift]:
            worker = self.workers[variant]
            answer = self._try(variant, lambda worker=worker: worker.ask(what, options, **more))
            if answer is not None:
                answers[variant] = answer
        return answers
