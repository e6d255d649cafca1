"""Checks that what was read is still part of the partition's history (KIP-320). Pure, but for :func:`ask_epoch_ends`.

A new leader may lack records that the old one had returned: after an unclean election, or when a disk was lost. Every
batch carries the epoch of the leader that wrote it, so a consumer can ask where the records of an epoch end. If that is
before its position, or if the leader does not know the epoch, the two histories **diverge** there.

Two paths lead to the same decision, :func:`judge`: OffsetForLeaderEpoch, which is sent when the leader has changed or
the position comes from a commit; and the diverging epoch in the response to a Fetch that carries the last fetched epoch
(version 12 on, KIP-595). Source: ``SubscriptionState.maybeCompleteValidation``.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from barnabas_client.consumer.subscription import Needed, PartitionState
from barnabas_client.errors import KafkaConnectionError, LogTruncationError, error_for
from barnabas_client.logs import logger
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_client.network.versions import ApiRange
from barnabas_client.structs import TopicPartition, by_topic
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_protocol.registry import ApiKey

_log: Final = logger("barnabas_client.consumer")

#: Older versions need rights on the cluster: they are for brokers (KIP-320).
FOR_CONSUMERS: Final = 3


def judge(state: PartitionState, epoch: int, end: int, policy: Needed | None) -> bool:
    """Decide where to continue after the leader has said that its records of `epoch` end at `end`.

    Args:
        state: the partition, which has a position. It is moved to where it must continue, or receives the error to
            raise.
        epoch: the largest epoch of the leader up to the last fetched one; -1 if it does not know any.
        end: -1 if the leader does not know.
        policy: what `auto_offset_reset` asks for.

    Returns:
        Whether everything fetched is part of the leader's history.
    """
    position = state.position
    if position is None:
        return True
    known = epoch >= 0 and end >= 0
    if known and epoch >= state.fetch_epoch and end >= state.fetch_offset:
        return True
    if known and end >= position and epoch >= state.leader_epoch:
        _log.info("records that were fetched ahead are gone, fetching again", partition=str(state.tp), offset=position)
        state.refetch()
        state.checked = -1
    elif policy is None:
        state.error = _truncated(state.tp, position, min(end, position) if known else None, epoch if known else -1)
    elif known:
        _log.warning(
            "records that were read are gone from the partition, continuing where its history diverges",
            partition=str(state.tp),
            position=position,
            to=min(end, position),
            leader_epoch=epoch,
        )
        state.seek(min(end, position), epoch)
    else:
        _log.warning(
            "the leader does not know the epoch of the records that were read, resetting",
            partition=str(state.tp),
            position=position,
            to=policy.name.lower(),
        )
        state.need(policy)
    return False


def _truncated(tp: TopicPartition, position: int, offset: int | None, epoch: int) -> LogTruncationError:
    where = "the leader does not know from which offset on" if offset is None else f"from offset {offset} on"
    target = "an offset that exists" if offset is None else f"offset {offset} (leader epoch {epoch})"
    return LogTruncationError(
        f"records of {tp} that were read before position {position} are gone, {where}: a new leader did not have them, "
        f"and auto_offset_reset is 'none'. To do: undo what was derived from them, then seek() to {target}, or set "
        "auto_offset_reset to 'earliest' or 'latest'",
        tp,
        position,
        offset,
        epoch,
    )


Ends = dict[TopicPartition, EpochEndOffset | KafkaError]


async def ask_epoch_ends(network: Network, leader: int, states: Iterable[PartitionState]) -> Ends | None:
    """Ask a leader where the last fetched epochs end.

    Returns:
        For each partition the end, or the error; None if the broker answers this only to brokers.
    """
    asked = {state.tp: state.fetch_epoch for state in states}
    cluster = network.cluster
    try:
        connection = await network.connection(leader, Purpose.DATA)
        known = connection.versions.get(ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiRange(-1, -1))
        if known.high < FOR_CONSUMERS:
            return None
        topics = defaultdict(list)
        for topic, numbers in by_topic(asked):
            for number in numbers:
                tp = TopicPartition(topic, number)
                info = cluster.partition(tp)
                current = -1 if info is None else info.leader_epoch
                topics[topic].append(
                    OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=asked[tp])
                )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[OffsetForLeaderTopic(topic=name, partitions=parts) for name, parts in topics.items()],
        )
        response = await connection.ask(request, OffsetForLeaderEpochResponse, timeout=network.config.request_timeout)
    except KafkaError as error:
        return dict.fromkeys(asked, error)
    found: Ends = {}
    for answered in response.topics:
        for end in answered.partitions:
            tp = TopicPartition(answered.topic, end.partition)
            failed = end.error_code != ErrorCode.NONE
            found[tp] = error_for(end.error_code, f"check the leader epoch of {tp}") if failed else end
    for tp in asked:
        found.setdefault(tp, KafkaConnectionError(f"check the leader epoch of {tp}: the response does not contain it"))
    return found
