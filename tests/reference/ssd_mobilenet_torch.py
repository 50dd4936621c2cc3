#!/usr/bin/env python3
"""Computes golden values of SSD detectors in PyTorch: python3 ssd_mobilenet_torch.py [FOLDER]

Computes the total loss and its gradient of ssd_mobilenet_v1, ssd_mobilenet_v2 and an SSDLite, in float64. The
convolutions come from mobilenet_v2_torch.py, matching and losses from detection_golden.py; both are independent of the
C++ code. Writes one file per case into tests/golden (or FOLDER), as golden_file.py says.
"""
import numpy
import torch
import torch.nn.functional as functional

import detection_golden as detection
import golden_file
from mobilenet_v2_torch import BLOCKS, Network, scaled_depth

V1_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
EXTRA = [512, 256, 256, 128]
RATIOS = [1.0, 2.0, 0.5, 3.0, 0.3333]
CLASSES = 3
MIN_DEPTH = 16
OBJECTS = [
    [[0.1, 0.1, 0.5, 0.45, 0, 1.0], [0.5, 0.3, 0.9, 0.95, 2, 1.0]],
    [[0.05, 0.02, 0.97, 0.99, 1, 1.0]],
]
CASES = [
    dict(name="ssd_mobilenet_v1_025_75", version=1, width=0.25, size=75, kernel=1, extra_depthwise=False,
         head_depthwise=False, minimum=0),
    dict(name="ssd_mobilenet_v2_035_75", version=2, width=0.35, size=75, kernel=3, extra_depthwise=True,
         head_depthwise=False, minimum=3),
    dict(name="ssdlite_mobilenet_v2_035_70", version=2, width=0.35, size=70, kernel=3, extra_depthwise=True,
         head_depthwise=True, minimum=3),
]


