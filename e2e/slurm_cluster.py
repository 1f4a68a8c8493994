#!/usr/bin/env python3
"""A private Slurm on this machine: munged, slurmctld and a slurmd for each node, on loopback, without systemd.

    with Slurm(nodes=4, gpus=4) as slurm:
        slurm.run("sbatch", "--gres=gpu:2", "job.sh")

    e2e/slurm_cluster.py DIR [--nodes N] [--gpus N] [--set KEY=VALUE]...

The program prints one line once the cluster is ready, "ready CONTROLLER_PID", and ends it when its standard
input ends. DIR/slurm.conf is its configuration.

Its GPUs are character devices that nobody opens. Everything is in one directory, with a munge key and ports of
its own, so it does not touch a Slurm of the system. It needs the packages of `./dev setup slurm`.
"""

import argparse
import contextlib
import os
import pathlib
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
# What makes a share start at once. docs/slurm.md has what it is worth.
FAST = "bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0"


def path_of(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def why_not():
    """Why there can be no cluster here, or None."""
    missing = [program for program in PROGRAMS if not path_of(program)]
    return f"{', '.join(missing)}: not installed; run ./dev setup slurm" if missing else None


class Slurm:
    def __init__(self, nodes=4, gpus=4, directory=None, settings=None, partitions=()):
        """`settings` are lines of slurm.conf that replace or add to those below; "" is Slurm's default.
        `partitions` are added to the one that is called all: "high PriorityTier=10"."""
        self.own = directory is None
        self.directory = pathlib.Path(directory or tempfile.mkdtemp(prefix="rubato-slurm-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        self.nodes = [f"n{i}" for i in range(nodes)]
        self.gpus = gpus
        self.settings = settings or {}
        self.partitions = partitions
        self.conf = self.directory / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.munge = self.controller = None
        self.daemons = {}  # node -> process
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # --- starting ---

    def _start(self):
        # Another program may take one of the ports that were free a moment ago.
        for attempt in range(3):
            self._configure()
            self._start_munge()
            self.start_controller("-i")
            for node in self.nodes:
                self.start_node(node)
            if self._await(lambda: set(self.states().values()) == {"idle"}, 20):
                return
            if attempt < 2:
                self._end_processes()
        raise RuntimeError(f"Slurm does not come up: {self.logs()}")

    def _configure(self):
        user = pwd.getpwuid(os.geteuid()).pw_name
        # Below the ports that the kernel gives to others.
        port = random.SystemRandom().randrange(12000, 30000 - len(self.nodes))
        directory = self.directory
        for folder in ("state", "spool", "devices"):
            (directory / folder).mkdir(exist_ok=True)
        values = {
            "ClusterName": "here",
            "SlurmctldHost": f"{socket.gethostname().split('.')[0]}(127.0.0.1)",
            "SlurmctldPort": port,
            "SlurmdPort": port + 1,
            "SlurmUser": user,
            "SlurmdUser": user,
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            "AuthInfo": f"socket={directory}/munge/socket",
            "StateSaveLocation": f"{directory}/state",
            "SlurmdSpoolDir": f"{directory}/spool/%n",
            "SlurmctldPidFile": f"{directory}/slurmctld.pid",
            "SlurmdPidFile": f"{directory}/%n.pid",
            "SlurmctldLogFile": f"{directory}/slurmctld.log",
            "SlurmdLogFile": f"{directory}/%n.log",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "JobCompType": "jobcomp/filetxt",
            "JobCompLoc": f"{directory}/completed.txt",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "GresTypes": "gpu",
            "SlurmdParameters": "config_overrides",
            "SchedulerParameters": FAST,
            "ReturnToService": 2,
            "PropagateResourceLimits": "NONE",
            "MaxJobCount": 100000,
            "KillWait": 5,
            **self.settings,
        }
        lines = [f"{key}={value}" for key, value in values.items() if value != ""]
        gres = f" Gres=gpu:{self.gpus}" if self.gpus else ""
        for i, node in enumerate(self.nodes):
            lines.append(f"NodeName={node} NodeHostname={socket.gethostname().split('.')[0]} NodeAddr=127.0.0.1 "
                         f"Port={port + 1 + i} CPUs=32 RealMemory=64000 State=UNKNOWN{gres}")
        for partition in ("all Default=YES", *self.partitions):
            lines.append(f"PartitionName={partition} Nodes={','.join(self.nodes)} State=UP OverSubscribe=NO")
        self.conf.write_text("\n".join(lines) + "\n")
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        # Slurm wants character devices. Nobody opens them.
        for i in range(self.gpus):
            device = directory / "devices" / f"gpu{i}"
            if device.is_symlink() or device.exists():
                continue
            if os.geteuid() == 0:
                os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(195, i))
            else:
                device.symlink_to(f"/dev/tty{i + 1}")
        (directory / "gres.conf").write_text(
            f"Name=gpu File={directory}/devices/gpu[0-{self.gpus - 1}]\n" if self.gpus else "")

    def _spawn(self, *words, log):
        with open(self.directory / log, "ab") as file:
            return subprocess.Popen([path_of(words[0]), *words[1:]], env=self.env, stdin=subprocess.DEVNULL,
                                    stdout=file, stderr=file, start_new_session=True)

    def _start_munge(self):
        munge = self.directory / "munge"
        munge.mkdir(mode=0o711, exist_ok=True)
        (munge / "key").unlink(missing_ok=True)
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        self.munge = self._spawn("munged", "--foreground", "--force", f"--key-file={munge}/key",
                                 f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                                 f"--seed-file={munge}/seed", log="munged.err")
        self._await((munge / "socket").exists, 10)

    def start_controller(self, *flags):
        self.controller = self._spawn("slurmctld", "-D", *flags, log="slurmctld.err")

    def start_node(self, node):
        self.daemons[node] = self._spawn("slurmd", "-D", "-N", node, log=f"{node}.err")

    # --- faults ---

    def kill_controller(self):
        self.controller.kill()
        self.controller.wait()

    def kill_node(self, node):
        """Its jobs go on."""
        self.daemons[node].kill()
        self.daemons[node].wait()

    # --- asking ---

    def run(self, *words, check=True, limit=30, **options):
        """The output of a command of Slurm."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=limit, **options)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def states(self):
        """The state of each node; empty if nobody answers."""
        try:
            lines = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False, limit=10).split("\n")
        except subprocess.TimeoutExpired:
            return {}
        return dict(line.split() for line in lines if line.strip())

    def logs(self):
        """The last lines of all logs."""
        return "\n".join(f"{path.name}: " + " | ".join(path.read_text(errors="replace").splitlines()[-4:])
                         for path in sorted([*self.directory.glob("*.err"), *self.directory.glob("*.log")]))

    # --- ending ---

    def _end_processes(self):
        # All at once: a slurmd waits for its controller.
        processes = [p for p in (*self.daemons.values(), self.controller, self.munge) if p]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self):
        if self.controller and self.controller.poll() is None:
            with contextlib.suppress(Exception):
                self.run("scancel", "--user", pwd.getpwuid(os.geteuid()).pw_name, limit=10)
                self._await(lambda: not self.run("squeue", "-h", "-o", "%i", limit=10), 10)
        self._end_processes()
        for pid in self._leftover():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.own:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _leftover(self):
        """Processes of jobs that outlived their slurmd. Those of the jobs have our configuration in their
        environment. slurmstepd overwrites its own, but has a log of ours open."""
        mark = f"SLURM_CONF={self.conf}".encode()
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "environ").read_bytes().split(b"\0")
                ours = mark in words and any(word.startswith(b"SLURM_JOB_ID=") for word in words)
                if (process / "comm").read_text() == "slurmstepd\n":
                    ours = any(os.readlink(fd).startswith(f"{self.directory}/") for fd in (process / "fd").iterdir())
                if ours:
                    found.append(int(process.name))
        return found

    @staticmethod
    def _await(condition, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.1)
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("directory")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a line of slurm.conf")
    arguments = parser.parse_args()
    problem = why_not()
    if problem:
        sys.exit(f"slurm_cluster: {problem}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = dict(line.split("=", maxsplit=1) for line in arguments.set)
    with Slurm(arguments.nodes, arguments.gpus, arguments.directory, settings) as slurm:
        print("ready", slurm.controller.pid, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
