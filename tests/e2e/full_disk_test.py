"""A server whose disk is full ends with 200, its workers wait, and the server that is started next finishes the job.

A preloaded library (testkit/fault_shim) makes single calls of the server fail.
"""
import errno
import os
import signal

from harness import BIN, EndToEndTest, main

LIBRARY = BIN / "libfault_shim.so"


class FullDisk(EndToEndTest):

    def setUp(self):
        super().setUp()
        if not LIBRARY.exists():
            self.skipTest(f"{LIBRARY} is not built")
        self.rule = None

    def start(self, log, name, *arguments, **options):
        if name == "ps_server" and self.rule is not None:
            # A program that is built with AddressSanitizer wants its library to be the first, unless it is told.
            sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
            roots = f"{self.folder}/run:{self.folder}/run.state"
            options["env"] = {**os.environ, "LD_PRELOAD": str(LIBRARY), "PUSHPULL_FAULT_RULES": self.rule,
                              "PUSHPULL_FAULT_ROOTS": roots, "ASAN_OPTIONS": sanitizer}
        return super().start(log, name, *arguments, **options)

    def check_error(self, call, error):
        """Starts the server with a disk on which `call` fails once, and then without the failure."""
        config = self.write_config(steps=20)
        worker = self.start_worker(clones=1)
        self.rule = f"{call}|1|{int(error)}"
        failed = self.start_server(config, log="failed.log")
        self.assertEqual(failed.wait(), 200, failed.text())
        self.assertIn(os.strerror(error), failed.text())
        self.rule = None
        self.assertIsNone(worker.popen.poll(), worker.text())
        server = self.start_server(config, log="next.log")
        self.assertEqual(server.wait(), 0, server.text())
        self.assertEqual(worker.wait(), 0, worker.text())

    def test_a_full_disk(self):
        self.check_error("write|*pipeline.config*", errno.ENOSPC)

    def test_a_broken_disk(self):
        self.check_error("write|*pipeline.config*", errno.EIO)

    def test_a_state_folder_that_has_become_read_only(self):
        self.check_error("rename|*run.state/*", errno.EROFS)

    def test_a_disk_that_is_full_for_a_moment_only_delays_the_start(self):
        config = self.write_config(steps=20)
        worker = self.start_worker(clones=1)
        self.rule = f"write|*EPOCH*|1|{int(errno.ENOSPC)}"
        server = self.start_server(config)
        self.assertEqual(server.wait(), 0, server.text())
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertIn("this is tried again", server.text())

    def test_a_disk_on_which_a_new_run_cannot_begin(self):
        """A worker that asks while the server tries to write run_id goes on with the run of the next server."""
        config = self.write_config(steps=20)
        self.rule = ";".join(f"write|*run_id*|{nth}|{int(errno.ENOSPC)}" for nth in range(1, 13))
        first = self.start_server(config, log="failed.log")
        first.wait_for("this is tried again")
        worker = self.start_worker(clones=1)
        worker.wait_for("waiting for ps task 0")
        first.kill(signal.SIGTERM)
        first.wait()
        self.rule = None
        self.assertIsNone(worker.popen.poll(), worker.text())
        server = self.start_server(config, log="next.log")
        self.assertEqual(server.wait(), 0, server.text())
        self.assertEqual(worker.wait(), 0, worker.text())


if __name__ == "__main__":
    main()
