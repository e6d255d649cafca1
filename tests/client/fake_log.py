"""A partition of the fake broker: its log in memory."""

import struct
from dataclasses import dataclass, field

from barnabas_protocol.messages.fetch import AbortedTransaction
from barnabas_protocol.records import Record, build_batch, decode_records, read_header, restamp


@dataclass
class Partition:
    """A partition's log: batches with their end offsets."""

    leader: int = 0
    leader_epoch: int = 0
    start: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)  # producer id: epoch, next sequence
    open: dict[int, int] = field(default_factory=dict)  # producer id: first offset of its transaction
    recent: dict[tuple[int, int, int], int] = field(default_factory=dict)  # producer, epoch, sequence: offset

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    @property
    def last_stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def mark(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        """End a transaction with its marker."""
        key = struct.pack(">hh", 0, 1 if committed else 0)
        marker = [(key, struct.pack(">hi", 0, 0), (), 1_700_000_000_000)]
        first = self.open.pop(producer_id, None)
        if first is not None and not committed:
            self.aborted.append(AbortedTransaction(producer_id=producer_id, first_offset=first))
        self.append(
            build_batch(marker, producer_id=producer_id, producer_epoch=epoch, control=True, transactional=True)
        )

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

    def read(self, offset: int, limit: int, until: int | None = None) -> bytes:
        found = bytearray()
        for base, end, batch in self.batches:
            if until is not None and base >= until:
                break
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
