"""Whole jobs as users run them, with ps_server, worker and evaluator as separate processes."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from harness import ADAM, PATIENCE_S, ROOT, SYNTHETIC, EndToEndTest, free_port, main
from processes import clone_pids
from state_files import applied_version

sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "e2e" / "hostile")]
import http2  # pylint: disable=wrong-import-position
import plot_events  # pylint: disable=wrong-import-position
import protobuf_fields  # pylint: disable=wrong-import-position

SERVING = 1  # grpc.health.v1.HealthCheckResponse


class Training(EndToEndTest):

    def evaluate(self, run, *flags):
        """Returns the JSON that `evaluator --run_once` prints."""
        evaluator = self.start(f"{run}.eval.log", "evaluator", "--run_once",
                               f"--checkpoint_dir={self.folder / run}", *flags,
                               stdout=subprocess.PIPE)
        out, _ = evaluator.popen.communicate(timeout=120)
        self.assertEqual(evaluator.popen.returncode, 0, evaluator.text())
        return json.loads(out)

    def learn(self, run, server_flags=(), worker_flags=(), **changes):
        """Trains long enough to see the loss fall. Returns the result of an evaluation."""
        config = self.write_config(
            batch=96, width=0.35, optimizer=ADAM.replace("0.003", "0.006"), reader=SYNTHETIC.format(n=2000, seed=1),
            **{"steps": 120, **changes})
        self.train(config, run, 3, server_flags, worker_flags)
        scalars = plot_events.read_scalars(self.folder / run)
        losses = [value for _, value in sorted(scalars["Loss/total_loss"].items())]
        count = len(losses) // 10
        self.assertLess(sum(losses[-count:]), 0.9 * sum(losses[:count]), "the loss did not fall")
        for tag in ("clone_loss/0", "clone_loss/2", "learning_rate", "staleness", "accuracy"):
            self.assertIn(tag, scalars)
        return self.evaluate(run)

    def test_sync_learns_and_the_evaluator_follows(self):
        evaluator = self.start("follower.log", "evaluator", f"--checkpoint_dir={self.folder / 'run'}",
                               "--wait_secs=60")
        # Three seeds reached accuracies of 0.79 to 0.90.
        result = self.learn("run", steps=300, train="save_checkpoints_steps: 60")
        # The evaluator was started before the first checkpoint, and it ends by itself after the last one.
        self.assertEqual(evaluator.wait(), 0, evaluator.text())
        self.assertEqual(result["step"], 300)
        self.assertGreater(result["accuracy"], 0.5, "guessing among four classes gives 0.25")
        self.assertGreaterEqual(result["accuracy_top5"], result["accuracy"])
        for step in (120, 180, 300):
            self.assertTrue((self.folder / "run" / f"ckpt-{step:08d}" / "MANIFEST.json").exists())
        self.assertTrue(list((self.folder / "run" / "eval").glob("*tfevents*")))
        self.assertTrue((self.folder / "run" / "eval" / "best_checkpoint").exists())

    def test_async_learns_from_int8_gradients_and_bfloat16_weights(self):
        result = self.learn("run", ["--tasks=2"], worker_flags=["--gradient_precision=int8", "--weight_precision=bf16"],
                            steps=150, sync="false")
        self.assertEqual(result["step"], 150)

    def test_async_with_two_tasks_and_bounded_staleness(self):
        result = self.learn("run", ["--tasks=2"], steps=150, sync="false", train="max_staleness: 4")
        self.assertEqual(result["step"], 150)

    def test_tcp_and_moving_average(self):
        config = self.write_config(steps=10)
        config.write_text(config.read_text().replace("use_moving_average: false",
                                                     "use_moving_average: true")
                          .replace("eval_config {", "eval_config { use_moving_averages: true"))
        server = self.start("ps.log", "ps_server", f"--pipeline_config_path={config}",
                            f"--train_dir={self.folder / 'run'}", "--listen=127.0.0.1:0",
                            "--state_dir=")
        server.wait_for("; train_dir")
        address = server.text().split("; train_dir")[0].split("listening on ")[-1]
        worker = self.start("w.log", "worker", f"--ps={address}", "--num_clones=2")
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.wait(), 0, server.text())
        # Ten steps of 31 of the 400 images are less than one epoch.
        self.assertRegex(worker.text(), r"step \d+/10 \S+% epoch 0\.\d loss")
        self.assertRegex(worker.text(), r"contributed up to step 10 of 10 in [\d.ms]+: 310 images, \d+ img/s")
        self.assertRegex(worker.text(), r"last loss \d\.\d+, accuracy [01]\.\d+")
        self.assertIn(f"the checkpoints are in the train_dir of the ps_server at {address}", worker.text())
        self.assertEqual(self.evaluate("run")["step"], 10)

    def test_training_ends_by_epochs(self):
        def write_config(epochs):
            return self.write_config(steps=0, train="save_checkpoints_steps: 10",
                                     reader=f"num_epochs: {epochs} " + SYNTHETIC.format(n=400, seed=1))

        def follow(log):
            return self.start(log, "evaluator", f"--checkpoint_dir={self.folder / 'run'}", "--wait_secs=60")

        # Two epochs of 400 images are 25.8 batches of 31.
        config = write_config(2)
        evaluator = follow("first.eval.log")
        _, worker = self.train(config)
        self.assertRegex(worker.text(), r"step \d+/26 ")
        self.assertIn("contributed up to step 26 of 26 ", worker.text())
        self.assertEqual(evaluator.wait(), 0, evaluator.text())
        self.assertIn("step 26: ", evaluator.text())
        manifest = json.loads((self.folder / "run/ckpt-00000026/MANIFEST.json").read_text())
        self.assertEqual((manifest["num_images"], manifest["last_step"]), (400, 26))

        server = self.start_server(config, log="again.ps.log")
        self.assertEqual(server.wait(), 0, server.text())

        # Half an epoch more, because the batches of all epochs are counted together.
        self.train(write_config(3))
        self.assertEqual(self.evaluate("run")["step"], 39)

    def test_clones_have_to_agree_on_the_number_of_images(self):
        reader = 'image_folder_input_reader { path: "photos" }'
        config = self.write_config(steps=0, reader="num_epochs: 2 " + reader, eval_reader=reader)
        config.write_text(config.read_text().replace("num_classes: 4", "num_classes: 2", 1))
        for host, images in (("one", 8), ("two", 9)):
            for label in ("dark", "light"):
                folder = self.folder / host / "photos" / label
                folder.mkdir(parents=True)
                for k in range(images):
                    (folder / f"{k}.pgm").write_bytes(b"P5 40 40 255\n" + bytes(1600))
        server = self.start_server(config)
        flags = ["--num_workers=2", f"--data_dir={self.folder / 'one'}"]
        first = self.start_worker("run", 1, "--worker_index=0", *flags)
        server.wait_for("the training data have 16 images, so the last step is 2")
        other = self.start("other.log", "worker", f"--ps={self.address()}", "--num_clones=1", "--num_workers=2",
                           "--worker_index=1", f"--data_dir={self.folder / 'two'}")
        self.assertEqual(other.wait(), 65, other.text())
        self.assertIn("has 18 training images, but this run counts its epochs over 16", other.text())
        second = self.start("second.log", "worker", f"--ps={self.address()}", "--num_clones=1", "--worker_index=1",
                            *flags)
        for process in (first, second, server):
            self.assertEqual(process.wait(), 0, process.text())

    def test_finished_run_ends_at_once(self):
        config = self.write_config(steps=5)
        self.train(config)
        server = self.start_server(config)
        self.assertEqual(server.wait(), 0, server.text())
        self.assertIn("step 5", server.text())

    def version_served(self, log, config, *flags):
        """Starts a server and kills it once it serves. Returns the version that it begins with."""
        server = self.start_server(config, "run", *flags, log=log)
        server.wait_for("serving version")
        server.kill()
        server.wait()
        return int(re.search(r"serving version (\d+) ", server.text())[1])

    def test_from_checkpoint_goes_back_to_the_newest_or_to_a_step(self):
        for steps in (5, 10):
            self.train(self.write_config(steps=steps), clones=1)
        config = self.write_config(steps=100000)
        server = self.start_server(config, log="endless.ps.log")
        worker = self.start_worker("run", 1)
        deadline = time.monotonic() + PATIENCE_S
        while applied_version(self.folder / "run.state", 1) < 13:
            self.assertLess(time.monotonic(), deadline, server.text() + worker.text())
            time.sleep(0.05)
        server.end()
        worker.end()
        refused = self.start_server(config, "run", "--from_checkpoint=x", log="refused.log")
        self.assertEqual(refused.wait(), 64, refused.text())
        self.assertIn("--from_checkpoint=x", refused.text())
        self.assertGreaterEqual(self.version_served("mapped.log", config), 13)
        self.assertEqual(self.version_served("newest.log", config, "--from_checkpoint"), 10)
        self.assertEqual(self.version_served("step.log", config, "--from_checkpoint=5"), 5)
        self.assertTrue((self.folder / "run" / "ckpt-00000010.given-up").is_dir())
        self.assertFalse((self.folder / "run" / "ckpt-00000010").exists())

    def test_the_health_service_of_a_server_that_serves(self):
        port = free_port()
        server = self.start_server(self.write_config(), "run", f"--health_port={port}")
        server.wait_for("serving version")
        connection = http2.Connection(("127.0.0.1", port))
        self.addCleanup(connection.close)
        deadline = time.monotonic() + PATIENCE_S
        reply = connection.call("/grpc.health.v1.Health/Check", b"")
        while protobuf_fields.fields(reply) != {1: [SERVING]}:  # the log tells it a moment before the service does
            self.assertLess(time.monotonic(), deadline, reply)
            reply = connection.call("/grpc.health.v1.Health/Check", b"")

    def test_output_that_nobody_reads_any_more_ends_nothing(self):
        """Ctrl-C on `ps_server 2>&1 | tee log` ends tee first."""
        reader, writer = os.pipe()
        options = {"stdout": writer, "stderr": writer}
        server = self.start_server(self.write_config(steps=1000000), **options)
        worker = self.start_worker(**options)
        os.close(writer)

        def await_version(version):
            deadline = time.monotonic() + PATIENCE_S
            while applied_version(self.folder / "run.state", 1) < version:
                for process in (server, worker):
                    self.assertIsNone(process.popen.poll())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)

        await_version(2)
        os.close(reader)
        # A clone that ends writes to the pipe, and so does its supervisor.
        os.kill(clone_pids(worker.popen.pid)[0], signal.SIGKILL)
        await_version(applied_version(self.folder / "run.state", 1) + 10)
        for process in (server, worker):
            process.kill(signal.SIGINT)
            self.assertEqual(process.wait(), 143)
        self.assertEqual(len(list((self.folder / "run").glob("ckpt-????????"))), 1)

    def test_server_that_stays_after_the_end_rests(self):
        config = self.write_config(steps=5)
        server = self.start_server(config, "run", "--exit_when_done=false")
        worker = self.start_worker("run", 1)
        self.assertEqual(worker.wait(), 0, worker.text())

        def processor_seconds():
            fields = pathlib.Path(f"/proc/{server.popen.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        deadline = time.monotonic() + PATIENCE_S
        share = 1.0
        while share >= 0.3:  # it may still be busy with the end of training
            self.assertLess(time.monotonic(), deadline, f"the server takes {share:.2f} of a processor")
            before, start = processor_seconds(), time.monotonic()
            time.sleep(1.5)
            self.assertIsNone(server.popen.poll(), server.text())
            share = (processor_seconds() - before) / (time.monotonic() - start)
        server.popen.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(), 143, server.text())


if __name__ == "__main__":
    main()
