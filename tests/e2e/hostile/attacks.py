"""Attacks a ps_server as a hostile or broken peer would.

    attacks.py ATTACK HOST:PORT SECONDS [CONNECTIONS]

Runs at nice 19 and uses at most a tenth of one core (CPU_SHARE), so that an honest worker loses time only to the
server's work for the attacker and not to the attacker itself. Prints one JSON object that counts what was sent. The
attacks expect that the server cuts their connections, so that is not an error.
"""
import ctypes
import json
import os
import pathlib
import random
import resource
import socket
import struct
import sys
import time

from http2 import (CONTINUATION, HEADERS, PREFACE, SETTINGS, Connection, field, fixed32, fixed64, frame, grpc_message,
                   hpack_length, literal, request_headers)

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "testkit"))
from crc32c import crc32c  # noqa: E402  pylint: disable=wrong-import-position
from protobuf_fields import fields  # noqa: E402  pylint: disable=wrong-import-position

CPU_SHARE = 0.10
MIB = 1 << 20
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)
CONTROL_NAME = "evil\n\x1b[2Jroot: all is well\r"


class Attacker:

    def __init__(self, address, seconds, connections):
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.connections = connections
        self.start = time.monotonic()
        self.end = self.start + seconds
        self.counts = {}
        self.random = random.Random(5)

    def note(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def going(self):
        """Sleeps as long as CPU_SHARE requires. Returns False when the time is over."""
        now = time.monotonic()
        ahead = time.process_time() / CPU_SHARE - (now - self.start)
        if ahead > 0.002:
            time.sleep(min(ahead, max(0.0, self.end - now) + 0.01))
        return time.monotonic() < self.end

    def repeat(self, once):
        """Calls `once` until the time is over, even if the server cuts the connection."""
        while self.going():
            try:
                once()
            except OSError:
                self.note("cut")

    def connect(self, **options):
        connection = Connection(self.address, **options)
        self.note("connections")
        return connection

    def bystander(self):
        """The control: uses its share of the processor, but does not connect to the server."""
        while self.going():
            sum(range(20000))

    # ---- Bytes that are not HTTP/2 ----

    def garbage(self):
        """Sends random bytes, other protocols and broken HTTP/2."""
        kinds = [self.random.randbytes(1024), TLS_HELLO, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                 PREFACE + self.random.randbytes(512), PREFACE[:9], b"",
                 PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 5, 0, b"\xff" * 64),
                 PREFACE + frame(SETTINGS, 0, 0, b"\0" * 5)]

        def once():
            with socket.create_connection(self.address, 5) as peer:
                self.note("connections")
                data = kinds[self.counts["connections"] % len(kinds)]
                peer.sendall(data)
                self.note("bytes", len(data))
                peer.settimeout(0.02)
                try:
                    peer.recv(4096)
                except TimeoutError:
                    pass
        self.repeat(once)

    # ---- Oversized messages and headers ----

    def oversize_message(self):
        """Announces a message of 1 GiB and sends as much of it as the flow-control windows allow."""
        def once():
            connection = self.connect()
            stream = connection.open("Push")
            connection.data_all(stream, grpc_message(b"", claimed=1 << 30), end_stream=False)
            block = bytes(1 << 14)
            while self.going() and not connection.gone and stream not in connection.ended:
                sent = connection.data(stream, block)
                self.note("bytes", sent)
                connection.pump(0.0 if sent else 0.05)
            connection.close()
        self.repeat(once)

    def oversize_messages(self):
        """Sends complete messages of 8 MiB in several kinds of calls."""
        message = grpc_message(field(15, bytes(8 * MIB)))

        def once():
            connection = self.connect()
            for method in ("Push", "Pull", "GetStatus", "Register"):
                if not self.going() or connection.gone:
                    break
                connection.data_all(connection.open(method), message, patience=0.5)
                self.note("bytes", len(message))
                connection.pump(0.01)
            connection.close()
        self.repeat(once)

    def oversize_headers(self):
        """Sends a header that announces 100 MiB, in endless frames."""
        def once():
            connection = self.connect()
            block = request_headers("GetStatus") + b"\x00" + hpack_length(3) + b"x-a" + hpack_length(100 * MIB)
            connection.send(frame(HEADERS, 0, 1, block))
            part = frame(CONTINUATION, 0, 1, b"a" * (1 << 14))
            while self.going():
                connection.send(part)
                self.note("bytes", len(part))
            connection.close()
        self.repeat(once)

    def many_headers(self):
        """Makes calls with a megabyte of small headers each."""
        extra = b"".join(literal(b"x-%d" % i, b"v" * 100) for i in range(9000))

        def once():
            connection = self.connect()
            while self.going() and not connection.gone:
                stream = connection.next_stream
                connection.next_stream += 2
                block = request_headers("GetStatus") + extra
                parts = [block[at:at + (1 << 14)] for at in range(0, len(block), 1 << 14)]
                connection.send(frame(HEADERS, 1, stream, parts[0]))
                for part in parts[1:]:
                    connection.send(frame(CONTINUATION, 4 if part is parts[-1] else 0, stream, part))
                self.note("bytes", len(block))
                connection.pump(0.01)
            connection.close()
        self.repeat(once)

    # ---- Many streams ----

    def stream_flood(self):
        """Opens ten thousand calls at once on one connection, whatever the server's settings allow."""
        def once():
            connection = self.connect()
            for _ in range(10000):
                if not self.going() or connection.gone:
                    break
                connection.open(self.random.choice(("Pull", "Push", "GetStatus")))
                self.note("streams")
                if self.counts["streams"] % 50 == 0:
                    connection.pump(0.0)
            connection.close()
        self.repeat(once)

    def rapid_reset(self):
        """Makes calls and cancels them at once."""
        def once():
            connection = self.connect()
            while self.going() and not connection.gone:
                burst = b""
                for _ in range(20):
                    stream = connection.next_stream
                    connection.next_stream += 2
                    burst += frame(HEADERS, 4, stream, request_headers("Pull"))
                    burst += frame(0, 1, stream, grpc_message(field(4, 1 << 60)))
                    burst += frame(3, 0, stream, struct.pack(">I", 8))
                connection.send(burst)
                self.note("streams", 20)
                connection.pump(0.0)
            connection.close()
        self.repeat(once)

    def waiting_pulls(self):
        """Holds pulls of a version that never comes, each with a list of a million chunks."""
        job = self.job()
        request = grpc_message(field(1, job[2][0]) + field(2, job[3][0]) + field(4, 1 << 60) + field(11, bytes(MIB)))
        held = []

        def once():
            while len(held) >= self.connections and self.going():
                time.sleep(0.1)
                for connection in held:
                    connection.pump()
                held[:] = [connection for connection in held if not connection.gone]
            held.append(self.connect())
            for _ in range(32):
                if not self.going() or held[-1].gone:
                    break
                held[-1].data_all(held[-1].open("Pull"), request, patience=0.5)
                self.note("pulls")
        self.repeat(once)

    # ---- Slow connections ----

    def slow_loris(self):
        """Holds connections that send the preface or a message very slowly, or never read replies."""
        job = self.job()
        key = field(1, job[2][0]) + field(2, job[3][0])
        pull = key + field(4, 0)
        peers = []
        greeting = PREFACE + frame(SETTINGS, 0, 0)
        opened = 0
        while self.going():
            while len(peers) < self.connections and self.going():
                try:
                    kind = opened % 3
                    opened += 1
                    if kind == 0:
                        peer = socket.create_connection(self.address, 5)
                        rest = greeting
                    elif kind == 1:
                        connection = self.connect()
                        stream = connection.open("Push")
                        peer = connection.socket
                        rest = b"".join(frame(0, 0, stream, bytes([b]))
                                        for b in grpc_message(field(15, bytes(1 << 10))))
                    else:
                        # With a window of 0 the weights have to wait in the server.
                        connection = self.connect(window=0)
                        for _ in range(8):
                            stream = connection.open("Pull")
                            connection.send(frame(0, 1, stream, grpc_message(pull)))
                            self.note("pulls")
                        peer, rest = connection.socket, b""
                    peer.setblocking(False)
                    peers.append([peer, rest, 0])
                    self.note("held")
                except OSError:
                    self.note("cut")
                    break
            for entry in list(peers):
                peer, rest, sent = entry
                step = 10 if rest.startswith(b"\0\0\1") else 1
                try:
                    if rest[sent:sent + step]:
                        peer.send(rest[sent:sent + step])
                    entry[2] += step
                    if not rest:
                        try:
                            if peer.recv(1 << 16) == b"":
                                raise ConnectionResetError
                        except BlockingIOError:
                            pass
                except OSError:
                    self.note("cut")
                    peer.close()
                    peers.remove(entry)
            time.sleep(min(0.5, max(0.0, self.end - time.monotonic())))

    # ---- Many connections ----

    def connection_flood(self):
        """Holds many connections at once: some are silent, some send a preface, some send one request."""
        peers, made = [], 0
        greeting = PREFACE + frame(SETTINGS, 0, 0)
        status = greeting + frame(HEADERS, 4, 1, request_headers("GetStatus")) + frame(0, 1, 1, grpc_message(b""))
        while self.going():
            while len(peers) < self.connections and self.going():
                peer = socket.socket()
                peer.setblocking(False)
                peer.connect_ex(self.address)
                peers.append(peer)
                made += 1
                self.note("connections")
                if made % 200 == 0:
                    break
            alive = []
            for number, peer in enumerate(peers):
                if not self.going():
                    break
                try:
                    if number % 3:
                        peer.send(status if number % 3 == 1 else greeting)
                    if peer.recv(4096) == b"":
                        raise ConnectionResetError
                    alive.append(peer)
                except BlockingIOError:
                    alive.append(peer)
                except OSError:
                    self.note("refused")
                    peer.close()
            peers = alive if time.monotonic() < self.end else peers
            self.counts["most_at_once"] = max(self.counts.get("most_at_once", 0), len(peers))

    # ---- Correct gRPC with hostile contents ----

    def job(self):
        """Returns the fields of GetJob's reply. It retries, because the server may have blocked this address after
        another attack."""
        while True:
            try:
                connection = self.connect()
                reply = connection.call("GetJob", b"")
                connection.close()
                if reply:
                    return fields(reply)
            except OSError:
                self.note("cut")
            time.sleep(0.1)

    def hostile_calls(self):
        """Makes calls with wrong replicas, grants, steps and workers, with NaNs, and under names of other clones."""
        job = self.job()
        run, epoch = job[2][0], job[3][0]
        numbers = (0, 1, 255, 256, (1 << 31) - 1, (1 << 32) - 1)
        nans = struct.pack("<f", float("nan")) * 1000

        def key(run=run, step=1, replica=0, grant=(epoch << 32) | 0xffffffff, worker=0, mac=0):
            return field(1, run) + field(2, epoch) + field(3, step) + field(4, replica) + field(5, grant) + \
                field(6, worker) + fixed64(8, mac)

        def push(connection, key_bytes, shard, chunk, payload, commit=False):
            message = field(1, key_bytes) + field(2, shard) + field(3, chunk) + fixed32(4, crc32c(payload))
            if commit:
                message += field(5, field(1, 8))
            stream = connection.open("Push")
            connection.data_all(stream, grpc_message(message + field(15, payload)), patience=1.0)
            while stream not in connection.ended and connection.pump(1.0):
                pass
            self.note("pushes")

        def once():
            connection = self.connect()
            status = fields(connection.call("GetStatus", b"") or b"")
            step = status.get(3, [0])[0] + 1
            names = [fields(clone).get(2, [b"x"])[0] for clone in status.get(9, [])] or [b"x"]
            for number in numbers:
                if not self.going():
                    break
                push(connection, key(step=step, replica=number), 0, 0, nans, commit=True)
                push(connection, key(step=step, worker=number, grant=(epoch << 32) | 1), number, number, bytes(64))
                push(connection, key(run=b"x" * 16, step=number), 0, 0, bytes(64))
                connection.call("Commit", field(1, key(step=step, replica=number % 3)) + field(2, field(1, 8)))
                connection.call("Heartbeat", field(1, run) + field(2, epoch) + field(3, number))
                # Registers under the name of an existing clone, which the status shows, and as many new clones.
                for worker, name in ((number, names[0]), (self.random.randrange(1 << 32), CONTROL_NAME),
                                     (self.random.randrange(1 << 32), "n" * 100000),
                                     (self.random.randrange(1 << 32), "spare")):
                    connection.call("Register", field(1, run) + field(2, worker) + field(3, 3) + field(4, name)
                                    + field(5, job[10][0]) + field(7, job[1][0]))
                    self.note("registers")
                connection.call("Restore", field(1, run) + field(2, epoch + 1) + field(3, 0))
                connection.call("Apply", field(1, run) + field(2, epoch) + field(3, step))
            connection.close()
        self.repeat(once)


ATTACKS = ("garbage", "oversize_message", "oversize_messages", "oversize_headers", "many_headers", "stream_flood",
           "rapid_reset", "waiting_pulls", "slow_loris", "connection_flood", "hostile_calls")
CONTROL = "bystander"


def main():
    name, address, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if name not in (*ATTACKS, CONTROL):
        sys.exit(f"no attack {name}; there are {', '.join(ATTACKS)}")
    connections = int(sys.argv[4]) if len(sys.argv) > 4 else 300
    os.nice(19)
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: the kernel kills this process when the test ends
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, connections + 200), hard))
    attacker = Attacker(address, seconds, connections)
    getattr(attacker, name)()
    took = time.monotonic() - attacker.start
    print(json.dumps({"attack": name, "seconds": round(took, 1),
                      "cpu": round(time.process_time() / took, 3), **attacker.counts}), flush=True)


if __name__ == "__main__":
    main()
