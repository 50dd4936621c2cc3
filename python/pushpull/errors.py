"""The exceptions of the package.

Each carries the exit code that a program should end with (docs/USAGE.md, "Exit codes"). A clone that `pushpull worker`
started ends with that code if it does not catch the exception. All constructors take one message, so that PyTorch's
DataLoader can carry an exception from one process to another.
"""
from __future__ import annotations


class Error(RuntimeError):
    """Base of all exceptions of this package, and the exception for codes that have no class of their own."""
    exit_code = 65


class InstallationError(Error):
    """The client library or a program is missing, or is of another version. `python -m pushpull.doctor` tells more."""
    exit_code = 70


class StoppedError(Error):
    """This process was asked to stop (ParameterServer.stop). A clone that `pushpull worker` started ends with 1 instead
    if its program has called `stop` itself: a new process would do the same.
    """
    exit_code = 143


class JobFailedError(Error):
    """A failure elsewhere, which the message names, has stopped the job."""
    exit_code = 70


class InvalidArgumentError(Error):
    """An argument, a variable or an option is wrong. The message names it."""


class PeerLostError(Error):
    """A server was silent for the peer deadline or cannot be reached now, or a disk is full. A restart may help."""
    exit_code = 200


class JobChangedError(Error):
    """The server was started again with other settings (pipeline config, mode or number of ps tasks) than those that
    this clone connected to. Start the program again, or connect again: it then takes the present settings.
    """
    exit_code = 202


class EvictedError(Error):
    """An administrator has evicted the clone from the job."""
    exit_code = 77


class FailedPreconditionError(Error):
    """The job does not fit this program: it has other data, or other variables, the first of which is named.

    It is also raised if access is refused: by the server, or to a file, such as a key that others can read.
    """


class AbortedError(Error):
    """The batch was given up, so the clone has ended."""
    exit_code = 70


class ModelChangedError(Error):
    """The model has other variables than when it was registered. The message names the first one."""


class ForkedProcessError(Error):
    """A trainer or a connection was used in a process that was forked, such as a worker of a DataLoader."""


class ServerFailedError(Error):
    """The program ps_server of a LocalServer has failed. The message contains its output."""
    exit_code = 70


class CheckpointError(Error):
    """A checkpoint is missing or damaged. With the exit code 200: it cannot be read now, and may be good."""
    exit_code = 66


_NAMES = {2: "UNKNOWN", 5: "NOT_FOUND", 6: "ALREADY_EXISTS", 8: "RESOURCE_EXHAUSTED", 11: "OUT_OF_RANGE",
          12: "UNIMPLEMENTED", 13: "INTERNAL", 15: "DATA_LOSS", 16: "UNAUTHENTICATED"}
_CLASSES: dict[int, type[Error]] = {1: JobFailedError, 3: InvalidArgumentError, 4: PeerLostError, 7: EvictedError,
                                    9: FailedPreconditionError, 10: AbortedError, 14: PeerLostError, 100: JobChangedError}


def error_of(code: int, message: str) -> Error:
    """Returns the exception for a code of absl::StatusCode that is not 0.

    >>> error_of(9, "variable 3 is 'b', expected 'a'")
    FailedPreconditionError("variable 3 is 'b', expected 'a'")
    >>> error_of(100, "other settings").exit_code
    202
    >>> error_of(13, "a bug").args
    ('a bug (INTERNAL)',)
    """
    known = _CLASSES.get(code)
    if known is not None:
        return known(message)
    error = Error(f"{message} ({_NAMES.get(code, f'code {code}')})")
    if code in (2, 13):
        error.exit_code = 70
    elif code == 5:
        error.exit_code = 66
    return error
