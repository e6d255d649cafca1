"""confluent-kafka's ShareConsumer with a broker that has no settings for share groups."""

import time

from confluent_kafka import Producer, ShareConsumer

from tests.interop.barnabas_server import BarnabasBroker

#: Seconds until everything must have been received.
PATIENCE = 60.0
COUNT = 500


def test_two_consumers_of_a_queue_process_every_record(barnabas: BarnabasBroker) -> None:
    """A group begins at the end of a topic: what is written after its members have joined is received, and by one of
    them each."""
    servers = {"bootstrap.servers": barnabas.bootstrap_servers}
    producer = Producer(servers)
    producer.produce("queue", b"before")
    assert producer.flush(PATIENCE) == 0
    consumers = [ShareConsumer({**servers, "group.id": "share-consumer"}) for _ in range(2)]
    received: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE
    try:
        for consumer in consumers:
            consumer.subscribe(["queue"])
        joined = 0
        while len({value for value in received if value and value.isdigit()}) < COUNT:
            assert time.monotonic() < deadline, f"{len(received)} records"
            for consumer in consumers:
                received += [message.value() for message in consumer.poll(0.2)]
            if not received:
                # Until the first arrives, it is not known whether the members have joined.
                producer.produce("queue", b"joined?")
                producer.poll(0)
            elif not joined:
                joined = len(received)
                for number in range(COUNT):
                    producer.produce("queue", b"%d" % number)
                assert producer.flush(PATIENCE) == 0
    finally:
        for consumer in consumers:
            consumer.close()
    numbers = [value for value in received if value and value.isdigit()]
    assert sorted(numbers) == sorted(b"%d" % number for number in range(COUNT)), "each one once"
    assert b"before" not in received
