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
import socket
import ssl
import struct
import subprocess
import textwrap
import time

from hosts import NAMESPACES, Network, why_not
from live import await_true, main, require

DAY = 86400
# How far the wall clocks of shares are off, by host (wall_clock.c).
WALL_OFFSETS = {"a": 0, "b": DAY, "c": -DAY}

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


def signal_program(process, number):
    """The same for another signal."""
    for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), number)


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
    with Network(["a", "b"], clocks={"b": DAY}) as network:
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
        require(clocks[1] - clocks[0] > DAY - 60, f"the clocks are {clocks}")
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

    def __init__(self, network, build, name, flags, steps, gates, words=None):
        self.network = network
        self.name = name
        self.directory = network.shared / name
        self.directory.mkdir()
        self.log = self.directory / "run.log"
        self.rubato = build / "rubato"
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.directory), "OMP_NUM_THREADS": "1",
                            "GATES": ",".join(map(str, gates))}
        words = words or [build / "examples/faulty", "--steps", steps, "--batch", 20]
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
        await_true(done, lambda: f"{number} hellos; {self.said()}")

    def joined(self, greeted, gate, working):
        """Opens the gate when all are there, and waits until they take part. Steps are slow meanwhile."""
        self.await_greeted(greeted)
        self.open(gate)
        return self.await_working(working)

    def await_working(self, number):
        def done():
            require(self.process.poll() is None, f"the run ended: {self.said()}")
            return len(self.working()) == number and self.working()
        return await_true(done, lambda: f"{number} workers; {self.said()}")

    def await_step(self, step):
        await_true(lambda: self.reached() >= step, lambda: f"step {step}; {self.said()}")

    def reached(self):
        reports = self.events("report")
        return reports[-1]["content"]["step"] if reports else 0

    def left_nothing(self):
        for host in self.network.hosts.values():
            await_true(lambda host=host: not host.processes(), f"the end of all processes on {host.name}")

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
        await_true(lambda: self.process.poll() is not None, lambda: f"the end of the run; {self.said()}")
        require(self.process.returncode == 0, f"the run ended with {self.process.returncode}: {self.said()}")
        steps = [event["content"]["step"] for event in self.events("report")]
        require(steps == list(range(1, len(steps) + 1)), f"steps are missing or twice: {steps}")
        return self.events("notice", "finished")[-1]["content"]["digest"]


class HostsRun(Run):
    def __init__(self, network, build, name, flags, steps, gates, words=None, version=4):
        shell = network.shared / "rsh"
        shell.write_text(REMOTE_SHELL.format(namespaces=" ".join(f"--{name}" for name in NAMESPACES)))
        shell.chmod(0o755)
        for host in network.hosts.values():
            (network.shared / f"init-{host.name}").write_text(str(host.init))
        # Given by its address, because the real machine does not know the names of the hosts.
        master = network.hosts["m"]
        super().__init__(network, build, name,
                         ["--rsh", shell, "--remote-program", build / "rubato", "--address",
                          master.address6 if version == 6 else master.address, *flags], steps, gates, words)

    def _prefix(self):
        return ["nsenter", f"--target={self.network.hosts['m'].init}", "--net", "--uts", "--"]

    def ends_clean(self):
        """No worker failed, none was started again, and no process is left on any host."""
        codes = {event["code"] for event in self.events("exit")}
        require(codes <= {0, 3}, f"workers ended with {codes}: {self.said()}")
        self.left_nothing()


def one_host(network, build, steps):
    """The digest of the parameters after so many steps of one worker on one machine."""
    run = Run(network, build, "plain", ["--workers", 1], steps, [])
    run.fast()
    return run.digest()


@contextlib.contextmanager
def three_hosts():
    """A master's host and three others, whose monotonic clocks are days apart. No run is left behind."""
    with Network(["m", "a", "b", "c"], clocks={"a": DAY, "b": 3 * DAY}) as network:
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
        first = run.joined(2, 5, 2)  # on the hosts that answered first
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


def connections(pid, version):
    """How many TCP connections of this version there are in the network of this process."""
    def mapped(address):  # an IPv4 address, as a socket of IPv6 shows it
        return address.startswith("0000000000000000FFFF0000")
    count = 0
    for file in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{file}").read_text().splitlines()[1:]:
            peer, state = line.split()[2:4]
            is6 = file == "tcp6" and not mapped(peer)
            count += state == "01" and is6 == (version == 6)
    return count


