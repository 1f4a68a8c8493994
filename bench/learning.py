#!/usr/bin/env python3
"""Compares policies and placements on jobs that slow each other down (docs/learning.md).

    bench/learning.py build/rubato CONTENTION [--seeds 20] [--only NAME] [--hidden WEIGHTS]
                      [--hidden-network WEIGHTS] [--picture FILE.svg]

CONTENTION is a measured table (docs/contention.md). Each scene is simulated with the same generated
jobs under every policy and placement. The scenes, their seeds, loads, mixes and clusters are not
those that `rubato learn` generates. The table shows the average JCT relative to srsf with placement
pack, with a 95% interval by a paired bootstrap over the seeds. --picture draws the same figures.
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
    learned = ["learned", "learned:contention=oracle", "learned:scorer=network"]
    if args.hidden:
        learned.append(f"learned:contention=hidden,weights={args.hidden}")
    if args.hidden_network:
        learned.append(f"learned:contention=hidden,scorer=network,weights={args.hidden_network}")
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


def draw(scenes):
    """An SVG: for each scene a panel with a dot and an interval for each policy."""
    names = list(dict.fromkeys(name for rows in scenes.values() for name in rows))
    least = min(low for rows in scenes.values() for _, low, _ in rows.values())
    most = max(high for rows in scenes.values() for _, _, high in rows.values())
    left, panel, gap, row, top = 250, 190, 14, 20, 48
    width = left + len(scenes) * (panel + gap)
    height = top + len(names) * row + 34
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             'font-family="system-ui, sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for i, name in enumerate(names):
        weight = "bold" if name.startswith("learned") else "normal"
        parts.append(f'<text x="{left - 12}" y="{top + i * row + 14}" text-anchor="end" fill="#1a2129" '
                     f'font-weight="{weight}">{name}</text>')
    for p, (scene, rows) in enumerate(scenes.items()):
        begin = left + p * (panel + gap)

        def x(value):
            return begin + (value - least) / (most - least) * panel
        parts.append(f'<text x="{begin + panel / 2}" y="{top - 22}" text-anchor="middle" fill="#1a2129">{scene}</text>')
        parts.append(f'<rect x="{begin}" y="{top - 6}" width="{panel}" height="{len(names) * row + 8}" fill="#f0f2f5"/>')
        parts.append(f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{top - 6}" y2="{top + len(names) * row + 2}" '
                     'stroke="#8a94a0"/>')
        for tick in range(int(least // 20) * 20, int(most) + 1, 20):
            if tick >= least:
                parts.append(f'<text x="{x(tick):.1f}" y="{top + len(names) * row + 18}" text-anchor="middle" '
                             f'fill="#586371">{tick:+d}%</text>')
        for i, name in enumerate(names):
            if name not in rows:
                continue
            mean, low, high = rows[name]
            y, colour = top + i * row + 10, "#d15800" if name.startswith("learned") else "#0068b0"
            parts.append(f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>')
            parts.append(f'<circle cx="{x(mean):.1f}" cy="{y}" r="4" fill="{colour}"/>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rubato")
    parser.add_argument("contention")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1001)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--quiet-loss", type=float, default=0.1)
    parser.add_argument("--hidden", help="weights that were learned without contention")
    parser.add_argument("--hidden-network", help="a network that was trained without contention")
    parser.add_argument("--picture", help="write a picture of the intervals (SVG)")
    parser.add_argument("--also", action="append", default=[], help="a further policy")
    parser.add_argument("--only", help="one scene")
    args = parser.parse_args()
    drawn = {}
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
            figures = [100 * (share - 1) for share in (sum(ratios) / len(ratios), low, high)]
            name = key[0].split(",weights")[0] + " + " + key[1]
            drawn.setdefault(scene, {})[name] = figures
            print(f"  {name:<55} {figures[0]:+6.1f}%   [{figures[1]:+.1f}, {figures[2]:+.1f}]")
        sys.stdout.flush()
    if args.picture:
        with open(args.picture, "w", encoding="utf-8") as file:
            file.write(draw(drawn))


if __name__ == "__main__":
    main()
