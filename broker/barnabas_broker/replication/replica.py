"""A partition's log on this broker, as leader or follower, with everything that waits for it (Kafka's ``Partition``).

A fetch that finds too little data waits as a :class:`DelayedFetch`. Bytes that become readable are counted into the
fetches that wait, which wake up when they have enough, so nothing polls. Consumers wait for the high watermark, or with
`read_committed` for the last stable offset, followers for the log end offset.
"""

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable

from barnabas_broker.cluster.image import PartitionInfo
from barnabas_broker.config import TopicConfig
from barnabas_broker.replication.leadership import UNKNOWN, Leadership
from barnabas_broker.storage import AppendInfo, Log
from barnabas_broker.storage.log import MARKER_SIZE
from barnabas_broker.storage.producer_state import ANY_PRODUCER_ID, Verification
from barnabas_broker.storage.waiters import OffsetWaiters
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.wire import Buffer


class DelayedFetch:
    """A fetch that waits for data.

    Args:
        min_bytes: how much it waits for.

    Attributes:
        missing: how much is still missing.
        woken: done when there is enough, or when waiting is over.
    """

    __slots__ = ("missing", "woken")

    def __init__(self, min_bytes: int) -> None:
        self.missing = min_bytes
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def appended(self, size: int) -> None:
        """Count `size` bytes; wake up when that is enough."""
        self.missing -= size
        if self.missing <= 0:
            self.wake()

    def wake(self) -> None:
        """Stop waiting."""
        if not self.woken.done():
            self.woken.set_result(None)


