#!/usr/bin/env python3
"""How long Slurm takes from a request to a running process, on a private Slurm of 4 nodes with 4 GPUs.

    bench/slurm_start.py [BUILD] [--rounds N]

The ways are sbatch with Slurm's default SchedulerParameters; with those of docs/slurm.md, also sbatch, Rubato's manager
by Slurm's commands, a POST to slurmrestd, and Rubato's manager through slurmrestd. Each round has all of them, in an
order that is drawn at random (with a fixed seed): Slurm is slower right after a job has ended, and other load on the
machine changes within a minute. Each request is for one GPU of one node, and waits until its process runs.
"""

import argparse
import contextlib
import http.client
import json
import pathlib
import random
import socket
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from slurm import Manager  # noqa: E402
from slurm_cluster import FAST, REST_PROGRAMS, Slurm, why_not  # noqa: E402


def await_file(path, limit=60):
    """When the file was made."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if path.exists():
            return path.stat().st_mtime
        time.sleep(0.005)
    sys.exit(f"slurm_start: no process after {limit} s")


def by_sbatch(slurm, name, node):
    path = slurm.directory / name
    began = time.time()
    slurm.run("sbatch", "--parsable", "--no-requeue", "-w", node, "--gres=gpu:1", "--mem-per-gpu=100",
              "--cpus-per-gpu=1", "-o", "/dev/null", "-J", name, "--wrap", f"exec touch {path}")
    return await_file(path) - began


def by_manager(manager, slurm, name, node):
    path = slurm.directory / name
    began = time.time()
    manager.submit(name, node, ["/usr/bin/touch", str(path)])
    return await_file(path) - began


class Unix(http.client.HTTPConnection):
    """To slurmrestd, on its socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def by_rest(slurm, listens, name, node):
    path = slurm.directory / name
    job = {"name": name, "nodes": 1, "tasks": 1, "nodelist": node, "gres": "gpu:1", "cpus_per_gpu": 1, "memory_per_gpu": 100,
           "no_requeue": True, "current_working_directory": "/", "standard_output": "/dev/null",
           "environment": {"PATH": "/usr/bin:/bin"}}
    began = time.time()
    link = Unix(listens)
    link.request("POST", "/slurm/v0.0.38/job/submit", json.dumps({"script": f"#!/bin/sh\nexec touch {path}\n", "job": job}),
                 {"Content-Type": "application/json"})
    answer = link.getresponse()
    if answer.status != 200:
        sys.exit(f"slurm_start: slurmrestd answers {answer.status}: {answer.read()[:400]}")
    link.close()
    return await_file(path) - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    if why_not():
        print(f"skipped: {why_not()}")
        return
    build = pathlib.Path(arguments.build).resolve()
    order = random.Random(1)
    # An empty value is Slurm's default.
    with Slurm(settings={"SchedulerParameters": ""}) as usual, Slurm(settings={"SchedulerParameters": FAST}) as fast:
        listens = None if why_not(REST_PROGRAMS) else fast.start_rest()
        with contextlib.ExitStack() as stack:
            manager = stack.enter_context(Manager(build, fast))
            ways = {"sbatch, default settings": lambda *where: by_sbatch(usual, *where),
                    "sbatch": lambda *where: by_sbatch(fast, *where),
                    "manager": lambda *where: by_manager(manager, fast, *where)}
            if listens:
                through = stack.enter_context(Manager(build, fast, rest=(listens,)))
                through.await_listing(lambda listing: len(listing["nodes"]) == 4, "all nodes")
                ways["slurmrestd"] = lambda *where: by_rest(fast, listens, *where)
                ways["manager, slurmrestd"] = lambda *where: by_manager(through, fast, *where)
            manager.await_listing(lambda listing: len(listing["nodes"]) == 4, "all nodes")
            times = {way: [] for way in ways}
            for i in range(arguments.rounds):
                for way in order.sample(list(ways), len(ways)):
                    node = f"n{order.randrange(4)}"
                    times[way].append(ways[way](f"{way.replace(' ', '').replace(',', '-')}{i}", node))
    for way, seconds in times.items():
        seconds.sort()
        print(f"  {way:26} p50 {statistics.median(seconds):5.2f} s, p90 {seconds[int(0.9 * len(seconds))]:5.2f} s, "
              f"longest {seconds[-1]:5.2f} s")
    for way, floor in (("manager", "sbatch"), ("manager, slurmrestd", "slurmrestd")):
        if way in times:
            ratio = statistics.median(times[way]) / statistics.median(times[floor])
            print(f"  goal {'MET' if ratio < 1.5 else 'MISSED'}: {way} needs less than 1.5 times of {floor} ({ratio:.2f})")


if __name__ == "__main__":
    main()
