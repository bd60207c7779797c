"""Attention and batched products where XLA:CPU calls kernels of the host."""

import pytest
import torch
import torch.nn.functional as F

from gradients import check_gradients, to_tpu
from helpers import check

sdpa = F.scaled_dot_product_attention
TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 5e-5},
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
    torch.float16: {"rtol": 4e-3, "atol": 4e-3},
}


def make(*sizes, dtype=torch.float32):
    return torch.randn(sizes, dtype=dtype)


def check_attention(q, k, v, **options):
    tolerance = TOLERANCES[q.dtype]
    check_gradients(lambda *x: sdpa(*x, enable_gqa=q.shape[1] != k.shape[1], **options), q, k, v, **tolerance)


# ---- attention ----
@pytest.mark.parametrize(
    "heads, key_heads, queries, keys, width, causal",
    [
        (2, 2, 1, 1, 1, True),
        (3, 3, 1, 200, 32, False),  # decoding
        (4, 2, 2, 77, 20, False),
        (2, 2, 128, 128, 32, True),  # blocks as they come
        (2, 1, 129, 150, 33, True),  # and one more
        (1, 1, 200, 31, 64, True),
        (6, 2, 25, 24, 16, False),
        (2, 2, 31, 300, 7, True),
    ],
)
def test_sizes(heads, key_heads, queries, keys, width, causal):
    torch.manual_seed(queries)
    check_attention(
        make(2, heads, queries, width), make(2, key_heads, keys, width), make(2, key_heads, keys, width),
        is_causal=causal,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_half_types(dtype, causal):
    torch.manual_seed(1)
    check_attention(*(make(2, 2, 40, 16, dtype=dtype) for _ in range(3)), is_causal=causal)


def test_parts_of_one_tensor():
    """As most models have them: nothing is copied, and the gradients land in one tensor again."""
    torch.manual_seed(2)

    def run(x):
        q, k, v = x.permute(2, 0, 3, 1, 4)
        return sdpa(q, k, v, is_causal=True)

    check_gradients(run, make(2, 33, 3, 4, 16), **TOLERANCES[torch.float32])
    # Of a longer one, from an element that changes without a new program.
    whole, target = make(5, 2, 3, 30, 8), make(2, 3, 30, 8)
    on_tpu, compiles = whole.to("tpu"), []
    for i in range(3):
        expected = sdpa(whole[i], whole[i + 1], whole[i + 2]) - target
        torch.testing.assert_close((sdpa(*on_tpu[i : i + 3]) - target.to("tpu")).cpu(), expected, rtol=1e-4, atol=5e-5)
        compiles.append(torch.tpu.compile_count())
    assert compiles[1] == compiles[2]


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (3, 0, 1, 2), (1, 0, 3, 2)])
def test_layouts(order):
    torch.manual_seed(3)
    sizes = (2, 3, 20, 16)
    back = [order.index(i) for i in range(4)]
    q, k, v = (make(*(sizes[i] for i in order)).permute(back) for _ in range(3))
    check_gradients(lambda *x: sdpa(*x), q, k, v, strides=False, **TOLERANCES[torch.float32])


def test_expanded_operands_and_masks():
    torch.manual_seed(4)
    q, k = make(2, 3, 20, 16), make(2, 1, 25, 16)
    mask = torch.rand(2, 1, 20, 25) > 0.2
    bias = make(1, 3, 1, 25)
    for given in (mask, mask[:, :, ::2].repeat_interleave(2, 2), bias, bias.expand(2, 3, 20, 25)):

        def run(q, k, v, given=given):
            return sdpa(q, k.expand(2, 3, 25, 16), v.expand(2, 3, 25, 16), attn_mask=given.to(q.device), scale=0.3)

        check_gradients(run, q, k, k + 1, **TOLERANCES[torch.float32])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_not_finite(at, value):
    torch.manual_seed(5)
    tensors = [make(2, 2, 40, 16) for _ in range(3)]
    tensors[at][1, 0, 17, 3] = value
    check_gradients(lambda *x: sdpa(*x, is_causal=True), *tensors, **TOLERANCES[torch.float32])


def test_rows_with_nothing_to_attend_to():
    torch.manual_seed(6)
    mask = torch.rand(40, 50) > 0.5
    mask[3] = mask[17] = False
    tensors = [make(2, 2, 40, 16), make(2, 2, 50, 16), make(2, 2, 50, 16)]
    check_gradients(lambda *x: sdpa(*x, attn_mask=mask.to(x[0].device)), *tensors, **TOLERANCES[torch.float32])
    assert not sdpa(*map(to_tpu, tensors), attn_mask=mask.to("tpu"))[:, :, [3, 17]].any()


@pytest.mark.parametrize("sizes", [(0, 2, 4, 8), (2, 2, 0, 8)])
def test_no_elements(sizes):
    q = make(*sizes)
    check_gradients(lambda q, k, v: sdpa(q, k, v), q, q, q)


