"""The warnings and errors in the log of a ps_server, for `pushpull worker`, which runs one."""
from __future__ import annotations

import collections
import pathlib
import re

from pushpull._streams import Stream

_PREFIX = re.compile(rb"([IWEF])\d{8} \d\d:\d\d:\d\d\.\d+ ")  # level and time, with which each message begins
_MAX_LAST_LINES = 10


class ServerLog:
    """Reads a log while it grows. Never blocks. Not thread-safe.

    A server that is started again appends to the same file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Reads from the beginning of the file. Raises OSError if it cannot be opened."""
        self._stream = Stream(open(path, "rb", buffering=0), is_terminal=False)
        self._is_shown = False  # the last message is a warning or an error
        self._last: collections.deque[bytes] = collections.deque(maxlen=_MAX_LAST_LINES)  # that were not returned

    def trouble(self, ended: bool = False) -> list[bytes]:
        """Returns the lines of warnings and errors that have been written since the last call.

        ended: the server has ended, so that the last line may be incomplete, and everything is read.
        """
        found: list[bytes] = []
        while True:
            lines, is_all = self._stream.lines()
            rest = self._stream.rest() if ended and is_all else b""
            for line in filter(None, [*lines, rest]):
                line = line.replace(b"\r", b"\\r")  # a terminal would write over the line
                if self._shows(line):
                    found.append(line)
                else:
                    self._last.append(line)
            if is_all or not ended:
                return found

    def last_lines(self) -> list[bytes]:
        """Returns the last lines that `trouble` has read and that no call has returned.

        They say why the server was killed if it did not say so in a message, as with an exception of C++.
        """
        lines = list(self._last)
        self._last.clear()
        return lines

    def _shows(self, line: bytes) -> bool:
        """Whether a line belongs to a warning or an error, which may have several lines."""
        prefix = _PREFIX.match(line)
        if prefix is not None:
            self._is_shown = prefix[1] != b"I"
        return self._is_shown

    def close(self) -> None:
        """Closes the file."""
        self._stream.file.close()
