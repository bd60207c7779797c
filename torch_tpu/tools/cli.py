"""torch-tpu: what is installed, and whether it works."""

import argparse
import os
import platform
import sys


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="torch-tpu", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, plugins and devices").set_defaults(run=info)
    doctor_parser = commands.add_parser("doctor", help="checks the plugin's hash and runs a small model")
    doctor_parser.set_defaults(run=doctor)
    options = parser.parse_args(arguments)
    return options.run()


def info():
    import torch

    import torch_tpu
    from torch_tpu import _plugins

    tpu_plugin, cpu_plugin = _plugins.candidates()
    _row("torch_tpu", _version())
    _row("PyTorch", torch.__version__)
    _row("Python", platform.python_version())
    _row("TPU on this machine", "yes" if _plugins.has_tpu() else "no")
    _row("TPU plugin", tpu_plugin or "none")
    _row("CPU plugin", cpu_plugin or "none")
    for name in ("TORCH_TPU_PLATFORM", "TORCH_TPU_PJRT_PLUGIN", "TORCH_TPU_CPU_DEVICES", "TORCH_TPU_EAGER_MODE"):
        if name in os.environ:
            _row(name, os.environ[name])
    torch_tpu.load()
    if not torch.tpu.is_available():
        _row("device", "none: no plugin was found")
        return 1
    properties = torch.tpu.get_device_properties()
    _row("plugin in use", f"{properties.plugin} (PJRT API {'.'.join(map(str, properties.plugin_api))})")
    for index in range(torch.tpu.device_count()):
        _row(f"tpu:{index}", torch.tpu.get_device_name(index))
    _row("memory", f"{properties.total_memory / 2**30:.1f} GiB")
    return 0


def doctor():
    checks = [("default plugin", _check_plugin), ("device", _check_device), ("training step", _check_training)]
    failed = 0
    for name, check in checks:
        try:
            _row(name, f"ok: {check()}")
        except Exception as error:
            failed += 1
            _row(name, f"FAILED: {error}")
    return 1 if failed else 0


def _check_plugin():
    from torch_tpu import _plugins

    check = _plugins.verify_plugin()
    if not check.matches:
        raise RuntimeError(
            f"{check.path} (version {check.version}) is not the pinned {_plugins.DEFAULT_PACKAGE} "
            f"{_plugins.DEFAULT_VERSION}; its SHA-256 is {check.sha256}"
        )
    return f"{_plugins.DEFAULT_PACKAGE} {check.version}, hash as pinned"


def _check_device():
    import torch

    import torch_tpu

    torch_tpu.load()
    torch.tpu.init()
    return torch.tpu.get_device_name()


def _check_training():
    import torch

    losses = {}
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
        data, target = torch.randn(32, 8), torch.randn(32, 1)
        model, data, target = model.to(device), data.to(device), target.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(data), target)
            loss.backward()
            optimizer.step()
        losses[device] = loss.item()
    difference = abs(losses["tpu"] - losses["cpu"]) / losses["cpu"]
    if difference > 1e-4:
        raise RuntimeError(f"the loss is {losses['tpu']:.6f}, on the CPU {losses['cpu']:.6f}")
    return f"loss {losses['tpu']:.6f}, within {difference:.0e} of the CPU's"


def _version():
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torchtpu")
    except PackageNotFoundError:
        return "not installed"


def _row(name, value):
    print(f"{name:<22} {value}")


if __name__ == "__main__":
    sys.exit(main())
