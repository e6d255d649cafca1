"""The user data of the sticky assignors, as bytes. Pure.

Sources: ``StickyAssignor.java``, ``CooperativeStickyAssignor.java``. Data that cannot be decoded counts as no
claim, as in Kafka: one broken member must not stop the group.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas_client.structs import TopicPartition
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.schema import INT32, STRING, Data, Struct, array, field

#: The generation of a member that sends none.
NO_GENERATION: Final = -1
_GENERATION: Final = struct.Struct(">i")


class Claim(NamedTuple):
    """The partitions that a member claims to own, and in which generation."""

    partitions: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION


class _Previous(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class _StickyUserData(Data, versions="0-1"):
    """The user data of `sticky`. It does not contain its version: what is too short for version 1 is version 0."""

    previous_assignment: list[_Previous] = field(array(_Previous))
    generation: int = field(INT32, "1+", default=NO_GENERATION)


def encode_claim(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """User data of `sticky`, version 1."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    previous = [_Previous(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return encode(_StickyUserData(previous_assignment=previous, generation=generation), 1)


def decode_claim(blob: bytes | None) -> Claim:
    """The claim of a member of `sticky`, from user data of version 1 or 0."""
    for version in (1, 0):
        try:
            data = decode(_StickyUserData, version, blob or b"", trailing=True)
        except DecodeError:
            continue
        claimed = [TopicPartition(t.topic, number) for t in data.previous_assignment for number in t.partitions]
        return Claim(claimed, data.generation)
    return Claim()


def encode_generation(generation: int) -> bytes:
    """User data of `cooperative-sticky`, version 0."""
    return _GENERATION.pack(generation)


def decode_generation(blob: bytes | None) -> int:
    """The generation of a member of `cooperative-sticky`, from its user data."""
    return NO_GENERATION if blob is None or len(blob) < _GENERATION.size else int(_GENERATION.unpack_from(blob)[0])
