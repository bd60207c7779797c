"""The GPT's training step in JAX: the same weights, batches, loss and AdamW, as one compiled function."""

import time

import jax
import jax.numpy as jnp
import numpy as np

now = time.perf_counter


class Backend:
    device = "jax"
    versions = {"jax": jax.__version__}
    enter = staticmethod(lambda: None)
    wait_for_compiles = staticmethod(lambda: None)


def linear(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def layer_norm(p, name, x):
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * p[name + ".weight"] + p[name + ".bias"]


def block(p, name, heads, x):
    batch, length, width = x.shape
    qkv = linear(p, name + ".qkv", layer_norm(p, name + ".norm1", x))
    q, k, v = qkv.reshape(batch, length, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(-1, -2) * (width // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    y = (jax.nn.softmax(scores) @ v).swapaxes(1, 2).reshape(batch, length, width)
    x = x + linear(p, name + ".out", y)
    h = jax.nn.gelu(linear(p, name + ".up", layer_norm(p, name + ".norm2", x)), approximate=False)
    return x + linear(p, name + ".down", h)


def loss_of(p, heads, layers, tokens, targets):
    x = p["tokens.weight"][tokens] + p["positions.weight"][: tokens.shape[1]]
    for i in range(layers):
        x = block(p, f"blocks.{i}", heads, x)
    logits = linear(p, "head", layer_norm(p, "norm", x))
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    return -chosen.mean()


def adamw(p, g, m, v, step, rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, decay=1e-2):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    root = jnp.sqrt(v / (1 - beta2**step)) + epsilon
    return p * (1 - rate * decay) - rate / (1 - beta1**step) * m / root, m, v


class GPT:
    def __init__(self, backend, layers, heads, arrays, **_):
        loaded = np.load(arrays)
        weights = {name: value for name, value in loaded.items() if not name.startswith(("inputs", "targets"))}
        count = sum(name.startswith("inputs") for name in loaded)
        self.batches = [(jnp.asarray(loaded[f"inputs{i}"]), jnp.asarray(loaded[f"targets{i}"])) for i in range(count)]
        self.state = tuple({n: jnp.asarray(w) * (i == 0) for n, w in weights.items()} for i in range(3))
        self.done = 0

        def step(state, number, tokens, targets):
            p, m, v = state
            loss, g = jax.value_and_grad(loss_of)(p, heads, layers, tokens, targets)
            new = {name: adamw(p[name], g[name], m[name], v[name], number) for name in p}
            return tuple({name: new[name][i] for name in p} for i in range(3)), loss

        self.step = jax.jit(step, donate_argnums=0)

    def turn(self, count=1):
        seconds, values = [], []
        for _ in range(count):
            start = now()
            self.state, loss = self.step(self.state, float(self.done + 1), *self.batches[self.done % len(self.batches)])
            self.done += 1
            values.append(loss.item())
            jax.block_until_ready(self.state)
            seconds.append(now() - start)
        return {"seconds": seconds, "values": values}


PROGRAMS = {"gpt": GPT}
