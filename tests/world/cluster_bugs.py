"""Planted bugs: plausible mistakes, each of which the simulation must find."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.cluster import controller, etcd_store, kv, lifecycle
from barnabas_broker.cluster.controller import IsrChange, isr, leaders, topics
from barnabas_broker.cluster.image import BrokerInfo, Image, PartitionInfo
from barnabas_broker.cluster.kv import Created, Holds, KeyChanges, TxnOutcome
from barnabas_broker.cluster.lease_fence import Fence
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.replication import fetcher
from barnabas_broker.replication.following import PartitionFetchState
from barnabas_broker.replication.leadership import Leadership, Resignation
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import LogDirectory
from barnabas_protocol.errors import ErrorCode
from tests.witnesses import named
from tests.world.etcd import SimKv


def proposed_followers_do_not_count() -> AbstractContextManager[Any]:
    """The high watermark passes a follower that the cluster has added to the ISR before the leader learns of it."""

    def wrong(self: Leadership) -> None:
        self._others = frozenset(self.info.isr) - {self.node_id}
        self.alone = not self._others

    return patch.object(Leadership, "_count", wrong)


def a_proposal_is_forgotten_after_any_change() -> AbstractContextManager[Any]:
    """A leader forgets its proposal when other partitions of the topic change; the cluster accepts it later."""
    right = Leadership.changed

    def wrong(self: Leadership, info: PartitionInfo, now: float) -> None:
        self.proposed = None
        right(self, info, now)

    return patch.object(Leadership, "changed", wrong)


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


def fetches_count_for_the_node_id() -> AbstractContextManager[Any]:
    """A follower's state belongs to its node id, so that a broker that was replaced fetches for its replacement."""

    def fetched(self: Leadership, node_id: int, epoch: int, offset: int, now: float, log_start: int = -1) -> bool:
        follower = self.followers.get(node_id)
        if follower is None:
            return False
        follower.broker_epoch = max(follower.broker_epoch, epoch)
        follower.fetched(offset, log_start, self.log_end, now)
        return True

    def follower_fetched(
        self: ReplicaManager,
        replica: Replica,
        node_id: int,
        epoch: int,
        offset: int,
        log_start: int = -1,
        directory: str = "",
    ) -> None:
        if replica.fetched_by(node_id, epoch, offset, self._now(), log_start):
            self._caught_up(replica)

    right = fetcher.ReplicaFetcherManager.__init__

    def created(
        self: Any,
        config: Any,
        node_id: int,
        registered: Any,
        ended: Any,
        epoch: Callable[[], int],
        *more: Any,
        **named: Any,
    ) -> None:
        right(self, config, node_id, registered, ended, lambda: max(0, epoch()), *more, **named)

    stack = ExitStack()
    stack.enter_context(patch.object(fetcher.ReplicaFetcherManager, "__init__", created))
    stack.enter_context(patch.object(ReplicaManager, "follower_fetched", follower_fetched))
    stack.enter_context(patch.object(Leadership, "fetched", fetched))
    stack.enter_context(patch.object(Leadership, "registered", lambda self, node_id, epoch, now: None))
    return stack


def producer_ids_only_follow_the_metadata() -> AbstractContextManager[Any]:
    """Producer ids go on after the last one in the metadata, also if that was restored from a backup."""
    stack, right = ExitStack(), topics.allocate_producer_ids
    stack.enter_context(patch.object(controller, "allocate_producer_ids", lambda image, above: right(image)))
    stack.enter_context(patch.object(LogDirectory, "producer_ids", ()))
    return stack


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


def a_refusal_counts_for_the_next_registration() -> AbstractContextManager[Any]:
    """A broker whose process has ended was started again, and loses the lease of its new registration."""
    right = BrokerLifecycle.process_ended

    async def wrong(self: BrokerLifecycle, node_id: int, epoch: int) -> None:
        with suppress(kv.KvError):
            found = (await self._kv.range(self.live.broker_key(node_id))).entries
            await right(self, node_id, found[0].created if found else epoch)

    return patch.object(BrokerLifecycle, "process_ended", wrong)


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

    def wrong(partition: PartitionInfo, leader: int, isr: Sequence[int], *more: Any) -> PartitionInfo:
        changed = right(partition, leader, isr, *more)
        return PartitionInfo(
            changed.leader,
            partition.leader_epoch,
            *changed[2:],
        )

    right = leaders.led_by
    return patch.object(leaders, "led_by", wrong)


def unclean_election() -> AbstractContextManager[Any]:
    """Any live replica may lead."""
    right = leaders.choose

    def wrong(partition: PartitionInfo, live: Any, *, unclean: bool, min_isr: int) -> PartitionInfo | None:
        return right(partition, live, unclean=True, min_isr=min_isr)

    return patch.object(leaders, "choose", wrong)


def last_isr_member_is_removed() -> AbstractContextManager[Any]:
    """The ISR forgets its last members, which are the only ones with all records."""
    right = leaders.choose

    def wrong(partition: PartitionInfo, live: Any, *, unclean: bool, min_isr: int) -> PartitionInfo | None:
        changed = right(partition, live, unclean=unclean, min_isr=min_isr)
        if changed is not None and changed.leader == -1:
            return leaders.led_by(partition, -1, partition.replicas, 0)
        return changed

    return patch.object(leaders, "choose", wrong)


