"""torch.compile on tpu: what a graph computes is what eager computes, and what it compiles."""

import copy
import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # nothing may run outside of a program unless a test says so
        yield


def compiled(function, **options):
    return torch.compile(function, backend="tpu", fullgraph=True, **options)


def tree_equal(actual, expected, **tolerance):
    actual, expected = (torch.utils._pytree.tree_leaves(x) for x in (actual, expected))
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        if isinstance(e, torch.Tensor):
            assert (a.device, a.dtype, a.shape, a.stride()) == (e.device, e.dtype, e.shape, e.stride())
            torch.testing.assert_close(a.cpu(), e.cpu(), **tolerance)
        else:
            assert type(a) is type(e) and a == e


def check(function, *args, times=2, dynamic=False, **tolerance):
    """The results of a function, eager and compiled; the arguments, which it may write to, too."""
    run = compiled(function, dynamic=dynamic)
    for _ in range(times):
        ours, theirs = (torch.utils._pytree.tree_map(clone, args) for _ in range(2))
        torch.tpu.manual_seed(3)
        expected = function(*theirs)
        torch.tpu.manual_seed(3)
        actual = run(*ours)
        tree_equal(actual, expected, **tolerance)
        tree_equal(ours, theirs, **tolerance)


def clone(x):
    if not isinstance(x, torch.Tensor):
        return x
    whole = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage().clone())
    return whole.as_strided(x.size(), x.stride(), x.storage_offset())


def rand(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="tpu", dtype=dtype)


def test_no_compile_the_second_time():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("tpu")
    run, x = compiled(model), rand(3, 4)
    run(x).sum().backward()
    model.zero_grad()
    before = torch.tpu.counters()
    run(x).sum().backward()
    after = torch.tpu.counters()
    assert after["compiles"] == before["compiles"]


def test_one_program_a_graph():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("tpu")
    run, x = compiled(model), rand(3, 4)
    with torch.no_grad():
        run(x)
        torch.tpu.synchronize()
        before = torch.tpu.counters()["executions"]
        y = run(x)
        torch.tpu.synchronize()
    assert torch.tpu.counters()["executions"] == before + 1
    tree_equal(y, model(x).detach())


def train(model, batches, optimizer=None, loss_of=None, run=None):
    run = model if run is None else run
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(run(*batch)) if loss_of else run(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()], [b.cpu() for b in model.buffers()]


def check_training(model, batches, loss_of=None, rtol=1e-4, atol=1e-5):
    twin = copy.deepcopy(model)
    torch.tpu.manual_seed(5)
    expected = train(model, batches, loss_of=loss_of)
    torch.tpu.manual_seed(5)
    actual = train(twin, batches, loss_of=loss_of, run=compiled(twin))
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def square(y):
    return y.square().mean()


def test_train_mlp_with_dropout():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 4)).to("tpu")
    check_training(model, [(rand(6, 8),) for _ in range(5)], square)


