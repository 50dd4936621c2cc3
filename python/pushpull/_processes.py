"""Starts processes that end with this one."""
from __future__ import annotations

import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Optional

_LAUNCH = str(pathlib.Path(__file__).with_name("_launch.py"))


def popen(command: Sequence[str], death_signal: signal.Signals, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own. It gets `death_signal` when the calling thread has ended."""
    launch = [sys.executable, "-I", "-S", _LAUNCH, str(os.getpid()), str(int(death_signal))]
    return subprocess.Popen([*launch, *command], start_new_session=True, **options)


class Keeper:
    """Runs functions on a thread that lives as long as the process.

    The kernel ends a child when the thread that started it ends. A child that any thread may start needs a parent that
    does not end before the process does.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None

    def _run(self) -> None:
        while True:
            self._tasks.get()()

    def call(self, function: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Calls the function on the thread. Returns its result or raises what it raises."""
        if self._thread is None or not self._thread.is_alive():  # the latter after a fork
            self._thread = threading.Thread(target=self._run, name="pushpull keeper", daemon=True)
            self._thread.start()
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def task() -> None:
            try:
                done.put(function())
            except Exception as error:  # pylint: disable=broad-except
                done.put(error)

        self._tasks.put(task)
        result = done.get()
        if isinstance(result, Exception):
            raise result
        process: subprocess.Popen[bytes] = result
        return process


KEEPER = Keeper()
