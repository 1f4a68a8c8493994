#!/usr/bin/env bash
# Elastic training with real processes: the trained model is the same, whatever happens to the workers.
# Each scenario is a function with its own directory; several run at once. Steps wait at gates
# (examples/faulty.cc), so no result depends on the speed of the machine.
#
#   e2e/elastic.sh [BUILD] [SCENARIO...]
set -uo pipefail
build=$(realpath "${1:-build}")
RUBATO=$build/rubato
FAULTY=$build/examples/faulty
dir=$(mktemp -d)
export XDG_RUNTIME_DIR=$dir/run
mkdir "$XDG_RUNTIME_DIR"
patience=${PATIENCE:-120} # seconds for anything to happen; a healthy machine needs a few

# Only processes of this test have their working directory here.
clean_up() {
  local process
  for process in $(cat "$dir"/*/pids 2>/dev/null; cat "$dir"/*/*.log 2>/dev/null | grep '"event":"start"' |
    grep -o '"pid":[0-9]*' | cut -d: -f2); do
    [[ $(readlink "/proc/$process/cwd") == "$dir"/* ]] && kill -9 "$process"
  done 2>/dev/null
  if [[ -n ${KEEP:-} ]]; then echo "kept $dir"; else rm -rf "$dir"; fi
}
trap clean_up EXIT
trap 'exit 1' INT TERM

check() { # NAME COMMAND...
  local name=$1
  shift
  if "$@" >>checks.out 2>&1; then
    echo "passed: $scenario: $name" >>results
  else
    echo "FAILED: $scenario: $name" >>results
  fi
}
await() { # COMMAND...: until it holds
  local end=$((SECONDS + patience))
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

# --- runs: each has a log, its output and its exit code in RUN.* of the scenario's directory ---

launch() { # RUN FLAGS... -- PROGRAM...: in the background
  local run=$1
  shift
  {
    "$RUBATO" run --name "$scenario-$run" --log "$run.log" "$@" >"$run.out" 2>"$run.err" &
    echo $! >"$run.pid"
    echo $! >>pids
    wait $!
    echo $? >"$run.code"
  } 2>/dev/null &
}
code() { cat "$1.code" 2>/dev/null; }
ended() { # RUN: waits for the end of the launcher and says its exit code
  await test -s "$1.code" || kill -9 "$(cat "$1.pid")"
  code "$1"
}
resize() { "$RUBATO" resize "$scenario-$1" "$2" >>resize.out 2>&1; }
digest() { grep '"kind":"finished"' "$1.log" | tail -n 1 | grep -o '"digest":"[^"]*"'; }
notice() { grep -q "\"kind\":\"$2\"" "$1.log"; }
reached() { # RUN STEP: it was published
  (($(grep '"event":"report"' "$1.log" | tail -n 1 | grep -o '"step":[0-9]*' | cut -d: -f2) >= $2))
}
greeted() { (($(grep -c '"event":"hello"' "$1.log") >= $2)); }
# The uids of the working members, by the newest notice.
working() {
  grep '"kind":"members"' "$1.log" | tail -n 1 | grep -o '"uid":[0-9]*,"role":"working"' |
    grep -o '[0-9]*' | sort -n
}
working_are() { (($(working "$1" | wc -l) == $2)); }
# joined RUN WORKERS STEP: opens the gate when all workers are there, and lets them train slowly until all take part.
joined() {
  await greeted "$1" "$2" || return 1
  rm -f fast
  touch "gate-$3"
  await working_are "$1" "$2"
  local result=$?
  touch fast
  return $result
}
shut() { rm -f gate-* fast; } # for the next run
pid_of() { # RUN UID
  grep "\"event\":\"start\",\"worker\":$2," "$1.log" | tail -n 1 | grep -o '"pid":[0-9]*' | cut -d: -f2
}
gone() { # RUN: no process of it is left
  local process
  # shellcheck disable=SC2013 # pids have no spaces
  for process in $(grep '"event":"start"' "$1.log" | grep -o '"pid":[0-9]*' | cut -d: -f2); do
    [[ $(readlink "/proc/$process/cwd") == "$PWD" ]] && return 1
  done
  return 0
}
log_holds() { # RUN EXPRESSION over the reports r, the notices n (pairs of kind and content)
  python3 - "$1.log" "$2" <<'PYTHON'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
r = [line["content"] for line in lines if line["event"] == "report"]
n = [(line["kind"], line["content"]) for line in lines if line["event"] == "notice"]
assert eval(sys.argv[2]), (sys.argv[2], n)
PYTHON
}
no_gap() { # RUN STEPS
  log_holds "$1" "[x['step'] for x in r] == list(range(1, $2 + 1))"
}
loss_falls() {
  log_holds "$1" "sum(x['loss'] for x in r[-5:]) < 0.97 * sum(x['loss'] for x in r[:5])"
}
same_digest() { [[ -n $(digest "$1") && $(digest "$1") == "$(digest "$2")" ]]; }
says() { grep -qE "$2" "$1.err" "$1.out"; }

# The result of a run of `faulty` with these arguments and without disturbance.
undisturbed() { # ARGS...
  launch plain --workers 1 -- "$FAULTY" "$@"
  [[ $(ended plain) == 0 ]]
}

# --- the same bits for any number of workers ---

any_number() { # MODEL STEPS
  local model=$1 steps=$2
  local args=(--steps "$steps" --batch 20)
  export MODEL=$model GATES=2
  launch one --workers 1 -- "$build/examples/$model" "${args[@]}"
  launch three --workers 3 -- "$FAULTY" "${args[@]}"
  check 'three workers take part nearly from the start' joined three 3 2
  check 'one worker finishes' test "$(ended one)" = 0
  check 'three workers finish' test "$(ended three)" = 0
  check 'three workers shared the work' log_holds three 'max(x["workers"] for x in r) == 3'
  shut
  GATES=10,$((steps - 15))
  launch resized --workers 1:3 -- "$FAULTY" "${args[@]}"
  await reached resized 8
  check 'it can be resized from 1 to 3 while it trains' resize resized 3
  check 'two workers join while it trains' joined resized 3 10
  rm fast
  check 'it can be resized from 3 to 2 while it trains' resize resized 2
  touch "gate-$((steps - 15))"
  check 'one worker leaves while the rest train on' await working_are resized 2
  touch fast
  check 'the resized run finishes' test "$(ended resized)" = 0
  check 'no worker of a resize counts as failed' bash -c '! grep -q "\"code\":[124]" resized.log'
  check 'three workers train what one trains, to the bit' same_digest three one
  check '1, 3, then 2 workers train what one trains, to the bit' same_digest resized one
  check 'every step is published once' no_gap resized "$steps"
  check 'the loss falls' loss_falls one
}
resnet() { any_number resnet 50; }
transformer() { any_number transformer 60; }

# --- deaths ---

deaths() {
  local args=(--steps 120 --batch 16) victim
  undisturbed "${args[@]}"
  export GATES=20,60
  launch killed --workers 3 -- "$FAULTY" "${args[@]}"
  joined killed 3 20
  await reached killed 58
  victim=$(working killed | head -n 1)
  kill -9 "$(pid_of killed "$victim")"
  check 'a leader killed with -9 is replaced' await greeted killed 4
  touch gate-60
  check 'a run whose leader was killed finishes' test "$(ended killed)" = 0
  check 'the survivors recover' notice killed recovered
  check 'a killed leader changes no bit' same_digest killed plain
  check 'a killed leader leaves no gap in the published steps' no_gap killed 120
  check 'no process is left' await gone killed

  shut
  launch other --workers 3 -- "$FAULTY" "${args[@]}"
  joined other 3 20
  await reached other 58
  victim=$(working other | tail -n 1)
  kill -9 "$(pid_of other "$victim")"
  await greeted other 4
  touch gate-60
  check 'a run one of whose workers was killed finishes' test "$(ended other)" = 0
  check 'a killed worker changes no bit' same_digest other plain
  check 'a killed worker leaves no gap in the published steps' no_gap other 120
}

launcher_death() {
  local args=(--steps 80 --batch 16 --checkpoint saved --checkpoint-seconds 0)
  export GATES=2,40
  launch orphans --workers 2 -- "$FAULTY" "${args[@]}"
  joined orphans 2 2
  await reached orphans 38
  kill -9 "$(cat orphans.pid)"
  await test -s orphans.code
  touch gate-40
  check 'workers finish without their launcher' await test -e saved/step-000000000080.ckpt
  check 'and then end' await gone orphans
}

stopped_worker() {
  local args=(--steps 80 --batch 16)
  undisturbed "${args[@]}"
  export GATES=2,40
  launch stopped --workers 3 --heartbeat 2 -- "$FAULTY" "${args[@]}"
  joined stopped 3 2
  await reached stopped 38
  kill -STOP "$(pid_of stopped "$(working stopped | sed -n 2p)")"
  check 'a worker that is silent is killed' await grep -q '"signal":9' stopped.log
  check 'and replaced' await greeted stopped 4
  touch gate-40
  check 'the run finishes' test "$(ended stopped)" = 0
  check 'a stopped worker changes no bit' same_digest stopped plain
  check 'a stopped worker leaves no gap in the published steps' no_gap stopped 80
}

all_dead() {
  local args=(--steps 80 --batch 16 --checkpoint-steps 20 --checkpoint-seconds 0) worker
  undisturbed "${args[@]}" --checkpoint plain.saved
  export GATES=2,40,50
  launch dead --workers 2 -- "$FAULTY" "${args[@]}" --checkpoint saved
  joined dead 2 2
  # The next checkpoint is skipped while this one is still being written.
  await test -e saved/step-000000000020.ckpt
  touch gate-40
  await reached dead 48
  await test -e saved/step-000000000040.ckpt
  for worker in $(working dead); do kill -9 "$(pid_of dead "$worker")"; done
  touch gate-50
  check 'a run all of whose workers were killed finishes' test "$(ended dead)" = 0
  check 'it resumed from the last checkpoint' says dead 'resumed from .*step-000000000040'
  check 'the death of all changes no bit' same_digest dead plain
}

graceful() {
  local args=(--steps 80 --batch 16 --checkpoint-seconds 0)
  undisturbed "${args[@]}"
  export GATES=2,40
  launch first --workers 2 -- "$FAULTY" "${args[@]}" --checkpoint saved
  joined first 2 2
  await reached first 38
  kill -TERM "$(cat first.pid)"
  await grep -q 'asked to end' first.log
  touch gate-40
  check 'a run that was asked to stop ends with 128 + SIGTERM' test "$(ended first)" = 143
  check 'it stops before its end' bash -c '! grep -q "\"kind\":\"finished\"" first.log'
  check 'it writes a checkpoint' compgen -G 'saved/step-*.ckpt'
  check 'no process is left' await gone first
  launch second --workers 2 -- "$FAULTY" "${args[@]}" --checkpoint saved
  check 'a later run finishes' test "$(ended second)" = 0
  check 'it went on from the checkpoint' says second 'resumed from'
  check 'a stop and a later run change no bit' same_digest second plain
}

# Workers that are about to join when the job ends must exit.
late() {
  local steps
  for steps in 40 41; do # the gate before the last step, and the one before that
    shut
    export GATES=40
    launch "late$steps" --workers 1:3 -- "$FAULTY" --steps "$steps" --batch 16
    await reached "late$steps" 38
    resize "late$steps" 3
    await greeted "late$steps" 3
    touch fast gate-40
    check "a job that ends $((steps - 39)) steps after workers came ends" test "$(ended "late$steps")" = 0
    check "a job that ends $((steps - 39)) steps after workers came leaves no process" gone "late$steps"
  done
}

# --- every sample once ---

exactly_once() {
  export SAMPLES=203 GATES=15,45
  launch epochs --workers 1:3 --start 1 -- "$FAULTY" --steps 0 --epochs 5 --batch 16
  await reached epochs 13
  resize epochs 3
  joined epochs 3 15
  await reached epochs 43
  kill -9 "$(pid_of epochs "$(working epochs | head -n 1)")"
  await greeted epochs 4
  resize epochs 2
  touch gate-45
  check 'five epochs of 203 samples finish' test "$(ended epochs)" = 0
  check 'every epoch used each sample exactly once, as counted by its workers' \
    log_holds epochs '[x["epoch"] for x in r if x["ends_epoch"]] == [0, 1, 2, 3, 4]'
  check 'so say the published steps' \
    log_holds epochs 'all(sum(x["samples"] for x in r if x["epoch"] == e) == 203 for e in range(5))'
}

# --- adaptive ---

adaptive() {
  export GATES=30
  launch adaptive --workers 1:2 --start 1 -- "$FAULTY" --steps 200 --batch 16 --adaptive
  await reached adaptive 28
  resize adaptive 2
  joined adaptive 2 30
  check 'an adaptive run finishes' test "$(ended adaptive)" = 0
  check 'it went on with two workers' log_holds adaptive 'r[-1]["workers"] == 2'
  check 'every change of the batch has a reason' \
    log_holds adaptive 'any(k == "tuned" for k, c in n) and all(c["text"] for k, c in n if k == "tuned")'
  check 'the loss falls' loss_falls adaptive
}

# --- bad input ---

not_a_number() {
  FAULT=nan:30 launch nan --workers 1 -- "$FAULTY" --steps 60 --checkpoint saved --checkpoint-seconds 0
  check 'a loss that is not a number: exit code 1' test "$(ended nan)" = 1
  check 'the sentence names the step and what is not a number' \
    says nan 'step 30: .*(loss|gradient of [a-z]).*not a finite number'
  check 'the state before the step is in the checkpoint' test -e saved/step-000000000029.ckpt
  check 'it is not tried again' test "$(grep -c '"event":"start"' nan.log)" = 1
}

exception() {
  FAULT=throw:30 launch throw --workers 1 -- "$FAULTY" --steps 60
  check 'a loss that throws: exit code 1' test "$(ended throw)" = 1
  check 'the sentence has the step and the words of the exception' \
    says throw 'step 30: this loss was asked to throw'
}

other_shape() {
  export GATES=20
  FAULT=shape launch shape --workers 1:2 --start 1 -- "$FAULTY" --steps 60
  await reached shape 18
  resize shape 2
  check 'a worker with another model is refused' await notice shape refused
  touch fast gate-20
  check 'the sentence names the parameter' says shape 'in\.weight'
  check 'the others finish' test "$(ended shape)" = 0
  check 'all steps by one worker' log_holds shape 'max(x["workers"] for x in r) == 1 and r[-1]["step"] == 60'
}

other_build() {
  # shellcheck disable=SC2016 # for the other shell
  printf '#!/bin/sh\n[ "$RUBATO_WORKER" -ge 2 ] && set -- "$@" --build newer\nexec "%s" "$@"\n' "$FAULTY" >program
  chmod +x program
  export GATES=20
  launch build --workers 1:2 --start 1 -- ./program --steps 60
  await reached build 18
  resize build 2
  check 'a worker of another build is refused' await notice build refused
  touch fast gate-20
  check 'the sentence names both builds' says build "newer.*rubato 1"
  check 'the others finish' test "$(ended build)" = 0
}

damaged_checkpoint() {
  local args=(--steps 60 --batch 16 --checkpoint-steps 20 --checkpoint-seconds 0) step
  # A checkpoint is written while the training goes on, and skipped while the one before is still being written.
  GATES=21,41 launch plain --workers 1 -- "$FAULTY" "${args[@]}" --checkpoint saved
  touch fast
  for step in 20 40; do
    await test -e "saved/step-0000000000$step.ckpt"
    touch "gate-$((step + 1))"
  done
  check 'an undisturbed run finishes' test "$(ended plain)" = 0
  cp -r saved flipped
  truncate -s -1000 saved/step-000000000060.ckpt
  python3 -c "
f = open('flipped/step-000000000060.ckpt', 'r+b')
f.seek(20000)
byte = f.read(1)[0]
f.seek(20000)
f.write(bytes([byte ^ 1]))"
  launch cut --workers 1 -- "$FAULTY" "${args[@]}" --checkpoint saved
  launch flip --workers 1 -- "$FAULTY" "${args[@]}" --checkpoint flipped
  for run in cut flip; do
    check "$run: a run with a damaged checkpoint finishes" test "$(ended $run)" = 0
    check "$run: it uses the one before" says $run 'resumed from .*step-000000000040'
    check "$run: the user is told" log_holds $run \
      'any(k == "warning" and "step-000000000060" in c["text"] for k, c in n)'
    check "$run: the digest is that of an undisturbed run" same_digest $run plain
  done
  MODEL=transformer launch another --workers 1 -- "$FAULTY" "${args[@]}" --checkpoint saved
  check 'a checkpoint of another model is refused' test "$(ended another)" != 0
  check 'the sentence says so' says another 'another model'
}

full_disk() {
  if ! unshare -rm mount -t tmpfs tmpfs /mnt 2>/dev/null; then
    echo "skipped: $scenario: this user may not mount a file system" >>results
    return
  fi
  mkdir tiny
  cat >full <<PROGRAM
mount -t tmpfs -o size=16k tmpfs tiny || exit 9
exec "$RUBATO" run --name full --log disk.log --workers 1 -- "$FAULTY" --steps 60 --checkpoint tiny/saved --checkpoint-steps 20 --checkpoint-seconds 0
PROGRAM
  unshare -rm bash full >disk.out 2>disk.err &
  echo $! >>pids
  wait $!
  echo $? >disk.code
  check 'a full disk does not end the training' test "$(code disk)" = 0
  check 'the user is told' log_holds disk 'any(k == "warning" and "no checkpoint" in c["text"] for k, c in n)'
  check 'all steps are trained' log_holds disk 'r[-1]["step"] == 60'
}

# --- stragglers ---

straggler() {
  export GATES=2,150
  FAULT=slow launch slow --workers 2 -- "$FAULTY" --steps 150 --batch 6 --virtual-workers 3
  joined slow 2 2
  check 'a slow worker is noticed' await notice slow straggler
  check 'by its number' log_holds slow '[c["worker"] for k, c in n if k == "straggler"] == [2]'
  touch gate-150
  check 'a run with a slow worker finishes' test "$(ended slow)" = 0
  shut
  # shellcheck disable=SC2016 # for the other shell
  printf '#!/bin/sh\n[ "$RUBATO_WORKER" -eq 2 ] && export FAULT=slow\nexec "%s" "$@"\n' "$FAULTY" >program
  chmod +x program
  launch replace --workers 3 --replace-stragglers -- ./program --steps 190 --batch 6 --virtual-workers 3
  joined replace 3 2
  check 'a slow worker is replaced if asked for' await greeted replace 4
  rm fast
  touch gate-150
  check 'the new one takes its place' await working_are replace 3
  touch fast
  check 'and the run finishes' test "$(ended replace)" = 0
  check 'the one replaced left in peace' grep -q '"event":"exit","worker":2,"killed":false,"code":3' replace.log
}

scenarios=(resnet deaths transformer straggler stopped_worker all_dead late launcher_death graceful exactly_once
  adaptive damaged_checkpoint not_a_number exception other_shape other_build full_disk)
(($# > 1)) && scenarios=("${@:2}")
at_once=3
for scenario in "${scenarios[@]}"; do
  mkdir "$dir/$scenario"
  while (($(jobs -rp | wc -l) >= at_once)); do wait -n; done
  (
    trap - EXIT INT TERM
    cd "$dir/$scenario" && "$scenario"
    wait
    echo "$scenario took $SECONDS s" >took
  ) &
done
wait
cat "$dir"/*/results | grep -v '^passed'
passed=$(cat "$dir"/*/results | grep -c '^passed')
failed=$(cat "$dir"/*/results | grep -c '^FAILED')
echo "$passed passed, $failed failed"
((failed == 0))
