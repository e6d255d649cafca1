"""The members of a group with the topics that they subscribe to and the partitions that they own. Pure."""

from collections.abc import Callable, Iterator, Mapping

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_explain.doctor import Reader
from barnabas_explain.members import Partition
from barnabas_protocol.subscriptions import CONSUMER, read_assignment, read_topics


def readers(group: ClassicGroup | ConsumerGroup, name: Callable[[bytes], str | None]) -> Iterator[Reader]:
    """The members of a group.

    Args:
        group: the group.
        name: the name of a topic by its id; None if it does not exist.
    """
    if isinstance(group, ConsumerGroup):
        for member in list(group.members.values()):
            owned = ((name(topic), numbers) for topic, numbers in member.owned().items())
            partitions = ((topic, number) for topic, numbers in owned if topic is not None for number in numbers)
            yield Reader(member.identity(), member.topics, frozenset(partitions))
        return
    members = group.members
    if members.protocol_type != CONSUMER:
        return
    read: dict[bytes, frozenset[str]] = {}  # members of one program have the same subscription
    for each in list(members):
        metadata = each.metadata(members.protocol)
        topics = read.get(metadata)
        if topics is None:
            topics = read[metadata] = frozenset(read_topics(metadata) or ())
        yield Reader(each.identity(), topics, frozenset(_partitions(read_assignment(each.assignment) or {})))


def _partitions(by_topic: Mapping[str, list[int]]) -> Iterator[Partition]:
    return ((topic, number) for topic, numbers in by_topic.items() for number in numbers)
