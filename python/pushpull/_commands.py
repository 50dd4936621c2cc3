"""The wheel's commands `ps_server`, `worker` and so on. Each replaces itself by the program that came with the wheel."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from pushpull import _library
from pushpull.errors import InstallationError


def _run(name: str) -> NoReturn:
    # PATH is not searched: it would find this command again.
    path = _library.program_paths(name)[0]
    if not os.access(path, os.X_OK):
        print(f"{name}: there is no program {path}; this package was installed without it", file=sys.stderr)
        sys.exit(InstallationError.exit_code)
    os.execv(path, [str(path), *sys.argv[1:]])


def ps_server() -> NoReturn:
    """Runs ps_server."""
    _run("ps_server")


def worker() -> NoReturn:
    """Runs worker, whose clones compute Pushpull's own models."""
    _run("worker")


def evaluator() -> NoReturn:
    """Runs evaluator."""
    _run("evaluator")


def exporter() -> NoReturn:
    """Runs exporter."""
    _run("exporter")


def make_records() -> NoReturn:
    """Runs make_records."""
    _run("make_records")


def detect() -> NoReturn:
    """Runs detect."""
    _run("detect")


def psctl() -> NoReturn:
    """Runs psctl."""
    _run("psctl")
