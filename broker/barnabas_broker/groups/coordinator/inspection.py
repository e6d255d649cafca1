"""DescribeGroups and ListGroups. Pure.

Source: ``GroupMetadataManager.describeGroups`` and ``listGroups``; KIP-518 (state filter), KIP-848 (type filter),
KIP-1043 (GROUP_ID_NOT_FOUND from DescribeGroups 6).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.members import together
from barnabas_broker.groups.consumer.topics import TopicCatalog
from barnabas_broker.groups.share.assignor import NAME
from barnabas_broker.groups.share.group import ShareGroup
from barnabas_broker.security.operations import GROUP
from barnabas_broker.steps import Steps, by_key, distinct
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_describe import (
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
    Member,
)
from barnabas_protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas_protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from barnabas_protocol.messages.share_group_describe import (
    DescribedShareAssignment,
    DescribedShareGroup,
    DescribedShareTopicPartitions,
    ShareMember,
)

D = TypeVar("D", DescribedConsumerGroup, DescribedShareGroup)

#: The types of groups (KIP-848).
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
#: The types of members: of the classic and of the consumer protocol (KIP-1099).
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1
#: Members that are described in one step.
_MEMBERS_PER_STEP: Final = 50


def describe_group(group: ClassicGroup, operations: bool) -> DescribedGroup:
    """A group as DescribeGroups returns it: with protocol and subscriptions only while it is Stable."""
    members = group.members
    protocol = members.protocol if group.state is ClassicGroupState.STABLE else None
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=members.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in members
        ],
    )
    if operations:
        described.authorized_operations = GROUP
    return described


def missing_group(group_id: str, error: KafkaError, version: int, operations: bool) -> DescribedGroup:
    """A group that is missing or not classic: its state is Dead; from version 6 on it is an error, too."""
    described = failed_group(group_id, ErrorCode.NONE)
    described.group_state = ClassicGroupState.DEAD.value
    if version >= 6:
        described.error_code, described.error_message = error.code, error.message
    elif operations:
        described.authorized_operations = GROUP
    return described


def failed_group(group_id: str, error: ErrorCode) -> DescribedGroup:
    """A group that cannot be described, for instance because another broker coordinates it."""
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


def describe_consumer_group(
    group: ConsumerGroup, catalog: TopicCatalog, operations: bool
) -> Steps[DescribedConsumerGroup]:
    """A group as ConsumerGroupDescribe returns it, some members per step. Partitions of deleted topics are left out.

    All of it is of the time of the first step: members do not seem to own what others have got since then.
    """

    def assignment(partitions: Mapping[bytes, Iterable[int]]) -> DescribedAssignment:
        return DescribedAssignment(
            topic_partitions=[
                DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
                for topic_id, name, numbers in _named(partitions, catalog)
            ]
        )

    nothing = DescribedAssignment(topic_partitions=[])
    described = DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=[],
                subscribed_topic_regex=member.regex,
                assignment=nothing,
                target_assignment=nothing,
                member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
            )
            for member in group.members.values()
        ],
    )
    if operations:
        described.authorized_operations = GROUP
    # These values are never changed, only replaced.
    owned = [
        (member.topics, member.assigned, member.revoking, group.targets.get(member.member_id, {}))
        for member in group.members.values()
    ]
    names: dict[frozenset[str], list[str]] = {}
    for number, (member, (subscribed, assigned, revoking, target)) in enumerate(
        zip(described.members, owned, strict=True), 1
    ):
        if subscribed not in names:
            names[subscribed] = sorted(subscribed)
        member.subscribed_topic_names = names[subscribed]
        member.assignment = assignment(together(assigned, revoking))
        member.target_assignment = assignment(target)
        if number % _MEMBERS_PER_STEP == 0:
            yield
    return described


def _failed(described: type[D]) -> Callable[[str, KafkaError], D]:
    """A function that makes a group which cannot be described, of its id and the error."""

    def failed(group_id: str, error: KafkaError) -> D:
        return described(
            error_code=error.code,
            error_message=error.message or None,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )

    return failed


failed_consumer_group: Final = _failed(DescribedConsumerGroup)
failed_share_group: Final = _failed(DescribedShareGroup)


def describe_share_group(group: ShareGroup, catalog: TopicCatalog, operations: bool) -> Steps[DescribedShareGroup]:
    """A group as ShareGroupDescribe returns it, some members per step. Partitions of deleted topics are left out."""
    members: list[ShareMember] = []
    described = DescribedShareGroup(
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        # As in Kafka: nothing is left to assign in a group without members.
        assignment_epoch=group.assignment_epoch if group.members else group.epoch,
        assignor_name=NAME,
        members=members,
    )
    if operations:
        described.authorized_operations = GROUP
    for number, member in enumerate(list(group.members.values()), 1):
        assigned = [
            DescribedShareTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for topic_id, name, numbers in _named(member.assigned, catalog)
        ]
        members.append(
            ShareMember(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                assignment=DescribedShareAssignment(topic_partitions=assigned),
            )
        )
        if number % _MEMBERS_PER_STEP == 0:
            yield
    return described


def _named(partitions: Mapping[bytes, Iterable[int]], catalog: TopicCatalog) -> Iterator[tuple[bytes, str, list[int]]]:
    """Partitions by topic id, with the names of the topics that exist."""
    for topic_id in sorted(partitions):
        topic = catalog.by_id.get(topic_id)
        if topic is not None:
            yield topic_id, topic.name, sorted(partitions[topic_id])


def describe_each(
    group_ids: Iterable[str], describe: Callable[[str], Steps[D]], failed: Callable[[str, KafkaError], D]
) -> Steps[list[D]]:
    """Describe groups, each once.

    Args:
        group_ids: which ones.
        describe: describes one, some members per step; raises KafkaError if it cannot.
        failed: a group that is not described.
    """
    groups: list[D] = []
    for group_id in (yield from distinct(group_ids)):
        try:
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
            described = yield from describe(group_id)
        except KafkaError as error:
            described = failed(group_id, error)
        groups.append(described)
        yield
    return groups


def list_groups(
    groups: Iterable[ClassicGroup | ConsumerGroup | ShareGroup], request: ListGroupsRequest
) -> Steps[list[ListedGroup]]:
    """The groups that match the request's filters, which ignore case; one group per step."""
    states, _ = yield from by_key(request.states_filter, _folded)
    types, _ = yield from by_key(request.types_filter, _folded)
    listed = []
    for group in groups:
        if isinstance(group, ShareGroup):
            protocol_type, group_type, state = SHARE, SHARE, group.state
        else:
            protocol_type, state = group.protocol_type or "", group.state.value
            group_type = CLASSIC if isinstance(group, ClassicGroup) else CONSUMER
        if (not states or state.lower() in states) and (not types or group_type in types):
            listed.append(
                ListedGroup(
                    group_id=group.group_id, protocol_type=protocol_type, group_state=state, group_type=group_type
                )
            )
        yield
    return listed


def _folded(name: str) -> str:
    return name.strip().lower()
