#!/usr/bin/env python3
"""What cells cost and bring (docs/cells.md): three tenants with busy afternoons at different hours.

    bench/cells.py [BUILD]

Each tenant has a generated trace for a third of a cluster of 12 nodes with 8 GPUs. The same jobs run on three private
partitions, with cells of the same size, and without quotas. The table has each tenant's mean time from submission to
the first start, and to the end.
"""

import csv
import pathlib
import subprocess
import sys
import tempfile

POLICIES = ("fifo-backfill", "srtf", "afs-l", "rubato")
TENANTS = ("vision", "speech", "search")
LOADS = (0.5, 0.8, 1.1)  # of the tenant's own third
JOBS = 500


def generate(rubato, path, seed, load, tenant, shift):
    subprocess.run([rubato, "generate", "--jobs", str(JOBS), "--seed", str(seed), "--cluster", "4x8", "--load", str(load),
                    "--diurnal", "--users", "1", "--out", path], check=True)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    time = next(name for name in rows[0] if name.startswith("submit"))
    identity = next(name for name in ("job_id", "id", "name") if name in rows[0])
    for number, row in enumerate(rows):
        row["user"] = tenant
        row[identity] = f"{tenant}-{number}"
        row[time] = repr(float(row[time]) + shift)
    return rows, time


def write(path, rows):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def simulate(rubato, folder, trace, cluster, policy, *flags):
    """For each job of the trace: seconds until its start and until its end."""
    out = folder / "jobs.csv"
    subprocess.run([rubato, "simulate", "--trace", trace, "--cluster", cluster, "--policy", policy, "--placement",
                    "pack", "--restart-cost", "30", "--jobs-csv", out, *flags], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    with open(out, newline="") as file:
        return list(csv.DictReader(file))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def main():
    rubato = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve() / "rubato")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = []
        for i, tenant in enumerate(TENANTS):
            own, time = generate(rubato, folder / f"{tenant}.csv", i + 1, LOADS[i], tenant, 8 * 3600 * i)
            write(folder / f"{tenant}.csv", own)
            rows += own
        rows.sort(key=lambda row: float(row[time]))
        write(folder / "all.csv", rows)
        (folder / "cells.txt").write_text("".join(f"{tenant} 4xnode\n" for tenant in TENANTS))
        print(f"{'policy':<14} {'tenant':<8} {'load':>5} | wait s: {'private':>8} {'cells':>8} {'none':>8} |"
              f" JCT s: {'private':>8} {'cells':>8} {'none':>8}")
        for policy in POLICIES:
            cells = simulate(rubato, folder, folder / "all.csv", "12x8", policy, "--cells", folder / "cells.txt")
            none = simulate(rubato, folder, folder / "all.csv", "12x8", policy)
            for tenant, load in zip(TENANTS, LOADS):
                private = simulate(rubato, folder, folder / f"{tenant}.csv", "4x8", policy)
                runs = (private, *([job for job in run if job["job_id"].startswith(tenant)] for run in (cells, none)))
                waits = [mean(float(job["start_s"]) - float(job["submit_s"]) for job in run) for run in runs]
                times = [mean(float(job["end_s"]) - float(job["submit_s"]) for job in run) for run in runs]
                print(f"{policy:<14} {tenant:<8} {load:>5} |         {waits[0]:>8.0f} {waits[1]:>8.0f} {waits[2]:>8.0f} |"
                      f"        {times[0]:>8.0f} {times[1]:>8.0f} {times[2]:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
