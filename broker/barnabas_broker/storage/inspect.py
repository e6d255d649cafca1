"""Reads and checks log files without a broker, for `barnabas dump log` and `barnabas log check`.

Nothing is changed or locked. While a broker uses the directory, a file may end in the middle of an append.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.files import Files, RealFiles, read_all
from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import (
    BadCheckpoint,
    parse_compacted,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from barnabas_broker.storage.checksummed_file import copy_path, parse_copy, read_if_any
from barnabas_broker.storage.index import CorruptIndex, OffsetIndex, TimeIndex, parse_checksums
from barnabas_broker.storage.producer_state import CorruptSnapshot, read_snapshot
from barnabas_broker.storage.scan import LONG_MAX, BadBatch, find_sound, scan
from barnabas_broker.storage.transaction_index import TransactionIndex
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import Record, decode_records
from barnabas_protocol.records.batches import BatchHeader


class Problem(NamedTuple):
    """A problem in a file. Position and offset are -1 if they do not apply.

    Where records cannot be read, `next_offset` is the next one that can, if there is one in the file.
    """

    file: Path
    position: int
    offset: int
    reason: str
    next_offset: int = -1

    def __str__(self) -> str:
        offsets = f"offset {self.offset}"
        if self.next_offset > self.offset + 1:
            offsets = f"offsets {self.offset} to {self.next_offset - 1}"
        where = f" at position {self.position}, {offsets}" if self.position >= 0 else ""
        return f"{self.file}{where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch in a file; `data` holds all of its bytes."""

    position: int
    header: BatchHeader
    data: bytes

    def records(self) -> list[Record]:
        """Decode its records.

        Raises:
            DecodeError: they are corrupt.
        """
        return decode_records(self.data)


@dataclass(slots=True)
class Report:
    """The result of a check.

    Attributes:
        problems: in the order in which they were found.
        files: the number of files.
        batches: the number of valid batches.
        size: their bytes.
    """

    problems: list[Problem]
    files: int = 0
    batches: int = 0
    size: int = 0


def dump(
    path: Path, *, verify: bool = True, files: Files | None = None, following: int | None = None
) -> Iterator[DumpedBatch | Problem]:
    """Yield the batches of a ``.log`` file. A corrupt one is a problem, and the search continues after it.

    Args:
        path: of the file, named by its base offset. A file with another name begins at offset 0.
        verify: whether CRC and structure are checked.
        files: the file system; by default the real one.
        following: the base offset of the next file, if it is known.

    Raises:
        OSError: the file or directory cannot be read.
    """
    files = files or RealFiles()
    parsed = names.parse_offset_name(path.name)
    offset = parsed[0] if parsed else 0
    handle = files.open(path, write=False)
    try:
        position, size, exact = 0, files.size(handle), True
        limit = LONG_MAX if following is None else following
        while position < size:
            try:
                for at, header, batch in scan(
                    files,
                    handle,
                    start=position,
                    end=size,
                    offset=offset,
                    verify=verify,
                    limit=limit,
                    following=following,
                    exact=exact,
                ):
                    data = bytes(batch) if verify else files.read(handle, header.size, at)
                    yield DumpedBatch(at, header, data)
                    position, offset, exact = at + header.size, header.next_offset, True
            except BadBatch as bad:
                found = find_sound(files, handle, bad, end=size, low=bad.offset, limit=limit)
                next_offset = (limit if following is not None else -1) if found is None else found[1].base_offset
                yield Problem(path, bad.position, bad.offset, bad.reason, next_offset)
                if found is None:
                    return
                position, exact = found[0], False
    finally:
        files.close(handle)


def check(path: Path, *, records: bool = False, files: Files | None = None) -> Report:
    """Check a log directory, or the directory of one partition.

    Args:
        path: of the directory.
        records: whether to decode records, too, which takes longer.
        files: the file system; by default the real one.

    Raises:
        OSError: the file or directory cannot be read.
    """
    files = files or RealFiles()
    report = Report([])
    if any(name.endswith(names.LOG) for name in files.names(path)):
        _check_partition(files, path, report, records)
        return report
    for name in files.names(path):
        where = path / name
        if name in (names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS):
            report.files += 1
            if (problem := _text_problem(files, where, parse_offsets)) is not None:
                report.problems.append(Problem(where, -1, -1, problem))
        elif files.is_directory(where) and names.parse_partition_directory(name) is not None:
            _check_partition(files, where, report, records)
    return report


