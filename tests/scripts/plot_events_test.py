#!/usr/bin/env python3
"""Tests scripts/plot_events.py on event files that are written byte by byte. usage: plot_events_test.py SOURCE_DIR"""

import pathlib
import struct
import sys
import tempfile

sys.path.insert(0, sys.argv[1] + "/scripts")
sys.dont_write_bytecode = True
import plot_events  # noqa: E402


def record(payload):
    """Returns a record of an event file."""
    header = struct.pack("<Q", len(payload))
    return (header + struct.pack("<I", plot_events.masked_crc32c(header)) + payload +
            struct.pack("<I", plot_events.masked_crc32c(payload)))


def scalar_event(step, tag, value):
    """Returns a serialised Event with one scalar."""
    entry = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(entry)]) + entry
    return b"\x09" + struct.pack("<d", 1.5) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary


# RFC 3720 gives 0xE3069283 as the CRC32C of "123456789"; it is masked here as TensorFlow does.
expected = (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF
assert plot_events.masked_crc32c(b"123456789") == expected

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    version = b"\x09" + struct.pack("<d", 1.0) + b"\x1a\x0dbrain.Event:2"
    good = record(version) + record(scalar_event(3, b"loss", 0.5)) + record(scalar_event(4, b"loss", 0.25))
    (folder / "events.out.tfevents.1").write_bytes(good)
    (folder / "events.out.tfevents.2").write_bytes(record(scalar_event(4, b"loss", 0.125)))
    assert plot_events.read_scalars(folder) == {"loss": {3: 0.5, 4: 0.125}}

    for cut in range(len(good)):
        (folder / "events.out.tfevents.1").write_bytes(good[:cut])
        plot_events.read_scalars(folder)

    flipped = bytearray(good)
    flipped[-6] ^= 1
    (folder / "events.out.tfevents.1").write_bytes(bytes(flipped))
    try:
        plot_events.read_scalars(folder)
        raise SystemExit("a flipped bit was not detected")
    except ValueError as error:
        assert "checksum" in str(error), error

    curves = plot_events.quality_curves(
        {"DetectionBoxes_Precision/mAP": {20: 0.5, 3: 0.25}, "accuracy": {}, "Losses/Loss/localization_loss": {3: 1.0}})
    assert curves == [("mAP (COCO)", [(3, 0.25), (20, 0.5)])], curves

    (folder / "events.out.tfevents.1").write_bytes(good)
    image = folder / "curve.png"
    try:
        import matplotlib  # noqa: F401
        plot_events.plot(plot_events.read_scalars(folder), {"accuracy": {4: 0.5}}, image)
        assert image.stat().st_size > 1000
    except ImportError:
        print("matplotlib is not installed, so the plot is not tested")
print("ok")
