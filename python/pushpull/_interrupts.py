"""Waits in the library that Ctrl-C ends, and handlers of the signals that stop a program."""
from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Optional

POLL_MILLISECONDS = 200  # how long a wait in the library lasts before Python can handle a signal


def handle_stop_signals(handler: Callable[[int, Optional[FrameType]], Any]) -> None:
    """Sets the handler of SIGTERM and SIGINT. To be called in the main thread.

    SIGINT stays ignored if it is: shells ignore it in background jobs, so that Ctrl-C reaches only the foreground job.
    """
    signal.signal(signal.SIGTERM, handler)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


def interruptibly(function: Callable[[], int], stop: Callable[[], None], tick: Callable[[], None]) -> int:
    """Calls a blocking function of the library so that Ctrl-C ends it. Returns its result and raises its exceptions.

    Python handles signals in the main thread between two instructions, so the function runs in another thread. `tick`
    is called a few times a second meanwhile.
    """
    result: list[int] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(function())
        except BaseException as error:  # pylint: disable=broad-exception-caught
            errors.append(error)

    thread = threading.Thread(target=run, name="pushpull", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(POLL_MILLISECONDS / 1000)
            tick()
    except BaseException as error:
        if thread.ident is None and isinstance(error, Exception):  # there is no room for a thread
            raise
        stop()  # the thread runs, or will in a moment
        with contextlib.suppress(RuntimeError):  # Ctrl-C came before the thread ran
            thread.join()
        raise
    if errors:
        raise errors[0]
    return result[0]
