"""The three networks of gpu_step in PyTorch, with the padding, anchors and losses of TensorFlow."""
import math

import torch
import torch.nn.functional as functional
from torch import nn

EPSILON = 0.001
V1_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
V2_ROWS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
EXTRA_DEPTHS = [512, 256, 256, 128]


def divisible(value, minimum):
    """Returns `value` rounded to a multiple of 8, at least `minimum` and not more than 10 % below `value`."""
    result = max(minimum, int(value + 4) // 8 * 8)
    return result + 8 if result < 0.9 * value else result


class Layer(nn.Module):
    """A convolution with TensorFlow's SAME padding, followed by batch norm, or with a bias instead; `activate` adds
    ReLU6."""

    def __init__(self, scope, channels, depth, kernel=1, stride=1, depthwise=False, activate=True, bias=False):
        super().__init__()
        self.scope, self.kernel, self.stride, self.activate, self.depthwise = scope, kernel, stride, activate, depthwise
        self.convolution = nn.Conv2d(channels, depth, kernel, stride, groups=channels if depthwise else 1, bias=bias)
        self.norm = None if bias else nn.BatchNorm2d(depth, eps=EPSILON, momentum=0.003)

    def forward(self, x):
        total = [max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0) for size in x.shape[2:]]
        convolution = self.convolution
        if any(pad % 2 for pad in total):
            top, left = total[0] // 2, total[1] // 2
            x = functional.pad(x, (left, total[1] - left, top, total[0] - top))
            total = [0, 0]
        x = functional.conv2d(x, convolution.weight, convolution.bias, self.stride, (total[0] // 2, total[1] // 2),
                              1, convolution.groups)
        if self.norm is not None:
            x = self.norm(x)
        return functional.relu6(x) if self.activate else x

    def variables(self):
        """Yields (TensorFlow's name, (tensor, axes)) of each variable; `axes` is the order of the tensor's axes in
        TensorFlow."""
        weights = "/depthwise_weights" if self.depthwise else "/weights"
        axes = (2, 3, 0, 1) if self.depthwise else (2, 3, 1, 0)
        yield self.scope + weights, (self.convolution.weight, axes)
        if self.norm is None:
            yield self.scope + "/biases", (self.convolution.bias, (0,))
            return
        norm = self.scope + "/BatchNorm/"
        yield norm + "gamma", (self.norm.weight, (0,))
        yield norm + "beta", (self.norm.bias, (0,))
        yield norm + "moving_mean", (self.norm.running_mean, (0,))
        yield norm + "moving_variance", (self.norm.running_var, (0,))


class Block(nn.Module):
    """An inverted residual block. With `tapped`, forward() also returns the expansion's output."""

    def __init__(self, scope, channels, depth, stride, expansion, tapped):
        super().__init__()
        inner = channels * expansion
        self.expand = Layer(scope + "/expand", channels, inner) if expansion > 1 else None
        self.depthwise = Layer(scope + "/depthwise", inner, inner, 3, stride, depthwise=True)
        self.project = Layer(scope + "/project", inner, depth, activate=False)
        self.skip, self.tapped = stride == 1 and channels == depth, tapped

    def forward(self, x):
        inner = x if self.expand is None else self.expand(x)
        y = self.project(self.depthwise(inner))
        if self.skip:
            y = x + y
        return (y, inner) if self.tapped else y


def v2_body(scope, width, minimum, last_depth):
    """Returns the layers of MobileNetV2 up to its last convolution, and the depths of the two feature maps that a
    detector uses."""
    channels = divisible(32 * width, minimum)
    layers, tap = [Layer(scope + "/Conv", 3, channels, 3, 2)], 0
    index = 0
    for expansion, full, repeats, stride in V2_ROWS:
        for repeat in range(repeats):
            name = scope + "/expanded_conv" + (f"_{index}" if index else "")
            depth = divisible(full * width, minimum)
            if index == 13:
                tap = channels * expansion
            layers.append(Block(name, channels, depth, stride if repeat == 0 else 1, expansion, index == 13))
            channels, index = depth, index + 1
    layers.append(Layer(scope + "/Conv_1", channels, last_depth))
    return layers, [tap, last_depth]


class Classifier(nn.Module):

    def __init__(self, width, classes):
        super().__init__()
        last = max(1280, divisible(1280 * width, 8))
        self.body = nn.Sequential(*v2_body("MobilenetV2", width, 8, last)[0][:-1])
        # Only a detector uses the expansion of block 13 (layer 14).
        self.body[14].tapped = False
        self.last = Layer("MobilenetV2/Conv_1", self.body[-1].project.convolution.out_channels, last)
        self.logits = Layer("MobilenetV2/Logits/Conv2d_1c_1x1", last, classes, activate=False, bias=True)

    def forward(self, x):
        x = self.last(self.body(x)).mean((2, 3), keepdim=True)
        return self.logits(x).flatten(1)

    def loss(self, images, targets):
        return functional.cross_entropy(self(images).float(), targets[0])


class Detector(nn.Module):

    def __init__(self, version, width, classes, size):
        super().__init__()
        self.version, self.classes = version, classes
        depth = lambda full: max(16, int(full * width))
        if version == 2:
            last = divisible(1280 * width, 16)
            layers, maps = v2_body("FeatureExtractor/MobilenetV2", width, 16, last)
            base = "FeatureExtractor/MobilenetV2/layer_19"
        else:
            base = "FeatureExtractor/MobilenetV1/Conv2d_"
            layers = [Layer(base + "0", 3, depth(32), 3, 2)]
            channels = depth(32)
            for i, (full, stride) in enumerate(V1_BLOCKS, start=1):
                layers.append(nn.Sequential(
                    Layer(f"{base}{i}_depthwise", channels, channels, 3, stride, depthwise=True),
                    Layer(f"{base}{i}_pointwise", channels, depth(full))))
                channels = depth(full)
            base, maps = base + "13_pointwise", [depth(512), depth(1024)]
        self.body = nn.ModuleList(layers)
        self.extra = nn.ModuleList()
        channels = maps[-1]
        for i, full in enumerate(EXTRA_DEPTHS, start=2):
            half, out = depth(full / 2), depth(full)
            scope = f"{base}_2_Conv2d_{i}_3x3_s2_{out}"
            spatial = [Layer(scope + "_depthwise", half, half, 3, 2, depthwise=True), Layer(scope, half, out)] \
                if version == 2 else [Layer(scope, half, out, 3, 2)]
            self.extra.append(nn.Sequential(Layer(f"{base}_1_Conv2d_{i}_1x1_{half}", channels, half), *spatial))
            channels = out
            maps.append(out)
        kernel = 3 if version == 2 else 1
        anchors = [3] + [6] * 5
        head = lambda i, kind, columns: Layer(f"BoxPredictor_{i}/{kind}", maps[i], anchors[i] * columns, kernel,
                                              activate=False, bias=True)
        self.boxes = nn.ModuleList(head(i, "BoxEncodingPredictor", 4) for i in range(6))
        self.scores = nn.ModuleList(head(i, "ClassPredictor", classes + 1) for i in range(6))
        sides = [-(-size // 16), -(-size // 32)]
        for _ in EXTRA_DEPTHS:
            sides.append(-(-sides[-1] // 2))
        self.register_buffer("anchors", make_anchors(sides))

    def maps(self, x):
        result = []
        for i, layer in enumerate(self.body):
            x = layer(x)
            if isinstance(x, tuple):
                x, tap = x
                result.append(tap)
            elif self.version == 1 and i == 11:
                result.append(x)
        result.append(x)
        for layer in self.extra:
            x = layer(x)
            result.append(x)
        return result

    def forward(self, x):
        flat = lambda y, columns: y.permute(0, 2, 3, 1).reshape(len(y), -1, columns)
        maps = self.maps(x)
        codes = torch.cat([flat(head(m), 4) for head, m in zip(self.boxes, maps)], 1)
        scores = torch.cat([flat(head(m), self.classes + 1) for head, m in zip(self.scores, maps)], 1)
        return codes.float(), scores.float()

    def loss(self, images, targets):
        return ssd_loss(*self(images), *targets, self.anchors)


def make_anchors(sides):
    """Returns the anchors [A, 4] of feature maps with these sides, as centre y, centre x, height, width, relative to
    the image."""
    scales = [0.2 + (0.95 - 0.2) * i / 5 for i in range(6)] + [1.0]
    result = []
    for i, side in enumerate(sides):
        shapes = [(0.1, 1.0), (scales[0], 2.0), (scales[0], 0.5)] if i == 0 else \
            [(scales[i], ratio) for ratio in (1.0, 2.0, 0.5, 3.0, 0.3333)] + [(math.sqrt(scales[i] * scales[i + 1]), 1.0)]
        for y in range(side):
            for x in range(side):
                result += [((y + 0.5) / side, (x + 0.5) / side, scale / math.sqrt(ratio), scale * math.sqrt(ratio))
                           for scale, ratio in shapes]
    return torch.tensor(result)


def ssd_loss(codes, scores, boxes, labels, anchors):
    """Returns the SSD loss: matching, localization and classification losses, and hard negative mining.

    codes [B, A, 4], scores [B, A, classes + 1], boxes [B, G, 4] as ymin, xmin, ymax, xmax, labels [B, G] from 0,
    anchors [A, 4].
    """
    centre, extent = anchors[:, :2], anchors[:, 2:]
    low, high = centre - extent / 2, centre + extent / 2
    with torch.no_grad():
        overlap = (torch.minimum(boxes[:, :, None, 2:], high) - torch.maximum(boxes[:, :, None, :2], low)).clamp(min=0)
        overlap = overlap.prod(-1)
        area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)[:, :, None] + extent.prod(-1)
        iou = overlap / (area - overlap)
        best, match = iou.max(1)
        forced = iou.argmax(2)
        objects = torch.arange(boxes.shape[1], device=boxes.device).expand_as(forced)
        # If several objects have the same best anchor, the first of them gets it.
        claimed = torch.full_like(match, boxes.shape[1]).scatter_reduce(1, forced, objects, "amin")
        positive = (best >= 0.5) | (claimed < boxes.shape[1])
        match = torch.where(claimed < boxes.shape[1], claimed, match)
        matched = torch.gather(boxes, 1, match[..., None].expand(-1, -1, 4))
        offset = ((matched[..., :2] + matched[..., 2:]) / 2 - centre) / extent
        targets = torch.cat([10 * offset, 5 * torch.log((matched[..., 2:] - matched[..., :2]) / extent)], -1)
        columns = torch.where(positive, torch.gather(labels, 1, match) + 1, torch.zeros_like(match))
        wanted = functional.one_hot(columns, scores.shape[-1]).float()
    localization = functional.smooth_l1_loss(codes, targets, reduction="none").sum(-1) * positive
    classification = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none").sum(-1)
    with torch.no_grad():
        positives = positive.sum(1, keepdim=True)
        negatives = classification.masked_fill(positive, -1.0)
        rank = negatives.argsort(1, descending=True).argsort(1)
        kept = positive | (rank < torch.clamp(3 * positives, min=3))
    return (localization.sum() + (classification * kept).sum()) / positives.sum().clamp(min=1)
