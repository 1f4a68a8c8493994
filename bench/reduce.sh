#!/usr/bin/env bash
# All-reduce of 100 MB on this machine: gloo's ring against our tree (bench/reduce_gloo.cc).
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
exec "${BUILD:-build}/bench/reduce_gloo" "$@"
