"""A consumer's commits: those that the program waits for, those in the background, and automatic ones.

**In the background** a commit is tried once. If it fails, the next one covers it, because a commit says "everything
before this offset"; tried again it could overtake a later one and set the group back. **A commit that the program waits
for** first waits for those in the background, so that none of them completes after it and their callbacks have been
called, then tries until it succeeds or its time is up (``KafkaConsumer.commitSync``). **Automatic** commits are
background ones of what polls returned before the last poll, every `auto_commit_interval_ms`; when partitions are
revoked, and at the end, positions are committed once more, waiting.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from barnabas_client.config import ClientConfig, ConsumerConfig
from barnabas_client.consumer.offsets import OffsetStore
from barnabas_client.consumer.subscription import Subscription
from barnabas_client.errors import KafkaTimeoutError, RebalanceInProgressError
from barnabas_client.logs import logger
from barnabas_client.network.retries import retry_backoff
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_client.tasks import BackgroundTasks
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: Called after a commit in the background, with its offsets, and None or the error. It may be a coroutine function.
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], Awaitable[None] | None]


async def after_rebalance(commit: Callable[[], Awaitable[None]], config: ClientConfig) -> None:
    """Call `commit`; if the group is rebalancing, again until it is not. For last commits: no later one covers them.

    Args:
        commit: makes a commit.
        config: has the pauses, and how long to try: `request_timeout_ms`.

    Raises:
        RebalanceInProgressError: the group was still rebalancing at the end of that time.
        KafkaError: the commit failed.
    """
    backoff, deadline = retry_backoff(config), time.monotonic() + config.request_timeout
    while True:
        try:
            await commit()
            return
        except RebalanceInProgressError:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(backoff.failed())


class Commits:
    """The commits of one consumer.

    Args:
        store: the group's committed offsets.
        config: whether and how often to commit automatically.
        subscription: has the positions.
        client: has the time for one commit, `request_timeout_ms`, and the pauses of retries.
        due: called when an automatic commit is due; the next poll then calls :meth:`automatic`.
    """

    def __init__(
        self,
        store: OffsetStore,
        config: ConsumerConfig,
        subscription: Subscription,
        client: ClientConfig,
        due: Callable[[], None],
    ) -> None:
        self._store = store
        self._config = config
        self._subscription = subscription
        self._client = client
        self._timeout = client.request_timeout
        self._due = due
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._background = BackgroundTasks(self._task_failed)
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._ended = False
        self._schedule()

    async def commit(self, offsets: Offsets) -> None:
        """Commit and wait; see :meth:`OffsetStore.commit`."""
        began = time.monotonic()
        before = {task for task in self._background if task is not asyncio.current_task()}
        late: set[asyncio.Task[None]] = set()
        if before:
            _, late = await asyncio.wait(before, timeout=self._timeout)
        if late:
            raise KafkaTimeoutError(
                f"commit: an earlier commit in the background did not end within {self._timeout:g} s. To do: check "
                "that the group's coordinator is up"
            )
        left = max(self._timeout - (time.monotonic() - began), 0.0) if before else self._timeout
        await self._store.commit(offsets, as_member=not self._subscription.manual, timeout=left)
        self._committed.update(offsets)

    def in_background(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commit without waiting."""
        self._background.spawn(self._once(dict(offsets), callback))

    async def quietly(self, offsets: Offsets) -> None:
        """Commit what is not committed yet, with `enable_auto_commit`, after a rebalance in progress; a failure is
        logged."""
        new = self._new(offsets)
        if not new or not self._config.enable_auto_commit:
            return
        try:
            await after_rebalance(lambda: self.commit(new), self._client)
        except KafkaError as error:
            _log.warning("offsets were not committed", group=self._config.group_id, reason=str(error))

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Other members may commit these partitions from now on."""
        for tp in partitions:
            self._committed.pop(tp, None)

    async def settle(self) -> None:
        """Wait for commits in the background, and start no more automatic ones."""
        self._stop_timer()
        if self._background:
            await asyncio.wait(self._background)

    async def close(self) -> None:
        """Give up commits in the background."""
        self._stop_timer()
        await self._background.close()

    # Automatic commits.

    def automatic(self) -> None:
        """A poll means that the program has processed what it received before: commit that, if a commit is due."""
        if not self._is_due or self._ended:
            return
        self._is_due = False
        positions = self._subscription.positions()
        new = self._new(positions)
        self._committed = {tp: offset for tp, offset in self._committed.items() if tp in positions}
        if new:
            self._background.spawn(self._once(new, None)).add_done_callback(self._schedule)
        else:
            self._schedule()

    def _schedule(self, _: object = None) -> None:
        if self._config.enable_auto_commit and not self._ended:
            interval = self._config.auto_commit_interval_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(interval, self._is_due_now)

    def _is_due_now(self) -> None:
        self._is_due = True
        self._due()

    def _stop_timer(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    # One commit.

    def _new(self, offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        return {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}

    def _task_failed(self, error: BaseException) -> None:
        _log.error("a commit in the background raised", group=self._config.group_id, exc_info=error)

    async def _once(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None) -> None:
        failure: KafkaError | None = None
        try:
            await self._store.commit_once(offsets, as_member=not self._subscription.manual, timeout=self._timeout)
            self._committed.update(offsets)
        except KafkaError as error:
            failure = error
        if callback is not None:
            await self._call(callback, offsets, failure)
        elif failure is not None:
            log = _log.info if failure.retriable else _log.warning
            log("a commit in the background failed", group=self._config.group_id, reason=str(failure))

    async def _call(
        self,
        callback: CommitCallback,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        failure: KafkaError | None,
    ) -> None:
        try:
            result = callback(offsets, failure)
            if inspect.isawaitable(result):
                await result
        except Exception:
            # The program's own code, and no call of the program to raise it from.
            _log.exception("the callback of commit_async raised", group=self._config.group_id)
