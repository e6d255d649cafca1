"""Examines a group: what is wrong with it now or was lately, worst first, with evidence and remedy. Pure.

Its past is in its events, where :mod:`~barnabas_explain.findings` are made of; its present in a description. What is
inferred says "probably", and from what.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from shlex import quote
from typing import Any, Final

from barnabas_explain import findings as found
from barnabas_explain import transactions, words
from barnabas_explain.catalog import (
    DENIED_AGAIN_MS,
    DOES_NOT_POLL,
    HOT_PARTITION,
    KEYS_MOVE,
    MAYBE_SELDOM,
    OTHERS_WAIT,
    READS_ITSELF,
    SELDOM_HEARTBEATS,
    SPREAD_KEYS,
    WHY_DELETED,
    AbortedRecordsRead,
    BrokerNotReached,
    CommitsBeyondEnd,
    CommitsLastRecord,
    CommitsOften,
    CommitsRefused,
    CommitsWentBack,
    CoordinatorSought,
    Departure,
    FetchDenied,
    FetchesWaited,
    FetchOutOfRange,
    GroupEmpty,
    GroupEvent,
    GroupLoaded,
    JoinPhaseOver,
    LagGrows,
    MemberAway,
    MemberBeganLate,
    MemberDisconnected,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberReconnected,
    MemberRewound,
    MemberSkipped,
    NothingCommitted,
    NothingFetched,
    OffsetsAltered,
    OffsetsStable,
    OffsetsStuck,
    OffsetsUnstable,
    RebalanceOver,
    RebalanceStarted,
    RecordsAborted,
    RegexResolved,
    ShareDeadLetters,
    ShareLocksExpired,
    ShareRecords,
    ShareRecordsArchived,
    ShareRecordsReleased,
    ShareWindowBlocked,
    ShareWindowMoved,
    SubscriptionChanged,
    TargetAssigned,
    TopicChanged,
    TopicDeleted,
    poll_interval,
)
from barnabas_explain.explain import DEPLOYMENT, STORM, Explanation, explain
from barnabas_explain.findings import CERTAIN, POSSIBLE, PROBABLE, Finding
from barnabas_explain.folding import completed, fold
from barnabas_explain.lags import MOST_OF, Lags
from barnabas_explain.members import (
    Member,
    MemberLag,
    Partition,
    Position,
    are_alike,
    by_topic,
    is_default,
    partitions_of,
)
from barnabas_explain.rejoins import GOES_ON, awaited_now, heard_late, late_members
from barnabas_explain.runs import Run
from barnabas_explain.spelling import TOGETHER, speller
from barnabas_explain.storm_score import storm_score
from barnabas_explain.waits import Waiting, of_work
from barnabas_explain.words import ms

#: How bad a diagnosis is: records are not read; members lose time again and again; it works, but not as it should.
BROKEN: Final = 3
SICK: Final = 2
ODD: Final = 1
#: Severities in words.
SEVERITIES: Final[Mapping[int, str]] = {BROKEN: "broken", SICK: "sick", ODD: "odd"}

#: How bad the findings about members are; the others are no disease.
_OF_FINDINGS: Final[Mapping[str, int]] = {
    found.SLOW_POLL: SICK,
    found.LEFT_AND_JOINED: SICK,
    found.KILLED: SICK,
    found.STATIC_AWAY: ODD,
    found.NEW_INSTANCE: SICK,
    found.CRASH_LOOP: SICK,
    found.RESTART_LOOP: SICK,
    found.RUNS_UNCOMMITTED: ODD,
    found.RUNS_BEHIND: SICK,
    found.GROUP_DELETED: SICK,
    found.CONSUMER_LOOP: SICK,
    found.OVERLAPPING_RUNS: SICK,
    found.CONSUMERS_AT_ONCE: SICK,
    found.CONSUMER_PER_CALL: SICK,
    found.CONSUMERS_NOT_CLOSED: SICK,
    found.SUBSCRIBE_LOOP: SICK,
    found.TOPICS_COME_AND_GO: SICK,
    found.SUBSCRIBES_IN_TURN: SICK,
    found.FENCING: SICK,
    found.CLOSED_BY_BROKER: SICK,
    found.BLOCKED: SICK,
    found.SILENT: SICK,
    found.SILENT_OR_SLOW: SICK,
    found.NO_HEARTBEATS: SICK,
    found.SAME_INSTANCE: SICK,
    found.NO_COMMON_ASSIGNOR: SICK,
    found.SESSION_REFUSED: SICK,
    found.REGEX_REFUSED: SICK,
    found.DENIED: SICK,
}
#: How bad events of records of share groups are.
_OF_SHARES: Final[Mapping[str, int]] = {
    ShareWindowBlocked.type: BROKEN,
    ShareRecordsArchived.type: SICK,
    ShareDeadLetters.type: SICK,
    ShareLocksExpired.type: ODD,
    ShareRecordsReleased.type: ODD,
}
#: A record that is delivered so often comes back again and again.
_AGAIN: Final = 2
#: An offset that stands still, and a lag that grows, is reported after so many milliseconds, by default
#: (``group.stuck.offset.ms``).
PATIENCE_MS: Final = 300_000
#: A coordinator looks at offsets each 30 s, or ten times in group.stuck.offset.ms: twice that.
_TWO_LOOKS_MS: Final = 60_000
#: What happened earlier does not count, unless another time is given, in ms.
SINCE_MS: Final = 3_600_000
#: Those of programs that are no members, until they are.
_UNTIL_BACK: Final = (found.SILENT, *found.MAY_NOT_JOIN)
#: The kind of the diagnosis of a group without members.
NO_MEMBERS: Final = "no_members"
#: The kind of the diagnosis of partitions that a topic has got, and that are assigned to no member.
UNASSIGNED: Final = "unassigned"
#: The kind of the diagnosis of programs that leave without a commit of what they have done.
LEFT_UNCOMMITTED: Final = "left_uncommitted"
#: The kind of the diagnosis of a member that does not get on.
STUCK: Final = "stuck"
#: The kind of the diagnosis of a member that does not get on, or commits seldom.
NOT_COMMITTED: Final = "not_committed"
#: The kind of the diagnosis of a member whose next records were deleted, and that does not go on elsewhere.
NO_RESET: Final = "no_reset"
#: The kind of the diagnosis of members that do not reach a broker.
NOT_REACHED: Final = "broker_not_reached"
#: The kind of the diagnosis of a group that does not exist, because its program does not join.
NEVER_JOINED: Final = "never_joined"
#: The kind of the diagnosis of a group that consumes less than is written.
LAG_GROWS: Final = "lag_grows"
#: The kinds of diagnoses that say where lag is, and that its growth says, too.
_WHERE_LAG_IS: Final = ("hot_partition", "slow_member")
_OF_LAG: Final = (*_WHERE_LAG_IS, "too_many_members")
#: The kind of the diagnosis of a member that rejoins late.
LATE_MEMBER: Final = "late_member"
#: The kind of the diagnosis of members that hear late of rebalances.
HEARD_LATE: Final = "late_heartbeats"
#: The kind of the diagnosis of a rebalance that takes long, and is not over.
REBALANCING: Final = "rebalancing"
#: The kind of the diagnosis of a topic that members do not read any more.
LEFT_TOPIC: Final = "left_topic"
#: The kind of the diagnosis of a transaction in which offsets are pending.
PENDING: Final = "pending_offsets"
#: A transaction is open for long after so many milliseconds; after the broker's default of
#: ``transaction.max.timeout.ms`` it is over.
_LONG_MS: Final = 10_000
_MAX_TIMEOUT_MS: Final = 900_000
#: What happened happened lately for so many milliseconds.
_LATELY_MS: Final = 600_000
#: Connections that end at one age: so many, at so many times, whose ages differ from the middle one by such a part of
#: it, or by so many milliseconds.
_CUTS: Final = 4
_ROUNDS: Final = 3
_AS_OLD: Final = 0.05
_AS_OLD_MS: Final = 500
#: A member that went back is not called slow for so many milliseconds.
_REPLAYS_MS: Final = 300_000
#: So many leaves without a commit of what was done are a disease.
_MANY_LEAVES: Final = 2
#: Restarts of one program that are a disease.
_MANY_RESTARTS: Final = 3
#: A group that was empty so often is probably not empty for longer than so many times the median of the last gaps.
_LAST_GAPS: Final = 20
_SOME_GAPS: Final = 3
#: Programs that have been members together for so many milliseconds are no deployment, and no canary, as a rule.
_TOGETHER_MS: Final = 300_000
#: Client ids that are compared with those of another library.
_MOST_COMPARED: Final = 20
#: The kinds of diagnoses that are made of events alone, so that one can wait for them.
OF_EVENTS: Final = (
    *_OF_FINDINGS,
    *_OF_SHARES,
    LATE_MEMBER,
    HEARD_LATE,
    found.RESTARTED,
    STORM,
    DEPLOYMENT,
    MemberBeganLate.type,
    NEVER_JOINED,
)
#: The kinds of those about what is over if it does not happen again.
_PASSES: Final = frozenset({*_OF_FINDINGS, LATE_MEMBER, HEARD_LATE, STORM}.difference(_UNTIL_BACK))
#: A transactional id of which fewer transactions were aborted by their timeout may have been slow once.
_MANY_ABORTS: Final = 2
#: A program that began to read late fewer times may have been slow once.
_MANY_LATE_STARTS: Final = 2
#: A group that waited so often for a member, or for so many milliseconds once, is ill.
_MANY_WAITS: Final = 2
_LONG_WAIT_MS: Final = 30_000
#: The kinds of the other diagnoses, which say how a group is now.
OF_NOW: Final = (
    NO_MEMBERS,
    "left_out",
    UNASSIGNED,
    "committed_in_turn",
    "no_topic",
    "no_subscription",
    "empty_topic",
    "too_many_members",
    "topics_apart",
    "different_subscriptions",
    "disconnected",
    "hot_partition",
    "slow_member",
    "open_transaction",
    "offset_out_of_range",
    "records_deleted",
    NO_RESET,
    "nothing_committed",
    "nothing_fetched",
    NOT_REACHED,
    "fetches_waited",
    "topic_denied",
    "records_aborted",
    "aborted_records_read",
    "own_topic",
    "two_services",
    "commits_of_another",
    "commits_of_lost",
    CommitsLastRecord.type,
    "commits_often",
    "goes_back",
    "skips_records",
    LEFT_UNCOMMITTED,
    "cut_connections",
    STUCK,
    NOT_COMMITTED,
    LAG_GROWS,
    PENDING,
    REBALANCING,
    LEFT_TOPIC,
)
#: So many records to read at most may all be markers at the end of transactions, which consumers do not get.
MOST_MARKERS: Final = 100
#: A partition is hot if there are so many records that are not consumed, and it has nearly all of them.
_MANY_RECORDS: Final = 1_000
#: The states of a group during a rebalance of the classic protocol: what it waits for, and what to do.
_UNDER_WAY: Final[Mapping[str, tuple[str, str]]] = {
    "PreparingRebalance": (
        "it waits until all members have joined again, and those that have read nothing (unless their assignor is"
        " cooperative)",
        "Look which member does not poll: a batch of it takes long, or it hangs. Once the rebalance is over,"
        " `barnabas groups explain` names the one that rejoined last. One that does not rejoin within its rebalance"
        " timeout (max.poll.interval.ms) is removed.",
    ),
    "CompletingRebalance": (
        "all members have joined, and wait for the assignment by their leader",
        "Look at the log of the leader: its assignor takes long, or fails.",
    ),
}
#: A member that has not connected again for so many milliseconds has probably ended.
_STAYS_AWAY_MS: Final = 60_000
#: The default session timeout of clients.
_USUAL_SESSION_MS: Final = 45_000
#: A client knows that a topic was deleted, or has grown, within metadata.max.age.ms, 5 minutes by default.
_FOLLOWS_MS: Final = 310_000
#: If its leader knows that a topic has grown, a group has assigned the new partitions after so many milliseconds.
_ASSIGNED_MS: Final = 15_000
#: An offset that stands still for so many milliseconds is reported, however long max.poll.interval.ms is.
_LONGEST_BATCH_MS: Final = 1_800_000
#: A report may come so many milliseconds late.
_LATE_MS: Final = 60_000
#: A client whose Fetch was outside of the log asks where to go on within so many milliseconds.
_ASKS_MS: Final = 10_000
#: A lag still grows if it has grown by so much of what is expected since the report.
_STILL: Final = 0.75
#: Topics, members or partitions that a sentence lists.
_MOST: Final = 5
#: The assignor of both protocols that assigns each topic alone.
_RANGE: Final = "range"
#: The offset of a partition without a committed one.
_NONE: Final = -1
#: Characters of a regular expression in a sentence.
_MOST_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Something that is wrong with a group.

    Attributes:
        group: the group.
        kind: what it is: a kind of finding, or a kind of this module.
        severity: :data:`BROKEN`, :data:`SICK` or :data:`ODD`.
        text: what is wrong, in one sentence.
        sure: "certain", "probable" or "possible".
        evidence: further sentences.
        remedy: what to do; None if that is not known.
        time: when it happened last, in ms since 1970; None if it is so now.
        causes: the kinds of findings that are its causes, and that are no diagnoses of their own.
        event: the event whose sentence it is, as it is now; None if there is none.
    """

    group: str
    kind: str
    severity: int
    text: str
    sure: str
    evidence: tuple[str, ...] = ()
    remedy: str | None = None
    time: int | None = None
    causes: frozenset[str] = frozenset()
    event: GroupEvent | None = None

    @property
    def kinds(self) -> frozenset[str]:
        """Its kind, and those of its causes."""
        return self.causes | {self.kind}

    def is_told_by(self, explanation: Explanation) -> bool:
        """Whether an explanation says the same, or did so at an earlier time."""
        if self.text == explanation.text or self.event is None:
            return self.text == explanation.text
        return _subject(self.event) in map(_subject, explanation.events[:1])

    def says(self, text: str) -> bool:
        """Whether one of its sentences has this one."""
        return any(text.removesuffix(".") in each for each in (self.text, *self.evidence))

    def as_data(self) -> dict[str, Any]:
        """The diagnosis, ready for JSON."""
        return {
            "group": self.group,
            "kind": self.kind,
            "severity": SEVERITIES[self.severity],
            "text": self.text,
            "sure": self.sure,
            "evidence": list(self.evidence),
            "remedy": self.remedy,
            "time": self.time,
            "causes": sorted(self.causes),
        }


