"""Replays a partition of a coordinator's topic. Pure: batches in, records out, a little at a time.

A record that cannot be read is reported with its offset and skipped; earlier records stay in effect.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final

from barnabas_protocol.coordinator_records import CorruptRecord
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import BatchHeader, Record, check_crc, iter_records, read_header
from barnabas_protocol.wire import Buffer

#: Records that are replayed before other tasks may run.
STEP: Final = 2_000
#: Maximum bytes of a batch's decompressed records: they are decompressed on the event loop. Brokers write less than a
#: megabyte; what changes the protocol of a large group is up to eight, compressed to one. Clients cannot write.
MOST_DECOMPRESSED: Final = 16 * 1024 * 1024

Report = Callable[[int, str], None]


class PartitionReplay(ABC):
    """Finds the batches and passes their records to :meth:`apply`, which each coordinator implements.

    Attributes:
        records: number of records replayed, markers not included.
        next_offset: where to continue to read.

    Args:
        report: called with the offset of each record that cannot be read, and the reason.
        start: the log start offset.
    """

    def __init__(self, report: Report, start: int) -> None:
        self.records = 0
        #: Records since the last turn of other tasks.
        self._since = 0
        self.next_offset = start
        self._report = report

    @abstractmethod
    def apply(self, header: BatchHeader, record: Record) -> None:
        """Replay one record of a batch.

        Raises:
            CorruptRecord: it cannot be read.
        """

    def feed(self, data: Buffer) -> Iterator[None]:
        """Replay the batches in `data`; yields now and then, so that other tasks can run."""
        view = memoryview(data)
        at = 0
        while at < len(view):
            try:
                header = read_header(view, at)
                batch = view[at : at + header.size]
                check_crc(batch)
                if header.size > len(view) - at:
                    raise DecodeError(f"batch of {header.size} bytes, {len(view) - at} left")
                if header.next_offset > self.next_offset:
                    yield from self._batch(header, batch)
            except DecodeError as error:
                self._report(self.next_offset, str(error))
                found = self._resume(view, at + 1)
                if found is None:
                    self.next_offset = self._beyond(view, at)
                    return
                at = found
                continue
            at += header.size
            self.next_offset = max(self.next_offset, header.next_offset)

    def _resume(self, view: memoryview, at: int) -> int | None:
        """Where the next complete batch starts that has not been replayed; None if there is none."""
        while at < len(view):
            try:
                header = read_header(view, at)
                if self.next_offset <= header.base_offset and header.size <= len(view) - at:
                    check_crc(view[at : at + header.size])
                    return at
            except DecodeError:
                pass
            at += 1
        return None

    def _beyond(self, view: memoryview, at: int) -> int:
        """Where to continue after a corrupt batch without a complete one after it: behind it, if that is plausible."""
        try:
            header = read_header(view, at)
        except DecodeError:
            return self.next_offset + 1
        plausible = header.base_offset >= self.next_offset and 0 <= header.last_offset_delta < header.size
        return header.next_offset if plausible else self.next_offset + 1

    def _batch(self, header: BatchHeader, batch: memoryview) -> Iterator[None]:
        for records in iter_records(batch, max_bytes=MOST_DECOMPRESSED, chunk=STEP):
            for record in records:
                try:
                    self.apply(header, record)
                except CorruptRecord as error:
                    self._report(record.offset, str(error))
                self.records += not header.is_control
            self._since += len(records)
            if self._since >= STEP:
                self._since = 0
                yield
