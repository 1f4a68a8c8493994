#!/usr/bin/env python3
"""What crosses a network, on hosts made of namespaces (hosts.py).

    e2e/many_hosts.py BUILD [SCENARIO...]     all scenarios by default; exit 1 if anything does not hold
    e2e/many_hosts.py --list                  the names of the scenarios

Without root, a scenario is skipped with a message. As root, a host that cannot be made is a failure.
The first scenarios test the hosts themselves: a network that does not delay, lose or cut would hide the
faults that the others look for. Times are only compared with bounds that hold on any machine.
"""

import json
import os
import pathlib
import subprocess
import textwrap
import time

from hosts import Network, why_not
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


SCENARIOS = [hosts_are_apart, links_delay_and_limit, links_lose_and_cut, hosts_freeze_and_fail]

if __name__ == "__main__":
    main(SCENARIOS, "many hosts")
