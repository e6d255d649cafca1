"""Fetches and looked up offsets of the clients of groups: reports to a group what goes wrong when its members read.

A Fetch names no group. Its group is that of the members whose requests come from the same client id and host; where
several groups may be meant, nothing is reported. The group may be coordinated by another broker, which gets a notice.
"""

from collections.abc import Collection
from functools import partial
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from barnabas_broker.groups.coordinator.hosting import HostedGroup, HostedGroups
from barnabas_broker.groups.coordinator.readers import owns_any, partitions_of
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.fetch_reports import FetchNotice, FetchNotices
from barnabas_broker.groups.new_topics import NewTopics
from barnabas_broker.groups.ports import OtherBrokers, ReadLogs
from barnabas_broker.groups.sightings import ClientAddress, Clients, SeenClient
from barnabas_broker.groups.stuck import Assigned, LookedUp, WatchedFetch
from barnabas_broker.recent import Newest
from barnabas_broker.storage.retention import Removal
from barnabas_explain.catalog import (
    BY_TIME,
    FetchDenied,
    FetchesWaited,
    FetchOutOfRange,
    MemberBeganLate,
    MemberRewound,
    MemberSkipped,
)
from barnabas_explain.members import Member, Partition, by_topic, is_default

#: Clients of other coordinators whose first Fetches are looked at, each for so many seconds after the last partition.
_MOST_GUESTS: Final = 1_000
_GUEST_SECONDS: Final = 60.0
#: Partitions of one of them.
_MOST_UNREAD: Final = 64
#: Where a client goes on whose Fetch was outside of the log; the numbers of notices.
_RESETS: Final = ("earliest", "latest", BY_TIME)
#: Jumps of a client to the end of a partition are reported once in so many seconds.
_JUMPS_SECONDS: Final = 60.0
#: A member that has had partitions for so many seconds before it begins to read them begins late.
_LATE_SECONDS: Final = 10.0
#: Partitions of it that are looked at, those without a committed offset, and those that are named.
_MOST_OWNED: Final = 1_000
_MOST_WITHOUT: Final = 20
_MOST_LISTED: Final = 20


class _Reader(NamedTuple):
    """A client, and the group and the member with which it reads."""

    client: SeenClient
    hosted: HostedGroup
    member: Member


