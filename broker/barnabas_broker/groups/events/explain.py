"""A group's events as sentences, with a remedy where one is known. Pure.

Events are those of :mod:`~barnabas_broker.groups.events.events`, in the order in which they were written. They are
gathered into episodes, a rebalance each; many episodes in a row are a storm and become one story.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from barnabas_broker.groups.effects import Kind
from barnabas_broker.groups.events.events import Event
from barnabas_broker.groups.events.storms import STORM_REBALANCES, STORM_SECONDS, name_of

#: A rebalance that takes longer than this has somebody to blame.
_SLOW_MS: Final = 1_000
#: What one sentence names at most.
_MOST_NAMED: Final = 5


@dataclass(slots=True)
class Told:
    """One thing that is told.

    Attributes:
        time: ms since 1970.
        generation: of the group before it.
        text: what happened.
        remedy: what to do about it, if that is known.
        details: what else there is to it.
        data: the events that it is made of.
    """

    time: int
    generation: int
    text: str
    remedy: str | None = None
    details: list[str] = field(default_factory=list)
    data: list[Event] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(slots=True)
class _Episode:
    """What led to a rebalance, and the rebalance."""

    events: list[Event] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[Event]:
        return [event for event in self.events if event["type"] in {kind.value for kind in kinds}]

    @property
    def started(self) -> Event | None:
        return next(iter(self.of(Kind.REBALANCE_STARTED)), None)


def explain(events: Iterable[Event], *, since: int | None = None, generation: int | None = None) -> list[Told]:
    """Tell what happened to a group.

    Args:
        events: of one group, oldest first.
        since: tell only what happened at or after this time, in ms since 1970.
        generation: tell only how this generation came to be.
    """
    episodes = [
        episode
        for episode in _episodes(events)
        if (since is None or episode.events[-1]["time"] >= since)
        and (generation is None or generation in _generations(episode))
    ]
    told: list[Told] = []
    at = 0
    while at < len(episodes):
        storm = _storm(episodes, at)
        if storm >= STORM_REBALANCES:
            told.append(_tell_storm(episodes[at : at + storm]))
            at += storm
        else:
            told.extend(_tell(episodes[at]))
            at += 1
    return told


_ENDS: Final = frozenset(
    kind.value for kind in (Kind.REBALANCE_OVER, Kind.GROUP_EMPTY, Kind.GROUP_DELETED, Kind.GROUP_LOADED)
)
#: What leads to a rebalance, as opposed to what happens in one.
_TRIGGERS: Final = (
    Kind.MEMBER_JOINED,
    Kind.MEMBER_REPLACED,
    Kind.MEMBER_LEFT,
    Kind.MEMBER_EXPIRED,
    Kind.MEMBER_NOT_SYNCED,
    Kind.MEMBER_REJOINED,
    Kind.SUBSCRIPTION_CHANGED,
    Kind.LEADER_REJOINED,
    Kind.PERSIST_FAILED,
)
_TRIGGER_TYPES: Final = frozenset(kind.value for kind in _TRIGGERS)


def _episodes(events: Iterable[Event]) -> Iterable[_Episode]:
    """Cut events into episodes. One ends when the group is stable or empty, or the next rebalance starts within it."""
    episode = _Episode()
    for event in events:
        started = episode.started
        if event["type"] == Kind.REBALANCE_STARTED.value and started is not None:
            # What caused the next one stands at the end of this one.
            rest = []
            while episode.events[-1]["type"] in _TRIGGER_TYPES and episode.events[-1] is not started:
                rest.append(episode.events.pop())
            yield episode
            episode = _Episode(rest[::-1])
        episode.events.append(event)
        alone = started is None and event["type"] in (Kind.MEMBER_SLOW.value, Kind.OFFSETS_EXPIRED.value)
        if event["type"] in _ENDS or (alone and len(episode.events) == 1):
            yield episode
            episode = _Episode()
    if episode.events:
        yield episode


def _generations(episode: _Episode) -> set[int]:
    """The generations that an episode is about: the one that it leads to."""
    over = episode.of(Kind.JOIN_PHASE_OVER, Kind.REBALANCE_OVER, Kind.GROUP_EMPTY, Kind.GROUP_LOADED)
    return {event["generation"] for event in over} or {event["generation"] + 1 for event in episode.events[-1:]}


def _storm(episodes: list[_Episode], at: int) -> int:
    """How many episodes from `at` on follow each other too fast."""
    count = 0
    before: int | None = None
    for episode in episodes[at:]:
        started = episode.started
        if started is None:
            if any(event["type"] not in _CALM for event in episode.events):
                break
        elif before is not None and started["time"] - before > STORM_SECONDS * 1000:
            break
        else:
            before = started["time"]
        count += 1
    rebalances = sum(1 for episode in episodes[at : at + count] if episode.started is not None)
    return count if rebalances >= STORM_REBALANCES else 0


#: What may stand between the rebalances of a storm.
_CALM: Final = frozenset(
    kind.value for kind in (Kind.MEMBER_SLOW, Kind.STORM, Kind.OFFSETS_EXPIRED, Kind.TOPIC_CHANGED, *_TRIGGERS)
)


def _tell_storm(episodes: list[_Episode]) -> Told:
    events = [event for episode in episodes for event in episode.events]
    starts = [event for event in events if event["type"] == Kind.REBALANCE_STARTED.value]
    causes: Counter[tuple[str, str]] = Counter()
    for start in starts:
        by = start.get("by") or [{}]
        causes[name_of(by[0]), start.get("cause", "")] += 1
    who: Counter[str] = Counter()
    for (name, _), times in causes.items():
        who[name] += times
    parts = []
    for name, times in who.most_common(_MOST_NAMED):
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
    if cause == Kind.MEMBER_JOINED.value:
        remedy = (
            "A member that joins again and again is restarting or loses its session: look at its log. Give members a"
            " group.instance.id, so that a restart within the session costs no rebalance."
        )
    return Told(first["time"], first["generation"], text, remedy, data=[first, last])


def _tell(episode: _Episode) -> list[Told]:
    """An episode in a sentence or two."""
    told = []
    for event in episode.events:
        alone = _ALONE.get(event["type"])
        if alone is not None:
            text, remedy = alone(event)
            told.append(Told(event["time"], event["generation"], text, remedy, data=[event]))
    started = episode.started
    if started is None:
        return told
    text, remedy = _why(episode, started)
    over = episode.of(Kind.REBALANCE_OVER, Kind.GROUP_EMPTY)
    reached = over[-1]["generation"] if over else None
    head = f"Generation {started['generation']} ended: {text}."
    if reached is not None:
        head = f"Generation {reached}: {text}."
    telling = Told(started["time"], started["generation"], head, remedy, data=list(episode.events))
    for part, advice in (_others(episode, started), _phases(episode), _moved(episode)):
        telling.details += part
        telling.remedy = telling.remedy or advice
    told.append(telling)
    return told


def _why(episode: _Episode, started: Event) -> tuple[str, str | None]:
    """What a rebalance was caused by."""
    cause = started.get("cause", "")
    ids = {who.get("member_id") for who in started.get("by") or ()}
    trigger = next(
        (
            event
            for event in reversed(episode.events[: episode.events.index(started)])
            if event["type"] == cause and event.get("member_id") in ids
        ),
        None,
    )
    if trigger is None or cause not in _SENTENCES:
        return str(started.get("reason") or cause).rstrip("."), None
    text, remedy = _SENTENCES[cause](trigger)
    return text, remedy


def _others(episode: _Episode, started: Event) -> tuple[list[str], str | None]:
    """Who else came or went before the generation stood."""
    out = []
    remedy = None
    ids = {who.get("member_id") for who in started.get("by") or ()}
    joined = [event for event in episode.of(Kind.MEMBER_JOINED) if event.get("member_id") not in ids]
    if joined:
        out.append(f"{_names(joined)} joined too.")
    gone = [event for event in episode.of(Kind.MEMBER_LEFT, Kind.MEMBER_EXPIRED) if event.get("member_id") not in ids]
    for event in gone[:_MOST_NAMED]:
        out.append(_capital(_SENTENCES[event["type"]](event)[0]) + ".")
    missing = episode.of(Kind.MEMBER_NOT_REJOINED)
    for event in missing[:_MOST_NAMED]:
        out.append(
            f"{name_of(event)} did not rejoin within {_ms(event['waited_ms'])} and was removed;"
            f" it was last heard of {_ms(event['heard_ago_ms'])} before."
        )
        remedy = (
            "A member that heartbeats but does not rejoin is busy with its records: fetch fewer at a time"
            " (max.poll.records) or raise max.poll.interval.ms, which is also the time a rebalance waits."
        )
    for event in episode.of(Kind.LEADER_CHANGED):
        out.append(f"The leader {event['old']} had not rejoined; {event['new']} leads.")
    if episode.of(Kind.JOIN_PHASE_STUCK):
        out.append("Nobody rejoined in time, so the group waited again.")
        remedy = remedy or "Static members keep their place while they are away: remove those that are gone for good."
    return out, remedy


def _phases(episode: _Episode) -> tuple[list[str], str | None]:
    """How long it took, and whom it waited for."""
    over = episode.of(Kind.REBALANCE_OVER)
    if not over:
        return [], None
    joined, synced = over[-1]["join_took_ms"], over[-1]["sync_took_ms"]
    out = [f"Joining took {_ms(joined)}, assigning {_ms(synced)}; {over[-1]['members']} members."]
    remedy = None
    slow = [each for event in episode.of(Kind.JOIN_PHASE_OVER) for each in event.get("joined_after", ())]
    if slow and slow[0]["after_ms"] > _SLOW_MS and not episode.of(Kind.MEMBER_JOINED):
        out.append(f"{name_of(slow[0])} was the last to rejoin, after {_ms(slow[0]['after_ms'])}; the others waited.")
        remedy = (
            "A member rejoins when it polls next: shorten what it does between two polls (max.poll.records), or use"
            " the cooperative-sticky assignor, with which the others go on consuming meanwhile."
        )
    return out, remedy


def _moved(episode: _Episode) -> tuple[list[str], str | None]:
    """Who gained and lost what."""
    out = []
    for event in episode.of(Kind.REBALANCE_OVER)[-1:]:
        moved = event.get("moves", ())
        for move in moved[: 2 * _MOST_NAMED]:
            parts = [f"{verb} {_partitions(move[verb])}" for verb in ("gained", "lost") if move.get(verb)]
            out.append(f"{name_of(move)} {' and '.join(parts)}.")
        if len(moved) > 2 * _MOST_NAMED:
            out.append(f"{len(moved) - 2 * _MOST_NAMED} more members gained or lost partitions.")
        if "moves" in event and not moved:
            out.append("No partition changed its owner.")
    return out, None


# One event in words: the sentence without its full stop, and the remedy.

_Words = Callable[[Event], tuple[str, str | None]]


def _joined(event: Event) -> tuple[str, str | None]:
    return f"{name_of(event)} joined{_because(event)}", None


def _replaced(event: Event) -> tuple[str, str | None]:
    return f"static member {name_of(event)} came back under a new member id", None


def _left(event: Event) -> tuple[str, str | None]:
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


def _expired(event: Event) -> tuple[str, str | None]:
    heard, session = event["heard_ago_ms"], event["session_ms"]
    if event.get("newcomer"):
        return f"{name_of(event)} joined for the first time and never took its answer within {_ms(session)}", None
    text = f"{name_of(event)} was last heard of {_ms(heard)} ago, its session is {_ms(session)}"
    return text, (
        "Its process was gone, cut off, or its event loop blocked for that long: raise session.timeout.ms, or move the"
        " work off the loop that sends heartbeats."
    )


def _not_synced(event: Event) -> tuple[str, str | None]:
    text = f"{name_of(event)} joined but did not ask for its partitions within {_ms(event['waited_ms'])}"
    return text, "It stopped in the middle of a rebalance: look at its log around this time."


def _rejoined(event: Event) -> tuple[str, str | None]:
    text = f"{name_of(event)} rejoined with the same topics{_because(event)}"
    return text, "Cooperative rebalancing works like this: who gave partitions up rejoins, so that others get them."


def _changed(event: Event) -> tuple[str, str | None]:
    parts = [f"{verb} {', '.join(event[verb][:_MOST_NAMED])}" for verb in ("added", "removed") if event.get(verb)]
    what = f": {' and '.join(parts)}" if parts else ", or what it sends along with it"
    return f"{name_of(event)} changed its subscription{what}", None


def _leader(event: Event) -> tuple[str, str | None]:
    text = f"the leader {name_of(event)} asked for a new assignment{_because(event)}"
    return text, "Leaders do so when a topic appears or gains partitions; see what happened to topics just before."


def _unwritten(event: Event) -> tuple[str, str | None]:
    text = f"the coordinator could not write the group's record ({event.get('error')})"
    return text, "Look at the health of __consumer_offsets: its replicas and its disk."


_SENTENCES: Final[dict[str, _Words]] = {
    Kind.MEMBER_JOINED.value: _joined,
    Kind.MEMBER_REPLACED.value: _replaced,
    Kind.MEMBER_LEFT.value: _left,
    Kind.MEMBER_EXPIRED.value: _expired,
    Kind.MEMBER_NOT_SYNCED.value: _not_synced,
    Kind.MEMBER_REJOINED.value: _rejoined,
    Kind.SUBSCRIPTION_CHANGED.value: _changed,
    Kind.LEADER_REJOINED.value: _leader,
    Kind.PERSIST_FAILED.value: _unwritten,
}
_CAUSES: Final[dict[str, str]] = {
    Kind.MEMBER_JOINED.value: "joined",
    Kind.MEMBER_REPLACED.value: "came back",
    Kind.MEMBER_LEFT.value: "left",
    Kind.MEMBER_EXPIRED.value: "missed its session",
    Kind.MEMBER_NOT_SYNCED.value: "did not sync",
    Kind.MEMBER_REJOINED.value: "rejoined",
    Kind.SUBSCRIPTION_CHANGED.value: "changed its subscription",
    Kind.LEADER_REJOINED.value: "asked for a new assignment",
    Kind.PERSIST_FAILED.value: "could not be written",
}


def _slow(event: Event) -> tuple[str, str | None]:
    text = (
        f"{name_of(event)} was silent for {_ms(event['heard_ago_ms'])}, its session is {_ms(event['session_ms'])}:"
        " it is close to being removed."
    )
    return text, "Its heartbeats are late: lower heartbeat.interval.ms, raise session.timeout.ms, or unblock its loop."


def _topic(event: Event) -> tuple[str, str | None]:
    if event.get("before"):
        return f"Topic {event['topic']} grew from {event['before']} to {event['partitions']} partitions.", None
    return f"Topic {event['topic']} appeared with {event['partitions']} partitions.", None


def _loaded(event: Event) -> tuple[str, str | None]:
    text = f"The coordinator of the group came to this broker: {event['members']} members, no rebalance for that."
    return text, None


def _deleted(event: Event) -> tuple[str, str | None]:
    how = "expired" if event.get("expired") else "was deleted"
    return f"The group {how}, with {event['offsets']} offsets.", None


def _expired_offsets(event: Event) -> tuple[str, str | None]:
    return f"{event['offsets']} offsets expired.", "offsets.retention.minutes says how long they are kept."


def _refused(event: Event) -> tuple[str, str | None]:
    text = f"{name_of(event)} rejoined when the group was full ({event['max_size']} members) and was put out."
    return text, "Raise group.max.size, or start fewer members."


_ALONE: Final[dict[str, _Words]] = {
    Kind.MEMBER_SLOW.value: _slow,
    Kind.TOPIC_CHANGED.value: _topic,
    Kind.GROUP_LOADED.value: _loaded,
    Kind.GROUP_DELETED.value: _deleted,
    Kind.OFFSETS_EXPIRED.value: _expired_offsets,
    Kind.MEMBER_REFUSED.value: _refused,
}


def _because(event: Event) -> str:
    reason = str(event.get("client_reason") or "")
    return "" if reason in ("", "not provided") else f' ("{reason}")'


def _names(events: list[Event]) -> str:
    names = [name_of(event) for event in events[:_MOST_NAMED]]
    if len(events) > _MOST_NAMED:
        names.append(f"{len(events) - _MOST_NAMED} more")
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
