"""A real broker for tests: a script in front of it, and its records without a client."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest.mock import patch

from barnabas_broker import stores
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.config.keys import NODE_ID
from barnabas_broker.handlers.produce import Produce
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import TopicPartition
from barnabas_broker.storage.slices import joined
from barnabas_protocol.hot.produce import ProduceHead
from barnabas_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_protocol.records import Record, build_batch, decode_records, iter_batches, read_header
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.wire import Buffer
from tests.world.script import Script

T = TypeVar("T")

#: The time of records, in seconds since 1970.
EPOCH: Final = 1_700_000_000
#: The data directory, on the disk of the broker's machine.
DATA: Final = Path("/data")
_KEYS: Final = {
    "auto.create.topics.enable": "true",
    "event.loop.watchdog.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "log.dir": str(DATA),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class ScriptedBroker:
    """A broker in the test's own event loop; :func:`running` starts one.

    Args:
        keys: of the broker.

    Attributes:
        files: its disk.
        script: answers that it does not give itself.
        broker: the broker.
    """

    broker: BrokerServer

    def __init__(self, keys: Mapping[str, str]) -> None:
        self.files = MemoryFiles()
        self.script = Script()
        self.config = Config(BROKER_KEYS, {**_KEYS, **keys})

    @property
    def node_id(self) -> int:
        """Its node id."""
        return int(self.config[NODE_ID])

    @property
    def host(self) -> str:
        """Where it listens."""
        return self.broker.host

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.broker.port

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    async def ask(self, key: ApiKey, request: Any) -> Any:
        """Ask a handler of the broker, past its listeners."""
        return await self.broker.ask(key, request, "test")

    async def create(self, topic: str, partitions: int = 1, *replicas: Sequence[int], **configs: str) -> None:
        """Create a topic.

        Args:
            topic: its name.
            partitions: how many it has.
            replicas: the brokers of each partition, the leader first; if none are given, the broker chooses.
            configs: like ``max_message_bytes="400"``.
        """
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=list(nodes))
                for number, nodes in enumerate(replicas)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        created = await self.ask(ApiKey.CREATE_TOPICS, request)
        assert created.topics[0].error_code == 0, created
        await self.broker.hosted(topic)

    async def write(
        self, topic: str, values: Iterable[bytes | None], partition: int = 0, compression: str = "none"
    ) -> int:
        """Append records in one batch; their base offset."""
        batch = build_batch([(None, value, (), EPOCH * 1000) for value in values], compression=compression)
        return await self.append(topic, batch, partition)

    async def append(self, topic: str, batch: Buffer, partition: int = 0) -> int:
        """Append a batch; its base offset."""
        topic_id = self.broker.services.cluster.image.topics[topic].topic_id
        request = Produce(ProduceHead(None, -1, 10_000), [(topic_id, [(partition, memoryview(batch))])])
        done = await self.ask(ApiKey.PRODUCE, request)
        (answer,) = done.responses[0].partition_responses
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    async def delete(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records of a partition before an offset."""
        one = DeleteRecordsPartition(partition_index=partition, offset=before)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[one])], timeout_ms=10_000)
        done = await self.ask(ApiKey.DELETE_RECORDS, request)
        assert done.topics[0].partitions[0].error_code == 0, done

    def limit(self, key: ApiKey, newest: int) -> None:
        """Have the broker say that `newest` is its last version of an API; -1: that it does not have it."""
        listed = self.broker.services.api_versions
        for each in [each for each in listed if each.api_key == key]:
            each.max_version = newest
            if newest < 0:
                listed.remove(each)

    def batches(self, topic: str, partition: int = 0) -> list[bytes]:
        """The batches in the log of a partition."""
        log = self.broker.directory.logs[TopicPartition(topic, partition)]
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:  # A read ends with its segment.
            parts = log.read(offset, 1 << 30, log.log_end_offset, min_one=True)
            found += (bytes(batch) for _, batch in iter_batches(joined(parts)))
            offset = read_header(found[-1]).last_offset + 1
        return found

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """The records in the log of a partition."""
        return [
            record
            for batch in self.batches(topic, partition)
            if not read_header(batch).is_control
            for record in decode_records(batch)
        ]

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of the records of a partition."""
        return [record.value for record in self.records(topic, partition)]

    def markers(self, topic: str, partition: int = 0) -> list[bool]:
        """For each transaction that has ended in a partition, whether it was committed."""
        headers = [(read_header(batch), batch) for batch in self.batches(topic, partition)]
        keys = [decode_records(batch)[0].key or b"" for header, batch in headers if header.is_control]
        return [int.from_bytes(key[2:4], "big") == 1 for key in keys]


@asynccontextmanager
async def running(**keys: str) -> AsyncIterator[ScriptedBroker]:
    """Run a broker with keys like ``num_partitions="2"`` in the test's own event loop, with its files in memory."""
    made = ScriptedBroker({key.replace("_", "."): value for key, value in keys.items()})
    with patch.object(stores, "RealFiles", lambda mode: made.files):
        made.broker = await BrokerServer.start(made.config, port=0, wrap_dispatcher=made.script.before)
    try:
        yield made
    finally:
        await made.broker.stop()


async def until(true: Callable[[], bool]) -> None:
    """Let everything else run until something is so, but not for ever."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def look() -> None:
        if true():
            waiter.set_result(None)
        elif not waiter.cancelled():
            loop.call_later(0.001, look)  # A simulated loop lets time pass only when there is nothing to do.

    look()
    async with asyncio.timeout(60):
        await waiter
