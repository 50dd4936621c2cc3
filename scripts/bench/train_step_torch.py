#!/usr/bin/env python3
"""Compares our training step with PyTorch's on the CPU.

usage: train_step_torch.py BINARY [options of train_step]

Both run forward pass, loss and backward pass of the same network with the same batch size and threads, but no
optimizer. PyTorch's modes are its memory layouts, with and without torch.compile, and bf16 by autocast. For a detector,
PyTorch's loss leaves out matching and mining and compares every anchor with fixed targets. The two programs take turns,
so that changes in the machine's speed affect both. Prints medians and the median of the ratios.
"""
import argparse
import ctypes
import re
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

MODES = [f"{layout}{compiled}{precision}"
         for precision in ("", "_bf16")
         for compiled in ([""] + (["_compiled"] if hasattr(torch, "compile") else []))
         for layout in ("nchw", "nhwc")]
BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def convolution(channels, depth, kernel=1, stride=1, groups=1, activate=True):
    layers = [
        nn.Conv2d(channels, depth, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(depth, eps=0.001, momentum=0.003),
    ]
    return layers + ([nn.ReLU6(inplace=True)] if activate else [])


class Block(nn.Module):
    def __init__(self, channels, depth, stride, expansion):
        super().__init__()
        inner = channels * expansion
        layers = convolution(channels, inner) if expansion > 1 else []
        layers += convolution(inner, inner, 3, stride, inner) + convolution(inner, depth, activate=False)
        self.body = nn.Sequential(*layers)
        self.skip = stride == 1 and channels == depth

    def forward(self, x):
        return x + self.body(x) if self.skip else self.body(x)


def scaled_depth(depth, width):
    value = depth * width
    result = max(8, int(value + 4) // 8 * 8)
    return result + 8 if result < 0.9 * value else result


def make_network(width, classes):
    channels = scaled_depth(32, width)
    layers = convolution(3, channels, 3, 2)
    for expansion, depth, repeats, stride in BLOCKS:
        for repeat in range(repeats):
            layers.append(Block(channels, scaled_depth(depth, width), stride if repeat == 0 else 1, expansion))
            channels = scaled_depth(depth, width)
    last = max(1280, scaled_depth(1280, width))
    layers += convolution(channels, last)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)).train()


V1_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
EXTRA_DEPTHS = [512, 256, 256, 128]


