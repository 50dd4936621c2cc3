"""How a process that a clone of `pushpull worker` has started learns that it is too late for the run.

It does not have the clone's pipe, so the supervisor does not know that it waits for the server. In a folder of the
supervisor's server, a file says that training and the server have ended, and others say which clones were too late.
"""
from __future__ import annotations

import contextlib
import os
import pathlib

from pushpull._reports import report_descriptor
from pushpull.errors import PeerLostError

END_OF_RUN = "PUSHPULL_END_OF_RUN"  # environment variable: the path of the file, or empty if there is no such server


def _mark(path: str, clone: int) -> pathlib.Path:
    return pathlib.Path(f"{path}.{clone}")


def announce_end(path: str) -> None:
    """Says that the run has ended. If the disk is full, does nothing, so that it has to be called again."""
    with contextlib.suppress(OSError):
        pathlib.Path(path).touch()


def was_too_late(path: str, clone: int) -> bool:
    """Whether check_end_of_run has raised in a process of the clone."""
    return _mark(path, clone).exists()


def check_end_of_run(address: str) -> None:
    """Raises PeerLostError in a process that a clone has started and that waits for a server which has ended.

    address: of the server that it waits for.
    """
    path = os.environ.get(END_OF_RUN, "")
    if not path or address != os.environ.get("PUSHPULL_PS") or report_descriptor() is not None:
        return
    if os.path.exists(path):
        with contextlib.suppress(OSError, ValueError):
            _mark(path, int(os.environ.get("PUSHPULL_CLONE", ""))).touch()
        raise PeerLostError("training has ended, and ps_server with it, so there is nothing left to train")
