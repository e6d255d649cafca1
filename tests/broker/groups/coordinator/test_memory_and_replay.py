"""A coordinator that replays the log knows the same groups as the one that wrote it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.groups.memory import MemoryLog
from tests.broker.groups.support import CALLER, Service, assignment, turn

GROUPS = ("g", "h")
PARTITIONS = (0, 1)
PRODUCERS = (7, 8)
#: Seconds after which offsets expire, at the latest: retention and interval are as short as the keys allow.
EXPIRY = 65.0


def coordinator(log: MemoryLog | None = None) -> Service:
    return Service(log, offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")


class Life:
    """What happens to the groups of a coordinator, step by step."""

    def __init__(self, service: Service) -> None:
        self._service = service
        #: The member of each group that joined last, with its generation or epoch.
        self._members: dict[str, tuple[str, int]] = {}

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

    async def join(self, group: str) -> None:
        """A member of the classic protocol joins; other members do not rejoin."""
        service = self._service
        answer = await service.ask(service.join(group=group), 9)
        if not answer.member_id:
            return
        joining = service.join(answer.member_id, group=group)
        await service.after(20)
        joined = await service.ask(joining, 9)
        assigned = {answer.member_id: assignment(t=[0])}
        await service.ask(service.sync(answer.member_id, joined.generation_id, assigned, group=group), 5)

    async def leave(self, group: str) -> None:
        for member in self._service.describe(group).members:
            await self._service.ask(self._service.leave(member.member_id, group=group), 5)

    async def beat(self, group: str, epoch: int) -> None:
        """A member of the consumer protocol joins, or leaves."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="a",
            member_epoch=epoch,
            rebalance_timeout_ms=30_000 if epoch == 0 else -1,
            subscribed_topic_names=["t"] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )
        await self._service.ask(self._service.groups.consumer_heartbeat(request, 1, CALLER), 1)

    async def delete(self, group: str) -> None:
        await self._service.ask(self._service.delete(group), 2)

    async def expire(self) -> None:
        await self._service.after(EXPIRY)


def of(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


_group, _partition, _producer = st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), st.sampled_from(PRODUCERS)
_steps = st.lists(
    st.one_of(
        of("commit", _group, _partition),
        of("delete_offsets", _group, _partition),
        of("commit_in_transaction", _group, _partition, _producer),
        of("end_transaction", _producer, st.booleans()),
        of("get_member_id", _group),
        of("join", _group),
        of("leave", _group),
        of("beat", _group, st.sampled_from((0, -1))),
        of("delete", _group),
        of("expire"),
    ),
    max_size=12,
)


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


async def replayed(service: Service, log: MemoryLog) -> Service:
    """A coordinator that has replayed a log, at the time of another one."""
    again = coordinator(log)
    again.time, again.wall = service.time, service.wall
    return await again.loaded()


async def settled(service: Service) -> None:
    """Let the coordinator append what it has to."""
    for _ in range(5):
        await turn()


def copy(log: MemoryLog) -> MemoryLog:
    return MemoryLog({partition: list(batches) for partition, batches in log.batches.items()}, ends=dict(log.ends))


async def check(steps: list[tuple[Any, ...]]) -> None:
    service = await coordinator().loaded()
    life = Life(service)
    for name, *arguments in steps:
        step: Callable[..., Awaitable[None]] = getattr(life, name)
        await step(*arguments)
        await settled(service)
        again = await replayed(service, copy(service.log))
        for group in GROUPS:
            if service.describe(group).group_state in ("PreparingRebalance", "CompletingRebalance"):
                continue  # Those that wait for a rebalance are not in the log.
            assert seen(again, group) == seen(service, group), (name, *arguments)


@given(_steps)
@example([("commit", "g", 0), ("delete_offsets", "g", 0)])
@example([("commit_in_transaction", "g", 0, 7), ("end_transaction", 7, False)])
@example([("commit", "g", 0), ("delete_offsets", "g", 0), ("expire",)])
@example([("commit_in_transaction", "g", 0, 7), ("delete", "g"), ("end_transaction", 7, False)])
@example([("beat", "g", 0), ("commit", "g", 0), ("beat", "g", -1), ("delete_offsets", "g", 0), ("expire",)])
@settings(deadline=None)
def test_a_replay_knows_the_groups_that_were_in_memory(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(check(steps))
