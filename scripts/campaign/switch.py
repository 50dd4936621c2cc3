"""An Ethernet switch in user space that disturbs traffic: it drops, delays, reorders and duplicates frames, limits the
rate, and resets TCP connections. It exists because the kernels of small machines often have no netem. SwitchedNetwork
starts it in a separate network namespace.

The hosts' interfaces are TAP devices whose other ends this process holds. Commands come on standard input, one JSON
object per line: {"rules": [{"from": HOST or "", "to": HOST or "", ...}, ...]} replaces all rules; "" means any host.
The first rule that matches a frame applies. A rule has any of these keys:

  cut        true: no frame passes
  loss, duplicate, reorder    shares of the frames, 0 to 1
  delay      seconds
  rate       bytes per second; frames that would wait longer than RATE_QUEUE_S are dropped
  reset      number of large TCP segments that are turned into resets of their connections
"""
import fcntl
import heapq
import json
import os
import pathlib
import random
import selectors
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "cluster"))
import netns  # pylint: disable=wrong-import-position

TUNSETIFF = 0x400454ca
IFF_TAP, IFF_NO_PI = 2, 0x1000
MTU = 9000  # large, because the cost of this switch is per frame
RATE_QUEUE_S = 1.0
REORDER_S = 0.01  # how long a frame waits so that others overtake it
RESET_DATA = 1000  # a segment with at least this many bytes of data lies in the middle of a chunk


def open_tap(name):
    """Creates the TAP device and returns its non-blocking descriptor."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def internet_checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def as_reset(frame):
    """Returns a reset of the connection with the same addresses and sequence number as the given TCP segment; None if
    the frame is not a TCP segment with at least RESET_DATA bytes of data."""
    if len(frame) < 54 or frame[12:14] != b"\x08\0" or frame[14] != 0x45 or frame[23] != 6:
        return None
    header_bytes = (frame[46] >> 4) * 4
    if len(frame) - 34 - header_bytes < RESET_DATA:
        return None
    ip = bytearray(frame[14:34])
    ip[2:4] = struct.pack(">H", 40)
    ip[10:12] = b"\0\0"
    ip[10:12] = struct.pack(">H", internet_checksum(bytes(ip)))
    tcp = bytearray(frame[34:54])
    tcp[12] = 5 << 4
    tcp[13] = 0x14  # RST, ACK
    tcp[16:20] = b"\0\0\0\0"
    pseudo = bytes(ip[12:20]) + struct.pack(">BBH", 0, 6, 20)
    tcp[16:18] = struct.pack(">H", internet_checksum(pseudo + bytes(tcp)))
    return frame[:14] + bytes(ip) + bytes(tcp)


class Switch:

    def __init__(self, taps, macs, rng):
        """`taps` maps each host to the descriptor of its TAP device, `macs` to its MAC address."""
        self.taps = taps
        self.hosts = {descriptor: host for host, descriptor in taps.items()}
        self.by_mac = {bytes.fromhex(mac.replace(":", "")): host for host, mac in macs.items()}
        self.rng = rng
        self.rules = []
        self.later = []  # heap of (time, number, host, frame)
        self.number = 0
        self.free_at = {}  # (from, to) -> time at which a link with a limited rate is free again

    def rule_for(self, source, target):
        for rule in self.rules:
            if rule["from"] in ("", source) and rule["to"] in ("", target):
                return rule
        return None

    def send(self, host, frame):
        try:
            os.write(self.taps[host], frame)
        except OSError:
            pass  # the interface is down, so the frame is lost

    def send_at(self, when, host, frame):
        self.number += 1
        heapq.heappush(self.later, (when, self.number, host, frame))

    def forward(self, source, target, frame):
        rule = self.rule_for(source, target)
        if rule is None:
            self.send(target, frame)
            return
        if rule.get("cut") or self.rng.random() < rule.get("loss", 0):
            return
        if rule.get("reset", 0) > 0 and (reset := as_reset(frame)) is not None:
            rule["reset"] -= 1
            frame = reset
        when = now = time.monotonic()
        if rate := rule.get("rate"):
            when = max(now, self.free_at.get((source, target), 0)) + len(frame) / rate
            if when > now + RATE_QUEUE_S:
                return
            self.free_at[source, target] = when
        when += rule.get("delay", 0)
        if self.rng.random() < rule.get("reorder", 0):
            when += REORDER_S
        copies = 2 if self.rng.random() < rule.get("duplicate", 0) else 1
        for _ in range(copies):
            if when > now:
                self.send_at(when, target, frame)
            else:
                self.send(target, frame)

    def receive(self, source, frame):
        target = self.by_mac.get(frame[:6])
        if target is not None:
            self.forward(source, target, frame)
        elif frame[0] & 1:
            for host in self.taps:
                if host != source:
                    self.forward(source, host, frame)

    def send_due(self):
        """Sends the delayed frames that are due. Returns the seconds until the next one is due, None if none waits."""
        while self.later:
            left = self.later[0][0] - time.monotonic()
            if left > 0:
                return left
            _, _, host, frame = heapq.heappop(self.later)
            self.send(host, frame)
        return None

    def run(self, commands):
        """Forwards frames and obeys the commands of this descriptor until its end of file."""
        selector = selectors.DefaultSelector()
        selector.register(commands, selectors.EVENT_READ)
        for descriptor in self.hosts:
            selector.register(descriptor, selectors.EVENT_READ)
        unread = b""
        while True:
            for key, _ in selector.select(self.send_due()):
                if key.fd in self.hosts:
                    self.drain(key.fd)
                    continue
                data = os.read(commands, 65536)
                if not data:
                    return
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    self.rules = json.loads(line)["rules"]

    def drain(self, descriptor):
        for _ in range(64):
            try:
                frame = os.read(descriptor, MTU + 64)
            except OSError:
                return
            self.receive(self.hosts[descriptor], frame)


class SwitchedNetwork(netns.Network):
    """Network namespaces ("hosts") that are connected by a Switch."""

    def __init__(self, hosts, seed=0):
        self._seed = seed
        self._process = None
        super().__init__(hosts)

    def _connect(self):
        """Starts the switch, which creates the hosts' interfaces. The namespaces exist already."""
        setting = {"hosts": {host: self.namespace(host) for host in self.hosts}, "macs": self._macs, "seed": self._seed}
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", self._switch, sys.executable, os.path.abspath(__file__), json.dumps(setting)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("the switch does not start")

    def set_rules(self, *rules):
        for rule in rules:
            rule.setdefault("from", "")
            rule.setdefault("to", "")
        self._process.stdin.write(json.dumps({"rules": rules}).encode() + b"\n")
        self._process.stdin.flush()

    def close(self):
        if self._process is not None:
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None
        super().close()


def main(setting):
    taps = {}
    for number, (host, namespace) in enumerate(setting["hosts"].items()):
        name = f"tap{number}"
        taps[host] = open_tap(name)
        netns.ip("link", "set", name, "address", setting["macs"][host], "mtu", str(MTU))
        netns.ip("link", "set", name, "netns", namespace)
        netns.ip("-n", namespace, "link", "set", name, "name", "eth0")
    print("ready", flush=True)
    Switch(taps, setting["macs"], random.Random(setting["seed"])).run(sys.stdin.fileno())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