def test_some_gradients():
    torch.manual_seed(7)
    for wanted in ([0], [1], [2], [0, 2]):
        tensors = [make(2, 2, 20, 8) for _ in range(3)]
        results = []
        for device in ("cpu", "tpu"):
            x = [t.detach().to(device).requires_grad_(i in wanted) for i, t in enumerate(tensors)]
            (sdpa(*x, is_causal=True) ** 2).sum().backward()
            results.append([x[i].grad.cpu() for i in wanted])
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_the_same_every_time():
    torch.manual_seed(8)
    q, k, v = (make(4, 6, 128, 32).to("tpu").requires_grad_() for _ in range(3))
    g = make(4, 6, 128, 32).to("tpu")
    first = None
    for _ in range(5):
        out = sdpa(q, k, v, is_causal=True)
        now = [x.cpu() for x in (out.detach(), *torch.autograd.grad(out, (q, k, v), g))]
        assert first is None or all(map(torch.equal, now, first))
        first = now


# ---- products ----
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "batch, rows, depth, columns", [(3, 17, 33, 40), (2, 1, 64, 100), (5, 40, 300, 1), (2, 4, 1, 4)]
)
def test_products(batch, rows, depth, columns, dtype):
    torch.manual_seed(9)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 1e-1}
    x, y = make(batch, rows, depth, dtype=dtype), make(batch, depth, columns, dtype=dtype)
    check_gradients(torch.bmm, x, y, **tolerance)
    turned = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (x, y)]
    check_gradients(torch.bmm, *turned, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows, depth, columns", [(17, 33, 40), (1, 64, 100), (40, 300, 1), (4, 1, 4), (300, 260, 129)])
def test_small_products_of_matrices(rows, depth, columns, dtype):
    torch.manual_seed(11)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 3e-1}
    x, y, bias = make(rows, depth, dtype=dtype), make(depth, columns, dtype=dtype), make(columns, dtype=dtype)
    check_gradients(torch.mm, x, y, **tolerance)
    check_gradients(torch.addmm, bias, x, y, **tolerance)
    check_gradients(torch.mm, *(t.t().contiguous().t() for t in (x, y)), **tolerance)
    check(lambda c, x, y: torch.addmm(c, x, y, beta=2, alpha=0.5), make(rows, columns, dtype=dtype), x, y, **tolerance)


def test_products_of_parts_of_matrices():
    torch.manual_seed(12)
    x, y = make(30, 3, 20), make(20, 50)
    check(lambda x, y: x[::2, 1] @ y[:, 3:40:2], x, y, rtol=1e-4, atol=1e-4)
    check(lambda x, y: x[:, 1] @ y[:, :1].expand(20, 7), x, y, rtol=1e-4, atol=1e-4)
    x[1, 1, 3] = float("inf")
    y[3] = float("nan")
    check(lambda x, y: x[:, 1] @ y, x, y, rtol=1e-4, atol=1e-4)
    check(torch.mm, make(3, 0), make(0, 4))
    check(torch.addmm, make(3, 4), make(3, 0), make(0, 4))
    check(torch.mm, make(0, 3), make(3, 4))


def test_products_of_views():
    torch.manual_seed(10)
    x, y = make(4, 30, 3, 20), make(7, 20, 25)
    check(lambda x, y: x[:, ::2, 1] @ y[2:6, :, 3:20], x, y, rtol=1e-4, atol=1e-4)
    check(lambda x, y: x[:, :, 1] @ y[:1].expand(4, 20, 25), x, y, rtol=1e-4, atol=1e-4)
    check(lambda x, y: torch.baddbmm(y[:4, :1, :17], x[:, :, 2], y[1:5, :, 8:], beta=2, alpha=0.5), x, y, rtol=1e-4,
          atol=1e-4)  # fmt: skip
    x[1, 2, 1, 3] = float("inf")
    y[3] = float("nan")
    check(lambda x, y: x[:, :, 1] @ y[:4], x, y, rtol=1e-4, atol=1e-4)
    check(torch.bmm, make(2, 3, 0), make(2, 0, 4))
    check(torch.bmm, make(0, 3, 2), make(0, 2, 4))


# ---- with and without ----
PROGRAM = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
x = torch.randn(2, 40, 3, 2, 16).to("tpu").requires_grad_()
q, k, v = x.permute(2, 0, 3, 1, 4)
y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
(y @ y.transpose(-2, -1)).pow(2).sum().backward()
print(torch.tpu.fallback_ops(), x.grad.double().abs().sum().item(), torch.tpu.compile_count())
"""


@pytest.fixture
def run_program(run_python, tmp_path):
    """What PROGRAM found, and how often a kernel was called for in what was compiled."""

    def run(**settings):
        done = run_python(PROGRAM, TORCH_TPU_CACHE=1, TORCH_TPU_CACHE_DIR=tmp_path, TORCH_TPU_LOG="debug", **settings)
        fallbacks, total, compiles = done.stdout.split()
        assert fallbacks == "{}"
        return float(total), int(compiles), done.stderr.count("custom_call @torchtpu.")

    return run


def test_with_and_without(run_program):
    total, compiles, calls = run_program()
    assert calls > 2 and compiles > 0
    # Another process takes the programs from the disk, and they find the kernels.
    again, compiles, _ = run_program()
    assert again == total and compiles == 0
    # Without them the same comes of XLA's own operations, which are other programs.
    plain, compiles, calls = run_program(TORCH_TPU_HOST_KERNELS=0)
    assert calls == 0 and compiles > 0
    assert plain == pytest.approx(total, rel=1e-4)
