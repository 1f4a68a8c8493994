#!/usr/bin/env python3
"""Rubato on a real Slurm, which each scenario starts on this machine (slurm_cluster.py).

    e2e/slurm.py BUILD [SCENARIO...]     all scenarios by default; exit 1 if anything does not hold
    e2e/slurm.py --list                  the names of the scenarios; some only if EVERY_COMBINATION is set

The first scenarios test the manager of Slurm alone, the others train under `rubato up --engine slurm`.
"""

import contextlib
import functools
import json
import os
import pathlib
import pwd
import queue
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from live import (PATIENCE, QUIET_THREADS, Cluster, await_true, counts_seen, ended_well, live_resizes,
                  lived_through_changes, main, require)
from slurm_cluster import ACCOUNTING_PROGRAMS, PROGRAMS, REST_PROGRAMS, Slurm, why_not

PREFIX = "rubato-e2e-"


class Manager:
    """The manager of Slurm (engine/slurm_manager.h), driven by slurm_driver."""

    def __init__(self, build, slurm, patience=20, rest=()):
        """`rest`: where slurmrestd listens, and the file with the token."""
        self.slurm = slurm
        self.process = subprocess.Popen([str(build / "slurm_driver"), PREFIX, str(patience), *rest],
                                        env={**slurm.env, "OUR_SECRET": "1", "SBATCH_ACCOUNT": "nobody"},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        self.answers = {}  # share -> its last answer
        self.troubles = []
        self.listing = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))

    def take(self):
        """Takes the answers that have come."""
        while True:
            try:
                answer = self.lines.get(timeout=0.05)
            except queue.Empty:
                require(self.process.poll() is None, "the manager has ended")
                return
            if "listing" in answer:
                require(self.listing is None or answer["listing"] > self.listing["listing"], "listings are numbered")
                self.listing = answer
            elif "trouble" in answer:
                self.troubles.append(answer["trouble"])
            else:
                kind = next(iter(answer))
                self.answers[answer[kind]] = (kind, answer)

    def say(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def submit(self, name, node, command, gpus=1, **more):
        directory = str(self.slurm.directory)
        self.say({"submit": {"name": PREFIX + name, "node": node, "gpus": gpus, "command": command,
                             "directory": directory, "log": f"{directory}/share.log", **more}})

    def cancel(self, name):
        self.say({"cancel": PREFIX + name})

    def await_listing(self, condition, what):
        """Waits for a listing that fulfils the condition."""
        def holds():
            self.take()
            return self.listing and condition(self.listing)
        await_true(holds, what, 60)

    def await_answer(self, name, kind):
        def there():
            self.take()
            return PREFIX + name in self.answers
        await_true(there, f"an answer about {name}", 60)
        got, answer = self.answers.pop(PREFIX + name)
        require(got == kind, f"{name}: {answer}, not {kind}")
        return answer

    def await_share(self, name, state):
        def holds(listing):
            share = listing["shares"].get(PREFIX + name)
            return share and share["state"] == state
        self.await_listing(holds, f"share {name} to be {state}")
        return self.listing["shares"][PREFIX + name]

    def await_trouble(self, there):
        """Waits until Slurm does not answer, or answers again, and returns what was said. Each is said once."""
        await_true(lambda: self.take() or bool(self.troubles and self.troubles[-1]) == there,
                   "trouble" if there else "the trouble to be over", 60)
        require(all(bool(one) != bool(other) for one, other in zip(self.troubles, self.troubles[1:])),
                f"said more than once: {self.troubles}")
        return self.troubles[-1] if self.troubles else ""

    def others(self, node):
        return self.listing["nodes"][node]["others"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)


def needs(*programs):
    """Without these programs the scenario is skipped. As root it fails, because ./dev test has installed them."""
    def wrap(scenario):
        def run(build):
            problem = why_not((*PROGRAMS, *programs))
            if problem and os.geteuid() != 0:
                return f"skipped: {problem}"
            return scenario(build)
        run.__name__ = scenario.__name__
        return run
    return wrap


needs_slurm = needs()


def jobs_of(slurm, name):
    """Slurm's numbers of all jobs with this name."""
    return slurm.run("squeue", "-h", "-t", "all", "-o", "%i", f"--name={name}").split()


@needs_slurm
def manager(build):
    """Submissions, refusals, arguments that a shell would expand, strangers' jobs, cancelling, drained nodes."""
    with Slurm() as slurm, Manager(build, slurm) as m:
        do_everything(slurm, m)
    return "submitted, refused, cancelled and listed as Slurm does; no shell saw a name"


@needs(*REST_PROGRAMS)
def rest_manager(build):
    """The same through slurmrestd, with a token in the name of the shares' users; it dies and comes back."""
    with Slurm(jwt=True) as slurm:
        port = free_port()
        # As nobody, because slurmrestd must not be root. As an ordinary user, it is that user.
        others = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        start = functools.partial(slurm.start_rest, auth="rest_auth/jwt", listen=f"127.0.0.1:{port}", **others)
        start()
        token = slurm.directory / "token"
        token.touch(mode=0o600)
        token.write_text(slurm.run("scontrol", "token", "lifespan=3600"))
        with Manager(build, slurm, 5, (f"http://127.0.0.1:{port}", str(token))) as m:
            do_everything(slurm, m)
            # Killed: nothing is concluded. Stopped: a submission is unknown, and is made once.
            m.submit("kept", "n0", ["/bin/sleep", "1000"])
            native = m.await_share("kept", "running")["native"]
            slurm.rest.kill()
            slurm.rest.wait()
            require("slurmrestd" in m.await_trouble(True), f"the trouble is {m.troubles}")
            start()
            m.await_trouble(False)
            slurm.rest.send_signal(signal.SIGSTOP)
            m.answers.pop(PREFIX + "kept", None)
            m.submit("late", "n1", ["/bin/sleep", "1000"])
            m.await_answer("late", "unknown")
            m.await_trouble(True)
            slurm.rest.send_signal(signal.SIGCONT)
            m.await_trouble(False)
            m.submit("late", "n1", ["/bin/sleep", "1000"])
            m.await_answer("late", "taken")
            first = m.await_share("late", "running")["native"]
            require(first == min(jobs_of(slurm, PREFIX + "late"), key=int), "the first one did not stay")
            require(m.await_share("kept", "running")["native"] == native, "the share is another one")
            # The token is gone: said, and over when it is back.
            text = token.read_text()
            token.write_text("")
            require("token" in m.await_trouble(True), f"the trouble is {m.troubles}")
            token.write_text(text)
            m.await_trouble(False)
    return "the same through slurmrestd as the shares' users; nothing lost or doubled when it stopped or died"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def do_everything(slurm, m):
    m.await_listing(lambda listing: len(listing["nodes"]) == 4, "all nodes")
    node = m.listing["nodes"]["n0"]
    require((node["gpus"], node["state"], node["others"]) == (4, "up", 0), f"n0 is {node}")
    require("partition/all" in node["labels"], f"n0 is {node}")
    # No shell sees any of it.
    log = slurm.directory / "log $(touch x) %j \\ '"
    words = ["$(id)", "`id`", "'", "%j", "a b", "", "*"]
    user = pwd.getpwuid(65534).pw_name if os.geteuid() == 0 else ""
    slurm.directory.chmod(0o777)
    m.submit("echo", "n0", ["/usr/bin/printf", "%s\n", *words], log=str(log), comment="job 1 | $(id)", user=user)
    native = m.await_answer("echo", "taken")["native"]
    share = m.await_share("echo", "gone")
    require(share["native"] == native and share["node"] == "n0", f"the share is {share}")
    require(log.read_text().split("\n") == [*words, ""], f"the log has {log.read_text()!r}")
    if user:
        require(log.stat().st_uid == 65534, "the share did not run as its user")
        require(slurm.run("squeue", "-h", "-t", "all", "-j", native, "-o", "%u").strip() == user,
                "the job is not its user's")
    # Four shares fill a node. The environment has nothing of ours.
    m.slurm.directory.joinpath("env").touch(mode=0o666)
    for i in range(4):
        m.submit(f"a{i}", "n1", ["/bin/sh", "-c", "env >env; exec sleep 1000"])
    for i in range(4):
        m.await_answer(f"a{i}", "taken")
        m.await_share(f"a{i}", "running")
    environment = (slurm.directory / "env").read_text()
    require("OUR_SECRET" not in environment and "SLURM_JOB_ID=" in environment,
            f"the environment is {environment}")
    # Asked again, nothing is made.
    m.submit("a0", "n1", ["/bin/sleep", "1000"])
    m.await_answer("a0", "taken")
    require(len(jobs_of(slurm, PREFIX + "a0")) == 1, "a share was submitted twice")
    m.submit("full", "n1", ["/bin/sleep", "1000"])
    m.await_answer("full", "taken")
    m.await_share("full", "waiting")
    m.await_listing(lambda listing: "Slurm: " in listing["shares"][PREFIX + "full"]["why"], "why it waits")
    m.cancel("full")
    m.await_share("full", "gone")
    # A stranger's jobs, one of them with a name that looks like rows of squeue, one with bytes that are no text.
    require(m.others("n1") == 0, "our GPUs are counted as those of others")
    strange = slurm.run("sbatch", "--parsable", "-w", "n2", "--gres=gpu:3", "--mem=100", "-o", "/dev/null", "-J",
                        f"x\n|1|RUNNING|root|n0|n0|gres:gpu:1|None|{PREFIX}ghost", "--wrap", "sleep 1000").strip()
    wild = slurm.run("sbatch", "--parsable", "--hold", "-o", "/dev/null", "-J", b"\xff\xfe\"}],{\\", "--comment", b"\x80|\n",
                     "--wrap", "true").strip()
    m.await_listing(lambda _: m.others("n2") == 3, "the stranger's GPUs")
    require(PREFIX + "ghost" not in m.listing["shares"], "a name was read as a row")
    slurm.run("scancel", strange, wild)
    m.await_listing(lambda _: m.others("n2") == 0, "the stranger's GPUs to be free")
    # Refused, with the reason.
    m.submit("many", "n0", ["/bin/true"], gpus=9)
    require("9 GPUs" in m.await_answer("many", "refused")["why"], "no reason")
    m.submit("where", "n9", ["/bin/true"])
    require("no node" in m.await_answer("where", "refused")["why"], "no reason")
    slurm.run("scontrol", "update", "PartitionName=all", "State=DRAIN")
    m.submit("closed", "n0", ["/bin/true"])
    require("partition" in m.await_answer("closed", "refused")["why"], "Slurm's reason is not passed on")
    slurm.run("scontrol", "update", "PartitionName=all", "State=UP")
    # Cancelled by somebody; drained and resumed.
    slurm.run("scancel", f"--name={PREFIX}a3")
    require("cancelled" in m.await_share("a3", "gone")["why"], "no reason")
    slurm.run("scontrol", "update", "node=n3", "state=drain", "reason=bad disk")
    m.await_listing(lambda listing: listing["nodes"]["n3"]["state"] == "draining", "n3 to drain")
    require("bad disk" in m.listing["nodes"]["n3"]["why"], "no reason")
    slurm.run("scontrol", "update", "node=n3", "state=resume")
    m.await_listing(lambda listing: listing["nodes"]["n3"]["state"] == "up", "n3 to be up")
    for i in range(3):
        m.cancel(f"a{i}")
    for i in range(3):
        m.await_share(f"a{i}", "gone")
    require(not m.troubles, f"trouble: {m.troubles}")


@needs_slurm
def controller_killed(build):
    """slurmctld does not answer, is killed and comes back: nothing is lost, nothing is doubled."""
    with Slurm() as slurm, Manager(build, slurm, patience=3) as m:
        m.await_listing(lambda listing: len(listing["nodes"]) == 4, "all nodes")
        m.submit("kept", "n0", ["/bin/sleep", "1000"])
        m.await_answer("kept", "taken")
        native = m.await_share("kept", "running")["native"]
        # It stops answering: a submission is lost on the way, and may be made or not.
        slurm.controller.send_signal(signal.SIGSTOP)
        m.submit("late", "n1", ["/bin/sleep", "1000"])
        m.await_answer("late", "unknown")
        m.await_trouble(True)
        slurm.controller.send_signal(signal.SIGCONT)
        m.await_trouble(False)
        # Asked again. If both were made, the one with the lowest number stays.
        m.submit("late", "n1", ["/bin/sleep", "1000"])
        m.await_answer("late", "taken")
        first = m.await_share("late", "running")["native"]
        require(first == min(jobs_of(slurm, PREFIX + "late"), key=int), "the first one did not stay")
        # Doubles that somebody made.
        double = slurm.run("sbatch", "--parsable", "-w", "n1", "--gres=gpu:1", "--mem=100", "-o", "/dev/null", "-J",
                           PREFIX + "late", "--wrap", "sleep 1000").strip()
        await_true(lambda: slurm.run("squeue", "-h", "-t", "all", "-j", double, "-o", "%T").strip() == "CANCELLED",
                   "the double to be cancelled", 60)
        # Slurm writes its state a few seconds later, so a controller that is killed may forget.
        saved = slurm.directory / "state" / "job_state"
        written = time.time()
        await_true(lambda: saved.exists() and saved.stat().st_mtime > written, "Slurm to save its state", 60)
        slurm.kill_controller()
        said = m.await_trouble(True)
        require("Unable to contact" in said or "not answered" in said, f"said: {said}")
        slurm.start_controller()
        m.await_trouble(False)
        require(m.await_share("kept", "running")["native"] == native, "the share is another one")
        require(m.await_share("late", "running")["native"] == first, "the share is another one")
        require(len(jobs_of(slurm, PREFIX + "kept")) == 1, "the share was doubled")
    return "a controller that stops, dies and returns: each said once, no share lost or doubled"


@needs_slurm
def node_lost(build):
    """slurmd dies without its processes: the share is lost, not gone, until the node is back."""
    with Slurm(settings={"SlurmdTimeout": 5, "MessageTimeout": 5}) as slurm, Manager(build, slurm) as m:
        m.await_listing(lambda listing: len(listing["nodes"]) == 4, "all nodes")
        pid = slurm.directory / "pid"
        m.submit("zombie", "n0", ["/bin/sh", "-c", "echo $$ >pid; exec sleep 1000"])
        m.await_share("zombie", "running")
        await_true(lambda: pid.exists() and pid.read_text().strip(), "the share to start", 30)
        slurm.kill_node("n0")
        slurm.run("scontrol", "update", "node=n0", "state=down", "reason=gone")
        share = m.await_share("zombie", "lost")
        require("node failed" in share["why"], f"the reason is {share}")
        m.await_listing(lambda listing: listing["nodes"]["n0"]["state"] == "down", "the node to be down")
        os.kill(int(pid.read_text()), 0)  # it lives
        slurm.start_node("n0")
        slurm.run("scontrol", "update", "node=n0", "state=resume", check=False)
        m.await_share("zombie", "gone")

        def has_ended():
            try:
                os.kill(int(pid.read_text()), 0)
            except ProcessLookupError:
                return True
            return False
        require(has_ended(), "the share is gone, but its process lives")
    return "a share on a node without slurmd is lost until the node is back, then its process has ended"


@needs_slurm
def preempted(build):
    """A stranger's job of a higher priority takes the GPUs of shares; a share reaches its time limit."""
    with Slurm(settings={"PreemptType": "preempt/partition_prio", "PreemptMode": "CANCEL"},
               partitions=["high PriorityTier=10 PreemptMode=OFF"]) as slurm, Manager(build, slurm) as m:
        m.await_listing(lambda listing: len(listing["nodes"]) == 4, "all nodes")
        m.submit("whole", "n0", ["/bin/sleep", "1000"], gpus=4)
        m.await_share("whole", "running")
        m.submit("limited", "n1", ["/bin/sleep", "1000"])
        m.await_share("limited", "running")
        stranger = slurm.run("sbatch", "--parsable", "-p", "high", "-w", "n0", "--gres=gpu:2", "--mem=100",
                             "-o", "/dev/null", "--wrap", "sleep 1000").strip()
        share = m.await_share("whole", "gone")
        require("preempted" in share["why"], f"the reason is {share}")
        m.await_listing(lambda _: m.others("n0") == 2, "the stranger's GPUs")
        require(slurm.run("squeue", "-h", "-j", stranger, "-o", "%T").strip() == "RUNNING", "the stranger does not run")
        if "EVERY_COMBINATION" not in os.environ:
            return "a share that is preempted is gone, with the reason"
        # Slurm looks at time limits every half minute.
        slurm.run("scontrol", "update", f"JobId={m.listing['shares'][PREFIX + 'limited']['native']}", "EndTime=now+1")
        share = m.await_share("limited", "gone")
        require("time limit" in share["why"], f"the reason is {share}")
        return "shares that are preempted or reach their time limit are gone, with the reason"


# --- rubato up --engine slurm ------------------------------------------------------------------------

JOB_USER, STRANGER = "nobody", "daemon"  # two users that every machine has
# What stays the same in Slurm's record of a job that nobody touches.
UNTOUCHED = ("UserId", "NodeList", "StartTime", "TimeLimit", "Restarts", "SuspendTime")


def acting(name):
    """This user, as root. Otherwise our own, because only root can act as others."""
    return pwd.getpwnam(name) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def as_user(user):
    """How subprocess starts a program as this user."""
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}