class Replica:
    """A partition's log on this broker.

    Attributes:
        log: the log.
        info: the partition in the cluster image.
        min_isr: the smallest ISR for acks=all: ``min.insync.replicas``, but not more than the partition has replicas.
        leading: the leadership while this broker leads the partition; otherwise None.
        lost_since: the leader epoch in which the log was found to have lost records: in that one and earlier ones the
            leader may count what this broker has fetched before. -1 if the start of the broker has found it, because
            its registration ends that.
        waiting: consumers' fetches, which wait for the high watermark.
        waiting_committed: `read_committed` consumers' fetches, which wait for the last stable offset.
        following: followers' fetches, which wait for the log end offset.
    """

    __slots__ = (
        "_acks",
        "_deletions",
        "_settling",
        "_stable",
        "_uncommitted",
        "following",
        "info",
        "leading",
        "log",
        "lost_since",
        "min_isr",
        "waiting",
        "waiting_committed",
    )

    def __init__(self, partition_log: Log, info: PartitionInfo) -> None:
        self.log = partition_log
        self._describe(info)
        self.leading: Leadership | None = None
        self.lost_since = -1
        self.waiting: dict[DelayedFetch, None] = {}
        self.waiting_committed: dict[DelayedFetch, None] = {}
        self.following: dict[DelayedFetch, None] = {}
        #: The last stable offset up to which bytes were counted into `waiting_committed`, while there are any.
        self._stable = 0
        #: Appends beyond the high watermark: the offset after each, and its bytes.
        self._uncommitted: deque[tuple[int, int]] | None = None
        #: Acknowledgements that wait for the high watermark.
        self._acks: OffsetWaiters[None] = OffsetWaiters()
        #: What :meth:`when_settled` has returned, while it is not done.
        self._settling: asyncio.Future[None] | None = None
        #: DeleteRecords requests that wait for the low watermark.
        self._deletions: OffsetWaiters[int] = OffsetWaiters()

    def configure(self, config: TopicConfig) -> None:
        """Apply a new configuration of the topic."""
        self.log.configure(config)
        self._describe(self.info)
        self.advance()

    def _describe(self, info: PartitionInfo) -> None:
        """Set what follows from the cluster image and the topic's configuration."""
        self.info = info
        self.min_isr = min(self.log.settings.min_insync_replicas, len(info.replicas))

    @property
    def leader_epoch(self) -> int:
        """The epoch of the present leader."""
        return self.info.leader_epoch

    def check_epoch(self, epoch: int) -> None:
        """Compare the leader epoch that a client knows with the present one; -1 is not compared (KIP-320).

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
        """Whether the high watermark covers the records of earlier leaders, so that it may be reported as the end."""
        return self.leading is None or self.log.high_watermark >= self.leading.epoch_start

    # Roles

    def lead(self, node_id: int, info: PartitionInfo, now: float) -> None:
        """Become the leader; in the same leader epoch, take over a new ISR or new replicas."""
        leading = self.leading
        again = leading is not None and info.leader_epoch == leading.info.leader_epoch
        self._describe(info)
        if leading is not None and again:
            leading.changed(info, now)
        else:
            self.step_down()
            leading = self.leading = Leadership(node_id, info, self.log.log_end_offset, now)
            self.log.leader_epochs.assign(info.leader_epoch, self.log.log_end_offset)
        self.advance()

    def follow(self, info: PartitionInfo) -> None:
        """Become a follower, or follow another leader."""
        self._describe(info)
        self.step_down()

    def step_down(self) -> None:
        """Stop leading. Requests that wait are answered NOT_LEADER_OR_FOLLOWER."""
        self.leading = None
        self._uncommitted = None
        self.refuse_waiting("This broker does not lead the partition any more.")
        self._settle()

    def refuse_waiting(self, reason: str) -> None:
        """Answer requests that wait NOT_LEADER_OR_FOLLOWER, so that clients look for another leader. What was appended
        stays: the next leader may have it."""
        self._acks.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        self._deletions.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        self.wake()

    def wake(self) -> None:
        """Wake every fetch that waits."""
        for delayed in [*self.waiting, *self.waiting_committed, *self.following]:
            delayed.wake()

    def wait_committed(self, delayed: DelayedFetch) -> None:
        """Let a `read_committed` consumer's fetch wait for the last stable offset."""
        if not self.waiting_committed:
            self._stable = self.log.last_stable_offset
        self.waiting_committed[delayed] = None

    def _count_stable(self, before: int, size: int) -> None:
        """Count what has become stable into the fetches that wait for it.

        Args:
            before: the high watermark before it moved.
            size: the bytes by which it moved.
        """
        partition_log, since = self.log, self._stable
        stable = partition_log.last_stable_offset
        if stable <= since:
            return
        if since != before or stable != partition_log.high_watermark:
            size = partition_log.size_between(since, stable)
        self._stable = stable
        for delayed in list(self.waiting_committed):
            delayed.appended(size)

    # Append

    def append(
        self,
        records: Buffer,
        now_ms: int,
        *,
        internal: bool = False,
        keys_checked: bool = False,
        verification: Verification | None = None,
        principal: Hashable = None,
        producer_id_limit: int = ANY_PRODUCER_ID,
    ) -> AppendInfo:
        """Append batches of a client or of a coordinator; as :meth:`.Log.append_as_leader`.

        Raises:
            KafkaError: nothing was appended.
        """
        leading = self.leading
        if leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        info = self.log.append_as_leader(
            records,
            leader_epoch=leading.info.leader_epoch,
            now_ms=now_ms,
            internal=internal,
            keys_checked=keys_checked,
            verification=verification,
            principal=principal,
            producer_id_limit=producer_id_limit,
        )
        self._appended(leading, len(records))
        return info

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        producer_id_limit: int = ANY_PRODUCER_ID,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction; as :meth:`.Log.append_marker`.

        Raises:
            KafkaError: nothing was appended.
        """
        leading = self.leading
        if leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        info = self.log.append_marker(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
            leader_epoch=leading.info.leader_epoch,
            now_ms=now_ms,
            producer_id_limit=producer_id_limit,
        )
        self._appended(leading, MARKER_SIZE)
        return info

    def _appended(self, leading: Leadership, size: int) -> None:
        """Tell of an append of `size` bytes those that wait for it."""
        partition_log = self.log
        before, end = partition_log.high_watermark, partition_log.log_end_offset
        leading.log_end = end
        if leading.alone and self._may_commit:
            partition_log.set_high_watermark(end)
            if self.waiting:
                for delayed in self.waiting:
                    delayed.appended(size)
            if self.waiting_committed:
                self._count_stable(before, size)
        else:
            if self._uncommitted is None:
                self._uncommitted = deque()
            self._uncommitted.append((end, size))
        for delayed in self.following:
            delayed.appended(size)

    @property
    def _may_commit(self) -> bool:
        """Whether the high watermark may move: the ISR is large enough, and no other replica counts as one that has all
        committed records (KIP-966)."""
        return not self.info.elr and len(self.info.isr) >= self.min_isr

    def outgrows_elr(self) -> bool:
        """Whether this broker leads, and the ISR is large enough to end the eligibility of other replicas."""
        return self.leading is not None and bool(self.info.elr) and len(self.info.isr) >= self.min_isr

    def counts(self, node_id: int) -> bool:
        """Whether the cluster takes the replica on broker `node_id` for one that has all committed records."""
        info = self.info
        return node_id in info.isr or node_id in info.elr

    def may_drop(self, node_id: int) -> bool:
        """Whether this replica, on broker `node_id`, may remove records from the first lost one on.

        There is a leader to fetch them from, and no broker takes this replica for whole: the image does not, and no
        leader can still propose it for the ISR by what it has fetched in an earlier leader epoch.
        """
        info = self.info
        leader = info.leader not in (-1, node_id)
        return leader and not self.counts(node_id) and info.leader_epoch > self.lost_since

    def is_awaited(self, node_id: int, directory: str) -> bool:
        """Whether an election waits for the end of this log, on the broker `node_id` with this directory."""
        return self.info.leader == -1 and any(
            each.node_id == node_id and each.directory in ("", directory) and each.end < 0
            for each in self.info.last_known
        )

    def check_isr(self) -> None:
        """Check before an append with acks=all that enough replicas are in sync (``min.insync.replicas``).

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS.
        """
        if len(self.info.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.info.isr)} is insufficient to satisfy the min.isr requirement "
                f"of {self.min_isr} for partition {self.log.topic_partition}",
            )

    def unacknowledged(self, offset: int, *, acks_all: bool) -> "list[asyncio.Future[None]]":
        """The futures that an acknowledgement of the record at `offset` waits for: an fsync, the in-sync replicas.

        Args:
            offset: the last record to acknowledge.
            acks_all: whether the in-sync replicas must have it, too.

        Returns:
            Futures; none if it may be acknowledged now. See :meth:`.Log.durable` and :meth:`replicated` for their
            errors.
        """
        conditions = []
        if (durable := self.log.durable(offset)) is not None:
            conditions.append(durable)
        if acks_all and (replicated := self.replicated(offset)) is not None:
            conditions.append(replicated)
        return conditions

    def replicated(self, offset: int) -> "asyncio.Future[None] | None":
        """When the record at `offset` is in the logs of the whole ISR, and this is large enough.

        An ISR that has become too small fails nothing, as in Kafka since 3.7: followers that lag for a moment leave the
        ISR and return. A producer that received NOT_ENOUGH_REPLICAS_AFTER_APPEND would send what is in the log again,
        and librdkafka may do so with a new epoch, with which no broker recognises it.

        Returns:
            None if it is. Otherwise a future, which fails with KafkaError NOT_LEADER_OR_FOLLOWER if the leadership is
            lost.
        """
        return None if offset < self.log.high_watermark else self._acks.wait(offset + 1)

    def when_settled(self) -> "asyncio.Future[None] | None":
        """When the high watermark covers the records of earlier leaders, or cannot soon: too few replicas are in sync,
        or the leadership is lost. None if so now."""
        if not self._settles:
            return None
        if self._settling is None:
            self._settling = asyncio.get_running_loop().create_future()
        return asyncio.shield(self._settling)

    @property
    def _settles(self) -> bool:
        """Whether the high watermark is expected to cover the records of earlier leaders, and does not yet."""
        return not self.settled and len(self.info.isr) >= self.min_isr

    def _settle(self) -> None:
        """Tell those that wait for :meth:`when_settled` if they need not wait any more."""
        if self._settling is not None and not self._settles:
            self._settling.set_result(None)
            self._settling = None

    # Delete records

    def low_watermark(self, live: Iterable[int]) -> int:
        """The smallest log start offset among live replicas (KIP-107); -1 while one of them has not fetched.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        if self.leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leading.low_watermark(self.log.log_start_offset, live)

    def deleted_everywhere(self, offset: int) -> "asyncio.Future[int]":
        """The low watermark once it has reached `offset`; fails with NOT_LEADER_OR_FOLLOWER if leadership is lost."""
        waiter = self._deletions.wait(offset)
        # Send the new log start offset to followers now, instead of when their fetch times out.
        for delayed in list(self.following):
            delayed.wake()
        return waiter

    def complete_deletions(self, live: Iterable[int]) -> None:
        """Answer the DeleteRecords requests whose records all live replicas have deleted."""
        if self._deletions:
            mark = self.low_watermark(live)
            self._deletions.complete(mark, mark)

    # Followers

    def fetched_by(self, node_id: int, broker_epoch: int, offset: int, now: float, log_start: int = UNKNOWN) -> bool:
        """A follower fetches from `offset` on; its log begins at `log_start`.

        Returns:
            Whether it may join the ISR.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, it is not a replica.
        """
        leading = self.leading
        if leading is None or not leading.fetched(node_id, broker_epoch, offset, now, log_start):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.advance()
        return leading.may_join(node_id, self.log.high_watermark)

    def advance(self) -> None:
        """Move the high watermark as far as it may go, and complete what waits for it."""
        leading, partition_log = self.leading, self.log
        if leading is None:
            return
        mark = leading.high_watermark(partition_log.high_watermark)
        if mark > (before := partition_log.high_watermark) and self._may_commit:
            partition_log.set_high_watermark(mark)
            size = 0
            while self._uncommitted and self._uncommitted[0][0] <= mark:
                size += self._uncommitted.popleft()[1]
            for delayed in list(self.waiting):
                delayed.appended(size)
            if self.waiting_committed:
                self._count_stable(before, size)
        if self._acks.reached(mark) and self._may_commit:
            self._acks.complete(mark, None)
        self._settle()
