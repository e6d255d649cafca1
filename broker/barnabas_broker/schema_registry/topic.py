"""The topic ``_schemas`` of a broker: reads its records, and appends to it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from barnabas_broker.broker import BrokerServer
from barnabas_broker.errors import BrokerError
from barnabas_broker.replication.contents import append_records, read_batches
from barnabas_broker.schema_registry.records import TOPIC, SchemaChange, decode
from barnabas_broker.storage.corruption import DamagedLog
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_protocol.records import Record
from barnabas_protocol.registry import ApiKey

#: Bytes of the records of one batch.
_MOST_DECOMPRESSED: Final = 64 * 1024 * 1024


class SchemasTopic:
    """The topic. It has one partition, and is compacted.

    Args:
        broker: a single broker, which runs.
    """

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker

    async def open(self) -> None:
        """Create the topic, if it does not exist.

        Raises:
            BrokerError: it cannot be created.
        """
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=-1,
            assignments=[],
            configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
        )
        answer = await self._broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]), "schema-registry")
        result = answer.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            why = result.error_message or ErrorCode.of(result.error_code).name
            raise BrokerError(f"topic {TOPIC} of the schema registry cannot be created: {why}")
        await self._broker.hosted(TOPIC)

    async def read(self) -> AsyncIterator[SchemaChange]:
        """All records, oldest first; those of other kinds are left out.

        Raises:
            BrokerError: they cannot be read.
        """
        try:
            log = self._broker.services.replicas.find(TOPIC, 0).log
            async for header, records in read_batches(log, _MOST_DECOMPRESSED):
                for change in [] if header.is_control else await asyncio.to_thread(_changes, records):
                    yield change
        except (KafkaError, DecodeError, DamagedLog, OSError) as error:
            raise BrokerError(f"topic {TOPIC} of the schema registry cannot be read: {error}") from error

    async def append(self, changes: Sequence[SchemaChange]) -> None:
        """Append records, as one batch.

        Raises:
            KafkaError: they were not written.
        """
        now_ms = self._broker.services.wall_ms()
        replica = self._broker.services.replicas.find(TOPIC, 0)
        records = await asyncio.to_thread(lambda: [(*change.encode(), (), now_ms) for change in changes])
        await append_records(replica, records, now_ms)


def _changes(records: Sequence[Record]) -> list[SchemaChange]:
    found = (decode(record.key, record.value) for record in records)
    return [change for change in found if change is not None]
