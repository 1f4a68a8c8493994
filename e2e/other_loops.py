"""Loops that differ from that of trainer.py, for python.py: the first argument names one.

They wait as trainer.py does."""

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
    """A schedule by epochs, samples in order, no short batch, and a frozen layer."""
    model = net()
    model[0].bias.requires_grad_(False)
    opt = torch.optim.RMSprop([p for p in model.parameters() if p.requires_grad], lr=0.003)
    sched = torch.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)
    model, opt, sched, loader = rt.prepare(
        model, opt, sched, DataLoader(DATA, batch_size=40, shuffle=False, drop_last=True), schedule="epoch")
    for epoch in rt.epochs(8):
        for x, y in loader:
            wait_at_gate(rt._training.leaf.step)
            loss = functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
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
    scaler = rt.GradScaler(init_scale=2.0 ** 127, growth_interval=30)
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


if __name__ == "__main__":
    globals()[sys.argv[1]]()
