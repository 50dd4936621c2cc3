"""Reads the checkpoints of a train_dir (docs/FORMATS.md) without a server. Needs numpy only."""
from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import pathlib
import re
import struct
import time
import warnings
from collections.abc import Iterator
from typing import Any, Optional, Union

import numpy

from pushpull.errors import CheckpointError
from pushpull.parameter_server import FloatArray

PathLike = Union[str, "os.PathLike[str]"]

_FOLDER = re.compile(r"ckpt-(\d{8,})")
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST_LINE = re.compile(rb'\{"manifest_sha256":"([0-9a-f]{64})",\n')
_EMA_SUFFIX = "/ExponentialMovingAverage"
_ABOUT_THE_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


class UnreadableError(CheckpointError):
    """A file or folder cannot be read now, because of an error of the file system, its permissions or a lack of
    descriptors or memory. It may be good, and a later call may succeed.
    """
    exit_code = 200


def _read_error(path: PathLike, error: OSError) -> CheckpointError:
    """Returns the exception for an error of the system that has prevented the reading of `path`."""
    kind = CheckpointError if error.errno in _ABOUT_THE_PATH else UnreadableError
    return kind(f"{path} cannot be read: {error.strerror}")


class Checkpoint:
    """One checkpoint, whose manifest has been read and verified."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Raises CheckpointError if the manifest is missing or damaged; UnreadableError: it cannot be read now."""
        self.folder = folder
        path = folder / "MANIFEST.json"
        try:
            text = path.read_bytes()
        except OSError as error:
            raise _read_error(path, error) from None
        first = _DIGEST_LINE.match(text)
        if first is None or hashlib.sha256(text[first.end():]).hexdigest().encode() != first[1]:
            raise CheckpointError(f"{path} is damaged: its digest is wrong")
        self.manifest: dict[str, Any] = json.loads(text)
        if self.manifest["format_version"] != 1:
            raise CheckpointError(f"{path} has the format version {self.manifest['format_version']}, expected 1")
        self.step = int(self.manifest["step"])
        # The checkpoint with the higher version is the newer one: the epoch comes before the step.
        self.version = (int(self.manifest["epoch"]), self.step)
        self.run_id = str(self.manifest["run_id"])
        self.training_done = bool(self.manifest["training_done"])

    def load(self, ema: bool = False) -> dict[str, FloatArray]:
        """Returns the variables by name; see `pushpull.load`. Verifies the files' digests."""
        if ema and not self.manifest["has_ema"]:
            raise CheckpointError(f"{self.folder} has no moving averages: the job did not use them")
        shapes = {entry["name"]: tuple(entry["shape"]) for entry in self.manifest["variables"]}
        stored = {}  # name in the file -> name of the variable
        for entry in self.manifest["variables"]:
            name = entry["name"]
            stored[name + _EMA_SUFFIX if ema and not entry["moving_statistic"] else name] = name
        arrays = {name: numpy.zeros(math.prod(shape), numpy.float32) for name, shape in shapes.items()}
        found = dict.fromkeys(shapes, 0)
        for file in self.manifest["files"]:
            for name, offset, values in self._read_shard(file):
                variable = stored.get(name)
                if variable is not None:
                    arrays[variable][offset:offset + values.size] = values
                    found[variable] += values.size
        for name, array in arrays.items():
            if found[name] != array.size:
                raise CheckpointError(f"{self.folder} has {found[name]} of the {array.size} elements of {name}")
        return {name: array.reshape(shapes[name]) for name, array in arrays.items()}

    def _read_shard(self, file: dict[str, Any]) -> Iterator[tuple[str, int, FloatArray]]:
        """Yields the tensors of a safetensors file: name, first element in the whole tensor and flat values."""
        path = self.folder / file["name"]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise _read_error(path, error) from None
        if hashlib.sha256(data).hexdigest() != file["sha256"]:
            raise CheckpointError(f"{path} is damaged: its digest differs from the manifest's")
        size = struct.unpack_from("<Q", data)[0]
        header = json.loads(data[8:8 + size])
        metadata = header.pop("__metadata__", {})
        for name, entry in header.items():
            if entry["dtype"] != "F32":
                raise CheckpointError(f"{path}: {name} has the type {entry['dtype']}, expected F32")
            part = json.loads(metadata.get(f"part/{name}", '{"offset": 0}'))
            begin, end = entry["data_offsets"]
            yield name, part["offset"], numpy.frombuffer(data, "<f4", (end - begin) // 4, 8 + size + begin)


def steps(train_dir: PathLike) -> list[int]:
    """Returns the steps of the checkpoints in a train_dir, of whichever runs, in ascending order."""
    try:
        names = os.listdir(train_dir)
    except OSError as error:
        raise _read_error(train_dir, error) from None
    return sorted(int(match[1]) for match in map(_FOLDER.fullmatch, names) if match)


def _read_run_id(train_dir: pathlib.Path) -> Optional[str]:
    """Returns the number of the run that the folder belongs to, or None if it has no run_id file."""
    path = train_dir / "run_id"
    try:
        text = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _read_error(path, error) from None
    if not _RUN_ID.fullmatch(text):
        raise CheckpointError(f'{path}: expected 32 hex digits; restore it from "run_id" in a MANIFEST.json of this '
                              "run, or remove it")
    return text


def _stamp(folder: pathlib.Path) -> tuple[int, int]:
    """Returns what changes when a checkpoint is replaced. Raises OSError if it is not there."""
    status = folder.stat()
    return status.st_ino, status.st_mtime_ns


class _Reader:
    """Finds the newest checkpoint of a train_dir again and again, and reads no manifest twice.

    If the folder has a run_id file, only checkpoints of the run that it names count.
    """

    def __init__(self, train_dir: PathLike) -> None:
        self._train_dir = pathlib.Path(train_dir)
        self._known: dict[pathlib.Path, tuple[tuple[int, int], Checkpoint]] = {}
        self.of_other_runs: list[int] = []  # the steps of the checkpoints that did not count in the last call

    def newest(self) -> Optional[Checkpoint]:
        """Returns the newest checkpoint, or None if there is none. Warns of damaged ones of later steps, and, once, of
        those of other runs.

        Raises CheckpointError if all are damaged, and UnreadableError if that of a later step cannot be read now.
        """
        found: list[Checkpoint] = []
        problems: list[tuple[int, CheckpointError]] = []
        known = {}
        steps_found = steps(self._train_dir)
        run_id = _read_run_id(self._train_dir)
        for step in steps_found:
            folder = self._train_dir / f"ckpt-{step:08d}"
            try:
                stamp = _stamp(folder)
                old = self._known.get(folder)
                checkpoint = old[1] if old is not None and old[0] == stamp else Checkpoint(folder)
            except FileNotFoundError:
                continue  # it was deleted since it was listed
            except OSError as error:
                problems.append((step, _read_error(folder, error)))
                continue
            except CheckpointError as error:
                if isinstance(error, UnreadableError) or os.path.isdir(folder):
                    problems.append((step, error))
                continue
            known[folder] = (stamp, checkpoint)
            found.append(checkpoint)
        self._known = known
        self._note_other_runs([checkpoint.step for checkpoint in found if run_id not in (None, checkpoint.run_id)])
        own = [checkpoint for checkpoint in found if run_id in (None, checkpoint.run_id)]
        newest = max(own, key=lambda checkpoint: checkpoint.version, default=None)
        later = [problem for step, problem in problems if newest is None or step > newest.step]
        for problem in later:
            if isinstance(problem, UnreadableError):
                raise problem  # that checkpoint may be the newest one
        if newest is None:
            if later:
                raise later[-1]
            return None
        for problem in later:
            warnings.warn(f"{problem}; {newest.folder} is used")
        return newest

    def _note_other_runs(self, others: list[int]) -> None:
        if not set(others) <= set(self.of_other_runs):
            warnings.warn(f"the checkpoints of steps {', '.join(map(str, others))} in {self._train_dir} are of another "
                          "run than its run_id file names, so they do not count")
        self.of_other_runs = others


def open_checkpoint(train_dir: PathLike, step: Optional[int] = None) -> Checkpoint:
    """Opens the checkpoint of a step, or the newest one. `train_dir` may be a checkpoint's own folder.

    The newest one is of the highest epoch and, within it, of the highest step. If the server had to go back to an older
    checkpoint, a damaged one of a later step may be left: a warning names it. Checkpoints of another run than that of
    the folder's run_id file do not count without a step; a warning names them, too.
    """
    folder = pathlib.Path(train_dir)
    if step is not None:
        return Checkpoint(folder / f"ckpt-{step:08d}")
    if _FOLDER.fullmatch(folder.name):
        return Checkpoint(folder)
    reader = _Reader(folder)
    found = reader.newest()
    if found is not None:
        return found
    others = reader.of_other_runs
    raise CheckpointError(f"there is no checkpoint in {folder}" + (
        " of the run that its run_id file names; those of steps "
        f"{', '.join(map(str, others))} are of another run, and step={others[-1]} takes one" if others else ""))


def newest(train_dir: PathLike) -> Optional[Checkpoint]:
    """Returns the newest checkpoint of the folder's run, or None if there is none or no folder.

    Raises CheckpointError if all are damaged or cannot be read now.
    """
    return _Reader(train_dir).newest() if os.path.exists(train_dir) else None


def training_is_done(train_dir: PathLike) -> bool:
    """Returns whether the newest checkpoint says that training has ended. If it cannot be read now, returns False.

    Raises CheckpointError if the checkpoint is damaged.
    """
    try:
        found = newest(train_dir)
    except UnreadableError:
        return False
    return found is not None and found.training_done


def load(train_dir: PathLike, step: Optional[int] = None, ema: bool = False) -> dict[str, FloatArray]:
    """Returns the variables of a checkpoint by name.

    step: which checkpoint; default: the newest one of the run that the file run_id in the folder names. ema: the moving
    averages of the trainable variables instead of the raw ones; moving statistics, which have no average, are the same.

    Raises CheckpointError if the checkpoint is missing or damaged, cannot be read now, or has no moving averages.
    """
    return open_checkpoint(train_dir, step).load(ema)


def watch(train_dir: PathLike, poll_seconds: float = 2.0, wait_seconds: Optional[float] = None) -> Iterator[Checkpoint]:
    """Yields each new checkpoint, beginning with the newest, until that of the end of training.

    For an evaluation in a process of its own. If several are published while the caller works, only the newest is
    yielded. wait_seconds: ends if no checkpoint appears for that long.

    A finished run that is continued with a higher limit still has a checkpoint that says that training is done. Begin
    to watch such a run when it has written its first new checkpoint.

    Checkpoints of another run than that of the folder's run_id file do not count. A warning says what cannot be read
    because of an error that may pass, such as one of the file system or its permissions; the next poll tries again.
    """
    reader, seen_at = _Reader(train_dir), time.monotonic()
    seen: set[tuple[str, tuple[int, int]]] = set()
    while True:
        try:
            found = reader.newest() if os.path.exists(train_dir) else None
        except UnreadableError as error:
            warnings.warn(f"{error}; trying again")
            found = None
        if found is not None and (found.run_id, found.version) not in seen:
            seen.add((found.run_id, found.version))
            yield found
            seen_at = time.monotonic()
        elif wait_seconds is not None and time.monotonic() - seen_at > wait_seconds:
            return
        # The server may publish a checkpoint again, to say that training is done.
        if found is not None and found.training_done:
            return
        time.sleep(poll_seconds)
