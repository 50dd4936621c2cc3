#!/usr/bin/env python3
"""Computes golden values of detectors' backbones in PyTorch: python3 backbones_torch.py [FOLDER]

The networks are written from the papers and from the description of each block in TensorFlow's models, without a look
at the C++ code. A backbone is followed by a global average pool and a 1x1 convolution with biases to 10 classes. Writes
one file per case into tests/golden (or FOLDER), in the format of mobilenet_v2_torch.py and in float64. The tests do not
run this program; it only regenerates the files.
"""
import pathlib
import re
import sys

import numpy
import torch
import torch.nn.functional as functional

from mobilenet_v2_torch import CLASSES, Network, scaled_depth, uniform

BATCH = 3


def relu(x):
    return x.clamp(min=0.0)


def relu6(x):
    return x.clamp(0.0, 6.0)


def hard_swish(x):
    return x * relu6(x + 3.0) / 6.0


def linear(x):
    return x


class Backbone(Network):
    """A network [B, C, H, W] with one method for each kind of block. `training` holds during a pass."""

    def __init__(self, epsilon=0.001):
        super().__init__(None)
        self.epsilon = float(numpy.float32(epsilon))
        self.training = True

    def conv(self, x, scope, depth, kernel, stride, activation):
        return activation(self.convolve(x, scope, depth, kernel, stride, False, self.training))

    def depthwise(self, x, scope, kernel, stride, activation):
        y = self.convolve(x, scope, x.shape[1], kernel, stride, False, self.training, depthwise=True)
        return activation(y)

    def biased(self, x, scope, depth):
        """A 1x1 convolution of one pixel [B, C]."""
        weights = self.weights(scope + "/weights", (1, 1, x.shape[1], depth), x.shape[1])
        return x @ weights[0, 0] + self.variable(scope + "/biases", (depth,), 0.0, 0.1)

    def squeeze_excite(self, x, scope, depth, activation, gate):
        y = activation(self.biased(x.mean((2, 3)), scope + "/Conv", depth))
        y = gate(self.biased(y, scope + "/Conv_1", x.shape[1]))
        return x * y[:, :, None, None]

    def logits(self, images, training):
        self.training = training
        return self.biased(self.features(images).mean((2, 3)), "Logits", CLASSES)


def eights(depth, ratio):
    """MobileDet's rounding: to the nearest multiple of 8, at least 8."""
    return max(8, 8 * int(depth * ratio / 8 + 0.5))


