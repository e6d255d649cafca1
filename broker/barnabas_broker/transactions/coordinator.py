"""The transaction coordinator: finds the machine of a transactional id, carries out its effects, keeps time. A shell.

Source: Kafka's ``TransactionCoordinator``, ``TransactionStateManager`` and ``AddPartitionsToTxnManager``.
"""

import asyncio
from asyncio import Future
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final, NamedTuple

from barnabas_broker.backoff import jittered
from barnabas_broker.clock import Handle
from barnabas_broker.config import Config, Key
from barnabas_broker.config.keys import (
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from barnabas_broker.coordinators.loading import replay_partition, report_failure
from barnabas_broker.coordinators.ports import CoordinatorLog, Scheduler
from barnabas_broker.coordinators.timers import Timers
from barnabas_broker.coordinators.writer import Writer
from barnabas_broker.folded import Folded, FoldedLines
from barnabas_broker.logs import logger
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.leader_requests import LeaderRequests
from barnabas_broker.transactions.markers import Marker, MarkerSender, partition_names
from barnabas_broker.transactions.ports import EventsLog, Leader, Peers, WriteMarkers
from barnabas_broker.transactions.records import TransactionReplay, transaction_key, transaction_value
from barnabas_broker.transactions.transaction import (
    NONE,
    SERVER_VERSION,
    Completed,
    Effect,
    Ended,
    Metadata,
    NeedProducerId,
    Persist,
    Refused,
    Reply,
    RetryPersist,
    SendMarkers,
    Transaction,
    TransactionState,
    fresh_metadata,
)
from barnabas_explain.transactions import Cause, EventRecord, encode_event, ended_event, slow_event
from barnabas_protocol.codec import decode_response
from barnabas_protocol.durations import seconds
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.internal_topics import TRANSACTIONS_TOPIC, partition_for
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas_protocol.records import build_batch
from barnabas_protocol.wire import MAX_STRING

log = logger("transactions")

#: Seconds until the end of a transaction is appended again.
_RETRY_SECONDS: Final = (0.5, 10.0)
#: Transactional ids that are restored in one turn of the event loop, and those that may be written in one.
_STEP: Final = 1_000
_WRITTEN_STEP: Final = 100
#: Requests about one transactional id that wait at a time.
_MOST_HELD: Final = 100
#: The version of AddPartitionsToTxn between brokers.
_ADD_VERSION: Final = 5
#: The part of its timeout after which an open transaction is worth a warning, and the least time in ms.
_LONG: Final = 0.5
_LONG_MS: Final = 10_000

#: A call of a machine, with a fresh producer id or -1.
Step = Callable[["HostedTransaction", int], list[Effect]]


class HostedPartition:
    """A partition of ``__transaction_state`` that this broker leads.

    Attributes:
        index: its number.
        leader_epoch: the leader epoch for which it was loaded: the coordinator epoch of its markers.
        loading: whether its replay is still running.
        transactions: its transactional ids.
        open: those whose transaction is open.
    """

    __slots__ = ("index", "leader_epoch", "loading", "open", "transactions")

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.loading = True
        self.transactions: dict[str, HostedTransaction] = {}
        self.open: dict[str, HostedTransaction] = {}


class HostedTransaction:
    """A transactional id that this broker coordinates.

    Attributes:
        home: its partition.
        machine: its state machine.
        opened: when the open transaction began, in seconds on the monotonic clock.
        connection: the number of the connection on which the producer has begun, extended or ended a transaction last;
            0 if it is not known.
        client: who used it last, for the log; "" after the coordinator has moved.
        warned: whether the open transaction was reported as slow.
        held: requests that wait until the change that is under way is done, in their order, by their answers; None if
            there are none.
        failures: how often the end of its transaction could not be written, in a row.
    """

    __slots__ = ("client", "connection", "failures", "held", "home", "machine", "opened", "warned")

    def __init__(self, home: HostedPartition, machine: Transaction) -> None:
        self.home = home
        self.machine = machine
        self.opened = 0.0
        self.connection = 0
        self.client = ""
        self.warned = False
        self.failures = 0
        self.held: dict[Future[Reply], HeldRequest] | None = None


class HeldRequest(NamedTuple):
    """A request that came while the last transaction was being ended.

    Attributes:
        step: the call of the machine.
        until: seconds on the monotonic clock; then it is answered CONCURRENT_TRANSACTIONS.
        timer: for that time.
    """

    step: Step
    until: float
    timer: asyncio.TimerHandle


class TransactionMetrics:
    """Counters of the transactions that this broker has coordinated since its start.

    Attributes:
        ended: how many were decided, by outcome and cause: ("commit", "client"), ("abort", "timeout"), ...
        slow: how many were reported because they were open for long.
        refused: steps that the state did not allow, by error.
    """

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, str]] = Counter()
        self.slow = 0
        self.refused: Counter[str] = Counter()


