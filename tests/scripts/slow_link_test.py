"""scripts/bench/slow_link.py lets through what it should and leaves nothing behind. Most of it needs root and iproute2."""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1)) / "scripts" / "bench" / "slow_link.py"
sys.path.insert(0, str(SCRIPT.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))

import slow_link  # pylint: disable=wrong-import-position
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

SEND = """
import socket
with socket.create_server(("{address}", 8123)) as server:
    server.accept()[0].sendall(bytes(2000000))
"""
RECEIVE = """
import socket, time
for _ in range(600):
    try:
        connection = socket.create_connection(("{address}", 8123))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
begin, size = time.monotonic(), 0
while chunk := connection.recv(1 << 16):
    size += len(chunk)
print(size, time.monotonic() - begin)
"""


def namespaces():
    return subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout


class Messages(unittest.TestCase):

    def test_rates(self):
        self.assertEqual(slow_link.bits_per_second("2.5gbit"), 2.5e9)
        for bad in ("100", "fast", "1gbit/s", "-1mbit"):
            with self.assertRaisesRegex(ValueError, "is not a number with kbit, mbit or gbit"):
                slow_link.bits_per_second(bad)

    def test_says_what_is_missing(self):
        done = subprocess.run([sys.executable, str(SCRIPT), "--rate=1gbit", "--server=true", "--", "true"],
                              stderr=subprocess.PIPE, text=True, env={"PATH": "/none"}, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "slow_link: ip and tc not found: install iproute2\n"))


def link_problem():
    """Returns why this machine cannot make a link; None if it can."""
    try:
        with slow_link.SlowLink() as link:
            link.set_rate("1gbit")
    except RuntimeError as error:
        return str(error)
    return None


PROBLEM = link_problem()


@unittest.skipIf(PROBLEM is not None, f"no link can be made here: {PROBLEM}")
class Links(unittest.TestCase):

    def start(self, *arguments):
        """Starts slow_link.py. It gets SIGTERM, after which it removes everything, when the test or this process ends."""
        process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", sys.executable, str(SCRIPT), *arguments],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, 40)
        self.addCleanup(process.terminate)
        return process

    def test_is_no_faster_than_the_rate(self):
        process = self.start("--rate=20mbit", f"--server={shlex.join([sys.executable, '-c', SEND])}", "--",
                             sys.executable, "-c", RECEIVE)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        size, seconds = map(float, output.split())
        self.assertEqual(size, 2000000)
        self.assertGreater(seconds, 0.9 * 2000000 * 8 / 20e6)
        self.assertNotIn(f"pushpull-{process.pid}", namespaces())

    def test_sigterm_removes_everything(self):
        process = self.start("--rate=1gbit", "--server=sleep 100", "--", "sh", "-c", "echo started; exec sleep 100")
        self.assertEqual(process.stdout.readline(), "started\n")
        self.assertIn(f"pushpull-{process.pid}", namespaces())
        children = subprocess.run(["pgrep", "-P", str(process.pid)], stdout=subprocess.PIPE, text=True,
                                  check=False).stdout.split() if shutil.which("pgrep") else []
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(40), 128 + signal.SIGTERM)
        self.assertNotIn(f"pushpull-{process.pid}", namespaces())
        for child in children:
            self.assertFalse(os.path.exists(f"/proc/{child}"), f"process {child} is still there")
        self.assertFalse(os.path.exists(f"/sys/class/net/pps{process.pid}"))


if __name__ == "__main__":
    main()
