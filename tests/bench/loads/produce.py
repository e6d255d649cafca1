"""Produces as fast as librdkafka does; prints seconds from the first record handed over to the last acknowledged.

python -m tests.bench.loads.produce ADDRESS TOPIC COUNT SIZE PARTITIONS

Into one partition, or spread over as many as the topic has.
"""

import json
import os
import sys
import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

BATCH: Final = 10_000
#: librdkafka's defaults, but for room: more in flight, so that neither side waits for the other.
SETTINGS: Final = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
    "log_level": 2,
}


def main(address: str, topic: str, count: int, size: int, partitions: int) -> None:
    errors: list[str] = []

    def failed(error: KafkaError) -> None:
        errors.append(error.str())

    producer = Producer({**SETTINGS, "bootstrap.servers": address, "error_cb": failed})
    existing = list(producer.list_topics(topic, 30).topics[topic].partitions)
    # Bytes that do not repeat within a record, handed over many at a time: librdkafka's pace, not the interpreter's.
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
    reader = Consumer({"bootstrap.servers": address, "group.id": "bench", "log_level": 2})
    ends = [reader.get_watermark_offsets(TopicPartition(topic, one), 30, cached=False)[1] for one in existing]
    reader.close()
    wanted = count // len(records) * len(records)
    if sum(ends) != wanted:
        raise RuntimeError(f"{sum(ends)} records in the log, {wanted} were acknowledged")
    print(json.dumps({"seconds": seconds, "count": wanted}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
