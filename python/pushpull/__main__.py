"""The command `pushpull`, also as `python -m pushpull`."""
from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn, Optional

from pushpull import __version__, _library, _supervisor, checkpoint, doctor
from pushpull._interrupts import handle_stop_signals
from pushpull._output import PatientOutput, drop_unwritten, open_closed_streams, say
from pushpull.checkpoint import PathLike
from pushpull.errors import CheckpointError, Error
from pushpull.local_server import LocalServer

EXIT_USAGE = 64
_DEFAULT_PS = "127.0.0.1:2222"
_SERVER_END_S = 60.0  # how long the server may take to publish the last checkpoint
_POLL_S = 0.1  # between two tries to read it


class _Stopped(BaseException):
    """A signal has asked this process to end while it starts the server or waits for the server's end."""


def _go_on(number: int, frame: Optional[FrameType]) -> None:
    """Handles SIGHUP, which is sent when the terminal is closed."""


def _stop(number: int, frame: Optional[FrameType]) -> NoReturn:
    raise _Stopped


class _Parser(argparse.ArgumentParser):
    """Ends with Pushpull's exit code for bad flags."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pushpull", description="Trains models of your own through a parameter server.")
    parser.add_argument("--version", action="version", version=f"pushpull {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    worker = commands.add_parser("worker", help="run a Python program as clones that are restarted when they die",
                                 usage="pushpull worker [flags] FILE|-m MODULE [arguments]")
    worker.add_argument("--ps", default="", metavar="ADDRESS",
                        help="address of ps task 0, or of all ps tasks in order, with commas: host:port or unix:/path "
                        f"(default: {_DEFAULT_PS})")
    worker.add_argument("--pipeline_config_path", default="", metavar="FILE",
                        help="start a ps_server with this config, for one worker; default: use the one at --ps")
    worker.add_argument("--train_dir", default="", metavar="DIR",
                        help="the folder for checkpoints of the server that --pipeline_config_path starts")
    worker.add_argument("--num_clones", type=int, default=1, help="clone processes of this worker (default: 1)")
    worker.add_argument("--num_workers", type=int, default=1, help="workers of the job (default: 1)")
    worker.add_argument("--worker_index", type=int, default=0, help="index of this worker, counted from 0")
    worker.add_argument("--gradient_precision", default="", metavar="NAME",
                        help="how the clones send gradients (pushpull.connect; default: fp32)")
    worker.add_argument("--weight_precision", default="", metavar="NAME",
                        help="how the clones receive weights (pushpull.connect; default: fp32)")
    worker.add_argument("--shared_memory", default="true", choices=("true", "false"),
                        help="exchange data with servers on this machine through shared memory (default: %(default)s)")
    worker.add_argument("--insecure", action="store_true",
                        help="allow connections without TLS to other machines, because the network is trusted")
    worker.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE [arguments]",
                        help="run a module as the program")
    worker.add_argument("program", nargs=argparse.REMAINDER, metavar="FILE [arguments]", help="the Python file to run")
    commands.add_parser("doctor", help="say what is wrong with the installation")
    return parser


def _version_of_old_end(train_dir: PathLike) -> Optional[tuple[int, int]]:
    """Returns the version of the newest checkpoint if that says that training has ended.

    To be called before the server starts: the server may continue the finished run with a higher limit. Returns None if
    the checkpoint does not say so, if it cannot be read, and if there is none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the call after training gives the same warnings
        try:
            found = checkpoint.newest(train_dir)
        except CheckpointError:
            return None
    return found.version if found is not None and found.training_done else None


def _training_has_ended(train_dir: PathLike, step: int, num_steps: int, old_end: Optional[tuple[int, int]]) -> bool:
    """Returns whether the newest checkpoint says that training has ended, now and not before this server began.

    step, num_steps: what the clones have reported last. old_end: from _version_of_old_end. Raises CheckpointError if
    all checkpoints are damaged, and UnreadableError if the newest one cannot be read now.
    """
    found = checkpoint.newest(train_dir)
    if found is None or not found.training_done or found.step < step:
        return False
    return found.version != old_end or 0 < num_steps <= found.step


def _end_before_training_has(server: LocalServer, num_steps: int, output: PatientOutput) -> None:
    """Ends the server, and says in the output that training has not ended, and what the last checkpoint is."""
    say("all clones have ended before training has; ending ps_server", output)
    server.end()
    try:
        found = checkpoint.newest(server.train_dir)
    except CheckpointError as error:
        say(f"the last checkpoint cannot be read: {error}", output)
        return
    limit = f" of {num_steps}" if num_steps else ""
    say(f"the last checkpoint is of step {found.step}{limit}" if found is not None else "there is no checkpoint",
        output)


