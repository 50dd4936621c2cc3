"""Prints event files and safetensors files, to check our writers. Implements only what the formats' descriptions say.

usage: read_formats.py events FILE | safetensors FILE
"""
import json
import math
import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))
from crc32c import crc32c  # noqa: E402  pylint: disable=wrong-import-position
from protobuf_fields import fields  # noqa: E402  pylint: disable=wrong-import-position


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


def print_events(path):
    for record in records(path):
        event = fields(record)
        (wall_time,) = struct.unpack("<d", event[1][0])
        step = event.get(2, [0])[0]
        step -= (step >> 63) << 64
        if 3 in event:
            print(wall_time, step, "version", event[3][0].decode())
        summary = fields(event.get(5, [b""])[0])
        assert set(summary) <= {1}, summary
        for value in map(fields, summary.get(1, [])):
            print(wall_time, step, value[1][0].decode(), struct.unpack("<f", value[2][0])[0])


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
