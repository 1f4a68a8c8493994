"""One worker of an elastic job. Nothing here knows torch: rubato.torch and rubato.numpy are built on it."""

import atexit
import ctypes
import json
import os
import sys
import traceback
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from rubato import _native
from rubato._native import library

# While this process waits for others, Python must be able to handle signals.
WAIT_MILLISECONDS = 100
REFUSED, JOB_FAILED = 2, 4


class Refused(ValueError):
    """The program asks for something that cannot be elastic. Another start would not help."""


class Chunk:
    """A part of the state: a short text, then pieces of memory as (address, bytes)."""

    def __init__(self, head: str, pieces: List[Tuple[int, int]]):
        self.head = head
        self.pieces = pieces


class Leaf:
    """What this worker computes next."""

    def __init__(self, task: _native.Task):
        self.place = _native.Place.from_buffer_copy(task.place)
        self.step = task.place.step
        self.epoch = task.place.epoch
        self.number = task.place.leaf
        self.weight = task.weight
        self.seed = task.seed
        self.last = bool(task.last)
        self.indices: List[int] = task.indices[:task.place.count]


class Model:
    """What a job must know about a model. Subclasses know the language of the model."""

    def chunk(self, index: int) -> Chunk:
        """Returns a Chunk. Its memory must not change before release()."""
        raise NotImplementedError

    def release(self) -> None:
        """Nobody reads the chunks any more."""

    def warm_up(self, leaf: Leaf) -> None:
        """Only with the option "warm_up": computes the leaf before others wait for this worker. Nothing of it is used."""

    def load_chunk(self, index: int, head: str, body: memoryview) -> None:
        """`body` is a memoryview of bytes, valid during the call."""
        raise NotImplementedError

    def apply(self, step: _native.Step) -> None:
        """One optimizer step with step.result (rubato_step in rubato/c/rubato.h)."""
        raise NotImplementedError

    def members(self, rank: int, size: int) -> None:
        """The members of the job have changed."""

    def reduce(self, group: _native.Group, address: int, floats: int) -> bool:
        """Only with the option "group": sums over the workers of rubato_group. False: the group is broken."""
        raise NotImplementedError

    def interrupted(self) -> None:
        """The step is given up, and its group as well."""


def held(step: _native.Step, chunk: int) -> bool:
    """Whether this worker has a chunk of the state, so that the step applies to it."""
    return not step.held or bool(step.held[chunk])


