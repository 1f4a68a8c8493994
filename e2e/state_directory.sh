#!/usr/bin/env bash
# What users may do to a state directory: delete its journal, its lock and its sockets, copy it and move it, while
# the daemon runs and while it does not. No job is lost without a message, no job counts as run that has not run,
# and no daemon touches the jobs of another daemon. The jobs are small shell programs.
set -uo pipefail
RUBATO=$(realpath "${RUBATO:-build/rubato}")
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
dir=$(mktemp -d)
daemon=
# shellcheck disable=SC2317 # the trap calls it
clean_up() { # what has this directory in its arguments or its environment is ours
  local proc
  for _ in 1 2 3; do
    for proc in /proc/[0-9]*; do
      [[ ${proc#/proc/} -ne $$ ]] && grep -qsaF "$dir/" "$proc/cmdline" "$proc/environ" &&
        kill -9 "${proc#/proc/}" 2>/dev/null
    done
    sleep 0.1
  done
  rm -rf "$dir"
}
trap clean_up EXIT
cd "$dir" || exit 1
unset RUBATO_SERVER RUBATO_TOKEN_FILE RUBATO_STATE
export NO_COLOR=1
S=$dir/s

up() { # STATE FLAGS...
  "$RUBATO" up --state "$1" --cluster 1x2 --policy fifo "${@:2}" 2>>err.txt &
  daemon=$!
  await answers "$1"
}
answers() { "$RUBATO" nodes --state "$1"; }
stop() {
  kill "$daemon"
  wait "$daemon"
}
die() {
  kill -9 "$daemon"
  wait "$daemon"
} 2>/dev/null
# sh_job STATE SCRIPT FLAGS...: submits a job and prints only its number
sh_job() { "$RUBATO" submit --state "$1" --no-elastic --parsable "${@:3}" -- /bin/sh -c "$2"; }
state_of() { "$RUBATO" status --state "$1" --json "$2" | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])'; }
is() { [[ $(state_of "$1" "$2") == "$3" ]]; } # STATE JOB WORD
node_is() { "$RUBATO" nodes --state "$1" | grep -qE "^ *0 +$2"; }
ended() { ! kill -0 "$1" 2>/dev/null; }
refused() { # PATTERN COMMAND...: exit 2 and one sentence
  local pattern=$1
  shift
  timeout 20 "$@" >out.txt 2>refused.txt
  [[ $? -eq 2 && $(wc -l <refused.txt) -eq 1 ]] && grep -qE -- "$pattern" refused.txt
}

# --- the journal is deleted while the daemon is down: new jobs never use files of old jobs ---
up "$S"
first=$(sh_job "$S" 'echo private' --gpus 1)
await is "$S" "$first" COMPLETED
stop
rm "$S"/journal*
: >err.txt
up "$S"
check 'a lost journal is said' grep -q "There is a directory $S/jobs/$first, but the journal has no job from" err.txt
check 'and in the history' grep -q 'rows of the journal were lost' <("$RUBATO" history --state "$S")
second=$(sh_job "$S" "echo RAN >$dir/ran" --gpus 1)
check 'a new number' test "$second" -gt "$first"
await is "$S" "$second" COMPLETED
check 'the new job has run' test -s ran
check 'and shows its own log' test -z "$("$RUBATO" logs --state "$S" "$second" | grep private)"

# --- the directory of another job is in the place of the job's own ---
block=$(sh_job "$S" "while test ! -e $dir/go; do sleep 0.1; done" --gpus 2)
await is "$S" "$block" RUNNING
taken=$(sh_job "$S" "echo RAN >$dir/taken" --gpus 1 --max-failures 0)
cp -a "$S/jobs/$first" "$S/jobs/$taken"
touch go
await is "$S" "$taken" FAILED
check 'it says why' grep -q "$S/jobs/$taken belongs to another job" <("$RUBATO" status --state "$S" "$taken")
check 'nothing ran there' test ! -e taken
"$RUBATO" logs --state "$S" "$taken" >out.txt 2>&1
check 'its log is not shown' grep -q 'belongs to another job' out.txt
check 'nor a word of it' test "$(grep -c private out.txt)" -eq 0
check 'what was there is untouched' diff -r "$S/jobs/$first" "$S/jobs/$taken"
stop

# --- SQLite's write-ahead log is deleted, and a segment shows that rows are missing ---
rm -rf "$S"
up "$S"
for _ in 1 2 3; do sh_job "$S" true --gpus 1 >/dev/null; done
await is "$S" 3 COMPLETED
stop
up "$S"
for _ in 4 5 6; do sh_job "$S" true --gpus 1 >/dev/null; done
await is "$S" 6 COMPLETED
die
rm "$S/journal.sqlite-wal"
: >err.txt
up "$S"
check 'lost rows are said' grep -q 'The journal has lost rows: it ends with row 0' err.txt
check 'what was archived is there' test "$("$RUBATO" ls -a --state "$S" --parsable | wc -l)" -eq 3
check 'the lost numbers are not given again' test "$(sh_job "$S" true --gpus 1)" -gt 6
stop
segments=$(find "$S" -name 'journal-*.sqlite' | sort | tr '\n' ' ')
check "no two segments overlap: $segments" python3 -c '
import re, sys
spans = [tuple(map(int, re.findall(r"\d{12}", name))) for name in sys.argv[1].split()]
assert spans and all(a[1] + 1 == b[0] for a, b in zip(spans, spans[1:])), spans' "$segments"

# --- the secret is deleted ---
rm "$S/jobs.secret"
: >err.txt
up "$S"
check 'a lost secret is said' grep -q 'jobs.secret was missing and was created again' err.txt

# --- files are deleted while the daemon runs ---
rm "$S/lock"
check 'without its lock file it lets no second daemon in' refused 'belongs to a daemon that is running' "$RUBATO" up --state "$S" --cluster 1x2
rm "$S/api.sock" "$S/agents.sock"
check 'the API listens again' await answers "$S"
check 'the agents socket is made again' await test -S "$S/agents.sock"
agent=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["pid"])' "$S/nodes/0/agent.json")
kill -9 "$agent"
long=$(sh_job "$S" "while test ! -e $dir/over; do sleep 0.1; done" --gpus 1)
check 'a new agent finds it' await is "$S" "$long" RUNNING
rm "$S/jobs/$long/m.sock"
check 'the master listens again' await test -S "$S/jobs/$long/m.sock"
before=$("$RUBATO" ls -a --state "$S" --parsable | wc -l)
rm "$S"/journal.sqlite*
await ended "$daemon"
wait "$daemon"
check 'a deleted journal ends the daemon' test $? -eq 1
check 'with a sentence' grep -q 'was deleted or replaced while the daemon was running; jobs continue; its content was written' err.txt
up "$S"
check 'and nothing is lost' test "$("$RUBATO" ls -a --state "$S" --parsable | wc -l)" -eq "$before"
check 'the job goes on' await is "$S" "$long" RUNNING

# --- a copy ---
master=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["pid"])' "$S/jobs/$long/master.json")
cp -a "$S" s2
check 'a copy is refused' refused 'is a copy of a state directory that was at .*--restored' "$RUBATO" up --state "$dir/s2" --cluster 1x2
check 'the original is no copy' refused 'belongs to a daemon|is not a copy' "$RUBATO" up --state "$S" --cluster 1x2 --restored
original=$daemon
up "$dir/s2" --restored
check 'its job starts again there' await is "$dir/s2" "$long" RUNNING
"$RUBATO" cancel --state "$dir/s2" "$long" >/dev/null
check 'it is cancelled there' await is "$dir/s2" "$long" CANCELLED
check 'the original runs' is "$S" "$long" RUNNING
check 'with the same master' kill -0 "$master"
stop
up "$dir/s2"
check 'it was to be said once' answers "$dir/s2"
stop
daemon=$original

