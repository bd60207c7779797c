"""What a worker runs: a program is made once on a device, and does a piece of its work each turn.

A turn gives figures and `values`: what was computed, in the order of the steps, which the driver compares between
devices.
"""

import random
import time

import torch
import torch.nn.functional as F

import models

now = time.perf_counter


class Program:
    def __init__(self, backend):
        self.backend, self.device = backend, backend.device

    def turn(self, **options):
        raise NotImplementedError


class Operators(Program):
    """Single operators in bursts. The operands are small: what is measured is the call."""

    def __init__(self, backend):
        super().__init__(backend)
        generator = torch.Generator().manual_seed(0)

        def random_tensor(*sizes):
            return torch.randn(*sizes, generator=generator).to(self.device)

        a, b = random_tensor(8, 8), random_tensor(8, 8)
        x, weight, bias = random_tensor(8, 64), random_tensor(64), random_tensor(64)
        target, row = random_tensor(16, 16), random_tensor(4, 16)

        def assign():
            target[4:8] = row
            return target

        self.operators = {
            "add": lambda: a + b,
            "mm": lambda: torch.mm(a, b),
            "layer_norm": lambda: F.layer_norm(x, (64,), weight, bias),
            "view": lambda: a.view(64),
            "slice_assign": assign,
        }

    def turn(self, operator, count=100):
        """Seconds a call until the last returned, and until the device was done with all of them."""
        function, synchronize = self.operators[operator], self.backend.synchronize
        value = function().sum().item()
        for _ in range(count):  # the worker was stopped: its caches are cold
            function()
        synchronize()
        start = now()
        for _ in range(count):
            function()
        enqueued = now()
        synchronize()
        end = now()
        return {"enqueue": (enqueued - start) / count, "synced": (end - start) / count, "values": [value]}


class Chain(Program):
    """Elementwise operators, each over the last one's result, and one read at the end."""

    def __init__(self, backend, length=1000, size=64):
        super().__init__(backend)
        self.length = length
        self.x = torch.linspace(-1, 1, size * size).view(size, size).to(self.device)

    def turn(self, count=1):
        seconds, executions = [], []
        for _ in range(count):
            before = self.backend.counters().get("executions", 0)
            start = now()
            x = self.x
            for _ in range(self.length // 2):
                x = x * 0.999
                x = x + 0.001
            value = x[0, 0].item()
            seconds.append(now() - start)
            self.backend.synchronize()
            executions.append(self.backend.counters().get("executions", 0) - before)
        return {"seconds": seconds, "executions": executions, "values": [value]}


class Steps(Program):
    """Something that is done step by step, with a read at the end of each."""

    def step(self):
        raise NotImplementedError

    def turn(self, count=1):
        seconds, values = [], []
        for _ in range(count):
            start = now()
            result = self.step()
            values.append(result.item())
            self.backend.synchronize()  # the loss is known before the weights are updated
            seconds.append(now() - start)
        return {"seconds": seconds, "values": values}


class Training(Steps):
    """AdamW over a few batches in turn, which are on the device already."""

    BATCHES = 4

    def __init__(self, backend, **options):
        super().__init__(backend)
        torch.manual_seed(0)
        self.model = self.make(**options)
        self.batches = [tuple(tensor.to(self.device) for tensor in self.batch()) for _ in range(self.BATCHES)]
        self.model.to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.done = 0

    def step(self):
        inputs, targets = self.batches[self.done % self.BATCHES]
        self.done += 1
        loss = F.cross_entropy(self.model(inputs).flatten(0, -2), targets.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def save(self, path):
        """Weights and batches, for one who hasn't PyTorch."""
        import numpy

        arrays = {name: parameter.detach().cpu().numpy() for name, parameter in self.model.named_parameters()}
        for i, (inputs, targets) in enumerate(self.batches):
            arrays[f"inputs{i}"], arrays[f"targets{i}"] = inputs.cpu().numpy(), targets.cpu().numpy()
        numpy.savez(path, **arrays)
        return {"values": []}


class MLP(Training):
    def make(self, batch=64, width=256):
        self.size = batch
        return models.mlp(width)

    def batch(self):
        return torch.randn(self.size, 64), torch.randint(10, (self.size,))


class GPT(Training):
    def make(self, layers, width, heads, length, batch, vocabulary=128):
        self.shape, self.vocabulary = (batch, length), vocabulary
        return models.GPT(vocabulary, length, layers, width, heads, written=self.backend.written_attention)

    def batch(self):
        tokens = torch.randint(self.vocabulary, self.shape)
        return tokens, (tokens * 5 + 3) % self.vocabulary


class ResNet(Training):
    def make(self, batch, width):
        self.size = batch
        return models.ResNet(width)

    def batch(self):
        return torch.randn(self.size, 3, 32, 32), torch.randint(10, (self.size,))


class Decode(Steps):
    """Greedy decoding, a token a step. The position is a tensor; the cache is filled over and over."""

    def __init__(self, backend, cache=256, **options):
        super().__init__(backend)
        torch.manual_seed(0)
        self.model = models.Decoder(cache=cache, written=backend.written_attention, **options).to(self.device)
        self.cache = cache
        self.token = torch.ones(1, dtype=torch.int64, device=self.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)

    @torch.no_grad()
    def step(self):
        logits = self.model(self.token, self.position)
        self.token = logits.argmax(0, keepdim=True)
        self.position = (self.position + 1) % self.cache
        return self.token


class Loop(Program):
    """A loop of many small operators without a read, as a program's own code would be."""

    OPERATORS = (
        lambda x, step: x * 1.0001,
        lambda x, step: x + 0.001 * step,  # a number that changes
        lambda x, step: x - x.mean(),
        lambda x, step: x.relu(),
        lambda x, step: x.abs(),
        lambda x, step: x.tanh(),
        lambda x, step: x.t().contiguous(),
        lambda x, step: torch.maximum(x, x.t()),
        lambda x, step: x @ x * 0.01,
        lambda x, step: x.clamp(-1, 1),
        lambda x, step: x.sigmoid(),
    )

    def __init__(self, backend, length):
        super().__init__(backend)
        choose = random.Random(length)
        self.sequence = [choose.choice(self.OPERATORS) for _ in range(length)]
        self.x = torch.linspace(-1, 1, 64).view(8, 8).to(self.device)
        self.done = 0

    def step(self):
        for operator in self.sequence:
            self.x = operator(self.x, self.done)
        self.done += 1

    def settle(self, steps):
        """The number of the last step, from 1, that had something compiled."""
        last = 0
        for step in range(1, steps + 1):
            compiles = self.backend.counters().get("compiles", 0)
            self.step()
            self.backend.wait_for_compiles()
            if self.backend.counters().get("compiles", 0) != compiles:
                last = step
        self.backend.synchronize()
        return {"last_compile": last, "values": [self.x.square().sum().item()]}

    def turn(self, count):
        before = self.backend.counters()
        start = now()
        for _ in range(count):
            self.step()
        after = self.backend.counters()  # before the synchronise, which is the benchmark's
        self.backend.synchronize()
        seconds = now() - start
        moved = {name: after[name] - before[name] for name in after}
        syncs = moved.get("synchronizations", 0) + moved.get("device_to_host", 0)
        return {
            "seconds": [seconds / count],
            "compiles": moved.get("compiles", 0),
            "host_syncs": syncs,
            "values": [self.x.square().sum().item()],
        }


PROGRAMS = {
    "operators": Operators,
    "chain": Chain,
    "mlp": MLP,
    "gpt": GPT,
    "resnet": ResNet,
    "decode": Decode,
    "loop": Loop,
}
