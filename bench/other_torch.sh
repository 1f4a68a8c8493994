#!/usr/bin/env bash
# The Python package with the torch of another Debian: runs scenarios of e2e/python.py there, in a chroot, with the same
# librubato.so and rubato as here. Both need only the C library, so nothing is compiled there.
#
#   bench/other_torch.sh [SCENARIO...]       all scenarios by default
#   RELEASE=trixie bench/other_torch.sh      Debian 13 with torch 2.6, the default
#
# Needs root and debootstrap. Without them it says so and exits with 2; `./dev bench` goes on. The chroot is kept, below
# ${RUBATO_CLEAN:-/var/tmp/rubato-clean}, so that a second run starts at once; you may delete it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/chroot.bash
source tools/chroot.bash
release=${RELEASE:-trixie}
build=${BUILD:-build}

# ./dev bench sets RUBATO for all benchmarks, and must not end at one that needs more than it installs.
cannot_run() {
  if [[ -n ${RUBATO:-} ]]; then
    printf 'skipped: the Python package on %s: %s\n' "$release" "$1"
    exit 0
  fi
  printf 'bench/other_torch.sh: %s\n' "$1" >&2
  exit 2
}

((EUID == 0)) || cannot_run "only root can make a chroot"
command -v debootstrap >/dev/null || cannot_run "there is no debootstrap; install it with: apt-get install debootstrap"
root=${RUBATO_CLEAN:-/var/tmp/rubato-clean}/$release
tree=/opt/rubato-python
unmount() { unmount_below "$root"; }
trap unmount EXIT

unmount
[[ -e $root/etc/debian_version ]] || make_chroot "$release" "$root"
mount_chroot "$root"
if ! in_chroot "$root" python3 -c 'import numpy, pip, setuptools, torch, venv, wheel' 2>/dev/null; then
  echo "==> installing python3-torch on $release (details in $root.log)"
  # An installation that was interrupted is finished first.
  in_chroot "$root" DEBIAN_FRONTEND=noninteractive sh -euc '
    dpkg --configure -a
    apt-get update -qq
    apt-get install -y -qq -f --no-install-recommends
    apt-get install -y -qq --no-install-recommends "$@"' sh \
    python3-numpy python3-pip python3-setuptools python3-torch python3-venv python3-wheel >>"$root.log" 2>&1
fi
rm -rf "${root:?}$tree"
mkdir -p "$root$tree/build" "$root$tree/examples"
cp -r docs e2e python "$root$tree"
cp -r examples/python "$root$tree/examples"
cp "$build/rubato" "$build/librubato.so" "$root$tree/build"

in_chroot "$root" python3 -c 'import sys, torch; print(f"==> Python {sys.version.split()[0]}, torch {torch.__version__}")'
mapfile -t known < <(in_chroot "$root" python3 "$tree/e2e/python.py" --list)
(($#)) || set -- "${known[@]}"
failed=0
for scenario in "$@"; do
  if in_chroot "$root" PATIENCE="${PATIENCE:-240}" python3 "$tree/e2e/python.py" "$tree/build" "$scenario" >"$root.scenario" 2>&1; then
    printf 'passed: %s on %s (%d checks)\n' "$scenario" "$release" "$(grep -c '^passed' "$root.scenario")"
  else
    cat "$root.scenario"
    printf 'FAILED: %s on %s\n' "$scenario" "$release"
    failed=$((failed + 1))
  fi
done
printf '%s: %d scenarios passed, %d failed\n' "$release" $(($# - failed)) "$failed"
((failed == 0))