# --- a run without a daemon ---
mkdir -m 700 runtime
XDG_RUNTIME_DIR=$dir/runtime "$RUBATO" run --mode restart --workers 1 --name again --quiet -- \
  /bin/sh -c "while test ! -e $dir/enough; do sleep 0.1; done" &
run=$!
await test -S runtime/rubato/again.sock
rm runtime/rubato/again.sock
check 'the socket of a run is made again' await test -S runtime/rubato/again.sock
touch enough
check 'and the run ends' wait "$run"
check 'with its socket' test ! -e runtime/rubato/again.sock

# --- the directory is moved while the daemon and jobs run ---
mv "$S" s3
await ended "$daemon"
wait "$daemon"
check 'the daemon of a moved directory ends' test $? -eq 1
check 'and says so' grep -q "$S was moved, deleted or replaced while the daemon was running" err.txt
touch over # the training finishes while nobody looks
check 'its end is written where it is now' await test -s "s3/jobs/$long/exit.json"
up "$dir/s3"
check 'the node comes back' await node_is "$dir/s3" up
check 'a finished training has finished' await is "$dir/s3" "$long" COMPLETED
check 'it was started once' test "$(grep -c '^rubato: start' "s3/jobs/$long/log")" -eq 1
stop

echo "state directory: $passed passed, $failed failed"
((failed == 0))
