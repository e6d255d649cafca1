"""Offsets of a log that cannot be read because their bytes are damaged or missing. Pure."""

from pathlib import Path
from typing import NamedTuple

from barnabas_protocol.errors import ErrorCode, KafkaError


class Damage(NamedTuple):
    """A damaged or missing part of a log.

    Attributes:
        position: where it begins in the file, in bytes.
        size: in bytes; 0 if the bytes are missing.
        offset: the first offset that is affected.
        next_offset: the first offset after it.
        file: the ``.log`` file.
        reason: what is wrong, in a few words.
        certain: reads of these offsets answer CORRUPT_MESSAGE. Otherwise compaction could have removed the records.
    """

    position: int
    size: int
    offset: int
    next_offset: int
    file: Path
    reason: str
    certain: bool = True

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.size

    @property
    def records(self) -> int:
        """The number of offsets that are affected."""
        return self.next_offset - self.offset

    def __str__(self) -> str:
        where = f"{self.file} at position {self.position}, {self.size} bytes"
        what = f"offsets {self.offset} to {self.next_offset - 1}" if self.records else f"offset {self.offset}"
        return f"{where}, {what}: {self.reason}"


class DamagedLog(KafkaError):
    """CORRUPT_MESSAGE: a read runs into damage.

    Args:
        damage: the damage; the next record that can be read is at its `next_offset` or later.
    """

    def __init__(self, damage: Damage) -> None:
        text = f"{damage}. The next offset that can be read is {damage.next_offset}."
        super().__init__(ErrorCode.CORRUPT_MESSAGE, text)
        self.damage = damage
