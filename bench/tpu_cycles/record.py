"""Takes training steps, and notes where in the log of launches the last of them begins.

python bench/tpu_cycles/record.py MODEL MODE    under the environment that run.py gives
"""

import os
import sys
from pathlib import Path

import models

STEPS = 6  # fused compiles a program when it meets it the second time; then its successors are met anew


def main():
    import torch

    torch.set_num_threads(1)
    log = Path(os.environ["TORCH_TPU_DUMP_LAUNCHES"])
    step = models.training(sys.argv[1], "tpu", sys.argv[2])
    launches = []
    for _ in range(STEPS):
        begin = log.stat().st_size if log.exists() else 0
        loss = step()
        torch.tpu.synchronize()
        torch.tpu.wait_for_compiles()
        with log.open() as file:
            file.seek(begin)
            launches.append(file.read().split())
        del loss
    if launches[-1] != launches[-2]:
        sys.exit(f"the launches of a step don't settle: {[len(each) for each in launches]}")
    print("\n".join(launches[-1]))


if __name__ == "__main__":
    main()
