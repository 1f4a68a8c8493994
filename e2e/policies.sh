#!/usr/bin/env bash
# Tests `rubato policies` as users run it: every policy is in a group, shows itself, and its example runs. The page
# docs/policies.md must agree with the table.
set -uo pipefail
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
# shellcheck source=e2e/checks.bash
source "$root/e2e/checks.bash"
RUBATO=$(realpath "${RUBATO:-build/rubato}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
rubato() { "$RUBATO" "$@"; }
export -f rubato
export RUBATO

"$RUBATO" policies --json >table.json
field() { python3 -c "import json,sys; [print(p['$1']) for p in json.load(open('table.json'))['policies']]"; }
mapfile -t names < <(field name)
"$RUBATO" policies >list.txt
for name in "${names[@]}"; do
  check "$name is listed once" test "$(grep -c "^  $name  " list.txt)" -eq 1
  check "$name shows itself" bash -c "rubato policies $name | grep -q '^  rubato simulate .*,$name\$'"
  check "$name as JSON" bash -c "rubato policies $name --json | python3 -c 'import json,sys; assert json.load(sys.stdin)[\"name\"] == \"$name\"'"
done
groups=$(sed -n 's/^\([a-z]*\): .*/\1/p' list.txt | tr '\n' ' ')
check "the groups are $groups" test "$groups" = 'rigid elastic deadlines heterogeneous fair learned '
"$RUBATO" policies nonsense >none.txt 2>none.err
check 'an unknown policy is bad input' test "$?" -eq 2
check 'with one sentence' test "$(wc -l <none.err)" -eq 1

"$RUBATO" generate --jobs 40 --cluster 4x8 --load 1.2 --shortest 600 --longest 20000 --seed 4 --out jobs.csv 2>/dev/null
# The examples stand for themselves: each is run as it is printed.
while read -r example; do
  check "$example" bash -c "$example >out.txt 2>err.txt && grep -q '^${example##*,} ' out.txt"
done < <(field example)

check 'docs/policies.md agrees with the table' "$root/tools/check_policies" table.json
echo "$passed passed, $failed failed"
((failed == 0))
