"""Runs the control flow of a GPU kernel's machine code for one warp, to count the instructions that the warp issues.

Only what decides branches is computed: integers, predicates and kernel parameters. Everything else, above all loads
from memory and floating point, is counted and its result is unknown. A branch that depends on something unknown is
taken as if that were 0 or false, and reported. Lanes whose paths part join again where the code of both goes on, since
the lanes with the lowest address always run first.

The meaning of the instructions, which NVIDIA documents by name only, was inferred from the compiler's output for known
source code. tests/scripts/issue_bound_test.py checks it against whole numbers, and counts the turns of known loops.
"""
import functools
import re
import struct

import numpy as np

LANES = 32
LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
GUARD = re.compile(r"@(!?)(U?P[T\d]) (.*)")
# Where the parameters begin in constant bank 0.
PARAMETERS_AT = {80: 0x160, 86: 0x160, 89: 0x160, 90: 0x210}
JUMPS = {"BRA", "EXIT", "BRX", "CALL", "RET", "BREAK"}
COMPARISONS = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
               "GE": np.greater_equal}
REGISTER = re.compile(r"(U?)R(\d+|Z)")
ZEROS = np.zeros(LANES, np.uint32)
NOWHERE = np.zeros(LANES, bool)


class NotUnderstood(Exception):
    """An instruction has a form that this module does not know."""


def signed(values):
    return values.view(np.int32)


def low(values):
    return (values & 0xffffffff).astype(np.uint32)


class Operand:
    """An operand as it is written: a register, a predicate, a number or a place in the constant bank."""

    def __init__(self, text):
        text = text.strip().replace(".reuse", "").replace(".64", "")
        self.inverted = text.startswith(("!", "~"))
        self.negated = text.startswith("-") and not text.startswith("-0x")
        self.name = text.lstrip("!~" + ("-" if self.negated else "")).strip("|")
        self.constant = re.fullmatch(r"c\[0x(\w+)\]\[(?:(R\w+)\+?)?(?:0x(\w+))?\]", self.name)
        self.number = int(self.name, 16) & 0xffffffff if re.fullmatch(r"-?0x[0-9a-f]+", self.name) else None
        self.is_predicate = bool(re.fullmatch(r"U?P[\dT]", self.name))
        self.is_register = bool(REGISTER.fullmatch(self.name))
        # The name of the register or predicate; None for those that are always zero or true, and for all else.
        self.register = None
        if self.constant:
            self.register = self.constant[2] if self.constant[2] != "RZ" else None
        elif re.fullmatch(r"U?R\d+|U?P\d", self.name):
            self.register = self.name
        self.fixed = None  # its bits in each lane if they are always the same
        if self.number is not None:
            self.fixed = np.full(LANES, self.number, np.uint32)
        elif self.is_register and self.register is None:
            self.fixed = np.zeros(LANES, np.uint32)

    @functools.cached_property
    def next(self):
        """The second register of a pair."""
        found = REGISTER.fullmatch(self.name)
        other = Operand(self.name if found is None or found[2] == "Z" else f"{found[1]}R{int(found[2]) + 1}")
        other.inverted, other.negated = self.inverted, self.negated
        return other


