"""Loops that differ from that of trainer.py, for python.py: the first argument names one.

They wait as trainer.py does."""

import ctypes
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import rubato.torch as rt
from trainer import wait_at_gate

torch.manual_seed(2)
X = torch.randn(403, 8)
Y = (X[:, 0] * X[:, 1] > 0).long()
DATA = TensorDataset(X, Y)


def net():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))


def two_optimizers():
    """Two models with an optimizer each, and two backward passes, of which one also reaches the other's model."""
    first, second = net(), nn.Linear(2, 2)
    one = torch.optim.Adam(first.parameters(), lr=0.003)
    two = torch.optim.SGD(second.parameters(), lr=0.05)
    first, second, one, two, loader = rt.prepare(
        first, second, one, two, DataLoader(DATA, batch_size=40, shuffle=True), clip_norm=1.0)
    for _ in rt.epochs(8):
        for x, y in loader:
            wait_at_gate(rt._training.leaf.step)
            with rt.step():
                middle = first(x)
                loss = functional.cross_entropy(second(middle), y)
                loss.backward(retain_graph=True)
                second.zero_grad()
                functional.cross_entropy(middle, y).backward()
                functional.cross_entropy(second(middle.detach()), y).backward()
                one.step()
                two.step()
            rt.log(loss=loss)


def every_epoch():
    """A schedule by epochs, samples in order, no short batch, a frozen layer, and a scaler that is not enabled."""
    model = net()
    model[0].bias.requires_grad_(False)
    opt = torch.optim.RMSprop([p for p in model.parameters() if p.requires_grad], lr=0.003)
    sched = torch.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    model, opt, sched, scaler, loader = rt.prepare(
        model, opt, sched, scaler, DataLoader(DATA, batch_size=40, shuffle=False, drop_last=True), schedule="epoch")
    for epoch in rt.epochs(8):
        for x, y in loader:
            wait_at_gate(rt._training.leaf.step)
            loss = functional.cross_entropy(model(x), y)
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            rt.log(loss=loss)
        sched.step()
        assert sched.last_epoch == epoch + 1, (sched.last_epoch, epoch)
    assert abs(opt.param_groups[0]["lr"] - 0.003 / 16) < 1e-12


def one_cycle():
    """A schedule with functions in its state, and an end by stop()."""
    model = net()
    opt = torch.optim.AdamW(model.parameters(), lr=0.003)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.01, total_steps=200)
    model, opt, sched, loader = rt.prepare(model, opt, sched, DataLoader(DATA, batch_size=40, shuffle=True))
    for _ in rt.epochs(100):
        for x, y in loader:
            wait_at_gate(rt._training.leaf.step)
            loss = functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            rt.log(loss=loss)
            if rt._training.leaf.step == 80:
                rt.stop()


class Small(torch.autograd.Function):
    """Memory that is enough for three samples: the allocator throws in the forward or in the backward pass of more."""

    @staticmethod
    def forward(ctx, x, fails):
        ctx.fails = fails
        if fails == "forward" and len(x) > 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate more than this test allows")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.fails == "backward" and len(gradient) > 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate more than this test allows")
        return gradient, None


class Layer(nn.Module):
    def __init__(self, fails):
        super().__init__()
        self.fails = fails

    def forward(self, x):
        return Small.apply(x, self.fails)


def memory(fails="backward", largest_part=None):
    """A batch that does not fit is halved, and the gradients are added up. Batch norm sees the halves."""
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), Layer(fails), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    model, opt, loader = rt.prepare(model, opt, DataLoader(DATA, batch_size=40, shuffle=True, drop_last=True),
                                    largest_part=largest_part)
    for _ in rt.epochs(6):
        for x, y in loader:
            wait_at_gate(rt._training.leaf.step)
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            rt.log(loss=loss, samples=len(x))


def memory_forward():
    memory("forward")


def memory_limit():
    """Nothing fails, because no part is too large from the start."""
    memory("backward", 3)


