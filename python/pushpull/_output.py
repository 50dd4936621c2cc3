"""Output that training outlives: what cannot be written, because nobody reads it or a disk is full, is lost."""
from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, AnyStr, Optional


def write(file: IO[AnyStr], text: AnyStr) -> Optional[str]:
    """Writes and flushes. Returns None, or why the text has not been written yet."""
    try:
        file.write(text)
        file.flush()
    except (OSError, ValueError) as error:  # ValueError: the file is closed
        return str(error)
    return None


def say(text: str) -> None:
    """Writes a line to the standard error."""
    write(sys.stderr, f"pushpull: {text}\n")


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
