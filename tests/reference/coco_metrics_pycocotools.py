#!/usr/bin/env python3
"""Computes golden values of detection metrics: python3 coco_metrics_pycocotools.py [FOLDER]

Needs numpy and pycocotools (written with 2.4.6 and 2.0.11). Writes one JSON file per case into
tests/golden/detection_metrics (or FOLDER): the boxes, COCO's metrics from pycocotools' COCOeval, and Pascal VOC's from
an independent implementation in numpy below, which follows the rules in worker/eval/metrics/voc_metrics.h. The tests do
not run this program; it only regenerates the files.

Edges are multiples of 1/4 and scores are multiples of 1/256, so they are exact in float32, and an overlap that equals a
threshold does so in every implementation. An undefined value is null for VOC and -1 for COCO.
"""
import contextlib
import io
import json
import pathlib
import sys

import numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

CLASSES = 4


def quarter(value):
    return float(numpy.round(value * 4) / 4)


def random_box(rng, height, width, smallest, largest):
    h = min(numpy.exp(rng.uniform(numpy.log(smallest), numpy.log(largest))), height)
    w = min(numpy.exp(rng.uniform(numpy.log(smallest), numpy.log(largest))), width)
    y = rng.uniform(0, height - h)
    x = rng.uniform(0, width - w)
    return [quarter(y), quarter(x), quarter(y + h), quarter(x + w)]


def jitter(rng, box, amount):
    h, w = box[2] - box[0], box[3] - box[1]
    moved = numpy.array(box) + rng.normal(0, amount, 4) * [h, w, h, w]
    y0, y1 = sorted((quarter(moved[0]), quarter(moved[2])))
    x0, x1 = sorted((quarter(moved[1]), quarter(moved[3])))
    return [y0, x0, max(y1, y0 + 0.25), max(x1, x0 + 0.25)]


def random_case(seed, images, truths, strays, smallest=8, largest=300, difficult=0.1, crowd=0.1, levels=256,
                masks=False, classes=CLASSES, used=None):
    """Returns images with random boxes, most of which have one to three detections, and with detections of nothing.

    At most `truths` boxes and `strays` such detections per image; sizes from `smallest` to `largest` pixels. `difficult`
    and `crowd` are shares of the boxes, `levels` is the number of different scores, and `used` the number of classes
    with boxes.
    """
    rng = numpy.random.default_rng(seed)
    used = used or classes
    result = []
    for _ in range(images):
        truth, found = [], []
        for _ in range(rng.integers(0, truths + 1)):
            box = random_box(rng, 480, 640, smallest, largest)
            label = int(rng.integers(used))
            area = (box[2] - box[0]) * (box[3] - box[1])
            area = float(numpy.round(area * rng.uniform(0.3, 1.0))) if masks else 0
            truth.append(box + [label, int(rng.random() < difficult), int(rng.random() < crowd), area])
            for _ in range(rng.integers(0, 4)):
                guess = label if rng.random() < 0.85 else int(rng.integers(classes))
                found.append(jitter(rng, box, rng.choice([0.01, 0.05, 0.15])) + [guess])
        for _ in range(rng.integers(0, strays + 1)):
            found.append(random_box(rng, 480, 640, smallest, largest) + [int(rng.integers(classes))])
        rng.shuffle(found)
        found = [[*map(float, row[:4]), int(row[4]), float(rng.integers(levels)) / levels] for row in found]
        result.append(dict(truth=truth, detections=found))
    return result


def thresholds_case():
    """Returns images with overlaps of exactly 0.50, 0.55 ... 0.95, and with areas of exactly 32^2 and 96^2."""
    images = []
    for index, width in enumerate(range(50, 100, 5)):
        truth = [[0.0, 0.0, 20.0, 100.0, index % 2, 0, 0, 0]]
        images.append(dict(truth=truth, detections=[[0.0, 0.0, 20.0, float(width), index % 2, 1 - index / 16]]))
    for side in (32.0, 96.0, 31.75, 96.25):
        truth = [[0.0, 0.0, side, side, 2, 0, 0, 0]]
        found = [[0.0, 0.0, side, side, 2, 0.5], [200.0, 0.0, 200 + side, side, 2, 0.75]]
        images.append(dict(truth=truth, detections=found))
    return images


