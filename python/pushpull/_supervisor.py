"""Starts the clones of a Python program, restarts those that die, and shows their output and progress.

A clone is started again if it ends by a signal or with the exit code 143 (SIGTERM stopped it), 201 (its program asks
for it) or 202 (the server came back with other settings). It keeps its session and gets the next process number, by
which the server knows it. Any other failure ends all clones. The kernel kills the clones when the supervisor ends for
any reason: what a clone has not contributed is computed again.
"""
from __future__ import annotations

import dataclasses
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Optional

from pushpull._end_of_run import END_OF_RUN, announce_end, was_too_late
from pushpull._interrupts import handle_stop_signals
from pushpull._output import PatientOutput, patient_outputs, say, write
from pushpull._processes import popen
from pushpull._progress import ProgressLine
from pushpull._reports import (REPORT_DESCRIPTOR, WAIT_OF_SPARE, Progress, decode_report, describe_pipe,
                               without_spares)
from pushpull._server_log import ServerLog
from pushpull._streams import Stream
from pushpull.checkpoint import training_is_done
from pushpull.local_server import LocalServer

EXIT_INTERNAL, EXIT_EVICTED, EXIT_STOPPED = 70, 77, 143
EXIT_PEER_LOST, EXIT_RESTART, EXIT_JOB_CHANGED = 200, 201, 202

POLL_S = 0.1
SETTLED_S = 2.0  # a clone that has trained for this long is started again at once
WAIT_IN_VAIN_S = 10.0  # a clone that waits for so long, after the server of its run has ended, is ended
MAX_RAPID_DEATHS = 20  # so many deaths in a row of a clone that has not
INITIAL_PAUSE_S, MAX_PAUSE_S = 0.2, 10.0
DRAIN_S = 30.0  # how long clones may take to end after SIGTERM
REPETITIONS_S = 1.0  # signals that come sooner after the first one belong to it (common/cli/stop_signal.h)


@dataclasses.dataclass
class Options:
    """What `pushpull worker` was asked to do."""
    ps: str
    num_clones: int  # of this worker
    num_workers: int
    worker_index: int
    command: list[str]  # the program and its arguments
    server: Optional[LocalServer] = None  # is started again if it is killed
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the clones, besides this process's


class _Clone:
    """A clone and its current process."""

    def __init__(self, number: int) -> None:
        self.number = number  # among the clones of this worker
        self.session = secrets.randbits(64) | 1
        self.process_number = 0
        self.process: Optional[subprocess.Popen[bytes]] = None  # None: none runs
        self.outputs: list[tuple[Stream, PatientOutput]] = []  # the process's stdout and stderr, and where each goes
        self.reports: Optional[Stream] = None  # the pipe for the process's reports
        self.report: Optional[Progress] = None  # the last one, perhaps of an earlier process
        # Times of time.monotonic().
        # The first and the last of its latest reports in a row that name a wait; None: the latest one names none.
        self.wait: Optional[tuple[float, float]] = None
        self.training_since: Optional[float] = None  # the process's first report of a step; None: none yet
        self.restart_at: Optional[float] = 0.0  # None: it runs, is done or has left
        self.rapid_deaths = 0  # in a row: of processes that trained for less than SETTLED_S
        self.left = False  # it was evicted
        self.last_death = ""  # how the last process ended or failed to start, for people

    def take(self, report: Progress) -> None:
        """Keeps a report of the current process that has just come."""
        now = time.monotonic()
        self.report = report
        if report.step > 0 and self.training_since is None:
            self.training_since = now
        self.wait = (self.wait[0] if self.wait else now, now) if report.waiting_for else None


def describe_exit(code: int) -> str:
    """Returns what happened to a process, from its return code.

    >>> describe_exit(-9), describe_exit(201)
    ('killed by signal 9', 'exit code 201')
    """
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def is_curable(code: int) -> bool:
    """Whether a new process may succeed where one ended with this return code.

    >>> [is_curable(code) for code in (-9, 143, 201, 202, 1, 65, 200)]
    [True, True, True, True, False, False, False]
    """
    return code < 0 or code in (EXIT_STOPPED, EXIT_RESTART, EXIT_JOB_CHANGED)


