"""The supervisor of `pushpull worker` in this process: what its line shows, and clones that cannot be started."""
import errno
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from support import main

from pushpull import _output, _server_log, _streams, _supervisor
from pushpull._reports import WAIT_OF_SPARE, Progress


def supervisor_of(num_clones):
    """Returns a supervisor, and the list of what it says."""
    supervisor = _supervisor.Supervisor(_supervisor.Options("127.0.0.1:1", num_clones, 1, 0, ["program.py"]))
    supervisor._line = RecordedLine()
    return supervisor, supervisor._line.shown


class RecordedLine:
    """Stands in for the ProgressLine."""

    def __init__(self):
        self.shown = []

    def wait(self, for_whom):
        self.shown.append(f"waiting for {for_whom}")

    def update(self, reports):
        self.shown.append([report.step for report in reports])

    def interrupt(self):
        pass

    finish = interrupt


def report(step, waiting_for=""):
    return Progress(step, 0, 1.0, 0.1, 60.0, 0, 0, waiting_for)


class Line(unittest.TestCase):

    def shown(self, *reports, left=()):
        """Returns what the line shows for running clones with these reports, and for clones that have left."""
        supervisor, said = supervisor_of(len(reports) + len(left))
        for clone, its_report in zip(supervisor._clones, reports + left):
            clone.process, clone.report, clone.restart_at = object(), its_report, None
        for clone in supervisor._clones[len(reports):]:
            clone.process, clone.left = None, True
        supervisor._show()
        return said[0]

    def test_a_spare_does_not_hide_that_the_others_train(self):
        # The first spare has trained until the job was scaled; the second one is new.
        spares = (report(40, WAIT_OF_SPARE), report(0, WAIT_OF_SPARE))
        self.assertEqual(self.shown(*spares, report(100), report(99)), [100, 99])
        self.assertEqual(self.shown(*spares, report(100, "clone 7")), "waiting for clone 7")
        self.assertEqual(self.shown(*spares, report(0)), "waiting for the first step")
        self.assertEqual(self.shown(*spares, None), "waiting for clone 2 of 3 (starting)")
        for left in ((), (report(100),)):
            self.assertEqual(self.shown(*spares, left=left), f"waiting for {WAIT_OF_SPARE}")

    def test_waits_are_those_of_running_clones(self):
        self.assertEqual(self.shown(report(100), report(90, "ps task 0")), "waiting for ps task 0")
        self.assertEqual(self.shown(report(100), left=(report(99),)), [100])


class Signals(unittest.TestCase):

    def test_repetitions_are_not_a_second_signal(self):
        supervisor, _ = supervisor_of(1)
        for seconds, signals in ((10.0, 1), (10.0, 1), (10.9, 1), (11.0, 2)):
            with mock.patch.object(_supervisor.time, "monotonic", return_value=seconds):
                supervisor._on_signal(signal.SIGTERM, None)
            self.assertEqual(supervisor._signals, signals, seconds)