class TransactionCoordinator:
    """Coordinates the transactions whose partition of ``__transaction_state`` this broker leads.

    Its timers run from its creation, which needs a running event loop, until :meth:`close`.

    Args:
        config: of the broker.
        node_id: this broker.
        topic_log: appends to and reads ``__transaction_state``.
        leader: of a partition.
        write: writes the markers of partitions that this broker leads.
        peers: the other brokers.
        next_producer_id: a producer id that was never used; it raises KafkaError if there is none now.
        events: the log of ``__transaction_events``.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        scheduler: the timers of `now`; those of the event loop if None.

    Attributes:
        partitions: the partitions of ``__transaction_state`` that are loaded or being loaded.
        metrics: what has happened.
        markers: sends the markers.
    """

    def __init__(
        self,
        config: Config,
        node_id: int,
        topic_log: CoordinatorLog,
        leader: Leader,
        write: WriteMarkers,
        peers: Peers,
        next_producer_id: Callable[[], Awaitable[int]],
        events: EventsLog,
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        scheduler: Scheduler | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler: Scheduler = self._loop if scheduler is None else scheduler
        self._config = config
        self._node_id = node_id
        self._log = topic_log
        self._leader = leader
        self._next_producer_id = next_producer_id
        self._events = events
        #: Events that are written in the next iteration of the loop.
        self._unwritten: list[EventRecord] = []
        self._now = now
        self._wall_ms = wall_ms
        self._partition_count = config[TRANSACTION_STATE_LOG_NUM_PARTITIONS]
        self._timers = Timers(self._scheduler, now)
        #: Seconds that an append and a request to another broker may take.
        self._timeout = config[REQUEST_TIMEOUT_MS] / 1000
        self._writer = Writer(TRANSACTIONS_TOPIC, topic_log, self._loop, self._timers, now, wall_ms, self._timeout)
        self.markers = MarkerSender(node_id, leader, write, peers, self._timeout)
        #: Questions to the coordinators on other brokers.
        self._questions = LeaderRequests(leader, peers, self._timeout)
        self.partitions: dict[int, HostedPartition] = {}
        self.metrics = TransactionMetrics()
        #: Logs markers that are not written.
        self.refused_markers = Folded(
            log.info, "transaction marker is not written", "transaction markers are not written", now
        )
        self._lines = FoldedLines(now, "client_id")
        #: Calls that wait for a producer id or for another broker.
        self._tasks: set[asyncio.Task[None]] = set()
        #: The transactional ids with requests that are held.
        self._holding: set[HostedTransaction] = set()
        self._closed = False
        self._backoff = jittered(*_RETRY_SECONDS, seed=f"transactions {node_id}")
        self._handles: dict[str, Handle] = {}
        self._every(TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS, self._check_open)
        self._every(TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS, self._expire)

    # Which transactional ids there are

    def partition_for(self, transactional_id: str) -> int:
        """The partition of ``__transaction_state`` that a transactional id belongs to."""
        return partition_for(transactional_id, self._partition_count)

    def topics_changed(self, partitions: Mapping[str, int]) -> None:
        """Set the number of partitions of new and changed topics; leaders may have changed, too."""
        self._partition_count = partitions.get(TRANSACTIONS_TOPIC, self._partition_count)
        self.markers.leaders_changed()
        self._questions.leaders_changed()

    def _home(self, transactional_id: str) -> HostedPartition:
        """The partition of a transactional id that this broker coordinates.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        home = self.partitions.get(self.partition_for(transactional_id))
        if home is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if home.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return home

    def _wanted(self, hosted: HostedTransaction) -> bool:
        """Whether this broker still coordinates a transactional id, as it did when `hosted` was made."""
        return self.partitions.get(hosted.home.index) is hosted.home

    @property
    def open(self) -> int:
        """The number of open transactions."""
        return sum(len(home.open) for home in self.partitions.values())

    @property
    def oldest_ms(self) -> int:
        """For how many ms the oldest open transaction has been open; 0 if none is."""
        ages = (self._open_ms(hosted) for home in self.partitions.values() for hosted in home.open.values())
        return max(ages, default=0)

    def _open_ms(self, hosted: HostedTransaction) -> int:
        """For how many ms an open transaction has been open."""
        return round((self._now() - hosted.opened) * 1000)

    @property
    def transactional_ids(self) -> int:
        """The number of transactional ids that this broker coordinates."""
        return sum(len(home.transactions) for home in self.partitions.values())

    # Requests

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None, client: str, connection: int = 0
    ) -> Future[Reply]:
        """InitProducerId with a transactional id: the answer, when it is in the log.

        Args:
            transactional_id: of the producer.
            timeout_ms: of its transactions.
            expected: its current producer id and epoch, if it has them (KIP-360).
            client: for the log.
            connection: the number of the client's connection.
        """
        reply: Future[Reply] = self._loop.create_future()
        # A longer id does not fit into a record's key.
        if not transactional_id or len(transactional_id.encode()) > MAX_STRING:
            return _failed(reply, ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config[TRANSACTION_MAX_TIMEOUT_MS]:
            return _failed(reply, ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        def step(hosted: HostedTransaction, fresh: int) -> list[Effect]:
            effects = hosted.machine.init_producer_id(reply, timeout_ms, expected, fresh, self._wall_ms())
            if isinstance(effects[0], Persist):
                # Not the newest one: another program may take over on a connection that it has had for long.
                hosted.connection = connection
            return effects

        def begin(fresh: int) -> None:
            home = self._home(transactional_id)
            hosted = home.transactions.get(transactional_id)
            if hosted is None and fresh == NONE:
                self._with_producer_id(reply, begin)
                return
            if hosted is None:
                metadata = fresh_metadata(fresh, timeout_ms, self._wall_ms())
                hosted = HostedTransaction(home, Transaction(transactional_id, metadata))
                home.transactions[transactional_id] = hosted
                fresh = NONE
            hosted.client = client
            self._take(hosted, reply, step, fresh)

        self._guard(reply, begin)
        return reply

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        version: int,
        client: str,
        connection: int = 0,
    ) -> Future[Reply]:
        """AddPartitionsToTxn and AddOffsetsToTxn: the answer, when the partitions are in the log.

        Args:
            transactional_id: of the producer.
            producer_id: of the producer.
            epoch: its epoch.
            partitions: to add; they must exist.
            version: of transactions: 0, or 2 if the leader adds them for the client.
            client: for the log.
            connection: the number of the client's connection; 0 if it is not known. See :meth:`_is_late`.
        """
        return self._request(
            transactional_id,
            client,
            connection,
            version,
            lambda hosted, reply, fresh: hosted.machine.add_partitions(
                reply, producer_id, epoch, partitions, version, self._wall_ms()
            ),
        )

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        committed: bool,
        version: int,
        client: str,
        connection: int = 0,
    ) -> Future[Reply]:
        """EndTxn: the answer, when the decision is in the log.

        Args:
            transactional_id: of the producer.
            producer_id: of the producer.
            epoch: its epoch.
            committed: whether to commit.
            version: of transactions: 0 or 2.
            client: for the log.
            connection: the number of the client's connection; 0 if it is not known. See :meth:`_is_late`.
        """
        return self._request(
            transactional_id,
            client,
            connection,
            version,
            lambda hosted, reply, fresh: hosted.machine.end(
                reply, producer_id, epoch, committed, version, fresh, self._wall_ms()
            ),
        )

    def verify_here(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions belong to the open transaction of an id that this broker coordinates."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        try:
            hosted = self._home(transactional_id).transactions.get(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        if hosted is None:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return hosted.machine.verify(producer_id, epoch, partitions)

    def describe(self, transactional_id: str) -> Metadata:
        """The state of a transactional id.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST, or this broker does not coordinate it.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        hosted = self._home(transactional_id).transactions.get(transactional_id)
        if hosted is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return hosted.machine.metadata

    def listed(self) -> Iterator[Transaction]:
        """All transactional ids that this broker coordinates. They may change while the caller goes through them.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
        """
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if any(home.loading for home in self.partitions.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return (
            hosted.machine for home in list(self.partitions.values()) for hosted in list(home.transactions.values())
        )

    def _request(
        self,
        transactional_id: str,
        client: str,
        connection: int,
        version: int,
        call: Callable[[HostedTransaction, Future[Reply], int], list[Effect]],
    ) -> Future[Reply]:
        """Call the machine of a transactional id that must exist."""
        reply: Future[Reply] = self._loop.create_future()
        if not transactional_id:
            return _failed(reply, ErrorCode.INVALID_REQUEST)

        def step(hosted: HostedTransaction, fresh: int) -> list[Effect]:
            if _is_late(hosted, connection, version):
                return [Reply(reply, ErrorCode.NETWORK_EXCEPTION)]
            effects = call(hosted, reply, fresh)
            first = effects[0]
            if isinstance(first, Persist) or (isinstance(first, Reply) and first.error is ErrorCode.NONE):
                hosted.connection = max(hosted.connection, connection)
            return effects

        def begin(fresh: int) -> None:
            hosted = self._home(transactional_id).transactions.get(transactional_id)
            if hosted is None:
                _failed(reply, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
                return
            if client:
                hosted.client = client
            self._take(hosted, reply, step, fresh)

        self._guard(reply, begin)
        return reply

    def _guard(self, reply: Future[Reply], begin: Callable[[int], None], fresh: int = NONE) -> None:
        """Call `begin`; an error of finding the transactional id is the answer."""
        try:
            begin(fresh)
        except KafkaError as error:
            _failed(reply, error.code)

    def _take(
        self, hosted: HostedTransaction, reply: Future[Reply] | None, step: Step, fresh: int, until: float = inf
    ) -> None:
        """Take a step of a machine, with a fresh producer id if it needs one, and carry out its effects.

        Args:
            hosted: whose machine.
            reply: the answer of the request; None if there is no request.
            step: the step.
            fresh: a producer id, or -1.
            until: when a request that was held before is answered.
        """
        effects = step(hosted, fresh)
        first = effects[0] if len(effects) == 1 else None
        if isinstance(first, NeedProducerId):
            self._with_producer_id(reply, lambda fresh: self._take_if_wanted(hosted, reply, step, fresh, until))
        elif (
            reply is not None
            and isinstance(first, Reply)
            and first.error is ErrorCode.CONCURRENT_TRANSACTIONS
            and hosted.machine.changing
        ):
            self._hold(hosted, reply, step, until)
        else:
            self._act(hosted, effects)

    def _take_if_wanted(
        self, hosted: HostedTransaction, reply: Future[Reply] | None, step: Step, fresh: int, until: float = inf
    ) -> None:
        if self._wanted(hosted):
            self._take(hosted, reply, step, fresh, until)
        else:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    # Requests that come while the last transaction is being ended

    def _hold(self, hosted: HostedTransaction, reply: Future[Reply], step: Step, until: float) -> None:
        """Keep a request until the change is done, which takes some ms. Refused, the client would wait longer: 20 ms,
        and then more. Apache Kafka holds such requests for as long, but only those of leaders. A client has a few at a
        time: what is over :data:`_MOST_HELD` is refused at once."""
        if hosted.held is not None and len(hosted.held) >= _MOST_HELD:
            _failed(reply, ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        now = self._now()
        until = min(until, now + self._config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS] / 1000)
        timer = self._loop.call_later(max(until - now, 0.0), self._refuse_held, hosted, reply)
        if hosted.held is None:
            hosted.held = {}
            self._holding.add(hosted)
        hosted.held[reply] = HeldRequest(step, until, timer)

    def _refuse_held(self, hosted: HostedTransaction, reply: Future[Reply]) -> None:
        """Give up: the change takes long."""
        held = hosted.held or {}
        held.pop(reply, None)
        self._keep_held(hosted, held)
        _failed(reply, ErrorCode.CONCURRENT_TRANSACTIONS)

    def _keep_held(self, hosted: HostedTransaction, held: dict[Future[Reply], HeldRequest]) -> None:
        hosted.held = held or None
        if not held:
            self._holding.discard(hosted)

    def _release(self, hosted: HostedTransaction) -> None:
        """Take the steps of requests that were held, until one begins a change: the others wait on."""
        held, hosted.held = hosted.held or {}, None
        while held and not (hosted.machine.changing and self._wanted(hosted)):
            reply = next(iter(held))
            each = held.pop(reply)
            each.timer.cancel()
            if not reply.done():
                self._guard(reply, partial(self._take_if_wanted, hosted, reply, each.step, until=each.until))
        self._keep_held(hosted, held)

    def _with_producer_id(self, reply: Future[Reply] | None, then: Callable[[int], None]) -> None:
        """Get a producer id, then go on."""

        async def get() -> None:
            try:
                then(await self._next_producer_id())
            except KafkaError as error:
                if reply is not None:
                    # What Kafka answers when no block of producer ids can be had; it is retriable.
                    found = error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                    _failed(reply, error.code if found else ErrorCode.COORDINATOR_NOT_AVAILABLE)

        self._spawn(get())

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Verification for leaders (KIP-890)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Future[Mapping[TopicPartition, ErrorCode]]:
        """Check that partitions belong to the ongoing transaction of a producer, wherever it is coordinated (KIP-890).

        Args:
            transactional_id: of the producer.
            producer_id: of its batches.
            producer_epoch: of its batches.
            partitions: the partitions that it writes to.
            add: add them to the transaction: for clients of transaction version 2.

        Returns:
            A future of the error code of each partition, NONE included. It never fails. The codes are those of Kafka's
            ``AddPartitionsToTxnManager`` before it looks at the client's version: Produce before 11 and
            TxnOffsetCommit before 4 answer INVALID_TXN_STATE in place of TRANSACTION_ABORTABLE.
        """
        answered: Future[Mapping[TopicPartition, ErrorCode]] = self._loop.create_future()
        partition = TopicPartition(TRANSACTIONS_TOPIC, self.partition_for(transactional_id))
        leader = self._leader(partition)
        if leader is None or leader < 0:
            answered.set_result(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif leader == self._node_id and not add:
            codes = self.verify_here(transactional_id, producer_id, producer_epoch, partitions)
            answered.set_result({each: _for_producers(code) for each, code in codes.items()})
        else:
            self._spawn(self._ask(leader, transactional_id, producer_id, producer_epoch, partitions, add, answered))
        return answered

    async def _ask(
        self,
        leader: int,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        add: bool,
        answered: Future[Mapping[TopicPartition, ErrorCode]],
    ) -> None:
        """Ask the coordinator. While markers of the last transaction are being written, it takes its time to answer."""
        codes: Mapping[TopicPartition, ErrorCode] = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            if leader == self._node_id:
                reply = await self.add_partitions(transactional_id, producer_id, epoch, partitions, SERVER_VERSION, "")
                codes = dict.fromkeys(partitions, _for_producers(reply.error))
            else:
                codes = await self._ask_peer(leader, transactional_id, producer_id, epoch, partitions, add)
        finally:
            if not answered.done():
                answered.set_result(codes)

    async def _ask_peer(
        self,
        leader: int,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Ask the coordinator on another broker with AddPartitionsToTxn, unless another one coordinates meanwhile."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        asked = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not add,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )
        request = AddPartitionsToTxnRequest(transactions=[asked])
        home = TopicPartition(TRANSACTIONS_TOPIC, self.partition_for(transactional_id))
        try:
            frame = await self._questions.ask(leader, request, _ADD_VERSION, [home])
            if frame is None:
                return dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR)
            response = decode_response(AddPartitionsToTxnResponse, _ADD_VERSION, frame)
        except (OSError, DecodeError) as error:
            log.debug("the coordinator does not answer", node_id=leader, reason=str(error) or type(error).__name__)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        if response.error_code != ErrorCode.NONE:
            log.error("the coordinator refuses to verify", node_id=leader, error=response.error_code)
            return dict.fromkeys(partitions, ErrorCode.INVALID_TXN_STATE)
        found = {
            TopicPartition(topic.name, each.partition_index): _for_producers(_known(each.partition_error_code))
            for result in response.results_by_transaction
            if result.transactional_id == transactional_id
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        return {each: found.get(each, ErrorCode.INVALID_TXN_STATE) for each in partitions}

    # Effects

    def _act(self, hosted: HostedTransaction, effects: list[Effect]) -> None:
        """Carry out the effects of a machine, in their order."""
        machine = hosted.machine
        for effect in effects:
            if isinstance(effect, Reply):
                if isinstance(effect.token, Future) and not effect.token.done():
                    effect.token.set_result(effect)
            elif isinstance(effect, Persist):
                self._persist(hosted, effect)
            elif isinstance(effect, SendMarkers):
                epoch = hosted.home.leader_epoch
                wanted, written = partial(self._wanted, hosted), partial(self._markers_written, hosted)
                self.markers.send(Marker(machine.transactional_id, epoch, effect, wanted, written))
            elif isinstance(effect, Ended):
                self._ended(hosted, effect)
            elif isinstance(effect, Completed):
                log.debug("transaction complete", transactional_id=machine.transactional_id, state=machine.state.value)
            elif isinstance(effect, RetryPersist):
                hosted.failures += 1
                self._loop.call_later(self._backoff.pause_after(hosted.failures), self._complete, hosted)
            elif isinstance(effect, Refused):
                self._refused(hosted, effect)
        if machine.state is TransactionState.ONGOING:
            if machine.transactional_id not in hosted.home.open:
                hosted.opened = self._now()
                hosted.home.open[machine.transactional_id] = hosted
        elif hosted.home.open.pop(machine.transactional_id, None) is not None:
            hosted.warned = False
        if hosted.held is not None and not machine.changing:
            # At once: a request that came in between would be served before older ones, and an EndTxn that was
            # repeated would end the transaction after the one that it is about.
            self._release(hosted)

    def _persist(self, hosted: HostedTransaction, effect: Persist) -> None:
        machine = hosted.machine

        def done(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                hosted.failures = 0
            self._act(hosted, machine.persisted(effect.ticket, error))
            if error is not ErrorCode.NONE and self._wanted(hosted):
                # The log of the partition says so once; clients and this coordinator try again.
                log.debug(
                    "transaction state cannot be written",
                    transactional_id=machine.transactional_id,
                    state=machine.state.value,
                    error=error.name,
                )
            never_written = machine.metadata.producer_epoch == NONE and not machine.changing
            if machine.state is TransactionState.DEAD or never_written:
                transactions = hosted.home.transactions
                if transactions.get(machine.transactional_id) is hosted:
                    del transactions[machine.transactional_id]

        key = transaction_key(machine.transactional_id)
        value = None if effect.metadata is None else transaction_value(effect.metadata)
        self._writer.add(hosted.home.index, [(key, value)], done)

    def _markers_written(self, hosted: HostedTransaction, partitions: Collection[TopicPartition]) -> None:
        if self._wanted(hosted):
            self._act(hosted, hosted.machine.markers_written(partitions, self._wall_ms()))

    def _complete(self, hosted: HostedTransaction) -> None:
        if self._wanted(hosted):
            self._act(hosted, hosted.machine.complete(self._wall_ms()))

    def _ended(self, hosted: HostedTransaction, effect: Ended) -> None:
        self.metrics.ended["commit" if effect.committed else "abort", effect.cause.value] += 1
        if hosted.warned or effect.cause is not Cause.CLIENT:
            self._publish(ended_event(hosted.machine.transactional_id, effect, hosted.client, self._wall_ms()))
        if effect.committed:
            return
        facts = self._facts(hosted, effect.before)
        if effect.cause is Cause.TIMEOUT:
            log.warning(_ABORTED[effect.cause], **facts)
        else:
            self._fold(_ABORTED[effect.cause], facts)

    def _refused(self, hosted: HostedTransaction, effect: Refused) -> None:
        self.metrics.refused[effect.error.name] += 1
        facts: dict[str, Hashable] = {
            "transactional_id": hosted.machine.transactional_id,
            "state": effect.state.value,
            "error": effect.error.name,
            "client_id": hosted.client,
        }
        self._fold(f"a client asks to {effect.asked} a transaction, which its state does not allow", facts)

    def _fold(self, event: str, facts: dict[str, Hashable]) -> None:
        """Log what a client may repeat without end."""
        self._lines.add(log.info, event, str(facts.pop("client_id") or ""), **facts)

    def _publish(self, event: EventRecord) -> None:
        """Write an event, with the others of this iteration of the loop."""
        self._unwritten.append(event)
        if len(self._unwritten) == 1:
            self._loop.call_soon(self._write_events)

    def _write_events(self) -> None:
        events, self._unwritten = self._unwritten, []
        records = [(each["transactional_id"].encode(), encode_event(each), (), each["time"]) for each in events]
        if records:
            self._events.append(build_batch(records))

    def _facts(self, hosted: HostedTransaction, metadata: Metadata) -> dict[str, Hashable]:
        """A transaction, for a log line."""
        return {
            "transactional_id": hosted.machine.transactional_id,
            "producer_id": metadata.producer_id,
            "producer_epoch": metadata.producer_epoch,
            "client_id": hosted.client,
            "open_ms": self._open_ms(hosted),
            "timeout_ms": metadata.timeout_ms,
            "partitions": partition_names(metadata.partitions),
        }

    # Time

    def _every(self, key: Key[int], work: Callable[[], Iterator[None]]) -> None:
        """Do `work` again and again, a step at a time, with the interval of a configuration key."""
        interval = self._config[key] / 1000

        def turn(steps: Iterator[None]) -> None:
            if self._closed:
                return
            if next(steps, steps) is steps:
                self._handles[key.name] = self._scheduler.call_later(interval, start)
            else:
                self._handles[key.name] = self._loop.call_soon(turn, steps)

        def start() -> None:
            turn(work())

        self._handles[key.name] = self._scheduler.call_later(interval, start)

    def _check_open(self) -> Iterator[None]:
        """Abort the transactions whose timeout is over, and report those that have been open for long."""
        self.refused_markers.tick()
        self._lines.tick()
        opened = [hosted for home in self.partitions.values() for hosted in home.open.values()]
        for number, hosted in enumerate(opened, 1):
            machine, open_ms = hosted.machine, self._open_ms(hosted)
            if not self._wanted(hosted):
                pass
            elif machine.overdue(open_ms):
                self._take(hosted, None, self._abort_overdue, NONE)
            elif not hosted.warned and open_ms > max(machine.timeout_ms * _LONG, _LONG_MS):
                hosted.warned = True
                self.metrics.slow += 1
                self._publish(slow_event(machine.transactional_id, machine.metadata, hosted.client, self._wall_ms()))
                log.warning(
                    "transaction is open for long: read_committed consumers get no later records of its partitions",
                    **self._facts(hosted, machine.metadata),
                )
            if not number % _WRITTEN_STEP:
                yield

    def _abort_overdue(self, hosted: HostedTransaction, fresh: int) -> list[Effect]:
        return hosted.machine.abort_overdue(self._open_ms(hosted), fresh, self._wall_ms())

    def _expire(self) -> Iterator[None]:
        """Delete the transactional ids that were not used for ``transactional.id.expiration.ms``."""
        unused = self._config[TRANSACTIONAL_ID_EXPIRATION_MS]
        for home in list(self.partitions.values()):
            for number, hosted in enumerate(list(home.transactions.values()), 1):
                if self._wanted(hosted):
                    self._act(hosted, hosted.machine.expire(unused, self._wall_ms()))
                if not number % _WRITTEN_STEP:
                    yield
            yield

    # Partitions

    @property
    def loaded(self) -> frozenset[int]:
        """The partitions of ``__transaction_state`` that are loaded."""
        return frozenset(index for index, home in self.partitions.items() if not home.loading)

    async def load(self, index: int, leader_epoch: int) -> None:
        """Replay a partition, a little at a time, and continue with what was decided.

        Meanwhile requests get COORDINATOR_LOAD_IN_PROGRESS. Does nothing if the partition was loaded for the same
        leader epoch or a newer one. A failure is logged; the partition is then not loaded.
        """
        before = self.partitions.get(index)
        if before is not None:
            if before.leader_epoch >= leader_epoch:
                return
            self.unload(index)
        home = self.partitions[index] = HostedPartition(index, leader_epoch)
        started = self._now()

        def wanted() -> bool:
            return self.partitions.get(index) is home

        try:
            replay = TransactionReplay(partial(_report_corruption, index), self._log.start_offset(index))
            if not await replay_partition(self._log, index, replay, wanted):
                return
        except Exception as error:
            # Without its log the partition's transactions cannot be coordinated: clients get NOT_COORDINATOR.
            report_failure(log, "transactions", index, error)
            if wanted():
                del self.partitions[index]
            return
        decided = []
        for number, (transactional_id, metadata) in enumerate(replay.transactions.items(), 1):
            hosted = HostedTransaction(home, Transaction(transactional_id, metadata))
            home.transactions[transactional_id] = hosted
            if metadata.state is TransactionState.ONGOING:
                # From here on the time of day does not matter. A start in the future was written by another clock.
                hosted.opened = self._now() - max(self._wall_ms() - metadata.start_ms, 0) / 1000
                home.open[transactional_id] = hosted
            elif hosted.machine.changing:
                decided.append(hosted)
            if not number % _STEP:
                await asyncio.sleep(0)
                if not wanted():
                    return
        home.loading = False
        # Fifty empty partitions are not worth fifty lines.
        report = log.info if replay.records else log.debug
        report(
            "loaded transactions",
            partition=index,
            leader_epoch=leader_epoch,
            transactional_ids=len(home.transactions),
            decided=len(decided),
            records=replay.records,
            took=seconds(self._now() - started),
        )
        # Clients may use the other ids meanwhile; these answer CONCURRENT_TRANSACTIONS until their markers are written.
        for number, hosted in enumerate(decided, 1):
            self._act(hosted, hosted.machine.resume())
            if not number % _WRITTEN_STEP:
                await asyncio.sleep(0)
                if not wanted():
                    return

    def unload(self, index: int) -> None:
        """Stop to coordinate a partition's transactions: requests that wait fail with NOT_COORDINATOR."""
        home = self.partitions.pop(index, None)
        if home is None:
            return
        # All requests that wait for the log wait for the writer.
        self._writer.drop(index, ErrorCode.NOT_COORDINATOR)
        for hosted in [each for each in self._holding if each.home is home]:
            self._release(hosted)
        report = log.info if home.transactions else log.debug
        report("unloaded transactions", partition=index, transactional_ids=len(home.transactions))
        self._free(home)

    def _free(self, home: HostedPartition) -> None:
        """Free the memory of a partition that is unloaded, a little at a time: a million objects take long."""
        for transactions in (home.open, home.transactions):
            for _ in range(min(_STEP, len(transactions))):
                transactions.popitem()
        if home.transactions:
            self._loop.call_soon(self._free, home)

    async def close(self) -> None:
        """Append what was collected, answer all requests, and stop."""
        self._closed = True
        for handle in self._handles.values():
            handle.cancel()
        await self.markers.close()
        self._writer.flush()
        self._write_events()
        settled: Future[None] = self._loop.create_future()
        self._writer.when_settled(self.partitions, partial(settled.set_result, None))
        await asyncio.wait([settled], timeout=_CLOSE_TIMEOUT)
        for index in list(self.partitions):
            self.unload(index)
        self._timers.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


#: Seconds that a stop waits for appends.
_CLOSE_TIMEOUT: Final = 5.0

_ABORTED: Final = {
    Cause.CLIENT: "transaction aborted by its client",
    Cause.TIMEOUT: "transaction aborted: its timeout is over",
    Cause.FENCED: "transaction aborted: a new producer has taken over its transactional id",
}


def _failed(reply: Future[Reply], error: ErrorCode) -> Future[Reply]:
    if not reply.done():
        reply.set_result(Reply(reply, error))
    return reply


def _is_late(hosted: HostedTransaction, connection: int, version: int) -> bool:
    """Whether a request came on an older connection than the one on which the producer has gone on since.

    Its client has given it up, and has sent it again on the newer connection. Before version 2 of transactions
    (KIP-890) nothing in a late EndTxn tells whether it is about the open transaction or the one before.
    """
    return 0 < connection < hosted.connection and version < SERVER_VERSION


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _for_producers(code: ErrorCode) -> ErrorCode:
    """The code in Produce and TxnOffsetCommit, whose clients expect the older name of a fence."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _report_corruption(partition: int, offset: int, reason: str) -> None:
    log.error(f"corrupt record in {TRANSACTIONS_TOPIC} skipped", partition=partition, offset=offset, reason=reason)
