# Starts a private Slurm on this machine for comparisons: munged, slurmctld and one slurmd, in their own directory,
# on loopback. Source this file. It needs root and the packages slurmctld slurmd slurm-client munge.
# shellcheck shell=bash

slurm_up() { # DIR: leaves SLURM_CONF set, the pids in slurm_pids, and the logs of each try in DIR/N
  local try
  mkdir -p "$1"
  chmod 755 "$1"
  # Another program may use the chosen ports.
  for try in 1 2 3; do
    if slurm_try "$1/$try"; then return 0; fi
    slurm_down
  done
  return 1
}

slurm_try() { # DIR: once, on ports that are drawn anew
  local dir=$1 host
  host=$(hostname -s)
  slurm_pids=()
  mkdir -p "$dir"/{munge,state,spool}
  chmod 755 "$dir"
  dd if=/dev/urandom of="$dir/munge/key" bs=1024 count=1 status=none
  chmod 400 "$dir/munge/key"
  chmod 711 "$dir/munge"
  /usr/sbin/munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" 2>"$dir/munged.err" &
  slurm_pids+=($!)
  cat >"$dir/slurm.conf" <<END
ClusterName=here
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$((20000 + RANDOM % 5000))
SlurmdPort=$((25000 + RANDOM % 5000))
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
PropagateResourceLimits=NONE
MaxJobCount=100000
SchedulerParameters=bf_interval=30,defer
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
END
  echo "CgroupPlugin=cgroup/v1" >"$dir/cgroup.conf"
  export SLURM_CONF=$dir/slurm.conf
  local end=$((SECONDS + 20))
  until [[ -S $dir/munge/socket ]]; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
  slurm_controller -i
  slurmd -D 2>"$dir/slurmd.err" &
  slurm_pids+=($!)
  until [[ $(sinfo -h -o %T 2>/dev/null) == idle ]]; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}

slurm_controller() { # FLAGS...: leaves its pid in slurm_controller_pid
  slurmctld -D "$@" 2>>"$(dirname "$SLURM_CONF")/slurmctld.err" &
  slurm_controller_pid=$!
  slurm_pids+=($!)
}

slurm_down() {
  # If no controller answers, it would try for a long time.
  timeout 10 scancel --user=root 2>/dev/null || true
  kill "${slurm_pids[@]}" 2>/dev/null || true
  wait "${slurm_pids[@]}" 2>/dev/null || true
  slurm_pids=()
}
