"""The port between a share partition and the share coordinator that keeps its state. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

#: A state, and one write of it, have no more batches than this. Kafka bounds both by the size of a record, which holds
#: 52,000 batches: merging these would hold the event loop for 0.2 s.
MOST_BATCHES: Final = 5_000
#: Record locks of a share group in a partition that count, whatever is configured; 2,000 are the default. Each of these
#: records may become a batch of the state, and each of the last fetch, which may exceed them.
MOST_LOCKS: Final = MOST_BATCHES - 1_000


class StateBatch(NamedTuple):
    """Records of a share partition with the same state.

    Attributes:
        first_offset: of the batch.
        last_offset: of the batch, included.
        state: Kafka's delivery state: 0 available, 2 acknowledged, 4 archived.
        delivery_count: how often the records were delivered.
    """

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The durable state of a share partition.

    Attributes:
        state_epoch: grows when the group starts again at another offset; a write with an older one is fenced.
        start_offset: the first record that is not acknowledged or archived; -1 if it is not known yet, and
            ``share.auto.offset.reset`` decides.
        delivery_complete_count: number of records from the start offset on whose delivery is complete; -1 if it is not
            known.
        batches: the states of records from the start offset on, in the order of offsets, without overlaps.
    """

    state_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class Persister(Protocol):
    """Reads and writes the state of share partitions, wherever their coordinator is."""

    async def read(self, group: str, topic_id: UUID, partition: int, leader_epoch: int) -> ShareState:
        """Read the state of a share partition.

        Args:
            group: the share group.
            topic_id: of the partition.
            partition: its index.
            leader_epoch: of the reader, which leads the partition; it fences the writes of earlier leaders.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH if a newer leader has read the state, INVALID_REQUEST or
                UNKNOWN_TOPIC_OR_PARTITION if the share partition is not initialized, or the error of a coordinator that
                could not be reached after all retries.
        """

    async def write(
        self,
        group: str,
        topic_id: UUID,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Write what has changed in the state of a share partition, and return when it is durable.

        Args:
            group: the share group.
            topic_id: of the partition.
            partition: its index.
            state_epoch: as read.
            leader_epoch: of the writer, which leads the partition.
            start_offset: the new start offset; -1 if it is unchanged.
            delivery_complete_count: see :class:`ShareState`; -1 if it is not known.
            batches: the new states; records that are not in them keep theirs.

        Raises:
            KafkaError: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, or the error of a coordinator that could not be
                reached. In the latter case the state may have been written.
        """
