"""The trainer that bench/elastic.py gives to torchrun: the model of examples/wide, from a checkpoint.

It has twenty-five million parameters in square matrices, SGD with momentum, a batch of 64 over all
workers, and gloo. When torchrun restarts it with other workers, all stop after the same step, and rank
0 saves the state. So no step is lost, which is the best that restarting can do.
"""

import argparse
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

POINT_SIZE = 64
CLASSES = 10


def wide(parameters=25_000_000, depth=6):
    width = int((parameters / depth) ** 0.5)
    layers = [torch.nn.Linear(POINT_SIZE, width), torch.nn.ReLU()]
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, CLASSES))


def save(path, step, model, optimizer):
    content = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(content, path + ".new")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()

    asked_to_stop = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_stop.append(number))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    if os.path.exists(arguments.checkpoint):
        content = torch.load(arguments.checkpoint)
        step = content["step"]
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
    parallel = DistributedDataParallel(model, bucket_cap_mb=8)
    log = open(arguments.log, "a", encoding="utf-8") if rank == 0 else None

    share = range(rank * arguments.batch // world, (rank + 1) * arguments.batch // world)
    while step < arguments.steps:
        step += 1
        generator = torch.Generator().manual_seed(step)
        data = torch.randn(arguments.batch, POINT_SIZE, generator=generator)
        target = torch.randint(CLASSES, (arguments.batch,), generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(data[share.start:share.stop]),
                                                 target[share.start:share.stop])
        loss.backward()
        optimizer.step()
        if log is not None:
            log.write(json.dumps({"step": step, "workers": world, "pid": os.getpid(),
                                  "applied_at": time.monotonic()}) + "\n")
            log.flush()
        stops = torch.tensor([len(asked_to_stop)])
        dist.all_reduce(stops)
        if stops.item() > 0:
            if rank == 0:
                save(arguments.checkpoint, step, model, optimizer)
            dist.barrier()
            # Not 0: that would mean that the training is complete.
            sys.exit(1)


if __name__ == "__main__":
    main()
