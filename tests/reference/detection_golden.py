#!/usr/bin/env python3
"""Prints golden values for kernels/detection, from an independent implementation in numpy and PyTorch.

usage: tests/reference/detection_golden.py > tests/golden/detection.json      (needs numpy and torch)

Network outputs come from a formula that the C++ test evaluates too (Noise there, noise() here), so only results are
stored. PyTorch computes the gradients automatically, in double precision. Each is stored as its dot products with three
noise vectors.
"""
import json
import sys

import numpy as np
import torch

MAPS = [(5, 4), (3, 3), (2, 1)]
CLASSES = 3
RATIOS = [1.0, 2.0, 0.5]
OBJECTS = [  # of each image: ymin, xmin, ymax, xmax, label, weight
    [[0.1, 0.1, 0.5, 0.45, 0, 1.0], [0.12, 0.15, 0.57, 0.5, 2, 1.0], [0.7, 0.6, 0.74, 0.65, 1, 0.5]],
    [],
    [[0.0, 0.0, 1.0, 1.0, 1, 1.0], [0.3, 0.55, 0.9, 0.95, 2, 2.0]],
]
BASE = dict(classification="sigmoid", logit_scale=1.0, gamma=2.0, alpha=None, localization="smooth_l1", delta=1.0,
            classification_weight=1.0, localization_weight=1.0, normalize=True, codesize=False, zeros=False,
            negative_weight=1.0, matched=0.5, unmatched=0.5, lower=True, force=True, ignore=False, miner=None)
MINER = dict(num_hard_examples=3000, iou_threshold=0.99, loss_type="classification", per_positive=3, minimum=0)
CASES = {
    "pets": dict(miner=MINER),
    "coco": dict(miner=dict(MINER, minimum=3)),
    "focal": dict(classification="focal", alpha=0.25, classification_weight=2.0),
    "focal_without_alpha": dict(classification="focal", gamma=1.5, codesize=True),
    "softmax": dict(classification="softmax", logit_scale=2.0, localization="l2", matched=0.6, unmatched=0.3,
                    localization_weight=0.25),
    "both": dict(miner=dict(num_hard_examples=20, iou_threshold=0.3, loss_type="both", per_positive=2, minimum=1),
                 classification_weight=0.5, delta=0.3, negative_weight=0.7, matched=0.5, unmatched=0.2),
    "localization": dict(miner=dict(num_hard_examples=0, iou_threshold=0.5, loss_type="localization", per_positive=0,
                                    minimum=0), zeros=True, normalize=False),
    "unforced": dict(force=False, matched=0.4, unmatched=0.2, lower=False),
    "ignore_thresholds": dict(ignore=True, force=False),
}


def noise(count, seed, amplitude):
    return amplitude * np.sin(12.9898 * (np.arange(count) + 1.0) + 78.233 * seed)


