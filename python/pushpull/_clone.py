"""Runs a user's program as a clone of `pushpull worker`: python -m pushpull._clone FILE|-m MODULE ARGUMENTS...

Errors of the package end the process with their exit code, and SIGTERM with 143 after the connection is closed. A
program that has stopped its clone itself ends with 1, so that it is not started again.
"""
from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
from types import FrameType
from typing import Optional

from pushpull.errors import Error
from pushpull.parameter_server import stop_all

EXIT_FAILED, EXIT_STOPPED = 1, 143
_was_told_to_stop = False  # by a signal


def _on_signal(number: int, frame: Optional[FrameType]) -> None:
    global _was_told_to_stop  # pylint: disable=global-statement
    _was_told_to_stop = True
    stop_all()  # for clones that other threads wait for
    raise SystemExit(EXIT_STOPPED)


def run(command: list[str]) -> int:
    """Runs a Python file or `-m MODULE` with its arguments as the main module. Returns an exit code."""
    signal.signal(signal.SIGTERM, _on_signal)
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path[0] = os.path.dirname(os.path.realpath(command[0]))  # as Python itself does
            runpy.run_path(command[0], run_name="__main__")
    except Error as error:
        traceback.print_exc()
        # The supervisor starts a clone with the code 143 again, and such a program would stop itself again.
        return EXIT_FAILED if error.exit_code == EXIT_STOPPED and not _was_told_to_stop else error.exit_code
    except KeyboardInterrupt:
        return EXIT_STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
