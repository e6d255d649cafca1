"""When free memory is given back to the system."""

from barnabas_broker.heap import Heap

BUSY = 100 * 1024 * 1024


class Process:
    """Bytes that come and go, and how often memory was given back."""

    def __init__(self) -> None:
        self.bytes = self.trims = 0
        self.heap = Heap(lambda: self.bytes, self.trim)

    def trim(self) -> None:
        self.trims += 1

    def after(self, size: int) -> int:
        self.bytes += size
        self.heap.look()
        return self.trims


def test_memory_is_kept_while_there_is_work_and_given_back_once_after_it() -> None:
    process = Process()
    assert [process.after(size) for size in (BUSY, BUSY, 0, 0, 0)] == [0, 0, 1, 1, 1]


def test_heartbeats_are_no_work() -> None:
    process = Process()
    assert [process.after(size) for size in (1000, 0, 1000, BUSY, 1000, 1000)] == [0, 0, 0, 0, 1, 1]
