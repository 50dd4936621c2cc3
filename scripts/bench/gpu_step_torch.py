#!/usr/bin/env python3
"""The PyTorch side of gpu_step: runs the same networks on request.

Reads one request per line from stdin and answers each with one line of JSON on stdout:

  info                               returns PyTorch's version, the device and the precision
  run NET BATCH MODE OPTIMIZER STEPS measures training steps: images/s as the median of five groups of STEPS / 5 steps
  profile NET BATCH MODE OPTIMIZER STEPS  returns the time of each kernel in a step, slowest first (on a CPU: of each
                                     operator), as the mean over STEPS steps
  losses NET STEPS FILE              returns the losses of STEPS steps from the variables and images in FILE
  variables NET                      returns the variables' names and shapes, as in TensorFlow
  drop                               releases the GPU's memory
  quit                               ends the program

NET: mobilenet_v2, ssd_mobilenet_v2, ssd_mobilenet_v1. MODE: eager, compile (torch.compile with CUDA graphs,
"reduce-overhead"), or max-autotune (in addition, it measures several kernels per operator and takes the fastest, which
takes minutes). OPTIMIZER: none (forward, loss and backward, which is our step) or momentum (these and fused SGD). An
answer with "error" says why the request failed; later requests are served normally.

FILE: a line of JSON {"size", "classes", "learning_rate", "momentum", "tensors": [{"name", "shape"}]}, then the
tensors, float32, little-endian, in that order: the variables (weights as HWIO), "images" [B, H, W, 3] in [-1, 1], and
"labels" [B] or "boxes" [B, G, 4] (ymin, xmin, ymax, xmax) with "box_labels" [B, G] (0-based).
"""
import argparse
import json
import math
import os
import statistics
import sys
import time

import torch

from gpu_step_networks import Classifier, Detector, Layer

OBJECTS_PER_IMAGE = 8
WARM_UP_STEPS = 20
COMPILE_MODES = {"compile": "reduce-overhead", "max-autotune": "max-autotune"}  # our name -> that of torch.compile


class Session:
    """A network on the device, with its loss and random batches for it."""

    def __init__(self, options, net):
        self.options, self.device = options, options.device
        self.size = options.size or (224 if net == "mobilenet_v2" else 300)
        self.classes = options.classes or (1000 if net == "mobilenet_v2" else 90)
        if net == "mobilenet_v2":
            network = Classifier(options.width, self.classes)
        elif net in ("ssd_mobilenet_v1", "ssd_mobilenet_v2"):
            network = Detector(int(net[-1]), options.width, self.classes, self.size)
        else:
            raise ValueError(f"no network is called {net}")
        self.detector = net != "mobilenet_v2"
        self.network = network.to(self.device, memory_format=torch.channels_last).train()
        self.low = torch.bfloat16 if options.precision == "bf16" else torch.float32

    def variables(self):
        """Returns TensorFlow's name -> (tensor, axes), as Layer.variables() yields them."""
        result = {}
        for module in self.network.modules():
            if isinstance(module, Layer):
                result.update(module.variables())
        return result

    def loss(self, images, targets):
        # As in our step, normalising the images is part of the step. Images from a file are normalised already.
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.low == torch.bfloat16):
            if images.dtype == torch.uint8:
                images = images.to(self.low) * (2 / 255) - 1
            return self.network.loss(images, targets)

    def make_batch(self, batch):
        """Returns random uint8 images [B, 3, H, W] and their targets: (labels,) or (boxes, labels)."""
        generator = torch.Generator().manual_seed(1)
        draw = lambda *shape: torch.rand(*shape, generator=generator)
        images = torch.randint(0, 256, (batch, 3, self.size, self.size), dtype=torch.uint8, generator=generator)
        images = images.to(self.device).contiguous(memory_format=torch.channels_last)
        if not self.detector:
            return images, (torch.randint(self.classes, (batch,), generator=generator).to(self.device),)
        corner, extent = draw(batch, OBJECTS_PER_IMAGE, 2) * 0.5, 0.1 + 0.4 * draw(batch, OBJECTS_PER_IMAGE, 2)
        boxes = torch.cat([corner, corner + extent], -1).to(self.device)
        return images, (boxes, torch.randint(self.classes, boxes.shape[:2], generator=generator).to(self.device))


