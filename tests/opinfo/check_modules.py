"""Checks one module of PyTorch's ModuleInfo database in one dtype: device "tpu" against the CPU."""

import copy
import io

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import ModuleErrorEnum
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_map

import suites
from compare import DEVICE, Call, Comparer, Mover, Outcome, Skip, leaves_of, normal


def is_packed(value):
    return isinstance(value, PackedSequence)


def each_tensor(function, value):
    """A copy of nested arguments with a function of each tensor; a packed sequence's lengths stay as they are."""

    def one(leaf):
        if is_packed(leaf):
            parts = (leaf.data, leaf.sorted_indices, leaf.unsorted_indices)
            data, *indices = (None if part is None else function(part) for part in parts)
            return PackedSequence(data, leaf.batch_sizes, *indices)
        return function(leaf) if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(one, value, is_leaf=is_packed)


def leaf_copy(tensor):
    """Without the history that some samples have."""
    return tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_(tensor.requires_grad)


class ModuleCheck(Comparer):
    """A module in one dtype and one mode: each way to make it, to call it, and to move it."""

    def __init__(self, info, dtype, *, training, **options):
        super().__init__(info, dtype, suites.module_entry(info, training), **options)
        self.info, self.training = info, training

    # --- Making -------------------------------------------------------------------------------------------------------
    def inputs(self, grad):
        torch.manual_seed(0)
        options = dict(device="cpu", dtype=self.dtype, requires_grad=grad, training=self.training)
        inputs = list(self.info.module_inputs_func(self.info, **options))
        return [m for m in inputs if m.forward_input is not None]

    def make(self, sample, device="cpu", errors=False):
        """A module as the sample says."""
        torch.manual_seed(1)
        constructor = sample.constructor_input
        options = {**constructor.kwargs, "device": device, "dtype": self.dtype}
        try:
            module = self.info.module_cls(*constructor.args, **options)
        except TypeError:  # one without parameters, or of given modules
            if device != "cpu" and not errors:
                raise Skip("its constructor takes no device") from None
            module = self.info.module_cls(*constructor.args, **constructor.kwargs)
        return module.train(self.training)

    def pair(self, sample):
        """The module on the CPU, and a copy of it on the device."""
        module = self.make(sample).to(self.dtype)
        call = self.call(sample)
        if self.info.is_lazy:  # its parameters take their sizes, and values, from a first call
            module(*call.args, **call.kwargs)
        return module, copy.deepcopy(module).to(DEVICE)

    def call(self, sample, change=leaf_copy):
        forward = sample.forward_input
        args, kwargs = each_tensor(change, (forward.args, forward.kwargs))
        return Call((), tuple(args), dict(kwargs))

    # --- The parts ----------------------------------------------------------------------------------------------------
    def forward(self, sample, change=leaf_copy, stage="backward"):
        """Results, buffers and gradients of a module and its copy."""
        module, other = self.pair(sample)
        call = self.call(sample, change)
        moved = Call((), *each_tensor(Mover().tensor, (call.args, call.kwargs)))
        cpu = Outcome.of(module, *call.args, **call.kwargs)
        tpu = Outcome.of(other, *moved.args, **moved.kwargs)
        self.random |= cpu.random
        if not self.same_error(cpu, tpu):
            return
        self.wide = lambda: leaves_of(self.widened(module, call)[0])
        self.compare(cpu.result, tpu.result, values=not cpu.random)
        self.wide = None
        self.named("buffer", dict(module.named_buffers()), dict(other.named_buffers()), not cpu.random)
        self.on_device(other, tpu.result)
        if not self.training or any(r.requires_grad for r in leaves_of(cpu.result)):
            with self.at(f"{stage} {self.stage.partition(' ')[2]}".strip()):
                self.backward((module, call, cpu.result), (other, moved, tpu.result))

    def widened(self, module, call):
        """The same call in float64: results, and what they are differentiated by."""
        wide = copy.deepcopy(module).double()
        args, kwargs = each_tensor(
            lambda t: leaf_copy(t).double().detach().requires_grad_(t.requires_grad) if t.is_floating_point() else t,
            (call.args, call.kwargs),
        )
        return wide(*args, **kwargs), wide, Call((), args, kwargs)

    @staticmethod
    def inputs_of(module, call):
        tensors = []
        each_tensor(lambda t: tensors.append(t) or t, (call.args, call.kwargs))
        named = [(f" input {i}", t) for i, t in enumerate(tensors)] + [
            (f" {name}", p) for name, p in module.named_parameters()
        ]
        return [(name, t) for name, t in named if t.requires_grad]

    def gradients(self, module, call, result):
        results = [r for r in leaves_of(result) if r.requires_grad]
        inputs = [tensor for _, tensor in self.inputs_of(module, call)]
        if not results or not inputs:
            raise Skip("nothing to differentiate")
        seeds = [normal(r.shape, self.dtype, 7 + i).to(r.device, r.dtype) for i, r in enumerate(results)]
        return torch.autograd.grad(results, inputs, seeds, allow_unused=True)

    def backward(self, cpu, tpu):
        results, others = ([r for r in leaves_of(run[2]) if r.requires_grad] for run in (cpu, tpu))
        if len(results) != len(others):
            self.fail("grad", f"{len(others)} results require a gradient, on the CPU {len(results)}")
            return
        names = [name for name, _ in self.inputs_of(*cpu[:2])]
        a, b = Outcome.of(self.gradients, *cpu), Outcome.of(self.gradients, *tpu)
        if self.same_error(a, b):

            def wide():
                result, module, call = self.widened(*cpu[:2])
                return self.gradients(module, call, result)

            self.wide = wide
            self.compare_gradients(a.result, b.result, not (a.random or self.random), names)

    def named(self, what, cpu, tpu, values=True):
        """Two dictionaries of tensors."""
        if list(cpu) != list(tpu):
            self.fail("structure", f"{what}s {list(tpu)}, the CPU: {list(cpu)}")
        for name in cpu.keys() & tpu.keys():
            self.compare_tensor(cpu[name], tpu[name], f" {what} {name}", values)

    def on_device(self, module, result=()):
        """Everything is where the module is."""
        tensors = [*module.parameters(), *module.buffers()]
        each_tensor(lambda t: tensors.append(t) or t, result)
        for tensor in tensors:
            if tensor.device.type != DEVICE:
                self.fail("device", f"a tensor lies on {tensor.device}")

    def moves(self, sample):
        """To the device and back, state dicts both ways and through a file, and made on the device at once."""
        module, other = self.pair(sample)
        self.named("entry", module.state_dict(), other.state_dict())
        with self.at("move back"):
            back = copy.deepcopy(other).to("cpu")
            self.named("entry", module.state_dict(), back.state_dict())
        with self.at("move cast"):
            kinds = [copy.deepcopy(m).to(torch.bfloat16).state_dict() for m in (module, other)]
            self.named("entry", *kinds)
        with self.at("move state-dict"):
            file = io.BytesIO()
            torch.save(other.state_dict(), file)
            file.seek(0)
            fresh = [copy.deepcopy(module), copy.deepcopy(other)]
            for target in fresh:
                for tensor in [*target.parameters(), *target.buffers()]:
                    tensor.data.zero_()
            fresh[0].load_state_dict(torch.load(file, map_location="cpu"))
            fresh[1].load_state_dict(module.state_dict())
            for target in fresh:
                self.named("entry", module.state_dict(), target.state_dict())
            self.on_device(fresh[1])
        if not self.info.is_lazy:
            with self.at("move made"):
                cpu, tpu = Outcome.of(self.make, sample), Outcome.of(self.make, sample, DEVICE)
                if self.same_error(cpu, tpu):
                    self.named("entry", cpu.result.state_dict(), tpu.result.state_dict(), values=False)
                    self.on_device(tpu.result)

    def errors(self):
        """Modules that cannot be made, and calls that raise."""
        function = self.info.module_error_inputs_func
        options = dict(device="cpu", dtype=self.dtype, requires_grad=False, training=self.training)
        for index, case in enumerate(function(self.info, **options)):
            sample = case.module_error_input

            def run(device, sample=sample, case=case):
                module = self.make(sample, device, errors=True)
                if case.error_on is ModuleErrorEnum.FORWARD_ERROR:
                    module = module.to(device)
                    forward = sample.forward_input
                    args, kwargs = each_tensor(lambda t: t.to(device), (forward.args, forward.kwargs))
                    module(*args, **kwargs)

            with self.at(f"errors {index}"):
                cpu, tpu = Outcome.of(run, "cpu"), Outcome.of(run, DEVICE)
                if cpu.error is not None:
                    self.same_error(cpu, tpu)

    def whole(self):
        samples = self.inputs(grad=True)
        if not samples:
            self.skipped["forward"] = "no samples"
            return
        chosen = sorted({round(i * (len(samples) - 1) / max(self.samples - 1, 1)) for i in range(self.samples)})
        for index in chosen:
            if index and self.late():
                self.skipped["forward"] = "time"
                break
            with self.at(f"forward {index}"):
                self.forward(samples[index])
        if self.allowed("noncontiguous"):
            with self.at("noncontiguous"):
                self.forward(samples[0], lambda t: noncontiguous_like(leaf_copy(t)), "backward noncontiguous")
        if self.allowed("move"):
            with self.at("move"):
                self.moves(samples[0])
        if self.info.module_error_inputs_func is not None and self.allowed("errors"):
            with self.at("errors"):
                self.errors()
