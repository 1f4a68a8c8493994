#!/usr/bin/env python3
"""Many short jobs of `rubato up --engine slurm` on a private Slurm of many nodes, whose controller is killed twice.

    bench/slurm_many.py [BUILD] [--nodes N] [--gpus N] [--jobs N] [--seconds N]

Each job has 1 or 2 GPUs, with a process for each that sleeps. A process that finds another one of its job and rank
alive says so. At the end: every job has ended well, no rank was there twice at once, no share was made twice. It
also says how much of the GPUs' time was held, and how much of that the programs used.
"""

import argparse
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from live import await_true, require  # noqa: E402
from slurm import OnSlurm, await_saved  # noqa: E402
from slurm_cluster import Slurm, why_not  # noqa: E402

# $1: a directory; $2: seconds.
PROGRAM = """
cd "$1" || exit 1
name=$RUBATO_JOB.$RANK
for one in "$name".*; do
  test -e "$one" && kill -0 "${one##*.}" 2>/dev/null && echo "$name" >>twice
done
: >"$name.$$"
sleep "$2"
echo "$name" >>ended
"""


def submit(cluster, directory, number, seconds):
    return subprocess.Popen([cluster.rubato, "submit", "--name", f"job{number}", "--no-elastic", "--gpus",
                             str(1 + number % 2), "--", "/bin/sh", "-c", PROGRAM, "sh", str(directory), str(seconds)],
                            env=cluster.env, stdout=subprocess.DEVNULL, cwd=directory)


def run(build, options):
    with Slurm(nodes=options.nodes, gpus=options.gpus) as slurm, OnSlurm(build, slurm, "fifo-backfill") as cluster:
        directory = cluster.directory / "work"
        directory.mkdir()
        cluster.up()
        began = time.monotonic()
        for first in range(0, options.jobs, 8):
            group = [submit(cluster, directory, i, options.seconds) for i in range(first, min(first + 8, options.jobs))]
            require(all(one.wait() == 0 for one in group), "a submission failed")
        ended = directory / "ended"

        ranks = sum(1 + i % 2 for i in range(options.jobs))

        def completed():
            return len(ended.read_text().split()) if ended.exists() else 0
        for part in (0.25, 0.5):
            await_true(lambda part=part: completed() >= part * ranks, f"{part:.0%} of the jobs", 900)
            await_saved(slurm)
            slurm.kill_controller()
            time.sleep(5)
            slurm.start_controller()
        await_true(lambda: not cluster.ask("ls")["jobs"], "all jobs", 900)
        took = time.monotonic() - began
        cluster.none_left()
        jobs = cluster.jobs()
        states = {state: sum(job["state"] == state for job in jobs) for state in {job["state"] for job in jobs}}
        require(states == {"COMPLETED": options.jobs}, f"{states}")
        lines = sorted(ended.read_text().split())
        require(len(set(lines)) == ranks, f"{len(set(lines))} of {ranks} ranks have run to their end")
        require(not (directory / "twice").exists(), "a rank was there twice at once")
        shares = cluster.none_twice()
        held = sum(user["gpu_hours"] for user in cluster.get("/v1/use")["users"]) * 3600
        cluster.stop()
        cluster.replays()
    print(f"  {options.jobs} jobs on {options.nodes} nodes with {options.gpus} GPUs, controller killed twice: all completed "
          f"in {took:.0f} s\n"
          f"  {shares} shares, none twice; of {ranks} ranks none was there twice at once, {len(lines) - ranks} ran again\n"
          f"  GPUs: held {held / (took * options.nodes * options.gpus):.0%} of the time; the programs used "
          f"{ranks * options.seconds / held:.0%} of that")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    if why_not():
        print(f"skipped: {why_not()}")
        return
    run(pathlib.Path(options.build).resolve(), options)


if __name__ == "__main__":
    main()
