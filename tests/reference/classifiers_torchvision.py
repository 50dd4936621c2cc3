#!/usr/bin/env python3
"""Computes golden values of classifiers with torchvision's networks: python3 classifiers_torchvision.py [FOLDER]

Writes one file per case into tests/golden (or FOLDER), as golden_file.py says. An image of 33 x 33 pixels has an odd
size at every stride of MobileNetV3, so that torchvision's symmetric padding is TensorFlow's SAME.
"""
import numpy
import torch
import torch.nn.functional as functional
import torchvision

import golden_file
from golden_file import CLASSES, uniform

BATCH = 3


def mobilenet_v3_layers(model):
    """Yields the scope of each convolution, its module and the module of its batch norm, or None."""
    yield "Conv", model.features[0][0], model.features[0][1]
    for index, block in enumerate(model.features[1:-1]):
        scope = "expanded_conv" + (f"_{index}" if index else "")
        parts = list(block.block)
        names = ["depthwise", "project"] if parts[0][0].groups > 1 else ["expand", "depthwise", "project"]
        for part in parts:
            if isinstance(part, torchvision.ops.SqueezeExcitation):
                yield scope + "/squeeze_excite/Conv", part.fc1, None
                yield scope + "/squeeze_excite/Conv_1", part.fc2, None
            else:
                yield f"{scope}/{names.pop(0)}", part[0], part[1]
    yield "Conv_1", model.features[-1][0], model.features[-1][1]
    yield "Conv_2", model.classifier[0], None
    yield "Logits/Conv2d_1c_1x1", model.classifier[3], None


def resnet_layers(model):
    """The same for a ResNet."""
    yield "conv1", model.conv1, model.bn1
    for block, units in enumerate((model.layer1, model.layer2, model.layer3, model.layer4)):
        for index, unit in enumerate(units):
            scope = f"block{block + 1}/unit_{index + 1}/bottleneck_v1"
            for number in (1, 2, 3):
                yield f"{scope}/conv{number}", getattr(unit, f"conv{number}"), getattr(unit, f"bn{number}")
            if unit.downsample is not None:
                yield scope + "/shortcut", unit.downsample[0], unit.downsample[1]
    yield "logits", model.fc, None


