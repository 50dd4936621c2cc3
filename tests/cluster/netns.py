"""Several hosts on one machine: network namespaces that veth pairs connect to a bridge. Needs root and iproute2.

The bridge is in a namespace too, so nothing outside is touched, and removing the namespaces removes everything. Their
names contain the pid of the process that made them, so that the next run can remove the leftovers of a killed one.
"""
import os
import shutil
import signal
import subprocess
import sys
import time

PREFIX = "pushpull-"
NETWORK = "10.77.0."
NOWHERE = "02:00:00:00:0f:ff"  # a MAC address that no host has, so that frames to it are lost


def missing():
    """Returns why this machine cannot have such hosts; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2 (the command ip)"
    return ""


def ip(*words, check=True):
    """Runs the command ip and returns its output. Raises RuntimeError if it fails, unless `check` is False."""
    result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {result.stderr.strip()}")
    return result.stdout


def remove_namespace(name):
    """Kills the processes in a namespace and removes it."""
    for pid in ip("netns", "pids", name, check=False).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    ip("netns", "del", name, check=False)


def remove_leftovers():
    """Removes the namespaces of processes that have ended."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        pid = name[len(PREFIX):].split("-")[0] if name.startswith(PREFIX) else ""
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            remove_namespace(name)


class Network:
    """Named hosts in one network. Use it as a context manager, or call close()."""

    # The ways to cut off a host. The host's kernel notices only "down" and "carrier".
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
        """Returns words to put before a command, so that it runs on the host."""
        return ("ip", "netns", "exec", self.namespace(host))

    def cut(self, host, kind):
        """Cuts off a host in one of these ways:

        down       its interface is switched off, so its kernel removes the routes
        carrier    its interface loses the carrier, as if the cable were unplugged
        blackhole  the bridge silently drops all frames from and to the host
        mute       frames from the host are lost, frames to it arrive
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
        self._set_neighbours(host)  # these entries were lost if the interface was switched off

    def cut_pair(self, one, other):
        """Silently cuts the connection between two hosts only."""
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
        """Sets the MAC addresses of all other hosts, so that address resolution cannot notice a host that is cut off.
        Hosts behind a router would not notice it either."""
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
        """Gives every host an interface eth0 with its MAC address and connects the interfaces."""
        ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self._switch, "link", "set", "br0", "up")
        for host in self.hosts:
            ip("-n", self._switch, "link", "add", "name", host, "type", "veth", "peer", "name", "eth0",
               "address", self._macs[host], "netns", self.namespace(host))
            ip("-n", self._switch, "link", "set", host, "master", "br0")
            ip("-n", self._switch, "link", "set", host, "up")

    def _await_ping(self, host):
        """Waits until the host can be reached: a connection to a closed port must be refused by the host itself."""
        other = next(name for name in self.hosts if name != host)
        probe = ("import socket,sys\n"
                 "s=socket.socket(); s.settimeout(1)\n"
                 "sys.exit(0 if s.connect_ex((sys.argv[1], 9)) == 111 else 1)\n")
        deadline = time.monotonic() + 20
        while subprocess.run([*self.enter(other), sys.executable, "-c", probe, self.address(host)], check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{other} cannot reach {host}")
