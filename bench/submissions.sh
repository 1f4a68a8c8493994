#!/usr/bin/env bash
# Sends submissions to a real daemon as fast as it answers, while idle clients watch its events. Measures how many
# are acknowledged per second, how long each takes, and the daemon's memory. Checks that none is lost, also when the
# daemon is killed. Checks the answers beyond the limits. Measures how many submissions per second elasticflow
# decides. Compares a few hundred submissions through rubato's command line, through one HTTP connection and
# through a real sbatch on this machine.
#   SUBMISSIONS=10000 CONNECTIONS=64 WATCHERS=1000 JUDGED=1000 COMPARED=500 ROUNDS=3 bench/submissions.sh
#   PARTS=beside_sbatch bench/submissions.sh    one part alone: under_load, under_elasticflow, beside_sbatch
# Exits with 1 if an acknowledged job was lost or a limit did not hold. It only reports whether the goals for speed
# are met, because that depends on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=$(realpath "${BUILD:-build}")
RUBATO=$(realpath "${RUBATO:-$BUILD/rubato}")
LOAD=${LOAD:-$BUILD/bench/bench_http}
submissions=${SUBMISSIONS:-10000}
connections=${CONNECTIONS:-64}
watchers=${WATCHERS:-1000}
judged=${JUDGED:-1000}
compared=${COMPARED:-500}
rounds=${ROUNDS:-3}
parts=${PARTS:-under_load under_elasticflow beside_sbatch}
# shellcheck source=bench/slurm_here.bash
source bench/slurm_here.bash

# In the build tree, because a file system in memory would make fsync free.
directory=$(mktemp -d "$BUILD/load.XXXX")
daemon=
slurm_pids=()
wrong=0

# Agents, masters and workers survive a daemon that was killed. They are found by their files, and by this directory
# in their environment or arguments.
# shellcheck disable=SC2317 # for the trap
ours_that_live() {
  local pid
  sed -n 's/"pid":/\n&/gp' "$directory"/*/nodes/*/agent.json "$directory"/*/jobs/*/{master,workers}.json 2>/dev/null |
    sed -n 's/^"pid": *\([0-9]*\).*/\1/p' | sort -u |
    while read -r pid; do
      if grep -qsF "$directory" "/proc/$pid/environ" "/proc/$pid/cmdline"; then echo "$pid"; fi
    done
}

