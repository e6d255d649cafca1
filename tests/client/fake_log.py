"""A partition of the fake broker: its log in memory."""

from dataclasses import dataclass, field

from barnabas_protocol.records import Record, decode_records, read_header, restamp


@dataclass
class Partition:
    """A partition's log: batches with their end offsets."""

    leader: int = 0
    leader_epoch: int = 0
    start: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)  # producer id: epoch, next sequence
    recent: dict[tuple[int, int, int], int] = field(default_factory=dict)  # producer, epoch, sequence: offset

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(self, batch: bytes | bytearray) -> int:
        """Write a batch at the end; its base offset."""
        stamped = bytearray(batch)
        base = self.end
        restamp(stamped, 0, base, self.leader_epoch)
        self.batches.append((base, base + read_header(stamped).last_offset_delta + 1, bytes(stamped)))
        return base

    def records(self) -> list[Record]:
        return [
            record
            for _, _, batch in self.batches
            if not read_header(batch).is_control
            for record in decode_records(batch)
        ]

    def read(self, offset: int, limit: int) -> bytes:
        found = bytearray()
        for _, end, batch in self.batches:
            if end > offset and (not found or len(found) + len(batch) <= limit):
                found += batch
        return bytes(found)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that wrote something, and where it ends; -1 and -1 if `epoch` is newer."""
        starts = {read_header(batch).leader_epoch: base for base, _, batch in reversed(self.batches)}
        starts.setdefault(self.leader_epoch, self.end)  # a leader notes its epoch before it writes
        if epoch > max(starts):
            return -1, -1
        newer = [start for known, start in starts.items() if known > epoch]
        return max((known for known in starts if known <= epoch), default=epoch), min(newer, default=self.end)

    def truncate(self, offset: int) -> None:
        """Lose batches that begin at `offset` or after, as a new leader may have that was not in sync."""
        self.batches = [batch for batch in self.batches if batch[0] < offset]
