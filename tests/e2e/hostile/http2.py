"""A small HTTP/2 and gRPC client that can break the rules. Standard library only.

It sends whatever it is told to, and understands only as much of the answers as the attacks need.
"""
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5


def frame(kind, flags, stream, payload=b""):
    """Returns an HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def varint(value):
    """Returns an integer as a protobuf varint."""
    out = bytearray()
    while True:
        byte = value & 0x7f
        value >>= 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number, value):
    """Returns a protobuf field: an int as a varint, bytes or str with their length."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def fixed32(number, value):
    return varint(number << 3 | 5) + struct.pack("<I", value)


def fixed64(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def hpack_length(value, bits=7):
    """Returns an HPACK integer with a prefix of `bits` bits (RFC 7541, 5.1)."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([value])
    return bytes([limit]) + varint(value - limit)


def literal(name, value):
    """Returns a header field that HPACK does not add to its table."""
    return b"\x00" + hpack_length(len(name)) + name + hpack_length(len(value)) + value


def request_headers(method, extra=()):
    """Returns the header block of a call. method: of the parameter server, or of any service as "/SERVICE/METHOD"."""
    block = literal(b":method", b"POST") + literal(b":scheme", b"http")
    block += literal(b":path", (method if method.startswith("/") else "/ps.ParameterServer/" + method).encode())
    block += literal(b":authority", b"localhost") + literal(b"te", b"trailers")
    block += literal(b"content-type", b"application/grpc")
    for name, value in extra:
        block += literal(name, value)
    return block


def grpc_message(message, claimed=None):
    """Returns a message with gRPC's prefix, which announces `claimed` bytes if given."""
    return b"\x00" + struct.pack(">I", len(message) if claimed is None else claimed) + message


class Connection:
    """A connection that has sent its preface. Methods raise OSError when the server has cut it."""

    def __init__(self, address, window=1 << 30, timeout=10.0):
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next_stream = 1
        self.received = b""
        self.replies = {}   # stream -> DATA received so far
        self.ended = set()  # streams that the server has ended or reset
        self.resets = 0
        self.gone = False
        self.send_window = 65535
        self.initial_window = 65535
        self.stream_windows = {}
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, window) + struct.pack(">HI", MAX_FRAME_SIZE, (1 << 24) - 1)
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))
        if window > 65535:
            self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", window - 65535)))

    def send(self, data):
        self.socket.sendall(data)

    def close(self):
        self.socket.close()

    def open(self, method, end_stream=False, extra=()):
        """Sends the headers of a call and returns its stream."""
        stream = self.next_stream
        self.next_stream += 2
        self.stream_windows[stream] = self.initial_window
        flags = END_HEADERS | (END_STREAM if end_stream else 0)
        self.send(frame(HEADERS, flags, stream, request_headers(method, extra)))
        return stream

    def data(self, stream, data, end_stream=False):
        """Sends as much of `data` as the windows and one frame allow. Returns the number of bytes."""
        allowed = min(self.send_window, self.stream_windows[stream], 1 << 14)
        part = data[:max(0, allowed)]
        last = end_stream and len(part) == len(data)
        if part or last:
            self.send(frame(DATA, END_STREAM if last else 0, stream, part))
        self.send_window -= len(part)
        self.stream_windows[stream] -= len(part)
        return len(part)

    def data_all(self, stream, data, end_stream=True, patience=10.0):
        """Sends all of `data`, waiting for windows. Returns False if the stream or the connection ended before."""
        data = memoryview(data)
        while True:
            sent = self.data(stream, data, end_stream)
            data = data[sent:]
            if not data:
                return True
            self.pump(0.0 if sent else patience)
            if stream in self.ended or self.gone:
                return False

    def reset(self, stream):
        self.send(frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))

    def pump(self, timeout=0.0):
        """Receives and handles frames. Returns False if none came within `timeout` seconds or the connection ended."""
        self.socket.settimeout(max(timeout, 1e-6))
        try:
            data = self.socket.recv(1 << 16)
        except (TimeoutError, BlockingIOError):
            return False
        finally:
            self.socket.settimeout(10.0)
        if not data:
            self.gone = True
            return False
        self.received += data
        while len(self.received) >= 9:
            size = int.from_bytes(self.received[:3], "big")
            if len(self.received) < 9 + size:
                break
            kind, flags = self.received[3], self.received[4]
            stream = int.from_bytes(self.received[5:9], "big")
            payload, self.received = self.received[9:9 + size], self.received[9 + size:]
            self.handle(kind, flags, stream, payload)
        return True

    def handle(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == INITIAL_WINDOW_SIZE:
                    for key in self.stream_windows:
                        self.stream_windows[key] += value - self.initial_window
                    self.initial_window = value
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            value = int.from_bytes(payload, "big")
            if stream == 0:
                self.send_window += value
            elif stream in self.stream_windows:
                self.stream_windows[stream] += value
        elif kind == DATA:
            self.replies[stream] = self.replies.get(stream, b"") + payload
        elif kind == RST_STREAM:
            self.resets += 1
            self.ended.add(stream)
        elif kind == GOAWAY:
            self.gone = True
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended.add(stream)

    def call(self, method, message, patience=10.0):
        """Makes a unary call. Returns the reply's bytes, or None if there was no reply."""
        stream = self.open(method)
        self.data_all(stream, grpc_message(message))
        while stream not in self.ended and not self.gone:
            if not self.pump(patience):
                break
        self.stream_windows.pop(stream, None)
        reply = self.replies.pop(stream, None)
        return None if reply is None else reply[5:]
