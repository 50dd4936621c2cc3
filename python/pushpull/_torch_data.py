"""Loads the shares of a replica from a PyTorch data set, in this process or ahead in worker processes."""
from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import hashlib
import random
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, Optional

import numpy
import torch
import torch.utils.data

from pushpull.parameter_server import Job


@dataclasses.dataclass(frozen=True)
class Key:
    """Selects a batch: a position and a replica, in a synchronous job with its part of the step's global batch."""
    position: int
    replica: int
    first_sample: int = 0
    samples: int = 0

    def next(self) -> Key:
        """The batch after this one, if the division of the global batch does not change."""
        return dataclasses.replace(self, position=self.position + 1)


@dataclasses.dataclass(frozen=True)
class Share:
    """The examples of one batch of a replica."""
    position: int
    replica: int
    indices: list[int]


@dataclasses.dataclass(frozen=True)
class Collated:
    """The examples of a share as the collate function has returned them."""
    data: Any
    is_pair: bool  # the data are (x, y)


EXAMPLE, COMPUTATION = range(2)  # what the random numbers are for, the first argument of seed_generators
_GENERATORS = threading.Lock()  # held by the trainer that loads examples with the global generators, or seeds them


def seed_generators(*numbers: int) -> None:
    """Seeds the global generators of PyTorch, numpy and Python from some numbers.

    With it, random augmentation and dropout do not depend on the process that computes a batch.
    """
    digest = hashlib.blake2b(struct.pack(f"<{len(numbers)}Q", *numbers), digest_size=8).digest()
    value = int.from_bytes(digest, "little") >> 1
    # torch.manual_seed takes a hundred times as long where CUDA is installed and not in use.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(value)
    numpy.random.seed(value & 0xffffffff)
    random.seed(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2


def _copy(examples: list[Any]) -> Optional[list[Any]]:
    """Returns a copy of the examples, or None if they cannot be copied, such as an open file."""
    try:
        return copy.deepcopy(examples)
    except Exception:  # pylint: disable=broad-exception-caught
        return None


def seed_computation(seed: int, position: int, replica: int) -> None:
    """Seeds the global generators for the computation of a batch, but not while another trainer loads examples."""
    with _GENERATORS:
        seed_generators(COMPUTATION, seed, position, replica)


class Shares(torch.utils.data.Dataset[Collated]):
    """The data set whose elements are collated batches."""

    def __init__(self, dataset: Any, collate_fn: Optional[Callable[[list[Any]], Any]], job: Job,
                 seed_examples: bool) -> None:
        self._dataset = dataset
        self._collate = collate_fn or torch.utils.data.default_collate
        self._makes_pairs: Optional[bool] = None  # whether the collate function does, if that is known
        self.seeds_examples = seed_examples
        self._seed = job.seed if seed_examples else None
        self._sync = job.sync

    def __getitem__(self, share: Share) -> Collated:
        examples = self._examples(share, share.indices)
        # The collate function may work in place, so the example that it may be tried on is copied before.
        asks = len(examples) == 2 and self._makes_pairs is None
        one = _copy(examples[:1]) if asks else None
        data = self._collate(examples)
        is_pair = _is_pair(data)
        if is_pair and len(examples) == 2:
            # Two values for two examples may be (x, y) or one value for each. What the function makes of one example
            # tells them apart.
            if self._makes_pairs is None:
                self._makes_pairs = self._makes_a_pair_of(one or self._examples(share, share.indices[:1]))
            is_pair = self._makes_pairs
        return Collated(data, is_pair)

    def _examples(self, share: Share, indices: list[int]) -> list[Any]:
        """Loads some examples of the share."""
        # A synchronous step is one batch for all replicas, so how it is divided must not change its examples.
        part = 0 if self._sync else 1 + share.replica
        fetch_all = getattr(self._dataset, "__getitems__", None)
        if fetch_all is not None and self._seed is None:
            return list(fetch_all(indices))
        examples: list[Any] = []
        for index in indices:
            if self._seed is not None:
                seed_generators(EXAMPLE, self._seed, share.position, part, index)
            examples += fetch_all([index]) if fetch_all is not None else [self._dataset[index]]
        return examples

    def _makes_a_pair_of(self, one: list[Any]) -> bool:
        """Returns whether the collate function makes a pair of one example, or cannot take a single example.

        Mixup, for example, needs an even number. A function with such a need is taken to make pairs (x, y).
        """
        try:
            return _is_pair(self._collate(one))
        except Exception:  # pylint: disable=broad-exception-caught
            return True


def _unchanged(batch: Any) -> Any:
    return batch


class Loader:
    """Loads batches. With worker processes it loads those that probably come next ahead of time."""

    MAX_MISSES = 16  # after so many unexpected batches in a row, another replica is loaded ahead

    def __init__(self, shares: Shares, sample: Callable[[Key], list[int]], num_workers: int) -> None:
        """sample: returns the examples of a batch."""
        self._shares = shares
        self._sample = sample
        self._num_workers = num_workers
        self._iterator: Optional[Iterator[Any]] = None
        self._ahead: collections.deque[Key] = collections.deque()  # loaded or being loaded, in order
        self._misses = 0
        self._last: Optional[Key] = None  # of the batch that was handed out last, while workers load ahead

    def _keys(self, key: Key, ahead: collections.deque[Key]) -> Iterator[Share]:
        while True:
            ahead.append(key)
            yield Share(key.position, key.replica, self._sample(key))
            key = key.next()

    def _start(self, key: Key) -> Iterator[Any]:
        self.close()
        self._ahead = collections.deque()
        loader = torch.utils.data.DataLoader(self._shares, batch_size=None, collate_fn=_unchanged,
                                             sampler=_Keys(self._keys(key, self._ahead)),
                                             num_workers=self._num_workers)
        self._iterator = iter(loader)
        self._misses = 0
        return self._iterator

    def load(self, key: Key) -> tuple[Collated, list[int]]:
        """Returns the collated batch and the examples in it."""
        indices = self._sample(key)
        share = Share(key.position, key.replica, indices)
        if self._num_workers == 0:
            return self._load_here(share), indices
        if key == self._last:
            # A batch whose push was refused is asked for again. The program may have changed what it got, so it is
            # loaded anew, and what is loaded ahead stays.
            return self._load_here(share), indices
        data = self._load_ahead(key, share)
        self._last = key
        return data, indices

    def _load_here(self, share: Share) -> Collated:
        with _GENERATORS if self._shares.seeds_examples else contextlib.nullcontext():
            return self._shares[share]

    def _load_ahead(self, key: Key, share: Share) -> Collated:
        iterator = self._iterator
        if iterator is None or key not in self._ahead:
            is_other_replica = bool(self._ahead) and self._ahead[0].replica != key.replica
            self._misses += 1
            if iterator is not None and is_other_replica and self._misses < self.MAX_MISSES:
                # This clone computes for another one that is away, and goes on with its own replica after that.
                return self._load_here(share)
            iterator = self._start(key)
        while True:
            data: Collated = next(iterator)
            if self._ahead.popleft() == key:
                self._misses = 0
                return data

    def close(self) -> None:
        """Ends the worker processes."""
        self._iterator = None
        self._last = None


class _Keys(torch.utils.data.Sampler[Share]):
    """Wraps an endless iterator for DataLoader."""

    def __init__(self, keys: Iterator[Share]) -> None:
        self._iterator = keys

    def __iter__(self) -> Iterator[Share]:
        return self._iterator
