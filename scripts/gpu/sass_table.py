#!/usr/bin/env python3
"""Counts what the compiler made of GPU kernels: a table of registers, spills and instructions, from the machine code.

usage: python3 sass_table.py [--cuobjdump=PATH] [--only=PATTERN] FILE...

Each FILE is a program, a library or a .cubin with GPU code, such as build/kernels/libpushpull_gpu.a. cuobjdump and
nvdisasm are part of CUDA's toolkit; `pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm` has them too. The columns
are counts of instructions as they stand in the code, not of how often they run:

  LD    generic loads, which find out at each use whether an address is in shared or in device memory
  F2F   conversions of single numbers, which a multiprocessor issues at a quarter of the rate of F2FP, those of pairs
  STG.x stores of less than 16 bytes to device memory
"""
import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
FUNCTION = re.compile(r"Function : (\S+)")
RESOURCES = re.compile(r"Function (\S+?):\s+REG:(\d+) STACK:(\d+)")
COLUMNS = ["registers", "stack", "all", "LD", "LDS", "LDG", "F2F", "F2FP", "STG", "STG.x", "BRA", "spills"]


def instructions_of(disassembly):
    """Returns for each mangled kernel name in the output of `cuobjdump -sass` a Counter of its instructions."""
    kernels = {}
    counts = None
    for line in disassembly.splitlines():
        if found := FUNCTION.search(line):
            counts = kernels.setdefault(found.group(1), collections.Counter())
        elif counts is not None and (found := INSTRUCTION.match(line)):
            counts[found.group(1)] += 1
    return kernels


def row_of(counts, resources):
    """Returns the row of the table for one kernel. `resources` are its registers and bytes of stack, or None."""
    def count(base, keep=lambda name: True):
        return sum(n for name, n in counts.items() if name.split(".")[0] == base and keep(name))
    registers, stack = resources or ("?", "?")
    return [registers, stack, sum(counts.values()), count("LD"), count("LDS"), count("LDG"), count("F2F"), count("F2FP"),
            count("STG"), count("STG", lambda name: ".128" not in name), count("BRA"), count("LDL") + count("STL")]


def short_name(name):
    """The name of a kernel without namespaces and parameters, and with its template arguments."""
    name = re.sub(r"\([\w: ]+\)(?=\d)", "", name)  # the casts before values of enums
    name = re.sub(r"pushpull::\w+::|pushpull::|\(anonymous namespace\)::|^void ", "", name.replace("depthwise::", ""))
    return re.sub(r">?\(.*", lambda found: ">" if found.group().startswith(">") else "", name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--only", default="", help="a regular expression: kernels whose name it does not match are left out")
    options = parser.parse_args()
    if shutil.which(options.cuobjdump) is None:
        sys.exit(f"sass_table: there is no {options.cuobjdump}; install CUDA's toolkit, or give --cuobjdump=PATH")

    def run(*arguments, stdin=None):
        result = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, check=False,
                                input=stdin)
        if result.returncode != 0:
            sys.exit(f"sass_table: {' '.join(map(str, arguments))}: {(result.stderr or result.stdout).strip()}")
        return result.stdout

    print("| kernel | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for file in options.files:
        kernels = instructions_of(run(options.cuobjdump, "-sass", file))
        resources = {name: (int(registers), int(stack))
                     for name, registers, stack in RESOURCES.findall(run(options.cuobjdump, "-res-usage", file))}
        names = run("c++filt", stdin="\n".join(kernels)).splitlines()
        for (mangled, counts), name in zip(kernels.items(), names):
            name = short_name(name)
            if re.search(options.only, name):
                print(f"| {name} | " + " | ".join(str(cell) for cell in row_of(counts, resources.get(mangled))) + " |")


if __name__ == "__main__":
    main()
