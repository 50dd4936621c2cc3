"""Output that training outlives: what cannot be written, because nobody reads it or a disk is full, is lost."""
from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import IO, AnyStr, Optional, TextIO, Union

MAX_UNWRITTEN_BYTES = 1 << 20
CHUNK_BYTES = 4096  # are written at a time
STALL_S = 1.0  # output of which nothing is read for so long is dropped until something is read
END_S = 30.0  # how long a reader may take for the rest of the output


class PatientOutput:
    """An output of a process that must not wait for its reader. A thread writes. Thread-safe.

    A slow reader holds the process up, but one that reads nothing for STALL_S, as a terminal after Ctrl-S, does not.
    """

    def __init__(self, file: Optional[TextIO]) -> None:
        """file: a file that has a descriptor; of others, all that is written is dropped without an error."""
        self._descriptor = -1
        if file is not None:
            with contextlib.suppress(OSError, ValueError):
                file.flush()
                self._descriptor = file.fileno()
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        # _changed guards the following.
        self._unwritten = bytearray()
        self._trouble = ""  # why a part was not written and is lost, or empty
        self._is_stalled = False  # the last write found no room
        self._ends = False  # the thread is to end

    def isatty(self) -> bool:
        """Whether the output is a terminal."""
        return self._descriptor >= 0 and os.isatty(self._descriptor)

    def is_same_as(self, other: PatientOutput) -> bool:
        """Whether both write to one file, pipe or terminal, where the order of what they write is seen."""
        return (self._descriptor >= 0 and other._descriptor >= 0
                and os.path.sameopenfile(self._descriptor, other._descriptor))

    def write(self, text: Union[str, bytes]) -> None:
        """Passes a text on to the thread.

        Raises OSError if this or an earlier text is lost. Blocks for STALL_S at most.
        """
        if self._descriptor < 0:
            return
        data = text.encode(errors="backslashreplace") if isinstance(text, str) else text
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="pushpull output", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the machine has no room for another thread
                    raise OSError(str(error)) from None
                self._thread = thread
            has_room = self._changed.wait_for(lambda: len(self._unwritten) < MAX_UNWRITTEN_BYTES,
                                              0.0 if self._is_stalled else STALL_S)
            self._is_stalled = not has_room
            if has_room:
                self._unwritten += data
                self._changed.notify_all()
            trouble, self._trouble = self._trouble, ""
        if trouble or not has_room:
            raise OSError(trouble or "nobody reads it")

    def flush(self) -> None:
        """Does nothing: the thread writes as soon as it can."""

    def finish(self) -> None:
        """Waits until all is written, for STALL_S if nothing is read and for END_S at most, and ends the thread.

        Raises OSError if something is lost.
        """
        deadline = time.monotonic() + END_S
        with self._changed:
            while self._unwritten and time.monotonic() < deadline:
                unwritten = len(self._unwritten)
                if not self._changed.wait_for(lambda: len(self._unwritten) < unwritten, STALL_S):
                    break
            trouble, self._trouble = self._trouble or ("nobody reads it" if self._unwritten else ""), ""
            thread = self._thread
            if not self._unwritten:  # otherwise the thread may be in a write that never returns
                self._ends, self._thread = True, None
                self._changed.notify_all()
        if thread is not None and self._ends:
            thread.join()
        self._ends = False
        if trouble:
            raise OSError(trouble)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unwritten or self._ends)
                chunk = bytes(self._unwritten[:CHUNK_BYTES])
            if not chunk:
                return
            written, trouble = len(chunk), ""
            try:
                written = os.write(self._descriptor, chunk)
            except BlockingIOError:  # another process that has the file made it non-blocking
                written = 0
                time.sleep(STALL_S / 20)
            except OSError as error:
                trouble = str(error)
            with self._changed:
                del self._unwritten[:written]
                self._trouble = trouble or self._trouble
                self._changed.notify_all()


def patient_outputs() -> tuple[PatientOutput, PatientOutput]:
    """Returns the standard output and error: one object if they are the same file, so that the order is kept."""
    out, err = PatientOutput(sys.stdout), PatientOutput(sys.stderr)
    return out, out if out.is_same_as(err) else err


def write(file: Union[IO[AnyStr], PatientOutput, None], text: AnyStr) -> Optional[str]:
    """Writes and flushes. Returns None, or why the text, or an earlier one, has not been written yet or is lost.

    file: None, as sys.stderr is if it was closed when the process began: does nothing.
    """
    if file is None:
        return None
    try:
        file.write(text)
        file.flush()
    except (OSError, ValueError) as error:  # ValueError: the file is closed
        return str(error)
    return None


def say(text: str, file: Optional[PatientOutput] = None) -> None:
    """Writes a line to the file, by default the standard error."""
    write(sys.stderr if file is None else file, f"pushpull: {text}\n")


def open_closed_streams() -> None:
    """Opens the null device for each standard stream that was closed when this process began.

    Otherwise, the next file or pipe that the process opens would be its standard stream.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))


def drop_unwritten() -> None:
    """Drops what the standard output and error still hold and cannot write.

    The interpreter writes it when it ends, and ends with the exit code 120 if it cannot. Later output may be lost too.
    """
    for file in filter(None, (sys.stdout, sys.stderr)):  # None: it was closed when the process began
        try:
            file.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, file.fileno())
                os.close(null)
