"""Starts our programs as processes that die with the Python process that starts them. Standard library only.

The programs are in the folder PUSHPULL_BIN_DIR (set by ctest), by default in build/bin of this checkout.
"""
import atexit
import os
import pathlib
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PUSHPULL_BIN_DIR", ROOT / "build" / "bin"))
PATIENCE_S = 120  # how long a test waits for a process that should end by itself


def dies_with_us():
    """Returns words to put before a command, so that the kernel kills its process when the calling thread ends.

    If the parent died before setpriv ran, the kernel would send no signal; therefore the shell checks that its parent
    is still the calling process. Each program in the chain replaces the one before it, so the pid stays the same.
    """
    return ("setpriv", "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] || exit 1; exec "$@"',
            str(os.getpid()))


class Warden:
    """Kills process groups when this Python process has ended for whatever reason.

    dies_with_us() covers a process but not its children: a clone that is stopped by SIGSTOP would outlive its
    supervisor. The warden is a shell in a separate session. Each line that it reads replaces the list of groups. Its
    input ends when this process ends; then it kills the groups of the last line.
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
        """Removes a group that has ended, because another group may get its number."""
        self._groups.discard(group)
        self._tell()

    def close(self):
        self._shell.stdin.close()
        self._shell.wait()


WARDEN = Warden()


class Process:
    """A process of one of our programs, in a separate session, with its output in a file.

    Create it from a thread that outlives the process, because the kernel kills the process when this thread ends.
    """

    def __init__(self, log, name, *arguments, stdout=None, stderr=None, env=None, prefix=()):
        """Starts the program `name`. `prefix` is a command that runs it, such as `ip netns exec HOST`."""
        self.log_path = pathlib.Path(log)
        self.log = open(log, "ab")
        self.popen = subprocess.Popen(
            [*dies_with_us(), *prefix, str(BIN / name), *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=stdout or self.log, stderr=stderr or self.log, start_new_session=True, env=env)
        WARDEN.watch(self.popen.pid)

    def wait(self, timeout=PATIENCE_S):
        """Waits for the end and returns the exit code. Kills the process after `timeout` seconds and raises
        AssertionError with its output."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.text()}") from None

    def kill(self, number=signal.SIGKILL):
        if self.popen.poll() is None:
            os.kill(self.popen.pid, number)

    def end(self):
        """Kills the whole process group and closes the log."""
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
        """Blocks until the output contains `words`. Raises AssertionError if the process ends or time is over first."""
        deadline = time.monotonic() + timeout
        while words not in self.text():
            if self.popen.poll() is not None and words not in self.text():
                raise AssertionError(f"ended without saying {words!r}:\n{self.text()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"did not say {words!r} in {timeout} s:\n{self.text()}")
            time.sleep(0.05)


def children(pid):
    """Returns the pids of the child processes that the main thread of a process has started."""
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def clone_pids(pid):
    """Returns clone index -> pid of the running clones of a worker."""
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
    """Returns the resident memory of a process. Raises ProcessLookupError or FileNotFoundError if it has ended."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def send(pid, number):
    """Sends a signal to a process that may have ended. Returns whether the process existed."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False
