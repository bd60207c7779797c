"""How random numbers are distributed: Kolmogorov and Smirnov's test of the continuous ones, Pearson's of the discrete
ones, at fixed seeds. A right generator fails the bound once in ten thousand seeds; a wrong one at nearly every seed.
"""

import itertools
import math

import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F

COUNT = 60_000
BOUND = 1e-4
WIDE = [torch.float32, torch.float64]
FLOATS = [*WIDE, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(20_240)
    with torch.tpu.cpu_fallback("error"):
        yield


def empty(dtype=torch.float32, count=COUNT):
    return torch.empty(count, dtype=dtype, device="tpu")


def full(value, dtype=torch.float32, count=COUNT):
    return torch.full((count,), value, dtype=dtype, device="tpu")


def ks_p(sample, cdf, slack=0.0):
    """The probability of as large a distance between sample and distribution; `slack`: what rounding adds to it."""
    x = sample.detach().double().cpu().flatten().sort().values
    assert torch.isfinite(x).all()
    n, f = x.numel(), cdf(x)
    ranks = torch.arange(n + 1, dtype=torch.float64) / n
    distance = max((ranks[1:] - f).max().item(), (f - ranks[:-1]).max().item()) - slack
    t = max(distance, 0) * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    return min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * t) ** 2) for k in range(1, 101))) if t > 0.2 else 1.0


def chi_square_p(sample, probabilities):
    """Of whole numbers 0, 1, ...; cells that expect fewer than five are put together."""
    p = torch.as_tensor(probabilities, dtype=torch.float64)
    assert abs(p.sum() - 1) < 1e-9
    counts = torch.bincount(sample.flatten().long().cpu(), minlength=p.numel()).double()
    assert counts.numel() == p.numel(), "a number that can't be"
    expected = p * counts.sum()
    assert counts[expected == 0].sum() == 0
    rare = expected < 5
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    kept = expected > 0
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = torch.tensor(kept.sum().item() - 1, dtype=torch.float64)
    return torch.special.gammaincc(freedom / 2, statistic / 2).item()


def normal_cdf(mean, std):
    return lambda x: torch.special.ndtr((x - mean) / std)


def gamma_cdf(alpha):
    return lambda x: torch.special.gammainc(torch.tensor(alpha, dtype=torch.float64), x)


CONTINUOUS = {
    "uniform": (lambda t: t.uniform_(-2, 3), lambda x: (x + 2) / 5),
    "normal": (lambda t: t.normal_(1, 2), normal_cdf(1, 2)),
    "exponential": (lambda t: t.exponential_(0.5), lambda x: -torch.expm1(-0.5 * x)),
    "log_normal": (lambda t: t.log_normal_(0.5, 0.3), lambda x: normal_cdf(0.5, 0.3)(x.log())),
    "cauchy": (lambda t: t.cauchy_(1, 0.02), lambda x: 0.5 + torch.atan((x - 1) / 0.02) / math.pi),
}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_continuous(name, dtype):
    draw, cdf = CONTINUOUS[name]
    sample = draw(empty(dtype))
    if name == "cauchy":  # whose density near its centre is steep against the steps of a small type
        if dtype in (torch.float16, torch.bfloat16):
            sample, cdf = empty(dtype).cauchy_(0, 0.5), lambda x: 0.5 + torch.atan(x / 0.5) / math.pi
        sample = sample.clamp(-30_000, 30_000)
    assert ks_p(sample, cdf, slack=4 * torch.finfo(dtype).eps) > BOUND


@pytest.mark.parametrize("alpha", [0.1, 0.8, 1.0, 2.5, 40.0, 3000.0, 1e6])
@pytest.mark.parametrize("dtype", WIDE)
def test_gamma(alpha, dtype):
    sample = torch._standard_gamma(full(alpha, dtype))
    slack = 4 * torch.finfo(dtype).eps * max(1, math.sqrt(alpha)) + torch.finfo(dtype).tiny ** alpha
    cdf = gamma_cdf(alpha) if alpha < 1e5 else normal_of_gamma(alpha)
    assert ks_p(sample, cdf, slack) > BOUND
    assert sample.min() > 0


def normal_of_gamma(alpha):  # Wilson and Hilferty: the cube root is all but normal
    return lambda x: normal_cdf(1 - 1 / (9 * alpha), math.sqrt(1 / (9 * alpha)))((x / alpha) ** (1 / 3))


