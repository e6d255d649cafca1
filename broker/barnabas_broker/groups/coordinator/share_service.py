"""Requests about share groups: heartbeats, sessions, and the states of their share partitions. A shell.

The machine of each group decides; :mod:`~barnabas_broker.coordinators.runtime` appends what it decides to
``__consumer_offsets``. The states of share partitions are created at the share coordinator before they are assigned. A
member that joins waits a moment for that, so that its first response has its partitions.

Source: Kafka's ``GroupCoordinatorService`` and ``GroupMetadataManager``.
"""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final
from uuid import UUID

from barnabas_broker.config import Config, ConfigError, GroupConfig
from barnabas_broker.config.keys import (
    GROUP_SHARE_MAX_SIZE,
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
)
from barnabas_broker.coordinators.runtime import answer_once
from barnabas_broker.coordinators.writer import Waiter
from barnabas_broker.groups.coordinator.hosting import HostedGroups, HostedShareGroup
from barnabas_broker.groups.coordinator.inspection import describe_each, describe_share_group, failed_share_group
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.ports import ShareStates
from barnabas_broker.groups.share.group import (
    Decision,
    ShareGroup,
    ShareGroupSettings,
    ShareGroupTimes,
    StateTopics,
    heartbeat_error,
)
from barnabas_broker.logs import logger
from barnabas_broker.shares.records import ShareKey
from barnabas_broker.steps import Steps
from barnabas_explain.catalog import GroupEvent
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.share_group_describe import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas_protocol.wire import MAX_STRING

log = logger("coordinator")

#: Share partitions whose states are created, deleted or read at once.
_AT_ONCE: Final = 50
#: Seconds that a member which joins waits for the states of share partitions.
_JOIN_WAIT: Final = 3.0


