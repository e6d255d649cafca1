"""Codecs: round trips, formats that clients write, bombs."""

import gzip
import random
import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records.compression import LEVELS, Codec, RecordsTooLarge, compress, decompress
from tests.lots import in_lots
from tests.protocol.support import damaged

REAL = [codec for codec in Codec if codec]
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=30)
@given(data=st.binary(max_size=300), times=st.integers(0, 400))
def test_round_trip(codec: Codec, data: bytes, times: int) -> None:
    plain = data * times
    for given_as in (plain, bytearray(plain), memoryview(plain)):
        packed = compress(codec, given_as)
        assert decompress(codec, packed, len(plain)) == plain
        assert decompress(codec, memoryview(packed), len(plain) + 100) == plain


@pytest.mark.parametrize("codec", REAL)
def test_incompressible_data(codec: Codec) -> None:
    plain = random.Random(1).randbytes(300_000)
    assert decompress(codec, compress(codec, plain), len(plain)) == plain


@pytest.mark.parametrize("codec", LEVELS)
def test_levels(codec: Codec) -> None:
    plain = b"".join(b"%d," % n for n in range(20_000))
    lowest, highest, default = LEVELS[codec]
    for level in (max(lowest, -5), default, min(highest, 12)):
        assert decompress(codec, compress(codec, plain, level), len(plain)) == plain
    for level in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match=f"{lowest} to {highest}"):
            compress(codec, plain, level)


def test_names() -> None:
    assert [Codec.of(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Codec)
    with pytest.raises(ValueError, match="brotli"):
        Codec.of("brotli")
    with pytest.raises(ValueError, match="GZIP"):
        Codec.of("GZIP")


def test_codecs_that_do_not_exist() -> None:
    for codec in (5, 7, -1):
        with pytest.raises(DecodeError, match=f"codec {codec}"):
            decompress(codec, b"data", 100)
        with pytest.raises(ValueError, match=str(codec)):
            compress(codec, b"data")


def test_snappy_is_framed_as_in_java() -> None:
    plain = bytes(range(256)) * 300
    packed = bytes(compress(Codec.SNAPPY, plain))
    assert packed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    at, blocks = 16, []
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4], "big")
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[at + 4 : at + 4 + size])))
        at += 4 + size
    assert [len(block) for block in blocks] == [32768, 32768, len(plain) - 65536]
    assert b"".join(blocks) == plain


def test_snappy_without_a_frame() -> None:
    plain = b"plain " * 1000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(plain)), 6000) == plain


def test_a_snappy_block_that_cannot_hold_what_it_announces_is_broken() -> None:
    """Whatever the reader allows: it is not a large batch."""
    block = b"\x82\x80\x4e" + bytes(34)  # 37 bytes that announce 1,277,954
    for data in (block, bytes(compress(Codec.SNAPPY, b""))[:16] + len(block).to_bytes(4, "big") + block):
        for allowed in (1 << 10, 1 << 20, 1 << 30):
            with pytest.raises(DecodeError, match="37 bytes cannot hold 1277954") as caught:
                decompress(Codec.SNAPPY, data, allowed)
            assert not isinstance(caught.value, RecordsTooLarge)


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses linked blocks and content checksums."""
    packed = bytes(compress(Codec.LZ4, b"plain " * 1000))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20
    assert not packed[4] & 0x04


def test_announced_content_sizes() -> None:
    """One-shot zstd and gzip announce the size, and librdkafka's lz4 does: it is the size of the first buffer."""
    plain = b"0123456789" * 50_000
    for packed in (bytes(cramjam.zstd.compress(plain)), bytes(cramjam.zstd.compress(plain[:100]))):
        assert plain.startswith(decompress(Codec.ZSTD, packed, len(plain)))
    lying = bytearray(gzip.compress(plain))
    lying[-4:] = (5).to_bytes(4, "little")
    with pytest.raises(DecodeError):
        decompress(Codec.GZIP, lying, len(plain))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_several_frames(codec: Codec) -> None:
    first, second = b"a" * 100_000, b"b" * 50_000
    packed = bytes(compress(codec, first)) + bytes(compress(codec, second))
    assert decompress(codec, packed, 150_000) == first + second
    with pytest.raises(DecodeError, match="over 149999 bytes"):
        decompress(codec, packed, 149_999)


@pytest.mark.parametrize("codec", REAL)
@in_lots("data", [b"", b"x", b"garbage that is long enough for a header", bytes(100), b"\xff" * 100])
def test_garbage(codec: Codec, data: bytes) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, data, MIB)


@pytest.mark.parametrize("codec", REAL)
def test_truncation(codec: Codec) -> None:
    packed = bytes(compress(codec, b"some records " * 500))
    for size in range(len(packed)):
        try:
            assert decompress(codec, packed[:size], MIB) == b""
        except DecodeError:
            continue
        assert codec is Codec.SNAPPY  # which has no end mark: 16 bytes are a frame of nothing
        assert size == 16


@pytest.mark.parametrize("codec", REAL)
def test_damage(codec: Codec) -> None:
    rng = random.Random(codec)
    packed = bytes(compress(codec, b"some records " * 500))
    for _ in range(3000):
        try:
            assert len(decompress(codec, damaged(rng, packed), MIB)) <= MIB
        except DecodeError:
            continue


@pytest.mark.parametrize("codec", REAL)
def test_bombs(codec: Codec) -> None:
    """64 MiB, compressed as far as the codec can, where 256 KiB are allowed."""
    bomb = bytes(compress(codec, bytes(64 * MIB)))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="over 262144 bytes"):
            decompress(codec, bomb, 262_144)
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()


def test_impossible_sizes_are_refused() -> None:
    claims = [
        (Codec.GZIP, bytes(cramjam.gzip.compress(b"abc"))[:-4] + b"\xff\xff\xff\x7f"),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + b"abc"),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little") + b"\x01\0\0"),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x68\x40" + (2**40).to_bytes(8, "little") + b"\0" + bytes(4)),
    ]
    for codec, data in claims:
        tracemalloc.start()
        try:
            with pytest.raises(DecodeError):
                decompress(codec, data, 1024 * MIB)
            assert tracemalloc.get_traced_memory()[1] < 4 * MIB, codec
        finally:
            tracemalloc.stop()
