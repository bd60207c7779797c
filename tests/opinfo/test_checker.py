"""That the harness sees what is wrong: each kind of difference, and a worker that dies, hangs or raises."""

import json
import os
import signal
import time

import pytest
import torch
from torch import nn
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, ModuleInput
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput
from torch.testing._internal.opinfo.core import ErrorInput, OpInfo, SampleInput

import check
import check_modules
import check_optims
import pool
import run
import skips
import suites
import table
from cases import Options


# --- Operators -------------------------------------------------------------------------------------------------------
def samples(op, device, dtype, requires_grad, **kwargs):
    yield SampleInput(torch.rand(3, 4, dtype=dtype).t().requires_grad_(requires_grad))


def rows(op, device, dtype, requires_grad, **kwargs):
    yield SampleInput(torch.rand(3, 4, dtype=dtype).requires_grad_(requires_grad))


def result_of(on_tpu, on_cpu=torch.exp, **info):
    """The result for an entry that computes one function on the device and another on the CPU."""
    options = {"dtypes": (torch.float32,), "sample_inputs_func": samples, "supports_out": False, **info}

    def function(x, **kwargs):
        return (on_tpu if x.device.type == "tpu" else on_cpu)(x, **kwargs)

    return check.Check(OpInfo("differing", op=function, **options), torch.float32)()


def differing(*functions, **info):
    return {failure["kind"] for failure in result_of(*functions, **info)["failures"]}


def raises(x):
    raise IndexError("never")


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: x.exp() + 1, "value"),
        (lambda x: x.exp() + 1e-4, "value"),
        (lambda x: x.exp() * (1 + 3e-5), "value"),
        (lambda x: x.exp().sum(), "shape"),
        (lambda x: x.exp().double(), "dtype"),
        (lambda x: x.exp().contiguous(), "stride"),
        (lambda x: x.exp().cpu(), "device"),
        (lambda x: (x.exp(),), "structure"),
        (lambda x: x.exp().detach(), "grad"),
        (lambda x: x.exp().detach() + x - x.detach(), "value"),
        (raises, "raised"),
    ],
)
def test_differences_of_operators(function, kind):
    assert kind in differing(function)


def test_the_same_passes():
    result = result_of(torch.exp)
    assert result["status"] == "pass"
    assert {"forward", "backward", "noncontiguous", "record"} <= set(result["stages"])


def test_errors_and_aliases():
    assert differing(torch.exp, raises) == {"accepts"}
    assert differing(lambda x: x + 0, lambda x: x.view_as(x)) == {"alias"}
    assert "input" in differing(lambda x: x.detach().add_(1) - 1, lambda x: x.detach() + 0)


def test_a_result_nearer_to_the_exact_one_is_precision():
    def rough(x):
        return x.exp() * (1 + 3e-5) if x.dtype == torch.float32 else x.exp()

    assert differing(torch.exp, rough) == {"precision"}


def test_out_and_in_place_forms():
    def wrong(x, out=None):
        if out is None:
            return x.exp()
        return out.copy_(x.exp() + 1)

    info = {"supports_out": True, "sample_inputs_func": rows}
    assert "value" in differing(wrong, torch.exp, **info)
    assert differing(torch.exp, torch.exp, **info) == set()
    kinds = differing(torch.exp, inplace_variant=lambda x: x.exp_() if x.device.type == "cpu" else x.exp())
    assert kinds & {"alias", "value"}


def test_second_derivatives_and_tangents():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.exp())
            return x.exp()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].detach()

    stages = {f["stage"].split()[0] for f in result_of(Once.apply)["failures"]}
    assert stages == {"gradgrad"}
    result = result_of(lambda x: torch.exp(x) + 0 * x.detach(), supports_forward_ad=True)
    assert not result["failures"]
    assert "forward-mode" in result["stages"]


def test_error_inputs():
    def errors(op, device, **kwargs):
        yield ErrorInput(SampleInput(torch.ones(2, dtype=torch.int64)), error_regex="", error_type=TypeError)

    def picky(x):
        if x.dtype == torch.int64:
            raise TypeError("no integers")
        return x.exp()

    assert differing(picky, picky, error_inputs_func=errors) == set()
    assert differing(torch.exp, picky, error_inputs_func=errors) == {"no error"}


