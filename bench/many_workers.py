#!/usr/bin/env python3
"""One job with many workers on many hosts, made of namespaces (e2e/hosts.py): it forms, is resized, and survives kills.

    bench/many_workers.py [BUILD] [--hosts N] [--workers N] [--kills N] [--seed N]

The model is tiny (bench/tiny_trainer.c), so what is measured is what belongs to a worker: its connections with all
others, and its memory. All connections between hosts are encrypted. At the end the parameters must have the same bits as
those of one worker on one machine. Needs root. Exit code: 0 all of this holds, 1 not.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from hosts import PROJECT, Network, why_not  # noqa: E402
from live import Failure, await_true, require  # noqa: E402
from many_hosts import HostsRun, Run  # noqa: E402
from masters import kilobytes  # noqa: E402

PATIENCE = 600  # seconds; a machine with few cores needs long for the keys of all connections


class WideRun(HostsRun):
    def __init__(self, network, build, hosts, each, start, words):
        places = ",".join(f"{name}:{each}" for name in hosts)
        super().__init__(network, build, "wide", ["--hosts", places, "--start", start, "--max-failures", 1000, "--quiet"], 0,
                         [], words)
        self.offset, self.seen = 0, []

    def events(self, event=None, kind=None):
        """As in Run, but reads only what is new: the log is long."""
        if self.log.exists():
            with self.log.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
            data = data[:data.rfind(b"\n") + 1]
            self.offset += len(data)
            self.seen += [json.loads(line) for line in data.splitlines()]
        return [line for line in self.seen if event in (None, line["event"]) and kind in (None, line.get("kind"))]

    def await_members(self, number):
        """Seconds until exactly so many workers train."""
        began = time.monotonic()

        def done():
            require(self.process.poll() is None, f"the run ended with {self.process.returncode}: {self.said()}")
            return len(self.working()) == number
        await_true(done, lambda: f"{number} workers, {len(self.working())} are there; {self.said()}", PATIENCE)
        return time.monotonic() - began

    def steps_in(self, seconds):
        before, began = self.reached(), time.monotonic()
        time.sleep(seconds)
        return (self.reached() - before) / (time.monotonic() - began)


def trainers(network, program):
    """The process ids of all workers."""
    return [pid for host in network.hosts.values() for pid in host.processes()
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] == bytes(program)]


def describe(name, pids):
    files = [len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())) for pid in pids]
    memory = [kilobytes(pathlib.Path(f"/proc/{pid}") / "smaps_rollup", "Pss") for pid in pids]
    own = [kilobytes(pathlib.Path(f"/proc/{pid}") / "status", "RssAnon") for pid in pids]
    peak = [kilobytes(pathlib.Path(f"/proc/{pid}") / "status", "VmHWM") for pid in pids]
    print(f"  {name}: {min(files)} to {max(files)} descriptors; memory (PSS) {max(memory) / 1024:.1f} MiB, of it its own "
          f"{max(own) / 1024:.1f}, resident at most {max(peak) / 1024:.1f}; the largest of {len(pids)}")


def kill_some(run, number, chosen):
    """Kills workers one by one. Seconds from each kill until a step of the survivors is published."""
    times = []
    for _ in range(number):
        victim = chosen.choice(sorted(await_true(run.working, "settled members", PATIENCE)))
        killed = time.monotonic()
        run.ask("kill", victim)
        await_true(lambda: any(victim in notice["content"]["dead"] for notice in run.events("notice", "recovered")),
                   lambda: f"the recovery; {run.said()}", PATIENCE)
        reached = run.reached()
        await_true(lambda: run.reached() > reached, lambda: f"a step; {run.said()}", PATIENCE)
        times.append(time.monotonic() - killed)
    return times


def measure(build, options):
    hosts = [f"h{number}" for number in range(1, options.hosts + 1)]
    each = options.workers // options.hosts
    with Network(["m", *hosts], kernel=True) as network:
        network.runs = []
        program = network.shared / "tiny_trainer"
        subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Werror", "-I", PROJECT, PROJECT / "bench/tiny_trainer.c", "-o",
                        program, build / "librubato.so", f"-Wl,-rpath,{build}"], check=True)
        words = [program, options.steps, options.workers, network.shared]
        alone = Run(network, build, "alone", ["--workers", 1, "--quiet"], 0, [], [*words[:3]])
        await_true(lambda: alone.process.poll() is not None, lambda: f"one worker alone; {alone.said()}", PATIENCE)
        expected = alone.digest()
        run = WideRun(network, build, hosts, each, options.workers // 2, words)
        try:
            took = run.await_members(options.workers // 2)
            print(f"{options.workers // 2} workers on {options.hosts} hosts train after {took:.1f} s")
            run.ask("resize", options.workers)
            print(f"{options.workers} workers train {run.await_members(options.workers):.1f} s after the command")
            print(f"  {run.steps_in(10):.1f} steps a second")
            describe("a worker", trainers(network, program))
            describe("the master", [run.process.pid])
            times = sorted(kill_some(run, options.kills, random.Random(options.seed)))
            print(f"{options.kills} workers killed one by one: from the command to the next step "
                  f"{times[len(times) // 2]:.2f} s (median), {times[-1]:.2f} s (longest)")
            print(f"all {options.workers} train again {run.await_members(options.workers):.1f} s after the last one")
            run.ask("resize", options.workers // 4)
            print(f"{options.workers // 4} workers train {run.await_members(options.workers // 4):.1f} s after the command")
            run.ask("resize", 1)
            run.await_members(1)
            run.fast()
            (network.shared / "fast").touch()
            await_true(lambda: run.process.poll() is not None, lambda: f"the end; {run.said()}", PATIENCE)
            require(run.digest() == expected, "they trained something else than one worker")
            end = run.events("end")[-1]
            require(end["fresh_starts"] == 0 and end["failures"] == options.kills, f"the end: {end}")
            print(f"the same bits as one worker: {expected}; {end['starts']} workers were started, none from a checkpoint")
        finally:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait()
            for one in network.runs:
                one.output.close()
            if options.keep_log and run.log.exists():
                shutil.copy(run.log, options.keep_log)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep-log", metavar="FILE", help="copies the log of the run there")
    options = parser.parse_args()
    if why_not():
        print(f"skipped: {why_not()}")
        return
    try:
        measure(pathlib.Path(options.build).resolve(), options)
    except Failure as failure:
        sys.exit(f"many_workers: {failure}")


if __name__ == "__main__":
    main()
