"""Explains a group's events in sentences, with a remedy where one is known. Pure.

The events are records of ``__group_events`` (:mod:`~barnabas_explain.records`), in their order, or rebuilt
ones (:mod:`~barnabas_explain.rebuild`), which lack what is not recorded. They are cut into rebalances,
each with the events that led to it; a rebalance storm gets one explanation.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from barnabas_explain.catalog import NOT_PROVIDED, EventType
from barnabas_explain.records import NOT_RECORDED, EventRecord, by_topic, decode_event
from barnabas_explain.storms import STORM_REBALANCES, STORM_SECONDS, name_of
from barnabas_protocol.counts import counted

#: If a member rejoins later than this, the explanation names it.
_SLOW_MS: Final = 1_000
#: Events before a change among which its cause is looked for.
_LOOK_BACK: Final = 1_000
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

    def as_data(self) -> "ExplanationData":
        """The explanation, ready for JSON."""
        return asdict(self)


#: An explanation as data: the fields of :class:`Explanation`. Those of transactions have the same.
ExplanationData = dict[str, Any]


def explain_values(
    values: Iterable[bytes], *, since: int | None = None, generation: int | None = None
) -> list[ExplanationData]:
    """Explain the events of a group, oldest first.

    Args:
        values: the values of its records in ``__group_events``, oldest first; values that are not events are left out.
        since: only events at or after this time, in ms since 1970.
        generation: only the rebalance that led to this generation.
    """
    events = [event for event in map(decode_event, values) if event is not None]
    return [explanation.as_data() for explanation in explain(events, since=since, generation=generation)]


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
    everything = list(events)
    epochs = [*_explain_migrations(everything, since, generation), *_explain_epochs(everything, since, generation)]
    rebalances = [
        rebalance
        for rebalance in _rebalances(_of_rebalances(everything))
        if (since is None or rebalance.events[-1]["time"] >= since)
        and (generation is None or generation in _generations(rebalance))
    ]
    explanations: list[Explanation] = []
    storms = _storms(rebalances)
    at = 0
    while at < len(rebalances):
        length = storms.get(at, 0)
        if length:
            explanations.append(_explain_storm(rebalances[at : at + length]))
            at += length
        else:
            explained = _explain_rebalance(rebalances[at])
            explanations.extend(each for each in explained if since is None or each.data[-1]["time"] >= since)
            at += 1
    return sorted([*explanations, *epochs], key=lambda each: each.time) if epochs else explanations


#: Events of groups of the consumer protocol only, which have no rebalances but epochs.
_OF_EPOCHS: Final = frozenset(
    each.value
    for each in (
        EventType.EPOCH_BUMPED,
        EventType.TARGET_ASSIGNED,
        EventType.ASSIGNOR_FAILED,
        EventType.MEMBER_REVOKING,
        EventType.MEMBER_STILL_REVOKING,
        EventType.MEMBER_REVOKED,
        EventType.MEMBER_NOT_REVOKED,
        EventType.MEMBER_FENCED,
        EventType.MEMBER_AWAY,
        EventType.GROUP_RECONCILED,
        EventType.REGEX_FAILED,
        EventType.GROUP_DOWNGRADED,
    )
)


#: Events of members that have no part in a rebalance while the group has the consumer protocol.
_OF_MEMBERS: Final = frozenset(
    each.value
    for each in (
        EventType.MEMBER_JOINED,
        EventType.MEMBER_REPLACED,
        EventType.MEMBER_LEFT,
        EventType.MEMBER_EXPIRED,
        EventType.MEMBER_NOT_REJOINED,
        EventType.MEMBER_NOT_SYNCED,
        EventType.SUBSCRIPTION_CHANGED,
    )
)


def _of_rebalances(events: Iterable[EventRecord]) -> Iterator[EventRecord]:
    """The events that are not of epochs: an upgrade ends a rebalance, and there is none until the downgrade."""
    upgraded = False
    for event in events:
        kind = event["type"]
        if kind == EventType.GROUP_UPGRADED.value:
            upgraded = True
        elif kind == EventType.GROUP_DOWNGRADED.value:
            upgraded = False
        if kind not in _OF_EPOCHS and not (upgraded and kind in _OF_MEMBERS):
            yield event


def _explain_migrations(events: list[EventRecord], since: int | None, generation: int | None) -> list[Explanation]:
    """Explain each upgrade and each downgrade as one story: what has caused it, and how the members followed."""
    explanations: list[Explanation] = []
    story: Explanation | None = None
    classic = 0
    for at, event in enumerate(events):
        kind = event["type"]
        if kind == EventType.GROUP_UPGRADED.value:
            classic = event["members"]
            text = f"Upgraded to the consumer protocol: {_names(event['by'])} joined with it"
            if classic:
                text += f", and {_count(classic, 'member')} went on with the classic protocol"
            story = Explanation(event["time"], event["generation"], f"{text}.", data=[event])
            story.remedy = "To finish the upgrade, restart the other members with group.protocol=consumer."
            explanations.append(story)
        elif kind == EventType.GROUP_DOWNGRADED.value:
            cause, _ = _cause_of_epoch(event, _before(events, at))
            went_on = f"{_count(event['members'], 'member')} of the classic protocol went on"
            text = f"Downgraded to the classic protocol: {cause}; {went_on} and rebalanced."
            explanations.append(Explanation(event["time"], event["generation"], text, data=[event]))
            if story is not None:
                story.details.append(f"After {_ms(event['time'] - story.time)}: the group was downgraded again.")
                story.remedy = None
                story = None
        elif story is not None and event.get("classic", classic) != classic:
            classic, members = event["classic"], event["members"]
            replaced = kind == EventType.MEMBER_REPLACED.value
            cause = _replaced(event)[0] if replaced else _cause_of_epoch(event, _before(events, at))[0]
            uses = "uses" if classic == 1 else "use"
            left = f"{classic} of {_count(members, 'member')} {uses} the classic protocol"
            if not classic:
                left = f"the upgrade is complete, with {_count(members, 'member')} of the consumer protocol"
            story.details.append(f"After {_ms(event['time'] - story.time)}: {cause}; {left}.")
            story.data.append(event)
            if not classic:
                story.remedy = None
                story = None
    return _selected(explanations, since, generation)


def _explain_epochs(events: list[EventRecord], since: int | None, generation: int | None) -> list[Explanation]:
    """Explain each epoch of a group of the consumer protocol: its cause, its target, and for whom it waited."""
    explanations: list[Explanation] = []
    current: Explanation | None = None
    for at, event in enumerate(events):
        kind, epoch = event["type"], event["generation"]
        if kind == EventType.EPOCH_BUMPED.value:
            text, remedy = _cause_of_epoch(event, _before(events, at))
            current = Explanation(event["time"], epoch, f"Epoch {epoch}: {text}.", remedy, data=[event])
            current.details += _evidence(_triggers_of_epoch(events, at))
            explanations.append(current)
        elif kind in _BESIDE_EPOCHS:
            explanations.append(Explanation(event["time"], epoch, _BESIDE_EPOCHS[kind](event), data=[event]))
        elif kind in _OF_EPOCHS and current is not None:
            current.data.append(event)
            current.details += _progress(event)
            if kind == EventType.ASSIGNOR_FAILED.value:
                current.remedy = "Look at the assignor's error; the next heartbeats try again, once a second."
    return _selected(explanations, since, generation)


def _selected(explanations: list[Explanation], since: int | None, generation: int | None) -> list[Explanation]:
    """The explanations of what happened at or after `since`, and in `generation`."""
    return [
        each
        for each in explanations
        if (since is None or each.data[-1]["time"] >= since) and (generation is None or each.generation == generation)
    ]


def _before(events: list[EventRecord], at: int) -> list[EventRecord]:
    """The events just before one: what caused it is among them."""
    return events[max(at - _LOOK_BACK, 0) : at]


def _triggers_of_epoch(events: list[EventRecord], at: int) -> list[EventRecord]:
    """The members that were found to be gone just before an epoch."""
    first = at
    while first and events[first - 1]["type"] == EventType.MEMBER_GONE.value:
        first -= 1
    return events[first:at]


def _cause_of_epoch(bumped: EventRecord, before: list[EventRecord]) -> tuple[str, str | None]:
    """Why the group epoch grew, and the remedy."""
    cause, by = bumped.get("cause", ""), bumped.get("by") or []
    if cause == EventType.REGEX_RESOLVED.value:
        # One for each expression with other matches, just before.
        resolved: list[EventRecord] = []
        for event in reversed(before):
            if event["type"] != cause:
                break
            resolved.insert(0, event)
        told = [*_new_expressions(resolved, before), *map(_regex, resolved)]
        return "; ".join(told) or CAUSES[cause], None
    if cause == NOT_RECORDED:
        return "its cause is not recorded", None
    if cause == EventType.SUBSCRIPTION_CHANGED.value and not by:
        # The topics of an expression that a member has changed, and whose successor could not be resolved.
        return f"a member {CAUSES[cause]}", None
    if cause == EventType.TOPIC_CHANGED.value or not by:
        return "a topic that the group subscribes to was created, deleted or has grown", None
    ids = {member.get("member_id") for member in by}
    trigger = next((each for each in reversed(before) if each["type"] == cause and each.get("member_id") in ids), None)
    others = f", and {_count(len(by) - 1, 'more member')}" if len(by) > 1 else ""
    if cause == EventType.MEMBER_NOT_REVOKED.value and trigger is not None:
        text = (
            f"{name_of(trigger)} did not revoke {_partitions(trigger['partitions'])} within {_ms(trigger['waited_ms'])}"
        )
        return text + others, (
            "A member revokes at its next poll: reduce the work between two polls (max.poll.records), or raise"
            " max.poll.interval.ms, which is also its rebalance timeout."
        )
    if trigger is None or cause not in _SENTENCES:
        return f"{name_of(by[0])} {CAUSES.get(cause, cause)}{others}", None
    text, remedy = _SENTENCES[cause](trigger)
    return text + others, remedy


def _progress(event: EventRecord) -> list[str]:
    """What happened in an epoch after its start."""
    kind = event["type"]
    if kind == EventType.TARGET_ASSIGNED.value:
        moves = event.get("moves", ())
        if "assignor" in event:
            out = [f"The assignor {event['assignor']} computed the target in {_ms(event['took_ms'])}."]
        else:
            out = [f"The target was recorded {_ms(event['took_ms'])} after the epoch."]
        for move in moves[: 2 * _MAX_NAMED]:
            parts = [f"{verb} {_partitions(move[now])}" for now, verb in _TO_MOVE if move.get(now)]
            if parts:
                out.append(f"{name_of(move)} is to {' and '.join(parts)}.")
        if len(moves) > 2 * _MAX_NAMED:
            out.append(f"The targets of {_count(len(moves) - 2 * _MAX_NAMED, 'more member')} changed.")
        return out
    if kind == EventType.MEMBER_REVOKING.value:
        within = f" within {_ms(event['timeout_ms'])}" if "timeout_ms" in event else ""
        return [f"{name_of(event)} has to revoke {_partitions(event['partitions'])}{within}."]
    if kind == EventType.MEMBER_STILL_REVOKING.value:
        return [f"{_still_revoking(event)}."]
    if kind == EventType.MEMBER_REVOKED.value:
        return [f"{name_of(event)} revoked {_partitions(event['partitions'])} after {_ms(event['waited_ms'])}."]
    if kind == EventType.ASSIGNOR_FAILED.value:
        return [f"The assignor {event['assignor']} failed: {event['reason']}."]
    if kind == EventType.GROUP_RECONCILED.value:
        members = f"All {'known ' if event.get('inferred') else ''}members"
        out = [f"{members} owned their partitions after {_ms(event['took_ms'])}; {_count(event['members'], 'member')}."]
        return out + _pauses(event)
    return []


def _still_revoking(event: EventRecord) -> str:
    """For how long a member has been revoking which partitions, and how long it may take."""
    return (
        f"{name_of(event)} has been revoking {_partitions(event['partitions'])} for {_ms(event['waited_ms'])}:"
        f" max.poll.interval.ms of its client is {_ms(event['timeout_ms'])}"
    )


_TO_MOVE: Final = (("gained", "get"), ("lost", "give"))


def _away(event: EventRecord) -> str:
    wait = f"wait {_ms(event['session_ms'])} for it" if "session_ms" in event else "wait for it"
    return f"Static member {name_of(event)} left for a while; its partitions {wait}."


def _new_expressions(resolved: list[EventRecord], before: list[EventRecord]) -> list[str]:
    """Who has changed to one of these expressions since the last epoch: it had to be resolved first."""
    expressions = {event["regex"] for event in resolved}
    changes: list[str] = []
    for event in reversed(before):
        if event["type"] == EventType.EPOCH_BUMPED.value:
            break
        if event["type"] == EventType.SUBSCRIPTION_CHANGED.value and event.get("regex") in expressions:
            changes.insert(0, _subscription_changed(event)[0])
    return changes


def _regex(event: EventRecord) -> str:
    parts = [f"{verb} {_list(event[now])}" for now, verb in _MATCHES if event.get(now)]
    return f"the regular expression {event['regex']} {' and '.join(parts) or 'matches no topic'}"


_MATCHES: Final = (("added", "now matches"), ("removed", "no longer matches"))


def _fenced(event: EventRecord) -> str:
    return (
        f"{name_of(event)} came with member epoch {event['member_epoch']} instead of {event['known_epoch']}, and had to"
        " join again."
    )


def _no_matches(event: EventRecord) -> str:
    return f"The regular expression {event['regex']} has no new matches: {event['reason']}."


#: Events that are explained by themselves: they may come before the first epoch.
_BESIDE_EPOCHS: Final[dict[str, Callable[[EventRecord], str]]] = {
    EventType.MEMBER_AWAY.value: _away,
    EventType.MEMBER_FENCED.value: _fenced,
    EventType.REGEX_FAILED.value: _no_matches,
}


_ENDS: Final = frozenset(
    each.value
    for each in (
        EventType.REBALANCE_OVER,
        EventType.GROUP_EMPTY,
        EventType.GROUP_DELETED,
        EventType.GROUP_LOADED,
        EventType.GROUP_UPGRADED,
    )
)
#: Events that say nothing about a rebalance.
_ABOUT_NO_REBALANCE: Final = frozenset(
    each.value
    for each in (
        EventType.MEMBER_SLOW,
        EventType.OFFSETS_EXPIRED,
        EventType.OFFSETS_UNSTABLE,
        EventType.OFFSETS_STABLE,
        EventType.OFFSETS_COMMITTED,
        EventType.HISTORY_BEGAN,
        EventType.HISTORY_GAP,
    )
)
#: Events that cause a rebalance, as opposed to events during one.
_TRIGGERS: Final = (
    EventType.MEMBER_JOINED,
    EventType.MEMBER_REPLACED,
    EventType.MEMBER_LEFT,
    EventType.MEMBER_EXPIRED,
    EventType.MEMBER_GONE,
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
    started: EventRecord | None = None
    for event in events:
        if event["type"] == EventType.REBALANCE_STARTED.value and started is not None:
            # The causes of the next rebalance are the last events of this one.
            causes = []
            while rebalance.events[-1]["type"] in _TRIGGER_TYPES and rebalance.events[-1] is not started:
                causes.append(rebalance.events.pop())
            yield rebalance
            rebalance, started = _Rebalance(causes[::-1]), None
        rebalance.events.append(event)
        alone = started is None and event["type"] in _ABOUT_NO_REBALANCE
        if started is None and event["type"] == EventType.REBALANCE_STARTED.value:
            started = event
        if event["type"] in _ENDS or (alone and len(rebalance.events) == 1):
            yield rebalance
            rebalance, started = _Rebalance(), None
    if rebalance.events:
        yield rebalance


def _generations(rebalance: _Rebalance) -> set[int]:
    """The generation that a rebalance led to, or in which offsets were committed."""
    if rebalance.started is None and rebalance.of(EventType.OFFSETS_COMMITTED) == rebalance.events:
        return {event["generation"] for event in rebalance.events}
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
        EventType.OFFSETS_COMMITTED,
        EventType.TOPIC_CHANGED,
        *_TRIGGERS,
    )
)


def _storms(rebalances: list[_Rebalance]) -> dict[int, int]:
    """The number of items of each storm, by the index of its first one."""
    found: dict[int, int] = {}
    first = starts = 0
    last: int | None = None
    before = 0

    def end(at: int) -> bool:
        """The items from `first` to before `at` belong together; returns whether they are a storm."""
        if starts >= STORM_REBALANCES:
            found[first] = at - first
        return first in found

    for at, rebalance in enumerate(rebalances):
        started = rebalance.started
        if started is None:
            if any(event["type"] not in _IN_STORMS for event in rebalance.events):
                end(at)
                first, starts, last = at + 1, 0, None
            continue
        if last is not None and started["time"] - before > STORM_SECONDS * 1000:
            # What happened between two storms belongs to the second one.
            first = at if end(at) else last + 1
            starts = 0
        last, before = at, started["time"]
        starts += 1
    end(len(rebalances))
    return found


def _explain_storm(rebalances: list[_Rebalance]) -> Explanation:
    events = [event for rebalance in rebalances for event in rebalance.events]
    starts = [event for event in events if event["type"] == EventType.REBALANCE_STARTED.value]
    causes: Counter[tuple[str, str]] = Counter()
    for start in starts:
        causes[_causer(start), start.get("cause", "")] += 1
    members: Counter[str] = Counter()
    for (name, _), times in causes.items():
        members[name] += times
    parts = []
    for name, _ in members.most_common(_MAX_NAMED):
        how = ", ".join(
            f"{CAUSES.get(cause, cause)} {_times(count)}"
            for (each, cause), count in causes.most_common()
            if each == name
        )
        parts.append(f"{name} {how}")
    if len(members) > _MAX_NAMED:
        parts.append(_count(len(members) - _MAX_NAMED, "more member"))
    first, last = starts[0], starts[-1]
    seconds = max((last["time"] - first["time"]) / 1000, 0.001)
    text = f"Rebalance storm: {len(starts)} rebalances within {_span(seconds)}: {'; '.join(parts)}."
    (_, cause), _ = causes.most_common(1)[0]
    worst = next((event for event in reversed(events) if event["type"] == cause), None)
    remedy = _SENTENCES[cause](worst)[1] if worst is not None and cause in _SENTENCES else None
    if cause == EventType.MEMBER_JOINED.value:
        remedy = (
            "A member that joins again and again restarts or loses its session: look at its log. Give members a"
            " group.instance.id, so that a restart within the session timeout causes no rebalance."
        )
    return Explanation(first["time"], first["generation"], text, remedy, data=[first, last])


def _causer(started: EventRecord) -> str:
    """The name of the member that caused a rebalance; if several may have, their name if they have the same."""
    by = started.get("by") or [{}]
    if started.get("inferred") and len({name_of(member) for member in by}) > 1:
        return "one of several members"
    return name_of(by[0]) if by[0] or started.get("cause") != NOT_RECORDED else "a member that is not recorded"


def _explain_rebalance(rebalance: _Rebalance) -> list[Explanation]:
    """Explain a rebalance, and events that are explained by themselves."""
    explanations = []
    for event in rebalance.events:
        alone = _ALONE.get(event["type"])
        if alone is not None:
            text, remedy = alone(event)
            explanations.append(Explanation(event["time"], event["generation"], text, remedy, data=[event]))
    started = rebalance.started
    explanations += _replaced_quietly(rebalance, started)
    if started is None:
        return explanations
    text, remedy = _why(rebalance, started)
    over = rebalance.of(EventType.REBALANCE_OVER, EventType.GROUP_EMPTY)
    reached = over[-1]["generation"] if over else None
    if reached is not None and reached < 0:
        head = f"Rebalance: {text}."
    elif reached is not None:
        head = f"Generation {reached}: {text}."
    elif started["generation"]:
        head = f"Generation {started['generation']} ended: {text}."
    else:
        head = f"The first rebalance started: {text}."
    explanation = Explanation(started["time"], started["generation"], head, remedy, data=list(rebalance.events))
    gone = rebalance.of(EventType.MEMBER_GONE)
    for part, advice in (_others(rebalance, started), (_evidence(gone), None), _phases(rebalance), _moved(rebalance)):
        explanation.details += part
        explanation.remedy = explanation.remedy or advice
    explanations.append(explanation)
    return explanations


def _replaced_quietly(rebalance: _Rebalance, started: EventRecord | None) -> list[Explanation]:
    """Static members that came back without a rebalance."""
    caused = () if started is None else started.get("by", ())
    ids = {member.get("member_id") for member in caused}
    before = rebalance.events if started is None else rebalance.events[: rebalance.events.index(started)]
    text = "Static member {} came back with a new member id, without a rebalance."
    return [
        Explanation(event["time"], event["generation"], text.format(name_of(event)), data=[event])
        for event in before
        if event["type"] == EventType.MEMBER_REPLACED.value and event.get("member_id") not in ids
    ]


def _why(rebalance: _Rebalance, started: EventRecord) -> tuple[str, str | None]:
    """The cause of a rebalance, and the remedy."""
    cause = started.get("cause", "")
    ids = {member.get("member_id") for member in started.get("by") or ()}
    if started.get("inferred"):
        return _why_inferred(rebalance, started)
    trigger = next(
        (
            event
            for event in reversed(rebalance.events[: rebalance.events.index(started)])
            if event["type"] == cause and event.get("member_id") in ids
        ),
        None,
    )
    if cause == EventType.GROUP_DOWNGRADED.value and started.get("by"):
        return f"{_names(started['by'])} {CAUSES[cause]}", None
    if trigger is None or cause not in _SENTENCES:
        return str(started.get("reason") or cause).rstrip("."), None
    text, remedy = _SENTENCES[cause](trigger)
    return text, remedy


def _why_inferred(rebalance: _Rebalance, started: EventRecord) -> tuple[str, str | None]:
    """The cause of a rebalance whose start is concluded: what changed between two generations."""
    ids = {member.get("member_id") for member in started.get("by") or ()}
    before = rebalance.events[: rebalance.events.index(started)]
    triggers = [event for event in before if event["type"] in _SENTENCES and event.get("member_id") in ids]
    told = [_SENTENCES[event["type"]](event) for event in triggers[:_MAX_NAMED]]
    parts = [text for text, _ in told]
    if len(triggers) > _MAX_NAMED:
        parts.append(f"{_count(len(triggers) - _MAX_NAMED, 'more member')} changed")
    if not parts or (started.get("cause") == NOT_RECORDED and len(parts) > 1):
        parts.append(str(started.get("reason") or "its cause is not recorded").rstrip("."))
    remedies = [remedy for _, remedy in told if remedy]
    return "; ".join(parts), remedies[0] if len(remedies) == len(told) == 1 else None


def _evidence(gone: list[EventRecord]) -> list[str]:
    """What is known of members that are gone, for a reader to judge by."""
    out = []
    for event in gone[:_MAX_NAMED]:
        known = []
        last = event.get("last_commit")
        if last is not None:
            known.append(
                f"{last['topic']}-{last['partition']}, which it owned, was committed last at {_time(last['time'])}"
            )
        if "pending" in event:
            known.append(f"it had to revoke {_partitions(event['pending'])} for {_ms(event['pending_ms'])}")
        if "session_ms" in event:
            known.append(f"its session timeout is {_ms(event['session_ms'])}")
        if "rebalance_timeout_ms" in event:
            known.append(f"its rebalance timeout is {_ms(event['rebalance_timeout_ms'])}")
        if known:
            out.append(f"Evidence about {name_of(event)}: {'; '.join(known)}.")
    return out


def _pauses(event: EventRecord) -> list[str]:
    """For how long partitions had no owner; the partitions with the same bounds together."""
    together: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for pause in event.get("pauses", ()):
        bounds = _ms(pause["at_least_ms"]), _ms(pause["at_most_ms"])
        together.setdefault(bounds, []).append((pause["topic"], pause["partition"]))
    out = []
    for (least, most), partitions in list(together.items())[:_MAX_NAMED]:
        bounds_text = f"for {most}" if least == most else f"for at least {least}, at most {most}"
        have = "had" if len(partitions) == 1 else "each had"
        out.append(f"{_partitions(by_topic(partitions))} {have} no owner {bounds_text}.")
    rest = sum(len(each) for each in list(together.values())[_MAX_NAMED:]) + event.get("more_pauses", 0)
    if rest:
        out.append(f"{_capital(_count(rest, 'more partition'))} had no owner for a shorter time.")
    return out


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
        out.append(f"{_SENTENCES[event['type']](event)[0]}.")
    if len(departed) > _MAX_NAMED:
        out.append(f"{_count(len(departed) - _MAX_NAMED, 'more member')} left the group.")
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
    if len(missing) > _MAX_NAMED:
        more = len(missing) - _MAX_NAMED
        out.append(f"{_count(more, 'more member')} did not rejoin and {'was' if more == 1 else 'were'} removed.")
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
        if rebalance.of(EventType.GROUP_UPGRADED):
            return ["The group was upgraded to the consumer protocol before it was over."], None
        return ["The group has no members now."] if rebalance.of(EventType.GROUP_EMPTY) else [], None
    members = over[-1]["members"]
    took = [f"{phase} {_ms(over[-1][name])}" for name, phase in _PHASES if name in over[-1]]
    out = [f"{_capital(', '.join(took))}; {_count(members, 'member')}."] if took else [f"{_count(members, 'member')}."]
    remedy = None
    slow = [each for event in rebalance.of(EventType.JOIN_PHASE_OVER) for each in event.get("joined_after", ())]
    if slow and slow[0]["after_ms"] > _SLOW_MS and not rebalance.of(EventType.MEMBER_JOINED):
        name, after = name_of(slow[0]), _ms(slow[0]["after_ms"])
        remedy = "A member rejoins at its next poll: reduce the work between two polls (max.poll.records)"
        if members == 1:
            out.append(f"{name} rejoined after {after}.")
        else:
            others = "the other member" if members == 2 else f"the other {members - 1} members"
            out.append(f"{name} was the last to rejoin, after {after}; {others} waited.")
            remedy += ", or use the cooperative-sticky assignor, with which members continue to consume while they wait"
        remedy += "."
    return out, remedy


_PHASES: Final = (("join_took_ms", "joining took"), ("sync_took_ms", "assigning"))


def _moved(rebalance: _Rebalance) -> tuple[list[str], str | None]:
    """The partitions that members gained and lost."""
    out = []
    for event in rebalance.of(EventType.REBALANCE_OVER)[-1:]:
        moved = event.get("moves", ())
        for move in moved[: 2 * _MAX_NAMED]:
            parts = [f"{verb} {_partitions(move[verb])}" for verb in ("gained", "lost") if move.get(verb)]
            out.append(f"{name_of(move)} {' and '.join(parts)}.")
        if len(moved) > 2 * _MAX_NAMED:
            out.append(f"{_count(len(moved) - 2 * _MAX_NAMED, 'more member')} gained or lost partitions.")
        if "moves" in event and not moved:
            out.append("No partition changed its owner.")
        out += _pauses(event)
    return out, None


# The sentence for one event, without its full stop, and the remedy.

_Sentence = Callable[[EventRecord], tuple[str, str | None]]


def _joined(event: EventRecord) -> tuple[str, str | None]:
    at = _when(event)
    if event.get("inferred"):
        return f"{name_of(event)} joined{at}, or it is an older member that changed its subscription", None
    return f"{name_of(event)} joined{_with_protocol(event)}{at}{_because(event)}", None


def _with_protocol(event: EventRecord) -> str:
    return f" with the {event['protocol']} protocol" if event.get("protocol") else ""


def _replaced(event: EventRecord) -> tuple[str, str | None]:
    return f"static member {name_of(event)} rejoined with a new member id{_with_protocol(event)}", None


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


def _gone(event: EventRecord) -> tuple[str, str | None]:
    possible = event.get("possible") or ["left"]
    *others, last = (_GONE.get(each, each) for each in possible)
    how = " or ".join((", ".join(others), last)) if others else f"{last}, nothing else fits"
    return f"{name_of(event)} is gone{_when(event)}: {how}", None


_GONE: Final = {
    "left": "left",
    "expired": "expired",
    "not_rejoined": "did not rejoin in time",
    "not_revoked": "did not revoke its partitions in time",
}


def _expired(event: EventRecord) -> tuple[str, str | None]:
    heard, session = event["heard_ago_ms"], event["session_ms"]
    if event.get("is_new"):
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
    parts = [f"{verb} {_list(event[verb])}" for verb in ("added", "removed") if event.get(verb)]
    if "regex" in event:
        parts.append(f"subscribed with the expression {event['regex']}" if event["regex"] else "dropped its expression")
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
    EventType.MEMBER_GONE.value: _gone,
    EventType.MEMBER_NOT_SYNCED.value: _not_synced,
    EventType.MEMBER_REJOINED.value: _rejoined,
    EventType.SUBSCRIPTION_CHANGED.value: _subscription_changed,
    EventType.LEADER_REJOINED.value: _leader,
    EventType.PERSIST_FAILED.value: _not_persisted,
}
CAUSES: Final[dict[str, str]] = {
    EventType.MEMBER_JOINED.value: "joined",
    EventType.MEMBER_REPLACED.value: "came back",
    EventType.MEMBER_LEFT.value: "left",
    EventType.MEMBER_EXPIRED.value: "missed its session",
    EventType.MEMBER_GONE.value: "was gone",
    NOT_RECORDED: "joined or was gone",
    EventType.MEMBER_NOT_SYNCED.value: "did not sync",
    EventType.MEMBER_REJOINED.value: "rejoined",
    EventType.SUBSCRIPTION_CHANGED.value: "changed its subscription",
    EventType.LEADER_REJOINED.value: "asked for a new assignment",
    EventType.MEMBER_NOT_REJOINED.value: "did not rejoin in time",
    EventType.MEMBER_NOT_REVOKED.value: "did not revoke its partitions in time",
    EventType.GROUP_DOWNGRADED.value: "was the last member of the consumer protocol",
    EventType.GROUP_UPGRADED.value: "upgraded the group while partitions had no owner",
    EventType.TOPIC_CHANGED.value: "a topic has changed",
    EventType.PERSIST_FAILED.value: "could not write the group's record",
    EventType.REGEX_RESOLVED.value: "a regular expression matches other topics",
}


def _slow(event: EventRecord) -> tuple[str, str | None]:
    text = (
        f"{name_of(event)} was silent for {_ms(event['heard_ago_ms'])}, its session is {_ms(event['session_ms'])}:"
        " it will be removed soon."
    )
    return text, "Its heartbeats are late: lower heartbeat.interval.ms, raise session.timeout.ms, or unblock its loop."


def _topic(event: EventRecord) -> tuple[str, str | None]:
    if event.get("before"):
        return (
            f"Topic {event['topic']} grew from {event['before']} to {_count(event['partitions'], 'partition')}.",
            None,
        )
    return f"Topic {event['topic']} appeared with {_count(event['partitions'], 'partition')}.", None


def _loaded(event: EventRecord) -> tuple[str, str | None]:
    text = f"The group's coordinator moved to this broker: {_count(event['members'], 'member')}, no rebalance."
    return text, None


def _deleted(event: EventRecord) -> tuple[str, str | None]:
    how = "expired" if event.get("expired") else "was deleted"
    how = "was deleted or expired" if event.get("inferred") else how
    return f"The group {how}, with {_count(event['offsets'], 'committed offset')}.", None


def _expired_offsets(event: EventRecord) -> tuple[str, str | None]:
    if event.get("inferred"):
        return f"{_capital(_count(event['offsets'], 'offset'))} expired or {_were(event['offsets'])} deleted.", None
    return (
        f"{_capital(_count(event['offsets'], 'offset'))} expired.",
        "offsets.retention.minutes says how long they are kept.",
    )


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _committed(event: EventRecord) -> tuple[str, str | None]:
    first, last = event["between"]
    text = f"{_capital(_count(event['commits'], 'offset'))} {_were(event['commits'])} committed"
    text += f" in {_count(event['partitions'], 'partition')}{_when(event)}"
    if last - first >= 1000:
        rate = event["commits"] / (last - first) * 1000
        text += f", {rate:,.0f} a second" if rate >= 100 else f", {rate:.2g} a second"
    return f"{text}.", None


def _began(event: EventRecord) -> tuple[str, str | None]:
    members = f", with {_count(event['members'], 'member')}" if "members" in event else ""
    if event["generation"] < 0:
        return f"The group at the first look: {_count(event['members'], 'member')}.", None
    what = f"generation {event['generation']}{members}"
    return f"What is known begins with {what}: earlier records were not read, or are compacted.", None


def _gap(event: EventRecord) -> tuple[str, str | None]:
    if "more" in event:
        return f"Gap: {event['more']:,} more of this kind: {_GAPS.get(event['gap'], event['gap'])}.", None
    return f"Gap: {_GAP_SENTENCES[event['gap']](event)}.", None


def _generations_text(event: EventRecord) -> str:
    first, last = event["first"], event["last"]
    return f"generation {first} has" if first == last else f"generations {first} to {last} have"


#: What can be missing or unusable in a rebuilt history, in general.
_GAPS: Final = {
    "compacted": "generations without a record",
    "not_completed": "generations that were not completed",
    "unreadable": "records that cannot be read",
    "clock": "times that cannot be right",
    "unknown_type": "records of an unknown type",
    "too_many": "more than can be remembered",
    "went_back": "the generation became smaller",
    "open_transaction": "an open transaction",
    "not_read": "events that were not read",
}
_GAP_SENTENCES: Final[dict[str, Callable[[EventRecord], str]]] = {
    "compacted": lambda event: (
        f"{_generations_text(event)} no record; {_count(event['records'], 'record')} of this time"
        f" {'is' if event['records'] == 1 else 'are'} missing: compacted, or of transactions"
    ),
    "not_completed": lambda event: (
        f"{_generations_text(event)} no record, and nothing is missing: the assignment was never completed"
    ),
    "not_read": lambda event: str(event["reason"]),
    "unreadable": lambda event: f"the record at offset {event['offset']} cannot be read: {event['reason']}",
    "clock": lambda event: (
        f"the record at offset {event['offset']} is {_ms(event['back_ms'])} older than the one before: clocks disagree,"
        " so durations across it are left out"
        if "back_ms" in event
        else f"the record at offset {event['offset']} has no usable time ({event['timestamp']})"
    ),
    "unknown_type": lambda event: (
        f"the record at offset {event['offset']} is of type {event['record_type']}: of a share group, a streams group,"
        " or of a later version"
    ),
    "too_many": lambda event: f"more than {event['most']:,} {event['what']} are not remembered",
    "went_back": lambda event: (
        f"the generation went back from {event['before']} to {event['now']}: the group was deleted and created again"
    ),
    "open_transaction": lambda event: (
        f"a transaction is open since offset {event['offset']}: of the {_count(event['records'], 'record')} from there"
        " on, commits may not count yet"
    ),
}


def _unstable(event: EventRecord) -> tuple[str, str | None]:
    count, one = event["offsets"], event["offsets"] == 1
    text = (
        f"A consumer waits for {_count(count, 'offset')}: {'it is' if one else 'they are'} pending in a transaction of"
        f" producer {event['producer_id']} since {_ms(event['pending_ms'])}."
    )
    return text, (
        "Consumers start when the transaction ends, at the latest after its producer's transaction.timeout.ms. If that"
        " producer is gone, start it again: with the same transactional.id it ends the transaction at once."
    )


def _stable(event: EventRecord) -> tuple[str, str | None]:
    ended = f"The transaction of producer {event['producer_id']}"
    took, count = _ms(event["pending_ms"]), _count(event["offsets"], "offset")
    if event["committed"]:
        return f"{ended} was committed after {took}, with {count} of the group.", None
    return f"{ended} was aborted after {took}: {count} of the group stayed as before.", None


def _refused(event: EventRecord) -> tuple[str, str | None]:
    text = f"{name_of(event)} rejoined when the group was full ({_count(event['max_size'], 'member')}) and was removed."
    return text, "Raise group.max.size, or start fewer members."


_ALONE: Final[dict[str, _Sentence]] = {
    EventType.MEMBER_SLOW.value: _slow,
    EventType.TOPIC_CHANGED.value: _topic,
    EventType.GROUP_LOADED.value: _loaded,
    EventType.GROUP_DELETED.value: _deleted,
    EventType.OFFSETS_EXPIRED.value: _expired_offsets,
    EventType.OFFSETS_UNSTABLE.value: _unstable,
    EventType.OFFSETS_STABLE.value: _stable,
    EventType.MEMBER_REFUSED.value: _refused,
    EventType.OFFSETS_COMMITTED.value: _committed,
    EventType.HISTORY_BEGAN.value: _began,
    EventType.HISTORY_GAP.value: _gap,
}


def _because(event: EventRecord) -> str:
    reason = str(event.get("client_reason") or "")
    return "" if reason in ("", NOT_PROVIDED) else f' ("{reason}")'


def _when(event: EventRecord) -> str:
    """Between which times a rebuilt event happened, in the local zone; "" for an event whose time is known."""
    first, last = event.get("between") or (None, None)
    if first is None or last is None or first == last:
        return ""
    begin, end = _time(first), _time(last)
    return f" at {end}" if begin == end else f" between {begin} and {end}"


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%H:%M:%S")


def _names(events: list[EventRecord]) -> str:
    """The names of members; members with the same name, as those of one process often have, are counted."""
    names = Counter(map(name_of, events))
    return _list([name if count == 1 else f"{count} members named {name}" for name, count in names.items()])


def _list(names: Sequence[str]) -> str:
    """Names as a list, like "a, b and 3 more"."""
    shown = list(names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        shown.append(f"{len(names) - _MAX_NAMED} more")
    return " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else shown[0]


def _count(number: int, noun: str) -> str:
    """A number of things: "no members", "1 member", "2 members"."""
    return counted(number, noun) if number else f"no {noun}s"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


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


#: For log lines.
shown_partitions = _partitions


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
