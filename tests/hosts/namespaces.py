# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine: network namespaces, joined by links of given rates that can be cut.

    with Network(4, ["1gbit", "500mbit"]) as network:
        network.hosts[2].run(["ping", "-c", "1", network.hosts[0].address()])
        network.cut(3, link=1)

Link L of host H is its interface ethL with the address 10.77.L.H+1. Its rate is the same in both
directions. All links of one number end at one bridge, in one more namespace. The network of the
machine itself is never changed.

No namespace has a name. The process that made it, and the processes that run in it, hold it open.
When all of them have ended, even by SIGKILL, the kernel removes it. So several runs at the same
time do not disturb each other, and nothing is left over. See docs/hosts.md.
"""

import ctypes
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SKIPPED = 77  # the exit status with which a test tells meson that it could not run
SHAPE = "burst 256kb latency 20ms"
TOOLS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}
SECONDS = 30  # the limit for a command that sets something up
# The default of most hosts. The default of this machine may be BBR, which takes the bursts of the
# token bucket for the rate of the link.
CONGESTION_CONTROL = "cubic"

_libc = ctypes.CDLL(None, use_errno=True)


class Unable(Exception):
    """Raised when there can be no hosts here; the text says why."""


def _call(function, *arguments) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def end_with_parent() -> None:
    """For preexec_fn: the kernel kills the process when its parent ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def check_tools() -> None:
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise Unable(f"{tool} is not installed (Debian: {package})")


def become_able() -> None:
    """Without root: starts this program again as root of a user namespace, where the kernel allows
    it."""
    check_tools()
    if os.geteuid() != 0 and subprocess.run(["unshare", "--map-root-user", "--net", "true"], stderr=subprocess.DEVNULL).returncode == 0:
        os.execvp("unshare", ["unshare", "--map-root-user", "--net", *sys.orig_argv])


class Namespace:
    """A network namespace, held open by a descriptor."""

    def __init__(self):
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call(_libc.unshare, CLONE_NEWNET)
            try:
                self._descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            finally:
                _call(_libc.setns, here, CLONE_NEWNET)
        except OSError as error:
            raise Unable(f"cannot make a network namespace ({error.strerror}); this needs root, or user namespaces for ordinary users") from None
        finally:
            os.close(here)

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def command(self, command: list) -> list[str]:
        """Returns the command that runs `command` in this namespace, while this process lives."""
        return ["nsenter", f"--net={self.path}", "--", *map(str, command)]

    def run(self, command: list, *, text: str | None = None, seconds: float = SECONDS, **options) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(command), input=text, capture_output=True, text=True, timeout=seconds,
                              preexec_fn=end_with_parent, **options)

    def start(self, command: list, **options) -> subprocess.Popen:
        return subprocess.Popen(self.command(command), preexec_fn=end_with_parent, **options)

    def set_up(self, tool: str, lines: list[str]) -> None:
        """Runs a batch of lines with `ip` or `tc`. Raises Unable with its errors."""
        done = self.run([tool, "-batch", "-"], text="\n".join(lines) + "\n")
        if done.returncode != 0:
            raise Unable(f"{tool}: {' '.join(done.stderr.split())}")

    def close(self) -> None:
        os.close(self._descriptor)


class Host(Namespace):
    def __init__(self, number: int):
        super().__init__()
        self.number = number

    def address(self, link: int = 0) -> str:
        return str(ipaddress.ip_address(f"10.77.{link}.1") + self.number)

    def counters(self, link: int = 0) -> tuple[int, int]:
        """Bytes received and sent on a link, as the kernel counts them."""
        done = self.run(["ip", "-json", "-statistics", "link", "show", f"eth{link}"], check=True)
        statistics = json.loads(done.stdout)[0]["stats64"]
        return statistics["rx"]["bytes"], statistics["tx"]["bytes"]


