#!/usr/bin/env python3
"""The interpreter in scripts/gpu/sass_*.py on short pieces of machine code, and scripts/gpu/issue_bound.py with made-up kernels.

usage: issue_bound_test.py BIN_DIR
"""
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/gpu"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))
import issue_bound  # noqa: E402
import sass_machine  # noqa: E402
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

BIN = pathlib.Path()
BEGIN = 0x210  # of the parameters
LOOP = """
    S2R R0, SR_TID.X
    IMAD.MOV.U32 R1, RZ, RZ, RZ
loop:
    IADD3 R1, R1, 0x1, RZ
    FADD R2, R2, R3
    ISETP.LT.AND P0, PT, R1, c[0x0][0x210], PT
    @P0 BRA loop
    EXIT
"""
# As nvcc divides two unsigned numbers of 32 bits.
DIVISION = """
    LDC R1, c[0x0][0x210]
    LDC R0, c[0x0][0x214]
    I2F.U32.RP R4, R0
    ISETP.NE.U32.AND P2, PT, R0, RZ, PT
    MUFU.RCP R4, R4
    VIADD R2, R4, 0xffffffe
    F2I.FTZ.U32.TRUNC.NTZ R3, R2
    IMAD.MOV.U32 R2, RZ, RZ, RZ
    IMAD.MOV R5, RZ, RZ, -R3
    IMAD R5, R5, R0, RZ
    IMAD.HI.U32 R2, R3, R5, R2
    IMAD.HI.U32 R3, R2, R1, RZ
    IADD3 R4, -R3, RZ, RZ
    IMAD R1, R0, R4, R1
    ISETP.GE.U32.AND P0, PT, R1, R0, PT
    @P0 IMAD.IADD R1, R1, 0x1, -R0
    @P0 VIADD R3, R3, 0x1
    ISETP.GE.U32.AND P1, PT, R1, R0, PT
    @P1 VIADD R3, R3, 0x1
    @!P2 LOP3.LUT R3, RZ, R0, RZ, 0x33, !PT
    BRX R3
"""


def listing(code):
    """Code with labels as the lines of a disassembly."""
    lines = [line.strip() for line in code.strip().splitlines()]
    labels, address = {}, 0
    for line in lines:
        if line.endswith(":"):
            labels[line[:-1]] = address
        else:
            address += 16
    text = [line for line in lines if not line.endswith(":")]
    for label, at in labels.items():
        text = [re.sub(rf"\b{label}\b", f"0x{at:x}", line) for line in text]
    return [f"        /*{16 * i:04x}*/                   {line} ;" for i, line in enumerate(text)]


def run(code, parameters=b"", lanes=32, capability=90):
    kernel = sass_machine.Kernel("kernel", listing(code), capability)
    special = {"SR_TID.X": np.arange(32, dtype=np.uint32)}
    warp = sass_machine.Warp(kernel, bytes(BEGIN) + parameters, special, np.arange(32) < lanes)
    counts = warp.run()
    return warp, sum(times * (kernel.block_end[start] - start) for start, times in counts.items())


def evaluate(line, **registers):
    """Performs one instruction, which may read R1 to R9 and P1 to P3, and returns the registers of the first lane."""
    kernel = sass_machine.Kernel("kernel", listing(f"{line}\nEXIT"), 90)
    warp = sass_machine.Warp(kernel, bytes(BEGIN), {}, np.ones(32, bool))
    for name, value in registers.items():
        warp.values[name] = np.full(32, value, bool if name.startswith("P") else np.uint32)
    warp.perform(0)
    return {name: int(values[0]) for name, values in warp.values.items()}


