#!/usr/bin/env python3
"""The live cluster end to end: real daemons, agents and training on 2 virtual nodes of 4 slots.

    e2e/live.py BUILD [SCENARIO...]     all scenarios by default; exit 1 if anything does not hold
    e2e/live.py --list                  the names of the scenarios

Each scenario has its own state directory and leaves no process behind. If one fails, its logs are
kept. No result depends on the speed of the machine: the scenarios wait for events, within a limit,
and the work of a job is what this machine does in a given number of seconds.
"""

import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback

PATIENCE = float(os.environ.get("PATIENCE", "240"))  # seconds to wait for an event
OUTAGES = int(os.environ.get("OUTAGES", "4"))  # of the scenario killed_daemon
# Seconds for a scenario, about six times what it needs. Each outage more takes some.
LIMIT = float(os.environ.get("LIMIT", 300 + 30 * max(0, OUTAGES - 4)))
HERE = pathlib.Path(__file__).resolve().parent
# Trainers in Python need numpy, which Debian's own python3 has.
PYTHON = sys.executable if importlib.util.find_spec("numpy") else "/usr/bin/python3"
DONE = {"COMPLETED", "FAILED", "CANCELLED", "REFUSED"}


class Failure(Exception):
    pass


class TooSoon(Failure):
    """A job ended before the scenario did, because the machine is busier than expected."""


def require(holds, what):
    if not holds:
        raise Failure(what)


def await_true(condition, what, limit=PATIENCE):
    """Waits until the condition is true, and returns its value. Checks several times a second. `what` says what is
    waited for; as a function, it is called when the time is over, so that it can say what is known then."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise Failure(f"waited {limit:.0f} s for: {what() if callable(what) else what}")


def start_time(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2:].split()
    return None if fields[0] == "Z" else int(fields[19])


QUIET_THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}  # many workers, few cores


def processor_seconds(*command):
    """The processor time of a program; other load on the machine does not matter."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, **QUIET_THREADS})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    require(process.returncode == 0, f"{' '.join(command)}: exit {process.returncode}")
    return used.ru_utime


@functools.cache
def seconds_of_step(build):
    """Seconds of one core for a step of the example with its default batch."""
    program = str(build / "examples" / "mlp")
    start = processor_seconds(program, "--steps", "1")
    return max(1e-4, (processor_seconds(program, "--steps", "61") - start) / 60)


def larger_batch(build, batch):
    """A larger batch on a fast machine, so that a step takes long enough. Each step is a line of the
    job's events, whose size is limited."""
    return batch * max(1, round(0.02 / seconds_of_step(build)))


def kill_all_of(directory):
    """Kills all processes with this directory in environment or arguments."""
    for _ in range(3):
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if str(directory).encode() in words:
                    os.kill(int(entry.name), signal.SIGKILL)
        time.sleep(0.1)


