"""The golden files of networks in tests/golden, for the other programs of this folder.

A file has the loss of a batch in training and in an evaluation, and a row for each variable. Everything is computed in
float64, so the values are exact to far more digits than float32 has. Variables and images come from the integer formula
in `uniform`, which the C++ test repeats. The tests do not run the programs; they only regenerate the files.
"""
import pathlib
import sys
import textwrap

import numpy
import torch

CLASSES = 10  # of the classifiers


def uniform(name, count):
    """Returns `count` values in [-1, 1), a pure function of the name."""
    mask = 0xFFFFFFFF
    seed = 0
    for byte in name.encode():
        seed = (seed * 31 + byte) & mask
    x = (numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B1) + numpy.uint64(seed)) & numpy.uint64(mask)
    x ^= x >> numpy.uint64(15)
    x = x * numpy.uint64(0x85EBCA6B) & numpy.uint64(mask)
    x ^= x >> numpy.uint64(13)
    x = x * numpy.uint64(0xC2B2AE35) & numpy.uint64(mask)
    x ^= x >> numpy.uint64(16)
    return x.astype(numpy.float64) / 2.0**31 - 1.0


def make_images(batch, size, channels=3):
    """Returns images [B, C, H, W]."""
    values = uniform("images", batch * size * size * channels).reshape(batch, size, size, channels)
    return torch.tensor(values).permute(0, 3, 1, 2)


def make_labels(batch):
    """Returns the labels [B] of a classifier."""
    return torch.tensor([(3 * i + 1) % CLASSES for i in range(batch)])


def write(name, loss, evaluated, rows):
    """Writes the file. `rows`: the gradient, or the batch statistic, of each variable, by TensorFlow's names."""
    comment = (f"Made by tests/reference/{pathlib.Path(sys.argv[0]).name}. Then per variable: norm, first, middle and "
               "last entry of the gradient, or of the batch statistic.")
    lines = textwrap.wrap(comment, 110, initial_indent="# ", subsequent_indent="# ")
    lines += [f"loss {loss.item():.12e}", f"evaluated_loss {evaluated.item():.12e}"]
    for variable, values in rows.items():
        flat = values.reshape(-1)
        picked = [flat.norm(), flat[0], flat[len(flat) // 2], flat[-1]]
        lines.append(variable + "".join(f" {value.item():.10e}" for value in picked))
    default = pathlib.Path(__file__).resolve().parent.parent / "golden"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    (folder / (name + ".txt")).write_text("\n".join(lines) + "\n")
    print(name, loss.item(), evaluated.item())


def write_network(name, network, loss_of):
    """Writes the file of a mobilenet_v2_torch.Network. loss_of(training) makes a pass and returns its loss."""
    loss = loss_of(True)
    loss.backward()
    with torch.no_grad():
        evaluated = loss_of(False)
    write(name, loss, evaluated, {variable: network.statistics[variable] if "moving" in variable else tensor.grad
                                  for variable, tensor in network.variables.items()})
