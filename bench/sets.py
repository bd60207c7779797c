"""The sets of benchmarks. Each asks its workers in turn and adds to the figures."""

import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

import protocol

OPERATORS = ("add", "mm", "layer_norm", "view", "slice_assign")
STARTS = ("mlp", "gpt-s", "resnet")
GPT_S = {"layers": 4, "width": 64, "heads": 4, "length": 32, "batch": 4}
GPT_M = {"layers": 6, "width": 192, "heads": 6, "length": 128, "batch": 16}


@dataclass
class Context:
    """What a set works with, and what it fills."""

    figures: object
    settings: object
    variants: list
    rounds: int
    quick: bool = False
    tiny: bool = False
    worker: type = protocol.Worker
    only_cases: set = field(default_factory=set)
    agreement: list = field(default_factory=list)
    failures: list = field(default_factory=list)
    versions: dict = field(default_factory=dict)
    say: object = print

    def team(self, allowed):
        team = protocol.Team([variant for variant in self.variants if variant in allowed], self.settings, self.worker)
        for variant, worker in team.workers.items():
            self.versions.setdefault(variant, worker.hello["versions"])
        return team

    def wants(self, case):
        return not self.only_cases or case in self.only_cases

    def note_failures(self, set_, case, team):
        for variant, error in team.failures.items():
            self.failures.append({"set": set_, "case": case, "variant": variant, "error": error})
            self.say(f"{set_} {case}: {error}")


TORCH = ("cpu", "tpu strict", "tpu fused", "peer strict", "peer fused")


def collect(values, answers):
    for variant, answer in answers.items():
        values.setdefault(variant, []).extend(answer["values"])


def agree(context, set_, case, values, tolerance, count=10):
    """Whether the first `count` values are the first variant's, and all are numbers."""
    reference = next((v for v in ("cpu", "tpu strict") if v in values), next(iter(values), None))
    for variant, ours in values.items():
        pairs = list(zip(ours[:count], values[reference][:count]))
        worst = max((abs(a - b) / max(abs(b), 1e-2) for a, b in pairs), default=0.0)
        good = worst <= tolerance and all(math.isfinite(value) for value in ours)
        context.agreement.append(
            {
                "set": set_,
                "case": case,
                "variant": variant,
                "against": reference,
                "worst": worst,
                "tolerance": tolerance,
                "last": ours[-1],
                "agrees": good,
            }
        )


# ---- single operators ----
def enqueue(context):
    """Microseconds that a call takes the calling thread, in bursts of 100 calls."""
    rounds = context.rounds * (2 if context.tiny else 8)
    with context.team((*TORCH, "tpu debug")) as team:
        team.ask("start", program="operators")
        for operator in filter(context.wants, OPERATORS):
            options, values = {"operator": operator, "count": 5 if context.tiny else 100}, {}
            for _ in range(5):
                team.ask("turn", options)
            team.ask("wait")
            for _ in range(rounds):
                answers = team.ask("turn", options)
                collect(values, answers)
                for variant, answer in answers.items():
                    for measure in ("enqueue", "synced"):
                        context.figures.add("enqueue", operator, measure, "us", variant, [answer[measure] * 1e6])
            agree(context, "enqueue", operator, values, 1e-4, 1)
        context.note_failures("enqueue", "", team)


# ---- a chain ----
def chain(context):
    """A thousand elementwise operators and one read."""
    length = 20 if context.tiny else 1000
    values = {}
    with context.team(TORCH) as team:
        team.ask("start", {"length": length}, program="chain")
        for _ in range(4):
            collect(values, team.ask("turn", {"count": 1}))
            team.ask("wait")
        for _ in range(context.rounds):
            answers = team.ask("turn", {"count": 3})
            for variant, answer in answers.items():
                context.figures.add("chain", str(length), "step", "ms", variant, [milliseconds(answer)])
                if answer["executions"][-1]:
                    context.figures.add(
                        "chain", str(length), "executions", "", variant, [statistics.median(answer["executions"])]
                    )
        agree(context, "chain", str(length), values, 1e-4)
        context.note_failures("chain", str(length), team)


