#!/usr/bin/env python3
"""What links cost a training step: encryption, and a limited rate.

    bench/links.py rate [--rate BITS] [--repetitions N]   our reduction beside gloo's ring on hosts with slow links
    bench/links.py step [--rounds N] [--steps N]          a step of the 25M-parameter model, plain and encrypted

`rate` makes hosts of namespaces (e2e/hosts.py), each with so many bits a second in both directions, and runs
bench/reduce_gloo.cc between them. `step` trains examples/wide with two workers on loopback, in turns as `rubato run
--workers 2`, which is plain, and as `rubato run --hosts` with two hosts that are this machine, which encrypts everything.
No network is as fast as loopback, so this is the most that encryption can cost. Needs root only for `rate`.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from hosts import Network, why_not  # noqa: E402

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def median(values):
    return sorted(values)[len(values) // 2]


def rate(build, options):
    if why_not():
        print(f"skipped: {why_not()}")
        return
    names = ["a", "b", "c", "d"]
    with Network(names, kernel=True) as network:
        for name in names:
            network.port(name, options.rate)
        places = ",".join(f"{host.init}={host.address}" for host in network.hosts.values())
        print(f"each process on a host of its own, with {options.rate / 1e6:.0f} Mbit/s in both directions", flush=True)
        subprocess.run([build / "bench/reduce_gloo", "--hosts", places, "--repetitions", str(options.repetitions), "--floats",
                        str(options.floats)], check=True, env=ENVIRONMENT)


class Training:
    """Runs of examples/wide: the step times by the log, and the processor time of all processes."""

    def __init__(self, build, directory, steps):
        self.build, self.directory, self.steps = build, directory, steps
        shell = directory / "here"
        shell.write_text('#!/bin/sh\nshift\nexec "$@"\n')
        shell.chmod(0o755)
        self.flags = {"plain": ["--workers", "2"],
                      "encrypted": ["--hosts", "one:1,two:1", "--rsh", str(shell), "--remote-program", str(build / "rubato"),
                                    "--address", "127.0.0.1"]}

    def run(self, how):
        """The median step, and the processor time of a step, in seconds."""
        log = self.directory / "log"
        log.unlink(missing_ok=True)
        command = [self.build / "rubato", "run", "--quiet", "--log", log, *self.flags[how], "--", self.build / "examples/wide",
                   "--steps", str(self.steps)]
        with (self.directory / "output").open("w") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       env=ENVIRONMENT, cwd=self.directory)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"links: the {how} run failed: {(self.directory / 'output').read_text()[-1000:]}")
        events = [json.loads(line) for line in log.read_text().splitlines()]
        reports = [event["content"] for event in events if event["event"] == "report"]
        digest = [event["content"]["digest"] for event in events if event.get("kind") == "finished"][-1]
        times = [later["applied_at"] - before["applied_at"] for before, later in zip(reports, reports[1:])
                 if before["workers"] == later["workers"] == 2]
        return median(times[3:]), (used.ru_utime + used.ru_stime) / self.steps, digest


def step(build, options):
    with tempfile.TemporaryDirectory(prefix="rubato-links-") as directory:
        training = Training(build, pathlib.Path(directory), options.steps)
        ratios, processor = [], []
        for turn in range(options.rounds):
            order = ("plain", "encrypted") if turn % 2 == 0 else ("encrypted", "plain")
            found = {how: training.run(how) for how in order}
            plain, encrypted = found["plain"], found["encrypted"]
            if plain[2] != encrypted[2]:
                sys.exit("links: the two runs trained different parameters")
            ratios.append(encrypted[0] / plain[0])
            processor.append(encrypted[1] / plain[1])
            print(f"round {turn + 1}: a step takes {1e3 * plain[0]:.0f} ms plain, {1e3 * encrypted[0]:.0f} ms encrypted; "
                  f"processor {1e3 * plain[1]:.0f} and {1e3 * encrypted[1]:.0f} ms with start and end", flush=True)
        print(f"encrypted / plain, medians of {options.rounds} rounds: step {median(ratios):.3f} "
              f"({min(ratios):.3f} to {max(ratios):.3f}), processor time {median(processor):.3f} "
              f"({min(processor):.3f} to {max(processor):.3f}); the same bits")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("measure", choices=["rate", "step"])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rate", type=float, default=1e9)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--floats", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    {"rate": rate, "step": step}[options.measure](pathlib.Path(options.build).resolve(), options)


if __name__ == "__main__":
    main()