class Supervisor:
    """Runs the clones of one worker. Not thread-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clones = [_Clone(number) for number in range(options.num_clones)]
        self._selector = selectors.DefaultSelector()
        self._stdout, self._stderr = patient_outputs()
        self._line = ProgressLine(self._stderr)
        self._signals = 0
        self._first_signal = 0.0
        self._output_is_lost = False  # and this has been said
        self._server_trouble = ""  # why the server could not be started again, or empty
        self._server_log: Optional[ServerLog] = None  # None: it is not open yet
        # When training and, after it, the server of this supervisor were seen to have ended (time.monotonic()).
        self._run_ended_at: Optional[float] = None

    def progress(self) -> tuple[int, int]:
        """Returns the newest step that a clone has reported, and the number of steps; 0: none, or not known."""
        reports = [clone.report for clone in self._clones if clone.report is not None]
        return max((r.step for r in reports), default=0), max((r.num_steps for r in reports), default=0)

    def run(self) -> int:
        """Runs the clones until all have ended. Returns the exit code of the worker.

        If this supervisor runs the server, shows its address and what it warns of.

        0: every clone has ended with 0 or was evicted, or training and then the supervisor's own server have ended and
        clones were too late to take part. 77: all were evicted. 143: stopped by SIGTERM or SIGINT. After a clone has
        died MAX_RAPID_DEATHS times in a row: the code of its last process if that is 128 or more, and 70 if the last one
        was ended by a signal or could not be started. Otherwise the code of the clone that failed for good. Raises
        ServerFailedError if the server that the supervisor runs has failed, and CheckpointError if its last checkpoint
        is damaged.
        """
        handle_stop_signals(self._on_signal)
        try:
            return self._supervise()
        finally:
            self._drain()
            self._finish_output()

    def _finish_output(self) -> None:
        self._line.finish()
        for output in (self._stdout, self._stderr):
            try:
                output.finish()
            except OSError as error:
                self._note_loss(str(error))

    def show_end_of_server(self, server: LocalServer) -> None:
        """Shows what the server has warned of since `run` returned. To be called when the server has ended."""
        self._show_server_log(server, ended=True)
        if self._server_log is not None:
            self._server_log.close()
        self._finish_output()

    def _show_server_log(self, server: LocalServer, ended: bool = False) -> None:
        try:
            if self._server_log is None:
                self._server_log = server.follow_log()
            self._print(b"ps_server", self._server_log.trouble(ended), self._stderr)
        except OSError:  # no descriptor is left; the next call tries again
            pass

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        now = time.monotonic()
        if self._signals and now - self._first_signal < REPETITIONS_S:
            return
        self._first_signal = now
        self._signals += 1

    def _supervise(self) -> int:
        server = self._options.server
        if server is not None:
            self._say(f"ps_server at {server.address}")
        while not self._signals:
            if server is not None:
                self._show_server_log(server)
                self._revive(server)
                self._notice_end_of_run(server)
            for clone in self._clones:
                if clone.restart_at is not None and time.monotonic() >= clone.restart_at:
                    code = self._start_or_try_later(clone)
                    if code is not None:
                        return code
            self._read(POLL_S)
            for clone in self._clones:
                code = self._reap(clone)
                if code is not None:
                    return code
            if all(clone.restart_at is None and (clone.process is None or self._waits_in_vain(clone))
                   for clone in self._clones):
                if any(clone.process is not None for clone in self._clones):
                    self._say("training and ps_server have ended; ending the clones that still wait for ps_server")
                return EXIT_EVICTED if all(clone.left for clone in self._clones) else 0
            self._show()
        return EXIT_STOPPED

    def _revive(self, server: LocalServer) -> None:
        """Starts a killed server again, and shows its last lines. If there is no room, the next call tries again."""
        if server.wait(0.0) not in (None, 0):
            self._show_server_log(server, ended=True)  # while it has nothing of the next process
        try:
            if server.revive():
                self._say("ps_server was killed; starting it again")
                if self._server_log is not None:
                    self._print(b"ps_server", self._server_log.last_lines(), self._stderr)
            self._server_trouble = ""
        except OSError as error:
            if str(error) != self._server_trouble:
                self._say(f"ps_server was killed and could not be started again: {error}; trying until it can be")
            self._server_trouble = str(error)

    def _notice_end_of_run(self, server: LocalServer) -> None:
        """Cancels all planned starts of clones if training and then the server have ended.

        After WAIT_IN_VAIN_S ends the waits for it in processes that clones have started.
        """
        if self._run_ended_at is None:
            if server.wait(0.0) != 0 or not training_is_done(server.train_dir):
                return
            self._run_ended_at = time.monotonic()
        if time.monotonic() - self._run_ended_at >= WAIT_IN_VAIN_S:
            announce_end(server.end_mark)
        for clone in self._clones:
            if clone.restart_at is not None:
                clone.restart_at = None
                self._say(f"training has ended, so clone {clone.number} is not started")

    def _waits_in_vain(self, clone: _Clone) -> bool:
        """Whether the clone's process waits for the server of a run that has ended.

        Other clones, which load data, evaluate or write files, go on until they end or wait.
        """
        if self._run_ended_at is None or clone.wait is None:
            return False
        first, last = clone.wait
        return last - max(first, self._run_ended_at) >= WAIT_IN_VAIN_S

    def _say(self, text: str) -> None:
        self._line.interrupt()
        say(text, self._stderr)

    def _start_or_try_later(self, clone: _Clone) -> Optional[int]:
        """Starts a process of the clone. Treats a failure as the death of the process; see _plan_restart."""
        try:
            self._start(clone)
            return None
        except OSError as error:  # no descriptor, process or memory is left
            if clone.process is not None:
                clone.process.kill()
                clone.process.wait()
                self._forget(clone)
            clone.last_death = f"could not be started: {error}"
            return self._plan_restart(clone, clone.last_death, EXIT_INTERNAL)

    def _start(self, clone: _Clone) -> None:
        options = self._options
        clone.process_number += 1
        clone.restart_at = None
        clone.training_since = clone.wait = None
        reports, reports_of_clone = os.pipe()
        os.set_blocking(reports_of_clone, False)
        environment = {**os.environ, **options.environment, "PYTHONUNBUFFERED": "1", "PUSHPULL_PS": options.ps,
                       "PUSHPULL_CLONE": str(options.worker_index * options.num_clones + clone.number),
                       "PUSHPULL_NUM_CLONES": str(options.num_workers * options.num_clones),
                       "PUSHPULL_SESSION": str(clone.session), "PUSHPULL_PROCESS_NUMBER": str(clone.process_number),
                       END_OF_RUN: options.server.end_mark if options.server is not None else "",
                       REPORT_DESCRIPTOR: describe_pipe(reports_of_clone)}
        try:
            clone.process = popen([sys.executable, "-m", "pushpull._clone", *options.command], signal.SIGKILL,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  pass_fds=(reports_of_clone,), env=environment)
        except OSError:
            os.close(reports)
            raise
        finally:
            os.close(reports_of_clone)
        assert clone.process.stdout is not None and clone.process.stderr is not None
        clone.outputs = [(Stream(clone.process.stdout), self._stdout),
                         (Stream(clone.process.stderr), self._stderr)]
        clone.reports = Stream(os.fdopen(reports, "rb", buffering=0))
        for stream in self._streams(clone):
            self._selector.register(stream.file, selectors.EVENT_READ, (clone, stream))

    def _streams(self, clone: _Clone) -> list[Stream]:
        streams = [stream for stream, _ in clone.outputs]
        return streams + [clone.reports] if clone.reports is not None else streams

    def _read(self, timeout: float) -> None:
        """Waits for output or reports, and handles them."""
        for key, _ in self._selector.select(timeout):
            clone, stream = key.data
            self._handle_lines(clone, stream)

    def _handle_lines(self, clone: _Clone, stream: Stream) -> None:
        lines, ended = stream.lines()
        if ended and stream.file in self._selector.get_map():
            self._selector.unregister(stream.file)
        if stream is clone.reports:
            for line in lines:
                report = decode_report(line)
                if report is not None:
                    clone.take(report)
            return
        for own, target in clone.outputs:
            if own is stream:
                self._print(b"clone %d" % clone.number, lines, target)

    def _print(self, source: bytes, lines: Sequence[bytes], target: PatientOutput) -> None:
        if not lines:
            return
        self._line.interrupt()
        trouble = write(target, b"".join(b"[%s] %s\n" % (source, line) for line in lines))
        if trouble is not None:
            self._note_loss(trouble)

    def _note_loss(self, trouble: str) -> None:
        if not self._output_is_lost:
            self._output_is_lost = True
            self._say(f"output of the clones cannot be written: {trouble}; training goes on without it")

    def _reap(self, clone: _Clone) -> Optional[int]:
        """Handles the end of the clone's process. Returns the worker's exit code if it decides that."""
        code = None if clone.process is None else clone.process.poll()
        if clone.process is None or code is None:
            return None
        self._forget(clone)
        if code == 0:
            return None
        clone.last_death = describe_exit(code)
        if code == EXIT_EVICTED:
            self._say(f"clone {clone.number} was evicted, so it is out of the job; the other clones go on")
            clone.left = True
            return None
        server = self._options.server
        if server is not None and self._run_ended_at is not None and (
                code == EXIT_PEER_LOST or was_too_late(server.end_mark, clone.number)):
            self._say(f"clone {clone.number} ended with {clone.last_death} because training and ps_server have ended")
            return None
        if not is_curable(code):
            self._say(f"clone {clone.number} ended with {clone.last_death}, after which a clone is not started again; "
                      "stopping all")
            return code
        if code == EXIT_STOPPED and self._signals:  # all were told to end
            return code
        what = {EXIT_STOPPED: "was stopped",
                EXIT_JOB_CHANGED: "ended because the server has other settings"}.get(code, "died")
        # The worker's own code says, too, that a restart may help.
        return self._plan_restart(clone, f"{what} ({clone.last_death})",
                                  code if code >= 128 else EXIT_INTERNAL)

    def _plan_restart(self, clone: _Clone, what: str, code_of_giving_up: int) -> Optional[int]:
        """Sets the time at which a clone is started again. After MAX_RAPID_DEATHS returns the worker's exit code.

        what: what has happened to the clone, for people.
        """
        now = time.monotonic()
        pause = 0.0
        if clone.training_since is not None and now - clone.training_since >= SETTLED_S:
            clone.rapid_deaths = 0
        else:
            clone.rapid_deaths += 1
            if clone.rapid_deaths >= MAX_RAPID_DEATHS:
                self._say(f"clone {clone.number} {what}; giving up after {clone.rapid_deaths} failures in a row")
                return code_of_giving_up
            pause = min(INITIAL_PAUSE_S * 2.0**(clone.rapid_deaths - 1), MAX_PAUSE_S)
        clone.restart_at = now + pause
        self._say(f"clone {clone.number} {what}; starting it again "
                  + ("at once" if pause == 0.0 else f"in {pause:g} s"))
        return None

    def _forget(self, clone: _Clone) -> None:
        """Prints what is left of the output of a process that has ended, and closes the pipes.

        A process that it has left behind, such as a worker of a DataLoader, is killed with its group.
        """
        assert clone.process is not None
        _signal_group(clone.process.pid, signal.SIGKILL)
        for stream in self._streams(clone):
            self._handle_lines(clone, stream)
        for stream, target in clone.outputs:
            rest = stream.rest()
            self._print(b"clone %d" % clone.number, [rest] if rest else [], target)
        for stream in self._streams(clone):
            if stream.file in self._selector.get_map():
                self._selector.unregister(stream.file)
            stream.file.close()
        clone.process, clone.outputs, clone.reports = None, [], None

    def _show(self) -> None:
        waiting_for = self._waiting_for()
        reports = [report for report in without_spares([clone.report for clone in self._clones
                                                        if clone.report is not None and not clone.left])
                   if report.step > 0]
        if waiting_for or not reports:
            self._line.wait(waiting_for or "the first step")
        else:
            self._line.update(reports)

    def _waiting_for(self) -> str:
        """What the job waits for, or "". A dead clone comes first, then what a clone reports, then one that starts."""
        dead, starting = "", ""
        for clone in self._clones:
            if clone.process is None and clone.restart_at is not None:
                dead = f"clone {clone.number} of {len(self._clones)} ({clone.last_death})"
            elif clone.process is not None and clone.report is None:
                starting = f"clone {clone.number} of {len(self._clones)} (starting)"
        if dead:
            return dead
        running = [clone.report for clone in self._clones if clone.process is not None and clone.report is not None]
        waits = [report.waiting_for for report in without_spares(running) if report.waiting_for]
        # The wait of a spare counts only if all running clones are spares and none is starting.
        return next((wait for wait in waits if wait != WAIT_OF_SPARE), starting) or "".join(waits[:1])

    def _drain(self) -> None:
        """Ends all clones: asks them to, and kills them after DRAIN_S or after a second signal."""
        running = [clone for clone in self._clones if clone.process is not None]
        for clone in running:
            assert clone.process is not None
            clone.process.terminate()
        deadline = time.monotonic() + DRAIN_S
        while running and time.monotonic() < deadline and self._signals < 2:
            self._read(POLL_S / 4)
            for clone in list(running):
                assert clone.process is not None
                if clone.process.poll() is not None:
                    self._forget(clone)
                    running.remove(clone)
        for clone in running:
            assert clone.process is not None
            self._say(f"clone {clone.number} did not end in time and is killed")
            clone.process.kill()
            clone.process.wait()
            self._forget(clone)


def _signal_group(group: int, number: signal.Signals) -> None:
    """Signals a process group, which may be empty."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass
