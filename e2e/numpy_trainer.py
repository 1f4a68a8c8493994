"""A linear regression in numpy, for python.py. It waits as trainer.py does."""

import pathlib
import sys
import time

import numpy

import rubato.numpy as rn

SAMPLES = 400
generator = numpy.random.default_rng(3)
X = generator.normal(size=(SAMPLES, 8)).astype(numpy.float32)
Y = X @ generator.normal(size=(8, 2)).astype(numpy.float32)
seen = {"step": 0}


def wait_at_gate(step):
    try:
        while step > int(pathlib.Path("open").read_text(encoding="utf-8")):
            pathlib.Path("waits").write_text(str(step), encoding="utf-8")
            time.sleep(0.005)
    except FileNotFoundError:  # no limit
        return


def gradient(indices, random):
    wait_at_gate(seen["step"] + 1)
    noise = random.normal(size=(len(indices), 2)).astype(numpy.float32)
    error = X[indices] @ weight + bias - Y[indices] + 0.01 * noise
    return float((error ** 2).mean()), {"weight": X[indices].T @ error / error.size, "bias": error.mean(0) / 2}


def update(value, slope, state, step):
    momentum = state.setdefault("momentum", numpy.zeros_like(value))
    momentum *= 0.9
    momentum += slope
    value -= 0.1 * momentum
    seen["step"] = step


weight = numpy.zeros((8, 2), numpy.float32)
bias = numpy.zeros(2, numpy.float32)
rn.train({"weight": weight, "bias": bias}, gradient, update, samples=SAMPLES, batch=40, epochs=10)
print("torch was not loaded" if "torch" not in sys.modules else "torch was loaded")
