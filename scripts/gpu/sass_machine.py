"""Runs the control flow of a GPU kernel's machine code for one warp, to count the instructions that the warp issues.

Only what decides branches is computed: integers, predicates and kernel parameters, by sass_arithmetic.py. Everything
else, above all loads from memory and floating point, is counted and its result is unknown. A branch that depends on
something unknown is taken as if that were 0 or false, and reported. Lanes whose paths part join again where the code of
both goes on, since the lanes with the lowest address always run first.
"""
import re
import struct

import numpy as np

from sass_arithmetic import EVALUATORS
from sass_code import JUMPS, LANES, Instruction

LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
# Where the parameters begin in constant bank 0.
PARAMETERS_AT = {80: 0x160, 86: 0x160, 89: 0x160, 90: 0x210}
ZEROS = np.zeros(LANES, np.uint32)
NOWHERE = np.zeros(LANES, bool)


class NotUnderstood(Exception):
    """An instruction has a form that this module does not know."""


class Kernel:
    """The instructions of a kernel, its basic blocks, and which instructions decide branches."""

    def __init__(self, name, lines, capability):
        if capability not in PARAMETERS_AT:
            raise NotUnderstood(f"the layout of constant bank 0 for compute capability {capability}")
        self.name = name
        self.parameters_at = PARAMETERS_AT[capability]
        self.code = [Instruction(int(found[1], 16), found[2]) for line in lines if (found := LINE.match(line))]
        # What computes the result of each instruction; None: it is not computed.
        self.evaluators = [EVALUATORS.get(instruction.kind) for instruction in self.code]
        self.index = {instruction.address: i for i, instruction in enumerate(self.code)}
        self.returns = [i + 1 for i, instruction in enumerate(self.code) if instruction.kind == "CALL"]
        self.find_blocks()
        self.find_deciding()

    def target(self, instruction):
        """Returns the index of a jump's target, or None if it is not written in the code."""
        if instruction.kind in ("EXIT", "BREAK", "RET", "BRX"):
            return None
        return self.index.get(instruction.operands[-1].number)

    def find_blocks(self):
        starts = {0}
        for i, instruction in enumerate(self.code):
            if instruction.kind in JUMPS:
                starts.add(i + 1)
                if (target := self.target(instruction)) is not None:
                    starts.add(target)
            elif instruction.kind in ("BSYNC", "WARPSYNC"):
                starts.add(i)
        starts = sorted(start for start in starts if start < len(self.code))
        self.block_end = dict(zip(starts, starts[1:] + [len(self.code)]))

    def successors(self, i):
        instruction = self.code[i]
        falls = [i + 1] if i + 1 < len(self.code) else []
        if instruction.kind not in JUMPS or instruction.kind == "BREAK" or "DIV" in instruction.parts:
            return falls
        conditional = instruction.guard is not None or instruction.kind == "BRA" and len(instruction.operands) > 1
        if instruction.kind == "EXIT":
            return falls if conditional else []
        if instruction.kind == "RET":
            return self.returns
        if instruction.kind == "BRX":
            return list(self.block_end)
        return [self.target(instruction)] + (falls if conditional else [])

    def find_deciding(self):
        """Marks the instructions on whose results a jump depends, by going backwards until nothing changes."""
        wanted = [set() for _ in self.code]  # before each instruction
        predecessors = [[] for _ in self.code]
        for i in range(len(self.code)):
            for successor in self.successors(i):
                predecessors[successor].append(i)
        pending = list(range(len(self.code)))
        self.deciding = [False] * len(self.code)
        while pending:
            i = pending.pop()
            instruction = self.code[i]
            after = set().union(*(wanted[s] for s in self.successors(i)))
            before = set(after)
            if instruction.kind in JUMPS and "DIV" not in instruction.parts:
                before |= instruction.uses
                if instruction.guard is not None:
                    before |= {instruction.guard.register} - {None}
            elif after & set(instruction.defines):
                self.deciding[i] = True
                if instruction.guard is None:
                    before -= set(instruction.defines)
                else:
                    before |= {instruction.guard.register} - {None}
                if self.evaluators[i] is not None:
                    before |= instruction.uses
            if before != wanted[i]:
                wanted[i] = before
                pending += predecessors[i]


