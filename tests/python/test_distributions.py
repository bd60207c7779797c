"""torch.distributions on the device: samples, densities and what else they offer, without a host copy."""

import math

import pytest
import torch
import torch.distributions as D

COUNT = 5_000


@pytest.fixture(autouse=True)
def _on_the_device_alone():
    torch.manual_seed(11)
    with torch.tpu.cpu_fallback("error"):
        yield


def make(device):
    def t(*values):
        return torch.tensor(*values, device=device)

    tril = t([[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [0.1, 0.2, 1.0]])
    positive, location, p = t([0.3, 1.0, 4.5]), t([-1.0, 0.0, 2.0]), t([0.2, 0.5, 0.7])
    steps = [D.ExpTransform(), D.AffineTransform(t(1.0), t(2.0))]
    return {
        "bernoulli": lambda: D.Bernoulli(logits=location),
        "beta": lambda: D.Beta(positive, positive.flip(0)),
        "binomial": lambda: D.Binomial(t([3.0, 10.0, 40.0]), p),
        "categorical": lambda: D.Categorical(logits=tril),
        "cauchy": lambda: D.Cauchy(location, positive),
        "chi2": lambda: D.Chi2(positive),
        "continuous bernoulli": lambda: D.ContinuousBernoulli(p),
        "dirichlet": lambda: D.Dirichlet(positive),
        "exponential": lambda: D.Exponential(positive),
        "fisher snedecor": lambda: D.FisherSnedecor(positive + 5, positive + 9),
        "gamma": lambda: D.Gamma(positive, positive),
        "generalized pareto": lambda: D.GeneralizedPareto(location, positive, p * 0.3),
        "geometric": lambda: D.Geometric(p),
        "gumbel": lambda: D.Gumbel(location, positive),
        "half cauchy": lambda: D.HalfCauchy(positive),
        "half normal": lambda: D.HalfNormal(positive),
        "independent": lambda: D.Independent(D.Normal(location, positive), 1),
        "inverse gamma": lambda: D.InverseGamma(positive + 3, positive),
        "kumaraswamy": lambda: D.Kumaraswamy(positive, positive),
        "laplace": lambda: D.Laplace(location, positive),
        "lkj": lambda: D.LKJCholesky(3, t(1.5)),
        "log normal": lambda: D.LogNormal(location, positive * 0.1),
        "low rank normal": lambda: D.LowRankMultivariateNormal(location, tril[:, :2], positive),
        "mixture": lambda: D.MixtureSameFamily(D.Categorical(p), D.Normal(location, positive)),
        "multinomial": lambda: D.Multinomial(7, p),
        "multivariate normal": lambda: D.MultivariateNormal(location, tril @ tril.T),
        "negative binomial": lambda: D.NegativeBinomial(t([3.0, 5.0, 9.0]), p),
        "normal": lambda: D.Normal(location, positive),
        "one hot": lambda: D.OneHotCategoricalStraightThrough(p),
        "pareto": lambda: D.Pareto(positive, positive + 4),
        "poisson": lambda: D.Poisson(positive * 5),
        "relaxed bernoulli": lambda: D.RelaxedBernoulli(t(0.7), p),
        "relaxed one hot": lambda: D.RelaxedOneHotCategorical(t(0.7), p),
        "student": lambda: D.StudentT(positive + 3, location, positive),
        "transformed": lambda: D.TransformedDistribution(D.Normal(location, positive * 0.1), steps),
        "uniform": lambda: D.Uniform(location, location + positive),
        "von mises": lambda: D.VonMises(location, positive),
        "weibull": lambda: D.Weibull(positive + 1, positive),
    }


NAMES = list(make("cpu"))
NO_MEAN = ("cauchy", "half cauchy", "student", "lkj")


def value_or_error(function):
    try:
        return function()
    except (NotImplementedError, RuntimeError, ValueError, AttributeError) as error:
        return type(error)


def assert_equal(actual, expected, what):
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, rtol=1e-4, atol=1e-5, msg=lambda m: what + m)
    else:
        assert actual == expected, what


