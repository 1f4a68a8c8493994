#!/usr/bin/env bash
# What a new user tries first: a script that knows nothing of Rubato, submitted without --no-elastic. It runs
# once and not once per GPU, and all commands say so. Also: processes that hide from their job are killed before
# the job's GPUs are given to the next job.
set -uo pipefail
RUBATO=$(realpath "${RUBATO:-build/rubato}")
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
dir=$(mktemp -d)
daemon=
hidden=()
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
  local jobs pid
  if [[ -n $daemon ]]; then
    mapfile -t jobs < <("$RUBATO" ls --parsable)
    ((${#jobs[@]} == 0)) || "$RUBATO" cancel "${jobs[@]}" >/dev/null
    await idle
    kill "$daemon"
    wait "$daemon"
  fi
  for pid in "${hidden[@]}"; do kill -9 "$pid" 2>/dev/null; done
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
shows() { "$RUBATO" status "$1" --json | grep -qE -- "$2"; } # JOB PATTERN
# shellcheck disable=SC2317
prints() { "$RUBATO" "${@:2}" 2>&1 | grep -qE -- "$1"; } # PATTERN ARGS...
# shellcheck disable=SC2317
has_lines() { [[ $(wc -l <"$1") -eq $2 ]]; } # FILE COUNT
# hide FILE: prints a shell command that starts a process in its own session, without any variable of the job.
hide() { echo "env -i setsid sleep 1000 & echo \$! >$1.part; mv $1.part $1"; }

"$RUBATO" up --cluster 2x4 --policy afs-l --measuring 0 --hello-within 2 --quiet >daemon.log 2>&1 &
daemon=$!
check 'the daemon answers' await answers

# --- a plain script runs once ---

check 'a plain script completes' "$RUBATO" submit --name plain --wait -- sh -c "echo \$\$ >>$dir/runs; sleep 0.5"
check 'it ran once on 8 GPUs' test "$(wc -l <runs)" -eq 1
one='so it runs as one process on one GPU; to train on more, use that library'
for command in status logs history; do check "$command says so" prints "$one" "$command" plain; done
check 'explain says so' prints 'has one process on one GPU' explain plain
check 'explain says what to change' prints 'submit it with --no-elastic' explain plain
check 'a plain script that fails has failed' \
  test "$("$RUBATO" submit --max-failures 0 --wait -- sh -c 'exit 7' >/dev/null 2>&1; echo $?)" -eq 1

# --- a long-running script keeps its process and gives back the other GPUs ---

long=$("$RUBATO" submit --gpus 4:8 --parsable -- sh -c "echo \$\$ >>$dir/long; exec sleep 1000")
check 'it has one GPU' await shows "$long" '"gpus": ?1,'
check 'and its process' await test -s long
program=$(head -n 1 long)
check 'the others are free' "$RUBATO" submit --no-elastic --gpus 7 --wait -- true
check 'the process is the first' test "$(wc -l <long)" -eq 1
check 'and lives' kill -0 "$program"
check 'status says so' prints "$one" status "$long"
check 'a resize is refused' test "$("$RUBATO" resize "$long" 4 >out.txt 2>&1; echo $?)" -eq 1
check 'with the reason' grep -q "cannot be resized: the program does not use Rubato's library" out.txt
"$RUBATO" hold "$long" >/dev/null
check 'it can be put on hold' await shows "$long" '"state": ?"HELD"'
check 'then its process is gone' test ! -e "/proc/$program"
"$RUBATO" release "$long" >/dev/null
check 'it runs again as one process' await has_lines long 2
check 'on one GPU' await shows "$long" '"gpus": ?1,'
"$RUBATO" cancel "$long" >/dev/null
check 'it ends' await shows "$long" '"state": ?"CANCELLED"'

# --- a GPU is free only when all processes of its job are gone ---

# looks FILE: a job on all GPUs that prints whether the process named in FILE is alive.
looks() { "$RUBATO" submit --no-elastic --gpus 1 --name "after-$1" --parsable -- \
  sh -c "if [ -e /proc/\$(cat $dir/$1) ]; then echo there; else echo gone; fi >$dir/seen-$1"; }
for how in cancelled killed; do
  job=$("$RUBATO" submit --no-elastic --gpus 8:8 --parsable -- sh -c "cd $dir; $(hide "$how"); sleep 1000")
  check "$how: there is a hidden process" await test -s "$how"
  hidden+=("$(cat "$how")")
  check "$how: and it lives" kill -0 "${hidden[-1]}"
  group=$(grep -oE '"cgroup": ?"[^"]*"' "state/nodes/0/cgroup-$job.json" 2>/dev/null | cut -d'"' -f4)
  next=$(looks "$how")
  check "$how: the next job waits" shows "$next" '"state": ?"PENDING"'
  if [[ $how == killed ]]; then
    kill -9 "$(grep -oE '"pid": ?[0-9]+' "state/jobs/$job/master.json" | grep -oE '[0-9]+')"
  fi
  "$RUBATO" cancel "$job" >/dev/null
  check "$how: the next job runs" await shows "$next" '"state": ?"COMPLETED"'
  check "$how: the hidden process was gone before" grep -qx gone "seen-$how"
  check "$how: its cgroup is removed" test -z "$group" -o ! -e "$group"
done

# --- in a terminal ---

check 'rubato run ends' "$RUBATO" run --workers 2 --quiet -- sh -c "echo \$\$ >>$dir/run; $(hide "$dir/terminal")"
hidden+=("$(cat terminal)")
check 'it ran once' test "$(wc -l <run)" -eq 1
check 'nothing of it is left' test ! -e "/proc/${hidden[-1]}"

echo "$passed passed, $failed failed"
((failed == 0))
