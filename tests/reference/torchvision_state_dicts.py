#!/usr/bin/env python3
"""Lists the tensors of torchvision's state dicts: python3 torchvision_state_dicts.py [FOLDER]

Writes one file per network into tests/golden/torchvision (or FOLDER), with a line NAME SIZE... per tensor. The tests of
warm starts read them.
"""
import pathlib
import sys

import torchvision

NETWORKS = ["mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "resnet50", "resnet101", "vgg11", "vgg16"]

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else \
        pathlib.Path(__file__).resolve().parent.parent / "golden" / "torchvision"
    for network in NETWORKS:
        tensors = getattr(torchvision.models, network)(num_classes=10).state_dict()
        lines = [" ".join([name] + [str(size) for size in tensor.shape]) for name, tensor in tensors.items()
                 if not name.endswith("num_batches_tracked")]
        (folder / (network + ".txt")).write_text("\n".join(lines) + "\n")
        print(network, len(lines))
