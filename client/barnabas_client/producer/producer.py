"""The producer, as programs use it.

:meth:`Producer.send` puts a record into a batch and returns a future at once; it waits only while the partitions of the
topic are not known yet, or while `buffer_memory` is full. :mod:`barnabas_client.producer.accumulator` keeps the
batches, :mod:`barnabas_client.producer.sender` sends them. Other tasks run whenever a batch is full, so a program that
sends without a pause does not block its event loop. Sources: ``KafkaProducer.java``, and aiokafka's
``AIOKafkaProducer`` for names and units.
"""

import asyncio
import random
import ssl
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeGuard

from barnabas_client.checks import check_partition, check_topic, is_int64
from barnabas_client.config import DEFAULT_SERVERS, ClientConfig, Partitioner, ProducerConfig, Serializer, parse_servers
from barnabas_client.errors import (
    BufferExhaustedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_for,
)
from barnabas_client.lifecycle import Lifecycle
from barnabas_client.logs import logger
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.retries import retry_backoff
from barnabas_client.producer.accumulator import OVERHEAD, Accumulator, PartitionQueue
from barnabas_client.producer.partitioner import StickyPartitioner, positive_hash
from barnabas_client.producer.sender import Receipt, Sender
from barnabas_client.structs import RecordMetadata, TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError

_log: Final = logger("barnabas_client.producer.producer")

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class _KnownTopic:
    """The partitions of a topic, those that have a leader, and their queues."""

    partitions: tuple[int, ...]
    available: tuple[int, ...]
    sticky: StickyPartitioner
    queues: dict[int, PartitionQueue] = field(default_factory=dict)


class _KnownTopics:
    """The topics with known partitions, updated with each new cluster.

    It has no reference to the producer: the network refers to it, and a producer that a program drops without `stop`
    must become unreachable, so that its `ResourceWarning` is shown.

    Args:
        accumulator: has the queues.
        updated: called after each update, since batches may be due.
    """

    def __init__(self, accumulator: Accumulator, updated: Callable[[], None]) -> None:
        self.known: dict[str, _KnownTopic] = {}
        self._accumulator = accumulator
        self._updated = updated
        self._stickies: dict[str, StickyPartitioner] = {}

    def update(self, cluster: Cluster) -> None:
        """Apply a new cluster."""
        for topic in cluster.topics:
            partitions = cluster.partitions(topic)
            if partitions is None:
                self.known.pop(topic, None)
                continue
            available = cluster.available(topic)
            known = self.known.get(topic)
            if known is None or known.partitions != partitions or known.available != available:
                size = self._accumulator.config.batch_size
                sticky = self._stickies.setdefault(topic, StickyPartitioner(size, random.randrange))
                queues = {number: self._accumulator.queue(TopicPartition(topic, number)) for number in partitions}
                self.known[topic] = _KnownTopic(partitions, available, sticky, queues)
        for tp, queue in self._accumulator.waiting.items():
            leader = cluster.leader(tp)
            if leader is not None:
                queue.led_by(leader)
        self._updated()