# shellcheck disable=SC2317 # for the trap
clean_up() {
  local pid
  ((${#slurm_pids[@]} == 0)) || slurm_down
  [[ -z $daemon ]] || kill -9 "$daemon" 2>/dev/null || true
  for pid in $(ours_that_live); do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$directory"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

expect() { # SENTENCE CONDITION...
  local sentence=$1
  shift
  if "$@"; then
    echo "  holds: $sentence"
  else
    echo "  DOES NOT HOLD: $sentence"
    wrong=1
  fi
}

# --- a daemon ---

await() { # SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

up() { # flags of rubato up...
  "$RUBATO" up --quiet --state "$RUBATO_STATE" "$@" 2>>"$directory/daemon.err" &
  daemon=$!
  if ! await 60 "$RUBATO" nodes; then
    echo "submissions: the daemon does not answer: $(tail -n 5 "$directory/daemon.err")" >&2
    exit 1
  fi
}

kill_daemon() {
  kill -9 "$daemon"
  wait "$daemon" 2>/dev/null || true
  daemon=
}

# shellcheck disable=SC2317 # for await
nothing_runs() { [[ -z $("$RUBATO" ls --parsable -t running,resizing,stopping) ]]; }

# No more jobs start, running jobs are cancelled, and the daemon dismisses its agents.
down() {
  "$RUBATO" drain 0 >/dev/null
  "$RUBATO" ls --parsable -t running,resizing | xargs -r "$RUBATO" cancel >/dev/null
  await 60 nothing_runs || echo "submissions: jobs do not end" >&2
  kill "$daemon"
  wait "$daemon" || true
  daemon=
  # The daemon has dismissed its agents.
  await 10 nobody_lives || echo "submissions: left behind: $(ours_that_live | tr '\n' ' ')" >&2
}

# shellcheck disable=SC2317 # for await
nobody_lives() { [[ -z $(ours_that_live) ]]; }

load() { # arguments of bench_http...
  "$LOAD" "$(<"$RUBATO_STATE/api.address")" --token-file "$RUBATO_STATE/admin.token" --json "$@"
}

stored() { "$RUBATO" ls --all --parsable | sort; }

# Uses the metrics, because listing all jobs would cost the daemon as much as many submissions.
taken() { "$RUBATO" metrics | awk '$1 == "rubato_jobs_submitted_total" { n = $2 } END { printf "%d\n", n }'; }
# shellcheck disable=SC2317 # for await
has_taken() { (($(taken) >= $1)); } # COUNT

peak() { awk '/^VmHWM/ { printf "%.0f MiB", $2 / 1024 }' "/proc/$daemon/status"; }

show() {
  python3 -c '
import json, sys
class Figures(dict):
    def __missing__(self, key):
        return self[key[:-5]] / self["watchers"]
r = Figures(json.load(sys.stdin))
r["codes"] = ", ".join("%d x %s" % (n, s) for s, n in sorted(r["statuses"].items()))
print("  %(answered)d answers over %(connections)d connections in %(seconds).2f s: %(per_second).0f a second, "
      "p50 %(p50_ms).1f ms, p99 %(p99_ms).1f ms, longest %(max_ms).1f ms; %(codes)s; "
      "%(retry_after)d with Retry-After" % r)
if r["watchers"]:
    r["pace"] = r["watcher_deliveries_each"] / r["seconds"]
    print("  %(watchers)d watchers, %(watchers_lost)d lost: %(watcher_deliveries_each).1f deliveries each "
          "(%(watcher_deliveries_most)d at most, %(pace).1f a second), of %(watcher_events_each).1f events, "
          "%(watcher_resyncs_each).1f of them resync" % r)'
}
status() { python3 -c 'import json, sys; print(json.load(sys.stdin)["statuses"].get(sys.argv[1], 0))' "$1"; }
figure() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

goal() { # SENTENCE MEASURED least|most LIMIT
  awk -v sentence="$1" -v got="$2" -v kind="$3" -v limit="$4" 'BEGIN {
    met = kind == "least" ? got >= limit : got < limit
    printf "  goal %s: %s (%.1f)\n", met ? "MET" : "MISSED", sentence, got }'
}

echo "load of the machine before: $(cut -d' ' -f1-3 /proc/loadavg), $(nproc --all) cores"

# --- no job is lost, and limits hold ---

under_load() {
  export RUBATO_STATE=$directory/a
  echo "-- $submissions submissions, fifo-backfill, one slot that is in use"
  up --cluster 1x1 --policy fifo-backfill
  "$RUBATO" submit --gpus 1 -- sleep 100000 >/dev/null
  load --requests "$submissions" --connections "$connections" --watchers "$watchers" --ids "$directory/ids" \
    >"$directory/out" || true
  echo "  peak memory of the daemon: $(peak)"
  kill_daemon
  show <"$directory/out"
  goal "at least 2000 acknowledged a second" "$(figure per_second <"$directory/out")" least 2000
  goal "p99 under 100 ms" "$(figure p99_ms <"$directory/out")" most 100
  up --cluster 1x1
  sort "$directory/ids" >"$directory/acknowledged"
  stored >"$directory/stored"
  expect "all $submissions were acknowledged" test "$(wc -l <"$directory/acknowledged")" = "$submissions"
  expect "killed at once and started again, the daemon has each of them, and the one that runs" \
    test "$(wc -l <"$directory/stored")" = $((submissions + 1))
  expect "by their numbers" test -z "$(comm -23 "$directory/acknowledged" "$directory/stored")"

  echo "-- $submissions submissions, and the daemon killed among them"
  before=$(taken)
  load --requests "$submissions" --connections "$connections" --watchers 0 --ids "$directory/ids" \
    >"$directory/out" 2>&1 &
  client=$!
  # Kills the daemon when it has stored a third of the jobs, not after a fixed time, because machines differ in speed.
  await 120 has_taken $((before + submissions / 3)) || echo "submissions: a third of them took more than two minutes" >&2
  kill_daemon
  wait "$client" || true
  up --cluster 1x1
  sort "$directory/ids" >"$directory/acknowledged"
  stored >"$directory/stored_now"
  echo "  $(wc -l <"$directory/ids") acknowledged, $(($(wc -l <"$directory/stored_now") - submissions - 1)) stored"
  expect "it was killed among them: some were acknowledged, and not all" \
    test "$(wc -l <"$directory/ids")" -gt 0 -a "$(wc -l <"$directory/ids")" -lt "$submissions"
  expect "each that was acknowledged is there" test -z "$(comm -23 "$directory/acknowledged" "$directory/stored_now")"
  have=$(wc -l <"$directory/stored_now")
  kill_daemon

  # --- beyond the limits ---

  echo "-- 2000 submissions to a daemon that takes 500 more jobs"
  up --cluster 1x1 --most-jobs $((have + 500))
  load --requests 2000 --connections "$connections" --watchers 0 >"$directory/out"
  show <"$directory/out"
  expect "500 were taken, the others answered 429" \
    test "$(status 201 <"$directory/out") $(status 429 <"$directory/out")" = "500 1500"
  expect "each of those with Retry-After" test "$(figure retry_after <"$directory/out")" = 1500
  expect "the daemon has as many as it said" test "$(stored | wc -l)" = $((have + 500))
  echo "-- 2000 connections at once, where 1024 requests may be in flight"
  load --requests 20000 --connections 2000 --watchers 0 --method GET --target /v1/jobs/1 >"$directory/out"
  show <"$directory/out"
  refused=$(status 429 <"$directory/out")
  expect "every request had an answer: 200 or 429" \
    test $(($(status 200 <"$directory/out") + refused)) = 20000
  expect "some were answered 429" test "$refused" -gt 0
  expect "each of those with Retry-After" test "$(figure retry_after <"$directory/out")" = "$refused"
  expect "the daemon answers" test -n "$("$RUBATO" policy --json)"
  echo "  peak memory of the daemon: $(peak)"
  down
  begun=$EPOCHREALTIME
  "$RUBATO" replay "$RUBATO_STATE" >"$directory/replay" || wrong=1
  echo "  replay: $(tr '\n' ';' <"$directory/replay")"
  goal "the journal of these is replayed in under 60 s" \
    "$(awk -v from="$begun" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }')" most 60
}

# --- elasticflow ---

under_elasticflow() {
  export RUBATO_STATE=$directory/b
  up --cluster 1x8 --policy elasticflow
  # Through the unix socket, so that the jobs belong to a user of this machine. The first job gets a promise when its
  # speed is known. Then the speed of its profile is known, too.
  # shellcheck disable=SC2317 # for await
  judged_known() { [[ $("$RUBATO" ls --parsable -t profiling | wc -l) == 0 ]]; }
  known=$("$RUBATO" submit --parsable --profile known --work steps=10000000 --gpus 1 --deadline +9000h -- \
    env OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive "$BUILD/examples/mlp" --steps 10000000)
  if ! await 120 judged_known; then echo "submissions: the job's speed is not known after two minutes" >&2; fi
  "$RUBATO" status "$known" | sed -n 's/^ *state/  the profile is known; its job is/p'
  "$RUBATO" cancel "$known" >/dev/null
  for deadline in +9000h +1m; do
    echo "-- $judged submissions with deadline $deadline under elasticflow, their profile known; 8 slots"
    cat >"$directory/job.json" <<END
{"command": ["sleep", "100000"], "profile": "known", "work": {"steps": 100000}, "gpus": {"min": 1, "max": 1},
 "goal": {"deadline": "$deadline"}}
END
    "$LOAD" "$RUBATO_STATE/api.sock" --json --requests "$judged" --connections "$connections" --watchers 0 \
      --job "$directory/job.json" >"$directory/out"
    show <"$directory/out"
  done
  echo "  201: admitted, 409: refused with the earliest feasible time; peak memory of the daemon: $(peak)"
  down
}

# --- comparison with sbatch ---

rate() { # LABEL AT_ONCE COMMAND...
  local label=$1 at_once=$2 begun TIMEFORMAT='%U %S'
  shift 2
  begun=$EPOCHREALTIME
  { time seq "$compared" | xargs -P "$at_once" -I{} "$@" >"$directory/rate"; } 2>"$directory/times"
  tail -n 1 "$directory/times" | awk -v label="$label" -v n="$compared" -v from="$begun" -v to="$EPOCHREALTIME" '{
    printf "  %-28s %7.1f a second, %6.2f ms each, %5.2f ms of processor time in its process\n",
           label, n / (to - from), 1e3 * (to - from) / n, 1e3 * ($1 + $2) / n }'
}

rate_rubato() { rate "$1" "$2" "$RUBATO" submit --parsable --work steps=1000 --gpus 1 -- true; }   # LABEL AT_ONCE
rate_sbatch() { rate "$1" "$2" sbatch --parsable --output=/dev/null --wrap=true; }                  # LABEL AT_ONCE

has_slurm() {
  local program
  for program in sbatch slurmctld slurmd munged; do command -v "$program" >/dev/null || return 1; done
}

# True if a Slurm of our own runs here, with a node that starts nothing.
slurm_ready() {
  PATH=$PATH:/usr/sbin:/sbin
  if ((EUID == 0)) && ! has_slurm; then ./dev setup slurm || true; fi
  if ((EUID != 0)) || ! has_slurm; then
    echo "  sbatch: skipped, it needs root and the packages of ./dev setup slurm"
    return 1
  fi
  if ! slurm_up "$directory/slurm"; then
    echo "  sbatch: skipped, Slurm does not come up here: $(tail -n 3 "$directory/slurm.err")"
    return 1
  fi
  scontrol update nodename=n0 state=drain reason=measuring
}

# In turns, because other load on the machine changes within a minute.
beside_sbatch() {
  local round slurm=
  export RUBATO_STATE=$directory/c
  echo "-- $compared submissions, one after the other and 8 at once, in $rounds rounds; nothing can start"
  up --cluster 1x1 --policy fifo-backfill
  "$RUBATO" drain 0 >/dev/null
  if slurm_ready; then slurm=yes; fi
  for ((round = 1; round <= rounds; round++)); do
    rate_rubato "rubato submit" 1
    [[ -z $slurm ]] || rate_sbatch "sbatch" 1
    rate_rubato "rubato submit, 8 at once" 8
    [[ -z $slurm ]] || rate_sbatch "sbatch, 8 at once" 8
  done
  load --requests "$compared" --connections 1 --watchers 0 | python3 -c '
import json, sys
r = json.load(sys.stdin)
print("  %-44s %7.1f a second, %6.2f ms each" % ("HTTP, one connection", r["per_second"], r["p50_ms"]))'
  kill_daemon
  if [[ -n $slurm ]]; then
    # Not waited for: Slurm writes its state a few seconds later.
    kill -9 "$slurm_controller_pid"
    wait "$slurm_controller_pid" 2>/dev/null || true
    slurm_controller
    await 30 sinfo -h
    echo "  slurmctld killed at once and started again has $(squeue -h -o %i | wc -l) of $((2 * rounds * compared))"
  fi
  up --cluster 1x1
  expect "killed at once and started again, the daemon has all $(((2 * rounds + 1) * compared))" \
    test "$(stored | wc -l)" = $(((2 * rounds + 1) * compared))
  down
}

for part in $parts; do
  case $part in
    under_load) under_load ;;
    under_elasticflow) under_elasticflow ;;
    beside_sbatch) beside_sbatch ;;
    *)
      echo "submissions: there is no part $part" >&2
      exit 2
      ;;
  esac
done
exit "$wrong"