class Mobiledet(Backbone):
    """Stages of blocks. n: no expansion; i8k5: inverted bottleneck, expansion 8, kernel 5; f: fused; t25-75: Tucker.

    Only the first block of a stage has a stride and may change the depth; the others add their input.
    """

    VARIANTS = {
        "CPU": (16, hard_swish, [
            (8, 1, "n"), (16, 2, "i4"), (32, 2, "i8 i4 i4 i4"), (72, 2, "i8k5 i8 i4k5 i4"), (72, 1, "i8 i8 i8 i8"),
            (104, 2, "i8k5 i4k5 i4k5 i4"), (144, 1, "i8")]),
        "DSP": (32, relu6, [
            (24, 1, "n"), (32, 2, "f4 f4 i4 t25-75"), (64, 2, "f8 i4 f4 f4"), (120, 2, "f8 i4 i8 i8"),
            (144, 1, "f8 i8 i8 i8"), (160, 2, "i4 i4 f4 t75-75"), (240, 1, "i8")]),
        "EdgeTPU": (32, relu6, [
            (16, 1, "t25-75"), (16, 2, "f8 f4 f8 f4"), (40, 2, "f8k5 f4 f4 f4"), (72, 2, "i8 i8 f4 f4"),
            (96, 1, "i8k5 i8k5 i8 i8"), (120, 2, "i8k5 i8 i4k5 i8"), (384, 1, "i8k5")]),
        "GPU": (32, relu6, [
            (16, 1, "t25-25"), (32, 2, "f8 t25-25 t25-25 t25-25"), (64, 2, "f8 f8 f8 f4"), (128, 2, "f8 f4 f4 f4"),
            (128, 1, "f8 f8 f8 f8"), (128, 2, "f4 f4 f4 f4"), (384, 1, "i8")]),
    }
    NAMES = {"n": "IBNNoExpansion", "i": "IBN", "f": "FusedConv", "t": "TuckerConv"}

    def __init__(self, variant, width):
        super().__init__(epsilon=0.01)
        self.variant = variant
        self.width = width

    def features(self, x):
        first, activation, stages = self.VARIANTS[self.variant]
        prefix = "MobileDet" + self.variant + "/"
        counts = {}
        x = self.conv(x, prefix + "Conv", eights(first, self.width), 3, 2, activation)
        for depth, stage_stride, blocks in stages:
            for index, block in enumerate(blocks.split()):
                name = self.NAMES[block[0]]
                number = counts.get(name, 0)
                counts[name] = number + 1
                scope = prefix + name + (f"_{number}" if number else "") + "/"
                y = self.block(x, scope, block, eights(depth, self.width), 1 if index else stage_stride, activation)
                x = x + y if index else y
        return x

    def block(self, x, scope, code, depth, stride, activation):
        kind, digits, kernel = re.fullmatch(r"(.)([\d-]*)(?:k(\d))?", code).groups()
        kernel = int(kernel or 3)
        channels = x.shape[1]
        last = "Conv_1"
        if kind == "n":
            last = "Conv"
            x = self.depthwise(x, scope + "SeparableConv2d", kernel, stride, activation)
        elif kind == "i":
            x = self.conv(x, scope + "Conv", channels * int(digits), 1, 1, activation)
            x = self.depthwise(x, scope + "SeparableConv2d", kernel, stride, activation)
        elif kind == "f":
            x = self.conv(x, scope + "Conv", channels * int(digits), kernel, stride, activation)
        else:
            first, second = (int(percent) / 100 for percent in digits.split("-"))
            last = "Conv_2"
            x = self.conv(x, scope + "Conv", eights(channels, first), 1, 1, activation)
            x = self.conv(x, scope + "Conv_1", eights(depth, second), kernel, stride, activation)
        if self.variant == "CPU":
            squeezed = eights(x.shape[1], 0.25)
            x = self.squeeze_excite(x, scope + "SqueezeExcite", squeezed, activation, torch.sigmoid)
        return self.conv(x, scope + last, depth, 1, 1, linear)


class MobilenetEdgetpu(Backbone):
    """Stages: kernel, depth, stride, full convolutions instead of depthwise ones, expansions of the blocks."""

    STAGES = [
        (3, 16, 1, True, (1,)), (3, 32, 2, True, (8, 4, 4, 4)), (3, 48, 2, True, (8, 4, 4, 4)),
        (3, 96, 2, False, (8, 4, 4, 4)), (3, 96, 1, False, (8, 4, 4, 4)), (5, 160, 2, False, (8, 4, 4, 4)),
        (3, 192, 1, False, (8,)),
    ]

    def __init__(self, width):
        super().__init__()
        self.width = width

    def features(self, x):
        prefix = "MobilenetEdgeTPU/"
        x = self.conv(x, prefix + "Conv", scaled_depth(32, self.width), 3, 2, relu)
        number = 0
        for kernel, depth, stage_stride, fused, expansions in self.STAGES:
            for index, expansion in enumerate(expansions):
                scope = prefix + "expanded_conv" + (f"_{number}" if number else "") + "/"
                stride = 1 if index else stage_stride
                inner = x.shape[1] * expansion
                y = x
                if fused and expansion > 1:
                    y = self.conv(y, scope + "expand", inner, kernel, stride, relu)
                elif not fused:
                    y = self.conv(y, scope + "expand", inner, 1, 1, relu)
                    y = self.depthwise(y, scope + "depthwise", kernel, stride, relu)
                y = self.conv(y, scope + "project", scaled_depth(depth, self.width), 1, 1, linear)
                x = x + y if index else y
                number += 1
        return x


