#!/usr/bin/env python3
"""Counts what the compiler made of GPU kernels: a table of registers, spills and instructions, from the machine code.

usage: python3 sass_table.py [--cuobjdump=PATH] [--only=PATTERN | --budget=FILE] FILE...

Each FILE is a program, a library or a .cubin with GPU code, such as build/kernels/libpushpull_gpu.a. cuobjdump and
nvdisasm are part of CUDA's toolkit; `pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm` has them too. The columns
are counts of instructions as they stand in the code, not of how often they run:

  LD    generic loads, which find out at each use whether an address is in shared or in device memory
  F2F   conversions of single numbers, which a multiprocessor issues at a quarter of the rate of F2FP, those of pairs
  STG.x stores of less than 16 bytes to device memory
  loop  the most instructions from one barrier of the main loop to the next. The main loop is the innermost loop that has
        barriers, and of several the longest. Loops within it count once. 0: no loop has barriers

With --budget the table is compared with a file of limits, such as sass_budget.txt beside this script, and the script
fails if a kernel exceeds one. A line such as `"Add.*<.*>" LD=0 registers=128` has a regular expression, which must match
the whole name of a kernel as the table has it, and the largest number allowed in each column that it names. Of the lines
that match a kernel, the last one that names a column decides. A line that matches no kernel is an error.
"""
import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
TARGET = re.compile(r"0x([0-9a-f]+)\s*$")
FUNCTION = re.compile(r"Function : (\S+)")
RULE = re.compile(r'"([^"]+)"((?:\s+[\w.]+=\d+)+)\s*')
RESOURCES = re.compile(r"Function (\S+?):\s+REG:(\d+) STACK:(\d+)")
COLUMNS = ["registers", "stack", "all", "LD", "LDS", "LDG", "F2F", "F2FP", "STG", "STG.x", "BRA", "spills", "loop"]


def instructions_of(disassembly):
    """Returns for each mangled kernel name in the output of `cuobjdump -sass` its instructions: tuples of address, opcode
    and target, which is None unless the instruction is a jump."""
    kernels = {}
    code = None
    for line in disassembly.splitlines():
        if found := FUNCTION.search(line):
            code = kernels.setdefault(found.group(1), [])
        elif code is not None and (found := INSTRUCTION.match(line)):
            target = TARGET.search(found.group(3)) if found.group(2).split(".")[0] == "BRA" else None
            code.append((int(found.group(1), 16), found.group(2), int(target.group(1), 16) if target else None))
    return kernels


def between_barriers(code):
    """Returns the column "loop" of a kernel. A loop is what lies between a jump backwards and its target."""
    barriers = [address for address, opcode, _ in code if opcode.startswith("BAR.")]
    loops = {(target, address) for address, _, target in code if target is not None and target <= address}
    loops = [(begin, end) for begin, end in loops if any(begin <= barrier <= end for barrier in barriers)]
    innermost = [(begin, end) for begin, end in loops
                 if not any(begin <= b and e <= end for b, e in loops if (b, e) != (begin, end))]
    if not innermost:
        return 0
    begin, end = max(innermost, key=lambda loop: loop[1] - loop[0])
    places = [place for place, (_, opcode, _) in enumerate(entry for entry in code if begin <= entry[0] <= end)
              if opcode.startswith("BAR.")]
    length = sum(begin <= address <= end for address, _, _ in code)
    # From the last barrier the way leads to the loop's end and on from its beginning.
    return max(after - before for before, after in zip(places, places[1:] + [places[0] + length]))


def row_of(code, resources):
    """Returns the row of the table for one kernel. `resources` are its registers and bytes of stack, or None."""
    counts = collections.Counter(opcode for _, opcode, _ in code)

    def count(base, keep=lambda name: True):
        return sum(n for name, n in counts.items() if name.split(".")[0] == base and keep(name))
    registers, stack = resources or ("?", "?")
    return [registers, stack, sum(counts.values()), count("LD"), count("LDS"), count("LDG"), count("F2F"), count("F2FP"),
            count("STG"), count("STG", lambda name: ".128" not in name), count("BRA"), count("LDL") + count("STL"),
            between_barriers(code)]


