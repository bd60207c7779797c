"""What one cached operator costs the calling thread, beside the same operator on device "cpu".

    python bench/op_overhead.py                      # table; --json FILE writes the figures too
    python bench/op_overhead.py --peer-env DIR       # also torch-tpu, where DIR has env.sh and an environment with it

Operators run in bursts of 100. "enqueue" is the time until the last call returned, "synced" until the device is done;
between bursts there is a synchronise that isn't counted. The variants take turns, burst by burst, and a figure is the
median over bursts, so that what else the machine does falls on all of them.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

BURST = 100
# Bars for tpu strict: enqueue of add against cpu's, and microseconds with the synchronise.
MAX_ADD_RATIO = 2.5
MAX_ADD_SYNCED_US = 12.0


def operators(device):
    """Name and function of each operator, over operands made on `device`."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def random(*sizes):
        return torch.randn(*sizes, generator=generator).to(device)

    a, b = random(8, 8), random(8, 8)
    x, weight, bias = random(8, 64), random(64), random(64)
    target, row = random(16, 16), random(4, 16)
    layer_norm = torch.nn.functional.layer_norm

    def assign():
        target[4:8] = row

    return {
        "add": lambda: a + b,
        "mm": lambda: torch.mm(a, b),
        "layer_norm": lambda: layer_norm(x, (64,), weight, bias),
        "view": lambda: a.view(64),
        "slice assignment": assign,
    }


def burst(function, synchronize):
    """Seconds an operation, without and with waiting for the device."""
    start = time.perf_counter()
    for _ in range(BURST):
        function()
    enqueued = time.perf_counter()
    synchronize()
    end = time.perf_counter()
    return (enqueued - start) / BURST, (end - start) / BURST


def measure(variants, rounds):
    """{operator: {variant: {"enqueue_us", "synced_us"}}}; a variant is (enter, operators, synchronize)."""
    figures = {}
    for name in next(iter(variants.values()))[1]:
        samples = {variant: [] for variant in variants}
        for round_ in range(rounds + 5):
            for variant, (enter, functions, synchronize) in variants.items():
                enter()
                synchronize()
                sample = burst(functions[name], synchronize)
                if round_ >= 5:  # the first rounds compile and warm up
                    samples[variant].append(sample)
        figures[name] = {
            variant: {
                "enqueue_us": statistics.median(sample[0] for sample in values) * 1e6,
                "synced_us": statistics.median(sample[1] for sample in values) * 1e6,
            }
            for variant, values in samples.items()
        }
    return figures


def run_ours(rounds):
    import torch

    torch.set_num_threads(1)
    tpu = operators("tpu")
    mode, modes = torch.tpu.set_eager_mode, torch.tpu.EagerMode
    return measure(
        {
            "cpu": (lambda: None, operators("cpu"), lambda: None),
            "tpu strict": (lambda: mode(modes.STRICT), tpu, torch.tpu.synchronize),
            "tpu debug": (lambda: mode(modes.DEBUG), tpu, torch.tpu.synchronize),
        },
        rounds,
    )


def run_as_peer(rounds):
    """In the peer's environment: its device, and the CPU beside it."""
    from torch_tpu import _loader

    _loader._init_device("tpu")
    import torch

    torch.set_num_threads(1)
    return measure(
        {
            "cpu (peer's run)": (lambda: None, operators("cpu"), lambda: None),
            "peer": (lambda: None, operators("tpu"), torch.accelerator.synchronize),
        },
        rounds,
    )


def run_peer(directory, rounds):
    """Runs this script under the Python that directory/env.sh names."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    with open(os.path.join(directory, "env.sh")) as file:
        for line in file:
            words = shlex.split(line)
            if len(words) == 2 and words[0] == "export":
                name, _, value = words[1].partition("=")
                environment[name] = value
    # From another directory and without this one on the path: `torch_tpu` there is the peer's.
    command = [environment["PEER_PYTHON"], "-P", os.path.abspath(__file__), "--as-peer", "--rounds", str(rounds)]
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"the peer's run failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(figures):
    lines = []
    for operator, variants in figures.items():
        baseline = variants["cpu"]["enqueue_us"]
        for variant, figure in variants.items():
            lines.append(
                f"{operator:<18} {variant:<18} {figure['enqueue_us']:>9.2f} {figure['enqueue_us'] / baseline:>7.2f}x "
                f"{figure['synced_us']:>9.2f}"
            )
        lines.append("")
    header = f"{'operator':<18} {'device':<18} {'enqueue us':>9} {'/ cpu':>8} {'synced us':>9}"
    return "\n".join([header, "-" * len(header), *lines])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="bursts of each operator on each device")
    parser.add_argument("--peer-env", metavar="DIR", help="environment with torch-tpu and an env.sh that names it")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument("--check", action="store_true", help="fail if a bar is not met")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_peer:
        print(json.dumps(run_as_peer(options.rounds)))
        return

    figures = run_ours(options.rounds)
    if options.peer_env:
        for operator, variants in run_peer(options.peer_env, options.rounds).items():
            figures[operator].update(variants)
    print(table(figures))
    add = figures["add"]
    ratio = add["tpu strict"]["enqueue_us"] / add["cpu"]["enqueue_us"]
    synced = add["tpu strict"]["synced_us"]
    good = ratio <= MAX_ADD_RATIO and synced <= MAX_ADD_SYNCED_US
    print(
        f"add, strict: {ratio:.2f}x of cpu (bar {MAX_ADD_RATIO}x), {synced:.1f} us synced (bar {MAX_ADD_SYNCED_US:.0f})"
    )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"burst": BURST, "rounds": options.rounds, "microseconds": figures}, file, indent=2)
    if options.check and not good:
        sys.exit("the bar is not met")


if __name__ == "__main__":
    main()
