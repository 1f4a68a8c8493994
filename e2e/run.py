#!/usr/bin/env python3
"""Runs the end-to-end checks in parallel, and prints the output of each when it ends.

    e2e/run.py [--at-once N] [BUILD] [NAME...]     all of them by default; exit 1 if one fails

A check is a script beside this file, or one scenario of live.py, security.py, many_hosts.py, slurm.py, python.py or
cells.py ("live:afs"). Half as many again run at once as the machine has cores, because most of them wait most of the
time. A third of the runners begin with the checks that train, which keep the cores busy, the others with those that
mostly wait. The table at the end has the seconds that each took, and those of the processor.
"""

import argparse
import collections
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# Ten times what a check needs. A check that hangs must fail, and not use up the time of the others.
LIMIT = 900
# How many faults these make, which takes longer if there are more (./dev test --all).
FAULTS = {"chaos": "KILLS", "live:killed_daemon": "OUTAGES"}
# Checks with training jobs. "live" stands for all its scenarios.
BUSY = ("live", "python", "cells", "elastic", "chaos", "demo", "master", "stop_while_leaving", "unmodified")


def checks(build):
    """The commands by name; checks with training jobs come first."""
    found = {}
    for script in ("live", "security", "many_hosts", "slurm", "python", "cells"):
        program = [sys.executable, str(HERE / f"{script}.py")]
        listed = subprocess.run([*program, "--list"], capture_output=True, text=True, check=True)
        for scenario in listed.stdout.split():
            found[f"{script}:{scenario}"] = [*program, str(build), scenario]
    for script in sorted(HERE.glob("*.sh")):
        if script.stem not in ("live", "security"):
            found[script.stem] = ["bash", str(script), str(build)]
    return dict(sorted(found.items(), key=lambda check: check[0].split(":")[0] not in BUSY))


def limit_of(name):
    return LIMIT + 30 * int(os.environ.get(FAULTS.get(name, ""), "0"))


def run(command, limit, build):
    """Returns exit status, output, seconds and processor seconds."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True, cwd=HERE.parent,
                               env={**os.environ, "RUBATO": str(build / "rubato")})
    # The check may clean up after the first signal. Its processes have a minute to end.
    timers = [threading.Timer(limit + after, os.killpg, (process.pid, number))
              for after, number in ((0, signal.SIGINT), (60, signal.SIGKILL))]
    for timer in timers:
        timer.daemon = True
        timer.start()
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    for timer in timers:
        timer.cancel()
    took = time.monotonic() - began
    if took > limit:
        output += f"it was still running after {limit} s\n"
    return process.returncode, output, took, used.ru_utime + used.ru_stime


def work(take, build, done):
    while True:
        try:
            name, command = take()
        except IndexError:  # none is left
            return
        status, output, took, used = run(command, limit_of(name), build)
        word = "passed" if status == 0 else f"FAILED with status {status}"
        # One print call, because the others print, too.
        sys.stdout.write(f"==> {name}: {word}\n{output}")
        sys.stdout.flush()
        done.append((name, status, took, used))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)) * 3 // 2, metavar="N")
    parser.add_argument("build", nargs="?", default=str(HERE.parent / "build"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    build = pathlib.Path(arguments.build).resolve()
    found = checks(build)
    unknown = [name for name in arguments.names if name not in found]
    if unknown:
        parser.error(f"there is no check {unknown[0]}; there are: {' '.join(found)}")
    waiting = collections.deque((name, command) for name, command in found.items()
                                if not arguments.names or name in arguments.names)
    wanted = len(waiting)
    done = []
    began = time.monotonic()
    ends = (waiting.popleft, waiting.pop)
    threads = [threading.Thread(target=work, args=(ends[min(i % 3, 1)], build, done))
               for i in range(max(1, arguments.at_once))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"\n{'check':34} {'s':>5} {'processor s':>12}")
    for name, status, took, used in sorted(done, key=lambda row: -row[2]):
        print(f"{name:34} {took:5.0f} {used:12.0f}{'' if status == 0 else '  FAILED'}")
    print(f"{'all':34} {time.monotonic() - began:5.0f} {sum(row[3] for row in done):12.0f}")
    # A check that did not run to its end has not passed.
    passed = sum(status == 0 for _, status, _, _ in done)
    print(f"end to end: {passed} passed, {wanted - passed} failed")
    sys.exit(0 if passed == wanted > 0 else 1)


if __name__ == "__main__":
    main()