def cases():
    yield "random", random_case(1, 24, 6, 4)
    yield "masks", random_case(2, 20, 6, 3, masks=True)
    yield "ties", random_case(3, 20, 6, 4, levels=4)
    yield "one_score", random_case(4, 12, 5, 4, levels=1)
    yield "tiny", random_case(5, 12, 6, 4, smallest=1, largest=6)
    yield "large", random_case(6, 12, 4, 3, smallest=200, largest=479)
    yield "many_detections", random_case(7, 3, 40, 260, classes=1, crowd=0.05)
    yield "unused_classes", random_case(8, 10, 5, 3, classes=4, used=2)
    yield "crowded", random_case(9, 12, 6, 3, crowd=0.6, largest=400)
    yield "difficult", random_case(10, 12, 6, 3, difficult=0.6, crowd=0)
    yield "thresholds", thresholds_case()
    plain = random_case(11, 4, 4, 3, crowd=0, difficult=0)
    yield "no_images", []
    yield "no_truth", [dict(image, truth=[]) for image in plain]
    yield "no_detections", [dict(image, detections=[]) for image in plain]
    yield "only_crowd", [dict(image, truth=[row[:6] + [1, 0] for row in image["truth"]]) for image in plain]
    yield "only_difficult", [dict(image, truth=[row[:5] + [1, 0, 0] for row in image["truth"]]) for image in plain]
    yield "empty_images", plain + [dict(truth=[], detections=[])] * 2
    flat = [[8.0, 8.0, 8.0, 40.0, 0, 0.75], [8.0, 8.0, 40.0, 40.0, 0, 0.5]]
    yield "box_without_extent", [dict(truth=[[8.0, 8.0, 40.0, 40.0, 0, 0, 0, 0]], detections=flat)]


def coco_box(row):
    return [row[1], row[0], row[3] - row[1], row[2] - row[0]]


def coco_numbers(images):
    """Returns COCO's 12 metrics and the average precision of each class."""
    annotations, results = [], []
    for image_id, image in enumerate(images):
        for row in image["truth"]:
            box = coco_box(row)
            annotations.append(dict(id=len(annotations) + 1, image_id=image_id, category_id=row[4] + 1, bbox=box,
                                    area=row[7] or box[2] * box[3], iscrowd=row[6]))
        for row in image["detections"]:
            box = coco_box(row)
            results.append(dict(id=len(results) + 1, image_id=image_id, category_id=row[4] + 1, bbox=box,
                                area=box[2] * box[3], iscrowd=0, score=row[5]))
    names = [dict(id=index + 1, name=str(index)) for index in range(CLASSES)]

    def data_set(rows):
        coco = COCO()
        coco.dataset = dict(images=[dict(id=index) for index in range(len(images))], categories=names, annotations=rows)
        coco.createIndex()
        return coco

    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(data_set(annotations), data_set(results), "bbox")
        evaluation.evaluate()
        if not images:
            return [-1.0] * 12, [-1.0] * CLASSES  # accumulate() needs at least one image
        evaluation.accumulate()
        evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, 0, 2]
    by_class = []
    for index in range(CLASSES):
        values = precision[:, :, index]
        values = values[values > -1]
        by_class.append(float(values.mean()) if values.size else -1.0)
    return [float(value) for value in evaluation.stats], by_class


def voc_average_precision(images, label):
    """Returns Pascal VOC's average precision of a class; None if the class has no boxes."""
    scores, correct, total = [], [], 0
    for image in images:
        truth = numpy.array([row for row in image["truth"] if row[4] == label]).reshape(-1, 8)
        found = [row for row in image["detections"] if row[4] == label and row[0] < row[2] and row[1] < row[3]]
        found = numpy.array(found).reshape(-1, 6)
        found = found[numpy.argsort(-found[:, 5], kind="stable")]
        total += int((truth[:, 5] == 0).sum())
        if len(found) == 0:
            continue
        if len(truth) == 0:
            scores.extend(found[:, 5])
            correct.extend([False] * len(found))
            continue
        top = numpy.maximum(found[:, None, :2], truth[None, :, :2])
        bottom = numpy.minimum(found[:, None, 2:4], truth[None, :, 2:4])
        both = numpy.prod(numpy.clip(bottom - top, 0, None), axis=2)
        areas = [numpy.prod(boxes[:, 2:4] - boxes[:, :2], axis=1) for boxes in (found, truth)]
        overlap = both / (areas[0][:, None] + areas[1][None, :] - both)
        target = numpy.where(overlap.max(axis=1) >= 0.5, overlap.argmax(axis=1), -1)
        for place, index in enumerate(target):
            if index >= 0 and truth[index, 5]:
                continue
            scores.append(found[place, 5])
            correct.append(index >= 0 and index not in target[:place])
    if total == 0:
        return None
    order = numpy.argsort(-numpy.array(scores), kind="stable")
    correct = numpy.array(correct, dtype=bool)[order]
    precision = numpy.cumsum(correct) / numpy.arange(1, len(correct) + 1)
    recall = numpy.cumsum(correct) / total
    area, before = 0.0, 0.0
    for value in numpy.unique(recall[recall > 0]):
        area += (value - before) * precision[recall >= value].max()
        before = value
    return float(area)


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "golden" / "detection_metrics"
    folder.mkdir(parents=True, exist_ok=True)
    for name, images in cases():
        coco, coco_by_class = coco_numbers(images)
        voc_by_class = [voc_average_precision(images, label) for label in range(CLASSES)]
        defined = [value for value in voc_by_class if value is not None]
        case = dict(num_classes=CLASSES, coco=coco, coco_by_class=coco_by_class,
                    voc=float(numpy.mean(defined)) if defined else None, voc_by_class=voc_by_class, images=images)
        (folder / f"{name}.json").write_text(json.dumps(case, separators=(",", ":")) + "\n")
        print(f"{name:20} mAP {coco[0]:8.4f}  VOC {case['voc']}")


if __name__ == "__main__":
    main()
