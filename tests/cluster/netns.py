"""Hosts of their own on one machine: network namespaces, joined by veth pairs to a bridge. Needs root and iproute2.

The bridge lives in a namespace too, so nothing outside is touched, and removing the namespaces removes everything.
Their names carry the pid of the process that made them: what a killed run has left behind is found and removed by
the next one.
"""
import os
import shutil
import signal
import subprocess
import sys
import time

PREFIX = "pushpull-"
NETWORK = "10.77.0."
NOWHERE = "02:00:00:00:0f:ff"  # a MAC that nobody has: the bridge has no port for it, no host takes it


def missing():
    """What keeps this machine from having such hosts; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2 (the command ip)"
    return ""


def ip(*words, check=True):
    result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {result.stderr.strip()}")
    return result.stdout


def remove_namespace(name):
    for pid in ip("netns", "pids", name, check=False).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    ip("netns", "del", name, check=False)


def remove_leftovers():
    """Namespaces whose maker is not there any more."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        pid = name[len(PREFIX):].split("-")[0] if name.startswith(PREFIX) else ""
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            remove_namespace(name)


class Network:
    """Hosts by name. Use as a context manager, or call close()."""

    # How a host can be cut off. Only "down" and "carrier" are noticed by the host's own kernel.
    KINDS = ("down", "carrier", "blackhole", "mute")

    def __init__(self, hosts):
        remove_leftovers()
        self._tag = f"{PREFIX}{os.getpid()}-"
        self._switch = self._tag + "switch"
        self.hosts = list(hosts)
        self._macs = {host: f"02:00:00:00:00:{i + 10:02x}" for i, host in enumerate(self.hosts)}
        self._namespaces = []
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for name in self._namespaces:
            remove_namespace(name)
        self._namespaces = []

    def namespace(self, host):
        return self._tag + host

    def address(self, host):
        return f"{NETWORK}{self.hosts.index(host) + 10}"

    def enter(self, host):
        """The words before a command that runs on the host."""
        return ("ip", "netns", "exec", self.namespace(host))

    def cut(self, host, kind):
        """
        down       the host's interface is switched off: its kernel knows, and routes are gone
        carrier    the cable is out: the host's interface has no carrier
        blackhole  the switch drops everything from and to the host, and nobody is told
        mute       what the host sends is lost, what is sent to it arrives
        """
        if kind == "down":
            ip("-n", self.namespace(host), "link", "set", "eth0", "down")
        elif kind == "carrier":
            ip("-n", self._switch, "link", "set", host, "down")
        elif kind == "blackhole":
            ip("-n", self._switch, "link", "set", host, "nomaster")
        elif kind == "mute":
            for other in self.hosts:
                self._set_neighbour(host, other, NOWHERE)
        else:
            raise ValueError(kind)

    def heal(self, host, kind):
        if kind == "down":
            ip("-n", self.namespace(host), "link", "set", "eth0", "up")
        elif kind == "carrier":
            ip("-n", self._switch, "link", "set", host, "up")
        elif kind == "blackhole":
            ip("-n", self._switch, "link", "set", host, "master", "br0")
        self._set_neighbours(host)  # switching an interface off has removed them

    def cut_pair(self, one, other):
        """Only between these two, silently."""
        self._set_neighbour(one, other, NOWHERE)
        self._set_neighbour(other, one, NOWHERE)

    def heal_pair(self, one, other):
        self._set_neighbour(one, other, self._macs[other])
        self._set_neighbour(other, one, self._macs[one])

    def _set_neighbour(self, host, other, mac):
        if other == host:
            return
        ip("-n", self.namespace(host), "neigh", "replace", self.address(other), "lladdr", mac, "dev",
           "eth0", "nud", "permanent")

    def _set_neighbours(self, host):
        """As behind a router: a host that is cut off is not missed by address resolution."""
        for other in self.hosts:
            self._set_neighbour(host, other, self._macs[other])

    def _add_namespace(self, name):
        self._namespaces.append(name)
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")

    def _build(self):
        self._add_namespace(self._switch)
        for host in self.hosts:
            self._add_namespace(self.namespace(host))
        self._connect()
        for host in self.hosts:
            name = self.namespace(host)
            ip("-n", name, "address", "add", self.address(host) + "/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        for host in self.hosts:
            self._set_neighbours(host)
        for host in self.hosts:
            self._await_ping(host)

    def _connect(self):
        """Gives every host an interface eth0 with its MAC, joined to the others'."""
        ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self._switch, "link", "set", "br0", "up")
        for host in self.hosts:
            ip("-n", self._switch, "link", "add", "name", host, "type", "veth", "peer", "name", "eth0",
               "address", self._macs[host], "netns", self.namespace(host))
            ip("-n", self._switch, "link", "set", host, "master", "br0")
            ip("-n", self._switch, "link", "set", host, "up")

    def _await_ping(self, host):
        """A connection to the host's closed port is refused by the host itself, so the way is open."""
        other = next(name for name in self.hosts if name != host)
        probe = ("import socket,sys\n"
                 "s=socket.socket(); s.settimeout(1)\n"
                 "sys.exit(0 if s.connect_ex((sys.argv[1], 9)) == 111 else 1)\n")
        deadline = time.monotonic() + 20
        while subprocess.run([*self.enter(other), sys.executable, "-c", probe, self.address(host)], check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{other} does not reach {host}")
