#!/usr/bin/env python3
"""Computes figures for check.sh from what the programs wrote. Standard library only.

usage: figures.py rate TRAIN_DIR       images per second: the median over the second half of the training
       figures.py losses TRAIN_DIR     "STEP LOSS" of each step, a line each
       figures.py final FILE           the mean loss of the last fifth of the steps, from the output of `losses`
       figures.py early FILE FILE      by how many percent the first 20 losses of two such files differ, on average
       figures.py slowest CSV COUNT    the kernels that take most of the time in Nsight Compute's CSV, a line each:
                                       number of its slowest launch, milliseconds of that launch, share of the kernel in
                                       the time of all in percent, name; separated by tabs. The CSV has the metric
                                       gpu__time_duration.sum of all launches.
       figures.py stalls CSV           what the warps of a kernel wait for, and in which instructions, from the "source" page
                                       of Nsight Compute: shares in percent

Exit code 1 and a message if the input does not have the figure.
"""
import csv
import math
import pathlib
import statistics
import sys

NANOSECONDS = {"nsecond": 1, "ns": 1, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9}
DURATION = "gpu__time_duration.sum"


def scalars(train_dir, tag):
    """Returns the (step, value) pairs of a tag in the event files of a training, in the order of steps."""
    import plot_events  # pylint: disable=import-outside-toplevel
    steps = plot_events.read_scalars(pathlib.Path(train_dir)).get(tag)
    if not steps:
        raise ValueError(f"{train_dir} has no {tag}")
    return sorted(steps.items())


def rate(train_dir):
    values = [value for _, value in scalars(train_dir, "images/sec")]
    return f"{statistics.median(values[len(values) // 2:]):.4g}"


def losses(train_dir):
    return "\n".join(f"{step} {value:.7g}" for step, value in scalars(train_dir, "Loss/total_loss"))


def read_losses(path):
    values = [float(line.split()[1]) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
    if not values:
        raise ValueError(f"{path} has no losses")
    return values


def final(path):
    values = read_losses(path)
    return f"{statistics.mean(values[-max(1, len(values) // 5):]):.6f}"


def early(path, reference):
    pairs = list(zip(read_losses(path), read_losses(reference)))[:20]
    return f"{100 * statistics.mean(abs(ours / theirs - 1) for ours, theirs in pairs):.2f}"


def launches(path):
    """Yields (number of the launch, name of the kernel, nanoseconds) of each launch in Nsight Compute's CSV.

    The program's own output and the profiler's messages (==PROF== ...) stand before the header and are skipped.
    """
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(line for line in file if line.startswith('"'))
        header = next(rows, None)
        if header is None or "Metric Name" not in header:
            raise ValueError(f"{path} has no table of metrics")
        columns = [header.index(name) for name in ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")]
        for row in rows:
            if len(row) != len(header):
                continue  # cut off while it was written
            number, name, metric, unit, value = (row[column] for column in columns)
            if metric != DURATION or not number.isdigit():
                continue
            nanoseconds = float(value.replace(",", "")) * NANOSECONDS[unit]
            if not math.isnan(nanoseconds):  # it measures a launch in vain now and then
                yield int(number), name, nanoseconds


def slowest(path, count):
    kernels = {}  # name -> [nanoseconds of all launches, nanoseconds of the slowest, its number]
    for number, name, nanoseconds in launches(path):
        kernel = kernels.setdefault(name, [0.0, -1.0, 0])
        kernel[0] += nanoseconds
        if nanoseconds > kernel[1]:
            kernel[1:] = nanoseconds, number
    if not kernels:
        raise ValueError(f"{path} has no {DURATION}")
    total = sum(kernel[0] for kernel in kernels.values())
    first = sorted(kernels.items(), key=lambda item: -item[1][0])[:int(count)]
    return "\n".join(f"{number}\t{one / 1e6:.4f}\t{100 * whole / total if total else 0:.1f}\t{name}"
                     for name, (whole, one, number) in first)


def stalls(path):
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        lines = [line for line in file if line.startswith('"')]
    if len(lines) < 3 or not lines[0].startswith('"Kernel Name"'):
        raise ValueError(f"{path} has no table of instructions")
    name = next(csv.reader(lines[:1]))[1]
    reasons, samples, executed = {}, {}, {}  # samples by reason; by opcode: samples, and how many were executed
    for row in csv.DictReader(lines[1:]):
        number = lambda key, row=row: float((row.get(key) or "0").replace(",", ""))
        opcode = next(word for word in row["Source"].split() if not word.startswith("@")).split(".")[0]
        samples[opcode] = samples.get(opcode, 0) + number("# Samples")
        executed[opcode] = executed.get(opcode, 0) + number("Instructions Executed")
        for key in row:
            if key and key.startswith("stall_") and not key.endswith(")"):
                reasons[key[len("stall_"):]] = reasons.get(key[len("stall_"):], 0) + number(key)

    def shares(counts):
        total = sum(counts.values()) or 1
        first = sorted(counts.items(), key=lambda item: -item[1])[:8]
        return ", ".join(f"{key} {100 * value / total:.1f}" for key, value in first if value > 0)

    return (f"{name[:100]}\n  waits for: {shares(reasons)}\n  waits in: {shares(samples)}\n"
            f"  instructions: {shares(executed)}")


def main():
    figures = {"rate": (rate, 1), "losses": (losses, 1), "final": (final, 1), "early": (early, 2),
               "slowest": (slowest, 2), "stalls": (stalls, 1)}
    function, arity = figures.get(sys.argv[1], (None, 0)) if len(sys.argv) > 1 else (None, 0)
    if function is None or len(sys.argv) != 2 + arity:
        print(__doc__, file=sys.stderr)
        return 64
    try:
        print(function(*sys.argv[2:]))
    except (OSError, ValueError, KeyError) as error:
        print(f"figures.py {' '.join(sys.argv[1:])}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
