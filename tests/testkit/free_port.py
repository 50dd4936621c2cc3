"""TCP ports for the servers that a test starts."""
import errno
import itertools
import os
import pathlib
import socket

LOWEST = 10000
PER_PROCESS = 16  # ports that lie between those of two neighbouring process numbers

_candidates = itertools.count(os.getpid() * PER_PROCESS)


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False


def free_port(number=1):
    """Returns a TCP port that nobody listens at, the first of `number` consecutive ones.

    Somebody else could take the port before the test uses it. So it lies below the ports that the kernel gives to
    connections and listeners which name none, and test processes begin at different places. No call returns a port that
    an earlier call of this process has returned.
    """
    local = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    size = int(local.split()[0]) - LOWEST
    if size < 1000:
        raise RuntimeError(f"no ports from {LOWEST} on are outside of net.ipv4.ip_local_port_range, {local.strip()}")
    for _ in range(size):
        offsets = [next(_candidates) % size for _ in range(number)]
        ports = [LOWEST + offset for offset in offsets]
        if offsets[-1] == offsets[0] + number - 1 and all(is_free(port) for port in ports):
            return ports[0]
    raise RuntimeError("every port is in use")
