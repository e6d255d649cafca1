"""Producing and consuming with each client library."""

import pytest

from tests.interop.clients.base import COMPRESSIONS, Acks, Client, Code, Compression, Partition, Record, Refused
from tests.interop.waiting import read, read_until
from tests.sampling import slow, slow_except

pytestmark = pytest.mark.interop

START = 1_700_000_000_000


@pytest.mark.parametrize("acks", [0, slow(1), "all"])
def test_acks(client: Client, fresh: str, acks: Acks) -> None:
    """Produce with acks 0, 1 and all"""
    client.admin().create_topic(fresh, 1)
    first = client.sender()
    first.send(fresh, b"0")
    first.flush()  # afterwards the partition has a leader, and records without acknowledgement arrive, too
    sender = client.sender(acks=acks)
    for number in range(1, 100):
        sender.send(fresh, b"%d" % number)
    delivered = sender.flush()
    if acks != 0:
        assert [one.offset for one in delivered] == list(range(1, 100))
    reader = client.reader()
    reader.assign(Partition(fresh, 0))
    assert [record.value for record in read(reader, 100)] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("compression", slow_except(COMPRESSIONS, "zstd"))
def test_compression(client: Client, fresh: str, compression: Compression) -> None:
    """Compression: none, gzip, snappy, lz4, zstd"""
    client.admin().create_topic(fresh, 1)
    sender = client.sender(compression=compression, linger_ms=50)
    values = [b"%d " % number * 100 for number in range(1000)]
    for value in values:
        sender.send(fresh, value)
    sender.flush()
    reader = client.reader()
    reader.assign(Partition(fresh, 0))
    assert [record.value for record in read(reader, 1000)] == values