def directories_are_not_compared() -> AbstractContextManager[Any]:
    """A broker that returns with an empty disk counts as one that has lost nothing, and does not miss its logs."""
    right = leaders._has_lost

    def wrong(image: Image, broker: BrokerInfo) -> str | None:
        directory = right(image, broker)
        return directory if directory == broker.directory else None

    stack = ExitStack()
    stack.enter_context(patch.object(leaders, "_has_lost", wrong))
    stack.enter_context(patch.object(ReplicaManager, "lost", lambda self: []))
    return stack


def unclean_stops_are_forgotten() -> AbstractContextManager[Any]:
    """A broker that returns after an unclean stop counts as one that has lost nothing."""
    right = leaders._has_lost

    def wrong(image: Image, broker: BrokerInfo) -> str | None:
        directory = right(image, broker)
        return None if directory == broker.directory else directory

    return patch.object(leaders, "_has_lost", wrong)


def the_first_to_return_leads() -> AbstractContextManager[Any]:
    """A broker that returns counts as one that has lost nothing, whatever happened to it."""
    return patch.object(leaders, "_has_lost", lambda image, broker: None)


def no_replica_is_eligible_outside_of_the_isr() -> AbstractContextManager[Any]:
    """Replicas that leave an ISR that becomes too small are not eligible any more."""
    right = leaders.led_by

    def wrong(partition: PartitionInfo, leader: int, isr: Sequence[int], *more: Any) -> PartitionInfo:
        return right(partition, leader, isr, *more)._replace(elr=())

    return patch.object(leaders, "led_by", wrong)


def the_watermark_passes_eligible_replicas() -> AbstractContextManager[Any]:
    """The high watermark moves although other replicas still count as those with all committed records."""
    return patch.object(Replica, "_may_commit", True)


def the_first_report_decides() -> AbstractContextManager[Any]:
    """An election does not wait for the replicas that have not reported the ends of their logs."""
    right = leaders._best

    def wrong(partition: PartitionInfo, live: Any, *, late: bool) -> int | None:
        return right(partition, live, late=True)

    return patch.object(leaders, "_best", wrong)


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


def a_leader_resigns_in_favour_of_any_replica() -> AbstractContextManager[Any]:
    """A leader that no follower reaches lets a replica lead that is not in sync."""
    right = isr._alter

    def wanted(self: Leadership, since: float, min_isr: int, live: Any) -> Resignation | None:
        silent = [
            node
            for node, follower in self.followers.items()
            if node in live and max(follower.fetched_at, follower.caught_up_at) < since
        ]
        named = tuple(sorted(silent, key=lambda n: n in self.info.isr))
        return Resignation(named, enough=True) if len(silent) > 1 else None

    def altered(image: Image, node_id: int, change: IsrChange) -> PartitionInfo | ErrorCode:
        nodes = [node for node, _ in change.isr]
        partition = image.topics[change.topic].partitions[change.partition]
        if node_id in nodes or partition.leader != node_id:
            return right(image, node_id, change)
        return leaders.led_by(partition, nodes[0], nodes, 0)

    stack = ExitStack()
    stack.enter_context(patch.object(Leadership, "wanted_without_me", wanted))
    stack.enter_context(patch.object(isr, "_alter", altered))
    return stack


def lost_records_are_dropped_while_the_replica_is_in_sync() -> AbstractContextManager[Any]:
    """A follower removes what it cannot read, and what follows, while others take it for whole."""
    right = Replica.follow

    def wrong(self: Replica, info: PartitionInfo) -> None:
        right(self, info)
        damage = self.log.unreadable
        if damage is not None and self.log.loss is None and info.leader >= 0:
            self.log.truncate_to(damage.offset)

    stack = ExitStack()
    stack.enter_context(patch.object(Replica, "follow", wrong))
    stack.enter_context(patch.object(ReplicaManager, "_found_damage", lambda self, where, damage: None))
    return stack


def a_clean_stop_outweighs_missing_files() -> AbstractContextManager[Any]:
    """A broker that was stopped cleanly registers as one that has lost nothing, whatever is on its disk."""
    return patch.object(ReplicaManager, "lost", lambda self: [])


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


BUGS: Final = named(
    proposed_followers_do_not_count,
    a_proposal_is_forgotten_after_any_change,
    followers_proposed_for_removal_do_not_count,
    followers_join_too_early,
    fetches_count_for_the_node_id,
    producer_ids_only_follow_the_metadata,
    high_watermark_is_the_leaders_end,
    acknowledged_when_appended,
    fence_is_ignored,
    lease_is_trusted_for_too_long,
    a_refusal_counts_for_the_next_registration,
    restarted_broker_leads_at_once,
    truncation_is_skipped,
    truncation_goes_to_the_high_watermark,
    leader_epochs_are_not_compared,
    leader_epoch_stays,
    unclean_election,
    last_isr_member_is_removed,
    directories_are_not_compared,
    unclean_stops_are_forgotten,
    the_first_to_return_leads,
    no_replica_is_eligible_outside_of_the_isr,
    the_watermark_passes_eligible_replicas,
    the_first_report_decides,
    appends_compare_nothing,
    appends_are_not_fenced,
    watch_continues_with_a_gap,
    broken_watch_is_not_set_up_again,
    a_leader_resigns_in_favour_of_any_replica,
    lost_records_are_dropped_while_the_replica_is_in_sync,
    a_clean_stop_outweighs_missing_files,
)
