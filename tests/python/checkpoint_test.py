"""pushpull.load reads whole checkpoints and refuses damaged ones. Needs no server."""
import errno
import json
import hashlib
import os
import pathlib
import shutil
import struct
import threading
import warnings
from unittest import mock

import numpy

from support import PATIENCE_S, TESTS, EndToEndTest, main

from harness import read_safetensors
import pushpull
import pushpull.checkpoint

GOLDEN = TESTS / "golden" / "checkpoint"


def write_checkpoint(folder, step, parts, variables, **changes):
    """Publishes a checkpoint whose shards have the given tensors: name -> (offset or None, flat array).

    As the server does, it writes the files into a pending folder and renames that.
    """
    published = folder / f"ckpt-{step:08d}"
    folder = folder / f".tmp-ckpt-{step:08d}-e1"
    folder.mkdir(parents=True)
    files = []
    for shard, tensors in enumerate(parts):
        header, metadata, data = {}, {}, b""
        for name, (offset, values) in tensors.items():
            bytes_ = values.astype("<f4").tobytes()
            header[name] = {"dtype": "F32", "shape": list(values.shape),
                            "data_offsets": [len(data), len(data) + len(bytes_)]}
            if offset is not None:
                metadata[f"part/{name}"] = json.dumps({"offset": offset})
            data += bytes_
        text = json.dumps({**header, "__metadata__": metadata}).encode()
        content = struct.pack("<Q", len(text)) + text + data
        name = f"shard-{shard:05d}-of-{len(parts):05d}.safetensors"
        (folder / name).write_bytes(content)
        files.append({"name": name, "sha256": hashlib.sha256(content).hexdigest()})
    manifest = {"format_version": 1, "run_id": "a" * 32, "epoch": 1, "step": step, "training_done": False,
                "has_ema": False, "files": files, "variables": variables, **changes}
    rest = json.dumps(manifest)[1:].encode()
    (folder / "MANIFEST.json").write_bytes(
        b'{"manifest_sha256":"' + hashlib.sha256(rest).hexdigest().encode() + b'",\n' + rest)
    folder.rename(published)


