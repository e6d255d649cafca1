"""A partition that this broker keeps, as leader or as follower: its log, who waits for it, what was promised.

A fetch that finds too little waits as a :class:`DelayedFetch`; what becomes readable counts its bytes into those that
wait and wakes the ones that have enough, so that nobody polls. Consumers wait for the high watermark, followers for the
log's end. A produce with acks=all waits in the order of offsets, so moving the high watermark looks at no more than
what it sets free.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from barnabas_broker.cluster.image import PartitionInfo
from barnabas_broker.config.keys import TOPIC_MIN_INSYNC_REPLICAS
from barnabas_broker.replication.leadership import UNKNOWN, Leadership
from barnabas_broker.storage import AppendInfo, Log
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.wire import Buffer

_MOVED: Final = "This broker does not lead the partition any more."


class DelayedFetch:
    """A fetch that waits for data.

    Args:
        min_bytes: how much it waits for.
    """

    __slots__ = ("_missing", "woken")

    def __init__(self, min_bytes: int) -> None:
        self._missing = min_bytes
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def appended(self, size: int) -> None:
        """Count `size` bytes in; wake up when that is enough."""
        self._missing -= size
        if self._missing <= 0:
            self.wake()

    def wake(self) -> None:
        """Stop waiting."""
        if not self.woken.done():
            self.woken.set_result(None)


class Hosted:
    """A partition of this broker.

    Attributes:
        log: its log.
        info: the partition as the cluster has agreed on.
        leading: while this broker leads it.
        waiting: consumers' fetches, which wait for the high watermark.
        following: followers' fetches, which wait for the log's end.
    """

    __slots__ = ("_acks", "_deletions", "_unread", "following", "info", "leading", "log", "waiting")

    def __init__(self, partition_log: Log, info: PartitionInfo) -> None:
        self.log = partition_log
        self.info = info
        self.leading: Leadership | None = None
        self.waiting: set[DelayedFetch] = set()
        self.following: set[DelayedFetch] = set()
        #: What was appended and is not committed: offset after it, bytes.
        self._unread: deque[tuple[int, int]] = deque()
        self._acks: deque[tuple[int, asyncio.Future[None]]] = deque()
        #: Who waits until no replica has anything before an offset.
        self._deletions: list[tuple[int, asyncio.Future[int]]] = []

    @property
    def leader_epoch(self) -> int:
        """The epoch of the present leader."""
        return self.info.leader_epoch

    def check_epoch(self, epoch: int) -> None:
        """Compare the leader epoch that a client knows with ours; -1 is not compared (KIP-320).

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if epoch == -1 or epoch == self.info.leader_epoch:
            return
        older = epoch < self.info.leader_epoch
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)

    @property
    def high_watermark(self) -> int:
        """The offset up to which clients may read, exclusive."""
        return self.log.high_watermark

    @property
    def settled(self) -> bool:
        """Whether the high watermark has reached what earlier leaders left, so that it may be told as the end."""
        return self.leading is None or self.log.high_watermark >= self.leading.epoch_start

    # Roles

    def lead(self, node_id: int, info: PartitionInfo, now: float) -> None:
        """Become the leader, or take up what the cluster has agreed on about the ISR."""
        leading = self.leading
        again = leading is not None and info.leader_epoch == leading.info.leader_epoch
        self.info = info
        if leading is not None and again:
            leading.changed(info, now)
        else:
            self.step_down()
            leading = self.leading = Leadership(node_id, info, self.log.log_end_offset, now)
            self.log.leader_epochs.assign(info.leader_epoch, self.log.log_end_offset)
        self.advance()

    def follow(self, info: PartitionInfo) -> None:
        """Become a follower, or hear of another leader."""
        self.info = info
        self.step_down()

    def step_down(self) -> None:
        """Lead no longer: whoever waits is told at once."""
        self.leading = None
        self._unread.clear()
        acks, self._acks = self._acks, deque()
        deletions, self._deletions = self._deletions, []
        waiters: list[asyncio.Future[Any]] = [waiter for _, waiter in acks]
        waiters += [waiter for _, waiter in deletions]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, _MOVED))
        self.wake()

    def wake(self) -> None:
        """Answer every fetch that waits."""
        for delayed in [*self.waiting, *self.following]:
            delayed.wake()

    # Append

    def append(self, records: Buffer, now_ms: int, *, internal: bool = False) -> AppendInfo:
        """Append batches that a client or the coordinator made.

        Raises:
            KafkaError: why nothing was appended.
        """
        leading, partition_log = self.leading, self.log
        if leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        info = partition_log.append_as_leader(
            records, leader_epoch=leading.info.leader_epoch, now_ms=now_ms, internal=internal
        )
        end = leading.log_end = partition_log.log_end_offset
        size = len(records)
        if leading.alone:
            partition_log.set_high_watermark(end)
            if self.waiting:
                for delayed in self.waiting:
                    delayed.appended(size)
        else:
            self._unread.append((end, size))
        for delayed in self.following:
            delayed.appended(size)
        return info

    @property
    def least_isr(self) -> int:
        """How many must be in sync for acks=all: ``min.insync.replicas``; a partition with fewer replicas needs all of
        them, as in Kafka."""
        return min(self.log.config[TOPIC_MIN_INSYNC_REPLICAS], len(self.info.replicas))

    def check_isr(self) -> None:
        """See that enough replicas are in sync for acks=all (``min.insync.replicas``).

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS.
        """
        needed = self.least_isr
        if len(self.info.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.info.isr)} is insufficient to satisfy the min.isr requirement "
                f"of {needed} for partition {self.log.topic_partition}",
            )

    def replicated(self, offset: int) -> "asyncio.Future[None] | None":
        """When the record at `offset` is in the log of the whole ISR.

        Returns:
            None: now. Else a future; KafkaError with NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR has become too
            small meanwhile, NOT_LEADER_OR_FOLLOWER when the leadership was lost.
        """
        if offset < self.log.high_watermark:
            return None
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acks.append((offset, waiter))
        return waiter

    def when_settled(self) -> "asyncio.Future[None] | None":
        """When the high watermark reaches what earlier leaders left; None: it has. To be asked before any append."""
        if self.leading is None or self.settled:
            return None
        return self.replicated(self.leading.epoch_start - 1)

    # Delete records

    def low_watermark(self, live: Iterable[int]) -> int:
        """Before which offset neither this broker nor a follower that lives has anything; -1: that is not known yet.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        if self.leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leading.low_watermark(self.log.log_start_offset, live)

    def deleted_everywhere(self, offset: int) -> "asyncio.Future[int]":
        """When the low watermark has reached `offset`: what it is then. KafkaError with NOT_LEADER_OR_FOLLOWER when the
        leadership is lost before."""
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._deletions.append((offset, waiter))
        # Followers hear of the new start at once, not only when their fetch has waited for long enough.
        for delayed in list(self.following):
            delayed.wake()
        return waiter

    def settle_deletions(self, live: Iterable[int]) -> None:
        """Answer those who wait for what followers have deleted by now."""
        if self._deletions:
            mark = self.low_watermark(live)
            for offset, waiter in self._deletions:
                if offset <= mark and not waiter.done():
                    waiter.set_result(mark)
            self._deletions = [each for each in self._deletions if not each[1].done()]

    # What followers tell

    def fetched_by(self, node_id: int, broker_epoch: int, offset: int, now: float, log_start: int = UNKNOWN) -> bool:
        """A follower fetches from `offset` on; its log begins at `log_start`.

        Returns:
            Whether it may now join the ISR.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, it is no replica.
        """
        leading = self.leading
        if leading is None or not leading.fetched(node_id, broker_epoch, offset, now, log_start):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.advance()
        return leading.may_join(node_id, self.log.high_watermark)

    def advance(self) -> None:
        """Move the high watermark up to where it may be, and set free what waits for that."""
        leading, partition_log = self.leading, self.log
        if leading is None:
            return
        mark = leading.high_watermark(partition_log.high_watermark)
        if mark > partition_log.high_watermark:
            partition_log.set_high_watermark(mark)
            size = 0
            while self._unread and self._unread[0][0] <= mark:
                size += self._unread.popleft()[1]
            for delayed in list(self.waiting):
                delayed.appended(size)
        if self._acks and self._acks[0][0] < mark:
            self._acknowledge(mark)

    def _acknowledge(self, mark: int) -> None:
        enough = len(self.info.isr) >= self.least_isr
        while self._acks and self._acks[0][0] < mark:
            waiter = self._acks.popleft()[1]
            if waiter.done():
                continue
            if enough:
                waiter.set_result(None)
            else:
                waiter.set_exception(
                    KafkaError(
                        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                        "Messages are written to the log, but to fewer in-sync replicas than required.",
                    )
                )
