"""`barnabas produce`: sends the lines of a file, or of standard input, as records."""

import asyncio
import os
import stat
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from itertools import repeat
from typing import BinaryIO, Final, NamedTuple

from barnabas_client.cli import clients
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, add_pairs
from barnabas_client.cli.failures import DONE, FAILED, CommandError
from barnabas_client.cli.formats import unescape
from barnabas_client.cli.output import Output
from barnabas_client.cli.progress import bar
from barnabas_client.cli.values import CODECS
from barnabas_client.errors import RecordTooLargeError
from barnabas_client.producer.producer import Producer
from barnabas_client.producer.receipts import BatchReceipt
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import KafkaError

_CHUNK: Final = 256 * 1024
#: Short enough for a terminal, long enough to send a file in full batches.
_LINGER_MS: Final = 5
#: The topic and the broker decide how large a record may be; this is the broker's limit of a request.
_MAX_REQUEST_SIZE: Final = 100 * 1024 * 1024


class LineFormat(NamedTuple):
    """Splits a line into key and value."""

    separator: bytes | None
    null: bytes | None

    def split(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None]:
        """Return key and value of a line.

        Raises:
            CommandError: the line has no separator.
        """
        key: bytes | None = None
        value: bytes | None = line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                raise CommandError(
                    f"line {number} has no key separator {self.separator.decode(errors='replace')!r}: this line and "
                    "those after it were not sent. To do: repair the line, or leave out --key-separator"
                )
        return None if key == self.null else key, None if value == self.null else value

    def columns(
        self, lines: list[bytes], number: int
    ) -> tuple[list[bytes | None] | None, Sequence[bytes | None], CommandError | None]:
        """Return keys and values of lines up to the first one without a separator, and the error about that one.

        Args:
            lines: without their ends.
            number: of the first line.
        """
        if self.separator is None and self.null is None:
            return None, lines, None
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for at, line in enumerate(lines, number):
            try:
                key, value = self.split(line, at)
            except CommandError as error:
                return keys, values, error
            keys.append(key)
            values.append(value)
        return keys, values, None


