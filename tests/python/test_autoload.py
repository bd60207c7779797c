"""`import torch` has the device, costs little, and does nothing that a program without it would notice."""

import os
import sys

import pytest

CPU_ONLY = """
    import os
    before = dict(os.environ)
    import torch
    assert hasattr(torch, "tpu")
    assert dict(os.environ) == before, "an environment variable changed"

    torch.manual_seed(3)
    torch.seed()
    assert torch.tpu.is_available() and torch.tpu.device_count() >= 1
    torch.accelerator.is_available(), torch.accelerator.device_count()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4)), 4, num_workers=2)
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()
    with torch.random.fork_rng(devices=[]):
        torch.rand(2)
    torch.save(model.state_dict(), "model.pt")
    torch.load("model.pt")
    torch.accelerator.synchronize()
    torch.tpu.synchronize()
    torch.tpu.manual_seed_all(5)
    torch.tpu.get_rng_state(), torch.tpu.memory_allocated(), torch.tpu.counters(), torch.tpu.current_device()
    assert not torch.tpu.is_initialized()
    maps = open("/proc/self/maps").read()
    assert "libpjrt" not in maps and "pjrt_c_api" not in maps, "a plugin was loaded"
    assert torch.initial_seed() is not None
"""


def test_cpu_only_program_creates_no_client(run_python):
    done = run_python(CPU_ONLY)
    assert "torch_tpu" not in done.stderr, done.stderr


def test_cpu_only_program_creates_no_client_by_count(run_python, count_plugin):
    run_python(CPU_ONLY, **count_plugin)


def test_seed_before_the_client_holds(run_python):
    done = run_python(
        """
        import torch
        torch.manual_seed(42)
        a = torch.rand(4, device="tpu")
        torch.manual_seed(42)
        assert torch.equal(a.cpu(), torch.rand(4, device="tpu").cpu())
        assert torch.tpu.initial_seed() == 42
        """
    )
    assert done.stderr.count("XLA:CPU") <= 1  # says so at most once


def test_says_once_that_there_is_no_tpu(run_python):
    from torch_tpu import _plugins

    if _plugins.has_tpu():
        pytest.skip("this machine has a TPU")
    use = "import torch; torch.ones(1, device='tpu').sum().item(); torch.tpu.init()"
    assert run_python(use, TORCH_TPU_PLATFORM=None).stderr.count("XLA:CPU") == 1
    assert "XLA:CPU" not in run_python(use, TORCH_TPU_PLATFORM="cpu").stderr


@pytest.mark.parametrize("variable", ["TORCH_TPU_AUTOLOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD"])
def test_turned_off(run_python, variable):
    run_python(
        """
        import torch
        assert not hasattr(torch, "tpu")
        import torch_tpu
        assert torch.ones(2, device="tpu").is_tpu  # asked for by name
        torch_tpu.load()
        """,
        **{variable: "0"},
    )


def test_imported_first(run_python):
    run_python("import torch_tpu, torch; assert torch.ones(2, device='tpu').is_tpu")
    run_python(
        """
        from torch_tpu import _loader
        _loader.load()
        _loader.load()
        import torch
        assert str(_loader._init_device("tpu")) == "tpu"
        try:
            _loader._init_device("cuda")
            raise AssertionError("no error")
        except ValueError:
            pass
        """
    )


# A build of PyTorch for another accelerator is told by torch.version, which is imported before torch is.
CUDA_BUILD = """
    import sys, warnings
    import importlib.abc, importlib.util

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name != "torch.version":
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            run = spec.loader.exec_module
            def exec_module(module):
                run(module)
                module.cuda = "13.0"
            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch
    assert torch.version.cuda == "13.0"
    messages = [str(w.message) for w in caught if "torch_tpu" in str(w.message)]
    print(len(messages), hasattr(torch, "tpu"), torch._C._get_privateuse1_backend_name(), *messages)
"""


