"""A coordinator that replays the log knows the same groups as the one that wrote it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from tests.broker.groups.memory import MemoryLog
from tests.broker.groups.recorded import differences, is_behind
from tests.broker.groups.support import CALLER, Service, assignment, turn

GROUPS = ("g", "h")
PARTITIONS = (0, 1)
PRODUCERS = (7, 8)
#: Seconds after which offsets expire, at the latest: retention and interval are as short as the keys allow.
EXPIRY = 65.0


#: Seconds after which an append that has failed is tried again.
RETRY = 31.0
#: The states in which the members of a classic group join, or wait for their leader: the log does not have them.
VOLATILE = ("PreparingRebalance", "CompletingRebalance")


class Coordinator(Service):
    """A coordinator with topics.

    Attributes:
        topics: the topics of the cluster.
    """

    def __init__(self, log: MemoryLog | None = None, topics: Sequence[Topic] = ()) -> None:
        super().__init__(
            log,
            offsets_retention_minutes="1",
            offsets_retention_check_interval_ms="1000",
            group_consumer_assignment_interval_ms="0",
        )
        self.topics: Sequence[Topic] = ()
        self._epochs = count(2)
        self.set_topics({topic.name: topic.partitions for topic in topics} or {"t": 3, "u": 2, "v": 1})

    def set_topics(self, sizes: Mapping[str, int]) -> None:
        """The topics of the cluster are these, with these numbers of partitions."""
        self.topics = [Topic(name.encode() * 16, name, size) for name, size in sizes.items()]
        self.groups.topics_changed(dict(sizes), self.topics)

    def next_epoch(self) -> int:
        """The next leader epoch."""
        return next(self._epochs)


class Life:
    """What happens to the groups of a coordinator, step by step."""

    def __init__(self, service: Coordinator) -> None:
        self._service = service
        #: The members of the consumer protocol that heartbeat, by group and member id: epoch and owned partitions.
        self._epochs: dict[tuple[str, str], int] = {}
        self._owned: dict[tuple[str, str], list[HeartbeatTopicPartitions]] = {}

    async def commit(self, group: str, partition: int) -> None:
        await self._service.ask(self._service.commit(5, partition=partition, group=group), 8)

    async def delete_offsets(self, group: str, partition: int) -> None:
        await self._service.ask(self._service.delete_offsets("t", partition, group), 0)

    async def commit_in_transaction(self, group: str, partition: int, producer_id: int) -> None:
        await self._service.committed_in_transaction(6, partition=partition, group=group, producer_id=producer_id)

    async def end_transaction(self, producer_id: int, commit: bool) -> None:
        self._service.end_transaction(producer_id, commit=commit)

    async def get_member_id(self, group: str) -> None:
        await self._service.ask(self._service.join(group=group), 9)

    async def join(self, group: str, instances: tuple[str | None, ...]) -> None:
        """Members of the classic protocol join together and get assignments; other members do not rejoin."""
        service = self._service
        joining = []
        for instance in instances:
            member_id = ""
            if instance is None:
                member_id = (await service.ask(service.join(group=group), 9)).member_id
                if not member_id:
                    return
            joining.append(service.join(member_id, group=group, instance=instance))
        for _ in range(20):
            if any(isinstance(each, asyncio.Future) and not each.done() for each in joining):
                await service.after(1)
        answers = [await service.ask(each, 9) for each in joining]
        joined = [each for each in answers if each.error_code == ErrorCode.NONE]
        # The leader's comes last: the others wait for it.
        for each in sorted(joined, key=lambda each: each.member_id == each.leader):
            assigned = {one.member_id: assignment(t=[0]) for one in joined} if each.member_id == each.leader else {}
            service.sync(each.member_id, each.generation_id, assigned, group=group)
            await turn()

    async def leave(self, group: str) -> None:
        for member in self._service.describe(group).members:
            await self._service.ask(self._service.leave(member.member_id, group=group), 5)

    async def beat(self, group: str, member_id: str, topics: tuple[str, ...], regex: str) -> None:
        """A member of the consumer protocol joins, or reports that it owns what it was assigned."""
        who = group, member_id
        epoch = self._epochs.get(who, 0)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=member_id if member_id == "static" else None,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=list(topics),
            subscribed_topic_regex=regex,
            topic_partitions=self._owned.get(who, []) if epoch else [],
        )
        answer = await self._service.ask(self._service.groups.consumer_heartbeat(request, 1, CALLER), 1)
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._epochs.pop(who, None)
        elif answer.error_code == ErrorCode.NONE:
            self._epochs[who] = answer.member_epoch
            if answer.assignment is not None:
                self._owned[who] = answer.assignment.topic_partitions

    async def stop(self, group: str, member_id: str, epoch: int) -> None:
        """A member of the consumer protocol leaves, for a while if `epoch` is -2."""
        self._epochs.pop((group, member_id), None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            instance_id=member_id if member_id == "static" else None,
            member_epoch=epoch,
        )
        await self._service.ask(self._service.groups.consumer_heartbeat(request, 1, CALLER), 1)

    async def grow(self) -> None:
        """The topic `u` gets another partition."""
        topics = self._service.topics
        self._service.set_topics({topic.name: topic.partitions + (topic.name == "u") for topic in topics})

    async def delete(self, group: str) -> None:
        await self._service.ask(self._service.delete(group), 2)

    async def expire(self) -> None:
        await self._service.after(EXPIRY)

    async def wait(self) -> None:
        await self._service.after(3)

    async def move(self) -> None:
        """Another broker coordinates the groups, and then this one again."""
        self._service.groups.unload(0)
        await self._service.groups.load(0, self._service.next_epoch())


def of(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


_group, _partition, _producer = st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), st.sampled_from(PRODUCERS)
_member = st.sampled_from(("a", "b", "static"))
_step = st.one_of(
    of("commit", _group, _partition),
    of("delete_offsets", _group, _partition),
    of("commit_in_transaction", _group, _partition, _producer),
    of("end_transaction", _producer, st.booleans()),
    of("get_member_id", _group),
    of("join", _group, st.sampled_from(((None,), (None, None), ("static",), ("static", None)))),
    of("leave", _group),
    of("beat", _group, _member, st.sampled_from((("t",), ("u",), ("t", "u"), ())), st.sampled_from(("", "", "[uv]"))),
    of("beat", _group, _member, st.just(("t", "u")), st.just("")),
    of("beat", _group, _member, st.just(()), st.sampled_from(("[uv]", "[v]"))),
    of("stop", _group, _member, st.sampled_from((-1, -2))),
    of("grow"),
    of("delete", _group),
    of("expire"),
    of("wait"),
    of("move"),
)
_steps = st.lists(st.one_of(_step, _step, _step, st.tuples(st.just("fail"), _step)), max_size=16)


def seen(service: Service, group: str) -> tuple[Any, ...]:
    """What clients can see of a group."""
    described = service.describe(group)
    listed = [each.group_type for each in service.list_groups().groups if each.group_id == group]
    members = sorted(member.member_id for member in described.members)
    offsets = [(service.committed(partition=each, group=group)) for each in PARTITIONS]
    stable = [
        service.fetch(partition=each, groups=(group,), stable=True).groups[0].topics[0].partitions[0].error_code
        for each in PARTITIONS
    ]
    return described.group_state, described.protocol_type, listed, members, offsets, stable


async def replayed(service: Coordinator, log: MemoryLog) -> Service:
    """A coordinator that has replayed a log, at the time of another one."""
    again = Coordinator(log, service.topics)
    again.time, again.wall = service.time, service.wall
    return await again.loaded()


async def settled(service: Service) -> None:
    """Let the coordinator append what it has to."""
    for _ in range(5):
        await turn()


def copy(log: MemoryLog) -> MemoryLog:
    return MemoryLog({partition: list(batches) for partition, batches in log.batches.items()}, ends=dict(log.ends))


async def check(steps: list[tuple[Any, ...]]) -> None:
    service = Coordinator()
    await service.loaded()
    life = Life(service)
    for name, *arguments in steps:
        fails = name == "fail"
        if fails:
            service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
            name, *arguments = arguments[0]
        step: Callable[..., Awaitable[None]] = getattr(life, name)
        await step(*arguments)
        await settled(service)
        service.log.fail = ErrorCode.NONE
        if fails:
            await service.after(RETRY)
        there = differences(
            service.groups, service.config, service.log.batches, service.topics, service.time, service.wall
        )
        assert list(there) == [], (name, *arguments)
        remembered = service.groups._hosted_groups.event_lines
        assert (remembered._newest.keys() | remembered._reasons.keys()) <= service.groups.groups.keys()
        again = await replayed(service, copy(service.log))
        for group in GROUPS:
            if service.describe(group).group_state not in VOLATILE and not is_behind(service.groups.groups.get(group)):
                assert seen(again, group) == seen(service, group), (name, *arguments)


@given(_steps)
@example([("commit", "g", 0), ("delete_offsets", "g", 0)])
@example([("commit_in_transaction", "g", 0, 7), ("end_transaction", 7, False)])
@example([("commit", "g", 0), ("delete_offsets", "g", 0), ("expire",)])
@example([("commit_in_transaction", "g", 0, 7), ("delete", "g"), ("end_transaction", 7, False)])
@example(
    [
        ("beat", "g", "a", ("t",), ""),
        ("commit", "g", 0),
        ("stop", "g", "a", -1),
        ("delete_offsets", "g", 0),
        ("expire",),
    ]
)
@example([("beat", "h", "a", (), "[uv]"), ("wait",), ("fail", ("stop", "h", "a", -1)), ("move",), ("delete", "h")])
@example([("beat", "g", "a", ("t",), ""), ("stop", "g", "a", -1), ("fail", ("get_member_id", "g"))])
@example(
    [
        ("join", "g", (None,)),
        ("leave", "g"),
        ("fail", ("beat", "g", "a", ("t",), "")),
        ("beat", "g", "a", ("t",), ""),
        ("stop", "g", "a", -1),
        ("delete", "g"),
    ]
)
@settings(deadline=None)
def test_a_replay_knows_the_groups_that_were_in_memory(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(check(steps))
