#!/usr/bin/env bash
# A real training job under `rubato master`, managed as by a node agent. It moves between slots while it
# trains, is stopped, and continues from its checkpoint in a newer start. A suspended worker of the old start
# must not damage anything when it wakes up.
#
#   e2e/master.sh [BUILD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec python3 - "${1:-build}" <<'END'
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1])
PATIENCE = float(os.environ.get("PATIENCE", "120"))  # seconds for anything; a healthy machine needs a few
passed, failed = 0, 0


def check(name, holds):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {name}")


class Manager:
    def __init__(self, directory, token):
        self.bytes, self.statuses = b"", []
        end = time.monotonic() + PATIENCE
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(f"{directory}/m.sock")
                break
            except OSError:
                self.socket.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        self.send({"type": "manage", "token": token})

    def send(self, message):
        text = json.dumps(message).encode()
        self.socket.sendall(struct.pack("<I", len(text)) + text)

    def place(self, generation, slots):
        self.send({"type": "place", "generation": generation, "slots": slots, "batch": None})

    def until(self, what, holds):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if select.select([self.socket], [], [], 0.5)[0]:
                more = self.socket.recv(1 << 16)
                self.bytes += more
                while len(self.bytes) >= 4:
                    size = struct.unpack("<I", self.bytes[:4])[0]
                    if len(self.bytes) < 4 + size:
                        break
                    self.statuses.append(json.loads(self.bytes[4:4 + size]))
                    self.bytes = self.bytes[4 + size:]
                    if holds(self.statuses[-1]):
                        return self.statuses[-1]
                if not more:
                    break
        check(f"{what} did not come; the last status was {self.statuses[-1:]}", False)
        sys.exit(1)

    def until_running(self, generation):
        return self.until(f"generation {generation}",
                          lambda s: s["running"] and s["generation"] == generation)


