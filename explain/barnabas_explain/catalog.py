"""The catalogue of group events: one class for each type, with its fields and everything that is said about it. Pure.

A class has the fields of its record in ``__group_events``, under the same names (:mod:`~barnabas_explain.records`
writes and reads them: the annotations say what a valid field is), the sentence that explains it, its lines in the
broker's log, and the colour of the rebalances that it causes. A field that has its default is not written.

Durations are milliseconds and end in ``_ms``; times are milliseconds since 1970. A field means the same in all classes:
:data:`FIELDS`. docs/observing.md lists the types and the fields (``make pages``).
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from shlex import quote
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar, cast, dataclass_transform

from barnabas_explain import words
from barnabas_explain.lags import MOST_OF, NEARLY_ALL
from barnabas_explain.members import (
    BeyondEnd,
    ByTopic,
    Commit,
    Identified,
    LateMember,
    Member,
    MemberLag,
    Move,
    OffsetChange,
    Partition,
    Pause,
    Position,
    are_alike,
    by_topic,
    is_default,
    moves_between,
    partitions_of,
)
from barnabas_explain.words import MAX_NAMED, Told
from barnabas_protocol.counts import counted
from barnabas_protocol.durations import seconds
from barnabas_protocol.subscriptions import CONSUMER, read_topics

#: How a member fetches a partition that it has not even begun to read.
UNTAKEN: Final = "untaken"
#: The reason of a client that gives none, in Kafka's words (KIP-800).
NOT_PROVIDED: Final = "not provided"
#: What to do if a member may not read its group.
NEEDS_READ: Final = "Look at the ACLs of the group: the user of its members needs READ on it (barnabas acls list)."
#: Why records are deleted before a group reads them, and what to do about it.
WHY_DELETED: Final = (
    "Look at retention.ms and retention.bytes of the topic, and at DeleteRecords: the group was too far behind, or the"
    " records had timestamps that were too old when they were written (seconds instead of milliseconds: correct the"
    " producer, or set message.timestamp.type=LogAppendTime)."
)
#: A timestamp before this one, of January 2000, is not that of a record: Kafka is younger.
_NO_TIME_MS: Final = 946_684_800_000
#: Fetches of a member that are refused for a topic are recorded again after so many milliseconds.
DENIED_AGAIN_MS: Final = 120_000
#: The cause of a rebalance in rebuilt events, if what they were rebuilt from leaves several causes.
NOT_RECORDED: Final = "not_recorded"
#: The generation in rebuilt events, if what they were rebuilt from does not say it.
UNKNOWN_GENERATION: Final = -1
#: All classes of events by their type.
EVENTS: Final[dict[str, "type[GroupEvent]"]] = {}

#: What the fields of events mean, in all classes that have them.
FIELDS: Final = {
    "asks": "how often the client has asked, if it did so again and again until the end; else 0",
    "missing": "topics that the client has asked for on the same connection, and that do not exist",
    "hidden": "the same, and that its user may not describe",
    "are_all": "whether it has asked for all topics there",
    "inferred": "whether the event is concluded from other records",
    "between": "the earliest and the latest time of an event that is concluded",
    "shortened": "whether lists are left out, because the record would be too long",
    "client_reason": "why, in the words of the client",
    "heard_ago_ms": "the time since the last request of the member",
    "heartbeat_ago_ms": "the time since its last heartbeat, or since it got the response to its JoinGroup",
    "heartbeat_ms": "the time between the last two heartbeats of the member",
    "delay_ms": "for how long a group that was empty waits for more members: `group.initial.rebalance.delay.ms`",
    "positions": "topic, partition and committed offset of the first partitions of the member; -1 for none",
    "furthest": "topic, partition and the last offset from which the member fetched, of partitions whose committed"
    " offsets stood still meanwhile",
    "given": "topic, partition and the offset up to which its program had probably got the records, of such partitions,"
    " when it left by itself",
    "stood_ms": "for how long committed offsets have stood still, at least",
    "is_incremental": "whether members get what changes in their assignment only: the assignor is cooperative, or the"
    " group has the consumer protocol",
    "fetches_others": "whether the member has fetched other partitions meanwhile",
    "fetches": "again, beyond, asks, none, untaken or unknown: the records from `offset` on `deliveries` times; records"
    " after the committed offset; none after it; not at all; not at all, and the client has not asked for the committed"
    " offset either since it joined; other members have the same client id and host",
    "ahead": "records that the member fetched and did not commit, at most",
    "beyond": "topic, partition, committed offset and end of the log of the first partitions",
    "unread": "those of the positions after which records waited, if it was the last member",
    "codec": "the codec of the batch at `offset`, or at the committed offset, if it is compressed, and none of the last"
    " batches before has it",
    "codecs_before": "the codecs of these batches",
    "codec_at": "topic, partition and first offset of the batch with the `codec`, if that is not the offset itself",
    "committed_sum": "the sum of the committed offsets of the group then, if there are not too many of them",
    "sent": "the generation, or the member epoch, in the request",
    "session_ms": "the session timeout of the member",
    "timeout_ms": "the rebalance timeout of the member",
    "waited_ms": "for how long the group, or a Fetch, waited, or a client has not joined",
    "min_bytes": "`fetch.min.bytes` of the client",
    "took_ms": "how long it took: the join phase, the computation of a target, the time since the epoch began; for how"
    " long the lag has grown, or a member has committed often, or had its partitions before it began to read",
    "protocol": 'the name of the assignor; "classic" of a classic member in a group of the consumer protocol',
    "protocol_type": '"consumer" of consumers',
    "assignor": "the name of the assignor",
    "offered": "the assignors of the client, the first ones",
    "supported": "the assignors that all members support, or that the broker has, the first ones",
    "members": "the number of members; after an upgrade and a downgrade, of those that go on with the classic protocol",
    "classic": "the number of members that use the classic protocol, while a group is upgraded",
    "state": "the state of the classic group before the upgrade",
    "old_member_id": "the member id before: of the static member; of the last member of the same connection",
    "rejoined_ms": "the time since that last member of the same connection left, or was removed",
    "listener": "the listener on which the client asked",
    "advertised": "the address of the coordinator, host:port, that the client got there",
    "software": "the name and the version of the client library, as it has sent them in ApiVersions (KIP-511)",
    "joined_ago_ms": "the time since the member joined, as far as this coordinator has seen it",
    "committed_ago_ms": "the time since the last commit of the member",
    "fetched_ago_ms": "the time since the last Fetch of the client; only if no other member has its client id and host",
    "connection": "open, or closed: the connection on which the member sent its last request",
    "closed_ago_ms": "the time since that connection was closed",
    "denied_ago_ms": "the time since a request of it was refused, because its user may not read the group",
    "closed_by": "client or broker: who closed it",
    "closed_error": "why, if it was closed because of an error",
    "removed_by": "the client id of the other client that asked for it: an administrator has removed the member",
    "age_ms": "the time since the first request about groups on the connection",
    "gone_ago_ms": "the time since the member left, or was removed; absent if it is still a member",
    "is_new": "whether the member had not received the response to its first JoinGroup",
    "least_ms": "the configuration `group.min.session.timeout.ms`",
    "most_ms": "the configuration `group.max.session.timeout.ms`",
    "max_size": "the configuration `group.max.size`",
    "possible": "left, expired, not_rejoined or not_revoked: what may have happened; the evidence excludes the others",
    "last_commit": "evidence: the newest commit of a partition of the member",
    "rebalance_timeout_ms": "evidence: the rebalance timeout of the member",
    "pending": "evidence: the partitions that the member had to revoke",
    "pending_ms": "for how long they were pending",
    "added": "topics that the member subscribes to now and did not before, or that the expression matches now",
    "removed": "topics that it does not subscribe to, or match, any more",
    "new_topics": "those of `added` that were created within the last ten minutes",
    "created_by": "the clients that created these, as far as they asked the group's coordinator",
    "own_topics": "topics that were created within the last ten minutes because a client of the member's client id and"
    " address used the name; of a rebalance or a target, those of all members that gained partitions",
    "regex": 'a regular expression; in `subscription_changed` only if it has changed, "" if there is none now',
    "topics": "the number of topics that the expression matches",
    "old": "the member id of the leader before",
    "new": "the member id of the new leader",
    "member_epoch": "the member epoch that the member sent",
    "known_epoch": "its member epoch",
    "cause": "the type of the event that caused it",
    "by": "the members that caused it, the first 200",
    "reason": "why, in words",
    "leader": "the member that assigns partitions",
    "joined_after": "when members rejoined, `after_ms` after the start, the last one first; they were told to `told_ms`"
    " after it, if they were, and `heartbeat_ms` are between their last two heartbeats",
    "join_took_ms": "how long the join phase took",
    "sync_took_ms": "how long it took until the leader had assigned partitions",
    "moves": "what members `gained` and `lost`, of consumers; in `target_assigned` what they are to gain and to lose",
    "pauses": "for how long partitions had no owner, between `at_least_ms` and `at_most_ms`; in rebuilt events",
    "more_pauses": "the number of pauses that are left out",
    "before": "the number of partitions of the topic before, 0 if it is new; the generation before it became smaller",
    "error": "the name of the error",
    "rebalances": "the number of rebalances of the storm",
    "seconds_ms": "within how long",
    "culprit": "the name of the member that caused most of them",
    "times": "how many it caused; how many Fetches or commits it was",
    "reads_on": "whether its Fetches of these partitions have only gone on since its commits went back before",
    "same_offset": "the partitions of which that commit has the same offset, by topic",
    "uncommitted": "the partitions of the topic that it reads, and of which nothing is committed, by topic",
    "commits_on": "whether the client has committed before, on the same connection",
    "backs": "how many of these commits set offsets back",
    "turns": "how many of these set back what another client that is not a member had just committed",
    "consumed": "records that were committed while the lag grew",
    "written": "records that were written meanwhile",
    "lag_before": "the lag when it began to grow",
    "lag": "the lag then",
    "led": "the number of partitions of which these figures are: those whose logs the broker knows",
    "committed_in": "the number of partitions with committed offsets",
    "idle": "those of the members that have no partition",
    "owned": "the number of partitions that the members have",
    "written_there": "if one partition has nearly all of the lag, and its committed offset moves: about so many of the"
    " `written` records came there; absent if that is not known",
    "broker": "the node id of the broker that the members do not reach",
    "address": "HOST:PORT that it advertises to them",
    "behind": "the member that has nearly all of the lag, or the owner of the partition that has, or the members with"
    " the partitions that have and whose offsets stand still: the `lag` there, `positions`, and for how long,"
    " `stood_ms`, none of these has moved; absent if there is no such member",
    "others": "the number of members that have rejoined, and wait",
    "told_ms": "after how long, since the rebalance began, a response told the member to rejoin; absent if none did",
    "problem": "why the regular expression is refused",
    "others_keep_up": "whether the member has nearly all of the lag of its group, while others have committed lately",
    "left_ms": "milliseconds since the Fetch, in which the client has neither asked where to go on nor gone on",
    "is_deleted": "whether the records at the committed offsets were deleted",
    "lag_of_others": "the records that wait in the other partitions of the member",
    "only_committed": "partitions of the member with a committed offset, the first ones; absent if the group has none",
    "throttled": "the client ids of members that a quota made wait for records within the last minute",
    "epoch": "the leader epoch of the group's partition of `__consumer_offsets`",
    "partitions": "which partitions, by topic; of a topic and of commits: their number",
    "topic": "the name of the topic",
    "partition": "the number of the partition",
    "owner": "the member that has the instance id, or had the records",
    "first_offset": "the first of the records; other records may be between it and the last one",
    "last_offset": "the last of the records",
    "aborts": "how often transactions of the `transactional_id` were aborted by their timeout, as far as known",
    "away_ms": "for how long no member had read the partition, or the group had not committed in its topic",
    "open_ms": "for how long the longest of them was open",
    "transaction_timeout_ms": "their timeout",
    "is_kept": "whether it was the first Fetch of the partition after an assignment, and the program had the offset"
    " from elsewhere: it has not looked it up",
    "is_member": "whether the client is a member of the present generation",
    "is_own": "whether the member has committed in them; otherwise it is inferred",
    "deliveries": "how often one of the records was delivered, at most",
    "every_ms": "the mean time between two of the `deliveries`",
    "reconnects": "how often the client connected again after one of the `deliveries`; absent if it did so only now and"
    " then",
    "gives_up_ms": "the time between two of the `deliveries`, if it was seconds, and nearly the same each time",
    "response_bytes": "the bytes of the last one of the `deliveries`",
    "max_bytes": "the bytes that the client had asked for there",
    "lock_ms": "how long a lock lasts",
    "never_acknowledged": "whether the member has not acknowledged a single record since it came to this broker",
    "limit": "the configuration `share.delivery.count.limit` of the group",
    "letters": "the topic for dead letters",
    "failed": "the number of records that should have become dead letters, and did not",
    "offsets": "the number of offsets",
    "keys": "topics and partitions of the first offsets",
    "expired": "whether the offsets of the group expired",
    "changes": "the first changes of committed offsets: `topic`, `partition`, the offset `before` and `after`, null for"
    " none; in `member_left` those of a member that was one for less than 30 s",
    "client_id": "the client that asked for it",
    "other_group": "a group without members, to which a client with the address of the member commits in transactions"
    " offsets of the same topic",
    "other_client_id": "another client that is not a member, and had just committed an offset that was set back",
    "other_host": "its address",
    "host": "the address of that client",
    "principal": "the user of that client",
    "log_start": "the first offset of the log",
    "transactions": "the number of aborted transactions",
    "deleted_by": "the setting because of which the records before the log start were deleted; absent if that is not"
    " known",
    "newest_timestamp": "the largest timestamp of the records that were deleted last, in ms since 1970",
    "retention_ms": "`retention.ms` of the topic at that time",
    "log_end": "the end of the log",
    "position": "the offset that the client was told when it then asked for the beginning or the end of the partition;"
    " the offset from which it fetched",
    "fetched": "the end of the log when an earlier Fetch of the partition was answered, or the committed offset if that"
    " is larger: the member has fetched no later record",
    "reset": "earliest or latest: what it asked for",
    "producer_id": "the producer whose transaction it is",
    "transactional_id": "the transactional id of the producer; of a member, that in whose transactions it committed"
    " last; absent if the coordinator of the group has moved since that commit; of a client that is not a member, that"
    " of its transactions",
    "transactional_ids": "those of the producers, as far as the leaders of the partitions know them",
    "committed": "whether the transaction was committed; otherwise it was aborted",
    "commits": "the number of commits; of a member, since it joined, as far as this coordinator has seen it",
    "gap": "compacted, not_completed, unreadable, clock, unknown_type, too_many, went_back, open_transaction, not_read",
    "more": "instead of the other fields: so many more gaps of this kind follow",
    "first": "the first generation without a record",
    "last": "the last generation without a record",
    "records": "the number of records: of a share partition; that wait, or were committed; that are missing, or"
    " that may not count",
    "offset": "the offset of the record; the committed offset",
    "timestamp": "its time, if it cannot be right",
    "back_ms": "by how much the record is older than the one before",
    "record_type": "its type, if it is not known",
    "most": "how many are remembered",
    "what": "of what there are more",
    "now": "the generation after it became smaller",
}
#: The earliest and the latest time at which something happened; None if unknown.
Between = tuple[int | None, int | None]
E = TypeVar("E", bound="GroupEvent")


#: Libraries whose rebalance timeout is their poll interval: a member that does not poll for so long leaves.
_POLL_IS_REBALANCE: Final = ("rdkafka", "apache-kafka-java", "kafka-python", "barnabas")

#: A client that commits when it closes its consumer leaves within so many milliseconds.
_ON_CLOSE_MS: Final = 5_000
#: A library that fetches ahead in the background, also while its program does not poll.
FETCHES_AHEAD: Final = "rdkafka"


def _leaves_without_polls(software: str | None) -> bool:
    return any(library in (software or "") for library in _POLL_IS_REBALANCE)


def poll_interval(software: str | None, rebalance_timeout_ms: float | None, session_ms: float | None) -> float | None:
    """``max.poll.interval.ms`` of a member in milliseconds; None if its library does not send it."""
    if _leaves_without_polls(software):
        return rebalance_timeout_ms
    # aiokafka sends its session timeout as its rebalance timeout.
    return None if rebalance_timeout_ms == session_ms else rebalance_timeout_ms


def skip_record(group: str, topic: str, partition: int, offset: int) -> str:
    """How to look at a record that a group does not get past, and how to skip it."""
    return (
        f"Look at the records: `barnabas consume {topic} -p {partition} -o {offset} -n 10`. To skip one: stop all"
        f" members, and `barnabas groups reset-offsets {quote(group)} -t {topic}:{partition} --to-offset {offset + 1}"
        " --execute`; or let `Consumer.run` write such records to a `dead_letter_topic`."
    )


class Line(NamedTuple):
    """A line in the broker's log: its level, what happened, and the pairs that follow."""

    level: str
    event: str
    pairs: dict[str, Any]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def fields(cls: type[E]) -> type[E]:
    """Make a class a dataclass that is frozen for type checkers.

    Python would write functions for each of them, to make, compare and print its events: all together that is some
    hundredths of a broker's start. The base has them instead. An instance has the values that it was given, and its
    class the defaults.
    """
    for name in cls.__annotations__:
        if name not in cls.__dict__ and hasattr(cls, name):
            setattr(cls, name, field())  # a field that has a default in a base, and none here
    cls = dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    cls.fields = dataclasses.fields(cast(Any, cls))
    cls.names = frozenset(each.name for each in cls.fields)
    cls.required = frozenset(each.name for each in cls.fields if each.default is dataclasses.MISSING)
    return cls


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def event(type_name: str) -> Callable[[type[E]], type[E]]:
    """Make a class that of the events of a type, as :func:`fields`, and list it in the catalogue."""

    def made(cls: type[E]) -> type[E]:
        cls = fields(cls)
        cls.type = type_name
        EVENTS[type_name] = cls
        return cls

    return made


def _not_recorded() -> Any:
    """A field that is not in the record: :meth:`GroupEvent.decoded` makes others of it."""
    return field(default=None, metadata={"recorded": False})


@fields
class GroupEvent:
    """Something that happened to a group, for the log, the metrics and ``__group_events``.

    Attributes:
        type: the name of the class in records.
        fields: its fields.
        names: the names of these.
        required: of those without a default.
        because: what follows the name of a member whose rebalance has this cause; None if events of this type cause
            none.
        kind: what the colour and the sign of these rebalances stand for.
        of_epochs: whether only groups of the consumer protocol have such events, which have epochs and no rebalances.
        recorded: whether they are written. A client can cause any number of the others, and they change nothing.
        generation: the group's generation when it happened; its group epoch in the consumer protocol.
        group: the group's id.
        time: when it happened, in ms since 1970.
    """

    type: ClassVar[str] = ""
    fields: ClassVar[tuple[dataclasses.Field[Any], ...]]
    names: ClassVar[frozenset[str]]
    required: ClassVar[frozenset[str]]
    because: ClassVar[str | None] = None
    kind: ClassVar[str] = "unknown"
    of_epochs: ClassVar[bool] = False
    recorded: ClassVar[bool] = True

    generation: int
    group: str = ""
    time: int = 0
    inferred: bool | None = None
    between: Between | None = None
    shortened: bool | None = None

    def __init__(self, **values: Any) -> None:
        if missing := self.required - values.keys():
            raise TypeError(f"{type(self).__name__} needs {', '.join(sorted(missing))}")
        self._take(values)

    def _take(self, values: dict[str, Any]) -> None:
        if unknown := values.keys() - self.names:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupEvent) and type(self) is type(other) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash((self.type, self.group, self.time, self.generation))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.values().items())})"

    def values(self) -> dict[str, Any]:
        """The fields that are not None, by name."""
        found = {each.name: getattr(self, each.name) for each in self.fields}
        return {name: value for name, value in found.items() if value is not None}

    def changed(self, **values: Any) -> Self:
        """The event with other values of some fields."""
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed._take(values)
        return changed

    def decoded(self) -> Self:
        """The event with what costs time to decode: subscriptions and assignments. For after the response is sent."""
        return self

    def flaw(self) -> str | None:
        """The name of a field without which an event that was read means nothing; None if all are there."""
        return None

    def clause(self) -> Told | None:
        """Why a rebalance or an epoch began, without a full stop, if it was because of this."""
        return None

    def sentence(self) -> Told | None:
        """The explanation of an event that is explained by itself."""
        return None

    def progress(self) -> list[str]:
        """The sentences about an event within an epoch."""
        return []

    def line(self, reason: str) -> Line | None:
        """The line for operators, if there is one; `reason` is why the current rebalance started."""
        return None

    def kafka(self) -> str | None:
        """The line that Kafka writes; None if it writes none."""
        return None

    def _line(self, level: str, text: str, **pairs: Any) -> Line:
        return Line(level, text, {"group": self.group, "generation": self.generation, **pairs})

    def _at(self) -> str:
        """Between which times an inferred event happened, in the local zone; "" if its time is known."""
        first, last = self.between or (None, None)
        if first is None or last is None or first == last:
            return ""
        begin, end = words.clock(first), words.clock(last)
        return f" at {end}" if begin == end else f" between {begin} and {end}"