class MobilenetV3(Backbone):
    """Rows of the paper's tables: kernel, expansion size, depth, stride; s: squeeze-and-excitation, h: hard-swish.

    The network is that of detectors, whose last stage has half the depths.
    """

    ROWS = {
        "large": [
            "3 16 16 1", "3 64 24 2", "3 72 24 1", "5 72 40 2 s", "5 120 40 1 s", "5 120 40 1 s", "3 240 80 2 h",
            "3 200 80 1 h", "3 184 80 1 h", "3 184 80 1 h", "3 480 112 1 sh", "3 672 112 1 sh", "5 672 80 2 sh",
            "5 480 80 1 sh", "5 480 80 1 sh"],
        "small": [
            "3 16 16 2 s", "3 72 24 2", "3 88 24 1", "5 96 40 2 sh", "5 240 40 1 sh", "5 240 40 1 sh", "5 120 48 1 sh",
            "5 144 48 1 sh", "5 288 48 2 sh", "5 288 48 1 sh", "5 288 48 1 sh"],
    }
    LAST = {"large": 480, "small": 288}

    def __init__(self, size, width):
        super().__init__()
        self.size = size
        self.width = width

    def features(self, x):
        prefix = "MobilenetV3/"
        x = self.conv(x, prefix + "Conv", scaled_depth(16, self.width), 3, 2, hard_swish)
        nominal = 16
        for number, row in enumerate(self.ROWS[self.size]):
            kernel, expansion, depth, stride = (int(word) for word in row.split()[:4])
            flags = "".join(row.split()[4:])
            activation = hard_swish if "h" in flags else relu
            scope = prefix + "expanded_conv" + (f"_{number}" if number else "") + "/"
            y = x
            if expansion > nominal:
                inner = scaled_depth(x.shape[1], expansion / nominal)
                y = self.conv(y, scope + "expand", inner, 1, 1, activation)
            y = self.depthwise(y, scope + "depthwise", kernel, stride, activation)
            if "s" in flags:
                squeezed = scaled_depth(y.shape[1], 0.25)
                gate = lambda value: relu6(value + 3.0) / 6.0
                y = self.squeeze_excite(y, scope + "squeeze_excite", squeezed, relu, gate)
            y = self.conv(y, scope + "project", scaled_depth(depth, self.width), 1, 1, linear)
            x = x + y if y.shape == x.shape else y
            nominal = depth
        return self.conv(x, prefix + "Conv_1", scaled_depth(self.LAST[self.size], self.width), 1, 1, hard_swish)


# Name of the file, network, size of the images.
CASES = [
    ("mobiledet_cpu_100_rgb40", Mobiledet("CPU", 1.0), 40),
    ("mobiledet_dsp_075_rgb36", Mobiledet("DSP", 0.75), 36),
    ("mobiledet_edgetpu_100_rgb40", Mobiledet("EdgeTPU", 1.0), 40),
    ("mobiledet_gpu_050_rgb33", Mobiledet("GPU", 0.5), 33),
    ("mobilenet_edgetpu_075_rgb40", MobilenetEdgetpu(0.75), 40),
    ("mobilenet_v3_large_detection_100_rgb40", MobilenetV3("large", 1.0), 40),
    ("mobilenet_v3_small_detection_075_rgb36", MobilenetV3("small", 0.75), 36),
]


def write_case(name, network, size, folder):
    images = uniform("images", BATCH * size * size * 3).reshape(BATCH, size, size, 3)
    images = torch.tensor(images).permute(0, 3, 1, 2)
    labels = torch.tensor([(3 * i + 1) % CLASSES for i in range(BATCH)])
    loss = functional.cross_entropy(network.logits(images, True), labels)
    loss.backward()
    with torch.no_grad():
        evaluated = functional.cross_entropy(network.logits(images, False), labels)
    lines = [
        "# Made by tests/reference/backbones_torch.py. Then per variable: norm, first, middle and last entry of the",
        "# gradient, or of the batch statistic.",
        f"loss {loss.item():.12e}",
        f"evaluated_loss {evaluated.item():.12e}",
    ]
    for variable_name, variable in network.variables.items():
        values = network.statistics[variable_name] if "moving" in variable_name else variable.grad
        flat = values.reshape(-1)
        picked = [flat.norm(), flat[0], flat[len(flat) // 2], flat[-1]]
        lines.append(variable_name + "".join(f" {value.item():.10e}" for value in picked))
    (folder / (name + ".txt")).write_text("\n".join(lines) + "\n")
    parameters = sum(v.numel() for n, v in network.variables.items() if "moving" not in n)
    head = sum(v.numel() for n, v in network.variables.items() if n.startswith("Logits"))
    print(name, loss.item(), evaluated.item(), "parameters of the backbone:", parameters - head)


if __name__ == "__main__":
    default = pathlib.Path(__file__).resolve().parent.parent / "golden"
    for case in CASES:
        write_case(*case, pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default)
