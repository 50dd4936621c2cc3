"""The figures of a clone, and how a clone of `pushpull worker` sends them to its supervisor: one line of JSON each,
written to a pipe.
"""
from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Optional

from pushpull._output import say

# Environment variable: the pipe for a clone's reports, as its descriptor, device and inode with colons between them.
REPORT_DESCRIPTOR = "PUSHPULL_REPORT_DESCRIPTOR"
REPORT_PERIOD_S = 0.2
WAIT_OF_SPARE = "a replica (this clone is a spare)"  # of the client library: what a clone without a replica waits for
NOTICE_S = 3.0  # how long a call waits before it says so on stderr


@dataclasses.dataclass(frozen=True)
class Progress:
    """The figures of a clone."""
    step: int  # 0: no contribution yet
    num_steps: int
    loss: float
    learning_rate: float
    samples_per_second: float
    samples: int  # contributed by this clone since it connected
    staleness: int  # in versions
    waiting_for: str  # what the clone waits for, or empty


def without_spares(reports: Sequence[Progress]) -> list[Progress]:
    """Returns the reports of the clones that have a replica, or all reports if there are none.

    A spare hinders nobody, and its figures are those of the time when it had a replica.

    >>> train, spare = Progress(9, 0, 0.5, 0.1, 3.0, 4, 0, ""), Progress(2, 0, 0.5, 0.1, 3.0, 4, 0, WAIT_OF_SPARE)
    >>> without_spares([spare, train]) == [train], without_spares([spare]) == [spare]
    (True, True)
    """
    return [report for report in reports if report.waiting_for != WAIT_OF_SPARE] or list(reports)


def encode_report(progress: Progress) -> bytes:
    """Returns the line that a clone sends to its supervisor."""
    return (json.dumps(vars(progress)) + "\n").encode()


def decode_report(line: bytes) -> Optional[Progress]:
    """Returns the report in a line, or None if it is not one.

    >>> decode_report(encode_report(Progress(1, 2, 0.5, 0.1, 3.0, 4, 0, ""))).step
    1
    >>> decode_report(b"no report") is None
    True
    """
    try:
        return Progress(**json.loads(line))
    except (ValueError, TypeError):
        return None


def describe_pipe(descriptor: int) -> str:
    """Returns the value of REPORT_DESCRIPTOR for a pipe."""
    status = os.fstat(descriptor)
    return f"{descriptor}:{status.st_dev}:{status.st_ino}"


def report_descriptor() -> Optional[int]:
    """Returns the descriptor for reports to the supervisor, or None if this process has no supervisor.

    A process that a clone has started inherits the variable, but seldom the pipe; its descriptor may be any other file.
    """
    value = os.environ.get(REPORT_DESCRIPTOR, "")
    try:
        descriptor = int(value.partition(":")[0])
        return descriptor if describe_pipe(descriptor) == value else None
    except (ValueError, OverflowError, OSError):
        return None


def send_report(progress: Progress) -> None:
    """Sends a report to the supervisor, if there is one. Never blocks and never fails."""
    descriptor = report_descriptor()
    if descriptor is None:
        return
    try:
        os.write(descriptor, encode_report(progress))
    except OSError:  # the supervisor reads too slowly or has ended; only this report is lost
        pass


class Reporter:
    """Reports the progress of one clone to the supervisor, if there is one. Not thread-safe."""

    def __init__(self) -> None:
        self._has_supervisor = report_descriptor() is not None
        self._reported_at = -float("inf")

    def report(self, progress: Callable[[], Progress], at_once: bool) -> None:
        """To be called after each batch and while the clone waits.

        progress: returns the clone's figures. at_once: report even if the last report is less than REPORT_PERIOD_S old.
        """
        now = time.monotonic()
        if self._has_supervisor and (at_once or now - self._reported_at >= REPORT_PERIOD_S):
            self._reported_at = now
            send_report(progress())


class WaitNotice:
    """Says what one blocking call waits for: to the supervisor, or once on stderr if there is none. Not thread-safe."""

    def __init__(self, progress: Callable[[], Progress]) -> None:
        """progress: returns the clone's figures while the call blocks."""
        self._progress = progress
        self._has_supervisor = report_descriptor() is not None
        self._began = time.monotonic()
        self._told = False

    def tick(self) -> None:
        """To be called a few times a second while the call blocks."""
        # The supervisor itself waits for three seconds before it shows a wait.
        if not self._has_supervisor and (self._told or time.monotonic() - self._began < NOTICE_S):
            return
        progress = self._progress()
        if not progress.waiting_for:
            return
        self._told = True
        if self._has_supervisor:
            send_report(progress)
        else:
            say(f"waiting for {progress.waiting_for}")

    def finish(self) -> None:
        """Tells the supervisor that the wait is over. To be called when the call has succeeded."""
        if self._told and self._has_supervisor:
            send_report(self._progress())
