"""Finds the client library, libpushpull_client.so, and binds its functions (worker/client/pushpull_client.h).

The structures and prototypes below repeat that header. ctypes releases the interpreter's lock while a function runs.
"""
from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from collections.abc import Sequence

from pushpull.errors import InstallationError

CLIENT_VERSION = 3  # PUSHPULL_CLIENT_VERSION of the header
LIBRARY = "libpushpull_client.so"
PACKAGE = pathlib.Path(__file__).resolve().parent
NATIVE = PACKAGE / "_native"  # where the wheel has the library and the programs

OK = 0
CANCELLED = 1
DEADLINE_EXCEEDED = 4
FAILED_PRECONDITION = 9

FloatPointer = ctypes.POINTER(ctypes.c_float)


class CloneOptions(ctypes.Structure):
    """PushpullCloneOptions."""
    _fields_ = [("ps", ctypes.c_char_p), ("worker_id", ctypes.c_uint32), ("num_replicas", ctypes.c_uint32),
                ("session", ctypes.c_uint64), ("process_number", ctypes.c_uint64), ("peer_name", ctypes.c_char_p),
                ("peer_deadline_seconds", ctypes.c_double), ("shared_memory", ctypes.c_int32),
                ("tls_ca", ctypes.c_char_p), ("tls_cert", ctypes.c_char_p), ("tls_key", ctypes.c_char_p),
                ("insecure", ctypes.c_int32), ("gradient_precision", ctypes.c_char_p),
                ("weight_precision", ctypes.c_char_p)]


class Job(ctypes.Structure):
    """PushpullJob."""
    _fields_ = [("sync", ctypes.c_int32), ("tasks", ctypes.c_int32), ("seed", ctypes.c_uint64),
                ("batch_size", ctypes.c_uint64), ("num_steps", ctypes.c_uint64), ("version", ctypes.c_uint64),
                ("awaits_variables", ctypes.c_int32), ("external_name", ctypes.c_char_p),
                ("pipeline_config", ctypes.c_char_p)]


class Variable(ctypes.Structure):
    """PushpullVariable."""
    _fields_ = [("name", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_int32),
                ("moving_statistic", ctypes.c_int32), ("l2_weight", ctypes.c_float),
                ("learning_rate_multiplier", ctypes.c_float), ("frozen", ctypes.c_int32),
                ("moving_average_decay", ctypes.c_float)]


class Batch(ctypes.Structure):
    """PushpullBatch."""
    _fields_ = [("over", ctypes.c_int32), ("replica", ctypes.c_uint32), ("position", ctypes.c_uint64),
                ("version", ctypes.c_uint64), ("first_sample", ctypes.c_uint64), ("samples", ctypes.c_uint64),
                ("weights", ctypes.c_void_p), ("gradient", ctypes.c_void_p)]


class Metric(ctypes.Structure):
    """PushpullMetric."""
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class Progress(ctypes.Structure):
    """PushpullProgress."""
    _fields_ = [("step", ctypes.c_uint64), ("num_steps", ctypes.c_uint64), ("loss", ctypes.c_double),
                ("learning_rate", ctypes.c_double), ("samples_per_second", ctypes.c_double),
                ("samples", ctypes.c_uint64), ("staleness", ctypes.c_uint64)]


class Sampling(ctypes.Structure):
    """PushpullSampling."""
    _fields_ = [("sync", ctypes.c_int32), ("shuffle", ctypes.c_int32), ("seed", ctypes.c_uint64),
                ("num_examples", ctypes.c_int64), ("batch_size", ctypes.c_int64), ("num_replicas", ctypes.c_int32),
                ("first_sample", ctypes.c_uint64), ("samples", ctypes.c_uint64)]


