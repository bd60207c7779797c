"""The compile cache on disk, from processes of their own: what the next one finds, damage, and the command line.

src/cache/*_test.c has the finer cases, on a plugin that compiles nothing.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from torch_tpu.tools.cli import main

# Prints what a small model gives, and what was counted. Two rounds of a stretch make fused mode compile it.
PROGRAM = """
    import json, os, signal, sys, torch

    if "--die" in sys.argv:  # in the middle of writing the first entry
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    if "--full" in sys.argv:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    x = torch.linspace(-1, 1, 12, device="tpu").reshape(3, 4).requires_grad_()
    results = []
    for turn in range(4):
        y = torch.nn.functional.softmax(x @ x.t() * 2 + turn, 1)
        (g,) = torch.autograd.grad((y * y).sum(), x)
        results.append(g.cpu().tolist())
        torch.tpu.wait_for_compiles()
    stats = torch.tpu.compile_cache_stats()
    print(json.dumps({"results": results, "compiles": torch.tpu.compile_count(), **stats}))
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def run(run_python, folder):
    def run(*arguments, check=True, **environment):
        environment = {"TORCH_TPU_CACHE": "1", "TORCH_TPU_CACHE_DIR": folder, **environment}
        done = run_python(PROGRAM, *arguments, check=check, **environment)
        if not check:
            return done
        return {**json.loads(done.stdout), "stderr": done.stderr}

    return run


def cli(capsys, *arguments):
    """Exit status and output of `torch-tpu cache`."""
    status = main(["cache", *map(str, arguments)])
    return status, capsys.readouterr().out


def entries(folder):
    return sorted(folder.glob("??/*.entry"))


