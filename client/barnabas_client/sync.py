"""Consumers, producer and admin client without ``await``, for scripts and notebooks.

::

    from barnabas.sync import Consumer, Producer

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send_and_wait("flights", b"...")

    with Consumer("flights", bootstrap_servers="localhost:9092", auto_offset_reset="earliest") as consumer:
        for record in consumer:
            print(record.offset, record.value)

These are the clients of :mod:`barnabas` with the same names, arguments, results and errors; calls wait instead of being
awaited, and ``with`` and ``for`` replace ``async with`` and ``async for``. What differs:

- Any thread may call any method. All clients of a process share one event loop, on a thread of its own.
- Ctrl-C ends the call that waits, in notebooks too. Records that it has not returned are returned by the next poll.
- ``send``, ``send_nowait`` and ``send_many`` return receipts whose ``result()`` waits for the acknowledgement.
- A rebalance listener is called in the thread that polls, and may commit and seek. A method of it that is a coroutine
  function runs in the event loop, and must not call a client.
- ``run`` calls a plain handler in threads: as many as `concurrency`, unless an `executor` is given.
- Serializers, deserializers and the callbacks of ``commit_async`` are called in the thread of the event loop. They must
  not call a client.
- Records of a :class:`ShareConsumer` have the same methods, which any thread may call.
- A client that is not stopped is stopped when it is deleted, or when the process ends.
"""

import asyncio
import functools
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from barnabas_client.admin.admin import Admin as AsyncAdmin
from barnabas_client.config import (
    AsyncDeserializer,
    ConsumerSettings,
    ContextDeserializer,
    ContextSerializer,
    Deserializer,
    ProducerSettings,
    Serializer,
    ShareConsumerSettings,
)
from barnabas_client.consumer.consumer import Consumer as AsyncConsumer
from barnabas_client.consumer.listener import ConsumerRebalanceListener, lost_method
from barnabas_client.consumer.parallel.config import (
    BatchHandler,
    Handler,
    HandlerConfig,
    HandlerSettings,
    RunSettings,
)
from barnabas_client.consumer.polls import Loan
from barnabas_client.consumer.rebalance import inside_listener
from barnabas_client.errors import ConsumerStoppedError, KafkaTimeoutError
from barnabas_client.loop_thread import Call, LoopThread, loop_thread
from barnabas_client.producer.producer import SK, SV
from barnabas_client.producer.producer import K as PK
from barnabas_client.producer.producer import Producer as AsyncProducer
from barnabas_client.producer.producer import V as PV
from barnabas_client.producer.receipts import BatchReceipt as AsyncBatchReceipt
from barnabas_client.producer.receipts import Receipt as AsyncReceipt
from barnabas_client.shares.consumer import ShareConsumer as AsyncShareConsumer
from barnabas_client.shares.records import AcquiredRecord
from barnabas_client.shares.records import ShareRecord as AsyncShareRecord
from barnabas_client.structs import AnyRecord, BatchMetadata, ConsumerRecord, K, RecordMetadata, TopicPartition, V, W
from barnabas_protocol.wire import Buffer

__all__ = ["Admin", "BatchReceipt", "Consumer", "Producer", "Receipt", "ShareConsumer", "ShareRecord"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="AsyncConsumer[Any, Any] | AsyncShareConsumer[Any, Any] | AsyncProducer[Any, Any] | AsyncAdmin")

#: Calls that wait until a rebalance listener returns, and the word for them.
_WAIT_FOR_LISTENER: Final = {
    "getone": "poll",
    "getmany": "poll",
    "getmany_arrow": "poll",
    "poll": "poll",
    "stop": "stop",
    "close": "stop",
}


