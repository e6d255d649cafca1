"""The producer, as programs use it.

:meth:`Producer.send` puts a record into a batch and returns a future at once; it waits only while the partitions of the
topic are not known yet, or while `buffer_memory` is full. :mod:`barnabas_client.producer.accumulator` keeps the
batches, :mod:`barnabas_client.producer.sender` sends them. Other tasks run whenever a batch is full, so a program that
sends without a pause does not block its event loop. Sources: ``KafkaProducer.java``, and aiokafka's
``AIOKafkaProducer`` for names and units.
"""

import asyncio
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Never, Self, Unpack, overload

from barnabas_client.checks import Offset, check_topic, offsets_of
from barnabas_client.config import (
    DEFAULT_SERVERS,
    ClientConfig,
    ContextSerializer,
    ProducerSettings,
    Serializer,
    default_client_id,
    parse_servers,
)
from barnabas_client.errors import (
    BufferExhaustedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    ProducerClosedError,
    TopicAuthorizationFailedError,
    error_for,
)
from barnabas_client.keywords import taken, takes, unknown_argument
from barnabas_client.lifecycle import AsyncOnly, Life, State
from barnabas_client.logs import logger
from barnabas_client.meters import Metrics
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.retries import retry_backoff
from barnabas_client.producer.accumulator import Accumulator, PartitionQueue
from barnabas_client.producer.config import ProducerConfig
from barnabas_client.producer.measure import OVERHEAD, Headers
from barnabas_client.producer.metrics import ProducerMeters
from barnabas_client.producer.partitioner import partitions_of
from barnabas_client.producer.reading import ReadBatch, RecordReader
from barnabas_client.producer.receipts import BatchReceipt, Receipt
from barnabas_client.producer.sender import Sender
from barnabas_client.producer.topics import KnownTopic, KnownTopics, NoRoomError
from barnabas_client.producer.transaction_manager import TransactionManager
from barnabas_client.serialization import conversion_of
from barnabas_client.structs import ConsumerGroupMetadata, PreparedTransaction, RecordMetadata, TopicPartition
from barnabas_client.tasks import uninterrupted
from barnabas_client.tracing import tracing
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import RecordColumns
from barnabas_protocol.wire import Buffer

