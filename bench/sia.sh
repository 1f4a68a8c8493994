#!/usr/bin/env bash
# Sia beside Pollux on the workloads published with Pollux (one GPU type), and beside Pollux and
# Gavel on a cluster where half of the nodes compute twice as fast. Prints both tables: average JCT
# in hours, each workload and the mean. Needs the public data. If it is missing, the script says so
# and stops. ONLY=one or ONLY=mixed prints one table.
set -euo pipefail
cd "$(dirname "$0")/.."
RUBATO=${RUBATO:-build/rubato}
data=${RUBATO_SHARED_DATA:-../shared/data}/pollux
workloads=${WORKLOADS:-1 2 3 4 5 7 8}
only=${ONLY:-one mixed}
if [[ ! -d $data ]]; then
  echo "sia: skipped, $data is missing"
  exit 0
fi
# Prints one row: the policy, then its average JCT in hours on each workload and their mean.
row() {
  local policy=$1
  shift
  local hours=()
  for n in $workloads; do
    hours+=("$("$RUBATO" simulate --trace "$data/workloads/workload-$n.csv" \
      --profiles "$data/profiles" --interval 60 --threads 1 --json --policy "$policy" "$@" \
      2>/dev/null | python3 -c 'import json, sys
print(json.load(sys.stdin)["runs"][0]["avg_jct_s"] / 3600)')")
  done
  printf '%s\n' "${hours[@]}" | awk -v name="$policy" \
    '{ sum += $1; text = text sprintf(" %6.3f", $1) }
     END { printf "%-40s%s  mean %6.3f\n", name, text, sum / NR }'
}
for table in $only; do
  case $table in
    one)
      echo "one type, 16 nodes x 4; workloads $workloads"
      for policy in sia pollux ${MORE:-}; do row "$policy" --cluster 16x4; done
      ;;
    mixed)
      echo "8 nodes x 4 as measured, 8 nodes x 4 that compute twice as fast; workloads $workloads"
      mixed=(--cluster "8x4:slow,8x4:fast" --type-speeds "slow=1,fast=2")
      for policy in sia pollux ${MORE:-}; do row "$policy" "${mixed[@]}"; done
      row gavel-las "${mixed[@]}" --placement pack
      ;;
  esac
done
