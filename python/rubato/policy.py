"""Policies in Python, for the simulator.

    class ShortestFirst(rubato.Policy):
        def decide(self, now, jobs, cluster, state):
            order = numpy.argsort(jobs.remaining, kind="stable")
            gpus = numpy.zeros(len(jobs), int)
            gpus[order] = rubato.fit(jobs.requested[order], cluster.usable[0])
            return rubato.Decision(gpus, order=order)

    rubato.simulate("jobs.csv", cluster="8x8", policy=["srtf", ShortestFirst()])

The simulator is the program `rubato`, and asks this process. Both see one memory, so the columns of the jobs are numpy
arrays on what the simulator has written, without a copy (rubato/sim/foreign_policy.h).
"""

import copy
import json
import mmap
import os
import selectors
import socket
import subprocess
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

try:
    import numpy
except ImportError:  # programs that only train or submit do not need it
    numpy = None  # type: ignore[assignment]

_MEMORY, _DECIDE = 1, 2
_HEADER = 8
_NOW, _TYPES, _NODES, _JOBS, _WIDTH, _ORDERED, _AGAIN_AT = range(7)


class Jobs:
    """The jobs that a policy decides about, in the order in which they were submitted. Each attribute is an array with an
    element for each job. It is valid until the policy has decided; copy what you keep.

    id            the job's number
    submitted     when, in seconds from the start of the simulation
    requested     how many GPUs its owner asks for
    least, most   how many it can use
    gpus, type    how many it has now (0: it waits), and of which type (-1)
    work, left    its work, and what is left of it, in its own unit
    remaining     seconds that are left on the requested number of GPUs
    rate          its work per second now
    attained      GPU-seconds that it has had
    ran           seconds that it has run
    started       1 if it has ever run
    restarts, restart_cost, deadline, weight
    goes_first    1 if it is short and awaited
    accepted      1 if it may not be refused any more
    user, model   numbers, in the order in which the names appear
    """

    def __init__(self, views: "_Views"):
        self._views = views

    def __len__(self) -> int:
        return self._views.jobs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        column = self._views.job_column(name)
        self.__dict__[name] = column
        return column

    def speed(self, type: int = 0) -> Any:
        """The work per second of each job (a row) on 0, 1, 2, ... GPUs (the columns) of a type. It is 0 where the job may
        not run. Only for policies with `elastic = True`."""
        return self._views.speeds(type)


class Cluster:
    """The machines. For each GPU type: `usable` (GPUs to give out), `installed` and `node_size` (GPUs of the largest
    node). For each node: `node_gpus`, `node_type` and `node_usable`."""

    usable: Any
    installed: Any
    node_size: Any
    node_gpus: Any
    node_type: Any
    node_usable: Any

    def __init__(self, views: "_Views"):
        types, nodes, at = views.types, views.nodes, _HEADER
        for name, count in (("usable", types), ("installed", types), ("node_size", types), ("node_gpus", nodes),
                            ("node_type", nodes), ("node_usable", nodes)):
            setattr(self, name, views.whole[at:at + count])
            at += count


class Decision:
    """What should run. All arrays have an element for each job.

    gpus        how many GPUs each job gets; 0: it waits, and stops if it runs
    type        of which GPU type; 0 if it is left out
    refuse      True for jobs that are refused for ever; only jobs that were never accepted can be
    order       indices of jobs: the order in which GPUs are placed; jobs that it does not name follow
    again_at    when the policy wants to be asked again if nothing happens, in seconds
    """

    def __init__(self, gpus: Any, *, type: Any = None, refuse: Any = None, order: Any = None,
                 again_at: Optional[float] = None):
        self.gpus, self.type, self.refuse, self.order, self.again_at = gpus, type, refuse, order, again_at


class Policy:
    """A scheduling policy. Subclasses write decide(), which must be pure: all that it remembers between two decisions is
    in `state`, a dict of numbers, texts, lists, dicts and arrays. It is empty at the start of each simulation."""

    #: The policy chooses how many GPUs a job gets. Otherwise jobs run on what they ask for.
    elastic = False
    #: It is written for clusters with one GPU type, and refused on others.
    one_type = False
    #: It leaves no GPU idle that a waiting job could use. check() then looks whether that is so.
    work_conserving = False

    @property
    def name(self) -> str:
        """How reports call it."""
        return type(self).__name__

    def decide(self, now: float, jobs: Jobs, cluster: Cluster, state: Dict[str, Any]) -> Union[Decision, Any]:
        """Returns a Decision, or only the number of GPUs of each job."""
        raise NotImplementedError


