#!/usr/bin/env python3
"""Tests of the PyTorch side of gpu_step on the CPU, with small networks. usage: gpu_step_torch_test.py SOURCE_DIR

The first loss of each network must equal the loss in tests/golden, which another implementation computed in float64.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
sys.dont_write_bytecode = True
try:
    import numpy
    import torch
except ImportError:
    print("skipped: no PyTorch for", sys.executable)
    sys.exit(SKIPPED)
sys.path.insert(0, str(ROOT / "tests" / "reference"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))
from golden_file import uniform  # noqa: E402  pylint: disable=wrong-import-position
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

# The cases of tests/reference. Each image needs the same number of objects here, so one object is listed twice.
CLASSIFIER = dict(net="mobilenet_v2", golden="mobilenet_v2_035_rgb32", width=0.35, size=32, classes=10, batch=4)
DETECTORS = [
    dict(net="ssd_mobilenet_v1", golden="ssd_mobilenet_v1_025_75", width=0.25, size=75, classes=3, batch=2),
    dict(net="ssd_mobilenet_v2", golden="ssd_mobilenet_v2_035_75", width=0.35, size=75, classes=3, batch=2),
]
BOXES = [[[0.1, 0.1, 0.5, 0.45], [0.5, 0.3, 0.9, 0.95]], [[0.05, 0.02, 0.97, 0.99]] * 2]
BOX_LABELS = [[0, 2], [1, 1]]
# Enough for a loss to fall on any processor: in the first ten steps it jumps, and rounding decides which way.
STEPS = 24


def golden_loss(case):
    for line in (ROOT / "tests" / "golden" / (case["golden"] + ".txt")).read_text().splitlines():
        if line.startswith("loss "):
            return float(line.split()[1])
    raise AssertionError("no loss in the golden file")


def golden_variables(case):
    names = []
    for line in (ROOT / "tests" / "golden" / (case["golden"] + ".txt")).read_text().splitlines():
        if "/" in line.split()[0]:
            names.append(line.split()[0])
    return names


def golden_values(name, shape):
    """Returns the values that tests/reference/golden_file.py gives this variable."""
    kind = name.rsplit("/", 1)[1]
    fan_in = numpy.prod(shape[:3]) if kind == "weights" else numpy.prod(shape[:2])
    centre, radius = {"weights": (0.0, (6.0 / fan_in)**0.5), "depthwise_weights": (0.0, (6.0 / fan_in)**0.5),
                      "biases": (0.0, 0.1), "gamma": (1.0, 0.3), "beta": (0.3, 0.3), "moving_mean": (0.0, 0.2),
                      "moving_variance": (1.0, 0.5)}[kind]
    return centre + radius * uniform(name, int(numpy.prod(shape))).reshape(shape)


class Child:
    """A gpu_step_torch.py process."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "bench" / "gpu_step_torch.py"), "--device=cpu", *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()


def start(case):
    return Child(f"--width={case['width']}", f"--size={case['size']}", f"--classes={case['classes']}")


def write_case(child, case, path, **changes):
    """Writes the golden variables, images and targets of a case to a FILE, with some tensors added or replaced."""
    shapes = child.ask("variables " + case["net"])["variables"]
    tensors = {name: golden_values(name, shape) for name, shape in shapes.items()}
    images = (case["batch"], case["size"], case["size"], 3)
    tensors["images"] = uniform("images", int(numpy.prod(images))).reshape(images)
    if case["net"] == "mobilenet_v2":
        tensors["labels"] = numpy.array([(3 * i + 1) % case["classes"] for i in range(case["batch"])])
    else:
        tensors["boxes"], tensors["box_labels"] = numpy.array(BOXES), numpy.array(BOX_LABELS)
    tensors.update(changes)
    header = {"size": case["size"], "classes": case["classes"], "learning_rate": 1e-3, "momentum": 0.9,
              "tensors": [{"name": name, "shape": list(value.shape)} for name, value in tensors.items()]}
    with open(path, "wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        for value in tensors.values():
            file.write(value.astype("<f4").tobytes())


class GpuStepTorch(unittest.TestCase):

    def test_losses_begin_at_the_golden_value_and_fall(self):
        for case in [CLASSIFIER, *DETECTORS]:
            with self.subTest(case["golden"]), start(case) as child, tempfile.TemporaryDirectory() as folder:
                self.assertEqual(sorted(child.ask("variables " + case["net"])["variables"]),
                                 sorted(golden_variables(case)))
                path = pathlib.Path(folder) / "start.bin"
                write_case(child, case, path)
                losses = child.ask(f"losses {case['net']} {STEPS} {path}")["losses"]
                self.assertEqual(len(losses), STEPS)
                self.assertAlmostEqual(losses[0] / golden_loss(case), 1.0, delta=1e-4)
                self.assertLess(losses[-1], losses[0])
                self.assertEqual(losses, child.ask(f"losses {case['net']} {STEPS} {path}")["losses"])
                write_case(child, case, path, images=numpy.zeros((case["batch"], case["size"], case["size"], 3)))
                other = child.ask(f"losses {case['net']} 1 {path}")["losses"]
                self.assertGreater(abs(other[0] / golden_loss(case) - 1.0), 1e-3)

    def test_runs_are_timed(self):
        for case in [CLASSIFIER, *DETECTORS]:
            with self.subTest(case["net"]), start(case) as child:
                for optimizer in ("none", "momentum"):
                    result = child.ask(f"run {case['net']} 2 eager {optimizer} 5")
                    self.assertNotIn("error", result)
                    self.assertGreater(result["images_per_s"], 0)
                    self.assertAlmostEqual(result["images_per_s"] * result["ms"], 2e3, delta=1e-3)
                    self.assertTrue(numpy.isfinite(result["loss"]))

    def test_profile_lists_the_operators_slowest_first(self):
        with start(CLASSIFIER) as child:
            one, two = (child.ask(f"profile mobilenet_v2 2 eager none {steps}")["kernels"] for steps in (1, 2))
        for kernels in (one, two):
            times = [kernel["ms"] for kernel in kernels]
            self.assertEqual(times, sorted(times, reverse=True))
            self.assertGreater(times[0], 0)
        # The network has 53 convolutions. Figures are per step, however many steps are recorded.
        calls = [{kernel["name"]: kernel["calls"] for kernel in kernels} for kernels in (one, two)]
        self.assertEqual(calls[0]["aten::conv2d"], 53)
        self.assertEqual(calls[0]["aten::conv2d"], calls[1]["aten::conv2d"])

    def test_errors_name_the_problem(self):
        with start(CLASSIFIER) as child, tempfile.TemporaryDirectory() as folder:
            self.assertIn("no network is called resnet", child.ask("run resnet 2 eager none 5")["error"])
            self.assertIn("no mode is called fast", child.ask("run mobilenet_v2 2 fast none 5")["error"])
            self.assertIn("no optimizer is called adam", child.ask("run mobilenet_v2 2 eager adam 5")["error"])
            self.assertIn("no request is called walk", child.ask("walk")["error"])
            self.assertIn("error", child.ask("run mobilenet_v2"))
            path = pathlib.Path(folder) / "start.bin"
            write_case(child, CLASSIFIER, path, extra=numpy.zeros(3))
            self.assertIn("does not have the variables of mobilenet_v2; they differ in extra",
                          child.ask(f"losses mobilenet_v2 1 {path}")["error"])
            write_case(child, CLASSIFIER, path)
            path.write_bytes(path.read_bytes()[:-2])
            self.assertIn("ends within labels", child.ask(f"losses mobilenet_v2 1 {path}")["error"])
            self.assertIn("torch", child.ask("info"))


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
