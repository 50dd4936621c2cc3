"""Prints event files and safetensors files, to check our writers. Implements only what the formats' descriptions say.

usage: read_formats.py events FILE | safetensors FILE
"""
import json
import math
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        (crc,) = struct.unpack_from("<I", data, at + 8)
        assert crc == masked(data[at:at + 8]), "length crc at %d" % at
        body = data[at + 12:at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert crc == masked(body), "data crc at %d" % at
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def fields(data):
    """Yields (field number, value) of a protobuf message; varints are ints, all other values bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                assert kind == 2, kind
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def print_events(path):
    for record in records(path):
        event = dict(fields(record))
        (wall_time,) = struct.unpack("<d", event[1])
        step = event.get(2, 0)
        step -= (step >> 63) << 64
        if 3 in event:
            print(wall_time, step, "version", event[3].decode())
        for number, value in fields(event.get(5, b"")):
            assert number == 1
            value = dict(fields(value))
            print(wall_time, step, value[1].decode(), struct.unpack("<f", value[2])[0])


def print_safetensors(path):
    data = open(path, "rb").read()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    buffer = data[8 + size:]
    assert (8 + size) % 64 == 0
    end = 0
    for name in sorted(n for n in header if n != "__metadata__"):
        entry = header[name]
        begin, stop = entry["data_offsets"]
        assert begin == end and stop - begin == 4 * math.prod(entry["shape"]), name
        end = stop
        values = struct.unpack("<%df" % ((stop - begin) // 4), buffer[begin:stop])
        print(name, entry["dtype"], entry["shape"], "%.9g" % values[0])
    assert end == len(buffer)


{"events": print_events, "safetensors": print_safetensors}[sys.argv[1]](sys.argv[2])
