"""Trains a PyTorch model through a parameter server.

    ps = pushpull.connect("host:2222")
    trainer = pushpull.torch.Trainer(ps, model)
    for batch in trainer.batches(dataset):
        loss = criterion(model(batch.x), batch.y)
        trainer.step(loss, samples=len(batch))

The optimizer, its schedule, clipping, weight decay and the length of training are in the server's pipeline config. The
server keeps all variables as float32. A model on a GPU works by copying; this has not been tried on a GPU yet.
"""
from __future__ import annotations

import dataclasses
import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import torch
import torch.utils.data

from pushpull import checkpoint
from pushpull._session import Server, TrainerBase
from pushpull._torch_data import Key, Loader, Shares, seed_computation
from pushpull._torch_device import device_of
from pushpull._torch_mapping import CONVOLUTION, DEPTHWISE, LINEAR, ServerVariable
from pushpull._torch_variables import (Options, check_unchanged, check_value, count_passes, declare, load,
                                       store_statistics, value_of, views_of)
from pushpull.checkpoint import PathLike
from pushpull.errors import ModelChangedError
from pushpull.parameter_server import FloatArray, RawBatch, check_samples

__all__ = ["Batch", "CONVOLUTION", "DEPTHWISE", "LINEAR", "Options", "ServerVariable", "Trainer", "load_state_dict"]


@dataclasses.dataclass(frozen=True)
class Batch:
    """The share of this replica in one step.

    data: what the collate function returned. x, y: its two parts if the function makes pairs (x, y) of any number of
    examples; otherwise x is the whole, and there is no y. A function that returns one value for each example makes
    none, also of two examples. indices: which examples of the data set it has. len(batch) is their number.
    """
    data: Any
    indices: list[int]
    position: int  # number of the batch: in a synchronous job of all batches, in an asynchronous one of the replica's
    replica: int
    first_sample: int = 0  # in a synchronous job: of the share in the step's global batch
    is_pair: bool = False  # data is (x, y)

    @property
    def x(self) -> Any:
        """The first part of a pair, or all of the data."""
        return self.data[0] if self.is_pair else self.data

    @property
    def y(self) -> Any:
        """The second part of a pair."""
        if not self.is_pair:
            raise AttributeError("the collated batch is not a pair, so it has no y; use batch.data")
        return self.data[1]

    def __len__(self) -> int:
        return len(self.indices)


_seeding: weakref.WeakSet[Trainer] = weakref.WeakSet()  # trainers that have begun with seed=True
_seeding_lock = threading.Lock()  # guards it


def _pass_gradient(reference: weakref.ref[Trainer], index: int, parameter: torch.Tensor) -> None:
    """Tells a trainer that a gradient is final. PyTorch's garbage collector does not see what a hook refers to, so a
    trainer that a hook held would never be freed."""
    trainer = reference()
    if trainer is not None:
        trainer._on_gradient(index, parameter)


