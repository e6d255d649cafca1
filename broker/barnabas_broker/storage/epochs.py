"""Which leader epoch starts at which offset (``LeaderEpochFileCache``, KIP-101, KIP-320)."""

from bisect import bisect_right
from collections.abc import Iterable

#: The answer when nothing is known.
UNDEFINED = -1


class LeaderEpochs:
    """The epochs of one log, each with the offset it starts at, growing in both.

    Args:
        entries: pairs of epoch and start offset.
    """

    __slots__ = ("_offsets", "dirty", "epochs", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.epochs: list[int] = []
        self._offsets: list[int] = []
        self.latest = UNDEFINED
        for epoch, offset in sorted(entries):
            self.assign(epoch, offset)
        #: Whether the checkpoint on disk is older than what is here.
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        """Pairs of epoch and start offset."""
        return list(zip(self.epochs, self._offsets, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` starts at `start_offset`, unless it or a later one has begun before."""
        if epoch <= self.latest or epoch < 0:
            return
        # Epochs without a record left behind them never were: the new one starts where they would have.
        while self._offsets and self._offsets[-1] >= start_offset:
            self._offsets.pop()
            self.epochs.pop()
        self.epochs.append(epoch)
        self._offsets.append(start_offset)
        self.latest = epoch
        self.dirty = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Where `epoch` ends: the largest epoch up to it that is known, and the offset after its last record.

        Args:
            epoch: asked for.
            log_end_offset: where the latest epoch ends.

        Returns:
            (epoch, offset), or (-1, -1) if `epoch` is newer than all here.
        """
        if epoch == UNDEFINED or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        n = bisect_right(self.epochs, epoch)
        # Older than all: the answer is where the first one starts, as in Kafka.
        return (self.epochs[n - 1] if n else epoch), self._offsets[n]

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 if none is known."""
        n = bisect_right(self._offsets, offset)
        return self.epochs[n - 1] if n else UNDEFINED

    def truncate_end(self, offset: int) -> None:
        """Forget epochs that start at `offset` or after."""
        n = len(self._offsets)
        while n and self._offsets[n - 1] >= offset:
            n -= 1
        if n < len(self._offsets):
            del self._offsets[n:], self.epochs[n:]
            self.latest = self.epochs[-1] if n else UNDEFINED
            self.dirty = True

    def truncate_start(self, offset: int) -> None:
        """Forget epochs that end before `offset`; the one it lies in starts there now."""
        n = bisect_right(self._offsets, offset)
        if n and (n > 1 or self._offsets[0] < offset):
            del self._offsets[: n - 1], self.epochs[: n - 1]
            self._offsets[0] = offset
            self.dirty = True

    def clear(self) -> None:
        """Forget all."""
        self.epochs.clear()
        self._offsets.clear()
        self.latest = UNDEFINED
        self.dirty = True