def test_idempotent(client: Client, fresh: str) -> None:
    """Idempotent producer"""
    client.admin().create_topic(fresh, 2)
    sender = client.sender(idempotent=True)
    for number in range(2000):
        sender.send(fresh, b"%d" % number, partition=number % 2)
    delivered = sender.flush()
    assert [(one.partition, one.offset) for one in delivered] == [(number % 2, number // 2) for number in range(2000)]


def test_content(client: Client, fresh: str) -> None:
    """Keys, values, headers, nulls, empty and Unicode content, timestamps"""
    client.admin().create_topic(fresh, 1)
    at = Partition(fresh, 0)
    wanted = [
        Record(at, 0, START, b"key", b"value", ()),
        Record(at, 1, START + 1, None, b"no key", ()),
        Record(at, 2, START + 2, b"no value", None, ()),
        Record(at, 3, START + 3, b"", b"", ()),
        Record(at, 4, START + 4, "Schlüssel".encode(), "значение 🚀".encode(), (("Grüße", "世界".encode()),)),
        Record(at, 5, START - 1000, bytes(range(256)), bytes(range(256)), (("a", b"1"), ("a", b"2"), ("b", b""))),
    ]
    sender = client.sender()
    for record in wanted:
        headers = [(name, value or b"") for name, value in record.headers]
        sender.send(fresh, record.value, record.key, headers=headers, partition=0, timestamp=record.timestamp)
    sender.flush()
    reader = client.reader()
    reader.assign(at)
    assert read(reader, len(wanted)) == wanted


def test_large_records(client: Client, fresh: str) -> None:
    """Records of nearly 1 MB"""
    client.admin().create_topic(fresh, 1)
    values = [bytes([number]) * 1_000_000 for number in range(5)]
    sender = client.sender()
    for value in values:
        sender.send(fresh, value)
    sender.flush()
    reader = client.reader()
    reader.assign(Partition(fresh, 0))
    assert [record.value for record in read(reader, 5)] == values


def test_too_large(client: Client, fresh: str) -> None:
    """A record over `max.message.bytes` is rejected, and the producer continues"""
    client.admin().create_topic(fresh, 1, {"max.message.bytes": "10000"})
    sender = client.sender(idempotent=False)
    sender.send(fresh, b"x" * 20_000)
    with pytest.raises(Refused) as refused:
        sender.flush()
    assert refused.value.code == Code.MESSAGE_TOO_LARGE
    sender.send(fresh, b"x" * 5_000)
    assert [one.offset for one in sender.flush()] == [0]


def test_many_partitions(client: Client, fresh: str) -> None:
    """A topic with 100 partitions"""
    client.admin().create_topic(fresh, 100)
    sender = client.sender()
    for number in range(1000):
        sender.send(fresh, b"%d" % number, partition=number % 100)
    assert {one.partition for one in sender.flush()} == set(range(100))
    reader = client.reader()
    reader.assign(*(Partition(fresh, number) for number in range(100)))
    got = {(record.partition.number, record.offset): record.value for record in read(reader, 1000)}
    assert got == {(number % 100, number // 100): b"%d" % number for number in range(1000)}


def test_auto_create(client: Client, fresh: str) -> None:
    """A topic created by its first record"""
    sender = client.sender()
    sender.send(fresh, b"value")
    assert [one.offset for one in sender.flush()] == [0]
    assert client.admin().topics()[fresh] == 1


def test_long_poll(client: Client, fresh: str) -> None:
    """A consumer at the end of a partition receives new records"""
    client.admin().create_topic(fresh, 1)
    reader = client.reader()
    reader.assign(Partition(fresh, 0))
    assert reader.poll(0.1) == []
    sender = client.sender()
    for number in range(3):
        sender.send(fresh, b"%d" % number)
        sender.flush()
        assert [record.value for record in read(reader, 1)] == [b"%d" % number]


def test_from_the_end(client: Client, fresh: str) -> None:
    """A consumer without a committed offset starts at the end with `auto.offset.reset=latest`"""
    client.admin().create_topic(fresh, 1)
    sender = client.sender()
    sender.send(fresh, b"before")
    sender.flush()
    reader = client.reader(from_start=False)
    reader.assign(Partition(fresh, 0))
    got: list[Record] = []

    def anything() -> bool:
        sender.send(fresh, b"after")
        sender.flush()
        return bool(got)

    # The library decides when it looks up the end: only earlier records are certain not to arrive.
    read_until(reader, anything, "a record", got)
    assert {record.value for record in got} == {b"after"}


def test_seek(client: Client, fresh: str) -> None:
    """Seek, position, first and last offsets"""
    client.admin().create_topic(fresh, 1)
    at = Partition(fresh, 0)
    sender = client.sender()
    for number in range(100):
        sender.send(fresh, b"%d" % number)
    sender.flush()
    reader = client.reader()
    reader.assign(at)
    assert reader.bounds(at) == (0, 100)
    read(reader, 100)
    assert reader.position(at) == 100
    for offset in (40, 0, 99):
        reader.seek(at, offset)
        assert [record.offset for record in read(reader, 100 - offset)] == list(range(offset, 100))


def test_offsets_for_times(client: Client, fresh: str) -> None:
    """Offsets by timestamp"""
    client.admin().create_topic(fresh, 1)
    at = Partition(fresh, 0)
    sender = client.sender(linger_ms=0)
    for number in range(100):
        sender.send(fresh, b"%d" % number, timestamp=START + 1000 * number)
        if number % 30 == 0:
            sender.flush()  # several batches, and records within them
    sender.flush()
    reader = client.reader()
    reader.assign(at)
    asked = [START - 1, START, START + 1, START + 41_500, START + 99_000, START + 99_001]
    assert [reader.offset_at(at, timestamp) for timestamp in asked] == [0, 0, 1, 42, 99, None]


def test_read_committed(client: Client, fresh: str) -> None:
    """`read_committed` consumers receive non-transactional records"""
    client.admin().create_topic(fresh, 1)
    sender = client.sender()
    for number in range(100):
        sender.send(fresh, b"%d" % number)
    sender.flush()
    reader = client.reader(read_committed=True)
    reader.assign(Partition(fresh, 0))
    assert [record.offset for record in read(reader, 100)] == list(range(100))


def test_deleted_records(client: Client, fresh: str) -> None:
    """Delete records up to an offset"""
    admin = client.admin()
    admin.create_topic(fresh, 1)
    at = Partition(fresh, 0)
    sender = client.sender()
    for number in range(100):
        sender.send(fresh, b"%d" % number)
    sender.flush()
    admin.delete_records(at, 60)
    reader = client.reader()
    reader.assign(at)
    assert reader.bounds(at) == (60, 100)
    assert [record.offset for record in read(reader, 40)] == list(range(60, 100))
