"""Says what is wrong with an installation: python -m pushpull.doctor"""
from __future__ import annotations

import importlib
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable

from pushpull import __version__, _library
from pushpull.errors import InstallationError

EXIT_PROBLEM = 70
# What x86-64-v2 adds, for which the programs are compiled (PUSHPULL_MARCH in CMakeLists.txt).
_CPU_FEATURES = {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}
_PROGRAMS = ("ps_server", "worker", "evaluator", "psctl")


class Problem(Exception):
    """What is wrong and what to do."""


class Remark(Exception):
    """Something is not there that only some uses need."""


def _check_python() -> str:
    if sys.version_info < (3, 9):
        raise Problem(f"Python {platform.python_version()} is too old, 3.9 or later is needed")
    return f"{platform.python_version()}, pushpull {__version__} in {_library.PACKAGE}"


def _check_cpu() -> str:
    if platform.machine() != "x86_64":
        return f"{platform.machine()}, which is not checked further"
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line.split(":", 1)[1].split() for line in file if line.startswith("flags")), [])
    except OSError:
        raise Remark("/proc/cpuinfo cannot be read, so the processor was not checked") from None
    missing = sorted(_CPU_FEATURES - set(flags))
    if missing:
        raise Problem(f"this processor lacks {', '.join(missing)}; the programs need the level x86-64-v2")
    return "has all instructions that the programs use"


def _check_numpy() -> str:
    try:
        module = importlib.import_module("numpy")
    except ImportError as error:
        raise Problem(f"numpy cannot be imported: {error}") from None
    return str(module.__version__)


def _check_library() -> str:
    try:
        library = _library.library()
    except InstallationError as error:
        raise Problem(str(error)) from None
    return f"{library._name}, version {_library.CLIENT_VERSION} of the interface"


def _check_programs() -> str:
    found, missing, broken = [], [], []
    for name in _PROGRAMS:
        try:
            path = _library.find_program(name)
            result = subprocess.run([str(path), "--version"], capture_output=True, timeout=20, check=False, text=True)
        except InstallationError:
            missing.append(name)
            continue
        except (OSError, subprocess.TimeoutExpired) as error:
            broken.append(f"{path} does not run: {error}")
            continue
        if result.returncode != 0:
            broken.append(f"{path} --version ended with {result.returncode}: {result.stderr.strip()[:500]}")
        found.append(name)
    if "ps_server" in missing:
        _raise_missing("ps_server")
    if broken:
        raise Problem("; ".join(broken))
    if missing:
        raise Remark(f"there is no {', '.join(missing)}; ps_server is all that this package needs")
    return f"{', '.join(found)} in {_library.find_program('ps_server').parent}"


def _raise_missing(name: str) -> None:
    try:
        _library.find_program(name)
    except InstallationError as error:
        raise Problem(str(error)) from None


def _check_torch() -> str:
    try:
        module = importlib.import_module("torch")
    except ImportError as error:
        raise Remark(f"torch cannot be imported ({error}); only pushpull.torch needs it") from None
    if not hasattr(module.Tensor, "register_post_accumulate_grad_hook"):
        raise Problem(f"torch {module.__version__} is too old for pushpull.torch, 2.1 or later is needed")
    return str(module.__version__)


def _check_shared_memory() -> str:
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Problem(f"{folder} cannot be written; servers and clones of one machine exchange data there. Start with "
                      "shared_memory=False and ps_server --state_dir=DIR")
    free = shutil.disk_usage(folder).free
    if free < 256 << 20:
        raise Problem(f"{folder} has {free >> 20} MiB free; a server needs about 8 bytes per variable element there, "
                      "and its clones a few MiB each. In a container, raise --shm-size")
    return f"{folder} has {free >> 20} MiB free"


def _check_port() -> str:
    with socket.socket() as probe:
        probe.settimeout(2)
        if probe.connect_ex(("127.0.0.1", 2222)) == 0:
            return "a server listens at 127.0.0.1:2222, the default address"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 2222))
        except OSError as error:
            raise Remark(f"a server could not listen at 127.0.0.1:2222 ({error.strerror}); choose another "
                         "ps_server --listen") from None
    return "127.0.0.1:2222, the default address, is free"


CHECKS: dict[str, Callable[[], str]] = {
    "python": _check_python, "processor": _check_cpu, "numpy": _check_numpy, "client library": _check_library,
    "programs": _check_programs, "torch": _check_torch, "shared memory": _check_shared_memory, "port": _check_port,
}


def main() -> int:
    """Prints one line per check. Returns 0, or 70 if there is a problem."""
    problems = 0
    for name, check in CHECKS.items():
        try:
            state, text = "ok", check()
        except Remark as remark:
            state, text = "note", str(remark)
        except Problem as problem:
            state, text = "PROBLEM", str(problem)
            problems += 1
        print(f"{name:15} {state:8} {text}")
    print("everything needed is there" if problems == 0 else f"{problems} problem{'s' if problems > 1 else ''}")
    return EXIT_PROBLEM if problems else 0


if __name__ == "__main__":
    sys.exit(main())
