"""Where in the user's program a call comes from: the C library asks, while it explains or is about to warn."""

import _thread
import atexit
import ctypes
import os
import sys

import torch

from torch_tpu import _lib

_TORCH = os.path.dirname(torch.__file__) + os.sep
_INSIDE = (_TORCH, os.path.dirname(os.path.abspath(__file__)) + os.sep)
# What goes through the layers or the parameters of a network, each of which passes the same line.
_LOOPS = tuple(_TORCH + part.replace("/", os.sep) for part in ("optim/", "nn/modules/", "nn/utils/", "nn/init.py"))
_BACKWARD = "_engine_run_backward"
_IN_MODULE = 1  # tt_place_flag


def install():
    _lib.runtime().tt_set_locator(_locate)
    atexit.register(_lib.runtime().tt_set_locator, _lib.Locator())  # no Python is left to ask


def _find(frame):
    """The innermost frame outside of PyTorch and this package as "file:line", with " (backward)" where that called
    backward(), and whether a pass through a network is between it and the program.
    """
    place, flags, backward = None, 0, ""
    while frame is not None:
        code = frame.f_code
        path = code.co_filename
        if place is None and not path.startswith(_INSIDE):
            place = f"{path}:{frame.f_lineno}{backward}"
        if place is None and code.co_name == _BACKWARD:
            backward, flags = " (backward)", _IN_MODULE
        if path.startswith(_LOOPS):
            flags |= _IN_MODULE
        frame = frame.f_back
    return place, flags


def _find_backward():
    """What _find says of the thread that waits in backward(), for a thread of autograd's own."""
    for frame in sys._current_frames().values():
        if frame.f_code.co_name == _BACKWARD:
            return _find(frame)
    return None, 0


@_lib.Locator
def _locate(buffer, size):
    try:
        place, flags = _find(sys._getframe().f_back)
        if place is None:
            place, flags = _find_backward()
        if place is None:
            return -1
        text = place.encode(errors="replace")[: size - 1] + b"\0"
        ctypes.memmove(buffer, text, len(text))
        return flags
    except KeyboardInterrupt:  # it would be lost here
        _thread.interrupt_main()
    except Exception:  # what goes wrong in finding a place is no reason to disturb the program
        pass
    return -1
