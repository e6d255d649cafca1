"""Common parts of the logs of a directory: the file system, the threads, the disk's failure, files to unlink."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, TypeVar

from barnabas_broker.files import Files
from barnabas_broker.logs import logger
from barnabas_broker.resource_errors import is_shortage, lacks_descriptors, most_descriptors
from barnabas_broker.storage.corruption import Damage
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.time_budget import Allowance
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("storage")

T = TypeVar("T")

#: The most closed segments whose files stay open for readers. Their indexes are mapped, and maps are limited, too.
OPEN_SEGMENTS: Final = 128
#: Threads that wait for the disk.
_THREADS: Final = 4
_SYNC_THREADS: Final = 16
#: Calls that wait for one of these threads, or are carried out.
_BEGUN: Final = 256


class Background(Protocol):
    """Runs work that waits for the disk."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Call `work` in the background, then `done` with its result or exception on the caller's thread.

        After :meth:`close` neither is called.
        """

    def run_all(self, work: Iterable[Callable[[], object]]) -> None:
        """Call all of them, several at a time, and wait. The iterator makes the next ones while others are called.

        Raises:
            Exception: the first exception, when all that were begun have ended. No others are begun then.
        """

    def close(self) -> None:
        """Wait until all work has ended."""


class Threads:
    """A thread pool; `done` is called on the event loop that was running when `run` was called.

    Args:
        threads: how many.
        name: of the threads.
    """

    def __init__(self, threads: int = _THREADS, name: str = "storage") -> None:
        self._executor = ThreadPoolExecutor(threads, name)
        self._closed = False

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        if self._closed:
            return  # what is left to do is done by the close of the directory, or at the next start
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

    def run_all(self, work: Iterable[Callable[[], object]]) -> None:
        # More threads than for background work: file systems join calls of fsync that wait at the same time.
        with ThreadPoolExecutor(_SYNC_THREADS, "storage") as pool:
            begun: deque[ThreadFuture[object]] = deque()
            for one in work:
                begun.append(pool.submit(one))
                if len(begun) > _BEGUN:
                    begun.popleft().result()
            for future in begun:
                future.result()

    def close(self) -> None:
        self._closed = True
        self._executor.shutdown()


class Inline:
    """Runs work at once, in the caller's thread."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        try:
            result: T | Exception = work()
        except Exception as error:
            result = error
        done(result)

    def run_all(self, work: Iterable[Callable[[], object]]) -> None:
        for one in work:
            one()

    def close(self) -> None:
        """Nothing runs in the background."""


