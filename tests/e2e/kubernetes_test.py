"""The commands in the manifests of deploy/kubernetes/ train. They run as processes on this machine, over TLS, with the
environment that TFJob's controller (with the cluster or sparseCluster form of TF_CONFIG) or plain Kubernetes would
set."""
import os
import signal
import time
import unittest

import pods
from harness import EndToEndTest, main

FULL = os.environ.get("PUSHPULL_TEST_FULL") == "1"


@unittest.skipIf(pods.yaml is None, "PyYAML is missing: scripts/setup.sh installs python3-yaml")
class KubernetesTest(EndToEndTest):

    def prepare(self, manifest, sync, steps=20):
        self.kinds = pods.load(manifest)
        self.pods = pods.Pods(self.folder, self.write_config(sync=sync, steps=steps, batch=32))
        self.pods.make_certificates("shapes")
        self.processes = self.pods.processes

    def wait_until_ready(self, job, index):
        """Runs `worker --check_cluster` in a worker's pod until it finds every ps task ready. Returns the last run."""
        deadline = time.monotonic() + 60
        while True:
            check = self.pods.start_replica(job, "Worker", index, extra=["--check_cluster"])
            code = check.wait()
            if code == 0:
                return check
            self.assertEqual(code, 200, check.text())
            self.assertLess(time.monotonic(), deadline, check.text())
            time.sleep(0.2)

    def expect_done(self, *processes):
        for process in processes:
            self.assertEqual(process.wait(), 0, "".join(p.text() for p in self.processes))

    def expect_trained(self, job, steps=20):
        folder = self.folder / "train" / job
        self.assertTrue((folder / f"ckpt-{steps:08d}" / "MANIFEST.json").exists(), list(folder.iterdir()))
        self.assertTrue(list((folder / "eval").glob("events.out.tfevents.*")))
        self.assertEqual(len(list((folder / f"ckpt-{steps:08d}").glob("shard-*-of-00002.safetensors"))), 2)

    def run_tfjob(self, manifest, sync, steps=20, restart_worker=False):
        self.prepare(manifest, sync, steps)
        job, = self.kinds["TFJob"]
        name = job["metadata"]["name"]
        ps = [self.pods.start_replica(job, "PS", i) for i in range(2)]
        evaluator = self.pods.start_replica(job, "Evaluator", 0)
        check = self.wait_until_ready(job, 1)
        last_table = check.text().rpartition("task  address")[2]  # the log also holds the tables of earlier runs
        self.assertEqual(last_table.count(" ready "), 2, check.text())
        self.assertEqual(pods.listening_ports(evaluator.popen.pid), set())
        workers = [self.pods.start_replica(job, "Worker", i) for i in range(2)]
        if restart_worker:
            # The exit code is 137, for which TFJob's ExitCode policy creates the pod again.
            ps[0].wait_for("clone 1 (")
            os.killpg(workers[1].popen.pid, signal.SIGKILL)
            workers[1].wait()
            workers[1] = self.pods.start_replica(job, "Worker", 1)
        self.expect_done(*workers, *ps, evaluator)
        self.expect_trained(name, steps)
        return ps, workers

    def test_tfjob(self):
        ps, workers = self.run_tfjob("tfjob.yaml", "true")
        self.assertIn("ps task 1 (TF_CONFIG) of 2 (TF_CONFIG)", ps[1].text())
        self.assertIn("worker 1 (TF_CONFIG) of 2 (TF_CONFIG)", workers[1].text())

    def test_tfjob_with_dynamic_workers(self):
        # There are so many steps because otherwise the first worker may finish the job before the second one joins.
        ps, workers = self.run_tfjob("tfjob_dynamic.yaml", "false", steps=400)
        self.assertIn("ps task 1 (TF_CONFIG) of 2 (flag --cluster)", ps[1].text())
        self.assertIn("worker 1 (TF_CONFIG) of 2 (flag --num_workers)", workers[1].text())

    @unittest.skipUnless(FULL, "PUSHPULL_TEST_FULL=1: restarts a worker's pod")
    def test_tfjob_with_a_restarted_worker(self):
        self.run_tfjob("tfjob.yaml", "true", steps=2000, restart_worker=True)

    def test_plain_kubernetes(self):
        self.prepare("statefulset.yaml", "true")
        tasks, = self.kinds["StatefulSet"]
        workers_job, evaluator_job = self.kinds["Job"]
        ps = [self.pods.start(f"shapes-ps-{i}", tasks["spec"]["template"], {"PS_INDEX": str(i)}, extra=["--lease=5s"])
              for i in range(2)]
        workers = [self.pods.start(f"shapes-worker-{i}", workers_job["spec"]["template"], {"WORKER_INDEX": str(i)})
                   for i in range(workers_job["spec"]["completions"])]
        evaluator = self.pods.start("shapes-evaluator", evaluator_job["spec"]["template"], {})
        self.expect_done(*workers, evaluator)
        self.expect_trained("shapes")
        ps[1].wait_for("is the end of this run")  # a lease later, because task 0 gives no more orders
        time.sleep(1)
        for process in ps:
            # A task of the StatefulSet runs until the StatefulSet is deleted.
            self.assertIsNone(process.popen.poll(), process.text())
            process.kill(signal.SIGTERM)
        for process in ps:
            self.assertIn(process.wait(), (0, 143), process.text())

    def test_pods_of_another_role(self):
        """A program that is started with the TF_CONFIG of another role refuses it and says so."""
        self.prepare("tfjob.yaml", "true")
        job, = self.kinds["TFJob"]
        replicas = job["spec"]["tfReplicaSpecs"]
        for program, role in (("PS", "Worker"), ("Worker", "PS"), ("Evaluator", "Worker"), ("PS", "Evaluator")):
            environment = {"TF_CONFIG": self.pods.local(pods.tf_config(job, role, 0))}
            process = self.pods.start(f"{program}-as-{role}", replicas[program]["template"], environment)
            self.assertEqual(process.wait(), 64, process.text())
            self.assertIn("TF_CONFIG: task.type says that this process is the " + role.lower(), process.text())


if __name__ == "__main__":
    main(verbosity=2)
