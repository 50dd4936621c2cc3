#!/usr/bin/env python3
"""Lets TensorFlow write what the tests of Keras's checkpoints read: keras_checkpoints_tf.py [FOLDER]

Needs tensorflow and tf_keras (Keras 2, which the Object Detection API uses). Writes into tests/golden/keras (or FOLDER):

  NETWORK.txt    a line NAME SIZE... for each variable in an object checkpoint of one of Keras's networks, for ten
                 classes; keras3_NETWORK.txt is from Keras 3
  objects.*      a small object checkpoint of a model and its optimizer: element i of variable number n, in the order of
                 the names, is n + i / 8
"""
import pathlib
import sys
import tempfile

import keras
import numpy
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf import trackable_object_graph_pb2

NETWORKS = {"mobilenet": "MobileNet", "mobilenet_v2": "MobileNetV2", "mobilenet_v3_large": "MobileNetV3Large",
            "mobilenet_v3_small": "MobileNetV3Small"}


def read_names(prefix):
    """Returns {name: shape} of the variables in the object checkpoint at `prefix`."""
    reader = tf.train.load_checkpoint(prefix)
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    shapes = reader.get_variable_to_shape_map()
    return {tensor.full_name: shapes[tensor.checkpoint_key] for node in graph.nodes for tensor in node.attributes
            if tensor.full_name and not tensor.full_name.startswith("save_counter")}


def write_names(library, network, path):
    model = getattr(library.applications, NETWORKS[network])(weights=None, input_shape=(32, 32, 3), classes=10)
    with tempfile.TemporaryDirectory() as folder:
        names = read_names(tf.train.Checkpoint(model=model).write(folder + "/model"))
    lines = [" ".join([name] + [str(size) for size in names[name]]) for name in sorted(names)]
    path.write_text("\n".join(lines) + "\n")
    print(path.name, len(lines))


def write_objects(prefix):
    layers = tf_keras.layers
    model = tf_keras.Sequential([
        layers.Input((4, 4, 3)), layers.Conv2D(2, 3, use_bias=False, name="Conv1"),
        layers.BatchNormalization(name="bn_Conv1"), layers.DepthwiseConv2D(1, name="expanded_conv_depthwise")])
    optimizer = tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones((1, 4, 4, 3)), training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    for number, variable in enumerate(sorted(model.variables, key=lambda v: v.name)):
        count = int(numpy.prod(variable.shape))
        variable.assign((number + numpy.arange(count, dtype=numpy.float32) / 8).reshape(variable.shape))
    tf.train.Checkpoint(model=model, optimizer=optimizer).save(str(prefix))


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "golden" / "keras"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    for network in NETWORKS:
        write_names(tf_keras, network, folder / (network + ".txt"))
    for network in ("mobilenet_v2", "mobilenet_v3_small"):
        write_names(keras, network, folder / f"keras3_{network}.txt")
    write_objects(folder / "objects")
    (folder / "checkpoint").unlink()
    print(*read_names(str(folder / "objects-1")), sep="\n")


if __name__ == "__main__":
    main()
