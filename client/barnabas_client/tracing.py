"""Spans of OpenTelemetry for what producers send, consumers poll, and handlers process. It needs the extra `otel`.

::

    from barnabas.tracing import instrument

    instrument()

Names, attributes and kinds are those of OpenTelemetry's semantic conventions for messaging:

- ``send TOPIC`` for each record of ``send`` and each call of ``send_many``. The context of the span is added to the
  headers of the records, as ``traceparent``, or as the propagators of the program say. The span of a record ends with
  its acknowledgement.
- ``poll TOPIC`` for each poll that returns records, with links to the spans that sent them.
- ``process TOPIC`` for each call of a handler of ``Consumer.run`` or ``ShareConsumer.run``, in the trace of the record
  that it handles. The span of a batch has links. `process` makes such a span in a loop.

Tracing is chosen when a client is made, by replacing methods of that client: others pay nothing for it.
"""

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas_client.optional import require
from barnabas_client.structs import Headers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

_INSTRUMENTATION: Final = "barnabas"
_PURPOSE: Final = "tracing"


class Processed(Protocol):
    """A record that a program processes: of a consumer, or of a share consumer."""

    @property
    def topic(self) -> str:
        """The name of its topic."""

    @property
    def partition(self) -> int:
        """The number of its partition."""

    @property
    def offset(self) -> int:
        """Its offset in the partition."""

    @property
    def key(self) -> object:
        """Its key."""

    @property
    def value(self) -> object:
        """Its value."""

    @property
    def headers(self) -> Headers:
        """Its headers."""


def instrument(tracer_provider: "TracerProvider | None" = None) -> None:
    """Trace all clients of this process that are made from now on.

    Args:
        tracer_provider: makes the spans; None takes the global one of OpenTelemetry.

    Raises:
        ImportError: the extra `otel` is not installed.
    """
    global _current
    _current = Tracing(tracer_provider)


def uninstrument() -> None:
    """Trace no client that is made from now on."""
    global _current
    _current = None


@contextmanager
def process(*records: Processed) -> Iterator["Span"]:
    """Make a span around code that processes a record, or several: for programs that iterate instead of using `run`.

    ::

        async for record in consumer:
            with process(record):
                ...

    Raises:
        RuntimeError: :func:`instrument` was not called.
    """
    if _current is None:
        raise RuntimeError("process(): tracing is off. To do: call barnabas.tracing.instrument() first")
    with _current.processing(records) as span:
        yield span


def tracing() -> "Tracing | None":
    """The tracing of clients that are made now; None if there is none."""
    return _current


