"""Checks one entry of PyTorch's OpInfo database in one dtype: device "tpu" against the CPU."""

import contextlib

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import skips
from compare import DEVICE, Call, Comparer, Mover, Outcome, Recorder, Skip, is_strided, leaves_of, normal


def pick(samples, count):
    """The first sample, others spread over the list, and one with a zero-size tensor if there is any."""
    if len(samples) <= count:
        return samples
    chosen = {round(i * (len(samples) - 1) / max(count - 1, 1)) for i in range(count)} if count > 2 else {0}
    if count == 2:
        chosen.add(len(samples) // 2)

    def empty(index):
        return any(t.numel() == 0 for t in Call.of(samples[index]).tensors())

    if count > 1 and not any(map(empty, chosen)):
        chosen.update(list(filter(empty, range(len(samples))))[:1])
    return [samples[i] for i in sorted(chosen)]


class Check(Comparer):
    """One entry in one dtype: forward and backward of some samples, then each other form of the operator on one.

    `errors`: also the entry's error inputs, which do not depend on the dtype. `deep`: also double backward and
    forward-mode derivatives.
    """

    def __init__(self, op, dtype, *, errors=True, deep=True, **options):
        super().__init__(op, dtype, op.formatted_name, **options)
        self.errors, self.deep = errors, deep

    # --- The parts ---------------------------------------------------------------------------------------------------
    def call_both(self, function, call, other=None):
        cpu = Outcome.of(call.run, function)
        tpu = Outcome.of((other or Mover().call(call)).run, function)
        return cpu, tpu

    def forward(self, call, backward=True, inputs=False):
        """Forward, aliasing, and backward if anything requires a gradient."""
        other = Mover().call(call)
        cpu, tpu = self.call_both(self.op.get_op(), call, other)
        self.random |= cpu.random
        if not self.same_error(cpu, tpu):
            return
        values = not cpu.random and self.op.name not in skips.UNINITIALISED
        self.compare_aliases(call.tensors(), cpu.result, other.tensors(), tpu.result)
        self.wide = lambda: leaves_of(call.process(call.widened().run(self.op.get_op())))
        self.processed(call, cpu, tpu, values)
        self.wide = None
        if inputs and values:
            for index, (a, b) in enumerate(zip(call.tensors(), other.tensors())):
                before = len(self.failures)
                self.compare_tensor(a, b, f" operand {index}", strides=False)
                if len(self.failures) > before:
                    self.failures[-1].kind = "input"
        if backward and any(t.requires_grad for t in call.tensors()):
            group, _, number = self.stage.partition(" ")
            with self.at(f"backward {number or group}"):
                self.backward(call, other, cpu.result, tpu.result, values)

    def processed(self, call, cpu, tpu, values, strides=True):
        """Compares results; values after the sample's own removal of what is arbitrary in them (signs, phases)."""
        if not values:
            return self.compare(cpu.result, tpu.result, values, strides)
        a, b = Outcome.of(call.process, cpu.result), Outcome.of(call.process, tpu.result)
        if a.error is not None or a.result is cpu.result or not self.same_error(a, b):
            return self.compare(cpu.result, tpu.result, values, strides)
        self.compare(cpu.result, tpu.result, False, strides)
        before, self.stage = self.stage, self.stage + " processed"
        theirs, mine = ([leaf for leaf in tree_flatten(o.result)[0] if isinstance(leaf, torch.Tensor)] for o in (a, b))
        for self.index, (x, y) in enumerate(zip(theirs, mine)):
            self.compare_tensor(x, y, strides=False)
        self.stage = before
        return None

    def backward(self, call, other, cpu, tpu, values):
        def differentiable(result):
            leaves = tree_flatten(call.process(result))[0]
            return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

        theirs, mine = differentiable(cpu), differentiable(tpu)
        if len(theirs) != len(mine):
            self.fail("grad", f"{len(mine)} results require a gradient, on the CPU {len(theirs)}")
            return
        if not theirs:
            return
        if self.op.name in skips.MOVES_TIES:  # the same for equal elements, which may stand in any order
            seeds = [result.detach().mul(3).cos() for result in theirs]
        else:
            seeds = [normal(result.shape, result.dtype, 7 + index) for index, result in enumerate(theirs)]
        wanted = [i for i, t in enumerate(call.tensors()) if t.requires_grad]
        operands = [[c.tensors()[i] for i in wanted] for c in (call, other)]

        def gradients(results, inputs, seeds):
            return torch.autograd.grad(results, inputs, seeds, allow_unused=True)

        a = Outcome.of(gradients, theirs, operands[0], seeds)
        b = Outcome.of(lambda: gradients(mine, operands[1], [seed.to(DEVICE) for seed in seeds]))
        if not self.same_error(a, b):
            return

        def wide():
            copy = call.widened()
            exact = [leaf for leaf in leaves_of(call.process(copy.run(self.op.get_op()))) if leaf.requires_grad]
            seed = [s.to(e.dtype) for s, e in zip(seeds, exact)]
            return gradients(exact, [copy.tensors()[i] for i in wanted], seed)

        self.wide = wide
        names = [f" operand {number}" for number in wanted]
        self.compare_gradients(a.result, b.result, values and not (a.random or self.random), names)

    def in_place(self, call):
        """The in-place form on a copy of the input, with its gradient where it has one."""
        function = self.op.get_inplace()
        if not isinstance(call.input, torch.Tensor):
            raise Skip("the first operand is no tensor")
        other = Mover().call(call)
        grad = self.op.supports_inplace_autograd

        def run(arguments):
            mine = arguments.input if grad else arguments.input.detach()
            target = mine.clone(memory_format=torch.preserve_format)
            returned = function(target, *arguments.args, **arguments.kwargs)
            return returned, returned is target

        cpu, tpu = Outcome.of(run, call), Outcome.of(run, other)
        if not self.same_error(cpu, tpu):
            return
        if cpu.result[1] != tpu.result[1]:
            self.fail("alias", "does not return its first operand")
        values = not cpu.random and self.op.name not in skips.UNINITIALISED
        self.wide = lambda: leaves_of(call.widened().run(self.op.get_op()))
        self.compare(cpu.result[0], tpu.result[0], values)
        if grad and any(t.requires_grad for t in call.tensors()):
            plain = Call(call.input, call.args, call.kwargs)
            self.backward(plain, Call(other.input, other.args, other.kwargs), cpu.result[0], tpu.result[0], values)

    def out(self, call):
        """The out= form: into the right size, an empty tensor, a strided one, and one of a wrong dtype."""
        with torch.no_grad():
            expected = Outcome.of(call.run, self.op.get_op())
        if expected.error is not None:
            raise Skip("the functional form raises")
        results, spec = tree_flatten(expected.result)
        if not results or not all(isinstance(r, torch.Tensor) and is_strided(r) for r in results):
            raise Skip("results that are no tensors")
        values = not expected.random and self.op.name not in skips.UNINITIALISED

        def exact(result):
            return torch.full_like(result, 1)

        def empty(result):
            return torch.empty(0, dtype=result.dtype)

        def strided(result):
            shape = (*result.shape[::-1], 2)
            base = torch.ones(shape, dtype=result.dtype)[..., 0]
            return base.permute(tuple(reversed(range(result.dim()))))

        def wrong(result):
            return torch.ones(result.shape, dtype=torch.int64 if result.dtype != torch.int64 else torch.bool)

        for make in (exact, empty, strided, wrong):
            with self.at(f"out {make.__name__}"), torch.no_grad():
                outs = [[make(r) for r in results]]
                mover = Mover()
                outs.append([mover(o) for o in outs[0]])
                other = mover.call(call)

                def run(arguments, out):
                    given = out[0] if isinstance(expected.result, torch.Tensor) else tuple(out)
                    return arguments.run(self.op.get_op(), out=given)

                cpu, tpu = Outcome.of(run, call, outs[0]), Outcome.of(run, other, outs[1])
                accepted = make is wrong and cpu.error is not None and tpu.error is None
                if accepted and self.widens(results, outs[1], values):
                    self.fail("accepts", f"the CPU raises {type(cpu.error).__name__}: {cpu.error}")
                    continue
                if not self.same_error(cpu, tpu):
                    continue
                self.compare(cpu.result, tpu.result, values=False)
                # Not the CPU's own values: some of its out= forms are wrong for strided tensors.
                pair = (outs[0] if make is wrong else results, outs[1])
                theirs, mine = (Outcome(tree_unflatten(leaves, spec)) for leaves in pair)
                if make is not wrong:
                    self.wide = lambda: leaves_of(call.process(call.widened().run(self.op.get_op())))
                self.processed(call, theirs, mine, values, strides=False)
                self.compare_aliases(outs[0], cpu.result, outs[1], tpu.result)

    def widens(self, results, outs, values):
        """Whether tensors of another dtype took the results' very numbers."""
        if not all(torch.can_cast(result.dtype, out.dtype) for result, out in zip(results, outs)):
            return False
        return not values or all(torch.equal(result.to(out.dtype), out.cpu()) for result, out in zip(results, outs))

    def error_inputs(self):
        """Each error input raises the class that the CPU raises, at the call or at the next synchronisation."""
        try:
            cases = list(self.op.error_inputs("cpu"))
        except Exception as error:
            raise Skip(f"the generator raises {type(error).__name__}") from None
        for index, case in enumerate(cases):
            if self.late():
                self.skipped["errors"] = f"time: {index} of {len(cases)} done"
                break
            with self.at(f"errors {index}"):
                call = Call.of(case.sample_input, self.op)
                other = Mover().call(call)
                cpu, tpu = self.call_both(self.op.get_op(), call, other)
                if cpu.error is not None:
                    self.same_error(cpu, tpu)

    def record(self, call):
        """Which operators the entry reaches on the device."""
        other, recorder = Mover().call(call), Recorder()
        with torch.no_grad(), contextlib.suppress(Exception), recorder:
            other.run(self.op.get_op())
        self.operators = sorted(recorder.names)
        self.counts = torch.tpu.fallback_ops()

    def rounded_normal(self, shape, dtype, seed):
        """Random numbers that the entry's dtype has, so that the call in float64 can be given the same."""
        own = self.dtype.to_complex() if dtype.is_complex and not self.dtype.is_complex else self.dtype
        own = own.to_real() if own.is_complex and not dtype.is_complex else own
        return normal(shape, torch.complex64 if own is torch.complex32 else own, seed).to(dtype)

    def double_backward(self, call):
        """The gradients of a weighted sum of the gradients."""

        def random(like, number, source):
            if self.op.name in skips.MOVES_TIES:
                return source.detach().mul(3).cos()
            return self.rounded_normal(like.shape, like.dtype, 11 + number).to(like.device)

        def run(arguments):
            operands = [t for t in arguments.tensors() if t.requires_grad]
            results = [r for r in leaves_of(arguments.process(arguments.run(self.op.get_op()))) if r.requires_grad]
            if not results:
                raise Skip("no result requires a gradient")
            first = [random(r, i, r).requires_grad_() for i, r in enumerate(results)]
            grads = torch.autograd.grad(results, operands, first, create_graph=True, allow_unused=True)
            pairs = [(g, t) for g, t in zip(grads, operands) if g is not None and g.requires_grad]
            if not pairs:
                raise Skip("the gradient is constant")
            second = [random(g, len(results) + i, t) for i, (g, t) in enumerate(pairs)]
            grads = [g for g, _ in pairs]
            return torch.autograd.grad(grads, [*operands, *first], second, allow_unused=True)

        cpu = Outcome.of(run, call)
        try:
            tpu = Outcome.of(run, Mover().call(call))
        except Skip as skip:
            self.fail("grad", f"{skip}, unlike the CPU")
            return
        if self.same_error(cpu, tpu):
            self.wide = lambda: run(call.widened())
            self.compare_gradients(cpu.result, tpu.result)

    def forward_mode(self, call):
        """The directional derivative."""

        def run(arguments):
            numbers = iter(range(1 << 30))

            def dual(value):
                if not isinstance(value, torch.Tensor) or not value.requires_grad:
                    return value
                number = next(numbers)
                tangent = (
                    value.detach().mul(3).cos()
                    if self.op.name in skips.MOVES_TIES
                    else self.rounded_normal(value.shape, value.dtype, 31 + number).to(value.device)
                )
                return forward_ad.make_dual(value.detach(), tangent)

            with forward_ad.dual_level():
                moved = [tree_map(dual, part) for part in (arguments.input, arguments.args, arguments.kwargs)]
                results = leaves_of(arguments.process(Call(*moved).run(self.op.get_op())))
                return [forward_ad.unpack_dual(r).tangent for r in results]

        cpu, tpu = Outcome.of(run, call), Outcome.of(run, Mover().call(call))
        if self.same_error(cpu, tpu):
            self.wide = lambda: run(call.widened())
            self.compare_gradients(cpu.result, tpu.result)

    # --- The whole ---------------------------------------------------------------------------------------------------
    def make_samples(self, grad):
        torch.manual_seed(0)
        return pick(list(self.op.sample_inputs("cpu", self.dtype, requires_grad=grad)), self.samples)

    def whole(self):
        op = self.op
        grad = op.supports_autograd and self.dtype in op.supported_backward_dtypes("cpu")
        samples = self.make_samples(grad)
        for index, sample in enumerate(samples):
            if index and self.late():
                self.skipped["forward"] = f"time: {index} of {len(samples)} samples"
                break
            with self.at(f"forward {index}"):
                self.forward(Call.of(sample, op), inputs=index == 0)
        if not samples:
            self.skipped["forward"] = "no samples"
            return
        with self.at("record"):
            self.record(Call.of(samples[0], op))
        self.forms(samples)
        if grad and self.deep:
            self.derivatives(samples)
        if self.errors and op.error_inputs_func is not None and self.allowed("errors"):
            with self.at("errors"):
                self.error_inputs()

    def forms(self, samples):
        """The in-place and out= forms, and non-contiguous operands."""
        op = self.op
        fitting = next((s for s in samples if Call.of(s).tensors()), samples[0])
        target = next((s for s in samples if not s.broadcasts_input), None)
        if op.get_inplace() is not None and target is not None and self.allowed("in-place"):
            with self.at("in-place"):
                self.in_place(Call.of(target, op))
        if op.supports_out and self.allowed("out"):
            with self.at("out"):
                self.out(Call.of(fitting, op))
        if Call.of(fitting, op).tensors() and self.allowed("noncontiguous"):
            with self.at("noncontiguous"):
                self.forward(Call.of(fitting.noncontiguous(), op))

    def derivatives(self, samples):
        """Double backward and forward mode, of the first sample that has elements."""
        full = [s for s in samples if all(t.numel() for t in Call.of(s).tensors())]
        wanted = [s for s in full if any(t.requires_grad for t in Call.of(s).tensors())]
        if not wanted or self.random:
            return
        if self.op.supports_gradgrad and self.allowed("gradgrad"):
            with self.at("gradgrad"):
                self.double_backward(Call.of(wanted[0], self.op))
        if self.op.supports_forward_ad and self.allowed("forward-mode"):
            with self.at("forward-mode"):
                self.forward_mode(Call.of(wanted[0], self.op))
