#!/usr/bin/env python3
"""Stands for the PyTorch side of gpu_step where PyTorch is not installed. It answers the same requests.

Its rates are lower than those of the emulated GPU, and its losses are those of our own step, which computes them once
more.
"""
import json
import os
import re
import subprocess
import sys

import torch  # a stand-in too; without it, this program fails as the real one does


def first_losses(net, steps):
    size = 75 if net.startswith("ssd") else 48
    done = subprocess.run(
        [os.path.join(os.environ["PUSHPULL_BIN_DIR"], "emulated_gpu_step"), f"--networks={net}", f"--size={size}",
         "--width=0.1", "--classes=4", "--batches=1", "--steps=1", "--repeats=1", "--bandwidth=1000", "--table=none",
         f"--losses={steps}", "--losses_batch=4"], stdout=subprocess.PIPE, text=True, check=True)
    first, last = re.search(r"first \d+ losses, batch \d+: ours ([0-9.]+) to ([0-9.]+)", done.stdout).groups()
    assert steps == 2, "the losses between the first and the last are not printed"
    return [float(first), float(last)]


def answer(request):
    verb, *arguments = request.split()
    if verb == "info":
        return {"torch": torch.__version__, "device": "CPU", "precision": "bf16"}
    if verb == "run":
        return {"images_per_s": 0.1}
    if verb == "profile":
        return {"kernels": [{"name": "void kernel<float>(float*)", "calls": 3.0, "ms": 2.0},
                            {"name": "Memset (Device)", "calls": 1.0, "ms": 0.5}]}
    if verb == "losses":
        return {"losses": first_losses(arguments[0], int(arguments[1]))}
    return {} if verb == "drop" else {"error": f"ValueError: no request is called {verb}"}


for line in sys.stdin:
    if line.strip() and line.strip() != "quit":
        print(json.dumps(answer(line)), flush=True)
