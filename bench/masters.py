#!/usr/bin/env python3
"""The memory of a front host with many live jobs: the daemon, its agents, and the master of each job.

    bench/masters.py [BUILD] [--jobs N] [--in-shares N] [--limit GIB] [--watch SECONDS]

Part 1: a real `rubato up` with virtual nodes; each job is a program that sleeps, on one slot. Part 2: masters whose
workers are in shares (docs/many-hosts.md), each with a share and its encrypted connection. The shares and the programs
would be on other hosts; here they need as many processes more, so part 2 may have fewer jobs. Memory is the
proportional set size (PSS): a page that several processes share counts once. With more processes, a process has a
smaller part of it. What the kernel needs for a process beyond that is given as the size of its page tables.
With --watch, the processor time of each kind is measured for so long while nothing happens.

Exit code: 0 all jobs were live at once and the front host of both parts stays below the limit, 1 not. For the second
part, a master counts as often as there are jobs in the first.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from live import Cluster, Failure, await_true, kill_all_of, require  # noqa: E402

SLEEP = "86400"
PART_SECONDS = 900


def kilobytes(path, name):
    return int(re.search(rf"^{name}:\s*(\d+) kB$", path.read_text(), re.MULTILINE)[1])


class Memory:
    """Kilobytes of all processes of one kind."""

    def __init__(self):
        self.processes = self.pss = self.anonymous = self.tables = 0

    def add(self, directory):
        self.pss += kilobytes(directory / "smaps_rollup", "Pss")
        self.anonymous += kilobytes(directory / "status", "RssAnon")
        self.tables += kilobytes(directory / "status", "VmPTE")
        self.processes += 1

    def row(self, name):
        return (f"  {name:<22} {self.processes:>6} {self.pss / 1024:>10.1f} {self.pss / self.processes:>10.0f} "
                f"{self.anonymous / self.processes:>10.0f} {self.tables / self.processes:>10.0f}")


def processes_below(directory):
    """With the verb of the rubato program, all processes that were started with this directory."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            words = (entry / "cmdline").read_bytes().split(b"\0")
            ours = str(directory).encode() in (entry / "environ").read_bytes() + b" ".join(words)
            if ours and pathlib.Path(os.fsdecode(words[0])).name == "rubato":
                found.append((words[1].decode(), entry))
    return found


def memory_below(directory):
    kinds = collections.defaultdict(Memory)
    for kind, entry in processes_below(directory):
        with contextlib.suppress(OSError):
            kinds[kind].add(entry)
    return kinds


def watch(directory, seconds):
    """Prints the processor time of each kind while nothing happens."""
    def used():
        times, waits = collections.Counter(), collections.Counter()
        for kind, entry in found:
            times[kind] += sum(map(int, (entry / "stat").read_text().rsplit(")", 1)[1].split()[11:13]))
            waits[kind] += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", (entry / "status").read_text(),
                                         re.MULTILINE)[1])
        return times, waits
    if not seconds:
        return
    time.sleep(10)  # until the last one that began is quiet
    found = processes_below(directory)
    before, waited = used()
    time.sleep(seconds)
    after, waits = used()
    for kind in sorted(after):
        number = sum(one == kind for one, _ in found)
        spent = (after[kind] - before[kind]) / os.sysconf("SC_CLK_TCK") / seconds
        print(f"  {number} rubato {kind}: {1000 * spent:.1f} ms of the processor a second, each waits "
              f"{(waits[kind] - waited[kind]) / number / seconds:.1f} times a second", flush=True)


def show(kinds):
    print(f"  {'processes':<22} {'number':>6} {'PSS MiB':>10} {'each kB':>10} {'anonymous':>10} {'tables kB':>10}")
    for name, memory in sorted(kinds.items()):
        print(memory.row(f"rubato {name}"))


def front(up, agents, masters, jobs):
    """GiB of what stands on the front host with so many jobs, with the page tables."""
    one = (masters.pss + masters.tables) / masters.processes
    return (up.pss + up.tables + agents.pss + agents.tables + jobs * one) / (1 << 20)