class NarrowResnet(torchvision.models.ResNet):
    """A ResNet of bottlenecks of a quarter of the width."""

    def __init__(self, units):
        super().__init__(torchvision.models.resnet.Bottleneck, units, num_classes=CLASSES)
        self.fc = torch.nn.Linear(512, CLASSES)

    def _make_layer(self, block, planes, *arguments, **keywords):
        if planes == 64:  # the first block, which reads the first convolution
            self.inplanes = 16
            self.conv1 = torch.nn.Conv2d(3, 16, kernel_size=7, stride=2, padding=3, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(16)
        return super()._make_layer(block, planes // 4, *arguments, **keywords)


def narrow_vgg_11(side):
    """Returns a VGG-11 of a quarter of the width, whose last map has `side` pixels on each side."""
    layers = torchvision.models.vgg.make_layers([16, "M", 32, "M", 64, 64, "M", 128, 128, "M", 128, 128, "M"])
    model = torchvision.models.vgg.VGG(layers, num_classes=CLASSES, dropout=0.0)
    model.avgpool = torch.nn.Identity()  # its weights are those of a map of 7 x 7 pixels
    model.classifier[0] = torch.nn.Linear(side * side * 128, 1024)
    model.classifier[0].side = side
    model.classifier[3] = torch.nn.Linear(1024, 1024)
    model.classifier[6] = torch.nn.Linear(1024, CLASSES)
    return model


def vgg_11_layers(model):
    """The same for a VGG-11."""
    convolutions = [module for module in model.features if isinstance(module, torch.nn.Conv2d)]
    names = ["conv1/conv1_1", "conv2/conv2_1"] + [f"conv{i}/conv{i}_{j}" for i in (3, 4, 5) for j in (1, 2)]
    for name, convolution in zip(names, convolutions, strict=True):
        yield name, convolution, None
    for name, index in (("fc6", 0), ("fc7", 3), ("fc8", 6)):
        yield name, model.classifier[index], None


# Name of the file, network, size of the images, scope of the variables, its layers.
CASES = [
    ("mobilenet_v3_large_rgb33", lambda: torchvision.models.mobilenet_v3_large(num_classes=CLASSES, dropout=0.0), 33,
     "MobilenetV3", mobilenet_v3_layers),
    ("mobilenet_v3_small_rgb33", lambda: torchvision.models.mobilenet_v3_small(num_classes=CLASSES, dropout=0.0), 33,
     "MobilenetV3", mobilenet_v3_layers),
    ("resnet_v1_50_rgb36", lambda: torchvision.models.resnet50(num_classes=CLASSES), 36, "resnet_v1_50", resnet_layers),
    ("resnet_v1_101_025_rgb36", lambda: NarrowResnet([3, 4, 23, 3]), 36, "resnet_v1_101", resnet_layers),
    ("resnet_v1_152_025_rgb36", lambda: NarrowResnet([3, 8, 36, 3]), 36, "resnet_v1_152", resnet_layers),
    ("vgg_a_025_rgb70", lambda: narrow_vgg_11(2), 70, "vgg_a", vgg_11_layers),
]


class Variables:
    """The parameters of a model by TensorFlow's names, and how each is turned into TensorFlow's shape."""

    def __init__(self, prefix, layers):
        self.rows = {}
        self.norms = {}
        for scope, convolution, norm in layers:
            scope = f"{prefix}/{scope}"
            weight = convolution.weight
            if weight.dim() == 2:
                # A layer that reads a map reads it channel by channel, TensorFlow's pixel by pixel.
                side = getattr(convolution, "side", 1)
                self.add(scope + "/weights", weight,
                         lambda w, side=side: w.reshape(len(w), -1, side, side).permute(2, 3, 1, 0), weight.shape[1])
            elif convolution.groups > 1:
                area = weight.shape[2] * weight.shape[3]
                self.add(scope + "/depthwise_weights", weight, lambda w: w.permute(2, 3, 0, 1), area)
            else:
                fan_in = weight.shape[1] * weight.shape[2] * weight.shape[3]
                self.add(scope + "/weights", weight, lambda w: w.permute(2, 3, 1, 0), fan_in)
            if norm is None:
                self.add(scope + "/biases", convolution.bias, None, centre=0.0, radius=0.1)
                continue
            self.add(scope + "/BatchNorm/gamma", norm.weight, None, centre=1.0, radius=0.3)
            self.add(scope + "/BatchNorm/beta", norm.bias, None, centre=0.3, radius=0.3)
            self.add(scope + "/BatchNorm/moving_mean", norm.running_mean, None, centre=0.0, radius=0.2)
            self.add(scope + "/BatchNorm/moving_variance", norm.running_var, None, centre=1.0, radius=0.5)
            self.norms[scope] = norm

    def add(self, name, tensor, to_tensorflow, fan_in=0, centre=0.0, radius=0.0):
        identity = lambda value: value
        self.rows[name] = (tensor, to_tensorflow or identity)
        if fan_in:
            radius = (6.0 / fan_in) ** 0.5
        shape = (to_tensorflow or identity)(tensor.detach()).shape
        values = torch.tensor((centre + radius * uniform(name, tensor.numel())).reshape(shape))
        with torch.no_grad():
            if to_tensorflow is None:
                tensor.copy_(values)
            elif tensor.dim() == 2:
                tensor.copy_(values.permute(3, 2, 0, 1).reshape(tensor.shape))
            elif name.endswith("depthwise_weights"):
                tensor.copy_(values.permute(2, 3, 0, 1))
            else:
                tensor.copy_(values.permute(3, 2, 0, 1))


def write_case(file, build, size, scope, layers):
    model = build().double()
    variables = Variables(scope, layers(model))
    # The batch's mean and unbiased variance, as running statistics without a history.
    before = {name: row[0].clone() for name, row in variables.rows.items() if "moving" in name}
    for norm in variables.norms.values():
        norm.momentum = 1.0
        norm.eps = float(numpy.float32(0.001))  # the default of our config, in single precision
    images, labels = golden_file.make_images(BATCH, size), golden_file.make_labels(BATCH)
    model.train()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    statistics = {name: variables.rows[name][0].clone() for name in before}
    for name, value in before.items():
        variables.rows[name][0].copy_(value)
    model.eval()
    with torch.no_grad():
        evaluated = functional.cross_entropy(model(images), labels)
    golden_file.write(file, loss, evaluated,
                      {name: statistics[name] if name in statistics else to_tensorflow(tensor.grad)
                       for name, (tensor, to_tensorflow) in variables.rows.items()})


if __name__ == "__main__":
    for case in CASES:
        write_case(*case)
