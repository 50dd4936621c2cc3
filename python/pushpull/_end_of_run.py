"""How a process that a clone of `pushpull worker` has started learns that it is too late for the run.

It does not have the clone's pipe, so the supervisor does not know that it waits for the server. In a folder of the
supervisor's server, a file says that training and the server have ended, and others say which clones were too late.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Callable

from pushpull._reports import report_descriptor
from pushpull.errors import PeerLostError

END_OF_RUN = "PUSHPULL_END_OF_RUN"  # environment variable: the path of the file, or empty if there is no such server
IN_VAIN_S = 5.0  # how long a wait goes on after the run was said to have ended
LONGEST_GAP_S = 2.0  # between two checks of one wait


def _mark(path: str, clone: int) -> pathlib.Path:
    return pathlib.Path(f"{path}.{clone}")


def announce_end(path: str) -> None:
    """Says that the run has ended. If the disk is full, does nothing, so that it has to be called again."""
    with contextlib.suppress(OSError):
        pathlib.Path(path).touch()


def was_too_late(path: str, clone: int) -> bool:
    """Whether an EndOfRunCheck has raised in a process of the clone."""
    return _mark(path, clone).exists()


class EndOfRunCheck:
    """Ends the calls of one connection that wait for a server which has ended. Used by one thread at a time.

    Applies to processes that a clone has started. A clone that took part in the run and was late for its end, because
    it evaluated, needs a moment to learn of the end from the client library, which first tries to reach the server once
    more. So a wait must have lasted for IN_VAIN_S since the run was said to have ended.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        """address: of the server that the connection belongs to. clock: returns a time in seconds."""
        self._address = address
        self._clock = clock
        self._since = self._last = -float("inf")  # the first and the last call of a wait after the end of the run

    def __call__(self) -> None:
        """To be called a few times a second while the connection waits. Raises PeerLostError if it waits in vain."""
        path = os.environ.get(END_OF_RUN, "")
        if not path or self._address != os.environ.get("PUSHPULL_PS") or report_descriptor() is not None:
            return
        if not os.path.exists(path):
            return
        now = self._clock()
        if now - self._last > LONGEST_GAP_S:
            self._since = now
        self._last = now
        if now - self._since < IN_VAIN_S:
            return
        with contextlib.suppress(OSError, ValueError):
            _mark(path, int(os.environ.get("PUSHPULL_CLONE", ""))).touch()
        raise PeerLostError("training has ended, and ps_server with it, so there is nothing left to train")