class ShareGroups:
    """The requests about share groups.

    Args:
        hosted_groups: the groups of this broker.
        config: of the broker.
        states: creates and deletes the states of share partitions.
    """

    def __init__(self, hosted_groups: HostedGroups, config: Config, states: ShareStates) -> None:
        self._hosted_groups = hosted_groups
        self._runtime = hosted_groups.runtime
        self._config = config
        self._states = states
        self._now = hosted_groups.now
        self._times = _times_of(GroupConfig(config, {}))
        #: Timeouts of the groups that have their own, by group id.
        self._own_times: dict[str, ShareGroupTimes] = {}
        self._settings = ShareGroupSettings(
            hosted_groups.consumer_settings.topics,
            lambda group_id: self._own_times.get(group_id, self._times),
            config[GROUP_SHARE_MAX_SIZE],
        )
        self._tasks: set[asyncio.Task[None]] = set()

    # What changes outside

    def topics_deleted(self) -> None:
        """Forget the share partitions of topics that are deleted, a few groups in each turn of the loop."""
        self._runtime.gradually(self._forget_deleted())

    def _forget_deleted(self) -> Iterator[None]:
        for hosted in self._all():
            known, machine = self._settings.topics.by_id, hosted.machine
            gone = [topic_id for topic_id in machine.initialized | machine.initializing if topic_id not in known]
            if gone:
                self._runtime.insist(hosted, partial(_have_no_states, topic_ids=gone))
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

    def all(self) -> Iterable[ShareGroup]:
        """The machines of all share groups of this broker."""
        return [hosted.machine for hosted in self._all() if not hosted.machine.gone]

    def _all(self) -> list[HostedShareGroup]:
        return [
            hosted
            for home in self._runtime.partitions.values()
            if not home.loading
            for hosted in home.hosted.values()
            if isinstance(hosted, HostedShareGroup)
        ]

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, version: int, caller: Caller
    ) -> ShareGroupHeartbeatResponse:
        """ShareGroupHeartbeat: answered when its records are in the log, and its share partitions have states."""
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
        return self._find_or_create(group_id, keep=request.member_epoch == 0)

    def _find_or_create(self, group_id: str, *, keep: bool = True) -> HostedShareGroup:
        """The group with this id; a new one if there is none.

        Args:
            group_id: its id.
            keep: whether a new group is hosted: the first request makes it one that is in the log.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, it has another type; or this broker does not coordinate it.
        """
        home = self._runtime.home(group_id)
        hosted = home.hosted.get(group_id) or HostedShareGroup(home, self.new_machine(group_id))
        if not isinstance(hosted, HostedShareGroup):
            raise self._hosted_groups.not_found(group_id, "share")
        if keep:
            home.hosted[group_id] = hosted
        return hosted

    async def _beat(
        self, hosted: HostedShareGroup, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> ShareGroupHeartbeatResponse:
        answer = await self._ask(hosted, lambda hosted: hosted.machine.heartbeat(request, caller, self._now()))
        if isinstance(answer, ErrorCode):
            return heartbeat_error(KafkaError(answer))
        response: ShareGroupHeartbeatResponse = answer
        self._runtime.timers.arm(hosted)
        return response

    def _ask(self, hosted: HostedShareGroup, step: Callable[[HostedShareGroup], Decision]) -> Future[Any]:
        """Ask the machine of a group."""
        reply: Future[Any] = self._hosted_groups.loop.create_future()
        self._runtime.ask(hosted, step, partial(answer_once, reply))
        return reply

    def describe(
        self, request: ShareGroupDescribeRequest, version: int, caller: Caller
    ) -> Steps[ShareGroupDescribeResponse]:
        """ShareGroupDescribe, one group per step, or a part of a large one."""
        topics = self._hosted_groups.consumer_settings.topics

        def describe(group_id: str) -> Steps[DescribedShareGroup]:
            return describe_share_group(self.find(group_id), topics, request.include_authorized_operations)

        groups = yield from describe_each(request.group_ids, describe, failed_share_group)
        return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)

    def find(self, group_id: str) -> ShareGroup:
        """The machine of a group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or this broker does not coordinate it.
        """
        return self._find(group_id).machine

    def _find(self, group_id: str) -> HostedShareGroup:
        hosted = self._runtime.home(group_id).hosted.get(group_id)
        if not isinstance(hosted, HostedShareGroup):
            raise self._hosted_groups.not_found(group_id, "share")
        if hosted.machine.gone:  # its first record is being appended
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return hosted

    def publish(self, group_id: str, event: GroupEvent) -> None:
        """Publish an event of a group whose records this broker delivers. If it has the group, its epoch is known."""
        with suppress(KafkaError):
            event = event.changed(generation=self.find(group_id).epoch)
        self._hosted_groups.publish(group_id, event)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End the session of a member, as if its heartbeats had stopped."""
        hosted = self._find(group_id)
        hosted.machine.end_session(member_id, self._now())
        self._runtime.timers.arm(hosted)
        self._runtime.timers.run()

    def find_empty(self, group_id: str) -> HostedShareGroup:
        """A group that has no members.

        Raises:
            KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or this broker does not coordinate it.
        """
        return _without_members(self._find(group_id))

    def delete(self, hosted: HostedShareGroup, deleted: Waiter) -> None:
        """Delete a group without members, with the states of its share partitions; `deleted` gets the result."""
        self._begin(self._delete(hosted, deleted))

    async def _delete(self, hosted: HostedShareGroup, deleted: Waiter) -> None:
        machine, error = hosted.machine, ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            keys = _keys(hosted.name, machine.initialized) | _keys(hosted.name, machine.initializing)
            errors = await self._each(keys, self._states.delete)
            failed = next((each for each in errors.values() if each is not None), None)
            error = (
                failed.code if failed is not None else await self._ask(hosted, lambda hosted: hosted.machine.delete())
            )
        finally:
            deleted(error)

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
        hosted = _without_members(self._find_or_create(group_id, keep=bool(offsets)))
        if not offsets:
            return {}
        topics = _topics(offsets, names)
        answer = await self._ask(hosted, lambda hosted: hosted.machine.begin_again(topics))
        if answer is not ErrorCode.NONE:
            raise KafkaError(answer)
        epoch = hosted.machine.epoch
        errors = await self._each(offsets, lambda key: self._states.initialize(key, epoch, offsets[key]))
        done = _topics([key for key, error in errors.items() if error is None], names)
        await self._ask(hosted, lambda hosted: hosted.machine.have_states(done))
        return errors

    async def delete_offsets(self, group_id: str, topic_ids: Iterable[bytes]) -> dict[bytes, KafkaError | None]:
        """DeleteShareGroupOffsets: delete the states of the share partitions of topics; the first error of each topic.

        Raises:
            KafkaError: the group has members, or does not exist.
        """
        hosted = self.find_empty(group_id)
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
            errors = await self._each(keys, self._states.delete)
            results[topic_id] = next((error for error in errors.values() if error is not None), None)
        done = [topic_id for topic_id, error in results.items() if error is None]
        await self._ask(hosted, lambda hosted: hosted.machine.have_no_states(done))
        return results

    # The states of share partitions

    def _create_states(self, hosted: HostedShareGroup) -> None:
        """Create the states that are missing, unless that is being done."""
        if hosted.creating is None and hosted.machine.missing:
            hosted.creating = self._begin(self._created(hosted))

    async def _created(self, hosted: HostedShareGroup) -> None:
        try:
            machine = hosted.machine
            missing = machine.missing
            names = {topic_id: name for topic_id, (name, _) in missing.items()}
            if await self._ask(hosted, lambda hosted: hosted.machine.begin(missing)) is not ErrorCode.NONE:
                return
            epoch = machine.epoch
            errors = await self._each(_keys(hosted.name, missing), lambda key: self._states.initialize(key, epoch, -1))
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

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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

    # Of the coordinator

    def new_machine(self, group_id: str) -> ShareGroup:
        """The machine of a group about which nothing is in the log."""
        return ShareGroup(group_id, self._settings)

    async def close(self) -> None:
        """End what creates and deletes states of share partitions."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _without_members(hosted: HostedShareGroup) -> HostedShareGroup:
    """A group that has no members.

    Raises:
        KafkaError: NON_EMPTY_GROUP.
    """
    if hosted.machine.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    return hosted


def _have_no_states(hosted: HostedShareGroup, topic_ids: Collection[bytes]) -> Decision:
    return hosted.machine.have_no_states(topic_ids)


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
