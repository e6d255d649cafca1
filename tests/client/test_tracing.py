"""Spans of OpenTelemetry, with the SDK's exporter in memory, against a broker in this process."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import barnabas.sync
from barnabas import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    Consumer,
    ConsumerRecord,
    Producer,
    ShareConsumer,
    ShareRecord,
)
from barnabas.errors import RecordTooLargeError
from barnabas.testing import Broker
from barnabas.tracing import instrument, process, uninstrument


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=False) as one:
        yield one


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex}"


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    instrument(found.provider)
    yield found
    uninstrument()


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(one.context.trace_id, one.context.span_id) for one in span.links]


def producer(broker: Broker, **settings: Any) -> "Producer[bytes, bytes]":
    return Producer(bootstrap_servers=broker.bootstrap_servers, client_id="writer", **settings)


def consumer(broker: Broker, topic: str, **settings: Any) -> "Consumer":
    given = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "client_id": "reader", **settings}
    return Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **given)


async def test_a_record_takes_its_context_along(broker: Broker, topic: str, spans: Spans) -> None:
    async with producer(broker) as writer:
        with spans.provider.get_tracer("test").start_as_current_span("request") as request:
            await writer.send_and_wait(topic, None, key=b"k", headers=[("own", b"1")])
        (sent,) = spans.named(f"send {topic}")
    assert sent.kind is trace.SpanKind.PRODUCER
    assert sent.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.client.id": "writer",
        "messaging.kafka.message.key": "k",
        "messaging.kafka.message.tombstone": True,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert sent.parent is not None and sent.parent.span_id == request.get_span_context().span_id
    async with consumer(broker, topic) as reader:
        record = await reader.getone()
    trace_id, span_id = ids(sent)
    headers = dict(record.headers)
    assert headers.pop("own") == b"1"
    assert (headers["traceparent"] or b"").startswith(b"00-%032x-%016x-" % (trace_id, span_id))


async def test_polls_are_linked_to_what_sent_the_records(broker: Broker, topic: str, spans: Spans) -> None:
    async with producer(broker) as writer:
        await writer.send(topic, b"0")
        await writer.send_nowait(topic, b"1")
        receipts = await writer.send_many(topic, [b"2", b"3"], headers=[None, [("own", b"x")]])
        await asyncio.gather(*receipts)
    sent = spans.named(f"send {topic}")
    assert len(sent) == 3
    (many,) = [one for one in sent if one.attributes and "messaging.batch.message_count" in one.attributes]
    assert many.attributes is not None and many.attributes["messaging.batch.message_count"] == 2
    async with consumer(broker, topic, group_id=topic) as reader, asyncio.timeout(60):
        await reader.getone()
        (poll,) = spans.named(f"poll {topic}")
        assert poll.kind is trace.SpanKind.CLIENT
        assert poll.attributes == {
            "messaging.system": "kafka",
            "messaging.operation.name": "poll",
            "messaging.operation.type": "receive",
            "messaging.destination.name": topic,
            "messaging.client.id": "reader",
            "messaging.consumer.group.name": topic,
            "messaging.batch.message_count": 1,
        }
        await reader.poll(max_records=1)
        async for record in reader:
            with process(record):
                break
        linked = {link for one in spans.named(f"poll {topic}") for link in links(one)}
    assert linked == {ids(one) for one in sent}
    (processed,) = spans.named(f"process {topic}")
    assert links(processed) == [ids(many)]


async def test_a_handler_runs_in_the_trace_of_its_record(broker: Broker, topic: str, spans: Spans) -> None:
    async with producer(broker) as writer, consumer(broker, topic, group_id=topic, enable_auto_commit=False) as reader:
        await writer.send_and_wait(topic, b"0")
        (sent,) = spans.named(f"send {topic}")
        attempts = 0

        async def handle(record: ConsumerRecord) -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise ValueError("not yet")
            await writer.send_and_wait(f"{topic}-out", record.value)
            reader.wakeup()

        await reader.run(handle, retry_backoff_ms=1)
    failed, processed = spans.named(f"process {topic}")
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert failed.attributes is not None and failed.attributes["error.type"] == "builtins.ValueError"
    assert processed.kind is trace.SpanKind.CONSUMER
    assert processed.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.client.id": "reader",
        "messaging.consumer.group.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert processed.parent is not None and processed.parent.span_id == ids(sent)[1]
    (out,) = spans.named(f"send {topic}-out")
    assert ids(out)[0] == ids(sent)[0]
    assert out.parent is not None and out.parent.span_id == ids(processed)[1]


async def test_a_batch_and_a_thread(broker: Broker, topic: str, spans: Spans) -> None:
    async with producer(broker) as writer, consumer(broker, topic, group_id=topic, enable_auto_commit=False) as reader:
        for value in (b"0", b"1"):
            await writer.send_and_wait(topic, value)
        current = []

        def handle(records: list[ConsumerRecord]) -> None:
            current.append(trace.get_current_span().get_span_context().span_id)
            reader.wakeup()

        with ThreadPoolExecutor(1) as pool:
            await reader.run(handle, executor=pool, batch_size=2, batch_timeout_ms=30_000)
    (processed,) = spans.named(f"process {topic}")
    assert current == [ids(processed)[1]]
    assert links(processed) == [ids(one) for one in spans.named(f"send {topic}")]


async def test_what_fails_is_said(broker: Broker, topic: str, spans: Spans) -> None:
    async with producer(broker, max_request_size=1_000) as writer:
        with pytest.raises(RecordTooLargeError):
            await writer.send(topic, bytes(2_000))
    (failed,) = spans.named(f"send {topic}")
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "barnabas_client.errors.RecordTooLargeError"


def test_without_await(broker: Broker, topic: str, spans: Spans) -> None:
    servers = broker.bootstrap_servers
    with barnabas.sync.Producer(bootstrap_servers=servers) as writer:
        writer.send_and_wait(topic, b"0")
    with barnabas.sync.Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as reader:
        next(iter(reader))
    (sent,) = spans.named(f"send {topic}")
    (poll,) = spans.named(f"poll {topic}")
    assert links(poll) == [ids(sent)]


async def test_a_client_that_is_not_traced_has_its_own_methods(broker: Broker) -> None:
    assert not {"send", "send_nowait", "send_many"} & vars(producer(broker)).keys()
    assert not {"getone", "getmany"} & vars(consumer(broker, "t")).keys()
    with pytest.raises(RuntimeError, match="tracing is off"), process():
        pass


def test_clients_do_not_import_opentelemetry() -> None:
    program = "import sys; from barnabas import Consumer, Producer; print('opentelemetry' in ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=100)
    assert done.stdout == "False\n"


async def test_share_consumers(broker: Broker, topic: str, spans: Spans) -> None:
    group = f"g-{topic}"
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        begin = AlterConfigOp("share.auto.offset.reset", "earliest")
        await admin.incremental_alter_configs({ConfigResource.group(group): [begin]})
    async with producer(broker) as writer:
        await writer.send_and_wait(topic, b"1", key=b"k")
    (sent,) = spans.named(f"send {topic}")
    async with ShareConsumer(
        topic, group_id=group, bootstrap_servers=broker.bootstrap_servers, client_id="reader", fetch_max_wait_ms=50
    ) as worker:

        async def handle(record: ShareRecord) -> None:
            worker.wakeup()

        await worker.run(handle)
    (poll,), (work,) = spans.named(f"poll {topic}"), spans.named(f"process {topic}")
    assert links(poll) == [ids(sent)]
    assert poll.attributes is not None and work.attributes is not None
    assert poll.attributes["messaging.client.id"] == work.attributes["messaging.client.id"] == "reader"
    assert poll.attributes["messaging.consumer.group.name"] == group
    assert work.kind is trace.SpanKind.CONSUMER
    assert work.parent is not None and (work.parent.trace_id, work.parent.span_id) == ids(sent)
    assert work.attributes["messaging.consumer.group.name"] == group
    assert work.attributes["messaging.kafka.message.key"] == "k"
