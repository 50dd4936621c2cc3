#!/usr/bin/env python3
"""Throughput of a synchronous job with one throttled clone, with equal shares and with shares by speed.

usage: scripts/bench/shares_by_speed.py [--clones=4] [--samples_per_second=300] [--slow=0.25] [--steps=80]
       [--shares=EQUAL,BY_SPEED] [--bin=build/bin] [--library=build/lib/libpushpull_client.so]
  run it after a build of ps_server, psctl and pushpull_client_shared

Each clone is a numpy program that sleeps for its samples, so that its speed is exact, and clone 0 has --slow times the
speed of the others. The job can compute no more than the sum of the clones' speeds. The table says which part of that it
reaches: samples per second over the second half of the steps, when the shares have settled. With --slow=1 the rest up to
100 % is what a round costs beside the computing.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from slow_link import stop

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
model {{ external {{ name: "shares_by_speed" }} }}
train_config {{
  batch_size: {batch} num_steps: {steps} sync_replicas: true save_checkpoints_secs: 100000 replica_shares: {shares}
  optimizer {{ momentum_optimizer {{ learning_rate {{ constant_learning_rate {{ learning_rate: 0.01 }} }} }}
               use_moving_average: false }}
}}
"""


def run_clone(seconds_per_sample):
    """Trains as one clone, whose speed is 1 / seconds_per_sample samples per second."""
    import numpy  # pylint: disable=import-outside-toplevel
    import pushpull  # pylint: disable=import-outside-toplevel
    import pushpull.numpy  # pylint: disable=import-outside-toplevel
    weights = {"w": numpy.zeros(1000, numpy.float32)}
    trainer = pushpull.numpy.Trainer(pushpull.connect(), weights, show_progress=False)
    begun = {}
    for batch in trainer.batches(10000):
        begun[batch.position] = time.monotonic()
        time.sleep(seconds_per_sample * len(batch))
        trainer.push({"w": weights["w"] - 1}, samples=len(batch), loss=0.0)
    last = max(begun)
    half = last // 2
    print(f"RATE {(last - half) / (begun[last] - begun[half]):.6f}", flush=True)


def measure(flags, shares, folder):
    """Returns (steps per second, log of the server)."""
    speeds = speeds_of(flags)
    config = folder / "pipeline.config"
    config.write_text(CONFIG.format(batch=flags.batch, steps=flags.steps, shares=shares))
    address = f"unix:{folder}/ps.sock"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PUSHPULL_BIN_DIR": str(flags.bin),
                   "PUSHPULL_CLIENT_LIBRARY": str(flags.library), "OMP_NUM_THREADS": "1",
                   "PUSHPULL_PS": address, "PUSHPULL_NUM_CLONES": str(flags.clones)}
    with open(folder / "ps.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen([flags.bin / "ps_server", f"--pipeline_config_path={config}",
                                   f"--train_dir={folder / 'run'}", f"--listen={address}", "--state_dir=",
                                   f"--num_replicas={flags.clones}"], stdout=log, stderr=log)
    clones = []
    try:
        for index, speed in enumerate(speeds):
            clone = {"PUSHPULL_CLONE": str(index), "PUSHPULL_SESSION": str(index + 1), "PUSHPULL_PROCESS_NUMBER": "1"}
            clones.append(subprocess.Popen([sys.executable, __file__, f"--clone_seconds_per_sample={1 / speed}"],
                                           env={**environment, **clone}, stdout=subprocess.PIPE, text=True))
        rates = []
        for clone in clones:
            output, _ = clone.communicate(timeout=600)
            found = re.search(r"RATE (\S+)", output)
            if clone.returncode != 0 or found is None:
                raise SystemExit(f"a clone failed; see its error above, and {(folder / 'ps.log').read_text()}")
            rates.append(float(found[1]))
        server.wait(60)
    finally:
        for process in [*clones, server]:
            stop(process)
    return min(rates), (folder / "ps.log").read_text()


def speeds_of(flags):
    """Returns samples per second of each clone."""
    return [flags.samples_per_second * (flags.slow if index == 0 else 1) for index in range(flags.clones)]


def main():
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=int, default=4)
    parser.add_argument("--samples_per_second", type=float, default=300)
    parser.add_argument("--slow", type=float, default=0.25)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=65)
    parser.add_argument("--shares", default="EQUAL,BY_SPEED")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build" / "lib" / "libpushpull_client.so")
    parser.add_argument("--clone_seconds_per_sample", type=float, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.clone_seconds_per_sample is not None:
        run_clone(flags.clone_seconds_per_sample)
        return
    total = sum(speeds_of(flags))
    print(f"{flags.clones} clones, clone 0 at {flags.slow:g} of {flags.samples_per_second:g} samples/s; the sum of their "
          f"speeds is {total:g} samples/s")
    for shares in flags.shares.split(","):
        with tempfile.TemporaryDirectory(prefix="pushpull-") as folder:
            rate, log = measure(flags, shares, pathlib.Path(folder))
        divisions = re.findall(r"shares by speed from step (\d+) on: ([\d, ]+) samples", log)
        print(f"{shares:9} {rate * flags.batch:7.0f} samples/s, {100 * rate * flags.batch / total:5.1f} % of the sum" +
              "".join(f"; from step {step}: {samples}" for step, samples in divisions))


if __name__ == "__main__":
    main()
