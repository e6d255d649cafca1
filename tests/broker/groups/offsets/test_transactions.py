"""Offsets committed in transactions: the rules as data, and a comparison with a simple model of the log."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.offsets.offsets import NO_PRODUCER, GroupOffsets
from barnabas_protocol.group_records import Committed, offset_key, offset_key_head, offset_value
from barnabas_protocol.records import build_batch, restamp
from tests.broker.groups.machine import Machine
from tests.broker.groups.memory import new_share_group
from tests.broker.groups.support import WEEK_MS
from tests.lots import in_lots

HEAD: Final = offset_key_head("g", "t")


def commit(offset: int, sequence: int) -> Committed:
    return Committed(offset, -1, "", 0, sequence=sequence)


def run(steps: str) -> tuple[int | None, bool]:
    """The offset of partition 0 and whether it is pending, after steps such as ``"5 7:6 +7"``.

    The steps: ``5`` is a commit, ``7:6`` one in the transaction of producer 7, ``x`` a tombstone, ``+7`` and ``-7`` the
    markers that commit and abort. The position of a step is its sequence.
    """
    offsets = GroupOffsets()
    for at, step in enumerate(steps.split()):
        producer, _, offset = step.rpartition(":")
        if step[0] in "+-":
            offsets.end_transaction(int(step[1:]), step[0] == "+")
        elif step == "x":
            offsets.apply("t", 0, None, at)
        else:
            offsets.apply("t", 0, commit(int(offset), at), at, int(producer or NO_PRODUCER))
    found = offsets.find("t", 0)
    return None if found is None else found.offset, offsets.is_pending("t", 0)


@in_lots(
    ("steps", "offset", "pending"),
    [
        ("7:6", None, True),
        ("5 7:6", 5, True),
        ("5 7:6 +7", 6, False),
        ("5 7:6 -7", 5, False),
        ("7:6 -7", None, False),
        # The later record in the log wins, not the later marker.
        ("7:6 9 +7", 9, False),
        ("7:6 9 -7", 9, False),
        ("7:6 8:7 +8 +7", 7, False),
        ("7:6 8:7 +7 +8", 7, False),
        ("7:6 8:7 +7 -8", 6, False),
        ("7:6 7:8 +7", 8, False),
        # Markers of other producers, and markers that are repeated.
        ("7:6 +8", None, True),
        ("7:6 -8 +7", 6, False),
        ("7:6 +7 9 +7", 9, False),
        ("7:6 +7 7:8 -7 -7", 6, False),
        ("7:6 8:7 +7", 6, True),
        # A tombstone removes what was pending before it.
        ("7:6 x +7", None, False),
        ("5 7:6 x", None, False),
        ("7:6 x 7:8", None, True),
        ("7:6 x 7:8 +7", 8, False),
        ("7:6 x 9 +7", 9, False),
    ],
)
def test_which_commit_is_in_effect(steps: str, offset: int | None, pending: bool) -> None:
    assert run(steps) == (offset, pending)


def test_a_transaction_without_commits_left_keeps_no_group() -> None:
    offsets = GroupOffsets()
    offsets.apply("t", 0, commit(1, 1), 1, 7)
    assert offsets
    assert offsets.in_transaction
    offsets.apply("t", 0, None, 2)
    assert not offsets


def test_the_transaction_of_a_pending_offset_is_the_first_one_and_its_age_is_that_of_its_first_commit() -> None:
    offsets = GroupOffsets()
    for producer_id, made_ms in ((7, 500), (8, 100), (7, 900)):
        offsets.apply("t", 0, Committed(1, -1, "", made_ms, sequence=made_ms), made_ms, producer_id)
    found = offsets.pending("t", 0)
    assert found is not None
    assert (found.producer_id, found.transaction.since_ms) == (7, 500)
    offsets.end_transaction(7, False)
    found = offsets.pending("t", 0)
    assert found is not None
    assert (found.producer_id, found.transaction.since_ms) == (8, 100)
    assert offsets.pending("t", 1) is None


def test_a_deletion_covers_committed_and_pending_offsets() -> None:
    offsets = GroupOffsets()
    offsets.apply("t", 0, commit(1, 1), 1)
    offsets.apply("t", 0, commit(1, 2), 2, 7)
    offsets.apply("t", 1, commit(1, 3), 3, 7)
    offsets.apply("t", 1, commit(1, 4), 4, 8)
    assert sorted(offsets.all_keys()) == [("t", 0), ("t", 1)]
    assert list(offsets) == [("t", 0)]


def test_an_offset_with_a_pending_commit_does_not_expire() -> None:
    machine, offsets = Machine(), GroupOffsets()
    offsets.apply("t", 0, commit(5, 1), 1)
    offsets.apply("t", 1, commit(5, 2), 2)
    offsets.apply("t", 0, commit(6, 3), 3, 7)
    assert offsets.expired(machine.group, machine.now, 2 * WEEK_MS, WEEK_MS) == [("t", 1)]
    offsets.end_transaction(7, False)
    assert offsets.expired(machine.group, machine.now, 2 * WEEK_MS, WEEK_MS) == [("t", 0), ("t", 1)]


# The model


class Entry(NamedTuple):
    """A batch of the log: what it commits by partition, None for a tombstone; or a marker."""

    first: int
    producer_id: int
    commits: dict[int, int | None]
    marker: bool | None = None

    def encode(self, first: int, partitions: list[int]) -> bytes:
        """The batch, with only these partitions."""
        options: dict[str, Any] = {}
        if self.producer_id >= 0:
            options = {"transactional": True, "producer_id": self.producer_id, "producer_epoch": 0}
        if self.marker is not None:
            key = b"\x00\x00\x00\x01" if self.marker else b"\x00\x00\x00\x00"
            data = build_batch([(key, b"\x00\x00\x00\x00\x00\x00", (), 0)], control=True, **options)
        else:
            pairs = [
                (offset_key(HEAD, each), None if offset is None else offset_value(commit(offset, -1)), (), 0)
                for each in partitions
                for offset in [self.commits[each]]
            ]
            data = build_batch(pairs, **options)
        restamp(data, 0, first, 0)
        return bytes(data)


class Model:
    """The state that a log means, computed the slow way."""

    def __init__(self, log: list[Entry]) -> None:
        self.committed: dict[int, tuple[int, int]] = {}
        self.pending: dict[int, dict[int, tuple[int, int]]] = {}
        #: The outcome of each transactional entry, by its first offset.
        self.outcomes: dict[int, bool] = {}
        open_entries: dict[int, list[Entry]] = {}
        for entry in log:
            if entry.marker is not None:
                for each in open_entries.pop(entry.producer_id, []):
                    self.outcomes[each.first] = entry.marker
                for partition, made in self.pending.pop(entry.producer_id, {}).items():
                    if entry.marker and self.committed.get(partition, (-1, 0)) < made:
                        self.committed[partition] = made
                continue
            if entry.producer_id >= 0:
                open_entries.setdefault(entry.producer_id, []).append(entry)
            for partition, offset in entry.commits.items():
                if offset is None:
                    self.committed.pop(partition, None)
                    for transaction in self.pending.values():
                        transaction.pop(partition, None)
                elif entry.producer_id >= 0:
                    self.pending.setdefault(entry.producer_id, {})[partition] = (entry.first, offset)
                else:
                    self.committed[partition] = (entry.first, offset)
        #: The last stable offset: compaction stops there.
        self.stable = min((entries[0].first for entries in open_entries.values()), default=1 << 60)

    @property
    def visible(self) -> tuple[dict[int, int], set[int]]:
        pending = {partition for transaction in self.pending.values() for partition in transaction}
        return {partition: offset for partition, (_, offset) in self.committed.items()}, pending


def visible(offsets: GroupOffsets | None) -> tuple[dict[int, int], set[int]]:
    if offsets is None:
        return {}, set()
    found = {partition: each.offset for partition, each in offsets.topics.get("t", {}).items()}
    return found, {partition for partition in range(PARTITIONS) if offsets.is_pending("t", partition)}


def compacted(log: list[Entry]) -> list[bytes]:
    """What compaction leaves: below the last stable offset the last committed record of each key, and all markers."""
    model = Model(log)
    last: dict[int, int] = {}
    for entry in log:
        if entry.first < model.stable and model.outcomes.get(entry.first, True):
            last.update(dict.fromkeys(entry.commits, entry.first))
    out = []
    for entry in log:
        keys = list(entry.commits)
        if entry.first < model.stable and entry.marker is None:
            aborted = not model.outcomes.get(entry.first, True)
            keys = [] if aborted else [each for each in keys if last[each] == entry.first]
        if keys or entry.marker is not None:
            out.append(entry.encode(entry.first, keys))
    return out


def replayed(batches: list[bytes]) -> Replay:
    replay = Replay(lambda at, reason: pytest.fail(f"{at}: {reason}"), 0, new_share_group)
    for _ in replay.feed(b"".join(batches)):
        pass
    return replay


PARTITIONS: Final = 3
PRODUCERS: Final = (7, 8, 9)
_partitions = st.sets(st.integers(0, PARTITIONS - 1), min_size=1)
_producers = st.sampled_from(PRODUCERS)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), _partitions),
        st.tuples(st.just("transactional"), _producers, _partitions),
        st.tuples(st.just("transactional"), _producers, _partitions),
        st.tuples(st.just("tombstone"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("marker"), _producers, st.booleans()),
        st.tuples(st.just("marker"), _producers, st.booleans()),
        st.tuples(st.just("report"), st.integers(1, 4)),
        st.tuples(st.just("crash"), st.booleans()),
    ),
    max_size=60,
)


class Coordinator:
    """The machine with a log whose results are reported late, in their order."""

    def __init__(self) -> None:
        self.offsets = GroupOffsets()
        self.log: list[Entry] = []
        self.coming: deque[Callable[[], object]] = deque()
        #: The outcome of each transaction whose marker is not reported.
        self.ending: dict[int, bool] = {}
        self.next = self.sequence = self.value = 0

    def append(self, producer_id: int, commits: dict[int, int | None], marker: bool | None = None) -> None:
        self.log.append(Entry(self.next, producer_id, commits, marker))
        self.next += max(len(commits), 1)

    def plain(self, partitions: set[int]) -> None:
        made, sequence = self._values(partitions)
        self.append(-1, dict(made))
        for partition, offset in made.items():
            self.coming.append(partial(self.offsets.apply, "t", partition, commit(offset, sequence), sequence))

    def tombstone(self, partition: int) -> None:
        self.sequence += 1
        self.append(-1, {partition: None})
        self.coming.append(partial(self.offsets.apply, "t", partition, None, self.sequence))

    def transactional(self, producer_id: int, partitions: set[int]) -> None:
        if producer_id in self.ending:
            return  # The coordinator of transactions starts none before the marker of the last one is reported.
        made, sequence = self._values(partitions)
        self.append(producer_id, dict(made))
        for partition, offset in made.items():
            applied = partial(self.offsets.apply, "t", partition, commit(offset, sequence), sequence, producer_id)
            self.coming.append(applied)

    def marker(self, producer_id: int, commits: bool) -> None:
        self.sequence += 1
        sequence = self.sequence
        commits = self.ending.setdefault(producer_id, commits)  # A marker that is repeated has the same outcome.
        self.append(producer_id, {}, commits)

        def ended() -> None:
            self.offsets.end_transaction(producer_id, commits, sequence)
            self.ending.pop(producer_id, None)

        self.coming.append(ended)

    def report(self, count: int) -> None:
        for _ in range(min(count, len(self.coming))):
            self.coming.popleft()()

    def crash(self, compact: bool) -> None:
        """Another coordinator replays the log, which may be compacted."""
        every = [entry.encode(entry.first, list(entry.commits)) for entry in self.log]
        replay = replayed(compacted(self.log) if compact else every)
        offsets = replay.offsets.get("g")
        model = Model(self.log)
        assert visible(offsets) == model.visible
        assert set(replay.transactions) >= {each for each, pending in model.pending.items() if pending}
        self.offsets = GroupOffsets() if offsets is None else offsets
        self.coming.clear()
        self.ending.clear()
        self.sequence = max(self.sequence, self.next)

    def _values(self, partitions: set[int]) -> tuple[dict[int, int], int]:
        self.sequence += 1
        self.value += 1
        return dict.fromkeys(sorted(partitions), self.value), self.sequence


@given(_steps)
@example(
    # A marker that is repeated, and reported when the next transaction has begun.
    [("marker", 7, False), ("marker", 7, True), ("report", 1), ("transactional", 7, {0}), ("marker", 7, True)]
)
@settings(deadline=None)
def test_the_machine_agrees_with_a_model_of_the_log(steps: list[tuple[Any, ...]]) -> None:
    coordinator = Coordinator()
    for name, *arguments in steps:
        getattr(coordinator, name)(*arguments)
        if not coordinator.coming:
            assert visible(coordinator.offsets) == Model(coordinator.log).visible
    coordinator.report(len(coordinator.coming))
    assert visible(coordinator.offsets) == Model(coordinator.log).visible
    coordinator.crash(compact=True)
