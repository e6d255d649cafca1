"""Checks an event that was read: it may be damaged, or forged. Pure.

Clients of this broker cannot write to ``__group_events``. But it may be that of another cluster, where the topic is an
ordinary one, as in Apache Kafka.

What explains and draws events (:mod:`~barnabas_explain.explain`,
:mod:`~barnabas_explain.chart`) relies on the fields of their types. An event without a flaw has them.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from barnabas_explain.catalog import EventType

#: The latest time of an event, in ms since 1970: beyond it there are no dates in some libraries.
LATEST_MS: Final = 10**14
#: Numbers that JSON's readers have in common.
_LARGEST: Final = 2**53
#: Members of a list.
_MOST_MEMBERS: Final = 1_000

Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and isfinite(value) and abs(value) <= _LARGEST)


def _is_time(value: Any) -> bool:
    return _is_integer(value) and 0 <= value <= LATEST_MS


def _is_by_topic(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(numbers, list) and all(map(_is_integer, numbers)) for numbers in value.values()
    )


def _is_member(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_name(value.get(name)) for name in _NAMES)


def _members(check: Check = _is_member) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= _MOST_MEMBERS and all(map(check, value))


def _is_move(value: Any) -> bool:
    return (
        _is_member(value)
        and _is_text(value.get("member_id"))
        and _is_by_topic(value.get("gained"))
        and _is_by_topic(value.get("lost"))
    )


def _is_late(value: Any) -> bool:
    return _is_member(value) and _is_number(value.get("after_ms"))


def _is_pause(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_text(value.get("topic"))
        and _is_integer(value.get("partition"))
        and _is_integer(value.get("at_least_ms"))
        and _is_integer(value.get("at_most_ms"))
    )


def _is_commit(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict)
        and _is_text(value.get("topic"))
        and _is_integer(value.get("partition"))
        and _is_time(value.get("time"))
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_times(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(each is None or _is_time(each) for each in value)


def _are_known_times(value: Any) -> bool:
    return _are_times(value) and None not in value


_NAMES: Final = ("member_id", "client_id", "host", "instance_id")
#: The fields that have the same type in every event, if they are there. Those that end in ``_ms`` are numbers.
_FIELDS: Final[Mapping[str, Check]] = {
    **dict.fromkeys((*_NAMES, "old_member_id"), _is_name),
    **dict.fromkeys(("cause", "protocol", "assignor"), _is_name),
    "by": _members(),
    "moves": _members(_is_move),
    "joined_after": _members(_is_late),
    "pauses": lambda value: isinstance(value, list) and all(map(_is_pause, value)),
    "more_pauses": _is_integer,
    "last_commit": _is_commit,
    "pending": _is_by_topic,
    "between": _are_times,
    **dict.fromkeys(("possible", "added", "removed"), _are_texts),
    "classic": _is_integer,
}
#: The fields that events of a type must have.
_NEEDED: Final[Mapping[EventType, Mapping[str, Check]]] = {
    EventType.MEMBER_SLOW: {"heard_ago_ms": _is_number, "session_ms": _is_number},
    EventType.MEMBER_EXPIRED: {"heard_ago_ms": _is_number, "session_ms": _is_number},
    EventType.MEMBER_NOT_REJOINED: {"waited_ms": _is_number, "heard_ago_ms": _is_number},
    EventType.MEMBER_NOT_SYNCED: {"waited_ms": _is_number},
    EventType.MEMBER_NOT_REVOKED: {"partitions": _is_by_topic, "waited_ms": _is_number},
    EventType.MEMBER_REFUSED: {"max_size": _is_integer},
    EventType.MEMBER_REVOKING: {"partitions": _is_by_topic},
    EventType.MEMBER_STILL_REVOKING: {"partitions": _is_by_topic, "waited_ms": _is_number, "timeout_ms": _is_number},
    EventType.MEMBER_REVOKED: {"partitions": _is_by_topic, "waited_ms": _is_number},
    EventType.MEMBER_FENCED: {"member_epoch": _is_integer, "known_epoch": _is_integer},
    EventType.LEADER_CHANGED: {"old": _is_name, "new": _is_name},
    EventType.REBALANCE_OVER: {"members": _is_integer},
    EventType.TARGET_ASSIGNED: {"took_ms": _is_number},
    EventType.ASSIGNOR_FAILED: {"assignor": _is_text, "reason": _is_text},
    EventType.GROUP_RECONCILED: {"took_ms": _is_number, "members": _is_integer},
    EventType.GROUP_UPGRADED: {"members": _is_integer, "by": _members()},
    EventType.GROUP_DOWNGRADED: {"members": _is_integer},
    EventType.GROUP_LOADED: {"members": _is_integer},
    EventType.GROUP_DELETED: {"offsets": _is_integer},
    EventType.OFFSETS_EXPIRED: {"offsets": _is_integer},
    EventType.OFFSETS_UNSTABLE: {"offsets": _is_integer, "producer_id": _is_integer, "pending_ms": _is_number},
    EventType.OFFSETS_STABLE: {
        "offsets": _is_integer,
        "producer_id": _is_integer,
        "pending_ms": _is_number,
        "committed": lambda value: isinstance(value, bool),
    },
    EventType.OFFSETS_COMMITTED: {"commits": _is_integer, "partitions": _is_integer, "between": _are_known_times},
    EventType.TOPIC_CHANGED: {"topic": _is_text, "partitions": _is_integer},
    EventType.REGEX_RESOLVED: {"regex": _is_text},
    EventType.REGEX_FAILED: {"regex": _is_text, "reason": _is_text},
    EventType.HISTORY_GAP: {"gap": _is_text},
}
#: The fields that a gap of a kind must have, unless it counts `more` of them.
_OF_GAPS: Final[Mapping[str, Mapping[str, Check]]] = {
    "compacted": {"first": _is_integer, "last": _is_integer, "records": _is_integer},
    "not_completed": {"first": _is_integer, "last": _is_integer},
    "unreadable": {"offset": _is_integer, "reason": _is_text},
    "clock": {"offset": _is_integer},
    "unknown_type": {"offset": _is_integer, "record_type": _is_integer},
    "too_many": {"most": _is_integer, "what": _is_text},
    "went_back": {"before": _is_integer, "now": _is_integer},
    "open_transaction": {"offset": _is_integer, "records": _is_integer},
    "not_read": {"reason": _is_text},
}
_TYPES: Final = {each.value: each for each in EventType}


def has_head(event: Any) -> bool:
    """Whether a value has what every event has: `group`, `time`, `generation` and `type`."""
    return (
        isinstance(event, dict)
        and _is_time(event.get("time"))
        and _is_text(event.get("type"))
        and _is_text(event.get("group"))
        and _is_integer(event.get("generation"))
    )


def flaw_of(event: Mapping[str, Any]) -> str | None:
    """What is wrong with an event; None if nothing is.

    Args:
        event: a value that :func:`has_head`.
    """
    for name, value in event.items():
        check = _FIELDS.get(name)
        if check is None and name.endswith("_ms"):
            check = _is_number
        if check is not None and not check(value):
            return f"its field {name[:40]} is not valid"
    kind = _TYPES.get(event["type"])
    needed = {} if kind is None else dict(_NEEDED.get(kind, {}))
    if kind is EventType.HISTORY_GAP:
        needed |= _needed_of_gap(event)
    elif kind is EventType.HISTORY_BEGAN:
        if event["generation"] < 0 or "members" in event:
            needed["members"] = _is_integer
    elif "classic" in event:
        needed["members"] = _is_integer
    elif kind is EventType.TOPIC_CHANGED and event.get("before"):
        needed["before"] = _is_integer
    elif kind is EventType.MEMBER_GONE and "pending" in event:
        needed["pending_ms"] = _is_number
    for name, check in needed.items():
        if name not in event:
            return f"its field {name} is missing"
        if not check(event[name]):
            return f"its field {name} is not valid"
    return None


def _needed_of_gap(event: Mapping[str, Any]) -> Mapping[str, Check]:
    if "more" in event:
        return {"more": _is_integer}
    gap = event.get("gap")
    found = _OF_GAPS.get(gap) if isinstance(gap, str) else None
    if found is None:
        return {"gap": lambda value: False}
    return {**found, "timestamp": _is_integer} if gap == "clock" and "back_ms" not in event else found
