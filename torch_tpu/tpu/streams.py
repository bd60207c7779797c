"""Streams and events of torch.tpu. A device runs its programs in one order, whichever stream they were put on."""

import torch

from ._utils import _get_device_index

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]

_DEVICE_TYPE = int(torch._C._autograd.DeviceType.PrivateUse1)


class Stream(torch.Stream):
    """A queue of work on a device (by default the current one)."""

    def __new__(cls, device=None, priority=0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(
            cls, device=torch.device("tpu", _get_device_index(device, optional=True)), priority=priority
        )

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def __repr__(self):
        return f"torch.tpu.Stream(device={self.device}, stream_id={self.stream_id})"


class _EventType(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, torch.Event) and getattr(instance.device, "type", None) == "tpu"


class Event(torch.Event, metaclass=_EventType):
    """A point in a stream: completes with the last work that was enqueued before `record`."""

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        # PyTorch's own methods take no subclass of its event, so this makes one of theirs.
        return torch.Event("tpu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def current_stream(device=None):
    stream = torch._C._accelerator_getStream(_get_device_index(device, optional=True))
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def default_stream(device=None):
    index = _get_device_index(device, optional=True)
    return Stream(stream_id=0, device_index=index, device_type=_DEVICE_TYPE)


def set_stream(stream):
    """Makes `stream` the current one of its device, and that the current device. None does nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


def _set_stream_by_id(stream_id, device_index, device_type):
    set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


class StreamContext:
    """Context manager that selects a stream. Does nothing for None."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is None:
            return
        self.source = current_stream()
        self.previous = current_stream(self.stream.device)
        set_stream(self.stream)

    def __exit__(self, *exception):
        if self.stream is None:
            return
        set_stream(self.previous)
        set_stream(self.source)


def stream(stream):
    return StreamContext(stream)