def in_words(cause: str) -> str:
    """The cause of a rebalance, a type of events, after the name of the member that caused it."""
    if cause == NOT_RECORDED:
        return "joined or was gone"
    found = EVENTS.get(cause)
    return cause if found is None or found.because is None else found.because


def kind_of(cause: str) -> str:
    """The kind of a cause, for the colour and the sign of its rebalances."""
    return EVENTS[cause].kind if cause in EVENTS else "unknown"


# Members

#: What takes fewer milliseconds is not said in an explanation, if nothing follows from it.
SLOW_MS: Final = 1_000
#: A member that leaves sooner than that, and does not come back, may not be one of the group's programs.
BRIEF_MS: Final = 30_000
#: What to do about a member that rejoins late; and if others wait for it.
REJOINS_AT_POLL: Final = (
    "A member rejoins at its next poll, when its rebalance listener has revoked its partitions: reduce the work between"
    " two polls (max.poll.records), and in the listener"
)
OTHERS_WAIT: Final = (
    f"{REJOINS_AT_POLL}, or use the cooperative-sticky assignor, with which members continue to consume while they"
    " wait."
)
#: What to do about a member that a rebalance waits for, though its heartbeats go on.
DOES_NOT_POLL: Final = (
    "Look where its program stands: in a call without a timeout, at a lock, in a long batch, or in its rebalance"
    " listener. If it hangs, end it. Lower max.poll.interval.ms, so that a group waits less for such a member."
)
#: What to do about members that hear late of rebalances: if their heartbeats are seldom; if that need not be so.
SELDOM_HEARTBEATS: Final = (
    "Members hear of a rebalance with their next heartbeat: set heartbeat.interval.ms to 3 s, its default, for all of"
    " them (at most a third of session.timeout.ms)."
)
MAYBE_SELDOM: Final = f"{SELDOM_HEARTBEATS} If it is so already: unblock the loop or thread that sends heartbeats."
#: What to do about heartbeats that are late again and again.
LATE_HEARTBEATS: Final = (
    "Set heartbeat.interval.ms to a third of session.timeout.ms at most. If it is so already: unblock the loop or"
    " thread that sends heartbeats, or raise session.timeout.ms."
)


@fields
class MemberEvent(GroupEvent):
    """An event of one member."""

    member: Member
    client_reason: str | None = None

    @property
    def name(self) -> str:
        """The member's name for people."""
        return self.member.name

    @property
    def reason(self) -> str:
        """The reason that the client gives, in quotes; "" if it gives none."""
        reason = self.client_reason
        return "" if reason in (None, "", NOT_PROVIDED) else f' ("{reason}")'


@fields
class Seen(MemberEvent):
    """An event with what the coordinator has seen of a member: its requests, its connection, its client library."""

    software: str | None = None
    joined_ago_ms: float | None = None
    committed_ago_ms: float | None = None
    commits: int | None = None
    fetched_ago_ms: float | None = None
    connection: str | None = None
    closed_ago_ms: float | None = None
    closed_by: str | None = None
    closed_error: str | None = None
    denied_ago_ms: float | None = None
    transactional_id: str | None = None
    rebalance_timeout_ms: float | None = None
    session_ms: float | None = None
    positions: tuple[Position, ...] | None = None
    committed_sum: int | None = None
    #: Up to where it fetched partitions whose committed offsets stood still, while they did.
    furthest: tuple[Position, ...] | None = None
    #: Its partitions: by topic, or as an assignment of the classic protocol.
    owned: ByTopic | bytes | None = _not_recorded()


@fields
class Departure(Seen):
    """The group has lost a member."""

    heard_ago_ms: float | None = None
    unread: tuple[Partition, ...] | None = None
    #: The records after the committed offsets of its partitions, if it was the last member.
    lag: int | None = None
    given: tuple[Position, ...] | None = None

    def has_committed_before(self, refused: "CommitsRefused") -> bool:
        """Whether commits of this member were refused at last: it has not committed since these."""
        accepted_ms = inf if self.committed_ago_ms is None else self.committed_ago_ms
        return self.member.member_id == refused.member.member_id and self.time - refused.time < accepted_ms


@event("member_joined")
class MemberJoined(MemberEvent):
    """A member joined."""

    because = "joined"
    kind = "joined"

    protocol: str | None = None
    software: str | None = None
    session_ms: float | None = None
    rebalance_timeout_ms: float | None = None
    old_member_id: str | None = None
    rejoined_ms: float | None = None

    def clause(self) -> Told:
        if self.inferred:
            return Told(f"{self.name} joined{self._at()}, or it is an older member that changed its subscription")
        return Told(f"{self.name} joined{_with(self.protocol)}{self._at()}{self.reason}")

    def kafka(self) -> str:
        return f"Member {self.member.member_id} added to group {self.group}."


def _with(protocol: str | None) -> str:
    return f" with the {protocol} protocol" if protocol else ""


@event("member_id_given")
class MemberIdGiven(MemberEvent):
    """A member got its id, with which it has to join again (KIP-394). Not in the topic, only in the metrics."""

    recorded = False

    def kafka(self) -> str:
        return (
            f"Dynamic member with unknown member id joins group {self.group}. Created a new member id"
            f" {self.member.member_id} and requesting the member to rejoin with this id."
        )


@event("static_member_replaced")
class MemberReplaced(Seen):
    """A static member came back with another member id; what has been seen is that of the old one."""

    because = "came back"
    kind = "joined"

    old_member_id: str | None = None
    protocol: str | None = None
    members: int | None = None
    classic: int | None = None

    def clause(self) -> Told:
        return Told(f"static member {self.name} rejoined with a new member id{_with(self.protocol)}")

    def line(self, reason: str) -> Line:
        return self._line("info", "static member came back", member=self.name)

    def kafka(self) -> str:
        return (
            f"Static member with groupInstanceId={self.member.instance_id} and unknown member id joins group"
            f" {self.group}. Replacing previously mapped member {self.old_member_id} with this groupInstanceId."
        )


@event("member_left")
class MemberLeft(Departure):
    """A member left."""

    because = "left"
    kind = "left"

    removed_by: str | None = None
    changes: tuple[OffsetChange, ...] | None = None
    #: Of the first batch after a committed offset of it, if it left while its connection was open.
    codec: str | None = None
    codecs_before: tuple[str, ...] | None = None
    codec_at: tuple[Position, ...] | None = None

    @property
    def fetches_ahead(self) -> bool:
        """Whether its library fetches records that its program has not asked for yet."""
        return any(library in (self.software or "") for library in (FETCHES_AHEAD, "barnabas"))

    @property
    def uncommitted(self) -> dict[Partition, tuple[int, int]]:
        """By partition the offset that was committed when it left, and up to which its program had got records, if
        that was more; none if it keeps its offsets elsewhere, or commits them when it closes its consumer."""
        ago = self.committed_ago_ms
        if self.removed_by is not None or self.transactional_id is not None or ago is None or ago < _ON_CLOSE_MS:
            return {}
        committed = {each[:2]: each.offset for each in self.positions or ()}
        found = {each[:2]: (committed.get(each[:2], -1), each.offset) for each in self.given or ()}
        return {place: (offset, given) for place, (offset, given) in found.items() if 0 <= offset < given - 1}

    def clause(self) -> Told:
        reason, remedy = self.client_reason or "", None
        if "poll timeout" in reason:
            remedy = (
                "It did not poll within max.poll.interval.ms: process fewer records between two polls"
                " (max.poll.records) or raise max.poll.interval.ms."
            )
        return Told(f"{self.name} left{self.reason}", remedy)

    def kafka(self) -> str:
        return (
            f"[Group {self.group}] Member {self.member.member_id} has left group through explicit `LeaveGroup`"
            f" request; client reason: {self.client_reason}"
        )


@event("member_expired")
class MemberExpired(Departure):
    """A member sent no request within its session timeout, and was removed."""

    because = "missed its session"
    kind = "lost"

    heard_ago_ms: float
    session_ms: float
    is_new: bool | None = None

    def clause(self) -> Told:
        session = words.ms(self.session_ms)
        if self.is_new:
            return Told(f"{self.name} joined as a new member and did not receive the response within {session}")
        return Told(
            f"{self.name} was last heard of {words.ms(self.heard_ago_ms)} ago, its session is {session}",
            "Its process or its network was down, or its event loop was blocked for that long: raise"
            " session.timeout.ms, or move the work off the loop that sends heartbeats.",
        )

    def kafka(self) -> str:
        return (
            f"Member {self.member.member_id} in group {self.group} has failed, removing it from the group."
            f" Its last request was {self.heard_ago_ms / 1000:.1f} s ago, its session timeout is"
            f" {self.session_ms / 1000:.1f} s."
        )


@event("member_not_rejoined")
class MemberNotRejoined(Departure):
    """A member did not rejoin within the rebalance timeout, and was removed."""

    because = "did not rejoin in time"
    kind = "lost"

    heard_ago_ms: float
    waited_ms: float

    def kafka(self) -> str:
        return f"Group {self.group} removed dynamic members who haven't joined: {self.member.member_id}"


@event("member_not_synced")
class MemberNotSynced(Departure):
    """A member joined but did not ask for its assignment within the rebalance timeout, and was removed."""

    because = "did not sync"
    kind = "lost"

    waited_ms: float

    def clause(self) -> Told:
        return Told(
            f"{self.name} joined but did not ask for its partitions within {words.ms(self.waited_ms)}",
            "It stopped in the middle of a rebalance: look at its log around this time.",
        )

    def kafka(self) -> str:
        return f"Group {self.group} removed members who haven't sent their sync requests: {self.member.member_id}"


@event("member_refused")
class MemberRefused(Departure):
    """A member rejoined late, when the group was full, and was removed."""

    max_size: int

    def sentence(self) -> Told:
        full = f"when the group was full ({words.count(self.max_size, 'member')}) and was removed"
        return Told(f"{self.name} rejoined {full}.", "Raise group.max.size, or start fewer members.")

    def line(self, reason: str) -> Line:
        text = "group is full, a member was removed"
        return self._line("warning", text, member=self.name, max_size=self.max_size)

    def kafka(self) -> str:
        return (
            f"Group {self.group} is full ({self.max_size} members): removed member {self.member.member_id}, which"
            " rejoined late."
        )


@event("member_gone")
class MemberGone(Departure):
    """A member is not there any more; why is not recorded. Only in rebuilt events."""

    because = "was gone"
    kind = "lost"

    possible: tuple[str, ...] | None = None
    last_commit: Commit | None = None
    pending: ByTopic | None = None
    pending_ms: float | None = None

    def clause(self) -> Told:
        *others, last = (_HOW_GONE.get(each, each) for each in self.possible or ("left",))
        how = " or ".join((", ".join(others), last)) if others else f"{last}, nothing else fits"
        return Told(f"{self.name} is gone{self._at()}: {how}")

    def evidence(self) -> str | None:
        """The sentence with the evidence about it; None if there is none."""
        known = []
        if self.last_commit is not None:
            topic, partition, time = self.last_commit
            known.append(f"{topic}-{partition}, which it owned, was committed last at {words.clock(time)}")
        if self.pending is not None:
            known.append(f"it had to revoke {words.partitions(self.pending)} for {words.ms(self.pending_ms or 0)}")
        if self.session_ms is not None:
            known.append(f"its session timeout is {words.ms(self.session_ms)}")
        if self.rebalance_timeout_ms is not None:
            known.append(f"its rebalance timeout is {words.ms(self.rebalance_timeout_ms)}")
        return f"Evidence about {self.name}: {'; '.join(known)}." if known else None


_HOW_GONE: Final = {
    "left": "left",
    "expired": "expired",
    "not_rejoined": "did not rejoin in time",
    "not_revoked": "did not revoke its partitions in time",
}


