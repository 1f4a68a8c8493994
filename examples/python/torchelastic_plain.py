"""An ordinary program for torchrun. Rubato runs it unchanged, and starts it again at every resize, from its checkpoint:

    rubato run --workers 1:4 --mode restart -- python3 torchelastic_plain.py

torchelastic.py is the same program, resized without a restart."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from digits import Digits

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
dist.init_process_group("gloo")
torch.manual_seed(1)
data = Digits(512)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=64 // dist.get_world_size(), sampler=sampler)
model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
done = 0
if os.path.exists("model.pt"):
    saved = torch.load("model.pt")
    model.load_state_dict(saved["model"])
    opt.load_state_dict(saved["opt"])
    done = saved["epochs"]
for epoch in range(done, EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epochs": epoch + 1}, "model.pt.new")
        os.replace("model.pt.new", "model.pt")
        print(f"epoch {epoch}: loss {loss.item():.3f} with {dist.get_world_size()} workers", flush=True)
