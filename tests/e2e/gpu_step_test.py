"""The GPU benchmark on an emulated GPU, with small networks; PyTorch runs on the CPU if it is installed."""
import os
import re
import subprocess
import unittest

from harness import BIN, ROOT, EndToEndTest, main

PYTHON = os.environ.get("TORCH_PYTHON", "/usr/bin/python3")
TORCH = os.path.exists(PYTHON) and subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
SMALL = ["--width=0.1", "--classes=4", "--steps=1", "--repeats=1", "--losses=2", "--losses_batch=4", "--bandwidth=1000"]


class GpuStep(EndToEndTest):

    def run_benchmark(self, *flags, **machine):
        """Runs gpu_step on an emulated GPU, which the variables PUSHPULL_EMULATED_... describe."""
        environment = {**os.environ, **{f"PUSHPULL_EMULATED_{name}": str(value) for name, value in machine.items()}}
        return subprocess.run([str(BIN / "emulated_gpu_step"), *SMALL, *flags], capture_output=True, text=True,
                              timeout=550, env=environment)

    def test_two_batch_sizes_with_the_table_of_layers(self):
        done = self.run_benchmark("--networks=mobilenet_v2", "--size=32", "--batches=1,2", "--precision=bf16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"result: net=mobilenet_v2 batch=[12] ours=[0-9.]+\n", done.stdout)), 2)
        self.assertRegex(done.stdout, r"depthwise_backward +2x2 +x\d+ +-> +1x1 ")
        self.assertRegex(done.stdout, r"all operators +\d+ +[0-9.]+")
        self.assertRegex(done.stdout, r"best: ours \d+ images/s at batch [12]\n")
        self.assertRegex(done.stdout, r"first 2 losses, batch 4: ours [0-9.]+ to [0-9.]+\n")

    def test_batch_that_does_not_fit_is_skipped(self):
        done = self.run_benchmark("--networks=mobilenet_v2", "--size=32", "--batches=1,2000", "--table=none",
                                  "--losses=0", MEMORY_MB=64)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"batch 1: ours")
        self.assertRegex(done.stdout, r"batch 2000: .* has no memory for ")

    def test_errors_name_the_missing_gpu_or_program(self):
        done = self.run_benchmark("--gpu=1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no GPU 1", done.stderr)
        done = self.run_benchmark("--torch=no-such-python", "--torch_script=x")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cannot start no-such-python", done.stderr)

    @unittest.skipUnless(TORCH, "no PyTorch for " + PYTHON)
    def test_comparison_with_pytorch(self):
        script = ROOT / "scripts" / "bench" / "gpu_step_torch.py"
        # The size is not 64, because there some overlaps of objects and anchors are equal except for rounding.
        for network, size, losses in (("mobilenet_v2", 40, 2), ("ssd_mobilenet_v2", 75, 1)):
            with self.subTest(network):
                done = self.run_benchmark(
                    f"--networks={network}", f"--size={size}", "--batches=2", "--precision=fp32", "--table=none",
                    f"--losses={losses}", f"--torch={PYTHON}", f"--torch_script={script}", "--torch_device=cpu",
                    "--torch_modes=eager,compile", "--torch_profile=3")
                self.assertEqual(done.returncode, 0, done.stderr)
                # PyTorch before 2.0 has no torch.compile.
                self.assertRegex(done.stdout,
                                 rf"result: net={network} batch=2 ours=[0-9.]+ (compile=[0-9.]+ )?eager=[0-9.]+\n")
                self.assertRegex(done.stdout, r"PyTorch eager, batch 2, by kernel: [0-9.]+ ms per step, \d+ kernels\n"
                                              r"( +[0-9.]+ ms +[0-9.]+% +[0-9.]+ calls  aten::\w+\n){3}")
                first = re.search(rf"losses: net={network} first=([0-9.]+) mean=([0-9.]+)", done.stdout)
                self.assertIsNotNone(first, done.stdout)
                self.assertLess(float(first[1]), 1e-3)


if __name__ == "__main__":
    main()
