"""A job on several hosts, which are network namespaces: 2 ps tasks, 2 workers with 2 clones each, and an evaluator.

Takes about a quarter of an hour and needs root and iproute2, so it runs only with PUSHPULL_TEST_FULL=1.
"""
import json
import random
import signal
import statistics
import subprocess
import sys
import time
import unittest

import netns
from cluster_harness import FULL, MNIST, MNIST_CONFIG, ClusterTest, main

LEASE_S = 3  # short, so that some cuts are shorter and some are longer
PORT = 2222
PS = ("ps0", "ps1")
WORKERS = ("w0", "w1")
CLONES = 2
CUTS = 10  # per link
TASK_FLAGS = ("--insecure",)
WORKER_FLAGS = ("--insecure", "--device=cpu", "--threads=1")


@unittest.skipUnless(FULL, "a quarter of an hour: only with PUSHPULL_TEST_FULL=1")
@unittest.skipIf(netns.missing(), netns.missing())
class Hosts(ClusterTest):

    def setUp(self):
        super().setUp()
        self.net = netns.Network([*PS, *WORKERS, "eval"])

    def tearDown(self):
        super().tearDown()
        self.net.close()

    def start_hosts(self, run, config, *flags, data_dir=None):
        """Starts the job. Returns (tasks, workers)."""
        addresses = [f"{self.net.address(host)}:{PORT}" for host in PS]
        tasks = [
            self.start_task(run, config, index, addresses, *TASK_FLAGS, *flags,
                            prefix=self.net.enter(host)) for index, host in enumerate(PS)
        ]
        data = () if data_dir is None else (f"--data_dir={data_dir}",)
        workers = [
            self.start_cluster_worker(run, index, len(WORKERS), CLONES, addresses[0], *WORKER_FLAGS, *data,
                                      prefix=self.net.enter(host))
            for index, host in enumerate(WORKERS)
        ]
        return tasks, workers

    def await_end(self, processes, code, timeout):
        for process in processes:
            self.assertEqual(process.wait(timeout), code, self.logs())

    # Accuracy.

    def evaluation(self, run, *flags):
        """Returns the JSON that `evaluator --run_once` prints."""
        evaluator = self.start(f"{run}.once.log", "evaluator", "--run_once",
                               f"--checkpoint_dir={self.folder / run}", *flags, stdout=subprocess.PIPE)
        out, _ = evaluator.popen.communicate(timeout=300)
        self.assertEqual(evaluator.popen.returncode, 0, evaluator.text())
        return json.loads(out)

    @unittest.skipUnless(MNIST.is_dir(), f"no MNIST in {MNIST} (PUSHPULL_MNIST_DIR)")
    def test_mnist_gives_the_same_result_as_one_host(self):
        begin = time.monotonic()
        tasks, workers = self.start_hosts("hosts", MNIST_CONFIG, data_dir=MNIST)
        follower = self.start("follower.log", "evaluator", f"--checkpoint_dir={self.folder / 'hosts'}",
                              f"--data_dir={MNIST}", "--device=cpu", prefix=self.net.enter("eval"))
        self.await_end([*workers, *tasks, follower], 0, timeout=1800)
        hosts_s = time.monotonic() - begin
        begin = time.monotonic()
        one = f"unix:{self.folder / 'one.sock'}"
        server = self.start("one.ps.log", "ps_server", "--tasks=2", f"--listen={one}",
                            f"--pipeline_config_path={MNIST_CONFIG}",
                            f"--train_dir={self.folder / 'one'}", f"--state_dir={self.state_dir('one')}")
        worker = self.start_cluster_worker("one", 0, 1, 2 * CLONES, one, "--device=cpu", "--threads=1",
                                           f"--data_dir={MNIST}")
        self.await_end([worker, server], 0, timeout=1800)
        one_s = time.monotonic() - begin
        flags = (f"--data_dir={MNIST}", "--device=cpu")
        hosts, alone = self.evaluation("hosts", *flags), self.evaluation("one", *flags)
        print(f"hosts: {json.dumps(hosts)} in {hosts_s:.0f} s; one host: {json.dumps(alone)} in "
              f"{one_s:.0f} s", file=sys.stderr)
        self.assertGreaterEqual(hosts["accuracy"], 0.975)
        self.assertEqual(hosts["accuracy"], alone["accuracy"])
        self.assertEqual(self.shards(hosts["step"], "hosts"), self.shards(hosts["step"], "one"))
        self.assertTrue(list((self.folder / "hosts" / "eval").glob("*tfevents*")))

    # Cuts.

    def cut_once(self, link, kind, seconds):
        """Cuts a link, heals it, and returns the seconds until the second step after that.

        The first step may have been decided before the cut.
        """
        if link == "ps0-ps1":
            self.net.cut_pair("ps0", "ps1")
        else:
            self.net.cut(link, kind)
        time.sleep(seconds)
        if link == "ps0-ps1":
            self.net.heal_pair("ps0", "ps1")
        else:
            self.net.heal(link, kind)
        healed_at = self.applied("cut")
        self.assertGreater(healed_at, 0, self.logs())
        took = self.await_applied("cut", healed_at + 2, patience=60)
        self.assertIsNotNone(took, f"{link} {kind} {seconds} s: no step within a minute\n{self.logs()}")
        return took

    def test_training_survives_ten_cuts_of_every_link(self):
        # The batch size makes steps slow enough that the job does not reach a million steps.
        config = self.write_config("cut.config", steps=1000000, batch=64)
        tasks, workers = self.start_hosts("cut", config, f"--lease={LEASE_S}s")
        self.assertIsNotNone(self.await_applied("cut", 5, patience=120), self.logs())
        lengths = [0.3, 0.6, 1.0, 1.5, 2.2, 3.2, 4.0, 5.0, 6.5, 9.0]
        rng = random.Random(5)
        cuts = []
        for link in (*PS, *WORKERS, "ps0-ps1"):
            rng.shuffle(lengths)
            for number in range(CUTS):
                kind = "pair" if "-" in link else netns.Network.KINDS[number % len(netns.Network.KINDS)]
                cuts.append((link, kind, lengths[number]))
        rng.shuffle(cuts)
        took = {}
        for link, kind, seconds in cuts:
            recovery = self.cut_once(link, kind, seconds)
            print(f"{link:8} {kind:10} {seconds:4.1f} s cut, {recovery:5.2f} s to the second step",
                  file=sys.stderr, flush=True)
            took.setdefault((link, kind), []).append(recovery)
            time.sleep(0.7)
        self.report(took)
        for process in (*tasks, *workers):
            self.assertIsNone(process.popen.poll(), self.logs())
        tasks[0].kill(signal.SIGTERM)
        self.await_end(tasks, 143, timeout=60)
        for worker in workers:
            worker.kill(signal.SIGTERM)
        self.await_end(workers, 143, timeout=60)
        for process in tasks:
            self.assertNotIn("rolled back", process.text())
        worst = max(max(times) for times in took.values())
        self.assertLessEqual(worst, 2 * LEASE_S, "training did not go on within two leases")
        self.compare_with_undisturbed()

    def report(self, took):
        """Prints the recovery times by kind of cut and by link."""
        by_kind = {}
        for (link, kind), times in took.items():
            for name in (kind, f"link {link}"):
                by_kind.setdefault(name, []).extend(times)
        for name, times in by_kind.items():
            print(f"{name:14} {len(times):2} cuts: median {statistics.median(times) / LEASE_S:.2f}, worst "
                  f"{max(times) / LEASE_S:.2f} leases of {LEASE_S} s", file=sys.stderr, flush=True)

    def compare_with_undisturbed(self):
        """Trains an undisturbed job of as many steps and checks that its shards have the same bits."""
        steps = max(int(path.name[5:]) for path in (self.folder / "cut").glob("ckpt-????????"))
        config = self.write_config("straight.config", steps=steps, batch=64)
        tasks, workers = self.start_hosts("straight", config, f"--lease={LEASE_S}s")
        self.await_end([*workers, *tasks], 0, timeout=1200)
        print(f"{steps} steps compared", file=sys.stderr)
        self.assertEqual(len(self.shards(steps, "cut")), 2)
        self.assertEqual(self.shards(steps, "cut"), self.shards(steps, "straight"))

    # The network namespaces.

    def test_leftovers_of_a_killed_run_are_removed(self):
        script = ("import sys, time; sys.path.insert(0, sys.argv[1])\n"
                  "import netns, subprocess\n"
                  "net = netns.Network(['one', 'two'])\n"
                  "subprocess.Popen([*net.enter('one'), 'sleep', '600'])\n"
                  "print('ready', flush=True); time.sleep(600)\n")
        victim = subprocess.Popen([sys.executable, "-c", script, netns.__file__.rsplit("/", 1)[0]],
                                  stdout=subprocess.PIPE)
        try:
            self.assertEqual(victim.stdout.readline(), b"ready\n")
            name = f"{netns.PREFIX}{victim.pid}-one"
            self.assertIn(name, netns.ip("netns", "list"))
            sleeper = netns.ip("netns", "pids", name).split()
            self.assertEqual(len(sleeper), 1)
            netns.remove_leftovers()
            self.assertIn(name, netns.ip("netns", "list"), "the process that made it is alive")
        finally:
            victim.kill()
            victim.wait()
            victim.stdout.close()
        netns.remove_leftovers()
        self.assertNotIn(name, netns.ip("netns", "list"))


if __name__ == "__main__":
    main()
