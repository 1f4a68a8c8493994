"""A PyTorch program for python.py. It waits and fails as its environment says, like examples/faulty.cc.

    MODEL=mlp|norm|dropout   OPTIMIZER=SGD|AdamW|NAdam   EPOCHS=N   SAMPLES=N   LOADERS=N (processes of the DataLoader)
    PACE=SECONDS      each leaf takes so much longer
    AFTER=SECONDS     what the program does after its training takes so long
    REDUCTION=exact|gloo
    TRACK=1           trackers write what they are told to track-*.jsonl
    CHECKPOINT_STEPS=N | CHECKPOINT_EVERY=TEXT | SAVE_AT=STEP      when checkpoints are written
    STREAM=1          the data set is an IterableDataset that can begin anywhere
    FAULT=throw:STEP | sync | iterable | nostep | clip | break
    FAULT=gil         worker 1 keeps Python's lock while its state goes to worker 2; needs a FIFO named arrived
    DIE=late:STEP | reduced:STEP | forming      with REDUCTION=gloo: worker 2 dies while the others wait for it in a step,
                                                after it has summed but before it says so, or while a group is formed

If the working directory has a file `open`, nobody computes a step beyond the number in it. Whoever waits for it writes
the step into the file `waits`, and `noticed-WORKER` if it is told to leave meanwhile. So a script can resize and kill at
a known step.
"""

import ctypes
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset

import rubato.torch as rt
from rubato import _group, _native

FAULT, _, AT = os.environ.get("FAULT", "").partition(":")
EPOCHS = int(os.environ.get("EPOCHS", "4"))
WIDE = int(os.environ.get("WIDE", "64"))
seen = {"step": 0}


class Points(Dataset):
    """Two arms of a spiral, with noise that the data set draws, as an augmentation does."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        arm, angle = index % 2, 6.0 * (index // 2) / self.samples
        at = torch.tensor([angle + 3.14159 * arm])
        point = torch.cat([torch.cos(at), torch.sin(at)]) * angle + 0.05 * torch.randn(2)
        return point, arm


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Points(10))


class Anywhere(Stream):
    """A stream that can begin anywhere."""

    def __init__(self, samples):
        self.points = Points(samples)

    def __len__(self):
        return len(self.points)

    def from_sample(self, index):
        return (self.points[i] for i in range(index, len(self)))


class Track:
    """It writes what it is told to a file of this worker."""

    def __init__(self, kind, step):
        self.file = open(f"track-{kind}-{os.environ.get('RUBATO_WORKER', '0')}.jsonl", "w", encoding="utf-8")
        self.write("opened", os.environ.get("WANDB_RUN_ID"), step)

    def write(self, name, value, step):
        print(json.dumps([name, value, step]), file=self.file, flush=True)

    def close(self):
        self.write("closed", None, None)
        self.file.close()


class Board(Track):
    """With the methods of TensorBoard's SummaryWriter."""

    def __init__(self, step):
        super().__init__("board", step)

    def add_scalar(self, name, value, step):
        self.write(name, value, step)

    add_text = add_scalar


class WandbRun(Track):
    """With the methods of a run of Weights & Biases."""

    def __init__(self, step):
        super().__init__("run", step)

    def log(self, values, step):
        for name, value in values.items():
            self.write(name, value, step)

    finish = Track.close


def make_model(name):
    layers = [nn.Linear(2, WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, 2)]
    if name == "norm":
        layers.insert(1, nn.BatchNorm1d(WIDE))
    if name == "dropout":
        layers.insert(2, nn.Dropout(0.2))
    if FAULT == "sync":
        layers.insert(1, nn.SyncBatchNorm(WIDE))
    return nn.Sequential(*layers)


def make_optimizer(name, model):
    settings = {"SGD": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}, "AdamW": {"lr": 0.003},
                "NAdam": {"lr": 0.003}}[name]
    return getattr(torch.optim, name)(model.parameters(), **settings)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arrange_death():
    """Worker 2 dies where DIE says."""
    how, _, at = os.environ.get("DIE", "").partition(":")
    if not how or os.environ.get("RUBATO_WORKER") != "2":
        return
    if how == "forming":
        plain_set = _group._Board.set

        def set_and_die(board, key, value):
            plain_set(board, key, value)
            time.sleep(0.3)  # the others read it
            die()
        _group._Board.set = set_and_die
        return
    plain = rt._training.reduce

    def reduce(group, address, floats):
        step = seen["step"] + 1
        if how == "late" and step == int(at):
            time.sleep(0.5)
            die()
        done = plain(group, address, floats)
        if how == "reduced" and step == int(at):
            die()
        return done
    rt._training.reduce = reduce


