"""Everything that a page draws and says about a group, from its events. Pure.

The lanes, bands and gaps are those of :mod:`~barnabas_explain.timeline`, the sentences those of
:mod:`~barnabas_explain.explain`. This module adds what belongs to a band when a reader selects it: its
cause in words, the members that caused it with host and reason, what moved, the pauses of partitions, the sentences.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas_explain.catalog import (
    NOT_PROVIDED,
    Caused,
    GroupEvent,
    HistoryGap,
    MemberEvent,
    MemberExpired,
    MemberNotRejoined,
    MemberNotRevoked,
    MemberRevoked,
    MemberRevoking,
    MemberSlow,
    RebalanceOver,
    Started,
    TargetAssigned,
    in_words,
    kind_of,
)
from barnabas_explain.explain import Explanation, explain
from barnabas_explain.members import Member
from barnabas_explain.timeline import Timeline, timeline
from barnabas_explain.unowned import Pauses

#: Bands, pauses, gaps and sentences of a chart; the oldest ones are left out.
_MOST: Final = 1_000
#: Members of which the chart has lanes; the oldest ones that are gone are left out.
_MOST_LANES: Final = 600
#: Characters of a name or a reason: clients choose them, and may choose megabytes.
_MOST_CHARACTERS: Final = 2_000
#: Requests that came so many ms before and after a rebalance are around it.
_AROUND_BEFORE: Final = 10_000
_AROUND_AFTER: Final = 2_000


def chart(events: Sequence[GroupEvent]) -> dict[str, Any]:
    """Make a group's chart, ready for JSON, from its events, oldest first.

    Returns:
        `lanes`, `bands`, `gaps` as in a timeline. A lane has also its `silent` and `revoking` periods; a band `kind`,
        `cause_text`, `reason`, `members`, `moves`, `end` (the start of the next one), `around` (the time from and until
        which requests belong to it; the latter is null if it lasts) and `explanation`, which is an index into
        `explanations`: it has one of its own, also as part of a storm. A gap has its `text`. `pauses` are those of
        :meth:`.Pauses.all_of`, each with the index of its `band`. `more` is whether something was left out because
        there is too much.
    """
    drawn = timeline(events)
    made = drawn.as_data()
    explanations = explain(events, each_of_storms=True)
    bands = made["bands"]
    starts = [at for at, event in enumerate(events) if isinstance(event, Started)]
    starts = starts[len(starts) - len(bands) :]
    of_event = {id(event): at for at, each in enumerate(explanations) for event in each.events}
    before: Mapping[str, Any] | None = None
    for band, at, following in zip(bands, starts, [*starts, None][1:], strict=True):
        # Its trigger is just before its start.
        band.update(_of_band(events[max(at - 20, 0) : at][::-1], events[at:following]))
        band["end"] = None if following is None else events[following].time
        band["around"] = _around(band, before)
        before = band
        band["explanation"] = of_event.get(id(events[at]))
    concluded = Pauses()
    pauses = concluded.all_of(events)
    began = [band["start"] for band in bands]
    for pause in pauses:
        reached = len(bands) if pause["end"] is None else bisect_right(began, pause["end"])
        pause["band"] = reached - 1 if reached else None
    periods = _periods(events)
    for lane in made["lanes"]:
        lane.update(periods.get(lane["member_id"], {"silent": [], "revoking": []}))
    gaps = [each for each in events if isinstance(each, HistoryGap)]
    for gap, event in zip(made["gaps"], gaps[-len(made["gaps"]) or len(gaps) :], strict=True):
        gap["text"] = event.sentence().text
    made["gaps"] += _left_out(drawn, concluded, events)
    return _bounded(made["lanes"], bands, pauses, made["gaps"], explanations)


def _left_out(drawn: Timeline, concluded: Pauses, events: Sequence[GroupEvent]) -> list[dict[str, Any]]:
    """Gaps for what is not drawn because there is too much of it."""
    found = []
    if drawn.owned_from is not None:
        found.append((drawn.owned_from, "before this, it is not drawn what members owned"))
    if drawn.owned_until is not None:
        found.append((drawn.owned_until, "from here on, it is not drawn what members owned"))
    if concluded.exhausted:
        found.append((events[-1].time, "not all pauses of partitions are drawn"))
    return [
        {"time": time, "generation": -1, "gap": "too_many", "text": f"Gap: {text}: there is too much of it."}
        for time, text in found
    ]


def _bounded(
    lanes: list[dict[str, Any]],
    bands: list[dict[str, Any]],
    pauses: list[dict[str, Any]],
    gaps: list[dict[str, Any]],
    explanations: list[Explanation],
) -> dict[str, Any]:
    """The newest of each, with indexes that fit; and no text longer than a page can show."""
    first_band, first_text = max(len(bands) - _MOST, 0), max(len(explanations) - _MOST, 0)
    gone = [lane for lane in lanes if lane["end"] is not None]
    dropped = {id(lane) for lane in gone[: max(len(lanes) - _MOST_LANES, 0)]}
    shown = [lane for lane in lanes if id(lane) not in dropped]
    kept = [each for each in pauses if each["band"] is None or each["band"] >= first_band][-2 * _MOST :]
    for band in bands:
        if band["explanation"] is not None:
            at = band["explanation"] - first_text
            band["explanation"] = at if at >= 0 else None
    for pause in kept:
        if pause["band"] is not None:
            pause["band"] -= first_band
    more = bool(first_band or first_text or dropped or len(kept) < len(pauses) or len(gaps) > _MOST)
    whole = {
        "lanes": shown,
        "bands": bands[first_band:],
        "pauses": kept,
        "gaps": gaps[-_MOST:],
        "explanations": [
            {
                "time": each.time,
                "generation": each.generation,
                "text": each.text,
                "remedy": each.remedy,
                "details": each.details,
            }
            for each in explanations[first_text:]
        ],
        "more": more,
    }
    short: dict[str, Any] = _short(whole)
    return short


def _short(value: Any) -> Any:
    """A value in which no text is longer than :data:`_MOST_CHARACTERS`."""
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARACTERS else value[:_MOST_CHARACTERS] + "…"
    if isinstance(value, dict):
        return {_short(name): _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return value


def _of_band(before: Sequence[GroupEvent], since: Sequence[GroupEvent]) -> dict[str, Any]:
    """The further fields of a band: `before` are events before it, the newest first, `since` begins with its start."""
    start = since[0]
    cause, by, ids = ("", (), set()) if not isinstance(start, Caused) else (start.cause, start.by or (), start.by_ids())
    causes = (event for event in (*before, *since) if event.type == cause)
    trigger = next(
        (each for each in causes if not ids or (isinstance(each, MemberEvent) and each.member.member_id in ids)), None
    )
    reason = (trigger.client_reason if isinstance(trigger, MemberEvent) else "") or ""
    moves = [
        {**_member(move.member), "gained": move.gained, "lost": move.lost}
        for event in since
        if isinstance(event, RebalanceOver | TargetAssigned)
        for move in event.moves or ()
    ]
    return {
        "kind": kind_of(cause),
        "cause_text": in_words(cause),
        "reason": "" if reason == NOT_PROVIDED else reason,
        "members": [_member(member) for member in by],
        "moves": moves,
    }


def _member(member: Member) -> dict[str, Any]:
    return {**member._asdict(), "name": member.name}


def _around(band: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[int | None]:
    """From when and until when requests are around a rebalance. A request is around one rebalance at most."""
    start, end, assigned = band["start"], band["end"], band["assigned"]
    since = start - _AROUND_BEFORE
    if before is not None:
        over = before["around"][1]
        since = start if over is None else min(max(since, over + 1), start)
    ends = [] if end is None else [max(end - 1, start)]
    if assigned is not None:
        ends.append(assigned + _AROUND_AFTER)
    return [since, min(ends, default=None)]


def _periods(events: Sequence[GroupEvent]) -> dict[str, dict[str, list[dict[str, int | None]]]]:
    """When members sent nothing, and when they had partitions to revoke; by member id."""
    found: dict[str, dict[str, list[dict[str, int | None]]]] = {}
    for event in events:
        if not isinstance(event, MemberEvent):
            continue
        time = event.time
        of = found.setdefault(str(event.member.member_id), {"silent": [], "revoking": []})
        match event:
            case MemberSlow():
                of["silent"].append({"start": time - round(event.heard_ago_ms), "end": time})
            case MemberExpired() | MemberNotRejoined():
                start = time - round(event.heard_ago_ms)
                if of["silent"] and (of["silent"][-1]["end"] or 0) >= start:
                    of["silent"][-1]["end"] = time  # the silence that was reported before
                else:
                    of["silent"].append({"start": start, "end": time})
            case MemberRevoking():
                of["revoking"].append({"start": time, "end": None})
            case MemberRevoked() | MemberNotRevoked() if of["revoking"]:
                of["revoking"][-1]["end"] = time
    return found
