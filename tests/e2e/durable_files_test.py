"""Durability: the real server syncs every file and folder, in the right order, before it relies on them.

A preloaded library (testkit/file_calls) records the calls. No other test notices a missing sync, because without a
power cut the bytes are there anyway.
"""
import os
import pathlib
import re
import signal

from harness import BIN, main
from administrators import AdministratorTest

LIBRARY = pathlib.Path(os.environ.get("PUSHPULL_RECORD_FILE_CALLS", BIN.parent / "lib" / "librecord_file_calls.so"))


class DurableFiles(AdministratorTest):

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
        """Returns (index of the call, old name, new name) of each rename or exchange whose new name matches."""
        found = []
        for i, call in enumerate(self.calls()):
            if call[0] == "rename" and re.fullmatch(pattern, call[2]):
                found.append((i, call[1], call[2]))
            elif call[0] == "exchange" and re.fullmatch(pattern, call[2]):
                found.append((i, call[1], call[2]))
        return found

    def check_synced(self, path, begin, end):
        """Checks that the calls from `begin` to `end` write the file and sync it after the last write. Returns the
        index of the last sync."""
        calls = self.calls()[begin:end]
        writes = [i for i, call in enumerate(calls) if call == ("write", path)]
        syncs = [i for i, call in enumerate(calls) if call == ("sync", path)]
        self.assertTrue(writes, f"{path} is not written: {calls}")
        self.assertTrue(syncs and syncs[-1] > writes[-1], f"{path} is not synced after it was written: {calls}")
        return begin + syncs[-1]

    def check_folder_synced_after(self, folder, place):
        """Checks that the folder is synced after call `place` and before the next rename."""
        for call in self.calls()[place + 1:]:
            if call == ("sync", folder):
                return
            self.assertNotIn(call[0], ("rename", "exchange"), f"{call} before the folder {folder} is synced")
        self.fail(f"the folder {folder} is not synced after call {place}")

    def check_checkpoint(self, place, pending, begin):
        """Checks the checkpoint that call `place` publishes; its files were written to `pending` since `begin`."""
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
    main()