class Disk:
    """The log directory, for the logs in it.

    Args:
        path: of the directory.
        files: the file system.
        background: runs work that waits for the disk.
        decoder: runs work that looks into batches, one at a time, so that only one is decompressed in memory.
        now: a monotonic clock, in seconds: intervals must end when the time of day is set back.

    Attributes:
        now: the clock.
        failure: the error that has taken the directory offline; nothing is written after it. None while it works.
        shortage: what could not be written for want of space or descriptors, until something is written again.
        shortages: how many operations have failed for want of space or descriptors.
        checkpoint_due: a recovery point has moved since the last checkpoint.
        inspections: the time for looking inside batches.
        checkpoint_now: writes the checkpoints before it returns; OSError if that fails.
        on_trouble: called with the reason after each operation that has failed.
        damage_found: called when a read of a log runs into damage, with the partition.
    """

    def __init__(
        self,
        path: Path,
        files: Files,
        background: Background,
        decoder: Background,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.files = files
        self.background = background
        self.decoder = decoder
        self.failure: str | None = None
        self.shortage: str | None = None
        self.shortages = 0
        self.checkpoint_due = False
        self.now = now
        self.inspections = Allowance(now)
        self.checkpoint_now: Callable[[], None] = _nothing
        self.on_trouble: Callable[[str], None] = _ignore
        self.damage_found: Callable[[TopicPartition, Damage], None] = _only_report
        self._trash: list[tuple[float, Path]] = []
        self._open = _Recent(OPEN_SEGMENTS)
        #: Active segments: a partition need not have a descriptor. A quarter of all, half is for connections.
        self._active = _Recent(max(most_descriptors() // 4, 16))

    def check(self) -> None:
        """Check that the directory is online.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {self.path} is offline: {self.failure}")

    def fail(self, what: str, error: Exception, *, lasting: bool = False) -> KafkaError:
        """Take the directory offline. After a failed fsync a later one may succeed without having written the data.

        A shortage of space or of descriptors does not take it offline: the operation is tried again.

        Args:
            what: the operation that failed.
            error: its error.
            lasting: the operation cannot be tried again, whatever the error is.

        Returns:
            The error to answer.
        """
        if not lasting and self.failure is None and is_shortage(error):
            if lacks_descriptors(error):
                self._open.release_half()
                self._active.release_half()
            if self.shortage is None:
                log.error(
                    "log directory is short of space or of descriptors, writes are refused until there is more",
                    directory=str(self.path),
                    doing=what,
                    reason=str(error),
                )
            self.shortage = f"{what}: {error}"
            self.shortages += 1
            self.on_trouble(self.shortage)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.shortage}. It may be tried again.")
        if self.failure is None:
            self.failure = f"{what}: {error}"
            log.error(
                "log directory is offline, reads continue", directory=str(self.path), doing=what, reason=str(error)
            )
            self.on_trouble(self.failure)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {self.path} is offline: {self.failure}")

    def worked(self) -> None:
        """Something was written: a shortage is over."""
        if self.shortage is not None:
            log.info("log directory can be written again", directory=str(self.path), before=self.shortage)
            self.shortage = None

    async def decode(self, work: Callable[[Callable[[], bool]], T]) -> T:
        """Have a thread do `work`, which looks into batches, after all that it was given before.

        Args:
            work: is called with a function that returns whether the result is no longer wanted: ask it now and then.

        Raises:
            Exception: what `work` raised.
        """
        results: list[T | Exception] = []
        waiting: asyncio.Future[None] | None = None
        stopped = False

        def done(result: T | Exception) -> None:
            results.append(result)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

        def is_stopped() -> bool:
            return stopped

        def unless_stopped() -> T:
            if stopped:
                raise asyncio.InvalidStateError("the result is no longer wanted")
            return work(is_stopped)

        self.decoder.run(unless_stopped, done)
        if not results:
            waiting = asyncio.get_running_loop().create_future()
            try:
                await waiting
            finally:
                stopped = True
        result = results.pop()
        if not isinstance(result, Exception):
            return result
        try:
            raise result
        finally:
            del result  # its traceback has this frame: without this, the batch would stay until the collector runs

    def discard(self, paths: list[Path], delay_ms: int) -> None:
        """Unlink renamed files after `delay_ms` or later."""
        due = self.now() + delay_ms / 1000
        self._trash += [(due, path) for path in paths]

    def empty_trash(self) -> None:
        """Unlink the files that are due."""
        now = self.now()
        due = [path for when, path in self._trash if when <= now]
        if not due:
            return
        self._trash = [(when, path) for when, path in self._trash if when > now]
        files = self.files

        def unlink() -> None:
            for path in due:
                remove_tree(files, path)

        self.background.run(unlink, self._unlinked)

    def _unlinked(self, result: Exception | None) -> None:
        if result is not None:
            log.warning("files could not be removed", directory=str(self.path), reason=str(result))

    def opened(self, segment: Segment) -> None:
        """Note that a segment is used, and close the file of the one that is not used longest if many are open."""
        recent = self._active if segment.following is None else self._open
        if segment is not recent.last:
            recent.use(segment)


class _Recent:
    """Segments whose files are open, in the order of their use.

    Args:
        most: how many stay open.

    Attributes:
        last: the segment that was used last; None if its file has been closed.
    """

    def __init__(self, most: int) -> None:
        self.last: Segment | None = None
        self._most = most
        self._segments: OrderedDict[Segment, None] = OrderedDict()

    def use(self, segment: Segment) -> None:
        """Note a use."""
        self.last = segment
        self._segments[segment] = None
        self._segments.move_to_end(segment)
        if len(self._segments) > self._most:
            self._segments.popitem(last=False)[0].release()

    def release_half(self) -> None:
        """Close the files of the half that is not used longest."""
        self.last = None
        for _ in range((len(self._segments) + 1) // 2):
            self._segments.popitem(last=False)[0].release()


def _nothing() -> None:
    """Write no checkpoints."""


def _ignore(reason: str) -> None:
    """Do nothing about an operation that has failed."""


def _only_report(where: TopicPartition, damage: Damage) -> None:
    """A single broker can only report damage: no other one has the records."""


def remove_tree(files: Files, path: Path) -> None:
    """Remove a file, or a directory with its content. Of a symbolic link only the link is removed."""
    if files.is_directory(path) and not files.is_link(path):
        for name in files.names(path):
            remove_tree(files, path / name)
        files.remove_directory(path)
    else:
        files.remove(path)
