# Functions for the test scripts: `check` counts passed and failed checks, `await` waits for a condition.
# shellcheck shell=bash disable=SC2034 # the scripts report the counts
passed=0
failed=0
# await COMMAND...: waits until it succeeds, at most two minutes.
await() {
  local end=$((SECONDS + 120))
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= end)); then
      echo "timed out after two minutes, waiting for: $*"
      return 1
    fi
    sleep 0.1
  done
}
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