def test_fallbacks_are_counted():
    assert not result_of(torch.exp)["fallback"]
    where = result_of(lambda x: torch.linalg.eigvals(x[:3, :3]).real, lambda x: torch.linalg.eigvals(x[:3, :3]).real)
    assert set(where["operators"]) or where["fallback"]


def test_known_faults_do_not_count(monkeypatch):
    monkeypatch.setattr(skips, "FAULTS", [("differing", "float32", "(forward|noncontiguous).*", "shape", "a reason")])
    result = result_of(lambda x: x.detach().exp().sum(), lambda x: x.detach().exp())
    assert result["status"] == "pass"
    assert result["known"] == ["a reason"]


# --- Modules and optimizers ------------------------------------------------------------------------------------------
class Scale(nn.Module):
    """Multiplies by a parameter; `wrong` on the device."""

    wrong = staticmethod(lambda y: y)

    def __init__(self, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 2.0, device=device, dtype=dtype))
        self.register_buffer("calls", torch.zeros((), device=device))

    def forward(self, x):
        self.calls += 1
        y = x * self.weight
        return self.wrong(y) if y.device.type == "tpu" else y


def module_result(**members):
    def inputs(info, device, dtype, requires_grad, training, **kwargs):
        x = torch.rand(3, 4, dtype=dtype).requires_grad_(requires_grad)
        return [ModuleInput(FunctionInput(), FunctionInput(x))]

    info = ModuleInfo(type("Changed", (Scale,), members), module_inputs_func=inputs)
    return check_modules.ModuleCheck(info, torch.float32, training=True)()


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"wrong": staticmethod(lambda y: y + 1)}, "value"),
        ({"wrong": staticmethod(lambda y: y.detach())}, "grad"),
        ({"wrong": staticmethod(lambda y: y.cpu())}, "device"),
        ({"wrong": staticmethod(lambda y: y.t())}, "shape"),
        ({"wrong": staticmethod(raises)}, "raised"),
        ({"_apply": lambda self, fn, recurse=True: self}, "raised"),
    ],
)
def test_differences_of_modules(members, kind):
    kinds = {failure["kind"] for failure in module_result(**members)["failures"]}
    assert kind in kinds or (kind == "grad" and "raised" in kinds) or (kind == "raised" and kinds)


def test_a_right_module_passes():
    result = module_result()
    assert result["status"] == "pass", result["failures"]
    assert {"forward", "backward", "noncontiguous", "move"} <= set(result["stages"])


def optim_result(kind):
    info = OptimizerInfo(
        kind,
        optim_inputs_func=lambda device, dtype=None: [OptimizerInput(None, {}, "default")],
        supported_impls=("foreach",),
    )
    return check_optims.OptimCheck(info, torch.float32)()


