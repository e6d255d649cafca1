"""The groups that this broker coordinates: finding them, and carrying out the effects of their machines. A shell.

:mod:`~barnabas_broker.coordinators.runtime` has their partitions, and appends their records.
"""

import logging
from asyncio import Future, Task
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from math import inf
from typing import Any, Final, Generic, TypeVar

from barnabas_broker.coordinators.ports import Scheduler
from barnabas_broker.coordinators.result import APPEND_ERRORS
from barnabas_broker.coordinators.runtime import Hosted, HostedId, HostedPartition, Runtime
from barnabas_broker.coordinators.writer import Waiter, make_batch
from barnabas_broker.groups.classic.group import ClassicGroup, GroupSettings
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.consumer.assignment import Assign, Assignor, NewTargets
from barnabas_broker.groups.consumer.group import ConsumerEffect, ConsumerGroup, Downgrade
from barnabas_broker.groups.consumer.regex import Resolve, authorized, in_parts
from barnabas_broker.groups.consumer.settings import ConsumerGroupSettings
from barnabas_broker.groups.effects import Caller, Effect, Persist, Reply
from barnabas_broker.groups.errors import failed
from barnabas_broker.groups.migration import downgrade
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.groups.ports import OffsetsLog, ReadLogs
from barnabas_broker.groups.share.group import ShareGroup
from barnabas_broker.groups.sightings import OPEN, MemberConnection, Sightings
from barnabas_broker.log_throttle import FoldedLines
from barnabas_broker.logs import logger
from barnabas_broker.offload import Offload, at_once
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.steps import Steps, each
from barnabas_explain.catalog import Departure, GroupEvent, MemberEvent, MemberLeft, Seen
from barnabas_explain.log_lines import GroupLines
from barnabas_explain.members import Partition, Position
from barnabas_protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    CoordinatorRecord,
    GroupMetadataValue,
)
from barnabas_protocol.errors import EncodeError, ErrorCode, KafkaError
from barnabas_protocol.group_records import Committed, group_record, offset_key, offset_key_head
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse
from barnabas_protocol.schema import Data, Response
from barnabas_protocol.subscriptions import read_assignment

M = TypeVar("M", bound=Response)
T = TypeVar("T")

log = logger("coordinator")

#: Maximum number of groups with nothing but pending members that are kept: a client may ask for member ids in ever new
#: groups.
MAX_UNUSED_GROUPS = 20_000


#: A group that commits offsets, of either protocol.
Group = ClassicGroup | ConsumerGroup

#: Members and partitions of a group whose target is computed at once: that takes less than a millisecond.
_SMALL: Final = 200
#: Records of a group that are encoded, and responses that are sent, before other tasks may run; this many bytes of a
#: large record count as one.
_RECORDS_PER_STEP: Final = 250
_BYTES_PER_RECORD: Final = 1024
#: Maximum number of records that are appended together and encoded at once; two topics in them count as one. More of
#: them become a batch in later iterations.
MOST_AT_ONCE: Final = 600
#: Partitions of a member that is gone whose offsets are reported; a longer assignment, in bytes, is not read.
_MOST_POSITIONS: Final = 30
_MOST_ASSIGNMENT: Final = 16 * 1024
#: Partitions in which then a record is looked for that was not consumed.
_MOST_LOOKS: Final = 3
#: The codec of batches that are not compressed.
_UNCOMPRESSED: Final = "none"
#: What was written so long after a commit was not fetched because of that one.
_FETCHED_MS: Final = 30_000
#: Offsets of a group that are added up then.
_MOST_SUMMED: Final = 100
#: Calls that have waited for the end of a change of protocol, and go on in one iteration.
_CALLS_PER_STEP: Final = 20


class GroupPartition(HostedPartition["HostedGroup | HostedShareGroup"]):
    """A partition of ``__consumer_offsets`` that this broker leads.

    Attributes:
        owner: has its groups.
        transactions: ids of the groups in which each open transaction has committed offsets, by producer id.
        load_began: the place of the load in the order of appends: the replay has what was appended before.
        loaded_at: the end of the replay in the order of appends; what was appended during it counts as appended then.
        appending: number of commits of each open transaction that are being appended, by producer id.
        ended: the markers that wait for the end of the replay, or for what is being appended: producer id, whether it
            commits, and its place in the order of appends.
        unloaded: whether this broker has stopped to coordinate it. Until its groups are ended, some per iteration of
            the loop, they only respond.
    """

    __slots__ = ("appending", "ended", "load_began", "loaded_at", "owner", "transactions", "unloaded")

    def __init__(self, index: int, leader_epoch: int, owner: "HostedGroups") -> None:
        super().__init__(index, leader_epoch)
        self.owner = owner
        self.load_began = owner.next_sequence()
        self.transactions: dict[int, set[str]] = {}
        self.loaded_at = 0
        self.appending: Counter[int] = Counter()
        self.ended: list[tuple[int, bool, float]] = []
        self.unloaded = False


