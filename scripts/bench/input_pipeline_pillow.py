"""Compares the input pipeline with Pillow and numpy, both on one thread and alternating; prints the rates and the
median of their ratios."""
import argparse
import pathlib
import random
import re
import statistics
import subprocess
import time

import numpy
import PIL
from PIL import Image

SMALLEST_CROP = 0.3  # smallest share of a side that a crop keeps, as in ssd_random_crop


def load(path, size, generator):
    """Returns a randomly cropped and flipped image for a training step: [size, size, 3] floats in [-1, 1]."""
    image = Image.open(path).convert("RGB")
    width = generator.uniform(SMALLEST_CROP, 1.0) * image.width
    height = generator.uniform(SMALLEST_CROP, 1.0) * image.height
    left = generator.uniform(0.0, image.width - width)
    top = generator.uniform(0.0, image.height - height)
    image = image.resize((size, size), Image.BILINEAR, box=(left, top, left + width, top + height))
    if generator.random() < 0.5:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
    return numpy.asarray(image, dtype=numpy.float32) * (2.0 / 255.0) - 1.0


def pillow_rate(paths, options):
    """Returns the images per second of Pillow and numpy."""
    generator = random.Random(1)
    batch = numpy.empty((options.batch, options.size, options.size, 3), numpy.float32)
    begin, images = time.perf_counter(), 0
    while time.perf_counter() - begin < options.seconds:
        for i in range(options.batch):
            batch[i] = load(generator.choice(paths), options.size, generator)
        images += options.batch
    return images / (time.perf_counter() - begin)


def our_rate(options):
    """Returns the images per second of Pushpull's input pipeline."""
    output = subprocess.run(
        [options.binary, f"--voc={options.voc}", f"--label_map={options.label_map}", f"--split={options.split}",
         f"--size={options.size}", f"--batch={options.batch}", f"--seconds={options.seconds}", "--threads=1"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(re.match(r"([0-9.]+) images/s", output).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--voc", type=pathlib.Path, required=True)
    parser.add_argument("--label_map", required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    names = (options.voc / "ImageSets" / "Main" / f"{options.split}.txt").read_text().split()
    paths = [options.voc / "JPEGImages" / f"{name}.jpg" for name in names]
    runs = [(our_rate(options), pillow_rate(paths, options)) for _ in range(options.repeats)]
    ours, theirs = (statistics.median(column) for column in zip(*runs))
    ratio = statistics.median(a / b for a, b in runs)
    print(f"{options.size}x{options.size}, one thread, {len(paths)} images of {Image.open(paths[0]).size}: ours {ours:.0f} "
          f"images/s, Pillow {PIL.__version__} {theirs:.0f} images/s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