@pytest.mark.parametrize("dtype", WIDE)
def test_beta_and_dirichlet(dtype):
    x = D.Beta(full(2.0, dtype), full(3.0, dtype)).sample()
    assert ks_p(x, lambda x: x**2 * (6 - 8 * x + 3 * x**2), 1e-6) > BOUND
    x = D.Beta(full(0.5, dtype), full(0.5, dtype)).sample()
    assert ks_p(x, lambda x: 2 / math.pi * torch.asin(x.sqrt()), 1e-3) > BOUND
    x = torch._sample_dirichlet(torch.tensor([1.0, 0.5, 1.5], dtype=dtype, device="tpu").expand(COUNT, 3))
    torch.testing.assert_close(x.sum(1).cpu(), torch.ones(COUNT, dtype=dtype))
    assert ks_p(x[:, 0], lambda x: 1 - (1 - x) ** 2, 1e-6) > BOUND  # Beta(1, 2)
    tiny = torch._sample_dirichlet(full(1e-3, dtype, 3 * COUNT).view(COUNT, 3))  # one of them takes all
    assert chi_square_p(tiny.argmax(1), [1 / 3] * 3) > BOUND


def poisson_probabilities(rate, most):
    k = torch.arange(most, dtype=torch.float64)
    p = torch.exp(k * math.log(rate) - rate - torch.lgamma(k + 1))
    return torch.cat([p, (1 - p.sum()).clamp(min=0)[None]])


@pytest.mark.parametrize(
    ("dtype", "rate"),  # bfloat16 holds whole numbers up to 256
    [*itertools.product(WIDE, [0.01, 9.5, 10.0, 30.0, 900.0]), (torch.bfloat16, 1.0), (torch.bfloat16, 20.0)],
)
def test_poisson(dtype, rate):
    rate = torch.tensor(rate, dtype=dtype).item()
    most = int(rate + 12 * math.sqrt(rate) + 12)
    sample = torch.poisson(full(rate, dtype)).clamp(max=most)
    assert chi_square_p(sample, poisson_probabilities(rate, most)) > BOUND


@pytest.mark.parametrize("dtype", WIDE)
def test_poisson_of_a_large_rate(dtype):
    sample = torch.poisson(full(4e6, dtype))
    assert ks_p(sample, normal_cdf(4e6 - 0.5, 2e3), 1e-3) > BOUND
    rates = torch.tensor([0.0, 3.0, 50.0], dtype=dtype, device="tpu").expand(COUNT, 3)
    means = torch.poisson(rates).mean(0).cpu()
    assert means[0] == 0 and abs(means[1] - 3) < 0.03 and abs(means[2] - 50) < 0.15


@pytest.mark.parametrize("dtype", WIDE)
def test_binomial(dtype):
    counts, ps = torch.tensor([1, 7, 60, 900], dtype=dtype), torch.tensor([0.004, 0.3, 0.5, 0.93], dtype=dtype)
    samples = torch.binomial(counts[:, None, None].to("tpu").expand(4, 4, COUNT // 2), ps[:, None].to("tpu")).cpu()
    for (i, count), (j, p) in itertools.product(enumerate(counts.int().tolist()), enumerate(ps.double())):
        k = torch.arange(count + 1, dtype=torch.float64)
        choose = math.lgamma(count + 1) - torch.lgamma(k + 1) - torch.lgamma(count - k + 1)
        expected = torch.exp(choose + k * p.log() + (count - k) * torch.log1p(-p))
        assert chi_square_p(samples[i, j], expected / expected.sum()) > BOUND, (count, p)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16])
def test_randint(dtype):
    for high in (2, 7, 100, 128):
        sample = torch.randint(0, high, (COUNT,), dtype=dtype, device="tpu")
        assert chi_square_p(sample, [1 / high] * high) > BOUND, high