class StartsThatFail(unittest.TestCase):

    def setUp(self):
        for number in (signal.SIGTERM, signal.SIGINT):  # run() installs handlers of its own
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        patch = mock.patch.object(_supervisor, "INITIAL_PAUSE_S", 0.0)
        patch.start()
        self.addCleanup(patch.stop)

    def run_with(self, *failures, num_clones=2):
        """Runs clones that end at once. The first calls that start a process fail. Returns the code and what is said.

        failures: for each of these calls, the function that fails and the error.
        """
        supervisor, _ = supervisor_of(num_clones)
        said = []
        supervisor._say = said.append
        left = list(failures)

        def fails(function, original):

            def call(*arguments, **options):
                if left and left[0][0] == function:
                    error = left.pop(0)[1]
                    raise OSError(error, os.strerror(error))
                return original(*arguments, **options)

            return call

        def start(_, __, **options):
            return subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True, **options)

        gc.collect()  # supervisors of earlier tests, which hold descriptors
        before = os.listdir("/proc/self/fd")
        with mock.patch.object(_supervisor, "popen", fails("popen", start)), \
                mock.patch.object(os, "pipe", fails("pipe", os.pipe)), \
                mock.patch.object(supervisor._selector, "register", fails("register", supervisor._selector.register)):
            code = supervisor.run()
        self.assertEqual(os.listdir("/proc/self/fd"), before, "descriptors are left open")
        self.assertTrue(all(clone.process is None for clone in supervisor._clones))
        return code, said

    def test_a_clone_that_cannot_be_started_is_started_later(self):
        failures = [("pipe", errno.EMFILE), ("popen", errno.EAGAIN), ("popen", errno.ENOMEM),
                    ("register", errno.ENOSPC)]
        code, said = self.run_with(*failures)
        self.assertEqual(code, 0, said)
        self.assertEqual(len(said), len(failures), said)
        for line, (_, error) in zip(said, failures):
            self.assertRegex(line, rf"clone [01] could not be started: .*{os.strerror(error)}; starting it again")

    def test_a_clone_that_can_never_be_started_is_given_up(self):
        code, said = self.run_with(*[("popen", errno.EAGAIN)] * _supervisor.MAX_RAPID_DEATHS, num_clones=1)
        self.assertEqual(code, _supervisor.EXIT_INTERNAL)
        self.assertIn(f"giving up after {_supervisor.MAX_RAPID_DEATHS} failures in a row", said[-1])

    def test_a_clone_that_always_dies_passes_on_a_code_after_which_a_restart_may_help(self):
        for code, of_worker in ((143, 143), (201, 201), (202, 202), (-9, 70)):
            with self.subTest(code=code):
                supervisor, _ = supervisor_of(1)
                supervisor._say = said = mock.Mock()
                clone, = supervisor._clones
                codes = []
                for _ in range(_supervisor.MAX_RAPID_DEATHS):
                    clone.process = mock.Mock(pid=0)
                    clone.process.poll.return_value = code
                    with mock.patch.object(_supervisor, "_signal_group"):
                        codes.append(supervisor._reap(clone))
                self.assertEqual(codes, [None] * (_supervisor.MAX_RAPID_DEATHS - 1) + [of_worker])
                self.assertIn("giving up after", said.call_args.args[0])

    def test_a_server_that_cannot_be_started_again_is_tried_until_it_can_be(self):
        supervisor, _ = supervisor_of(1)
        said = []
        supervisor._say = said.append
        server = mock.Mock()
        server.wait.return_value = None
        server.revive.side_effect = [False, OSError(errno.EAGAIN, "fork"), OSError(errno.EAGAIN, "fork"), True]
        for _ in range(4):
            supervisor._revive(server)
        self.assertEqual(len(said), 2, said)
        self.assertIn("could not be started again", said[0])
        self.assertIn("ps_server was killed; starting it again", said[1])


class Output(unittest.TestCase):

    def setUp(self):
        reader, self._writer = os.pipe()
        self._stream = _streams.Stream(os.fdopen(reader, "rb", buffering=0))
        self.addCleanup(self._stream.file.close)
        self.addCleanup(os.close, self._writer)
        clock = mock.patch.object(_streams.time, "monotonic", side_effect=lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)
        self.now = 100.0

    def lines(self, *writes):
        """Returns the lines that each of some writes brings."""
        found = []
        for data in writes:
            os.write(self._writer, data)
            lines, ended = self._stream.lines()
            self.assertFalse(ended)
            found.append(lines)
        return found

    def test_lines_that_come_in_parts(self):
        self.assertEqual(self.lines(b"one\ntw", b"o\r", b"\n\nthree"), [[b"one"], [], [b"two", b""]])
        self.assertEqual(self._stream.rest(), b"three")

    def test_a_line_that_is_refreshed_is_shown_now_and_then(self):
        # tqdm begins each state with a carriage return, and ends the last one with a line feed.
        self.assertEqual(self.lines(b"\r 0 %", b"\r 1 %", b"\r 2 %\r 3 %"), [[], [b" 0 %"], []])
        self.now += _streams.REFRESH_S
        self.assertEqual(self.lines(b"\r 4 %", b"\r 5 %", b"\r100 %\nend\n"), [[b" 3 %"], [], [b"100 %", b"end"]])
        self.assertEqual(self._stream.rest(), b"")

    def test_a_clone_that_writes_as_fast_as_it_is_read_does_not_keep_the_call(self):
        reads = [b"line\n"] * 40
        with mock.patch.object(_streams.os, "read", lambda *_: reads.pop() if reads else self.fail("it reads on")):
            for _ in range(2):
                self.assertEqual(self._stream.lines(), ([b"line"] * _streams.MAX_READS, False))

    def test_a_line_without_an_end_takes_no_more_memory_and_time(self):
        state = b"\r" + b"#" * 80
        for _ in range(2000):
            self.lines(state)
        self.assertLess(len(self._stream._unread), 2 * len(state))
        shown = [line for lines in self.lines(*[b"x" * 40000] * 5) for line in lines]
        self.assertEqual([len(line) for line in shown], [80080, 80000])


