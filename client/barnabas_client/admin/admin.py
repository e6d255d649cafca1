"""The admin client: topics, configurations, groups, offsets and the cluster.

A call about several things answers for each: what could be done is done, and the first refusal is raised after that,
with the others as its notes; ``raise_errors=False`` gives the results instead, each with its `error`. Names are
aiokafka's where aiokafka has them, else those of Kafka's ``Admin.java``.
"""

from collections.abc import Mapping

from barnabas_client.admin.base import raise_first
from barnabas_client.admin.configs import ConfigAdmin
from barnabas_client.admin.groups import GroupAdmin
from barnabas_client.admin.topics import TopicAdmin
from barnabas_client.admin.types import ClusterDescription, ListedOffset, OffsetSpec
from barnabas_client.errors import UnsupportedVersionError, error_for
from barnabas_client.membership.consumer_protocol import by_topic
from barnabas_client.network.metadata import Broker, Cluster
from barnabas_client.network.network import Purpose
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_protocol.registry import ApiKey

__all__ = ["Admin"]

#: The version of ListOffsets that knows the newest timestamp (KIP-734).
_MAX_TIMESTAMP_VERSION = 7


class Admin(TopicAdmin, ConfigAdmin, GroupAdmin):
    """Manages topics, configurations and groups.

    ::

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("flights", num_partitions=6)])

    Settings are explained at :class:`~barnabas_client.config.ClientConfig`.
    """

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        timeout_ms: int | None = None,
        *,
        read_committed: bool = False,
        raise_errors: bool = True,
    ) -> dict[TopicPartition, ListedOffset]:
        """Look up offsets at the leaders of the partitions.

        Args:
            specs: for each partition what to look for: the earliest, the latest, the newest timestamp, or the first
                record at or after a time in milliseconds since 1970.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            read_committed: whether the latest is that of finished transactions.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
            KafkaError: it cannot be looked up otherwise.
        """
        network, milliseconds = self._running(), self._milliseconds(timeout_ms)

        async def ask(
            cluster: Cluster, leader: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, ListedOffset | KafkaError]:
            if any(specs[tp] == OffsetSpec.MAX_TIMESTAMP for tp in partitions):
                await self._need(leader, ApiKey.LIST_OFFSETS, _MAX_TIMESTAMP_VERSION, "the newest timestamp")
            request = _list_request(cluster, {tp: specs[tp] for tp in partitions}, read_committed, milliseconds)
            response = await network.ask(leader, request, ListOffsetsResponse)
            found: dict[TopicPartition, ListedOffset | KafkaError] = {}
            for topic in response.topics:
                for one in topic.partitions:
                    tp = TopicPartition(topic.name, one.partition_index)
                    if one.error_code != ErrorCode.NONE:
                        found[tp] = error_for(one.error_code, f"list offsets of {tp}")
                    else:
                        found[tp] = ListedOffset(one.offset, one.timestamp, one.leader_epoch)
            return found

        listed = await self._ask_leaders("list offsets of", list(specs), ask, milliseconds)
        results = {tp: ListedOffset(error=one) if isinstance(one, KafkaError) else one for tp, one in listed.items()}
        if raise_errors:
            raise_first(results.values())
        return results

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        Raises:
            KafkaError: no broker answers.
        """
        network = self._running()
        try:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            response = await network.ask_any(request, DescribeClusterResponse)
        except UnsupportedVersionError:
            # Before Kafka 2.8 metadata told the same (KIP-700).
            cluster = await network.refresh()
            brokers = tuple(cluster.brokers[node] for node in sorted(cluster.brokers))
            return ClusterDescription(cluster.cluster_id or "", cluster.controller_id, brokers)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, "describe the cluster", response.error_message)
        told = sorted(response.brokers, key=lambda broker: broker.broker_id)
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            tuple(Broker(broker.broker_id, broker.host, broker.port, broker.rack) for broker in told),
        )

    async def _need(self, node: int, key: ApiKey, version: int, what: str) -> None:
        connection = await self._running().connection(node, Purpose.DATA)
        known = connection.versions.get(key)
        if known is None or known.high < version:
            raise UnsupportedVersionError(
                f"{key.name}: broker {node} cannot tell {what}, it lacks version {version}. To do: use a newer broker"
            )


def _list_request(
    cluster: Cluster, times: Mapping[TopicPartition, int], read_committed: bool, timeout_ms: int
) -> ListOffsetsRequest:
    def partition(tp: TopicPartition) -> ListOffsetsPartition:
        info = cluster.partition(tp)
        epoch = -1 if info is None else info.leader_epoch
        return ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=epoch, timestamp=times[tp])

    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[
            ListOffsetsTopic(name=topic, partitions=[partition(TopicPartition(topic, number)) for number in numbers])
            for topic, numbers in by_topic(times)
        ],
        timeout_ms=timeout_ms,
    )