def memory_step():
    """The same, inside of `with rt.step():`. Here the loss is what does not fit, which is no model."""
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), Layer(None), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    model, opt, loader = rt.prepare(model, opt, DataLoader(DATA, batch_size=40, shuffle=True, drop_last=True))
    for _ in rt.epochs(6):
        for x, y in loader:
            wait_at_gate(rt._training.leaf.step)
            with rt.step():
                loss = functional.cross_entropy(Small.apply(model(x), "forward"), y)
                loss.backward()
                opt.step()
                opt.zero_grad()
                rt.log(loss=loss, samples=len(x))


def scaled():
    """Losses are scaled as for fp16. The scale begins too large, so the first steps overflow."""
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    settings = {"init_scale": 2.0 ** 127, "growth_interval": 30}
    # That of torch 1 needs a GPU.
    scaler = torch.amp.GradScaler("cpu", **settings) if hasattr(torch.amp, "GradScaler") else rt.GradScaler(**settings)
    model, opt, scaler, loader = rt.prepare(model, opt, scaler, DataLoader(DATA, batch_size=40, shuffle=True),
                                            clip_norm=1.0)
    scales = []
    rt.on_step(lambda result: scales.append(scaler.get_scale()))
    for _ in rt.epochs(8):
        for x, y in loader:
            wait_at_gate(rt._training.leaf.step)
            loss = functional.cross_entropy(model(x) * 100, y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            rt.log(loss=loss)
    if rt.rank() == 0:
        print(f"the scale was {scales[0]:.3g} to {scales[-1]:.3g}", flush=True)
    assert scales[0] < 2.0 ** 127 or len(scales) < 80


def adaptive():
    """Batch and learning rate follow the gradient noise."""
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    model, opt, loader = rt.prepare(model, opt, DataLoader(DATA, batch_size=16, shuffle=True), adaptive=True)
    for _ in rt.epochs(steps=200):
        for x, y in loader:
            wait_at_gate(rt._training.leaf.step)
            loss = functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            rt.log(loss=loss)


# --- the perceptron of examples/faulty.cc, in Python ---


class Random:
    """rubato/base/random.h"""

    def __init__(self, seed):
        self.state = seed

    def split(self, stream):
        return Random(Random(self.state ^ (stream * 0xD1342543DE82EF95 + 0x2545F4914F6CDD1D) & (2**64 - 1)).next())

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        return z ^ (z >> 31)

    def uniform(self):
        return (self.next() >> 11) * 2.0**-53

    def normal(self):
        length = math.sqrt(-2 * math.log1p(-self.uniform()))
        return length * math.cos(2 * math.pi * self.uniform())


def points(samples):
    """The data set Points of examples/models.h, which another network has labelled."""
    size, hidden, classes = 64, 16, 10
    tanh = ctypes.CDLL("libm.so.6").tanhf
    tanh.restype, tanh.argtypes = ctypes.c_float, [ctypes.c_float]
    weights = Random(1).split(0)
    inner = torch.tensor([weights.normal() for _ in range(hidden * size)]) / 8
    outer = torch.tensor([weights.normal() for _ in range(hidden * classes)])
    x = torch.tensor([[random.normal() for _ in range(size)]
                      for random in (Random(1).split(i + 1) for i in range(samples))])
    scores = torch.zeros(samples, classes)
    for h in range(hidden):
        total = torch.zeros(samples)
        for i in range(size):
            total += inner[h * size + i] * x[:, i]
        squashed = torch.tensor([tanh(value) for value in total.tolist()])
        for c in range(classes):
            scores[:, c] += outer[h * classes + c] * squashed
    return TensorDataset(x, scores.argmax(1))


class Perceptron(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.first, self.middle = nn.Linear(64, width), nn.Linear(width, width)
        self.dropout, self.out = nn.Dropout(0.1), nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.dropout(torch.relu(self.middle(torch.relu(self.first(x))))))


def twin():
    torch.manual_seed(1)
    model = Perceptron()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = points(int(os.environ["SAMPLES"]))
    model, opt, loader = rt.prepare(model, opt, DataLoader(data, batch_size=44, shuffle=True))
    for _ in rt.epochs(steps=60):
        for x, y in loader:
            loss = functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            rt.log(loss=loss)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