class _Tally:
    """Counts sent and acknowledged records, and keeps the first failure."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = self.bytes = 0
        self.failure: BaseException | None = None

    def done(self, receipt: BatchReceipt, future: object) -> None:
        self.acknowledged += receipt.acknowledged
        error = asyncio.CancelledError() if receipt.cancelled() else receipt.exception()
        if self.failure is None:
            self.failure = error


async def produce(arguments: Namespace, output: Output) -> int:
    """Send each line as a record."""
    separator = None if arguments.key_separator is None else unescape(arguments.key_separator).encode()
    line_format = LineFormat(separator, None if arguments.null is None else arguments.null.encode())
    acks = arguments.acks if arguments.acks == "all" else int(arguments.acks)
    compression = None if arguments.compression == "none" else arguments.compression
    tally, start = _Tally(), time.perf_counter()
    with _opened(arguments.file) as stream:
        settings = {"acks": acks, "compression_type": compression, "linger_ms": _LINGER_MS}
        if arguments.transactional_id:
            settings["transactional_id"] = arguments.transactional_id
        producer = clients.producer(arguments, max_request_size=_MAX_REQUEST_SIZE, **settings)
        async with producer, _transaction(producer, arguments):
            with _progress(stream, arguments.topic, output) as advance:
                async for data, lines in _lines(stream):
                    await _send(producer, arguments, line_format, lines, tally)
                    advance(data, tally.sent)
                    if tally.failure is not None:
                        break
            await producer.flush()
            if tally.failure is not None and arguments.transactional_id:
                await producer.abort_transaction()
                tally.acknowledged = 0
    return _report(arguments.topic, tally, time.perf_counter() - start, output)


def _transaction(producer: Producer, arguments: Namespace) -> AbstractAsyncContextManager[None]:
    """One transaction around all lines, with --transactional-id."""
    return producer.transaction() if arguments.transactional_id else nullcontext()


@contextmanager
def _progress(stream: BinaryIO, topic: str, output: Output) -> Iterator[Callable[[int, int], None]]:
    """Show the progress: in bytes of a file, or in records of a pipe. Typed input has none."""
    total = _size(stream)
    if total is not None:
        with bar(output, topic, total) as advance:
            yield lambda data, records: advance(data)
    elif stream.isatty():
        yield lambda data, records: None
    else:
        shown = 0

        def count(data: int, records: int) -> None:
            nonlocal shown
            advance(records - shown)
            shown = records

        with bar(output, topic, None, unit="records") as advance:
            yield count


async def _send(
    producer: Producer, arguments: Namespace, line_format: LineFormat, lines: list[bytes], tally: _Tally
) -> None:
    keys, values, failure = line_format.columns(lines, tally.sent + 1)
    pairs = [(name, value.encode()) for name, value in arguments.headers]
    try:
        receipts = await producer.send_many(
            arguments.topic, values, keys, repeat(pairs) if pairs else None, partition=arguments.partition
        )
    except RecordTooLargeError as error:
        number = tally.sent + 1 + lines.index(max(lines, key=len))
        raise CommandError(
            f"line {number} is larger than {_MAX_REQUEST_SIZE:,} bytes: this line and those after it were not sent. "
            "To do: split it"
        ) from error
    tally.sent += len(values)
    tally.bytes += sum(map(len, lines[: len(values)]))
    for receipt in receipts:
        receipt.add_done_callback(partial(tally.done, receipt))
    if failure is not None:
        raise failure


def _report(topic: str, tally: _Tally, took: float, output: Output) -> int:
    failure = tally.failure
    why = for_command_line(failure) if isinstance(failure, KafkaError) else repr(failure)
    if failure is not None:
        lost = tally.sent - tally.acknowledged
        written = f"{counted(tally.acknowledged, 'record')} {'was' if tally.acknowledged == 1 else 'were'} written"
        output.error(f"{written} to {topic}, {lost:,} {'was' if lost == 1 else 'were'} not: {why}")
    elif not tally.sent:
        output.note(f"nothing was read, so no record was written to {topic}")
    elif output.err.isatty() and not output.json:
        output.note(f"{counted(tally.acknowledged, 'record')} to {topic} in {took:.2f} s")
    if output.json:
        output.data(
            {
                "topic": topic,
                "records": tally.acknowledged,
                "bytes": tally.bytes,
                "seconds": round(took, 3),
                "error": None if failure is None else why,
            }
        )
    return DONE if failure is None else FAILED


@contextmanager
def _opened(file: str | None) -> Iterator[BinaryIO]:
    """Open a file, or standard input."""
    if file is None or file == "-":
        yield sys.stdin.buffer
    else:
        with open(file, "rb") as stream:
            yield stream


def _size(stream: BinaryIO) -> int | None:
    """The size of a regular file in bytes; None for anything else."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _may_wait(stream: BinaryIO) -> bool:
    """Whether a read may have to wait: for a pipe, a socket or a terminal. Only these can be waited for by the loop."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()


async def _lines(stream: BinaryIO) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Yield lists of lines with the number of bytes that were read. The last line may have no line end."""
    rest = b""
    async for chunk in _chunks(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        yield len(chunk), [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield 0, [rest]


async def _chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield what can be read. Waiting for a pipe or a terminal does not block the event loop."""
    if not _may_wait(stream):
        while chunk := stream.read(_CHUNK):
            yield chunk
            await asyncio.sleep(0)
        return
    loop, descriptor = asyncio.get_running_loop(), stream.fileno()
    while True:
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return
        yield chunk


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", nargs="?", metavar="FILE", help="one record per line (default: standard input)")
    parser.add_argument("-K", "--key-separator", metavar="TEXT", help=r"the text between key and value; \t is a tab")
    add_pairs(parser, "-H", "--header", dest="headers", help="add a header to each record; repeatable")
    parser.add_argument("--null", metavar="TEXT", help="send a key or value that equals TEXT as null (a tombstone)")
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="default: by key")
    parser.add_argument("-z", "--compression", choices=CODECS, default="none", help="default: none")
    parser.add_argument(
        "--transactional-id", metavar="ID", help="send all lines in one transaction: all of them, or none"
    )
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all", help="default: all")


COMMAND: Final = Command(
    path=("produce",),
    help="send lines as records",
    add_arguments=_arguments,
    run=produce,
    reports=("barnabas_client.producer",),
)
