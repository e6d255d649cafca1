"""Reads and checks log files without a broker, for `barnabas dump log` and `barnabas log check`.

Nothing is changed or locked. While a broker uses the directory, a file may end in the middle of an append.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import BadCheckpoint, parse_epochs, parse_offsets, parse_partition_metadata
from barnabas_broker.storage.files import Files, RealFiles, read_all
from barnabas_broker.storage.index import CorruptIndex, OffsetIndex, TimeIndex
from barnabas_broker.storage.producers import CorruptSnapshot, read_snapshot
from barnabas_broker.storage.scan import BadBatch, scan
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import Record, decode_records
from barnabas_protocol.records.batches import BatchHeader


class Problem(NamedTuple):
    """A problem in a file. Position and offset are -1 if they do not apply."""

    file: Path
    position: int
    offset: int
    reason: str

    def __str__(self) -> str:
        where = f" at position {self.position}, offset {self.offset}" if self.position >= 0 else ""
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


def dump(path: Path, *, verify: bool = True, files: Files | None = None) -> Iterator[DumpedBatch | Problem]:
    """Yield the batches of a ``.log`` file. A corrupt one is a problem, and the search continues after it.

    Args:
        path: of the file, named by its base offset. A file with another name begins at offset 0.
        verify: whether CRC and structure are checked.
        files: the file system; by default the real one.

    Raises:
        OSError: the file or directory cannot be read.
    """
    files = files or RealFiles()
    parsed = names.parse_offset_name(path.name)
    offset = parsed[0] if parsed else 0
    handle = files.open(path)
    try:
        position, size = 0, files.size(handle)
        while position < size:
            try:
                for at, header, batch in scan(files, handle, start=position, end=size, offset=offset, verify=verify):
                    data = bytes(batch) if verify else files.read(handle, header.size, at)
                    yield DumpedBatch(at, header, data)
                    position, offset = at + header.size, header.next_offset
            except BadBatch as bad:
                yield Problem(path, bad.position, bad.offset, bad.reason)
                if bad.size is None:
                    return
                position = bad.position + bad.size
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
            try:
                parse_offsets(read_all(files, where).decode(errors="replace"))
            except BadCheckpoint as error:
                report.problems.append(Problem(where, -1, -1, str(error)))
        elif files.is_directory(where) and names.parse_partition_directory(name) is not None:
            _check_partition(files, where, report, records)
    return report


def _check_partition(files: Files, path: Path, report: Report, records: bool) -> None:
    found = {name: names.parse_offset_name(name) for name in files.names(path)}
    bases = sorted(parsed[0] for parsed in found.values() if parsed and parsed[1] == names.LOG)
    for n, base in enumerate(bases):
        following = bases[n + 1] if n + 1 < len(bases) else None
        _check_segment(files, path, base, following, report, records)
    for name, parsed in found.items():
        problem = None
        if name == names.EPOCH_CHECKPOINT:
            problem = _text_problem(files, path / name, parse_epochs)
        elif name == names.PARTITION_METADATA:
            problem = _text_problem(files, path / name, parse_partition_metadata)
        elif parsed and parsed[1] == names.SNAPSHOT:
            try:
                read_snapshot(read_all(files, path / name))
            except CorruptSnapshot as error:
                problem = str(error)
        else:
            continue
        report.files += 1
        if problem is not None:
            report.problems.append(Problem(path / name, -1, -1, problem))


def _text_problem(files: Files, path: Path, parse: Callable[[str], object]) -> str | None:
    try:
        parse(read_all(files, path).decode(errors="replace"))
    except BadCheckpoint as error:
        return str(error)
    return None


def _check_segment(files: Files, path: Path, base: int, following: int | None, report: Report, records: bool) -> None:
    file = names.offset_path(path, base, names.LOG)
    problems = report.problems
    #: By position: the last offset of the batch, and the largest timestamp up to it.
    batches: dict[int, tuple[int, int]] = {}
    by_offset: dict[int, int] = {}
    newest = -1
    report.files += 1
    for item in dump(file, files=files):
        if isinstance(item, Problem):
            problems.append(item)
            continue
        header = item.header
        newest = max(newest, header.max_timestamp)
        batches[item.position] = header.last_offset, newest
        by_offset[header.last_offset] = header.max_timestamp
        report.batches += 1
        report.size += header.size
        if following is not None and header.last_offset >= following:
            problems.append(Problem(file, item.position, header.last_offset, f"the next segment begins at {following}"))
        if records:
            try:
                item.records()
            except DecodeError as error:
                problems.append(Problem(file, item.position, header.base_offset, str(error)))
    index_file, time_file = (names.offset_path(path, base, suffix) for suffix in (names.INDEX, names.TIME_INDEX))
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
