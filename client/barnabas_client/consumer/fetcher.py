"""Fetches ahead of the program, from each leader, and decodes batch by batch when the program takes records.

One request is in flight for each leader: a long poll that the broker answers when it has `fetch_min_bytes`, or after
`fetch_max_wait_ms`. It asks for every partition of that leader that has little buffered, so that the next records are
on their way while the program works on the last ones. Buffers are bounded: a partition is asked for again when less
than `max_partition_fetch_bytes` of it are buffered, and nothing is asked for while `fetch_max_bytes` are buffered in
all. While the buffer of one partition is full, the others are fetched with a short wait: the full one could not join a
long poll when its buffer empties.

What arrives is cut into batches (:mod:`barnabas_client.consumer.fetched`), and decoded when the program takes it.

Errors: where the leader has moved, or cannot be reached, metadata is refreshed and the partition tried again after a
back-off, or at once when another leader is known. A position outside of the partition is reset as `auto_offset_reset`
says; one in a history that the partition no longer has goes back to where the two diverge
(:mod:`barnabas_client.consumer.truncation`). Errors that concern the program are raised by its next poll. Full fetch
requests are sent, without sessions (KIP-227). Sources: ``AbstractFetch.java``, ``FetchCollector.java``.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

from barnabas_client.config import ConsumerConfig
from barnabas_client.consumer.fetched import Chunk, Tables, cut, unpack
from barnabas_client.consumer.metrics import ConsumerMeters
from barnabas_client.consumer.positions import Positions
from barnabas_client.consumer.subscription import Needed, PartitionState, Subscription, as_decided
from barnabas_client.consumer.truncation import judge
from barnabas_client.errors import OffsetOutOfRangeError, RecordDeserializationError, error_for
from barnabas_client.logs import logger
from barnabas_client.network.connection import Connection
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import NO_ID, Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.versions import TOPICS_BY_NAME
from barnabas_client.serialization import conversion_of
from barnabas_client.structs import AnyRecord, TopicPartition
from barnabas_client.tasks import BackgroundTasks
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.hot.fetch import decode_fetch_response
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

_log: Final = logger("barnabas_client.consumer")

#: While the buffer of a partition is full, the others are polled for no longer than this, in milliseconds.
SHORT_WAIT_MS: Final = 25
#: Compressed bytes that are decoded to Arrow together.
_TABLE_BYTES: Final = 1024 * 1024

#: The leader has moved, or brokers do not agree yet which one it is.
_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)

_Asked = dict[TopicPartition, tuple[PartitionState, int, int]]


class _Taken(Enum):
    """The records of one partition in a fetch response."""

    #: Batches that the program has not received.
    NEW = auto()
    #: An error or a diverging epoch, which has a back-off of its own.
    REFUSED = auto()
    #: Neither records nor an error.
    NOTHING = auto()
    #: Batches from before the fetch offset, or the name of another replica.
    USELESS = auto()


class Fetcher:
    """Keeps the buffers of all assigned partitions filled.

    Args:
        network: the cluster.
        subscription: the partitions.
        positions: finds and checks positions.
        config: sizes and times.
        meters: count what is fetched.
        arrived: called when there are new records, or a new error, for a poll.
        wake: set it when the assignment, positions, pauses or metadata have changed.
    """

    def __init__(
        self,
        network: Network,
        subscription: Subscription,
        positions: Positions,
        config: ConsumerConfig,
        meters: ConsumerMeters,
        arrived: Callable[[], None],
        wake: asyncio.Event,
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._positions = positions
        self._config = config
        self._meters = meters
        self._arrived = arrived
        self._policy = Needed.of_policy(config.auto_offset_reset)
        self._loop = asyncio.get_running_loop()
        self._wake = wake
        self._fetching: set[int] = set()  # nodes with a request in flight
        self._tasks = BackgroundTasks(self._task_failed)
        #: Set if the fetcher itself has failed: nothing is fetched any more.
        self.failure: KafkaError | None = None
        #: Set by `next_ready` if it stopped because a long batch has no records for the program so far.
        self.unfinished = False
        #: What polls do to records instead of `unpack`, see :meth:`convert`.
        self._conversion = conversion_of(config.key_deserializer, config.value_deserializer)
        self._deserializers = (
            (config.key_deserializer, config.value_deserializer) if self._conversion is None else (None, None)
        )
        #: Partitions with records or an error for the program, the next one first.
        self._filled: deque[PartitionState] = deque()
        self._buffered = 0

    def start(self) -> None:
        """Start to fetch."""
        self._tasks.spawn(self._run(), name="barnabas-fetcher")

    async def close(self) -> None:
        """Stop, and give up requests in flight."""
        await self._tasks.close()

    def wake(self) -> None:
        """The assignment, positions, pauses or metadata have changed."""
        self._wake.set()

    # For polls.

    def next_ready(
        self, only: Collection[TopicPartition] | None = None, tables: Tables | None = None
    ) -> PartitionState | None:
        """A partition with records in `ready`, decoding the next batch if need be; None if there is none.

        Args:
            only: of these partitions; of any if None.
            tables: decodes to Arrow record batches, for :meth:`take_table`; None for records.

        Raises:
            KafkaError: the next records of a partition cannot be returned. Raised once, then fetched again.
        """
        self.unfinished = False
        passed: list[PartitionState] = []
        found: PartitionState | None = None
        try:
            while self._filled:
                state = self._filled[0]
                if state.queued and (not state.deliverable or (only is not None and state.tp not in only)):
                    passed.append(self._filled.popleft())
                elif self._has_ready(state, tables):
                    found = state
                    break
                elif self.unfinished:
                    break
                else:
                    self._filled.popleft()
                    state.queued = False
        finally:
            # Paused partitions keep what they have.
            for state in reversed(passed):
                state.queued = bool(state.chunks or state.parts or state.ready or state.error)
                if state.queued:
                    self._filled.appendleft(state)
        return found

    def rotate(self) -> None:
        """Put another partition first for the next poll: one that gets records all the time would keep others
        waiting."""
        self._filled.rotate(-1)

    def take(self, state: PartitionState, limit: int) -> list[AnyRecord]:
        """Take up to `limit` records that are ready, and move the position behind them."""
        ready = state.ready
        if len(ready) <= limit:
            records = list(ready)
            ready.clear()
            state.position = state.batch_end
        else:
            records = [ready.popleft() for _ in range(limit)]
            state.position = records[-1].offset + 1
        return records

    def take_table(self, state: PartitionState, limit: int) -> Any:
        """Take an Arrow record batch of up to `limit` records, and move the position behind them."""
        batch = state.ready.popleft()
        if batch.num_rows <= limit:
            state.position = state.batch_end
            return batch
        state.ready.append(batch.slice(limit))
        state.position = batch.column("offset")[limit].as_py()
        return batch.slice(0, limit)

    def put_back(self, state: PartitionState, records: Sequence[AnyRecord]) -> None:
        """Put the last records that were taken in front of those that are ready."""
        state.ready.extendleft(reversed(records))
        state.position = records[0].offset
        if not state.queued:
            state.queued = True
            self._filled.appendleft(state)

    def _has_ready(self, state: PartitionState, tables: Tables | None) -> bool:
        """Whether records are ready, after decoding the next part if there is one."""
        if state.tables is (tables is None):
            buffered = state.buffered
            if state.switch(tables=tables is not None):
                self._buffered -= buffered
                self.wake()
        while not state.ready:
            if state.position is not None and state.batch_end > state.position:
                state.position = state.batch_end  # control records, and records of aborted transactions
            if state.error is not None:
                raise self._retry_later(state, state.error)
            part = None if state.parts is None else next(state.parts, None)
            if part is None:
                state.parts = None
                if not state.chunks:
                    return False
                if tables is None:
                    self._open(state, state.chunks.popleft())
                else:
                    self._open_tables(state, tables)
                continue
            records, end, state.error = part
            if state.position is None:
                return False
            if state.error is None:
                state.progressed()
                state.batch_end = max(end, state.position)
                state.unpacked(state.parts_epoch)
                if not records:
                    state.position = state.batch_end
                    self.unfinished = True
                    return False
            elif records:
                state.batch_end = records[-1].offset + 1
                state.unpacked(state.parts_epoch)
            state.ready.extend(records)
            state.raw = self._conversion is not None and tables is None
            if records:
                count = len(records) if tables is None else sum(table.num_rows for table in state.ready)
                self._meters.records.add(count, time.monotonic())
        return True

    def _open(self, state: PartitionState, chunk: Chunk) -> None:
        """Begin to decode a chunk."""
        self._shrink(state, chunk.size)
        if state.position is None:
            return
        config = self._config
        state.parts_epoch = chunk.leader_epoch
        state.parts = unpack(
            state.tp,
            chunk,
            state.position,
            check_crcs=config.check_crcs,
            key_deserializer=self._deserializers[0],
            value_deserializer=self._deserializers[1],
        )

    def _open_tables(self, state: PartitionState, tables: Tables) -> None:
        """Begin to decode the next chunks of one leader epoch: a table of one small batch would be slow."""
        group = [state.chunks.popleft()]
        size, epoch = group[0].size, group[0].leader_epoch
        while size < _TABLE_BYTES and state.chunks and group[-1].error is None:
            if state.chunks[0].leader_epoch != epoch:
                break
            group.append(state.chunks.popleft())
            size += group[-1].size
        self._shrink(state, size)
        if state.position is not None:
            state.parts_epoch = epoch
            state.parts = tables(state.tp, group, state.position, check_crcs=self._config.check_crcs)

    async def convert(self, state: PartitionState) -> bool:
        """Deserialize the records in `ready`, with deserializers that are awaited or take a context.

        Returns:
            Whether records are ready: not if the program or the group has moved on, or if the first record fails; then
            the next poll raises the error.
        """
        ready, epoch, conversion = state.ready, state.epoch, self._conversion
        if conversion is None:
            return True
        made: list[AnyRecord] = []
        failure: KafkaError | None = None
        for record in list(ready):
            try:
                key, value, _ = await conversion.convert(record.topic, record.key, record.value, record.headers)
            except Exception as error:
                failure = RecordDeserializationError(state.tp, record.offset, error)
                failure.__cause__ = error
                break
            made.append(record._replace(key=key, value=value))
        current = self._subscription.states.get(state.tp) is state and state.epoch == epoch and state.ready is ready
        if not current or not state.raw:
            return False
        state.raw = False
        if failure is not None:
            state.batch_end = ready[len(made)].offset
            state.parts, state.error = None, failure
        ready.clear()
        ready.extend(made)
        return bool(made) and state.deliverable

    def _retry_later(self, state: PartitionState, error: KafkaError) -> KafkaError:
        """The error of a partition, which is fetched again afterwards."""
        if state.position is None:
            state.error = None
        else:
            self._buffered -= state.buffered
            state.refetch()
        state.back_off(self._loop.time())
        self.wake()
        return error

    def _shrink(self, state: PartitionState, size: int) -> None:
        full = self._is_full(state)
        state.buffered -= size
        self._buffered -= size
        if full and not self._is_full(state):
            self.wake()

    def _is_full(self, state: PartitionState) -> bool:
        return (
            state.buffered >= self._config.max_partition_fetch_bytes or self._buffered >= self._config.fetch_max_bytes
        )

    # Fetching.

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = self._loop.time()
            cluster = self._network.cluster
            self._update_partitions(cluster)
            self._positions.check_topics(cluster)
            due = self._positions.due(now)
            if due:
                for state in due:
                    state.resolving = True
                self._tasks.spawn(self._resolve(due))
                for node in {node for state in due if (node := cluster.leader(state.tp)) is not None}:
                    self._tasks.spawn(self._connect(node))
            for leader, states in self._positions.unchecked(now, cluster).items():
                for state in states:
                    state.checking = True
                self._tasks.spawn(self._check(leader, states))
            self._send(now)
            self._show_errors()
            next_try = min((s.retry_at for s in self._subscription.states.values() if s.retry_at > now), default=None)
            try:
                async with asyncio.timeout_at(next_try):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _update_partitions(self, cluster: Cluster) -> None:
        """Update the leaders, and the number of buffered bytes, which seeks and revocations reduce."""
        self._buffered = 0
        for state in self._subscription.states.values():
            self._buffered += state.buffered
            leader = cluster.leader(state.tp)
            if leader is not None:
                state.led_by(leader)

    def _show_errors(self) -> None:
        for state in self._subscription.states.values():
            if state.error is not None:
                self._fill(state)

    def _fill(self, state: PartitionState) -> None:
        if not state.queued:
            state.queued = True
            self._filled.append(state)
        self._arrived()

    def _send(self, now: float) -> None:
        by_node: defaultdict[int, dict[PartitionState, int]] = defaultdict(dict)
        full: set[int] = set()
        cluster = self._network.cluster
        for state in self._subscription.states.values():
            if not state.fetchable or state.error is not None or state.retry_at > now:
                continue
            node = state.preferred
            if node is None or not self._network.ready(node):
                node = cluster.leader(state.tp)
            if node is None or not self._network.ready(node):
                state.back_off(now)
                self._network.want_refresh()
            elif self._is_full(state):
                full.add(node)
            elif node not in self._fetching:
                by_node[node][state] = state.epoch
        for node, decided in by_node.items():
            for state in decided:
                state.fetching = True
            self._fetching.add(node)
            self._tasks.spawn(self._fetch(node, decided, short=node in full))

    def _task_failed(self, error: BaseException) -> None:
        """A task raised, which is a bug: polls raise it instead of waiting for ever."""
        _log.error("fetching failed", exc_info=error)
        self.failure = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"fetching failed: {error!r}. To do: report this as a bug"
        )
        self._arrived()

    async def _resolve(self, decided: Mapping[PartitionState, int]) -> None:
        await self._positions.resolve(decided)
        self.wake()
        self._arrived()

    async def _connect(self, node: int) -> None:
        """Connect before the positions are known, so that the first fetch does not wait for it."""
        try:
            await self._network.connection(node, Purpose.FETCH)
        except KafkaError as error:
            _log.debug("no connection to fetch on yet", node=node, reason=str(error))

    async def _check(self, leader: int, decided: Mapping[PartitionState, int]) -> None:
        await self._positions.check(leader, decided)
        self.wake()
        self._arrived()

    async def _fetch(self, node: int, decided: Mapping[PartitionState, int], *, short: bool) -> None:
        asked: _Asked = {}
        try:
            connection = await self._network.connection(node, Purpose.FETCH)
            asked = {state.tp: (state, state.epoch, state.fetch_offset) for state in as_decided(decided)}
            if asked:
                began, wait = self._loop.time(), self._wait_ms(short=short) / 1000
                response = await self._ask(node, connection, [state for state, _, _ in asked.values()], short=short)
                self._take_response(response, asked, node, in_time=self._loop.time() - began >= wait / 2)
        except KafkaError as error:
            _log.info("a fetch failed", node=node, reason=str(error))
            self._network.want_refresh()
            for state in as_decided(decided):
                state.preferred = None
                self._retry(state, error)
        finally:
            for state in as_decided(decided):
                state.fetching = False
            self._fetching.discard(node)
            self.wake()

    def _wait_ms(self, *, short: bool) -> int:
        """How long the broker may wait for data."""
        return min(self._config.fetch_max_wait_ms, SHORT_WAIT_MS) if short else self._config.fetch_max_wait_ms

    async def _ask(
        self, node: int, connection: Connection, states: list[PartitionState], *, short: bool
    ) -> FetchResponse:
        config, cluster = self._config, self._network.cluster
        topics: dict[str, FetchTopic] = {}
        at_most: int | None = None
        for state in states:
            name = state.tp.topic
            if name not in topics:
                topic_id = cluster.topic_id(name)
                at_most = TOPICS_BY_NAME if topic_id == NO_ID else at_most
                topics[name] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            info = cluster.partition(state.tp)
            topics[name].partitions.append(
                FetchPartition(
                    partition=state.tp.partition,
                    current_leader_epoch=-1 if info is None else info.leader_epoch,
                    fetch_offset=state.fetch_offset,
                    last_fetched_epoch=-1 if state.doubted else state.fetch_epoch,
                    partition_max_bytes=config.max_partition_fetch_bytes,
                )
            )
        wait = self._wait_ms(short=short)
        request = FetchRequest(
            max_wait_ms=wait,
            min_bytes=config.fetch_min_bytes,
            max_bytes=max(config.fetch_max_bytes - self._buffered, 1),
            isolation_level=1 if config.read_committed else 0,
            topics=list(topics.values()),
            rack_id=config.client_rack,
        )
        timeout = self._network.config.request_timeout + wait / 1000
        began = time.monotonic()
        response = await connection.send(request, decode_fetch_response, timeout=timeout, at_most=at_most)
        self._measure(response, began)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, f"fetch from broker {node}")
        names = {topic.topic_id: name for name, topic in topics.items()}
        for answered in response.responses:
            answered.topic = answered.topic or names.get(answered.topic_id, "")
        return response

    def _measure(self, response: FetchResponse, began: float) -> None:
        now = time.monotonic()
        size = sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)
        self._meters.fetch_latency.add(now - began, now)
        self._meters.fetched_bytes.add(size, now)

    def _take_response(self, response: FetchResponse, asked: _Asked, node: int, *, in_time: bool) -> None:
        taken: dict[PartitionState, _Taken] = {}
        for topic in response.responses:
            for data in topic.partitions:
                found = asked.get(TopicPartition(topic.topic, data.partition_index))
                if found is None:
                    continue
                state, epoch, offset = found
                if state.epoch == epoch and state.tp in self._subscription.states:
                    taken[state] = self._take_partition(state, data, offset, node)
        self._back_off_fruitless([state for state, epoch, _ in asked.values() if state.epoch == epoch], taken, in_time)

    def _back_off_fruitless(
        self, states: list[PartitionState], taken: dict[PartitionState, _Taken], in_time: bool
    ) -> None:
        """A broker that has nothing waits before it answers; ask one that answers at once, and nothing new, less often.

        Args:
            states: the partitions that were asked for.
            taken: what came for them.
            in_time: the response took as long as it may without data.
        """
        now = self._loop.time()
        if in_time:
            for state in states:
                if taken.get(state) is _Taken.NOTHING:
                    state.progressed()
        elif not any(one is _Taken.NEW or one is _Taken.REFUSED for one in taken.values()):
            # Data that is not wanted makes the broker answer at once; partitions without any are not the cause.
            useless = [state for state in states if taken.get(state) is _Taken.USELESS]
            for state in useless or states:
                state.back_off(now, at_once=True)

    def _take_partition(self, state: PartitionState, data: PartitionData, offset: int, node: int) -> _Taken:
        code = ErrorCode.of(data.error_code)
        if code != ErrorCode.NONE:
            self._refused(state, code, data, offset, node)
            return _Taken.REFUSED
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        state.measured_at, state.fetched_at = self._loop.time(), round(time.time() * 1000)
        diverging = data.diverging_epoch
        if diverging is not None:
            self._diverged(state, diverging.epoch, diverging.end_offset)
            return _Taken.REFUSED
        if data.preferred_read_replica >= 0:
            state.preferred = data.preferred_read_replica
        if not data.records:
            return _Taken.USELESS if data.preferred_read_replica >= 0 else _Taken.NOTHING
        aborted = (data.aborted_transactions or ()) if self._config.read_committed else None
        chunks = cut(state.tp, data.records, offset, aborted)
        if not chunks:
            return _Taken.USELESS
        state.chunks.extend(chunks)
        state.fetch_offset = chunks[-1].end
        if chunks[-1].error is None:
            state.fetch_epoch = chunks[-1].leader_epoch
        size = sum(chunk.size for chunk in chunks)
        state.buffered += size
        self._buffered += size
        self._fill(state)
        return _Taken.NEW

    def _diverged(self, state: PartitionState, epoch: int, end: int) -> None:
        state.back_off(self._loop.time(), at_once=True)
        if epoch < 0 or end < 0:
            # The leader does not know that epoch. OffsetForLeaderEpoch finds out whether it has written nothing yet.
            state.doubted = True
        elif state.position is not None and not judge(state, epoch, end, self._policy) and state.error is not None:
            self._fill(state)

    def _refused(self, state: PartitionState, code: ErrorCode, data: PartitionData, offset: int, node: int) -> None:
        if code in _MOVED:
            state.preferred = None
            self._network.want_refresh()
            leader = data.current_leader
            if leader is not None and leader.leader_id >= 0:
                cluster = self._network.cluster.with_leader(state.tp, leader.leader_id, leader.leader_epoch)
                self._network.learn(cluster)
            self._retry(state, error_for(code, f"fetch {state.tp} from broker {node}"))
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, offset)
        elif code.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            self._retry(state, error_for(code, f"fetch {state.tp} from broker {node}"))
        else:
            state.error = error_for(code, f"fetch {state.tp} at offset {offset}")
            self._fill(state)

    def _retry(self, state: PartitionState, error: KafkaError) -> None:
        state.back_off(self._loop.time())
        _log.debug("a partition could not be fetched", partition=str(state.tp), reason=str(error))

    def _out_of_range(self, state: PartitionState, offset: int) -> None:
        if state.preferred is not None:
            # The replica may only be behind; ask the leader.
            state.preferred = None
            state.back_off(self._loop.time(), at_once=True)
            return
        policy = self._policy
        if state.chunks or state.parts or state.ready:
            # Buffered records before it come first; it is fetched again afterwards.
            state.back_off(self._loop.time())
        elif policy is not None:
            _log.warning(
                "an offset is out of range, resetting", partition=str(state.tp), offset=offset, to=policy.name.lower()
            )
            state.need(policy)
            state.back_off(self._loop.time(), at_once=True)
        else:
            state.error = OffsetOutOfRangeError(
                f"offset {offset} of {state.tp} is out of range and auto_offset_reset is 'none'. To do: seek() to an "
                "offset that exists, or set auto_offset_reset to 'earliest' or 'latest'"
            )
            self._fill(state)
