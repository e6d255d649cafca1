"""When free memory is returned to the system."""

from barnabas_broker.malloc import Heap

BUSY = 100 * 1024 * 1024


class Process:
    """Bytes received and sent, and how often memory was returned."""

    def __init__(self) -> None:
        self.bytes = self.trims = 0
        self.heap = Heap(lambda: self.bytes, self.trim)

    def trim(self) -> None:
        self.trims += 1

    def after(self, size: int) -> int:
        self.bytes += size
        self.heap.check()
        return self.trims


def test_memory_is_kept_while_the_broker_is_busy_and_returned_once_afterwards() -> None:
    process = Process()
    assert [process.after(size) for size in (BUSY, BUSY, 0, 0, 0)] == [0, 0, 1, 1, 1]


def test_heartbeats_do_not_count_as_busy() -> None:
    process = Process()
    assert [process.after(size) for size in (1000, 0, 1000, BUSY, 1000, 1000)] == [0, 0, 0, 0, 1, 1]
