#!/usr/bin/env python3
"""Tests tenants' cells (docs/cells.md) on a live cluster, with real users and training jobs.

    e2e/cells.py BUILD [SCENARIO...]     all scenarios by default; exit 1 if anything does not hold

It needs root, as e2e/security.py does.
"""

import json
import time

from live import await_true, main, require
from security import ONE, Guarded, needs_root


def tenants(cluster):
    return json.loads(cluster.run("users", "cells", "list", "--json").stdout)["tenants"]


def refuses(cluster, status, why, *args):
    """One sentence says what is wrong."""
    said = cluster.run("users", "cells", *args, check=False)
    require(said.returncode == status, f"{args}: exit {said.returncode}, not {status}: {said.stderr}")
    require(why in said.stderr and said.stderr.count("\n") == 1, f"{args}: {said.stderr}")


def nodes_of(cluster, job):
    """The numbers of the nodes on which it has GPUs."""
    return {slot.split(".")[0] for slot in cluster.job(job)["slots"]}


def borrower_leaves(build):
    """A job trains on a tenant's idle cell, leaves when the tenant needs it, and comes back. What elastic jobs borrow
    depends on how fast the machine is with many workers, so the jobs have fixed sizes."""
    if why := needs_root():
        return why
    with Guarded(build) as cluster:
        cluster.policy = "fifo-backfill"
        cluster.up()
        refuses(cluster, 1, "do not fit the 8 GPUs", "set", ONE, "3xnode")
        refuses(cluster, 2, "is not the size of a cell", "set", ONE, "1x3")
        refuses(cluster, 2, "is not a whole number", "set", ONE, "0xnode")
        refuses(cluster, 2, "has no \"x\"", "set", ONE, "many")
        refuses(cluster, 2, "no space, comma or #", "set", "two words", "1xnode")
        refuses(cluster, 2, "is not the name of a user", "set", ONE, "1xnode", "--members", "two words")
        refuses(cluster, 3, "there is no tenant", "remove", ONE)
        cluster.run("users", "cells", "set", ONE, "1xnode")
        at_home, borrower = (cluster.submit(name, "--gpus", "4", steps=cluster.steps(600))["id"]
                             for name in ("home", "borrower"))
        cluster.await_training(borrower)
        tenant, = tenants(cluster)
        require(tenant["lent"] == 4 and tenant["used"] == 0, f"{tenant}")
        why = " ".join(cluster.ask("explain", borrower)["sentences"])
        require(f"{ONE} may take" in why, why)
        began = time.monotonic()
        jobs = [cluster.submit_as(ONE, f"own{i}", "sleep 4") for i in range(4)]
        await_true(lambda: all(cluster.job(job)["state"] in ("RUNNING", "COMPLETED") for job in jobs),
                   "the tenant's jobs to have their cell")
        took = time.monotonic() - began
        places = set().union(*(nodes_of(cluster, job) for job in jobs))
        require(len(places) <= 1, f"the tenant's jobs are on nodes {places}")
        for job in jobs:
            cluster.await_state(job, "COMPLETED")
        own = " ".join(cluster.ask_as(ONE, "explain", jobs[0])["sentences"])
        require("COMPLETED" in own or "completed" in own, own)
        cluster.await_state(borrower, "RUNNING")
        require(cluster.job(at_home)["restarts"] == 0, "the job that borrows nothing was restarted")
        denied = cluster.run_as(ONE, "users", "cells", "list", check=False)
        require(denied.returncode == 5, "a user may list all tenants")
        cluster.run("users", "cells", "remove", ONE)
        cluster.await_progress([at_home, borrower])
        for job in (at_home, borrower):
            cluster.run("cancel", job)
            cluster.await_state(job, "CANCELLED")
        cluster.stop()
        cluster.replays()
        return f"four jobs of the tenant had their cell after {took:.1f} s"


def promised_borrows_nothing(build):
    """Under the default policy, a job with a promise is on no GPU of the idle cell that others borrow."""
    if why := needs_root():
        return why
    with Guarded(build) as cluster:
        cluster.policy = "rubato"
        cluster.up()
        cluster.run("users", "cells", "set", ONE, "1xnode")
        known = cluster.submit("known", "--gpus", "1:4", "--profile", "dated", steps=cluster.steps(8))["id"]
        cluster.await_state(known, "COMPLETED")
        cell, = (str(node["id"]) for node in cluster.ask("nodes")["nodes"] if node.get("cells"))
        promised = cluster.submit("promised", "--gpus", "1:8", "--profile", "dated", "--deadline", "+5h",
                                  steps=cluster.steps(600))["id"]
        cluster.await_training(promised)
        borrower = cluster.submit("borrower", "--gpus", "1:8", steps=cluster.steps(600))["id"]

        def lent():
            require(cell not in nodes_of(cluster, promised), "the promised job is on borrowed GPUs")
            require(cluster.job(promised)["honoured"], f"{cluster.job(promised)}")
            tenant, = tenants(cluster)
            return tenant["lent"] > 0
        await_true(lent, "a job to borrow the cell")
        for _ in range(3):
            cluster.await_progress([promised, borrower])
            lent()
        why = " ".join(cluster.ask("explain", promised)["sentences"])
        require("nobody takes" in why and "It borrows no others, because its deadline is" in why, why)
        for job in (promised, borrower):
            cluster.run("cancel", job)
            cluster.await_state(job, "CANCELLED")
        cluster.stop()
        cluster.replays()
        return "the promised job stayed where nobody takes GPUs back"


if __name__ == "__main__":
    main([borrower_leaves, promised_borrows_nothing], "cells")
