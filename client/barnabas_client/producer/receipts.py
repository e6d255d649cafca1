"""Receipts of sent records: acknowledged, or failed. They read the outcome of their batch."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

from barnabas_client.errors import TransactionAbortedError
from barnabas_client.logs import logger
from barnabas_client.producer.accumulator import ProducerBatch
from barnabas_client.producer.delivery import Delivery
from barnabas_client.structs import CREATE_TIME, LOG_APPEND_TIME, BatchMetadata, RecordMetadata
from barnabas_client.tasks import reject, resolve
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.producer.sender")

T = TypeVar("T")


class _Acknowledgement(Generic[T]):
    """The methods of a future, for an outcome that a batch has. A future is created only if the program waits."""

    __slots__ = ("_future",)

    _future: "asyncio.Future[T] | None"

    def __await__(self) -> Generator[Any, None, T]:
        return self._as_future().__await__()

    def done(self) -> bool:
        """Whether the outcome is known, or the receipt was cancelled."""
        return self._is_settled() if self._future is None else self._future.done()

    def cancelled(self) -> bool:
        """Whether the receipt was cancelled."""
        return self._future is not None and self._future.cancelled()

    def result(self) -> T:
        """Where the records were written.

        Raises:
            asyncio.InvalidStateError: that is not known yet.
            asyncio.CancelledError: the receipt was cancelled.
            KafkaError: they were not written, or not acknowledged in time.
        """
        if self._future is not None:
            return self._future.result()
        self._check_settled()
        error = self._error()
        if error is not None:
            raise error.with_traceback(None)
        return self._result()

    def exception(self) -> BaseException | None:
        """Why the records were not written; None if they were.

        Raises:
            asyncio.InvalidStateError: that is not known yet.
            asyncio.CancelledError: the receipt was cancelled.
        """
        if self._future is not None:
            return self._future.exception()
        self._check_settled()
        return self._error()

    def add_done_callback(
        self, callback: "Callable[[asyncio.Future[T]], object]", *, context: Context | None = None
    ) -> None:
        """Call a function in the event loop when the outcome is known.

        Args:
            callback: gets a future with the outcome.
            context: to run it in; the current one if None.
        """
        self._as_future().add_done_callback(callback, context=context)

    def remove_done_callback(self, callback: "Callable[[asyncio.Future[T]], object]") -> int:
        """Do not call a function; returns how often it would have been called."""
        return 0 if self._future is None else self._future.remove_done_callback(callback)

    def cancel(self, msg: str | None = None) -> bool:
        """Stop waiting for the outcome. That does not take the records back.

        Args:
            msg: of the `CancelledError`.

        Returns:
            Whether the outcome was not known yet.
        """
        return not self.done() and self._as_future().cancel(msg)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the producer."""
        return self._as_future().get_loop()

    def _as_future(self) -> "asyncio.Future[T]":
        future = self._future
        if future is None:
            future = self._future = self._create_future()
            self._settled()
        return future

    def _settled(self) -> None:
        """A batch is acknowledged or has failed: give the future its result, if that is known now."""
        future = self._future
        if future is None or not self._is_settled():
            return
        error = self._error()
        if error is None:
            resolve(future, self._result())
        else:
            reject(future, error)
            if not future.cancelled():
                future.exception()  # mark it as read: it is logged, even if the program ignores this future

    def _check_settled(self) -> None:
        if not self._is_settled():
            raise asyncio.InvalidStateError("the acknowledgement is not there yet. To do: await the receipt")

    @abstractmethod
    def _create_future(self) -> "asyncio.Future[T]":
        """Create the future, and have :meth:`_settled` called."""

    @abstractmethod
    def _is_settled(self) -> bool: ...

    @abstractmethod
    def _error(self) -> KafkaError | None: ...

    @abstractmethod
    def _result(self) -> T: ...


