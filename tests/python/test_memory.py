"""What memory counts, that it comes back, and what happens when it runs out."""

import gc

import pytest
import torch
from torch import nn


def allocated():
    gc.collect()
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated()


def test_allocated_follows_tensors():
    start = allocated()
    x = torch.zeros(1000, device="tpu")
    assert start + 4000 <= allocated() <= start + 4096 + 512
    y = x.view(10, 100)[2:]
    z = x + 1
    del x
    assert allocated() >= start + 8000
    del y, z
    assert allocated() == start


def test_peak():
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    start = torch.tpu.max_memory_allocated()
    assert start == torch.tpu.memory_allocated()
    x = torch.zeros(1 << 20, device="tpu")
    del x
    assert torch.tpu.max_memory_allocated() >= start + (4 << 20)
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() < start + (4 << 20)


def test_reserved_returns():
    torch.ones(4, device="tpu")
    gc.collect()
    torch.tpu.synchronize()
    start = torch.tpu.memory_reserved()
    x = torch.ones(1 << 20, device="tpu")
    for _ in range(5):
        x = x * 2
    torch.tpu.synchronize()
    assert torch.tpu.memory_reserved() >= start + (4 << 20)
    assert torch.tpu.max_memory_reserved() >= torch.tpu.memory_reserved()
    del x
    torch.tpu.synchronize()
    assert torch.tpu.memory_reserved() < start + (1 << 20)


def test_model_gives_everything_back():
    start = allocated()
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).tpu()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        loss = model(torch.randn(8, 64, device="tpu")).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    del model, optimizer, loss
    assert allocated() == start


def test_statistics():
    x = torch.zeros(100, device="tpu")
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated() > 0
    assert stats["allocated_bytes.all.peak"] == torch.tpu.max_memory_allocated()
    assert stats["active.all.current"] >= 1 and stats["num_ooms"] >= 0
    nested = torch.tpu.memory_stats_as_nested_dict()
    assert nested["reserved_bytes"]["all"]["peak"] == torch.tpu.max_memory_reserved()
    summary = torch.tpu.memory_summary()
    assert "allocated" in summary and "out of memory" in summary
    assert len(torch.tpu.memory_summary(abbreviated=True)) < len(summary)
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    torch.tpu.empty_cache()
    torch.tpu.reset_accumulated_memory_stats()
    del x


def test_one_allocation_too_large():
    start = allocated()
    ooms = torch.tpu.memory_stats()["num_ooms"]
    total = torch.tpu.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError, match=r"(?i)memory"):
        torch.zeros(total // 4 + 1024, device="tpu").add_(1)
        torch.tpu.synchronize()
    assert torch.tpu.memory_stats()["num_ooms"] > ooms
    assert (torch.ones(3, device="tpu") + 1).cpu().tolist() == [2, 2, 2]
    assert allocated() == start


@pytest.mark.parametrize("size", [2**62, 2**40])
def test_absurd_sizes(size):
    with pytest.raises(RuntimeError):  # OutOfMemoryError is one
        torch.empty(size, device="tpu").fill_(1)
        torch.tpu.synchronize()
    assert torch.ones(1, device="tpu").item() == 1


def test_many_allocations_too_large(run_python):
    done = run_python(
        """
        import torch
        total = torch.tpu.mem_get_info()[1]
        kept, count = [], 0
        try:
            for count in range(64):
                kept.append(torch.ones(total // 32, device="tpu"))  # an eighth each
                torch.tpu.synchronize()
        except torch.OutOfMemoryError as error:
            message = str(error)
        else:
            raise AssertionError("no error")
        assert 4 <= count <= 8, count
        assert "memory" in message.lower(), message
        del kept[2:]
        assert torch.ones(total // 32, device="tpu").sum().item() == total // 32
        big = torch.ones(1000, 1000, device="tpu") @ torch.ones(1000, 1000, device="tpu")
        assert big[0, 0].item() == 1000
        print("ok")
        """,
        TORCH_TPU_MEMORY_FRACTION="0.02",
    )
    assert done.stdout == "ok\n"


def test_intermediate_result_too_large(run_python):
    run_python(
        """
        import torch
        total = torch.tpu.mem_get_info()[1]
        n = int((total / 4) ** 0.5)
        x = torch.ones(n, 1, device="tpu")
        try:
            y = [x @ x.t() for _ in range(3)]
            torch.tpu.synchronize()
            raise AssertionError("no error")
        except torch.OutOfMemoryError:
            y = None
        assert (x + 1).sum().item() == 2 * n
        """,
        TORCH_TPU_MEMORY_FRACTION="0.02",
    )


FREED_MEMORY = """
    import resource
    import time
    import torch

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def faults_of_steps():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            y = x + 1
            del y
            torch.tpu.synchronize()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    x = torch.ones(1 << 24, device="tpu")  # 64 MiB
    faults_of_steps()
    # A result may go when the next one has its memory already: then the pool has two blocks from there on.
    faults = min(faults_of_steps() for _ in range(3))
    time.sleep(0.3)  # the last one, too
    before = resident()
    torch.tpu.empty_cache()
    given_back = before - resident()
    assert (x + 1).sum().item() == 2 << 24
    """


def test_freed_memory_is_kept_until_the_cache_is_emptied(run_python):
    done = run_python(FREED_MEMORY + "print(faults, given_back)")
    faults, given_back = map(int, done.stdout.split())
    assert faults < 16384  # of one result alone, where each is fresh
    assert given_back > 48 << 20


def test_freed_memory_goes_back_without_the_pool(run_python):
    done = run_python(FREED_MEMORY + "print(given_back)", TORCH_TPU_HOST_POOL="0")
    assert int(done.stdout) < 48 << 20
