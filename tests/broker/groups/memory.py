"""A log in memory behind the coordinator's port, which can delay its results and fail."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from barnabas_broker.groups.consumer.metadata_hash import group_hash, topic_hash
from barnabas_broker.groups.consumer.topics import TopicCatalog
from barnabas_broker.groups.share.group import ShareGroup, ShareGroupSettings, ShareGroupTimes
from barnabas_broker.shares.records import ShareKey
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import Record, decode_records, read_header, restamp

#: Settings of share groups whose topics do not matter.
_SHARE_SETTINGS = ShareGroupSettings(
    TopicCatalog(topic_hash, group_hash), lambda group_id: ShareGroupTimes(45, 5000), 200
)

Done = Callable[[ErrorCode], None]


@dataclass
class MemoryLog:
    """Partitions as lists of batches.

    Attributes:
        hold: whether results wait in `held` until :meth:`release`.
        fail: the error of every append.
        appends: number of appends.
    """

    batches: dict[int, list[bytes]] = field(default_factory=dict)
    hold: bool = False
    fail: ErrorCode = ErrorCode.NONE
    appends: int = 0
    held: list[tuple[Done, ErrorCode]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    chunk: int = 1 << 20
    #: The verifications of the appends, and those that were forgotten.
    verifications: list[Any] = field(default_factory=list)
    forgotten: list[Any] = field(default_factory=list)
    #: Whether every transaction is open in the log, and the error of its verification.
    is_open: bool = False
    refuses: ErrorCode | None = None

    def append(self, partition: int, batch: bytearray, done: Done, verification: Any = None) -> None:
        self.appends += 1
        self.verifications.append(verification)
        if self.fail == ErrorCode.NONE:
            self.put(partition, batch)
        if self.hold:
            self.held.append((done, self.fail))
        else:
            done(self.fail)

    def verify(
        self, partition: int, producer_id: int, producer_epoch: int, transactional_id: str, *, bumps_epoch: bool
    ) -> Any:
        """What the test says; a text that names the transaction if it says nothing."""
        if self.refuses is not None:
            raise KafkaError(self.refuses)
        return None if self.is_open else f"{producer_id} {producer_epoch} {bumps_epoch}"

    def not_verified(self, partition: int, producer_id: int, verification: Any) -> None:
        self.forgotten.append(verification)

    def put(self, partition: int, batch: bytearray) -> None:
        """Append a batch, valid or not."""
        end = self.end_offset(partition)
        restamp(batch, 0, end, 0)
        self.batches.setdefault(partition, []).append(bytes(batch))
        self.ends[partition] = read_header(batch).next_offset

    def release(self, count: int | None = None) -> None:
        """Report the results of held appends, oldest first."""
        ready, self.held = self.held[:count], self.held[len(self.held) if count is None else count :]
        for done, error in ready:
            done(error)

    def end_offset(self, partition: int) -> int:
        return self.ends.get(partition, 0)

    def start_offset(self, partition: int) -> int:
        batches = self.batches.get(partition)
        return read_header(batches[0]).base_offset if batches else 0

    async def read(self, partition: int, offset: int) -> bytes:
        await asyncio.sleep(0)
        out = b""
        for batch in self.batches.get(partition, []):
            end = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
            if end > offset and (not out or len(out) + len(batch) <= self.chunk):
                out += batch
        return out

    def records(self) -> list[Record]:
        """Every record of every partition."""
        return [
            record
            for partition in sorted(self.batches)
            for batch in self.batches[partition]
            for record in decode_records(batch)
        ]


def new_share_group(group_id: str) -> ShareGroup:
    """The machine of a share group about which nothing is in the log, for a replay."""
    return ShareGroup(group_id, _SHARE_SETTINGS)


@dataclass
class MemoryStates:
    """The states of share partitions, which are created and deleted at once.

    Attributes:
        epochs: the state epoch of each share partition that has a state.
    """

    epochs: dict[ShareKey, int] = field(default_factory=dict)

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        self.epochs[key] = state_epoch

    async def delete(self, key: ShareKey) -> None:
        self.epochs.pop(key, None)
