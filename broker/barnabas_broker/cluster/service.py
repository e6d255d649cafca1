"""The cluster as this broker sees it: the current image, and the one way to change it.

A change is decided on the current image, kept by the store, applied, and only then told to those who listen: so
nobody acts on what a crash could undo. Changes wait for one another.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import structlog

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.store import MetadataStore, StoreError
from barnabas_protocol.errors import ErrorCode, KafkaError

log = structlog.get_logger("broker.cluster")

T = TypeVar("T")
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
    """

    def __init__(self, image: Image, store: MetadataStore) -> None:
        self.image = image
        self._store = store
        self._changing = asyncio.Lock()
        self._listeners: list[Listener] = []
        self._producer_ids: list[int] = []

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with the new image after each change."""
        self._listeners.append(listener)

    async def change(self, decide: Callable[[Image], tuple[Sequence[Event], T]]) -> T:
        """Decide on the current image, keep the events, apply them.

        Args:
            decide: makes events and a result of an image; raises KafkaError to refuse. It must not wait.

        Raises:
            KafkaError: what `decide` raised, or KAFKA_STORAGE_ERROR when the store failed.
        """
        async with self._changing:
            events, result = decide(self.image)
            if events:
                try:
                    await self._store.append(events)
                except StoreError as error:
                    log.error("metadata cannot be kept", reason=str(error))
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
                self.apply(events)
            return result

    def apply(self, events: Sequence[Event]) -> None:
        """Take note of what the store holds."""
        image = self.image
        for event in events:
            image = image.apply(event)
        self.image = image
        for listener in self._listeners:
            listener(image, events)

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