if TYPE_CHECKING:
    # As in `barnabas_client.structs`.
    from typing_extensions import TypeVar

    #: What keys and values are serialized from.
    K = TypeVar("K", contravariant=True, default=Buffer)
    V = TypeVar("V", contravariant=True, default=Buffer)
    #: What a serializer takes: Any if it is a lambda.
    SK = TypeVar("SK", default=Any)
    SV = TypeVar("SV", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K", contravariant=True)
    V = TypeVar("V", contravariant=True)
    SK = TypeVar("SK")
    SV = TypeVar("SV")

_log: Final = logger("barnabas_client.producer.producer")

#: Python 3.11 runs Python code to find the member of an enumeration, which `send` does not do for each record.
_RUNNING: Final = State.RUNNING


class Producer(AsyncOnly, Generic[K, V]):
    """Writes records to topics.

    ::

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("flights", b"...", key=b"N14228")

    ``Producer[K, V]`` takes keys of K and values of V: what its serializers take, bytes without them. Nothing is
    connected before :meth:`start`. Call all methods in the event loop in which you called it.

    Args:
        bootstrap_servers: addresses to start with, ``"host:port,host:port"`` or a list of such strings; the cluster
            names the others. Default: "localhost:9092".
        client_id: the name of this client in the brokers' logs. Default: None, which is "barnabas-producer-" and the
            process id, so that producers can be told apart: "barnabas-producer-4711" for the first one of a process,
            "barnabas-producer-4711-2" for the second one.
        metadata_max_age_ms: how often metadata is refreshed when nothing else refreshes it. Default: 300000 ms.
        request_timeout_ms: how long a response may take before the connection is closed. Default: 40000 ms.
        acks: when a record counts as written: "all" (or -1) in all in-sync replicas, 1 on the leader, 0 when it was
            sent. Default: None, which is "all".
        enable_idempotence: the broker drops duplicates and keeps the order, through any retry. Default: None, which is
            on with ``acks="all"``.
        key_serializer: makes a key's bytes; None stays a null key. A function of two arguments also gets a
            :class:`~barnabas.SerializationContext`; a coroutine function is awaited. Default: None, keys are bytes.
        value_serializer: makes a value's bytes, likewise; None stays a null value. Default: None, values are bytes.
        compression_type: the codec of batches: "none", "gzip", "snappy", "lz4" or "zstd". Default: None, which is
            "none".
        batch_size: bytes of records that fit into one batch before it is compressed. Default: 16384 bytes.
        max_batch_size: aiokafka's name for `batch_size`, in bytes. Default: None, which leaves it to `batch_size`.
        transactional_id: the name of this producer's transactions: with it, all records are sent in transactions (see
            :meth:`transaction`), and an earlier producer with the same name is fenced. Default: None.
        transaction_timeout_ms: after which the coordinator aborts a transaction, and fences this producer. Default:
            60000 ms.
        partitioner: chooses the partition, from the key's bytes or None, all partitions, and the partitions that have a
            leader. Default: None, which is Kafka's default partitioner.
        max_request_size: the limit of one request, and so of one record. Default: 1048576 bytes.
        linger_ms: how long a batch that is not full waits for more records. Default: 0 ms.
        buffer_memory: bytes of records that may wait for their acknowledgement; :meth:`send` waits when there are more.
            Default: 33554432 bytes.
        max_block_ms: how long :meth:`send` may wait for room and for the topic's partitions. Default: 60000 ms.
        delivery_timeout_ms: the time from :meth:`send` to the acknowledgement, retries included. Default: 120000 ms.
        close_timeout_ms: how long the end of ``async with`` waits for acknowledgements if the block was cancelled, as
            by Ctrl-C; otherwise it waits for up to `delivery_timeout_ms`. Default: 10000 ms.
        retry_backoff_ms: the pause before the first retry; it doubles up to `retry_backoff_max_ms` (KIP-580). Default:
            100 ms.
        retry_backoff_max_ms: the longest pause before a retry. Default: 1000 ms.
        security_protocol: "PLAINTEXT", "SSL" for TLS, "SASL_SSL" to log in over TLS, or "SASL_PLAINTEXT" to log in
            without it. Default: "PLAINTEXT".
        ssl_context: the context for TLS. Default: None, which makes one of the next five.
        ssl_cafile: a PEM file with the certificates to trust. Default: None, which trusts the system's.
        ssl_certfile: a PEM file with this client's certificate, and its key unless `ssl_keyfile` is given. Default:
            None.
        ssl_keyfile: a PEM file with the key of that certificate. Default: None.
        ssl_password: the password of an encrypted key. Default: None.
        ssl_check_hostname: check that the certificate of a broker is for its host name. Default: True.
        sasl_mechanism: how to log in: "PLAIN", which sends the password, "SCRAM-SHA-256", "SCRAM-SHA-512", or
            "OAUTHBEARER", which sends a token. Default: "PLAIN".
        sasl_plain_username: the user, for all mechanisms but OAUTHBEARER. Default: None.
        sasl_plain_password: the user's password. Default: None.
        sasl_oauth_token_provider: gives the tokens of OAUTHBEARER; see
            :class:`~barnabas_client.tokens.AbstractTokenProvider`. Default: None.
        connections_max_idle_ms: connections that are idle for so long are closed. Default: 540000 ms.

    Raises:
        TypeError, ValueError: a setting is not valid; the message names it and a valid value.
    """

    @overload
    def __init__(
        self: "Producer[Buffer, Buffer]",
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Producer[SK, Buffer]",
        *,
        key_serializer: Serializer[SK],
        value_serializer: None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Producer[Buffer, SV]",
        *,
        key_serializer: None = None,
        value_serializer: Serializer[SV],
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Producer[SK, SV]",
        *,
        key_serializer: Serializer[SK],
        value_serializer: Serializer[SV],
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Producer[SK, SV]",
        *,
        key_serializer: Serializer[SK] | ContextSerializer[SK] | None = None,
        value_serializer: ContextSerializer[SV],
        **settings: Unpack[ProducerSettings],
    ) -> None: ...

    @takes(ProducerConfig, ClientConfig)
    def __init__(
        self,
        *,
        bootstrap_servers: str | Iterable[str] = DEFAULT_SERVERS,
        client_id: str | None = None,
        max_batch_size: int | None = None,
        **settings: Any,
    ) -> None:
        client = ClientConfig(
            servers=parse_servers(bootstrap_servers),
            client_id=default_client_id("-producer") if client_id is None else client_id,
            **taken(ClientConfig, settings),
        )
        if max_batch_size is not None:
            settings["batch_size"] = max_batch_size
        self._config = ProducerConfig(**settings)
        #: None if serializers are plain functions: `KnownTopic.append` calls these.
        self._conversion = conversion_of(self._config.key_serializer, self._config.value_serializer)
        if self._conversion is not None:
            self._config = ProducerConfig(**vars(self._config) | {"key_serializer": None, "value_serializer": None})
        if (traces := tracing()) is not None:
            traces.trace_producer(self, client.client_id)
        self._life = Life("producer", ProducerClosedError)
        self._accumulator = Accumulator(self._config)
        self._progress = asyncio.Event()
        self._network = Network(client, auto_create=True)
        self._transactions: TransactionManager | None = None
        if self._config.transactional_id is not None:
            self._transactions = TransactionManager(
                self._network, self._accumulator, self._config.transactional_id, self._config.transaction_timeout_ms
            )
            self._accumulator.may_send = self._transactions.may_send
        self._meters = ProducerMeters(time.monotonic())
        self._sender = Sender(
            self._network,
            self._accumulator,
            _progress_of(self._progress, self._transactions),
            self._meters,
            self._transactions,
        )
        if self._transactions is not None:
            self._transactions.send_batches = self._sender.wake
        self._topics = KnownTopics(self._accumulator, self._sender.wake)
        self._network.listeners.append(self._topics.update)

    async def start(self) -> None:
        """Connect. With a `transactional_id`, also get its producer id: earlier producers with this name are fenced,
        and a transaction that one of them left open is aborted.

        Raises:
            KafkaConnectionError: no broker answers.
            KafkaTimeoutError: the transaction coordinator did not answer within `max_block_ms`.
            ProducerClosedError: it was stopped meanwhile.
            IllegalStateError: it was started before.
            KafkaError: the transaction coordinator refused it.
        """
        await self._life.start(self._connect, self._disconnect)
        self._sender.start()

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Send all pending records, and disconnect. A second call does nothing. A :meth:`start` in progress ends.

        An open transaction is aborted, unless it is prepared; one that is being committed is waited for.

        ``async with`` calls it; if the block was cancelled, as by Ctrl-C, with `close_timeout_ms`.

        Args:
            timeout_ms: how long to wait for acknowledgements; `delivery_timeout_ms` if None. Records that are not
                acknowledged then fail with `ProducerClosedError`.
        """
        if self._life.state is State.STOPPED:
            return
        self._life.check()
        before, self._life.state = self._life.state, State.STOPPED
        if before is State.STARTING:
            try:
                await self._life.end_start()
            finally:
                await uninterrupted(self._disconnect())
        if before is not State.RUNNING:
            return
        milliseconds = self._config.delivery_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(milliseconds / 1000):
                if self._transactions is not None:
                    await self._transactions.finish()
                await self._flush()
        except TimeoutError:
            _log.warning("stopping with unacknowledged records", batches=len(self._accumulator.unresolved))
        except KafkaError as error:
            _log.warning("stopping without an end of the transaction", reason=str(error))
        finally:
            await uninterrupted(self._end())

    async def close(self, timeout_ms: int | None = None) -> None:
        """The same as :meth:`stop`.

        Args:
            timeout_ms: how long to wait for acknowledgements; `delivery_timeout_ms` if None.
        """
        await self.stop(timeout_ms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            # Ctrl-C, or a cancellation: the program is to end now, even if no broker answers.
            limit = min(self._config.close_timeout_ms, self._config.delivery_timeout_ms)
            if self._life.state is State.RUNNING and self._accumulator.unresolved:
                _log.warning(
                    "cancelled; waiting for acknowledgements",
                    batches=len(self._accumulator.unresolved),
                    at_most_ms=limit,
                )
            await self.stop(limit)
        else:
            await self.stop()

    def __repr__(self) -> str:
        return f"<Producer to {', '.join(sorted(self._topics.known)) or 'nothing yet'}, {self._life.state.value}>"

    # Sending.

    async def send(
        self,
        /,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        **_unknown: Never,
    ) -> Receipt:
        """Put a record into a batch.

        Args:
            topic: its name.
            value: what `value_serializer` takes, or bytes; None is null, which deletes the key in a compacted topic.
            key: what `key_serializer` takes, or bytes; None is null.
            partition: its number; None chooses by the key, or any partition for a record without a key.
            timestamp_ms: milliseconds since 1970; now if None.
            headers: names with values, in order.

        Returns:
            A future that is done with the acknowledgement, and says where the record was written. It fails with
            `DeliveryTimeoutError`, or with the error of the broker. Cancelling it does not take the record back. If
            you ignore the futures, call :meth:`flush` before you rely on delivery.

        Raises:
            IllegalStateError: not started, or outside of a transaction, with a `transactional_id`.
            ProducerClosedError: stopped.
            TransactionAbortableError: the transaction has failed and can only be aborted.
            ProducerFencedError: another producer has the `transactional_id`.
            RecordTooLargeError: larger than `max_request_size`.
            BufferExhaustedError: `buffer_memory` stayed full for `max_block_ms`.
            KafkaTimeoutError: the topic's partitions were not known within `max_block_ms`.
            UnknownTopicOrPartitionError: the topic does not have that partition.
            TypeError: key or value is not bytes, or partition or time is not a number.
            ValueError: a topic, header or time that is not valid.
            Exception: what a serializer raised.
        """
        if _unknown:
            raise unknown_argument(Producer.send, _unknown)
        known = self._ready(topic)
        if known is None:
            known = await self._learn(topic)
        if self._conversion is not None:
            key, value, headers = await self._conversion.convert(topic, key, value, headers)
            known = self._ready(topic) or await self._learn(topic)  # again: this waited
        try:
            batch = known.append("send", value, key, partition, timestamp_ms, headers)
        except NoRoomError as full:
            await self._wait_for_room(full.size)
            if self._transactions is not None:
                self._transactions.check_send()  # again: the transaction may have ended meanwhile
            batch = full.queue.append(full.content, full.size)
        receipt = Receipt(batch.delivery, batch.count - 1, batch.timestamp)
        if self._transactions is not None:
            self._transactions.add(batch.tp)
        if batch.count == 1:
            self._sender.wake()
            if len(batch.queue.batches) > 1:
                await asyncio.sleep(0)  # a batch is full: let the sender run
        return receipt

    def send_nowait(
        self,
        /,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        **_unknown: Never,
    ) -> Receipt:
        """Put a record into a batch without waiting: for callbacks, and other code that is not a coroutine.

        Batches are sent while the event loop runs: a coroutine that calls this many times should await something now
        and then, or use :meth:`send`.

        Args:
            topic: see :meth:`send`, as for all others. Await :meth:`partitions_for` before the first record.
            value: what `value_serializer` takes, or bytes; None is null.
            key: what `key_serializer` takes, or bytes; None is null.
            partition: its number; None chooses one.
            timestamp_ms: milliseconds since 1970; now if None.
            headers: names with values, in order.

        Raises:
            BufferExhaustedError: `buffer_memory` is full. :meth:`send` would wait.
            IllegalStateError: not started, outside of a transaction with a `transactional_id`, or the topic's
                partitions are not known yet.
            KafkaError: as :meth:`send`, but for its timeouts.
            TypeError, ValueError: as :meth:`send`.
        """
        if _unknown:
            raise unknown_argument(Producer.send_nowait, _unknown)
        known = self._ready(topic)
        if known is None:
            self._check_running()
            check_topic("send_nowait", topic)
            raise IllegalStateError(
                f"send_nowait to {topic}: its partitions are not known yet. To do: await partitions_for({topic!r}) "
                "before, or await send(...) instead"
            )
        if self._conversion is not None:
            now = self._conversion.convert_now(topic, key, value, headers)
            if now is None:
                raise IllegalStateError(
                    f"send_nowait to {topic}: a serializer has to be awaited. To do: await send(...) instead"
                )
            key, value, headers = now
        try:
            batch = known.append("send_nowait", value, key, partition, timestamp_ms, headers)
        except NoRoomError:
            raise BufferExhaustedError(
                f"send_nowait to {topic}: buffer_memory ({self._config.buffer_memory} bytes) is full. To do: await "
                "send(...), which waits for room, or raise it"
            ) from None
        if self._transactions is not None:
            self._transactions.add(batch.tp)
        if batch.count == 1:
            self._sender.wake()
        return Receipt(batch.delivery, batch.count - 1, batch.timestamp)

    async def send_and_wait(
        self,
        /,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        **_unknown: Never,
    ) -> RecordMetadata:
        """Send a record and wait for the acknowledgement.

        Args:
            topic: see :meth:`send`, as for all others.
            value: what `value_serializer` takes, or bytes; None is null.
            key: what `key_serializer` takes, or bytes; None is null.
            partition: its number; None chooses one.
            timestamp_ms: milliseconds since 1970; now if None.
            headers: names with values, in order.

        Raises:
            KafkaError: as :meth:`send`, or the record was refused or not acknowledged in time.
        """
        if _unknown:
            raise unknown_argument(Producer.send_and_wait, _unknown)
        receipt = await self.send(topic, value, key, partition, timestamp_ms, headers)
        return await receipt

    async def send_many(
        self,
        /,
        topic: str,
        values: Iterable[V | None],
        keys: Iterable[K | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        timestamps_ms: Iterable[int] | None = None,
        partition: int | None = None,
        **_unknown: Never,
    ) -> list[BatchReceipt]:
        """Put many records into batches: several times as fast as :meth:`send` for each, and otherwise the same.

        ::

            receipts = await producer.send_many("flights", values, keys)
            for written in await asyncio.gather(*receipts):
                print(written.partition, written.offset, written.record_count)

        Iterables are read up to 4,096 items, or 1 MiB, at a time, so they may be endless; do not change an item after
        it was read. This waits while `buffer_memory` is full, and lets other tasks run meanwhile. If it raises, or is
        cancelled, the records before that are sent, and no other.

        Args:
            topic: its name.
            values: as :meth:`send` takes them, in a list, a generator or any other iterable.
            keys: as many; None for records without a key.
            headers: as many: a sequence of headers, or None, for each record. ``itertools.repeat`` gives all the same.
            timestamps_ms: as many: milliseconds since 1970; None for now.
            partition: of all records; None chooses one for each, as :meth:`send` does.

        Returns:
            A receipt for the records of each batch: await it to know where they were written.

        Raises:
            IllegalStateError: not started, or outside of a transaction, with a `transactional_id`.
            ProducerClosedError: stopped.
            TransactionAbortableError: the transaction has failed and can only be aborted.
            ProducerFencedError: another producer has the `transactional_id`.
            RecordTooLargeError: a record is larger than `max_request_size`.
            BufferExhaustedError: `buffer_memory` stayed full for `max_block_ms`.
            KafkaTimeoutError: the topic's partitions were not known within `max_block_ms`.
            UnknownTopicOrPartitionError: the topic does not have that partition.
            TypeError: an argument is not an iterable, or an item is not of a type that :meth:`send` takes; the message
                says which one.
            ValueError: a topic, header or time that is not valid, or more values than keys, headers or times.
            Exception: what an iterable or a serializer raised.
        """
        if _unknown:
            raise unknown_argument(Producer.send_many, _unknown)
        known = self._ready(topic) or await self._learn(topic)
        if partition is not None and partition not in known.queues:
            raise known.no_partition(f"send_many to {topic}", partition)
        reader = RecordReader(topic, values, keys, headers, timestamps_ms, self._config)
        receipts: list[BatchReceipt] = []
        while True:
            if self._conversion is None:
                chunk = reader.read(int(time.time() * 1000))
            else:
                chunk = await reader.read_converted(int(time.time() * 1000), topic, self._conversion)
            if chunk is None:
                return receipts
            numbers: Sequence[int] | None = None
            if partition is None:
                chunk, numbers = self._choose_many(topic, known, chunk, reader)
            first, at = reader.count - chunk.size, 0
            while at < chunk.size:
                known = self._ready(topic) or await self._learn(topic)
                end = at + self._fitting(chunk, at)
                if end == at:
                    rest = chunk.columns.size(at, chunk.size, OVERHEAD)
                    await self._wait_for_room(min(rest, self._config.batch_size))
                elif numbers is None:
                    number = partition
                    if number is None:
                        number, end = known.next_run(chunk.columns, at, end)
                    queue = known.queues[number]
                    receipts += self._extend(queue, chunk.columns, at, range(first + at, first + end))
                else:
                    places: defaultdict[int, list[int]] = defaultdict(list)
                    for place, number in enumerate(numbers[at:end], at):
                        places[number].append(place)
                    for number, some in places.items():
                        records = array("q", map(first.__add__, some))
                        receipts += self._extend(known.queues[number], chunk.columns.pick(some), 0, records)
                at = end
            # Batches may be full: let the sender run, and other tasks.
            await asyncio.sleep(0)

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

    def metrics(self) -> Metrics:
        """Metrics of this producer, by Kafka's names: ``record-send-total``, ``record-error-total``,
        ``request-latency-avg``, ``batch-size-avg``, ``record-queue-time-max``, ``buffer-available-bytes`` and so on.
        None means that it has not happened yet. See :mod:`barnabas_client.producer.metrics`.
        """
        self._life.check()
        return self._meters.values(self._config.buffer_memory, self._accumulator.memory, time.monotonic())

    # Transactions.

    async def begin_transaction(self) -> None:
        """Begin a transaction. :meth:`transaction` is simpler: it also ends it.

        Raises:
            IllegalStateError: a transaction is not over yet, or there is no `transactional_id`.
            ProducerFencedError: another producer has taken over the `transactional_id`.
            KafkaError: the producer has failed: stop it and start a new one.
        """
        self._transactional("begin_transaction").begin()

    async def commit_transaction(self) -> None:
        """Commit the transaction: wait until all its records are acknowledged, and then until it is decided.

        Raises:
            TransactionAbortableError: a record or an offset could not be written. Abort it; nothing of it is visible.
            ProducerFencedError: another producer has taken over the `transactional_id`.
            KafkaTimeoutError: it is not decided after `max_block_ms`. The attempt goes on: call this again.
            IllegalStateError: there is no transaction.
            KafkaError: the producer has failed: stop it and start a new one.
        """
        await self._transactional("commit_transaction").commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction. Records that are not sent yet fail with `TransactionAbortedError`.

        Raises:
            ProducerFencedError: another producer has taken over the `transactional_id`.
            KafkaTimeoutError: it is not over after `max_block_ms`. The attempt goes on: call this again.
            IllegalStateError: there is no transaction.
            KafkaError: the producer has failed: stop it and start a new one.
        """
        await self._transactional("abort_transaction").abort()

    async def prepare_transaction(self) -> PreparedTransaction:
        """Wait until all records of the transaction are acknowledged, and leave it open: another program, which need
        not know this producer, commits or aborts it with :meth:`Admin.end_transactions`. This producer does nothing
        more; stop it.

        The coordinator aborts a prepared transaction as any other after `transaction_timeout_ms`, or when a producer
        with the same `transactional_id` starts: this is not KIP-939, which needs Kafka's two-phase commit.

        Raises:
            TransactionAbortableError: a record or an offset could not be written. Abort it.
            ProducerFencedError: another producer has taken over the `transactional_id`.
            IllegalStateError: there is no transaction, or nothing was written in it.
            KafkaError: the producer has failed.
        """
        transactions = self._transactional("prepare_transaction")
        await self._flush()
        return transactions.prepare()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction around a block: committed at its end, aborted if it raises.

        ::

            async with producer.transaction():
                await producer.send("flights", b"...")
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

        Raises:
            TransactionAbortableError: it could not be committed, and is aborted: begin another one.
            ProducerFencedError: another producer has taken over the `transactional_id`.
            KafkaError: as :meth:`begin_transaction` and :meth:`commit_transaction`.
        """
        transactions = self._transactional("transaction")
        transactions.begin()
        try:
            yield
            if transactions.open:  # the block may have ended it
                await transactions.commit()
        except BaseException as error:
            await self._abort_after(error, transactions)
            raise

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Offset], group: ConsumerGroupMetadata | str
    ) -> None:
        """Commit a consumer's offsets in the transaction: they become visible with its records, or not at all.

        Args:
            offsets: for each partition the offset of the next record to read, or a tuple with metadata.
            group: :meth:`Consumer.group_metadata() <barnabas.Consumer.group_metadata>`; the coordinator refuses the
                offsets of a member whose partitions are assigned to another one by now (KIP-447). With a group id
                alone, that is not checked.

        Raises:
            CommitFailedError: the consumer is not a member of the group's current generation. Abort the transaction.
            IllegalStateError: there is no transaction.
            KafkaTimeoutError: the coordinator did not answer within `max_block_ms`.
            KafkaError: the coordinator refused; the transaction can only be aborted.
        """
        transactions = self._transactional("send_offsets_to_transaction")
        made = offsets_of("send_offsets_to_transaction", offsets)
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group)
        if not isinstance(group, ConsumerGroupMetadata) or not group.group_id:
            raise TypeError(
                f"send_offsets_to_transaction: {group!r} is not a group: give consumer.group_metadata(), or a group id"
            )
        if made:
            await transactions.send_offsets(made, group)

    def _transactional(self, call: str) -> TransactionManager:
        self._check_running()
        if self._transactions is None:
            raise IllegalStateError(
                f"{call}: this producer has no transactions. To do: give it a transactional_id, a name that no other "
                "running producer has"
            )
        return self._transactions

    async def _abort_after(self, error: BaseException, transactions: TransactionManager) -> None:
        """Abort because of an error in the block, or in the commit."""
        if not transactions.open or self._life.state is not State.RUNNING:
            return
        # Ctrl-C, or a cancellation: the program is to end now. The coordinator aborts the transaction in any case.
        seconds = None if isinstance(error, Exception) else self._config.close_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                await transactions.abort()
        except (KafkaError, TimeoutError) as failure:
            if isinstance(error, KafkaError) and transactions.failed:
                raise failure from error
            error.add_note(f"and the transaction could not be aborted: {failure}")

    # Inside.

    async def _connect(self) -> None:
        loop = self._accumulator.loop = asyncio.get_running_loop()
        self._accumulator.clock = loop.time
        await self._network.start()
        if self._transactions is not None:
            await self._transactions.initialize()

    async def _end(self) -> None:
        await self._sender.close()
        self._progress.set()
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._transactions is not None:
            await self._transactions.close()
        await self._network.close()

    def _check_running(self) -> None:
        self._life.check_running()
        if self._sender.failure is not None:
            raise self._sender.failure.with_traceback(None)

    def _choose_many(
        self, topic: str, known: KnownTopic, chunk: ReadBatch, reader: RecordReader
    ) -> tuple[ReadBatch, list[int] | None]:
        """Choose the partitions of records; None if they have no key and may go anywhere. The chunk that is returned
        ends before a record for which the program's partitioner chooses none that exists."""
        keys, partitioner = chunk.keys, self._config.partitioner
        if partitioner is None and keys is None:
            return chunk, None
        chosen: list[int] = []
        if partitioner is None and keys is not None and None not in keys:
            chosen = partitions_of(map(bytes, keys[: chunk.size]), known.partitions)
            return chunk, chosen
        columns = chunk.columns
        for at, key in enumerate(repeat(None, chunk.size) if keys is None else keys[: chunk.size]):
            try:
                number = known.choose(key, columns.size(at, at + 1, OVERHEAD))
                if number not in known.queues:
                    raise known.no_partition(f"send_many to {topic}: record {reader.count - chunk.size + at}", number)
            except Exception as error:
                return reader.cut(chunk, at, error), chosen
            chosen.append(number)
        return chunk, chosen

    def _fitting(self, chunk: ReadBatch, at: int) -> int:
        """The number of records from `at` on for which `buffer_memory` has room; if it is empty, one record has."""
        memory = self._accumulator.memory
        count = chunk.columns.within(at, chunk.size, self._config.buffer_memory - memory, OVERHEAD)
        return count or int(memory == 0)

    def _extend(
        self, queue: PartitionQueue, columns: RecordColumns, begin: int, records: Sequence[int]
    ) -> list[BatchReceipt]:
        """Put records of one partition into batches; `records` are their places in the call."""
        if self._transactions is not None:
            self._transactions.add(queue.tp)
        receipts: list[BatchReceipt] = []
        at = 0
        for batch, place, count in queue.extend(columns, begin, begin + len(records)):
            receipts.append(BatchReceipt(batch.delivery, place, records[at : at + count]))
            at += count
        self._sender.wake()
        return receipts

    def _ready(self, topic: str) -> KnownTopic | None:
        """The partitions of a topic to which records may be sent now; None if :meth:`_learn` has to wait for them, or
        has to say why nothing can be sent."""
        self._life.check()
        if self._life.state is not _RUNNING:
            return None
        if self._transactions is not None:
            self._transactions.check_send()
        return self._topics.known.get(topic)

    async def _learn(self, topic: str) -> KnownTopic:
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
            while any(map(accumulator.pending, batches)):
                self._progress.clear()
                self._sender.wake()
                await self._progress.wait()
        finally:
            accumulator.flushing -= 1


def _progress_of(progress: asyncio.Event, transactions: TransactionManager | None) -> Callable[[], None]:
    """Function to call when batches are acknowledged or have failed. It has no reference to the producer: see
    :class:`~barnabas_client.producer.topics.KnownTopics`."""
    if transactions is None:
        return progress.set

    def progressed() -> None:
        progress.set()
        transactions.progressed()

    return progressed


def _topic_error(cluster: Cluster, topic: str) -> KafkaError | None:
    known = cluster.topics.get(topic)
    if known is None or known.error == ErrorCode.NONE:
        return None
    error = error_for(known.error, f"send to {topic}")
    if isinstance(error, InvalidTopicError | TopicAuthorizationFailedError):
        raise error
    return error
