#!/usr/bin/env python3
"""Compares random networks in ONNX Runtime and OpenCV's DNN with our reference operators.

usage: mkdir CASES && PUSHPULL_ONNX_CASES=CASES build/bin/export_test --gtest_filter='OnnxRandomGraph*'
       python3 onnx_random_graphs.py CASES

The networks have every operator and every activation that we export, with shared weights and several readers. Needs
onnx, onnxruntime, opencv-python-headless and numpy from PyPI. Prints one line per failure and one at the end; the exit
code is 1 if a difference exceeds the tolerance.
"""
import json
import pathlib
import sys

import cv2
import numpy
import onnx
import onnxruntime

TOLERANCE = 1e-4  # relative to values above 1


def difference(values, expected):
    values = numpy.asarray(values, numpy.float64).reshape(-1)
    assert values.shape == expected.shape and numpy.isfinite(values).all()
    return float((numpy.abs(values - expected) / numpy.maximum(1, numpy.abs(expected))).max())


def by_onnxruntime(path, image):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["logits"], {"input": image})[0]


def by_opencv(path, image):
    network = cv2.dnn.readNetFromONNX(str(path))
    network.setInput(image)
    return network.forward("logits")


def main():
    cases = sorted(pathlib.Path(sys.argv[1]).glob("*.onnx"), key=lambda path: int(path.stem))
    if not cases:
        sys.exit(f"{sys.argv[1]} has no models")
    largest = {by_onnxruntime: 0.0, by_opencv: 0.0}
    failures = 0
    for path in cases:
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        case = json.loads(path.with_suffix(".json").read_text())
        channels, height, width = (d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:])
        image = numpy.array(case["image"], numpy.float32).reshape(1, height, width, channels).transpose(0, 3, 1, 2)
        for run in largest:
            try:
                apart = difference(run(path, numpy.ascontiguousarray(image)), numpy.array(case["logits"]))
            except (cv2.error, AssertionError) as error:
                print(f"FAIL {path.name} {run.__name__}: {' '.join(str(error).split())}")
                failures += 1
                continue
            largest[run] = max(largest[run], apart)
            if apart > TOLERANCE:
                print(f"FAIL {path.name} {run.__name__}: {apart:.1e} apart")
                failures += 1
    print(f"{'FAIL' if failures else 'ok  '} {len(cases)} graphs, {failures} failures; largest differences: ONNX Runtime "
          f"{largest[by_onnxruntime]:.1e}, OpenCV {cv2.__version__} {largest[by_opencv]:.1e}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
