#!/usr/bin/env python3
"""Accuracy, bytes and time of training with local steps over a slow link. Needs root, and MNIST's four files.

usage: scripts/bench/local_steps.py --data_dir=DIR [--jobs=mnist,language] [--ways=1:fp32/fp32,8:int8/bf16,64:int8/bf16]
           [--seeds=1,2,3] [--batches=1792] [--rate=100mbit] [--clones=2] [--bin=build/bin]

Trains two jobs: MobileNetV2 (width 0.35) on MNIST with the C++ worker, and python/examples/language_model.py. A way is
the number of local steps : the encoding of gradients / the encoding of weights. Every way sees the same number of
mini-batches and hence of samples. The language model runs in the Python of this script, which needs PyTorch for it.

Accuracy comes from whole runs without the link, one for each seed, because a link changes no bits of a synchronous run.
Bytes and seconds of a round come from two short runs over the link (slow_link.py), of which the second is longer: what
start and end cost is the same in both and falls out of the difference. The bytes are those of the link, both
directions together. A whole run has batches / local steps rounds.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from slow_link import SlowLink, exit_on_signals, stop

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "python" / "examples"
OUTER = "outer_optimizer {{ learning_rate: {rate} momentum: {momentum} use_nesterov: {nesterov} }}"


@dataclasses.dataclass(frozen=True)
class Way:
    """How a job is trained: mini-batches per round, and encodings."""

    local_steps: int
    gradients: str
    weights: str

    @staticmethod
    def parse(text):
        """Parses "64:int8/bf16". Raises ValueError."""
        match = re.fullmatch(r"(\d+):(\w+)/(\w+)", text)
        if match is None:
            raise ValueError(f"the way {text!r} is not like 64:int8/bf16")
        return Way(int(match[1]), match[2], match[3])

    def __str__(self):
        return f"{self.local_steps}:{self.gradients}/{self.weights}"

    def folder_name(self):
        """Returns a name that no other way has, without ":" and "/"."""
        return f"{self.local_steps}_{self.gradients}_{self.weights}"


def check_jobs(jobs):
    """Raises ValueError if a job is not known, or needs a module that this Python does not have."""
    for job in jobs:
        if job not in ("mnist", "language"):
            raise ValueError(f"there is no job {job!r}, expected mnist or language")
    for module in ("numpy", "torch"):
        if "language" in jobs and importlib.util.find_spec(module) is None:
            raise ValueError(f"the job language needs the module {module}, which {sys.executable} does not have; start "
                             "this script with a Python that has it, or give --jobs=mnist")


def replaced(text, pattern, replacement):
    """Replaces a pattern that occurs in the text. Raises ValueError if it does not."""
    text, count = re.subn(pattern, replacement, text)
    if count == 0:
        raise ValueError(f"the config has nothing like {pattern!r}")
    return text


def job_config(job, arguments, way, seed, rounds):
    """Returns the pipeline config of a run of this many rounds, with the learning rates of the whole run."""
    if job == "mnist":
        text = (ROOT / "deploy" / "pipelines" / "mobilenet_v2_mnist.config").read_text()
        text = replaced(text, r"depth_multiplier: [0-9.]+", "depth_multiplier: 0.35")
    else:
        text = (EXAMPLES / "language_model.config").read_text()
    text = re.sub(r"\n *seed: \d+", "", text)
    text = replaced(text, r"total_steps: \d+", f"total_steps: {arguments.batches}")
    settings = f"num_steps: {rounds} seed: {seed}"
    if way.local_steps > 1:
        settings += f" local_steps: {way.local_steps} "
        settings += OUTER.format(rate=arguments.outer_rate, momentum=arguments.outer_momentum,
                                 nesterov=str(arguments.outer_momentum > 0).lower())
    return replaced(text, r"num_steps: \d+", settings)


def accuracy_of(job, arguments, folder, worker_output):
    """Returns the accuracy of the last checkpoint, in percent."""
    if job == "language":
        return float(re.search(r"unseen texts: .*accuracy ([0-9.]+)%", worker_output)[1])
    output = subprocess.run(
        [arguments.bin / "evaluator", "--run_once", f"--checkpoint_dir={folder}/train",
         f"--pipeline_config_path={folder}/job.config", f"--data_dir={arguments.data_dir}",
         f"--eval_dir={folder}/eval"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    return 100.0 * json.loads(output.splitlines()[-1])["accuracy"]


def worker_command(job, arguments, way, address):
    """Returns the command that starts all clones."""
    flags = [f"--num_clones={arguments.clones}", f"--ps={address}", "--insecure",
             f"--gradient_precision={way.gradients}", f"--weight_precision={way.weights}", "--shared_memory=false"]
    if job == "mnist":
        return [arguments.bin / "worker", "--device=cpu", f"--data_dir={arguments.data_dir}", *flags]
    return [sys.executable, "-m", "pushpull", "worker", *flags, EXAMPLES / "language_model.py"]


def run(job, arguments, way, seed, rounds, folder, address, inside=()):
    """Trains. `inside`: goes before the workers' command. Returns the seconds, and what the workers have printed."""
    folder.mkdir()
    (folder / "job.config").write_text(job_config(job, arguments, way, seed, rounds))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1",
                   "PUSHPULL_BIN_DIR": str(arguments.bin),
                   "PUSHPULL_CLIENT_LIBRARY": str(arguments.bin.parent / "lib" / "libpushpull_client.so")}
    begin = time.monotonic()
    with open(folder / "ps_server.log", "w") as log, open(folder / "worker.log", "w") as worker_log:
        server = subprocess.Popen(
            [arguments.bin / "ps_server", "--insecure", f"--listen={address}", f"--train_dir={folder}/train",
             f"--pipeline_config_path={folder}/job.config", f"--num_replicas={arguments.clones}"],
            stdout=log, stderr=log)
        try:
            worker = subprocess.Popen([*inside, *worker_command(job, arguments, way, address)],
                                      stdout=worker_log, stderr=worker_log, env=environment)
            try:
                code = None
                while code is None and server.poll() in (None, 0):  # a server that fails leaves the workers waiting
                    time.sleep(0.05)
                    code = worker.poll()
            finally:
                stop(worker)
            if code == 0:
                server.wait(60)
        finally:
            stop(server)
    said = (folder / "worker.log").read_text()
    if code != 0:
        raise RuntimeError(f"the workers or the server failed; the workers say: {said[-1000:]}\nthe server says: "
                           f"{(folder / 'ps_server.log').read_text()[-1000:]}")
    return time.monotonic() - begin, said


