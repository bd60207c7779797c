"""Streams and events."""

import time

import pytest
import torch


def test_streams():
    default = torch.tpu.default_stream()
    assert default.stream_id == 0 and default.device == torch.device("tpu", 0)
    assert torch.tpu.current_stream() == default
    assert torch.accelerator.current_stream() == default
    stream = torch.tpu.Stream()
    assert isinstance(stream, torch.Stream) and stream != default and stream.device.type == "tpu"
    assert hash(stream) != hash(default) and "tpu:0" in repr(stream)
    assert torch.tpu.Stream("tpu:0", priority=-1).device.index == 0
    assert torch.Stream("tpu").device.type == "tpu"

    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() == stream
        x = torch.ones(4, device="tpu") * 3
        with torch.tpu.stream(None):
            assert torch.tpu.current_stream() == stream
    assert torch.tpu.current_stream() == default
    with stream:
        assert torch.accelerator.current_stream() == stream
    torch.tpu.set_stream(stream)
    assert torch.tpu.current_stream() == stream
    torch.tpu.set_stream(default)
    stream.synchronize()
    assert stream.query() is True
    assert x.cpu().tolist() == [3, 3, 3, 3]
    default.wait_stream(stream)
    event = stream.record_event()
    assert isinstance(event, torch.tpu.Event)
    default.wait_event(event)
    x.record_stream(stream)


def test_current_stream_is_per_thread():
    import threading

    stream = torch.tpu.Stream()
    seen = []
    with torch.tpu.stream(stream):
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.tpu.default_stream()]


def test_events():
    event = torch.tpu.Event()
    assert event.query() is True  # never recorded
    x = torch.ones(64, device="tpu") + 1
    event.record()
    event.synchronize()
    assert event.query() is True
    event.record(torch.tpu.current_stream())
    event.wait()
    event.wait(torch.tpu.Stream())
    assert x[0].item() == 2
    generic = torch.Event("tpu")
    generic.record()
    generic.synchronize()
    assert "tpu" in repr(event)


def test_timing():
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    x = torch.randn(512, 512, device="tpu")
    (x @ x).sum().item()
    begin = time.perf_counter()
    start.record()
    for _ in range(10):
        x = x @ x * 1e-3
    end.record()
    end.synchronize()
    wall = (time.perf_counter() - begin) * 1e3
    elapsed = start.elapsed_time(end)
    assert 0 < elapsed <= wall * 1.1 + 1
    with pytest.raises((RuntimeError, ValueError)):
        torch.tpu.Event(enable_timing=True).elapsed_time(end)


def test_event_query_becomes_true():
    event = torch.tpu.Event()
    x = torch.randn(700, 700, device="tpu")
    for _ in range(5):
        x = x @ x * 1e-3
    event.record()
    deadline = time.monotonic() + 60
    while not event.query():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_without_timing_no_elapsed_time():
    start, end = torch.tpu.Event(), torch.tpu.Event()
    start.record()
    end.record()
    with pytest.raises((RuntimeError, ValueError)):
        start.elapsed_time(end)


def test_order_across_streams():
    a, b = torch.tpu.Stream(), torch.tpu.Stream()
    x = torch.zeros(8, device="tpu")
    for i in range(20):
        with torch.tpu.stream(a if i % 2 else b):
            x += 1
    assert x.cpu().tolist() == [20] * 8
