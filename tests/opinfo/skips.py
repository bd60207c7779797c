"""What the harness leaves out, by name, with the reason."""

import re

SPARSE = "sparse layouts: the backend has strided tensors only"
JITERATOR = "jiterator compiles CUDA source"
NO_CPU = "the CPU reference has no dtype for it"
NO_DTYPE = "XLA has no such dtype"
NO_TPU = "no TPU has this dtype"

# Full names of entries, as regular expressions.
ENTRIES = {
    r"sparse_.*": SPARSE,
    r"to_sparse": SPARSE,
    r"jiterator_.*": JITERATOR,
    r"chalf": NO_DTYPE,
    r"SparseAdam": SPARSE,
}

REAL = "the optimizer takes no complex parameters"
REAL_OPTIMIZERS = {"Adafactor", "Muon"}

DTYPES = {"complex32": NO_DTYPE, "float8_e4m3fnuz": NO_TPU, "float8_e5m2fnuz": NO_TPU}

# Entries whose results are complex32 in a dtype.
PAIRS = {("complex", "float16"): NO_DTYPE, ("view_as_complex", "float16"): NO_DTYPE}

# Results are uninitialised memory: sizes, strides and dtypes are compared, values are not.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# All operands but the first stay on the CPU: the operator reads them there, on every device.
HOST = {"tensor_split"}

# Of equal elements the CPU returns the index of any, and sorts them in any order unless told to be stable: the elements
# that the indices name are compared. Operator -> position of the dimension among the arguments after the first.
TIES = {"argsort": 0, "kthvalue": 1, "mode": 0, "sort": 0, "topk": 1}
# Operators with gradients that go to any of equal elements.
MOVES_TIES = {*TIES, "msort"}

# Stage -> entry -> reason: parts of the check that an entry cannot take.
STAGES = {
    "out": {},
    "in-place": {},
    "noncontiguous": {},
    "errors": {},
    "gradgrad": {},
    "forward-mode": {},
}

# Differences that are known not to be the backend's: (entry, dtype, stage, kind) as regular expressions, each for the
# whole of its text, and the reason.
STAGNATES = "the iteration in 16 bits ends 0.1 to 0.3 from that in float64, on either device"
CURVATURE = "after it converges, its curvature is a quotient of rounding errors"
NARROW = "the CPU writes a strided out= as if it were contiguous"
OUT_OF_RANGE = "the CPU's own kernel takes a dimension out of range for a RuntimeError, all others for an IndexError"
PIXELS = "a rounded grid samples between other pixels, where the gradient jumps: the CPU is as far from the exact one"
FAULTS = [
    ("narrow_copy", ".*", "out strided.*", "value", NARROW),
    (
        "narrow_copy",
        ".*",
        "errors .*",
        "exception",
        "a dimension out of range is a RuntimeError in the CPU's own kernel",
    ),
    ("mode", "b?float16", "backward .*", "value", "of equal elements the CPU's gradient goes to any"),
    ("normal_number_mean", ".*", "out empty", "no error", "the CPU's out= form does not resize its tensor"),
    ("triangular_solve", "float32", "gradgrad .*", "value", "XLA inverts blocks: 4 times the CPU's error, 4 units"),
    ("(nn_functional_)?grid_sample.*", "b?float16", "(backward|gradgrad) .*", "value", PIXELS),
    ("LBFGS", ".*", ".* result .*", "value|precision", CURVATURE),
    ("LBFGS", "b?float16", ".* parameter .*", "value|precision", STAGNATES),
]


def reason(entry, dtype=None):
    """Why an entry, or an entry and dtype, is left out; None if it is not."""
    for pattern, why in ENTRIES.items():
        if re.fullmatch(pattern, entry):
            return why
    if dtype == "complex64" and entry in REAL_OPTIMIZERS:
        return REAL
    return PAIRS.get((entry, dtype)) or DTYPES.get(dtype)


def stage(entry, name):
    """Why a part of the check is left out for an entry; None if it is not."""
    return STAGES.get(name, {}).get(entry)


def fault(entry, dtype, where, kind):
    """Why a difference does not count; None if it does."""
    for *patterns, why in FAULTS:
        if all(re.fullmatch(pattern, text) for pattern, text in zip(patterns, (entry, dtype, where, kind))):
            return why
    return None