class Instruction:
    """One instruction, taken apart. `defines` and `uses` are names of registers and predicates."""

    def __init__(self, address, text):
        self.address = address
        self.text = text
        self.guard = None
        if found := GUARD.match(text):
            self.guard = Operand(found[1] + found[2])
            text = found[3]
        words = text.split(None, 1)
        self.opcode = words[0]
        self.parts = words[0].split(".")
        self.part_set = frozenset(self.parts)
        self.operands = [Operand(word.split()[0]) for word in words[1].split(",") if word.strip()] if len(words) > 1 else []
        self.base = self.parts[0]
        self.kind = self.base[1:] if self.base in UNIFORM else self.base
        self.evaluate = EVALUATORS.get(self.kind)
        self.defines, self.inputs = self.split_operands()
        self.uses = {operand.register for operand in self.inputs} - {None}
        if self.evaluate is None:
            self.uses = set()
        # What the result depends on.
        self.needs = self.uses | ({self.guard.register} - {None} if self.guard is not None else set())

    def has(self, *parts):
        return not self.part_set.isdisjoint(parts)

    def split_operands(self):
        """Returns the names that the instruction writes, and the operands that it reads."""
        if self.kind in JUMPS or self.base[:2] in ("ST", "BA", "BS", "WA", "RE") or not self.operands:
            return [], self.operands
        written = []
        rest = list(self.operands)
        # Predicates may stand before and behind the destination.
        predicates_first = self.kind in ("ISETP", "PLOP3", "FSETP", "DSETP", "HSETP2", "VOTE")
        while rest and rest[0].is_predicate and (predicates_first and len(written) < 2 or self.kind in ("LOP3", "SHFL")):
            written.append(rest.pop(0))
        if not predicates_first and rest:
            written.append(rest.pop(0))
            if self.kind in ("IADD3", "LEA", "IMAD", "LOP3", "VIADD"):
                while rest and rest[0].is_predicate and len(rest) > 1:
                    written.append(rest.pop(0))
        pair = (self.has("WIDE") or self.has("64", "F64", "S64", "U64") and self.kind != "SHF" or
                self.kind in ("CS2R", "DFMA", "DADD", "DMUL"))
        many = 4 if self.has("128") or self.kind in ("HMMA", "LDSM") else 2 if pair else 1
        names = []
        for operand in written:
            for _ in range(1 if operand.is_predicate else many):
                if operand.register is not None and operand.register not in names:
                    names.append(operand.register)
                operand = operand.next
        self.destination = next((operand for operand in written if not operand.is_predicate), None)
        self.predicates = [operand for operand in written if operand.is_predicate]
        reads = list(rest)
        if self.kind == "IMAD" and self.has("WIDE", "HI") or self.kind in ("F2I", "I2F") and self.has("U64", "S64"):
            reads.append(rest[-1].next if not rest[-1].is_predicate else rest[-2].next)
        if self.kind == "P2R":
            reads += [Operand(f"P{i}") for i in range(7)]
        return names, reads


class Kernel:
    """The instructions of a kernel, its basic blocks, and which instructions decide branches."""

    def __init__(self, name, lines, capability):
        if capability not in PARAMETERS_AT:
            raise NotUnderstood(f"the layout of constant bank 0 for compute capability {capability}")
        self.name = name
        self.parameters_at = PARAMETERS_AT[capability]
        self.code = [Instruction(int(found[1], 16), found[2]) for line in lines if (found := LINE.match(line))]
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
                before |= instruction.uses | {operand.register for operand in instruction.operands} - {None}
                if instruction.guard is not None:
                    before |= {instruction.guard.register} - {None}
            elif after & set(instruction.defines):
                self.deciding[i] = True
                if instruction.guard is None:
                    before -= set(instruction.defines)
                else:
                    before |= {instruction.guard.register} - {None}
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

    def perform(self, instruction):
        where = self.where(instruction)
        results = instruction.evaluate(self, instruction) if instruction.evaluate is not None else None
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
                    self.perform(code[i])
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


def evaluate_imad(warp, i):
    if i.has("MOV"):
        return {i.destination.register: warp.integer(i.inputs[2])}
    a, b, c = i.inputs[:3]
    extra = i.inputs[3:4]
    if i.has("WIDE", "HI"):
        wide = np.uint64 if i.has("U32") else np.int64
        view = (lambda v: v.astype(np.uint64)) if wide is np.uint64 else (lambda v: signed(v).astype(np.int64))
        product = (view(warp.integer(a)) * view(warp.integer(b))).astype(np.uint64)
        addend = warp.pair(c)
        total = product + addend
        results = {}
        for predicate in i.predicates:
            if predicate.register:
                results[predicate.register] = total < addend
        if i.destination.register is None:
            return results
        if i.has("HI"):
            results[i.destination.register] = low(total >> np.uint64(32))
        else:
            results[i.destination.register] = low(total)
            results[i.destination.next.register] = low(total >> np.uint64(32))
        return results
    total = warp.integer(a) * warp.integer(b) + warp.integer(c)
    if i.has("X"):
        total = total + warp.predicate(extra[0])
    return {i.destination.register: total.astype(np.uint32)} if i.destination.register else {}


def sum_with_carry(warp, i, terms, carries):
    """The sum of three 32-bit terms, of which a negated one counts as its inversion plus 1, and the carry out of it."""
    total = np.zeros(LANES, np.uint64)
    for operand in terms:
        values = warp.bits(operand)
        if operand.negated or operand.inverted:
            values = ~values
        total = total + values.astype(np.uint64) + np.uint64(1 if operand.negated and not i.has("X") else 0)
    for operand in carries:
        total = total + warp.predicate(operand).astype(np.uint64)
    return total


def finish_sum(i, total):
    results = {predicate.register: total >> np.uint64(32) != 0 for predicate in i.predicates[:1] if predicate.register}
    if i.destination.register:
        results[i.destination.register] = low(total)
    return results


def evaluate_iadd3(warp, i):
    return finish_sum(i, sum_with_carry(warp, i, i.inputs[:3], i.inputs[3:]))


