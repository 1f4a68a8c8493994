#!/usr/bin/env python3
"""Fairness and completion time on several GPU types: `rubato` beside other policies, on generated traces.

    bench/fair_types.py [--seeds 11:31] [--policies rubato,themis]

Each trace has 120 jobs in Gavel's format: its models, with their measured speeds (throughputs.json), 75% on one GPU, 12% on
two, 13% on four, most of them half an hour to 17 hours on a V100, one every 1200 or 800 s on average. The cluster is that
of Gavel's own traces, 8 V100, 16 P100 and 24 K80. Prints means over all traces: average and p99 JCT over those of the
first policy (geometric means), p99 of rho, worst rho, share of jobs above 1.05. Needs the public traces; without them it
says so and stops.
"""

import argparse
import ast
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

JOBS, INTERVALS = 120, (1200, 800)
CLUSTER = ["--cluster", "8x1:v100,16x1:p100,24x1:k80", "--restart-cost", "0", "--rigid"]


def write_trace(speeds, seed, interval, file):
    draw = random.Random(seed * 100 + interval)
    models = sorted({ast.literal_eval(key)[0] for key in speeds})
    at, rows = 0, []
    while len(rows) < JOBS:
        at += draw.expovariate(1 / interval)
        model, gpus = draw.choice(models), draw.choices([1, 2, 4], [0.75, 0.12, 0.13])[0]
        if not steps_a_second(speeds, model, gpus):
            gpus = 1
        minutes = 10 ** (draw.uniform(1.5, 3) if draw.random() < 0.8 else draw.uniform(3, 3.6))
        steps = int(60 * minutes * steps_a_second(speeds, model, gpus)) + 1
        rows.append("\t".join([model, "train", "data", "-n", "1", str(steps), str(gpus), "1", "-1", str(int(at))]))
    file.write_text("\n".join(rows) + "\n", encoding="ascii")


def steps_a_second(speeds, model, gpus):
    measured = speeds.get(str((model, gpus)))
    return measured["null"] if measured else 0


def main():
    parser = argparse.ArgumentParser(description="Fairness on several GPU types, on generated traces.")
    parser.add_argument("--seeds", default="11:31", help="first seed, and the one after the last")
    parser.add_argument("--policies", default="rubato,rubato:fairness=0,themis,gavel-min-jct,gavel-ftf")
    options = parser.parse_args()
    data = pathlib.Path(os.environ.get("RUBATO_SHARED_DATA", "../shared/data")) / "gavel/throughputs.json"
    if not data.exists():
        print(f"fair_types: skipped, {data} is not here")
        return None
    speeds = json.loads(data.read_text(encoding="ascii"))["v100"]
    first, last = map(int, options.seeds.split(":"))
    runs = {}
    with tempfile.TemporaryDirectory() as directory:
        trace = pathlib.Path(directory) / "jobs.trace"
        for seed, interval in ((seed, interval) for seed in range(first, last) for interval in INTERVALS):
            write_trace(speeds, seed, interval, trace)
            done = subprocess.run([os.environ.get("RUBATO", "build/rubato"), "simulate", "--json", "--trace", trace, *CLUSTER,
                                   "--throughputs", data, "--policy", options.policies],
                                  capture_output=True, text=True, check=False)
            if done.returncode:
                return done.stderr
            for run in json.loads(done.stdout)["runs"]:
                runs.setdefault(run["policy"], []).append(run)
    base = next(iter(runs.values()))
    print(f"{len(base)} traces; average JCT, p99 JCT, p99 of rho, worst rho, share above 1.05")
    for policy, of_policy in runs.items():
        ratios = [math.exp(sum(math.log(run[key] / other[key]) for run, other in zip(of_policy, base)) / len(base))
                  for key in ("avg_jct_s", "p99_jct_s")]
        means = [sum(run[key] for run in of_policy) / len(base) for key in ("ftf_p99", "ftf_max", "ftf_unfair")]
        print(f"{policy:20} {ratios[0]:.4f} {ratios[1]:.4f}   {means[0]:.3f} {means[1]:.3f}   {100 * means[2]:.2f}%")
    return None


if __name__ == "__main__":
    sys.exit(main())
