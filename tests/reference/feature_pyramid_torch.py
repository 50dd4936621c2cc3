#!/usr/bin/env python3
"""Computes golden values of detectors with feature pyramids in PyTorch: python3 feature_pyramid_torch.py [FOLDER]

Computes the total loss and its gradient of ssd_mobilenet_v1_fpn, FPN-Lite on MobileNetV2, ssd_resnet50_v1_fpn,
ssd_mobilenet_v1_ppn and ssd_mobilenet_v2_mnasfpn, in float64, and of two of them as TensorFlow 2 builds them ("keras").
MobileNets, matching and losses come from ssd_mobilenet_torch.py; the rest is written here from the papers and from
TensorFlow's documentation of names. Writes one file per case into tests/golden (or FOLDER), as golden_file.py says.
"""
import numpy
import torch
import torch.nn.functional as functional

import ssd_mobilenet_torch as ssd
from mobilenet_v2_torch import BLOCKS, EPSILON, scaled_depth

ROOT = "WeightSharedConvolutionalBoxPredictor"
CASES = [
    dict(name="ssd_mobilenet_v1_fpn_025_96", backbone="v1", width=0.25, size=96, levels=(3, 7), depth=96,
         separable=False, one_tower=False, tower=2, head_depth=24, kernel=3),
    dict(name="ssd_mobilenet_v2_fpnlite_035_64", backbone="v2", width=0.35, size=64, levels=(3, 7), depth=64,
         separable=True, one_tower=True, tower=2, head_depth=32, kernel=3),
    dict(name="ssd_resnet50_v1_fpn_0125_64", backbone="resnet", width=0.125, size=64, levels=(3, 6), depth=128,
         separable=False, one_tower=False, tower=1, head_depth=16, kernel=3),
    dict(name="ssd_mobilenet_v2_fpnlite_keras_035_64", backbone="v2", width=0.35, size=64, levels=(3, 7), depth=64,
         separable=True, one_tower=True, tower=2, head_depth=32, kernel=3, keras=True),
    dict(name="ssd_resnet50_v1_fpn_keras_0125_64", backbone="resnet", width=0.125, size=64, levels=(3, 6), depth=128,
         separable=False, one_tower=False, tower=1, head_depth=16, kernel=3, keras=True),
    dict(name="ssd_mobilenet_v2_mnasfpn_035_64", backbone="v2", width=0.35, size=64, levels=(3, 6), depth=48,
         separable=True, one_tower=True, tower=1, head_depth=16, kernel=3, mnas=True),
    dict(name="ssd_mobilenet_v1_ppn_025_75", backbone="v1", width=0.25, size=75, levels=None, depth=0,
         separable=False, one_tower=True, tower=1, head_depth=40, kernel=1),
]


# The blocks of a cell: two inputs, level, kernel, depth of the sum.
MNAS_CELL = [(1, 2, 4, 3, 256), (0, 4, 3, 3, 128), (5, 4, 4, 3, 128), (4, 3, 5, 5, 128), (4, 3, 6, 3, 96)]
MNAS_EPSILON = float(numpy.float32(0.01))  # in single precision, as in the config


