"""An ordinary DistributedDataParallel program that knows nothing of Rubato.

    ddp.py FOLDER STEPS

Fits a small network, writes FOLDER/checkpoint.pt when it gets SIGTERM and every few steps, and goes on
from there when it is started again. Rank 0 adds a line {step, loss, world} to FOLDER/steps.jsonl for
every step.
"""

import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH = 48  # of all ranks together: divisible by 1, 2 and 3
EVERY = 25  # steps between two checkpoints


def batch_of(step, rank, world):
    """The rank's part of the step's batch. The whole batch depends only on the step, not on the world size."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, 8, generator=generator)
    targets = inputs.sin().sum(dim=1, keepdim=True)
    return inputs[rank::world], targets[rank::world]


def save(folder, model, optimizer, step):
    whole = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(whole, folder / "checkpoint.part")
    os.replace(folder / "checkpoint.part", folder / "checkpoint.pt")


def main():
    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    asked_to_end = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.append(True))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if (folder / "checkpoint.pt").exists():
        found = torch.load(folder / "checkpoint.pt")
        model.module.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        step = found["step"]

    while step < steps:
        inputs, targets = batch_of(step, rank, world)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        # Signals reach the ranks at different steps. All ranks must end after the same step.
        words = torch.tensor([float(bool(asked_to_end)), loss.item()])
        dist.all_reduce(words)
        if rank == 0:
            if words[0] > 0 or step % EVERY == 0 or step == steps:
                save(folder, model, optimizer, step)
            with open(folder / "steps.jsonl", "a", encoding="utf-8") as log:
                line = {"step": step, "loss": words[1].item() / world, "world": world}
                log.write(json.dumps(line) + "\n")
        if words[0] > 0:
            break
        time.sleep(0.02)  # as if the network were larger
    if rank == 0:
        print(f"at step {step} of {steps}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
