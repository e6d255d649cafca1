"""One segment of a log: a ``.log`` file and its two indexes (Kafka's ``LogSegment``).

Only the last segment of a log is written. Its indexes grow in memory, and are written to their files when the log is
flushed, rolled or closed; recovery rebuilds them beyond the recovery point. The files of the other segments are opened
and mapped when they are read.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.files import Files
from barnabas_broker.storage.index import MOST_RELATIVE, OFFSET_ENTRY, TIME_ENTRY, CorruptIndex, OffsetIndex, TimeIndex
from barnabas_broker.storage.scan import scan, sizes
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.slices import FileSlice, OpenFile, Part
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records.batches import HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, check_batch, read_header
from barnabas_protocol.wire import Buffer

log = logger("storage")

#: Bytes of one read in the search for a batch after an index entry.
_LOOK: Final = 4096
#: Batches of more bytes than this stay in the file until they are sent.
_WORTH_LEAVING: Final = 256 * 1024


class Segment:
    """A segment whose ``.log`` file exists.

    Args:
        files: the file system.
        directory: of the partition.
        base_offset: the offset of its first record, which names its files.
        now_ms: the time of day, from which its age counts if no batch has a timestamp.

    Attributes:
        size: of the ``.log`` file, in bytes.
        max_timestamp: its largest timestamp, in ms; `max_timestamp_offset` is the last offset of that batch.
        first_timestamp: the largest timestamp of its first batch, from which ``segment.ms`` counts; -1 if unknown.
        bad: known corrupt batches, as (position, size, offset).
    """

    __slots__ = (
        "_file",
        "_index",
        "_indexed_at",
        "_saved",
        "_time_index",
        "_verified",
        "bad",
        "base_offset",
        "created_ms",
        "directory",
        "files",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
    )

    def __init__(self, files: Files, directory: Path, base_offset: int, now_ms: int) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.size = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1
        self.bad: list[tuple[int, int, int]] = []
        self._file: OpenFile | None = None
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        #: The position of the last index entry's batch, or 0.
        self._indexed_at = 0
        #: The number of entries of each index in its file.
        self._saved = (0, 0)
        #: The range of the file whose CRCs this process has written or checked.
        self._verified = (0, 0)

    @classmethod
    def create(cls, files: Files, directory: Path, base_offset: int, now_ms: int) -> "Segment":
        """Create an empty segment with its files; existing files of that name are overwritten."""
        segment = cls(files, directory, base_offset, now_ms)
        segment._file = OpenFile(files, files.open(segment.path(names.LOG), create=True))
        files.truncate(segment.handle, 0)
        segment._index, segment._time_index = OffsetIndex(base_offset), TimeIndex(base_offset)
        segment._rewrite_indexes()
        return segment

    def path(self, suffix: str) -> Path:
        """The path of one of its files."""
        return names.offset_path(self.directory, self.base_offset, suffix)

    # Opening and closing

    @property
    def handle(self) -> int:
        """The handle of the ``.log`` file, which is opened if necessary."""
        return self._open().handle

    def _open(self) -> OpenFile:
        if self._file is None:
            self._file = OpenFile(self.files, self.files.open(self.path(names.LOG)))
        return self._file

    def load(self) -> None:
        """Load the size and the largest timestamp of a closed segment.

        Raises:
            CorruptIndex: its indexes must be rebuilt.
        """
        self.size = self.files.size(self.handle)
        last_offset, last_position = self.index.last()
        if last_position >= self.size > 0 or last_offset < self.base_offset:
            raise CorruptIndex(f"entry at position {last_position} of {self.size} bytes")
        last = self.time_index.last()
        if last.offset < self.base_offset:
            raise CorruptIndex(f"time index entry of offset {last.offset}")
        self.max_timestamp, self.max_timestamp_offset = last
        self._indexed_at = last_position
        self._saved = (self.index.count, self.time_index.count)
        if self.size >= HEADER_SIZE:
            first = HEADER.unpack(self.files.read(self.handle, HEADER_SIZE, 0))
            if first[3] == 2:
                self.first_timestamp = first[8]

    @property
    def index(self) -> OffsetIndex:
        """The offset index; CorruptIndex if its file is missing or not valid."""
        if self._index is None:
            self._index = OffsetIndex(self.base_offset, self._map(names.INDEX))
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        """The time index; CorruptIndex if its file is missing or not valid."""
        if self._time_index is None:
            self._time_index = TimeIndex(self.base_offset, self._map(names.TIME_INDEX))
        return self._time_index

    def _map(self, suffix: str) -> memoryview:
        try:
            handle = self.files.open(self.path(suffix))
        except FileNotFoundError:
            raise CorruptIndex(f"{self.path(suffix).name} is missing") from None
        try:
            return self.files.view(handle)
        finally:
            self.files.close(handle)

    def close(self) -> None:
        """Close handles and unmap files. Nothing is written."""
        self._file = self._index = self._time_index = None

    def rename(self, suffix: str) -> list[Path]:
        """Add `suffix` to the names of all its files; their new paths."""
        renamed = []
        for kind in names.SEGMENT_FILES:
            path = self.path(kind)
            if self.files.exists(path):
                target = path.with_name(path.name + suffix)
                self.files.rename(path, target)
                renamed.append(target)
        return renamed

    # Writing

    def is_full(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, settings: LogSettings) -> bool:
        """Whether an append needs a new segment.

        Args:
            size: of the append, in bytes.
            last_offset: its last offset.
            max_timestamp: its largest timestamp.
            now_ms: the time of day.
            settings: of the topic.
        """
        if not self.size:
            return last_offset - self.base_offset > MOST_RELATIVE
        if self.size + size > settings.segment_bytes or last_offset - self.base_offset > MOST_RELATIVE:
            return True
        waited = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        return (
            waited > settings.segment_ms
            or self.index.count >= settings.index_max_bytes // OFFSET_ENTRY.size
            or self.time_index.count >= settings.index_max_bytes // TIME_ENTRY.size - 1
        )

    def append(self, buffers: Sequence[Buffer], size: int) -> int:
        """Write batches at the end, and return their position. Call :meth:`note` for each of them."""
        position = self.size
        self.files.write(self.handle, buffers, position)
        self.size = position + size
        if self._verified[1] == position:
            self._verified = (self._verified[0], self.size)
        return position

    def note(self, position: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Index a batch that is in the file.

        Args:
            position: of the batch.
            last_offset: its last offset.
            max_timestamp: its largest timestamp.
            interval: the least number of bytes between two entries.
        """
        if not position:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if position - self._indexed_at > interval:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._indexed_at = position

    def seal(self) -> None:
        """Close the segment for appends: add the largest timestamp to the time index, and write both indexes."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.save_indexes()
        # From now on they are read from their files.
        self._index = self._time_index = None

    def save_indexes(self) -> None:
        """Write index entries that are not in the files yet."""
        index, time_index = self.index, self.time_index
        now = (index.count, time_index.count)
        if now == self._saved:
            return
        for suffix, entry_size, saved, content in (
            (names.INDEX, OFFSET_ENTRY.size, self._saved[0], index.content(self._saved[0])),
            (names.TIME_INDEX, TIME_ENTRY.size, self._saved[1], time_index.content(self._saved[1])),
        ):
            if content:
                self._write(suffix, content, saved * entry_size)
        self._saved = now

    def _write(self, suffix: str, content: bytes, position: int) -> None:
        handle = self.files.open(self.path(suffix), create=True)
        try:
            self.files.truncate(handle, position)
            if content:
                self.files.write(handle, [content], position)
        finally:
            self.files.close(handle)

    def _rewrite_indexes(self) -> None:
        self._write(names.INDEX, self.index.content(), 0)
        self._write(names.TIME_INDEX, self.time_index.content(), 0)
        self._saved = (self.index.count, self.time_index.count)

    def reset_indexes(self) -> None:
        """Empty the indexes; :meth:`note` must be called again for all batches."""
        self._index, self._time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        self._indexed_at = 0
        self._rewrite_indexes()
        self.max_timestamp, self.max_timestamp_offset, self.first_timestamp = -1, self.base_offset, -1

    def truncate(self, position: int, next_offset: int) -> None:
        """Truncate the file at `position`, where the batch with `next_offset` begins."""
        self.index.truncate(position)
        # This copies the index: a map must not outlive the truncation of its file.
        self.time_index.truncate(next_offset)
        self._rewrite_indexes()
        self.files.truncate(self.handle, position)
        self.size = position
        self._indexed_at = self.index.last()[1]
        self._verified = (min(self._verified[0], position), min(self._verified[1], position))
        self.bad = [bad for bad in self.bad if bad[0] < position]
        # Batches after the last entry of the time index may have larger timestamps.
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        start = self.index.position_before(self.max_timestamp_offset)
        for _, header, _ in self.walk(start, verify=False):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if not position:
            self.first_timestamp = -1

    def resume(self, offset: int) -> int:
        """Keep the index entries up to `offset`, and remove the others.

        Returns:
            The position of the last indexed batch, from which on :meth:`note` must be called again.
        """
        index, time_index = self.index, self.time_index
        position = index.position_before(offset)
        index.truncate(position + 1)
        last_offset, self._indexed_at = index.last()
        time_index.truncate(last_offset + 1 if position else self.base_offset)
        self.max_timestamp, self.max_timestamp_offset = time_index.last()
        self._saved = (min(self._saved[0], index.count), min(self._saved[1], time_index.count))
        return position

    def walk(
        self, start: int, *, verify: bool, offset: int | None = None
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield its batches from position `start` on; see :func:`~barnabas_broker.storage.scan.scan`."""
        least = self.base_offset if offset is None else offset
        return scan(self.files, self.handle, start=start, end=self.size, offset=least, verify=verify)

    def trust(self, start: int, end: int) -> None:
        """The CRCs from `start` to `end` are known to be valid."""
        low, high = self._verified
        if start <= high and end >= low:
            self._verified = (min(low, start), max(high, end))
        elif end - start > high - low:
            self._verified = (start, end)

    # Reading

    def locate(self, offset: int, end: int) -> tuple[int, BatchHeader] | None:
        """The first batch before position `end` that ends at `offset` or later, with its position, or None.

        Raises:
            KafkaError: CORRUPT_MESSAGE.
        """
        position = self.index.position_before(offset)
        files, handle = self.files, self.handle
        while position + HEADER_SIZE <= end:
            chunk = files.read(handle, min(_LOOK, end - position), position)
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                fields = HEADER.unpack_from(chunk, at)
                size = fields[1] + LENGTH_END
                if size < HEADER_SIZE or fields[3] != 2 or position + at + size > end:
                    raise self._corrupt(position + at, offset)
                if fields[0] + fields[6] >= offset:
                    return position + at, BatchHeader(fields[0], size, *fields[2:])
                at += size
            position += at
        return None

    def read(self, position: int, first_size: int, end: int, max_bytes: int, *, min_one: bool) -> Part:
        """Read whole batches from `position` on; a large part stays in the file.

        Args:
            position: of the first batch.
            first_size: its size, or 0 if unknown.
            end: where to stop, at the end of a batch.
            max_bytes: the most to read.
            min_one: read the first batch even if it is larger than that.

        Raises:
            KafkaError: CORRUPT_MESSAGE.
        """
        for bad_position, bad_size, bad_offset in self.bad:
            if bad_position <= position < bad_position + bad_size:
                raise self._corrupt(bad_position, bad_offset)
            if position < bad_position < end:
                end = bad_position
        if end <= position:
            return memoryview(b"")
        want = end - position
        if want > max_bytes:
            if max_bytes < first_size or max_bytes < HEADER_SIZE:
                if not min_one:
                    return memoryview(b"")
                want = first_size or self._first_size(self.files.read(self.handle, HEADER_SIZE, position), position)
            else:
                want = max_bytes
        if want > _WORTH_LEAVING and (size := self._verified_size(position, want, end)):
            return FileSlice(self._open(), position, size)
        view = memoryview(self.files.read(self.handle, want, position))
        if len(view) < want:
            raise self._corrupt(position + len(view), self.base_offset)
        if position + want != end and want != first_size:
            boundary = self.index.boundary_before(position + want)
            want = sizes(view, max(boundary - position, 0), want)
            if not want and min_one:
                return self.read(position, self._first_size(view, position), end, max_bytes, min_one=True)
            view = view[:want]
        low, high = self._verified
        if position < low or position + want > high:
            view = self._verify(view, position)
        return view

    def _verified_size(self, position: int, want: int, end: int) -> int:
        """The size of the whole batches among `want` bytes from `position` on; 0 if they must be read to find out."""
        low, high = self._verified
        if position < low or position + want > high or self.files.size(self.handle) < position + want:
            return 0
        if position + want == end:
            return want
        boundary = self.index.boundary_before(position + want)
        if boundary <= position:
            return 0
        left = position + want - boundary
        return boundary - position + sizes(memoryview(self.files.read(self.handle, left, boundary)), 0, left)

    def _verify(self, view: memoryview, position: int) -> memoryview:
        """Check batches that this process has not checked yet; those before the first corrupt one.

        Raises:
            KafkaError: CORRUPT_MESSAGE, the first one is corrupt.
        """
        at = 0
        try:
            while at < len(view):
                header = read_header(view, at)
                check_batch(header, view[at : at + header.size], allow_empty=True, allow_gaps=True)
                at += header.size
        except DecodeError as error:
            size, offset = self._frame(view, at)
            self.mark_bad(position + at, size, offset, str(error))
            if not at:
                raise self._corrupt(position, offset) from error
        self.trust(position, position + at)
        return view[:at]

    def _frame(self, view: memoryview, at: int) -> tuple[int, int]:
        """The size and offset of a corrupt batch; everything after it if its header is not readable."""
        try:
            header = read_header(view, at)
        except DecodeError:
            return self.size - at, self.base_offset
        return header.size, header.base_offset

    def mark_bad(self, position: int, size: int, offset: int, reason: str) -> None:
        """Log a corrupt batch; from now on reads of it answer CORRUPT_MESSAGE."""
        if all(bad[0] != position for bad in self.bad):
            self.bad.append((position, size, offset))
            self.bad.sort()
            log.error(
                "corrupt batch",
                file=str(self.path(names.LOG)),
                position=position,
                size=size,
                offset=offset,
                reason=reason,
            )

    def _first_size(self, view: Buffer, position: int) -> int:
        try:
            size = read_header(view).size
        except DecodeError as error:
            raise self._corrupt(position, self.base_offset) from error
        if position + size > self.size:
            raise self._corrupt(position, self.base_offset)
        return size

    def _corrupt(self, position: int, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{self.path(names.LOG)} has no valid batch at position {position} (offset {offset} or later)",
        )
