"""Bad input to the real programs: each has its exit code, and a message that names the file, field or peer."""
import gzip
import re
import shutil
import signal
import struct

from harness import SYNTHETIC, EndToEndTest, free_port, main

IDX = 'idx_input_reader {{ images_path: "{images}" labels_path: "{labels}" }}'
DEVICE_FLAGS = {"gpus", "device", "precision", "gpu_memory_limit_mb", "cpu_isa"}
EXPLODING = ("momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 1e30 } } }")


def idx_images(count, height=28, width=28, magic=2051):
    return struct.pack(">IIII", magic, count, height, width) + bytes(count * height * width)


def idx_labels(labels, magic=2049):
    return struct.pack(">II", magic, len(labels)) + bytes(labels)


class BadInput(EndToEndTest):

    def expect(self, process, code, *words):
        self.assertEqual(process.wait(), code, process.text())
        for word in words:
            self.assertIn(word, process.text())

    def serve(self, config, *flags):
        return self.start_server(config, "run", *flags)

    def work(self, config, code, *words, clones=2, flags=()):
        """Starts a server and a worker, and expects that the worker ends with the code and the words."""
        self.serve(config)
        self.expect(self.start_worker("run", clones, *flags), code, *words)

    # Configs.

    def test_unknown_field(self):
        config = self.write_config(train="batch_sise: 3")
        self.expect(self.serve(config), 65, "pipeline.config", "batch_sise", "batch_size")

    def test_missing_config(self):
        self.expect(self.serve(self.folder / "absent.config"), 66, "absent.config")

    def test_several_problems_are_all_listed(self):
        config = self.write_config(batch=0, steps=-0, optimizer="", model="label_smoothing: 7")
        self.expect(self.serve(config), 65, "train_config.batch_size", "optimizer",
                    "label_smoothing")

    def test_bad_flags(self):
        config = self.write_config()
        self.expect(self.serve(config, "--no_such_flag=1"), 64, "no_such_flag")
        self.expect(self.serve(config, "--sync=perhaps"), 64, "--sync")
        for k, (flag, message) in enumerate((
                ("--lease=0s", "--lease=0, expected at least 100ms"),
                ("--lease=-1s", "--lease=-1s, expected at least 100ms"),
                ("--apply_threads=-3", "--apply_threads=-3, expected at least 0"),
                ("--health_port=-1", "--health_port=-1, expected 0 to 65535"),
                ("--metrics_host=0.0.0.0", "--metrics_host is for --metrics_port, which is not set"),
                ("--peer_secret_file=/nonexistent", "--peer_secret_file is for ps tasks in several processes"))):
            self.expect(self.start_server(config, "run", flag, log=f"s{k}.log"), 64, message)
        tls = [f"--tls_{name}=none.pem" for name in ("ca", "cert", "key")]
        self.expect(self.start_server(config, "run", "--peer_secret_file=/nonexistent", *tls, log="tls.log"), 64,
                    "--peer_secret_file is for ps tasks without TLS")
        for deadline in ("0", "-1s"):
            self.expect(self.start(f"deadline{deadline}.log", "worker", f"--peer_deadline={deadline}"), 64,
                        f"--peer_deadline={deadline}, expected at least 1ms")
        self.expect(self.start("d.log", "worker", "--device=cpu", "--gpus=0"), 64,
                    "--device=cpu", "--gpus=0")
        self.expect(self.start("p.log", "worker", "--device=cpu", "--precision=fp16"), 64,
                    "--precision=fp16", "expected fp32 or bf16")
        self.expect(self.start("g.log", "worker", "--gradient_precision=fp16"), 64,
                    "--gradient_precision=fp16", "one of fp32, bf16, int8")
        self.expect(self.start("v.log", "worker", "--weight_precision=int8"), 64,
                    "--weight_precision=int8", "one of fp32, bf16")

    def test_flags_without_an_effect_are_refused(self):
        for program, use, flags in (
                (["psctl", "state", "list", f"--state_dir={self.folder}"], "psctl state",
                 ["--ps=127.0.0.1:1", "--timeout=5s", "--tls_ca=a", "--tls_cert=a", "--tls_key=a", "--insecure"]),
                (["make_records", "--check=none"], "--check", ["--shards=2", "--skip_bad"]),
                (["evaluator", "--detections=none", f"--pipeline_config_path={self.write_config()}"], "--detections",
                 ["--run_once", "--eval_dir=a", "--wait_secs=5", "--threads=1", "--device=cpu", "--gpus=0",
                  "--precision=fp32", "--gpu_memory_limit_mb=5", "--cpu_isa=sse4"])):
            for k, flag in enumerate(flags):
                name = flag.partition("=")[0]
                self.expect(self.start(f"{program[0]}{k}.log", *program, flag), 64,
                            f"{program[0]}: {name} has no effect with {use}")

    def test_check_config_of_an_evaluator_needs_a_config(self):
        self.expect(self.start("e.log", "evaluator", "--check_config"), 64, "--check_config needs --pipeline_config_path")

    def test_programs_that_compute_share_their_device_flags(self):
        programs = (("worker",), ("evaluator", "--checkpoint_dir=none"), ("detect", "--checkpoint_dir=none", "a.png"))
        for flag, message in (("--precision=fp16", "--precision=fp16, expected fp32 or bf16"),
                              ("--gpu_memory_limit_mb=-1", "--gpu_memory_limit_mb=-1, expected at least 0"),
                              ("--threads=-1", "--threads=-1, expected at least 0")):
            for program, *flags in programs:
                self.expect(self.start(f"{program}.{flag}.log", program, *flags, flag), 64, f"{program}: {message}\n")
        helps = []
        for program, *_ in programs:
            shown = self.start(f"{program}.help.log", program, "--help")
            self.expect(shown, 0, "Flags from worker/cli/device_flags.cc:")
            helps.append(shown.text().split("Flags from worker/cli/device_flags.cc:")[1].split("Flags from")[0])
        self.assertEqual(set(re.findall("--([a-z_]+) ", helps[0])) & DEVICE_FLAGS, DEVICE_FLAGS)
        self.assertEqual(len(set(helps)), 1, helps)

    def test_different_numbers_of_clones_and_gpus(self):
        worker = self.start("w.log", "worker", "--num_clones=3", "--gpus=0,1", "--ps=127.0.0.1:1",
                            "--peer_deadline=1s")
        self.expect(worker, 64, "--num_clones=3", "--gpus=0,1 (2 GPUs) disagree")

    def test_check_config_prints_the_effective_config(self):
        good = self.start("good.log", "ps_server", "--check_config",
                          f"--pipeline_config_path={self.write_config()}")
        self.expect(good, 0, "batch_size: 31", "max_to_keep: 5")
        bad = self.start("bad.log", "ps_server", "--check_config",
                         f"--pipeline_config_path={self.write_config(batch=0)}")
        self.expect(bad, 65, "batch_size")

    def test_check_config_of_a_worker_is_refused(self):
        worker = self.start("w.log", "worker", "--check_config", "--ps=127.0.0.1:1", "--peer_deadline=1s")
        self.expect(worker, 64, "--check_config", "takes its pipeline config from the server")

    # Data.

    def idx_config(self, images, labels, **changes):
        (self.folder / "images").write_bytes(images)
        (self.folder / "labels").write_bytes(labels)
        reader = IDX.format(images=self.folder / "images", labels=self.folder / "labels")
        return self.write_config(reader=reader, **changes)

    def test_idx_truncated(self):
        config = self.idx_config(idx_images(40)[:-5], idx_labels([0] * 40))
        self.work(config, 65, "images", "31360", "31355")

    def test_idx_gzip_truncated(self):
        config = self.idx_config(gzip.compress(idx_images(40))[:-9], idx_labels([0] * 40))
        self.work(config, 65, "images")

    def test_idx_wrong_magic(self):
        config = self.idx_config(idx_images(40, magic=77), idx_labels([0] * 40))
        self.work(config, 65, "images", "magic")

    def test_idx_label_out_of_range(self):
        config = self.idx_config(idx_images(40), idx_labels([0] * 39 + [9]))
        self.work(config, 65, "labels", "label 39 is 9", "4 classes")

    def test_idx_counts_differ(self):
        config = self.idx_config(idx_images(40), idx_labels([0] * 41))
        self.work(config, 65, "40 images", "41 labels")

    def test_idx_missing(self):
        config = self.write_config(reader=IDX.format(images="no-images", labels="no-labels"))
        self.work(config, 66, "no-images", "no-labels", flags=["--data_dir=/nonexistent"])

    def test_corrupt_image_in_a_folder(self):
        for name in "abcd":
            folder = self.folder / "photos" / name
            folder.mkdir(parents=True)
            for k in range(20):
                (folder / f"{k}.pgm").write_bytes(b"P5 32 32 255\n" + bytes(1024))
        (self.folder / "photos" / "b" / "7.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
        reader = f'image_folder_input_reader {{ path: "{self.folder / "photos"}" }}'
        self.work(self.write_config(reader=reader), 65, "1 of 81 images", "b/7.png")

    def test_batch_smaller_than_clones(self):
        self.work(self.write_config(batch=2), 65, "train_config.batch_size", "got 2",
                  "one image per clone (3)", clones=3)

    # Peers.

    def test_no_server(self):
        worker = self.start("w.log", "worker", "--ps=127.0.0.1:1", "--peer_deadline=2s")
        self.expect(worker, 200, "waiting for ps task 0 at 127.0.0.1:1", "did not answer")

    def test_port_in_use(self):
        config = self.write_config()
        first = self.serve(config)
        first.wait_for("listening on")
        second = self.start("second.log", "ps_server", f"--pipeline_config_path={config}",
                            f"--train_dir={self.folder / 'other'}",
                            f"--listen={self.address('run')}", f"--state_dir={self.folder / 'state' / 'mine'}")
        self.expect(second, 65, "run.sock", "in use")
        self.assertFalse((self.folder / "other").exists())
        self.assertFalse((self.folder / "state").exists())

    def test_second_server_on_one_directory(self):
        config = self.write_config()
        self.serve(config).wait_for("listening on")
        second = self.start("second.log", "ps_server", f"--pipeline_config_path={config}",
                            f"--train_dir={self.folder / 'run'}", "--listen=127.0.0.1:0")
        self.expect(second, 200, str(self.folder / "run"))

    def test_second_server_on_one_directory_with_the_ports_of_the_first(self):
        config, trace = self.write_config(), self.folder / "trace.json"
        flags = [f"--metrics_port={free_port()}", f"--health_port={free_port()}", f"--trace={trace}"]
        first = self.serve(config, *flags)
        first.wait_for("serving version")
        begun = trace.read_bytes()
        second = self.start_server(config, "run", *flags, log="second.log")
        self.expect(second, 200, "another server works in", str(self.folder / "run"))
        self.assertEqual(trace.read_bytes()[:len(begun)], begun)
        first.kill(signal.SIGTERM)
        self.expect(first, 143)

    # Numbers.

    def test_nan_stops_training_and_is_named(self):
        server = self.serve(self.write_config(optimizer=EXPLODING))
        worker = self.start_worker("run", 2)
        for process in (worker, server):
            self.expect(process, 70)
            self.assertRegex(process.text(), r"step \d+: clone [01] of 2 .*: MobilenetV2/\S+\[\d+\] is ")

    def test_nan_skipped_ten_times_stops_too(self):
        server = self.serve(
            self.write_config(optimizer=EXPLODING, train="non_finite_policy: SKIP", steps=100))
        self.expect(self.start_worker("run", 2), 70, "10 steps in a row")
        self.expect(server, 70, "10 steps in a row")

    # Checkpoints.

    def damaged(self, damage):
        """Trains, applies `damage` to the only checkpoint, and returns a server that is started on it."""
        config = self.write_config(steps=2)
        self.train(config, "run", 1)
        shutil.rmtree(self.folder / "run.state", ignore_errors=True)
        folder = self.folder / "run" / "ckpt-00000002"
        damage(folder / "shard-00000-of-00001.safetensors", folder / "MANIFEST.json")
        return self.serve(self.write_config("more.config", steps=4))

    def test_checkpoint_with_a_flipped_byte(self):
        def damage(shard, _):
            data = bytearray(shard.read_bytes())
            data[len(data) // 2] ^= 1
            shard.write_bytes(data)
        self.expect(self.damaged(damage), 65, "ckpt-00000002")

    def test_checkpoint_truncated(self):
        server = self.damaged(lambda shard, _: shard.write_bytes(shard.read_bytes()[:-7]))
        self.expect(server, 65, "ckpt-00000002")

    def test_checkpoint_without_manifest_is_refused(self):
        self.expect(self.damaged(lambda _, manifest: manifest.unlink()), 65, "ckpt-00000002")

    def test_checkpoint_of_another_model(self):
        self.train(self.write_config(steps=2), "run", 1)
        other = self.write_config("other.config", width=0.35)
        self.expect(self.serve(other), 65, "MobilenetV2/")


if __name__ == "__main__":
    main()
