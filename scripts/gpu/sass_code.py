"""Takes the instructions of a GPU's machine code apart, as a disassembler writes them."""
import functools
import re

import numpy as np

LANES = 32
GUARD = re.compile(r"@(!?)(U?P[T\d]) (.*)")
JUMPS = {"BRA", "EXIT", "BRX", "CALL", "RET", "BREAK"}
REGISTER = re.compile(r"(U?)R(\d+|Z)")
# Instructions on registers that all lanes of a warp share. Apart from that they mean the same without the first letter.
UNIFORM = {"UIADD3", "UIMAD", "ULEA", "USHF", "ULOP3", "USEL", "UISETP", "UPLOP3", "UPRMT", "UMOV", "ULDC"}


class Operand:
    """An operand as it is written: a register, a predicate, a number or a place in the constant bank."""

    def __init__(self, text):
        text = text.strip().replace(".reuse", "").replace(".64", "")
        self.inverted = text.startswith(("!", "~"))
        self.negated = text.startswith("-") and not text.startswith("-0x")
        self.name = text.lstrip("!~" + ("-" if self.negated else "")).strip("|")
        self.constant = re.fullmatch(r"c\[0x(\w+)\]\[(?:(U?R\w+)\+?)?(?:0x(\w+))?\]", self.name)
        self.number = int(self.name, 16) & 0xffffffff if re.fullmatch(r"-?0x[0-9a-f]+", self.name) else None
        self.is_predicate = bool(re.fullmatch(r"U?P[\dT]", self.name))
        self.is_register = bool(REGISTER.fullmatch(self.name))
        # The name of the register or predicate; None for those that are always zero or true, and for all else.
        self.register = None
        if self.constant:
            self.register = self.constant[2] if self.constant[2] not in ("RZ", "URZ") else None
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
        self.defines, self.inputs = self.split_operands()
        self.uses = {operand.register for operand in self.inputs} - {None}
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
