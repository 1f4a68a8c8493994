#!/usr/bin/env bash
# The whole Philly trace (82,247 jobs) on a cluster that is never full and on a contended one.
# Needs the public trace. If it is missing, the script says so and stops.
set -euo pipefail
cd "$(dirname "$0")/.."
RUBATO=${RUBATO:-build/rubato}
# shellcheck source=bench/lib.bash
. bench/lib.bash
trace=${RUBATO_SHARED_DATA:-../shared/data}/philly/philly.csv
if [[ ! -f $trace ]]; then
  echo "philly: skipped, $trace is missing"
  exit 0
fi
for cluster in 313x8 64x8; do
  for policy in fifo-backfill srtf tiresias-las afs-l; do
    row "philly $cluster $policy" --trace "$trace" --cluster "$cluster" --policy "$policy"
  done
done
