"""What a power cut must not take: the real server syncs every file and folder before it relies on it, in the right order.

A preloaded library records the calls (testkit/file_calls). A sync that is left out is not seen by anything else: without
a power cut the bytes are there anyway.
"""
import os
import pathlib
import re
import signal
import unittest

from harness import BIN
from operators import OperatorTest

LIBRARY = pathlib.Path(os.environ.get("PUSHPULL_RECORD_FILE_CALLS", BIN.parent / "lib" / "librecord_file_calls.so"))


class DurableFiles(OperatorTest):

    def setUp(self):
        super().setUp()
        if not LIBRARY.exists():
            self.skipTest(f"{LIBRARY} is not built")
        self.train_dir = str(self.folder / "run")
        self.record = self.folder / "calls"
        self.env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "PUSHPULL_FILE_CALLS": str(self.record),
                    "PUSHPULL_FILE_CALLS_UNDER": self.train_dir}

    def start(self, log, name, *arguments, **options):
        if name == "ps_server":
            options["env"] = self.env
        return super().start(log, name, *arguments, **options)

    def calls(self):
        return [tuple(line.split(" ")) for line in self.record.read_text().splitlines()]

    def names_given(self, pattern):
        """Places of the calls that give a name of the train_dir, and what had another name before."""
        found = []
        for i, call in enumerate(self.calls()):
            if call[0] == "rename" and re.fullmatch(pattern, call[2]):
                found.append((i, call[1], call[2]))
            elif call[0] == "exchange" and re.fullmatch(pattern, call[2]):
                found.append((i, call[1], call[2]))
        return found

    def check_synced(self, path, begin, end):
        """The file is written, and synced after the last write, within these calls."""
        calls = self.calls()[begin:end]
        writes = [i for i, call in enumerate(calls) if call == ("write", path)]
        syncs = [i for i, call in enumerate(calls) if call == ("sync", path)]
        self.assertTrue(writes, f"nobody has written {path}: {calls}")
        self.assertTrue(syncs and syncs[-1] > writes[-1], f"{path} is not synced after it was written: {calls}")
        return begin + syncs[-1]

    def check_folder_synced_after(self, folder, place):
        """Before anything else in the folder gets another name."""
        for call in self.calls()[place + 1:]:
            if call == ("sync", folder):
                return
            self.assertNotIn(call[0], ("rename", "exchange"), f"{call} before the folder {folder} is synced")
        self.fail(f"the folder {folder} is not synced after call {place}")

    def check_checkpoint(self, place, pending, begin):
        calls = self.calls()
        parts = [(i, call[1], call[2]) for i, call in enumerate(calls[:place])
                 if i >= begin and call[0] == "rename" and call[2].startswith(pending + "/shard-")]
        self.assertTrue(parts, f"no shard file in {pending}")
        for i, temporary, _ in parts:
            self.check_synced(temporary, begin, i)
        manifest = self.check_synced(pending + "/MANIFEST.json", begin, place)
        last_name = max(manifest, *(i for i, _, _ in parts))
        self.assertIn(("sync", pending), calls[last_name:place], f"the names in {pending} are not synced")
        self.check_folder_synced_after(self.train_dir, place)

    def test_checkpoints_and_epochs_survive_a_power_cut(self):
        config = self.write_config(steps=1000000)
        worker = self.start_worker()
        for log in ("first.log", "second.log"):
            server = self.start_server(config, log=log)
            self.wait_for_step(self.status()["version"] + 5)
            self.psctl("checkpoint")
            server.kill(signal.SIGTERM)
            self.assertEqual(server.wait(), 143, server.text())
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(), 143, worker.text())

        run = re.escape(self.train_dir)
        published = self.names_given(run + r"/ckpt-\d+")
        self.assertGreaterEqual(len(published), 4, self.calls())
        begin = 0
        for place, pending, _ in published:
            self.check_checkpoint(place, pending, begin)
            begin = place
        epochs = self.names_given(run + "/EPOCH")
        self.assertGreaterEqual(len(epochs), 2, self.calls())
        begin = 0
        for place, temporary, _ in epochs:
            self.check_synced(temporary, begin, place)
            self.check_folder_synced_after(self.train_dir, place)
            begin = place


if __name__ == "__main__":
    unittest.main()
