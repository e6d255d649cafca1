"""aiokafka."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError, ProducerFenced, for_code
from aiokafka.helpers import create_ssl_context

from tests.interop.clients.base import (
    LIMIT,
    Admin,
    Client,
    Delivered,
    Fenced,
    Group,
    GroupMember,
    Loop,
    Partition,
    Reader,
    ReaderOptions,
    Record,
    Refused,
    Sender,
    SenderOptions,
    state_name,
)

T = TypeVar("T")
ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


async def _call(work: Awaitable[T]) -> T:
    try:
        return await work
    except KafkaError as error:
        kind = Fenced if isinstance(error, ProducerFenced) else Refused
        raise kind(int(getattr(error, "errno", None) or -1), repr(error)) from error


def _check(code: int, about: str) -> None:
    if code:
        raise Refused(code, f"{for_code(code).__name__} {about}")


class AioSender(Sender):
    def __init__(self, settings: Mapping[str, object]) -> None:
        self._loop = Loop()
        self._sent: list[Awaitable[Any]] = []
        self._producer = self._loop.call(lambda: AIOKafkaProducer(**settings))
        try:
            self._loop.run(_call(self._producer.start()))
        except BaseException:
            self.close()
            raise

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        sent = self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp, headers=list(headers) or None
        )
        self._sent.append(self._loop.run(_call(sent)))

    def flush(self, timeout: float = LIMIT) -> list[Delivered]:
        async def collect(sent: list[Awaitable[Any]]) -> list[Delivered]:
            answers = [await _call(one) for one in sent]
            # Without acknowledgement, aiokafka's result is None.
            return [Delivered(-1, -1) if one is None else Delivered(one.partition, one.offset) for one in answers]

        sent, self._sent = self._sent, []
        return self._loop.run(collect(sent), timeout)

    def begin(self) -> None:
        self._loop.run(_call(self._producer.begin_transaction()))

    def commit(self) -> None:
        self._loop.run(_call(self._producer.commit_transaction()))

    def abort(self) -> None:
        self._loop.run(_call(self._producer.abort_transaction()))

    def send_offsets(self, reader: Reader, offsets: Mapping[Partition, int]) -> None:
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._loop.run(_call(self._producer.send_offsets_to_transaction(wanted, reader.group_metadata())))

    def _close(self) -> None:
        self._loop.run(self._producer.stop())
        self._loop.close()


class Gate:
    """A rebalance listener that delays a revocation while the scenario still works on records of the last poll."""

    def __init__(self) -> None:
        self.in_hand = asyncio.Lock()

    async def on_partitions_revoked(self, revoked: object) -> None:
        async with self.in_hand:
            pass

    def on_partitions_assigned(self, assigned: object) -> None:
        pass


class AioReader(Reader):
    def __init__(self, settings: Mapping[str, object], group: str | None) -> None:
        self._loop = Loop()
        self._group = group
        self._gate = self._loop.call(Gate)
        ConsumerRebalanceListener.register(Gate)  # untyped, it cannot be inherited from
        self._consumer = self._loop.call(lambda: AIOKafkaConsumer(**settings))
        try:
            self._loop.run(_call(self._consumer.start()))
        except BaseException:
            self.close()
            raise

    def subscribe(self, *topics: str) -> None:
        self._loop.call(lambda: self._consumer.subscribe(list(topics), listener=self._gate))

    def subscribe_pattern(self, pattern: str) -> None:
        self._loop.call(lambda: self._consumer.subscribe(pattern=f"^{pattern}$", listener=self._gate))

    def assign(self, *partitions: Partition) -> None:
        self._loop.call(lambda: self._consumer.assign([TopicPartition(*partition) for partition in partitions]))

    def poll(self, timeout: float = 0.5) -> list[Record]:
        got = self._loop.run(self._take(timeout), timeout + LIMIT)
        return [Record.of(one) for batch in got.values() for one in batch]

    async def _take(self, timeout: float) -> dict[TopicPartition, list[Any]]:
        in_hand = self._gate.in_hand
        if in_hand.locked():
            in_hand.release()
            await asyncio.sleep(0)  # lets the listener have it
        got: dict[TopicPartition, list[Any]] = await _call(self._consumer.getmany(timeout_ms=int(timeout * 1000)))
        if got:
            await in_hand.acquire()
        return got

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(*one) for one in self._loop.call(self._consumer.assignment))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._loop.run(_call(self._consumer.commit(wanted)))

    def committed(self, partition: Partition) -> int | None:
        found: int | None = self._loop.run(_call(self._consumer.committed(TopicPartition(*partition))))
        return found

    def group_metadata(self) -> Any:
        return self._group

    def seek(self, partition: Partition, offset: int) -> None:
        self._loop.call(lambda: self._consumer.seek(TopicPartition(*partition), offset))

    def position(self, partition: Partition) -> int:
        return int(self._loop.run(_call(self._consumer.position(TopicPartition(*partition)))))

    def bounds(self, partition: Partition) -> tuple[int, int]:
        asked = [TopicPartition(*partition)]
        (first,) = self._loop.run(_call(self._consumer.beginning_offsets(asked))).values()
        (end,) = self._loop.run(_call(self._consumer.end_offsets(asked))).values()
        return int(first), int(end)

    def offset_at(self, partition: Partition, timestamp: int) -> int | None:
        asked = {TopicPartition(*partition): timestamp}
        (found,) = self._loop.run(_call(self._consumer.offsets_for_times(asked))).values()
        return None if found is None else int(found.offset)

    def _close(self) -> None:
        if self._gate.in_hand.locked():
            self._loop.call(self._gate.in_hand.release)
        self._loop.run(self._consumer.stop())
        self._loop.close()


class AioAdmin(Admin):
    def __init__(self, settings: Mapping[str, object]) -> None:
        self._loop = Loop()
        self._admin = self._loop.call(lambda: AIOKafkaAdminClient(**settings))
        try:
            self._do(self._admin.start)
        except BaseException:
            self.close()
            raise

    def _do(self, work: Callable[..., Awaitable[Any]], *args: object) -> Any:
        return self._loop.run(_call(work(*args)))

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        wanted = NewTopic(name, partitions, 1, topic_configs=dict(config or {}))
        ((_, code, text),) = self._do(self._admin.create_topics, [wanted]).topic_errors
        _check(code, f"{name}: {text}")

    def delete_topic(self, name: str) -> None:
        ((_, code),) = self._do(self._admin.delete_topics, [name]).topic_error_codes
        _check(code, name)

    def topics(self) -> dict[str, int]:
        return {one["topic"]: len(one["partitions"]) for one in self._do(self._admin.describe_topics)}

    def add_partitions(self, topic: str, total: int) -> None:
        self._do(self._admin.create_partitions, {topic: NewPartitions(total)})

    def _config(self, kind: ConfigResourceType, name: str) -> dict[str, str]:
        (answer,) = self._do(self._admin.describe_configs, [ConfigResource(kind, name)])
        ((code, text, _, _, entries),) = answer.resources
        _check(code, f"{name}: {text}")
        return {entry[0]: entry[1] for entry in entries}

    def topic_config(self, name: str) -> dict[str, str]:
        return self._config(ConfigResourceType.TOPIC, name)

    def broker_config(self, node: int) -> dict[str, str]:
        return self._config(ConfigResourceType.BROKER, str(node))

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {key: value})
        for answer in self._do(self._admin.alter_configs, [resource]):
            for code, text, *_ in answer.resources:
                _check(code, f"{name}: {text}")

    def nodes(self) -> list[int]:
        return sorted(one["node_id"] for one in self._do(self._admin.describe_cluster)["brokers"])

    def groups(self) -> frozenset[str]:
        return frozenset(str(one[0]) for one in self._do(self._admin.list_consumer_groups))

    def describe_group(self, group: str) -> Group:
        (answer,) = self._do(self._admin.describe_consumer_groups, [group])
        ((code, _, state, _, _, members, *_),) = answer.groups
        _check(code, group)
        found = []
        for _, *rest in members:
            # From version 4 on the instance id follows the member id.
            instance_id = rest.pop(0) if len(rest) > 4 else None
            client_id, _, _, assignment = rest
            shares = ConsumerProtocolMemberAssignment.decode(assignment).assignment if assignment else []
            partitions = frozenset(Partition(topic, number) for topic, numbers in shares for number in numbers)
            found.append(GroupMember(client_id, instance_id, partitions))
        return Group(state_name(state), tuple(found))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = self._do(self._admin.list_consumer_group_offsets, group)
        return {Partition(*partition): int(at.offset) for partition, at in found.items()}

    def delete_records(self, partition: Partition, before: int) -> None:
        self._do(self._admin.delete_records, {TopicPartition(*partition): RecordsToDelete(before)})

    def _close(self) -> None:
        self._loop.run(self._admin.close())
        self._loop.close()


class Aio(Client):
    NAME: ClassVar[str] = "aiokafka"

    @property
    def _settings(self) -> dict[str, object]:
        settings: dict[str, object] = {"bootstrap_servers": self.bootstrap_servers}
        if self.login is not None:
            settings |= {"ssl_context": create_ssl_context(cafile=self.login.trust), **self.login.as_keywords()}
        return settings

    def _sender(self, options: SenderOptions) -> Sender:
        return AioSender({**self._settings, **options.as_keywords()})

    def _reader(self, options: ReaderOptions) -> Reader:
        settings = options.as_keywords(ASSIGNORS[options.assignor])
        return AioReader({**self._settings, "max_poll_records": 500, **settings}, options.group)

    def _admin(self) -> Admin:
        return AioAdmin(self._settings)

    @classmethod
    def version(cls) -> str:
        return str(aiokafka.__version__)