class Client(Generic[C]):
    """A client whose methods run on the loop of the process, while the caller waits."""

    def __init__(self, client: C) -> None:
        self._client = client
        self._loop: LoopThread = loop_thread()
        self._calls: list[Call[Any]] = []
        self._loop.closing.add(self)

    def _call(self, name: str, work: Coroutine[Any, Any, R]) -> R:
        """Wait for a coroutine of the client; `name` is the method that the program called."""
        return self._loop.run(work, self._calls)

    async def aclose(self) -> None:
        """Stop the client as after Ctrl-C: within its `close_timeout_ms`."""
        await self._client.__aexit__(KeyboardInterrupt, None, None)

    def __enter__(self) -> Self:
        self._call("start", self._client.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call("stop", self._client.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._client)

    def __del__(self) -> None:
        loop: LoopThread | None = getattr(self, "_loop", None)  # settings may have been refused
        if loop is not None and loop.alive:
            loop.start(self._client.stop())


@overload
def _blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client[C], P], R]: ...


@overload
def _blocking(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[Client[C], P], R]: ...


def _blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of an async client one of a client here: it runs on the loop, and the caller waits."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Client[Any], *given: Any, **named: Any) -> Any:
        return self._call(name, _run(getattr(self._client, name), *given, **named))

    return call


async def _run(method: Callable[..., Any], *given: Any, **named: Any) -> Any:
    result = method(*given, **named)
    return await result if inspect.iscoroutine(result) else result


def _like(
    method: Callable[Concatenate[C, P], object],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Client[C], P], R]]:
    """A method with the arguments of `method`, but with a result of its own."""

    def decorate(function: Callable[..., R]) -> Callable[Concatenate[Client[C], P], R]:
        return cast("Callable[Concatenate[Client[C], P], R]", functools.wraps(method)(function))

    return decorate


