"""Every module of PyTorch's ModuleInfo database, in every dtype and mode: device "tpu" against the CPU."""

from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_modules import module_db, modules

import suites
from cases import CheckCase
from check_modules import ModuleCheck


class TestModules(CheckCase):
    @modules(module_db)
    def test_module(self, device, dtype, module_info, training):
        entry = suites.module_entry(module_info, training)
        self.check(ModuleCheck, module_info, dtype, entry, training=training)


instantiate_device_type_tests(TestModules, globals(), only_for="tpu")
