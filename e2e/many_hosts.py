#!/usr/bin/env python3
"""What crosses a network, on hosts made of namespaces (hosts.py).

    e2e/many_hosts.py BUILD [SCENARIO...]     all scenarios by default; exit 1 if anything does not hold
    e2e/many_hosts.py --list                  the names of the scenarios

Without root, a scenario is skipped with a message. As root, a host that cannot be made is a failure.
The first scenarios test the hosts themselves: a network that does not delay, lose or cut would hide the
faults that the others look for. Times are only compared with bounds that hold on any machine.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import textwrap
import time

from hosts import NAMESPACES, Network, why_not
from live import await_true, main, require

# A program on one host that counts the datagrams that arrive, and writes the count into a file.
COUNTER = """
    import pathlib, socket, sys
    family, port, path = (socket.AF_INET6 if sys.argv[1] == "6" else socket.AF_INET), int(sys.argv[2]), sys.argv[3]
    server = socket.socket(family, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    server.bind(("", port))
    file, count = pathlib.Path(path), 0
    while True:
        file.with_suffix(".new").write_text(str(count))
        file.with_suffix(".new").rename(file)
        server.recv(2048)
        count += 1
"""

SENDER = """
    import socket, sys, time
    family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    client = socket.socket(family, socket.SOCK_DGRAM)
    for _ in range(int(sys.argv[3])):
        client.sendto(b"x" * 100, (sys.argv[1], int(sys.argv[2])))
        time.sleep(0.0005)
"""

# Accepts one connection, and answers with the number of bytes that came before the end.
SINK = """
    import socket, sys
    server = socket.create_server(("", 7000))
    print("ready", flush=True)
    connection, _ = server.accept()
    count = 0
    while data := connection.recv(1 << 16):
        count += len(data)
    connection.sendall(str(count).encode())
"""

# How long a connection took, what a send right after a non-blocking connect said, and how long the bytes took.
DIALLER = """
    import json, select, socket, sys, time
    client = socket.socket()
    client.setblocking(False)
    began = time.monotonic()
    started = client.connect_ex((sys.argv[1], 7000))
    try:
        client.send(b"!")
        at_once = "sent"
    except BlockingIOError:
        at_once = "would block"
    select.select([], [client], [])
    connected = time.monotonic() - began
    client.setblocking(True)
    began = time.monotonic()
    client.sendall(b"y" * int(sys.argv[2]))
    client.shutdown(socket.SHUT_WR)
    answer = client.recv(100)
    print(json.dumps({"at_once": at_once, "connected": connected, "sent": time.monotonic() - began,
                      "arrived": int(answer)}))
"""

TICKER = """
    import pathlib, sys, time
    file, count = pathlib.Path(sys.argv[1]), 0
    while True:
        count += 1
        file.with_suffix(".new").write_text(str(count))
        file.with_suffix(".new").rename(file)
        time.sleep(0.01)
"""


def python(program, *words):
    return ["python3", "-c", textwrap.dedent(program), *map(str, words)]


def needs_hosts(scenario):
    """Without root the scenario is skipped. As root it runs, and fails where hosts cannot be made."""
    def run(build):
        if os.geteuid() != 0:
            return f"skipped: {why_not()}"
        return scenario(build)
    run.__name__ = scenario.__name__
    return run


def number_in(path):
    return int(path.read_text()) if path.exists() else -1


def count_arrivals(network, sender, receiver, datagrams, port, version=4):
    """How many of so many datagrams arrive."""
    path = network.shared / f"arrivals-{port}"
    source, target = network.hosts[sender], network.hosts[receiver]
    counter = target.start(python(COUNTER, version, port, path))
    await_true(lambda: number_in(path) == 0, "the counter to listen")
    source.run(python(SENDER, target.address6 if version == 6 else target.address, port, datagrams))
    # Nothing more arrives once the count has not changed for a while that is long beside any delay used here.
    seen, since = 0, time.monotonic()
    while time.monotonic() - since < 0.5:
        if number_in(path) != seen:
            seen, since = number_in(path), time.monotonic()
        time.sleep(0.02)
    end_program(counter)
    return seen


def end_program(process):
    """Ends a program that was started on a host. nsenter does not pass signals on, so its child is ended."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), 9)
    process.wait()


def transfer(network, sender, receiver, size):
    """Connects and sends so many bytes; what the dialler measured."""
    sink = network.hosts[receiver].start(python(SINK), stdout=subprocess.PIPE, text=True)
    require(sink.stdout.readline() == "ready\n", "the sink did not start")
    said = json.loads(network.hosts[sender].run(python(DIALLER, network.hosts[receiver].address, size)))
    sink.wait()
    sink.stdout.close()
    return said


@needs_hosts
def hosts_are_apart(_build):
    day = 86400
    with Network(["a", "b"], clocks={"b": day}) as network:
        a, b = network.hosts["a"], network.hosts["b"]
        require((a.run(["hostname"]), b.run(["hostname"])) == ("a\n", "b\n"), "host names are not their own")
        boot = "/proc/sys/kernel/random/boot_id"
        require(a.run(["cat", boot]) != b.run(["cat", boot]), "two hosts have one boot id")
        for place in ("/tmp", "/run", "/dev/shm"):
            a.run(["touch", f"{place}/mark"])
            require("mark" not in b.run(["ls", place]), f"{place} of a is seen on b")
            require(not pathlib.Path(f"{place}/mark").exists(), f"{place} of a is that of the real machine")
        (network.shared / "word").write_text("shared")
        require(b.run(["cat", network.shared / "word"]) == "shared", "the shared directory is not there")
        sleeper = a.start(["sleep", "600"])
        await_true(a.processes, "the program on a")
        require(b.processes() == [], "processes of a are seen on b")
        clocks = [float(host.run(["cut", "-d ", "-f1", "/proc/uptime"])) for host in (a, b)]
        require(clocks[1] - clocks[0] > day - 60, f"the clocks are {clocks}")
        require(b.address in a.run(["getent", "ahostsv4", "b"]), "a does not know b by its name")
        end_program(sleeper)
    require(not network.directory.exists(), "files were left behind")
    return "names, processes, files, boot ids and clocks are each host's own"


@needs_hosts
def links_delay_and_limit(_build):
    with Network(["a", "b"]) as network:
        near = transfer(network, "a", "b", 1000)
        network.link("a", "b", delay=0.02)
        far = transfer(network, "a", "b", 1000)
        require(far["connected"] >= 0.04, f"a round trip of 40 ms took {far['connected']} s")
        require(far["at_once"] == "would block", "a send right after connect did not block: the link hides that fault")
        network.link("a", "b", delay=0, rate=80e6)
        size = 4_000_000
        slow = transfer(network, "a", "b", size)
        require(slow["arrived"] in (size, size + 1), f"{slow['arrived']} bytes arrived")
        require(slow["sent"] >= 0.95 * size * 8 / 80e6, f"{size} bytes at 80 Mbit/s took {slow['sent']} s")
        network.link("a", "b", rate=0)
        fast = transfer(network, "a", "b", 64_000_000)
        return (f"connected in {1000 * near['connected']:.1f} ms, with 20 ms each way in {1000 * far['connected']:.1f} ms;"
                f" {size * 8 / slow['sent'] / 1e6:.0f} of 80 Mbit/s; without a limit"
                f" {64 / fast['sent']:.0f} MB/s")


@needs_hosts
def links_lose_and_cut(_build):
    sent = 400
    with Network(["a", "b", "c"]) as network:
        require(count_arrivals(network, "a", "b", sent, 7001) == sent, "a link without loss lost something")
        require(count_arrivals(network, "a", "b", sent, 7001, version=6) == sent, "IPv6 lost something")
        network.link("a", "b", loss=0.25)
        arrived = count_arrivals(network, "a", "b", sent, 7002)
        # Nine standard deviations to either side.
        require(220 < arrived < 380, f"{arrived} of {sent} arrived with a loss of 0.25")
        network.link("a", "b", loss=0)
        network.link("a", "b", cut=True, one_way=True)
        require(count_arrivals(network, "a", "b", 20, 7003) == 0, "a cut link delivered")
        require(count_arrivals(network, "b", "a", 20, 7004) == 20, "a one-way cut works both ways")
        require(count_arrivals(network, "a", "c", 20, 7005) == 20, "a cut of one link cuts another")
        network.link("a", "b", cut=False, one_way=True)
        require(count_arrivals(network, "a", "b", 20, 7006) == 20, "a healed link does not deliver")
        return f"{arrived} of {sent} arrived with a loss of 0.25; cuts are one-way and heal"


@needs_hosts
def hosts_freeze_and_fail(_build):
    with Network(["a", "b"]) as network:
        a, b = network.hosts["a"], network.hosts["b"]
        tick = network.shared / "tick"
        ticker = b.start(python(TICKER, tick))
        await_true(lambda: number_in(tick) > 2, "the ticker")
        b.freeze()
        stopped = number_in(tick)
        time.sleep(0.3)
        require(number_in(tick) == stopped, "a frozen host goes on")
        b.thaw()
        await_true(lambda: number_in(tick) > stopped, "the thawed host to go on")
        require(count_arrivals(network, "a", "b", 20, 7001) == 20, "a thawed host is not reached")
        b.power_off()
        ticker.wait()
        stopped = number_in(tick)
        time.sleep(0.3)
        require(number_in(tick) == stopped, "a host without power goes on")
        require(a.run(["hostname"]) == "a\n", "the other host failed, too")
        return "a frozen host stands still and goes on when thawed; one without power is gone"


# --- runs that span hosts -------------------------------------------------------------------------

# The master is on the host m, the workers are on a, b and c. `rubato run` has the network of m, but the
# processes and files of the real machine: so its remote shell can enter the other hosts.
REMOTE_SHELL = """#!/bin/sh
host=$1
shift
exec nsenter --target="$(cat "$(dirname "$0")/init-$host")" {namespaces} -- "$@"
"""


class Run:
    """One run of `faulty` on the hosts, with gates (examples/faulty.cc)."""

    def __init__(self, network, build, name, flags, steps, gates):
        self.network = network
        self.name = name
        self.directory = network.shared / name
        self.directory.mkdir()
        self.log = self.directory / "run.log"
        self.rubato = build / "rubato"
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.directory), "OMP_NUM_THREADS": "1",
                            "GATES": ",".join(map(str, gates))}
        words = [build / "examples/faulty", "--steps", steps, "--batch", 20]
        self.process = self._start(flags, words)
        network.runs.append(self)

    def _start(self, flags, words):
        command = [self.rubato, "run", "--name", self.name, "--log", self.log, *flags, "--", *words]
        self.output = (self.directory / "output").open("w")
        return subprocess.Popen(self._prefix() + [str(word) for word in command], cwd=self.directory,
                                env=self.environment, stdin=subprocess.DEVNULL, stdout=self.output,
                                stderr=subprocess.STDOUT)

    def _prefix(self):
        return []

    def events(self, event=None, kind=None):
        if not self.log.exists():
            return []
        lines = [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if event in (None, line["event"]) and kind in (None, line.get("kind"))]

    def working(self):
        """The working members by the newest notice, or an empty set while anybody joins or leaves."""
        notices = self.events("notice", "members")
        members = notices[-1]["content"]["members"] if notices else []
        settled = all(member["role"] == "working" for member in members)
        return {member["uid"] for member in members} if settled else set()

    def await_greeted(self, number):
        """So many workers have connected to the master."""
        def done():
            require(self.process.poll() is None, f"the run ended: {self.said()}")
            return len(self.events("hello")) >= number
        await_true(done, f"{number} hellos; {self.said()}")

    def joined(self, greeted, gate, working):
        """Opens the gate when all are there, and waits until they take part. Steps are slow meanwhile."""
        self.await_greeted(greeted)
        self.open(gate)
        return self.await_working(working)

    def await_working(self, number):
        def done():
            require(self.process.poll() is None, f"the run ended: {self.said()}")
            return len(self.working()) == number and self.working()
        return await_true(done, f"{number} workers; {self.said()}")

    def await_step(self, step):
        await_true(lambda: self.reached() >= step, f"step {step}; {self.said()}")

    def reached(self):
        reports = self.events("report")
        return reports[-1]["content"]["step"] if reports else 0

    def said(self):
        return (self.directory / "output").read_text()[-2000:]

    def open(self, gate):
        (self.directory / f"gate-{gate}").touch()

    def fast(self):
        (self.directory / "fast").touch()

    def ask(self, verb, *words):
        done = subprocess.run([self.rubato, verb, self.name, *map(str, words)], env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        require(done.returncode == 0, f"rubato {verb}: {done.stderr}")

    def host_of(self, uid):
        return [event["host"] for event in self.events("start") if event["worker"] == uid][-1]

    def digest(self):
        """Waits for the end, which must be good."""
        await_true(lambda: self.process.poll() is not None, f"the end of the run; {self.said()}")
        require(self.process.returncode == 0, f"the run ended with {self.process.returncode}: {self.said()}")
        steps = [event["content"]["step"] for event in self.events("report")]
        require(steps == list(range(1, len(steps) + 1)), f"steps are missing or twice: {steps}")
        return self.events("notice", "finished")[-1]["content"]["digest"]


class HostsRun(Run):
    def __init__(self, network, build, name, flags, steps, gates):
        shell = network.shared / "rsh"
        shell.write_text(REMOTE_SHELL.format(namespaces=" ".join(f"--{name}" for name in NAMESPACES)))
        shell.chmod(0o755)
        for host in network.hosts.values():
            (network.shared / f"init-{host.name}").write_text(str(host.init))
        # Given by its address, because the real machine does not know the names of the hosts.
        super().__init__(network, build, name,
                         ["--rsh", shell, "--remote-program", build / "rubato", "--address",
                          network.hosts["m"].address, *flags], steps, gates)

    def _prefix(self):
        return ["nsenter", f"--target={self.network.hosts['m'].init}", "--net", "--uts", "--"]

    def ends_clean(self):
        """No worker failed, none was started again, and no process is left on any host."""
        codes = {event["code"] for event in self.events("exit")}
        require(codes <= {0, 3}, f"workers ended with {codes}: {self.said()}")
        self.left_nothing()

    def left_nothing(self):
        for host in self.network.hosts.values():
            await_true(lambda host=host: not host.processes(), f"the end of all processes on {host.name}")


def one_host(network, build, steps):
    """The digest of the parameters after so many steps of one worker on one machine."""
    run = Run(network, build, "plain", ["--workers", 1], steps, [])
    run.fast()
    return run.digest()


@contextlib.contextmanager
def three_hosts():
    """A master's host and three others. No run is left behind."""
    with Network(["m", "a", "b", "c"]) as network:
        network.link_all(delay=0.005)
        network.runs = []
        try:
            yield network
        finally:
            for run in network.runs:
                if run.process.poll() is None:
                    run.process.kill()
                    run.process.wait()
                run.output.close()


@needs_hosts
def grows_and_shrinks_across_hosts(build):
    steps = 60
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1,c:2", "--start", 2], steps, [5, 20, 40])
        first = run.joined(2, 5, 2)
        require({run.host_of(uid) for uid in first} == {"a", "b"}, "the first workers are not on a and b")
        run.ask("resize", 4)
        most = run.joined(4, 20, 4)
        require(sorted(run.host_of(uid) for uid in most) == ["a", "b", "c", "c"], "not all hosts are used")
        require(first < most, "a worker was started again to grow")
        run.ask("resize", 2)
        run.open(40)
        require(run.await_working(2) == first, "the wrong workers left")
        run.fast()
        require(run.digest() == expected, "four workers on three hosts train something else than one")
        run.ends_clean()
        end = run.events("end")[-1]
        require(end["fresh_starts"] == 0 and end["failures"] == 0 and end["starts"] == 4, f"the end: {end}")
        return f"2, 4, then 2 workers on 3 hosts, without a restart; digest {expected} as on one host"


@needs_hosts
def killed_worker_across_hosts(build):
    kills = 5
    gates = [5 + 30 * turn for turn in range(kills + 1)]
    steps = gates[-1] + 20
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1,c:1"], steps, gates)
        times = []
        for turn in range(kills):
            working = sorted(run.joined(3 + turn, gates[turn], 3))
            before = len(run.events("notice", "recovered"))
            killed = time.time()
            run.ask("kill", working[turn % 3])
            # Each survivor says when it goes on. The last word counts.
            said = await_true(lambda: len(run.events("notice", "recovered")) >= before + 2
                              and run.events("notice", "recovered")[before:before + 2], "the recovery")
            times.append(max(event["time"] for event in said) - killed)
        run.joined(3 + kills, gates[-1], 3)
        run.fast()
        require(run.digest() == expected, "after kills the hosts train something else than one")
        end = run.events("end")[-1]
        require(end["failures"] == kills and end["fresh_starts"] == 0, f"the end: {end}")
        run.left_nothing()
        times.sort()
        shown = " ".join(f"{1000 * seconds:.0f}" for seconds in times)
        return f"{kills} kills; from the command to the last survivor that goes on: {shown} ms"


@needs_hosts
def cut_links_heal(build):
    steps = 300
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1,c:1"], steps, [5, steps - 10])
        first = run.joined(3, 5, 3)
        # Short: no connection breaks. Long: peers close the silent connections, and make them again. Then from
        # the master, too, and in one direction only.
        for ends, seconds, one_way in ((("b", "c"), 2, False), (("b", "c"), 8, False), (("m", "c"), 8, False),
                                       (("a", "b"), 8, True)):
            network.link(*ends, cut=True, one_way=one_way)
            time.sleep(seconds)
            network.link(*ends, cut=False, one_way=one_way)
            reached = run.reached()
            run.await_step(min(reached + 10, steps - 15))
        run.fast()
        run.open(steps - 10)
        require(run.digest() == expected, "after cuts the hosts train something else than one")
        run.ends_clean()
        starts = {event["worker"] for event in run.events("start")}
        require(starts == first, f"workers {starts} were started, not only {first}")
        recoveries = len({json.dumps(event["content"]["generation"]) for event in run.events("notice", "recovered")})
        return f"cuts of 2 and 8 s lost no member; {recoveries} recoveries"


def listening_ports(pid):
    """TCP ports on which somebody listens in the network of this process."""
    ports = set()
    for file in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{file}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


# Opens idle connections, and sends bytes that mean nothing on others.
STRANGER = """
    import os, socket, sys, time
    address, ports = sys.argv[1], sys.argv[2].split(",")
    kept = []
    for number in range(600):
        kept.append(socket.create_connection((address, int(ports[number % len(ports)]))))
        if number % 3 == 0:
            kept[-1].sendall(os.urandom(500))
    print("there", flush=True)
    time.sleep(600)
"""


@needs_hosts
def strangers_join_nothing(build):
    steps = 100
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1"], steps, [5, 50, 90])
        first = run.joined(2, 5, 2)
        master = network.hosts["m"].address
        port = listening_ports(network.hosts["m"].init).pop()
        c = network.hosts["c"]
        wrong = "00" * 32
        # A share that names itself a, and a worker that names itself 2, both with a wrong key.
        share = c.start(["sh", "-c", 'printf "%s\\n" "$1" | "$0" share', build / "rubato",
                         json.dumps({"master": f"tcp:{master}:{port}", "identity": "wide/0/share/a", "name": "a",
                                     "secret": wrong, "address": ""})],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        key = network.shared / "key"
        key.write_text(json.dumps({"job": "wide", "start": 0, "round": 1, "secret": wrong}))
        key.chmod(0o600)
        worker = c.start(["env", f"RUBATO_LAUNCHER=tcp:{master}:{port}", "RUBATO_WORKER=2", f"RUBATO_KEY={key}",
                          build / "examples/faulty", "--steps", "5"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        idle = []
        for host in ("m", "a", "b"):
            ports = ",".join(map(str, listening_ports(network.hosts[host].init)))
            idle.append(c.start(python(STRANGER, network.hosts[host].address, ports), stdout=subprocess.PIPE, text=True))
            require(idle[-1].stdout.readline() == "there\n", "the stranger could not connect")
        reached = run.reached()
        run.open(50)
        run.await_step(min(reached + 10, 85))
        time.sleep(5)  # so that each has tried several times
        require(worker.poll() is None, "the worker with a wrong key ended")
        require(share.poll() in (None, 1), "the share with a wrong key did not give up")
        require(len(run.events("hello")) == 2 and len(run.events("start")) == 2, "a stranger was taken in")
        require("is back" not in run.said(), "a stranger took the place of a share")
        run.fast()
        run.open(90)
        require(run.digest() == expected, "with strangers the hosts train something else than one")
        require({event["worker"] for event in run.events("start")} == first, "a worker was started again")
        for process in [share, worker, *idle]:
            if process.poll() is None:
                end_program(process)
            if process.stdout:
                process.stdout.close()
        return "a share and a worker with a wrong key, and 1,800 strangers: nobody joined, training went on"


@needs_hosts
def lost_host_is_excluded(build):
    steps = 120
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1,c:1"], steps, [5, 110])
        run.joined(3, 5, 3)
        network.hosts["c"].power_off()
        rest = run.await_working(2)
        require({run.host_of(uid) for uid in rest} == {"a", "b"}, "the wrong workers are left")
        run.fast()
        run.open(110)
        require(run.digest() == expected, "without the lost host the others train something else than one")
        end = run.events("end")[-1]
        require(end["fresh_starts"] == 0, f"the end: {end}")
        del network.hosts["c"]
        run.left_nothing()
        return "the worker of a host without power was excluded, the others went on without a restart"


@needs_hosts
def frozen_host_comes_back(build):
    steps = 200
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1,c:1"], steps, [5, 100, steps - 10])
        first = run.joined(3, 5, 3)
        zombie, = (uid for uid in first if run.host_of(uid) == "c")
        network.hosts["c"].freeze()
        rest = run.await_working(2)
        require(rest == first - {zombie}, "the wrong workers go on")
        network.hosts["c"].thaw()
        # The zombie ends, and its host gets another worker.
        again = run.joined(4, 100, 3)
        require(zombie not in again and len(again & first) == 2, f"{again} train, {first} did before")
        run.fast()
        run.open(steps - 10)
        require(run.digest() == expected, "after a frozen host the hosts train something else than one")
        end = run.events("end")[-1]
        require(end["fresh_starts"] == 0, f"the end: {end}")
        run.left_nothing()
        return "the worker of a frozen host was excluded and ended when thawed; its host got another one"


@needs_hosts
def interrupt_ends_all_hosts(build):
    with three_hosts() as network:
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1"], 100000, [])
        run.await_working(2)
        run.process.send_signal(signal.SIGINT)
        await_true(lambda: run.process.poll() is not None, f"the end of the run; {run.said()}")
        require(run.process.returncode == 130, f"the run ended with {run.process.returncode}: {run.said()}")
        require(run.events("notice", "stopped"), "the workers did not end together")
        run.left_nothing()
        return "Ctrl-C: the workers stopped at one step, and nothing is left on the hosts"


SCENARIOS = [hosts_are_apart, links_delay_and_limit, links_lose_and_cut, hosts_freeze_and_fail,
             grows_and_shrinks_across_hosts, killed_worker_across_hosts, cut_links_heal, strangers_join_nothing,
             lost_host_is_excluded, frozen_host_comes_back, interrupt_ends_all_hosts]

if __name__ == "__main__":
    main(SCENARIOS, "many hosts")
