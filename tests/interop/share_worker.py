"""A worker of a share group, with confluent-kafka or with Barnabas: prints the value of each record that it gets
("got ..."), and of each that it has acknowledged ("done ..."). It rejects records that nothing could process.

Run by tests/interop/test_share_workers.py, which kills some of them.
"""

import asyncio
import sys
from typing import Final

from confluent_kafka import AcknowledgeType
from confluent_kafka import ShareConsumer as ConfluentConsumer

from barnabas import ShareConsumer
from barnabas.errors import KafkaError

#: How the values of records end that cannot be processed.
BAD: Final = "999"


def confluent(bootstrap_servers: str, group: str, topic: str) -> None:
    consumer = ConfluentConsumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    while True:
        values = []
        for message in consumer.poll(0.5):
            if message.error() is None:
                values.append((message.value() or b"").decode())
                consumer.acknowledge(
                    message, AcknowledgeType.REJECT if values[-1].endswith(BAD) else AcknowledgeType.ACCEPT
                )
        say("got", values)
        if values and all(error is None for error in consumer.commit_sync().values()):
            say("done", values)


async def barnabas(bootstrap_servers: str, group: str, topic: str) -> None:
    consumer = ShareConsumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group, share_acknowledgement_mode="explicit"
    )
    async with consumer:
        while True:
            records = await consumer.poll(500)
            values = [(record.value or b"").decode() for record in records]
            say("got", values)
            for record, value in zip(records, values, strict=True):
                await (record.reject() if value.endswith(BAD) else record.accept())
            try:
                await consumer.commit()
            except KafkaError:
                continue
            say("done", values)


def say(word: str, values: list[str]) -> None:
    """Print a line for each value, at once."""
    sys.stdout.write("".join(f"{word} {value}\n" for value in values))
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "barnabas":
        asyncio.run(barnabas(*sys.argv[2:]))
    else:
        confluent(*sys.argv[2:])
