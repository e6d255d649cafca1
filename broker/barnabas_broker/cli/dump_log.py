"""`barnabas dump log`: prints the batches of log files in the format of Kafka's DumpLogSegments."""

import base64
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from barnabas_broker.cli.output import Output
from barnabas_broker.storage import names
from barnabas_broker.storage.inspect import DumpedBatch, Problem, dump
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.printable import printable
from barnabas_protocol.records import Record, control_record_type
from barnabas_protocol.records.batches import BatchHeader
from barnabas_protocol.records.compression import Codec

_DELETE_HORIZON: Final = 0x40


def dump_log(arguments: Namespace, output: Output) -> int:
    """Print each batch; returns the exit status, 1 if a batch is corrupt."""
    problems = 0
    for file in _files([Path(name) for name in arguments.files]):
        if not output.json:
            output.line(f"Dumping {file}")
            output.line(f"Log starting offset: {_starting_offset(file)}")
        for item in dump(file, verify=arguments.verify):
            if isinstance(item, Problem):
                problems += 1
                _problem(item, output)
                continue
            try:
                records = item.records() if arguments.records else None
            except DecodeError as error:
                problems += 1
                records = None
                _problem(Problem(file, item.position, item.header.base_offset, str(error)), output)
            if output.json:
                output.row(_as_data(file, item, records, arguments.verify))
            else:
                _print(item, records, arguments.verify, output)
    return 1 if problems else 0


def _files(paths: list[Path]) -> Iterator[Path]:
    """Yield the named files, and the log files of named directories."""
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob(f"*{names.LOG}"))
        else:
            yield path


def _problem(problem: Problem, output: Output) -> None:
    if output.json:
        output.row(
            {
                "file": str(problem.file),
                "position": problem.position,
                "offset": problem.offset,
                "problem": problem.reason,
            }
        )
    output.error(str(problem))


def _print(item: DumpedBatch, records: list[Record] | None, verified: bool, output: Output) -> None:
    header = item.header
    time = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    output.line(
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_bool(header.is_transactional)} isControl: {_bool(header.is_control)} "
        f"deleteHorizonMs: {_delete_horizon(header)} position: {item.position} "
        f"{time}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {_codec(item)} crc: {header.crc}" + (" isvalid: true" if verified else "")
    )
    for record in records or ():
        line = (
            f"| offset: {record.offset} {time}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)} sequence: {_sequence(header, record)} "
            f"headerKeys: [{','.join(printable(name) for name, _ in record.headers)}]"
        )
        if header.is_control:
            line += f" endTxnMarker: {control_record_type(record).name}"
        else:
            line += "" if record.key is None else f" key: {_text(record.key)}"
            line += "" if record.value is None else f" payload: {_text(record.value)}"
        output.line(line)


def _as_data(file: Path, item: DumpedBatch, records: list[Record] | None, verified: bool) -> dict[str, Any]:
    header = item.header
    data: dict[str, Any] = {
        "file": str(file),
        "position": item.position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "compression": _codec(item),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "max_timestamp": header.max_timestamp,
        "crc": header.crc,
        "verified": verified,
    }
    if records is not None:
        data["records"] = [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _shown(record.key),
                "value": _shown(record.value),
                "headers": [[name, _shown(content)] for name, content in record.headers],
            }
            for record in records
        ]
    return data


def _codec(item: DumpedBatch) -> str:
    try:
        return Codec(item.header.codec).name.lower()
    except ValueError:
        return f"unknown ({item.header.codec})"


def _starting_offset(file: Path) -> int:
    parsed = names.parse_offset_name(file.name)
    return parsed[0] if parsed else 0


def _delete_horizon(header: BatchHeader) -> str:
    """The time from which tombstones of a compacted batch may be deleted: it replaces the base timestamp (KIP-534)."""
    return f"OptionalLong[{header.base_timestamp}]" if header.attributes & _DELETE_HORIZON else "OptionalLong.empty"


def _sequence(header: BatchHeader, record: Record) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF


def _bool(value: bool) -> str:
    return str(value).lower()


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(data: bytes) -> str:
    """Format bytes on one line."""
    return printable(data.decode(errors="backslashreplace"))


def _shown(data: bytes | None) -> Any:
    """Convert bytes for JSON: to text if they are UTF-8, else to base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .log file, or the directory of a partition")
    parser.add_argument("--records", action="store_true", help="print the records of each batch")
    parser.add_argument("--verify", action="store_true", help="check the CRC and structure of each batch")


COMMAND: Final[dict[str, Any]] = {
    "path": ("dump", "log"),
    "help": "print the batches of log files",
    "add_arguments": _arguments,
    "run": dump_log,
    "offline": True,
}
