#!/usr/bin/env python3
"""How long Slurm takes from a request to a running process, on a private Slurm of 4 nodes with 4 GPUs.

    bench/slurm_start.py [BUILD] [--rounds N]

Three ways in turns, because other load on the machine changes within a minute: sbatch with Slurm's default
SchedulerParameters, sbatch with those of docs/slurm.md, and the latter through Rubato's manager of Slurm. Each
request is for one GPU of one node, and waits until its process runs.
"""

import argparse
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from slurm import Manager  # noqa: E402
from slurm_cluster import FAST, Slurm, why_not  # noqa: E402


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    if why_not():
        print(f"skipped: {why_not()}")
        return
    build = pathlib.Path(arguments.build).resolve()
    times = {"sbatch, default settings": [], "sbatch": [], "manager": []}
    # An empty value is Slurm's default.
    with Slurm(settings={"SchedulerParameters": ""}) as usual, Slurm(settings={"SchedulerParameters": FAST}) as fast, \
            Manager(build, fast) as manager:
        manager.await_listing(lambda listing: len(listing["nodes"]) == 4, "all nodes")
        for i in range(arguments.rounds):
            node = f"n{i % 4}"
            times["sbatch, default settings"].append(by_sbatch(usual, f"usual{i}", node))
            times["sbatch"].append(by_sbatch(fast, f"fast{i}", node))
            # Between the other two: the scheduler is slower right after a job has ended.
            times["sbatch, default settings"].append(by_sbatch(usual, f"again{i}", node))
            times["manager"].append(by_manager(manager, fast, f"managed{i}", node))
    for way, seconds in times.items():
        seconds.sort()
        print(f"  {way:26} p50 {statistics.median(seconds):5.2f} s, p90 {seconds[int(0.9 * len(seconds))]:5.2f} s, "
              f"longest {seconds[-1]:5.2f} s")
    ratio = statistics.median(times["manager"]) / statistics.median(times["sbatch"])
    print(f"  goal {'MET' if ratio < 1.5 else 'MISSED'}: the manager needs less than 1.5 times of sbatch ({ratio:.2f})")


if __name__ == "__main__":
    main()
