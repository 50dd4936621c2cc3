"""Trains models of your own through Pushpull's parameter server.

    ps = pushpull.connect("host:2222")            # or pushpull.LocalServer(config)
    trainer = pushpull.torch.Trainer(ps, model)
    for batch in trainer.batches(dataset):
        loss = criterion(model(batch.x), batch.y)
        trainer.step(loss, samples=len(batch))

`pushpull.torch` is for PyTorch, `pushpull.numpy` for arrays, `pushpull.load` reads checkpoints. The command `pushpull
worker` starts a program as several clones. docs/USAGE.md, "Your own model in Python", has more.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pushpull._connect import connect
from pushpull._reports import Progress
from pushpull.checkpoint import Checkpoint, load, steps, watch
from pushpull.errors import (AbortedError, CheckpointError, Error, EvictedError, FailedPreconditionError,
                             ForkedProcessError, InstallationError, InvalidArgumentError, JobChangedError,
                             JobFailedError, ModelChangedError, PeerLostError, ServerFailedError, StoppedError)
from pushpull.local_server import LocalServer
from pushpull.parameter_server import Job, ParameterServer, RawBatch, Variable

if TYPE_CHECKING:
    from pushpull import numpy, torch

__version__ = "0.1.0"

__all__ = [
    "AbortedError", "Checkpoint", "CheckpointError", "Error", "EvictedError", "FailedPreconditionError",
    "ForkedProcessError", "InstallationError", "InvalidArgumentError", "Job", "JobChangedError",
    "JobFailedError", "LocalServer", "ModelChangedError", "ParameterServer", "PeerLostError", "Progress", "RawBatch",
    "ServerFailedError", "StoppedError", "Variable", "connect", "load", "numpy", "steps", "torch", "watch",
]


def __getattr__(name: str) -> Any:
    """Imports pushpull.torch and pushpull.numpy when they are first used, because PyTorch takes seconds."""
    if name in ("numpy", "torch"):
        return importlib.import_module(f"pushpull.{name}")
    raise AttributeError(f"module 'pushpull' has no attribute {name!r}")
