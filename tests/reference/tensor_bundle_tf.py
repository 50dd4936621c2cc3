#!/usr/bin/env python3
"""Lets TensorFlow write a small checkpoint in its V2 format: tensor_bundle_tf.py [FOLDER]

Needs tensorflow (any 2.x). Writes tests/golden/tf_bundle/model.ckpt.* (or into FOLDER). Element i of tensor number n,
in the order of the names, is n + i / 8. The index has several blocks, and one tensor is int64.
"""
import pathlib
import sys

import numpy
import tensorflow as tf


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tf_bundle"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {"FeatureExtractor/MobilenetV1/Conv2d_0/weights": (3, 3, 3, 2), "scalar": ()}
    for block in range(1, 14):
        scope = f"FeatureExtractor/MobilenetV1/MobilenetV1/Conv2d_{block}_pointwise"
        for leaf in ("weights/RMSProp", "weights/RMSProp_1", "BatchNorm/beta", "BatchNorm/gamma",
                     "BatchNorm/moving_mean", "BatchNorm/moving_variance", "BatchNorm/beta/ExponentialMovingAverage"):
            shapes[f"{scope}/{leaf}"] = (3,)
    names = sorted(shapes) + ["zz_global_step"]
    tensors = []
    for number, name in enumerate(names[:-1]):
        count = int(numpy.prod(shapes[name], dtype=numpy.int64))
        values = number + numpy.arange(count, dtype=numpy.float32) / 8
        tensors.append(tf.constant(values.reshape(shapes[name])))
    tensors.append(tf.constant(1234, dtype=tf.int64))
    tf.raw_ops.SaveV2(prefix=str(folder / "model.ckpt"), tensor_names=names, shape_and_slices=[""] * len(names),
                      tensors=tensors)


if __name__ == "__main__":
    main()