def test_differences_of_optimizers():
    class Wrong(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            parameter = self.param_groups[0]["params"][0]
            if parameter.device.type == "tpu":
                parameter.data.add_(1)

    assert optim_result(torch.optim.SGD)["status"] == "pass"
    assert {failure["kind"] for failure in optim_result(Wrong)["failures"]} == {"value"}


# --- Workers ---------------------------------------------------------------------------------------------------------
def faulty(pipe, log, options, threads):
    """A worker whose tests' names say what it does."""
    pipe.send(("ready", None))
    for _, method in iter(pipe.recv, None):
        pipe.send(("stage", "middle"))
        if method == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif method == "hangs":
            time.sleep(100)
        elif method == "exits":
            os._exit(3)
        pipe.send(("done", {"status": "pass", "failures": []}))


def broken(pipe, log, options, threads):
    os._exit(1)


def tasks_of(*methods):
    return [suites.Task("ops", f"{index}", "float32", method) for index, method in enumerate(methods)]


def test_workers_that_die_or_hang(tmp_path):
    found = {}
    settings = pool.Settings(Options(), tmp_path, workers=2, timeout=3, work=faulty)
    tasks = tasks_of("runs", "dies", "runs", "hangs", "exits", "runs", "runs")
    pool.Pool(settings, tasks, lambda task, result: found.setdefault(task, result)).run()
    assert [found[task]["status"] for task in tasks] == [
        {"runs": "pass", "dies": "abort", "hangs": "timeout", "exits": "abort"}[task.method] for task in tasks
    ]
    died = found[tasks[1]]["failures"][-1]
    assert died["stage"] == "middle"
    assert died["message"].startswith("exit -11")


def test_workers_that_do_not_start(tmp_path):
    settings = pool.Settings(Options(), tmp_path, workers=1, work=broken)
    with pytest.raises(RuntimeError, match="workers do not start"):
        pool.Pool(settings, tasks_of("runs"), lambda task, result: None).run()


def test_a_check_that_raises(monkeypatch):
    monkeypatch.setattr(check.Check, "make_samples", lambda self, grad: raises(None))
    result = suites.run("ops", "test_op_exp_tpu_float32", Options())
    assert result["status"] == "fail"
    assert result["failures"][0]["kind"] == "harness"
    assert "IndexError" in result["failures"][0]["message"]


# --- Runs ------------------------------------------------------------------------------------------------------------
def test_a_run_goes_on_where_it_stopped(tmp_path, capfd):
    output = tmp_path / "results.jsonl"
    arguments = ["--suites", "ops", "--filter", "^exp$", "--workers", "1", "--output", str(output)]
    for dtypes, said in (("float32", "1 to do, 0 known"), ("float32,int64", "1 to do, 1 known"), ("int64", "0 to do")):
        with pytest.raises(SystemExit) as end:
            run.main([*arguments, "--dtypes", dtypes])
        assert end.value.code == 0
        assert said in capfd.readouterr().out
    output.write_text(output.read_text()[:-20])  # the last line is not whole, as of a run that was killed
    assert len(run.read(output)) == 1


def test_selection():
    everything = [task for suite in suites.NAMES for task in suites.tasks(suite)]
    tests = {suite: set(dir(suites.case_class(suite))) for suite in suites.NAMES}
    assert all(task.method in tests[task.suite] for task in everything if task.method)
    days = [set(suites.quick(everything, day)) for day in range(suites.PARTS)]
    assert set().union(*days) == set(everything)
    always = set.intersection(*days)
    entries = {(t.suite, t.entry) for t in everything if t.method and skips.reason(t.entry, t.dtype) is None}
    assert {(t.suite, t.entry) for t in always if t.method} == entries
    assert suites.quick(everything, 3) == suites.quick(everything, 3 + suites.PARTS)


def test_the_table(tmp_path, monkeypatch):
    def result(dtype, **more):
        return {"suite": "ops", "entry": "exp", "dtype": dtype, "status": "pass", "operators": ["aten::exp"], **more}

    failed = {"kind": "value", "stage": "forward 0", "message": ""}
    rows = [
        result("float32", known=["a reason"]),
        result("int8", status="fail", failures=[failed]),
        result("float64", suite="modules", entry="nn.X", operators=[], fallback={"forward": {"aten::eig": 2}}),
        {"suite": "ops", "entry": "to_sparse", "dtype": "float32", "status": "skip", "reason": "sparse"},
    ]
    results, written = tmp_path / "results.jsonl", tmp_path / "operators.md"
    results.write_text("\n".join(map(json.dumps, rows)))
    compiled = tmp_path / "tpu.json"
    faults = [{"topology": "v5e", "dtypes": "complex128", "message": "not supported"}]
    compiled.write_text(json.dumps({"rules": {"aten::exp": {"failures": faults}}}))
    monkeypatch.setattr(table, "TPU", compiled)
    table.tpu_faults.cache_clear()
    assert table.write([results], written)
    table.tpu_faults.cache_clear()
    text = written.read_text()
    assert "| `exp` | f32 / 2 | rule | value i8 | a reason; not on TPU v5e c128: not supported |" in text
    assert "| `nn.X` | f64 | CPU: `eig` |  |  |" in text
    assert "- sparse: `to_sparse`" in text
    assert "Of 2 entries 1 are checked: 0 (0.0 %) pass, 1 (100.0 %) without a CPU fallback" in text
