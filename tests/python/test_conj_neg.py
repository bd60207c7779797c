"""Tensors with the conjugate and the negative bit: views that operators and copies must honour."""

import pytest
import torch

VALUES = [1 + 2j, -3 + 0.5j, 0 - 1j, 2.5 + 0j]


def on(device, dtype=torch.complex64):
    return torch.tensor(VALUES, dtype=dtype).to(device)


VIEWS = {
    "conj": lambda z: z.conj(),
    "neg": lambda z: z.conj().imag,
    "conj of a slice": lambda z: z[1:].conj(),
    "transposed": lambda z: z.view(2, 2).mH,
    "neg of a slice": lambda z: z[::2].conj().imag,
}
USES = {
    "to the CPU": lambda v: v.cpu(),
    "clone": lambda v: v.clone(),
    "contiguous": lambda v: v.contiguous(),
    "add": lambda v: v + 1,
    "multiply with itself": lambda v: v * v,
    "sum": lambda v: v.sum(),
    "item": lambda v: v.flatten()[0].item(),
    "copy into": lambda v: torch.zeros_like(v).copy_(v),
    "resolve": lambda v: v.resolve_conj().resolve_neg(),
    "to double": lambda v: v.to(torch.complex128 if v.is_complex() else torch.float64),
    "stack": lambda v: torch.stack([v, v]),
    "repr": lambda v: repr(v.cpu()),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("view", VIEWS)
def test_reading(view, use):
    expected, got = (USES[use](VIEWS[view](on(device))) for device in ("cpu", "tpu"))
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got.cpu(), expected.resolve_conj().resolve_neg())
    else:
        assert got == expected


@pytest.mark.parametrize("source_view", ["plain", *VIEWS])
@pytest.mark.parametrize("view", VIEWS)
def test_writing(view, source_view):
    """A write through such a view stores the conjugate or the negative, from any device."""
    results = []
    for device, source_device in (("cpu", "cpu"), ("tpu", "tpu"), ("tpu", "cpu")):
        z = on(device)
        target = VIEWS[view](z)
        numbers = torch.arange(1.0, 9.0, dtype=torch.float32)
        source = torch.complex(numbers, -numbers)[: 2 * target.numel()].to(source_device)
        source = VIEWS.get(source_view, lambda s: s)(source[:4])
        source = source.flatten()[0].expand(target.shape)
        if source.is_complex() and not target.is_complex():
            source = source.real
        target.copy_(source)
        results.append(z.cpu())
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(results[2], results[0])


@pytest.mark.parametrize("view", VIEWS)
def test_in_place(view):
    results = []
    for device in ("cpu", "tpu"):
        z = on(device)
        VIEWS[view](z).mul_(3).add_(1)
        results.append(z.cpu())
    torch.testing.assert_close(results[1], results[0])


def test_product_of_conjugate_transpose():
    a = torch.randn(3, 4, dtype=torch.complex64)
    torch.testing.assert_close((a.to("tpu").mH @ a.to("tpu")).cpu(), a.mH @ a)


def test_gradient_through_conjugate():
    gradients = []
    for device in ("cpu", "tpu"):
        z = on(device).requires_grad_()
        (z.conj() * z * z.imag).abs().sum().backward()
        gradients.append(z.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("conjugates", [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("name", ["dot", "vdot", "inner", "mv", "matmul"])
def test_products(name, conjugates):
    """Products read lazy conjugates, and are one where the CPU's is."""
    results = []
    for device in ("cpu", "tpu"):
        x, y = on(device), on(device).flip(0) + 1
        x = x.view(2, 2) if name == "mv" else x
        y = y[:2] if name == "mv" else y
        x, y = (t.conj() if conj else t for t, conj in zip((x, y), conjugates))
        results.append(getattr(torch, name)(x, y))
    assert results[0].is_conj() == results[1].is_conj()
    torch.testing.assert_close(results[1].cpu().resolve_conj(), results[0].resolve_conj())
