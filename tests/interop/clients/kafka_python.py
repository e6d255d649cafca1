"""kafka-python."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    for_code,
    kafka_errors,
)
from kafka.structs import OffsetAndMetadata

from tests.interop.clients.base import (
    LIMIT,
    Admin,
    Assignor,
    Client,
    Compression,
    Delivered,
    Fenced,
    Group,
    GroupMember,
    Partition,
    Reader,
    ReaderOptions,
    Record,
    Refused,
    Sender,
    SenderOptions,
    state_name,
)
from tests.kafka_python import kafka

T = TypeVar("T")
ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
#: The codecs that need another package.
CODECS: Final[Mapping[Compression, str]] = {"snappy": "snappy", "lz4": "lz4", "zstd": "zstandard"}


def _available() -> frozenset[Compression]:
    found: set[Compression] = {"none", "gzip"}
    return frozenset(found | {codec for codec, module in CODECS.items() if importlib.util.find_spec(module)})


def _call(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    try:
        return work(*args, **kwargs)
    except KafkaTimeoutError as error:
        raise TimeoutError(str(error)) from error
    except KafkaError as error:
        kind = Fenced if isinstance(error, ProducerFencedError | InvalidProducerEpochError) else Refused
        raise kind(int(getattr(error, "errno", None) or -1), repr(error)) from error


def _check(code: int, about: str) -> None:
    if code:
        raise Refused(code, f"{for_code(code).__name__} {about}")


def _offsets(offsets: Mapping[Partition, int]) -> dict[Any, OffsetAndMetadata]:
    return {TopicPartition(*partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}


class PythonSender(Sender):
    def __init__(self, settings: Mapping[str, object], transactional: bool) -> None:
        self._sent: list[Any] = []
        self._producer = _call(KafkaProducer, **settings)
        if transactional:
            _call(self._producer.init_transactions)

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
        sent = _call(
            self._producer.send, topic, value, key, headers=list(headers), partition=partition, timestamp_ms=timestamp
        )
        self._sent.append(sent)

    def flush(self, timeout: float = LIMIT) -> list[Delivered]:
        _call(self._producer.flush, timeout)
        sent, self._sent = self._sent, []
        results = [_call(one.get, timeout=timeout) for one in sent]
        return [Delivered(one.partition, one.offset) for one in results]

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def commit(self) -> None:
        _call(self._producer.commit_transaction)

    def abort(self) -> None:
        _call(self._producer.abort_transaction)

    def send_offsets(self, reader: Reader, offsets: Mapping[Partition, int]) -> None:
        _call(self._producer.send_offsets_to_transaction, _offsets(offsets), reader.group_metadata())

    def _close(self) -> None:
        self._producer.close(timeout=5)


class PythonReader(Reader):
    # kafka-python 3.0.12 loses a SyncGroup response that arrives when a poll ends: it then has no partitions and sends
    # no heartbeats, with any broker. A rebalance fits into one longer poll.
    PATIENCE: ClassVar[float] = 1.0

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._consumer = _call(KafkaConsumer, **settings)

    def subscribe(self, *topics: str) -> None:
        self._consumer.subscribe(list(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        self._consumer.subscribe(pattern=f"^{pattern}$")

    def assign(self, *partitions: Partition) -> None:
        self._consumer.assign([TopicPartition(*partition) for partition in partitions])

    def poll(self, timeout: float = 0.5) -> list[Record]:
        got = _call(self._consumer.poll, int(timeout * 1000))
        return [Record.of(one) for batch in got.values() for one in batch]

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(*one) for one in self._consumer.assignment())

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        _call(self._consumer.commit, _offsets(offsets), timeout_ms=int(LIMIT * 1000))

    def committed(self, partition: Partition) -> int | None:
        found: int | None = _call(self._consumer.committed, TopicPartition(*partition))
        return found

    def group_metadata(self) -> Any:
        return self._consumer.group_metadata()

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def position(self, partition: Partition) -> int:
        return int(_call(self._consumer.position, TopicPartition(*partition)))

    def bounds(self, partition: Partition) -> tuple[int, int]:
        asked = [TopicPartition(*partition)]
        (first,) = _call(self._consumer.beginning_offsets, asked).values()
        (end,) = _call(self._consumer.end_offsets, asked).values()
        return int(first), int(end)

    def offset_at(self, partition: Partition, timestamp: int) -> int | None:
        (found,) = _call(self._consumer.offsets_for_times, {TopicPartition(*partition): timestamp}).values()
        return None if found is None else int(found.offset)

    def _close(self) -> None:
        self._consumer.close(timeout_ms=5000)


class PythonAdmin(Admin):
    def __init__(self, settings: Mapping[str, object]) -> None:
        self._admin = _call(KafkaAdminClient, **settings)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        wanted = {name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}}
        _call(self._admin.create_topics, wanted)

    def delete_topic(self, name: str) -> None:
        _call(self._admin.delete_topics, [name])

    def topics(self) -> dict[str, int]:
        return {one["name"]: len(one["partitions"]) for one in _call(self._admin.describe_topics)}

    def add_partitions(self, topic: str, total: int) -> None:
        _call(self._admin.create_partitions, {topic: total})

    def _config(self, kind: ConfigResourceType, name: str) -> dict[str, str]:
        answer = _call(self._admin.describe_configs, [ConfigResource(kind, name)], config_filter="all")
        return {key: entry["value"] for key, entry in answer[kind.name.lower()][name].items()}

    def topic_config(self, name: str) -> dict[str, str]:
        return self._config(ConfigResourceType.TOPIC, name)

    def broker_config(self, node: int) -> dict[str, str]:
        return self._config(ConfigResourceType.BROKER, str(node))

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        _call(self._admin.alter_configs, [ConfigResource(ConfigResourceType.TOPIC, name, {key: value})])

    def nodes(self) -> list[int]:
        return sorted(one["broker_id"] for one in _call(self._admin.describe_cluster)["brokers"])

    def groups(self) -> frozenset[str]:
        return frozenset(one["group_id"] for one in _call(self._admin.list_groups))

    def describe_group(self, group: str) -> Group:
        found = _call(self._admin.describe_groups, [group])[group]
        if found["error"] is not None:
            raise Refused(-1, found["error"])
        members = []
        for member in found["members"]:
            assignment = member["member_assignment"]
            shares = assignment["assigned_partitions"] if assignment else []
            partitions = frozenset(Partition(one["topic"], number) for one in shares for number in one["partitions"])
            members.append(GroupMember(member["client_id"], member["group_instance_id"], partitions))
        return Group(state_name(found["group_state"]), tuple(members))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = _call(self._admin.list_group_offsets, [group])[group]
        return {Partition(*partition): int(at.offset) for partition, at in found.items()}

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        for failed in _call(self._admin.alter_group_offsets, group, _offsets(offsets)).values():
            _check(failed.errno, group)

    def delete_group(self, group: str) -> None:
        result = _call(self._admin.delete_groups, [group])[group]
        if result != "OK":  # the name of the error's class, without its code
            _check(next(code for code, kind in kafka_errors.items() if kind.__name__ == result), group)

    def delete_records(self, partition: Partition, before: int) -> None:
        _call(self._admin.delete_records, {TopicPartition(*partition): before})

    def _close(self) -> None:
        self._admin.close()


class Python(Client):
    NAME: ClassVar[str] = "kafka-python"
    COMPRESSIONS: ClassVar[frozenset[Compression]] = _available()
    ASSIGNORS: ClassVar[frozenset[Assignor]] = frozenset({"range", "roundrobin", "cooperative-sticky"})

    def _sender(self, options: SenderOptions) -> Sender:
        settings = {"max_block_ms": int(LIMIT * 1000), **options.as_keywords()}
        return PythonSender({**self._settings, **settings}, options.transactional_id is not None)

    def _reader(self, options: ReaderOptions) -> Reader:
        return PythonReader({**self._settings, **options.as_keywords(ASSIGNORS[options.assignor])})

    @property
    def _settings(self) -> dict[str, object]:
        settings: dict[str, object] = {"bootstrap_servers": self.bootstrap_servers, "reconnect_backoff_max_ms": 500}
        if self.login is not None:
            settings |= {"ssl_cafile": self.login.trust, **self.login.as_keywords()}
        return settings

    def _admin(self) -> Admin:
        return PythonAdmin(self._settings)

    @classmethod
    def version(cls) -> str:
        return str(kafka.__version__)