class Tracing:
    """Makes spans.

    Args:
        tracer_provider: see :func:`instrument`.
    """

    def __init__(self, tracer_provider: "TracerProvider | None") -> None:
        self._trace: Any = require("opentelemetry.trace", extra="otel", purpose=_PURPOSE)
        self._propagate: Any = require("opentelemetry.propagate", extra="otel", purpose=_PURPOSE)
        self._nothing: Any = require("opentelemetry.context", extra="otel", purpose=_PURPOSE).Context()
        self._tracer = self._trace.get_tracer(_INSTRUMENTATION, tracer_provider=tracer_provider)

    # Producers.

    def trace_producer(self, producer: Any, client_id: str) -> None:
        """Make spans for what a producer sends from now on."""
        send, send_nowait, send_many = producer.send, producer.send_nowait, producer.send_many

        @functools.wraps(send)
        async def traced_send(
            topic: str,
            value: Any = None,
            key: Any = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: Any = None,
        ) -> Any:
            with self._sending(client_id, topic, value, key) as span:
                receipt = await send(topic, value, key, partition, timestamp_ms, self._with_context(headers))
            receipt.add_done_callback(functools.partial(self._acknowledged, span))
            return receipt

        @functools.wraps(send_nowait)
        def traced_send_nowait(
            topic: str,
            value: Any = None,
            key: Any = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: Any = None,
        ) -> Any:
            with self._sending(client_id, topic, value, key) as span:
                receipt = send_nowait(topic, value, key, partition, timestamp_ms, self._with_context(headers))
            receipt.add_done_callback(functools.partial(self._acknowledged, span))
            return receipt

        @functools.wraps(send_many)
        async def traced_send_many(
            topic: str,
            values: Any,
            keys: Any = None,
            headers: Any = None,
            timestamps_ms: Any = None,
            partition: int | None = None,
        ) -> Any:
            with self._sending(client_id, topic, values, None) as span:
                if headers is None:
                    given: Iterable[Any] = itertools.repeat(self._with_context(None))
                elif isinstance(headers, Iterable):
                    given = map(self._with_context, headers)
                else:
                    given = headers  # which send_many refuses
                receipts = await send_many(topic, values, keys, given, timestamps_ms, partition)
                span.set_attribute("messaging.batch.message_count", sum(map(len, receipts)))
            span.end()
            return receipts

        producer.__dict__.update(send=traced_send, send_nowait=traced_send_nowait, send_many=traced_send_many)

    @contextmanager
    def _sending(self, client_id: str, topic: str, value: object, key: object) -> Iterator[Any]:
        """The span of what is sent, as the current one. It ends here only if the block raises."""
        attributes = _attributes("send", "send", topic) | {"messaging.client.id": client_id} | _about(key, value)
        span = self._tracer.start_span(f"send {topic}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes)
        try:
            with self._trace.use_span(span):
                yield span
        except BaseException as error:
            self._fail(span, error)
            span.end()
            raise

    def _with_context(self, headers: Sequence[tuple[str, Any]] | None) -> list[tuple[str, Any]]:
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier)
        return [*(headers or ()), *((name, value.encode()) for name, value in carrier.items())]

    def _acknowledged(self, span: Any, receipt: Any) -> None:
        error = None if receipt.cancelled() else receipt.exception()
        if error is not None:
            self._fail(span, error)
            span.set_status(self._trace.StatusCode.ERROR, str(error))
        elif not receipt.cancelled():
            written = receipt.result()
            span.set_attribute("messaging.destination.partition.id", str(written.partition))
            span.set_attribute("messaging.kafka.offset", written.offset)
        span.end()

    # Consumers.

    def trace_consumer(self, consumer: Any, client_id: str, group: str | None) -> None:
        """Make spans for polls of a consumer from now on."""
        polls: dict[str, Callable[[Any], Sequence[Any]]] = {
            "getone": lambda record: [record],
            "getmany": lambda taken: [one for records in taken.values() for one in records],
            "_next_ready": lambda state: [] if state is None else list(state.ready),
            "_lend": lambda loan: list(loan.records),
        }
        self._trace_polls(consumer, polls, client_id, group)

    def trace_share_polls(self, polls: Any, client_id: str, group: str) -> None:
        """Make spans for the polls of a share consumer from now on."""
        self._trace_polls(polls, {"take": list}, client_id, group)

    def _trace_polls(
        self,
        of: Any,
        polls: Mapping[str, Callable[[Any], Sequence[Any]]],
        client_id: str,
        group: str | None,
    ) -> None:
        """Make spans for calls of methods, by their names. Each has a function that gets the records of a result."""
        common = _of_client(client_id, group)

        def traced(method: Callable[..., Any], records_of: Callable[[Any], Sequence[Any]]) -> Callable[..., Any]:
            @functools.wraps(method)
            async def call(*given: Any, **named: Any) -> Any:
                began = time.time_ns()
                result = await method(*given, **named)
                self._polled(records_of(result), began, common)
                return result

            return call

        of.__dict__.update({name: traced(getattr(of, name), records_of) for name, records_of in polls.items()})

    def _polled(self, records: Sequence[Any], began: int, common: Mapping[str, Any]) -> None:
        if not records:
            return
        topics = {record.topic for record in records}
        (topic,) = topics if len(topics) == 1 else (None,)
        span = self._tracer.start_span(
            "poll" if topic is None else f"poll {topic}",
            kind=self._trace.SpanKind.CLIENT,
            attributes=_attributes("poll", "receive", topic)
            | {**common}
            | {"messaging.batch.message_count": len(records)},
            links=self._links(records),
            start_time=began,
        )
        span.end()

    def traced_handler(
        self, handler: Callable[..., Any], executor: futures.Executor | None, client_id: str, group: str | None
    ) -> Callable[..., Any]:
        """A handler with a span around each call. Those of other processes have none."""
        if not callable(handler) or isinstance(executor, futures.ProcessPoolExecutor):
            return handler
        common = _of_client(client_id, group)
        if inspect.iscoroutinefunction(handler):

            @functools.wraps(handler)
            async def handle(given: Any) -> Any:
                with self.processing(given if isinstance(given, list) else (given,), common):
                    return await handler(given)

            return handle

        @functools.wraps(handler)
        def handle_in_thread(given: Any) -> Any:
            with self.processing(given if isinstance(given, list) else (given,), common):
                return handler(given)

        return handle_in_thread

    @contextmanager
    def processing(self, records: Sequence[Any], common: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """The span of the work on records, as the current one: in the trace of a single one, with links to several."""
        topic = records[0].topic if records else None
        attributes = _attributes("process", "process", topic) | {**(common or {})}
        context: Context | None = None
        if len(records) == 1:
            (record,) = records
            context = self._context_of(record)
            attributes |= _about(record.key, record.value)
            attributes["messaging.destination.partition.id"] = str(record.partition)
            attributes["messaging.kafka.offset"] = record.offset
        else:
            attributes["messaging.batch.message_count"] = len(records)
        with self._tracer.start_as_current_span(
            "process" if topic is None else f"process {topic}",
            context=context,
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=self._links(records),
        ) as span:
            try:
                yield span
            except BaseException as error:
                self._fail(span, error)
                raise

    def _context_of(self, record: Any) -> Any:
        carrier = {name: value.decode(errors="replace") for name, value in record.headers if value is not None}
        return self._propagate.extract(carrier)

    def _links(self, records: Iterable[Any]) -> list[Any]:
        """Links to the spans that have sent these records."""
        trace = self._trace
        contexts = (
            trace.get_current_span(self._propagate.extract(carrier, context=self._nothing)).get_span_context()
            for record in records
            if record.headers
            and (carrier := {name: value.decode(errors="replace") for name, value in record.headers if value})
        )
        return [trace.Link(context) for context in contexts if context.is_valid]

    @staticmethod
    def _fail(span: Any, error: BaseException) -> None:
        span.set_attribute("error.type", f"{type(error).__module__}.{type(error).__qualname__}")


def _attributes(name: str, kind: str, topic: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if topic is not None:
        found["messaging.destination.name"] = topic
    return found


def _of_client(client_id: str, group: str | None) -> dict[str, Any]:
    """The attributes of the client and its group."""
    own = {"messaging.client.id": client_id}
    return own if group is None else own | {"messaging.consumer.group.name": group}


def _about(key: object, value: object) -> dict[str, Any]:
    """Attributes of a record: its key, if that is text, and whether it is a tombstone."""
    found: dict[str, Any] = {}
    if isinstance(key, bytes):
        key = key.decode(errors="replace") if key.isascii() else None
    if isinstance(key, str):
        found["messaging.kafka.message.key"] = key
    if value is None:
        found["messaging.kafka.message.tombstone"] = True
    return found


_current: Tracing | None = None
