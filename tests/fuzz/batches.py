"""Batches with odd and damaged records, most of them with a valid CRC."""

import random
import struct
from typing import Final

from crc32c import crc32c

from barnabas_protocol.records import build_batch
from barnabas_protocol.records.batches import HEADER_SIZE
from barnabas_protocol.records.compression import Codec, compress
from tests.protocol.records.raw import UNREADABLE, raw_batch, raw_record
from tests.protocol.support import damaged

#: Fields of a batch's header that its CRC covers: position and layout.
_FIELDS: Final = (
    (21, ">h"),  # attributes
    (23, ">i"),  # last offset delta
    (27, ">q"),  # base timestamp
    (35, ">q"),  # largest timestamp
    (43, ">q"),  # producer id
    (51, ">h"),  # producer epoch
    (53, ">i"),  # base sequence
    (57, ">i"),  # number of records
)
_ODD: Final = {">h": (-1, 0, 1, 2**15 - 1), ">i": (-1, 0, 1, 2**31 - 1), ">q": (-1, 0, 1, 2**63 - 1, -(2**63))}
#: Bytes inside the largest batch.
_LARGE: Final = 1_000_000


def some_batch(chance: random.Random) -> bytes:
    """A batch, sound or not."""
    codec = chance.choice(list(Codec))
    match chance.randrange(8):
        case 0:
            data, count = chance.choice(list(UNREADABLE.values()))
        case 1:
            data, count = bytes(chance.choice((10_000, _LARGE))), chance.choice((1, 1000, 2**31 - 1))
        case 2:
            count = chance.choice((1, 100, 2_000))
            data = b"".join(raw_record(n, value=bytes(chance.randrange(4))) for n in range(count))
        case _:
            count = chance.randrange(1, 6)
            keys = (None, b"", b"k", b"key" * 20)
            data = bytes(
                build_batch(
                    [
                        (chance.choice(keys), chance.randbytes(chance.randrange(40)), (), chance.randrange(5_000))
                        for _ in range(count)
                    ]
                )[HEADER_SIZE:]
            )
            if chance.random() < 0.3:
                data = damaged(chance, data)
    content = bytes(compress(codec, data))
    if chance.random() < 0.2:
        content = damaged(chance, content)
    made = bytearray(raw_batch(content, count, codec=codec))
    if chance.random() < 0.3:
        at, layout = chance.choice(_FIELDS)
        struct.pack_into(layout, made, at, chance.choice(_ODD[layout]))
        struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    return damaged(chance, bytes(made)) if chance.random() < 0.1 else bytes(made)