def _check_partition(files: Files, path: Path, report: Report, records: bool) -> None:
    found = {name: names.parse_offset_name(name) for name in files.names(path)}
    bases = sorted(parsed[0] for parsed in found.values() if parsed and parsed[1] == names.LOG)
    gaps: list[Problem] = []
    compacted = False
    noted = parse_compacted(read_if_any(files, path / names.COMPACTED))
    for n, base in enumerate(bases):
        following = bases[n + 1] if n + 1 < len(bases) else None
        end, sparse = _check_segment(files, path, base, following, report, records)
        compacted = compacted or sparse
        if following is not None and end < following and following > noted:
            file = names.offset_path(path, base, names.LOG)
            gaps.append(Problem(file, 0, end, "the segment ends before the next one begins", following))
    # Compaction leaves such gaps as well.
    report.problems += [] if compacted else gaps
    for name, parsed in found.items():
        problem = None
        if name.endswith(names.DAMAGED):
            report.problems.append(
                Problem(path / name, -1, -1, "set aside by recovery; remove it when it is not needed")
            )
        elif parsed and parsed[1] == names.INDEX and parsed[0] not in bases:
            following = min((base for base in bases if base > parsed[0]), default=-1)
            file = names.offset_path(path, parsed[0], names.LOG)
            report.problems.append(Problem(file, 0, parsed[0], "the file is missing", following))
        if name == names.EPOCH_CHECKPOINT:
            problem = _text_problem(files, path / name, parse_epochs)
        elif name == names.PARTITION_METADATA:
            problem = _text_problem(files, path / name, parse_partition_metadata)
        elif parsed and parsed[1] == names.SNAPSHOT:
            try:
                read_snapshot(read_all(files, path / name))
            except CorruptSnapshot as error:
                problem = str(error)
        elif parsed and parsed[1] == names.TXN_INDEX:
            try:
                TransactionIndex(parsed[0], read_all(files, path / name)).check()
            except CorruptIndex as error:
                problem = str(error)
        else:
            continue
        report.files += 1
        if problem is not None:
            report.problems.append(Problem(path / name, -1, -1, problem))


def _text_problem(files: Files, path: Path, parse: Callable[[str], object]) -> str | None:
    content = read_all(files, path)
    try:
        parse(content.decode(errors="replace"))
    except BadCheckpoint as error:
        return str(error)
    if files.exists(copy_path(path)) and parse_copy(read_all(files, copy_path(path))) != content:
        return "differs from its copy: one of the two is damaged, or older"
    return None


def _check_segment(
    files: Files, path: Path, base: int, following: int | None, report: Report, records: bool
) -> tuple[int, bool]:
    """Check a segment; the offset after it, and whether it shows that records were removed by compaction."""
    file = names.offset_path(path, base, names.LOG)
    problems = report.problems
    #: By position: the last offset of the batch, and the largest timestamp up to it.
    batches: dict[int, tuple[int, int]] = {}
    by_offset: dict[int, int] = {}
    newest, end, sparse, epoch = -1, base, False, -1
    report.files += 1
    for item in dump(file, files=files, following=following):
        if isinstance(item, Problem):
            problems.append(item)
            end = max(end, item.next_offset)
            continue
        header = item.header
        if header.leader_epoch < epoch:
            reason = f"leader epoch {header.leader_epoch} after {epoch}"
            problems.append(Problem(file, item.position, header.base_offset, reason, header.next_offset))
        epoch = header.leader_epoch
        sparse = sparse or header.is_sparse or header.base_offset > end
        end = header.next_offset
        newest = max(newest, header.max_timestamp)
        batches[item.position] = header.last_offset, newest
        by_offset[header.last_offset] = header.max_timestamp
        report.batches += 1
        report.size += header.size
        if records:
            try:
                item.records()
            except DecodeError as error:
                problems.append(Problem(file, item.position, header.base_offset, str(error)))
    index_file, time_file = (names.offset_path(path, base, suffix) for suffix in (names.INDEX, names.TIME_INDEX))
    if not batches and not files.exists(index_file):
        return end, sparse  # the first append creates them
    try:
        report.files += 2
        index = OffsetIndex(base, memoryview(read_all(files, index_file)))
        index.check()
        for n in range(index.count):
            offset, position = index.entry(n)
            if position not in batches or batches[position][0] != offset:
                problems.append(Problem(index_file, position, offset, "no batch at this position ends at this offset"))
        time_index = TimeIndex(base, memoryview(read_all(files, time_file)))
        time_index.check()
        _check_checksums(files, path, base, index, time_index, report)
        for n in range(time_index.count):
            timestamp, offset = time_index.entry(n)
            if by_offset.get(offset) != timestamp:
                problems.append(
                    Problem(time_file, -1, offset, f"no batch ends at offset {offset} with time {timestamp}")
                )
    except FileNotFoundError as error:
        problems.append(Problem(Path(error.filename or index_file), -1, -1, "missing; a broker rebuilds it at start"))
    except CorruptIndex as error:
        problems.append(Problem(index_file, -1, -1, str(error)))
    return end, sparse


def _check_checksums(
    files: Files, path: Path, base: int, index: OffsetIndex, time_index: TimeIndex, report: Report
) -> None:
    """Compare the indexes of a segment with their checksums; those of Apache Kafka have none."""
    file = names.offset_path(path, base, names.CHECKSUMS)
    if not files.exists(file):
        return
    report.files += 1
    try:
        offsets, times, aborted = parse_checksums(read_all(files, file))
        index.verify(offsets)
        time_index.verify(times)
        transactions = names.offset_path(path, base, names.TXN_INDEX)
        TransactionIndex(base, read_all(files, transactions) if files.exists(transactions) else b"").verify(aborted)
    except CorruptIndex as error:
        report.problems.append(Problem(file, -1, -1, f"{error}; a broker rebuilds the indexes at start"))
