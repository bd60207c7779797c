"""torch.save and torch.load, with every form of map_location."""

import io

import pytest
import torch
from torch import nn


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_round_trip(dtype):
    x = torch.arange(12).reshape(3, 4).to(dtype).tpu()
    y = torch.load(saved(x))
    assert y.device == x.device and y.dtype == dtype and torch.equal(y.cpu(), x.cpu())


@pytest.mark.parametrize(
    "location, device",
    [
        (None, "tpu:0"),
        ("tpu", "tpu:0"),
        ("tpu:0", "tpu:0"),
        (torch.device("tpu"), "tpu:0"),
        ("cpu", "cpu"),
        (torch.device("cpu"), "cpu"),
        ({"tpu:0": "cpu"}, "cpu"),
        ({"cpu": "cpu"}, "tpu:0"),
        (lambda storage, location: storage, "cpu"),
        ("meta", "meta"),
    ],
    ids=str,
)
@pytest.mark.parametrize("mmap", [False, True])
def test_map_location(location, device, mmap, tmp_path):
    torch.save({"w": torch.arange(4.0, device="tpu")}, tmp_path / "w.pt")
    loaded = torch.load(tmp_path / "w.pt", map_location=location, mmap=mmap)["w"]
    assert str(loaded.device) == device
    if device != "meta":
        assert loaded.tolist() == [0, 1, 2, 3]


def test_from_cpu_to_tpu():
    loaded = torch.load(saved({"w": torch.arange(4.0)}), map_location="tpu")["w"]
    assert loaded.is_tpu and loaded.cpu().tolist() == [0, 1, 2, 3]
    loaded += 1
    assert loaded.cpu().tolist() == [1, 2, 3, 4]


def test_missing_device():
    file = saved(torch.ones(2, device="tpu"))
    with pytest.raises(RuntimeError, match="device_count"):
        torch.load(file, map_location="tpu:77")


def test_aliases_are_kept():
    base = torch.arange(6.0, device="tpu")
    loaded = torch.load(saved({"base": base, "view": base.view(2, 3).t(), "tail": base[4:]}))
    loaded["base"][4] = 100
    assert loaded["view"].stride() == (1, 3) and loaded["view"][1, 1].item() == 100
    assert loaded["tail"].cpu().tolist() == [100, 5]


def test_legacy_format():
    file = io.BytesIO()
    torch.save(torch.arange(3, device="tpu"), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert torch.load(file).cpu().tolist() == [0, 1, 2]


def test_module_and_optimizer_state(tmp_path):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).tpu()
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(model, optimizer, x):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)).tpu()
    model, optimizer = make()
    step(model, optimizer, x)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    step(model, optimizer, x)

    other, other_optimizer = make()
    state = torch.load(tmp_path / "state.pt")
    other.load_state_dict(state["model"])
    other_optimizer.load_state_dict(state["optimizer"])
    assert all(s["exp_avg"].is_tpu for s in other_optimizer.state.values())
    step(other, other_optimizer, x)
    for a, b in zip(model.state_dict().values(), other.state_dict().values()):
        assert torch.equal(a.cpu(), b.cpu())


def test_assign_and_meta():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    state = torch.load(saved(nn.Linear(3, 2).tpu().state_dict()))
    model.load_state_dict(state, assign=True)
    assert model.weight.is_tpu and model(torch.ones(1, 3, device="tpu")).shape == (1, 2)
    empty = nn.Linear(3, 2, device="meta").to_empty(device="tpu")
    assert empty.weight.is_tpu


def test_untyped_storage():
    storage = torch.arange(4, dtype=torch.int32).tpu().untyped_storage()
    loaded = torch.load(saved(storage), weights_only=False)
    assert loaded.device.type == "tpu" and loaded.nbytes() == 16
    assert storage.cpu().device.type == "cpu" and bytes(storage.cpu())[4] == 1
