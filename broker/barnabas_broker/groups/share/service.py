"""The coordinator of share groups: heartbeats, sessions, and the states of their share partitions. A shell.

The machine of each group decides; :mod:`~barnabas_broker.coordinators.runtime` finds it, appends what it decides to
``__consumer_offsets``, and loads and unloads partitions. The states of share partitions are created at the share
coordinator before they are assigned. A member that joins waits a moment for that, so that its first response has its
partitions.

Source: Kafka's ``GroupCoordinatorService`` and ``GroupMetadataManager``.
"""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from typing import Any, Final
from uuid import UUID

from barnabas_broker.config import Config, ConfigError, GroupConfig
from barnabas_broker.config.keys import (
    GROUP_SHARE_MAX_SIZE,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
)
from barnabas_broker.coordinators.ports import CoordinatorLog, Scheduler
from barnabas_broker.coordinators.replay import PartitionReplay, Report
from barnabas_broker.coordinators.runtime import Hosted, HostedPartition, Runtime
from barnabas_broker.groups.consumer.topics import TopicCatalog
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.share.group import (
    Decision,
    ShareGroup,
    ShareGroupSettings,
    ShareGroupTimes,
    StateTopics,
    heartbeat_error,
)
from barnabas_broker.logs import logger
from barnabas_broker.shares.persister import SharePersister
from barnabas_broker.shares.records import ShareKey
from barnabas_explain.catalog import GroupEvent
from barnabas_protocol.coordinator_records import CoordinatorRecord
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.group_records import SHARE_KEYS, group_record, key_type, read_consumer_record
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas_protocol.records import BatchHeader, Record
from barnabas_protocol.wire import MAX_STRING

log = logger("coordinator")

#: Groups that are restored in one turn of the event loop.
_STEP: Final = 50
#: Share partitions whose states are created, deleted or read at once.
_AT_ONCE: Final = 50
#: Seconds that a member which joins waits for the states of share partitions.
_JOIN_WAIT: Final = 3.0
#: Seconds that a request waits for an earlier change of its group.
_PATIENCE: Final = 5.0


class HostedShareGroup(Hosted[ShareGroup, HostedPartition["HostedShareGroup"]]):
    """A share group that this broker coordinates.

    Attributes:
        armed: see :class:`~barnabas_broker.coordinators.timers.Timed`.
        creating: creates the states of share partitions; None if nothing does.
    """

    __slots__ = ("_owner", "armed", "creating")

    def __init__(self, owner: "ShareGroups", home: "HostedPartition[HostedShareGroup]", machine: ShareGroup) -> None:
        super().__init__(machine.group_id, home, machine)
        self._owner = owner
        self.armed = inf
        self.creating: asyncio.Task[None] | None = None

    def next_deadline(self) -> float:
        # One that was unloaded has no member to remove: its timer would fire without end.
        return self.machine.next_deadline() if self._owner.runtime.wanted(self) else inf

    def fire(self, now: float) -> None:
        self._owner.expire(self, now)


class ShareGroupReplay(PartitionReplay):
    """The share groups of the records replayed so far.

    Attributes:
        groups: the machine of each group, of deleted ones too: compaction may have left any record of a group as its
            first one.
    """

    def __init__(self, report: Report, start: int, new: Callable[[str], ShareGroup]) -> None:
        super().__init__(report, start)
        self._new = new
        self.groups: dict[str, ShareGroup] = {}

    def apply(self, header: BatchHeader, record: Record) -> None:
        """Replay a record; those of other groups are skipped."""
        record_type = -1 if header.is_control else key_type(record.key)
        if record.key is None or record_type not in SHARE_KEYS:
            return
        read = read_consumer_record(record_type, record.key, record.value)
        group_id: str = getattr(read[0], "group_id")  # noqa: B009  every key of these has one
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new(group_id)
        group.apply(read)


