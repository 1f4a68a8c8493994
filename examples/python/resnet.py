"""resnet_plain.py, elastic: rubato run --workers 1:4 -- python3 resnet.py"""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import rubato.torch as rt
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
model, opt, sched, loader = rt.prepare(model, opt, sched, loader, clip_norm=1.0, schedule="epoch")
for epoch in rt.epochs(3):
    for x, y in loader:
        loss = functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        rt.log(loss=loss)
    sched.step()
