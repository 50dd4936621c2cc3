"""worker and evaluator with --gpus on emulated GPUs: the real programs, whose GPU kernels run on the CPU."""
import json
import math
import os
import subprocess

from harness import BIN, MOMENTUM, EndToEndTest, main, read_safetensors

STEPS = 4
WORKER = "emulated_gpu_worker"
EVALUATOR = "emulated_gpu_evaluator"

class Gpus(EndToEndTest):

    def setUp(self):
        super().setUp()
        self.config = self.write_config(batch=3, steps=STEPS)

    def start_on_gpus(self, run, *flags, machine=None, extra=None):
        """Starts a worker on emulated GPUs, which the variables PUSHPULL_EMULATED_... describe. `extra` holds more
        variables of its environment."""
        before = dict(os.environ)
        os.environ.update({f"PUSHPULL_EMULATED_{name}": str(value) for name, value in (machine or {}).items()})
        os.environ.update({"XDG_CACHE_HOME": str(self.folder / "cache"),
                           # Stand-ins that do not start: NVIDIA's libraries know no emulated GPU.
                           "LD_LIBRARY_PATH": str(BIN.parent / "lib" / "vendor_fakes"),
                           "FAKE_CUDNN": "no_create", "FAKE_CUBLASLT": "no_create", **(extra or {})})
        try:
            return self.start(f"{run}.worker.log", WORKER, f"--ps={self.address(run)}", "--peer_deadline=60s", *flags)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def train_on_gpus(self, run, *flags, **kwargs):
        """Trains until the job is done and returns the worker. The keywords are those of start_on_gpus."""
        server = self.start_server(self.config, run)
        worker = self.start_on_gpus(run, *flags, **kwargs)
        self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())
        return worker

    def expect_close(self, expected, actual, tolerance):
        for name, values in expected.items():
            norm = math.sqrt(sum(x * x for x in values))
            distance = math.sqrt(sum((x - y)**2 for x, y in zip(values, actual[name])))
            self.assertLessEqual(distance, tolerance * norm + 1e-6, name)

    def test_training_matches_the_cpu_and_is_repeatable(self):
        # Batch norm is frozen, because batch statistics over one or two samples magnify rounding errors.
        self.config = self.write_config(batch=3, steps=STEPS, model="freeze_batchnorm: true")
        self.train(self.config, "cpu", 2)
        weights = read_safetensors(self.checkpoint(STEPS, "cpu"))
        flags = ("--num_clones=2", "--gpus=0,1", "--precision=fp32")
        worker = self.train_on_gpus("gpu", *flags, machine={"GPUS": 2})
        for clone in (0, 1):
            self.assertIn(f"clone {clone} computes on GPU {clone} (emulated GPU", worker.text())
        # Images reach the GPU as bytes. These are drawn as bytes and not resized, so they are not rounded.
        on_gpu = read_safetensors(self.checkpoint(STEPS, "gpu"))
        self.expect_close({name: values for name, values in weights.items() if not name.endswith("/Momentum")},
                          on_gpu, 1e-4)
        self.train_on_gpus("again", *flags, machine={"GPUS": 2})
        self.assertEqual(self.checkpoint(STEPS, "gpu"), self.checkpoint(STEPS, "again"))

        results = []
        for program, flag in (("evaluator", "--device=cpu"), (EVALUATOR, "--gpus=0")):
            once = self.start(f"{program}.log", program, "--run_once", f"--checkpoint_dir={self.folder / 'gpu'}",
                              f"--eval_dir={self.folder / program}", flag, stdout=subprocess.PIPE)
            out, _ = once.popen.communicate(timeout=120)
            self.assertEqual(once.popen.returncode, 0, once.text())
            results.append(json.loads(out))
        self.assertAlmostEqual(results[0]["loss"], results[1]["loss"], delta=0.02 * results[0]["loss"])

    def test_libraries_compute_convolutions_where_they_can(self):
        # As above, batch norm is frozen so that rounding errors stay small.
        steps = 2
        self.config = self.write_config(batch=3, steps=steps, model="freeze_batchnorm: true")
        fakes = {"FAKE_CUDNN": "", "FAKE_CUBLASLT": ""}
        one = ("--num_clones=1", "--gpus=0", "--precision=fp32")
        worker = self.train_on_gpus("vendor", *one, "--gpu_library=vendor", extra=fakes)
        self.assertIn("libraries for convolutions: emulated GPU, driver 13000", worker.text())
        self.assertIn("cudnn 9.26.0, cublaslt 13.4.1", worker.text())
        self.assertRegex(worker.text(), r"backward fp32 .*: (cudnn|cublaslt)/\d and (cudnn|cublaslt)/\d")
        self.train_on_gpus("own", *one, "--gpu_library=own", extra=fakes)
        own, vendor = (read_safetensors(self.checkpoint(steps, run)) for run in ("own", "vendor"))
        self.expect_close({name: values for name, values in own.items() if not name.endswith("/Momentum")}, vendor, 1e-4)
        # The first run measures, both clones agree on what they keep, and the next run does the same.
        both = ("--num_clones=2", "--gpus=0,0", "--precision=fp32", "--gpu_library=auto")
        self.train_on_gpus("auto", *both, extra=fakes)
        choices = (self.folder / "cache" / "pushpull" / "gpu_choices").read_text()
        self.assertIn("\tbackward fp32 ", choices)
        again = self.train_on_gpus("auto_again", *both, extra=fakes)
        self.assertNotIn(", our kernels ", again.text())  # the line about a measurement
        self.assertEqual(choices, (self.folder / "cache" / "pushpull" / "gpu_choices").read_text())
        self.assertEqual(self.checkpoint(steps, "auto"), self.checkpoint(steps, "auto_again"))

    def test_without_libraries_our_kernels_compute_or_the_user_is_told(self):
        worker = self.train_on_gpus("auto", "--num_clones=1", "--gpus=0", "--gpu_library=auto")
        self.assertIn("convolutions are computed by our kernels only: libcudnn.so.9 does not start", worker.text())
        self.expect_refused(70, ["--gpu_library=vendor needs cuDNN 9 or cuBLASLt 13", "LD_LIBRARY_PATH"],
                            "--num_clones=1", "--gpus=0", "--gpu_library=vendor")

    def test_shown_figures_are_those_of_the_clones_gpus(self):
        # NVML counts the GPUs in another order than CUDA, as it does where CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER
        # changes that of CUDA. NVML's GPU 0 is busy for 90 % of the time, its GPU 3 for 93 %.
        (self.folder / "libnvidia-ml.so.1").symlink_to(BIN / "libfake_nvml.so")
        uuids = [f"GPU-0{gpu + 1}000000-0000-0000-0000-000000000000" for gpu in (0, 1)]
        worker = self.train_on_gpus("run", "--num_clones=2", "--gpus=0,1", "--show_gpus", machine={"GPUS": 2}, extra={
            "LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML_UUIDS": f"{uuids[1]},{uuids[0]}"})
        self.assertIn("GPU 93 % 3.0/8.0 GiB 54 C | GPU 90 % 3.0/8.0 GiB 54 C", worker.text())

    def test_failing_gpu_costs_only_a_restart_of_its_clone(self):
        failure = self.folder / "failure"
        failure.write_text("400")  # kernel launches until the failure, which comes in the second step
        worker = self.train_on_gpus("run", "--num_clones=2", "--gpus=0,0", "--precision=bf16",
                                    machine={"FAILURE": failure})
        text = worker.text()
        self.assertFalse(failure.exists())
        self.assertIn("GPU 0 (emulated GPU", text)
        self.assertIn("this process cannot use the GPU any more", text)
        self.assertIn("exit code 201", text)
        self.assertTrue(self.checkpoint(STEPS))

    def test_clone_whose_gpu_is_gone_waits_for_it_and_does_not_go_on_on_the_cpu(self):
        failure, lost = self.folder / "failure", self.folder / "lost"
        failure.write_text("100")  # kernel launches until the failure, which comes in the first step
        server = self.start_server(self.config, "run")
        # Neither --gpus nor --device: a clone that starts without a GPU would choose the CPU.
        worker = self.start_on_gpus("run", "--num_clones=1", machine={"FAILURE": failure, "LOST": lost})
        worker.wait_for("this clone has computed on GPU-01000000-0000-0000-0000-000000000000, "
                        "which cannot be used now: there is no GPU")
        lost.unlink()
        self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())
        self.assertNotIn("on the CPU", worker.text())
        self.assertEqual(worker.text().count("clone 0 computes on GPU 0 (emulated GPU"), 2)
        self.assertIn("exit code 201", worker.text())
        self.assertTrue(self.checkpoint(STEPS))

    def test_non_finite_value_is_reported_with_step_clone_and_variable(self):
        self.config = self.write_config(batch=3, steps=50, optimizer=MOMENTUM.replace("0.02", "1e30"))
        server = self.start_server(self.config, "run")
        worker = self.start_on_gpus("run", "--num_clones=1", "--gpus=0", "--precision=bf16")
        self.assertEqual(worker.wait(), 70, worker.text())
        self.assertEqual(server.wait(), 70, server.text())
        for text in (worker.text(), server.text()):
            for word in ("step", "clone 0", "MobilenetV2/"):
                self.assertIn(word, text)

    def expect_refused(self, code, words, *flags, machine=None):
        """Starts a worker and expects that it ends with the code and the words."""
        server = self.start_server(self.config, "refused")
        server.wait_for("waiting")
        worker = self.start_on_gpus("refused", *flags, machine=machine)
        self.assertEqual(worker.wait(), code, worker.text())
        for word in words:
            self.assertIn(word, worker.text())
        server.end()

    def test_missing_gpu_is_refused(self):
        self.expect_refused(64, ["--gpus=0,7", "there is no GPU 7", "1: emulated GPU (GPU-02"], "--num_clones=2",
                            "--gpus=0,7", machine={"GPUS": 2})

    def test_device_cuda_without_a_gpu_waits_for_one(self):
        server = self.start_server(self.config, "run")
        server.wait_for("waiting")
        worker = self.start_on_gpus("run", "--num_clones=1", "--device=cuda", machine={"GPUS": 0})
        worker.wait_for("--device=cuda: there is no GPU at the moment")
        worker.wait_for("exit code 201")
        worker.end()
        server.end()

    def test_old_driver_is_refused(self):
        self.expect_refused(70, ["driver is too old", "CUDA 12.4", "13.0"], "--num_clones=1", "--gpus=0",
                            machine={"DRIVER": 12040})

    def test_batch_that_does_not_fit_is_refused_with_one_that_would(self):
        self.config = self.write_config(batch=3000, steps=STEPS, reader=(
            "synthetic_input_reader {{ num_examples: 4000 seed: 1 height: 32 width: 32 num_channels: 1 "
            "num_classes: 4 }}").format())
        self.expect_refused(65, ["a batch of 3000 needs", "would fit", "train_config.batch_size"], "--num_clones=1",
                            "--gpus=0", machine={"MEMORY_MB": 64})

    def test_without_a_gpu_the_worker_uses_the_cpu_and_logs_it(self):
        worker = self.train_on_gpus("cpu", "--num_clones=1", machine={"GPUS": 0})
        self.assertIn("there is no GPU: computing on the CPU", worker.text())

if __name__ == "__main__":
    main()
