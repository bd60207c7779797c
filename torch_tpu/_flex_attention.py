"""torch.nn.attention.flex_attention, which refuses devices it doesn't know.

Its dense form runs on any device: it is made of vmap and ordinary operators. That of the CPU has no gradients, this
device's has. The module takes long to import and few programs need it, so it is changed when it is imported.
"""

import functools
import importlib.util
import sys

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard

_MODULE = "torch.nn.attention.flex_attention"


def install():
    module = sys.modules.get(_MODULE)
    if module is not None:
        _accept_device(module)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Lets the other finders find the module, and changes it when it has run."""

    def find_spec(self, name, path=None, target=None):
        if name != _MODULE or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _accept_device(module)

        spec.loader.exec_module = exec_module
        return spec


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
