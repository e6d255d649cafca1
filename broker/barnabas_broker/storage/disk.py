"""What the logs of a directory have in common: the file system, the threads, the disk's failure, files to unlink."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, TypeVar

from barnabas_broker.logs import logger
from barnabas_broker.storage.files import Files
from barnabas_broker.storage.segment import Segment
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("storage")

T = TypeVar("T")

#: The most closed segments whose files stay open for readers.
OPEN_SEGMENTS: Final = 128
_THREADS: Final = 4


class Background(Protocol):
    """Runs work that waits for the disk."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Call `work` in the background, then `done` with its result or exception on the caller's thread."""

    def close(self) -> None:
        """Wait until all work has ended."""


class Threads:
    """A thread pool; `done` is called on the event loop that was running when `run` was called."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, "storage")

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Without a running event loop the caller may wait.
            Inline().run(work, done)
            return

        def finished(future: ThreadFuture[T]) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            try:
                loop.call_soon_threadsafe(done, future.result() if error is None else error)
            except RuntimeError:
                pass  # the loop has been closed, so nothing waits for the result

        self._executor.submit(work).add_done_callback(finished)

    def close(self) -> None:
        self._executor.shutdown()


class Inline:
    """Runs work at once, in the caller's thread."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        try:
            result: T | Exception = work()
        except Exception as error:
            result = error
        done(result)

    def close(self) -> None:
        """Nothing runs in the background."""


class Disk:
    """The log directory, for the logs in it.

    Args:
        path: of the directory.
        files: the file system.
        background: runs work that waits for the disk.

    Attributes:
        failure: the error that has taken the directory offline; nothing is written after it. None while it works.
        checkpoint_due: a recovery point has moved since the last checkpoint.
        checkpoint_now: writes the checkpoints before it returns; OSError if that fails.
    """

    def __init__(self, path: Path, files: Files, background: Background) -> None:
        self.path = path
        self.files = files
        self.background = background
        self.failure: str | None = None
        self.checkpoint_due = False
        self.checkpoint_now: Callable[[], None] = _nothing
        self._trash: list[tuple[int, Path]] = []
        self._open: OrderedDict[Segment, None] = OrderedDict()

    def check(self) -> None:
        """Check that the directory is online.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {self.path} is offline: {self.failure}")

    def fail(self, what: str, error: Exception) -> KafkaError:
        """Take the directory offline. After a failed fsync a later one may succeed without having written the data.

        Args:
            what: the operation that failed.
            error: its error.

        Returns:
            The error to answer.
        """
        if self.failure is None:
            self.failure = f"{what}: {error}"
            log.error(
                "log directory is offline, reads continue", directory=str(self.path), doing=what, reason=str(error)
            )
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {self.path} is offline: {self.failure}")

    def discard(self, paths: list[Path], due_ms: int) -> None:
        """Unlink renamed files at `due_ms` or later."""
        self._trash += [(due_ms, path) for path in paths]

    def empty_trash(self, now_ms: int | None) -> None:
        """Unlink the files that are due; all of them if `now_ms` is None."""
        due = [path for when, path in self._trash if now_ms is None or when <= now_ms]
        if not due:
            return
        self._trash = [(when, path) for when, path in self._trash if now_ms is not None and when > now_ms]
        files = self.files

        def unlink() -> None:
            for path in due:
                remove_tree(files, path)

        self.background.run(unlink, self._unlinked)

    def _unlinked(self, result: Exception | None) -> None:
        if result is not None:
            log.warning("files could not be removed", directory=str(self.path), reason=str(result))

    def opened(self, segment: Segment) -> None:
        """Note a read of a closed segment, and close the least recently read one if many are open."""
        self._open[segment] = None
        self._open.move_to_end(segment)
        if len(self._open) > OPEN_SEGMENTS:
            self._open.popitem(last=False)[0].close()


def _nothing() -> None:
    """Write no checkpoints."""


def remove_tree(files: Files, path: Path) -> None:
    """Remove a file, or a directory with its content."""
    if files.is_directory(path):
        for name in files.names(path):
            remove_tree(files, path / name)
        files.remove_directory(path)
    else:
        files.remove(path)