def test_train_gpt():
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from train_gpt import GPT

    model = GPT(vocabulary=17, length=8, layers=2, width=16, heads=2).to("tpu")
    tokens = torch.randint(17, (3, 2, 9)).to("tpu")
    check_training(model, [(t[:, :-1], t[:, 1:]) for t in tokens])


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.norm1(self.first(x)))
        x = F.relu(x + self.norm2(self.second(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def test_train_batch_norm_and_eval():
    model = Residual().to("tpu")
    check_training(model, [(rand(2, 3, 6, 6),) for _ in range(3)], square)
    model.eval()
    with torch.no_grad():
        check(lambda x: model(x), rand(2, 3, 6, 6), rtol=1e-5, atol=1e-5)


def test_train_lstm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 6, num_layers=2, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0]

    torch._dynamo.config.allow_rnn = True
    try:
        check_training(Model().to("tpu"), [(rand(2, 5, 4),) for _ in range(2)], square)
    finally:
        torch._dynamo.config.allow_rnn = False


def test_train_embedding_bag():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = nn.ModuleList(nn.EmbeddingBag(20, 4, mode="sum") for _ in range(3))
            self.dense = nn.Linear(5, 4)
            self.top = nn.Linear(10, 1)

        def forward(self, dense, indices, offsets):
            x = [F.relu(self.dense(dense))] + [bag(i, o) for bag, i, o in zip(self.bags, indices, offsets)]
            x = torch.stack(x, 1)
            pairs = x @ x.transpose(1, 2)
            at = torch.triu_indices(4, 4, 1, device=x.device)
            return self.top(torch.cat([pairs[:, at[0], at[1]], x[:, 0]], 1))

    indices = torch.randint(20, (3, 7)).to("tpu")
    offsets = torch.tensor([[0, 3], [0, 1], [0, 5]]).to("tpu")
    check_training(Model().to("tpu"), [(rand(2, 5), indices, offsets)] * 2, square)


# ---- views, writes, aliases ----
def test_views_as_inputs():
    base = rand(6, 8)
    for x in (
        base.t(),
        base[1:4, 2:],
        base[:, ::2],
        base[2],
        base[:1].expand(5, 8),
        base.as_strided((3, 3), (1, 1), 2),
    ):
        check(lambda x: (x * 2 + 1, x.sum(0)), x)


def test_views_of_one_storage():
    base = rand(6, 8)
    run = compiled(lambda a, b: a @ b)
    tree_equal(run(base[:3], base.t()), base[:3] @ base.t())


@pytest.mark.parametrize("name", ["x[1]", "t", "expand", "split", "flatten"])
def test_views_as_results(name):
    views = {
        "x[1]": lambda x: (x + 1)[1],
        "t": lambda x: (x + 1).t(),
        "expand": lambda x: (x[:1] + 1).expand(3, 4),
        "split": lambda x: (x + 1).split(2, 1),
        "flatten": lambda x: (x + 1).t().flatten(),
    }
    check(views[name], rand(3, 4))


def test_results_that_are_inputs():
    x = rand(3, 4)
    run = compiled(lambda x: (x, x[1], x.view(-1), x + 1))
    y, row, flat, _ = run(x)
    assert y is x
    row.add_(1)
    assert row.data_ptr() == x.data_ptr() + 16 and flat.data_ptr() == x.data_ptr()


def test_results_that_share_memory():
    def function(x):
        y = x + 1
        return y, y[0], y.t()

    y, row, t = compiled(function)(rand(3, 4))
    row.zero_()
    assert (y[0] == 0).all() and (t[:, 0] == 0).all()


def test_writes_to_inputs():
    def function(x, y):
        x.add_(y)
        x[1].mul_(2)
        y.copy_(x)
        return x * 2

    check(function, rand(3, 4), rand(3, 4))
    check(lambda x: x.t().add_(1), rand(3, 4))


def test_write_through_a_view():
    base = rand(6, 8)

    def function(x):
        x.add_(1)
        return x.sum()

    theirs, ours = clone(base), clone(base)
    run = compiled(function)
    for _ in range(2):
        tree_equal(run(ours[1:3, 2:5]), function(theirs[1:3, 2:5]))
        tree_equal(ours, theirs)


def test_cache_is_written_in_place():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 8, 4))

        def forward(self, x, at):
            self.keys.index_copy_(1, at, x)
            return self.keys.sum()

    model = Cache().to("tpu")
    run, address = compiled(model), model.keys.data_ptr()
    with torch.no_grad():
        for i in range(3):
            run(torch.full((1, 1, 4), float(i + 1), device="tpu"), torch.tensor([i], device="tpu"))
    assert model.keys[0, :, 0].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    assert model.keys.data_ptr() == address


def test_overlapping_update():
    def function(x):
        y = x + 1
        y[1:] = y[:-1] * 2
        x[1:] = x[:-1].clone()
        return y

    check(function, rand(64))


# ---- arguments and results that are no tensors ----
def test_none_and_numbers():
    def function(x, flag, n):
        return None, n + 1, x.shape[0], (x * n if flag else x), {"a": x.sum(), "b": 2.5}

    check(function, rand(3, 4), True, 3)
    check(function, rand(3, 4), False, 4)


def test_scalar_of_the_cpu():
    run = compiled(lambda x, s: x * s + s)
    x = rand(3, 4)
    before = None
    for value in (2.0, 3.0, 4.0):
        s = torch.tensor(value)
        tree_equal(run(x, s), x * s + s)
        assert before in (None, torch.tpu.compile_count())
        x * s + s
        before = torch.tpu.compile_count()


def test_constants():
    def function(x):
        return x + torch.tensor([1.0, 2.0, 3.0], device=x.device), torch.arange(4, device=x.device)

    check(function, rand(2, 3))


def test_shapes():
    model = nn.Linear(4, 2).to("tpu")
    run = compiled(model, dynamic=False)
    with torch.no_grad():
        for n in (2, 3, 2, 5):
            x = rand(n, 4)
            tree_equal(run(x), model(x))


def test_dynamic_shapes():
    run = compiled(lambda x: (x.sum(0) * x.shape[0], x.shape[0] * 2, x.reshape(-1)), dynamic=True)
    for n in (2, 3, 2, 5):
        x = rand(n, 4)
        tree_equal(run(x), (x.sum(0) * n, n * 2, x.reshape(-1)), rtol=1e-5, atol=1e-5)


