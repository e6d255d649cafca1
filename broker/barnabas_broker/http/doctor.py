"""Examines the groups of this broker: what is wrong with each now, and was lately.

A group is examined when its events, its members or its lag have changed, and once a minute, so that what is over goes.
Its past is its newest events, those in memory; ``barnabas groups doctor`` reads all of the last hour.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from barnabas_broker.cluster.image import Image
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.http.history import version_of
from barnabas_broker.http.text import PIECE
from barnabas_broker.http.view import View
from barnabas_explain.doctor import SICK, SINCE_MS, STORM, Diagnosis, Present, Reader
from barnabas_explain.doctor import examine as diagnose
from barnabas_explain.findings import CERTAIN
from barnabas_explain.members import Partition
from barnabas_protocol.subscriptions import CONSUMER, read_assignment, read_topics


def examine(view: View, image: Image, hosted: HostedGroup) -> Iterator[None]:
    """Examine a group if it has changed, for :attr:`.View.diagnoses`; None is a possible turn of the event loop."""
    group = hosted.group
    name = group.group_id
    lags: dict[Partition, int] = {}
    outside: dict[Partition, tuple[int, int, int]] = {}
    for number, position in enumerate(view.positions(image, hosted), 1):
        if position.lag:
            lags[position.topic, position.partition] = position.lag
        log, committed = view.log(position.topic, position.partition), position.committed
        if log is not None and committed is not None:
            start, end = log.log_start_offset, log.log_end_offset
            if not start <= committed.offset <= end:
                outside[position.topic, position.partition] = committed.offset, start, end
        if number % PIECE == 0:
            yield
    events = view.history.recent(name)
    now = view.wall_ms()
    flapping = view.history.is_flapping(name)
    version = (
        version_of(events),
        group.state,
        group.generation,
        len(group.members),
        bool(lags),
        len(outside),
        flapping,
        now // 60_000,
    )
    if not view.diagnoses.is_due(name, version):
        return
    readers: list[Reader] = []
    for number, reader in enumerate(_readers(image, hosted), 1):
        readers.append(reader)
        if number % PIECE == 0:
            yield
    topics = {topic for reader in readers for topic in reader.topics}
    counts = {topic: len(image.topics[topic].partitions) for topic in topics if topic in image.topics}
    empty = frozenset(topic for topic, count in counts.items() if _is_empty(view, topic, count))
    present = Present(name, group.state.value, readers, lags, counts, empty, outside)
    diagnoses = diagnose(present, events, now, now - SINCE_MS)
    view.diagnoses.put(name, version, _with_score(view, name, diagnoses, flapping=flapping))


def _with_score(view: View, group: str, diagnoses: list[Diagnosis], *, flapping: bool) -> list[Diagnosis]:
    """Diagnoses in which a storm has the score of all events: a storm has more events than are in memory."""
    score = view.history.storm_score(group).text
    if flapping and all(each.kind != STORM for each in diagnoses):
        remedy = f"See its causes: barnabas groups explain {group}"
        storm = Diagnosis(group, STORM, SICK, "It rebalances again and again.", CERTAIN, (), remedy)
        diagnoses = sorted([*diagnoses, storm], key=lambda each: -each.severity)
    return [replace(each, evidence=(score,)) if each.kind == STORM else each for each in diagnoses]


def _readers(image: Image, hosted: HostedGroup) -> Iterator[Reader]:
    """The members of a group as the doctor sees them."""
    group = hosted.group
    if isinstance(group, ConsumerGroup):
        names = {topic.topic_id: name for name, topic in image.topics.items()} if group.members else {}
        for member in list(group.members.values()):
            owned = member.owned().items()
            partitions = ((names[topic], number) for topic, numbers in owned if topic in names for number in numbers)
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


def _partitions(by_topic: dict[str, list[int]]) -> Iterable[Partition]:
    return ((topic, number) for topic, numbers in by_topic.items() for number in numbers)


def _is_empty(view: View, topic: str, partitions: int) -> bool:
    """Whether a topic has never had a record; False if another broker leads one of its partitions: it is not known."""
    for number in range(partitions):
        log = view.log(topic, number)
        if log is None or log.high_watermark > 0:
            return False
    return True
