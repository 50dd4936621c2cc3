"""CRC32C, written from its definition, since Python's standard library does not have it."""


def _remainder(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
    return byte


_REMAINDERS = [_remainder(byte) for byte in range(256)]


def crc32c(data):
    """Returns the CRC32C. Slow, but fast enough for a few kilobytes."""
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ _REMAINDERS[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff
