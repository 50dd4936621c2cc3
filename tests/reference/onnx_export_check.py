#!/usr/bin/env python3
"""Compares exported models in ONNX Runtime and OpenCV's DNN with our programs.

usage: python3 onnx_export_check.py [--bin_dir=DIR] [--images=21] [--steps=30] [KIND...]

Trains a small model of each kind for a few steps on drawn shapes (or takes --run=KIND:TRAIN_DIR) and exports it. The
kinds are the types of common/config/model_types.h and a few variants. With a detector, ONNX Runtime on the full model is
compared with the output of `detect`, image by image; with a classifier, with the evaluator's accuracy and loss. The
model with raw heads is compared with the full one, in ONNX Runtime and in OpenCV. Needs onnx, onnxruntime,
opencv-python-headless, numpy and pillow from PyPI. Prints lines per comparison; the exit code is 1 if one exceeds its
tolerance.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import cv2
import numpy
import onnx
import onnxruntime
from PIL import Image, ImageDraw

import onnx_raw_heads as raw_heads
from onnx_export_configs import KINDS, PADDED, ROOT, config_of, is_detector, replace

TOLERANCE = 1e-3
SIZES = [(96, 96), (120, 160), (200, 150), (75, 60), (97, 131), (46, 230), (211, 57)]  # height, width
# Kinds whose other weights and post-processing are compared too.
THOROUGH = ["ssd_mobilenet_v1", "ssd_mobilenet_v2", "ssdlite_mobilenet_v2", "ssd_mobilenet_v2" + PADDED, "mobilenet_v2",
            "mobilenet_v2" + PADDED]


def train(text, folder):
    """Trains with the config `text` and returns the train_dir."""
    from harness import Process
    folder.mkdir(parents=True)
    (folder / "job.config").write_text(text)
    address = f"unix:{folder / 'ps.sock'}"
    server = Process(folder / "server.log", "ps_server", f"--pipeline_config_path={folder / 'job.config'}",
                     f"--train_dir={folder / 'run'}", f"--listen={address}", f"--state_dir={folder / 'state'}")
    worker = Process(folder / "worker.log", "worker", f"--ps={address}", "--num_clones=2")
    try:
        for process in (worker, server):
            if process.wait(3600) != 0:
                raise RuntimeError(process.text())
    finally:
        worker.end()
        server.end()
    return folder / "run"


def draw_images(folder, count, seed=5):
    """Draws shapes with the colours and sizes of the training scenes on noise. Returns the paths of the images."""
    random = numpy.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(count):
        height, width = SIZES[i % len(SIZES)]
        level = random.integers(20, 120)
        noise = random.integers(0, 40, size=(height, width, 3)) + level
        image = Image.fromarray(noise.astype(numpy.uint8))
        pen = ImageDraw.Draw(image)
        for _ in range(random.integers(1, 4)):
            size = random.integers(14, min(height, width) // 2)
            x, y = random.integers(0, width - size), random.integers(0, height - size)
            colour = tuple(int(v) for v in random.integers(120, 256, size=3))
            shape = random.integers(3)
            if shape == 0:
                pen.ellipse([x, y, x + size, y + size], fill=colour)
            elif shape == 1:
                pen.rectangle([x, y, x + size, y + size], fill=colour)
            else:
                pen.polygon([(x, y + size), (x + size / 2, y), (x + size, y + size)], fill=colour)
        paths.append(folder / f"{i:03d}.png")
        image.save(paths[-1])
    return paths


def variant_of(run, folder, *pairs):
    """Makes a train_dir with the same checkpoints and a changed pipeline.config, and returns it."""
    folder.mkdir(parents=True)
    for path in run.glob("ckpt-*"):
        (folder / path.name).symlink_to(path.resolve())
    (folder / "pipeline.config").write_text(replace((run / "pipeline.config").read_text(), *pairs))
    return folder


def call(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def make_session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def export(binaries, run, output):
    """Exports the newest checkpoint, checks the model, and returns a session of ONNX Runtime."""
    call(binaries / "exporter", f"--checkpoint_dir={run}", f"--output={output}", "--log_level=error")
    model = onnx.load(output)
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, model.opset_import[0].version) == (7, 13)
    return make_session(output)


def pixels(path):
    return numpy.asarray(Image.open(path).convert("RGB"))[None]


def overlap(a, b):
    """Returns the intersection over union of two boxes."""
    height, width = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    shared = max(height, 0) * max(width, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


class Differences:
    """Counts the differences between lists of detections (class, score, box), which are matched by class, score and box.

    A detection that only one side has counts as a tie if rounding explains it, otherwise as missing. Rounding explains
    it in two cases. Its score may be within the tolerance of the lowest score, where the lists are cut off. Or the other
    side has a box of the same class that suppresses it, and rounding decides about that: their overlap equals the
    threshold, or their scores are equal, or only one side has the suppressing box.
    """

    def __init__(self, iou_threshold):
        self.iou_threshold = iou_threshold
        self.boxes = self.scores = 0.0
        self.matched = self.ties = self.missing = 0
        self.seen = []

    def add(self, ours, theirs):
        last = min([score for _, score, _ in ours + theirs], default=0.0)
        left, alone = list(theirs), []
        for mine in ours:
            label, score, box = mine
            best = min((t for t in left if t[0] == label and abs(t[1] - score) < TOLERANCE),
                       key=lambda t: numpy.abs(t[2] - box).max(), default=None)
            if best is None or numpy.abs(best[2] - box).max() >= TOLERANCE:
                alone.append(mine)
                continue
            left = [t for t in left if t is not best]
            self.matched += 1
            self.seen.append(score)
            self.boxes = max(self.boxes, float(numpy.abs(best[2] - box).max()))
            self.scores = max(self.scores, abs(best[1] - score))
        for mine, others, their_alone in [(m, theirs, left) for m in alone] + [(t, ours, alone) for t in left]:
            if mine[1] < last + TOLERANCE or any(self.may_suppress(other, mine, their_alone) for other in others):
                self.ties += 1
            else:
                self.missing += 1
                print(f"     only one side has class {mine[0]}, score {mine[1]:.5f}, box {mine[2]}")

    def may_suppress(self, other, mine, alone):
        """Returns whether `other` may suppress `mine` because of rounding. `alone` lists the detections that only the
        side of `other` has."""
        if other[0] != mine[0] or other[1] < mine[1] - TOLERANCE:
            return False
        above = overlap(other[2], mine[2]) - self.iou_threshold
        rounded = abs(other[1] - mine[1]) < TOLERANCE or any(other is one for one in alone)
        return abs(above) < TOLERANCE or (above > 0 and rounded)


def detections_of(outputs, i):
    """Returns the detections of image i in the outputs of a model as (class, score, box)."""
    boxes, scores, classes, number = (outputs[k][i] for k in range(4))
    count = int(number)
    assert (scores[count:] == 0).all() and (boxes[count:] == 0).all() and (classes[count:] == 1).all()
    return [(int(classes[k]), float(scores[k]), boxes[k]) for k in range(count)]


def check_detector(name, binaries, run, images, folder):
    """Compares a detector with `detect`. Prints a line and returns whether the results agree."""
    session = export(binaries, run, folder / f"{name}.onnx")
    names = ["detection_boxes", "detection_scores", "detection_classes", "num_detections", "raw_detection_boxes",
             "raw_detection_scores"]
    printed = call(binaries / "detect", f"--checkpoint_dir={run}", f"--output_dir={folder / 'drawn'}", "--min_score=0",
                   "--max_boxes=100000", "--log_level=error", *images)
    config = (run / "pipeline.config").read_text()
    differences = Differences(float(re.search(r"batch_non_max_suppression \{[^}]*iou_threshold: (\S+)", config)[1]))
    single = {}
    for path, line in zip(images, printed.splitlines()):
        ours = json.loads(line)
        edges = numpy.array([ours["height"], ours["width"]] * 2, numpy.float64)
        ours = [(d["class"], d["score"],
                 numpy.array([d["box"][k] for k in ("ymin", "xmin", "ymax", "xmax")]) / edges) for d in ours["detections"]]
        outputs = session.run(names, {"image_tensor": pixels(path)})
        assert numpy.isfinite(outputs[4]).all() and outputs[4].shape[1] == outputs[5].shape[1]
        single[path] = outputs
        differences.add(ours, detections_of(outputs, 0))
    # A batch must give the same results as its images one by one.
    same_size = images[::len(SIZES)]
    batch = session.run(names, {"image_tensor": numpy.concatenate([pixels(path) for path in same_size])})
    apart = max(float(numpy.abs(batch[k][i] - single[path][k][0]).max())
                for i, path in enumerate(same_size) for k in (1, 3, 4, 5))
    quantiles = numpy.quantile(differences.seen, [0.5, 0.9, 1.0]) if differences.seen else [0, 0, 0]
    ok = differences.missing == 0 and differences.matched > 10 * len(images) and apart < 1e-4
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {len(images)} images, {differences.matched} detections matched, "
          f"{differences.ties} ties, {differences.missing} missing; largest difference of boxes {differences.boxes:.1e}, "
          f"of scores {differences.scores:.1e}; scores median {quantiles[0]:.3f}, 90 % {quantiles[1]:.3f}, "
          f"largest {quantiles[2]:.3f}; batch against single {apart:.1e}", flush=True)
    return ok


def check_classifier(name, binaries, run, images, folder):
    """Compares a classifier with the evaluator. Prints a line and returns whether the results agree."""
    session = export(binaries, run, folder / f"{name}.onnx")
    for label in range(4):
        (folder / "images" / str(label)).mkdir(parents=True, exist_ok=True)
    losses, hits = [], 0
    for i, path in enumerate(images):
        label = i % 4
        target = folder / "images" / str(label) / path.name
        target.write_bytes(path.read_bytes())
        logits, probabilities = session.run(["logits", "probabilities"], {"input": pixels(path)})
        row = logits[0].astype(numpy.float64)
        losses.append(float(numpy.log(numpy.exp(row - row.max()).sum()) + row.max() - row[label]))
        hits += int(row.argmax() == label)
        assert abs(probabilities[0][label] - numpy.exp(-losses[-1])) < 1e-5
    ours = json.loads(call(binaries / "evaluator", "--run_once", f"--checkpoint_dir={run}", f"--data_dir={folder}",
                           f"--eval_dir={folder / 'eval'}", "--log_level=error"))
    loss, accuracy = float(numpy.mean(losses)), hits / len(losses)
    apart = abs(loss - ours["loss"]) / ours["loss"]
    ok = apart < 1e-4 and abs(accuracy - ours["accuracy"]) < 1e-6 and numpy.std(losses) > 1e-3
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {len(losses)} images, accuracy {accuracy:.4f} and {ours['accuracy']:.4f}, "
          f"loss {loss:.6f} and {ours['loss']:.6f} ({apart:.1e} apart, spread {numpy.std(losses):.2f})", flush=True)
    return ok


def check_raw_heads(name, binaries, run, images, folder):
    """Compares the model with raw heads with the full one of the same checkpoint, which is in `folder` already. Prints a
    line and returns whether the results agree."""
    path = folder / f"{name}-heads.onnx"
    call(binaries / "exporter", f"--checkpoint_dir={run}", f"--output={path}", "--heads=raw", "--log_level=error")
    model = raw_heads.RawModel(path, make_session)
    full = make_session(folder / f"{name}.onnx")
    detector = "anchors" in model.heads
    outputs = ["raw_detection_scores", "raw_detection_boxes"] if detector else ["probabilities", "logits"]
    differences, seen = [], []
    for image in map(pixels, images):
        expected = full.run(outputs, {full.get_inputs()[0].name: image})
        differences.append(raw_heads.compare(model, image[0], expected))
        seen.append(expected[0])
    ours, opencv = numpy.max(differences, axis=0)
    spread = float(numpy.std(seen))
    ok = max(ours, opencv) < TOLERANCE and spread > 1e-4
    print(f"{'ok  ' if ok else 'FAIL'} {name}, raw heads: ONNX Runtime {ours:.1e} and OpenCV {cv2.__version__} {opencv:.1e} "
          f"apart from the full model (scores spread {spread:.1e})", flush=True)
    print("     OpenCV on the full model:", raw_heads.opencv_on_full_model(folder / f"{name}.onnx", image, full), flush=True)
    return ok


def variants_of(kind, detector):
    """Returns names of variants with the changes of the config (pattern, replacement) that make them."""
    variants = {"raw": []}
    if kind not in THOROUGH:
        return variants
    variants["ema"] = [(r"eval_config \{", "eval_config { use_moving_averages: true")]
    if detector:
        variants["softmax"] = [(r"score_converter: SIGMOID", "score_converter: SOFTMAX logit_scale: 2")]
        # There are more rows than boxes, and some boxes are only cut off by the edge of the image.
        variants["all boxes"] = [(r"score_threshold: \S+", "score_threshold: 0"), (r"iou_threshold: 0.5", "iou_threshold: 0.9"),
                                 (r"max_detections_per_class: \d+", "max_detections_per_class: 5000"),
                                 (r"max_total_detections: \d+", "max_total_detections: 5000")]
    return variants


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin_dir", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--images", type=int, default=21)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--run", action="append", default=[], help="KIND:TRAIN_DIR: use this run instead of training")
    parser.add_argument("kinds", nargs="*", default=KINDS)
    arguments = parser.parse_args()
    os.environ["PUSHPULL_BIN_DIR"] = str(arguments.bin_dir)
    trained = {kind: pathlib.Path(path) for kind, path in (entry.split(":", 1) for entry in arguments.run)}
    ok = True
    with tempfile.TemporaryDirectory(prefix="pushpull-onnx-") as temporary:
        folder = pathlib.Path(temporary)
        images = draw_images(folder / "drawn_by_us", arguments.images)
        for kind in arguments.kinds:
            run = trained.get(kind) or train(config_of(kind, arguments.steps), folder / kind)
            detector = is_detector(kind)
            check = check_detector if detector else check_classifier
            for variant, pairs in variants_of(kind, detector).items():
                name = f"{kind}-{variant.replace(' ', '-')}"
                changed = variant_of(run, folder / name / "run", *pairs)
                ok &= check(name, arguments.bin_dir, changed, images, folder / name)
                ok &= check_raw_heads(name, arguments.bin_dir, changed, images, folder / name)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
