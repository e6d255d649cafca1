"""The cluster image as a file: what `barnabas cluster export` writes, and what each broker of a cluster keeps in its
data directory (:data:`NAME`), so that the metadata survives the loss of etcd.

One JSON document; the events, one a line, turn an empty image into this one. It is replaced atomically.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster import ClusterError
from barnabas_broker.cluster.event_json import UNREADABLE, event_from_json, event_to_json
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.store import Restored, StoreError
from barnabas_broker.files import REAL_FILES, Files, replace_file
from barnabas_broker.logs import logger
from barnabas_protocol.records.checksums import crc32c

log = logger("cluster")

#: The name of the file in a data directory.
NAME: Final = "cluster.image"
FORMAT: Final = "barnabas-cluster-image"
VERSION: Final = 1
#: Maximum bytes of a file.
MAX_BYTES: Final = 256 * 1024 * 1024
#: Minimum seconds between two writes, and in proportion to the time that the last one took.
_PAUSE_SECONDS: Final = 0.5
_PAUSE_FACTOR: Final = 20
#: The longest pause, in seconds, while it cannot be written.
_LONGEST_PAUSE_SECONDS: Final = 30.0


class ImageFileError(ClusterError):
    """A file is not an image, or cannot be read; the text says why."""


class SavedImage(NamedTuple):
    """An image with its place in the history of the cluster.

    Attributes:
        image: the image, with its cluster id.
        sequence: the number of the last batch in it.
        history: the restores of the metadata before, oldest first.
    """

    image: Image
    sequence: int
    history: tuple[Restored, ...] = ()


def _checksum(cluster_id: str, sequence: int, history: Sequence[Restored], events: str) -> int:
    return crc32c(f"{cluster_id} {sequence} {[tuple(each) for each in history]}\n{events}".encode())


def format_image(saved: SavedImage) -> bytes:
    """The content of the file."""
    events = ",\n".join(map(event_to_json, saved.image.snapshot()))
    head = json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "cluster_id": saved.image.cluster_id,
            "sequence": saved.sequence,
            "history": [each._asdict() for each in saved.history],
            "crc32c": _checksum(saved.image.cluster_id, saved.sequence, saved.history, events),
        }
    )
    return f'{head[:-1]}, "events": [\n{events}\n]}}\n'.encode()


def parse_image(data: bytes) -> SavedImage:
    """Read what :func:`format_image` has written.

    Raises:
        ImageFileError: it is damaged, of a later version, or not an image.
    """
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields["format"] != FORMAT:
            raise ValueError(f"its format is {fields['format']!r}")
        if type(fields["version"]) is not int or fields["version"] != VERSION:
            raise ImageFileError(f"has version {fields['version']!r} of the format, this program reads {VERSION}")
        cluster_id, sequence = fields["cluster_id"], fields["sequence"]
        if not isinstance(cluster_id, str) or not cluster_id or type(sequence) is not int or sequence < 0:
            raise ValueError("cluster_id or sequence is not valid")
        history = tuple(Restored.of(each) for each in fields["history"])
        lines = [json.dumps(each, separators=(",", ":")) for each in fields["events"]]
        if _checksum(cluster_id, sequence, history, ",\n".join(lines)) != fields["crc32c"]:
            raise ValueError("its checksum does not match")
        events: list[Event] = [event_from_json(line) for line in lines]
        return SavedImage(Image(cluster_id).apply_all(events), sequence, history)
    except (*UNREADABLE, StoreError) as error:
        raise ImageFileError(f"is not a cluster image, or is damaged: {error}") from error


def read_image(path: Path, files: Files = REAL_FILES) -> SavedImage:
    """Read a file, or the one in a data directory.

    Raises:
        ImageFileError: it does not exist, or is not an image.
    """
    if files.is_directory(path):
        path = path / NAME
    try:
        handle = files.open(path, write=False)
        try:
            size = files.size(handle)
            if size > MAX_BYTES:
                raise ImageFileError(f"{path} is larger than {MAX_BYTES:,} bytes, so it is not a cluster image")
            return parse_image(files.read(handle, size, 0))
        finally:
            files.close(handle)
    except OSError as error:
        raise ImageFileError(f"{path} cannot be read: {error.strerror}") from error
    except ImageFileError as error:
        raise ImageFileError(str(error) if str(path) in str(error) else f"{path} {error}") from error


def write_image(path: Path, saved: SavedImage, files: Files = REAL_FILES) -> None:
    """Replace the file of an image atomically, also across a crash.

    Raises:
        OSError: the disk failed. A file with the suffix ``.tmp`` may be left.
    """
    replace_file(files, path, format_image(saved))


class ImageKeeper:
    """Keeps the image of a broker in its data directory, up to about a second old; threads write it.

    Args:
        directory: the data directory, locked by this process.
        cluster: the image and its changes.
        history: the restores of the metadata.
        now: a monotonic clock, in seconds.
        files: the file system of the directory.
    """

    def __init__(
        self,
        directory: Path,
        cluster: ClusterMetadata,
        history: Sequence[Restored],
        now: Callable[[], float],
        files: Files = REAL_FILES,
    ) -> None:
        self._path = directory / NAME
        self._cluster = cluster
        self._history = tuple(history)
        self._now = now
        self._files = files
        self._changed = asyncio.Event()
        self._changed.set()
        self._lock = threading.Lock()
        self._written = -1
        self._failed = False
        cluster.subscribe(lambda image, events: self._changed.set())

    async def work(self) -> None:
        """Write the image after changes, until cancelled."""
        backoff = jittered(_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seed=str(self._path))
        while True:
            await self._changed.wait()
            began = self._now()
            await self.save()
            pause = max(_PAUSE_SECONDS, (self._now() - began) * _PAUSE_FACTOR)
            if self._failed:
                pause = max(pause, backoff.failed())
            else:
                backoff.succeeded()
            await asyncio.sleep(pause)

    async def save(self) -> None:
        """Write the image as it is now, if it has changed. A failure is logged, and the next change tries again."""
        if not self._changed.is_set():
            return
        self._changed.clear()
        saved = SavedImage(self._cluster.image, self._cluster.sequence, self._history)
        try:
            await asyncio.to_thread(self._write, saved)
        except OSError as error:
            self._changed.set()
            if not self._failed:
                log.warning("cluster image cannot be kept", file=str(self._path), reason=error.strerror)
            self._failed = True
        else:
            self._failed = False

    def _write(self, saved: SavedImage) -> None:
        with self._lock:
            # The thread of a write that was cancelled still runs, and may be late.
            if saved.sequence > self._written:
                write_image(self._path, saved, self._files)
                self._written = saved.sequence
