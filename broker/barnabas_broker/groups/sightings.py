"""Sightings: requests, connections and client libraries of the members of groups, as a coordinator sees them. Pure.

Machines know what a request asks for. Here is what is seen besides: when a member committed last, whether its
connection is open, which program it is. It goes into the events about the member, where
:mod:`barnabas_explain.diagnosis` infers from it why a member is gone. Nothing is kept per record or per request: about
200 bytes for each member, and 600 for each connection with members; while a member is new, also the offsets that it
commits.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from barnabas_broker.groups.often import OftenCommits
from barnabas_broker.groups.stuck import MOST_READS, Assigned, LookedUp, Watch
from barnabas_broker.recent import Lately, Newest
from barnabas_explain.catalog import (
    BRIEF_MS,
    DENIED_AGAIN_MS,
    Departure,
    FetchOutOfRange,
    GroupEvent,
    InstanceInUse,
    MemberDisconnected,
    MemberEvent,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberReconnected,
    MemberReplaced,
    MemberSlow,
    RejoinAwaited,
)
from barnabas_explain.members import Member, OffsetChange, Partition, Position

E = TypeVar("E", bound=MemberEvent)

OPEN: Final = "open"
CLOSED: Final = "closed"
#: Members of one connection that are followed after they are gone, and reported when it is closed; and groups to which
#: it has committed without being a member.
_MOST_FOLLOWED: Final = 16
#: Partitions of a client of which a Fetch outside of the log is remembered, and for how many seconds; and partitions of
#: a group of which is remembered when a member had them last.
_MOST_LOST: Final = 64
_LOST_SECONDS: Final = 60.0
#: Seconds after which a Fetch of another offset outside of the log of the same partition is reported.
_LOST_AGAIN_SECONDS: Final = 5.0
#: Seconds after which a Fetch of the same offset is reported again, of a client that has not gone on.
_STILL_LOST_SECONDS: Final = 1_800.0
#: Partitions of a client whose Fetches from the beginning are reported in so many seconds.
_MOST_REWINDS: Final = 16
_REWIND_SECONDS: Final = 1.0
#: Commits that go back, of a member, and commits after the end of a log, of a connection, are reported once in so many
#: seconds.
_BACK_SECONDS: Final = 10.0
#: Fetches of a client that have to wait for all of their time to be reported, once in so many seconds.
_WAITS: Final = 3
_WAITS_SECONDS: Final = 1_800.0
#: Topics of a client of which refused Fetches are reported, each once in so many seconds.
_MOST_DENIED: Final = 16
_DENIED_SECONDS: Final = DENIED_AGAIN_MS / 1000
#: Of a member that closes its connection and connects again, over and over, each is reported once in so many seconds.
_RETURNED_SECONDS: Final = 60.0
#: A member that was removed while its connection is open may read on for so many seconds.
_READS_ON_SECONDS: Final = 300.0
#: Partitions of which is said up to where a member that is gone has fetched them.
_MOST_FURTHEST: Final = 16
#: Partitions of a new member whose commits are kept, and for how many seconds it is new.
_MOST_CHANGES: Final = 30
_NEW_SECONDS: Final = BRIEF_MS / 1000
#: Commits of a client that is not a member are reported at once so often, then after pauses that double up to this one.
_FIRST_REPORTS: Final = 3
_LONGEST_PAUSE: Final = 160.0
#: Hosts and topics of commits in transactions to groups without members, the newest ones.
_MOST_ELSEWHERE: Final = 1_000
#: Topics that a client has asked for, and that do not exist for it, which are kept; and the characters of each.
_MOST_TOPICS: Final = 5
_MOST_OF_TOPIC: Final = 249
#: Characters of an error that are kept.
_MOST_CHARACTERS: Final = 120


class Away(NamedTuple):
    """A broker has seen neither a Fetch nor a connection of a client.

    Attributes:
        since: when it first said so, and has ever since, in seconds on the coordinator's clock.
        until: when it last said so.
    """

    since: float
    until: float


class SeenClient:
    """The connections that have one client id and come from one host: nearly always one program.

    Attributes:
        fetched_at: when it sent its last Fetch, in seconds on the coordinator's clock; None if it has sent none.
        fetches: the number of its Fetches while partitions were watched.
        connections: its open connections on which members have sent requests.
        lost: the events about Fetches of offsets that are not in their logs, by topic and partition, with their times:
            of the last :data:`_LOST_SECONDS` and those of `outside`, and 64 of these.
        outside: the partitions of `lost` in which it has not gone on, with the offsets.
        watched: what is counted of its Fetches, by topic and partition; None if no partition is watched.
        rewinds: the partitions that it has fetched from the beginning, with the time: those of the last second, 16 at a
            time.
        commits_back: its Fetches of the partitions whose commits went back last, of 30, since then.
        joined_at: when a member of it joined last; None for never.
        assigned: its first Fetches since partitions were assigned in its group; None if that was long ago, or before it
            joined.
        owns_since: since when a member of it has had partitions, until it begins to read; None if it has none, or has
            begun.
        has_begun: whether it has begun to read since it joined, by a request for committed offsets or a Fetch.
        looked_up: the offsets that it has looked up lately: the ends of partitions, and those of times, of 64
            partitions at a time.
        unread: the partitions of which it has asked for the committed offset, and has not fetched since it joined: 64
            at a time.
        waits: how often a Fetch of it has waited for all of its time since it joined, while there were records.
        waits_told_at: when that was reported last; None for never.
        denied: the topics that its user may not read, with the times of the reports: those of the last two minutes, 16
            at a time.
        throttled_at: when a quota last made it wait for records; None for never.
        is_committed: whether its last Fetch was that of a ``read_committed`` consumer; None if it has sent none.
        member_at: the other brokers that coordinate a group with a member of it, as far as they have been asked, and
            when they said so.
        away_from: the other brokers that have seen neither a Fetch nor a connection of it, as far as they have been
            asked.
    """

    __slots__ = (
        "__weakref__",
        "_assigned_at",
        "assigned",
        "away_from",
        "commits_back",
        "connections",
        "denied",
        "fetched_at",
        "fetches",
        "has_begun",
        "is_committed",
        "joined_at",
        "looked_up",
        "lost",
        "member_at",
        "outside",
        "owns_since",
        "rewinds",
        "throttled_at",
        "unread",
        "waits",
        "waits_told_at",
        "watched",
    )

    def __init__(self) -> None:
        self.fetched_at: float | None = None
        self.fetches = 0
        self.connections: dict[MemberConnection, None] = {}
        self.lost: dict[tuple[str, int], tuple[float, str, FetchOutOfRange]] = {}
        self.outside: dict[Partition, int] = {}
        self.watched: WeakValueDictionary[Partition, Watch] | None = None
        self.rewinds: Lately[Partition] = Lately(_REWIND_SECONDS, _MOST_REWINDS)
        self.commits_back: dict[Partition, Watch] = {}
        self.joined_at: float | None = None
        self.assigned: Assigned | None = None
        #: When partitions were assigned last since a member of it joined; None for never.
        self._assigned_at: float | None = None
        self.owns_since: float | None = None
        self.has_begun = False
        self.looked_up: dict[Partition, LookedUp] = {}
        self.unread: set[Partition] = set()
        self.waits = 0
        self.waits_told_at: float | None = None
        self.denied: Lately[str] = Lately(_DENIED_SECONDS, _MOST_DENIED)
        self.throttled_at: float | None = None
        self.is_committed: bool | None = None
        self.member_at: dict[int, float] = {}
        self.away_from: dict[int, Away] = {}

    def joins(self, now: float) -> None:
        """A member of it joins."""
        self.joined_at = now
        self.assigned = self._assigned_at = self.owns_since = None
        self.has_begun = False
        self.looked_up.clear()
        self.unread.clear()
        self.outside.clear()
        self.commits_back = {}
        self.waits, self.waits_told_at = 0, None

    def gets(self, now: float) -> None:
        """Partitions are assigned in its group."""
        self.assigned = Assigned(now, is_first=self._assigned_at is None)
        self._assigned_at = now

    def begins(self, now: float) -> float | None:
        """It asks for committed offsets, or for records; returns for how many seconds a member of it had partitions
        before that, if it is the first time since it joined; None if that is not known."""
        since, self.owns_since, self.has_begun = self.owns_since, None, True
        return None if since is None or self.has_fetched or self.is_shared else now - since

    def waited(self, now: float) -> int | None:
        """A Fetch of it has waited for all of its time; returns how often that was so, if it is to be reported."""
        self.waits += 1
        told_at = self.waits_told_at
        if self.waits < _WAITS or (told_at is not None and now - told_at < _WAITS_SECONDS):
            return None
        self.waits_told_at = now
        return self.waits

    def is_denied(self, topic: str, now: float) -> bool:
        """Whether Fetches of a topic have been refused lately, because its user may not read it."""
        return now - self.denied.get(topic, -inf) < 2 * _DENIED_SECONDS

    @property
    def is_shared(self) -> bool:
        """Whether several members, of any groups, have its client id and host: their Fetches are not told apart. One
        that connects anew has two connections for a while."""
        return (
            bool(self.member_at)
            or len({member for connection in self.connections for member in connection.members}) > 1
        )

    @property
    def groups(self) -> frozenset[str] | None:
        """The groups of its members; None if some are not known: they may read anything."""
        if self.member_at or any(len(each.members) >= _MOST_FOLLOWED for each in self.connections):
            return None
        return frozenset(group_id for connection in self.connections for group_id, _ in connection.members)

    @property
    def has_fetched(self) -> bool:
        """Whether it has fetched since it joined; so if that is not known."""
        return self.joined_at is None or (self.fetched_at is not None and self.fetched_at >= self.joined_at)

    def looks_up(self, place: Partition, offset: int, now: float, *, is_end: bool, begins: bool) -> None:
        """It was told the end of a partition, or the offset of a time.

        Args:
            place: the partition.
            offset: the answer.
            now: in seconds on the coordinator's clock.
            is_end: whether it is the end.
            begins: whether it has not read the partition before.
        """
        known = self.looked_up.get(place)
        if known is None:
            if len(self.looked_up) >= _MOST_LOST:
                return
            known = self.looked_up[place] = LookedUp(begins=begins)
        known.offset, known.at, known.is_end = offset, now, is_end

    def may_rewind(self, place: Partition, now: float) -> bool:
        """Whether a Fetch from the beginning of a partition may be reported: each partition once in a while, and not if
        it had to go there."""
        return place not in self.lost and self.rewinds.add(place, now)

    def watch(self, place: Partition, watch: Watch) -> None:
        """Count the Fetches of a partition, as long as `watch` is kept."""
        if self.watched is None:
            self.watched = WeakValueDictionary()
        if self.watched.get(place) is not watch:
            watch.began = self.fetches
            self.watched[place] = watch

    def furthest(self) -> tuple[Position, ...]:
        """Up to where it has fetched watched partitions, of those of which it has got later records meanwhile, the
        first ones."""
        watched = islice((self.watched or {}).items(), _MOST_FURTHEST)
        return tuple(Position(*place, watch.furthest) for place, watch in watched if watch.furthest > watch.first)

    def given(self, now: float) -> tuple[Position, ...]:
        """Up to where its program has probably got records of watched partitions, of the first ones."""
        watched = islice((self.watched or {}).items(), _MOST_FURTHEST)
        return tuple(Position(*place, offset) for place, watch in watched if (offset := watch.given(now)) >= 0)

    def loses(self, place: Partition, offset: int, now: float) -> bool:
        """Whether a Fetch of an offset that is not in the log is to be reported: each partition once in a while, sooner
        if it got on meanwhile, and lost what was next again."""
        for each, (at, *_) in list(self.lost.items()):
            if now - at <= _LOST_SECONDS:
                break
            if each not in self.outside:
                del self.lost[each]
        known = self.lost.get(place)
        if known is None:
            return len(self.lost) < _MOST_LOST
        is_still = self.outside.get(place) == offset
        pause = _STILL_LOST_SECONDS if is_still else _LOST_AGAIN_SECONDS
        return (is_still or known[2].offset != offset) and now - known[0] >= pause


class ClientAddress(NamedTuple):
    """A client id and a host: nearly always those of one program.

    Attributes:
        client_id: its client id.
        host: its address, as Kafka prints it ("/127.0.0.1").
    """

    client_id: str
    host: str


class Clients:
    """The clients that have a connection, those with members and, by their number only, all others."""

    def __init__(self) -> None:
        self._clients: WeakValueDictionary[ClientAddress, SeenClient] = WeakValueDictionary()
        #: Connections of clients, whatever they ask for.
        self._open: dict[ClientAddress, int] = {}

    def opened(self, client: ClientAddress) -> Callable[[], None]:
        """A client has sent its first request on a connection; returns what is to be called when that is closed."""
        self._open[client] = self._open.get(client, 0) + 1
        return partial(self._closed, client)

    def _closed(self, client: ClientAddress) -> None:
        left = self._open.pop(client) - 1
        if left:
            self._open[client] = left

    def is_connected(self, client: ClientAddress) -> bool:
        """Whether a client has a connection, of any kind."""
        return client in self._open

    def get(self, client: ClientAddress) -> SeenClient:
        """A client; its connections keep it."""
        seen = self._clients.get(client)
        if seen is None:
            seen = self._clients[client] = SeenClient()
        return seen

    def find(self, client: ClientAddress) -> SeenClient | None:
        """A client, if it has a connection with a member."""
        return self._clients.get(client)


class Gone:
    """A member that has left or was removed, while its connection may still be open."""

    __slots__ = ("at", "group_id", "member")

    def __init__(self, group_id: str, member: Member, at: float) -> None:
        self.group_id = group_id
        self.member = member
        self.at = at


class OutsiderCommits:
    """Commits of a client to a group of which it is not a member, on one connection, since they were reported last.

    Attributes:
        total: commits on this connection.
        times: commits since the last report.
        backs: how many of these set offsets back.
        turns: how many of these set back what another such client had just committed.
    """

    __slots__ = ("_pause", "_reports", "_told_at", "backs", "times", "total", "turns")

    def __init__(self) -> None:
        self.total = self.times = self.backs = self.turns = 0
        self._told_at: float | None = None
        self._reports = 0
        self._pause = 0.0

    def add(self, *, goes_back: bool, in_turn: bool) -> None:
        """The client has committed."""
        self.total += 1
        self.times += 1
        self.backs += goes_back
        self.turns += in_turn

    def may_report(self, now: float) -> bool:
        """Whether a commit that goes back may be reported: the first ones of a series, then more and more seldom."""
        since = inf if self._told_at is None else now - self._told_at
        if since > 2 * max(self._pause, _BACK_SECONDS):
            self._reports, self._pause = 0, 0.0
        return since >= self._pause

    def reported(self, now: float) -> None:
        """The commits until now are reported."""
        self.times = self.backs = self.turns = 0
        self._told_at = now
        self._reports += 1
        if self._reports >= _FIRST_REPORTS:
            self._pause = min(max(2 * self._pause, _BACK_SECONDS), _LONGEST_PAUSE)


class Elsewhere(NamedTuple):
    """A group without members, to which a client commits in transactions.

    Attributes:
        group_id: the group.
        transactional_id: of the transactions.
        at: when the client committed last, in seconds on the coordinator's clock.
    """

    group_id: str
    transactional_id: str
    at: float


class CommitsElsewhere:
    """The groups without members to which clients commit in transactions: by host and topic, the newest ones."""

    def __init__(self) -> None:
        self._newest: Newest[tuple[str, str], Elsewhere] = Newest(_MOST_ELSEWHERE)

    def add(self, host: str, topics: Iterable[str], commit: Elsewhere) -> None:
        """A client has committed offsets of these topics."""
        for key in {(host, topic) for topic in topics}:
            self._newest[key] = commit

    def find(self, host: str, topics: Iterable[str], since: float) -> Elsewhere | None:
        """The newest commit of offsets of these topics that came from a host since then; None if there was none."""
        found = [each for topic in topics if (each := self._newest.get((host, topic))) is not None and each.at >= since]
        return max(found, key=lambda each: each.at, default=None)


class AskedTopics(NamedTuple):
    """The topics that a client has asked for by Metadata last.

    Attributes:
        missing: those that do not exist, the first ones.
        hidden: those that its user may not describe, the first ones.
        are_all: whether it has asked for all topics.
    """

    missing: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    are_all: bool = False


class MemberConnection:
    """A connection on which a member has sent requests.

    Args:
        client: of the connection.
        client_id: its client id.
        software: the name and version of the client library; "" if it has not sent them.
        closed: called when the connection is closed.
        listener: the name of the listener that accepted it; "" if that is not known.
        began_at: when it sent its first request about groups, in seconds on the coordinator's clock; None if that is
            not known.

    Attributes:
        client: of the connection.
        client_id: its client id.
        listener: the name of the listener that accepted it; "" if that is not known.
        software: the name and version of the client library; "" if it has not sent them.
        closed_at: when it was closed, in seconds on the coordinator's clock; None while it is open.
        closed_by: "client" or "broker".
        closed_error: why, if it was closed because of an error.
        members: group and member id of the members that use it, the first 16.
        gone: the members that used it and are gone, by group, the newest one of each.
        denied: the group that its user may not read, and when a request was last refused for that; None for none.
        sought: the group whose coordinator it has asked for, if that was not known; None for none.
        topics: those that it has asked for since then.
    """

    __slots__ = (
        "_began_at",
        "_closed",
        "_exceeded",
        "_outsider",
        "_refused",
        "_used",
        "client",
        "client_id",
        "closed_at",
        "closed_by",
        "closed_error",
        "denied",
        "gone",
        "listener",
        "members",
        "software",
        "sought",
        "topics",
    )

    def __init__(
        self,
        client: SeenClient,
        client_id: str,
        software: str,
        closed: Callable[["MemberConnection"], None],
        listener: str = "",
        began_at: float | None = None,
    ) -> None:
        self.client = client
        self._began_at = began_at
        self.client_id = client_id
        self.listener = listener
        self.software = software[:_MOST_CHARACTERS]
        self._closed = closed
        self._used = False
        self.closed_at: float | None = None
        self.closed_by = self.closed_error = ""
        self.members: dict[tuple[str, str], None] = {}
        self.gone: dict[str, Gone] = {}
        self.denied: tuple[str, float] | None = None
        self.sought: str | None = None
        self.topics = AskedTopics()
        #: What it has committed without being a member, by group, the last ones.
        self._outsider: Newest[str, OutsiderCommits] = Newest(_MOST_FOLLOWED)
        #: The groups of commits after the end of a log that were reported lately.
        self._exceeded: Lately[str] = Lately(_BACK_SECONDS, _MOST_FOLLOWED)
        #: The group, error and number of the last commits, if they were refused one after the other.
        self._refused: tuple[str, int, int] | None = None

    def commit_refused(self, group_id: str, code: int) -> int | None:
        """A commit was refused; returns how many were so in a row, if that is to be reported: 3, 30, 300 and so on."""
        group, error, number = self._refused or (group_id, code, 0)
        number = number + 1 if (group, error) == (group_id, code) else 1
        self._refused = group_id, code, number
        return number if str(number).rstrip("0") == "3" else None

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return bool(self.closed_by)

    def asked_for_topics(self, missing: Iterable[str], hidden: Iterable[str], *, are_all: bool) -> None:
        """The client has asked for topics, after it has asked for the coordinator of a group that is not known.

        Args:
            missing: those that do not exist.
            hidden: those that its user may not describe.
            are_all: whether it has asked for all topics.
        """
        found, denied = (
            tuple(name[:_MOST_OF_TOPIC] for name in islice(names, _MOST_TOPICS)) for names in (missing, hidden)
        )
        self.topics = AskedTopics(found, denied, are_all)

    def age_ms(self, now: float) -> float | None:
        """The time since its first request about groups; None if that is not known."""
        return _ago(self._began_at, now)

    def denied_ago_ms(self, group_id: str, now: float) -> float | None:
        """The time since its user was denied a group; None if that has not happened."""
        group, at = self.denied or ("", None)
        return _ago(at, now) if group == group_id else None

    def commit_accepted(self) -> None:
        """A commit was not refused."""
        self._refused = None

    def outsider(self, group_id: str) -> OutsiderCommits:
        """The commits to a group of which the client is not a member: a consumer without a subscription commits so."""
        known = self._outsider.get(group_id)
        if known is None:
            known = self._outsider[group_id] = OutsiderCommits()
        return known

    def exceeds(self, group_id: str, now: float) -> bool:
        """The client commits an offset after the end of a log; returns whether that is to be reported: of each group
        once in a while, and of 16 groups in that time."""
        return self._exceeded.add(group_id, now)

    def use(self, group_id: str, member_id: str) -> None:
        """A member sends requests on it."""
        if not self._used:
            self._used = True
            self.client.connections[self] = None
        if len(self.members) < _MOST_FOLLOWED:
            self.members[group_id, member_id] = None

    def lost(self, closed_by: str, error: str) -> None:
        """The connection is closed."""
        self.closed_by, self.closed_error = closed_by, error[:_MOST_CHARACTERS]
        if self._used:
            self.client.connections.pop(self, None)
            self._closed(self)


class Sight:
    """Requests and connection of a member, as they were seen.

    Attributes:
        member: its ids and address; None if it joined before a restart.
        connection: on which it sent its last request; None if that is not known.
        joined_at: when it joined, in seconds on the coordinator's clock; None if that was before a restart.
        committed_at: when it committed last; None for never.
        commits: how often it has committed.
        commits_seen: how often it had at the last look.
        often: its commits since it has committed often; None if it does not.
        back_at: when it was last reported that a commit of it went back; None for never.
        changes: what it has committed while it was new, of 30 partitions: the offset before that, None for none, and
            the last one; None for nothing.
        new_until: the end of the time in which it is new.
        transactional_id: in whose transactions it committed last; None for none.
        rebalance_timeout_ms: its rebalance timeout; None if unknown.
        session_ms: its session timeout; None if unknown.
        asked: the partitions whose committed offsets its client has asked for since it joined; None if that is not
            known, or if there are more than 64.
        returned_at: when it was last reported that it has connected again; None for never.
        closed_at: when it was last reported that its connection was closed; None for never.
        pause: for how many seconds its committed offsets last stood still while it read on; 0 for never.
    """

    __slots__ = (
        "asked",
        "back_at",
        "changes",
        "closed_at",
        "commits",
        "commits_seen",
        "committed_at",
        "connection",
        "joined_at",
        "member",
        "new_until",
        "often",
        "pause",
        "rebalance_timeout_ms",
        "returned_at",
        "session_ms",
        "transactional_id",
    )

    def __init__(self, member: Member | None, connection: MemberConnection | None, joined_at: float | None) -> None:
        self.member = member
        self.connection = connection
        self.joined_at = joined_at
        self.committed_at: float | None = None
        self.commits = self.commits_seen = 0
        self.often: OftenCommits | None = None
        self.back_at: float | None = None
        self.changes: dict[Partition, tuple[int | None, int]] | None = None
        self.new_until = -inf if joined_at is None else joined_at + _NEW_SECONDS
        self.transactional_id: str | None = None
        self.rebalance_timeout_ms: float | None = None
        self.session_ms: float | None = None
        self.asked: frozenset[Partition] | None = None if joined_at is None else frozenset()
        self.pause = 0.0
        self.returned_at: float | None = None
        self.closed_at: float | None = None

    def asks(self, places: Collection[Partition] | None) -> None:
        """Its client asks for committed offsets; None: for all that there are."""
        if self.asked is not None:
            asked = None if places is None else self.asked.union(places)
            self.asked = None if asked is None or len(asked) > _MOST_LOST else asked

    def changed(self, topic: str, partition: int, before: int | None, after: int) -> None:
        """It has committed an offset while it is new."""
        changes, place = self.changes, (topic, partition)
        if changes is None:
            changes = self.changes = {}
        known = changes.get(place)
        if known is not None:
            changes[place] = known[0], after
        elif len(changes) < _MOST_CHANGES:
            changes[place] = before, after


class Sightings:
    """Sightings of the members of one group.

    Attributes:
        rebalances: when the last rebalances were over, in seconds on the coordinator's clock.
        without_members: from when until when the group had no members, and none that is gone can have read on, before
            the first of the present ones joined; None if that is not known, or if there is no such time.
    """

    __slots__ = ("_group_id", "_had", "_members", "_quiet_from", "rebalances", "without_members")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        #: When members that are gone were last heard of that had asked for the committed offsets of these partitions.
        self._had: Newest[Partition, float] = Newest(_MOST_LOST)
        self._members: dict[str, Sight] = {}
        self.rebalances: tuple[float, ...] = ()
        self.without_members: tuple[float, float] | None = None
        #: From when on no member that is gone reads on, in seconds on the coordinator's clock; None if none is gone.
        self._quiet_from: float | None = None

    def rebalanced(self, now: float) -> None:
        """A rebalance is over: the members go on at the committed offsets of their partitions."""
        self.rebalances = (*self.rebalances, now)[-MOST_READS:]
        self.assigned(now)

    def get(self, member_id: str) -> Sight | None:
        """The sight of a member; None if it is not known."""
        return self._members.get(member_id)

    def heard(self, member_id: str, connection: MemberConnection | None) -> Member | None:
        """A member has sent a request that was not refused. It may use another connection than before.

        Returns:
            The member, if the one before was closed; None if :meth:`returns` need not be asked.
        """
        sight = self._members.get(member_id)
        if sight is None:
            # It joined before this broker coordinated the group.
            sight = self._members[member_id] = Sight(None, None, None)
        if sight.connection is not connection and connection is not None:
            if sight.connection is not None:
                sight.connection.members.pop((self._group_id, member_id), None)
            was_closed = sight.connection is not None and sight.connection.is_closed
            sight.connection = connection
            connection.use(self._group_id, member_id)
            return sight.member if was_closed else None
        return None

    def returns(self, member: Member, now: float, generation: int) -> MemberReconnected | None:
        """The event about a member that has connected again; None if it did so in the last minute, too."""
        sight = self._members.get(member.member_id or "")
        if sight is None or (sight.returned_at is not None and now - sight.returned_at < _RETURNED_SECONDS):
            return None
        sight.returned_at = now
        return MemberReconnected(generation=generation, member=member)

    def committed(self, member_id: str, now: float, transactional_id: str | None = None) -> Sight | None:
        """A member has committed offsets, in a transaction or not; returns its sight if it is new."""
        sight = self._members.get(member_id)
        if sight is None:
            return None
        sight.commits += 1
        sight.committed_at = now
        if transactional_id is not None:
            sight.transactional_id = transactional_id
        if now < sight.new_until:
            return sight
        sight.changes = None
        return None

    def asked(self, connection: MemberConnection | None, places: Collection[Partition] | None) -> None:
        """A client asks for committed offsets of the group, on any of its connections, of which 16 are looked at; None:
        for all that there are."""
        if connection is None:
            return
        client = connection.client
        for each in islice(client.connections, _MOST_FOLLOWED):
            for group_id, member_id in each.members:
                sight = self._members.get(member_id)
                if group_id == self._group_id and sight is not None:
                    new = () if places is None or sight.asked is None else set(places) - sight.asked
                    client.unread.update(islice(new, _MOST_LOST - len(client.unread)))
                    sight.asks(places)

    def has_asked(self, member_id: str, place: Partition) -> bool:
        """Whether the client of a member has asked for a committed offset since it joined; so if it is not known."""
        sight = self._members.get(member_id)
        if sight is None or sight.asked is None or sight.connection is None:
            return True
        if len(sight.connection.client.connections) > _MOST_FOLLOWED:
            return True
        return place in sight.asked or (self._group_id, member_id) not in sight.connection.members

    def assigned(self, now: float) -> None:
        """Partitions are assigned to the members."""
        for sight in self._members.values():
            if sight.connection is not None:
                sight.connection.client.gets(now)

    def owned(self, now: float, has_partitions: Callable[[str], bool], *, anew: bool) -> None:
        """All members own the partitions that are assigned to them.

        Args:
            now: the time.
            has_partitions: whether a member, by its id, has any; called for those that have not begun to read.
            anew: whether they had none before that.
        """
        for member_id, sight in self._members.items():
            client = None if sight.connection is None else sight.connection.client
            if client is None or client.has_begun or client.has_fetched:
                continue
            if not has_partitions(member_id):
                client.owns_since = None
            elif anew or client.owns_since is None:
                client.owns_since = now

    def had(self, place: Partition) -> float | None:
        """When a member that is gone was last heard of that had a partition; None if that is not known."""
        return self._had.get(place)

    def committing(self, least: float) -> dict[str, Sight]:
        """The sights of the members that have committed so often at least since the last call, by member id."""
        found = {}
        for member_id, sight in self._members.items():
            if sight.commits - sight.commits_seen >= least:
                found[member_id] = sight
            else:
                sight.often = None
            sight.commits_seen = sight.commits
        return found

    def goes_back(self, member_id: str, now: float) -> bool:
        """A member has committed an offset below the one before; returns whether that is to be reported."""
        sight = self._members.get(member_id)
        if sight is None or (sight.back_at is not None and now - sight.back_at < _BACK_SECONDS):
            return False
        sight.back_at = now
        return True

    def reads_on(self, member_id: str, places: Iterable[Partition]) -> SeenClient | None:
        """The client of a member whose commits go back again, if its Fetches of these partitions have gone on since
        they did so before; None if they went back too, or if that is not known. They are followed from now on."""
        sight = self._members.get(member_id)
        if sight is None or sight.connection is None or sight.connection.client.is_shared:
            return None
        client, now_back = sight.connection.client, list(islice(places, _MOST_CHANGES))
        before, client.commits_back = client.commits_back, {place: Watch() for place in now_back}
        goes_on = all(place in before and before[place].only_goes_on for place in now_back)
        return client if goes_on else None

    def complete(self, event: GroupEvent, connection: MemberConnection | None, now: float) -> GroupEvent:
        """An event with what has been seen of its member, which joins or goes with it.

        Args:
            event: of the group.
            connection: that of the request that causes it; None if none does, or if it is not known.
            now: the time, in seconds on the coordinator's clock.
        """
        if isinstance(event, MemberReplaced):
            seen = self._gone(event.old_member_id or "", event.member, now, now, has_left=False)
            self._joined(event, connection, now)
            return self._without_known(event, seen)
        if isinstance(event, MemberJoined):
            return self._with_connection(event, connection, now)
        if isinstance(event, Departure):
            sight = self._members.get(event.member.member_id or "")
            silent_ms = event.heard_ago_ms if isinstance(event, MemberExpired) else 0
            asked = isinstance(event, MemberLeft) and sight is not None and _is_of_program(connection, sight)
            heard_at = now - silent_ms / 1000
            seen = self._gone(event.member.member_id or "", event.member, now, heard_at, has_left=asked)
            if isinstance(event, MemberLeft) and sight is not None:
                if connection is not None and not asked:
                    seen["removed_by"] = connection.client_id
                if now < sight.new_until and sight.changes is not None:
                    seen["changes"] = tuple(OffsetChange(*place, *change) for place, change in sight.changes.items())
            return self._without_known(event, seen)
        if isinstance(event, MemberSlow):
            sight = self._members.get(event.member.member_id or "")
            if sight is not None and sight.connection is not None:
                event = event.changed(denied_ago_ms=sight.connection.denied_ago_ms(self._group_id, now))
            return event.changed(**self._connection_of(event.member.member_id or "", now))
        if isinstance(event, RejoinAwaited):
            return event.changed(**self._connection_of(event.member.member_id or "", now))
        if isinstance(event, InstanceInUse):
            return event.changed(**self._connection_of(event.owner.member_id or "", now))
        return event

    def _connection_of(self, member_id: str, now: float) -> dict[str, Any]:
        sight = self._members.get(member_id)
        if sight is None or sight.connection is None:
            return {}
        closed_at = sight.connection.closed_at
        return {"connection": OPEN if closed_at is None else CLOSED, "closed_ago_ms": _ago(closed_at, now)}

    @staticmethod
    def _without_known(event: E, seen: dict[str, Any]) -> E:
        """An event with what has been seen; what its machine says counts more."""
        known = event.values()
        return event.changed(**{name: value for name, value in seen.items() if name not in known})

    def closed(self, connection: MemberConnection, now: float, generation: int) -> list[MemberDisconnected]:
        """The events about a connection that was closed: of its members, or of those that were its members. A member
        of which one was closed in the last minute, too, has none.

        Args:
            connection: that was closed.
            now: the time.
            generation: of the group.
        """
        events: list[MemberDisconnected] = []
        how: dict[str, Any] = {"closed_by": connection.closed_by, "closed_error": connection.closed_error or None}
        for group_id, member_id in connection.members:
            sight = self._members.get(member_id)
            if group_id == self._group_id and sight is not None and sight.connection is connection and sight.member:
                if sight.closed_at is not None and now - sight.closed_at < _RETURNED_SECONDS:
                    continue
                sight.closed_at = now
                event = MemberDisconnected(generation=generation, member=sight.member, **how)
                events.append(event.changed(session_ms=sight.session_ms, age_ms=connection.age_ms(now)))
        gone = connection.gone.pop(self._group_id, None)
        if gone is not None:
            ago = (now - gone.at) * 1000
            events.append(MemberDisconnected(generation=generation, member=gone.member, gone_ago_ms=ago, **how))
        return events

    def _joined(self, event: MemberJoined | MemberReplaced, connection: MemberConnection | None, now: float) -> None:
        member_id = event.member.member_id or ""
        if not self._members:
            quiet_from = self._quiet_from
            self.without_members = (quiet_from, now) if quiet_from is not None and quiet_from < now else None
        sight = self._members[member_id] = Sight(event.member, connection, now)
        sight.session_ms, sight.rebalance_timeout_ms = event.session_ms, event.rebalance_timeout_ms
        if connection is not None:
            connection.use(self._group_id, member_id)
            connection.client.joins(now)

    def _with_connection(self, event: MemberJoined, connection: MemberConnection | None, now: float) -> MemberJoined:
        self._joined(event, connection, now)
        if connection is None:
            return event
        software = connection.software or None
        before = connection.gone.pop(self._group_id, None)
        if before is None:
            return event.changed(software=software)
        rejoined = (now - before.at) * 1000
        return event.changed(software=software, old_member_id=before.member.member_id, rejoined_ms=rejoined)

    def _gone(self, member_id: str, member: Member, now: float, heard_at: float, *, has_left: bool) -> dict[str, Any]:
        """Forget a member that was last heard of then; returns what has been seen of it, as fields of its last
        event."""
        sight = self._members.pop(member_id, None)
        if sight is None:
            return {}
        fields: dict[str, Any] = {
            "joined_ago_ms": _ago(sight.joined_at, now),
            "committed_ago_ms": _ago(sight.committed_at, now),
            "commits": sight.commits or None,
            "transactional_id": sight.transactional_id,
            "rebalance_timeout_ms": sight.rebalance_timeout_ms,
            "session_ms": sight.session_ms,
        }
        connection = sight.connection
        if connection is not None and connection.closed_at is not None:
            heard_at = min(heard_at, connection.closed_at)
        for place in sight.asked or ():
            self._had[place] = heard_at
        is_sure = has_left or (connection is not None and connection.closed_at is not None)
        quiet_from = heard_at if is_sure else now + _READS_ON_SECONDS
        self._quiet_from = quiet_from if self._quiet_from is None else max(self._quiet_from, quiet_from)
        if connection is not None:
            if not connection.client.is_shared:
                fields["fetched_ago_ms"] = _ago(connection.client.fetched_at, now)
                fields["furthest"] = connection.client.furthest() or None
                if has_left:  # otherwise the event may be one of a member that is replaced, which has no such field
                    fields["given"] = connection.client.given(now) or None
            connection.members.pop((self._group_id, member_id), None)
            fields["software"] = connection.software or None
            fields["denied_ago_ms"] = connection.denied_ago_ms(self._group_id, now)
            if connection.closed_at is None:
                fields["connection"] = OPEN
                if len(connection.gone) < _MOST_FOLLOWED or self._group_id in connection.gone:
                    connection.gone[self._group_id] = Gone(self._group_id, member, now)
            else:
                fields["connection"] = CLOSED
                fields["closed_ago_ms"] = _ago(connection.closed_at, now)
                fields["closed_by"] = connection.closed_by
                fields["closed_error"] = connection.closed_error or None
        return fields


def _ago(at: float | None, now: float) -> float | None:
    return None if at is None else max(now - at, 0.0) * 1000


def _is_of_program(connection: MemberConnection | None, sight: Sight) -> bool:
    """Whether a request on a connection comes from the program of a member, as far as is known.

    A client that ends while its JoinGroup waits for the response leaves on another connection.
    """
    known = sight.connection
    return connection is None or connection is known or (known is not None and connection.client is known.client)