class Fetches:
    """Reports of what goes wrong when the clients of groups read.

    A client id that a library chooses by itself may be that of another program on the same host.

    Args:
        hosted_groups: the groups.
        clients: the clients that have a connection.
        topics: the topics that are new.
        logs: the logs that groups read; None if they are not known.
        others: the other brokers, which coordinate the groups of other clients; None without any.
    """

    def __init__(
        self,
        hosted_groups: HostedGroups,
        clients: Clients,
        topics: NewTopics,
        logs: ReadLogs | None,
        others: OtherBrokers | None,
    ) -> None:
        self._hosted_groups = hosted_groups
        self._clients = clients
        self._topics = topics
        self._logs = logs
        #: Clients that have got partitions led here, and are members of groups that other brokers coordinate.
        self._guests: Newest[ClientAddress, tuple[float, SeenClient]] = Newest(_MOST_GUESTS)
        self._notices = FetchNotices(others, hosted_groups.now, hosted_groups.runtime.gradually)

    def fetched(self, client: ClientAddress, *, is_committed: bool = False, connection: int = 0) -> WatchedFetch | None:
        """A client has sent a Fetch, on any of its connections; nothing is kept of one without a member.

        Args:
            client: the client.
            is_committed: whether it is ``read_committed``.
            connection: the number of its connection; newer ones have larger numbers.

        Returns:
            The Fetch, if partitions of the client are watched, if it has looked up offsets of some, or has got some.
        """
        seen = self._clients.find(client)
        if seen is None:
            return None
        now = self._hosted_groups.now()
        assigned = seen.assigned
        if assigned is not None:
            if seen.owns_since is not None:
                # The client may have sent a Fetch to another broker before.
                self._begins_to_read(seen, is_first=not self._notices.has_others)
            if assigned.is_over(now):
                assigned = seen.assigned = None
        seen.fetched_at = now
        seen.is_committed = is_committed
        is_followed = seen.watched or seen.looked_up or seen.unread or seen.commits_back or seen.outside
        if not is_followed and assigned is None:
            return None
        seen.fetches += 1
        going = partial(self._goes_there, client)
        begins = None if assigned is None else partial(self._begins, client, assigned)
        return WatchedFetch(
            seen.watched or {},
            now,
            seen.looked_up,
            going,
            seen.unread,
            connection,
            assigned,
            begins,
            seen.commits_back,
            seen.outside,
            partial(self._goes_on, client),
        )

    def _goes_there(self, client: ClientAddress, place: Partition, looked_up: LookedUp) -> None:
        """A client reads a partition from an offset on that it has looked up: its group may go on elsewhere."""
        reader = self._reader(client, place[0])
        readable = None if self._logs is None else self._logs.readable(*place)
        if reader is None and looked_up.begins:
            self._notices.add("begins_at_end", client, place, looked_up.offset, self._hosted_groups.wall_ms())
        if reader is None or readable is None:
            return
        seen, hosted, member = reader
        committed, offset = hosted.offsets.find(*place), looked_up.offset
        if hosted.offsets.is_pending(*place) or (committed is not None and committed.offset == offset):
            return
        if committed is not None and committed.offset > offset:
            self._report_back(reader, place, offset, committed.offset, readable[0])
            return
        first = readable[0] if committed is None else committed.offset
        skipped = MemberSkipped(
            generation=hosted.group.generation,
            member=member,
            topic=place[0],
            partition=place[1],
            log_start=readable[0],
            offset=None if committed is None else committed.offset,
            position=offset,
        )
        if not looked_up.is_end or first >= offset:
            return
        if looked_up.begins:
            if committed is None and not self._was_added(place, hosted, member):
                missed = self._missed(hosted, place, offset)
                if missed is None:
                    return  # It begins there by its own wish.
                skipped = skipped.changed(log_start=missed[0], away_ms=missed[1])
        elif looked_up.is_jump and member.member_id is not None and not seen.is_shared:
            now, fetched = self._hosted_groups.now(), max(looked_up.limit or 0, first)
            looked_up.jumps += 1
            looked_up.records += offset - fetched
            if looked_up.told_at is not None and now - looked_up.told_at < _JUMPS_SECONDS:
                return
            skipped = skipped.changed(fetched=fetched, times=looked_up.jumps, records=looked_up.records)
            looked_up.told_at, looked_up.jumps, looked_up.records = now, 0, 0
        else:
            return
        self._hosted_groups.publish(hosted.name, skipped)

    def _begins(self, client: ClientAddress, assigned: Assigned, place: Partition, offset: int) -> None:
        """A client has sent its first Fetch of a partition since its group was assigned partitions, of an offset that
        it has not looked up: its program may have that from elsewhere."""
        reader, logs = self._reader(client, place[0]), self._logs
        readable = None if logs is None else logs.readable(*place)
        if reader is None or readable is None or is_default(client.client_id) or len(reader.client.connections) > 1:
            return
        seen, hosted, member = reader
        committed = hosted.offsets.find(*place)
        if committed is None or hosted.offsets.is_pending(*place) or seen.is_shared or committed.offset > readable[1]:
            return
        wall_ms = self._hosted_groups.wall_ms()
        if offset < committed.offset:
            # The member before may have committed since it has got the committed offset.
            if committed.commit_ms < wall_ms - (self._hosted_groups.now() - assigned.at) * 1000:
                self._report_back(reader, place, offset, committed.offset, readable[0], is_kept=offset > readable[0])
            return
        start = max(committed.offset, readable[0])
        skipped = self._skipped(hosted, place, start, offset) if assigned.is_first and offset > start else None
        if skipped is None:
            return
        event = MemberSkipped(
            generation=hosted.group.generation,
            member=member,
            topic=place[0],
            partition=place[1],
            log_start=skipped[0],
            offset=committed.offset,
            position=offset,
            records=skipped[1] - skipped[0],
            is_kept=True,
        )
        self._hosted_groups.publish(hosted.name, event)

    def _skipped(self, hosted: HostedGroup, place: Partition, start: int, end: int) -> tuple[int, int] | None:
        """The records from `start` to before `end` that have come while a group had no members; None if there are none.
        Others may have been read, and not committed."""
        if hosted.sightings.without_members is None or self._logs is None:
            return None
        now, wall_ms = self._hosted_groups.now(), self._hosted_groups.wall_ms()
        since, until = (wall_ms - round((now - each) * 1000) for each in hosted.sightings.without_members)
        first, last = self._logs.since(*place, since), self._logs.since(*place, until)
        first, last = end if first is None else max(first, start), end if last is None else min(last, end)
        return (first, last) if first < last and self._logs.has_records(*place, first) else None

    def gets(self, caller: Caller, places: Collection[Partition]) -> None:
        """A client asks for committed offsets: the leaders of the partitions that a member of it has got look where it
        begins."""
        address = ClientAddress(caller.client_id, caller.host)
        seen = self._clients.find(address)
        if seen is not None and not seen.has_begun:
            self._begins_to_read(seen, is_first=True)
        if not self._notices.has_others:
            return
        for place in () if seen is None or self._logs is None else seen.unread.intersection(places):
            leader = None if self._logs is None else self._logs.leader(*place)
            if leader is not None and not leader.is_here:
                self._notices.add("gets", address, place)

    def owned(self, hosted: HostedGroup, *, anew: bool) -> None:
        """All members of a group own the partitions that are assigned to them; `anew`: they had none before that."""
        hosted.sightings.owned(self._hosted_groups.now(), partial(owns_any, hosted.group), anew=anew)

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self._hosted_groups.consumer_settings.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def _begins_to_read(self, client: SeenClient, *, is_first: bool) -> None:
        """A client begins to read since its member joined: its program may have been busy before.

        Args:
            client: the client.
            is_first: whether it has probably not read from another broker before.
        """
        now = self._hosted_groups.now()
        took = client.begins(now)
        if took is None or took < _LATE_SECONDS or not is_first or now - (client.throttled_at or -inf) <= took:
            return
        for group_id, member_id in (key for each in client.connections for key in each.members):
            hosted = self._hosted_groups.by_id.get(group_id)
            sight = None if hosted is None else hosted.sightings.get(member_id)
            if hosted is None or sight is None or sight.member is None:
                continue
            waiting = self._waiting(hosted, member_id, self._hosted_groups.wall_ms() - round(took * 1000))
            if waiting:
                event = MemberBeganLate(
                    generation=hosted.group.generation,
                    member=sight.member,
                    took_ms=took * 1000,
                    partitions=by_topic(sorted(waiting)[:_MOST_LISTED]),
                    records=sum(waiting.values()),
                )
                self._hosted_groups.publish(group_id, event)
            return

    def _waiting(self, hosted: HostedGroup, member_id: str, since_ms: int) -> dict[Partition, int]:
        """The numbers of the records to read in the partitions of a member; in those without a committed offset, of
        those that have come since a time."""
        found: dict[Partition, int] = {}
        without = 0
        for place in islice(partitions_of(hosted.group, member_id, self._topic_name), _MOST_OWNED):
            readable = None if self._logs is None else self._logs.readable(*place)
            if self._logs is None or readable is None or hosted.offsets.is_pending(*place):
                continue
            committed = hosted.offsets.find(*place)
            if committed is not None:
                first: int | None = max(committed.offset, readable[0])
            elif without < _MOST_WITHOUT:
                first, without = self._logs.since(*place, since_ms), without + 1
            else:
                continue
            if first is None or first >= readable[1]:
                continue
            # One look is enough: partitions with markers only are rare.
            if found or self._logs.has_records(*place, first):
                found[place] = readable[1] - first
        return found

    def _gets_here(self, client: ClientAddress, place: Partition) -> None:
        """A member of a group elsewhere has got a partition: look where it begins, if this broker leads it."""
        leader = None if self._logs is None else self._logs.leader(*place)
        seen, now = self._clients.get(client), self._hosted_groups.now()
        if leader is None or not leader.is_here or seen.connections:
            return
        if now - self._guests.get(client, (-inf, seen))[0] > _GUEST_SECONDS:
            seen.joins(now)
        self._guests[client] = now, seen
        if len(seen.unread) < _MOST_UNREAD:
            seen.unread.add(place)

    def _report_back(
        self, reader: _Reader, place: Partition, offset: int, committed: int, log_start: int, *, is_kept: bool = False
    ) -> None:
        """Report a member that reads a partition from an offset before the committed one on."""
        seen, hosted, member = reader
        if not seen.may_rewind(place, self._hosted_groups.now()):
            return
        event = MemberRewound(
            generation=hosted.group.generation,
            member=member,
            topic=place[0],
            partition=place[1],
            log_start=log_start,
            offset=committed,
            position=offset if offset > log_start else None,
            is_kept=is_kept or None,
        )
        self._hosted_groups.publish(hosted.name, event)

    def _missed(self, hosted: HostedGroup, place: Partition, end: int) -> tuple[int, float] | None:
        """The first record before `end` that has come to a partition without a committed offset since a member had it,
        or since the group committed last in its topic, and for how many ms that is ago; None if there is none."""
        commits = hosted.offsets.topics.get(place[0], {}).values()
        now, wall_ms, had_at = self._hosted_groups.now(), self._hosted_groups.wall_ms(), hosted.sightings.had(place)
        since = max((each.commit_ms for each in commits), default=None)
        if had_at is not None:
            since = wall_ms - round((now - had_at) * 1000)
        first = None if since is None or self._logs is None else self._logs.since(*place, since)
        if since is None or first is None or first >= end or not (self._logs and self._logs.has_records(*place, first)):
            return None
        return first, max(wall_ms - since, 0)

    def _was_added(self, place: Partition, hosted: HostedGroup, member: Member) -> bool:
        """Whether a partition was added to its topic while a member of a group was one."""
        sight = hosted.sightings.get(member.member_id or "")
        return sight is not None and sight.joined_at is not None and self._topics.was_added(place, sight.joined_at)

    def out_of_range(self, client: ClientAddress, place: Partition, offset: int, log: tuple[int, int]) -> None:
        """A client has sent a Fetch of an offset that is not in the log of a partition.

        Args:
            client: the client.
            place: topic and partition.
            offset: that it wants.
            log: the first offset of the log, and its end.
        """
        removal = None if self._logs is None or offset >= log[0] else self._logs.removal(*place)
        if self._reader(client, place[0]) is not None:
            self._out_of_range(client, place, offset, log, removal)
            return
        numbers = () if removal is None else (removal.newest_ms, removal.retention_ms)
        reason = "" if removal is None else removal.reason
        self._notices.add("out_of_range", client, place, offset, *log, *numbers, text=reason)

    def _out_of_range(
        self, client: ClientAddress, place: Partition, offset: int, log: tuple[int, int], removal: Removal | None
    ) -> None:
        known, now = self._clients.find(client), self._hosted_groups.now()
        reader = self._reader(client, place[0]) if known and known.loses(place, offset, now) else None
        if reader is None:
            return
        seen, hosted, member = reader
        event = FetchOutOfRange(
            generation=hosted.group.generation,
            member=member,
            topic=place[0],
            partition=place[1],
            offset=offset,
            log_start=log[0],
            log_end=log[1],
            deleted_by=None if removal is None else removal.reason,
            newest_timestamp=None if removal is None else removal.newest_ms,
            retention_ms=None if removal is None else removal.retention_ms,
        )
        seen.lost.pop(place, None)  # the newest one is the last one
        seen.lost[place] = now, hosted.name, event
        seen.outside[place] = offset
        self._hosted_groups.publish(hosted.name, event)

    def looked_up(self, client: ClientAddress, place: Partition, offset: int, *, latest: bool) -> None:
        """A client has asked for the first offset of a partition, or for its end; it goes on there if it had to.

        Args:
            client: the client.
            place: topic and partition.
            offset: the answer.
            latest: whether it has asked for the end.
        """
        seen = self._clients.find(client)
        if (seen is None or place not in seen.lost) and self._notices.was_sent("out_of_range", client, place):
            self._notices.add("looked_up", client, place, offset, _RESETS.index("latest" if latest else "earliest"))
        if seen is None:
            return
        known = seen.lost.get(place)
        if known is None:
            is_new = place in seen.unread
            if latest and len(seen.connections) <= 1 and (is_new or not is_default(client.client_id)):
                begins = is_new or not seen.has_fetched
                seen.looks_up(place, offset, self._hosted_groups.now(), is_end=True, begins=begins)
            return
        self._publish_reset(seen, place, offset, "latest" if latest else "earliest")

    def _publish_reset(self, seen: SeenClient, place: Partition, offset: int, reset: str | None) -> None:
        """Report where a client goes on whose Fetch was outside of the log.

        Args:
            seen: the client.
            place: topic and partition.
            offset: where it goes on.
            reset: what it has asked for; None if it goes on there by itself.
        """
        seen.outside.pop(place, None)
        at, group_id, lost = seen.lost[place]
        if lost.goes_on:
            return
        event = lost.changed(position=offset, reset=reset, left_ms=None)
        seen.lost[place] = at, group_id, event
        if group_id in self._hosted_groups.by_id:
            self._hosted_groups.publish(group_id, event)

    def _goes_on(self, client: ClientAddress, place: Partition, offset: int) -> None:
        """A client whose Fetch was outside of the log fetches another offset."""
        seen = self._clients.find(client)
        readable = None if self._logs is None else self._logs.readable(*place)
        is_inside = readable is None or readable[0] <= offset <= readable[1]
        if seen is not None and place in seen.lost and is_inside:
            self._publish_reset(seen, place, offset, None)

    def looked_up_time(self, client: ClientAddress, place: Partition, offset: int) -> None:
        """A client has asked for the offset of a time; `offset` is the answer."""
        known = self._clients.find(client)
        if known is not None and place in known.outside:
            self._publish_reset(known, place, offset, BY_TIME)
        elif (known is None or place not in known.lost) and self._notices.was_sent("out_of_range", client, place):
            self._notices.add("looked_up", client, place, offset, _RESETS.index(BY_TIME))
        seen = self._by_choice(client)
        if seen is not None:
            seen.looks_up(place, offset, self._hosted_groups.now(), is_end=False, begins=False)

    def from_start(self, client: ClientAddress, place: Partition, offset: int) -> None:
        """A client has sent a Fetch of the first records of a partition: its group may have committed a later offset.

        Args:
            client: the client.
            place: topic and partition.
            offset: the first offset of the log.
        """
        if is_default(client.client_id):
            return
        reader = self._reader(client, place[0])
        if reader is None:
            self._notices.add("from_start", client, place, offset, self._hosted_groups.wall_ms())
            return
        committed = reader.hosted.offsets.find(*place)
        if committed is not None and committed.offset > offset:
            self._report_back(reader, place, offset, committed.offset, offset)

    def waited(self, client: ClientAddress, topic: str, min_bytes: int, max_wait_ms: int) -> None:
        """A Fetch of a client has waited for all of its time, which is long, while there were too few records.

        Args:
            client: the client.
            topic: that it reads.
            min_bytes: for which it has waited.
            max_wait_ms: for how long.
        """
        if self._reader(client, topic) is None and not is_default(client.client_id):
            self._notices.add("waited", client, (topic, -1), min_bytes, max_wait_ms)
            return
        seen = self._by_choice(client)
        fetches = None if seen is None else seen.waited(self._hosted_groups.now())
        reader = None if fetches is None else self._reader(client, topic)
        if fetches is None or reader is None:
            return
        _, hosted, member = reader
        event = FetchesWaited(
            generation=hosted.group.generation, member=member, times=fetches, min_bytes=min_bytes, waited_ms=max_wait_ms
        )
        self._hosted_groups.publish(hosted.name, event)

    def denied(self, client: ClientAddress, topic: str, principal: str) -> None:
        """A Fetch of a client was refused for a topic, because its user may not read the topic.

        Args:
            client: the client.
            topic: that it wants to read.
            principal: its user.
        """
        if self._reader(client, topic) is None:
            self._notices.add("denied", client, (topic, -1), text=principal)
            return
        known, now = self._clients.find(client), self._hosted_groups.now()
        reader = self._reader(client, topic) if known and known.denied.may_add(topic, now) else None
        if reader is None:
            return
        seen, hosted, member = reader
        seen.denied[topic] = now
        event = FetchDenied(generation=hosted.group.generation, member=member, topic=topic, principal=principal)
        self._hosted_groups.publish(hosted.name, event)

    def throttled(self, client: ClientAddress) -> None:
        """A quota makes a client wait, which has sent a Fetch."""
        seen = self._clients.find(client)
        if seen is None:
            self._notices.add("throttled", client, ("", -1))
        else:
            seen.throttled_at = self._hosted_groups.now()

    def noticed(self, notice: FetchNotice) -> None:
        """Another broker has seen something go wrong when a client reads: take note of it, if a group here has it."""
        client, place = ClientAddress(notice.client_id, notice.host), (notice.topic, notice.partition)
        if notice.kind == "gets":
            self._gets_here(client, place)
            return
        seen = self._clients.find(client)
        if seen is None or (notice.topic and self._reader(client, notice.topic) is None):
            return
        match notice.kind, notice.numbers:
            case "out_of_range", [offset, start, end, newest_ms, retention_ms]:
                removal = Removal(start, notice.text, newest_ms, retention_ms)
                self._out_of_range(client, place, offset, (start, end), removal)
            case "out_of_range", [offset, start, end]:
                self._out_of_range(client, place, offset, (start, end), None)
            case "looked_up", [offset, reset] if place in seen.lost and 0 <= reset < len(_RESETS):
                self._publish_reset(seen, place, offset, _RESETS[reset])
            case (("begins_at_end" | "from_start"), [_, time_ms]) if self._commits_since(client, place, time_ms):
                pass  # The notice is late: the offset that it would be compared with is gone.
            case "begins_at_end", [offset, _]:
                begins = LookedUp(begins=True)
                begins.offset, begins.is_end = offset, True
                self._goes_there(client, place, begins)
            case "from_start", [offset, _]:
                self.from_start(client, place, offset)
            case "waited", [min_bytes, max_wait_ms]:
                self.waited(client, place[0], min_bytes, max_wait_ms)
            case "denied", []:
                self.denied(client, place[0], notice.text)
            case "throttled", []:
                self.throttled(client)

    def _commits_since(self, client: ClientAddress, place: Partition, time_ms: int) -> bool:
        """Whether the group of a client has committed an offset of a partition since a time."""
        reader = self._reader(client, place[0])
        committed = None if reader is None else reader.hosted.offsets.find(*place)
        return committed is not None and committed.commit_ms >= time_ms

    def _by_choice(self, client: ClientAddress) -> SeenClient | None:
        """A client that has chosen its client id."""
        return None if is_default(client.client_id) else self._clients.find(client)

    def _reader(self, client: ClientAddress, topic: str) -> _Reader | None:
        """The reader of a topic; None if several groups may be meant."""
        seen, by_id = self._clients.find(client), self._hosted_groups.by_id
        if seen is None:
            return None
        found = {
            key: hosted
            for connection in seen.connections
            for key in connection.members
            if (hosted := by_id.get(key[0])) is not None and hosted.group.is_subscribed_to(topic)
        }
        if len({group_id for group_id, _ in found}) != 1:
            return None
        (_, member_id), hosted = next(iter(found.items()))
        sight = hosted.sightings.get(member_id)
        if len(found) > 1 or sight is None or sight.member is None:
            return _Reader(seen, hosted, Member(None, *client))
        return _Reader(seen, hosted, sight.member)
