"""Rubato for Python.

rubato.torch makes a PyTorch program elastic, and rubato.numpy a program that computes its gradients itself. Both are
one code with the C++ trainers: librubato.so (rubato/c/rubato.h). rubato.Client submits and watches jobs of a cluster,
and rubato.simulate compares policies on a trace, also policies in Python (rubato.Policy).
docs/python-tutorial.md is a first walk.
"""

from rubato.checking import check
from rubato.client import Client, Error
from rubato.environment import Environment
from rubato.evaluation import Scores, evaluate
from rubato.policy import Decision, Policy, fit
from rubato.simulation import Simulation, Trace, simulate

__version__ = "0.1.0"
__all__ = ["Client", "Decision", "Environment", "Error", "Policy", "Scores", "Simulation", "Trace", "check", "evaluate",
           "fit", "simulate"]