def test_later_processes_compile_nothing(run, folder, capsys):
    first = run()
    assert first["compiles"] == first["misses"] == first["stores"] == len(entries(folder)) > 5
    assert first["directory"] == str(folder) and first["shared_directory"] is None
    second = run(TORCH_TPU_LOG="debug")
    assert second["compiles"] == second["misses"] == 0
    assert second["stderr"].count(": disk cache in") == second["disk_hits"] and ": compiled in" not in second["stderr"]
    assert second["disk_hits"] == first["compiles"] and second["seconds_saved"] > 0
    assert second["results"] == first["results"]
    assert "AOT" not in second["stderr"], second["stderr"][:1000]  # the loader of XLA:CPU doesn't complain
    fused = run(TORCH_TPU_EAGER_MODE="fused")
    assert 0 < fused["compiles"] < first["compiles"]  # the composed programs alone
    again = run(TORCH_TPU_EAGER_MODE="fused")
    assert again["compiles"] == 0 and again["results"] == fused["results"]
    assert again["disk_hits"] == fused["compiles"] + fused["disk_hits"]
    # Damage of each region, of any kind: recompiled, and whole again.
    files = entries(folder)
    for i, file in enumerate(files):
        data = bytearray(file.read_bytes())
        if i % 6 == 0:
            data = data[: len(data) // 2]
        elif i % 6 == 1:
            data = b""
        elif i % 6 == 2:
            data = b"#!/bin/sh\n" * 100
        else:
            data[(i * 37) % 128 if i % 6 == 3 else -1 - i * 101 % (len(data) - 128)] ^= 1 << i % 8
        file.write_bytes(data)
    status, output = cli(capsys, "verify", "--dir", folder)
    assert status == 1 and output.count("\n") == len(files) + 1, output
    broken = run()
    assert broken["rejected"] == broken["compiles"] == first["compiles"] and broken["results"] == first["results"]
    status, output = cli(capsys, "verify", "--repair", "--dir", folder)  # of fused programs, which it didn't need
    assert status == 1 and output.count("\n") == fused["compiles"] + 1, output
    assert cli(capsys, "verify", "--dir", folder)[0] == 0


def test_directories_that_cannot_be_used(run, folder):
    folder.write_text("a file")
    for path, arguments in ((folder, ()), (folder.parent / "full", ("--full",))):
        done = run(*arguments, TORCH_TPU_CACHE_DIR=path)
        assert done["stores"] == 0 and done["misses"] == done["compiles"] > 0
        assert done["stderr"].count("torch_tpu: warning") == 1, done["stderr"]
    assert folder.read_text() == "a file"
    assert torch.tpu.compile_cache_stats()["directory"] is None  # the tests run without


def test_several_processes_compile_each_module_once(folder, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    environment = {**os.environ, "TORCH_TPU_CACHE": "1", "TORCH_TPU_CACHE_DIR": str(folder)}
    processes = [
        subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    done = [json.loads(process.communicate(timeout=200)[0]) for process in processes]
    assert sum(one["compiles"] for one in done) == len(entries(folder))
    assert all(one["results"] == done[0]["results"] for one in done)


def test_shared_directory_and_bound(run, folder, tmp_path):
    first = run(TORCH_TPU_SHARED_CACHE_DIR=tmp_path / "shared", TORCH_TPU_CACHE_SIZE="20K")
    assert first["stores"] == 2 * first["compiles"] and first["evicted"] > 0
    assert sum(file.stat().st_size for file in entries(folder)) <= 20 << 10 == first["limit_bytes"]
    assert len(entries(tmp_path / "shared")) == first["compiles"]
    second = run(TORCH_TPU_SHARED_CACHE_DIR=tmp_path / "shared", TORCH_TPU_CACHE_DIR=tmp_path / "other")
    assert second["shared_hits"] == first["compiles"] and second["compiles"] == 0
    assert second["results"] == first["results"]


def test_death_in_a_write_and_command_line(run, folder, capsys, monkeypatch):
    done = run("--die", check=False)
    assert done.returncode < 0, done.stderr[-2000:]
    left = list(folder.glob("??/tmp.*"))
    assert len(left) == 1 and left[0].stat().st_size == 1000 and not entries(folder)
    first = run()
    files = entries(folder)
    assert first["stores"] == first["compiles"] == len(files) and first["rejected"] == 0
    os.utime(left[0], (0, 0))
    assert cli(capsys, "verify", "--repair", "--dir", folder)[0] == 0
    assert not left[0].exists()

    monkeypatch.setenv("TORCH_TPU_CACHE", "1")
    monkeypatch.setenv("TORCH_TPU_CACHE_DIR", str(folder))
    monkeypatch.setenv("TORCH_TPU_CACHE_SIZE", "3M")
    status, output = cli(capsys, "stats")
    shown = dict(line.split(maxsplit=1) for line in output.splitlines())
    assert status == 0 and shown["directory"] == str(folder) and int(shown["entries"]) == len(files)
    assert int(shown["bytes"].split()[0]) == sum(file.stat().st_size for file in files)
    assert shown["bound"].startswith(str(3 << 20)) and shown["oldest"] <= shown["newest"]
    assert cli(capsys, "verify")[0] == 0
    files[0].write_bytes(b"x")
    (folder / "mine.txt").write_text("")
    status, output = cli(capsys, "verify")
    assert status == 1 and str(files[0]) in output and files[0].exists()
    assert cli(capsys, "verify", "--repair")[0] == 1 and not files[0].exists()
    assert cli(capsys, "verify")[0] == 0
    assert cli(capsys, "clear")[0] == 0
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert cli(capsys, "stats", "--dir", folder / "none")[0] == 0
    with pytest.raises(SystemExit, match=r"mine\.txt"):
        cli(capsys, "stats", "--dir", folder / "mine.txt")
    monkeypatch.setenv("TORCH_TPU_CACHE", "0")
    assert cli(capsys, "stats")[0] == 1


LABELLED = """
    import json, torch

    torch.tpu.set_eager_mode("fused")
    x = torch.linspace(-1, 1, 12, device="tpu").reshape(3, 4)
    torch.tpu.synchronize()
    results, executions = [], []
    for turn in range(4):
        before = torch.tpu.counters()["executions"]
        with torch.profiler.record_function(f"process {torch.initial_seed()}, step {turn}"):
            y = torch.nn.functional.softmax(x @ x.t() * 2 + turn, 1).exp().sin()
        results.append(y.cpu().tolist())
        executions.append(torch.tpu.counters()["executions"] - before)
        torch.tpu.wait_for_compiles()
    print(json.dumps({"results": results, "executions": executions, "compiles": torch.tpu.compile_count()}))
"""


def test_fused_programs_are_loaded_at_their_first_meeting_whatever_their_labels(run_python, folder):
    environment = {"TORCH_TPU_CACHE": "1", "TORCH_TPU_CACHE_DIR": folder}
    first, second = (json.loads(run_python(LABELLED, **environment).stdout) for _ in range(2))
    assert first["compiles"] > 0 and second["compiles"] == 0
    assert second["results"] == first["results"]
    assert first["executions"][2] == 1 and first["executions"][1] > 1  # compiled when it was met again
    assert second["executions"][0] > 1 and second["executions"][1:] == [1, 1, 1]


@pytest.mark.parametrize("cached", ["0", "1"])
def test_exit_while_programs_are_made(run_python, folder, cached):
    program = """
        import torch

        torch.tpu.set_eager_mode("fused")
        x = torch.linspace(-1, 1, 64, device="tpu").reshape(8, 8)
        for turn in range(2):
            y = x
            for k in range(30):
                y = ((y @ x).softmax(-1) + k).cumsum(0).sort(0).values
            y.sum().item()
    """
    for _ in range(2):
        run_python(program, TORCH_TPU_CACHE=cached, TORCH_TPU_CACHE_DIR=folder)
