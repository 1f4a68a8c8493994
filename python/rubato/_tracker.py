"""Trackers of experiments (Weights & Biases, TensorBoard), told by whoever leads the job at the time."""

import atexit
import collections
import hashlib
import os
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

Opener = Callable[[int], Any]
_KEPT = 8  # steps that every worker remembers: a leader that dies may not have told the last ones


def run_id() -> Optional[str]:
    """Out of the job's token, which is a secret."""
    token = os.environ.get("RUBATO_TOKEN")
    return "rubato-" + hashlib.sha256(token.encode()).hexdigest()[:16] if token else None


def name_run() -> None:
    """Workers that lead one after the other write to one run of Weights & Biases, unless the program says otherwise."""
    name = run_id()
    if name is not None:
        os.environ.setdefault("WANDB_RUN_ID", name)
        os.environ.setdefault("WANDB_RESUME", "allow")


class _Scalars:
    """A SummaryWriter of TensorBoard, or anything with its methods."""

    def __init__(self, writer: Any):
        self._writer = writer

    def log(self, metrics: Dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def resized(self, workers: int, step: int) -> None:
        self._writer.add_scalar("workers", workers, step)
        self._writer.add_text("resize", f"{workers} workers from step {step} on", step)

    def close(self) -> None:
        self._writer.close()


class _Run:
    """A run of Weights & Biases, or anything with its methods."""

    def __init__(self, run: Any):
        self._run = run

    def log(self, metrics: Dict[str, float], step: int) -> None:
        self._run.log(metrics, step=step)

    def resized(self, workers: int, step: int) -> None:
        self._run.log({"workers": workers}, step=step)

    def close(self) -> None:
        self._run.finish()


def _adapted(tracker: Any) -> Any:
    if hasattr(tracker, "add_scalar"):
        return _Scalars(tracker)
    if hasattr(tracker, "log") and hasattr(tracker, "finish"):
        return _Run(tracker)
    raise TypeError(f"a tracker is a {type(tracker).__name__}: it must have add_scalar() and add_text(), as TensorBoard's "
                    "SummaryWriter has, or log() and finish(), as a run of Weights & Biases has")


class Trackers:
    """Those of a program. Only the leader has them open."""

    def __init__(self) -> None:
        self._openers: List[Opener] = []
        self._open: Optional[List[Any]] = None
        self._steps: Deque[Tuple[int, int, Dict[str, float]]] = collections.deque(maxlen=_KEPT)
        self._workers: Optional[int] = None  # as the trackers know it

    def add(self, opener: Opener) -> None:
        name_run()
        if not self._openers:
            atexit.register(self.close)
        self._openers.append(opener)

    def step(self, step: int, workers: int, metrics: Dict[str, float], leader: bool) -> None:
        """After each step, on every worker."""
        self._steps.append((step, workers, metrics))
        if not leader:
            self.close()
        elif self._openers:
            if self._open is None:
                first = self._steps[0][0]
                self._open, self._workers = [_adapted(opener(first)) for opener in self._openers], None
            for each in self._steps:
                self._tell(*each)
            self._steps.clear()

    def _tell(self, step: int, workers: int, metrics: Dict[str, float]) -> None:
        for tracker in self._open or []:
            if workers != self._workers:
                tracker.resized(workers, step)
            tracker.log(metrics, step)
        self._workers = workers

    def close(self) -> None:
        trackers, self._open = self._open or [], None
        for tracker in trackers:
            tracker.close()