class Trainer(TrainerBase):
    """Trains one model as one clone. Thread rule: one thread uses it; a process may have several trainers.

    The model's variables are its parameters and its persistent buffers. A parameter with requires_grad = False is
    frozen. Running statistics of batch norm follow its momentum on the server, with the mean of what the clones have
    seen; every other buffer becomes the mean of what the clones hold after a step. Integers travel as float32.
    """

    def __init__(self, ps: Server, model: torch.nn.Module, *, options: Optional[Options] = None,
                 show_progress: bool = True, seed: bool = True,
                 variables: Optional[Sequence[ServerVariable]] = None) -> None:
        """Collects the model's variables. `batches` registers them.

        options: called with the name and the parameter; returns what differs from the defaults, for example
        {"weight_decay": 1e-4, "learning_rate_multiplier": 2.0}, or None if nothing does. The multiplier scales the
        learning rate, as a parameter group with another `lr` does. Options and requires_grad stay the same for all
        starts of a run.
        show_progress: print the progress to stderr, unless the supervisor does it.
        seed: seed the global generators of PyTorch, numpy and Python for each example that is loaded and for each
        batch, so that augmentation and dropout are the same if another process computes them. Exact repetition needs
        it; generators of the program's own are not seeded. Trainers of several threads disturb each other's dropout,
        because a process has these generators once; a warning says so.
        variables: for a job whose model the server knows, such as a classifier that C++ clones train as well: all of its
        variables, in its order. The initial values, weight decay and decays of statistics are then the server's, and
        buffers that are not named stay this clone's own. Such a job takes no `options`, and a parameter may be frozen
        only if the server's train_config.freeze_variables names its variable.

        Raises TypeError, which names the tensor, if one cannot be stored or was expanded, or if two different ones share
        memory, and ValueError if `variables` do not fit or are given together with `options`.
        """
        self._model = model
        self._entries = declare(model, options, variables)
        super().__init__(ps, show_progress)
        self._seed_generators = seed
        self._thread = 0  # the one that has called batches first
        self._offsets: list[int] = []
        self._views: dict[int, list[torch.Tensor]] = {}  # by address of the flat vector
        self._passes: list[int] = []  # in an asynchronous job: count_passes when the batch began
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []  # on parameters, which hold them in turn
        # The state of the backward pass. Its hooks run on a thread for each device.
        self._lock = threading.Lock()
        self._in_backward = False
        self._gradient: list[torch.Tensor] = []
        self._is_final: list[bool] = []
        self._next_final = 0  # the entries from this one on have been handed over

    def __del__(self) -> None:
        self._remove_hooks()

    def _remove_hooks(self) -> None:
        for hook in getattr(self, "_hooks", []):
            hook.remove()
        self._hooks = []

    def _close(self, error: Optional[BaseException]) -> None:
        self._remove_hooks()
        self._views = {}
        super()._close(error)

    def batches(self, dataset: Any, collate_fn: Optional[Callable[[list[Any]], Any]] = None,
                num_samples: Optional[int] = None, shuffle: bool = True, num_workers: int = 0) -> Iterator[Batch]:
        """Registers the model and yields this replica's batches until training ends.

        Before each batch the model gets the weights of its step, and after the last one the final weights. Its
        gradients are set to None each time, so that none is left of another optimizer or of an earlier attempt at the
        batch. Call `step` once for each batch. Which examples a batch has depends on the job's seed, the step and the
        share that the server gives this replica, whose size may change between two steps.

        dataset: has __getitem__ for the indices below num_samples (default: its length).
        collate_fn: makes a batch of a list of examples; default: torch.utils.data.default_collate.
        shuffle: another order in each epoch.
        num_workers: processes that load batches ahead; 0: this process loads them.

        Blocks until the clone is registered. Raises FailedPreconditionError, which names the first difference, if the
        server has other variables or trains one that is frozen here, and ValueError if a buffer has values that are not finite, or integers that float32
        does not hold.
        """
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise TypeError("the data set is an IterableDataset; batches are chosen by index, so it needs __getitem__")
        size = len(dataset) if num_samples is None else num_samples
        self._start(size)
        shares = Shares(dataset, collate_fn, self.ps.job, self._seed_generators)

        def sample(key: Key) -> list[int]:
            return self.ps.sample(size, key.position, key.replica, shuffle, key.first_sample, key.samples)

        loader = Loader(shares, sample, num_workers)
        return self._batches(loader)

    def _start(self, num_samples: int) -> None:
        self._session.check()
        if not self._session.started:
            check_unchanged(self._model, self._entries)
            variables = [entry.variable for entry in self._entries]
            device = device_of(self._model)
            values = [value_of(entry) for entry in self._entries]
            for entry, value in zip(self._entries, values):
                check_value(entry, value)
            self._session.start(variables, values, num_samples, device=device, rounding=device)
            self._offsets = [self.ps.offset(i) for i in range(len(variables))]
            self._add_hooks()
            self._warn_of_shared_generators()
        else:
            self._session.check_samples(num_samples)

    def _warn_of_shared_generators(self) -> None:
        """Warns if trainers of several threads seed the generators, of which a process has one each."""
        if not self._seed_generators:
            return
        self._thread = threading.get_ident()
        with _seeding_lock:
            others = [trainer for trainer in _seeding if not trainer.ps.closed and trainer._thread != self._thread]
            _seeding.add(self)
        if others:
            warnings.warn("trainers in several threads of this process seed the same generators of random numbers; if "
                          "the models draw any, as dropout does, nothing random in them or in their data sets is "
                          "repeatable. Run each trainer in a process of its own, or pass seed=False if it need not be")

    def _add_hooks(self) -> None:
        for i, entry in enumerate(self._entries):
            if isinstance(entry.holder, torch.nn.Parameter) and entry.holder.requires_grad:
                add: Callable[..., torch.utils.hooks.RemovableHandle] = (
                    entry.holder.register_post_accumulate_grad_hook)
                self._hooks.append(add(functools.partial(_pass_gradient, weakref.ref(self), i)))

    def _batches(self, loader: Loader) -> Iterator[Batch]:
        try:
            for raw in self._session.batches(self._load):
                key = Key(raw.position, raw.replica, raw.first_sample, raw.samples)
                collated, indices = loader.load(key)
                if self._seed_generators:
                    seed_computation(self.ps.job.seed, raw.position, raw.replica)
                yield Batch(collated.data, indices, raw.position, raw.replica, raw.first_sample, collated.is_pair)
        finally:
            loader.close()

    def _load(self, weights: FloatArray) -> None:
        check_unchanged(self._model, self._entries)
        # The last weights are a new copy each time, which is not to be kept.
        has_ended = self._session.batch is None
        load(self._entries, views_of(weights, self._entries, self._offsets) if has_ended else self._views_of(weights))
        self._passes = [] if self.ps.job.sync else count_passes(self._entries)
        for entry in self._entries:
            if isinstance(entry.holder, torch.nn.Parameter):
                entry.holder.grad = None  # `step` would add it to the gradient of the batch that begins here

    def _views_of(self, array: FloatArray) -> list[torch.Tensor]:
        address = array.ctypes.data
        if address not in self._views:
            self._views[address] = views_of(array, self._entries, self._offsets)
        return self._views[address]

    def step(self, loss: torch.Tensor, samples: int,
             metrics: Optional[Mapping[str, Union[float, torch.Tensor]]] = None) -> None:
        """Computes the gradient of `loss` and pushes it. Parts are sent while the backward pass goes on.

        loss: the mean over the samples, a tensor with one element. samples: how many there are; the server weights the
        gradient by them. metrics: means over the samples by TensorBoard tag, for example {"accuracy": 0.9}.

        Gradients that earlier calls of backward() for this batch have left in the parameters are added, and all are set
        to None. If the backward pass raises, the batch is given up and the trainer ends. A loss that is not finite
        makes the contribution void (train_config.non_finite_policy).

        Does not wait for the server. The gradient has certainly counted once the next batch has been yielded (with
        local steps, the next round's) or the loop has ended; `close` before that may drop it, see there.
        """
        raw = self._session.open_batch()
        samples = check_samples(samples)
        if loss.numel() != 1:
            raise ValueError(f"the loss has the shape {list(loss.shape)}, expected one element: the mean over samples")
        try:
            self._backward(loss, raw)
            value = float(loss.detach())
            figures = {name: float(figure.detach() if isinstance(figure, torch.Tensor) else figure)
                       for name, figure in (metrics or {}).items()}
        except BaseException as error:
            self._session.give_up(f"{type(error).__name__}: {error}")
            raise
        self._session.finish(samples, value, figures)

    def _backward(self, loss: torch.Tensor, raw: RawBatch) -> None:
        self._gradient = self._views_of(raw.gradient)
        passes = [now - then for now, then in zip(count_passes(self._entries), self._passes)] if self._passes else ()
        store_statistics(self._entries, self._views_of(raw.weights), self._gradient, passes)
        self._is_final = [entry.variable.moving_statistic or entry.variable.frozen for entry in self._entries]
        self._next_final = len(self._entries)
        self._in_backward = True
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self._in_backward = False
        for i, entry in enumerate(self._entries):
            if not self._is_final[i]:
                assert isinstance(entry.holder, torch.nn.Parameter)
                self._take_gradient(i, entry.holder)

    def _on_gradient(self, index: int, parameter: torch.Tensor) -> None:
        """Called when autograd has added everything to parameter.grad."""
        if not self._in_backward:
            return  # a backward pass of the user's own
        if self._is_final[index]:
            raise RuntimeError(f"{self._entries[index].name} got a gradient twice in one backward pass, and the first "
                               "may have been sent; checkpoint with use_reentrant=False")
        self._take_gradient(index, parameter)
        with self._lock:
            self._is_final[index] = True
            first = self._next_final
            while first > 0 and self._is_final[first - 1]:
                first -= 1
            if first < self._next_final:
                self._next_final = first
                self.ps.advance(self._offsets[first])

    @torch.no_grad()
    def _take_gradient(self, index: int, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is None:
            self._gradient[index].zero_()
            return
        self._gradient[index].copy_(gradient.to_dense() if gradient.layout != torch.strided else gradient)
        parameter.grad = None


def load_state_dict(model: torch.nn.Module, train_dir: PathLike, step: Optional[int] = None, ema: bool = False,
                    variables: Optional[Sequence[ServerVariable]] = None) -> int:
    """Loads a checkpoint into a model of the same variables. Returns the checkpoint's step.

    ema: load the moving averages of the parameters instead of the raw ones. variables: as for Trainer.

    Raises CheckpointError, ModelChangedError, which names the first difference, if the model has other variables, and
    TypeError, which names the tensor, if one of the model cannot be stored or if two share memory.
    """
    found = checkpoint.open_checkpoint(train_dir, step)
    arrays = found.load(ema)
    entries = declare(model, None, variables)
    for entry in entries:
        name, expected = entry.variable.name, entry.variable.shape
        if name not in arrays:
            raise ModelChangedError(f"{found.folder} has no variable {name}")
        if arrays[name].shape != expected:
            raise ModelChangedError(f"{name} has the shape {list(arrays[name].shape)} in {found.folder}, "
                                    f"expected {list(expected)}")
    unused = set(arrays) - {entry.variable.name for entry in entries}
    if unused:
        warnings.warn(f"the model does not use {len(unused)} variables of {found.folder}, such as {min(unused)}")
    load(entries, [entry.view(torch.from_numpy(arrays[entry.variable.name])) for entry in entries])
    return found.step
