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
    cache_parser = commands.add_parser("cache", help="the compile cache on disk")
    actions = cache_parser.add_subparsers(dest="action", required=True)
    for name, run, text in (
        ("stats", cache_stats, "entries, bytes and the bound"),
        ("verify", cache_verify, "reads every entry; the exit status is 1 if one is damaged"),
        ("clear", cache_clear, "removes every entry, and nothing that isn't the cache's"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--dir", help="the directory, instead of the one that the environment chooses")
        action.set_defaults(run=run, takes_options=True)
        if name == "verify":
            action.add_argument("--repair", action="store_true", help="remove what is damaged")
    options = parser.parse_args(arguments)
    return options.run(options) if getattr(options, "takes_options", False) else options.run()


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
    for name in (
        "TORCH_TPU_PLATFORM",
        "TORCH_TPU_PJRT_PLUGIN",
        "TORCH_TPU_CPU_DEVICES",
        "TORCH_TPU_EAGER_MODE",
        "TORCH_TPU_CACHE",
        "TORCH_TPU_CACHE_DIR",
        "TORCH_TPU_CACHE_SIZE",
        "TORCH_TPU_SHARED_CACHE_DIR",
    ):
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


def cache_stats(options):
    directory, bound = _cache_directory(options)
    if directory is None:
        return 1
    summary, _ = _inspect_cache(directory, "count")
    _row("directory", directory)
    _row("entries", summary.entries)
    _row("bytes", f"{summary.bytes} ({_size(summary.bytes)})")
    _row("bound", f"{bound} ({_size(bound)})")
    _row("oldest", _time(summary.oldest))
    _row("newest", _time(summary.newest))
    if summary.unfinished:
        _row("unfinished files", summary.unfinished)
    return 0


def cache_verify(options):
    directory, _ = _cache_directory(options)
    if directory is None:
        return 1
    summary, bad = _inspect_cache(directory, "repair" if options.repair else "verify")
    for file, fault in bad:
        print(f"{file}: {fault}")
    removed = f", {summary.removed} files removed" if options.repair else ""
    print(f"{directory}: {summary.entries} entries, {summary.bad} bad{removed}")
    return 1 if bad else 0


def cache_clear(options):
    directory, _ = _cache_directory(options)
    if directory is None:
        return 1
    summary, _ = _inspect_cache(directory, "clear")
    print(f"{directory}: {summary.removed} files removed, {_size(summary.bytes)}")
    return 0


def _cache_directory(options):
    from torch_tpu import _lib

    directory, _, bound = _lib.cache_settings()
    directory = options.dir or directory
    if directory is None:
        print("the compile cache is off (TORCH_TPU_CACHE=0, or no home directory): --dir names one", file=sys.stderr)
    return directory, bound


def _inspect_cache(directory, action):
    """The summary of a directory, and (file, what is wrong) of each bad entry. Ends the program where it can't."""
    import ctypes

    from torch_tpu import _lib

    bad, summary = [], _lib.CacheSummary()
    report = _lib.CACHE_REPORT(lambda _, file, fault: bad.append((os.fsdecode(file), fault.decode())))
    actions = ("count", "verify", "repair", "clear")
    try:
        _lib.load_runtime().tt_compile_cache_inspect(
            os.fsencode(directory), actions.index(action), report, None, ctypes.byref(summary)
        )
    except RuntimeError as error:
        sys.exit(f"torch-tpu: {error}")
    return summary, bad


def _size(count):
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.1f} {unit}" if unit != "bytes" else f"{count} bytes"
        count /= 1024


def _time(seconds):
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else "none"


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
