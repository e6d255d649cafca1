"""The embedded metadata store of a single broker: a journal of events in the data directory.

A line is the CRC-32C of the rest in hexadecimal, a space, and an event as JSON. An append is one write and one fsync. A
kill in the middle of a write leaves a last line that is torn: it was never acknowledged and is cut when the journal is
opened. A line that is broken before the end is damage, and refused. At start the journal is rewritten as a snapshot, by
writing a temporary file, fsync, rename, and fsync of the directory.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from crc32c import crc32c

from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.store import Batch, Loaded, StoreError, event_from_json, event_to_json

NAME: Final = "metadata.journal"


class LocalStore:
    """A :class:`~barnabas_broker.cluster.store.MetadataStore` in a file.

    Args:
        directory: the broker's data directory, which this process must have locked.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._file: int | None = None
        self._failed = False
        self._sequence = 0

    async def load(self) -> Loaded:
        """Every event in the journal; the journal is rewritten without what they made superfluous, and batches are
        counted anew.

        Raises:
            StoreError: the journal cannot be read or rewritten, or is damaged before its end.
        """
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
            events = self._parse(data)
            snapshot = Image(cluster_id="").apply_all(events).snapshot()
            if events != snapshot or not data.endswith(b"\n"):
                self._rewrite(snapshot)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._sequence = 0
            return Loaded(0, snapshot)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}") from error

    def _parse(self, data: bytes) -> list[Event]:
        lines = data.split(b"\n")
        events = []
        for number, line in enumerate(lines, 1):
            whole = number < len(lines)
            if not line and not whole:
                break
            crc, _, text = line.partition(b" ")
            if crc != b"%08x" % crc32c(text):
                if not whole:
                    break
                raise StoreError(f"{self.path} line {number}: checksum does not match; restore the file from a copy")
            if whole:
                events.append(event_from_json(text.decode()))
        return events

    def _rewrite(self, events: Sequence[Event]) -> None:
        temporary = self.path.with_suffix(".tmp")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write_all(file, _lines(events))
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    async def append(self, events: Sequence[Event], expected: int, *, as_controller: bool = False) -> bool:
        """Keep events; when this returns they are on disk. The write runs off the event loop.

        Raises:
            StoreError: they are not kept. After that nothing more is: what a failed fsync left is not known.
        """
        if self._failed or self._file is None:
            raise StoreError(f"{self.path}: closed after an earlier failure")
        if expected != self._sequence:
            return False
        self._sequence += 1
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._append, self._file, _lines(events))
        except OSError as error:
            self._failed, self._sequence = True, expected
            raise StoreError(f"{self.path}: {error.strerror}") from error
        return True

    async def newest(self) -> int:
        """The number of the last batch: nobody else writes here."""
        return self._sequence

    async def watch(self) -> AsyncIterator[Batch | Loaded]:
        """Nothing, for ever: nobody else writes here."""
        await asyncio.Event().wait()
        yield Batch(0, ())

    @staticmethod
    def _append(file: int, data: bytes) -> None:
        _write_all(file, data)
        os.fsync(file)

    async def close(self) -> None:
        """Close the journal."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _lines(events: Sequence[Event]) -> bytes:
    out = bytearray()
    for event in events:
        text = event_to_json(event).encode()
        out += b"%08x %s\n" % (crc32c(text), text)
    return bytes(out)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
