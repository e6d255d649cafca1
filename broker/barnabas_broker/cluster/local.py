"""The metadata store of a single broker: a journal of events in the data directory. An adapter of :mod:`.store`.

Each line holds the CRC-32C of the rest in hexadecimal, a space, and an event as JSON. An append is one write and one
fsync. A process that is killed during a write leaves a torn last line, which was never acknowledged and is truncated at
start. A corrupt line before the end is an error. At start the journal is replaced by a snapshot: write a temporary
file, fsync, rename, fsync the directory.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from crc32c import crc32c

from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.store import EventBatch, LoadedMetadata, StoreError

NAME: Final = "metadata.journal"


class LocalStore:
    """A :class:`~barnabas_broker.cluster.store.MetadataStore` in a file.

    Args:
        directory: the broker's data directory, locked by this process.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._file: int | None = None
        self._failed = False
        self._sequence = 0

    async def load(self) -> LoadedMetadata:
        """Read every event, and replace the journal by a snapshot. The numbers of batches begin again at 0.

        Raises:
            StoreError: the journal cannot be read or rewritten, or is corrupt before its end.
        """
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
            events = self._parse(data)
            snapshot = Image(cluster_id="").apply_all(events).snapshot()
            if events != snapshot or not data.endswith(b"\n"):
                self._rewrite(snapshot)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._sequence = 0
            return LoadedMetadata(0, snapshot)
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
        """Store events on the disk; a thread writes them.

        Raises:
            StoreError: they are not stored, and no later ones are: the state after a failed fsync is unknown.
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
        """The number of the last batch."""
        return self._sequence

    async def watch(self) -> AsyncIterator[EventBatch | LoadedMetadata]:
        """Yield nothing, for ever: no other broker writes here."""
        await asyncio.Event().wait()
        yield EventBatch(0, ())

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
