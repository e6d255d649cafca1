"""Members of groups outlive calls of the library that do not return."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from tests.checker import groups
from tests.checker.checker import check
from tests.checker.groups import Group, Plan
from tests.checker.history import History, Kind, Outcome

#: Seconds for each wait of a test.
PATIENCE = 60.0

Callback = Callable[[Any, list[TopicPartition]], None]


class Library:
    """Stands for confluent-kafka: the first poll of the first consumer does not return before :attr:`released`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.made: list[FakeConsumer] = []

    def consumer(self, settings: Mapping[str, Any]) -> "FakeConsumer":
        self.made.append(FakeConsumer(self, stuck=not self.made))
        return self.made[-1]


class FakeConsumer:
    """A consumer that gets partition 0 in its first poll, which has no records."""

    def __init__(self, library: Library, *, stuck: bool) -> None:
        self._library = library
        self._stuck = stuck
        self._assigned: Callback | None = None
        self.closed = False

    def subscribe(self, topics: Sequence[str], *, on_assign: Callback, on_revoke: Callback, on_lost: Callback) -> None:
        self._assigned = on_assign

    def consume(self, count: int, timeout: float) -> list[Message]:
        if self._stuck:
            assert self._library.released.wait(PATIENCE)
        if self._assigned is not None:
            assigned, self._assigned = self._assigned, None
            assigned(self, [TopicPartition("t", 0)])
        return []

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return places

    def close(self) -> None:
        self.closed = True


@contextmanager
def running(group: Group, library: Library) -> Iterator[None]:
    with ThreadPoolExecutor(1) as threads:
        group.start(threads)
        try:
            yield
        finally:
            group.stop()
            library.released.set()


def test_a_member_whose_poll_does_not_return_begins_a_new_life(monkeypatch: pytest.MonkeyPatch) -> None:
    library, history = Library(), History()
    monkeypatch.setattr(groups, "Consumer", library.consumer)
    group = Group(Plan("g", members=1), "t", [0], history, {}, seed=1, limit=0.05, enter=lambda member: None)
    with running(group, library):
        assert group.settle(PATIENCE)
    first, second = library.made
    assert not first.closed, "its poll still uses it"
    assert second.closed
    lives = {each.process for each in history.operations if each.kind is Kind.SUBSCRIBE}
    assert lives == {"member g 0 life 0", "member g 0 life 1"}
    (poll,) = [each for each in history.operations if each.kind is Kind.POLL and each.outcome is Outcome.UNKNOWN]
    assert groups.NO_RETURN in poll.error
    assert check(history).lines() == []