# ---- random numbers ----
def test_random_numbers_are_those_of_eager():
    def function(x):
        return F.dropout(x, 0.5), torch.rand_like(x), torch.randn(3, device=x.device), torch.bernoulli(x.sigmoid())

    check(function, rand(5, 7))
    run, x = compiled(function), rand(5, 7)
    assert not torch.equal(run(x)[1].cpu(), run(x)[1].cpu())


def test_dropout_backward():
    x = rand(50).requires_grad_()
    run = compiled(lambda x: F.dropout(x, 0.5))
    y = run(x)
    y.sum().backward()
    tree_equal(x.grad, (y.detach() / x.detach()).round())


# ---- contexts ----
def test_autocast():
    model = nn.Linear(4, 3).to("tpu")

    def function(x):
        with torch.autocast("tpu", dtype=torch.bfloat16):
            return model(x)

    check(function, rand(2, 4))
    run = compiled(model)
    with torch.autocast("tpu", dtype=torch.bfloat16):
        y = run(rand(2, 4))
    assert y.dtype == torch.bfloat16


def test_inference_mode():
    model = nn.Linear(4, 3).to("tpu")
    run, x = compiled(model), rand(2, 4)
    with torch.inference_mode():
        for _ in range(2):
            tree_equal(run(x), model(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_dtypes(dtype):
    check(lambda x, y: (x @ y, (x * 2).sum()), rand(3, 4, dtype=dtype), rand(4, 2, dtype=dtype))


def test_conjugate():
    x = rand(3, 4, dtype=torch.complex64)
    run = compiled(lambda x: (x.conj() * 2, x.conj()))
    for a, e in zip(run(x), (x.conj() * 2, x.conj())):
        torch.testing.assert_close(a.cpu(), e.cpu())


def test_default_dtype_and_precision_are_seen():
    run = compiled(lambda x: x @ x)
    x = rand(4, 4)
    run(x)
    before = torch.tpu.compile_count()
    torch.set_float32_matmul_precision("medium")
    try:
        run(x)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.tpu.compile_count() == before + 1


# ---- what can't be recorded ----
def test_operator_that_reads_a_value():
    def function(x):
        y = x + 1
        z = y[y > 0]  # as long as the values say
        return z * 2, y

    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        run = compiled(function)
        x = torch.tensor([1.0, -2.0, 3.0], device="tpu")
        with pytest.warns(RuntimeWarning, match="nonzero|index"):
            tree_equal(run(x), function(x))
        tree_equal(run(-x), function(-x))
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_copies_to_the_cpu():
    def function(x):
        y = (x + 1).cpu()
        return y, (y * 2).to("tpu") + x, torch.ones(3).sum()

    check(function, rand(3, 4))


def test_errors_are_those_of_eager():
    run = compiled(lambda x, i: x[i])
    x = rand(3)
    with pytest.raises(IndexError):
        run(x, torch.tensor([7], device="tpu")).cpu()
    assert run(x, torch.tensor([1], device="tpu")).item() == x[1].item()


# ---- other devices ----
def test_registered():
    assert "tpu" in torch._dynamo.list_backends()
    assert torch.compiler.get_default_backend() == "tpu"
    model = torch.compile(nn.Linear(4, 3).to("tpu"))
    x = rand(2, 4)
    before = torch.tpu.counters()["compiles"]
    with torch.no_grad():
        model(x)
        assert torch.tpu.counters()["compiles"] == before + 1


def test_other_devices_go_to_inductor(monkeypatch):
    seen = []

    class Wrapper:
        def __init__(self, *settings):
            seen.append(settings)

        def __call__(self, graph, example_inputs):
            return graph.forward

    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", Wrapper)
    for options in ({}, {"mode": "reduce-overhead"}, {"options": {"epilogue_fusion": False}}):
        torch._dynamo.reset()
        x = torch.randn(3)
        assert torch.equal(torch.compile(lambda x: x + 1, **options)(x), x + 1)
    assert seen == [
        ("default", None, None),
        ("reduce-overhead", None, None),
        ("default", {"epilogue_fusion": False}, None),
    ]


def test_unknown_options():
    with pytest.raises(Exception, match="no option 'nonsense'"):
        torch.compile(lambda x: x + 1, backend="tpu", options={"nonsense": 1})(rand(3))


# ---- keys ----
def test_offsets_share_a_program():
    base = rand(20, 4)
    run = compiled(lambda x, y: x * 2 + y)
    before = None
    for i in range(8):
        tree_equal(run(base[i], base[2 * i]), base[i] * 2 + base[2 * i])
        if i == 2:
            before = torch.tpu.compile_count()
    assert torch.tpu.compile_count() == before


def test_mask_writes_are_compiled():
    def fill(x, mask, rows):
        x = x.clone()
        x[mask] = 0.5
        x[rows] = 3
        x[:, mask[0]] = -1
        return x

    check(fill, rand(3, 4), rand(3, 4) > 0, torch.tensor([True, False, True]).to("tpu"))


# ---- other users of graphs ----
def test_checkpoint_with_dropout():
    from torch.utils.checkpoint import checkpoint

    x = rand(100).requires_grad_()
    run = torch.compile(
        lambda x: checkpoint(lambda x: F.dropout(x.exp(), 0.5).sin(), x, use_reentrant=False), backend="tpu"
    )
    kept = []
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch
            y = run(x)
            (x.grad,) = torch.autograd.grad(y.sum(), x)
        kept.append(y.detach() != 0)
        assert torch.equal(kept[-1], x.grad != 0) and 20 < kept[-1].sum() < 80
    assert not torch.equal(*kept)


def test_compiled_optimizer():
    params = [nn.Parameter(rand(3)) for _ in range(2)]
    twins = [nn.Parameter(p.detach().clone()) for p in params]
    ours, theirs = (torch.optim.AdamW(p, lr=torch.tensor(0.1), capturable=True, foreach=True) for p in (params, twins))
    run = torch.compile(ours.step, backend="tpu")
    for _ in range(3):
        for p, t in zip(params, twins):
            p.grad = p.detach() * 2
            t.grad = t.detach() * 2
        run()
        theirs.step()
    for p, t in zip(params, twins):
        torch.testing.assert_close(p.cpu(), t.cpu(), rtol=1e-5, atol=1e-6)


def test_threads():
    from concurrent.futures import ThreadPoolExecutor

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("tpu")
    with torch.no_grad():
        run = compiled(model, dynamic=False)
        inputs = [rand(n, 4) for n in (1, 2, 3, 4)] * 4
        expected = [model(x).cpu() for x in inputs]

        def work(x):
            with torch.no_grad():
                return run(x).cpu()

        with ThreadPoolExecutor(4) as pool:
            actual = list(pool.map(work, inputs))
    torch.testing.assert_close(actual, expected)


def test_second_process_compiles_nothing(run_python, tmp_path):
    code = """
        import torch, torch.nn as nn
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2)).to("tpu")
        run = torch.compile(model, fullgraph=True)
        torch.tpu.synchronize()
        x = torch.randn(3, 4).to("tpu")
        before = torch.tpu.compile_count()
        run(x).sum().backward()
        print(torch.tpu.compile_count() - before, model[0].weight.grad.sum().item())
    """
    settings = {"TORCH_TPU_CACHE": None, "TORCH_TPU_CACHE_DIR": tmp_path / "cache"}
    first, second = (run_python(code, **settings).stdout.split() for _ in range(2))
    assert int(first[0]) >= 2 and int(second[0]) == 0
    assert first[1] == second[1]


def test_constant_results_are_copies():
    run = compiled(lambda x: (torch.tensor([1.0, 2.0]), x + 1))
    for _ in range(2):
        y, _ = run(rand(2))
        assert y.tolist() == [1, 2]
        y.zero_()


def test_sizes_as_results():
    run = compiled(lambda x: (x.sum(), x.shape[0], x.shape[0] * x.shape[1]), dynamic=True)
    for shape in ((3, 4), (5, 4), (3, 4), (3, 7)):
        _, rows, count = run(rand(*shape))
        assert (rows, count) == (shape[0], shape[0] * shape[1])


def test_backward_through_what_is_not_recorded():
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        x, mask = rand(3, 4).requires_grad_(), rand(3, 4) > 0
        run = compiled(lambda x, mask: (x * 2).masked_select(mask) * 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                (grad,) = torch.autograd.grad(run(x, mask).sum(), x)
                tree_equal(grad, mask * 6.0)
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_update_by_a_scalar_that_made_its_base():
    def function(x):
        s = x[0, 0].repeat([])
        x.copy_(s)
        x.as_strided([2, 1, 1], [4, 1, 3], 4).copy_(s)

    x, graph = rand(4, 6), torch.ops.torchtpu.create_graph("update")
    function(*torch.ops.torchtpu.begin_graph(graph, [x], ()))
    torch.ops.torchtpu.end_graph([])
    expected = x.cpu()
    function(expected)
    assert torch.ops.torchtpu.run_graph(graph, [x], ()) == ([], True)
    assert torch.equal(x.cpu(), expected)
    torch.ops.torchtpu.free_graph(graph)