class Detector(Network):

    def depth(self, full):
        return max(int(full * self.case["width"]), MIN_DEPTH)

    def body_v1(self, x, training):
        scope = "FeatureExtractor/MobilenetV1/Conv2d_"
        x = self.convolve(x, scope + "0", self.depth(32), 3, 2, True, training)
        for i, (depth, stride) in enumerate(V1_BLOCKS, start=1):
            x = self.convolve(x, f"{scope}{i}_depthwise", x.shape[1], 3, stride, True, training, depthwise=True)
            x = self.convolve(x, f"{scope}{i}_pointwise", self.depth(depth), 1, 1, True, training)
            if i == 11:
                tap = x
        return [tap, x]

    def body_v2(self, x, training):
        def divisible(depth):
            return max(MIN_DEPTH, scaled_depth(depth, self.case["width"]))

        root = "FeatureExtractor/MobilenetV2/"
        x = self.convolve(x, root + "Conv", divisible(32), 3, 2, True, training)
        index = 0
        for expansion, depth, repeats, stride in BLOCKS:
            for repeat in range(repeats):
                scope = root + "expanded_conv" + (f"_{index}" if index else "")
                step = stride if repeat == 0 else 1
                shortcut = x
                inner = x.shape[1] * expansion
                if expansion > 1:
                    x = self.convolve(x, scope + "/expand", inner, 1, 1, True, training)
                if index == 13:
                    tap = x
                x = self.convolve(x, scope + "/depthwise", inner, 3, step, True, training, depthwise=True)
                x = self.convolve(x, scope + "/project", divisible(depth), 1, 1, False, training)
                if step == 1 and x.shape == shortcut.shape:
                    x = x + shortcut
                index += 1
        return [tap, self.convolve(x, root + "Conv_1", divisible(1280), 1, 1, True, training)]

    def extra_scope(self):
        return ("FeatureExtractor/MobilenetV1/Conv2d_13_pointwise" if self.case["version"] == 1 else
                "FeatureExtractor/MobilenetV2/layer_19")

    def extra(self, maps, training):
        base = self.extra_scope()
        for i, full in enumerate(EXTRA, start=2):
            half, depth = self.depth(full / 2), self.depth(full)
            x = self.convolve(maps[-1], f"{base}_1_Conv2d_{i}_1x1_{half}", half, 1, 1, True, training)
            scope = f"{base}_2_Conv2d_{i}_3x3_s2_{depth}"
            if self.case["extra_depthwise"]:
                x = self.convolve(x, scope + "_depthwise", half, 3, 2, True, training, depthwise=True)
                x = self.convolve(x, scope, depth, 1, 1, True, training)
            else:
                x = self.convolve(x, scope, depth, 3, 2, True, training)
            maps.append(x)
        return maps

    def predict(self, x, scope, depth, training):
        kernel = self.case["kernel"]
        if self.case["head_depthwise"]:
            x = self.convolve(x, scope + "_depthwise", x.shape[1], kernel, 1, True, training, depthwise=True)
            kernel = 1
        w = self.weights(scope + "/weights", (kernel, kernel, x.shape[1], depth), kernel * kernel * x.shape[1])
        bias = self.variable(scope + "/biases", (depth,), 0.0, 0.1)
        return functional.conv2d(functional.pad(x, [kernel // 2] * 4), w.permute(3, 2, 0, 1), bias)

    def outputs(self, images, training):
        """Returns box codes [B, A, 4], class scores [B, A, K] and the (height, width) of each feature map."""
        body = self.body_v1 if self.case["version"] == 1 else self.body_v2
        codes, scores, sizes = [], [], []
        for i, x in enumerate(self.extra(body(images, training), training)):
            anchors = 3 if i == 0 else 6
            flat = lambda y, columns: y.permute(0, 2, 3, 1).reshape(len(images), -1, columns)
            codes.append(flat(self.predict(x, f"BoxPredictor_{i}/BoxEncodingPredictor", anchors * 4, training), 4))
            scores.append(flat(self.predict(x, f"BoxPredictor_{i}/ClassPredictor", anchors * (CLASSES + 1), training),
                               CLASSES + 1))
            sizes.append((x.shape[2], x.shape[3]))
        return torch.cat(codes, 1), torch.cat(scores, 1), sizes


def make_anchors(sizes, smallest=0.2, reduce_lowest=True):
    """Returns the anchors [A, 4] (ymin, xmin, ymax, xmax) of feature maps with these (height, width)."""
    # Numbers in a config are single precision.
    low, high, ratios = float(numpy.float32(smallest)), float(numpy.float32(0.95)), [float(numpy.float32(r)) for r in RATIOS]
    scales = [low + (high - low) * i / 5 for i in range(6)] + [1.0]
    result = []
    for i, (height, width) in enumerate(sizes):
        shapes = [(0.1, 1.0), (scales[0], 2.0), (scales[0], 0.5)] if i == 0 and reduce_lowest else \
            [(scales[i], ratio) for ratio in ratios] + [((scales[i] * scales[i + 1]) ** 0.5, 1.0)]
        for y in range(height):
            for x in range(width):
                for scale, ratio in shapes:
                    h, w = scale / ratio ** 0.5, scale * ratio ** 0.5
                    yc, xc = (y + 0.5) / height, (x + 0.5) / width
                    result.append([yc - h / 2, xc - w / 2, yc + h / 2, xc + w / 2])
    return numpy.float32(result).astype(numpy.float64)


def total_loss(case, codes, scores, sizes):
    settings = {**detection.BASE, "miner": dict(detection.MINER, minimum=case["minimum"])}
    anchors = case.get("anchors", make_anchors)(sizes)
    classification, localization, matched_anchors = 0.0, 0.0, 0
    for s, objects in enumerate(OBJECTS):
        objects = numpy.float32(objects).astype(numpy.float64)
        matches = detection.match(settings, objects[:, :4], anchors)
        matched = matches >= 0
        index = numpy.where(matched, matches, 0)
        columns = numpy.where(matched, objects[index, 4] + 1, 0).astype(int)
        cls = detection.classification_losses(settings, scores[s], columns)
        targets = torch.tensor(detection.encode(objects[index, :4], anchors))
        loc = detection.localization_losses(settings, codes[s], targets) * torch.tensor(matched.astype(float))
        boxes = detection.decode(codes[s].detach().numpy(), anchors)
        kept = detection.mine(settings, cls.detach().numpy(), loc.detach().numpy(), boxes, matches)
        classification = classification + cls[kept].sum()
        localization = localization + loc[kept].sum()
        matched_anchors += matched.sum()
    return (classification + localization) / max(matched_anchors, 1.0)


def write_case(case):
    images = golden_file.make_images(len(OBJECTS), case["size"])
    network = case.get("network", Detector)(case)
    golden_file.write_network(case["name"], network,
                              lambda training: total_loss(case, *network.outputs(images, training)))


if __name__ == "__main__":
    for golden_case in CASES:
        write_case(golden_case)
