#!/usr/bin/env python3
"""The live cluster end to end: real daemons, agents and training on 2 virtual nodes of 4 slots.

    e2e/live.py BUILD [SCENARIO...]     all scenarios by default; exit 1 if anything does not hold

Each scenario has a state directory of its own and leaves no process behind. Nothing depends on how
fast this machine is: what should happen is waited for, within a limit.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

PATIENCE = float(os.environ.get("PATIENCE", "240"))  # seconds for anything to happen
DONE = {"COMPLETED", "FAILED", "CANCELLED", "REFUSED"}


class Failure(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Failure(what)


def await_true(condition, what, limit=PATIENCE):
    """The first true value of the condition, asked several times a second."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise Failure(f"waited {limit:.0f} s for: {what}")


def start_time(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2:].split()
    return None if fields[0] == "Z" else int(fields[19])


class Cluster:
    """A daemon with its state directory, and the jobs in it."""

    def __init__(self, build, policy, *flags):
        self.build = pathlib.Path(build)
        self.rubato = str(self.build / "rubato")
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rubato-live-"))
        self.state = self.directory / "state"
        self.env = dict(os.environ, RUBATO_STATE=str(self.state), OMP_NUM_THREADS="1",
                        OMP_WAIT_POLICY="passive", NO_COLOR="1")
        self.flags = ["--cluster", "2x4", "--measuring", "2", *flags]
        self.policy = policy
        self.prefix = []  # what the daemon is started through
        self.daemon = None
        self.log = open(self.directory / "daemon.log", "ab")

    # --- the daemon ---

    def up(self, first=True):
        command = [*self.prefix, self.rubato, "up", *self.flags]
        if first:
            command += ["--policy", self.policy]
        self.daemon = subprocess.Popen(command, env=self.env, stdout=self.log, stderr=self.log,
                                       cwd=self.directory)
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

    def clean_up(self):
        """Ends what is left of ours: processes with this directory in environment or arguments."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        for _ in range(3):
            for entry in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    words = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                    if str(self.directory).encode() in words:
                        os.kill(int(entry.name), signal.SIGKILL)
            time.sleep(0.1)
        self.log.close()
        if os.environ.get("KEEP"):
            print(f"kept {self.directory}")
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

    def submit(self, name, *flags, steps=60, program="mlp", options=()):
        command = [str(self.build / "examples" / program), "--steps", str(steps), *options]
        return self.ask("submit", "--name", name, "--work", f"steps={steps}", *flags, "--", *command)

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

    def reports(self, job):
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.job_directory(job) / "events.jsonl").read_text().splitlines():
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if event.get("event") == "report":
                        found.append(event["content"])
        return found

    def step(self, job):
        return max((report["step"] for report in self.reports(job)), default=0)

    def master(self, job):
        return json.loads((self.job_directory(job) / "master.json").read_text())["pid"]

    def workers(self, job):
        return json.loads((self.job_directory(job) / "workers.json").read_text())

    def agent(self, node):
        return json.loads((self.state / "nodes" / str(node) / "agent.json").read_text())["pid"]

    def rows(self, kind):
        """The bodies of the journal's rows of a type, while a daemon runs or after."""
        found = []
        for file in sorted(self.state.glob("journal*.sqlite")):
            with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as journal:
                for (body,) in journal.execute(
                        "SELECT body FROM journal WHERE type = ? ORDER BY number", (kind,)):
                    found.append(json.loads(body))
        return found

    def replays(self):
        done = self.run("replay", self.state, check=False)
        require(done.returncode == 0, f"the journal does not replay:\n{done.stdout}{done.stderr}")


# --- scenarios ---------------------------------------------------------------------------------------