_CLONE = ctypes.c_void_p
_PROTOTYPES: dict[str, tuple[object, Sequence[object]]] = {
    "clone_new": (_CLONE, [ctypes.POINTER(CloneOptions)]),
    "clone_free": (None, [_CLONE]),
    "clone_error": (ctypes.c_char_p, [_CLONE]),
    "clone_connect": (ctypes.c_int, [_CLONE]),
    "clone_job": (None, [_CLONE, ctypes.POINTER(Job)]),
    "clone_computes_on": (ctypes.c_int, [_CLONE, ctypes.c_char_p, ctypes.c_char_p]),
    "clone_start": (ctypes.c_int, [_CLONE, ctypes.POINTER(Variable), ctypes.c_int64, ctypes.POINTER(FloatPointer),
                                   ctypes.c_uint64]),
    "clone_total_elements": (ctypes.c_int64, [_CLONE]),
    "clone_offset": (ctypes.c_int64, [_CLONE, ctypes.c_int64]),
    "clone_next": (ctypes.c_int, [_CLONE, ctypes.c_int32, ctypes.POINTER(Batch)]),
    "clone_advance": (None, [_CLONE, ctypes.c_int64]),
    "clone_finish": (ctypes.c_int, [_CLONE, ctypes.c_uint64, ctypes.c_double, ctypes.POINTER(Metric),
                                    ctypes.c_int64]),
    "clone_give_up": (ctypes.c_int, [_CLONE, ctypes.c_char_p]),
    "clone_stop": (None, [_CLONE]),
    "clone_progress": (None, [_CLONE, ctypes.POINTER(Progress), ctypes.c_char_p, ctypes.c_int64]),
    "sample_batch": (ctypes.c_int64, [ctypes.POINTER(Sampling), ctypes.c_uint64, ctypes.c_uint32,
                                      ctypes.POINTER(ctypes.c_int64), ctypes.c_int64]),
    "gradient_precisions": (ctypes.c_char_p, []),
    "weight_precisions": (ctypes.c_char_p, []),
    "client_version": (ctypes.c_int32, []),
}


def library_paths() -> list[pathlib.Path]:
    """Returns where the library may be, in the order in which the places are tried.

    The variable PUSHPULL_CLIENT_LIBRARY names the file. Otherwise the library came with the wheel, or is in the build
    folder of the checkout that this package is in.
    """
    named = os.environ.get("PUSHPULL_CLIENT_LIBRARY")
    if named:
        return [pathlib.Path(named)]
    return [NATIVE / "lib" / LIBRARY, PACKAGE.parents[1] / "build" / "lib" / LIBRARY]


def program_paths(name: str) -> list[pathlib.Path]:
    """Returns where a program such as `ps_server` may be, in the order in which the places are tried.

    The variable PUSHPULL_BIN_DIR names the folder. Otherwise the program came with the wheel, or is in the build folder
    of the checkout that this package is in, or in a folder of PATH.
    """
    folder = os.environ.get("PUSHPULL_BIN_DIR")
    if folder:
        return [pathlib.Path(folder) / name]
    search = [pathlib.Path(entry) / name for entry in os.get_exec_path() if entry]
    return [NATIVE / "bin" / name, PACKAGE.parents[1] / "build" / "bin" / name, *search]


def find_program(name: str) -> pathlib.Path:
    """Returns the path of a program. Raises InstallationError that lists where it was looked for."""
    paths = program_paths(name)
    for path in paths:
        if path.is_file() and os.access(path, os.X_OK):
            return path
    places = ", ".join(str(path.parent) for path in paths[:2])
    raise InstallationError(f"there is no program {name} in {places}"
                            f"{' or PATH' if len(paths) > 1 else ''}; PUSHPULL_BIN_DIR names another folder")


def open_library(path: pathlib.Path) -> ctypes.CDLL:
    """Loads and binds the library at `path`. Raises InstallationError if it cannot be loaded or does not fit."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise InstallationError(f"{path} cannot be loaded: {error}") from None
    for name, (result, arguments) in _PROTOTYPES.items():
        try:
            function = getattr(library, f"pushpull_{name}")
        except AttributeError:
            raise InstallationError(f"{path} has no function pushpull_{name}") from None
        function.restype = result
        function.argtypes = list(arguments)
    version = library.pushpull_client_version()
    if version != CLIENT_VERSION:
        raise InstallationError(f"{path} has version {version} of the client interface, but this package needs "
                                f"version {CLIENT_VERSION}; install both from one release")
    return library


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Returns the bound library, which is loaded once per process. Raises InstallationError."""
    paths = library_paths()
    for path in paths:
        if path.exists():
            return open_library(path)
    raise InstallationError(f"{LIBRARY} was not found at {' or '.join(map(str, paths))}; build the checkout, install "
                            "the wheel, or name the file in PUSHPULL_CLIENT_LIBRARY")


def check_precision(name: str, value: str) -> None:
    """Checks a gradient_precision or weight_precision; "" is the default. Raises ValueError or InstallationError."""
    if not value:
        return
    known: bytes = getattr(library(), f"pushpull_{name}s")()
    if value not in known.decode().split(", "):
        raise ValueError(f"{name}={value}, expected one of {known.decode()}")
