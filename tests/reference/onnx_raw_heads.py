"""Runs models of `exporter --heads=raw` in ONNX Runtime and OpenCV's DNN, as docs/FORMATS.md says how to use them.

Written from the document alone: preparation of the image, box decoding and score conversion, in numpy.
"""
import json

import cv2
import numpy
import onnx

# What a compiler may refuse. Resize remains for the upsampling of feature pyramids; its factor is a constant.
REFUSED = {"Cast", "GatherND", "Loop", "Mod", "NonMaxSuppression", "NonZero", "Round", "ScatterND", "Shape", "TopK", "Where"}


def resize(image, height, width):
    """Scales an image [H, W, C] with bilinear interpolation, source = out * in_size / out_size."""
    result = image.astype(numpy.float64)
    for axis, size in ((0, height), (1, width)):
        source = numpy.arange(size) * (result.shape[axis] / size)
        low = numpy.floor(source).astype(int)
        high = numpy.minimum(low + 1, result.shape[axis] - 1)
        share = (source - low).reshape([-1, 1, 1] if axis == 0 else [1, -1, 1])
        result = result.take(low, axis) * (1 - share) + result.take(high, axis) * share
    return result


def prepare(heads, image):
    """Returns the network's input, float32 [1, C, H, W], for an image of bytes [H, W, C]."""
    _, _, height, width = heads["input"]["shape"]
    steps = heads["preprocessing"]
    if steps["resize"] == "fixed":
        pixels = resize(image, height, width)
    else:
        sides = numpy.array(image.shape[:2], numpy.float32)
        scaled = numpy.rint(sides * (numpy.float32(steps["min_dimension"]) / sides.min()))
        if scaled.max() > steps["max_dimension"]:
            scaled = numpy.rint(sides * (numpy.float32(steps["max_dimension"]) / sides.max()))
        inner = resize(image, *numpy.maximum(scaled, 1).astype(int))
        pixels = numpy.empty((height, width, image.shape[2]))
        pixels[:] = steps["pad_value"]
        pixels[:inner.shape[0], :inner.shape[1]] = inner
    return (pixels * steps["scale"] + steps["offset"]).transpose(2, 0, 1)[None].astype(numpy.float32)


def decode(heads, codes, logits):
    """Returns boxes [A, 4] as shares of the input, and scores [A, classes + 1], of one image."""
    anchors, coder = numpy.array(heads["anchors"]), heads["boxes"]
    sizes = anchors[:, 2:] - anchors[:, :2]
    centers = codes[:, :2] / [coder["y_scale"], coder["x_scale"]] * sizes + (anchors[:, :2] + anchors[:, 2:]) / 2
    sizes = numpy.exp(codes[:, 2:] / [coder["height_scale"], coder["width_scale"]]) * sizes
    logits = logits.astype(numpy.float64) / heads["scores"]["logit_scale"]
    if heads["scores"]["score_converter"] == "SIGMOID":
        scores = 1 / (1 + numpy.exp(-logits))
    elif heads["scores"]["score_converter"] == "SOFTMAX":
        scores = numpy.exp(logits - logits.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    else:
        scores = logits
    return numpy.hstack([centers - sizes / 2, centers + sizes / 2]), scores


def apart(a, b):
    """Returns the largest difference of two arrays, relative to values above 1."""
    a, b = numpy.asarray(a), numpy.asarray(b)
    assert a.shape == b.shape and numpy.isfinite(a).all(), (a.shape, b.shape)
    return float((numpy.abs(a - b) / numpy.maximum(1, numpy.abs(b))).max())


class RawModel:
    """A model with raw heads and the file beside it. Raises AssertionError if it is not what the document says."""

    def __init__(self, path, make_session):
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
        for value in [*inferred.input, *inferred.value_info, *inferred.output]:
            assert all(d.dim_value > 0 for d in value.type.tensor_type.shape.dim), f"{value.name} has no fixed shape"
        refused = REFUSED & {node.op_type for node in model.graph.node}
        assert not refused, refused
        self.heads = json.loads(path.with_suffix(".heads.json").read_text())
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        for field in ("model", "weights", "run_id", "num_classes", "step"):
            assert str(self.heads[field]) == metadata[field], field
        self.names = [output.name for output in model.graph.output]
        self.session = make_session(path)
        self.network = cv2.dnn.readNetFromONNX(str(path))

    def run(self, image):
        """Returns the outputs by ONNX Runtime and those by OpenCV for an image [H, W, C]."""
        blob = prepare(self.heads, image)
        self.network.setInput(blob, self.heads["input"]["name"])
        theirs = self.network.forward(self.names)
        return self.session.run(self.names, {self.heads["input"]["name"]: blob}), theirs


def compare(model, image, full):
    """Compares a model with raw heads with the full one, whose outputs `full` are the scores or probabilities, and the
    boxes of a detector. Returns the largest differences of ONNX Runtime and of OpenCV, in that order."""
    differences = []
    for outputs in model.run(image):
        if "anchors" in model.heads:
            boxes, scores = decode(model.heads, *(output[0] for output in outputs))
            differences.append(max(apart(boxes, full[1][0]), apart(scores, full[0][0])))
        else:
            differences.append(max(apart(outputs[0], full[1]), apart(outputs[1], full[0])))
    return differences


def opencv_on_full_model(path, image, session):
    """Runs the full model in OpenCV and returns what happened: its error, or its largest difference from the session."""
    outputs = [output.name for output in session.get_outputs()]
    name = session.get_inputs()[0].name
    try:
        network = cv2.dnn.readNetFromONNX(str(path))
        network.setInput(image, name)
        results = network.forward(outputs)
        expected = session.run(outputs, {name: image})
        return ", ".join(f"{n} {apart(r, e):.1e}" for n, r, e in zip(outputs, results, expected)) + " apart"
    except (cv2.error, AssertionError) as error:
        return " ".join(str(error).split())