def six_jobs(build, policy, *deadline, steps=(150, 60), flags=(), options=(),
             look=lambda cluster, ids: ""):
    """Six jobs on eight slots: they grow and shrink while they train."""
    cluster = Cluster(build, policy)
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.clean_up)
        cluster.up()
        ids = []
        for i in range(6):
            due = deadline if i % 2 == 0 else ()
            job = cluster.submit(f"job{i}", "--gpus", "1:4", *due, *flags, steps=steps[i >= 2],
                                 options=options)
            require(job["state"] != "REFUSED", f"job {i} was refused: {job.get('verdict')}")
            ids.append(job["id"])
        resizes = live = 0
        for job in ids:
            ended = cluster.await_state(job, "COMPLETED")
            require(ended["failures"] == 0, f"job {job} failed on its way: {ended}")
            if ended["resizes"] and not ended["restarts"]:  # else its policy has paused it
                live += 1
            if ended["deadline"]:
                require(ended["ended"] <= ended["deadline"], f"job {job} ended after its deadline")
            resizes += ended["resizes"]
            losses = [report["loss"] for report in cluster.reports(job) if "loss" in report]
            require(len(losses) > 1 and losses[-1] < losses[0],
                    f"the loss of job {job} did not fall: {losses[:1]} to {losses[-1:]}")
        require(resizes > 0, "no job was resized while it trained")
        seen = look(cluster, ids)
        cluster.stop()
        cluster.replays()
        return f"{resizes} resizes, {live} of 6 jobs resized and never restarted{seen}"


def afs(build):
    return six_jobs(build, "afs-l")


def edf_admission(build):
    return six_jobs(build, "edf-admission", "--deadline", "+30m")


def elasticflow(build):
    return six_jobs(build, "elasticflow", "--deadline", "+30m")


def batches(cluster, job):
    """The global batches a job has trained with, in order."""
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
        require(min(trained) >= 32 and max(trained) <= 512, f"job {job}: batches {trained}")
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
    # Long enough for changes to be worth their restart in pollux's eyes.
    return six_jobs(build, "pollux:interval=5", steps=(1500, 300),
                    flags=("--batch", "adaptive:32:512"),
                    options=("--largest-per-worker", "128"), look=batches_followed)


def killed_daemon(build):
    """kill -9 of the daemon, again and again: training goes on, and each job's work is done once."""
    cluster = Cluster(build, "afs-l")
    chance = random.Random(int(os.environ.get("SEED", "1")))
    outages = int(os.environ.get("OUTAGES", "4"))
    steps = 100 * outages
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.clean_up)
        cluster.up()
        ids = [cluster.submit(f"job{i}", "--gpus", "1:4", steps=steps)["id"] for i in range(3)]
        await_true(lambda: all(cluster.step(job) > 0 for job in ids), "all jobs to train")
        masters = {job: cluster.master(job) for job in ids}
        during = 0
        for _ in range(outages):
            cluster.kill()
            before = {job: cluster.step(job) for job in ids}
            alive = [job for job in ids if start_time(masters[job])]
            if alive:
                await_true(lambda: any(cluster.step(job) > before[job] or
                                       not start_time(masters[job]) for job in alive),
                           "training to go on without the daemon")
                during += 1
            cluster.up(first=False)
            time.sleep(chance.uniform(0, 1))  # to be killed in the middle of something
        for job in ids:
            ended = cluster.await_state(job, "COMPLETED")
            require(ended["restarts"] == 0, f"job {job} was started again")
            require(cluster.step(job) == steps, f"job {job} ended at step {cluster.step(job)}")
        require(len(cluster.jobs()) == 3, "jobs were lost or doubled")
        cluster.stop()
        cluster.replays()
        require(during > 0, "no job trained while the daemon was dead")
        return f"trained during {during} of {outages} outages"