@pytest.mark.parametrize("high", [2**16 + 1, 3 * 2**30, 2**32 - 1, 2**32, 2**40, 3 * 2**50])
def test_randint_of_wide_ranges(high):
    sample = torch.randint(0, high, (COUNT,), device="tpu").cpu()
    assert sample.min() >= 0 and sample.max() < high
    assert ks_p(sample, lambda x: x / high, 1 / high) > BOUND
    assert chi_square_p((sample.double() * (96 / high)).long().clamp(max=95), [1 / 96] * 96) > BOUND
    low_bits = [1 / 64] * 64 if high % 64 == 0 else [(high // 64 + (i < high % 64)) / high for i in range(64)]
    assert chi_square_p(sample % 64, low_bits) > BOUND


def test_bernoulli_and_geometric():
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
        assert chi_square_p(empty(dtype).bernoulli_(0.3), [0.7, 0.3]) > BOUND
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        p = torch.tensor(0.2, dtype=dtype).item()
        assert chi_square_p(torch.bernoulli(full(p, dtype)), [1 - p, p]) > BOUND
        assert chi_square_p(empty().bernoulli_(full(p, dtype)), [1 - p, p]) > BOUND
    p = [0] + [0.4 * 0.6**k for k in range(40)]
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        assert chi_square_p(empty(dtype).geometric_(0.4).clamp(max=41), [*p, 1 - sum(p)]) > BOUND


def test_multinomial():
    weights = [1.0, 0.0, 3.0, 2.0, 4.0]
    p = [w / 10 for w in weights]
    w = torch.tensor(weights, device="tpu")
    assert chi_square_p(torch.multinomial(w, COUNT, replacement=True), p) > BOUND
    assert chi_square_p(torch.multinomial(w.half().expand(COUNT, 5), 1), p) > BOUND
    pairs = torch.multinomial(w.expand(COUNT, 5), 2)
    expected = [p[i] * p[j] / (1 - p[i]) if i != j else 0.0 for i, j in itertools.product(range(5), repeat=2)]
    assert chi_square_p(pairs[:, 0] * 5 + pairs[:, 1], expected) > BOUND
    drawn = torch.multinomial(w.double().expand(COUNT // 10, 5), 10, replacement=True)
    assert chi_square_p(drawn, p) > BOUND


def test_randperm_and_dropout():
    orders = torch.stack([torch.randperm(4, device="tpu") for _ in range(1_000)]).cpu()
    code = (orders * torch.tensor([64, 16, 4, 1])).sum(1)
    of = {a * 64 + b * 16 + c * 4 + d: i for i, (a, b, c, d) in enumerate(itertools.permutations(range(4)))}
    assert chi_square_p(torch.tensor([of[c] for c in code.tolist()]), [1 / 24] * 24) > BOUND
    where = torch.randperm(COUNT, device="tpu")
    assert ks_p(where[: COUNT // 4], lambda x: x / COUNT, 1e-5) > BOUND
    for dtype in (torch.float32, torch.bfloat16):
        kept = F.dropout(full(1.0, dtype), 0.3) != 0
        assert chi_square_p(kept, [0.3, 0.7]) > BOUND
        assert chi_square_p(kept[::2] * 2 + kept[1::2], [0.09, 0.21, 0.21, 0.49]) > BOUND


DRAWS = {
    "uniform": (lambda: empty().uniform_(), lambda x: x),
    "uniform half": (lambda: empty(torch.float16).uniform_(), lambda x: x),
    "normal": (lambda: empty().normal_(), normal_cdf(0, 1)),
    "exponential": (lambda: empty().exponential_(), lambda x: -torch.expm1(-x)),
    "gamma": (lambda: torch._standard_gamma(full(2.5)), gamma_cdf(2.5)),
    "randint": (lambda: torch.randint(2**40, (COUNT,), device="tpu"), lambda x: x / 2**40),
}


@pytest.mark.parametrize("name", DRAWS)
def test_calls_and_neighbours_are_independent(name):
    """Pairs fall evenly into a table of cells: of two calls, and of elements at several distances in one call."""
    draw, cdf = DRAWS[name]
    first, second = (cdf(draw().double().cpu()).mul(8).long().clamp(max=7) for _ in range(2))
    assert chi_square_p(first * 8 + second, [1 / 64] * 64) > BOUND
    for lag in (1, 2, 4, 1024, COUNT // 2):
        pairs = (first[lag:] * 8 + first[:-lag])[:: lag + 1 if lag < 8 else 1]
        assert chi_square_p(pairs, [1 / 64] * 64) > BOUND, lag


def test_modes_and_what_surrounds_a_call_change_no_number():
    def draw():
        torch.manual_seed(5)
        x = torch.rand(9, device="tpu")
        return [
            x,
            torch.poisson(x * 30),
            torch._standard_gamma(x),
            torch.binomial(x.round() * 40, x),
            torch.rand_like(x),
        ]

    torch.tpu.set_eager_mode("strict")
    strict = [t.cpu() for t in draw()]
    torch.tpu.set_eager_mode("debug")
    debug = [t.cpu() for t in draw()]
    torch.tpu.set_eager_mode("strict")
    torch.manual_seed(5)
    x = torch.rand(9, device="tpu").cpu()  # waits after each
    torch.tpu.synchronize()
    y = torch.poisson(x.to("tpu") * 30).cpu()
    for a, b in zip(strict, debug):
        assert torch.equal(a, b)
    assert torch.equal(x, strict[0]) and torch.equal(y, strict[1])


def test_offset_depends_on_the_operator_and_its_size_alone():
    """However often a rejection loop goes round."""

    def offset(values):
        torch.manual_seed(1)
        torch.poisson(values)
        torch._standard_gamma(values)
        torch.binomial(values, values * 0 + 0.5)
        return torch.rand(3, device="tpu").cpu()

    assert torch.equal(offset(full(0.1, count=500)), offset(full(400.0, count=500)))
