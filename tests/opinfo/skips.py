"""What the harness leaves out, by name, with the reason."""

import re

SPARSE = "sparse layouts: the backend has strided tensors only"
JITERATOR = "jiterator compiles CUDA source"
NO_CPU = "the CPU reference has no dtype for it"
NO_DTYPE = "XLA has no such dtype"

# Full names of entries, as regular expressions.
ENTRIES = {
    r"sparse_.*": SPARSE,
    r"to_sparse": SPARSE,
    r"jiterator_.*": JITERATOR,
    r"chalf": NO_DTYPE,
}

DTYPES = {"complex32": NO_DTYPE}

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

# Stage -> entry -> reason: parts of the check that an entry cannot take.
STAGES = {
    "out": {},
    "in-place": {},
    "noncontiguous": {},
}


def reason(entry, dtype=None):
    """Why an entry, or an entry and dtype, is left out; None if it is not."""
    for pattern, why in ENTRIES.items():
        if re.fullmatch(pattern, entry):
            return why
    return DTYPES.get(dtype)
