"""Counts and offsets in one SQLite database: one transaction changes both or neither.

So a flight that is consumed twice is counted once. If a consumer is killed between its transaction and its commit to
the group, the committed offset is behind the ledger; the next owner of the partition starts at the offset in the
ledger. A fenced consumer that does not know it yet finds another offset in the ledger, and its counts are refused.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path


class Ledger:
    """Flights per carrier, and the next offset of each partition.

    Args:
        path: the SQLite file; consumers in several processes share it.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")

    def create(self, partitions: int) -> None:
        """Begin at offset 0 of every partition."""
        self._db.execute("CREATE TABLE progress (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL)")
        self._db.execute("CREATE TABLE counts (carrier TEXT PRIMARY KEY, flights INTEGER NOT NULL)")
        self._db.executemany("INSERT INTO progress VALUES (?, 0)", [(number,) for number in range(partitions)])

    def next_offset(self, partition: int) -> int:
        """The next offset of the partition."""
        (offset,) = self._db.execute("SELECT next FROM progress WHERE partition = ?", (partition,)).fetchone()
        return int(offset)

    def add(self, partition: int, first: int, following: int, counts: Mapping[str, int]) -> bool:
        """Count the flights of the offsets from `first` up to `following`, exclusive.

        Returns:
            Whether they were counted; False if the partition is not at `first` any more.
        """
        self._db.execute("BEGIN IMMEDIATE")
        moved = self._db.execute(
            "UPDATE progress SET next = ? WHERE partition = ? AND next = ?", (following, partition, first)
        ).rowcount
        if moved:
            self._db.executemany(
                "INSERT INTO counts VALUES (?, ?) "
                "ON CONFLICT (carrier) DO UPDATE SET flights = flights + excluded.flights",
                counts.items(),
            )
        self._db.execute("COMMIT" if moved else "ROLLBACK")
        return bool(moved)

    def progress(self) -> dict[int, int]:
        """The next offset of each partition."""
        return dict(self._db.execute("SELECT partition, next FROM progress"))

    def counts(self) -> dict[str, int]:
        """Flights by carrier."""
        return dict(self._db.execute("SELECT carrier, flights FROM counts"))

    def close(self) -> None:
        """Close the file."""
        self._db.close()
