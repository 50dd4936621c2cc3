"""The whole of scripts/gpu/check.sh on the emulated GPU: with everything in order, and with failures that it must survive.

The folder that it runs in holds the real programs, small pipelines, and stand-ins for what a GPU host has besides
(gpu_host/).
"""
import os
import pathlib
import re
import shutil
import signal
import sys
import threading
import time
import unittest

from harness import BIN, ROOT, EndToEndTest
from operators import FULL

HOST = pathlib.Path(__file__).resolve().parent / "gpu_host"
SCRIPTS = ROOT / "scripts"
# What makes the pipelines small enough for the emulation. Batch norm is frozen, because batch statistics over one or two
# samples magnify rounding errors.
SMALL = [(r"(height|width): (224|160)", r"\1: SIZE"), (r"depth_multiplier: [0-9.]+", "depth_multiplier: 0.1"),
         (r'type: "mobilenet_v2"(?!\s*depth)', 'type: "mobilenet_v2" depth_multiplier: 0.1 min_depth: 8'),
         (r"^  batch_size: \d+", "  batch_size: 6"), (r"num_examples: \d+", "num_examples: 24"),
         (r"^  (classifier|ssd) \{$", r"  \1 { freeze_batchnorm: true")]
NETWORKS = ("mobilenet_v2", "ssd_mobilenet_v2", "ssd_mobilenet_v1")
HUNG = "ElementwiseTest/0.NanStaysNan"
CRASHED = "DepthwiseTiles/CudaConvolutionOnTwoMultiprocessors.FloatMatchesTheReference/11"

# Each row in order of the script, with a pattern for its figure if nothing fails.
ROWS = [
    *((f"{network}, our step", r"[0-9.]+ images/s") for network in NETWORKS),
    ("operators, fp32 and bf16", r"(\d+) of \1 tests passed, 0 failed, 0 skipped"),
    ("operators, 2 multiprocessors", r"20 of 20 tests passed, 0 failed, 0 skipped"),
    ("profile", r"10 kernels, which take \d+ % of the time, in logs/ncu.\*.csv"),
    ("mobilenet_v2, eager", r"[0-9.]+ images/s, PyTorch 0.1"),
    ("mobilenet_v2, first 50 losses", r"the first differs by 0.0\d+, the means by 0.0\d+"),
    ("mobilenet_v2, compile", r"[0-9.]+ images/s, PyTorch 0.1"),
    ("memcheck", r"10 tests; ERROR SUMMARY: 0 errors"),
    ("racecheck", r"10 tests; RACECHECK SUMMARY: 0 hazards .*"),
    ("batch 256, bf16 gradients", r"[0-9.]+ images/s of [0-9.]+"),
    ("determinism, classifier", r"two runs of 2 steps, 1 files"),
    ("ssd_mobilenet_v2, eager", r"[0-9.]+ images/s, PyTorch 0.1"),
    ("ssd_mobilenet_v2, first 50 losses", r"the first differs by 0.0\d+, the means by 0.0\d+"),
    ("ssd_mobilenet_v2, compile", r"[0-9.]+ images/s, PyTorch 0.1"),
    *((f"{network}, max-autotune", r"[0-9.]+ images/s, PyTorch 0.1") for network in NETWORKS[:2]),
    ("mobilenet, 3 clones, evaluator", r"[0-9.]+ images/s; accuracy.*"),
    ("mobilenet, bf16 and fp32", r"final loss [0-9.]+, on the CPU [0-9.]+"),
    ("ssd, 3 clones, evaluator", r"[0-9.]+ images/s; mAP.*"),
    ("ssd, bf16 and fp32", r"final loss [0-9.]+, on the CPU [0-9.]+"),
    ("no such GPU", r"exit code 64: .*no GPU 99.*"),
    ("out of memory", r"exit code 65: .*would fit.*"),
    ("kill -9 of a clone", r"clone 1 died.*"),
    ("3 clones on GPUs 0,1,0", r"[0-9.]+ images/s of [0-9.]+"),
    *((f"batch {batch}, {gradients} gradients", r"[0-9.]+ images/s of [0-9.]+")
      for batch, gradients in ((256, "fp32"), (64, "bf16"), (64, "fp32"))),
    ("determinism, detector", r"two runs of 2 steps, 1 files"),
]


