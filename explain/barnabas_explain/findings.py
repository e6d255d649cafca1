"""Why members of a group are gone: what follows from several events together, and how sure that is. Pure.

A leave alone does not say why. But a member that leaves about ``max.poll.interval.ms`` after it could have polled last,
while its connection stays open, and then joins again on the same connection, has probably polled too slowly:
librdkafka, aiokafka and kafka-python leave like that without a reason. What the coordinator has seen of a member is in
its last event (:class:`~barnabas_explain.catalog.Seen`); what followed is in later ones. Of events without that nothing
is concluded.

A program that crashes again and again has many ends, and one finding (:class:`_Life`): members of the same name, each
of which began after the one before had ended.

What is inferred says "probably", and from what. An explanation that is wrong is worse than none.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from math import ceil, inf
from shlex import quote
from statistics import median
from typing import Final, NamedTuple

from barnabas_explain.catalog import (
    BRIEF_MS,
    LATE_HEARTBEATS,
    NEEDS_READ,
    Departure,
    EpochBumped,
    GroupDeleted,
    GroupEmpty,
    GroupEvent,
    InstanceInUse,
    JoinPhaseOver,
    JoinRefused,
    LeaderRejoined,
    MemberAway,
    MemberDisconnected,
    MemberEvent,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberNotRejoined,
    MemberNotRevoked,
    MemberRejoined,
    MemberReplaced,
    MemberSlow,
    RebalanceOver,
    RebalanceStarted,
    RegexRefused,
    RegexResolved,
    Seen,
    SessionRefused,
    SubscriptionChanged,
    TargetAssigned,
    TopicChanged,
    TopicDeleted,
    changed_offset,
    install_codec,
    new_codec,
    poll_interval,
    reset_offsets,
    skip_record,
)
from barnabas_explain.members import (
    MOST_MEMBERS,
    ByTopic,
    Member,
    Partition,
    Position,
    are_alike,
    by_topic,
    is_default,
)
from barnabas_explain.rejoins import GOES_ON
from barnabas_explain.runs import STOPS_MS, Run, Runs
from barnabas_explain.spelling import CLOSING
from barnabas_explain.stops import JUST_AFTER_MS, falls, leaves_at_rebalances, stays_at_rebalances
from barnabas_explain.words import MAX_NAMED, Told, capital, count, listed, ms, names_of, times, were
from barnabas_explain.words import partitions as in_words

#: How sure a finding is.
CERTAIN: Final = "certain"
PROBABLE: Final = "probable"
POSSIBLE: Final = "possible"

#: What findings are about.
SLOW_POLL: Final = "slow_poll"
LEFT_AND_JOINED: Final = "left_and_joined"
RESUBSCRIBED: Final = "resubscribed"
STOPPED: Final = "stopped"
RESTARTED: Final = "restarted"
REMOVED: Final = "removed"
KILLED: Final = "killed"
STATIC_AWAY: Final = "static_away"
NEW_INSTANCE: Final = "new_instance"
CRASH_LOOP: Final = "crash_loop"
RESTART_LOOP: Final = "restart_loop"
ALONE: Final = "alone"
RUNS_UNCOMMITTED: Final = "runs_uncommitted"
RUNS_BEHIND: Final = "runs_behind"
GROUP_DELETED: Final = "group_deleted"
CONSUMER_LOOP: Final = "consumer_loop"
OVERLAPPING_RUNS: Final = "overlapping_runs"
CONSUMERS_AT_ONCE: Final = "consumers_at_once"
CONSUMER_PER_CALL: Final = "consumer_per_call"
CONSUMERS_NOT_CLOSED: Final = "consumers_not_closed"
SUBSCRIBE_LOOP: Final = "subscribe_loop"
TOPICS_COME_AND_GO: Final = "topics_come_and_go"
SUBSCRIBES_IN_TURN: Final = "subscribes_in_turn"
FENCING: Final = "fencing"
CLOSED_BY_BROKER: Final = "closed_by_broker"
BLOCKED: Final = "blocked"
SILENT: Final = "silent"
SILENT_OR_SLOW: Final = "silent_or_slow"
NO_HEARTBEATS: Final = "no_heartbeats"
SAME_INSTANCE: Final = "same_instance"
NO_COMMON_ASSIGNOR: Final = "no_common_assignor"
SESSION_REFUSED: Final = "session_refused"
REGEX_REFUSED: Final = "regex_refused"
#: The kinds of programs that may not be members.
MAY_NOT_JOIN: Final = (SESSION_REFUSED, NO_COMMON_ASSIGNOR, REGEX_REFUSED)
DENIED: Final = "denied"
#: Those about programs that are alone in their group, one after the other.
OF_RUNS: Final = (ALONE, RUNS_UNCOMMITTED, RUNS_BEHIND, GROUP_DELETED, CONSUMER_LOOP)

#: The part of the poll interval for which a member must have been one to have exceeded it: clocks differ a little.
_ALMOST: Final = 0.9
#: A client commits by itself so long after a poll: ``auto.commit.interval.ms``, and a bit.
_COMMITS_MS: Final = 6_000
#: The longest sessions that are advised for the sake of restarts, in ms: of the classic protocol, where brokers allow
#: half an hour (group.max.session.timeout.ms), and of the consumer protocol (group.consumer.max.session.timeout.ms).
_LONGEST_SESSIONS_MS: Final = (300_000, 60_000)
#: A program that unsubscribes and subscribes again joins again within so many milliseconds.
_AT_ONCE_MS: Final = 500
#: A client connects anew within so many milliseconds after its request.timeout.ms, of a network that was cut.
_ANEW_MS: Final = 300_000
#: A client commits just before it leaves, too: that says nothing about its polls.
_LEAVING_MS: Final = 1_000
#: So many lives of a program that end without a leave are a crash loop, if one follows the other within so many
#: milliseconds: Kubernetes waits for up to 5 minutes.
_LOOP_LIVES: Final = 3
_LOOP_WAITS_MS: Final = 600_000
#: A static member does not leave, also if it is restarted in order: its lives must be short, too.
_SHORT_MS: Final = 300_000
#: A program that is alone in its group, and runs for longer, is a service, whose restarts stay lines of their own.
_RUN_MS: Final = 3_600_000
_OF_JOB: Final = (
    "A scheduled job looks like that, and needs no change as long as its lag does not grow. If it should run on: look"
    " what stops it, or what makes a consumer for each record or call."
)
#: A program that stops because of rebalances does so in this part of its lives.
_MOST_AT_REBALANCES: Final = 0.9
#: Rebalances stop a program if this part of the members with client ids like its own leaves at them.
_MOST_LEAVE: Final = 0.75
_MOST_COMPARED: Final = 50
#: One leave may come just after a rebalance by chance.
_SOME_AT_REBALANCES: Final = 2
#: All programs of a group stop because of rebalances if they have left it empty so often.
_FALLS: Final = 2
#: Members of one run begin within so many milliseconds, and leave within so many.
_TOGETHER_MS: Final = 15_000
#: A new member takes the place of one that leaves so many milliseconds after it has joined, or soon before it does.
_SURGE_MS: Final = 5_000
#: A program that is a member for so many milliseconds, and commits nothing, may be a probe, or make one for a call.
_PROBE_MS: Final = 5_000
#: So many runs are those of a program that makes a consumer again and again, if one begins within so many milliseconds
#: after the one before has ended, and so many after it has begun, at the median: cron and Kubernetes start a job at
#: most once a minute.
_LOOP_RUNS: Final = 10
#: A job falls behind if so many runs, one after the other, leave more records each.
_LOOP_RUNS_BEHIND: Final = 4
_LOOP_PAUSE_MS: Final = 10_000
_SCHEDULE_MS: Final = 45_000
#: Runs of one program overlap if this part of them begin before the one before has ended, and so do at equal intervals,
#: of which each is near the median. A program that runs for many intervals is a service.
_MOST_RUNS: Final = 0.75
_NEAR: Final = 0.25
_MOST_AT_ONCE: Final = 10
#: A program makes a consumer for each call if so many have their partitions for so many milliseconds at the median, and
#: one follows the other within so many.
_CALLS: Final = 6
_CALL_MS: Final = 1_000
_NEXT_CALL_MS: Final = 60_000
#: A consumer that is not polled any more since the next one was made leaves when its poll interval is over: the times
#: from the join of the next one until it leaves are near their median, by this part of it.
_SAME_WAIT: Final = 0.1
#: So many of them are enough if that is their poll interval.
_LEFT_OVER: Final = 2
#: A client knows of a new partition within metadata.max.age.ms, 5 minutes, and its leader then asks for an assignment.
_FOLLOWS_MS: Final = 310_000
#: A leader whose client knew no topic when it joined asks again within so many milliseconds after the first assignment.
_AT_FIRST_MS: Final = 5_000
#: So many new assignments without a reason are a loop, if one follows the other within so many milliseconds.
_LOOP_ASKS: Final = 6
_LOOP_ASKS_MS: Final = 60_000
#: So many topics that are created or deleted again and again, one within so many milliseconds after the other, make a
#: group rebalance without end.
_COME_AND_GO: Final = 3
_COME_AND_GO_MS: Final = 60_000
#: A program subscribes to a topic in turn if it has added and removed it so many times each.
_TURNS: Final = 2
#: A program notices within so many milliseconds that another one has fenced its producer, which goes on for longer.
_FENCED_MS: Final = 15_000
_OUTLIVES_MS: Final = 1_000
_JOINS_MS: Final = 2_000
#: The part of the ends of programs with one transactional id that have to be such.
_MOST_FENCED: Final = 0.75
#: Characters of a transactional id in a sentence.
_MOST_CHARACTERS: Final = 200
#: A program commits before it works if it commits within so many milliseconds after it has got partitions, and goes on
#: for so many without a commit.
_SOON_MS: Final = 1_000
_WORKS_MS: Final = 2_000
#: Words in the reason of a client that has noticed that it was not polled.
_SAYS_SLOW: Final = ("poll timeout", "max_poll_interval", "max.poll.interval")
#: What a member had done that has joined again.
_WAS: Final = {
    SLOW_POLL: "it had probably polled too slowly",
    LEFT_AND_JOINED: "it had polled too slowly, or unsubscribed",
    RESUBSCRIBED: "it had probably unsubscribed",
    STOPPED: "it had been stopped",
    REMOVED: "another client had removed it",
    KILLED: "it had probably crashed or been killed",
    STATIC_AWAY: "it had been away for longer than its session",
    NEW_INSTANCE: "its program has another group.instance.id after each start",
    CRASH_LOOP: "it crashes again and again",
    RESTART_LOOP: "it stops and starts again and again",
    ALONE: "it is alone in the group, and starts and stops",
    RUNS_UNCOMMITTED: "it is alone in the group, and starts and stops",
    RUNS_BEHIND: "each of its runs leaves more records than the one before",
    GROUP_DELETED: "its group is deleted between its runs",
    CONSUMER_LOOP: "its program probably makes a consumer again and again",
    OVERLAPPING_RUNS: "it is a run of a program whose runs overlap",
    CONSUMERS_AT_ONCE: "its program probably makes many consumers",
    CONSUMER_PER_CALL: "its program probably makes a consumer for each call",
    CONSUMERS_NOT_CLOSED: "its program probably makes consumers, and does not close the old ones",
    FENCING: "its producer had probably been fenced by that of another program with its transactional.id",
    CLOSED_BY_BROKER: "the broker had closed its connection",
    BLOCKED: "it had probably been blocked or paused, or its network had been cut",
    SILENT: "it had probably been blocked or paused, or its network had been cut",
    SILENT_OR_SLOW: "it had polled too slowly, or had been blocked or paused",
    NO_HEARTBEATS: "its heartbeats had probably starved",
    SAME_INSTANCE: "another program has its group.instance.id",
    DENIED: "it was not allowed to read the group",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a member, or that has happened to it.

    Attributes:
        kind: what it is, one of the constants of this module.
        member: the member.
        text: a clause that names the cause, without a full stop.
        remedy: what to do about it; None if there is nothing to do.
        sure: "certain", "probable" or "possible".
        gap_ms: between two polls, or of silence: the figure that the remedy is about; None if there is none.
        limit_ms: the timeout that it exceeds; None if it is not known.
        brief: the clause without its evidence; "" if that is what stands before its first colon.
    """

    kind: str
    member: Member
    text: str
    remedy: str | None = None
    sure: str = PROBABLE
    gap_ms: float | None = None
    limit_ms: float | None = None
    brief: str = ""

    @property
    def short(self) -> str:
        """The clause without its evidence."""
        return self.brief or self.text.partition(": ")[0]


@dataclass(slots=True)
class _Case:
    """The end of a member, and what followed.

    Attributes:
        event: its end.
        back_ms: after how long it joined again on the same connection; None if it did not.
        returned_ms: after how long a member of the same name joined on another connection; None if none did.
        has_twin: whether a third one of that name was a member then.
        closed_ms: after how long its connection was closed; None if it was not.
        anew_ms: after how long a member of the same name, of which there was no other one, joined on a new connection
            while the old one was open; None if none did.
        refused: whether it came back before its session was over, and was refused.
        assigning: whether it was the leader of a rebalance, and had not assigned partitions.
        is_late: whether heartbeats of its group come late again and again, though their members stay: a heartbeat
            interval near the session. A program that is back within two sessions was not blocked then.
        successor: the static member of another instance id, and of its client id, that joined meanwhile; None if none
            did.
        is_guest: whether it was a member for a short time only, committed, other members went on, and its client id
            is that of another program than theirs.
        at_rebalance: whether it left soon after it had joined, and during a rebalance that another member had begun,
            or just after that, as nearly all such members.
    """

    event: Seen
    back_ms: float | None = None
    returned_ms: float | None = None
    has_twin: bool = False
    closed_ms: float | None = None
    anew_ms: float | None = None
    refused: bool = False
    assigning: bool = False
    is_late: bool = False
    successor: MemberJoined | None = None
    is_guest: bool = False
    at_rebalance: bool = False


