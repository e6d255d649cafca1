"""Looks for committed offsets that stand still while records wait, for lag that grows, for transactions of which all
are aborted, and for members that commit each record by itself, or all but the last one; regularly, one step per
iteration of the loop.

A shell around :mod:`groups.stuck`, :mod:`groups.lag`, :mod:`groups.aborted`, :mod:`groups.often` and
:mod:`groups.one_behind`.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Any, Final

from barnabas_broker.coordinators.timed_out import TimedOut, TimedOutTransactions
from barnabas_broker.groups.aborted import AbortedRead, OnlyAborted
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_broker.groups.coordinator.hosting import HostedGroup, HostedGroups
from barnabas_broker.groups.coordinator.readers import readers
from barnabas_broker.groups.fetch_reports import FetchQuestions
from barnabas_broker.groups.lag import GrowingLags, Growth
from barnabas_broker.groups.often import LEAST_PER_SECOND, OftenCommits
from barnabas_broker.groups.one_behind import OneBehind
from barnabas_broker.groups.ports import OtherBrokers, ReadLogs
from barnabas_broker.groups.sightings import ClientAddress, Clients, CommitsElsewhere, SeenClient, Sight
from barnabas_broker.groups.stuck import NOTHING, Standing, StandingOffsets
from barnabas_broker.groups.watched import OfPartitions
from barnabas_explain.catalog import (
    UNTAKEN,
    WAITS_MS,
    AbortedRecordsRead,
    BrokerNotReached,
    CommitsLastRecord,
    CommitsOften,
    LagGrows,
    NothingCommitted,
    NothingFetched,
    OffsetsStuck,
    RecordsAborted,
    poll_interval,
)
from barnabas_explain.lags import MOST_OF, NEARLY_ALL, Lags
from barnabas_explain.members import Member, MemberLag, Partition, Position, by_topic
from barnabas_protocol.group_records import Committed

#: Seconds between two looks.
_MOST_SECONDS: Final = 30.0
_LEAST_SECONDS: Final = 0.5
#: A client that works through many records sends a Fetch once in so many seconds; others wait for records all the time.
_SELDOM_SECONDS: Final = 5.0
#: A quota may slow a group down if it has made a member wait within so many seconds.
_THROTTLED_SECONDS: Final = 60.0
#: A leader has answered the first question about a client after so many looks.
_LATE_LOOKS: Final = 3
#: Groups, partitions and members that one step looks at; a partition whose batches are read counts as many.
_STEP: Final = 200
_READ: Final = 20
#: Events of one look at a group, and partitions that one of them lists.
_MOST_EVENTS: Final = 20
_MOST_LISTED: Final = 20
#: Partitions of an event whose batches are looked at.
_MOST_CODECS: Final = 3
#: A client whose Fetch was outside of the log asks where to go on within so many seconds.
_ASKS_SECONDS: Final = 10.0
#: Groups whose members have one client id and host.
_MOST_ALIKE: Final = 16
#: The partitions of a member whose transactions are aborted are one event, however it fetches them.
_ABORTED: Final = "aborted"
#: An offset of a member that reads on may stand still for so many times the pause before its last commit.
_USUAL_PAUSES: Final = 2.5
#: Seconds of a batch, if max.poll.interval.ms allows it; and of the member that has nearly all of the lag.
_LONGEST_BATCH: Final = 1_800.0
_LONGEST_BATCH_BEHIND: Final = 600.0
#: The least records that such a member has.
_LEAST_BEHIND: Final = 100


class StuckCheck:
    """Looks at all groups of this broker.

    Args:
        hosted_groups: the groups.
        logs: the logs that they read; None: nothing is looked for.
        clients: the clients that have a connection.
        elsewhere: the groups without members to which clients commit in transactions.
        timed_out: the transactional ids whose transactions are aborted by their timeout, on this broker.
        others: the other brokers, which see the Fetches of the partitions that they lead; None without any.
        patience: ``group.stuck.offset.ms`` in seconds.
    """

    def __init__(
        self,
        hosted_groups: HostedGroups,
        logs: ReadLogs | None,
        clients: Clients,
        elsewhere: CommitsElsewhere,
        timed_out: TimedOutTransactions,
        others: OtherBrokers | None,
        patience: float,
    ) -> None:
        self.armed = inf
        self._hosted_groups = hosted_groups
        self._logs = logs
        self._clients = clients
        self._elsewhere = elsewhere
        self._timed_out = timed_out
        self._others = others
        self._patience = patience
        self._interval = min(max(patience / 10, _LEAST_SECONDS), _MOST_SECONDS)
        self._next = inf if logs is None else hosted_groups.now() + self._interval
        self._standing = StandingOffsets()
        self._lags = GrowingLags(patience)
        self._aborted: OfPartitions[OnlyAborted] = OfPartitions()
        self._aborted_read: OfPartitions[AbortedRead] = OfPartitions()
        self._one_behind: OfPartitions[OneBehind] = OfPartitions()
        self._runs = False
        #: Other brokers see the Fetches of the partitions that they lead; their answers count in the next look.
        self._questions = FetchQuestions(clients, logs, others, hosted_groups.now)
        #: Groups, partitions and members that were looked at since the last step.
        self._looked = 0

    def next_deadline(self) -> float:
        return self._next

    def fire(self, now: float) -> None:
        self._next = now + self._interval
        if not self._runs and self._logs is not None:
            self._runs = True
            self._hosted_groups.runtime.gradually(self._look_at_all(self._logs))

    def _look_at_all(self, logs: ReadLogs) -> Iterator[None]:
        by_id = self._hosted_groups.by_id
        self._questions.begin()
        try:
            for group_id in list(by_id):
                if self._is_long():
                    yield
                hosted = by_id.get(group_id)
                if hosted is not None and hosted.change is None and len(hosted.group.members):
                    yield from self._look(hosted, logs)
            for watched in (self._standing, self._lags, self._aborted, self._aborted_read, self._one_behind):
                for group_id in watched.groups():
                    if self._is_long():
                        yield
                    hosted = by_id.get(group_id)
                    if hosted is None or not len(hosted.group.members):
                        watched.forget(group_id)
            yield from self._questions.ask()
        finally:
            self._runs = False  # a look that fails is not the last one

    def _is_long(self, looked: int = 1) -> bool:
        """Whether a step has looked at enough, with so many further ones."""
        self._looked += looked
        if self._looked < _STEP:
            return False
        self._looked = 0
        return True

    def _look(self, hosted: HostedGroup, logs: ReadLogs) -> Iterator[None]:
        """Look at one group with members, unless it rebalances."""
        group, name, now = hosted.group, hosted.name, self._hosted_groups.now()
        if group.state not in (ClassicGroupState.STABLE, ConsumerGroupState.STABLE):
            return
        generation = group.generation
        waiting: dict[Partition, int] = {}
        #: The same of partitions whose next record was deleted, while later ones wait.
        deleted: dict[Partition, int] = {}
        #: The partitions with committed offsets, those of them whose ends this broker knows, and the sums of both.
        committed_in, known = 0, list[Partition]()
        sum_of_offsets = sum_of_ends = 0
        aborted: dict[Partition, OnlyAborted] = {}
        before = self._aborted.of(name)
        passed: dict[Partition, AbortedRead] = {}
        passed_before = self._aborted_read.of(name)
        one_behind: dict[Partition, OneBehind] = {}
        # Whether members keep up does not show in topics that they do not read any more.
        subscribed = {topic for topic in hosted.offsets.topics if hosted.subscribes_to(topic)}
        for topic, commits in list(hosted.offsets.topics.items()):
            for number, committed in list(commits.items()):
                readable = logs.readable(topic, number)
                self._questions.add_log((topic, number))
                committed_in += 1
                if readable is not None and (topic in subscribed or not subscribed):
                    known.append((topic, number))
                    sum_of_offsets += committed.offset
                    sum_of_ends += max(readable[1], committed.offset)
                if readable is not None:
                    place = topic, number
                    read = self._aborted_reads(passed_before.get(place), place, committed.offset, logs, now)
                    if read is not None:
                        passed[place] = read
                is_before_end = readable is not None and readable[0] <= committed.offset < readable[1]
                # Who waits for a transaction that has committed this partition has an explanation of its own.
                if readable is not None and is_before_end and not hosted.offsets.is_pending(topic, number):
                    waiting[topic, number] = committed.offset
                    each_behind = self._look_behind(name, (topic, number), committed, readable[1], now)
                    if each_behind is not None:
                        one_behind[topic, number] = each_behind
                elif readable is not None and committed.offset < readable[0] < readable[1]:
                    deleted[topic, number] = committed.offset
                if readable is not None and (is_before_end or (topic, number) in before):
                    only = self._only_aborted(before.get((topic, number)), (topic, number), committed.offset, logs, now)
                    if only is not None:
                        aborted[topic, number] = only
                    if self._is_long(_READ):
                        yield
                elif self._is_long():
                    yield
        owners: dict[Partition, Member] = {}
        if known:
            lag = sum_of_ends - sum_of_offsets
            growth = self._lags.look(name, hash(tuple(known)), sum_of_offsets, lag, now)
            if growth is not None:
                yield from self._owners(hosted, owners)
                theirs = {place: offset for place, offset in waiting.items() if place[0] in subscribed} or waiting
                lags = yield from self._count_lags(theirs, owners, logs)
                stood = min(growth.seconds / 2, self._patience)
                spread, throttled = self._spread(hosted, lags, theirs, stood, now), self._throttled(owners, now)
                spread = {**spread, "written_there": self._written_there(name, theirs, lags, growth, logs, stood, now)}
                event = _lag_grows(generation, growth, len(known), committed_in, throttled, spread)
                is_read = lags.most() is None and not throttled and self._is_read(name, theirs, lags, stood, now)
                if self._hosted_groups.by_id.get(name) is hosted and not is_read:
                    self._hosted_groups.publish(name, event)
        if often := hosted.sightings.committing(LEAST_PER_SECOND * self._interval):
            if not owners:
                yield from self._owners(hosted, owners)
            yield from self._look_at_commits(hosted, often, owners, now)
        self._one_behind.put(name, one_behind)
        if any(each.is_found(now, self._patience) for each in one_behind.values()):
            self._publish_behind(hosted, one_behind, now)
        self._aborted.put(name, aborted)
        due = {place: each for place, each in aborted.items() if each.is_due(now, self._patience)}
        if due:
            if not owners:
                yield from self._owners(hosted, owners)
            due = {place: each for place, each in due.items() if self._is_committed(owners.get(place))}
            if due and self._hosted_groups.by_id.get(name) is hosted:
                self._publish_aborted(hosted, due, now)
        if any(each.is_due(now, self._patience) for each in passed.values()):
            if not owners:
                yield from self._owners(hosted, owners)
            if self._hosted_groups.by_id.get(name) is hosted:
                self._publish_aborted_read(hosted, passed, owners, now)
        self._aborted_read.put(name, passed)
        if self._lacks_commits(hosted):
            if not owners:
                yield from self._owners(hosted, owners)
            for place in owners:
                has_commit = self._has_commit(hosted, place)
                readable = None if has_commit else logs.readable(*place)
                if not has_commit:
                    self._questions.add_log(place)
                if readable is not None and readable[0] < readable[1]:
                    waiting[place] = NOTHING
                if self._is_long():
                    yield
        ended = self._standing.look(name, {**waiting, **deleted}, generation, now)
        for each in ended:
            owner_sight = None if each.owner is None else hosted.sightings.get(each.owner.member_id or "")
            if owner_sight is not None and each.is_read_on:
                owner_sight.pause = now - each.since
        if self._is_long(len(waiting)):
            yield
        standing = self._standing.of(name)
        if all(each.since >= now for each in standing.values()) and all(each.looks < 2 for each in one_behind.values()):
            return
        if not owners:
            yield from self._owners(hosted, owners)
        if self._hosted_groups.by_id.get(name) is not hosted or group.generation != generation:
            return
        self._standing.owned(name, owners, logs.leader, generation, now)
        apart: dict[tuple[ClientAddress, str], bool] = {}
        for place, each in standing.items():
            client = self._client(each.owner)
            if client is None or each.owner is None:
                continue
            if client.member_at:
                self._questions.ask_again(_address(each.owner), client)
            one = _address(each.owner), place[0]
            if one not in apart:
                apart[one] = self._is_told_apart(client, name, place[0])
            if not apart[one]:
                each.is_clear = False
                if each.end is None:
                    each.end = (logs.readable(*place) or (0, None))[1]
            else:
                client.watch(place, each.watch)
                if each.is_due(now + self._interval, self._patience):
                    self._questions.add_log(place, _first_waiting(each, logs.readable(*place)))
                self._questions.add(_address(each.owner), place, each)
        yield
        behind = None
        if any(now - each.since >= self._patience for each in standing.values()):
            lags = yield from self._count_lags(waiting, owners, logs)
            behind = self._behind_alone(hosted, lags, now)
        yield from self._report(hosted, standing, owners, logs, behind, now)

    def _lacks_commits(self, hosted: HostedGroup) -> bool:
        """Whether the group has no committed offset, or not of all partitions of a topic."""
        topics = self._hosted_groups.consumer_settings.topics.by_name
        for name, commits in hosted.offsets.topics.items():
            topic = topics.get(name)
            if topic is not None and len(commits) < topic.partitions:
                return True
        return not hosted.offsets

    @staticmethod
    def _has_commit(hosted: HostedGroup, place: Partition) -> bool:
        return hosted.offsets.find(*place) is not None or hosted.offsets.is_pending(*place)

    def _count_lags(
        self, waiting: Mapping[Partition, int], owners: Mapping[Partition, Member], logs: ReadLogs
    ) -> Generator[None, None, Lags]:
        """The lag of a group by member."""
        lags = Lags()
        for place, owner in owners.items():
            offset, readable = waiting.get(place, NOTHING), logs.readable(*place)
            lags.add(owner, place, 0 if offset == NOTHING or readable is None else max(readable[1] - offset, 0))
            if self._is_long():
                yield
        return lags

    def _is_read(self, name: str, waiting: Mapping[Partition, int], lags: Lags, stood: float, now: float) -> bool:
        """Whether nearly all of the lag of a group is fetched, in partitions whose committed offsets have stood still
        for so many seconds: its members read as fast as is written, and do not commit there."""
        read = 0
        for place, each in self._standing.of(name).items():
            if each.is_clear and each.offset == waiting.get(place) and now - each.since >= stood:
                lag, fetched = lags.of(place), each.watch.furthest - each.offset
                read += lag if fetched >= lag * NEARLY_ALL else 0
        return read >= lags.total * NEARLY_ALL

    def _spread(
        self, hosted: HostedGroup, lags: Lags, waiting: Mapping[Partition, int], stood_for: float, now: float
    ) -> Mapping[str, Any]:
        """The members of a group and what they have of its lag, as fields of an event; offsets that have not moved for
        so many seconds stand still."""
        members = len(hosted.group.members)
        spread = {"members": members, "idle": members - lags.working, "owned": lags.owned}
        most, standing = lags.most(), self._standing.of(hosted.name)
        if most is None:
            still = {
                place: now - each.since
                for place, each in standing.items()
                if each.owner is not None and each.offset == waiting.get(place) and now - each.since >= stood_for
            }
            return {**spread, "behind": _where_offsets_stand(lags, still, waiting)}
        if most.member is None:
            return spread
        places = most.partitions[:_MOST_LISTED]
        stood = [
            now - each.since if each is not None and each.is_known and each.offset == waiting[place] else 0
            for place, each in ((place, standing.get(place)) for place in places)
        ]
        positions = tuple(Position(*place, waiting[place]) for place in places)
        stood_ms = min(stood) * 1000 if min(stood) >= stood_for else None
        return {**spread, "behind": (MemberLag(most.member, most.lag, positions, stood_ms),)}

    def _written_there(
        self,
        name: str,
        waiting: Mapping[Partition, int],
        lags: Lags,
        growth: Growth,
        logs: ReadLogs,
        stood_for: float,
        now: float,
    ) -> int | None:
        """The records that came, while the lag of a group grew, to the partition that has nearly all of it, if its
        committed offset moves; None if there is no such partition, or if that is not known."""
        most = lags.most()
        if most is None or not most.is_hot:
            return None
        (place,) = most.partitions
        standing, readable = self._standing.of(name).get(place), logs.readable(*place)
        if standing is not None and standing.offset == waiting.get(place) and now - standing.since >= stood_for:
            return None
        first = logs.since(*place, self._hosted_groups.wall_ms() - round(growth.seconds * 1000))
        return None if first is None or readable is None else min(max(readable[1] - first, 0), growth.written)

    def _behind_alone(self, hosted: HostedGroup, lags: Lags, now: float) -> Member | None:
        """The member that has nearly all of the lag, while others have committed lately; None if there is none."""
        most = lags.most()
        if most is None or most.member is None or most.lag < _LEAST_BEHIND:
            return None
        others = (hosted.sightings.get(each.member_id or "") for each in lags.members if each != most.member)
        commits = (each.committed_at for each in others if each is not None)
        lately = any(at is not None and now - at < self._patience for at in commits)
        return most.member if lately else None

    def _look_at_commits(
        self, hosted: HostedGroup, often: Mapping[str, Sight], owners: Mapping[Partition, Member], now: float
    ) -> Iterator[None]:
        """Report the members that commit nearly each record by itself, of those that commit often."""
        owned: dict[Member, list[Partition]] = {}
        for place, owner in owners.items():
            if owner.member_id in often:
                owned.setdefault(owner, []).append(place)
        for member, places in owned.items():
            commits = [hosted.offsets.find(*place) for place in places]
            offset = sum(0 if each is None else each.offset for each in commits)
            known, sight = hash(tuple(places)), often[member.member_id or ""]
            if sight.often is None or sight.often.partitions != known:
                sight.often = OftenCommits(known, offset, sight.commits, now)
            elif sight.often.look(offset, sight.commits, now, self._patience):
                event = CommitsOften(
                    generation=hosted.group.generation,
                    member=member,
                    commits=sight.often.commits,
                    records=sight.often.records,
                    took_ms=sight.often.seconds * 1000,
                    transactional_id=sight.transactional_id,
                )
                if self._hosted_groups.by_id.get(hosted.name) is hosted:
                    self._hosted_groups.publish(hosted.name, event)
            if self._is_long(len(places)):
                yield

    def _look_behind(self, name: str, place: Partition, committed: Committed, end: int, now: float) -> OneBehind | None:
        """A partition with records that wait, if one was left over in this look or in those before."""
        known = self._one_behind.of(name).get(place)
        if committed.offset + 1 == end:
            known = known or OneBehind(now)
            committed_at = now - (self._hosted_groups.wall_ms() - committed.commit_ms) / 1000
            known.look(committed.offset, committed_at, self._standing.of(name).get(place), now)
        return known

    def _publish_behind(self, hosted: HostedGroup, found: Mapping[Partition, OneBehind], now: float) -> None:
        """Report the members that commit all but the last record, each with its partitions."""
        of_members: dict[Member, dict[Partition, OneBehind]] = {}
        for place, each in found.items():
            if each.owner is not None and each.is_found(now, self._patience):
                of_members.setdefault(each.owner, {})[place] = each
        for owner, places in list(of_members.items())[:_MOST_EVENTS]:
            event = CommitsLastRecord(
                generation=hosted.group.generation,
                member=owner,
                partitions=by_topic(list(places)[:_MOST_LISTED]),
                times=min(each.times for each in places.values()),
                took_ms=min(now - each.since for each in places.values()) * 1000,
            )
            self._hosted_groups.publish(hosted.name, event)
            for each in places.values():
                each.told_at = now

    def _client(self, owner: Member | None) -> SeenClient | None:
        """The client of a member; None if it has no connection."""
        client = None if owner is None else self._clients.find(_address(owner))
        return client if client is not None and client.connections else None

    def _throttled(self, owners: Mapping[Partition, Member], now: float) -> tuple[str, ...] | None:
        """The client ids of members that a quota has made wait; None if there are none."""
        found = set()
        for owner in set(owners.values()):
            client = self._client(owner)
            at = None if client is None else client.throttled_at
            if at is not None and now - at <= _THROTTLED_SECONDS:
                found.add(owner.client_id or "")
        return tuple(sorted(found)[:_MOST_LISTED]) or None

    def _only_aborted(
        self, known: OnlyAborted | None, place: Partition, committed: int, logs: ReadLogs, now: float
    ) -> OnlyAborted | None:
        """A partition of which a ``read_committed`` group got nothing but aborted records since the last look."""
        start, end = logs.readable(*place) or (0, 0)
        offset = committed if known is None else max(known.end, start)
        more = logs.aborted(*place, offset) if offset < end else None
        if more is None and (known is None or offset < end):
            return None
        only = OnlyAborted(now, committed) if known is None else known
        if more is not None:
            only.add(more[0], end, more[2])
        if more is not None or committed < end:
            only.until = now
        return only if now - only.until <= self._patience else None

    @staticmethod
    def _aborted_reads(
        known: AbortedRead | None, place: Partition, committed: int, logs: ReadLogs, now: float
    ) -> AbortedRead | None:
        """A partition with aborted transactions, with those whose markers a group has passed since the last look."""
        start = committed if known is None else min(known.offset, committed)
        more = logs.aborted_between(*place, start, committed)
        if more is None:
            return None
        read = AbortedRead(now, committed) if known is None else known
        read.offset = committed
        read.add(*more)
        return read

    def _publish_aborted_read(
        self, hosted: HostedGroup, passed: dict[Partition, AbortedRead], owners: Mapping[Partition, Member], now: float
    ) -> None:
        """Report members that are given records of aborted transactions; of others, begin to count anew."""
        of_members: dict[Member, dict[Partition, AbortedRead]] = {}
        for place, read in list(passed.items()):
            if read.is_due(now, self._patience):
                owner = owners.get(place)
                client = self._client_alone(owner)
                if owner is not None and client is not None and client.is_committed is None:
                    self._questions.add(_address(owner))
                elif owner is None or client is None or client.is_committed:
                    del passed[place]
                else:
                    of_members.setdefault(owner, {})[place] = read
        for owner, reads in list(of_members.items())[:_MOST_EVENTS]:
            ids = dict.fromkeys(each for read in reads.values() for each in read.transactional_ids)
            event = AbortedRecordsRead(
                generation=hosted.group.generation,
                member=owner,
                partitions=by_topic(list(reads)[:_MOST_LISTED]),
                transactions=sum(read.transactions for read in reads.values()),
                took_ms=max(now - read.since for read in reads.values()) * 1000,
                transactional_ids=tuple(ids)[:_MOST_LISTED] or None,
            )
            self._hosted_groups.publish(hosted.name, event)
            for read in reads.values():
                read.told_at, read.told = now, read.transactions

    def _is_committed(self, owner: Member | None) -> bool:
        """Whether the client of a member is ``read_committed``."""
        client = self._client(owner)
        return client is not None and bool(client.is_committed)

    def _publish_aborted(self, hosted: HostedGroup, found: Mapping[Partition, OnlyAborted], now: float) -> None:
        ids = dict.fromkeys(each for only in found.values() for each in only.transactional_ids)
        event = RecordsAborted(
            generation=hosted.group.generation,
            partitions=by_topic(list(found)[:_MOST_LISTED]),
            records=sum(only.records for only in found.values()),
            took_ms=min(now - only.since for only in found.values()) * 1000,
            transactional_ids=tuple(ids)[:_MOST_LISTED] or None,
        )
        self._hosted_groups.publish(hosted.name, event)
        for only in found.values():
            only.told_at = now

    def _is_told_apart(self, client: SeenClient, group_id: str, topic: str) -> bool:
        """Whether Fetches of a topic by this client are those of the group's members: of the other groups whose members
        have its client id and host, as on a laptop where each program has its library's client id, none reads the
        topic. In the group, each partition has one member."""
        groups = client.groups if client.is_shared else frozenset[str]()
        if groups is None or len(groups) > _MOST_ALIKE:
            return False
        others = (self._hosted_groups.by_id.get(each) for each in groups if each != group_id)
        return not any(other is not None and other.group.is_subscribed_to(topic) for other in others)

    def _client_alone(self, owner: Member | None) -> SeenClient | None:
        """The client of a member; None if it has no connection, or if other members have its client id and host."""
        client = self._client(owner)
        return None if client is None or client.is_shared else client

    def _owners(self, hosted: HostedGroup, owners: dict[Partition, Member]) -> Iterator[None]:
        topics = self._hosted_groups.consumer_settings.topics.by_id

        def name(topic_id: bytes) -> str | None:
            topic = topics.get(topic_id)
            return None if topic is None else topic.name

        for reader in readers(hosted.group, name):
            owners.update(dict.fromkeys(reader.partitions, reader.member))
            if self._is_long():
                yield

    def _report(
        self,
        hosted: HostedGroup,
        standing: Mapping[Partition, Standing],
        owners: Mapping[Partition, Member],
        logs: ReadLogs,
        behind: Member | None,
        now: float,
    ) -> Iterator[None]:
        """Report the partitions whose offsets have stood still for long enough, those of a member together.

        Args:
            hosted: the group.
            standing: its partitions.
            owners: of all partitions of the group.
            logs: those that it reads.
            behind: the member that has nearly all of the lag, while others keep up; None if there is none.
            now: in seconds on the coordinator's clock.
        """
        yield from self._report_unreached(hosted, standing, logs, now)
        found: dict[tuple[str | None, str, Partition | None, bool, bool], list[tuple[Partition, Standing]]] = {}
        aborted: dict[str | None, TimedOut] = {}
        moving = {each.owner for each in standing.values() if each.has_moved and now - each.since < self._patience}
        for place, each in list(standing.items()):
            owner = each.owner
            sight = None if owner is None else hosted.sightings.get(owner.member_id or "")
            fetches = _fetches(each, hosted.sightings.rebalances, now)
            if fetches == "none" and owner is not None and not hosted.sightings.has_asked(owner.member_id or "", place):
                fetches = UNTAKEN
            is_behind = owner is not None and owner == behind
            if self._is_left(hosted, place, each, now):
                continue
            if owner is None or not each.is_due(now, self._patience_with(sight, fetches, is_behind=is_behind)):
                continue
            client = self._client(owner)
            if client is None:
                continue  # Its connection was closed: that is another disease, or it has just ended.
            if each.is_clear and not each.is_counted(now):
                continue  # Another broker leads the partition, and has not said what it has seen of its Fetches.
            if client.is_denied(place[0], now):
                continue  # Its Fetches are refused, which is reported.
            is_deleted = _is_deleted(each, logs.readable(*place))
            if is_deleted and fetches not in ("none", UNTAKEN):
                continue  # It may have gone on after what was deleted.
            if each.offset == NOTHING and fetches == "none":
                is_idle = not hosted.offsets and not self._has_fetched(owner, sight)
                if not is_idle and not self._leaves_out(owner, place, each, now):
                    continue
            timed_out = self._aborts(owner, sight, each)
            is_known = fetches in ("none", UNTAKEN, "beyond") or (fetches == "again" and not each.watch.gets_past)
            if each.offset == NOTHING and not is_known and timed_out is None:
                readable = logs.readable(*place)
                if hosted.offsets or each.end is None or readable is None or readable[1] <= each.end:
                    continue  # It may have had nothing to read, or it begins anew each time on purpose.
            if fetches == "none" and owner in moving and self._fetches_seldom(each, now):
                continue  # It works through the records of another partition: aiokafka reads one after the other.
            # What a member has fetched was there.
            is_read = each.offset == NOTHING and fetches not in ("none", UNTAKEN)
            has_records = is_read or logs.has_records(*place, _first_waiting(each, logs.readable(*place)))
            yield
            if has_records is None:
                continue
            each.told_at = now
            if has_records and timed_out is not None:
                aborted[owner.member_id] = timed_out
                found.setdefault((owner.member_id, _ABORTED, None, False, False), []).append((place, each))
            elif has_records:
                # What makes a member wait makes it wait in all of its partitions.
                alone = place if fetches == "again" and each.watch.pause * 1000 < WAITS_MS else None
                alike = owner.member_id, fetches, alone, is_deleted, each.offset == NOTHING
                found.setdefault(alike, []).append((place, each))
        if self._hosted_groups.by_id.get(hosted.name) is not hosted:
            return
        for (member_id, fetches, *_), places in list(found.items())[:_MOST_EVENTS]:
            if fetches == _ABORTED:
                self._publish(hosted, "again", places, owners, logs, behind, now, aborted[member_id])
            else:
                self._publish(hosted, fetches, places, owners, logs, behind, now)

    def _is_left(self, hosted: HostedGroup, place: Partition, standing: Standing, now: float) -> bool:
        """Whether the last Fetch of a partition by its member was refused, because the record at the committed offset
        was deleted; that is reported when it has gone on nowhere for some seconds."""
        client = self._client(standing.owner)
        if client is None or client.outside.get(place) != standing.offset or place not in client.lost:
            return False
        at, group_id, lost = client.lost[place]
        is_seen = not standing.is_clear or (standing.is_counted(now) and not standing.is_read_on)
        is_long = now - at >= min(self._patience, _ASKS_SECONDS)
        if group_id == hosted.name and lost.left_ms is None and is_seen and is_long:
            left = lost.changed(left_ms=(now - at) * 1000)
            client.lost[place] = at, group_id, left
            if self._hosted_groups.by_id.get(group_id) is hosted:
                self._hosted_groups.publish(group_id, left)
        return True

    def _report_unreached(
        self, hosted: HostedGroup, standing: Mapping[Partition, Standing], logs: ReadLogs, now: float
    ) -> Iterator[None]:
        """Report the members that fetch nothing of the partitions that a broker leads, are not connected to it, and
        fetch others: they probably do not reach it.

        Those that fetch nothing at all belong to these if others are alike, and otherwise stand still.
        """
        found: dict[int, dict[Member, list[tuple[Partition, Standing]]]] = {}
        for place, each in list(standing.items()):
            if each.owner is not None and each.leader is not None and self._is_unreached(hosted, place, each, now):
                if logs.has_records(*place, _first_waiting(each, logs.readable(*place))):
                    found.setdefault(each.leader.node_id, {}).setdefault(each.owner, []).append((place, each))
                yield
        if self._hosted_groups.by_id.get(hosted.name) is not hosted:
            return
        for node_id, members in list(found.items())[:_MOST_EVENTS]:
            all_of_them = [each for places in members.values() for _, each in places]
            if not any(each.is_due(now, self._patience) for each in all_of_them):
                continue
            if not any(self._fetches_others(member, places[0][1], now) for member, places in members.items()):
                continue
            for each in all_of_them:
                each.told_at = now
            some = list(members.items())[:_MOST_LISTED]
            event = BrokerNotReached(
                generation=hosted.group.generation,
                broker=node_id,
                address=self._advertised(hosted, node_id, some[0][0]),
                behind=tuple(_behind(member, places, logs, now) for member, places in some),
            )
            self._hosted_groups.publish(hosted.name, event)

    def _is_unreached(self, hosted: HostedGroup, place: Partition, standing: Standing, now: float) -> bool:
        """Whether the leader of a partition has neither seen a Fetch nor a connection of its member, as long as the
        offset has stood. A partition that is to be reported soon counts, too: they are reported together."""
        owner, leader, client = standing.owner, standing.leader, self._client_alone(standing.owner)
        if owner is None or client is None or leader is None or leader.is_here or not standing.is_clear:
            return False
        looks, away = _LATE_LOOKS * self._interval, client.away_from.get(leader.node_id)
        if away is None or away.since > standing.since + looks or away.until < now - looks:
            return False  # A client closes a connection that it has not used for long, also one that it has paused.
        is_soon = now - standing.since >= self._patience / 2
        is_fetched = standing.watch.asked_at is not None or not standing.is_counted(now)
        is_taken = hosted.sightings.has_asked(owner.member_id or "", place)
        return is_soon and is_taken and not is_fetched and not client.is_denied(place[0], now)

    def _fetches_others(self, member: Member, standing: Standing, now: float) -> bool:
        """Whether a member has fetched other partitions lately than one whose offset stands still."""
        client = self._client_alone(member)
        fetched_at = None if client is None else client.fetched_at
        return fetched_at is not None and now - fetched_at < (now - standing.since) / 2

    def _advertised(self, hosted: HostedGroup, node_id: int, member: Member) -> str | None:
        """HOST:PORT that a broker advertises to a member."""
        sight = hosted.sightings.get(member.member_id or "")
        listener = "" if sight is None or sight.connection is None else sight.connection.listener
        return None if self._others is None else self._others.advertised(node_id, listener)

    def _aborts(self, owner: Member, sight: Sight | None, standing: Standing) -> TimedOut | None:
        """The transactional id because of which an offset of a member stands still: its transactions are aborted by
        their timeout, and it commits in them, or reads again after each abort."""
        own = None if sight is None else sight.transactional_id
        if own is not None or not standing.is_clear:
            return self._timed_out.get(own, standing.since)
        return self._timed_out.find(owner.host or "", standing.watch.reads)

    def _has_fetched(self, owner: Member, sight: Sight | None) -> bool:
        """Whether a member has fetched anything since it joined; so if that is not known."""
        client = self._client_alone(owner)
        if client is None or sight is None or sight.joined_at is None:
            return True
        return client.fetched_at is not None and client.fetched_at >= sight.joined_at

    def _leaves_out(self, owner: Member, place: Partition, standing: Standing, now: float) -> bool:
        """Whether a member has not fetched a partition since it joined, and fetches others."""
        client = self._client_alone(owner)
        return client is not None and place in client.unread and self._fetches_others(owner, standing, now)

    def _fetches_seldom(self, standing: Standing, now: float) -> bool:
        """Whether the owner of a partition has sent few Fetches since the offset has stood, or may have: it has records
        for long."""
        client = self._client(standing.owner)
        seldom = (now - standing.since) / _SELDOM_SECONDS
        return client is not None and (client.is_shared or client.fetches - standing.watch.began <= seldom)

    def _patience_with(self, sight: Sight | None, fetches: str, *, is_behind: bool) -> float:
        """For how many seconds an offset of a member may stand still: longer for one that usually commits seldom, or
        whose max.poll.interval.ms is longer, but not longer than a batch may take."""
        if sight is None:
            return self._patience
        limit = poll_interval(*_known(sight))
        usual = _USUAL_PAUSES * sight.pause if fetches == "beyond" else 0
        longest = _LONGEST_BATCH_BEHIND if is_behind else _LONGEST_BATCH
        return max(self._patience, 0 if limit is None else min(limit / 1000, longest), usual)

    def _publish(
        self,
        hosted: HostedGroup,
        fetches: str,
        places: list[tuple[Partition, Standing]],
        owners: Mapping[Partition, Member],
        logs: ReadLogs,
        behind: Member | None,
        now: float,
        timed_out: TimedOut | None = None,
    ) -> None:
        first = places[0][1]
        owner = first.owner or Member()
        sight = hosted.sightings.get(owner.member_id or "")
        software, rebalance_ms, session_ms = (None, None, None) if sight is None else _known(sight)
        client = self._client_alone(owner) if first.is_clear else None
        fetched_at = None if client is None else client.fetched_at
        if (
            fetched_at is not None
            and sight is not None
            and sight.joined_at is not None
            and fetched_at < sight.joined_at
        ):
            fetched_at = None  # It was that of the program before.
        committed_at = None if sight is None else sight.committed_at
        again: dict[str, Any] = {}
        if fetches == "again":
            watch = first.watch
            again = {"offset": watch.again, "deliveries": watch.deliveries, "every_ms": watch.pause * 1000}
            if watch.is_cut_off:
                again |= {"reconnects": watch.reconnects, "response_bytes": watch.size, "max_bytes": watch.most}
                again["gives_up_ms"] = None if watch.gives_up is None else watch.gives_up * 1000
        transactional_id = None if sight is None else sight.transactional_id
        if timed_out is not None:
            again |= {
                "aborts": timed_out.since(first.since),
                "open_ms": timed_out.open_ms,
                "transaction_timeout_ms": timed_out.timeout_ms,
                "is_own": timed_out.transactional_id == transactional_id,
            }
            transactional_id = timed_out.transactional_id
        elif fetches != UNTAKEN:
            again |= _codecs(hosted, places[:_MOST_CODECS], fetches, logs)
        event: NothingCommitted | NothingFetched | OffsetsStuck
        is_incremental = None
        if fetches == UNTAKEN:
            protocol = hosted.group.members.protocol if isinstance(hosted.group, ClassicGroup) else "cooperative"
            is_incremental = "cooperative" in (protocol or "")
        if first.offset == NOTHING and fetches in ("none", UNTAKEN):
            ranges = (logs.readable(*place) for place, _ in places)
            event = NothingFetched(
                generation=hosted.group.generation,
                member=owner,
                partitions=by_topic(place for place, _ in places[:_MOST_LISTED]),
                records=sum(end - start for start, end in filter(None, ranges)),
                stood_ms=min(now - each.since for _, each in places) * 1000,
                fetches=fetches,
                is_incremental=is_incremental,
                fetches_others=all(self._leaves_out(owner, place, each, now) for place, each in places) or None,
            )
        elif first.offset == NOTHING:
            topics = {topic for (topic, _), _ in places}
            elsewhere = self._elsewhere.find(owner.host or "", topics, min(each.since for _, each in places))
            committed = (place for place, each in owners.items() if each == owner and hosted.offsets.find(*place))
            event = NothingCommitted(
                generation=hosted.group.generation,
                member=owner,
                partitions=by_topic(place for place, _ in places[:_MOST_LISTED]),
                ahead=sum(each.watch.furthest - each.watch.first for _, each in places),
                written=None if first.is_clear else _written(places, logs),
                stood_ms=min(now - each.since for _, each in places) * 1000,
                other_group=None if elsewhere is None else elsewhere.group_id,
                transactional_id=transactional_id if elsewhere is None else elsewhere.transactional_id,
                only_committed=by_topic(islice(committed, _MOST_LISTED)) if hosted.offsets else None,
                software=software,
                **again,
            )
        else:
            ends = (logs.readable(*place) for place, _ in places)
            records = sum(
                max(readable[1] - _first_waiting(each, readable), 0)
                for readable, (_, each) in zip(ends, places, strict=True)
                if readable is not None
            )
            ahead = sum(max(each.watch.furthest - each.offset, 0) for _, each in places)
            event = OffsetsStuck(
                generation=hosted.group.generation,
                member=owner,
                positions=tuple(Position(*place, each.offset) for place, each in places[:_MOST_LISTED]),
                records=records,
                stood_ms=min(now - each.since for _, each in places) * 1000,
                fetches=fetches,
                is_incremental=is_incremental,
                is_deleted=_is_deleted(first, logs.readable(*places[0][0])) or None,
                ahead=ahead if fetches == "beyond" else None,
                fetched_ago_ms=_ago(fetched_at, now),
                committed_ago_ms=_ago(committed_at, now),
                rebalance_timeout_ms=rebalance_ms,
                session_ms=session_ms,
                software=software,
                transactional_id=transactional_id,
                commits=None if sight is None or sight.joined_at is None else sight.commits,
                others_keep_up=True if owner == behind else None,
                lag_of_others=_lag_of_others(hosted, owner, places, owners, logs) if fetches == "beyond" else None,
                **again,
            )
        self._hosted_groups.publish(hosted.name, event)


def _where_offsets_stand(
    lags: Lags, still: Mapping[Partition, float], waiting: Mapping[Partition, int]
) -> tuple[MemberLag, ...] | None:
    """The members with the partitions whose offsets have stood for so many seconds, if these have most of the lag; None
    if they have not."""
    if sum(map(lags.of, still)) < lags.total * MOST_OF:
        return None
    found = []
    for member, places in lags.by_member(still).items():
        positions = tuple(Position(*place, waiting[place]) for place in places[:_MOST_LISTED])
        stood_ms = min(still[place] for place in places) * 1000
        found.append(MemberLag(member, sum(map(lags.of, places)), positions, stood_ms))
    return tuple(found[:_MOST_LISTED]) or None


def _behind(member: Member, places: Sequence[tuple[Partition, Standing]], logs: ReadLogs, now: float) -> MemberLag:
    """A member, and what waits in partitions of it whose offsets stand still."""
    ends = ((logs.readable(*place), each) for place, each in places)
    lag = sum(max(readable[1] - _first_waiting(each, readable), 0) for readable, each in ends if readable is not None)
    positions = tuple(Position(*place, each.offset) for place, each in places[:_MOST_LISTED])
    return MemberLag(member, lag, positions, min(now - each.since for _, each in places) * 1000)


def _lag_of_others(
    hosted: HostedGroup,
    owner: Member,
    places: Iterable[tuple[Partition, Standing]],
    owners: Mapping[Partition, Member],
    logs: ReadLogs,
) -> int | None:
    """The records that wait in the other partitions of a member with committed offsets; None if there are none."""
    others = [place for place, each in owners.items() if each == owner]
    known = {place: (hosted.offsets.find(*place), logs.readable(*place)) for place in others}
    for place, _ in places:
        known.pop(place, None)
    lags = [
        max(ends[1] - commit.offset, 0) for commit, ends in known.values() if commit is not None and ends is not None
    ]
    return sum(lags) if lags else None


def _lag_grows(
    generation: int,
    growth: Growth,
    led: int,
    committed_in: int,
    throttled: tuple[str, ...] | None,
    spread: Mapping[str, Any],
) -> LagGrows:
    return LagGrows(
        generation=generation,
        consumed=growth.consumed,
        written=growth.written,
        lag_before=growth.first.lag,
        lag=growth.last.lag,
        took_ms=growth.seconds * 1000,
        led=led,
        committed_in=committed_in,
        throttled=throttled,
        **spread,
    )


def _known(sight: Sight) -> tuple[str | None, float | None, float | None]:
    """The library, the rebalance timeout and the session timeout of a member, as far as they are known."""
    software = None if sight.connection is None else sight.connection.software or None
    return software, sight.rebalance_timeout_ms, sight.session_ms


def _codecs(
    hosted: HostedGroup, places: Iterable[tuple[Partition, Standing]], fetches: str, logs: ReadLogs
) -> dict[str, Any]:
    """The codec of the batches that members do not get past, if none of those before has it, as fields of an event."""
    found: dict[str, Any] = {}
    for place, each in places:
        is_again = fetches == "again"
        offset = each.watch.again if is_again else each.offset
        known = {} if offset == NOTHING else hosted.new_codec(place, offset, logs)
        if not known or (found and known["codec"] != found["codec"]):
            return {}
        at = known["codec_at"][0].offset
        # One that is asked for again and again is the first one that is delivered.
        if (
            (each.is_clear and each.watch.furthest > at)
            or (is_again and at > offset)
            or (fetches != "again" and not known["codecs_before"])
        ):
            return {}
        found = found or (known if at > offset else {**known, "codec_at": None})
    return found


def _address(member: Member) -> ClientAddress:
    return ClientAddress(member.client_id or "", member.host or "")


def _first_waiting(standing: Standing, readable: tuple[int, int] | None) -> int:
    """The offset from which on records wait in a partition."""
    if standing.offset != NOTHING and not _is_deleted(standing, readable):
        return standing.offset
    return 0 if readable is None else readable[0]


def _is_deleted(standing: Standing, readable: tuple[int, int] | None) -> bool:
    """Whether the record at the committed offset of a partition was deleted."""
    return readable is not None and NOTHING < standing.offset < readable[0]


def _written(places: Iterable[tuple[Partition, Standing]], logs: ReadLogs) -> int:
    """The records that were written to partitions since the Fetches of their member are not told apart."""
    ends = ((logs.readable(*place), each.end) for place, each in places)
    return sum(readable[1] - end for readable, end in ends if readable is not None and end is not None)


def _fetches(standing: Standing, rebalances: Collection[float], now: float) -> str:
    """How a member fetches a partition whose committed offset stands still; `rebalances` are the times of the last
    ones."""
    watch = standing.watch
    if not standing.is_clear:
        return "unknown"
    if watch.asked_at is None or now - watch.asked_at >= (now - standing.since) / 2:
        return "none"
    if watch.is_again_apart_from(rebalances):
        return "again"
    return "beyond" if standing.is_read_on else "asks"


def _ago(at: float | None, now: float) -> float | None:
    return None if at is None else max(now - at, 0.0) * 1000
