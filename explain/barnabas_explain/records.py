"""Group events as records of ``__group_events``. Pure.

A record's key is the group id. Its value is JSON with ``"version": 1``, ``group``, ``time`` (ms since 1970),
``generation``, ``type``, and the fields of the event's class in the :mod:`~barnabas_explain.catalog`. The member of an
event is ``member_id``, ``client_id``, ``host`` and ``instance_id``, also in lists of members.

An event that was read may be damaged, or forged. Clients of this broker cannot write to ``__group_events``. But it may
be that of another cluster, where the topic is an ordinary one, as in Apache Kafka. What explains and draws events
relies on their fields, so each value is checked against the annotation of its field.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from barnabas_explain.catalog import EVENTS, Between, GroupEvent, HistoryGap, MemberEvent
from barnabas_explain.members import (
    MOST_MEMBERS,
    BeyondEnd,
    ByTopic,
    Commit,
    LateMember,
    Member,
    MemberLag,
    Move,
    OffsetChange,
    Partition,
    Pause,
    Position,
)

#: The version of the JSON.
VERSION: Final = 1
#: The latest time of an event, in ms since 1970: beyond it there are no dates in some libraries.
LATEST_MS: Final = 10**14
#: The largest number that all readers of JSON have in common.
_LARGEST: Final = 2**53
#: The members of a list that is read.
_MOST_READ: Final = 1_000
#: Maximum length of a record's value in bytes; beyond it details are left out.
_MAX_BYTES: Final = 256 * 1024

EventRecord = dict[str, Any]
Reader = Callable[[Any], Any]


class _Field(NamedTuple):
    """A field of a class of events: its name, how its value is read, and the value that is not written."""

    name: str
    read: Reader
    default: Any

    @property
    def needed(self) -> bool:
        """Whether each record must have it."""
        return self.default is dataclasses.MISSING


# Each reader returns the value of a field, or raises ValueError.


def _valid(is_valid: bool) -> None:
    if not is_valid:
        raise ValueError


def _text(value: Any) -> str:
    _valid(isinstance(value, str))
    return str(value)


def _name(value: Any) -> str | None:
    return None if value is None else _text(value)


def _boolean(value: Any) -> bool:
    _valid(isinstance(value, bool))
    return bool(value)


def _integer(value: Any) -> int:
    _valid(isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST)
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, float):
        _valid(isfinite(value) and abs(value) <= _LARGEST)
        return value
    return _integer(value)


def _time(value: Any) -> int:
    _valid(0 <= _integer(value) <= LATEST_MS)
    return int(value)


def _times(value: Any) -> Between:
    _valid(isinstance(value, list) and len(value) == 2)
    first, last = (None if each is None else _time(each) for each in value)
    return first, last


def _known_times(value: Any) -> tuple[int, int]:
    first, last = _times(value)
    return _time(first), _time(last)


def _by_topic(value: Any) -> ByTopic:
    _valid(isinstance(value, dict))
    return {topic: [*_many(_integer, numbers)] for topic, numbers in value.items()}


def _many(read: Reader, value: Any) -> tuple[Any, ...]:
    _valid(isinstance(value, list))
    return tuple(map(read, value))


def _listed(read: Reader) -> Reader:
    return lambda value: _many(read, value)


def _members(read: Reader) -> Reader:
    def members(value: Any) -> tuple[Any, ...]:
        _valid(isinstance(value, list) and len(value) <= _MOST_READ)
        return _many(read, value)

    return members


def _member(value: Any) -> Member:
    _valid(isinstance(value, dict))
    return Member(*(_name(value.get(name)) for name in Member._fields))


def _move(value: Any) -> Move:
    member = _member(value)
    _text(member.member_id)
    return Move(member, _by_topic(value.get("gained")), _by_topic(value.get("lost")))


def _late(value: Any) -> LateMember:
    member = _member(value)
    more = (value.get(name) for name in ("told_ms", "heartbeat_ms"))
    return LateMember(
        member, _number(value.get("after_ms")), *(None if each is None else _number(each) for each in more)
    )


def _pause(value: Any) -> Pause:
    _valid(isinstance(value, dict))
    return Pause(_text(value.get("topic")), *(_integer(value.get(name)) for name in Pause._fields[1:]))


def _commit(value: Any) -> Commit:
    _valid(isinstance(value, dict))
    return Commit(_text(value.get("topic")), _integer(value.get("partition")), _time(value.get("time")))


def _member_lag(value: Any) -> MemberLag:
    member = _member(value)
    stood_ms = value.get("stood_ms")
    positions = _many(_position, value.get("positions"))
    _valid(bool(positions))
    return MemberLag(member, _integer(value.get("lag")), positions, None if stood_ms is None else _number(stood_ms))


def _offset(value: Any) -> int | None:
    return None if value is None else _integer(value)


def _offset_change(value: Any) -> OffsetChange:
    _valid(isinstance(value, dict))
    offsets = (_offset(value.get(name)) for name in ("before", "after"))
    return OffsetChange(_text(value.get("topic")), _integer(value.get("partition")), *offsets)


def _beyond_end(value: Any) -> BeyondEnd:
    _valid(isinstance(value, list) and len(value) == 4)
    return BeyondEnd(_text(value[0]), *(_integer(each) for each in value[1:]))


def _position(value: Any) -> Position:
    _valid(isinstance(value, list) and len(value) == 3)
    return Position(_text(value[0]), _integer(value[1]), _integer(value[2]))


def _partition(value: Any) -> Partition:
    _valid(isinstance(value, list) and len(value) == 2)
    return _text(value[0]), _integer(value[1])


_READERS: Final[Mapping[Any, Reader]] = {
    str: _text,
    bool: _boolean,
    int: _integer,
    float: _number,
    Between: _times,
    tuple[int, int]: _known_times,
    ByTopic: _by_topic,
    Member: _member,
    Commit: _commit,
    tuple[str, ...]: _listed(_text),
    tuple[Partition, ...]: _listed(_partition),
    tuple[Pause, ...]: _listed(_pause),
    tuple[OffsetChange, ...]: _listed(_offset_change),
    tuple[BeyondEnd, ...]: _listed(_beyond_end),
    tuple[Position, ...]: _listed(_position),
    tuple[Member, ...]: _members(_member),
    tuple[Move, ...]: _members(_move),
    tuple[LateMember, ...]: _members(_late),
    tuple[MemberLag, ...]: _members(_member_lag),
}


@cache
def _fields_of(type_name: str) -> tuple[_Field, ...]:
    """The fields of a type of events that stand in its records under their names."""
    cls = EVENTS[type_name]
    hints = get_type_hints(cls)
    found = []
    for each in cls.fields:
        if each.name not in _HEAD and each.metadata.get("recorded", True):
            kinds = get_args(hints[each.name])
            kind = next(one for one in kinds if one is not NoneType) if NoneType in kinds else hints[each.name]
            found.append(_Field(each.name, _READERS[kind], each.default))
    return tuple(found)


#: The fields that are in each record, and the member, whose own fields are.
_HEAD: Final = ("group", "time", "generation", "member")


def record_of(event: GroupEvent) -> EventRecord:
    """The record of a group event, ready for JSON."""
    event = event.decoded()
    record: EventRecord = {
        "version": VERSION,
        "group": event.group,
        "time": event.time,
        "generation": event.generation,
        "type": event.type,
    }
    if isinstance(event, MemberEvent):
        record |= event.member._asdict()
    for each in _fields_of(event.type):
        value = getattr(event, each.name)
        if value != each.default:
            record[each.name] = _plain(value)
    return record


def _plain(value: Any) -> Any:
    """A value, ready for JSON."""
    match value:
        case Member() | Pause() | Commit() | OffsetChange():
            return value._asdict()
        case Move() | LateMember() | MemberLag():
            rest = {name: _plain(getattr(value, name)) for name in value._fields[1:]}
            return {**value.member._asdict(), **rest}
        case tuple():
            lists_members = bool(value) and isinstance(value[0], Member | Move | LateMember | MemberLag)
            return [*map(_plain, value[:MOST_MEMBERS] if lists_members else value)]
        case float():
            return round(value)
    return value


def encode_event(event: GroupEvent) -> bytes:
    """The value of a record."""
    record = record_of(event)
    value = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    if len(value) > _MAX_BYTES:
        short = {name: each for name, each in record.items() if not isinstance(each, list | dict)}
        value = json.dumps({**short, "shortened": True}, ensure_ascii=False, separators=(",", ":")).encode()
    return value


def decode_event(value: bytes) -> GroupEvent | None:
    """Read the value of a record; None if it is not an event, or of a version or a type that is not known.

    An event that is damaged, or forged, is a gap that says so: what explains and draws events can rely on their fields.
    """
    try:
        record = _DECODER.decode(value.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return read_event(record, "it is too long" if len(value) > _MAX_BYTES else None)


def read_event(record: Any, flaw: str | None = None) -> GroupEvent | None:
    """Read a record, as :func:`decode_event`; `flaw` is what is known to be wrong with it."""
    if not isinstance(record, dict) or record.get("version") != VERSION or not _is_known(record.get("type")):
        return None
    try:
        head: dict[str, Any] = {name: read(record.get(name)) for name, read in _READERS_OF_HEAD.items()}
    except ValueError:
        return None
    if flaw is None:
        try:
            return _read(record, dict(head))
        except _Flaw as error:
            flaw = str(error)
    return HistoryGap(**head, gap="not_read", reason=f"an event ({record['type']}) is left out: {flaw}")


def _is_known(type_name: Any) -> bool:
    return isinstance(type_name, str) and type_name in EVENTS


class _Flaw(ValueError):
    """An event is damaged, or forged."""


def _read(record: EventRecord, head: dict[str, Any]) -> GroupEvent:
    """The event of a record with this head.

    Raises:
        _Flaw: it does not have the fields of its type.
    """
    cls = EVENTS[record["type"]]
    if issubclass(cls, MemberEvent):
        head["member"] = Member(*(_checked(name, _name, record.get(name)) for name in Member._fields))
    for each in _fields_of(cls.type):
        value = record.get(each.name)
        if value is not None or (each.needed and each.name in record):
            head[each.name] = _checked(each.name, each.read, value)
        elif each.needed:
            raise _Flaw(f"its field {each.name} is missing")
    event = cls(**head)
    missing = event.flaw()
    if missing is not None:
        raise _Flaw(f"its field {missing} is missing")
    return event


def _checked(name: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except ValueError:
        raise _Flaw(f"its field {name} is not valid") from None


def _finite(text: str) -> float:
    """Read a number. NaN and infinity are not JSON: a browser could not read what is made of them."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is not a number of JSON")
    return number


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
_READERS_OF_HEAD: Final[Mapping[str, Reader]] = {"group": _text, "time": _time, "generation": _integer}
