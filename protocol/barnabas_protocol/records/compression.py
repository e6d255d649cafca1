"""The five codecs of a record batch: none, gzip, snappy, lz4 and zstd.

Decompression neither returns nor reserves more than the caller allows: a batch of a few kilobytes may announce
gigabytes. If a format announces the size of its content, that is the first guess, limited by the largest ratio that the
format can reach; otherwise the buffer grows while it is too small.

Sources: Kafka's ``CompressionType``, KIP-110 (zstd), KIP-390 (levels); the xerial framing of snappy-java.
"""

import struct
from enum import IntEnum
from typing import Any, Final

import cramjam

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.wire import Buffer

_INT32: Final = struct.Struct(">i")
_LITTLE_UINT32: Final = struct.Struct("<I")
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
#: Magic, version 1, readable from version 1 on.
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
#: The block size of snappy-java, and so of Kafka's producer.
_XERIAL_BLOCK: Final = 32 * 1024
_LEAST_ROOM: Final = 64 * 1024


class RecordsTooLarge(DecodeError):
    """The records of a batch are larger than the reader allows when they are decompressed."""


class Codec(IntEnum):
    """A compression codec: the lowest three bits of a batch's attributes. Its name in lower case is Kafka's."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: str) -> "Codec":
        """The codec with this name in Kafka's configuration.

        Raises:
            ValueError: no codec has this name.
        """
        codec = _BY_NAME.get(name)
        if codec is None:
            raise ValueError(f"compression {name!r}: one of {', '.join(_BY_NAME)}")
        return codec


_BY_NAME: Final = {codec.name.lower(): codec for codec in Codec}

#: Lowest, highest and default level (KIP-390; lz4's default is that of its fast mode).
LEVELS: Final = {Codec.GZIP: (1, 9, 6), Codec.LZ4: (1, 17, 1), Codec.ZSTD: (-131072, 22, 3)}

#: The largest ratio of content to its compressed form: deflate 1032:1, lz4 255:1, a zstd block of 4 bytes has 128 KiB.
_LARGEST_RATIO: Final = {Codec.GZIP: 1040, Codec.SNAPPY: 64, Codec.LZ4: 256, Codec.ZSTD: 65536}
_INTO: Final[dict[Codec, Any]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress the records of a batch.

    Args:
        codec: 0 to 4.
        data: the records. Codec 0 returns them as they are.
        level: a level of the codec; its default if None. Snappy has none.

    Raises:
        ValueError: the codec or its level does not exist.
    """
    codec = Codec(codec)
    if codec is Codec.NONE:
        return data
    if codec is Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    lowest, highest, default = LEVELS[codec]
    if level is None:
        level = default
    elif not lowest <= level <= highest:
        raise ValueError(f"{codec.name.lower()} level {level}: {lowest} to {highest}")
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    # Kafka's Java clients refuse linked blocks.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """Decompress the records of a batch.

    Args:
        codec: as in the batch's attributes.
        data: the compressed records.
        max_bytes: the largest size after decompression.

    Raises:
        RecordsTooLarge: it is larger than `max_bytes`.
        DecodeError: the codec does not exist, or the data is broken.
    """
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(data)
    if not 0 <= codec <= Codec.ZSTD:
        raise DecodeError(f"compression codec {codec}")
    codec = Codec(codec)
    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        return _decompress_guessing(codec, data, max_bytes)
    except cramjam.DecompressionError as error:
        raise DecodeError(f"{codec.name.lower()}: {error}") from error


def _too_large(max_bytes: int) -> RecordsTooLarge:
    return RecordsTooLarge(f"records over {max_bytes} bytes when decompressed")


def most_decompressed(codec: int, size: int) -> int:
    """The most bytes that `size` compressed bytes can hold, by the format of the codec."""
    return size * _LARGEST_RATIO[Codec(codec)] if codec else size


def _decompress_guessing(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    into = _INTO[codec]
    most = min(max_bytes, len(data) * _LARGEST_RATIO[codec])
    announced = _announced(codec, data)
    if announced > most_decompressed(codec, len(data)):
        raise DecodeError(f"{codec.name.lower()}: {len(data)} bytes cannot hold {announced}")
    if announced > max_bytes:
        raise _too_large(max_bytes)
    room = min(announced or max(len(data) * 8, _LEAST_ROOM), most)
    while True:
        out = bytearray(room)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            # The only error that a larger buffer avoids.
            if "whole buffer" not in str(error):
                raise
            if room >= most:
                raise _too_large(max_bytes) from error
            room = min(max(room * 4, _LEAST_ROOM), most)
        else:
            return bytes(memoryview(out)[:size])


def _announced(codec: Codec, data: Buffer) -> int:
    """The size that the data announces, 0 if none. A guess: it may be wrong, and several frames may follow."""
    if codec is Codec.GZIP:
        return int(_LITTLE_UINT32.unpack_from(data, len(data) - 4)[0]) if len(data) >= 18 else 0
    if codec is Codec.LZ4:
        return int.from_bytes(data[6:14], "little") if len(data) >= 15 and data[4] & 0x08 else 0
    if len(data) < 14:
        return 0
    descriptor = data[4]
    size, single_segment = descriptor >> 6, descriptor & 0x20
    at = (5 if single_segment else 6) + (0, 1, 2, 4)[descriptor & 3]
    if size == 0:
        return data[at] if single_segment else 0
    return int.from_bytes(data[at : at + (1 << size)], "little") + (256 if size == 1 else 0)


def _compress_xerial(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK])
        out += _INT32.pack(len(block))
        out += bytes(block)
    return bytes(out)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes:
    """Xerial's framing, which Java writes, or one raw block, which old versions of librdkafka write."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        out = bytearray()
        _decompress_block(data, out, max_bytes)
        return bytes(out)
    if len(data) < 16:
        raise DecodeError("snappy: truncated header")
    out = bytearray()
    at, end = 16, len(data)
    while at < end:
        if end - at < 4:
            raise DecodeError("snappy: truncated block size")
        (size,) = _INT32.unpack_from(data, at)
        at += 4
        if not 0 < size <= end - at:
            raise DecodeError(f"snappy: block of {size} bytes, {end - at} left")
        _decompress_block(data[at : at + size], out, max_bytes)
        at += size
    return bytes(out)


def _decompress_block(block: memoryview, out: bytearray, max_bytes: int) -> None:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > most_decompressed(Codec.SNAPPY, len(block)):
        raise DecodeError(f"snappy: {len(block)} bytes cannot hold {size}")
    if len(out) + size > max_bytes:
        raise _too_large(max_bytes)
    room = bytearray(size)
    got = cramjam.snappy.decompress_raw_into(block, room)
    out += room[:got] if got != size else room
