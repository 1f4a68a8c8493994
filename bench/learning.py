#!/usr/bin/env python3
"""Compares policies and placements on jobs that slow each other down (docs/learning.md).

    bench/learning.py build/rubato CONTENTION [--seeds 20] [--only NAME] [--hidden WEIGHTS]

CONTENTION is a measured table (docs/contention.md). Each scene is simulated with the same generated
jobs under every policy and placement. The scenes, their seeds, loads, mixes and clusters are not
those that `rubato learn` generates. The table shows the average JCT relative to srsf with placement
pack, with a 95% interval by a paired bootstrap over the seeds.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

ALL = "MobileNetV3,GraphSage,FSDP,Transformer-XL,DLRM,MoE"

# name: cluster, GPU mix, load, models, whether jobs are rigid
SCENES = {
    "aligned": ("16x4", "1=3,2=3,4=3,8=2", 0.8, ALL, True),
    "spanning": ("16x4", "3=2,5=2,6=3,9=1", 0.65, ALL, True),
    "spanning, busy": ("6x8", "3=2,6=3,12=2", 0.85, ALL, True),
    "spanning, heavy models": ("10x2", "1=1,3=3,5=2", 0.6, "FSDP,MoE,Transformer-XL", True),
    "elastic": ("16x4", "1=3,2=3,3=2,6=2", 0.8, ALL, False),
}

RULES = [("srsf", "pack"), ("srsf", "quiet"), ("srsf", "netpack"), ("afs-l", "pack"),
         ("afs-l", "netpack"), ("afs-l", "quiet")]


def simulate(args, trace, cluster, rigid, placement, policies):
    command = [args.rubato, "simulate", "--trace", trace, "--cluster", cluster, "--placement",
               placement, "--contention", args.contention, "--restart-cost", "30", "--json",
               "--threads", "1"] + [x for policy in policies for x in ("--policy", policy)]
    if placement == "quiet":
        command += ["--quiet-loss", str(args.quiet_loss)]
    if rigid:
        command.append("--rigid")
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {policy: run["avg_jct_s"] for policy, run in zip(policies, json.loads(out)["runs"])}


def one_seed(args, scene, seed, folder):
    cluster, mix, load, models, rigid = SCENES[scene]
    trace = os.path.join(folder, "jobs.csv")
    subprocess.run([args.rubato, "generate", "--jobs", str(args.jobs), "--cluster", cluster,
                    "--load", str(load), "--gpu-mix", mix, "--models", models, "--seed",
                    str(seed), "--out", trace], check=True, stderr=subprocess.DEVNULL)
    learned = ["learned", "learned:contention=oracle"]
    if args.hidden:
        learned.append(f"learned:contention=hidden,weights={args.hidden}")
    by_placement = {}
    for policy, placement in RULES + [(policy, "pack") for policy in learned + args.also]:
        by_placement.setdefault(placement, []).append(policy)
    return {(policy, placement): jct
            for placement, policies in by_placement.items()
            for policy, jct in simulate(args, trace, cluster, rigid, placement, policies).items()}


def interval(ratios, draws=2000):
    """The 95% interval of the mean, by drawing seeds with replacement."""
    source = random.Random(1)
    means = sorted(sum(source.choices(ratios, k=len(ratios))) / len(ratios) for _ in range(draws))
    return means[int(draws * 0.025)], means[int(draws * 0.975)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rubato")
    parser.add_argument("contention")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1001)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--quiet-loss", type=float, default=0.1)
    parser.add_argument("--hidden", help="weights that were learned without contention")
    parser.add_argument("--also", action="append", default=[], help="a further policy")
    parser.add_argument("--only", help="one scene")
    args = parser.parse_args()
    for scene in SCENES:
        if args.only not in (None, scene):
            continue
        with tempfile.TemporaryDirectory() as folder:
            runs = [one_seed(args, scene, args.first_seed + i, folder) for i in range(args.seeds)]
        print(f"\n{scene}: {SCENES[scene][0]}, GPUs {SCENES[scene][1]}, load {SCENES[scene][2]}, "
              f"{args.seeds} seeds")
        for key in runs[0]:
            ratios = [run[key] / run[("srsf", "pack")] for run in runs]
            low, high = interval(ratios)
            print(f"  {key[0].split(',weights')[0] + ' + ' + key[1]:<40} "
                  f"{100 * (sum(ratios) / len(ratios) - 1):+6.1f}%   "
                  f"[{100 * (low - 1):+.1f}, {100 * (high - 1):+.1f}]")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