@dataclass(slots=True)
class Findings:
    """The findings about the events of a group.

    Attributes:
        of_departures: the finding about the last event of a member, or about one that may not join, by the identity of
            the event.
        of_joins: the finding about why a member had gone before it joined again, by the identity of its join.
        recreated: the time in ms between the deletion of a topic and its creation, by the identity of the latter.
        revoked: the partitions that a member had to revoke before it rejoined, and that no member has got yet
            (KIP-429), and how long ago that was in ms, by the identity of the event.
        new_topics: the topics that a member has got, and that no member had before as far as is known, by member id, by
            the identity of the event that says so.
        cooperative: the identities of the events in which a member rejoined while the assignor was a cooperative one.
        follows_topic: the identities of the events in which a leader asked for a new assignment after a topic had
            changed.
        at_first: the same, of leaders that did so just after the first assignment that they made.
        firsts: the member id with which a member joined first that has joined again on the same connection, by each
            member id that it has had since.
        runs: programs that were alone in the group for an hour at most, also with several members that joined and left
            together, and stopped by themselves, one after the other.
    """

    of_departures: dict[int, Finding] = field(default_factory=dict)
    of_joins: dict[int, Finding] = field(default_factory=dict)
    recreated: dict[int, int] = field(default_factory=dict)
    revoked: dict[int, tuple[ByTopic, int]] = field(default_factory=dict)
    new_topics: dict[int, dict[str | None, list[str]]] = field(default_factory=dict)
    cooperative: set[int] = field(default_factory=set)
    follows_topic: set[int] = field(default_factory=set)
    at_first: set[int] = field(default_factory=set)
    firsts: dict[str | None, str | None] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    def about(self, event: GroupEvent) -> Finding | None:
        """The finding about an event; None if there is none."""
        return self.of_departures.get(id(event)) or self.of_joins.get(id(event))

    def first(self, member: Member) -> str | None:
        """Key of a member that leaves and joins again: the same for all its member ids, else its name."""
        return self.firsts.get(member.member_id) or member.name

    def clause(self, event: GroupEvent) -> Told | None:
        """Why a rebalance or an epoch began, as :meth:`.GroupEvent.clause`: the finding, if there is one."""
        finding = self.of_departures.get(id(event))
        if finding is not None and isinstance(event, SubscriptionChanged):
            return Told(event.clause().text, finding.remedy)
        if finding is not None:
            return Told(finding.text, finding.remedy)
        if isinstance(event, TopicChanged) and id(event) in self.recreated:
            text = f"topic {event.topic} was created again with {count(event.partitions, 'partition')}"
            return Told(f"{text}, {ms(self.recreated[id(event)])} after it was deleted")
        if isinstance(event, LeaderRejoined | MemberRejoined) and id(event) in self.revoked:
            partitions, waited_ms = self.revoked[id(event)]
            text = f"{event.name} rejoined {ms(waited_ms)} after it had to revoke {in_words(partitions)}, which had no"
            return Told(f"{text} owner until then", _LATE if waited_ms > _LATE_MS else _COOPERATIVE)
        if isinstance(event, MemberRejoined) and id(event) in self.cooperative:
            return Told(event.clause().text, _REJOINS)
        if isinstance(event, LeaderRejoined) and id(event) in self.follows_topic:
            return Told(event.clause().text, _NEW_PARTITIONS)
        if isinstance(event, LeaderRejoined) and id(event) in self.at_first:
            return Told(f"{event.clause().text} just after its first one: its client probably knew no topic before")
        before = self.of_joins.get(id(event))
        if before is None or not isinstance(event, MemberJoined):
            return event.clause()
        if before.kind == OVERLAPPING_RUNS:
            return Told(f"{event.name} joined: {_WAS[before.kind]}", before.remedy)
        after = "" if event.rejoined_ms is None else f" {ms(event.rejoined_ms)} after it was gone"
        if before.kind == RESTARTED or (before.kind == STOPPED and before.sure == POSSIBLE):
            # Its end has said what to do, and what it may have been otherwise.
            return Told(f"{event.name} joined again{after}: {before.text.rpartition(': ')[2]}")
        return Told(f"{event.name} joined again{after}: {_WAS[before.kind]}", before.remedy)


#: What to do about a program with another group.instance.id after each start.
_SAME_INSTANCE_ID: Final = (
    "Give a program the same group.instance.id at each start, such as the name of its pod in a StatefulSet: with a new"
    " one, its partitions wait for the rest of the old one's session."
)
#: A member that revokes later than this keeps others waiting.
_LATE_MS: Final = 1_000
_NEW_PARTITIONS: Final = (
    "Leaders do so when a topic is created or gets more partitions: see the events about topics just before."
)
_REJOINS: Final = (
    "This is normal for cooperative rebalancing: a member that has revoked partitions rejoins, so that others get them."
)
_COOPERATIVE: Final = (
    "This is normal for cooperative rebalancing: others get partitions when a member has revoked them."
)
_LATE: Final = (
    "In a cooperative rebalance a member revokes and rejoins at its next poll: reduce the work between two polls"
    " (max.poll.records), and in its rebalance listener."
)


def _without_owner(over: RebalanceOver, member: Member) -> ByTopic:
    """The partitions that a member had to give up in a rebalance, and that no member got."""
    moves = over.moves or ()
    lost = next((move.lost for move in moves if move.member.member_id == member.member_id), {})
    gained = {(topic, number) for move in moves for topic, numbers in move.gained.items() for number in numbers}
    return by_topic(
        (topic, number) for topic, numbers in lost.items() for number in numbers if (topic, number) not in gained
    )


def _new_topics(events: Sequence[GroupEvent]) -> dict[int, dict[str | None, list[str]]]:
    """The topics that members have got, and that no member had before; none of those that are new themselves."""
    found: dict[int, dict[str | None, list[str]]] = {}
    known: set[str] = set()
    for event in events:
        if isinstance(event, TopicChanged):
            known.add(event.topic)
        elif isinstance(event, SubscriptionChanged | RegexResolved):
            known.update(event.added or ())
        elif isinstance(event, RebalanceOver | TargetAssigned):
            moves = event.moves or ()
            if event.shortened or len(moves) >= MOST_MEMBERS:
                return found
            before = known | {topic for move in moves for topic, numbers in move.lost.items() if numbers}
            if known and (event.members or 0) > 1:
                news = {
                    move.member.member_id: sorted(
                        topic for topic, numbers in move.gained.items() if numbers and topic not in before
                    )
                    for move in moves
                }
                found[id(event)] = {member_id: topics for member_id, topics in news.items() if topics}
            known = before | {topic for move in moves for topic, numbers in move.gained.items() if numbers}
    return found


def find(events: Sequence[GroupEvent]) -> Findings:
    """Find out why members are gone.

    Args:
        events: of one group, oldest first. The findings are about these objects.
    """
    cases: list[_Case] = []
    joins: list[tuple[MemberJoined, _Case]] = []
    open_cases: dict[str | None, _Case] = {}
    by_client: dict[tuple[str | None, str | None, str | None], _Case] = {}
    #: The members of each program.
    present: dict[tuple[str | None, str | None, str | None], set[str | None]] = {}
    contested: set[str | None] = set()
    refusals: list[InstanceInUse | JoinRefused | SessionRefused | RegexRefused] = []
    assigning: tuple[str | None, int] | None = None
    #: The first join of each static member, the newest ones last.
    statics: dict[str, MemberJoined] = {}
    #: How often members of each client id have joined.
    joins_of: Counter[str | None] = Counter()
    members = 0
    late = _late_sessions(events)
    at_rebalances = leaves_at_rebalances(events)
    #: When a member of each program joined last.
    came: dict[tuple[object, ...], int] = {}
    for event in events:
        if isinstance(event, InstanceInUse):
            if event.connection == "closed":
                contested.add(event.owner.member_id)
            else:
                refusals.append(event)
        elif isinstance(event, JoinRefused | SessionRefused | RegexRefused):
            refusals.append(event)
        elif isinstance(event, JoinPhaseOver | RebalanceOver):
            chosen = event.leader if isinstance(event, JoinPhaseOver) else None
            assigning = None if chosen is None else (chosen.member_id, event.time)
            members = event.members if isinstance(event, RebalanceOver) else members
        elif isinstance(event, EpochBumped):
            members = event.members or 0
        elif isinstance(event, Departure | MemberReplaced):
            case = _Case(event, refused=event.member.member_id in contested)
            # A leader whose connection was closed before had nothing to assign.
            closed_at = event.time - (event.closed_ago_ms or 0)
            leader, since = assigning or (None, 0)
            case.assigning = event.member.member_id == leader and closed_at >= since
            case.successor = _successor(event, statics)
            case.is_guest = members > 1
            if isinstance(event, MemberExpired):
                case.is_late = event.session_ms in late
            cases.append(case)
            if isinstance(event, Departure):
                present.get(event.member[1:], set()).discard(event.member.member_id)
                open_cases[event.member.member_id] = case
                by_client[event.member[1:]] = case
        elif isinstance(event, MemberDisconnected) and event.gone_ago_ms is not None:
            found = open_cases.get(event.member.member_id)
            if found is not None and found.closed_ms is None:
                found.closed_ms = event.gone_ago_ms
        elif isinstance(event, MemberJoined):
            joins_of[event.member.client_id] += 1
            if event.member.instance_id:
                statics.setdefault(event.member.instance_id, event)
            found = None
            if event.rejoined_ms is not None:
                found = open_cases.pop(event.old_member_id, None)
                if found is not None and not (found.is_late and _came_before(found, came)):
                    found.back_ms = event.rejoined_ms
            else:
                found = by_client.get(event.member[1:])
                if found is not None and not _has_gone(found):
                    if found.anew_ms is None and not present.get(event.member[1:]):
                        found.anew_ms = event.time - found.event.time
                    found = None
                if found is not None:
                    found.returned_ms = event.time - found.event.time
                    found.has_twin = bool(present.get(event.member[1:]))
            if found is not None:
                by_client.pop(event.member[1:], None)
                joins.append((event, found))
            came[event.member[1:]] = event.time
            present.setdefault(event.member[1:], set()).add(event.member.member_id)
    of_epochs = any(event.of_epochs for event in events)
    findings = Findings()
    for joined, _ in joins:
        if joined.rejoined_ms is not None:
            first = findings.firsts.get(joined.old_member_id) or joined.old_member_id
            findings.firsts[joined.old_member_id] = findings.firsts[joined.member.member_id] = first
    _find_guests(events, cases, joins_of)
    brief = [each for each in cases if isinstance(each.event, MemberLeft) and _is_brief(each.event)]
    stops = [each for each in brief if id(each.event) in at_rebalances]
    if len(stops) >= max(_SOME_AT_REBALANCES, _MOST_AT_REBALANCES * len(brief)):
        for case in stops:
            case.at_rebalance = True
    for case in cases:
        finding = _of(case, of_epochs)
        if finding is not None:
            findings.of_departures[id(case.event)] = finding
    for joined, case in joins:
        finding = findings.of_departures.get(id(case.event))
        if finding is not None:
            findings.of_joins[id(joined)] = finding
    for refusal in refusals:
        findings.of_departures[id(refusal)] = _of_refusal(refusal)
    _find_falls(events, at_rebalances, findings)
    _find_calls(events, findings)
    _find_runs(events, findings)
    _find_rounds(events, findings)
    _find_first_runs(events, findings)
    _find_overlaps(events, findings)
    _find_not_closed(events, findings)
    _find_fences(events, findings)
    _find_loops(events, at_rebalances, findings)
    _find_new_instances(events, cases, findings)
    findings.new_topics = _new_topics(events)
    deleted: dict[str, int] = {}
    over: RebalanceOver | None = None
    for event in events:
        if isinstance(event, RebalanceOver):
            over = event
        elif isinstance(event, LeaderRejoined | MemberRejoined) and over is not None:
            is_cooperative = GOES_ON in (over.protocol or "")
            if is_cooperative:
                findings.cooperative.add(id(event))
            # Of rebuilt events the assignor may not be known.
            partitions = _without_owner(over, event.member) if is_cooperative or over.protocol is None else None
            if partitions:
                findings.revoked[id(event)] = partitions, event.time - over.time
        elif isinstance(event, TopicDeleted):
            deleted[event.topic] = event.time
        elif isinstance(event, TopicChanged) and not event.before and event.topic in deleted:
            findings.recreated[id(event)] = event.time - deleted.pop(event.topic)
    _find_new_assignments(events, findings)
    _find_topics_that_come_and_go(events, findings)
    _find_turns(events, findings)
    return findings


#: More members than these that were there for a short time are programs that come and go, which belong to the group.
_MOST_GUESTS: Final = 3
#: How the client ids of console consumers begin.
_CONSOLE: Final = "console-consumer"


def _find_guests(events: Sequence[GroupEvent], cases: Sequence[_Case], joins_of: Mapping[str | None, int]) -> None:
    """Find out which members were guests: those whose client ids show that they are of another program."""
    brief: list[_Case] = []
    for case in cases:
        left = case.event
        if case.is_guest and isinstance(left, MemberLeft) and joins_of[left.member.client_id] == 1:
            brief += [case] if _committed_briefly(left) else []
        case.is_guest = False
    if not 0 < len(brief) <= _MOST_GUESTS:
        return
    known = {event.member.client_id or "" for event in events if isinstance(event, MemberEvent)}
    for event in events:
        if isinstance(event, RebalanceOver | TargetAssigned):
            known |= {move.member.client_id or "" for move in event.moves or ()}
    for case in brief:
        own = case.event.member.client_id or ""
        others = known - {own}
        if own.startswith(_CONSOLE):
            others = {each for each in others if not each.startswith(_CONSOLE)}
            case.is_guest = bool(others)
        else:
            case.is_guest = bool(others) and not any(are_alike(each, own) for each in others)