class Detector(nn.Module):
    """ssd_mobilenet_v1 or ssd_mobilenet_v2: box codes [B, A * 4] and class scores [B, A * (classes + 1)]."""

    def __init__(self, model, width, classes):
        super().__init__()
        second = model == "ssd_mobilenet_v2"
        depth = lambda full: max(16, scaled_depth(full, width) if second else int(full * width))
        extra = lambda full: max(16, int(full * width))
        channels = depth(32)
        layers, self.taps, maps = convolution(3, channels, 3, 2), [], []
        if second:
            index = 0
            for expansion, full, repeats, stride in BLOCKS:
                for repeat in range(repeats):
                    step = stride if repeat == 0 else 1
                    if index == 13:  # the expansion's output is the first feature map, so the block is split in two
                        inner = channels * expansion
                        layers += [nn.Sequential(*convolution(channels, inner))]
                        self.taps.append(len(layers) - 1)
                        maps.append(inner)
                        layers += [nn.Sequential(*convolution(inner, inner, 3, step, inner),
                                                 *convolution(inner, depth(full), activate=False))]
                    else:
                        layers.append(Block(channels, depth(full), step, expansion))
                    channels = depth(full)
                    index += 1
            layers.append(nn.Sequential(*convolution(channels, depth(1280))))
            channels = depth(1280)
        else:
            for i, (full, stride) in enumerate(V1_BLOCKS, start=1):
                layers.append(nn.Sequential(*convolution(channels, channels, 3, stride, channels),
                                            *convolution(channels, depth(full))))
                channels = depth(full)
                if i == 11:
                    self.taps.append(len(layers) - 1)
                    maps.append(channels)
        self.taps.append(len(layers) - 1)
        maps.append(channels)
        for full in EXTRA_DEPTHS:
            half, out = extra(full / 2), extra(full)
            spatial = convolution(half, half, 3, 2, half) + convolution(half, out) if second else \
                convolution(half, out, 3, 2)
            layers.append(nn.Sequential(*convolution(channels, half), *spatial))
            channels = out
            self.taps.append(len(layers) - 1)
            maps.append(channels)
        self.layers = nn.ModuleList(layers)
        kernel = 3 if second else 1
        anchors = [3] + [6] * (len(maps) - 1)
        self.boxes = nn.ModuleList(nn.Conv2d(c, a * 4, kernel, padding=kernel // 2) for c, a in zip(maps, anchors))
        self.scores = nn.ModuleList(nn.Conv2d(c, a * (classes + 1), kernel, padding=kernel // 2)
                                    for c, a in zip(maps, anchors))

    def forward(self, x):
        boxes, scores = [], []
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i in self.taps:
                head = len(boxes)
                boxes.append(self.boxes[head](x).permute(0, 2, 3, 1).flatten(1))
                scores.append(self.scores[head](x).permute(0, 2, 3, 1).flatten(1))
        return torch.cat(boxes, 1), torch.cat(scores, 1)


def make_any_network(options):
    if options.model.startswith("ssd_"):
        return Detector(options.model, options.width, options.classes).train()
    if options.model == "mobilenet_v2":
        return make_network(options.width, options.classes)
    import torchvision
    builder = getattr(torchvision.models, options.model.replace("resnet_v1_", "resnet"))
    return builder(num_classes=options.classes).train()


class TorchStep:
    """A network in PyTorch with a random batch, ready to step."""

    def __init__(self, size, batch, options, mode):
        torch.manual_seed(1)
        self.layout = torch.channels_last if mode.startswith("nhwc") else torch.contiguous_format
        self.detector = options.model.startswith("ssd_")
        network = make_any_network(options).to(memory_format=self.layout)
        self.network = torch.compile(network) if "_compiled" in mode else network
        self.autocast = mode.endswith("_bf16")
        self.images = (torch.rand(batch, 3, size, size) * 2 - 1).contiguous(memory_format=self.layout)
        self.labels = torch.randint(options.classes, (batch,))
        self.batch = batch

    def step(self):
        self.network.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            outputs = self.network(self.images)
        if self.detector:
            boxes, scores = (output.float() for output in outputs)
            loss = nn.functional.smooth_l1_loss(boxes, torch.zeros_like(boxes)) + \
                nn.functional.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
        else:
            loss = nn.functional.cross_entropy(outputs.float(), self.labels)
        loss.backward()

    def rate(self, seconds):
        """Steps for about `seconds`. Returns the images per second of the median step, and the CPU milliseconds of all
        threads per step."""
        self.step()
        times = []
        begin, cpu_begin = time.perf_counter(), time.process_time()
        while len(times) < 2 or time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        cpu = 1e3 * (time.process_time() - cpu_begin) / len(times)
        return self.batch / statistics.median(times), cpu


def keep_freed_memory():
    """Makes glibc's malloc keep what is freed. Otherwise every step of PyTorch gets large tensors from the kernel, page
    by page and cleared, which took a third of its time on a virtual machine."""
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # M_... of malloc.h
    libc = ctypes.CDLL(None)
    for parameter, value in ((mmap_max, 0), (trim_threshold, 2**31 - 1), (top_pad, 2**30)):
        if libc.mallopt(parameter, value) != 1:
            print("  malloc could not be told to keep memory; PyTorch may be slower than it could be")


def our_rate(binary, case, options):
    """Returns the images per second of train_step, and its CPU milliseconds per step."""
    output = subprocess.run(
        [binary, f"--cases={case}", f"--threads={options.threads}", f"--width={options.width}", f"--model={options.model}",
         f"--classes={options.classes}", f"--seconds={options.seconds}", "--repeats=1", "--table=none",
         f"--precision={options.precision}"],
        check=True, capture_output=True, text=True).stdout
    found = re.search(r"([0-9.]+) images/s.* ([0-9.]+) CPU ms", output)
    return float(found.group(1)), float(found.group(2))


def fastest(steps, options):
    """Returns the step that is fastest in a trial, and its mode. Prints what each mode reached."""
    rates = [step.rate(options.seconds)[0] for step in steps]
    print("  trial in PyTorch:", ", ".join(f"{mode} {rate:.1f}" for mode, rate in zip(options.modes, rates)), "images/s")
    best = max(range(len(steps)), key=lambda i: rates[i])
    return steps[best], options.modes[best]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--cases", default="32:64,96:32,224:16")
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--table", default="operator")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="ours; --modes are PyTorch's")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=None,
                        help=f"any of {','.join(MODES)}; the fastest of them is compared. The default is all of them, those in "
                        "bf16 (autocast) only with --precision=bf16")
    options = parser.parse_args()
    if options.modes is None:
        options.modes = [mode for mode in MODES if options.precision == "bf16" or not mode.endswith("_bf16")]
    unknown = sorted(set(options.modes) - set(MODES))
    if unknown:
        parser.error(f"--modes: expected {', '.join(MODES)}, got {', '.join(unknown)}")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    print(f"PyTorch {torch.__version__}, {options.threads} threads", flush=True)
    for case in options.cases.split(","):
        size, batch = (int(part) for part in case.split(":"))
        theirs, mode = fastest([TorchStep(size, batch, options, mode) for mode in options.modes], options)
        runs = [(*our_rate(options.binary, case, options), *theirs.rate(options.seconds))
                for _ in range(options.repeats)]
        ours, our_cpu, other, other_cpu = (statistics.median(column) for column in zip(*runs))
        ratio = statistics.median(run[0] / run[2] for run in runs)
        cpu_ratio = statistics.median(run[3] / run[1] for run in runs)
        print(f"{size}x{size} batch {batch}: ours {ours:.1f} images/s, PyTorch ({mode}) {other:.1f} images/s, ratio {ratio:.2f}; "
              f"CPU ms per step {our_cpu:.0f} and {other_cpu:.0f}, ratio {cpu_ratio:.2f}", flush=True)
        del theirs
        if hasattr(torch, "compile"):
            torch.compiler.reset()  # the next case has other shapes
    if options.table != "none":
        sys.exit(subprocess.run([options.binary, f"--cases={options.cases}", f"--threads={options.threads}",
                                 f"--width={options.width}", f"--classes={options.classes}", "--repeats=1",
                                 f"--model={options.model}", f"--seconds={options.seconds}", f"--table={options.table}",
                                 f"--precision={options.precision}"]).returncode)


if __name__ == "__main__":
    main()
