# Counts what holds; for the scripts beside it.
# shellcheck shell=bash disable=SC2034 # the scripts report the counts
passed=0
failed=0
check() { # NAME COMMAND...
  local name=$1
  shift
  if "$@" >/dev/null 2>&1; then
    passed=$((passed + 1))
  else
    echo "FAILED: $name"
    failed=$((failed + 1))
  fi
}
