#!/usr/bin/env python3
"""Rounds per second of synchronous training over slow links, by the encoding of gradients and weights. Needs root.

usage: scripts/bench/link_rounds.py [--rates=100mbit,1gbit,10gbit,25gbit] [--encodings=fp32/fp32,int8/bf16]
           [--clones=1] [--rounds=20] [--repeats=3] [--bin=build/bin]

A real ps_server, and clone processes of ps_round behind a link of that rate (slow_link.py), push a gradient of
MobileNetV2's size (14.16 MB as float32) and pull the new weights, over and over. An encoding is that of gradients / that
of weights, as in worker's --gradient_precision and --weight_precision. The encodings take turns --repeats times; the
medians are over all rounds of all clones, and the last column compares the rounds per second with those of the first
encoding.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from slow_link import SlowLink, exit_on_signals, stop

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARMUP = 3

CONFIG = """
model {
  classifier {
    num_classes: 1000
    image_resizer { fixed_shape_resizer { height: 224 width: 224 } }
    feature_extractor {
      type: "mobilenet_v2"
      conv_hyperparams {
        activation: RELU_6
        initializer { truncated_normal_initializer { stddev: 0.09 } }
        batch_norm { decay: 0.997 scale: true center: true epsilon: 0.001 }
      }
    }
  }
}
train_config {
  batch_size: 96
  sync_replicas: true
  num_steps: 1000000
  save_checkpoints_secs: 100000
  optimizer { momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } } }
}
train_input_reader { image_folder_input_reader { path: "none" } }
eval_input_reader { image_folder_input_reader { path: "none" } }
"""


def cpu_seconds(pid):
    """Returns the processor time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(link, port, encoding, arguments, folder):
    """Runs a server with its clones. Returns (push ms, round ms, clone CPU ms) per round, and the server's CPU ms."""
    gradients, weights = encoding.split("/")
    config = folder / "pipeline.config"
    config.write_text(CONFIG)
    log = folder / f"ps_server_{port}.log"
    with open(log, "w") as output:
        server = subprocess.Popen(
            [arguments.bin / "ps_server", "--insecure", "--tasks=1", f"--listen={link.address}:{port}",
             f"--pipeline_config_path={config}", f"--train_dir={folder}/train_{port}",
             f"--num_replicas={arguments.clones}"],
            stdout=output, stderr=output)
    clones = []
    try:
        for index in range(arguments.clones):
            clones.append(subprocess.Popen(
                link.inside +
                [str(arguments.bin / "ps_round"), "--insecure", f"--clone_of={link.address}:{port}",
                 f"--clone_index={index}", f"--num_clones={arguments.clones}", f"--rounds={arguments.rounds}",
                 f"--warmup_rounds={WARMUP}", f"--gradient_precision={gradients}", f"--weight_precision={weights}"],
                stdout=subprocess.PIPE, text=True))
        rounds = []
        for clone in clones:
            output, _ = clone.communicate()
            if clone.returncode != 0:
                raise RuntimeError(f"a clone ended with {clone.returncode}; the server says:\n"
                                   f"{log.read_text()[-2000:]}")
            rounds += [tuple(map(float, line.split())) for line in output.splitlines()]
        server_ms = 1e3 * cpu_seconds(server.pid) / (arguments.rounds + WARMUP)
        return rounds, server_ms
    finally:
        for process in clones + [server]:
            stop(process)


def megabytes(encoding):
    """Returns how many MB of payload a round moves, in both directions."""
    per_element = {"fp32": 4.0, "bf16": 2.0, "int8": 34 / 32}
    gradients, weights = encoding.split("/")
    return 14.16 / 4 * (per_element[gradients] + per_element[weights])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rates", default="100mbit,1gbit,10gbit,25gbit")
    parser.add_argument("--encodings", default="fp32/fp32,bf16/fp32,int8/fp32,bf16/bf16,int8/bf16")
    parser.add_argument("--clones", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    arguments = parser.parse_args()
    encodings = arguments.encodings.split(",")
    exit_on_signals()
    port = 21000
    try:
        with SlowLink() as link, tempfile.TemporaryDirectory() as name:
            print(f"{arguments.clones} clone(s)\n{'link':>8} {'gradients/weights':>18} | {'MB':>6} | {'push ms':>8} "
                  f"{'round ms':>9} {'rounds/s':>9} | CPU ms: {'clone':>6} {'server':>7} | {'x ' + encodings[0]:>11}")
            for rate in arguments.rates.split(","):
                link.set_rate(rate)
                measured = {encoding: ([], []) for encoding in encodings}
                for _ in range(arguments.repeats):
                    for encoding in encodings:
                        port += 1
                        rounds, server_ms = measure(link, port, encoding, arguments, pathlib.Path(name))
                        measured[encoding][0].extend(rounds)
                        measured[encoding][1].append(server_ms)
                base = None
                for encoding, (rounds, server) in measured.items():
                    push, total, cpu = (statistics.median(column) for column in zip(*rounds))
                    base = base or total
                    print(f"{rate:>8} {encoding:>18} | {megabytes(encoding):6.2f} | {push:8.1f} {total:9.1f} "
                          f"{1e3 / total:9.2f} | {'':7} {cpu:6.1f} {statistics.median(server):7.1f} | "
                          f"{base / total:11.2f}", flush=True)
    except (RuntimeError, ValueError, OSError) as error:
        print(f"link_rounds: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
