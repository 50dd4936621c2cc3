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

from harness import BIN, ROOT, EndToEndTest, main
from administrators import FULL

HOST = pathlib.Path(__file__).resolve().parent / "gpu_host"
SCRIPTS = ROOT / "scripts"
# What makes the pipelines small enough for the emulation. Batch norm is frozen, because batch statistics over one or two
# samples magnify rounding errors: freeze_batchnorm freezes a detector's backbone, and conv_hyperparams the rest.
SMALL = [(r"(height|width): (224|160)", r"\1: SIZE"), (r"depth_multiplier: [0-9.]+", "depth_multiplier: 0.1"),
         (r'type: "mobilenet_v2"(?!\s*depth)', 'type: "mobilenet_v2" depth_multiplier: 0.1 min_depth: 8'),
         (r"^  batch_size: \d+", "  batch_size: 6"), (r"num_examples: \d+", "num_examples: 24"),
         (r"^  (classifier|ssd) \{$", r"  \1 { freeze_batchnorm: true"),
         (r"batch_norm \{", "batch_norm { train: false")]
NETWORKS = ("mobilenet_v2", "ssd_mobilenet_v2", "ssd_mobilenet_v1")
HUNG = "ElementwiseTest/0.NanStaysNan"
CRASHED = "DepthwiseTiles/CudaConvolutionOnTwoMultiprocessors.FloatMatchesTheReference/11"

