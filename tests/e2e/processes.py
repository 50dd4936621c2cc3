"""Starts our binaries as processes that die with the Python process that starts them. Standard library only.

The binaries' folder comes from PUSHPULL_BIN_DIR (set by ctest), by default build/bin of this checkout.
"""
import atexit
import os
import pathlib
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PUSHPULL_BIN_DIR", ROOT / "build" / "bin"))
PATIENCE_S = 120  # of any process that should end by itself


def dies_with_us():
    """The words before a command whose process the kernel kills when the calling thread ends.

    The shell looks whether its parent is still the one that asked: a parent that died before setpriv had its turn sends
    no signal any more. Every word replaces the process by the next one, so its pid is the command's.
    """
    return ("setpriv", "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] || exit 1; exec "$@"',
            str(os.getpid()))


class Warden:
    """Kills process groups when this process is gone, however it went.

    The kernel's signal of dies_with_us() reaches a process only, not what that one has started; a clone that is stopped
    by SIGSTOP outlives its supervisor. The warden is a shell in a session of its own. Each line it reads replaces the
    list of groups; at the end of its input, which comes when this process is gone, it kills the groups listed last.
    """
    SCRIPT = ('while read -r line; do groups=$line; done; '
              'for group in $groups; do kill -s KILL -- "-$group"; done')

    def __init__(self):
        self._groups = set()
        self._shell = None

    def _tell(self):
        if self._shell is None:
            self._shell = subprocess.Popen(["sh", "-c", self.SCRIPT], stdin=subprocess.PIPE,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                           start_new_session=True)
            atexit.register(self.close)
        line = " ".join(map(str, sorted(self._groups))) + "\n"
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()

    def watch(self, group):
        self._groups.add(group)
        self._tell()

    def forget(self, group):
        """Before its number can be another group's."""
        self._groups.discard(group)
        self._tell()

    def close(self):
        self._shell.stdin.close()
        self._shell.wait()


WARDEN = Warden()


class Process:
    """One of our binaries, its output in a file, in a process group of its own. Start it from a thread that stays."""

    def __init__(self, log, name, *arguments, stdout=None, env=None, prefix=()):
        """prefix: a command that ends by starting ours, such as `ip netns exec HOST`."""
        self.log_path = pathlib.Path(log)
        self.log = open(log, "ab")
        self.popen = subprocess.Popen(
            [*dies_with_us(), *prefix, str(BIN / name), *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=stdout or self.log, stderr=self.log, start_new_session=True, env=env)
        WARDEN.watch(self.popen.pid)

    def wait(self, timeout=PATIENCE_S):
        """Exit code; the output is part of the failure when it does not end."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.text()}") from None

    def kill(self, number=signal.SIGKILL):
        if self.popen.poll() is None:
            os.kill(self.popen.pid, number)

    def end(self):
        """For clean-up: nothing of the process group stays."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()
        WARDEN.forget(self.popen.pid)
        self.log.close()

    def text(self):
        return self.log_path.read_text(errors="replace")

    def wait_for(self, words, timeout=PATIENCE_S):
        """Blocks until the output has the words."""
        deadline = time.monotonic() + timeout
        while words not in self.text():
            if self.popen.poll() is not None and words not in self.text():
                raise AssertionError(f"ended without saying {words!r}:\n{self.text()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"did not say {words!r} in {timeout} s:\n{self.text()}")
            time.sleep(0.05)


def children(pid):
    """The processes that a process's main thread has started and that are still there."""
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def clone_pids(pid):
    """Number -> process of the clones that a worker runs."""
    found = {}
    for child in children(pid):
        try:
            words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        for word in words:
            if word.startswith(b"--clone_index="):
                found[int(word.split(b"=")[1])] = child
    return found


def resident_bytes(pid, field="VmRSS"):
    """Of a process that runs; ProcessLookupError or FileNotFoundError: it does not."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def send(pid, number):
    """A signal to a process that may be gone; whether it was there."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False
