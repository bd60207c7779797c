"""Every operator of PyTorch's OpInfo database, in every dtype that it lists: device "tpu" against the CPU."""

from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db

import suites
from cases import CheckCase
from check import Check


class TestOps(CheckCase):
    @ops([op for op in op_db if op.dtypes], dtypes=OpDTypes.supported)
    def test_op(self, device, dtype, op):
        first = suites.dtype_names(op)[0] == str(dtype).removeprefix("torch.")
        self.check(Check, op, dtype, op.formatted_name, errors=first, deep=self.options.deep)


instantiate_device_type_tests(TestOps, globals(), only_for="tpu")
