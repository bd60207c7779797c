"""torch.nn.attention.flex_attention, which refuses devices it doesn't know.

Its dense form runs on any device: it is made of vmap and ordinary operators. That of the CPU has no gradients, this
device's has.
"""

import functools

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard

from torch_tpu._imports import when_imported


def install():
    when_imported("torch.nn.attention.flex_attention", _accept_device)


def _accept_device(module):
    validate = module._validate_device

    @functools.wraps(validate)
    def _validate_device(query, key, value):
        if query.device.type != "tpu":
            validate(query, key, value)

    module._validate_device = _validate_device
    operator = module.flex_attention_hop
    if DispatchKey.AutocastPrivateUse1 not in operator.py_kernels:
        operator.py_impl(DispatchKey.AutocastPrivateUse1)(functools.partial(_autocast, operator))


def _autocast(operator, query, key, value, *rest):
    dtype = torch.get_autocast_dtype("tpu")
    low = [x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in (query, key, value)]
    with _ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastPrivateUse1)):
        return operator(*low, *rest)
