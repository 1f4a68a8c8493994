#!/usr/bin/env bash
# Every kind of bad input must give one sentence on standard error, exit code 2, nothing on standard output, and no
# output file, not even a part of one.
set -uo pipefail
RUBATO=$(realpath "${RUBATO:-build/rubato}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
passed=0
failed=0

# refused NAME PATTERN ARGS...
refused() {
  local name=$1 pattern=$2 code
  shift 2
  "$RUBATO" "$@" >out.txt 2>err.txt
  code=$?
  if [[ $code -ne 2 || -s out.txt || $(wc -l <err.txt) -ne 1 ]] || ! grep -qE -- "$pattern" err.txt ||
    compgen -G 'result*' >/dev/null; then
    echo "FAILED: $name (exit $code)"
    head -c 400 err.txt
    failed=$((failed + 1))
  else
    passed=$((passed + 1))
  fi
}

# trace NAME PATTERN LINES...: simulates a trace with these lines and asks for every output file.
trace() {
  local name=$1 pattern=$2
  shift 2
  printf '%s\n' "$@" >trace.csv
  refused "$name" "$pattern" simulate --trace trace.csv --cluster 2x4 --policy fifo \
    --jobs-csv result.csv --html result.html
}

head='job_id,submit_s,gpus,duration_s'
trace 'missing column' 'trace.csv.*duration' 'job_id,submit_s,gpus' 'a,0,1'
trace 'negative duration' 'trace.csv:2.*-5' "$head" 'a,0,1,-5'
trace 'NaN duration' 'trace.csv:2.*nan' "$head" 'a,0,1,nan'
trace 'infinite duration' 'trace.csv:2' "$head" 'a,0,1,inf'
trace 'duration that is no number' 'trace.csv:3.*soon' "$head" 'a,0,1,5' 'b,0,1,soon'
trace 'two jobs with one id' 'trace.csv:3.*line 2' "$head" 'a,0,1,5' 'a,1,1,5'
trace 'no GPUs' 'trace.csv:2' "$head" 'a,0,0,5'
trace 'half a GPU' 'trace.csv:2' "$head" 'a,0,0.5,5'
trace 'too few fields' 'trace.csv:2' "$head" 'a,0,1'
trace 'no jobs' 'no jobs' "$head"
trace 'unknown format' 'trace.csv' 'apples,pears' '1,2'
trace 'empty file' 'trace.csv' ''
trace 'deadline before submission' 'trace.csv:2' "$head,deadline_s" 'a,10,1,5,3'

printf '%s\n%s\n' "$head" 'a,0,1,60' >good.csv
good=(simulate --trace good.csv --cluster 2x4)
refused 'missing file' 'nowhere.csv' simulate --trace nowhere.csv --cluster 2x4 --policy fifo
refused 'a directory' 'directory' simulate --trace . --cluster 2x4 --policy fifo
head -c 100 /dev/urandom | gzip | head -c 40 >cut.csv.gz
refused 'truncated gzip' 'cut.csv.gz' simulate --trace cut.csv.gz --cluster 2x4 --policy fifo
truncate -s 1G line.csv
refused 'a line of 1 GB' 'line.csv:1' simulate --trace line.csv --cluster 2x4 --policy fifo
rm -f line.csv
refused 'unknown policy' 'unknown policy "fifoo": did you mean fifo' "${good[@]}" --policy fifoo
refused 'unknown key' 'unknown key "quues"' "${good[@]}" --policy tiresias-las:quues=2
refused 'bad value' 'queues="none"' "${good[@]}" --policy tiresias-las:queues=none
refused 'key without policy' 'no policy stands before' "${good[@]}" --policy queues=2
refused 'too few limits' 'limits' "${good[@]}" --policy tiresias-las:queues=9
refused 'missing samples' 'nosuch' "${good[@]}" --policy tiresias-gittins:samples=nosuch
for cluster in '' 8 x 0x8 8x0 -1x8 8x65 8x8x8 99999999999x8 8x8: '8x8,,' a1x8; do
  refused "cluster '$cluster'" 'cluster' simulate --trace good.csv --cluster "$cluster" --policy fifo
done
refused 'elastic policy on two types' 'one GPU type' simulate --trace good.csv --cluster 1x4:a,1x4:b --policy afs-l
refused 'unknown placement' 'placement' "${good[@]}" --policy fifo --placement tetris
refused 'unknown format name' 'format' "${good[@]}" --policy fifo --format excel
refused 'negative interval' 'interval' "${good[@]}" --policy fifo --interval -1
refused 'NaN restart cost' 'restart-cost' "${good[@]}" --policy fifo --restart-cost nan
refused 'missing curves' 'curves|nowhere' "${good[@]}" --policy fifo --curves nowhere
refused 'missing failures' 'nowhere' "${good[@]}" --policy fifo --failures nowhere.csv
refused 'negative failure rate' 'fail' "${good[@]}" --policy fifo --failure-rate -1
refused 'output folder missing' 'nowhere/result.csv' "${good[@]}" --policy fifo --jobs-csv nowhere/result.csv
refused 'unknown flag' 'colour' "${good[@]}" --policy fifo --colour
refused 'no command' 'subcommand' --
refused 'generate: no jobs' 'jobs' generate --jobs 0 --out result.csv
refused 'generate: bad load' 'load' generate --cluster 2x4 --load -1 --out result.csv
refused 'generate: bad mix' 'gpu-mix' generate --gpu-mix many --out result.csv
refused 'generate: bad tightness' 'tightness' generate --tightness 2 --out result.csv

printf ',"a,2,2"\n"a,2,2",2\n' >table.csv
printf 'model,sensitivity,pressure\na,1,0.5\n' >pairs.csv
refused 'a table with a share above 1' 'table.csv:2: "2" is not a share' contention --table table.csv --pairs result.csv
refused 'no table to fit to' 'not a measured table' contention --table pairs.csv --links result.json
refused 'learning about an unknown model' 'nothing about "b"' learn --contention pairs.csv --models b --out result.json
refused 'weights that are no weights' 'pairs.csv: ' simulate --trace pairs.csv --cluster 1x1 --policy learned:weights=pairs.csv
printf '{"name": "g", "operators": [{"name": "a", "seconds": 1}]}' >small_graph.json
refused 'a graph that is none' 'pairs.csv: ' graph place pairs.csv
refused 'devices that are none' '--devices: ' graph place small_graph.json --devices gpu
refused 'an unknown graph' 'there is no graph' graph make nothing
refused 'an unknown method of placing' '--methods: there is no method' graph place small_graph.json --methods luck
refused 'a network that is none' 'pairs.csv: ' simulate --trace pairs.csv --cluster 1x1 --policy learned:scorer=network,weights=pairs.csv

echo "$passed passed, $failed failed"
((failed == 0))
