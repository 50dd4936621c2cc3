#!/usr/bin/env python3
"""Computes the least time that the instructions of a training step take on a GPU, from machine code and launches.

usage: python3 issue_bound.py --code=FILE --program=FILE [--multiprocessors=132] [--ghz=1.755] [--at_most=MS]
                              [--cuobjdump=PATH] [--samples=N] [--blocks=PATTERN] NETWORK...

NETWORK is one that gpu_step knows, such as mobilenet_v2. --code is a library or program with the GPU's code for one
architecture, such as build/kernels/libpushpull_gpu.a, and --program is emulated_gpu_step of the same sources: it lists
the launches of a step of the network's usual batch, with grids and parameters, and computes nothing. Of each launch
some blocks run in sass_machine.py, which counts the instructions they issue. The table has, by kernel:

  issue  milliseconds in which the schedulers of all multiprocessors issue these instructions, one each per clock cycle
  unit   the same for the busiest unit, and its name: many units take a warp's instruction only every second cycle or
         less often (UNITS below, after the table of throughputs in CUDA's programming guide for capability 9.0)
  bound  the sum over the launches of the larger of the two

No cache misses, waits or gaps between kernels are counted, so a measurement should be longer; nor is what the last block
of a launch does alone (kernels/cuda/last_block.cuh). A launch of fewer blocks than multiprocessors takes as long as one
block. --blocks adds, for the kernels whose names match the pattern, the pieces of code without jumps that issue most,
with their instructions. --at_most makes the script fail if the issue time of a network's step is longer.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np

import sass_machine
import sass_table

SCHEDULERS = 4  # of a multiprocessor
# Cycles for which an instruction of a warp occupies the unit that each scheduler has, or its quarter of a shared one.
UNITS = {
    "alu": (2, "IADD3 VIADD LOP3 SHF ISETP FSETP SEL FSEL FMNMX VIMNMX VIADDMNMX PRMT LEA MOV F2FP I2FP IABS PLOP3 P2R FSET"),
    "fma": (1, "FFMA FADD FMUL IMAD HFMA2 HADD2 HMUL2"),
    "convert": (8, "MUFU I2F F2I F2F FRND POPC"),
    "double": (2, "DFMA DADD DMUL DSETP"),
    "memory": (4, "LDG STG LDS STS LDSM LD ST SHFL ATOMG ATOMS REDG RED LDGSTS LDL STL"),
    "tensor": (4, "HMMA"),
}
UNIT_OF = {opcode: (unit, cycles) for unit, (cycles, opcodes) in UNITS.items() for opcode in opcodes.split()}


def cost_of(instruction):
    """Returns the unit that an instruction occupies and for how many cycles."""
    unit, cycles = UNIT_OF.get(instruction.base, (None, 0))
    if unit == "memory":
        cycles *= 4 if instruction.has("128") or instruction.base == "LDSM" and "4" in instruction.parts else \
            2 if instruction.has("64") or instruction.base == "LDSM" and "2" in instruction.parts else 1
    return unit, cycles


class Launch:
    """A line of the list that StartLaunchList in kernels/cuda/emulation/launch_list.h describes."""

    def __init__(self, line, names):
        words = line.split()
        self.name = names[int(words[0], 16)]
        numbers = [int(word) for word in words[1:8]]
        self.grid, self.block = numbers[:3], numbers[3:6]
        self.parameters = bytes.fromhex(words[8]) if len(words) > 8 else b""

    def blocks(self):
        return self.grid[0] * self.grid[1] * self.grid[2]

    def bank(self, parameters_at):
        """Constant bank 0 as the kernel sees it."""
        bank = bytearray(parameters_at)
        bank[:24] = struct.pack("<6I", *self.block, *self.grid)
        return bytes(bank) + self.parameters


def run(*arguments, stdin=None, environment=None):
    result = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, check=False,
                            input=stdin, env=environment)
    if result.returncode != 0:
        sys.exit(f"issue_bound: {' '.join(map(str, arguments))}: {(result.stderr or result.stdout).strip()}")
    return result.stdout


def names_in(program):
    """Returns the short names of a program's functions by address."""
    symbols = [line.split()[::2] for line in run("nm", program).splitlines() if len(line.split()) == 3]
    plain = run("c++filt", stdin="\n".join(name for _, name in symbols)).splitlines()
    return {int(address, 16): sass_table.short_name(name) for (address, _), name in zip(symbols, plain)}


