"""A coordinator with a log in memory and a clock that tests move, and requests with short arguments."""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, TypeVar

from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.coordinators.ports import Scheduler
from barnabas_broker.coordinators.timed_out import TimedOutTransactions
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.ports import OtherBrokers, ReadLogs
from barnabas_broker.offload import at_once
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.steps import finish
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.records import EventRecord, decode_event, record_of
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_protocol.messages.list_groups import ListGroupsRequest
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas_protocol.records import Record, build_batch, decode_records
from barnabas_protocol.schema import Response
from tests.broker.groups.memory import MemoryLog, MemoryStates

CALLER = Caller("client", "/127.0.0.1")
E = TypeVar("E", bound=GroupEvent)
WEEK_MS = 7 * 24 * 3_600_000


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0."""
    parts = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + parts + b"\xff\xff\xff\xff"


def owned_subscription(owned: Mapping[str, Iterable[int]], *topics: str) -> bytes:
    """A consumer's subscription, version 1: with the partitions that it owns."""
    return b"\x00\x01" + subscription(*topics)[2:] + assignment(**owned)[2:-4]


def assignment(**topics: Iterable[int]) -> bytes:
    """A consumer's assignment, version 0."""
    out = b"\x00\x00" + len(topics).to_bytes(4, "big")
    for topic, partitions in topics.items():
        numbers = list(partitions)
        out += len(topic).to_bytes(2, "big") + topic.encode() + len(numbers).to_bytes(4, "big")
        out += struct.pack(f">{len(numbers)}i", *numbers)
    return out + b"\xff\xff\xff\xff"


class MemoryEvents:
    """``__group_events`` in memory."""

    def __init__(self) -> None:
        self.written: list[tuple[int, Record]] = []

    def append(self, partition: int, batch: bytearray) -> None:
        self.written.extend((partition, record) for record in decode_records(batch))

    def of(self, group_id: str) -> list[EventRecord]:
        """The events of a group, as records."""
        return [record_of(event) for event in self.events_of(group_id)]

    def events_of(self, group_id: str) -> list[GroupEvent]:
        """The events of a group, typed."""
        found = [decode_event(record.value or b"") for _, record in self.written if record.key == group_id.encode()]
        return [event for event in found if event is not None]


