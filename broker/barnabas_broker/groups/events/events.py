"""Why it rebalanced: notes of a group's machine as records of ``__group_events``. Pure.

A record's key is the group id, its value JSON with ``"version": 1``. Every value has ``group``, ``time`` (ms since
1970), ``generation`` and ``type``; the rest depends on the type, see
:class:`~barnabas_broker.groups.effects.Kind`:

- members are ``member_id``, ``client_id``, ``host`` and ``instance_id``;
- durations end in ``_ms``;
- ``rebalance_started`` has ``cause`` (the type of what caused it), ``by`` (the members that did) and ``reason``;
- ``rebalance_over`` has ``moves``: for each member that gained or lost something, partitions by topic;
- ``subscription_changed`` has ``added`` and ``removed`` topics.

Blobs of members are decoded here, and only where the protocol type is "consumer".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas_broker.groups.classic.members import Member
from barnabas_broker.groups.effects import Kind, Note
from barnabas_broker.groups.subscriptions import CONSUMER, read_assignment, read_topics

#: The version of the JSON.
VERSION: Final = 1
#: Notes that are no event: anybody can cause any number of them, and nothing follows from them.
UNTOLD: Final = frozenset((Kind.MEMBER_ID_GIVEN,))
#: Members that one event lists at most.
_MOST_MEMBERS: Final = 200
#: Bytes of one event at most; beyond them details are left out.
_MOST_BYTES: Final = 256 * 1024
#: Durations in notes are seconds.
_DURATIONS: Final = frozenset(("heard_ago", "session", "waited", "took", "join_took", "sync_took", "seconds", "late"))

Event = dict[str, Any]


def event_of(group_id: str, note: Note, time_ms: int) -> Event:
    """A note as an event, ready for JSON.

    Args:
        group_id: whose note it is.
        note: what happened.
        time_ms: when, in ms since 1970.
    """
    event: Event = {
        "version": VERSION,
        "group": group_id,
        "time": time_ms,
        "generation": note.generation,
        "type": note.kind.value,
    }
    data = note.data
    for name, value in data.items():
        if name in _DURATIONS:
            event[f"{name}_ms"] = round(value * 1000)
        elif not isinstance(value, bytes | tuple) and name not in ("old", "new", "joined_after"):
            event[name] = value
    if note.kind is Kind.SUBSCRIPTION_CHANGED:
        event.update(_change(data.get("old"), data.get("new")))
    elif note.kind is Kind.LEADER_CHANGED:
        event.update(old=data["old"], new=data["new"])
    elif note.kind is Kind.JOIN_PHASE_OVER:
        slow = data["joined_after"][:_MOST_MEMBERS]
        event["joined_after"] = [{**who, "after_ms": round(after * 1000)} for who, after in slow]
    elif note.kind is Kind.REBALANCE_OVER and data["protocol_type"] == CONSUMER:
        event["moves"] = moves(data["before"], data["after"])
    elif note.kind is Kind.REBALANCE_STARTED:
        event["by"] = data["by"][:_MOST_MEMBERS]
    return event


def encode_event(event: Event) -> bytes:
    """An event as the value of a record."""
    value = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
    if len(value) > _MOST_BYTES:
        short = {name: each for name, each in event.items() if not isinstance(each, list | dict)}
        value = json.dumps({**short, "shortened": True}, ensure_ascii=False, separators=(",", ":")).encode()
    return value


def decode_event(value: bytes) -> Event | None:
    """Read the value of a record; None if it is no event of a version that is known here."""
    try:
        event = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("version") != VERSION:
        return None
    fits = isinstance(event.get("time"), int) and isinstance(event.get("type"), str)
    return event if fits and isinstance(event.get("group"), str) and isinstance(event.get("generation"), int) else None


def moves(before: Sequence[tuple[Member, bytes]], after: Sequence[tuple[Member, bytes]]) -> list[dict[str, Any]]:
    """Who gained and lost which partitions between two generations; members without a change are left out."""
    had = {id(member): _partitions(share) for member, share in before}
    has = {id(member): _partitions(share) for member, share in after}
    members = {id(member): member for member, _ in (*before, *after)}
    out: list[dict[str, Any]] = []
    for key, member in members.items():
        gained = has.get(key, set()) - had.get(key, set())
        lost = had.get(key, set()) - has.get(key, set())
        if (gained or lost) and len(out) < _MOST_MEMBERS:
            out.append({**member.who(), "gained": _by_topic(gained), "lost": _by_topic(lost)})
    return out


def _partitions(share: bytes) -> set[tuple[str, int]]:
    assignment = read_assignment(share) or {}
    return {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}


def _by_topic(partitions: set[tuple[str, int]]) -> Mapping[str, list[int]]:
    out: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        out.setdefault(topic, []).append(partition)
    return out


def _change(old: bytes | None, new: bytes | None) -> dict[str, list[str]]:
    before, after = set(read_topics(old or b"") or ()), set(read_topics(new or b"") or ())
    return {"added": sorted(after - before), "removed": sorted(before - after)}
