#!/usr/bin/env python3
"""Computes golden values of MobileNetV2 in PyTorch, written from the paper: python3 mobilenet_v2_torch.py [FOLDER]

Writes one file per case into tests/golden (or FOLDER), as golden_file.py says.
"""
import numpy
import torch
import torch.nn.functional as functional

import golden_file
from golden_file import CLASSES, uniform

BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
CASES = [
    dict(name="mobilenet_v2_035_rgb32", width=0.35, size=32, channels=3, hidden=0, smoothing=0.0, batch=4),
    dict(name="mobilenet_v2_050_grey33", width=0.5, size=33, channels=1, hidden=24, smoothing=0.1, batch=3),
]
EPSILON = float(numpy.float32(0.001))  # numbers in a config are single precision


def scaled_depth(depth, width):
    value = depth * width
    result = max(8, int(value + 4) // 8 * 8)
    return result + 8 if result < 0.9 * value else result


class Network:
    """The network with its variables, by TensorFlow's names, which are created on first use.

    `statistics` holds the mean and variance of the batch that a forward pass in training mode has computed.
    """

    def __init__(self, case):
        self.case = case
        self.epsilon = EPSILON
        self.variables = {}
        self.statistics = {}

    def variable(self, name, shape, centre, radius):
        if name not in self.variables:
            count = int(numpy.prod(shape))
            values = centre + radius * uniform(name, count)
            tensor = torch.tensor(values.reshape(shape))
            tensor.requires_grad_("moving" not in name)
            self.variables[name] = tensor
        return self.variables[name]

    def weights(self, name, shape, fan_in):
        """Returns the weights, with values in He's range for uniform initialization."""
        return self.variable(name, shape, 0.0, (6.0 / fan_in) ** 0.5)

    def convolve(self, x, scope, depth, kernel, stride, activate, training, depthwise=False):
        """A convolution [B, C, H, W] with TensorFlow's SAME padding, batch norm and, with `activate`, ReLU6."""
        channels = x.shape[1]
        if depthwise:
            w = self.weights(scope + "/depthwise_weights", (kernel, kernel, channels, 1), kernel * kernel)
            w = w.permute(2, 3, 0, 1)
        else:
            w = self.weights(scope + "/weights", (kernel, kernel, channels, depth), kernel * kernel * channels)
            w = w.permute(3, 2, 0, 1)
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        y = functional.conv2d(functional.pad(x, pads), w, stride=stride, groups=channels if depthwise else 1)
        z = self.normalize(y, scope + "/BatchNorm", training)
        return z.clamp(0.0, 6.0) if activate else z

    def epsilon_of(self, scope):
        del scope
        return self.epsilon

    def normalize(self, y, scope, training, scale=True):
        """A batch norm of y [B, C, H, W], without gamma unless `scale`."""
        depth = y.shape[1]
        gamma = self.variable(scope + "/gamma", (depth,), 1.0, 0.3) if scale else torch.ones(depth, dtype=y.dtype)
        beta = self.variable(scope + "/beta", (depth,), 0.3, 0.3)
        mean = self.variable(scope + "/moving_mean", (depth,), 0.0, 0.2)
        variance = self.variable(scope + "/moving_variance", (depth,), 1.0, 0.5)
        if training:
            count = y.numel() // depth
            mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3), unbiased=False)
            self.statistics[scope + "/moving_mean"] = mean.detach()
            self.statistics[scope + "/moving_variance"] = variance.detach() * count / max(count - 1, 1)
        column = lambda v: v.reshape(1, -1, 1, 1)
        return (y - column(mean)) / torch.sqrt(column(variance) + self.epsilon_of(scope)) * column(gamma) + column(beta)

    def dense(self, x, scope, units, activate):
        w = self.weights(scope + "/weights", (1, 1, x.shape[1], units), x.shape[1])
        y = x @ w[0, 0] + self.variable(scope + "/biases", (units,), 0.0, 0.1)
        return y.clamp(0.0, 6.0) if activate else y

    def logits(self, images, training):
        """Returns the logits [B, CLASSES] of images [B, C, H, W]."""
        width = self.case["width"]
        x = self.convolve(images, "MobilenetV2/Conv", scaled_depth(32, width), 3, 2, True, training)
        index = 0
        for expansion, depth, repeats, stride in BLOCKS:
            for repeat in range(repeats):
                scope = "MobilenetV2/expanded_conv" + (f"_{index}" if index else "")
                step = stride if repeat == 0 else 1
                shortcut = x
                inner = x.shape[1] * expansion
                if expansion > 1:
                    x = self.convolve(x, scope + "/expand", inner, 1, 1, True, training)
                x = self.convolve(x, scope + "/depthwise", inner, 3, step, True, training, depthwise=True)
                x = self.convolve(x, scope + "/project", scaled_depth(depth, width), 1, 1, False, training)
                if step == 1 and x.shape == shortcut.shape:
                    x = x + shortcut
                index += 1
        x = self.convolve(x, "MobilenetV2/Conv_1", max(1280, scaled_depth(1280, width)), 1, 1, True, training)
        x = x.mean((2, 3))
        if self.case["hidden"]:
            x = self.dense(x, "MobilenetV2/Logits/Conv2d_1b_1x1", self.case["hidden"], True)
        return self.dense(x, "MobilenetV2/Logits/Conv2d_1c_1x1", CLASSES, False)


def write_case(case):
    images = golden_file.make_images(case["batch"], case["size"], case["channels"])
    labels = golden_file.make_labels(case["batch"])
    network = Network(case)

    def loss_of(training):
        smoothing = case["smoothing"] if training else 0.0
        return functional.cross_entropy(network.logits(images, training), labels, label_smoothing=smoothing)

    golden_file.write_network(case["name"], network, loss_of)


if __name__ == "__main__":
    for golden_case in CASES:
        write_case(golden_case)
