"""The program's rebalance listener. Source: aiokafka's ``ConsumerRebalanceListener``."""

import inspect
from collections.abc import Awaitable, Callable, Collection

from barnabas_client.structs import TopicPartition

ListenerMethod = Callable[[Collection[TopicPartition]], Awaitable[None] | None]


class ConsumerRebalanceListener:
    """Called when partitions are revoked and assigned. Override what you need; each method may be a coroutine function.

    `on_partitions_lost` is called instead of `on_partitions_revoked` when other members may own the partitions already:
    then offsets can no longer be committed for them. By default it calls `on_partitions_revoked`, as in Kafka.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are about to be revoked; what was read of them can still be committed."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are newly assigned. Nothing has been fetched yet, so `seek` decides where they start."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are lost."""
        return self.on_partitions_revoked(lost)


def lost_method(listener: ConsumerRebalanceListener) -> ListenerMethod:
    """The method to call for lost partitions. A listener written for aiokafka has no `on_partitions_lost`."""
    return getattr(listener, "on_partitions_lost", listener.on_partitions_revoked)


async def call_listener(method: ListenerMethod, partitions: Collection[TopicPartition]) -> None:
    """Call a listener's method, and wait for it if it is a coroutine function."""
    result = method(list(partitions))
    if inspect.isawaitable(result):
        await result