class ShareGroups:
    """Coordinates the share groups whose partition of ``__consumer_offsets`` this broker leads.

    Args:
        config: of the broker.
        topic_log: appends to and reads ``__consumer_offsets``.
        catalog: the topics of the cluster.
        persister: creates, deletes and reads the states of share partitions.
        is_other: whether a group of another type has an id.
        publish: gets every group event.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        scheduler: the timers of `now`; those of the event loop if None.

    Attributes:
        runtime: the partitions of ``__consumer_offsets`` that this broker leads, and their share groups.
    """

    what = "share groups"
    ids = "groups"
    busy = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def __init__(
        self,
        config: Config,
        topic_log: CoordinatorLog,
        catalog: TopicCatalog,
        persister: SharePersister,
        is_other: Callable[[str], bool],
        publish: Callable[[str, GroupEvent], None],
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        scheduler: Scheduler | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._persister = persister
        self._is_other = is_other
        self._publish = publish
        self._now = now
        self._times = _times_of(GroupConfig(config, {}))
        #: Timeouts of the groups that have their own, by group id.
        self._own_times: dict[str, ShareGroupTimes] = {}
        self._settings = ShareGroupSettings(
            catalog, lambda group_id: self._own_times.get(group_id, self._times), config[GROUP_SHARE_MAX_SIZE]
        )
        self.runtime: Runtime[HostedPartition[HostedShareGroup], HostedShareGroup, Any] = Runtime(
            OFFSETS_TOPIC,
            config[OFFSETS_TOPIC_NUM_PARTITIONS],
            self,
            topic_log,
            log,
            self._loop,
            self._loop if scheduler is None else scheduler,
            now,
            wall_ms,
            timeout=config[OFFSETS_COMMIT_TIMEOUT_MS] / 1000,
            patience=_PATIENCE,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    # What changes outside

    def topics_changed(self, partitions: Mapping[str, int]) -> None:
        """Set the number of partitions of new and changed topics."""
        if OFFSETS_TOPIC in partitions:
            self.runtime.resized(partitions[OFFSETS_TOPIC])

    def topics_deleted(self) -> None:
        """Forget the share partitions of topics that are deleted, a few groups in each turn of the loop."""
        self.runtime.gradually(self._forget_deleted())

    def _forget_deleted(self) -> Iterator[None]:
        for home in list(self.runtime.partitions.values()):
            for hosted in list(home.hosted.values()):
                known, machine = self._settings.topics.by_id, hosted.machine
                gone = [topic_id for topic_id in machine.initialized | machine.initializing if topic_id not in known]
                if gone:
                    self.runtime.insist(hosted, lambda hosted, gone=gone: hosted.machine.have_no_states(gone))  # type: ignore[misc]
                yield

    def configured(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Set the configuration of a group, which need not exist; a running one uses it at once."""
        self._own_times.pop(group_id, None)
        try:
            own = _times_of(GroupConfig(self._config, overrides))
        except ConfigError:
            return  # the group coordinator reports it
        if own != self._times:
            self._own_times[group_id] = own

    # Requests

    def hosts(self, group_id: str) -> bool:
        """Whether this broker coordinates a share group with this id."""
        home = self.runtime.partitions.get(self.runtime.partition_for(group_id))
        return home is not None and group_id in home.hosted

    def all(self) -> Iterable[ShareGroup]:
        """The machines of all share groups of this broker."""
        return [
            hosted.machine
            for home in list(self.runtime.partitions.values())
            if not home.loading
            for hosted in list(home.hosted.values())
            if not hosted.machine.gone
        ]

    async def heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareGroupHeartbeatResponse:
        """ShareGroupHeartbeat."""
        try:
            hosted = self._group_of(request)
        except KafkaError as error:
            return heartbeat_error(error)
        response = await self._beat(hosted, request, caller)
        if response.error_code != ErrorCode.NONE:
            return response
        self._create_states(hosted)
        if request.member_epoch == 0 and hosted.creating is not None:
            await asyncio.wait([hosted.creating], timeout=_JOIN_WAIT)
            again = ShareGroupHeartbeatRequest(
                group_id=request.group_id, member_id=request.member_id, member_epoch=response.member_epoch
            )
            later = await self._beat(hosted, again, caller)
            if later.error_code == ErrorCode.NONE and later.assignment is not None:
                return later
        return response

    def _group_of(self, request: ShareGroupHeartbeatRequest) -> HostedShareGroup:
        """The group of a heartbeat; a new one if the member joins.

        Raises:
            KafkaError: there is none, or this broker does not coordinate it.
        """
        group_id = request.group_id
        if not group_id.strip() or len(group_id.encode()) > MAX_STRING:
            text = "GroupId is too long." if group_id.strip() else "GroupId can't be empty."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        home = self.runtime.home(group_id)
        hosted = home.hosted.get(group_id)
        if hosted is None:
            if self._is_other(group_id):
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
            hosted = HostedShareGroup(self, home, self._new(group_id))
            if request.member_epoch == 0:
                home.hosted[group_id] = hosted
        return hosted

    async def _beat(
        self, hosted: HostedShareGroup, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> ShareGroupHeartbeatResponse:
        answer = await self._ask(hosted, lambda hosted: hosted.machine.heartbeat(request, caller, self._now()))
        if isinstance(answer, ErrorCode):
            return heartbeat_error(KafkaError(answer))
        response: ShareGroupHeartbeatResponse = answer
        self.runtime.timers.arm(hosted)
        return response

    def _ask(self, hosted: HostedShareGroup, step: Callable[[HostedShareGroup], Decision]) -> Future[Any]:
        """Ask the machine of a group."""
        reply: Future[Any] = self._loop.create_future()

        def respond(answer: Any) -> None:
            if not reply.done():
                reply.set_result(answer)

        self.runtime.ask(hosted, step, respond)
        if hosted.machine.gone and hosted.append is None:
            hosted.home.hosted.pop(hosted.name, None)  # its first request was refused
        return reply

    def find(self, group_id: str) -> ShareGroup:
        """The machine of a group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or this broker does not coordinate it.
        """
        hosted = self.runtime.home(group_id).hosted.get(group_id)
        if hosted is None or hosted.machine.gone:
            why = "is not a share group" if self._is_other(group_id) else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        return hosted.machine

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End the session of a member, as if its heartbeats had stopped."""
        hosted = self.runtime.home(group_id).hosted[group_id]
        hosted.machine.end_session(member_id, self._now())
        self.runtime.timers.arm(hosted)
        self.runtime.timers.run()

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, with the states of its share partitions."""
        hosted = self._empty(group_id)
        machine = hosted.machine
        keys = _keys(group_id, machine.initialized) | _keys(group_id, machine.initializing)
        errors = await self._each(keys, self._persister.delete)
        for error in errors.values():
            if error is not None:
                return error.code
        answer: ErrorCode = await self._ask(hosted, lambda hosted: hosted.machine.delete())
        return answer

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[ShareKey, int], names: Mapping[bytes, str]
    ) -> dict[ShareKey, KafkaError | None]:
        """AlterShareGroupOffsets: begin share partitions anew at other offsets. A group that does not exist begins.

        Args:
            group_id: of a group without members, or of a new one.
            offsets: the new start offset of each share partition.
            names: the names of the topics.

        Raises:
            KafkaError: the group has members, or another type.
        """
        hosted = self._empty_or_new(group_id)
        if not offsets:
            if hosted.machine.gone:
                hosted.home.hosted.pop(group_id, None)
            return {}
        topics = _topics(offsets, names)
        answer = await self._ask(hosted, lambda hosted: hosted.machine.begin_again(topics))
        if answer is not ErrorCode.NONE:
            raise KafkaError(answer)
        epoch = hosted.machine.epoch
        errors = await self._each(offsets, lambda key: self._persister.initialize(key, epoch, offsets[key]))
        done = _topics([key for key, error in errors.items() if error is None], names)
        await self._ask(hosted, lambda hosted: hosted.machine.have_states(done))
        return errors

    async def delete_offsets(self, group_id: str, topic_ids: Iterable[bytes]) -> dict[bytes, KafkaError | None]:
        """DeleteShareGroupOffsets: delete the states of the share partitions of topics; the first error of each topic.

        Raises:
            KafkaError: the group has members, or does not exist.
        """
        hosted = self._empty(group_id)
        machine, results = hosted.machine, dict[bytes, KafkaError | None]()
        for topic_id in topic_ids:
            keys = dict[ShareKey, None]()
            for topics in (machine.initialized, machine.initializing):
                if topic_id in topics:
                    keys |= _keys(group_id, {topic_id: topics[topic_id]})
            if not keys:
                text = "There is no offset information to delete."
                results[topic_id] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                continue
            errors = await self._each(keys, self._persister.delete)
            results[topic_id] = next((error for error in errors.values() if error is not None), None)
        done = [topic_id for topic_id, error in results.items() if error is None]
        await self._ask(hosted, lambda hosted: hosted.machine.have_no_states(done))
        return results

    def _empty(self, group_id: str) -> HostedShareGroup:
        """A group that has no members.

        Raises:
            KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or this broker does not coordinate it.
        """
        if self.find(group_id).members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return self.runtime.home(group_id).hosted[group_id]

    def _empty_or_new(self, group_id: str) -> HostedShareGroup:
        """A group that has no members; a new one if no group has this id.

        Raises:
            KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or this broker does not coordinate it.
        """
        home = self.runtime.home(group_id)
        if group_id in home.hosted or self._is_other(group_id):
            return self._empty(group_id)
        hosted = home.hosted[group_id] = HostedShareGroup(self, home, self._new(group_id))
        return hosted

    # The states of share partitions

    def _create_states(self, hosted: HostedShareGroup) -> None:
        """Create the states that are missing, unless that is being done."""
        if hosted.creating is None and hosted.machine.missing:
            task = hosted.creating = self._loop.create_task(self._created(hosted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _created(self, hosted: HostedShareGroup) -> None:
        try:
            machine = hosted.machine
            missing = machine.missing
            names = {topic_id: name for topic_id, (name, _) in missing.items()}
            if await self._ask(hosted, lambda hosted: hosted.machine.begin(missing)) is not ErrorCode.NONE:
                return
            epoch = machine.epoch
            errors = await self._each(
                _keys(hosted.name, missing), lambda key: self._persister.initialize(key, epoch, -1)
            )
            done = _topics([key for key, error in errors.items() if error is None], names)
            if done:
                await self._ask(hosted, lambda hosted: hosted.machine.have_states(done))
            for error in errors.values():
                if error is not None:
                    log.warning(
                        "share partitions have no state yet, the next heartbeats try again",
                        group=hosted.name,
                        error=error.code.name,
                        reason=error.message,
                    )
                    break
        finally:
            hosted.creating = None

    async def _each(
        self, keys: Iterable[ShareKey], do: Callable[[ShareKey], Awaitable[None]]
    ) -> dict[ShareKey, KafkaError | None]:
        """Do something to share partitions, some at once; the error of each."""
        errors: dict[ShareKey, KafkaError | None] = {}

        async def one(key: ShareKey) -> None:
            try:
                await do(key)
            except KafkaError as error:
                errors[key] = error
            else:
                errors[key] = None

        left = iter(keys)
        while some := list(islice(left, _AT_ONCE)):
            await asyncio.gather(*map(one, some))
        return errors

    # What follows from decisions

    def encode(self, hosted: HostedShareGroup, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """See :class:`~barnabas_broker.coordinators.runtime.Shard`, for this and the methods below."""
        return group_record(record)

    def refusal(self, error: ErrorCode) -> ErrorCode:
        return error

    def publish(self, hosted: HostedShareGroup, event: GroupEvent) -> None:
        self._publish(hosted.name, event)

    def applied(self, hosted: HostedShareGroup) -> None:
        self.runtime.timers.arm(hosted)

    def expire(self, hosted: HostedShareGroup, now: float) -> None:
        """Remove the members of a group whose sessions have ended."""
        if not self.runtime.do(hosted, lambda hosted: hosted.machine.expire(now)):
            hosted.machine.postpone(now)  # an append is under way

    # Partitions

    def _new(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self._settings)

    def partition(self, index: int, leader_epoch: int) -> HostedPartition[HostedShareGroup]:
        return HostedPartition(index, leader_epoch)

    def replay(self, report: Report, start: int) -> ShareGroupReplay:
        return ShareGroupReplay(report, start, self._new)

    def restore(self, home: HostedPartition[HostedShareGroup], replay: ShareGroupReplay) -> Iterator[None]:
        for number, (group_id, machine) in enumerate(replay.groups.items(), 1):
            if not machine.gone:
                machine.restored(self._now())
                home.hosted[group_id] = HostedShareGroup(self, home, machine)
            if not number % _STEP:
                yield

    def resume(self, home: HostedPartition[HostedShareGroup]) -> Iterator[None]:
        for number, hosted in enumerate(list(home.hosted.values()), 1):
            self.runtime.timers.arm(hosted)
            if not number % _STEP:
                yield

    def unloaded(self, home: HostedPartition[HostedShareGroup]) -> None:
        for hosted in home.hosted.values():
            if hosted.creating is not None:
                hosted.creating.cancel()

    async def close(self) -> None:
        """Append what was collected, answer all requests, and stop."""
        closed = self.runtime.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await closed


def _times_of(config: GroupConfig) -> ShareGroupTimes:
    """The timeouts of a group, within the broker's bounds."""
    return ShareGroupTimes(config.bounded(SHARE_SESSION_TIMEOUT_MS) / 1000, config.bounded(SHARE_HEARTBEAT_INTERVAL_MS))


def _keys(group_id: str, topics: StateTopics) -> dict[ShareKey, None]:
    """The share partitions of a group, in their order."""
    return {
        ShareKey(group_id, UUID(bytes=topic_id), number): None
        for topic_id, (_, numbers) in topics.items()
        for number in sorted(numbers)
    }


def _topics(keys: Iterable[ShareKey], names: Mapping[bytes, str]) -> StateTopics:
    found: dict[bytes, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id.bytes, set()).add(key.partition)
    return {topic_id: (names[topic_id], frozenset(numbers)) for topic_id, numbers in found.items()}
