"""confluent-kafka, which is librdkafka in Python."""

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.interop.clients.base import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    LIMIT,
    MAX_REQUEST_BYTES,
    METADATA_MAX_AGE_MS,
    Admin,
    Assignor,
    Client,
    Delivered,
    Fenced,
    Group,
    GroupMember,
    GroupProtocol,
    Partition,
    Reader,
    ReaderOptions,
    Record,
    Refused,
    Sender,
    SenderOptions,
)

K = TypeVar("K")
T = TypeVar("T")
Headers = Sequence[tuple[str, bytes]]
NO_OFFSET: Final = -1001
#: librdkafka reports these errors to polls and retries anyway, as with its own errors, below zero.
PASSING: Final = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


def _refused(error: KafkaError) -> Refused:
    kind = Fenced if error.code() == KafkaError._FENCED else Refused
    return kind(error.code(), error.str())


def _call(work: Callable[[], T]) -> T:
    try:
        return work()
    except KafkaException as error:
        raise _refused(error.args[0]) from error


def _done(futures: "Mapping[K, concurrent.futures.Future[T]]") -> T:
    """Return the result of the only future."""
    (future,) = futures.values()
    return _call(lambda: future.result(LIMIT))


def _pairs(headers: object) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, dict) else headers if isinstance(headers, list) else ()
    return tuple((str(name), value) for name, value in pairs)


def _quiet(error: KafkaError) -> None:
    """Brokers come and go in these tests; the delivered records show real errors."""


class ConfluentSender(Sender):
    def __init__(self, settings: Mapping[str, object], transactional: bool) -> None:
        self._producer = Producer({**settings, "error_cb": _quiet})
        if transactional:
            _call(lambda: self._producer.init_transactions(LIMIT))
        self._sent = 0
        self._results: dict[int, Delivered | KafkaError] = {}

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        number = self._sent
        self._sent += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._results[number] = error
            else:
                offset = message.offset()
                self._results[number] = Delivered(
                    message.partition() or 0, -1 if offset in (None, NO_OFFSET) else offset
                )

        self._producer.produce(
            topic,
            value,
            key,
            partition=-1 if partition is None else partition,
            on_delivery=delivered,
            timestamp=timestamp or 0,
            headers=list(headers),
        )
        self._producer.poll(0)

    def flush(self, timeout: float = LIMIT) -> list[Delivered]:
        if self._producer.flush(timeout):
            raise TimeoutError(f"{len(self._producer)} records are not delivered after {timeout:.0f} s")
        results = [self._results[number] for number in range(self._sent)]
        self._sent, self._results = 0, {}
        for one in results:
            if isinstance(one, KafkaError):
                raise _refused(one)
        return [one for one in results if isinstance(one, Delivered)]

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def commit(self) -> None:
        _call(lambda: self._producer.commit_transaction(LIMIT))

    def abort(self) -> None:
        _call(lambda: self._producer.abort_transaction(LIMIT))

    def send_offsets(self, reader: Reader, offsets: Mapping[Partition, int]) -> None:
        wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        _call(lambda: self._producer.send_offsets_to_transaction(wanted, reader.group_metadata(), LIMIT))

    def _close(self) -> None:
        self._producer.purge()
        try:
            self._producer.close()
        except KafkaException as error:
            if not error.args[0].fatal():  # which a call has raised already
                raise


class ConfluentReader(Reader):
    def __init__(self, settings: Mapping[str, object], start: int) -> None:
        self._start = start
        self._taken: list[Message] = []
        self._consumer = Consumer({**settings, "error_cb": _quiet})

    def subscribe(self, *topics: str) -> None:
        # With a callback, rebalances happen within polls; without one, at any time.
        self._consumer.subscribe(list(topics), on_revoke=self._revoked, on_lost=self._revoked)

    def subscribe_pattern(self, pattern: str) -> None:
        self.subscribe(f"^{pattern}$")

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {(one.topic, one.partition) for one in partitions}
        self._taken = [one for one in self._taken if (one.topic(), one.partition()) not in gone]

    def assign(self, *partitions: Partition) -> None:
        self._consumer.assign([TopicPartition(*partition, self._start) for partition in partitions])

    def poll(self, timeout: float = 0.5) -> list[Record]:
        self._taken = []
        message = _call(lambda: self._consumer.poll(timeout))
        while message is not None:
            self._taken.append(message)
            message = _call(lambda: self._consumer.poll(0)) if len(self._taken) < 500 else None
        records = []
        for message in self._taken:
            error = message.error()
            if error is not None:
                if error.code() in PASSING or error.code() < 0:
                    continue
                raise _refused(error)
            topic, number, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and number is not None and offset is not None
            records.append(
                Record(
                    Partition(topic, number),
                    offset,
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    _pairs(message.headers()),
                )
            )
        return records

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(one.topic, one.partition) for one in self._consumer.assignment())

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        for one in _call(lambda: self._consumer.commit(offsets=wanted, asynchronous=False)):
            if one.error is not None:
                raise _refused(one.error)

    def committed(self, partition: Partition) -> int | None:
        (found,) = _call(lambda: self._consumer.committed([TopicPartition(*partition)], LIMIT))
        if found.error is not None:
            raise _refused(found.error)
        return None if found.offset == NO_OFFSET else found.offset

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def seek(self, partition: Partition, offset: int) -> None:
        _call(lambda: self._consumer.seek(TopicPartition(*partition, offset)))

    def position(self, partition: Partition) -> int:
        (found,) = self._consumer.position([TopicPartition(*partition)])
        return found.offset

    def bounds(self, partition: Partition) -> tuple[int, int]:
        return _call(lambda: self._consumer.get_watermark_offsets(TopicPartition(*partition), LIMIT, cached=False))

    def offset_at(self, partition: Partition, timestamp: int) -> int | None:
        asked = [TopicPartition(*partition, timestamp)]
        (found,) = _call(lambda: self._consumer.offsets_for_times(asked, LIMIT))
        return None if found.offset == -1 else found.offset

    def _close(self) -> None:
        self._consumer.close()


