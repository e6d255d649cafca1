"""Sends the batches of an accumulator: one task sends what is due, and callbacks handle the responses.

Due batches are grouped by leader: a request has one batch of a partition, and a connection at most five requests in
flight. The task does not wait while it sends, so the order on the wire is that in which batches were taken; connections
are opened by tasks of their own. If a broker's error names the new leader (KIP-951), metadata need not be requested
before the next attempt. Source: ``Sender.java``.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from barnabas_client.errors import DeliveryTimeoutError, KafkaConnectionError, ProducerClosedError, error_for
from barnabas_client.logs import logger
from barnabas_client.network.connection import Connection
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_client.network.retries import retry_backoff
from barnabas_client.network.versions import TOPICS_BY_NAME
from barnabas_client.producer.accumulator import MAX_IN_FLIGHT, Accumulator, PartitionQueue, ProducerBatch
from barnabas_client.producer.measure import OVERHEAD
from barnabas_client.producer.metrics import ProducerMeters
from barnabas_client.producer.receipts import give_up
from barnabas_client.producer.transaction_manager import TransactionManager
from barnabas_client.tasks import BackgroundTasks
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas_protocol.wire import Buffer

_log: Final = logger("barnabas_client.producer.sender")


#: The broker has no state of this producer id; the producer needs a new one (KIP-360).
_UNKNOWN_PRODUCER: Final = frozenset(
    {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)

#: Answers to batches that may be in the log. A leader that is replaced, or whose disk fails, gives the first two also
#: to batches that it has appended, while they wait for the other replicas.
_MAYBE_WRITTEN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)

#: The newest version that does not add partitions to a transaction (KIP-890).
_NEWEST_CLASSIC: Final = 11


class Sender:
    """Sends the batches of an accumulator.

    Args:
        network: the cluster.
        accumulator: the batches to send.
        resolved: called when batches are acknowledged or have failed, so that `buffer_memory` has room again.
        meters: measure what is sent.
        transactions: of a transactional producer.

    Attributes:
        failure: why nothing is sent any more, if a task of the sender raised.
    """

    def __init__(
        self,
        network: Network,
        accumulator: Accumulator,
        resolved: Callable[[], None],
        meters: ProducerMeters,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._network = network
        self._accumulator = accumulator
        self._config = accumulator.config
        self._resolved = resolved
        self._meters = meters
        self._transactions = transactions
        self._wake = asyncio.Event()
        self._in_flight: defaultdict[int, int] = defaultdict(int)
        self._connecting: set[int] = set()
        self._initializing = False
        self._tasks = BackgroundTasks(self._broken)
        self._backoff = retry_backoff(network.config)
        self._init_backoff = retry_backoff(network.config)
        self.failure: KafkaError | None = None

    def start(self) -> None:
        """Start the task."""
        self._tasks.spawn(self._run(), name="barnabas-sender")

    async def close(self) -> None:
        """End all tasks; records that are not acknowledged fail with `ProducerClosedError`."""
        await self._tasks.close()
        give_up(
            self._accumulator.abandon(), ProducerClosedError("the producer was stopped before this was acknowledged")
        )

    def wake(self) -> None:
        """Look for due batches soon."""
        self._wake.set()

    # The task.

    async def _run(self) -> None:
        accumulator, loop, wake = self._accumulator, asyncio.get_running_loop(), self._wake
        while True:
            wake.clear()
            now = loop.time()
            expired, at = accumulator.expire(now)
            if expired:
                self._expire(expired)
            if accumulator.needs_producer_id() and accumulator.unresolved and not self._initializing:
                self._initializing = True
                self._tasks.spawn(self._initialize())
            due, later = accumulator.due(now)
            if due:
                later = _earlier(later, self._send_due(due, now))
            try:
                async with asyncio.timeout_at(_earlier(later, at)):
                    await wake.wait()
            except TimeoutError:
                pass

    def _send_due(self, due: Iterable[PartitionQueue], now: float) -> float | None:
        """Send what is due; returns when to look again for partitions whose leader cannot be reached now."""
        by_node: defaultdict[int, list[PartitionQueue]] = defaultdict(list)
        again: float | None = None
        for queue in due:
            leader = self._network.cluster.leader(queue.tp)
            if leader is None or not self._network.ready(leader):
                queue.unreachable += 1
                queue.retry_at = now + self._backoff.pause_after(queue.unreachable)
                again = _earlier(again, queue.retry_at)
                self._network.want_refresh()
            else:
                queue.unreachable = 0
                by_node[leader].append(queue)
        for node, queues in by_node.items():
            connection = self._network.open_connection(node, Purpose.DATA)
            if connection is None:
                if node not in self._connecting:
                    self._connecting.add(node)
                    self._tasks.spawn(self._connect(node))
                continue
            while queues and self._in_flight[node] < MAX_IN_FLIGHT:
                self._send(node, connection, self._collect(queues))
                queues = [queue for queue in queues if (at := queue.due_at()) is not None and at <= now]
        return again

    def _collect(self, queues: list[PartitionQueue]) -> list[ProducerBatch]:
        """Take one batch of each queue, as far as they fit into a request."""
        batches: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            head = queue.batches[0]
            size += len(head.data) if head.data is not None else head.memory + OVERHEAD
            if batches and size > self._config.max_request_size:
                break
            batches.append(queue.take())
        return batches

    def _send(self, node: int, connection: Connection, batches: list[ProducerBatch]) -> None:
        topics: dict[str, TopicProduceData] = {}
        meters, began = self._meters, time.monotonic()
        waited_until = asyncio.get_running_loop().time()
        for batch in batches:
            topic, number = batch.tp
            meters.records.add(batch.count, began)
            meters.bytes.add(len(batch.data or b""), began)
            if batch.attempts == 1:
                meters.queue_time.add(waited_until - batch.created, began)
            if topic not in topics:
                topics[topic] = TopicProduceData(name=topic, partition_data=[])
            topics[topic].partition_data.append(PartitionProduceData(index=number, records=batch.data))
        acks, seconds = self._config.required_acks, self._network.config.request_timeout
        request = ProduceRequest(
            acks=acks, timeout_ms=self._network.config.request_timeout_ms, topic_data=list(topics.values())
        )
        at_most = TOPICS_BY_NAME
        if self._transactions is not None:
            request.transactional_id = self._transactions.transactional_id
            at_most = TOPICS_BY_NAME if self._transactions.implicit else _NEWEST_CLASSIC
        try:
            if acks == 0:
                connection.send_only(request, at_most=at_most)
                self._written(batches)
                return
            # The broker may wait for replicas for `timeout_ms`: its response arrives a little later.
            future = connection.send(request, _decode, timeout=seconds * 1.5, at_most=at_most)
        except KafkaError as error:
            self._unanswered(node, batches, error)
            return
        self._in_flight[node] += 1
        future.add_done_callback(partial(self._answered, node, batches, began))

    # Responses.

    def _answered(
        self, node: int, batches: list[ProducerBatch], began: float, future: "asyncio.Future[ProduceResponse]"
    ) -> None:
        self._in_flight[node] -= 1
        if not future.cancelled():
            error = future.exception()
            if error is None:
                now = time.monotonic()
                self._meters.request_latency.add(now - began, now)
            try:
                if error is None:
                    self._read(node, batches, future.result())
                elif isinstance(error, KafkaError):
                    self._unanswered(node, batches, error)
            except Exception as failure:
                # A bug; but the futures of these records must be done.
                _log.exception("a response to a produce request could not be handled")
                self._fail(batches, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"sending failed: {failure!r}"))
        self._resolved()
        self.wake()

    def _read(self, node: int, batches: list[ProducerBatch], response: ProduceResponse) -> None:
        answers = {
            (topic.name, answer.index): answer for topic in response.responses for answer in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.tp)
            if answer is None:
                missing = KafkaConnectionError(f"broker {node} answered a produce request without {batch.tp}")
                self._unanswered(node, [batch], missing)
            elif answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                if batch.queue.succeeded(batch):
                    batch.delivery.acknowledge(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
            else:
                self._refused(node, batch, ErrorCode.of(answer.error_code), answer)

    def _refused(self, node: int, batch: ProducerBatch, code: ErrorCode, answer: PartitionProduceResponse) -> None:
        queue = batch.queue
        error = error_for(answer.error_code, f"send to {batch.tp}", answer.error_message)
        if code.refreshes_metadata or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._learn_leader(batch, answer)
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.sequence >= 0:
            # Expected behind a batch that must be sent again. For the first batch it means a gap in the sequence.
            if queue.is_first_unresolved(batch):
                if self._transactions is not None:
                    self._fail([batch], error)
                    return
                self._start_over(batch, error)
            self._again(batch, error, maybe_written=False, at_once=True)
        elif code in _UNKNOWN_PRODUCER and batch.sequence >= 0 and self._transactions is None:
            self._start_over(batch, error)
            self._again(batch, error, maybe_written=False, at_once=True)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            _log.info("splitting a batch in two", partition=str(batch.tp), records=batch.count, reason=str(error))
            queue.split(batch)
        elif code.retriable:
            unclear = code in _MAYBE_WRITTEN or batch.maybe_written
            self._again(batch, error, maybe_written=unclear, at_once=self._moved(batch, node))
        else:
            self._fail([batch], error)

    def _unanswered(self, node: int, batches: list[ProducerBatch], error: KafkaError) -> None:
        """Handle a request that failed without a response: the broker may have received it."""
        self._network.want_refresh()
        for batch in batches:
            if error.retriable:
                self._again(batch, error, maybe_written=True, at_once=self._moved(batch, node))
            else:
                self._fail([batch], error)

    def _moved(self, batch: ProducerBatch, node: int) -> bool:
        """Whether another broker than `node` leads the partition now."""
        return self._network.cluster.leader(batch.tp) not in (None, node)

    def _start_over(self, batch: ProducerBatch, error: KafkaError) -> None:
        if not self._accumulator.must_reset:
            _log.warning("starting over with a new producer id", partition=str(batch.tp), reason=str(error))
        self._accumulator.must_reset = True

    def _again(self, batch: ProducerBatch, error: KafkaError, *, maybe_written: bool, at_once: bool) -> None:
        """Send a batch again, after a pause that grows with its attempts; the first time without one if `at_once`."""
        pause = 0.0 if at_once and batch.attempts == 1 else self._backoff.pause_after(batch.attempts)
        self._meters.retries.add(batch.count, time.monotonic())
        batch.queue.again(batch, asyncio.get_running_loop().time() + pause, maybe_written=maybe_written)
        _log.info("sending again", partition=str(batch.tp), attempt=batch.attempts, reason=str(error))

    def _learn_leader(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        leader = answer.current_leader
        if leader is not None and leader.leader_id >= 0:
            self._network.learn(self._network.cluster.with_leader(batch.tp, leader.leader_id, leader.leader_epoch))
        self._network.want_refresh()

    # Acknowledged and failed records.

    def _written(self, batches: list[ProducerBatch]) -> None:
        """Resolve batches that are sent with acks=0, which get no response."""
        for batch in batches:
            if batch.queue.succeeded(batch):
                batch.delivery.acknowledge(-1, -1, -1)
        self._resolved()

    def _fail(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        self._give_up([batch for batch in batches if batch.queue.failed(batch)], error)

    def _expire(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            leader = self._network.cluster.leader(batch.tp)
            failure = None if leader is None else self._network.failure(leader)
            # What to do about it is said below.
            why = "" if failure is None else f": {str(failure).partition('. To do: ')[0]}"
            self._give_up(
                [batch],
                DeliveryTimeoutError(
                    f"send to {batch.tp}: a batch was not acknowledged within delivery_timeout_ms "
                    f"({self._config.delivery_timeout_ms} ms, records: {batch.count}, attempts: {batch.attempts})"
                    f"{why}. To do: check the brokers; the records "
                    f"{'may have been' if batch.attempts else 'were not'} written"
                ),
            )
        self._resolved()

    def _give_up(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        give_up(batches, error)
        for batch in batches:
            self._meters.errors.add(batch.count, time.monotonic())
        if batches and self._transactions is not None:
            self._transactions.batch_failed(error)

    # Other tasks.

    async def _connect(self, node: int) -> None:
        try:
            await self._network.connection(node, Purpose.DATA)
        except KafkaError as error:
            _log.info("a broker cannot be reached", node=node, reason=str(error))
        finally:
            self._connecting.discard(node)
            self.wake()

    async def _initialize(self) -> None:
        """Request a producer id. A new one is as good as a new epoch of the old one, and any broker can assign it."""
        accumulator = self._accumulator
        try:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2_147_483_647)
            response = await self._network.ask_any(request, InitProducerIdResponse)
            if response.error_code != ErrorCode.NONE:
                # The cluster is asked for IDEMPOTENT_WRITE, but WRITE on a topic is enough (KIP-679).
                denied = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                remedy = "grant this client WRITE on its topics" if denied else None
                raise error_for(response.error_code, "get a producer id", remedy=remedy)
        except KafkaError as error:
            if error.retriable:
                _log.info("no producer id yet", reason=str(error))
                await asyncio.sleep(self._init_backoff.failed())
            else:
                self._give_up(accumulator.abandon(), error)
                self._resolved()
        else:
            self._init_backoff.succeeded()
            accumulator.begin_epoch(response.producer_id, response.producer_epoch)
        finally:
            self._initializing = False
            self.wake()

    def _broken(self, error: BaseException) -> None:
        """A task raised, which is a bug: fail every record, so that a program does not wait for ever."""
        _log.error("sending failed", exc_info=error)
        self.failure = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"sending failed: {error!r}. To do: report this as a bug"
        )
        self._give_up(self._accumulator.abandon(), self.failure)
        self._resolved()


def _decode(version: int, frame: Buffer) -> ProduceResponse:
    return decode_response(ProduceResponse, version, frame)


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
