"""Trains a small ResNet on scikit-learn's handwritten digits (1,797 real images of 8 by 8) to above 97 % accuracy.

python examples/resnet_digits.py                 # on device "tpu"; the first losses are compared with plain CPU's
python examples/resnet_digits.py --device cpu
"""

import argparse
import copy
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


class Residual(nn.Module):
    def __init__(self, channels_in, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = nn.Sequential(
            Residual(width, width), Residual(width, 2 * width, stride=2), Residual(2 * width, 4 * width, stride=2)
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean(dim=(2, 3)))


def datasets():
    """Training images and, the same for everyone, a fifth kept for testing."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test = len(labels) // 5
    return [TensorDataset(images[part], labels[part]) for part in (order[test:], order[:test])]


class Trainer:
    def __init__(self, model, device, options, steps):
        self.device = device
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=options.lr, total_steps=steps)
        self.losses = []

    def step(self, images, labels):
        images = images.to(self.device, non_blocking=True)
        labels = labels.to(self.device, non_blocking=True)
        loss = F.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.losses.append(loss.detach())  # read later: the device runs ahead

    @torch.no_grad()
    def accuracy(self, loader):
        self.model.eval()
        right = sum((self.model(x.to(self.device)).argmax(1) == y.to(self.device)).sum() for x, y in loader)
        self.model.train()
        return right.item() / len(loader.dataset)


def train(options):
    torch.manual_seed(options.seed)
    training, test = datasets()
    pinned = torch.device(options.device).type != "cpu"
    loader = DataLoader(
        training,
        options.batch,
        shuffle=True,
        drop_last=True,
        pin_memory=pinned,
        num_workers=options.workers,
        generator=torch.Generator().manual_seed(options.seed),
    )
    test_loader = DataLoader(test, len(test))
    model = ResNet(options.width)
    steps = options.epochs * len(loader)
    compared = [Trainer(copy.deepcopy(model), "cpu", options, steps)] if options.compare else []
    trainer = Trainer(model, options.device, options, steps)

    with tqdm(total=steps, unit="step", mininterval=0.5) as bar:
        for _ in range(options.epochs):
            for batch in loader:
                trainer.step(*batch)
                for other in compared:
                    if len(other.losses) < options.compare_steps:
                        other.step(*batch)
                bar.update()
            bar.set_postfix(loss=f"{trainer.losses[-1].item():.3f}")
    return trainer, compared, trainer.accuracy(test_loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="DataLoader processes")
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, help="train on plain CPU PyTorch too")
    parser.add_argument("--compare-steps", type=int, default=20, metavar="N", help="how many steps of it")
    options = parser.parse_args()
    if options.compare is None:
        options.compare = options.device != "cpu"

    start = time.perf_counter()
    trainer, compared, accuracy = train(options)
    print(f"{len(trainer.losses)} steps in {time.perf_counter() - start:.1f} s on {options.device}")
    print(f"test accuracy {accuracy:.2%}")
    good = accuracy > 0.97
    for other in compared:
        pairs = [(a.item(), b.item()) for a, b in zip(trainer.losses, other.losses)]
        difference = max(abs(a - b) / b for a, b in pairs)
        print(f"first {len(pairs)} losses differ from {other.device}'s by {difference:.1e} at most (relative)")
        good &= difference < 1e-4
    sys.exit(0 if good else "\nnot as it should be: see above")


if __name__ == "__main__":
    main()
