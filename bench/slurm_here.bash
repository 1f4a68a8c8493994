# Starts a private Slurm on this machine for comparisons, by e2e/slurm_cluster.py. Source this file in the root of
# the clone.
# shellcheck shell=bash

slurm_up() { # DIR: leaves SLURM_CONF set, and the controller's pid in slurm_controller_pid
  local word
  coproc SLURM_CLUSTER { exec python3 e2e/slurm_cluster.py "$1" --nodes 1 --gpus 0 \
    --set SchedulerParameters=bf_interval=30,defer --set SelectTypeParameters=CR_Core 2>"$1.err"; }
  slurm_pids=("$SLURM_CLUSTER_PID")
  read -r word slurm_controller_pid <&"${SLURM_CLUSTER[0]}" && [[ $word == ready ]] || return 1
  export SLURM_CONF=$1/slurm.conf
}

slurm_controller() { # starts it again
  slurmctld -D 2>>"$(dirname "$SLURM_CONF")/slurmctld.err" &
  slurm_controller_pid=$!
  slurm_pids+=($!)
}

slurm_down() {
  # If no controller answers, it would try for a long time.
  timeout 10 scancel --user="$(id -un)" 2>/dev/null || true
  kill "${slurm_pids[@]}" 2>/dev/null || true
  wait "${slurm_pids[@]}" 2>/dev/null || true
  slurm_pids=()
}
