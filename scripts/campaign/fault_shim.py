"""Drives tests/testkit/fault_shim/fault_shim.cc, which makes system calls of the real binaries fail."""
import errno
import mmap
import os
import re
import struct

from processes import BIN

LIBRARY = BIN / "libfault_shim.so"
# Random faults; a sum of them is a set.
NO_SPACE, INPUT_OUTPUT, SHORT_WRITE, SLOW_SYNC, FAILED_READ = 1, 2, 4, 8, 16
ACTIONS = {NO_SPACE: "ENOSPC", INPUT_OUTPUT: "EIO", SHORT_WRITE: "short write", SLOW_SYNC: "slow fsync",
           FAILED_READ: "failed read"}
# Layout of struct Control: clock_offset_ns, random_share, random_actions, slow_ms, random_faults, rules_hit, seed.
CONTROL = struct.Struct("<qIIIIII")
# Parts of recorded paths that differ each time a process starts, with the glob that replaces them.
CHANGING = (
    (re.compile(r"(events\.out\.tfevents)\..*"), r"\1.*"),
    (re.compile(r"(\.part-.*\.safetensors)-\d+-\d+"), r"\1-*"),
    (re.compile(r"ckpt-\d{8}"), "ckpt-*"),
    (re.compile(r"(\.tmp-ckpt-\*)-e\d+"), r"\1-e*"),
    (re.compile(r"\.trash-.*"), ".trash-*"),
    (re.compile(r"[0-9a-f]{32}(-\d+-of-\d+)"), r"*\1"),
    (re.compile(r"\.tmp-(?!ckpt).*"), ".tmp-*"),
)


def missing():
    """Returns what the machine lacks to use the shim, or an empty string."""
    return "" if LIBRARY.exists() else f"no {LIBRARY}: build the target fault_shim"


class Shim:
    """The control file that all processes of a job share, and the environment that makes them load the shim."""

    def __init__(self, path, roots):
        """Creates the control file at `path`. The shim acts only on calls for files below the folders in `roots`."""
        self.path = path
        self.roots = [str(root) for root in roots]
        path.write_bytes(bytes(mmap.PAGESIZE))
        with open(path, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def environment(self, rules=(), record=None):
        """Returns the environment of a process. `rules` is a list of (operation, glob, nth, action), as the shim's
        first comment explains; `record` is a file to which the process appends each call."""
        environment = dict(os.environ, LD_PRELOAD=str(LIBRARY), PUSHPULL_FAULT_ROOTS=":".join(self.roots),
                           PUSHPULL_FAULT_CONTROL=str(self.path),
                           PUSHPULL_FAULT_RULES=";".join("|".join(map(str, rule)) for rule in rules))
        if record is not None:
            environment["PUSHPULL_FAULT_RECORD"] = str(record)
        return environment

    def _get(self, index):
        return CONTROL.unpack_from(self._page)[index]

    def _put(self, offset, form, value):
        struct.pack_into(form, self._page, offset, value)

    def move_clock(self, seconds):
        """Sets the wall clock of all processes to the true time plus `seconds`."""
        self._put(0, "<q", int(seconds * 1e9))

    def fail_at_random(self, share, actions, slow_ms=0, seed=0):
        """Makes a share of the calls (0 to 1) fail from now on; a share of 0 ends it.

        `actions` is a sum of the random faults above, `slow_ms` the duration of a slow fsync.
        """
        self._put(28, "<I", seed & 0xffffffff)
        self._put(16, "<I", slow_ms)
        self._put(12, "<I", actions)
        self._put(8, "<I", int(share * 65536))

    def random_faults(self):
        return self._get(4)

    def rules_hit(self):
        return self._get(5)


def usual_error(operation):
    """Returns the errno with which this call typically fails: EIO of a broken disk or ENOSPC of a full one."""
    return errno.EIO if operation in ("fsync", "close", "read", "open", "rename", "unlink") else errno.ENOSPC


def read_record(path, relative_to):
    """Returns (operation, glob) of each recorded call on a path that begins with `relative_to`, in order."""
    calls = []
    for line in path.read_text(errors="replace").splitlines():
        operation, _, name = line.partition(" ")
        if not name.startswith(str(relative_to)):
            continue
        for pattern, replacement in CHANGING:
            name = pattern.sub(replacement, name)
        calls.append((operation, name))
    return calls
