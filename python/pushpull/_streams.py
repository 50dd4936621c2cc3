"""The pipes from the clones of `pushpull worker`, and the log of its server, read line by line."""
from __future__ import annotations

import os
import time
from typing import IO

MAX_READS = 16  # in a row, of 64 KiB, before the supervisor sees to other things
REFRESH_S = 10.0  # how often a line that a clone refreshes is shown
MAX_LINE_BYTES = 1 << 16  # of a clone's output; a longer line is divided


class Stream:
    """One end of a pipe from a clone, or a file that grows, whose lines are handled one by one.

    A carriage return begins a line anew, as on a terminal. Of a line that a program refreshes in this way, as a progress
    bar, the states that REFRESH_S apart are shown, each as a line.
    """

    def __init__(self, file: IO[bytes], *, is_terminal: bool = True) -> None:
        """is_terminal: whether carriage returns have this meaning; otherwise they are part of the lines."""
        self.file = file
        self._is_terminal = is_terminal
        self._unread = b""
        self._refreshed_at = -float("inf")
        os.set_blocking(file.fileno(), False)

    def lines(self) -> tuple[list[bytes], bool]:
        """Returns complete lines that have arrived, and whether the other end is closed or all of the file is read.

        Of what arrives while it reads, a call leaves the rest after MAX_READS to the next call.
        """
        lines: list[bytes] = []
        for _ in range(MAX_READS):
            try:
                data = os.read(self.file.fileno(), 65536)
            except BlockingIOError:
                return lines, False
            if not data:
                return lines, True
            *complete, self._unread = (self._unread + data).split(b"\n")
            lines += [self._shown(line) for line in complete]
            if self._is_terminal:
                self._drop_old_states(lines)
            if len(self._unread) > MAX_LINE_BYTES:
                lines.append(self._unread)
                self._unread = b""
        return lines, False

    def _shown(self, line: bytes) -> bytes:
        return _last_state(line) if self._is_terminal else line

    def _drop_old_states(self, lines: list[bytes]) -> None:
        """Keeps the last state of the incomplete line. Adds one that is to be shown."""
        end = len(self._unread) - self._unread.endswith(b"\r")  # a carriage return at the end may be part of "\r\n"
        *states, last = self._unread[:end].split(b"\r")
        self._unread = last + self._unread[end:]
        state = next((state for state in reversed(states) if state), b"")
        now = time.monotonic()
        if state and now - self._refreshed_at >= REFRESH_S:
            self._refreshed_at = now
            lines.append(state)

    def rest(self) -> bytes:
        """Returns the incomplete last line."""
        rest, self._unread = self._unread, b""
        return self._shown(rest)


def _last_state(line: bytes) -> bytes:
    """Returns what is seen of a line whose beginning was written anew.

    >>> _last_state(b"50 %\\r100 %"), _last_state(b"line of another system\\r")
    (b'100 %', b'line of another system')
    """
    return line.rstrip(b"\r").rpartition(b"\r")[2]
