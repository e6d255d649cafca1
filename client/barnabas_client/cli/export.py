"""`barnabas topics export`: writes the records of a topic to a file, as a table or as lines.

The records come as Arrow record batches and are written as they come, so that memory stays bounded. The file gets its
name when it is complete.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from barnabas_client.cli import clients, values
from barnabas_client.cli.command import Command, add_isolation_level, add_partitions, add_since, checked
from barnabas_client.cli.failures import DONE, CommandError, UsageError
from barnabas_client.cli.formats import json_line, json_text, shown
from barnabas_client.cli.optional import optional
from barnabas_client.cli.output import Output
from barnabas_client.structs import ConsumerRecord, Headers
from barnabas_protocol.counts import counted

#: A format writes all batches to a file.
Writer = Callable[[BinaryIO, Any], None]

#: Bytes of a row group of a Parquet file.
_ROW_GROUP: Final = 64 * 1024 * 1024


def export(arguments: Namespace, output: Output) -> int:
    """Write a topic to a file or to standard output."""
    path: Path | None = arguments.output
    kind = arguments.format or (None if path is None else path.suffix[1:])
    if kind not in FORMATS:
        raise UsageError(f"give --format, or an output file that ends with .{', .'.join(FORMATS)}")
    if path is None and output.terminal and kind in ("parquet", "arrow"):
        raise UsageError(f"{kind} is not for terminals: name a file with --output, or redirect the output")
    tables = optional("barnabas_client.tables", extra="arrow", purpose="topics export")
    optional("pyarrow", extra="arrow", purpose="topics export")
    now = time.time_ns() // 1_000_000
    try:
        reader = tables.read_batches(
            arguments.topic,
            partitions=arguments.partitions,
            start=_time(arguments.since, now),
            end=_time(arguments.until, now),
            isolation_level=arguments.isolation_level,
            **clients.settings(arguments),
        )
    except ValueError as error:  # of a partition that does not exist
        raise UsageError(str(error)) from None
    records = 0

    def batches() -> Iterator[Any]:
        nonlocal records
        for batch in reader:
            records += batch.num_rows
            yield batch

    with _written(path, output) as file:
        FORMATS[kind](file, batches())
    if output.json and path is not None:
        output.data({"topic": arguments.topic, "file": str(path), "format": kind, "records": records})
    elif path is not None:
        output.note(f"{arguments.topic}: {counted(records, 'record')} in {path}")
    return DONE


def _time(point: Any, now: int) -> datetime | None:
    return None if point is None else datetime.fromtimestamp(point.ms(now) / 1000, UTC)


@contextmanager
def _written(path: Path | None, output: Output) -> Iterator[BinaryIO]:
    """A file that is renamed to `path` when it is complete; standard output if None."""
    if path is None:
        output.out.flush()
        yield output.out.buffer
        output.out.buffer.flush()
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _parquet(file: BinaryIO, batches: Iterator[Any]) -> None:
    parquet, pyarrow = _import("pyarrow.parquet"), _import("pyarrow")
    with parquet.ParquetWriter(file, _schema(), compression="zstd") as writer:
        group: list[Any] = []
        size = 0
        for batch in batches:
            group.append(batch)
            size += batch.nbytes
            if size >= _ROW_GROUP:
                writer.write_table(pyarrow.Table.from_batches(group))
                group, size = [], 0
        if group:
            writer.write_table(pyarrow.Table.from_batches(group))


def _arrow(file: BinaryIO, batches: Iterator[Any]) -> None:
    with _import("pyarrow").ipc.new_file(file, _schema()) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _csv(file: BinaryIO, batches: Iterator[Any]) -> None:
    """Keys and values as text, headers as JSON."""
    pyarrow, csv = _import("pyarrow"), _import("pyarrow.csv")
    text = {"key": pyarrow.string(), "value": pyarrow.string(), "headers": pyarrow.string()}
    schema = pyarrow.schema([field.with_type(text.get(field.name, field.type)) for field in _schema()])
    with csv.CSVWriter(file, schema) as writer:
        for batch in batches:
            columns = batch.columns
            try:
                columns[-3:-1] = [column.cast(pyarrow.string()) for column in columns[-3:-1]]
            except pyarrow.ArrowInvalid:
                raise CommandError(
                    "keys or values are not UTF-8, which CSV cannot hold. To do: give --format parquet, arrow or jsonl"
                ) from None
            headers = [
                None if row is None else json_text([[one["key"], shown(one["value"])] for one in row])
                for row in columns[-1].to_pylist()
            ]
            columns[-1] = pyarrow.array(headers, pyarrow.string())
            writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))


def _jsonl(file: BinaryIO, batches: Iterator[Any]) -> None:
    """The lines of ``barnabas consume --json``."""
    milliseconds = _import("pyarrow").int64()
    for batch in batches:
        columns = batch.columns
        columns[3] = columns[3].cast(milliseconds)
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        file.write(b"".join(json_line(ConsumerRecord._make((*row[:-1], _headers(row[-1])))) for row in rows))


def _headers(listed: list[dict[str, Any]] | None) -> Headers:
    return tuple((one["key"], one["value"]) for one in listed or ())


def _import(module: str) -> Any:
    return optional(module, extra="arrow", purpose="topics export")


def _schema() -> Any:
    return _import("barnabas_client.columns").SCHEMA


#: Formats by name, which is also the suffix of files.
FORMATS: Final[dict[str, Writer]] = {"parquet": _parquet, "arrow": _arrow, "csv": _csv, "jsonl": _jsonl}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")
    parser.add_argument("-f", "--format", choices=tuple(FORMATS), help="default: what the name of the file ends with")
    add_partitions(parser)
    add_since(parser, "start at a time, or at a duration ago, such as 10m")
    parser.add_argument(
        "--until", type=checked(values.since), metavar="TIME", help="end at a time (default: the end of the topic now)"
    )
    add_isolation_level(parser)


COMMAND: Final = Command(
    path=("topics", "export"), help="write the records of a topic to a file", add_arguments=_arguments, run=export
)
