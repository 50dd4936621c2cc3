"""The promises that must hold after every fault. The checks raise Violation; they repair nothing and do not wait."""
import base64
import hashlib
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "testkit"))
from protobuf_fields import fields  # pylint: disable=wrong-import-position

MANIFEST_BEGIN = re.compile(rb'^\{"manifest_sha256":"([0-9a-f]{64})",\n')
SERVING = re.compile(r"serving version (\d+) in epoch (\d+)")


class Violation(Exception):
    """A promise that was not kept."""


def checkpoint_steps(train_dir):
    """Returns the steps of all folders that are named like a checkpoint, in ascending order."""
    return sorted(int(path.name[5:]) for path in pathlib.Path(train_dir).glob("ckpt-*") if path.name[5:].isdigit())


def checkpoint_folder(train_dir, step):
    return pathlib.Path(train_dir) / f"ckpt-{step:08d}"


def read_manifest(folder):
    """Returns the manifest of a checkpoint. Raises Violation if the manifest or a file that it lists is damaged."""
    path = pathlib.Path(folder) / "MANIFEST.json"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise Violation(f"{path} is not there") from None
    begin = MANIFEST_BEGIN.match(text)
    if begin is None or hashlib.sha256(text[begin.end():]).hexdigest() != begin.group(1).decode():
        raise Violation(f"{path}: its digest is not that of its bytes")
    manifest = json.loads(text)
    for file in manifest["files"]:
        shard = pathlib.Path(folder) / file["name"]
        data = shard.read_bytes() if shard.exists() else b""
        if len(data) != int(file["size_bytes"]) or hashlib.sha256(data).hexdigest() != file["sha256"]:
            raise Violation(f"{shard} is not the file that its manifest lists")
    return manifest


def newest_verified(train_dir):
    """Returns the step of the newest checkpoint that is intact; -1 if there is none."""
    for step in reversed(checkpoint_steps(train_dir)):
        try:
            read_manifest(checkpoint_folder(train_dir, step))
            return step
        except Violation:
            continue
    return -1


def shards(train_dir, step):
    """Returns name -> bytes of the shard files of a checkpoint."""
    return {path.name: path.read_bytes() for path in checkpoint_folder(train_dir, step).glob("shard-*")}


def check_final(train_dir, steps):
    """Checks that the newest checkpoint is of step `steps`, is intact, and says that training is done.

    Returns its manifest.
    """
    found = checkpoint_steps(train_dir)
    if not found or found[-1] != steps:
        raise Violation(f"the newest checkpoint is of step {found[-1] if found else None}, expected {steps}")
    manifest = read_manifest(checkpoint_folder(train_dir, steps))
    if int(manifest["step"]) != steps or not manifest["training_done"]:
        raise Violation(f"the last manifest is of step {manifest['step']}, done: {manifest['training_done']}")
    return manifest


def check_identical(got, expected):
    """Checks that two results of shards() hold the same variables and optimizer slots, bit for bit."""
    if not expected or got.keys() != expected.keys():
        raise Violation(f"shards {sorted(got)}, expected {sorted(expected)}")
    for name, data in expected.items():
        if got[name] != data:
            differ = sum(a != b for a, b in zip(got[name], data))
            raise Violation(f"{name} differs from the undisturbed run in {differ} of {len(data)} bytes")


def marks_of(manifest):
    """Returns the marks in an asynchronous manifest as (replica, position).

    The position is the number of batches of that replica that were trained on.
    """
    marks = fields(base64.b64decode(manifest["async_state"]))
    decoded = [fields(mark) for mark in marks.get(1, [])]
    return [(mark.get(1, [0])[0], mark.get(POSITION_FIELD, [0])[0]) for mark in decoded]


# Field number of PushMark.next_position in protos/parameter_server.proto.
POSITION_FIELD = 4


def check_exactly_once(marks, steps, num_replicas):
    """Checks that each batch of each replica was trained on exactly once.

    Every applied push raises the step by one, and a replica's position counts the batches that were trained on, so the
    positions must add up to the step.
    """
    replicas = [replica for replica, _ in marks]
    if len(set(replicas)) != len(replicas) or any(replica >= num_replicas for replica in replicas):
        raise Violation(f"marks of replicas {replicas} in a job of {num_replicas}")
    total = sum(position for _, position in marks)
    if total != steps:
        word = "twice" if total < steps else "not at all"
        raise Violation(f"{abs(total - steps)} batches were trained on {word}: the positions {marks} add up to "
                        f"{total}, the step is {steps}")


class Floor:
    """The lowest version with which a server may start to serve after a fault."""

    def __init__(self, log_path, begin, version, why):
        """The floor holds from byte `begin` of `log_path`, the log of one life of task 0. The lives of a task write
        NAME.0.log, NAME.1.log and so on."""
        self.log_path = pathlib.Path(log_path)
        self.begin = begin
        self.version = version
        self.why = why

    def _texts(self):
        """Yields (name, text) of this life's log, from `begin` on, and of the logs of all later lives."""
        name, life, _ = self.log_path.name.rsplit(".", 2)
        begin = self.begin
        path = self.log_path
        while path.exists():
            yield path.name, path.read_text(errors="replace")[begin:]
            begin = 0
            life = int(life) + 1
            path = self.log_path.with_name(f"{name}.{life}.log")

    def check(self):
        """Checks the first life that serves: its version must not be below the floor. Lives that ended before they
        served do not count."""
        for name, text in self._texts():
            serving = SERVING.search(text)
            if serving is None:
                continue
            if int(serving.group(1)) < self.version:
                raise Violation(f"{name} serves version {serving.group(1)} in epoch {serving.group(2)} after "
                                f"{self.why}, which had applied {self.version}")
            return


def check_epochs(texts):
    """Checks that each server began a greater epoch than all before. `texts` holds the logs of the servers of one
    train_dir, in the order of their starts."""
    epochs = [int(epoch) for text in texts for _, epoch in SERVING.findall(text)]
    for earlier, later in zip(epochs, epochs[1:]):
        if later <= earlier:
            raise Violation(f"epoch {later} began after epoch {earlier}")


def check_published_only_by(before, after, old_epoch):
    """Checks that a replaced server published and removed nothing after it was woken up.

    `before` and `after` map the step of each checkpoint to the epoch in its manifest; old_epoch is the epoch of the
    replaced server.
    """
    for step, epoch in after.items():
        if epoch == old_epoch and before.get(step) != epoch:
            raise Violation(f"the server of epoch {old_epoch} published step {step} after another one had taken over")
    for step, epoch in before.items():
        if step not in after:
            raise Violation(f"checkpoint {step} of epoch {epoch} was removed by a server that had been replaced")


def slope(samples):
    """Returns the slope of a least-squares line through (seconds, value) samples, in units per hour. It is 0 for fewer
    than two samples and for samples at the same time."""
    if len(samples) < 2:
        return 0.0
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((x - mean_x)**2 for x, _ in samples)
    if spread == 0:
        return 0.0
    return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread
