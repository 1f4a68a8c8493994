#!/usr/bin/env python3
"""Benchmarks of the Python package, each beside what it is compared with, in turns on the same machine.

  bench/python.py step        processor time of a step with two workers, compared with torch's DDP on gloo, which adds up
                              as many parts of a batch
  bench/python.py resize      pause of a resize, compared with the C++ trainer of the same model
  bench/python.py join        from the request to a new worker that trains, with and without `rubato run --warm`

Exit code: 0 all goals are reached, 1 some are not (one sentence each on standard error), 2 could not run.
"""

import argparse
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import elastic

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = str(HERE / "python_step.py")
WARM_UP = 5  # steps that are not counted
STEP_GOAL, PAUSE_GOAL = 1.1, 1.2


def prepare_environment(arguments):
    elastic.ENVIRONMENT.update(PYTHONPATH=str(HERE.parent / "python"), LIBRUBATO=f"{arguments.build}/librubato.so")


# --- step ---


def spent_per_step(arguments, directory, way, parameters):
    """Processor seconds of both workers for one step."""
    spent = os.path.join(directory, "spent")
    for file in glob.glob(spent + ".*"):
        os.remove(file)
    mode = ["--mode", "restart"] if way.startswith("ddp") else []
    done = subprocess.run([f"{arguments.build}/rubato", "run", "--quiet", "--workers", "2", *mode, "--", arguments.python,
                           PROGRAM, way, str(parameters), str(arguments.steps)], env={**elastic.ENVIRONMENT, "SPENT": spent},
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    files = glob.glob(spent + ".*")
    if done.returncode != 0 or len(files) != 2:
        raise elastic.Fault(f"{way} ended with code {done.returncode} and {len(files)} results: {done.stdout.strip()}")
    workers = [json.loads(pathlib.Path(file).read_text(encoding="ascii")) for file in files]
    steps = min(len(worker) for worker in workers) - WARM_UP - 1
    return sum((worker[-1] - worker[-1 - steps]) / steps for worker in workers)


def baseline(way):
    """DDP with as many parts of a batch. Two parts are one for each worker, as in a program without Rubato."""
    return f"ddp:{way.partition(':')[2] or 2}"


def step(arguments, directory):
    missed = []
    print(f"processor time of a step, both workers together; medians of {arguments.rounds} rounds; load "
          f"{os.getloadavg()[0]:.0f}, {os.cpu_count()} cores")
    ways = arguments.ways.split(",")
    ways = (*sorted(set(map(baseline, ways))), *ways)
    for parameters in (int(million) * 1_000_000 for million in arguments.millions.split(",")):
        seconds = {way: [] for way in ways}
        for _ in range(arguments.rounds):
            for way in ways:
                seconds[way].append(spent_per_step(arguments, directory, way, parameters))
        for way in ways:
            # Rounds are compared with themselves, because the speed of a machine varies.
            ratio = elastic.median([a / b for a, b in zip(seconds[way], seconds[baseline(way)])])
            print(f"{parameters // 1_000_000:3} million parameters  {way:8} {1000 * elastic.median(seconds[way]):7.1f} ms "
                  f"{ratio:5.2f} x {baseline(way)}", flush=True)
            if ratio > STEP_GOAL:
                missed.append(f"a step of {way} with {parameters} parameters needs {ratio:.2f} times the processor time of "
                              f"{baseline(way)}; the goal is {STEP_GOAL}")
    return missed


# --- resize and join ---


class PythonResize(elastic.LiveResize):
    def __init__(self, arguments, directory, flags=()):
        super().__init__(arguments, directory, flags)
        self.program = [arguments.python, PROGRAM, "exact:8", str(arguments.parameters), str(elastic.ENDLESS)]


def take_turns(arguments, ways):
    """Each way makes its share of the resizes in each block."""
    sizes = elastic.CYCLE
    try:
        for _ in range(arguments.blocks):
            for way in ways:
                way.begin(1)
                for i in range(arguments.resizes // arguments.blocks):
                    way.change(sizes[i % len(sizes)])
                way.end()
    finally:
        for way in ways:
            if way.run is not None:
                way.run.destroy()


def directory_of(directory, name):
    path = os.path.join(directory, name)
    os.mkdir(path)
    return path


def resize(arguments, directory):
    """Pauses, and how long a worker needs until it trains."""
    plain = elastic.LiveResize(arguments, directory_of(directory, "cpp"))
    ours = PythonResize(arguments, directory_of(directory, "python"))
    take_turns(arguments, [plain, ours])
    print(f"{arguments.resizes} resizes of 25 million parameters, load {os.getloadavg()[0]:.0f}, {os.cpu_count()} cores")
    pauses = {}
    for name, way in (("C++", plain), ("Python", ours)):
        pauses[name] = [sample["pause"] for sample in way.samples]
        elastic.row(f"{name}: pause", pauses[name], "ms", 1000)
        elastic.row(f"{name}: step of the change / steady step", [sample["ratio"] for sample in way.samples], "x")
        elastic.row(f"{name}: steady steps, distance from their median", [sample["unsteadiness"] for sample in way.samples],
                    "ms", 1000)
    shortest = max(elastic.median([sample["unsteadiness"] for sample in plain.samples]), elastic.SHORTEST_PAUSE)
    medians = {name: max(elastic.median(values), shortest) for name, values in pauses.items()}
    ratio = medians["Python"] / medians["C++"]
    print(f"the median pause in Python is {ratio:.2f} times that in C++; what is shorter than {1000 * shortest:.1f} ms, by "
          "which steady steps in C++ differ, cannot be told from none and counts as that")
    return [] if ratio <= PAUSE_GOAL else [f"the median pause is {ratio:.2f} times that in C++; the goal is {PAUSE_GOAL}"]


def join(arguments, directory):
    """From the request for one more worker to the first step with it."""
    ways = {name: PythonResize(arguments, directory_of(directory, name), flags)
            for name, flags in (("cold", ()), ("warm", ("--warm",)))}
    try:
        for _ in range(arguments.blocks):
            for way in ways.values():
                way.begin(1)
                if way.flags:
                    await_parent(way.run)
                for i in range(arguments.resizes // arguments.blocks):
                    way.change((2, 1)[i % 2])
                way.end()
    finally:
        for way in ways.values():
            if way.run is not None:
                way.run.destroy()
    waits = {name: [sample["waited"] for sample in way.samples if sample["to"] == 2] for name, way in ways.items()}
    print(f"from the request to the first step of a new worker, {arguments.parameters} parameters, load "
          f"{os.getloadavg()[0]:.0f}, {os.cpu_count()} cores")
    elastic.row("without --warm", waits["cold"], "s")
    elastic.row("with --warm", waits["warm"], "s")
    print(f"with --warm it takes {elastic.median(waits['warm']) / elastic.median(waits['cold']):.2f} times as long")
    return []


def await_parent(run):
    """Until the launcher's warm parent has imported torch. It has no output from then on."""
    def ready():
        children = pathlib.Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text(encoding="ascii")
        return any(b"rubato.warm" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                   and os.readlink(f"/proc/{pid}/fd/1") == os.devnull for pid in children.split())
    run.wait_for(ready, elastic.PATIENCE, "a warm parent")


MEASURES = {"step": step, "resize": resize, "join": join}


def main():
    parser = argparse.ArgumentParser(description="Benchmarks of the Python package.")
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--build", default="build", help="directory of rubato, librubato.so and examples/")
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch")
    parser.add_argument("--steps", type=int, default=30, help="of a round of `step`")
    parser.add_argument("--millions", default="5,25", help="of parameters, for `step`")
    parser.add_argument("--ways", default="exact:2,exact:8,gloo", help="of `step` (python_step.py)")
    parser.add_argument("--rounds", type=int, default=3, help="of `step`")
    parser.add_argument("--resizes", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=2, help="turns of the ways that are compared")
    parser.add_argument("--settle", type=int, default=6, help="steady steps between two changes")
    parser.add_argument("--parameters", type=int, default=25_000_000, help="of the model of `resize` and `join`")
    parser.add_argument("--program", default="wide", help="of examples/, in C++")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    prepare_environment(arguments)
    directory = tempfile.mkdtemp(prefix="rubato-python-")
    try:
        missed = MEASURES[arguments.measure](arguments, directory)
    except elastic.Fault as fault:
        missed = [str(fault)]
    except elastic.CannotRun as why:
        print(f"python.py: {why}", file=sys.stderr)
        sys.exit(2)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for sentence in missed:
        print(f"python.py: {sentence}", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
