"""Kafka's text files have no checksum: a flipped digit is another offset. So each of them has a copy, with a checksum.

The copy is written first, so whenever the two differ, by damage or by a kill in between, the copy is right. It does not
count after Apache Kafka, or an earlier version, has written the files.
"""

from pathlib import Path

from barnabas_broker.files import Files, read_all
from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_protocol.records.checksums import crc32c

log = logger("storage")


def copy_path(path: Path) -> Path:
    """The path of a file's copy."""
    return path.with_name(path.name + names.COPY)


def with_copy(path: Path, content: bytes) -> list[tuple[Path, bytes]]:
    """The copy and the file, with their contents, in the order in which they must be replaced."""
    return [(copy_path(path), b"%08x\n" % crc32c(content) + content), (path, content)]


def parse_copy(data: bytes) -> bytes | None:
    """The content that a copy holds; None if it is damaged."""
    checksum, _, content = data.partition(b"\n")
    return content if checksum == b"%08x" % crc32c(content) else None


def read_if_any(files: Files, path: Path) -> bytes | None:
    """The content of a file; None if it does not exist.

    Raises:
        OSError: the disk failed.
    """
    try:
        return read_all(files, path)
    except FileNotFoundError:
        return None


def read_with_copy(files: Files, path: Path, *, copied: bool) -> bytes | None:
    """The content of a file as it was written; None if it does not exist.

    Args:
        files: the file system.
        path: of the file.
        copied: whether its copy counts.

    Raises:
        OSError: the disk failed.
    """
    content = read_if_any(files, path)
    data = read_if_any(files, copy_path(path)) if copied else None
    if data is None:
        return content
    kept = parse_copy(data)
    if kept is None:
        log.error("copy of a file is damaged, the file itself is used", file=str(copy_path(path)))
        return content
    if kept != content:
        log.error("file is missing, damaged or older than its copy, which is used", file=str(path))
    return kept
