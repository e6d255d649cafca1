"""Our batches, read by aiokafka and kafka-python, and the other way round."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import aiokafka.record.default_records as aiokafkas
import pytest
from aiokafka.record.memory_records import MemoryRecords

from barnabas_protocol.records import (
    Codec,
    Headers,
    Record,
    build_batch,
    check_batch,
    decode_records,
    iter_batches,
    read_header,
)
from tests.protocol.other_clients import kafka_python

kafka_pythons = kafka_python("record.default_records")
Given = tuple[bytes | None, bytes | None, Headers, int]
CODECS = [codec.name.lower() for codec in Codec]
#: In Python, and in C where there is an extension. kafka-python has gzip only, without packages that are not installed.
READERS = [
    *((aiokafkas._DefaultRecordBatchPy, codec) for codec in CODECS),
    *((aiokafkas.DefaultRecordBatch, codec) for codec in CODECS),
    *((kafka_pythons.DefaultRecordBatch, codec) for codec in ("none", "gzip")),
]
BUILDERS = [
    *((aiokafkas._DefaultRecordBatchBuilderPy, codec) for codec in CODECS),
    *((aiokafkas.DefaultRecordBatchBuilder, codec) for codec in CODECS),
    *((kafka_pythons.DefaultRecordBatchBuilder, codec) for codec in ("none", "gzip")),
]


def content(seed: int, count: int) -> list[Given]:
    rng = random.Random(seed)
    time = 1_700_000_000_000
    given: list[Given] = []
    for _ in range(count):
        time += rng.choice((0, 1, 100, 10_000))
        headers = [("trace", rng.randbytes(8)), ("empty", b""), ("Größe", b"x")] if rng.random() < 0.2 else []
        key = None if rng.random() < 0.2 else b"key-%d" % rng.randrange(1000)
        value = None if rng.random() < 0.1 else b"value" * rng.choice((0, 1, 13, 2000))
        given.append((key, value, headers, time))
    return given


def _plain(record: Any) -> Record:
    return Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


@pytest.mark.parametrize(("reader", "compression"), READERS)
def test_other_clients_read_our_batches(reader: Callable[[bytes], Iterable[Any]], compression: str) -> None:
    for seed, count in ((1, 1), (2, 10), (3, 300)):
        given = content(seed, count)
        batch = build_batch(
            given, compression=compression, base_offset=1000, producer_id=5, producer_epoch=1, base_sequence=9
        )
        theirs: Any = reader(bytes(batch))
        assert theirs.validate_crc()
        assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 1, 9)
        assert (theirs.next_offset, theirs.compression_type) == (1000 + count, Codec.of(compression))
        assert [_plain(record) for record in theirs] == decode_records(batch)


@pytest.mark.parametrize(("builder", "compression"), BUILDERS)
def test_we_read_batches_of_other_clients(builder: Callable[..., Any], compression: str) -> None:
    for seed, count in ((1, 1), (2, 10), (3, 300)):
        given = content(seed, count)
        theirs = builder(
            magic=2,
            compression_type=int(Codec.of(compression)),
            is_transactional=1,
            producer_id=5,
            producer_epoch=1,
            base_sequence=9,
            batch_size=10**9,
        )
        for offset, (key, value, headers, time) in enumerate(given):
            theirs.append(offset, timestamp=time, key=key, value=value, headers=list(headers))
        batch = bytes(theirs.build())
        header = read_header(batch)
        check_batch(header, batch)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 9)
        assert header.is_transactional
        if count > 1:
            assert header.codec == Codec.of(compression)
        assert decode_records(batch) == [
            Record(offset, time, key, value, tuple(headers)) for offset, (key, value, headers, time) in enumerate(given)
        ]
        if compression == "none":
            ours = build_batch(given, producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
            # The leader epochs differ, 0 or -1: a broker overwrites them.
            assert bytes(ours[:12] + ours[16:]) == batch[:12] + batch[16:]


def test_aiokafka_iterates_over_our_batches() -> None:
    batches = [build_batch(content(seed, 5), base_offset=5 * seed, compression="lz4") for seed in range(4)]
    data = b"".join(batches)
    theirs, found = MemoryRecords(data), []
    while theirs.has_next():
        batch = theirs.next_batch()
        assert batch is not None
        found += [_plain(record) for record in batch]
    ours = [record for _, batch in iter_batches(data) for record in decode_records(batch)]
    assert found == ours
    assert [record.offset for record in ours] == list(range(20))
