"""The cluster's metadata on this broker: the current image, and the one way to change it.

A change is decided on the current image, stored, applied, and then passed to the listeners, so that nothing acts on a
change that a crash could undo. Changes of one broker are made one after another. The store puts the changes of all
brokers in one order, in which every broker applies them.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from barnabas_broker.clock import wall_ms
from barnabas_broker.cluster import controller, producer_ids
from barnabas_broker.cluster.image import Event, Image, ProducerIdsAllocated
from barnabas_broker.cluster.image_diff import difference
from barnabas_broker.cluster.store import (
    EventBatch,
    LoadedMetadata,
    MetadataStore,
    StoreError,
    StoreFenced,
    StoreUnavailable,
)
from barnabas_broker.logs import logger
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("cluster")

T = TypeVar("T")
#: Seconds that a change waits for earlier changes of this broker, and for changes of other brokers.
CHANGE_SECONDS: Final = 10.0
Listener = Callable[[Image, Sequence[Event]], None]


def new_topic_id() -> bytes:
    """16 random bytes that are a version 4 UUID, as Kafka's topic ids are."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)


class ClusterMetadata:
    """The image and its changes.

    Args:
        image: the content of the store at start.
        store: stores the changes.
        sequence: the number of the last batch in the image.
        may_serve: see the attribute.
        wall_ms: the time of day, in ms.

    Attributes:
        image: the current cluster image.
        sequence: the number of the last batch in the image.
        may_serve: whether this broker may lead and coordinate now. Cheap; called before every append, and again after
            long operations. A single broker always may. In a cluster a broker may while it certainly holds its lease
            and the image contains its present registration.
    """

    def __init__(
        self,
        image: Image,
        store: MetadataStore,
        sequence: int = 0,
        may_serve: Callable[[], bool] = lambda: True,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.image = image
        self.sequence = sequence
        self.may_serve = may_serve
        self._store = store
        self._changing = asyncio.Lock()
        self._listeners: list[Listener] = []
        self._wall_ms = wall_ms
        self._producer_ids: list[int] = []
        self._advanced = asyncio.Event()

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with the new image and the events after each change."""
        self._listeners.append(listener)

    def feed(self, listener: Listener) -> None:
        """Call `listener` now, with the image as if all of it were new, and after each change."""
        listener(self.image, self.image.snapshot())
        self.subscribe(listener)

    async def change(self, decide: Callable[[Image], tuple[Sequence[Event], T]], *, as_controller: bool = False) -> T:
        """Decide on the current image, store the events and apply them. Decide again if another broker was first.

        Args:
            decide: returns events and a result for an image, or raises KafkaError to reject the change. It must not
                wait. It is called again after each change of another broker, also if it has rejected an image that
                was not up to date.
            as_controller: change only while this broker is the controller.

        Raises:
            KafkaError: from `decide`; KAFKA_STORAGE_ERROR if the store has failed, REQUEST_TIMED_OUT if it does not
                answer (the change may still happen), NOT_CONTROLLER if this broker may not write to it.
        """
        try:
            async with asyncio.timeout(CHANGE_SECONDS):
                await self._changing.acquire()
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "Earlier changes of the metadata are still waiting."
            ) from None
        try:
            return await self._change(decide, as_controller)
        except StoreError as error:
            log.warning("metadata cannot be changed", reason=str(error))
            raise KafkaError(_code(error), str(error)) from error
        finally:
            self._changing.release()

    async def _change(self, decide: Callable[[Image], tuple[Sequence[Event], T]], as_controller: bool) -> T:
        while True:
            sequence = self.sequence
            try:
                events, result = decide(self.image)
            except KafkaError:
                # The image may be out of date: another broker may have made a change that allows this one.
                if not await self._catch_up():
                    raise
                continue
            if not events:
                return result
            if await self._store.append(events, sequence, as_controller=as_controller):
                self._apply(EventBatch(sequence + 1, events))
                return result
            await self._wait_for(sequence + 1)

    async def _catch_up(self) -> bool:
        """Wait for the changes that other brokers have stored; whether there were any."""
        try:
            newest = await self._store.newest()
        except StoreError:
            return False
        if newest <= self.sequence:
            return False
        await self._wait_for(newest)
        return True

    async def _wait_for(self, sequence: int) -> None:
        try:
            async with asyncio.timeout(CHANGE_SECONDS):
                await self.reached(sequence)
        except TimeoutError:
            raise StoreUnavailable("changes of other brokers do not arrive") from None

    async def reached(self, sequence: int) -> None:
        """Wait until the image contains batch `sequence`."""
        while self.sequence < sequence:
            self._advanced.clear()
            await self._advanced.wait()

    async def follow(self) -> None:
        """Apply the changes of other brokers, until cancelled.

        Raises:
            StoreError: the store's content cannot be read.
        """
        async for update in self._store.watch():
            self._apply(update)

    def _apply(self, update: EventBatch | LoadedMetadata) -> None:
        """Apply a batch of the store, each once and in order. The only way to a new image."""
        if update.sequence <= self.sequence:
            return
        if isinstance(update, LoadedMetadata):
            loaded = Image(self.image.cluster_id).apply_all(update.events)
            events: Sequence[Event] = difference(self.image, loaded)
        elif update.sequence != self.sequence + 1:
            raise StoreError(f"batch {update.sequence} came after {self.sequence}: restart this broker")
        else:
            events = update.events
        # Set both or none: after a skipped batch this broker would decide on a wrong image.
        self.image, self.sequence = self.image.apply_all(events), update.sequence
        self._advanced.set()
        failed: Exception | None = None
        for listener in self._listeners:
            try:
                listener(self.image, events)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            # Raise after all listeners were called: none is called again for this change.
            raise failed

    async def skip_producer_ids(self, known: Iterable[int]) -> None:
        """Allocate none of the producer ids in this broker's logs, and none below them.

        Args:
            known: the ids in the logs. Those that cannot have been allocated are reported, and do not count.

        Raises:
            KafkaError: see :meth:`change`.
        """
        below, refused = producer_ids.above(known)
        if refused:
            log.warning(
                "producer ids in the logs are not believed: no broker has allocated them, a client has made them up",
                count=len(refused),
                largest=max(refused),
            )

        def decide(image: Image) -> tuple[Sequence[Event], None]:
            if below <= image.next_producer_id < producer_ids.END:
                return [], None
            return [ProducerIdsAllocated(below)], None

        if self.image.next_producer_id >= producer_ids.END:
            log.warning("the last producer id is taken, by a client that has made it up: ids continue before it")
        elif self.image.next_producer_id < below:
            log.warning("producer ids were allocated that the metadata does not contain: it was restored", below=below)
        await self.change(decide)

    def producer_id_limit(self, now_ms: int) -> int:
        """A number above all producer ids that may have been allocated; see :func:`.producer_ids.limit`."""
        return producer_ids.limit(self.image.next_producer_id, now_ms)

    async def next_producer_id(self) -> int:
        """A producer id that was never returned before, by any broker.

        Each block of ids begins at the number of microseconds since 1970, or after all blocks before if that is more:
        the store may have been restored from a backup, which does not contain the latest blocks. After the last id
        there is it begins at the time of day again: allocations do not get there.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        while not self._producer_ids:

            def allocate(image: Image) -> tuple[Sequence[Event], list[int]]:
                if self._producer_ids:
                    return [], self._producer_ids  # another call, which waited before this one, has a block
                block, event = controller.allocate_producer_ids(image, self._wall_ms() * 1000)
                return [event], list(reversed(block))

            self._producer_ids = await self.change(allocate)
        return self._producer_ids.pop()


def _code(error: StoreError) -> ErrorCode:
    match error:
        case StoreUnavailable():
            return ErrorCode.REQUEST_TIMED_OUT
        case StoreFenced():
            return ErrorCode.NOT_CONTROLLER
    return ErrorCode.KAFKA_STORAGE_ERROR