def evaluate_viadd(warp, i):
    return {i.destination.register: low(warp.integer(i.inputs[0]).astype(np.uint64) + warp.integer(i.inputs[1]))}


def evaluate_lea(warp, i):
    values = list(i.inputs)
    a, b = warp.integer(values[0]).astype(np.uint64), warp.integer(values[1]).astype(np.uint64)
    carry = np.zeros(LANES, np.uint64)
    if i.has("X"):
        carry = warp.predicate(values[-1]).astype(np.uint64)
        values = values[:-1]
    shift = np.uint64(values[-1].number)
    if i.has("SX32"):
        a = signed(warp.integer(values[0])).astype(np.int64).astype(np.uint64)
    elif i.has("HI"):
        a = a | warp.integer(values[2]).astype(np.uint64) << np.uint64(32)
    if i.has("HI"):
        return finish_sum(i, low((a << shift) >> np.uint64(32)).astype(np.uint64) + b + carry)
    return finish_sum(i, low(a << shift).astype(np.uint64) + b + carry)


def evaluate_shf(warp, i):
    below, above = warp.integer(i.inputs[0]), warp.integer(i.inputs[2])
    shift = warp.integer(i.inputs[1])
    shift = (shift & (63 if i.has("U64", "S64") else 31) if i.has("W") else np.minimum(shift, 63)).astype(np.uint64)
    both = below.astype(np.uint64) | above.astype(np.uint64) << np.uint64(32)
    if i.has("L"):
        if i.has("HI"):
            return {i.destination.register: low((both << shift) >> np.uint64(32))}
        return {i.destination.register: low(np.where(shift > 31, np.uint64(0), below.astype(np.uint64) << shift))}
    if i.has("HI"):
        if i.has("S32"):
            return {i.destination.register: low(signed(above).astype(np.int64) >> shift.astype(np.int64))}
        return {i.destination.register: low(above.astype(np.uint64) >> shift)}
    if i.has("S64"):
        return {i.destination.register: low(both.astype(np.int64) >> shift.astype(np.int64))}
    return {i.destination.register: low(both >> shift)}


def evaluate_lop3(warp, i):
    a, b, c = (warp.integer(operand) for operand in i.inputs[:3])
    table = i.inputs[3].number
    result = np.zeros(LANES, np.uint32)
    for k in range(8):
        if table >> k & 1:
            result |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    results = {predicate.register: result != 0 for predicate in i.predicates if predicate.register}
    if i.destination.register:
        results[i.destination.register] = result
    return results


def evaluate_plop3(warp, i):
    a, b, c = (warp.predicate(operand) for operand in i.inputs[:3])
    results = {}
    for predicate, table in zip(i.predicates, i.inputs[3:]):
        result = np.zeros(LANES, bool)
        for k in range(8):
            if table.number >> k & 1:
                result |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
        if predicate.register:
            results[predicate.register] = result
    return results


def evaluate_isetp(warp, i):
    a, b = warp.integer(i.inputs[0]), warp.integer(i.inputs[1])
    if not i.has("U32"):
        a, b = signed(a), signed(b)
    name = i.parts[1]
    result = COMPARISONS[name](a, b)
    if i.has("EX"):  # of the upper halves; the last operand is the comparison of the lower ones
        below = warp.predicate(i.inputs[3])
        equal = a == b
        result = np.where(equal, below, {"EQ": np.zeros(LANES, bool), "NE": np.ones(LANES, bool)}.get(name, result))
    other = warp.predicate(i.inputs[2])

    def combine(values):
        return values & other if i.has("AND") else values | other if i.has("OR") else values ^ other
    return {predicate.register: combine(values) for predicate, values in zip(i.predicates, (result, ~result))
            if predicate.register}


def evaluate_move(warp, i):
    return {i.destination.register: warp.integer(i.inputs[0])} if i.destination.register else {}


def evaluate_sel(warp, i):
    return {i.destination.register: np.where(warp.predicate(i.inputs[2]), warp.integer(i.inputs[0]),
                                             warp.integer(i.inputs[1]))}


def extreme(warp, i, a, b, choice):
    smaller = warp.predicate(choice)
    if not i.has("U32"):
        a, b = signed(a), signed(b)
    return {i.destination.register: np.where(smaller, np.minimum(a, b), np.maximum(a, b)).view(np.uint32)}


def evaluate_vimnmx(warp, i):
    return extreme(warp, i, warp.integer(i.inputs[0]), warp.integer(i.inputs[1]), i.inputs[2])


def evaluate_viaddmnmx(warp, i):
    return extreme(warp, i, warp.integer(i.inputs[0]) + warp.integer(i.inputs[1]), warp.integer(i.inputs[2]), i.inputs[3])


