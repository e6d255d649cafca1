"""Brings a running broker to what a file declares. What is there already stays, so that it can be done at every start.

Everything is checked before the first change. If a change fails nevertheless, the error lists the changes before it.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Event, Image, TopicInfo
from barnabas_broker.config.keys import AUTHORIZER_CLASS_NAME, NUM_PARTITIONS
from barnabas_broker.errors import BrokerError
from barnabas_broker.init.document import (
    Declared,
    DeclaredOffsets,
    DeclaredQuota,
    DeclaredTopic,
    FileLine,
    InitError,
)
from barnabas_broker.init.seeds import SeedRecord, records_of
from barnabas_broker.quotas.entities import describe, entity_of
from barnabas_broker.replication.contents import append_records
from barnabas_broker.security.bindings import AclBinding
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    OpData,
)
from barnabas_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_protocol.messages.describe_client_quotas import EntityData
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas_protocol.murmur2 import murmur2
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request

_CLIENT_ID: Final = "init"
_TIMEOUT_MS: Final = 30_000
_TOPIC: Final = 2
_SET: Final = 0
#: Records that are read, and written, at once.
_AT_ONCE: Final = 500
#: Bytes of a batch, beyond which another one begins.
_BATCH_BYTES: Final = 256 * 1024


async def apply(broker: BrokerServer, declared: Declared) -> list[str]:
    """Bring a broker to what is declared.

    Args:
        broker: a single broker.
        declared: what it is to have.

    Returns:
        What was done, one line each; what was there already is not among it.

    Raises:
        InitError: something cannot be done; the text names file and line, and lists what was done before.
    """
    initializing = _Initializing(broker, declared)
    await initializing.check()
    try:
        await initializing.run()
    except BrokerError as error:
        done = initializing.done
        before = f"done before it: {'; '.join(done)}" if done else "nothing was changed"
        raise InitError(f"{error}. {before[0].upper()}{before[1:]}. To do: repair it, and start again") from error
    return initializing.done


class _Initializing:
    """Checks and carries out what is declared."""

    def __init__(self, broker: BrokerServer, declared: Declared) -> None:
        self._broker = broker
        self._declared = declared
        self.done: list[str] = []

    def _topic(self, name: str) -> TopicInfo | None:
        return self._broker.services.cluster.image.topics.get(name)

    # Checks: nothing changes

    async def check(self) -> None:
        """Find what cannot be done.

        Raises:
            InitError: there is something.
        """
        declared = self._declared
        if declared.acls and not self._broker.config[AUTHORIZER_CLASS_NAME]:
            place, _ = declared.acls[0]
            raise place.error(
                f"ACLs are declared, and nothing checks them. To do: set {AUTHORIZER_CLASS_NAME.name}, see "
                "docs/security.md"
            )
        partitions: dict[str, int] = {}
        for topic in declared.topics:
            await self._create(topic, validate_only=True)
            partitions[topic.name] = await self._check_partitions(topic)
        for quota in declared.quotas:
            await self._set_quota(quota, validate_only=True)
        for topic in declared.topics:
            for seed in topic.seeds:
                for some in _some(records_of(seed)):
                    _check_partition(some, topic.name, partitions[topic.name])
                    await asyncio.sleep(0)
        for offsets in declared.offsets:
            count = partitions.get(offsets.topic)
            if count is None:
                known = self._topic(offsets.topic)
                if known is None:
                    raise offsets.place.error(f"there is no topic {offsets.topic}. To do: declare it below topics")
                count = len(known.partitions)
            if isinstance(offsets.offset, dict):
                for partition in offsets.offset:
                    if partition >= count:
                        raise offsets.place.error(
                            f"topic {offsets.topic} has {counted(count, 'partition')}: 0 to {count - 1}"
                        )

    async def _check_partitions(self, topic: DeclaredTopic) -> int:
        """The partitions that a topic will have.

        Raises:
            InitError: it has more now.
        """
        known = self._topic(topic.name)
        if known is None:
            return topic.partitions or self._broker.config[NUM_PARTITIONS]
        has = len(known.partitions)
        if topic.partitions is not None and topic.partitions < has:
            raise topic.place.error(
                f"topic {topic.name} has {has} partitions, which cannot become {topic.partitions}. To do: declare "
                f"{has}, or delete the topic"
            )
        return max(has, topic.partitions or 0)

    # Changes

    async def run(self) -> None:
        """Do what is declared.

        Raises:
            BrokerError: something has failed; :attr:`done` lists what was done before.
        """
        declared = self._declared
        if declared.users:
            for user in await self._broker.add_users(declared.users):
                self.done.append(f"user {user} added")
        await self._add_acls(declared.acls)
        for quota in declared.quotas:
            await self._set_quota(quota, validate_only=False)
        for topic in declared.topics:
            await self._bring_topic(topic)
        for topic in declared.topics:
            if topic.seeds:
                await self._write(topic)
        if declared.offsets:
            await self._broker.load_groups()
            for offsets in declared.offsets:
                await self._commit(offsets)

    async def _add_acls(self, acls: Sequence[tuple[FileLine, AclBinding]]) -> None:
        cluster = self._broker.services.cluster
        new = [binding for _, binding in acls if binding not in cluster.image.acls]
        if not new:
            return

        def decide(image: Image) -> tuple[Sequence[Event], None]:
            return controller.create_acls(image, new), None

        try:
            await cluster.change(decide)
        except KafkaError as error:
            raise acls[0][0].error(f"ACLs cannot be added: {error}") from error
        self.done.append(f"{counted(len(new), 'ACL')} added")

    async def _set_quota(self, quota: DeclaredQuota, *, validate_only: bool) -> None:
        entity = entity_of(quota.entity.items())
        has = self._broker.services.cluster.image.quotas.get(entity, {})
        changed = {key: value for key, value in quota.values.items() if has.get(key) != value}
        if not changed:
            return
        entry = AlterEntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key=key, value=value, remove=False) for key, value in changed.items()],
        )
        request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
        result = (await self._ask(ApiKey.ALTER_CLIENT_QUOTAS, request)).entries[0]
        _check(quota.place, f"quotas for {describe(entity)}", result.error_code, result.error_message)
        if not validate_only:
            self.done.append(f"quotas set for {describe(entity)}")

    async def _create(self, topic: DeclaredTopic, *, validate_only: bool) -> bool:
        """Create a topic; whether it did not exist.

        Raises:
            InitError: the broker refuses it.
        """
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in topic.config.items()]
        creatable = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions or -1,
            replication_factor=-1,
            assignments=[],
            configs=configs,
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=_TIMEOUT_MS, validate_only=validate_only)
        result = (await self._ask(ApiKey.CREATE_TOPICS, request)).topics[0]
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        _check(topic.place, f"topic {topic.name}", result.error_code, result.error_message)
        return True

    async def _bring_topic(self, topic: DeclaredTopic) -> None:
        if await self._create(topic, validate_only=False):
            await self._broker.hosted(topic.name)
            made = self._topic(topic.name)
            count = len(made.partitions) if made is not None else 0
            self.done.append(f"topic {topic.name} created with {counted(count, 'partition')}")
            return
        known = self._topic(topic.name)
        if known is None:
            return
        if topic.partitions is not None and topic.partitions > len(known.partitions):
            grown = CreatePartitionsTopic(name=topic.name, count=topic.partitions, assignments=None)
            grow = CreatePartitionsRequest(topics=[grown], timeout_ms=_TIMEOUT_MS, validate_only=False)
            answer = (await self._ask(ApiKey.CREATE_PARTITIONS, grow)).results[0]
            _check(topic.place, f"topic {topic.name}", answer.error_code, answer.error_message)
            self.done.append(f"topic {topic.name} grown to {topic.partitions} partitions")
        changed = {key: value for key, value in topic.config.items() if known.configs.get(key) != value}
        if changed:
            resource = IncrementalAlterConfigsResource(
                resource_type=_TOPIC,
                resource_name=topic.name,
                configs=[
                    IncrementalAlterableConfig(name=key, config_operation=_SET, value=value)
                    for key, value in changed.items()
                ],
            )
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            result = (await self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)).responses[0]
            _check(topic.place, f"topic {topic.name}", result.error_code, result.error_message)
            self.done.append(f"topic {topic.name}: {', '.join(changed)} set")

    async def _write(self, topic: DeclaredTopic) -> None:
        """Write the records of a topic, if it has never had any."""
        replicas = self._broker.services.replicas
        known = self._topic(topic.name)
        count = 0 if known is None else len(known.partitions)
        if any(replicas.find(topic.name, number).log.log_end_offset for number in range(count)):
            return
        written = 0
        for seed in topic.seeds:
            for some in _some(records_of(seed)):
                by_partition: defaultdict[int, list[SeedRecord]] = defaultdict(list)
                for at, record in enumerate(some, written):
                    by_partition[_partition_of(record, at, count)].append(record)
                for partition, records in by_partition.items():
                    for batch in _batches(records):
                        await self._append(topic.name, partition, batch)
                written += len(some)
        if written:
            self.done.append(f"{counted(written, 'record')} written to topic {topic.name}")

    async def _append(self, topic: str, partition: int, records: Sequence[SeedRecord]) -> None:
        now_ms = time.time_ns() // 1_000_000
        given = [
            (each.key, each.value, each.headers, now_ms if each.timestamp is None else each.timestamp)
            for each in records
        ]
        try:
            replica = self._broker.services.replicas.find(topic, partition)
            await append_records(replica, given, now_ms)
        except KafkaError as error:
            raise records[0].place.error(f"records cannot be written to {topic}-{partition}: {error}") from error

    async def _commit(self, offsets: DeclaredOffsets) -> None:
        """Commit the offsets of a group in a topic, where it has none."""
        known = self._topic(offsets.topic)
        count = 0 if known is None else len(known.partitions)
        wanted = self._resolved(offsets, count)
        asked = OffsetFetchRequestTopics(name=offsets.topic, partition_indexes=list(wanted))
        asked.topic_id = bytes(16) if known is None else known.topic_id
        group = OffsetFetchRequestGroup(group_id=offsets.group, topics=[asked])
        answer = (await self._ask(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[group]))).groups[0]
        _check(offsets.place, f"group {offsets.group}", answer.error_code, None)
        has = {each.partition_index for part in answer.topics for each in part.partitions if each.committed_offset >= 0}
        new = {partition: offset for partition, offset in wanted.items() if partition not in has}
        if not new:
            return
        topic = OffsetCommitRequestTopic(
            name=offsets.topic,
            topic_id=asked.topic_id,
            partitions=[
                OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
                for partition, offset in new.items()
            ],
        )
        request = OffsetCommitRequest(group_id=offsets.group, topics=[topic])
        for each in (await self._ask(ApiKey.OFFSET_COMMIT, request)).topics[0].partitions:
            _check(offsets.place, f"group {offsets.group}", each.error_code, None)
        self.done.append(f"group {offsets.group} begins in topic {offsets.topic} at {_shown(new)}")

    def _resolved(self, offsets: DeclaredOffsets, count: int) -> dict[int, int]:
        """The offset of each partition."""
        find = self._broker.services.replicas.find
        match offsets.offset:
            case dict():
                return dict(offsets.offset)
            case int():
                return dict.fromkeys(range(count), offsets.offset)
            case "earliest":
                return {number: find(offsets.topic, number).log.log_start_offset for number in range(count)}
            case _:
                return {number: find(offsets.topic, number).log.high_watermark for number in range(count)}

    async def _ask(self, key: ApiKey, request: Request) -> Any:
        return await self._broker.ask(key, request, _CLIENT_ID)


def _check(place: FileLine, what: str, code: int, message: str | None) -> None:
    """Raise an error of a response.

    Raises:
        InitError: it has one.
    """
    if code != ErrorCode.NONE:
        raise place.error(f"{what}: {message or ErrorCode.of(code).name}")


def _some(records: Iterator[SeedRecord]) -> Iterator[list[SeedRecord]]:
    while some := list(islice(records, _AT_ONCE)):
        yield some


def _check_partition(records: Iterable[SeedRecord], topic: str, count: int) -> None:
    for record in records:
        if record.partition is not None and record.partition >= count:
            raise record.place.error(
                f"topic {topic} has {counted(count, 'partition')}, no partition {record.partition}"
            )


def _partition_of(record: SeedRecord, number: int, count: int) -> int:
    """The partition of a record: its own, that of its key as Kafka's producers choose it, or in turn."""
    if record.partition is not None:
        return record.partition
    if record.key is not None:
        return (murmur2(record.key) & 0x7FFFFFFF) % count
    return number % count


def _batches(records: Sequence[SeedRecord]) -> Iterator[list[SeedRecord]]:
    batch: list[SeedRecord] = []
    size = 0
    for record in records:
        size += len(record.key or b"") + len(record.value or b"")
        if batch and size > _BATCH_BYTES:
            yield batch
            batch, size = [], len(record.key or b"") + len(record.value or b"")
        batch.append(record)
    if batch:
        yield batch


def _shown(offsets: dict[int, int]) -> str:
    return ", ".join(f"{partition}: {offset}" for partition, offset in offsets.items())