@pytest.mark.parametrize("name", NAMES)
def test_distribution(name):
    on_cpu, on_tpu = make("cpu")[name](), make("tpu")[name]()
    for method in ("sample", "rsample"):
        expected = value_or_error(lambda d=on_cpu, m=method: getattr(d, m)((COUNT,)))
        actual = value_or_error(lambda d=on_tpu, m=method: getattr(d, m)((COUNT,)))
        if not isinstance(expected, torch.Tensor):
            assert actual == expected, method
            continue
        assert (actual.shape, actual.dtype, actual.device.type) == (expected.shape, expected.dtype, "tpu")
        if name not in NO_MEAN:
            a, e = actual.double().cpu(), expected.double()
            error = 7 * e.std(0) / math.sqrt(COUNT) + 1e-6
            assert ((a.mean(0) - e.mean(0)).abs() <= error).all(), (method, a.mean(0), e.mean(0))
    x, q = on_cpu.sample((20,)), torch.rand(20, *on_cpu.batch_shape)
    for method, operand in (("log_prob", x), ("cdf", x), ("icdf", q)):
        expected = value_or_error(lambda m=method, x=operand: getattr(on_cpu, m)(x))
        assert_equal(value_or_error(lambda m=method, x=operand: getattr(on_tpu, m)(x.to("tpu"))), expected, method)
    for member in ("mean", "variance", "mode"):
        expected = value_or_error(lambda m=member: getattr(on_cpu, m))
        assert_equal(value_or_error(lambda m=member: getattr(on_tpu, m)), expected, member)
    for method in ("entropy", "enumerate_support"):
        expected = value_or_error(lambda m=method: getattr(on_cpu, m)())
        assert_equal(value_or_error(lambda m=method: getattr(on_tpu, m)()), expected, method)


@pytest.mark.parametrize(
    "names",
    [
        ("bernoulli", "bernoulli"),
        ("beta", "gamma"),
        ("beta", "uniform"),
        ("dirichlet", "dirichlet"),
        ("gamma", "gamma"),
        ("gamma", "gumbel"),
        ("multivariate normal", "low rank normal"),
        ("normal", "laplace"),
        ("poisson", "bernoulli"),
        ("uniform", "pareto"),
    ],
)
def test_divergence(names):
    results = []
    for device in ("tpu", "cpu"):
        p, q = (make(device)[name]() for name in names)
        results.append(value_or_error(lambda p=p, q=q: D.kl_divergence(p, q)))
    assert_equal(*results, "kl")


# Exact: -(dF/da) / (dF/dx) of 30 digits. The CPU's own approximation is off by 2e-3 (gamma) and 6e-3 (Dirichlet).
GAMMA = [
    (0.01, 1e-20, 4.5490816402e-17),
    (0.01, 0.3, 37.0347600478),
    (0.5, 0.02, 0.160423476262),
    (0.5, 3.0, 2.91294241644),
    (1.0, 1.0, 1.17356302722),
    (2.5, 1.2, 0.722436910552),
    (10.0, 14.0, 1.19742289777),
    (300.0, 260.0, 0.930672043412),
    (3000.0, 3100.0, 1.01654097876),
]
DIRICHLET = [
    (0.5, 0.01, 0.02, 2534.89423219),
    (0.1, 0.5, 0.8, 0.691975281324),
    (0.9, 0.5, 0.51, 4.50664414453),
    (0.3, 2.0, 5.0, 0.199298451366),
    (0.999, 1000.0, 1001.0, 0.00099949983325),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives(dtype):
    a, x, expected = torch.tensor(GAMMA, dtype=dtype).unbind(1)
    actual = torch._standard_gamma_grad(a.to("tpu"), x.to("tpu")).cpu()
    torch.testing.assert_close(actual, expected, rtol=1e-4 if dtype == torch.float32 else 1e-8, atol=0)
    x, a, total, expected = torch.tensor(DIRICHLET, dtype=dtype).unbind(1)
    actual = torch._dirichlet_grad(x.to("tpu"), a.to("tpu"), total.to("tpu")).cpu()
    torch.testing.assert_close(actual, expected, rtol=1e-4 if dtype == torch.float32 else 1e-8, atol=0)


def test_derivatives_at_the_edges():
    nan, inf = math.nan, math.inf
    a, x = torch.tensor([0.0, 1, nan, 1, inf, 1]), torch.tensor([1.0, 0, 1, nan, 1, inf])
    torch.testing.assert_close(
        torch._standard_gamma_grad(a.to("tpu"), x.to("tpu")).cpu(), torch._standard_gamma_grad(a, x), equal_nan=True
    )
    grid = torch.rand(3, 1) + 0.1, torch.rand(4) + 0.1
    torch.testing.assert_close(
        torch._standard_gamma_grad(*(g.to("tpu") for g in grid)).cpu(),
        torch._standard_gamma_grad(*grid),
        rtol=2e-3,
        atol=0,
    )
    x, one = torch.tensor([0.0, 1, nan, 0.5]), torch.ones(4)
    torch.testing.assert_close(
        torch._dirichlet_grad(x.to("tpu"), one.to("tpu"), 2 * one.to("tpu")).cpu(),
        torch._dirichlet_grad(x, one, 2 * one),
        equal_nan=True,
    )


def test_gradients_reach_the_parameters():
    alpha = torch.tensor([0.5, 2.0, 30.0], device="tpu", requires_grad=True)
    D.Gamma(alpha, torch.ones(3, device="tpu")).rsample((20_000,)).mean(0).sum().backward()
    torch.testing.assert_close(alpha.grad.cpu(), torch.ones(3), rtol=0.05, atol=0)  # the mean is alpha
    alpha.grad = None
    D.Dirichlet(alpha).rsample((20_000,)).mean(0)[1].backward()
    total = 32.5
    torch.testing.assert_close(alpha.grad.cpu(), torch.tensor([-2, total - 2, -2]) / total**2, rtol=0.1, atol=2e-4)


NUMBERS = {
    "poisson": torch.poisson,
    "_standard_gamma": torch._standard_gamma,
    "_sample_dirichlet": torch._sample_dirichlet,
    "binomial": lambda x: torch.binomial(x, x * 0 + 1),
    "_standard_gamma_grad": lambda x: torch._standard_gamma_grad(x, x),
    "_dirichlet_grad": lambda x: torch._dirichlet_grad(x, x, x + x),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64]
)
def test_kinds_of_operands(name, dtype):
    for x in (torch.ones(2, 3).to(dtype).t(), torch.ones(0, 3).to(dtype), torch.ones(()).to(dtype)):
        expected = value_or_error(lambda x=x: NUMBERS[name](x))
        actual = value_or_error(lambda x=x: NUMBERS[name](x.to("tpu")))
        if isinstance(expected, torch.Tensor):
            assert (actual.shape, actual.stride(), actual.dtype) == (expected.shape, expected.stride(), expected.dtype)
        else:
            assert actual == expected