class ConfluentAdmin(Admin):
    def __init__(self, settings: Mapping[str, str | int]) -> None:
        self._admin = AdminClient({**settings})

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        _done(self._admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))]))

    def delete_topic(self, name: str) -> None:
        _done(self._admin.delete_topics([name]))

    def topics(self) -> dict[str, int]:
        listed = _call(lambda: self._admin.list_topics(timeout=LIMIT))
        return {name: len(topic.partitions) for name, topic in listed.topics.items()}

    def add_partitions(self, topic: str, total: int) -> None:
        _done(self._admin.create_partitions([NewPartitions(topic, total)]))

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        return {name: entry.value for name, entry in _done(self._admin.describe_configs([resource])).items()}

    def topic_config(self, name: str) -> dict[str, str]:
        return self._config(ConfigResource(ResourceType.TOPIC, name))

    def broker_config(self, node: int) -> dict[str, str]:
        return self._config(ConfigResource(ResourceType.BROKER, str(node)))

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        _done(self._admin.incremental_alter_configs([resource]))

    def nodes(self) -> list[int]:
        return sorted(self._admin.list_topics(timeout=LIMIT).brokers)

    def groups(self) -> frozenset[str]:
        listed = _call(lambda: self._admin.list_consumer_groups().result(LIMIT))
        return frozenset(group.group_id for group in listed.valid)

    def describe_group(self, group: str) -> Group:
        found = _done(self._admin.describe_consumer_groups([group]))
        members = (
            GroupMember(
                member.client_id,
                member.group_instance_id,
                frozenset(Partition(one.topic, one.partition) for one in member.assignment.topic_partitions),
            )
            for member in found.members
        )
        return Group(found.state.name, tuple(members))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = _done(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {Partition(one.topic, one.partition): one.offset for one in found.topic_partitions}

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        _done(self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))

    def delete_group(self, group: str) -> None:
        _done(self._admin.delete_consumer_groups([group]))

    def delete_records(self, partition: Partition, before: int) -> None:
        _done(self._admin.delete_records([TopicPartition(*partition, before)]))

    def _close(self) -> None:
        pass


class Confluent(Client):
    NAME: ClassVar[str] = "confluent-kafka"
    ASSIGNORS: ClassVar[frozenset[Assignor]] = frozenset({"range", "roundrobin", "cooperative-sticky"})
    GROUP_PROTOCOLS: ClassVar[frozenset[GroupProtocol]] = frozenset({"classic", "consumer"})

    @property
    def _settings(self) -> dict[str, str | int]:
        settings: dict[str, str | int] = {
            "bootstrap.servers": self.bootstrap_servers,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
        if self.login is not None:
            settings |= {"security.protocol": self.login.protocol, "ssl.ca.location": self.login.trust}
            if self.login.mechanism is not None:
                settings |= {
                    "sasl.mechanism": self.login.mechanism,
                    "sasl.username": self.login.user,
                    "sasl.password": self.login.password,
                }
        return settings

    def _sender(self, options: SenderOptions) -> Sender:
        settings = {
            **self._settings,
            "acks": options.acks,
            "compression.type": options.compression,
            "enable.idempotence": options.idempotent,
            "linger.ms": options.linger_ms,
            "message.max.bytes": MAX_REQUEST_BYTES,
        }
        if options.transactional_id is not None:
            settings["transactional.id"] = options.transactional_id
        return ConfluentSender(settings, options.transactional_id is not None)

    def _reader(self, options: ReaderOptions) -> Reader:
        settings: dict[str, object] = {
            **self._settings,
            "group.id": options.group or "no group",  # it requires one even where none is used
            "client.id": options.client_id,
            "auto.offset.reset": options.offset_reset,
            "enable.auto.commit": options.auto_commit,
            "auto.commit.interval.ms": AUTO_COMMIT_MS,
            "isolation.level": options.isolation,
            "group.protocol": options.protocol,
            "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
        }
        if options.protocol == "classic":  # otherwise the broker has these three
            settings["partition.assignment.strategy"] = options.assignor
            settings["session.timeout.ms"] = options.session_timeout_ms
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        if options.instance_id is not None:
            settings["group.instance.id"] = options.instance_id
        # Without a group it has no committed offsets to look up: the start is given as an offset.
        start = OFFSET_STORED if options.group else OFFSET_BEGINNING if options.from_start else OFFSET_END
        return ConfluentReader(settings, start)

    def _admin(self) -> Admin:
        return ConfluentAdmin(self._settings)

    @classmethod
    def version(cls) -> str:
        return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
