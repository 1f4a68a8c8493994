#!/usr/bin/env bash
# Tests the commands that talk to the daemon. First without a daemon: bad input is reported before a connection
# is tried, exit codes are those of docs/command-line.md, and shell completion works. Then with a daemon: every
# field of a job, every command, --json, --parsable, and the verdicts that need no training. The jobs are small
# shell programs that know nothing of Rubato; e2e/live.py has training jobs.
set -uo pipefail
RUBATO=$(realpath "${RUBATO:-build/rubato}")
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
dir=$(mktemp -d)
daemon=
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
  local jobs
  if [[ -n $daemon ]]; then
    mapfile -t jobs < <("$RUBATO" ls --parsable)
    ((${#jobs[@]} == 0)) || "$RUBATO" cancel "${jobs[@]}" >/dev/null
    await_idle
    kill "$daemon"
    wait "$daemon"
  fi
  rm -rf "$dir"
}
trap clean_up EXIT
cd "$dir" || exit 1
unset RUBATO_SERVER RUBATO_TOKEN_FILE
export RUBATO_STATE=$dir/state XDG_RUNTIME_DIR=$dir NO_COLOR=1
mkdir state
printf 'command: [true]\n' >good.yaml

# ends CODE PATTERN ARGS...: exit code CODE, one sentence on standard error, nothing on standard output.
ends() {
  local code=$1 pattern=$2 got
  shift 2
  "$RUBATO" "$@" >out.txt 2>err.txt </dev/null
  got=$?
  [[ $got -eq $code && ! -s out.txt && $(wc -l <err.txt) -eq 1 ]] && grep -qE -- "$pattern" err.txt
}

for command in ls 'status 1' 'logs 1' 'cancel 1' 'hold 1' 'release 1' 'explain 1' 'resize 1 2' nodes 'drain 0' \
  'resume 0' policy metrics history top 'users list' 'wait 1' health 'submit good.yaml'; do
  # shellcheck disable=SC2086 # words of a command
  check "no daemon: $command" ends 4 'no daemon listens at .*api.sock; start one' $command
  # shellcheck disable=SC2086
  check "help: $command" grep -q 'Examples' <("$RUBATO" $command --help)
done
# Everybody who submits would wait for the solver's libraries to be loaded.
check 'a client does not load the solver' test "$(ldd "$RUBATO" | grep -ciE 'clp|blas|lapack')" -eq 0
for heading in 'Jobs of a cluster:' 'A cluster:' 'Simulation:'; do
  check "help lists: $heading" grep -q "^$heading" <("$RUBATO" --help)
done
check 'no daemon: several jobs' test "$("$RUBATO" hold 1 2 2>&1 | wc -l)" -eq 2
check 'no daemon: several jobs in one request' test "$("$RUBATO" cancel 1 2 2>&1 | wc -l)" -eq 1

printf 'command: [true]\ngpu: 3\n' >unknown.yaml
printf 'a: &a [x]\nb: *a\n' >alias.yaml
printf '{"command": "rm -rf x"}' >shell.json
printf 'command: [true]\nsecrets: {KEY: hunter2}\n' >secret.yaml
: >empty.yaml
check 'unknown field' ends 2 'unknown.yaml: a job has no field "gpu" \(did you mean gpus\?\)' submit unknown.yaml
check 'alias' ends 2 'alias.yaml: line 1 has an anchor' submit alias.yaml
check 'a line for a shell' ends 2 'must be a list' submit shell.json
check 'a secret in the file' ends 2 'never the secret itself' submit secret.yaml
check 'a secret is not repeated' test "$(grep -c hunter2 err.txt)" -eq 0
check 'a secret that is not there' ends 2 'secrets.KEY must name a file' submit --secret KEY=nowhere good.yaml
check 'empty file' ends 2 'empty.yaml is empty' submit empty.yaml
check 'no file' ends 2 'cannot read' submit nowhere.yaml
check 'nothing to run' ends 2 'what should run' submit
check 'command without dashes' ends 2 'write -- before the command' submit good.yaml true
check 'bad deadline' ends 2 'write \+2h' submit --deadline noon good.yaml
check 'bad work' ends 2 'epochs=3' submit --work 3 good.yaml
check 'bad gpus' ends 2 'no number of GPUs' submit --gpus many good.yaml
check 'a variable that is not set' ends 2 'no such variable' submit --env SURELY_NOT_SET good.yaml
check 'a file and flags' ends 4 'no daemon listens' submit good.yaml --env HOME --env A=b=c --gpus 1,2,4 --deadline +1h30m
check 'flags of the program stay its own' ends 4 'no daemon listens' submit -- true --name -x --json
check 'standard input' bash -c "printf 'command: [a]\ngpu: 1' | '$RUBATO' submit - 2>&1 | grep -q 'no field'"
check 'bad address' ends 2 'no address of a daemon' ls --server nonsense
printf 'rub_x\n' >token
chmod 644 token
check 'a token that others can read' ends 2 'chmod 600' ls --server 127.0.0.1:1 --token-file token
chmod 600 token
check 'nobody listens' ends 4 'no daemon listens' ls --server 127.0.0.1:1 --token-file token
check 'a range that can be read' ends 2 'limit: must be a number above 0, not "0"' ls -n 0
check 'a range that can be read, from 0' ends 2 'after: must be 0 or a number above it, not "-1"' history --after -1
for year in 0001 9999; do
  check "a deadline in the year $year" ends 2 'is out of range: it must be in the years 1970 to 8999' \
    submit --work steps=1 --deadline "$year-01-01T00:00:00Z" good.yaml
done
check 'a timeout that is none' ends 2 'write a time such as' wait --timeout soon 1
check 'a retention that is none' ends 2 'write a time such as 90d' up --keep-journal soon
check 'unknown command' ends 2 'no command "sbumit" \(did you mean submit\?\); see rubato --help' sbumit
check 'unknown option' ends 2 'not expected: --colour; see rubato ls --help' ls --colour

# completes EXPECTED WORDS...: the last of WORDS is the part of a word that the user has typed.
completes() {
  local expected=$1
  shift
  bash -c '
    rubato() { "$RUBATO" "$@"; }
    source <("$RUBATO" completion bash)
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _rubato
    printf "%s\n" "${COMPREPLY[@]}"' _ "${@}" | grep -xF -- "$expected" >/dev/null # reads all
}
export RUBATO
check 'completes commands' completes submit rubato sub
check 'completes flags' completes --deadline rubato submit --dead
check 'completes commands of commands' completes token rubato users t
check 'completes flags after a value' completes --parsable rubato submit --name x --pars
check 'zsh script' grep -q '^#compdef rubato' <("$RUBATO" completion zsh)
check 'fish script' grep -q 'complete -c rubato' <("$RUBATO" completion fish)
check 'no other shell' ends 2 'shell' completion tcsh


# --- with a daemon --------------------------------------------------------------------------------

# shellcheck disable=SC2317 # await calls it
idle() { [[ -z $("$RUBATO" ls --parsable) ]]; }
await_idle() { await idle; }

# answers EXPRESSION ARGS...: --json prints one value d for which the expression is true.
answers() {
  local expression=$1
  shift
  "$RUBATO" "$@" --json >json.txt 2>err.txt
  python3 -c "import json; d = json.load(open('json.txt')); assert $expression, d"
}
says() { # CODE PATTERN ARGS...: exit code, and text on either output
  local code=$1 pattern=$2 got
  shift 2
  "$RUBATO" "$@" >both.txt 2>&1 </dev/null
  got=$?
  [[ $got -eq $code ]] && grep -qE -- "$pattern" both.txt
}

rmdir state # the daemon makes it, for its owner alone
"$RUBATO" up --cluster 2x4 --policy fifo-backfill 2>daemon.log &
daemon=$!
if ! await "$RUBATO" nodes; then
  cat daemon.log
  echo 'the daemon does not answer'
  exit 1
fi

check 'it says its cluster' grep -q '^rubato: cluster 2x4$' daemon.log
check 'all is well' says 0 '^all is well$' health
check 'health as JSON' answers "d == {'status': 'ok', 'problems': []}" health
check 'somebody whom nobody knows' says 0 'surely-nobody: they can look, but not submit' users add surely-nobody

# A program that runs until the file $1 exists, and prints its rank and its variables.
cat >train.sh <<'END'
echo "rank $RANK of $WORLD_SIZE in $RUBATO_SLOT A=$A"
[ -z "$KEY" ] || echo "a secret in a file of mode $(stat -c %a "$KEY"): $(wc -c <"$KEY") bytes"
trap 'exit 143' TERM
until [ -e "$1" ]; do sleep 0.1; done
END
printf 'hunter2' >secret
chmod 600 secret
cat >full.yaml <<END
command: [sh, "$dir/train.sh", "$dir/done-full"]
name: full
profile: shell
directory: $dir
goal: asap
work: {steps: 100}
gpus: {min: 1, max: 4, allowed: [1, 2, 4]}
elastic: false
batch: {mode: fixed}
learning_rate: sqrt
env: {A: "b c"}
secrets: {KEY: $dir/secret}
weight: 2
max_failures: 1
notice: 5s
cooldown: 1s
stop_after: 10m
END
printf '{"command": ["sh", "%s/train.sh", "%s/done-json"], "name": "json", "gpus": 7, "elastic": false}' "$dir" "$dir" >job.json

check 'dry run' says 0 '^dry run: would start now on 1 GPU$' submit full.yaml --dry-run
check 'a dry run submits nothing' says 0 '^JOBID' ls --all
check 'a dry run leaves no job' test "$("$RUBATO" ls --all --parsable | wc -l)" -eq 0
check 'a file in YAML' says 0 '^job 1 \(full\): starts now$' submit full.yaml
check 'a file in JSON, ids alone' test "$("$RUBATO" submit --parsable job.json)" = 2
check 'flags' says 0 '^job 3 \(flags\): position 1, estimated start unknown$' submit --name flags --gpus 8 \
  --env A=1 --weight 2 --max-failures 0 --notice 1s --cooldown 1s --stop-after 1m --no-elastic -- true
check 'the same key is the same job' test "$("$RUBATO" submit --key k --parsable --gpus 8 -- true)" = \
  "$("$RUBATO" submit --key k --parsable --gpus 8 -- true)"
check 'more than there is' says 1 '^job 5 .*: refused: needs 9 GPUs, and the cluster has 8$' submit --gpus 9 -- true
check 'a deadline without work' says 1 'refused: a deadline without work' submit --deadline +1h -- true
check 'a deadline that has passed' says 1 'refused: its deadline has passed' submit --work steps=1 \
  --deadline 2020-01-01T00:00:00Z -- true
check 'a refused job is kept' answers "d['state'] == 'REFUSED' and d['slack_seconds'] is None" status 5
check 'explain: refused' says 0 'It was refused: needs 9 GPUs' explain 5
check 'explain: no decision of others' answers "d['decision'] is None" explain 5
check 'ls' says 0 '^ *1  full .* R .* 1,2,4 ' ls
check 'ls by state' test "$("$RUBATO" ls --parsable -t refused | wc -l)" -eq 3
check 'ls by short state' test "$("$RUBATO" ls --parsable -t rf | wc -l)" -eq 3
check 'ls by several short states' test "$("$RUBATO" ls --parsable -t R,PD | wc -l)" -eq 4
check 'no such state' says 2 'is no state of a job' ls -t sleeping
check 'explain: running' says 0 'fifo-backfill gave it 1 GPU .*it may have 1 to 4' explain full
check 'explain: pending' says 0 'it needs at least 8 GPUs, 2 jobs run on 8 GPUs' explain flags
check 'explain: who it waits for' answers "d['waits_for'] == [1, 2] and d['decision']['number'] > 0" explain flags

started() { [[ $("$RUBATO" logs "$1" | grep -c "^.*rank 0 of $2 ") -ge 1 ]]; }
check 'it runs' await started full 1
check 'secrets are files' await says 0 'a secret in a file of mode 600: 7 bytes' logs full
check 'secrets are nowhere else' test "$(grep -rsl hunter2 state "/proc/$daemon/environ" | wc -l)" -eq 0
check 'the environment' says 0 'A=b c$' logs full
check 'top: who sits where' says 0 '\[1\.[0-9]+ ' top --once
check 'nodes: which worker' answers "any(u['job'] == 1 and u['worker'] == 0 for n in d['nodes'] for u in n['used'])" nodes

# A resize restarts a program that knows nothing of Rubato, with one rank per GPU.
check 'end the second job' touch done-json
completed() { answers "d['state'] == 'COMPLETED'" status "$1"; }
check 'it completes' await completed json
check 'cancel two' says 0 'CANCELLED|STOPPING' cancel flags 4
check 'resize' says 0 '^job 1 \(full\): GPUs [12] now, exactly 2 from here on$' resize full 2
check 'it was started again' await started full 2
check 'a resize that started it again is a restart' answers "d['resizes'] == 1 and d['restarts'] == 1" status full
check 'the history of a count' says 0 'may have 2 GPUs from now on' history full
check 'both ranks' await says 0 'rank 1 of 2 ' logs full
check 'a count that nobody has' says 1 'the cluster has 8 GPUs' resize full 99
check 'hold' says 0 'STOPPING|HELD' hold full
held() { answers "d['state'] == 'HELD'" status full; }
check 'it is held' await held
check 'explain: held' says 0 'rubato release 1' explain full
check 'release' says 0 '^job 1 \(full\): ' release full
runs() { answers "d['state'] == 'RUNNING' and d['gpus'] > 0" status full; }
check 'it runs again' await runs
check 'drain' says 0 '^node 1: draining$' drain 1
check 'a drained node is no good health' says 1 '^- node 1 is drained since .*' health
check 'what to do about it' grep -q '^ *when it may be used again: rubato resume 1$' both.txt
check 'a drained node' answers "d['nodes'][1]['state'] == 'draining'" nodes
check 'resume' says 0 '^node 1: up$' resume 1
check 'no such node' says 3 'there is no node 7' drain 7
check 'history, newest' answers "len(d['events']) == 1 and 'node 1' in d['events'][0]['text']" history -n 1
check 'history, from the beginning' answers "d['events'][0]['number'] < 5" history --after 0 -n 1
check 'history of a job' answers "all(e['job'] == 1 for e in d['events'])" history full
check 'policy' says 0 '^fifo-backfill$' policy
check 'another policy' says 0 '^elasticflow$' policy elasticflow
check 'no such policy' says 2 'unknown policy' policy nonsense
check 'profiling' says 0 ': profiling, verdict by ' submit --name later --profile other --work steps=10 --deadline +1h \
  -- sh "$dir/train.sh" "$dir/done-later"
check 'nothing to measure' says 1 'does not report its speed' submit --profile mute --work steps=10 --deadline +1h \
  --no-elastic -- true
check 'explain: profiling' says 0 'Its speed is not known yet' explain later
check 'what would be measured' says 0 'dry run: would be measured first' submit --dry-run --profile more --work steps=10 \
  --deadline +1h -- true
check 'cancel' says 0 'CANCELLED|STOPPING' cancel later
check 'queue position' says 0 ': (position|starts)' submit --gpus 8 --no-elastic -- sleep 1000
check 'metrics' says 0 '^rubato_jobs\{state="RUNNING"\} ' metrics
for command in ls 'ls --all' nodes policy 'status full' 'explain full' history metrics 'top' 'users list' \
  'hold full' 'release full' 'resize full 1' 'drain 0' 'resume 0' 'submit --dry-run full.yaml'; do
  # shellcheck disable=SC2086
  check "json: $command" answers 'isinstance(d, dict)' $command
done
check 'json: logs, a line each' bash -c "'$RUBATO' logs --json full | python3 -c 'import json, sys; [json.loads(l)[\"line\"] for l in sys.stdin]'"
check 'no colour on a pipe' test "$(NO_COLOR='' "$RUBATO" ls --all | grep -c $'\x1b')" -eq 0
coloured() { script -qec "$RUBATO ls --all" /dev/null </dev/null | grep -c $'\x1b\[3'; }
check 'colour on a terminal' test "$(NO_COLOR='' TERM=xterm coloured)" -gt 0
check 'NO_COLOR' test "$(NO_COLOR=1 TERM=xterm coloured)" -eq 0
check 'not both' says 2 'need more than the one frame' top --until-idle --once
check 'completes jobs' completes 1 rubato status ''
check 'name of nobody' says 3 'there is no job' status nobody

"$RUBATO" logs -f full >followed.txt &
follower=$!
touch done-full
check 'the end' await completed full
check 'logs -f ends with the job' wait "$follower"
check 'what it followed' grep -q 'rank 0 of' followed.txt
check 'ended jobs keep their limits' answers "d['limits']['min'] == d['limits']['max'] == 1" status full
check 'wait for one that is over' says 0 '^job 1 \(full\): COMPLETED$' wait full
check 'explain: done' says 0 'It is gone: completed' explain full
check 'cannot be cancelled any more' says 1 'has ended' cancel full
# Cancels jobs by name and by condition; each call is one request. The jobs need more GPUs than are free, so they wait.
for i in 1 2 3; do check 'a queue' "$RUBATO" submit --name "queue-$i" --gpus 8 --no-elastic -- sleep 1000; done
check 'cancel: what is not there is said' says 3 'there is no job 999' cancel queue-1 999
check 'cancel: the others are cancelled all the same' says 0 'CANCELLED' status queue-1
check 'cancel: which' says 2 'say which jobs' cancel
check 'cancel: no such state' says 2 'no state of a job' cancel -t waiting
check 'cancel: all conditions hold' says 0 '^cancelled 0 jobs$' cancel --name 'queue-*' -t running
check 'cancel by name and state' says 0 '^cancelled 2 jobs$' cancel --name 'queue-*' -t pending,held
check 'cancel by user' says 0 '^cancelled 0 jobs$' cancel -u nobody -t pending
check 'cancel all, as JSON' answers "d['cancelled'] + d['leaving'] == len(d['jobs'])" cancel --all
check 'cancel all' says 0 '^cancelled 0 jobs' cancel --all
check 'top until idle' says 0 '^[0-9:]+  node 0: ' top --until-idle --for 60
check 'wait for two' says 0 '^job [0-9]+ \(true\): COMPLETED$' wait \
  "$("$RUBATO" submit --parsable --no-elastic --gpus 1 -- true)" "$("$RUBATO" submit --parsable --no-elastic --gpus 1 -- true)"
check 'both are said' test "$(grep -c COMPLETED both.txt)" -eq 2
check 'wait: one fails' says 1 'job [0-9]+: FAILED' wait \
  "$("$RUBATO" submit --parsable --no-elastic --gpus 1 --max-failures 0 -- false)" full
check 'wait as JSON' answers "[j['state'] for j in d['jobs']] == ['COMPLETED']" wait full
check 'wait: nobody' says 3 'there is no job' wait nobody
slow=$("$RUBATO" submit --parsable --no-elastic --gpus 1 -- sleep 1000)
check 'wait: too late' says 6 'has not ended in time' wait --timeout 1s "$slow"
check 'end it' "$RUBATO" cancel "$slow"
check 'wait: cancelled' says 1 'CANCELLED' wait "$slow"
check 'submit --wait' says 0 'COMPLETED' submit --wait --no-elastic --gpus 1 -- true
check 'submit --wait: failed' says 1 'FAILED|failed' submit --wait --no-elastic --gpus 1 --max-failures 0 -- false
kill "$daemon"
check 'the daemon ends in peace' wait "$daemon"
daemon=
check 'the journal replays' says 0 'all reproduced byte for byte' replay state

# The daemon takes the cluster from the journal, unless --cluster names another one.
check 'another cluster' says 2 'the journal belongs to another cluster \(2x4\)' up --cluster 1x1
sleep 1.2 # a shorter absence is not worth a word
"$RUBATO" up 2>daemon.log &
daemon=$!
check 'it starts without naming its cluster' await "$RUBATO" nodes
check 'it is the cluster of the last time' answers "len(d['nodes']) == 2 and d['nodes'][1]['gpus'] == 4" nodes
check 'and says so' grep -q '^rubato: cluster 2x4, as the journal says$' daemon.log
check 'it was down' says 0 'the daemon was down for [0-9.]+ s' history -n 100
kill "$daemon"
check 'it ends in peace again' wait "$daemon"
daemon=

echo "$passed passed, $failed failed"
((failed == 0))
