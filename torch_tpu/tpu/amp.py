"""Autocast on tpu: `torch.autocast("tpu")` under the names that torch.cuda.amp has."""

import functools

import torch

autocast = functools.partial(torch.amp.autocast, "tpu")
custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="tpu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="tpu")


def GradScaler(*args, **kwargs):
    return torch.amp.GradScaler("tpu", *args, **kwargs)


def get_amp_supported_dtype():
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation=True):
    return True


def is_autocast_enabled():
    return torch.is_autocast_enabled("tpu")


def set_autocast_enabled(enabled):
    torch.set_autocast_enabled("tpu", enabled)


def get_autocast_dtype():
    return torch.get_autocast_dtype("tpu")


def set_autocast_dtype(dtype):
    torch.set_autocast_dtype("tpu", dtype)
