#!/usr/bin/env python3
"""Draws a learning curve from TensorBoard event files.

usage: plot_events.py TRAIN_DIR [--output=learning_curve.png]

Reads the event files in TRAIN_DIR (from the server) and TRAIN_DIR/eval (from the evaluator). It parses them itself and
needs only matplotlib: an event file is a series of records, framed by length and masked CRC32C, that hold protobuf
messages Event{step=2, summary=5{value=1{tag=1, simple_value=2}}}.
"""

import argparse
import collections
import pathlib
import struct
import sys


QUALITY_TAGS = {
    "accuracy": "accuracy",
    "PascalBoxes_Precision/mAP@0.5IOU": "mAP@0.5 (VOC)",
    "DetectionBoxes_Precision/mAP": "mAP (COCO)",
}


def _crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc32c_table()


def masked_crc32c(data):
    """Returns the CRC32C of `data`, masked as in TFRecord files."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path):
    """Yields the payloads of a file's records. Raises ValueError at a wrong checksum.

    A truncated last record is ignored, because the writer may still be at work or may have been killed.
    """
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        header = data[at:at + 8]
        (length,) = struct.unpack("<Q", header)
        (header_crc,) = struct.unpack("<I", data[at + 8:at + 12])
        if header_crc != masked_crc32c(header):
            raise ValueError(f"{path}: offset {at}: the checksum of the record's length is wrong")
        payload = data[at + 12:at + 12 + length]
        trailer = data[at + 12 + length:at + 16 + length]
        if len(trailer) < 4:
            return
        if struct.unpack("<I", trailer)[0] != masked_crc32c(payload):
            raise ValueError(f"{path}: offset {at}: the record's checksum is wrong")
        yield payload
        at += 16 + length


def fields(message):
    """Yields (field number, value) of a protobuf message. Varints are ints; all other values are bytes.

    Raises ValueError at an unknown wire type.
    """
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind == 1:
            value = message[at:at + 8]
            at += 8
        elif kind == 2:
            length = varint()
            value = message[at:at + length]
            at += length
        elif kind == 5:
            value = message[at:at + 4]
            at += 4
        else:
            raise ValueError(f"wire type {kind}: not an event")
        yield key >> 3, value


def read_scalars(folder):
    """Returns {tag: {step: value}} from all event files directly in the folder; later files override earlier ones."""
    scalars = collections.defaultdict(dict)
    for path in sorted(folder.glob("*tfevents*")):
        for record in read_records(path):
            event = dict(fields(record))
            step = event.get(2, 0)
            for number, value in fields(event.get(5, b"")):
                if number != 1:
                    continue
                entry = dict(fields(value))
                if 2 in entry:
                    scalars[entry[1].decode()][step] = struct.unpack("<f", entry[2])[0]
    return scalars


def smooth(values, weight=0.9):
    """Returns the exponential moving average of `values`, corrected for the bias of the start."""
    result, total, mean = [], 0.0, 0.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        total = weight * total + (1 - weight)
        result.append(mean / total)
    return result


def quality_curves(evaluation):
    """Returns [(name, [(step, value)])] of the metrics in QUALITY_TAGS that the evaluator has written."""
    curves = [(name, sorted(evaluation.get(tag, {}).items())) for tag, name in QUALITY_TAGS.items()]
    return [(name, points) for name, points in curves if points]


def plot(train, evaluation, output):
    """Draws the training loss and the evaluation metrics into the image file `output`."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, loss_axis = pyplot.subplots(figsize=(8, 4.5))
    loss = sorted(train.get("Loss/total_loss", {}).items())
    if loss:
        steps, values = zip(*loss)
        loss_axis.plot(steps, values, color="tab:blue", alpha=0.25, linewidth=0.8)
        loss_axis.plot(steps, smooth(values), color="tab:blue", label="training loss")
        loss_axis.set_yscale("log")
    loss_axis.set_xlabel("step")
    loss_axis.set_ylabel("loss (mean over clones)")
    loss_axis.grid(alpha=0.3)
    lines, labels = loss_axis.get_legend_handles_labels()
    curves = quality_curves(evaluation)
    if curves:
        quality_axis = loss_axis.twinx()
        for (name, points), color in zip(curves, ("tab:orange", "tab:green", "tab:red")):
            steps, values = zip(*points)
            quality_axis.plot(steps, values, color=color, marker="o", markersize=3,
                              label=f"evaluation: {name} (last {values[-1]:.4f})")
        quality_axis.set_ylabel(" / ".join(name for name, _ in curves))
        quality_axis.set_ylim(0, 1)
        more_lines, more_labels = quality_axis.get_legend_handles_labels()
        lines, labels = lines + more_lines, labels + more_labels
    loss_axis.legend(lines, labels, loc="lower left")
    figure.tight_layout()
    figure.savefig(output, dpi=110)


def main():
    parser = argparse.ArgumentParser(description="Draws a learning curve from TensorBoard event files.")
    parser.add_argument("train_dir", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("learning_curve.png"))
    arguments = parser.parse_args()
    try:
        train = read_scalars(arguments.train_dir)
        evaluation = read_scalars(arguments.train_dir / "eval")
    except ValueError as error:
        print(f"plot_events: {error}", file=sys.stderr)
        return 65
    if not train and not evaluation:
        print(f"plot_events: {arguments.train_dir}: expected event files with scalars, got none", file=sys.stderr)
        return 66
    plot(train, evaluation, arguments.output)
    print(f"plot_events: wrote {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