class Receipt(_Acknowledgement[RecordMetadata]):
    """The receipt of a sent record.

    Await it for its :class:`RecordMetadata`; it has the methods of an ``asyncio.Future`` besides, and
    ``asyncio.gather`` takes it. The result is computed when it is asked for.

    Args:
        delivery: the outcome of its batch.
        index: the place of the record in the batch.
        timestamp: of the record, in milliseconds since 1970.
    """

    __slots__ = ("_delivery", "_index", "_timestamp")

    def __init__(self, delivery: Delivery, index: int, timestamp: int) -> None:
        self._future = None
        self._delivery = delivery
        self._index = index
        self._timestamp = timestamp

    def __repr__(self) -> str:
        return f"<Receipt of a record for {self._delivery.tp}, {'done' if self.done() else 'pending'}>"

    def _create_future(self) -> "asyncio.Future[RecordMetadata]":
        future: asyncio.Future[RecordMetadata] = self._delivery.loop.create_future()
        part = self._part()
        if not part.settled:
            part.watch(self._settled)
        return future

    def _part(self) -> Delivery:
        """The outcome of its batch; updates :attr:`_index` if that was split."""
        ((self._delivery, self._index, _),) = self._delivery.parts(self._index, self._index + 1)
        return self._delivery

    def _is_settled(self) -> bool:
        return self._part().settled

    def _error(self) -> KafkaError | None:
        return self._part().error

    def _result(self) -> RecordMetadata:
        part = self._part()
        topic, number = part.tp
        offset = part.base_offset + self._index if part.base_offset >= 0 else -1
        if part.append_time < 0:
            time, kind = self._timestamp, CREATE_TIME
        else:
            time, kind = part.append_time, LOG_APPEND_TIME
        return RecordMetadata(topic, number, part.tp, offset, time, kind, part.log_start_offset)


class BatchReceipt(_Acknowledgement[BatchMetadata]):
    """The receipt of the records of one batch; see :meth:`Producer.send_many() <barnabas.Producer.send_many>`.

    Await it for their :class:`BatchMetadata`; it has the methods of an ``asyncio.Future`` besides, and
    ``asyncio.gather`` takes it. If the batch was split, it fails if one of its parts fails.

    Args:
        delivery: the outcome of the batch.
        begin: the place of its first record in the batch.
        records: the places of its records among those of the call.

    Attributes:
        records: the places of its records among those of the call, from 0 on.
    """

    __slots__ = ("_begin", "_delivery", "records")

    def __init__(self, delivery: Delivery, begin: int, records: Sequence[int]) -> None:
        self._future = None
        self._delivery = delivery
        self._begin = begin
        self.records = records

    def __len__(self) -> int:
        """The number of records."""
        return len(self.records)

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<BatchReceipt of {len(self)} records for {self._delivery.tp}, {state}>"

    @property
    def acknowledged(self) -> int:
        """The number of its records that are acknowledged: all or none, unless the batch was split."""
        return sum(end - begin for part, begin, end in self._parts() if part.settled and part.error is None)

    def _parts(self) -> list[tuple[Delivery, int, int]]:
        return self._delivery.parts(self._begin, self._begin + len(self.records))

    def _create_future(self) -> "asyncio.Future[BatchMetadata]":
        future: asyncio.Future[BatchMetadata] = self._delivery.loop.create_future()
        for part, _, _ in self._parts():
            if not part.settled:
                part.watch(self._settled)
        return future

    def _is_settled(self) -> bool:
        return all(part.settled for part, _, _ in self._parts())

    def _error(self) -> KafkaError | None:
        return next((part.error for part, _, _ in self._parts() if part.error is not None), None)

    def _result(self) -> BatchMetadata:
        parts = self._parts()
        (first, begin, _), (last, _, end) = parts[0], parts[-1]
        topic, number = first.tp
        known = first.base_offset >= 0 and last.base_offset >= 0
        offset, last_offset = (first.base_offset + begin, last.base_offset + end - 1) if known else (-1, -1)
        return BatchMetadata(topic, number, first.tp, offset, last_offset, len(self.records), first.log_start_offset)


def give_up(batches: Iterable[ProducerBatch], error: KafkaError) -> None:
    """Fail batches."""
    # A program that aborts a transaction knows it.
    log = _log.info if isinstance(error, TransactionAbortedError) else _log.warning
    for batch in batches:
        log("records were not delivered", partition=str(batch.tp), count=batch.count, reason=str(error))
        batch.delivery.fail(error)
