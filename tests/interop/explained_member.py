"""One member of a consumer group as a program, for tests of how its group is explained.

    python -m tests.interop.explained_member '{"bootstrap.servers": "127.0.0.1:9092", "group.id": "g", ...}' TOPIC

Its arguments are the settings of librdkafka and a topic. It prints the partitions that it owns, as a JSON line,
whenever they change. A line "sleep SECONDS" on its standard input keeps it from polling for so long; it leaves the
group and ends when its standard input ends.
"""

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError


def main(settings: dict[str, Any], topic: str) -> None:
    naps: list[float] = []
    ended = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            naps.append(float(line.split()[1]))
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    owned: list[int] | None = None
    while not ended.is_set():
        message = consumer.poll(0.05)
        error = None if message is None else message.error()
        # Not fatal(): it is false for the errors of messages.
        if error is not None and error.code() == KafkaError._FATAL:
            raise RuntimeError(error.str())
        now = sorted(each.partition for each in consumer.assignment())
        if now != owned:
            owned = now
            sys.stdout.write(json.dumps(owned) + "\n")
            sys.stdout.flush()
        if naps:
            time.sleep(naps.pop())
    consumer.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