class Runner:
    """Measures a network's training step in one mode and with one optimizer."""

    def __init__(self, options, net, batch, mode, optimizer):
        if mode != "eager" and mode not in COMPILE_MODES:
            raise ValueError(f"no mode is called {mode}")
        if optimizer not in ("none", "momentum"):
            raise ValueError(f"no optimizer is called {optimizer}")
        if mode != "eager" and not hasattr(torch, "compile"):
            raise ValueError(f"PyTorch {torch.__version__} has no torch.compile")
        torch.manual_seed(1)
        self.session, self.batch = Session(options, net), batch
        self.cuda = options.device == "cuda"
        parameters = list(self.session.network.parameters())
        self.parameters = parameters
        self.optimizer = None
        if optimizer == "momentum":
            self.optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **({"fused": True} if self.cuda else {}))
        self.images, self.targets = self.session.make_batch(batch)
        self.loss = self.session.loss
        if mode != "eager":
            self.loss = torch.compile(self.session.loss, mode=COMPILE_MODES[mode])
        self.warm = False

    def step(self):
        for parameter in self.parameters:
            parameter.grad = None
        loss = self.loss(self.images, self.targets)
        loss.backward()
        if self.optimizer is not None:
            self.optimizer.step()
        return loss

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def warm_up(self, steps):
        for _ in range(2 if self.warm else min(WARM_UP_STEPS, max(2, steps))):
            self.step()
        self.warm = True

    def measure(self, steps):
        """Warms up and times five groups of steps. Returns the figures that answer the request "run"."""
        self.warm_up(steps)
        group = max(1, steps // 5)
        times = []
        for _ in range(5):
            self.synchronize()
            start = time.perf_counter()
            for _ in range(group):
                loss = self.step()
            self.synchronize()
            times.append((time.perf_counter() - start) / group)
        middle = statistics.median(times)
        result = {"images_per_s": self.batch / middle, "ms": 1e3 * middle, "ms_min": 1e3 * min(times),
                  "ms_max": 1e3 * max(times), "loss": float(loss.detach())}
        if self.cuda:
            result["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return result

    def profile(self, steps):
        """Records some steps with PyTorch's profiler. Returns the answer to the request "profile".

        Raises RuntimeError if the profiler has recorded nothing; it may lack the permission to observe the GPU.
        """
        self.warm_up(steps)
        profiler = torch.profiler
        activity = profiler.ProfilerActivity.CUDA if self.cuda else profiler.ProfilerActivity.CPU
        with profiler.profile(activities=[activity]) as recorded:
            for _ in range(steps):
                self.step()
            self.synchronize()
        kernels = {}
        for event in recorded.events():
            if self.cuda and event.device_type != torch.autograd.DeviceType.CUDA:
                continue
            if getattr(event, "is_user_annotation", False):
                continue  # a region that contains kernels, such as a compiled graph
            # An operator on the CPU may call others, whose time is not its own. A kernel calls none.
            microseconds = event.time_range.elapsed_us() if self.cuda else event.self_cpu_time_total
            calls, total = kernels.get(event.name, (0, 0.0))
            kernels[event.name] = (calls + 1, total + microseconds)
        if not kernels:
            raise RuntimeError("the profiler has recorded nothing")
        slowest_first = sorted(kernels.items(), key=lambda item: -item[1][1])
        return {"kernels": [{"name": name, "calls": calls / steps, "ms": total / steps / 1e3}
                            for name, (calls, total) in slowest_first]}


def read_tensors(path):
    """Returns the header and name -> tensor of a FILE as the module's docstring describes it.

    Raises ValueError if the file is too short or too long.
    """
    with open(path, "rb") as file:
        header = json.loads(file.readline())
        tensors = {}
        for entry in header["tensors"]:
            count = math.prod(entry["shape"])
            data = file.read(4 * count)
            if len(data) != 4 * count:
                raise ValueError(f"{path} ends within {entry['name']}: expected {4 * count} bytes, got {len(data)}")
            tensors[entry["name"]] = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(entry["shape"])
        if file.read(1):
            raise ValueError(f"{path} has more data after {header['tensors'][-1]['name']}")
    return header, tensors


def first_losses(options, net, steps, path):
    """Trains from the variables in the file with momentum on its images. Returns {"losses": loss of each step}."""
    header, tensors = read_tensors(path)
    session = Session(argparse.Namespace(**{**vars(options), "size": header["size"], "classes": header["classes"]}), net)
    images = tensors.pop("images").permute(0, 3, 1, 2).to(options.device).contiguous(memory_format=torch.channels_last)
    if session.detector:
        targets = (tensors.pop("boxes").to(options.device), tensors.pop("box_labels").to(options.device).long())
    else:
        targets = (tensors.pop("labels").to(options.device).long(),)
    variables = session.variables()
    if set(variables) != set(tensors):
        difference = sorted(set(variables) ^ set(tensors))
        raise ValueError(f"{path} does not have the variables of {net}; they differ in {', '.join(difference[:4])} ...")
    with torch.no_grad():
        for name, (tensor, axes) in variables.items():
            given = tensors[name].reshape([tensor.shape[axis] for axis in axes])
            tensor.copy_(given.permute([axes.index(axis) for axis in range(len(axes))]))
    # Momentum is written out here, so that the result does not depend on the version of torch.optim.
    parameters = list(session.network.parameters())
    velocities = [torch.zeros_like(parameter) for parameter in parameters]
    losses = []
    for _ in range(steps):
        loss = session.loss(images, targets)
        losses.append(float(loss.detach()))
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, velocity, gradient in zip(parameters, velocities, gradients):
                velocity.mul_(header["momentum"]).add_(gradient)
                parameter.sub_(header["learning_rate"] * velocity)
    return {"losses": losses}


class Server:

    def __init__(self, options):
        # The runners of one network and batch size, by mode and optimizer. They are kept so that modes can alternate.
        self.options, self.key, self.runners = options, None, {}

    def drop(self):
        self.key, self.runners = None, {}
        if self.options.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        if hasattr(torch, "_dynamo"):
            torch._dynamo.reset()  # pylint: disable=protected-access

    def runner(self, net, batch, mode, optimizer):
        if (net, batch) != self.key:
            self.drop()
            self.key = (net, batch)
        if (mode, optimizer) not in self.runners:
            self.runners[mode, optimizer] = Runner(self.options, net, int(batch), mode, optimizer)
        return self.runners[mode, optimizer]

    def info(self):
        device = torch.cuda.get_device_name() if self.options.device == "cuda" else "CPU"
        return {"torch": torch.__version__, "device": device, "precision": self.options.precision}

    def variables(self, net):
        variables = Session(self.options, net).variables()
        return {"variables": {name: [tensor.shape[axis] for axis in axes] for name, (tensor, axes) in variables.items()}}

    def answer(self, request):
        verb, *arguments = request.split()
        if verb in ("run", "profile"):
            net, batch, mode, optimizer, steps = arguments
            runner = self.runner(net, batch, mode, optimizer)
            return runner.measure(int(steps)) if verb == "run" else runner.profile(int(steps))
        if verb == "losses":
            net, steps, path = arguments
            return first_losses(self.options, net, int(steps), path)
        if verb == "variables":
            return self.variables(*arguments)
        if verb == "drop":
            self.drop()
            return {}
        if verb == "info":
            return self.info()
        raise ValueError(f"no request is called {verb}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default=None, help="default: bf16 on a GPU, else fp32")
    parser.add_argument("--width", type=float, default=1.0, help="depth multiplier")
    parser.add_argument("--size", type=int, default=0, help="side of the images; default 224 or 300")
    parser.add_argument("--classes", type=int, default=0, help="number of classes; default 1000 or 90")
    options = parser.parse_args()
    if options.precision is None:
        options.precision = "bf16" if options.device == "cuda" else "fp32"
    if options.device == "cuda":
        torch.backends.cudnn.benchmark = True
        if options.precision == "fp32":
            torch.backends.cudnn.allow_tf32 = False
        if hasattr(torch, "compile"):
            import torch._inductor.config as inductor  # pylint: disable=import-outside-toplevel
            if hasattr(inductor, "autotune_num_choices_displayed"):
                inductor.autotune_num_choices_displayed = 0  # otherwise it prints a table per layer
    # Only answers go to the real stdout; whatever compilers and libraries print to stdout goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(options)
    for line in sys.stdin:
        request = line.strip()
        if not request:
            continue
        if request == "quit":
            break
        try:
            answer = server.answer(request)
        except Exception as error:  # pylint: disable=broad-except
            answer = {"error": f"{type(error).__name__}: {error}"}
            # A failed request may leave objects behind, which must not take memory from the next request.
            server.drop()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
