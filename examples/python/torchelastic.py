"""torchelastic_plain.py, resized without a restart: rubato run --workers 1:4 -- python3 torchelastic.py

Five lines are new. What served restarts has gone: the process group, the sampler, and the code that saves and loads."""

import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import rubato.torch as rt
from digits import Digits

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
torch.manual_seed(1)
loader = DataLoader(Digits(512), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, opt, loader = rt.prepare(model, opt, loader, checkpoint="saved")
for epoch in rt.epochs(EPOCHS):
    for x, y in loader:
        loss = functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        rt.log(loss=loss)
    if rt.rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f} with {rt.world_size()} workers", flush=True)
