#!/usr/bin/env bash
# Gavel's 96 jobs on three GPU types and Shockwave's 220 jobs on one, under every policy of Gavel,
# Gandiva, Gandiva_fair, Themis and AlloX; prints both tables and the seconds both took together.
# Needs the public traces. If they are missing, the script says so and stops.
set -euo pipefail
cd "$(dirname "$0")/.."
RUBATO=${RUBATO:-build/rubato}
data=${RUBATO_SHARED_DATA:-../shared/data}
threads=${THREADS:-$(nproc)}
policies=${1:-gavel-las,gavel-las:aware=off,gavel-las:packing=on,gavel-ftf,gavel-makespan,gavel-throughput,gavel-min-jct,gavel-hierarchical,isolated,fifo-perf,allox,gandiva,gandiva-fair,themis}
for trace in "$data/gavel/96jobs.trace" "$data/shockwave/220jobs.trace"; do
  if [[ ! -f $trace ]]; then
    echo "hetero: skipped, $trace is missing"
    exit 0
  fi
done
simulate() {
  "$RUBATO" simulate --placement count --restart-cost 0 --threads "$threads" --policy "$policies" "$@"
}
TIMEFORMAT="both traces, all policies: %R s, %U s of CPU, with $threads threads"
time {
  simulate --trace "$data/gavel/96jobs.trace" --throughputs "$data/gavel/throughputs.json" \
    --cluster 8x1:v100,16x1:p100,24x1:k80
  simulate --trace "$data/shockwave/220jobs.trace" \
    --throughputs "$data/shockwave/throughputs-tacc.json" --cluster 8x4:v100
}
