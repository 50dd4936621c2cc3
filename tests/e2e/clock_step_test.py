"""Setting the date while a job runs does not affect steps, leases, checkpoints or the end of the processes.

A preloaded library (testkit/shifted_clock) shifts the wall clock that the programs read, but not the kernel's. A clock
ahead of the kernel's acts like a date that is set back during every timed wait, a clock behind it like a date that is
set forward.
"""
import mmap
import os
import pathlib
import re
import signal
import struct
import time

from harness import BIN, main
from administrators import AdministratorTest

LIBRARY = pathlib.Path(os.environ.get("PUSHPULL_SHIFTED_CLOCK", BIN.parent / "lib" / "libshifted_clock.so"))
HOUR_S = 3600
LEASE_S = 6  # a clone whose waits are right is not silent for that long, even on a busy machine
SHORT_LEASE_S = 2  # of a test in which clones may be lost
SECONDS_TO_END = 30  # generous for a busy machine, but far below the hour


class ClockStep(AdministratorTest):

    def setUp(self):
        super().setUp()
        if not LIBRARY.exists():
            self.skipTest(f"{LIBRARY} is not built")
        path = self.folder / "shift"
        path.write_bytes(bytes(8))
        with open(path, "r+b") as file:
            self.shift = mmap.mmap(file.fileno(), 8)
        self.env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "PUSHPULL_CLOCK_SHIFT_FILE": str(path)}

    def step_clock(self, seconds):
        self.shift[:] = struct.pack("=q", int(seconds * 1e9))

    def start(self, log, name, *arguments, **options):
        return super().start(log, name, *arguments, env=self.env, **options)

    def check_shift_of_log(self, process, seconds):
        """Checks that the wall clock of a process's last log line is ahead of this process's by so many seconds."""
        hour, minute, second = map(int, re.findall(r"(?m)^[IW]\d+ (\d\d):(\d\d):(\d\d)\.", process.text())[-1])
        now = time.localtime()
        ahead = hour * 3600 + minute * 60 + second - (now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec)
        self.assertLess((ahead - seconds + 600) % 86400, 1200, "the library does not shift the clock")

    def check_steps(self, *steps):
        """Checks a job whose wall clock is shifted by each of `steps` seconds in turn."""
        config = self.write_config(steps=1000000)
        server = self.start_server(config, "run", f"--lease={LEASE_S}s")
        worker = self.start_worker("run", 2)
        self.wait_for_step(5)
        # Commits renew a lease too, but a spare makes none.
        spare = self.start("spare.log", "worker", f"--ps={self.address()}", "--num_clones=1", "--num_workers=3",
                           "--worker_index=2")
        server.wait_for("a spare in a job of 2 replicas")
        for seconds in steps:
            self.step_clock(seconds)
            # A clone sends a heartbeat each second.
            time.sleep(2)
            self.wait_for_step(self.status()["version"] + 20)
            self.psctl("checkpoint")
            self.check_shift_of_log(server, seconds)
        # A clone whose heartbeats have stopped loses its lease meanwhile.
        time.sleep(LEASE_S)
        for what in ("has not been heard from", "goes to", "evict"):
            self.assertNotIn(what, server.text(), "a clone has lost its lease")
        self.assertEqual(self.status()["rolled_back_steps"], 0)
        started = time.monotonic()
        for process in (spare, worker):
            process.kill(signal.SIGTERM)
            self.assertEqual(process.wait(SECONDS_TO_END), 143, process.text())
        server.kill(signal.SIGTERM)
        self.assertEqual(server.wait(SECONDS_TO_END), 143, server.text())
        self.assertLess(time.monotonic() - started, SECONDS_TO_END)

    def test_date_is_set_back_and_then_right(self):
        self.check_steps(HOUR_S, 20)

    def test_date_is_set_forward_and_then_right(self):
        self.check_steps(-HOUR_S, -20)

    def test_worker_reconnects_after_server_failures(self):
        """Calls end at their deadlines and connections are retried, whatever the date is."""
        config = self.write_config(steps=1000000)
        server = self.start_server(config, "run", f"--lease={SHORT_LEASE_S}s", log="first.log")
        worker = self.start_worker("run", 2)
        self.wait_for_step(5)
        self.step_clock(HOUR_S)
        time.sleep(SHORT_LEASE_S)
        server.kill(signal.SIGKILL)
        server.wait()
        time.sleep(2)
        again = self.start_server(config, "run", f"--lease={SHORT_LEASE_S}s", log="second.log")
        self.wait_for_step(self.status()["version"] + 20)
        again.kill(signal.SIGSTOP)
        time.sleep(3 * SHORT_LEASE_S)
        again.kill(signal.SIGCONT)
        self.wait_for_step(self.status()["version"] + 20)
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(SECONDS_TO_END), 143, worker.text())
        again.kill(signal.SIGTERM)
        self.assertEqual(again.wait(SECONDS_TO_END), 143, again.text())


if __name__ == "__main__":
    main()
