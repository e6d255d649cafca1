"""Wait for a result within a limit and without sleeping: each poll of a client waits."""

import threading
import time
from collections.abc import Callable, Sequence

from tests.interop.clients.base import LIMIT, Partition, Reader, Record


def read(reader: Reader, count: int, limit: float = LIMIT) -> list[Record]:
    """Return the next `count` records; fail if the poll returns more."""
    records: list[Record] = []
    read_until(reader, lambda: len(records) >= count, f"{count} records", records, limit)
    assert len(records) == count
    return records


def read_until(
    reader: Reader, until: Callable[[], bool], what: str, into: list[Record] | None = None, limit: float = LIMIT
) -> None:
    """Poll until `until` returns True; append the records to `into`."""
    deadline = time.monotonic() + limit
    while not until():
        assert time.monotonic() < deadline, f"after {limit:.0f} s not yet: {what}"
        records = reader.poll(reader.PATIENCE)
        if into is not None:
            into.extend(records)


def ask_until(until: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
    """Repeat a request until `until` returns True: a Kafka broker applies a decision a moment after it was made."""
    deadline = time.monotonic() + limit
    while not until():
        assert time.monotonic() < deadline, f"after {limit:.0f} s not yet: {what}"


class Members:
    """Readers that are polled continuously, each in its own thread."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._assigned: dict[Reader, frozenset[Partition]] = {}
        self._threads: dict[Reader, tuple[threading.Event, threading.Thread]] = {}
        self._failed: list[BaseException] = []

    def add(self, *readers: Reader, topic: str) -> None:
        for reader in readers:
            reader.subscribe(topic)
            stop = threading.Event()
            thread = threading.Thread(target=self._poll, args=(reader, stop))
            self._threads[reader] = stop, thread
            thread.start()

    def remove(self, reader: Reader) -> None:
        """Close a reader."""
        stop, thread = self._threads.pop(reader)
        stop.set()
        thread.join()
        self._assigned.pop(reader, None)
        reader.close()

    def assigned(self, reader: Reader) -> frozenset[Partition]:
        with self._news:
            return self._assigned.get(reader, frozenset())

    def wait_shared(self, partitions: Sequence[Partition], limit: float = LIMIT) -> None:
        """Wait until these partitions are divided among the readers, and each reader has some."""

        def shared() -> bool:
            assignments = [self._assigned.get(reader, frozenset()) for reader in self._threads]
            return all(assignments) and sorted(partitions) == sorted(one for each in assignments for one in each)

        with self._news:
            done = self._news.wait_for(lambda: bool(self._failed) or shared(), limit)
            assert self._failed == []
            assert done, f"after {limit:.0f} s not yet assigned: {self._assigned}"

    def close(self) -> None:
        for stop, _ in self._threads.values():
            stop.set()
        for _, thread in self._threads.values():
            thread.join()

    def _poll(self, reader: Reader, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                reader.poll(reader.PATIENCE)
                assigned = reader.assignment()
                with self._news:
                    self._assigned[reader] = assigned
                    self._news.notify_all()
        except BaseException as error:
            with self._news:
                self._failed.append(error)
                self._news.notify_all()
            raise
