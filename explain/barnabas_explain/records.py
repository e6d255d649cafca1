"""Group events as records of ``__group_events``. Pure.

A record's key is the group id. Its value is JSON with ``"version": 1``, ``group``, ``time`` (ms since 1970),
``generation`` and ``type``, the value of an :class:`~barnabas_explain.catalog.EventType`; the other fields depend
on the type:

- members are ``member_id``, ``client_id``, ``host`` and ``instance_id``;
- durations end in ``_ms``;
- ``rebalance_started`` has ``cause`` (the type of the event that caused it), ``by`` (the members) and ``reason``;
- ``rebalance_over`` has ``moves``: the partitions that each member gained and lost, by topic;
- ``subscription_changed`` has ``added`` and ``removed`` topics, and ``regex`` if the regular expression has changed;
- ``regex_resolved`` says what a new ``regex`` matches, or that one matches other topics than before: ``added`` and
  ``removed``, at most 20 each, and their number ``topics``; ``regex_failed`` has the ``reason``;
- ``offsets_unstable`` and ``offsets_stable`` have ``producer_id``, whose transaction has the ``offsets``, and
  ``pending_ms``, the time since its first commit; the latter has ``committed``, false if the transaction was aborted;
- in groups of the consumer protocol ``generation`` is the group epoch. ``group_epoch_bumped`` has ``cause`` and ``by``
  like ``rebalance_started``, ``target_assigned`` the ``moves`` of the target, ``member_revoking`` the ``partitions``
  that a member has to revoke; ``group_reconciled`` ends what an epoch has begun;
- ``group_upgraded`` and ``group_downgraded`` say that a group with members has changed its protocol: ``by`` are the
  member that has joined with the consumer protocol, or those whose departure has caused the downgrade (``cause``), and
  ``members`` the number of members that go on with the classic protocol. In between, ``group_epoch_bumped`` and
  ``static_member_replaced`` have ``classic``, the number of members that use the classic protocol.

Subscriptions and assignments are decoded here, and only for the protocol type "consumer".
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import isfinite
from typing import Any, Final, Protocol, TypeVar

from barnabas_explain.catalog import EventType, GroupEvent
from barnabas_explain.validation import flaw_of, has_head
from barnabas_protocol.subscriptions import CONSUMER, read_assignment, read_topics

#: The version of the JSON.
VERSION: Final = 1
#: Event types without a record: a client can cause any number of them, and they change nothing.
UNRECORDED: Final = frozenset((EventType.MEMBER_ID_GIVEN,))
#: The cause of a rebalance in rebuilt events, if what they were rebuilt from leaves several causes.
NOT_RECORDED: Final = "not_recorded"
#: The generation in rebuilt events, if what they were rebuilt from does not say it.
UNKNOWN_GENERATION: Final = -1
#: Members that one record lists at most.
MOST_MEMBERS: Final = 200
#: Members whose assignments are read for one record at most: the bytes may differ although the partitions are the same.
_MOST_READ: Final = 1_000
#: Maximum length of a record's value in bytes; beyond it details are left out.
_MAX_BYTES: Final = 256 * 1024
#: The data of group events that are durations, in seconds.
_DURATIONS: Final = frozenset(
    ("timeout", "heard_ago", "session", "waited", "took", "join_took", "sync_took", "seconds", "late", "pending")
)

EventRecord = dict[str, Any]
#: A topic and the number of a partition.
Partition = tuple[str, int]

K = TypeVar("K")


class Member(Protocol):
    """A member of a classic group."""

    def identity(self) -> Mapping[str, Any]:
        """What identifies it in an event."""


def record_of(group_id: str, event: GroupEvent, time_ms: int) -> EventRecord:
    """The record of a group event, ready for JSON.

    Args:
        group_id: the group.
        event: what happened.
        time_ms: when it happened, in ms since 1970.
    """
    record: EventRecord = {
        "version": VERSION,
        "group": group_id,
        "time": time_ms,
        "generation": event.generation,
        "type": event.type.value,
    }
    data = event.data
    for name, value in data.items():
        if name in _DURATIONS:
            record[f"{name}_ms"] = round(value * 1000)
        elif not isinstance(value, bytes | tuple) and name not in ("old", "new", "joined_after"):
            record[name] = value
    if event.type is EventType.SUBSCRIPTION_CHANGED and "old" in data:
        record.update(_changed_topics(data.get("old"), data.get("new")))
    elif event.type is EventType.LEADER_CHANGED:
        record.update(old=data["old"], new=data["new"])
    elif event.type is EventType.JOIN_PHASE_OVER:
        late = data["joined_after"][:MOST_MEMBERS]
        record["joined_after"] = [{**member, "after_ms": round(after * 1000)} for member, after in late]
    elif event.type is EventType.REBALANCE_OVER and data["protocol_type"] == CONSUMER:
        record["moves"] = moves(data["before"], data["after"])
    elif event.type in (EventType.REBALANCE_STARTED, EventType.EPOCH_BUMPED):
        record["by"] = data["by"][:MOST_MEMBERS]
    return record


def encode_event(record: EventRecord) -> bytes:
    """The value of a record."""
    value = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    if len(value) > _MAX_BYTES:
        short = {name: each for name, each in record.items() if not isinstance(each, list | dict)}
        value = json.dumps({**short, "shortened": True}, ensure_ascii=False, separators=(",", ":")).encode()
    return value


def _finite(text: str) -> float:
    """Read a number. NaN and infinity are not JSON: a browser could not read what is made of them."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is not a number of JSON")
    return number


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def decode_event(value: bytes) -> EventRecord | None:
    """Read the value of a record; None if it is not an event, or of an unknown version.

    An event that is damaged, or forged, is a gap that says so: what explains and draws events can rely on their fields.
    """
    try:
        record = _DECODER.decode(value.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("version") != VERSION or not has_head(record):
        return None
    flaw = flaw_of(record) if len(value) <= _MAX_BYTES else "it is too long"
    if flaw is None:
        return record
    return {
        "version": VERSION,
        "group": record["group"],
        "time": record["time"],
        "generation": record["generation"],
        "type": EventType.HISTORY_GAP.value,
        "gap": "not_read",
        "reason": f"an event ({record['type'][:60]}) is left out: {flaw}",
    }


def moves(before: Sequence[tuple[Member, bytes]], after: Sequence[tuple[Member, bytes]]) -> list[dict[str, Any]]:
    """The partitions that each member gained and lost between two generations; unchanged members are left out.

    Groups may have thousands of members: only assignments that differ are read, and not more than an event can list.
    """
    had, has = ({id(member): assignment for member, assignment in each} for each in (before, after))
    out: list[dict[str, Any]] = []
    read = 0
    for key, member in {id(member): member for member, _ in (*before, *after)}.items():
        old, new = had.get(key, b""), has.get(key, b"")
        if old == new:
            continue
        read += 1
        out += moves_of({key: member.identity()}, {key: _partitions(old)}, {key: _partitions(new)})
        if len(out) == MOST_MEMBERS or read == _MOST_READ:
            break
    return out


def moves_of(
    members: Mapping[K, Mapping[str, Any]],
    had: Mapping[K, AbstractSet[Partition]],
    has: Mapping[K, AbstractSet[Partition]],
) -> list[dict[str, Any]]:
    """The partitions that each member gained and lost; unchanged members are left out.

    Args:
        members: what identifies each member, as in an event.
        had: the partitions of each member before.
        has: the partitions of each member after.
    """
    out: list[dict[str, Any]] = []
    for key, identity in members.items():
        before, after = had.get(key, frozenset()), has.get(key, frozenset())
        if before != after and len(out) < MOST_MEMBERS:
            out.append({**identity, "gained": by_topic(after - before), "lost": by_topic(before - after)})
    return out


def _partitions(assignment: bytes) -> set[Partition]:
    read = read_assignment(assignment) or {}
    return {(topic, partition) for topic, partitions in read.items() for partition in partitions}


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """The numbers of partitions by topic, ascending."""
    out: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        out.setdefault(topic, []).append(partition)
    return out


def _changed_topics(old: bytes | None, new: bytes | None) -> dict[str, list[str]]:
    before, after = set(read_topics(old or b"") or ()), set(read_topics(new or b"") or ())
    return {"added": sorted(after - before), "removed": sorted(before - after)}
