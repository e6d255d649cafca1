"""A broker in the test's event loop: partitions in memory, a coordinator, and scripted faults.

It speaks through the protocol package's codecs, so a test sees real bytes on a real socket. What a request gets is
decided by the first of: a scripted :data:`Action` for its API (each serves once), the default handler. Every request is
kept in `requests`.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, TypeVar, cast

from barnabas_broker.testing.refusals import refusal
from barnabas_client.structs import TopicPartition
from barnabas_protocol.apis import APIS
from barnabas_protocol.codec import decode_request, decode_request_header, encode_response
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from barnabas_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from barnabas_protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas_protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas_protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas_protocol.records import build_batch, read_header
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Request, Response
from tests.client.fake_coordinator import FakeCoordinator
from tests.client.fake_log import Partition
from tests.client.fake_transactions import FakeTransactions
from tests.world.answers import Action, Drop, Held, Lose, NoAnswer, Raw, Refused, Silence

Q = TypeVar("Q", bound=Request)

#: The version of Produce that adds partitions to transactions (KIP-890).
PRODUCE_2: Final = 12

HOST: Final = "127.0.0.1"
_IDS: Final = count(1)


class FakeBroker(FakeCoordinator):
    """One broker, the leader of every partition by default."""

    def __init__(self, node_id: int = 0) -> None:
        super().__init__(HOST, node_id)
        self.topics: dict[str, dict[int, Partition]] = {}
        self.peers: dict[int, FakeBroker] = {node_id: self}
        self.controller = node_id
        self.heartbeat_interval_ms = 20
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        self.connections = 0
        #: Exceptions of scripts and handlers: mistakes of a test.
        self.mistakes: list[Exception] = []
        self.transactions = FakeTransactions()
        self._producer_ids = 1000
        self._script: defaultdict[ApiKey, deque[Action]] = defaultdict(deque)
        self._always: dict[ApiKey, Action] = {}
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    # For tests.

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def create(self, topic: str, partitions: int = 1) -> None:
        self.topics[topic] = {number: Partition(leader=self.node_id) for number in range(partitions)}
        self.topic_ids[topic] = next(_IDS).to_bytes(16, "big")

    def write(self, topic: str, values: Iterable[bytes | None], partition: int = 0, compression: str = "none") -> int:
        """Append records in one batch; their base offset."""
        batch = build_batch([(None, value, (), 1_700_000_000_000) for value in values], compression=compression)
        return self.append(topic, batch, partition)

    def append(self, topic: str, batch: bytes | bytearray, partition: int = 0) -> int:
        base = self.topics[topic][partition].append(batch)
        self._news.set()
        return base

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.topics[topic][partition].records()]

    def batches(self, topic: str, partition: int = 0) -> list[bytes]:
        return [batch for _, _, batch in self.topics[topic][partition].batches]

    def once(self, key: ApiKey, *actions: Action) -> None:
        """Script the next requests of an API."""
        self._script[key].extend(actions)

    def always(self, key: ApiKey, action: Action | None) -> None:
        """Script all requests of an API; None ends that."""
        if action is None:
            self._always.pop(key, None)
        else:
            self._always[key] = action

    def asked(self, kind: type[Q]) -> list[Q]:
        """The requests of a kind so far."""
        return [request for _, _, request in self.requests if isinstance(request, kind)]

    def sever(self) -> None:
        """Break all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.sever()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    # The wire.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await self._answer(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as error:
            self.mistakes.append(error)
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = decode_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        if key is ApiKey.API_VERSIONS and version not in self._range(key):
            self.requests.append((key, version, api(key).request()))
            unsupported = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[self._version(key)])
            writer.write(encode_response(unsupported, 0, header.correlation_id))
            return
        request = decode_request(api(key).request, header, frame)
        self.requests.append((key, version, request))
        script = self._script[key]
        action = script.popleft() if script else self._always.get(key)
        answer = None if action is None else action(request)
        if isinstance(answer, Refused):
            answer = refusal(key, request, version, answer.code)
        if isinstance(answer, Held):
            await answer.go.wait()
            answer = None
        if answer is None or isinstance(answer, Lose):
            handled = await self._handle(key, request, version)
            answer = handled if answer is None else answer
        if isinstance(answer, Drop | Lose):
            raise ConnectionResetError
        if isinstance(answer, Silence):
            await asyncio.Event().wait()
        if isinstance(answer, Raw):
            writer.write(answer.data)
        elif isinstance(answer, Response):
            writer.write(encode_response(answer, version, header.correlation_id))

    async def _handle(self, key: ApiKey, request: Request, version: int) -> Response | NoAnswer:
        if isinstance(request, FetchRequest):
            return await self._fetch(request)
        if isinstance(request, ProduceRequest):
            response = self._produce(request, version)
            return response if request.acks else NoAnswer()
        self._asked_in = version
        handler = getattr(self, f"_{key.name.lower()}")
        return cast(Response, handler(request))

    # Defaults. Answers are in the form of the newest version.

    def _range(self, key: ApiKey) -> range:
        own = api(key).versions
        low, high = self.versions.get(key, (own.low, own.high))
        return range(low, high + 1)

    def _version(self, key: ApiKey) -> ApiVersion:
        versions = self._range(key)
        return ApiVersion(api_key=key, min_version=versions.start, max_version=versions.stop - 1)

    def _api_versions(self, request: Request) -> ApiVersionsResponse:
        level = self.transactions.version
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[self._version(key) for key in APIS if self._range(key)],
            finalized_features=[FinalizedFeatureKey(name="transaction.version", max_version_level=level)],
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        asked = (
            sorted(self.topics)
            if request.topics is None
            else [self._topic(topic.name or "", topic.topic_id) or "" for topic in request.topics]
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=HOST, port=peer.port)
                for node, peer in sorted(self.peers.items())
            ],
            cluster_id="fake",
            controller_id=self.controller,
            topics=[self._metadata_topic(name) for name in asked],
        )

    def _consumer_group_heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """A group of one member, which gets every partition of its topics when it joins."""
        code, assigned = ErrorCode.NONE, None
        if request.member_epoch == 0:
            self.generation += 1
            self.member = request.member_id or "given"
            self.of_consumer_protocol = True
            assigned = HeartbeatAssignment(
                topic_partitions=[
                    HeartbeatTopicPartitions(topic_id=self.topic_ids[name], partitions=sorted(self.topics[name]))
                    for name in request.subscribed_topic_names or sorted(self.topics)
                ]
            )
        elif request.member_epoch < 0:
            self.member = ""
        elif request.member_id != self.member:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif request.member_epoch > self.generation:
            code = ErrorCode.FENCED_MEMBER_EPOCH
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=code,
            member_id=request.member_id or self.member,
            member_epoch=request.member_epoch if request.member_epoch < 0 else self.generation,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            assignment=assigned,
        )

    def _metadata_topic(self, name: str) -> MetadataResponseTopic:
        partitions = self.topics.get(name)
        if partitions is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[])
        return MetadataResponseTopic(
            error_code=0,
            name=name,
            topic_id=self.topic_ids[name],
            is_internal=name.startswith("__"),
            partitions=[
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=number,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=[partition.leader],
                    isr_nodes=[partition.leader],
                )
                for number, partition in partitions.items()
            ],
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._list_one(topic.name, one.partition_index, one.timestamp) for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _list_one(self, topic: str, number: int, time: int) -> ListOffsetsPartitionResponse:
        partition, code = self._led(topic, number)
        if partition is None:
            return ListOffsetsPartitionResponse(partition_index=number, error_code=code)
        if time == -2:
            return ListOffsetsPartitionResponse(partition_index=number, error_code=0, offset=partition.start)
        if time == -1:
            return ListOffsetsPartitionResponse(partition_index=number, error_code=0, offset=partition.end)
        found = next((record for record in partition.records() if record.timestamp >= time), None)
        return ListOffsetsPartitionResponse(
            partition_index=number,
            error_code=0,
            offset=-1 if found is None else found.offset,
            timestamp=-1 if found is None else found.timestamp,
        )

    def _led(self, topic: str, number: int, epoch: int = -1) -> tuple[Partition | None, ErrorCode]:
        """A partition, if this broker leads it, and in the epoch that the client thinks of."""
        partition = self.topics.get(topic, {}).get(number)
        if partition is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader != self.node_id:
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch >= 0 and epoch != partition.leader_epoch:
            older = epoch < partition.leader_epoch
            return None, ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return partition, ErrorCode.NONE

    def _offset_for_leader_epoch(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=[self._epoch_end(topic.topic, one) for one in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _epoch_end(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        partition, code = self._led(topic, asked.partition, asked.current_leader_epoch)
        epoch, end = (-1, -1) if partition is None else partition.epoch_end(asked.leader_epoch)
        return EpochEndOffset(error_code=code, partition=asked.partition, leader_epoch=epoch, end_offset=end)

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            self._news.clear()
            response = FetchResponse(
                responses=[
                    FetchableTopicResponse(
                        topic=topic.topic,
                        topic_id=topic.topic_id,
                        partitions=[
                            self._fetch_one(topic.topic or names.get(topic.topic_id), one) for one in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
            if any(
                one.records or one.error_code or one.diverging_epoch
                for topic in response.responses
                for one in topic.partitions
            ):
                return response
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return response

    def _fetch_one(self, topic: str | None, asked: FetchPartition) -> PartitionData:
        if topic is None:
            partition, code = None, ErrorCode.UNKNOWN_TOPIC_ID
        else:
            partition, code = self._led(topic, asked.partition, asked.current_leader_epoch)
        diverging = None
        if partition is not None and asked.last_fetched_epoch >= 0:
            epoch, end = partition.epoch_end(asked.last_fetched_epoch)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                diverging = FetchEpochEndOffset(epoch=epoch, end_offset=end)
        out = partition is not None and not partition.start <= asked.fetch_offset <= partition.end
        if out and diverging is None:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if partition is None or code != ErrorCode.NONE:
            return PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"")
        return PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=partition.end,
            last_stable_offset=partition.end,
            log_start_offset=partition.start,
            diverging_epoch=diverging,
            records=b"" if diverging else partition.read(asked.fetch_offset, asked.partition_max_bytes),
        )

    def _init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.transactional_id is not None:
            return self.transactions.init(request)
        self._producer_ids += 1
        return InitProducerIdResponse(error_code=0, producer_id=self._producer_ids, producer_epoch=0)

    def _add_partitions_to_txn(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return self.transactions.add(request)

    def _add_offsets_to_txn(self, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        return self.transactions.add_offsets(request)

    def _txn_offset_commit(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        known = request.generation_id_or_member_epoch >= 0 or bool(request.member_id)
        code = self._checked(request.member_id, request.generation_id_or_member_epoch) if known else ErrorCode.NONE
        for topic in request.topics:
            topic.name = self._topic(topic.name, topic.topic_id) or ""
        return self.transactions.commit_offsets(request, self._asked_in, code)

    def _end_txn(self, request: EndTxnRequest) -> EndTxnResponse:
        return self.transactions.end_txn(request, self._asked_in)

    def _describe_transactions(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return self.transactions.describe(request)

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        self._produce_one(
                            topic.name, one.index, bytes(one.records or b""), request.transactional_id, version
                        )
                        for one in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _produce_one(
        self, topic: str, number: int, batch: bytes, name: str | None, version: int
    ) -> PartitionProduceResponse:
        partition, code = self._led(topic, number)
        if partition is None:
            return PartitionProduceResponse(index=number, error_code=code, base_offset=-1)
        header = read_header(batch)
        place = (header.producer_id, header.producer_epoch, header.base_sequence)
        if name is not None:
            tp = TopicPartition(topic, number)
            code = self.transactions.write(
                name, header.producer_id, header.producer_epoch, tp, implicit=version >= PRODUCE_2
            )
            if code != ErrorCode.NONE:
                return PartitionProduceResponse(index=number, error_code=code, base_offset=-1)
        if header.producer_id >= 0:
            if place in partition.recent:
                return PartitionProduceResponse(index=number, error_code=0, base_offset=partition.recent[place])
            # Of a producer that it does not know Kafka takes any sequence number: its records may have been deleted.
            unknown = (header.producer_epoch, header.base_sequence)
            epoch, expected = partition.sequences.get(header.producer_id, unknown)
            if epoch == header.producer_epoch and expected != header.base_sequence:
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                return PartitionProduceResponse(index=number, error_code=code, base_offset=-1)
            following = header.base_sequence + header.count
            partition.sequences[header.producer_id] = (header.producer_epoch, following)
        base = self.append(topic, batch, number)
        if header.producer_id >= 0:
            partition.recent[place] = base
        return PartitionProduceResponse(index=number, error_code=0, base_offset=base)

    def _create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.topics else ErrorCode.NONE
            if self.controller != self.node_id:
                code = ErrorCode.NOT_CONTROLLER
            if code == ErrorCode.NONE and not request.validate_only:
                self.create(topic.name, max(1, topic.num_partitions))
            results.append(CreatableTopicResult(name=topic.name, error_code=code, error_message=None))
        return CreateTopicsResponse(topics=results)

    def _delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        results = []
        for topic in request.topics:
            known = self.topics.pop(topic.name or "", None)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.NONE
            results.append(DeletableTopicResult(name=topic.name, error_code=code))
        return DeleteTopicsResponse(responses=results)

    def _describe_cluster(self, request: DescribeClusterRequest) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            error_code=0,
            cluster_id="fake",
            controller_id=self.controller,
            brokers=[
                DescribeClusterBroker(broker_id=node, host=HOST, port=peer.port) for node, peer in self.peers.items()
            ],
        )


@asynccontextmanager
async def brokers(number: int = 1) -> AsyncIterator[list[FakeBroker]]:
    """Running brokers that share topics."""
    made = [FakeBroker(node) for node in range(number)]
    for broker in made:
        broker.topics, broker.topic_ids = made[0].topics, made[0].topic_ids
        broker.transactions = made[0].transactions
        broker.committed = made[0].committed
        broker.peers = {one.node_id: one for one in made}
        broker.controller = 0
        await broker.start()
    try:
        yield made
    finally:
        for broker in made:
            await broker.stop()
    for broker in made:
        for mistake in broker.mistakes:
            raise mistake
