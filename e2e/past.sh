#!/usr/bin/env bash
# The past of a cluster through the HTTP API and the command line: timeline, decisions, use, events and what-ifs, for
# an admin and for a user who must not see the jobs of others.
set -uo pipefail
RUBATO=$(realpath "${RUBATO:-build/rubato}")
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
dir=$(mktemp -d)
daemon=
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
  if [[ -n $daemon ]]; then
    "$RUBATO" cancel --all >/dev/null 2>&1
    await idle
    kill "$daemon"
    wait "$daemon"
  fi
  rm -rf "$dir"
}
trap clean_up EXIT
cd "$dir" || exit 1
unset RUBATO_SERVER RUBATO_TOKEN_FILE
export RUBATO_STATE=$dir/state XDG_RUNTIME_DIR=$dir NO_COLOR=1

# shellcheck disable=SC2317 # await calls them
idle() { [[ -z $("$RUBATO" ls --parsable) ]]; }
# shellcheck disable=SC2317
answers() { "$RUBATO" nodes --json | grep -q '"up"'; }
# shellcheck disable=SC2317
ends() { # CODE PATTERN ARGS...
  local said code
  said=$("$RUBATO" "${@:3}" 2>&1)
  code=$?
  [[ $code -eq $1 ]] && grep -qE -- "$2" <<<"$said"
}
up() {
  "$RUBATO" up --cluster 2x2 --policy fifo-backfill --quiet >>daemon.log 2>&1 &
  daemon=$!
  check 'the daemon answers' await answers
}
# ask USER METHOD PATH [BODY]: prints the answer. USER is admin, or other.
cat >ask.py <<'PYTHON'
import http.client, pathlib, sys
user, method, path, body = (sys.argv + [None])[1:5]
state = pathlib.Path("state")
token = pathlib.Path("other.token" if user == "other" else state / "admin.token").read_text().strip()
connection = http.client.HTTPConnection((state / "api.address").read_text().strip().removeprefix("http://"), timeout=30)
headers = {"Authorization": f"Bearer {token}"}
if body: headers["Content-Type"] = "application/json"
connection.request(method, path, body, headers)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
PYTHON
ask() { python3 ask.py "$@"; }
# shellcheck disable=SC2317
says() { grep -qE -- "$1" <<<"$(ask "${@:2}")"; } # PATTERN USER METHOD PATH [BODY]
# shellcheck disable=SC2317
hides() { ! grep -qE 'hidden|"user":"'"$(id -un)"'"' <<<"$(ask other GET "$1")"; } # PATH

up
"$RUBATO" users add --json other 2>/dev/null | python3 -c 'import json,sys; print(json.load(sys.stdin)["token"])' >other.token
python3 - >events.txt <<'PYTHON' &
import http.client, pathlib
token = pathlib.Path("other.token").read_text().strip()
connection = http.client.HTTPConnection(pathlib.Path("state/api.address").read_text().strip().removeprefix("http://"))
connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
for line in connection.getresponse():
    print(line.decode(), end="", flush=True)
PYTHON
watcher=$!
check 'a user watches' await grep -q changes events.txt
check 'a job runs' "$RUBATO" submit --no-elastic --gpus 2 --name hidden-one --wait -- sleep 1
"$RUBATO" submit --no-elastic --gpus 3 --name hidden-two --parsable -- sleep 1000 >two
check 'another one runs' await says '"job":'"$(cat two)"',"node":1.*"until":null' admin GET /v1/timeline

# --- an admin sees everything ---

check 'the timeline names the jobs' says '^200 .*"name":"hidden-two"' admin GET '/v1/timeline?since=1h'
check 'and what has changed' says '"kind":"start","gpus":3' admin GET '/v1/timeline?since=1h'
check 'nothing is missing' says '"truncated":false' admin GET /v1/timeline
check 'decisions are differences' says '"kind":"start","from":0,"to":3,"reason":"' admin GET '/v1/decisions?limit=1'
check 'with the time that they took' says '"took_ms":[0-9]' admin GET '/v1/decisions?limit=1'
check 'the use of the cluster' says '"gpus":4,"held":3,"training":3,"idle":1,"why_idle":\[\{"reason":"' admin GET /v1/use
check 'who used it' says '"gpu_hours":[0-9.e-]+,"weight":1' admin GET /v1/use

