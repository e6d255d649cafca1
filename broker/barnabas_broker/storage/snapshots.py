"""A partition's producer state on the disk: ``.snapshot`` files, and replay of the log after the newest one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.files import Files, read_all
from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.producer_state import CompletedTransaction, CorruptSnapshot, Producers
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.transaction_index import AbortedTransaction
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import ControlType, control_record_type, decode_records
from barnabas_protocol.records.batches import CONTROL, BatchHeader
from barnabas_protocol.wire import Buffer

log = logger("storage")

#: Maximum bytes of the records of a control batch; there is one, of a few bytes.
_MOST_CONTROL: Final = 64 * 1024
#: Entries of the index before a snapshot from which on the batches of its producers are looked up. With the default of
#: `log.index.interval.bytes` these are 128 KB of small batches, or as many batches of more than 4 KB.
_RECALLED: Final = 32


def snapshot_offsets(files: Files, path: Path) -> list[int]:
    """The offsets at which the producer snapshots of a partition were taken, in order."""
    found = (names.parse_offset_name(name) for name in files.names(path))
    return sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == names.SNAPSHOT)


def write_snapshot(files: Files, path: Path, producers: Producers, offset: int) -> Path:
    """Write the producer state as of `offset` without syncing it (it carries a CRC); the file's path.

    Raises:
        OSError: the disk does not do it.
    """
    target = names.offset_path(path, offset, names.SNAPSHOT)
    handle = files.open(target, create=True)
    try:
        files.truncate(handle, 0)
        files.write(handle, [producers.snapshot()], 0)
    finally:
        files.close(handle)
    return target


def load_snapshot(files: Files, path: Path, producers: Producers, start: int, end: int) -> None:
    """Load the newest producer snapshot that was taken at or before an offset; remove corrupt ones.

    Args:
        files: the file system.
        path: the partition's directory.
        producers: gets the content of the snapshot; empty if there is none.
        start: the log start offset, where replay begins if there is no snapshot.
        end: the log end offset, or the offset up to which the log is trusted.
    """
    for offset in reversed(snapshot_offsets(files, path)):
        if offset <= end:
            file = names.offset_path(path, offset, names.SNAPSHOT)
            try:
                producers.load(read_all(files, file), offset)
            except CorruptSnapshot as error:
                log.warning("producer snapshot is corrupt", file=str(file), reason=str(error))
                files.remove(file)
            else:
                return
    producers.clear(start)


def load_producers(
    files: Files, path: Path, segments: Sequence[Segment], producers: Producers, start: int, end: int
) -> None:
    """Bring the producers to the state at `end`: the newest snapshot, and the log after it.

    A snapshot has the last batch of each producer only, as in Kafka. Clients may send earlier ones again, after a stop
    of all brokers as well: they are looked up at the end of the log before the snapshot.
    """
    load_snapshot(files, path, producers, start, end)
    _recall(segments, producers)
    replay_segments(segments, producers, end)


def _recall(segments: Sequence[Segment], producers: Producers) -> None:
    taken, left = producers.end_offset, _RECALLED
    found: list[list[BatchHeader]] = []
    for segment in reversed(segments if producers.states else ()):
        if segment.base_offset < taken and left > 0:
            position = segment.index.tail(taken, left)
            left -= segment.index.count
            found.append([])
            for _, header, _ in segment.walk(position, verify=False):
                if header.next_offset > taken:
                    break
                found[-1].append(header)
    producers.recall([header for headers in reversed(found) for header in headers])


def remove_snapshots_after(files: Files, path: Path, end: int) -> bool:
    """Remove the producer snapshots that were taken beyond an offset; whether there were any."""
    old = [offset for offset in snapshot_offsets(files, path) if offset > end]
    for offset in old:
        files.remove(names.offset_path(path, offset, names.SNAPSHOT))
    return bool(old)


def remove_snapshots_before(files: Files, path: Path, start: int, *, keep: int = 0) -> None:
    """Remove the producer snapshots that were taken before an offset, except the last `keep` of them."""
    old = [offset for offset in snapshot_offsets(files, path) if offset < start]
    for offset in old[: len(old) - keep] if keep else old:
        files.remove(names.offset_path(path, offset, names.SNAPSHOT))


def replay(producers: Producers, header: BatchHeader, batch: Buffer) -> AbortedTransaction | None:
    """Apply a batch of a producer that is in the log to the producer state.

    Args:
        producers: the state.
        header: of the batch.
        batch: its bytes; read only if it is a control batch.

    Returns:
        The transaction that it has aborted, if it is a marker; the segment's index needs it.
    """
    if not header.attributes & CONTROL:
        producers.wrote(header, header.base_offset)
        return None
    ended: CompletedTransaction | None = None
    try:
        for record in decode_records(batch, max_bytes=_MOST_CONTROL):
            kind = control_record_type(record)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                value = record.value or b""
                epoch = int.from_bytes(value[2:6], "big", signed=True) if len(value) >= 6 else -1
                aborted = kind is ControlType.ABORT
                # As in Kafka the transaction ends with its batch, which has one record.
                ended = producers.ended(header, header.base_offset, epoch, record.timestamp, aborted=aborted) or ended
    except DecodeError as error:
        log.warning("control batch cannot be decoded", offset=header.base_offset, reason=str(error))
    if ended is None or not ended.aborted:
        return None
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)


def replay_segments(segments: Sequence[Segment], producers: Producers, end: int) -> list[AbortedTransaction]:
    """Apply the batches from where `producers` ends up to `end`, with the batch that holds that offset: a log may begin
    inside a batch. Damage is skipped.

    Returns:
        the transactions that were aborted there.
    """
    start, found = producers.end_offset, []
    for n, segment in enumerate(segments):
        if (n + 1 < len(segments) and segments[n + 1].base_offset <= start) or segment.base_offset >= end:
            continue
        for at, header, _ in segment.walk(segment.position_before(start), verify=False):
            if header.base_offset >= end:
                break
            if header.next_offset > start and header.producer_id >= 0:
                control = header.attributes & CONTROL
                batch = segment.files.read(segment.handle, header.size, at) if control else b""
                if (aborted := replay(producers, header, batch)) is not None:
                    found.append(aborted)
    producers.end_offset = end
    return found
