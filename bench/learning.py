#!/usr/bin/env python3
"""Compares policies and placements on jobs that slow each other down (docs/learning.md).

    bench/learning.py build/rubato CONTENTION [--seeds 20] [--only NAME] [--hidden WEIGHTS]
                      [--hidden-network WEIGHTS] [--also POLICY] [--table FILE.md] [--picture FILE.svg]
    bench/learning.py build/rubato --graphs [--seeds 10] [--samples 4000]

CONTENTION is a measured table (docs/contention.md). Each scene is simulated with the same generated
jobs under every policy and placement. No load, mix of GPU counts, mix of models or cluster of a scene
is one of those that `rubato learn` generates (shapes() in rubato/sim/learn.cc). The first column is the
average JCT relative to srsf with placement pack. The others are the average JCT relative to that of
learned, and of learned with the network: above 0, these are better. All have a 95% interval by a
paired bootstrap over the seeds. --table writes the first two columns as Markdown, and --picture draws
the first.

--graphs compares the two ways to learn a placement of operators (docs/graph.md) on the graphs that
Rubato has. The constants of both were chosen with seeds 1 to 3, which are not used here.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

# Training has all six models, equally often.
MIXED = "Transformer-XL,DLRM,MobileNetV3"
HEAVY = "FSDP,MoE,Transformer-XL"

# name: cluster, GPU mix, load, models, whether jobs are rigid
SCENES = {
    "aligned": ("10x6", "1=3,2=2,3=3,6=2,12=1", 0.8, MIXED, True),
    "spanning": ("16x4", "3=2,5=2,6=3,9=1", 0.65, MIXED, True),
    "spanning, busy": ("6x8", "3=2,6=3,12=2", 0.85, MIXED, True),
    "spanning, heavy models": ("10x2", "1=1,3=3,5=2", 0.55, HEAVY, True),
    "elastic": ("16x4", "1=3,2=3,3=2,6=2", 0.8, MIXED, False),
}

RULES = [("srsf", "pack"), ("srsf", "quiet"), ("srsf", "netpack"), ("afs-l", "pack"),
         ("afs-l", "netpack"), ("afs-l", "quiet")]
BASE = ("srsf", "pack")
LEARNED = ("learned", "pack")
NETWORK = ("learned:scorer=network", "pack")

GRAPHS = ("inception", "rnn", "transformer")
DEVICES = ("gpu=4", "gpu=2")


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
    learned = [LEARNED[0], "learned:contention=oracle", NETWORK[0]]
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


def interval(seeds, of=statistics.fmean, draws=2000):
    """The 95% interval of a figure of the seeds, by drawing seeds with replacement."""
    source = random.Random(1)
    found = sorted(of(source.choices(seeds, k=len(seeds))) for _ in range(draws))
    return found[int(draws * 0.025)], found[int(draws * 0.975)]


def change(seeds, of=statistics.fmean):
    """How far a ratio is above 1 in percent, with the limits of its interval."""
    return [100 * (ratio - 1) for ratio in (of(seeds), *interval(seeds, of))]


def text(figures):
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*figures)


def against(runs, key, base):
    return change([run[key] / run[base] for run in runs])


def name_of(key):
    policy, placement = key
    if "contention=hidden" in policy:
        policy = policy.split(",weights")[0]
    return f"{policy} + {placement}"


def show(scene, runs, table):
    """Prints the rows of a scene, and adds the first two columns to the table."""
    cluster, mix, load, models, _ = SCENES[scene]
    print(f"\n{scene}: {cluster}, GPUs {mix}, load {load}, {models}, {len(runs)} seeds; % of the average JCT")
    print(f"  {'':<48} {'against srsf + pack':>22} {'against learned':>22} {'against the network':>22}")
    for key in runs[0]:
        figures = {base: against(runs, key, base) for base in (BASE, LEARNED, NETWORK)}
        print(f"  {name_of(key):<48} " + " ".join(f"{'' if key == base else text(figures[base]):>22}" for base in figures))
        for base in (BASE, LEARNED):
            table[base].setdefault(scene, {})[name_of(key)] = figures[base]
    sys.stdout.flush()


def markdown(scenes, base):
    """A table with a row for each policy and a column for each scene."""
    names = list(dict.fromkeys(name for rows in scenes.values() for name in rows))
    lines = [f"Against {name_of(base)}, in %:", "",
             "| | " + " | ".join(scenes) + " |", "|---" * (1 + len(scenes)) + "|"]
    for name in names:
        if name != name_of(base):
            lines.append(f"| {name} | " + " | ".join(text(rows[name]) for rows in scenes.values()) + " |")
    return "\n".join(lines) + "\n"


def draw(scenes):
    """An SVG: for each scene a panel with a dot and an interval for each policy."""
    names = list(dict.fromkeys(name for rows in scenes.values() for name in rows))
    least = min(low for rows in scenes.values() for _, low, _ in rows.values())
    most = max(high for rows in scenes.values() for _, _, high in rows.values())
    left, panel, gap, row, top = 320, 190, 14, 20, 48
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


def write(path, content):
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)


def compare_policies(args):
    table = {BASE: {}, LEARNED: {}}
    for scene in SCENES:
        if args.only not in (None, scene):
            continue
        with tempfile.TemporaryDirectory() as folder:
            runs = [one_seed(args, scene, args.first_seed + i, folder) for i in range(args.seeds)]
        show(scene, runs, table)
    if args.picture:
        write(args.picture, draw(table[BASE]))
    if args.table:
        write(args.table, "\n".join(markdown(scenes, base) for base, scenes in table.items()))


def place(args, graph, devices, seed):
    """By method: what it found, and after how many placements it was within 2% of HEFT."""
    out = subprocess.run([args.rubato, "graph", "place", graph, "--devices", devices, "--methods",
                          "heft,reinforce,ppo", "--samples", str(args.samples), "--seed", str(seed), "--json"],
                         check=True, capture_output=True, text=True).stdout
    return {row["method"]: row for row in json.loads(out)["methods"]}


def ratio_of_sums(pairs):
    return sum(one for one, _ in pairs) / sum(other for _, other in pairs)


def compare_placements(args):
    with tempfile.TemporaryDirectory() as folder:
        for name in GRAPHS:
            graph = os.path.join(folder, name)
            subprocess.run([args.rubato, "graph", "make", name, "--out", graph], check=True)
            for devices in DEVICES:
                show_placements(args, name, devices, [place(args, graph, devices, args.first_seed + i)
                                                      for i in range(args.seeds)])


def show_placements(args, name, devices, runs):
    heft = runs[0]["heft"]["step_s"]
    print(f"\n{name} on {devices}, {len(runs)} seeds, {args.samples} placements each; HEFT: {1e3 * heft:.1f} ms")
    # Who never gets as far as HEFT + 2% counts with all its placements.
    samples = {method: [run[method]["samples_until_heft"] or args.samples for run in runs] for method in ("reinforce", "ppo")}
    for method, counts in samples.items():
        steps = [run[method]["step_s"] / heft for run in runs]
        reached = sum(run[method]["samples_until_heft"] is not None for run in runs)
        cpu = statistics.fmean(run[method]["cpu_s"] for run in runs)
        print(f"  {method:<10} step against HEFT {text(change(steps))}%, worst {100 * (max(steps) - 1):+.1f}%; HEFT + 2% "
              f"in {reached} of {len(runs)}, after {statistics.median(counts):g} (median); {cpu:.2f} s of CPU time")
    steps = change([run["ppo"]["step_s"] / run["reinforce"]["step_s"] for run in runs])
    print(f"  ppo against reinforce: step {text(steps)}%, samples "
          f"{text(change(list(zip(samples['ppo'], samples['reinforce'])), ratio_of_sums))}%", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rubato")
    parser.add_argument("contention", nargs="?")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1001)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--quiet-loss", type=float, default=0.1)
    parser.add_argument("--hidden", help="weights that were learned without contention")
    parser.add_argument("--hidden-network", help="a network that was trained without contention")
    parser.add_argument("--table", help="write both tables of docs/learning.md (Markdown)")
    parser.add_argument("--picture", help="write a picture of the intervals (SVG)")
    parser.add_argument("--also", action="append", default=[], help="a further policy")
    parser.add_argument("--only", choices=SCENES, help="one scene")
    parser.add_argument("--graphs", action="store_true", help="compare placements of operators instead")
    parser.add_argument("--samples", type=int, default=4000, help="placements that each method of --graphs may try")
    args = parser.parse_args()
    if args.graphs:
        compare_placements(args)
    elif args.contention:
        compare_policies(args)
    else:
        parser.error("give CONTENTION or --graphs")


if __name__ == "__main__":
    main()