# --- a user sees nothing of others ---

for path in /v1/timeline /v1/decisions /v1/use; do check "$path hides others" hides "$path"; done
check 'a user sees that GPUs are held' says '"spans":\[\{"job":null' other GET /v1/timeline
check 'and no marks' says '"marks":\[\]' other GET /v1/timeline
check 'and that somebody was started' says '"job":null,"kind":"start","from":0,"to":3,"reason":null' other GET /v1/decisions
check 'events tell decisions' await grep -q 'event: decision' events.txt
check 'without jobs' test "$(grep -c hidden events.txt)" -eq 0
check 'a what-if is for admins' says '^403 ' other POST /v1/whatif '{"policies":["srtf"]}'
check 'its result, too' says '^403 ' other GET /v1/whatif/1
kill "$watcher"

# --- bad input ---

check 'a time that is none' says '^400 .*must be a time such as' admin GET '/v1/timeline?since=yesterday'
check 'a range that ends before it begins' says '^400 .*must be before' admin GET '/v1/timeline?since=1h&until=2h'
check 'a policy that is none' says '^400 ' admin POST /v1/whatif '{"policies":["no-such"]}'
check 'no policy' says '^400 .*1 to 8 policies' admin POST /v1/whatif '{"policies":[]}'
check 'an unknown field' says '^400 .*unknown field' admin POST /v1/whatif '{"policies":["srtf"],"sinc":"1h"}'
check 'a what-if that is not there' says '^404 ' admin GET /v1/whatif/99
check 'the command says what is wrong' ends 2 'must be a time such as' whatif --since x --policy srtf
check 'a policy that is none, by the command' ends 2 'no-such' whatif --policy no-such
check 'a directory that is none' ends 2 '.' whatif --journal nowhere --policy srtf

# --- what-ifs ---

"$RUBATO" cancel "$(cat two)" >/dev/null
check 'the cluster is idle' await idle
check 'a what-if is started' says '^202 .*"id":1,"state":"running"' admin POST /v1/whatif '{"since":"1h","policies":["as-run","srtf"]}'
check 'and is done' await says '"state":"done".*"truth":\{' admin GET /v1/whatif/1
check 'with both policies' says '"policy":"srtf"' admin GET /v1/whatif/1
check 'the command shows a table' ends 0 'what really happened' whatif --since 1h --policy as-run,srtf
check 'and what is unknown' ends 0 'Unknown:' whatif --since 1h --policy srtf
check 'as JSON' ends 0 '"taken_as_truth"' whatif --since 1h --policy srtf --json
check 'as a page' ends 0 'report written to w.html' whatif --since 1h --policy as-run,srtf --html w.html
check 'which has the jobs' grep -q 'hidden-one' w.html
id=$(ask admin POST /v1/whatif '{"policies":["as-run"]}' | sed -E 's/.*"id":([0-9]+).*/\1/')
check 'a what-if can be cancelled' says '^200 .*"state":"(cancelled|done)"' admin DELETE "/v1/whatif/$id"
check 'without a daemon' ends 0 'what really happened' whatif --journal state --policy srtf

# --- a restart forgets nothing ---

ask admin GET '/v1/decisions' | sed 's/"took_ms":[^,]*//g' >before
kill "$daemon"
wait "$daemon"
up
ask admin GET '/v1/decisions' | sed 's/"took_ms":[^,]*//g' >after
check 'decisions outlive the daemon' cmp before after
check 'replay agrees' ends 0 'byte for byte' replay state

echo "past: $passed passed, $failed failed"
exit $((failed > 0))
