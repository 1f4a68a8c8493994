#!/usr/bin/env bash
# Measures the overhead of the elastic library while the workers do not change. Compares examples/wide on two
# workers with bench/plain_gloo, which does the same work without the library, and with --measure-noise. The three
# run in turns, because the speed of a machine varies. A step time is the median of a run's steps.
#   ROUNDS=5 STEPS=40 bench/overhead.sh
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
RUBATO=${RUBATO:-$BUILD/rubato}
WIDE=${WIDE:-$BUILD/examples/wide}
PLAIN=${PLAIN:-$BUILD/bench/plain_gloo}
rounds=${ROUNDS:-5}
steps=${STEPS:-40}
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

median() {
  sort -g | awk '{ v[NR] = $1 } END {
    if (!NR) { print "overhead: no steps to measure; give more with STEPS" > "/dev/stderr"; exit 1 }
    print v[int((NR + 1) / 2)] }'
}

plain() { timeout --foreground 300 "$PLAIN" --steps 20 | tail -n +5 | median; }

# "step seconds" of both workers, without the first three steps.
elastic() { # arguments of the program...
  rm -f "$dir/log"
  if ! timeout --foreground 300 "$RUBATO" run --quiet --workers 2 --log "$dir/log" -- "$WIDE" --steps "$steps" "$@" \
    >"$dir/out" 2>&1; then
    cat "$dir/out" >&2
    return 1
  fi
  sed -n 's/.*"event":"report".*"step":\([0-9]*\),.*"workers":2,.*"applied_at":\([0-9.e+]*\).*/\1 \2/p' "$dir/log" |
    awk 'NR > 3 && before { print $1, $2 - before } { before = $2 }'
}

# Gradient noise is measured in every fourth step. The cost is how much longer such a step takes than its
# neighbours, which ran on the same machine in the same second; on average, a quarter of that.
noise() {
  elastic --measure-noise >"$dir/steps" || return 1
  awk '{ t[$1] = $2 } END { for (s in t) if (s % 4 == 0 && (s - 1) in t && (s + 1) in t)
    print (t[s] / ((t[s - 1] + t[s + 1]) / 2) - 1) / 4 }' "$dir/steps" >>"$dir/noise"
  cut -d' ' -f2 "$dir/steps" | median
}

# Other load on the machine may be larger than the measured effect.
echo "load of the machine before: $(cut -d' ' -f1-3 /proc/loadavg), $(nproc --all) cores"
for ((round = 1; round <= rounds; ++round)); do
  a=$(plain)
  # The order of the runs may matter, so these two also swap places.
  if ((round % 2)); then c=$(noise); fi
  b=$(elastic | cut -d' ' -f2 | median)
  if ((round % 2 == 0)); then c=$(noise); fi
  echo "$a $b $c" | tee -a "$dir/times" |
    awk -v r="$round" '{ printf "round %d: plain %.1f ms, elastic %.1f ms, measuring noise %.1f ms\n", r, 1e3 * $1, 1e3 * $2, 1e3 * $3 }'
done

spread() { # label; ratios on standard input
  sort -g | awk -v label="$1" '{ v[NR] = $1 } END { printf "%-36s %+6.1f%%   (quartiles %+.1f%% and %+.1f%%)\n", label,
    100 * v[int((NR + 1) / 2)], 100 * v[int((NR + 3) / 4)], 100 * v[int((3 * NR + 1) / 4)] }'
}
echo "-- overhead, medians of $rounds rounds"
awk '{ print $2 / $1 - 1 }' "$dir/times" | spread "elastic library over plain gloo"
spread "measuring noise over not measuring" <"$dir/noise"
