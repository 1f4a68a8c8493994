"""One trial of a search for a learning rate: a small network in numpy that learns one rate from its command line.

    for rate in 0.001 0.01 0.03 0.1; do
      rubato submit --gpus 1 --search rate:trials=4:epochs=5 -- python3 examples/python/trial.py $rate
    done

After 5 epochs, the better two go on; after 10, the better one does. `rubato status` says why the others were stopped.
"""

import sys

import numpy

import rubato.numpy as rn

SAMPLES, INPUTS, HIDDEN = 4000, 128, 256
generator = numpy.random.default_rng(1)
X = generator.normal(size=(SAMPLES, INPUTS)).astype(numpy.float32)
TRUTH = generator.normal(size=(INPUTS, 1)).astype(numpy.float32) / numpy.sqrt(INPUTS)
Y = numpy.tanh(X @ TRUTH)
RATE = float(sys.argv[1])
EPOCHS = int(sys.argv[2]) if len(sys.argv) > 2 else 40

weights = {"first": (generator.normal(size=(INPUTS, HIDDEN)) / numpy.sqrt(INPUTS)).astype(numpy.float32),
           "second": numpy.zeros((HIDDEN, 1), numpy.float32)}


def gradient(indices, _random):
    x, y = X[indices], Y[indices]
    hidden = numpy.maximum(x @ weights["first"], 0)
    error = hidden @ weights["second"] - y
    back = (error @ weights["second"].T) * (hidden > 0)
    return float((error ** 2).mean()), {"first": x.T @ back / len(indices), "second": hidden.T @ error / len(indices)}


def update(value, slope, _state, _step):
    value -= RATE * slope


rn.train(weights, gradient, update, samples=SAMPLES, batch=200, epochs=EPOCHS)