def anchors():
    """Returns the anchors [A, 4] (ymin, xmin, ymax, xmax) of three maps, with scales from 0.2 to 0.95."""
    scales = [0.2, 0.575, 0.95, 1.0]
    result = []
    for i, (height, width) in enumerate(MAPS):
        if i == 0:
            shapes = [(0.1, 1.0), (scales[0], 2.0), (scales[0], 0.5)]
        else:
            shapes = [(scales[i], r) for r in RATIOS] + [(np.sqrt(scales[i] * scales[i + 1]), 1.0)]
        ys, xs = np.meshgrid((np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width, indexing="ij")
        for y, x in zip(ys.ravel(), xs.ravel()):
            for scale, ratio in shapes:
                h, w = scale / np.sqrt(ratio), scale * np.sqrt(ratio)
                result.append([y - h / 2, x - w / 2, y + h / 2, x + w / 2])
    return np.float32(result).astype(np.float64)


def iou_matrix(a, b):
    top, left = np.maximum(a[:, None, 0], b[None, :, 0]), np.maximum(a[:, None, 1], b[None, :, 1])
    bottom, right = np.minimum(a[:, None, 2], b[None, :, 2]), np.minimum(a[:, None, 3], b[None, :, 3])
    intersection = np.clip(bottom - top, 0, None) * np.clip(right - left, 0, None)
    area = lambda m: (m[:, 2] - m[:, 0]) * (m[:, 3] - m[:, 1])
    union = area(a)[:, None] + area(b)[None, :] - intersection
    return np.where(intersection == 0, 0.0, intersection / np.where(union == 0, 1, union))


def match(case, boxes, anchor_boxes):
    """Returns the index of each anchor's box [A]; -1 for an unmatched anchor, -2 for an ignored one."""
    if len(boxes) == 0:
        return np.full(len(anchor_boxes), -1)
    overlap = iou_matrix(boxes, anchor_boxes)
    result = overlap.argmax(axis=0)
    best = overlap.max(axis=0)
    if not case["ignore"]:
        below, between = best < case["unmatched"], (best >= case["unmatched"]) & (best < case["matched"])
        result[below] = -1 if case["lower"] else -2
        result[between] = -2 if case["lower"] else -1
    if case["force"]:
        for row in reversed(range(len(boxes))):
            result[overlap[row].argmax()] = row
    return result


def center(boxes):
    return ((boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2,
            boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])


def encode(boxes, anchor_boxes):
    y, x, h, w = center(boxes)
    ya, xa, ha, wa = center(anchor_boxes)
    h, w, ha, wa = h + 1e-8, w + 1e-8, ha + 1e-8, wa + 1e-8
    return np.stack([10 * (y - ya) / ha, 10 * (x - xa) / wa, 5 * np.log(h / ha), 5 * np.log(w / wa)], axis=1)


def decode(codes, anchor_boxes):
    ya, xa, ha, wa = center(anchor_boxes)
    y, x = codes[:, 0] / 10 * ha + ya, codes[:, 1] / 10 * wa + xa
    h, w = np.exp(codes[:, 2] / 5) * ha, np.exp(codes[:, 3] / 5) * wa
    return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], axis=1)


def suppress(boxes, scores, threshold, limit):
    """Non-maximum suppression. Returns the indices of at most `limit` boxes, highest score first."""
    overlap = iou_matrix(boxes, boxes)
    kept = []
    for candidate in np.argsort(-scores, kind="stable"):
        if len(kept) < limit and all(overlap[candidate, k] <= threshold for k in kept):
            kept.append(candidate)
    return kept


def mine(case, cls, loc, boxes, matches):
    """Hard example mining. Returns the anchors of an image whose losses count."""
    miner = case["miner"]
    if miner is None:
        return list(range(len(cls)))
    rank = {"classification": cls, "localization": loc,
            "both": case["classification_weight"] * cls + case["localization_weight"] * loc}[miner["loss_type"]]
    hardest = suppress(boxes, rank.astype(np.float32), miner["iou_threshold"], miner["num_hard_examples"] or len(cls))
    if miner["per_positive"] == 0:
        return hardest
    positives = sum(matches[a] >= 0 for a in hardest)
    limit = max(miner["minimum"], miner["per_positive"] * positives)
    kept, negatives = [], 0
    for a in hardest:
        negatives += matches[a] == -1
        if matches[a] >= 0 or negatives <= limit:
            kept.append(a)
    return kept


def classification_losses(case, scores, columns):
    """Returns the loss of each anchor [A] from scores [A, K] and target columns [A]; -1 stands for all zeros."""
    one_hot = torch.zeros_like(scores)
    for a, column in enumerate(columns):
        if column >= 0:
            one_hot[a, column] = 1.0
    if case["classification"] == "softmax":
        return -(one_hot * torch.log_softmax(scores / case["logit_scale"], dim=1)).sum(1)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(scores, one_hot, reduction="none")
    if case["classification"] == "focal":
        p = torch.sigmoid(scores)
        p_t = one_hot * p + (1 - one_hot) * (1 - p)
        weight = (1 - p_t) ** case["gamma"]
        if case["alpha"] is not None:
            weight = weight * (one_hot * case["alpha"] + (1 - one_hot) * (1 - case["alpha"]))
        entropy = entropy * weight
    return entropy.sum(1)


def localization_losses(case, codes, targets):
    """Returns the loss of each anchor [A] from codes and targets [A, 4]."""
    d = (codes - targets).abs()
    if case["localization"] == "l2":
        return (0.5 * d * d).sum(1)
    return torch.where(d <= case["delta"], 0.5 * d * d, case["delta"] * (d - 0.5 * case["delta"])).sum(1)


