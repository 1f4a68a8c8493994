"""Process groups of torch.distributed that follow the members of a job: gloo on CPUs, NCCL on GPUs.

A group lives as long as its members. When they have changed, the next step forms another one. Its members find each
other through the connections that workers have anyway (rubato_pin), so no process has to outlive the others. When a
member has died, each survivor frees the group as soon as it hears of that or gets an error. This closes its
connections, so whoever still waits in the group gets an error, too, and nobody waits for a time-out.
"""

import datetime
import threading
import time

import torch
import torch.distributed

# Only a machine that has stopped without closing its connections could bring it about. A slow worker is no error.
_TIMEOUT = datetime.timedelta(hours=1)
_LOOK = 0.05  # seconds between two looks at whether the step is given up


class Abandoned(Exception):
    """The step is given up."""


class _Board(torch.distributed.Store):
    """What the members tell each other when they form a group."""

    def __init__(self, job, prefix):
        super().__init__()
        self._job, self._prefix = job, prefix
        self._own = {}

    def set(self, key, value):
        self._own[key] = bytes(value).hex()
        self._job.pin(self._prefix + key, self._own[key])

    def get(self, key):
        self.wait([key])
        return bytes.fromhex(self._job.pinned(self._prefix + key))

    def check(self, keys):
        return all(self._job.pinned(self._prefix + key) is not None for key in keys)

    def wait(self, keys, timeout=None):
        again = time.monotonic() + 1
        while not self.check(keys):
            if self._job.stale():
                raise Abandoned("a member of the group has died")
            if time.monotonic() > again:  # a connection may have broken
                for key, value in self._own.items():
                    self._job.pin(self._prefix + key, value)
                again = time.monotonic() + 1
            time.sleep(0.001)


def _make(backend, store, rank, size):
    if backend == "nccl":
        return torch.distributed.ProcessGroupNCCL(store, rank, size, _TIMEOUT)
    options = torch.distributed.ProcessGroupGloo._Options()
    options._timeout = _TIMEOUT
    options._threads = 2
    options._devices = [torch.distributed.ProcessGroupGloo.create_default_device()
                        if hasattr(torch.distributed.ProcessGroupGloo, "create_default_device")
                        else torch.distributed.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    return torch.distributed.ProcessGroupGloo(store, rank, size, options)


class Reducer:
    """Sums a vector over the members, in buckets that the model fixes, so that they are the same on all workers."""

    def __init__(self, job, backend, bucket_floats, device):
        self._job, self._backend, self._bucket, self._device = job, backend, bucket_floats, device
        self._name = None
        self._group = None
        self.formed = 0  # seconds that it took to form the present group

    def reduce(self, name, rank, size, vector):
        """Replaces `vector` by its sum over the group. False: the group is broken."""
        if size == 1:
            self.free()
            return True
        try:
            if name != self._name:
                self.free()
                self._form(name, rank, size)
            self._sum(vector)
            return True
        except (Abandoned, RuntimeError, ConnectionError) as error:
            self._job.notice("group", f"group {name} is given up: {error}")  # to the run's log
            self.free()
            return False

    def free(self):
        """Closes this worker's connections of the group, so that nobody waits for it any more."""
        group, self._group, self._name = self._group, None, None
        if group is not None:
            # Its end waits for what is under way, which the others end by freeing theirs.
            threading.Thread(target=_drop, args=([group],), daemon=True).start()

    def _form(self, name, rank, size):
        """In a thread, because a member may die while others wait for its connection."""
        begun = time.monotonic()
        made, failed = [], []

        def form():
            try:
                made.append(_make(self._backend, _Board(self._job, f"group {name} "), rank, size))
            except Exception as error:
                failed.append(error)
        former = threading.Thread(target=form, daemon=True)
        former.start()
        while former.is_alive():
            former.join(_LOOK)
            if former.is_alive() and self._job.stale():
                raise Abandoned("a member of the group has died")
        if failed:
            raise RuntimeError(f"the group of {size} workers could not be formed: {failed[0]}")
        self._name, self._group = name, made[0]
        self.formed = time.monotonic() - begun

    def _sum(self, vector):
        pieces = [vector] if self._device.type == "cpu" else [vector.to(self._device)]
        works = [self._group.allreduce([piece]) for piece in pieces[0].split(self._bucket)]
        for work in works:
            self._wait(work)
        if self._device.type != "cpu":
            vector.copy_(pieces[0])

    def _wait(self, work):
        while True:
            try:
                work.wait(datetime.timedelta(seconds=_LOOK))
                return
            except RuntimeError:
                if work.is_completed():  # it may have ended just after that time-out
                    work.wait()  # raises its error, if it has one
                    return
                if self._job.stale():
                    raise Abandoned("a member of the group has died") from None


def _drop(groups):
    groups.clear()
