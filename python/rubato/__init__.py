"""Rubato for Python.

rubato.torch makes a PyTorch program elastic, and rubato.numpy a program that computes its gradients itself. Both are
one code with the C++ trainers: librubato.so (rubato/c/rubato.h). rubato.Client submits and watches jobs of a cluster.
docs/python.md has a tutorial.
"""

from rubato.client import Client, Error

__version__ = "0.1.0"
__all__ = ["Client", "Error"]
