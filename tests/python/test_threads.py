"""Four Python threads at once."""

import threading

import torch
from torch import nn


def in_threads(function, count=4):
    errors = []

    def run(index):
        try:
            function(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_separate_tensors():
    def work(index):
        x = torch.full((16,), float(index), device="tpu")
        total = torch.zeros(16, device="tpu")
        for i in range(100):
            y = x * 2 + i
            y[::2] -= 1
            total += y
            if i % 25 == 0:
                assert y[1].item() == index * 2 + i
        assert total[1].item() == sum(index * 2 + i for i in range(100))
        assert total[0].item() == sum(index * 2 + i - 1 for i in range(100))

    in_threads(work)


def test_compiling_the_same_and_different_operators():
    def work(index):
        for n in range(1, 12):
            same = torch.arange(n, device="tpu").sum()
            other = torch.ones(n, index + 2, device="tpu").cumsum(0)
            assert same.item() == n * (n - 1) // 2
            assert other[-1, 0].item() == n

    torch.tpu.clear_compile_cache()
    in_threads(work)


def test_training():
    def work(index):
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)).tpu()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(index)).tpu()
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = (model(x) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]

    in_threads(work)


def test_shared_tensor():
    shared = torch.zeros(64, device="tpu")
    lock = threading.Lock()

    def work(index):
        for _ in range(50):
            with lock:
                shared.add_(1)
            assert 1 <= (shared * 1)[index].item() <= 200

    in_threads(work)
    assert shared.cpu().tolist() == [200] * 64


def test_handing_tensors_over():
    import queue

    passed = queue.Queue()

    def work(index):
        if index < 2:
            for i in range(50):
                passed.put(torch.full((8,), float(i), device="tpu") * 2)
        else:
            for _ in range(50):
                x = passed.get(timeout=60)
                x += 1
                assert (x[0].item() - 1) % 2 == 0

    in_threads(work)


def test_errors_in_one_thread_only():
    def work(index):
        for i in range(20):
            x = torch.ones(4, device="tpu")
            try:
                if index == 0:
                    x + torch.ones(i + 5, device="tpu")
                    raise AssertionError("no error")
                assert (x + x).sum().item() == 8
            except RuntimeError:
                assert index == 0

    in_threads(work)


def test_random_numbers_and_memory():
    def work(index):
        generator = torch.Generator("tpu").manual_seed(index)
        a = torch.rand(100, device="tpu", generator=generator)
        torch.rand(50, device="tpu")
        generator.manual_seed(index)
        assert torch.equal(a.cpu(), torch.rand(100, device="tpu", generator=generator).cpu())
        assert torch.tpu.memory_allocated() > 0
        torch.tpu.synchronize()

    in_threads(work)


def test_backward_in_many_threads():
    weight = torch.ones(8, 8, device="tpu", requires_grad=True)

    def work(index):
        for _ in range(10):
            (gradient,) = torch.autograd.grad((weight * (index + 1)).sum(), weight)
            assert gradient[0, 0].item() == index + 1

    in_threads(work)


def test_seeding_and_events_in_threads():
    def work(index):
        for i in range(20):
            torch.manual_seed(i)
            event = torch.tpu.Event(enable_timing=True)
            event.record()
            torch.randn(4, device="tpu").sum()
            event.synchronize()

    in_threads(work)
