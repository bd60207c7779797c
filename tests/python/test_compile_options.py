"""XLA options of one compiled graph or step: they reach its programs alone, and what is wrong with them is said."""

import pytest
import torch

MIN_MAX = "xla_cpu_enable_fast_min_max"  # by default off, since it loses a NaN
LEVEL = "xla_backend_optimization_level"


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def rand(*shape):
    return torch.randn(*shape, device="tpu")


def compiled(function, options):
    return torch.compile(function, backend="tpu", fullgraph=True, options=options)


def count_of(run, *args):
    before = torch.tpu.compile_count()
    result = run(*args)
    return result, torch.tpu.compile_count() - before


def test_a_program_of_its_own():
    def function(x):
        return (x.clamp(-0.5, 0.5) * 3).sum(0)

    x = rand(4, 5)
    expected = function(x.cpu())
    for options in (None, {}, {MIN_MAX: True}, {MIN_MAX: False}, {LEVEL: 1, MIN_MAX: "true"}):
        run = compiled(function, options)
        result, count = count_of(run, x)
        assert count == (0 if options == {} else 1)  # Dynamo takes none for {}
        torch.testing.assert_close(result.cpu(), expected)
        assert count_of(run, x)[1] == 0


def test_options_reach_the_compiler(tmp_path):
    x = rand(3, 7)
    name = {"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True}
    compiled(lambda x: x.sin() * 7, name)(x)
    mine = {p.name for p in tmp_path.iterdir()}
    assert mine
    compiled(lambda x: x.sin() * 8, None)(x)
    (x + rand(3, 7)).cpu()
    assert {p.name for p in tmp_path.iterdir()} == mine


def test_backward():
    x = rand(3, 4).requires_grad_()
    run = compiled(lambda x: (x.exp() * x).sum(), {LEVEL: 1})
    _, count = count_of(lambda: run(x).backward())
    assert count >= 2
    y = x.detach().cpu().requires_grad_()
    (y.exp() * y).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: x.cpu() + 1,  # runs on the host: nothing is compiled with the option
    ],
)
def test_unknown(function):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="No such compile option: 'xla_no_such_option'"):
            torch.compile(function, backend="tpu", options={"xla_no_such_option": 1})(rand(3))


def test_an_unknown_one_takes_nothing_with_it():
    """Its name begins like one that is set by default, and that stays set."""
    nan = torch.tensor([float("nan"), 1.0, 2.0], device="tpu")
    for options in ({MIN_MAX + "_more": True}, {MIN_MAX: "perhaps"}):
        with pytest.raises(RuntimeError, match=MIN_MAX):
            torch.compile(lambda x: x + 1, backend="tpu", options=options)(nan)
    ones = torch.ones(3, device="tpu")
    run = compiled(lambda x, y: torch.maximum(x, y) + 0.5, None)
    assert run(ones, nan).isnan().tolist() == [True, False, False]


@pytest.mark.parametrize("value", [None, [1], 1j, torch.tensor(1), b"1"])
def test_bad_types(value):
    with pytest.raises(RuntimeError, match=f"TypeError.*'{LEVEL}' must be a bool, int, float or str"):
        torch.compile(lambda x: x + 1, backend="tpu", options={LEVEL: value})(rand(3))


@pytest.mark.parametrize("value", ["many", 1.5, 2**80, "1\0"])
def test_bad_values(value):
    with pytest.raises(RuntimeError, match="ValueError"):
        torch.compile(lambda x: x + 1, backend="tpu", options={LEVEL: value})(rand(3))


def test_other_names():
    for name in ("epilogue_fusion", "XLA_x", "", 3):
        with pytest.raises(RuntimeError, match=f"no option {name!r}: what it takes"):
            torch.compile(lambda x: x + 1, backend="tpu", options={name: 1, LEVEL: 0})(rand(3))


def test_graphs_of_the_cpu(monkeypatch):
    """Inductor gets its own options, and no others."""
    seen = []

    class Wrapper:
        def __init__(self, mode, options, dynamic):
            seen.append(options)

        def __call__(self, graph, inputs):
            return graph.forward

    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", Wrapper)
    for options in ({LEVEL: 1}, {LEVEL: 1, "epilogue_fusion": False}):
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, backend="tpu", options=options)(torch.ones(3))
    assert seen == [None, {"epilogue_fusion": False}]


def test_compile_step():
    def trained(options):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).to("tpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = torch.tpu.compile_step(model, optimizer, lambda m, x: m(x).square().mean(), options=options)
        x = torch.ones(4, 3, device="tpu")
        _, count = count_of(lambda: [step(x) for _ in range(3)])
        return model.weight.cpu(), count

    (plain, _), (ours, count) = trained(None), trained({LEVEL: 1})
    assert count == 1
    torch.testing.assert_close(ours, plain)
    with pytest.raises(ValueError, match="xla_no_such_option"):
        trained({"xla_no_such_option": 1})
    with pytest.raises(ValueError, match="compile_step has no option 'nonsense'"):
        trained({"nonsense": 1})
    with pytest.raises(TypeError, match=LEVEL):
        trained({LEVEL: []})


def test_environment_and_disk_cache(run_python, tmp_path):
    """They win over the environment, here over what is no value; each set of them has an entry of its own."""
    code = f"""
    import torch
    from torch_tpu import _xla_options
    x = torch.ones(3).to("tpu")
    level, min_max, ops = "{LEVEL}", "{MIN_MAX}", torch.ops.torchtpu

    def plus_one(options):
        graph = _xla_options.read(options, "test").create_graph("test")  # as torch.compile does, without Dynamo
        ops.end_graph([ops.begin_graph(graph, [x], ())[0] + 1])
        return ops.run_graph(graph, [x], ())[0][0].tolist()

    for options in 2 * [{{level: 1}}, {{level: 0}}, {{min_max: True, level: 1}}, {{level: "1", min_max: "true"}}]:
        before = torch.tpu.compile_count()
        result = plus_one(options)
        print(torch.tpu.compile_count() - before, result)
    try:
        plus_one(None)
    except RuntimeError as error:
        print("refused", level in str(error))
    """
    done = run_python(
        code, TORCH_TPU_XLA_OPTIONS=f"{LEVEL}=nonsense", TORCH_TPU_CACHE="1", TORCH_TPU_CACHE_DIR=tmp_path / "cache"
    )
    counts = [1, 1, 1, 0, 0, 0, 0, 0]
    assert done.stdout.splitlines() == [*(f"{count} [2.0, 2.0, 2.0]" for count in counts), "refused True"]
