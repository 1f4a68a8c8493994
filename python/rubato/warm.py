"""A parent for workers that has imported torch already (`rubato run --warm`). The launcher starts it and asks it for
workers; rubato/launch/warm_parent.h has the other side. Not for programs.

It forks twice, so that a worker is an orphan and becomes a child of the launcher. A program in a forked worker finds
what it would find in a new process: its arguments, directory, environment, output, and random numbers of its own."""

import ctypes
import json
import os
import random
import runpy
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Tuple

_MOST_BYTES = 1 << 22  # of a request
_PR_SET_PDEATHSIG = 1


def _fork_when_asked(link: socket.socket) -> Tuple[Dict[str, Any], List[int]]:
    """Returns in workers only, with the request and the descriptors of the output."""
    while True:
        content, descriptors, _, _ = socket.recv_fds(link, _MOST_BYTES, 2)
        if not content:
            os._exit(0)  # the launcher has gone
        between = os.fork()
        if between == 0:
            between = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0005)
            return json.loads(content), descriptors
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(request: Dict[str, Any], descriptors: List[int]) -> None:
    os.setpgid(0, 0)
    if request["dies_with"]:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != request["dies_with"]:
            os._exit(1)
    for number, descriptor in zip((1, 2), descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["directory"]:
        os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(line.split("=", 1) for line in request["environment"])
    if not request["niced"]:  # as the parent may be
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()))
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _main() -> None:
    link = socket.socket(fileno=int(os.environ.pop("RUBATO_WARM")))
    import rubato.torch  # noqa: F401  pylint: disable=unused-import,import-outside-toplevel
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    link.send(b"ready")
    request, descriptors = _fork_when_asked(link)
    _become(request, descriptors)
    link.send(str(os.getpid()).encode())
    link.close()
    sys.argv = request["command"][1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _main()
