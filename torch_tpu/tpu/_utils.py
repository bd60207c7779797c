"""Helpers that the parts of torch.tpu share; PyTorch's own code calls _get_device_index."""

import torch

from torch_tpu import _lib


def _get_device_index(device=None, optional=False, allow_cpu=False):
    """The index that `device` (None, int, str, torch.device or torch.tpu.device) means."""
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "tpu":
            raise ValueError(f"Expected a tpu device, but got: {device}")
        index = device.index
    elif device is None:
        index = None
    elif hasattr(device, "idx"):
        return device.idx
    else:
        raise TypeError(f"Expected a device (None, int, str or torch.device), but got {type(device).__name__}")
    if index is not None:
        return index
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return _lib.runtime().tt_current_device()
