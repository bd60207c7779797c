"""A process that is measured as a whole: trains a model for one step on the CPU, then on a device.

What PyTorch itself loads and does at its first step is done when the device is touched for the first time: what is
measured from there on is the device's.

python bench/start.py "tpu fused" THREADS PROGRAM OPTIONS
"""

import json
import os
import sys
import time

START = time.perf_counter()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # not there under -P

import worker  # noqa: E402


def main():
    variant, threads, program, options = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker.bind(threads)
    import torch

    import workloads

    torch.set_num_threads(threads)
    imported = time.perf_counter()
    workloads.PROGRAMS[program](worker.Backend("cpu"), **options).turn(1)
    touched = time.perf_counter()
    server = worker.Server(variant, threads)
    ready = time.perf_counter()
    server.answer({"do": "start", "program": program, "options": options})
    made = time.perf_counter()
    answer = server.answer({"do": "turn", "options": {"count": 1}})
    done = time.perf_counter()
    compiles = server.backend.counters().get("compiles", 0)
    figures = {"import": imported - START, "cpu": touched - imported, "client": ready - touched, "model": made - ready}
    figures |= {"step": done - made, "compiles": compiles}
    print(json.dumps({**figures, "torch": torch.__version__, "values": answer["values"]}), file=channel, flush=True)


if __name__ == "__main__":
    main()
