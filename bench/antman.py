#!/usr/bin/env python3
"""A guest beside its host (policy antman), live on one slot of this machine, with real training on both sides.

    bench/antman.py [BUILD] [--seconds 120] [--core N]

Both programs are pinned to the same core, which plays the GPU that they share. Two hosts are tried: examples/mlp, which
needs the whole core, and a network in numpy that waits for its input most of the time (antman_host.py). The guest is
examples/mlp. Nothing is measured by the agent's own numbers: the host's step times are those of its workers' reports, in
the windows of one run in which the guest stood still and in those in which it had a share. They alternate every few
seconds, so other load on the machine meets both. At the end the host is cancelled, and the guest trains alone.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import live  # noqa: E402  pylint: disable=wrong-import-position

MARGIN = 0.7  # seconds after a change of the share that are left out: the guest ends its step first


def submit(cluster, name, core, program, *flags, **environment):
    given = [word for key, value in environment.items() for word in ("--env", f"{key}={value}")]
    done = cluster.run("submit", "--name", name, "--gpus", "1", *flags, *given, "--json", "--",
                       "taskset", "-c", core, *program)
    return live.json.loads(done.stdout)["id"]


def windows(cluster, guest, begin, end):
    """(begin, end, share) by the clock, as the guest's launcher was told."""
    found, last = [], None
    for event in cluster.events(guest):
        if event["event"] == "throttle":
            if last:
                found.append((last[0], event["time"], last[1]))
            last = (event["time"], event["share"])
    if last:
        found.append((last[0], end, last[1]))
    return [(max(a, begin), min(b, end), share) for a, b, share in found if min(b, end) - max(a, begin) > 2 * MARGIN]


def mean_step(reports, begin, end):
    """(seconds, steps) of the host between the first and the last report inside the window."""
    inside = [r for at, r in reports if begin + MARGIN <= at <= end]
    if len(inside) < 2:
        return 0.0, 0
    return inside[-1]["applied_at"] - inside[0]["applied_at"], inside[-1]["step"] - inside[0]["step"]


def pair(build, kind, host_program, environment, guest_program, seconds, core):
    with live.Cluster(build, "antman", "--cluster", "1x1") as cluster:
        cluster.up()
        host = submit(cluster, "host", core, host_program, **environment)
        live.await_true(lambda: cluster.reports(host), "the host to train")
        guest = submit(cluster, "guest", core, guest_program, "--class", "opportunistic", OMP_NUM_THREADS="1")
        live.await_true(lambda: len(live.shares_told(cluster, guest)) > 1, "the guest to be tried")
        time.sleep(seconds / 4)  # until the share has found its place
        begin = time.time()
        time.sleep(seconds)
        end = time.time()
        reports = [(e["time"], e["content"]) for e in cluster.events(host) if e["event"] == "report"]
        told = windows(cluster, guest, begin, end)
        alone, beside = [], []
        for a, b, share in told:
            took, steps = mean_step(reports, a, b)
            if steps > 0:
                (beside if share > 0 else alone).append((took, steps, share, b - a))
        cluster.run("cancel", host)
        cluster.await_state(host, "CANCELLED")
        live.await_true(lambda: live.shares_told(cluster, guest)[-1] == 1, "the guest to be alone")
        time.sleep(1)
        first, at = cluster.step(guest), time.time()
        time.sleep(10)
        rate_alone = (cluster.step(guest) - first) / (time.time() - at)
        guest_reports = [e for e in cluster.events(guest) if e["event"] == "report" and begin <= e["time"] <= end]
        rate = ((guest_reports[-1]["content"]["step"] - guest_reports[0]["content"]["step"]) / (end - begin)
                if len(guest_reports) > 1 else 0)
        cluster.run("cancel", guest)
    if not alone:
        raise SystemExit("the host was never alone; try more --seconds")
    step_alone = statistics.median(took / steps for took, steps, _, _ in alone)
    step_beside = statistics.median(took / steps for took, steps, _, _ in beside) if beside else float("nan")
    # All of the time with a share, long windows counting more: what the host has really lost.
    mean_beside = sum(row[0] for row in beside) / sum(row[1] for row in beside) if beside else float("nan")
    mean_alone = sum(row[0] for row in alone) / sum(row[1] for row in alone)
    everything = (sum(row[0] for row in alone + beside)) / sum(row[1] for row in alone + beside)
    share = sum(row[2] * row[3] for row in beside) / sum(row[3] for row in alone + beside)
    lost = [1 - step_alone / step_beside, 1 - mean_alone / mean_beside, 1 - mean_alone / everything]
    print(f"| {kind} | {step_alone * 1e3:.1f} | {step_beside * 1e3:.1f} | "
          + " | ".join(f"{100 * part:.1f}%" for part in lost)
          + f" | {len(alone)}+{len(beside)} | {share:.2f} | {100 * rate / rate_alone:.0f}% |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default=str(HERE.parent / "build"))
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--core", default=str(max(os.sched_getaffinity(0))))
    arguments = parser.parse_args()
    build = pathlib.Path(arguments.build).resolve()
    mlp = [str(build / "examples" / "mlp"), "--steps", str(10**7)]
    python = {"PYTHONPATH": HERE.parent / "python", "LIBRUBATO": build / "librubato.so", "PYTHONDONTWRITEBYTECODE": "1",
              "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    print("| host | alone, ms | beside, ms | lost: medians | means | in all | windows | share | guest's speed |")
    print("|---|---|---|---|---|---|---|---|---|")
    guest = [*mlp, "--batch", "64"]
    pair(build, "`examples/mlp`, needs all", [*mlp, "--batch", "256"], {"OMP_NUM_THREADS": "1"}, guest, arguments.seconds,
         arguments.core)
    pair(build, "numpy, waits 50 ms for its input", [live.PYTHON, str(HERE / "antman_host.py")],
         {**python, "INPUT": "0.05"}, guest, arguments.seconds, arguments.core)


if __name__ == "__main__":
    main()
