"""Reads a partition of a coordinator's topic for a replay, a little at a time. A shell."""

import asyncio
from collections.abc import Callable

from barnabas_broker.coordinators.ports import CoordinatorLog
from barnabas_broker.coordinators.replay import PartitionReplay


async def replay_partition(
    log: CoordinatorLog, partition: int, replay: PartitionReplay, wanted: Callable[[], bool]
) -> bool:
    """Replay a partition up to its log end offset. Other tasks run meanwhile.

    Args:
        log: the partitions of the topic.
        partition: which one.
        replay: gets the batches.
        wanted: whether the result is still wanted; it may no longer be, when other tasks have run.

    Returns:
        Whether the replay is complete.
    """
    end = log.end_offset(partition)
    while replay.next_offset < end:
        data = await log.read(partition, replay.next_offset)
        if not data:
            break
        for _ in replay.feed(data):
            await asyncio.sleep(0)
            if not wanted():
                return False
        await asyncio.sleep(0)
        if not wanted():
            return False
    return True
