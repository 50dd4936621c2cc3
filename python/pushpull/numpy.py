"""Trains plain arrays through a parameter server, with gradients that the program computes itself.

    ps = pushpull.connect("host:2222")
    trainer = pushpull.numpy.Trainer(ps, {"w": w, "b": b})
    for batch in trainer.batches(num_samples=len(x)):
        error = x[batch.indices] @ w + b - y[batch.indices]
        gradients = {"w": x[batch.indices].T @ error / len(batch), "b": error.mean(axis=0)}
        trainer.push(gradients, samples=len(batch), loss=0.5 * (error**2).mean())
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import numpy
import numpy.typing

from pushpull._integers import check_integers
from pushpull._session import Server, TrainerBase
from pushpull.parameter_server import FloatArray, Variable, check_samples

__all__ = ["Batch", "Trainer"]


@dataclasses.dataclass(frozen=True)
class Batch:
    """The share of this replica in one step. len(batch) is the number of samples."""
    indices: numpy.typing.NDArray[numpy.int64]  # of the samples
    position: int  # number of the batch: in a synchronous job of all batches, in an asynchronous one of the replica's
    replica: int
    first_sample: int = 0  # in a synchronous job: of the share in the step's global batch

    def __len__(self) -> int:
        return len(self.indices)


def _extent(array: numpy.typing.NDArray[Any]) -> tuple[int, int]:
    """Returns the address of the first byte of an array with elements, and the one after its last byte."""
    # A step along an axis may lead forwards or backwards.
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
    address = int(array.__array_interface__["data"][0])
    return (address + sum(reach for reach in reaches if reach < 0),
            address + sum(reach for reach in reaches if reach > 0) + array.itemsize)


def _check_apart(arrays: Mapping[str, numpy.typing.NDArray[Any]]) -> None:
    """Raises TypeError, which names both in the order of the mapping, if two arrays share memory."""
    ordered = sorted((*_extent(array), i, name) for i, (name, array) in enumerate(arrays.items()) if array.size > 0)
    for k, (_, end, i, name) in enumerate(ordered):
        for at in range(k + 1, len(ordered)):
            start, _, j, other = ordered[at]
            if start >= end:
                break  # the ranges of addresses do not meet
            if numpy.shares_memory(arrays[name], arrays[other]):
                one, two = (name, other) if i < j else (other, name)
                raise TypeError(f"the variables {one} and {two} share memory, so that each would be loaded over the "
                                "other; use copy() of one")


class Trainer(TrainerBase):
    """Trains arrays as one clone. Thread rule: one thread uses it; a process may have several trainers."""

    def __init__(self, ps: Server, variables: Mapping[str, numpy.typing.NDArray[Any]],
                 options: Optional[Mapping[str, Mapping[str, Any]]] = None, *, show_progress: bool = True) -> None:
        """Collects the variables. `batches` registers them in the order of the mapping.

        variables: the arrays by name. The trainer writes the weights of each step into them. They may be of any real
        type; the server keeps float32.
        options: by name, what differs from the defaults of pushpull.Variable, such as {"w": {"weight_decay": 1e-4}}.

        Raises TypeError, which names the array, if one cannot be stored, or if two share memory.
        """
        self._arrays = dict(variables)
        self._variables = []
        for name, array in self._arrays.items():
            if not isinstance(array, numpy.ndarray) or array.dtype.kind not in "biuf":
                kind = getattr(array, "dtype", type(array).__name__)
                raise TypeError(f"the variable {name} is of {kind}, which cannot be stored as float32")
            settings = (options or {}).get(name, {})
            self._variables.append(Variable(name, array.shape, **settings))
        _check_apart(self._arrays)
        unknown = set(options or {}) - set(self._arrays)
        if unknown:
            raise ValueError(f"options name {min(unknown)!r}, which is not a variable")
        super().__init__(ps, show_progress)
        self._offsets: list[int] = []

    def batches(self, num_samples: int, shuffle: bool = True) -> Iterator[Batch]:
        """Registers the variables and yields this replica's batches until training ends.

        Before each batch the arrays get the weights of its step, and after the last one the final weights. Call `push`
        once for each batch. Which samples a batch has depends on the job's seed, the step and the share that the server
        gives this replica, whose size may change between two steps.

        num_samples: size of the training data. shuffle: another order in each epoch.

        Blocks until the clone is registered. Raises FailedPreconditionError, which names the first difference, if the
        server has other variables, and ValueError if an array has integers that float32 does not hold.
        """
        self._session.check()
        if self._session.started:
            self._session.check_samples(num_samples)
        else:
            self._session.start(self._variables, [self._as_float32(v.name) for v in self._variables], num_samples,
                                device=f"the CPU, NumPy {numpy.__version__}")
            self._offsets = [self.ps.offset(i) for i in range(len(self._variables))]
        return self._batches(num_samples, shuffle)

    def _as_float32(self, name: str) -> FloatArray:
        array = self._arrays[name]
        if array.dtype.kind in "iu":
            check_integers(name, array, "keep such an array out of the job's variables")
        return numpy.asarray(array, dtype=numpy.float32, order="C")

    def _batches(self, num_samples: int, shuffle: bool) -> Iterator[Batch]:
        for raw in self._session.batches(self._load):
            indices = self.ps.sample(num_samples, raw.position, raw.replica, shuffle, raw.first_sample, raw.samples)
            yield Batch(numpy.array(indices, dtype=numpy.int64), raw.position, raw.replica, raw.first_sample)

    def _part(self, flat: FloatArray, index: int) -> FloatArray:
        begin, variable = self._offsets[index], self._variables[index]
        return flat[begin:begin + variable.size].reshape(variable.shape)

    def _load(self, weights: FloatArray) -> None:
        for i, variable in enumerate(self._variables):
            value, array = self._part(weights, i), self._arrays[variable.name]
            array[...] = value if array.dtype.kind == "f" else numpy.rint(value)

    def push(self, gradients: Mapping[str, numpy.typing.NDArray[Any]], samples: int, loss: float,
             metrics: Optional[Mapping[str, float]] = None) -> None:
        """Pushes the gradients, and ends the batch. Does not wait for the server.

        The gradients have certainly counted once the next batch has been yielded (with local steps, the next round's)
        or the loop has ended; `close` before that may drop them, see there.

        gradients: by name, each the mean over the samples, of the variable's shape; for a moving statistic, the
        statistic of the batch. A variable without an entry has the gradient zero. samples: how many there are; the
        server weights the gradient by them. metrics: means over the samples by TensorBoard tag.
        """
        raw = self._session.open_batch()
        samples = check_samples(samples)
        unknown = set(gradients) - set(self._arrays)
        if unknown:
            raise ValueError(f"there is a gradient of {min(unknown)!r}, which is not a variable")
        for variable in self._variables:
            gradient = gradients.get(variable.name)
            if gradient is None and variable.moving_statistic:
                raise ValueError(f"the moving statistic {variable.name} needs the statistic of this batch")
            if gradient is not None and numpy.shape(gradient) != variable.shape:
                raise ValueError(f"the gradient of {variable.name} has the shape {list(numpy.shape(gradient))}, "
                                 f"expected {list(variable.shape)}")
        for i, variable in enumerate(self._variables):
            self._part(raw.gradient, i)[...] = gradients.get(variable.name, 0.0)
        self._session.finish(samples, float(loss), metrics or {})
