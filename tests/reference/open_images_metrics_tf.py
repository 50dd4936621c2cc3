#!/usr/bin/env python3
"""Computes golden values of the Open Images V2 metric: python3 open_images_metrics_tf.py FOLDER [FILE]

FOLDER holds the package object_detection of the TensorFlow Object Detection API (research/ in tensorflow/models, or the
unpacked tensorflow_object_detection_api 0.1.1). Its evaluator needs numpy, but not TensorFlow. Writes the boxes of all
cases and the values that the evaluator computes from them to tests/golden/open_images_metrics.json (or FILE). The tests
do not run this program; it only regenerates the file.

Edges are multiples of 1/4 and all scores of a case differ, so the values do not depend on float32 or on the order of
equal scores. An undefined value is null.
"""
import builtins
import json
import math
import pathlib
import sys
import types

import numpy

CLASSES = 4


def load_evaluator(folder):
    """Returns the evaluator's class and the API's names of its inputs."""
    sys.path.insert(0, folder)
    # Names that the package uses and that numpy 1.24 and Python 3 no longer have.
    numpy.float, numpy.bool, numpy.int, builtins.unicode = float, bool, int, str
    # The metrics do not use these two; the original of the second reads label map files.
    sys.modules["tensorflow"] = types.ModuleType("tensorflow")
    label_map_util = types.ModuleType("object_detection.utils.label_map_util")
    label_map_util.create_category_index = lambda categories: {row["id"]: row for row in categories}
    sys.modules[label_map_util.__name__] = label_map_util
    import object_detection.utils
    object_detection.utils.label_map_util = label_map_util
    from object_detection.core import standard_fields
    from object_detection.utils import object_detection_evaluation
    return object_detection_evaluation.OpenImagesDetectionEvaluator, standard_fields


def random_case(seed, images, groups, used=CLASSES):
    """Returns images with random boxes of `used` classes, of which a share of `groups` are group boxes.

    Most single boxes have one to three detections near them, and group boxes have several inside or across the border.
    """
    rng = numpy.random.default_rng(seed)
    quarter = lambda value: float(numpy.round(4 * value) / 4)

    def box(y, x, height, width):
        return [quarter(y), quarter(x), quarter(y) + max(quarter(height), 0.25), quarter(x) + max(quarter(width), 0.25)]

    result = []
    for _ in range(images):
        truth, found = [], []
        for _ in range(rng.integers(0, 7)):
            label, group = int(rng.integers(used)), int(rng.random() < groups)
            y, x = rng.uniform(0, 300, 2)
            height, width = rng.uniform(60, 200, 2) if group else rng.uniform(10, 80, 2)
            truth.append(box(y, x, height, width) + [label, group])
            for _ in range(rng.integers(1, 6) if group else rng.integers(0, 4)):
                guess = label if rng.random() < 0.85 else int(rng.integers(CLASSES))
                if group:
                    inside = [y + rng.uniform(-0.3, 1) * height, x + rng.uniform(-0.3, 1) * width]
                    found.append(box(*inside, *rng.uniform(10, 60, 2)) + [guess])
                else:
                    shift = rng.normal(0, 0.12, 4) * [height, width, height, width]
                    found.append(box(y + shift[0], x + shift[1], height + shift[2], width + shift[3]) + [guess])
        result.append(dict(truth=truth, detections=found))
    count = sum(len(image["detections"]) for image in result)
    scores = iter(rng.permutation(count))
    for image in result:
        image["detections"] = [row + [float(next(scores) + 1) / 4096] for row in image["detections"]]
    return result


def evaluate(images, evaluator_class, fields):
    """Returns the mAP and the AP of each class."""
    evaluator = evaluator_class([{"id": i + 1, "name": f"class {i}"} for i in range(CLASSES)])
    truth_fields, found_fields = fields.InputDataFields, fields.DetectionResultFields
    for index, image in enumerate(images):
        truth = numpy.array(image["truth"], float).reshape(-1, 6)
        found = numpy.array(image["detections"], float).reshape(-1, 6)
        evaluator.add_single_ground_truth_image_info(str(index), {
            truth_fields.groundtruth_boxes: truth[:, :4],
            truth_fields.groundtruth_classes: truth[:, 4].astype(int) + 1,
            truth_fields.groundtruth_group_of: truth[:, 5].astype(bool),
        })
        evaluator.add_single_detected_image_info(str(index), {
            found_fields.detection_boxes: found[:, :4],
            found_fields.detection_classes: found[:, 4].astype(int) + 1,
            found_fields.detection_scores: found[:, 5],
        })
    values = {tag.replace("b'", "").replace("'", ""): value for tag, value in evaluator.evaluate().items()}
    tags = ["OpenImagesV2_Precision/mAP@0.5IOU"]
    tags += [f"OpenImagesV2_PerformanceByCategory/AP@0.5IOU/class {i}" for i in range(CLASSES)]
    assert sorted(values) == sorted(tags), sorted(values)
    return [None if math.isnan(values[tag]) else float(values[tag]) for tag in tags]


def main():
    evaluator_class, fields = load_evaluator(sys.argv[1])
    default = pathlib.Path(__file__).resolve().parent.parent / "golden/open_images_metrics.json"
    cases = {
        "groups": random_case(1, 40, 0.3),
        "no_groups": random_case(2, 20, 0.0),
        "only_groups": random_case(3, 6, 1.0),
        "unused_classes": random_case(4, 15, 0.4, used=2),
    }
    golden = {}
    for name, images in cases.items():
        mean, *by_class = evaluate(images, evaluator_class, fields)
        golden[name] = dict(mean=mean, by_class=by_class, images=images)
        print(name, mean, by_class)
    path = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else default
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
