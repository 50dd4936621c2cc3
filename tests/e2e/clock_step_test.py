"""Somebody sets the date while a job runs: steps, leases, checkpoints and the end of the processes do not follow it.

The programs read a wall clock that a preloaded library shifts against the kernel's (testkit/shifted_clock). Ahead of the
kernel's it stands for a date that is set back during every timed wait, behind it for one that is set forward.
"""
import mmap
import os
import pathlib
import signal
import struct
import time
import unittest

from harness import BIN
from operators import OperatorTest

LIBRARY = pathlib.Path(os.environ.get("PUSHPULL_SHIFTED_CLOCK", BIN.parent / "lib" / "libshifted_clock.so"))
HOUR_S = 3600
LEASE_S = 2
SECONDS_TO_END = 30  # what one does not wait for is the hour


class ClockStep(OperatorTest):

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

    def check_steps(self, *steps):
        config = self.write_config(steps=1000000)
        server = self.start_server(config, "run", f"--lease={LEASE_S}s")
        worker = self.start_worker("run", 2)
        self.wait_for_step(5)
        for seconds in steps:
            self.step_clock(seconds)
            # Heartbeats have to go on for longer than a lease lasts.
            time.sleep(2 * LEASE_S)
            self.wait_for_step(self.status()["version"] + 20)
            self.psctl("checkpoint")
        for what in ("expired", "goes to", "evict"):
            self.assertNotIn(what, server.text(), "a clone has lost its lease")
        self.assertEqual(self.status()["rolled_back_steps"], 0)
        started = time.monotonic()
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(SECONDS_TO_END), 143, worker.text())
        server.kill(signal.SIGTERM)
        self.assertEqual(server.wait(SECONDS_TO_END), 143, server.text())
        self.assertLess(time.monotonic() - started, SECONDS_TO_END)

    def test_a_date_set_back_by_an_hour(self):
        self.check_steps(HOUR_S)

    def test_a_date_set_forward_by_an_hour(self):
        self.check_steps(-HOUR_S)

    def test_a_date_set_back_and_forth(self):
        self.check_steps(20, -20, HOUR_S, 0)

    def test_a_server_that_is_gone_is_given_up_and_found_again(self):
        """Calls end at their deadlines, and connections are tried again, whatever the date is."""
        config = self.write_config(steps=1000000)
        server = self.start_server(config, "run", f"--lease={LEASE_S}s", log="first.log")
        worker = self.start_worker("run", 2)
        self.wait_for_step(5)
        self.step_clock(HOUR_S)
        time.sleep(LEASE_S)
        server.kill(signal.SIGKILL)
        server.wait()
        time.sleep(2)
        again = self.start_server(config, "run", f"--lease={LEASE_S}s", log="second.log")
        self.wait_for_step(self.status()["version"] + 20)
        again.kill(signal.SIGSTOP)
        time.sleep(3 * LEASE_S)
        again.kill(signal.SIGCONT)
        self.wait_for_step(self.status()["version"] + 20)
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(SECONDS_TO_END), 143, worker.text())
        again.kill(signal.SIGTERM)
        self.assertEqual(again.wait(SECONDS_TO_END), 143, again.text())


if __name__ == "__main__":
    unittest.main()
