"""Helpers of the end-to-end tests: configs, a scratch folder, and a job of real programs. Standard library only."""
import pathlib
import shutil
import struct
import sys
import tempfile
import unittest

# Imported so that tests can import these names from this module.
from processes import BIN, PATIENCE_S, ROOT, Process  # noqa: F401  pylint: disable=unused-import

sys.path.append(str(ROOT / "tests" / "testkit"))
from free_port import free_port  # noqa: E402,F401  pylint: disable=unused-import,wrong-import-position
from unittest_main import main  # noqa: E402,F401  pylint: disable=unused-import,wrong-import-position

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
ADAM = "adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.003 } } }"


def config_text(**changes):
    """Returns CONFIG, filled in with default values and the given changes."""
    values = dict(width=0.1, batch=31, sync="true", steps=20, train="", model="", optimizer=MOMENTUM,
                  reader=SYNTHETIC.format(n=400, seed=1), eval_reader=SYNTHETIC.format(n=100, seed=2))
    values.update(changes)
    return CONFIG.format(**values)


class EndToEndTest(unittest.TestCase):
    """A test with a scratch folder. At its end, its processes are killed and the folder is removed."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pushpull-"))
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_config(self, name="pipeline.config", **changes):
        """Writes config_text(**changes) into the scratch folder and returns the path."""
        path = self.folder / name
        path.write_text(config_text(**changes))
        return path

    def start(self, log, name, *arguments, **options):
        """Starts a program and returns its Process. Its output goes to the file `log` in the scratch folder."""
        process = Process(self.folder / log, name, *arguments, **options)
        self.processes.append(process)
        return process

    def start_server(self, config, run="run", *flags, log=None, **options):
        """Starts a ps_server whose train_dir is the subfolder `run`, and which listens at address(run)."""
        return self.start(log or f"{run}.ps.log", "ps_server", f"--pipeline_config_path={config}",
                          f"--train_dir={self.folder / run}", f"--listen={self.address(run)}",
                          f"--state_dir={self.folder / (run + '.state')}", "--lease=3s", *flags, **options)

    def start_worker(self, run="run", clones=3, *flags, **options):
        """Starts a worker for the server of start_server(config, run)."""
        return self.start(f"{run}.worker.log", "worker", f"--ps={self.address(run)}",
                          f"--num_clones={clones}", "--peer_deadline=60s", *flags, **options)

    def address(self, run="run"):
        return f"unix:{self.folder / (run + '.sock')}"

    def train(self, config, run="run", clones=3, server_flags=(), worker_flags=()):
        """Trains until the job is done and checks that both processes exit with 0. Returns (server, worker)."""
        server = self.start_server(config, run, *server_flags)
        worker = self.start_worker(run, clones, *worker_flags)
        self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())
        return server, worker

    def checkpoint(self, step, run="run"):
        """Returns the bytes of the only shard of a checkpoint."""
        path = self.folder / run / f"ckpt-{step:08d}" / "shard-00000-of-00001.safetensors"
        return path.read_bytes()


def read_safetensors(data):
    """Parses the bytes of a safetensors file of float32 tensors. Returns name -> tuple of floats."""
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
