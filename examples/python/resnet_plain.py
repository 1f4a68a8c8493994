"""A small residual network with batch norm on one device. resnet.py is the same program, elastic."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from digits import Digits


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
                                  nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(channels))

    def forward(self, x):
        return functional.relu(x + self.body(x))


torch.manual_seed(1)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1), Block(16), nn.Conv2d(16, 32, 3, stride=2, padding=1), Block(32),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
opt = torch.optim.AdamW(model.parameters(), lr=0.003)
loader = DataLoader(Digits(2000), batch_size=64, shuffle=True, drop_last=True)
sched = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.7)

for epoch in range(3):
    for x, y in loader:
        loss = functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    sched.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
