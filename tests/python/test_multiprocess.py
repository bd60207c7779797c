"""Processes: DataLoader workers, forks after use, and tensors sent to spawned processes."""


def test_dataloader_workers_after_use(run_python):
    """Workers are forked from a process that has a client, and touch no device."""
    run_python(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        x = torch.arange(64.0, device="tpu")
        assert (x + 1).sum().item() == 64 * 65 / 2
        data = TensorDataset(torch.arange(64.0), torch.arange(64))
        for workers, pinned in ((2, False), (2, True), (0, True)):
            loader = DataLoader(data, 8, num_workers=workers, pin_memory=pinned, persistent_workers=False)
            total = torch.zeros((), device="tpu")
            for values, labels in loader:
                assert values.is_pinned() == pinned
                total += values.to("tpu", non_blocking=True).sum()
            assert total.item() == 64 * 63 / 2
        assert (x + 1).sum().item() == 64 * 65 / 2
        """
    )


def test_random_numbers_in_workers(run_python):
    """A worker seeds PyTorch, which must not reach for the device."""
    run_python(
        """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Random(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                torch.manual_seed(index)
                return torch.rand(2)

        torch.ones(1, device="tpu")
        batches = [b.tpu() for b in DataLoader(Random(), 4, num_workers=2)]
        torch.manual_seed(0)
        assert torch.equal(batches[0][0].cpu(), torch.rand(2))
        """
    )


def test_fork_after_use_is_a_clear_error(run_python):
    done = run_python(
        """
        import os, sys, torch

        kept = torch.ones(4, device="tpu")
        view = kept[1:]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert torch.tpu._is_in_bad_fork() and not torch.tpu.is_initialized()
                torch.manual_seed(1)
                assert (torch.ones(2) + 1).sum().item() == 4
                for use in (lambda: torch.ones(1, device="tpu"), lambda: kept + 1, lambda: kept.cpu(),
                            torch.tpu.init, torch.tpu.synchronize):
                    try:
                        use()
                        raise AssertionError("no error")
                    except RuntimeError as error:
                        message = str(error)
                        assert "fork" in message and "spawn" in message, message
                print(message, flush=True)
                del view, kept
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert (kept + 1).sum().item() == 8
        assert not torch.tpu._is_in_bad_fork()
        """
    )
    assert "Cannot re-initialize tpu in forked subprocess" in done.stdout


def test_fork_before_use_is_fine(run_python):
    run_python(
        """
        import os, torch

        torch.manual_seed(0)
        torch.tpu.is_available(), torch.tpu.device_count()
        child = os.fork()
        total = (torch.ones(4, device="tpu") + 1).sum().item()
        if child == 0:
            os._exit(0 if total == 8 else 1)
        assert os.waitpid(child, 0)[1] == 0 and total == 8
        """
    )


def test_child_that_exits_normally(run_python):
    """The child runs destructors and atexit handlers of a client it must not touch."""
    done = run_python(
        """
        import multiprocessing, torch

        def work():
            torch.ones(2).sum()

        x = torch.ones(1000, device="tpu")
        for _ in range(20):
            x = x + 1
        processes = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            assert process.exitcode == 0, process.exitcode
        assert x[0].item() == 21
        """
    )
    assert done.stderr.count("Traceback") == 0


def test_spawn(run_python):
    """Tensors travel through shared host memory, both ways."""
    run_python(
        """
        import torch
        import torch.multiprocessing as mp

        def work(inbox, outbox):
            x, parameter = inbox.get()
            assert x.is_tpu and x.shape == (2, 3) and isinstance(parameter, torch.nn.Parameter)
            assert parameter.requires_grad and parameter.is_tpu
            outbox.put((x * 2, parameter.detach() + 1))
            inbox.get()  # stay until the parent has read

        if __name__ == "__main__":
            context = mp.get_context("spawn")
            inbox, outbox = context.Queue(), context.Queue()
            process = context.Process(target=work, args=(inbox, outbox))
            process.start()
            x = torch.arange(6.0, device="tpu").view(2, 3)
            inbox.put((x, torch.nn.Parameter(torch.ones(2, device="tpu"))))
            doubled, parameter = outbox.get(timeout=100)
            assert doubled.is_tpu and torch.equal(doubled.cpu(), x.cpu() * 2)
            assert parameter.cpu().tolist() == [2, 2]
            inbox.put(None)
            process.join(60)
            assert process.exitcode == 0
            try:
                context.SimpleQueue().put((x * torch.ones(2, 3, device="tpu").requires_grad_()))
                raise AssertionError("no error")
            except RuntimeError as error:
                assert "detach()" in str(error)
        """
    )
