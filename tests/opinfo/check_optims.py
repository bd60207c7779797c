"""Checks one optimizer of PyTorch's OptimizerInfo database in one dtype: device "tpu" against the CPU."""

import copy

import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum
from torch.utils._pytree import tree_flatten, tree_map

from compare import DEVICE, Comparer, Outcome, normal

STEPS = 3
SHAPES = ((3, 4), (5, 2), (2, 2))  # matrices: one optimizer takes nothing else
FORMS = ("single", "foreach", "fused")


def to_device(value):
    """Nested parameters on the device; one tensor at several places stays one."""
    moved = {}

    def one(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in moved:
            copied = leaf.detach().to(DEVICE).requires_grad_(leaf.requires_grad)
            moved[id(leaf)] = torch.nn.Parameter(copied) if isinstance(leaf, torch.nn.Parameter) else copied
            moved[id(leaf)].grad = None if leaf.grad is None else leaf.grad.to(DEVICE)
        return moved[id(leaf)]

    return tree_map(one, value)


def widen(tensor):
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


class OptimCheck(Comparer):
    """An optimizer over parameters of one dtype: each of its inputs in each form, state dicts, bad arguments."""

    def __init__(self, info, dtype, **options):
        super().__init__(info, dtype, info.name, **options)
        self.info = info

    # --- Runs ---------------------------------------------------------------------------------------------------------
    def parameters(self, device, wide=False):
        parameters = [normal(s, self.dtype, i).to(device) for i, s in enumerate(SHAPES)]
        return [(widen(p) if wide else p).requires_grad_() for p in parameters]

    def step(self, optimizer, parameters, number):
        """One step on gradients that depend on its number alone, or of a closure that has its own."""
        if self.info.step_requires_closure:

            def closure():
                optimizer.zero_grad()
                loss = sum((p - 0.5).abs().square().sum() for p in parameters)
                loss.backward()
                return loss

            return optimizer.step(closure)
        for index, parameter in enumerate(parameters):
            grad = normal(parameter.shape, self.dtype, 100 * number + index)
            parameter.grad = grad.to(parameter.device, parameter.dtype)
        return optimizer.step()

    def train(self, device, arguments, groups=False, wide=False):
        """The parameters after each step, the state, and the optimizer with its parameters."""
        parameters, history = self.parameters(device, wide), []
        given = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.02}] if groups else parameters
        optimizer = self.info.optim_cls(given, **arguments)
        for number in range(STEPS):
            self.step(optimizer, parameters, number)
            history.extend(p.detach().clone() for p in parameters)
        return history, optimizer.state_dict()["state"], optimizer, parameters

    def forms(self, arguments):
        """The form's arguments by its name, as far as the optimizer has it on the CPU."""
        supported = self.info.supported_impls
        forms = {"single": {"foreach": False} if "foreach" in supported else {}}
        if "foreach" in supported:
            forms["foreach"] = {"foreach": True}
        if "fused" in supported and "cpu" in self.info.supports_fused_on and self.dtype.is_floating_point:
            forms["fused"] = {"fused": True}
        return {name: {**arguments, **more} for name, more in forms.items()}

    # --- The parts ----------------------------------------------------------------------------------------------------
    def compare_runs(self, cpu, tpu, wide=None):
        """Parameters after each step, and the state. `wide`: the same run in float64."""
        if not self.same_error(cpu, tpu):
            return
        if wide is not None:
            self.wide = lambda: wide()[0]
        for self.index, (a, b) in enumerate(zip(cpu.result[0], tpu.result[0])):
            step, parameter = divmod(self.index, len(SHAPES))
            self.compare_tensor(a, b, f" step {step} parameter {parameter}")
        if wide is not None:
            self.wide = lambda: tree_flatten(wide()[1])[0]
        self.compare(cpu.result[1], tpu.result[1])

    def both(self, theirs, mine, groups=False):
        cpu = Outcome.of(self.train, "cpu", copy.deepcopy(theirs), groups)
        tpu = Outcome.of(self.train, DEVICE, copy.deepcopy(mine), groups)
        self.compare_runs(cpu, tpu, lambda: self.train("cpu", copy.deepcopy(theirs), groups, True))

    def input_forms(self, arguments):
        """One input of the database in each form. `capturable` exists on devices only: it changes no number."""
        capturable = arguments.get("capturable", False)
        for name, mine in self.forms(arguments).items():
            if name == "fused" and capturable:
                continue
            theirs = {key: value for key, value in mine.items() if key != "capturable"}
            if capturable:  # without it the CPU takes no tensors among the arguments
                theirs = tree_map(lambda v: v.item() if isinstance(v, torch.Tensor) else v, theirs)
            with self.at(f"{name} {self.label}"):
                self.both(theirs, mine)

    def state_dicts(self):
        """A state dict of either goes on in either, with the same further steps."""

        def go_on(source, device):
            _, _, optimizer, parameters = self.train(source, {})
            copied = [p.detach().to(device).requires_grad_() for p in parameters]
            fresh = self.info.optim_cls(copied)
            fresh.load_state_dict(optimizer.state_dict())
            self.step(fresh, copied, STEPS)
            return [p.detach() for p in copied], fresh.state_dict()["state"]

        cpu = Outcome.of(go_on, "cpu", "cpu")
        for source, device in ((DEVICE, DEVICE), ("cpu", DEVICE), (DEVICE, "cpu")):
            with self.at(f"state-dict {source}-{device}"):
                self.compare_runs(cpu, Outcome.of(go_on, source, device))

    def differentiable(self):
        """The gradient through a step."""

        def run(device):
            sources = self.parameters(device)
            parameters = [p.clone() for p in sources]
            grads = [normal(p.shape, self.dtype, 50 + i).to(device).requires_grad_() for i, p in enumerate(sources)]
            for parameter, grad in zip(parameters, grads):
                parameter.grad = grad
            self.info.optim_cls(parameters, differentiable=True).step()
            loss = sum((p * p.detach()).real.sum() for p in parameters)
            return torch.autograd.grad(loss, [*sources, *grads], allow_unused=True)

        cpu, tpu = Outcome.of(run, "cpu"), Outcome.of(run, DEVICE)
        if self.same_error(cpu, tpu):
            self.compare_gradients(cpu.result, tpu.result)

    def errors(self):
        for index, case in enumerate(self.info.optim_error_inputs_func(device="cpu", dtype=self.dtype)):
            given = case.optimizer_error_input

            def run(move, given=given, case=case):
                parameters = given.params if given.params is not None else self.parameters("cpu")
                parameters = move(parameters)
                optimizer = self.info.optim_cls(parameters, **given.kwargs)
                if case.error_on is OptimizerErrorEnum.STEP_ERROR:
                    optimizer.step()

            with self.at(f"errors {index}"):
                cpu, tpu = Outcome.of(run, lambda value: value), Outcome.of(run, to_device)
                if cpu.error is not None:
                    self.same_error(cpu, tpu)

    def whole(self):
        cuda = {str(i): i for i in self.info.optim_inputs_func(device="cuda")}
        for number, given in enumerate(cuda.values()):
            if self.late():
                self.skipped["single"] = f"time: {number} of {len(cuda)} inputs"
                break
            self.label = f"{number} {given.desc}"
            self.input_forms(given.kwargs)
        if self.info.supports_param_groups:
            with self.at("groups"):
                self.both({}, {}, groups=True)
        with self.at("state-dict"):
            self.state_dicts()
        if "differentiable" in self.info.supported_impls and self.allowed("differentiable"):
            with self.at("differentiable"):
                self.differentiable()
        if self.info.optim_error_inputs_func is not None and self.allowed("errors"):
            with self.at("errors"):
                self.errors()
