"""The members of a group with the topics that they subscribe to and the partitions that they own. Pure."""

from collections.abc import Callable, Iterator, Mapping

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.members import ClassicGroupMember
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.members import ConsumerGroupMember
from barnabas_explain.doctor import Reader
from barnabas_explain.members import Partition
from barnabas_protocol.subscriptions import CONSUMER, read_assignment, read_topics


def partitions_of(
    group: ClassicGroup | ConsumerGroup, member_id: str, name: Callable[[bytes], str | None]
) -> frozenset[Partition]:
    """The partitions that a member of a group owns; none if there is no such member.

    Args:
        group: the group.
        member_id: of the member.
        name: the name of a topic by its id; None if it does not exist.
    """
    if isinstance(group, ConsumerGroup):
        member = group.members.get(member_id)
        return frozenset() if member is None else _owned(member, name)
    by_id = group.members.by_id if group.members.protocol_type == CONSUMER else {}
    return _assigned(by_id[member_id]) if member_id in by_id else frozenset()


def owns_any(group: ClassicGroup | ConsumerGroup, member_id: str) -> bool:
    """Whether a member of a group owns a partition: in a group of thousands, that is asked of all of them at once, and
    their assignments are not read for it."""
    if isinstance(group, ConsumerGroup):
        member = group.members.get(member_id)
        return member is not None and bool(member.assigned or member.revoking)
    known = group.members.by_id.get(member_id) if group.members.protocol_type == CONSUMER else None
    # The number of topics follows the version.
    return known is not None and any(known.assignment[2:6])


def readers(group: ClassicGroup | ConsumerGroup, name: Callable[[bytes], str | None]) -> Iterator[Reader]:
    """The members of a group.

    Args:
        group: the group.
        name: the name of a topic by its id; None if it does not exist.
    """
    if isinstance(group, ConsumerGroup):
        for member in list(group.members.values()):
            resolved = group.subscriptions.resolved.get(member.regex)
            matched = None if resolved is None else len(resolved.topics)
            yield Reader(member.identity(), member.topics, _owned(member, name), member.regex, matched)
        return
    members = group.members
    if members.protocol_type != CONSUMER:
        return
    # Members of one program have the same subscription.
    read: dict[bytes, frozenset[str] | None] = {}
    for each in list(members):
        metadata = each.metadata(members.protocol)
        if metadata not in read:
            found = read_topics(metadata)
            read[metadata] = None if found is None else frozenset(found)
        topics = read[metadata]
        yield Reader(each.identity(), topics or frozenset(), _assigned(each), is_known=topics is not None)


def _owned(member: ConsumerGroupMember, name: Callable[[bytes], str | None]) -> frozenset[Partition]:
    owned = ((name(topic), numbers) for topic, numbers in member.owned().items())
    return frozenset((topic, number) for topic, numbers in owned if topic is not None for number in numbers)


def _assigned(member: ClassicGroupMember) -> frozenset[Partition]:
    return frozenset(_partitions(read_assignment(member.assignment) or {}))


def _partitions(by_topic: Mapping[str, list[int]]) -> Iterator[Partition]:
    return ((topic, number) for topic, numbers in by_topic.items() for number in numbers)