class ControlFlow(unittest.TestCase):

    def test_a_loop_runs_as_often_as_the_parameter_says(self):
        for times in (1, 7, 100):
            _, issued = run(LOOP, struct.pack("<i", times))
            self.assertEqual(issued, 2 + 4 * times + 1)

    def test_only_what_decides_jumps_is_computed(self):
        kernel = sass_machine.Kernel("kernel", listing(LOOP), 90)
        self.assertEqual([i.base for i, deciding in zip(kernel.code, kernel.deciding) if deciding],
                         ["IMAD", "IADD3", "ISETP"])

    def test_a_parameter_may_be_an_element_of_an_array(self):
        array = struct.pack("<4i", 3, 50, 7, 60)
        for register in ("R3", "UR3"):
            code = f"""
                {'U' if register[0] == 'U' else ''}MOV {register}, 0x4
                {'U' if register[0] == 'U' else ''}LDC.64 {register[:-1]}4, c[0x0][{register}+0x210]
                IMAD.MOV.U32 R1, RZ, RZ, RZ
            loop:
                IADD3 R1, R1, 0x1, RZ
                ISETP.LT.AND P0, PT, R1, {register[:-1]}5, PT
                @P0 BRA loop
                EXIT
            """
            self.assertEqual(run(code, array)[1], 3 + 3 * 7 + 1, register)  # elements 1 and 2 are loaded

    def test_lanes_that_part_join_again(self):
        code = """
            S2R R0, SR_TID.X
            ISETP.GE.U32.AND P0, PT, R0, 0x8, PT
            @P0 BRA other
            NOP
            NOP
            BRA end
        other:
            NOP
        end:
            NOP
            EXIT
        """
        self.assertEqual(run(code)[1], 3 + 3 + 1 + 2)  # both ways once, and the end once
        self.assertEqual(run(code, lanes=8)[1], 3 + 3 + 2)

    def test_lanes_leave_a_loop_one_after_another(self):
        code = """
            S2R R0, SR_TID.X
        loop:
            ISETP.EQ.U32.AND P0, PT, R0, RZ, PT
            @P0 EXIT
            VIADD R0, R0, 0xffffffff
            BRA loop
        """
        self.assertEqual(run(code)[1], 1 + 31 * 4 + 2)

    def test_a_call_returns(self):
        code = """
            MOV R8, back
            CALL.REL.NOINC function
        back:
            EXIT
        function:
            NOP
            RET.REL.NODEC R8 0x0
        """
        self.assertEqual(run(code)[1], 2 + 1 + 2)

    def test_a_jump_that_depends_on_data_is_reported(self):
        warp, issued = run("LDG.E R1, desc[UR4][R2.64]\nISETP.NE.AND P0, PT, R1, RZ, PT\n@P0 BRA end\nNOP\nend:\nEXIT")
        self.assertEqual(issued, 5)
        self.assertEqual(warp.guesses, {0x20: 1})

    def test_an_endless_loop_and_an_unknown_jump_are_errors(self):
        kernel = sass_machine.Kernel("kernel", listing("loop:\nNOP\nBRA loop"), 90)
        warp = sass_machine.Warp(kernel, bytes(BEGIN), {}, np.ones(32, bool))
        with self.assertRaisesRegex(sass_machine.NotUnderstood, "loop does not end"):
            warp.run(limit=1000)
        with self.assertRaisesRegex(sass_machine.NotUnderstood, "jump through a table"):
            run(DIVISION, struct.pack("<2I", 1, 1))
        with self.assertRaisesRegex(sass_machine.NotUnderstood, "capability 130"):
            run(LOOP, capability=130)


