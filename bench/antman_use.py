#!/usr/bin/env python3
"""antman in the simulator: how much of the GPUs is used with guests and without, and who pays for it.

    bench/antman_use.py THROUGHPUTS [BUILD] [--seeds 20]

THROUGHPUTS is a file of measured pairs in the format of Gavel. The first table is about the pairs: what a GPU does for a
guaranteed job and a guest together, over the guaranteed job alone, by the rule of the guest's share. The second is about
generated traces on 16 V100: jobs of the measured models, half of them opportunistic, at these loads. Guests are measured
against the same policy without guests. Nothing is random but the traces, which come from seeds.
"""

import argparse
import csv
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
POLICIES = ("antman:guests=off", "antman:host=oldest", "antman", "fifo-backfill")
MAY_LOSE = 0.05
GPUS, HOURS, LOADS = 16, 48, (0.7, 1.0, 1.3)


def read_models(path):
    """(model, batch, steps a second alone) of what was measured on one V100."""
    table = json.loads(pathlib.Path(path).read_text())["v100"]
    found = []
    for name, row in table.items():
        match = re.fullmatch(r"\('(.*) \(batch size (\d+)\)', 1\)", name)
        if match and row["null"]:
            found.append((match[1], match[2], row["null"]))
    return table, found


def about_pairs(table):
    """Means over hosts of what the two do together, less what the host does alone: beside each guest, the best, and
    beside a guest that is not slowed down."""
    each, best, free, pairs, harmless = [], [], [], 0, 0
    for host, row in table.items():
        gains, unlimited = [], []
        for guest, (of_host, of_guest) in ((g, v) for g, v in row.items() if g != "null" and g.endswith(", 1)")):
            if not (host.endswith(", 1)") and row["null"] and table[guest]["null"] and of_host and of_guest):
                continue
            kept, gets = min(1, of_host / row["null"]), min(1, of_guest / table[guest]["null"])
            share = 1 if kept >= 1 - MAY_LOSE else MAY_LOSE / (1 - kept)
            gains.append(share * (kept - 1 + gets))
            unlimited.append(kept - 1 + gets)
            pairs += 1
            harmless += share == 1
        if gains:
            each.append(statistics.mean(gains))
            best.append(max(gains))
            free.append(statistics.mean(unlimited))
    print(f"{len(each)} hosts, {pairs} pairs; {100 * harmless / pairs:.0f}% of the guests may compute all of the time")
    for what, values in (("each guest", each), ("the best guest", best), ("each guest, not slowed down", free)):
        print(f"use beside {what}: {100 * statistics.mean(values):+.1f}%")


def write_trace(path, models, seed, load):
    """Poisson arrivals of jobs on one GPU, whose lengths are log-uniform between 10 minutes and 10 hours."""
    draw = random.Random(seed)
    low, high = 600, 36000
    gap = (high - low) / math.log(high / low) / (load * GPUS)
    at = 0.0
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["job_id", "submit_s", "gpus", "duration_s", "model", "batch", "steps", "class"])
        number = 0
        while at < HOURS * 3600:
            model, batch, speed = draw.choice(models)
            length = math.exp(draw.uniform(math.log(low), math.log(high)))
            rows.writerow([number, f"{at:.3f}", 1, f"{length:.3f}", model, batch, max(1, round(length * speed)),
                           "opportunistic" if draw.random() < 0.5 else "guaranteed"])
            at += draw.expovariate(1 / gap)
            number += 1


def run(build, trace, throughputs):
    """By policy: the mean JCT of guaranteed jobs, of opportunistic jobs and of all, and the makespan."""
    with tempfile.TemporaryDirectory() as directory:
        jobs = pathlib.Path(directory) / "jobs.csv"
        done = subprocess.run([build / "rubato", "simulate", "--trace", trace, "--throughputs", throughputs, "--cluster",
                               f"{GPUS // 4}x4:v100", "--placement", "count", "--restart-cost", "0", "--policy",
                               ",".join(POLICIES), "--jobs-csv", jobs, "--json"], check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
        with open(jobs, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    makespan = {one["policy"]: one["makespan_s"] for one in json.loads(done.stdout)["runs"]}
    with open(trace, encoding="utf-8") as file:
        kind = {row["job_id"]: row["class"] for row in csv.DictReader(file)}
    found = {}
    for policy in POLICIES:
        took = [(kind[row["job_id"]], float(row["end_s"]) - float(row["submit_s"]))
                for row in rows if row["policy"] == policy]
        found[policy] = [statistics.mean(time for of, time in took if of in kinds)
                         for kinds in (("guaranteed",), ("opportunistic",), ("guaranteed", "opportunistic"))]
        found[policy].append(makespan[policy])
    return found


def about_traces(build, throughputs, models, seeds):
    print("\n| load | policy | JCT of guaranteed jobs | of opportunistic jobs | of all | makespan |\n|---|---|---|---|---|---|")
    for load in LOADS:
        ratios = {policy: [] for policy in POLICIES}
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as directory:
                trace = pathlib.Path(directory) / "jobs.csv"
                write_trace(trace, models, seed, load)
                found = run(build, trace, throughputs)
            for policy, values in found.items():
                ratios[policy].append([value / base for value, base in zip(values, found[POLICIES[0]])])
        for policy in POLICIES:
            means = [statistics.mean(column) for column in zip(*ratios[policy])]
            print(f"| {load} | `{policy}` | " + " | ".join(f"{mean:.3f}" for mean in means) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("throughputs")
    parser.add_argument("build", nargs="?", default=str(HERE.parent / "build"))
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    table, models = read_models(arguments.throughputs)
    about_pairs(table)
    about_traces(pathlib.Path(arguments.build).resolve(), arguments.throughputs, models, arguments.seeds)


if __name__ == "__main__":
    main()
