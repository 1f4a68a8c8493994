#!/usr/bin/env bash
# Compares the policy rubato with all other policies that can run the same jobs, on all public traces and on generated
# ones: average JCT, its ratio to the proven bound and to the best other policy, p99, finish-time fairness, deadlines.
# Needs the public traces. If they are missing, the script says so and stops.
#
#   bench/flagship.sh [ROWS]    the rows whose names match this pattern; default: all of them
#
# Variables: RUBATO is the binary. BOUND=0 leaves out the bound. EXTRA names policies to run in addition. SEEDS are the
# seeds of the generated traces (default: 101 102 103). ONLY is a list of policies to run instead of all.
set -euo pipefail
cd "$(dirname "$0")/.."
RUBATO=${RUBATO:-build/rubato}
data=${RUBATO_SHARED_DATA:-../shared/data}
rows=${1:-.}
if [[ ! -f $data/microsoft/cluster03.csv ]]; then
  echo "flagship: skipped, $data is not here"
  exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

ours=rubato,rubato:fairness=0
unknown=rubato:lengths=fraction,rubato:lengths=unknown
elastic=afs-l,afs-p,equal,hesrpt,elastic-tiresias,elasticflow,srtf,srsf,tiresias-las
typed="gavel-las,gavel-ftf,gavel-min-jct,gavel-makespan,gavel-throughput,gavel-hierarchical,allox,fifo-perf,gandiva,gandiva-fair,themis,srtf,srsf,tiresias-las,tiresias-gittins"
profiled=pollux,afs-l,optimus,elastic-tiresias
deadlines=elasticflow,edf,edf:count=peak,edf-admission,afs-l,srtf

run() { # NAME POLICIES ARGS...
  local name=$1 policies=${ONLY:-$ours,$2}${EXTRA:+,$EXTRA} bound=()
  shift 2
  [[ $name =~ $rows ]] || return 0
  [[ ${BOUND:-1} == 0 || " $* " == *" --profiles "* ]] || bound=(--bound)
  "$RUBATO" simulate --threads 1 --json "${bound[@]}" --policy "$policies" "$@" >"$dir/out.json" 2>/dev/null
  python3 bench/flagship.py row "$name" "$dir/out.json" "$dir/rows.jsonl"
}

# The GPUs that the trace asks for on average, divided by the load; in nodes of 8 if that is close enough.
size_for() { # CSV LOAD
  awk -F, -v load="$2" 'NR > 1 { sum += $3 * $4; if (min == "" || $2 < min) min = $2; if ($2 > max) max = $2 }
    END { gpus = sum / (max - min) / load; print gpus < 100 ? int(gpus + 0.5) "x1" : int(gpus / 8 + 0.5) "x8" }' "$1"
}

for size in "03 44x4 0.8" "03 35x4 1" "03 35x2 2" "04 77x8 0.8" "04 62x8 1" "04 31x8 2"; do
  read -r cluster gpus load <<<"$size"
  run "microsoft$cluster load $load" "$elastic,$unknown" --trace "$data/microsoft/cluster$cluster.csv" --cluster "$gpus" --restart-cost 30
done
for cluster in 01 02 05 07 08 09; do
  for load in 1 2; do
    run "microsoft$cluster load $load" "$elastic,$unknown" --trace "$data/microsoft/cluster$cluster.csv" \
      --cluster "$(size_for "$data/microsoft/cluster$cluster.csv" "$load")" --restart-cost 30
  done
done
for seed in ${SEEDS:-101 102 103}; do
  for load in 0.8 1.5; do
    "$RUBATO" generate --jobs 1000 --cluster 16x8 --load "$load" --seed "$seed" --out "$dir/trace.csv" 2>/dev/null
    run "generated seed $seed load $load" "$elastic,$unknown" --trace "$dir/trace.csv" --cluster 16x8 --restart-cost 30
  done
done
gavel=(--throughputs "$data/gavel/throughputs.json" --cluster "8x1:v100,16x1:p100,24x1:k80" --restart-cost 0 --rigid)
run "gavel 96" "$typed,$unknown" --trace "$data/gavel/96jobs.trace" "${gavel[@]}"
run "gavel 100" "$typed,$unknown" --trace "$data/gavel/100jobs-makespan.trace" "${gavel[@]}"
run "shockwave 220" "$typed,$unknown" --trace "$data/shockwave/220jobs.trace" --rigid \
  --throughputs "$data/shockwave/throughputs-tacc.json" --cluster 8x4:v100 --restart-cost 0
for workload in 1 2 5; do
  run "pollux $workload" "$profiled,$unknown" --trace "$data/pollux/workloads/workload-$workload.csv" \
    --profiles "$data/pollux/profiles" --cluster 16x4 --placement netpack
done
for size in "t4 16x4 0" "t4 16x4 60" "a100 16x8 0" "a100 16x8 60" "t4 4x4 0" "a100 4x8 0"; do
  read -r kind gpus interval <<<"$size"
  run "deadlines $kind $gpus interval $interval" "$deadlines" --trace "$data/elasticflow/195job-$kind.csv" --interval "$interval" \
    --curves "$data/elasticflow/curves-$kind" --cluster "$gpus:$kind" --restart-cost 2
done
[[ -f $dir/rows.jsonl ]] && python3 bench/flagship.py summary "$dir/rows.jsonl"