def keep_lock():
    """Worker 1 keeps Python's lock from before any of its state is sent until all of it has arrived at worker 2. Functions
    of a PyDLL keep the lock, also while they wait. So nothing that needs Python can move the state."""
    library, training, sizes = _native.library, rt._training, []
    plain, keeping = library.rubato_next, ctypes.PyDLL(library._name).rubato_next
    keeping.restype, keeping.argtypes = plain.restype, plain.argtypes
    open_fifo = ctypes.PyDLL(None).open

    def chunk(index):
        part = type(training).chunk(training, index)
        sizes.append(sum(size for _, size in part.pieces))
        if len(sizes) == training.chunk_count():
            pathlib.Path("state-bytes.new").write_text(str(sum(sizes)))
            os.rename("state-bytes.new", "state-bytes")
            sys.setswitchinterval(3600)  # Python does not pass the lock on between two functions
        return part

    def next_task(*arguments):
        there = keeping(*arguments)
        if len(sizes) == training.chunk_count():  # the library has begun to send them
            arrived = open_fifo(b"arrived", os.O_RDONLY)  # returns when worker 2 has opened it, too
            del training.chunk
            library.rubato_next = plain
            sys.setswitchinterval(0.005)
            os.close(arrived)
            print(f"worker 1 kept the lock in step {seen['step'] + 1} until {sum(sizes)} bytes had arrived", flush=True)
        return there
    training.chunk, library.rubato_next = chunk, next_task


def tell_arrival():
    """Worker 2 opens the FIFO when it has received as many bytes as the state has."""
    said = pathlib.Path("state-bytes")
    while not said.exists() or most_received() < int(said.read_text()):
        time.sleep(0.01)
    with open("arrived", "w", encoding="ascii"):
        pass


def most_received():
    """Bytes that this process has received on one of its connections, the one with the most."""
    most, libc = 0, ctypes.CDLL(None)
    for descriptor in os.listdir("/proc/self/fd"):
        info = (ctypes.c_uint64 * 17)()  # struct tcp_info; the last one is tcpi_bytes_received
        size = ctypes.c_uint32(ctypes.sizeof(info))
        if libc.getsockopt(int(descriptor), socket.IPPROTO_TCP, socket.TCP_INFO, info, ctypes.byref(size)) == 0:
            most = max(most, info[16])
    return most


def arrange_lock():
    if os.environ["RUBATO_WORKER"] == "1":
        keep_lock()
    else:
        threading.Thread(target=tell_arrival, daemon=True).start()


def wait_at_gate(step):
    said = False
    while True:
        try:
            if step <= int(pathlib.Path("open").read_text()):
                return
        except FileNotFoundError:
            return
        if not said:
            pathlib.Path("waits").write_text(str(step))
            said = True
        if rt.notice():
            pathlib.Path(f"noticed-{os.environ.get('RUBATO_WORKER', '0')}").touch()
        time.sleep(0.005)


def say_warm_up(*_):
    if not rt._training.working:
        print(f"worker {os.environ['RUBATO_WORKER']} computes before it has joined", flush=True)


def main():
    torch.manual_seed(1)
    samples = int(os.environ.get("SAMPLES", "1003"))
    data = Stream() if FAULT == "iterable" else Anywhere(samples) if os.environ.get("STREAM") else Points(samples)
    loader = DataLoader(data, batch_size=48, shuffle=None if isinstance(data, Stream) else True,
                        num_workers=int(os.environ.get("LOADERS", "0")))
    model = make_model(os.environ.get("MODEL", "mlp"))
    opt = make_optimizer(os.environ.get("OPTIMIZER", "SGD"), model)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100)
    model, opt, sched, loader = rt.prepare(model, opt, sched, loader, clip_norm=0.5, seed=5, metrics=["right"],
                                           digest_steps=int(os.environ.get("DIGEST_STEPS", "100")),
                                           reduction=os.environ.get("REDUCTION", "exact"))
    average = torch.optim.swa_utils.AveragedModel(model)
    model.register_forward_pre_hook(say_warm_up)
    rt.register(average=average)
    arrange_death()
    if FAULT == "gil":
        arrange_lock()
    if os.environ.get("TRACK"):
        rt.tracker(Board)
        rt.tracker(WandbRun)

    @rt.on_step
    def _(result):
        average.update_parameters(model)
        if FAULT == "gil" and seen["step"] == 0:
            print(f"worker {os.environ['RUBATO_WORKER']} has the whole state in step {result.step}", flush=True)
        seen["step"] = result.step
        if os.environ.get("WATCH") and result.leader and result.step % 10 == 0:
            print(f"{result}", flush=True)

    @rt.on_resize
    def _():
        print(f"worker {rt.rank()} of {rt.world_size()}", flush=True)

    if "CHECKPOINT_STEPS" in os.environ:
        rt.checkpoint(steps=int(os.environ["CHECKPOINT_STEPS"]), every=0)
    if "CHECKPOINT_EVERY" in os.environ:
        rt.checkpoint(every=os.environ["CHECKPOINT_EVERY"])
    for epoch in rt.epochs(EPOCHS):
        for x, y in loader:
            step = rt._training.leaf.step
            wait_at_gate(step)
            time.sleep(float(os.environ.get("PACE", "0")))
            if FAULT == "throw" and step == int(AT):
                raise ArithmeticError("this body was asked to fail")
            logits = model(x)
            loss = functional.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            if FAULT == "clip":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if FAULT != "nostep":
                opt.step()
                sched.step()
            rt.log(loss=loss)
            if step == int(os.environ.get("SAVE_AT", "0")):
                rt.checkpoint()
            if step % 5 == 0:
                rt.log(right=(logits.argmax(1) == y).float().mean())
        if FAULT == "break" and epoch == 1:
            break
    time.sleep(float(os.environ.get("AFTER", "0")))
    if rt.rank() == 0:
        print(f"trained {seen['step']} steps", flush=True)


if __name__ == "__main__":
    main()
