#!/usr/bin/env bash
# Who may do and see what on a live cluster; security.py has the scenarios.
#
#   e2e/security.sh [BUILD] [SCENARIO...]
set -euo pipefail
here=$(dirname "$0")
exec python3 "$here/security.py" "${1:-$here/../build}" "${@:2}"
