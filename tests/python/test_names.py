"""Names that code written for other versions of `torch_tpu` relies on."""

import pytest
import torch

NAMES = """
    Event Stream current_device current_stream default_generators default_stream device_count eager_mode
    get_amp_supported_dtype get_device_name get_device_properties get_rng_state initial_seed is_available
    is_initialized manual_seed manual_seed_all set_device set_rng_state set_stream stream synchronize
    _exchange_device _get_generator _is_in_bad_fork _lazy_init _maybe_exchange_device
"""


def test_names():
    import torch_tpu
    from torch_tpu import _loader

    assert callable(_loader.load) and callable(_loader._init_device)
    assert torch.device("tpu").type == "tpu"
    for name in NAMES.split():
        assert hasattr(torch.tpu, name), name
    assert torch._dynamo.list_backends and "tpu" in torch._dynamo.list_backends()
    assert isinstance(torch_tpu.__version__, str)


def test_entry_points():
    from importlib.metadata import entry_points

    import torch_tpu

    backends = [entry for entry in entry_points(group="torch.backends") if entry.name == "torch_tpu"]
    assert len(backends) == 1 and backends[0].load() is torch_tpu._autoload
    assert [e.value for e in entry_points(group="torch_dynamo_backends") if e.name == "tpu"]


def test_process_group_is_a_clear_error():
    import torch.distributed as dist

    assert dist.Backend("tpu_dist") == "tpu_dist" and dist.is_backend_available("tpu_dist")
    assert dist.get_default_backend_for_device("tpu") == "tpu_dist"
    with pytest.raises(NotImplementedError, match="tpu_dist"):
        dist.init_process_group("tpu_dist", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()


def test_verify_plugin(cpu_plugin, monkeypatch, tmp_path):
    import torch_tpu
    from torch_tpu import _plugins

    if "fastatomstruct" not in cpu_plugin:
        pytest.skip("the default plugin is not installed")
    check = torch_tpu.verify_plugin()
    assert check.path == cpu_plugin and check.matches and check.sha256 == _plugins.DEFAULT_SHA256
    assert check.version == _plugins.DEFAULT_VERSION
    document = (pytest.importorskip("helpers").ROOT / "docs/plugins.md").read_text()
    assert _plugins.DEFAULT_SHA256 in document and _plugins.DEFAULT_VERSION in document

    other = tmp_path / "libpjrt_cpu.so"
    other.write_bytes(b"something else")
    monkeypatch.setattr(_plugins, "_first", lambda libraries: str(other))
    assert not torch_tpu.verify_plugin().matches
    monkeypatch.setattr(_plugins, "_first", lambda libraries: None)
    with pytest.raises(FileNotFoundError, match=_plugins.DEFAULT_PACKAGE):
        torch_tpu.verify_plugin()


def test_command_line(capsys, cpu_plugin):
    from torch_tpu.tools import cli

    assert cli.main(["info"]) == 0
    assert cpu_plugin in capsys.readouterr().out
    assert cli.main(["doctor"]) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert out.count("ok:") == 3 and "FAILED" not in out
    with pytest.raises(SystemExit):
        cli.main(["unknown"])
