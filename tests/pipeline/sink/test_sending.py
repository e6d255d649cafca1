"""Records of a task, sent many at a time: those of a partition stay in their order."""

from collections.abc import Iterator

import pytest

from barnabas_broker.testing import Broker
from barnabas_client.errors import MessageSizeTooLargeError
from barnabas_client.loop_thread import close_loop_thread
from barnabas_client.sync import Producer
from barnabas_pipeline.sink.records import SinkRecord
from barnabas_pipeline.sink.sending import acknowledged, send
from barnabas_protocol.wire import Buffer
from tests.pipeline.support import consume

HEADERS = (("h", b"1"),)


@pytest.fixture
def sender(broker: Broker) -> Iterator[Producer[Buffer, Buffer]]:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        yield producer
    close_loop_thread()


def values(broker: Broker, topic: str) -> list[list[bytes]]:
    """The values of each partition."""
    found: list[list[bytes]] = [[] for _ in range(3)]
    for record in consume(broker.bootstrap_servers, topic):
        found[record.partition].append(record.value or b"")
    return found


def test_topics_keys_and_headers(broker: Broker, topic: str, sender: Producer[Buffer, Buffer]) -> None:
    other = f"{topic}-other"
    broker.create_topic(other, partitions=1)
    records = [SinkRecord(topic if at % 2 else other, None, None, b"%d" % at, HEADERS) for at in range(10)]
    acknowledged(send(sender, records))
    found = consume(broker.bootstrap_servers, other, partitions=1)
    assert [record.value for record in found] == [b"%d" % at for at in range(0, 10, 2)]
    assert sorted(value for some in values(broker, topic) for value in some) == [b"%d" % at for at in range(1, 10, 2)]
    assert all(record.headers == HEADERS for record in found)


@pytest.mark.parametrize("some_have_none", [False, True])
def test_given_partitions_in_any_order(
    broker: Broker, topic: str, sender: Producer[Buffer, Buffer], some_have_none: bool
) -> None:
    records = [SinkRecord(topic, at % 3, None, b"%d" % at, ()) for at in range(30)]
    if some_have_none:
        records[10] = SinkRecord(topic, None, b"key", b"10", ())
    acknowledged(send(sender, records))
    found = values(broker, topic)
    assert sorted(value for some in found for value in some) == sorted(b"%d" % at for at in range(30))
    assert all(some == sorted(some, key=int) for some in found)


def test_nothing_and_an_error(broker: Broker, topic: str, sender: Producer[Buffer, Buffer]) -> None:
    acknowledged(send(sender, []))
    small = f"{topic}-small"
    broker.create_topic(small, partitions=1, config={"max.message.bytes": 1_000})
    receipts = send(sender, [SinkRecord(small, None, None, bytes(2_000), ())])
    with pytest.raises(MessageSizeTooLargeError):
        acknowledged(receipts)