def fit(sizes: Any, room: int) -> Any:
    """Takes the jobs of these sizes in this order, each if it still fits. Returns the sizes, with 0 for those that do not
    fit."""
    sizes = numpy.asarray(sizes)
    taken = numpy.zeros(len(sizes), sizes.dtype)
    left = numpy.flatnonzero(sizes <= room)
    while len(left):
        fits = int(numpy.searchsorted(numpy.cumsum(sizes[left]), room, side="right"))
        taken[left[:fits]] = sizes[left[:fits]]
        room -= int(sizes[left[:fits]].sum())
        left = left[fits:]
        left = left[sizes[left] <= room]
    return taken


# --- the memory that the simulator shares -----------------------------------------------------------------------------


class _Views:
    """Arrays on one question, and the place for its answer."""

    def __init__(self, whole: Any, real: Any, columns: Dict[str, Tuple[int, bool]]):
        self.whole, self.real, self._columns = whole, real, columns
        self.now = float(real[_NOW])
        self.types, self.nodes, self.jobs, self.width = (int(whole[i]) for i in (_TYPES, _NODES, _JOBS, _WIDTH))
        self._first_column = _HEADER + 3 * self.types + 3 * self.nodes
        self._first_speed = self._first_column + len(columns) * self.jobs

    def job_column(self, name: str) -> Any:
        if name not in self._columns:
            raise AttributeError(f"jobs have no {name!r}; they have {', '.join(self._columns)}")
        index, whole = self._columns[name]
        at = self._first_column + index * self.jobs
        return (self.whole if whole else self.real)[at:at + self.jobs]

    def speeds(self, type: int) -> Any:
        if not self.width:
            raise RuntimeError("speeds are for policies with `elastic = True`")
        if not 0 <= type < self.types:
            raise IndexError(f"there is no GPU type {type}; the cluster has {self.types}")
        size = self.jobs * self.width
        at = self._first_speed + type * size
        return self.real[at:at + size].reshape(self.jobs, self.width)

    def answer(self, decision: Union[Decision, Any]) -> None:
        if not isinstance(decision, Decision):
            decision = Decision(decision)
        at = self._first_speed + self.types * self.jobs * self.width
        for i, (what, column) in enumerate((("gpus", decision.gpus), ("type", decision.type),
                                            ("refuse", decision.refuse))):
            if column is None:
                continue
            array = numpy.asarray(column)
            if array.shape != (self.jobs,):
                raise ValueError(f"{what} has the shape {array.shape}; there are {self.jobs} jobs")
            if len(array) and array.dtype.kind not in "iub":
                raise TypeError(f"{what} must be whole numbers, not {array.dtype}")
            self.whole[at + i * self.jobs:at + (i + 1) * self.jobs] = array
        if decision.order is not None:
            order = numpy.asarray(decision.order)
            if order.ndim != 1 or len(order) > self.jobs:
                raise ValueError(f"order has the shape {order.shape}; there are {self.jobs} jobs")
            self.whole[at + 3 * self.jobs:at + 3 * self.jobs + len(order)] = order
            self.whole[_ORDERED] = len(order)
        if decision.again_at is not None:
            self.real[_AGAIN_AT] = decision.again_at


class Question:
    """What a policy is asked: `now`, `jobs` and `cluster`."""

    def __init__(self, views: _Views):
        self._views = views
        self.now, self.jobs, self.cluster = views.now, Jobs(views), Cluster(views)


