#!/usr/bin/env bash
# How wall time grows with the number of jobs and GPUs, in powers of ten, at a load of 0.8 with decisions every
# 60 s. The last rows are the largest sizes that we support.
set -euo pipefail
cd "$(dirname "$0")/.."
RUBATO=${RUBATO:-build/rubato}
# shellcheck source=bench/lib.bash
. bench/lib.bash
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

generate() { # jobs nodes
  "$RUBATO" generate --jobs "$1" --cluster "$2x8" --load 0.8 --seed 1 --out "$dir/trace.csv" 2>/dev/null
}

size() { # jobs gpus policies...
  local jobs=$1 gpus=$2 policy
  shift 2
  generate "$jobs" $((gpus / 8))
  for policy in "$@"; do
    row "$jobs jobs, $gpus GPUs, $policy" --trace "$dir/trace.csv" --cluster "$((gpus / 8))x8" \
      --policy "$policy" --interval 60
  done
}

rigid=(fifo-backfill srtf tiresias-las)
echo "-- growing with jobs"
for jobs in 1000 10000 100000; do size "$jobs" 10000 "${rigid[@]}" afs-l; done
echo "-- growing with GPUs"
for gpus in 104 1000 100000; do size 100000 "$gpus" "${rigid[@]}"; done
echo "-- the largest"
size 1000000 100000 "${rigid[@]}"
