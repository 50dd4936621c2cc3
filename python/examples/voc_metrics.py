"""Pascal VOC's mean average precision at an IoU of 0.5, by the rules of Pushpull's evaluator.

The rules are those of worker/eval/metrics/voc_metrics.h: each detection, in descending order of the scores, is compared
with the box of its class with which it has the largest IoU. It is a true positive if that IoU is at least 0.5 and no
earlier detection has matched the box. A match of a difficult box counts neither way. AP is the area under the
precision-recall curve at every recall that occurs, with the precision made monotone from the right.
"""
import numpy


def iou(box, others):
    """Returns the IoU of a box (xmin, ymin, xmax, ymax) with each of others [n, 4]."""
    least, greatest = numpy.maximum(box[:2], others[:, :2]), numpy.minimum(box[2:], others[:, 2:])
    common = numpy.clip(greatest - least, 0, None).prod(1)
    areas = (others[:, 2:] - others[:, :2]).prod(1) + (box[2:] - box[:2]).prod() - common
    return numpy.where(areas > 0, common / numpy.where(areas > 0, areas, 1), 0)


def average_precision(correct, boxes_to_find):
    """Returns the AP of detections in descending order of their scores; `correct` says which are true positives."""
    if boxes_to_find == 0:
        return numpy.nan
    correct = numpy.asarray(correct, bool)
    precision = correct.cumsum() / numpy.arange(1, len(correct) + 1)
    envelope = numpy.maximum.accumulate(precision[::-1])[::-1]
    return float(envelope[correct].sum() / boxes_to_find)


class VocMetrics:
    """Collects the images of a data set. Labels are whole numbers of any range."""

    def __init__(self):
        self._found = {}  # label -> (score, is true positive) of all detections that count
        self._to_find = {}  # label -> number of boxes that are not difficult

    def add_image(self, truth, detections):
        """Adds an image.

        truth: "boxes" [n, 4], "labels" [n] and perhaps "difficult" [n]. detections: "boxes", "labels" and "scores".
        """
        truth = {key: numpy.asarray(value) for key, value in truth.items()}
        detections = {key: numpy.asarray(value) for key, value in detections.items()}
        difficult = truth.get("difficult", numpy.zeros(len(truth["labels"]))).astype(bool)
        for label in set(truth["labels"].tolist()) | set(detections["labels"].tolist()):
            of_label = truth["labels"] == label
            hard = difficult[of_label]
            self._to_find[label] = self._to_find.get(label, 0) + int((~hard).sum())
            chosen = numpy.flatnonzero(detections["labels"] == label)
            chosen = chosen[numpy.argsort(-detections["scores"][chosen], kind="stable")]
            self._match(label, truth["boxes"][of_label].reshape(-1, 4), hard, detections["boxes"][chosen],
                        detections["scores"][chosen])

    def _match(self, label, truth, hard, boxes, scores):
        matched = numpy.zeros(len(truth), bool)
        for box, score in zip(boxes.astype(float), scores.tolist()):
            if box[0] >= box[2] or box[1] >= box[3]:
                continue
            overlaps = iou(box, truth.astype(float))
            best = int(overlaps.argmax()) if len(truth) else 0
            is_match = len(truth) > 0 and overlaps[best] >= 0.5
            if is_match and hard[best]:
                continue
            self._found.setdefault(label, []).append((score, is_match and not matched[best]))
            if is_match:
                matched[best] = True

    def by_class(self):
        """Returns label -> AP, for the classes that have boxes to find."""
        result = {}
        for label, boxes in sorted(self._to_find.items()):
            if boxes:
                found = sorted(self._found.get(label, []), key=lambda pair: -pair[0])
                result[label] = average_precision([correct for _, correct in found], boxes)
        return result

    def mean(self):
        """Returns the mAP, NaN if no class has boxes to find."""
        values = list(self.by_class().values())
        return sum(values) / len(values) if values else numpy.nan