def killed_agent_and_worker(build):
    """An agent that is killed is started again and adopts its jobs; a worker is replaced."""
    cluster = Cluster(build, "afs-l")
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.clean_up)
        cluster.up()
        job = cluster.submit("one", "--gpus", "2:4", steps=500)["id"]
        await_true(lambda: cluster.step(job) > 0, "the job to train")
        master, agents = cluster.master(job), [cluster.agent(0), cluster.agent(1)]
        for agent in agents:
            os.kill(agent, signal.SIGKILL)
        await_true(lambda: all(node["state"] == "up" for node in cluster.ask("nodes")["nodes"]) and
                   cluster.agent(0) not in agents and cluster.agent(1) not in agents,
                   "new agents")
        require(cluster.master(job) == master and start_time(master), "the job was not adopted")
        victim = cluster.workers(job)[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        ended = cluster.await_state(job, "COMPLETED")
        require(ended["failures"] <= 1 and cluster.step(job) == 500, f"{ended}")
        cluster.stop()
        cluster.replays()
        return "same master throughout"


def silent_agent(build):
    """An agent that is stopped for longer than its lease: nothing of its node is granted."""
    cluster = Cluster(build, "afs-l", "--lease", "2")
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.clean_up)
        cluster.up()
        first = cluster.submit("first", "--gpus", "8", steps=400)["id"]
        await_true(lambda: cluster.step(first) > 0, "the job to train")
        agent = cluster.agent(0)
        os.kill(agent, signal.SIGSTOP)
        stack.callback(lambda: start_time(agent) and os.kill(agent, signal.SIGCONT))
        await_true(lambda: cluster.ask("nodes")["nodes"][0]["state"] == "unknown",
                   "the node to be unknown")
        second = cluster.submit("second", "--gpus", "1", steps=20)["id"]
        step = cluster.step(first)
        await_true(lambda: cluster.step(first) > step, "the job to train on")
        require(cluster.job(second)["state"] == "PENDING", "a GPU was granted twice")
        require(cluster.job(first)["gpus"] == 8, "the job lost GPUs to silence")
        os.kill(agent, signal.SIGCONT)
        await_true(lambda: cluster.ask("nodes")["nodes"][0]["state"] == "up", "the node to be back")
        for job in (first, second):
            require(cluster.await_state(job, "COMPLETED")["restarts"] <= 1, "it started again")
        cluster.stop()
        cluster.replays()
        return "nothing granted twice"


def damaged_tail(build):
    """A journal whose end is garbage: the daemon starts, says what it dropped, and goes on."""
    cluster = Cluster(build, "fifo-backfill")
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.clean_up)
        cluster.up()
        job = cluster.submit("one", "--gpus", "1", steps=20)["id"]
        cluster.await_state(job, "COMPLETED")
        trains = cluster.submit("two", "--gpus", "1:4", steps=300)["id"]
        await_true(lambda: cluster.step(trains) > 0, "the job to train")
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
        require(cluster.step(trains) == 300, f"ended at step {cluster.step(trains)}")
        cluster.stop()
        cluster.up(first=False)
        cluster.stop()
        cluster.replays()
        said = (cluster.directory / "daemon.log").read_text().count("repaired")
        require(said == 1, f"the daemon spoke of a repair {said} times")
        return "said so once"


def full_disk(build):
    """A disk that is full, then read-only: work is refused clearly and training goes on."""
    if os.geteuid() != 0:
        return "skipped: only root can mount a small disk"
    cluster = Cluster(build, "afs-l")
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.clean_up)
        cluster.state.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "none", str(cluster.state)]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            return "skipped: this machine mounts nothing"
        stack.callback(lambda: subprocess.run(["umount", "-l", str(cluster.state)]))
        cluster.up()
        job = cluster.submit("one", "--gpus", "1:2", steps=600)["id"]
        await_true(lambda: cluster.step(job) > 0, "the job to train")
        filler = cluster.state / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        refused = await_true(lambda: refuses(cluster), "a submission to be refused")
        require(refused.startswith("rubato: ") and refused.count("\n") == 1,
                f"refused, but not with one sentence: {refused}")
        require(cluster.daemon.poll() is None, "the daemon ended")
        filler.unlink()
        await_true(lambda: cluster.run("submit", "--name", "later", "--gpus", "1", "--", "true",
                                       check=False).returncode == 0, "submissions to work again")
        require(cluster.await_state(job, "COMPLETED")["restarts"] == 0, "the job started again")
        await_true(lambda: not cluster.ask("ls")["jobs"], "all jobs to end")
        cluster.stop()
        cluster.replays()
        # Nobody can make a disk read-only on which files are being written; the next daemon finds
        # it so.
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


SCENARIOS = [afs, edf_admission, elasticflow, pollux, killed_daemon, killed_agent_and_worker,
             silent_agent, damaged_tail, full_disk]


def main(scenarios, title):
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
            said = scenario(build)
            word = "passed"
        except (Failure, subprocess.TimeoutExpired, KeyError, json.JSONDecodeError) as failure:
            said = f"{type(failure).__name__}: {failure}"
            word = "FAILED"
            failed += 1
        print(f"{word}: {scenario.__name__} ({time.monotonic() - began:.0f} s): {said}", flush=True)
    print(f"{title}: {len(chosen) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(SCENARIOS, "live")
