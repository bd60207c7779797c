"""A process that runs benchmark programs on one device when it is asked to.

    python bench/worker.py "tpu fused"

Requests and answers are lines of JSON, on standard input and on what standard output was; what programs print goes to
the standard error. {"do": "start", "program": NAME, "options": {...}} makes a program, {"do": "turn", "options": {...}}
runs a piece of it, {"do": "settle" | "save", ...} call its method of that name.
"""

import contextlib
import json
import os
import signal
import sys
import time


def bind(threads):
    """As many processors as threads: XLA:CPU makes a thread for each processor that the process may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class Backend:
    """A device in one of its modes."""

    written_attention = False  # whether attention is made of single operators
    enter = staticmethod(lambda: None)  # before each turn
    wait_for_compiles = staticmethod(lambda: None)
    counters = staticmethod(lambda: {})
    synchronize = staticmethod(lambda: None)

    def __init__(self, device):
        import torch

        self.device = device
        self.versions = {"torch": torch.__version__}


class Tpu(Backend):
    def __init__(self, mode):
        super().__init__("tpu")
        import torch

        tpu = torch.tpu
        tpu.init()
        self.enter = lambda: tpu.set_eager_mode(mode)
        self.wait_for_compiles, self.counters = tpu.wait_for_compiles, tpu.counters
        self.synchronize = tpu.synchronize
        properties = tpu.get_device_properties()
        self.versions["device"] = f"{properties.platform}: {properties.name}"
        self.versions["plugin"] = os.path.basename(properties.plugin) + " API {}.{}".format(*properties.plugin_api)


class Peer(Backend):
    """torch-tpu 0.2.0 in an environment of its own."""

    MODES = {"strict": "DEFER_NEVER", "fused": "DEFER_AND_FUSE"}
    written_attention = True

    def __init__(self, mode):
        from torch_tpu import _loader

        _loader._init_device("tpu")
        super().__init__("tpu")
        import importlib.metadata

        import torch

        member = getattr(torch.tpu.EagerMode, self.MODES[mode])
        self.enter = lambda: torch.tpu.set_eager_mode(member)
        self.synchronize = torch.accelerator.synchronize
        self.versions["torch-tpu"] = importlib.metadata.version("torch-tpu")


def make_backend(variant):
    family, _, mode = variant.partition(" ")
    if family == "cpu":
        return Backend("cpu")
    return {"tpu": Tpu, "peer": Peer}[family](mode)


class Server:
    """Answers requests in this process."""

    def __init__(self, variant, threads):
        began = time.perf_counter()
        if variant == "jax":
            import jax_gpt

            self.backend, self.programs = jax_gpt.Backend(), jax_gpt.PROGRAMS
        else:
            import torch

            torch.set_num_threads(threads)
            import workloads

            self.backend, self.programs = make_backend(variant), workloads.PROGRAMS
        self.ready_after = time.perf_counter() - began
        self.program = None

    def answer(self, request):
        self.backend.enter()
        what, options = request["do"], request.get("options", {})
        if what == "hello":
            return {"versions": self.backend.versions, "ready_after": self.ready_after}
        if what == "start":
            self.program = None
            self.program = self.programs[request["program"]](self.backend, **options)
            return {}
        if what == "wait":
            self.backend.wait_for_compiles()
            return {}
        return getattr(self.program, what)(**options)


def end_with_parent():
    """A stopped process can't see its parent go. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main():
    variant, threads = sys.argv[1], int(sys.argv[2])
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    end_with_parent()
    bind(threads)
    server = Server(variant, threads)
    print(json.dumps(server.answer({"do": "hello"})), file=channel)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), file=channel)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # not there under -P
    main()
