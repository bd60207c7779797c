"""Random numbers: seeds, states, generators, and that what is drawn depends on nothing else."""

import pytest
import torch

DRAWS = {
    "rand": lambda g: torch.rand(5, 3, device="tpu", generator=g),
    "randn": lambda g: torch.randn(7, device="tpu", generator=g),
    "randint": lambda g: torch.randint(100, (9,), device="tpu", generator=g),
    "randperm": lambda g: torch.randperm(11, device="tpu", generator=g),
    "bernoulli": lambda g: torch.full((20,), 0.5, device="tpu").bernoulli_(generator=g),
    "uniform": lambda g: torch.empty(4, device="tpu").uniform_(-1, 1, generator=g),
    "normal": lambda g: torch.empty(4, device="tpu").normal_(2, 3, generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(6, device="tpu"), 4, generator=g),
    "exponential": lambda g: torch.empty(4, device="tpu").exponential_(generator=g),
    "poisson": lambda g: torch.poisson(torch.tensor([0.5, 4.0, 90.0], device="tpu"), generator=g),
    "gamma": lambda g: torch._standard_gamma(torch.tensor([0.5, 4.0], device="tpu"), generator=g),
    "binomial": lambda g: torch.binomial(torch.full((4,), 99.0, device="tpu"), torch.tensor(0.4, device="tpu"), g),
    "random": lambda g: torch.empty(4, device="tpu", dtype=torch.int64).random_(generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_same_seed_same_numbers(name):
    draw = DRAWS[name]
    generator = torch.Generator("tpu")
    first = [draw(generator.manual_seed(3)), draw(generator)]
    again = [draw(generator.manual_seed(3)), draw(generator)]
    for a, b in zip(first, again):
        assert torch.equal(a.cpu(), b.cpu())
    assert not torch.equal(first[0].cpu(), first[1].cpu())
    other = [draw(generator.manual_seed(4)), draw(generator)]
    assert any(not torch.equal(a.cpu(), b.cpu()) for a, b in zip(first, other))


def test_dropout():
    x = torch.ones(1000, device="tpu")
    torch.manual_seed(1)
    a = torch.nn.functional.dropout(x, 0.3)
    torch.manual_seed(1)
    b = torch.nn.functional.dropout(x, 0.3)
    assert torch.equal(a.cpu(), b.cpu())
    kept = (a != 0).float().mean().item()
    assert 0.62 < kept < 0.78
    torch.testing.assert_close(a.cpu()[a.cpu() != 0].max(), torch.tensor(1 / 0.7))


def test_states():
    torch.tpu.manual_seed(11)
    state = torch.tpu.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8 and state.numel() == 16
    a = torch.rand(4, device="tpu")
    assert not torch.equal(torch.tpu.get_rng_state(), state)
    torch.tpu.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="tpu").cpu(), a.cpu())
    torch.tpu.set_rng_state(state, "tpu:0")
    assert torch.equal(torch.tpu.get_rng_state(0), state)
    torch.tpu.set_rng_state_all(torch.tpu.get_rng_state_all())
    with pytest.raises((RuntimeError, TypeError)):
        torch.tpu.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="tpu:9"):
        torch.tpu.get_rng_state(9)


def test_seeds():
    torch.manual_seed(123)
    assert torch.tpu.initial_seed() == 123
    torch.tpu.manual_seed_all(7)
    assert torch.tpu.initial_seed() == 7
    torch.tpu.seed()
    first = torch.tpu.initial_seed()
    torch.tpu.seed_all()
    assert torch.tpu.initial_seed() != first
    torch.manual_seed(-1)
    assert torch.tpu.initial_seed() == 2**64 - 1
    assert torch.seed() == torch.tpu.initial_seed()


def test_default_generators():
    generators = torch.tpu.default_generators
    assert len(generators) == torch.tpu.device_count()
    generator = generators[0]
    assert isinstance(generator, torch.Generator) and generator.device == torch.device("tpu", 0)
    generator.manual_seed(5)
    a = torch.rand(3, device="tpu")
    generator.manual_seed(5)
    assert torch.equal(torch.rand(3, device="tpu", generator=generator).cpu(), a.cpu())
    assert torch.tpu._get_rng_state_offset() > 0
    torch.tpu._set_rng_state_offset(0)
    assert torch.equal(torch.rand(3, device="tpu").cpu(), a.cpu())
    copy = generator.clone_state()
    assert torch.equal(torch.rand(3, device="tpu", generator=copy).cpu(), torch.rand(3, device="tpu").cpu())


def test_generator_of_another_device():
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="tpu", generator=torch.Generator("cpu"))


def test_fork_rng():
    torch.manual_seed(2)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.rand(5, device="tpu")
    a = torch.rand(5, device="tpu")
    torch.manual_seed(2)
    assert torch.equal(torch.rand(5, device="tpu").cpu(), a.cpu())


def test_checkpoint_repeats_dropout():
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    x = torch.ones(64, device="tpu", requires_grad=True)
    for reentrant in (False, True):
        x.grad = None
        y = checkpoint(lambda t: torch.nn.functional.dropout(t * 2, 0.5), x, use_reentrant=reentrant)
        y.sum().backward()
        assert torch.equal((y != 0).cpu(), (x.grad != 0).cpu())


def test_strict_and_debug_draw_the_same():
    results = []
    for mode in ("strict", "debug"):
        with torch.tpu.set_eager_mode(mode):
            torch.manual_seed(9)
            results.append([torch.randn(5, device="tpu").cpu(), torch.rand(3, 2, device="tpu").cpu()])
    for a, b in zip(*results):
        assert torch.equal(a, b)


def test_moments():
    torch.manual_seed(0)
    x = torch.randn(100_000, device="tpu").cpu()
    assert abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.02
    u = torch.rand(100_000, device="tpu").cpu()
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.01
    i = torch.randint(3, 7, (10_000,), device="tpu").cpu()
    assert i.unique().tolist() == [3, 4, 5, 6]
    assert torch.randperm(1000, device="tpu").sort()[0].cpu().tolist() == list(range(1000))


def test_seeding_compiles_nothing_new():
    torch.manual_seed(0)
    torch.rand(13, device="tpu")
    before = torch.tpu.compile_count()
    for seed in range(5):
        torch.manual_seed(seed)
        torch.rand(13, device="tpu")
        torch.rand(13, device="tpu")
    assert torch.tpu.compile_count() == before
