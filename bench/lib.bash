# Shared by the benchmark scripts: runs a simulation and prints one figure of its JSON.
# Needs RUBATO, the binary.

# field NAME < json: the value of the first key of that name.
field() {
  sed -n "s/^ *\"$1\": \([^,]*\),*\$/\1/p" | head -n 1
}

# row LABEL ARGS...: one line with wall seconds, peak memory and microseconds per event.
row() {
  local label=$1 out peak
  shift
  out=$(mktemp)
  if ! /usr/bin/time -f '%M' -o "$out.time" "$RUBATO" simulate --threads 1 --json "$@" >"$out" 2>"$out.err"; then
    cat "$out.err" >&2
    return 1
  fi
  peak=$(tail -n 1 "$out.time")
  awk -v label="$label" -v wall="$(field wall_s <"$out")" -v events="$(field events <"$out")" \
    -v p99="$(field decide_ms_p99 <"$out")" -v jct="$(field avg_jct_s <"$out")" -v peak="$peak" 'BEGIN {
      printf "%-44s %9.2f s %9.2f us/event %9.3f ms p99 decide %7.0f MiB %10.0f s avg JCT\n",
        label, wall, 1e6 * wall / events, p99, peak / 1024, jct }'
  rm -f "$out" "$out.time" "$out.err"
}