RATES = r"[0-9.]+ images/s of [0-9.]+"
BESIDE_PYTORCH = r"[0-9.]+ images/s, PyTorch 0.1"
LOSSES = r"the first differs by 0.0\d+, the means by 0.0\d+"
# The rows of each check in the script's order, with a pattern for the figure if nothing fails.
ROWS = {
    "step": [(f"{network}, our step", r"[0-9.]+ images/s") for network in NETWORKS],
    "operators": [("operators, fp32 and bf16", r"(\d+) of \1 tests passed, 0 failed, 0 skipped"),
                  ("operators, 2 multiprocessors", r"20 of 20 tests passed, 0 failed, 0 skipped")],
    "profile": [("profile", r"10 kernels, which take \d+ % of the time, in logs/ncu.\*.csv")],
    "benchmark": [("mobilenet_v2, eager", BESIDE_PYTORCH), ("mobilenet_v2, first 50 losses", LOSSES),
                  ("mobilenet_v2, compile", BESIDE_PYTORCH)],
    "libraries": [(f"{network}, libraries", r"[0-9.]+ images/s, faster for \d+ of \d+ operators")
                  for network in NETWORKS[:2]],
    "memcheck": [("memcheck", r"10 tests; ERROR SUMMARY: 0 errors")],
    "racecheck": [("racecheck", r"10 tests; RACECHECK SUMMARY: 0 hazards .*")],
    "end_to_end": [("batch 256, bf16 gradients", RATES)],
    "determinism": [("determinism, classifier", r"two runs of 2 steps, 1 files")],
    "benchmark_ssd": [("ssd_mobilenet_v2, eager", BESIDE_PYTORCH), ("ssd_mobilenet_v2, first 50 losses", LOSSES),
                      ("ssd_mobilenet_v2, compile", BESIDE_PYTORCH),
                      *((f"{network}, max-autotune", BESIDE_PYTORCH) for network in NETWORKS[:2])],
    "mobilenet": [("mobilenet, 3 clones, evaluator", r"[0-9.]+ images/s; accuracy.*"),
                  ("mobilenet, bf16 and fp32", r"first losses differ by [0-9.]+ %, final [0-9.]+, CPU [0-9.]+")],
    "ssd": [("ssd, 3 clones, evaluator", r"[0-9.]+ images/s; mAP.*"),
            ("ssd, bf16 and fp32", r"first losses differ by [0-9.]+ %, final [0-9.]+, CPU [0-9.]+")],
    "bad_cases": [("no such GPU", r"exit code 64: .*no GPU 99.*"), ("out of memory", r"exit code 65: .*would fit.*"),
                  ("kill -9 of a clone", r"clone 1 died.*")],
    "sharing": [("3 clones on GPUs 0,1,0", RATES)],
    "end_to_end_more": [(f"batch {batch}, {gradients} gradients", RATES)
                        for batch, gradients in ((256, "fp32"), (64, "bf16"), (64, "fp32"))],
    "determinism_ssd": [("determinism, detector", r"two runs of 2 steps, 1 files")],
}
LONG = ("libraries", "racecheck", "end_to_end", "mobilenet", "ssd", "end_to_end_more", "determinism_ssd")  # take minutes together


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
    """Kills the first process whose command line has all `words` and none of `others`, once there is one with all words
    of `after`."""

    def __init__(self, mark, words, others=(), after=()):
        super().__init__(daemon=True)
        self.mark, self.words, self.others, self.after = mark, words, others, after
        self.killed = None
        self.stop = threading.Event()

    def run(self):
        while self.killed is None and not self.stop.wait(0.05):
            lines = processes_with(self.mark)
            if not any(all(word in line for word in self.after) for line in lines.values()):
                continue
            for pid, line in lines.items():
                if all(word in line for word in self.words) and not any(word in line for word in self.others):
                    os.kill(pid, signal.SIGKILL)
                    self.killed = line
                    return


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
            "HANG_S": "15", "PATIENCE": "10", "PATH": f"{self.bundle / 'path'}:{os.environ['PATH']}", "PUSHPULL_BIN_DIR": str(BIN),
            "PYTHONPATH": str(self.bundle / "python"), "LD_LIBRARY_PATH": str(BIN.parent / "lib" / "vendor_fakes"), "PUSHPULL_EMULATED_GPUS": "2",
            "PUSHPULL_EMULATED_MEMORY_MB": "24"}
        self.environment.pop("CUDA_VISIBLE_DEVICES", None)

    def tearDown(self):
        super().tearDown()
        for pid in processes_with(self.folder):  # there are none unless the test has failed
            os.kill(pid, signal.SIGKILL)

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
        # The script waits for its processes. The kernel may need a moment to end the clones of a killed supervisor.
        deadline = time.monotonic() + 2
        while left := processes_with(self.folder):
            self.assertLess(time.monotonic(), deadline, f"left behind: {left}")
            time.sleep(0.05)

    def expect_rows(self, checks, failing):
        """Expects the rows of these checks with their figures. `failing` maps a row to the pattern of a result that is
        neither "ok" nor "not judged", as rates are here, and a check that did not run to that of its only row."""
        rows = self.rows()
        expected = [row for check in checks for row in ([(check, "")] if check in failing else ROWS[check])]
        self.assertEqual(list(rows), [name for name, _ in expected])
        for name, figure in expected:
            with self.subTest(name):
                expected_result = "not judged" if "of the GPU alone" in rows[name][1] else "ok"
                result = failing.get(name, expected_result)
                self.assertRegex(rows[name][2], f"^{result}$")
                if result == expected_result:
                    self.assertRegex(rows[name][0], f"^{figure}$")
        return rows

    @unittest.skipUnless(FULL, "takes minutes; runs with PUSHPULL_TEST_FULL=1")
    def test_everything_passes(self):
        references = self.start_check(script="references.sh")
        self.assertEqual(references.wait(600), 0, references.text())
        self.assertEqual(sorted(path.name for path in (self.bundle / "references").iterdir()),
                         ["mobilenet.config", "mobilenet.losses", "ssd.config", "ssd.losses"])
        check = self.start_check()
        self.assertEqual(check.wait(1500), 0, check.text())
        self.expect_no_process()
        self.expect_rows(ROWS, {})
        self.assertRegex(check.text(), r"PyTorch eager, batch 2, by kernel: 2.500 ms per step, 2 kernels")
        self.assertFalse((self.out / "logs" / "mobilenet_cpu.worker.log").exists(), "the curve was shipped")

    def test_each_failure_costs_its_own_row_only(self):
        (self.bundle / "python" / "torch.py").write_text('raise ImportError("not installed")\n')
        killers = [Killer(self.folder, ["emulated_gpu_worker", "classifier_a.sock", "--clone_index=0"]),
                   Killer(self.folder, ["bin/worker", "sharing.sock"], ["timeout", "clone_index"],
                          after=["sharing.sock", "--clone_index=2"])]
        for killer in killers:
            killer.start()
        checks = [check for check in ROWS if FULL or check not in LONG]
        check = self.start_check("--only=" + ",".join(checks), HANGING_TEST=HUNG, CRASHING_TEST=CRASHED,
                                 FAIL_NETWORK="ssd_mobilenet_v2", NCU_DENIED="1")
        self.assertEqual(check.wait(1500), 1, check.text())
        for killer in killers:
            killer.stop.set()
            self.assertIsNotNone(killer.killed, f"no process has {killer.words}")
        self.expect_no_process()
        rows = self.expect_rows(checks, {
            "ssd_mobilenet_v2, our step": r"FAIL \(exit code 70: INTERNAL: an unspecified launch failure\)",
            "operators, fp32 and bf16": rf"FAIL \(2 ended the process: (?=.*{HUNG} hung).*{CRASHED} exit code 139.*\)",
            "operators, 2 multiprocessors": rf"FAIL \(1 ended the process: {CRASHED} exit code 139\)",
            "ssd_mobilenet_v2, libraries": r"FAIL \(exit code 70: INTERNAL: an unspecified launch failure\)",
            "profile": r"skipped \(no permission to read the GPU's counters\)",
            "benchmark": r"skipped \(no PyTorch here: ImportError: not installed\)",
            "benchmark_ssd": r"skipped \(no PyTorch here: ImportError: not installed\)",
            "3 clones on GPUs 0,1,0": r"FAIL \(killed, or out of time\)",
        })
        # All tests but the two gave a result.
        passed, total = map(int, re.match(r"(\d+) of (\d+) tests", rows["operators, fp32 and bf16"][0]).groups())
        self.assertEqual(passed, total - 2)
        self.assertEqual(rows["operators, 2 multiprocessors"][0], "19 of 20 tests passed, 0 failed, 0 skipped")
        self.assertIn("starting it again", (self.out / "logs" / "classifier_a.worker.log").read_text())
        if FULL:
            self.assertTrue((self.out / "logs" / "mobilenet_cpu.worker.log").exists(), "no curve was shipped")

    def test_interrupted_check_leaves_its_rows_and_no_process(self):
        # The training would go on for minutes.
        check = self.start_check("--only=memcheck,sharing", SHORTEN="10")
        log = self.out / "logs" / "sharing.worker.log"
        deadline = time.monotonic() + 120
        while not (log.exists() and "clone 2 computes" in log.read_text()):
            self.assertIsNone(check.popen.poll(), check.text())
            self.assertLess(time.monotonic(), deadline, check.text())
            time.sleep(0.05)
        check.kill(signal.SIGTERM)
        self.assertEqual(check.wait(20), 143, check.text())
        self.expect_no_process()
        self.expect_rows(["memcheck"], {})


if __name__ == "__main__":
    main()
