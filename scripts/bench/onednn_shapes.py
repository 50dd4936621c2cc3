#!/usr/bin/env python3
"""Compares our dense and depthwise convolutions with oneDNN's, shape by shape.

    TORCH_PYTHON scripts/bench/onednn_shapes.py [--model=ssd_mobilenet_v2] [--classes=90] [--cases=300:8]
                                                [--precision=fp32|bf16] [--rows=10] [--threads=2]

Runs `train_step --table=shape`, takes the convolutions that need most of the step, and runs each of them in PyTorch,
whose convolutions on the CPU are oneDNN's: channels last, forward and backward of one layer alone, after the weights are
in the layout that oneDNN wants. Ours are timed within a step and do more: they normalise and activate what they read,
and sum for the batch norm. Both are medians; a table with milliseconds per call and the ratio is printed.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import time

import torch

BINARY = pathlib.Path(__file__).resolve().parents[2] / "build" / "bin" / "train_step"
SHAPE = re.compile(r"(convolution|depthwise)(_backward)?\s+(\d+)x(\d+)\s*x(\d+)\s*->\s*(\d+)x(\d+)\s*x(\d+)\s+k(\d+) s(\d+)"
                   r"\s+(\d+)\s+([\d.]+)")


class Layer:
    """A convolution of the table, with our milliseconds per call."""

    def __init__(self, match):
        kind, backward, *numbers = match.groups()
        self.depthwise, self.backward = kind == "depthwise", bool(backward)
        (self.in_h, self.in_w, self.inputs, self.out_h, self.out_w, self.outputs, self.kernel, self.stride,
         calls) = (int(number) for number in numbers[:-1])
        self.milliseconds = float(numbers[-1]) / calls

    def name(self):
        return (f"{'depthwise ' if self.depthwise else ''}{self.in_h}x{self.in_w}x{self.inputs} to "
                f"{self.out_h}x{self.out_w}x{self.outputs}, {self.kernel}x{self.kernel}"
                f"{', backward' if self.backward else ''}")

    def in_torch(self, batch, dtype, seconds):
        """Returns the milliseconds of the same call in PyTorch."""
        # TensorFlow's padding may be larger at the bottom and right. An input with the padding in it costs the same.
        size = [(out - 1) * self.stride + self.kernel for out in (self.out_h, self.out_w)]
        convolution = torch.nn.Conv2d(self.inputs, self.outputs, self.kernel, self.stride, bias=False,
                                      groups=self.inputs if self.depthwise else 1)
        convolution = convolution.to(memory_format=torch.channels_last, dtype=dtype)
        x = torch.randn(batch, self.inputs, *size, dtype=dtype).contiguous(memory_format=torch.channels_last)
        x.requires_grad_(self.inputs > 3)
        result = convolution(x)
        gradient = torch.randn_like(result)
        parameters = [convolution.weight] + ([x] if x.requires_grad else [])
        times, begin = [], time.perf_counter()
        while len(times) < 5 or time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            if self.backward:
                torch.autograd.grad(result, parameters, gradient, retain_graph=True)
            else:
                with torch.no_grad():
                    convolution(x)
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="ssd_mobilenet_v2")
    parser.add_argument("--classes", type=int, default=90)
    parser.add_argument("--cases", default="300:8", help="one case: size:batch")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = subprocess.run(
        [BINARY, f"--model={options.model}", f"--classes={options.classes}", f"--cases={options.cases}", "--repeats=1",
         f"--precision={options.precision}", f"--threads={options.threads}", f"--seconds={options.seconds}",
         "--table=shape"], check=True, capture_output=True, text=True).stdout
    layers = [Layer(match) for match in map(SHAPE.search, table.splitlines()) if match]
    if not layers:
        raise SystemExit(f"onednn_shapes: no convolution in the table of {BINARY}")
    batch = int(options.cases.split(":")[1])
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    print(f"PyTorch {torch.__version__}, {options.threads} threads, batch {batch}, {options.precision}")
    print("| convolution | ours, ms | oneDNN, ms | oneDNN / ours |\n|---|---|---|---|")
    for layer in layers[:options.rows]:
        theirs = layer.in_torch(batch, dtype, options.seconds)
        print(f"| {layer.name()} | {layer.milliseconds:.1f} | {theirs:.1f} | {theirs / layer.milliseconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
