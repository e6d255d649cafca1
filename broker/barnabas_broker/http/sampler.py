"""Samples the offsets of groups and examines them, again and again: what is wrong with each now, and was lately.

A group is examined when its events, its members or its lag have changed, and once a minute, so that what is over goes.
Its past is its newest events, those in memory; ``barnabas groups doctor`` reads all of the last hour.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from shlex import quote
from typing import Final

from barnabas_broker.cluster.image import Image
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.groups.coordinator.readers import readers
from barnabas_broker.http.history import version_of
from barnabas_broker.http.rates import Offsets
from barnabas_broker.http.samples import INTERVAL
from barnabas_broker.http.shares import by_place, windows
from barnabas_broker.http.text import PIECE, TURN
from barnabas_broker.http.transactions import waits
from barnabas_broker.http.view import Position, View
from barnabas_broker.replication.coordinator_logs import ConsumedLogs
from barnabas_explain.doctor import MOST_MARKERS, SICK, SINCE_MS, Diagnosis, Present, Reader
from barnabas_explain.doctor import examine as diagnose
from barnabas_explain.explain import DEPLOYMENT, STORM
from barnabas_explain.findings import CERTAIN
from barnabas_explain.group_ids import sign
from barnabas_explain.members import Partition
from barnabas_explain.storm_score import is_score
from barnabas_explain.waits import long_waits

#: The most of a core that sampling may take: with very many partitions, samples become rarer.
_SHARE: Final = 0.005


class Sampler:
    """Samples and examines all groups of a broker.

    Args:
        view: the broker's parts; its samples and diagnoses are kept up to date.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to sample."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop to sample."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            took = await self.sample()
            await asyncio.sleep(max(INTERVAL, took / _SHARE))

    async def sample(self) -> float:
        """Sample and examine each group once; returns the seconds that this took."""
        took, since = 0.0, time.perf_counter()
        for _ in self._steps():
            if (passed := time.perf_counter() - since) >= TURN:
                took += passed
                await asyncio.sleep(0)
                since = time.perf_counter()
        return took + time.perf_counter() - since

    def _steps(self) -> Iterator[None]:
        view = self._view
        image = view.cluster.image
        groups: set[str] = set()
        sampled: set[str] = set()
        for hosted in view.known_groups():
            if hosted is not None:
                name = hosted.group.group_id
                groups.add(name)
                if hosted.offsets:
                    sampled.add(name)
                    view.samples.add(name, offsets(view, image, hosted), view.wall_ms() / 1000)
                    yield
                yield from examine(view, image, hosted)
            yield
        machines = by_place(view)
        for group in view.groups.share_groups.all():
            found = []
            for window in windows(view, group, machines):
                found.append(Offsets(window.topic, window.partition, window.start, window.end, window.complete))
                yield
            sampled.add(group.group_id)
            view.samples.add(group.group_id, found, view.wall_ms() / 1000)
            groups.add(group.group_id)
            events, now = view.history.recent(group.group_id), view.wall_ms()
            version = version_of(events), now // 60_000
            if view.diagnoses.is_due(group.group_id, version):
                present = Present(group.group_id, "")
                view.diagnoses.put(group.group_id, version, diagnose(present, events, now, now - SINCE_MS))
            yield
        view.samples.end_round(sampled)
        yield
        view.diagnoses.end_round(groups)


def offsets(view: View, image: Image, hosted: HostedGroup) -> Iterator[Offsets]:
    """The offsets of a group, for a sample."""
    for each in view.positions(image, hosted):
        yield Offsets(each.topic, each.partition, None if each.committed is None else each.committed.offset, each.end)


