"""One segment of a log: a ``.log`` file, its two indexes, the index of its aborted transactions, and the checksums of
these three (Kafka's ``LogSegment``).

Only the last segment of a log is written. Its indexes grow in memory, and are written to their files when the log is
flushed, rolled or closed; recovery rebuilds them beyond the recovery point. The files of the other segments are opened
and mapped when they are read. A segment without batches has only its ``.log`` file: the first append creates the
others, so that a new partition costs one file.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.files import Files, put_file, read_all
from barnabas_broker.logs import logger
from barnabas_broker.resource_errors import is_shortage
from barnabas_broker.storage import names
from barnabas_broker.storage.corruption import Damage, DamagedLog
from barnabas_broker.storage.index import (
    CHECKSUMS_SIZE,
    MOST_RELATIVE,
    OFFSET_ENTRY,
    TIME_ENTRY,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    format_checksums,
    parse_checksums,
)
from barnabas_broker.storage.scan import CHUNK, BadBatch, find_sound, scan, sizes
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.slices import FileSlice, OpenFile, Part
from barnabas_broker.storage.transaction_index import ENTRY as TRANSACTION_ENTRY
from barnabas_broker.storage.transaction_index import AbortedTransaction, TransactionIndex
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records.batches import HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, check_batch, read_header
from barnabas_protocol.wire import Buffer

log = logger("storage")

#: Bytes of one read in the search for a batch after an index entry.
_LOOK: Final = 4096
#: Batches of more bytes than this stay in the file until they are sent.
_WORTH_LEAVING: Final = 256 * 1024
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
#: Where the leader epoch is in a batch.
_EPOCH_AT: Final = 12


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
        bad: what is known to be damaged, by position.
        next_offset: the offset after the last batch that was noted.
        following: the base offset of the next segment; None for the last one.
        has_aborted: its index of aborted transactions has entries.
    """

    __slots__ = (
        "_file",
        "_flaws",
        "_index",
        "_indexed_at",
        "_saved",
        "_summed",
        "_time_index",
        "_transactions",
        "_verified",
        "_verified_next",
        "bad",
        "base_offset",
        "created_ms",
        "directory",
        "files",
        "first_timestamp",
        "following",
        "has_aborted",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
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
        self.bad: list[Damage] = []
        self.next_offset = base_offset
        self.following: int | None = None
        #: How often damage was found or mended.
        self._flaws = 0
        self._file: OpenFile | None = None
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transactions: TransactionIndex | None = None
        self.has_aborted = False
        #: The position of the last index entry's batch, or 0.
        self._indexed_at = 0
        #: The number of entries of each index in its file.
        self._saved = (0, 0, 0)
        #: As many have a checksum; None if the file of checksums is missing or not valid.
        self._summed: tuple[int, int, int] | None = None
        #: The range of the file whose CRCs this process has written or checked.
        self._verified = (0, 0)
        #: The offset after that range, if it is known.
        self._verified_next: int | None = None

    @classmethod
    def create(
        cls, files: Files, directory: Path, base_offset: int, now_ms: int, *, new_directory: bool = False
    ) -> "Segment":
        """Create an empty segment with its ``.log`` file; existing files of that name are emptied or removed. There are
        none if the directory is new."""
        segment = cls(files, directory, base_offset, now_ms)
        if not new_directory:
            for suffix in names.INDEXES:
                files.remove(segment.path(suffix))
        segment._file = OpenFile(files, files.open(segment.path(names.LOG), create=True))
        if not new_directory and files.size(segment.handle):
            files.truncate(segment.handle, 0)
        segment._index, segment._time_index = OffsetIndex(base_offset), TimeIndex(base_offset)
        return segment

    def path(self, suffix: str) -> Path:
        """The path of one of its files."""
        return names.offset_path(self.directory, self.base_offset, suffix)

    # Opening and closing

    @property
    def handle(self) -> int:
        """The handle of the ``.log`` file, which is opened if necessary."""
        file = self._file
        return (self.open() if file is None else file).handle

    def open(self) -> OpenFile:
        """The ``.log`` file, which is opened if necessary."""
        if self._file is None:
            self._file = OpenFile(self.files, self.files.open(self.path(names.LOG)))
        return self._file

    def load(self) -> None:
        """Load the size and the largest timestamp of a closed segment.

        Raises:
            CorruptIndex: its indexes must be rebuilt.
        """
        self.size = self.files.size(self.handle)
        if not self.size and not self.files.exists(self.path(names.CHECKSUMS)):
            self._index, self._time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
            return  # nothing was ever appended
        self.has_aborted = self.files.exists(self.path(names.TXN_INDEX))
        self._verify_indexes()
        last_offset, last_position = self.index.last()
        if last_position >= self.size > 0 or last_offset < self.base_offset:
            raise CorruptIndex(f"entry at position {last_position} of {self.size} bytes")
        last = self.time_index.last()
        if last.offset < self.base_offset:
            raise CorruptIndex(f"time index entry of offset {last.offset}")
        self.max_timestamp, self.max_timestamp_offset = last
        self._indexed_at = last_position
        self._saved = (self.index.count, self.time_index.count, self.transactions.count)
        if self.size >= HEADER_SIZE:
            first = HEADER.unpack(self.files.read(self.handle, HEADER_SIZE, 0))
            if first[3] == 2:
                self.first_timestamp = first[8]

    def _verify_indexes(self) -> None:
        try:
            index, time_index, transactions = parse_checksums(read_all(self.files, self.path(names.CHECKSUMS)))
        except FileNotFoundError:
            return  # of Apache Kafka, or of an earlier version
        self.index.verify(index)
        self.time_index.verify(time_index)
        self.transactions.verify(transactions)
        self.has_aborted = self.transactions.count > 0
        self._summed = (index.entries, time_index.entries, transactions.entries)

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

    @property
    def transactions(self) -> TransactionIndex:
        """The aborted transactions whose markers it has."""
        if self._transactions is None:
            # Not mapped: a search may go on while the file is truncated.
            content = read_all(self.files, self.path(names.TXN_INDEX)) if self.has_aborted else b""
            self._transactions = TransactionIndex(self.base_offset, content)
        return self._transactions

    def _map(self, suffix: str) -> memoryview:
        try:
            handle = self.files.open(self.path(suffix))
        except FileNotFoundError:
            raise CorruptIndex(f"{self.path(suffix).name} is missing") from None
        try:
            return self.files.view(handle)
        finally:
            self.files.close(handle)

    def release(self) -> None:
        """Close its file until it is used again. The indexes of an active segment stay: they are not in their files."""
        if self.following is None:
            self._file = None
        else:
            self.close()

    def close(self) -> None:
        """Close handles and unmap files. Nothing is written."""
        self._file = self._index = self._time_index = self._transactions = None

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
        try:
            if self._summed is None and not position:
                self._create_indexes()
            self.files.write(self.handle, buffers, position)
        except OSError as error:
            # What was written of it, to a disk that is full, must not be found behind a shorter batch.
            if is_shortage(error) and self._file is not None:
                self.files.truncate(self.handle, position)
            raise
        self.size = position + size
        if self._verified[1] == position:
            self._verified, self._verified_next = (self._verified[0], self.size), None
        return position

    def note(self, position: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Index a batch that is in the file.

        Args:
            position: of the batch.
            last_offset: its last offset.
            max_timestamp: its largest timestamp.
            interval: the least number of bytes between two entries.
        """
        self.next_offset = last_offset + 1
        if not position:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if position - self._indexed_at > interval:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._indexed_at = position

    def aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction, whose marker is in the file."""
        self.transactions.append(transaction)
        self.has_aborted = True

    def seal(self) -> None:
        """Close the segment for appends: add the largest timestamp to the time index, and write all indexes."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.save_indexes()
        # From now on they are read from their files.
        self._index = self._time_index = self._transactions = None

    def save_indexes(self) -> None:
        """Write index entries that are not in the files yet."""
        if self._summed is None and not self.size:
            self._create_indexes()
        index, time_index, transactions = self.index, self.time_index, self.transactions
        now = (index.count, time_index.count, transactions.count)
        if now == self._saved == self._summed:
            return
        for suffix, entry_size, saved, content in (
            (names.INDEX, OFFSET_ENTRY.size, self._saved[0], index.content(self._saved[0])),
            (names.TIME_INDEX, TIME_ENTRY.size, self._saved[1], time_index.content(self._saved[1])),
            (names.TXN_INDEX, TRANSACTION_ENTRY.size, self._saved[2], transactions.content(self._saved[2])),
        ):
            if content:
                self._write(suffix, content, saved * entry_size)
        self._saved = now
        self._write_checksums()

    def _write_checksums(self) -> None:
        """Write the checksums of the entries that are in the files, in one step that a kill does not interrupt."""
        index, time_index, transactions = self._saved
        content = format_checksums(
            [
                (index, self.index.content()[: index * OFFSET_ENTRY.size]),
                (time_index, self.time_index.content()[: time_index * TIME_ENTRY.size]),
                (transactions, self.transactions.content()[: transactions * TRANSACTION_ENTRY.size]),
            ]
        )
        self._put_checksums(content)
        self._summed = self._saved

    def _put_checksums(self, content: bytes) -> None:
        handle = self.files.open(self.path(names.CHECKSUMS), create=True)
        try:
            self.files.write(handle, [content], 0)
        finally:
            self.files.close(handle)

    def _write(self, suffix: str, content: bytes, position: int) -> None:
        handle = self.files.open(self.path(suffix), create=True)
        try:
            self.files.truncate(handle, position)
            if content:
                self.files.write(handle, [content], position)
        finally:
            self.files.close(handle)

    def _create_indexes(self) -> None:
        """Create the files of the indexes. From now on they tell of a ``.log`` file that is lost."""
        self._rewrite_indexes()
        self._write_checksums()

    def _rewrite_indexes(self) -> None:
        self._write(names.INDEX, self.index.content(), 0)
        self._write(names.TIME_INDEX, self.time_index.content(), 0)
        self._saved = (self.index.count, self.time_index.count, self._saved[2])

    def reset_indexes(self) -> None:
        """Empty the indexes; :meth:`note` must be called again for all batches."""
        # Until they are complete they are not valid, whenever the process is killed.
        self._put_checksums(bytes(CHECKSUMS_SIZE))
        self._summed = None
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
        self._cut_transactions(next_offset)
        self._write_checksums()
        self.files.truncate(self.handle, position)
        self.size = position
        self._indexed_at = self.index.last()[1]
        self._verified = (min(self._verified[0], position), min(self._verified[1], position))
        self._verified_next = None
        self.bad = [bad for bad in self.bad if bad.position < position]
        self.next_offset = next_offset
        # Batches after the last entry of the time index may have larger timestamps.
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        start = self.position_before(self.max_timestamp_offset)
        for _, header, _ in self.walk(start, verify=False):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if not position:
            self.first_timestamp = -1

    def _cut_transactions(self, offset: int) -> None:
        """Remove the aborted transactions whose markers are at `offset` or later, from the file, too. In place: at no
        time may the file lack an entry that stays."""
        transactions = self.transactions
        if transactions.last_offset < offset:
            return
        transactions.truncate(offset)
        saved = min(self._saved[2], transactions.count)
        if saved < self._saved[2]:
            self._write(names.TXN_INDEX, b"", saved * TRANSACTION_ENTRY.size)
        self.has_aborted = self._saved[2] > 0 or transactions.count > 0
        self._saved = (*self._saved[:2], saved)
        if self._summed is not None and self._summed[2] > saved:
            self._write_checksums()

    def replace_transactions(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Replace the index of aborted transactions, and its file, in one step."""
        index = self._transactions = TransactionIndex(self.base_offset)
        for transaction in transactions:
            index.append(transaction)
        self.has_aborted = self.has_aborted or index.count > 0
        if self.has_aborted:
            put_file(self.files, self.path(names.TXN_INDEX), index.content())
        self._saved = (*self._saved[:2], index.count)
        if self._summed is not None:
            self._write_checksums()

    def resume(self, offset: int) -> int:
        """Keep the index entries up to `offset`, and remove the others.

        Returns:
            The position of the last indexed batch, from which on :meth:`note` must be called again.
        """
        index, time_index = self.index, self.time_index
        position = self.position_before(offset)
        index.truncate(position + 1)
        last_offset, self._indexed_at = index.last()
        time_index.truncate(last_offset + 1 if position else self.base_offset)
        self.max_timestamp, self.max_timestamp_offset = time_index.last()
        self._saved = (min(self._saved[0], index.count), min(self._saved[1], time_index.count), self._saved[2])
        self._cut_transactions(offset)
        return position

    def walk(
        self, start: int, *, verify: bool, end: int | None = None, expected: int | None = None
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield its sound batches from position `start` on, each with its position; damage is noted and skipped.

        Args:
            start: the position of a batch.
            verify: whether to check CRC and structure. If not, the third value is only the batch's header.
            end: where to stop: batches that begin there or later are left out; by default the end of the file.
            expected: the base offset of the first batch, if it is known.
        """
        end, exact = self.size if end is None else end, True
        if expected is None:
            # Where an index entry proves the base offset of a batch, so that the later ones follow from it.
            position, offset = self._base_before(start)
        else:
            position, offset = start, expected
        while position < end:
            bad = self._bad_at(position)
            if bad is not None:
                position, offset, exact = bad.end, max(offset, bad.offset), False
                continue
            stop = min((bad.position for bad in self.bad if bad.position > position), default=self.size)
            try:
                for at, header, batch in scan(
                    self.files,
                    self.handle,
                    start=position,
                    end=stop,
                    offset=offset,
                    verify=verify,
                    limit=self._limit,
                    following=self.following,
                    exact=exact,
                    file_end=self.size,
                    chunk_size=min(max(end - position, _LOOK), CHUNK),
                ):
                    if at >= end:
                        return
                    if at >= start:
                        yield at, header, batch
                    position, offset, exact = at + header.size, header.next_offset, True
            except BadBatch as error:
                known, flaws = set(self.bad), self._flaws
                if not verify:
                    # A wrong length, which only a CRC shows, may have led here.
                    for at, _, _ in self.walk(start, verify=True):
                        if at > error.position:
                            break
                if flaws == self._flaws:
                    self._mend_or_mark(error)
                first = next((bad for bad in self.bad if bad not in known), None)
                if first is not None:
                    position, offset = first.position, first.offset

    @property
    def _limit(self) -> int:
        """All its offsets are before this one."""
        most = self.base_offset + MOST_RELATIVE + 1
        return most if self.following is None else min(self.following, most)

    def _bad_at(self, position: int) -> Damage | None:
        """The known damage at a position."""
        return next((bad for bad in self.bad if bad.position <= position < bad.end), None)

    def damage_at(self, offset: int) -> Damage | None:
        """The known damage that affects an offset."""
        return next((bad for bad in self.bad if bad.offset <= offset < bad.next_offset), None)

    def _mend_or_mark(self, error: BadBatch) -> None:
        """Restore a base offset that its neighbours prove, or note the damage up to the next sound batch."""
        self._flaws += 1
        if error.misplaced and error.size is not None:
            batch = self.files.read(self.handle, error.size, error.position)
            try:
                check_batch(read_header(batch), batch)
            except DecodeError:
                pass
            else:
                self.files.write(self.handle, [_INT64.pack(error.offset)], error.position)
                log.warning(
                    "base offset of a batch was damaged and is restored",
                    file=str(self.path(names.LOG)),
                    position=error.position,
                    offset=error.offset,
                    reason=error.reason,
                )
                return
        later = next((bad for bad in self.bad if bad.position > error.position), None)
        stop = self.size if later is None else later.position
        found = find_sound(self.files, self.handle, error, end=stop, low=error.offset, limit=self._limit)
        if found is not None:
            end, next_offset = found[0], found[1].base_offset
        else:
            end, next_offset = stop, self.next_offset if self.following is None else self.following
            if later is not None:
                next_offset = later.offset
        damage = Damage(
            error.position,
            end - error.position,
            error.offset,
            max(next_offset, error.offset),
            self.path(names.LOG),
            error.reason,
        )
        self.bad.append(damage)
        self.bad.sort()
        # The incomplete batch that an interrupted append leaves is reported when recovery cuts it off.
        report = log.debug if error.size is None and end == self.size and self.following is None else log.error
        report(
            "log is damaged",
            file=str(damage.file),
            position=damage.position,
            size=damage.size,
            offset=damage.offset,
            next_offset=damage.next_offset,
            reason=damage.reason,
        )

    def restore_epoch(self, position: int, offset: int, leader_epoch: int) -> None:
        """Replace the leader epoch of the batch at `position`, which is damaged: the batches beside it prove that."""
        self.files.write(self.handle, [_INT32.pack(leader_epoch)], position + _EPOCH_AT)
        log.warning(
            "leader epoch of a batch was damaged and is restored",
            file=str(self.path(names.LOG)),
            position=position,
            offset=offset,
            leader_epoch=leader_epoch,
        )

    def _verify(self, start: int, end: int) -> bool:
        """Check the batches from `start`, a batch's position, to at least `end`; whether damage was found."""
        low, high = self._verified
        expected = None
        if low <= start <= high:
            if end <= high:
                return False
            if self._verified_next is not None:
                start, expected = high, self._verified_next
        flaws, begin, done, next_offset = self._flaws, start, start, expected
        for at, header, _ in self.walk(start, verify=True, end=end, expected=expected):
            if at != done:
                begin = at
            done, next_offset = at + header.size, header.next_offset
        self.trust(begin, done, next_offset)
        return self._flaws != flaws

    def trust(self, start: int, end: int, next_offset: int | None) -> None:
        """The batches from `start` to `end` are known to be sound; the last one ends before `next_offset`, if known."""
        low, high = self._verified
        if start <= high and end >= low:
            self._verified = (min(low, start), max(high, end))
            if end >= high:
                self._verified_next = next_offset
        elif end - start > high - low:
            self._verified, self._verified_next = (start, end), next_offset

    # Reading

    def position_before(self, offset: int) -> int:
        """The position of a batch from which to search for the one that holds `offset`; never after it."""
        return self._look_before(offset, self.size)[0]

    def _look_before(self, offset: int, end: int) -> tuple[int, bytes]:
        """As :meth:`position_before`, with the bytes there, at most up to `end`.

        An index entry that does not match its batch is not used, as if the index were empty: either is damaged.
        """
        files, handle = self.files, self.handle
        last, position = self.index.before(offset)
        if 0 < position <= end - HEADER_SIZE:
            chunk = files.read(handle, min(_LOOK, end - position), position)
            if _ends_at(last, chunk, 0):
                return position, chunk
        return 0, files.read(handle, min(_LOOK, end), 0)

    def _base_before(self, position: int) -> tuple[int, int]:
        """The position of a batch up to `position`, and its base offset, which an index entry proves."""
        last, boundary = self.index.before_position(position)
        if 0 < boundary <= position:
            header = self.files.read(self.handle, HEADER_SIZE, boundary)
            if _ends_at(last, header, 0):
                return boundary, HEADER.unpack(header)[0]
        return 0, self.base_offset

    def locate(self, offset: int, end: int) -> tuple[int, BatchHeader] | None:
        """The first batch before position `end` that ends at `offset` or later, with its position, or None.

        Raises:
            KafkaError: CORRUPT_MESSAGE, the batch is damaged.
        """
        start, chunk = self._look_before(offset, end)
        position, stop = start, end
        while position + HEADER_SIZE <= end:
            if self.bad:
                bad = self._bad_at(position)
                if bad is not None:
                    if offset < bad.next_offset:
                        raise DamagedLog(bad)
                    position, chunk = bad.end, b""
                    continue
                stop = min((bad.position for bad in self.bad if bad.position > position), default=end)
                chunk = chunk[: stop - position]
            if not chunk:
                chunk = self.files.read(self.handle, min(_LOOK, stop - position), position)
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                fields = HEADER.unpack_from(chunk, at)
                size = fields[1] + LENGTH_END
                here = position + at
                if size < HEADER_SIZE or fields[3] != 2 or here + size > end:
                    for sound, _, _ in self.walk(start, verify=True):
                        if sound > here:
                            break
                    if self._bad_at(here) is None:
                        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path(names.LOG)} has no batch at {here}")
                    return self.locate(offset, end)
                if fields[0] + fields[6] >= offset:
                    if self._verify(start, here + size):
                        return self.locate(offset, end)
                    return here, BatchHeader(fields[0], size, *fields[2:])
                at += size
            if not at:
                if position + len(chunk) < stop:
                    raise self._cut_off(position)
                break
            position, chunk = position + at, b""
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
        for bad in self.bad:
            if bad.position <= position < bad.end:
                raise DamagedLog(bad)
            if position < bad.position < end:
                end = bad.position
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
            return FileSlice(self.open(), position, size)
        view = memoryview(self.files.read(self.handle, want, position))
        if len(view) < want:
            raise self._cut_off(position + len(view))
        if position + want != end and want != first_size:
            last, boundary = self.index.before_position(position + want - HEADER_SIZE)
            known = boundary - position
            want = sizes(view, known if known > 0 and _ends_at(last, view, known) else 0, want)
            if not want and min_one:
                return self.read(position, self._first_size(view, position), end, max_bytes, min_one=True)
            view = view[:want]
        if self._verify(position, position + want):
            return self.read(position, first_size, end, max_bytes, min_one=min_one)
        return view

    def _verified_size(self, position: int, want: int, end: int) -> int:
        """The size of the whole batches among `want` bytes from `position` on; 0 if they must be read to find out."""
        low, high = self._verified
        if position < low or position + want > high or self.files.size(self.handle) < position + want:
            return 0
        if position + want == end:
            return want
        last, boundary = self.index.before_position(position + want - HEADER_SIZE)
        if boundary <= position:
            return 0
        rest = memoryview(self.files.read(self.handle, position + want - boundary, boundary))
        return boundary - position + sizes(rest, 0, len(rest)) if _ends_at(last, rest, 0) else 0

    def _first_size(self, view: Buffer, position: int) -> int:
        """The size of the batch at `position`, whose header is in `view`."""
        try:
            size = read_header(view).size
        except DecodeError as error:
            raise self._cut_off(position) from error
        if position + size > self.size:
            raise self._cut_off(position)
        return size

    def _cut_off(self, position: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{self.path(names.LOG)} has no whole batch at position {position}"
        )


def _ends_at(last_offset: int, data: Buffer, at: int) -> bool:
    """Whether the batch that begins at `at` in `data` has this last offset."""
    if len(data) < at + HEADER_SIZE:
        return False
    fields = HEADER.unpack_from(data, at)
    return bool(fields[3] == 2 and fields[0] + fields[6] == last_offset)
