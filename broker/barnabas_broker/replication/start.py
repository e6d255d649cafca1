"""Starts the replicas of a broker in a cluster: they follow their leaders, and those that lead keep their ISR."""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from barnabas_broker.clock import wall_ms
from barnabas_broker.cluster.controller import (
    IsrChange,
    LogEnd,
    Withdrawal,
    alter_isr,
    report_log_ends,
    withdraw,
)
from barnabas_broker.cluster.image import BrokerRegistered, Event, Image
from barnabas_broker.cluster.member import ClusterMember
from barnabas_broker.conditions import Conditions
from barnabas_broker.config import Config
from barnabas_broker.config.keys import INTER_BROKER_LISTENER_NAME
from barnabas_broker.logs import logger
from barnabas_broker.replication.alter_partition import AlterPartitionManager
from barnabas_broker.replication.connection import BrokerSecurity
from barnabas_broker.replication.fetcher import Registered, ReplicaFetcherManager
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.retreat import Retreat

log = logger("broker")


def start_replication(
    stack: AsyncExitStack,
    config: Config,
    node_id: int,
    member: ClusterMember,
    replicas: ReplicaManager,
    security: BrokerSecurity,
    conditions: Conditions,
) -> None:
    """Host partitions in a cluster: follow their leaders, and keep the ISR of the partitions that are led here."""
    cluster, lifecycle = member.cluster, member.lifecycle
    between = config[INTER_BROKER_LISTENER_NAME]

    def registered(leader: int) -> Registered | None:
        broker = cluster.image.brokers.get(leader)
        if broker is None or between not in broker.endpoints:
            return None
        return Registered(*broker.endpoints[between], broker.epoch)

    def check_listener(image: Image, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, BrokerRegistered) and between not in event.endpoints:
                log.error(
                    "broker cannot be followed: it has no such listener, see inter.broker.listener.name",
                    leader=event.node_id,
                    listener=between,
                    listeners=",".join(event.endpoints),
                )

    async def propose(changes: Sequence[IsrChange]) -> None:
        await cluster.change(lambda image: alter_isr(image, node_id, lifecycle.epoch, changes))

    async def report(ends: Sequence[LogEnd]) -> None:
        await cluster.change(lambda image: (report_log_ends(image, node_id, lifecycle.epoch, ends), None))

    async def leave(withdrawals: Sequence[Withdrawal]) -> None:
        def decide(image: Image) -> tuple[Sequence[Event], bool]:
            events = withdraw(image, node_id, lifecycle.epoch, withdrawals)
            return events, bool(events)

        while await cluster.change(decide):
            pass

    check_listener(cluster.image, cluster.image.snapshot())
    cluster.subscribe(check_listener)
    fetchers = ReplicaFetcherManager(
        config,
        node_id,
        registered,
        lifecycle.process_ended,
        lambda: lifecycle.epoch,
        lifecycle.me.directory,
        wall_ms,
        security,
        may_fetch=lambda: not retreat.active,
    )
    stack.push_async_callback(fetchers.close)
    retreat = Retreat(
        replicas.directory,
        node_id,
        lambda: cluster.image,
        member.min_isr,
        leave,
        fetchers.resume,
        time.monotonic,
    )
    stack.push_async_callback(retreat.close)
    isr = AlterPartitionManager(replicas, config, lambda: cluster.image.brokers, propose, report, leave, time.monotonic)
    stack.push_async_callback(isr.close)
    replicas.start(cluster.image, fetchers.follow, isr.caught_up)
    lifecycle.lost = replicas.lost
    fetchers.image_changed(cluster.image, cluster.image.snapshot())
    cluster.subscribe(fetchers.image_changed)
    cluster.subscribe(retreat.image_changed)
    conditions.add(retreat.conditions)