#: Answers a request with an error.
Refuse = Callable[[KafkaError], None]


class ProtocolChange:
    """A change of a group's protocol, which takes some iterations of the loop if the group is large.

    Attributes:
        over: gets the result, or why there is none.
        waiting: the calls that would change the group, and wait until the change is over. The second one of each pair
            refuses the request instead; None if no request waits.
        refusal: why requests do not wait any more; None while they do.
    """

    __slots__ = ("over", "refusal", "waiting")

    def __init__(self, over: Callable[[Any], None]) -> None:
        self.over = over
        self.waiting: list[tuple[Callable[[], None], Refuse | None]] = []
        self.refusal: KafkaError | None = None


class HostedGroup(HostedId[GroupPartition]):
    """A group that this broker coordinates.

    Attributes:
        group: its state machine.
        offsets: its committed offsets.
        armed: see :class:`~barnabas_broker.coordinators.timers.Timed`.
        backlog: effects that later iterations of the loop carry out, if there are any: those of large groups take long.
        change: the change of its protocol that is under way. Until it is over the group may only be read.
        sightings: what has been seen of its members.
        last_commit: the position in the order of appends of the last commit that was appended here, 0 for none.
        outsider: the last commit of a client that is not a member: its client id, its host, and what it committed.
    """

    __slots__ = (
        "_key_head",
        "_key_topic",
        "armed",
        "backlog",
        "change",
        "group",
        "last_commit",
        "offsets",
        "outsider",
        "sightings",
    )

    def __init__(self, home: GroupPartition, group: Group, offsets: GroupOffsets) -> None:
        super().__init__(group.group_id, home)
        self.group = group
        self.offsets = offsets
        self.armed = inf
        self.backlog: deque[ConsumerEffect] | None = None
        self.change: ProtocolChange | None = None
        self.last_commit = 0
        self.outsider: tuple[str, str, list[tuple[str, int, Committed]]] | None = None
        self.sightings = Sightings(group.group_id)
        self._key_head = b""
        self._key_topic: str | None = None

    def offset_key(self, topic: str, partition: int) -> bytes:
        """The key of an offset's record.

        Raises:
            ValueError: a name is longer than a record allows.
        """
        if topic != self._key_topic:
            # Cached for the topic of the last commit: nearly always that is the group's only one.
            self._key_head = offset_key_head(self.name, topic)
            self._key_topic = topic
        return offset_key(self._key_head, partition)

    def with_positions(self, event: Seen, logs: ReadLogs | None) -> Seen:
        """The last event of a member with the offsets of its partitions: it may have failed at one of them.

        Args:
            event: the event.
            logs: the logs that groups read, for a look whether records waited if the group is empty now; None for none.
        """
        owned = event.owned or {}
        if isinstance(owned, bytes):
            owned = (read_assignment(owned) or {}) if len(owned) <= _MOST_ASSIGNMENT else {}
        positions: list[Position] = []
        for topic, numbers in owned.items():
            for number in numbers[: _MOST_POSITIONS - len(positions)]:
                committed = self.offsets.find(topic, number)
                positions.append(Position(topic, number, -1 if committed is None else committed.offset))
        event = event.changed(
            positions=tuple(positions) or None, committed_sum=self.offsets.sum(_MOST_SUMMED), owned=None
        )
        if logs is None:
            return event
        if isinstance(event, MemberLeft) and event.connection == OPEN:
            event = event.changed(**self._new_codec_of(positions, logs))
        if self.group.members or not isinstance(event, Departure):
            return event
        lag = self._lag(positions, logs) if len(positions) < _MOST_POSITIONS else None
        return event.changed(unread=tuple(self._unread(positions, logs)) or None, lag=lag)

    def _new_codec_of(self, positions: Iterable[Position], logs: ReadLogs) -> dict[str, Any]:
        """:meth:`new_codec` of the first partitions with records."""
        for topic, number, offset in islice(positions, _MOST_LOOKS):
            readable = logs.readable(topic, number)
            if readable is not None and readable[0] <= offset < readable[1]:
                found = self.new_codec((topic, number), offset, logs)
                if found.get("codecs_before"):
                    return found
        return {}

    @staticmethod
    def _lag(positions: Iterable[Position], logs: ReadLogs) -> int | None:
        """The records after committed offsets; None if there are none, or if the end of a log is not known."""
        lag = None
        for topic, number, offset in positions:
            readable = logs.readable(topic, number)
            if readable is None:
                return None
            if offset >= 0:
                lag = (lag or 0) + max(readable[1] - max(offset, readable[0]), 0)
        return lag

    @staticmethod
    def _unread(positions: Iterable[Position], logs: ReadLogs) -> Iterator[Partition]:
        """The first partitions after whose committed offsets there are records; all of them if there is none (-1)."""
        looks = 0
        for topic, number, offset in positions:
            readable = logs.readable(topic, number)
            if readable is None:
                continue
            offset = readable[0] if offset < 0 else offset
            if not readable[0] <= offset < readable[1] or looks >= _MOST_LOOKS:
                continue
            looks += 1
            if logs.has_records(topic, number, offset):
                yield topic, number

    def new_codec(self, place: Partition, offset: int, logs: ReadLogs) -> dict[str, Any]:
        """The codec of the batch at an offset, or soon after it, if that is compressed and none of the last batches
        before has it, as fields of an event; none if that is not so, or not known.

        A batch after the offset was there when the group committed last: a member fetches it soon after.
        """
        known = logs.codecs(*place, offset)
        if known is None or known[0] == _UNCOMPRESSED or known[0] in known[1]:
            return {}
        codec, before, at = known
        if at > offset:
            committed = self.offsets.find(*place)
            later = None if committed is None else logs.since(*place, committed.commit_ms + _FETCHED_MS)
            if committed is None or (later is not None and later <= at):
                return {}
        return {"codec": codec, "codecs_before": before or None, "codec_at": (Position(*place, at),)}

    def has_member(self, member_id: str) -> bool:
        """Whether a client is a member of the present generation."""
        group = self.group
        if isinstance(group, ClassicGroup):
            return group.state is ClassicGroupState.STABLE and member_id in group.members.by_id
        return member_id in group.members

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic, as far as that is known."""
        group = self.group
        if isinstance(group, ClassicGroup):
            return topic in (group.subscribed_topics or ())
        return group.is_subscribed_to(topic)

    def next_deadline(self) -> float:
        waits = self.change is not None or self.home.loading or self.home.unloaded
        return inf if waits else self.group.next_deadline()

    def fire(self, now: float) -> None:
        self.home.owner.act(self, self.group.tick(now))


class HostedShareGroup(Hosted[ShareGroup, GroupPartition]):
    """A share group that this broker coordinates.

    Attributes:
        armed: see :class:`~barnabas_broker.coordinators.timers.Timed`.
        creating: creates the states of share partitions; None if nothing does.
    """

    __slots__ = ("armed", "creating")

    def __init__(self, home: GroupPartition, machine: ShareGroup) -> None:
        super().__init__(machine.group_id, home, machine)
        self.armed = inf
        self.creating: Task[None] | None = None

    def next_deadline(self) -> float:
        return inf if self.home.unloaded else self.machine.next_deadline()

    def fire(self, now: float) -> None:
        if not self.home.owner.runtime.do(self, lambda hosted: hosted.machine.expire(now)):
            self.machine.postpone(now)  # an append is under way


#: The runtime of ``__consumer_offsets``.
GroupRuntime = Runtime[GroupPartition, HostedShareGroup, Any]


class PendingReply(Generic[M]):
    """The token of a request: the group's machine responds to it, at once or later.

    Attributes:
        version: of the request.
        response: the response, once it is there.
        watch: called with a response that comes later.
    """

    __slots__ = ("_future", "response", "version", "watch")

    def __init__(self, version: int) -> None:
        self.version = version
        self.response: M | None = None
        self.watch: Callable[[Any], None] | None = None
        self._future: Future[M] | None = None

    def respond(self, response: Any) -> None:
        """Set the response, in the shape of the request's version."""
        if isinstance(response, JoinGroupResponse) and self.version < 7 and response.protocol_name is None:
            response.protocol_name = ""  # Null is allowed from version 7 on.
        if isinstance(response, LeaveGroupResponse) and self.version < 3 and response.members:
            # Below version 3 there is one member, whose error is that of the response.
            response = LeaveGroupResponse(error_code=response.members[0].error_code)
        self.response = response
        if self.watch is not None:
            self.watch(response)
        if self._future is not None and not self._future.done():
            self._future.set_result(response)

    def result(self, loop: Scheduler) -> M | Future[M]:
        """The response, or a future of it."""
        if self.response is not None:
            return self.response
        self._future = loop.create_future()
        return self._future


