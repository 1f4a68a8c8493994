#!/usr/bin/env bash
# Average JCT and its ratio to the proven lower bound on two clusters of Microsoft's, at loads of 0.8, 1 and 2 of the GPUs
# asked for, with and without a restart cost. Needs the public traces. If they are missing, it says so and stops.
#
#   bench/limit.sh [POLICIES]    default: afs-l,equal,srtf,tiresias-las
set -euo pipefail
cd "$(dirname "$0")/.."
RUBATO=${RUBATO:-build/rubato}
data=${RUBATO_SHARED_DATA:-../shared/data}/microsoft
policies=${1:-afs-l,equal,srtf,tiresias-las}
if [[ ! -f $data/cluster03.csv ]]; then
  echo "limit: skipped, $data is missing"
  exit 0
fi
# GPU-seconds asked for / time between the first and the last submission: 139.7 GPUs in cluster03, 494.6 in cluster04.
for run in "03 44x4 0.8" "03 35x4 1" "03 35x2 2" "04 77x8 0.8" "04 62x8 1" "04 31x8 2"; do
  read -r cluster gpus load <<<"$run"
  for cost in 0 30; do
    "$RUBATO" simulate --trace "$data/cluster$cluster.csv" --cluster "$gpus" --policy "$policies" --restart-cost "$cost" \
      --bound --threads 1 --json 2>/dev/null | python3 -c '
import json, sys
cluster, gpus, load, cost = sys.argv[1:]
result = json.load(sys.stdin)
bound, runs = result["bound"], result["runs"]
limits = ", ".join("%s %.0f" % (name, bound[name + "_s"]) for name in ("alone", "srpt", "priced"))
print("cluster%s %s load %s restart %s s: bound %.0f s (%s)" % (cluster, gpus, load, cost, bound["avg_jct_s"], limits))
for run in runs:
    ratio = "%.3f x bound" % run["bound_ratio"] if run["bound_ratio"] else "not all completed"
    print("  %-24s %9.0f s  %s  %.2f x %s  resizes %d preemptions %d" % (run["policy"], run["avg_jct_s"], ratio,
          run["avg_jct_s"] / runs[0]["avg_jct_s"], runs[0]["policy"], run["resizes"], run["preemptions"]))
' "$cluster" "$gpus" "$load" "$cost"
  done
done
