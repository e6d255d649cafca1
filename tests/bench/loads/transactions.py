"""Transactions of one confluent-kafka producer: how many in a second, or how long a commit takes.

python -m tests.bench.loads.transactions rate ADDRESS TOPIC RECORDS COUNT
python -m tests.bench.loads.transactions latency ADDRESS TOPIC COUNT

`rate` writes COUNT transactions of RECORDS records of 100 B to partition 0, one after the other, and prints the seconds
from the begin of the first to the end of the last commit. `latency` writes COUNT transactions of one record, beside a
read_committed consumer in the same process. It prints, in seconds: how long `commit_transaction` takes when the record
is acknowledged already, and the time from that call to the `poll` that returns the record.
"""

import json
import os
import statistics
import sys
import threading
import time
import uuid
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SIZE: Final = 100
LIMIT: Final = 60.0
#: Transactions that are not counted: the first ones find coordinators and fill caches.
WARM: Final = 20
SETTINGS: Final = {
    "linger.ms": 0,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "log_level": 2,
}


def producer(address: str) -> Producer:
    made = Producer({**SETTINGS, "bootstrap.servers": address, "transactional.id": f"bench-{uuid.uuid4().hex}"})
    made.init_transactions(LIMIT)
    return made


def rate(address: str, topic: str, records: int, count: int) -> dict[str, float]:
    sender = producer(address)
    batch = [{"value": os.urandom(SIZE)} for _ in range(records)]
    warm = max(1, min(WARM, count // 10))
    started = 0.0
    for number in range(warm + count):
        if number == warm:
            started = time.perf_counter()
        sender.begin_transaction()
        if sender.produce_batch(topic, batch, 0) != records:
            raise RuntimeError("librdkafka's queue is full")
        sender.commit_transaction(LIMIT)
    seconds = time.perf_counter() - started
    expected = (warm + count) * (records + 1)  # and a marker each
    written = _end(address, topic)
    if written != expected:
        raise RuntimeError(f"{written} offsets in the log, expected {expected}")
    return {"count": count, "seconds": seconds}


def _end(address: str, topic: str) -> int:
    """The last stable offset, when the last marker is written."""
    deadline = time.monotonic() + LIMIT
    committed, everything = _reader(address), _reader(address, "read_uncommitted")
    partition = TopicPartition(topic, 0)
    try:
        while True:
            try:
                stable: int = committed.get_watermark_offsets(partition, LIMIT, cached=False)[1]
                if everything.get_watermark_offsets(partition, LIMIT, cached=False)[1] == stable:
                    return stable
            except KafkaException:  # the partition's leader changes
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise RuntimeError(f"the last transaction has no marker after {LIMIT:.0f} s")
            time.sleep(0.02)
    finally:
        committed.close()
        everything.close()


def _reader(address: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
            "log_level": 2,
        }
    )


def latency(address: str, topic: str, count: int) -> dict[str, float]:
    sender, reader = producer(address), _reader(address)
    reader.assign([TopicPartition(topic, 0, 0)])
    seen: dict[int, float] = {}
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                seen[int(message.value() or b"0")] = time.perf_counter()

    thread = threading.Thread(target=read)
    thread.start()
    asked, commits = [], []
    try:
        for number in range(WARM + count):
            sender.begin_transaction()
            sender.produce(topic, b"%d" % number, partition=0)
            if sender.flush(LIMIT):
                raise RuntimeError("the record is not acknowledged")
            asked.append(time.perf_counter())
            sender.commit_transaction(LIMIT)
            commits.append(time.perf_counter() - asked[-1])
        deadline = time.monotonic() + LIMIT
        while len(seen) < WARM + count and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        stop.set()
        thread.join()
        reader.close()
    if len(seen) < WARM + count:
        raise RuntimeError(f"{len(seen)} of {WARM + count} records arrived")
    arrivals = [seen[number] - begin for number, begin in enumerate(asked)]
    return {**_percentiles("commit", commits[WARM:]), **_percentiles("read", arrivals[WARM:])}


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {f"{name} p50": cuts[49], f"{name} p99": cuts[98]}


def main(verb: str, address: str, topic: str, *numbers: str) -> None:
    counts = [int(number) for number in numbers]
    print(json.dumps(rate(address, topic, *counts) if verb == "rate" else latency(address, topic, *counts)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *sys.argv[4:])
