#!/usr/bin/env python3
"""Tries pipeline configs of TensorFlow's Object Detection API as they are: are they accepted, and do they train?

usage: python3 tensorflow_samples.py --configs=DIR --voc=DIR [--bin_dir=DIR] [--only=PATTERN] [--train] [--max_side=N]

DIR holds sample configs (*.config, also in subfolders), which this repository does not contain, and --voc a Pascal VOC
folder with the lists train and val. The paths in each config are replaced, and nothing else; then ps_server and
evaluator check it. No config's fine_tune_checkpoint exists here: its path is replaced too, and training leaves it out.

With --train each accepted config trains 20 steps on the VOC images in one clone, and is evaluated. So that this ends
within minutes, num_classes, batch_size, num_steps, num_examples and, above --max_side, the size of the images are
changed as well; the table names these fields. It is wrong if a config is refused, a loss is not finite, steps are
missing, or there is no evaluation. The exit code is then 1.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "scripts")]

STEPS = 20
EVALUATED = 8  # images
ENDS = 5  # the first and the last steps whose mean losses the table shows
PATIENCE_S = 1800


class Unexpected(Exception):
    """What went wrong with one config."""


def call(*command):
    """Runs a command and returns its subprocess.CompletedProcess. Raises Unexpected if it does not end."""
    try:
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
    except subprocess.TimeoutExpired as error:
        raise Unexpected(str(error)) from None


def make_records(bin_dir, voc, folder):
    """Writes the records of both splits and the label map train.pbtxt. Returns the number of classes."""
    folder.mkdir()
    for split, flags in (("train", []), ("val", [f"--label_map={folder / 'train.pbtxt'}"])):
        made = call(bin_dir / "make_records", "--format=voc", f"--input={voc}", f"--split={split}",
                    f"--output={folder / split}", "--skip_bad", *flags)
        if made.returncode != 0:
            sys.exit(f"make_records of {voc}, {split}: {made.stderr}")
    return len(re.findall(r"\bitem\b", (folder / "train.pbtxt").read_text()))


def with_paths(text, records):
    """Replaces the paths of a config, and nothing else."""
    text = re.sub(r'(\blabel_map_path:\s*)"[^"]*"', rf'\1"{records}/train.pbtxt"', text)
    text = re.sub(r'(\bfine_tune_checkpoint:\s*)"[^"]*"', rf'\1"{records}/model.ckpt"', text)
    splits = iter(("train", "val"))
    return re.sub(r'(\binput_path:\s*)"[^"]*"', lambda m: f'{m[1]}"{records}/{next(splits)}-?????-of-?????"', text)


class Changes:
    """A config's text, and the fields of it that were changed."""

    def __init__(self, text):
        self.text = text
        self.fields = []

    def set(self, field, value, within=None):
        """Sets the first field of this name, or adds it to the message `within`, which begins a line."""
        found = re.search(rf"\b{field}:\s*(\w+)", self.text)
        if found:
            self.text = self.text[:found.start(1)] + str(value) + self.text[found.end(1):]
        elif within is not None:
            self.text = re.sub(rf"(?m)^{within}:?\s*\{{", rf"\g<0> {field}: {value}", self.text)
        if (found and found[1] != str(value)) or (not found and within is not None):
            self.fields.append(f"{field} {found[1] if found else 'default'}->{value}")

    def limit(self, fields, limit):
        """Scales the numbers of `fields` by one factor such that none is above the limit."""
        values = [int(value) for field in fields for value in re.findall(rf"\b{field}:\s*(\d+)", self.text)]
        if not values or max(values) <= limit:
            return
        for field in fields:
            value = re.search(rf"\b{field}:\s*(\d+)", self.text)
            if value:
                self.set(field, int(value[1]) * limit // max(values))

    def remove(self, field):
        self.text, count = re.subn(rf'(?m)^\s*{field}:\s*"[^"]*"\n', "", self.text)
        if count:
            self.fields.append(f"no {field}")


def for_training(text, classes, batch_size, max_side):
    changes = Changes(text)
    changes.remove("fine_tune_checkpoint")
    changes.set("num_classes", classes)
    changes.set("batch_size", batch_size)
    changes.set("num_steps", STEPS, within="train_config")
    changes.set("num_examples", EVALUATED, within="eval_config")
    changes.limit(["height", "width"], max_side)
    changes.limit(["min_dimension", "max_dimension"], max_side)
    return changes


def check(bin_dir, path):
    """Returns the problems that ps_server and evaluator report, and the number of fields without effect."""
    server = call(bin_dir / "ps_server", "--check_config", f"--pipeline_config_path={path}", "--log_level=warning")
    evaluator = call(bin_dir / "evaluator", "--check_config", f"--pipeline_config_path={path}", "--log_level=error")
    problems = []
    for program, process in (("ps_server", server), ("evaluator", evaluator)):
        if process.returncode == 0:
            continue
        lines = [line.strip() for line in process.stderr.splitlines() if not line.startswith("W")]
        problems += [line for line in lines if line not in problems] or [f"{program}: exit {process.returncode}"]
    return problems, server.stderr.count("has no effect")


def train(bin_dir, text, folder):
    """Trains and evaluates. Returns the losses by step, the seconds and what the evaluator printed."""
    from plot_events import read_scalars
    from processes import Process
    (folder / "job.config").write_text(text)
    address = f"unix:{folder / 'ps.sock'}"
    begin = time.monotonic()
    nice = ("nice", "-n", "10")
    server = Process(folder / "server.log", "ps_server", f"--pipeline_config_path={folder / 'job.config'}",
                     f"--train_dir={folder / 'run'}", f"--listen={address}", f"--state_dir={folder / 'state'}",
                     prefix=nice)
    worker = Process(folder / "worker.log", "worker", f"--ps={address}", "--num_clones=1", prefix=nice)
    try:
        for process in (worker, server):
            if process.wait(PATIENCE_S) != 0:
                raise Unexpected(process.text()[-2000:])
    except AssertionError as error:
        raise Unexpected(str(error)[-2000:]) from None
    finally:
        worker.end()
        server.end()
    seconds = time.monotonic() - begin
    evaluated = call("nice", "-n", "10", bin_dir / "evaluator", "--run_once", f"--checkpoint_dir={folder / 'run'}",
                     "--log_level=error")
    if evaluated.returncode != 0:
        raise Unexpected(f"evaluator: exit {evaluated.returncode}: {evaluated.stderr[-2000:]}")
    losses = read_scalars(folder / "run").get("Loss/total_loss", {})
    return losses, seconds, json.loads(evaluated.stdout.splitlines()[-1])


def verdict(losses, metrics):
    """Returns the cells of a trained config's row. Raises Unexpected if training was not what it should be."""
    missing = sorted(set(range(1, STEPS + 1)) - set(losses))
    if missing:
        raise Unexpected(f"no loss of the steps {missing}")
    values = [losses[step] for step in sorted(losses)]
    if not all(map(math.isfinite, values)):
        raise Unexpected(f"losses that are not finite: {values}")
    if len(set(values)) == 1:
        raise Unexpected(f"the loss of all steps is {values[0]}")
    if metrics.get("step") != STEPS:
        raise Unexpected(f"expected an evaluation of step {STEPS}, got {metrics}")
    first, last = sum(values[:ENDS]) / ENDS, sum(values[-ENDS:]) / ENDS
    numbers = {name: value for name, value in metrics.items() if isinstance(value, (int, float)) and name != "step"}
    name = next((name for name in numbers if "mAP" in name), next(iter(numbers), ""))
    return f"loss {first:.3f}->{last:.3f} {'falls' if last < first else 'does not fall'}, {name} {numbers.get(name)}"


def try_config(bin_dir, text, changes, folder):
    """Checks a config and, with `changes`, trains it. Returns a word and an explanation. Raises Unexpected."""
    folder.mkdir()
    (folder / "checked.config").write_text(text)
    problems, without_effect = check(bin_dir, folder / "checked.config")
    if problems:
        return "REFUSED", "; ".join(problems)
    if changes is None:
        return "accepted", f"{without_effect} fields without effect"
    losses, seconds, metrics = train(bin_dir, changes.text, folder)
    return "trained", f"{verdict(losses, metrics)}; {seconds:.0f} s; changed: {', '.join(changes.fields)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", type=pathlib.Path, required=True)
    parser.add_argument("--voc", type=pathlib.Path, required=True)
    parser.add_argument("--bin_dir", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--only", default="", help="a regular expression: leaves out other file names")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--max_side", type=int, default=640, help="with --train: larger images are made smaller")
    parser.add_argument("--batch_size", type=int, default=4)
    arguments = parser.parse_args()
    os.environ["PUSHPULL_BIN_DIR"] = str(arguments.bin_dir)
    paths = [path for path in sorted(arguments.configs.rglob("*.config")) if re.search(arguments.only, path.name)]
    if not paths:
        sys.exit(f"{arguments.configs}: no *.config that matches {arguments.only!r}")
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="pushpull-samples-") as temporary:
        folder = pathlib.Path(temporary)
        classes = make_records(arguments.bin_dir, arguments.voc.resolve(), folder / "records")
        for number, path in enumerate(paths):
            text = with_paths(path.read_text(), folder / "records")
            changes = for_training(text, classes, arguments.batch_size, arguments.max_side)
            try:
                word, rest = try_config(arguments.bin_dir, text, changes if arguments.train else None,
                                        folder / str(number))
            except Unexpected as error:
                word, rest = "WRONG", f"{error}; changed: {', '.join(changes.fields)}"
            counts[word] += 1
            print(f"{word:8}  {path.stem}: {rest}", flush=True)
    total = ", ".join(f"{count} {word}" for word, count in counts.items())
    print(f"{len(paths)} configs: {total}; replaced in all: the paths, among them that of a fine_tune_checkpoint, "
          "which does not exist here")
    return 1 if counts["REFUSED"] or counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
