"""The client of this project."""

import importlib.metadata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import uvloop

from barnabas_client import (
    Admin as BarnabasAdminClient,
)
from barnabas_client import (
    AlterConfigOp,
    ConfigResource,
    Consumer,
    CooperativeStickyAssignor,
    KafkaError,
    NewTopic,
    Producer,
    RangeAssignor,
    RecordMetadata,
    RoundRobinAssignor,
    TopicPartition,
)
from barnabas_client import Assignor as AnyAssignor
from barnabas_client.errors import ProducerFencedError
from tests.interop.clients.base import (
    LIMIT,
    Admin,
    Assignor,
    Client,
    Delivered,
    Fenced,
    Group,
    GroupMember,
    GroupProtocol,
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
STRATEGIES: Final[dict[str, Callable[[], AnyAssignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


async def _call(work: Awaitable[T]) -> T:
    try:
        return await work
    except KafkaError as error:
        kind = Fenced if isinstance(error, ProducerFencedError) else Refused
        raise kind(int(error.code), str(error)) from error


class BarnabasSender(Sender):
    def __init__(self, settings: Mapping[str, Any], options: SenderOptions) -> None:
        self._loop = Loop(uvloop.new_event_loop)
        self._sent: list[Awaitable[RecordMetadata]] = []
        self._producer = self._loop.call(lambda: Producer(**settings, **options.as_keywords()))
        self._loop.run(_call(self._producer.start()))

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
        sent = self._producer.send(topic, value, key, partition, timestamp, list(headers))
        self._sent.append(self._loop.run(_call(sent)))

    def flush(self, timeout: float = LIMIT) -> list[Delivered]:
        async def collect(sent: list[Awaitable[RecordMetadata]]) -> list[Delivered]:
            answers = [await _call(one) for one in sent]
            return [Delivered(one.partition, one.offset) for one in answers]

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


class BarnabasReader(Reader):
    def __init__(self, settings: Mapping[str, Any], options: ReaderOptions) -> None:
        self._loop = Loop(uvloop.new_event_loop)
        arguments = {**settings, **options.as_keywords(STRATEGIES[options.assignor]())}
        if options.protocol == "consumer":  # the broker has these three
            for name in ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"):
                del arguments[name]
        self._consumer = self._loop.call(lambda: Consumer(**arguments, group_protocol=options.protocol))
        self._loop.run(_call(self._consumer.start()))

    def subscribe(self, *topics: str) -> None:
        self._loop.call(lambda: self._consumer.subscribe(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        self._loop.call(lambda: self._consumer.subscribe(pattern=f"^{pattern}$"))

    def assign(self, *partitions: Partition) -> None:
        self._loop.call(lambda: self._consumer.assign([TopicPartition(*partition) for partition in partitions]))

    def poll(self, timeout: float = 0.5) -> list[Record]:
        got = self._loop.run(_call(self._consumer.poll(round(timeout * 1000))), timeout + LIMIT)
        return [Record.of(one) for one in got]

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(*one) for one in self._loop.call(self._consumer.assignment))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._loop.run(_call(self._consumer.commit(wanted)))

    def committed(self, partition: Partition) -> int | None:
        return self._loop.run(_call(self._consumer.committed(TopicPartition(*partition))))

    def group_metadata(self) -> Any:
        return self._loop.call(self._consumer.group_metadata)

    def seek(self, partition: Partition, offset: int) -> None:
        self._loop.call(lambda: self._consumer.seek(TopicPartition(*partition), offset))

    def position(self, partition: Partition) -> int:
        return self._loop.run(_call(self._consumer.position(TopicPartition(*partition))))

    def bounds(self, partition: Partition) -> tuple[int, int]:
        asked = [TopicPartition(*partition)]
        (first,) = self._loop.run(_call(self._consumer.beginning_offsets(asked))).values()
        (end,) = self._loop.run(_call(self._consumer.end_offsets(asked))).values()
        return first, end

    def offset_at(self, partition: Partition, timestamp: int) -> int | None:
        asked = {TopicPartition(*partition): timestamp}
        (found,) = self._loop.run(_call(self._consumer.offsets_for_times(asked))).values()
        return None if found is None else found.offset

    def _close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.close()


class BarnabasAdmin(Admin):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._loop = Loop(uvloop.new_event_loop)
        self._admin = self._loop.call(lambda: BarnabasAdminClient(**settings))
        self._do(self._admin.start())

    def _do(self, work: Awaitable[T]) -> T:
        return self._loop.run(_call(work))

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        self._do(self._admin.create_topics([NewTopic(name, partitions, 1, {}, config or {})]))

    def delete_topic(self, name: str) -> None:
        self._do(self._admin.delete_topics([name]))

    def topics(self) -> dict[str, int]:
        return {one.name: len(one.partitions) for one in self._do(self._admin.describe_topics())}

    def add_partitions(self, topic: str, total: int) -> None:
        self._do(self._admin.create_partitions({topic: total}))

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        (found,) = self._do(self._admin.describe_configs([resource]))
        return {name: entry.value or "" for name, entry in found.entries.items()}

    def topic_config(self, name: str) -> dict[str, str]:
        return self._config(ConfigResource.topic(name))

    def broker_config(self, node: int) -> dict[str, str]:
        return self._config(ConfigResource.broker(node))

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        self._do(self._admin.incremental_alter_configs({ConfigResource.topic(name): [AlterConfigOp(key, value)]}))

    def groups(self) -> frozenset[str]:
        return frozenset(one.group_id for one in self._do(self._admin.list_consumer_groups()))

    def describe_group(self, group: str) -> Group:
        (found,) = self._do(self._admin.describe_consumer_groups([group]))
        members = (
            GroupMember(one.client_id, one.instance_id, frozenset(Partition(*each) for each in one.partitions))
            for one in found.members
        )
        return Group(state_name(found.state), tuple(members))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = self._do(self._admin.list_consumer_group_offsets(group))
        return {Partition(*partition): at.offset for partition, at in found.items() if at.offset is not None}

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._do(self._admin.alter_consumer_group_offsets(group, wanted))

    def delete_group(self, group: str) -> None:
        self._do(self._admin.delete_consumer_groups([group]))

    def delete_records(self, partition: Partition, before: int) -> None:
        self._do(self._admin.delete_records({TopicPartition(*partition): before}))

    def nodes(self) -> list[int]:
        return [broker.node_id for broker in self._do(self._admin.describe_cluster()).brokers]

    def _close(self) -> None:
        self._loop.run(self._admin.close())
        self._loop.close()


class Barnabas(Client):
    NAME: ClassVar[str] = "barnabas"
    ASSIGNORS: ClassVar[frozenset[Assignor]] = frozenset({"range", "roundrobin", "cooperative-sticky"})
    GROUP_PROTOCOLS: ClassVar[frozenset[GroupProtocol]] = frozenset({"classic", "consumer"})

    @property
    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers}
        if self.login is not None:
            settings |= {"ssl_cafile": self.login.trust, **self.login.as_keywords()}
        return settings

    def _sender(self, options: SenderOptions) -> Sender:
        return BarnabasSender(self._settings, options)

    def _reader(self, options: ReaderOptions) -> Reader:
        return BarnabasReader(self._settings, options)

    def _admin(self) -> Admin:
        return BarnabasAdmin(self._settings)

    @classmethod
    def version(cls) -> str:
        return importlib.metadata.version("barnabas")
