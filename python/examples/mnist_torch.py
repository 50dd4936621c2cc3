"""Trains a small network of MobileNetV2's blocks on MNIST.

    pushpull worker --pipeline_config_path=mnist.config --train_dir=/tmp/mnist --num_clones=3 \\
        mnist_torch.py --data_dir=DIR

DIR has MNIST's four files, such as train-images-idx3-ubyte.gz. mnist.config has the optimizer and the number of steps.
"""
import argparse
import gzip
import pathlib

import numpy
import torch
from torch import nn

import pushpull
import pushpull.torch


def read_idx(folder, name):
    """Reads an IDX file of bytes, gzip or not."""
    path = pathlib.Path(folder) / name
    data = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(name + ".gz").read_bytes())
    shape = numpy.frombuffer(data, ">i4", data[3], offset=4)
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape).copy())


class Digits(torch.utils.data.Dataset):
    """Images of 32x32 pixels from -1 to 1, and their labels."""

    def __init__(self, folder, part):
        self.images = nn.functional.pad(read_idx(folder, f"{part}-images-idx3-ubyte"), (2, 2, 2, 2))
        self.labels = read_idx(folder, f"{part}-labels-idx1-ubyte").long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index].unsqueeze(0) / 127.5 - 1.0, self.labels[index]


def convolution(inputs, outputs, size, stride=1, groups=1, activation=True):
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
              nn.BatchNorm2d(outputs, momentum=0.02)]
    return nn.Sequential(*layers, *([nn.ReLU6()] if activation else []))


class InvertedResidual(nn.Module):
    """MobileNetV2's block: expand, filter each channel, project; with a sum if the shape stays."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.has_sum = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(convolution(inputs, 4 * inputs, 1),
                                    convolution(4 * inputs, 4 * inputs, 3, stride, groups=4 * inputs),
                                    convolution(4 * inputs, outputs, 1, activation=False))

    def forward(self, x):
        return x + self.layers(x) if self.has_sum else self.layers(x)


def make_model():
    blocks = [InvertedResidual(*shape) for shape in
              ((16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))]
    return nn.Sequential(convolution(1, 16, 3, stride=2), *blocks, convolution(64, 256, 1), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(256, 10))


def evaluate(model, digits):
    """Returns the share of the images whose class the model finds."""
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in torch.utils.data.DataLoader(digits, batch_size=500):
            correct += (model(x).argmax(1) == y).sum().item()
    return correct / len(digits)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each clone")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    model = make_model()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    ps = pushpull.connect(model_name="mnist")
    trainer = pushpull.torch.Trainer(ps, model)
    for batch in trainer.batches(Digits(flags.data_dir, "train")):
        logits = model(batch.x)
        accuracy = (logits.argmax(1) == batch.y).float().mean()
        trainer.step(criterion(logits, batch.y), samples=len(batch), metrics={"accuracy": accuracy})
    if ps.clone == 0:
        print(f"accuracy on the test images: {evaluate(model, Digits(flags.data_dir, 't10k')):.4f}")


if __name__ == "__main__":
    main()
