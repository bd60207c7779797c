"""Views share storage, and writes go through any chain of them."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import assert_same, check

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def ramp(*sizes, dtype=torch.float32):
    count = torch.Size(sizes).numel()
    return torch.arange(count).reshape(sizes).to(dtype)


VIEWS = {
    "view": lambda x: x.view(6, 4),
    "view -1": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(3, 8),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "reshape of a transpose": lambda x: x.transpose(0, 1).reshape(6, 4),
    "select": lambda x: x[1],
    "select inner": lambda x: x[:, 1],
    "select negative": lambda x: x[..., -1],
    "slice": lambda x: x[:, 1:3],
    "slice step": lambda x: x[..., ::2],
    "slice offset step": lambda x: x[:, 1::2, 1::3],
    "slice empty": lambda x: x[:, 2:2],
    "narrow": lambda x: x.narrow(2, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "expand new dim": lambda x: x.expand(3, 2, 3, 4),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 5), 3),
    "as_strided overlap": lambda x: x.as_strided((4, 3), (1, 1), 2),
    "movedim": lambda x: x.movedim(0, -1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "chain": lambda x: x.transpose(0, 2)[1:, ::2].transpose(0, 1)[:, 0],
    "step of a step": lambda x: x.view(-1)[1::2][::3],
    "slice of a transpose": lambda x: x.transpose(1, 2)[:, 1:3, 1:].transpose(0, 1),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_view_reads(name, dtype):
    view = VIEWS[name]
    x = ramp(2, 3, 4, dtype=dtype)
    y = x.tpu()
    actual, expected = view(y), view(x)
    assert actual.storage_offset() == expected.storage_offset()
    assert_same(actual, expected)
    if "of a transpose" not in name or name == "slice of a transpose":
        assert actual.untyped_storage()._cdata == y.untyped_storage()._cdata


WRITABLE = [name for name in VIEWS if "expand" not in name and "overlap" not in name and name != "unfold"]


@pytest.mark.parametrize("name", WRITABLE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_view_writes(name, dtype):
    def write(x):
        alias = x.view(-1)
        view = VIEWS[name](x)
        view.fill_(1)
        if dtype != torch.bool:
            view.mul_(3)
            view.add_(torch.ones(view.shape, dtype=dtype, device=x.device))
        view[..., :1] = 0
        return alias

    check(write, ramp(2, 3, 4, dtype=dtype))


def test_writes_through_a_deep_chain():
    def write(x):
        a = x.view(4, 6)
        b = a.t()
        c = b[1::2]
        d = c.reshape(3, 4)[:, 1:3] if c.is_contiguous() else c[:, 1:3]
        d += 10
        c[0] *= 2
        b.sub_(1)
        x.view(2, 12)[1, ::3] = -5
        a[2].copy_(b[:, 0])
        return a, b, c, d

    check(write, ramp(24))


def test_out_of_a_chain_of_in_place_ops():
    def write(x):
        view = x[1:]
        x += 1
        x *= 3
        view -= 1
        x /= 5
        view.clamp_(min=0.5).neg_()
        return view

    check(write, torch.ones(3))


def test_pending_readers_keep_the_old_value():
    x = torch.zeros(1000, device="tpu")
    results = []
    for _ in range(50):
        results.append(x + 0)
        x += 1
    for i, result in enumerate(results):
        assert result[0].item() == i and result[-1].item() == i
    assert x.sum().item() == 50 * 1000


def test_setitem_forms():
    def write(x):
        x[0] = 1
        x[:, 1] = torch.tensor([10.0, 20.0], device=x.device)
        x[1, 2:4] = torch.tensor(7.0)  # a CPU scalar
        x[..., -1] = x[..., 0]
        x[None, 0, 0] = 99
        x[torch.tensor([1, 0], device=x.device), torch.tensor([4, 3], device=x.device)] = torch.tensor(
            [-1.0, -2.0], device=x.device
        )
        x[x > 50] = 0
        x[:, [0, 2]] += 100
        return x

    check(write, ramp(2, 6))


def test_copy_between_overlapping_views():
    def write(x):
        x[1:].copy_(x[:-1].clone())
        x.view(2, 4).t()[:2].copy_(x.view(2, 4)[:, :2].clone())
        return x

    check(write, ramp(8))


def test_copy_broadcasts_and_converts():
    def write(x, y):
        x.copy_(y)
        x[0].copy_(torch.tensor(2.7, device=x.device))
        return x

    check(write, torch.zeros(2, 3, dtype=torch.int32), torch.tensor([1.5, -2.5, 3.0]))


def test_writes_to_expanded_tensors_fail():
    for device in ("cpu", "tpu"):
        x = torch.zeros(1, 3, device=device).expand(4, 3)
        with pytest.raises(RuntimeError, match="single memory location"):
            x.add_(1)
    assert torch.zeros(1, 3, device="tpu").expand(4, 3).sum().item() == 0


def test_set_and_data():
    def rebind(x, y):
        view = x.view(-1)
        x.data = y
        x.add_(1)
        z = torch.empty(0, device=x.device)
        z.set_(y.untyped_storage(), 1, (2,), (2,))
        z.mul_(10)
        w = torch.empty(0, device=x.device).set_(y)
        w[0, 0] = -1
        return view, x, z, w

    check(rebind, ramp(2, 3), ramp(2, 2) + 50)


def test_resize():
    def resize(x):
        x.resize_(2, 2)
        y = x.clone()
        x.resize_(6)
        x[4:] = 7
        z = torch.empty(0, device=x.device).resize_(3).fill_(2)
        return x, y, z

    check(resize, ramp(4))


def test_storage_resize():
    x = torch.arange(4.0, device="tpu")
    saved = x.clone()
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().size() == 0
    x.untyped_storage().resize_(16)
    x.copy_(saved)
    assert x.cpu().tolist() == [0, 1, 2, 3]


def test_complex_views():
    def complex_(x):
        pairs = torch.view_as_real(x)
        pairs[..., 0] += 1
        x.real.mul_(2)
        x.imag[0] = 5
        back = torch.view_as_complex(pairs)
        back[1] = 3 - 4j
        conj = x.conj()
        total = conj + 1
        conj[0] = 1j
        return pairs, x.real, x.imag, conj.resolve_conj(), total, x.conj().imag.resolve_neg(), back.abs()

    check(complex_, torch.tensor([1 + 2j, 3 - 1j, -2 + 0.5j]))


def test_negative_and_conjugate_bits():
    x = torch.tensor([1 + 2j, 3 - 1j]).tpu()
    assert x.conj().is_conj() and x.conj().imag.is_neg()
    assert x.conj().cpu().tolist() == [1 - 2j, 3 + 1j]
    assert x.conj().imag.cpu().tolist() == [-2, 1]
    assert (x.conj() * x).real.cpu().tolist() == [5, 10]
    assert torch.ones(2, dtype=torch.complex64).conj().tpu().cpu().tolist() == [1, 1]


@pytest.mark.parametrize(
    "source, target",
    [
        (torch.float32, torch.int32),
        (torch.int64, torch.float64),
        (torch.float32, torch.uint8),
        (torch.bfloat16, torch.int16),
        (torch.uint8, torch.int32),
        (torch.complex64, torch.float32),
        (torch.bool, torch.uint8),
    ],
    ids=str,
)
def test_view_dtype(source, target):
    def retype(x):
        view = x.view(target)
        view[..., 0] = 1
        x.view(-1)[:1] = 1
        return view, x.view(target).view(source)

    check(retype, ramp(3, 8).to(source))


def test_same_storage_as_two_dtypes():
    x = torch.zeros(4, device="tpu")
    bits = x.view(torch.int32)
    bits[1] = 0x3F800000
    assert x.cpu().tolist() == [0, 1, 0, 0]
    x[2] = 2.0
    assert bits.cpu().tolist() == [0, 0x3F800000, 0x40000000, 0]


@pytest.mark.parametrize(
    "size, source, used, target",
    [
        (10, torch.uint8, 8, torch.int32),
        (21, torch.uint8, 16, torch.complex64),
        (19, torch.uint8, 16, torch.float64),
        (7, torch.int16, 4, torch.int64),
        (11, torch.int16, 8, torch.complex64),
    ],
    ids=str,
)
def test_bytes_that_make_no_whole_element(size, source, used, target):
    def change(x):
        head = x[:used].view(target)
        head.copy_(head.flip(0))
        return x[used:].clone(), x.clone()

    check(change, torch.arange(size, dtype=source))


def test_a_written_operand_of_another_dtype_is_refused():
    x = torch.zeros(4, device="tpu")
    with pytest.raises(RuntimeError, match="shares its storage with an operand of another dtype"):
        torch.abs(x.view(torch.int32), out=x)


def test_a_list_of_one_storage_in_two_dtypes():
    def change(x):
        torch._foreach_add_([x, x.view(torch.int32)], 1)
        return x.clone()

    check(change, torch.zeros(4))


@pytest.mark.parametrize("name", ["zero_", "fill_", "copy_", "uniform_", "exponential_"])
def test_an_empty_view_leaves_its_storage(name):
    def write(x):
        arguments = {"fill_": [3.0], "copy_": [x[:1]]}.get(name, [])
        getattr(x.new_empty(0), name)(*arguments)  # a program for empty tensors of any storage
        getattr(x[:0], name)(*arguments)
        return x.clone()

    check(write, torch.arange(4.0))


def test_channels_last():
    def layout(x):
        y = x.contiguous(memory_format=torch.channels_last)
        y[:, 0] += 1
        return y, y.contiguous(), (y * 2), torch.empty_like(y).fill_(3)

    check(layout, ramp(2, 3, 4, 5))


def test_data_ptr_differences():
    x = torch.zeros(4, 6, device="tpu")
    assert x[1].data_ptr() - x.data_ptr() == 24
    assert x.data_ptr() != torch.zeros(4, device="tpu").data_ptr()


def test_version_counters_and_autograd():
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = x * 2
    y[1:].mul_(3)
    y.sum().backward()
    assert x.grad.cpu().tolist() == [2, 6, 6]
    a = torch.ones(3, device="tpu", requires_grad=True)
    b = a.exp()
    b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        a.add_(1)


def test_split_chunk_unbind():
    def write(x):
        for i, part in enumerate(x.split(2, dim=1)):
            part.add_(i * 100)
        for part in x.chunk(2):
            part[..., 0] = -1
        x.unbind(0)[1].mul_(2)
        first, *_ = x.tensor_split(3, dim=1)
        first.zero_()
        return x

    check(write, ramp(2, 6))


# ---- random programs ----
SIZES = (4, 6)

view_steps = st.one_of(
    st.tuples(st.just("t")),
    st.tuples(st.just("slice"), st.integers(0, 1), st.integers(0, 3), st.integers(1, 3)),
    st.tuples(st.just("select"), st.integers(0, 3)),
    st.tuples(st.just("flat")),
    st.tuples(st.just("unsqueeze")),
    st.tuples(st.just("as_strided"), st.integers(1, 3), st.integers(0, 5)),
)
write_steps = st.one_of(
    st.tuples(st.just("add"), st.integers(-3, 3)),
    st.tuples(st.just("mul"), st.integers(-2, 2)),
    st.tuples(st.just("fill"), st.integers(-9, 9)),
    st.tuples(st.just("set"), st.integers(0, 3), st.integers(-9, 9)),
    st.tuples(st.just("copy_from"), st.integers(0, 9)),
    st.tuples(st.just("zero_step")),
)
steps = st.lists(st.tuples(st.integers(0, 9), st.one_of(view_steps, write_steps)), min_size=1, max_size=8)


def run(program, base):
    """Each step works on one of the tensors made so far. Returns all of them: every alias must agree."""
    tensors = [base]
    for which, (kind, *arguments) in program:
        x = tensors[which % len(tensors)]
        if kind == "t" and x.dim() >= 2:
            tensors.append(x.transpose(0, 1))
        elif kind == "slice" and x.dim() > arguments[0]:
            dim, start, step = arguments
            tensors.append(x[start::step] if dim == 0 else x[:, start::step])
        elif kind == "select" and x.dim() >= 1 and x.shape[0] > arguments[0]:
            tensors.append(x[arguments[0]])
        elif kind == "flat" and x.is_contiguous():
            tensors.append(x.view(-1))
        elif kind == "unsqueeze" and x.dim() < 4:
            tensors.append(x.unsqueeze(0))
        elif kind == "as_strided":
            tensors.append(base.as_strided((3, 2), (2 * arguments[0], 1), arguments[1]))
        elif kind == "add":
            x.add_(arguments[0])
        elif kind == "mul":
            x.mul_(arguments[0])
        elif kind == "fill":
            x.fill_(arguments[0])
        elif kind == "set" and x.dim() >= 1:
            x[arguments[0] :: 2] = arguments[1]
        elif kind == "copy_from":
            y = tensors[arguments[0] % len(tensors)]
            if y.shape == x.shape:
                x.copy_(y.clone() + 1)
        elif kind == "zero_step" and x.dim() >= 1:
            x[..., ::2].zero_()
    return tensors


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=steps, dtype=st.sampled_from([torch.float32, torch.int64]))
def test_random_programs(program, dtype):
    base = ramp(*SIZES, dtype=dtype)
    expected = run(program, base.clone())
    actual = run(program, base.tpu())
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride() and a.storage_offset() == e.storage_offset()
        assert torch.equal(a.cpu(), e), (program, a.cpu(), e)


GAPS = {
    "dense": lambda x: x.t(),
    "gaps": lambda x: x[::2, ::2],
    "gaps at an offset": lambda x: x[2:10:2, 3:13:2],
    "expanded": lambda x: x[:4, :1].expand(4, 5),
}
SCATTERS = {
    "select": lambda x: torch.select_scatter(x, x[1] + 1, 0, 0),
    "slice": lambda x: torch.slice_scatter(x, x[1:3] + 1, 0, 0, 2),
    "diagonal": lambda x: torch.diagonal_scatter(x, x[:, 0][: min(x.shape)] + 1),
    "as_strided": lambda x: torch.as_strided_scatter(x, x[0, :2] + 1, (2,), (1,), x.storage_offset()),
}


@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_keep_gaps(name, gaps):
    """The inverse of a view has the strides, the offset and the storage's size of the tensor it changes a copy of."""
    x = ramp(12, 15)
    expected, actual = SCATTERS[name](GAPS[gaps](x)), SCATTERS[name](GAPS[gaps](x.tpu()))
    assert_same(actual, expected)
    assert actual.storage_offset() == expected.storage_offset()
    assert actual.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
