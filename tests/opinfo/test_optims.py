"""Every optimizer of PyTorch's OptimizerInfo database over several dtypes: device "tpu" against the CPU."""

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import optim_db, optims

from cases import CheckCase
from check_optims import OptimCheck

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64)


class TestOptims(CheckCase):
    @optims(optim_db, dtypes=DTYPES)
    def test_optim(self, device, dtype, optim_info):
        self.check(OptimCheck, optim_info, dtype, optim_info.name)


instantiate_device_type_tests(TestOptims, globals(), only_for="tpu")
