#!/usr/bin/env python3
"""The kernels of a training step do not become more: each launch costs about 2 us at the end of the kernel before it.

usage: launch_count_test.py BIN_DIR
"""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

BIN = pathlib.Path()
# What the networks need now. A number that rises needs a reason here. Since version 10 (kernels/cuda/NOTES.md) two kernels
# write the images with eight channels, and the weights of some layers, which no longer fit beside a ring, are packed.
MOST_LAUNCHES = {"mobilenet_v2": 255, "ssd_mobilenet_v2": 429, "ssd_mobilenet_v1": 307}


def kernels_of(network):
    """Returns the names of the kernels that a training step launches, in order, as the emulation of CUDA lists them."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "launches")
        subprocess.run([BIN / "emulated_gpu_step", f"--networks={network}", "--steps=1", "--repeats=1", "--table=none",
                        "--losses=0", "--bandwidth=1"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "PUSHPULL_EMULATED_MULTIPROCESSORS": "132",
                            "PUSHPULL_EMULATED_MEMORY_MB": "1000000", "PUSHPULL_EMULATED_LAUNCHES": str(file)})
        return [line.split("\t")[0] for line in file.read_text().splitlines()]


class LaunchCountTest(unittest.TestCase):
    def test_a_step_needs_no_more_launches_than_before(self):
        for network, most in MOST_LAUNCHES.items():
            with self.subTest(network=network):
                kernels = kernels_of(network)
                self.assertGreater(len(kernels), 0)
                self.assertLessEqual(len(kernels), most, f"by kernel: {collections.Counter(kernels).most_common()}")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1))
    main()
