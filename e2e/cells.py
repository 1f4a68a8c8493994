#!/usr/bin/env python3
"""Tests tenants' cells (docs/cells.md) on a live cluster, with real users and training jobs.

    e2e/cells.py BUILD [SCENARIO...]     all scenarios by default; exit 1 if anything does not hold

It needs root, as e2e/security.py does.
"""

import json
import time

from live import await_true, main, require
from security import ONE, Guarded, needs_root

NOTICE = 30  # seconds


def borrower_shrinks(build):
    """A job trains on a tenant's idle cells, gives back what the tenant needs, and gets it again."""
    if why := needs_root():
        return why
    with Guarded(build) as cluster:
        cluster.policy = "afs-l"
        cluster.up()
        said = cluster.run("users", "cells", "set", ONE, "3xnode", check=False)
        require(said.returncode == 1 and "do not fit the 8 GPUs" in said.stderr, said.stderr)
        said = cluster.run("users", "cells", "set", ONE, "1x3", check=False)
        require(said.returncode == 2 or said.returncode == 1, f"exit {said.returncode}")
        require("is not the size of a cell" in said.stderr, said.stderr)
        cluster.run("users", "cells", "set", ONE, "1xnode")
        borrower = cluster.submit("borrower", "--gpus", "1:8", steps=cluster.steps(25))["id"]
        cluster.await_training(borrower, lambda count: count > 4)
        tenant, = json.loads(cluster.run("users", "cells", "list", "--json").stdout)["tenants"]
        require(tenant["lent"] > 0 and tenant["used"] == 0, f"{tenant}")
        why = " ".join(cluster.ask("explain", borrower)["sentences"])
        require(f"{ONE} may take" in why, why)
        began = time.monotonic()
        jobs = [cluster.submit_as(ONE, f"own{i}", "sleep 4") for i in range(4)]
        await_true(lambda: all(cluster.job(job)["state"] in ("RUNNING", "COMPLETED") for job in jobs),
                   "the tenant's jobs to have their cell", NOTICE)
        took = time.monotonic() - began
        nodes = {slot["node"] for job in jobs for slot in cluster.job(job).get("slots", [])}
        require(len(nodes) <= 1, f"the tenant's jobs are on nodes {nodes}")
        for job in jobs:
            cluster.await_state(job, "COMPLETED")
        own = " ".join(cluster.ask_as(ONE, "explain", jobs[0])["sentences"])
        require("COMPLETED" in own or "completed" in own, own)
        cluster.await_training(borrower, lambda count: count > 4)
        require(cluster.job(borrower)["restarts"] == 0, "the borrower was restarted")
        denied = cluster.run_as(ONE, "users", "cells", "list", check=False)
        require(denied.returncode != 0, "a user may list all tenants")
        cluster.run("users", "cells", "remove", ONE)
        cluster.await_progress([borrower])
        cluster.run("cancel", borrower)
        cluster.await_state(borrower, "CANCELLED")
        cluster.stop()
        cluster.replays()
        return f"four jobs of the tenant had their cell after {took:.1f} s"


if __name__ == "__main__":
    main([borrower_shrinks], "cells")
