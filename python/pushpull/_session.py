"""What the trainers for PyTorch and numpy share: registration, the loop over batches and the rules about its order."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Optional, Protocol, TypeVar, Union

from pushpull._progress import OwnLine
from pushpull.errors import Error, InvalidArgumentError
from pushpull.parameter_server import FloatArray, ParameterServer, RawBatch, Variable


class HasConnect(Protocol):
    """A LocalServer, which hands out its clones one after the other."""

    def connect(self) -> ParameterServer:
        """Connects the next clone."""


Server = Union[ParameterServer, HasConnect]


class Session:
    """One clone's training. Thread rule: one thread, as for ParameterServer."""

    def __init__(self, ps: Server, show_progress: bool) -> None:
        self.ps = ps if isinstance(ps, ParameterServer) else ps.connect()
        self._line = OwnLine(self.ps, show_progress)
        self._num_samples: Optional[int] = None  # None: the clone is not registered
        self._ended = ""  # why the clone has ended before training has
        self.batch: Optional[RawBatch] = None  # the one that is being computed

    def start(self, variables: Sequence[Variable], values: Sequence[FloatArray], num_samples: int, *,
              device: str = "", rounding: str = "") -> None:
        """Registers the clone."""
        self.ps.start(variables, values, num_samples, device=device, rounding=rounding)
        self._num_samples = num_samples

    @property
    def started(self) -> bool:
        """Whether the clone is registered."""
        return self._num_samples is not None

    def check_samples(self, num_samples: int) -> None:
        """Raises ValueError if the clone was registered for another number of samples."""
        if self._num_samples != num_samples:
            raise ValueError(f"this clone trains on {self._num_samples} samples; it cannot go on with {num_samples}")

    def batches(self, load: Callable[[FloatArray], None]) -> Iterator[RawBatch]:
        """Yields each batch after `load` has received its weights. In the end `load` gets the last weights.

        A batch that the caller has not finished is yielded again by the next iterator, but not by the same one.
        """
        self.batch = None
        first = True
        while True:
            self.check()
            if self.batch is not None:
                raise Error(f"the batch at position {self.batch.position} was not finished: call step() or push() once "
                            "for each batch")
            # Only the library knows whether an interrupted call has handed the last batch back.
            self.batch = self.ps.next_batch(lambda: self._line.tick(is_waiting=True), or_open=first)
            first = False
            if self.batch is None:
                break
            load(self.batch.weights)
            yield self.batch
        weights = self.ps.last_weights
        if weights is not None:
            load(weights)
        self._line.finish()

    def open_batch(self) -> RawBatch:
        """Returns the batch that is being computed. Raises Error if there is none."""
        self.check()
        if self.batch is None:
            raise Error("there is no batch to finish: call step() or push() once for each batch, inside the loop over "
                        "the trainer's batches")
        return self.batch

    def check(self) -> None:
        """Raises Error if the clone or its connection has ended or the process was forked."""
        if self._ended:
            raise Error(f"this trainer has ended, because {self._ended}; connect again for another one")
        self.ps.check_process()

    def finish(self, samples: int, loss: float, metrics: Mapping[str, float]) -> None:
        """Ends the batch and hands the gradient over."""
        # An exception such as KeyboardInterrupt may end the call after the library has taken the batch, and what is
        # being sent must not be written to.
        batch, self.batch = self.batch, None
        try:
            self.ps.finish(samples, loss, metrics)
        except (AttributeError, TypeError, ValueError, InvalidArgumentError):  # an argument was refused
            self.batch = batch
            raise
        self._line.tick(is_waiting=False)

    def give_up(self, message: str) -> None:
        """Gives the batch up, if there is one, because of an error that `message` names. The clone ends."""
        if self.ps.closed or self._ended:
            return
        self._ended = f"it gave up a batch: {message}"
        if self.batch is not None:
            self.batch = None
            self.ps.give_up(message)

    def leave(self, error: Optional[BaseException]) -> None:
        """Closes the connection; gives the open batch up first if an error is the reason."""
        if error is not None:
            self.give_up(f"{type(error).__name__}: {error}")
        self.batch = None
        self._ended = self._ended or "it was closed"
        self.ps.close()


T = TypeVar("T", bound="TrainerBase")


class TrainerBase:
    """What every trainer offers: the connection of its clone, and how it ends."""

    def __init__(self, ps: Server, show_progress: bool) -> None:
        self._session = Session(ps, show_progress)

    @property
    def ps(self) -> ParameterServer:
        """The connection of this clone."""
        return self._session.ps

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self._close(error)

    def close(self) -> None:
        """Leaves the job.

        The gradient of the last batch may be dropped, in an asynchronous job, unless the next batch has been yielded or
        the loop has ended. The batch is then computed again.
        """
        self._close(None)

    def _close(self, error: Optional[BaseException]) -> None:
        self._session.leave(error)
