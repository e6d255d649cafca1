"""A consumer's commits: by hand, waiting or in the background, and by themselves.

**In the background** a commit is tried once. If it fails the next one covers it, because a commit says "everything
before this offset"; tried again it could overtake a later one and set the group back. **A waiting commit** first waits
for those in the background, so that none of them comes after it and their callbacks have been called, then tries until
it succeeds or its time is up (K6; ``KafkaConsumer.commitSync``). **Automatic** commits are background ones of what
polls returned before the last poll, every `auto_commit_interval_ms`; when partitions go, and at the end, what was read
is committed once more, waiting.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from barnabas_client.config import ConsumerConfig
from barnabas_client.consumer.offsets import OffsetStore
from barnabas_client.consumer.subscription import Subscription
from barnabas_client.errors import KafkaTimeoutError
from barnabas_client.logs import logger
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.consumer.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: Told how a commit in the background ended: with these offsets, and None or what went wrong. It may be async.
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], Awaitable[None] | None]


class Commits:
    """The commits of one consumer.

    Args:
        store: where they go.
        config: whether and how often they happen by themselves.
        subscription: what was read.
        timeout: seconds for one commit.
        due: called when an automatic commit is due; the next poll is to call :meth:`automatic`.
    """

    def __init__(
        self,
        store: OffsetStore,
        config: ConsumerConfig,
        subscription: Subscription,
        timeout: float,
        due: Callable[[], None],
    ) -> None:
        self._store = store
        self._config = config
        self._subscription = subscription
        self._timeout = timeout
        self._due = due
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._ended = False
        self._schedule()

    async def commit(self, offsets: Offsets) -> None:
        """Commit and wait; see :meth:`OffsetStore.commit`."""
        began = time.monotonic()
        before = {task for task in self._under_way if task is not asyncio.current_task()}
        late: set[asyncio.Task[None]] = set()
        if before:
            _, late = await asyncio.wait(before, timeout=self._timeout)
        if late:
            raise KafkaTimeoutError(
                f"commit: an earlier commit in the background did not end within {self._timeout:g} s. To do: check "
                "that the group's coordinator is up"
            )
        left = max(self._timeout - (time.monotonic() - began), 0.0) if before else self._timeout
        await self._store.commit(offsets, as_member=not self._subscription.by_hand, timeout=left)
        self._committed.update(offsets)

    def in_background(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commit without waiting."""
        self._spawn(self._once(dict(offsets), callback))

    async def quietly(self, offsets: Offsets) -> None:
        """Commit what is not committed yet, if that is to happen by itself; a failure is logged."""
        new = self._new(offsets)
        if not new or not self._config.enable_auto_commit:
            return
        try:
            await self.commit(new)
        except KafkaError as error:
            _log.warning("offsets were not committed", group=self._config.group_id, reason=str(error))

    def forget(self, tp: TopicPartition) -> None:
        """Others may commit this partition from now on."""
        self._committed.pop(tp, None)

    async def settle(self) -> None:
        """Wait for commits in the background, and begin no more by themselves."""
        self._stop_timer()
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def close(self) -> None:
        """Give up those that are under way."""
        self._stop_timer()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    # Automatic ones.

    def automatic(self) -> None:
        """A poll says that the program is done with what it got before: commit that, if it is time."""
        if not self._is_due or self._ended:
            return
        self._is_due = False
        positions = self._subscription.positions()
        new = self._new(positions)
        self._committed = {tp: offset for tp, offset in self._committed.items() if tp in positions}
        if new:
            self._spawn(self._once(new, None)).add_done_callback(self._schedule)
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

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _once(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None) -> None:
        failure: KafkaError | None = None
        try:
            await self._store.commit_once(offsets, as_member=not self._subscription.by_hand, timeout=self._timeout)
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
            # The program's own code, with nobody above it to raise to.
            _log.exception("the callback of commit_async raised", group=self._config.group_id)
