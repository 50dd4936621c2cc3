"""Fits a line to made data with numpy, with a server of its own: python numpy_linear.py

Started by `pushpull worker`, it is a clone of another server's job.
"""
import os

import numpy

import pushpull
import pushpull.numpy

CONFIG = """
model { external { name: "line" } }
train_config {
  batch_size: 32 num_steps: 200
  optimizer { momentum_optimizer {
    momentum_optimizer_value: 0.9 learning_rate { constant_learning_rate { learning_rate: 0.02 } } } }
}
"""


def train(ps):
    """Trains until the job is done. Returns the variables."""
    x = numpy.random.default_rng(1).uniform(-1, 1, (1000, 1))
    y = 3 * x + 0.5
    variables = {"slope": numpy.zeros((1, 1)), "offset": numpy.zeros(1)}
    with pushpull.numpy.Trainer(ps, variables) as trainer:
        for batch in trainer.batches(num_samples=len(x)):
            error = x[batch.indices] @ variables["slope"] + variables["offset"] - y[batch.indices]
            gradients = {"slope": x[batch.indices].T @ error / len(batch), "offset": error.mean(axis=0)}
            trainer.push(gradients, samples=len(batch), loss=0.5 * (error**2).mean())
    return variables


def main():
    if "PUSHPULL_PS" in os.environ:
        variables = train(pushpull.connect())
    else:
        with pushpull.LocalServer(CONFIG) as server:
            variables = train(server)
    print(f"y = {variables['slope'][0, 0]:.3f} x + {variables['offset'][0]:.3f}")


if __name__ == "__main__":
    main()