def processes_with(mark):
    """Returns pid -> command line of the processes that inherited the environment variable MARK=mark."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"MARK={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass  # it has just ended, or is not ours
    return found


class Killer(threading.Thread):
    """Kills the first process whose command line has all `words` and none of `others`."""

    def __init__(self, mark, words, others=()):
        super().__init__(daemon=True)
        self.mark, self.words, self.others = mark, words, others
        self.killed = None
        self.stop = threading.Event()

    def run(self):
        while self.killed is None and not self.stop.wait(0.05):
            for pid, line in processes_with(self.mark).items():
                if all(word in line for word in self.words) and not any(word in line for word in self.others):
                    os.kill(pid, signal.SIGKILL)
                    self.killed = line


class GpuCheck(EndToEndTest):

    def setUp(self):
        super().setUp()
        self.bundle = self.folder / "bundle"
        self.out = self.folder / "out"
        for name in ("bin", "check", "pipelines", "path", "python"):
            (self.bundle / name).mkdir(parents=True)
        for name in ("check.sh", "references.sh"):
            shutil.copy(SCRIPTS / "gpu" / name, self.bundle)
        for file in [*(SCRIPTS / "gpu" / "check").iterdir(), SCRIPTS / "plot_events.py"]:
            shutil.copy(file, self.bundle / "check")
        shutil.copy(HOST / "gpu_step_torch.py", self.bundle)
        for name, program in (("ps_server", BIN / "ps_server"), ("worker", BIN / "emulated_gpu_worker"),
                              ("evaluator", BIN / "emulated_gpu_evaluator"), ("cuda_test", HOST / "cuda_test"),
                              ("gpu_step", HOST / "gpu_step")):
            (self.bundle / "bin" / name).symlink_to(program)
        for name in ("nvidia-smi", "ncu", "compute-sanitizer"):
            (self.bundle / "path" / name).symlink_to(HOST / name)
        (self.bundle / "python" / "torch.py").write_text('__version__ = "stand-in"\n')
        for source in (ROOT / "deploy" / "pipelines" / "mobilenet_v2_synthetic.config",
                       *(SCRIPTS / "gpu" / "pipelines").iterdir()):
            text = source.read_text()
            for pattern, replacement in SMALL:
                size = "75" if "ssd" in source.name else "32"
                text = re.sub(pattern, replacement.replace("SIZE", size), text, flags=re.MULTILINE)
            (self.bundle / "pipelines" / source.name).write_text(text)
        self.environment = {
            **os.environ, "MARK": str(self.folder), "OUT": str(self.out), "PYTHON": sys.executable, "SHORTEN": "50",
            "HANG_S": "10", "PATIENCE": "10", "PATH": f"{self.bundle / 'path'}:{os.environ['PATH']}", "PUSHPULL_BIN_DIR": str(BIN),
            "PYTHONPATH": str(self.bundle / "python"), "PUSHPULL_EMULATED_GPUS": "2",
            "PUSHPULL_EMULATED_MEMORY_MB": "64"}
        self.environment.pop("CUDA_VISIBLE_DEVICES", None)

    def start_check(self, *flags, script="check.sh", **environment):
        return self.start("check.log", self.bundle / script, *flags, *(["--seconds=3600"] if script == "check.sh" else []),
                          env={**self.environment, **environment})

    def rows(self):
        """Returns the table as check -> (figure, bar, result), in its order."""
        rows = {}
        for line in (self.out / "check.txt").read_text().splitlines():
            if line.count(" | ") == 3:
                check, *rest = (cell.strip() for cell in line.split(" | "))
                self.assertNotIn(check, rows)
                rows[check] = tuple(rest)
        rows.pop("check")  # the header
        return rows

    def expect_no_process(self):
        deadline = time.monotonic() + 10
        while left := processes_with(self.folder):
            self.assertLess(time.monotonic(), deadline, f"left behind: {left}")
            time.sleep(0.05)

    def expect_rows(self, rows, failing, skipped=()):
        """Expects all rows with their figures, where `failing` are the patterns of results that are not "ok"."""
        self.assertEqual(list(rows), [check for check, _ in ROWS if check not in skipped])
        for check, figure in ROWS:
            if check in skipped:
                continue
            with self.subTest(check):
                result = failing.get(check, "ok")
                self.assertRegex(rows[check][2], f"^{result}$")
                if result == "ok":
                    self.assertRegex(rows[check][0], f"^{figure}$")

    @unittest.skipUnless(FULL, "takes minutes; runs with PUSHPULL_TEST_FULL=1")
    def test_everything_passes(self):
        references = self.start_check(script="references.sh")
        self.assertEqual(references.wait(300), 0, references.text())
        self.assertEqual(sorted(path.name for path in (self.bundle / "references").iterdir()),
                         ["mobilenet.config", "mobilenet.losses", "ssd.config", "ssd.losses"])
        check = self.start_check()
        self.assertEqual(check.wait(1500), 0, check.text())
        self.expect_no_process()
        self.expect_rows(self.rows(), {})
        self.assertRegex(check.text(), r"PyTorch eager, batch 1, by kernel: 2.500 ms per step, 2 kernels")
        self.assertFalse((self.out / "logs" / "mobilenet_cpu.worker.log").exists(), "the curve was shipped")

    def test_each_failure_costs_its_own_row_only(self):
        (self.bundle / "python" / "torch.py").write_text("raise ImportError\n")
        killers = [Killer(self.folder, ["emulated_gpu_worker", "classifier_a.sock", "--clone_index=0"]),
                   Killer(self.folder, ["bin/worker", "sharing.sock"], ["timeout", "clone_index"])]
        for killer in killers:
            killer.start()
        check = self.start_check(HANGING_TEST=HUNG, CRASHING_TEST=CRASHED, FAIL_NETWORK="ssd_mobilenet_v2",
                                 NCU_DENIED="1")
        self.assertEqual(check.wait(1500), 1, check.text())
        for killer in killers:
            killer.stop.set()
            self.assertIsNotNone(killer.killed, f"no process has {killer.words}")
        self.expect_no_process()
        rows = self.rows()
        self.assertEqual(rows.pop("benchmark")[2], "skipped (no PyTorch here)")
        self.assertEqual(rows.pop("benchmark_ssd")[2], "skipped (no PyTorch here)")
        self.expect_rows(rows, {
            "ssd_mobilenet_v2, our step": r"FAIL \(exit code 70: INTERNAL: an unspecified launch failure\)",
            "operators, fp32 and bf16": rf"FAIL \(2 ended the process: .*{HUNG} hung.*|FAIL \(2 ended .*exit code 139.*",
            "operators, 2 multiprocessors": rf"FAIL \(1 ended the process: {CRASHED} exit code 139\)",
            "profile": r"skipped \(no permission to read the GPU's counters\)",
            "3 clones on GPUs 0,1,0": r"FAIL \(killed, or out of time\)",
        }, skipped=[check for check, figure in ROWS if "PyTorch" in figure or "first differs" in figure])
        # All tests but the two gave a result.
        passed, total = map(int, re.match(r"(\d+) of (\d+) tests", rows["operators, fp32 and bf16"][0]).groups())
        self.assertEqual(passed, total - 2)
        self.assertEqual(rows["operators, 2 multiprocessors"][0], "19 of 20 tests passed, 0 failed, 0 skipped")
        self.assertIn("starting it again", (self.out / "logs" / "classifier_a.worker.log").read_text())
        self.assertTrue((self.out / "logs" / "mobilenet_cpu.worker.log").exists(), "no curve was shipped")

    def test_interrupted_check_leaves_its_rows_and_no_process(self):
        check = self.start_check("--only=step,sharing")
        log = self.out / "logs" / "sharing.worker.log"
        deadline = time.monotonic() + 120
        while not (log.exists() and "clone 2 computes" in log.read_text()):
            self.assertLess(time.monotonic(), deadline, check.text())
            time.sleep(0.05)
        check.kill(signal.SIGTERM)
        self.assertEqual(check.wait(20), 143, check.text())
        self.expect_no_process()
        rows = self.rows()
        self.assertEqual([(name, result) for name, (_, _, result) in rows.items()],
                         [(f"{network}, our step", "ok") for network in NETWORKS])


if __name__ == "__main__":
    unittest.main()
