"""Transactions of each client library: commit, abort, fencing, and consume-transform-produce."""

import pytest

from tests.interop.clients.base import Client, Fenced, Partition
from tests.interop.waiting import read, read_until

pytestmark = pytest.mark.interop


def test_commit_and_abort(client: Client, fresh: str) -> None:
    """Transactions: commit, abort, and consumers with `read_committed`"""
    client.admin().create_topic(fresh, 1)
    sender = client.sender(transactional_id=fresh)
    for number in range(4):
        sender.begin()
        for _ in range(10):
            sender.send(fresh, b"%d" % number, partition=0)
        sender.flush()  # what is not sent yet an abort would only drop
        if number % 2:
            sender.abort()
        else:
            sender.commit()
    sender.begin()
    sender.send(fresh, b"end", partition=0)
    sender.commit()
    committed = client.reader(read_committed=True)
    committed.assign(Partition(fresh, 0))
    assert [record.value for record in read(committed, 21)] == [*[b"0"] * 10, *[b"2"] * 10, b"end"]
    every = client.reader()
    every.assign(Partition(fresh, 0))
    values = [record.value for record in read(every, 41)]
    assert values == [*[b"0"] * 10, *[b"1"] * 10, *[b"2"] * 10, *[b"3"] * 10, b"end"]


def test_fencing(client: Client, fresh: str) -> None:
    """A second producer with the same `transactional.id` fences the first one, and aborts its transaction"""
    client.admin().create_topic(fresh, 1)
    first = client.sender(transactional_id=fresh)
    first.begin()
    first.send(fresh, b"of the first", partition=0)
    first.flush()
    second = client.sender(transactional_id=fresh)
    with pytest.raises(Fenced):
        first.commit()
    second.begin()
    second.send(fresh, b"of the second", partition=0)
    second.commit()
    reader = client.reader(read_committed=True)
    reader.assign(Partition(fresh, 0))
    assert [record.value for record in read(reader, 1)] == [b"of the second"]


def test_consume_and_produce(client: Client, fresh: str) -> None:
    """Consume and produce in one transaction, with the consumer's offsets"""
    source, target = f"{fresh}-source", f"{fresh}-target"
    for topic in (source, target):
        client.admin().create_topic(topic, 1)
    sender = client.sender(transactional_id=fresh)
    sender.begin()
    for number in range(10):
        sender.send(source, b"%d" % number, partition=0)
    sender.commit()
    reader = client.reader(fresh, read_committed=True)
    reader.subscribe(source)
    records = read(reader, 10)
    at = Partition(source, 0)
    for attempt in (b"aborted", b"committed"):
        sender.begin()
        for record in records:
            sender.send(target, b"%s %s" % (record.value, attempt), partition=0)
        sender.flush()
        sender.send_offsets(reader, {at: 10})
        if attempt == b"aborted":
            sender.abort()
            assert reader.committed(at) is None
        else:
            sender.commit()
    read_until(reader, lambda: reader.committed(at) == 10, "the marker that makes the offset visible")
    results = client.reader(read_committed=True)
    results.assign(Partition(target, 0))
    assert [record.value for record in read(results, 10)] == [b"%d committed" % number for number in range(10)]