class Arithmetic(unittest.TestCase):

    def test_division(self):
        kernel = sass_machine.Kernel("kernel", listing(DIVISION), 90)
        generator = random.Random(1)
        for _ in range(200):
            a, b = generator.getrandbits(generator.randint(1, 32)), 1 + generator.getrandbits(generator.randint(1, 31))
            warp = sass_machine.Warp(kernel, bytes(BEGIN) + struct.pack("<2I", a, b), {}, np.ones(32, bool))
            with self.assertRaises(sass_machine.NotUnderstood):
                warp.run()
            self.assertEqual(int(warp.values["R3"][0]), a // b, (a, b))

    def test_single_instructions_against_whole_numbers(self):
        generator = random.Random(2)
        mask = (1 << 32) - 1

        def signed(value):
            return value - (1 << 32) if value >> 31 else value
        for _ in range(100):
            a, b, c, d = (generator.choice([0, 1, mask, 1 << 31, generator.getrandbits(32)]) for _ in range(4))
            given = {"R2": a, "R3": b, "R4": c, "R5": d}
            p = {"P1": bool(generator.getrandbits(1)), "P2": bool(generator.getrandbits(1))}
            cases = [
                ("IADD3 R1, P0, R2, R3, RZ", {"R1": a + b & mask, "P0": a + b > mask}),
                ("IADD3 R1, P0, R2, -R3, RZ", {"R1": a - b & mask, "P0": a >= b}),
                ("IADD3.X R1, R2, ~R3, RZ, P1, !PT", {"R1": a + (~b & mask) + p["P1"] & mask}),
                ("IMAD R1, R2, R3, -R4", {"R1": a * b - c & mask}),
                ("IMAD.X R1, R2, 0x1, R3, P1", {"R1": a + b + p["P1"] & mask}),
                ("IMAD.WIDE.U32 R8, R2, R3, R4", {"R8": a * b + c + (d << 32) & mask,
                                                  "R9": a * b + c + (d << 32) >> 32 & mask}),
                ("IMAD.WIDE R8, R2, -0x3, R4", {"R8": signed(a) * -3 + c + (d << 32) & mask,
                                                "R9": signed(a) * -3 + c + (d << 32) >> 32 & mask}),
                ("IMAD.HI.U32 R1, R2, R3, R4", {"R1": a * b + c + (d << 32) >> 32 & mask}),
                ("LEA R1, P0, R2, R3, 0x4", {"R1": (a << 4) + b & mask, "P0": (a << 4 & mask) + b > mask}),
                ("LEA.HI R1, R2, R3, R4, 0x5", {"R1": (a + (c << 32) << 5 >> 32 & mask) + b & mask}),
                ("LEA.HI.X R1, R2, R3, R4, 0x2, P1", {"R1": (a + (c << 32) << 2 >> 32 & mask) + b + p["P1"] & mask}),
                ("LEA.HI.SX32 R1, R2, R3, 0x1d", {"R1": (signed(a) << 29 >> 32) + b & mask}),
                ("SHF.R.S32.HI R1, RZ, 0x7, R2", {"R1": signed(a) >> 7 & mask}),
                ("SHF.R.U32.HI R1, RZ, 0x7, R2", {"R1": a >> 7}),
                ("SHF.R.U64 R1, R2, 0x9, R3", {"R1": a + (b << 32) >> 9 & mask}),
                ("SHF.L.U64.HI R1, R2, 0x3, R3", {"R1": a + (b << 32) << 3 >> 32 & mask}),
                ("SHF.L.U32 R1, R2, 0x20, RZ", {"R1": 0}),
                ("LOP3.LUT P0, R1, R2, R3, R4, 0xd8, !PT", {"R1": c & b | ~c & a & mask, "P0": c & b | ~c & a & mask != 0}),
                ("PLOP3.LUT P0, PT, P1, P2, PT, 0xc0, 0x0", {"P0": p["P1"] and p["P2"]}),
                ("ISETP.GE.AND P0, PT, R2, R3, P1", {"P0": signed(a) >= signed(b) and p["P1"]}),
                ("ISETP.LT.U32.OR P0, PT, R2, R3, !P1", {"P0": a < b or not p["P1"]}),
                ("ISETP.GT.AND.EX P0, PT, R2, R3, PT, P1",
                 {"P0": signed(a) > signed(b) or a == b and p["P1"]}),
                ("ISETP.NE.AND.EX P0, PT, R2, R3, PT, P1", {"P0": a != b or p["P1"]}),
                ("SEL R1, R2, R3, !P1", {"R1": b if p["P1"] else a}),
                ("VIMNMX R1, R2, R3, !PT", {"R1": max(signed(a), signed(b)) & mask}),
                ("VIADDMNMX.U32 R1, R2, R3, R4, PT", {"R1": min(a + b & mask, c)}),
                ("IABS R1, R2", {"R1": abs(signed(a)) & mask}),
                ("PRMT R1, R2, 0x7610, R3", {"R1": a & 0xffff | b & 0xffff0000}),
                ("PRMT R1, R2, 0x9910, RZ", {"R1": a & 0xffff | (0xffff0000 if a >> 15 & 1 else 0)}),
            ]
            for line, expected in cases:
                result = evaluate(line, **given, **p)
                for name, value in expected.items():
                    self.assertEqual(result[name], value, f"{line}: {name} with {given} and {p}")


FAKE = """#!/bin/sh
[ -z "$FAIL" ] || { echo "nvdisasm is missing" >&2; exit 1; }
cat "$(dirname "$0")/sass"
"""


class IssueBound(unittest.TestCase):
    """The real list of launches, and kernels of three instructions each."""

    @classmethod
    def setUpClass(cls):
        cls.program = BIN / "emulated_gpu_step"
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        cls.cuobjdump = folder / "cuobjdump"
        cls.cuobjdump.write_text(FAKE)
        cls.cuobjdump.chmod(0o755)
        symbols = subprocess.run(["nm", str(cls.program)], capture_output=True, text=True, check=True).stdout
        kernels = sorted({line.split()[2] for line in symbols.splitlines() if "emulated_cuda" in line and
                          re.search("Kernel|Tiles", line) and len(line.split()) == 3})
        code = "\n".join(listing("NOP\nMUFU.EX2 R1, R1\nEXIT"))
        cls.sass = "code for sm_90\n" + "".join(f"Function : {name}\n{code}\n" for name in kernels)
        (folder / "sass").write_text(cls.sass)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def bound(self, *flags, network="mobilenet_v2"):
        return subprocess.run([sys.executable, str(ROOT / "scripts/gpu/issue_bound.py"), f"--code={self.cuobjdump}",
                               f"--program={self.program}", f"--cuobjdump={self.cuobjdump}", *flags, network],
                              capture_output=True, text=True, timeout=300, check=False)

    def test_the_table_adds_up(self):
        result = self.bound("--ghz=1")
        self.assertEqual(result.returncode, 0, result.stderr)
        launches = issue_bound.launches_of("mobilenet_v2", self.program, 132, issue_bound.names_in(self.program))
        self.assertGreater(len(launches), 200)
        issue = sum(max(132, launch.blocks()) / 132 * -(-int(np.prod(launch.block)) // 32) * 3 / 4 for launch in launches)
        found = re.search(r"\| all \| (\d+) \| ([\d.]+) \| ([\d.]+) convert \| ([\d.]+) \|", result.stdout)
        self.assertTrue(found, result.stdout)
        self.assertEqual(int(found[1]), len(launches))
        self.assertAlmostEqual(float(found[2]), issue / 1e6, delta=2e-3)
        self.assertAlmostEqual(float(found[3]), issue * 8 / 3 / 1e6, delta=4e-3)
        self.assertEqual(found[4], found[3])

    def test_a_bound_above_the_limit_fails(self):
        self.assertEqual(self.bound("--at_most=100").returncode, 0)
        result = self.bound("--at_most=0.001")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"mobilenet_v2: [\d.]+ ms of issue, and --at_most allows 0.001")

    def test_bad_input(self):
        self.assertIn("no file /nowhere", self.bound("--code=/nowhere").stderr)
        self.assertIn("no cuobjdump-x", self.bound("--cuobjdump=cuobjdump-x").stderr)
        self.assertIn("no_net", self.bound(network="no_net").stderr)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1))
    main()
