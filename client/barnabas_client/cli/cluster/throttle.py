"""Limits the rate at which replicas are copied, by the keys that kafka-reassign-partitions sets (KIP-73).

Topics name the throttled replicas, brokers have the rates. Barnabas brokers do not have these keys.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import AlterConfigOp, ConfigOp, ConfigResource, ConfigSource
from barnabas_client.cli.cluster.placement import Placement
from barnabas_client.cli.failures import CommandError
from barnabas_client.structs import TopicPartition

_LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_REPLICAS: Final = (_LEADER_REPLICAS, _FOLLOWER_REPLICAS)
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


async def require(admin: Admin, topic: str) -> None:
    """Check that the brokers throttle replication.

    Args:
        admin: of the cluster.
        topic: any topic of it.

    Raises:
        CommandError: they do not.
        KafkaError: the topic's configuration cannot be described.
    """
    if not await _is_supported(admin, topic):
        raise CommandError(
            f"--throttle: these brokers cannot limit the rate of replication, because they do not have the key "
            f"{_LEADER_REPLICAS}. To do: leave --throttle out, and move few partitions at a time with --batch N"
        )


async def throttle(
    admin: Admin, placement: Mapping[TopicPartition, tuple[int, ...]], plan: Placement, rate: int
) -> None:
    """Throttle the replicas that a plan copies.

    Args:
        admin: of the cluster.
        placement: the present replicas.
        plan: the new replicas.
        rate: bytes per second and broker, in and out.

    Raises:
        KafkaError: a configuration could not be changed.
    """
    leaders: defaultdict[str, list[str]] = defaultdict(list)
    followers: defaultdict[str, list[str]] = defaultdict(list)
    nodes: set[int] = set()
    for tp, replicas in plan.items():
        before = placement[tp]
        leaders[tp.topic] += [f"{tp.partition}:{node}" for node in before]
        followers[tp.topic] += [f"{tp.partition}:{node}" for node in replicas if node not in before]
        nodes |= {*before, *replicas}
    live = {node.node_id for node in (await admin.describe_cluster()).brokers}
    changes: dict[ConfigResource, list[AlterConfigOp]] = {
        ConfigResource.broker(node): [AlterConfigOp(key, str(rate)) for key in _RATES] for node in sorted(nodes & live)
    }
    for topic, throttled in leaders.items():
        changes[ConfigResource.topic(topic)] = [
            AlterConfigOp(_LEADER_REPLICAS, ",".join(throttled)),
            AlterConfigOp(_FOLLOWER_REPLICAS, ",".join(followers[topic])),
        ]
    await admin.incremental_alter_configs(changes)


async def lift(admin: Admin, topics: Iterable[str]) -> bool:
    """Remove the throttles of topics, and the rates of all brokers; returns whether there were any.

    Raises:
        KafkaError: a configuration could not be read or changed.
    """
    resources = [ConfigResource.topic(name) for name in topics]
    configs = await admin.describe_configs(resources, _REPLICAS, raise_errors=False) if resources else []
    throttled = [
        one.resource for one in configs if any(entry.source is ConfigSource.TOPIC for entry in one.entries.values())
    ]
    if not throttled:
        return False
    nodes = [ConfigResource.broker(node.node_id) for node in (await admin.describe_cluster()).brokers]
    await admin.incremental_alter_configs(
        {
            **{one: [AlterConfigOp(key, None, ConfigOp.DELETE) for key in _REPLICAS] for one in throttled},
            **{one: [AlterConfigOp(key, None, ConfigOp.DELETE) for key in _RATES] for one in nodes},
        }
    )
    return True


async def _is_supported(admin: Admin, topic: str) -> bool:
    (found,) = await admin.describe_configs([ConfigResource.topic(topic)], [_LEADER_REPLICAS])
    return _LEADER_REPLICAS in found.entries