def _await_end(server: LocalServer, step: int, num_steps: int, old_end: Optional[tuple[int, int]],
               output: PatientOutput) -> None:
    """Waits for the server's end if training has ended. Otherwise ends the server, and says so in the output.

    step, num_steps: what the clones have reported last. old_end: from _version_of_old_end. If the newest checkpoint
    cannot be read because of an error that may pass, tries again until the server ends. Returns after _SERVER_END_S at
    the latest. Raises ServerFailedError if the server has failed, and CheckpointError if all checkpoints are damaged.
    """
    deadline = time.monotonic() + _SERVER_END_S
    # The server tells the clones that training has ended when it has published a checkpoint that says so.
    while server.wait(0.0) is None:
        try:
            if not _training_has_ended(server.train_dir, step, num_steps, old_end):
                _end_before_training_has(server, num_steps, output)
                return
        except checkpoint.UnreadableError as error:
            if time.monotonic() < deadline:
                server.wait(_POLL_S)
                continue
            say(f"{error}, so it is not known whether training has ended; ending ps_server", output)
        break
    server.wait(max(0.0, deadline - time.monotonic()))
    server.check()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command and returns its exit code."""
    open_closed_streams()
    output = PatientOutput(sys.stderr)
    try:
        return _run(arguments, output)
    finally:
        with contextlib.suppress(OSError):
            output.finish()
        drop_unwritten()


def _check_command(command: Sequence[str]) -> Optional[str]:
    """Returns what is wrong with a command that begins with a Python file or `-m MODULE`, or None."""
    if not command:
        return "there is no program to run: name a Python file, or -m MODULE"
    if command[0] == "-m":
        return None if len(command) > 1 else "-m needs the name of a module"
    return None if os.path.isfile(command[0]) else f"there is no file {command[0]}"


def _options(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> _supervisor.Options:
    """Checks the flags of `pushpull worker`, and returns what the supervisor needs of them.

    Ends the process with EXIT_USAGE if a flag is wrong. Raises InstallationError if the client library is missing.
    """
    if flags.num_clones < 1 or flags.num_workers < 1:
        parser.error("--num_clones and --num_workers must be at least 1")
    if not 0 <= flags.worker_index < flags.num_workers:
        parser.error(f"--worker_index={flags.worker_index} is not one of --num_workers={flags.num_workers} workers")
    try:
        for name in ("gradient_precision", "weight_precision"):
            _library.check_precision(name, getattr(flags, name))
    except ValueError as error:
        parser.error(f"--{error}")
    # argparse ends what follows -m at "--". Like python -m, a module gets the "--" itself.
    if flags.module is not None:
        command = ["-m", *flags.module, *flags.program]
    else:
        command = flags.program[1:] if flags.program[:1] == ["--"] else flags.program
    problem = _check_command(command)
    if problem is not None:
        parser.error(problem)
    if bool(flags.pipeline_config_path) != bool(flags.train_dir):
        parser.error("--pipeline_config_path and --train_dir belong together")
    if flags.pipeline_config_path and flags.ps:
        parser.error(f"--ps={flags.ps} names a server and --pipeline_config_path starts one: give one of them")
    if flags.pipeline_config_path and flags.num_workers > 1:
        parser.error("--pipeline_config_path starts a server for one worker; with several, start ps_server by hand")
    options = _supervisor.Options(flags.ps or _DEFAULT_PS, flags.num_clones, flags.num_workers, flags.worker_index,
                                  command)
    options.environment = {"PUSHPULL_GRADIENT_PRECISION": flags.gradient_precision,
                           "PUSHPULL_WEIGHT_PRECISION": flags.weight_precision,
                           "PUSHPULL_SHARED_MEMORY": str(int(flags.shared_memory == "true")),
                           "PUSHPULL_INSECURE": str(int(flags.insecure))}
    return options


def _with_module_apart(arguments: Sequence[str]) -> list[str]:
    """Returns the words of a command with -mMODULE, which may follow the flags of `worker`, as two words.

    All that follows the word -m belongs to the module. What follows -mMODULE would be read as flags of `worker`.

    >>> _with_module_apart(["worker", "--num_clones", "2", "--insecure", "-mtrain", "-h"])
    ['worker', '--num_clones', '2', '--insecure', '-m', 'train', '-h']
    >>> _with_module_apart(["worker", "--ps=a:1", "train.py", "-mfast"])
    ['worker', '--ps=a:1', 'train.py', '-mfast']
    """
    words = list(arguments)
    i = 1
    while words[:1] == ["worker"] and i < len(words) and words[i].startswith("-") and words[i] not in ("-m", "--"):
        if words[i].startswith("-m"):
            words[i:i + 1] = ["-m", words[i][2:]]
            break
        # argparse also takes the beginning of a flag's name for the flag.
        has_next = words[i].startswith("--") and "=" not in words[i] and not "--insecure".startswith(words[i])
        i += 2 if has_next else 1
    return words


def _supervise_with_server(options: _supervisor.Options, config: pathlib.Path, train_dir: str,
                           output: PatientOutput) -> int:
    """Starts a ps_server, runs the clones, and waits for the server's end. Returns the exit code of the worker.

    Raises Error if the server cannot be started or fails.
    """
    handle_stop_signals(_stop)  # until the supervisor handles them
    try:
        old_end = _version_of_old_end(train_dir)
        with LocalServer(config, train_dir, options.num_clones) as server:
            options.ps, options.server = server.address, server
            supervisor = _supervisor.Supervisor(options)
            try:
                code = supervisor.run()
                if code == 0:
                    handle_stop_signals(_stop)
                    _await_end(server, *supervisor.progress(), old_end, output)
            finally:
                server.end()
                supervisor.show_end_of_server(server)
            return code
    except _Stopped:
        return _supervisor.EXIT_STOPPED


def _run(arguments: Optional[Sequence[str]], output: PatientOutput) -> int:
    parser = _parser()
    flags = parser.parse_args(_with_module_apart(sys.argv[1:] if arguments is None else arguments))
    # A process inherits an ignored SIGCHLD from the one that started it, and then every program seems to end with 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if flags.command == "doctor":
        return doctor.main()
    # Unlike a handler, SIG_IGN would be inherited by the clones, whose programs may have a use for the signal.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _go_on)
    try:
        options = _options(parser, flags)
        if flags.pipeline_config_path:
            return _supervise_with_server(options, pathlib.Path(flags.pipeline_config_path), flags.train_dir, output)
        return _supervisor.Supervisor(options).run()
    except Error as error:
        say(str(error), output)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
