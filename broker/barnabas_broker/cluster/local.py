"""The metadata store of a single broker: a journal of events in the data directory. An adapter of :mod:`.store`.

Each line holds the CRC-32C of the rest in hexadecimal, a space, and an event as JSON. An append is one write and one
fsync, first of the journal, then of its copy. A process that is killed during a write leaves a torn last line, which
was never acknowledged and is truncated at start. If the journal is corrupt, missing or shorter than the copy, the copy
is used; the journal is then kept with the suffix ``.damaged``. If both are corrupt that is an error. At start both are
replaced by a snapshot: write a temporary file, fsync, rename, fsync the directory. Where that fails, as on a full disk,
they stay as they are, if they are equal.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.store import EventBatch, LoadedMetadata, StoreError
from barnabas_broker.files import REAL_FILES, Files, read_all, replace_file, write_file
from barnabas_broker.logs import logger
from barnabas_broker.resource_errors import is_shortage
from barnabas_protocol.records.checksums import crc32c

NAME: Final = "metadata.journal"
COPY: Final = "metadata.journal.copy"

log = logger("cluster")


class LocalStore:
    """A :class:`~barnabas_broker.cluster.store.MetadataStore` in a file.

    Args:
        directory: the broker's data directory, locked by this process.
        files: its file system.
    """

    def __init__(self, directory: Path, files: Files = REAL_FILES) -> None:
        self.path = directory / NAME
        self.copy = directory / COPY
        self._files = files
        self._handles: list[int] = []
        self._failed = False
        self._sequence = 0

    def exists(self) -> bool:
        """Whether there is a journal, or a copy of one."""
        return self._files.exists(self.path) or self._files.exists(self.copy)

    async def load(self) -> LoadedMetadata:
        """Read every event, and replace the journal by a snapshot. The numbers of batches begin again at 0.

        Raises:
            StoreError: the journal and its copy cannot be read, rewritten or opened, or are corrupt before their end.
        """
        try:
            files, both = self._files, (self.path, self.copy)
            data = [read_all(files, path) if files.exists(path) else b"" for path in both]
            events = self._choose(*data)
            snapshot = Image(cluster_id="").apply_all(events).snapshot()
            if events != snapshot or data[0] != data[1] or not data[0].endswith(b"\n"):
                self._compact(data, snapshot)
            self._handles = [files.open(path, create=True) for path in both]
            self._sequence = 0
            return LoadedMetadata(0, snapshot)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}") from error

    def _choose(self, data: bytes, copy: bytes) -> list[Event]:
        """The events of the journal; those of the copy if the journal is damaged.

        Raises:
            StoreError: both are corrupt.
        """
        try:
            events = _parse(self.path, data)
        except StoreError as error:
            if not copy:
                raise
            events, reason = _parse(self.copy, copy), str(error)
        else:
            whole = data[: data.rfind(b"\n") + 1]
            if not (len(copy) > len(data) and copy.startswith(whole)):
                return events
            # Torn in its last line, the copy has nothing that the journal lacks.
            try:
                more = _parse(self.copy, copy)
            except StoreError:
                return events
            if len(more) <= len(events):
                return events
            events, reason = more, f"{len(events)} events, but the copy has {len(more)}"
        if data:
            write_file(self._files, self.path.with_name(NAME + ".damaged"), data)
        log.error("metadata journal is damaged, its copy is used", file=str(self.path), reason=reason)
        return events

    def _compact(self, data: Sequence[bytes], snapshot: Sequence[Event]) -> None:
        """Replace the journal and its copy by a snapshot. A full disk is no error if they are equal.

        Raises:
            OSError: they are different and cannot be replaced.
        """
        both = (self.path, self.copy)
        whole = [each[: each.rfind(b"\n") + 1] for each in data]
        equal = whole[0] == whole[1]
        if equal:
            # Without their torn last lines, which needs no space, they have the content of the snapshot.
            for path, content, found in zip(both, whole, data, strict=True):
                if len(content) < len(found):
                    handle = self._files.open(path)
                    try:
                        self._files.truncate(handle, len(content))
                    finally:
                        self._files.close(handle)
        try:
            # The journal is the newer one after a crash between the two, and either has the same content.
            for path in both:
                replace_file(self._files, path, _lines(snapshot))
        except OSError as error:
            for path in both:
                self._files.remove(path.with_name(path.name + ".tmp"))
            if not equal:
                raise
            log.warning("metadata journal could not be compacted", file=str(self.path), reason=error.strerror)

    async def append(self, events: Sequence[Event], expected: int, *, as_controller: bool = False) -> bool:
        """Store events on the disk; a thread writes them.

        Raises:
            StoreError: they are not stored. No later ones are either, unless there was no space: the state after a
                failed fsync is unknown.
        """
        if self._failed or not self._handles:
            raise StoreError(f"{self.path}: closed after an earlier failure")
        if expected != self._sequence:
            return False
        self._sequence += 1
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._append, tuple(self._handles), events)
        except OSError as error:
            self._failed, self._sequence = not isinstance(error, _Undone), expected
            raise StoreError(f"{self.path}: {error.strerror}") from error
        return True

    async def newest(self) -> int:
        """The number of the last batch."""
        return self._sequence

    async def watch(self) -> AsyncIterator[EventBatch | LoadedMetadata]:
        """Yield nothing, for ever: no other broker writes here."""
        await asyncio.Event().wait()
        yield EventBatch(0, ())

    def _append(self, handles: Sequence[int], events: Sequence[Event]) -> None:
        files, data = self._files, _lines(events)
        sizes = [files.size(handle) for handle in handles]
        for handle, end in zip(handles, sizes, strict=True):
            try:
                files.write(handle, [data], end)
            except OSError as error:
                if not is_shortage(error):
                    raise
                for written, size in zip(handles, sizes, strict=True):
                    files.truncate(written, size)
                    files.sync(written)
                raise _Undone(error.errno, error.strerror) from error
            files.sync(handle)

    async def close(self) -> None:
        """Close the journal."""
        while self._handles:
            self._files.close(self._handles.pop())


class _Undone(OSError):
    """There was no space for events, and nothing of them is left: they may be stored later."""


def _parse(path: Path, data: bytes) -> list[Event]:
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
            raise StoreError(f"{path} line {number}: checksum does not match; restore the file from a copy")
        if whole:
            events.append(event_from_json(text.decode()))
    return events


def _lines(events: Sequence[Event]) -> bytes:
    out = bytearray()
    for event in events:
        text = event_to_json(event).encode()
        out += b"%08x %s\n" % (crc32c(text), text)
    return bytes(out)
