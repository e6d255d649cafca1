"""What programs give, checked where they give it: a name or a number that no request can carry would fail later, and
perhaps take along what has nothing to do with it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from barnabas_client.structs import OffsetAndMetadata, TopicPartition

V = TypeVar("V")

#: What a commit takes as an offset.
Offset = int | tuple[int, str] | OffsetAndMetadata

#: The longest name of a topic. Source: Kafka's ``Topic.java``.
MAX_TOPIC_NAME: Final = 249
_INT32_END: Final = 1 << 31
_INT64_END: Final = 1 << 63


def check_topic(what: str, name: object) -> str:
    """The name of a topic, as far as it can be asked about; which characters are good is for the broker to say.

    Raises:
        TypeError: no string, or an empty one.
        ValueError: longer than Kafka's names are, or not encodable.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"{what}: {name!r} is no topic: give its name")
    if len(name) > MAX_TOPIC_NAME:
        raise ValueError(f"{what}: {name[:20]!r}... has {len(name)} characters: give a name of 1 to {MAX_TOPIC_NAME}")
    if not name.isascii():
        raise ValueError(f"{what}: {name!r}: give a name of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


def check_partition(what: str, number: object) -> int:
    """The number of a partition.

    Raises:
        TypeError: no integer.
        ValueError: negative, or more than an int32 holds.
    """
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what}: partition is {number!r}: give its number")
    if not 0 <= number < _INT32_END:
        raise ValueError(f"{what}: partition is {number}: give a number from 0 on")
    return number


def is_int64(value: object) -> bool:
    """Whether this is an integer that an offset or a time in milliseconds can be: from 0 to what an int64 holds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT64_END


def partitions_of(what: str, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Partitions as given by a program; plain tuples will do.

    Raises:
        TypeError: something else.
        ValueError: a topic or a number that no partition has.
    """
    if not isinstance(partitions, Iterable):
        raise TypeError(f"{what}: {partitions!r} is no list of partitions: give such as [TopicPartition(topic, 0)]")
    made = []
    for given in partitions:
        if not (
            isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], int)
        ):
            raise TypeError(f"{what}: {given!r} is no partition: give TopicPartition(topic, number)")
        made.append(TopicPartition(check_topic(what, given[0]), check_partition(what, given[1])))
    return tuple(made)


def mapped(what: str, given: Mapping[TopicPartition, V]) -> Mapping[TopicPartition, V]:
    """What is given for each of some partitions.

    Raises:
        TypeError: no mapping.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: {given!r} is no mapping: give such as {{TopicPartition(topic, 0): 5}}")
    return given


def offsets_of(what: str, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit as given by a program: alone, with metadata, or with metadata and leader epoch.

    Raises:
        TypeError: something else.
        ValueError: a number that no offset is.
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
