"""Trains with a LocalServer that the program does not close.

usage: unclosed_server.py to-the-end|not-to-the-end|interrupted-close
"""
import os
import subprocess
import sys
from unittest import mock

import numpy

import pushpull

CONFIG = """model { external {} } train_config { batch_size: 1 num_steps: 5
  optimizer { momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 1 } } } } }"""
server = pushpull.LocalServer(CONFIG)
trainer = pushpull.numpy.Trainer(server, {"w": numpy.zeros(3)}, show_progress=False)
for batch in trainer.batches(10):
    trainer.push({}, samples=len(batch), loss=1.0)
    if sys.argv[1] != "to-the-end":
        break
if sys.argv[1] == "interrupted-close":
    with mock.patch.object(subprocess.Popen, "wait", side_effect=KeyboardInterrupt):
        try:
            server.close()
        except KeyboardInterrupt:
            pass
print(f"server pid {server.pid} with {', '.join(os.listdir(os.environ['TMPDIR']))}", flush=True)
