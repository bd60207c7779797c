"""torch.profiler: programs, compiles and transfers of the device, with their times; record_function's names."""

import itertools
import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

KINDS = {"kernel", "gpu_memcpy", "privateuse1_runtime"}


def exported(prof, tmp_path):
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    return json.loads(path.read_text())["traceEvents"]


def train(x, w):
    w.grad = None
    with record_function("forward"):
        loss = (x @ w).tanh().sum()
    loss.backward()
    return loss.item()


@pytest.mark.parametrize("mode", ["strict", "fused", "debug"])
def test_programs_compiles_and_transfers(mode, tmp_path):
    torch.tpu.clear_compile_cache()
    x, w = torch.randn(19, 23).tpu(), torch.randn(23, 29).tpu().requires_grad_()
    with torch.tpu.set_eager_mode(mode):
        before = torch.tpu.counters()
        with profile() as prof:
            y = torch.randn(3, 4).to("tpu")
            for _ in range(4):
                train(x, w)
                torch.tpu.wait_for_compiles()
        change = {name: value - before[name] for name, value in torch.tpu.counters().items()}
    del y
    events = exported(prof, tmp_path)
    by_kind = {kind: [e for e in events if e.get("cat") == kind] for kind in KINDS}
    assert len(by_kind["kernel"]) == change["executions"]
    assert len(by_kind["gpu_memcpy"]) == change["host_to_device"] + change["device_to_host"]
    compiles = [e for e in by_kind["privateuse1_runtime"] if e["name"].startswith("compile ")]
    assert len(compiles) == change["compiles"] > 0
    assert abs(sum(e["dur"] for e in compiles) * 1e3 - change["compile_ns"]) < 0.2 * change["compile_ns"]
    copied = {name: [e for e in by_kind["gpu_memcpy"] if name in e["name"]] for name in ("HtoD", "DtoH")}
    assert sum(e["args"]["bytes"] for e in copied["DtoH"]) == change["device_to_host_bytes"] == 16
    assert sum(e["args"]["bytes"] for e in copied["HtoD"]) == change["host_to_device_bytes"]
    names = {e["name"] for e in by_kind["kernel"]}
    if mode == "fused":
        assert any(name.startswith("program fused ") for name in names), names
    else:
        assert "program aten::mm" in names and "program aten::tanh_backward" in names

    # One clock: all of it lies in what the trace spans, a program ends after it was launched, and they don't overlap.
    host = [e for e in events if e.get("cat") in ("cpu_op", "user_annotation")]
    begin, end = min(e["ts"] for e in host), max(e["ts"] + e["dur"] for e in host) + 1e6
    for event in itertools.chain(*by_kind.values()):
        assert begin - 1 <= event["ts"] and event["ts"] + event["dur"] <= end
    programs = sorted(by_kind["kernel"], key=lambda e: e["ts"])
    for one, other in itertools.pairwise(programs):
        assert one["ts"] + one["dur"] <= other["ts"] + 0.01
    forward = min(e["ts"] for e in host if e["name"] == "forward")
    mm = min(e["ts"] for e in host if e["name"] == "aten::mm")
    assert forward <= mm <= min(e["ts"] for e in programs if e["name"] == "program aten::mm")
    if mode != "fused":
        assert any(e["args"].get("label") == "forward" for e in programs)


def test_the_table_attributes_programs_to_their_operators():
    x = torch.randn(300, 300).tpu()
    (x @ x).sum().item()
    with profile(record_shapes=True) as prof:
        for _ in range(3):
            (x @ x).sum().item()
    rows = {row.key: row for row in prof.key_averages()}
    program = rows["program aten::mm"]
    assert program.count == 3 and program.self_device_time_total > 0
    assert rows["aten::mm"].self_device_time_total == program.self_device_time_total
    assert rows["aten::mm"].self_cpu_time_total > 0
    assert rows["Memcpy DtoH (tpu -> host)"].count == 3
    assert rows["tpu launch"].count == 6
    text = prof.key_averages().table(sort_by="self_device_time_total")
    assert "Self TPU" in text and "program aten::mm" in text


def test_the_cpu_alone_and_the_device_alone(tmp_path):
    x = torch.randn(8, 8).tpu()
    for activities in ([ProfilerActivity.CPU], [ProfilerActivity.PrivateUse1]):
        with profile(activities=activities) as prof:
            (x + 1).cpu()
        kinds = {e.get("cat") for e in exported(prof, tmp_path)}
        assert {"kernel", "gpu_memcpy"} <= kinds or activities == [ProfilerActivity.CPU]
        assert not {"kernel", "gpu_memcpy"} & kinds or activities == [ProfilerActivity.PrivateUse1]
        assert ("cpu_op" in kinds) == (activities == [ProfilerActivity.CPU])


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_a_schedule_and_several_profiles(tmp_path):
    x = torch.randn(8, 8).tpu()
    counts = []

    def ready(prof):
        counts.append(sum(e.name == "program aten::exp" for e in prof.events()))

    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=schedule, on_trace_ready=ready) as prof:
        for _ in range(8):
            x.exp()
            torch.tpu.synchronize()
            prof.step()
    assert counts == [2, 2]


def test_without_kineto():
    x = torch.randn(200, 200).tpu()
    (x @ x).sum().item()
    with torch.autograd.profiler.profile(use_device="tpu") as prof:
        (x @ x).sum().item()
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["aten::mm"].device_time_total > 0


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_names_reach_the_module_and_not_its_key(mode, run_python, tmp_path):
    code = """
        import sys, torch
        from torch.profiler import record_function
        x = torch.randn(5, 6).tpu()
        torch.tpu.set_eager_mode(sys.argv[1])
        def step(i):
            with record_function(f"step {i}"), record_function('a "quoted" name'):
                return x.cumsum(0).sort(1)[0].sum().item()
        counts = []
        for i in range(5):
            before = torch.tpu.compile_count()
            step(i)
            torch.tpu.wait_for_compiles()
            counts.append(torch.tpu.compile_count() - before)
        print(counts)
        x.exp()
    """
    done = run_python(code, mode, TORCH_TPU_DUMP_MODULES=tmp_path)
    assert done.stdout.strip() == ("[3, 0, 0, 0, 0]" if mode == "strict" else "[3, 1, 0, 0, 0]")
    modules = {path.name.split("-")[0]: path.read_text() for path in tmp_path.glob("*.mlir")}
    assert 'loc("step 0/a \\22quoted\\22 name/cumsum")' in modules["cumsum"]
    assert 'loc("step 0/a \\22quoted\\22 name/sort")' in modules["sort"]
    assert "loc(" not in modules["exp"]
    if mode == "fused":
        (fused,) = [text for name, text in modules.items() if "fused" in name]
        for name in ("cumsum", "sort", "sum"):
            assert f'loc("step 0/a \\22quoted\\22 name/{name}")' in fused
