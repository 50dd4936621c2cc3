"""The number of clones changes in mid-run, and their shares follow their speed.

PUSHPULL_TEST_FULL=1 makes the runs longer and kills the server more often.
"""
import random
import re
import time

import numpy

from support import FULL, PROGRAMS, EndToEndTest, PythonJobTest, ServerKeptAlive, main
from administrators import AdministratorTest, clone_of

BATCH = 31
STEPS = 400  # the clones are slow until the test has looked, which leaves it 20 s or more
KILLS_IN_A_SCALE = 10 if FULL else 1


def owners(status):
    """Returns the replicas of each clone that has some."""
    return {clone["worker_id"]: clone["replicas"] for clone in status["clones"] if clone["replicas"]}


class Scaling(PythonJobTest, AdministratorTest):
    # A server that waits for the variables does not serve yet, so the start does not wait for that.
    start_server = EndToEndTest.start_server

    def start_clone(self, index, workers, *arguments):
        """Starts a worker with one clone, whose flags name `workers` clones in all."""
        return self.start_python(f"worker{index}.log", "-m", "pushpull", "worker", f"--ps={self.address()}",
                                 "--num_clones=1", f"--num_workers={workers}", f"--worker_index={index}",
                                 PROGRAMS / "perceptron.py", f"--pause_until={self.folder / 'seen'}", *arguments)

    def end_pauses(self):
        """Lets the clones train as fast as they can from now on."""
        (self.folder / "seen").touch()

    def wait_for_replicas(self, number):
        """Waits until every replica has a clone, and checks the shares. Returns the status."""

        def all_have_an_owner(status):
            replicas = sorted(replica for clone in status["clones"] for replica in clone["replicas"])
            return status["num_replicas"] == number and replicas == list(range(number))

        status = self.wait_until(all_have_an_owner, what=f"{number} replicas with owners")
        self.assertEqual(sum(clone["samples_per_step"] for clone in status["clones"]), BATCH)
        return status

    def expect_weights_of_one_clone(self, config):
        """Trains undisturbed with one clone, and expects the weights of the run within rounding."""
        self.train_in_python(config, "perceptron.py", run="straight", clones=1)
        for name, values in self.weights("straight").items():
            numpy.testing.assert_allclose(self.weights()[name], values, atol=1e-5, err_msg=name)

    def test_one_to_four_to_two_clones_with_kills(self):
        config = self.write_config(steps=STEPS * KILLS_IN_A_SCALE)
        server = ServerKeptAlive(lambda log: self.start_server(config, log=log))
        workers = [self.start_clone(0, 1, "--pause=0.1")]
        server.servers[0].wait_for("clone 0 (")
        self.wait_for_step(10)
        self.assertEqual(self.wait_for_replicas(1)["num_replicas"], 1)

        # Clones beyond the job's number are spares until the job is scaled.
        workers += [self.start_clone(index, 4, "--pause=0.1") for index in (1, 2, 3)]
        status = self.wait_until(lambda status: sum(clone["alive"] for clone in status["clones"]) == 4,
                                 what="four clones")
        self.assertEqual(clone_of(status, 3)["replicas"], [])
        self.assertIn("a spare in a job of 1 replicas", server.text())
        said = self.psctl("scale", 4, "--wait", "--timeout=30s")
        self.assertRegex(said, r"4 replicas from step \d+ on, 1 until then; 4 clones are there\n")
        status = self.wait_for_replicas(4)
        for index in range(4):
            self.assertEqual(clone_of(status, index)["replicas"], [index])

        # A killed server goes on with the number of psctl, whatever the flags of the first clone say.
        server.kill()
        server.servers[-1].wait_for("psctl scale has set 4 replicas in this run")
        self.wait_for_step(self.wait_for_replicas(4)["version"] + 5)

        # A server that is killed in the middle of a change goes on with the old number or with the new one.
        for number in [2, 3] * (KILLS_IN_A_SCALE // 2) + [2]:
            before = self.status()["num_replicas"]
            answer = self.in_thread(self.psctl_may_fail, "scale", number, "--timeout=5s")
            time.sleep(random.uniform(0.0, 0.08))
            server.kill()
            acknowledged = answer()
            server.servers[-1].wait_for("serving version")
            status = self.wait_until(lambda status: status["num_replicas"] > 0, what="a number")
            self.assertIn(status["num_replicas"], {number} if acknowledged else {before, number})
            self.wait_for_step(self.wait_for_replicas(status["num_replicas"])["version"] + 2)
        self.psctl("scale", 2, "--wait", "--timeout=30s")
        self.wait_for_replicas(2)
        # After the restart a spare that was back first has the replica of a home clone until the step after that clone
        # is back.
        status = self.wait_until(lambda status: owners(status) == {0: [0], 1: [1]}, what="both replicas at home")
        self.assertLess(status["version"], STEPS * KILLS_IN_A_SCALE, "training ended too early for this test")

        self.end_pauses()
        for worker in workers:  # the spares too end with the job
            self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.servers[-1].wait(), 0, server.text())
        versions = [int(version) for version in re.findall(r"serving version (\d+)", server.text())]
        self.assertEqual(len(versions), 2 + len([2, 3] * (KILLS_IN_A_SCALE // 2) + [2]))
        self.assertEqual(versions, sorted(versions), "applied steps were lost")
        # Every step had each sample of its batch once, or the weights would differ.
        self.expect_weights_of_one_clone(config)

    def psctl_may_fail(self, *arguments):
        """Returns whether psctl succeeded."""
        try:
            self.psctl(*arguments)
            return True
        except AssertionError:
            return False

    def test_bad_numbers_are_refused(self):
        config = self.write_config(steps=1000000)
        server = self.start_server(config)
        worker = self.start_clone(0, 1, "--pause=0.01")
        server.wait_for("clone 0 (")
        self.wait_until(lambda status: status["version"] > 0, what="a step")
        self.assertIn("1 or more", self.psctl("scale", 0, expect=64))
        self.assertIn("batch of 31 samples", self.psctl("scale", 32, expect=65))
        self.assertIn("scale N", self.psctl("scale", expect=64))
        # With fewer clones than replicas a clone computes several; nothing waits.
        said = self.psctl("scale", 3, "--wait", "--timeout=30s")
        self.assertIn("1 clones are there: they compute several replicas each", said)
        self.assertEqual(clone_of(self.wait_for_replicas(3), 0)["replicas"], [0, 1, 2])
        self.psctl("drain")
        self.assertEqual(server.wait(), 143, server.text())
        worker.kill(15)
        worker.wait()

    def test_shares_follow_the_speed_of_the_clones(self):
        config = self.write_config(steps=STEPS, train="replica_shares: BY_SPEED")
        server = self.start_server(config, "run")
        workers = [self.start_clone(index, 2, f"--seconds_per_sample={seconds}")
                   for index, seconds in enumerate((0.002, 0.008))]
        server.wait_for("clone 1 (")
        status = self.wait_until(lambda status: status["version"] >= 30, what="step 30")
        shares = [clone_of(status, index)["samples_per_step"] for index in (0, 1)]
        self.assertEqual(sum(shares), BATCH)
        self.assertGreater(shares[0], 2 * shares[1], "the clone that is four times as fast has the larger share")
        self.end_pauses()
        for worker in workers:
            self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())
        self.assertRegex(server.text(), r"shares by speed from step \d+ on: \d+, \d+ samples")
        self.expect_weights_of_one_clone(self.write_config("equal.config", steps=STEPS))


if __name__ == "__main__":
    main()
