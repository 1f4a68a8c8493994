#!/usr/bin/env bash
# Runs the demo as a user does, after the build. It must end successfully and in time, resize jobs while they
# train, miss no deadline, and replay its journal.
#
#   e2e/demo.sh [BUILD]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# shellcheck source=e2e/checks.bash
source e2e/checks.bash
limit=300 # seconds; on an idle machine it takes at most three minutes
shown=$(mktemp)
trap 'rm -f "$shown"' EXIT

timeout --kill-after=30 "$limit" tools/live_demo "${1:-build}" >"$shown" 2>&1
status=$?
seconds=$SECONDS

# The line of figures: "3 resizes of running jobs, 0 restarts; deadlines met: 3, missed: 0".
says() { grep -qE -- "$1" "$shown"; }
check "it ends with status 0 within $limit seconds (status $status)" test "$status" -eq 0
check 'jobs are resized' says '^[1-9][0-9]* resizes of running jobs, '
check 'deadlines are met, and none is missed' says '; deadlines met: [1-9][0-9]*, missed: 0$'
check 'a job is measured first' says ': profiling, verdict by '
check 'one is admitted at once' says ': admitted, will finish by '
check 'one is refused' says ': refused, earliest feasible '
check 'and no other' test "$(grep -cE '^ +[0-9]+ +[a-z]+ +[^ ]+ +RF ' "$shown")" -eq 1
check 'its journal replays' says 'all reproduced byte for byte'
((failed == 0)) || cat "$shown"
echo "the demo took $seconds seconds: $passed passed, $failed failed"
((failed == 0))
