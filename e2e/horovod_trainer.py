"""A program for Elastic Horovod with one import changed, for python.py: it makes STEPS steps and waits as trainer.py does."""

import json
import os
import pathlib
import time

import torch

import rubato.horovod as hvd

STEPS = int(os.environ.get("STEPS", "60"))

hvd.init()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state):
    while state.batch < STEPS:
        x = torch.randn(24, 8, generator=torch.Generator().manual_seed(1000 * state.batch + hvd.rank()))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), x.sin().sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        state.batch += 1
        mean = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            with open("steps.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.batch, "world": hvd.size(), "loss": mean}) + "\n")
        if state.batch % 5 == 0:
            state.commit()
        while state.batch >= 20 and hvd.size() == 1 and pathlib.Path("open").exists():
            time.sleep(0.02)  # until there are more workers


def adjust():
    for group in optimizer.param_groups:
        group["lr"] = 0.05 * hvd.size()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)
state.register_reset_callbacks([adjust])
train(state)