class PyramidDetector(ssd.Detector):

    def __init__(self, case):
        super().__init__(case)
        if case.get("mnas"):
            self.epsilon = MNAS_EPSILON

    def keras(self):
        return self.case.get("keras", False)

    def weighted(self, x, scope, depth, kernel, stride, separable, fixed):
        """A convolution [B, C, H, W] without biases. `fixed`: kernel - 1 rows and columns of padding."""
        channels = x.shape[1]
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = kernel - 1 if fixed else max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        x = functional.pad(x, pads)
        if not separable:
            w = self.weights(scope + "/weights", (kernel, kernel, channels, depth), kernel * kernel * channels)
            return functional.conv2d(x, w.permute(3, 2, 0, 1), stride=stride)
        w = self.weights(scope + "/depthwise_weights", (kernel, kernel, channels, 1), kernel * kernel)
        x = functional.conv2d(x, w.permute(2, 3, 0, 1), stride=stride, groups=channels)
        w = self.weights(scope + "/pointwise_weights", (1, 1, channels, depth), channels)
        return functional.conv2d(x, w.permute(3, 2, 0, 1))

    def epsilon_of(self, scope):
        return self.epsilon if scope.startswith("FeatureExtractor") else EPSILON

    def layer(self, x, scope, depth, kernel, stride, training, separable=False, activate=True, norm=None, fixed=False):
        y = self.weighted(x, scope, depth, kernel, stride, separable, fixed)
        z = self.normalize(y, norm or scope + "/BatchNorm", training)
        return z.clamp(0.0, 6.0) if activate else z

    def biased(self, x, scope, depth, kernel, separable=False):
        y = self.weighted(x, scope, depth, kernel, 1, separable, False)
        return y + self.variable(scope + "/biases", (depth,), 0.0, 0.1).reshape(1, -1, 1, 1)

    def levels_v1(self, images, training):
        root = "FeatureExtractor/MobilenetV1/Conv2d_"
        x = self.layer(images, root + "0", self.depth(32), 3, 2, training)
        taps = {}
        blocks = ssd.V1_BLOCKS if self.case["levels"] else ssd.V1_BLOCKS[:11]
        for i, (depth, stride) in enumerate(blocks, start=1):
            x = self.convolve(x, f"{root}{i}_depthwise", x.shape[1], 3, stride, True, training, depthwise=True)
            x = self.layer(x, f"{root}{i}_pointwise", self.depth(depth), 1, 1, training)
            taps[i] = x
        return {level: taps[i] for level, i in zip((2, 3, 4, 5), (3, 5, 11, 13)) if i in taps}

    def levels_v2(self, images, training):
        divisible = lambda depth: max(ssd.MIN_DEPTH, scaled_depth(depth, self.case["width"]))
        root = "FeatureExtractor/MobilenetV2/"
        x = self.layer(images, root + "Conv", divisible(32), 3, 2, training)
        index, taps = 0, {}
        for expansion, depth, repeats, stride in BLOCKS:
            for repeat in range(repeats):
                scope = root + "expanded_conv" + (f"_{index}" if index else "")
                step, shortcut, inner = stride if repeat == 0 else 1, x, x.shape[1] * expansion
                if expansion > 1:
                    x = self.layer(x, scope + "/expand", inner, 1, 1, training)
                x = self.convolve(x, scope + "/depthwise", inner, 3, step, True, training, depthwise=True)
                x = self.layer(x, scope + "/project", divisible(depth), 1, 1, training, activate=False)
                if step == 1 and x.shape == shortcut.shape:
                    x = x + shortcut
                taps[index] = x
                index += 1
        if self.case.get("mnas"):
            return {3: taps[5], 4: taps[12], 5: x}
        return {2: taps[2], 3: taps[5], 4: taps[12],
                5: self.layer(x, root + "Conv_1", divisible(1280 if self.keras() else 256), 1, 1, training)}

    def levels_resnet(self, images, training):
        root = "FeatureExtractor/resnet_v1_50"
        depth_of = lambda full: max(ssd.MIN_DEPTH, scaled_depth(full, self.case["width"]))
        first = depth_of(64) if self.keras() else 64  # slim's multiplier does not reach it
        x = self.layer(images, root + "/conv1", first, 7, 2, training, fixed=True)
        pad = lambda size: max((-(-size // 2) - 1) * 2 + 3 - size, 0)
        high, wide = pad(x.shape[2]), pad(x.shape[3])
        x = functional.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2], value=-torch.inf)
        x = functional.max_pool2d(x, 3, 2)
        taps = {}
        for block, units in enumerate((3, 4, 6, 3), start=1):
            depth = depth_of(32 << block)
            for unit in range(1, units + 1):
                scope = f"{root}/block{block}/unit_{unit}/bottleneck_v1"
                shortcut = x
                stride = 2 if self.keras() and block > 1 and unit == 1 else 1
                y = self.layer(x, scope + "/conv1", depth, 1, stride, training)
                y = self.layer(y, scope + "/conv2", depth, 3, 1, training, fixed=True)
                y = self.layer(y, scope + "/conv3", 4 * depth, 1, 1, training, activate=False)
                if unit == 1 and shortcut.shape != y.shape:
                    shortcut = self.layer(x, scope + "/shortcut", 4 * depth, 1, stride, training, activate=False)
                x = (y + shortcut).clamp(0.0, 6.0 if self.keras() else torch.inf)
            taps[block + 1] = x
            if not self.keras():
                x = x[:, :, ::2, ::2]
        return taps

    def max_pool(self, x, stride):
        """The largest element of windows of 3x3 pixels, with TensorFlow's SAME padding."""
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = max((-(-size // stride) - 1) * stride + 3 - size, 0)
            pads += [total // 2, total - total // 2]
        return functional.max_pool2d(functional.pad(x, pads, value=-torch.inf), 3, stride)

    def mnas_maps(self, levels, training):
        """Four cells. Each of a cell's values is a pair of its level and its map."""
        divisible = lambda depth: max(ssd.MIN_DEPTH, scaled_depth(depth, self.case["width"]))
        linear = lambda x, scope, depth: self.layer(x, scope, depth, 1, 1, training, activate=False)
        root = "FeatureExtractor/MnasFPN/"
        coarsest = linear(self.max_pool(levels[5], 2), root + "C6_Conv1x1", divisible(self.case["depth"]))
        maps = [(3, levels[3]), (4, levels[4]), (5, levels[5]), (6, coarsest)]
        for cell in range(4):
            values = list(maps)
            for number, (first, second, level, kernel, depth) in enumerate(MNAS_CELL):
                total = 0.0
                for place, (from_level, x) in enumerate((values[first], values[second])):
                    if from_level < level:
                        x = self.max_pool(x, 2 ** (level - from_level))
                    x = linear(x, f"{root}cell_{cell}/block_{number}/input_{place}/Conv1x1", divisible(depth))
                    if from_level > level:
                        x = functional.interpolate(x, scale_factor=2 ** (from_level - level), mode="nearest")
                    total = total + x
                scope = f"{root}cell_{cell}/block_{number}/SepConv"
                values.append((level, self.layer(total.clamp(0.0, 6.0), scope, divisible(48), kernel, 1, training,
                                                 separable=True, activate=False)))
            maps = [(level, y + x if x.shape == y.shape else y) for (_, x), (level, y) in zip(values, values[-4:])]
        return [x for _, x in maps]

    def maps(self, images, training):
        backbone = self.case["backbone"]
        levels = getattr(self, "levels_" + backbone)(images, training)
        if self.case.get("mnas"):
            return self.mnas_maps(levels, training)
        if self.case["levels"] is None:
            maps = [levels[4]]
            while len(maps) < 6:
                x = maps[-1]
                x = functional.pad(x, [0, x.shape[3] % 2, 0, x.shape[2] % 2], value=-torch.inf)
                maps.append(functional.max_pool2d(x, 2, 2))
            return maps
        low, high = self.case["levels"]
        scope = {"v1": "FeatureExtractor/MobilenetV1", "v2": "FeatureExtractor/MobilenetV2",
                 "resnet": "FeatureExtractor/resnet_v1_50"}[backbone] + "/fpn/"
        depth, separable = self.depth(self.case["depth"]), self.case["separable"]
        top = self.biased(levels[5], f"{scope}projection_{5 - low + 1}", depth, 1)
        maps = {5: top}
        for level in range(4, low - 1, -1):
            number = level - low + 1
            top = functional.interpolate(top, scale_factor=2, mode="nearest")
            top = top + self.biased(levels[level], f"{scope}projection_{number}", depth, 1)
            maps[level] = self.layer(top, f"{scope}smoothing_{number}", depth, 3, 1, training, separable)
            if self.keras():
                top = maps[level]
        prefix, number = {"v1": ("bottom_up_Conv2d_", 14), "v2": ("bottom_up_Conv2d_", 20),
                          "resnet": ("bottom_up_block", 5)}[backbone]
        for level in range(6, high + 1):
            maps[level] = self.layer(maps[level - 1], f"{scope}{prefix}{number + level - 6}", depth, 3, 2, training,
                                     separable)
        return [maps[level] for level in range(low, high + 1)]

    def tower(self, x, name, i, training):
        for layer in range(self.case["tower"]):
            scope = f"{ROOT}/{name}/conv2d_{layer}"
            x = self.layer(x, scope, self.case["head_depth"], self.case["kernel"], 1, training, self.case["separable"],
                           norm=f"{scope}/BatchNorm/feature_{i}")
        return x

    def outputs(self, images, training):
        """Returns box codes [B, A, 4], class scores [B, A, K] and the (height, width) of each feature map."""
        codes, scores, sizes = [], [], []
        anchors = 6
        kernel, separable = self.case["kernel"], self.case["separable"]
        flat = lambda y, columns: y.permute(0, 2, 3, 1).reshape(len(images), -1, columns)
        for i, x in enumerate(self.maps(images, training)):
            boxes = self.tower(x, "PredictionTower" if self.case["one_tower"] else "BoxPredictionTower", i, training)
            codes.append(flat(self.biased(boxes, ROOT + "/BoxPredictor", anchors * 4, kernel, separable), 4))
            classes = boxes if self.case["one_tower"] else self.tower(x, "ClassPredictionTower", i, training)
            columns = ssd.CLASSES + 1
            scores.append(flat(self.biased(classes, ROOT + "/ClassPredictor", anchors * columns, kernel, separable),
                               columns))
            sizes.append((x.shape[2], x.shape[3]))
        return torch.cat(codes, 1), torch.cat(scores, 1), sizes


def multiscale_anchors(case, sizes):
    """Returns the anchors [A, 4] (ymin, xmin, ymax, xmax) of the levels: three ratios, two scales per octave."""
    result = []
    image = case["size"]
    for level, (height, width) in enumerate(sizes, start=case["levels"][0]):
        stride = 2 ** level
        offset = stride / 2 if image % stride == 0 else 0
        for y in range(height):
            for x in range(width):
                for ratio in (1.0, 2.0, 0.5):
                    for octave in (0.0, 0.5):
                        side = 4 * stride * 2 ** octave
                        h, w = side / ratio ** 0.5, side * ratio ** 0.5
                        yc, xc = y * stride + offset, x * stride + offset
                        result.append([yc - h / 2, xc - w / 2, yc + h / 2, xc + w / 2])
    return (numpy.array(result) / image).astype(numpy.float32).astype(numpy.float64)


if __name__ == "__main__":
    for golden_case in CASES:
        def anchors_of(sizes, case=golden_case):
            return multiscale_anchors(case, sizes) if case["levels"] else ssd.make_anchors(sizes, 0.15, False)

        ssd.write_case(dict(golden_case, minimum=0, network=PyramidDetector, anchors=anchors_of))
