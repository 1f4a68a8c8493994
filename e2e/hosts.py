#!/usr/bin/env python3
"""Test hosts on one machine, made of namespaces, with links whose delay, rate, loss and cuts are set.

    with Network(["a", "b"]) as network:
        network.link("a", "b", delay=0.005)               # both directions
        network.link("a", "b", cut=True, one_way=True)    # from a to b only
        network.hosts["b"].run(["hostname"])

A host has its own network, process ids, mounts, host name, IPC and, if asked, monotonic clock. Its /tmp,
/run and /dev/shm are its own, so are its boot id and /etc/hosts. Everything else of the file system is
shared, like a network file system. `Network.shared` is a directory that all hosts see.

A switch, a process of its own, holds one TUN device of each host and moves the packets. It is not the
kernel's netem, because many kernels lack that. Delays are exact to about a millisecond, never too short.

With `kernel=True`, a bridge of the kernel moves the packets instead, for benchmarks: it needs little of the
processor, but has no delay, loss or cuts. A host has one rate, in both directions: `network.port("a", 1e9)`.

Needs root. `why_not()` says in a sentence why hosts cannot be made here.
"""

import ctypes
import fcntl
import heapq
import json
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid

PROJECT = pathlib.Path(__file__).resolve().parent.parent
MTU = 9000
# Addresses that are reserved for documentation, so that no packet can ever mean a real machine.
IPV4, IPV6 = "192.0.2.", "2001:db8::"
QUEUE_BYTES = 8 << 20  # what one direction of a link holds; what comes on top of it is lost
NAMESPACES = ("net", "pid", "mount", "uts", "ipc", "time")


def why_not():
    """Why this machine cannot make hosts, or None."""
    if os.geteuid() != 0:
        return "test hosts are made of namespaces, which needs root"
    if not os.path.exists("/dev/net/tun"):
        return "test hosts need /dev/net/tun, which this machine does not have"
    missing = [tool for tool in ("ip", "nsenter", "unshare") if not shutil.which(tool)]
    return f"test hosts need the program {missing[0]}" if missing else None