@dataclass(frozen=True, slots=True)
class Reader:
    """A member now.

    Attributes:
        member: its ids and address.
        topics: that it subscribes to, as far as that is known.
        partitions: that it owns.
        regex: the regular expression with which it subscribes in the consumer protocol; "" for none.
        matched: the number of topics that it matches; None if that is not known.
        is_known: whether its subscription is known.
    """

    member: Member
    topics: frozenset[str]
    partitions: frozenset[Partition]
    regex: str = ""
    matched: int | None = None
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Present:
    """A group now.

    Attributes:
        group: its id.
        state: its state; it is examined if that is Stable or Empty, as members own nothing during a rebalance.
        readers: its members.
        had_members: whether it ever had members, as far as is known: with assign() there are none.
        lags: the records after the committed offset of each partition that has one.
        committed: the committed offset of each partition that has one, as far as it is known here.
        topics: the number of partitions of the topics that members subscribe to; absent ones do not exist.
        left_out: the records of each partition without a committed offset and an owner, of the topics that members
            subscribe to, or of which a group without members has committed some.
        empty: topics that have no record.
        alike: for topics that have no record, or do not exist, another one of nearly the same name that has records.
        assignor: the name of its assignor; "" if that is not known.
        has_epochs: whether it has the consumer protocol.
        waits: what is said of transactions that have been open for long, and keep ``read_committed`` members waiting.
        at_work: those that get records, and are open for some seconds.
        markers: partitions whose lag is markers at the end of transactions, as far as that was looked up.
        unseen: partitions whose leaders do not answer.
        outside: of partitions whose committed offset is outside of the log: that offset, and the first and the last one
            of the log.
    """

    group: str
    state: str
    readers: Sequence[Reader] = ()
    had_members: bool = True
    lags: Mapping[Partition, int] = field(default_factory=dict)
    committed: Mapping[Partition, int] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[Partition, int] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()
    alike: Mapping[str, str] = field(default_factory=dict)
    outside: Mapping[Partition, tuple[int, int, int]] = field(default_factory=dict)
    waits: Sequence[words.Told] = ()
    at_work: Sequence[Waiting] = ()
    markers: frozenset[Partition] = frozenset()
    unseen: frozenset[Partition] = frozenset()
    assignor: str = ""
    has_epochs: bool = False


def examine(present: Present, events: Iterable[GroupEvent], now_ms: int, since_ms: int) -> list[Diagnosis]:
    """Find out what is wrong with a group.

    Args:
        present: the group now.
        events: its events, oldest first.
        now_ms: the time, in ms since 1970.
        since_ms: what happened earlier does not count, in ms since 1970.

    Returns:
        The diagnoses, worst first.
    """
    past = list(events)
    if names := found.colliding(past):
        past = [found.distinct(event, names) for event in past]
    # What was deleted cannot be read.
    there = {place: end - start for place, (offset, start, end) in present.outside.items() if offset < start}
    present = replace(present, lags={place: lag for place, lag in {**present.lags, **there}.items() if lag})
    left, unread = _of_left_topics(present, past), _unread_topics(present)
    # Whether members keep up does not show in topics that they do not read.
    present = replace(present, lags={place: lag for place, lag in present.lags.items() if place[0] not in unread})
    told = explain(past, since=since_ms)
    storms = _of_storm(present, past, told, now_ms)
    no_reset = _without_reset(present, past, now_ms)
    nowhere = {(each.topic, each.partition) for loss in no_reset for each in (loss, *(loss.more or ()))}
    inside = {place: offsets for place, offsets in present.outside.items() if place not in nowhere}
    present = replace(present, outside=inside)
    diagnoses = [
        *_of_present(present, past, now_ms),
        *_of_offsets(present, past, now_ms),
        *_of_unreached(present, past, now_ms),
        *_of_losses(present, past, since_ms, nowhere),
        *(_of_no_reset(present, loss) for loss in no_reset),
        *_of_outsiders(present, past, since_ms),
        *_of_waits(present, past, since_ms),
        *_of_late_starts(present, past, since_ms),
        *_of_often(present, past, now_ms),
        *_of_seeks(present, past, since_ms),
        *_of_uncommitted(present, past, since_ms),
        *_of_aborted(present, past, now_ms),
        *_of_aborted_read(present, past, now_ms),
        *_of_denied_topics(present, past, now_ms),
        *_of_own_topics(present, past, since_ms),
        *_of_two_services(present, past, now_ms),
        *_of_commits_back(present, past, max(since_ms, now_ms - _LATELY_MS)),
        *_of_pending(present, past, now_ms),
        *_of_members(present, past, now_ms, since_ms, storms),
        *_of_late_members(present, past, since_ms),
        *_of_heard_late(present, past, since_ms),
        *_of_cut_connections(present, past, since_ms),
        *_under_way(present, past, now_ms),
        *left,
        *_of_share_records(present, told),
        *_never_joined(present.group, past, since_ms),
    ]
    if nowhere:
        diagnoses = [
            _after_reset(each, nowhere) if each.kind == NO_MEMBERS else each
            for each in diagnoses
            if not (isinstance(each.event, OffsetsStuck) and nowhere.issuperset(partitions_of(each.event.places)))
        ]
    kinds = {each.kind for each in diagnoses}
    if NO_MEMBERS in kinds and ("committed_in_turn" in kinds or _comes_back(past, now_ms)):
        diagnoses = [each for each in diagnoses if each.kind != NO_MEMBERS]
    if found.CONSUMERS_NOT_CLOSED in kinds:
        # It says why there are so many members.
        diagnoses = [each for each in diagnoses if each.kind != "too_many_members"]
    if "commits_of_lost" in kinds:
        # It says why offsets of that member do not get on.
        diagnoses = [each for each in diagnoses if each.kind != "slow_member"]
    if CommitsLastRecord.type in kinds:
        # It says the same when no record comes for some time, and is less sure.
        diagnoses = [
            each for each in diagnoses if not (isinstance(each.event, OffsetsStuck) and each.event.is_last_record)
        ]
    growing = _of_lag(present, past, now_ms, diagnoses)
    if growing:
        # It says which member or partition it is. Members work through what they have fetched of one partition after
        # the other.
        diagnoses = [each for each in diagnoses if each.kind not in (*_OF_LAG, NOT_COMMITTED) or each.severity > ODD]
        diagnoses += growing
    elif any(each.kind in (STUCK, NOT_COMMITTED, NOT_REACHED, NO_RESET) for each in diagnoses):
        # It says why the lag grows there.
        diagnoses = [each for each in diagnoses if each.kind not in _WHERE_LAG_IS]
    elif (most := _lags(present).most()) and most.member and most.member.member_id in _gone(diagnoses):
        diagnoses = [each for each in diagnoses if each.kind not in _WHERE_LAG_IS]
    spelled = speller(past)
    diagnoses = [replace(_of_now(each, now_ms), remedy=spelled(each.remedy)) for each in diagnoses]
    return worst_first(diagnoses, now_ms)


def worst_first(diagnoses: Iterable[Diagnosis], now_ms: int) -> list[Diagnosis]:
    """Diagnoses, also of several groups, with the worst and surest ones first, of which those of members that are there
    come before groups without members.

    Args:
        diagnoses: in any order.
        now_ms: the time, in ms since 1970.
    """

    def key(each: Diagnosis) -> tuple[int, bool, bool, int, str]:
        return -each.severity, each.sure == POSSIBLE, each.kind == NO_MEMBERS, -(each.time or now_ms), each.group

    return sorted(diagnoses, key=key)


def _of_now(diagnosis: Diagnosis, now_ms: int) -> Diagnosis:
    """A diagnosis of something that has happened is a smaller one if that has not happened again lately."""
    ago = 0 if diagnosis.time is None else now_ms - diagnosis.time
    if ago <= _LATELY_MS or diagnosis.severity == ODD or diagnosis.kind not in _PASSES:
        return diagnosis
    over = f"It has not happened again since {words.clock(now_ms - ago)}, {ms(ago)} ago."
    return replace(diagnosis, severity=ODD, evidence=(*diagnosis.evidence, over))


def of_markers(places: Collection[Partition]) -> str:
    """A sentence about partitions whose lag is markers at the end of transactions."""
    what = "the marker at the end of a transaction" if len(places) == 1 else "markers at the end of transactions"
    text = f"The lag of {words.partitions(by_topic(places))} is {what}, which consumers do not get: no record waits"
    return f"{text} there. It stays until the next record is consumed."


def notes(present: Present) -> list[str]:
    """Sentences about partitions whose leaders do not answer, about transactions at work, and about lag that is markers
    of transactions."""
    return [
        *([_of_unseen(present)] if present.unseen else []),
        *of_work(present.at_work),
        *([of_markers(present.markers)] if present.markers else []),
    ]


def _of_unseen(present: Present) -> str:
    one = len(present.unseen) == 1
    return (
        f"{'The leader' if one else 'The leaders'} of {words.partitions(by_topic(present.unseen))} did not answer:"
        f" whether members of {present.group} get on there is not known. To do: barnabas cluster status"
    )


