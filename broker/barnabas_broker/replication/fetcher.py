"""Fetches from leaders: one fetcher per leader broker, one Fetch at a time for all partitions that follow it.

Batches are appended as they are, with their offsets and leader epochs. The next Fetch tells the leader that they are in
the log, so it waits for their fsync, if ``flush.messages`` asks for one before an acknowledgement. A partition that
fails (the log cannot be written) pauses for ``replica.fetch.backoff.ms`` while the others continue. If the broker does
not lead it yet, because the new image has not arrived there, the pauses begin with a few milliseconds and grow to that
time. After a connection error all partitions of the leader pause, but not if the connection was older than such a
pause: an idle connection to a broker that was restarted fails when it is used again. Pauses are short for some attempts
if the broker has accepted a connection before: they show whether its process has ended.

Each broker has a connection to every registered one, also if there is nothing to fetch: a process that leads nothing
may be in ISRs, and acks=all waits for it until its end is known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from barnabas_broker.cluster.image import BrokerRegistered, Event, Image
from barnabas_broker.config import Config
from barnabas_broker.config.keys import (
    REPLICA_FETCH_BACKOFF_MS,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_MIN_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_SOCKET_TIMEOUT_MS,
)
from barnabas_broker.logs import logger
from barnabas_broker.replication.connection import PLAIN_TEXT, BrokerConnection, BrokerSecurity
from barnabas_broker.replication.following import (
    VERSION,
    FetchSessionHandler,
    Finding,
    LeaderProcess,
    PartitionFetchState,
    TopicIdPartition,
    truncation_offset,
)
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import TopicPartition
from barnabas_broker.storage.corruption import Damage
from barnabas_broker.storage.epochs import UNDEFINED
from barnabas_broker.storage.names import LOG
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.hot.fetch import decode_fetch_response
from barnabas_protocol.messages.fetch import FetchResponse, PartitionData
from barnabas_protocol.uuids import read_uuid_text

log = logger("replication")

#: Seconds between checks whether this broker is registered.
_UNREGISTERED_SECONDS: Final = 0.1
#: Seconds of the first pause of a partition that the broker does not lead yet; each further one takes twice as long.
_EARLY_SECONDS: Final = 0.02
#: Seconds until a failed connection is tried again, to find out whether the leader's process has ended.
_AGAIN_SECONDS: Final = 0.1
#: Errors during a change of leaders: this broker has not received the new image yet, or the leader has not.
_EXPECTED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Registered(NamedTuple):
    """Where a broker is registered, and its broker epoch."""

    host: str
    port: int
    epoch: int


class ReplicaFetcherManager:
    """All fetchers of this broker.

    Args:
        config: the broker's configuration.
        node_id: this broker.
        registered: finds another broker; None while it is not registered.
        process_ended: called with the node id and the broker epoch of a leader whose process has ended.
        broker_epoch: this broker's broker epoch (KIP-903); -1 while it is not registered, and then it does not fetch:
            another broker may have its node id by now.
        directory: the id of this broker's data directory.
        wall_ms: the time of day, in ms.
        security: the certificates of this broker, and by what it logs in.
        may_fetch: whether this broker can write what it fetches; :meth:`resume` when it can again.
    """

    def __init__(
        self,
        config: Config,
        node_id: int,
        registered: Callable[[int], Registered | None],
        process_ended: Callable[[int, int], Awaitable[None]],
        broker_epoch: Callable[[], int],
        directory: str,
        wall_ms: Callable[[], int],
        security: BrokerSecurity = PLAIN_TEXT,
        may_fetch: Callable[[], bool] = lambda: True,
    ) -> None:
        self.config = config
        self.node_id = node_id
        self.registered = registered
        self.process_ended = process_ended
        self.broker_epoch = broker_epoch
        self.directory = read_uuid_text(directory)
        self.wall_ms = wall_ms
        self.security = security
        self.may_fetch = may_fetch
        self._fetchers: dict[int, _ReplicaFetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._closed = False

    def follow(self, replica: Replica, leader: int) -> None:
        """Fetch a partition from `leader`; -1 stops fetching it."""
        where = replica.log.topic_partition
        before = self._leaders.pop(where, None)
        if before is not None and before != leader:
            self._fetchers[before].drop(where)
        if leader < 0:
            return
        self._leaders[where] = leader
        self._fetcher(leader).add(where, replica)

    def resume(self) -> None:
        """Fetch again."""
        for fetcher in self._fetchers.values():
            fetcher.look()

    def image_changed(self, image: Image, events: Sequence[Event]) -> None:
        """Connect to brokers that were registered, or registered again."""
        if any(isinstance(event, BrokerRegistered) for event in events) and not self._closed:
            for node_id in image.brokers:
                if node_id != self.node_id:
                    self._fetcher(node_id).look()

    def _fetcher(self, node_id: int) -> "_ReplicaFetcher":
        fetcher = self._fetchers.get(node_id)
        if fetcher is None:
            fetcher = self._fetchers[node_id] = _ReplicaFetcher(self, node_id)
        return fetcher

    async def close(self) -> None:
        """Stop all fetchers."""
        self._closed = True
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._leaders.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers))


class _ReplicaFetcher:
    """Fetches from one broker what it leads, and notices that its process has ended."""

    def __init__(self, manager: ReplicaFetcherManager, leader: int) -> None:
        self._manager = manager
        self._leader = leader
        config = manager.config
        self._backoff = config[REPLICA_FETCH_BACKOFF_MS] / 1000
        self._timeout = (config[REPLICA_SOCKET_TIMEOUT_MS] + config[REPLICA_FETCH_WAIT_MAX_MS]) / 1000
        self._session = FetchSessionHandler(
            manager.node_id,
            manager.directory,
            config[REPLICA_FETCH_WAIT_MAX_MS],
            config[REPLICA_FETCH_MIN_BYTES],
            config[REPLICA_FETCH_RESPONSE_MAX_BYTES],
            config[REPLICA_FETCH_MAX_BYTES],
        )
        self._partitions: dict[TopicPartition, Replica] = {}
        self._paused: dict[TopicPartition, asyncio.TimerHandle] = {}
        #: How often partitions were refused in a row because the broker does not lead them.
        self._early: dict[TopicPartition, int] = {}
        #: What the next Fetch waits for: the fsyncs of what was appended.
        self._syncs: dict[TopicPartition, asyncio.Future[None]] = {}
        self._process = LeaderProcess()
        self._changed = asyncio.Event()
        self._failing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher-{leader}")

    def add(self, where: TopicPartition, replica: Replica) -> None:
        self._partitions[where] = replica
        self._early.pop(where, None)
        self._wake(where)

    def look(self) -> None:
        """Connect to the broker, if there is no connection, and fetch from it."""
        self._changed.set()

    def drop(self, where: TopicPartition) -> None:
        self._partitions.pop(where, None)
        self._early.pop(where, None)
        timer = self._paused.pop(where, None)
        if timer is not None:
            timer.cancel()

    async def close(self) -> None:
        for where in list(self._paused):
            self.drop(where)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _pause(self, where: TopicPartition, code: ErrorCode) -> None:
        if where in self._partitions and where not in self._paused:
            delay = self._backoff
            if code in _EXPECTED:
                times = self._early[where] = self._early.get(where, -1) + 1
                delay = min(_EARLY_SECONDS * 2 ** min(times, 30), delay)
            loop = asyncio.get_running_loop()
            self._paused[where] = loop.call_later(delay, self._wake, where)

    def _wake(self, where: TopicPartition) -> None:
        timer = self._paused.pop(where, None)
        if timer is not None:
            timer.cancel()
        self._changed.set()

    def _states(self) -> dict[TopicIdPartition, tuple[TopicPartition, Replica, PartitionFetchState]]:
        states: dict[TopicIdPartition, tuple[TopicPartition, Replica, PartitionFetchState]] = {}
        if not self._manager.may_fetch():
            return states
        for where, replica in self._partitions.items():
            if where not in self._paused:
                replica_log = replica.log
                last = (
                    replica_log.leader_epochs.epoch_for(replica_log.log_end_offset - 1)
                    if replica_log.log_end_offset
                    else -1
                )
                state = PartitionFetchState(
                    replica.leader_epoch, replica_log.log_end_offset, last, replica_log.log_start_offset
                )
                states[TopicIdPartition(replica_log.topic_id, where.partition)] = (where, replica, state)
        return states

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            if self._manager.broker_epoch() < 0:
                await asyncio.sleep(_UNREGISTERED_SECONDS)
                continue
            registered = self._manager.registered(self._leader)
            if registered is None and not self._partitions:
                self._changed.clear()
                continue
            began, pause = asyncio.get_running_loop().time(), self._backoff
            if registered is not None:
                try:
                    pause = await self._connect(registered)
                except (OSError, DecodeError, KafkaError) as error:
                    self._report(str(error) or type(error).__name__)
                except Exception:
                    # An unexpected error must not stop replication for ever.
                    log.exception("fetcher failed, starting again", leader=self._leader)
            if asyncio.get_running_loop().time() - began < self._backoff or registered is None:
                await asyncio.sleep(pause)

    async def _connect(self, registered: Registered) -> float:
        """Fetch, over one connection; return the seconds until the next attempt if that was short."""
        try:
            await self._fetch(registered)
        except ConnectionError as error:
            self._report(str(error))
            refused = isinstance(error, ConnectionRefusedError)
            finding = self._process.failed(registered.epoch, refused=refused)
            if finding is Finding.UNDECIDED:
                return min(_AGAIN_SECONDS, self._backoff)
            if finding is Finding.ENDED:
                await self._manager.process_ended(self._leader, registered.epoch)
        return self._backoff

    def _report(self, reason: str) -> None:
        if not self._failing and self._partitions:
            self._failing = True
            log.warning("cannot fetch from leader", leader=self._leader, reason=reason)

    async def _fetch(self, at: Registered) -> None:
        client_id = f"broker-{self._manager.node_id}-fetcher"
        connection = await BrokerConnection.open(at.host, at.port, client_id, self._timeout, self._manager.security)
        self._process.accepted(at.epoch)
        self._session.reset()
        connection.on_lost = self._changed.set
        try:
            while True:
                if connection.lost is not None:
                    raise connection.lost
                asked = self._states()
                if not asked:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                broker_epoch = self._manager.broker_epoch()
                if broker_epoch < 0:
                    return
                states = {key: state for key, (_, _, state) in asked.items()}
                request = self._session.request(states, broker_epoch)
                registered = self._manager.registered(self._leader)
                frame = await connection.send(request, VERSION, self._timeout)
                if registered is not None:
                    self._process.answered(registered.epoch)
                response = decode_fetch_response(VERSION, frame)
                if self._failing:
                    self._failing = False
                    log.info("fetching from leader again", leader=self._leader)
                self._handle(response, asked)
                if self._syncs:
                    await self._synced()
        finally:
            connection.close()

    async def _synced(self) -> None:
        """Wait until what was appended is on the disk; partitions whose disk fails pause."""
        syncs, self._syncs = self._syncs, {}
        results = await asyncio.gather(*syncs.values(), return_exceptions=True)
        for where, result in zip(syncs, results, strict=True):
            if isinstance(result, KafkaError) and result.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._pause(where, result.code)

    def _handle(
        self,
        response: FetchResponse,
        asked: dict[TopicIdPartition, tuple[TopicPartition, Replica, PartitionFetchState]],
    ) -> None:
        error = ErrorCode.of(response.error_code)
        if not self._session.handle_response(error, response.session_id):
            return
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        for topic in response.responses:
            for answer in topic.partitions:
                key = TopicIdPartition(bytes(topic.topic_id), answer.partition_index)
                if key not in asked:
                    raise DecodeError(f"the response contains partition {key}, which the request did not")
                where, replica, state = asked[key]
                if self._partitions.get(where) is not replica or replica.leader_epoch != state.leader_epoch:
                    continue  # it follows another leader by now
                try:
                    self._handle_partition(replica, state, answer)
                    self._early.pop(where, None)
                except KafkaError as failure:
                    level = log.debug if failure.code in _EXPECTED else log.warning
                    level(
                        "partition is not fetched", partition=str(where), error=failure.code.name, reason=str(failure)
                    )
                    self._session.repeat(key)
                    self._pause(where, failure.code)

    def _handle_partition(self, replica: Replica, state: PartitionFetchState, answer: PartitionData) -> None:
        replica_log, error = replica.log, ErrorCode.of(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset > state.offset:
            # The leader has deleted what this follower needs next.
            log.warning(
                "truncating the log to the start of the leader's log",
                partition=str(replica_log.topic_partition),
                at=answer.log_start_offset,
            )
            replica_log.truncate_fully_and_start_at(answer.log_start_offset, self._manager.wall_ms())
            replica_log.set_high_watermark(answer.log_start_offset)
            return
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        if answer.diverging_epoch is not None:
            if answer.diverging_epoch.end_offset < UNDEFINED:
                raise DecodeError(f"epoch {answer.diverging_epoch.epoch} ends at {answer.diverging_epoch.end_offset}")
            self._truncate(replica, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
            return
        if answer.records:
            if replica_log.log_end_offset != state.offset:
                return  # the log has changed since the request
            appended = replica_log.append_as_follower(answer.records, now_ms=self._manager.wall_ms())
            if (sync := replica_log.durable(appended.last_offset)) is not None:
                self._syncs[replica_log.topic_partition] = sync
        mark = min(answer.high_watermark, replica_log.log_end_offset)
        if mark > replica_log.high_watermark:
            replica_log.set_high_watermark(mark)
        if answer.log_start_offset > replica_log.log_start_offset:
            replica_log.start_at(min(answer.log_start_offset, replica_log.log_end_offset))

    def _truncate(self, replica: Replica, epoch: int, end_offset: int) -> None:
        replica_log = replica.log
        offset = truncation_offset(
            replica_log.leader_epochs, replica_log.log_end_offset, replica_log.high_watermark, epoch, end_offset
        )
        below = offset < replica_log.high_watermark
        level = log.error if below else log.info
        level(
            "truncating the log where it diverges from the leader's",
            partition=str(replica_log.topic_partition),
            leader_epoch=replica.leader_epoch,
            end=replica_log.log_end_offset,
            at=offset,
            high_watermark=replica_log.high_watermark,
        )
        if offset >= replica_log.log_end_offset:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader reports a diverging epoch, but the logs agree")
        if below and replica.counts(self._manager.node_id):
            # Others take this replica for whole: it leaves the ISR first.
            file = replica_log.segments.active.path(LOG)
            reason = "the leader has other records below the high watermark"
            replica_log.disk.damage_found(
                replica_log.topic_partition, Damage(0, 0, offset, replica_log.high_watermark, file, reason)
            )
            return
        replica_log.truncate_to(offset)
