"""`barnabas dump offsets`: the records of ``__consumer_offsets``, one JSON document a line.

The format is that of Kafka's OffsetsMessageFormatter and GroupMetadataMessageFormatter: field names of the message
definitions, bytes in base64, and only the fields that the version of a record has. Source:
``CoordinatorRecordMessageFormatter.java`` and the generated ``OffsetCommitValueJsonConverter``.
"""

import base64
import struct
from argparse import ArgumentParser, Namespace
from typing import Any, Final

from barnabas_client.admin.types import OffsetSpec
from barnabas_client.cli import clients
from barnabas_client.cli.command import Command
from barnabas_client.cli.failures import DONE, FAILED, CommandError
from barnabas_client.cli.output import Output
from barnabas_client.errors import UnknownTopicOrPartitionError
from barnabas_client.history.reading import read
from barnabas_client.structs import ConsumerRecord, TopicPartition
from barnabas_protocol.codec import decode
from barnabas_protocol.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.schema import UUID, Data, Field, Struct
from barnabas_protocol.uuids import uuid_text

_INT16: Final = struct.Struct(">h")
#: By record type, which is the version of the key: the value of --only, the class of the key, the class of the value.
_TYPES: Final[dict[int, tuple[str, type[OffsetCommitKey | GroupMetadataKey], type[Data]]]] = {
    0: ("offsets", OffsetCommitKey, OffsetCommitValue),
    1: ("offsets", OffsetCommitKey, OffsetCommitValue),
    2: ("groups", GroupMetadataKey, GroupMetadataValue),
}


async def dump_offsets(arguments: Namespace, output: Output) -> int:
    """Print every record, in order within a partition."""
    async with clients.admin(arguments) as admin:
        try:
            (topic,) = await admin.describe_topics([OFFSETS_TOPIC])
        except UnknownTopicOrPartitionError:
            raise CommandError(
                f"topic {OFFSETS_TOPIC} does not exist: no group has committed offsets here yet. To do: check "
                "that these are the right brokers"
            ) from None
        partitions = [TopicPartition(OFFSETS_TOPIC, number) for number in sorted(topic.partitions)]
        firsts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    starts = {tp: one.offset for tp, one in firsts.items()}
    broken = printed = 0
    async for records in read(
        clients.connect(arguments), starts, {tp: one.offset for tp, one in ends.items()}, follow=arguments.follow
    ):
        for record in records:
            try:
                shown = message(record, arguments.group, arguments.only)
            except DecodeError as error:
                broken += 1
                output.error(f"{record.topic_partition} at offset {record.offset}: not a record of a group: {error}")
                continue
            if shown is not None:
                output.row(shown)
                printed += 1
        output.out.flush()
        output.check()
    if arguments.group is not None and not printed and not broken:
        kind = {None: "records", "offsets": "committed offsets", "groups": "metadata"}[arguments.only]
        raise CommandError(
            f"topic {OFFSETS_TOPIC} has no {kind} of group {arguments.group!r}. To do: check its name with "
            "`barnabas groups list`"
        )
    return FAILED if broken else DONE


def message(record: ConsumerRecord, group: str | None = None, only: str | None = None) -> dict[str, Any] | None:
    """Convert a record as Kafka's formatters do; None if it is not selected, or of a type that they do not know.

    Args:
        record: of ``__consumer_offsets``.
        group: select only the records of this group.
        only: "offsets" or "groups": select only the records of one of the two formatters.

    Raises:
        DecodeError: the key or the value cannot be decoded.
    """
    key = record.key
    if key is None or len(key) < _INT16.size:
        return None
    (record_type,) = _INT16.unpack_from(key)
    if record_type not in _TYPES or only not in (None, _TYPES[record_type][0]):
        return None
    _, key_class, value_class = _TYPES[record_type]
    decoded = decode(key_class, record_type, memoryview(key)[_INT16.size :])
    if group is not None and decoded.group != group:
        return None
    return {
        "key": {"type": record_type, "data": as_json(decoded, record_type)},
        "value": _value(value_class, record.value),
    }


def _value(cls: type[Data], value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    if len(value) < _INT16.size:
        raise DecodeError(f"a value of {len(value)} bytes")
    (version,) = _INT16.unpack_from(value)
    if version not in cls.VERSIONS:
        return {"version": version, "data": "unknown"}
    return {"version": version, "data": as_json(decode(cls, version, memoryview(value)[_INT16.size :]), version)}


def as_json(message: Struct, version: int) -> dict[str, Any]:
    """Convert a structure to JSON data, with Kafka's field names and the fields that `version` has."""
    shown = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if version not in field.versions or (version in field.tagged and value == field.default):
            continue
        shown[_camel(field.name)] = _shown(value, field, version)
    return shown


def _shown(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, list):
        return [_shown(one, field, version) for one in value]
    if isinstance(value, Struct):
        return as_json(value, version)
    if isinstance(value, bytes | bytearray | memoryview):
        if field.type is UUID:
            return uuid_text(value)
        return base64.b64encode(value).decode()
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-g", "--group", metavar="GROUP", help="only the records of this group")
    parser.add_argument(
        "--only", choices=("offsets", "groups"), help="only the records that one of Kafka's two formatters prints"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more records at the end")


COMMAND: Final = Command(
    path=("dump", "offsets"),
    help="print the records of __consumer_offsets as Kafka does",
    add_arguments=_arguments,
    run=dump_offsets,
)