def launches_of(network, program, multiprocessors, names):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "launches")
        run(program, f"--networks={network}", "--steps=1", "--repeats=1", "--table=none", "--losses=0", "--bandwidth=1",
            environment={**os.environ, "PUSHPULL_EMULATED_MULTIPROCESSORS": str(multiprocessors),
                         "PUSHPULL_EMULATED_MEMORY_MB": "1000000", "PUSHPULL_EMULATED_LAUNCHES": str(file)})
        return [Launch(line, names) for line in file.read_text().splitlines()]


def kernels_in(code, cuobjdump):
    """Returns the lines of each kernel's disassembly by short name, and the compute capability, times 10."""
    kernels, lines, capabilities = {}, None, set()
    for line in run(cuobjdump, "-sass", code).splitlines():
        if found := sass_table.FUNCTION.search(line):
            lines = kernels.setdefault(found[1], [])
        elif found := re.search(r"code for sm_(\d+)", line):
            capabilities.add(int(found[1]))
            lines = None
        elif lines is not None:
            lines.append(line)
    if len(capabilities) != 1:
        sys.exit(f"issue_bound: {code} has code for {sorted(capabilities) or 'no GPU'}; expected one architecture")
    plain = run("c++filt", stdin="\n".join(kernels)).splitlines()
    return {sass_table.short_name(name): text for name, text in zip(plain, kernels.values())}, capabilities.pop()


