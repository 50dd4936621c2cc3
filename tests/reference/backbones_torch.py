#!/usr/bin/env python3
"""Computes golden values of backbones in PyTorch: python3 backbones_torch.py [FOLDER]

The networks are written from the papers and from the description of each block in TensorFlow's models, without a look
at the C++ code. A backbone is followed by a global average pool and a 1x1 convolution with biases to 10 classes. Writes
one file per case into tests/golden (or FOLDER), as golden_file.py says.
"""
import re

import numpy
import torch
import torch.nn.functional as functional

import golden_file
from golden_file import CLASSES
from mobilenet_v2_torch import Network, scaled_depth

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


class InceptionV2(Backbone):
    """Rows of the paper's figure 5: the depths of the branches. A row of four numbers halves the resolution.

    Six numbers: 1x1; 1x1 and 3x3; 1x1 and two of 3x3; 1x1 after a pool. Four: without the first and the last branch,
    and a max pool in the place of the last.
    """

    ROWS = [
        ("3b", "64 64 64 64 96 32"), ("3c", "64 64 96 64 96 64"), ("4a", "128 160 64 96"),
        ("4b", "224 64 96 96 128 128"), ("4c", "192 96 128 96 128 128"), ("4d", "160 128 160 128 160 96"),
        ("4e", "96 128 192 160 192 96"), ("5a", "128 192 192 256"), ("5b", "352 192 320 160 224 128"),
        ("5c", "352 192 320 192 224 128")]

    def __init__(self, width, classifier):
        """A classifier has slim's scope: no scales, ReLU, and biases for the batch norm of the first layer."""
        super().__init__()
        self.width = width
        self.classifier = classifier
        self.activation = relu if classifier else relu6

    def padded(self, x, kernel, stride, value):
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return functional.pad(x, pads, value=value)

    def max_pool(self, x, stride):
        return functional.max_pool2d(self.padded(x, 3, stride, -torch.inf), 3, stride)

    def norm(self, y, scope):
        return self.normalize(y, f"InceptionV2/{scope}/BatchNorm", self.training, scale=not self.classifier)

    def unit(self, x, scope, depth, stride=1):
        """A convolution whose name ends with the size of its kernel."""
        kernel, channels = int(scope[-1]), x.shape[1]
        depth = max(16, int(depth * self.width))
        w = self.weights(f"InceptionV2/{scope}/weights", (kernel, kernel, channels, depth), kernel * kernel * channels)
        y = functional.conv2d(self.padded(x, kernel, stride, 0.0), w.permute(3, 2, 0, 1), stride=stride)
        return self.activation(self.norm(y, scope))

    def first(self, x):
        scope = "Conv2d_1a_7x7"
        depth = max(16, int(64 * self.width))
        channels, times = x.shape[1], min(depth // 3, 8)
        w = self.weights(f"InceptionV2/{scope}/depthwise_weights", (7, 7, channels, times), 49)
        w = w.permute(2, 3, 0, 1).reshape(channels * times, 1, 7, 7)
        x = functional.conv2d(self.padded(x, 7, 2, 0.0), w, stride=2, groups=channels)
        w = self.weights(f"InceptionV2/{scope}/pointwise_weights", (1, 1, channels * times, depth), channels * times)
        y = functional.conv2d(x, w.permute(3, 2, 0, 1))
        if not self.classifier:
            return self.activation(self.norm(y, scope))
        biases = self.variable(f"InceptionV2/{scope}/biases", (depth,), 0.0, 0.1)
        return self.activation(y + biases.reshape(1, -1, 1, 1))

    def module(self, x, name, depths):
        scope = f"Mixed_{name}/Branch_"
        if len(depths) == 4:
            a = self.unit(x, scope + "0/Conv2d_0a_1x1", depths[0])
            a = self.unit(a, scope + "0/Conv2d_1a_3x3", depths[1], 2)
            b = self.unit(x, scope + "1/Conv2d_0a_1x1", depths[2])
            b = self.unit(b, scope + "1/Conv2d_0b_3x3", depths[3])
            b = self.unit(b, scope + "1/Conv2d_1a_3x3", depths[3], 2)
            return torch.cat([a, b, self.max_pool(x, 2)], 1)
        a = self.unit(x, scope + "0/Conv2d_0a_1x1", depths[0])
        b = self.unit(x, scope + "1/Conv2d_0a_1x1", depths[1])
        b = self.unit(b, scope + "1/Conv2d_0b_3x3", depths[2])
        c = self.unit(x, scope + "2/Conv2d_0a_1x1", depths[3])
        c = self.unit(c, scope + "2/Conv2d_0b_3x3", depths[4])
        c = self.unit(c, scope + "2/Conv2d_0c_3x3", depths[4])
        d = self.max_pool(x, 1) if name == "5c" else functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        d = self.unit(d, scope + "3/Conv2d_0b_1x1", depths[5])
        return torch.cat([a, b, c, d], 1)

    def features(self, x):
        x = self.max_pool(self.first(x), 2)
        x = self.unit(x, "Conv2d_2b_1x1", 64)
        x = self.max_pool(self.unit(x, "Conv2d_2c_3x3", 192), 2)
        for name, depths in self.ROWS:
            x = self.module(x, name, [int(depth) for depth in depths.split()])
        return x

    def logits(self, images, training):
        if not self.classifier:
            return super().logits(images, training)
        self.training = training
        return self.biased(self.features(images).mean((2, 3)), "InceptionV2/Logits/Conv2d_1c_1x1", CLASSES)


# Name of the file, network, size of the images.
CASES = [
    ("mobiledet_cpu_100_rgb40", Mobiledet("CPU", 1.0), 40),
    ("mobiledet_dsp_075_rgb36", Mobiledet("DSP", 0.75), 36),
    ("mobiledet_edgetpu_100_rgb40", Mobiledet("EdgeTPU", 1.0), 40),
    ("mobiledet_gpu_050_rgb33", Mobiledet("GPU", 0.5), 33),
    ("mobilenet_edgetpu_075_rgb40", MobilenetEdgetpu(0.75), 40),
    ("mobilenet_v3_large_detection_100_rgb40", MobilenetV3("large", 1.0), 40),
    ("mobilenet_v3_small_detection_075_rgb36", MobilenetV3("small", 0.75), 36),
    ("inception_v2_rgb65", InceptionV2(1.0, True), 65),
    ("inception_v2_detection_050_rgb66", InceptionV2(0.5, False), 66),
]


def write_case(name, network, size):
    images, labels = golden_file.make_images(BATCH, size), golden_file.make_labels(BATCH)
    golden_file.write_network(name, network,
                              lambda training: functional.cross_entropy(network.logits(images, training), labels))
    backbone = sum(v.numel() for n, v in network.variables.items() if "moving" not in n and "Logits" not in n)
    print("parameters of the backbone:", backbone)


if __name__ == "__main__":
    for case in CASES:
        write_case(*case)
