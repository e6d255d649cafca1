"""What the sticky assignors tell the leader, as bytes. Pure.

Sources: ``StickyAssignor.java``, ``CooperativeStickyAssignor.java``. Data that cannot be read is no claim at all, as in
Kafka: one broken member must not stop the group.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas_client.structs import TopicPartition
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.schema import INT32, STRING, Data, Struct, array, field

#: Of a member that does not tell any.
NO_GENERATION: Final = -1
_GENERATION: Final = struct.Struct(">i")


class Claim(NamedTuple):
    """What a member says it had, and in which generation."""

    partitions: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION


class _Previous(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class _StickyUserData(Data, versions="0-1"):
    """The data of `sticky`. Unlike the other blobs it does not say its version: what is too short for 1 is 0."""

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
            told = decode(_StickyUserData, version, blob or b"", trailing=True)
        except DecodeError:
            continue
        claimed = [TopicPartition(t.topic, number) for t in told.previous_assignment for number in t.partitions]
        return Claim(claimed, told.generation)
    return Claim()


def encode_generation(generation: int) -> bytes:
    """User data of `cooperative-sticky`, version 0."""
    return _GENERATION.pack(generation)


def decode_generation(blob: bytes | None) -> int:
    """The generation that a member of `cooperative-sticky` tells."""
    return NO_GENERATION if blob is None or len(blob) < _GENERATION.size else int(_GENERATION.unpack_from(blob)[0])
