"""Four brokers that answer what `barnabas cluster` asks, from one table of partitions."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas_protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas_protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas_protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request, Response
from tests.world.broker import ScriptedBroker, running

THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
SIZE = 1_000_000


@dataclass
class Moving:
    """A reassignment that is completed after some looks at it."""

    target: tuple[int, ...]
    looks: int


@dataclass
class ScriptedCluster:
    """What all brokers answer.

    Attributes:
        brokers: by node id.
        racks: of the brokers.
        replicas: of each partition.
        isr: of partitions where not all replicas are in sync.
        leaders: of partitions whose leader is not the first replica.
        eligible: eligible and last known replicas of partitions without a leader.
        strays: by broker.
        moving: the reassignments.
        down: brokers that the others do not see.
        looks: how often a reassignment is listed before it is completed.
        min_isr: of all topics.
        throttles: whether brokers have the keys for throttles.
        configs: changed keys, by type and name of the resource.
        refused: the error codes of partitions in reassignments and elections.
    """

    brokers: Mapping[int, ScriptedBroker]
    racks: dict[int, str | None] = field(default_factory=dict)
    replicas: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    isr: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    eligible: dict[TopicPartition, tuple[list[int], list[int]]] = field(default_factory=dict)
    strays: dict[int, TopicPartition] = field(default_factory=dict)
    moving: dict[TopicPartition, Moving] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    looks: int = 2
    min_isr: int = 1
    throttles: bool = False
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    #: All changes of configuration: resource, key, value.
    changes: list[tuple[str, str, str | None]] = field(default_factory=list)
    refused: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    elected: list[TopicPartition] = field(default_factory=list)
    #: What brokers say in DescribeCluster's error message.
    conditions: dict[int, str] = field(default_factory=dict)
    #: Set when a request arrives.
    asked: defaultdict[ApiKey, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def __post_init__(self) -> None:
        for node, broker in self.brokers.items():
            for key in (
                ApiKey.METADATA,
                ApiKey.DESCRIBE_CLUSTER,
                ApiKey.DESCRIBE_LOG_DIRS,
                ApiKey.DESCRIBE_CONFIGS,
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
                ApiKey.ELECT_LEADERS,
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            ):
                broker.script.always(key, partial(self._answer, key, node))

    @property
    def address(self) -> str:
        return self.brokers[min(self.live)].address

    @property
    def live(self) -> list[int]:
        return [node for node in self.brokers if node not in self.down]

    def _seen(self) -> list[tuple[int, ScriptedBroker]]:
        return [(node, self.brokers[node]) for node in self.live]

    def submitted(self) -> list[dict[TopicPartition, list[int] | None]]:
        """The reassignments that were requested, one request after the other."""
        return [
            {
                TopicPartition(topic.name, one.partition_index): one.replicas
                for topic in request.topics
                for one in topic.partitions
            }
            for broker in self.brokers.values()
            for request in broker.script.asked(AlterPartitionReassignmentsRequest)
        ]

    def _answer(self, key: ApiKey, node: int, request: Request) -> Response:
        self.asked[key].set()
        answer: Response = getattr(self, f"_{key.name.lower()}")(node, request)
        return answer

    def _metadata(self, node: int, request: Request) -> MetadataResponse:
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=broker.host, port=broker.port, rack=self.racks.get(node))
                for node, broker in self._seen()
            ],
            cluster_id="scripted",
            controller_id=min(self.live),
            topics=[
                MetadataResponseTopic(
                    error_code=0,
                    name=topic,
                    topic_id=topic.encode("utf-8").ljust(16, b".")[:16],
                    partitions=[
                        MetadataResponsePartition(
                            error_code=0,
                            partition_index=tp.partition,
                            leader_id=self._leader(tp),
                            leader_epoch=1,
                            replica_nodes=list(self._all(tp)),
                            isr_nodes=list(self._in_sync(tp)),
                        )
                        for tp in tps
                    ],
                )
                for topic, tps in self._topics(self.replicas)
            ],
        )

    def _all(self, tp: TopicPartition) -> tuple[int, ...]:
        extra = self.moving[tp].target if tp in self.moving else ()
        return tuple(dict.fromkeys((*extra, *self.replicas[tp])))

    def _in_sync(self, tp: TopicPartition) -> tuple[int, ...]:
        alive = tuple(node for node in self.replicas[tp] if node not in self.down)
        return self.isr.get(tp) or alive or self.replicas[tp][:1]

    def _leader(self, tp: TopicPartition) -> int:
        leader = self.leaders.get(tp, self.replicas[tp][0])
        return leader if leader not in self.down else next((n for n in self._in_sync(tp) if n not in self.down), -1)

    @staticmethod
    def _topics(partitions: Mapping[TopicPartition, object]) -> Iterator[tuple[str, Sequence[TopicPartition]]]:
        for topic in sorted({tp.topic for tp in partitions}):
            yield topic, sorted(tp for tp in partitions if tp.topic == topic)

    def _describe_cluster(self, node: int, request: Request) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            error_code=0,
            error_message=self.conditions.get(node),
            cluster_id="scripted",
            controller_id=min(self.live),
            brokers=[
                DescribeClusterBroker(broker_id=node, host=broker.host, port=broker.port, rack=self.racks.get(node))
                for node, broker in self._seen()
            ],
        )

    def _describe_log_dirs(self, node: int, request: Request) -> DescribeLogDirsResponse:
        here = {tp: None for tp, replicas in self.replicas.items() if node in replicas}
        here |= {self.strays[node]: None} if node in self.strays else {}
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    error_code=0,
                    log_dir="/data",
                    topics=[
                        DescribeLogDirsTopic(
                            name=topic,
                            partitions=[
                                DescribeLogDirsPartition(
                                    partition_index=tp.partition, partition_size=SIZE, offset_lag=0, is_future_key=False
                                )
                                for tp in tps
                            ],
                        )
                        for topic, tps in self._topics(here)
                    ],
                    total_bytes=50 * SIZE,
                    usable_bytes=20 * SIZE,
                )
            ]
        )

    def _describe_configs(self, node: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        results = []
        for one in request.resources:
            known = {
                "min.insync.replicas": str(self.min_isr),
                **(dict.fromkeys(THROTTLES, "") if self.throttles else {}),
            }
            own = self.configs.get((one.resource_type, one.resource_name), {})
            wanted = known.keys() | own.keys() if one.configuration_keys is None else one.configuration_keys
            results.append(
                DescribeConfigsResult(
                    error_code=0,
                    error_message=None,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(
                            name=name,
                            value=own.get(name, known.get(name)),
                            read_only=False,
                            config_source=1 if name in own else 5,
                            is_sensitive=False,
                            synonyms=[],
                        )
                        for name in sorted(wanted)
                        if name in known or name in own
                    ],
                )
            )
        return DescribeConfigsResponse(results=results)

    def _incremental_alter_configs(
        self, node: int, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        for one in request.resources:
            own = self.configs.setdefault((one.resource_type, one.resource_name), {})
            for config in one.configs:
                self.changes.append((one.resource_name, config.name, config.value))
                if config.value is None:
                    own.pop(config.name, None)
                else:
                    own[config.name] = config.value
        return IncrementalAlterConfigsResponse(
            responses=[
                IncrementalAlterConfigsResourceResponse(
                    error_code=0, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
                )
                for one in request.resources
            ]
        )

    def _alter_partition_reassignments(
        self, node: int, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        def one(topic: str, number: int, replicas: list[int] | None) -> ReassignablePartitionResponse:
            tp = TopicPartition(topic, number)
            code = self.refused.get(tp, ErrorCode.NONE)
            if code == ErrorCode.NONE and replicas is None:
                self.moving.pop(tp, None)
            elif code == ErrorCode.NONE and replicas is not None:
                self.moving[tp] = Moving(tuple(replicas), self.looks)
            return ReassignablePartitionResponse(partition_index=tp.partition, error_code=code, error_message=None)

        return AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[one(topic.name, p.partition_index, p.replicas) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _list_partition_reassignments(self, node: int, request: Request) -> ListPartitionReassignmentsResponse:
        for tp, one in list(self.moving.items()):
            one.looks -= 1
            if one.looks < 0:
                before = self._leader(tp)
                self.replicas[tp] = one.target
                self.leaders[tp] = before if before in one.target else one.target[0]
                del self.moving[tp]
        return ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(
                    name=topic,
                    partitions=[
                        OngoingPartitionReassignment(
                            partition_index=tp.partition,
                            replicas=list(self._all(tp)),
                            adding_replicas=[n for n in self.moving[tp].target if n not in self.replicas[tp]],
                            removing_replicas=[n for n in self.replicas[tp] if n not in self.moving[tp].target],
                        )
                        for tp in tps
                    ],
                )
                for topic, tps in self._topics(self.moving)
            ]
        )

    def _describe_topic_partitions(
        self, node: int, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=0,
                    name=topic,
                    topic_id=bytes(16),
                    partitions=[
                        DescribeTopicPartitionsResponsePartition(
                            error_code=0,
                            partition_index=tp.partition,
                            leader_id=self._leader(tp),
                            replica_nodes=list(self._all(tp)),
                            isr_nodes=list(self._in_sync(tp)),
                            eligible_leader_replicas=self.eligible.get(tp, ([], []))[0],
                            last_known_elr=self.eligible.get(tp, ([], []))[1],
                            offline_replicas=[],
                        )
                        for tp in tps
                    ],
                )
                for topic, tps in self._topics(self.replicas)
                if topic in [asked.name for asked in request.topics]
            ]
        )

    def _elect_leaders(self, node: int, request: ElectLeadersRequest) -> ElectLeadersResponse:
        assert request.election_type == 0
        assert request.topic_partitions is not None

        def one(tp: TopicPartition) -> PartitionResult:
            code = self.refused.get(tp, ErrorCode.NONE)
            if code == ErrorCode.NONE:
                self.elected.append(tp)
                self.leaders.pop(tp, None)
            return PartitionResult(partition_id=tp.partition, error_code=code, error_message=None)

        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[one(TopicPartition(topic.topic, number)) for number in topic.partitions],
                )
                for topic in request.topic_partitions
            ]
        )


@asynccontextmanager
async def scripted_cluster(**given: Any) -> AsyncIterator[ScriptedCluster]:
    """Brokers 0 to 3, which answer as those of one cluster."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(running(node_id=str(node))) for node in range(4)]
        yield ScriptedCluster({broker.node_id: broker for broker in made}, **given)