@needs_hosts
def killed_worker_across_hosts(build):
    kills = 5
    gates = [5 + 30 * turn for turn in range(kills + 1)]
    steps = gates[-1] + 20
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1,c:1"], steps, gates, version=6)
        times = []
        for turn in range(kills):
            working = sorted(run.joined(3 + turn, gates[turn], 3))
            by_version = [sum(connections(network.hosts[name].init, version) for name in "abc") for version in (4, 6)]
            # With the master: one of each share and each worker. Among workers: two of each pair, at both ends.
            require(by_version[0] == 0 and by_version[1] >= 6 + 12, f"connections of IPv4 and IPv6: {by_version}")
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
        return f"{kills} kills, by IPv6; from the command to the last survivor that goes on: {shown} ms"


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
    address, ports, connections = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3])
    kept = []
    for number in range(connections):
        kept.append(socket.create_connection((address, int(ports[number % len(ports)]))))
        if number % 3 == 0:
            kept[-1].sendall(os.urandom(500))
    print("there", flush=True)
    time.sleep(600)
"""


def memory_of(run):
    """Bytes that are resident in the launcher and in all processes of the hosts a and b."""
    processes = [run.process.pid, *(pid for name in ("a", "b") for pid in run.network.hosts[name].processes())]
    pages = [int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in processes]
    return sum(pages) * os.sysconf("SC_PAGESIZE")


@needs_hosts
def strangers_join_nothing(build):
    steps = 100
    # On each of three hosts.
    connections = 3400 if "EVERY_COMBINATION" in os.environ else 600
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1"], steps, [5, 50, 90])
        first = run.joined(2, 5, 2)
        master = network.hosts["m"].address
        port = listening_ports(network.hosts["m"].init).pop()
        c = network.hosts["c"]
        wrong = "00" * 32
        # The name of the job in its keys is not secret.
        job = json.loads(next(run.directory.glob("rubato-share-*/key-*")).read_text())["job"]
        # A share that names itself a, and a worker that names itself 2, both with a wrong key.
        share = c.start(["sh", "-c", 'printf "%s\\n" "$1" | "$0" share', build / "rubato",
                         json.dumps({"master": f"tcp:{master}:{port}", "identity": f"{job}/0/share/a", "name": "a",
                                     "secret": wrong, "address": ""})],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        key = network.shared / "key"
        key.write_text(json.dumps({"job": job, "start": 0, "round": 1, "secret": wrong}))
        key.chmod(0o600)
        worker = c.start(["env", f"RUBATO_LAUNCHER=tcp:{master}:{port}", "RUBATO_WORKER=2", f"RUBATO_KEY={key}",
                          build / "examples/faulty", "--steps", "5"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        idle = []
        before = memory_of(run)
        for host in ("m", "a", "b"):
            ports = ",".join(map(str, listening_ports(network.hosts[host].init)))
            idle.append(c.start(python(STRANGER, network.hosts[host].address, ports, connections), stdout=subprocess.PIPE,
                                text=True))
            require(idle[-1].stdout.readline() == "there\n", "the stranger could not connect")
        reached = run.reached()
        run.open(50)
        run.await_step(min(reached + 10, 85))
        time.sleep(5)  # so that each has tried several times
        require(worker.poll() is None, "the worker with a wrong key ended")
        require(share.poll() in (None, 1), "the share with a wrong key did not give up")
        require(len(run.events("hello")) == 2 and len(run.events("start")) == 2, "a stranger was taken in")
        require("is back" not in run.said(), "a stranger took the place of a share")
        grown = memory_of(run) - before
        require(grown < 64 << 20, f"strangers cost {grown >> 20} MiB")
        run.fast()
        run.open(90)
        require(run.digest() == expected, "with strangers the hosts train something else than one")
        require({event["worker"] for event in run.events("start")} == first, "a worker was started again")
        for process in [share, worker, *idle]:
            if process.poll() is None:
                end_program(process)
            if process.stdout:
                process.stdout.close()
        return (f"a share and a worker with a wrong key, and {3 * connections:,} strangers: nobody joined, training went on,"
                f" {grown / (1 << 20):.0f} MiB more")


# Writes what is sent to the host's TCP ports, by connection, into files. The first argument is a directory.
RECORDER = """
    import pathlib, socket, struct, sys
    directory, server = pathlib.Path(sys.argv[1]), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    streams = {}
    print("ready", flush=True)
    while True:
        packet, (_, _, kind, *_) = server.recvfrom(65536)
        if kind == socket.PACKET_OUTGOING or packet[0] >> 4 != 4 or packet[9] != 6:
            continue
        segment = packet[(packet[0] & 15) * 4:struct.unpack("!H", packet[2:4])[0]]
        source, port, number = struct.unpack("!HHI", segment[:8])
        data, first = segment[(segment[12] >> 4) * 4:], segment[13] & 18 == 2  # SYN without ACK
        stream = streams.setdefault((packet[12:16], source, port), {"next": number + 1, "data": b"", "whole": bool(first)})
        if data and stream["whole"] and number == stream["next"] and len(stream["data"]) < 1 << 16:
            stream["next"], stream["data"] = number + len(data), stream["data"] + data
            (directory / f"{port}-{source}").write_bytes(stream["data"])
