"""Trains Pushpull's own MobileNetV2 together with C++ clones: one job, whose clones compute the same in two languages.

    CONFIG=mobilenet_v2_mnist.config      # of deploy/pipelines
    ps_server --pipeline_config_path=$CONFIG --train_dir=/tmp/mixed
    worker --data_dir=DIR --num_workers=3 --worker_index=0 --num_clones=1
    pushpull worker --num_workers=3 --worker_index=1 --num_clones=1 heterogeneous_mnist.py --data_dir=DIR
    pushpull worker --num_workers=3 --worker_index=2 --num_clones=1 heterogeneous_mnist.py --data_dir=DIR

The server knows this network. `variables` says which of its variables holds which tensor of the PyTorch model. Padding,
epsilon and resizing are TensorFlow's, as in the server's config.
"""
import argparse

import torch
from torch import nn

import pushpull
import pushpull.torch
from mnist_torch import read_idx
from pushpull.torch import CONVOLUTION, DEPTHWISE, ServerVariable

SIDE = 32
# Depth and stride of each block; its input is widened by six, but for the first.
BLOCKS = ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1), (64, 1), (96, 1), (96, 1),
          (96, 1), (160, 2), (160, 1), (160, 1), (320, 1))


def resize(images):
    """Resizes [n, height, width] to [n, SIDE, SIDE] as TensorFlow 1 does, without half-pixel centres."""
    for axis in (1, 2):
        size = images.shape[axis]
        place = torch.arange(SIDE) * (size / SIDE)
        low = place.long()
        weight = (place - low).view([-1 if i == axis else 1 for i in range(3)])
        below, above = images.index_select(axis, low), images.index_select(axis, (low + 1).clamp(max=size - 1))
        images = below + (above - below) * weight
    return images


class Digits(torch.utils.data.Dataset):
    """Images [1, SIDE, SIDE] from -1 to 1, and their labels."""

    def __init__(self, folder, part):
        self.images = read_idx(folder, f"{part}-images-idx3-ubyte")
        self.labels = read_idx(folder, f"{part}-labels-idx1-ubyte").long()

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, indices):
        images = resize(self.images[indices].float()).unsqueeze(1) * (2 / 255) - 1
        return list(zip(images, self.labels[indices]))


class SamePad(nn.Module):
    """Pads as TensorFlow's SAME does for a window of 3 pixels: where an odd pixel is needed, below and on the right."""

    def __init__(self, stride):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        total = [max((-(-size // self.stride) - 1) * self.stride + 3 - size, 0) for size in (x.shape[3], x.shape[2])]
        return nn.functional.pad(x, [part for all_ in total for part in (all_ // 2, all_ - all_ // 2)])


class MobileNetV2(nn.Module):
    """The network of the config. `variables` lists the server's variables in its order."""

    def __init__(self):
        super().__init__()
        self.variables = []
        self.first = self.layer("first", "Conv", 1, 32, 3, stride=2)
        self.blocks = nn.ModuleList()
        depth = 32
        for i, (new_depth, stride) in enumerate(BLOCKS):
            scope = f"expanded_conv_{i}" if i else "expanded_conv"
            inner = 6 * depth if i else depth
            layers = [self.layer(f"blocks.{i}.0", f"{scope}/expand", depth, inner, 1)] if i else []
            layers.append(self.layer(f"blocks.{i}.{len(layers)}", f"{scope}/depthwise", inner, inner, 3, stride, inner))
            layers.append(self.layer(f"blocks.{i}.{len(layers)}", f"{scope}/project", inner, new_depth, 1,
                                     activation=False))
            self.blocks.append(nn.Sequential(*layers))
            depth = new_depth
        self.last = self.layer("last", "Conv_1", depth, 1280, 1)
        self.logits = nn.Conv2d(1280, 10, 1)
        self.variables += [
            ServerVariable("logits.weight", "MobilenetV2/Logits/Conv2d_1c_1x1/weights", CONVOLUTION),
            ServerVariable("logits.bias", "MobilenetV2/Logits/Conv2d_1c_1x1/biases")]

    def layer(self, prefix, scope, inputs, outputs, size, stride=1, groups=1, activation=True):
        """Returns a convolution with batch norm, and notes where the server has its variables."""
        scope = f"MobilenetV2/{scope}"
        weights = (ServerVariable(f"{prefix}.1.weight", f"{scope}/depthwise_weights", DEPTHWISE) if groups > 1 else
                   ServerVariable(f"{prefix}.1.weight", f"{scope}/weights", CONVOLUTION))
        self.variables += [weights] + [
            ServerVariable(f"{prefix}.2.{ours}", f"{scope}/BatchNorm/{theirs}")
            for ours, theirs in (("weight", "gamma"), ("bias", "beta"), ("running_mean", "moving_mean"),
                                 ("running_var", "moving_variance"))]
        return nn.Sequential(SamePad(stride) if size == 3 else nn.Identity(),
                             nn.Conv2d(inputs, outputs, size, stride, groups=groups, bias=False),
                             nn.BatchNorm2d(outputs, eps=0.001, momentum=0.02),
                             nn.ReLU6() if activation else nn.Identity())

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            y = block(x)
            x = x + y if y.shape == x.shape else y
        return self.logits(self.last(x).mean((2, 3), keepdim=True)).flatten(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True, help="has MNIST's four files")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the clone")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    model = MobileNetV2()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    trainer = pushpull.torch.Trainer(pushpull.connect(), model, variables=model.variables)
    for batch in trainer.batches(Digits(flags.data_dir, "train")):
        logits = model(batch.x)
        accuracy = (logits.argmax(1) == batch.y).float().mean()
        trainer.step(criterion(logits, batch.y), samples=len(batch), metrics={"accuracy": accuracy})


if __name__ == "__main__":
    main()
