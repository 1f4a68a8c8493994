"""Elastic training of a program that computes its gradients itself, with numpy and without torch.

    import rubato.numpy as rn
    rn.train({"weight": w}, gradient, update, samples=len(x), batch=64, epochs=10)

docs/python.md has an example.
"""

import ctypes
import json
from typing import Any, Callable, Dict, List, Optional

import numpy

from rubato import _job, _native
from rubato._job import Chunk, Job, Refused, held


class _Training(_job.Model):
    def __init__(self, parameters: Dict[str, Any], gradient: Callable[..., Any], update: Callable[..., None]):
        self.parameters, self.gradient, self.update = parameters, gradient, update
        self.names = list(parameters)
        self.state: Dict[str, Dict[str, Any]] = {name: {} for name in self.names}
        self.job: Any = None
        self.kept: List[Any] = []
        self.losses: List[float] = []

    def compute(self, leaf: _job.Leaf) -> None:
        loss, gradients = self.gradient(leaf.indices, numpy.random.default_rng(leaf.seed))
        for index, (name, value) in enumerate(self.parameters.items()):
            if name not in gradients:
                continue
            array = numpy.ascontiguousarray(gradients[name], numpy.float32)
            if array.shape != value.shape or not self.job.gradient(index, array.ctypes.data, array.size):
                raise ValueError(f"the gradient of {name} has shape {array.shape}, the parameter {value.shape}")
        tail = numpy.array([loss * leaf.weight], numpy.float32)
        self.job.leaf_done(tail.ctypes.data, 1)

    def warm_up(self, leaf: _job.Leaf) -> None:
        try:
            self.compute(leaf)
        except Exception:  # pylint: disable=broad-except
            pass  # what is wrong with a real leaf is said there

    def chunk(self, index: int) -> Chunk:
        name = self.names[index]
        arrays = {"": self.parameters[name], **self.state[name]}
        described = [[key, array.dtype.str, list(array.shape)] for key, array in arrays.items()]
        memory = [numpy.ascontiguousarray(array) for array in arrays.values()]
        self.kept += memory
        return Chunk(json.dumps(described), [(array.ctypes.data, array.nbytes) for array in memory])

    def release(self) -> None:
        self.kept.clear()

    def load_chunk(self, index: int, head: str, body: memoryview) -> None:
        name, at = self.names[index], 0
        arrays: Dict[str, Any] = {}
        for key, dtype, shape in json.loads(head):
            array = numpy.empty(shape, dtype)
            if array.dtype.hasobject:
                raise ValueError(f"{key} of {name} is not an array of numbers")
            array.reshape(-1).view(numpy.uint8)[:] = numpy.frombuffer(body[at:at + array.nbytes], numpy.uint8)
            arrays[key] = array
            at += array.nbytes
        if at != len(body):
            raise ValueError(f"{name}: {len(body)} bytes arrived, {at} were expected")
        self.parameters[name][...] = arrays.pop("")
        self.state[name] = arrays

    def apply(self, step: _native.Step) -> None:
        vector = numpy.frombuffer((ctypes.c_float * step.floats).from_address(step.result), numpy.float32)
        for index, name in enumerate(self.names):
            if not held(step, index):
                continue
            value = self.parameters[name]
            offset = self.job.offset(index)
            gradient = vector[offset:offset + value.size].reshape(value.shape).copy()
            self.update(value, gradient, self.state[name], step.step)
            for key, array in self.state[name].items():
                if not isinstance(array, numpy.ndarray):
                    raise TypeError(f"the state {key!r} of {name} is a {type(array).__name__}; it must be an array")
        self.losses.append(float(vector[self.job.tail_offset]))


def train(parameters: Dict[str, Any], gradient: Callable[..., Any], update: Callable[..., None], *, samples: int, batch: int,
          epochs: Optional[int] = None, steps: Optional[int] = None, virtual_workers: int = 8, seed: int = 1,
          checkpoint: Optional[str] = None, checkpoint_seconds: float = 60, shuffle: bool = True) -> List[float]:
    """Trains until the end, alone or as a worker of `rubato run`. Returns the losses of the steps that this worker has
    applied. `parameters`, a dict of float32 arrays, then holds the trained model.

    gradient(indices, random)               -> (mean loss, dict of mean gradients) of these samples; `random` is a
                                            numpy.random.Generator, the same for any number of workers
    update(value, gradient, state, step)    changes one parameter in place; `state` is a dict of arrays of its own
    """
    for name, value in parameters.items():
        if value.dtype != numpy.float32 or not value.flags.c_contiguous:
            raise Refused(f"parameter {name} must be a contiguous array of float32")
    training = _Training(parameters, gradient, update)
    options = {"samples": samples, "batch": batch, "epochs": epochs or 0, "steps": steps or 0, "shuffle": shuffle,
               "virtual_workers": virtual_workers, "seed": seed, "checkpoint": checkpoint or "",
               "checkpoint_seconds": checkpoint_seconds, "warm_up": True,
               "parameters": [value.size for value in parameters.values()], "tail": 1, "chunks": len(parameters),
               "build": f"rubato for Python 1, numpy {numpy.__version__}",
               "schema": {"optimizer": getattr(update, "__name__", "update"), "bucket_floats": 1 << 21, "buffers": [],
                          "parameters": [{"name": name, "shape": list(value.shape), "dtype": "float32",
                                          "trained": True} for name, value in parameters.items()]}}
    job = training.job = Job(training, options)
    while (leaf := job.next()) is not None:
        training.compute(leaf)
    if job.end != 0:
        raise SystemExit(job.end)
    return training.losses
