"""Parses protobuf messages without their schema, for tests that must not share code with the programs."""


def fields(message):
    """Returns field number -> list of values. Varints are ints; all other values bytes."""
    result, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 0x7f) << shift
            shift += 7
            at += 1
            if message[at - 1] < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            assert kind in (1, 2, 5), kind
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = message[at:at + size]
            assert len(value) == size
            at += size
        result.setdefault(key >> 3, []).append(value)
    return result
