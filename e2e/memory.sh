#!/usr/bin/env bash
# A daemon that runs out of memory. The script lowers the daemon's limit from outside, so it does not matter how
# much memory it needs: first to half of its reserve, then to nothing. In the first case it refuses new jobs and
# everything else continues. In the second it ends with one sentence, jobs continue, and the next daemon has
# everything that was acknowledged.
set -uo pipefail
RUBATO=$(realpath "${RUBATO:-build/rubato}")
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
if ! command -v prlimit >/dev/null; then
  echo 'skipped: this machine has no prlimit'
  exit 0
fi
if grep -qa __asan_init "$RUBATO" || grep -qa __tsan_init "$RUBATO"; then
  echo 'skipped: a sanitizer uses its own memory allocator'
  exit 0
fi
dir=$(mktemp -d)
daemon=
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
  if [[ -n $daemon ]]; then
    cancel_waiting
    touch "$dir/done"
    await idle
    kill "$daemon"
    wait "$daemon"
  fi
  rm -rf "$dir"
}
trap clean_up EXIT
cd "$dir" || exit 1
unset RUBATO_SERVER RUBATO_TOKEN_FILE
export RUBATO_STATE=$dir/state NO_COLOR=1

# shellcheck disable=SC2317 # await calls it
idle() { [[ -z $("$RUBATO" ls --parsable -t R,RS,CG) ]]; }
# One arena: memory that malloc has reserved for other threads would not be affected by the limit.
up() {
  MALLOC_ARENA_MAX=1 "$RUBATO" up --quiet --cluster 1x1 --policy fifo 2>>daemon.err &
  daemon=$!
  await "$RUBATO" nodes || echo 'the daemon does not answer'
}
cancel_waiting() { "$RUBATO" ls --parsable -t PD | xargs -r -n 500 "$RUBATO" cancel; }
used() { awk '/^VmSize/ { print $2 * 1024 }' "/proc/$daemon/status"; }
says() { # CODE PATTERN ARGS...
  local code=$1 pattern=$2 got
  shift 2
  "$RUBATO" "$@" >both.txt 2>&1 </dev/null
  got=$?
  [[ $got -eq $code ]] && grep -qE -- "$pattern" both.txt
}
state_of() { "$RUBATO" status "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])'; }
runs() { [[ $(state_of "$1") == RUNNING ]]; }

# Submits large jobs, each over its own connection, until the daemon refuses one or is gone. Prints how many were
# acknowledged, and the status and sentence of the last answer. At most 6,000 jobs of 50 KiB.
fill() {
  python3 - "$RUBATO_STATE/api.sock" <<'END'
import http.client, json, socket, sys
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(sys.argv[1])
taken = 0
body = json.dumps({"command": ["true", "x" * 50000], "elastic": False, "gpus": 1})
connection = Unix("localhost")
try:
    for _ in range(6000):
        connection.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read().decode()
        if reply.status != 201:
            print(taken, reply.status, json.loads(text).get("error", ""))
            break
        taken += 1
    else:
        print(taken, 201, "was never refused")
except (OSError, http.client.HTTPException) as problem:
    print(taken, 0, "the daemon is gone:", problem)
END
}

up
first=$("$RUBATO" submit --parsable --no-elastic --gpus 1 -- sh -c "until [ -e '$dir/done' ]; do sleep 0.1; done")
second=$("$RUBATO" submit --parsable --no-elastic --gpus 1 -- true)
check 'a job runs' await runs "$first"

# Half of the reserve less than it has now: an allocation fails and uses up the reserve, which cannot be allocated again.
prlimit --pid "$daemon" --as="$(($(used) - (32 << 20)))":
read -r taken status sentence <<<"$(fill)"
check "new jobs are refused ($taken taken, then $status $sentence)" test "$status" = 503
check 'with the reason' grep -q 'short of memory' <<<"$sentence"
check 'the daemon is there' kill -0 "$daemon"
check 'running jobs continue' runs "$first"
check 'commands that read still work' says 0 '^JOBID' ls -n 5
check 'health says what is wrong' says 1 'the daemon is short of memory and accepts no new jobs' health
check 'jobs are cancelled' says 0 'CANCELLED' cancel "$second"
prlimit --pid "$daemon" --as=unlimited:
taken_again() { "$RUBATO" submit --parsable --no-elastic --gpus 1 -- true; }
check 'with more memory, jobs are accepted again' await taken_again
acknowledged=$("$RUBATO" ls --all --parsable | wc -l)

# No memory at all: the reserve does not help.
prlimit --pid "$daemon" --as=1:
read -r more status sentence <<<"$(fill)"
wait "$daemon"
check 'it ends with its exit code' test $? -eq 1
daemon=
check "it ended in the middle of submissions ($more $status $sentence)" test "$status" = 0
check 'with one sentence' test "$(grep -c 'rubato: out of memory; the daemon ends; jobs continue' daemon.err)" -eq 1
check 'and no other' test "$(wc -l <daemon.err)" -eq 1
up
check 'everything acknowledged is there' test "$("$RUBATO" ls --all --parsable | wc -l)" -ge $((acknowledged + more))
check 'the job still runs' await runs "$first"
check 'it was started once' says 0 '"restarts": 0' status "$first" --json
check 'cancel those that wait' cancel_waiting
touch "$dir/done"
check 'it completes' says 0 'COMPLETED' wait --timeout 1m "$first"
kill "$daemon"
check 'the daemon ends cleanly' wait "$daemon"
daemon=
check 'the journal replays' says 0 'all reproduced byte for byte' replay state

echo "$passed passed, $failed failed"
((failed == 0))