# ---- steps ----
@dataclass(frozen=True)
class Case:
    """A model; `steps` of it are a turn."""

    name: str
    program: str
    options: dict
    steps: int
    tolerance: float = 2e-3
    jax: bool = False
    large: bool = False  # seconds a step: fewer of them
    tiny: dict | None = None


CASES = (
    Case("mlp", "mlp", {}, 40, tiny={"batch": 4, "width": 8}),
    Case("gpt-s", "gpt", GPT_S, 20, jax=True),
    Case("gpt-m", "gpt", GPT_M, 1, jax=True, large=True),
    Case("resnet", "resnet", {"batch": 16, "width": 16}, 1, tolerance=2e-2, large=True),
    Case("decode", "decode", {}, 20, tolerance=0.0),
)


def milliseconds(answer):
    return statistics.median(answer["seconds"]) * 1e3


def start_team(context, case, team):
    with tempfile.TemporaryDirectory() as folder:
        options = case.tiny if context.tiny else case.options
        team.ask("start", options, only=[v for v in team.workers if v != "jax"], program=case.program)
        if "jax" in team.workers:
            arrays = os.path.join(folder, "arrays.npz")
            team.ask("save", {"path": arrays}, only=[v for v in team.workers if v != "jax"][:1])
            team.ask("start", {**options, "arrays": arrays}, only=["jax"], program=case.program)


def first_steps(context, case, team, values):
    """The first steps, and those from 20 on while there may still be something to compile. Returns nothing."""
    few = context.tiny or (context.quick and case.large)
    for block, measure, count in ((0, "first ten", 10), (1, None, 10), (2, "20 to 29", 10)):
        answers = team.ask("turn", {"count": 2 if few else count})
        collect(values, answers)
        for variant, answer in answers.items():
            if measure == "first ten" and not few:
                context.figures.add("train", case.name, measure, "ms", variant, [sum(answer["seconds"]) * 1e3])
            elif measure and not few:
                seconds = [second * 1e3 for second in answer["seconds"]]
                context.figures.add("train", case.name, measure, "ms", variant, seconds)
        if few and block:
            team.ask("wait")


