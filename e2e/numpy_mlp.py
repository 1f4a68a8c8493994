#!/usr/bin/env python3
"""A perceptron in numpy with the flags --steps and --batch of examples/mlp, for machines that have no libtorch
(tools/slurm_elsewhere)."""

import argparse

import numpy

import rubato.numpy as rn

INPUTS, HIDDEN, OUTPUTS, SAMPLES = 128, 1024, 4, 8192

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--batch", type=int, default=64)
options = parser.parse_args()

generator = numpy.random.default_rng(5)
X = generator.normal(size=(SAMPLES, INPUTS)).astype(numpy.float32)
Y = numpy.tanh(X @ generator.normal(size=(INPUTS, OUTPUTS)).astype(numpy.float32) / 8)
weights = {"in": generator.normal(size=(INPUTS, HIDDEN)).astype(numpy.float32) / 12,
           "out": generator.normal(size=(HIDDEN, OUTPUTS)).astype(numpy.float32) / 24}


def gradient(indices, _):
    """Of the mean square error over these samples."""
    x, y = X[indices], Y[indices]
    hidden = numpy.tanh(x @ weights["in"])
    error = hidden @ weights["out"] - y
    slope = 2 * error / error.size
    back = (slope @ weights["out"].T) * (1 - hidden ** 2)
    return float((error ** 2).mean()), {"in": x.T @ back, "out": hidden.T @ slope}


def update(value, slope, _, __):
    value -= 0.2 * slope


rn.train(weights, gradient, update, samples=SAMPLES, batch=options.batch, steps=options.steps)
