#!/usr/bin/env bash
# E-LAS and PickyMan beside the policies they are compared with, on jobs of fixed size. Prints, per trace and restart
# cost, the average JCT of tiresias-las divided by that of each policy, the average time until a job's first start, and
# the makespan, both in seconds.
#
#   RUBATO=build/rubato DATA=... bench/las.sh generated|public|restarts
#
# The generated traces chose the form of elas. For "restarts", a restart costs 10 s, and 600 s for every fifth job.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
RUBATO=$(realpath "${RUBATO:-build/rubato}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
policies=tiresias-las,tiresias-las:victims=cheapest,elas,elas:round=60,elas:form=product,elas:form=product,round=60,pickyman,srtf,srsf,fifo-backfill

compare() { # NAME TRACE CLUSTER COST
  local cost=(--restart-cost "$4")
  [[ $4 != own ]] || cost=()
  "$RUBATO" simulate --trace "$2" --cluster "$3" --rigid "${cost[@]}" --policy "$policies" --json 2>/dev/null >"$dir/out.json"
  python3 - "$1" "$4" "$dir/out.json" <<'END'
import json, sys
name, cost, file = sys.argv[1:]
runs = json.load(open(file))["runs"]
base = runs[0]["avg_jct_s"]
print(f"{name}, restart {cost}:", "; ".join(
    f"{r['policy']} x{base / r['avg_jct_s']:.3f} waits {r['avg_queue_s']:.0f} makespan {r['makespan_s']:.0f}" for r in runs), flush=True)
END
}

case ${1:-} in
  generated)
    for cost in 0 30; do
      for load in 0.8 1.0; do
        for seed in 11 12 13 14 15; do
          "$RUBATO" generate --jobs 1000 --cluster 8x8 --load "$load" --seed "$seed" --out "$dir/t.csv" 2>/dev/null
          compare "load $load seed $seed" "$dir/t.csv" 8x8 "$cost"
        done
      done
    done
    ;;
  public)
    for cost in 0 30; do
      compare 'Microsoft 01, 4x8' "$DATA/microsoft/cluster01.csv" 4x8 "$cost"
      compare 'Microsoft 02, 11x8' "$DATA/microsoft/cluster02.csv" 11x8 "$cost"
      compare 'Microsoft 03, 35x4' "$DATA/microsoft/cluster03.csv" 35x4 "$cost"
      compare 'Microsoft 08, 10x8' "$DATA/microsoft/cluster08.csv" 10x8 "$cost"
      compare 'Philly, 64x8' "$DATA/philly/philly.csv" 64x8 "$cost"
    done
    ;;
  restarts)
    policies=tiresias-las,tiresias-las:victims=cheapest,pickyman,srtf,srsf,fifo-backfill
    for load in 0.8 1.0; do
      for seed in 21 22 23 24 25; do
        "$RUBATO" generate --jobs 1000 --cluster 8x8 --load "$load" --seed "$seed" 2>/dev/null |
          awk -F, 'NR == 1 { print $0 ",restart_s"; next } { print $0 "," (NR % 5 == 0 ? 600 : 10) }' >"$dir/t.csv"
        compare "load $load seed $seed" "$dir/t.csv" 8x8 own
      done
    done
    ;;
  *)
    echo 'usage: bench/las.sh generated|public|restarts' >&2
    exit 2
    ;;
esac
