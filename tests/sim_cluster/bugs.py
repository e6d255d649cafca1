"""Planted bugs: plausible mistakes, each of which the simulation must find."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.cluster import etcd_store, kv, lifecycle
from barnabas_broker.cluster.controller import leaders
from barnabas_broker.cluster.fence import Fence
from barnabas_broker.cluster.image import PartitionInfo
from barnabas_broker.cluster.kv import Created, Holds, KeyChanges, TxnOutcome
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.replication import fetcher
from barnabas_broker.replication.following import PartitionFetchState
from barnabas_broker.replication.leadership import Leadership
from barnabas_broker.replication.replica import Replica
from tests.sim_cluster.etcd import SimKv

Plant = Callable[[], AbstractContextManager[Any]]


def proposed_followers_do_not_count() -> AbstractContextManager[Any]:
    """The high watermark passes a follower that the cluster has added to the ISR before the leader learns of it."""

    def wrong(self: Leadership) -> None:
        self._others = frozenset(self.info.isr) - {self.node_id}
        self.alone = not self._others

    return patch.object(Leadership, "_count", wrong)


def followers_proposed_for_removal_do_not_count() -> AbstractContextManager[Any]:
    """The high watermark passes a follower before the cluster has removed it from the ISR."""

    def wrong(self: Leadership) -> None:
        self._others = frozenset(self.proposed or self.info.isr) - {self.node_id}
        self.alone = not self._others

    return patch.object(Leadership, "_count", wrong)


def followers_join_too_early() -> AbstractContextManager[Any]:
    """A follower joins the ISR without having caught up."""

    def wrong(self: Leadership, node_id: int, high_watermark: int) -> bool:
        return self.proposed is None and node_id not in self.info.isr and node_id in self.followers

    return patch.object(Leadership, "may_join", wrong)


def high_watermark_is_the_leaders_end() -> AbstractContextManager[Any]:
    """The high watermark does not wait for followers."""
    return patch.object(Leadership, "high_watermark", lambda self, known: self.log_end)


def acknowledged_when_appended() -> AbstractContextManager[Any]:
    """acks=all is answered at once."""
    return patch.object(Replica, "replicated", lambda self, offset: None)


def fence_is_ignored() -> AbstractContextManager[Any]:
    """A broker serves however long ago its lease was renewed."""
    return patch.object(Fence, "is_open", lambda self, now: True)


def lease_is_trusted_for_too_long() -> AbstractContextManager[Any]:
    """A broker trusts its lease for a little longer than the session."""
    right = Fence.renewed

    def wrong(self: Fence, sent: float) -> None:
        right(self, sent + self._seconds * 0.5)

    return patch.object(Fence, "renewed", wrong)


def restarted_broker_leads_at_once() -> AbstractContextManager[Any]:
    """A restarted broker leads the partitions of its earlier run, in the same leader epoch."""
    return patch.object(BrokerLifecycle, "may_serve", lambda self: self._fence.is_open(self._now()))


def truncation_is_skipped() -> AbstractContextManager[Any]:
    """A follower does not send its last epoch, so the leader does not detect that its log diverges."""

    def wrong(leader_epoch: int, offset: int, last_epoch: int, log_start_offset: int) -> PartitionFetchState:
        return PartitionFetchState(leader_epoch, offset, -1, log_start_offset)

    return patch.object(fetcher, "PartitionFetchState", wrong)


def truncation_goes_to_the_high_watermark() -> AbstractContextManager[Any]:
    """A follower truncates its log to its high watermark, and is elected (KIP-101)."""
    right = Replica.follow

    def wrong(self: Replica, info: PartitionInfo) -> None:
        right(self, info)
        self.log.truncate_to(self.log.high_watermark)

    return patch.object(Replica, "follow", wrong)


def leader_epochs_are_not_compared() -> AbstractContextManager[Any]:
    """A leader accepts fetches with any leader epoch."""
    return patch.object(Replica, "check_epoch", lambda self, epoch: None)


def leader_epoch_stays() -> AbstractContextManager[Any]:
    """A new leader leads in the leader epoch of the last."""

    def wrong(partition: PartitionInfo, leader: int, isr: Sequence[int]) -> PartitionInfo:
        changed = right(partition, leader, isr)
        return PartitionInfo(
            changed.leader,
            partition.leader_epoch,
            changed.replicas,
            changed.isr,
            changed.partition_epoch,
        )

    right = leaders.led_by
    return patch.object(leaders, "led_by", wrong)


def unclean_election() -> AbstractContextManager[Any]:
    """Any live replica may lead."""
    right = leaders.choose

    def wrong(partition: PartitionInfo, live: Any, *, unclean: bool) -> PartitionInfo | None:
        return right(partition, live, unclean=True)

    return patch.object(leaders, "choose", wrong)


def last_isr_member_is_removed() -> AbstractContextManager[Any]:
    """The ISR forgets its last members, which are the only ones with all records."""
    right = leaders.choose

    def wrong(partition: PartitionInfo, live: Any, *, unclean: bool) -> PartitionInfo | None:
        changed = right(partition, live, unclean=unclean)
        if changed is not None and changed.leader == -1:
            return leaders.led_by(partition, -1, partition.replicas)
        return changed

    return patch.object(leaders, "choose", wrong)


def appends_compare_nothing() -> AbstractContextManager[Any]:
    """Of two concurrent changes of the metadata one overwrites the other."""
    right = SimKv.txn

    async def wrong(self: SimKv, conditions: Any, then: Any, otherwise: Any = ()) -> TxnOutcome:
        kept = [c for c in conditions if not (isinstance(c, Holds) and c.key.endswith("/head"))]
        return await right(self, kept, then, otherwise)

    return patch.object(SimKv, "txn", wrong)


def appends_are_not_fenced() -> AbstractContextManager[Any]:
    """A broker without a registration changes the metadata."""
    right = SimKv.txn

    async def wrong(self: SimKv, conditions: Any, then: Any, otherwise: Any = ()) -> TxnOutcome:
        kept = [c for c in conditions if not (isinstance(c, Created) and "/live/" in c.key and c.revision)]
        return await right(self, kept, then, otherwise)

    return patch.object(SimKv, "txn", wrong)


def watch_continues_with_a_gap() -> AbstractContextManager[Any]:
    """A broken watch continues with new changes and skips those in between."""

    async def wrong(self: SimKv, start: str, end: str, after: int) -> AsyncIterator[KeyChanges]:
        async for changes in right(self, start, end, max(after, self._etcd.model.revision)):
            yield changes

    right = SimKv.watch
    return patch.object(SimKv, "watch", wrong)


def broken_watch_is_not_set_up_again() -> AbstractContextManager[Any]:
    """A broken watch stays silent for ever."""

    async def wrong(of: Any, start: str, end: str, after: int) -> AsyncIterator[KeyChanges]:
        try:
            async for changes in of.watch(start, end, after):
                yield changes
        except kv.KvUnavailable:
            await asyncio.Event().wait()

    stack = ExitStack()
    stack.enter_context(patch.object(etcd_store, "follow", wrong))
    stack.enter_context(patch.object(lifecycle, "follow", wrong))
    return stack


BUGS: Final[dict[str, Plant]] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        proposed_followers_do_not_count,
        followers_proposed_for_removal_do_not_count,
        followers_join_too_early,
        high_watermark_is_the_leaders_end,
        acknowledged_when_appended,
        fence_is_ignored,
        lease_is_trusted_for_too_long,
        restarted_broker_leads_at_once,
        truncation_is_skipped,
        truncation_goes_to_the_high_watermark,
        leader_epochs_are_not_compared,
        leader_epoch_stays,
        unclean_election,
        last_isr_member_is_removed,
        appends_compare_nothing,
        appends_are_not_fenced,
        watch_continues_with_a_gap,
        broken_watch_is_not_set_up_again,
    )
}
