#!/usr/bin/env bash
# Tests `rubato simulate` as users run it: outputs, order, determinism, warnings, pipes.
set -uo pipefail
# shellcheck source=e2e/checks.bash
source "$(dirname "${BASH_SOURCE[0]}")/checks.bash"
RUBATO=$(realpath "${RUBATO:-build/rubato}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
json() { python3 -c "import json,sys; d=json.load(open('$1')); assert $2, d"; }

all=$("$RUBATO" policies --json | python3 -c 'import json,sys; print(",".join(p["name"] for p in json.load(sys.stdin)["policies"]))')
"$RUBATO" generate --jobs 150 --cluster 4x8 --load 1.2 --deadlines 0.6 --seed 3 --out trace.csv 2>/dev/null
"$RUBATO" generate --jobs 150 --cluster 4x8 --load 1.2 --deadlines 0.6 --seed 3 >again.csv
"$RUBATO" generate --jobs 150 --cluster 4x8 --load 1.2 --deadlines 0.6 --seed 3 --format json --out trace.json 2>/dev/null
gzip -k trace.csv
check 'generate is deterministic' cmp trace.csv again.csv

run=(simulate --cluster 4x8 --restart-cost 10 --failure-rate 0.5 --seed 5 --policy "$all")
"$RUBATO" "${run[@]}" --trace trace.csv --threads 1 --jobs-csv one.csv --html one.html --json >one.json 2>one.err
"$RUBATO" "${run[@]}" --trace trace.csv.gz --threads 2 --jobs-csv two.csv --json >two.json 2>/dev/null
"$RUBATO" "${run[@]}" --trace trace.json --threads 7 --jobs-csv three.csv --json >three.json 2>/dev/null
check 'jobs CSV does not depend on threads or gzip' cmp one.csv two.csv
check 'jobs CSV does not depend on the trace being JSON' cmp one.csv three.csv
check 'standard output is JSON' json one.json "[r['policy'] for r in d['runs']] == '$all'.split(',')"
check 'every job is accounted for' json one.json "all(r['completed'] + r['rejected'] == r['jobs'] == 150 for r in d['runs'])"
fields='policy jobs completed rejected avg_jct_s p50_jct_s p90_jct_s p99_jct_s makespan_s avg_queue_s p99_queue_s avg_queue_length gpu_busy cluster_efficiency deadlines_total deadlines_met deadlines_feasible ftf_mean ftf_max ftf_unfair types preemptions resizes migrations events decisions decide_ms_p50 decide_ms_p99 wall_s'
check 'all figures are there' json one.json "all(f in r for r in d['runs'] for f in '$fields'.split())"
check 'a row per job and policy' test "$(wc -l <one.csv)" -eq $((150 * $(tr ',' '\n' <<<"$all" | wc -l) + 1))
check 'the page is self-contained' bash -c '! grep -qE "(src|href)=\"?(https?:)?//" one.html'
check 'no temporary file is left' bash -c '! compgen -G "*.part"'

"$RUBATO" simulate --trace trace.csv --cluster 4x8 --policy fifo,tiresias-las:limits=100/200,queues=3 --policy srtf >table.txt 2>table.err
check 'table in the order given' bash -c "grep -oE '^(fifo|tiresias-las:limits=100/200|srtf) ' table.txt | tr -d '\n' | grep -q 'fifo tiresias-las:limits=100/200 srtf'"
check 'best values are marked' grep -q '\*' table.txt
check 'no progress bar in a pipe' bash -c "! grep -q '%' table.err"

"$RUBATO" generate --jobs 60 --cluster 4x4 --gpu-mix 3=1,6=1 --models a,b --seed 2 --out spanning.csv 2>/dev/null
printf 'model,sensitivity,pressure\na,1,0.5\nb,0.3,1\n' >pairs.csv
learn=(learn --contention pairs.csv --models 'a,b' --population 4 --elite 2 --scenes 3 --jobs 20)
"$RUBATO" "${learn[@]}" --generations 2 --out weights.json 2>/dev/null
for generations in 1 2; do
  "$RUBATO" "${learn[@]}" --generations $generations --checkpoint checkpoint.json --threads 3 --out continued.json 2>/dev/null
done
check 'learning goes on from its checkpoint to the same bytes' cmp weights.json continued.json
ppo=(learn --method ppo --contention pairs.csv --models 'a,b' --scenes 2 --drawn-scenes 2 --jobs 15)
"$RUBATO" "${ppo[@]}" --iterations 2 --report learn.html --out network.json 2>/dev/null
for iterations in 1 2; do
  "$RUBATO" "${ppo[@]}" --iterations $iterations --checkpoint ppo.json --threads 3 --out continued.json 2>/dev/null
done
check 'so does learning of a network' cmp network.json continued.json
check 'its page has the curves' grep -q '"Entropy"' learn.html
"$RUBATO" simulate --trace spanning.csv --cluster 4x4 --placement pack --contention pairs.csv --rigid \
  --policy learned:scorer=network,weights=network.json --json >network.run.json 2>/dev/null
check 'a learned network runs all jobs' json network.run.json "d['runs'][0]['completed'] == 60"

"$RUBATO" graph make rnn --out rnn.json
for run in 1 2; do "$RUBATO" graph place rnn.json --devices gpu=2 --samples 50 --json --report graph.html >graph.$run.json; done
check 'a graph is placed the same way twice' python3 -c "
import json
one, two = (json.load(open('graph.%d.json' % n))['methods'] for n in (1, 2))
assert [m['method'] for m in one] == 'single min-cut heft reinforce ppo'.split()
assert [m['placement'] for m in one] == [m['placement'] for m in two]
"
check 'its page is self-contained' bash -c 'grep -q "kind.*graph" graph.html && ! grep -qE "(src|href)=\"?(https?:)?//" graph.html'
for placement in pack quiet; do
  "$RUBATO" simulate --trace spanning.csv --cluster 4x4 --placement $placement --contention pairs.csv --rigid \
    --policy srsf,learned:weights=weights.json --json >"$placement.json" 2>/dev/null
done
check 'jobs that slow each other down all end' json quiet.json "all(r['completed'] == 60 for r in d['runs'])"
check 'quiet changes what happens' bash -c '! cmp -s pack.json quiet.json'

for nodes in 1x8 2x8; do "$RUBATO" simulate --trace trace.csv --cluster "$nodes" --policy rubato,fifo --advise --json 2>/dev/null >"advice.$nodes.json"; done
check 'advice is what one more node really does' python3 -c "
import json
one, two = (json.load(open('advice.%sx8.json' % n))['runs'] for n in (1, 2))
for a, b in zip(one, two):
    assert a['advice'][0]['avg_jct_s'] == b['avg_jct_s'], (a['policy'], a['advice'], b['avg_jct_s'])
assert one[0]['advice'][0]['price'] > 0 and one[1]['advice'][0]['price'] is None
"
check 'advice in words' bash -c "'$RUBATO' simulate --trace trace.csv --cluster 1x8 --policy rubato --advise 2>/dev/null | grep -q 'one more node of 8 GPUs'"

printf 'job_id,submit_s,gpus,duration_s,mood,colour\nbig,0,99,60,good,red\nsmall,5,4,0,bad,blue\n' >odd.csv
"$RUBATO" simulate --trace odd.csv --cluster 1x8 --policy fifo --json --jobs-csv odd.jobs.csv >odd.json 2>odd.err
check 'extra columns: one warning' test "$(wc -l <odd.err)" -eq 1
check 'the warning names them' grep -q 'mood.*colour' odd.err
check 'a job that never fits is rejected, the rest runs' json odd.json "d['runs'][0]['rejected'] == 1 and d['runs'][0]['completed'] == 1"
check 'with the reason' grep -qE '^fifo,big,0,,,,,,1,"?needs 99 GPUs' odd.jobs.csv
check 'zero duration is legal' grep -qE '^fifo,small,5,5,5,' odd.jobs.csv
check 'the verdict of the trace' json odd.json "d['trace']['larger_than_cluster'] == 1 and d['trace']['zero_durations'] == 1 and len(d['trace']['notes']) == 3"
printf 'JobID|State|Submit|Start|End|AllocTRES\n1|COMPLETED|2026-03-01T10:00:00|2026-03-01T10:00:01|2026-03-01T10:01:01|cpu=1,gres/gpu=2\n1.batch|COMPLETED|2026-03-01T10:00:01|2026-03-01T10:00:01|2026-03-01T10:01:01|cpu=1\n2|PENDING|2026-03-01T10:00:05|Unknown|Unknown|\n' >history.txt
"$RUBATO" simulate --trace history.txt --cluster 1x8 --policy fifo,afs-l >history.out 2>history.err
check 'a history of Slurm is a trace' grep -q '^history.txt: 1 jobs on 8 GPUs' history.out
check 'it says which rows were dropped' grep -q 'dropped because they had not ended.*: 1 (PENDING 1)' history.out
check 'help' bash -c "'$RUBATO' simulate --help | grep -q -- --restart-cost"
check 'output to a closed pipe does not crash' bash -c "'$RUBATO' policies | head -n 1"

echo "$passed passed, $failed failed"
((failed == 0))
