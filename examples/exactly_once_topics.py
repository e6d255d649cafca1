"""Exactly once from topic to topic: results and offsets in one Kafka transaction.

python -m examples.exactly_once_topics --topic foo --to bar --transactional-id worker-1

Each record of `foo` is written to `bar` in upper case. The results of a poll and the offsets after it are one
transaction: if the program is killed, at any moment, both are visible or neither is. The next run gets the same
transactional id, which aborts the transaction that was left open, and starts at the offsets of the group. A consumer
of `bar` with isolation_level="read_committed" gets each result once.
"""

from barnabas import Consumer, Producer, run
from barnabas.errors import CommitFailedError, RebalanceInProgressError, TransactionAbortableError
from examples.arguments import parser


async def main(
    bootstrap_servers: str, topic: str, group: str, count: int | None, to: str, transactional_id: str
) -> None:
    """Transform `count` records."""
    done = 0
    producer = Producer(
        bootstrap_servers=bootstrap_servers, transactional_id=transactional_id, transaction_timeout_ms=10_000
    )
    consumer = Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
    )
    # The producer first: its start aborts a transaction that was left open, so that the offsets are decided.
    async with producer, consumer:
        while count is None or done < count:
            left = None if count is None else count - done
            batches = await consumer.getmany(timeout_ms=200, max_records=20 if left is None else min(20, left))
            if not batches:
                continue
            try:
                async with producer.transaction():
                    for records in batches.values():
                        for record in records:
                            await producer.send(to, (record.value or b"").upper(), key=record.key)
                    offsets = {partition: records[-1].offset + 1 for partition, records in batches.items()}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            except (TransactionAbortableError, CommitFailedError, RebalanceInProgressError) as error:
                # Nothing of it is visible: read the records again, unless another consumer has the partition by now.
                print(f"aborted: {error}", flush=True)
                for partition in consumer.assignment() & batches.keys():
                    consumer.seek(partition, batches[partition][0].offset)
                continue
            done += sum(map(len, batches.values()))
    print(f"{done} records were transformed")


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--to", default="bar", metavar="TOPIC", help="the topic of the results")
    arguments.add_argument("--transactional-id", default="worker-1", help="unique among the running programs")
    run(main(**vars(arguments.parse_args())))