def _find_new_assignments(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Find out why leaders asked for a new assignment."""
    #: When a topic changed last, if no leader has followed.
    changed_at = -inf
    #: When a rebalance was over after which no member had another partition than before.
    nothing_at = -inf
    new: set[str | None] = set()
    asks: dict[Member, list[list[LeaderRejoined]]] = {}
    for event in events:
        if isinstance(event, TopicChanged | TopicDeleted):
            changed_at = event.time
        elif isinstance(event, MemberJoined):
            new.add(event.member.member_id)
        elif isinstance(event, RebalanceOver):
            gained = event.moves is None or any(move.gained for move in event.moves)
            nothing_at = -inf if gained else event.time
        if not isinstance(event, LeaderRejoined):
            continue
        is_first = event.member.member_id in new
        new.discard(event.member.member_id)
        if event.time - changed_at <= _FOLLOWS_MS:
            findings.follows_topic.add(id(event))
            changed_at = -inf
        elif is_first and event.time - nothing_at <= _AT_FIRST_MS:
            findings.at_first.add(id(event))
        elif not event.reason and id(event) not in findings.revoked:
            of_member = asks.setdefault(event.member, [])
            if not of_member or event.time - of_member[-1][-1].time > _LOOP_ASKS_MS:
                of_member.append([])
            of_member[-1].append(event)
    for loop in (each for of_member in asks.values() for each in of_member if len(each) >= _LOOP_ASKS):
        finding = _of_subscribe_loop(loop)
        findings.of_departures.update((id(event), finding) for event in loop)


def _of_subscribe_loop(asks: Sequence[LeaderRejoined]) -> Finding:
    last = asks[-1]
    often = f"{times(len(asks))} within {ms(last.time - asks[0].time)}"
    text = f"{last.member.common_name} probably calls subscribe() in its loop: it asked for a new assignment {often},"
    text += " without a change of a topic"
    remedy = "Call subscribe() once, before the loop: each further call of the leader makes the whole group rebalance."
    return Finding(SUBSCRIBE_LOOP, last.member, text, remedy)


class _TopicChanges(NamedTuple):
    """Topics that were created and deleted soon after each other, and the events in which members followed them."""

    created: dict[str, None]
    deleted: dict[str, None]
    by: dict[str, None]
    events: list[MemberEvent]


def _find_topics_that_come_and_go(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Find topics that are created and deleted again and again, so that a pattern of the members matches others."""
    found: list[_TopicChanges] = []
    deleted: dict[str, TopicDeleted] = {}
    for event in events:
        if isinstance(event, TopicDeleted):
            deleted[event.topic] = event
        if not isinstance(event, SubscriptionChanged | LeaderRejoined) or id(event) in findings.of_departures:
            continue
        follows = (
            _follows_topics(event, deleted)
            if isinstance(event, SubscriptionChanged)
            else id(event) in findings.follows_topic
        )
        if not follows:
            continue
        if not found or event.time - found[-1].events[-1].time > _COME_AND_GO_MS:
            found.append(_TopicChanges({}, {}, {}, []))
        changes = found[-1]
        changes.events.append(event)
        if isinstance(event, SubscriptionChanged):
            gone = [deleted[topic] for topic in event.removed or ()]
            makers = [Member(None, each.client_id, each.host).common_name for each in gone if each.client_id]
            changes.created.update(dict.fromkeys(event.new_topics or ()))
            changes.deleted.update(dict.fromkeys(event.removed or ()))
            changes.by.update(dict.fromkeys((*(event.created_by or ()), *makers)))
    for changes in found:
        if len(changes.created) + len(changes.deleted) >= _COME_AND_GO:
            finding = _of_topics(changes)
            findings.of_departures.update((id(event), finding) for event in changes.events)


def _follows_topics(event: SubscriptionChanged, deleted: Container[str]) -> bool:
    """Whether a member subscribes to topics that are new, and to others not any more because they were deleted."""
    added, removed = event.added or (), event.removed or ()
    is_new = set(added) <= set(event.new_topics or ())
    return bool(added or removed) and is_new and all(topic in deleted for topic in removed)


def _of_topics(changes: _TopicChanges) -> Finding:
    first, last = changes.events[0], changes.events[-1]
    done = {"created": len(changes.created), "deleted": len(changes.deleted)}
    done = {verb: number for verb, number in done.items() if number}
    by = f" by {listed(list(changes.by))}" if changes.by else ""
    brief = f"topics that match the pattern of its members were {' and '.join(done)} again and again"
    often = (
        f"{' and '.join(f'{number} {verb}' for verb, number in done.items())} within {ms(last.time - first.time)}{by}"
    )
    names = names_of(dict.fromkeys(event.member for event in changes.events))
    text = f"{brief}: {often}, and each time {names} changed what they subscribe to"
    remedy = (
        "Create and delete topics less often, or several at once; or use one topic with a key in place of a topic for"
        " each; or subscribe to a fixed list. With a longer metadata.max.age.ms (librdkafka:"
        " topic.metadata.refresh.interval.ms) members take several changes together."
    )
    return Finding(TOPICS_COME_AND_GO, last.member, text, remedy, PROBABLE, brief=f"{brief} ({often})")


def _find_turns(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Find members that subscribe to a topic and drop it again, in turn."""
    of_members: dict[str, list[SubscriptionChanged]] = {}
    for event in events:
        if isinstance(event, SubscriptionChanged) and id(event) not in findings.of_departures:
            of_members.setdefault(event.member.common_name, []).append(event)
    for changes in of_members.values():
        added = Counter(topic for event in changes for topic in event.added or ())
        removed = Counter(topic for event in changes for topic in event.removed or ())
        in_turn = sorted(topic for topic in added if min(added[topic], removed[topic]) >= _TURNS)
        about = [event for event in changes if not {*(event.added or ()), *(event.removed or ())}.isdisjoint(in_turn)]
        if about:
            finding = _of_turns(about, in_turn)
            findings.of_departures.update((id(event), finding) for event in about)


def _of_turns(changes: Sequence[SubscriptionChanged], topics: Sequence[str]) -> Finding:
    last = changes[-1]
    name = last.member.common_name
    brief = f"{name} subscribes to {listed(topics)} and drops {'it' if len(topics) == 1 else 'them'}, again and again"
    text = f"{brief}: it changed its subscription {times(len(changes))} within {ms(last.time - changes[0].time)}"
    remedy = (
        f"Look what makes {name} subscribe differently: a setting that is switched, or two configurations that differ."
        " Subscribe once to all topics that it reads, and pause() the partitions of a topic that it must not read for a"
        " while: each subscribe() with other topics makes the whole group rebalance."
    )
    return Finding(SUBSCRIBES_IN_TURN, last.member, text, remedy, CERTAIN, brief=brief)


def _successor(event: Seen, statics: Mapping[str, MemberJoined]) -> MemberJoined | None:
    """The static member that is probably the same program as one that is gone, after a start."""
    if not event.member.instance_id or event.closed_ago_ms is None:
        return None
    closed_at = event.time - event.closed_ago_ms
    joined = (each for each in statics.values() if each.time >= closed_at)
    return next((each for each in joined if each.member.client_id == event.member.client_id), None)


#: So many late heartbeats of one program, each so many sessions after the one before, are an interval near the session.
_LATE_TIMES: Final = 4
_LATE_SESSIONS: Final = 1.25


def _late_sessions(events: Iterable[GroupEvent]) -> set[float | None]:
    """The session timeouts of members whose heartbeats come late again and again, at intervals of about a session."""
    found: set[float | None] = set()
    #: For each program the time of the first of these heartbeats, and their number.
    series: dict[tuple[object, ...], tuple[int, int]] = {}
    for event in events:
        if isinstance(event, MemberSlow) and event.is_late:
            limit, often, last = _LATE_SESSIONS * event.session_ms, event.times or 1, event.newest or event.time
            first, number = series.get(event.member[1:], (event.time, 0))
            number += often
            if last - first > limit * (number - 1):
                first, number = event.time, often
            if last - first > limit * (number - 1):
                first, number = last, 1
            series[event.member[1:]] = first, number
            if number >= _LATE_TIMES:
                found.add(event.session_ms)
    return found


def _came_before(case: _Case, came: Mapping[tuple[object, ...], int]) -> bool:
    """Whether the program of a member that expired has joined since that was heard of, with another member id."""
    event = case.event
    silent = event.heard_ago_ms if isinstance(event, MemberExpired) else 0
    return came.get(event.member[1:], -inf) > event.time - silent


def _has_gone(case: _Case) -> bool:
    """Whether the connection of a member was closed: what comes then is another one, of a restarted program."""
    return case.closed_ms is not None or case.event.connection == "closed"


def _of(case: _Case, of_epochs: bool) -> Finding | None:
    event = case.event
    if event.connection is None and not isinstance(event, MemberLeft):
        return None
    if isinstance(event, MemberLeft):
        return _of_left(event, case, of_epochs)
    if isinstance(event, MemberExpired):
        if event.denied_ago_ms is not None and event.denied_ago_ms < event.heard_ago_ms:
            return _of_denied(event, event.denied_ago_ms)
        if of_epochs and event.connection == "open" and "rdkafka" in (event.software or "") and not _is_young(event):
            return _of_silent_rdkafka(event, case)
        return None if event.is_new else _of_expired(event, case)
    if isinstance(event, MemberNotRejoined):
        return _of_not_rejoined(event, case)
    if isinstance(event, MemberNotRevoked):
        return _of_not_revoked(event)
    return _of_replaced(event) if isinstance(event, MemberReplaced) else None


# A member that left


def _of_left(event: MemberLeft, case: _Case, of_epochs: bool) -> Finding | None:
    name, member = event.name, event.member
    if event.removed_by is not None:
        text = f"{name} was removed by the client {event.removed_by}, and did not leave by itself"
        return Finding(REMOVED, member, text, sure=CERTAIN)
    reason = event.client_reason or ""
    if any(each in reason for each in _SAYS_SLOW):
        limit = event.rebalance_timeout_ms
        text = f"{name} polled too slowly: it left because it had not polled for max.poll.interval.ms{_of_limit(limit)}"
        return _slow_poll(event, f"{text}{_again(case, limit)}", limit, case.back_ms, CERTAIN)
    if event.connection is None:
        return None
    if _stopped(event, case):
        left = f"{name} left{event.reason}{left_uncommitted(event)}"
        text = f"{left} and closed its connection"
        if case.returned_ms is not None and case.has_twin:
            text += f", and another one of its name joined {ms(case.returned_ms)} later, while a third one was a"
            text += " member: it was restarted, or runs of it overlap"
            static = _static(event, case.returned_ms, of_epochs)
            remedy = "" if static is None else f"If it was restarted: {static[:1].lower()}{static[1:]} "
            remedy += "If runs of it overlap: do not start one before the last one has ended."
            return Finding(RESTARTED, member, text, remedy, POSSIBLE)
        if case.returned_ms is not None:
            text += f", and came back {ms(case.returned_ms)} later on another one: it was restarted"
            what = _AT_REBALANCE if case.at_rebalance else _static(event, case.returned_ms, of_epochs)
            remedy = " ".join(filter(None, (_commit_first(event), what)))
            return Finding(RESTARTED, member, text, remedy or None)
        if case.is_guest and _committed_briefly(event):
            return _of_guest(event)
        said = left.removesuffix(",") if event.reason else f"{text}: it was stopped"
        return Finding(STOPPED, member, said, _commit_first(event), CERTAIN)
    return _left_and_stays_connected(event, case)


def left_uncommitted(event: MemberLeft) -> str:
    """The records that a member had got, and did not commit before it left, as a phrase between commas; "" if there are
    none."""
    found = sorted(event.uncommitted.items())
    if not found:
        return ""
    records = sum(given - offset for _, (offset, given) in found)
    where = "; ".join(
        f"{topic}-{number} up to {given}, committed {at}" for (topic, number), (at, given) in found[:MAX_NAMED]
    )
    uncommitted = f"with {count(records, 'record')} uncommitted that it had got ({where}), which are read again,"
    return f", {'perhaps, as its library fetches ahead, ' if event.fetches_ahead else ''}{uncommitted}"


#: What to do about a program that leaves without a commit of what it has done.
COMMIT_FIRST: Final = (
    "Let it commit what it has done before it closes its consumer, and when partitions are revoked: enable.auto.commit,"
    f" or commit() before it is closed ({CLOSING})."
)


def _commit_first(event: MemberLeft) -> str | None:
    return COMMIT_FIRST if event.uncommitted else None


#: What to do about a program that may have stopped because of a rebalance: a static member does not help then.
_AT_REBALANCE: Final = (
    "It left during a rebalance that another member had begun, or just after it: if it was not stopped on purpose, look"
    " in its log for what stops it when its group rebalances."
)


def _static(event: MemberLeft, away_ms: float, of_epochs: bool) -> str | None:
    """The advice to be a static member; None if it is one, or if a session of the time that a program was away would
    be too long."""
    longest = _LONGEST_SESSIONS_MS[of_epochs]
    if away_ms > longest or event.member.instance_id:
        return None
    text = "With a group.instance.id of its own a restart within the session timeout costs no rebalance (KIP-345)"
    if event.session_ms is None or away_ms <= event.session_ms:
        return f"{text}."
    session = "group.consumer.session.timeout.ms of the broker" if of_epochs else "session.timeout.ms"
    text += f": set {session}, now {ms(event.session_ms)}, above {_whole_seconds(away_ms)}"
    return f"{text}. A program that crashes then keeps its partitions for as long."


def _is_brief(event: MemberLeft) -> bool:
    """Whether a member left soon after it had joined."""
    return event.joined_ago_ms is not None and event.joined_ago_ms <= _SHORT_MS


def _committed_briefly(event: MemberLeft) -> bool:
    """Whether a member that is no static one was there for a short time, and committed."""
    joined, committed = event.joined_ago_ms, event.committed_ago_ms
    if joined is None or committed is None or event.member.instance_id:
        return False
    return committed <= joined < BRIEF_MS


def _of_guest(event: MemberLeft) -> Finding:
    stayed = ms(event.joined_ago_ms or 0)
    text = f"{event.name}, a member for {stayed} only, left and closed its connection: it was stopped"
    others = "Other members do not read what it has committed, unless the offsets are set back"
    others += f" (barnabas groups reset-offsets {quote(event.group)})."
    changes = [each for each in event.changes or () if (each.after or 0) > (each.before or 0)]
    if changes:
        done = list(map(changed_offset, changes[:MAX_NAMED]))
        if len(changes) > len(done):
            done.append(count(len(changes) - len(done), "more partition"))
        text = f"{event.name}, a member for {stayed} only, committed {', '.join(done)}, and was stopped: other members"
        text += " do not get these records any more"
        before = [Position(each.topic, each.partition, each.before) for each in changes if each.before is not None]
        if len(before) == len(changes):
            others = f"To read the records again: stop the members, then `{reset_offsets(event.group, before)}`."
    remedy = "If it does not belong to the group (a console consumer, a test): give it a group.id of its own."
    return Finding(STOPPED, event.member, text, f"{remedy} {others}", CERTAIN)


def _stopped(event: MemberLeft, case: _Case) -> bool:
    if event.connection == "closed":
        return True
    return case.back_ms is None and case.closed_ms is not None and case.closed_ms <= STOPS_MS


def _left_and_stays_connected(event: MemberLeft, case: _Case) -> Finding | None:
    """A member left without a reason, and its connection stayed open."""
    name, limit = event.name, _poll_interval(event)
    was_one = "" if event.joined_ago_ms is None else f" {ms(event.joined_ago_ms)} after it had joined"
    left = f"it left by itself{was_one}, its connection stayed open"
    if _is_young(event):
        text = f"{name} probably unsubscribed: {left}, and it was a member for less than its max.poll.interval.ms"
        if case.back_ms is not None:
            text = f"{name} probably unsubscribed and subscribed again: {left}, and it joined again {ms(case.back_ms)}"
            text += f" later; its max.poll.interval.ms is {ms(limit or 0)}, so it was not that"
        return Finding(RESUBSCRIBED, event.member, text)
    if case.back_ms is None:
        text = f"{name} has probably not polled for max.poll.interval.ms{_of_limit(limit)}: {left}, and it has not"
        if event.codec and event.codecs_before:
            lacks = new_codec(event.codec, event.codecs_before, event.codec_at)
            text += f" joined again; {lacks}, and does not come back from its poll because of that"
            remedy = f"{install_codec(event.codec, event.software, event.member)} Then restart it. A longer"
            remedy += " max.poll.interval.ms does not help."
            return Finding(SLOW_POLL, event.member, text, remedy, PROBABLE, None, limit)
        text += (
            " joined again: it is still busy with what it polled last, or stuck, or the thread or task that polls it"
        )
        text += " has ended"
        return _slow_poll(event, text, limit, None, PROBABLE)
    if case.back_ms < _AT_ONCE_MS:
        # librdkafka leaves at the next poll, in the consumer protocol: then the time between two polls is not seen.
        text = f"{name} either polled too slowly, or unsubscribed and subscribed again: {left}, and it joined again"
        text += f" at once, {ms(case.back_ms)} later"
        limited = "" if limit is None else f" (now {ms(limit)})"
        remedy = (
            f"If its log says that it exceeded max.poll.interval.ms{limited}, raise that, or give {name} less to do"
        )
        remedy += " between two polls."
        return Finding(LEFT_AND_JOINED, event.member, text, remedy, POSSIBLE, limit_ms=limit)
    committed = event.committed_ago_ms
    polled_later = (
        limit is not None and committed is not None and _LEAVING_MS < committed < limit * _ALMOST - _COMMITS_MS
    )
    text = f"{name} probably polled too slowly: {left}{_again(case, limit)}"
    if polled_later:
        text += f"; it had committed {ms(committed or 0)} before, so it may also have unsubscribed and subscribed again"
    return _slow_poll(event, text, limit, case.back_ms, POSSIBLE if polled_later else PROBABLE)


def _poll_interval(event: Seen) -> float | None:
    return poll_interval(event.software, event.rebalance_timeout_ms, event.session_ms)


def _is_young(event: Seen) -> bool:
    """Whether a member was one for less than its poll interval, so that it cannot have exceeded it."""
    limit = _poll_interval(event)
    return limit is not None and event.joined_ago_ms is not None and event.joined_ago_ms < limit * _ALMOST


def _of_limit(limit: float | None) -> str:
    return "" if limit is None else f" ({ms(limit)})"


def _again(case: _Case, limit: float | None) -> str:
    if case.back_ms is None:
        return ""
    text = f", and it joined again {ms(case.back_ms)} later"
    if limit is None:
        return f"{text}: so much more than its max.poll.interval.ms passed between two polls"
    passed = ms(limit + case.back_ms)
    return f"{text}: {passed} passed between two polls, and its max.poll.interval.ms is {ms(limit)}"


def _slow_poll(event: Seen, text: str, limit: float | None, back_ms: float | None, sure: str) -> Finding:
    less = "give it less to do between two polls (smaller batches, max.poll.records)"
    gap = None if limit is None or back_ms is None else limit + back_ms
    if gap is not None:
        remedy = f"Set max.poll.interval.ms of {event.name} above {_whole_seconds(gap)}, or {less}."
    elif back_ms is not None:
        remedy = f"Raise max.poll.interval.ms of {event.name} by more than {_whole_seconds(back_ms)}, or {less}."
    else:
        remedy = f"Look in the log of {event.name} for an error that ended what polls it: then restart it, and let such"
        remedy += f" an error end the program. If it is busy: raise max.poll.interval.ms, or {less}."
    return Finding(SLOW_POLL, event.member, text, remedy, sure, gap, limit)


def _whole_seconds(milliseconds: float) -> str:
    return f"{ceil(milliseconds / 1000)} s"


# A member that was removed


def _of_expired(event: MemberExpired, case: _Case) -> Finding:
    name, member, session = event.name, event.member, ms(event.session_ms)
    if event.connection == "closed":
        ago = f"{ms(event.closed_ago_ms or 0)} before it was removed"
        error = f" ({event.closed_error})" if event.closed_error else ""
        if event.closed_by == "broker":
            text = f"{name} lost its connection: the broker closed it{error} {ago} (its session is {session}), and it"
            text += " did not come back"
            return Finding(CLOSED_BY_BROKER, member, text, "Look at the broker's log around this time.", CERTAIN)
        if member.instance_id:
            return _of_static_away(event, case, f"its connection was closed{error} {ago}")
        text = f"{name} probably crashed or was killed: its connection was closed{error} {ago} (its session is"
        text += f" {session}), and it had not left"
        if case.assigning:
            text += "; it was to assign partitions and has not, so its assignor may have failed"
        if case.returned_ms is not None:
            text += f"; it came back {ms(case.returned_ms)} later on another one"
        remedy = (
            f"Look why its process ended: its last lines of log, kill -9, out of memory, or an exit without close()."
            f" Partitions of a member that does not leave wait for its session.timeout.ms ({session})."
        )
        return Finding(KILLED, member, text, remedy)
    silent = event.heard_ago_ms
    fetched = event.fetched_ago_ms
    if fetched is not None and fetched < min(silent, event.session_ms) / 2:
        text = f"{name} sent no heartbeat for {ms(silent)}, its session is {session}, but it still fetched"
        text += f" {ms(fetched)} before: "
        if case.is_late:
            text += "its heartbeat.interval.ms is probably near its session"
            return Finding(NO_HEARTBEATS, member, text, LATE_HEARTBEATS, PROBABLE)
        text += "its heartbeat thread or task probably starves, or its heartbeat.interval.ms is near its session"
        remedy = (
            "Set heartbeat.interval.ms to a third of session.timeout.ms at most. If it is: look what its heartbeat"
            " thread or task waits for: a lock, or a future that nothing completes."
        )
        return Finding(NO_HEARTBEATS, member, text, remedy, PROBABLE)
    back = case.returned_ms if case.back_ms is None else case.back_ms
    if case.is_late and (back is None or silent + back <= 2 * event.session_ms):
        text = (
            f"{name} sent no heartbeat for {ms(silent)}, its session is {session}, and heartbeats of the group come"
            " late again and again: its heartbeat.interval.ms is probably near its session"
        )
        return Finding(NO_HEARTBEATS, member, text, LATE_HEARTBEATS, PROBABLE)
    if back is not None:
        gap = silent + back
        text = (
            f"{name} was probably blocked or paused, or its network was cut: it sent no heartbeat for {ms(gap)}, its"
            f" connection stayed open, and it joined again on {'it' if case.returned_ms is None else 'another one'};"
            f" its session is {session}"
        )
        remedy = (
            "Move what takes long off the event loop, or the interpreter lock, that its heartbeats need; or set"
            f" session.timeout.ms above {_whole_seconds(gap)}. If its log says that requests timed out, look at the"
            " network."
        )
        return Finding(BLOCKED, member, text, remedy, PROBABLE, gap, event.session_ms)
    if case.anew_ms is not None and case.anew_ms <= _ANEW_MS and (case.closed_ms or inf) > case.anew_ms + STOPS_MS:
        text = (
            f"the network between {name} and the broker was probably cut without closing the connection: {name} was not"
            f" heard of for {ms(silent)}, its session is {session}, and it joined again {ms(case.anew_ms)} later on"
            " another connection, while the old one stayed open; or another instance was started while this one hangs"
        )
        remedy = (
            "Look at firewalls, NAT and load balancers between them: one that drops a connection without a word, such"
            " as after an idle time, which has to be longer than heartbeat.interval.ms. If another instance was"
            " started: look whether the old process still runs, and end it."
        )
        return Finding(BLOCKED, member, text, remedy, PROBABLE, silent, event.session_ms)
    text = (
        f"{name} was not heard of for {ms(silent)}, its session is {session}, and its connection stayed open: it was"
        " probably blocked or paused, or its network was cut"
    )
    remedy = (
        "Look whether its process runs and answers. Raise session.timeout.ms, or move the work off the event loop that"
        " sends heartbeats."
    )
    return Finding(SILENT, member, text, remedy, POSSIBLE, silent, event.session_ms)


def _of_denied(event: MemberExpired, ago_ms: float) -> Finding:
    text = f"{event.name} may not read the group any more: its requests were refused (GROUP_AUTHORIZATION_FAILED), the"
    text += f" last one {ms(ago_ms)} before its session of {ms(event.session_ms)} ended"
    return Finding(DENIED, event.member, text, NEEDS_READ, CERTAIN)


def _of_static_away(event: MemberExpired, case: _Case, closed: str) -> Finding:
    """A static member is expected back, so its client does not leave when it is closed: a crash looks the same."""
    name, session = event.name, ms(event.session_ms)
    text = f"static member {name} stayed away for longer than its session of {session}: {closed}"
    if case.returned_ms is None and case.refused:
        text += ", and it was refused when it came back before that: it was probably killed and restarted"
        remedy = f"After a kill it has to wait for the rest of its session ({session}): let it try again until then. A"
        remedy += " static member that closes its consumer may come back at once."
        return Finding(STATIC_AWAY, event.member, text, remedy, PROBABLE, limit_ms=event.session_ms)
    if case.returned_ms is None and case.successor is not None:
        text += f", and {case.successor.name} joined meanwhile, a static member of the same client id: the program"
        text += " probably has another group.instance.id after each start"
        return Finding(STATIC_AWAY, event.member, text, _SAME_INSTANCE_ID, PROBABLE, limit_ms=event.session_ms)
    if case.returned_ms is None:
        text += ", and it has not come back: it was stopped, or has crashed, which looks the same, as static members do"
        text += " not leave"
        remedy = f"If it was restarted: set session.timeout.ms of {name} above the time that a restart takes."
        remedy += " Otherwise look why its process ended."
        return Finding(STATIC_AWAY, event.member, text, remedy, CERTAIN, limit_ms=event.session_ms)
    away = (event.closed_ago_ms or 0) + case.returned_ms
    text += f", and it came back {ms(away)} after that"
    # Its session began at its last heartbeat, before its connection was closed.
    silent = max(event.heard_ago_ms, event.session_ms) + case.returned_ms
    remedy = f"Set session.timeout.ms of {name} above {_whole_seconds(silent)}: then a restart costs no rebalance."
    return Finding(STATIC_AWAY, event.member, text, remedy, CERTAIN, silent, event.session_ms)


def _of_silent_rdkafka(event: MemberExpired, case: _Case) -> Finding:
    """A member of librdkafka in the consumer protocol: it sends no heartbeats after max.poll.interval.ms."""
    name, fetched, limit = event.name, event.fetched_ago_ms, event.rebalance_timeout_ms
    again = "" if case.back_ms is None else f", and it joined again {ms(case.back_ms)} later"
    silent = f"it sent no heartbeat for {ms(event.heard_ago_ms)}, as librdkafka does after max.poll.interval.ms"
    if fetched is not None and fetched < min(event.heard_ago_ms, event.session_ms) / 2:
        text = (
            f"{name} probably polled too slowly: {silent}{_of_limit(limit)}, but it still fetched {ms(fetched)} before"
        )
        return _slow_poll(event, f"{text}{again}", limit, None, PROBABLE)
    text = f"{name} either polled too slowly, or was blocked or paused, or its network was cut: {silent}"
    text += f"{_of_limit(limit)}, and its connection stayed open{again}"
    remedy = "Look whether its log says that it exceeded max.poll.interval.ms: then raise that, or give it less to do"
    remedy += " between two polls. Otherwise look at its process and its network, or raise session.timeout.ms."
    return Finding(SILENT_OR_SLOW, event.member, text, remedy, POSSIBLE, limit_ms=limit)


def _of_not_rejoined(event: MemberNotRejoined, case: _Case) -> Finding | None:
    """A member that heartbeats and does not rejoin does not poll."""
    if event.heard_ago_ms > event.waited_ms or case.back_ms is None:
        return None
    gap = event.waited_ms + case.back_ms
    text = (
        f"{event.name} probably polled too slowly: it did not rejoin within {ms(event.waited_ms)}, though it was heard"
        f" of {ms(event.heard_ago_ms)} before, and it joined again {ms(case.back_ms)} later"
    )
    return _slow_poll(event, text, event.waited_ms, case.back_ms, PROBABLE) if gap else None


def _of_not_revoked(event: MemberNotRevoked) -> Finding | None:
    """A member whose connection was closed does not revoke: the time for that ends before its session does."""
    if event.connection != "closed" or event.closed_by == "broker":
        return None
    error = f" ({event.closed_error})" if event.closed_error else ""
    text = (
        f"{event.name} probably crashed or was killed: its connection was closed{error} {ms(event.closed_ago_ms or 0)}"
        f" before the {ms(event.waited_ms)} ended in which it had to revoke {in_words(event.partitions)}, and it had"
        " not left"
    )
    remedy = (
        "Look why its process ended: its last lines of log, kill -9, out of memory, or an exit without close()."
        " Partitions that such a member was to revoke wait for its max.poll.interval.ms, or for its session if that is"
        " shorter."
    )
    return Finding(KILLED, event.member, text, remedy)


def _of_refusal(event: InstanceInUse | JoinRefused | SessionRefused | RegexRefused) -> Finding:
    """A client may not join."""
    told = event.sentence()
    text = told.text.removesuffix(".")
    if isinstance(event, SessionRefused):
        return Finding(SESSION_REFUSED, event.member, text, told.remedy, CERTAIN)
    if isinstance(event, RegexRefused):
        return Finding(REGEX_REFUSED, event.member, text, told.remedy, CERTAIN)
    if isinstance(event, JoinRefused):
        return Finding(NO_COMMON_ASSIGNOR, event.member, text, told.remedy, CERTAIN)
    return Finding(SAME_INSTANCE, event.owner, text, told.remedy)


def _of_replaced(event: MemberReplaced) -> Finding | None:
    if event.connection != "open":
        return None
    text = (
        f"two programs probably use the group.instance.id {event.name}: a member took it over while the connection of"
        " the other was open"
    )
    remedy = "Give each program a group.instance.id of its own: the one that is replaced is fenced, and usually ends."
    return Finding(SAME_INSTANCE, event.member, text, remedy)


# Programs that crash again and again


class _Life(NamedTuple):
    """A member from its join to the end of its connection, or to its leave, in ms since 1970."""

    event: Seen
    start: float
    end: float

    @property
    def took_ms(self) -> float:
        """For how long it lived."""
        return max(self.end - self.start, 0.0)

    @property
    def has_left(self) -> bool:
        """Whether it left; otherwise its connection was closed without a leave."""
        return isinstance(self.event, MemberLeft)


def _find_falls(events: Sequence[GroupEvent], at_rebalances: Container[int], findings: Findings) -> None:
    """Give the ends and joins of programs that leave at rebalances which others of them cause the same finding, before
    one of them alone has done so often enough, if they have left the group empty again and again."""
    fallen = list(falls(events, at_rebalances))
    if len(fallen) < _FALLS:
        return
    chains: list[list[_Life]] = []
    for event in events:
        life = _life(event, findings) if id(event) in at_rebalances else None
        if life is None or life.took_ms > _SHORT_MS:
            continue
        if not chains or life.start - chains[-1][-1].end > _LOOP_WAITS_MS:
            chains.append([])
        chains[-1].append(life)
    told: dict[int, Finding] = {}
    for chain in chains:
        known = {id(life.event) for life in chain}
        of_chain = [fall for fall in fallen if known.issuperset(map(id, fall))]
        ends = [end for fall in of_chain for end in fall]
        programs = {end.member[1:] for end in ends}
        lives = [life for life in chain if life.event.member[1:] in programs]
        if (
            len(of_chain) >= _FALLS
            and len(programs) < len(ends)
            and all(are_alike(ends[0].member.client_id or "", end.member.client_id or "") for end in ends)
            and not _stands([fall[-1] for fall in of_chain])
        ):
            finding = _of_falls(lives, len(of_chain))
            told.update((id(life.event), finding) for life in lives)
    findings.of_departures.update(told)
    gone: dict[tuple[object, ...], tuple[int, Finding]] = {}
    for event in events if told else ():
        if isinstance(event, Departure):
            gone.pop(event.member[1:], None)
            if id(event) in told:
                gone[event.member[1:]] = event.time, told[id(event)]
        elif isinstance(event, MemberJoined) and event.rejoined_ms is None and event.member[1:] in gone:
            time, finding = gone[event.member[1:]]
            if event.time - time <= _LOOP_WAITS_MS:
                findings.of_joins[id(event)] = finding


def _of_falls(lives: Sequence[_Life], often: int) -> Finding:
    last = lives[-1].event
    programs = {life.event.member[1:]: life.event.member for life in lives}
    names = names_of(sorted(programs.values(), key=lambda each: each.name))
    who = names if len(programs) > 1 else f"members named {names}"
    brief = f"{who} left again and again right after rebalances that others of them caused"
    text = f"{brief}: they lived {_span(life.took_ms for life in lives)} each time, {times(len(lives))} within"
    text += f" {ms(lives[-1].end - min(life.start for life in lives))}, and left during such a rebalance, or up to"
    text += f" {ms(JUST_AFTER_MS)} after it, {times(often)} until the group was empty; probably they stop when their"
    text += " group rebalances (an exception in their rebalance listener?)"
    remedy = (
        f"Look in the logs of {names} for an error in their rebalance listener (on_partitions_revoked,"
        " on_partitions_assigned), or what else stops them when their group rebalances, and let them go on: each start"
        " of one stops the others."
    )
    return Finding(RESTART_LOOP, last.member, text, remedy, PROBABLE, brief=brief)


def _find_loops(events: Sequence[GroupEvent], at_rebalances: Container[int], findings: Findings) -> None:
    """Give all ends and joins of a program that crashes again and again the same finding."""
    loops: dict[tuple[str | None, str | None, str | None, bool], list[list[_Life]]] = {}
    for event in events:
        life = _life(event, findings)
        if life is None:
            continue
        found = loops.setdefault((*life.event.member[1:], life.has_left), [[]])
        last = found[-1][-1].end if found[-1] else life.start
        is_service = life.took_ms > _SHORT_MS and (life.has_left or life.event.member.instance_id is not None)
        if is_service or not 0 <= life.start - last <= _LOOP_WAITS_MS:
            found.append([])
        # One that ran for long was stopped in order, whatever it did before.
        if not is_service:
            found[-1].append(life)
    of_lives: dict[str | None, Finding] = {}
    silent: dict[str | None, Finding] = {}
    newest: dict[tuple[str | None, str | None, str | None], tuple[_Life, Finding]] = {}
    assigned = (
        _assigned(events) if any(len(lives) >= _LOOP_LIVES for found in loops.values() for lives in found) else {}
    )
    rebalances, delays = (_rebalances(events) if assigned else []), _delays(events, assigned)
    leaves: dict[str | None, list[float]] = {}
    for event in events if assigned else ():
        if isinstance(event, MemberLeft) and id(event) in at_rebalances:
            leaves.setdefault(event.member.client_id, []).append(event.time)
    stays = stays_at_rebalances(events) if leaves else {}
    # Only the client ids with most members at rebalances are compared: a group may have thousands.
    often = Counter(
        {each: len(leaves.get(each, [])) + len(stays.get(each, [])) for each in leaves.keys() | stays.keys()}
    )
    compared = [each for each, _ in often.most_common(_MOST_COMPARED)]
    for key, found in loops.items():
        for lives in found:
            if _is_stopped_in_order(lives, at_rebalances, findings):
                lives.pop()
            stops = _stops_at_rebalances(lives, rebalances, at_rebalances)
            if stops and lives[-1].has_left and _many_stay(lives, leaves, stays, compared):
                stops = 0
            finding = _of_loop(lives, assigned, stops, delays) if len(lives) >= _LOOP_LIVES else None
            if finding is None:
                continue
            for life in lives:
                findings.of_departures[id(life.event)] = finding
            silent |= {_member_id(life.event): finding for life in lives}
            of_lives |= {_member_id(life.event): finding for life in lives[1:]}
            newest[key[:3]] = lives[-1], finding
    if not newest:
        return
    for event in events:
        if isinstance(event, MemberSlow) and event.connection == "closed" and event.member.member_id in silent:
            findings.of_departures[id(event)] = silent[event.member.member_id]
        if not isinstance(event, MemberJoined) or event.rejoined_ms is not None:
            continue
        finding = of_lives.get(event.member.member_id)
        if finding is None and event.member[1:] in newest:
            last_life, of_newest = newest[event.member[1:]]
            if 0 <= event.time - last_life.end <= _LOOP_WAITS_MS:
                finding = of_newest
                del newest[event.member[1:]]
        if finding is not None:
            findings.of_joins[id(event)] = finding


def _find_new_instances(events: Sequence[GroupEvent], cases: Iterable[_Case], findings: Findings) -> None:
    """Give the ends and joins of programs that have another group.instance.id after each start the same finding."""
    of_client: dict[str | None, list[_Case]] = {}
    for case in cases:
        known = findings.of_departures.get(id(case.event))
        if case.successor is not None and case.returned_ms is None and known is not None and known.kind == STATIC_AWAY:
            of_client.setdefault(case.event.member.client_id, []).append(case)
    loops: dict[str | None, tuple[float, Finding]] = {}
    for client_id, found in of_client.items():
        if len(found) < _LOOP_LIVES:
            continue
        finding, first = _of_new_instances(found), found[0].event
        findings.of_departures.update((id(case.event), finding) for case in found)
        loops[client_id] = first.time - (first.closed_ago_ms or 0), finding
    for event in events if loops else ():
        if isinstance(event, MemberJoined | MemberAway) and event.member.instance_id:
            loop = loops.get(event.member.client_id)
            if loop is not None and event.time >= loop[0]:
                of_kind = findings.of_joins if isinstance(event, MemberJoined) else findings.of_departures
                of_kind[id(event)] = loop[1]


def _of_new_instances(cases: Sequence[_Case]) -> Finding:
    first, last = cases[0].event, cases[-1].event
    session = "" if last.session_ms is None else f" of {ms(last.session_ms)}"
    brief = f"the program with the client id {last.member.client_id} probably has another group.instance.id after each"
    brief += " start"
    text = f"{brief}: {times(len(cases))} within {ms(last.time - first.time + (first.closed_ago_ms or 0))} a static"
    text += f" member of it stayed away for longer than its session{session}, and another one had joined meanwhile"
    return Finding(NEW_INSTANCE, last.member, text, _SAME_INSTANCE_ID, PROBABLE, brief=brief)


def _find_runs(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Give the ends and joins of programs that were alone in the group, one after the other, the same finding."""
    seen = Runs()
    runs = [run for run in map(seen.add, events) if run is not None and run.took_ms <= _RUN_MS]
    runs = findings.runs = [run for run in runs if _is_run(run, findings)]
    sure = [run for run in runs if run.is_sure]
    if len(sure) < _LOOP_LIVES or _stands([run.end for run in runs]) or not _all_advance(sure):
        return
    last_start = runs[-1].joined.time
    deletions = [
        each
        for each in events
        if isinstance(each, GroupDeleted) and each.forgets and runs[0].ended_at <= each.time <= last_start
    ]
    finding = _of_runs(runs, deletions)
    ends = {id(findings.of_departures.get(id(run.end))) for run in runs}
    findings.of_joins.update((join, finding) for join, before in findings.of_joins.items() if id(before) in ends)
    findings.of_departures.update((id(run.end), finding) for run in runs)
    findings.of_joins.update((id(run.joined), finding) for run in runs[1:])
    members = {run.joined.member.member_id for run in runs}
    _tell_asks(events, members, finding, findings)
    # Static members that are away.
    away = (
        event for event in events if isinstance(event, MemberAway | MemberSlow) and event.member.member_id in members
    )
    findings.of_departures.update(
        (id(event), finding) for event in away if isinstance(event, MemberAway) or event.connection == "closed"
    )


def _find_first_runs(events: Iterable[GroupEvent], findings: Findings) -> None:
    """Say of restarts of a program that was alone in the group that they may be the first runs of a scheduled job."""
    alone = {id(run.end): run for run in findings.runs}
    ends = {id(findings.of_departures[key]): run for key, run in alone.items() if key in findings.of_departures}
    for join in events:
        before = findings.of_joins.get(id(join))
        run = None if before is None else ends.get(id(before))
        if before is None or run is None or before.kind != RESTARTED:
            continue
        kind, text = RESTARTED, before.text
        if join.time - run.joined.time >= _SCHEDULE_MS:
            text += ", or it is a job that runs now and then"
        elif isinstance(run.end, Departure) and _has_read_all(run.end):
            kind = STOPPED
            text += ", or it is started when there are records, and stopped when it has read them"
        remedy = "It was alone in the group, so that no other member waited. If it should run on: look what stops it."
        if run.members > 1:
            remedy = "The group had no other members that waited. If it should run on: look what stops it."
        finding = replace(before, kind=kind, text=text, remedy=remedy, sure=POSSIBLE)
        findings.of_departures[id(run.end)] = findings.of_joins[id(join)] = finding


def _has_read_all(end: Departure) -> bool:
    """Whether the last member of a group had committed offsets in all of its partitions, and no records waited there,
    as far as is known."""
    return bool(end.positions) and not end.unread and all(each.offset >= 0 for each in end.positions or ())


class _Round(NamedTuple):
    """Members of one client id that joined an empty group together, and left it together."""

    joins: list[MemberJoined]
    ends: list[MemberLeft]

    @property
    def run(self) -> Run:
        """The run of these members together."""
        return Run(self.joins[0], self.ends[-1], self.ends[-1].time, members=len(self.joins))


def _rounds(events: Iterable[GroupEvent], findings: Findings) -> Iterator[_Round]:
    joins: list[MemberJoined] = []
    ends: list[Departure] = []
    for event in events:
        if isinstance(event, MemberJoined):
            joins.append(event)
        elif isinstance(event, Departure):
            ends.append(event)
        elif isinstance(event, GroupEmpty):
            left = [each for each in ends if isinstance(each, MemberLeft)]
            if len(left) == len(ends) and _is_round(joins, left, findings):
                yield _Round(joins, left)
            joins, ends = [], []


def _is_round(joins: Sequence[MemberJoined], ends: Sequence[MemberLeft], findings: Findings) -> bool:
    abouts = [findings.of_departures.get(id(end)) for end in ends]
    return (
        len(ends) > 1
        and sorted(each.member.member_id or "" for each in joins) == sorted(end.member.member_id or "" for end in ends)
        and len({end.member.client_id for end in ends}) == 1
        and all(about is not None and about.kind in (STOPPED, RESTARTED) for about in abouts)
        and joins[-1].time - joins[0].time <= _TOGETHER_MS
        and ends[-1].time - ends[0].time <= _TOGETHER_MS
        and joins[-1].time < ends[0].time <= joins[0].time + _RUN_MS
    )


def _find_rounds(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Give the joins and ends of programs that come together and leave together, again and again, the same finding."""
    rounds = list(_rounds(events, findings))
    findings.runs = sorted([*findings.runs, *(each.run for each in rounds)], key=lambda run: run.ended_at)
    ends = [end for each in rounds for end in each.ends]
    if (
        len(rounds) < _LOOP_LIVES
        or len({end.member.client_id for end in ends}) != 1
        or _stands([each.ends[-1] for each in rounds])
    ):
        return
    last = ends[-1]
    hosts = {end.member.common_name for end in ends}
    who = last.member.common_name if len(hosts) == 1 else f"{last.member.client_id} on {len(hosts)} hosts"
    text = f"{who} was alone in the group with several members, and started and stopped: {count(len(rounds), 'run')}"
    text += f" within {ms(last.time - rounds[0].joins[0].time)}, the last one of"
    text += f" {count(len(rounds[-1].ends), 'member')}, which joined the empty group and left it"
    finding = Finding(ALONE, last.member, text, _OF_JOB, PROBABLE)
    findings.of_departures.update((id(end), finding) for end in ends)
    joins = [join for each in rounds for join in each.joins]
    # Those that have joined since then are the next run.
    later = takewhile(lambda each: not isinstance(each, Departure), (each for each in events if each.time > last.time))
    joins += [
        each for each in later if isinstance(each, MemberJoined) and each.member.client_id == last.member.client_id
    ]
    findings.of_joins.update((id(join), finding) for join in joins[1:])
    _tell_asks(events, {join.member.member_id for join in joins}, finding, findings)


def _is_run(run: Run, findings: Findings) -> bool:
    known = findings.about(run.end)
    if run.is_static or run.is_away:
        return known is None or known.kind == STATIC_AWAY
    return known is not None and known.kind in (STOPPED, RESTARTED)


def _all_advance(runs: Sequence[Run]) -> bool:
    """Whether each run of a static member has committed more than the one before: one that crashes may not leave,
    too."""
    return all(not after.is_static or _advances(before.end, after.end) for before, after in pairwise(runs))


def _advances(before: Seen, after: Seen) -> bool:
    """Whether the group has committed more at the end of a member than at that of the one before."""
    first, second = before.committed_sum, after.committed_sum
    return first is not None and second is not None and first < second


def _tell_asks(
    events: Iterable[GroupEvent], member_ids: Container[str | None], finding: Finding, findings: Findings
) -> None:
    """Give the rebalances for which members have joined again the finding about these members."""
    asks = (event for event in events if isinstance(event, LeaderRejoined | MemberRejoined))
    findings.of_departures.update((id(event), finding) for event in asks if event.member.member_id in member_ids)


def _stands(ends: Sequence[Seen]) -> set[Position]:
    """The committed offsets that were the same at all ends of a program, while records waited after them."""
    waited = [{each for each in end.positions or () if each.offset >= 0 and each[:2] in _unread(end)} for end in ends]
    return set.intersection(*waited)


def _of_runs(runs: Sequence[Run], deletions: Sequence[GroupDeleted]) -> Finding:
    """The finding about runs of programs that were alone in the group.

    Args:
        runs: three or more.
        deletions: of the group, by clients, between its runs.
    """
    last = runs[-1].end
    span = _span(run.took_ms for run in runs)
    who = sorted(
        {run.end.member.common_name or "": run.end.member for run in runs}.values(), key=lambda each: each.name
    )
    text = f"{were(len(who))} alone in the group, and started and stopped:"
    text += f" {count(len(runs), 'run')} within {ms(runs[-1].ended_at - runs[0].joined.time)}, of {span} each, which"
    if any(run.is_static for run in runs):
        text += " committed at their ends, and closed their connections (static members do not leave)"
    elif runs[-1].is_away:
        text += " left for a while, as static members do"
    else:
        text += " joined the empty group and left it"
    if all(run.end.positions and all(each.offset < 0 for each in run.end.positions) for run in runs):
        text = f"{names_of(who)} {text}"
        return _of_runs_without_commit(last.member, text, has_records=any(_unread(run.end) for run in runs))
    if deletions:
        return _of_deletions(last.member, names_of(who), text, deletions)
    before, after = runs[0].end.committed_sum, last.committed_sum
    if before is not None and after is not None and after > before:
        text += f"; from the end of the first one to that of the last one {count(after - before, 'record')}"
        text += f" {'was' if after - before == 1 else 'were'} committed"
    if len(who) == 1 and _is_loop(runs):
        text = f"{names_of(who)} probably makes a consumer again and again: it {text}; cron and Kubernetes start a job"
        text += " once a minute at most"
        remedy = (
            "Keep one consumer open for as long as the program runs, and poll it: each new one has to join. Look for a"
            " loop that ends when no record comes, and closes its consumer (consumer_timeout_ms of kafka-python), or"
            " after an error. If something else starts the program again each time: let it run for longer."
        )
        return Finding(CONSUMER_LOOP, last.member, text, remedy, PROBABLE)
    text = f"{names_of(who)} {text}"
    lags = _growing(runs)
    if lags:
        waited = listed([f"{each:,}" for each in lags])
        brief = f"each of the last runs of {names_of(who)} left more records than the one before, as more is written"
        remedy = (
            "Let each run read all that is there, start them more often or with several members, or let one"
            " program run on. Otherwise records wait for ever longer, and are deleted at last before they are read"
            " (retention.ms)."
        )
        text = f"{brief} than they read: {waited} waited at their ends; {text}"
        return Finding(RUNS_BEHIND, last.member, text, remedy, PROBABLE)
    return Finding(ALONE, last.member, text, _OF_JOB, CERTAIN)


def _of_deletions(member: Member, names: str, runs: str, deletions: Sequence[GroupDeleted]) -> Finding:
    clients = sorted({each.by_client or "" for each in deletions})
    text = f"{listed(clients)} deleted the group with its committed offsets {times(len(deletions))} between the runs of"
    text += f" {names}, so that the next one began at its auto.offset.reset each time: {names} {runs}"
    remedy = (
        "Take the group out of what deletes groups without members: until then runs read everything again (earliest),"
        " or skip what was written between two runs (latest). If each run is to read everything: it need not commit."
    )
    return Finding(GROUP_DELETED, member, text, remedy, CERTAIN)


def _growing(runs: Sequence[Run]) -> list[int]:
    """The records that waited at the ends of the last runs, if each left more than the one before, and the last one
    more than it had committed; none otherwise, or if that is not known."""
    lags = [run.end.lag for run in runs[-_LOOP_RUNS_BEHIND:] if isinstance(run.end, Departure)]
    before, after = (run.end.committed_sum for run in runs[-2:])
    known = [each for each in lags if each is not None]
    if before is None or after is None or len(known) < _LOOP_RUNS_BEHIND:
        return []
    grows = all(later > earlier for earlier, later in pairwise(known))
    return known if grows and known[-1] > after - before else []


def _is_loop(runs: Sequence[Run]) -> bool:
    """Whether runs follow each other so soon that no schedule has started them."""
    if len(runs) < _LOOP_RUNS:
        return False
    pauses = median(after.joined.time - before.ended_at for before, after in pairwise(runs))
    starts = median(after.joined.time - before.joined.time for before, after in pairwise(runs))
    return pauses < _LOOP_PAUSE_MS and starts < _SCHEDULE_MS


def _of_runs_without_commit(member: Member, text: str, *, has_records: bool) -> Finding:
    remedy = (
        "let it commit (enable.auto.commit and close(), or commit() after each batch): with auto.offset.reset=earliest"
        " each run reads everything again, with latest it skips what was written between two runs. If it keeps its"
        " positions elsewhere, it needs no change."
    )
    if not has_records:
        return Finding(
            ALONE, member, f"{text}; none of them has committed an offset", f"If it reads records: {remedy}", CERTAIN
        )
    text += "; none of them has committed an offset, though there are records: each begins at its auto.offset.reset"
    return Finding(RUNS_UNCOMMITTED, member, text, capital(remedy), CERTAIN)


def _span(durations: Iterable[float]) -> str:
    """The shortest and the longest of durations in ms, in words."""
    took = sorted(durations)
    shortest, longest = ms(took[0]), ms(took[-1])
    return shortest if shortest == longest else f"{shortest} to {longest}"


# Runs of one program that overlap


def _find_overlaps(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Give the ends and joins of a program whose next run begins before the last one has ended the same finding.

    Its runs need not come from one host: a scheduler may choose another one for each.
    """
    lives: dict[str, list[_Life]] = {}
    for event in events:
        if not isinstance(event, MemberLeft) or event.member.instance_id:
            continue
        life = _life(event, findings)
        if life is not None and life.took_ms <= _RUN_MS:
            lives.setdefault(event.member.client_id or "", []).append(life)
    for client_id, of_client in lives.items():
        runs = sorted(of_client, key=lambda each: each.start)
        every = _interval(runs)
        if every is None:
            continue
        finding = _of_overlaps(runs, every)
        findings.of_departures.update((id(run.event), finding) for run in runs)
        first, last = runs[0].start, max(run.end for run in runs) + every
        findings.of_joins.update(
            (id(event), finding)
            for event in events
            if isinstance(event, MemberJoined)
            and event.rejoined_ms is None
            and event.member.client_id == client_id
            and first < event.time <= last
        )


def _are_replaced(runs: Sequence[_Life], every: float) -> bool:
    """Whether members began together, and each later one took the place of one that left: these are deployments.

    Args:
        runs: in the order of their starts.
        every: the time in ms from one start to the next.
    """
    together = min(_TOGETHER_MS, max(_SURGE_MS, every / 2))
    first = [run for run in runs if run.start - runs[0].start <= together]
    ends = [run.end for run in runs]
    more = 0
    for run in runs[len(first) :]:
        place = next((end for end in ends if -_SURGE_MS <= run.start - end <= _TOGETHER_MS), None)
        if place is None:
            more += 1
        else:
            ends.remove(place)
    return len(first) > 1 and more < _LOOP_LIVES


def _interval(runs: Sequence[_Life]) -> float | None:
    """The time in ms from the start of a run to that of the next one, if they begin regularly and overlap; None if they
    do not."""
    if len(runs) < _LOOP_LIVES:
        return None
    starts = [after.start - before.start for before, after in pairwise(runs)]
    every = median(starts)
    if _are_replaced(runs, every):
        return None
    overlaps = sum(after.start < before.end for before, after in pairwise(runs))
    near = sum(abs(each - every) <= _NEAR * every for each in starts)
    if _are_consumers(runs, every):
        near = len(starts)
    if min(overlaps, near) < _MOST_RUNS * len(starts) or median(run.took_ms for run in runs) > _MOST_AT_ONCE * every:
        return None
    return every


def _are_consumers(runs: Sequence[_Life], every: float) -> bool:
    """Whether many members start on one host so often that no schedule has started them."""
    hosts = {run.event.member.host for run in runs}
    return len(runs) >= _CALLS and every < _SCHEDULE_MS and len(hosts) == 1


def _of_overlaps(runs: Sequence[_Life], every: float) -> Finding:
    last = runs[-1].event
    name = last.member.common_name
    span = ms(max(run.end for run in runs) - runs[0].start)
    if _are_consumers(runs, every):
        brief = f"{name} probably makes many consumers in one group, one for each request or connection"
        text = f"{brief}: {count(len(runs), 'member')} of one client id and host came and went within {span}, while"
        text += f" others of them were there; a new one starts about every {ms(round(every, -3))}, and each stays for"
        text += f" {_span(run.took_ms for run in runs)}"
        remedy = (
            "Members of one group share the records, so that each gets a part of them, and each start and end moves"
            " partitions. Use one consumer that hands the records out to all, or give each a group of its own (or none)"
            " if each is to get all records. If they are separate programs: let fewer of them run on."
        )
        return Finding(CONSUMERS_AT_ONCE, last.member, text, remedy, PROBABLE, brief=brief)
    brief = f"{name} has runs that overlap: a new one starts about every {ms(round(every, -3))}"
    text = f"{brief}, and each stays for {_span(run.took_ms for run in runs)} and leaves"
    text += f" ({len(runs)} within {span})"
    remedy = (
        "Each start and each end moves partitions. Do not start a run before the last one has ended (flock,"
        " concurrencyPolicy: Forbid of a CronJob), start them less often, or let one program run on."
    )
    return Finding(OVERLAPPING_RUNS, last.member, text, remedy, PROBABLE, brief=brief)


# Programs that make a consumer for each call


class _Call(NamedTuple):
    """A member from its join to its leave, and for how many milliseconds it had its partitions."""

    joined: MemberJoined
    left: MemberLeft
    worked_ms: int


def _assigned(events: Iterable[GroupEvent]) -> dict[str | None, int]:
    """When each member got partitions first, in ms since 1970."""
    assigned: dict[str | None, int] = {}
    waiting: set[str | None] = set()
    for event in events:
        if isinstance(event, MemberJoined):
            waiting.add(event.member.member_id)
        elif isinstance(event, RebalanceOver | TargetAssigned):
            assigned.update(dict.fromkeys(waiting, event.time))
            waiting.clear()
        elif isinstance(event, Departure):
            waiting.discard(event.member.member_id)
    return assigned


def _delays(events: Iterable[GroupEvent], assigned: Container[str | None]) -> dict[str | None, float]:
    """For how many milliseconds each member waited at least for its first partitions, as its group was empty when it
    joined; of those that never got any.

    Args:
        events: of the group, oldest first.
        assigned: the members that have got some.
    """
    return {
        member_id: event.delay_ms
        for event in events
        if isinstance(event, RebalanceStarted) and event.delay_ms
        for member_id in event.by_ids()
        if member_id not in assigned
    }


def _calls(events: Sequence[GroupEvent], findings: Findings) -> Iterator[_Call]:
    """The members that were stopped, and were never there before."""
    joins: dict[str | None, MemberJoined] = {}
    assigned = _assigned(events)
    for event in events:
        if isinstance(event, MemberJoined):
            joins[event.member.member_id] = event
        elif isinstance(event, Departure):
            member_id = event.member.member_id
            joined, since = joins.pop(member_id, None), assigned.get(member_id)
            known = findings.of_departures.get(id(event))
            if joined is None or known is None or known.kind not in (STOPPED, RESTARTED):
                continue
            if isinstance(event, MemberLeft):
                yield _Call(joined, event, event.time - (joined.time if since is None else since))


def _find_calls(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Give the ends and joins of programs that make a consumer for each call, and commit with it, the same finding."""
    found: dict[tuple[object, ...], list[list[_Call]]] = {}
    for call in _calls(events, findings):
        of_program = found.setdefault(call.left.member[1:], [])
        if not of_program or call.left.time - of_program[-1][-1].left.time > _NEXT_CALL_MS:
            of_program.append([])
        of_program[-1].append(call)
    for calls in (each for of_program in found.values() for each in of_program if len(each) >= _CALLS):
        ends = [call.left for call in calls]
        before, after = ends[0].committed_sum, ends[-1].committed_sum
        typical = sorted(call.worked_ms for call in calls)[len(calls) // 2]
        if typical > _CALL_MS or before is None or after is None or after <= before or _stands(ends):
            continue
        finding = _of_calls(calls, typical, _of_others(events, calls))
        findings.of_departures.update((id(call.left), finding) for call in calls)
        findings.of_joins.update((id(call.joined), finding) for call in calls)
        _tell_asks(events, {call.joined.member.member_id for call in calls}, finding, findings)


def _of_others(events: Iterable[GroupEvent], calls: Sequence[_Call]) -> list[Member]:
    """The members that stay while a program joins and leaves, if it has never committed and is probably another one:
    no client id and no library of theirs is like its own."""
    if any(call.left.committed_ago_ms is not None for call in calls):
        return []
    stay: dict[str | None, MemberJoined] = {}
    for event in events:
        if isinstance(event, MemberJoined) and event.time <= calls[0].left.time:
            stay[event.member.member_id] = event
        elif isinstance(event, Departure) and event.time <= calls[-1].joined.time:
            stay.pop(event.member.member_id, None)
    own = calls[-1].joined
    stay.pop(own.member.member_id, None)
    others = stay.values()
    if any(library_of(each) == library_of(own) or is_default(each.member.client_id or "") for each in others):
        return []
    if any(are_alike(each.member.client_id or "", own.member.client_id or "") for each in others):
        return []
    return [each.member for each in others]


def library_of(joined: MemberJoined) -> str:
    """The name of the library of a member; "" of those that send none, such as aiokafka."""
    return (joined.software or "").partition(" ")[0]


def _of_calls(calls: Sequence[_Call], typical_ms: int, others: Sequence[Member]) -> Finding:
    last = calls[-1].left
    name = last.member.common_name
    often = (
        f"it joined and left {times(len(calls))} within {ms(last.time - calls[0].joined.time)}, and had its partitions"
        f" for {ms(typical_ms)} at the median"
    )
    if others:
        brief = f"{name} joins and leaves again and again, and probably does not belong to the group"
        text = f"{brief}: {often}; it committed nothing, and its client id and library are unlike those of"
        text += f" {names_of(others)}"
        remedy = (
            f"Give {name} a group.id of its own. A health check needs none: an AdminClient, or assign() without the"
            " group. Each time that it joins and leaves, the other members stop, and meanwhile it has a part of their"
            " partitions."
        )
        return Finding(CONSUMER_PER_CALL, last.member, text, remedy, PROBABLE, brief=brief)
    text = f"{name} probably makes a consumer for each call or record: {often}"
    remedy = (
        "Keep one consumer for as long as the program runs, and poll it: each one that joins and leaves rebalances the"
        " group. To read single records on demand, use assign() without the group. If the program itself starts anew"
        " each time: look what stops it."
    )
    return Finding(CONSUMER_PER_CALL, last.member, text, remedy, PROBABLE)


# Programs that do not close their consumers


class _NotClosed(NamedTuple):
    """A member that is gone because it was not polled, and for how many milliseconds the next one of its program had
    been a member by then: for as long as a member may be without a poll, if it has not been polled since."""

    end: Departure
    waited_ms: int
    limit_ms: float | None

    @property
    def is_sure(self) -> bool:
        """Whether it has been without a poll since the next one joined, as far as that can be measured."""
        return self.limit_ms is not None and abs(self.waited_ms - self.limit_ms) <= _SAME_WAIT * self.limit_ms


def _find_not_closed(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Give the ends and joins of the members of a program that makes a new consumer again and again, and does not close
    the old one, the same finding.

    Clients may commit and join rebalances in the background, so that such a consumer seems to work. But it is not
    polled since the next one was made, and leaves one poll interval after that; other clients do not rejoin, or do not
    give up partitions, when the next one joins. Programs of one name that hang do so at any time after others have
    started.
    """
    joins: dict[tuple[object, ...], list[MemberJoined]] = {}
    polled = set()
    closed: dict[str | None, int] = {}
    for event in events:
        if isinstance(event, MemberDisconnected):
            closed.setdefault(event.member.member_id, event.time)
        if not isinstance(event, MemberJoined) or event.member.instance_id:
            continue
        if event.rejoined_ms is None:
            joins.setdefault(event.member[1:], []).append(event)
        else:
            polled.add(event.old_member_id)
    ends: dict[tuple[object, ...], list[Departure]] = {}
    for event in events:
        if isinstance(event, Departure) and event.member.member_id not in polled and _is_unpolled(event, findings):
            ends.setdefault(event.member[1:], []).append(event)
    for program, gone in ends.items():
        members = joins.get(program, [])
        found = [each for end in gone if (each := _not_closed(end, members)) is not None]
        if len(found) < _LEFT_OVER:
            continue
        # The old consumers of a program that runs on keep their connections; one that hangs, and is replaced, does not.
        until = found[-1].end.time
        are_sure = all(each.is_sure and closed.get(each.end.member.member_id, inf) > until for each in found)
        least = _LEFT_OVER if are_sure else _LOOP_LIVES
        typical = median(each.waited_ms for each in found)
        alike = [each for each in found if abs(each.waited_ms - typical) <= _SAME_WAIT * typical]
        # Programs that were started together, and hang, are not followed by new ones.
        goes_on = members[-1].time > gone[0].time
        if not goes_on or len(alike) < max(least, _MOST_RUNS * len(gone)):
            continue
        finding = _of_not_closed(alike, members, typical)
        findings.of_departures.update((id(each.end), finding) for each in alike)
        findings.of_joins.update((id(join), finding) for join in members[1:])
        _tell_asks(events, {join.member.member_id for join in members}, finding, findings)


def _is_unpolled(event: Departure, findings: Findings) -> bool:
    """Whether a member is gone because its program did not poll, while its heartbeats went on."""
    if isinstance(event, MemberNotRejoined):
        return event.connection == "open" and event.heard_ago_ms <= event.waited_ms
    if isinstance(event, MemberNotRevoked):
        return event.connection == "open"
    known = findings.of_departures.get(id(event))
    return isinstance(event, MemberLeft) and known is not None and known.kind == SLOW_POLL


def _not_closed(end: Departure, members: Sequence[MemberJoined]) -> _NotClosed | None:
    """A member that is gone, if the next one of its program had joined by then; None if none had."""
    ids = [each.member.member_id for each in members]
    after = members[ids.index(end.member.member_id) + 1 :] if end.member.member_id in ids else ()
    if not after or after[0].time >= end.time:
        return None
    limit = end.waited_ms if isinstance(end, MemberNotRejoined | MemberNotRevoked) else _poll_interval(end)
    return _NotClosed(end, end.time - after[0].time, limit)


def _of_not_closed(found: Sequence[_NotClosed], members: Sequence[MemberJoined], waited_ms: float) -> Finding:
    last = found[-1].end
    brief = f"{last.member.common_name} probably makes a new consumer again and again, and does not close the old one"
    text = f"{brief}: of {count(len(members), 'member')} of one client id and host, which joined within"
    text += f" {ms(members[-1].time - members[0].time)}, "
    waited = ms(round(waited_ms, -3))
    if isinstance(last, MemberLeft):
        text += f"{len(found)} left by themselves about {waited} after the next one had joined, and did not join again"
    else:
        what = "give up partitions" if isinstance(last, MemberNotRevoked) else "rejoin"
        text += f"{len(found)} did not {what} within {waited} when the next one had joined, though their connections"
        text += " were open"
    text += ": they have probably not been polled since then"
    remedy = (
        "Close the consumer before the next one is made, also after an error, in a finally"
        f" ({CLOSING}); or keep it, and handle the error in the loop. Each old one keeps its partitions, whose records"
        " wait, for max.poll.interval.ms: to raise that makes it worse, and more members do not help."
    )
    return Finding(CONSUMERS_NOT_CLOSED, last.member, text, remedy, PROBABLE, brief=brief)


def _life(event: GroupEvent, findings: Findings) -> _Life | None:
    """The life of a member that an event ends; None if it did not crash, or if too little is known of it."""
    known = findings.of_departures.get(id(event))
    if isinstance(event, MemberLeft):
        if known is None or known.kind not in (RESTARTED, STOPPED) or event.joined_ago_ms is None:
            return None
        return _Life(event, event.time - event.joined_ago_ms, event.time)
    if not isinstance(event, MemberExpired | MemberReplaced) or event.connection != "closed":
        return None
    if isinstance(event, MemberReplaced) and known is not None:
        return None
    if isinstance(event, MemberExpired) and (known is None or known.kind not in (KILLED, STATIC_AWAY)):
        return None
    if event.joined_ago_ms is None or event.closed_ago_ms is None or event.closed_by == "broker":
        return None
    return _Life(event, event.time - event.joined_ago_ms, event.time - event.closed_ago_ms)


def _member_id(event: Seen) -> str | None:
    return event.old_member_id if isinstance(event, MemberReplaced) else event.member.member_id


# Programs whose producers fence each other


class _Fence(NamedTuple):
    """A member that ended when another one joined that commits in transactions of the same id."""

    life: _Life
    by: Member


def _find_fences(events: Sequence[GroupEvent], findings: Findings) -> None:
    """Give the ends and joins of programs that end in turn, and have the same transactional id, the same finding."""
    lives: dict[str, list[_Life]] = {}
    ids: dict[object, str] = {}
    for event in events:
        life = _life(event, findings) if isinstance(event, Seen) and event.transactional_id is not None else None
        if life is not None and life.event.transactional_id is not None:
            lives.setdefault(life.event.transactional_id, []).append(life)
            ids[_member_id(life.event)] = ids[life.event.member[1:]] = life.event.transactional_id
    if not lives:
        return
    joins = [
        # Of one that has not ended only the program is known.
        (ids.get(event.member.member_id) or ids.get(event.member[1:]), event)
        for event in events
        if isinstance(event, MemberJoined)
    ]
    for transactional_id, ended in lives.items():
        ends = {_member_id(life.event): life.end for life in ended}
        others = [each for its_id, each in joins if its_id == transactional_id]
        fences = [fence for life in ended if (fence := _fence(life, others, ends)) is not None]
        if len(fences) < max(_LOOP_LIVES, _MOST_FENCED * len(ended)):
            continue
        finding = _of_fences(transactional_id, fences)
        findings.of_departures.update((id(life.event), finding) for life in ended)
        findings.of_joins.update((id(each), finding) for each in others if each.time > ended[0].end)


def _fence(life: _Life, others: Iterable[MemberJoined], ends: Mapping[str | None, float]) -> _Fence | None:
    """The end of a member when another one joined, which has gone on; None if none did."""
    earliest, own = max(life.start, life.end - _FENCED_MS), life.event.member
    for other in others:
        # A producer is fenced at the start of another one, which may join a moment later.
        latest = life.end + (0 if other.member[1:] == own[1:] else _JOINS_MS)
        if earliest < other.time <= latest and ends.get(other.member.member_id, inf) - life.end > _OUTLIVES_MS:
            return _Fence(life, other.member)
    return None


def _of_fences(transactional_id: str, fences: Sequence[_Fence]) -> Finding:
    last = fences[-1]
    member = last.life.event.member
    shown = transactional_id[:_MOST_CHARACTERS]
    both = f"{names_of(sorted((member, last.by), key=lambda each: each.name))} probably fence each other"
    if member.common_name == last.by.common_name:
        both = f"two programs named {member.common_name} probably fence each other"
    brief = f"{both} with the transactional.id {shown}"
    text = f"{both}: their producers have the same transactional.id, {shown}, and {times(len(fences))} within"
    text += f" {ms(last.life.end - fences[0].life.start)} one of them stopped when the other started"
    remedy = (
        "Give each program a transactional.id of its own: a new producer fences the one before that has the same."
        f" `barnabas transactions explain {quote(transactional_id)}` has the transactions that were aborted because of"
        " that."
    )
    return Finding(FENCING, member, text, remedy, PROBABLE, brief=brief)


def _commits_first(lives: Sequence[_Life], assigned: Mapping[str | None, int]) -> float | None:
    """For how many milliseconds at least a program that crashes again and again went on after its last commit, if it
    committed just after it had got partitions each time, and got on; None if it is not so."""
    rests = []
    for life in lives:
        at, ago = assigned.get(_member_id(life.event)), life.event.committed_ago_ms
        if at is None or ago is None or life.event.time - ago - at > _SOON_MS:
            return None
        rests.append(life.end - life.event.time + ago)
    gets_on = all(_advances(before.event, after.event) for before, after in pairwise(lives))
    return min(rests) if gets_on and min(rests) >= _WORKS_MS else None


class _Rebalance(NamedTuple):
    """When a rebalance began and was over, in ms since 1970, and the member ids that have caused it."""

    began: float
    over: float
    by: set[str | None]


def _rebalances(events: Iterable[GroupEvent]) -> list[_Rebalance]:
    found: list[_Rebalance] = []
    for event in events:
        if isinstance(event, RebalanceStarted):
            found.append(_Rebalance(event.time, inf, event.by_ids()))
        elif isinstance(event, RebalanceOver | GroupEmpty) and found and found[-1].over == inf:
            found[-1] = found[-1]._replace(over=event.time)
    return found


def _stops_at_rebalances(
    lives: Sequence[_Life], rebalances: Sequence[_Rebalance], at_rebalances: Container[int]
) -> int:
    """How often a program has ended during a rebalance that another member had caused, or just after that; 0 if that
    was not so nearly each time."""
    often = 0
    for life in lives:
        if life.has_left:
            often += id(life.event) in at_rebalances
            continue
        at = bisect_left(rebalances, life.end, key=lambda each: each.began) - 1
        if at >= 0 and rebalances[at].began > life.start:
            last = rebalances[at]
            often += _member_id(life.event) not in last.by and life.end <= last.over + JUST_AFTER_MS
    return often if often >= max(_LOOP_LIVES, _MOST_AT_REBALANCES * len(lives)) else 0


def _is_stopped_in_order(lives: Sequence[_Life], at_rebalances: Container[int], findings: Findings) -> bool:
    """Whether a program has left at rebalances, and the last time by itself, and has not come back: that one says
    nothing about the others."""
    if not lives:
        return False
    *others, last = lives
    about = findings.of_departures.get(id(last.event))
    return (
        about is not None
        and about.kind == STOPPED
        and id(last.event) not in at_rebalances
        and _stops_at_rebalances(others, (), at_rebalances) > 0
    )


def _many_stay(
    lives: Sequence[_Life],
    leaves: Mapping[str | None, list[float]],
    stays: Mapping[str | None, list[float]],
    others: Iterable[str | None],
) -> bool:
    """Whether too many members with client ids like that of a program stayed at rebalances meanwhile: in a rolling
    restart one leaves after the other.

    Args:
        lives: of the program.
        leaves: when members of each client id left at rebalances.
        stays: when members of each client id stayed.
        others: the client ids that are compared with its own.
    """
    own, first, last = lives[-1].event.member.client_id, lives[0].start, lives[-1].end
    alike = [each for each in others if each and each != own and are_alike(each, own or "")]
    left = stayed = 0
    for client_id in (own, *alike):
        at, without = leaves.get(client_id, []), stays.get(client_id, [])
        left += bisect_right(at, last) - bisect_left(at, first)
        stayed += bisect_right(without, last) - bisect_left(without, first)
    return left < _MOST_LEAVE * (left + stayed)


def _of_loop(
    lives: Sequence[_Life],
    assigned: Mapping[str | None, int],
    at_rebalances: int,
    delays: Mapping[str | None, float],
) -> Finding | None:
    last = lives[-1].event
    is_static, left = last.member.instance_id is not None, lives[-1].has_left
    span = _span(life.took_ms for life in lives)
    often = f"it lived {span} each time, {times(len(lives))} within {ms(lives[-1].end - lives[0].start)}"
    if at_rebalances:
        ended = "left" if left else "ended"
        brief = f"{last.name} {ended} again and again right after a rebalance that another member caused"
        text = f"{brief}: {often}, and it {ended} {times(at_rebalances)} during such a rebalance, or up to"
        text += f" {ms(JUST_AFTER_MS)} after it; probably it stops when its group rebalances (an exception in its"
        text += " rebalance listener?)"
        remedy = (
            f"Look in the log of {last.name} for an error in its rebalance listener (on_partitions_revoked,"
            " on_partitions_assigned), or what else stops it when its group rebalances, and let it go on: each stop is"
            " a rebalance for the others."
        )
        return Finding(RESTART_LOOP if left else CRASH_LOOP, last.member, text, remedy, PROBABLE, brief=brief)
    again = "" if left else _read_again(lives)
    stuck, where, skip = _Stuck(again, "; it committed in none of these lives") if again else _stuck(lives)
    if left:
        brief = f"{last.name} stopped and started again and again"
        text = f"{brief}: {often}, and it left the group each time{stuck}"
        waits = [delays.get(_member_id(life.event), 0) for life in lives]
        if all(waits):
            return _of_too_short(lives, brief, often, max(waits))
        what = f"what stops {last.name}: an error after which it closes its consumer, or what scales and restarts it."
        remedy = f"Look {what}"
        is_brief = max(life.took_ms for life in lives) <= _PROBE_MS
        if is_brief and not stuck and not any(life.event.commits for life in lives):
            text += ", without a commit"
            remedy = (
                "It stays for so short that it gets few records or none. If it makes a consumer for each call: keep one"
                " open, and poll it in a loop. If it is a health check: give it a group.id of its own, or let it ask an"
                f" Admin. Else look {what}"
            )
        return Finding(RESTART_LOOP, last.member, text, skip or remedy, CERTAIN, brief=f"{brief}{where}")
    brief = f"{last.name} probably {'crashed or was restarted' if is_static else 'crashed'} again and again"
    text = f"{brief}: {often}, and its connection was closed"
    text += f" each time{stuck}" if is_static else f" without a leave each time{stuck}"
    ends = f"ook why the process of {last.name} ends: its last lines of log, out of memory"
    remedy = (
        f"Let {last.name} commit sooner than it dies: a shorter auto.commit.interval.ms, or commit() after each batch."
        f" Then l{ends}, or a probe that kills it."
        if again
        else f"L{ends}, or a record at which it fails each time. Let what starts it again wait longer each time."
    )
    rest_ms = _commits_first(lives, assigned)
    if rest_ms is not None:
        remedy += f" Each time it committed just after it had got its partitions, and went on for {ms(rest_ms)} or more"
        remedy += " without a commit: if it commits records before it has worked on them, they are lost at each crash."
    if not is_static and last.session_ms is not None:
        remedy += f" After each crash its partitions wait for its session.timeout.ms ({ms(last.session_ms)})."
    sure = POSSIBLE if is_static else PROBABLE
    return Finding(CRASH_LOOP, last.member, text, skip or remedy, sure, brief=f"{brief}{where}")


def _of_too_short(lives: Sequence[_Life], brief: str, often: str, delay_ms: float) -> Finding:
    """A program that leaves each time before its group, which was empty, gives it partitions."""
    last = lives[-1].event
    longest = ms(max(life.took_ms for life in lives))
    text = f"{brief}: {often}, and it left the group each time before it had got partitions, so that it never got a"
    text += f" record: joining a group without members takes {ms(delay_ms)} (group.initial.rebalance.delay.ms of the"
    text += f" broker), and it stays for {longest} at most"
    remedy = (
        f"If {last.name} polls once, or for {longest} only: let it poll in a loop until it has partitions and has read"
        " what is there, or with a timeout of 10 s or more; or keep one consumer open. If it is a health check: give it"
        f" a group.id of its own, or let it ask an Admin. Else look what stops {last.name}: an error after which it"
        " closes its consumer, or what scales and restarts it."
    )
    brief += f", each time before it had got partitions: joining takes {ms(delay_ms)}"
    return Finding(RESTART_LOOP, last.member, text, remedy, CERTAIN, brief=brief)


def _read_again(lives: Sequence[_Life]) -> str:
    """The partitions that a program has read anew in each life, because it has not committed in any of them; "" if that
    is not known."""
    known = [set(life.event.positions or ()) for life in lives]
    common = {each[:2]: each.offset for each in known[0].intersection(*known) if each.offset >= 0}
    furthest: dict[Partition, int] = {}
    for topic, number, offset in (each for life in lives for each in life.event.furthest or ()):
        if offset > common.get((topic, number), inf):
            furthest[topic, number] = max(offset, furthest.get((topic, number), 0))
    if not furthest or any(life.event.commits for life in lives):
        return ""
    read = [f"{topic}-{number} up to {end}" for (topic, number), end in sorted(furthest.items())[:MAX_NAMED]]
    starts = [str(common[place]) for place in sorted(furthest)[:MAX_NAMED]]
    text = (
        f"; in none of its {len(lives)} lives did it commit, though it fetched {' and '.join(read)}: each life begins"
    )
    return f"{text} at {' and '.join(starts)} again"


class _Stuck(NamedTuple):
    """The partition whose offset was the same at each end of a program, while others advanced.

    Attributes:
        text: in words, after what is said of the ends; "" if there is none.
        brief: the same, shorter.
        skip: how to skip the record; None if there may be none.
    """

    text: str = ""
    brief: str = ""
    skip: str | None = None


def _stuck(lives: Sequence[_Life]) -> _Stuck:
    """The partition at which a program may fail. Whether there is a record is known only of the last member of a
    group."""
    ends = [life.event for life in lives]
    known = [set(event.positions or ()) for event in ends]
    common = set[Position]().union(*known[:1]).intersection(*known)
    waiting = {each for each in common if each.offset >= 0 and all(each[:2] in _unread(end) for end in ends)}
    if waiting:
        where = in_words(by_topic(each[:2] for each in waiting))
        if len(waiting) > 1:
            stood = f"; the committed offsets of {where} were the same each time"
            return _Stuck(f"{stood}, though records waited after them", stood)
        ((topic, number, offset),) = waiting
        stood = f"; the committed offset of {where} was {offset} each time"
        text = f"{stood}, though records waited there: it probably fails at the record there, or at one soon after it"
        brief = f"{stood}: it probably fails at the record there, or soon after"
        return _Stuck(text, brief, skip_record(ends[-1].group, topic, number, offset))
    if len(common) != 1:
        return _Stuck()
    ((topic, number, offset),) = common
    at = "nothing of it was committed" if offset < 0 else f"its committed offset was {offset}"
    text = f"; it owned {topic}-{number} each time, and {at}"
    before, after = ends[0].committed_sum, ends[-1].committed_sum
    if before is None or after is None or after <= before:
        return _Stuck(text)
    start = max(offset, 0)
    brief = f"{text}: it probably fails at that one, or soon after"
    text += f", while the group advanced by {count(after - before, 'record')} in other partitions: if there is a record"
    text += " at that offset, it probably fails at that one, or at one soon after it"
    return _Stuck(text, brief, skip_record(ends[-1].group, topic, number, start))


def _unread(end: Seen) -> Sequence[Partition]:
    return (end.unread or ()) if isinstance(end, Departure) else ()


# Names


class Distinct(Member):
    """A member whose name others have, too: the end of its id tells it apart."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """Its name, with the end of its member id."""
        host = (self.host or "").removeprefix("/")
        end = (self.member_id or "")[-4:]
        return f"{self.client_id or self.instance_id}…{end} ({host})" if host else f"{self.client_id}…{end}"


def colliding(events: Iterable[GroupEvent]) -> set[tuple[str | None, str | None]]:
    """Client ids and hosts that several members have at the same time, without a group.instance.id."""
    present: dict[tuple[str | None, str | None], set[str | None]] = {}
    found: set[tuple[str | None, str | None]] = set()
    for event in events:
        if isinstance(event, Departure) or (isinstance(event, MemberDisconnected) and event.gone_ago_ms is None):
            present.get(event.member[1:3], set()).discard(event.member.member_id)
        elif isinstance(event, MemberJoined) and not event.member.instance_id:
            present.setdefault(event.member[1:3], set()).add(event.member.member_id)
        elif isinstance(event, RebalanceOver | TargetAssigned):
            found |= {name for name, ids in present.items() if len(ids) > 1}
    return found


def distinct(event: GroupEvent, names: set[tuple[str | None, str | None]]) -> GroupEvent:
    """An event whose members have names that tell them apart.

    Args:
        event: an event.
        names: the client ids and hosts that several members have.
    """
    changed = {}
    for name, value in event.values().items():
        found = _distinct(value, lambda member: member[1:3] in names and not member.instance_id)
        if found is not value:
            changed[name] = found
    return event.changed(**changed) if changed else event


def _distinct(value: object, collides: Callable[[Member], bool]) -> object:
    if isinstance(value, Member):
        return Distinct(*value) if collides(value) else value
    if isinstance(value, tuple) and value and isinstance(value[0], Member):
        return tuple(_distinct(each, collides) for each in value)
    if isinstance(value, tuple) and value and isinstance(value[0], tuple) and hasattr(value[0], "member"):
        return tuple(each._replace(member=_distinct(each.member, collides)) for each in value)
    return value
