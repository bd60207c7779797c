"""Uses an unpacked wheel by itself, on this Python's torch: `check_wheel.py FOLDER [--build-shim]`.

With --build-shim the wheel's own shim is deleted first, so that the package must build one.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import os, sys
# An editable install of the same package would come first.
sys.meta_path[:] = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]
import torch, torch_tpu
folder = os.path.dirname(torch_tpu.__file__)
assert os.path.samefile(folder, os.path.join(sys.argv[1], "torch_tpu")), folder
assert (torch.ones(2, device="tpu") + 1).tolist() == [2, 2]
"""


def main():
    folder = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        environment = dict(os.environ, PYTHONPATH=str(folder), TORCH_TPU_CACHE_DIR=scratch)
        if "--build-shim" in sys.argv[2:]:
            for shim in (folder / "torch_tpu/lib").glob("libtorchtpu_shim_*.so"):
                shim.unlink()
            environment["XDG_CACHE_HOME"] = scratch
        subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], cwd=scratch, env=environment, check=True)
    print("the wheel works")


if __name__ == "__main__":
    main()