def local_jobs(build, jobs, seconds):
    """A daemon with so many jobs that run."""
    with Cluster(build, "fifo") as cluster:
        cluster.flags = ["--cluster", f"{-(-jobs // 64)}x64", "--most-jobs", str(2 * jobs)]
        cluster.up()

        def submit(_):
            return subprocess.run([cluster.rubato, "submit", "--no-elastic", "--gpus", "1", "--parsable", "--", "sleep",
                                   SLEEP], env=cluster.env, stdout=subprocess.DEVNULL, cwd=cluster.directory).returncode
        with concurrent.futures.ThreadPoolExecutor(4) as several:
            require(not any(several.map(submit, range(jobs))), "a submission failed")

        def live():
            return sum(bool(json.loads(path.read_text())) for path in cluster.state.glob("jobs/*/workers.json"))
        await_true(lambda: live() == jobs, lambda: f"{jobs} jobs with a program that runs; {live()} have one", PART_SECONDS)
        watch(cluster.directory, seconds)
        return memory_below(cluster.directory)


def launch_of(number, directory):
    share = {"name": "s-1", "node": "a", "slots": ["0.0"]}
    return {"job": number, "name": f"job{number}", "token": "token", "home": 0, "generation": 1, "slots": ["0.0"],
            "node_gpus": [1], "batch": None, "command": ["sleep", SLEEP], "env": {}, "directory": str(directory), "user": "",
            "secrets": {}, "least": 1, "most": 1, "max_failures": 3, "grace": 5, "log_limit": 1 << 20, "live": False,
            "shares": {"directory": str(directory), "placed": [share], "address": "127.0.0.1"}}


def managed_jobs(build, jobs, seconds):
    """So many masters with a share each."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="rubato-masters-"))
    rubato, started = str(build / "rubato"), []

    def start(*words):
        started.append(subprocess.Popen([rubato, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={**os.environ, "NATIVE_ID": "1"}))

    def live():
        return sum('"start"' in path.read_text() for path in root.glob("*/events.jsonl"))
    try:
        for number in range(1, jobs + 1):
            directory = root / str(number)
            directory.mkdir(mode=0o700)
            (directory / "launch.json").write_text(json.dumps(launch_of(number, directory)))
            start("master", str(directory))
            start("share", "--config", str(directory / "shares" / "s-1.json"), "--native-env", "NATIVE_ID")
            if number % 20 == 0:  # not all at once
                await_true(lambda number=number: live() >= number - 20, "the masters to keep up", PART_SECONDS)
        await_true(lambda: live() == jobs, lambda: f"{jobs} jobs with a worker; {live()} have one", PART_SECONDS)
        watch(root, seconds)
        return memory_below(root)
    finally:
        kill_all_of(root)
        for process in started:
            process.kill()
            process.wait()
        shutil.rmtree(root, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--in-shares", type=int, default=500, help="jobs of the second part")
    parser.add_argument("--watch", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--limit", type=float, default=4.0, help="GiB of the front host")
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    try:
        print(f"{options.jobs} live jobs on virtual nodes of this machine")
        local = local_jobs(build, options.jobs, options.watch)
        require(local["master"].processes == options.jobs, f"{local['master'].processes} masters live")
        show(local)
        print(f"{options.in_shares} masters whose workers are in shares")
        managed = managed_jobs(build, options.in_shares, options.watch)
        require(managed["master"].processes == options.in_shares, f"{managed['master'].processes} masters live")
        show(managed)
        for name, masters in (("on virtual nodes", local["master"]), ("in shares", managed["master"])):
            size = front(local["up"], local["agent"], masters, options.jobs)
            print(f"the front host with {options.jobs} jobs {name}: {size:.2f} GiB with page tables; the limit is "
                  f"{options.limit} GiB")
            require(size < options.limit, "the front host needs more than the limit")
    except Failure as failure:
        sys.exit(f"masters: {failure}")


if __name__ == "__main__":
    main()
