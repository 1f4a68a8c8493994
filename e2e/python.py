#!/usr/bin/env python3
"""Elastic PyTorch programs with real processes: the trained model is the same, whatever happens to the workers.

    e2e/python.py --list
    e2e/python.py BUILD SCENARIO

The programs wait at steps that the scenario chooses (trainer.py), so no result depends on the speed of the machine.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import live

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent / "python"
sys.path.insert(0, str(PACKAGE))
import rubato  # noqa: E402  pylint: disable=wrong-import-position

PATIENCE = float(os.environ.get("PATIENCE", "240"))  # seconds for anything to happen
STEPS = 84  # 4 epochs of 1003 samples in batches of 48
OPTIMIZERS = ("SGD", "AdamW", "NAdam")
MODELS = ("mlp", "norm", "dropout")
DISTURBANCES = ("grow", "shrink", "leader", "donor", "joiner", "all")


def python():
    """A Python that has torch. Another python3 may be first on the PATH."""
    for program in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([program, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"],
                          check=False).returncode == 0:
            return program
    raise SystemExit("no python3 here has torch; install the package python3-torch")


class Failed(Exception):
    pass


def check(name, holds):
    print(f"{'passed' if holds else 'FAILED'}: {name}", flush=True)
    if not holds:
        raise Failed(name)


def await_(what, condition, patience=PATIENCE):
    until = time.monotonic() + patience
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise Failed(f"waited {patience:.0f} s for: {what}")


def interruptible():
    """A shell that starts this in the background lets its programs ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Run:
    """`rubato run` of a program, with a directory of its own."""

    def __init__(self, build, root, name, program, flags=(), **environment):
        self.rubato = str(build / "rubato")
        self.directory = root / name
        self.directory.mkdir()
        self.name = name
        self.log = self.directory / "log"
        self.environment = {
            **os.environ, "PYTHONPATH": str(PACKAGE), "LIBRUBATO": str(build / "librubato.so"),
            "XDG_RUNTIME_DIR": str(root), "PYTHONDONTWRITEBYTECODE": "1",
            **{key: str(value) for key, value in environment.items()}}
        self.program, self.flags, self.process = program, list(flags), None

    def start(self):
        with open(self.directory / "out", "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                [self.rubato, "run", "--name", self.name, "--log", str(self.log), *self.flags, "--", *self.program],
                cwd=self.directory, env=self.environment, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                preexec_fn=interruptible)
        return self

    def allow(self, step):
        """Nobody computes a step beyond this one. None: no limit."""
        if step is None:
            (self.directory / "open").unlink(missing_ok=True)
            return
        new = self.directory / "open.new"
        new.write_text(str(step), encoding="utf-8")
        new.rename(self.directory / "open")

    def step(self):
        """The step at which workers wait."""
        return int((self.directory / "waits").read_text(encoding="utf-8"))

    def blocked_at(self, step):
        def waits():
            try:
                return int((self.directory / "waits").read_text(encoding="utf-8") or 0) >= step
            except FileNotFoundError:
                return False
        await_(f"step {step} of {self.name}", lambda: waits() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended before step {step}:\n{self.output()}")

    def output(self):
        return (self.directory / "out").read_text(encoding="utf-8", errors="replace")

    def lines(self):
        if not self.log.exists():
            return []
        found = []
        for line in self.log.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # the last one is being written
                break
        return found

    def notices(self, kind):
        return [line["content"] for line in self.lines() if line["event"] == "notice" and line["kind"] == kind]

    def reports(self):
        return [line["content"] for line in self.lines() if line["event"] == "report"]

    def members(self, role):
        known = self.notices("members")
        return [member for member in known[-1]["members"] if member["role"] == role] if known else []

    def greeted(self):
        return sum(line["event"] == "hello" for line in self.lines())

    def resize(self, workers):
        subprocess.run([self.rubato, "resize", self.name, str(workers)], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL)

    def pid(self, uid):
        return [line["pid"] for line in self.lines() if line["event"] == "start" and line["worker"] == uid][-1]

    def kill(self, uid):
        os.kill(self.pid(uid), signal.SIGKILL)

    def step_until(self, what, step, condition):
        """Opens one step after the other until the condition holds. Returns the step at which all wait."""
        while True:
            self.blocked_at(step)
            until = time.monotonic() + 1  # for news to arrive
            while time.monotonic() < until:
                if condition():
                    return step
                time.sleep(0.02)
            if step > STEPS - 15:
                raise Failed(f"no step brought this: {what}; the members are {self.notices('members')[-1:]}")
            self.allow(step)
            step += 1

    def ended(self):
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return "it does not end"

    def digest(self):
        finished = self.notices("finished")
        return finished[-1]["digest"] if finished else None

    def clean_up(self):
        for line in self.lines():
            if line["event"] == "start" and self.directory.as_posix() == cwd_of(line["pid"]):
                os.kill(line["pid"], signal.SIGKILL)
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def cwd_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


# --- what happens to the workers ---


def grow_to(run, workers, step):
    run.resize(workers)
    await_(f"{workers} workers of {run.name}", lambda: run.greeted() >= workers)
    return run.step_until("all workers take part", step, lambda: len(run.members("working")) == workers)


def begin(run):
    run.allow(10)
    run.start()
    run.blocked_at(11)
    return 11


def until_joining(run, step):
    """All wait at a step during which a joining worker receives the state. Returns that worker's entry."""
    run.step_until("a worker is joining", step, lambda: run.members("joining"))
    return run.members("joining")[0]


def disturb(run, how):
    step = begin(run)
    if how == "grow":
        grow_to(run, 3, step)
    elif how == "shrink":
        step = grow_to(run, 3, step)
        run.resize(1)
        run.step_until("one worker is left", step, lambda: len(run.members("working")) == 1 and not run.members("leaving"))
    elif how == "leader":
        step = grow_to(run, 2, step)
        run.kill(min(member["uid"] for member in run.members("working")))
        await_("another worker", lambda: run.greeted() >= 3)
    elif how == "donor":
        step = grow_to(run, 2, step)
        run.resize(3)
        await_("a third worker", lambda: run.greeted() >= 3)
        run.kill(until_joining(run, step)["donor"])
        await_("another worker", lambda: run.greeted() >= 4)
    elif how == "joiner":
        run.resize(2)
        await_("a second worker", lambda: run.greeted() >= 2)
        run.kill(until_joining(run, step)["uid"])
        await_("another worker", lambda: run.greeted() >= 3)
    else:
        grow_to(run, 2, step)
        run.allow(40)
        # Any of them: one is skipped while the one before is still being written.
        run.step_until("a checkpoint", 41, lambda: any((run.directory / "saved").glob("step-*.ckpt")))
        for member in run.members("working"):
            run.kill(member["uid"])
    run.allow(None)


def combination(build, root, optimizer, model, how, **more):
    program = [python(), str(HERE / "trainer.py")]
    settings = {"OPTIMIZER": optimizer, "MODEL": model, **more}
    plain = Run(build, root, "plain", program, ["--workers", "1"], **settings)
    saved = {"RUBATO_CHECKPOINT": "saved", "CHECKPOINT_STEPS": 10} if how == "all" else {}
    run = Run(build, root, "run", program, ["--workers", "1:3", "--start", "1"], **settings, **saved)
    try:
        plain.start()
        disturb(run, how)
        check("the undisturbed run finishes", plain.ended() == 0)
        check("the disturbed run finishes", run.ended() == 0)
        check(f"{how} changes no bit of {optimizer} with {model}", run.digest() is not None
              and run.digest() == plain.digest())
        steps = [r["step"] for r in run.reports()]
        if how == "all":  # which repeats the steps after the checkpoint
            check("every step is published", sorted(set(steps)) == list(range(1, STEPS + 1)))
        else:
            check("every step is published once", steps == list(range(1, STEPS + 1)))
        check("every epoch used each sample exactly once, as counted by its workers",
              sorted({r["epoch"] for r in run.reports() if r["ends_epoch"]}) == [0, 1, 2, 3])
        losses = {r["step"]: r["loss"] for r in plain.reports()}
        check("the loss that is reported is the mean over all workers, to the bit",
              all(r["loss"] == losses[r["step"]] for r in run.reports()))
        check("other values are reported, too", all(("right" in r["metrics"]) == (r["step"] % 5 == 0)
                                                    for r in run.reports()))
        if how in ("grow", "shrink"):
            check("three workers shared the work", max(r["workers"] for r in run.reports()) == 3)
            check("who joins has computed something before, and nobody else has",
                  set(re.findall(r"worker (\d+) computes before it has joined", run.output())) == {"2", "3"})
        if how in ("leader", "donor"):
            check("the survivors recovered", bool(run.notices("recovered")))
        if how == "all":
            check("it resumed from a checkpoint", "resumed from saved/step-0000000000" in run.output())
    except (Failed, live.Failure) as error:
        print(f"FAILED: {error}\n{run.output()}\n{plain.output()}")
        raise
    finally:
        run.clean_up()
        plain.clean_up()


# --- one at a time ---


def single(build, root, name, flags=("--workers", "1"), program="trainer.py", **settings):
    return Run(build, root, name, [python(), str(HERE / program)], flags, **settings)


def loaders(build, root):
    """DataLoaders with processes of their own, which are alive when their parent is killed. Trackers are told every step,
    although their worker is killed."""
    combination(build, root, "SGD", "mlp", "leader", LOADERS=2, TRACK=1)
    for kind in ("board", "run"):
        # A worker may lead, stop leading and lead again. Each time is a track of its own.
        tracks = []
        for file in (root / "run").glob(f"track-{kind}-*.jsonl"):
            for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                tracks += [[]] if row[0] == "opened" else []
                tracks[-1].append(row)
        tracks.sort(key=lambda track: (track[0][2], max(step for _, _, step in track if step is not None)))
        check(f"{kind}: each leader opens a tracker", len(tracks) >= 2)
        kept = {}  # what a reader sees who drops what comes after the step at which the next leader begins
        for track in tracks:
            begin_at = track[0][2]
            kept = {at: value for at, value in kept.items() if at[1] < begin_at}
            kept.update({(name, step): value for name, value, step in track if name != "closed"})
        check(f"{kind}: every step is told", [step for step in range(1, STEPS + 1) if ("loss", step) not in kept] == [])
        check(f"{kind}: changes of the workers are told",
              {kept.get(("workers", step)) for step in range(1, STEPS + 1)} >= {1, 2})
        names = {track[0][1] for track in tracks}
        check(f"{kind}: all write to the same run", len(names) == 1 and next(iter(names)).startswith("rubato-"))
        check(f"{kind}: the last one is closed", tracks[-1][-1][0] == "closed")


def stream(build, root):
    """An IterableDataset that can begin anywhere, with processes of the DataLoader, while a donor is killed."""
    combination(build, root, "AdamW", "norm", "donor", STREAM=1, LOADERS=1)


def sections(file):
    """What a checkpoint holds (rubato/elastic/checkpoint_format.h)."""
    content = file.read_bytes()
    length = int.from_bytes(content[12:16], "little")
    header = json.loads(content[24:24 + length])
    at, found = 24 + length, []
    for section in header["sections"]:
        at = (at + 63) // 64 * 64
        found.append(content[at:at + section["bytes"]])
        at += section["bytes"]
    return found


def alike(build, root):
    """A C++ and a Python trainer of the same model: each parameter and its momentum are the same, to the bit. The
    parts of a batch of 44 samples are uneven, and so is the last batch of an epoch."""
    program = build / "examples/faulty"
    if not program.exists():
        print(f"skipped: {program} is not built")
        return
    settings = {"SAMPLES": 403, "RUBATO_CHECKPOINT": "saved"}
    plain = Run(build, root, "cpp", [str(program), "--steps", "60", "--batch", "44"], ["--workers", "2"], **settings)
    run = Run(build, root, "python", [python(), str(HERE / "other_loops.py"), "twin"], ["--workers", "1"], **settings)
    try:
        for one in (plain, run):
            one.start()
        for one in (plain, run):
            check(f"{one.name}: it finishes", one.ended() == 0)
        cpp, ours = (sections(next((one.directory / "saved").glob("step-000000000060*"))) for one in (plain, run))
        check("both have trained six tensors", len(cpp) == 7 and len(ours) == 8)
        check("each parameter with its momentum is the same in C++ and in Python, to the bit",
              all(len(body) > 0 and body == other for body, other in zip(cpp[:6], ours[1:7])))
        losses = [[r["loss"] for r in one.reports()] for one in (plain, run)]
        check("so are the losses, apart from rounding", len(losses[0]) == len(losses[1]) == 60 and all(
            abs(a - b) < 1e-6 for a, b in zip(*losses)))
    except Failed:
        print(plain.output(), run.output())
        raise
    finally:
        plain.clean_up()
        run.clean_up()


def grouped(build, root, how, **settings):
    """A process group of torch.distributed is formed again whenever the members change. All replicas are compared in
    every step. A survivor that waits for the time-out of the group, which is an hour, would fail this."""
    run = single(build, root, how, ["--workers", "1:3", "--start", "1"], REDUCTION="gloo", DIGEST_STEPS=1, **settings)
    try:
        step = begin(run)
        run.resize(3)
        await_("three workers", lambda: run.greeted() >= 3)
        dies = "DIE" in settings
        run.step_until("all take part", step, lambda: len(run.members("working")) == 3
                       or dies and bool(run.notices("recovered")))
        if how == "group":  # shrinks and grows again
            run.resize(1)
            step = run.step_until("one worker is left", run.step(), lambda: len(run.members("working")) == 1)
            run.resize(2)
            run.step_until("two take part", step, lambda: len(run.members("working")) == 2)
        run.allow(None)
        check(f"{how}: the run finishes", run.ended() == 0)
        check(f"{how}: every step is published once", [r["step"] for r in run.reports()] == list(range(1, STEPS + 1)))
        check(f"{how}: several workers shared the work", max(r["workers"] for r in run.reports()) >= 2)
        if dies:
            check(f"{how}: the survivors recovered", bool(run.notices("recovered")))
            died = [line["time"] for line in run.lines() if line["event"] == "exit"][0]
            later = [line["time"] for line in run.lines() if line["event"] == "report" and line["time"] > died]
            print(f"{how}: {min(later) - died:.2f} s from the death to the next step", flush=True)
        return {r["step"]: r["loss"] for r in run.reports()}
    except (Failed, live.Failure) as error:
        print(f"FAILED: {error}\n{run.output()}")
        raise
    finally:
        run.clean_up()


def group(build, root):
    losses = grouped(build, root, "group")
    plain = single(build, root, "plain").start()
    check("the undisturbed run finishes", plain.ended() == 0)
    check("a group trains the same model, apart from rounding",
          all(abs(r["loss"] - losses[r["step"]]) < 1e-3 for r in plain.reports()))


def group_deaths(build, root):
    for how in ("late:40", "reduced:40", "forming"):
        grouped(build, root, how.partition(":")[0], DIE=how)


def exception(build, root):
    run = single(build, root, "throws", ["--workers", "2"], FAULT="throw:20")
    try:
        begin(run)
        await_("two workers", lambda: run.greeted() >= 2)
        run.step_until("both take part", 11, lambda: len(run.members("working")) == 2)
        run.allow(None)
        code = run.ended()
        check("an exception in the body ends the run with an error", code not in (0, "it does not end"))
        failures = run.notices("failed")
        check("the log has its traceback", failures and all("ArithmeticError: this body was asked to fail" in f["text"]
                                                            and "Traceback" in f["text"] for f in failures))
        check("the terminal has it, too", "ArithmeticError: this body was asked to fail" in run.output())
        check("no worker is started again", sum(line["event"] == "start" for line in run.lines()) == 2)
        check("nothing after the step before it was published", max(r["step"] for r in run.reports()) < 20)
    finally:
        run.clean_up()


def interrupt(build, root):
    """Ctrl-C on a program that trains alone, and on a run."""
    run = single(build, root, "alone")
    run.allow(10)
    alone = subprocess.Popen(run.program, cwd=run.directory, env=run.environment, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, preexec_fn=interruptible)
    run.process = alone
    run.blocked_at(11)
    alone.send_signal(signal.SIGINT)
    output = alone.communicate(timeout=PATIENCE)[0]
    check("Ctrl-C ends a program that trains alone", "KeyboardInterrupt" in output and alone.returncode != 0)
    run = single(build, root, "run", ["--workers", "2"], RUBATO_CHECKPOINT="saved")
    try:
        begin(run)
        run.process.send_signal(signal.SIGINT)
        await_("the run has heard it", lambda: any("asked to end" in json.dumps(line) for line in run.lines()))
        run.allow(None)
        check("Ctrl-C ends a run", run.ended() == 130)
        check("it stops before its end", not run.notices("finished") and run.notices("stopped"))
        check("it writes a checkpoint", any((run.directory / "saved").glob("step-*.ckpt")))
    finally:
        run.clean_up()


def saves(build, root):
    """Checkpoints when the program asks for them, and by time. The program hears that its worker should leave, and that
    the members have changed."""
    run = single(build, root, "asked", ["--workers", "1:2", "--start", "1"], RUBATO_CHECKPOINT="saved", SAVE_AT=25,
                 CHECKPOINT_EVERY="2h")
    timed = single(build, root, "timed", RUBATO_CHECKPOINT="saved", CHECKPOINT_EVERY="1s")

    def saved(of):
        return sorted(int(file.stem.partition("-")[2]) for file in (of.directory / "saved").glob("step-*.ckpt"))
    try:
        step = begin(run)
        step = grow_to(run, 2, step)
        leaves = max(member["uid"] for member in run.members("working"))
        run.resize(1)
        await_("the program hears that its worker should leave", (run.directory / f"noticed-{leaves}").exists)
        check("the worker that stays does not hear it", [file.name for file in run.directory.glob("noticed-*")]
              == [f"noticed-{leaves}"])
        step = run.step_until("one worker is left", step, lambda: len(run.members("working")) == 1
                              and not run.members("leaving"))
        said = run.output()
        check("the program hears how many workers there are", "worker 1 of 2" in said and said.rindex("worker 0 of 1")
              > said.rindex("worker 0 of 2"))
        check("nothing is saved before it is asked for", step < 25 and saved(run) == [])
        run.allow(26)
        run.blocked_at(27)
        await_("a checkpoint", lambda: saved(run))
        check("the program saves the state of the step in which it asks", saved(run) == [25])
        run.allow(None)
        check("the run finishes", run.ended() == 0)

        begin(timed)
        time.sleep(1)  # it becomes due while the program waits
        timed.allow(13)
        timed.blocked_at(14)
        await_("a checkpoint by time", lambda: saved(timed))
        timed.allow(None)
        check("checkpoints by time do not stop it", timed.ended() == 0)
    except Failed:
        print(run.output())
        raise
    finally:
        run.clean_up()
        timed.clean_up()


def refused(build, root):
    sentences = {
        "sync": (2, "SyncBatchNorm, which communicates by itself"),
        "iterable": (2, "the data set is an IterableDataset that cannot begin anywhere"),
        "nostep": (4, "the body of the loop ended without opt.step()"), "clip": (4, "say prepare(..., clip_norm=...) instead"),
        "break": (4, "the program ended before its training did")}
    running = {}
    for fault in sentences:
        run = single(build, root, fault, FAULT=fault)
        running[fault] = subprocess.Popen(run.program, cwd=run.directory, env=run.environment, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True)
    for fault, (code, sentence) in sentences.items():
        output = running[fault].communicate(timeout=PATIENCE)[0]
        check(f"{fault}: it says '{sentence}'", sentence in output)
        check(f"{fault}: a refusal is one sentence", code != 2 or output.count("\n") == 1)
        check(f"{fault}: it ends with code {code}", running[fault].returncode == code)


def lock(build, root):
    """The worker that gives its state away keeps Python's lock from before it does until all of the state has arrived. The
    network has threads of its own, which do not need the lock; if they did, this would wait in vain."""
    run = single(build, root, "held", ["--workers", "1:2", "--start", "1"], FAULT="gil", WIDE=2000, EPOCHS=3)
    os.mkfifo(run.directory / "arrived")
    try:
        step = begin(run)
        grow_to(run, 2, step)
        run.allow(None)
        check("a run whose worker keeps Python's lock finishes", run.ended() == 0)
        kept = re.search(r"worker 1 kept the lock in step (\d+) until (\d+) bytes had arrived", run.output())
        check("the state of a large model arrived while the lock was kept", kept and int(kept[2]) > 40_000_000)
        check("the other worker had the whole state in that step",
              f"worker 2 has the whole state in step {kept[1]}\n" in run.output())
        check("nobody was taken for dead", not run.notices("recovered"))
    except Failed:
        print(run.output())
        raise
    finally:
        run.clean_up()


def numpy(build, root):
    """Without torch."""
    plain = single(build, root, "plain", program="numpy_trainer.py")
    run = single(build, root, "run", ["--workers", "1:3", "--start", "1"], program="numpy_trainer.py")
    try:
        plain.start()
        step = begin(run)
        grow_to(run, 2, step)
        run.kill(min(member["uid"] for member in run.members("working")))
        run.allow(None)
        check("a numpy program finishes", plain.ended() == 0 and run.ended() == 0)
        check("a killed worker changes no bit", run.digest() is not None and run.digest() == plain.digest())
        check("torch was not loaded", "torch was not loaded" in plain.output())
        check("the loss falls", run.reports()[-1]["loss"] < 0.5 * run.reports()[0]["loss"])
    finally:
        run.clean_up()
        plain.clean_up()


def package(build, root):
    """The wheel and the folder install offline, in an environment with the system's packages. Nothing links torch."""
    linked = subprocess.run(["ldd", build / "librubato.so"], capture_output=True, text=True, check=True).stdout
    check("librubato.so links neither torch nor Python", "torch" not in linked and "python" not in linked)
    source = root / "tree/python"  # a copy, because pip builds inside the folder
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    (root / "tree/build").mkdir()
    shutil.copy2(build / "librubato.so", root / "tree/build")
    run = single(build, root, "installed", EPOCHS=1)
    del run.environment["PYTHONPATH"], run.environment["LIBRUBATO"]
    venv = root / "venv"
    subprocess.run([python(), "-m", "venv", "--system-site-packages", "--without-pip", venv], check=True)
    program = str(venv / "bin/python")

    def pip(interpreter, *words):
        return subprocess.run([interpreter, "-m", "pip", *words, "--no-index", "--quiet"], check=False,
                              env={**run.environment, "PIP_NO_INPUT": "1"}).returncode == 0
    wanted = {file.name for file in (PACKAGE / "rubato").glob("*.py")} | {"librubato.so", "py.typed"}
    check("pip builds a wheel offline", pip(python(), "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir",
                                            root / "wheels", source))
    wheels = list((root / "wheels").iterdir())
    check("it is one wheel for all versions of Python", len(wheels) == 1 and "-py3-none-linux_" in wheels[0].name)
    with zipfile.ZipFile(wheels[0]) as wheel:
        check("it has all modules, librubato.so and py.typed",
              {f"rubato/{name}" for name in wanted} == {name for name in wheel.namelist() if name.startswith("rubato/")})
        check("it has the librubato.so that was built",
              wheel.read("rubato/librubato.so") == (build / "librubato.so").read_bytes())
    check("pip installs the folder offline", pip(program, "install", "--no-build-isolation", "--no-compile", source))
    folder = next(venv.glob("lib/python*/site-packages/rubato"))
    check("that is the same", {file.name for file in folder.iterdir()} == wanted)
    check("pip installs the wheel offline", pip(program, "install", "--force-reinstall", wheels[0]))
    run.program[0] = program
    run.start()
    check("a program runs with the installed wheel", run.ended() == 0 and "trained 21 steps" in run.output())


def alone_and_shared(build, root, names):
    """Runs loops of other_loops.py with one worker, and with one that another joins. They must train the same model.
    Yields the name and the run of two workers when both have ended."""
    program = [python(), str(HERE / "other_loops.py")]
    alone = {name: Run(build, root, f"{name}-alone", [*program, name], ["--workers", "1"]) for name in names}
    shared = {name: Run(build, root, name, [*program, name], ["--workers", "1:2", "--start", "1"]) for name in names}
    runs = [*alone.values(), *shared.values()]
    try:
        for name in names:
            alone[name].start()
            begin(shared[name])
            grow_to(shared[name], 2, 11)
            shared[name].allow(None)
            check(f"{name} finishes", alone[name].ended() == 0 and shared[name].ended() == 0)
            check(f"{name}: two workers took part", max(r["workers"] for r in shared[name].reports()) == 2)
            if name != "adaptive":
                check(f"{name}: two workers train what one trains, to the bit",
                      shared[name].digest() is not None and shared[name].digest() == alone[name].digest())
            yield name, shared[name]
    except Failed:
        print("".join(run.output() for run in runs if run.process is not None))
        raise
    finally:
        for run in runs:
            run.clean_up()


def other_loops(build, root):
    """Several optimizers, schedules by epoch, an early end, an adaptive batch: with one and with two workers."""
    for name, run in alone_and_shared(build, root, ("two_optimizers", "every_epoch", "one_cycle", "scaled", "adaptive")):
        if name == "adaptive":
            check("every change of the batch has a reason", all(n["text"] for n in run.notices("tuned")))
            check("the noise is measured", any("noise" in r for r in run.reports()))


def memory(build, root):
    """Batches that do not fit into the memory, in an ordinary loop and in one inside of `with rt.step():`."""
    digests = set()
    for name, run in alone_and_shared(build, root, ("memory", "memory_forward", "memory_step", "memory_limit")):
        halved = run.notices("halved")
        check(f"{name}: what does not fit is halved once on each worker, and the reason is logged",
              len(halved) == (0 if name == "memory_limit" else 2) and
              all("5 samples do not fit into the memory (CUDA out of memory" in n["text"] for n in halved))
        check(f"{name}: no part is larger", all(1 <= r["metrics"]["samples"] <= 3 for r in run.reports()))
        digests.add(run.digest())
    check("all of them train the same model, to the bit", len(digests) == 1)


def horovod(build, root):
    """A program for Elastic Horovod, with one import changed: it is started again when it is resized, and goes on from
    its last commit."""
    run = Run(build, root, "horovod", [python(), str(HERE / "horovod_trainer.py")], ["--workers", "1:2", "--start", "1",
                                                                                     "--mode", "restart"])

    def steps():
        try:
            return [json.loads(line) for line in (run.directory / "steps.jsonl").read_text(encoding="utf-8").splitlines()]
        except FileNotFoundError:
            return []
    try:
        run.allow(0)
        run.start()
        await_("20 steps", lambda: len(steps()) >= 20 or run.process.poll() is not None)
        run.resize(2)
        check("a program for Elastic Horovod finishes", run.ended() == 0)
        done = steps()
        check("it trained with one worker and with two", {step["world"] for step in done} == {1, 2})
        check("it went on from its last commit", sorted({step["step"] for step in done}) == list(range(1, 61))
              and len(done) <= 65)
        check("the loss fell", done[-1]["loss"] < 0.5 * done[0]["loss"])
    except Failed:
        print(run.output())
        raise
    finally:
        run.clean_up()


def warm(build, root):
    """Workers that are forked from a parent which has imported torch."""
    plain = single(build, root, "plain").start()
    run = single(build, root, "warm", ["--workers", "1:3", "--start", "1", "--warm"])

    def command(pid):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")

    def parents():
        """Those that are ready; they print nothing from then on."""
        children = pathlib.Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text(encoding="ascii")
        return [pid for pid in children.split() if b"rubato.warm" in command(pid)
                and os.readlink(f"/proc/{pid}/fd/1") == os.devnull]
    try:
        step = begin(run)
        await_("a parent", parents)
        step = grow_to(run, 3, step)
        forked = [member["uid"] for member in run.members("working") if b"rubato.warm" in command(run.pid(member["uid"]))]
        check("two workers were forked", len(forked) == 2)
        run.kill(forked[0])
        await_("another worker", lambda: run.greeted() >= 4)
        run.allow(None)
        check("the run finishes", plain.ended() == 0 and run.ended() == 0)
        check("forked workers train the same model, to the bit", run.digest() is not None
              and run.digest() == plain.digest())
        check("what they print arrives", "worker 2 of 3" in run.output())
        check("nothing is left", not any(cwd_of(line["pid"]) for line in run.lines() if line["event"] == "start"))
    except Failed:
        print(run.output())
        raise
    finally:
        run.clean_up()
        plain.clean_up()


def torchelastic(build, root):
    """A program for torchrun, unchanged in restart mode, and with the five lines, live. Both are resized."""
    folder = HERE.parent / "examples/python"
    for name, mode in (("torchelastic_plain", ["--mode", "restart"]), ("torchelastic", [])):
        run = Run(build, root, name, [python(), str(folder / f"{name}.py"), "1000000"], ["--workers", "1:2", "--start", "1",
                                                                                         *mode])

        def epochs(workers, r=run):
            """Those that so many workers have trained."""
            return [int(line.split("epoch ")[1].split(":")[0]) for line in r.output().splitlines()
                    if "epoch " in line and f"with {workers} workers" in line]
        try:
            run.start()
            await_(f"epochs of {name}", lambda r=run: len(epochs(1)) >= 2 or r.process.poll() is not None)
            run.resize(2)
            await_(f"epochs of {name} with two workers", lambda r=run: len(epochs(2)) >= 2 or r.process.poll() is not None)
            check(f"{name}: goes on with two workers", len(epochs(2)) >= 2 and min(epochs(2)) > 0)
            check(f"{name}: no epoch is lost", sorted({*epochs(1), *epochs(2)}) == list(range(max(epochs(2)) + 1)))
            starts = sum(line["event"] == "start" for line in run.lines())
            check(f"{name}: {'a resize starts it again' if mode else 'nobody is started again'}", starts == (3 if mode else 2))
            run.process.send_signal(signal.SIGTERM)
            check(f"{name}: it stops", run.ended() == 143)
            if not mode:
                check(f"{name}: it leaves a checkpoint", any((run.directory / "saved").glob("step-*.ckpt")))
        except Failed:
            print(run.output())
            raise
        finally:
            run.clean_up()


def afterwards(build, root):
    """A program that goes on after its training, longer than a launcher waits for a sign of life."""
    run = single(build, root, "run", ["--workers", "1:2", "--start", "1", "--heartbeat", "2"], AFTER=5)
    try:
        begin(run)
        grow_to(run, 2, 11)
        run.allow(None)
        check("it finishes", run.ended() == 0)
        check("nobody was taken for dead", not any(line["event"] == "signal" for line in run.lines()))
    finally:
        run.clean_up()


def simulation(build, root):
    """rubato.simulate: the figures of the command line, as arrays."""
    program, trace = str(build / "rubato"), root / "trace.csv"
    subprocess.run([program, "generate", "--jobs", "50", "--cluster", "2x4", "--load", "1.2", "--seed", "3", "--out", trace],
                   check=True, stdout=subprocess.DEVNULL)
    result = rubato.simulate(trace, cluster="2x4", policy=["fifo", "srtf"], program=program, placement="pack", bound=True)
    check("it has a run for each policy", [run.policy for run in result] == ["fifo", "srtf"])
    for run in result:
        times = [end - submitted for submitted, end in zip(run.jobs["submit_s"], run.jobs["end_s"])]
        check(f"{run.policy}: the jobs have the average of the summary",
              len(times) == 50 and abs(sum(times) / 50 - run.summary["avg_jct_s"]) < 1e-3)
        check(f"{run.policy}: no job keeps a GPU", [gpus for job, gpus in zip(
            run.allocations["job_id"], run.allocations["gpus"]) if job == 0][-1] == 0)
    check("it has a report page", "<html" in result.report() and "iframe" in result._repr_html_())
    try:
        rubato.simulate(trace, cluster="2x4", policy="opal", program=program)
        check("a policy that does not exist is an error", False)
    except rubato.Error as error:
        check("a policy that does not exist is an error", error.code == 2 and "opal" in str(error))


class Greedy(rubato.Policy):
    """As many GPUs as they can use, to the jobs in order."""

    elastic = one_type = True

    def decide(self, now, jobs, cluster, state):
        state["decisions"] = state.get("decisions", 0) + 1
        room, gpus = int(cluster.usable[0]), [0] * len(jobs)
        speeds = jobs.speed()
        for i in range(len(jobs)):
            counts = [k for k in range(1, min(room + 1, speeds.shape[1])) if speeds[i, k] > 0]
            if counts:
                gpus[i] = max(counts)
                room -= gpus[i]
        return gpus


class Forgetful(Greedy):
    """It remembers something outside of its state."""

    def decide(self, now, jobs, cluster, state):
        self.asked = getattr(self, "asked", 0) + 1
        return super().decide(now, jobs, cluster, state) if self.asked % 3 else [0] * len(jobs)


class Broken(rubato.Policy):
    def decide(self, now, jobs, cluster, state):
        if now > 0:
            raise ArithmeticError("this policy was asked to fail")
        return [0] * len(jobs)


class Wrong(rubato.Policy):
    def decide(self, now, jobs, cluster, state):
        return [99] * len(jobs)


def policies(build, root):
    """Policies in Python: simulated, checked, evaluated, and as an environment. The examples run."""
    program = str(build / "rubato")
    trace = rubato.Trace.generate(root / "jobs.csv", program=program, jobs=200, cluster="4x4", load=1.1, seed=3)
    folder = HERE.parent / "examples/python"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PATH": f"{build}:{os.environ['PATH']}"}

    def example(name, *arguments):
        return subprocess.run([python(), folder / name, *map(str, arguments)], env=environment, check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    said = example("shortest_first.py", trace.path, "4x4")
    check("a policy in Python makes the schedule of its C++ twin", "the schedules are the same" in said)
    check("its properties hold", "no GPU idle that a waiting job could use" in said)
    check("a policy is learned in the environment", "learned: average completion time" in example("learn_policy.py", 3))
    check("policies in files are scored", example("search_policies.py", folder / "shortest_first.py").startswith("1.0000"))

    # Two policies in Python between two of the table, side by side.
    result = rubato.simulate(trace, cluster="4x4", policy=["fifo", Greedy(), "afs-l", Greedy()], program=program,
                             restart_cost=30)
    check("runs are in the order in which they were asked for",
          [run.policy for run in result] == ["fifo", "Greedy", "afs-l", "Greedy"])
    check("two runs of one policy do not disturb each other",
          list(result[1].jobs["end_s"]) == list(result[3].jobs["end_s"]))
    check("an elastic policy uses what it is given", max(result[1].allocations["gpus"]) > 4)
    check("a run has a picture", result.timeline("Greedy").startswith("<svg") and "rect" in result[1].timeline())
    bound = result.bound()
    check("no policy is better than the bound", all(run.summary["avg_jct_s"] >= bound["avg_jct_s"] for run in result))
    part = rubato.simulate(rubato.Trace.read(trace.path).between("1h", "5h"), cluster="4x4", policy="fifo", program=program)
    check("a part of a trace has fewer jobs", 0 < part[0].summary["jobs"] < 200)

    def fails(kind, text, action):
        try:
            action()
            check(f"{text}: it is an error", False)
        except kind as error:
            check(f"{text}: it is an error", text in str(error))
    fails(ArithmeticError, "this policy was asked to fail",
          lambda: rubato.simulate(trace, cluster="4x4", policy=Broken(), program=program))
    fails(rubato.Error, "gives 99 GPUs",
          lambda: rubato.simulate(trace, cluster="4x4", policy=Wrong(), program=program))
    fails(rubato.Error, "no job is submitted",
          lambda: rubato.simulate(trace.between("900d", "901d"), cluster="4x4", policy="fifo", program=program))
    fails(rubato.checking.CheckFailed, "saved and loaded", lambda: rubato.check(Forgetful(), program=program))
    check("an elastic policy passes its checks", bool(rubato.check(Greedy(), scenes=5, program=program)))
    scores = rubato.evaluate(Broken(), program=program, seeds=[1])
    check("a policy that fails has the score 0, and says why", scores.score == 0 and "ArithmeticError" in str(scores))
    with rubato.Environment(trace, cluster="4x4", program=program) as env:
        question, _ = env.reset(seed=1)
        done, total = False, 0.0
        while not done:
            question, reward, done, _, info = env.step(rubato.fit(question.jobs.requested, question.cluster.usable[0]))
            total += reward
        mean = info["summary"]["avg_jct_s"]
        check("the rewards are the job-hours", abs(-total * 3600 / 200 - mean) < 1e-6 * mean)
        env.reset(seed=1)  # an episode that is given up


TOWERS = '''import torch
from torch.nn import Linear, ReLU, Sequential


class Towers(torch.nn.Module):
    """Two parts that can compute at once."""

    def __init__(self):
        super().__init__()
        self.left, self.right = (Sequential(Linear(64, 256), ReLU(), Linear(256, 32)) for _ in range(2))
        self.head = Linear(64, 10)

    def forward(self, x):
        return self.head(torch.cat([self.left(x), self.right(x)], 1))


class Branch(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
'''


def graph(build, root):
    """rubato.graph makes a graph of a model, and `rubato graph place` places it on two devices. What is checked holds
    whatever the measured times are."""
    (root / "towers.py").write_text(TOWERS, encoding="utf-8")
    traced = root / "towers.json"

    def trace(model):
        return subprocess.run([python(), "-m", "rubato.graph", f"towers.py:{model}", "--input", "256x64", "--backward",
                               "--out", traced], cwd=root, env={**os.environ, "PYTHONPATH": str(PACKAGE)}, check=False,
                              text=True, capture_output=True)
    refused_one = trace("Branch")
    check("a model that decides by its data is refused with a sentence",
          refused_one.returncode == 2 and refused_one.stderr.startswith("rubato.graph: towers.py:Branch: ")
          and refused_one.stderr.count("\n") == 1 and not traced.exists())
    check("a model is traced", trace("Towers").returncode == 0)
    operators = json.loads(traced.read_text(encoding="utf-8"))["operators"]
    forward = ["x", *(f"{side}_{i}" for side in ("left", "right") for i in range(3)), "cat", "head"]
    check("it has all operators, and their gradients in reverse",
          [one["name"] for one in operators] == [*forward, *(f"{name} backward" for name in reversed(forward[1:]))])
    (kind,) = operators[0]["seconds"]
    check("all but the input were measured", all(one["seconds"][kind] > 0 for one in operators[1:]))

    def place(*links):
        said = subprocess.run([build / "rubato", "graph", "place", traced, "--devices", f"{kind}=2", "--methods",
                               "single,heft,ppo,brute-force", "--samples", "300", "--seed", "5", "--json", *links],
                              check=True, text=True, stdout=subprocess.PIPE).stdout
        rows = {row.pop("method"): row for row in json.loads(said)["methods"]}
        for row in rows.values():
            del row["cpu_s"]
        return rows
    free = place("--bandwidth", "1e18", "--latency", "0")
    alone = free["single"]["step_s"]
    check("all methods place all groups", all(row["fits"] and set(row["placement"]) == set(forward)
                                              for row in free.values()))
    check("where sending costs nothing, no method is slower than one device",
          all(row["step_s"] <= alone * (1 + 1e-6) for row in free.values()))
    check("two devices are better", free["brute-force"]["step_s"] < alone)
    links = place()
    for name, rows in (("free", free), ("usual", links)):
        check(f"{name} links: no method is better than the best of all placements",
              all(row["step_s"] >= rows["brute-force"]["step_s"] for row in rows.values()))
    check("the same seed gives the same placements", place() == links)
    slow = place("--bandwidth", "1")
    check("where sending takes for ever, everything is on one device",
          all(len(set(slow[method]["placement"].values())) == 1 for method in ("single", "heft", "brute-force")))


def examples(build, root):
    """The examples begin to train, and stop when they are asked to."""
    folder = HERE.parent / "examples/python"
    runs = [Run(build, root, name, [python(), str(folder / f"{name}.py")], ["--workers", "2"])
            for name in ("mnist", "resnet", "gpt")]
    try:
        for run in runs:
            run.start()
        for run in runs:
            await_(f"steps of {run.name}", lambda r=run: len(r.reports()) >= 3 or r.process.poll() is not None)
            check(f"{run.name} trains", len(run.reports()) >= 3 and all(r["loss"] for r in run.reports()))
            run.process.send_signal(signal.SIGTERM)
        for run in runs:
            check(f"{run.name} stops", run.ended() == 143)
    finally:
        for run in runs:
            run.clean_up()


def cluster(build, root):
    """`rubato submit --deadline +2h -- python3 train.py`: promised, measured, and resized without a restart. All of it
    through rubato.Client."""
    with live.Cluster(build, "elasticflow") as daemon:
        daemon.up()
        client = rubato.Client(program=daemon.rubato, state=daemon.state)
        settings = {"PYTHONPATH": PACKAGE, "LIBRUBATO": build / "librubato.so", "PACE": "0.05", "EPOCHS": 12}
        command = [python(), HERE / "trainer.py"]
        asked = {"env": settings, "deadline": "+2h", "work": f"steps={3 * STEPS}", "gpus": "1:4", "directory": root}
        client.submit(command, dry_run=True, **asked)
        check("a dry run submits nothing", not client.jobs())
        job = client.submit(command, name="pearl", **asked)["id"]
        await_("the promise, after the first steps were measured", lambda: client.promise("pearl"))
        check("a Python job gets a promise", True)
        check("its GPUs are explained", "promised" in client.explain(job))
        client.resize(job, "2:4")  # what the policy does may depend on the machine
        live.resize_while_it_trains(daemon, job)
        client.resize(job, "1:4")
        told = await_("what it logs", lambda: "right" in client.status(job)["progress"]["metrics"] and client.status(job))
        check("the daemon knows what the program logs", 0 <= told["progress"]["metrics"]["right"] <= 1)
        sizes = (2 * 64, 64, 64 * 64, 64, 64 * 2, 2)
        check("it knows the share of the largest tensor", told["progress"]["skew"] == max(sizes) / sum(sizes))
        check("the client waits for its end", client.wait(job)["state"] == "COMPLETED")
        ended = live.ended_well(daemon, job)
        check("it was resized without a restart", live.live_resizes(daemon, job, ended) >= 2
              and bool(live.lived_through_changes(daemon.events(job))))
        check("its speed was measured", job in daemon.speeds_known())
        check("its log can be read", f"trained {3 * STEPS} steps" in client.logs(job))
        check("its log can be followed to its end", list(client.follow(job)) == client.logs(job).splitlines())
        try:
            client.status("opal")
            check("a job that does not exist is an error", False)
        except rubato.Error as error:
            check("a job that does not exist is an error", error.code == 3 and "opal" in str(error))
        digests = {event["content"]["digest"] for event in daemon.events(job)
                   if event["event"] == "notice" and event["kind"] == "finished"}
    plain = single(build, root, "plain", EPOCHS=12)
    plain.start()
    check("the undisturbed run finishes", plain.ended() == 0)
    check("it trained the same model, to the bit", digests == {plain.digest()})


def adaptive(build, root):
    """`rubato submit --batch adaptive:48:192 -- python3 train.py`: the batch follows the noise while the job is resized."""
    with live.Cluster(build, "equal") as daemon:
        daemon.up()
        client = rubato.Client(program=daemon.rubato, state=daemon.state)
        settings = {"PYTHONPATH": PACKAGE, "LIBRUBATO": build / "librubato.so", "PACE": "0.02", "EPOCHS": 100000}
        job = client.submit([python(), HERE / "trainer.py"], name="ruby", env=settings, work="epochs=100000", gpus="1:2",
                            batch="adaptive:48:192", directory=root)["id"]

        def reports(workers):
            return [r for r in daemon.reports(job) if r["workers"] == workers]
        await_("two workers with a larger batch", lambda: any(r["samples"] > 48 for r in reports(2)))
        client.resize(job, 1)
        await_("one worker", lambda: daemon.reports(job)[-1]["workers"] == 1)
        found = daemon.reports(job)
        check("the batch is within its limits", all(1 <= r["samples"] <= 192 for r in found))
        check("the learning rate follows it", all(r["factor"] == 1 for r in found if r["samples"] == 48)
              and any(r["factor"] > 1 and abs(r["learning_rate"]) > 0 for r in found if r["samples"] > 48))
        tuned = [event["content"] for event in daemon.events(job)
                 if event["event"] == "notice" and event["kind"] == "tuned"]
        check("every change has a reason", tuned and all(notice["text"] for notice in tuned))
        check("nothing was restarted", client.status(job)["restarts"] == 0 and bool(
            live.lived_through_changes(daemon.events(job))))
        await_("its speed to be measured", lambda: job in daemon.speeds_known())
        past = client.what_if(["as-run", "srtf"], since="1h")
        check("the client asks what would have been", len(past["policies"]) == 2)
        client.cancel(job)


def on_slurm(build, root):
    """The same program on a real Slurm: promised, resized without a restart, and the same model, to the bit."""
    import slurm
    problem = slurm.why_not()
    if problem:
        print(f"skipped: {problem}")
        return
    with slurm.Slurm(nodes=2, gpus=2) as real, slurm.OnSlurm(build, real, "elasticflow") as daemon:
        daemon.up()
        client = rubato.Client(program=daemon.rubato, state=daemon.state)
        settings = {"PYTHONPATH": PACKAGE, "LIBRUBATO": build / "librubato.so", "PACE": "0.02", "EPOCHS": 24,
                    **live.QUIET_THREADS}
        root.chmod(0o755)
        job = client.submit([python(), HERE / "trainer.py"], name="opal", env=settings, deadline="+2h",
                            work=f"steps={6 * STEPS}", gpus="1:4", directory=root)["id"]
        await_("the promise", lambda: client.promise(job))
        client.resize(job, "2:4")
        live.resize_while_it_trains(daemon, job)
        client.resize(job, "1:4")
        check("it completes on Slurm", client.wait(job)["state"] == "COMPLETED")
        ended = live.ended_well(daemon, job)
        check("it was resized without a restart", live.live_resizes(daemon, job, ended) >= 2
              and bool(live.lived_through_changes(daemon.events(job))))
        digests = {event["content"]["digest"] for event in daemon.events(job)
                   if event["event"] == "notice" and event["kind"] == "finished"}
        daemon.none_left()
    plain = single(build, root, "plain", EPOCHS=24)
    plain.start()
    check("the undisturbed run finishes", plain.ended() == 0)
    check("it trained the same model, to the bit", digests == {plain.digest()})


class Shell:
    """A shell that runs the commands of a page, one after the other."""

    def __init__(self, directory, environment):
        commands, self.commands = os.pipe()  # not the standard input, which programs could read
        self.process = subprocess.Popen(["bash", "-m", f"/dev/fd/{commands}"], cwd=directory, env=environment, text=True,
                                        errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True, pass_fds=[commands])
        os.close(commands)

    def run(self, command):
        """Returns the exit code and what was printed, also by what runs in the background."""
        os.write(self.commands, f"{command}\nprintf '\\n== %d\\n' $?\n".encode())
        said = []
        for line in self.process.stdout:
            if line.startswith("== "):
                return int(line[3:]), "".join(said)[:-1]  # without the mark's own line break
            said.append(line)
        raise Failed(f"the shell ended at: {command}\n{''.join(said)}")

    def end(self):
        os.close(self.commands)
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdout.close()


def commands_of(page):
    """The commands of a page, each with the output that the page shows."""
    found = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif line.startswith("    ") and found:
            found[-1][1].append(line[4:])
    return [(command, "".join(f"{line}\n" for line in output)) for command, output in found]


def tutorial(build, root):
    """Every command of docs/python-tutorial.md, in a copy of what it uses. After some of them, a reader would look until
    the cluster has done what the page says."""
    tree = root / "tree"
    for part in ("python", "examples/python"):
        shutil.copytree(HERE.parent / part, tree / part,
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    (tree / "build").mkdir()
    for name in ("rubato", "librubato.so"):
        shutil.copy2(build / name, tree / "build")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(root), "PIP_NO_INPUT": "1"}
    program = str(build / "rubato")
    client = rubato.Client(program=program, state=str(tree / "build/tutorial"))

    def workers():
        said = subprocess.run([program, "runs", "--json"], env=environment, text=True, check=True, stdout=subprocess.PIPE)
        return [run for run in json.loads(said.stdout)["runs"] if run["name"] == "pearl"]

    def train(count):
        return lambda: workers() and workers()[0]["step"] > 0 and len(workers()[0]["workers"]) == count

    def answers():
        try:
            return client.jobs() == []
        except rubato.Error:
            return False
    happens = {
        "rubato run --": train(1), "rubato resize pearl 3": train(3), "rubato kill pearl": train(3),
        "rubato resize pearl 1": train(1), "kill %1": lambda: not workers(), "rubato up": answers,
        "rubato submit": lambda: client.promise("ruby")}
    shell = Shell(tree, environment)
    try:
        for command, output in commands_of(HERE.parent / "docs/python-tutorial.md"):
            if command.startswith("./dev "):
                continue  # this tree is built
            code, said = shell.run(command)
            if not (code == 1 if command.startswith("diff") else code == 0):
                raise Failed(f"{command}: it ends with code {code}\n{said}")
            check(command, not command.startswith("diff") or said == output)
            for start, condition in happens.items():
                if command.startswith(start):
                    await_(f"what follows {command}", condition)
            if command == "rubato status ruby":
                check("the deadline is promised", "promised" in said)
            elif command == "rubato resize ruby 2":
                check("the job is resized", "exactly 2" in said)
            elif command == "rubato wait ruby":
                check("the job completes", "COMPLETED" in said)
            elif command == "rubato logs ruby":
                check("the log has what the program printed", "% right" in said)
        events = [json.loads(line) for file in (tree / "build/tutorial/jobs").glob("*/events.jsonl")
                  for line in file.read_text(encoding="utf-8").splitlines()]
        check("it was resized without a restart", bool(live.lived_through_changes(events)))
    finally:
        shell.end()
        live.kill_all_of(root)


def scenarios():
    found = {}
    every = bool(os.environ.get("EVERY_COMBINATION"))
    for i, optimizer in enumerate(OPTIMIZERS):
        for k, model in enumerate(MODELS):
            # Nine combinations meet every disturbance; all of them are for --all.
            chosen = DISTURBANCES if every else (DISTURBANCES[(3 * i + k) % len(DISTURBANCES)],)
            for how in chosen:
                found[f"{optimizer}-{model}-{how}"] = (
                    lambda build, root, o=optimizer, m=model, h=how: combination(build, root, o, m, h))
    others = (group, group_deaths, loaders, stream, alike, exception, interrupt, saves, refused, lock, numpy, package,
              other_loops, memory, warm, horovod, torchelastic, afterwards, simulation, policies, examples, cluster,
              adaptive, tutorial, graph)
    for function in (*others, on_slurm) if every else others:
        found[function.__name__] = function
    return found


def main():
    found = scenarios()
    if sys.argv[1:] == ["--list"]:
        print("\n".join(found))
        return
    if len(sys.argv) != 3 or sys.argv[2] not in found:
        raise SystemExit(f"usage: python.py BUILD SCENARIO; the scenarios are: {' '.join(found)}")
    if importlib.util.find_spec("numpy") is None:  # this python3 is not Debian's
        os.execv(python(), [python(), *sys.argv])
    root = pathlib.Path(tempfile.mkdtemp()).resolve()
    try:
        found[sys.argv[2]](pathlib.Path(sys.argv[1]).resolve(), root)
    except (Failed, live.Failure) as error:
        print(f"FAILED: {error}")
        sys.exit(1)
    finally:
        if os.environ.get("KEEP"):
            print(f"kept {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
