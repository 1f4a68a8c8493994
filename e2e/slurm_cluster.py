#!/usr/bin/env python3
"""A private Slurm on this machine: munged, slurmctld and a slurmd for each node, on loopback, without systemd. If asked
for, also slurmdbd with a MariaDB for accounts and their limits, and slurmrestd.

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
ACCOUNTING_PROGRAMS = ("slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb-install-db")
REST_PROGRAMS = ("slurmrestd",)
# A database for a test need not survive a crash of the machine.
DATABASE = ("--no-defaults", "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M", "--innodb-flush-method=nosync")
# What makes a share start at once. docs/slurm.md has what it is worth.
FAST = "bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0"


def path_of(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def why_not(programs=PROGRAMS):
    """Why there can be no cluster here, or None."""
    missing = [program for program in programs if not path_of(program)]
    return f"{', '.join(missing)}: not installed; run ./dev setup slurm" if missing else None


class Slurm:
    def __init__(self, nodes=4, gpus=4, directory=None, settings=None, partitions=(), types=(), accounts=None, jwt=False,
                 default="all Default=YES"):
        """`settings` are lines of slurm.conf that replace or add to those below; "" is Slurm's default.
        `partitions` are added to the `default` one: "high PriorityTier=10". `types` are those of the GPUs,
        one for each. `accounts` are commands of sacctmgr, which need a slurmdbd; none without it. `jwt`: users may
        have tokens (scontrol token)."""
        self.own = directory is None
        self.directory = pathlib.Path(directory or tempfile.mkdtemp(prefix="rubato-slurm-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        self.nodes = [f"n{i}" for i in range(nodes)]
        self.gpus = dict.fromkeys(self.nodes, gpus)
        self.settings = settings or {}
        self.partitions = partitions
        self.types = types
        self.accounts = accounts
        self.jwt = jwt
        self.default = default
        self.conf = self.directory / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.munge = self.controller = self.database = self.accounting = self.rest = None
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
            if self.accounts is not None:
                self._start_accounting()
            self.start_controller("-i")
            for node in self.nodes:
                self.start_node(node)
            if self._await(lambda: set(self.states().values()) == {"idle"}, 20):
                # The database knows GPUs once a controller has told it.
                for command in self.accounts or ():
                    self.run("sacctmgr", "-i", *command.split())
                return
            if attempt < 2:
                self._end_processes()
        raise RuntimeError(f"Slurm does not come up: {self.logs()}")

    def _configure(self):
        # Below the ports that the kernel gives to others. Some are left for nodes that are added later.
        self.port = random.SystemRandom().randrange(12000, 29900 - len(self.nodes))
        self._write_configuration()

    def _write_configuration(self):
        user = pwd.getpwuid(os.geteuid()).pw_name
        port = self.port
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
            **self._accounting_settings(port - 1),
            **self._token_settings(),
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
        kinds = [f"gpu:{kind}:{self.types.count(kind)}" for kind in dict.fromkeys(self.types)]
        for i, node in enumerate(self.nodes):
            gres = f" Gres={','.join(kinds) or f'gpu:{self.gpus[node]}'}" if self.gpus[node] else ""
            lines.append(f"NodeName={node} NodeHostname={socket.gethostname().split('.')[0]} NodeAddr=127.0.0.1 "
                         f"Port={port + 1 + i} CPUs=32 RealMemory=64000 State=UNKNOWN{gres}")
        for partition in (self.default, *self.partitions):
            lines.append(f"PartitionName={partition} Nodes={','.join(self.nodes)} State=UP OverSubscribe=NO")
        self.conf.write_text("\n".join(lines) + "\n")
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self._write_gres()

    def _write_gres(self):
        # Slurm wants character devices. Nobody opens them.
        directory = self.directory
        for i in range(max(self.gpus.values())):
            device = directory / "devices" / f"gpu{i}"
            if device.is_symlink() or device.exists():
                continue
            if os.geteuid() == 0:
                os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(195, i))
            else:
                device.symlink_to(f"/dev/tty{i + 1}")
        lines = []
        for node, gpus in self.gpus.items():
            kinds = [f" Type={kind}" for kind in self.types] or [""] * gpus
            lines += [f"NodeName={node} Name=gpu{kind} File={directory}/devices/gpu{i}\n" for i, kind in enumerate(kinds)]
        (directory / "gres.conf").write_text("".join(lines))

    def _token_settings(self):
        if not self.jwt:
            return {}
        key = self.directory / "jwt.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(os.urandom(32))
        return {"AuthAltTypes": "auth/jwt", "AuthAltParameters": f"jwt_key={key}"}

    def _accounting_settings(self, port):
        if self.accounts is None:
            return {"AccountingStorageType": "accounting_storage/none"}
        socket_of_munge = f"{self.directory}/munge/socket"
        conf = self.directory / "slurmdbd.conf"
        conf.write_text("\n".join(f"{key}={value}" for key, value in {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={socket_of_munge}",
            "DbdHost": "localhost",
            "DbdAddr": "127.0.0.1",
            "DbdPort": port,
            "SlurmUser": pwd.getpwuid(os.geteuid()).pw_name,
            "LogFile": f"{self.directory}/slurmdbd.log",
            "PidFile": f"{self.directory}/slurmdbd.pid",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "localhost",
            "StorageUser": "root",
            "StorageLoc": "slurm",
        }.items()) + "\n")
        conf.chmod(0o600)
        return {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": port,
            "AccountingStoragePass": socket_of_munge,
            "AccountingStorageTRES": "gres/gpu",
            "AccountingStorageEnforce": "associations,limits,qos",
            "AccountingStoreFlags": "job_comment,job_env,job_script",
        }

    def _spawn(self, *words, log, env=(), **options):
        with open(self.directory / log, "ab") as file:
            return subprocess.Popen([path_of(words[0]), *words[1:]], env={**self.env, **dict(env)}, stdin=subprocess.DEVNULL,
                                    stdout=file, stderr=file, start_new_session=True, **options)

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

    def _start_accounting(self):
        """MariaDB, then slurmdbd. The controller asks it when it starts."""
        data = self.directory / "database"
        listens = self.directory / "database.sock"
        self.env["MYSQL_UNIX_PORT"] = str(listens)
        if not data.exists():
            with open(self.directory / "database.err", "ab") as log:
                subprocess.run([path_of("mariadb-install-db"), *DATABASE, f"--datadir={data}", "--skip-test-db",
                                "--auth-root-authentication-method=normal",
                                f"--user={pwd.getpwuid(os.geteuid()).pw_name}"],
                               check=True, stdout=log, stderr=log, timeout=300)
        self.database = self._spawn("mariadbd", *DATABASE, f"--datadir={data}", f"--socket={listens}", "--skip-networking",
                                    f"--pid-file={self.directory}/database.pid",
                                    f"--user={pwd.getpwuid(os.geteuid()).pw_name}", log="database.err")
        self._await(listens.exists, 120)
        self.accounting = self._spawn("slurmdbd", "-D", log="slurmdbd.err")
        self._await(lambda: "here" in self.run("sacctmgr", "-n", "-P", "list", "cluster", check=False)
                    or self.run("sacctmgr", "-i", "add", "cluster", "here", check=False), 120)

    def start_rest(self, *flags, auth="rest_auth/local", listen=None, **options):
        """Starts slurmrestd, and returns where it listens: a socket that only its user can use, if nothing is said."""
        path = self.directory / "rest.sock"
        path.unlink(missing_ok=True)
        # It refuses to start with the plugins for a slurmdbd that is not there.
        later = any(pathlib.Path("/usr/lib").glob("*/slurm-wlm/openapi_slurmctld.so"))
        flags = ("-s", "openapi/slurmctld" if later else "openapi/v0.0.38", *flags)
        self.rest = self._spawn("slurmrestd", "-a", auth, *flags, listen or f"unix:{path}", log="slurmrestd.err",
                                env={"SLURMRESTD_SECURITY": "disable_user_check",
                                     **({"SLURM_JWT": "daemon"} if auth == "rest_auth/jwt" else {})}, **options)
        if listen:
            host, port = listen.rsplit(":", 1)
            self._await(lambda: self._listens(host, int(port)), 60)
        else:
            self._await(path.exists, 60)
        return str(path)

    @staticmethod
    def _listens(host, port):
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
            return True
        return False

    def start_controller(self, *flags):
        self.controller = self._spawn("slurmctld", "-D", *flags, log="slurmctld.err")

    def start_node(self, node):
        self.daemons[node] = self._spawn("slurmd", "-D", "-N", node, log=f"{node}.err")

    # --- what an administrator changes ---

    def set_gpus(self, node, gpus):
        """The node has so many GPUs from now on; if there is no such node, it is added. As Slurm's documentation
        says it: all daemons are started again. Jobs go on."""
        if node not in self.nodes:
            self.nodes.append(node)
        self.gpus[node] = gpus
        self._write_configuration()
        for process in (self.controller, *self.daemons.values()):
            process.terminate()
        for process in (self.controller, *self.daemons.values()):
            process.wait(60)
        self.start_controller()
        for one in self.nodes:
            self.start_node(one)

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
        processes = [p for p in (*self.daemons.values(), self.rest, self.controller, self.accounting, self.munge,
                                 self.database) if p]
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
                for user in set(self.run("squeue", "-h", "-o", "%u", limit=10).split()):
                    self.run("scancel", "--user", user, limit=10)
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