class _Connection:
    """A simulation that asks one policy."""

    def __init__(self, peer: socket.socket, policy: Policy):
        self.peer, self.policy = peer, policy
        self.state: Dict[str, Any] = {}
        hello = json.loads(peer.recv(1 << 16))
        self._columns = {name: (i, kind == "int64") for i, (name, kind) in enumerate(hello["columns"])}
        peer.send(json.dumps({"name": policy.name, "elastic": policy.elastic, "one_type": policy.one_type}).encode())
        self._whole: Any = None
        self._real: Any = None

    def question(self) -> Optional[Question]:
        """The next question. None if the simulation has ended."""
        while True:
            message, descriptors, _flags, _address = socket.recv_fds(self.peer, 16, 1)
            if not message:
                return None
            kind, value = int.from_bytes(message[:8], "little"), int.from_bytes(message[8:], "little")
            if kind == _DECIDE:
                return Question(_Views(self._whole, self._real, self._columns))
            with os.fdopen(descriptors[0], "r+b") as file:
                memory = mmap.mmap(file.fileno(), value)
            self._whole = numpy.frombuffer(memory, numpy.int64)
            self._real = numpy.frombuffer(memory, numpy.float64)

    def answer(self, question: Question, decision: Union[Decision, Any]) -> None:
        question._views.answer(decision)
        self.peer.send(_DECIDE.to_bytes(8, "little") + bytes(8))

    def serve(self) -> bool:
        """Decides once. False if the simulation has ended."""
        question = self.question()
        if question is None:
            return False
        self.answer(question, self.policy.decide(question.now, question.jobs, question.cluster, self.state))
        return True


class Server:
    """Decides for the simulations of one process of the program `rubato`."""

    def __init__(self, policies: Sequence[Policy]):
        if policies and numpy is None:
            raise ImportError("policies in Python need numpy")
        self._folder = tempfile.TemporaryDirectory(prefix="rubato-policy-")
        self._selector = selectors.DefaultSelector()
        self.paths: List[str] = []
        for i, policy in enumerate(policies):
            path = os.path.join(self._folder.name, str(i))
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(path)
            listener.listen()
            self._selector.register(listener, selectors.EVENT_READ, policy)
            self.paths.append(path)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._folder.cleanup()

    def connections(self, process: "subprocess.Popen[Any]") -> Iterator[_Connection]:
        """Each connection that has something to say, again and again, until the process has ended."""
        while process.poll() is None:
            for key, _ in self._selector.select(0.1):
                if isinstance(key.data, Policy):
                    peer, _address = key.fileobj.accept()  # type: ignore[union-attr]
                    self._selector.register(peer, selectors.EVENT_READ, _Connection(peer, key.data))
                else:
                    yield key.data

    def forget(self, connection: _Connection) -> None:
        self._selector.unregister(connection.peer)
        connection.peer.close()

    def serve(self, process: "subprocess.Popen[Any]") -> None:
        """Decides until the process has ended."""
        for connection in self.connections(process):
            if not connection.serve():
                self.forget(connection)


# --- state, for check() -------------------------------------------------------------------------------------------


def saved(value: Any) -> Any:
    """The state of a policy as values that JSON can hold."""
    if numpy is not None and isinstance(value, numpy.ndarray):
        return {"array": [value.dtype.str, value.tolist()]}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the state has the key {key!r}; keys must be texts")
        return {"dict": {key: saved(item) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return [saved(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"the state holds a {type(value).__name__}; it may hold numbers, texts, lists, dicts and arrays")


def loaded(value: Any) -> Any:
    if isinstance(value, dict):
        (kind, content), = value.items()
        if kind == "array":
            return numpy.array(content[1], content[0])
        return {key: loaded(item) for key, item in content.items()}
    return [loaded(item) for item in value] if isinstance(value, list) else value


class Watched(Policy):
    """Passes on the decisions of another policy, and looks at them."""

    def __init__(self, policy: Policy, watch: Callable[[float, Jobs, Cluster, Dict[str, Any], Decision], None]):
        self.policy, self.watch = policy, watch
        self.elastic, self.one_type, self.work_conserving = policy.elastic, policy.one_type, policy.work_conserving

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, now: float, jobs: Jobs, cluster: Cluster, state: Dict[str, Any]) -> Decision:
        before = copy.deepcopy(state)
        answer = self.policy.decide(now, jobs, cluster, state)
        decision: Decision = answer if isinstance(answer, Decision) else Decision(answer)
        self.watch(now, jobs, cluster, before, decision)
        return decision
