"""A clone that trains a perceptron with one hidden layer on made data, with numpy only.

arguments: [--samples=N] [--units=N] [--dtype=NAME] [--nan_at=STEP] [--fail=HOW] [--pause=SECONDS]
  [--seconds_per_sample=SECONDS] [--pause_until=FILE]  it pauses until there is such a file
"""
import argparse
import os
import signal
import sys
import time

import numpy

import pushpull
import pushpull.numpy


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--units", type=int, default=16)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--nan_at", type=int, default=-1)
    parser.add_argument("--fail", default="")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--seconds_per_sample", type=float, default=0.0)
    parser.add_argument("--pause_until", default="")
    return parser.parse_args()


def make_data(samples):
    rng = numpy.random.default_rng(1)
    x = rng.standard_normal((samples, 8)).astype(numpy.float32)
    y = numpy.tanh(x @ rng.standard_normal((8, 3)).astype(numpy.float32))
    return x, y


def make_variables(units, dtype):
    rng = numpy.random.default_rng(2)
    return {"hidden/weights": rng.standard_normal((8, units)).astype(dtype) * 0.3,
            "hidden/bias": numpy.zeros(units, dtype),
            "output/weights": rng.standard_normal((units, 3)).astype(dtype) * 0.3,
            "mean": numpy.zeros(8, dtype)}


OPTIONS = {"hidden/weights": {"weight_decay": 1e-3}, "mean": {"moving_statistic": True, "moving_average_decay": 0.9}}


def gradients_at(variables, x, y):
    """Returns the gradients of half the mean squared distance, the statistic and the loss."""
    hidden = numpy.tanh(x @ variables["hidden/weights"] + variables["hidden/bias"])
    error = hidden @ variables["output/weights"] - y
    back = (error @ variables["output/weights"].T) * (1 - hidden**2)
    count = len(x)
    return {"hidden/weights": x.T @ back / count, "hidden/bias": back.mean(axis=0),
            "output/weights": hidden.T @ error / count, "mean": x.mean(axis=0)}, 0.5 * (error**2).sum(axis=1).mean()


def fail(how):
    """Ends this process in the way that a test asks for."""
    if how == "raise":
        raise RuntimeError("this program fails on purpose")
    if how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how.isdigit():
        sys.exit(int(how))


def main():
    flags = parse()
    ps = pushpull.connect()
    print(f"clone {ps.clone} of {ps.num_clones} trains {ps.job.external_name}")
    x, y = make_data(flags.samples)
    variables = make_variables(flags.units, flags.dtype)
    with pushpull.numpy.Trainer(ps, variables, OPTIONS) as trainer:
        for batch in trainer.batches(len(x)):
            if batch.position >= 3 and flags.fail:
                fail(flags.fail)
            gradients, loss = gradients_at(variables, x[batch.indices], y[batch.indices])
            if batch.position == flags.nan_at:
                loss = float("nan")
            if not (flags.pause_until and os.path.exists(flags.pause_until)):
                time.sleep(flags.pause + flags.seconds_per_sample * len(batch))
            trainer.push(gradients, samples=len(batch), loss=loss, metrics={"largest": float(abs(x).max())})
    print(f"clone {ps.clone} is done")


if __name__ == "__main__":
    main()
