"""The cluster as this broker sees it: the current image, and the one way to change it.

A change is decided on the current image, kept by the store, applied, and only then told to those who listen: so
nobody acts on what a crash could undo. Changes of one broker wait for one another; what several brokers change is put
in an order by the store, and every broker applies it in that order.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.difference import difference
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.store import Batch, Loaded, MetadataStore, StoreError, StoreFenced, StoreUnavailable
from barnabas_broker.logs import logger
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("cluster")

T = TypeVar("T")
#: Seconds that a change waits for those before it, and for what another broker changed.
CHANGE_SECONDS: Final = 10.0
Listener = Callable[[Image, Sequence[Event]], None]


def new_topic_id() -> bytes:
    """16 random bytes that are a version 4 UUID, as Kafka's topic ids are."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)


class Cluster:
    """The image and its changes.

    Args:
        image: what the store held at start.
        store: keeps what is decided.
        sequence: the number of the last batch that the image holds.
        may_serve: whether this broker may act for its partitions; see :meth:`may_serve`.

    Attributes:
        image: the cluster as it is known here.
        sequence: the number of the last batch that the image holds.
        may_serve: whether this broker may lead and coordinate at this moment. Cheap; asked before every append, and
            again after whatever may have taken long. A single broker always may; one of several only while its
            registration holds and the image knows of it.
    """

    def __init__(
        self,
        image: Image,
        store: MetadataStore,
        sequence: int = 0,
        may_serve: Callable[[], bool] = lambda: True,
    ) -> None:
        self.image = image
        self.sequence = sequence
        self.may_serve = may_serve
        self._store = store
        self._changing = asyncio.Lock()
        self._listeners: list[Listener] = []
        self._producer_ids: list[int] = []
        self._advanced = asyncio.Event()

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with the new image after each change."""
        self._listeners.append(listener)

    async def change(self, decide: Callable[[Image], tuple[Sequence[Event], T]], *, as_controller: bool = False) -> T:
        """Decide on the current image, keep the events, apply them. If somebody else was first, decide again.

        Args:
            decide: makes events and a result of an image; raises KafkaError to refuse, which it is asked for again if
                other brokers have changed something that was not heard of yet. It must not wait, and may be called
                several times.
            as_controller: only while this broker is the controller.

        Raises:
            KafkaError: what `decide` raised; KAFKA_STORAGE_ERROR when the store failed, REQUEST_TIMED_OUT when it did
                not answer (what was decided may come yet), NOT_CONTROLLER when this broker may not write to it.
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
                # Another broker may have made what is missed here, or taken away what is in the way.
                if not await self._catch_up():
                    raise
                continue
            if not events:
                return result
            if await self._store.append(events, sequence, as_controller=as_controller):
                self._take(Batch(sequence + 1, events))
                return result
            await self._hear(sequence + 1)

    async def _catch_up(self) -> bool:
        """Wait for what other brokers have changed by now; whether there was something."""
        try:
            newest = await self._store.newest()
        except StoreError:
            return False
        if newest <= self.sequence:
            return False
        await self._hear(newest)
        return True

    async def _hear(self, sequence: int) -> None:
        try:
            async with asyncio.timeout(CHANGE_SECONDS):
                await self.reached(sequence)
        except TimeoutError:
            raise StoreUnavailable("what other brokers changed is not heard of") from None

    async def reached(self, sequence: int) -> None:
        """Wait until the image holds batch `sequence`."""
        while self.sequence < sequence:
            self._advanced.clear()
            await self._advanced.wait()

    async def follow(self) -> None:
        """Take note of what other brokers change, until cancelled.

        Raises:
            StoreError: what is kept cannot be read.
        """
        async for update in self._store.watch():
            self._take(update)

    def _take(self, update: Batch | Loaded) -> None:
        """Apply what the store holds, each batch once and in its order. The only way to a new image."""
        if update.sequence <= self.sequence:
            return
        if isinstance(update, Loaded):
            loaded = Image(self.image.cluster_id).apply_all(update.events)
            events: Sequence[Event] = difference(self.image, loaded)
        elif update.sequence != self.sequence + 1:
            raise StoreError(f"batch {update.sequence} came after {self.sequence}: restart this broker")
        else:
            events = update.events
        # Both or none: a broker that has passed over a batch would decide on what is not so.
        self.image, self.sequence = self.image.apply_all(events), update.sequence
        self._advanced.set()
        failed: Exception | None = None
        for listener in self._listeners:
            try:
                listener(self.image, events)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            # Not before all have heard of it: nobody is told twice.
            raise failed

    async def next_producer_id(self) -> int:
        """A producer id that nobody ever had.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        while not self._producer_ids:

            def allocate(image: Image) -> tuple[Sequence[Event], range]:
                block, event = controller.allocate_producer_ids(image)
                return [event], block

            block = await self.change(allocate)
            self._producer_ids = list(reversed(block))
        return self._producer_ids.pop()


def _code(error: StoreError) -> ErrorCode:
    match error:
        case StoreUnavailable():
            return ErrorCode.REQUEST_TIMED_OUT
        case StoreFenced():
            return ErrorCode.NOT_CONTROLLER
    return ErrorCode.KAFKA_STORAGE_ERROR
