"""The fields of a record that both ways of writing one have in common: varints and headers."""

from collections.abc import Sequence
from typing import Final

#: Names and values of the headers of a record, in order; a name may occur more than once.
Headers = Sequence[tuple[str, bytes | None]]


def long_varint(value: int) -> bytes:
    """Encode any 64-bit number as a zigzag varint."""
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


#: The number of varints in :data:`VARINTS`.
SMALL: Final = 8192
_BYTES: Final = [bytes((value,)) for value in range(256)]
#: The varints of one and two bytes for numbers from 0 on, which are nearly all that records need.
VARINTS: Final = (
    *_BYTES[0:0x80:2],
    *[low + high for high in _BYTES[1:0x80] for low in _BYTES[0x80::2]],  # calling long_varint for each takes 3 ms
)


def varint(value: int) -> bytes:
    """Encode a number as a zigzag varint."""
    return VARINTS[value] if 0 <= value < SMALL else long_varint(value)


def encode_headers(headers: Headers) -> bytes:
    """Encode the headers of a record, with their number."""
    parts = [varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (b"\x01",) if content is None else (varint(len(content)), content)
    return b"".join(parts)
