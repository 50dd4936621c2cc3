"""Helpers of tests that act as an administrator: calling psctl, finding clone processes, waiting for a status."""
import json
import os
import signal
import subprocess
import time

from harness import BIN, PATIENCE_S, EndToEndTest
from processes import clone_pids, send

FULL = os.environ.get("PUSHPULL_TEST_FULL", "") not in ("", "0")


class AdministratorTest(EndToEndTest):

    def start_server(self, *arguments, **options):
        """Starts a server and waits until it serves."""
        server = super().start_server(*arguments, **options)
        server.wait_for("serving version")
        return server

    def psctl(self, *arguments, run="run", expect=0):
        """Runs psctl and checks its exit code. Returns stdout, or stderr if the expected code is not 0."""
        done = subprocess.run(
            [str(BIN / "psctl"), f"--ps={self.address(run)}", *map(str, arguments)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def status(self, run="run"):
        """Returns the status as a dictionary, with 64-bit numbers as numbers."""
        return json.loads(self.psctl("status", "--output=json", run=run), object_hook=_numbers)

    def wait_until(self, condition, run="run", timeout=PATIENCE_S, what="the status"):
        """Blocks until condition(status) holds and returns that status. Fails after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            status = self.status(run)
            if condition(status):
                return status
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} not within {timeout} s: {status}")
            time.sleep(0.2)  # not shorter, because each status starts a psctl process

    def wait_for_step(self, step, run="run"):
        return self.wait_until(lambda status: status["version"] >= step, run, what=f"step {step}")

    @staticmethod
    def clone_pid(worker, clone):
        """Returns the pid of a worker's clone, which must be running."""
        clones = clone_pids(worker.popen.pid)
        if clone not in clones:
            raise AssertionError(f"clone {clone} does not run")
        return clones[clone]

    def stop_clone(self, worker, clone):
        """Stops a clone by SIGSTOP. It continues when the returned function is called, or when the test ends."""
        pid = self.clone_pid(worker, clone)
        os.kill(pid, signal.SIGSTOP)

        def resume():
            send(pid, signal.SIGCONT)

        self.addCleanup(resume)
        return resume


def clone_of(status, worker_id):
    """Returns the entry of a clone in a status."""
    return next(clone for clone in status["clones"] if clone["worker_id"] == worker_id)


def _numbers(entries):
    """Converts the 64-bit integers of a JSON object, which proto3 writes as strings, to ints."""

    def number(value):
        if isinstance(value, list):
            return [number(item) for item in value]
        return int(value) if isinstance(value, str) and value.isdigit() else value

    return {name: value if name == "run_id" else number(value) for name, value in entries.items()}