class Producer:
    """Writes records to topics.

    ::

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("flights", b"...", key=b"N14228")

    :class:`~barnabas_client.config.ProducerConfig` and :class:`~barnabas_client.config.ClientConfig` describe the
    settings. Nothing is connected before :meth:`start`. Call all methods in the event loop in which you called it.

    Raises:
        TypeError, ValueError: a setting is not valid; the message names it and a valid value.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Iterable[str] = DEFAULT_SERVERS,
        client_id: str = ClientConfig.client_id,
        metadata_max_age_ms: int = ClientConfig.metadata_max_age_ms,
        request_timeout_ms: int = ClientConfig.request_timeout_ms,
        acks: int | str | None = ProducerConfig.acks,
        enable_idempotence: bool | None = ProducerConfig.enable_idempotence,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        compression_type: str | None = ProducerConfig.compression_type,
        batch_size: int = ProducerConfig.batch_size,
        max_batch_size: int | None = None,
        partitioner: Partitioner | None = None,
        max_request_size: int = ProducerConfig.max_request_size,
        linger_ms: int = ProducerConfig.linger_ms,
        buffer_memory: int = ProducerConfig.buffer_memory,
        max_block_ms: int = ProducerConfig.max_block_ms,
        delivery_timeout_ms: int = ProducerConfig.delivery_timeout_ms,
        retry_backoff_ms: int = ClientConfig.retry_backoff_ms,
        retry_backoff_max_ms: int = ClientConfig.retry_backoff_max_ms,
        security_protocol: str = ClientConfig.security_protocol,
        ssl_context: ssl.SSLContext | None = ClientConfig.ssl_context,
        connections_max_idle_ms: int = ClientConfig.connections_max_idle_ms,
    ) -> None:
        """Create a producer that is not started. `max_batch_size` is aiokafka's name for `batch_size`."""
        client = ClientConfig(
            servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            connections_max_idle_ms=connections_max_idle_ms,
            security_protocol=security_protocol,
            ssl_context=ssl_context,
        )
        self._config = ProducerConfig(
            acks=acks,
            enable_idempotence=enable_idempotence,
            compression_type=compression_type,
            batch_size=batch_size if max_batch_size is None else max_batch_size,
            linger_ms=linger_ms,
            max_request_size=max_request_size,
            buffer_memory=buffer_memory,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            partitioner=partitioner,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
        )
        self._state = Lifecycle.NEW
        self._accumulator = Accumulator(self._config)
        self._progress = asyncio.Event()
        self._network = Network(client, auto_create=True)
        self._sender = Sender(self._network, self._accumulator, self._progress.set)
        self._topics = _KnownTopics(self._accumulator, self._sender.wake)
        self._network.listeners.append(self._topics.update)

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaConnectionError: no broker answers.
            IllegalStateError: it was started before.
        """
        if self._state is not Lifecycle.NEW:
            raise IllegalStateError("start(): this producer was started already. To do: make a new one")
        try:
            await self._network.start()
        except BaseException:
            self._state = Lifecycle.CLOSED
            await self._network.close()
            raise
        self._sender.start()
        self._state = Lifecycle.RUNNING

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Send all pending records, and disconnect. A second call does nothing.

        Args:
            timeout_ms: how long to wait for acknowledgements; `delivery_timeout_ms` if None. Records that are not
                acknowledged then fail with `ProducerClosedError`.
        """
        running, self._state = self._state is Lifecycle.RUNNING, Lifecycle.CLOSED
        if not running:
            return
        milliseconds = self._config.delivery_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(milliseconds / 1000):
                await self._flush()
        except TimeoutError:
            _log.warning("stopping with unacknowledged records", batches=len(self._accumulator.unresolved))
        finally:
            await self._sender.close()
            self._progress.set()
            await self._network.close()

    async def close(self, timeout_ms: int | None = None) -> None:
        """The same as :meth:`stop`."""
        await self.stop(timeout_ms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __del__(self) -> None:
        if getattr(self, "_state", None) is Lifecycle.RUNNING:
            warnings.warn(
                f"{self!r} was never stopped: await stop(), or use `async with`", ResourceWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        return f"<Producer to {', '.join(sorted(self._topics.known)) or 'nothing yet'}, {self._state.value}>"

    # Sending.

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Receipt:
        """Put a record into a batch.

        Args:
            topic: its name.
            value: bytes, or what `value_serializer` takes; None is null, which deletes the key in a compacted topic.
            key: bytes, or what `key_serializer` takes; None is null.
            partition: its number; None chooses by the key, or any partition for a record without a key.
            timestamp_ms: milliseconds since 1970; now if None.
            headers: names with values, in order.

        Returns:
            A future that is done with the acknowledgement, and says where the record was written. It fails with
            `DeliveryTimeoutError`, or with the error of the broker. Cancelling it does not take the record back. If
            you ignore the futures, call :meth:`flush` before you rely on delivery.

        Raises:
            IllegalStateError: not started.
            ProducerClosedError: stopped.
            RecordTooLargeError: larger than `max_request_size`.
            BufferExhaustedError: `buffer_memory` stayed full for `max_block_ms`.
            KafkaTimeoutError: the topic's partitions were not known within `max_block_ms`.
            UnknownTopicOrPartitionError: the topic does not have that partition.
            TypeError: key or value is not bytes, or partition or time is not a number.
            ValueError: a topic, header or time that is not valid.
        """
        known = self._topics.known.get(topic)
        if known is None or self._state is not Lifecycle.RUNNING:
            known = await self._learn(topic)
        config = self._config
        if config.key_serializer is not None and key is not None:
            key = config.key_serializer(key)
        if config.value_serializer is not None and value is not None:
            value = config.value_serializer(value)
        size = self._size(topic, key, value, headers)
        chosen = self._choose(topic, known, partition, key, size)
        queue = known.queues.get(chosen)
        if queue is None:
            check_partition(f"send to {topic}", chosen)
            raise UnknownTopicOrPartitionError(
                f"send to {topic}: it has no partition {chosen!r}, only {len(known.partitions)}. To do: leave "
                "partition out, or choose one of them"
            )
        accumulator = self._accumulator
        if accumulator.memory and accumulator.memory + size > config.buffer_memory:
            await self._wait_for_room(size)
        loop = asyncio.get_running_loop()
        receipt: Receipt = loop.create_future()
        timestamp = int(time.time() * 1000) if timestamp_ms is None else _timestamp(topic, timestamp_ms)
        if queue.append(key, value, headers or (), timestamp, receipt, loop.time()):
            self._sender.wake()
            if len(queue.batches) > 1:
                await asyncio.sleep(0)  # a batch is full: let the sender run
        return receipt

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send a record and wait for the acknowledgement.

        Raises:
            KafkaError: as :meth:`send`, or the record was refused or not acknowledged in time.
        """
        receipt = await self.send(topic, value, key, partition, timestamp_ms, headers)
        return await receipt

    async def flush(self) -> None:
        """Wait until each record that was sent before is acknowledged or has failed; see the futures of :meth:`send`.

        Raises:
            IllegalStateError: not started, or stopped.
        """
        self._check_running()
        await self._flush()

    async def partitions_for(self, topic: str) -> frozenset[int]:
        """The partition numbers of a topic.

        Raises:
            KafkaTimeoutError: they were not known within `max_block_ms`.
        """
        return frozenset((await self._learn(topic)).partitions)

    # Inside.

    def _check_running(self) -> None:
        if self._state is Lifecycle.CLOSED:
            raise ProducerClosedError("this producer was stopped. To do: make a new one")
        if self._state is Lifecycle.NEW:
            raise IllegalStateError(
                "this producer is not started. To do: await start() first, or use it in `async with`"
            )
        if self._sender.failure is not None:
            raise self._sender.failure.with_traceback(None)

    def _size(self, topic: str, key: object, value: object, headers: Headers | None) -> int:
        if not (value is None or type(value) is bytes or _is_bytes(value)):
            raise TypeError(
                f"send to {topic}: the value is {type(value).__name__}: give bytes, or set value_serializer"
            )
        if not (key is None or type(key) is bytes or _is_bytes(key)):
            raise TypeError(f"send to {topic}: the key is {type(key).__name__}: give bytes, or set key_serializer")
        size = OVERHEAD + (0 if key is None else len(key)) + (0 if value is None else len(value))
        if headers:
            size += _headers_size(topic, headers)
        if size > self._config.max_request_size:
            raise RecordTooLargeError(
                f"send to {topic}: a record of {size} bytes is larger than max_request_size "
                f"{self._config.max_request_size}. To do: "
                "raise it, and the topic's max.message.bytes, or send less"
            )
        return size

    def _choose(self, topic: str, known: _KnownTopic, partition: int | None, key: bytes | None, size: int) -> int:
        if partition is not None:
            return partition
        if self._config.partitioner is not None:
            return self._config.partitioner(key, known.partitions, known.available)
        if key is not None:
            return known.partitions[positive_hash(bytes(key)) % len(known.partitions)]
        return known.sticky.next(known.available or known.partitions, size)

    async def _learn(self, topic: str) -> _KnownTopic:
        """Wait until a topic's partitions are known, and return them."""
        self._check_running()
        check_topic("send", topic)
        network = self._network
        network.watch_also([topic])
        backoff = retry_backoff(network.config)
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                while (known := self._topics.known.get(topic)) is None:
                    self._check_running()
                    try:
                        cluster = await network.refresh(self._config.max_block_ms / 1000)
                    except KafkaError as error:
                        last = error
                    else:
                        last = _topic_error(cluster, topic)
                        self._topics.update(cluster)
                    if topic not in self._topics.known:
                        await asyncio.sleep(backoff.failed())
        except TimeoutError as error:
            why = "" if last is None else f"; the last attempt: {last}"
            raise KafkaTimeoutError(
                f"send to {topic}: its partitions were not known within max_block_ms ({self._config.max_block_ms} "
                f"ms){why}"
            ) from error
        return known

    async def _wait_for_room(self, size: int) -> None:
        accumulator, limit = self._accumulator, self._config.buffer_memory
        await self._wait(
            lambda: not accumulator.memory or accumulator.memory + size <= limit,
            BufferExhaustedError,
            f"send: buffer_memory ({limit} bytes) stayed full for max_block_ms ({self._config.max_block_ms} ms). "
            "To do: send more slowly, check the brokers, or raise it",
        )

    async def _wait(self, until: Callable[[], bool], error: type[KafkaTimeoutError], message: str) -> None:
        self._accumulator.flushing += 1
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                while not until():
                    self._progress.clear()
                    self._sender.wake()
                    await self._progress.wait()
                    self._check_running()
        except TimeoutError as cause:
            raise error(message) from cause
        finally:
            self._accumulator.flushing -= 1

    async def _flush(self) -> None:
        accumulator = self._accumulator
        batches = list(accumulator.unresolved)
        accumulator.flushing += 1
        try:
            while any(batch in accumulator.unresolved for batch in batches):
                self._progress.clear()
                self._sender.wake()
                await self._progress.wait()
        finally:
            accumulator.flushing -= 1


def _topic_error(cluster: Cluster, topic: str) -> KafkaError | None:
    known = cluster.topics.get(topic)
    if known is None or known.error == ErrorCode.NONE:
        return None
    error = error_for(known.error, f"send to {topic}")
    if isinstance(error, InvalidTopicError | TopicAuthorizationFailedError):
        raise error
    return error


def _is_bytes(value: object) -> TypeGuard[bytes | bytearray | memoryview]:
    """Whether `len` is the size in bytes, which it is not for a view of larger items."""
    return isinstance(value, bytes | bytearray) or (isinstance(value, memoryview) and value.nbytes == len(value))


def _timestamp(topic: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"send to {topic}: timestamp_ms is {given!r}: give milliseconds since 1970")
    if not is_int64(given):
        raise ValueError(f"send to {topic}: timestamp_ms is {given}: give milliseconds since 1970, at least 0")
    return given


def _headers_size(topic: str, headers: Headers) -> int:
    size = 0
    for header in headers:
        if not (
            isinstance(header, tuple | list)
            and len(header) == 2
            and isinstance(header[0], str)
            and (header[1] is None or _is_bytes(header[1]))
        ):
            raise TypeError(
                f"send to {topic}: {header!r} is not a header: give a name with bytes, such as ('name', b'x')"
            )
        try:
            size += len(header[0].encode()) + 10 + len(header[1] or b"")
        except UnicodeEncodeError as error:
            raise ValueError(f"send to {topic}: the header's name {header[0]!r} cannot be encoded: {error}") from error
    return size