def read_again(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """The diagnoses of members that get the same records again, for which their coordinator knows no aborted
    transactions: another broker may."""
    return [each for each in diagnoses if _reads_again(each) is not None]


def _reads_again(diagnosis: Diagnosis) -> OffsetsStuck | NothingCommitted | None:
    event = diagnosis.event
    if not isinstance(event, OffsetsStuck | NothingCommitted) or event.offset is None:
        return None
    return None if event.aborts or event.refused is not None else event


def with_aborts(
    diagnoses: Iterable[Diagnosis], past: Iterable[GroupEvent], events: Iterable[transactions.EventRecord]
) -> list[Diagnosis]:
    """Diagnoses with the transactions that were aborted by their timeout again and again while members got the same
    records again.

    Args:
        diagnoses: of a group.
        past: its events.
        events: of the transactions of all brokers, oldest first.
    """
    spelled = speller(past)
    timed_out = [each for each in events if each.get("cause") == transactions.Cause.TIMEOUT.value]
    found = [_with_aborts(each, timed_out) for each in diagnoses]
    return [replace(each, remedy=spelled(each.remedy)) for each in found]


def _with_aborts(diagnosis: Diagnosis, timed_out: Iterable[transactions.EventRecord]) -> Diagnosis:
    event = _reads_again(diagnosis)
    if event is None:
        return diagnosis
    by_id: dict[str, list[transactions.EventRecord]] = {}
    for each in timed_out:
        if each["time"] >= event.time - event.stood_ms:
            by_id.setdefault(each["transactional_id"], []).append(each)
    found = {name: aborts for name, aborts in by_id.items() if len(aborts) >= _MANY_ABORTS}
    own = found.get(event.transactional_id or "")
    if own is not None:
        known = event.changed(
            aborts=len(own),
            open_ms=max(each["open_ms"] for each in own),
            transaction_timeout_ms=own[-1]["timeout_ms"],
            is_own=True,
        )
        kind, severity, sure = _stuck(is_proven=True)
        text, remedy = known.sentence()
        return replace(diagnosis, kind=kind, severity=severity, text=text, sure=sure, remedy=remedy)
    evidence = [
        f"Meanwhile transactions of {name}{f' (client {client})' if client else ''} were aborted"
        f" {words.times(len(aborts))} because their timeout was over: if they are those of this program, that is why it"
        " gets the same records again."
        for name, aborts in list(found.items())[:_MOST]
        for client in [aborts[-1]["client_id"]]
    ]
    return replace(diagnosis, evidence=(*diagnosis.evidence, *evidence))


def _subject(event: GroupEvent) -> tuple[object, ...]:
    """Key of what an event is about: reports of it have the same."""
    topic = event.topic if isinstance(event, FetchOutOfRange) else None
    return event.type, getattr(event, "member", None), getattr(event, "positions", None), topic


def with_now(explanations: Iterable[Explanation], diagnoses: Iterable[Diagnosis], now_ms: int) -> list[Explanation]:
    """Explanations, and after them those of how the group is now. If events tell of that, their explanation gets the
    words that fit now, so that nothing is said twice.

    Args:
        explanations: of the events of a group.
        diagnoses: of the same group.
        now_ms: the time, in ms since 1970.
    """
    found = list(diagnoses)
    gone = _gone(found)
    told, details = list[Explanation](), dict[int, list[str]]()
    for explanation in explanations:
        lag = _lag_of_gone(explanation, gone)
        if lag is None:
            told.append(explanation)
        else:
            details.setdefault(id(lag[0]), []).append(f"Meanwhile {lag[1].clause().text}.")
    for each in found:
        if each.kind in OF_EVENTS:
            continue
        known = next((one for one in reversed(told) if each.is_told_by(one)), None)
        if known is None:
            more = details.get(id(each), [])
            told.append(Explanation(now_ms, -1, each.text, each.remedy, [*each.evidence, *more]))
        else:
            known.text, known.remedy = each.text, each.remedy
    return told


def _lag_of_gone(explanation: Explanation, gone: Mapping[str | None, Diagnosis]) -> tuple[Diagnosis, LagGrows] | None:
    """The finding about a member that has gone, and the lag that grew because of that, if the explanation is of such;
    None otherwise."""
    event = explanation.events[0] if len(explanation.events) == 1 else None
    if not isinstance(event, LagGrows) or not event.behind or len(event.behind) > 1:
        return None
    cause = gone.get(event.behind[0].member.member_id)
    return (cause, event) if cause is not None and (cause.time or 0) < event.time else None


def too_early(present: Present, events: Iterable[GroupEvent], now_ms: int, patience_ms: int) -> int | None:
    """For how many milliseconds a member has been in a group, if that is too short to know whether it gets on; None if
    all members have been there for longer, or if that is not known.

    Args:
        present: the group now.
        events: its events, oldest first.
        now_ms: the time, in ms since 1970.
        patience_ms: ``group.stuck.offset.ms`` of its broker.
    """
    since = now_ms - max((each.time for each in _joins(present, events)), default=0)
    return since if since < found_ms(patience_ms) else None


def found_ms(patience_ms: int) -> int:
    """Within how many milliseconds an offset that stands still is found: its broker looks now and then, and its time
    begins with the first look.

    Args:
        patience_ms: ``group.stuck.offset.ms`` of its broker.
    """
    return patience_ms + min(patience_ms // 5, _TWO_LOOKS_MS)


def patience_of(present: Present, events: Iterable[GroupEvent], patience_ms: int) -> int:
    """After how many milliseconds an offset of a member that stands still is found: later than others if its
    max.poll.interval.ms is longer, within half an hour.

    Args:
        present: the group now.
        events: its events, oldest first.
        patience_ms: ``group.stuck.offset.ms`` of its broker.
    """
    joins = _joins(present, events)
    limits = (poll_interval(each.software, each.rebalance_timeout_ms, each.session_ms) for each in joins)
    longest = max((limit for limit in limits if limit is not None), default=0)
    return max(patience_ms, round(min(longest, _LONGEST_BATCH_MS)))


def _joins(present: Present, events: Iterable[GroupEvent]) -> list[MemberJoined]:
    """The joins of the members."""
    here = {reader.member.member_id for reader in present.readers}
    return [each for each in events if isinstance(each, MemberJoined) and each.member.member_id in here]


def _comes_back(events: Sequence[GroupEvent], now_ms: int) -> bool:
    """Whether programs have run alone in the group, one after the other, and the next one is not overdue; or whether
    members have come back again and again soon after the last one had gone, as now."""
    findings = found.find(events)
    kinds = *found.OF_RUNS, found.CONSUMER_PER_CALL
    ends = (each for each in events if isinstance(each, Departure))
    alone = [each for each in ends if (about := findings.of_departures.get(id(each))) and about.kind in kinds]
    pauses = [later.time - earlier.time for earlier, later in pairwise(alone)]
    if pauses and now_ms - alone[-1].time <= 2 * max(pauses):
        return True
    empty_since: int | None = None
    gaps: list[int] = []
    for event in events:
        if isinstance(event, GroupEmpty):
            empty_since = event.time
        elif isinstance(event, MemberJoined) and empty_since is not None:
            gaps.append(event.time - empty_since)
            empty_since = None
    usual = sorted(gaps[-_LAST_GAPS:])
    if empty_since is None or len(usual) < _MANY_RESTARTS:
        return False
    return now_ms - empty_since <= _SOME_GAPS * usual[len(usual) // 2]


def examine_past(group: str, events: Iterable[GroupEvent], now_ms: int, since_ms: int) -> list[Diagnosis]:
    """Find out what was wrong with a group that is not known as it is now; arguments as of :func:`examine`."""
    return examine(Present(group, ""), events, now_ms, since_ms)


def examine_missing(group: str, events: Iterable[GroupEvent], now_ms: int, since_ms: int) -> list[Diagnosis]:
    """Find out why clients are not in a group that does not exist; arguments as of :func:`examine`."""
    kinds = NEVER_JOINED, found.GROUP_DELETED, *found.MAY_NOT_JOIN
    return [each for each in examine_past(group, events, now_ms, since_ms) if each.kind in kinds]


# What is wrong now


def _of_present(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    diagnoses: list[Diagnosis] = []
    group, readers = present.group, present.readers
    behind = sum(present.lags.values())
    diagnoses += _outside(present, events)
    for text, remedy in present.waits[:_MOST]:
        diagnoses.append(Diagnosis(group, "open_transaction", SICK, text, PROBABLE, remedy=remedy))
    if not readers:
        added = {
            (each.topic, number) for each in _growths(events) for number in range(each.before or 0, each.partitions)
        }
        unread = any(records and place in added for place, records in present.left_out.items())
        if (behind or unread) and present.state == "Empty" and present.had_members:
            diagnoses.append(_without_members(present, behind, events, now_ms))
        return diagnoses + left_out(present, events)
    if present.state not in ("Stable", "Assigning", "Reconciling"):
        return diagnoses
    subscribed = {topic for reader in readers for topic in reader.topics}
    diagnoses += _without_topic(present, subscribed, events, now_ms)
    created = _created(present.empty, events)
    new = {topic for each in events if now_ms - each.time <= _LATELY_MS for topic in _new_topics(each)}
    silent = sorted(topic for topic in subscribed & present.empty if topic not in new or topic in created)
    if silent:
        text = f"{_names(readers, set(silent))} {_verb(readers, set(silent))} to {words.listed(silent)},"
        created = [topic for topic in created if topic in silent]
        text += f" which {'has' if len(silent) == 1 else 'have'} no record"
        if created:
            text += (
                f", and {words.listed(created)} {words.were(len(created))} created automatically because it used the"
            )
            text += " name"
        text += f".{_did_you_mean(present, silent)}"
        remedy = "If records should come: look at the producer, and at the name of the topic."
        severity, sure = ODD, CERTAIN if present.alike.keys().isdisjoint(silent) else POSSIBLE
        if not present.alike.keys().isdisjoint(created):
            severity, sure = SICK, PROBABLE
            remedy = (
                "Correct the name in the subscription, and delete the topic without records. Nothing, if records are"
            )
            remedy += " to come there."
        diagnoses.append(Diagnosis(group, "empty_topic", severity, text, sure, remedy=remedy))
    diagnoses += without_topics(present, events)
    diagnoses += _unassigned(present, events, now_ms)
    diagnoses += _subscriptions(present)
    diagnoses += _most_of_lag(present, events, now_ms)
    idle = [reader for reader in readers if not reader.partitions]
    partitions = sum(present.topics.get(topic, 0) for topic in subscribed)
    if idle and present.state == "Stable" and len(readers) > partitions > 0:
        text = f"{len(idle)} of {words.count(len(readers), 'member')} have no partition:"
        text += f" there {words.were(partitions).replace('was', 'is').replace('were', 'are')}"
        text += f" {words.count(partitions, 'partition')}."
        stands_by = "it stands by" if len(idle) == 1 else "they stand by"
        remedy = f"Nothing, if {stands_by} for the others. Otherwise start {words.count(partitions, 'member')} at most,"
        remedy += f" or give the topics more partitions. {KEYS_MOVE}"
        diagnoses.append(Diagnosis(group, "too_many_members", ODD, text, CERTAIN, remedy=remedy))
    elif present.state == "Stable":
        diagnoses += _each_topic_alone(present)
    return diagnoses


def _without_topic(
    present: Present, subscribed: Collection[str], events: Iterable[GroupEvent], now_ms: int
) -> list[Diagnosis]:
    """Members that subscribe to topics that do not exist, or that were deleted. Clients follow that after a while."""
    missing = sorted(topic for topic in subscribed if topic not in present.topics)
    deleted = {each.topic: each for each in events if isinstance(each, TopicDeleted) and each.topic in missing}
    diagnoses: list[Diagnosis] = []
    unknown = [topic for topic in missing if topic not in deleted]
    if unknown:
        text = f"{_names(present.readers, set(unknown))} {_verb(present.readers, set(unknown))} to"
        text += f" {words.listed(unknown)}, which {'does' if len(unknown) == 1 else 'do'} not exist."
        text += _did_you_mean(present, unknown)
        remedy = "Create the topic, or correct its name in the subscription."
        diagnoses.append(Diagnosis(present.group, "no_topic", BROKEN, text, CERTAIN, remedy=remedy))
    for topic, event in list(deleted.items())[:_MOST]:
        if now_ms - event.time <= _FOLLOWS_MS:
            continue
        by = f" by {event.by_client}" if event.by_client else ""
        text = f"{_names(present.readers, {topic})} still {_verb(present.readers, {topic})} to {topic}, which was"
        text += f" deleted{by} at {words.moment(event.time)}."
        remedy = "Remove it from the subscription; or create it again, if it was deleted by mistake."
        diagnoses.append(Diagnosis(present.group, "no_topic", BROKEN, text, CERTAIN, remedy=remedy))
    return diagnoses


def _growths(events: Iterable[GroupEvent]) -> list[TopicChanged]:
    """The topics that have got more partitions, each with the number before."""
    return [each for each in events if isinstance(each, TopicChanged) and each.before]


def _unassigned(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Partitions that a topic has got, and that the leader of a classic group has not assigned."""
    owned = {place for reader in present.readers for place in reader.partitions}
    subscribed = {topic for reader in present.readers for topic in reader.topics}
    if present.has_epochs or present.state != "Stable":
        return []
    found: dict[str, tuple[TopicChanged, list[Partition]]] = {}
    for event in _growths(events):
        added = ((event.topic, number) for number in range(event.before or 0, event.partitions))
        places = [place for place in added if place not in owned and place not in present.committed]
        if places and event.topic in subscribed and event.partitions <= present.topics.get(event.topic, 0):
            first, earlier = found.get(event.topic, (event, []))
            found[event.topic] = first, sorted({*earlier, *places})
    return [
        _unassigned_in(present, event, places, events, now_ms)
        for event, places in list(found.values())[:_MOST]
        if now_ms - event.time >= _ASSIGNED_MS
    ]


def _unassigned_in(
    present: Present, grown: TopicChanged, places: Sequence[Partition], events: Sequence[GroupEvent], now_ms: int
) -> Diagnosis:
    """The partitions of a topic that has grown, and that are assigned to no member."""
    since, one = now_ms - grown.time, len(places) == 1
    records = sum(present.left_out.get(place, 0) for place in places)
    text = f"{words.partitions(by_topic(places))} {words.are(len(places))} assigned to no member since {grown.topic}"
    text += f" grew from {grown.before} to {present.topics[grown.topic]} partitions, {ms(since)} ago"
    text += f", and {words.count(records, 'record')} {'waits' if records == 1 else 'wait'} there" if records else ""
    last = next((each for each in reversed(events) if isinstance(each, JoinPhaseOver)), None)
    leader = None if last is None else last.leader
    who = "the leader of the group"
    if leader is not None:
        joined = (each for each in events if isinstance(each, MemberJoined) and each.member == leader)
        library = next((each.software for each in joined), "")
        who += f", {leader.name}{f' ({library})' if library else ''},"
    if since <= _FOLLOWS_MS:
        text += f". {words.capital(who)} assigns partitions in the classic protocol, and has probably not noticed the"
        text += " new ones yet: clients look for them every metadata.max.age.ms, 5 min by default."
        remedy = f"Wait until the leader has noticed {'it' if one else 'them'}. A lower metadata.max.age.ms"
        remedy += " (topic.metadata.refresh.interval.ms of librdkafka) makes that sooner; now, a restart of all members"
        remedy += " does. Where a member begins there, its auto.offset.reset decides: latest skips what waits."
        return Diagnosis(present.group, UNASSIGNED, ODD, text, PROBABLE, remedy=remedy)
    rebalances = sum(isinstance(each, RebalanceOver) and each.time > grown.time for each in events)
    again = f"{words.count(rebalances, 'rebalance')} {words.were(rebalances)} over since then"
    text += f". {words.capital(again)}, and {who} has left {'it' if one else 'them'} out, for longer than clients keep"
    text += f" their metadata by default{f' (assignor {present.assignor})' if present.assignor else ''}."
    remedy = "If these are to be read: look whether its metadata.max.age.ms (topic.metadata.refresh.interval.ms of"
    remedy += " librdkafka) is longer, and at its assignor; or restart all members. Nothing, if its assignor leaves"
    remedy += " partitions out on purpose (`--ignore unassigned`)."
    return Diagnosis(present.group, UNASSIGNED, ODD, text, CERTAIN, remedy=remedy)


def _new_topics(event: GroupEvent) -> Collection[str]:
    """The topics that were created shortly before an event."""
    if isinstance(event, TopicChanged):
        return () if event.before else (event.topic,)
    return (event.new_topics or ()) if isinstance(event, SubscriptionChanged) else ()


def _did_you_mean(present: Present, topics: Iterable[str]) -> str:
    """The topics of nearly these names that have records, as a question after a space; "" if there are none."""
    meant = [present.alike[topic] for topic in topics if topic in present.alike]
    if not meant:
        return ""
    return f" Did you mean {words.listed(meant)}, which {'has' if len(meant) == 1 else 'have'} records?"


def _created(topics: Iterable[str], events: Iterable[GroupEvent]) -> list[str]:
    """Those topics that were created because a member has used their names."""
    about = (each for each in events if isinstance(each, RebalanceOver | TargetAssigned | SubscriptionChanged))
    return sorted({topic for each in about for topic in each.own_topics or ()}.intersection(topics))


def _each_topic_alone(present: Present) -> list[Diagnosis]:
    """Members without a partition, to which the assignor could give one of those that another member has."""
    if present.assignor != _RANGE:
        return []
    to_spare = {topic for each in present.readers if len(each.partitions) > 1 for topic, _ in each.partitions}
    idle = [each for each in present.readers if not each.partitions and each.topics & to_spare]
    if not idle:
        return []
    are_epochs = present.has_epochs
    owned = sum(len(each.partitions) for each in present.readers)
    text = f"{len(idle)} of {words.count(len(present.readers), 'member')} have no partition, though there are"
    text += f" {owned} ({words.names_of(each.member for each in idle)}): the assignor {_RANGE} assigns each topic"
    text += " alone, so that the first members get the partitions of all small topics."
    remedy = "Use an assignor that assigns all topics together: "
    remedy += (
        "group.remote.assignor=uniform."
        if are_epochs
        else f"{TOGETHER}. All members need the new one: add it before the old one, restart all of them, then remove"
        " the old one and restart them again."
    )
    return [Diagnosis(present.group, "topics_apart", ODD, text, CERTAIN, remedy=remedy)]


def _without_members(present: Present, behind: int, events: Sequence[GroupEvent], now_ms: int) -> Diagnosis:
    """A group whose last member is gone, and that has records to read: a client may read them without membership."""
    group, others = present.group, {place: records for place, records in present.left_out.items() if records}
    text = f"{group} has no members, and {words.count(behind, 'record')} to read"
    if others:
        text += f", and {words.count(sum(others.values()), 'record')} in"
        text += f" {words.count(len(others), 'partition')} without a committed offset"
        text += (
            f" ({words.partitions(by_topic(list(others)[:_MOST]))}{', ...' if len(others) > _MOST else ''}), of which"
        )
        text += " its auto.offset.reset decides"
    gone: Departure | None = None
    outsider: OffsetsAltered | None = None
    refused: CommitsRefused | None = None
    for event in events:
        if isinstance(event, CommitsRefused) and event.is_lasting:
            refused = event
        elif isinstance(event, Departure):
            gone, outsider = event, None
        elif isinstance(event, OffsetsAltered) and event.by_client and not (gone and event.is_late(gone)):
            outsider = event
    if outsider is not None:
        text += f"; {outsider.by_client}, which is not a member, committed at {words.moment(outsider.time)}"
        remedy = "Start a member, unless that client still reads, with assign()."
        if outsider.transactional_id is None:
            text += "."
        else:
            text += f", in transactions of {outsider.transactional_id}."
            remedy = "Start a member, unless that client still reads, with assign() or as a member of another group."
        return Diagnosis(group, NO_MEMBERS, ODD, text, POSSIBLE, remedy=remedy)
    if gone is not None and refused is not None and gone.has_committed_before(refused):
        why, how = refused.sentence()
        remedy = f"{how or 'Look why its commits are refused.'} Then start a member."
        last = f"The last one was {gone.name}, until {words.moment(gone.time)}."
        return Diagnosis(group, NO_MEMBERS, BROKEN, f"{text}.", CERTAIN, (last, why), remedy)
    connected = _connected(events)
    if connected:
        one = len(connected) == 1
        last = f"{words.names_of(connected)} {words.were(len(connected))} among the last ones, and"
        last += f" {'its connection is' if one else 'their connections are'} still open: {'its' if one else 'their'}"
        last += f" {'program' if one else 'programs'} probably still {'runs' if one else 'run'}."
        remedy = "Do not start it a second time: look why it is not a member any more, and restart it if it does not"
        remedy += " join again by itself."
        return Diagnosis(group, NO_MEMBERS, BROKEN, f"{text}.", CERTAIN, (last,), remedy)
    runs = found.find(events).runs
    if gone is not None and runs and runs[-1].end is gone:
        return _after_runs(group, f"{text}.", runs, now_ms)
    ended = () if gone is None else (f"The last one was {gone.name}, until {words.moment(gone.time)}.",)
    most = max((each.members or 0 for each in events if isinstance(each, RebalanceOver | TargetAssigned)), default=0)
    remedy = f"{_START}." if most > 1 else "Start a member."
    return Diagnosis(group, NO_MEMBERS, BROKEN, f"{text}.", CERTAIN, ended, remedy)


def _connected(events: Iterable[GroupEvent]) -> list[Member]:
    """The members that are gone, and whose connections are still open."""
    connected: dict[str | None, Member] = {}
    for event in events:
        if isinstance(event, Departure) and event.connection == "open":
            connected[event.member.member_id] = event.member
        elif isinstance(event, MemberDisconnected):
            connected.pop(event.member.member_id, None)
        elif isinstance(event, MemberJoined):
            connected.pop(event.old_member_id, None)
        elif isinstance(event, GroupLoaded):
            connected.clear()
    return list(connected.values())


#: What to do about a group without members, if these are to be there all the time.
_START: Final = "If its program should run all the time: start it, and look what stops it"


def _after_runs(group: str, text: str, runs: Sequence[Run], now_ms: int) -> Diagnosis:
    """A group with records to read whose last member was alone, and stopped by itself: perhaps a scheduled job."""
    last = runs[-1]
    were = f"The last one was {last.end.name}: it was"
    if last.members > 1:
        were = f"The last ones were {last.members} members with the client id {last.end.member.client_id}: they were"
    evidence = f"{were} alone in the group for {ms(last.took_ms)}, and {words.were(last.members)} closed at"
    evidence += f" {words.moment(round(last.ended_at))}"
    severity, sure = BROKEN, CERTAIN
    remedy = f"{_START}. If it is a job that runs now and"
    if len(runs) == 1:
        evidence += "."
        remedy += " then: nothing, its next run reads them."
    else:
        pause = max(after.joined.time - before.ended_at for before, after in pairwise(runs))
        has = "It has" if last.members == 1 else "They have"
        evidence += f". {has} run {words.times(len(runs))}, with pauses of up to {ms(pause)}."
        remedy += " then: look whether the next run is late."
        if now_ms - last.ended_at <= 2 * pause:
            severity, sure = ODD, POSSIBLE
    return Diagnosis(group, NO_MEMBERS, severity, text, sure, (evidence,), remedy)


def left_out(present: Present, events: Iterable[GroupEvent]) -> list[Diagnosis]:
    """Find the partitions that a program with ``assign()`` does not read, because their topic has probably grown.

    Args:
        present: the group now.
        events: its events, oldest first.
    """
    diagnoses: list[Diagnosis] = []
    if present.had_members or present.readers:
        return diagnoses
    # One offset may have been set by hand.
    least = 1 if any(isinstance(event, OffsetsAltered) and event.commits_on for event in events) else 2
    for topic in sorted({topic for topic, _ in present.left_out}):
        committed = sorted(each for each in present.committed if each[0] == topic)
        others = {place: records for place, records in present.left_out.items() if place[0] == topic}
        records, lag = sum(others.values()), sum(present.lags.get(each, 0) for each in committed)
        # A program that was given some of the partitions on purpose, or that is gone, has others.
        numbers = [number for _, number in committed]
        if not records or lag >= records or len(numbers) < least or numbers != list(range(len(numbers))):
            continue
        which = words.partitions(by_topic(others))
        text = f"Probably no program of {present.group} reads {which}: the group has no members, and committed offsets"
        text += f" of {words.partitions(by_topic(committed))} only, while {words.count(records, 'record')}"
        text += (
            f" {'waits' if records == 1 else 'wait'} in {'it' if len(others) == 1 else 'them'}. A program that reads"
        )
        text += f" with assign() keeps its list of partitions when its topic grows; {topic} has"
        text += f" {words.count(len(committed) + len(others), 'partition')} now."
        remedy = (
            "Use subscribe(), which follows the topic, or assign() all of its partitions, and look for new ones now and"
            " then. Nothing, if another group is to read these."
        )
        diagnoses.append(Diagnosis(present.group, "left_out", ODD, text, PROBABLE, remedy=remedy))
    return diagnoses[:_MOST]


def _lags(present: Present) -> Lags:
    """The lag of a group by member."""
    lags = Lags()
    for reader in present.readers:
        for place in reader.partitions:
            lags.add(reader.member, place, present.lags.get(place, 0))
    for place in present.lags.keys() - {place for reader in present.readers for place in reader.partitions}:
        lags.add(None, place, present.lags[place])
    return lags


def _most_of_lag(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """One partition has nearly all records that are not consumed, though its topic has others; or one member has."""
    lags = _lags(present)
    most = lags.most()
    if most is None or lags.total < _MANY_RECORDS:
        return []
    of_all = f"{most.lag:,} of the {lags.total:,} records that {present.group} has not consumed"
    if most.is_hot:
        topic, number = most.partitions[0]
        text, name = f"{topic}-{number} has {of_all}", _named(present, most.member).name
        ends = {place: at + present.lags.get(place, 0) for place, at in present.committed.items() if place[0] == topic}
        end, written = ends.get((topic, number), 0), sum(ends.values())
        if len(ends) == present.topics.get(topic) and end >= written * MOST_OF:
            text += (
                f": {end:,} of the {written:,} records that were ever written to {topic} came there. {name} owns it,"
            )
            text += f" and its committed offset is {present.committed[topic, number]:,}."
            remedy = f"{SPREAD_KEYS} If the committed offset does not move: look where the program of {name} stands."
            return [Diagnosis(present.group, "hot_partition", ODD, text, CERTAIN, remedy=remedy)]
        text += f", and the topic has {present.topics.get(topic, 0)} partitions; {name} owns it."
        return [Diagnosis(present.group, "hot_partition", ODD, text, CERTAIN, remedy=HOT_PARTITION)]
    back = (each for each in reversed(events) if isinstance(each, MemberRewound) and now_ms - each.time <= _REPLAYS_MS)
    if most.member is not None and any(each.member.common_name == most.member.common_name for each in back):
        return []  # It works through records that it reads again.
    name = _named(present, most.member).name
    text = f"The partitions of {name} have {of_all} ({words.partitions(by_topic(most.partitions))}), and it is a"
    text += " member: it is probably slow or stuck, or it has paused them."
    remedy = (
        f"Look at its log, and whether its offsets move (barnabas groups describe {quote(present.group)}); whether the"
        " program resumes partitions that it pauses (pause, resume); whether a quota limits it (barnabas quotas list)."
    )
    return [Diagnosis(present.group, "slow_member", ODD, text, PROBABLE, remedy=remedy)]


def _named(present: Present, member: Member | None) -> Member:
    """A member with the end of its id in its name, if others have the same name."""
    if member is None:
        return Member(None, "no member")
    others = sum(each.member.name == member.name for each in present.readers if each.partitions)
    return found.Distinct(*member) if others > 1 else member


def _outside(present: Present, events: Sequence[GroupEvent]) -> list[Diagnosis]:
    """Committed offsets outside of their logs: a member that starts there starts at its auto.offset.reset."""
    diagnoses: list[Diagnosis] = []
    owners = {place: reader.member for reader in present.readers for place in reader.partitions}
    refused = {(event.topic, event.partition, event.offset) for event in events if isinstance(event, FetchOutOfRange)}
    before: dict[tuple[str | None, bool], list[Partition]] = {}
    for place, (committed, start, end) in sorted(present.outside.items()):
        if committed < start:
            owner = owners.get(place)
            is_lost = owner is None or (*place, committed) in refused
            before.setdefault((None if owner is None else owner.member_id, is_lost), []).append(place)
        elif len(diagnoses) < _MOST:
            text = f"The committed offset of {place[0]}-{place[1]} is {committed}, and its log ends at {end}: there is"
            text += " no such record"
            by = _committer(events, place, committed)
            text += f"; {by}." if by else "."
            remedy = (
                "Look which it was: a member committed more than it has read (of each partition the last offset plus"
                " one is right), the topic was created again, or its end was lost. Then set the offsets anew (barnabas"
                " groups reset-offsets): a member that starts there starts at its auto.offset.reset."
            )
            diagnoses.append(Diagnosis(present.group, "offset_out_of_range", SICK, text, CERTAIN, remedy=remedy))
    for (_, is_lost), places in list(before.items())[:_MOST]:
        diagnoses.append(_before_log(present, places, is_lost=is_lost))
    return diagnoses


def _before_log(present: Present, places: Sequence[Partition], *, is_lost: bool) -> Diagnosis:
    """Committed offsets before the beginning of the log, of partitions of one member, or of none.

    Args:
        present: the group now.
        places: the partitions.
        is_lost: whether the records before the log were deleted before a member fetched them.
    """
    outside = {place: present.outside[place] for place in places}
    deleted = sum(start - committed for committed, start, _ in outside.values())
    if len(places) == 1:
        ((topic, partition), (committed, start, _)), *_ = outside.items()
        text = f"The committed offset of {topic}-{partition} is {committed}, and its log begins at {start}:"
    else:
        named = [
            f"{topic}-{partition} at {committed}, and the log begins at {start}"
            for (topic, partition), (committed, start, _) in list(outside.items())[: words.MAX_NAMED]
        ]
        if len(places) > len(named):
            named.append(words.count(len(places) - len(named), "more partition"))
        text = f"The committed offsets of {words.partitions(by_topic(places))} are before the beginning of their logs"
        text += f" ({'; '.join(named)}):"
    known = words.count(deleted, "record")
    text += f" {known} {words.were(deleted)} deleted before the group committed them." if is_lost else ""
    if not is_lost:
        text += f" {known} before that may be lost, unless its member had fetched them before they were deleted."
    remedy = (
        f"{WHY_DELETED} A member that starts there starts at its auto.offset.reset: latest skips all records, and with"
        " none (error with librdkafka) it reads nothing until the offsets are set anew (barnabas groups"
        " reset-offsets)."
    )
    sure = CERTAIN if is_lost else POSSIBLE
    return Diagnosis(present.group, "offset_out_of_range", SICK, text, sure, remedy=remedy)


def _committer(events: Sequence[GroupEvent], place: Partition, offset: int) -> str | None:
    """The client that committed an offset last, in words; None if that is not recorded."""
    for event in reversed(events):
        if isinstance(event, CommitsBeyondEnd):
            by, found = event.committer, [each[:3] for each in event.beyond]
        elif isinstance(event, OffsetsAltered) and event.by_client:
            by = f"{event.by_client}, which is not a member,"
            found = [(each.topic, each.partition, each.after or 0) for each in event.changes or ()]
        else:
            continue
        if (*place, offset) in found:
            return f"{by} committed it at {words.moment(event.time)}"
    return None


def without_topics(present: Present, events: Iterable[GroupEvent]) -> list[Diagnosis]:
    """Find members that subscribe to no topic, and those whose regular expression matches none.

    Args:
        present: the group now.
        events: its events, oldest first.
    """
    last = {event.regex: event.topics for event in events if isinstance(event, RegexResolved)}
    are_idle = present.state == "Stable" and not any(reader.partitions for reader in present.readers)
    by_regex: dict[str, list[Reader]] = {}
    for reader in present.readers:
        if reader.is_known and not reader.topics:
            by_regex.setdefault(reader.regex, []).append(reader)
    diagnoses = []
    for regex, idle in by_regex.items():
        one = len(idle) == 1
        text = words.names_of(reader.member for reader in idle)
        text += " is a member" if one else " are members"
        matched = last.get(regex) if idle[0].matched is None else idle[0].matched
        sure = CERTAIN
        if not regex:
            text += f", and {'subscribes' if one else 'subscribe'} to no topic: {'it reads' if one else 'they read'}"
            text += " nothing. Clients whose pattern matches no topic do so."
            remedy = "Correct the list of topics or the pattern"
        else:
            if matched is None and are_idle:
                sure = PROBABLE
            elif matched != 0:
                continue
            text += f", and {'its' if one else 'their'} regular expression {regex[:_MOST_CHARACTERS]}"
            text += f"{' probably' if sure == PROBABLE else ''} matches no topic: {'it reads' if one else 'they read'}"
            text += " nothing."
            remedy = "Correct the regular expression: it has to match the whole name of a topic"
        remedy += "; or create the topic. Patterns match only topics that the member's user may describe (barnabas acls"
        remedy += " list)."
        # Not sick: the topics may come later.
        diagnoses.append(Diagnosis(present.group, "no_subscription", ODD, text, sure, remedy=remedy))
    return diagnoses[:_MOST]


def _subscriptions(present: Present) -> list[Diagnosis]:
    """Members whose topics have nothing in common are probably two programs."""
    by_topics: dict[frozenset[str], list[Member]] = {}
    for reader in present.readers:
        if reader.topics:
            by_topics.setdefault(reader.topics, []).append(reader.member)
    sets = list(by_topics)
    if len(sets) < 2 or any(one & other for at, one in enumerate(sets) for other in sets[at + 1 :]):
        return []
    parts = [f"{words.names_of(members)} to {words.listed(sorted(topics))}" for topics, members in by_topics.items()]
    text = f"Probably different programs share the group id {present.group}: {'; '.join(parts[:_MOST])} subscribed."
    remedy = "Give each program a group.id of its own: each rebalance stops all of them."
    return [Diagnosis(present.group, "different_subscriptions", SICK, text, PROBABLE, remedy=remedy)]


def _names(readers: Sequence[Reader], topics: set[str]) -> str:
    return words.names_of(reader.member for reader in readers if reader.topics & topics)


def _verb(readers: Sequence[Reader], topics: set[str]) -> str:
    return "subscribes" if sum(bool(reader.topics & topics) for reader in readers) == 1 else "subscribe"


# What has happened lately


def _of_members(
    present: Present, events: list[GroupEvent], now_ms: int, since_ms: int, storms: Sequence[Diagnosis]
) -> list[Diagnosis]:
    """Findings about members, and the storms, with those of these that are their causes."""
    findings = found.find(events)
    cases: dict[tuple[str, str], list[tuple[MemberEvent, Finding]]] = {}
    waiting: dict[str | None, MemberDisconnected] = {}
    closed_at: dict[str | None, int] = {}
    for event in events:
        if isinstance(event, GroupLoaded):
            waiting.clear()  # The broker that closed the connections is gone.
        if isinstance(event, MemberDisconnected) and event.gone_ago_ms is None:
            member_id, last = event.member.member_id, closed_at.get(event.member.member_id)
            closed_at[member_id] = event.time
            # One that connects again and again probably has done so now, too.
            if last is None or event.time - last > _LATELY_MS:
                waiting[member_id] = event
            else:
                waiting.pop(member_id, None)
        elif isinstance(event, MemberReconnected):
            waiting.pop(event.member.member_id, None)
        if not isinstance(event, MemberEvent) or event.time < since_ms:
            continue
        finding = findings.of_departures.get(id(event))
        if finding is not None and not (finding.kind in _UNTIL_BACK and _is_back(event, events, present)):
            name = findings.first(finding.member) if finding.kind == found.SLOW_POLL else finding.member.common_name
            cases.setdefault((finding.kind, name or ""), []).append((event, finding))
        elif isinstance(event, MemberJoined):
            waiting.pop(event.member.member_id, None)
    # A static member that is away between two runs has done its work.
    runs = {each.member[1:] for each in findings.of_departures.values() if each.kind in found.OF_RUNS}
    waiting = {member_id: event for member_id, event in waiting.items() if event.member[1:] not in runs}
    for event in events:
        if isinstance(event, MemberAway) and findings.about(event) is not None:
            waiting.pop(event.member.member_id, None)  # That finding says why.
    diagnoses = []
    for (kind, _), of_kind in cases.items():
        severity = _OF_FINDINGS.get(kind)
        if kind == found.RESTARTED and len(of_kind) >= _MANY_RESTARTS:
            severity = ODD
        if severity is None:
            continue
        newest, worst = of_kind[-1][0], max((finding for _, finding in of_kind), key=lambda each: each.gap_ms or 0)
        # A finding about several events has counted.
        cases_of_kind = len({id(finding) for _, finding in of_kind})
        often = () if cases_of_kind == 1 else (f"This happened {words.times(cases_of_kind)}, this was the worst time.",)
        text = f"{worst.text}."
        diagnoses.append(Diagnosis(present.group, kind, severity, text, worst.sure, often, worst.remedy, newest.time))
    away = {event.member.member_id for event in events if isinstance(event, MemberAway)}
    return _together(_with_storms(diagnoses, storms)) + _of_silence(present, waiting, away, now_ms)


def _with_storms(diagnoses: list[Diagnosis], storms: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Diagnoses of members and storms. What a storm tells as its cause is no diagnosis of its own."""
    for storm in storms:
        last = (storm.time or 0) + _LATE_MS
        causes = [each for each in diagnoses if storm.says(each.text) and (each.time or 0) <= last]
        others = [each for each in diagnoses if each not in causes]
        diagnoses = [*others, replace(storm, causes=frozenset(each.kind for each in causes))]
    return diagnoses


def _together(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Diagnoses of members with one in place of several that differ only in the member."""
    alike: dict[tuple[str, str | None], list[Diagnosis]] = {}
    for each in diagnoses:
        alike.setdefault((each.kind, each.remedy), []).append(each)
    together = []
    for same in alike.values():
        newest = max(same, key=lambda each: each.time or 0)
        others = sorted((each for each in same if each is not newest), key=lambda each: -(each.time or 0))
        if others:
            since = words.clock(min(each.time or 0 for each in others))
            more = f"The same of {words.count(len(others), 'more member')} since {since}:"
            said = tuple(each.text for each in others[:_MOST])
            newest = replace(newest, evidence=(*newest.evidence, more, *said))
        together.append(newest)
    return together


def _of_late_members(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Members that rejoin late, so that their group waits."""
    diagnoses = []
    for late in late_members(event for event in events if event.time >= since_ms):
        waits = late.all_waits
        if len(waits) >= _MANY_WAITS or max(waits) >= _LONG_WAIT_MS:
            since = "" if len(waits) == 1 else f" since {words.clock(late.since)}"
            text = f"{late.text}{since}."
            remedy = DOES_NOT_POLL if late.hangs else OTHERS_WAIT
            diagnoses.append(Diagnosis(present.group, LATE_MEMBER, SICK, text, CERTAIN, (), remedy, late.until))
    return diagnoses


def _of_heard_late(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Members that hear of rebalances late, again and again, as their heartbeats are seldom."""
    heard = heard_late(events, since_ms)
    if heard is None:
        return []
    severity = SICK if heard.all_wait else ODD
    return [Diagnosis(present.group, HEARD_LATE, severity, heard.text, PROBABLE, (), heard.remedy, heard.until)]


def _under_way(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """A rebalance of the classic protocol that takes long, and is not over."""
    last = next((each for each in reversed(events) if isinstance(each, RebalanceStarted | RebalanceOver)), None)
    if present.state not in _UNDER_WAY or not isinstance(last, RebalanceStarted) or now_ms - last.time < _LONG_MS:
        return []
    what, remedy = _UNDER_WAY[present.state]
    severity, sure, evidence = SICK, CERTAIN, tuple[str, ...]()
    awaited = awaited_now(events)
    if awaited and present.state == "PreparingRebalance":
        # Those that have heard of it, or should have, are worse.
        first, *others = sorted(awaited, key=lambda each: each.has_not_heard)
        what = f"it waits for {first.name}, which {first.state(now_ms)}"
        evidence = tuple(f"It waits for {each.name}, too, which {each.state(now_ms)}." for each in others)
        if first.others and GOES_ON not in (first.protocol or ""):
            severity = SICK if first.has_not_heard else BROKEN
            waiting = "1 member waits" if first.others == 1 else f"{first.others} members wait"
            what += f". Meanwhile {waiting}, and read nothing"
        remedy = (
            f"{DOES_NOT_POLL} The rebalance goes on when it rejoins, leaves or misses its session, at the latest"
            f" {ms(first.rebalance_timeout_ms)} after it began."
        )
        if first.has_not_heard:
            sure = PROBABLE
            remedy = SELDOM_HEARTBEATS if all(each.goes_on for each in awaited) else MAYBE_SELDOM
            if any(each.is_overdue(now_ms) for each in awaited):
                remedy += f" If it does not rejoin at its next heartbeat: {DOES_NOT_POLL[0].lower()}{DOES_NOT_POLL[1:]}"
    leader = _leader_that_is_gone(events)
    if leader is not None and present.state == "CompletingRebalance":
        session = "" if leader.session_ms is None else f" of {ms(leader.session_ms)}"
        what = f"all members have joined, and wait for the assignment by {leader.name}, whose connection was closed at"
        what += f" {words.clock(leader.time)}: it probably crashed or was killed, and is removed when its"
        what += f" session{session} is over"
        remedy = "Look why its process ended: its last lines of log, kill -9, out of memory, or an error at its start."
    text = f"A rebalance has been under way for {ms(now_ms - last.time)}: {what}."
    return [Diagnosis(present.group, REBALANCING, severity, text, sure, evidence, remedy)]


def _leader_that_is_gone(events: Sequence[GroupEvent]) -> MemberDisconnected | None:
    """The end of the connection of the leader that has to assign, if it has not connected again; None if it has one."""
    closed: dict[str | None, MemberDisconnected] = {}
    leader: Member | None = None
    for event in events:
        if isinstance(event, RebalanceStarted):
            leader = None
        elif isinstance(event, JoinPhaseOver):
            leader = event.leader
        elif isinstance(event, MemberDisconnected) and event.gone_ago_ms is None:
            closed[event.member.member_id] = event
        elif isinstance(event, MemberReconnected):
            closed.pop(event.member.member_id, None)
    return None if leader is None else closed.get(leader.member_id)


def _is_back(gone: MemberEvent, events: Iterable[GroupEvent], present: Present) -> bool:
    """Whether the program of a member that fell silent, or might not join, has joined since then, and is a member."""
    silent_since = gone.time - getattr(gone, "heard_ago_ms", 0)
    here = {reader.member.member_id for reader in present.readers}
    return any(
        isinstance(event, MemberJoined)
        and event.time >= silent_since
        and event.member.common_name == gone.member.common_name
        and event.member.member_id in here
        for event in events
    )


def _of_offsets(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Members that do not get on, or read without committing, as far as that is still so."""
    newest: dict[tuple[object, ...], OffsetsStuck | NothingCommitted | NothingFetched] = {}
    refused: dict[str | None, CommitsRefused] = {}
    of_positions: dict[tuple[str | None, Position], OffsetsStuck | BrokerNotReached] = {}
    for event in completed(events):
        if isinstance(event, CommitsRefused):
            refused[event.member.member_id] = event
        if isinstance(event, BrokerNotReached):
            places = ((behind.member.member_id, each) for behind in event.behind for each in behind.positions)
            of_positions |= dict.fromkeys(places, event)
        if isinstance(event, OffsetsStuck):
            of_positions |= dict.fromkeys(((event.member.member_id, each) for each in event.positions), event)
        if isinstance(event, OffsetsStuck | NothingCommitted | NothingFetched):
            key = event.positions if isinstance(event, OffsetsStuck) else ()
            newest[event.member.member_id, key] = event
    owned = {reader.member.member_id: reader.partitions for reader in present.readers}
    last_records: dict[str | None, OffsetsStuck] = {}
    of_refused: dict[str | None, OffsetsStuck] = {}
    diagnoses = []
    for event in newest.values():
        has = owned.get(event.member.member_id, frozenset())
        if isinstance(event, NothingFetched):
            # It is reported again when it has lasted twice as long.
            is_over = now_ms - event.time > event.stood_ms + _LATE_MS
            left = partitions_of(event.partitions) & has - present.committed.keys()
            if not is_over and left and (event.fetches_others or not present.committed):
                severity = SICK if event.fetches_others else BROKEN
                text, remedy = event.changed(partitions=by_topic(left)).sentence()
                diagnoses.append(
                    Diagnosis(present.group, "nothing_fetched", severity, text, PROBABLE, (), remedy, event.time)
                )
            continue
        if isinstance(event, NothingCommitted):
            left = partitions_of(event.partitions) & has - present.committed.keys()
            if left and (event.only_committed is not None or not present.committed):
                text, remedy = event.changed(partitions=by_topic(left)).sentence()
                kind, severity, sure = "nothing_committed", ODD, PROBABLE if event.fetches_ahead else CERTAIN
                if event.written is not None:
                    sure = POSSIBLE
                if event.only_committed is not None:
                    severity, sure = (ODD, POSSIBLE) if event.fetches_ahead else (SICK, PROBABLE)
                if event.refused is not None:
                    severity = SICK
                elif event.aborts:
                    kind, severity, sure = _stuck(is_proven=True)
                elif event.offset is not None:
                    kind, severity, sure = _stuck(is_proven=not event.may_wait)
                elif event.other_group is not None:
                    severity, sure = SICK, PROBABLE
                diagnoses.append(
                    Diagnosis(present.group, kind, severity, text, sure, (), remedy, event.time, event=event)
                )
            continue
        # The newest event about an offset counts.
        member_id = event.member.member_id
        stuck = tuple(each for each in _standing(present, event) if of_positions[member_id, each] is event)
        if not stuck:
            continue
        if event.is_last_record:
            last = event.changed(positions=stuck, records=len(stuck))
            known_last = last_records.get(event.member.member_id)
            last_records[event.member.member_id] = last if known_last is None else known_last.with_later(last)
            continue
        event = event.changed(positions=stuck)
        if event.refused is not None:
            known = refused.get(event.member.member_id, event.refused)
            stood_ms = event.stood_ms + now_ms - event.time
            # One cause, of whatever partitions.
            other = of_refused.get(event.member.member_id)
            if other is not None:
                stuck, stood_ms = (*other.positions, *stuck), min(stood_ms, other.stood_ms)
            records = sum(present.lags[each[:2]] for each in stuck)
            event = event.changed(positions=tuple(sorted(stuck)), refused=known, stood_ms=stood_ms, records=records)
            of_refused[event.member.member_id] = event
            continue
        text, remedy = event.sentence()
        kind, severity, sure = _stuck(is_proven=event.is_proven)
        if event.is_intruder or event.hangs:
            severity, sure = SICK, POSSIBLE if event.hangs and event.is_read_up else PROBABLE
        diagnoses.append(Diagnosis(present.group, kind, severity, text, sure, (), remedy, event.time, event=event))
    for event in of_refused.values():
        text, remedy = event.sentence()
        diagnoses.append(
            Diagnosis(present.group, NOT_COMMITTED, SICK, text, CERTAIN, (), remedy, event.time, event=event)
        )
    for event in last_records.values():
        text, remedy = event.sentence()
        sure = PROBABLE if len(event.positions) > 1 else POSSIBLE
        diagnoses.append(Diagnosis(present.group, NOT_COMMITTED, ODD, text, sure, (), remedy, event.time, event=event))
    said = {each.member.member_id for each in newest.values()}
    for member_id, each in refused.items():
        # When it has lasted for longer, what stands still because of it is a finding.
        if each.is_lasting and member_id in owned.keys() - said and now_ms - each.time <= _LATELY_MS:
            text, remedy = each.sentence()
            diagnoses.append(
                Diagnosis(present.group, NOT_COMMITTED, SICK, text, CERTAIN, (), remedy, each.time, event=each)
            )
    return diagnoses


def _of_unreached(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Members that do not reach a broker, as far as offsets of the partitions that it leads have not moved."""
    newest = {event.broker: event for event in events if isinstance(event, BrokerNotReached)}
    diagnoses = []
    for event in newest.values():
        behind = []
        for each in event.behind:
            left = _left(present, each.member, each.positions)
            if left:
                lag = sum(present.lags[place[:2]] for place in left)
                stood_ms = (each.stood_ms or 0) + now_ms - event.time
                behind.append(MemberLag(each.member, lag, left, stood_ms))
        if behind:
            event = event.changed(behind=tuple(behind))
            severity, sure = (BROKEN, PROBABLE) if event.is_alike else (SICK, POSSIBLE)
            text, remedy = event.sentence()
            diagnoses.append(
                Diagnosis(present.group, NOT_REACHED, severity, text, sure, (), remedy, event.time, event=event)
            )
    return diagnoses


def _stuck(*, is_proven: bool) -> tuple[str, int, str]:
    """The kind, the severity and how sure it is, of a member that does not get on, or perhaps."""
    return (STUCK, BROKEN, PROBABLE) if is_proven else (NOT_COMMITTED, ODD, POSSIBLE)


def _standing(present: Present, event: OffsetsStuck) -> tuple[Position, ...]:
    """The offsets of a member that have not moved since they were reported."""
    return _left(present, event.member, event.positions)


def _left(present: Present, member: Member, positions: Iterable[Position]) -> tuple[Position, ...]:
    """Those of some partitions that a member still has, with records, and of which the offsets have not moved."""
    has = next((each.partitions for each in present.readers if each.member.member_id == member.member_id), ())
    return tuple(
        each
        for each in positions
        if each[:2] in has and present.committed.get(each[:2], _NONE) == each.offset and present.lags.get(each[:2])
    )


def _of_lag(
    present: Present, events: Sequence[GroupEvent], now_ms: int, others: Iterable[Diagnosis]
) -> list[Diagnosis]:
    """A group that consumes less than is written, as far as that is still so.

    Args:
        present: the group now.
        events: its events, oldest first.
        now_ms: the time, in ms since 1970.
        others: what else is wrong with it.
    """
    event = next((each for each in reversed(events) if isinstance(each, LagGrows)), None)
    kinds = {each.kind for each in others}
    # A member that does not get on says why the lag grows.
    if event is None or not present.readers or STUCK in kinds:
        return []
    passed, lag = now_ms - event.time, sum(present.lags.values())
    expected = (event.lag - event.lag_before) * (1 + passed / event.took_ms)
    # It is reported again when it has lasted twice as long.
    if passed > event.took_ms + _LATE_MS or lag - event.lag_before < expected * _STILL:
        return []
    about = OffsetsStuck | BrokerNotReached
    stuck = {place for each in events if isinstance(each, about) for place in each.positions}
    standing = {each[:2] for each in stuck if present.committed.get(each[:2]) == each.offset}
    gone = _gone(others)
    standing |= {place for each in present.readers if each.member.member_id in gone for place in each.partitions}
    if not event.throttled and sum(present.lags.get(each, 0) for each in standing) >= lag * MOST_OF:
        return []  # The group keeps up with what is written elsewhere.
    now = _as_now(event, present, now_ms)
    text, remedy = now.sentence()
    if not now.throttled and any(each.severity >= SICK for each in others):
        then = f"Then: {remedy}" if now.behind else "Then look whether the lag still grows."
        remedy = f"Mend first what else is wrong with the group, which takes time from its members. {then}"
    evidence = () if now.lag_now is not None else (f"The lag is {lag:,} now.",)
    sure = PROBABLE if event.throttled else CERTAIN
    return [Diagnosis(present.group, LAG_GROWS, SICK, text, sure, evidence, remedy, event.time, event=event)]


def _unread_topics(present: Present) -> frozenset[str]:
    """The topics with records to read to which no member subscribes, if it is known to what all of them do."""
    readers = present.readers
    read = frozenset[str]().union(*(each.topics for each in readers))
    if not read or any(each.regex or not each.is_known for each in readers):
        return frozenset()
    return frozenset(topic for topic, _ in present.lags) - read


def _of_left_topics(present: Present, events: Iterable[GroupEvent]) -> list[Diagnosis]:
    """Topics that members have removed from their subscriptions, and no member reads any more, while records wait."""
    here = {each.member.member_id for each in present.readers}
    unread = _unread_topics(present)
    removed: dict[str, SubscriptionChanged] = {}
    for event in events:
        if isinstance(event, SubscriptionChanged) and event.member.member_id in here:
            removed.update((topic, event) for topic in event.removed or () if topic in unread)
    found = []
    for topic, event in list(removed.items())[:_MOST]:
        lag = sum(records for place, records in present.lags.items() if place[0] == topic)
        if lag:
            text = f"{words.count(lag, 'record')} of {topic} {'waits' if lag == 1 else 'wait'}, which no member reads"
            text += f" since {event.name} removed it from its subscription at {words.clock(event.time)}."
            remedy = (
                "If that was not meant: subscribe() replaces the subscription before; name all topics in one call. If"
                f" it was: `barnabas groups delete {quote(present.group)} --topic {quote(topic)}` deletes the"
                " offsets of the topic."
            )
            found.append(Diagnosis(present.group, LEFT_TOPIC, SICK, text, CERTAIN, remedy=remedy, event=event))
    return found


def _gone(diagnoses: Iterable[Diagnosis]) -> Mapping[str | None, Diagnosis]:
    """The findings that the connection of a member was closed, by member id."""
    return {each.event.member.member_id: each for each in diagnoses if isinstance(each.event, MemberDisconnected)}


def _as_now(event: LagGrows, present: Present, now_ms: int) -> LagGrows:
    """A lag that grows with the members of its group, and what they have of the lag, as they are now."""
    if present.state != "Stable":
        return event  # Members that are rejoining own nothing yet.
    lags = _lags(present)
    most = lags.most()
    behind: tuple[MemberLag, ...] | None = None
    if most is not None:
        positions = tuple(Position(*each, present.committed.get(each, -1)) for each in most.partitions)
        since = (each.stood_ms for each in event.behind or () if set(positions) <= set(each.positions))
        stood_ms = next((each for each in since if each is not None), None)
        if stood_ms is not None:
            stood_ms += now_ms - event.time
        behind = (MemberLag(_named(present, most.member), most.lag, positions, stood_ms),)
    elif event.behind and all(each.stood_ms for each in event.behind):
        behind = _still_behind(present, event, now_ms, lags)
    members = len(present.readers)
    spread = {"members": members, "idle": members - lags.working, "owned": lags.owned, "behind": behind}
    return event.changed(**spread, lag_now=lags.total if behind else None)


def _still_behind(present: Present, event: LagGrows, now_ms: int, lags: Lags) -> tuple[MemberLag, ...] | None:
    """The members whose offsets stood still when a lag grew, as they are now; None if these do not have it any more."""
    found = []
    for each in event.behind or ():
        left = _left(present, each.member, each.positions)
        if left:
            stood_ms = (each.stood_ms or 0) + now_ms - event.time
            found.append(MemberLag(each.member, sum(lags.of(place[:2]) for place in left), left, stood_ms))
    return tuple(found) if sum(each.lag for each in found) >= lags.total * MOST_OF else None


def _of_losses(
    present: Present, events: Sequence[GroupEvent], since_ms: int, nowhere: Container[Partition]
) -> list[Diagnosis]:
    """Members whose next records were deleted before they read them, except in partitions `nowhere`."""
    losses: dict[tuple[object, ...], FetchOutOfRange] = {}
    for event in events:
        if isinstance(event, FetchOutOfRange) and event.time >= since_ms and event.offset < event.log_start:
            key = event.member, event.topic
            if (event.topic, event.partition) not in nowhere:
                losses[key] = losses[key].with_later(event) if key in losses else event
    diagnoses = []
    for loss in losses.values():
        text, remedy = loss.sentence()
        diagnoses.append(Diagnosis(present.group, "records_deleted", SICK, text, CERTAIN, (), remedy, loss.time))
    return diagnoses


def _without_reset(present: Present, events: Iterable[GroupEvent], now_ms: int) -> list[FetchOutOfRange]:
    """The Fetches of records that were deleted, after which the client has not gone on anywhere, those of a client and
    a topic as one: its committed offsets are as before, and no other client owns the partitions."""
    newest: dict[Partition, FetchOutOfRange] = {}
    #: Where the member before has not gone on, either.
    again: set[Partition] = set()
    for event in events:
        if isinstance(event, FetchOutOfRange):
            place = event.topic, event.partition
            known = newest.get(place)
            if known is not None and known.member != event.member:
                again.discard(place)
                if known.offset == event.offset and not known.goes_on:
                    again.add(place)
            newest[place] = event
        elif isinstance(event, TopicDeleted):
            newest = {place: each for place, each in newest.items() if place[0] != event.topic}
    owners = {place: reader.member for reader in present.readers for place in reader.partitions}
    found: dict[tuple[object, ...], FetchOutOfRange] = {}
    for place, event in sorted(newest.items()):
        committed, start, _ = present.outside.get(place, (_NONE, _NONE, _NONE))
        owner, by = owners.get(place), event.member
        is_same = owner is not None and (owner.client_id, owner.host) == (by.client_id, by.host)
        if event.goes_on or not event.offset == committed < start or not (is_same or not present.readers):
            continue
        left_ms = now_ms - event.time + (event.left_ms or 0)
        if left_ms >= _ASKS_MS or place in again:
            key = by.client_id, by.host, place[0]
            left = event.changed(left_ms=left_ms, is_gone=owner is None or left_ms < _ASKS_MS)
            found[key] = found[key].with_later(left) if key in found else left
    return list(found.values())


def _of_no_reset(present: Present, loss: FetchOutOfRange) -> Diagnosis:
    text, remedy = loss.sentence()
    return Diagnosis(present.group, NO_RESET, BROKEN, text, PROBABLE, (), remedy, loss.time, event=loss)


def _after_reset(diagnosis: Diagnosis, nowhere: Collection[Partition]) -> Diagnosis:
    """The diagnosis of a group without members whose program starts at an error."""
    first = f"First correct the offsets of {words.partitions(by_topic(sorted(nowhere)))}, or auto.offset.reset: with"
    first += " auto.offset.reset=none (error with librdkafka) a program that starts reads nothing there."
    return replace(diagnosis, remedy=f"{first} {diagnosis.remedy or ''}".strip())


def _of_outsiders(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Clients that are not members, and commit the same partitions in turn."""
    altered: dict[str, OffsetsAltered] = {}
    newest: dict[frozenset[tuple[str, str | None]], tuple[int, OffsetsAltered]] = {}
    for event in events:
        if isinstance(event, OffsetsAltered) and event.time >= since_ms:
            known = altered.get(event.by_client)
            both = altered[event.by_client] = event if known is None else known.with_later(event)
            if both.is_in_turn:
                newest[both.clients] = event.time, both
    diagnoses = []
    for time, both in newest.values():
        text, remedy = both.sentence()
        diagnoses.append(Diagnosis(present.group, "committed_in_turn", SICK, text, CERTAIN, (), remedy, time))
    return diagnoses


def _of_waits(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Members whose Fetches wait for all of their time, while there are records."""
    here = {reader.member.common_name for reader in present.readers}
    waits = {
        event.member.common_name: event
        for event in events
        if isinstance(event, FetchesWaited) and event.time >= since_ms and event.member.common_name in here
    }
    diagnoses = []
    for event in waits.values():
        text, remedy = event.sentence()
        diagnoses.append(Diagnosis(present.group, "fetches_waited", ODD, text, CERTAIN, (), remedy, event.time))
    return diagnoses


def _of_late_starts(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Members that begin to read long after they have got their partitions, again and again."""
    late = [event for event in events if isinstance(event, MemberBeganLate) and event.time >= since_ms]
    if len(late) < _MANY_LATE_STARTS:
        return []
    last = late[-1]
    text, remedy = last.sentence()
    text += f" Members of the group began late {len(late)} times."
    return [Diagnosis(present.group, MemberBeganLate.type, ODD, text, PROBABLE, (), remedy, last.time)]


def _of_seeks(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Members whose program goes back after each rebalance, or jumps to the end again and again."""
    if not any(isinstance(event, MemberRewound | MemberSkipped) for event in events):
        return []
    here = {reader.member.common_name for reader in present.readers}
    folded, recorded = fold(events, since_ms)
    diagnoses = []
    for event, each in zip(folded, recorded, strict=True):
        if not isinstance(event, MemberRewound | MemberSkipped) or event.member.common_name not in here:
            continue
        text, remedy = event.sentence()
        if isinstance(event, MemberRewound) and (event.rebalances or 0) > 1 and each.until >= since_ms:
            diagnoses.append(Diagnosis(present.group, "goes_back", ODD, text, PROBABLE, (), remedy, each.until))
        jumps = isinstance(event, MemberSkipped) and event.fetched is not None and (event.times or 1) > 1
        skips = isinstance(event, MemberSkipped) and (event.offset is None or event.is_kept) and each.until >= since_ms
        if jumps or skips:
            diagnoses.append(Diagnosis(present.group, "skips_records", SICK, text, PROBABLE, (), remedy, each.until))
    return diagnoses


def _of_uncommitted(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Programs that have left again and again without a commit of records that they had got."""
    others = (found.SLOW_POLL, found.LEFT_AND_JOINED, found.RESUBSCRIBED, found.REMOVED)
    left = [each for each in events if isinstance(each, MemberLeft) and each.time >= since_ms and each.uncommitted]
    if len(left) < _MANY_LEAVES:
        return []
    findings = found.find(events)
    left = [each for each in left if (known := findings.about(each)) is not None and known.kind not in others]
    if len(left) < _MANY_LEAVES:
        return []
    records = sum(given - offset for each in left for offset, given in each.uncommitted.values())
    names = words.names_of({each.member.common_name: each.member for each in left}.values())
    last, ahead = left[-1], any(each.fetches_ahead for each in left)
    text = f"{names} {'perhaps ' if ahead else ''}left {words.times(len(left))} without a commit of records that"
    text += f" were fetched, {records:,} in all. The last one was"
    text += f" {last.name} at {words.clock(last.time)}{found.left_uncommitted(last).removesuffix(',')}."
    remedy = f"{found.COMMIT_FIRST} Nothing, if these were records that it had not worked on yet."
    severity, sure = (ODD, POSSIBLE) if ahead else (SICK, PROBABLE)
    return [Diagnosis(present.group, LEFT_UNCOMMITTED, severity, text, sure, remedy=remedy, time=last.time)]


def _of_often(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Members that commit nearly each record by itself, or all but the last one, as far as that is still so."""
    here = {reader.member.member_id for reader in present.readers}
    told = (event for event in events if isinstance(event, CommitsOften | CommitsLastRecord))
    newest = {(event.type, event.member.member_id): event for event in told}
    diagnoses = []
    for event in newest.values():
        # It is reported again when it has lasted twice as long.
        if event.member.member_id in here and now_ms - event.time <= event.took_ms + _LATE_MS:
            text, remedy = event.sentence()
            sure = CERTAIN if isinstance(event, CommitsOften) else PROBABLE
            diagnoses.append(Diagnosis(present.group, event.type, ODD, text, sure, (), remedy, event.time, event=event))
    return diagnoses


def _of_aborted(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Producers that abort all of their transactions, so that members get nothing, as far as that is still so."""
    event = next((each for each in reversed(events) if isinstance(each, RecordsAborted)), None)
    # It is reported again when it has lasted twice as long.
    if event is None or not present.readers or now_ms - event.time > event.took_ms + _LATE_MS:
        return []
    text, remedy = event.sentence()
    return [Diagnosis(present.group, "records_aborted", SICK, text, CERTAIN, (), remedy, event.time)]


def _of_aborted_read(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Members that are given records of aborted transactions, as far as that is still so."""
    here = {reader.member.member_id for reader in present.readers}
    newest = {event.member.member_id: event for event in events if isinstance(event, AbortedRecordsRead)}
    diagnoses = []
    for member_id, event in newest.items():
        # It is reported again when it has lasted twice as long.
        if member_id in here and now_ms - event.time <= event.took_ms + _LATE_MS:
            text, remedy = event.sentence()
            diagnoses.append(
                Diagnosis(present.group, event.type, ODD, text, CERTAIN, (), remedy, event.time, event=event)
            )
    return diagnoses


def _of_denied_topics(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Members whose Fetches are refused for a topic of their subscription, as far as that is still so."""
    here = {reader.member.common_name for reader in present.readers}
    denied = {
        (event.member.common_name, event.topic): event
        for event in events
        if isinstance(event, FetchDenied)
        and now_ms - event.time <= DENIED_AGAIN_MS + _LATE_MS
        and event.member.common_name in here
    }
    diagnoses = []
    for event in denied.values():
        text, remedy = event.sentence()
        sure = PROBABLE if is_default(event.member.client_id or "") else CERTAIN
        diagnoses.append(Diagnosis(present.group, "topic_denied", BROKEN, text, sure, (), remedy, event.time))
    return diagnoses


def _of_own_topics(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Members that have begun to read a topic that their own program has probably made."""
    readers = {reader.member.member_id: reader for reader in present.readers}
    diagnoses = []
    for event in events:
        if isinstance(event, SubscriptionChanged) and event.own_topics and event.time >= since_ms:
            reader = readers.get(event.member.member_id)
            if reader is not None and not reader.topics.isdisjoint(event.own_topics):
                text = f"{event.name} subscribes to {words.listed(event.own_topics)} since {words.clock(event.time)}:"
                text += f" {event.own}, and its regular expression probably matches, so that it may read what its"
                text += " program writes."
                diagnoses.append(
                    Diagnosis(present.group, "own_topic", ODD, text, POSSIBLE, (), READS_ITSELF, event.time)
                )
    return diagnoses


def _of_two_services(present: Present, events: Iterable[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Members of two libraries, of which no client ids are alike, that have shared the partitions of a topic for
    minutes: two services with one group.id."""
    readers = {each.member.member_id: each for each in present.readers if each.topics and each.partitions}
    if len(readers) < 2:
        return []
    libraries: dict[str, list[Reader]] = {}
    for event in events:
        reader = readers.get(event.member.member_id) if isinstance(event, MemberJoined) else None
        if reader is None or not isinstance(event, MemberJoined):
            continue
        client_id = reader.member.client_id or ""
        if now_ms - event.time < _TOGETHER_MS or event.inferred or is_default(client_id):
            continue
        libraries.setdefault(found.library_of(event), []).append(reader)
    if len(libraries) != 2 or max(map(len, libraries.values())) > _MOST_COMPARED:
        return []
    (first, firsts), (second, seconds) = sorted(libraries.items(), key=lambda each: (not each[0], each[0]))
    pairs = [(one, other) for one in firsts for other in seconds]
    if any(are_alike(one.member.client_id or "", other.member.client_id or "") for one, other in pairs):
        return []
    shared = next(((one, other) for one, other in pairs if one.topics & other.topics), None)
    if shared is None:
        return []
    one, other = shared
    topics = words.listed(sorted(one.topics & other.topics)[:_MOST])
    of_libraries = f"{first} and {second or 'another one, which does not say its name'}"
    text = (
        f"{one.member.name} and {other.member.name} have been members together for more than {ms(_TOGETHER_MS)}, with"
    )
    text += f" client ids and libraries ({of_libraries}) that have nothing in common: each reads only a part of the"
    text += f" records of {topics}."
    remedy = (
        "If these are two services, give each a group.id of its own, and each gets all records. If one of them replaces"
        " the other, this is fine (`--ignore two_services`)."
    )
    return [Diagnosis(present.group, "two_services", ODD, text, POSSIBLE, remedy=remedy)]


def _of_commits_back(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Members that commit offsets of other partitions, or set back those of partitions which another member owns, while
    both are members."""
    if not any(isinstance(event, CommitsWentBack) and event.time >= since_ms for event in events):
        return []
    here = {reader.member.member_id for reader in present.readers}
    back = [event for event in completed(events) if isinstance(event, CommitsWentBack) and event.time >= since_ms]
    # The offsets of a program that was stopped are as wrong as before.
    of_another = {
        event.member.client_id: event
        for event in back
        if event.is_of_another and (event.member.member_id in here or not here)
    }
    of_lost = {
        (event.member, event.owner): event
        for event in back
        if event.owner is not None
        and {event.member.member_id, event.owner.member_id} <= here
        and not event.is_of_another
    }
    return [
        *(_of_commit(present, "commits_of_another", event, PROBABLE) for event in of_another.values()),
        *(_of_commit(present, "commits_of_lost", event, CERTAIN) for event in of_lost.values()),
    ]


def _of_commit(present: Present, kind: str, event: CommitsWentBack, sure: str) -> Diagnosis:
    text, remedy = event.sentence()
    return Diagnosis(present.group, kind, SICK, text, sure, (), remedy, event.time)


def _of_pending(present: Present, events: Sequence[GroupEvent], now_ms: int) -> list[Diagnosis]:
    """Transactions that have committed offsets of the group, are open for long, and keep a consumer waiting."""
    waits: dict[int, OffsetsUnstable] = {}
    for event in events:
        if isinstance(event, OffsetsUnstable):
            waits[event.producer_id] = event
        elif isinstance(event, OffsetsStable):
            waits.pop(event.producer_id, None)
        elif isinstance(event, GroupLoaded):
            waits.clear()  # It is reported again there, if it is still open.
    diagnoses = []
    for event in waits.values():
        open_ms = now_ms - event.time + event.pending_ms
        if _LONG_MS < open_ms <= _MAX_TIMEOUT_MS:
            text, remedy = event.changed(pending_ms=open_ms).sentence()
            diagnoses.append(Diagnosis(present.group, PENDING, SICK, text, CERTAIN, (), remedy, event.time))
    return diagnoses


def _of_silence(
    present: Present, waiting: Mapping[str | None, MemberDisconnected], away: Container[str | None], now_ms: int
) -> list[Diagnosis]:
    """Members whose connection was closed, and that are still members: their partitions wait.

    Args:
        present: the group now.
        waiting: the closed connections of its members.
        away: the member ids of static members that have said that they come back.
        now_ms: the time, in ms since 1970.
    """
    diagnoses = []
    for reader in present.readers:
        event = waiting.get(reader.member.member_id)
        if event is None or not reader.partitions:
            continue
        if event.session_ms is not None and now_ms - event.time > event.session_ms:
            continue  # It is still a member: it has been heard of on another connection.
        session = "" if event.session_ms is None else f" of {ms(event.session_ms)}"
        if event.member.member_id in away:
            text = f"Static member {event.name} left for a while at {words.clock(event.time)}:"
            text += f" {words.partitions(by_topic(reader.partitions))} wait for it until its session{session} is over."
            remedy = "Start it again with the same group.instance.id."
            if event.member.instance_id:
                remedy += f" {_if_meant_to_go(present.group, event.member.instance_id)}"
            diagnoses.append(Diagnosis(present.group, "disconnected", ODD, text, CERTAIN, (), remedy, event.time))
            continue
        diagnoses.append(_disconnected(present, reader.partitions, event, now_ms))
    return diagnoses


def _if_meant_to_go(group: str, instance_id: str) -> str:
    """Advice about a static member that has gone for good."""
    command = f"barnabas groups remove-member {quote(group)} {quote(instance_id)}"
    return f"If it was meant to go: `{command}`, as static members stay when a group is made smaller."


def _of_cut_connections(present: Present, events: Sequence[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """Connections of members that end at one age, again and again, while the members go on."""
    # One that is a member has probably connected again: that is recorded once in a minute.
    goes_on = {reader.member.member_id for reader in present.readers}
    ended: list[MemberDisconnected] = []
    for event in reversed(events):
        if event.time < since_ms:
            break
        if isinstance(event, MemberReconnected):
            goes_on.add(event.member.member_id)
        elif isinstance(event, MemberDisconnected) and event.gone_ago_ms is None and event.closed_by == "client":
            if event.member.member_id in goes_on and event.age_ms is not None:
                ended.append(event)
            goes_on.add(event.member.member_id)
    ages = sorted(each.age_ms or 0 for each in ended)
    age_ms = ages[len(ages) // 2] if ages else 0
    alike = [each for each in ended if abs((each.age_ms or 0) - age_ms) <= max(age_ms * _AS_OLD, _AS_OLD_MS)]
    # What ends many connections at once, such as a restart of a proxy, does so once for all that began together.
    rounds = 1 + sum(later.time - earlier.time > age_ms / 2 for later, earlier in pairwise(alike))
    if len(alike) < _CUTS or rounds < _ROUNDS or len(alike) < len(ended) * MOST_OF:
        return []
    names = sorted({each.name for each in alike})
    text = f"Connections of {words.listed(names)} end at an age of about {ms(age_ms)} each time"
    text += (
        f" ({words.times(len(alike))} seen within {ms(alike[0].time - alike[-1].time)}), while their programs go on:"
    )
    text += " something between them and the broker probably ends connections at that age, such as a load balancer, a"
    text += " firewall or a NAT."
    remedy = (
        "Look for a limit of that time on the way to the broker: for how long a connection may last, or may be idle, in"
        " a proxy or load balancer. Raise it, or let the clients connect to the broker directly. A longer session"
        " timeout does not help."
    )
    return [Diagnosis(present.group, "cut_connections", ODD, text, PROBABLE, (), remedy, alike[0].time)]


def _disconnected(
    present: Present, partitions: Collection[Partition], event: MemberDisconnected, now_ms: int
) -> Diagnosis:
    """A member whose connection was closed, without a leave, and that has partitions."""
    away_ms, session_ms, instance_id = now_ms - event.time, event.session_ms, event.member.instance_id
    session = "" if session_ms is None else f" of {ms(session_ms)}"
    records = sum(present.lags.get(place, 0) for place in partitions)
    text = f"{'Static member ' if instance_id else ''}{event.name} closed its connection at {words.clock(event.time)}"
    text += " without leaving the group"
    is_gone = away_ms >= _STAYS_AWAY_MS
    if is_gone:
        as_usual = ", as static members do when they end" if instance_id else ""
        text += f"{as_usual}, and has not connected again for {ms(away_ms)}: its program has probably ended, and"
    else:
        text += ":"
    text += f" {words.partitions(by_topic(partitions))} wait until its session{session} is over"
    if not is_gone:
        text += ", unless it has connected again"
    elif session_ms is not None:
        text += f", at {words.clock(round(event.time + session_ms))}"
    text += f"; {words.count(records, 'record')} {'waits' if records == 1 else 'wait'} there." if records else "."
    remedy = "Look whether its process still runs."
    if instance_id:
        remedy += f" Start it again with group.instance.id={instance_id}: it gets its partitions back at once."
        remedy += f" {_if_meant_to_go(present.group, instance_id)}"
    if session_ms is not None and session_ms > _USUAL_SESSION_MS:
        remedy += f" Others get its partitions sooner with a shorter session.timeout.ms: it is {ms(session_ms)}, and"
        remedy += f" {ms(_USUAL_SESSION_MS)} by default; as long as a restart takes is enough."
    sure = PROBABLE if is_gone else POSSIBLE
    return Diagnosis(present.group, "disconnected", SICK, text, sure, (), remedy, event.time, event=event)


def _never_joined(group: str, events: Iterable[GroupEvent], since_ms: int) -> list[Diagnosis]:
    """The client that has asked for the coordinator of a group which does not exist, and that does not join it."""
    *_, newest = (None, *events)
    if not isinstance(newest, CoordinatorSought) or newest.time < since_ms:
        return []
    text, remedy = newest.sentence()
    return [Diagnosis(group, NEVER_JOINED, BROKEN, text, PROBABLE, (), remedy, newest.time)]


def _of_storm(present: Present, events: list[GroupEvent], told: Sequence[Explanation], now_ms: int) -> list[Diagnosis]:
    diagnoses = []
    for storm in [each for each in told if each.kind == STORM][-1:]:
        score = storm_score(events, now_ms)
        time = storm.events[-1].time
        evidence = (*storm.details, score.text) if score.rebalances else tuple(storm.details)
        diagnoses.append(Diagnosis(present.group, STORM, SICK, storm.text, CERTAIN, evidence, storm.remedy, time))
    for one in [each for each in told if each.kind == DEPLOYMENT][-1:]:
        time = one.events[-1].time
        diagnoses.append(Diagnosis(present.group, DEPLOYMENT, ODD, one.text, PROBABLE, (), one.remedy, time))
    return diagnoses


def _of_share_records(present: Present, told: Iterable[Explanation]) -> list[Diagnosis]:
    """Explanations of records of a share group that have a remedy: the newest of each kind, partition and member."""
    newest: dict[tuple[object, ...], tuple[ShareRecords, Explanation]] = {}
    for each in told:
        event = each.events[-1]
        if not isinstance(event, ShareRecords):
            continue
        owner = None if event.owner is None else event.owner.name
        if isinstance(event, ShareWindowBlocked | ShareWindowMoved):
            owner = None
            newest.pop((ShareWindowBlocked.type, event.topic, event.partition, owner), None)
        # Locks of a member that is restarted expire once.
        once = isinstance(event, ShareLocksExpired) and (event.deliveries or 1) < _AGAIN
        if each.remedy is not None and event.type in _OF_SHARES and not once:
            newest[event.type, event.topic, event.partition, owner] = event, each
    diagnoses = []
    for event, each in newest.values():
        severity = _OF_SHARES[event.type]
        if isinstance(event, ShareLocksExpired) and event.never_acknowledged:
            severity = SICK
        last = f"The last time was {words.moment(event.time)}."
        evidence = (*each.details, last) if each.details else (last,)
        diagnoses.append(
            Diagnosis(present.group, event.type, severity, each.text, CERTAIN, evidence, each.remedy, event.time)
        )
    return diagnoses
