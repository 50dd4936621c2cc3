"""Computes the results of instructions on integers, predicates and kernel parameters, for sass_machine.py.

Each function takes the warp and the instruction, and returns the new values by register or predicate: 32 bits or a
truth value per lane. It returns None if it does not know them. EVALUATORS has the function of each kind of instruction.

The meaning of the instructions, which NVIDIA documents by name only, was inferred from the compiler's output for known
source code. tests/scripts/issue_bound_test.py checks it against whole numbers, and counts the turns of known loops.
"""
import numpy as np

from sass_code import LANES, Operand

COMPARISONS = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
               "GE": np.greater_equal}


def signed(values):
    return values.view(np.int32)


def low(values):
    return (values & 0xffffffff).astype(np.uint32)


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


EVALUATORS = {
    "IMAD": evaluate_imad, "IADD3": evaluate_iadd3, "VIADD": evaluate_viadd, "LEA": evaluate_lea, "SHF": evaluate_shf,
    "LOP3": evaluate_lop3, "PLOP3": evaluate_plop3, "ISETP": evaluate_isetp, "MOV": evaluate_move, "R2UR": evaluate_move,
    "SEL": evaluate_sel, "VIMNMX": evaluate_vimnmx, "VIADDMNMX": evaluate_viaddmnmx, "IABS": evaluate_iabs,
    "PRMT": evaluate_prmt, "P2R": evaluate_p2r, "S2R": evaluate_special, "S2UR": evaluate_special,
    "LDC": evaluate_constant, "I2F": evaluate_i2f, "MUFU": evaluate_mufu, "F2I": evaluate_f2i,
    "CS2R": lambda warp, i: {name: np.zeros(LANES, np.uint32) for name in i.defines},
}
