#!/usr/bin/env bash
# elasticflow on the whole Microsoft cluster 04 (15,802 jobs, 1,024 GPUs) with deadlines by seed.
# Needs the public trace. If it is missing, the script says so and stops.
set -euo pipefail
cd "$(dirname "$0")/.."
RUBATO=${RUBATO:-build/rubato}
# shellcheck source=bench/lib.bash
. bench/lib.bash
trace=${RUBATO_SHARED_DATA:-../shared/data}/microsoft/cluster04.csv
if [[ ! -f $trace ]]; then
  echo "deadlines: skipped, $trace is missing"
  exit 0
fi
for placement in count buddy; do
  row "cluster04 128x8 elasticflow $placement" --trace "$trace" --cluster 128x8 --policy elasticflow \
    --deadlines 0.5:1.5 --seed 1 --restart-cost 7 --placement "$placement"
done