def sampled(count, samples):
    """At most `samples` of the numbers below count, evenly spread."""
    return sorted({(2 * i + 1) * count // (2 * samples) for i in range(samples)}) if count > samples else list(range(count))


def special_registers(launch, block, warp):
    x, y = launch.block[:2]
    thread = np.arange(warp * 32, warp * 32 + 32)
    fill = lambda value: np.full(32, value, np.uint32)  # noqa: E731
    return {"SR_TID.X": (thread % x).astype(np.uint32), "SR_TID.Y": (thread // x % y).astype(np.uint32),
            "SR_TID.Z": (thread // (x * y)).astype(np.uint32), "SR_LANEID": (thread % 32).astype(np.uint32),
            "SR_CTAID.X": fill(block % launch.grid[0]), "SR_CTAID.Y": fill(block // launch.grid[0] % launch.grid[1]),
            "SR_CTAID.Z": fill(block // (launch.grid[0] * launch.grid[1])), "SR_CgaCtaId": fill(0)}


class Counter:
    """Counts the instructions of launches."""

    def __init__(self, kernels, capability, samples):
        self.kernels, self.capability, self.samples = kernels, capability, samples
        self.parsed = {}
        self.guesses = collections.defaultdict(int)  # by kernel and jump
        self.known = {}  # by launch
        self.block_times = collections.defaultdict(collections.Counter)  # by kernel: runs of each block per warp sampled

    def kernel(self, name):
        if name not in self.parsed:
            if name not in self.kernels:
                sys.exit(f"issue_bound: the machine code has no kernel {name}; are --code and --program of one version?")
            kernel = sass_machine.Kernel(name, self.kernels[name], self.capability)
            costs = {}
            for start, end in kernel.block_end.items():
                cost = costs[start] = collections.Counter(issue=end - start)
                for instruction in kernel.code[start:end]:
                    unit, cycles = cost_of(instruction)
                    cost[unit] += cycles
            self.parsed[name] = kernel, costs
        return self.parsed[name]

    def cycles(self, launch):
        """Returns a Counter of the cycles that one block occupies one scheduler's issue slot and units."""
        key = (launch.name, *launch.grid, *launch.block, launch.parameters)
        if key in self.known:
            return self.known[key]
        kernel, costs = self.kernel(launch.name)
        bank = launch.bank(kernel.parameters_at)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        warps = -(-threads // 32)
        total = collections.Counter()
        blocks = sampled(launch.blocks(), self.samples)
        for block in blocks:
            for number in range(warps):
                lanes = np.arange(number * 32, number * 32 + 32) < threads
                warp = sass_machine.Warp(kernel, bank, special_registers(launch, block, number), lanes)
                for start, times in warp.run().items():
                    self.block_times[launch.name][start] += times * launch.blocks()
                    for unit, cycles in costs[start].items():
                        total[unit] += times * cycles
                for address, times in warp.guesses.items():
                    self.guesses[launch.name, address] += times
        scale = 1 / (len(blocks) * SCHEDULERS)
        self.known[key] = collections.Counter({unit: cycles * scale for unit, cycles in total.items() if unit})
        return self.known[key]


def report(network, launches, counter, options):
    """Prints the table of a network's step, and returns the milliseconds of issue."""
    rows = {}
    for launch in launches:
        try:
            cycles = counter.cycles(launch)
        except sass_machine.NotUnderstood as error:
            sys.exit(f"issue_bound: {launch.name}: this script does not understand {error}")
        per_ms = 1e6 * options.ghz
        rounds = max(1.0, launch.blocks() / options.multiprocessors)
        row = rows.setdefault(launch.name, collections.Counter())
        row["launches"] += 1
        for unit, count in cycles.items():
            row[unit] += count * rounds / per_ms
        row["bound"] += max(cycles.values()) * rounds / per_ms
    print(f"{network}, {options.multiprocessors} multiprocessors at {options.ghz} GHz\n")
    print("| kernel | launches | issue | unit | bound |\n|---|---|---|---|---|")
    total = collections.Counter()
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["bound"]):
        unit = max((unit for unit in UNITS), key=lambda unit: row[unit])
        print(f"| {name} | {row['launches']} | {row['issue']:.3f} | {row[unit]:.3f} {unit} | {row['bound']:.3f} |")
        total.update(row)
    unit = max((unit for unit in UNITS), key=lambda unit: total[unit])
    print(f"| all | {total['launches']} | {total['issue']:.3f} | {total[unit]:.3f} {unit} | {total['bound']:.3f} |\n")
    return total["issue"]


def print_blocks(counter, pattern, shown=14):
    """Prints the blocks of the matching kernels that issue most of their instructions."""
    for name, times in counter.block_times.items():
        if not re.search(pattern, name):
            continue
        kernel, costs = counter.kernel(name)
        issued = {start: count * costs[start]["issue"] for start, count in times.items()}
        total = sum(issued.values())
        for start in sorted(issued, key=issued.get, reverse=True)[:shown]:
            code = kernel.code[start:kernel.block_end[start]]
            print(f"{name}: {100 * issued[start] / total:.1f} % in {len(code)} instructions from address "
                  f"0x{code[0].address:x}, which ran {times[start]} times")
            for instruction in code:
                print(f"    {instruction.text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", metavar="NETWORK")
    parser.add_argument("--code", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--multiprocessors", type=int, default=132, help="of an H100 or H200")
    parser.add_argument("--ghz", type=float, default=1.755)
    parser.add_argument("--at_most", type=float, help="milliseconds")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--blocks", default="", metavar="PATTERN", help="a regular expression for names of kernels")
    parser.add_argument("--samples", type=int, default=2, help="how many blocks of a launch are run")
    options = parser.parse_args()
    if shutil.which(options.cuobjdump) is None:
        sys.exit(f"issue_bound: there is no {options.cuobjdump}; install CUDA's toolkit, or give --cuobjdump=PATH")
    for file in (options.code, options.program):
        if not file.is_file():
            sys.exit(f"issue_bound: there is no file {file}")
    try:
        re.compile(options.blocks)
    except re.error as error:
        sys.exit(f"issue_bound: --blocks: {options.blocks} is no regular expression: {error}")
    counter = Counter(*kernels_in(options.code, options.cuobjdump), options.samples)
    names = names_in(options.program)
    too_long = []
    for network in options.networks:
        issue = report(network, launches_of(network, options.program, options.multiprocessors, names), counter, options)
        if options.at_most is not None and issue > options.at_most:
            too_long.append(f"{network}: {issue:.3f} ms of issue, and --at_most allows {options.at_most}")
    if options.blocks:
        print_blocks(counter, options.blocks)
    if counter.guesses:
        print("Jumps that depend on data were taken as if it were 0, by kernel:")
        jumps = collections.Counter(name for name, _ in counter.guesses)
        print("  " + ", ".join(f"{name} {count}" for name, count in sorted(jumps.items())))
    if too_long:
        sys.exit("issue_bound: " + "; ".join(too_long))


if __name__ == "__main__":
    main()
