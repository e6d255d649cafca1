"""Checks arguments that programs pass: topics, partitions, offsets. Pure.

A name or a number that does not fit into a request would fail later, together with other items of the same request.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from barnabas_client.structs import OffsetAndMetadata, TopicPartition

V = TypeVar("V")

#: An offset to commit.
Offset = int | tuple[int, str] | OffsetAndMetadata

#: The longest name of a topic. Source: Kafka's ``Topic.java``.
MAX_TOPIC_NAME: Final = 249
_INT32_END: Final = 1 << 31
_INT64_END: Final = 1 << 63


def check_topic(what: str, name: object) -> str:
    """Check that a topic name fits into a request. The broker checks its characters.

    Raises:
        TypeError: `name` is not a string, or empty.
        ValueError: `name` is longer than Kafka allows, or is not ASCII.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"{what}: {name!r} is not a topic: give its name")
    if len(name) > MAX_TOPIC_NAME:
        raise ValueError(f"{what}: {name[:20]!r}... has {len(name)} characters: give a name of 1 to {MAX_TOPIC_NAME}")
    if not name.isascii():
        raise ValueError(f"{what}: {name!r}: give a name of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


def check_partition(what: str, number: object) -> int:
    """Check the number of a partition.

    Raises:
        TypeError: `number` is not an integer.
        ValueError: `number` is negative, or does not fit into an int32.
    """
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what}: partition is {number!r}: give its number")
    if not 0 <= number < _INT32_END:
        raise ValueError(f"{what}: partition is {number}: give a number of at least 0")
    return number


def is_int64(value: object) -> bool:
    """Whether `value` is an integer of at least 0 that fits into an int64, as offsets and times do."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT64_END


def partitions_of(what: str, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Check partitions; plain tuples are accepted.

    Raises:
        TypeError: `partitions` is not a list of partitions.
        ValueError: a topic or a partition number is not valid.
    """
    if not isinstance(partitions, Iterable):
        raise TypeError(
            f"{what}: {partitions!r} is not a list of partitions: give for example [TopicPartition(topic, 0)]"
        )
    made = []
    for given in partitions:
        if not (
            isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], int)
        ):
            raise TypeError(f"{what}: {given!r} is not a partition: give TopicPartition(topic, number)")
        made.append(TopicPartition(check_topic(what, given[0]), check_partition(what, given[1])))
    return tuple(made)


def mapped(what: str, given: Mapping[TopicPartition, V]) -> Mapping[TopicPartition, V]:
    """Check that an argument is a mapping of partitions.

    Raises:
        TypeError: `given` is not a mapping.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: {given!r} is not a mapping: give for example {{TopicPartition(topic, 0): 5}}")
    return given


def offsets_of(what: str, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Check offsets to commit: alone, with metadata, or with metadata and leader epoch.

    Raises:
        TypeError: an offset has another type.
        ValueError: an offset is negative, or does not fit into an int64.
    """
    made = {}
    for tp, given in zip(partitions_of(what, mapped(what, offsets)), offsets.values(), strict=True):
        parts = given if isinstance(given, tuple) else (given,)
        offset = OffsetAndMetadata(*parts) if 0 < len(parts) <= len(OffsetAndMetadata._fields) else None
        if offset is None or not _is_offset(offset):
            raise TypeError(f"{what}: {given!r} for {tp}: give an offset, or an offset with metadata")
        if not is_int64(offset.offset):
            raise ValueError(f"{what}: offset {offset.offset} for {tp}: give at least 0")
        made[tp] = offset
    return made


def _is_offset(given: OffsetAndMetadata) -> bool:
    numbers = (given.offset, given.leader_epoch)
    return isinstance(given.metadata, str) and all(
        isinstance(one, int) and not isinstance(one, bool) for one in numbers
    )
