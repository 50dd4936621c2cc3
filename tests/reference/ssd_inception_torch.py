#!/usr/bin/env python3
"""Computes golden values of ssd_inception_v2 in PyTorch: python3 ssd_inception_torch.py [FOLDER]

Joins the backbone of backbones_torch.py with the extra layers, predictors and losses of ssd_mobilenet_torch.py, in
float64. Writes a file into tests/golden (or FOLDER), as golden_file.py says.
"""
import ssd_mobilenet_torch as ssd
from backbones_torch import InceptionV2

SCOPE = "FeatureExtractor/"
CASE = dict(name="ssd_inception_v2_050_75", version=2, width=0.5, size=75, kernel=1, extra_depthwise=False,
            head_depthwise=False, minimum=0)


class Body(InceptionV2):
    """The backbone with its variables in a detector."""

    def __init__(self, detector, training):
        super().__init__(detector.case["width"], classifier=False)
        self.detector = detector
        self.training = training

    def variable(self, name, *arguments):
        return self.detector.variable(SCOPE + name, *arguments)

    def weights(self, name, *arguments):
        return self.detector.weights(SCOPE + name, *arguments)

    def module(self, x, name, depths):
        y = super().module(x, name, depths)
        if name == "4c":
            self.tap = y
        return y


class InceptionDetector(ssd.Detector):

    def extra_scope(self):
        return SCOPE + "InceptionV2/Mixed_5c"

    def body_v2(self, x, training):
        body = Body(self, training)
        last = body.features(x)
        self.statistics.update({SCOPE + name: value for name, value in body.statistics.items()})
        return [body.tap, last]


if __name__ == "__main__":
    ssd.write_case(dict(CASE, network=InceptionDetector))