def run(case, anchor_boxes):
    """Returns the matches, the number of mined anchors, the losses and the gradients of a case."""
    count, columns = len(anchor_boxes), CLASSES + 1
    codes = torch.tensor(noise(len(OBJECTS) * count * 4, 1, 2.0).reshape(-1, count, 4), requires_grad=True)
    scores = torch.tensor(noise(len(OBJECTS) * count * columns, 2, 3.0).reshape(-1, count, columns), requires_grad=True)
    result = {"matches": [], "mined": []}
    classification, localization, box_weight = 0.0, 0.0, 0.0
    for s, objects in enumerate(OBJECTS):
        objects = np.float32(objects).astype(np.float64).reshape(-1, 6)
        matches = match(case, objects[:, :4], anchor_boxes)
        matched = matches >= 0
        index = np.where(matched, matches, 0)
        if len(objects):
            labels, weights, boxes = objects[index, 4], objects[index, 5], objects[index, :4]
        else:
            labels, weights, boxes = np.zeros(count), np.zeros(count), anchor_boxes
        target_columns = np.where(matched, labels + 1, -1 if case["zeros"] else 0).astype(int)
        class_weights = np.where(matched, weights, np.where(matches == -1, case["negative_weight"], 0.0))
        box_weights = np.where(matched, weights, 0.0)
        cls = classification_losses(case, scores[s], target_columns) * torch.tensor(class_weights)
        loc = localization_losses(case, codes[s], torch.tensor(encode(boxes, anchor_boxes)))
        loc = loc * torch.tensor(box_weights ** 2 if case["localization"] == "l2" else box_weights)
        kept = mine(case, cls.detach().numpy(), loc.detach().numpy(), decode(codes[s].detach().numpy(), anchor_boxes),
                    matches)
        classification = classification + cls[kept].sum()
        localization = localization + loc[kept].sum()
        box_weight += box_weights.sum()
        result["matches"].append(matches.tolist())
        result["mined"].append(len(kept))
    n = max(box_weight, 1.0) if case["normalize"] else 1.0
    classification = case["classification_weight"] / n * classification
    localization = case["localization_weight"] / (n * (4 if case["codesize"] else 1)) * localization
    (classification + localization).backward()
    result["classification_loss"] = classification.item()
    result["localization_loss"] = localization.item()
    for name, tensor in (("dcodes", codes), ("dscores", scores)):
        gradient = tensor.grad.numpy().ravel()
        result[name] = [float(gradient @ noise(gradient.size, seed, 1.0)) for seed in (3, 4, 5)]
    return result


def post_process(anchor_boxes, converter, logit_scale, score_threshold, iou_threshold, per_class, total):
    """Returns the detections of one image as rows of label, score and clipped box."""
    count = len(anchor_boxes)
    codes = noise(count * 4, 6, 2.0).reshape(count, 4)
    logits = noise(count * (CLASSES + 1), 7, 3.0).reshape(count, CLASSES + 1) / logit_scale
    if converter == "softmax":
        scores = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    elif converter == "sigmoid":
        scores = 1 / (1 + np.exp(-logits))
    else:
        scores = logits
    boxes = decode(codes, anchor_boxes)
    rows = []
    for c in range(CLASSES):
        chosen = np.flatnonzero(scores[:, c + 1] > score_threshold)
        for k in suppress(boxes[chosen], scores[chosen, c + 1], iou_threshold, per_class):
            box = np.clip(boxes[chosen[k]], 0, 1)
            if box[2] > box[0] and box[3] > box[1]:
                rows.append([c, float(scores[chosen[k], c + 1]), *map(float, box)])
    rows.sort(key=lambda row: -row[1])
    return rows[:total]


def main():
    anchor_boxes = anchors()
    options = [dict(converter="sigmoid", logit_scale=1.0, score_threshold=0.3, iou_threshold=0.6, per_class=5, total=12),
               dict(converter="softmax", logit_scale=2.0, score_threshold=0.2, iou_threshold=0.2, per_class=100, total=100),
               dict(converter="identity", logit_scale=1.0, score_threshold=1.0, iou_threshold=0.4, per_class=3, total=6)]
    json.dump({
        "anchors": np.round(anchor_boxes, 7).tolist(),
        "objects": OBJECTS,
        "cases": {name: {"settings": {**BASE, **case}, **run({**BASE, **case}, anchor_boxes)}
                  for name, case in CASES.items()},
        "post_processing": [{"settings": o, "detections": post_process(anchor_boxes, **o)} for o in options],
    }, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
