"""Explains a group's events in sentences, with a remedy where one is known. Pure.

The events are records of ``__group_events`` (:mod:`~barnabas_broker.groups.events.events`), in their order. They are
cut into rebalances, each with the events that led to it; a rebalance storm gets one explanation.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from barnabas_broker.groups.effects import EventType
from barnabas_broker.groups.events.events import EventRecord
from barnabas_broker.groups.events.storms import STORM_REBALANCES, STORM_SECONDS, name_of

#: If a member rejoins later than this, the explanation names it.
_SLOW_MS: Final = 1_000
#: Members, topics or events that one sentence names at most.
_MAX_NAMED: Final = 5


@dataclass(slots=True)
class Explanation:
    """An explanation of one or more events.

    Attributes:
        time: when they happened, in ms since 1970.
        generation: the group's generation before them.
        text: what happened.
        remedy: what to do about it, if that is known.
        details: further sentences.
        data: the events.
    """

    time: int
    generation: int
    text: str
    remedy: str | None = None
    details: list[str] = field(default_factory=list)
    data: list[EventRecord] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """The explanation, ready for JSON."""
        return asdict(self)


@dataclass(slots=True)
class _Rebalance:
    """The events of a rebalance, and those that led to it. `started` is None if they led to none."""

    events: list[EventRecord] = field(default_factory=list)

    def of(self, *event_types: EventType) -> list[EventRecord]:
        types = {each.value for each in event_types}
        return [event for event in self.events if event["type"] in types]

    @property
    def started(self) -> EventRecord | None:
        return next(iter(self.of(EventType.REBALANCE_STARTED)), None)


def explain(
    events: Iterable[EventRecord], *, since: int | None = None, generation: int | None = None
) -> list[Explanation]:
    """Explain what happened to a group.

    Args:
        events: of one group, oldest first.
        since: only what happened at or after this time, in ms since 1970.
        generation: only the rebalance that led to this generation.
    """
    rebalances = [
        rebalance
        for rebalance in _rebalances(events)
        if (since is None or rebalance.events[-1]["time"] >= since)
        and (generation is None or generation in _generations(rebalance))
    ]
    explanations: list[Explanation] = []
    at = 0
    while at < len(rebalances):
        length = _storm_length(rebalances, at)
        if length >= STORM_REBALANCES:
            explanations.append(_explain_storm(rebalances[at : at + length]))
            at += length
        else:
            explanations.extend(_explain_rebalance(rebalances[at]))
            at += 1
    return explanations


_ENDS: Final = frozenset(
    each.value
    for each in (EventType.REBALANCE_OVER, EventType.GROUP_EMPTY, EventType.GROUP_DELETED, EventType.GROUP_LOADED)
)
#: Events that cause a rebalance, as opposed to events during one.
_TRIGGERS: Final = (
    EventType.MEMBER_JOINED,
    EventType.MEMBER_REPLACED,
    EventType.MEMBER_LEFT,
    EventType.MEMBER_EXPIRED,
    EventType.MEMBER_NOT_SYNCED,
    EventType.MEMBER_REJOINED,
    EventType.SUBSCRIPTION_CHANGED,
    EventType.LEADER_REJOINED,
    EventType.PERSIST_FAILED,
)
_TRIGGER_TYPES: Final = frozenset(each.value for each in _TRIGGERS)


def _rebalances(events: Iterable[EventRecord]) -> Iterable[_Rebalance]:
    """Cut events into rebalances. One ends when the group is Stable or Empty, or when the next one starts."""
    rebalance = _Rebalance()
    for event in events:
        started = rebalance.started
        if event["type"] == EventType.REBALANCE_STARTED.value and started is not None:
            # The causes of the next rebalance are the last events of this one.
            causes = []
            while rebalance.events[-1]["type"] in _TRIGGER_TYPES and rebalance.events[-1] is not started:
                causes.append(rebalance.events.pop())
            yield rebalance
            rebalance = _Rebalance(causes[::-1])
        rebalance.events.append(event)
        alone = started is None and event["type"] in (EventType.MEMBER_SLOW.value, EventType.OFFSETS_EXPIRED.value)
        if event["type"] in _ENDS or (alone and len(rebalance.events) == 1):
            yield rebalance
            rebalance = _Rebalance()
    if rebalance.events:
        yield rebalance


def _generations(rebalance: _Rebalance) -> set[int]:
    """The generation that a rebalance led to."""
    over = rebalance.of(
        EventType.JOIN_PHASE_OVER, EventType.REBALANCE_OVER, EventType.GROUP_EMPTY, EventType.GROUP_LOADED
    )
    return {event["generation"] for event in over} or {event["generation"] + 1 for event in rebalance.events[-1:]}


#: Events that may occur between the rebalances of a storm.
_IN_STORMS: Final = frozenset(
    each.value
    for each in (
        EventType.MEMBER_SLOW,
        EventType.STORM,
        EventType.OFFSETS_EXPIRED,
        EventType.TOPIC_CHANGED,
        *_TRIGGERS,
    )
)


def _storm_length(rebalances: list[_Rebalance], at: int) -> int:
    """The number of items from `at` on that are one storm; 0 if there is none."""
    count = 0
    before: int | None = None
    for rebalance in rebalances[at:]:
        started = rebalance.started
        if started is None:
            if any(event["type"] not in _IN_STORMS for event in rebalance.events):
                break
        elif before is not None and started["time"] - before > STORM_SECONDS * 1000:
            break
        else:
            before = started["time"]
        count += 1
    started_count = sum(1 for rebalance in rebalances[at : at + count] if rebalance.started is not None)
    return count if started_count >= STORM_REBALANCES else 0


def _explain_storm(rebalances: list[_Rebalance]) -> Explanation:
    events = [event for rebalance in rebalances for event in rebalance.events]
    starts = [event for event in events if event["type"] == EventType.REBALANCE_STARTED.value]
    causes: Counter[tuple[str, str]] = Counter()
    for start in starts:
        by = start.get("by") or [{}]
        causes[name_of(by[0]), start.get("cause", "")] += 1
    members: Counter[str] = Counter()
    for (name, _), times in causes.items():
        members[name] += times
    parts = []
    for name, times in members.most_common(_MAX_NAMED):
        how = ", ".join(
            f"{_CAUSES.get(cause, cause)} {count} times"
            for (each, cause), count in causes.most_common()
            if each == name
        )
        parts.append(f"{name} {times} times ({how})")
    first, last = starts[0], starts[-1]
    seconds = max((last["time"] - first["time"]) / 1000, 0.001)
    text = f"Rebalance storm: {len(starts)} rebalances within {_span(seconds)}, because of {'; '.join(parts)}."
    (_, cause), _ = causes.most_common(1)[0]
    worst = next((event for event in reversed(events) if event["type"] == cause), None)
    remedy = _SENTENCES[cause](worst)[1] if worst is not None and cause in _SENTENCES else None
    if cause == EventType.MEMBER_JOINED.value:
        remedy = (
            "A member that joins again and again restarts or loses its session: look at its log. Give members a"
            " group.instance.id, so that a restart within the session timeout causes no rebalance."
        )
    return Explanation(first["time"], first["generation"], text, remedy, data=[first, last])


def _explain_rebalance(rebalance: _Rebalance) -> list[Explanation]:
    """Explain a rebalance, and events that are explained by themselves."""
    explanations = []
    for event in rebalance.events:
        alone = _ALONE.get(event["type"])
        if alone is not None:
            text, remedy = alone(event)
            explanations.append(Explanation(event["time"], event["generation"], text, remedy, data=[event]))
    started = rebalance.started
    if started is None:
        return explanations
    text, remedy = _why(rebalance, started)
    over = rebalance.of(EventType.REBALANCE_OVER, EventType.GROUP_EMPTY)
    reached = over[-1]["generation"] if over else None
    head = f"Generation {started['generation']} ended: {text}."
    if reached is not None:
        head = f"Generation {reached}: {text}."
    explanation = Explanation(started["time"], started["generation"], head, remedy, data=list(rebalance.events))
    for part, advice in (_others(rebalance, started), _phases(rebalance), _moved(rebalance)):
        explanation.details += part
        explanation.remedy = explanation.remedy or advice
    explanations.append(explanation)
    return explanations


def _why(rebalance: _Rebalance, started: EventRecord) -> tuple[str, str | None]:
    """The cause of a rebalance, and the remedy."""
    cause = started.get("cause", "")
    ids = {member.get("member_id") for member in started.get("by") or ()}
    trigger = next(
        (
            event
            for event in reversed(rebalance.events[: rebalance.events.index(started)])
            if event["type"] == cause and event.get("member_id") in ids
        ),
        None,
    )
    if trigger is None or cause not in _SENTENCES:
        return str(started.get("reason") or cause).rstrip("."), None
    text, remedy = _SENTENCES[cause](trigger)
    return text, remedy


def _others(rebalance: _Rebalance, started: EventRecord) -> tuple[list[str], str | None]:
    """The other members that joined or left during the rebalance."""
    out = []
    remedy = None
    ids = {member.get("member_id") for member in started.get("by") or ()}
    joined = [event for event in rebalance.of(EventType.MEMBER_JOINED) if event.get("member_id") not in ids]
    if joined:
        out.append(f"{_names(joined)} joined too.")
    departed = [
        event
        for event in rebalance.of(EventType.MEMBER_LEFT, EventType.MEMBER_EXPIRED)
        if event.get("member_id") not in ids
    ]
    for event in departed[:_MAX_NAMED]:
        out.append(_capital(_SENTENCES[event["type"]](event)[0]) + ".")
    missing = rebalance.of(EventType.MEMBER_NOT_REJOINED)
    for event in missing[:_MAX_NAMED]:
        out.append(
            f"{name_of(event)} did not rejoin within {_ms(event['waited_ms'])} and was removed;"
            f" it was last heard of {_ms(event['heard_ago_ms'])} before."
        )
        remedy = (
            "A member that heartbeats but does not rejoin is busy with its records: fetch fewer at a time"
            " (max.poll.records) or raise max.poll.interval.ms, which is also the time a rebalance waits."
        )
    for event in rebalance.of(EventType.LEADER_CHANGED):
        out.append(f"The leader {event['old']} had not rejoined; {event['new']} leads.")
    if rebalance.of(EventType.JOIN_PHASE_STUCK):
        out.append("No member rejoined in time, so the group waited again.")
        remedy = remedy or "Static members stay in the group while they are away: remove those that will not come back."
    return out, remedy


def _phases(rebalance: _Rebalance) -> tuple[list[str], str | None]:
    """How long the rebalance took, and the member that it waited for."""
    over = rebalance.of(EventType.REBALANCE_OVER)
    if not over:
        return [], None
    joined, synced = over[-1]["join_took_ms"], over[-1]["sync_took_ms"]
    out = [f"Joining took {_ms(joined)}, assigning {_ms(synced)}; {over[-1]['members']} members."]
    remedy = None
    slow = [each for event in rebalance.of(EventType.JOIN_PHASE_OVER) for each in event.get("joined_after", ())]
    if slow and slow[0]["after_ms"] > _SLOW_MS and not rebalance.of(EventType.MEMBER_JOINED):
        out.append(f"{name_of(slow[0])} was the last to rejoin, after {_ms(slow[0]['after_ms'])}; the others waited.")
        remedy = (
            "A member rejoins at its next poll: reduce the work between two polls (max.poll.records), or use the"
            " cooperative-sticky assignor, with which the other members continue to consume meanwhile."
        )
    return out, remedy


def _moved(rebalance: _Rebalance) -> tuple[list[str], str | None]:
    """The partitions that members gained and lost."""
    out = []
    for event in rebalance.of(EventType.REBALANCE_OVER)[-1:]:
        moved = event.get("moves", ())
        for move in moved[: 2 * _MAX_NAMED]:
            parts = [f"{verb} {_partitions(move[verb])}" for verb in ("gained", "lost") if move.get(verb)]
            out.append(f"{name_of(move)} {' and '.join(parts)}.")
        if len(moved) > 2 * _MAX_NAMED:
            out.append(f"{len(moved) - 2 * _MAX_NAMED} more members gained or lost partitions.")
        if "moves" in event and not moved:
            out.append("No partition changed its owner.")
    return out, None


# The sentence for one event, without its full stop, and the remedy.

_Sentence = Callable[[EventRecord], tuple[str, str | None]]


def _joined(event: EventRecord) -> tuple[str, str | None]:
    return f"{name_of(event)} joined{_because(event)}", None


def _replaced(event: EventRecord) -> tuple[str, str | None]:
    return f"static member {name_of(event)} rejoined with a new member id", None


def _left(event: EventRecord) -> tuple[str, str | None]:
    reason = str(event.get("client_reason") or "")
    remedy = None
    if "poll timeout" in reason:
        remedy = (
            "It did not poll within max.poll.interval.ms: process fewer records between two polls (max.poll.records)"
            " or raise max.poll.interval.ms."
        )
    elif "clos" in reason or "unsubscrib" in reason:
        remedy = "If this was a restart: with a group.instance.id it would have cost no rebalance (KIP-345)."
    return f"{name_of(event)} left{_because(event)}", remedy


def _expired(event: EventRecord) -> tuple[str, str | None]:
    heard, session = event["heard_ago_ms"], event["session_ms"]
    if event.get("newcomer"):
        return f"{name_of(event)} joined as a new member and did not receive the response within {_ms(session)}", None
    text = f"{name_of(event)} was last heard of {_ms(heard)} ago, its session is {_ms(session)}"
    return text, (
        "Its process or its network was down, or its event loop was blocked for that long: raise session.timeout.ms, or"
        " move the work off the loop that sends heartbeats."
    )


def _not_synced(event: EventRecord) -> tuple[str, str | None]:
    text = f"{name_of(event)} joined but did not ask for its partitions within {_ms(event['waited_ms'])}"
    return text, "It stopped in the middle of a rebalance: look at its log around this time."


def _rejoined(event: EventRecord) -> tuple[str, str | None]:
    text = f"{name_of(event)} rejoined with the same topics{_because(event)}"
    return (
        text,
        "This is normal for cooperative rebalancing: a member that has revoked partitions rejoins, so that others get"
        " them.",
    )


def _subscription_changed(event: EventRecord) -> tuple[str, str | None]:
    parts = [f"{verb} {', '.join(event[verb][:_MAX_NAMED])}" for verb in ("added", "removed") if event.get(verb)]
    what = f": {' and '.join(parts)}" if parts else ", or its user data"
    return f"{name_of(event)} changed its subscription{what}", None


def _leader(event: EventRecord) -> tuple[str, str | None]:
    text = f"the leader {name_of(event)} asked for a new assignment{_because(event)}"
    return (
        text,
        "Leaders do so when a topic is created or gets more partitions: see the events about topics just before.",
    )


def _not_persisted(event: EventRecord) -> tuple[str, str | None]:
    text = f"the coordinator could not write the group's record ({event.get('error')})"
    return text, "Look at the health of __consumer_offsets: its replicas and its disk."


_SENTENCES: Final[dict[str, _Sentence]] = {
    EventType.MEMBER_JOINED.value: _joined,
    EventType.MEMBER_REPLACED.value: _replaced,
    EventType.MEMBER_LEFT.value: _left,
    EventType.MEMBER_EXPIRED.value: _expired,
    EventType.MEMBER_NOT_SYNCED.value: _not_synced,
    EventType.MEMBER_REJOINED.value: _rejoined,
    EventType.SUBSCRIPTION_CHANGED.value: _subscription_changed,
    EventType.LEADER_REJOINED.value: _leader,
    EventType.PERSIST_FAILED.value: _not_persisted,
}
_CAUSES: Final[dict[str, str]] = {
    EventType.MEMBER_JOINED.value: "joined",
    EventType.MEMBER_REPLACED.value: "came back",
    EventType.MEMBER_LEFT.value: "left",
    EventType.MEMBER_EXPIRED.value: "missed its session",
    EventType.MEMBER_NOT_SYNCED.value: "did not sync",
    EventType.MEMBER_REJOINED.value: "rejoined",
    EventType.SUBSCRIPTION_CHANGED.value: "changed its subscription",
    EventType.LEADER_REJOINED.value: "asked for a new assignment",
    EventType.PERSIST_FAILED.value: "could not be written",
}


def _slow(event: EventRecord) -> tuple[str, str | None]:
    text = (
        f"{name_of(event)} was silent for {_ms(event['heard_ago_ms'])}, its session is {_ms(event['session_ms'])}:"
        " it will be removed soon."
    )
    return text, "Its heartbeats are late: lower heartbeat.interval.ms, raise session.timeout.ms, or unblock its loop."


def _topic(event: EventRecord) -> tuple[str, str | None]:
    if event.get("before"):
        return f"Topic {event['topic']} grew from {event['before']} to {event['partitions']} partitions.", None
    return f"Topic {event['topic']} appeared with {event['partitions']} partitions.", None


def _loaded(event: EventRecord) -> tuple[str, str | None]:
    text = f"The group's coordinator moved to this broker: {event['members']} members, no rebalance."
    return text, None


def _deleted(event: EventRecord) -> tuple[str, str | None]:
    how = "expired" if event.get("expired") else "was deleted"
    return f"The group {how}, with {event['offsets']} offsets.", None


def _expired_offsets(event: EventRecord) -> tuple[str, str | None]:
    return f"{event['offsets']} offsets expired.", "offsets.retention.minutes says how long they are kept."


def _refused(event: EventRecord) -> tuple[str, str | None]:
    text = f"{name_of(event)} rejoined when the group was full ({event['max_size']} members) and was removed."
    return text, "Raise group.max.size, or start fewer members."


_ALONE: Final[dict[str, _Sentence]] = {
    EventType.MEMBER_SLOW.value: _slow,
    EventType.TOPIC_CHANGED.value: _topic,
    EventType.GROUP_LOADED.value: _loaded,
    EventType.GROUP_DELETED.value: _deleted,
    EventType.OFFSETS_EXPIRED.value: _expired_offsets,
    EventType.MEMBER_REFUSED.value: _refused,
}


def _because(event: EventRecord) -> str:
    reason = str(event.get("client_reason") or "")
    return "" if reason in ("", "not provided") else f' ("{reason}")'


def _names(events: list[EventRecord]) -> str:
    names = [name_of(event) for event in events[:_MAX_NAMED]]
    if len(events) > _MAX_NAMED:
        names.append(f"{len(events) - _MAX_NAMED} more")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _partitions(by_topic: dict[str, list[int]]) -> str:
    """Runs of partitions in short, like "t-0 to t-3, u-1"."""
    parts = []
    for topic, partitions in by_topic.items():
        start = 0
        for at in range(1, len(partitions) + 1):
            if at == len(partitions) or partitions[at] != partitions[at - 1] + 1:
                first, last = partitions[start], partitions[at - 1]
                parts.append(f"{topic}-{first}" if first == last else f"{topic}-{first} to {topic}-{last}")
                start = at
    return ", ".join(parts)


def _ms(milliseconds: float) -> str:
    return _span(milliseconds / 1000)


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    return f"{seconds / 60:.0f} min"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
