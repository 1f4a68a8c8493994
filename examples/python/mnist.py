"""mnist_plain.py, elastic: rubato run --workers 1:4 -- python3 mnist.py"""

import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import rubato.torch as rt
from digits import Digits

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
torch.manual_seed(1)
model = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(Digits(4000), batch_size=64, shuffle=True)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * len(loader))
model, opt, sched, loader = rt.prepare(model, opt, sched, loader)
for epoch in rt.epochs(EPOCHS):
    for x, y in loader:
        loss = functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        rt.log(loss=loss)

model.eval()
test = torch.utils.data.Subset(Digits(5000), range(4000, 5000))
with torch.no_grad():
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, batch_size=200))
if rt.rank() == 0:
    print(f"{right / 10:.1f}% right")
