"""What all logs of a directory share: the file system, the threads, whether the disk still works, and what is to be
unlinked.
"""

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

#: Closed segments that are kept open for readers.
OPEN_SEGMENTS: Final = 128
_THREADS: Final = 4


class Background(Protocol):
    """Where work is done that may take as long as a disk does."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Call `work`, elsewhere, and `done` with what it returned or raised, on the caller's side."""

    def close(self) -> None:
        """Wait until everything that was begun has ended."""


class Threads:
    """A few threads; `done` is called on the event loop that was running when the work was given."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, "storage")

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Before the loop runs, or after it: whoever calls can wait.
            Inline().run(work, done)
            return

        def finished(future: ThreadFuture[T]) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            try:
                loop.call_soon_threadsafe(done, future.result() if error is None else error)
            except RuntimeError:
                pass  # the loop has been closed: nobody waits any more

        self._executor.submit(work).add_done_callback(finished)

    def close(self) -> None:
        self._executor.shutdown()


class Inline:
    """Does it at once."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        try:
            result: T | Exception = work()
        except Exception as error:
            result = error
        done(result)

    def close(self) -> None:
        """Nothing is ever under way."""


class Disk:
    """A log directory as its logs see it.

    Args:
        path: of the directory.
        files: the file system.
        background: where slow work is done.

    Attributes:
        failure: what happened when the disk failed; nothing is written from then on. None while it works.
        checkpoint_due: a recovery point has moved and is not written down yet.
        checkpoint_now: write recovery points down before this returns; OSError if that fails.
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
        """Whether one may write.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the disk has failed before.
        """
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {self.path} is offline: {self.failure}")

    def fail(self, what: str, error: Exception) -> KafkaError:
        """Take the directory offline: what could not be written once must not seem written later (fsyncgate).

        Args:
            what: was being done.
            error: what came of it.

        Returns:
            What to answer.
        """
        if self.failure is None:
            self.failure = f"{what}: {error}"
            log.error("log directory is offline, reads go on", directory=str(self.path), doing=what, reason=str(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {self.path} is offline: {self.failure}")

    def discard(self, paths: list[Path], due_ms: int) -> None:
        """Unlink files that have been renamed away, at `due_ms` or later: a reader may still have them open."""
        self._trash += [(due_ms, path) for path in paths]

    def empty_trash(self, now_ms: int | None) -> None:
        """Unlink what is due; with None everything."""
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
        """A closed segment is read; if many are open, close the one that was not read for longest."""
        self._open[segment] = None
        self._open.move_to_end(segment)
        if len(self._open) > OPEN_SEGMENTS:
            self._open.popitem(last=False)[0].close()


def _nothing() -> None:
    """No checkpoints are kept."""


def remove_tree(files: Files, path: Path) -> None:
    """Remove a file, or a directory with what is in it."""
    if files.is_directory(path):
        for name in files.names(path):
            remove_tree(files, path / name)
        files.remove_directory(path)
    else:
        files.remove(path)
