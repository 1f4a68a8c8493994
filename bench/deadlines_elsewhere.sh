#!/usr/bin/env bash
# Compares elasticflow with the other policies on workloads that were not used to choose its settings: how many
# deadlines are met, judged by real completion.
# Needs the public traces. If some are missing, the script says so and leaves out their rows.
set -euo pipefail
cd "$(dirname "$0")/.."
RUBATO=${RUBATO:-build/rubato}
data=${RUBATO_SHARED_DATA:-../shared/data}
policies=edf,edf:count=peak,edf-admission,tiresias-las,srtf,afs-l,elasticflow,elasticflow:admission=off
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

row() { # label, arguments of simulate
  local label=$1
  shift
  "$RUBATO" simulate "$@" --policy "$policies" --json 2>/dev/null | python3 -c "
import json, sys
runs = json.load(sys.stdin)['runs']
flow = next(r for r in runs if r['policy'] == 'elasticflow')
broken = flow['deadlines_total'] - flow['deadlines_met'] - flow['rejected']
print('| $label |', ' | '.join(str(r['deadlines_met']) for r in runs),
      f\"| {flow['deadlines_feasible']} of {flow['deadlines_total']} | {broken} |\")"
}

echo "| workload | ${policies//,/ | } | feasible | broken by elasticflow |"
for seed in 1 2 3; do
  "$RUBATO" generate --jobs 300 --cluster 8x8 --load 1.5 --deadlines 1 --seed "$seed" --out "$directory/jobs.csv" 2>/dev/null
  row "generated, seed $seed, 8x8" --trace "$directory/jobs.csv" --cluster 8x8 --restart-cost 10
done
for cluster in 01:4x8 02:4x8; do
  trace=$data/microsoft/cluster${cluster%%:*}.csv
  if [[ ! -f $trace ]]; then
    echo "deadlines_elsewhere: $trace is missing"
    continue
  fi
  row "Microsoft ${cluster%%:*}, ${cluster#*:}" --trace "$trace" --cluster "${cluster#*:}" --deadlines 0.5:1.5 --seed 1 \
    --restart-cost 10
done