class Checkpoints(EndToEndTest):

    def test_reads_what_the_server_wrote(self):
        file = GOLDEN / "ckpt-00012000" / "shard-00000-of-00001.safetensors"
        stored = read_safetensors(file.read_bytes())
        for ema in (False, True):
            arrays = pushpull.load(GOLDEN, ema=ema)
            self.assertEqual(len(arrays), 6)
            for name, values in arrays.items():
                suffix = "/ExponentialMovingAverage" if ema and "moving" not in name else ""
                self.assertEqual(tuple(values.ravel()), stored[name + suffix], name)
        self.assertEqual(pushpull.load(GOLDEN)["Net/Conv/weights"].shape, (3, 3, 1, 4))
        self.assertEqual(list(pushpull.load(GOLDEN / "ckpt-00012000")), list(arrays))

    def test_joins_tensors_that_span_shards(self):
        values = numpy.arange(10, dtype=numpy.float32)
        variables = [{"name": "a", "shape": [2, 5], "moving_statistic": False},
                     {"name": "a/Momentum", "shape": [1], "moving_statistic": False}]
        first, second = {"a": (0, values[:7])}, {"a/Momentum": (None, values[4:5])}
        write_checkpoint(self.folder, 3, [first, {"a": (7, values[7:]), **second}], variables)
        loaded = pushpull.load(self.folder)
        numpy.testing.assert_array_equal(loaded["a"], values.reshape(2, 5))
        self.assertEqual(loaded["a/Momentum"][0], 4.0)
        write_checkpoint(self.folder, 4, [first, second], variables)
        with self.assertRaisesRegex(pushpull.CheckpointError, "has 7 of the 10 elements of a$"):
            pushpull.load(self.folder)
        self.assertEqual(pushpull.load(self.folder, step=3).keys(), loaded.keys())
        with self.assertRaisesRegex(pushpull.CheckpointError, "no moving averages"):
            pushpull.load(self.folder, step=3, ema=True)

    def test_every_damage_is_noticed(self):
        copy = self.folder / "ckpt-00012000"
        for name in ("MANIFEST.json", "shard-00000-of-00001.safetensors"):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(GOLDEN / "ckpt-00012000", copy)
            whole = (copy / name).read_bytes()
            for position in range(0, len(whole), max(1, len(whole) // 100)):
                flipped = bytes([whole[position] ^ 1])
                for damaged in (whole[:position], whole[:position] + flipped + whole[position + 1:]):
                    (copy / name).write_bytes(damaged)
                    with self.assertRaisesRegex(pushpull.CheckpointError, name):
                        pushpull.load(self.folder)
            (copy / name).unlink()
            with self.assertRaisesRegex(pushpull.CheckpointError, f"{name} cannot be read"):
                pushpull.load(self.folder)

    def test_no_checkpoint(self):
        with self.assertRaisesRegex(pushpull.CheckpointError, "there is no checkpoint in"):
            pushpull.load(self.folder)
        with self.assertRaisesRegex(pushpull.CheckpointError, "cannot be read"):
            pushpull.load(self.folder / "missing")
        for name in ("ckpt-123", "ckpt-00000007.given-up", ".tmp-ckpt-00000007-e1"):
            (self.folder / name).mkdir()
        self.assertEqual(pushpull.steps(self.folder), [])

    def test_watch_follows_to_the_end(self):
        variables = [{"name": "a", "shape": [1], "moving_statistic": False}]

        def write(step, **changes):
            write_checkpoint(self.folder / "new", step, [{"a": (None, numpy.full(1, step))}], variables, **changes)

        seen = []
        timer = threading.Timer(0.2, write, (5,))
        timer.start()
        for checkpoint in pushpull.watch(self.folder / "new", poll_seconds=0.02):
            seen.append((checkpoint.step, float(checkpoint.load()["a"][0])))
            if len(seen) == 1:
                write(10)
                write(20)
            elif len(seen) == 2:
                write(30, training_done=True)
        timer.join()
        self.assertEqual(seen, [(5, 5.0), (20, 20.0), (30, 30.0)])
        self.assertEqual(list(pushpull.watch(self.folder / "other", poll_seconds=0.01, wait_seconds=0.05)), [])
        (self.folder / "file").touch()
        with self.assertRaisesRegex(pushpull.CheckpointError, "file cannot be read: Not a directory"):
            next(pushpull.watch(self.folder / "file"))

    def write_one(self, step, value, **changes):
        variables = [{"name": "a", "shape": [1], "moving_statistic": False}]
        shutil.rmtree(self.folder / f"ckpt-{step:08d}", ignore_errors=True)
        write_checkpoint(self.folder, step, [{"a": (None, numpy.full(1, value))}], variables, **changes)

    def test_a_later_epoch_is_newer_than_a_later_step(self):
        self.write_one(300, 1.0)
        self.write_one(200, 2.0, epoch=2)
        self.assertEqual(pushpull.load(self.folder)["a"][0], 2.0)
        (self.folder / "ckpt-00000300" / "MANIFEST.json").write_text("{}")
        with self.assertWarnsRegex(UserWarning, "ckpt-00000300/MANIFEST.json is damaged.*ckpt-00000200 is used"):
            self.assertEqual(pushpull.load(self.folder)["a"][0], 2.0)

    def test_watch_notices_that_steps_are_trained_again(self):
        self.write_one(300, 1.0)
        seen = []
        for checkpoint in pushpull.watch(self.folder, poll_seconds=0.02, wait_seconds=PATIENCE_S):
            seen.append((checkpoint.step, float(checkpoint.load()["a"][0])))
            if len(seen) == 1:
                (self.folder / "ckpt-00000300").rename(self.folder / "ckpt-00000300.given-up")
                self.write_one(200, 2.0, epoch=2)
            elif len(seen) == 2:
                self.write_one(300, 3.0, epoch=2)
            else:
                self.write_one(300, 3.0, epoch=2, training_done=True)  # the same checkpoint
        self.assertEqual(seen, [(300, 1.0), (200, 2.0), (300, 3.0)])

    def test_checkpoints_of_another_run_do_not_count(self):
        (self.folder / "run_id").write_text("b" * 32 + "\n")
        for step in (300, 400):
            self.write_one(step, 1.0, epoch=7, training_done=True)
        with warnings.catch_warnings(record=True):
            with self.assertRaisesRegex(
                    pushpull.CheckpointError, f"there is no checkpoint in {self.folder} of the run that its run_id "
                    "file names; those of steps 300, 400 are of another run, and step=400 takes one"):
                pushpull.load(self.folder)
            self.assertFalse(pushpull.checkpoint.training_is_done(self.folder))
        self.assertEqual(pushpull.load(self.folder, step=300)["a"][0], 1.0)
        self.assertEqual(pushpull.load(self.folder / "ckpt-00000300")["a"][0], 1.0)
        self.write_one(200, 2.0, run_id="b" * 32)
        with self.assertWarnsRegex(UserWarning, "of steps 300, 400 in .* are of another run"):
            self.assertEqual(pushpull.load(self.folder)["a"][0], 2.0)
        with warnings.catch_warnings(record=True):
            self.assertFalse(pushpull.checkpoint.training_is_done(self.folder))
            self.assertEqual(pushpull.checkpoint.newest(self.folder).step, 200)

    def test_watch_follows_the_run_of_the_folder(self):
        (self.folder / "run_id").write_text("b" * 32 + "\n")
        self.write_one(300, 1.0, epoch=7, training_done=True)
        timer = threading.Timer(0.2, self.write_one, (10, 2.0), {"run_id": "b" * 32})
        timer.start()
        seen = []
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for checkpoint in pushpull.watch(self.folder, poll_seconds=0.02, wait_seconds=PATIENCE_S):
                seen.append(checkpoint.step)
                if len(seen) == 1:
                    self.write_one(20, 3.0, run_id="b" * 32, training_done=True)
        timer.join()
        self.assertEqual(seen, [10, 20])
        self.assertEqual(len(warned), 1, [str(warning.message) for warning in warned])

    def test_run_id_that_is_damaged(self):
        self.write_one(300, 1.0)
        (self.folder / "run_id").write_text("a" * 31)
        with self.assertRaisesRegex(pushpull.CheckpointError, "run_id: expected 32 hex digits"):
            pushpull.load(self.folder)

    def test_watch_goes_on_after_an_error_that_may_pass(self):
        read, listdir = pathlib.Path.read_bytes, os.listdir
        errors = {}  # path -> what its next reads fail with

        def fail_if_broken(path):
            if errors.get(pathlib.Path(path)):
                error = errors[pathlib.Path(path)].pop()
                raise OSError(error, os.strerror(error))

        with mock.patch.object(pathlib.Path, "read_bytes", lambda path: fail_if_broken(path) or read(path)), \
                mock.patch.object(os, "listdir", lambda path: fail_if_broken(path) or listdir(path)):
            for name, error in (("ckpt-00000200/MANIFEST.json", errno.ESTALE),
                                ("ckpt-00000200/MANIFEST.json", errno.EACCES), (".", errno.EMFILE)):
                with self.subTest(name=name, error=error):
                    self.write_one(100, 1.0)
                    self.write_one(200, 2.0)
                    path = self.folder / name
                    errors[path] = [error] * 4  # of load, of training_is_done, and of two polls of watch
                    with self.assertRaisesRegex(pushpull.CheckpointError, "cannot be read: ") as raised:
                        pushpull.load(self.folder)
                    self.assertEqual(raised.exception.exit_code, 200)
                    self.assertFalse(pushpull.checkpoint.training_is_done(self.folder))
                    self.assertEqual(errors[path], [error] * 2)
                    seen = []
                    with self.assertWarnsRegex(UserWarning, f"{path} cannot be read: .*; trying again"):
                        for checkpoint in pushpull.watch(self.folder, poll_seconds=0.02, wait_seconds=PATIENCE_S):
                            seen.append(checkpoint.step)
                            self.write_one(200, 2.0, training_done=True)
                    self.assertEqual(errors[path], [])
                    self.assertEqual(seen, [200])


if __name__ == "__main__":
    main()
