"""Compares the input pipeline with Pillow, and with torchvision where this Python has it. All work on one thread, in
turns; the rates and the medians of their ratios are printed, once for whole images and once for cropped ones."""
import argparse
import pathlib
import random
import re
import statistics
import subprocess
import time

import numpy
import PIL
from PIL import Image, features

try:
    import torch
    import torchvision
    from torchvision.transforms.v2 import functional
except ImportError:
    torchvision = None

SMALLEST_CROP = 0.3  # smallest share of a side that a crop keeps, as in ssd_random_crop


def crop_window(width, height, generator):
    """Returns the left, upper, right and lower edge of a random crop, in pixels."""
    crop_width = generator.uniform(SMALLEST_CROP, 1.0) * width
    crop_height = generator.uniform(SMALLEST_CROP, 1.0) * height
    left = generator.uniform(0.0, width - crop_width)
    top = generator.uniform(0.0, height - crop_height)
    return left, top, left + crop_width, top + crop_height


class Pillow:
    """Pillow and numpy. `draft` lets libjpeg reduce an image that is at least twice the input."""
    name = f"Pillow {PIL.__version__} (libjpeg-turbo {features.version('libjpeg_turbo')})"

    def __init__(self, batch, size):
        self.batch = numpy.empty((batch, size, size, 3), numpy.float32)
        self.size = size

    def load(self, i, path, generator):
        """Writes image i of the batch: [size, size, 3] floats in [-1, 1]; cropped and flipped with a generator."""
        image = Image.open(path)
        if generator is None:
            image.draft("RGB", (self.size, self.size))
        image = image.convert("RGB")
        box = None if generator is None else crop_window(image.width, image.height, generator)
        image = image.resize((self.size, self.size), Image.BILINEAR, box=box)
        if generator is not None and generator.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        numpy.multiply(numpy.asarray(image), numpy.float32(2.0 / 255.0), out=self.batch[i])
        self.batch[i] -= 1.0


class Torchvision:
    """torchvision's JPEG reader and its resize of bytes; `antialias` as Pillow resizes, without it as we do."""

    def __init__(self, batch, size, antialias):
        torch.set_num_threads(1)
        self.name = f"torchvision {torchvision.__version__}{'' if antialias else ' without antialias'}"
        self.batch = torch.empty((batch, 3, size, size))
        self.size = size
        self.antialias = antialias

    def load(self, i, path, generator):
        """As Pillow.load, but [3, size, size]."""
        image = torchvision.io.decode_jpeg(torchvision.io.read_file(str(path)), torchvision.io.ImageReadMode.RGB)
        if generator is not None:
            height, width = image.shape[1:]
            left, top, right, bottom = (round(edge) for edge in crop_window(width, height, generator))
            image = image[:, top:bottom, left:right]
        image = functional.resize(image, [self.size, self.size], antialias=self.antialias)
        if generator is not None and generator.random() < 0.5:
            image = functional.horizontal_flip(image)
        self.batch[i].copy_(image).mul_(2.0 / 255.0).sub_(1.0)


def rate_of(way, paths, crop, options):
    """Returns the images per second of Pillow or torchvision."""
    order = random.Random(1)
    generator = random.Random(2) if crop else None
    begin, images = time.perf_counter(), 0
    while time.perf_counter() - begin < options.seconds:
        for i in range(options.batch):
            way.load(i, order.choice(paths), generator)
        images += options.batch
    return images / (time.perf_counter() - begin)


def our_rate(crop, options):
    """Returns the images per second of Pushpull's input pipeline."""
    output = subprocess.run(
        [options.binary, f"--voc={options.voc}", f"--label_map={options.label_map}", f"--split={options.split}",
         f"--size={options.size}", f"--batch={options.batch}", f"--seconds={options.seconds}", "--threads=1",
         f"--augment={str(crop).lower()}"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(re.match(r"([0-9.]+) images/s", output).group(1))


def compare(crop, ways, paths, options):
    """Measures ours and the other ways in turns and prints a line for each."""
    ours, rates, ratios = [], [[] for _ in ways], [[] for _ in ways]
    for _ in range(options.repeats):
        ours.append(our_rate(crop, options))
        for i, way in enumerate(ways):
            rates[i].append(rate_of(way, paths, crop, options))
            ratios[i].append(ours[-1] / rates[i][-1])
    print(f"{'cropped and flipped' if crop else 'whole images'}: ours {statistics.median(ours):.0f} images/s")
    for i, way in enumerate(ways):
        print(f"  {way.name}: {statistics.median(rates[i]):.0f} images/s, ratio {statistics.median(ratios[i]):.2f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--voc", type=pathlib.Path, required=True)
    parser.add_argument("--label_map", required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    names = (options.voc / "ImageSets" / "Main" / f"{options.split}.txt").read_text().split()
    paths = [options.voc / "JPEGImages" / f"{name}.jpg" for name in names]
    ways = [Pillow(options.batch, options.size)]
    if torchvision is not None:
        ways += [Torchvision(options.batch, options.size, antialias) for antialias in (True, False)]
    print(f"{options.size}x{options.size}, one thread, {len(paths)} images of {Image.open(paths[0]).size}")
    for crop in (False, True):
        compare(crop, ways, paths, options)


if __name__ == "__main__":
    main()
