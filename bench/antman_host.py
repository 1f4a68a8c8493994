"""A small network in numpy whose input is slow: it waits INPUT seconds for each batch, then trains on it (antman.py)."""

import os
import time

import numpy

import rubato.numpy as rn

INPUT = float(os.environ.get("INPUT", "0.05"))
SAMPLES, WIDE = 4096, 256
generator = numpy.random.default_rng(3)
X = generator.normal(size=(SAMPLES, 64)).astype(numpy.float32)
Y = numpy.tanh(X @ generator.normal(size=(64, 4)).astype(numpy.float32))
first = (0.1 * generator.normal(size=(64, WIDE))).astype(numpy.float32)
second = (0.1 * generator.normal(size=(WIDE, 4))).astype(numpy.float32)


def gradient(indices, random):  # pylint: disable=unused-argument
    time.sleep(INPUT)
    x, y = X[indices], Y[indices]
    hidden = numpy.maximum(x @ first, 0)
    error = hidden @ second - y
    back = (error @ second.T) * (hidden > 0)
    return float((error ** 2).mean()), {"first": x.T @ back / error.size, "second": hidden.T @ error / error.size}


def update(value, slope, state, step):  # pylint: disable=unused-argument
    value -= 0.1 * slope


rn.train({"first": first, "second": second}, gradient, update, samples=SAMPLES, batch=2048, steps=10**7,
         virtual_workers=1)