def link_bytes(link):
    """Returns how many bytes have passed the link so far, both directions together."""
    return sum(int(pathlib.Path(f"/sys/class/net/{link.server_end}/statistics/{way}_bytes").read_text())
               for way in ("rx", "tx"))


def measure_round(job, arguments, way, link, folder):
    """Returns the seconds and the bytes of one round over the link."""
    short, extra = 2, max(4, arguments.timed_batches // way.local_steps)
    measured = []
    for rounds in (short, short + extra):
        before = link_bytes(link)
        seconds, _ = run(job, arguments, way, 1, rounds, folder / f"link_{way.local_steps}_{rounds}",
                         f"{link.address}:22{way.local_steps:02d}", link.inside)
        measured.append((seconds, link_bytes(link) - before))
    return tuple((long - brief) / extra for brief, long in zip(*measured))


def measure_job(job, arguments, ways, link, folder):
    """Prints the rows of a job."""
    base = None
    for way in ways:
        rounds = arguments.batches // way.local_steps
        accuracies = []
        for seed in map(int, arguments.seeds.split(",")):
            at = folder / f"{job}_{way.folder_name()}_{seed}"
            _, said = run(job, arguments, way, seed, rounds, at, f"127.0.0.1:{arguments.port}")
            accuracies.append(accuracy_of(job, arguments, at, said))
        links = folder / f"{job}_{way.folder_name()}_link"
        links.mkdir()
        seconds, transferred = measure_round(job, arguments, way, link, links)
        total = transferred * rounds
        base = base or (total, seconds * rounds, statistics.mean(accuracies))
        print(f"{job:>9} {str(way):>14} {rounds:7d} | {statistics.mean(accuracies):7.2f} "
              f"{statistics.mean(accuracies) - base[2]:+6.2f} ({', '.join(f'{a:.2f}' for a in accuracies)}) | "
              f"{total / 1e6:10.2f} {base[0] / total:7.1f} | {seconds * rounds:8.1f} {base[1] / seconds / rounds:6.1f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data_dir", type=pathlib.Path, required=True, help="has MNIST's four files")
    parser.add_argument("--jobs", default="mnist,language")
    parser.add_argument("--ways", default="1:fp32/fp32,8:int8/bf16,64:int8/bf16", help="the first is the base")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--batches", type=int, default=1792, help="mini-batches of a whole run")
    parser.add_argument("--timed_batches", type=int, default=16, help="mini-batches that are timed over the link")
    parser.add_argument("--outer_rate", type=float, default=1.0)
    parser.add_argument("--outer_momentum", type=float, default=0.0)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--clones", type=int, default=2)
    parser.add_argument("--port", type=int, default=2290)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    arguments = parser.parse_args()
    exit_on_signals()
    try:
        ways = [Way.parse(text) for text in arguments.ways.split(",")]
        jobs = arguments.jobs.split(",")
        check_jobs(jobs)
        with SlowLink() as link, tempfile.TemporaryDirectory() as name:
            link.set_rate(arguments.rate)
            print(f"{arguments.clones} clones, {arguments.rate}, {arguments.batches} mini-batches\n"
                  f"{'job':>9} {'way':>14} {'rounds':>7} | {'acc. %':>7} {'change':>6} (seeds) | {'MB':>10} "
                  f"{'times fewer':>7} | {'s on link':>8} {'faster':>6}")
            for job in jobs:
                measure_job(job, arguments, ways, link, pathlib.Path(name))
    except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
        print(f"local_steps: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