"""

# Says again what others have said, each on a connection of its own, to these ports. Prints for each how many bytes
# came back before the other side closed it.
REPLAYER = """
    import pathlib, socket, sys
    for file, port in [(file, port) for file in sorted(pathlib.Path(sys.argv[3]).iterdir()) for port in sys.argv[2].split(",")]:
        client = socket.create_connection((sys.argv[1], int(port)))
        client.settimeout(20)
        count = 0
        try:
            client.sendall(file.read_bytes())
            while data := client.recv(65536):
                count += len(data)
        except ConnectionError:
            pass
        print(file.name, count, flush=True)
"""


@needs_hosts
def former_keys_and_recordings_join_nothing(build):
    """Whoever has the key of an earlier round, or has recorded what was said, cannot join."""
    steps = 60
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        m, a, b, c = (network.hosts[name] for name in "mabc")
        recordings, recorders = {}, []
        for host in (m, a, b):
            recordings[host.name] = network.shared / f"recorded-{host.name}"
            recordings[host.name].mkdir()
            recorders.append(host.start(python(RECORDER, recordings[host.name]), stdout=subprocess.PIPE, text=True))
            require(recorders[-1].stdout.readline() == "ready\n", "the recorder did not start")
        run = HostsRun(network, build, "wide", ["--hosts", "a:1,b:1"], steps, [5, 50])
        run.await_greeted(2)
        # Of the two workers, one has connected to the other, twice.
        await_true(lambda: len([*recordings["a"].iterdir(), *recordings["b"].iterdir()]) == 2, "the worker to be recorded")
        for recorder in recorders:
            end_program(recorder)
            recorder.stdout.close()

        def replay():
            said = []
            for host in (m, a, b):
                ports = ",".join(map(str, listening_ports(host.init)))
                lines = c.run(python(REPLAYER, host.address, ports, recordings[host.name])).splitlines()
                said += [(host.name, *line.split()) for line in lines]
            # A listener whose key is proven answers at least with its roster. An alert and what comes before are short,
            # but OpenSSL 3.5 and later add 1,088 bytes to the first message: a key that quantum computers cannot find.
            short = 600 + (1088 if ssl.OPENSSL_VERSION_INFO >= (3, 5) else 0)
            require(len(said) == 6 and all(int(size) < short for _, _, size in said), f"the answers: {said}")
            return len(said)
        replayed = replay()
        key = next(run.directory.glob("rubato-share-*/key-*"))
        former = network.shared / "former-key"
        former.write_text(key.read_text())
        former.chmod(0o600)
        first = {event["worker"] for event in run.events("hello")}
        for uid in sorted(first):  # nobody has the state any more: the next round begins
            run.ask("kill", uid)
        await_true(lambda: "all start again" in run.said(), lambda: f"the next round; {run.said()}")
        run.await_greeted(4)
        port, uid = listening_ports(m.init).pop(), 77
        stranger = c.start(["env", f"RUBATO_LAUNCHER=tcp:{m.address}:{port}", f"RUBATO_WORKER={uid}", f"RUBATO_KEY={former}",
                            build / "examples/faulty", "--steps", str(steps)], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        replayed += replay()
        time.sleep(3)  # so that it has tried several times
        require(json.loads(former.read_text())["round"] == 1 and not stranger.poll(), "the worker with the former key")
        greeted = {event["worker"] for event in run.events("hello")}
        require(greeted <= {event["worker"] for event in run.events("start")}, f"a stranger was taken in: {run.said()}")
        run.fast()
        for gate in (5, 50):
            run.open(gate)
        await_true(lambda: run.process.poll() is not None, lambda: f"the end of the run; {run.said()}")
        require(run.process.returncode == 0, f"the run ended with {run.process.returncode}: {run.said()}")
        require(run.events("notice", "finished")[-1]["content"]["digest"] == expected, "it trained something else")
        end_program(stranger)
        return f"{replayed} recordings sent again, and a worker with the key of round 1 in round 2: nobody joined"


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
        await_true(lambda: run.process.poll() is not None, lambda: f"the end of the run; {run.said()}")
        require(run.process.returncode == 130, f"the run ended with {run.process.returncode}: {run.said()}")
        require(run.events("notice", "stopped"), "the workers did not end together")
        run.left_nothing()
        return "Ctrl-C: the workers stopped at one step, and nothing is left on the hosts"


# --- a client on another host ----------------------------------------------------------------------


def openssl(directory, *words):
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)


def make_authority(directory, name):
    """A certificate authority: NAME.pem and NAME.key."""
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")


def make_certificate(directory, authority, name, names):
    """A certificate for `names` ("DNS:a,IP:192.0.2.1"): NAME.pem and NAME.key."""
    (directory / "names").write_text(f"subjectAltName={names}\n")
    openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", "1", "-extfile", "names", "-out", f"{name}.pem")


@needs_hosts
def login_from_another_host(build):
    """The daemon speaks TLS on one host. On another, `rubato login` is all that a user does."""
    with Network(["head", "desk"]) as network:
        head, desk = network.hosts["head"], network.hosts["desk"]
        shared = network.shared
        for name in ("authority", "stranger"):
            make_authority(shared, name)
        make_certificate(shared, "authority", "server", f"DNS:head,IP:{head.address}")
        rubato, home = str(build / "rubato"), shared / "home"
        home.mkdir()

        def up(*flags, limit=None):
            words = ["env", f"RUBATO_STATE={shared}/state", rubato, "up", "--cluster", "1x2", *flags]
            if limit:
                return subprocess.run(head.command(words), stderr=subprocess.PIPE, text=True, timeout=limit)
            return head.start(words, stderr=subprocess.DEVNULL)

        def client(*words, host=desk, text=""):
            done = subprocess.run(host.command(["env", "-u", "RUBATO_STATE", f"HOME={home}", "NO_COLOR=1", rubato, *words]),
                                  input=text, capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr

        # Without TLS the daemon does not listen where others could read tokens.
        refused = up("--listen", "0.0.0.0:8443", limit=60)
        require(refused.returncode == 2 and "--tls-cert" in refused.stderr, f"it listens: {refused.stderr}")
        daemon = up("--listen", "0.0.0.0:8443", "--tls-cert", f"{shared}/server.pem", "--tls-key", f"{shared}/server.key")
        token_file = shared / "state" / "admin.token"
        await_true(lambda: (shared / "state" / "api.address").exists(), "the daemon to listen")
        require((shared / "state" / "api.address").read_text() == "https://head:8443\n", "its address")
        token = token_file.read_text().strip()
        login = ("login", "head:8443", "--ca", f"{shared}/authority.pem")
        # What is wrong is said in one sentence, and nothing is stored.
        for words, given, code, sentence in (
                (("login", "head:8443", "--ca", f"{shared}/stranger.pem"), token, 4, "not signed by an authority"),
                (("login", "head:8443"), token, 4, "not signed by an authority"),
                (("login", "head:8443", "--ca", f"{shared}/names"), token, 4, "no certificate in PEM"),
                (("login", "http://head:8443"), token, 2, "speaks TLS"),
                (login, "wrong", 5, "this token is not known"),
                (login, "", 2, "no token on standard input"),
                (("login", "head:1", "--ca", f"{shared}/authority.pem"), token, 4, "no daemon listens")):
            status, out, err = client(*words, text=given)
            require(status == code and sentence in err and err.count("\n") == 1, f"{words}: {status} {out} {err}")
        make_certificate(shared, "authority", "other", "DNS:other.example.org")
        require(not list(home.iterdir()), "something was stored")
        status, out, err = client(*login, text=token + "\n")
        require(status == 0 and "logged in to https://head:8443 as" in out, f"login: {status} {out} {err}")
        file = home / ".config" / "rubato" / "login.json"
        require(file.stat().st_mode & 0o777 == 0o600, "others can read the token")
        # Everything works without a flag: questions, streams, logs.
        status, out, err = client("submit", "--gpus", "1", "--wait", "--directory", "/", "--", "echo", "it runs")
        require(status == 0, f"submit: {status} {out} {err}")
        require("it runs" in client("logs", "1")[1], "the log")
        require(json.loads(client("page", "--print", "--json")[1])["url"].startswith("https://head:8443/#code="), "page")
        # By its address, with flags; and not by another name.
        by_address = ("ls", "--ca", f"{shared}/authority.pem", "--token-file", str(token_file), "--server")
        require(client(*by_address, f"https://{head.address}:8443")[0] == 0, "its address")
        # A renewed certificate is used without a restart.
        for end in ("key", "pem"):
            os.replace(shared / f"other.{end}", shared / f"server.{end}")
        await_true(lambda: "for another name" in client("ls")[2], "the new certificate")
        file.chmod(0o644)
        require("chmod 600" in client("ls")[2], "a token that others can read was used")
        file.chmod(0o600)
        require("logged out" in client("logout")[1] and not file.exists(), "logout")
        require("not logged in" in client("logout")[1], "logout again")
        head.run(["kill", (shared / "state" / "lock").read_text().strip()])
        daemon.wait(60)
        return "a client on another host verifies the daemon, logs in once, and works without flags"


# Says what torchrun would tell each rank, and then trains (ddp.py).
RANK = """
    import json, os, runpy, socket, sys
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
    print(json.dumps({"host": socket.gethostname(), **{name: os.environ[name] for name in names}}), flush=True)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@needs_hosts
