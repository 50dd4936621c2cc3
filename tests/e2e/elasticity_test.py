"""Workers join and leave during training; administrators save, evict and drain.

PUSHPULL_TEST_FULL=1 makes the runs longer.
"""
import pathlib
import re
import signal
import time

from harness import main
from administrators import FULL, AdministratorTest, clone_of

STEPS = 2500 if FULL else 200  # at least, before the job of the first test is drained


class Elasticity(AdministratorTest):

    def start_one(self, index, workers, run="run", log=None):
        """Starts a worker with one clone."""
        return self.start(log or f"{run}.worker{index}.log", "worker", f"--ps={self.address(run)}",
                          "--num_clones=1", f"--num_workers={workers}", f"--worker_index={index}",
                          "--threads=1", "--peer_deadline=60s")

    def leave(self, worker):
        """Ends a worker by SIGTERM."""
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(), 143, worker.text())

    def test_sync_result_does_not_depend_on_joining_and_leaving_workers(self):
        config = self.write_config(steps=1000000)
        # The lease is longer than the patience of the test: a worker that is stopped costs no lease.
        server = self.start_server(config, "run", "--lease=3000s")
        workers = [self.start_one(index, 3) for index in range(3)]
        self.wait_for_step(20)
        self.leave(workers[2])
        server.wait_for("was stopped and has left")
        server.wait_for("replica 2 goes to")
        self.wait_for_step(self.status()["version"] + 20)
        # The worker joins again and gets its replica back at a step boundary.
        workers[2] = self.start_one(2, 3, log="again.log")
        self.wait_until(lambda status: clone_of(status, 2)["replicas"] == [2], what="replica 2 at home")
        # An evicted clone does not come back. Its worker has no other clone, so it ends.
        text = self.psctl("evict", "1", "--reason=its disk is full")
        self.assertEqual(text, "evicted clone 1; it had replica 1\n")
        self.assertEqual(workers[1].wait(), 77, workers[1].text())
        self.assertIn("its disk is full", workers[1].text())
        if FULL:
            late = self.start_one(1, 3, log="late.log")
            self.assertEqual(late.wait(), 77, late.text())
        status = self.status()
        self.assertTrue(clone_of(status, 1)["evicted"])
        self.wait_for_step(max(STEPS, status["version"] + 20))
        server.kill(signal.SIGTERM)
        self.assertEqual(server.wait(), 143, server.text())
        for worker in (workers[0], workers[2]):
            self.leave(worker)
        last = self.newest_checkpoint()
        self.train(self.write_config("straight.config", steps=last), "straight", worker_flags=["--threads=1"])
        self.assertEqual(self.checkpoint(last), self.checkpoint(last, "straight"))

    def test_async_training_does_not_wait_for_missing_workers(self):
        config = self.write_config(steps=1000000, sync="false")
        lease = 20  # seconds, in which a slow machine makes the steps below too
        server = self.start_server(config, "run", f"--lease={lease}s")
        first = self.start_one(0, 2)
        # Training waits neither for a worker that has not joined yet nor for one that has left.
        self.wait_for_step(20)
        second = self.start_one(1, 2)
        self.wait_until(lambda status: clone_of(status, 1)["contributions"] >= 20,
                        what="contributions of the second worker")
        self.leave(second)
        left = time.monotonic()
        self.wait_for_step(self.status()["version"] + 20)
        self.assertLess(time.monotonic() - left, lease, "training waited for the end of a lease")
        again = self.start_one(1, 2, log="again.log")
        known = clone_of(self.status(), 1)["contributions"]
        status = self.wait_until(lambda s: clone_of(s, 1)["contributions"] > known)
        self.assertGreater(sum(status["staleness"]["counts"]), 40)
        server.kill(signal.SIGTERM)
        self.assertEqual(server.wait(), 143, server.text())
        last = self.newest_checkpoint()
        self.assertGreaterEqual(last, status["version"])
        for worker in (first, again):
            self.leave(worker)

    def test_administrators_save_evict_and_drain(self):
        config = self.write_config(steps=1000000)
        server = self.start_server(config, log="first.log")
        worker = self.start_worker()
        self.assertIn("no clone 9", self.psctl("evict", 9, expect=66))
        self.assertIn("unknown command", self.psctl("stop", expect=64))
        # A port that is too large must not wrap round to that of another job.
        self.assertIn("127.0.0.1:94758", self.psctl("status", "--ps=127.0.0.1:94758", expect=64))
        asked = self.wait_for_step(20)["version"]
        saved = int(re.search(r"step (\d+)", self.psctl("checkpoint")).group(1))
        self.assertGreaterEqual(saved, asked)
        self.assertTrue((self.folder / "run" / f"ckpt-{saved:08d}" / "MANIFEST.json").exists())

        self.psctl("evict", "--worker_id=1", "--reason=an experiment")
        worker.wait_for("it is out of the job")
        self.assertIn("an experiment", worker.text())
        self.wait_for_step(self.status()["version"] + 20)

        told = self.status()["version"]
        draining = self.psctl("drain")
        drained_at = int(re.search(r"step (\d+) is applied", draining).group(1))
        self.assertGreaterEqual(drained_at, told)
        self.assertEqual(server.wait(), 143, server.text())
        self.assertIn("an administrator has told this server to end", server.text())
        last = self.newest_checkpoint()
        self.assertGreaterEqual(last, drained_at)
        self.assertIn(self.address(), self.psctl("status", "--timeout=5s", expect=200))

        # The next server continues from there. It does not know of the eviction, so the clone is evicted again.
        server = self.start_server(config, log="second.log")
        server.wait_for(f"serving version {last} ")
        self.psctl_when_known("evict", 1)
        self.wait_for_step(last + 20)
        self.assertEqual(self.status()["rolled_back_steps"], 0)
        self.psctl("drain")
        self.assertEqual(server.wait(), 143, server.text())
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(), 143, worker.text())

    def test_the_flags_of_a_spare_may_name_more_clones_than_the_batch_has_images(self):
        server = self.start_server(self.write_config(steps=1000000))
        worker = self.start_one(0, 1)
        self.wait_for_step(1)
        spare = self.start_one(31, 32)  # the batch has 31 images
        spare.wait_for("this clone is a spare")
        self.leave(worker)  # the spare takes over
        self.wait_for_step(self.status()["version"] + 5)
        self.leave(spare)
        server.kill(signal.SIGTERM)
        self.assertEqual(server.wait(), 143, server.text())

    def psctl_when_known(self, *arguments):
        """Waits until a clone has registered, which tells a restarted server the number of clones, and runs psctl."""
        self.wait_until(lambda status: status["clones"], what="a clone")
        self.psctl(*arguments)

    def newest_checkpoint(self, run="run"):
        names = pathlib.Path(self.folder / run).glob("ckpt-*/MANIFEST.json")
        return max(int(name.parent.name[5:]) for name in names)


if __name__ == "__main__":
    main()
