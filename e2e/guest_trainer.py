"""A linear regression in numpy for two jobs on the same GPU (live.py). Each step takes STEP seconds of sleep.

    STEP=SECONDS      how long a step takes
    MARK=FILE         each step touches this file
    DISTURBED=FILE    while this file was touched in the last half second, a step takes five times as long
    IDLE=FILE         while this file exists, the program waits before its next step
"""

import os
import pathlib
import time

import numpy

import rubato.numpy as rn

STEP = float(os.environ.get("STEP", "0.03"))
X = numpy.random.default_rng(3).normal(size=(400, 8)).astype(numpy.float32)
Y = X @ numpy.ones((8, 2), numpy.float32)
weight = numpy.zeros((8, 2), numpy.float32)


def path(variable):
    return pathlib.Path(os.environ[variable]) if variable in os.environ else None


def touched(file):
    try:
        return file is not None and time.time() - file.stat().st_mtime < 0.5
    except FileNotFoundError:
        return False


def gradient(indices, random):  # pylint: disable=unused-argument
    while path("IDLE") is not None and path("IDLE").exists():
        time.sleep(0.01)
    if path("MARK") is not None:
        path("MARK").touch()
    time.sleep(STEP * (5 if touched(path("DISTURBED")) else 1))
    error = X[indices] @ weight - Y[indices]
    return float((error ** 2).mean()), {"weight": X[indices].T @ error / error.size}


def update(value, slope, state, step):  # pylint: disable=unused-argument
    value -= 0.1 * slope


rn.train({"weight": weight}, gradient, update, samples=400, batch=40, steps=10**7, virtual_workers=1)