def unmodified_program_spans_hosts(build):
    steps = 120
    with three_hosts() as network:
        folder = network.shared / "ddp"
        folder.mkdir()
        program = pathlib.Path(__file__).resolve().parent / "ddp.py"
        run = HostsRun(network, build, "plain", ["--hosts", "a:1,b:2,c:1", "--mode", "restart", "--workers", "2:4"], 0, [],
                       [os.environ.get("PYTHON", "/usr/bin/python3"), *python(RANK, program, folder, steps)[1:]])
        lines = folder / "steps.jsonl"
        done = lambda: [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        await_true(lambda: len(done()) > 10, lambda: f"the first steps; {run.said()}")
        run.ask("resize", 4)
        await_true(lambda: done()[-1]["world"] == 4, lambda: f"four ranks; {run.said()}")
        require(run.process.wait() == 0, f"the run ended with {run.process.returncode}: {run.said()}")
        ranks = [json.loads(line[line.index("{"):]) for line in (run.directory / "output").read_text().splitlines()
                 if '"MASTER_ADDR"' in line]
        last = sorted(ranks[-4:], key=lambda rank: int(rank["RANK"]))
        shown = [(rank["host"], int(rank["GROUP_RANK"]), int(rank["LOCAL_RANK"]), int(rank["LOCAL_WORLD_SIZE"]))
                 for rank in last]
        require(shown == [("a", 0, 0, 1), ("b", 1, 0, 2), ("b", 1, 1, 2), ("c", 2, 0, 1)], f"the ranks: {shown}")
        require({rank["MASTER_ADDR"] for rank in last} == {network.hosts["a"].address}, f"they meet at {last}")
        history = {}
        for line in done():
            history.setdefault(line["step"], set()).add(round(line["loss"], 3))
        require(sorted(history) == list(range(min(history), max(history) + 1)), "steps are missing")
        require(max(len(losses) for losses in history.values()) == 1, "a step that was taken again gave another loss")
        run.left_nothing()
        return f"{len(history)} steps of a DistributedDataParallel program, 2 then 4 ranks on 3 hosts"


@needs_hosts
def checkpoints_of_zombies_count_for_nobody(build):
    steps = 120
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        saved = network.shared / "saved"
        words = [build / "examples/faulty", "--steps", steps, "--batch", 20, "--checkpoint", saved, "--checkpoint-steps", 4]
        run = HostsRun(network, build, "first", ["--hosts", "a:1,b:1"], steps, [5, 60], words)
        first = run.joined(2, 5, 2)
        run.await_step(30)
        zombie = run.host_of(min(first))
        network.hosts[zombie].freeze()
        run.process.kill()
        run.process.wait()
        before = {path.name for path in saved.glob("*.ckpt")}
        # Another run takes the directory over while the leader of the first one sleeps. Then the leader wakes up.
        again = HostsRun(network, build, "second", ["--hosts", "c:1"], steps, [steps - 40, steps - 10], words)
        await_true(lambda: len(list(saved.glob("claim-*.json"))) == 2, f"the second claim; {again.said()}")
        network.hosts[zombie].thaw()
        run.open(60)
        again.open(steps - 40)
        again.await_step(steps - 20)
        again.process.kill()
        again.process.wait()
        last = HostsRun(network, build, "third", ["--hosts", "c:1"], steps, [], words)
        last.fast()
        await_true(lambda: last.process.poll() is not None, f"the end; {last.said()}")
        begun = last.events("report")[0]["content"]["step"]
        require(last.events("notice", "finished")[-1]["content"]["digest"] == expected, "it trained something else")
        require(begun > steps - 40, f"the third run began with step {begun}, not with what the second one wrote")
        require(not before & {path.name for path in saved.glob("*.ckpt")}, "files of the first run are left")
        return f"the third run went on at step {begun} with the second one's checkpoint; the same bits"


# --- a master whose shares are started by a cluster manager ---------------------------------------

class ManagedRun(Run):
    """A job in shares. The test is the agent of the master, and the cluster manager that starts the shares."""

    def __init__(self, network, build, name, placed, steps, gates, live=True, command=None):
        self.network, self.name, self.build = network, name, build
        self.rubato = build / "rubato"
        self.directory = network.shared / name
        self.job = network.shared / f"{name}-job"
        for directory in (self.directory, self.job):
            directory.mkdir()
            directory.chmod(0o700)
        self.log = self.job / "events.jsonl"
        self.output = (self.directory / "output").open("w")
        self.shares, self.generation, self.revision, self.manager = {}, 1, 0, None
        command = command or [build / "examples/faulty", "--steps", steps, "--batch", 20]
        slots = [slot for _, _, on in placed for slot in on]
        launch = {"job": 7, "name": name, "token": "token", "home": 0, "generation": 1, "slots": slots,
                  "node_gpus": [1, 1, 1], "batch": None, "command": [str(word) for word in command],
                  "env": {"GATES": ",".join(map(str, gates)), "OMP_NUM_THREADS": "1"}, "directory": str(self.directory),
                  "user": "", "secrets": {"SECRET": str(self.directory / "secret")}, "least": 1, "most": 3,
                  "max_failures": 3, "grace": 5, "log_limit": 1 << 20, "live": live,
                  "shares": {"directory": str(self.job), "placed": self._placed(placed),
                             "address": network.hosts["m"].address}}
        (self.directory / "secret").write_bytes(b"\xff\x00secret")
        (self.job / "launch.json").write_text(json.dumps(launch))
        self.begin_master()
        network.runs.append(self)

    @staticmethod
    def _placed(placed):
        return [{"name": name, "node": node, "slots": slots} for name, node, slots in placed]

    def begin_master(self):
        if self.manager:
            self.manager.close()
        self.process = subprocess.Popen(
            ["nsenter", f"--target={self.network.hosts['m'].init}", "--net", "--uts", "--", str(self.rubato), "master",
             str(self.job)], stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT)
        self.manager = await_true(self._connect, lambda: f"the master; {self.said()}")
        self._send({"type": "manage", "token": "token"})
        self.bytes, self.newest = b"", None

    def _connect(self):
        require(self.process.poll() is None, f"the master ended: {self.said()}")
        manager = socket.socket(socket.AF_UNIX)
        try:
            manager.connect(str(self.job / "m.sock"))
        except OSError:
            manager.close()
            return None
        manager.setblocking(False)
        return manager

    def _send(self, message):
        text = json.dumps(message).encode()
        self.manager.sendall(struct.pack("<I", len(text)) + text)

    def status(self):
        """The newest status of the master."""
        with contextlib.suppress(BlockingIOError):
            while data := self.manager.recv(1 << 16):
                self.bytes += data
        while len(self.bytes) >= 4 and len(self.bytes) >= 4 + struct.unpack("<I", self.bytes[:4])[0]:
            size = struct.unpack("<I", self.bytes[:4])[0]
            self.newest, self.bytes = json.loads(self.bytes[4:4 + size]), self.bytes[4 + size:]
        return self.newest or {}

    def linked(self):
        return {share["name"]: share["native"] for share in self.status().get("shares", []) if share["linked"]}

    def place(self, placed, ended=(), new_generation=True):
        self.generation += new_generation
        self.revision = 0 if new_generation else self.revision + 1
        self._send({"type": "place", "generation": self.generation, "revision": self.revision, "batch": None,
                    "slots": [slot for _, _, on in placed for slot in on], "shares": self._placed(placed),
                    "ended_shares": list(ended)})

    def submit(self, name, host, native):
        """What a cluster manager does: starts `rubato share` on a host."""
        environment = {**os.environ, "NATIVE_ID": native, "CUDA_VISIBLE_DEVICES": f"GPU-{host}", "OMP_NUM_THREADS": "1",
                       **self.clock_of(host)}
        share = self.network.hosts[host].start(
            [self.rubato, "share", "--config", self.job / "shares" / f"{name}.json", "--native-env", "NATIVE_ID"],
            env=environment, stdout=self.output, stderr=subprocess.STDOUT)
        self.shares.setdefault(name, []).append(share)
        return share

    def clock_of(self, host):
        """The environment in which programs of this host have a wall clock of their own."""
        library = self.network.shared / "wall_clock.so"
        if not library.exists():
            source = pathlib.Path(__file__).with_name("wall_clock.c")
            subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        return {"LD_PRELOAD": str(library), "WALL_OFFSET": str(WALL_OFFSETS[host])}

    def said(self):
        log = self.job / "log"
        return super().said() + (log.read_text()[-2000:] if log.exists() else "")

    def greeted(self):
        return {event["worker"] for event in self.events("hello")}

    def await_hello(self, number):
        await_true(lambda: len(self.greeted()) >= number, lambda: f"{number} hellos; {self.said()}")

    def ends(self, expected):
        await_true(lambda: self.process.poll() is not None, lambda: f"the end of the job; {self.said()}")
        exit_file = json.loads((self.job / "exit.json").read_text())
        require(exit_file["how"] == "finished", f"the end: {exit_file}; {self.said()}")
        require(self.events("notice", "finished")[-1]["content"]["digest"] == expected, "it trained something else")
        return exit_file

    def all_shares_end(self):
        for name, processes in self.shares.items():
            for process in processes:
                await_true(lambda process=process: process.poll() is not None, lambda: f"the end of share {name}; {self.said()}")


@needs_hosts
def managed_shares_change_while_training(build):
    steps = 160
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        one, two, three = ("s-1", "a", ["0.0"]), ("s-2", "b", ["1.0"]), ("s-3", "c", ["2.0"])
        run = ManagedRun(network, build, "wide", [one, two], steps, [5, 30, 60, 90, steps - 10])
        late = int(network.hosts["c"].run(["date", "+%s"], env={**os.environ, **run.clock_of("c")}))
        require(abs(time.time() - DAY - late) < 3600, "the wall clock of c is not a day late")
        run.submit("s-1", "a", "101")
        await_true(lambda: run.linked() == {"s-1": "101"}, lambda: f"the first share; {run.said()}")
        # A manager that was asked twice has started two. A share may also come before its place.
        double = run.submit("s-1", "c", "102")
        require(double.wait() == 0, "the second share of a name did not end")
        run.submit("s-3", "c", "103")
        run.submit("s-2", "b", "104")
        first = run.joined(2, 5, 2)
        run.place([one, two, three])
        run.await_hello(3)
        run.open(30)
        require(first < run.await_working(3), "a worker was started again to grow")
        await_true(lambda: run.status()["running"], "the master to say that all run")
        # A share is given back: its process ends by itself.
        run.place([one, three])
        run.open(60)
        rest = run.await_working(2)
        require(run.shares["s-2"][0].wait() == 0, "a share that is not needed did not end")
        await_true(lambda: "s-2" not in {share["name"] for share in run.status()["shares"]}, "s-2 to be forgotten")
        # A preemption: the share gets SIGTERM, its worker leaves, and another share takes its slot.
        gone = next(uid for uid in rest if run.host_of(uid) == "c")
        signal_program(run.shares["s-3"][0], signal.SIGTERM)
        run.open(90)
        require(run.await_working(1) == rest - {gone}, "the wrong worker left")
        run.shares["s-3"][0].wait()
        run.place([one, ("s-4", "b", ["2.0"])], ended=["s-3"], new_generation=False)
        run.submit("s-4", "b", "105")
        run.await_hello(4)
        last = run.await_working(2)
        require({run.host_of(uid) for uid in last} == {"a", "b"}, "the new share is not used")
        run.open(steps - 10)
        run.fast()
        end = run.ends(expected)
        require(end["failures"] == 0, f"the end: {end}")
        run.all_shares_end()
        run.left_nothing()
        codes = {event["code"] for event in run.events("exit")}
        require(codes <= {0, 3}, f"workers ended with {codes}: {run.said()}")
        return "2, 3, 2 workers in shares, clocks days apart; one started twice, one given back, one preempted: no restart, the same bits"


@needs_hosts
def killed_master_is_replaced(build):
    steps = 200
    with three_hosts() as network:
        expected = one_host(network, build, steps)
        placed = [("s-1", "a", ["0.0"]), ("s-2", "b", ["1.0"]), ("s-3", "c", ["2.0"])]
        run = ManagedRun(network, build, "wide", placed, steps, [5, 40, 80, steps - 10])
        for (name, host, _), native in zip(placed, "123"):
            run.submit(name, host, native)
        first = run.joined(3, 5, 3)
        for gate in (40, 80):
            # The first time nothing else happens. The second time a host is frozen meanwhile.
            reached = run.reached()
            if gate == 80:
                network.hosts["c"].freeze()
            run.process.kill()
            run.process.wait()
            time.sleep(1)
            run.begin_master()
            run.open(gate)
            if gate == 40:
                await_true(lambda: run.status().get("running"), lambda: f"the new master to know all workers; {run.said()}")
                require(run.working() == first, f"{run.working()} train, {first} did before")
            await_true(lambda: run.reached() > reached + 5, lambda: f"training to go on; {run.said()}")
        # Of the frozen host's worker nobody knows whether it lives. It is excluded, and ends when it is thawed.
        rest = run.await_working(2)
        zombie, = first - rest
        network.hosts["c"].thaw()
        await_true(lambda: len(run.working()) == 3 and zombie not in run.working(), lambda: f"the host to be used again; {run.said()}")
        require(rest < run.working(), "a worker was started again")
        run.open(steps - 10)
        run.fast()
        end = run.ends(expected)
        require(end["failures"] == 0, f"the end: {end}")
        require([event["epoch"] for event in run.events("adopt")] == [2, 3], "the master was not replaced twice")
        run.all_shares_end()
        run.left_nothing()
        return "a master was killed twice, once while a host was frozen: the next one went on, the same bits"


SCENARIOS = [hosts_are_apart, links_delay_and_limit, links_lose_and_cut, hosts_freeze_and_fail,
             grows_and_shrinks_across_hosts, killed_worker_across_hosts, cut_links_heal, strangers_join_nothing,
             former_keys_and_recordings_join_nothing, lost_host_is_excluded, frozen_host_comes_back,
             interrupt_ends_all_hosts, login_from_another_host,
             managed_shares_change_while_training, killed_master_is_replaced, unmodified_program_spans_hosts,
             checkpoints_of_zombies_count_for_nobody]


if __name__ == "__main__":
    main(SCENARIOS, "many hosts")
