"""The functions of librubato.so (rubato/c/rubato.h), by ctypes. Nothing here knows torch."""

import ctypes
import os
import pathlib
from typing import Tuple

LEAF, END, WARM_UP = 1, 2, 3


class Place(ctypes.Structure):
    _fields_ = [("step", ctypes.c_int64), ("epoch", ctypes.c_int64), ("cursor", ctypes.c_int64),
                ("samples", ctypes.c_int64), ("leaf", ctypes.c_int32), ("count", ctypes.c_int32)]

    def key(self) -> Tuple[int, ...]:
        return (self.step, self.epoch, self.cursor, self.samples, self.leaf, self.count)


class Task(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("last", ctypes.c_int32), ("place", Place),
                ("weight", ctypes.c_double), ("seed", ctypes.c_uint64),
                ("indices", ctypes.POINTER(ctypes.c_int64)), ("code", ctypes.c_int32),
                ("why", ctypes.c_char_p)]


class Step(ctypes.Structure):
    _fields_ = [("step", ctypes.c_int64), ("epoch", ctypes.c_int64), ("samples", ctypes.c_int64),
                ("learning_rate_factor", ctypes.c_double), ("workers", ctypes.c_int32),
                ("ends_epoch", ctypes.c_int32), ("result", ctypes.c_void_p),
                ("floats", ctypes.c_size_t), ("held", ctypes.POINTER(ctypes.c_uint8))]


CHUNK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p,
                        ctypes.c_void_p, ctypes.c_size_t)
APPLY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Step))
MEMBERS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)


class Group(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int32), ("size", ctypes.c_int32), ("name", ctypes.c_char_p)]


REDUCE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Group), ctypes.c_void_p, ctypes.c_size_t)
INTERRUPTED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Model(ctypes.Structure):
    _fields_ = [("self", ctypes.c_void_p), ("chunk", CHUNK), ("release", RELEASE),
                ("load_chunk", LOAD), ("apply", APPLY), ("members", MEMBERS), ("reduce", REDUCE),
                ("interrupted", INTERRUPTED)]


_SIGNATURES = {
    "open": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.POINTER(Model),
                               ctypes.POINTER(ctypes.c_char_p)]),
    "close": (None, [ctypes.c_void_p]),
    "next": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Task)]),
    "gradient": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]),
    "leaf_done": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]),
    "leaf_stale": (ctypes.c_int, [ctypes.c_void_p]),
    "leaf_after": (None, [ctypes.c_void_p, ctypes.POINTER(Place), ctypes.POINTER(ctypes.c_int64)]),
    "fail": (None, [ctypes.c_void_p, ctypes.c_char_p]),
    "commit": (None, [ctypes.c_void_p]),
    "finish": (None, [ctypes.c_void_p]),
    "leaving": (ctypes.c_int, [ctypes.c_void_p]),
    "notice": (None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]),
    "pin": (None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]),
    "pinned": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_char_p]),
    "chunk_head": (None, [ctypes.c_void_p, ctypes.c_char_p]),
    "chunk_piece": (None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]),
    "report": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "set_problem": (None, [ctypes.c_void_p, ctypes.c_char_p]),
    "problem": (ctypes.c_char_p, [ctypes.c_void_p]),
    "offset": (ctypes.c_size_t, [ctypes.c_void_p, ctypes.c_int]),
    "squared_norm": (ctypes.c_double, [ctypes.c_void_p, ctypes.c_size_t]),
    "worker": (ctypes.c_int64, [ctypes.c_void_p]),
}


def _load() -> ctypes.CDLL:
    path = os.environ.get("LIBRUBATO") or pathlib.Path(__file__).with_name("librubato.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"{error}; install the package with: pip install --no-build-isolation ./python, "
                          "or set LIBRUBATO to librubato.so") from error
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, "rubato_" + name)
        function.restype, function.argtypes = result, arguments
    return library


library = _load()
