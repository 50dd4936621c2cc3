"""Helpers of the Python package's tests: configs, and jobs of ps_server and `pushpull worker`.

The folder PUSHPULL_BIN_DIR has the programs, and PUSHPULL_CLIENT_LIBRARY is the client library; ctest sets both.
"""
import gzip
import importlib
import os
import pathlib
import random
import signal
import struct
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent / "python"), str(TESTS / "e2e")]

from harness import EndToEndTest, main  # noqa: E402,F401  pylint: disable=unused-import,wrong-import-position
from processes import BIN, PATIENCE_S, Process  # noqa: E402  pylint: disable=wrong-import-position
import numpy  # noqa: E402  pylint: disable=wrong-import-position
import pushpull  # noqa: E402  pylint: disable=wrong-import-position

FULL = os.environ.get("PUSHPULL_TEST_FULL") == "1"
PROGRAMS = TESTS / "python" / "programs"
EXAMPLES = TESTS.parent / "python" / "examples"
CONFIG = """
model {{ external {{ name: "{name}" }} }}
train_config {{ batch_size: {batch} sync_replicas: {sync} num_steps: {steps} seed: 7
  save_checkpoints_secs: 1000 {train}
  optimizer {{ {optimizer} {average} }} }}
"""
MOMENTUM = ("momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.05 } } "
            "momentum_optimizer_value: 0.9 }")


def skip_without_torch():
    """Ends the test program with 77, by which ctest knows a skipped test, if PyTorch is missing."""
    try:
        import torch  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        print("skipped: this Python has no torch")
        sys.exit(77)


def environment(**changes):
    """Returns the environment for programs that import the package from this checkout."""
    path = [str(TESTS.parent / "python")] + [p for p in [os.environ.get("PYTHONPATH")] if p]
    return {**os.environ, "PUSHPULL_BIN_DIR": str(BIN), "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1", **changes}


def config_text(**changes):
    """Returns CONFIG, filled in with default values and the given changes."""
    values = dict(name="test", batch=31, sync="true", steps=20, train="", optimizer=MOMENTUM,
                  average="use_moving_average: false")
    values.update(changes)
    return CONFIG.format(**values)


def write_idx(path, array):
    """Writes an IDX file of bytes, compressed."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(numpy.uint8).tobytes()))


def load_example(name):
    """Imports a program of the examples."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


class ServerKeptAlive:
    """A ps_server that is started again as soon as it has been killed."""

    def __init__(self, start):
        """start: starts a server whose log has the given name."""
        self._start = start
        self.servers = [start("ps.0.log")]

    def kill(self):
        """Kills the server by SIGKILL and starts another one."""
        self.servers[-1].kill()
        self.servers[-1].wait()
        self.servers.append(self._start(f"ps.{len(self.servers)}.log"))

    def text(self):
        return "".join(server.text() for server in self.servers)


class PythonJobTest(EndToEndTest):
    """A test with jobs whose clones are Python programs."""

    def write_config(self, name="pipeline.config", **changes):
        path = self.folder / name
        path.write_text(config_text(**changes))
        return path

    def start_python(self, log, *arguments, **changes):
        """Starts this Python with the package. Its output goes to the file `log` in the scratch folder."""
        process = Process(self.folder / log, sys.executable, *arguments, env=environment(**changes))
        self.processes.append(process)
        return process

    def start_clones(self, program, *arguments, run="run", clones=3, worker_flags=(), **changes):
        """Starts `pushpull worker` for the server of start_server(config, run). Its program is in programs/."""
        return self.start_python(f"{run}.worker.log", "-m", "pushpull", "worker", f"--ps={self.address(run)}",
                                 f"--num_clones={clones}", *worker_flags, PROGRAMS / program, *arguments, **changes)

    def train_in_python(self, config, program, *arguments, run="run", clones=3, server_flags=(), worker_flags=()):
        """Trains until the job is done and checks that both processes exit with 0. Returns (server, worker)."""
        server = self.start_server(config, run, *server_flags)
        worker = self.start_clones(program, *arguments, run=run, clones=clones, worker_flags=worker_flags)
        self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())
        return server, worker

    def weights(self, run="run", **options):
        """Returns the variables of a run's newest checkpoint. The options are those of pushpull.load."""
        return pushpull.load(self.folder / run, **options)

    def check_that_the_number_of_clones_does_not_matter(self, program):
        """Trains with 1, 2 and 3 clones and checks that the weights agree. Returns those of one clone."""
        config = self.write_config()
        for clones in (1, 2, 3):
            self.train_in_python(config, program, run=f"run{clones}", clones=clones)
        one = self.weights("run1")
        for name, values in one.items():
            for clones in (2, 3):
                numpy.testing.assert_allclose(self.weights(f"run{clones}")[name], values, atol=1e-5, err_msg=name)
        return one

    def check_that_kills_do_not_matter(self, kills, steps, *arguments, pause, longest_wait, **changes):
        """Trains undisturbed and then with SIGKILLs of clones and server in turn, and checks that the bits are equal.

        pause: seconds that each clone of the second run sleeps in each step, so that the kills fall within the run on a
        machine of any speed. longest_wait: seconds between two kills. changes: of the config. Returns (servers, worker)
        of the second run.
        """
        config = self.write_config(steps=steps, **changes)
        self.train_in_python(config, *arguments, run="straight")
        server = ServerKeptAlive(lambda log: self.start_server(config, "killed", log=log))
        worker = self.start_clones(*arguments, f"--pause={pause}", run="killed")
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        done = 0
        while done < kills:
            server.servers[-1].wait_for("clone 2 (")
            clones = clone_processes(worker.popen.pid)
            if len(clones) == 3:
                time.sleep(rng.uniform(0.0, longest_wait))
                self.assertIsNone(worker.popen.poll(), f"training ended after {done} kills (seed {seed})")
                if done % 2:
                    server.kill()
                elif not kill(rng.choice(list(clones.values()))):
                    continue
                done += 1
        self.assertEqual(worker.wait(600), 0, worker.text())
        self.assertEqual(server.servers[-1].wait(), 0, server.text())
        self.assertEqual(self.checkpoint(steps, "straight"), self.checkpoint(steps, "killed"), f"seed {seed}")
        print(f"{kills} kills (seed {seed}): {steps} steps with the same bits")
        return server, worker

    def in_thread(self, function, *arguments):
        """Runs a function on a thread. Returns a function that waits for its result, or raises what it raised."""
        outcome = []

        def run():
            try:
                outcome.append((function(*arguments), None))
            except BaseException as error:  # pylint: disable=broad-except
                outcome.append((None, error))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def result():
            thread.join(PATIENCE_S)
            self.assertFalse(thread.is_alive(), "the thread still runs")
            value, error = outcome[0]
            if error is not None:
                raise error
            return value

        return result


def clone_processes(pid):
    """Returns clone number -> pid of the clones of a `pushpull worker`."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            variables = (process / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        for variable in variables:
            if parent == pid and variable.startswith(b"PUSHPULL_CLONE="):
                found[int(variable.partition(b"=")[2])] = int(process.name)
    return found


def kill(pid):
    """Kills a process that may have ended. Returns whether it existed."""
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
