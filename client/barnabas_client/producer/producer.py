"""The producer, as programs see it.

:meth:`Producer.send` puts a record into a batch and returns a future at once; it waits only while the topic is not
known yet, or while `buffer_memory` is full. Batches are :mod:`barnabas_client.producer.accumulator`'s business, sending
and its failures are :mod:`barnabas_client.producer.sender`'s. A program that sends without a pause lets other tasks run
whenever a batch is full. Sources: ``KafkaProducer.java``, and aiokafka's ``AIOKafkaProducer``, whose names and units
these are.
"""

import asyncio
import random
import ssl
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
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
from barnabas_client.logs import logger
from barnabas_client.network.backoff import Backoff
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network, jitter
from barnabas_client.producer.accumulator import OVERHEAD, Accumulator, Queue
from barnabas_client.producer.partitioner import StickyPartitioner, positive_hash
from barnabas_client.producer.sender import Receipt, Sender
from barnabas_client.structs import RecordMetadata, TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError

_log: Final = logger("barnabas_client.producer.producer")

Headers = Sequence[tuple[str, bytes | None]]


class _Phase(Enum):
    NEW = "not started"
    RUNNING = "started"
    CLOSED = "stopped"


@dataclass(slots=True)
class _Topic:
    """What a send needs to know of a topic."""

    partitions: tuple[int, ...]
    available: tuple[int, ...]
    sticky: StickyPartitioner
    queues: dict[int, Queue] = field(default_factory=dict)


class _Topics:
    """The topics that sends need, kept as the cluster changes.

    Apart from the producer, so that one that is forgotten without a stop is no longer reachable, and warned about.
    """

    def __init__(self, accumulator: Accumulator) -> None:
        self.known: dict[str, _Topic] = {}
        self.sender: Sender | None = None
        self._accumulator = accumulator
        self._stickies: dict[str, StickyPartitioner] = {}

    def update(self, cluster: Cluster) -> None:
        """Take over a new cluster."""
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
                self.known[topic] = _Topic(partitions, available, sticky, queues)
        for tp, queue in self._accumulator.waiting.items():
            leader = cluster.leader(tp)
            if leader is not None:
                queue.led_by(leader)
        if self.sender is not None:
            self.sender.wake()