class Job:
    def __init__(self, root):
        self.root, self.directory = root, f"{root}/job"
        os.mkdir(self.directory, 0o700)
        self.launch = {
            "job": 7, "name": "mlp", "token": "of this test", "home": 0, "generation": 1,
            "slots": ["0.0"], "node_gpus": [4], "batch": None,
            "command": [f"{BUILD}/examples/mlp", "--steps", "1000000000"],
            "env": {}, "directory": root, "user": "", "secrets": {}, "least": 1, "most": 4,
            "max_failures": 3, "grace": 30, "log_limit": 1 << 20, "live": True}
        self.master = None

    def start(self, generation, slots):
        self.launch.update(generation=generation, slots=slots)
        with open(f"{self.directory}/launch.json", "w") as file:
            json.dump(self.launch, file)
        self.master = subprocess.Popen([f"{BUILD}/rubato", "master", self.directory],
                                       stdin=subprocess.DEVNULL)
        return Manager(self.directory, self.launch["token"])

    def workers(self):
        with open(f"{self.directory}/workers.json") as file:
            return json.load(file)

    def exit(self):
        with open(f"{self.directory}/exit.json") as file:
            return json.load(file)

    def log(self):
        with open(f"{self.directory}/log") as file:
            return file.read()

    def checkpoints(self):
        try:
            return sorted(n for n in os.listdir(f"{self.directory}/checkpoint") if n.endswith(".ckpt"))
        except FileNotFoundError:
            return []

    def destroy(self):
        if self.master is not None and self.master.poll() is None:
            self.master.kill()
            self.master.wait()
        for worker in self.workers():
            try:
                os.kill(worker["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass


def scenario(job):
    manager = job.start(1, ["0.0"])
    manager.until_running(1)
    check("a master leads its session", os.getsid(job.master.pid) == job.master.pid)

    # Growing and moving while it trains.
    before = manager.until("progress", lambda s: s["progress"]["step"] > 20)["progress"]
    check("progress tells of samples", before["samples"] >= 20 * before["batch"] > 0)
    manager.place(2, ["0.0", "0.1", "1.2"])
    grown = manager.until_running(2)
    check("three slots are in use", grown["in_use"] == ["0.0", "0.1", "1.2"])
    manager.until("a step of three", lambda s: s["progress"]["workers"] == 3)
    manager.place(3, ["1.0"])
    moved = manager.until_running(3)
    check("the founder's slot is free", moved["in_use"] == ["1.0"])
    check("it went on training", moved["progress"]["step"] >= grown["progress"]["step"])
    check("nothing failed", moved["failures"] == 0)
    check("pauses were measured", len(moved["pauses"]) == 2)
    check("one worker is named", [w["slot"] for w in job.workers()] == ["1.0"])

    # A stop writes a checkpoint and ends the run.
    manager.send({"type": "stop", "generation": 4})
    ended = manager.until("the end", lambda s: "ended" in s)
    check("it was stopped", ended["ended"]["how"] == "stopped" and ended["in_use"] == [])
    check("exit.json says the same", job.exit()["how"] == "stopped" and job.exit()["generation"] == 4)
    job.master.wait(PATIENCE)
    last = int(job.checkpoints()[-1][5:17])
    check("its last step is in a checkpoint", last >= ended["progress"]["step"] > 0)
    check("a start that has ended does not run again",
          subprocess.run([f"{BUILD}/rubato", "master", job.directory],
                         capture_output=True).returncode == 2)

    # A new start continues from there. Then its master and its manager die, and its worker is suspended.
    job.launch["command"] += ["--checkpoint-seconds", "0", "--checkpoint-steps", "10"]
    manager = job.start(5, ["0.0"])
    manager.until_running(5)
    resumed = manager.until("progress", lambda s: s["progress"]["step"] > last + 30)
    check("it resumed", f"step-{last:012d}.ckpt" in job.log())
    check("epochs are counted from the beginning",
          resumed["progress"]["samples"] > last * resumed["progress"]["batch"] * 0.9)
    job.master.kill()
    job.master.wait()
    [sleeper] = job.workers()
    os.kill(sleeper["pid"], signal.SIGSTOP)

    # A newer start in the same directory. The suspended worker continues alone and must write nothing there.
    manager = job.start(6, ["0.1"])
    manager.until_running(6)
    mark = manager.until("progress", lambda s: s["progress"]["step"] > 0)["progress"]["step"]
    os.kill(sleeper["pid"], signal.SIGCONT)
    manager.until("more progress", lambda s: s["progress"]["step"] > mark + 100)
    with open(f"/proc/{sleeper['pid']}/stat") as file:
        check("the sleeper is awake", file.read().rsplit(")", 1)[1].split()[0] in "RSD")
    starts = set()
    for name in job.checkpoints():
        with open(f"{job.directory}/checkpoint/{name}", "rb") as file:
            file.seek(12)
            size = struct.unpack("<I", file.read(4))[0]
            file.seek(24)
            starts.add(json.loads(file.read(size))["about"]["start"])
    check(f"all checkpoints are of the newest start, {starts}", starts == {3})
    os.kill(sleeper["pid"], signal.SIGKILL)

    # A worker that dies is replaced in its slot. A kill takes effect at once.
    victim = job.workers()[0]
    manager.place(7, ["0.1", "0.2"])
    manager.until_running(7)
    manager.until("a step of two", lambda s: s["progress"]["workers"] == 2)  # from then on either can go on
    os.kill(victim["pid"], signal.SIGKILL)
    replaced = manager.until("a replacement", lambda s: s["failures"] == 1 and s["running"])
    check("in its slot", replaced["in_use"] == ["0.1", "0.2"])
    manager.send({"type": "kill"})
    ended = manager.until("the end", lambda s: "ended" in s)
    check("it was killed", ended["ended"]["how"] == "failed" and ended["ended"]["why"] == "killed")
    job.master.wait(PATIENCE)
    check("nobody is left", job.workers() == [])


with tempfile.TemporaryDirectory(prefix="rubato-managed-") as root:
    job = Job(root)
    try:
        scenario(job)
    finally:
        if failed and os.path.exists(f"{job.directory}/log"):
            print(job.log()[-3000:])
        job.destroy()
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
END
