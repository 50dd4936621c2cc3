"""One clone of a job: the connection to its parameter server. `pushpull.torch` and `pushpull.numpy` build on it.

A program for another framework can use it directly:

    ps = pushpull.connect("host:2222")
    ps.start(variables, values, num_samples=60000)
    while (batch := ps.next_batch()) is not None:
        ...                                  # compute at batch.weights, fill batch.gradient in
        ps.finish(samples=32, loss=loss)

Thread rule: one thread at a time uses a ParameterServer; `advance`, `stop` and `progress` may be called by any thread.
After a fork only the parent may use it.
"""
from __future__ import annotations

import atexit
import ctypes
import dataclasses
import math
import operator
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Optional, Union

import numpy
import numpy.typing

from pushpull import _library
from pushpull._interrupts import POLL_MILLISECONDS, interruptibly
from pushpull._reports import Progress, Reporter, WaitNotice
from pushpull.errors import Error, ForkedProcessError, InvalidArgumentError, StoppedError, error_of

FloatArray = numpy.typing.NDArray[numpy.float32]
PathLike = Union[str, "os.PathLike[str]"]
MAX_SAMPLES = 1 << 32  # of one contribution (kMaxSamples in ps_server/core/steps_requests.cc)


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable as the server trains it (VariableEntry in protos/parameter_server.proto)."""
    name: str
    shape: tuple[int, ...]
    moving_statistic: bool = False  # has no gradient; clones push a statistic of the batch
    weight_decay: float = 0.0  # weight_decay * w is added to the gradient
    learning_rate_multiplier: float = 1.0  # scales the learning rate
    frozen: bool = False  # keeps its initial value
    moving_average_decay: float = 0.0  # statistics: v += (1 - decay) * (s - v) with the clones' mean s

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Job:
    """What the server trains."""
    sync: bool
    tasks: int  # number of ps tasks
    seed: int
    batch_size: int  # train_config.batch_size
    num_steps: int  # 0: the job has no last step
    version: int  # the number of steps applied when this clone connected
    awaits_variables: bool  # the next clone to start declares them
    external_name: Optional[str]  # model.external.name; None: the server knows the model
    pipeline_config: str  # in protobuf's text format


@dataclasses.dataclass(frozen=True)
class RawBatch:
    """A batch to compute. The arrays are flat; `ParameterServer.offset` gives the position of each variable."""
    replica: int
    position: int  # with the part of the batch, or in an asynchronous job with the replica, it selects the data
    version: int  # of the weights; with local steps, of those that the round began with
    # The replica's part of the step's global batch: samples [first_sample, first_sample + samples) of batch_size. The
    # server may change it between two steps. 0 and 0 in an asynchronous job, where the replica has a whole batch.
    first_sample: int
    samples: int
    weights: FloatArray  # to be read only, and only until `finish` or `give_up`
    gradient: FloatArray  # to be filled in until `finish`


_open: weakref.WeakValueDictionary[int, ParameterServer] = weakref.WeakValueDictionary()  # by id()


def _connections() -> list[ParameterServer]:
    """Returns the open connections of this process. Other threads may open and close some meanwhile."""
    return [ps for reference in _open.valuerefs() if (ps := reference()) is not None]


def stop_all() -> None:
    """Stops all clones of this process, so that threads that wait for them get StoppedError. Never blocks."""
    for ps in _connections():
        ps.stop()


@atexit.register
def close_all() -> None:
    """Closes all clones of this process."""
    for ps in _connections():
        ps.close()


def check_samples(samples: int) -> int:
    """Returns the number of samples of a batch. Raises TypeError or ValueError if it cannot be one."""
    try:
        number = operator.index(samples)
    except TypeError:
        raise TypeError(f"samples={samples!r} is of the type {type(samples).__name__}, expected an integer") from None
    if not 1 <= number <= MAX_SAMPLES:
        raise ValueError(f"samples={number}, expected at least 1 and at most {MAX_SAMPLES}")
    return number


class _StartArguments:
    """The variables and their values as pushpull_clone_start takes them. Must live until the call has returned."""

    def __init__(self, variables: Sequence[Variable], values: Sequence[FloatArray]) -> None:
        if len(variables) != len(values):
            raise ValueError(f"{len(variables)} variables have {len(values)} values")
        self.entries = (_library.Variable * len(variables))()
        self.values = (_library.FloatPointer * len(variables))()
        self._kept: list[object] = []  # what the entries and the values point to
        for i, (variable, value) in enumerate(zip(variables, values)):
            array = numpy.asarray(value, dtype=numpy.float32, order="C")
            if array.shape != variable.shape:
                raise ValueError(f"{variable.name} has the shape {list(variable.shape)}, but its value has the shape "
                                 f"{list(array.shape)}")
            shape = (ctypes.c_int64 * len(variable.shape))(*variable.shape)
            self._kept += [array, shape]
            self.values[i] = array.ctypes.data_as(_library.FloatPointer)
            entry = self.entries[i]
            entry.name = variable.name.encode()
            entry.shape = shape
            entry.rank = len(variable.shape)
            entry.moving_statistic = variable.moving_statistic
            entry.l2_weight = variable.weight_decay
            entry.learning_rate_multiplier = variable.learning_rate_multiplier
            entry.frozen = variable.frozen
            entry.moving_average_decay = variable.moving_average_decay


class ParameterServer:
    """A clone's connection. Create it with `pushpull.connect` or `LocalServer.connect`."""

    def __init__(self, options: _library.CloneOptions, check: Optional[Callable[[], None]] = None) -> None:
        """Connects. Blocks until the server answers, at most for the peer deadline. If it takes long, says so to the
        supervisor, or on stderr if there is none.

        check: called while the clone waits, a few times a second; may raise, for example because the server has ended.
        """
        self._pid = os.getpid()
        self._library = _library.library()
        self._clone: Optional[int] = self._library.pushpull_clone_new(ctypes.byref(options))
        self._check = check
        # Held by calls that any thread may make, so that `close` does not free the clone under them. A signal handler
        # may make such a call while its own thread is in one.
        self._lock = threading.RLock()
        self._stopped = False
        self._registers = False  # start was called and has not failed
        self._session, self._number = int(options.session), int(options.process_number)
        self._replaced = False  # by a later connection of the clone from this process
        self._reporter = Reporter()
        self._batch = _library.Batch()
        self._returned = True  # whether the caller of next_batch has got the batch in _batch
        self._last: Optional[RawBatch] = None  # that next_batch has returned
        self._arrays: dict[int, FloatArray] = {}
        self.clone = int(options.worker_id)
        self.num_clones = int(options.num_replicas)
        _open[id(self)] = self
        try:
            self._do(self._library.pushpull_clone_connect)
            self.job = self._read_job()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ParameterServer:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_clone", None) is not None and self._pid == os.getpid():
            self.close()

    def close(self) -> None:
        """Leaves the job if training has not ended. Another clone or a new process takes the replica over.

        A gradient that was finished last may be dropped, in an asynchronous job, unless `next_batch` has returned since
        then. Its batch is then computed again.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            clone, self._clone = self._clone, None
        self._arrays.clear()
        if clone is not None:
            _open.pop(id(self), None)
            self._library.pushpull_clone_stop(clone)
            self._library.pushpull_clone_free(clone)

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._clone is None

    def stop(self) -> None:
        """Makes calls that wait raise StoppedError, in any thread. Never blocks."""
        self._stopped = True
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._clone is not None:
                self._library.pushpull_clone_stop(self._clone)

    def check_process(self) -> None:
        """Raises ForkedProcessError in a process that was forked from the one that connected, and Error if the
        connection has ended."""
        self._handle()

    def _handle(self) -> int:
        if self._pid != os.getpid():
            raise ForkedProcessError(
                f"this connection to the parameter server belongs to process {self._pid}, but process {os.getpid()}, "
                "which was forked from it, uses it; worker processes of a DataLoader must not use the trainer")
        if self._replaced:
            raise Error(f"this connection has ended: the program has connected clone {self.clone} to the server again")
        if self._clone is None:
            raise Error("this connection to the parameter server is closed")
        return self._clone

    def _call_from_any_thread(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function of the library that does not block. Raises what check_process raises."""
        self.check_process()  # before the lock, which another thread of the parent may have held during a fork
        with self._lock:
            function(self._handle(), *arguments)

    def _fail(self, code: int) -> Error:
        message = self._library.pushpull_clone_error(self._handle())
        text = (message or b"").decode(errors="replace")
        if code == _library.CANCELLED and self._stopped:
            return StoppedError(f"{text or 'this clone was told to stop'}; connect again to go on")
        return error_of(code, text)

    def _do(self, function: Any, *arguments: Any) -> None:
        """Calls a function of the library that may block for long, and says what it waits for. Raises its error."""
        clone = self._handle()
        notice = WaitNotice(self.progress)

        def tick() -> None:
            if self._check is not None:
                self._check()
            notice.tick()

        code = interruptibly(lambda: int(function(clone, *arguments)), self.stop, tick)
        if code != _library.OK:
            if self._check is not None:
                self._check()
            raise self._fail(code)
        notice.finish()

    def _read_job(self) -> Job:
        job = _library.Job()
        self._library.pushpull_clone_job(self._handle(), ctypes.byref(job))
        name = job.external_name
        return Job(sync=bool(job.sync), tasks=job.tasks, seed=job.seed, batch_size=job.batch_size,
                   num_steps=job.num_steps, version=job.version, awaits_variables=bool(job.awaits_variables),
                   external_name=None if name is None else name.decode(),
                   pipeline_config=(job.pipeline_config or b"").decode())

    def start(self, variables: Sequence[Variable], values: Sequence[FloatArray], num_samples: int, *,
              device: str = "", rounding: str = "") -> None:
        """Registers the clone for a model with these variables. Blocks until it is registered.

        values: the initial value of each variable, in the same order; the server takes them if the job awaits its
        variables. num_samples: the size of the training data, which train_input_reader.num_epochs counts.
        device: what the program computes on, for `psctl status` and the checkpoints. rounding: clones with different
        texts here may compute different last bits, of which a synchronous job warns once; empty: not known.

        When it returns, an earlier connection of this clone in this process has ended: its calls raise Error.

        Raises InvalidArgumentError if a variable cannot be declared, and FailedPreconditionError, which names the first
        difference, if the job has other variables, or has the same ones with other options or frozen ones. Raises Error
        if the connection has registered already.
        """
        if self._stopped:
            raise StoppedError("this connection was stopped before or while it registered; connect again")
        if self._registers:
            raise Error("this connection has registered already, or was interrupted while it did; connect again")
        num_samples = operator.index(num_samples)
        arguments = _StartArguments(variables, values)
        self._registers = True  # and stays so after an exception such as KeyboardInterrupt
        try:
            self._do(self._library.pushpull_clone_computes_on, device.encode(), rounding.encode())
            self._do(self._library.pushpull_clone_start, arguments.entries, len(variables), arguments.values,
                     num_samples)
        except Exception:
            self._registers = False
            raise
        self._end_others()

    def _end_others(self) -> None:
        """Ends the earlier connections of this clone in this process."""
        for other in _connections():
            if other._session == self._session and other._number < self._number:
                other._end_as_replaced()

    def _end_as_replaced(self) -> None:
        """Ends the connection, because the server takes nothing from it any more. May be called by any thread."""
        self._replaced = True  # before a call that waits returns
        self.stop()

    @property
    def total_elements(self) -> int:
        """The length of the flat vectors. To be read after `start`."""
        return int(self._library.pushpull_clone_total_elements(self._handle()))

    def offset(self, index: int) -> int:
        """Returns the position of a variable in the flat vectors. To be called after `start`."""
        return int(self._library.pushpull_clone_offset(self._handle(), index))

    def _array(self, address: int) -> FloatArray:
        if address not in self._arrays:
            pointer = ctypes.cast(address, _library.FloatPointer)
            self._arrays[address] = numpy.ctypeslib.as_array(pointer, (self.total_elements,))
        return self._arrays[address]

    def next_batch(self, tick: Callable[[], None] = lambda: None, or_open: bool = False) -> Optional[RawBatch]:
        """Blocks until there is a batch to compute. Returns None when training has ended; see `last_weights`.

        tick: called a few times a second while the clone waits. or_open: if the last batch has neither been finished nor
        given up, return it again; otherwise that raises FailedPreconditionError.
        """
        batch = self._batch
        # An exception such as KeyboardInterrupt may have ended the call before this one after it had taken a batch.
        while self._returned or batch.over or not batch.gradient:
            handle = self._handle()
            # Whatever ends this call early, the next one must not take the last batch for a new one.
            batch.gradient, batch.over = None, 0
            self._returned = False
            code = self._library.pushpull_clone_next(handle, POLL_MILLISECONDS, ctypes.byref(batch))
            if code == _library.OK:
                break
            if or_open and code == _library.FAILED_PRECONDITION and not batch.over and self._last is not None:
                self._returned, batch.version = True, self._last.version
                return self._last
            if self._check is not None:
                self._check()
            if code != _library.DEADLINE_EXCEEDED or batch.over:  # over: the server was given up
                raise self._fail(code)
            self._reporter.report(self.progress, at_once=True)
            tick()
        if batch.over:
            self._reporter.report(self.progress, at_once=True)
            return None
        raw = RawBatch(batch.replica, batch.position, batch.version, batch.first_sample, batch.samples,
                       self._array(batch.weights), self._array(batch.gradient))
        self._last = raw
        self._returned = True
        return raw

    @property
    def last_weights(self) -> Optional[FloatArray]:
        """A copy of the last weights that the clone has pulled, once `next_batch` has returned None.

        None: the clone has pulled none.
        """
        if not self._batch.over or not self._batch.weights:
            return None
        return self._array(self._batch.weights).copy()

    @property
    def last_version(self) -> int:
        """The version of `last_weights`, or of the weights of the last batch."""
        return int(self._batch.version)

    def advance(self, first_final: int) -> None:
        """Says that the gradient's elements from `first_final` on are final, so that they can be sent. Never blocks.

        Values must fall from call to call.
        """
        self._call_from_any_thread(self._library.pushpull_clone_advance, first_final)

    def finish(self, samples: int, loss: float, metrics: Optional[Mapping[str, float]] = None) -> None:
        """Ends the batch: the whole gradient is final, and the mean over `samples` samples. Does not block.

        The gradient is sent afterwards. It has certainly counted once `next_batch` has returned the next batch (with
        local steps, the next round's) or None; `close` before that may drop it, see there.

        A loss that is not finite makes the contribution void, see train_config.non_finite_policy. metrics: means over
        the samples by TensorBoard tag.

        Raises TypeError or ValueError, and the batch can still be finished, if `samples` is no integer from 1 to 2^32.
        """
        samples = check_samples(samples)
        entries = (_library.Metric * len(metrics or {}))()
        for entry, (name, value) in zip(entries, (metrics or {}).items()):
            entry.name, entry.value = name.encode(), value
        self._returned = True
        code = self._library.pushpull_clone_finish(self._handle(), samples, loss, entries, len(entries))
        if code != _library.OK:
            raise self._fail(code)
        self._reporter.report(self.progress, at_once=False)

    def give_up(self, message: str) -> None:
        """Gives the batch up because it cannot be computed. The clone ends."""
        if self._replaced:
            return  # the clone has ended here, and its new connection has the batch
        self._returned = True
        self._library.pushpull_clone_give_up(self._handle(), message.encode())

    def progress(self) -> Progress:
        """Returns the clone's figures."""
        figures = _library.Progress()
        waiting_for = ctypes.create_string_buffer(512)
        self._call_from_any_thread(self._library.pushpull_clone_progress, ctypes.byref(figures), waiting_for,
                                   len(waiting_for))
        return Progress(step=figures.step, num_steps=figures.num_steps, loss=figures.loss,
                        learning_rate=figures.learning_rate, samples_per_second=figures.samples_per_second,
                        samples=figures.samples, staleness=figures.staleness,
                        waiting_for=waiting_for.value.decode(errors="replace"))

    def sample(self, num_examples: int, position: int, replica: int, shuffle: bool = True, first_sample: int = 0,
               samples: int = 0) -> list[int]:
        """Returns the examples of a replica's batch, which depend on the job's seed and the arguments only.

        first_sample, samples: of the RawBatch; in a synchronous job the examples are those of this part. samples=0:
        those of an equal part for each of num_clones.
        """
        sampling = _library.Sampling(sync=self.job.sync, shuffle=shuffle, seed=self.job.seed, num_examples=num_examples,
                                     batch_size=self.job.batch_size, num_replicas=self.num_clones,
                                     first_sample=first_sample, samples=samples)
        indices = (ctypes.c_int64 * self.job.batch_size)()
        count = self._library.pushpull_sample_batch(ctypes.byref(sampling), position, replica, indices, len(indices))
        if count < 0:
            raise InvalidArgumentError(
                f"no batch can be drawn for replica {replica} of {self.num_clones} with train_config.batch_size: "
                f"{self.job.batch_size} from {num_examples} examples; each of the three must be at least 1, and in a "
                "synchronous job a batch needs one sample for each clone")
        return indices[:count]