class Producer:
    """Writes records to topics.

    ::

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("flights", b"...", key=b"N14228")

    Settings are explained at :class:`~barnabas_client.config.ProducerConfig` and
    :class:`~barnabas_client.config.ClientConfig`. Nothing happens before :meth:`start`. All methods belong to the event
    loop that called it.

    Raises:
        TypeError, ValueError: a setting that cannot be; the message names it and what would be right.
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
        """Nothing is connected yet. `max_batch_size` is aiokafka's name of `batch_size`."""
        self._client = ClientConfig(
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
        self._phase = _Phase.NEW
        self._accumulator = Accumulator(self._config)
        self._topics = _Topics(self._accumulator)
        self._progress = asyncio.Event()
        self._network: Network | None = None
        self._sender: Sender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaConnectionError: no broker answers.
            IllegalStateError: it was started before.
        """
        if self._phase is not _Phase.NEW:
            raise IllegalStateError(f"start(): this producer is {self._phase.value} already. To do: make a new one")
        self._loop = asyncio.get_running_loop()
        network = self._network = Network(self._client, auto_create=True)
        try:
            await network.start()
        except BaseException:
            self._phase = _Phase.CLOSED
            await network.close()
            raise
        network.listeners.append(self._topics.update)
        self._sender = self._topics.sender = Sender(network, self._accumulator, self._progress.set)
        self._sender.start()
        self._phase = _Phase.RUNNING

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Send what waits, and disconnect. A second call does nothing.

        Args:
            timeout_ms: how long to wait for acknowledgements; `delivery_timeout_ms` if None. What is not acknowledged
                then fails with `ProducerClosedError`.
        """
        if self._phase is not _Phase.RUNNING:
            self._phase = _Phase.CLOSED
            return
        self._phase = _Phase.CLOSED
        milliseconds = self._config.delivery_timeout_ms if timeout_ms is None else timeout_ms
        assert self._sender is not None
        assert self._network is not None
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
        if getattr(self, "_phase", None) is _Phase.RUNNING:
            warnings.warn(
                f"{self!r} was never stopped: await stop(), or use `async with`", ResourceWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        return f"<Producer to {', '.join(sorted(self._topics.known)) or 'nothing yet'}, {self._phase.value}>"

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
            value: bytes, or what `value_serializer` takes; None is null, which compaction takes as a deletion of the
                key.
            key: bytes, or what `key_serializer` takes; None is null.
            partition: where it goes; by its key, or where there is one, if None.
            timestamp_ms: milliseconds since 1970; now if None.
            headers: names with values, in order.

        Returns:
            A future of where it was written, with acknowledgement. It fails with `DeliveryTimeoutError`, or with what
            the broker refused it for. To cancel it does not take the record back.

        Raises:
            IllegalStateError: not started.
            ProducerClosedError: stopped.
            RecordTooLargeError: larger than `max_request_size`.
            BufferExhaustedError: no room within `max_block_ms`.
            KafkaTimeoutError: the topic's partitions were not known within `max_block_ms`.
            UnknownTopicOrPartitionError: there is no such partition.
            TypeError: what is to be bytes, or a number, is not.
            ValueError: a topic, header or time that no record can have.
        """
        known = self._topics.known.get(topic)
        if known is None or self._phase is not _Phase.RUNNING:
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
        loop, sender = self._loop, self._sender
        assert loop is not None
        assert sender is not None
        receipt: Receipt = loop.create_future()
        timestamp = int(time.time() * 1000) if timestamp_ms is None else _timestamp(topic, timestamp_ms)
        if queue.append(key, value, headers or (), timestamp, receipt, loop.time()):
            sender.wake()
            if len(queue.batches) > 1:
                await asyncio.sleep(0)  # a batch is full: let it go
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
        """:meth:`send`, and wait for the acknowledgement.

        Raises:
            KafkaError: see :meth:`send`; or the record was refused or not acknowledged in time.
        """
        receipt = await self.send(topic, value, key, partition, timestamp_ms, headers)
        return await receipt

    async def flush(self) -> None:
        """Wait until everything that was sent before has its fate. Failures are told by the futures of `send`.

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
        if self._phase is _Phase.CLOSED:
            raise ProducerClosedError("this producer was stopped. To do: make a new one")
        if self._phase is _Phase.NEW:
            raise IllegalStateError(
                "this producer is not started. To do: await start() first, or use it in `async with`"
            )
        if self._sender is not None and self._sender.failure is not None:
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
                f"{self._config.max_request_size}. To do: raise "
                f"it, and the topic's max.message.bytes, or send less"
            )
        return size

    def _choose(self, topic: str, known: _Topic, partition: int | None, key: bytes | None, size: int) -> int:
        if partition is not None:
            return partition
        if self._config.partitioner is not None:
            return self._config.partitioner(key, known.partitions, known.available)
        if key is not None:
            return known.partitions[positive_hash(bytes(key)) % len(known.partitions)]
        return known.sticky.next(known.available or known.partitions, size)

    async def _learn(self, topic: str) -> _Topic:
        """A topic's partitions, waiting for them if they are not known."""
        self._check_running()
        check_topic("send", topic)
        network = self._network
        assert network is not None
        network.watch_also([topic])
        backoff = Backoff(self._client.retry_backoff_ms / 1000, self._client.retry_backoff_max_ms / 1000, jitter)
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
            f"send: buffer_memory ({limit} bytes) stayed full for max_block_ms ({self._config.max_block_ms} ms). To "
            "do: send more "
            f"slowly, check the brokers, or raise it",
        )

    async def _wait(self, until: Callable[[], bool], error: type[KafkaTimeoutError], message: str) -> None:
        self._accumulator.flushing += 1
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                while not until():
                    self._progress.clear()
                    self._wake()
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
                self._wake()
                await self._progress.wait()
        finally:
            accumulator.flushing -= 1

    def _wake(self) -> None:
        if self._sender is not None:
            self._sender.wake()


def _topic_error(cluster: Cluster, topic: str) -> KafkaError | None:
    known = cluster.topics.get(topic)
    if known is None or known.error == ErrorCode.NONE:
        return None
    error = error_for(known.error, f"send to {topic}")
    if isinstance(error, InvalidTopicError | TopicAuthorizationFailedError):
        raise error
    return error


def _is_bytes(value: object) -> TypeGuard[bytes | bytearray | memoryview]:
    """A view of larger items has another length than its bytes."""
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
            raise TypeError(f"send to {topic}: {header!r} is no header: give a name with bytes, such as ('name', b'x')")
        try:
            size += len(header[0].encode()) + 10 + len(header[1] or b"")
        except UnicodeEncodeError as error:
            raise ValueError(f"send to {topic}: the header's name {header[0]!r} cannot be encoded: {error}") from error
    return size
