#!/usr/bin/env python3
"""Benchmarks of elastic training: the cost of a change of workers, and whether it changes the result.

  bench/elastic.py chaos --kills 100 --resizes 50     random kills and resizes: same bits?
  bench/elastic.py resize --resizes 50                pause of a resize, compared with two other methods
  bench/elastic.py soak --steps 10000 --every 50      does memory grow with every resize?

All data comes from the launcher's log (rubato run --log). It has the time of every step, on the clock of
time.monotonic(). Exit code: 0 all checks passed, 1 some failed (one sentence each on standard error),
2 could not run.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

POLL_SECONDS = 0.003
HANG_SECONDS = 90  # without a step; even slow machines need less
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")


class Fault(Exception):
    """A check failed. The text is one sentence."""


class CannotRun(Exception):
    """Nothing was measured. The text says why."""


# --- figures --------------------------------------------------------------------------------------


def quantile(values, q):
    """The smallest value that at least the fraction q of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -int(-q * len(ordered) // 1) - 1))]


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(values):
    """p50, p90, p99 and max of a list, for tables and JSON."""
    if not values:
        return {"count": 0}
    return {"count": len(values), "p50": median(values), "p90": quantile(values, 0.9),
            "p99": quantile(values, 0.99), "max": max(values)}


def row(label, values, unit, scale=1.0):
    if not values:
        print(f"{label:<46} none")
        return
    s = spread(values)
    print(f"{label:<46} p50 {s['p50'] * scale:8.1f} {unit}  p90 {s['p90'] * scale:8.1f} {unit}  "
          f"p99 {s['p99'] * scale:8.1f} {unit}  max {s['max'] * scale:8.1f} {unit} "
          f"({len(values)})")


# --- one run of `rubato run` ----------------------------------------------------------------------


def age(record):
    """Orders the records of a job."""
    return record["recovery"], record["generation"]


class Run:
    """A launcher with its workers, and the contents of its log so far."""

    def __init__(self, arguments, directory, name, workers, start, program, heartbeat=None, flags=()):
        self.rubato = os.path.join(arguments.build, "rubato")
        self.directory = directory
        self.name = f"{name}-{os.getpid()}"
        self.log_path = os.path.join(directory, name + ".log")
        self.output_path = os.path.join(directory, name + ".out")
        self.events = []
        self.reports = []  # contents, in the order of their arrival
        self.steps = 0  # the highest published
        self.alive = {}  # uid -> pid
        self.holders = set()  # workers that have reported that they hold the whole state
        self.record = None  # content of the newest "members" notice
        self.plan = []
        self.wanted = start
        self.last_step_at = time.monotonic()
        command = [self.rubato, "run", "--workers", workers, "--start", str(start), "--name",
                   self.name, "--log", self.log_path, "--max-failures", "100000", "--quiet", *flags]
        if heartbeat is not None:
            command += ["--heartbeat", str(heartbeat)]
        self.output = open(self.output_path, "ab")
        self.offset = os.path.getsize(self.log_path) if os.path.exists(self.log_path) else 0
        self.process = subprocess.Popen(command + ["--"] + program, env=ENVIRONMENT,
                                        stdout=self.output, stderr=subprocess.STDOUT)

    # Reads complete new lines of the log. Returns the new events.
    def read(self):
        new = []
        try:
            with open(self.log_path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return new
        end = data.rfind(b"\n") + 1
        self.offset += end
        for line in data[:end].splitlines():
            event = json.loads(line)
            self.events.append(event)
            self.take(event)
            new.append(event)
        return new

    def take(self, event):
        kind = event["event"]
        if kind == "start":
            self.alive[event["worker"]] = event["pid"]
        elif kind == "exit":
            self.alive.pop(event["worker"], None)
        elif kind == "plan":
            self.plan = event["plan"]["workers"]
        elif kind == "resize":
            self.wanted = event["to"]
        elif kind == "report":
            content = event["content"]
            self.reports.append(content)
            if content["step"] > self.steps:
                self.steps = content["step"]
                self.last_step_at = time.monotonic()
        elif kind == "notice" and event["kind"] == "members":
            # The notice of a dead leader may be read after that of its successor.
            if self.record is None or age(event["content"]) >= age(self.record):
                self.record = event["content"]
        elif kind == "notice" and event["kind"] == "state":
            self.holders.add(event["worker"])

    def members(self, role):
        """Living members of the newest record with this role."""
        if self.record is None:
            return []
        return [m["uid"] for m in self.record["members"]
                if m["role"] == role and m["uid"] in self.alive]

    def loading(self):
        """Workers that are alive and in no record yet."""
        known = {m["uid"] for m in self.record["members"]} if self.record else set()
        return [uid for uid in self.alive if uid not in known and uid in self.plan_or_all()]

    def plan_or_all(self):
        return self.plan or list(self.alive)

    def settled(self, steps):
        """Whether all workers train, none is joining or leaving, and this many steps were made since."""
        return (self.record is not None and len(self.record["members"]) == self.wanted
                and len(self.members("working")) == self.wanted == len(self.alive)
                and self.steps >= self.record["first"] + steps)

    def ended(self):
        return self.process.poll() is not None

    def wait_for(self, condition, seconds, what):
        """Waits until condition() is true. A Fault if the run ends or the time is over before."""
        until = time.monotonic() + seconds
        while True:
            ended = self.ended()
            self.read()
            if condition():
                return
            if ended:
                raise Fault(f"the run ended with code {self.process.returncode} before {what}; "
                            f"its log: {self.log_path}, its output: {self.output_path}")
            if time.monotonic() > until:
                raise Fault(f"timed out after {seconds:.0f} s, waiting for: {what}; log: {self.log_path}")
            time.sleep(POLL_SECONDS)

    def resize(self, workers):
        """Returns the time of the request, by time.monotonic()."""
        asked = time.monotonic()
        try:
            done = subprocess.run([self.rubato, "resize", self.name, str(workers)], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                  timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise Fault(f"rubato resize did not end within {HANG_SECONDS} s; log: "
                        f"{self.log_path}") from late
        self.read()
        if done.returncode != 0:
            raise Fault(f"rubato resize {workers}: {done.stdout.strip()}")
        return asked

    def signal_worker(self, uid, number):
        """True if the worker was alive. Checks that the pid is still a child of the launcher."""
        pid = self.alive.get(uid)
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            if int(fields[1]) != self.process.pid or fields[0] in "ZX":
                return False
            os.kill(pid, number)
            return True
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return False

    def finish(self, seconds):
        """Waits until the launcher has ended. Returns its exit code."""
        until = time.monotonic() + seconds
        while not self.ended():
            self.read()
            if time.monotonic() > until:
                raise Fault(f"the run did not end within {seconds:.0f} s after its last step but "
                            f"one; log: {self.log_path}")
            time.sleep(0.02)
        self.read()
        return self.process.returncode

    def stop(self):
        """Sends SIGTERM, as a user would. Returns the exit code."""
        if not self.ended():
            self.process.send_signal(signal.SIGTERM)
        code = self.finish(60)
        self.output.close()
        return code

    def destroy(self):
        """Kills what is left of the run. The launcher first, so that it replaces no worker."""
        if not self.ended():
            self.process.kill()
            self.process.wait()
        self.read()
        for pid in self.alive.values():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    ours = b"RUBATO_WORKER=" in file.read()
                if ours:
                    os.kill(pid, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                pass
        self.output.close()

    def notices(self, kind):
        return [e for e in self.events if e["event"] == "notice" and e["kind"] == kind]


def program_of(arguments, name):
    path = os.path.join(arguments.build, "examples", name)
    if not os.access(path, os.X_OK):
        raise CannotRun(f"{path} is missing; build it, or say where it is with --build")
    return path


def undisturbed(arguments, directory, name, program):
    """Runs one worker to the end. Returns the Run with its complete log."""
    run = Run(arguments, directory, name, "1", 1, program)
    try:
        steps = -1
        while not run.ended():
            run.read()
            if run.steps != steps:
                steps = run.steps
            elif time.monotonic() - run.last_step_at > HANG_SECONDS:
                raise Fault(f"the undisturbed run hangs after step {run.steps}; log: "
                            f"{run.log_path}")
            time.sleep(0.05)
        run.read()
        if run.process.returncode != 0:
            raise Fault(f"the undisturbed run ended with code {run.process.returncode}; "
                        f"output: {run.output_path}")
        return run
    finally:
        run.destroy()


def gaps_of(reports):
    """step -> seconds between this step and the one before, in the same job."""
    at = {r["step"]: r["applied_at"] for r in reports}
    return {step: at[step] - at[step - 1] for step in at if step - 1 in at}


# --- chaos ----------------------------------------------------------------------------------------

KILL_KINDS = {"member": 66, "pair": 12, "joining": 12, "loading": 10}
CHANCE_SECONDS = 300  # to wait for a worker in the state in which it should be killed
NEEDED_WORKERS = {"member": 2, "pair": 3}  # so that a worker with the state survives


class Chaos:
    """Random kills, stops and resizes of one run. Each waits until it is possible, even on a slow machine, so
    that all are done. The run continues until then."""

    def __init__(self, arguments, run):
        self.arguments = arguments
        self.run = run
        self.random = random.Random(arguments.seed)
        self.left = {"kill": arguments.kills, "resize": arguments.resizes, "stop": arguments.stop}
        self.kills = []  # {"kind", "victims", "survivors", "time"}
        self.stops = []
        self.dead = set()

    def carry_out(self):
        while sum(self.left.values()) > 0:
            self.wait_for_steps(self.random.randint(1, self.arguments.gap))
            # At a random time in a step, not only at its beginning.
            time.sleep(self.random.uniform(0, 0.06))
            self.run.read()
            kinds = [kind for kind, count in self.left.items() for _ in range(count)]
            kind = self.random.choice(kinds)
            how = self.random.choices(list(KILL_KINDS), list(KILL_KINDS.values()))[0]
            if how == "pair" and self.left["kill"] < 2:
                how = "member"
            until = time.monotonic() + CHANCE_SECONDS
            while not self.try_one(kind, how):
                if time.monotonic() > until:
                    raise Fault(f"no chance of a {kind} ({how}) within {CHANCE_SECONDS} s, at step "
                                f"{self.run.steps} with {self.run.wanted} workers wanted; log: "
                                f"{self.run.log_path}")
                self.prepare("member" if kind == "stop" else how)
            self.left[kind] -= 1
        self.wait_for_steps(self.arguments.gap)

    def wait_for_steps(self, steps):
        goal = self.run.steps + steps

        def reached():
            if time.monotonic() - self.run.last_step_at > HANG_SECONDS:
                raise Fault(f"no step for {HANG_SECONDS} s after step {self.run.steps}: the job "
                            f"hangs; log: {self.run.log_path}")
            return self.run.steps >= goal

        self.run.wait_for(reached, 86400, f"step {goal}")

    # There is no worker of that kind to kill: ask for more workers if none is joining, and wait.
    def prepare(self, how):
        run = self.run
        coming = bool(run.loading() or run.members("joining"))
        if how in ("joining", "loading"):
            if not coming and run.settled(0):
                self.ask_for(run.wanted + 1 if run.wanted < 4 else 2)
        elif run.wanted < NEEDED_WORKERS[how]:
            self.ask_for(self.random.randint(NEEDED_WORKERS[how], 4))
        self.wait_for_steps(1)

    def ask_for(self, workers):
        if self.left["resize"] > 0:
            self.left["resize"] -= 1
        self.run.resize(workers)

    def try_one(self, kind, how):
        if kind == "resize":
            others = [n for n in range(1, 5) if n != self.run.wanted]
            self.run.resize(self.random.choice(others))
            return True
        return self.try_stop() if kind == "stop" else self.try_kill(how)

    def safe_victims(self, count):
        """Working members that can be killed because others, who stay, hold the state, too."""
        working = [uid for uid in self.run.members("working") if uid not in self.dead]
        victims = self.random.sample(working, min(count, len(working)))
        return victims if len(victims) == count and self.state_survives(victims) else []

    # A worker is in a record shortly before it holds the state, and leaves shortly after a plan.
    def state_survives(self, victims):
        stay = set(self.run.members("working")) & self.run.holders & set(self.run.plan_or_all())
        return bool(stay - set(victims) - self.dead)

    def try_kill(self, kind):
        if kind in ("member", "pair"):
            victims = self.safe_victims(NEEDED_WORKERS[kind] - 1)
        elif kind == "joining":
            victims = self.wait_for_joining()
        else:
            loading = [uid for uid in self.run.loading() if uid not in self.dead]
            victims = [self.random.choice(loading)] if loading else []
        return bool(victims) and self.strike(kind, victims)

    # The transfer of the state is short, so wait for a worker that is loading.
    def wait_for_joining(self):
        run = self.run
        until = time.monotonic() + 3
        while not run.ended():
            run.read()
            joining = [uid for uid in run.members("joining") if uid not in self.dead]
            if joining:
                return [self.random.choice(joining)]
            if not run.loading() or time.monotonic() > until:
                return []
            time.sleep(POLL_SECONDS)
        return []

    def strike(self, kind, victims):
        run = self.run
        run.read()
        if not self.state_survives(victims):
            return False
        survivors = [uid for uid in run.members("working")
                     if uid not in victims and uid not in self.dead]
        now = time.time()
        struck = [uid for uid in victims if run.signal_worker(uid, signal.SIGKILL)]
        if not struck:
            return False
        self.dead.update(struck)
        if kind == "pair":
            if len(struck) == 2:
                self.left["kill"] -= 1
            else:
                kind = "member"
        self.kills.append({"kind": kind, "victims": struck, "survivors": survivors, "time": now,
                           "step": run.steps})
        return True

    def try_stop(self):
        victims = self.safe_victims(1)
        if not victims:
            return False
        run = self.run
        survivors = [u for u in run.members("working") if u not in victims and u not in self.dead]
        now = time.time()
        if not run.signal_worker(victims[0], signal.SIGSTOP):
            return False
        self.dead.update(victims)
        stop = {"kind": "stop", "victims": victims, "survivors": survivors, "time": now,
                "step": run.steps}
        self.stops.append(stop)
        run.wait_for(lambda: recovery_seconds(run, stop) is not None,
                     self.arguments.heartbeat + 30, f"survivors of stopped worker {victims[0]}")
        return True


def recovery_seconds(run, kill):
    """Seconds from the kill until the last survivor had recovered from all these deaths; None if it has not.
    (A survivor that died meanwhile does not count.)"""
    last = None
    for survivor in kill["survivors"]:
        missing = set(kill["victims"])
        at = None
        for event in run.events:
            if event["time"] < kill["time"] or event.get("worker") != survivor:
                continue
            if event["event"] == "exit":
                break
            if event["event"] == "notice" and event["kind"] == "recovered":
                missing -= set(event["content"]["dead"])
                if not missing:
                    at = event["time"]
                    break
        if at is not None:
            last = max(last or 0, at - kill["time"])
        elif survivor in run.alive:
            return None
    return last


def check_result(run, stopped, reference, faults):
    """Checks that the job equals the undisturbed one: every step, every epoch, every bit."""
    steps = stopped["step"]
    expected = reference.notices("finished")[-1]["content"]
    if stopped["digest"] != expected["digest"]:
        faults.append(f"the trained model differs: digest {stopped['digest']}, undisturbed "
                      f"{expected['digest']}")
    elif expected["step"] != steps:
        faults.append(f"the undisturbed run finished at step {expected['step']}, not {steps}")

    compared = ("step", "epoch", "cursor", "samples", "loss")
    truth = {r["step"]: tuple(r[k] for k in compared) for r in reference.reports}
    seen = set()
    for report in run.reports:
        content = tuple(report[k] for k in compared)
        seen.add(report["step"])
        if content != truth.get(report["step"]):
            faults.append(f"step {report['step']} was published as {content}, undisturbed it is "
                          f"{truth.get(report['step'])}")
            break
    missing = sorted(set(truth) - seen)
    if missing:
        faults.append(f"{len(missing)} steps were never published, the first is {missing[0]}")
    if len(truth) != steps:
        faults.append(f"the undisturbed run published {len(truth)} of {steps} steps")

    ended = {r["epoch"] for r in reference.reports if r["ends_epoch"]}
    confirmed = {r["epoch"] for r in run.reports if r["ends_epoch"]}
    if ended != confirmed:
        faults.append(f"epochs confirmed: {sorted(confirmed)}, undisturbed: {sorted(ended)}")
    return len(ended)


def chaos(arguments, directory):
    if arguments.heartbeat < 0.5:
        raise CannotRun("--heartbeat: give 0.5 or more")
    program = [program_of(arguments, arguments.program)] + arguments.arguments
    disturbed = program + ["--steps", str(ENDLESS), "--checkpoint-steps", "50",
                           "--checkpoint", os.path.join(directory, "checkpoint")]
    run = Run(arguments, directory, "chaos", "1:4", 3, disturbed, arguments.heartbeat)
    agitator = Chaos(arguments, run)
    faults = []
    try:
        agitator.carry_out()
        code = run.stop()
        if code != 128 + signal.SIGTERM:
            faults.append(f"the run ended with code {code}; output: {run.output_path}")
    finally:
        run.destroy()
    stopped = run.notices("stopped")
    if not stopped:
        raise Fault(f"no worker said that it stopped with the state; log: {run.log_path}")
    steps = stopped[-1]["content"]["step"]
    reference = undisturbed(arguments, directory, "undisturbed", program + ["--steps", str(steps)])
    epochs = check_result(run, stopped[-1]["content"], reference, faults)

    ends = [e for e in run.events if e["event"] == "end"]
    fresh = ends[-1]["fresh_starts"] if ends else 0
    if fresh:
        faults.append(f"the job was started again from its checkpoint {fresh} times although a "
                      "member that held the state lived")
    for kind in ("failed", "refused"):
        for event in run.notices(kind):
            faults.append(f"worker {event['worker']} said {kind}: {event['content'].get('text')}")

    recoveries = []
    for kill in agitator.kills + agitator.stops:
        kill["recovered_s"] = recovery_seconds(run, kill)
        if kill["kind"] in ("member", "pair", "stop") and kill["recovered_s"] is None and \
                lived_to_the_end(run, kill["survivors"]):
            faults.append(f"no recovery is known from the {kill['kind']} of {kill['victims']} "
                          f"at step {kill['step']}")
        if kill["kind"] in ("member", "pair") and kill["recovered_s"] is not None:
            recoveries.append(kill["recovered_s"])
    silent = [s["recovered_s"] for s in agitator.stops if s["recovered_s"] is not None]
    missed = judge_chaos(arguments, recoveries, silent)
    report_chaos(arguments, agitator, run, steps, epochs, fresh, recoveries, silent, faults,
                 missed)
    if arguments.strict:
        faults += missed
    return faults


def lived_to_the_end(run, uids):
    """Whether one of them was there at the job's end, so that it must have recovered from all deaths."""
    end = run.notices("stopped")[-1]["time"]
    return any(e["event"] == "exit" and e["worker"] in uids and not e["killed"]
               and e["time"] >= end for e in run.events)


def judge_chaos(arguments, recoveries, stopped):
    missed = []
    if recoveries and median(recoveries) >= 0.2:
        missed.append(f"median recovery is {median(recoveries) * 1000:.0f} ms; the goal is 200")
    if recoveries and quantile(recoveries, 0.99) >= 1:
        missed.append(f"p99 of recoveries is {quantile(recoveries, 0.99):.2f} s; the goal is 1")
    if stopped and max(stopped) > arguments.heartbeat + 1:
        missed.append(f"a stopped worker held up the others for {max(stopped):.2f} s; the goal is "
                      f"{arguments.heartbeat + 1:.1f}")
    return missed


def report_chaos(arguments, agitator, run, steps, epochs, fresh, recoveries, stopped, faults,
                 missed):
    kinds = {k: sum(kill["kind"] == k for kill in agitator.kills) for k in KILL_KINDS}
    repeated = len(run.reports) - len({r["step"] for r in run.reports})
    killed = sum(len(k["victims"]) for k in agitator.kills)
    asked = [e for e in run.events if e["event"] == "resize"]
    seconds = run.events[-1]["time"] - run.events[0]["time"]
    if arguments.json:
        print(json.dumps({"benchmark": "chaos", "seed": arguments.seed, "steps": steps,
                          "seconds": seconds, "kills": killed, "kinds": kinds,
                          "resizes": len(asked), "epochs": epochs, "fresh_starts": fresh,
                          "republished_steps": repeated, "recovery_s": spread(recoveries),
                          "stop_s": spread(stopped), "goals_missed": missed, "faults": faults},
                         indent=2))
        return
    print(f"chaos, seed {arguments.seed}: {arguments.program}, {steps} steps in {seconds:.0f} s, "
          f"{killed} workers killed ({', '.join(f'{v} {k}' for k, v in kinds.items())}), "
          f"{len(asked)} resizes, {len(agitator.stops)} stopped; {epochs} epochs confirmed, "
          f"{repeated} steps published again, {fresh} starts from the checkpoint")
    row("from kill to the last survivor's recovery", recoveries, "ms", 1000)
    if agitator.stops:
        row(f"from SIGSTOP, heartbeat {arguments.heartbeat} s", stopped, "ms", 1000)
    for text in missed:
        print("goal missed: " + text)
    if not faults:
        print("same bits as the undisturbed run")


# --- resize ---------------------------------------------------------------------------------------

CYCLE = (2, 4, 3, 1)  # after a start with 1
ENDLESS = 1_000_000_000
SHORTEST_PAUSE = 0.001  # for ratios: less than this is within the noise of a step
PATIENCE = 300


def steady(gaps, first, last):
    """Median of the steps first..last; None if there are none."""
    inside = [gaps[s] for s in range(first, last + 1) if s in gaps]
    return median(inside) if inside else None


def unsteadiness(gaps, first, last):
    """Median distance of the steps first..last from their median. A shorter pause cannot be told from none."""
    usual = steady(gaps, first, last)
    return median([abs(gaps[s] - usual) for s in range(first, last + 1) if s in gaps]) if usual else 0.0


class LiveResize:
    """(a): rubato resize of a running job."""

    def __init__(self, arguments, directory, flags=()):
        self.flags = flags
        self.arguments = arguments
        self.directory = directory
        self.program = [program_of(arguments, arguments.program), "--steps", str(ENDLESS)]
        self.blocks = 0
        self.samples = []
        self.run = None

    def begin(self, size):
        self.blocks += 1
        self.run = Run(self.arguments, self.directory, f"live{self.blocks}", "1:4", size,
                       self.program, flags=self.flags)
        self.settle(size)

    def end(self):
        if self.run is not None:
            try:
                self.run.stop()
            finally:
                self.run.destroy()
                self.run = None

    def settle(self, size):
        self.run.wait_for(lambda: self.run.settled(self.arguments.settle), PATIENCE,
                          f"{size} steady workers")

    def change(self, size):
        run = self.run
        known = len(run.notices("members"))
        before = run.steps
        grew = size > run.wanted
        asked = run.resize(size)
        self.settle(size)
        records = [e["content"] for e in run.notices("members")][known - 1:]
        at = {r["step"]: r["applied_at"] for r in run.reports}
        gaps = gaps_of(run.reports)
        old = steady(gaps, before - self.arguments.settle + 1, before)
        sets = [(r["first"], {m["uid"] for m in r["members"] if m["role"] == "working"})
                for r in records]
        changes = [(first, len(now)) for (_, then), (first, now) in zip(sets, sets[1:])
                   if now != then]
        for i, (first, workers) in enumerate(changes):
            last = changes[i + 1][0] - 1 if i + 1 < len(changes) else run.steps
            usual = max(old, steady(gaps, first + 1, last) or 0)
            self.samples.append({"to": workers, "pause": gaps[first] - usual,
                                 "ratio": gaps[first] / usual, "steady": usual, "step": first,
                                 "unsteadiness": unsteadiness(gaps, first + 1, last)})
            old = steady(gaps, first + 1, last) or old
        self.note_disturbance(asked, at, gaps, before, changes[-1][0], grew)

    # Steps that ended between the request and the last change, without the step of the change.
    def note_disturbance(self, asked, at, gaps, before, changed, grew):
        usual = steady(gaps, before - self.arguments.settle + 1, before)
        during = [gaps[s] for s in range(before, changed) if at[s] > asked]
        sample = self.samples[-1]
        sample["waited"] = at[changed] - asked
        if during and grew:
            sample["disturbance"] = median(during) / usual
            sample["longest"] = max(during) - usual
            sample["lost"] = sum(gap - usual for gap in during)


class CheckpointRestart:
    """(b): the same trainer, stopped with a checkpoint and started with another number of workers."""

    def __init__(self, arguments, directory):
        self.arguments = arguments
        self.directory = directory
        self.program = [program_of(arguments, arguments.program), "--steps", str(ENDLESS),
                        "--checkpoint", os.path.join(directory, "restarted"),
                        "--checkpoint-seconds", "0"]
        self.starts = 0
        self.samples = []
        self.run = None

    def begin(self, size):
        self.starts += 1
        self.run = Run(self.arguments, self.directory, f"restarted{self.starts}", str(size), size,
                       self.program)
        self.settle(size)

    def settle(self, size):
        LiveResize.settle(self, size)

    def end(self):
        LiveResize.end(self)

    def change(self, size):
        old = self.run
        self.end()
        self.begin(size)
        new = self.run
        last = old.reports[-1]
        first = new.reports[0]
        if first["step"] != last["step"] + 1:
            raise Fault(f"stopped after step {last['step']}, but continued with {first['step']}; "
                        f"logs: {old.log_path}, {new.log_path}")
        full = next(r for r in new.reports if r["workers"] == size)
        before = steady(gaps_of(old.reports), last["step"] - self.arguments.settle,
                        last["step"] - 1)
        after = steady(gaps_of(new.reports), full["step"] + 1, new.steps)
        usual = max(before or 0, after or 0)
        gap = first["applied_at"] - last["applied_at"]
        self.samples.append({"to": size, "pause": gap - usual, "ratio": gap / usual,
                             "steady": usual, "step": first["step"],
                             "complete": full["applied_at"] - last["applied_at"]})


class TorchrunRestart:
    """(c): torchrun's elastic restart. Each worker has its own agent, as on its own node.

    All time-outs are as short as torchrun allows, far below their defaults (--monitor_interval 5,
    last_call_timeout 30). So the figure is torchrun's best. An agent that left is still noticed only by its
    missing keep-alives, whose time-out cannot be set."""

    def __init__(self, arguments, directory):
        self.arguments = arguments
        self.directory = directory
        self.script = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                   "elastic_torchrun.py")
        self.log_path = os.path.join(directory, "torchrun.log")
        self.agents = []
        self.lost = 0  # changes after which training did not continue
        self.samples = []
        self.blocks = 0
        self.port = 0

    def begin(self, size):
        self.blocks += 1
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        known = len(self.reports())
        for _ in range(size):
            self.add_agent()
        self.settle(size, known)

    def add_agent(self):
        command = [self.arguments.python, "-m", "torch.distributed.run", "--nnodes", "1:4",
                   "--nproc_per_node", "1", "--max_restarts", "1000", "--monitor_interval", "0.1",
                   "--rdzv_backend", "c10d", "--rdzv_endpoint", f"localhost:{self.port}",
                   "--rdzv_id", f"elastic{self.blocks}", "--rdzv_conf", "last_call_timeout=1",
                   # torch 1.13 under Python 3.11 fails with its own defaults for these two.
                   "--redirects", "1", "--tee", "1",
                   "--log_dir", os.path.join(self.directory, "torchrun-logs"),
                   self.script, "--checkpoint", os.path.join(self.directory, "torchrun.state"),
                   "--log", self.log_path]
        output = open(os.path.join(self.directory, "torchrun.out"), "ab")
        environment = dict(ENVIRONMENT, GLOO_SOCKET_IFNAME="lo")
        self.agents.append(subprocess.Popen(command, env=environment, stdout=output,
                                            stderr=subprocess.STDOUT, start_new_session=True))
        output.close()

    def reports(self):
        try:
            with open(self.log_path, encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def settle(self, size, known):
        until = time.monotonic() + PATIENCE
        while True:
            new = self.reports()[known:]
            tail = new[-self.arguments.settle - 1:]
            if len(tail) > self.arguments.settle and all(
                    r["workers"] == size and r["pid"] == tail[-1]["pid"] for r in tail):
                return
            if self.agents[0].poll() is not None or time.monotonic() > until:
                raise Fault(f"torchrun did not come to {size} workers; its output: "
                            f"{self.directory}/torchrun.out")
            time.sleep(0.05)

    def change(self, size):
        known = len(self.reports())
        before = self.reports()[-self.arguments.settle - 1:]
        for _ in range(size - len(self.agents)):
            self.add_agent()
        leaving, self.agents = self.agents[size:], self.agents[:size]
        for agent in leaving:
            agent.send_signal(signal.SIGTERM)
        self.settle(size, known)
        for agent in leaving:
            wait_or_kill(agent)
        after = self.reports()[known - 1:]
        i = next(i for i in range(1, len(after)) if after[i]["pid"] != after[i - 1]["pid"])
        full = next(r for r in after[i:] if r["workers"] == size)
        usual = max(median(list(gaps_of(before).values())),
                    median(list(gaps_of(after[-self.arguments.settle:]).values())))
        gap = after[i]["applied_at"] - after[i - 1]["applied_at"]
        self.samples.append({"to": size, "pause": gap - usual, "ratio": gap / usual,
                             "steady": usual, "step": after[i]["step"],
                             "complete": full["applied_at"] - after[i - 1]["applied_at"]})

    # The first agent hosts the store of the others, so it is stopped last.
    def end(self):
        for agent in reversed(self.agents):
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
            wait_or_kill(agent)
        self.agents = []


def wait_or_kill(agent):
    """For a process that leads its own session."""
    try:
        agent.wait(timeout=45)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(agent.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    agent.wait()


def change_or_begin_again(way, size):
    """torchrun's agents do not always find each other again. Then torchrun is restarted."""
    try:
        way.change(size)
    except Fault as fault:
        if not isinstance(way, TorchrunRestart) or way.lost >= 3:
            raise
        way.lost += 1
        print(f"lost, and restarted: {fault}", file=sys.stderr)
        way.end()
        way.begin(size)


def resize(arguments, directory):
    ways = {"live": (LiveResize(arguments, directory), arguments.resizes),
            "checkpoint": (CheckpointRestart(arguments, directory), arguments.checkpoint_restarts)}
    if arguments.torchrun_restarts > 0:
        probe = subprocess.run([arguments.python, "-c", "import torch.distributed.run"],
                               stderr=subprocess.DEVNULL, check=False)
        if probe.returncode != 0:
            raise CannotRun(f"{arguments.python} has no torchrun; use --python or "
                            "--torchrun-restarts 0")
    ways["torchrun"] = (TorchrunRestart(arguments, directory), arguments.torchrun_restarts)

    # The methods take turns, so that a slow period of the machine affects all of them.
    for block in range(arguments.blocks):
        for way, count in ways.values():
            done = count * block // arguments.blocks
            share = count * (block + 1) // arguments.blocks - done
            if share == 0:
                continue
            size = CYCLE[(done - 1) % len(CYCLE)]
            try:
                way.begin(size)
                for i in range(done, done + share):
                    change_or_begin_again(way, CYCLE[i % len(CYCLE)])
            finally:
                way.end()
            print(f"block {block + 1} of {arguments.blocks}: {type(way).__name__} "
                  f"{len(way.samples)} changes", file=sys.stderr)
    return report_resize(arguments, {name: way.samples for name, (way, _) in ways.items()})


def report_resize(arguments, samples):
    pauses = {name: [s["pause"] for s in all_of] for name, all_of in samples.items()}
    grown = [s for s in samples["live"] if "disturbance" in s]
    shown = max(median(pauses["live"]), SHORTEST_PAUSE) if pauses["live"] else None
    ratios = {name: median(pauses[name]) / shown for name in ("checkpoint", "torchrun")
              if pauses[name] and shown}
    missed = []
    if pauses["live"] and median(pauses["live"]) >= 0.1:
        missed.append(f"median pause is {median(pauses['live']) * 1000:.0f} ms; the goal is 100")
    for name, goal in (("checkpoint", 15), ("torchrun", 50)):
        if name in ratios and ratios[name] < goal:
            missed.append(f"the pause is {ratios[name]:.1f} times shorter than with {name} "
                          f"restart; the goal is {goal}")
    if arguments.json:
        print(json.dumps({"benchmark": "resize", "program": arguments.program,
                          "pause_s": {n: spread(p) for n, p in pauses.items()},
                          "gap_over_steady": {n: spread([s["ratio"] for s in a])
                                              for n, a in samples.items()},
                          "disturbance": spread([s["disturbance"] for s in grown]),
                          "ratios": ratios, "goals_missed": missed, "samples": samples}, indent=2))
        return missed if arguments.strict else []
    print(f"load of the machine at the end {os.getloadavg()[0]:.1f}, of our own and of others")
    print(f"resize of {arguments.program}, cycle 1-2-4-3-1; pause = gap between the two steps "
          "around the change - a steady step")
    for name, label in (("live", "(a) live resize"), ("checkpoint", "(b) checkpoint, restart"),
                        ("torchrun", "(c) torchrun elastic restart")):
        row(f"{label}: pause", pauses[name], "ms", 1000)
        row(f"{label}: gap / steady step", [s["ratio"] for s in samples[name]], "x ")
        row(f"{label}: steady step", [s["steady"] for s in samples[name]], "ms", 1000)
        row(f"{label}: until the new size", [s["complete"] for s in samples[name]
                                             if "complete" in s], "ms", 1000)
    row("(a) joiners load: step / steady before", [s["disturbance"] for s in grown], "x ")
    row("(a) joiners load: longest step - steady", [s["longest"] for s in grown], "ms", 1000)
    row("(a) joiners load: sum of the slow-down", [s["lost"] for s in grown], "ms", 1000)
    row("(a) from the request to the new size", [s["waited"] for s in samples["live"]
                                                 if "waited" in s], "ms", 1000)
    for name, ratio in ratios.items():
        floor = "" if shown > SHORTEST_PAUSE else " (the live pause taken as 1 ms)"
        print(f"{name} restart pauses {ratio:.1f} times as long as a live resize{floor}")
    for text in missed:
        print("goal missed: " + text)
    return missed if arguments.strict else []


# --- soak -----------------------------------------------------------------------------------------

MEMORY_FACTOR = 1.1
MEMORY_SLACK_KB = 20 * 1024


def sample_process(pid):
    """Resident kB and open descriptors; None if the process is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
        return resident, len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return None


def soak(arguments, directory):
    program = [program_of(arguments, arguments.program), "--steps", str(arguments.steps)]
    choose = random.Random(arguments.seed)
    run = Run(arguments, directory, "soak", "1:3", 1, program)
    samples = {"launcher": [], "worker 1": []}
    resizes = 0
    resized_at = 0
    faults = []
    try:
        run.wait_for(lambda: run.steps >= 1, PATIENCE, "the first step")
        veteran = min(run.alive)  # plans drop the newest, so it stays to the end
        next_sample = 0.0
        while run.steps < arguments.steps - 2 and not run.ended():
            run.read()
            if time.monotonic() - run.last_step_at > HANG_SECONDS:
                raise Fault(f"no step for {HANG_SECONDS} s after step {run.steps}: the job hangs; "
                            f"log: {run.log_path}")
            # Only when the last resize is complete: one that is replaced at once moves nothing.
            due = resized_at + arguments.every
            if due <= run.steps < arguments.steps - arguments.every and run.settled(10):
                resized_at = run.steps
                run.resize(choose.choice([n for n in (1, 2, 3) if n != run.wanted]))
                resizes += 1
            if time.monotonic() >= next_sample:
                next_sample = time.monotonic() + 0.25
                for name, pid in (("launcher", run.process.pid),
                                  ("worker 1", run.alive.get(veteran))):
                    sample = sample_process(pid)
                    if sample and run.settled(1):
                        samples[name].append(sample + (run.wanted,))
            time.sleep(0.02)
        code = run.finish(60)
        if code != 0:
            faults.append(f"the run ended with code {code}; output: {run.output_path}")
        published = len({r["step"] for r in run.reports})
        if published != arguments.steps:
            faults.append(f"{published} of {arguments.steps} steps were published")
        ends = [e for e in run.events if e["event"] == "end"]
        if not ends or ends[-1]["failures"] or ends[-1]["fresh_starts"]:
            faults.append(f"nobody was killed, and yet workers failed; log: {run.log_path}")
    finally:
        run.destroy()
    growth = {name: judge_growth(name, all_of, faults) for name, all_of in samples.items()}
    report_soak(arguments, run, resizes, growth, faults)
    return faults


def judge_growth(name, samples, faults):
    """The medians of the first and of the last quarter."""
    quarter = len(samples) // 4
    if quarter < 4:
        faults.append(f"{name}: only {len(samples)} samples; give more --steps")
        return {}
    first, last = samples[:quarter], samples[-quarter:]
    memory = [median([s[0] for s in part]) for part in (first, last)]
    # Each further worker needs some descriptors, so only equal numbers of workers are compared.
    files = {}
    for workers in sorted({s[2] for s in first} & {s[2] for s in last}):
        files[workers] = [median([s[1] for s in part if s[2] == workers]) for part in (first, last)]
    if memory[1] > memory[0] * MEMORY_FACTOR + MEMORY_SLACK_KB:
        faults.append(f"{name}: memory grew from {memory[0] / 1024:.0f} to "
                      f"{memory[1] / 1024:.0f} MiB")
    for workers, (before, after) in files.items():
        if after > before:
            faults.append(f"{name}: open descriptors with {workers} workers grew from {before:.0f} "
                          f"to {after:.0f}")
    return {"memory_mib": [m / 1024 for m in memory], "descriptors": files,
            "samples": len(samples)}


def report_soak(arguments, run, resizes, growth, faults):
    seconds = run.events[-1]["time"] - run.events[0]["time"]
    if arguments.json:
        print(json.dumps({"benchmark": "soak", "steps": arguments.steps, "resizes": resizes,
                          "seconds": seconds, "growth": growth, "faults": faults}, indent=2))
        return
    print(f"soak: {arguments.program}, {arguments.steps} steps and {resizes} resizes in "
          f"{seconds:.0f} s; first quarter -> last quarter")
    for name, g in growth.items():
        if g:
            files = ", ".join(f"{before:.0f} -> {after:.0f} with {workers} workers"
                              for workers, (before, after) in g["descriptors"].items())
            print(f"{name:<12} memory {g['memory_mib'][0]:7.1f} -> {g['memory_mib'][1]:7.1f} MiB, "
                  f"descriptors {files}")


# --- command line ---------------------------------------------------------------------------------


def parse():
    parser = argparse.ArgumentParser(description="Benchmarks of elastic training.")
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--build", default="build", help="directory of rubato and examples/")
    shared.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    shared.add_argument("--keep", action="store_true", help="keep the logs, and say where they are")
    shared.add_argument("--strict", action="store_true", help="a missed goal is a fault too")

    one = commands.add_parser("chaos", parents=[shared],
                              help="random kills and resizes; compares with an undisturbed run")
    one.add_argument("--kills", type=int, default=100)
    one.add_argument("--resizes", type=int, default=50)
    one.add_argument("--stop", type=int, default=0, help="members stopped with SIGSTOP")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--program", default="mlp", help="of examples/")
    one.add_argument("--gap", type=int, default=20, help="most steps between two actions")
    one.add_argument("--heartbeat", type=float, default=5)
    one.add_argument("arguments", nargs="*", help="of the program, after --")
    one.set_defaults(function=chaos)

    one = commands.add_parser("resize", parents=[shared],
                              help="pause of a resize, live and in two other ways, in turns")
    one.add_argument("--resizes", type=int, default=50, help="live")
    one.add_argument("--checkpoint-restarts", type=int, default=8)
    one.add_argument("--torchrun-restarts", type=int, default=6)
    one.add_argument("--blocks", type=int, default=2, help="turns of the three ways")
    one.add_argument("--settle", type=int, default=6, help="steady steps between two changes")
    one.add_argument("--program", default="wide", help="of examples/")
    one.add_argument("--python", default="/usr/bin/python3", help="one that has torch")
    one.set_defaults(function=resize)

    one = commands.add_parser("soak", parents=[shared], help="memory and descriptors over resizes")
    one.add_argument("--steps", type=int, default=10000)
    one.add_argument("--every", type=int, default=50, help="steps between two resizes")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--program", default="mlp", help="of examples/")
    one.set_defaults(function=soak)
    return parser.parse_args()


def measured(arguments, directory):
    """The failed checks, as sentences."""
    if not os.access(os.path.join(arguments.build, "rubato"), os.X_OK):
        raise CannotRun(f"{arguments.build}/rubato is missing; build it, or use --build")
    try:
        return arguments.function(arguments, directory)
    except Fault as fault:
        return [str(fault)]


def main():
    arguments = parse()
    arguments.build = os.path.abspath(arguments.build)
    directory = tempfile.mkdtemp(prefix="rubato-elastic-")
    keep = arguments.keep
    try:
        faults = measured(arguments, directory)
        keep = keep or bool(faults)
        for fault in faults:
            print(f"elastic.py: {fault}", file=sys.stderr)
        return 1 if faults else 0
    except CannotRun as why:
        print(f"elastic.py: {why}", file=sys.stderr)
        return 2
    finally:
        if keep:
            print(f"elastic.py: logs are in {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
