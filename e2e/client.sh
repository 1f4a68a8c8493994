#!/usr/bin/env bash
# The commands that speak to the daemon, where there is none: what is wrong is said before anybody is
# asked, the exit codes are those of docs/live.md, and the completion completes.
set -uo pipefail
RUBATO=$(realpath "${RUBATO:-build/rubato}")
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
unset RUBATO_SERVER RUBATO_TOKEN_FILE
export RUBATO_STATE=$dir/state XDG_RUNTIME_DIR=$dir NO_COLOR=1
mkdir state
printf 'command: [true]\n' >good.yaml

# ends CODE PATTERN ARGS...: one sentence on standard error, nothing on standard output.
ends() {
  local code=$1 pattern=$2 got
  shift 2
  "$RUBATO" "$@" >out.txt 2>err.txt </dev/null
  got=$?
  [[ $got -eq $code && ! -s out.txt && $(wc -l <err.txt) -eq 1 ]] && grep -qE -- "$pattern" err.txt
}

for command in ls 'status 1' 'logs 1' 'cancel 1' 'hold 1' 'release 1' 'explain 1' 'resize 1 2' nodes 'drain 0' \
  'resume 0' policy metrics history top 'users list' 'submit good.yaml'; do
  # shellcheck disable=SC2086 # words of a command
  check "no daemon: $command" ends 4 'no daemon listens at .*api.sock; start one' $command
  # shellcheck disable=SC2086
  check "help: $command" grep -q 'Examples' <("$RUBATO" $command --help)
done
check 'no daemon: several jobs' test "$("$RUBATO" cancel 1 2 2>&1 | wc -l)" -eq 2

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
check 'unknown command' ends 2 'rubato --help' sbumit

# completes EXPECTED WORDS...: the last word is what has been typed of the next one.
completes() {
  local expected=$1
  shift
  bash -c '
    rubato() { "$RUBATO" "$@"; }
    source <("$RUBATO" completion bash)
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _rubato
    printf "%s\n" "${COMPREPLY[@]}"' _ "${@}" | grep -qxF -- "$expected"
}
export RUBATO
check 'completes commands' completes submit rubato sub
check 'completes flags' completes --deadline rubato submit --dead
check 'completes commands of commands' completes token rubato users t
check 'completes flags after a value' completes --parsable rubato submit --name x --pars
check 'zsh script' grep -q '^#compdef rubato' <("$RUBATO" completion zsh)
check 'fish script' grep -q 'complete -c rubato' <("$RUBATO" completion fish)
check 'no other shell' ends 2 'shell' completion tcsh

echo "$passed passed, $failed failed"
((failed == 0))