def evaluate_iabs(warp, i):
    return {i.destination.register: np.abs(signed(warp.integer(i.inputs[0]))).view(np.uint32)}


def evaluate_prmt(warp, i):
    both = warp.integer(i.inputs[0]).astype(np.uint64) | warp.integer(i.inputs[2]).astype(np.uint64) << np.uint64(32)
    selector = warp.integer(i.inputs[1])
    result = np.zeros(LANES, np.uint64)
    for k in range(4):
        nibble = (selector >> np.uint32(4 * k)).astype(np.uint64)
        byte = both >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        byte = np.where(nibble & np.uint64(8) != 0, np.where(byte > 127, np.uint64(255), np.uint64(0)), byte)
        result |= byte << np.uint64(8 * k)
    return {i.destination.register: low(result)}


def evaluate_p2r(warp, i):
    bits = np.zeros(LANES, np.uint32)
    for k in range(7):
        bits |= warp.predicate(Operand(f"P{k}")).astype(np.uint32) << np.uint32(k)
    mask = warp.integer(i.inputs[2])
    return {i.destination.register: warp.integer(i.inputs[1]) & ~mask | bits & mask}


def evaluate_special(warp, i):
    name = i.inputs[0].name
    if name not in warp.special:
        return None
    return {i.destination.register: warp.special[name]}


def evaluate_constant(warp, i):
    source = i.inputs[0]
    if i.has("64"):
        after = Operand(source.name)
        first = warp.constant(source, "<I")
        at = int(source.constant[3] or "0", 16) + 4
        after = Operand(f"c[0x{source.constant[1]}][" + (f"{source.constant[2]}+" if source.constant[2] else "") + f"0x{at:x}]")
        return {i.destination.register: first, i.destination.next.register: warp.constant(after, "<I")}
    form = "<B" if i.has("U8") else "<H" if i.has("U16") else "<I"
    if i.has("S8", "S16"):
        return None
    return {i.destination.register: warp.constant(source, form)}


def rounded_up(values):
    """To float32, upwards."""
    result = values.astype(np.float32)
    return np.where(result.astype(np.float64) < values.astype(np.float64), np.nextafter(result, np.float32(np.inf)), result)


def evaluate_i2f(warp, i):
    if not i.has("RP"):
        return None
    if i.has("U64"):
        values = warp.pair(i.inputs[0])
    else:
        values = warp.integer(i.inputs[0])
        values = values if i.has("U32") else signed(values)
    return {i.destination.register: rounded_up(values).astype(np.float32).view(np.uint32)}


def evaluate_mufu(warp, i):
    if not i.has("RCP"):
        return None
    with np.errstate(all="ignore"):
        return {i.destination.register: (np.float32(1) / warp.integer(i.inputs[0]).view(np.float32)).view(np.uint32)}


def evaluate_f2i(warp, i):
    if not i.has("TRUNC") or i.has("F64"):
        return None
    values = np.nan_to_num(warp.integer(i.inputs[0]).view(np.float32).astype(np.float64))
    if i.has("U64"):
        whole = np.where((values >= 0) & (values < 2.0 ** 64), values, 0).astype(np.uint64)
        return {i.destination.register: low(whole), i.destination.next.register: low(whole >> np.uint64(32))}
    if i.has("U32"):
        return {i.destination.register: np.clip(values, 0, 2.0 ** 32 - 1).astype(np.uint64).astype(np.uint32)}
    return None


UNIFORM = {"UIADD3", "UIMAD", "ULEA", "USHF", "ULOP3", "USEL", "UISETP", "UPLOP3", "UPRMT", "UMOV", "ULDC"}
EVALUATORS = {
    "IMAD": evaluate_imad, "IADD3": evaluate_iadd3, "VIADD": evaluate_viadd, "LEA": evaluate_lea, "SHF": evaluate_shf,
    "LOP3": evaluate_lop3, "PLOP3": evaluate_plop3, "ISETP": evaluate_isetp, "MOV": evaluate_move, "R2UR": evaluate_move,
    "SEL": evaluate_sel, "VIMNMX": evaluate_vimnmx, "VIADDMNMX": evaluate_viaddmnmx, "IABS": evaluate_iabs,
    "PRMT": evaluate_prmt, "P2R": evaluate_p2r, "S2R": evaluate_special, "S2UR": evaluate_special,
    "LDC": evaluate_constant, "I2F": evaluate_i2f, "MUFU": evaluate_mufu, "F2I": evaluate_f2i,
    "CS2R": lambda warp, i: {name: np.zeros(LANES, np.uint32) for name in i.defines},
}
