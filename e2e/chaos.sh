#!/usr/bin/env bash
# Random kills and resizes of a real training job. It must finish, publish every step once, and give the same bits.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec python3 bench/elastic.py chaos --kills "${KILLS:-10}" --resizes 10 --heartbeat 20 --build "${1:-build}"