class Consumer(Client[AsyncConsumer[K, V]], Generic[K, V]):
    """Reads records from topics: :class:`barnabas.Consumer` without ``await``, with the same options.

    ``for record in consumer`` reads until it is stopped in another thread, or until Ctrl-C.
    """

    @overload
    def __init__(
        self: "Consumer[bytes, V]",
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: AsyncDeserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[bytes, bytes | None]",
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[K, bytes | None]",
        *topics: str,
        key_deserializer: Deserializer[K],
        value_deserializer: None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[bytes, V]",
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: Deserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[K, V]",
        *topics: str,
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[bytes, V]",
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: ContextDeserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[K, V]",
        *topics: str,
        key_deserializer: Deserializer[K] | ContextDeserializer[K],
        value_deserializer: ContextDeserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    def __init__(self, *topics: str, **settings: Any) -> None:
        super().__init__(AsyncConsumer(*topics, **settings))
        self._loan: Loan | None = None
        self._listening = 0  # the thread that runs the rebalance listener

    start = _blocking(AsyncConsumer[K, V].start)
    stop = _blocking(AsyncConsumer[K, V].stop)
    close = _blocking(AsyncConsumer[K, V].close)
    assign = _blocking(AsyncConsumer[K, V].assign)
    unsubscribe = _blocking(AsyncConsumer[K, V].unsubscribe)
    subscription = _blocking(AsyncConsumer[K, V].subscription)
    assignment = _blocking(AsyncConsumer[K, V].assignment)
    topics = _blocking(AsyncConsumer[K, V].topics)
    partitions_for_topic = _blocking(AsyncConsumer[K, V].partitions_for_topic)
    getone = _blocking(AsyncConsumer[K, V].getone)
    getmany = _blocking(AsyncConsumer[K, V].getmany)
    getmany_arrow = _blocking(AsyncConsumer[K, V].getmany_arrow)
    poll = _blocking(AsyncConsumer[K, V].poll)
    pause = _blocking(AsyncConsumer[K, V].pause)
    resume = _blocking(AsyncConsumer[K, V].resume)
    paused = _blocking(AsyncConsumer[K, V].paused)
    position = _blocking(AsyncConsumer[K, V].position)
    seek = _blocking(AsyncConsumer[K, V].seek)
    seek_to_beginning = _blocking(AsyncConsumer[K, V].seek_to_beginning)
    seek_to_end = _blocking(AsyncConsumer[K, V].seek_to_end)
    seek_to_committed = _blocking(AsyncConsumer[K, V].seek_to_committed)
    highwater = _blocking(AsyncConsumer[K, V].highwater)
    last_stable_offset = _blocking(AsyncConsumer[K, V].last_stable_offset)
    last_poll_timestamp = _blocking(AsyncConsumer[K, V].last_poll_timestamp)
    lag = _blocking(AsyncConsumer[K, V].lag)
    beginning_offsets = _blocking(AsyncConsumer[K, V].beginning_offsets)
    end_offsets = _blocking(AsyncConsumer[K, V].end_offsets)
    offsets_for_times = _blocking(AsyncConsumer[K, V].offsets_for_times)
    commit = _blocking(AsyncConsumer[K, V].commit)
    commit_async = _blocking(AsyncConsumer[K, V].commit_async)
    committed = _blocking(AsyncConsumer[K, V].committed)
    committed_offsets = _blocking(AsyncConsumer[K, V].committed_offsets)
    group_metadata = _blocking(AsyncConsumer[K, V].group_metadata)
    metrics = _blocking(AsyncConsumer[K, V].metrics)
    enforce_rebalance = _blocking(AsyncConsumer[K, V].enforce_rebalance)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics: :meth:`barnabas.Consumer.subscribe`.

        Args:
            topics: names.
            pattern: a regular expression instead.
            listener: called in the thread that polls, when partitions are revoked and assigned.
        """
        if hasattr(listener, "on_partitions_revoked"):
            listener = _CallerListener(self, cast("ConsumerRebalanceListener", listener))
        self._call("subscribe", _run(self._client.subscribe, topics, pattern, listener))

    def wakeup(self) -> None:
        """End the poll that waits, or the next one, with `WakeupError`."""
        self._client.wakeup()

    @overload
    def run(
        self: "Consumer[K, W | None]",
        handler: Handler[K, V],
        *,
        producer: "Producer[K, W] | None" = None,
        batch_size: None = None,
        **settings: Unpack[RunSettings],
    ) -> None: ...

    @overload
    def run(
        self: "Consumer[K, W | None]",
        handler: BatchHandler[K, V],
        *,
        producer: "Producer[K, W] | None" = None,
        batch_size: int,
        **settings: Unpack[RunSettings],
    ) -> None: ...

    def run(
        self, handler: Callable[..., object], *, producer: "Producer[Any, Any] | None" = None, **settings: Any
    ) -> None:
        """Handle records with `concurrency` handlers at a time and commit finished ones, until :meth:`wakeup` or a
        stop: :meth:`barnabas.Consumer.run`.

        Args:
            handler: a plain function, which is called in threads, or a coroutine function, which runs in the event
                loop.
            producer: a started producer of this module for the dead letters.
            settings: those of :meth:`barnabas.Consumer.run`. Without an `executor` there are as many threads as
                handlers.
        """
        with _handler_threads(handler, settings):
            client = None if producer is None else producer._client
            self._call("run", self._client.run(handler, producer=client, **settings))

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        """The next record.

        Raises:
            StopIteration: the consumer was stopped.
            KafkaError: see :meth:`barnabas.Consumer.getone`.
        """
        attention = self._client._attention
        while True:
            loan = self._loan
            if loan is not None and not attention.needed:
                try:
                    return loan.records.popleft()
                except IndexError:
                    pass
            try:
                self._call("poll", self._borrow())
            except ConsumerStoppedError:
                raise StopIteration from None

    # In the event loop.

    async def _borrow(self) -> None:
        self._loan = await self._client._lend()

    def _give_back(self) -> None:
        """Whatever the program calls, it has received the records before the first that is left of the loan."""
        loan, self._loan = self._loan, None
        session = self._client._session
        if loan is not None and session is not None:
            session.polls.give_back(loan)

    def _unused(self, result: object) -> None:
        session = self._client._session
        if session is None:
            return
        if isinstance(result, ConsumerRecord):
            result = [result]
        if isinstance(result, list):
            records: list[AnyRecord] = [one for one in result if isinstance(one, ConsumerRecord)]
            result = {tp: [one for one in records if one.topic_partition == tp] for tp in _partitions(records)}
        if isinstance(result, dict):
            session.polls.untake({tp: records for tp, records in result.items() if isinstance(records, list)})
        if hasattr(result, "to_batches"):
            session.polls.untake_tables(result.to_batches())

    def _call(self, name: str, work: Coroutine[Any, Any, R]) -> R:
        if self._listening == threading.get_ident() and name in _WAIT_FOR_LISTENER:
            work.close()
            raise inside_listener(_WAIT_FOR_LISTENER[name])
        polls = _WAIT_FOR_LISTENER.get(name) == "poll"
        return self._loop.run(work, self._calls, self._give_back, self._unused if polls else None)

    async def _in_caller(
        self, method: Callable[[Collection[TopicPartition]], Any], partitions: Collection[TopicPartition]
    ) -> None:
        """Call a method of the rebalance listener in the thread that polls."""

        def call() -> Any:
            before, self._listening = self._listening, threading.get_ident()
            try:
                return method(list(partitions))
            finally:
                self._listening = before

        if inspect.iscoroutinefunction(method):
            await method(list(partitions))
        elif self._calls:
            await self._calls[0].run_in_caller(call)
        else:  # after `unsubscribe`, which does not wait
            await asyncio.to_thread(call)


@contextmanager
def _handler_threads(handler: object, settings: dict[str, Any]) -> Iterator[bool]:
    """Give the settings of a run a pool of threads for a plain handler, unless they have an executor; returns whether
    they got one."""
    if inspect.iscoroutinefunction(handler) or settings.get("executor") is not None or not callable(handler):
        yield False
        return
    threads = settings.get("concurrency", HandlerConfig.concurrency)
    with ThreadPoolExecutor(threads if isinstance(threads, int) and threads > 0 else 1) as pool:
        settings["executor"] = pool
        yield True


class _CallerListener(ConsumerRebalanceListener):
    """Calls the program's rebalance listener in the thread that polls."""

    def __init__(self, consumer: Consumer[Any, Any], listener: ConsumerRebalanceListener) -> None:
        self._consumer = consumer
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._consumer._in_caller(self._listener.on_partitions_revoked, revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._consumer._in_caller(self._listener.on_partitions_assigned, assigned)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        await self._consumer._in_caller(lost_method(self._listener), lost)


def _partitions(records: Iterable[AnyRecord]) -> set[TopicPartition]:
    return {record.topic_partition for record in records}


class ShareRecord(AcquiredRecord[K, V]):
    """A record of a share group: :class:`barnabas.ShareRecord` without ``await``. Any thread may acknowledge it.

    Args:
        consumer: that returned it.
        record: the record in the event loop.
    """

    __slots__ = ("_consumer", "_record")

    def __init__(self, consumer: "ShareConsumer[K, V]", record: AsyncShareRecord[K, V]) -> None:
        super().__init__(record.consumer_record, record.delivery_count)
        self._consumer = consumer
        self._record = record

    @property
    def acknowledged(self) -> bool:
        """Whether it was accepted, released or rejected; a renewal does not count."""
        return self._record.acknowledged

    def accept(self) -> None:
        """The record was processed: :meth:`barnabas.ShareRecord.accept`."""
        self._consumer._call("accept", self._record.accept())

    def release(self) -> None:
        """The record could not be processed now: :meth:`barnabas.ShareRecord.release`."""
        self._consumer._call("release", self._record.release())

    def reject(self) -> None:
        """The record cannot be processed at all: :meth:`barnabas.ShareRecord.reject`."""
        self._consumer._call("reject", self._record.reject())

    def renew(self) -> None:
        """Processing takes longer: :meth:`barnabas.ShareRecord.renew`."""
        self._consumer._call("renew", self._record.renew())


class ShareConsumer(Client[AsyncShareConsumer[K, V]], Generic[K, V]):
    """Takes records from queues: :class:`barnabas.ShareConsumer` without ``await``, with the same options.

    ``for record in consumer`` reads until it is stopped in another thread, or until Ctrl-C.
    """

    @overload
    def __init__(
        self: "ShareConsumer[bytes, V]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: AsyncDeserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[bytes, bytes | None]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[K, bytes | None]",
        *topics: str,
        group_id: str,
        key_deserializer: Deserializer[K],
        value_deserializer: None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[bytes, V]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: Deserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[K, V]",
        *topics: str,
        group_id: str,
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[bytes, V]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: ContextDeserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[K, V]",
        *topics: str,
        group_id: str,
        key_deserializer: Deserializer[K] | ContextDeserializer[K],
        value_deserializer: ContextDeserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    def __init__(self, *topics: str, **settings: Any) -> None:
        super().__init__(AsyncShareConsumer(*topics, **settings))

    start = _blocking(AsyncShareConsumer[K, V].start)
    stop = _blocking(AsyncShareConsumer[K, V].stop)
    close = _blocking(AsyncShareConsumer[K, V].close)
    subscribe = _blocking(AsyncShareConsumer[K, V].subscribe)
    subscription = _blocking(AsyncShareConsumer[K, V].subscription)
    commit = _blocking(AsyncShareConsumer[K, V].commit)

    @_like(AsyncShareConsumer[K, V].getone)
    def getone(self) -> ShareRecord[K, V]:
        return ShareRecord(self, self._call("poll", self._client.getone()))

    @_like(AsyncShareConsumer[K, V].poll)
    def poll(self, *given: Any, **named: Any) -> list[ShareRecord[K, V]]:
        return [ShareRecord(self, one) for one in self._call("poll", self._client.poll(*given, **named))]

    @_like(AsyncShareConsumer[K, V].getmany)
    def getmany(self, **named: Any) -> dict[TopicPartition, list[ShareRecord[K, V]]]:
        taken = self._call("poll", self._client.getmany(**named))
        return {tp: [ShareRecord(self, one) for one in records] for tp, records in taken.items()}

    def wakeup(self) -> None:
        """End the poll that waits, or the next one, with `WakeupError`, and a :meth:`run`."""
        self._client.wakeup()

    def run(
        self: "ShareConsumer[K, W | None]",
        handler: "Callable[[ShareRecord[K, V]], object] | Callable[[AsyncShareRecord[K, V]], Awaitable[object]]",
        *,
        producer: "Producer[K, W] | None" = None,
        **settings: Unpack[HandlerSettings],
    ) -> None:
        """Handle records with `concurrency` handlers at a time and acknowledge them, until :meth:`wakeup` or a stop:
        :meth:`barnabas.ShareConsumer.run`.

        Args:
            handler: a plain function, which is called in threads, or a coroutine function, which runs in the event
                loop and gets a :class:`barnabas.ShareRecord`.
            producer: a started producer of this module for the dead letters.
            settings: those of :meth:`barnabas.ShareConsumer.run`. Without an `executor` there are as many threads as
                handlers. An `executor` gets records that only the run acknowledges.
        """
        given: dict[str, Any] = {**settings}
        call: Callable[[Any], object] = handler
        with _handler_threads(handler, given) as threads:
            if threads:
                call = functools.partial(self._in_thread, handler)
            client: Any = None if producer is None else producer._client
            self._call("run", self._client.run(call, producer=client, **given))

    def _in_thread(self, handler: Callable[[Any], object], record: AsyncShareRecord[K, V]) -> object:
        return handler(ShareRecord(self, record))

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        return self

    def __next__(self) -> ShareRecord[K, V]:
        """The next record. With implicit acknowledgement, the one before is accepted.

        Raises:
            StopIteration: the consumer was stopped.
            KafkaError: see :meth:`barnabas.ShareConsumer.getone`.
        """
        try:
            return self.getone()
        except ConsumerStoppedError:
            raise StopIteration from None

    def _call(self, name: str, work: Coroutine[Any, Any, R]) -> R:
        return self._loop.run(work, self._calls, None, self._unused if name == "poll" else None)

    def _unused(self, result: object) -> None:
        """A poll was interrupted, and has returned records all the same: the next one returns them."""
        if isinstance(result, AsyncShareRecord):
            result = [result]
        if isinstance(result, dict):
            result = [one for records in result.values() for one in records]
        if isinstance(result, list):
            self._client._polls.give_back(result)


class _Acknowledgement(Generic[R]):
    """The future that a producer returns for a record or a batch."""

    def __init__(self, client: "Producer[Any, Any]", receipt: AsyncReceipt | AsyncBatchReceipt) -> None:
        self._client = client
        self._receipt = receipt

    def __repr__(self) -> str:
        return repr(self._receipt)

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._receipt.done()

    def result(self, timeout: float | None = None) -> R:
        """Wait for the acknowledgement.

        Args:
            timeout: seconds to wait; None waits as long as it takes, at most `delivery_timeout_ms`.

        Returns:
            Where the records were written.

        Raises:
            KafkaTimeoutError: they are not acknowledged within `timeout`. That does not take them back.
            KafkaError: they were not written, or not acknowledged in time.
        """
        return cast("R", self._client._call("result", _outcome(self._receipt, timeout)))


async def _outcome(receipt: AsyncReceipt | AsyncBatchReceipt, timeout: float | None) -> object:
    done, _ = await asyncio.wait([asyncio.ensure_future(receipt)], timeout=timeout)
    if not done:
        raise KafkaTimeoutError(f"the records are not acknowledged after {timeout:g} s. To do: call result() again")
    return receipt.result()


class Receipt(_Acknowledgement[RecordMetadata]):
    """The receipt of a sent record."""


class BatchReceipt(_Acknowledgement[BatchMetadata]):
    """The receipt of the records of one batch.

    Attributes:
        records: the places of its records among those of the call, from 0 on.
    """

    def __init__(self, client: "Producer[Any, Any]", receipt: AsyncBatchReceipt) -> None:
        super().__init__(client, receipt)
        self.records = receipt.records

    def __len__(self) -> int:
        """The number of records."""
        return len(self.records)


class Producer(Client[AsyncProducer[PK, PV]], Generic[PK, PV]):
    """Writes records to topics: :class:`barnabas.Producer` without ``await``, with the same options."""

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

    def __init__(self, **settings: Any) -> None:
        super().__init__(AsyncProducer(**settings))

    start = _blocking(AsyncProducer[PK, PV].start)
    stop = _blocking(AsyncProducer[PK, PV].stop)
    close = _blocking(AsyncProducer[PK, PV].close)
    send_and_wait = _blocking(AsyncProducer[PK, PV].send_and_wait)
    flush = _blocking(AsyncProducer[PK, PV].flush)
    metrics = _blocking(AsyncProducer[PK, PV].metrics)
    partitions_for = _blocking(AsyncProducer[PK, PV].partitions_for)
    begin_transaction = _blocking(AsyncProducer[PK, PV].begin_transaction)
    commit_transaction = _blocking(AsyncProducer[PK, PV].commit_transaction)
    abort_transaction = _blocking(AsyncProducer[PK, PV].abort_transaction)
    prepare_transaction = _blocking(AsyncProducer[PK, PV].prepare_transaction)
    send_offsets_to_transaction = _blocking(AsyncProducer[PK, PV].send_offsets_to_transaction)

    @_like(AsyncProducer[PK, PV].send)
    def send(self, *given: Any, **named: Any) -> Receipt:
        return Receipt(self, self._call("send", self._client.send(*given, **named)))

    @_like(AsyncProducer[PK, PV].send_nowait)
    def send_nowait(self, *given: Any, **named: Any) -> Receipt:
        return Receipt(self, self._call("send_nowait", _run(self._client.send_nowait, *given, **named)))

    @_like(AsyncProducer[PK, PV].send_many)
    def send_many(self, *given: Any, **named: Any) -> list[BatchReceipt]:
        return [BatchReceipt(self, one) for one in self._call("send_many", self._client.send_many(*given, **named))]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction around a block: committed at its end, aborted if it raises. See
        :meth:`barnabas.Producer.transaction`."""
        inner: AbstractAsyncContextManager[None] = self._client.transaction()
        self._call("transaction", inner.__aenter__())
        try:
            yield
        except BaseException as error:
            self._call("transaction", inner.__aexit__(type(error), error, error.__traceback__))
            raise
        self._call("transaction", inner.__aexit__(None, None, None))


class Admin(Client[AsyncAdmin]):
    """Manages topics, configurations and groups: :class:`barnabas.Admin` without ``await``, with the same options."""

    @_like(AsyncAdmin.__init__)
    def __init__(self, **settings: Any) -> None:
        super().__init__(AsyncAdmin(**settings))

    start = _blocking(AsyncAdmin.start)
    close = _blocking(AsyncAdmin.close)
    stop = _blocking(AsyncAdmin.stop)
    create_topics = _blocking(AsyncAdmin.create_topics)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    create_partitions = _blocking(AsyncAdmin.create_partitions)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    delete_records = _blocking(AsyncAdmin.delete_records)
    list_offsets = _blocking(AsyncAdmin.list_offsets)
    describe_configs = _blocking(AsyncAdmin.describe_configs)
    incremental_alter_configs = _blocking(AsyncAdmin.incremental_alter_configs)
    list_config_resources = _blocking(AsyncAdmin.list_config_resources)
    list_consumer_groups = _blocking(AsyncAdmin.list_consumer_groups)
    describe_consumer_groups = _blocking(AsyncAdmin.describe_consumer_groups)
    delete_consumer_groups = _blocking(AsyncAdmin.delete_consumer_groups)
    remove_group_members = _blocking(AsyncAdmin.remove_group_members)
    list_consumer_group_offsets = _blocking(AsyncAdmin.list_consumer_group_offsets)
    alter_consumer_group_offsets = _blocking(AsyncAdmin.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _blocking(AsyncAdmin.delete_consumer_group_offsets)
    describe_share_groups = _blocking(AsyncAdmin.describe_share_groups)
    list_share_group_offsets = _blocking(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = _blocking(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = _blocking(AsyncAdmin.delete_share_group_offsets)
    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    describe_conditions = _blocking(AsyncAdmin.describe_conditions)
    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    describe_producers = _blocking(AsyncAdmin.describe_producers)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)
    end_transactions = _blocking(AsyncAdmin.end_transactions)
    fence_producers = _blocking(AsyncAdmin.fence_producers)
    describe_user_scram_credentials = _blocking(AsyncAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(AsyncAdmin.alter_user_scram_credentials)
    describe_client_quotas = _blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = _blocking(AsyncAdmin.alter_client_quotas)
    alter_partition_reassignments = _blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AsyncAdmin.list_partition_reassignments)
    create_acls = _blocking(AsyncAdmin.create_acls)
    describe_acls = _blocking(AsyncAdmin.describe_acls)
    delete_acls = _blocking(AsyncAdmin.delete_acls)
    describe_eligible_leaders = _blocking(AsyncAdmin.describe_eligible_leaders)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