def test_leaves_other_builds_alone(run_python):
    from torch_tpu import _plugins

    if _plugins.has_tpu():
        pytest.skip("this machine has a TPU")
    done = run_python(CUDA_BUILD, TORCH_TPU_PLATFORM=None, TORCH_TPU_PJRT_PLUGIN=None)
    assert done.stdout.startswith("1 False privateuseone") and "TORCH_TPU_PLATFORM=cpu" in done.stdout
    done = run_python(CUDA_BUILD, TORCH_TPU_PLATFORM="cpu")
    assert done.stdout.startswith("0 True tpu")
    done = run_python(CUDA_BUILD, TORCH_TPU_PLATFORM=None, TORCH_TPU_AUTOLOAD="0")
    assert done.stdout.startswith("0 False")
    done = run_python(CUDA_BUILD + "\n    import torch_tpu\n    print(hasattr(torch, 'tpu'))", TORCH_TPU_PLATFORM=None)
    assert done.stdout.endswith("True\n")


def test_a_failure_does_not_break_import_torch(run_python):
    """Whatever is wrong with the backend is a warning."""
    done = run_python(
        """
        import sys, warnings
        import ctypes
        real = ctypes.CDLL.__init__
        def broken(self, name, *arguments, **options):
            if name and "libtorchtpu" in str(name):
                raise OSError("the library is damaged")
            real(self, name, *arguments, **options)
        ctypes.CDLL.__init__ = broken
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch
        assert any("the library is damaged" in str(w.message) for w in caught)
        assert (torch.ones(2) + 1).sum().item() == 4
        try:
            import torch_tpu
        except OSError as error:
            print(error)
        """
    )
    assert done.stdout == "the library is damaged\n"
    done = run_python(
        """
        import torch
        assert not hasattr(torch, "tpu")
        try:
            import torch_tpu
        except ValueError as error:
            print(error)
        """,
        TORCH_TPU_CPU_FALLBACK="never",
    )
    assert done.stdout.startswith("cpu_fallback mode 'never' is none of")


def test_python_share_of_import_time(run_python):
    """None of the modules that autoloading imports is a heavy one. (What it takes is a figure of `make bench`.)"""
    done = run_python(
        """
        import sys
        import torch
        print(*sorted(sys.modules))
        """
    )
    with_tpu = set(done.stdout.split())
    without = set(run_python("import sys, torch; print(*sorted(sys.modules))", TORCH_TPU_AUTOLOAD="0").stdout.split())
    extra = {name for name in with_tpu - without if not name.startswith(("torch_tpu", "torch.tpu"))}
    assert not extra, extra
    assert "torch._dynamo" not in with_tpu


def test_has_tpu(tmp_path):
    from torch_tpu import _plugins

    def device(name, **files):
        directory = tmp_path / "sys/bus/pci/devices" / name
        directory.mkdir(parents=True)
        for file, value in files.items():
            (directory / file).write_text(value + "\n")

    assert not _plugins.has_tpu(tmp_path)
    (tmp_path / "dev/vfio").mkdir(parents=True)
    (tmp_path / "dev/vfio/vfio").touch()
    (tmp_path / "dev/accel").mkdir()  # another vendor's accelerators
    assert not _plugins.has_tpu(tmp_path)
    (tmp_path / "dev/vfio/0").touch()
    assert _plugins.has_tpu(tmp_path)  # a container that hides PCI
    device("0000:00:01.0", vendor="0x1ae0", device="0x0042", **{"class": "0x020000"})  # Google's network card
    device("0000:00:02.0", vendor="0x10de", device="0x2330", **{"class": "0x030200"})
    assert not _plugins.has_tpu(tmp_path)
    (tmp_path / "dev/accel0").touch()
    assert _plugins.has_tpu(tmp_path)
    (tmp_path / "dev/accel0").unlink()
    device("0000:00:03.0", vendor="0x1ae0", device="0x0063", **{"class": "0xff0000"})
    assert _plugins.has_tpu(tmp_path)


def test_candidates(monkeypatch):
    from torch_tpu import _plugins

    tpu, cpu = _plugins.candidates()
    assert cpu is None or os.path.exists(cpu)
    assert tpu is None or _plugins.has_tpu()
    loaded = set(sys.modules)
    _plugins.candidates()
    assert set(sys.modules) == loaded, "a plugin's package was imported"
