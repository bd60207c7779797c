"""What PyTorch has no hook for: the precision of products, DLPack, pickling between processes, the process group's
name, and the end of the interpreter.
"""

import atexit
import functools
import sys
import time
from pathlib import Path

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from torch_tpu import _dynamo, _flex_attention, _lib, _nested, _places, _transformer


def install():
    _install_precision()
    _install_dlpack()
    _install_storage_files()
    _install_pickling()
    _install_process_group()
    _transformer.install()
    _dynamo.install()
    _flex_attention.install()
    _nested.install()
    _places.install()
    atexit.register(_wait_for_autograd)


# ---- precision ----
# torch.set_float32_matmul_precision tells no backend, and asking at each operator would cost.
_PRECISIONS = {"medium": 0, "high": 1, "highest": 2}


def _install_precision():
    set_precision = torch.set_float32_matmul_precision

    def update():
        _lib.runtime().tt_set_matmul_precision(_PRECISIONS[torch.get_float32_matmul_precision()])

    @functools.wraps(set_precision)
    def set_float32_matmul_precision(precision):
        set_precision(precision)
        update()

    torch.set_float32_matmul_precision = set_float32_matmul_precision
    update()


# ---- DLPack ----
# The memory of a tpu tensor can't be addressed by another library, so it isn't exported; a copy on the CPU is.
def _install_dlpack():
    export = torch.Tensor.__dlpack__
    export_device = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self):
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
        if self.device.type != "tpu":
            return export_device(self)
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index or 0

    def __dlpack__(self, *, stream=-1, max_version=None, dl_device=None, copy=None):
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack__, (self,), self, **options)
        if self.device.type != "tpu":
            return export(self, **options)
        if dl_device is not None and int(dl_device[0]) == 1 and copy is not False:
            if self.requires_grad:
                raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
            return export(self.cpu(), max_version=max_version)
        raise BufferError(
            "DLPack can't share a tpu tensor: its memory is not addressable by other libraries. "
            "Copy it first: tensor.cpu()"
        )

    __dlpack__.__doc__ = export.__doc__
    export_capsule = torch.utils.dlpack.to_dlpack

    @functools.wraps(export_capsule)
    def to_dlpack(tensor):
        return tensor.__dlpack__() if tensor.device.type == "tpu" else export_capsule(tensor)

    torch.utils.dlpack.to_dlpack = torch.to_dlpack = to_dlpack
    torch.Tensor.__dlpack_device__ = __dlpack_device__
    torch.Tensor.__dlpack__ = __dlpack__


# ---- storages in files ----
# The old format of torch.save, which pickle uses, reads and writes a storage's memory by its address.
def _install_storage_files():
    write_file, set_from_file = torch.UntypedStorage._write_file, torch.UntypedStorage._set_from_file

    def _write_file(self, *arguments):
        return write_file(self.cpu() if self.device.type == "tpu" else self, *arguments)

    def _set_from_file(self, *arguments):
        if self.device.type != "tpu":
            return set_from_file(self, *arguments)
        self.copy_(set_from_file(torch.UntypedStorage(self.nbytes()), *arguments))
        return self

    torch.UntypedStorage._write_file = _write_file
    torch.UntypedStorage._set_from_file = _set_from_file


# ---- pickling between processes ----
# torch.multiprocessing shares memory; a tpu tensor travels as a copy in shared CPU memory.
def _install_pickling():
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    def reduce(tensor):
        if tensor.device.type != "tpu":
            return reductions.reduce_tensor(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
                "crossing process boundaries. If you just want to transfer the data, call detach() on the tensor "
                "before serializing (e.g., putting it on the queue)."
            )
        return _rebuild_tensor, (type(tensor), tensor.detach().cpu(), str(tensor.device), tensor.requires_grad)

    def reduce_storage(storage):
        if storage.device.type == "tpu":
            raise RuntimeError("a tpu storage can't be sent to another process: send the tensor, or a CPU copy")
        return reductions.reduce_storage(storage)

    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce)
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


def _rebuild_tensor(kind, data, device, requires_grad):
    tensor = data.to(device)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


# ---- torch.distributed ----
def _install_process_group():
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None:  # PyTorch may be built without it
        c10d.Backend.register_backend("tpu_dist", _no_process_group, devices=["tpu"])


def _no_process_group(*args, **kwargs):
    raise NotImplementedError('the process group "tpu_dist" is not implemented yet; "gloo" works on CPU tensors')


# ---- exit ----
# backward() returns before the device's autograd thread has freed what it used, Python objects among it. A thread that
# asks for the interpreter's lock after the interpreter began to end is unwound, and PyTorch aborts the process.
def _wait_for_autograd(limit_s=1.0):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        states = _autograd_threads()
        if states:
            time.sleep(0.001)  # without the lock: who waits for it wakes up
            states = _autograd_threads()
        if "R" not in states:
            return


def _autograd_threads():
    """The scheduler's states of the threads of autograd: "S" sleeps, "R" runs."""
    states = set()
    for task in Path("/proc/self/task").glob("*/stat"):
        try:
            name, _, fields = task.read_text().partition("(")[2].rpartition(")")
        except OSError:  # the thread has ended
            continue
        if name.startswith("pt_autograd"):
            states.add(fields.split()[0])
    return states
