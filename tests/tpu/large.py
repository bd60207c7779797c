"""Calls of the sizes that models have: name -> function of a dtype. What fits a TPU's memory may still not compile."""

import torch
from torch import nn
from torch.nn import functional as F

DTYPES = ("float32", "bfloat16")
CASES = {}


def case(function):
    CASES[f"large_{function.__name__}"] = function
    return function


def make(*sizes, dtype, grad=False):
    return torch.zeros(sizes, device="tpu", dtype=dtype).requires_grad_(grad)


def backward(result):
    result.backward(torch.ones_like(result))


def tokens(*sizes):
    return torch.zeros(sizes, device="tpu", dtype=torch.int64)


@case
def linear(dtype):
    layer = nn.Linear(2048, 5504, device="tpu", dtype=dtype)
    backward(layer(make(2, 1024, 2048, dtype=dtype, grad=True)))


@case
def attention(dtype):
    q, k, v = (make(2, 16, 1024, 64, dtype=dtype, grad=True) for _ in range(3))
    backward(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@case
def embedding(dtype):
    backward(F.embedding(tokens(8, 512), make(50257, 256, dtype=dtype, grad=True)))


@case
def cross_entropy(dtype):
    F.cross_entropy(make(1024, 50257, dtype=dtype, grad=True), tokens(1024)).backward()


@case
def layer_norm(dtype):
    backward(nn.LayerNorm(1024, device="tpu", dtype=dtype)(make(8, 1024, 1024, dtype=dtype, grad=True)))


@case
def softmax(dtype):
    backward(make(4, 16, 512, 512, dtype=dtype, grad=True).softmax(-1))


@case
def dropout(dtype):
    backward(F.dropout(F.gelu(make(8, 1024, 1024, dtype=dtype, grad=True)), 0.1))


@case
def first_convolution(dtype):
    backward(nn.Conv2d(3, 64, 7, 2, 3, device="tpu", dtype=dtype)(make(8, 3, 224, 224, dtype=dtype, grad=True)))


@case
def convolution(dtype):
    backward(nn.Conv2d(128, 256, 3, 2, 1, device="tpu", dtype=dtype)(make(8, 128, 56, 56, dtype=dtype, grad=True)))


@case
def depthwise_convolution(dtype):
    layer = nn.Conv2d(96, 96, 7, padding=3, groups=96, device="tpu", dtype=dtype)
    backward(layer(make(8, 96, 56, 56, dtype=dtype, grad=True)))


@case
def batch_norm(dtype):
    backward(nn.BatchNorm2d(64, device="tpu", dtype=dtype)(make(8, 64, 112, 112, dtype=dtype, grad=True)))


@case
def max_pool(dtype):
    backward(F.max_pool2d(make(8, 64, 112, 112, dtype=dtype, grad=True), 3, 2, 1))


@case
def adaptive_pool(dtype):
    backward(F.adaptive_avg_pool2d(make(8, 512, 14, 14, dtype=dtype, grad=True), 1))


@case
def interpolate(dtype):
    x = make(4, 32, 64, 64, dtype=dtype, grad=True)
    backward(F.interpolate(x, scale_factor=2, mode="bilinear"))


@case
def grid_sample(dtype):
    x, grid = make(4, 3, 224, 224, dtype=dtype, grad=True), make(4, 224, 224, 2, dtype=dtype)
    backward(F.grid_sample(x, grid, align_corners=False))


@case
def lstm(dtype):
    backward(nn.LSTM(256, 512, device="tpu", dtype=dtype)(make(64, 16, 256, dtype=dtype, grad=True))[0])


@case
def sort(dtype):
    make(1 << 20, dtype=dtype).sort()


@case
def sort_rows(dtype):
    make(64, 50257, dtype=dtype).sort(descending=True)


@case
def topk(dtype):
    make(64, 50257, dtype=dtype).topk(50)


@case
def cumsum(dtype):
    make(64, 50257, dtype=dtype).cumsum(-1)


@case
def cumsum_long(dtype):
    make(1 << 20, dtype=dtype).cumsum(0)


@case
def logsumexp(dtype):
    make(1024, 50257, dtype=dtype).logsumexp(-1)


@case
def multinomial(dtype):
    torch.multinomial(make(64, 50257, dtype=dtype).softmax(-1), 1)


@case
def argmax(dtype):
    make(1024, 50257, dtype=dtype).argmax(-1)


@case
def median(dtype):
    make(1 << 20, dtype=dtype).median()


@case
def nonzero(dtype):
    make(1 << 20, dtype=dtype).nonzero()


@case
def index(dtype):
    x = make(100000, 64, dtype=dtype, grad=True)
    backward(x[tokens(4096)])


@case
def scatter_add(dtype):
    make(100000, 64, dtype=dtype).scatter_add_(0, tokens(4096, 64), make(4096, 64, dtype=dtype))


@case
def gather(dtype):
    backward(make(1024, 50257, dtype=dtype, grad=True).gather(1, tokens(1024, 1)))


@case
def masked_fill(dtype):
    make(8, 16, 512, 512, dtype=dtype).masked_fill(torch.zeros(512, 512, dtype=torch.bool, device="tpu"), -1e4)


@case
def normal(dtype):
    make(4096, 4096, dtype=dtype).normal_()


@case
def randperm(dtype):
    torch.randperm(1 << 20, device="tpu")


@case
def cdist(dtype):
    torch.cdist(make(1024, 128, dtype=dtype), make(2048, 128, dtype=dtype))


@case
def cholesky(dtype):
    torch.linalg.cholesky_ex(make(512, 512, dtype=dtype))


@case
def solve_triangular(dtype):
    torch.linalg.solve_triangular(make(512, 512, dtype=dtype), make(512, 64, dtype=dtype), upper=False)


@case
def fft(dtype):
    torch.fft.rfft2(make(16, 512, 512, dtype=dtype))


@case
def einsum(dtype):
    torch.einsum("bihd,bjhd->bhij", make(4, 512, 8, 64, dtype=dtype), make(4, 512, 8, 64, dtype=dtype))


@case
def adamw(dtype):
    layer = nn.Linear(2048, 2048, device="tpu", dtype=dtype)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    for how in ("fused", "foreach"):
        torch.optim.AdamW(layer.parameters(), **{how: True}).step()


@case
def clip_grad_norm(dtype):
    layer = nn.Linear(2048, 2048, device="tpu", dtype=dtype)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
