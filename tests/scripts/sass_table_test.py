#!/usr/bin/env python3
"""scripts/gpu/sass_table.py on a program that prints what cuobjdump prints."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu/sass_table.py"
sys.path.insert(0, str(SCRIPT.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))
import sass_table  # noqa: E402
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

KERNEL = "_ZN8pushpull4cuda12_GLOBAL__N_19AddKernelILi64ELNS0_6AccessE1EEEvPf"
CUOBJDUMP = f"""#!/usr/bin/env bash
if [ "$1" = -sass ]; then
cat << 'END'
\tcode for sm_90
\t\tFunction : {KERNEL}
\t.headerflags\t@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                    /* 0x00000a00ff017b82 */
                                                                             /* 0x000fe20000000800 */
        /*0010*/                   LD.E R4, desc[UR4][R2.64] ;               /* 0x0000000402047980 */
        /*0020*/              @!P0 LDG.E.128 R8, desc[UR4][R2.64] ;          /* 0x0000000402087981 */
        /*0030*/                   LDS.128 R12, [R0] ;                       /* 0x00000000000c7984 */
        /*0040*/             @UP1  F2F.BF16.F32 R4, R4 ;                     /* 0x0000000400047304 */
        /*0050*/                   F2FP.BF16.F32.PACK_AB R5, R5, R6 ;        /* 0x000000060505723e */
        /*0060*/                   STG.E.U16 desc[UR4][R2.64], R4 ;          /* 0x0000000402007986 */
        /*0070*/                   STG.E.128 desc[UR4][R2.64], R8 ;          /* 0x0000000802007986 */
        /*0080*/                   STL [R1], R4 ;                            /* 0x0000000401007387 */
        /*10090*/                  BRA 0x10090 ;                             /* 0xfffffffc00fc7947 */
END
elif [ "$1" = -res-usage ] && [ "$2" = good.cubin ]; then
  printf 'Resource usage:\\n Function %s:\\n  REG:40 STACK:16 SHARED:0 LOCAL:0\\n' {KERNEL}
else
  echo "cuobjdump fatal : no such file" >&2
  exit 2
fi
"""


class SassTableTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cuobjdump = pathlib.Path(folder.name) / "cuobjdump"
        self.cuobjdump.write_text(CUOBJDUMP)
        os.chmod(self.cuobjdump, 0o755)

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)

    def test_counts_each_class_of_instructions(self):
        result = self.run_script(f"--cuobjdump={self.cuobjdump}", "good.cubin")
        self.assertEqual(result.returncode, 0, result.stderr)
        header, _, row = result.stdout.splitlines()
        cells = dict(zip(*([cell.strip() for cell in line.strip("|").split("|")] for line in (header, row))))
        self.assertEqual(cells, {
            "kernel": "AddKernel<64, 1>", "registers": "40", "stack": "16", "all": "10", "LD": "1", "LDS": "1", "LDG": "1",
            "F2F": "1", "F2FP": "1", "STG": "2", "STG.x": "1", "BRA": "1", "spills": "1", "loop": "0"})

    def test_measures_the_main_loop_between_barriers(self):
        def loop(*lines):
            text = [f"        /*{16 * i:04x}*/                   {line} ;" for i, line in enumerate(lines)]
            code = sass_table.instructions_of("\t\tFunction : kernel\n" + "\n".join(text))["kernel"]
            return sass_table.between_barriers(code)

        barrier = "BAR.SYNC.DEFER_BLOCKING 0x0"
        # One barrier: the whole body, five instructions from 0x10 on.
        self.assertEqual(loop("NOP", "NOP", barrier, "NOP", "NOP", "@!P0 BRA 0x10", barrier, "EXIT"), 5)
        # Two barriers: three instructions from the first, and five from the second around the end.
        self.assertEqual(loop("NOP", barrier, "NOP", "NOP", barrier, "NOP", "NOP", "@P0 BRA 0x0"), 5)
        self.assertEqual(loop("NOP", barrier, "NOP", "NOP", "NOP", "NOP", barrier, "@P0 BRA 0x0"), 5)
        # An outer loop does not count, nor a loop without barriers.
        self.assertEqual(loop("NOP", "NOP", barrier, "@P0 BRA 0x10", "NOP", barrier, "@P1 BRA 0x0"), 3)
        self.assertEqual(loop(barrier, "NOP", "NOP", "@P0 BRA 0x10", barrier, "EXIT"), 0)
        # The longer one of two loops side by side counts.
        self.assertEqual(loop(barrier, "@P0 BRA 0x0", barrier, "NOP", "NOP", "BRA 0x20", "EXIT"), 4)

    def test_leaves_out_what_only_does_not_match(self):
        result = self.run_script(f"--cuobjdump={self.cuobjdump}", "--only=Multiply", "good.cubin")
        self.assertEqual((result.returncode, len(result.stdout.splitlines())), (0, 2), result.stderr)

    def check_budget(self, *lines):
        budget = self.cuobjdump.with_name("budget.txt")
        budget.write_text("\n".join(["# A comment.", "", *lines]) + "\n")
        return self.run_script(f"--cuobjdump={self.cuobjdump}", f"--budget={budget}", "good.cubin")

    def test_a_budget_that_is_kept(self):
        result = self.check_budget('"Add.*<.*, 1>" registers=40 STG.x=1 all=10')
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("1 kernels keep to", result.stdout)

    def test_a_budget_that_is_exceeded_names_kernel_column_and_line(self):
        result = self.check_budget('"Add.*" registers=40', '"Add.*" F2FP=0 LD=1')
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("AddKernel<64, 1>: F2FP is 1, and", result.stderr)
        self.assertIn("budget.txt:4 allows 0", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_the_last_line_for_a_column_decides(self):
        self.assertEqual(self.check_budget('".*" LD=0 LDS=1', '"AddKernel<64, 1>" LD=1').returncode, 0)
        result = self.check_budget('"AddKernel<64, 1>" LD=1', '".*" LD=0')
        self.assertIn("LD is 1", result.stderr)

    def test_a_line_that_matches_no_kernel_is_an_error(self):
        result = self.check_budget('"Add" LD=1')  # the expression has to match the whole name
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no kernel is named Add", result.stderr)

    def test_a_budget_that_cannot_be_read_is_refused(self):
        for line, problem in [("AddKernel LD=1", "expected"), ('".*" LDX=1', "no column LDX"), ('".*" LD=few', "expected"),
                              ('"(" LD=1', "no regular expression"), ('".*"', "expected")]:
            result = self.check_budget(line)
            self.assertNotEqual(result.returncode, 0, line)
            self.assertIn("budget.txt:3", result.stderr)
            self.assertIn(problem, result.stderr)

    def test_a_budget_is_one_readable_file_about_all_kernels(self):
        result = self.run_script(f"--cuobjdump={self.cuobjdump}", "--budget=/nowhere/budget.txt", "good.cubin")
        self.assertEqual(result.returncode, 1)
        self.assertIn("sass_table: cannot read the budget /nowhere/budget.txt", result.stderr)
        result = self.run_script(f"--cuobjdump={self.cuobjdump}", "--budget=/nowhere/budget.txt", "--only=Add", "good.cubin")
        self.assertEqual(result.returncode, 1)
        self.assertIn("leave out --only", result.stderr)

    def test_errors_name_what_is_missing(self):
        result = self.run_script("--cuobjdump=/nowhere/cuobjdump", "good.cubin")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("there is no /nowhere/cuobjdump", result.stderr)
        result = self.run_script(f"--cuobjdump={self.cuobjdump}", "bad.cubin")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no such file", result.stderr)


if __name__ == "__main__":
    main()
