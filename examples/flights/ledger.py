"""Counts and the offsets that they cover: one SQLite transaction updates both or neither.

So records that are consumed twice are counted once. If a consumer is killed between its transaction and its commit to
the group, the group is behind the ledger; the next owner of the partition starts at the ledger's offset. If a consumer
was removed from the group and does not know it yet, the ledger's offset has changed and refuses its counts.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path


class Ledger:
    """Flights per carrier, and the next offset of each partition.

    Args:
        path: the SQLite file, used by consumers in several processes.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")

    def create(self, partitions: int) -> None:
        """Create the tables, with offset 0 for each partition."""
        self._db.execute("CREATE TABLE progress (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL)")
        self._db.execute("CREATE TABLE counts (carrier TEXT PRIMARY KEY, flights INTEGER NOT NULL)")
        self._db.executemany("INSERT INTO progress VALUES (?, 0)", [(number,) for number in range(partitions)])

    def next_offset(self, partition: int) -> int:
        """Return the offset at which to continue a partition."""
        (offset,) = self._db.execute("SELECT next FROM progress WHERE partition = ?", (partition,)).fetchone()
        return int(offset)

    def add(self, partition: int, first: int, following: int, counts: Mapping[str, int]) -> bool:
        """Add the counts of the offsets from `first` up to `following`, exclusive.

        Returns:
            Whether they were added; False if the partition is no longer at `first`.
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
        """Return the next offset of each partition."""
        return dict(self._db.execute("SELECT partition, next FROM progress"))

    def counts(self) -> dict[str, int]:
        """Return the number of flights by carrier."""
        return dict(self._db.execute("SELECT carrier, flights FROM counts"))

    def close(self) -> None:
        """Close the file."""
        self._db.close()
