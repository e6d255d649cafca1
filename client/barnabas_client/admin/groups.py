"""The admin client's groups and their offsets. Each request goes to the coordinator of the group it is about."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from barnabas_client.admin.base import MOVED, AdminBase, Asked, names_of, raise_first, refusal, refused
from barnabas_client.admin.types import (
    GroupDescription,
    GroupListing,
    GroupListings,
    GroupOffset,
    GroupResult,
    MemberDescription,
    PartitionResult,
)
from barnabas_client.checks import offsets_of
from barnabas_client.errors import UnsupportedVersionError
from barnabas_client.membership.consumer_protocol import PROTOCOL_TYPE, by_topic, decode_assignment, decode_subscription
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

V = TypeVar("V")

#: What Kafka 4 says of a group that is not described by DescribeGroups but by ConsumerGroupDescribe.
_NOT_CLASSIC: Final = "not a classic group"

Offsets = dict[TopicPartition, GroupOffset]
Changed = dict[TopicPartition, PartitionResult]


class GroupAdmin(AdminBase):
    """What the admin client does with groups."""

    async def list_consumer_groups(
        self,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> GroupListings:
        """All groups, by id; every broker is asked.

        Args:
            states: only groups in these, such as "Stable" and "Empty" (Kafka 2.6 and later).
            types: only groups of these types, such as "classic" and "consumer" (Kafka 4.0 and later).
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise what stood in the way with a broker; otherwise it is in `errors`.

        Raises:
            KafkaError: a broker could not be asked.
        """
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        network = self._running()

        async def round_of(left: list[int]) -> Asked[int, list[GroupListing]]:
            asked: Asked[int, list[GroupListing]] = Asked.nothing()

            async def one(node: int) -> None:
                try:
                    response = await network.ask(node, request, ListGroupsResponse)
                except KafkaError as error:
                    asked.failed([node], error)
                    return
                if response.error_code != ErrorCode.NONE:
                    asked.failed([node], refusal(response.error_code, f"list the groups of broker {node}"))
                else:
                    asked.done[node] = [
                        GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
                        for one in response.groups
                    ]

            await asyncio.gather(*(one(node) for node in left))
            return asked

        nodes = (await network.refresh()).brokers
        found = await self._settle("list the groups of broker", nodes, round_of, self._milliseconds(timeout_ms))
        groups = {one.group_id: one for those in found.values() if not isinstance(those, KafkaError) for one in those}
        errors = [one for one in found.values() if isinstance(one, KafkaError)]
        if raise_errors:
            raise_first(GroupResult("", error) for error in errors)
        return GroupListings((groups[name] for name in sorted(groups)), errors)

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[GroupDescription]:
        """Groups with their members and what each of them was given.

        Args:
            group_ids: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            KafkaError: a group does not exist (GROUP_ID_NOT_FOUND), or cannot be described.
        """
        network = self._running()

        async def ask(node: int, names: list[str]) -> dict[str, GroupDescription | KafkaError]:
            response = await network.ask(node, DescribeGroupsRequest(groups=names), DescribeGroupsResponse)
            broker = network.cluster.brokers.get(node)
            found: dict[str, GroupDescription | KafkaError] = {}
            for one in response.groups:
                # An older broker describes a group that there is not as dead (KIP-1043).
                dead = one.error_code == ErrorCode.NONE and one.group_state == "Dead"
                code = ErrorCode.GROUP_ID_NOT_FOUND if dead else one.error_code
                error = refused(code, f"describe group {one.group_id!r}", one.error_message)
                if _NOT_CLASSIC in (one.error_message or ""):
                    error = UnsupportedVersionError(
                        f"describe group {one.group_id!r}: it uses the consumer protocol of KIP-848, which this "
                        "client cannot describe. To do: read its offsets instead, or use kafka-consumer-groups"
                    )
                found[one.group_id] = error or GroupDescription(
                    one.group_id, None, one.group_state, one.protocol_type, one.protocol_data, _members(one), broker
                )
            return found

        milliseconds = self._milliseconds(timeout_ms)
        found = await self._ask_coordinators(
            "describe group", names_of("describe_consumer_groups", group_ids), ask, milliseconds
        )
        results = [GroupDescription(name, one) if isinstance(one, KafkaError) else one for name, one in found.items()]
        if raise_errors:
            raise_first(results)
        return results

    async def delete_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[GroupResult]:
        """Delete groups without members, with their offsets.

        Args:
            group_ids: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first refusal, after all others were deleted; otherwise it is in its result.

        Raises:
            KafkaError: a group does not exist (GROUP_ID_NOT_FOUND), or has members (NON_EMPTY_GROUP).
        """
        network = self._running()

        async def ask(node: int, names: list[str]) -> dict[str, GroupResult | KafkaError]:
            response = await network.ask(node, DeleteGroupsRequest(groups_names=names), DeleteGroupsResponse)
            return {
                one.group_id: refused(one.error_code, f"delete group {one.group_id!r}") or GroupResult(one.group_id)
                for one in response.results
            }

        milliseconds = self._milliseconds(timeout_ms)
        found = await self._ask_coordinators(
            "delete group", names_of("delete_consumer_groups", group_ids), ask, milliseconds
        )
        results = [GroupResult(name, one) if isinstance(one, KafkaError) else one for name, one in found.items()]
        if raise_errors:
            raise_first(results)
        return results

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
        *,
        require_stable: bool = False,
        raise_errors: bool = True,
    ) -> Offsets:
        """What a group has committed, by partition ascending. A group that there is not has committed nothing.

        Args:
            group_id: its name.
            partitions: only these, also those it has committed nothing for; all that it has committed if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            require_stable: wait for offsets of open transactions (KIP-447).
            raise_errors: raise the first error of a partition; otherwise it is in its result.

        Raises:
            KafkaError: the coordinator could not be asked, or refused.
        """
        network = self._running()
        what = "read the offsets of group"
        label = f"{what} {group_id!r}"
        topics = None
        if partitions is not None:
            asked = by_topic(partitions)
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in asked]

        async def ask(node: int, names: list[str]) -> dict[str, Offsets | KafkaError]:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=require_stable
            )
            response = await network.ask(node, request, OffsetFetchResponse)
            return {
                one.group_id: refused(one.error_code, label)
                or {
                    TopicPartition(topic.name, row.partition_index): GroupOffset(
                        None if row.committed_offset < 0 else row.committed_offset,
                        row.metadata or "",
                        row.committed_leader_epoch,
                        refused(row.error_code, f"{label} for {topic.name}-{row.partition_index}"),
                    )
                    for topic in one.topics
                    for row in topic.partitions
                }
                for one in response.groups
            }

        offsets = await self._ask_one(what, group_id, ask, timeout_ms)
        results = {tp: offsets[tp] for tp in sorted(offsets)}
        if raise_errors:
            raise_first(results.values())
        return results

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> Changed:
        """Commit offsets for a group that has no members; it is made if there is none.

        Args:
            group_id: its name.
            offsets: for each partition that of the next record to read.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first refusal, after all others were committed; otherwise it is in its result.

        Raises:
            KafkaError: the group has members (UNKNOWN_MEMBER_ID), or it was refused otherwise.
            TypeError, ValueError: an offset that is none.
        """
        network = self._running()
        what = "set the offsets of group"
        label = f"{what} {group_id!r}"
        given = offsets_of("alter_consumer_group_offsets", offsets)

        async def ask(node: int, names: list[str]) -> dict[str, Changed | KafkaError]:
            request = OffsetCommitRequest(
                group_id=group_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[_commit(number, given[TopicPartition(topic, number)]) for number in numbers],
                    )
                    for topic, numbers in by_topic(given)
                ],
            )
            response = await network.ask(node, request, OffsetCommitResponse)
            codes = {
                TopicPartition(topic.name, row.partition_index): row.error_code
                for topic in response.topics
                for row in topic.partitions
            }
            return {group_id: _changed(label, codes)}

        return await self._change(what, group_id, given, ask, timeout_ms, raise_errors)

    async def delete_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> Changed:
        """Forget what a group has committed for partitions of topics that no member subscribes to (KIP-496).

        Args:
            group_id: its name.
            partitions: which.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first refusal, after all others were deleted; otherwise it is in its result.

        Raises:
            KafkaError: the group does not exist (GROUP_ID_NOT_FOUND), subscribes to the topic
                (GROUP_SUBSCRIBED_TO_TOPIC), or it was refused otherwise.
        """
        network = self._running()
        what = "delete offsets of group"
        label = f"{what} {group_id!r}"
        given = list(partitions)

        async def ask(node: int, names: list[str]) -> dict[str, Changed | KafkaError]:
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
                    )
                    for topic, numbers in by_topic(given)
                ],
            )
            response = await network.ask(node, request, OffsetDeleteResponse)
            if response.error_code != ErrorCode.NONE:
                return {group_id: refusal(response.error_code, label)}
            codes = {
                TopicPartition(topic.name, row.partition_index): row.error_code
                for topic in response.topics
                for row in topic.partitions
            }
            return {group_id: _changed(label, codes)}

        return await self._change(what, group_id, given, ask, timeout_ms, raise_errors)

    # Inside.

    async def _ask_one(
        self,
        what: str,
        group_id: str,
        ask: Callable[[int, list[str]], Awaitable[Mapping[str, V | KafkaError]]],
        timeout_ms: int | None,
    ) -> V:
        """Ask the coordinator of one group.

        Raises:
            KafkaError: it could not be asked, or refused.
        """
        found = await self._ask_coordinators(what, [group_id], ask, self._milliseconds(timeout_ms))
        answer = found[group_id]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def _change(
        self,
        what: str,
        group_id: str,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[str]], Awaitable[Mapping[str, Changed | KafkaError]]],
        timeout_ms: int | None,
        raise_errors: bool,
    ) -> Changed:
        label = f"{what} {group_id!r}"
        changed = await self._ask_one(what, group_id, ask, timeout_ms)
        results = {tp: changed.get(tp) or PartitionResult(_missing(label, tp)) for tp in sorted(partitions)}
        if raise_errors:
            raise_first(results.values())
        return results


def _missing(what: str, tp: TopicPartition) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what} for {tp}: the broker's answer does not mention it")


def _commit(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _changed(what: str, codes: Mapping[TopicPartition, int]) -> Changed | KafkaError:
    """The results by partition, or the error if the coordinator has moved, which it then answers for all."""
    results = {tp: PartitionResult(refused(code, f"{what} for {tp}")) for tp, code in codes.items()}
    moved = [one.error for one in results.values() if one.error is not None and one.error.code in MOVED]
    return moved[0] if moved else results


def _members(group: DescribedGroup) -> tuple[MemberDescription, ...]:
    consumers = group.protocol_type == PROTOCOL_TYPE
    members = (_member(member, consumers) for member in group.members)
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))


def _member(member: DescribedGroupMember, consumer: bool) -> MemberDescription:
    metadata, assignment = bytes(member.member_metadata), bytes(member.member_assignment)
    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    if consumer:
        # What members told each other is theirs: bytes that cannot be read are no reason not to describe the group.
        try:
            partitions = tuple(sorted(decode_assignment(assignment)))
        except DecodeError:
            pass
        try:
            topics = tuple(sorted(decode_subscription(metadata).topics)) if metadata else ()
        except DecodeError:
            pass
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        partitions,
        topics,
        metadata,
        assignment,
    )