def examine(view: View, image: Image, hosted: HostedGroup) -> Iterator[None]:
    """Examine a group if it has changed, for :attr:`.View.diagnoses`; None is a possible turn of the event loop."""
    group = hosted.group
    name = group.group_id
    lags: dict[Partition, int] = {}
    offsets: dict[Partition, int] = {}
    outside: dict[Partition, tuple[int, int, int]] = {}
    blocked: list[Position] = []
    for number, position in enumerate(view.positions(image, hosted), 1):
        if position.lag:
            lags[position.topic, position.partition] = position.lag
        if position.committed is not None:
            offsets[position.topic, position.partition] = position.committed.offset
        if position.is_blocked:
            blocked.append(position)
        log, committed = view.log(position.topic, position.partition), position.committed
        if log is not None and committed is not None:
            start, end = log.log_start_offset, log.log_end_offset
            if not start <= committed.offset <= end:
                outside[position.topic, position.partition] = committed.offset, start, end
        if number % PIECE == 0:
            yield
    events = view.history.recent(name)
    now = view.wall_ms()
    waiting = long_waits(waits(view, blocked)) if blocked else []
    flapping = view.history.is_flapping(name)
    version = (
        version_of(events),
        group.state,
        group.generation,
        len(group.members),
        bool(lags),
        len(outside),
        len(waiting),
        flapping,
        now // 60_000,
    )
    if not view.diagnoses.is_due(name, version):
        return
    members: list[Reader] = []
    for number, reader in enumerate(readers(hosted.group, image.names.get), 1):
        members.append(reader)
        if number % PIECE == 0:
            yield
    topics = {topic for reader in members for topic in reader.topics}
    counts = {topic: len(image.topics[topic].partitions) for topic in topics if topic in image.topics}
    empty = frozenset(topic for topic, count in counts.items() if _is_empty(view, topic, count))
    if not members and lags and max(lags.values()) <= MOST_MARKERS:
        logs = ConsumedLogs(view.replicas)
        for place in list(lags):
            # Each look reads from the disk, and one partition with a record is enough.
            if logs.has_records(*place, offsets[place]) is not False:
                break
            del lags[place]
            yield
    others: dict[Partition, int] = {}
    owned = {place for reader in members for place in reader.partitions}
    # During a rebalance members own nothing.
    if not members or group.state.value == "Stable":
        for topic in topics if members else {topic for topic, _ in offsets}:
            for number in range(len(image.topics[topic].partitions) if topic in image.topics else 0):
                log = None if (topic, number) in offsets or (topic, number) in owned else view.log(topic, number)
                if log is not None:
                    others[topic, number] = log.high_watermark - log.log_start_offset
                if number % PIECE == 0:
                    yield
    present = Present(
        group=name,
        state=group.state.value,
        readers=members,
        had_members=bool(group.protocol_type),
        lags=lags,
        committed=offsets,
        topics=counts,
        left_out=others,
        empty=empty,
        outside=outside,
        waits=waiting,
        assignor=(group.members.protocol or "") if isinstance(group, ClassicGroup) else group.assignor,
        has_epochs=not isinstance(group, ClassicGroup),
    )
    diagnoses = diagnose(present, events, now, now - SINCE_MS)
    found = _with_score(view, name, diagnoses, flapping=flapping)
    view.diagnoses.put(name, version, found, sign(present, events))


def _with_score(view: View, group: str, diagnoses: list[Diagnosis], *, flapping: bool) -> list[Diagnosis]:
    """Diagnoses in which a storm has the score of all events: a storm has more events than are in memory."""
    score = view.history.storm_score(group).text
    if flapping and all(each.kind not in (STORM, DEPLOYMENT) for each in diagnoses):
        remedy = f"See its causes: barnabas groups explain {quote(group)}"
        storm = Diagnosis(group, STORM, SICK, "It rebalances again and again.", CERTAIN, (), remedy)
        diagnoses = sorted([*diagnoses, storm], key=lambda each: -each.severity)

    def with_score(storm: Diagnosis) -> Diagnosis:
        return replace(storm, evidence=(*(line for line in storm.evidence if not is_score(line)), score))

    return [with_score(each) if each.kind == STORM and each.severity == SICK else each for each in diagnoses]


def _is_empty(view: View, topic: str, partitions: int) -> bool:
    """Whether a topic has never had a record; False if another broker leads one of its partitions: it is not known."""
    for number in range(partitions):
        log = view.log(topic, number)
        if log is None or log.high_watermark > 0:
            return False
    return True
