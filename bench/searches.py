#!/usr/bin/env python3
"""Searches for hyper-parameters in the simulator (docs/contention.md, docs/traces.md).

    bench/searches.py build/rubato LINKS.json [--seeds 20] [--jobs 160]

Stages: the average completion time of a stage under the orders of --link-order, relative to fair
sharing, on jobs that span nodes. Without searches: the average JCT and the utilisation under
--link-order intensity, relative to fair sharing; utilisation is what jobs compute, as if alone, in
the GPU time that they hold. Stopping: the average time of a search and the GPU time of all
jobs, relative to searches that stop nobody. Both with 95% intervals by a paired bootstrap over the
seeds. LINKS.json is a contention file of links.
"""
import argparse
import json
import os
import random
import subprocess
import tempfile

MODELS = "MobileNetV3,GraphSage,FSDP,Transformer-XL,DLRM,MoE"

# name: cluster, GPU mix, load, share of the jobs in searches
SCENES = {
    "spanning": ("16x4", "3=2,5=2,6=3,9=1", 0.8, 0.7),
    "small nodes": ("12x2", "1=1,3=3,5=2", 0.8, 0.7),
    "all in searches": ("16x4", "6=1", 0.9, 1.0),
}
ORDERS = ("fair", "intensity", "grouper")
POLICIES = ("fifo-backfill", "srsf", "gandiva")


def interval(ratios, draws=2000):
    """The mean and its 95% interval, by drawing seeds with replacement."""
    source = random.Random(1)
    means = sorted(sum(source.choices(ratios, k=len(ratios))) / len(ratios) for _ in range(draws))
    return sum(ratios) / len(ratios), means[int(draws * 0.025)], means[int(draws * 0.975)]


def text(ratios):
    return "{:+.1f}% [{:+.1f}, {:+.1f}]".format(*(100 * (value - 1) for value in interval(ratios)))


def simulate(args, trace, cluster, policies, *flags):
    command = [args.rubato, "simulate", "--trace", trace, "--cluster", cluster, "--restart-cost", "30", "--rigid",
               "--threads", "1", "--json", "--policy", ",".join(policies), *flags]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {run["policy"]: run for run in json.loads(out)["runs"]}


def generate(args, folder, scene, seed, searches):
    cluster, mix, load, _ = SCENES[scene]
    trace = os.path.join(folder, "jobs.csv")
    subprocess.run([args.rubato, "generate", "--jobs", str(args.jobs), "--cluster", cluster, "--load", str(load),
                    "--gpu-mix", mix, "--models", MODELS, "--searches", str(searches), "--seed", str(seed), "--out",
                    trace], check=True, stderr=subprocess.DEVNULL)
    return trace


def stages(args, folder):
    for scene, (cluster, *_) in SCENES.items():
        runs = []
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            trace = generate(args, folder, scene, seed, SCENES[scene][3])
            runs.append({order: simulate(args, trace, cluster, ["srsf"], "--placement", "pack", "--contention",
                                         args.links, "--link-order", order)["srsf"] for order in ORDERS})
        print(f"\n{scene}: {cluster}, {args.seeds} seeds, srsf + pack")
        for order in ORDERS[1:]:
            stage = [run[order]["searches"]["avg_stage_s"] / run["fair"]["searches"]["avg_stage_s"] for run in runs]
            jct = [run[order]["avg_jct_s"] / run["fair"]["avg_jct_s"] for run in runs]
            print(f"  {order:<10} stage {text(stage):<26} JCT {text(jct)}", flush=True)


def gpu_time(run):
    return run["gpu_busy"] * run["makespan_s"]


def intensity(args, folder):
    print(f"\nno searches, intensity against fair, {args.seeds} seeds, srsf + pack")
    for scene, (cluster, *_) in SCENES.items():
        jct, used = [], []
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            trace = generate(args, folder, scene, seed, 0)
            fair, ordered = (simulate(args, trace, cluster, ["srsf"], "--placement", "pack", "--contention", args.links,
                                      "--link-order", order)["srsf"] for order in ("fair", "intensity"))
            jct.append(ordered["avg_jct_s"] / fair["avg_jct_s"])
            used.append(gpu_time(fair) / gpu_time(ordered))
        print(f"  {scene:<16} {cluster:<5} JCT {text(jct):<26} utilisation {text(used)}", flush=True)


def stopping(args, folder, cluster):
    kinds = {"stop": ("stop", ""), "stop, no waiting": ("stop", ":wait=false"), "ignore": ("ignore", "")}
    runs = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        run = {}
        for name, (mode, wait) in kinds.items():
            trace = os.path.join(folder, "jobs.csv")
            subprocess.run([args.rubato, "generate", "--jobs", str(args.jobs), "--cluster", cluster, "--load", "1",
                            "--searches", "0.8", "--search", f"trials=8:share=0.0625:keep-one-in=2{wait}", "--seed",
                            str(seed), "--out", trace], check=True, stderr=subprocess.DEVNULL)
            run[name] = simulate(args, trace, cluster, POLICIES, "--searches", mode)
        runs.append(run)
    print(f"\nstopping: {cluster}, load 1 if nobody is stopped, {args.seeds} seeds, against no stopping")
    for policy in POLICIES:
        for name in list(kinds)[:2]:
            def ratio(value, name=name, policy=policy):
                return [value(run[name][policy]) / value(run["ignore"][policy]) for run in runs]
            search = ratio(lambda run: run["searches"]["avg_s"])
            used = ratio(gpu_time)
            regret = sum(run[name][policy]["searches"]["regret"] for run in runs) / len(runs)
            print(f"  {policy:<14} {name:<17} search {text(search):<26} GPU time {text(used):<26} regret {regret:.4f}",
                  flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("rubato")
    parser.add_argument("links")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=160)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stages(args, folder)
        intensity(args, folder)
        for cluster in ("16x4", "2x4"):
            stopping(args, folder, cluster)


if __name__ == "__main__":
    main()
