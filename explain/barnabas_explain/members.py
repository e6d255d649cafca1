"""The values in group events: members, the partitions that they gain and lose, pauses, commits. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, Protocol, TypeVar

from barnabas_protocol.subscriptions import read_assignment

#: The members that one record lists; the others are left out.
MOST_MEMBERS: Final = 200
#: The assignments that are read for one record: the bytes may differ although the partitions are the same.
_MOST_READ: Final = 1_000

#: A topic and the number of a partition.
Partition = tuple[str, int]
#: Numbers of partitions by topic, ascending.
ByTopic = Mapping[str, Sequence[int]]

K = TypeVar("K")


class Member(NamedTuple):
    """A member of a group, as its events name it.

    Attributes:
        member_id: its id.
        client_id: of its client.
        host: the address of its client, as Kafka prints it.
        instance_id: of a static member.
    """

    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    instance_id: str | None = None

    @property
    def name(self) -> str:
        """A name for people: the instance id, or else the client id and the host; "the coordinator" for no member.

        Member ids are new after every restart, these names are not.
        """
        return self.common_name

    @property
    def common_name(self) -> str:
        """The name that others may have, too."""
        if self.instance_id:
            return self.instance_id
        name = self.client_id or self.member_id or "the coordinator"
        host = (self.host or "").removeprefix("/")
        return f"{name} ({host})" if host else name


class Move(NamedTuple):
    """The partitions that a member gained and lost."""

    member: Member
    gained: ByTopic
    lost: ByTopic


class LateMember(NamedTuple):
    """A member that rejoined after the start of a rebalance.

    Attributes:
        member: the member.
        after_ms: so many milliseconds after the start.
        told_ms: the time after the start at which a response told it to rejoin, in ms; None if none did, or if that is
            not recorded.
        heartbeat_ms: the time between its last two heartbeats, in ms; None if it is not recorded.
    """

    member: Member
    after_ms: float
    told_ms: float | None = None
    heartbeat_ms: float | None = None


class Pause(NamedTuple):
    """For how many milliseconds a partition had no owner: bounds, because members and coordinator see other times."""

    topic: str
    partition: int
    at_least_ms: int
    at_most_ms: int


class Commit(NamedTuple):
    """The newest commit of a partition, in ms since 1970."""

    topic: str
    partition: int
    time: int


class OffsetChange(NamedTuple):
    """The change of a committed offset.

    Attributes:
        topic: the topic.
        partition: the number of the partition.
        before: the offset before; None if there was none.
        after: the offset now; None if it was deleted.
    """

    topic: str
    partition: int
    before: int | None
    after: int | None

    @property
    def is_back(self) -> bool:
        """Whether the offset is smaller than before."""
        return self.before is not None and self.after is not None and self.after < self.before

    @property
    def is_forward(self) -> bool:
        """Whether the offset is larger than before."""
        return self.before is not None and self.after is not None and self.after > self.before


class Position(NamedTuple):
    """The committed offset of a partition, -1 if there is none."""

    topic: str
    partition: int
    offset: int


class MemberLag(NamedTuple):
    """A member whose partitions have nearly all of the lag of its group.

    Attributes:
        member: the member.
        lag: of these partitions.
        positions: their committed offsets.
        stood_ms: for how long none of these has moved; None if one has, or if that is not known.
    """

    member: Member
    lag: int
    positions: tuple[Position, ...]
    stood_ms: float | None = None


class BeyondEnd(NamedTuple):
    """A committed offset after the end of the log, and that end."""

    topic: str
    partition: int
    offset: int
    end: int


class Identified(Protocol):
    """A member of a group, as a broker knows it."""

    def identity(self) -> Member:
        """Its ids and address, for group events."""


def moves_between(
    before: Sequence[tuple[Identified, bytes]], after: Sequence[tuple[Identified, bytes]]
) -> tuple[Move, ...]:
    """The partitions that each member gained and lost between two generations; unchanged members are left out.

    Groups may have thousands of members: only assignments that differ are read, and not more than an event can list.
    """
    had, has = ({id(member): assignment for member, assignment in each} for each in (before, after))
    out: list[Move] = []
    read = 0
    for key, member in {id(member): member for member, _ in (*before, *after)}.items():
        old, new = had.get(key, b""), has.get(key, b"")
        if old == new:
            continue
        read += 1
        out += moves_of({key: member.identity()}, {key: _partitions(old)}, {key: _partitions(new)})
        if len(out) == MOST_MEMBERS or read == _MOST_READ:
            break
    return tuple(out)


def moves_of(
    members: Mapping[K, Member], had: Mapping[K, AbstractSet[Partition]], has: Mapping[K, AbstractSet[Partition]]
) -> tuple[Move, ...]:
    """The partitions that each member gained and lost; unchanged members are left out.

    Args:
        members: the members.
        had: the partitions of each member before.
        has: the partitions of each member after.
    """
    out: list[Move] = []
    for key, member in members.items():
        before, after = had.get(key, frozenset()), has.get(key, frozenset())
        if before != after and len(out) < MOST_MEMBERS:
            out.append(Move(member, by_topic(after - before), by_topic(before - after)))
    return tuple(out)


def _partitions(assignment: bytes) -> set[Partition]:
    return partitions_of(read_assignment(assignment) or {})


def partitions_of(numbers: Mapping[str, Iterable[int]]) -> set[Partition]:
    """Partitions by topic, as pairs."""
    return {(topic, partition) for topic, partitions in numbers.items() for partition in partitions}


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """The numbers of partitions by topic, ascending."""
    out: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        out.setdefault(topic, []).append(partition)
    return out


#: The length of a beginning of two client ids that is no accident.
_SAME_BEGINNING: Final = 3
#: How the client ids begin that libraries choose by themselves.
_DEFAULTS: Final = ("rdkafka", "aiokafka-", "kafka-python-", "consumer-", "sarama", "kgo")


def is_default(client_id: str) -> bool:
    """Whether a client id is one that a library chooses by itself."""
    return client_id.startswith(_DEFAULTS)


def are_alike(one: str, other: str) -> bool:
    """Whether two client ids may be those of one service: they begin alike, or one has the first word of the other."""
    one, other = one.lower(), other.lower()
    length = min(_SAME_BEGINNING, len(one), len(other))
    if one[:length] == other[:length]:
        return True
    firsts = (re.split(r"[\W_\d]+", each.lstrip("-_."))[0] for each in (one, other))
    return any(len(word) >= _SAME_BEGINNING and word in one and word in other for word in firsts)
