#!/usr/bin/env python3
"""What bench/flagship.sh prints: a table for each workload, and what all of them say together."""
import json
import math
import sys


def is_ours(policy):
    return policy.startswith("rubato")


def comparable(runs):
    """An average over fewer jobs is another average."""
    most = max(run["completed"] for run in runs)
    return [run for run in runs if run["completed"] == most and run["avg_jct_s"]]


def best_other(runs):
    others = [run for run in comparable(runs) if not is_ours(run["policy"])]
    return min(others, key=lambda run: run["avg_jct_s"]) if others else None


def show_row(name, result):
    runs = result["runs"]
    best = best_other(runs)
    bound = result.get("bound", {}).get("avg_jct_s")
    print(f"{name}" + (f": bound {bound:.0f} s" if bound else ""))
    for run in runs:
        if not run["avg_jct_s"]:
            continue
        words = [f"  {run['policy']:34} {run['avg_jct_s']:9.0f} s"]
        words.append(f"{run['bound_ratio']:.3f} x bound" if run.get("bound_ratio") else " " * 13)
        words.append(f"{run['avg_jct_s'] / best['avg_jct_s']:.3f} x best other" if best and run in comparable(runs) else " " * 18)
        words.append(f"p99 {run['p99_jct_s']:9.0f}  rho p99 {run['ftf_p99']:5.2f} worst {run['ftf_max']:5.2f} unfair {run['ftf_unfair']:.3f}")
        if run["deadlines_total"]:
            broken = run["deadlines_total"] - run["deadlines_met"] - run["rejected"]
            words.append(f"met {run['deadlines_met']} refused {run['rejected']} broken {broken}")
        print("  ".join(words), flush=True)


def summary(path):
    """Over all workloads without deadlines: our average JCT over that of the best other policy of each."""
    ratios = {}
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        best = best_other(row["runs"])
        if best is None or any(run["deadlines_total"] for run in row["runs"]):
            continue
        for run in comparable(row["runs"]):
            if is_ours(run["policy"]):
                ratios.setdefault(run["policy"], []).append((run["avg_jct_s"] / best["avg_jct_s"], row["name"], best["policy"]))
    for policy, values in ratios.items():
        mean = math.exp(sum(math.log(ratio) for ratio, _, _ in values) / len(values))
        worst = max(values)
        print(f"{policy}: {mean:.3f} x the best other policy in the geometric mean of {len(values)} workloads; "
              f"at worst {worst[0]:.3f} x ({worst[1]}, {worst[2]})")


def main():
    if sys.argv[1] == "summary":
        return summary(sys.argv[2])
    name, source, rows = sys.argv[2:]
    with open(source, encoding="utf-8") as file:
        result = json.load(file)
    show_row(name, result)
    with open(rows, "a", encoding="utf-8") as file:
        file.write(json.dumps({"name": name, "runs": result["runs"]}) + "\n")


if __name__ == "__main__":
    main()
