"""A parameter server in a process of its own on this machine, for notebooks, tests and jobs of one machine."""
from __future__ import annotations

import atexit
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Optional, Union

from pushpull import _library
from pushpull._connect import connect
from pushpull._processes import KEEPER, popen
from pushpull._server_log import ServerLog
from pushpull.errors import Error, ServerFailedError
from pushpull.parameter_server import ParameterServer, close_all

_START_SECONDS = 60.0
_END_SECONDS = 60.0
_SETTLED_SECONDS = 1.0  # a server that has run for this long is started again when it is killed
_open: set[LocalServer] = set()


@atexit.register
def _close_servers() -> None:
    close_all()  # while their servers still answer
    for server in list(_open):
        server.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class LocalServer:
    """Runs the program ps_server. It ends when it is closed and, whatever happens, with this process.

        with pushpull.LocalServer(config) as server:
            trainer = pushpull.torch.Trainer(server, model)
            ...
            weights = pushpull.load(server.train_dir)

    Thread-safe, except that one thread closes it.
    """

    def __init__(self, config: Union[str, "os.PathLike[str]"], train_dir: Union[str, "os.PathLike[str]", None] = None,
                 num_clones: int = 1, flags: Sequence[str] = ()) -> None:
        """Starts the server on a Unix socket in a temporary folder. Blocks until it listens.

        config: the text of a pipeline config, or the path of a file with it.
        train_dir: folder for checkpoints; a run that is in it goes on. Default: in the temporary folder, which is
        removed when the server is closed. A server that is still open when the program exits is closed then.
        num_clones: number of clones of the job.
        flags: further flags of ps_server, such as "--metrics_port=9095".

        Raises ServerFailedError, with the program's output, if it cannot start, and ValueError if this process ignores
        SIGCHLD, because the system then keeps no exit codes and a server that has failed would seem to have ended well.
        """
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            raise ValueError("this process ignores SIGCHLD, so that LocalServer cannot learn how ps_server ends; call "
                             "signal.signal(signal.SIGCHLD, signal.SIG_DFL) first")
        self.num_clones = num_clones
        self._numbers = itertools.count()  # of connections, for the clones that are given out in turn
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="pushpull-"))
        self._log_path = self._folder / "ps_server.log"
        self.address = f"unix:{self._folder / 'ps'}"
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._pid = os.getpid()
        _open.add(self)
        try:
            self.train_dir = pathlib.Path(train_dir) if train_dir is not None else self._folder / "train_dir"
            if isinstance(config, str) and "{" in config:
                path = self._folder / "pipeline.config"
                path.write_text(config)
            else:
                path = pathlib.Path(config)
            state = [f"--state_dir={self._folder / 'state'}"] if train_dir is None else []
            self._command = [str(_library.find_program("ps_server")), f"--pipeline_config_path={path}",
                             f"--train_dir={self.train_dir}", f"--listen={self.address}",
                             f"--num_replicas={num_clones}", *state, *flags]
            self._start()
            self._await_start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def _start(self) -> None:
        with open(self._log_path, "ab+") as log:
            if log.tell() > 0:
                log.seek(-1, os.SEEK_END)
                if log.read() != b"\n":
                    log.write(b"\n")  # the server before this one was killed while it wrote a line
                    log.flush()
            self._process = KEEPER.call(lambda: popen(self._command, signal.SIGTERM, stdin=subprocess.DEVNULL,
                                                      stdout=log, stderr=log))
        self._started = time.monotonic()

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        # An earlier line of the log says where the server will listen. With an external model, whose variables a clone
        # declares, it listens while it waits for that clone.
        while not any(words in self.log() for words in ("] listening on ", "] waiting at ")):
            ended = self.wait(0.0) is not None
            # In this order, because a program that fails between the two must not pass for a run that has ended.
            self.check()
            if ended:
                return  # a run that has ended already
            if time.monotonic() > deadline:
                raise ServerFailedError(f"ps_server does not listen after {_START_SECONDS:.0f} s:\n{self.log()}")
            time.sleep(0.01)

    def log(self) -> str:
        """Returns what the program has printed so far."""
        try:
            return self._log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def follow_log(self) -> ServerLog:
        """Returns a reader of what the program prints, from the beginning on. Raises OSError if there is no room."""
        return ServerLog(self._log_path)

    @property
    def end_mark(self) -> str:
        """The path by which `pushpull worker` tells processes of its clones that the run has ended (_end_of_run.py)."""
        return str(self._folder / "run_has_ended")

    @property
    def pid(self) -> int:
        """The process id of ps_server."""
        assert self._process is not None
        return self._process.pid

    def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        """Waits for the program's end, which follows the last step. Returns its exit code; None: it still runs."""
        assert self._process is not None
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def check(self) -> None:
        """Raises ServerFailedError, with the program's output and exit code, if it has failed."""
        if self._process is None:
            raise ServerFailedError("this LocalServer is closed")
        code = self._process.poll()
        if code is not None and code != 0:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            error = ServerFailedError(f"ps_server {how}:\n{self.log()[-8000:]}")
            if code > 0:
                error.exit_code = code
            raise error

    def revive(self) -> bool:
        """Starts the program again if a signal has killed it, and returns whether it did. Does not wait for it.

        No step is lost: they are in the server's mapped state (`--state_dir`) and its checkpoints. Raises
        ServerFailedError if the program has failed in another way or is killed as soon as it has started, and OSError
        if the machine has no room for another process; a later call may succeed then.
        """
        assert self._process is not None
        code = self._process.poll()
        if code is None or code == 0:
            return False
        if code > 0 or time.monotonic() - self._started < _SETTLED_SECONDS:
            self.check()
        self._start()
        return True

    def connect(self, clone: Optional[int] = None, **options: Any) -> ParameterServer:
        """Connects a clone. Without a number, the clones are given out in turn. options: as for pushpull.connect.

        Raises Error if the run has ended, and the server with it, and ServerFailedError if the server has failed.
        """
        self.check()
        if self.wait(0.0) == 0:
            raise Error(f"the run in {self.train_dir} has ended, and ps_server with it")
        if clone is None:
            clone = next(self._numbers) % self.num_clones
        return connect(self.address, clone=clone, num_clones=self.num_clones, check=self.check, **options)

    def end(self) -> None:
        """Ends the server: waits for it if training has ended, else asks it to publish a checkpoint and end.

        The folder stays until the server is closed, so that the log can be read.
        """
        if os.getpid() != self._pid:
            return  # this process was forked: the server and its folder belong to the other one
        process, self._process = self._process, None
        if process is not None:
            try:
                _end(process)
            except BaseException:  # such as KeyboardInterrupt
                self._process = process  # so that it can be closed again, at the latest at the program's exit
                raise

    def close(self) -> None:
        """Ends the server, see `end`, and removes its temporary folder."""
        if os.getpid() != self._pid:
            return
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)
        _open.discard(self)