class Network:
    """Hosts, each with one link for each rate. A rate is one of tc, such as "1gbit"; "" is
    unlimited.

    inner: the qdisc, with its options, that orders the packets that wait for a link, such as
    "fq_codel". Default: the fifo of tbf.

    delays: hosts all of whose packets take so many microseconds longer, in each direction. wire:
    the program delay_wire, for them."""

    def __init__(self, hosts: int, rates: list[str], inner: str = "", *, delays: dict[int, int] | None = None, wire: str = ""):
        check_tools()
        self.rates = rates
        self._inner = inner
        self._delays = delays or {}
        self._wire = wire
        self._wires: list[subprocess.Popen] = []
        self._open: list[Namespace] = []
        self.hosts: list[Host] = []
        try:
            self._switch = self._kept(Namespace())
            self.hosts = [self._kept(Host(number)) for number in range(hosts)]
            self._join()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        for process in self._wires:
            process.kill()
            process.wait()
            process.stdout.close()
        self._wires.clear()
        while self._open:
            self._open.pop().close()

    def set_rate(self, host: int, rate: str, link: int = 0, shape: str = SHAPE) -> None:
        """Gives a link of one host another rate, in both directions."""
        for namespace, device in ((self.hosts[host], f"eth{link}"), (self._switch, _port(host, link))):
            namespace.set_up("tc", [f"qdisc change dev {device} root handle 1: tbf rate {rate} {shape}"])

    def slow_down(self, sender: int, receiver: int, rate: str, link: int = 0) -> None:
        """Limits what one host sends to one other. The way back stays as it is."""
        device, address = f"eth{link}", self.hosts[receiver].address(link)
        self.hosts[sender].set_up("tc", [
            f"qdisc replace dev {device} root handle 2: htb default 1",
            f"class add dev {device} parent 2: classid 2:1 htb rate {self.rates[link]} burst 256kb cburst 256kb",
            f"class add dev {device} parent 2: classid 2:2 htb rate {rate} burst 64kb cburst 64kb",
            f"filter add dev {device} parent 2: protocol ip u32 match ip dst {address}/32 flowid 2:2"])

    def lose(self, sender: int, *matches: str, link: int = 0) -> None:
        """Drops what one host sends and one of these filters of tc (u32) matches, such as
        "ip dst 10.77.0.3/32" or "ip dport 42000 0xfff0"."""
        device = f"eth{link}"
        self.hosts[sender].set_up("tc", [
            f"qdisc replace dev {device} root handle 2: htb default 1",
            f"class add dev {device} parent 2: classid 2:1 htb rate {self.rates[link]} burst 256kb cburst 256kb",
            f"class add dev {device} parent 2: classid 2:2 htb rate {self.rates[link]}",
            f"qdisc add dev {device} parent 2:2 blackhole",
            *(f"filter add dev {device} parent 2: protocol ip u32 match {match} flowid 2:2" for match in matches)])

    def cut(self, host: int, link: int = 0) -> None:
        """Like a cable that is pulled out: the interface of the host loses its carrier."""
        self._switch.set_up("ip", [f"link set {_port(host, link)} down"])

    def mend(self, host: int, link: int = 0) -> None:
        self._switch.set_up("ip", [f"link set {_port(host, link)} up"])

    def silence(self, host: int, link: int = 0) -> None:
        """Like a fault farther away: the interface stays up, and nothing arrives any more."""
        self._switch.set_up("ip", [f"link set {_port(host, link)} nomaster"])

    def take_down(self, host: int, link: int = 0) -> None:
        """Like an administrator of the host: sets its own interface down."""
        self.hosts[host].set_up("ip", [f"link set eth{link} down"])

    def _kept(self, namespace):
        self._open.append(namespace)
        return namespace

    def _join(self) -> None:
        links = range(len(self.rates))
        lines = [line for link in links for line in (f"link add lan{link} type bridge", f"link set lan{link} up")]
        for host in self.hosts:
            for link in links:
                port = _port(host.number, link)
                if host.number in self._delays:
                    self._start_wire(port, f"far{host.number}_{link}", self._delays[host.number])
                    lines.append(f"link set far{host.number}_{link} netns {host.path} name eth{link}")
                else:
                    lines.append(f"link add {port} type veth peer name eth{link} netns {host.path}")
                lines.append(f"link set {port} master lan{link} up")
        self._switch.set_up("ip", lines)
        for host in self.hosts:
            lines = ["link set lo up"]
            for link in links:
                address = host.address(link)
                lines += [f"address add {address}/24 dev eth{link} noprefixroute", f"link set eth{link} up",
                          f"route add 10.77.{link}.0/24 dev eth{link} src {address} congctl {CONGESTION_CONTROL}"]
            host.set_up("ip", lines)
            self._shape(host, {f"eth{link}": self.rates[link] for link in links})
        self._shape(self._switch, {_port(host.number, link): self.rates[link] for host in self.hosts for link in links})

    def _start_wire(self, port: str, far: str, microseconds: int) -> None:
        process = self._switch.start([self._wire, port, far, microseconds], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._wires.append(process)
        said = process.stdout.readline().strip()
        if said != "ready":
            raise Unable(said)

    def _shape(self, namespace: Namespace, rates: dict[str, str]) -> None:
        limited = {device: rate for device, rate in rates.items() if rate}
        lines = [f"qdisc add dev {device} root handle 1: tbf rate {rate} {SHAPE}" for device, rate in limited.items()]
        lines += [f"qdisc add dev {device} parent 1:1 {self._inner}" for device in limited if self._inner]
        if lines:
            namespace.set_up("tc", lines)


def _port(host: int, link: int) -> str:
    return f"port{host}_{link}"
