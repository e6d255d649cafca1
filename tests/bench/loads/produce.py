"""Produces at librdkafka's full speed; prints seconds from the first record handed over to the last acknowledgement.

python -m tests.bench.loads.produce ADDRESS TOPIC COUNT SIZE PARTITIONS [ACKS [SETTINGS]]

The records go to one partition, or are spread over all partitions of the topic. ACKS is `all` (default) or 1.
SETTINGS is a JSON file with more settings of librdkafka.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

BATCH: Final = 10_000
#: librdkafka's defaults with larger buffers: more in flight, so that neither side waits for the other.
SETTINGS: Final = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
    "log_level": 2,
}


def main(address: str, topic: str, *rest: str) -> None:
    count, size, partitions = map(int, rest[:3])
    acks = rest[3] if len(rest) > 3 else "all"
    connection = {"bootstrap.servers": address, **(json.loads(Path(rest[4]).read_text()) if len(rest) > 4 else {})}
    errors: list[str] = []

    def failed(error: KafkaError) -> None:
        errors.append(error.str())

    producer = Producer({**SETTINGS, **connection, "acks": acks, "error_cb": failed})
    existing = list(producer.list_topics(topic, 30).topics[topic].partitions)
    before = _in_log(connection, topic, existing)
    # Bytes that do not repeat within a record, handed over in bulk: the test measures librdkafka, not the interpreter.
    records = [{"value": os.urandom(size)} for _ in range(min(BATCH, count))]
    started = time.perf_counter()
    for _ in range(count // len(records)):
        taken = producer.produce_batch(topic, records, 0 if partitions == 1 else -1)
        if taken != len(records):
            raise RuntimeError(f"librdkafka took {taken} of {len(records)} records")
    left = producer.flush(120)
    seconds = time.perf_counter() - started
    if left or errors:
        raise RuntimeError(f"{left} records are not delivered; {errors[:3]}")
    wanted = count // len(records) * len(records)
    written = _in_log(connection, topic, existing) - before
    if written != wanted:
        raise RuntimeError(f"{written} records in the log, {wanted} were acknowledged")
    print(json.dumps({"seconds": seconds, "count": wanted}))


def _in_log(connection: Mapping[str, str], topic: str, partitions: Sequence[int]) -> int:
    reader = Consumer({**connection, "group.id": "bench", "log_level": 2})
    ends = [_end(reader, TopicPartition(topic, one)) for one in partitions]
    reader.close()
    return sum(ends)


def _end(reader: Consumer, partition: TopicPartition) -> int:
    """Return the end offset; retry while a new leader does not know of its leadership."""
    deadline = time.monotonic() + 30
    while True:
        try:
            end: int = reader.get_watermark_offsets(partition, 30, cached=False)[1]
            return end
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *sys.argv[3:])
