"""One worker of `bench/python.py step` and `resize`: the model of examples/wide in Python.

    python_step.py KIND[:PARTS] PARAMETERS STEPS      KIND: ddp (torch's DistributedDataParallel on gloo), gloo (rubato.torch
                                                      on a process group), or exact (rubato.torch). A batch is computed in
                                                      so many parts, two by default

If SPENT is set, it makes STEPS steps with two workers, and writes to SPENT.PID the processor seconds of this process
after each of them, as JSON. Otherwise it makes STEPS steps."""

import contextlib
import json
import os
import resource
import sys

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from elastic_torchrun import CLASSES, POINT_SIZE, wide

KIND, _, PARTS = sys.argv[1].partition(":")
PARTS, PARAMETERS, STEPS = int(PARTS or 2), int(sys.argv[2]), int(sys.argv[3])
BATCH = 64
spent = []


def note_step(result=None):
    if result is not None and result.workers != 2:
        return  # the other one has not joined yet
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent.append(used.ru_utime + used.ru_stime)


def train_with_ddp(model, data):
    """Gradients of several parts are added up before they are reduced, as programs do whose batch is too large."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.SGD(parallel.parameters(), lr=0.01, momentum=0.9)
    parts = PARTS // dist.get_world_size()  # of this worker
    loader = DataLoader(data, batch_size=BATCH // PARTS, sampler=DistributedSampler(data))
    while len(spent) < STEPS:
        for i, (x, y) in enumerate(loader):
            last = i % parts == parts - 1
            with contextlib.nullcontext() if last else parallel.no_sync():
                loss = functional.cross_entropy(parallel(x), y) / parts
                loss.backward()
            if not last:
                continue
            opt.step()
            opt.zero_grad()
            note_step()
            if len(spent) == STEPS:
                break


def train_with_rubato(model, data):
    import rubato.torch as rt
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model, opt, loader = rt.prepare(model, opt, DataLoader(data, batch_size=BATCH, shuffle=True), reduction=KIND,
                                    virtual_workers=PARTS)
    counts = "SPENT" in os.environ
    if counts:
        rt.on_step(note_step)
    for _ in rt.epochs(steps=1_000_000_000 if counts else STEPS):
        for x, y in loader:
            if counts and len(spent) >= STEPS:
                rt.stop()
            loss = functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            rt.log(loss=loss)


def main():
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(16 * BATCH, POINT_SIZE), torch.randint(CLASSES, (16 * BATCH,)))
    (train_with_ddp if KIND == "ddp" else train_with_rubato)(wide(PARAMETERS), data)
    if "SPENT" in os.environ:
        with open(f"{os.environ['SPENT']}.{os.getpid()}", "w", encoding="ascii") as file:
            json.dump(spent, file)


if __name__ == "__main__":
    main()
