"""Tests of deploy/slurm/train.sbatch under a real Slurm on this machine.

Needs root, slurm-wlm and munge, and takes about two minutes, so it runs only with PUSHPULL_TEST_FULL=1.
"""
import json
import os
import re
import sys
import tempfile
import time
import unittest

import slurm
from cluster_harness import FULL, ClusterTest, main
from harness import BIN, ROOT

SCRIPT = ROOT / "deploy" / "slurm" / "train.sbatch"


@unittest.skipUnless(FULL, "two minutes: only with PUSHPULL_TEST_FULL=1")
@unittest.skipIf(slurm.missing(), slurm.missing())
class SlurmTest(ClusterTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.scratch = tempfile.TemporaryDirectory(prefix="pushpull-slurm-")
        os.chmod(cls.scratch.name, 0o755)
        cls.slurm = slurm.Slurm(os.path.join(cls.scratch.name, "slurm"))

    @classmethod
    def tearDownClass(cls):
        cls.slurm.close()
        cls.scratch.cleanup()
        super().tearDownClass()

    def submit(self, config, *words, **environment):
        """Submits a job of 2 ps tasks, 2 workers with one clone each, and an evaluator. Returns its id."""
        self.run_dir = self.folder / "run"
        self.log = self.folder / "job.log"
        variables = dict(BIN=str(BIN), PIPELINE=str(config), TRAIN_DIR=str(self.run_dir), PS_TASKS="2",
                         WORKERS="2", PORT=str(slurm.free_port()),
                         PS_FLAGS=f"--state_dir={self.state_dir('run')} --lease=5s",
                         WORKER_FLAGS="--device=cpu --threads=1", EVALUATOR_FLAGS="--device=cpu")
        variables.update(environment)
        return self.slurm.submit("--ntasks=5", "--overcommit", f"--output={self.log}", f"--chdir={ROOT}",
                                 *words, str(SCRIPT), **variables)

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def await_log(self, pattern, timeout=120):
        """Waits until the log matches the pattern and returns the match."""
        deadline = time.monotonic() + timeout
        while not (found := re.search(pattern, self.log_text())):
            self.assertLess(time.monotonic(), deadline, f"no {pattern!r} in\n{self.log_text()}")
            time.sleep(0.1)
        return found

    def show(self, pattern):
        """Prints the lines of the log that match, for the reader of the test's output."""
        for line in self.log_text().splitlines():
            if re.search(pattern, line):
                print("  " + line, file=sys.stderr)

    def assert_completed(self, number, steps, timeout=240):
        """Waits for the end of the job and checks its exit code, checkpoint and evaluation."""
        job = self.slurm.await_state(number, ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"),
                                     timeout)
        self.assertEqual((job["JobState"], job["ExitCode"]), ("COMPLETED", "0:0"), self.log_text())
        manifest = json.loads((self.run_dir / f"ckpt-{steps:08d}" / "MANIFEST.json").read_text())
        self.assertEqual(manifest["step"], steps)
        self.assertTrue(list((self.run_dir / "eval").glob("*tfevents*")), "the evaluator wrote nothing")

    def test_trains_and_completes(self):
        number = self.submit(self.write_config(steps=200))
        self.assert_completed(number, 200)
        for rank in range(5):
            self.assertRegex(self.log_text(), rf"(?m)^{rank}: ", "a rank's lines do not begin with its number")
        self.assertIn("trained to step 200", self.log_text())
        self.show("SLURM|trained to|ended with|^job")

    def test_requeued_job_resumes_from_the_checkpoint(self):
        # Without mapped state, as if the job restarted on another node.
        config = self.write_config(steps=1000, train="save_checkpoints_steps: 50")
        number = self.submit(config, PS_FLAGS="--state_dir= --lease=5s")
        deadline = time.monotonic() + 120
        while not list(self.folder.glob("run/ckpt-*/MANIFEST.json")):
            self.assertLess(time.monotonic(), deadline, self.log_text())
            time.sleep(0.1)
        self.slurm.run("scontrol", "requeue", number)
        # A requeued job waits two minutes before it may start again, unless StartTime is set.
        self.slurm.await_state(number, ("PENDING",), 60)
        self.slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now", check=False)
        saved = max(int(path.name[5:]) for path in self.run_dir.glob("ckpt-????????"))
        found = self.await_log(r"epoch (\d+) begins with step (\d+) of epoch \d+ from the checkpoint", timeout=200)
        self.assertEqual(int(found.group(2)), saved)
        self.assertNotEqual(saved % 50, 0, "no checkpoint was published when the job was told to end")
        self.assertEqual(found.group(1), "2")
        self.await_log(rf"job {number}, start 2, on localhost")
        self.assert_completed(number, 1000, timeout=400)
        self.assertEqual(self.slurm.job(number)["Restarts"], "1")
        self.show("start [12]|begins with|trained to|ended with")

    def test_new_job_resumes_after_scancel(self):
        config = self.write_config(steps=1000, train="save_checkpoints_steps: 50")
        number = self.submit(config, PS_FLAGS="--state_dir= --lease=5s")
        self.await_log(r"begins with step 0 of epoch \d+ from initial variables")
        deadline = time.monotonic() + 120
        while not list(self.folder.glob("run/ckpt-*/MANIFEST.json")):
            self.assertLess(time.monotonic(), deadline, self.log_text())
            time.sleep(0.1)
        self.slurm.run("scancel", number)
        self.slurm.await_state(number, ("CANCELLED",), 60)
        while self.slurm.run("squeue", "--noheader", f"--jobs={number}", check=False).strip():
            time.sleep(0.2)
        again = self.submit(config, PS_FLAGS="--state_dir= --lease=5s")
        found = self.await_log(r"epoch 2 begins with step (\d+) of epoch \d+ from the checkpoint")
        self.assertGreaterEqual(int(found.group(1)), 50)
        self.assert_completed(again, 1000, timeout=400)

    def test_job_saves_and_requeues_itself_before_the_time_limit(self):
        config = self.write_config(steps=1000000)
        number = self.submit(config, "--signal=TERM@50", "--time=1", PS_FLAGS="--state_dir= --lease=5s")
        self.await_log(rf"job {number}: stopped after a checkpoint; back into the queue", timeout=150)
        self.slurm.await_state(number, ("PENDING",), 60)
        (checkpoint,) = self.run_dir.glob("ckpt-????????")
        self.assertGreater(int(checkpoint.name[5:]), 0)
        self.show("finishing|stopped after|begins with")
        self.slurm.run("scancel", number)

    def test_failing_rank_ends_the_job_with_its_exit_code(self):
        config = self.write_config(steps=200)
        number = self.submit(config, WORKER_FLAGS="--device=cpu --threads=-1")
        job = self.slurm.await_state(number, ("FAILED",), 90)
        self.assertEqual(job["ExitCode"], "64:0", self.log_text())
        self.assertIn("--threads", self.log_text())
        self.assertNotIn("back into the queue", self.log_text())


if __name__ == "__main__":
    main()
