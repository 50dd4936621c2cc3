"""Training gives the same bits after splitting, repeating, stopping and resuming, and SIGKILL of clones and server."""
import json
import math
import platform
import random
import re
import signal
import struct
import time
import unittest

from administrators import AdministratorTest
from harness import main, read_safetensors
from processes import children, send


STEPS = 300  # of the run whose server is killed again and again
ENDLESS = 1000000


class BitIdentity(AdministratorTest):

    def test_split_does_not_change_arithmetic(self):
        # Batch norm is frozen, because batch statistics depend on the split. The batch size 31 is divisible by neither
        # 2 nor 3. The optimizer is momentum, because Adam divides by the size of the gradient: elements whose gradient
        # is rounding noise would move by a whole learning rate.
        config = self.write_config(model="freeze_batchnorm: true")
        weights = []
        for clones in (1, 2, 3):
            run = f"run{clones}"
            self.train(config, run, clones)
            weights.append(read_safetensors(self.checkpoint(20, run)))
        for other in weights[1:]:
            for name, values in weights[0].items():
                if name.endswith("/Momentum"):
                    continue
                norm = math.sqrt(sum(x * x for x in values))
                distance = math.sqrt(sum((x - y)**2 for x, y in zip(values, other[name])))
                self.assertLessEqual(distance, 1e-5 * norm + 1e-9, name)

    def tensors(self, step, run):
        """Returns name -> bytes of all tensors of a checkpoint. The parts of a tensor that spans shards are joined."""
        joined = {}
        for path in sorted((self.folder / run / f"ckpt-{step:08d}").glob("shard-*.safetensors")):
            for name, values in read_safetensors(path.read_bytes()).items():
                joined[name] = joined.get(name, b"") + struct.pack(f"<{len(values)}f", *values)
        return joined

    def test_same_seed_gives_the_same_bits_with_one_task_and_with_three(self):
        config = self.write_config()
        self.train(config, "a")
        self.train(config, "b")
        self.assertEqual(self.checkpoint(20, "a"), self.checkpoint(20, "b"))
        self.train(config, "c", server_flags=["--tasks=3"])
        third = self.folder / "c" / "ckpt-00000020"
        self.assertEqual(len(list(third.glob("shard-*-of-00003.safetensors"))), 3)
        one_task, three_tasks = self.tensors(20, "a"), self.tensors(20, "c")
        self.assertEqual(one_task.keys(), three_tasks.keys())
        for name, values in one_task.items():
            self.assertEqual(values, three_tasks[name], name)

    def test_shared_memory_carries_the_same_bytes(self):
        config = self.write_config()
        through_memory = "go through shared memory"
        weights = []
        # Encoded payloads are smaller than the slots of the shared-memory ring.
        for precision, weight_precision in (("fp32", "fp32"), ("int8", "bf16")):
            for shared in ("true", "false"):
                run = f"{precision}.{shared}"
                _, worker = self.train(config, run, worker_flags=[
                    f"--gradient_precision={precision}", f"--weight_precision={weight_precision}",
                    f"--shared_memory={shared}"])
                # Each clone logs this once for each task.
                self.assertEqual(worker.text().count(through_memory), 3 if shared == "true" else 0,
                                 worker.text())
                weights.append(self.checkpoint(20, run))
        self.assertEqual(weights[0], weights[1])
        self.assertEqual(weights[2], weights[3])
        self.assertNotEqual(weights[0], weights[2])

    @unittest.skipUnless(platform.machine() == "x86_64", "ARM has one instruction set here")
    def test_clones_with_other_bits_are_named(self):
        config = self.write_config()
        _, worker = self.train(config, "alike")
        device = re.search(r"clone 0 computes on (the CPU \(\w+\) in fp32)", worker.text())[1]
        self.assertEqual(self.manifest(20, "alike")["devices"], [device])
        server = self.start_server(config, "mixed")
        workers = [self.start(f"{isa}.log", "worker", f"--ps={self.address('mixed')}", "--device=cpu", "--num_clones=1",
                              "--num_workers=2", f"--worker_index={index}", f"--cpu_isa={isa}")
                   for index, isa in enumerate(("auto", "sse4"))]
        for process in (*workers, server):
            self.assertEqual(process.wait(), 0, process.text())
        self.assertEqual(server.text().count("The last bits of their gradients may differ"), 1, server.text())
        self.assertEqual(self.manifest(20, "mixed")["devices"], sorted([device, "the CPU (sse4) in fp32"]))

    def manifest(self, step, run):
        return json.loads((self.folder / run / f"ckpt-{step:08d}" / "MANIFEST.json").read_text())

    def start_endless_run(self):
        """Starts the run "stopped", which does not end before the test stops it. Returns (server, worker)."""
        server = self.start_server(self.write_config(steps=ENDLESS), "stopped")
        worker = self.start_worker("stopped")
        server.wait_for("clone 2 (")
        self.wait_for_step(10, "stopped")
        return server, worker

    def check_stop_and_resume(self, server, worker):
        """Stops the run "stopped" with SIGTERM, resumes it, and compares it with a run that nothing disturbs."""
        for process in (server, worker):
            process.kill(signal.SIGTERM)
            self.assertEqual(process.wait(), 143, process.text())
        last = max(int(path.name.removeprefix("ckpt-")) for path in (self.folder / "stopped").glob("ckpt-*"))
        self.assertGreaterEqual(last, 10)
        config = self.write_config(steps=last + 20)
        for run in ("stopped", "straight"):
            self.train(config, run)
        self.assertEqual(self.checkpoint(last + 20, "stopped"), self.checkpoint(last + 20, "straight"))

    def test_stop_and_resume(self):
        half, whole = self.write_config("half.config", steps=15), self.write_config(steps=30)
        self.train(whole, "straight")
        self.train(half, "resumed")
        self.train(whole, "resumed")
        self.assertEqual(self.checkpoint(30, "straight"), self.checkpoint(30, "resumed"))

    def test_sigterm_publishes_and_resumes(self):
        self.check_stop_and_resume(*self.start_endless_run())

    def test_clone_killed_in_mid_step(self):
        server, worker = self.start_endless_run()
        for number in range(3):
            time.sleep(0.3)
            send(random.choice(children(worker.popen.pid)), signal.SIGKILL)
            while worker.text().count("killed by signal 9") <= number:
                self.assertIsNone(worker.popen.poll(), worker.text())
                time.sleep(0.02)
        self.wait_for_step(self.status("stopped")["version"] + 10, "stopped")
        self.check_stop_and_resume(server, worker)

    def test_server_killed_ten_times(self):
        config = self.write_config(steps=STEPS)
        begin = time.monotonic()
        self.train(config, "straight")
        seconds = time.monotonic() - begin
        # Ten waits take 0.15 of that time on average. The machine may have been several times as busy then as it is now.
        longest_s = 0.03 * seconds
        worker = self.start_worker("killed")
        servers = [self.start_server(config, "killed", log="killed.ps.0.log")]
        while len(servers) <= 10:
            for clone in range(3):
                servers[-1].wait_for(f"clone {clone} (")
            time.sleep(random.uniform(0.0, longest_s))
            self.assertIsNone(servers[-1].popen.poll(), "training ended before the tenth kill")
            servers[-1].kill(signal.SIGKILL)
            servers[-1].wait()
            servers.append(
                self.start_server(config, "killed", log=f"killed.ps.{len(servers)}.log"))
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(servers[-1].wait(), 0, servers[-1].text())
        text = "".join(server.text() for server in servers)
        versions = [int(v) for v in re.findall(r"serving version (\d+)", text)]
        self.assertEqual(len(versions), 11)
        self.assertEqual(versions, sorted(versions), "applied steps were lost")
        self.assertGreater(versions[-1], 0)
        self.assertNotIn("rolled back", text)
        self.assertEqual(self.checkpoint(STEPS, "straight"), self.checkpoint(STEPS, "killed"))

    def test_local_steps_with_clones_and_servers_that_are_killed(self):
        rounds = 60
        config = self.write_config(
            steps=rounds,
            train="local_steps: 7 outer_optimizer { learning_rate: 0.7 momentum: 0.8 use_nesterov: true }",
            optimizer="adam_optimizer { learning_rate { cosine_decay_learning_rate { learning_rate_base: 0.002 "
                      "total_steps: 420 warmup_learning_rate: 0.0002 warmup_steps: 30 } } }")
        begin = time.monotonic()
        _, worker = self.train(config, "straight")
        longest_s = 0.1 * (time.monotonic() - begin)
        self.assertIn(f"contributed up to step {rounds} of {rounds} ", worker.text())
        self.assertIn(f": {rounds * 7 * 31} images, ", worker.text())
        self.assertIn(f" epoch {rounds * 7 * 31 / 400:.1f} ", worker.text())
        worker = self.start_worker("killed")
        servers = [self.start_server(config, "killed", log="killed.ps.0.log")]
        for kill in range(4):
            servers[-1].wait_for("clone 2 (")
            time.sleep(random.uniform(0.0, longest_s))
            self.assertIsNone(servers[-1].popen.poll(), "training ended before the last kill")
            if kill % 2:
                servers[-1].kill(signal.SIGKILL)
                servers[-1].wait()
                servers.append(self.start_server(config, "killed", log=f"killed.ps.{len(servers)}.log"))
            else:
                send(random.choice(children(worker.popen.pid)), signal.SIGKILL)
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(servers[-1].wait(), 0, servers[-1].text())
        self.assertEqual(self.checkpoint(rounds, "straight"), self.checkpoint(rounds, "killed"))


if __name__ == "__main__":
    main()
