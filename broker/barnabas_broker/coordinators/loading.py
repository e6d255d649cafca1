"""Reads a partition of a coordinator's topic for a replay, a little at a time. A shell."""

import asyncio
from collections.abc import Callable

from structlog.stdlib import BoundLogger

from barnabas_broker.coordinators.ports import CoordinatorLog
from barnabas_broker.coordinators.replay import PartitionReplay
from barnabas_protocol.errors import ErrorCode, KafkaError


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


def report_failure(log: BoundLogger, what: str, partition: int, error: Exception) -> None:
    """Log that a partition cannot be replayed.

    Args:
        log: of the coordinator.
        what: is in the partition.
        partition: which one.
        error: why. That another broker leads by now is no fault, and the next leader epoch loads it again.
    """
    if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        log.info(f"{what} are not loaded: another broker leads the partition by now", partition=partition)
    else:
        log.error(f"{what} cannot be loaded", partition=partition, exc_info=error)
