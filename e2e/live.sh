#!/usr/bin/env bash
# The live cluster end to end; live.py has the scenarios.
#
#   e2e/live.sh [BUILD] [SCENARIO...]
set -euo pipefail
here=$(dirname "$0")
exec python3 "$here/live.py" "${1:-$here/../build}" "${@:2}"
