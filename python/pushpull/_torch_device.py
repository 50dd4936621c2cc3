"""Says what a PyTorch model computes on."""
from __future__ import annotations

import torch

_PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}


def _place_of(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    if device.type != "cpu":
        return device.type
    return f"the CPU ({torch.backends.cpu.get_cpu_capability()})"


def device_of(model: torch.nn.Module) -> str:
    """Returns a text such as "the CPU (AVX2) in fp32, PyTorch 2.15.0", for people and as the clone's `rounding`.

    A model on several devices, or of several types of numbers, names each once. Autocast is not seen.
    """
    tensors: list[torch.Tensor] = [*model.parameters()] or [*model.buffers()]
    places = dict.fromkeys(_place_of(tensor.device) for tensor in tensors)
    precisions = dict.fromkeys(_PRECISIONS.get(tensor.dtype, str(tensor.dtype)) for tensor in tensors)
    return f"{' and '.join(places)} in {' and '.join(precisions)}, PyTorch {torch.__version__}"