@event("join_refused")
class JoinRefused(MemberEvent):
    """A client may not join: members or broker do not have its assignor; recorded once in 60 s of a group."""

    error: str | None = None
    protocol_type: str | None = None
    offered: tuple[str, ...]
    supported: tuple[str, ...]

    def sentence(self) -> Told:
        text = f"{self.name} may not join ({self.error or 'INCONSISTENT_GROUP_PROTOCOL'}): "
        if self.protocol_type is not None:
            return Told(
                f"{text}it is of the protocol type {self.protocol_type}, and the members are of another one.",
                "Give it a group.id of its own.",
            )
        offered, supported = words.listed(self.offered), words.listed(self.supported) or "none in common"
        if self.error is not None:
            return Told(
                f"{text}its group.remote.assignor is {offered}, and the broker has {supported}.",
                "Leave group.remote.assignor out, or set it to one of these. An assignor of"
                " partition.assignment.strategy needs group.protocol=classic.",
            )
        return Told(
            f"{text}its partition.assignment.strategy is {offered}, and the members support {supported}.",
            "To change the assignor: deploy the new version with both assignors first; when all members have it, deploy"
            " it once more without the old one. If it is another program: give it a group.id of its own.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "offered": ", ".join(self.offered), "supported": ", ".join(self.supported)}
        whom = "members" if self.error is None else "broker"
        return self._line("warning", f"a client has no assignor in common with the {whom}", **pairs)


@event("session_refused")
class SessionRefused(MemberEvent):
    """A client may not join: its session timeout is not allowed here; recorded once in 60 s of a group."""

    session_ms: float
    least_ms: float
    most_ms: float

    def sentence(self) -> Told:
        short = self.session_ms < self.least_ms
        key = f"group.{'min' if short else 'max'}.session.timeout.ms"
        bound = f"{'at least' if short else 'at most'} {words.ms(self.least_ms if short else self.most_ms)}"
        return Told(
            f"{self.name} may not join (INVALID_SESSION_TIMEOUT): its session.timeout.ms is"
            f" {words.ms(self.session_ms)}, and the broker allows {bound} ({key}).",
            f"Set session.timeout.ms of {self.name} to {bound}, or change {key} of the brokers.",
        )

    def line(self, reason: str) -> Line:
        times = {name: seconds(getattr(self, f"{name}_ms") / 1000) for name in ("session", "least", "most")}
        return self._line("warning", "the session timeout of a client is not allowed", member=self.name, **times)


@event("regex_refused")
class RegexRefused(MemberEvent):
    """A client may not subscribe: its regular expression is not one of RE2; recorded once in 60 s of a group."""

    problem: str

    def sentence(self) -> Told:
        return Told(
            f"{self.name} may not subscribe (INVALID_REGULAR_EXPRESSION): {self.problem}",
            "Write the pattern for RE2, which has no lookaround and no backreferences, or subscribe to topics by their"
            " names. With group.protocol=classic the client matches patterns itself.",
        )

    def line(self, reason: str) -> Line:
        return self._line("warning", "the pattern of a client is refused", member=self.name, problem=self.problem)


@event("member_disconnected")
class MemberDisconnected(MemberEvent):
    """The connection of a member was closed: without a leave, once in a minute, or after it had left or was removed."""

    closed_by: str
    closed_error: str | None = None
    gone_ago_ms: float | None = None
    session_ms: float | None = None
    age_ms: float | None = None


@event("member_reconnected")
class MemberReconnected(MemberEvent):
    """A member whose connection was closed was heard of on another one; once in a minute."""


@event("member_slow")
class MemberSlow(MemberEvent):
    """A member has sent no request for 60 % of its session timeout."""

    heard_ago_ms: float
    session_ms: float
    connection: str | None = None
    closed_ago_ms: float | None = None
    denied_ago_ms: float | None = None
    #: How often it was so, and when it was so last, in ms since 1970.
    times: int | None = _not_recorded()
    newest: int | None = _not_recorded()

    def with_later(self, later: "MemberSlow") -> "MemberSlow":
        """This event, and a later one of the same member, as one."""
        silent = max(self.heard_ago_ms, later.heard_ago_ms)
        return self.changed(times=(self.times or 1) + 1, newest=later.time, heard_ago_ms=silent)

    @property
    def is_late(self) -> bool:
        """Whether nothing else is known than that its heartbeat is late."""
        return self.connection == "open" and self.denied_ago_ms is None

    def sentence(self) -> Told:
        if self.times is not None and self.newest is not None:
            return Told(
                f"{self.name} was silent for {words.ms(self.heard_ago_ms)} {words.times(self.times)} until"
                f" {words.clock(self.newest)}, its session is {words.ms(self.session_ms)}: its heartbeat.interval.ms is"
                " probably near its session, or what sends its heartbeats is blocked again and again.",
                LATE_HEARTBEATS,
            )
        if self.denied_ago_ms is not None and self.denied_ago_ms < self.heard_ago_ms:
            return Told(
                f"{self.name} may not read the group any more: its requests are refused (GROUP_AUTHORIZATION_FAILED);"
                f" when its session of {words.ms(self.session_ms)} is over, it will be removed.",
                NEEDS_READ,
            )
        if self.connection == "closed":
            return Told(
                f"{self.name} has not left, and its connection was closed {words.ms(self.closed_ago_ms or 0)} ago: when"
                f" its session of {words.ms(self.session_ms)} is over, it will be removed."
            )
        return Told(
            f"{self.name} was silent for {words.ms(self.heard_ago_ms)}, its session is {words.ms(self.session_ms)}:"
            " it will be removed soon.",
            "Its heartbeats are late: lower heartbeat.interval.ms, raise session.timeout.ms, or unblock its loop.",
        )

    def line(self, reason: str) -> Line:
        times = {"silent": seconds(self.heard_ago_ms / 1000), "session": seconds(self.session_ms / 1000)}
        return self._line("warning", "member is silent", member=self.name, **times)

    def kafka(self) -> str:
        return (
            f"Member {self.member.member_id} of group {self.group} sent its last request"
            f" {self.heard_ago_ms / 1000:.1f} s ago; its session timeout is {self.session_ms / 1000:.1f} s."
        )


@event("member_rejoined")
class MemberRejoined(MemberEvent):
    """A member of a Stable group rejoined with the same topics, and with other owned partitions (KIP-429)."""

    because = "rejoined"
    kind = "changed"

    def clause(self) -> Told:
        return Told(f"{self.name} rejoined with the same topics{self.reason}")


#: What to do about a member that probably reads what its program writes.
READS_ITSELF: Final = (
    "If its program writes there (dead letters, retries), it reads its own records again and again: let its regular"
    " expression not match that topic."
)


@event("subscription_changed")
class SubscriptionChanged(MemberEvent):
    """A member changed its subscription."""

    because = "changed its subscription"
    kind = "changed"

    added: tuple[str, ...] | None = None
    removed: tuple[str, ...] | None = None
    regex: str | None = None
    new_topics: tuple[str, ...] | None = None
    own_topics: tuple[str, ...] | None = None
    created_by: tuple[str, ...] | None = None
    #: The metadata of a classic member before, and now.
    old: bytes | None = _not_recorded()
    new: bytes | None = _not_recorded()

    def decoded(self) -> Self:
        if self.old is None and self.new is None:
            return self
        before, after = set(read_topics(self.old or b"") or ()), set(read_topics(self.new or b"") or ())
        added, removed = tuple(sorted(after - before)), tuple(sorted(before - after))
        return self.changed(added=added, removed=removed, old=None, new=None)

    def clause(self) -> Told:
        changes = (("added", self.added), ("removed", self.removed))
        parts = [f"{verb} {words.listed(topics)}" for verb, topics in changes if topics]
        if self.regex is not None:
            parts.append(f"subscribed with the expression {self.regex}" if self.regex else "dropped its expression")
        what = f": {' and '.join(parts)}" if parts else ", or its user data"
        if self.new_topics and self.new_topics == self.added and not self.removed:
            what += f", {'which was' if len(self.added) == 1 else 'which were'} created shortly before: its regular"
            what += " expression probably matches"
        text = f"{self.name} changed its subscription{what}"
        return Told(f"{text}; {self.own}", READS_ITSELF) if self.own_topics else Told(text)

    @property
    def own(self) -> str:
        """The topics that were created because of its own client, in words."""
        own = self.own_topics or ()
        was = "was" if len(own) == 1 else "were"
        return f"{words.listed(own)} {was} created because a client of its client id and address used the name"


@event("leader_rejoined")
class LeaderRejoined(MemberEvent):
    """The leader of a Stable group asked for a new assignment."""

    because = "asked for a new assignment"
    kind = "changed"

    def clause(self) -> Told:
        return Told(f"the leader {self.name} asked for a new assignment{self.reason}")


@event("member_revoking")
class MemberRevoking(MemberEvent):
    """A member has to revoke partitions."""

    of_epochs = True

    partitions: ByTopic
    timeout_ms: float | None = None

    def progress(self) -> list[str]:
        within = "" if self.timeout_ms is None else f" within {words.ms(self.timeout_ms)}"
        return [f"{self.name} has to revoke {words.partitions(self.partitions)}{within}."]


@event("member_still_revoking")
class MemberStillRevoking(MemberEvent):
    """A member has been revoking partitions for long, which others may wait for."""

    of_epochs = True

    partitions: ByTopic
    waited_ms: float
    timeout_ms: float

    def progress(self) -> list[str]:
        return [
            f"{self.name} has been revoking {words.partitions(self.partitions)} for {words.ms(self.waited_ms)}:"
            f" max.poll.interval.ms of its client is {words.ms(self.timeout_ms)}."
        ]

    def line(self, reason: str) -> Line:
        text = "member has not revoked its partitions yet"
        pairs = {"member": self.name, "partitions": words.partitions(self.partitions)}
        times = {"waited": seconds(self.waited_ms / 1000), "rebalance_timeout": seconds(self.timeout_ms / 1000)}
        return self._line("warning", text, **pairs, **times)


@event("member_revoked")
class MemberRevoked(MemberEvent):
    """A member has revoked partitions."""

    of_epochs = True

    partitions: ByTopic
    waited_ms: float

    def progress(self) -> list[str]:
        return [f"{self.name} revoked {words.partitions(self.partitions)} after {words.ms(self.waited_ms)}."]


@event("member_not_revoked")
class MemberNotRevoked(Departure):
    """A member did not revoke its partitions within its rebalance timeout, and was removed."""

    because = "did not revoke its partitions in time"
    kind = "lost"
    of_epochs = True

    partitions: ByTopic
    waited_ms: float

    def clause(self) -> Told:
        return Told(
            f"{self.name} did not revoke {words.partitions(self.partitions)} within {words.ms(self.waited_ms)}",
            "A member revokes at its next poll: reduce the work between two polls (max.poll.records), or raise"
            " max.poll.interval.ms, which is also its rebalance timeout.",
        )

    def line(self, reason: str) -> Line:
        text = "member did not revoke its partitions"
        return self._line("warning", text, member=self.name, waited=seconds(self.waited_ms / 1000))

    def kafka(self) -> str:
        return (
            f"[GroupId {self.group}] Member {self.member.member_id} fenced from the group because it failed to"
            f" transition from its epoch within {self.waited_ms:.0f}ms."
        )


@event("member_fenced")
class MemberFenced(MemberEvent):
    """A member came with another member epoch than its own, and has to join again."""

    of_epochs = True

    member_epoch: int
    known_epoch: int

    def sentence(self) -> Told:
        return Told(
            f"{self.name} came with member epoch {self.member_epoch} instead of {self.known_epoch}, and had to join"
            " again."
        )


@event("instance_in_use")
class InstanceInUse(MemberEvent):
    """A member may not join, because another one has its instance id; recorded once while that one has it."""

    of_epochs = True

    owner: Member
    connection: str | None = None
    closed_ago_ms: float | None = None

    def sentence(self) -> Told:
        refused, owner = (each._replace(instance_id=None).name for each in (self.member, self.owner))
        who = refused if refused != owner else f"another {refused}"
        if self.connection == "closed":
            ago = "" if self.closed_ago_ms is None else f" {words.ms(self.closed_ago_ms)} before"
            return Told(
                f"{words.capital(who) if who != refused else who} may not join with the group.instance.id {self.name}"
                f" yet: {owner} has it, closed its connection"
                f"{ago} without leaving, and its session is not over. It was probably killed and restarted.",
                "A static member that closes its consumer may come back at once. After a kill it waits for the rest of"
                " its session (group.consumer.session.timeout.ms, or consumer.session.timeout.ms of the group).",
            )
        probably = "" if self.connection is None else ", and its connection is open"
        return Told(
            f"Two programs probably use the group.instance.id {self.name}: {who} may not join with it, because {owner}"
            f" has it{probably}.",
            "Give each program a group.instance.id of its own: the one that is refused usually ends.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.member.client_id, "owner": self.owner.client_id}
        return self._line("warning", "another member has this instance id", instance_id=self.name, **pairs)


@event("static_member_away")
class MemberAway(MemberEvent):
    """A static member left for a while; its partitions wait for it."""

    of_epochs = True

    session_ms: float | None = None

    def sentence(self) -> Told:
        wait = "wait for it" if self.session_ms is None else f"wait {words.ms(self.session_ms)} for it"
        return Told(f"Static member {self.name} left for a while; its partitions {wait}.")

    def kafka(self) -> str:
        return (
            f"[GroupId {self.group}] Static member {self.member.member_id} with instance id {self.member.instance_id}"
            " temporarily left the consumer group."
        )


# Rebalances


@fields
class Caused(GroupEvent):
    """An event that follows from another one."""

    cause: str = ""
    by: tuple[Member, ...] | None = None

    def by_ids(self) -> set[str | None]:
        """The ids of the members that caused it."""
        return {member.member_id for member in self.by or ()}


class Started(Caused):
    """A rebalance or an epoch has started: the beginning of a band of the chart."""

    __slots__ = ()

    @property
    def opens(self) -> int:
        """The generation that it leads to."""
        return self.generation


@event("rebalance_started")
class RebalanceStarted(Started):
    """A rebalance started."""

    reason: str | None = None
    delay_ms: float | None = None

    @property
    def opens(self) -> int:
        return self.generation + 1

    def kafka(self) -> str:
        return (
            f"Preparing to rebalance group {self.group} in state PreparingRebalance with old generation"
            f" {self.generation} (reason: {self.reason})."
        )


@event("join_phase_over")
class JoinPhaseOver(GroupEvent):
    """All members have joined, or the rebalance timeout is over: the leader can assign partitions."""

    members: int | None = None
    took_ms: float | None = None
    protocol: str | None = None
    leader: Member | None = None
    joined_after: tuple[LateMember, ...] | None = None

    def kafka(self) -> str:
        return f"Stabilized group {self.group} generation {self.generation} with {self.members} members."


@event("join_phase_stuck")
class JoinPhaseStuck(GroupEvent):
    """No member rejoined within the rebalance timeout: the group waits again."""

    members: int
    waited_ms: float

    def line(self, reason: str) -> Line:
        pairs = {"members": self.members, "waited": seconds(self.waited_ms / 1000)}
        return self._line("error", "no member rejoined, the group waits again", **pairs)

    def kafka(self) -> str:
        return f"Group {self.group} could not complete rebalance because no members rejoined."


#: Times that differ by less are those of one request.
_MOMENT_MS: Final = 1
#: A heartbeat that comes after so many times the time between the last two, and so many milliseconds, is late.
_DUE: Final = 1.2
_DUE_MS: Final = 1_000
#: The next heartbeat of a member with an unknown interval comes within so many milliseconds.
_LONGEST_INTERVAL_MS: Final = 60_000


@event("rejoin_awaited")
class RejoinAwaited(MemberEvent):
    """A rebalance has waited for 10 s for a member that has not rejoined."""

    waited_ms: float
    heard_ago_ms: float
    rebalance_timeout_ms: float
    others: int
    protocol: str | None = None
    told_ms: float | None = None
    heartbeat_ago_ms: float | None = None
    heartbeat_ms: float | None = None
    connection: str | None = None
    closed_ago_ms: float | None = None

    @property
    def is_told(self) -> bool:
        """Whether its heartbeats have gone on since a response to one told it to rejoin."""
        if self.told_ms is None or self.connection == "closed":
            return False
        return self.heard_ago_ms + _MOMENT_MS < self.waited_ms - self.told_ms

    @property
    def has_not_heard(self) -> bool:
        """Whether no response has told it to rejoin, though it goes on: its heartbeats are seldom."""
        if self.told_ms is not None or self.heartbeat_ago_ms is None or self.connection == "closed":
            return False
        if self.heartbeat_ms is None:
            return self.goes_on
        late_ms = self.heartbeat_ago_ms - self.heartbeat_ms * _DUE - _DUE_MS
        return late_ms <= 0 or self.heard_ago_ms < late_ms

    @property
    def goes_on(self) -> bool:
        """Whether it has sent another request than a heartbeat since the rebalance began."""
        return self.told_ms is None and self.heard_ago_ms + _MOMENT_MS < self.waited_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Whether a member that had not heard of the rebalance when this was noted may have done so since then."""
        interval = _LONGEST_INTERVAL_MS if self.heartbeat_ms is None else self.heartbeat_ms * _DUE + _DUE_MS
        return now_ms - self.time + (self.heartbeat_ago_ms or 0) > interval

    def state(self, now_ms: int) -> str:
        """A clause about its member, without its name.

        Args:
            now_ms: the time, in ms since 1970.
        """
        if self.has_not_heard:
            gap = self.heartbeat_ms or 0
            every = f", and the one before {words.ms(gap)} earlier" if gap >= self.waited_ms else ""
            if self.is_overdue(now_ms):
                return f"had not heard of it when this was noted: its last heartbeat was before it began{every}"
            ago = words.ms((self.heartbeat_ago_ms or 0) + now_ms - self.time)
            return f"has not heard of it yet: its last heartbeat was {ago} ago, before the rebalance began{every}"
        if self.is_told:
            told = "the responses to its heartbeats tell it to"
            return f"has not rejoined, though {told}: its program probably does not poll"
        if self.connection == "closed":
            return "has not rejoined, and its connection is closed"
        return f"has not rejoined, and was silent for {words.ms(self.heard_ago_ms)} when this was noted"

    def line(self, reason: str) -> Line:
        return self._line(
            "warning",
            "a rebalance waits for a member",
            member=self.name,
            waited=seconds(self.waited_ms / 1000),
            heard_ago=seconds(self.heard_ago_ms / 1000),
        )


@event("leader_changed")
class LeaderChanged(GroupEvent):
    """The leader had not rejoined: another member assigns partitions."""

    old: str
    new: str

    def kafka(self) -> str:
        return (
            f"Group leader {self.old} of group {self.group} failed to join before the rebalance timeout. Member"
            f" {self.new} was elected as the new leader."
        )


@event("rebalance_over")
class RebalanceOver(GroupEvent):
    """The assignment is in the log: the group is Stable."""

    members: int
    protocol_type: str | None = None
    protocol: str | None = None
    join_took_ms: float | None = None
    sync_took_ms: float | None = None
    moves: tuple[Move, ...] | None = None
    own_topics: tuple[str, ...] | None = None
    pauses: tuple[Pause, ...] | None = None
    more_pauses: int | None = None
    #: The members of the generation before, and of this one, with their assignments.
    before: Sequence[tuple[Identified, bytes]] | None = _not_recorded()
    after: Sequence[tuple[Identified, bytes]] | None = _not_recorded()

    def decoded(self) -> Self:
        if self.protocol_type != CONSUMER or self.after is None:
            return self
        return self.changed(moves=moves_between(self.before or (), self.after or ()), before=None, after=None)

    @property
    def took_ms(self) -> float:
        """How long the rebalance took."""
        return (self.join_took_ms or 0) + (self.sync_took_ms or 0)

    def line(self, reason: str) -> Line:
        took = seconds(self.took_ms / 1000)
        return self._line("info", "group rebalanced", members=self.members, reason=reason, took=took)

    def kafka(self) -> str:
        return (
            f"Assignment received from leader for group {self.group} for generation {self.generation}. The group has"
            f" {self.members} members."
        )


@event("persist_failed")
class PersistFailed(GroupEvent):
    """A record of the group could not be written."""

    because = "could not write the group's record"
    kind = "failed"

    error: str | None = None

    def clause(self) -> Told:
        text = f"the coordinator could not write the group's record ({self.error})"
        return Told(text, "Look at the health of __consumer_offsets: its replicas and its disk.")

    def line(self, reason: str) -> Line:
        return self._line("warning", "group cannot be written", error=self.error)

    def kafka(self) -> str:
        return f"Failed to write metadata for group {self.group}: {self.error}"


@event("rebalance_storm")
class RebalanceStorm(GroupEvent):
    """A group rebalances again and again."""

    rebalances: int
    seconds_ms: float
    culprit: str
    times: int

    def line(self, reason: str) -> Line:
        pairs = {"group": self.group, "rebalances": self.rebalances, "within": seconds(self.seconds_ms / 1000)}
        text = "rebalance storm: further lines about this group go to the debug level until it is calm"
        return Line("warning", text, {**pairs, "mostly": f"{self.culprit}, {self.times} times"})


# Epochs


@event("group_epoch_bumped")
class EpochBumped(Started):
    """The group epoch grew: a new target assignment is due."""

    of_epochs = True

    members: int | None = None
    classic: int | None = None

    def kafka(self) -> str:
        return f"[GroupId {self.group}] Bumped group epoch to {self.generation}."


@event("target_assigned")
class TargetAssigned(GroupEvent):
    """The coordinator computed a new target assignment."""

    of_epochs = True

    took_ms: float
    assignor: str | None = None
    members: int | None = None
    moves: tuple[Move, ...] | None = None
    own_topics: tuple[str, ...] | None = None

    def progress(self) -> list[str]:
        moves, took = self.moves or (), words.ms(self.took_ms)
        out = []
        if self.took_ms >= SLOW_MS and self.assignor is None:
            out.append(f"The target was recorded {took} after the epoch.")
        elif self.took_ms >= SLOW_MS:
            out.append(f"The assignor {self.assignor} computed the target in {took}.")
        gained = {place for move in moves for place in partitions_of(move.gained)}
        for move in moves[: 2 * MAX_NAMED]:
            # What another member is to get is said there.
            lost = {} if partitions_of(move.lost) <= gained else move.lost
            to_move = (("get", move.gained), ("give", lost))
            parts = [f"{verb} {words.partitions(numbers)}" for verb, numbers in to_move if numbers]
            if parts:
                out.append(f"{move.member.name} is to {' and '.join(parts)}.")
        if len(moves) > 2 * MAX_NAMED:
            out.append(f"The targets of {words.count(len(moves) - 2 * MAX_NAMED, 'more member')} changed.")
        return out

    def kafka(self) -> str:
        return (
            f"[GroupId {self.group}] Computed a new target assignment for epoch {self.generation} with"
            f" '{self.assignor}' assignor in {self.took_ms:.0f}ms."
        )


@event("assignor_failed")
class AssignorFailed(GroupEvent):
    """The assignor failed; the next heartbeats try again."""

    of_epochs = True

    assignor: str
    reason: str

    def progress(self) -> list[str]:
        return [f"The assignor {self.assignor} failed: {self.reason}."]

    def line(self, reason: str) -> Line:
        return self._line("error", "no target assignment", assignor=self.assignor, reason=self.reason)


@event("group_reconciled")
class GroupReconciled(GroupEvent):
    """All members own their partitions of the target assignment: the epoch is over."""

    of_epochs = True

    took_ms: float
    members: int
    pauses: tuple[Pause, ...] | None = None
    more_pauses: int | None = None

    def progress(self) -> list[str]:
        members = f"All {'known ' if self.inferred else ''}members"
        took, count = words.ms(self.took_ms), words.count(self.members, "member")
        return [f"{members} owned their partitions after {took}; {count}.", *pauses_in_words(self)]

    def line(self, reason: str) -> Line:
        took = seconds(self.took_ms / 1000)
        return self._line("info", "group reconciled", members=self.members, reason=reason, took=took)


def pauses_in_words(over: RebalanceOver | GroupReconciled) -> list[str]:
    """For how long partitions had no owner; the partitions with the same bounds together."""
    together: dict[tuple[str, str], list[Partition]] = {}
    for pause in over.pauses or ():
        bounds = words.ms(pause.at_least_ms), words.ms(pause.at_most_ms)
        together.setdefault(bounds, []).append((pause.topic, pause.partition))
    out = []
    for (least, most), partitions in list(together.items())[:MAX_NAMED]:
        how_long = f"for {most}" if least == most else f"for at least {least}, at most {most}"
        have = "had" if len(partitions) == 1 else "each had"
        out.append(f"{words.partitions(by_topic(partitions))} {have} no owner {how_long}.")
    rest = sum(len(each) for each in list(together.values())[MAX_NAMED:]) + (over.more_pauses or 0)
    if rest:
        out.append(f"{words.capital(words.count(rest, 'more partition'))} had no owner for a shorter time.")
    return out


@event("regex_resolved")
class RegexResolved(GroupEvent):
    """A regular expression matches other topics than before, or a new one was resolved."""

    because = "a regular expression matches other topics"
    kind = "topic"

    regex: str
    topics: int | None = None
    added: tuple[str, ...] | None = None
    removed: tuple[str, ...] | None = None

    def clause(self) -> Told:
        changes = (("now matches", self.added), ("no longer matches", self.removed))
        parts = [f"{verb} {words.listed(topics)}" for verb, topics in changes if topics]
        return Told(f"the regular expression {self.regex} {' and '.join(parts) or 'matches no topic'}")

    @property
    def matches_nothing(self) -> bool:
        """Whether it matches no topic, and did not before."""
        return self.topics == 0 and not self.removed

    def alone(self) -> Told:
        """The sentence about it if no epoch follows."""
        return Told(
            f"{words.capital(self.clause().text)}: a member that subscribes with it alone reads nothing.",
            "Correct it (it has to match the whole name of a topic), or create the topic. It matches only topics that"
            " the member's user may describe.",
        )


@event("regex_failed")
class RegexFailed(GroupEvent):
    """A regular expression could not be resolved."""

    of_epochs = True

    regex: str
    reason: str

    def sentence(self) -> Told:
        return Told(f"The regular expression {self.regex} has no new matches: {self.reason}.")

    def line(self, reason: str) -> Line:
        text = "regular expression not resolved"
        return self._line("warning", text, regex=self.regex[:200], reason=self.reason)


# The group


@event("group_empty")
class GroupEmpty(GroupEvent):
    """The last member is gone."""

    def line(self, reason: str) -> Line:
        return self._line("info", "group is empty", reason=reason)

    def kafka(self) -> str:
        return f"Group {self.group} with generation {self.generation} is now empty."


@event("group_loaded")
class GroupLoaded(GroupEvent):
    """A broker became the coordinator of a group with members."""

    members: int
    epoch: int | None = None

    def sentence(self) -> Told:
        members = words.count(self.members, "member")
        return Told(f"The group's coordinator moved to this broker: {members}, no rebalance.")

    def kafka(self) -> str:
        return f"Loaded classic group {self.group} with {self.members} members."


@event("group_unloaded")
class GroupUnloaded(GroupEvent):
    """A broker is not the coordinator of the group any more."""

    def kafka(self) -> str:
        return f"[GroupId={self.group}] Unloading group metadata for generation {self.generation}."


@fields
class ByClient(GroupEvent):
    """An event that a client asked for, which is not a member."""

    client_id: str | None = None
    host: str | None = None
    principal: str | None = None

    @property
    def by_client(self) -> str:
        """The client, with its address and its user; "" if it is not recorded."""
        if self.client_id is None:
            return ""
        known = ", ".join(each for each in ((self.host or "").removeprefix("/"), self.principal) if each)
        return f"the client {self.client_id}{f' ({known})' if known else ''}"


@event("coordinator_sought")
class CoordinatorSought(ByClient):
    """A client asked for the coordinator of a group that does not exist, stayed connected, and did not join."""

    waited_ms: float
    software: str | None = None
    listener: str | None = None
    advertised: str | None = None
    #: 0 for a client that does not ask again; None of older brokers.
    asks: int | None = None
    missing: tuple[str, ...] | None = None
    hidden: tuple[str, ...] | None = None
    are_all: bool | None = None

    def sentence(self) -> Told:
        text = words.capital(self.by_client or "a client")
        text += f", with {self.software}," if self.software else ""
        text += " asked for this group's coordinator"
        text += f" {words.times(self.asks)}" if self.asks else ", stayed connected"
        text += f", and has neither joined the group nor read a record within {words.ms(self.waited_ms)}: "
        given, address = "the coordinator at the address that it got", "the broker's advertised.listeners"
        if self.advertised:
            given += f" ({self.advertised}, advertised.listeners"
            given += f" of listener {self.listener})" if self.listener else ")"
            address = self.advertised
        connect = f"whether it can connect to {address} from where it runs; correct advertised.listeners if it cannot."
        check = (
            "the name of the topic, or the pattern, in its subscription (`barnabas topics list`), and whether its user"
        )
        check += " may describe the topic (`barnabas acls list`)."
        no_consumer = " If it is no consumer, but a program that looks at groups: nothing."
        is_rdkafka = "rdkafka" in (self.software or "")
        if self.asks:
            return Told(f"{text}it probably does not reach {given}.", f"Check {connect}")
        if self.missing or self.hidden:
            return self._without_topics(text)
        if self.asks is not None and is_rdkafka and self.are_all:
            text += (
                "it asked for all topics, so the pattern in its subscription probably matches none that its user may"
            )
            return Told(f"{text} describe.", f"Check {check}{no_consumer}")
        if self.asks is not None and is_rdkafka:
            text += "its subscription probably matches no topic that exists, or it has not subscribed."
            return Told(text, f"Check {check}{no_consumer}")
        text += f"either it does not reach {given}, or its subscription matches no topic that exists."
        return Told(text, f"Check both. First {connect} Then {check}{no_consumer}")

    def _without_topics(self, text: str) -> Told:
        """A client has asked for topics that do not exist for it."""
        facts, remedies = [], []
        if self.missing:
            facts.append(f"{words.listed(self.missing)}, which {'does' if len(self.missing) == 1 else 'do'} not exist")
            remedies.append("Correct the name in its subscription, or create the topic (`barnabas topics list`).")
        if self.hidden:
            facts.append(f"{words.listed(self.hidden)}, which its user may not describe")
            remedies.append("Allow its user to describe the topic (`barnabas acls list`), or correct its name.")
        return Told(f"{text}it asked for {', and for '.join(facts)}.", " ".join(remedies))

    def line(self, reason: str) -> Line:
        pairs = {"client_id": self.client_id, "host": self.host, "waited": seconds(self.waited_ms / 1000)}
        text = "a client asked for the coordinator of a group that does not exist, and did not join"
        return Line("info", text, {"group": self.group, **pairs})


@event("group_deleted")
class GroupDeleted(ByClient):
    """The group was deleted, or its last offsets expired."""

    offsets: int
    expired: bool | None = None

    def sentence(self) -> Told:
        how = "expired" if self.expired else "was deleted"
        how = "was deleted or expired" if self.inferred else how
        how += f" by {self.by_client}" if self.by_client else ""
        text = f"The group {how}, with {words.count(self.offsets, 'committed offset')}."
        if not self.forgets:
            return Told(text)
        return Told(
            f"{text} Its next members begin at their auto.offset.reset: with earliest they read everything again, with"
            " latest they skip what is written until then.",
            "If that was not meant: do not delete this group. To go on where it was: set its offsets before members"
            f" start (barnabas groups reset-offsets {quote(self.group)}).",
        )

    @property
    def forgets(self) -> bool:
        """Whether a client deleted it, and with it committed offsets."""
        return bool(self.by_client and self.offsets and not self.expired)

    def line(self, reason: str) -> Line:
        why = "its offsets expired" if self.expired else "a client asked for it"
        by = {"client_id": self.client_id, "host": self.host} if self.client_id is not None else {}
        return Line("info", "group deleted", {"group": self.group, "offsets": self.offsets, "reason": why, **by})

    def kafka(self) -> str:
        return f"The following groups were deleted: {self.group}. A total of {self.offsets} offsets were removed."


@event("group_upgraded")
class GroupUpgraded(GroupEvent):
    """A classic group with members became one of the consumer protocol."""

    because = "upgraded the group while partitions had no owner"
    kind = "changed"

    members: int
    by: tuple[Member, ...]
    state: str | None = None

    def flaw(self) -> str | None:
        return None if self.by else "by"

    def line(self, reason: str) -> Line:
        text = "group upgraded to the consumer protocol"
        return self._line("info", text, classic_members=self.members, reason=f"{self.by[0].name} joined")

    def kafka(self) -> str:
        return f"[GroupId {self.group}] Converted the classic group to a consumer group."


@event("group_downgraded")
class GroupDowngraded(Caused):
    """A group of the consumer protocol with members became a classic one: its last member of that protocol is gone."""

    because = "was the last member of the consumer protocol"
    kind = "changed"
    of_epochs = True

    members: int

    def line(self, reason: str) -> Line:
        text = "group downgraded to the classic protocol"
        return self._line("info", text, members=self.members, reason=reason)

    def kafka(self) -> str:
        return f"[GroupId {self.group}] Converted the consumer group to a classic group."


@event("topic_changed")
class TopicChanged(GroupEvent):
    """A topic that the group subscribes to appeared, or has more partitions."""

    because = "a topic has changed"
    kind = "topic"

    topic: str
    partitions: int
    before: int | None = None

    def clause(self) -> Told:
        partitions = words.count(self.partitions, "partition")
        if self.before:
            return Told(f"topic {self.topic} grew from {self.before} to {partitions}")
        return Told(f"topic {self.topic} appeared with {partitions}")


@event("topic_deleted")
class TopicDeleted(ByClient):
    """A topic was deleted that the group subscribes to, or has committed offsets of."""

    topic: str
    offsets: int

    def clause(self) -> Told:
        by = f" by {self.by_client}" if self.by_client else ""
        lost = f", and {words.count(self.offsets, 'committed offset')} of the group with it" if self.offsets else ""
        return Told(f"topic {self.topic} was deleted{by}{lost}")


# Share groups


@event("share_partitions_opened")
class SharePartitionsOpened(GroupEvent):
    """Partitions got their states at the share coordinator: they can be assigned to members of the share group."""

    because = "has new share partitions"
    kind = "topic"
    of_epochs = True

    partitions: ByTopic | None = None

    def clause(self) -> Told:
        which = words.partitions(self.partitions) if self.partitions else "partitions"
        return Told(f"the share state of {which} was created: members can get records from there")

    def sentence(self) -> Told:
        return Told(f"{words.capital(self.clause().text)}.")


@event("share_offsets_altered")
class ShareOffsetsAltered(GroupEvent):
    """A client set the offsets of share partitions: they begin anew there."""

    because = "has other share offsets"
    kind = "changed"
    of_epochs = True

    partitions: ByTopic | None = None

    def clause(self) -> Told:
        which = words.partitions(self.partitions) if self.partitions else "partitions"
        return Told(f"a client altered the share offsets of {which}")

    def sentence(self) -> Told:
        return Told(f"{words.capital(self.clause().text)}.")


@fields
class ShareRecords(GroupEvent):
    """An event of records of one partition; what happened to several of them within some seconds is one event.

    Classes with slots that are made anew (:func:`fields`) cannot use ``super()``: subclasses name this one.
    """

    of_epochs = True

    topic: str
    partition: int
    owner: Member | None = None
    records: int
    first_offset: int
    last_offset: int
    deliveries: int | None = None

    def joined(self, later: Self) -> Self:
        """Make one event of this one and a later one of the same type."""
        return self.changed(
            records=self.records + later.records,
            first_offset=min(self.first_offset, later.first_offset),
            last_offset=max(self.last_offset, later.last_offset),
            deliveries=max(self.deliveries or 0, later.deliveries or 0) or None,
        )

    def kin(self) -> tuple[object, ...]:
        """Events with the same value may become one explanation."""
        return self.type, self.topic, self.partition, None if self.owner is None else self.owner.name

    @property
    def where(self) -> str:
        """The partition, in words."""
        return f"{self.topic}-{self.partition}"

    @property
    def _who(self) -> str:
        return "A member" if self.owner is None else self.owner.name

    @property
    def _which(self) -> str:
        first, last = self.first_offset, self.last_offset
        if first == last:
            again = f" {words.times(self.records)}" if self.records > 1 else ""
            return f"the record at offset {first:,} of {self.where}{again}"
        records = min(self.records, last - first + 1)  # The same record can have several events.
        return f"{words.count(records, 'record')} of {self.where} (offsets {first:,} to {last:,})"

    @property
    def _delivered(self) -> str:
        most, one = self.deliveries or 1, self.first_offset == self.last_offset
        if one or most == 1:
            return f"delivered {words.times(most)} so far"
        return f"delivered up to {words.times(most)} so far"

    def sentence(self) -> Told:
        return Told(f"{self._text()}.", self._remedy())

    def _text(self) -> str:
        return self._which

    def _remedy(self) -> str | None:
        return None


@event("share_locks_expired")
class ShareLocksExpired(ShareRecords):
    """The locks of records expired: the member did not acknowledge them in time, and they are delivered again."""

    lock_ms: float
    never_acknowledged: bool | None = None

    def joined(self, later: Self) -> Self:
        never = self.never_acknowledged and later.never_acknowledged
        return ShareRecords.joined(self, later).changed(never_acknowledged=never or None)

    def _text(self) -> str:
        lock = words.ms(self.lock_ms)
        if self.never_acknowledged:
            locks = "lock" if self.first_offset == self.last_offset else "locks"
            return (
                f"{self._who} has not acknowledged a single record: the {locks} ({lock}) of {self._which} expired;"
                f" {self._delivered}"
            )
        return f"{self._who} did not acknowledge {self._which} within the lock of {lock}; {self._delivered}"

    def _remedy(self) -> str:
        if self.never_acknowledged and (self.deliveries or 1) > 1:
            return (
                "Its program probably does not acknowledge: with share.acknowledgement.mode=explicit it has to accept,"
                " release or reject each record, and to commit that. Otherwise look where it hangs: each of its records"
                " is delivered until group.share.delivery.count.limit, and then archived."
            )
        return (
            "Probably the member is slower than its lock, or it hangs: fetch fewer records at a time"
            " (max.poll.records), renew the locks of slow ones, or raise share.record.lock.duration.ms of the group"
            " (group.share.record.lock.duration.ms of the broker)."
        )


@event("share_records_released")
class ShareRecordsReleased(ShareRecords):
    """A member released records: they are delivered again."""

    def _text(self) -> str:
        return f"{self._who} released {self._which}; {self._delivered}"

    def _remedy(self) -> str | None:
        if (self.deliveries or 1) < 2:
            return None
        return (
            "Records that are released again and again reach group.share.delivery.count.limit, and are archived: look"
            " in the member's log why it does not accept them."
        )


@event("share_records_rejected")
class ShareRecordsRejected(ShareRecords):
    """A member rejected records: they are not delivered any more."""

    def _text(self) -> str:
        return f"{self._who} rejected {self._which}: not delivered any more; {self._delivered}"


@event("share_records_archived")
class ShareRecordsArchived(ShareRecords):
    """Records reached the delivery limit: they are not delivered any more."""

    limit: int

    def _text(self) -> str:
        limit = counted(self.limit, "delivery", "deliveries")
        them = "it" if self.records == 1 else "them"
        last = "" if self.owner is None else f"; {self.owner.name} had {them} last"
        return f"{words.capital(self._which)} reached the limit of {limit}: not delivered any more{last}"

    def _remedy(self) -> str:
        return (
            "No member accepted them: look in the members' logs for these offsets. errors.deadletterqueue.topic.name of"
            " the group keeps such records; if more attempts may help, raise share.delivery.count.limit of the group"
            " (group.share.delivery.count.limit of the broker)."
        )


@event("share_dead_letters")
class ShareDeadLetters(ShareRecords):
    """Records were written to a topic for dead letters, or should have been."""

    letters: str
    failed: int
    error: str | None = None

    def joined(self, later: Self) -> Self:
        return ShareRecords.joined(self, later).changed(failed=self.failed + later.failed)

    def kin(self) -> tuple[object, ...]:
        return *ShareRecords.kin(self), self.letters, self.error

    def _text(self) -> str:
        if self.error is None:
            return f"{words.capital(self._which)} went to the dead letters in {self.letters}"
        lost = words.count(self.failed, "record")
        return f"{lost} of {self.where} should have become dead letters in {self.letters}, and did not: {self.error}"

    def _remedy(self) -> str | None:
        if self.error is None:
            return None
        return (
            f"They are not delivered any more, and stay in {self.topic} until its retention deletes them. The topic for"
            " dead letters must exist, and have errors.deadletterqueue.group.enable."
        )


@event("share_window_blocked")
class ShareWindowBlocked(ShareRecords):
    """The window of a share partition is full, and one record holds back its start and all later records."""

    waited_ms: float

    def joined(self, later: Self) -> Self:
        return later

    def kin(self) -> tuple[object, ...]:
        return *ShareRecords.kin(self), self.first_offset

    def _text(self) -> str:
        has = "waits to be delivered again" if self.owner is None else f"is with {self.owner.name}"
        size, waited = words.count(self.records, "record"), words.ms(self.waited_ms)
        return (
            f"The window of {self.where} is full ({size}): for {waited} its start has waited for the record at offset"
            f" {self.first_offset:,}, which {has}; {self._delivered}"
        )

    def _remedy(self) -> str:
        return (
            "Later records are delivered when this one is accepted, rejected or archived. How long a member may keep it"
            " is share.record.lock.duration.ms of the group (group.share.record.lock.duration.ms of the broker); how"
            " large the window is, share.partition.max.record.locks (group.share.partition.max.record.locks)."
        )


@event("share_window_moved")
class ShareWindowMoved(ShareRecords):
    """The start of a share partition's window moved on, after a record had held it back."""

    waited_ms: float

    def joined(self, later: Self) -> Self:
        return later

    def _text(self) -> str:
        waited = words.ms(self.waited_ms)
        return (
            f"The window of {self.where} moves on: the record at offset {self.first_offset:,} held it back for {waited}"
        )


# Offsets


#: Commits of a client that is not a member which one explanation keeps.
_MOST_ACCEPTED: Final = 20


#: The commits of a client are those of a member that has gone, for so long.
_LATE_MS: Final = 300_000


@event("offsets_altered")
class OffsetsAltered(ByClient):
    """A client that is not a member committed or deleted offsets."""

    offsets: int
    changes: tuple[OffsetChange, ...] | None = None
    #: Another client that is not a member, and had just committed an offset that this one set back.
    other_client_id: str | None = None
    other_host: str | None = None
    #: Whether the client has committed before, on the same connection.
    commits_on: bool | None = None
    #: How many requests it tells of, if there are several; in how many of them offsets went back, and those of another
    #: client did.
    times: int | None = None
    backs: int | None = None
    turns: int | None = None
    transactional_id: str | None = None
    #: The end of the membership of a member with its client id and host, if that was in the last minutes.
    gone: Departure | None = _not_recorded()

    def follows(self, before: "OffsetsAltered") -> bool:
        """Whether the same client did this as another event of this type, or one that sets the same offsets in turn."""
        in_turn = self._turns + before._turns > 1 and not self.clients.isdisjoint(before.clients)
        return in_turn or self.by_client == before.by_client

    @property
    def clients(self) -> frozenset[tuple[str, str | None]]:
        """The client, and the one whose offsets it set back, with their hosts, as far as they are recorded."""
        both = (self.client_id, self.host), (self.other_client_id, self.other_host)
        return frozenset((name, host) for name, host in both if name is not None)

    def with_later(self, later: "OffsetsAltered") -> Self:
        """This event, and a later one of the same client, as one."""
        changes = {(each.topic, each.partition): each for each in self.changes or ()}
        for each in later.changes or ():
            key = each.topic, each.partition
            changes[key] = each._replace(before=changes[key].before) if key in changes else each
        other = later if later.other_client_id is not None else self
        return self.changed(
            offsets=max(len(changes), self.offsets, later.offsets),
            changes=tuple(changes.values()),
            other_client_id=other.other_client_id,
            other_host=other.other_host,
            commits_on=self.commits_on or later.commits_on,
            times=(self.times or 1) + (later.times or 1),
            backs=self._backs + later._backs,
            turns=self._turns + later._turns,
        )

    @property
    def is_in_turn(self) -> bool:
        """Whether two clients that are not members set the same offsets again and again."""
        return self._turns > 1

    @property
    def _backs(self) -> int:
        if self.backs is not None:
            return self.backs
        return int(any(each.is_back for each in self.changes or ()))

    @property
    def _turns(self) -> int:
        return int(self.other_client_id is not None) if self.turns is None else self.turns

    def _in_turn(self) -> Told:
        clients = [
            f"{name} ({(host or '').removeprefix('/')})"
            for name, host in ((self.client_id, self.host), (self.other_client_id, self.other_host))
        ]
        where = words.partitions(by_topic(each[:2] for each in self.changes or ()))
        text = f"{clients[0]} and {clients[1]}, which are not members, commit the same partitions in turn:"
        text += f" the offsets of {where} went back {words.times(self._backs)}."
        remedy = (
            "Give each of these programs a group.id of its own, or let them subscribe(), so that the group divides the"
            " partitions. A program that starts again goes on at the offset that was committed last, by either of them."
        )
        return Told(text, remedy)

    def sentence(self) -> Told:
        if self.is_in_turn:
            return self._in_turn()
        changes = self.changes or ()
        if self.gone is not None and not self._backs and self.transactional_id is None:
            return self._late(self.gone)
        if self.commits_on and not self._backs:
            return self._without_membership()
        deleted = bool(changes) and all(each.after is None for each in changes)
        text = words.capital(self.by_client or "a client")
        text += f", which is not a member, {'deleted' if deleted else 'set'}"
        text += f" {words.count(self.offsets, 'committed offset')} of the group"
        # Forward on the whole, and back in between.
        is_mixed = bool(self.times and self._backs) and any(each.is_forward for each in changes[:MAX_NAMED])
        done = [changed_offset(each, says_forward=not is_mixed) for each in changes[:MAX_NAMED]]
        if done and self.offsets > len(done):
            done.append(f"{self.offsets - len(done)} more")
        text += f" in {self.times} requests" if self.times else ""
        text += f": {', '.join(done)}" if done else ""
        text += f"; they went back {words.times(self._backs)} in between" if is_mixed else ""
        return Told(f"{text}.", self._remedy())

    def is_late(self, gone: Departure) -> bool:
        """Whether these are probably the last commits of a program whose member has gone: its client id and host are
        the same, and it has gone lately."""
        is_same = (gone.member.client_id, gone.member.host) == (self.client_id, self.host)
        return is_same and self.client_id is not None and 0 <= self.time - gone.time <= _LATE_MS

    def _late(self, gone: Departure) -> Told:
        where = words.partitions(by_topic(each[:2] for each in self.changes or ()))
        text = f"{words.capital(self.by_client or 'a client')}, which was a member until {words.moment(gone.time)}, has"
        text += f" committed offsets of the group after that{f' ({where})' if where else ''}: the group had no members,"
        return Told(f"{text} and accepted them.", "Nothing about these commits: look why it was no member any more.")

    def _without_membership(self) -> Told:
        where = words.partitions(by_topic(each[:2] for each in self.changes or ()))
        if self.transactional_id is not None:
            return Told(
                f"{words.capital(self.by_client or 'a client')} commits offsets of the group in transactions of"
                f" {self.transactional_id} ({where}), though the group has no member: it probably reads as a member of"
                " another group, or with assign().",
                "If its program reads as a member of another group: let it pass the id or the metadata of that one when"
                " it adds offsets to a transaction (sendOffsetsToTransaction). If it reads with assign(): nothing.",
            )
        text = f"{words.capital(self.by_client or 'a client')}, which is not a member, has committed offsets of the"
        text += f" group more than once on one connection ({where}): it probably reads with assign(), and needs no"
        return Told(
            f"{text} membership.",
            "Nothing, if it is the only program with this group.id. Otherwise give it a group.id of its own: it moves"
            " the offsets at which members start.",
        )

    def _remedy(self) -> str | None:
        """How to take back what it did; None if no member reads other records because of it."""
        back = [
            (Position(topic, partition, before), after)
            for topic, partition, before, after in self.changes or ()
            if before is not None and before != after
        ]
        if not back:
            return None
        (_, _, before), after = back[0]
        if after is None:
            start = "Members that get these partitions start at their auto.offset.reset."
        elif after < before:
            start = "Members that get these partitions read again what they have read."
        else:
            start = "Members that get these partitions do not read what is in between."
        how = f"{start} If this was not meant: stop the members, and set the offsets back, with"
        how += f" `{reset_offsets(self.group, [position for position, _ in back])}`."
        if self.offsets > len(self.changes or ()):
            how += f" It has the first {len(back)}: the offsets before of the others were not recorded."
        return how

    def line(self, reason: str) -> Line:
        pairs = {"client_id": self.client_id, "host": self.host, "principal": self.principal}
        first = ", ".join(map(changed_offset, (self.changes or ())[:MAX_NAMED]))
        return self._line("info", "offsets altered by a client that is not a member", offsets=first, **pairs)


def reset_offsets(group: str, positions: Sequence[Position]) -> str:
    """The command that sets the offsets of a group, which has no members; the same offset of partitions at once."""
    command = f"barnabas groups reset-offsets {quote(group)}"
    if len({each.offset for each in positions}) > 1:
        lines = "".join(f"{topic},{partition},{offset}\\n" for topic, partition, offset in positions)
        return f"printf '{lines}' | {command} --from-file - --execute"
    topics = by_topic(each[:2] for each in positions)
    places = " ".join(f"-t {topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items())
    return f"{command} {places} --to-offset {positions[0].offset} --execute"


def changed_offset(change: OffsetChange, *, says_forward: bool = True) -> str:
    """The change of a committed offset in words."""
    name, before, after = f"{change.topic}-{change.partition}", change.before, change.after
    if after is None:
        return f"{name}, which was {before}"
    if before is None:
        return f"{name} to {after}, where there was none"
    if before == after:
        return f"{name} to {after}, as before"
    way = "back " if change.is_back else "forward " if says_forward else ""
    return f"{name} {way}from {before} to {after}"


_OWN_OFFSET: Final = (
    "Commit the offset of each partition as that of its own: TopicPartition(record.topic, record.partition)."
)


@event("commits_went_back")
class CommitsWentBack(MemberEvent):
    """A member committed offsets below those that were committed before; recorded once in 10 s of a member."""

    changes: tuple[OffsetChange, ...] | None = None
    #: Whether the Fetches of these partitions have only gone on since such a commit before; if so: the partitions that
    #: have the same offset in this commit, and those that the member reads and never commits.
    reads_on: bool | None = None
    same_offset: ByTopic | None = None
    uncommitted: ByTopic | None = None
    #: Whether the member had to go back: what it was to read next was not in the log.
    was_reset: bool | None = _not_recorded()
    #: Whether the member had gone back to the beginning before.
    was_rewound: bool | None = _not_recorded()
    #: The other member that owned one of the partitions then.
    owner: Member | None = _not_recorded()

    def with_later(self, later: "CommitsWentBack") -> Self:
        """This event, and a later one of the same member, as one: the furthest way back of each partition."""
        changes = {(each.topic, each.partition): each for each in self.changes or ()}
        for each in later.changes or ():
            known = changes.setdefault((each.topic, each.partition), each)
            if (each.after or 0) < (known.after or 0):
                changes[each.topic, each.partition] = known._replace(after=each.after)
        return self.changed(
            changes=tuple(changes.values()),
            same_offset=self.same_offset or later.same_offset,
            uncommitted=self.uncommitted or later.uncommitted,
        )

    def sentence(self) -> Told:
        changes = self.changes or ()
        done = [changed_offset(each) for each in changes[:MAX_NAMED]]
        if len(changes) > len(done):
            done.append(f"{len(changes) - len(done)} more")
        text = f"{self.name} committed {', '.join(done)}" if done else f"{self.name} committed earlier offsets"
        if self.is_of_another:
            return self._of_another(text)
        if self.was_reset:
            return Told(f"{text}: its position had been reset.")
        if self.was_rewound:
            return Told(f"{text}: it had gone back before (a seek).")
        if self.owner is not None:
            which = "that partition" if len(changes) == 1 else "one of these partitions"
            return Told(
                f"{text}, while {self.owner.name} owned {which}.",
                "It commits positions of partitions that it has lost: forget them when they are revoked, in the"
                " rebalance listener, and commit only what is assigned.",
            )
        order = (
            "commit offsets in their order. An asynchronous commit that is sent again after an error may be older than"
            f" the newest one. {_OWN_OFFSET}"
        )
        if self.reads_on:
            text += ", and has not gone back: either its commits came out of order, or it commits the offset of another"
            return Told(f"{text} partition.", words.capital(order))
        return Told(
            f"{text}: either it went back (seek), or its commits came out of order, or it commits the offset of another"
            " partition.",
            "If it went back, it reads again what it has read: look whether it should, for example at each assignment."
            f" If not: {order}",
        )

    @property
    def is_of_another(self) -> bool:
        """Whether it probably commits offsets of other partitions: its Fetches have only gone on."""
        return bool(self.same_offset or self.uncommitted)

    def _of_another(self, text: str) -> Told:
        """The explanation if it probably commits offsets of other partitions."""
        text += ", and has not gone back: it probably commits "
        if self.same_offset:
            text += f"one offset for several partitions ({words.partitions(self.same_offset)})."
        else:
            which = words.partitions(self.uncommitted or {})
            text += f"offsets of another partition there: it reads {which}, of which nothing is committed."
        return Told(
            text,
            f"{_OWN_OFFSET} Until then members that get these partitions skip records, or read some again.",
        )

    def line(self, reason: str) -> Line:
        offsets = ", ".join(map(changed_offset, (self.changes or ())[:MAX_NAMED]))
        return self._line("info", "a member committed earlier offsets", member=self.name, offsets=offsets)


@event("commits_beyond_end")
class CommitsBeyondEnd(MemberEvent):
    """A client committed offsets after the ends of their logs; recorded once in 10 s of a connection."""

    beyond: tuple[BeyondEnd, ...]
    principal: str | None = None

    def flaw(self) -> str | None:
        return None if self.beyond else "beyond"

    @property
    def committer(self) -> str:
        """The client: with its member id, or with its user if it is not a member."""
        if self.member.member_id:
            return f"{self.name}, member {self.member.member_id},"
        user = f", {self.principal}" if self.principal else ""
        return f"{self.name}{user}, which is not a member,"

    def with_later(self, later: "CommitsBeyondEnd") -> Self:
        """This event, and a later one of the same client, as one: the newest offset of each partition."""
        places = {each[:2]: each for each in (*self.beyond, *later.beyond)}
        return self.changed(beyond=tuple(places.values()))

    def sentence(self) -> Told:
        done = [
            f"{each.topic}-{each.partition} at {each.offset:,}, and its log ends at {each.end:,}"
            for each in self.beyond
        ]
        if len(done) > MAX_NAMED:
            done[MAX_NAMED:] = [f"{len(done) - MAX_NAMED} more"]
        such = "there is no such record" if len(self.beyond) == 1 else "there are no such records"
        first = self.beyond[0]
        return Told(
            f"{self.committer} committed {'; '.join(done)}: {such}.",
            "Of each partition the last offset that was read plus one is right: look how the program computes the"
            " offset, and whether it means another partition, topic or cluster. A member that starts there starts at"
            " its auto.offset.reset. To set it anew: stop the members, and `barnabas groups reset-offsets"
            f" {self.group} -t {first.topic}:{first.partition} --to-offset {first.end} --execute`.",
        )

    def line(self, reason: str) -> Line:
        first = ", ".join(f"{each.topic}-{each.partition} {each.offset}" for each in self.beyond[:MAX_NAMED])
        return self._line(
            "warning", "a client committed offsets after the ends of their logs", client=self.name, offsets=first
        )


@event("commits_often")
class CommitsOften(MemberEvent):
    """A member commits nearly each record by itself, many times a second; again when it has lasted twice as long."""

    commits: int
    records: int
    took_ms: float
    transactional_id: str | None = None

    def flaw(self) -> str | None:
        return None if self.took_ms > 0 and self.commits > 0 else "commits"

    def sentence(self) -> Told:
        text = f"{self.name} commits nearly each record by itself: {words.count(self.commits, 'commit')} for"
        text += f" {words.count(self.records, 'record')} within {words.ms(self.took_ms)}"
        text += f" ({self.commits / self.took_ms * 1000:,.0f} a second)."
        if self.transactional_id is not None:
            return Told(text, "Put more records into each transaction, for example those of one poll.")
        return Told(
            text,
            "Commit by time or by number: once in some seconds, or after each some hundred records"
            " (enable.auto.commit does so every auto.commit.interval.ms, 5 s by default). If it waits for each commit,"
            " that takes a round trip to the broker for each record. The records since the last commit are read again"
            " after a crash.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "commits": self.commits, "records": self.records}
        return self._line("info", "a member commits each record", **pairs, within=seconds(self.took_ms / 1000))


@event("commits_last_record")
class CommitsLastRecord(MemberEvent):
    """A member commits all but the last record it has got, over and over; again when it has lasted twice as long."""

    partitions: ByTopic
    times: int
    took_ms: float

    def flaw(self) -> str | None:
        return None if self.took_ms > 0 and self.partitions else "partitions"

    def sentence(self) -> Told:
        text = f"{self.name} probably commits the offset of the last record that it has read in place of the next one:"
        text += f" {words.times(self.times)} within {words.ms(self.took_ms)} it had fetched all records of"
        text += f" {words.partitions(self.partitions)}, and then committed all but the last one, and not once all of"
        text += " them. Or it commits a record only when the next one has come."
        return Told(
            text,
            "Commit the offset of the last record plus one, or call commit() without offsets. Until then the last"
            " record is read again after each restart, and the lag is never 0.",
        )

    def line(self, reason: str) -> Line:
        text = "a member commits the offset of the last record in place of the next one"
        return self._line("info", text, member=self.name, times=self.times, within=seconds(self.took_ms / 1000))


@event("member_rewound")
class MemberRewound(MemberEvent):
    """A member fetched the first records of a partition, or those of a time, though a later offset is committed."""

    topic: str
    partition: int
    log_start: int
    offset: int
    position: int | None = None
    #: Whether it began there when it had got the partition, at an offset that it had not looked up.
    is_kept: bool | None = None
    #: The other partitions of which the same is said, each with its newest event.
    more: "tuple[MemberRewound, ...] | None" = _not_recorded()
    #: After how many rebalances it did so.
    rebalances: int | None = _not_recorded()

    @property
    def start(self) -> int:
        """The offset from which it fetched."""
        return self.log_start if self.position is None else self.position

    def with_later(self, later: "MemberRewound") -> "MemberRewound":
        """This event, and a later one of the same member, as one: the newest of each partition."""
        places = {(each.topic, each.partition): each for each in (self.changed(more=None), *(self.more or ()))}
        places[later.topic, later.partition] = later.changed(rebalances=None)
        first, *more = places.values()
        return first.changed(time=self.time, more=tuple(more) or None, rebalances=later.rebalances)

    def sentence(self) -> Told:
        places = [self, *(self.more or ())]
        named = [
            f"{each.topic}-{each.partition} ({each.start:,}, and {each.offset:,} was committed)"
            for each in places[:MAX_NAMED]
        ]
        if len(places) > len(named):
            named.append(words.count(len(places) - len(named), "more partition"))
        if self.is_kept:
            return self._began(named, sum(each.offset - each.start for each in places))
        to_start = all(each.position is None for each in places)
        where = "the beginning" if to_start else "an earlier time"
        text = f"{self.name} went back to {where} of {', '.join(named)}"
        remedy = (
            "Without a seek a member goes on from the committed offsets: it has no need to seek in its listener, or at"
            f" its start, which makes it read {'everything' if to_start else 'records'} again after each rebalance. To"
            " read"
        )
        remedy += (
            " all at each start on purpose, give it a group.id of its own."
            if to_start
            else (" from a time on at each start on purpose, give it a group.id of its own.")
        )
        if not self.rebalances:
            return Told(f"{text}: it fetched from there (a seek).", remedy)
        if self.rebalances == 1:
            return Told(
                f"{text} after a rebalance: it probably seeks {'to the beginning' if to_start else 'there'} when it"
                " gets partitions, in its rebalance listener or at its start.",
                remedy,
            )
        if to_start:
            return Told(
                f"{text} after each of {self.rebalances} rebalances: its rebalance listener probably seeks to the"
                " beginning at each assignment.",
                remedy,
            )
        return Told(
            f"{text} after each of {self.rebalances} rebalances: it looked up the offset of a time, and fetched from"
            " there: its rebalance listener, or its start, probably seeks there at each assignment.",
            remedy,
        )

    def _began(self, named: Sequence[str], records: int) -> Told:
        text = f"{self.name} began before the committed offsets of {', '.join(named)}"
        if self.rebalances:
            many = self.rebalances > 1
            text += f" after each of {self.rebalances} rebalances" if many else " after a rebalance"
        last = ", the last time," if (self.rebalances or 0) > 1 else ""
        return Told(
            f"{text}, so that{last} it reads {words.count(records, 'record')} again: it probably seeks when it gets"
            " partitions, to offsets that it keeps elsewhere.",
            "Without a seek a member goes on at the committed offsets. If it keeps offsets elsewhere, such as in a"
            " database: save them with the results of the records, as one change, or do not seek. If the results end"
            " there as well, it is right.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "partition": f"{self.topic}-{self.partition}"}
        return self._line("info", "a member went back", **pairs, offset=self.start, committed=self.offset)


@event("member_skipped")
class MemberSkipped(MemberEvent):
    """A member passed over records: it fetched from the end of a partition, or from after the committed offset."""

    topic: str
    partition: int
    log_start: int
    offset: int | None = None
    position: int
    #: If it had read the partition before: the end that its Fetches had reached, and how often it jumped, over how many
    #: records.
    fetched: int | None = None
    times: int | None = None
    records: int | None = None
    #: If the group had no committed offset, and has read the partition before: the time since then. `log_start` is the
    #: first record that has come since.
    away_ms: float | None = None
    #: Whether it had not looked up the offset. `log_start` is then the first record that came while the group had no
    #: members, and `records` are those before `position` that did.
    is_kept: bool | None = None
    #: The same of other partitions.
    more: "tuple[MemberSkipped, ...] | None" = _not_recorded()

    def with_later(self, later: "MemberSkipped") -> "MemberSkipped":
        """This event, and a later one of the same member, as one: the newest of each partition."""
        if self.fetched is not None:
            times, records = (self.times or 1) + (later.times or 1), (self.records or 0) + (later.records or 0)
            return later.changed(time=self.time, times=times, records=records)
        places = {(each.topic, each.partition): each for each in (self.changed(more=None), *(self.more or ()), later)}
        first, *more = places.values()
        return first.changed(time=self.time, more=tuple(more) or None)

    @property
    def first(self) -> int:
        """The first offset that it does not read."""
        return self.log_start if self.offset is None else max(self.offset, self.log_start)

    def _jumped(self) -> Told:
        last = "" if self.times == 1 else "the last time "
        return Told(
            f"{self.name} jumped to the end of a partition that it was reading, {words.times(self.times or 1)}: over"
            f" {words.count(self.records or 0, 'record')} or more, which it has not fetched ({last}{self.fetched} to"
            f" {self.position - 1} of {self.topic}-{self.partition}). It probably seeks to the end when it is behind.",
            "If each record counts: do not seek to the end (seek_to_end), and let it do more: less work for each"
            " record, more records at a time, or more members. If old records are worthless: nothing.",
        )

    def _began(self) -> Told:
        places = sorted([self, *(self.more or ())], key=lambda each: (each.topic, each.partition))
        named = [
            f"{each.topic}-{each.partition} ({each.position:,}, and {each.offset or 0:,} was committed)"
            for each in places[:MAX_NAMED]
        ]
        if len(places) > len(named):
            named.append(words.count(len(places) - len(named), "more partition"))
        records = sum(each.records or 0 for each in places)
        back = reset_offsets(self.group, [Position(each.topic, each.partition, each.offset or 0) for each in places])
        return Told(
            f"{self.name} began after the committed offsets of {', '.join(named)}, so that the group does not read"
            f" {words.count(records, 'record')}, which came while it had no members: it probably seeks when it gets"
            " partitions, to offsets that it keeps elsewhere.",
            "A member goes on at the committed offsets by itself: look whether the offsets that it keeps are those of"
            " this group and this cluster, or do not seek. To read the records: stop the members, then"
            f" `{back}`; and start them without the seek.",
        )

    def sentence(self) -> Told:
        if self.fetched is not None:
            return self._jumped()
        if self.is_kept:
            return self._began()
        places = [self, *(self.more or ())]
        named = [
            f"{each.topic}-{each.partition} at {each.position}, so that it probably does not read {each.first} to"
            f" {each.position - 1}"
            for each in places[:MAX_NAMED]
        ]
        if len(places) > len(named):
            named.append(words.count(len(places) - len(named), "more partition"))
        one = len(places) == 1
        text = f"{self.name} asked for the {'end' if one else 'ends'} of {'a partition' if one else 'partitions'} and"
        text += f" fetched from there: {'; '.join(named)}."
        back = reset_offsets(self.group, [Position(each.topic, each.partition, each.first) for each in places])
        how = f" To read the records: stop the members, then `{back}`."
        if self.away_ms is not None:
            away = max(each.away_ms or 0 for each in places)
            return Told(
                f"{text} The group has read {'the partition' if one else 'the partitions'} before, until"
                f" {words.ms(away)} earlier, and has committed nothing there: auto.offset.reset=latest probably"
                " applied to records that have come since.",
                "A partition has no committed offset before its first record is consumed, so that latest skips what"
                " comes while no member reads it: set auto.offset.reset=earliest, which applies only where nothing is"
                f" committed; or commit the positions of all partitions before the program ends.{how}",
            )
        if self.offset is None:
            return Told(
                f"{text} {'The partition was' if one else 'The partitions were'} added to the topic, and the group had"
                " no committed offset there: auto.offset.reset=latest probably applied.",
                "Records are written to a new partition before members hear of it: set auto.offset.reset=earliest. It"
                f" applies only where nothing is committed.{how}",
            )
        committed = f"The committed offset was {self.offset}" if one else "The committed offsets were lower"
        return Told(
            f"{text} {committed}, and it had just got {'it' if one else 'them'}: it probably seeks to the end when it"
            " gets partitions.",
            "A member goes on at its committed offsets by itself. If it is to read all records, do not seek to the end"
            f" in its rebalance listener or at its start.{how}",
        )

    def line(self, reason: str) -> Line:
        pairs = {"partition": f"{self.topic}-{self.partition}", "offset": self.offset, "position": self.position}
        return self._line("info", "a member begins at the end of a partition", member=self.name, **pairs)


#: The reset of a member that asks for the offset of a time.
BY_TIME: Final = "by_duration"


@event("fetch_out_of_range")
class FetchOutOfRange(MemberEvent):
    """A member fetched an offset that is not in the log; recorded again when it goes on, and when it does not."""

    topic: str
    partition: int
    offset: int
    log_start: int
    log_end: int
    position: int | None = None
    reset: str | None = None
    #: The setting because of which the records before the log were deleted, their newest timestamp in ms since 1970,
    #: and retention.ms.
    deleted_by: str | None = None
    newest_timestamp: int | None = None
    retention_ms: int | None = None
    #: For how many ms it has not gone on anywhere; None if it has, or if that is not known.
    left_ms: float | None = None
    #: The other partitions of the topic of which the same is said, each with its newest event.
    more: "tuple[FetchOutOfRange, ...] | None" = _not_recorded()
    #: How often this has happened in the partition, and the records that were deleted the times before.
    losses: int | None = _not_recorded()
    deleted_before: int | None = _not_recorded()
    #: Whether it is a member no more.
    is_gone: bool | None = _not_recorded()

    @property
    def goes_on(self) -> bool:
        """Whether it has asked where to go on, or fetched another offset since."""
        return self.position is not None or self.reset is not None

    @property
    def deleted(self) -> int:
        """Records of the partition that were deleted before they were read."""
        return max(self.log_start - self.offset, 0) + (self.deleted_before or 0)

    def with_later(self, later: "FetchOutOfRange") -> "FetchOutOfRange":
        """This event, and a later one of the same member and topic, as one: the newest of each partition."""
        places = {each.partition: each for each in (self.changed(more=None), *(self.more or ()))}
        known = places.get(later.partition)
        if known is not None and known.offset == later.offset:
            later = later.changed(losses=known.losses, deleted_before=known.deleted_before)
        elif known is not None:
            later = later.changed(losses=(known.losses or 1) + 1, deleted_before=known.deleted)
        places[later.partition] = later
        first, *more = places.values()
        return first.changed(time=self.time, more=tuple(more) or None)

    def sentence(self) -> Told:
        places = [self, *(self.more or ())]
        named = [f"{each.topic}-{each.partition} {each._where()}" for each in places[:MAX_NAMED]]
        if len(places) > len(named):
            named.append(words.count(len(places) - len(named), "more partition"))
        text = f"{self.name} fetched offsets that are not in the log: {'; '.join(named)}."
        if all(each.left_ms is not None for each in places):
            return self._goes_nowhere(text, places)
        latest = any(each.reset == "latest" for each in places)
        skips = " auto.offset.reset=latest skips what is in the log; earliest reads it." if latest else ""
        if all(each.offset < each.log_start for each in places):
            why, remedy = self._why_deleted()
            return Told(f"{text}{why}", f"{remedy}{skips}")
        return Told(
            text,
            "Look whether a member commits more than it has read (of each partition the last offset plus one), whether"
            " the topic was created again, whether its end was lost, and whether a program has set the"
            f" offsets.{skips}",
        )

    def _goes_nowhere(self, text: str, places: "Sequence[FetchOutOfRange]") -> Told:
        """The sentence of a member that does not go on at another offset."""
        why, remedy = self._why_deleted()
        text += why
        if self.is_gone:
            text += " It asked neither for the beginning nor for the end before it was gone: its auto.offset.reset is"
            text += " probably none (error with librdkafka). A program that starts with that gets the same error, and"
            text += " reads nothing there."
        else:
            text += " It has asked neither for the beginning nor for the end since then,"
            text += f" for {words.ms(self.left_ms or 0)}:"
            text += (
                " its auto.offset.reset is probably none (error with librdkafka), and its program polls on after the"
            )
            text += " error. It reads nothing there."
        numbers = ",".join(str(each.partition) for each in sorted(places, key=lambda each: each.partition))
        command = f"barnabas groups reset-offsets {quote(self.group)} -t {quote(self.topic)}:{numbers}"
        setting = "retention.bytes" if self.deleted_by == "retention.bytes" else "retention.ms"
        keep = f"A larger {setting} of {self.topic} keeps the records for longer stops."
        is_unit = self.deleted_by == "retention.ms" and (self.newest_timestamp or 0) < _NO_TIME_MS
        cure = "" if self.is_gone else "Stop the members, then "
        first = f"{cure}`{command} --to-earliest --execute` (--to-latest skips what is in the log), or start"
        first = first if cure else f"Before a start: {first}"
        return Told(
            text,
            f"{first} the program with auto.offset.reset=earliest or latest. Let the program end at this error"
            f" (OFFSET_OUT_OF_RANGE, _AUTO_OFFSET_RESET with librdkafka). {remedy if is_unit else keep}",
        )

    def _why_deleted(self) -> Told:
        """Why the records were deleted, after the sentence that says so, and the remedy."""
        newest = words.moment(self.newest_timestamp or 0)
        if self.deleted_by == "retention.ms" and (self.newest_timestamp or 0) < _NO_TIME_MS:
            return Told(
                f" These records were deleted because of their timestamps: the newest one is {newest}, older than"
                f" retention.ms ({words.ms(self.retention_ms or 0)}), so that the producer probably writes another"
                " unit than milliseconds since 1970.",
                f"Let the producer of {self.topic} write milliseconds, or set message.timestamp.type=LogAppendTime of"
                " the topic, so that the time of the broker counts. A larger retention.ms does not help.",
            )
        if self.deleted_by == "retention.ms":
            return Told(
                f" These records were deleted because they were older than retention.ms"
                f" ({words.ms(self.retention_ms or 0)}): their newest timestamp is {newest}.",
                "If they were written at about that time, the group was too far behind: raise retention.ms, or let it"
                " read sooner. Otherwise correct the timestamps of the producer, or set"
                " message.timestamp.type=LogAppendTime of the topic.",
            )
        if self.deleted_by == "retention.bytes":
            return Told(
                " These records were deleted because the partition was larger than retention.bytes.",
                f"Raise retention.bytes of {self.topic}, or let the group read sooner: it was too far behind.",
            )
        return Told("", WHY_DELETED)

    def _where(self) -> str:
        if self.offset < self.log_start:
            text = f"at {self.offset}, and the log begins at {self.log_start}"
            if self.losses:
                text += f", the last of {words.count(self.losses, 'time')}: {words.count(self.deleted, 'record')} were"
                text += " deleted before it read them"
        else:
            text = f"at {self.offset}, and the log ends at {self.log_end}"
        if self.position is None:
            return text
        if self.reset is None:
            return f"{text}; it went on at {self.position}"
        asked = {"latest": "end", BY_TIME: "offset of a time"}.get(self.reset, "beginning")
        text += f"; it asked for the {asked}, {self.position}, and probably goes on there"
        first = max(self.offset, self.log_start)
        if self.reset == "latest" and first < self.position:
            text += f", so that it does not read {first} to {self.position - 1}"
        return text

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "partition": f"{self.topic}-{self.partition}", "offset": self.offset}
        log = {"log_start": self.log_start, "log_end": self.log_end, "reset": self.reset}
        return self._line("warning", "a member fetches an offset that is not in the log", **pairs, **log)


#: Errors of commits that do not pass by themselves.
_LASTING: Final = (
    "OFFSET_METADATA_TOO_LARGE",
    "INVALID_COMMIT_OFFSET_SIZE",
    "TOPIC_AUTHORIZATION_FAILED",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
)


#: Characters of a transactional id in a sentence.
_MOST_CHARACTERS: Final = 200
#: Errors of commits for an assignment that is over.
_OF_BEFORE: Final = ("ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH")


@event("commits_refused")
class CommitsRefused(MemberEvent):
    """Several commits of a client were refused one after the other."""

    error: str
    commits: int
    sent: int
    #: If they came in transactions: their id, and whether the client was a member of the group's generation.
    transactional_id: str | None = None
    is_member: bool | None = None
    #: The number in the newest event, if there are several.
    newest: int | None = _not_recorded()
    #: What a client that is not a member committed while the group had no members.
    accepted: tuple[OffsetChange, ...] | None = _not_recorded()

    @property
    def is_outsider(self) -> bool:
        """Whether the client is not a member, and never was one on this connection."""
        return self.error == "UNKNOWN_MEMBER_ID" and not self.member.member_id

    @property
    def is_lasting(self) -> bool:
        """Whether the same commits will be refused until something is changed; otherwise a new assignment may do."""
        return self.error in _LASTING or self.is_outdated

    @property
    def is_outdated(self) -> bool:
        """Whether a member commits in transactions for a generation before its own: its library knows the present one,
        and the program passes it what it had from that library before."""
        return self.error in _OF_BEFORE and bool(self.is_member) and self.sent < self.generation

    def with_later(self, later: "CommitsRefused | OffsetsAltered") -> Self:
        """This event, and a later one of the same client, as one."""
        if isinstance(later, OffsetsAltered):
            changes = (*(self.accepted or ()), *(later.changes or ()))
            return self.changed(accepted=changes[:_MOST_ACCEPTED])
        before = self.newest or self.commits
        more = later.commits - before if later.commits > before else later.commits
        return self.changed(commits=self.commits + more, newest=later.commits)

    def sentence(self) -> Told:
        text = f"{words.count(self.commits, 'commit')} of {self.name} in a row {words.were(self.commits)} refused"
        if self.error in _OF_BEFORE:
            what = "generation" if self.error == "ILLEGAL_GENERATION" else "member epoch"
            if self.is_outdated:
                shown = (self.transactional_id or "")[:_MOST_CHARACTERS]
                return Told(
                    f"{text} ({self.error}), in transactions of {shown}: the last one was for {what} {self.sent},"
                    f" though it is a member of {what} {self.generation}: its program probably keeps what"
                    " consumer_group_metadata() (groupMetadata()) has given it before a rebalance.",
                    "Take it anew before each send_offsets_to_transaction() (sendOffsetsToTransaction). Until then none"
                    " of its transactions is committed, and their records are read again. A restart helps until the"
                    " next rebalance.",
                )
            return Told(
                f"{text} ({self.error}): the last one was for {what} {self.sent}, and the group had {self.generation}.",
                "It commits for an assignment that is over, so that others read its records again: commit before"
                " partitions are revoked, in the rebalance listener, and from the program's only consumer.",
            )
        if self.is_outsider:
            return self._of_outsider(text)
        if self.error in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            return Told(
                f"{text} ({self.error}): it is not a member of the group any more, and does not know it.",
                "Others read its records again. See above why it is gone; it joins again at its next poll.",
            )
        if self.error == "OFFSET_METADATA_TOO_LARGE":
            return Told(
                f"{text} ({self.error}): the metadata that it commits with an offset is longer than the broker allows"
                " (offset.metadata.max.bytes, 4,096 by default).",
                "Commit shorter metadata and keep larger state elsewhere, or raise offset.metadata.max.bytes of the"
                " brokers. Until then its records are read again after a restart or a rebalance.",
            )
        return Told(f"{text} ({self.error}).")

    def _of_outsider(self, text: str) -> Told:
        remedy = "It probably reads with assign(), or only commits: give it a group.id of its own."
        if self.newest is not None:
            text = f"At least {words.count(self.commits, 'commit')} of {self.name} were refused"
        text += f" ({self.error}): it is not a member of the group, and the group has members"
        if not self.accepted:
            return Told(
                f"{text}.",
                f"{remedy} Whenever the group has no member, such commits are accepted, and members skip or repeat"
                " records because of them.",
            )
        moved = sorted(self.accepted, key=lambda each: (each.after or 0) >= (each.before or 0))
        done = [changed_offset(each) for each in moved[:MAX_NAMED]]
        if len(moved) > len(done):
            done.append(f"{len(moved) - len(done)} more")
        return Told(
            f"{text}; when it had none, they were accepted: {', '.join(done)}.",
            f"{remedy} Members that start at these offsets skip or repeat records.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "error": self.error, "commits": self.commits}
        return self._line("warning", "commits are refused again and again", **pairs)


#: Codecs for which clients in Python need another package.
_PACKAGES: Final = ("snappy", "lz4", "zstd")
#: A member that fails at a record and reads it again at once does so sooner.
WAITS_MS: Final = 5_000
#: A limit for a response is advised with so many bytes more, and as a multiple of them.
_MARGIN_BYTES: Final = 10_000
#: Records are few beside others up to this part of them.
_FEW: Final = 0.1


def new_codec(codec: str, before: Sequence[str], at: Sequence[Position] | None) -> str:
    """A clause about a batch with another codec than those before it, at an offset or soon after it, which a client
    does not get past."""
    known = " or ".join(
        "not compressed" if each == "none" else f"compressed with {each}" for each in before[:MAX_NAMED]
    )
    where = "there" if not at else f"of {at[0].topic}-{at[0].partition} at offset {at[0].offset}, soon after that,"
    text = f"the batch {where} is compressed with {codec}, and those before are {known}: its client probably lacks"
    return f"{text} this codec"


def install_codec(codec: str, software: str | None, member: Member) -> str:
    """Advice about a codec that a client probably lacks."""
    name, how = software or member.client_id or "", ""
    if "rdkafka" in name:
        how = ", or a build of librdkafka that has it"
    elif codec in _PACKAGES:
        library = next((each for each in ("kafka-python", "aiokafka") if each in name), None)
        if library is not None:
            how = f" (`pip install '{library}[{codec}]'`)"
        elif software is None:
            how = f" (of aiokafka with `pip install 'aiokafka[{codec}]'`, for instance)"
    return (
        f"Look in its log for an error about {codec}: install this codec for its client{how}, or set another"
        " compression.type on the producers; what is written stays as it is."
    )


@fields
class ReadAgain(MemberEvent):
    """An event of a member that may get the same records again and again."""

    offset: int | None = None
    deliveries: int | None = None
    every_ms: float | None = None
    #: How often it connected again after such a delivery, of so many bytes, and how many it asks for; not recorded if
    #: it did so only now and then.
    reconnects: int | None = None
    gives_up_ms: float | None = None
    response_bytes: int | None = None
    max_bytes: int | None = None
    codec: str | None = None
    codecs_before: tuple[str, ...] | None = None
    codec_at: tuple[Position, ...] | None = None
    #: The id in whose transactions it commits, and how they were aborted by their timeout.
    transactional_id: str | None = None
    aborts: int | None = None
    open_ms: float | None = None
    transaction_timeout_ms: float | None = None
    is_own: bool | None = None

    @property
    def may_wait(self) -> bool:
        """Whether so much time passes before it gets the same records again that it may wait on purpose."""
        return (self.every_ms or 0) >= WAITS_MS and not self.codecs_before and self.reconnects is None

    def _aborted(self) -> Told:
        """Why nothing is committed if its transactions are aborted by their timeout, without a full stop."""
        shown = (self.transactional_id or "")[:_MOST_CHARACTERS]
        probably = "" if self.is_own else " probably"
        timeout, longest = words.ms(self.transaction_timeout_ms or 0), words.ms(self.open_ms or 0)
        text = f"its transactions ({shown}) were{probably} aborted {words.times(self.aborts or 0)} since then, because"
        text += f" their timeout of {timeout} was over (one was open for {longest}), so that it commits nothing and"
        text += " gets the same records again"
        if not self.is_own:
            text += ": these transactions come from the same address, and each time that it read again, one had been"
            text += " aborted just before"
        return Told(
            text,
            f"Set transaction.timeout.ms of its producer above the time that a batch takes, now {timeout}, or put fewer"
            " records into a transaction (max.poll.records, smaller batches). `barnabas transactions explain"
            f" {quote(self.transactional_id or '')}` has each abort.",
        )

    def _again(self, places: ByTopic) -> Told:
        """How often it got the same records of partitions, and why, without a full stop."""
        if self.reconnects is not None:
            return self._cut_off(places)
        text = f"It got the records from offset {self.offset} on {words.times(self.deliveries or 0)}"
        (topic, (partition, *others)), *more = places.items()
        skip = skip_record(self.group, topic, partition, self.offset or 0)
        if self.may_wait:
            where = f" of {topic}-{partition}" if others or more else ""
            text = f"It got the same records{where} {words.times(self.deliveries or 0)}, one time about"
            text += f" {words.ms(self.every_ms or 0)} after the other: it waits before it works on them (a delay or a"
            text += " back-off), or works on them for so long and fails"
            look = "Look at its log."
            if self.transactional_id is not None:
                # Another broker may coordinate them.
                text += f", or its transactions ({self.transactional_id[:_MOST_CHARACTERS]}) are aborted"
                look += f" `barnabas transactions explain {quote(self.transactional_id)}` has those that were aborted."
            rest = "look where it stands" if others or more else f"{skip[:1].lower()}{skip[1:]}"
            return Told(
                text,
                f"{look} If it is to wait until a record is old enough, or until what it calls answers: it needs no"
                f" change, and its lag counts the records that wait. If it fails each time: {rest}",
            )
        fails = "it probably fails at a record there each time, and reads it again (a poison record)"
        if self.codec is None:
            return Told(f"{text}: {fails}", skip)
        if not self.codecs_before:
            text += f": {fails}, or its client cannot decompress the batch ({self.codec})"
            install = install_codec(self.codec, self.library, self.member)
            return Told(text, f"{install} Without such an error: {skip[:1].lower()}{skip[1:]}")
        return self._lacks_codec(text)

    @property
    def library(self) -> str | None:
        """The name and the version of its client library, if they are recorded."""
        return None

    def _lacks_codec(self, text: str) -> Told:
        """The sentence about a member that does not get past a batch with a new codec, after what is seen of it."""
        lacks = new_codec(self.codec or "", self.codecs_before or (), self.codec_at)
        remedy = install_codec(self.codec or "", self.library, self.member)
        return Told(f"{text}. {words.capital(lacks)}", f"{remedy} It does not help to skip one record.")

    def _cut_off(self, places: ByTopic) -> Told:
        """Why its connection ends after each response with the records of a partition, without a full stop."""
        size, most = self.response_bytes or 0, self.max_bytes or 0
        topic, (partition, *_) = next(iter(places.items()))
        text = f"a Fetch response with {size:,} bytes of {topic}-{partition} from offset {self.offset} on"
        often = f"{words.times(self.reconnects or 0)} since then"
        if size > most:
            enough = -(-(size + _MARGIN_BYTES) // _MARGIN_BYTES) * _MARGIN_BYTES
            return Told(
                f"It closes its connection each time after {text} (it asks for at most {most:,}, and a batch is sent"
                f" whole), {often}: its receive.message.max.bytes is probably too small",
                f"Set receive.message.max.bytes of {self.name} to {enough:,} or more: its log has the size that it"
                " refuses. So that later batches are not that large: lower max.message.bytes of the topic"
                f" {topic}, and batch.size of the producers. It does not help to skip one record: the batch is sent"
                " again from its beginning.",
            )
        if self.gives_up_ms is not None:
            waited = words.ms(self.gives_up_ms)
            return Told(
                f"Its connection ends each time after {text}, {often}, about {waited} after it has asked: the response"
                " probably takes longer than its client waits (request.timeout.ms; socket.timeout.ms of librdkafka)",
                f"Lower fetch.max.bytes and max.partition.fetch.bytes of {self.name} until a response arrives within"
                f" {waited}, or raise that timeout. Look why its network is so slow. Do not skip records: the program"
                " does not get them.",
            )
        return Told(
            f"Its connection ends each time after {text}, {often}: its client, or something between it and the broker,"
            " probably refuses that response",
            f"Look in the log of {self.name} why its connection ends: a limit on the size of responses, a batch that"
            " its client cannot read, a proxy. Do not skip records before that is known: the program does not get"
            " them.",
        )


#: Why a member that reads on to the end may commit nothing, and what to do.
_ONLY_SOME: Final = (
    "perhaps it commits only some records (a filter that passes over others without a commit), or only some partitions"
)
_COMMIT_PASSED: Final = "commit the offset after the records that it passes over, too"


@event("offsets_stuck")
class OffsetsStuck(ReadAgain):
    """Committed offsets of a member stand still while records wait; again when it has lasted twice as long."""

    positions: tuple[Position, ...]
    records: int
    stood_ms: float
    fetches: str
    ahead: int | None = None
    fetched_ago_ms: float | None = None
    committed_ago_ms: float | None = None
    rebalance_timeout_ms: float | None = None
    session_ms: float | None = None
    software: str | None = None
    is_incremental: bool | None = None
    #: How often it has committed since it joined.
    commits: int | None = None
    #: Whether it has nearly all of the lag of its group, while other members have partitions.
    others_keep_up: bool | None = None
    #: The records that wait in its other partitions; not recorded if it has none.
    lag_of_others: int | None = None
    #: Whether the records at the offsets were deleted, and later ones wait.
    is_deleted: bool | None = None
    #: The commits of the member that were refused since then.
    refused: CommitsRefused | None = _not_recorded()
    #: Another program that had these partitions before.
    before: Member | None = _not_recorded()

    def flaw(self) -> str | None:
        return None if self.positions else "positions"

    @property
    def places(self) -> ByTopic:
        """The partitions."""
        return by_topic(each[:2] for each in self.positions)

    @property
    def is_proven(self) -> bool:
        """Whether it does not get on; otherwise it may also work, and commit seldom."""
        if self.aborts or self.codecs_before:
            return True
        if self.fetches == "again":
            return not self.may_wait
        if self.fetches == "none" and self._is_silent:
            return not self._polls and (self._hidden_ms is None or bool(self.others_keep_up))
        return self.fetches == UNTAKEN or self._fetches_ahead

    @property
    def is_intruder(self) -> bool:
        """Whether it reads on without a commit in partitions that another program had before."""
        if self.fetches != "beyond" or self.commits != 0 or self.before is None:
            return False
        own, other = self.member.client_id or "", self.before.client_id or ""
        # Client ids that libraries choose are the same in all programs.
        return is_default(own) or is_default(other) or not are_alike(own, other)

    @property
    def _commits_lately(self) -> bool:
        return self.committed_ago_ms is not None and self.committed_ago_ms < self.stood_ms / 2

    @property
    def hangs(self) -> bool:
        """Whether it reads on, commits other partitions, and has consumed nearly all of them: it does not wait for
        these."""
        is_ahead = self.fetches == "beyond" and self._commits_lately and self.records > len(self.positions)
        return is_ahead and self.lag_of_others is not None and self.lag_of_others <= self.records * _FEW

    @property
    def is_read_up(self) -> bool:
        """Whether it has fetched nearly all of the records that wait."""
        return self.fetches == "beyond" and (self.ahead or 0) >= self.records * (1 - _FEW)

    @property
    def is_last_record(self) -> bool:
        """Whether one record waits in each partition, which it has fetched, and it has committed more often."""
        one_each = self.fetches == "beyond" and self.records == len(self.positions)
        is_other = self.refused is not None or self.aborts or self.is_intruder or self._fetches_ahead
        return one_each and (self.commits or 0) > len(self.positions) and not is_other

    def with_later(self, later: "OffsetsStuck") -> "OffsetsStuck":
        """This event, and a later one of the same member about other partitions, as one."""
        moved = {each[:2]: each for each in (*self.positions, *later.positions)}
        positions = tuple(sorted(moved.values()))
        ahead = max(self.ahead or 0, later.ahead or 0, len(positions))
        return later.changed(time=self.time, positions=positions, records=len(positions), ahead=ahead)

    @property
    def _fetches_ahead(self) -> bool:
        """Whether it probably stands still, and only its library goes on: others commit as it did before."""
        is_ahead = self.fetches == "beyond" and FETCHES_AHEAD in (self.software or "")
        return is_ahead and bool(self.others_keep_up and self.commits) and not self._commits_lately

    @property
    def _hidden_ms(self) -> float | None:
        """Its ``max.poll.interval.ms``, if that is so long that it has not had to poll yet; None if it has."""
        limit = poll_interval(self.software, self.rebalance_timeout_ms, self.session_ms)
        is_longer = limit is not None and _leaves_without_polls(self.software) and self.stood_ms <= limit
        return limit if is_longer else None

    @property
    def _is_silent(self) -> bool:
        """Whether it has not fetched any partition for long."""
        return self.fetched_ago_ms is not None and self.fetched_ago_ms >= self.stood_ms / 2

    @property
    def _polls(self) -> bool:
        """Whether it would have left if it had not polled."""
        limit = poll_interval(self.software, self.rebalance_timeout_ms, self.session_ms)
        return limit is not None and _leaves_without_polls(self.software) and self.stood_ms > limit

    def clause(self) -> Told:
        """The sentence without its full stop: what is seen, and the probable cause."""
        them = "it" if len(self.positions) == 1 else "them"
        text = f"{self.name} is a member, and {self._stands()}, while {words.count(self.records, 'record')}"
        text += f" {'waits' if self.records == 1 else 'wait'} there"
        if self.refused is not None:
            why, remedy = self.refused.sentence()
            return Told(f"{text}: {why.removesuffix('.')}", remedy)
        if self.aborts:
            why, remedy = self._aborted()
            return Told(f"{text}: {why}", remedy)
        if self.fetches == "again" and self.offset is not None:
            again = self._again(self.places)
            return Told(f"{text}. {again.text}", again.remedy)
        if self.codecs_before:
            return self._lacks_codec(f"{text}{self._fetched(them)}")
        if self.fetches == "none":
            return self._without_fetches(text, them)
        if self.fetches == UNTAKEN:
            why, remedy = _untaken(self.is_incremental)
            return Told(f"{text}. It has neither fetched {them} nor asked for what is committed: {why}", remedy)
        if self.fetches == "beyond":
            return self._reads_on(text, them)
        if self.fetches == "unknown":
            return Told(
                f"{text}. Other members have its client id and address, so that its Fetches are not told apart: it"
                " commits seldom or never, or it does not get on",
                "Look at its log, and whether it commits. With a client.id for each program, more can be said.",
            )
        return Told(f"{text}. It asks for {them}, and does not get past", "Look at its log, and at the record there.")

    def _fetched(self, them: str) -> str:
        """A sentence about the Fetches of a member that does not get past a batch, after a full stop."""
        if self.fetches == "unknown":
            return ". Other members have its client id and address, so that its Fetches are not told apart"
        if self.fetches == "none":
            if self._is_silent:
                return f". Its heartbeats go on, and its last Fetch was {words.ms(self.fetched_ago_ms or 0)} ago"
            return f". Its heartbeats go on, and it does not fetch {them}"
        return f". It asks for {them}, and does not get past"

    @property
    def library(self) -> str | None:
        return self.software

    def _stands(self) -> str:
        if len(self.positions) == 1:
            ((topic, number, offset),) = self.positions
            return f"the committed offset of {topic}-{number} has stood at {offset} for {words.ms(self.stood_ms)}"
        text = f"the committed offsets of {words.partitions(self.places)} have not moved for {words.ms(self.stood_ms)}"
        if len(self.positions) > MAX_NAMED:
            return text
        return f"{text} ({', '.join(f'{topic}-{number} at {offset}' for topic, number, offset in self.positions)})"

    def _reads_on(self, text: str, them: str) -> Told:
        text += f". It fetched up to {words.count(self.ahead or 0, 'record')} after that"
        if self.hangs:
            return self._hangs(text)
        if self._commits_lately and self.records > len(self.positions):
            text += f", and it has committed {words.ms(self.committed_ago_ms or 0)} ago, but no later offset of {them}:"
            some = f" {_ONLY_SOME}; or" if self.is_read_up else ""
            passed = f" {_COMMIT_PASSED}, and" if self.is_read_up else ""
            return Told(
                f"{text}{some} it works through records of other partitions first, or it does not finish a record"
                " there",
                f"If its log shows that it gets on:{passed} look whether its lag grows, and it has more to do than it"
                " can. Otherwise look where it stands.",
            )
        let_commit = "let it commit (enable.auto.commit, or commit() after each batch)"
        if self.is_intruder and self.before is not None:
            return Told(
                f"{text}: it reads on, and has not committed anything since it joined, and {self.before.name} had"
                f" {them} before: probably another program has this group.id, and the group's own does not get these"
                " records",
                f"If {self.name} is another program, such as a test or a console: stop it, or give it a group.id of its"
                f" own, so that the others get {them} again. If it belongs to the group: {let_commit}.",
            )
        if self._fetches_ahead:
            return self._stands_still(
                f"{text}, but has not committed for {words.ms(self.committed_ago_ms or 0)}, after"
                f" {words.count(self.commits or 0, 'commit')}, while the other members keep up"
            )
        one_each = self.records == len(self.positions)
        if self.is_last_record:
            one = len(self.positions) == 1
            sure, which = ("perhaps", "that record") if one else ("probably", "these records")
            return Told(
                f"{text}, and has committed {words.times(self.commits or 0)} since it joined: it {sure} commits the"
                f" offset of the last record that it has read in place of the next one, or it does not finish {which}",
                "Commit the offset of the last record plus one, or call commit() without offsets. Until then"
                f" {which} {'is' if one else 'are'} read again after each restart, and the lag is never 0. Otherwise"
                " look where it stands.",
            )
        text += ": it reads on and commits seldom or never, or it does not finish a record there"
        remedy = (
            f"If its log shows that it gets on: {let_commit}; when it is restarted, it reads {them} again from the"
            " committed offset on. Otherwise look where it stands."
        )
        if FETCHES_AHEAD in (self.software or ""):
            text += " (librdkafka fetches ahead, also while its program stands still)"
        if one_each:
            text += ", or it commits the offset of the last record that it has read"
            remedy += " The offset to commit is that of the next record: one more than that of the last one."
        return Told(text, remedy)

    def _hangs(self, text: str) -> Told:
        """The sentence of a member that commits its other partitions."""
        one, rest = len(self.positions) == 1, self.lag_of_others or 0
        record = f"the record at offset {self.positions[0].offset}" if one else "one record of each"
        look = f"ook where the worker of {'this partition' if one else 'these partitions'} stands: its log, the stacks"
        look += " of its threads or tasks. Give its calls timeouts. Until the committed"
        look += f" {'offset moves' if one else 'offsets move'}, a restart reads the records from there on again."
        text += (
            f", its heartbeats go on, and it has committed its other partitions {words.ms(self.committed_ago_ms or 0)}"
        )
        text += f" ago, in which {words.count(rest, 'record')} {'waits' if rest == 1 else 'wait'}"
        hangs = f"{record}, or its handler, hangs (a call without a timeout, a deadlock, a thread that has ended), or"
        hangs += " one batch takes so long"
        if not self.is_read_up:
            return Told(f"{text}: probably {hangs}", f"L{look}")
        return Told(
            f"{text}. It reads on and commits nothing there: {_ONLY_SOME}; or {hangs}",
            f"If its log shows that it gets on there: {_COMMIT_PASSED}. Otherwise l{look}",
        )

    def _stands_still(self, text: str) -> Told:
        """The sentence of a program that stands still."""
        limit = self._hidden_ms
        ahead = ", and librdkafka fetches ahead" if self._fetches_ahead else ""
        why = "a call without a timeout, a deadlock, a thread or task that has ended, one batch that takes so long"
        them = f"{text}: its program probably stands still in the records that it has ({why}){ahead}, and keeps its"
        remedy = "Look where the program stands: its log, the stacks of its threads or tasks. Give its calls timeouts."
        restart = "A restart of the program frees its partitions at once."
        if limit is None:
            return Told(
                f"{them} partitions",
                f"{remedy} A client with max.poll.interval.ms leaves after that time without a poll, so that others"
                f" read: set it above what a batch takes. {restart}",
            )
        shown = words.ms(limit)
        if not self.is_proven:
            return Told(
                f"{text}: it works on one batch for so long, which its max.poll.interval.ms of {shown} allows, or its"
                " program stands still",
                f"If its log shows that it gets on, it needs no change. Otherwise: {remedy[:1].lower()}{remedy[1:]} Set"
                f" max.poll.interval.ms a little above what a batch takes. {restart}",
            )
        return Told(
            f"{them} partitions: its max.poll.interval.ms of {shown} hides it, as it would leave only after that time",
            f"{remedy} Set max.poll.interval.ms a little above what a batch takes: the member then leaves, and others"
            f" read. {restart}",
        )

    def _without_fetches(self, text: str, them: str) -> Told:
        text += (
            f". Its heartbeats go on, and its last Fetch was {words.ms(self.fetched_ago_ms or 0)} ago"
            if self._is_silent
            else f". Its heartbeats go on, and it does not fetch {them}"
        )
        if self._commits_lately:
            text += f"; it has committed {words.ms(self.committed_ago_ms or 0)} ago, but no later offset of {them}"
        if self._polls:
            limit = words.ms(self.rebalance_timeout_ms or 0)
            return Told(
                f"{text}. It polls, as it would otherwise have left after its max.poll.interval.ms of {limit}: it has"
                f" probably paused {them}, and not resumed, or it works through what it has fetched before, and"
                " commits seldom",
                "Look when the program pauses and resumes partitions (pause, resume), and whether its log shows that it"
                " gets on. A restart ends a pause; what is not committed is read again.",
            )
        if self.is_deleted:
            text += ". The records at the committed offset were deleted meanwhile, so that a member that has"
            text += " auto.offset.reset=none does not go on, either"
        if self._is_silent:
            return self._stands_still(text)
        return Told(
            f"{text}: it has probably paused {them}, or stands still in records of {them} that it has",
            "Look whether the program resumes partitions that it pauses (pause, resume), and what it does with the"
            " records of these partitions.",
        )

    def sentence(self) -> Told:
        told = self.clause()
        return Told(f"{told.text}.", told.remedy)

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "records": self.records, "stood": seconds(self.stood_ms / 1000)}
        return self._line("warning", "committed offsets stand still", partitions=words.partitions(self.places), **pairs)


@event("nothing_committed")
class NothingCommitted(ReadAgain):
    """A member reads partitions without a committed offset; again when it has lasted twice as long."""

    partitions: ByTopic
    ahead: int
    stood_ms: float
    #: The records that were written to them meanwhile, if its Fetches are not told apart from those of others.
    written: int | None = None
    software: str | None = None
    #: The first of its partitions that have a committed offset; None if the group has none at all.
    only_committed: ByTopic | None = None
    #: The group without members to which a client with the same address commits in transactions, and their id.
    other_group: str | None = None
    #: The commits of the member that were refused before.
    refused: CommitsRefused | None = _not_recorded()

    def sentence(self) -> Told:
        which = words.partitions(self.partitions)
        fetched = f"{words.count(self.ahead, 'record')} fetched"
        if self.written is not None:
            fetched = f"{words.count(self.written, 'record')} {words.were(self.written)} written there meanwhile"
        text = f"{self.name} has {'read' if self.written is None else 'had'} {which} for {words.ms(self.stood_ms)}"
        text += f" ({fetched}), and "
        text += "the group has no committed offset" if self.only_committed is None else self._committed_elsewhere()
        if self.refused is not None:
            why, remedy = self.refused.sentence()
            return Told(f"{text}: {why}", remedy)
        if self.aborts:
            why, remedy = self._aborted()
            return Told(f"{text}: {why}.", remedy)
        if self.offset is not None and self.partitions:
            again = self._again(self.partitions)
            text = f"{self.name} has had {which} for {words.ms(self.stood_ms)}, and "
            text += "the group has no committed offset" if self.only_committed is None else "nothing of it is committed"
            return Told(f"{text}. {again.text}.", again.remedy)
        if self.other_group is not None:
            return Told(
                f"{text}: its program probably commits to the group {self.other_group}, which has no member, in"
                f" transactions of {self.transactional_id}: these come from the same address, and have offsets of the"
                " same topic.",
                "Let it commit to the group in which it reads: pass that group's id or metadata when it adds offsets to"
                " a transaction (sendOffsetsToTransaction). Until then it begins at its auto.offset.reset after a"
                " restart or a rebalance. To go on where it is: stop it, and set the offsets of this group to those of"
                f" the other one (barnabas groups describe {quote(self.other_group)}).",
            )
        restart = (
            "After a restart or a rebalance it begins at its auto.offset.reset: with latest it skips what was written"
            " meanwhile, with earliest it reads everything again."
        )
        let_commit = (
            "Let it commit (enable.auto.commit, or commit() after each batch), unless it keeps its positions elsewhere."
            " If it collects records until there are many: let it go on and commit after a time, too."
        )
        if self.written is not None:
            return Told(
                f"{text}. Other members have its client id and address, so that its Fetches are not told apart: it"
                " reads without committing, has not read enough for a commit yet, or does not get on.",
                f"Look at its log, and whether it commits. {let_commit} {restart} With a client.id for each program,"
                " more can be said.",
            )
        waits = ""
        if self.fetches_ahead:
            waits = ", or its program has not been given the records yet (librdkafka fetches ahead: a consume() that"
            waits += " waits for a full batch, or for its turn)"
        if self.only_committed is not None:
            return Told(
                f"{text}: its program probably commits some of the partitions that it reads, such as the last one of"
                f" each batch{waits}.",
                f"Commit all partitions of a batch, each with the offset of its last record plus one; commit() without"
                f" offsets does so. {restart}",
            )
        or_, timeout = (",", " Give consume() a timeout.") if waits else (" or", "")
        return Told(
            f"{text}: it reads without committing{or_} has not read enough for a commit yet{waits}.",
            f"{restart} {let_commit}{timeout} Without commits its lag is not known (-).",
        )

    @property
    def fetches_ahead(self) -> bool:
        """Whether its library fetches records that its program has not asked for yet."""
        return FETCHES_AHEAD in (self.software or "")

    @property
    def library(self) -> str | None:
        return self.software

    def _committed_elsewhere(self) -> str:
        """The partitions that it has committed, after its name, if the group has committed offsets."""
        known = self.only_committed
        return f"has committed only {words.partitions(known)}" if known else "has committed nothing"

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "fetched": self.ahead, "since": seconds(self.stood_ms / 1000)}
        return self._line(
            "info", "a member reads without committing", partitions=words.partitions(self.partitions), **pairs
        )


def _untaken(is_incremental: bool | None) -> Told:
    """Why a member neither fetches a partition nor asks for its committed offset, and the remedy."""
    why = "its program has probably not taken its assignment: its rebalance listener fails, or does not return,"
    why += " or nothing polls this consumer"
    remedy = (
        "Look in its log for an error in its rebalance listener (on_assign, on_partitions_assigned). Without one,"
        " perhaps nothing polls this consumer, such as one that was made before a fork: make it where it is polled."
    )
    if is_incremental:
        why += ", or calls assign() though its assignments are incremental"
        remedy += (
            " With a cooperative assignor, and in the consumer protocol, a listener of librdkafka calls"
            " incremental_assign() instead of assign(), or nothing at all."
        )
    return Told(why, remedy)


@event("nothing_fetched")
class NothingFetched(MemberEvent):
    """A member has fetched nothing of partitions since it joined, and no offset of them is committed."""

    partitions: ByTopic
    records: int
    stood_ms: float
    fetches: str | None = None
    is_incremental: bool | None = None
    #: Whether it has fetched other partitions meanwhile.
    fetches_others: bool | None = None

    def sentence(self) -> Told:
        which = words.partitions(self.partitions)
        wait = f"{words.count(self.records, 'record')} {'waits' if self.records == 1 else 'wait'}"
        if self.fetches == UNTAKEN:
            why, remedy = _untaken(self.is_incremental)
            return Told(
                f"{self.name} has had {which} for {words.ms(self.stood_ms)}, and has neither fetched a record of it nor"
                f" asked for committed offsets since it joined, while {wait} there: {why}.",
                remedy,
            )
        if self.fetches_others:
            return Told(
                f"{self.name} has had {which} for {words.ms(self.stood_ms)}, and has fetched nothing of it since it"
                f" joined, though it fetches other partitions, while {wait} there and no offset of it is committed: it"
                " has probably paused this part of its assignment, or has no offset to start at there"
                " (auto.offset.reset=none, or error).",
                "Look when the program pauses and resumes partitions (pause, resume): what has to wait for others needs"
                " its turn, too, also while these have records. Look in its log for an error about a missing offset.",
            )
        return Told(
            f"{self.name} has had {which} for {words.ms(self.stood_ms)}, and has not sent a single Fetch since it"
            f" joined, while {wait} there and the group has no committed offset: it probably has no offset to start at"
            " (auto.offset.reset=none, or error), or it has paused its partitions, or its program stands still.",
            "Look in its log for an error about a missing offset. Set auto.offset.reset to earliest or latest, or set"
            f" the offsets while the group has no members (barnabas groups reset-offsets {quote(self.group)}).",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "records": self.records, "since": seconds(self.stood_ms / 1000)}
        return self._line("warning", "a member has not fetched", partitions=words.partitions(self.partitions), **pairs)


@event("broker_not_reached")
class BrokerNotReached(GroupEvent):
    """Members fetch nothing of what a broker leads, and have no connection to it; again after twice as long."""

    broker: int
    address: str | None = None
    behind: tuple[MemberLag, ...]

    def flaw(self) -> str | None:
        return None if all(each.positions for each in self.behind) and self.behind else "behind"

    @property
    def positions(self) -> tuple[Position, ...]:
        """The partitions, and their committed offsets; -1 for none."""
        return tuple(position for each in self.behind for position in each.positions)

    @property
    def is_alike(self) -> bool:
        """Whether it is so in several partitions; the program may have paused a single one."""
        return len(self.positions) > 1

    def sentence(self) -> Told:
        one, places = len(self.behind) == 1, by_topic(each[:2] for each in self.positions)
        records = sum(each.lag for each in self.behind)
        stood = max(each.stood_ms or 0 for each in self.behind)
        broker = f"broker {self.broker}{f' ({self.address})' if self.address else ''}"
        what = f"of the {len(self.positions)} partitions that {broker} leads ({words.partitions(places)})"
        if not self.is_alike:
            what = f"of {words.partitions(places)}, which {broker} leads,"
        text = f"{words.names_of(each.member for each in self.behind)} {'has' if one else 'have'} fetched nothing"
        text += f" {what} for {words.ms(stood)}, while {words.count(records, 'record')}"
        text += f" {'waits' if records == 1 else 'wait'} there and other partitions are fetched. Broker {self.broker}"
        text += f" has seen neither a Fetch nor a connection of {'it' if one else 'them'}:"
        text += f" {'it' if one else 'they'} probably {'does' if one else 'do'} not reach it"
        if not self.is_alike:
            text += ", or it has paused this partition"
        where = self.address or f"the address that broker {self.broker} advertises"
        command = f" `barnabas topics list -b {self.address}` there shows whether it can." if self.address else ""
        return Told(
            f"{text}.",
            f"Look whether {where} can be reached from the {'host of this member' if one else 'hosts of these members'}"
            f": a firewall, a security group, a network policy, the name in advertised.listeners.{command}"
            f" {'Its log has' if one else 'Their logs have'} the error of the connection.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"members": len(self.behind), "broker": self.broker, "address": self.address}
        where = words.partitions(by_topic(each[:2] for each in self.positions))
        return self._line("warning", "members do not reach a broker", partitions=where, **pairs)


@event("fetches_waited")
class FetchesWaited(MemberEvent):
    """Fetches of a member have waited for all of their time, while there were records, but too few bytes of them."""

    times: int
    min_bytes: int
    waited_ms: float

    def sentence(self) -> Told:
        wait = words.ms(self.waited_ms)
        return Told(
            f"{self.name} gets records up to {wait} late: {counted(self.times, 'Fetch', 'Fetches')} of it waited for"
            f" {wait}, all of its fetch.max.wait.ms, while records were there, but fewer bytes than its fetch.min.bytes"
            f" ({self.min_bytes:,}).",
            "If records are to come at once: set fetch.min.bytes to 1, or fetch.max.wait.ms (fetch.wait.max.ms of"
            " librdkafka) to the time that a record may wait. If it is to get large batches, it needs no change.",
        )


@event("began_late")
class MemberBeganLate(MemberEvent):
    """A member had its partitions for at least 10 s before it began to read them, while records were there."""

    took_ms: float
    partitions: ByTopic
    records: int

    def sentence(self) -> Told:
        wait = f"{words.count(self.records, 'record')} waited"
        return Told(
            f"{self.name} began to read {words.ms(self.took_ms)} after it had got {words.partitions(self.partitions)},"
            f" while {wait} there: its program probably does something else between subscribe() and its first poll"
            " (such as loading a model), or in its rebalance listener. The members of a group get their partitions when"
            " they join.",
            "Do that before subscribe(), or before the consumer is made. With a max.poll.interval.ms below that time"
            " the member would be removed.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "records": self.records, "after": seconds(self.took_ms / 1000)}
        return self._line(
            "warning", "a member began to read late", partitions=words.partitions(self.partitions), **pairs
        )


@event("fetch_denied")
class FetchDenied(MemberEvent):
    """Fetches of a member are refused for a topic, because its user may not read it; recorded once in 2 min."""

    topic: str
    principal: str

    def sentence(self) -> Told:
        user = f", {self.principal}," if self.principal else ""
        principal = quote(self.principal) if self.principal else "USER"
        return Told(
            f"{self.name} may not read the topic {self.topic}: the Fetches of its user{user} are refused"
            " (TOPIC_AUTHORIZATION_FAILED), so that it gets no record of it.",
            f"If it is to read the topic: `barnabas acls add {principal} --operation read --topic {quote(self.topic)}`."
            " Otherwise remove the topic from its subscription.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "topic": self.topic, "principal": self.principal}
        return self._line("warning", "a member may not read a topic of its subscription", **pairs)


#: What to do about a partition that has nearly all of the lag, though its topic has others.
HOT_PARTITION: Final = (
    "Either most records have keys of this partition: spread them over more keys. Or its member does not get on there:"
    " look at its log, and whether the offset moves."
)
#: The same, if most records are written to that partition.
SPREAD_KEYS: Final = (
    "Spread the records over more partitions: most of them probably have the same key, or a few keys. Or make the work"
    " for each record shorter. More members do not help: a partition has one."
)
#: What happens when a topic gets more partitions.
KEYS_MOVE: Final = "Keys may get other partitions then, so that their new records are not in order with those before."


#: Who writes the records is not known.
_RETRIES: Final = (
    "If its program writes records at which it fails to the topic again, they are a part of what is written, and more"
    " work does not help: limit the attempts."
)


@event("lag_grows")
class LagGrows(GroupEvent):
    """The lag of a group grows, because less is consumed than written; again when it has lasted twice as long."""

    consumed: int
    written: int
    lag_before: int
    lag: int
    took_ms: float
    led: int
    committed_in: int
    throttled: tuple[str, ...] | None = None
    #: The members, those of them without a partition, and the partitions that they own.
    members: int | None = None
    idle: int | None = None
    owned: int | None = None
    #: The member, or the owner of the partition, that has nearly all of the lag.
    behind: tuple[MemberLag, ...] | None = None
    written_there: int | None = None
    #: The lag later, if :attr:`behind` is of then.
    lag_now: int | None = _not_recorded()

    def flaw(self) -> str | None:
        return None if self.took_ms > 0 and self.consumed > 0 else "consumed"

    @property
    def factor(self) -> float:
        """How many times as much is written as is consumed."""
        return self.written / self.consumed

    def clause(self) -> Told:
        """The sentence without its cause: how much is consumed and written, and how the lag has grown."""
        text = f"{words.rate(self.consumed, self.took_ms)} are committed and"
        text += f" {words.rate(self.written, self.took_ms)} are written"
        if self.led < self.committed_in:
            text += f" (in {self.led} of {self.committed_in} partitions, whose logs the coordinator knows)"
        text += f": the lag grew from {self.lag_before:,} to {self.lag:,} within {words.ms(self.took_ms)}"
        return Told(text)

    def sentence(self) -> Told:
        text = words.capital(self.clause().text)
        if self.throttled:
            return Told(
                f"{text}. A quota of the broker probably slows it down: {words.listed(self.throttled)} had to wait for"
                " records within the last minute.",
                "Look which quota it is, and raise it (`barnabas quotas list`, `barnabas quotas set`). More members do"
                " not help if they share it.",
            )
        if self.behind:
            where, remedy = self._of_behind(self.behind)
            return Told(f"{text}. {where}", remedy)
        text += f"; it needs about {self._times} the work"
        more = "let each member do more: less work for each record, more records at a time."
        if self.members is None or self.idle is None or self.owned is None:
            return Told(
                f"{text}.",
                "Look first whether one member or one partition has most of the lag (barnabas groups describe"
                f" {quote(self.group)}): then more members do not help. Otherwise start more members, up to one for"
                f" each partition; or {more}",
            )
        if self.idle:
            text += f". {self.idle} of {words.count(self.members, 'member')} {'has' if self.idle == 1 else 'have'} no"
            text += f" partition: there {words.are(self.owned)} {words.count(self.owned, 'partition')}"
        if self.idle and self.members <= self.owned:
            remedy = "Let the idle members have partitions: look at their subscriptions, and at the assignor (range"
            return Told(f"{text}.", f"{remedy} assigns each topic alone). Then, if the lag still grows: {more}")
        if self.members >= self.owned:
            remedy = "There is a member for each partition: give the topics more partitions"
            remedy += ", as more members do not help" if self.idle else ", and start more members"
            return Told(f"{text}.", f"{remedy}. {KEYS_MOVE} Or {more} {_RETRIES}")
        has = "there is 1" if self.members == 1 else f"there are {self.members}"
        each = f"{has}, and {words.count(self.owned, 'partition')}, of which each can have its own"
        if self.members and self.factor > self.owned / self.members:
            most = f"{self.owned / self.members:.1f}".removesuffix(".0")
            remedy = f"First {more} More members are not enough: {each}, so that they do at most {most} times the work;"
            return Told(f"{text}.", f"{remedy} with more partitions they do more. {KEYS_MOVE} {_RETRIES}")
        return Told(f"{text}.", f"Start more members: {each}. Or {more} {_RETRIES}")

    def _of_behind(self, members: Sequence[MemberLag]) -> Told:
        """The members or the partition that have nearly all of the lag, and what to do. Several stand still."""
        positions, lag = (
            [position for each in members for position in each.positions],
            sum(each.lag for each in members),
        )
        name, one = words.names_of(each.member for each in members), len(positions) == 1
        where = words.partitions(by_topic(each[:2] for each in positions))
        stood = [each.stood_ms for each in members if each.stood_ms is not None]
        if stood:
            text = f"{self._most(lag)} for {name}: the committed"
            text += f" {'offset' if one else 'offsets'} of {where} {'has' if one else 'have'} not moved for"
            text += f" {words.ms(min(stood))}, while the rest of the group gets on."
            if len(members) > 1:
                return Told(
                    text,
                    f"Look why {name} do not read these partitions, or do not commit. They keep them, so that more"
                    " members do not help.",
                )
            return Told(
                text,
                f"Look where the program of {name} stands, and whether it commits. It keeps"
                f" {'this partition' if one else 'these partitions'}, so that more members do not help.",
            )
        behind = members[0]
        if one:
            text = f"{self._most(behind.lag)} in {where}, which {name} owns"
            if (self.written_there or 0) >= self.written * MOST_OF:
                text += f": about {self.written_there:,} of the {words.count(self.written, 'record')} that were written"
                return Told(f"{text} meanwhile came there, and its committed offset moves.", SPREAD_KEYS)
            return Told(f"{text}.", f"{HOT_PARTITION} More members do not help: a partition has one.")
        return Told(
            f"{self._most(behind.lag)} in the partitions of {name} ({where}), while the other members keep up.",
            f"Look why {name} does less than the others: its log, its machine, its records; whether it"
            " pauses partitions, and whether a quota limits it (barnabas quotas list). More members do not make it"
            " faster.",
        )

    def _most(self, lag: int) -> str:
        """The beginning of a sentence about the part of the lag that waits in one place."""
        if self.lag_now is not None:
            return f"Now {lag:,} of the {words.count(self.lag_now, 'record')} wait{'s' if lag == 1 else ''}"
        return f"{'Nearly all' if lag >= self.lag * NEARLY_ALL else 'Most'} of it, {words.count(lag, 'record')}, waits"

    @property
    def _times(self) -> str:
        factor = f"{self.factor:.1f}" if self.factor < 9.95 else f"{self.factor:,.0f}"
        return f"{factor.removesuffix('.0')} times"

    def line(self, reason: str) -> Line:
        pairs = {"consumed": self.consumed, "written": self.written, "within": seconds(self.took_ms / 1000)}
        return self._line("warning", "lag grows", lag=self.lag, **pairs)


@event("records_aborted")
class RecordsAborted(GroupEvent):
    """All records of a ``read_committed`` group were aborted; again when it has lasted twice as long."""

    partitions: ByTopic
    records: int
    took_ms: float
    transactional_ids: tuple[str, ...] | None = None

    def sentence(self) -> Told:
        ids = self.transactional_ids
        who = "A producer" if ids is None else f"The producer with the transactional.id {words.listed(ids)}"
        if ids is not None and len(ids) > 1:
            who = f"The producers with the transactional ids {words.listed(ids)}"
        which = words.partitions(self.partitions)
        return Told(
            f"{who} aborted all transactions in {which} for {words.ms(self.took_ms)}: of"
            f" {words.count(self.records, 'record')} that were looked at the members, which are read_committed, get"
            " none, and are well. The lag counts these records.",
            "Look why the producer aborts: its log, and what fails before it calls abort_transaction().",
        )

    def line(self, reason: str) -> Line:
        pairs = {"records": self.records, "within": seconds(self.took_ms / 1000)}
        where = words.partitions(self.partitions)
        return self._line("warning", "all transactions that a group reads are aborted", partitions=where, **pairs)


@event("aborted_records_read")
class AbortedRecordsRead(MemberEvent):
    """A ``read_uncommitted`` member got records of aborted transactions; again when it has lasted twice as long."""

    partitions: ByTopic
    transactions: int
    took_ms: float
    transactional_ids: tuple[str, ...] | None = None

    def sentence(self) -> Told:
        by = "" if self.transactional_ids is None else f" (transactional.id {words.listed(self.transactional_ids)})"
        return Told(
            f"{self.name} reads {words.partitions(self.partitions)} with isolation.level=read_uncommitted, and was"
            f" given the records of {words.count(self.transactions, 'aborted transaction')}{by} within"
            f" {words.ms(self.took_ms)}.",
            f"Set isolation.level=read_committed of {self.name}, unless it is to handle these records: a producer that"
            " aborts mostly writes them again, so that they are handled twice.",
        )

    def line(self, reason: str) -> Line:
        pairs = {"member": self.name, "transactions": self.transactions, "within": seconds(self.took_ms / 1000)}
        where = words.partitions(self.partitions)
        return self._line("info", "a member gets records of aborted transactions", partitions=where, **pairs)


@event("offsets_expired")
class OffsetsExpired(GroupEvent):
    """Committed offsets expired."""

    offsets: int
    keys: tuple[Partition, ...] | None = None

    def sentence(self) -> Told:
        count = words.capital(words.count(self.offsets, "offset"))
        if self.inferred:
            return Told(f"{count} expired or {words.were(self.offsets)} deleted.")
        which = f" ({words.partitions(by_topic(self.keys))})" if self.keys else ""
        return Told(
            f"{count}{which} expired.",
            "Members that get these partitions start at their auto.offset.reset. offsets.retention.minutes says how"
            " long offsets are kept.",
        )

    def line(self, reason: str) -> Line:
        return Line("info", "offsets expired", {"group": self.group, "offsets": self.offsets})

    def kafka(self) -> str:
        return f"[GroupId {self.group}] Expired {self.offsets} offsets."


@event("offsets_unstable")
class OffsetsUnstable(GroupEvent):
    """A consumer waits for offsets that are pending in a transaction."""

    producer_id: int
    transactional_id: str | None = None
    offsets: int
    keys: tuple[Partition, ...] | None = None
    pending_ms: float

    def sentence(self) -> Told:
        which = "" if self.transactional_id is None else f"of the transactional id {self.transactional_id}, "
        remedy = (
            "Consumers start when the transaction ends, at the latest after its producer's transaction.timeout.ms. If"
            " that producer is gone, start it again: with the same transactional.id it ends the transaction at once."
        )
        if self.transactional_id is None:
            remedy += " `barnabas transactions list` has the transactional id of each producer."
        return Told(
            f"A consumer waits for {words.count(self.offsets, 'offset')}:"
            f" {'it is' if self.offsets == 1 else 'they are'} pending in a transaction {which}of producer"
            f" {self.producer_id} since {words.ms(self.pending_ms)}.",
            remedy,
        )

    def line(self, reason: str) -> Line:
        pairs = {"group": self.group, "producer_id": self.producer_id, "offsets": self.offsets}
        if self.transactional_id is not None:
            pairs["transactional_id"] = self.transactional_id
        text = "offsets are pending in a transaction, consumers wait"
        return Line("info", text, {**pairs, "since": seconds(self.pending_ms / 1000)})


@event("offsets_stable")
class OffsetsStable(GroupEvent):
    """The transaction of `offsets_unstable` ended."""

    producer_id: int
    transactional_id: str | None = None
    committed: bool
    offsets: int
    pending_ms: float

    def sentence(self) -> Told:
        which = "" if self.transactional_id is None else f"of the transactional id {self.transactional_id}, "
        ended, took = f"The transaction {which}of producer {self.producer_id}", words.ms(self.pending_ms)
        count = words.count(self.offsets, "offset")
        if self.committed:
            return Told(f"{ended} was committed after {took}, with {count} of the group.")
        return Told(f"{ended} was aborted after {took}: {count} of the group stayed as before.")

    def line(self, reason: str) -> Line:
        pairs = {"group": self.group, "producer_id": self.producer_id, "offsets": self.offsets}
        ended = {"committed": self.committed, "took": seconds(self.pending_ms / 1000)}
        return Line("info", "transaction with pending offsets ended", {**pairs, **ended})


@event("offsets_committed")
class OffsetsCommitted(GroupEvent):
    """Offsets were committed since the last change of the group. Only in rebuilt events."""

    commits: int
    partitions: int
    between: tuple[int, int]

    def sentence(self) -> Told:
        first, last = self.between
        text = f"{words.capital(words.count(self.commits, 'offset'))} {words.were(self.commits)} committed"
        text += f" in {words.count(self.partitions, 'partition')}{self._at()}"
        if last - first >= 1000:
            rate = self.commits / (last - first) * 1000
            text += f", {rate:,.0f} a second" if rate >= 100 else f", {rate:.2g} a second"
        return Told(f"{text}.")


# Histories


@event("history_began")
class HistoryBegan(GroupEvent):
    """The group is known from here on. Only in rebuilt events."""

    members: int | None = None

    def flaw(self) -> str | None:
        return "members" if self.generation < 0 and self.members is None else None

    def sentence(self) -> Told:
        members = "" if self.members is None else words.count(self.members, "member")
        if self.generation < 0:
            return Told(f"The group at the first look: {members}.")
        what = f"generation {self.generation}{f', with {members}' if members else ''}"
        return Told(f"What is known begins with {what}: earlier records were not read, or are compacted.")


@event("history_gap")
class HistoryGap(GroupEvent):
    """Something is missing, or cannot be used."""

    gap: str
    more: int | None = None
    first: int | None = None
    last: int | None = None
    records: int | None = None
    offset: int | None = None
    reason: str | None = None
    timestamp: int | None = None
    back_ms: float | None = None
    record_type: int | None = None
    most: int | None = None
    what: str | None = None
    before: int | None = None
    now: int | None = None

    def flaw(self) -> str | None:
        if self.more is not None:
            return None
        if self.gap not in _GAPS:
            return "gap"
        needed = _GAPS[self.gap].needed
        if self.gap == "clock" and self.back_ms is None:
            needed = (*needed, "timestamp")
        return next((name for name in needed if getattr(self, name) is None), None)

    def sentence(self) -> Told:
        if self.more is not None:
            what = _GAPS[self.gap].what if self.gap in _GAPS else self.gap
            return Told(f"Gap: {self.more:,} more of this kind: {what}.")
        return Told(f"Gap: {_GAPS[self.gap].text(self)}.")


class _Gap(NamedTuple):
    """A kind of gaps: what it is in general, the fields that it needs, and the sentence about one."""

    what: str
    needed: tuple[str, ...]
    text: Callable[[HistoryGap], str]


def _generations(gap: HistoryGap) -> str:
    return f"generation {gap.first} has" if gap.first == gap.last else f"generations {gap.first} to {gap.last} have"


def _clock(gap: HistoryGap) -> str:
    if gap.back_ms is None:
        return f"the record at offset {gap.offset} has no usable time ({gap.timestamp})"
    return (
        f"the record at offset {gap.offset} is {words.ms(gap.back_ms)} older than the one before: clocks disagree, so"
        " durations across it are left out"
    )


_GAPS: Final = {
    "compacted": _Gap(
        "generations without a record",
        ("first", "last", "records"),
        lambda gap: (
            f"{_generations(gap)} no record; {words.count(gap.records or 0, 'record')} of this time"
            f" {'is' if gap.records == 1 else 'are'} missing: compacted, or of transactions"
        ),
    ),
    "not_completed": _Gap(
        "generations that were not completed",
        ("first", "last"),
        lambda gap: f"{_generations(gap)} no record, and nothing is missing: the assignment was never completed",
    ),
    "not_read": _Gap("events that were not read", ("reason",), lambda gap: str(gap.reason)),
    "unreadable": _Gap(
        "records that cannot be read",
        ("offset", "reason"),
        lambda gap: f"the record at offset {gap.offset} cannot be read: {gap.reason}",
    ),
    "clock": _Gap("times that cannot be right", ("offset",), _clock),
    "unknown_type": _Gap(
        "records of an unknown type",
        ("offset", "record_type"),
        lambda gap: (
            f"the record at offset {gap.offset} is of type {gap.record_type}: of a share group, a streams group, or of"
            " a later version"
        ),
    ),
    "too_many": _Gap(
        "more than can be remembered",
        ("most", "what"),
        lambda gap: f"more than {gap.most:,} {gap.what} are not remembered",
    ),
    "went_back": _Gap(
        "the generation became smaller",
        ("before", "now"),
        lambda gap: f"the generation went back from {gap.before} to {gap.now}: the group was deleted and created again",
    ),
    "open_transaction": _Gap(
        "an open transaction",
        ("offset", "records"),
        lambda gap: (
            f"a transaction is open since offset {gap.offset}: of the {words.count(gap.records or 0, 'record')} from"
            " there on, commits may not count yet"
        ),
    ),
}