class Host:
    """One host. Use Network to make it."""

    def __init__(self, network, name, number, clock):
        self.name = name
        self.address = f"{IPV4}{number}"
        self.address6 = f"{IPV6}{number:x}"
        self._network = network
        self._started = []
        own = network.directory / "hosts" / name
        own.mkdir(parents=True)
        offset = ["--monotonic", str(clock), "--boottime", str(clock)] if clock else []
        keep = [str(path) for path in network.keep]
        self._unshare = subprocess.Popen(
            ["unshare", *(f"--{name}" for name in NAMESPACES), *offset, "--fork", "--kill-child", "--mount-proc",
             sys.executable, __file__, "init", name, str(own), *keep],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        ready = self._unshare.stdout.readline()
        if ready != "ready\n":
            raise RuntimeError(f"host {name} did not start; it said {ready!r}")
        children = pathlib.Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        self.init = int(children.read_text().split()[0])

    def command(self, words):
        """The command line that runs `words` on this host."""
        return ["nsenter", f"--target={self.init}", *(f"--{name}" for name in NAMESPACES), f"--wdns={PROJECT}", "--",
                *(str(word) for word in words)]

    def start(self, words, **options):
        """Popen of a program on this host. The program ends with the host."""
        process = subprocess.Popen(self.command(words), **{"stdin": subprocess.DEVNULL, **options})
        self._started.append(process)
        return process

    def run(self, words, **options):
        """Runs a program to its end, and returns its standard output. It must succeed."""
        return subprocess.run(self.command(words), check=True, stdout=subprocess.PIPE, text=True,
                              stdin=subprocess.DEVNULL, **options).stdout

    def processes(self):
        """The processes of this host but its first, by their ids on the real machine."""
        own = os.readlink(f"/proc/{self.init}/ns/pid")
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.init:
                try:
                    if os.readlink(entry / "ns/pid") == own:
                        found.append(int(entry.name))
                except OSError:  # it has just ended
                    pass
        return found

    def freeze(self):
        """Stops the host as a paused virtual machine stops: nothing runs, and the network gets no answer."""
        self._network.plug(self.name, False)
        seen = set()
        # A process that was forked while we looked shows up in the next look.
        while fresh := set(self.processes()) - seen:
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            seen |= fresh

    def thaw(self):
        for pid in self.processes():
            _signal(pid, signal.SIGCONT)
        # An nsenter whose program is stopped stops itself.
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self._network.plug(self.name, True)

    def power_off(self):
        """Ends all processes at once. Peers hear nothing, as when a machine loses its power."""
        self._network.plug(self.name, False)
        self._unshare.kill()  # takes the first process along, and that takes all others
        self._unshare.wait()
        self._unshare.stdout.close()


class Network:
    """Hosts, all linked with each other. Links are fast and without loss until `link` says otherwise."""

    def __init__(self, names, clocks=None, keep=(), seed=1, kernel=False):
        reason = why_not()
        if reason:
            raise RuntimeError(reason)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rubato-hosts-"))
        self.shared = self.directory / "shared"
        self.shared.mkdir()
        # Paths below /tmp that hosts must see at their usual place: the project may be there.
        self.keep = [PROJECT, *map(pathlib.Path, keep), self.shared]
        self.hosts = {}
        self._switch = self._bridge = None
        try:
            for number, name in enumerate(names, start=1):
                self.hosts[name] = Host(self, name, number, (clocks or {}).get(name, 0))
            table = "".join(f"{host.address} {host.name}\n{host.address6} {host.name}\n" for host in self.hosts.values())
            for host in self.hosts.values():
                host.run(["sh", "-c", 'printf "127.0.0.1 localhost\n::1 localhost\n%s" "$0" >/etc/hosts', table])
            if kernel:
                self._start_bridge()
            else:
                self._start_switch(seed)
        except BaseException:
            self.close()
            raise

    def _start_bridge(self):
        """A network of its own with a bridge, to which each host has a cable."""
        self._bridge = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link add bridge type bridge && ip link set bridge up && echo ready && "
             "exec sleep infinity"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self._bridge.stdout.readline() != "ready\n":
            raise RuntimeError("this kernel makes no bridge")
        for host in self.hosts.values():
            port = f"to-{host.name}"
            self._at_bridge("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.init))
            self._at_bridge("ip", "link", "set", port, "master", "bridge", "up")
            host.run(["ip", "addr", "add", f"{host.address}/24", "dev", "eth0"])
            host.run(["ip", "addr", "add", f"{host.address6}/64", "dev", "eth0", "nodad"])
            host.run(["ip", "link", "set", "eth0", "up"])

    def _at_bridge(self, *words):
        subprocess.run(["nsenter", f"--target={self._bridge.pid}", "--net", "--", *words], check=True)

    def port(self, name, rate):
        """With `kernel`: limits what the host sends and receives, in bits a second."""
        limit = ["root", "tbf", "rate", f"{int(rate)}bit", "burst", "128kb", "latency", "50ms"]
        self._at_bridge("tc", "qdisc", "replace", "dev", f"to-{name}", *limit)
        self.hosts[name].run(["tc", "qdisc", "replace", "dev", "eth0", *limit])

    def _start_switch(self, seed):
        self._control, theirs = socket.socketpair()
        hosts = [[host.name, host.init, host.address, host.address6] for host in self.hosts.values()]
        self._switch = subprocess.Popen([sys.executable, __file__, "switch", str(theirs.fileno()), str(seed)],
                                        stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()
        self._answers = self._control.makefile("r")
        self._ask({"hosts": hosts})

    def _ask(self, request):
        """Sends a request to the switch. When this returns, the change is in force."""
        self._control.sendall(json.dumps(request).encode() + b"\n")
        answer = self._answers.readline()
        if answer != "done\n":
            raise RuntimeError(f"the switch said {answer!r} to {request}")

    def link(self, one, other, one_way=False, **settings):
        """Sets delay (seconds), rate (bits a second, 0 = no limit), loss (0 to 1) or cut of a link, each if given."""
        unknown = set(settings) - {"delay", "rate", "loss", "cut"}
        if unknown:
            raise ValueError(f"a link has no {unknown.pop()}; it has delay, rate, loss and cut")
        for a, b in [(one, other)] if one_way else [(one, other), (other, one)]:
            self._ask({"from": self.hosts[a].address, "to": self.hosts[b].address, "set": settings})

    def link_all(self, **settings):
        names = list(self.hosts)
        for i, one in enumerate(names):
            for other in names[i + 1:]:
                self.link(one, other, **settings)

    def plug(self, name, plugged):
        """Pulls or plugs the only cable of a host. The settings of its links stay."""
        if self._bridge:
            self._at_bridge("ip", "link", "set", f"to-{name}", "up" if plugged else "down")
        else:
            self._ask({"host": self.hosts[name].address, "plugged": plugged})

    def close(self):
        if self._bridge:
            self._bridge.kill()
            self._bridge.wait()
            self._bridge.stdout.close()
            self._bridge = None
        if self._switch:
            self._control.close()
            self._answers.close()
            self._switch.wait()
            self._switch = None
        for host in self.hosts.values():
            if host._unshare.returncode is None:
                host._unshare.kill()
                host._unshare.wait()
                host._unshare.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


# --- the first process of a host ------------------------------------------------------------------


def _mount(*words):
    subprocess.run(["mount", *words], check=True)


def init(name, own, *keep):
    """Sets the host up, says so, and collects the orphans of the host for ever."""
    socket.sethostname(name)
    files = pathlib.Path(own)
    boot_id = files / "boot_id"
    boot_id.write_text(f"{uuid.UUID(int=random.Random(name).getrandbits(128))}\n")
    _mount("--bind", str(boot_id), "/proc/sys/kernel/random/boot_id")
    (files / "etc_hosts").touch()
    _mount("--bind", str(files / "etc_hosts"), "/etc/hosts")
    _mount("-t", "tmpfs", "tmpfs", "/mnt")
    kept = [path for path in keep if path.startswith("/tmp/")]
    for number, path in enumerate(kept):
        pathlib.Path(f"/mnt/{number}").mkdir()
        _mount("--bind", path, f"/mnt/{number}")
    for path in ("/tmp", "/run", "/dev/shm"):
        _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", path)
    for number, path in enumerate(kept):
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        _mount("--move", f"/mnt/{number}", path)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    print("ready", flush=True)
    while True:
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass


# --- the switch -----------------------------------------------------------------------------------

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000


def _enter_network(descriptor):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def open_device(init_pid, address, address6):
    """A TUN device in the network of a host. Packets of the host are read from it and written to it."""
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{init_pid}/ns/net", os.O_RDONLY)
    _enter_network(there)
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN | IFF_NO_PI))
        for words in (["addr", "add", f"{address}/24", "dev", "eth0"],
                      ["addr", "add", f"{address6}/64", "dev", "eth0", "nodad"],
                      ["link", "set", "eth0", "mtu", str(MTU), "txqueuelen", "10000", "up"]):
            subprocess.run(["ip", *words], check=True)
    finally:
        _enter_network(here)
        os.close(here)
        os.close(there)
    return device


class Direction:
    """One direction of a link."""

    def __init__(self, seed):
        self.delay = 0.0
        self.rate = 0.0
        self.loss = 0.0
        self.cut = False
        self.free_at = 0.0  # when the last byte has left the sender
        self.queued = 0
        self.random = random.Random(seed)

    def accept(self, now, size):
        """When the packet arrives, or None if it is lost."""
        if self.cut or self.queued + size > QUEUE_BYTES:
            return None
        if self.loss and self.random.random() < self.loss:
            return None
        left = max(now, self.free_at)
        if self.rate:
            left += size * 8 / self.rate
        self.free_at = left
        return left + self.delay


class Switch:
    def __init__(self, control, seed):
        self.control = socket.socket(fileno=control)
        self.requests = b""
        self.seed = seed
        self.devices = {}  # descriptor -> address
        self.by_address = {}  # packed address, either version -> (address, descriptor)
        self.directions = {}
        self.unplugged = set()
        self.waiting = []  # heap of (time, number, direction, address, descriptor, packet)
        self.count = 0
        self.poll = select.epoll()
        self.poll.register(self.control.fileno(), select.EPOLLIN)

    def direction(self, source, destination):
        key = (source, destination)
        if key not in self.directions:
            self.directions[key] = Direction(f"{self.seed} {source} {destination}")
        return self.directions[key]

    def obey(self, request):
        if "hosts" in request:
            for _, pid, address, address6 in request["hosts"]:
                device = open_device(pid, address, address6)
                self.devices[device] = address
                self.by_address[socket.inet_pton(socket.AF_INET, address)] = (address, device)
                self.by_address[socket.inet_pton(socket.AF_INET6, address6)] = (address, device)
                self.poll.register(device, select.EPOLLIN)
        elif "set" in request:
            direction = self.direction(request["from"], request["to"])
            for name, value in request["set"].items():
                setattr(direction, name, value)
        elif request["plugged"]:
            self.unplugged.discard(request["host"])
        else:
            self.unplugged.add(request["host"])

    def read_requests(self):
        """Returns whether the network is still wanted."""
        data = self.control.recv(65536)
        if not data:
            return False
        *lines, self.requests = (self.requests + data).split(b"\n")
        for line in lines:
            self.obey(json.loads(line))
            self.control.sendall(b"done\n")
        return True

    def take(self, device):
        """Takes packets from a host, and decides when each arrives."""
        source = self.devices[device]
        for _ in range(256):
            try:
                packet = os.read(device, 65536)
            except BlockingIOError:
                return
            destination = packet[16:20] if packet[0] >> 4 == 4 else packet[24:40]
            if destination not in self.by_address or source in self.unplugged:
                continue
            address, to = self.by_address[destination]
            direction = self.direction(source, address)
            arrival = direction.accept(time.monotonic(), len(packet))
            if arrival is not None:
                direction.queued += len(packet)
                self.count += 1
                heapq.heappush(self.waiting, (arrival, self.count, direction, address, to, packet))

    def deliver(self):
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            _, _, direction, address, device, packet = heapq.heappop(self.waiting)
            direction.queued -= len(packet)
            # A cut also loses what is on its way.
            if not direction.cut and address not in self.unplugged:
                try:
                    os.write(device, packet)
                except OSError:  # the host is gone, or its queue is full
                    pass

    def run(self):
        while True:
            limit = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else None
            for descriptor, _ in self.poll.poll(limit):
                if descriptor == self.control.fileno():
                    if not self.read_requests():
                        return
                else:
                    self.take(descriptor)
            self.deliver()


if __name__ == "__main__":
    if sys.argv[1] == "init":
        init(*sys.argv[2:])
    elif sys.argv[1] == "switch":
        Switch(int(sys.argv[2]), sys.argv[3]).run()
