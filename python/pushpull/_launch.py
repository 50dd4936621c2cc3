"""Runs a command that ends with the process that started it. A program of its own: it imports nothing of the package.

usage: python _launch.py PARENT_PID SIGNAL COMMAND...
"""
import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replaces this process by the command, to which the kernel sends SIGNAL when the thread that started it ends."""
    parent, signal_number, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the call above
        sys.exit(0)
    try:
        os.execv(command[0], command)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
