"""Rubato for Python.

rubato.torch makes a PyTorch program elastic, and rubato.numpy a program that computes its gradients itself. Both are
one code with the C++ trainers: librubato.so (rubato/c/rubato.h). rubato.Client submits and watches jobs of a cluster,
and rubato.simulate compares policies on a trace.
docs/python.md has a tutorial.
"""

from rubato.client import Client, Error
from rubato.simulation import Simulation, simulate

__version__ = "0.1.0"
__all__ = ["Client", "Error", "Simulation", "simulate"]
