"""Explains a group's events in sentences, with a remedy where one is known. Pure.

The events are those of ``__group_events`` (:mod:`~barnabas_explain.records`), in their order, or rebuilt
ones (:mod:`~barnabas_explain.rebuild`), which lack what is not recorded. They are cut into rebalances,
each with the events that led to it; a rebalance storm gets one explanation.

The sentence about one event is in its class (:mod:`~barnabas_explain.catalog`); here is what several events say
together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from barnabas_explain import words
from barnabas_explain.catalog import (
    DOES_NOT_POLL,
    MAYBE_SELDOM,
    NOT_RECORDED,
    OTHERS_WAIT,
    REJOINS_AT_POLL,
    SLOW_MS,
    AbortedRecordsRead,
    AssignorFailed,
    BrokerNotReached,
    Caused,
    CommitsBeyondEnd,
    CommitsLastRecord,
    CommitsOften,
    CommitsRefused,
    CommitsWentBack,
    CoordinatorSought,
    Departure,
    EpochBumped,
    FetchDenied,
    FetchesWaited,
    FetchOutOfRange,
    GroupDeleted,
    GroupDowngraded,
    GroupEmpty,
    GroupEvent,
    GroupLoaded,
    GroupReconciled,
    GroupUpgraded,
    HistoryBegan,
    HistoryGap,
    JoinPhaseOver,
    JoinPhaseStuck,
    JoinRefused,
    LagGrows,
    LeaderChanged,
    LeaderRejoined,
    MemberAway,
    MemberBeganLate,
    MemberDisconnected,
    MemberEvent,
    MemberExpired,
    MemberGone,
    MemberJoined,
    MemberLeft,
    MemberNotRejoined,
    MemberNotSynced,
    MemberReconnected,
    MemberRejoined,
    MemberReplaced,
    MemberRevoked,
    MemberRevoking,
    MemberRewound,
    MemberSkipped,
    MemberSlow,
    MemberStillRevoking,
    NothingCommitted,
    NothingFetched,
    OffsetsAltered,
    OffsetsCommitted,
    OffsetsExpired,
    OffsetsStable,
    OffsetsStuck,
    OffsetsUnstable,
    PersistFailed,
    RebalanceOver,
    RebalanceStarted,
    RebalanceStorm,
    RecordsAborted,
    RegexRefused,
    RegexResolved,
    RejoinAwaited,
    SessionRefused,
    ShareOffsetsAltered,
    SharePartitionsOpened,
    ShareRecords,
    Started,
    SubscriptionChanged,
    TopicChanged,
    TopicDeleted,
    in_words,
    pauses_in_words,
)
from barnabas_explain.deployments import find_deployment
from barnabas_explain.findings import (
    ALONE,
    CONSUMER_LOOP,
    CONSUMER_PER_CALL,
    CONSUMERS_AT_ONCE,
    CONSUMERS_NOT_CLOSED,
    CRASH_LOOP,
    FENCING,
    GROUP_DELETED,
    NEW_INSTANCE,
    OF_RUNS,
    OVERLAPPING_RUNS,
    RESTART_LOOP,
    RESTARTED,
    RUNS_BEHIND,
    RUNS_UNCOMMITTED,
    STOPPED,
    SUBSCRIBE_LOOP,
    SUBSCRIBES_IN_TURN,
    TOPICS_COME_AND_GO,
    Finding,
    Findings,
    colliding,
    distinct,
    find,
)
from barnabas_explain.folding import TOGETHER_MS, Recorded, fold
from barnabas_explain.members import MOST_MEMBERS, LateMember, Member, Position, is_default
from barnabas_explain.records import decode_event, record_of
from barnabas_explain.rejoins import GOES_ON, HeardLate, heard_late, hears_late, held_up, late_members
from barnabas_explain.spelling import speller
from barnabas_explain.storms import STORM_REBALANCES, STORM_SECONDS
from barnabas_explain.words import MAX_NAMED, Told, count, ms

#: The kinds of explanations of several rebalances: a storm; members that were replaced one by one.
STORM: Final = "storm"
DEPLOYMENT: Final = "deployment"

#: Events before a change among which its cause is looked for.
_LOOK_BACK: Final = 1_000
#: A member that joins so long after its coordinator has moved has another reason.
_AFTER_LOAD_MS: Final = 120_000

E = TypeVar("E", bound=GroupEvent)


@dataclass(slots=True)
class Explanation:
    """An explanation of one or more events.

    Attributes:
        time: when they happened, in ms since 1970.
        generation: the group's generation before them.
        text: what happened.
        remedy: what to do about it, if that is known.
        details: further sentences.
        events: the events.
        cause: the finding about its cause, if there is one.
        kind: :data:`STORM` or :data:`DEPLOYMENT`; None for any other one.
    """

    time: int
    generation: int
    text: str
    remedy: str | None = None
    details: list[str] = field(default_factory=list)
    events: list[GroupEvent] = field(default_factory=list)
    cause: Finding | None = None
    kind: str | None = None

    def as_data(self) -> "ExplanationData":
        """The explanation, ready for JSON."""
        return {
            "time": self.time,
            "generation": self.generation,
            "text": self.text,
            "remedy": self.remedy,
            "details": self.details,
            "data": [record_of(event) for event in self.events],
        }


#: An explanation as data: :meth:`Explanation.as_data`. Those of transactions have the same fields.
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

    events: list[GroupEvent] = field(default_factory=list)

    def of(self, *types: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, types)]

    @property
    def started(self) -> RebalanceStarted | None:
        return next(iter(self.of(RebalanceStarted)), None)


def explain(
    events: Iterable[GroupEvent],
    *,
    since: int | None = None,
    generation: int | None = None,
    each_of_storms: bool = False,
) -> list[Explanation]:
    """Explain what happened to a group.

    Args:
        events: of one group, oldest first.
        since: only what happened at or after this time, in ms since 1970.
        generation: only the rebalance that led to this generation.
        each_of_storms: whether each rebalance of a storm is explained, too, after the storm.
    """
    everything, recorded = fold(events, -inf if since is None else since)
    names = colliding(everything)
    given = everything
    if names:
        everything = [distinct(event, names) for event in everything]
    until = {id(event): each for event, each in zip(everything, recorded, strict=True) if each.times > 1}
    findings = find(everything)
    epochs = [
        *_explain_migrations(everything, findings, since, generation),
        *_explain_epochs(everything, findings, since, generation),
        *_explain_records(everything, since, generation),
    ]
    if generation is None:
        epochs = _with_epoch_storms(epochs, each_of_storms)
    told = _topics_of_epochs(everything)
    rebalances = [
        rebalance
        for rebalance in _rebalances(_of_rebalances(event for event in everything if id(event) not in told))
        if (since is None or rebalance.events[-1].time >= since)
        and (generation is None or generation in _generations(rebalance))
    ]
    explanations: list[Explanation] = []
    loads = _loads(everything) if generation is None else []
    rebalances = [rebalance for rebalance in rebalances if not any(load.takes(rebalance) for load in loads)]
    storms = _storms(rebalances, findings)
    at = 0
    while at < len(rebalances):
        length = storms.get(at, 0)
        if length:
            storm, others = _explain_storm(rebalances[at : at + length], findings)
            explanations.append(storm)
            if each_of_storms:
                others = rebalances[at : at + length]
            explained = [each for rebalance in others for each in _explain_rebalance(rebalance, findings)]
            at += length
        else:
            explained = _explain_rebalance(rebalances[at], findings)
            at += 1
        explanations.extend(each for each in explained if since is None or each.events[-1].time >= since)
    for load in loads:
        load.tell(explanations)
    if epochs:
        explanations = sorted([*explanations, *epochs], key=lambda each: each.time)
    if generation is None and not each_of_storms:
        heard = heard_late(everything, since or 0)
        explanations = _with_lag(_folded(explanations, heard))
        if heard is not None:
            for each in explanations:
                each.remedy = each.remedy and each.remedy.replace(MAYBE_SELDOM, heard.remedy)
        _tell_remedies_once(explanations)
    spelled = speller(everything)
    for each in explanations:
        _tell_until(each, until)
        each.remedy = spelled(each.remedy)
    if explanations and names:
        explanations[-1].details += _hint(names)
        as_given = {id(changed): event for changed, event in zip(everything, given, strict=True)}
        for each in explanations:
            each.events = [as_given.get(id(event), event) for event in each.events]
    return explanations


def _tell_remedies_once(explanations: Iterable[Explanation]) -> None:
    """Leave out the remedy of an explanation of refused commits or deleted records if a later one has the same."""
    later: dict[tuple[str | None, str], Explanation] = {}
    for each in explanations:
        event = each.events[0] if each.events else None
        about = CommitsRefused | FetchOutOfRange | NothingCommitted | OffsetsStuck
        if isinstance(event, about) and each.remedy is not None:
            key = event.member.common_name, each.remedy
            if key in later:
                later[key].remedy = None
            later[key] = each


def _tell_until(told: Explanation, until: Mapping[int, Recorded]) -> None:
    """Tell of one event that is made of several when the last one was: its figures are of then, its time is not."""
    last = until.get(id(told.events[0])) if len(told.events) == 1 else None
    if last is not None and isinstance(told.events[0], FetchOutOfRange) and told.events[0].left_ms is not None:
        return  # Its sentence says for how long.
    if last is not None and last.until - told.time >= SLOW_MS and not isinstance(told.events[0], MemberSlow):
        told.details.append(f"This was recorded {words.times(last.times)} until {words.clock(last.until)}.")


#: The findings that have caused several rebalances, and have one explanation.
_LOOPS: Final = {
    CRASH_LOOP: "Crash loop",
    RESTART_LOOP: "Restart loop",
    ALONE: "Runs",
    RUNS_UNCOMMITTED: "Runs",
    RUNS_BEHIND: "Runs",
    GROUP_DELETED: "Runs",
    CONSUMER_LOOP: "New consumers",
    OVERLAPPING_RUNS: "Runs that overlap",
    CONSUMERS_AT_ONCE: "Many consumers",
    CONSUMER_PER_CALL: "Consumer for each call",
    CONSUMERS_NOT_CLOSED: "Consumers that are not closed",
    SUBSCRIBE_LOOP: "New assignments again and again",
    TOPICS_COME_AND_GO: "Topics that come and go",
    SUBSCRIBES_IN_TURN: "Subscriptions in turn",
    NEW_INSTANCE: "New static members again and again",
    FENCING: "Fenced again and again",
}


def _folded(explanations: list[Explanation], heard: HeardLate | None) -> list[Explanation]:
    """Explanations without those that say again that the same program crashes again and again.

    Args:
        explanations: oldest first.
        heard: the members that heard late of rebalances again and again.
    """
    folded: list[Explanation] = []
    loops: dict[int, Explanation] = {}
    for each in explanations:
        finding = each.cause
        if finding is None or finding.kind not in _LOOPS:
            folded.append(each)
        elif id(finding) not in loops:
            each.text, each.remedy = f"{_LOOPS[finding.kind]}: {finding.text}.", finding.remedy
            loops[id(finding)] = each
            folded.append(each)
        else:
            loop = loops[id(finding)]
            loop.events += each.events
            said = f"{finding.text}."
            details = [detail for detail in each.details if detail != said]
            loop.details = [f"It has caused what happened until {words.clock(each.time)}; then:", *details]
    for loop in loops.values():
        late = [f"{late.text}." for late in late_members(loop.events)]
        if heard is not None and heard_late(loop.events, often=1) is not None:
            late.append(heard.text)
            loop.remedy = f"{loop.remedy} {heard.remedy}" if loop.remedy else heard.remedy
        loop.details = [*late, *loop.details]
    return folded


def _with_lag(explanations: list[Explanation]) -> list[Explanation]:
    """Explanations without those of lag that grows only where members do not get on: their own explanations have it."""
    stuck: dict[tuple[str | None, Position], Explanation] = {}
    for each in explanations:
        for event in each.events:
            if isinstance(event, OffsetsStuck):
                stuck.update(((event.member.member_id, position), each) for position in event.positions)
            elif isinstance(event, BrokerNotReached):
                stuck.update(
                    ((at.member.member_id, position), each) for at in event.behind for position in at.positions
                )
    told = []
    for each in explanations:
        event = each.events[0]
        behind = event.behind if isinstance(event, LagGrows) else None
        found = [stuck.get((at.member.member_id, position)) for at in behind or () for position in at.positions]
        if isinstance(event, LagGrows) and found and found[0] is not None and None not in found:
            found[0].details.append(f"Meanwhile {event.clause().text}.")
            found[0].events.append(event)
        else:
            told.append(each)
    return told


def _hint(names: set[tuple[str | None, str | None]]) -> list[str]:
    """Hints about members that have the same name."""
    ids = sorted({client_id for client_id, _ in names if client_id})
    if not ids:
        return []
    default, one = all(map(is_default, ids)), len(ids) == 1
    chosen = f", which {'its library has' if one else 'their libraries have'} chosen" if default else ""
    return [
        f"Several members have the client {'id' if one else 'ids'} {words.listed(ids)}{chosen}, so that the end of the"
        f" member id stands after {'it' if one else 'each'}: set client.id to tell them apart."
    ]


class _Load:
    """A broker became the coordinator, and what followed from that: members that joined again, with new member ids.

    Clients do so if they have been without a coordinator for longer than their session. The members that they were are
    removed when their sessions end here, without having sent a request.

    Args:
        event: the load.
        members: the members before it, as far as they are known.
    """

    def __init__(self, event: GroupLoaded, members: Iterable[Member]) -> None:
        self.event = event
        #: How many members each program had that have not joined again.
        self._before = Counter(member[1:] for member in members)
        self._again: list[Member] = []
        self._removed: list[Member] = []
        self._follow: set[int] = set()
        self._rebalances: list[_Rebalance] = []

    def add(self, event: GroupEvent) -> None:
        """Look whether an event follows from the load."""
        if not isinstance(event, MemberEvent) or event.time - self.event.time > _AFTER_LOAD_MS:
            return
        member = event.member
        if isinstance(event, MemberJoined):
            if self._before[member[1:]]:
                self._before[member[1:]] -= 1
                self._again.append(member)
                self._follow.add(id(event))
        elif isinstance(event, MemberSlow) and event.connection is None:
            self._follow.add(id(event))
        elif isinstance(event, MemberExpired | MemberNotRejoined) and event.connection is None:
            # This coordinator has got no request of it.
            self._removed.append(member)
            self._follow.add(id(event))

    def takes(self, rebalance: "_Rebalance") -> bool:
        """Whether all that led to a rebalance follows from the load."""
        about = rebalance.of(*_TRIGGERS, MemberNotRejoined, MemberSlow)
        if not self._again or not about or not all(id(event) in self._follow for event in about):
            return False
        self._rebalances.append(rebalance)
        return True

    def tell(self, explanations: list[Explanation]) -> None:
        """Tell what followed, in the explanation of the load."""
        if not self._rebalances:
            return
        told = next((each for each in explanations if each.events[0] is self.event), None)
        if told is None:
            return
        over = [each for rebalance in self._rebalances for each in rebalance.of(RebalanceOver)]
        told.text = (
            f"The group's coordinator moved to this broker, or started again: {count(self.event.members, 'member')}"
        )
        told.text += f", and {words.names_of(self._again)} joined again, with"
        told.text += " a new member id." if len(self._again) == 1 else " new member ids."
        told.events += [event for rebalance in self._rebalances for event in rebalance.events]
        if self._removed:
            was = "was" if len(self._removed) == 1 else "were"
            told.details.append(
                f"{count(len(self._removed), 'old member id')} {was} removed: this coordinator got no request with"
                f" {'it' if len(self._removed) == 1 else 'them'} within the session."
            )
        again = Counter(member[1:] for member in self._again)
        missing: list[Member] = []
        for member in self._removed:
            if again[member[1:]]:
                again[member[1:]] -= 1
            else:
                missing.append(member)
        if missing:
            has = "has" if len(missing) == 1 else "have"
            told.details.append(
                f"{words.names_of(missing)} {has} not joined again within {ms(_AFTER_LOAD_MS)}: stopped, crashed or cut"
                " off in the meantime."
            )
        if over:
            took = ms(over[-1].time - self.event.time)
            told.details.append(
                f"{count(len(over), 'rebalance')} until {took} after that; {count(over[-1].members, 'member')}."
            )
        told.remedy = (
            "Clients join again if they are without a coordinator for longer than their session.timeout.ms: raise it"
            " above the time that a restart takes."
        )


def _loads(events: Iterable[GroupEvent]) -> list[_Load]:
    """The loads of a group, each with what followed from it."""
    loads: list[_Load] = []
    members: dict[str | None, Member] = {}
    for event in events:
        if isinstance(event, GroupLoaded):
            loads.append(_Load(event, members.values()))
        elif loads:
            loads[-1].add(event)
        if isinstance(event, MemberJoined | MemberReplaced):
            members[event.member.member_id] = event.member
        if isinstance(event, MemberReplaced):
            members.pop(event.old_member_id, None)
        elif isinstance(event, Departure):
            members.pop(event.member.member_id, None)
    return loads


#: Events of members of both protocols. They have no part in a rebalance while the group has the consumer protocol.
_OF_BOTH: Final = (
    MemberJoined,
    MemberReplaced,
    MemberLeft,
    MemberExpired,
    MemberNotRejoined,
    MemberNotSynced,
    SubscriptionChanged,
)


def _of_rebalances(events: Iterable[GroupEvent]) -> Iterator[GroupEvent]:
    """The events that are not of epochs: an upgrade ends a rebalance, and there is none until the downgrade."""
    upgraded = False
    for event in events:
        if isinstance(event, GroupUpgraded):
            upgraded = True
        elif isinstance(event, GroupDowngraded):
            upgraded = False
        if not event.of_epochs and not (upgraded and isinstance(event, _OF_BOTH)):
            yield event


def _explain_migrations(
    events: list[GroupEvent], findings: Findings, since: int | None, generation: int | None
) -> list[Explanation]:
    """Explain each upgrade and each downgrade as one story: what has caused it, and how the members followed."""
    explanations: list[Explanation] = []
    story: Explanation | None = None
    classic = 0
    for at, event in enumerate(events):
        if isinstance(event, GroupUpgraded):
            classic = event.members
            text = f"Upgraded to the consumer protocol: {words.names_of(event.by)} joined with it"
            if classic:
                text += f", and {count(classic, 'member')} went on with the classic protocol"
            story = Explanation(event.time, event.generation, f"{text}.", events=[event])
            story.remedy = "To finish the upgrade, restart the other members with group.protocol=consumer."
            explanations.append(story)
        elif isinstance(event, GroupDowngraded):
            cause, _ = _cause_of_epoch(event, _before(events, at), findings)
            went_on = f"{count(event.members, 'member')} of the classic protocol went on"
            text = f"Downgraded to the classic protocol: {cause}; {went_on} and rebalanced."
            explanations.append(Explanation(event.time, event.generation, text, events=[event]))
            if story is not None:
                story.details.append(f"After {ms(event.time - story.time)}: the group was downgraded again.")
                story.remedy = None
                story = None
        elif (
            story is not None
            and isinstance(event, EpochBumped | MemberReplaced)
            and event.classic not in (None, classic)
        ):
            classic, members = event.classic or 0, count(event.members or 0, "member")
            if isinstance(event, MemberReplaced):
                cause, _ = event.clause()
            else:
                cause, _ = _cause_of_epoch(event, _before(events, at), findings)
            left = f"{classic} of {members} {'uses' if classic == 1 else 'use'} the classic protocol"
            if not classic:
                left = f"the upgrade is complete, with {members} of the consumer protocol"
            story.details.append(f"After {ms(event.time - story.time)}: {cause}; {left}.")
            story.events.append(event)
            if not classic:
                story.remedy = None
                story = None
    return _selected(explanations, since, generation)


def _explain_epochs(
    events: list[GroupEvent], findings: Findings, since: int | None, generation: int | None
) -> list[Explanation]:
    """Explain each epoch of a group of the consumer protocol: its cause, its target, and for whom it waited."""
    explanations: list[Explanation] = []
    current: Explanation | None = None
    #: The events that are the cause of an epoch, whose explanation says so.
    causes: set[int] = set()
    gone: set[str | None] = set()
    for at, event in enumerate(events):
        if isinstance(event, Departure):
            gone.add(event.member.member_id)
        if isinstance(event, RegexResolved) and event.matches_nothing and not _leads_to_epoch(events, at):
            explanations.append(Explanation(event.time, event.generation, *event.alone(), events=[event]))
        if not event.of_epochs or isinstance(event, ShareRecords):
            continue
        alone = event.sentence()
        if isinstance(event, EpochBumped):
            text, remedy = _cause_of_epoch(event, _before(events, at), findings)
            text = f"Epoch {event.generation}: {text}."
            current = Explanation(event.time, event.generation, text, remedy, events=[event])
            trigger = _trigger_of(event, reversed(_before(events, at)))
            if trigger is not None:
                current.cause = findings.about(trigger)
                causes.add(id(trigger))
            current.details += _evidence(_triggers_of_epoch(events, at))
            explanations.append(current)
        elif isinstance(event, MemberAway) and findings.about(event) is not None:
            continue  # It is one of its runs.
        elif alone is not None:
            # It may come before the first epoch.
            explanations.append(Explanation(event.time, event.generation, *alone, events=[event]))
        elif current is not None:
            current.events.append(event)
            if isinstance(event, AssignorFailed):
                current.remedy = "Look at the assignor's error; the next heartbeats try again, once a second."
    for each in explanations:
        _tell_new_topics(each, findings)
        _tell_progress(each, gone)
    return _selected([each for each in explanations if id(each.events[0]) not in causes], since, generation)


def _leads_to_epoch(events: list[GroupEvent], at: int) -> bool:
    """Whether a resolved expression is the cause of an epoch, which follows, after others of the same search."""
    after = next((event for event in events[at:] if not isinstance(event, RegexResolved)), None)
    return isinstance(after, EpochBumped) and after.cause == RegexResolved.type


def _tell_new_topics(told: Explanation, findings: Findings) -> None:
    """Tell of members that joined which topics they read that no member has read before."""
    started = next((event for event in told.events if isinstance(event, Started)), None)
    if started is None:
        return
    causers = started.by_ids() if started.cause == MemberJoined.type else set()
    joined = {event.member.member_id: event.member for event in told.events if isinstance(event, MemberJoined)}
    for event in told.events:
        of_members = findings.new_topics.get(id(event), {})
        readers = [member_id for member_id in of_members if member_id in causers or member_id in joined]
        topics = sorted({topic for member_id in readers for topic in of_members[member_id]})
        if topics:
            others = [joined[member_id] for member_id in readers if member_id not in causers]
            who = f"{words.names_of(others)} {'reads' if len(others) == 1 else 'read'}" if others else "reads"
            head = told.text.removesuffix(".")
            told.text = f"{head}, and {who} {words.listed(topics)}, which no member read just before."
            told.remedy = (
                "If it is another program: give it a group.id of its own, or each rebalance stops both. If it is a new"
                " version, this is as it should be until all members have it."
            )
            return


def _tell_progress(epoch: Explanation, gone: set[str | None]) -> None:
    """Tell what happened within an epoch, and for which member it waited.

    Args:
        epoch: the explanation of the epoch.
        gone: members that are gone: another explanation says why.
    """
    waits: dict[str | None, MemberStillRevoking | MemberRevoked] = {}
    for event in epoch.events:
        if isinstance(event, MemberStillRevoking | MemberRevoked):
            waits[event.member.member_id] = event
    reconciled = next((event for event in epoch.events if isinstance(event, GroupReconciled)), None)
    for event in epoch.events:
        if isinstance(event, GroupReconciled) and event is not reconciled:
            continue  # A static member is back.
        if isinstance(event, MemberRevoking | MemberRevoked):
            last = waits.get(event.member.member_id)
            if isinstance(last, MemberRevoked) and last.waited_ms < SLOW_MS:
                continue  # It went without a delay.
        if not isinstance(event, MemberStillRevoking) or waits[event.member.member_id] is event:
            epoch.details += event.progress()
    known = [event for each, event in waits.items() if isinstance(event, MemberRevoked) or each not in gone]
    slowest = max(known, key=lambda event: event.waited_ms, default=None)
    if slowest is None or slowest.waited_ms <= SLOW_MS:
        return
    name, which, waited = slowest.name, words.partitions(slowest.partitions), ms(slowest.waited_ms)
    head = epoch.text.removesuffix(".")
    if isinstance(slowest, MemberRevoked):
        epoch.text = f"{head}; it took {waited} because {name} revoked {which} late."
    else:
        epoch.text = f"{head}; it waits because {name} has not revoked {which} {waited} after it was asked to."
    epoch.remedy = epoch.remedy or (
        f"{name} revokes at its next poll, when its rebalance listener has returned: reduce the work between two polls"
        " (max.poll.records), and in the listener."
    )


def _explain_records(events: list[GroupEvent], since: int | None, generation: int | None) -> list[Explanation]:
    """Explain what happened to the records of a share group; what happens again soon is one explanation."""
    explanations: list[Explanation] = []
    newest: dict[tuple[object, ...], tuple[Explanation, ShareRecords]] = {}
    for event in events:
        if not isinstance(event, ShareRecords) or (since is not None and event.time < since):
            continue
        told, joined = newest.get(event.kin(), (None, event))
        if told is None or event.time - told.events[-1].time > TOGETHER_MS:
            told, joined = Explanation(event.time, event.generation, ""), event
            explanations.append(told)
        else:
            joined = joined.joined(event)
        told.events.append(event)
        newest[event.kin()] = told, joined
        told.text, told.remedy = joined.sentence()
    for each in explanations:
        if len(each.events) > 1:
            each.details.append(
                f"This was recorded {words.times(len(each.events))} until {words.clock(each.events[-1].time)}."
            )
    return _selected(explanations, since, generation)


def _selected(explanations: list[Explanation], since: int | None, generation: int | None) -> list[Explanation]:
    """The explanations of what happened at or after `since`, and in `generation`."""
    return [
        each
        for each in explanations
        if (since is None or each.events[-1].time >= since) and (generation is None or each.generation == generation)
    ]


def _before(events: list[GroupEvent], at: int) -> list[GroupEvent]:
    """The events just before one: what caused it is among them."""
    return events[max(at - _LOOK_BACK, 0) : at]


def _triggers_of_epoch(events: list[GroupEvent], at: int) -> list[MemberGone]:
    """The members that were found to be gone just before an epoch."""
    gone = takewhile(lambda event: isinstance(event, MemberGone), map(events.__getitem__, range(at - 1, -1, -1)))
    return [event for event in gone if isinstance(event, MemberGone)][::-1]


def _trigger(caused: Caused, before: Iterable[GroupEvent], findings: Findings) -> Told | None:
    """The sentence about the newest of the events before another one that is its cause."""
    event = _trigger_of(caused, before)
    return None if event is None else findings.clause(event)


def _trigger_of(caused: Caused, before: Iterable[GroupEvent]) -> GroupEvent | None:
    """The newest of the events before another one that is its cause."""
    ids = caused.by_ids()
    for event in before:
        if event.type == caused.cause and (not isinstance(event, MemberEvent) or event.member.member_id in ids):
            return event
    return None


def _cause_of_epoch(bumped: Caused, before: list[GroupEvent], findings: Findings) -> Told:
    """Why the group epoch grew, and the remedy."""
    cause, by = bumped.cause, bumped.by
    if cause == RegexResolved.type:
        # One for each expression with other matches, just before.
        resolved: list[RegexResolved] = []
        for event in reversed(before):
            if not isinstance(event, RegexResolved):
                break
            resolved.insert(0, event)
        told = [*_new_expressions(resolved, before), *(event.clause().text for event in resolved)]
        return Told("; ".join(told) or in_words(cause))
    if cause == NOT_RECORDED:
        return Told("its cause is not recorded")
    if cause == SubscriptionChanged.type and not by:
        # The topics of an expression that a member has changed, and whose successor could not be resolved.
        return Told(f"a member {in_words(cause)}")
    if cause in (SharePartitionsOpened.type, ShareOffsetsAltered.type):
        return _trigger(bumped, reversed(before), findings) or Told(f"the group {in_words(cause)}")
    if cause == TopicChanged.type or not by:
        topics = _changed_topics(_since_last_epoch(before), findings)
        return Told(topics or "a topic that the group subscribes to was created, deleted or has grown")
    others = f", and {count(len(by) - 1, 'more member')}" if len(by) > 1 else ""
    clause = _trigger(bumped, reversed(before), findings)
    if clause is None:
        return Told(f"{by[0].name} {in_words(cause)}{others}")
    return Told(clause.text + others, clause.remedy)


def _since_last_epoch(before: list[GroupEvent]) -> list[GroupEvent]:
    """The events after the last epoch of those before another one."""
    return [*takewhile(lambda event: not isinstance(event, EpochBumped), reversed(before))][::-1]


def _topics_of_epochs(events: list[GroupEvent]) -> set[int]:
    """The identities of the events about topics that are the cause of an epoch, and told with it."""
    told: set[int] = set()
    of_topics: list[int] = []
    for event in events:
        if isinstance(event, TopicChanged | TopicDeleted):
            of_topics.append(id(event))
        elif isinstance(event, EpochBumped):
            if event.cause == TopicChanged.type:
                told.update(of_topics)
            of_topics = []
    return told


def _new_expressions(resolved: list[RegexResolved], before: list[GroupEvent]) -> list[str]:
    """The members that changed to one of these expressions since the last epoch: it had to be resolved first."""
    expressions = {event.regex for event in resolved}
    changes: list[str] = []
    for event in reversed(before):
        if isinstance(event, EpochBumped):
            break
        if isinstance(event, SubscriptionChanged) and event.regex in expressions:
            changes.insert(0, event.clause().text)
    return changes


_ENDS: Final = (RebalanceOver, GroupEmpty, GroupDeleted, GroupLoaded, GroupUpgraded)
#: Events that have an explanation of their own, also during a storm.
_ALONE: Final = (
    AbortedRecordsRead,
    BrokerNotReached,
    CommitsBeyondEnd,
    CommitsLastRecord,
    CommitsOften,
    CommitsRefused,
    CommitsWentBack,
    CoordinatorSought,
    FetchDenied,
    FetchesWaited,
    FetchOutOfRange,
    JoinRefused,
    LagGrows,
    MemberBeganLate,
    MemberRewound,
    MemberSkipped,
    NothingCommitted,
    NothingFetched,
    OffsetsAltered,
    OffsetsExpired,
    OffsetsStuck,
    RecordsAborted,
    RegexRefused,
    SessionRefused,
)
#: Events that say nothing about a rebalance.
_ABOUT_NO_REBALANCE: Final = (
    MemberSlow,
    MemberDisconnected,
    MemberReconnected,
    *_ALONE,
    OffsetsUnstable,
    OffsetsStable,
    OffsetsCommitted,
    HistoryBegan,
    HistoryGap,
)
#: Events that cause a rebalance, as opposed to events during one.
_TRIGGERS: Final = (
    MemberJoined,
    MemberReplaced,
    MemberLeft,
    MemberExpired,
    MemberGone,
    MemberNotSynced,
    MemberRejoined,
    SubscriptionChanged,
    LeaderRejoined,
    PersistFailed,
)
#: Events that may occur between the rebalances of a storm.
_IN_STORMS: Final = (
    MemberSlow,
    MemberDisconnected,
    MemberReconnected,
    RebalanceStorm,
    *_ALONE,
    OffsetsCommitted,
    TopicChanged,
    TopicDeleted,
    *_TRIGGERS,
)


def _rebalances(events: Iterable[GroupEvent]) -> Iterable[_Rebalance]:
    """Cut events into rebalances. One ends when the group is Stable or Empty, or when the next one starts."""
    rebalance = _Rebalance()
    started: GroupEvent | None = None
    for event in events:
        if isinstance(event, RebalanceStarted) and started is not None:
            # The causes of the next rebalance are the last events of this one.
            causes = []
            while (
                isinstance(rebalance.events[-1], (*_TRIGGERS, MemberDisconnected, MemberReconnected))
                and rebalance.events[-1] is not started
            ):
                causes.append(rebalance.events.pop())
            yield rebalance
            rebalance, started = _Rebalance(causes[::-1]), None
        rebalance.events.append(event)
        alone = started is None and isinstance(event, _ABOUT_NO_REBALANCE)
        if started is None and isinstance(event, RebalanceStarted):
            started = event
        if isinstance(event, _ENDS) or (alone and len(rebalance.events) == 1):
            yield rebalance
            rebalance, started = _Rebalance(), None
    if rebalance.events:
        yield rebalance


def _generations(rebalance: _Rebalance) -> set[int]:
    """The generation that a rebalance led to, or in which offsets were committed."""
    if rebalance.started is None and all(isinstance(event, OffsetsCommitted) for event in rebalance.events):
        return {event.generation for event in rebalance.events}
    over = rebalance.of(JoinPhaseOver, RebalanceOver, GroupEmpty, GroupLoaded)
    return {event.generation for event in over} or {event.generation + 1 for event in rebalance.events[-1:]}


def _is_storm(rebalances: Iterable[_Rebalance]) -> bool:
    """Whether so many rebalances began so soon after each other that the broker says so, too."""
    return _are_storm([each.started.time for each in rebalances if each.started is not None])


def _are_storm(times: Sequence[int]) -> bool:
    """Whether so many rebalances that began at these times are a storm."""
    ends = times[STORM_REBALANCES - 1 :]
    return any(last - first <= STORM_SECONDS * 1000 for first, last in zip(times, ends, strict=False))


def _storms(rebalances: list[_Rebalance], findings: Findings) -> dict[int, int]:
    """The number of items of each storm, or deployment, by the index of its first one."""
    found: dict[int, int] = {}
    first = starts = 0
    last: int | None = None
    before = 0

    def end(at: int) -> bool:
        """The items from `first` to before `at` belong together; returns whether they are one explanation."""
        together = rebalances[first:at]
        if starts >= STORM_REBALANCES and (_is_storm(together) or _deployment(together, findings) is not None):
            found[first] = at - first
        return first in found

    for at, rebalance in enumerate(rebalances):
        started = rebalance.started
        if started is None:
            if not all(isinstance(event, _IN_STORMS) for event in rebalance.events):
                end(at)
                first, starts, last = at + 1, 0, None
            continue
        cause = _finding_of(rebalance, started, findings)
        if cause is not None and cause.kind in OF_RUNS:
            end(at)
            first, starts, last = at + 1, 0, None
            continue
        if last is not None and started.time - before > STORM_SECONDS * 1000:
            # What happened between two storms belongs to the second one.
            first = at if end(at) else last + 1
            starts = 0
        last, before = at, started.time
        starts += 1
    end(len(rebalances))
    return found


def _explain_storm(rebalances: list[_Rebalance], findings: Findings) -> tuple[Explanation, list[_Rebalance]]:
    """Explain a storm by its causes, the heaviest first.

    Returns:
        The explanation, and the rebalances that have nothing to do with the storm: what has caused them has caused
        no more than one or two.
    """
    deployed = _deployment(rebalances, findings)
    if deployed is not None:
        return deployed, [_Rebalance([event]) for rebalance in rebalances for event in rebalance.of(*_ALONE)]
    steps = _steps(rebalances, findings)
    causes = [_storm_cause(first, findings) for first, *_ in steps]
    weights = Counter(cause for cause in causes if cause is not None)
    repeated = {cause: times for cause, times in weights.items() if times >= _REPEATED}
    others: list[_Rebalance] = []
    if sum(repeated.values()) >= STORM_REBALANCES:
        parts = list(zip(steps, causes, strict=True))
        others = [each for step, cause in parts if cause is not None and cause not in repeated for each in step]
        steps = [step for step, cause in parts if cause is None or cause in repeated]
    rebalances = [rebalance for step in steps for rebalance in step]
    others += [_Rebalance([event]) for rebalance in rebalances for event in rebalance.of(*_ALONE)]
    events = [event for rebalance in rebalances for event in rebalance.events]
    starts = [event for event in events if isinstance(event, RebalanceStarted)]
    caused = [first for first, *_ in steps]
    told = _of_findings(caused, findings)
    told, stops = _stops(told)
    unexplained = [each.started for each in caused if each.started is not None]
    unexplained = [start for start in unexplained if all(start not in each.starts for each in told)]
    unexplained = [start for start in unexplained if start not in stops]
    counts = _of_counts(unexplained, names_all=not stops)
    found = [_StormPart(len(each.starts), each.finding.short, each.text(len(starts))) for each in told] + counts
    if stops:
        found.append(_of_stops([start.by[0] for start in stops if start.by]))
    first, last = starts[0], starts[-1]
    seconds = max((last.time - first.time) / 1000, 0.001)
    head = f"Rebalance storm: {len(starts)} rebalances within {words.span(seconds)}: "
    text, details = _in_short(head, sorted(found, key=lambda each: -each.weight))
    second_steps = len(rebalances) - len(steps)
    if second_steps:
        details.append(
            f"{second_steps} of them because members of the cooperative assignor rejoined after they had revoked"
            " partitions: the second step of the rebalance before."
        )
    heaviest = max(told, key=lambda each: len(each.starts), default=None)
    if stops and (heaviest is None or len(heaviest.starts) <= len(stops)):
        remedy = _COME_AND_GO
    # What is known counts for more than a guess by the number of events.
    elif heaviest is not None and 2 * len(heaviest.starts) >= max((each.weight for each in counts), default=0):
        remedy = heaviest.finding.remedy or _remedy_of_counts(heaviest.starts, events)
    else:
        remedy = _remedy_of_counts(unexplained, events)
    storm = Explanation(first.time, first.generation, text, remedy, details, events=[first, last], kind=STORM)
    return storm, others


#: The remedy of a storm of programs that are started and stopped.
_COME_AND_GO: Final = (
    "Programs come and go. If an autoscaler starts and stops them: let it wait longer before it changes their"
    " number. If one program makes them, one for each request or connection: let it use one consumer."
)


def _steps(rebalances: Iterable[_Rebalance], findings: Findings) -> list[list[_Rebalance]]:
    """Rebalances, each with the second steps that follow from it: members that had to revoke partitions have rejoined
    (KIP-429)."""
    steps: list[list[_Rebalance]] = []
    for each in rebalances:
        started = each.started
        trigger = None if started is None else _trigger_of(started, reversed(_until(each.events, started)))
        if steps and trigger is not None and id(trigger) in findings.revoked:
            steps[-1].append(each)
        else:
            steps.append([each])
    return steps


def _with_epoch_storms(explanations: list[Explanation], each_of_storms: bool) -> list[Explanation]:
    """Explanations in which the epochs of programs that come and go are one explanation: the same programs have joined
    and were stopped, so that there were as many epochs as there are rebalances in a storm."""
    runs: list[list[Explanation]] = []
    for each in explanations:
        bumped = each.events[0]
        if isinstance(bumped, EpochBumped) and bumped.cause == (MemberLeft if _is_stop(each) else MemberJoined).type:
            if not runs or bumped.time - runs[-1][-1].time > STORM_SECONDS * 1000:
                runs.append([])
            runs[-1].append(each)
    told: dict[int, Explanation] = {}
    within: set[int] = set()
    for run in runs:
        storm = _explain_epoch_storm(run)
        if storm is not None:
            told[id(run[0])] = storm
            within.update(map(id, run))
    out: list[Explanation] = []
    for each in explanations:
        out += [told[id(each)]] if id(each) in told else []
        # A remedy is about that epoch: a member that revoked late, or other topics.
        out += [each] if each_of_storms or id(each) not in within or each.remedy is not None else []
    return out


def _is_stop(epoch: Explanation) -> bool:
    """Whether an epoch began because a program was stopped."""
    return epoch.cause is not None and epoch.cause.kind == STOPPED


def _explain_epoch_storm(epochs: list[Explanation]) -> Explanation | None:
    """Explain epochs because of programs that joined or were stopped; None if they are no storm."""
    if not _are_storm([each.time for each in epochs]):
        return None
    joined: dict[str | None, Member] = {}
    stopped: dict[str | None, Member] = {}
    for each in epochs:
        members = stopped if _is_stop(each) else joined
        for event in each.events[:1]:
            members.update((by.member_id, by) for by in (isinstance(event, EpochBumped) and event.by) or ())
    if len(joined.keys() & stopped.keys()) < _REPEATED:
        return None
    first, last = epochs[0], epochs[-1]
    head = f"Rebalance storm: {len(epochs)} epochs within {words.span(max((last.time - first.time) / 1000, 0.001))}: "
    parts = [_of_stops(list(stopped.values())), _StormPart(len(joined), f"{len(joined)} members joined once each")]
    text, details = _in_short(head, parts)
    events = [first.events[0], last.events[0]]
    return Explanation(first.time, first.generation, text, _COME_AND_GO, details, events=events, kind=STORM)


class _StormPart(NamedTuple):
    """A cause of a storm.

    Attributes:
        weight: the number of its rebalances.
        brief: the cause in a clause.
        full: the same with its evidence; "" if there is none.
    """

    weight: int
    brief: str
    full: str = ""


def _of_stops(members: Sequence[Member]) -> _StormPart:
    """The part of a storm that is because of programs that were stopped."""
    number = len(members)
    full = f"{number} of them because {words.names_of(members)} were stopped, each once"
    return _StormPart(number, f"{number} programs were stopped, each once", full)


def _in_short(head: str, parts: Sequence[_StormPart]) -> tuple[str, list[str]]:
    """The sentence about a storm with its heaviest causes, in a bounded number of words, and the rest as details."""
    told: list[str] = []
    left = _MOST_WORDS - len(head.split())
    for part in parts:
        left -= len(part.brief.split())
        if told and (left < 0 or len(told) == MAX_NAMED):
            break
        told.append(part.brief)
    rest = parts[len(told) :]
    # What is brief begins with a name, which keeps its spelling.
    details = [words.capital(each.full) or each.brief for each in parts if each.full or each in rest][: 2 * MAX_NAMED]
    if rest:
        told.append(f"{len(rest)} more {'cause' if len(rest) == 1 else 'causes'}")
    return f"{head}{'; '.join(told)}.", [f"{each}." for each in details]


def _deployment(rebalances: list[_Rebalance], findings: Findings) -> Explanation | None:
    """The explanation of rebalances in which members were replaced one by one; None if it is a storm."""
    events = [event for rebalance in rebalances for event in rebalance.events]
    found = find_deployment(events, findings)
    if found is None:
        return None
    starts = [event for event in events if isinstance(event, RebalanceStarted)]
    first, last = starts[0], starts[-1]
    text, remedy = found.sentence(len(starts), max(last.time - first.time, 1))
    return Explanation(first.time, first.generation, text, remedy, events=[first, last], kind=DEPLOYMENT)


#: A cause of a storm has caused so many of its rebalances.
_REPEATED: Final = 3
#: Words of the sentence about a storm.
_MOST_WORDS: Final = 45


def _storm_cause(rebalance: _Rebalance, findings: Findings) -> tuple[str, str] | None:
    """Key of the rebalances of a storm that have the same cause; None if there is none."""
    started = rebalance.started
    if started is None or started.inferred:
        return None
    finding = _finding_of(rebalance, started, findings)
    if finding is not None:
        return finding.kind, findings.first(finding.member) or ""
    return "", _causer(started)


def _finding_of(rebalance: _Rebalance, started: RebalanceStarted, findings: Findings) -> Finding | None:
    """The finding about what has caused a rebalance."""
    event = _trigger_of(started, reversed(_until(rebalance.events, started)))
    return None if event is None else findings.about(event)


@dataclass(slots=True)
class _StormCause:
    """Cause of many rebalances of a storm: the worst case of it, and the rebalances."""

    finding: Finding
    starts: list[RebalanceStarted] = field(default_factory=list)
    cases: set[int] = field(default_factory=set)

    def text(self, rebalances: int) -> str:
        """The worst case, how often it happened, and how many of the rebalances it has caused."""
        often = words.times(len(self.cases))
        caused = "all of them" if len(self.starts) == rebalances else f"{len(self.starts)} of them"
        worst = f" ({often}, the worst one)" if len(self.cases) > 1 else ""
        return f"{caused} because {self.finding.text}{worst}"


def _of_findings(rebalances: list[_Rebalance], findings: Findings) -> list[_StormCause]:
    """The causes of a storm that are known, each with its rebalances."""
    found: dict[tuple[str, str], _StormCause] = {}
    for rebalance in rebalances:
        started = rebalance.started
        finding = None if started is None else _finding_of(rebalance, started, findings)
        if started is None or finding is None:
            continue
        cause = found.setdefault((finding.kind, findings.first(finding.member) or ""), _StormCause(finding))
        cause.starts.append(started)
        cause.cases.add(id(finding))
        if (finding.gap_ms or 0) >= (cause.finding.gap_ms or 0):
            cause.finding = finding
    said: dict[str, _StormCause] = {}
    for each in found.values():  # A program whose connection is not known is another one after each join.
        known = said.setdefault(each.finding.short, each)
        if known is not each:
            known.starts += each.starts
            known.cases |= each.cases
    return list(said.values())


def _stops(told: list[_StormCause]) -> tuple[list[_StormCause], list[RebalanceStarted]]:
    """The causes without programs that were stopped once, if these are several; and the rebalances because of them."""
    stopped = [each for each in told if each.finding.kind == STOPPED and len(each.starts) == 1]
    if len(stopped) < _REPEATED:
        return told, []
    return [each for each in told if each not in stopped], [each.starts[0] for each in stopped]


def _of_counts(starts: list[RebalanceStarted], *, names_all: bool) -> list[_StormPart]:
    """How often each member has caused a rebalance of a storm, in words, where nothing more is known.

    Args:
        starts: of the rebalances.
        names_all: whether members that have only joined are named, too.
    """
    causes: Counter[tuple[str, str]] = Counter((_causer(start), start.cause) for start in starts)
    members: Counter[str] = Counter()
    for (name, _), times in causes.items():
        members[name] += times
    parts = []
    joined = [name for name, weight in members.items() if weight == 1 and causes[name, MemberJoined.type]]
    if not names_all and len(joined) > 1:
        parts.append(_StormPart(len(joined), f"{len(joined)} members joined once each"))
        members = Counter({name: weight for name, weight in members.items() if name not in joined})
    for name, weight in members.most_common():
        how = ", ".join(
            f"{in_words(cause)} {words.times(times)}" for (each, cause), times in causes.most_common() if each == name
        )
        parts.append(_StormPart(weight, f"{name} {how}"))
    return parts


def _remedy_of_counts(starts: list[RebalanceStarted], events: list[GroupEvent]) -> str:
    """Remedy of the most frequent cause of these rebalances of a storm, of which nothing more is known."""
    (cause, _), *_ = Counter((start.cause, _causer(start)) for start in starts).most_common(1)
    if cause[0] == MemberJoined.type:
        return (
            "A member that joins again and again was restarted, lost its session, or polled too slowly: its log says"
            " which."
        )
    if cause[0] == SubscriptionChanged.type:
        changes = [event for event in events if isinstance(event, SubscriptionChanged)]
        if 2 * sum(bool(event.added) and not event.new_topics for event in changes) > len(changes):
            return (
                "Each change of a subscription rebalances the group. If a program subscribes to one more topic each"
                " time: let it subscribe to all of them at once, or with a regular expression, which the broker"
                " resolves with group.protocol=consumer."
            )
    told = next((event.clause() for event in reversed(events) if event.type == cause[0]), None)
    if told and told.remedy:
        return told.remedy
    goes_on = any(isinstance(event, JoinPhaseOver) and GOES_ON in (event.protocol or "") for event in events)
    why = "it makes the group rebalance" if goes_on else "each rebalance stops the whole group"
    return f"Look at the log of {cause[1]}: {why}."


def _causer(started: RebalanceStarted) -> str:
    """The name of the member that caused a rebalance; if several may have, their name if they have the same."""
    by = started.by or (Member(),)
    if started.inferred and len({member.name for member in by}) > 1:
        return "one of several members"
    is_recorded = any(by[0]) or started.cause != NOT_RECORDED
    return by[0].name if is_recorded else "a member that is not recorded"


def _explain_rebalance(rebalance: _Rebalance, findings: Findings) -> list[Explanation]:
    """Explain a rebalance, and events that are explained by themselves."""
    explanations = []
    caused = rebalance.started is not None and rebalance.started.cause in _FOLLOW_TOPICS
    led_to_it = _until(rebalance.events, rebalance.started) if caused and rebalance.started is not None else []
    for event in rebalance.events:
        alone = event.sentence()
        if isinstance(event, MemberSlow) and findings.about(event) is not None:
            continue  # Its run is over.
        if isinstance(event, TopicChanged | TopicDeleted):
            clause = None if any(event is each for each in led_to_it) else findings.clause(event)
            alone = None if clause is None else Told(f"{words.capital(clause.text)}.")
        if alone is not None:
            explanations.append(Explanation(event.time, event.generation, *alone, events=[event]))
    started = rebalance.started
    explanations += _replaced_quietly(rebalance, started, findings)
    if started is None:
        return explanations
    text, remedy = _why(rebalance, started, findings)
    late, assigned, held = _late(rebalance), _assigned_late(rebalance), _held_up(rebalance)
    if held is not None and assigned is None:
        took, awaited = held
        text += f"; it took {ms(took)} because {awaited.name} did not rejoin"
        remedy = DOES_NOT_POLL
    elif assigned is not None:
        leader = f"the leader{_leader(rebalance)}"
        text += f"; it took {ms(assigned.took_ms)}, {ms(assigned.sync_took_ms or 0)} of them because {leader} was"
        text += " probably slow to assign"
    elif late is not None:
        why = "heard of it with its next heartbeat" if _heard_late(late) else "rejoined late"
        text += f"; it took {ms(late.after_ms)} because {late.member.name} {why}"
    over = rebalance.of(RebalanceOver, GroupEmpty)
    reached = over[-1].generation if over else None
    if reached is not None and reached < 0:
        head = f"Rebalance: {text}."
    elif reached is not None:
        head = f"Generation {reached}: {text}."
    elif started.generation:
        head = f"Generation {started.generation} ended: {text}."
    else:
        head = f"The first rebalance started: {text}."
    explanation = Explanation(started.time, started.generation, head, remedy, events=list(rebalance.events))
    explanation.cause = _finding_of(rebalance, started, findings)
    _tell_new_topics(explanation, findings)
    gone = rebalance.of(MemberGone)
    unclaimed, own_groups = _unclaimed(rebalance)
    explanation.details += unclaimed
    explanation.remedy = own_groups or explanation.remedy
    for part, advice in (
        _others(rebalance, started, findings),
        (_evidence(gone), None),
        (_left_too_soon(rebalance, findings), None),
        _phases(rebalance),
        _moved(rebalance),
    ):
        explanation.details += part
        explanation.remedy = explanation.remedy or advice
    if held is None and assigned is None and late is not None and hears_late(late):
        seldom = [each for each in (explanation.remedy, MAYBE_SELDOM) if each]
        explanation.remedy = " ".join(seldom)
    explanations.append(explanation)
    return explanations


def _replaced_quietly(rebalance: _Rebalance, started: RebalanceStarted | None, findings: Findings) -> list[Explanation]:
    """Static members that came back without a rebalance; two programs with the same instance id do so for ever."""
    ids = set() if started is None else started.by_ids()
    before = rebalance.events if started is None else _until(rebalance.events, started)
    explanations: list[Explanation] = []
    disputed: dict[str, Explanation] = {}
    for event in before:
        if not isinstance(event, MemberReplaced) or event.member.member_id in ids:
            continue
        finding = findings.about(event)
        if finding is None:
            text = f"Static member {event.name} came back with a new member id, without a rebalance."
            explanations.append(Explanation(event.time, event.generation, text, events=[event]))
        elif finding.kind in _LOOPS:
            text = f"{finding.text}."
            told = Explanation(event.time, event.generation, text, finding.remedy, events=[event], cause=finding)
            explanations.append(told)
        elif event.name in disputed:
            disputed[event.name].events.append(event)
        else:
            text = f"{words.capital(finding.text)}."
            disputed[event.name] = Explanation(event.time, event.generation, text, finding.remedy, events=[event])
            explanations.append(disputed[event.name])
    for name, each in disputed.items():
        if len(each.events) > 1:
            took = ms(each.events[-1].time - each.time)
            each.details.append(f"{name} was taken over {words.times(len(each.events))} within {took}.")
    return explanations


def _until(events: Sequence[GroupEvent], end: GroupEvent) -> list[GroupEvent]:
    """The events before one of them."""
    return list(takewhile(lambda event: event is not end, events))


def _why(rebalance: _Rebalance, started: RebalanceStarted, findings: Findings) -> Told:
    """The cause of a rebalance, and the remedy."""
    before = _until(rebalance.events, started)
    if started.inferred:
        return _why_inferred(before, started)
    if started.cause == GroupDowngraded.type and started.by:
        return Told(f"{words.names_of(started.by)} {in_words(started.cause)}")
    clause = _trigger(started, reversed(before), findings)
    topics = _changed_topics(before, findings)
    if topics and clause is not None and started.cause in _FOLLOW_TOPICS:
        return Told(f"{topics}, and {clause.text}")
    return Told((started.reason or started.cause).rstrip(".")) if clause is None else clause


#: What members do when a topic is created or grows: the topic is the cause, and no member is to blame.
_FOLLOW_TOPICS: Final = (LeaderRejoined.type, MemberRejoined.type, SubscriptionChanged.type)


def _changed_topics(events: Iterable[GroupEvent], findings: Findings) -> str:
    """The topics that changed, in words; "" if none did."""
    clauses = (findings.clause(event) for event in events if isinstance(event, TopicChanged | TopicDeleted))
    told = [clause.text for clause in clauses if clause is not None]
    if len(told) > MAX_NAMED:
        told[MAX_NAMED:] = [count(len(told) - MAX_NAMED, "more topic")]
    return ", ".join(told)


def _why_inferred(before: list[GroupEvent], started: RebalanceStarted) -> Told:
    """The cause of a rebalance whose start is concluded: what changed between two generations."""
    ids = started.by_ids()
    members = [event for event in before if isinstance(event, MemberEvent) and event.member.member_id in ids]
    told = [clause for clause in (event.clause() for event in members) if clause is not None]
    parts = [text for text, _ in told[:MAX_NAMED]]
    if len(told) > MAX_NAMED:
        parts.append(f"{count(len(told) - MAX_NAMED, 'more member')} changed")
    if not parts or (started.cause == NOT_RECORDED and len(parts) > 1):
        parts.append((started.reason or "its cause is not recorded").rstrip("."))
    return Told("; ".join(parts), told[0].remedy if len(told) == 1 else None)


def _evidence(gone: list[MemberGone]) -> list[str]:
    """The sentences with the evidence about members that are gone."""
    return [evidence for evidence in (event.evidence() for event in gone[:MAX_NAMED]) if evidence is not None]


def _others(rebalance: _Rebalance, started: RebalanceStarted, findings: Findings) -> tuple[list[str], str | None]:
    """The other members that joined or left during the rebalance."""
    out = []
    remedy = None
    ids = started.by_ids()
    joined = [event.member for event in rebalance.of(MemberJoined) if event.member.member_id not in ids]
    if joined:
        out.append(f"{words.names_of(joined)} joined too.")
    lost = [event for event in rebalance.events if isinstance(event, MemberLeft | MemberExpired)]
    lost = [event for event in lost if event.member.member_id not in ids]
    departed = [clause.text for clause in map(findings.clause, lost) if clause is not None]
    out += [f"{text}." for text in departed[:MAX_NAMED]]
    ill = (
        found
        for found in map(findings.about, lost[:MAX_NAMED])
        if found and found.kind not in (STOPPED, RESTARTED, ALONE)
    )
    remedy = next((found.remedy for found in ill), None)
    if len(departed) > MAX_NAMED:
        out.append(f"{count(len(departed) - MAX_NAMED, 'more member')} left the group.")
    missing = rebalance.of(MemberNotRejoined)
    for event in missing[:MAX_NAMED]:
        finding = findings.about(event)
        if finding is not None:
            out.append(f"{finding.text}.")
            remedy = finding.remedy or remedy
            continue
        out.append(
            f"{event.name} did not rejoin within {ms(event.waited_ms)} and was removed;"
            f" it was last heard of {ms(event.heard_ago_ms)} before."
        )
        remedy = remedy or (
            "A member that heartbeats but does not rejoin is busy with its records: fetch fewer at a time"
            " (max.poll.records) or raise max.poll.interval.ms, which is also the time a rebalance waits."
        )
    if len(missing) > MAX_NAMED:
        more = len(missing) - MAX_NAMED
        out.append(f"{count(more, 'more member')} did not rejoin and {words.were(more)} removed.")
    out += [f"The leader {each.old} had not rejoined; {each.new} leads." for each in rebalance.of(LeaderChanged)]
    if rebalance.of(JoinPhaseStuck):
        out.append("No member rejoined in time, so the group waited again.")
        remedy = remedy or "Static members stay in the group while they are away: remove those that will not come back."
    return out, remedy


def _unclaimed(rebalance: _Rebalance) -> tuple[list[str], str | None]:
    """Topics of members that have gone which no member reads any more: the others do not subscribe to them."""
    gone = {event.member.member_id for event in rebalance.of(Departure)}
    deleted = {event.topic for event in rebalance.of(TopicDeleted)}
    over = rebalance.of(RebalanceOver)[-1:]
    moves = [move for event in over for move in event.moves or ()]
    if not gone or not over or not over[0].members or len(moves) >= MOST_MEMBERS:
        return [], None
    gained = {topic for move in moves for topic, numbers in move.gained.items() if numbers}
    left = sorted({topic for move in moves if move.member.member_id in gone for topic in move.lost} - gained)
    kept = {topic for move in moves if move.member.member_id not in gone for topic in (*move.gained, *move.lost)}
    left = [topic for topic in left if topic not in kept and topic not in deleted]
    if not left:
        return [], None
    who = words.names_of(move.member for move in moves if move.member.member_id in gone)
    return (
        [
            f"No other member took over the partitions of {words.listed(left)} from {who}: the others probably do not"
            " subscribe to it, and are another program, or another version of it, with the same group.id."
        ],
        "If they are different programs, give each a group.id of its own: each rebalance stops all of them. If a new"
        " version does not read the topic any more, this is as it should be.",
    )


def _late(rebalance: _Rebalance) -> LateMember | None:
    """The member that a rebalance that is over waited for; None if it waited for none."""
    if not rebalance.of(RebalanceOver):
        return None
    last = next((each for event in rebalance.of(JoinPhaseOver) for each in event.joined_after or ()), None)
    new = {event.member.member_id for event in rebalance.of(MemberJoined)}
    return None if last is None or last.after_ms <= SLOW_MS or last.member.member_id in new else last


def _held_up(rebalance: _Rebalance) -> tuple[float, RejoinAwaited] | None:
    """The member that a rebalance that is over waited for until it was gone, and for how many ms; None for none."""
    over = next(iter(rebalance.of(RebalanceOver)[-1:]), None)
    awaited = held_up(rebalance.events)
    return None if over is None or over.join_took_ms is None or awaited is None else (over.join_took_ms, awaited)


def _assigned_late(rebalance: _Rebalance) -> RebalanceOver | None:
    """The end of a rebalance of which the assignment took most of the time, and long; None if it did not."""
    over = next(iter(rebalance.of(RebalanceOver)[-1:]), None)
    took = 0 if over is None else over.sync_took_ms or 0
    return over if over is not None and took > max(SLOW_MS, over.join_took_ms or 0) else None


def _leader(rebalance: _Rebalance) -> str:
    """The name of the leader that has assigned, after a space; "" if it is not recorded."""
    leader = next((event.leader for event in rebalance.of(JoinPhaseOver)[-1:]), None)
    return "" if leader is None else f" {leader.name}"


def _heard_late(late: LateMember) -> bool:
    """Whether a member rejoined soon after a response to its heartbeat had told it to."""
    return late.told_ms is not None and late.after_ms - late.told_ms <= SLOW_MS


def _phases(rebalance: _Rebalance) -> tuple[list[str], str | None]:
    """How long the rebalance took, and the member that it waited for."""
    if not rebalance.of(RebalanceOver):
        if rebalance.of(GroupUpgraded):
            return ["The group was upgraded to the consumer protocol before it was over."], None
        return ["The group has no members now."] if rebalance.of(GroupEmpty) else [], None
    over = rebalance.of(RebalanceOver)[-1]
    members = over.members
    phases = (("joining took", over.join_took_ms), ("assigning", over.sync_took_ms))
    took = [f"{phase} {ms(duration)}" for phase, duration in phases if duration is not None]
    out = [f"{words.capital(', '.join(took))}; {count(members, 'member')}." if took else f"{count(members, 'member')}."]
    remedy: str | None = None
    assigning: str | None = None
    if _assigned_late(rebalance) is not None:
        assigning = (
            f"All members wait until the leader{_leader(rebalance)} has assigned the partitions: look what its assignor"
            " (partition.assignment.strategy) does, and whether its program blocks or works between two polls."
        )
    late, held = _late(rebalance), _held_up(rebalance)
    if held is not None:
        _, awaited = held
        out.append(
            f"{awaited.name} held it up: it did not rejoin, though the responses to its heartbeats told it to."
            " Its program probably did not poll."
        )
        remedy = DOES_NOT_POLL
    elif late is not None and _heard_late(late):
        gap = (
            f", which came {ms(late.heartbeat_ms)} after the one before"
            if late.heartbeat_ms and hears_late(late)
            else ""
        )
        out.append(
            f"{late.member.name} was told to rejoin after {ms(late.told_ms or 0)}: members hear of a rebalance with"
            f" their next heartbeat (heartbeat.interval.ms){gap}."
        )
    elif late is not None:
        name, after = late.member.name, ms(late.after_ms)
        goes_on = members == 1 or GOES_ON in (over.protocol or "")
        remedy = f"{REJOINS_AT_POLL}." if goes_on else OTHERS_WAIT
        if members == 1:
            out.append(f"{name} rejoined after {after}.")
        else:
            others = "the other member" if members == 2 else f"the other {members - 1} members"
            out.append(f"{name} was the last to rejoin, after {after}; {others} waited.")
    return out, assigning or remedy


def _left_too_soon(rebalance: _Rebalance, findings: Findings) -> list[str]:
    """The member that left before its group, which was empty, gave it partitions, if no loop has that."""
    started = rebalance.started
    delay_ms = None if started is None else started.delay_ms
    ids = set() if started is None or rebalance.of(RebalanceOver) else started.by_ids()
    known = ((event, findings.about(event)) for event in rebalance.of(MemberLeft))
    return [
        f"{event.name} left after {ms(event.joined_ago_ms)}, before it had got partitions: joining a group without"
        f" members takes {ms(delay_ms)} (group.initial.rebalance.delay.ms of the broker)."
        for event, finding in known
        if delay_ms and event.joined_ago_ms is not None and event.member.member_id in ids
        if finding is None or finding.kind not in _LOOPS
    ]


def _moved(rebalance: _Rebalance) -> tuple[list[str], str | None]:
    """The partitions that members gained and lost."""
    out = []
    for event in rebalance.of(RebalanceOver)[-1:]:
        moved = event.moves or ()
        for move in moved[: 2 * MAX_NAMED]:
            changes = (("gained", move.gained), ("lost", move.lost))
            parts = [f"{verb} {words.partitions(numbers)}" for verb, numbers in changes if numbers]
            out.append(f"{move.member.name} {' and '.join(parts)}.")
        if len(moved) > 2 * MAX_NAMED:
            out.append(f"{count(len(moved) - 2 * MAX_NAMED, 'more member')} gained or lost partitions.")
        if event.moves is not None and not moved:
            out.append("No partition changed its owner.")
        out += pauses_in_words(event)
    return out, None
