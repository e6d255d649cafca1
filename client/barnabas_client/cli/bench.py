"""`barnabas bench`: measures how many records per second one producer writes and one consumer reads."""

import asyncio
import os
import secrets
import time
from argparse import ArgumentParser, Namespace
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import NewTopic, OffsetSpec
from barnabas_client.cli import clients, values
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.failures import DONE, CommandError, UsageError
from barnabas_client.cli.output import Output
from barnabas_client.cli.progress import bar
from barnabas_client.cli.values import CODECS
from barnabas_client.structs import TopicPartition
from barnabas_protocol.counts import counted

_LINGER_MS = 5
_BATCH = 131_072
_STEP = 1_000


async def bench(arguments: Namespace, output: Output) -> int:
    """Write and read records, and print the rates."""
    if arguments.what == "consume" and arguments.topic is None:
        raise UsageError("bench consume reads an existing topic: name it with --topic")
    own = arguments.topic is None
    topic = arguments.topic or f"barnabas-bench-{secrets.token_hex(4)}"
    results = []
    async with clients.admin(arguments) as admin:
        if own:
            await admin.create_topics([NewTopic(topic, arguments.partitions)])
        try:
            if arguments.what != "consume":
                results.append(await _produce(arguments, topic, output))
            if arguments.what != "produce":
                results.append(await _consume(arguments, admin, topic, output))
        finally:
            if own:
                await admin.delete_topics([topic], raise_errors=False)
    if output.json:
        output.data(results)
    else:
        for one in results:
            amount = f"{counted(one['records'], 'record')}, {counted(one['bytes'], 'byte')}"
            output.line(
                f"{one['what']}: {amount} in {one['seconds']:.2f} s: {one['records_per_second']:,} records/s, "
                f"{one['megabytes_per_second']:,} MB/s"
            )
    return DONE


async def _produce(arguments: Namespace, topic: str, output: Output) -> dict[str, Any]:
    # Half of the value can be compressed, as in real records.
    value = os.urandom(arguments.size // 2).ljust(arguments.size, b"x")
    compression = None if arguments.compression == "none" else arguments.compression
    failures: list[BaseException] = []

    def done(future: "asyncio.Future[Any]") -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None and not failures:
            failures.append(error)

    producer = clients.producer(
        arguments, linger_ms=_LINGER_MS, batch_size=_BATCH, compression_type=compression, max_request_size=8 * _BATCH
    )
    async with producer:
        await producer.partitions_for(topic)
        start = time.perf_counter()
        with bar(output, "produce", arguments.records, unit="records") as advance:
            for number in range(1, arguments.records + 1):
                receipt = await producer.send(topic, value)
                receipt.add_done_callback(done)
                if not number % _STEP:
                    advance(_STEP)
                if failures:
                    raise failures[0]
            await producer.flush()
        took = time.perf_counter() - start
    if failures:
        raise failures[0]
    return _result("produce", arguments.records, arguments.records * arguments.size, took)


async def _consume(arguments: Namespace, admin: Admin, topic: str, output: Output) -> dict[str, Any]:
    (found,) = await admin.describe_topics([topic])
    partitions = [TopicPartition(topic, number) for number in found.partitions]
    firsts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    there = sum(ends[tp].offset - firsts[tp].offset for tp in partitions)
    wanted = min(there, arguments.records)
    if not wanted:
        raise CommandError(
            f"topic {topic} is empty. To do: write to it first with `barnabas bench produce --topic {topic}`"
        )
    records = size = 0
    async with clients.consumer(arguments, max_poll_records=10_000) as consumer:
        consumer.assign(partitions)
        for tp in partitions:
            consumer.seek(tp, firsts[tp].offset)
        start = time.perf_counter()
        with bar(output, "consume", wanted, unit="records") as advance:
            while records < wanted:
                batches = await consumer.getmany(timeout_ms=round(arguments.timeout * 1000))
                if not batches:
                    raise CommandError(f"{topic}: no more records after {records} of {wanted}")
                for batch in batches.values():
                    records += len(batch)
                    size += sum(len(record.value or b"") for record in batch)
                    advance(len(batch))
        took = time.perf_counter() - start
    return _result("consume", records, size, took)


def _result(what: str, records: int, size: int, took: float) -> dict[str, Any]:
    return {
        "what": what,
        "records": records,
        "bytes": size,
        "seconds": round(took, 3),
        "records_per_second": round(records / took),
        "megabytes_per_second": round(size / took / 1e6, 1),
    }


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("both", "produce", "consume"), default="both")
    parser.add_argument("-n", "--records", type=checked(values.positive), default=100_000, metavar="N")
    parser.add_argument("-s", "--size", type=checked(values.positive), default=100, metavar="BYTES")
    parser.add_argument("-p", "--partitions", type=checked(values.positive), default=1, metavar="N")
    parser.add_argument("-z", "--compression", choices=CODECS, default="none")
    parser.add_argument(
        "-t", "--topic", metavar="TOPIC", help="use this topic (default: a new one, deleted afterwards)"
    )


COMMAND: Final = Command(
    path=("bench",),
    help="measure how many records per second can be written and read",
    add_arguments=_arguments,
    run=bench,
    reports=("barnabas_client.producer",),
)