class HostedGroups:
    """The groups of this broker, by id: finds them, acts for their machines, and appends their records.

    Args:
        runtime: has the partitions of ``__consumer_offsets`` that this broker leads.
        settings: of all classic groups.
        consumer_settings: of all groups of the consumer protocol.
        assignors: that run in the coordinator, by name.
        offload: computes the targets of large groups.
        regexes: matches topics with the regular expressions of groups.
        logs: the logs that groups read; None: departures do not say whether records waited.
        offsets_log: the log of ``__consumer_offsets``.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        loop: the event loop.
        on_event: gets every group event; returns whether its log line goes to the debug level.

    Attributes:
        runtime: see there.
        by_id: the groups of the partitions that are loaded, without share groups: an index, because the partition of an
            id is a hash of it.
        lines: the log lines about groups: clients cause them, in ever new groups.
        log: ``__consumer_offsets``; appends go through the writer.
        offload: computes what takes long.
        last_sequence: the position of the last record in the order of appends.
        leaving: the groups of partitions that this broker has stopped to coordinate, until they are ended.
        ending: whether they are being ended, some per iteration of the loop.
    """

    def __init__(
        self,
        runtime: GroupRuntime,
        settings: GroupSettings,
        offsets_log: OffsetsLog,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        loop: Scheduler,
        on_event: Callable[[str, GroupEvent], bool],
        consumer_settings: ConsumerGroupSettings,
        assignors: Mapping[str, Assignor],
        offload: Offload,
        regexes: RegexSearch,
        logs: ReadLogs | None,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.consumer_settings = consumer_settings
        self._assignors = assignors
        self.offload = offload
        self._regexes = regexes
        self._logs = logs
        self.now = now
        self.lines = FoldedLines(now, "group")
        self.wall_ms = wall_ms
        self.loop = loop
        self.by_id: dict[str, HostedGroup] = {}
        self.log = offsets_log
        self._on_event = on_event
        self.event_lines = GroupLines()
        self.last_sequence = 0
        self.leaving: deque[HostedGroup] = deque()
        self.ending = False
        #: Groups that no member has joined yet, oldest first.
        self._unused: dict[str, None] = {}

    # Which groups there are

    def find(self, group_id: str) -> HostedGroup | None:
        """The group with this id; None if it does not exist, or is a share group.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        hosted = self.by_id.get(group_id)
        if hosted is None:
            self.runtime.home(group_id)
        return hosted

    def exists(self, group_id: str) -> bool:
        """Whether this broker coordinates a group with this id, of any type.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        return group_id in self.by_id or group_id in self.runtime.home(group_id).hosted

    def not_found(self, group_id: str, kind: str) -> KafkaError:
        """The error of a request about a group that does not exist, or has another type than `kind`."""
        why = f"is not a {kind} group" if self.exists(group_id) else "not found"
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")

    def create(self, group: Group) -> HostedGroup:
        """Host a new group. :meth:`keep` makes it one of this broker's, as soon as it has a member or an offset.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        return HostedGroup(self.runtime.home(group.group_id), group, GroupOffsets())

    def create_classic(self, group_id: str) -> HostedGroup:
        """Host a new classic group, as :meth:`create` does."""
        return self.create(ClassicGroup(group_id, self.settings, self.now()))

    def keep(self, hosted: HostedGroup) -> None:
        """Make a group one of this broker's."""
        if hosted.name not in self.by_id:
            self.by_id[hosted.name] = hosted.home.hosted[hosted.name] = hosted

    def present(self, hosted: HostedGroup) -> HostedGroup:
        """The group that has the id of `hosted` now, a new one if it was deleted while its commit was appended.

        It is `hosted` itself if its partition is not hosted any more or was loaded again: the replay has what was
        appended. Or if a share group has its id now.
        """
        present = self.by_id.get(hosted.name)
        if present is hosted or not self.runtime.wanted(hosted):
            return hosted
        if present is None and hosted.name in hosted.home.hosted:
            return hosted
        if present is None:
            group = ClassicGroup(hosted.name, self.settings, self.now())
            present = HostedGroup(hosted.home, group, GroupOffsets())
            self.keep(present)
        return present

    def forget(self, hosted: HostedGroup) -> None:
        """Remove a group from this broker's."""
        if self.by_id.get(hosted.name) is hosted:
            del self.by_id[hosted.name], hosted.home.hosted[hosted.name]
            self._unused.pop(hosted.name, None)
            self.event_lines.forget(hosted.name)

    def limit_unused(self, hosted: HostedGroup) -> None:
        """Limit the number of groups that have only pending members: beyond it the oldest is deleted."""
        group = hosted.group
        if len(group.members) or group.generation or hosted.offsets:
            self._unused.pop(group.group_id, None)
            return
        self._unused[group.group_id] = None
        if len(self._unused) > MAX_UNUSED_GROUPS:
            group_id = next(iter(self._unused))
            del self._unused[group_id]
            oldest = self.by_id.get(group_id)
            if oldest is not None:
                oldest.group.forget_pending()
                self.append_tombstones(oldest, [], whole_group=True)

    def migrate(self, hosted: HostedGroup, group: Group) -> None:
        """Put `group` into the place of the group of the other protocol that it was; its offsets stay."""
        self._finish_backlog(hosted)
        hosted.group = group
        self._unused.pop(group.group_id, None)

    # Long work

    def do(self, steps: Steps[T], count: int, done: Callable[[T], object]) -> None:
        """Do steps, some per iteration of the loop, the first ones now.

        Args:
            steps: the work.
            count: steps of one iteration.
            done: gets the result.
        """

        def go_on() -> None:
            try:
                for _ in range(count):
                    next(steps)
            except StopIteration as stop:
                done(stop.value)
            else:
                self.loop.call_soon(go_on)

        go_on()

    # Changes of the protocol

    def change_protocol(self, hosted: HostedGroup, steps: Steps[Any], over: Callable[[Any], None]) -> None:
        """Do the steps of a change of protocol, each in an iteration of the loop; the first one now.

        Meanwhile the group may only be read: what would change it waits (:meth:`waits`), its timers included.

        Args:
            hosted: the group.
            steps: of the change. They have no effect; the group that they return takes its place in `over`.
            over: gets the result of the steps, or the :class:`~barnabas_protocol.errors.KafkaError` that ended them.
        """
        change = hosted.change = ProtocolChange(over)

        def go_on() -> None:
            if hosted.change is not change:
                return  # Another broker coordinates the group.
            try:
                next(steps)
            except StopIteration as stop:
                self.end_change(hosted, stop.value)
            except KafkaError as error:
                self.end_change(hosted, error)
            else:
                self.loop.call_soon(go_on)

        go_on()

    def end_change(self, hosted: HostedGroup, result: Any) -> None:
        """End the change of protocol that is under way, if there is one, with its result or a KafkaError."""
        change, hosted.change = hosted.change, None
        if change is None:
            return
        change.over(result)
        if hosted.group.next_deadline() < hosted.armed:
            self.runtime.timers.arm(hosted)
        self._call_each(call for call, _ in change.waiting)

    def _call_each(self, calls: Iterable[Callable[[], None]]) -> None:
        """Make calls, some per iteration of the loop, the first ones in the next one."""
        self.loop.call_soon(self.do, each(calls, lambda call: call()), _CALLS_PER_STEP, lambda _: None)

    def waits(self, hosted: HostedGroup, call: Callable[[], None], refuse: Refuse | None = None) -> bool:
        """Whether a change of protocol is under way; then `call` follows when it is over.

        Args:
            hosted: the group.
            call: what would change it.
            refuse: called instead if the change waits too long for the log; None if `call` is not a request.
        """
        change = hosted.change
        if change is None:
            return False
        if change.refusal is not None and refuse is not None:
            refuse(change.refusal)
        else:
            change.waiting.append((call, refuse))
        return True

    def clear(self, hosted: HostedGroup, go_on: Callable[[], None], refuse: Refuse) -> None:
        """Delete an empty group, whose offsets stay, so that one of the other protocol can take its place.

        The group is deleted when its tombstones are in the log, and stays if they cannot be appended. Until the log has
        decided, what would change the group waits (:meth:`waits`); requests only until the append has taken too long.

        Args:
            hosted: the group.
            go_on: called when it is deleted.
            refuse: called if it is not, or if that takes too long.
        """
        before = hosted.group

        def over(result: Any) -> None:
            deleted = not isinstance(result, KafkaError)
            if deleted:
                # Requests that wait for records of this group: their result finds another one here.
                self.act(hosted, before.unload(self.now()))
            if change.refusal is not None:
                return  # The request was answered.
            if deleted:
                go_on()
            else:
                refuse(result)

        def appended(error: ErrorCode) -> None:
            if hosted.change is not change:
                return  # Another broker coordinates the group.
            refusal = KafkaError(APPEND_ERRORS.get(error, error))
            if error == ErrorCode.REQUEST_TIMED_OUT:
                change.refusal = refusal
                refuse(refusal)
                waiting, change.waiting = change.waiting, [pair for pair in change.waiting if pair[1] is None]
                self._call_each(partial(other, refusal) for _, other in waiting if other is not None)
                return
            self._log_failure(hosted.name, error)
            self.end_change(hosted, None if error == ErrorCode.NONE else refusal)

        change = hosted.change = ProtocolChange(over)
        self.runtime.append(hosted, [group_record(each) for each in before.tombstones()], appended)

    # Effects

    def act(
        self, hosted: HostedGroup, effects: Iterable[ConsumerEffect], connection: MemberConnection | None = None
    ) -> None:
        """Carry out the effects of a group's machine, in their order, and arm its next deadline.

        Args:
            hosted: the group.
            effects: of its machine.
            connection: that of the request that has them; None if no request has.
        """
        if hosted.home.unloaded:
            effects = (each for each in effects if isinstance(each, Reply))
        new = deque(effects)
        for at, effect in enumerate(new):
            if isinstance(effect, MemberEvent):
                event = hosted.sightings.complete(effect, connection, self.now())
                if isinstance(event, Seen) and event.owned:
                    event = hosted.with_positions(event, self._logs)
                new[at] = event
        if hosted.backlog is None:
            self._carry_out(hosted, new)
        else:
            ends = hosted.group.is_dead or (bool(new) and isinstance(new[-1], Downgrade))
            hosted.backlog += new
            if ends:
                # Nothing follows, and a group of the other protocol may take its place.
                self._finish_backlog(hosted)
        group = hosted.group
        if group.is_dead:
            self._remove_dead(hosted)
        elif group.next_deadline() < hosted.armed:
            self.runtime.timers.arm(hosted)

    def _carry_out(self, hosted: HostedGroup, effects: deque[ConsumerEffect], at_once: bool = False) -> None:
        """Carry out effects until their records or responses are many, unless `at_once`; the others are a backlog."""
        work = 0
        while effects:
            if not at_once and is_large(effects[0]):
                hosted.backlog = effects
                self._make_batch(hosted, effects[0])
                return
            effect = effects.popleft()
            if isinstance(effect, Reply):
                if isinstance(effect.token, PendingReply):
                    # The connection encodes and sends it in the next iteration.
                    effect.token.respond(effect.response)
                    work += 1
            elif isinstance(effect, GroupEvent):
                self.publish(hosted.name, effect)
            elif isinstance(effect, Persist):
                work += self._persist(hosted, effect)
            elif isinstance(effect, Assign):
                self._assign(hosted, effect)
            elif isinstance(effect, Resolve):
                self._resolve(hosted, effect)
            else:
                self._downgrade(hosted, effect)
            if effects and work >= _RECORDS_PER_STEP and not at_once:
                hosted.backlog = effects
                self.loop.call_soon(self._work_off, hosted)
                return

    def _work_off(self, hosted: HostedGroup) -> None:
        effects, hosted.backlog = hosted.backlog, None
        if effects:
            self._carry_out(hosted, effects)

    def _finish_backlog(self, hosted: HostedGroup) -> None:
        """Carry out the effects that wait, now."""
        while hosted.backlog is not None:
            effects, hosted.backlog = hosted.backlog, None
            self._carry_out(hosted, effects, at_once=True)

    def _make_batch(self, hosted: HostedGroup, effect: ConsumerEffect) -> None:
        """Make the batch of the first effect of the backlog, which has many records; then go on with the backlog."""
        assert isinstance(effect, Persist)
        backlog = hosted.backlog
        steps = self.batch_of(self._records_of(effect))

        def go_on() -> None:
            if hosted.backlog is not backlog or not backlog or backlog[0] is not effect:
                return  # It was carried out at once, as the group has ended.
            try:
                next(steps)
            except StopIteration as stop:
                backlog[0] = effect._replace(batch=stop.value)
            except EncodeError:
                backlog.popleft()
                self._carry_out(hosted, deque([effect]), at_once=True)  # It reports the error.
            else:
                self.loop.call_soon(go_on)
                return
            self._work_off(hosted)

        self.loop.call_soon(go_on)

    def batch_of(self, records: Iterable[CoordinatorRecord]) -> Steps[bytearray]:
        """The batch of many records, some of them per step.

        Raises:
            EncodeError: a field is longer than a record allows.
        """
        encoded = []
        weight = 0
        for record in records:
            encoded.append(group_record(record))
            weight += _weight(record[1])
            if weight >= _RECORDS_PER_STEP:
                weight = 0
                yield
        return (yield from make_batch(encoded, self.wall_ms()))

    def _records_of(self, effect: Persist) -> Sequence[CoordinatorRecord]:
        """The records that an effect appends, with the time of day."""
        if effect.state_since is not None:
            _, value = effect.records[-1]
            assert isinstance(value, GroupMetadataValue)
            value.current_state_timestamp = self.wall_ms() - int((self.now() - effect.state_since) * 1000)
        return effect.records

    def _downgrade(self, hosted: HostedGroup, effect: Downgrade) -> None:
        """A group of the consumer protocol becomes classic."""
        before = hosted.group
        assert isinstance(before, ConsumerGroup)

        def steps() -> Steps[tuple[ClassicGroup, list[Effect]]]:
            group, effects = yield from downgrade(before, effect, self.settings, self.now())
            for number, persist in enumerate(effects):
                if isinstance(persist, Persist) and is_large(persist):
                    effects[number] = persist._replace(batch=(yield from self.batch_of(self._records_of(persist))))
            return group, effects

        def over(result: Any) -> None:
            if isinstance(result, KafkaError):
                self.act(hosted, [failed(reply, result) for reply in effect.replies])
                return
            before.mark_dead(self.now())
            hosted.group, effects = result
            self.act(hosted, effects)

        self.change_protocol(hosted, steps(), over)

    def _assign(self, hosted: HostedGroup, effect: Assign) -> None:
        """Compute a target: at once for a small group, else where it does not hold the loop."""
        group, spec = hosted.group, effect.spec
        if not isinstance(group, ConsumerGroup):
            return
        assignor = self._assignors[effect.assignor]

        def done(result: Any) -> None:
            if self.waits(hosted, partial(done, result)):
                return
            now = self.now()
            if isinstance(result, Exception):
                pairs = {"assignor": effect.assignor, "reason": repr(result)}
                self.lines.add(log.error, "assignor failed", group.group_id, **pairs)
                effects = group.assign_failed(effect.ticket, str(result) or repr(result), now)
            else:
                effects = group.assigned(effect.ticket, result, now, self.wall_ms())
            if hosted.group is group:
                self.act(hosted, effects)

        size = len(spec.members) + sum(topic.partitions for topic in spec.topics.values())
        run = at_once if size <= _SMALL else self.offload
        run(lambda: NewTargets.of(group.group_id, spec, assignor.assign(spec)), done)

    def _resolve(self, hosted: HostedGroup, effect: Resolve) -> None:
        """Match all topics with a group's regular expressions, and keep those that the client may describe."""
        group, topics = hosted.group, self.consumer_settings.topics
        if not isinstance(group, ConsumerGroup):
            return
        version = topics.names_version

        def take_over(matches: Mapping[str, frozenset[str]]) -> Steps[None]:
            if effect.may_describe is not None:
                matches = yield from authorized(matches, effect.may_describe)
            # Many expressions may match the same topics.
            yield from topics.hash_each(chain.from_iterable(dict.fromkeys(matches.values())))
            parts = [*in_parts(matches), {}]  # with the last one, the group hashes all of its topics
            for number, part in enumerate(parts, 1):
                last = number == len(parts)
                effects = group.regexes_resolved(effect.ticket, part, version, self.now(), self.wall_ms(), last=last)
                if hosted.group is group:
                    self.act(hosted, effects)
                if not last:
                    yield

        def matched(matches: Mapping[str, frozenset[str]]) -> None:
            if self.waits(hosted, partial(matched, matches)):
                return
            # Thousands of topics take long to authorize, to hash and to take over: other tasks run between two steps.
            self.runtime.gradually(take_over(matches))

        self._regexes.resolve(effect.regexes, topics.by_name, version, effect.client, matched)

    def publish(self, group_id: str, event: GroupEvent) -> None:
        """Publish a group event, and log it."""
        event = event.changed(group=group_id, time=self.wall_ms())
        quiet = self._on_event(group_id, event)
        line = self.event_lines.line_of(event)
        if line is not None and quiet:
            log.debug(line.event, **line.pairs)
        elif line is not None:
            pairs = {name: value for name, value in line.pairs.items() if name != "group"}
            self.lines.add(getattr(log, line.level), line.event, group_id, **pairs)
        if log.isEnabledFor(logging.DEBUG):
            sentence = event.kafka()
            if sentence is not None:
                log.debug(sentence)

    def _remove_dead(self, hosted: HostedGroup) -> None:
        """Remove a dead group. If its record could not be appended, offsets committed meanwhile stay."""
        group_id = hosted.name
        if hosted.offsets and self.by_id.get(group_id) is hosted:
            group = hosted.group = ClassicGroup(group_id, self.settings, self.now())
            group.recorded = True
            hosted.sightings = Sightings(group_id)
        else:
            self.forget(hosted)

    # Records

    def next_sequence(self) -> int:
        """The position of the next record in the order of appends."""
        self.last_sequence += 1
        return self.last_sequence

    def skip_sequences(self, offset: int) -> None:
        """Make all records appended from now on newer than those replayed up to `offset`."""
        self.last_sequence = max(self.last_sequence, offset)

    def _persist(self, hosted: HostedGroup, effect: Persist) -> int:
        """Append records; returns how many have been encoded, and a large one counts as several."""
        group = hosted.group
        if group.is_dead:
            return 0

        # Not a function that refers to itself: that is a reference cycle for each append.
        done = partial(self._persisted, hosted, group, effect.ticket, effect.caller)
        if effect.batch is not None:
            self.runtime.writer.add_batch(hosted.home.index, effect.batch, done)
            return 0
        try:
            records = [group_record(each) for each in self._records_of(effect)]
        except EncodeError as error:
            self.lines.add(log.warning, "group records cannot be encoded", group.group_id, reason=str(error))
            # Not now: the machine is in the middle of a call.
            self.loop.call_soon(done, ErrorCode.RECORD_LIST_TOO_LARGE)
            return 0
        self.runtime.append(hosted, records, done)
        return len(records) + sum(len(key) + len(value or b"") for key, value in records) // _BYTES_PER_RECORD

    def _persisted(
        self, hosted: HostedGroup, group: Group, ticket: int, caller: Caller | None, error: ErrorCode
    ) -> None:
        """The result of an append of a group's records."""
        if hosted.home.unloaded:
            return  # The end of the group responds.
        again = partial(self._persisted, hosted, group, ticket, caller, error)
        if hosted.group is group and not self.waits(hosted, again):
            connection = None if caller is None else caller.connection
            if error == ErrorCode.REQUEST_TIMED_OUT:
                self.act(hosted, group.persist_delayed(ticket, self.now()))
            else:
                self.act(hosted, group.persisted(ticket, error, self.now()), connection)

    def append_tombstones(
        self,
        hosted: HostedGroup,
        keys: list[tuple[str, int]],
        done: Waiter | None = None,
        *,
        whole_group: bool = False,
    ) -> None:
        """Append tombstones of offsets (topic, partition), and of the group itself if `whole_group`.

        The offsets are removed when the tombstones are in the log; the group, too, if no member has joined meanwhile.

        Args:
            hosted: the group.
            keys: topic and partition of each offset.
            done: gets the result, as in :data:`~barnabas_broker.coordinators.writer.Waiter`; if None, a failure
                is logged.
            whole_group: whether to delete the group.
        """
        records: list[tuple[bytes, bytes | None]] = [(hosted.offset_key(*each), None) for each in keys]
        if whole_group:
            records += [group_record(each) for each in hosted.group.tombstones()]
        sequence = self.next_sequence()

        def appended(error: ErrorCode) -> None:
            if error == ErrorCode.NONE:
                for topic, partition in keys:
                    hosted.offsets.apply(topic, partition, None, sequence)
                if whole_group:
                    self._forget_if_unused(hosted)
            if done is None:
                self._log_failure(hosted.name, error)
            else:
                done(error)

        self.runtime.append(hosted, records, appended)

    def _log_failure(self, group_id: str, error: ErrorCode) -> None:
        if error != ErrorCode.NONE:
            self.lines.add(log.warning, f"append to {OFFSETS_TOPIC} failed", group_id, error=error.name)

    def _forget_if_unused(self, hosted: HostedGroup) -> None:
        if self.waits(hosted, partial(self._forget_if_unused, hosted)):
            return
        group = hosted.group
        if group.is_unused and not hosted.offsets:
            self.forget(hosted)
            group.mark_dead(self.now())


def is_large(effect: ConsumerEffect) -> bool:
    """Whether an effect appends so many records, or topics in them, that later iterations of the loop encode them."""
    if not isinstance(effect, Persist) or effect.batch is not None:
        return False
    return sum(_weight(value) for _, value in effect.records) > MOST_AT_ONCE


def _weight(value: Data | None) -> int:
    """How long a record takes to encode, in records without many topics."""
    match value:
        case ConsumerGroupCurrentMemberAssignmentValue():
            topics = len(value.assigned_partitions) + len(value.partitions_pending_revocation)
        case ConsumerGroupTargetAssignmentMemberValue():
            topics = len(value.topic_partitions)
        case ConsumerGroupMemberMetadataValue():
            topics = len(value.subscribed_topic_names)
        case ConsumerGroupRegularExpressionValue():
            topics = len(value.topics)
        case _:
            topics = 0
    return 1 + topics // 2
