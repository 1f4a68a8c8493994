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
