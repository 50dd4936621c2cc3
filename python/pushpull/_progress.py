"""Shows the progress of training as the `worker` program does: one line that is refreshed on a terminal, elsewhere one
line every 30 seconds. A clone of `pushpull worker` reports to the supervisor, which shows all clones in one line.
"""
from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import Optional, TextIO, Union

from pushpull._output import PatientOutput, write
from pushpull._reports import REPORT_PERIOD_S, Progress, report_descriptor
from pushpull.parameter_server import ParameterServer


def format_time_left(seconds: float) -> str:
    """Returns a duration in two units at most.

    >>> [format_time_left(s) for s in (35, 41 * 60, 3900, 51 * 3600)]
    ['35s', '41m', '1h05m', '2d03h']
    """
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes == 0:
        return f"{int(seconds)}s"
    if hours == 0:
        return f"{minutes}m"
    if hours < 48:
        return f"{hours}h{minutes % 60:02}m"
    return f"{hours // 24}d{hours % 24:02}h"


def format_progress(reports: Sequence[Progress], seconds_left: Optional[float] = None) -> str:
    """Returns the line for the reports of the clones that train.

    >>> one = Progress(1200, 20000, 1.234, 0.004, 62, 0, 0, "")
    >>> format_progress([one, one], 2460)
    'step 1200/20000 6.0% loss 1.234 lr 0.004 124 samples/s (62+62) staleness 0 eta 41m'
    """
    count = len(reports)
    step, num_steps = max(r.step for r in reports), reports[0].num_steps
    words = [f"step {step}" + (f"/{num_steps} {100 * step / num_steps:.1f}%" if num_steps else "")]
    words.append(f"loss {sum(r.loss for r in reports) / count:.3f} lr {reports[0].learning_rate:.3g}")
    words.append(f"{sum(r.samples_per_second for r in reports):.0f} samples/s")
    if count > 1:
        words.append("(" + "+".join(f"{r.samples_per_second:.0f}" for r in reports) + ")")
    words.append(f"staleness {sum(r.staleness for r in reports) / count:g}")
    if seconds_left is not None:
        words.append(f"eta {format_time_left(seconds_left)}")
    return " ".join(words)


class ProgressLine:
    """Prints progress and waits. Not thread-safe."""

    def __init__(self, out: Union[TextIO, PatientOutput, None]) -> None:
        self._out = out
        self._terminal = out is not None and out.isatty()
        self._shown_at = -float("inf")
        self._unshown = ""
        self._open = False
        self._waiting_for, self._waiting_since = "", 0.0
        self._shown_wait = ""  # what the last shown wait was for
        self._first: Optional[tuple[float, int]] = None  # time and step at which training was first seen

    def update(self, reports: Sequence[Progress]) -> None:
        """Shows the progress if it is time to. Call it at least once a second."""
        now = time.monotonic()
        step, num_steps = max(r.step for r in reports), reports[0].num_steps
        if self._first is None or step < self._first[1]:
            self._first = (now, step)
        left = None
        if num_steps and step > self._first[1]:
            left = (num_steps - step) * (now - self._first[0]) / (step - self._first[1])
        self._waiting_for = ""
        self._unshown = format_progress(reports, left)
        if now - self._shown_at >= (0.2 if self._terminal else 30.0):
            self._show(self._unshown)

    def wait(self, for_whom: str) -> None:
        """Shows what training waits for, once it has waited for three seconds. Call it at least once a second."""
        now = time.monotonic()
        if for_whom != self._waiting_for:
            self._waiting_for, self._waiting_since = for_whom, now
        seconds = now - self._waiting_since
        is_due = now - self._shown_at >= (0.2 if self._terminal else 30.0)
        if seconds >= 3.0 and (is_due or for_whom != self._shown_wait):
            self._shown_wait = for_whom
            self._show(f"waiting for {for_whom} {seconds:.0f} s")

    def finish(self) -> None:
        """Shows the last progress if it has not been shown, and ends the line."""
        if self._unshown:
            self._show(self._unshown)
        self.interrupt()

    def interrupt(self) -> None:
        """Ends a refreshed line, because other output follows."""
        if self._open:
            self._write("\n")
            self._open = False

    def _show(self, line: str) -> None:
        self._shown_at, self._unshown = time.monotonic(), ""
        if self._terminal:
            line = line[:shutil.get_terminal_size().columns - 1]
            self._write(f"\r{line}\x1b[K")
            self._open = True
        else:
            self._write(line + "\n")

    def _write(self, text: str) -> None:
        write(self._out, text)


class OwnLine:
    """Shows the progress of one clone that has no supervisor."""

    def __init__(self, ps: ParameterServer, show: bool) -> None:
        self._ps = ps
        self._line = ProgressLine(sys.stderr) if show and report_descriptor() is None else None
        self._reported_at = -float("inf")

    def tick(self, is_waiting: bool) -> None:
        """To be called after each batch and while the clone waits."""
        if self._line is None:
            return
        now = time.monotonic()
        if now - self._reported_at < REPORT_PERIOD_S and not is_waiting:
            return
        self._reported_at = now
        progress = self._ps.progress()
        if is_waiting and (progress.waiting_for or not progress.step):
            self._line.wait(progress.waiting_for or "the first step")
        elif progress.step:
            self._line.update([progress])

    def finish(self) -> None:
        """Shows the last figures."""
        self._reported_at = -float("inf")
        self.tick(is_waiting=False)
        if self._line is not None:
            self._line.finish()