class Service:
    """A coordinator with its ports. Responses are encoded and decoded, so that their shapes are checked, too.

    Attributes:
        published: the group events, with their groups.
        offloaded: target assignments of large groups, which tests compute; and what regular expressions need, if
            `compiling` or `matching`.
        loop: of the coordinator, if it is not the running one.
        logs: the logs that groups read, if the coordinator looks at them.
        others: the other brokers, if there are any.
        config: of the coordinator.
    """

    loop: Scheduler | None = None
    logs: ReadLogs | None = None
    others: OtherBrokers | None = None

    def __init__(
        self, log: MemoryLog | None = None, *, compiling: bool = False, matching: bool = False, **keys: str
    ) -> None:
        self.log = MemoryLog() if log is None else log
        self.states = MemoryStates()
        self.time = 1000.0
        self.wall = 100 * WEEK_MS
        self.published: list[tuple[str, GroupEvent]] = []
        self.events = MemoryEvents()
        self.offloaded: list[Callable[[], None]] = []
        #: What the coordinator of every transaction answers; None: not yet.
        self.verification: ErrorCode | None = ErrorCode.NONE
        #: The partitions that were verified, and the verifications without an answer.
        self.verified: list[int] = []
        self.verifying: list[Callable[[ErrorCode], None]] = []
        given = {"offsets.topic.num.partitions": "1", **{k.replace("_", "."): v for k, v in keys.items()}}
        self.config = Config(BROKER_KEYS, given)
        ids = count(1)
        self.timed_out = TimedOutTransactions()
        self.groups = GroupCoordinator(
            self.config,
            self.log,
            self.states,
            now=lambda: self.time,
            wall_ms=lambda: self.wall,
            new_id=lambda: f"id{next(ids)}",
            loop=self.loop,
            events=self.events,
            on_event=lambda group_id, event: self.published.append((group_id, event)),
            offload=self._offload,
            regexes=RegexSearch(
                self._offload if compiling else at_once, self._offload if matching else at_once, clock=lambda: self.time
            ),
            logs=self.logs,
            timed_out=self.timed_out,
            others=self.others,
        )

    def _offload(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.offloaded.append(lambda: at_once(work, done))

    async def loaded(self) -> "Service":
        await self.groups.load(0, 1)
        return self

    def stable(self, topic: str = "t", partition: int = 0) -> int | ErrorCode:
        """The stable offset that OffsetFetch returns, or the error."""
        found = self.fetch(topic, partition, stable=True).groups[0].topics[0].partitions[0]
        return ErrorCode(found.error_code) if found.error_code else int(found.committed_offset)

    async def after(self, seconds: float) -> None:
        """Move the clock, in steps of a quarter of a second."""
        steps = max(1, round(seconds * 4))
        for _ in range(steps):
            self.time += seconds / steps
            self.wall += round(seconds / steps * 1000)
            self.groups.tick()
            await turn()

    async def ask(self, answer: Any, version: int) -> Any:
        """The response to a request, once it is there, as the client decodes it."""
        if isinstance(answer, asyncio.Future):
            for _ in range(20):
                await turn()
                if answer.done():
                    break
            assert answer.done(), "the response is still deferred"
            answer = answer.result()
        assert isinstance(answer, Response)
        return decode(type(answer), version, encode(answer, version))

    # Requests

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        version: int = 9,
        session: int = 10_000,
        rebalance: int = 60_000,
        instance: str | None = None,
        topics: tuple[str, ...] = ("t",),
        caller: Caller = CALLER,
        reason: str | None = None,
    ) -> Any:
        return self.groups.join(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=session,
                rebalance_timeout_ms=rebalance,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(*topics))],
                reason=reason,
            ),
            version,
            caller,
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        version: int = 5,
        protocol: str | None = "range",
    ) -> Any:
        return self.groups.sync(
            SyncGroupRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer" if protocol is not None else None,
                protocol_name=protocol,
                assignments=[
                    SyncGroupRequestAssignment(member_id=each, assignment=assigned)
                    for each, assigned in (assignments or {}).items()
                ],
            ),
            version,
            CALLER,
        )

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", version: int = 4) -> ErrorCode:
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        return ErrorCode(self.groups.heartbeat(request, version, CALLER).error_code)

    def leave(self, *members: str, group: str = "g", version: int = 5, reason: str | None = None) -> Any:
        if version < 3:
            request = LeaveGroupRequest(group_id=group, member_id=members[0])
        else:
            identities = [MemberIdentity(member_id=member, reason=reason) for member in members]
            request = LeaveGroupRequest(group_id=group, members=identities)
        return self.groups.leave(request, version, CALLER)

    def commit(
        self,
        offset: int,
        *,
        topic: str = "t",
        partition: int = 0,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        version: int = 8,
        metadata: str | None = "",
        retention: int = -1,
        epoch: int = -1,
        caller: Caller = CALLER,
    ) -> Any:
        asked = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_metadata=metadata,
            committed_leader_epoch=epoch,
        )
        return finish(
            self.groups.offsets.commit(
                OffsetCommitRequest(
                    group_id=group,
                    generation_id_or_member_epoch=generation,
                    member_id=member_id,
                    retention_time_ms=retention,
                    topics=[OffsetCommitRequestTopic(name=topic, partitions=[asked])],
                ),
                version,
                caller,
            )
        )

    def commit_in_transaction(
        self,
        offset: int,
        *,
        producer_id: int = 7,
        producer_epoch: int = 0,
        topic: str = "t",
        partition: int = 0,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 3,
        metadata: str | None = "",
        caller: Caller = CALLER,
    ) -> Any:
        """TxnOffsetCommit. :attr:`verification` is the answer of the transaction's coordinator."""
        asked = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[asked])],
        )

        def verify(where: int, done: Callable[[ErrorCode], None]) -> None:
            self.verified.append(where)
            if self.verification is None:
                self.verifying.append(done)
            else:
                done(self.verification)

        return finish(self.groups.offsets.commit_transactional(request, version, caller, verify))

    async def committed_in_transaction(self, offset: int, **arguments: Any) -> ErrorCode:
        """The result of a TxnOffsetCommit of one partition."""
        answer = await self.ask(self.commit_in_transaction(offset, **arguments), arguments.get("version", 3))
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def events_of(self, kind: type[E]) -> list[E]:
        """The published events of a type."""
        return [event for _, event in self.published if isinstance(event, kind)]

    def end_transaction(self, producer_id: int = 7, *, commit: bool) -> None:
        """Append the marker of a transaction, and report it as WriteTxnMarkers does."""
        key = b"\x00\x00\x00\x01" if commit else b"\x00\x00\x00\x00"
        record: tuple[bytes, bytes, tuple[()], int] = (key, b"\x00\x00\x00\x00\x00\x00", (), 0)
        marker = build_batch([record], control=True, transactional=True, producer_id=producer_id, producer_epoch=0)
        self.log.put(0, marker)
        self.groups.offsets.transaction_ended(0, producer_id, commit)

    def fetch(
        self,
        topic: str | None = "t",
        partition: int = 0,
        *,
        groups: tuple[str, ...] = ("g",),
        version: int = 8,
        stable: bool = False,
    ) -> Any:
        request = OffsetFetchRequest(require_stable=stable)
        if version >= 8:
            request.groups = [
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=None
                    if topic is None
                    else [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
                )
                for group in groups
            ]
        else:
            request.group_id = groups[0]
            request.topics = (
                None if topic is None else [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
            )
        return finish(self.groups.offsets.fetch(request, version, CALLER))

    def committed(self, topic: str = "t", partition: int = 0, group: str = "g") -> int:
        """The committed offset that OffsetFetch returns."""
        answer = self.fetch(topic, partition, groups=(group,))
        assert answer.groups[0].error_code == ErrorCode.NONE
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset

    def describe(self, group: str = "g", version: int = 5) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group])
        response = finish(self.groups.describe(request, version, CALLER))
        return decode(type(response), version, encode(response, version)).groups[0]

    def list_groups(self, *states: str, types: tuple[str, ...] = (), version: int = 5) -> Any:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return finish(self.groups.list_groups(request, version, CALLER))

    def delete(self, *groups: str) -> Any:
        return finish(self.groups.delete_groups(DeleteGroupsRequest(groups_names=list(groups)), 2, CALLER))

    def delete_offsets(self, topic: str, partition: int = 0, group: str = "g") -> Any:
        return finish(self.groups.offsets.delete(self.offset_deletion(topic, partition, group=group), 0, CALLER))

    @staticmethod
    def offset_deletion(topic: str, *partitions: int, group: str = "g") -> OffsetDeleteRequest:
        asked = [OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
        return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])

    # Several steps

    async def member(self, *, topics: tuple[str, ...] = ("t",), group: str = "g", session: int = 10_000) -> str:
        """Make a Stable group with one member; its member id."""
        answer = await self.ask(self.join(topics=topics, group=group, session=session), 9)
        joining = self.join(answer.member_id, topics=topics, group=group, session=session)
        await self.after(3.25)
        joined = await self.ask(joining, 9)
        assert joined.error_code == ErrorCode.NONE
        synced = self.sync(answer.member_id, joined.generation_id, {answer.member_id: assignment(t=[0])}, group=group)
        assert (await self.ask(synced, 5)).error_code == ErrorCode.NONE
        member_id: str = answer.member_id
        return member_id


async def turn() -> None:
    """One iteration of the loop."""
    await asyncio.sleep(0)