class Cluster:
    """A daemon with its state directory and its jobs."""

    length = 1  # factor for all jobs; larger if a scenario is repeated

    def __init__(self, build, policy, *flags):
        """`policy` None: the default one."""
        self.build = pathlib.Path(build)
        self.rubato = str(self.build / "rubato")
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rubato-live-"))
        self.state = self.directory / "state"
        self.env = dict(os.environ, **QUIET_THREADS, RUBATO_STATE=str(self.state), NO_COLOR="1")
        shape = () if "--cluster" in flags else ("--cluster", "2x4")
        self.flags = [*shape, "--measuring", "2", *flags]
        self.policy = policy
        self.prefix = []  # command prefix of the daemon
        self.daemon = None
        self.log = open(self.directory / "daemon.log", "ab")

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        self.clean_up(keep=failure is not None and not issubclass(failure, TooSoon))

    # --- the daemon ---

    def begin(self, first=True):
        """Starts the daemon without waiting until it answers."""
        command = [*self.prefix, self.rubato, "up", *self.flags]
        if first and self.policy:
            command += ["--policy", self.policy]
        self.daemon = subprocess.Popen(command, env=self.env, stdout=self.log, stderr=self.log,
                                       cwd=self.directory)

    def up(self, first=True):
        self.begin(first)
        await_true(self.answers, "the daemon to answer")

    def answers(self):
        require(self.daemon.poll() is None,
                "the daemon ended: " + (self.directory / "daemon.log").read_text()[-2000:])
        return self.run("nodes", "--json", check=False).returncode == 0

    def kill(self):
        self.daemon.kill()
        self.daemon.wait()

    def stop(self):
        self.daemon.terminate()
        try:
            code = self.daemon.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure("the daemon did not end after SIGTERM")
        require(code == 0, f"the daemon ended with {code}")

    def clean_up(self, keep):
        signal.setitimer(signal.ITIMER_REAL, 0)  # the scenario's limit must not cut this short
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        kill_all_of(self.directory)
        for file in self.state.glob("nodes/*/cgroup-*.json"):  # that agents had no time to remove
            with contextlib.suppress(OSError, ValueError):
                os.rmdir(json.loads(file.read_text())["cgroup"])
        self.log.close()
        if keep or os.environ.get("KEEP"):
            print(f"kept {self.directory}: daemon.log, state/jobs/JOB/log and events.jsonl", flush=True)
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    # --- the command line ---

    def run(self, *args, check=True):
        done = subprocess.run([self.rubato, *map(str, args)], env=self.env, capture_output=True,
                              text=True, cwd=self.directory, timeout=PATIENCE)
        require(not check or done.returncode == 0,
                f"rubato {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def ask(self, *args):
        return json.loads(self.run(args[0], "--json", *args[1:]).stdout)

    def steps(self, seconds):
        """How many steps the cores that eight workers can use make in this many seconds."""
        cores = min(len(os.sched_getaffinity(0)), 8)
        step = seconds_of_step(self.build) * larger_batch(self.build, 1)
        return max(20, int(Cluster.length * seconds * cores / step))

    def submission(self, name, *flags, steps, options=()):
        program = str(self.build / "examples" / "mlp")
        options = options or ("--batch", str(larger_batch(self.build, 64)))
        return ["submit", "--name", name, "--work", f"steps={steps}", *flags, "--json", "--", program,
                "--steps", str(steps), *options]

    def submit(self, name, *flags, steps, options=()):
        return json.loads(self.run(*self.submission(name, *flags, steps=steps, options=options)).stdout)

    def job(self, job):
        return self.ask("status", job)

    def jobs(self):
        return self.ask("ls", "--all")["jobs"]

    def await_state(self, job, *states):
        def look():
            now = self.job(job)
            require(now["state"] in states or now["state"] not in DONE,
                    f"job {job} is {now['state']}: {now.get('reason')}")
            return now if now["state"] in states else None
        return await_true(look, f"job {job} to be {' or '.join(states)}")

    # --- what lies on the disk ---

    def job_directory(self, job):
        return self.state / "jobs" / str(job)

    def events(self, job):
        """The events that the job's master has written so far. The last line may be incomplete."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.job_directory(job) / "events.jsonl").read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def reports(self, job):
        return [event["content"] for event in self.events(job) if event["event"] == "report"]

    def going_on(self, job):
        """The daemon's status of a job that must not have ended yet."""
        now = self.job(job)
        own = self.events(job)[-1:]  # its agent may be unable to report
        if now["state"] == "COMPLETED" or (own and own[0]["event"] == "end" and own[0]["code"] == 0):
            raise TooSoon(f"job {job} is done already")
        require(now["state"] not in DONE, f"job {job} is {now['state']}: {now.get('reason')}")
        return now

    def await_training(self, job, workers=lambda count: count > 0):
        """Waits until this many workers have made the job's newest step."""
        def look():
            self.going_on(job)
            reports = self.reports(job)
            return reports and workers(reports[-1]["workers"])
        await_true(look, f"job {job} to train on so many workers")

    def await_progress(self, jobs):
        """Waits until each of the jobs has made further steps."""
        before = {job: self.step(job) for job in jobs}
        def look():
            for job in jobs:
                self.going_on(job)
            return all(self.step(job) > before[job] for job in jobs)
        await_true(look, "all jobs to train on")

    def resize(self, job, to):
        done = self.run("resize", job, to, check=False)
        if done.returncode != 0:
            self.going_on(job)
        require(done.returncode == 0, f"resize: exit {done.returncode} {done.stderr}")

    def step(self, job):
        return max((report["step"] for report in self.reports(job)), default=0)

    def master(self, job):
        return json.loads((self.job_directory(job) / "master.json").read_text())["pid"]

    def workers(self, job):
        return json.loads((self.job_directory(job) / "workers.json").read_text())

    def agent(self, node):
        return json.loads((self.state / "nodes" / str(node) / "agent.json").read_text())["pid"]

    def rows(self, kind):
        """The bodies of the journal's rows of a type. A daemon may be running."""
        found = []
        for file in sorted(self.state.glob("journal*.sqlite")):
            with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as journal:
                for (body,) in journal.execute(
                        "SELECT body FROM journal WHERE type = ? ORDER BY number", (kind,)):
                    found.append(json.loads(body))
        return found

    def speeds_known(self):
        """The jobs whose speed is in the journal."""
        return {row["job"] for row in self.rows("measured") if row.get("rates")}

    def replays(self):
        done = self.run("replay", self.state, check=False)
        require(done.returncode == 0, f"the journal does not replay:\n{done.stdout}{done.stderr}")


# --- scenarios ---------------------------------------------------------------------------------------


def resize_while_it_trains(cluster, job):
    """Resizes a job by command, because what a policy does may depend on the machine."""
    cluster.await_training(job, lambda count: count >= 2)
    cluster.resize(job, "1")
    cluster.await_training(job, lambda count: count == 1)
    cluster.resize(job, "2:4")
    cluster.await_training(job, lambda count: count >= 2)


def lived_through_changes(events):
    """Workers that reported steps with different numbers of workers and were never restarted."""
    found, counts = set(), {}
    for event in events:
        if event["event"] == "end":
            counts = {}
        elif event["event"] == "report":
            seen = counts.setdefault(event["worker"], set())
            seen.add(event["content"]["workers"])
            if len(seen) > 1:
                found.add(event["worker"])
    return found


def live_resizes(cluster, job, ended):
    """How often it was resized. Checks that nothing failed, and that no resize was a restart."""
    require(ended["failures"] == 0, f"job {job} failed on its way: {ended}")
    ends = [event for event in cluster.events(job) if event["event"] == "end"]
    # One stop for each time that the policy paused it, and one at the end. Resizes are in between.
    require(ends, f"job {job} has told no end")
    for end in ends:
        require(end["failures"] == 0 and end["fresh_starts"] == 0, f"job {job}: {end}")
    return sum(end["resizes"] for end in ends)


def ended_well(cluster, job):
    """The status of a completed job. Checks that it was in time and that its loss has fallen."""
    ended = cluster.await_state(job, "COMPLETED")
    require(not ended["deadline"] or ended["ended"] <= ended["deadline"],
            f"job {job} ended after its deadline")
    losses = [report["loss"] for report in cluster.reports(job) if "loss" in report]
    require(len(losses) > 1 and losses[-1] < losses[0],
            f"the loss of job {job} did not fall: {losses[:1]} to {losses[-1:]}")
    return ended


def six_jobs(build, policy, dated, seconds=(10, 2), flags=(), options=(),
             look=lambda cluster, ids: ""):
    """Six jobs on eight slots: they grow and shrink while they train.

    `dated` submits the last three and returns their numbers.
    """
    with Cluster(build, policy) as cluster:
        cluster.up()
        work = {"options": options, "steps": cluster.steps(seconds[0])}
        first = cluster.submit("job0", "--gpus", "2:4", *flags, **work)["id"]
        resize_while_it_trains(cluster, first)
        work["steps"] = cluster.steps(seconds[1])
        ids = [first, *(cluster.submit(f"job{i}", "--gpus", "1:4", *flags, **work)["id"]
                        for i in (1, 2))]
        ids += dated(cluster, *flags, **work)
        ends = {job: ended_well(cluster, job) for job in ids}
        resizes = {job: live_resizes(cluster, job, ends[job]) for job in ids}
        require(resizes[first] >= 2, f"job {first} was resized {resizes[first]} times")
        require(lived_through_changes(cluster.events(first)),
                f"no worker of job {first} trained before and after a resize")
        seen = look(cluster, ids)
        cluster.stop()
        cluster.replays()
        paused = sum(end["restarts"] for end in ends.values())
        return f"{sum(resizes.values())} live resizes, {paused} pauses{seen}"


def without_deadlines(cluster, *flags, **work):
    return [cluster.submit(f"job{i}", "--gpus", "1:4", *flags, **work)["id"] for i in (3, 4, 5)]


def with_deadlines(cluster, *flags, **work):
    """The first job is measured. The others have its profile and are answered at once."""
    flags = ("--gpus", "1:2", "--profile", "dated", "--deadline", "+30m", *flags)
    measured = cluster.submit("job3", *flags, **work)
    require(measured["state"] == "PROFILING" and
            measured["verdict"]["text"].startswith("profiling, verdict by "), f"{measured}")
    cluster.await_state(measured["id"], "PENDING", "RUNNING", "RESIZING", "STOPPING", "COMPLETED")
    ids = [measured["id"]]
    for i in (4, 5):
        known = cluster.submit(f"job{i}", *flags, **work)
        require(known["verdict"]["text"].startswith("admitted, "), f"{known}")
        ids.append(known["id"])
    return ids


def refused_at_once(cluster, *flags):
    """A deadline that cannot be kept, for a job whose speed is known."""
    hopeless = cluster.submission("hopeless", "--profile", "dated", "--gpus", "1:8", "--deadline",
                                  "+1m", *flags, steps=cluster.steps(36000))
    done = cluster.run(*hopeless, check=False)
    require(done.returncode == 1, f"exit {done.returncode}: {done.stdout}{done.stderr}")
    answer = json.loads(done.stdout)
    require(answer["state"] == "REFUSED" and
            answer["verdict"]["text"].startswith("refused, earliest feasible "), f"{answer}")


def with_promises(cluster, *flags, **work):
    ids = with_deadlines(cluster, *flags, **work)
    refused_at_once(cluster)
    return ids


def promises_kept(cluster, ids):
    for job in ids[3:]:
        require(cluster.job(job)["promised"], f"job {job} was promised nothing")
    return "; promised and kept"


def afs(build):
    return six_jobs(build, "afs-l", without_deadlines)


def edf_admission(build):
    return six_jobs(build, "edf-admission", with_deadlines)


def elasticflow(build):
    return six_jobs(build, "elasticflow", with_promises, look=promises_kept)


BATCHES = (32, 512)  # the smallest and the largest batch of adaptive jobs


def batches(cluster, job):
    """The global batches with which a job has trained, in order."""
    found = []
    for report in cluster.reports(job):
        batch = report["per_gpu"] * (report["accumulation"] + 1) * report["workers"]
        if found[-1:] != [batch]:
            found.append(batch)
    return found


def batches_followed(cluster, ids):
    """Adaptive jobs changed their batch while they trained, and the daemon learned their goodput."""
    live = []
    for job in ids:
        trained = batches(cluster, job)
        least, most = (larger_batch(cluster.build, batch) for batch in BATCHES)
        require(min(trained) >= least and max(trained) <= most, f"job {job}: batches {trained}")
        ended = cluster.job(job)
        if len(trained) > 1 and ended["restarts"] == 0 and ended["failures"] == 0:
            live.append(trained)
    require(live, "no job changed its batch without a restart")
    learned = set()
    for row in cluster.rows("estimated"):
        speed = row["speed"]
        if speed["kind"] == "goodput" and speed.get("seen"):
            learned.add(row["job"])
    require(learned, "the daemon learned no job's goodput")
    longest = " ".join(map(str, max(live, key=len)[:8]))
    return f"; {len(live)} changed their batch live ({longest}), goodput learned of {len(learned)}"


def pollux(build):
    least, most = (larger_batch(build, batch) for batch in BATCHES)
    # Long enough that pollux considers changes worth their restart. Batches grow, so the jobs take several times as long.
    return six_jobs(build, "pollux:interval=5", without_deadlines, seconds=(10, 4),
                    flags=("--batch", f"adaptive:{least}:{most}"),
                    options=("--largest-per-worker", str(most // 4)), look=batches_followed)


def counts_seen(cluster, job):
    """With how many workers each step of a job was made, in order, without repetitions."""
    found = []
    for report in cluster.reports(job):
        if found[-1:] != [report["workers"]]:
            found.append(report["workers"])
    return found


def submit_open(cluster, name, *flags, steps):
    """A job that does not say how much work it has."""
    program = str(cluster.build / "examples" / "mlp")
    done = cluster.run("submit", "--name", name, *flags, "--json", "--", program, "--steps", steps,
                       "--batch", larger_batch(cluster.build, 64))
    return json.loads(done.stdout)["id"]


def market_of(cluster, job):
    """What `explain` says of the market, within the sentences and as numbers."""
    why = cluster.ask("explain", job)
    require(why["market"] and any("price of a GPU" in s or "costs nothing" in s
                                  for s in why["sentences"]), f"{why}")
    return why


def rubato(build):
    """The default policy: growth, a shrink for a promised deadline, a job of unknown length, and the
    deaths of the daemon and of a worker."""
    with Cluster(build, None) as cluster:
        cluster.up()
        require(cluster.ask("policy")["policy"] == "rubato", "rubato is not the default policy")
        steps = cluster.steps(25)
        grows = cluster.submit("grows", "--gpus", "1:4", steps=steps)["id"]
        # It is tried on twice the workers that were measured, so it comes to 4 whatever that brings.
        await_true(lambda: cluster.going_on(grows) and 4 in counts_seen(cluster, grows), "growth to 4")
        market_of(cluster, grows)
        require("rubato_gpu_price{" in cluster.run("metrics").stdout, "there is no price")
        # The run that measures its speed goes first, so at most 2 of the 8 slots are left.
        wide = ("--gpus", "6", "--profile", "wide", "--deadline", "+30m")
        dated = cluster.submit("dated", *wide, steps=cluster.steps(2))["id"]
        require(cluster.job(dated)["state"] == "PROFILING", "a promise without a measurement")
        cluster.await_training(grows, lambda count: count <= 2)
        promised = await_true(lambda: cluster.job(dated)["promised"], "the promise")
        again = cluster.submit("again", *wide, steps=20)
        require(again["verdict"]["text"].startswith("admitted, "), f"{again}")
        cluster.kill()
        cluster.up(first=False)
        require(cluster.ask("policy")["policy"] == "rubato", "the policy is another one now")
        require(cluster.job(dated)["promised"] == promised, "the promise is another one now")
        kill_one_worker(cluster, grows)
        unknown = submit_open(cluster, "open", "--gpus", "1:2", steps=20)
        for job in (dated, again["id"]):
            ended = cluster.await_state(job, "COMPLETED")
            require(ended["ended"] <= ended["deadline"], f"a promise was broken: {ended}")
        cluster.await_state(unknown, "COMPLETED")
        ended = cluster.await_state(grows, "COMPLETED")
        require(ended["failures"] <= 1 and cluster.step(grows) == steps, f"{ended}")
        cluster.stop()
        cluster.replays()
        return "workers of the first job: " + " ".join(map(str, counts_seen(cluster, grows)))


class Submitting(threading.Thread):
    """Submits one job after the other, even while no daemon runs.

    The jobs need all slots, so they wait as long as others train.
    """

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.over = threading.Event()  # the present submission is the last
        self.abandoned = threading.Event()
        self.acknowledged = {}  # numbers, by name
        self.failure = None

    def run(self):
        try:
            while not self.over.is_set():
                self.submit(f"waits{len(self.acknowledged)}")
        except Exception as failure:  # reported by finish(), in the scenario's own thread
            self.failure = failure

    def submit(self, name):
        """Repeats a submission until it is acknowledged. Its key makes it one job."""
        command = self.cluster.submission(name, "--key", name, "--gpus", "8", steps=1)
        while not self.abandoned.is_set():
            done = self.cluster.run(*command, check=False)
            if done.returncode == 0:
                self.acknowledged[name] = json.loads(done.stdout)["id"]
                return
            require(done.returncode == 4, f"submit: exit {done.returncode} {done.stderr}")
            self.over.wait(0.1)

    def close(self):
        """Submits nothing more, however the scenario ends."""
        self.over.set()
        self.abandoned.set()

    def finish(self):
        """All acknowledged jobs. The daemon must be up, or the last one is never acknowledged."""
        self.over.set()
        self.join(PATIENCE)
        require(self.failure is None, f"{self.failure}")
        require(not self.is_alive(), "the last submission was not answered")
        return self.acknowledged


def each_once(cluster, acknowledged):
    """Every acknowledged job exists once, under its number. A repeated key makes no other job."""
    jobs = cluster.jobs()
    names = [job["name"] for job in jobs]
    require(len(set(names)) == len(names), f"twice: {sorted(n for n in names if names.count(n) > 1)}")
    there = {job["name"]: job["id"] for job in jobs}
    for name, job in acknowledged.items():
        require(there.get(name) == job, f"{name} is job {there.get(name)} and not {job}")
    name = next(iter(acknowledged))
    again = cluster.submit(name, "--key", name, "--gpus", "8", steps=1)["id"]
    require(again == acknowledged[name], f"the key of job {acknowledged[name]} made job {again}")


def one_outage(cluster, chance, masters):
    """Kills the daemon, also during some starts. Returns whether a job trained meanwhile, if any was left."""
    cluster.kill()
    before = {job: cluster.step(job) for job in masters}
    alive = [job for job in masters if start_time(masters[job])]
    if alive:
        await_true(lambda: any(cluster.step(job) > before[job] or not start_time(masters[job])
                               for job in alive), "training to go on without the daemon")
    trained = any(cluster.step(job) > before[job] for job in alive)
    for _ in range(chance.randrange(3)):
        cluster.begin(first=False)
        time.sleep(chance.uniform(0, 0.3))  # anywhere in its start, or shortly after
        cluster.kill()
    cluster.up(first=False)
    time.sleep(chance.uniform(0, 1))  # to be killed in the middle of something
    return trained


def killed_daemon(build):
    """Kills the daemon (-9) repeatedly: training continues, and each job's work is done once."""
    chance = random.Random(int(os.environ.get("SEED", "1")))
    with Cluster(build, "afs-l") as cluster:
        cluster.up()
        # Their largest counts fill the cluster and their speeds are known. So the policy pauses none of them,
        # neither for each other nor for jobs of unknown speed, which count as one hour long.
        steps = cluster.steps(5 + 2 * OUTAGES)
        ids = [cluster.submit(f"job{i}", "--gpus", gpus, steps=steps)["id"]
               for i, gpus in enumerate(("1:2", "1:2", "1:4"))]
        await_true(lambda: cluster.speeds_known() >= set(ids), "the speeds of all jobs to be known")
        masters = {job: cluster.master(job) for job in ids}
        with contextlib.closing(Submitting(cluster)) as submitting:
            submitting.start()
            during = sum(one_outage(cluster, chance, masters) for _ in range(OUTAGES))
            acknowledged = submitting.finish()
        each_once(cluster, acknowledged)
        # If training has ended, some of them may have started or ended.
        cluster.run("cancel", *acknowledged.values(), check=False)
        for job in ids:
            ended = cluster.await_state(job, "COMPLETED")
            require(ended["restarts"] == 0, f"job {job} was started again")
            require(cluster.step(job) == steps, f"job {job} ended at step {cluster.step(job)}")
        await_true(lambda: not cluster.ask("ls")["jobs"], "the cancelled jobs to end")
        require(len(cluster.jobs()) == 3 + len(acknowledged), "jobs were lost or doubled")
        cluster.stop()
        cluster.replays()
        require(during > 0, "no job trained while the daemon was dead")
        return (f"trained during {during} of {OUTAGES} outages, in which {len(acknowledged)} more were "
                "acknowledged and kept")


def kill_one_worker(cluster, job):
    victim = await_true(lambda: cluster.going_on(job) and cluster.workers(job), "workers")[0]["pid"]
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        cluster.await_state(job, "COMPLETED")
        cluster.going_on(job)


def killed_agent_and_worker(build):
    """A killed agent is restarted and adopts its jobs. A killed worker is replaced."""
    with Cluster(build, "afs-l") as cluster:
        cluster.up()
        steps = cluster.steps(12)
        job = cluster.submit("one", "--gpus", "2:4", steps=steps)["id"]
        cluster.await_training(job)
        master, agents = cluster.master(job), [cluster.agent(0), cluster.agent(1)]
        for agent in agents:
            os.kill(agent, signal.SIGKILL)
        await_true(lambda: all(node["state"] == "up" for node in cluster.ask("nodes")["nodes"]) and
                   cluster.agent(0) not in agents and cluster.agent(1) not in agents,
                   "new agents")
        adopted = cluster.master(job) == master and start_time(master)
        cluster.going_on(job)
        require(adopted, "the job was not adopted")
        kill_one_worker(cluster, job)
        ended = cluster.await_state(job, "COMPLETED")
        require(ended["failures"] <= 1 and cluster.step(job) == steps, f"{ended}")
        cluster.stop()
        cluster.replays()
        return "same master throughout"


def silent_agent(build):
    """An agent is suspended for longer than its lease: no GPU of its node is granted."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(build, "afs-l", "--lease", "2"))
        cluster.up()
        first = cluster.submit("first", "--gpus", "8", steps=cluster.steps(10))["id"]
        cluster.await_training(first)
        agent = cluster.agent(0)
        os.kill(agent, signal.SIGSTOP)
        stack.callback(lambda: start_time(agent) and os.kill(agent, signal.SIGCONT))
        await_true(lambda: cluster.ask("nodes")["nodes"][0]["state"] == "unknown",
                   "the node to be unknown")
        second = cluster.submit("second", "--gpus", "1", steps=20)["id"]
        cluster.await_progress([first])
        later = cluster.job(second)["state"]
        gpus = cluster.going_on(first)["gpus"]
        require(later == "PENDING", "a GPU was granted twice")
        require(gpus == 8, "the job lost GPUs to silence")
        os.kill(agent, signal.SIGCONT)
        await_true(lambda: cluster.ask("nodes")["nodes"][0]["state"] == "up", "the node to be back")
        for job in (first, second):
            require(cluster.await_state(job, "COMPLETED")["restarts"] <= 1, "it started again")
        cluster.stop()
        cluster.replays()
        return "nothing granted twice"


def damaged_tail(build):
    """The end of the journal is garbage: the daemon starts, says what it dropped, and continues."""
    with Cluster(build, "fifo-backfill") as cluster:
        cluster.up()
        job = cluster.submit("one", "--gpus", "1", steps=20)["id"]
        cluster.await_state(job, "COMPLETED")
        steps = cluster.steps(5)
        trains = cluster.submit("two", "--gpus", "1:4", steps=steps)["id"]
        cluster.await_training(trains)
        cluster.kill()
        wal = cluster.state / "journal.sqlite-wal"
        with open(wal, "r+b") as file:
            file.seek(-3000, os.SEEK_END)
            file.write(os.urandom(3000))
        cluster.up(first=False)
        later = cluster.submit("three", "--gpus", "1", steps=20)["id"]
        require(later > trains + 100, "a number was given that another job may have had")
        for job in (trains, later):
            cluster.await_state(job, "COMPLETED")
        require(cluster.step(trains) == steps, f"ended at step {cluster.step(trains)}")
        cluster.stop()
        cluster.up(first=False)
        cluster.stop()
        cluster.replays()
        said = (cluster.directory / "daemon.log").read_text().count("repaired")
        require(said == 1, f"the daemon spoke of a repair {said} times")
        return "said so once"


def full_disk(build):
    """The disk is full, then read-only: changes are refused clearly, and training continues."""
    if os.geteuid() != 0:
        return "skipped: only root can mount a small disk"
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(build, "afs-l"))
        cluster.state.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "none", str(cluster.state)]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            return "skipped: this machine mounts nothing"
        stack.callback(lambda: subprocess.run(["umount", "-l", str(cluster.state)]))
        cluster.up()
        job = cluster.submit("one", "--gpus", "1:2", steps=cluster.steps(10))["id"]
        cluster.await_training(job)
        filler = cluster.state / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        refused = await_true(lambda: refuses(cluster), "a submission to be refused")
        require(refused.startswith("rubato: ") and refused.count("\n") == 1,
                f"refused, but not with one sentence: {refused}")
        require(cluster.daemon.poll() is None, "the daemon ended")
        health = cluster.run("health", check=False)
        require(health.returncode == 1 and "nothing can be stored" in health.stdout,
                f"health: exit {health.returncode} {health.stdout}{health.stderr}")
        filler.unlink()
        await_true(lambda: cluster.run("submit", "--name", "later", "--gpus", "1", "--", "true",
                                       check=False).returncode == 0, "submissions to work again")
        said = (cluster.directory / "daemon.log").read_text()
        begun, over = (said.count(text) for text in
                       ("rubato: nothing can be stored", "rubato: the journal can be written again"))
        require(begun == over >= 1, f"the daemon said {begun} times that it began, {over} that it was over")
        require(cluster.await_state(job, "COMPLETED")["restarts"] == 0, "the job started again")
        await_true(lambda: not cluster.ask("ls")["jobs"], "all jobs to end")
        cluster.stop()
        cluster.replays()
        # A disk cannot be made read-only while files on it are open for writing, so the next daemon
        # finds it read-only.
        await_true(lambda: subprocess.run(["mount", "-o", "remount,ro", str(cluster.state)],
                                          capture_output=True).returncode == 0, "the last writer")
        refused = cluster.run("up", *cluster.flags, check=False)
        require(refused.returncode == 2 and refused.stderr.startswith("rubato: "),
                f"a read-only disk: exit {refused.returncode}, {refused.stderr}")
        subprocess.run(["mount", "-o", "remount,rw", str(cluster.state)], check=True)
        cluster.up(first=False)
        cluster.stop()
        return "refused and went on"


def refuses(cluster):
    done = cluster.run("submit", "--name", "more", "--gpus", "1", "--", "true", check=False)
    return done.stderr if done.returncode != 0 else None


def switched_policy(build):
    """Switches to another policy and back while jobs train: nothing stops."""
    with Cluster(build, "afs-l") as cluster:
        cluster.up()
        steps = cluster.steps(8)
        # All jobs fit at their largest count, so that no policy has to pause one.
        ids = [cluster.submit(f"job{i}", "--gpus", "1:4", steps=steps)["id"] for i in range(2)]
        for job in ids:
            cluster.await_training(job)
        masters = {job: cluster.master(job) for job in ids}
        for policy in ("elasticflow", "rubato", "afs-l"):
            cluster.run("policy", policy)
            require(cluster.ask("policy")["policy"] == policy, f"the policy is not {policy}")
            cluster.await_progress(ids)
            for job in ids:
                same = cluster.master(job) == masters[job] and start_time(masters[job])
                cluster.going_on(job)
                require(same, f"job {job} was stopped by the switch to {policy}")
        for job in ids:
            ended = cluster.await_state(job, "COMPLETED")
            require(ended["restarts"] == 0 and ended["failures"] == 0, f"{ended}")
            require(cluster.step(job) == steps, f"job {job} ended at step {cluster.step(job)}")
        cluster.stop()
        cluster.replays()
        return "same masters under afs-l, elasticflow, rubato and afs-l again"


def nodes_of(cluster, job):
    return sorted({slot.split(".")[0] for slot in cluster.job(job)["slots"]})


def skew(build):
    """Jobs report the share of their largest tensor, and the placement skew packs or spreads them by it."""
    with Cluster(build, "fifo-backfill", "--placement", "skew") as cluster:
        cluster.up()
        calm = ["submit", "--profile", "calm", "--json", "--work", "steps=20", "--name", "calm", "--gpus"]
        program = ["--", str(build / "examples" / "transformer"), "--batch", "8", "--steps"]
        teacher = json.loads(cluster.run(*calm, "1", *program, "20").stdout)["id"]
        share = cluster.await_state(teacher, "COMPLETED")["progress"]["skew"]
        require(0 < share < 0.3, f"the largest tensor of the transformer has a share of {share}")
        steps = cluster.steps(600)
        wide = cluster.submit("wide", "--gpus", "3", steps=steps)["id"]
        cluster.await_training(wide)
        await_true(lambda: cluster.job(wide)["progress"]["skew"], "the share of the largest tensor")
        require(cluster.job(wide)["progress"]["skew"] > 0.3, f"{cluster.job(wide)['progress']}")
        # One GPU is left on the node of the first job, four on the other. What is known to be calm fills
        # the gap; what is not known gets one node.
        calm[calm.index("steps=20")] = "steps=1000000"
        spread = json.loads(cluster.run(*calm, "2", *program, "1000000").stdout)["id"]
        packed = cluster.submit("packed", "--gpus", "2", steps=steps)["id"]
        for job in (spread, packed):
            cluster.await_training(job)
        require(len(nodes_of(cluster, spread)) == 2, f"calm is on {nodes_of(cluster, spread)}")
        require(len(nodes_of(cluster, packed)) == 1, f"packed is on {nodes_of(cluster, packed)}")
        for job in (wide, spread, packed):
            cluster.run("cancel", job)
            cluster.await_state(job, "CANCELLED")
        cluster.stop()
        cluster.replays()
        return f"shares {share:.2f} and above 0.3; two nodes for the first, one for the other"


def impatient(policy):
    """The policy as a user writes it. Those that work in rounds, leases or batches get short ones."""
    keys = [key["name"] for key in policy["keys"] if key["name"] in ("round", "resolve", "lease", "interval", "unit")
            and float(key["default"]) > 2]
    return policy["name"] + (":" if keys else "") + ",".join(f"{key}=2" for key in keys)


def next_turn(cluster, policy, going_on):
    """Switches to the policy, which must start a new job and let the others train on. Returns the new job."""
    cluster.run("policy", policy)
    require(cluster.ask("policy")["policy"] == policy, f"the policy is not {policy}")
    new = cluster.submit(f"under-{policy.partition(':')[0]}", "--gpus", "1", steps=cluster.steps(0.2))["id"]
    await_true(lambda: cluster.reports(new), f"{policy} to start job {new}")
    cluster.await_progress(going_on)
    return new


def every_policy(build):
    """One cluster goes through all policies of the table. Each starts a real job, and two others train on."""
    with Cluster(build, "fifo") as cluster:
        cluster.up()
        table = cluster.ask("policies")["policies"]
        policies = [impatient(policy) for policy in table if policy["live"]]
        for policy in table:
            require(policy["live"] or policy["not_live"], f"{policy['name']} does not say why it is not live")
        ids = [cluster.submit(f"job{i}", "--gpus", "1:2", steps=10**7)["id"] for i in range(2)]
        short = [next_turn(cluster, policy, ids) for policy in policies]
        for job in short:
            ended = cluster.await_state(job, "COMPLETED")
            require(ended["failures"] == 0, f"{ended}")
        for job in ids:
            require(cluster.going_on(job)["failures"] == 0, f"job {job} has failed")
            cluster.run("cancel", job)
            cluster.await_state(job, "CANCELLED")
        cluster.stop()
        cluster.replays()
        return f"{len(policies)} of {len(table)} policies decided about real jobs"


def submit_pair_job(cluster, name, *flags, **environment):
    """guest_trainer.py on one GPU, with these variables. Files are in the cluster's directory."""
    variables = {"PYTHONPATH": HERE.parent / "python", "LIBRUBATO": cluster.build / "librubato.so",
                 "PYTHONDONTWRITEBYTECODE": "1", **environment}
    given = [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
    done = cluster.run("submit", "--name", name, "--gpus", "1", *flags, *given, "--json", "--", PYTHON,
                       HERE / "guest_trainer.py")
    return json.loads(done.stdout)["id"]


def shares_told(cluster, guest):
    return [event["share"] for event in cluster.events(guest) if event["event"] == "throttle"]


def await_share(cluster, guest, wanted, what):
    """Waits until the guest is told a share that is wanted, after those that it was told before."""
    known = len(shares_told(cluster, guest))
    await_true(lambda: any(map(wanted, shares_told(cluster, guest)[known:])), what)


def kill_worker_of(cluster, job):
    before = cluster.workers(job)
    os.kill(before[0]["pid"], signal.SIGKILL)
    await_true(lambda: cluster.workers(job) not in ([], before), f"another worker of job {job}")


def undisturbed(cluster, job):
    now = cluster.going_on(job)
    require(now["failures"] == 0 and now["restarts"] == 0, f"job {job} was disturbed: {now}")


def antman(build):
    """An opportunistic job is the guest of a guaranteed one: it computes while its host is idle, and is stopped when it
    slows its host down. Whatever happens to one of the two leaves the other alone."""
    with Cluster(build, "antman", "--cluster", "1x1") as cluster:
        cluster.up()
        idle, mark = cluster.directory / "idle", cluster.directory / "mark"
        host = submit_pair_job(cluster, "host", DISTURBED=mark, IDLE=idle, STEP=0.03)
        await_true(lambda: cluster.reports(host), "the host to train")
        guest = submit_pair_job(cluster, "guest", "--class", "opportunistic", MARK=mark, STEP=0.01)
        idle.touch()
        await_true(lambda: 1 in shares_told(cluster, guest), "the guest to have everything beside an idle host")
        cluster.await_progress([guest])
        require(cluster.job(guest)["slots"] == cluster.job(host)["slots"] == ["0.0"], "they do not share the slot")
        said = " ".join(cluster.ask("explain", guest)["sentences"])
        require(f"shares the GPU of job {host} as its guest" in said, said)

        idle.unlink()
        await_share(cluster, guest, lambda share: 0 < share < 1, "the guest to be tried beside a host that trains")
        await_share(cluster, guest, lambda share: share == 0, "the guest to be stopped, since its host has slowed down")
        cluster.await_progress([host])

        decisions = len(cluster.rows("decided"))
        second = submit_pair_job(cluster, "second")
        await_true(lambda: len(cluster.rows("decided")) > decisions, "a decision")
        require(cluster.job(second)["state"] == "PENDING", "two guaranteed jobs have one slot")
        undisturbed(cluster, host)
        kill_worker_of(cluster, guest)
        cluster.await_progress([host])
        undisturbed(cluster, host)
        restarts = cluster.job(guest)["restarts"]
        kill_worker_of(cluster, host)
        cluster.await_progress([host])
        require(cluster.job(second)["slots"] == [], "two guaranteed jobs have the slot")
        cluster.run("cancel", host)  # the second job takes its place beside the same guest
        cluster.await_state(host, "CANCELLED")
        await_true(lambda: cluster.reports(second), "the second job to train")
        require(cluster.going_on(guest)["restarts"] == restarts, "the guest was started again")
        require(cluster.job(guest)["slots"] == ["0.0"], "the guest has lost its slot")
        cluster.run("cancel", guest)
        cluster.await_state(guest, "CANCELLED")
        cluster.await_progress([second])
        undisturbed(cluster, second)
        cluster.stop()
        cluster.replays()
        return f"shares of the guest: {shares_told(cluster, guest)[:12]}"


def shared_now(cluster, first, second):
    """Both jobs come from one answer: at a change of turns, two answers may show each of them on the slot."""
    slots = {str(job["id"]): job["slots"] for job in cluster.jobs()}
    return slots[str(first)] != [] and slots[str(first)] == slots[str(second)]


def gandiva(build):
    """Pairs are tried on a real slot: two jobs that do not disturb each other stay together, and two that do are
    separated after their trial and not tried again."""
    policy = "gandiva:quantum=25,trial=10,migrate=off,grow=off"
    with Cluster(build, policy, "--cluster", "1x1") as cluster:
        cluster.up()
        pair = [submit_pair_job(cluster, name, STEP=0.02) for name in ("one", "two")]
        await_true(lambda: shared_now(cluster, *pair), "the two to be tried on one slot")
        decisions = len(cluster.rows("decided"))
        said = " ".join(cluster.ask("explain", pair[1])["sentences"])
        require(f"shares its GPU with job {pair[0]}" in said, said)
        time.sleep(2 * 10 + 25)  # longer than the trial and a quantum
        require(shared_now(cluster, *pair), "they were separated, although both train at their full speed")
        for job in pair:
            cluster.run("cancel", job)
            cluster.await_state(job, "CANCELLED")
        marks = [cluster.directory / name for name in ("mark-a", "mark-b")]
        foes = [submit_pair_job(cluster, "a", STEP=0.02, MARK=marks[0], DISTURBED=marks[1]),
                submit_pair_job(cluster, "b", STEP=0.02, MARK=marks[1], DISTURBED=marks[0])]
        await_true(lambda: shared_now(cluster, *foes), "the two others to be tried")
        await_true(lambda: not shared_now(cluster, *foes), "the two to be separated, since each slows the other down")
        end = time.monotonic() + 2 * 25
        while time.monotonic() < end:
            require(not shared_now(cluster, *foes), "a pair that had failed was tried again")
            time.sleep(0.2)
        cluster.stop()
        cluster.replays()
        return f"one pair kept, one separated; {decisions} decisions until the first was tried"


# A library that moves the wall clock of a process one hour ahead as soon as a file exists. Other clocks
# do not change, as when somebody sets the time of a machine.
CLOCK_JUMP = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t moved(void) {
  static volatile int jumped;
  const int saved = errno;
  const char* file = getenv("CLOCK_JUMPS_WITH");
  if (!jumped && file != NULL && access(file, F_OK) == 0) jumped = 1;
  errno = saved;
  return jumped ? 3600 : 0;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += moved();
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec precise;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* where) {
  struct timespec precise;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return (time_t)-1;
  if (where != NULL) *where = precise.tv_sec;
  return precise.tv_sec;
}
"""


def jumping_clock(cluster):
    """Gives the daemon such a clock. Returns the file that makes it jump; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library, source = cluster.directory / "clock.so", cluster.directory / "clock.c"
    source.write_text(CLOCK_JUMP)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    file = cluster.directory / "jump"
    cluster.prefix = ["env", f"LD_PRELOAD={library}", f"CLOCK_JUMPS_WITH={file}"]
    return file


def await_slack(cluster, job, hours):
    """Waits until the slack before the deadline is this many hours, or up to half an hour less."""
    def look():
        slack = cluster.going_on(job)["slack_seconds"]
        return slack is not None and hours - 0.5 < slack / 3600 <= hours
    await_true(look, f"job {job} to have a slack of {hours} hours")


def clock_jump(build):
    """The wall clock is set one hour ahead: no lease expires, jobs continue, deadlines are closer."""
    with Cluster(build, "afs-l", "--lease", "20") as cluster:
        jump = jumping_clock(cluster)
        if jump is None:
            return "skipped: there is no C compiler to make a clock that jumps"
        cluster.up()
        steps = cluster.steps(15)
        job = cluster.submit("one", "--gpus", "1:4", "--deadline", "+3h", steps=steps)["id"]
        cluster.await_training(job)
        await_slack(cluster, job, 3)  # as soon as its speed is known
        master, agents = cluster.master(job), [cluster.agent(0), cluster.agent(1)]
        jump.touch()
        told = await_true(lambda: clock_moves(cluster), "the history to say that the clock was set")
        require(len(told) == 1 and abs(told[0] - 3600) < 5, f"the clock moved by {told} s")
        await_slack(cluster, job, 2)
        cluster.await_progress([job])
        require([cluster.agent(0), cluster.agent(1)] == agents, "an agent was started again")
        require(cluster.master(job) == master, "the job was started again")
        ended = cluster.await_state(job, "COMPLETED")
        require(ended["restarts"] == 0 and ended["failures"] == 0, f"{ended}")
        require(ended["ended"] <= ended["deadline"], f"{ended}")
        nodes = [node["state"] for node in cluster.ask("nodes")["nodes"]]
        lost = [text for text in history(cluster) if re.search(r"node \d+ is (unknown|down)", text)]
        require(nodes == ["up", "up"] and not lost, f"a lease was lost: {nodes}, {lost}")
        cluster.stop()
        cluster.replays()
        return f"moved by {told[0]:.1f} s, an hour less before the deadline"


def history(cluster):
    """The sentences of the cluster's history."""
    events = cluster.ask("history", "--after", "0", "-n", "1000")["events"]
    return [event["text"] for event in events]


def clock_moves(cluster):
    """By how many seconds the wall clock was moved, each time."""
    found = [re.search(r"the wall clock moved by (-?[0-9.]+) s", text) for text in history(cluster)]
    return [float(match[1]) for match in found if match]


def search(build):
    """Four trials with learning rates, two of which learn nothing: these stop, and one of the others stops after stage 2.
    Nothing starts before all are submitted, and no trial is done before it is judged. A trial whose stop takes longer than
    a stage is judged by stage 2, too, and there it is worse than one that is certain to have come so far."""
    stage = 50  # epochs
    root = pathlib.Path(__file__).resolve().parent.parent
    with Cluster(build, None) as cluster:
        cluster.env.update(PYTHONPATH=str(root / "python"), LIBRUBATO=str(build / "librubato.so"))
        cluster.up()
        cluster.run("drain", "0", "1")

        def submit(rate):
            return json.loads(cluster.run("submit", "--json", "--gpus", "1", "--search", f"rate:trials=4:epochs={stage}", "--",
                                          PYTHON, root / "examples/python/trial.py", rate, "1000").stdout)["id"]
        ids = [submit(rate) for rate in ("0.0000001", "0.03", "0.00000001")]
        other = cluster.run("submit", "--search", f"rate:trials=3:epochs={stage}", "--", "true", check=False)
        require(other.returncode == 2 and "with other settings" in other.stderr, f"other settings: {other}")
        ids.append(submit("0.01"))
        cluster.run("resume", "0", "1")
        all_judged = lambda: sum(job["state"] == "CANCELLED" for job in cluster.jobs()) == 3  # noqa: E731
        await_true(all_judged, "three of four trials to be stopped")
        ended = [cluster.job(job) for job in ids]
        why = [job["reason"] if job["state"] == "CANCELLED" else "goes on" for job in ended]
        spent = [job["progress"]["epoch"] for job in ended]
        for trial in (0, 2):
            said = re.fullmatch("stopped after stage (1: (?:3rd of [34]|4th of 4)|2: (?:2nd|3rd|4th) of [234]) by loss", why[trial])
            require(said and spent[trial] >= stage * int(said[1][0]), f"who learns nothing stops after a stage: {why}, {spent}")
        late = sorted([why[1], why[3]])
        require(late[0] == "goes on" and re.fullmatch("stopped after stage 2: 2nd of [234] by loss", late[1]),
                f"one of two goes on: {why}")
        cluster.run("cancel", ids[why.index("goes on")])
        told = cluster.ask("explain", ids[2])["sentences"]
        require(any("It was trial 3 of 4 of the search rate; its loss at the end of each stage: " in s for s in told),
                f"{told}")
        lines = history(cluster)
        require(any("finished stage 2 of its search with loss" in line for line in lines), f"{lines}")
        cluster.stop()
        cluster.replays()
        return f"epochs that the trials made: {[round(epochs) for epochs in spent]}"


SCENARIOS = [rubato, search, afs, edf_admission, elasticflow, pollux, killed_daemon, killed_agent_and_worker,
             silent_agent, damaged_tail, full_disk, switched_policy, every_policy, antman, skew, clock_jump]
if "EVERY_COMBINATION" in os.environ:  # they wait for minutes
    SCENARIOS.append(gandiva)


def within_limit(scenario, build):
    """Runs a scenario and returns its report. If it hangs, this is a failure, so that the others still run."""
    def out_of_time(*_):
        raise Failure(f"{scenario.__name__} was still running after {LIMIT:.0f} s")
    signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        return scenario(build)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def until_long_enough(scenario, build):
    """Repeats the scenario with longer jobs if a job ended too early."""
    for Cluster.length in (1, 2):
        try:
            return within_limit(scenario, build)
        except TooSoon as done:
            print(f"again: {scenario.__name__} with longer jobs, since {done}", flush=True)
    Cluster.length = 4
    return within_limit(scenario, build)


def main(scenarios, title):
    if sys.argv[1:] == ["--list"]:
        print(*(scenario.__name__ for scenario in scenarios), sep="\n")
        return
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    names = sys.argv[2:]
    chosen = [s for s in scenarios if not names or s.__name__ in names]
    unknown = set(names) - {s.__name__ for s in scenarios}
    if unknown:
        sys.exit(f"no scenario {', '.join(sorted(unknown))}")
    failed = 0
    for scenario in chosen:
        began = time.monotonic()
        try:
            said = until_long_enough(scenario, build)
            word = "passed"
        except Exception as failure:  # any failure is a failure of this scenario
            traceback.print_exc(file=sys.stdout)
            said = f"{type(failure).__name__}: {failure}"
            word = "FAILED"
            failed += 1
        print(f"{word}: {scenario.__name__} ({time.monotonic() - began:.0f} s): {said}", flush=True)
    print(f"{title}: {len(chosen) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(SCENARIOS, "live")
