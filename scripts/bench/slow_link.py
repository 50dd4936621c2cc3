#!/usr/bin/env python3
"""Runs a parameter server and its workers on one machine as if a slow network were between them. Needs root.

usage: scripts/bench/slow_link.py --rate=1gbit [--delay_ms=0] --server='COMMAND' -- WORKER COMMAND...

Makes a network namespace for the workers and a pair of connected interfaces (veth) whose two ends let through --rate
each (tc's token bucket filter: 100mbit, 1gbit, 10gbit, ...). COMMAND runs here, WORKER COMMAND in the namespace; in
both, {address} stands for the server's end of the link. Both need --insecure or TLS, because the link counts as a
network, and the workers --shared_memory=false, because shared memory would pass it by:

    scripts/bench/slow_link.py --rate=100mbit \\
      --server='ps_server --insecure --listen={address}:2222 --pipeline_config_path=p.config --train_dir=run' \\
      -- worker --insecure --shared_memory=false --ps={address}:2222

The server gets SIGTERM when the workers have ended. The exit code is that of the workers. However the script ends,
SIGKILL excepted, it removes the namespace and the interfaces.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
LARGEST_PACKET = 70000  # bytes that one packet may have before a network card cuts it up


def bits_per_second(rate):
    """Returns the number that "100mbit" stands for. Raises ValueError."""
    match = re.fullmatch(r"([0-9.]+)([kmg]bit)", rate)
    if match is None:
        raise ValueError(f"the rate {rate!r} is not a number with kbit, mbit or gbit, such as 100mbit")
    return float(match[1]) * UNITS[match[2]]


def call(*command):
    """Runs a command. Raises RuntimeError with what it says."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stdout.strip()}")


class SlowLink:
    """The namespace and the link, between __enter__ and __exit__. Several may exist at a time."""

    def __init__(self, delay_ms=0.0):
        number = os.getpid() % (64 * 256)
        network, first = f"10.231.{number // 64}", number % 64 * 4  # four addresses for each process
        self.namespace = f"pushpull-{os.getpid()}"
        self.address = f"{network}.{first + 1}"  # of the server's end
        self._worker_address = f"{network}.{first + 2}"
        self._ends = (f"pps{os.getpid()}", f"ppw{os.getpid()}")
        self.server_end = self._ends[0]  # the interface whose counters see all bytes
        self._delay_ms = delay_ms
        self.inside = ["ip", "netns", "exec", self.namespace]  # goes before a command that is to run in the namespace

    def __enter__(self):
        missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
        if missing:
            raise RuntimeError(f"{' and '.join(missing)} not found: install iproute2")
        if os.geteuid() != 0:
            raise RuntimeError("network namespaces need root")
        try:
            call("ip", "netns", "add", self.namespace)
            call("ip", "link", "add", self._ends[0], "type", "veth", "peer", "name", self._ends[1])
            call("ip", "link", "set", self._ends[1], "netns", self.namespace)
            call("ip", "addr", "add", f"{self.address}/30", "dev", self._ends[0])
            call("ip", "link", "set", self._ends[0], "up")
            call(*self.inside, "ip", "addr", "add", f"{self._worker_address}/30", "dev", self._ends[1])
            call(*self.inside, "ip", "link", "set", self._ends[1], "up")
            call(*self.inside, "ip", "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for command in (["ip", "link", "del", self._ends[0]], ["ip", "netns", "del", self.namespace]):
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def set_rate(self, rate):
        """Sets how much each direction lets through: "100mbit", "1gbit", ... Raises ValueError and RuntimeError."""
        # A bucket of a quarter of a millisecond, but at least one packet, so that short transfers are not much faster
        # than the link.
        burst = max(LARGEST_PACKET, int(bits_per_second(rate) / 8 * 0.25e-3))
        for prefix, end in (([], self._ends[0]), (self.inside, self._ends[1])):
            call(*prefix, "tc", "qdisc", "replace", "dev", end, "root", "handle", "1:", "tbf", "rate", rate,
                 "burst", str(burst), "latency", "50ms")
            if self._delay_ms > 0:
                call(*prefix, "tc", "qdisc", "replace", "dev", end, "parent", "1:1", "netem", "delay",
                     f"{self._delay_ms}ms", "limit", "100000")


def exit_on_signals():
    """Turns SIGTERM, SIGINT and SIGHUP into SystemExit, so that `finally` and `with` clean up."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))


def stop(process):
    """Ends a process with SIGTERM, or after 30 s with SIGKILL."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--rate", required=True)
    parser.add_argument("--delay_ms", type=float, default=0.0, help="one way, added to both directions")
    parser.add_argument("--server", required=True)
    parser.add_argument("worker", nargs="+")
    arguments = parser.parse_args()
    exit_on_signals()
    try:
        with SlowLink(arguments.delay_ms) as link:
            link.set_rate(arguments.rate)
            server, worker = ([word.replace("{address}", link.address) for word in words]
                              for words in (shlex.split(arguments.server), arguments.worker))
            server = subprocess.Popen(server)
            try:
                worker = subprocess.Popen(link.inside + worker)
                try:
                    return worker.wait()
                finally:
                    stop(worker)
            finally:
                stop(server)
    except (RuntimeError, ValueError, OSError) as error:
        print(f"slow_link: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