class OnSlurm(Cluster):
    """A daemon whose jobs run in shares on a private Slurm."""

    def __init__(self, build, slurm, policy, *flags):
        super().__init__(build, policy)
        self.slurm = slurm
        self.flags = ["--engine", "slurm", "--measuring", "2", *flags]
        self.env["SLURM_CONF"] = str(slurm.conf)
        self.strangers = {}  # number -> Slurm's record when the job had started

    def submission(self, name, *flags, **work):
        """Workers have the environment of their share, not that of the daemon."""
        return super().submission(name, *(word for one in QUIET_THREADS.items() for word in ("--env", "=".join(one))),
                                  *flags, **work)

    def open_to_others(self):
        """Before the daemon starts: other users can reach it, and have copies of the programs, because they may not be
        able to enter the build directory."""
        self.directory.chmod(0o711)
        copies = self.directory / "build"
        (copies / "examples").mkdir(parents=True)
        for program in ("rubato", "examples/mlp"):
            shutil.copy(self.build / program, copies / program)
        self.build = copies
        self.rubato = str(copies / "rubato")

    def submit_as(self, user, name, *flags, **work):
        """As submit(), by this user, in a private directory of the user."""
        home = self.directory / f"of-{user.pw_name}"
        home.mkdir(mode=0o700, exist_ok=True)
        os.chown(home, user.pw_uid, user.pw_gid)
        done = subprocess.run([self.rubato, *self.submission(name, *flags, **work)], env=self.env, capture_output=True,
                              text=True, cwd=home, timeout=PATIENCE, **as_user(user))
        require(done.returncode == 0, f"{user.pw_name} submits: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def shares(self, *states):
        """Slurm's jobs that are shares of ours, of all states by default: number, state, name, node."""
        rows = self.slurm.run("squeue", "-h", "-t", "all", "-o", "%i|%T|%j|%N").splitlines()
        rows = [row.split("|") for row in rows]
        return [row for row in rows if row[2].startswith("rub") and (not states or row[1] in states)]

    def owners(self):
        """The users of all shares, as Slurm has them."""
        rows = [row.split("|") for row in self.slurm.run("squeue", "-h", "-t", "all", "-o", "%u|%j").splitlines()]
        return {row[0] for row in rows if row[1].startswith("rub")}

    def await_running(self, count):
        await_true(lambda: len(self.shares("RUNNING")) == count, f"{count} shares to run")
        return self.shares("RUNNING")

    def none_twice(self):
        """No share was submitted twice."""
        names = [row[2] for row in self.shares()]
        require(names and len(set(names)) == len(names), f"twice: {sorted(names)}")
        return len(names)

    def none_left(self):
        await_true(lambda: not self.shares("RUNNING", "PENDING", "COMPLETING", "SUSPENDED"), "all shares to end")

    def cancel_and_check(self, *jobs):
        """Ends the last jobs and the daemon. No share was made twice, none is left, and the journal replays. Returns how
        many shares there were."""
        shares = self.none_twice()
        self.run("cancel", *jobs)
        self.none_left()
        self.stop()
        self.replays()
        return shares

    def get(self, path):
        address, token = ((self.state / name).read_text().strip() for name in ("api.address", "admin.token"))
        request = urllib.request.Request(f"http://{address}{path}", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def problems(self):
        """What is wrong, as text."""
        return self.run("health", "--json", check=False).stdout

    def stranger(self, *flags):
        """A job of somebody else, which runs until end_strangers(). Returns its number once it runs."""
        user = acting(STRANGER)
        number = self.slurm.run("sbatch", "--parsable", "--chdir=/", "--mem=100", "-o", "/dev/null", *flags, "--wrap",
                                f"until test -e {self.slurm.directory}/over-$SLURM_JOB_ID; do sleep 0.2; done",
                                **as_user(user)).strip()
        await_true(lambda: self.state_of(number) == "RUNNING", "the stranger's job to run")
        record = self.record(number)
        require(record["UserId"] == f"{user.pw_name}({user.pw_uid})", f"the stranger is {record['UserId']}")
        self.strangers[number] = record
        return number

    def end_strangers(self, *numbers):
        """The jobs of others come to their end. Nobody has moved, stopped, suspended or restarted them before."""
        for number in numbers:
            (self.slurm.directory / f"over-{number}").touch()
        for number in numbers:
            await_true(lambda number=number: self.state_of(number) not in ("RUNNING", "COMPLETING"),
                       f"the stranger's job {number} to end")
            before, now = self.strangers[number], self.record(number)
            touched = {key: (before[key], now[key]) for key in UNTOUCHED if before[key] != now[key]}
            require(not touched, f"the stranger's job {number} was touched: {touched}")
            require((now["JobState"], now["ExitCode"]) == ("COMPLETED", "0:0"),
                    f"the stranger's job {number} did not come to its end: {now['JobState']} {now['ExitCode']}")

    def state_of(self, number):
        return self.slurm.run("squeue", "-h", "-t", "all", "-j", number, "-o", "%T").strip()

    def record(self, number):
        """What Slurm has about a job."""
        words = self.slurm.run("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", maxsplit=1) for word in words if "=" in word)


def by_completions(cluster):
    """The seconds of each share in jobcomp's file. Those that never ran have none."""
    found = {}
    for line in (cluster.slurm.directory / "completed.txt").read_text().splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        if fields["Name"].startswith("rub") and fields["NodeCnt"] != "0":
            times = [time.mktime(time.strptime(fields[key], "%Y-%m-%dT%H:%M:%S")) for key in ("StartTime", "EndTime")]
            found[fields["Name"]] = times[1] - times[0]
    return found


def by_database(cluster):
    """The seconds of each share in slurmdbd, all of which have one GPU. Those that never ran have none."""
    found = {}
    for line in cluster.slurm.run("sacct", "-X", "-D", "-n", "-P", "-S", "now-1days", "--format=JobName,State,ElapsedRaw,"
                                  "AllocTRES").splitlines():
        name, state, seconds, resources = line.split("|")
        if not name.startswith("rub") or not resources:
            continue
        require("gres/gpu=1" in resources.split(","), f"{name} has {resources}")
        if state not in ("RUNNING", "PENDING"):
            found[name] = float(seconds)
    return found


def by_shares(cluster):
    """The seconds of each share by its own clock."""
    found = {}
    for log in cluster.state.glob("jobs/*/shares/*.log"):
        said = re.findall(r"ends after ([0-9.]+) s", log.read_text())
        require(len(said) == 1, f"{log.name}: {log.read_text()!r}")
        found[log.stem] = float(said[0])
    return found


def accounted(cluster):
    """Compares the records of slurmdbd and of jobcomp about all shares with those of the shares and of the daemon."""
    def recorded(records):
        found = records(cluster)
        return found if len(found) == len([row for row in cluster.shares() if row[3]]) else None
    own = by_shares(cluster)
    used, spare = sum(own.values()), len(own) + 0.01 * sum(own.values())
    # The daemon counts from the decision until Slurm says that the GPU is free.
    counted = 3600 * sum(user["gpu_hours"] for user in cluster.get("/v1/use")["users"])
    charged, widest = {}, 0.0
    for name, records in (("slurmdbd", by_database), ("jobcomp", by_completions)):
        slurm = await_true(functools.partial(recorded, records), f"the records of all shares in {name}", 60)
        require(slurm.keys() == own.keys(), f"{name} has {sorted(slurm)}, the shares are {sorted(own)}")
        charged[name] = sum(slurm.values())
        widest = max(widest, *(abs(slurm[share] - own[share]) for share in own))
        require(abs(charged[name] - used) <= spare, f"{name} has {charged[name]} GPU-seconds, the shares {used}")
        require(counted >= charged[name] - spare, f"{name} has {charged[name]} GPU-seconds, the daemon {counted}")
    return (f"{len(own)} shares; GPU-seconds: {charged['slurmdbd']:.0f} in slurmdbd, {charged['jobcomp']:.0f} in jobcomp, "
            f"{used:.1f} by the shares (at most {widest:.1f} s apart for one share), {counted:.1f} by the daemon")


ACCOUNTS = {"accounts": ["add account lab description=lab organization=lab GrpTRES=gres/gpu=2",
                         "add account others description=others organization=others",
                         "add user {user} account=lab", "add user {user} account=others",
                         "add user {stranger} account=others",
                         "add qos urgent Priority=100 Preempt=normal",
                         "modify user {user} set QOS=normal,urgent", "modify user {stranger} set QOS=normal,urgent"],
            "settings": {"PreemptType": "preempt/qos", "PreemptMode": "CANCEL", "MinJobAge": 3600}}


def with_accounts():
    """A Slurm with an account that may have 2 GPUs, and a quality of service that preempts others."""
    users = {"user": pwd.getpwuid(os.geteuid()).pw_name, "stranger": acting(STRANGER).pw_name}
    commands = [command.format(**users) for command in ACCOUNTS["accounts"]]
    # Both may be the same user, and sacctmgr refuses to add one twice.
    return {**ACCOUNTS, "accounts": list(dict.fromkeys(commands))}


def simulate_history(cluster):
    """What docs/slurm.md says an administrator can do before anything is installed."""
    history = cluster.directory / "history.txt"
    history.write_text(cluster.slurm.run("sacct", "-a", "-X", "-P", "-S", "now-1days", "--format=JobID,User,State,Submit,"
                                         "Start,End,ElapsedRaw,ReqTRES,AllocTRES"))
    said = cluster.run("simulate", "--trace", history, "--cluster", "4x4", "--policy",
                       "fifo-backfill,tiresias-las,afs-l,rubato", "--html", cluster.directory / "history.html").stdout
    require("afs-l" in said and (cluster.directory / "history.html").stat().st_size > 0, f"the simulation says: {said}")


@needs(*ACCOUNTING_PROGRAMS)
def deadlines(build):
    """Three elastic jobs with deadlines: promised and kept, resized without a restart, accounted for by slurmdbd."""
    with Slurm(**with_accounts()) as slurm, OnSlurm(build, slurm, "elasticflow", "--account", "others") as cluster:
        cluster.up()
        nodes = cluster.ask("nodes")["nodes"]
        require([node["name"] for node in nodes] == ["n0", "n1", "n2", "n3"], f"{nodes}")
        flags = ("--profile", "dated", "--deadline", "+30m")
        first = cluster.submit("job0", "--gpus", "1:2", *flags, steps=cluster.steps(8))["id"]
        cluster.await_state(first, "PENDING", "RUNNING", "RESIZING")
        ids = [first]
        for i in (1, 2):
            known = cluster.submit(f"job{i}", "--gpus", "1:2", *flags, steps=cluster.steps(2))
            require(known["verdict"]["text"].startswith("admitted, "), f"{known}")
            ids.append(known["id"])
        for gpus in (2, 1, 2):
            cluster.resize(first, gpus)
            cluster.await_training(first, lambda count, gpus=gpus: count == gpus)
        ends = {job: ended_well(cluster, job) for job in ids}
        resizes = sum(live_resizes(cluster, job, ends[job]) for job in ids)
        require(all(end["promised"] for end in ends.values()), f"not promised: {ends}")
        require(lived_through_changes(cluster.events(first)), f"no worker of job {first} lived through a resize")
        cluster.none_left()
        said = accounted(cluster)
        simulate_history(cluster)
        cluster.none_twice()
        cluster.stop()
        cluster.replays()
        return f"{resizes} live resizes; {said}"


PREEMPTING = {"settings": {"PreemptType": "preempt/partition_prio", "PreemptMode": "CANCEL"},
              "partitions": ["high PriorityTier=10 PreemptMode=OFF"]}


def uids_of(pid):
    """The real, effective, saved and file system's user of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {int(uid) for uid in re.search(r"^Uid:(.*)$", status, re.MULTILINE)[1].split()}


def uids_of_all(*words):
    """The users of each process whose command begins with these words."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if command[:len(words)] == list(words):
                found.append(uids_of(entry.name))
    return found


def runs_as(cluster, job, user, shares):
    """All shares are this user's jobs in Slurm, and the processes of the job are this user's."""
    require(cluster.owners() == {user.pw_name}, f"the shares are jobs of {cluster.owners()}, not of {user.pw_name}")
    processes = {"master": [uids_of(cluster.master(job))],
                 "shares": uids_of_all(os.path.realpath(cluster.rubato), "share"),
                 "workers": uids_of_all(str(cluster.build / "examples" / "mlp"))}
    require(all(uids == {user.pw_uid} for found in processes.values() for uids in found),
            f"not all processes are {user.pw_name}'s: {processes}")
    require(len(processes["shares"]) >= shares and len(processes["workers"]) >= shares,
            f"there are fewer than {shares} of each: {processes}")


@needs_slurm
def strangers(build):
    """Others take GPUs, also from a share: the job shrinks around them and grows again, and their jobs come to their end.
    As root, the others, the job's user and the daemon are three users."""
    user = acting(JOB_USER)
    with Slurm(nodes=2, gpus=2, **PREEMPTING) as slurm, OnSlurm(build, slurm, "equal") as cluster:
        free = cluster.stranger("-p", "high", "-w", "n1", "--gres=gpu:1")
        cluster.open_to_others()
        cluster.up()
        job = cluster.submit_as(user, "elastic", "--gpus", "1:4", steps=cluster.steps(600))["id"]
        cluster.await_training(job, lambda count: count == 3)
        runs_as(cluster, job, user, 3)
        require("not Rubato's" in json.dumps(cluster.ask("nodes")), "nobody says who has the GPU")
        # It takes a GPU that a worker has.
        taken = cluster.stranger("-p", "high", "-w", "n0", "--gres=gpu:1")
        cluster.await_training(job, lambda count: count == 2)
        cluster.await_progress([job])
        require([cluster.state_of(one) for one in (free, taken)] == ["RUNNING"] * 2, "a stranger's job was touched")
        cluster.end_strangers(free, taken)
        cluster.await_training(job, lambda count: count == 4)
        require(cluster.going_on(job)["restarts"] == 0 and cluster.going_on(job)["failures"] == 0, "it was restarted")
        runs_as(cluster, job, user, 4)
        cluster.cancel_and_check(job)
        return f"as {user.pw_name}, around jobs of {acting(STRANGER).pw_name}; workers: " + \
            " ".join(map(str, counts_seen(cluster, job)))


def await_saved(slurm):
    """Waits until Slurm has saved what it knows now. It saves a few seconds after a change, and a controller that is
    killed before forgets. A job that is held, and takes nothing, is the last change: what has its name has all."""
    mark = f"mark-{time.monotonic_ns()}"
    number = slurm.run("sbatch", "--parsable", "--hold", "-o", "/dev/null", "-J", mark, "--wrap", "true").strip()
    saved = slurm.directory / "state" / "job_state"
    await_true(lambda: saved.exists() and mark.encode() in saved.read_bytes(), "Slurm to save its state", 60)
    slurm.run("scancel", number)


@needs_slurm
def outages(build):
    """slurmctld dies or stops, and the daemon dies, while a job trains: it goes on, no share is made twice, and the next
    daemon cancels shares that nobody wants."""
    with Slurm(nodes=2, gpus=3) as slurm, OnSlurm(build, slurm, "equal") as cluster:
        return live_through_outages(slurm, cluster)


@needs(*REST_PROGRAMS)
def rest_outages(build):
    """The same, and slurmrestd dies, too: Slurm is asked through it alone."""
    with Slurm(nodes=2, gpus=3) as slurm, OnSlurm(build, slurm, "equal", "--slurm-rest", slurm.start_rest()) as cluster:
        return live_through_outages(slurm, cluster)


def await_trouble(cluster, there):
    """Waits until the daemon says that Slurm does not answer, or no longer says it."""
    await_true(lambda: ("Slurm does not answer" in cluster.problems()) == there,
               "the trouble to be told" if there else "the trouble to be over")


def stop_controller(slurm, cluster, job):
    """slurmctld answers nobody for a while. What was asked for meanwhile is there once. Returns the shares."""
    before = cluster.await_running(3)
    slurm.controller.send_signal(signal.SIGSTOP)
    cluster.resize(job, "4")
    await_trouble(cluster, True)
    cluster.await_progress([job])
    slurm.controller.send_signal(signal.SIGCONT)
    await_trouble(cluster, False)
    cluster.await_training(job, lambda count: count == 4)
    now = cluster.await_running(4)
    require(all(share in now for share in before), f"shares were replaced: {before} {now}")
    no_gpu_twice(cluster)
    cluster.none_twice()
    return now


def submit_unwanted(slurm, cluster):
    """Shares as a daemon leaves them if a submission arrives after its death: one of the job, on a GPU that it does not
    want, and one of a job that no daemon knows. Returns their numbers once they run."""
    used = {}
    for _, _, name, node in cluster.shares("RUNNING"):
        identity, job, generation, place, gpus, _ = name.split("-")
        used[node, place] = used.get((node, place), 0) | int(gpus, 16)
    free = [(node, place, 1 << gpu) for (node, place), gpus in used.items() for gpu in range(slurm.gpus[node])
            if not gpus >> gpu & 1]
    require(len(free) == 2, f"free are {free}")
    numbers = []
    for owner, (node, place, gpu) in zip((int(job, 16), int(job, 16) + 1), free):
        numbers.append(slurm.run("sbatch", "--parsable", "-J", f"{identity}-{owner:x}-{generation}-{place}-{gpu:x}-late",
                                 "-w", node, "--gres=gpu:1", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 1000").strip())
    await_true(lambda: all(cluster.state_of(one) == "RUNNING" for one in numbers), "the unwanted shares to run")
    return numbers


def live_through_outages(slurm, cluster):
    cluster.up()
    job = cluster.submit("elastic", "--gpus", "2", steps=cluster.steps(600))["id"]
    cluster.await_training(job, lambda count: count == 2)
    await_saved(slurm)
    before = sorted(cluster.await_running(2))
    slurm.kill_controller()
    await_trouble(cluster, True)
    cluster.await_progress([job])
    # What is wanted now waits for the controller, also beyond the daemon's death.
    cluster.resize(job, "3")
    cluster.kill()
    cluster.up(first=False)
    cluster.await_progress([job])
    slurm.start_controller()
    await_trouble(cluster, False)
    cluster.await_training(job, lambda count: count == 3)
    now = cluster.await_running(3)
    require(all(share in now for share in before), f"shares were replaced: {before} {now}")
    cluster.none_twice()
    now = stop_controller(slurm, cluster, job)
    if slurm.rest:
        slurm.rest.kill()
        slurm.rest.wait()
        await_true(lambda: "slurmrestd" in cluster.problems(), "the trouble to be told")
        cluster.await_progress([job])
        slurm.start_rest()
        await_true(lambda: "slurmrestd" not in cluster.problems(), "the trouble to be over")
    # The daemon alone. The next one cancels what its jobs do not want, and nothing of another state directory.
    cluster.kill()
    step = cluster.step(job)
    await_true(lambda: cluster.step(job) > step, "training to go on without the daemon")
    unwanted = submit_unwanted(slurm, cluster)
    other = cluster.stranger("-J", "rub000000000-1-1-0-1-late")
    cluster.up(first=False)
    cluster.await_progress([job])
    await_true(lambda: all(cluster.state_of(one) == "CANCELLED" for one in unwanted), "unwanted shares to be cancelled")
    cluster.end_strangers(other)
    require(sorted(cluster.await_running(4)) == sorted(now), "shares were replaced")
    ended = cluster.going_on(job)
    require(ended["restarts"] == 0 and ended["failures"] == 0, f"it was restarted: {ended}")
    shares = cluster.cancel_and_check(job)
    return f"trained on while the controller was dead or stopped, and the daemon dead; {shares} shares, none twice; " \
        f"{len(unwanted)} that nobody wanted were cancelled"


@needs_slurm
def cancelled(build):
    """Somebody cancels shares, drains a node and kills a slurmd: the job goes on elsewhere."""
    settings = {"SlurmdTimeout": 5, "MessageTimeout": 5}
    with Slurm(nodes=3, gpus=2, settings=settings) as slurm, OnSlurm(build, slurm, "equal") as cluster:
        cluster.up()
        job = cluster.submit("elastic", "--gpus", "2", steps=cluster.steps(600))["id"]
        cluster.await_training(job, lambda count: count == 2)
        victim = cluster.await_running(2)[0]
        slurm.run("scancel", victim[0])
        await_true(lambda: victim not in cluster.shares("RUNNING"), "the share to end")
        cluster.await_running(2)
        cluster.await_training(job, lambda count: count == 2)
        # Drained: the job leaves the node, and the reason is shown.
        drained = cluster.await_running(2)[0][3]
        slurm.run("scontrol", "update", f"node={drained}", "state=drain", "reason=bad disk")
        await_true(lambda: "bad disk" in cluster.run("nodes").stdout, "the reason why the node is drained")
        await_true(lambda: drained not in {row[3] for row in cluster.shares("RUNNING", "COMPLETING")},
                   f"the job to leave {drained}")
        cluster.await_running(2)
        cluster.await_training(job, lambda count: count == 2)
        slurm.run("scontrol", "update", f"node={drained}", "state=resume")
        # A slurmd dies: its processes live, so the node is unknown. Its shares are lost until it is back.
        node = cluster.shares("RUNNING")[0][3]
        slurm.kill_node(node)
        await_true(lambda: {one["name"]: one for one in cluster.ask("nodes")["nodes"]}[node]["state"] == "unknown",
                   f"{node} to be unknown")
        cluster.await_progress([job])
        slurm.start_node(node)
        await_true(lambda: {one["name"]: one for one in cluster.ask("nodes")["nodes"]}[node]["state"] == "up",
                   f"{node} to be up")
        cluster.await_training(job, lambda count: count == 2)
        require(cluster.going_on(job)["failures"] == 0, "a fault of Slurm was counted as one of the job")
        shares = cluster.cancel_and_check(job)
        return f"{shares} shares, none twice"


@needs_slurm
def limits(build):
    """Refused and waiting shares have a reason; a worker moves before its share's time limit."""
    with Slurm(nodes=2, gpus=2) as slurm, OnSlurm(build, slurm, "equal") as cluster:
        cluster.up()
        job = cluster.submit("first", "--gpus", "2", steps=cluster.steps(600))["id"]
        cluster.await_training(job, lambda count: count == 2)
        share = cluster.await_running(2)[0]
        # Less than a minute is left, so another share takes its place while the other one trains.
        slurm.run("scontrol", "update", f"JobId={share[0]}", "TimeLimit=1")
        await_true(lambda: cluster.state_of(share[0]) not in ("RUNNING", "COMPLETING"), "the worker to leave")
        require(cluster.state_of(share[0]) == "COMPLETED", f"the share is {cluster.state_of(share[0])}")
        cluster.await_running(2)
        cluster.await_training(job, lambda count: count == 2)
        moved = cluster.going_on(job)
        require(moved["restarts"] == 0 and moved["failures"] == 0, f"it was restarted: {moved}")
        # Refused, as by an account's limit.
        slurm.run("scontrol", "update", "PartitionName=all", "State=DRAIN")
        other = cluster.submit("other", "--gpus", "2", steps=20)["id"]

        def explained(words):
            return any(words in sentence for sentence in cluster.ask("explain", other)["sentences"])
        await_true(lambda: explained("partition"), "the reason why the job waits")
        cluster.await_progress([job])
        # Taken, but not started.
        slurm.run("scontrol", "update", "PartitionName=all", "State=DOWN")
        await_true(lambda: explained("PartitionDown"), "the reason why its shares wait")
        cluster.cancel_and_check(job, other)
        return "moved before the time limit; refused and waiting shares were explained"


def no_secret_in(cluster):
    """Nothing of the files that only a job's user can read is in what Slurm shows and stores."""
    secrets = set()
    for path in cluster.state.glob("jobs/*/shares/*.json"):
        require(path.stat().st_mode & 0o077 == 0, f"{path} can be read by others")
        secrets |= {word for word in re.findall(r"[0-9A-Za-z+/=_-]{16,}", path.read_text())
                    if not word.startswith("rub") and word not in str(path) and "/" not in word}
    require(secrets, "no share has a secret")
    numbers = ",".join(row[0] for row in cluster.shares())
    shown = [cluster.slurm.run("scontrol", "show", "job", "-d"), cluster.slurm.run("squeue", "-t", "all", "-o", "%all"),
             cluster.slurm.run("sacct", "-P", "-j", numbers, "-o", "all"),
             cluster.slurm.run("sacct", "-j", numbers, "--batch-script"),
             cluster.slurm.run("sacct", "-j", numbers, "--env-vars")]
    require("exec \"$@\"" in shown[3] and "PATH=" in shown[4], f"Slurm has not stored script and environment: {shown[3:]}")
    for secret in secrets:
        require(not any(secret in text for text in shown), "Slurm has a secret of a share")
    return len(secrets)


@needs(*ACCOUNTING_PROGRAMS)
def accounts(build):
    """Limits of an account, a higher quality of service, and slurmdbd's records, with a real slurmdbd."""
    with Slurm(nodes=2, gpus=2, **with_accounts()) as slurm, OnSlurm(build, slurm, "equal", "--account", "lab") as cluster:
        cluster.up()

        def explained(job, words):
            return any(words in sentence for sentence in cluster.ask("explain", job)["sentences"])
        job = cluster.submit("elastic", "--gpus", "1:4", steps=cluster.steps(600))["id"]
        # The account may have 2 GPUs: Slurm takes the shares, but lets them wait.
        await_true(lambda: explained(job, "AssocGrpGRES"), "the account's limit to be explained", 120)
        require("AssocGrp" not in cluster.run("nodes").stdout, "GPUs are kept from others because of one account")
        cluster.await_training(job, lambda count: count == 2)
        # A job that needs more waits, with the reason. It is long: while the first is measured with one GPU, the other
        # may begin with one, and must not end before it has waited for its second.
        other = cluster.submit("other", "--gpus", "2", steps=cluster.steps(600))["id"]
        await_true(lambda: explained(other, "AssocGrpGRES"), "the reason why the other job waits", 120)
        cluster.run("cancel", other)
        # A size is asked for, because whether more workers are faster depends on what else the machine does.
        slurm.run("sacctmgr", "-i", "modify", "account", "lab", "set", "GrpTRES=gres/gpu=4")
        cluster.resize(job, "4")
        cluster.await_training(job, lambda count: count == 4)
        # Refused at once.
        cluster.resize(job, "2")
        cluster.await_training(job, lambda count: count == 2)
        going = cluster.going_on(job)
        require(going["restarts"] == 0 and going["failures"] == 0, f"it was restarted: {going}")
        slurm.run("sacctmgr", "-i", "modify", "account", "lab", "set", "GrpSubmitJobs=2")
        again = cluster.submit("again", "--gpus", "1", "--no-elastic", steps=20)["id"]
        await_true(lambda: explained(again, "accounting/QOS policy"), "the refusal to be explained", 120)
        cluster.run("cancel", again)
        slurm.run("sacctmgr", "-i", "modify", "account", "lab", "set", "GrpSubmitJobs=-1")
        # Preempted by a higher quality of service: the workers go elsewhere.
        node = cluster.await_running(2)[0][3]
        taken = cluster.stranger("--account", "others", "--qos", "urgent", "-w", node, "--gres=gpu:2")
        await_true(lambda: cluster.shares("PREEMPTED"), "shares to be preempted")
        cluster.await_training(job, lambda count: count == 2)
        cluster.end_strangers(taken)
        require(cluster.going_on(job)["failures"] == 0, "a preemption was counted as a failure of the job")
        secrets = no_secret_in(cluster)
        cluster.none_twice()
        cluster.run("cancel", job)
        cluster.none_left()
        said = accounted(cluster)
        cluster.stop()
        cluster.replays()
        return f"limits explained, none of {secrets} secrets in Slurm; {said}"


@needs_slurm
def many_types(build):
    """Nodes with GPUs of two types: a job's workers have one type, and a stranger's GPUs are counted by type."""
    types = ("a100", "a100", "v100", "v100")
    with Slurm(nodes=2, gpus=4, types=types) as slurm, OnSlurm(build, slurm, "fifo") as cluster:
        cluster.up()
        names = [node["name"] for node in cluster.ask("nodes")["nodes"]]
        require(names == ["n0/a100", "n0/v100", "n1/a100", "n1/v100"], f"{names}")
        other = cluster.stranger("-w", "n1", "--gres=gpu:a100:1")
        jobs = [cluster.submit(name, "--gpus", "2", steps=cluster.steps(600))["id"] for name in ("one", "two", "three")]
        for job in jobs:
            cluster.await_training(job, lambda count: count == 2)
        rows = slurm.run("squeue", "-h", "-t", "R", "-o", "%j|%b|%N").splitlines()
        of_job = {}
        for row in rows:
            name, gpus, _ = row.split("|")
            if name.startswith("rub"):
                of_job.setdefault(name.split("-")[1], set()).add(gpus.split(":")[-2])
        require(len(of_job) == 3 and all(len(kinds) == 1 for kinds in of_job.values()), f"types: {rows}")
        require(sorted(map(min, of_job.values())) == ["a100", "v100", "v100"], f"types: {rows}")
        cluster.end_strangers(other)
        cluster.cancel_and_check(*jobs)
        return "each job has GPUs of one type"


@needs_slurm
def short_limits(build):
    """A partition whose time limit is too short is refused with a sentence; --time-limit asks for a longer one."""
    with Slurm(nodes=2, gpus=2, default="all Default=YES DefaultTime=2 MaxTime=60") as slurm, \
            OnSlurm(build, slurm, "equal") as cluster:
        done = cluster.run("up", *cluster.flags, check=False)
        require(done.returncode == 2 and "time limit of 120 s" in done.stderr, f"{done.returncode}: {done.stderr}")
        cluster.flags += ["--time-limit", "1h"]
        cluster.up()
        job = cluster.submit("job", "--gpus", "1", steps=cluster.steps(600))["id"]
        cluster.await_training(job, lambda count: count == 1)
        limit = slurm.run("squeue", "-h", "-j", cluster.await_running(1)[0][0], "-o", "%l").strip()
        require(limit == "1:00:00", f"the limit is {limit}")
        # Closed for a while, with a job that wants more; then used soon again.
        slurm.run("scontrol", "update", "PartitionName=all", "State=DRAIN")
        cluster.resize(job, "4")
        await_true(lambda: "partition" in json.dumps(cluster.ask("nodes")), "the refusal to be told", 60)
        slurm.run("scontrol", "update", "PartitionName=all", "State=UP")
        began = time.monotonic()
        cluster.await_training(job, lambda count: count == 4)
        took = time.monotonic() - began
        cluster.cancel_and_check(job)
        return f"too short a limit was refused; a partition that was opened was used after {took:.0f} s"


def no_gpu_twice(cluster):
    """No two shares that run have the same GPU, by their names: journal, job, generation, node, GPUs."""
    taken = {}
    for _, _, name, _ in cluster.shares("RUNNING"):
        node, gpus = name.split("-")[3:5]
        require(taken.get(node, 0) & int(gpus, 16) == 0, f"a GPU was given twice: {cluster.shares()}")
        taken[node] = taken.get(node, 0) | int(gpus, 16)


@needs_slurm
def grown(build):
    """Nodes get GPUs, lose some and join while a job trains: it uses what there is, and Rubato says what there is."""
    with Slurm(nodes=2, gpus=2) as slurm, OnSlurm(build, slurm, "equal") as cluster:
        cluster.up()

        def nodes():
            return {node["name"]: node["gpus"] for node in cluster.ask("nodes")["nodes"]}

        def all_usable(count):
            now = cluster.ask("nodes")["nodes"]
            return len(now) == count and all(node["state"] == "up" and not node.get("others") for node in now)

        # A size is asked for, because whether more workers are faster depends on what else the machine does.
        def go_to(count):
            cluster.resize(job, str(count))
            cluster.await_training(job, lambda workers: workers == count)
            no_gpu_twice(cluster)
        job = cluster.submit("elastic", "--gpus", "2", steps=cluster.steps(900))["id"]
        go_to(4)
        go_to(2)
        # As an administrator should do it: no job is on the node meanwhile.
        slurm.run("scontrol", "update", "node=n1", "state=drain", "reason=more GPUs")
        await_true(lambda: slurm.states().get("n1") == "drained", "n1 to be drained")
        slurm.set_gpus("n1", 4)
        await_true(lambda: slurm.run("scontrol", "update", "node=n1", "state=resume", check=False) is not None
                   and slurm.states().get("n1") in ("idle", "mixed"), "n1 to be back")
        await_true(lambda: all_usable(3), "the GPUs to join")
        go_to(6)
        require(nodes() == {"n0": 2, "n1": 2, "n1+1": 2}, f"{nodes()}")
        require("node n1+1 has joined: 2 GPUs" in cluster.run("history").stdout, "nobody says that GPUs have joined")
        slurm.set_gpus("n2", 2)
        await_true(lambda: all_usable(4), "the node to join")
        go_to(8)
        # Slurm ends the jobs of a node whose GPUs change. A job that may have fewer goes on with the others.
        cluster.resize(job, "1:8")
        slurm.set_gpus("n1", 3)
        await_true(lambda: "n1 has only 3 GPUs now" in cluster.run("nodes").stdout, "the missing GPU to be told")
        cluster.await_progress([job])
        # The next daemon has the same nodes.
        cluster.kill()
        cluster.up(first=False)
        cluster.await_progress([job])
        slurm.set_gpus("n1", 4)
        await_true(lambda: all_usable(4), "the GPU to be back")
        cluster.await_progress([job])
        go_to(8)
        require(nodes() == {"n0": 2, "n1": 2, "n1+1": 2, "n2": 2}, f"{nodes()}")
        # Of a fixed size, it stops and starts again if Slurm has one of its GPUs too late.
        going = cluster.going_on(job)
        require(going["failures"] == 0, f"a change of Slurm's was counted as a failure of the job: {going}")
        cluster.cancel_and_check(job)
        return f"workers: {' '.join(map(str, counts_seen(cluster, job)))}; {going['restarts']} pauses"


# The last ones take long.
SCENARIOS = [manager, rest_manager, controller_killed, node_lost, preempted, deadlines, strangers, outages]
if "EVERY_COMBINATION" in os.environ:
    SCENARIOS += [cancelled, limits, rest_outages, accounts, many_types, short_limits, grown]

if __name__ == "__main__":
    main(SCENARIOS, "slurm")
