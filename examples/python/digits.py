"""Data made in code: grey pictures of 28 x 28 with one of ten shapes, as MNIST has digits."""

import math

import torch
from torch.utils.data import Dataset


class Digits(Dataset):
    """Shape k is a closed curve with k + 1 lobes, turned, shifted and noisy."""

    def __init__(self, samples=20_000, size=28):
        self.samples, self.size = samples, size
        line = torch.linspace(-1, 1, size)
        self.y, self.x = torch.meshgrid(line, line, indexing="ij")

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        turn, right, down, radius = torch.rand(4, generator=random).tolist()
        label = index % 10
        x, y = self.x - 0.2 * (right - 0.5), self.y - 0.2 * (down - 0.5)
        angle = torch.atan2(y, x) + 2 * math.pi * turn
        edge = (0.4 + 0.2 * radius) * (1 + 0.4 * torch.cos((label + 1) * angle))
        picture = torch.sigmoid(20 * (edge - torch.hypot(x, y)))
        return (picture + 0.1 * torch.randn(picture.shape, generator=random)).unsqueeze(0), label
