"""Consumes a topic from its start at librdkafka's full speed; prints seconds from the first record to the last.

python -m tests.bench.loads.consume ADDRESS TOPIC COUNT [SETTINGS]

SETTINGS is a JSON file with more settings of librdkafka.
"""

import json
import sys
import time
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

LIMIT: Final = 120.0
SETTINGS: Final = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "check.crcs": True,
    "fetch.message.max.bytes": 8_000_000,
    "fetch.queue.backoff.ms": 1,
    "queued.max.messages.kbytes": 1_000_000,
    "log_level": 2,
}


def main(address: str, topic: str, count: int, settings: str | None = None) -> None:
    more = {} if settings is None else json.loads(Path(settings).read_text())
    consumer = Consumer({**SETTINGS, "bootstrap.servers": address, **more})
    partitions = list(consumer.list_topics(topic, 30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in partitions])
    # librdkafka sends its first Fetch after half a second; no broker causes this delay.
    got = len(consumer.consume(1, 30))
    started = time.perf_counter()
    while got < count:
        messages = consumer.consume(min(10_000, count - got), 1.0)
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
        got += len(messages)
        if time.perf_counter() - started > LIMIT:
            raise RuntimeError(f"{got} of {count} records after {LIMIT:.0f} s")
    seconds = time.perf_counter() - started
    consumer.close()
    if got != count:
        raise RuntimeError(f"{got} records instead of {count}")
    print(json.dumps({"seconds": seconds, "count": count}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
