#!/usr/bin/env python3
"""The kernels of a training step do not become more: each launch costs about 2 us at the end of the kernel before it.

usage: launch_count_test.py BIN_DIR
"""
import collections
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/gpu"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))
import issue_bound  # noqa: E402
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

BIN = pathlib.Path()
# What the networks need now. A number that rises needs a reason here. Since version 10 (kernels/cuda/NOTES.md) two kernels
# write the images with eight channels, and the weights of some layers, which no longer fit beside a ring, are packed.
MOST_LAUNCHES = {"mobilenet_v2": 255, "ssd_mobilenet_v2": 429, "ssd_mobilenet_v1": 307}


class LaunchCountTest(unittest.TestCase):
    def test_a_step_needs_no_more_launches_than_before(self):
        program = BIN / "emulated_gpu_step"
        names = issue_bound.names_in(program)
        for network, most in MOST_LAUNCHES.items():
            with self.subTest(network=network):
                launches = issue_bound.launches_of(network, program, 132, names)
                kernels = collections.Counter(launch.name for launch in launches)
                self.assertGreater(len(launches), 0)
                self.assertLessEqual(len(launches), most, f"by kernel: {kernels.most_common()}")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1))
    main()