def short_name(name):
    """The name of a kernel without namespaces and parameters, and with its template arguments."""
    name = re.sub(r"\([\w: ]+\)(?=\d)", "", name)  # the casts before values of enums
    name = re.sub(r"pushpull::\w+::|pushpull::|\(anonymous namespace\)::|^void ", "", name.replace("depthwise::", ""))
    return re.sub(r">?\(.*", lambda found: ">" if found.group().startswith(">") else "", name)


def read_budget(file):
    """Returns the rules of a budget file: tuples of line number, compiled expression and {column: limit}."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"sass_table: cannot read the budget {file}: {error}")
    rules = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = RULE.fullmatch(line)
        if not found:
            sys.exit(f'sass_table: {file}:{number}: expected "REGULAR EXPRESSION" COLUMN=NUMBER ..., not: {line}')
        limits = dict(limit.split("=") for limit in found.group(2).split())
        if unknown := set(limits) - set(COLUMNS):
            sys.exit(f"sass_table: {file}:{number}: there is no column {sorted(unknown)[0]}; there are {', '.join(COLUMNS)}")
        try:
            expression = re.compile(found.group(1))
        except re.error as error:
            sys.exit(f"sass_table: {file}:{number}: {found.group(1)} is no regular expression: {error}")
        rules.append((number, expression, {column: int(limit) for column, limit in limits.items()}))
    return rules


def excesses_of(rows, file):
    """Returns a sentence for each cell of `rows`, pairs of a kernel's name and its row, that exceeds the budget in `file`."""
    rules = read_budget(file)
    excesses = []
    for number, expression, _ in rules:
        if not any(expression.fullmatch(name) for name, _ in rows):
            excesses.append(f"{file}:{number}: no kernel is named {expression.pattern}; remove the line")
    for name, row in rows:
        limits = {}
        for number, expression, columns in rules:
            if expression.fullmatch(name):
                limits.update({column: (limit, number) for column, limit in columns.items()})
        for column, (limit, number) in limits.items():
            cell = row[COLUMNS.index(column)]
            if cell == "?" or cell > limit:
                excesses.append(f"{name}: {column} is {cell}, and {file}:{number} allows {limit}")
    return excesses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--only", default="", help="a regular expression: kernels whose name it does not match are left out")
    parser.add_argument("--budget", type=pathlib.Path, help="a file of limits; print what exceeds them, not the table")
    options = parser.parse_args()
    if options.budget and options.only:
        sys.exit("sass_table: --budget is about all kernels; leave out --only")
    if shutil.which(options.cuobjdump) is None:
        sys.exit(f"sass_table: there is no {options.cuobjdump}; install CUDA's toolkit, or give --cuobjdump=PATH")

    def run(*arguments, stdin=None):
        result = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, check=False,
                                input=stdin)
        if result.returncode != 0:
            sys.exit(f"sass_table: {' '.join(map(str, arguments))}: {(result.stderr or result.stdout).strip()}")
        return result.stdout

    rows = []
    for file in options.files:
        kernels = instructions_of(run(options.cuobjdump, "-sass", file))
        resources = {name: (int(registers), int(stack))
                     for name, registers, stack in RESOURCES.findall(run(options.cuobjdump, "-res-usage", file))}
        names = run("c++filt", stdin="\n".join(kernels)).splitlines()
        for (mangled, code), name in zip(kernels.items(), names):
            name = short_name(name)
            if re.search(options.only, name):
                rows.append((name, row_of(code, resources.get(mangled))))
    if options.budget:
        if not rows:
            sys.exit(f"sass_table: no GPU code in {', '.join(map(str, options.files))}")
        if excesses := excesses_of(rows, options.budget):
            sys.exit("\n".join(excesses))
        print(f"{len(rows)} kernels keep to {options.budget}")
        return
    print("| kernel | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for name, row in rows:
        print(f"| {name} | " + " | ".join(str(cell) for cell in row) + " |")


if __name__ == "__main__":
    main()
