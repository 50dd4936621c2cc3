"""Starts and stops the real binaries for the end-to-end tests. Standard library only.

The binaries' folder comes from PUSHPULL_BIN_DIR (set by ctest), by default build/bin of this checkout.
"""
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PUSHPULL_BIN_DIR", ROOT / "build" / "bin"))
PATIENCE_S = 120  # of any process that should end by itself

CONFIG = """
model {{ classifier {{
  num_classes: 4 num_channels: 1
  logits_initializer {{ truncated_normal_initializer {{ stddev: 0.01 }} }}
  image_resizer {{ fixed_shape_resizer {{ height: 32 width: 32 }} }}
  feature_extractor {{ type: "mobilenet_v2" depth_multiplier: {width} min_depth: 8
    conv_hyperparams {{ activation: RELU_6
      regularizer {{ l2_regularizer {{ weight: 0.00004 }} }}
      initializer {{ variance_scaling_initializer {{ mode: FAN_AVG }} }}
      batch_norm {{ decay: 0.9 scale: true center: true epsilon: 0.001 }} }} }}
  {model} }} }}
train_config {{ batch_size: {batch} sync_replicas: {sync} num_steps: {steps}
  save_checkpoints_secs: 1000 {train}
  optimizer {{ {optimizer} use_moving_average: false }} }}
train_input_reader {{ {reader} }}
eval_config {{ num_examples: 100 batch_size: 50 }}
eval_input_reader {{ shuffle: false {eval_reader} }}
"""
SYNTHETIC = ("synthetic_input_reader {{ num_examples: {n} seed: {seed} height: 32 width: 32 "
             "num_channels: 1 num_classes: 4 }}")
MOMENTUM = ("momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.02 } } "
            "momentum_optimizer_value: 0.9 }")


class Process:
    """One of our binaries, its output in a file."""

    def __init__(self, log, name, *arguments, stdout=None, env=None, prefix=()):
        """prefix: a command that ends by starting ours, such as `ip netns exec HOST`."""
        self.log_path = log
        self.log = open(log, "ab")
        self.popen = subprocess.Popen(
            [*prefix, str(BIN / name), *map(str, arguments)], stdin=subprocess.DEVNULL,
            stdout=stdout or self.log, stderr=self.log, start_new_session=True, env=env)

    def wait(self, timeout=PATIENCE_S):
        """Exit code; the output is part of the failure when it does not end."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.text()}") from None

    def kill(self, number=signal.SIGKILL):
        if self.popen.poll() is None:
            os.kill(self.popen.pid, number)

    def end(self):
        """For clean-up: nothing of the process group stays."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()
        self.log.close()

    def text(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")

    def wait_for(self, words, timeout=PATIENCE_S):
        """Blocks until the output has the words."""
        deadline = time.monotonic() + timeout
        while words not in self.text():
            if self.popen.poll() is not None and words not in self.text():
                raise AssertionError(f"ended without saying {words!r}:\n{self.text()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"did not say {words!r} in {timeout} s:\n{self.text()}")
            time.sleep(0.05)


class EndToEndTest(unittest.TestCase):
    """A scratch folder, and no process left behind."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pushpull-"))
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_config(self, name="pipeline.config", **changes):
        values = dict(width=0.1, batch=31, sync="true", steps=20, train="", model="",
                      optimizer=MOMENTUM, reader=SYNTHETIC.format(n=400, seed=1),
                      eval_reader=SYNTHETIC.format(n=100, seed=2))
        values.update(changes)
        path = self.folder / name
        path.write_text(CONFIG.format(**values))
        return path

    def start(self, log, name, *arguments, **options):
        process = Process(self.folder / log, name, *arguments, **options)
        self.processes.append(process)
        return process

    def start_server(self, config, run="run", *flags, log=None):
        return self.start(log or f"{run}.ps.log", "ps_server", f"--pipeline_config_path={config}",
                          f"--train_dir={self.folder / run}", f"--listen={self.address(run)}",
                          f"--state_dir={self.folder / (run + '.state')}", "--lease=3s", *flags)

    def start_worker(self, run="run", clones=3, *flags):
        return self.start(f"{run}.worker.log", "worker", f"--ps={self.address(run)}",
                          f"--num_clones={clones}", "--peer_deadline=60s", *flags)

    def address(self, run="run"):
        return f"unix:{self.folder / (run + '.sock')}"

    def train(self, config, run="run", clones=3, server_flags=(), worker_flags=()):
        """Trains to the end; both exit with 0."""
        server = self.start_server(config, run, *server_flags)
        worker = self.start_worker(run, clones, *worker_flags)
        self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())
        return server, worker

    def checkpoint(self, step, run="run"):
        """Bytes of the one shard of a checkpoint."""
        path = self.folder / run / f"ckpt-{step:08d}" / "shard-00000-of-00001.safetensors"
        return path.read_bytes()


def read_safetensors(data):
    """Name -> tuple of floats."""
    import json
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        count = (end - begin) // 4
        tensors[name] = struct.unpack(f"<{count}f", data[8 + size + begin:8 + size + end])
    return tensors
