#!/usr/bin/env bash
# An unmodified PyTorch program under `rubato run --mode restart`: 1 -> 3 -> 2 workers, one of them killed. No step
# is lost, and only steps after the last checkpoint are repeated.
set -uo pipefail
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
RUBATO=$(realpath "${RUBATO:-build/rubato}")
program=$(realpath "$(dirname "${BASH_SOURCE[0]}")/ddp.py")
python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch.distributed' 2>/dev/null; then
  echo "skipped: $python has no torch (Debian: python3-torch)"
  exit 0
fi
dir=$(mktemp -d)
launcher=
cleanup() {
  if [[ -n $launcher ]]; then
    kill "$launcher" 2>/dev/null
    wait "$launcher"
  fi
  rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir" || exit 1
# A separate directory for the sockets, so that other runs of this user do not interfere.
export XDG_RUNTIME_DIR=$dir
refused() { # PATTERN ARGS...: one sentence, exit code 2
  local pattern=$1 code
  shift
  "$RUBATO" "$@" >out.txt 2>err.txt
  code=$?
  [[ $code -eq 2 && ! -s out.txt && $(wc -l <err.txt) -eq 1 ]] && grep -qE -- "$pattern" err.txt
}
json() { python3 -c "import json; d=json.load(open('$1')); assert $2, d"; }
steps() { python3 -c "import json; d=[json.loads(l) for l in open('steps.jsonl')]; assert $1, d"; }
# trained STEPS WORLD: waits until WORLD workers have made STEPS steps.
trained() {
  for _ in $(seq 300); do
    [[ $(grep -c "\"world\": $2}" steps.jsonl 2>/dev/null) -ge $1 ]] && return
    sleep 0.1
  done
  echo "timed out waiting for $1 steps with $2 workers"
  tail -n 5 run.err
  return 1
}

check 'no run yet' refused 'you have no runs' resize 2
total=300
"$RUBATO" run --workers 1:3 --mode restart --name ddp --log log.jsonl --json -- \
  "$python" "$program" "$dir" "$total" >summary.json 2>run.err &
launcher=$!
check 'one worker trains' trained 20 1
"$RUBATO" runs --json >runs.json
check 'the run is listed' json runs.json "[r['name'] for r in d['runs']] == ['ddp'] and len(d['runs'][0]['workers']) == 1"
check 'too many workers' refused 'outside 1:3' resize ddp 4
check 'too few workers' refused 'outside 1:3' resize ddp -1
check 'no number' refused 'not a number of workers' resize ddp many
check 'no such run' refused 'no run named "ddq"; alive: ddp' resize ddq 2
check 'name taken' refused 'there is a run named ddp already' run --name ddp -- true
check 'grow' "$RUBATO" resize ddp 3
check 'three workers train' trained 20 3
check 'shrink without naming the run' "$RUBATO" resize -1
check 'two workers train' trained 30 2
before=$(wc -l <steps.jsonl)
check 'kill' "$RUBATO" kill ddp
wait "$launcher"
code=$?
launcher=
check 'exit code' test "$code" -eq 0
check 'summary' json summary.json "d['finished'] and d['resizes'] == 2 and d['failures'] == 1 and d['starts'] == 1 + 3 + 2 + 2 and d['fresh_starts'] == 3"
check 'output is passed through' grep -qE "^\[[0-9]+\] at step $total of $total" run.err
check 'every step was made' steps "sorted({s['step'] for s in d}) == list(range(1, $total + 1))"
check 'resizes repeat no step' steps "[s['step'] for s in d[:$before]] == list(range(1, $before + 1))"
check 'a failure repeats at most what follows the checkpoint' steps "len(d) <= $total + 25"
check 'the last step is the last' steps "d[-1]['step'] == $total and d[-1]['world'] == 2"
check 'the loss falls' steps "sum(s['loss'] for s in d[-20:]) < 0.2 * sum(s['loss'] for s in d[:20])"
check 'the log tells all starts' bash -c "[[ \$(grep -c '\"event\":\"start\"' log.jsonl) -eq 8 ]]"
check 'nothing is left behind' bash -c '! compgen -G "rubato/*"'

# A program that exits with 0 after SIGTERM has not finished. A program that fails is not restarted for ever.
# shellcheck disable=SC2016
"$RUBATO" run --workers 1:2 --mode restart --name polite --json --grace 5 -- bash -c \
  'trap "exit 0" TERM; echo "rank $RANK of $WORLD_SIZE, start $TORCHELASTIC_RESTART_COUNT"
   [[ $WORLD_SIZE == 2 ]] && exit 0; while :; do sleep 0.05; done' >polite.json 2>polite.err &
launcher=$!
for _ in $(seq 100); do
  grep -q 'rank 0 of 1' polite.err && break
  sleep 0.05
done
check 'join' "$RUBATO" join
wait "$launcher"
code=$?
launcher=
check 'a resize is no end' test "$code" -eq 0
check 'it went on with two' grep -q '\[[0-9]*\] rank 1 of 2, start 0' polite.err
check 'counted as a resize' json polite.json "d['resizes'] == 1 and d['failures'] == 0 and d['starts'] == 3"
"$RUBATO" run --workers 2 --mode restart --max-failures 2 --json -- bash -c 'exit 7' >bad.json 2>bad.err
check 'failures have a limit' test $? -eq 1
check 'and a reason' json bad.json "'code 7, failure 3 of at most 2' in d['why'] and d['failures'] == 3"
check 'a program that is not there' refused 'cannot start "nowhere"' run --quiet --mode restart -- nowhere

echo "$passed passed, $failed failed"
((failed == 0))