class ServerLog(unittest.TestCase):

    def test_lines_of_warnings_and_errors_are_shown_as_they_come(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ps_server.log"
            path.touch()
            log = _server_log.ServerLog(path)
            self.addCleanup(log.close)
            for text, shown in (("I20261201 12:00:00.000001 7 a.cc:1] begun\n  and more\nW20261201 12:", []),
                                ("00:00.000002 7 a.cc:2] a warning\n  of two lines\n",
                                 [b"W20261201 12:00:00.000002 7 a.cc:2] a warning", b"  of two lines"]),
                                ("I20261201 12:00:00.000003 7 a.cc:3] E20261201\nE20261201 12:00:00.000004 7 x] bad", [])):
                with open(path, "a", encoding="utf-8") as file:
                    file.write(text)
                self.assertEqual(log.trouble(), shown)
            self.assertEqual(log.trouble(ended=True), [b"E20261201 12:00:00.000004 7 x] bad"])
            self.assertEqual(log.trouble(ended=True), [])

    def test_a_message_with_carriage_returns_is_shown_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ps_server.log"
            path.write_bytes(b"W20261201 12:00:00.000001 7 a.cc:1] the name 'a\rb' is odd\r\n"
                             b"W20261201 12:00:00.000002 7 \r")
            log = _server_log.ServerLog(path)
            self.addCleanup(log.close)
            self.assertEqual(log.trouble(), [b"W20261201 12:00:00.000001 7 a.cc:1] the name 'a\\rb' is odd\\r"])
            self.assertEqual(log.trouble(ended=True), [b"W20261201 12:00:00.000002 7 \\r"])
            with open(path, "ab") as file:
                file.write(b"\n")  # which the next process adds to a line that its predecessor could not end
            self.assertEqual(log.trouble(), [])

    def test_the_last_lines_are_those_that_were_not_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ps_server.log"
            numbered = "".join(f"I20261201 12:00:00.000001 7 a.cc:1] {i}\n" for i in range(20))
            path.write_text(numbered + "terminate called after\nW20261201 12:00:00.000001 7 a.cc:1] shown\n")
            log = _server_log.ServerLog(path)
            self.addCleanup(log.close)
            self.assertEqual(len(log.trouble(ended=True)), 1)
            lines = log.last_lines()
            self.assertEqual(lines[-1], b"terminate called after")
            self.assertEqual([line[-2:] for line in lines[:-1]], [b"%d" % i for i in range(11, 20)])
            self.assertEqual(log.last_lines(), [])


class PatientOutput(unittest.TestCase):

    def setUp(self):
        self._reader, writer = os.pipe()
        self.addCleanup(os.close, self._reader)
        self._file = os.fdopen(writer, "w")
        self.addCleanup(self._file.close)
        self._output = _output.PatientOutput(self._file)
        for name, value in (("STALL_S", 0.2), ("MAX_UNWRITTEN_BYTES", 100000)):
            patch = mock.patch.object(_output, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def read_all(self):
        """Reads all that is written until the other end is closed."""
        parts = []
        while data := os.read(self._reader, 4096):
            parts.append(data)
        return b"".join(parts)

    def test_what_is_read_slowly_is_kept_and_what_is_not_read_is_dropped(self):
        lines = [b"%d " % i * 1000 for i in range(100)]
        lost = 0
        begun = time.monotonic()
        with mock.patch.object(_output, "STALL_S", 0.5):
            for line in lines:
                lost += _output.write(self._output, line) is not None
        self.assertLess(time.monotonic() - begun, 10.0)  # it has waited once, not for each of about 40 lines
        self.assertGreater(lost, 10)
        reader = threading.Thread(target=lambda: self.read.append(self.read_all()))
        self.read = []
        reader.start()
        while _output.write(self._output, b"and again\n") is not None:
            time.sleep(0.01)
        self._output.finish()
        self._file.close()
        reader.join()
        self.assertEqual(self.read[0], b"".join(lines[:len(lines) - lost]) + b"and again\n")

    def test_no_room_for_a_thread(self):
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            self.assertEqual(_output.write(self._output, b"lost"), "can't start new thread")
        self.assertIsNone(_output.write(self._output, "written"))
        self._output.finish()
        self._output.finish()
        self.assertIsNone(_output.write(self._output, " too"))
        self._output.finish()
        self._file.close()
        self.assertEqual(self.read_all(), b"written too")


if __name__ == "__main__":
    main()