def test_degenerate_parameters():
    nan = math.nan
    count, p = torch.tensor([3.7, -1, 0, 5, 5, 4]), torch.tensor([1.5, 0.5, 0.5, 0, -2, nan])
    actual = torch.binomial(count.to("tpu"), p.to("tpu")).cpu()
    torch.testing.assert_close(actual, torch.binomial(count, p), equal_nan=True)
    alpha = torch.tensor([0.0, -3, nan])
    torch.testing.assert_close(torch._standard_gamma(alpha.to("tpu")).cpu(), torch._standard_gamma(alpha))
    for rate in (-1.0, nan):
        with pytest.raises(RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"):
            torch.poisson(torch.tensor([1.0, rate], device="tpu"))
            torch.tpu.synchronize()
    for operands in ((torch.ones(2).double(), torch.ones(2)), (torch.ones(2), torch.ones(2).double())):
        with pytest.raises(RuntimeError, match="Found dtype"):
            torch.binomial(*(x.to("tpu") for x in operands))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.uniform_(2, 1),
        lambda x: x.uniform_(0, math.inf),
        lambda x: x.half().uniform_(0, 1e6),
        lambda x: x.uniform_(-3e38, 3e38),
        lambda x: x.normal_(0, -1),
        lambda x: torch.normal(x, math.nan),
        lambda x: x.bernoulli_(1.5),
        lambda x: torch.bernoulli(x, -0.5),
        lambda x: x.exponential_(0),
        lambda x: x.geometric_(1),
        lambda x: x.long().geometric_(0),
        lambda x: x.log_normal_(0, 0),
        lambda x: x.cauchy_(0, -1),
        lambda x: torch.native_dropout(x, 1.5, True),
        lambda x: x[:0].uniform_(2, 1),
    ],
)
def test_numbers_are_checked_at_the_call(call):
    words = []
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError) as caught:
            call(torch.ones(3, device=device))
        words.append(str(caught.value))
    assert words[1].split("(): ")[-1] == words[0]


def test_bernoulli_into_any_type():
    p = torch.tensor([0.0, 1, 1], device="tpu")
    for dtype in (torch.int64, torch.bool, torch.float64, torch.uint8):
        out = torch.empty(0, dtype=dtype, device="tpu")
        assert torch.bernoulli(p, out=out) is out
        assert torch.equal(out.cpu(), torch.tensor([0, 1, 1], dtype=dtype))
    with pytest.raises(NotImplementedError):
        torch.bernoulli(p, out=torch.empty(0, dtype=torch.complex64, device="tpu"))
