"""Random operators: what they return, that it is distributed as it should be, and what a seed fixes."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

COUNT = 40_000
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1234)


def empty(dtype=torch.float32, count=COUNT):
    return torch.empty(count, dtype=dtype, device="tpu")


def assert_distributed(sample, cdf, steps=0.0):
    """Kolmogorov and Smirnov's distance; `steps`: how far the type's rounding moves the distribution function."""
    x = sample.double().cpu().sort().values
    assert torch.isfinite(x).all()
    expected = cdf(x)
    ranks = torch.arange(1, x.numel() + 1, dtype=torch.float64) / x.numel()
    distance = torch.maximum((ranks - expected).abs(), (expected - ranks + 1 / x.numel()).abs()).max()
    assert distance < 1.9 / math.sqrt(x.numel()) + steps, distance


def normal_cdf(mean, std):
    return lambda x: torch.special.ndtr((x - mean) / std)


@pytest.mark.parametrize("dtype", FLOATS)
def test_continuous(dtype):
    steps = torch.finfo(dtype).eps
    uniform = empty(dtype).uniform_(-2, 3)
    assert uniform.min() >= -2 and uniform.max() < 3
    assert_distributed(uniform, lambda x: (x + 2) / 5, steps)
    assert_distributed(empty(dtype).normal_(1, 2), normal_cdf(1, 2), 4 * steps)
    assert_distributed(empty(dtype).exponential_(0.5), lambda x: 1 - torch.exp(-0.5 * x), 4 * steps)
    assert_distributed(empty(dtype).log_normal_(0.5, 0.3), lambda x: normal_cdf(0.5, 0.3)(x.log()), 8 * steps)
    if dtype is not torch.float16:  # whose range the tails leave
        cauchy = empty(dtype).cauchy_(1, 2)
        assert_distributed(cauchy, lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi, 4 * steps)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_keeps_the_open_end(dtype):
    x = empty(dtype, 1_000_000).uniform_()
    assert x.min() >= 0 and x.max() < 1
    assert empty(dtype).exponential_().min() > 0


def test_complex():
    z = torch.randn(COUNT, dtype=torch.complex64, device="tpu")
    for part in (z.real, z.imag):
        assert_distributed(part, normal_cdf(0, math.sqrt(0.5)))
    assert abs((z.real * z.imag).mean().item()) < 0.02
    assert_distributed(torch.rand(COUNT, dtype=torch.complex64, device="tpu").imag, lambda x: x)


def test_normal_of_tensors():
    mean, std = torch.tensor([[-5.0], [5.0]], device="tpu"), torch.full((1, COUNT), 3.0, device="tpu")
    for sample in (torch.normal(mean.expand(2, COUNT), 3.0), torch.normal(mean, std)):
        assert sample.shape == (2, COUNT)
        assert_distributed(sample[0], normal_cdf(-5, 3))
        assert_distributed(sample[1], normal_cdf(5, 3))
    assert_distributed(torch.normal(7.0, std)[0], normal_cdf(7, 3))
    assert_distributed(torch.normal(1.0, 2.0, (COUNT,), device="tpu"), normal_cdf(1, 2))


def assert_frequencies(sample, probabilities):
    """Counts within five standard deviations."""
    counts = torch.bincount(sample.flatten().long().cpu(), minlength=len(probabilities)).double()
    n, p = sample.numel(), torch.tensor(probabilities, dtype=torch.float64)
    assert counts.numel() == p.numel()
    assert ((counts - n * p).abs() <= 5 * (n * p * (1 - p)).sqrt()).all(), counts


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8, torch.float32, torch.bfloat16])
def test_whole_numbers(dtype):
    assert_frequencies(torch.randint(0, 7, (COUNT,), dtype=dtype, device="tpu"), [1 / 7] * 7)
    assert_frequencies(empty(dtype).random_(3, 6), [0, 0, 0] + [1 / 3] * 3)
    assert_frequencies(empty(dtype).random_(5), [0.2] * 5)
    p = [0] + [0.4 * 0.6**k for k in range(40)]
    assert_frequencies(empty(dtype).geometric_(0.4).clamp(max=40), [*p[:-1], 1 - sum(p[:-1])])


@pytest.mark.parametrize(
    ("dtype", "most"),
    [(torch.int64, 2**63), (torch.int32, 2**31), (torch.uint8, 256), (torch.bool, 2), (torch.float32, 2**24)],
)
def test_the_whole_range(dtype, most):
    x = empty(dtype).random_().cpu().double()
    assert x.min() >= 0 and x.max() <= most
    assert abs(x.mean() / most - 0.5) < 0.01 or most < 300
    if dtype is torch.int64:
        wide = empty(dtype).random_(-(2**63), None).cpu().double()
        assert abs(wide.mean()) / 2**63 < 0.02 and wide.min() < -(2**62) and wide.max() > 2**62


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.float16])
def test_bernoulli(dtype):
    assert_frequencies(empty(dtype).bernoulli_(0.3), [0.7, 0.3])
    p = torch.tensor([0.0, 0.25, 1.0], device="tpu").expand(COUNT, 3)
    x = torch.empty(COUNT, 3, dtype=dtype, device="tpu").bernoulli_(p).double().mean(0).cpu()
    assert x[0] == 0 and x[2] == 1 and abs(x[1] - 0.25) < 0.02
    assert torch.bernoulli(p[0]).dtype == torch.float32


def test_randperm():
    for n in (0, 1, 5, 1000):
        assert torch.equal(torch.randperm(n, device="tpu").cpu().sort().values, torch.arange(n))
    assert torch.randperm(6, dtype=torch.int32, device="tpu").dtype == torch.int32
    firsts = torch.stack([torch.randperm(4, device="tpu") for _ in range(2000)]).cpu()
    for column in firsts.unbind(1):
        assert_frequencies(column, [0.25] * 4)


def test_multinomial():
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 6.0, 0.0], device="tpu")
    p = [0, 0.1, 0.3, 0, 0.6, 0]
    assert_frequencies(torch.multinomial(weights, COUNT, replacement=True), p)
    rows = weights.expand(2000, 6)
    one = torch.multinomial(rows, 1)
    assert one.shape == (2000, 1) and one.dtype == torch.int64
    assert_frequencies(one, p)
    three = torch.multinomial(rows, 3)
    assert torch.equal(three.sort(1).values.cpu(), torch.tensor([1, 2, 4]).expand(2000, 3))
    assert_frequencies(three[:, 0], p)
    assert torch.multinomial(weights.half(), 2).shape == (2,)


def test_a_seed_fixes_everything():
    def draw(generator=None):
        x = torch.rand(5, 7, device="tpu", generator=generator)
        y = torch.empty(9, device="tpu").normal_(generator=generator)
        return [x, y, torch.randperm(10, device="tpu", generator=generator), torch.bernoulli(x, generator=generator)]

    torch.manual_seed(7)
    first, second = draw(), draw()
    torch.manual_seed(7)
    again = draw()
    mine = draw(torch.Generator("tpu").manual_seed(7))
    for a, b, c, d in zip(first, second, again, mine):
        assert torch.equal(a, c) and torch.equal(a, d)
        assert not torch.equal(a, b)


def test_draws_do_not_overlap():
    whole = torch.cat([torch.rand(1000, device="tpu") for _ in range(20)]).cpu()
    assert whole.unique().numel() > 19_900
    lagged = [(whole[k:] - 0.5).mul(whole[:-k] - 0.5).mean().item() for k in (1, 2, 999, 1000, 1001)]
    assert max(map(abs, lagged)) < 0.004


def test_loops_compile_nothing_new():
    def step(number):
        x = torch.rand(6, device="tpu").uniform_(0, number)
        x.normal_(number, number).exponential_(number).bernoulli_(number / 10)
        return F.dropout(x, number / 10) + torch.randint(5, (6,), device="tpu")

    step(1.5)
    before = torch.tpu.compile_count()
    for i in range(3):
        step(2.0 + i)
    assert torch.tpu.compile_count() == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout(dtype):
    x = torch.full((COUNT,), 3.0, dtype=dtype, device="tpu", requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert_frequencies((y != 0).float(), [0.25, 0.75])
    torch.testing.assert_close(y.detach(), x.grad * 3, rtol=1e-2, atol=0)  # the same mask, the same scale
    torch.testing.assert_close(y.max().item(), 4.0, rtol=1e-2, atol=0)
    assert torch.equal(F.dropout(x, 0.0), x) and F.dropout(x, 1.0).abs().sum() == 0
    assert torch.equal(F.dropout(x, 0.5, training=False), x)
    assert not torch.equal(F.dropout(x, 0.5), F.dropout(x, 0.5))
    layer = nn.Dropout2d(0.5)
    assert set(layer(torch.ones(20, 10, 3, 3, device="tpu")).flatten(2).sum(2).flatten().tolist()) == {0.0, 18.0}


def test_rrelu():
    x = torch.full((COUNT,), -1.0, device="tpu", requires_grad=True)
    y = F.rrelu(x, 0.1, 0.3, training=True)
    assert_distributed(-y.detach(), lambda t: (t - 0.1) / 0.2, 1e-6)
    y.sum().backward()
    torch.testing.assert_close(x.grad, -y.detach())
    torch.testing.assert_close(F.rrelu(x, 0.1, 0.3), x * 0.2)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x.uniform_(2, 1), "uniform_ expects to return a [from, to) range"),
        (lambda x: x.normal_(0, -1), "normal expects std >= 0.0"),
        (lambda x: x.bernoulli_(1.5), "bernoulli_ expects p to be in [0, 1]"),
        (lambda x: x.exponential_(0), "exponential_ expects lambda > 0.0"),
        (lambda x: x.geometric_(1), "geometric_ expects p to be in (0, 1)"),
        (lambda x: x.char().random_(0, 300), "to - 1 is out of bounds for signed char"),
        (lambda x: x.random_(5, 5), "random_ expects 'from' to be less than 'to', but got from=5 >= to=5"),
        (lambda x: x.int().uniform_(), "\"check_uniform_bounds\" not implemented for 'Int'"),
        (lambda x: torch.multinomial(x, 9), "cannot sample n_sample > prob_dist.size(-1) samples without replacement"),
        (lambda x: torch.multinomial(x.long(), 1), "multinomial only supports floating-point dtypes for input"),
        (lambda x: torch.multinomial(-x, 1), "probability tensor contains either `inf`, `nan` or element < 0"),
        (lambda x: torch.multinomial(x * 0, 1), "invalid multinomial distribution (sum of probabilities <= 0)"),
    ],
)
def test_errors(function, words):
    for device in ("cpu", "tpu"):
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            function(torch.ones(3, device=device))
            torch.tpu.synchronize()  # what depends on values is told here
        assert words in str(caught.value)
