"""The start offset of each leader epoch (``LeaderEpochFileCache``, KIP-101, KIP-320). Pure."""

from bisect import bisect_right
from collections.abc import Iterable

#: The answer for an unknown epoch.
UNDEFINED = -1


class LeaderEpochs:
    """The leader epochs of one log with their start offsets; both grow.

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
        #: Whether there are changes that the checkpoint on the disk does not have.
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        """Pairs of epoch and start offset."""
        return list(zip(self.epochs, self._offsets, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that starts at `start_offset`, unless it or a later one is known."""
        if epoch <= self.latest or epoch < 0:
            return
        # Epochs that have left no record are removed: the new one starts at their offset.
        while self._offsets and self._offsets[-1] >= start_offset:
            self._offsets.pop()
            self.epochs.pop()
        self.epochs.append(epoch)
        self._offsets.append(start_offset)
        self.latest = epoch
        self.dirty = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and the offset after its last record.

        Args:
            epoch: the epoch to look up.
            log_end_offset: the end of the latest epoch.

        Returns:
            (epoch, offset), or (-1, -1) if `epoch` is newer than all known ones.
        """
        if epoch == UNDEFINED or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        n = bisect_right(self.epochs, epoch)
        # Older than all: as in Kafka, the answer is the start offset of the first one.
        return (self.epochs[n - 1] if n else epoch), self._offsets[n]

    def epoch_for(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 if unknown."""
        n = bisect_right(self._offsets, offset)
        return self.epochs[n - 1] if n else UNDEFINED

    def truncate_end(self, offset: int) -> None:
        """Remove the epochs that start at `offset` or later."""
        n = len(self._offsets)
        while n and self._offsets[n - 1] >= offset:
            n -= 1
        if n < len(self._offsets):
            del self._offsets[n:], self.epochs[n:]
            self.latest = self.epochs[-1] if n else UNDEFINED
            self.dirty = True

    def truncate_start(self, offset: int) -> None:
        """Remove the epochs that end before `offset`, and move the start of the one that holds it."""
        n = bisect_right(self._offsets, offset)
        if n and (n > 1 or self._offsets[0] < offset):
            del self._offsets[: n - 1], self.epochs[: n - 1]
            self._offsets[0] = offset
            self.dirty = True

    def clear(self) -> None:
        """Remove all epochs."""
        self.epochs.clear()
        self._offsets.clear()
        self.latest = UNDEFINED
        self.dirty = True
