#!/usr/bin/env bash
# Infrastructure failures do not count as failures of jobs: the program's file is moved away, or the directory of jobs cannot be
# written. Jobs wait, and run when the problem is repaired. A job that fails by itself restarts with a backoff. A job that ends
# while no daemon runs keeps its real end time.
# shellcheck disable=SC2317 # many functions are called by others that were given their names
set -uo pipefail
RUBATO=$(realpath "${RUBATO:-build/rubato}")
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
dir=$(mktemp -d)
daemon=
cd "$dir" || exit 1
unset RUBATO_SERVER RUBATO_TOKEN_FILE
export RUBATO_STATE=$dir/state XDG_RUNTIME_DIR=$dir NO_COLOR=1

up() { # BINARY ARGS...
  "$@" up --quiet --cluster 1x1 --policy fifo --listen 127.0.0.1:0 2>>daemon.err &
  daemon=$!
  await node_is up
}
down() { # SIGNAL
  kill -s "$1" "$daemon"
  wait "$daemon" 2>/dev/null
  daemon=
}
node_is() { "$RUBATO" nodes 2>/dev/null | grep -q "0  $1 "; }
# count STATES: how many jobs are in one of these states.
count() { "$RUBATO" ls -a -n 1000 --parsable -t "$1" 2>/dev/null | wc -l; }
are() { [[ $(count "$2") -eq $1 ]]; }
none_alive() { [[ -z $("$RUBATO" ls --parsable) ]]; }
submit() { "$RUBATO" submit --no-elastic --gpus 1 --parsable "$@"; }
status() { "$RUBATO" status --json "$1"; }
clean_up() {
  local jobs
  if [[ -n $daemon ]]; then
    mapfile -t jobs < <("$RUBATO" ls --parsable)
    ((${#jobs[@]} == 0)) || "$RUBATO" cancel "${jobs[@]}" >/dev/null
    await none_alive
    down TERM
  fi
  rm -rf "$dir"
}
trap clean_up EXIT

# The program's file is moved away, as an upgrade in place does.
cp "$RUBATO" ./copy
up ./copy
first=$(submit -- /bin/sh -c "until test -e '$dir/go'; do sleep 0.1; done")
for _ in {1..12}; do submit -- /bin/true >/dev/null; done
await are 1 RUNNING
mv copy moved
touch go
check 'all complete when the binary is gone' await are 13 COMPLETED
check 'none failed' are 0 FAILED
down TERM

# Nothing can be created in the directory of jobs. A mode would not stop root, so the directory is removed.
break_jobs() { mv state/jobs state/jobs.away && : >state/jobs; }
mend_jobs() { rm state/jobs && mv state/jobs.away state/jobs; }
up "$RUBATO"
break_jobs
for _ in {1..3}; do submit -- /bin/true >/dev/null; done
check 'the node is set aside' await node_is unknown
check 'and says why' grep -q 'unknown.*cannot make the directory .*state/jobs' <("$RUBATO" nodes)
check 'the daemon says so' grep -q 'node 0 is unknown: cannot make the directory' daemon.err
check 'the history says so' grep -q 'node 0 is unknown: cannot make the directory' <("$RUBATO" history)
check 'the jobs wait' await are 3 PENDING
mend_jobs
check 'the node is used again after the repair' await are 16 COMPLETED
check 'none failed for that' are 0 FAILED
check 'the node is up' node_is up

# A missing program is the job's own failure.
bad=$(submit --max-failures 0 -- /no/such)
check 'it fails' await are 1 FAILED
check 'and the reason is its program' grep -q 'failed once: cannot start "/no/such": the program was not found' <("$RUBATO" status "$bad")
again=$(submit --max-failures 1000000 -- /no/such)
paused() { status "$again" | grep -q 'starts again at .* after failure [4-9]: cannot start'; }
check 'another is started again after pauses' await paused
check 'explain says when' grep -q 'It starts again at' <("$RUBATO" explain "$again")
check 'the history has its pauses' grep -q 'starts again after a pause of 2 s' <("$RUBATO" history "$again")
"$RUBATO" cancel "$again" >/dev/null

# A job meets its deadline while no daemon runs. The next daemon starts later and still knows the end time.
due=$(submit --work steps=1 --deadline +1h -- /bin/sleep 1)
await are 1 RUNNING
down KILL
check 'it ends without a daemon' await test -e "state/jobs/$due/exit.json"
gone_by=$(date -u +%Y-%m-%dT%H:%M:%S)
is_later() { [[ $(date +%s) -ge $(($(date -d "${gone_by}Z" +%s) + 3)) ]]; }
await is_later
up "$RUBATO"
ended() { status "$due" | grep -q '"COMPLETED"'; }
check 'the daemon learns of its end' await ended
ended_then() { status "$due" | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["ended"][:19] > sys.argv[1])' "$gone_by"; }
check 'it has its real end time' ended_then
check 'it counts as in time' grep -q 'rubato_deadlines_total{result="met"} 1' <("$RUBATO" metrics)
await none_alive
down TERM
check 'everything replays' "$RUBATO" replay state

echo "e2e/infrastructure.sh: $passed checks passed, $failed failed; jobs $first to $due"
exit $((failed > 0))