def steady_steps(context, case, team, values):
    for _ in range(2):
        team.ask("wait")
        collect(values, team.ask("turn", {"count": 2}))
    rounds = max(2, context.rounds // 4) if case.large and context.quick else context.rounds
    for _ in range(rounds):
        answers = team.ask("turn", {"count": 1 if context.tiny else case.steps})
        collect(values, answers)
        for variant, answer in answers.items():
            context.figures.add("train", case.name, "step", "ms", variant, [milliseconds(answer)])
            context.figures.add("train", case.name, "slowest", "ms", variant, [max(answer["seconds"]) * 1e3])


def train(context):
    """Steps of models: the first ten in a new process, 20 to 29, and when all is compiled."""
    for case in CASES:
        if not context.wants(case.name) or (context.tiny and case.tiny is None):
            continue
        began = time.monotonic()
        # What is new is new once a process.
        repeats = 1 if context.quick or context.tiny or case.large else 3
        for repeat in range(repeats):
            values = {}
            with context.team((*TORCH, "jax") if case.jax else TORCH) as team:
                start_team(context, case, team)
                first_steps(context, case, team, values)
                if repeat == repeats - 1:
                    steady_steps(context, case, team, values)
                    agree(context, "train", case.name, values, case.tolerance)
                    context.note_failures("train", case.name, team)
        context.say(f"train {case.name}: {time.monotonic() - began:.0f} s")


# ---- loops ----
def loops(context):
    """Loops without a read: when compiling stops, and what 500 steps take."""
    for length in (20,) if context.tiny else (300, 907, 1531):
        case = str(length)
        if not context.wants(case):
            continue
        values = {}
        with context.team(("cpu", "tpu strict", "tpu fused")) as team:
            team.ask("start", {"length": length}, program="loop")
            answers = team.ask("settle", {"steps": 3 if context.tiny else 8 if context.quick else 20})
            collect(values, answers)
            for variant, answer in answers.items():
                if variant != "cpu":
                    context.figures.add("loops", case, "last compile", "step", variant, [answer["last_compile"]])
            steps = 2 if context.tiny else 10 if context.quick else 50
            for _ in range(2 if context.tiny else 5 if context.quick else 10):
                answers = team.ask("turn", {"count": steps})
                collect(values, answers)
                for variant, answer in answers.items():
                    context.figures.add("loops", case, "step", "ms", variant, [milliseconds(answer)])
                    if variant != "cpu":
                        context.figures.add("loops", case, "host syncs", "", variant, [answer["host_syncs"]])
                        context.figures.add("loops", case, "later compiles", "", variant, [answer["compiles"]])
            agree(context, "loops", case, values, 1e-3)
            context.note_failures("loops", case, team)


# ---- new processes ----
def run_python(context, variant, arguments, **variables):
    """What a process of the variant's Python prints."""
    python, environment, folder = context.settings.command(variant)
    done = subprocess.run(
        [*python, *arguments],
        env={**environment, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=context.settings.timeout,
    )
    if done.returncode != 0:
        raise protocol.WorkerFailed(f"{variant}: ended with {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def run_start(context, variant, case, cache):
    script = os.path.join(protocol.HERE, "start.py")
    options = json.dumps(case.tiny if context.tiny else case.options)
    arguments = [script, variant, str(context.settings.threads_of(variant)), case.program, options]
    began = time.perf_counter()
    printed = run_python(context, variant, arguments, TORCH_TPU_CACHE="1", TORCH_TPU_CACHE_DIR=cache)
    return {"process": time.perf_counter() - began, **json.loads(printed.splitlines()[-1])}


def start_case(context, case):
    values = {}
    for _ in range(1 if context.tiny or context.quick else 5):
        for variant in context.variants:
            if variant not in TORCH:
                continue
            with tempfile.TemporaryDirectory() as cache:
                for measure in ("cold",) if variant == "cpu" or variant.startswith("peer") else ("cold", "warm"):
                    try:
                        result = run_start(context, variant, case, cache)
                    except (protocol.WorkerFailed, subprocess.TimeoutExpired) as error:
                        context.failures.append(
                            {"set": "start", "case": case.name, "variant": variant, "error": str(error)}
                        )
                        context.say(f"start {case.name}: {error}")
                        continue
                    figures = {
                        (measure, "s"): result["client"] + result["model"] + result["step"],
                        (f"{measure}, process", "s"): result["process"],
                        (f"{measure}, compiles", ""): result["compiles"],
                    }
                    for (name, unit), figure in figures.items():
                        context.figures.add("start", case.name, name, unit, variant, [figure])
                    values.setdefault(variant, []).extend(result["values"])
    agree(context, "start", case.name, values, case.tolerance, 1)


def import_time(context):
    """What the device adds to `import torch`: of the processor's time, and of the smallest of several, since
    disturbance only ever adds."""
    code = "import time; begin = time.process_time(); import torch; print(time.process_time() - begin)"
    variant = next((variant for variant in context.variants if variant.startswith("tpu")), None)
    if variant is None:
        return
    seconds = {"0": [], "1": []}
    for _ in range(1 if context.tiny else 5):
        for autoload, times in seconds.items():
            times.append(float(run_python(context, variant, ["-c", code], TORCH_TPU_AUTOLOAD=autoload)))
    context.figures.add("start", "import torch", "without the device", "s", variant, [min(seconds["0"])])
    context.figures.add("start", "import torch", "added", "s", variant, [min(seconds["1"]) - min(seconds["0"])])


def start(context):
    """From the first touch of the device to the end of its first step in new processes: the first, and one that finds
    the first one's cache. What PyTorch loads by itself has been loaded. And what the device adds to `import torch`."""
    import_time(context)
    for case in CASES:
        if case.name in STARTS and (not context.tiny or case.name == "mlp"):
            start_case(context, case)


SETS = {"enqueue": enqueue, "chain": chain, "train": train, "loops": loops, "start": start}
CASES_OF = {
    "enqueue": OPERATORS,
    "chain": (),
    "train": tuple(case.name for case in CASES),
    "loops": ("300", "907", "1531"),
    "start": (),
}