class Job:
    """A worker's part in a job. It is for the main thread."""

    current: Optional["Job"] = None  # a process has one

    def __init__(self, model: Model, options: Dict[str, Any]):
        if Job.current is not None:
            raise RuntimeError("this process already trains; a process can be a worker of one job only")
        self._model = model
        self._raised: Optional[BaseException] = None
        self._task = _native.Task()
        self.end: Optional[int] = None  # the exit code
        self._functions = _native.Model(
            None, _native.CHUNK(self._guarded(self._chunk)), _native.RELEASE(self._release),
            _native.LOAD(self._guarded(self._load)), _native.APPLY(self._guarded(self._apply)),
            _native.MEMBERS(self._members), _native.REDUCE(self._reduce), _native.INTERRUPTED(self._interrupted))
        problem = ctypes.c_char_p()
        self._handle = library.rubato_open(json.dumps(options).encode(), ctypes.byref(self._functions),
                                           ctypes.byref(problem))
        if not self._handle:
            raise Refused((problem.value or b"").decode())
        self.worker: int = library.rubato_worker(self._handle)
        self.tail_offset: int = library.rubato_offset(self._handle, len(options["parameters"]))
        Job.current = self

    # --- what the job asks of the model ---

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        """An exception must not pass through C. next() raises it again."""
        def call(_self: Any, *arguments: Any) -> int:
            try:
                function(*arguments)
                return 0
            except BaseException as error:  # pylint: disable=broad-except
                self._remember(error)
                return -1
        return call

    def _remember(self, error: BaseException) -> None:
        if self._raised is None:
            self._raised = error
        library.rubato_set_problem(self._handle, described(error).encode())

    def _chunk(self, index: int, into: int) -> None:
        chunk = self._model.chunk(index)
        library.rubato_chunk_head(into, chunk.head.encode())
        for address, size in chunk.pieces:
            library.rubato_chunk_piece(into, address, size)

    def _release(self, _self: Any) -> None:
        self._model.release()

    def _load(self, index: int, head: bytes, body: int, size: int) -> None:
        memory: Any = (ctypes.c_char * size).from_address(body) if size else b""
        self._model.load_chunk(index, head.decode(), memoryview(memory).cast("B"))

    def _apply(self, step: Any) -> None:
        self._model.apply(step.contents)

    def _members(self, _self: Any, rank: int, size: int) -> None:
        try:
            self._model.members(rank, size)
        except BaseException as error:  # pylint: disable=broad-except
            self._remember(error)

    def _reduce(self, _self: Any, group: Any, address: int, floats: int) -> int:
        try:
            return 0 if self._model.reduce(group.contents, address, floats) else 1
        except BaseException as error:  # pylint: disable=broad-except
            self._remember(error)
            return -1

    def _interrupted(self, _self: Any) -> None:
        try:
            self._model.interrupted()
        except BaseException as error:  # pylint: disable=broad-except
            self._remember(error)

    # --- what the program does ---

    def next(self) -> Optional[Leaf]:
        """Waits for the next Leaf. None at the end of the job; self.end is then the exit code."""
        while self.end is None:
            there = library.rubato_next(self._handle, WAIT_MILLISECONDS, ctypes.byref(self._task))
            if self._raised is not None:
                raised, self._raised = self._raised, None
                raise raised
            if not there:
                continue
            if self._task.kind == _native.LEAF:
                return Leaf(self._task)
            if self._task.kind == _native.WARM_UP:
                self._model.warm_up(Leaf(self._task))
                continue
            # The job stays open, so that the launcher hears that this process is alive as long as it is.
            self.end = self._task.code
        return None

    def gradient(self, parameter: int, address: int, floats: int) -> bool:
        """False: it was refused, and problem() says why."""
        return not library.rubato_gradient(self._handle, parameter, address, floats)

    def leaf_done(self, address: int, floats: int) -> None:
        if library.rubato_leaf_done(self._handle, address, floats):
            raise RuntimeError(self.problem())

    def stale(self) -> bool:
        """Whether somebody has died, so that what this worker computes for the step is not used."""
        return bool(library.rubato_leaf_stale(self._handle))

    def pin(self, key: str, text: str) -> None:
        library.rubato_pin(self._handle, key.encode(), text.encode())

    def pinned(self, key: str) -> Optional[str]:
        """What a worker has pinned there for all others. None: nothing yet."""
        text: Optional[bytes] = library.rubato_pinned(self._handle, key.encode())
        return None if text is None else text.decode()

    def leaf_after(self, place: _native.Place, indices: Any = None) -> None:
        """Moves `place` to this worker's next leaf, if the members do not change."""
        library.rubato_leaf_after(self._handle, ctypes.byref(place), indices)

    def offset(self, parameter: int) -> int:
        return int(library.rubato_offset(self._handle, parameter))

    def report(self, fields: Dict[str, Any]) -> None:
        if library.rubato_report(self._handle, json.dumps(fields).encode()):
            raise RuntimeError(self.problem())

    def problem(self) -> str:
        text: bytes = library.rubato_problem(self._handle)
        return text.decode()

    def commit(self) -> None:
        library.rubato_commit(self._handle)

    def finish(self) -> None:
        library.rubato_finish(self._handle)

    def leaving(self) -> bool:
        return bool(self._handle and library.rubato_leaving(self._handle))

    def notice(self, kind: str, text: str) -> None:
        library.rubato_notice(self._handle, kind.encode(), text.encode())

    @property
    def active(self) -> bool:
        return self._handle is not None and self.end is None

    def fail(self, why: str) -> None:
        """Ends the whole job: every worker says why, and none is started again."""
        if not self.active:
            return
        library.rubato_fail(self._handle, why.encode(errors="replace"))
        while not (library.rubato_next(self._handle, WAIT_MILLISECONDS, ctypes.byref(self._task))
                   and self._task.kind == _native.END):
            pass
        self.end = self._task.code

    def close(self) -> None:
        if self._handle:
            library.rubato_close(self._handle)
            self._handle = None


def described(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).strip()


# --- the end of the process ---------------------------------------------------------------------------------------

_exit_code: Optional[int] = None
_interrupted = False
_plain_hook = sys.excepthook


def _on_exception(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    """An exception in the program ends the job, once, on all workers. Without this, it would be a death like any other,
    and the launcher would start another worker that fails again."""
    global _exit_code, _interrupted
    job = Job.current
    _interrupted = issubclass(kind, KeyboardInterrupt)
    if issubclass(kind, Refused) and (job is None or not job.active):
        print(f"rubato train: {error}", file=sys.stderr)
        _exit_code = REFUSED
    elif job is None or not job.active or _interrupted:
        _plain_hook(kind, error, trace)
        if job is not None and not _interrupted:
            _exit_code = JOB_FAILED  # after the training: it would fail again
    else:
        job.fail(described(error))  # which prints it
        _exit_code = JOB_FAILED


sys.excepthook = _on_exception


def _at_exit() -> None:
    """A worker that leaves must be gone soon. To unload torch takes seconds, so that is left out."""
    global _exit_code
    job = Job.current
    if job is not None and job.active:
        if _interrupted:
            job.close()
        else:
            job.fail("the program ended before its training did: let the loops of epochs() and of the loader run to "
                     "their end, or call stop()")
            _exit_code = JOB_FAILED
    elif job is not None and job.end:
        _exit_code = job.end
    if _exit_code is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_code)


# Registered first, so it runs after everything that the program registers.
atexit.register(_at_exit)
