"""Two ps_server processes with one task each and two workers, as on several hosts, under SIGKILL and SIGTERM."""
import pathlib
import random
import re
import signal
import socket
import sys
import time

from harness import free_port

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
from cluster_harness import ClusterTest, main  # pylint: disable=wrong-import-position


class MultiHost(ClusterTest):

    def addresses(self, run):
        return [f"unix:{self.folder / f'{run}.{task}.sock'}" for task in (0, 1)]

    def task(self, run, config, index, log=None):
        return self.start_task(run, config, index, self.addresses(run), "--lease=3s", log=log)

    def workers(self, run):
        return [
            self.start_cluster_worker(run, index, 2, 1, self.addresses(run)[0], "--device=cpu",
                                      "--threads=1", "--peer_deadline=60s") for index in (0, 1)
        ]

    def await_end(self, processes, code=0):
        for process in processes:
            self.assertEqual(process.wait(), code, self.logs())

    def straight(self, steps):
        """Trains so many steps with all tasks in one process and both clones in one worker. Returns the shards."""
        self.train(self.write_config("straight.config", steps=steps), "straight", 2, server_flags=["--tasks=2"])
        return self.shards(steps, "straight")

    def drain(self, run, tasks, workers):
        """Ends a job by SIGTERM of its second task. Returns the step of the newest checkpoint."""
        tasks[1].kill(signal.SIGTERM)
        self.await_end(tasks, 143)
        for worker in workers:
            worker.kill(signal.SIGTERM)
        self.await_end(workers, 143)
        return max(int(checkpoint.name[5:]) for checkpoint in (self.folder / run).glob("ckpt-????????"))

    def test_tasks_killed_in_turn(self):
        config = self.write_config(steps=1000000)
        tasks = [self.task("killed", config, index, f"killed.{index}.0.log") for index in (0, 1)]
        workers = self.workers("killed")
        servers = list(tasks)
        for number, index in enumerate((1, 0, 1), 1):
            before = self.applied("killed")
            self.assertIsNotNone(self.await_applied("killed", max(before, 0) + 10, patience=60),
                                 self.logs())
            time.sleep(random.uniform(0.0, 0.05))
            self.assertIsNone(tasks[index].popen.poll(), f"ended before kill {number}\n{self.logs()}")
            tasks[index].kill(signal.SIGKILL)
            tasks[index].wait()
            tasks[index] = self.task("killed", config, index, f"killed.{index}.{number}.log")
            servers.append(tasks[index])
        self.assertIsNotNone(self.await_applied("killed", self.applied("killed") + 10, patience=60), self.logs())
        steps = self.drain("killed", tasks, workers)
        text = "".join(server.text() for server in servers)
        # A kill may undo the step in flight, which one of the two tasks has applied, but no step that both have.
        self.assertLessEqual({int(count) for count in re.findall(r"(\d+) steps (?:back|rolled back)", text)}, {1})
        self.assertNotIn("from the checkpoint", text)
        shards = self.shards(steps, "killed")
        self.assertEqual(len(shards), 2)
        self.assertEqual(shards, self.straight(steps))

    def test_the_second_task_says_that_it_waits_for_the_first(self):
        config = self.write_config(steps=1000000)
        first, second = [self.task("run", config, index) for index in (0, 1)]
        first.wait_for("serving version")
        first.kill()
        first.wait()
        second.wait_for(f"waiting for ps task 0 at {self.addresses('run')[0]}\n")
        self.task("run", config, 0, "run.again.log").wait_for("serving version")
        second.wait_for("waited for ps task 0 at")
        self.assertIsNone(second.popen.poll())

    def test_a_task_that_runs_already_is_named(self):
        config = self.write_config(steps=1000000)
        first, second = [self.task("run", config, index) for index in (0, 1)]
        second.wait_for("listening on")
        again = self.task("run", config, 1, "run.again.log")
        self.assertEqual(again.wait(), 200, again.text())
        self.assertIn(f"ps task 1 runs already in {self.folder / 'run'} (", again.text())
        self.assertIsNone(first.popen.poll())

    def test_a_task_that_runs_already_is_named_before_its_tcp_port(self):
        config, port = self.write_config(steps=1000000), free_port(2)
        addresses = [f"127.0.0.1:{port + index}" for index in (0, 1)]
        tasks = [self.start_task("run", config, index, addresses) for index in (0, 1)]
        for number, task in enumerate(tasks):
            task.wait_for("listening on")
            again = self.start_task("run", config, number, addresses, log=f"run.again{number}.log")
            self.assertEqual(again.wait(), 200, again.text())
            self.assertIn(("another server works in", "ps task 1 runs already in")[number], again.text())
            self.assertNotIn("in use", again.text())
        # The kernel releases the lock of a killed process with its port.
        tasks[1].kill(signal.SIGKILL)
        tasks[1].wait()
        self.start_task("run", config, 1, addresses, log="run.next.log").wait_for("listening on")
        self.assertIsNone(tasks[0].popen.poll())

    def test_a_first_task_whose_port_is_in_use_leaves_no_train_dir(self):
        config = self.write_config(steps=1000000)
        stranger = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(stranger.close)
        addresses = [f"127.0.0.1:{stranger.getsockname()[1]}", f"127.0.0.1:{free_port()}"]
        first = self.start_task("run", config, 0, addresses)
        self.assertEqual(first.wait(), 65, first.text())
        self.assertIn("in use", first.text())
        self.assertFalse((self.folder / "run").exists())

    def test_sigterm_of_the_second_task_drains_the_job(self):
        config = self.write_config(steps=1000000)
        tasks = [self.task("run", config, index) for index in (0, 1)]
        workers = self.workers("run")
        self.assertIsNotNone(self.await_applied("run", 10, patience=60), self.logs())
        steps = self.drain("run", tasks, workers)
        self.assertGreaterEqual(steps, 10)
        self.assertEqual(len(self.shards(steps)), 2)


if __name__ == "__main__":
    main()