class Warp:
    """The registers of one warp that runs a kernel."""

    def __init__(self, kernel, bank, special, lanes):
        self.kernel = kernel
        self.bank = bank  # the bytes of constant bank 0
        self.special = special  # the values of SR_TID.X and its like
        self.values = {}
        self.unknown = set()  # names whose values are not known
        self.mask = None  # the lanes that run now; None: all
        self.lanes = lanes
        self.counts = {}  # by the first instruction of a block
        self.guesses = {}  # jumps that depend on something unknown: how often by address

    def predicate(self, operand):
        if operand.name in ("PT", "UPT"):
            values = np.ones(LANES, bool)
        else:
            values = self.values.get(operand.name, NOWHERE)
        return ~values if operand.inverted else values

    def bits(self, operand):
        """The operand's 32 bits in each lane, without its sign and inversion."""
        if operand.fixed is not None:
            return operand.fixed
        if operand.is_register:
            values = self.values.get(operand.register)
            return ZEROS if values is None else values
        if operand.constant:
            return self.constant(operand, "<I")
        raise NotUnderstood(f"operand {operand.name}")

    def constant(self, operand, form):
        if operand.constant[1] != "0":
            raise NotUnderstood(f"constant bank {operand.constant[1]}")
        begin = int(operand.constant[3] or "0", 16)
        if operand.register is None:
            return np.full(LANES, self.at(begin, form), np.uint32)
        offsets = begin + self.values.get(operand.register, ZEROS).astype(np.int64)
        return np.array([self.at(offset, form) for offset in offsets.tolist()], np.uint32)

    def at(self, offset, form):
        """The number at an offset of the constant bank, or 0 behind its end."""
        return struct.unpack_from(form, self.bank, offset)[0] if offset + struct.calcsize(form) <= len(self.bank) else 0

    def integer(self, operand):
        """The operand's value in each lane, with its sign or inversion."""
        values = self.bits(operand)
        if operand.negated:
            return -values
        return ~values if operand.inverted else values

    def pair(self, operand):
        return self.integer(operand).astype(np.uint64) | self.integer(operand.next).astype(np.uint64) << np.uint64(32)

    def where(self, instruction):
        """The lanes in which an instruction has an effect; None: all."""
        if instruction.guard is None:
            return self.mask
        guard = self.predicate(instruction.guard)
        return guard if self.mask is None else guard & self.mask

    def perform(self, i):
        """Computes the result of the kernel's instruction number i."""
        instruction, evaluate = self.kernel.code[i], self.kernel.evaluators[i]
        where = self.where(instruction)
        results = evaluate(self, instruction) if evaluate is not None else None
        unknown = self.unknown
        if results is None:
            unknown.update(instruction.defines)
            results = {name: NOWHERE if "P" in name else ZEROS for name in instruction.defines}
        elif unknown and not unknown.isdisjoint(instruction.needs):
            unknown.update(results)
        elif unknown and where is None:
            unknown.difference_update(results)
        for name, values in results.items():
            if where is not None:
                old = self.values.get(name)
                if old is not None:
                    values = np.where(where, values, old)
            self.values[name] = values

    def run(self, limit=20_000_000):
        """Runs to the end, and returns how often each basic block ran by its first instruction."""
        kernel, code = self.kernel, self.kernel.code
        groups = {0: self.lanes}
        issued = 0
        while groups:
            start = min(groups)
            lanes = groups.pop(start)
            # A block that lies before another group's place runs first, so that the groups join.
            self.mask = None if lanes.all() else lanes
            end = kernel.block_end[start]
            self.counts[start] = self.counts.get(start, 0) + 1
            issued += end - start
            if issued > limit:
                raise NotUnderstood(f"a loop does not end near address 0x{code[start].address:x}")
            for i in range(start, end):
                if kernel.deciding[i]:
                    self.perform(i)
            last = code[end - 1]
            self.advance(groups, lanes, last, end)
        return self.counts

    def advance(self, groups, lanes, last, following):
        def go(where, to):
            if where.any():
                groups[to] = groups[to] | where if to in groups else where

        if last.kind not in JUMPS or last.kind == "BREAK" or "DIV" in last.parts:
            go(lanes, following)
            return
        taken = lanes
        decides = [last.guard] if last.guard is not None else []
        if last.kind == "BRA":
            decides += [operand for operand in last.operands if operand.is_predicate]
        for operand in decides:
            taken = taken & self.predicate(operand)
        if self.unknown and not self.unknown.isdisjoint([operand.register for operand in decides + last.operands]):
            self.guesses[last.address] = self.guesses.get(last.address, 0) + 1
        go(lanes & ~taken, following)
        if last.kind == "EXIT":
            return
        if last.kind == "RET":
            addresses = self.bits(last.operands[0])
            for address in set(addresses[taken].tolist()):
                go(taken & (addresses == address), self.kernel.index[address])
            return
        if last.kind == "BRX":
            raise NotUnderstood(f"jump through a table: {last.text}")
        go(taken, self.kernel.target(last))
