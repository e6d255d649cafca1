"""The transaction coordinator: requests about transactions, their markers, timeouts and events. A shell.

The machine of each transactional id decides; :mod:`~barnabas_broker.coordinators.runtime` finds it, appends what it
decides, and loads and unloads partitions.

Source: Kafka's ``TransactionCoordinator``, ``TransactionStateManager`` and ``AddPartitionsToTxnManager``.
"""

import asyncio
from asyncio import Future
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from barnabas_broker.config import Config
from barnabas_broker.config.keys import (
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from barnabas_broker.coordinators.leader_requests import LeaderRequests
from barnabas_broker.coordinators.ports import CoordinatorLog, Peers, Scheduler
from barnabas_broker.coordinators.replay import Report
from barnabas_broker.coordinators.runtime import Hosted, HostedPartition, Runtime, answer_once
from barnabas_broker.coordinators.timed_out import TimedOutTransactions
from barnabas_broker.log_throttle import Folded, FoldedLines
from barnabas_broker.logs import logger
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.markers import Marker, MarkerSender, partition_names
from barnabas_broker.transactions.ports import Leader, TxnEventsLog, WriteMarkers
from barnabas_broker.transactions.records import TransactionReplay, transaction_key, transaction_value
from barnabas_broker.transactions.transaction import (
    NEED_PRODUCER_ID,
    NONE,
    SERVER_VERSION,
    Completed,
    Decision,
    Ended,
    Event,
    Metadata,
    RefusedStep,
    SendMarkers,
    Transaction,
    TransactionState,
    TxnReply,
    fresh_metadata,
)
from barnabas_explain.transactions import Cause, EventRecord, encode_event, ended_event, slow_event
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.internal_topics import TRANSACTIONS_TOPIC
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas_protocol.records import build_batch
from barnabas_protocol.wire import MAX_STRING

log = logger("transactions")

#: Transactional ids that are restored in one turn of the event loop, and those that may be written in one.
_STEP: Final = 1_000
_WRITTEN_STEP: Final = 100
#: The version of AddPartitionsToTxn between brokers.
_ADD_VERSION: Final = 5
#: The part of its timeout after which an open transaction is worth a warning, and the least time in ms.
_LONG: Final = 0.5
_LONG_MS: Final = 10_000

#: Asks a machine, with a fresh producer id or -1.
Decide = Callable[["HostedTransaction", int], Decision]


class TransactionPartition(HostedPartition["HostedTransaction"]):
    """A partition of ``__transaction_state`` that this broker leads; its leader epoch is the coordinator epoch of its
    markers.

    Attributes:
        open: its transactional ids whose transaction is open.
    """

    __slots__ = ("open",)

    def __init__(self, index: int, leader_epoch: int) -> None:
        super().__init__(index, leader_epoch)
        self.open: dict[str, HostedTransaction] = {}


class HostedTransaction(Hosted[Transaction, TransactionPartition]):
    """A transactional id that this broker coordinates.

    Attributes:
        opened: when the open transaction began, in seconds on the monotonic clock.
        connection: the number of the connection on which the producer has begun, extended or ended a transaction last;
            0 if it is not known.
        client: the client that used it last, for the log; "" after the coordinator has moved.
        host: its address when it began, as Kafka prints it; "" if it is not known.
        warned: whether the open transaction was reported as slow.
    """

    __slots__ = ("client", "connection", "host", "opened", "warned")

    def __init__(self, home: TransactionPartition, machine: Transaction) -> None:
        super().__init__(machine.transactional_id, home, machine)
        self.opened = 0.0
        self.connection = 0
        self.client = self.host = ""
        self.warned = False


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
        timed_out: gets the transactional ids whose transactions are aborted by their timeout.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        scheduler: the timers of `now`; those of the event loop if None.

    Attributes:
        runtime: the partitions of ``__transaction_state`` that this broker leads, and their transactional ids.
        metrics: counters.
        markers: sends the markers.
    """

    what = "transactions"
    ids = "transactional_ids"
    busy = TxnReply(ErrorCode.CONCURRENT_TRANSACTIONS)

    def __init__(
        self,
        config: Config,
        node_id: int,
        topic_log: CoordinatorLog,
        leader: Leader,
        write: WriteMarkers,
        peers: Peers,
        next_producer_id: Callable[[], Awaitable[int]],
        events: TxnEventsLog,
        *,
        timed_out: TimedOutTransactions | None = None,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        scheduler: Scheduler | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._node_id = node_id
        self._leader = leader
        self._next_producer_id = next_producer_id
        self._events = events
        self._timed_out = TimedOutTransactions() if timed_out is None else timed_out
        #: Events that are written in the next iteration of the loop.
        self._unwritten: list[EventRecord] = []
        self._now = now
        self._wall_ms = wall_ms
        #: Seconds that an append and a request to another broker may take.
        self._timeout = config[REQUEST_TIMEOUT_MS] / 1000
        self.runtime: Runtime[TransactionPartition, HostedTransaction, TxnReply] = Runtime(
            TRANSACTIONS_TOPIC,
            config[TRANSACTION_STATE_LOG_NUM_PARTITIONS],
            self,
            topic_log,
            log,
            self._loop,
            self._loop if scheduler is None else scheduler,
            now,
            wall_ms,
            timeout=self._timeout,
            patience=config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS] / 1000,
        )
        self.markers = MarkerSender(node_id, leader, write, peers, self._timeout)
        #: Questions to the coordinators on other brokers.
        self._questions = LeaderRequests(leader, peers, self._timeout)
        self.metrics = TransactionMetrics()
        #: Logs markers that are not written.
        self.refused_markers = Folded(
            log.info, "transaction marker is not written", "transaction markers are not written", now
        )
        self._lines = FoldedLines(now, "client_id")
        #: Calls that wait for a producer id or for another broker.
        self._tasks: set[asyncio.Task[None]] = set()
        interval = config[TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS] / 1000
        self.runtime.regularly(interval, self._check_open)
        interval = config[TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS] / 1000
        self.runtime.regularly(interval, self._expire)

    # Which transactional ids there are

    def topics_changed(self, partitions: Mapping[str, int]) -> None:
        """Set the number of partitions of new and changed topics; leaders may have changed, too."""
        if TRANSACTIONS_TOPIC in partitions:
            self.runtime.resized(partitions[TRANSACTIONS_TOPIC])
        self.markers.leaders_changed()
        self._questions.leaders_changed()

    @property
    def transactional_ids(self) -> int:
        """The number of transactional ids that this broker coordinates."""
        return self.runtime.count

    @property
    def open(self) -> int:
        """The number of open transactions."""
        return sum(len(home.open) for home in self.runtime.partitions.values())

    @property
    def oldest_ms(self) -> int:
        """For how many ms the oldest open transaction has been open; 0 if none is."""
        return max(map(self._open_ms, self._all_open()), default=0)

    def _all_open(self) -> list[HostedTransaction]:
        """The transactional ids whose transaction is open."""
        return [hosted for home in self.runtime.partitions.values() for hosted in home.open.values()]

    def _open_ms(self, hosted: HostedTransaction) -> int:
        """For how many ms an open transaction has been open."""
        return round((self._now() - hosted.opened) * 1000)

    # Requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        client: str,
        connection: int = 0,
        host: str = "",
    ) -> Future[TxnReply]:
        """InitProducerId with a transactional id: the answer, when it is in the log.

        Args:
            transactional_id: of the producer.
            timeout_ms: of its transactions.
            expected: its current producer id and epoch, if it has them (KIP-360).
            client: for the log.
            connection: the number of the client's connection.
            host: its address, as Kafka prints it.
        """
        reply: Future[TxnReply] = self._loop.create_future()
        # A longer id does not fit into a record's key.
        if not transactional_id or len(transactional_id.encode()) > MAX_STRING:
            return _fail(reply, ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config[TRANSACTION_MAX_TIMEOUT_MS]:
            return _fail(reply, ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        def decide(hosted: HostedTransaction, fresh: int) -> Decision:
            decision = hosted.machine.init_producer_id(timeout_ms, expected, fresh, self._wall_ms())
            if decision.records:
                # Not the newest one: another program may take over on a connection that it has had for long.
                hosted.connection = connection
                hosted.host = host
            return decision

        self._guard(reply, partial(self._begin_init, transactional_id, timeout_ms, client, decide, reply))
        return reply

    def _begin_init(
        self, transactional_id: str, timeout_ms: int, client: str, decide: Decide, reply: Future[TxnReply], fresh: int
    ) -> None:
        """Ask the machine of a transactional id, which is made with a fresh producer id if there is none."""
        again = partial(self._begin_init, transactional_id, timeout_ms, client, decide, reply)
        home = self.runtime.home(transactional_id)
        hosted = home.hosted.get(transactional_id)
        if hosted is None and fresh == NONE:
            self._with_producer_id(reply, again)
            return
        if hosted is None:
            metadata = fresh_metadata(fresh, timeout_ms, self._wall_ms())
            hosted = HostedTransaction(home, Transaction(transactional_id, metadata))
            home.hosted[transactional_id] = hosted
            fresh = NONE
        hosted.client = client
        self.runtime.ask(hosted, self._step(decide, fresh, reply, again), partial(answer_once, reply))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        version: int,
        client: str,
        connection: int = 0,
    ) -> Future[TxnReply]:
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
            lambda hosted, fresh: hosted.machine.add_partitions(
                producer_id, epoch, partitions, version, self._wall_ms()
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
    ) -> Future[TxnReply]:
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
            lambda hosted, fresh: hosted.machine.end(producer_id, epoch, committed, version, fresh, self._wall_ms()),
        )

    def verify_here(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions belong to the open transaction of an id that this broker coordinates."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        try:
            hosted = self.runtime.home(transactional_id).hosted.get(transactional_id)
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
        hosted = self.runtime.home(transactional_id).hosted.get(transactional_id)
        if hosted is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        # Partitions that have their marker are not a part of it any more.
        return hosted.machine.metadata._replace(partitions=hosted.machine.unmarked)

    def listed(self) -> Iterator[Transaction]:
        """All transactional ids that this broker coordinates. They may change while the caller goes through them.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
        """
        homes = self.runtime.homes()
        return (hosted.machine for home in homes for hosted in list(home.hosted.values()))

    def _request(
        self,
        transactional_id: str,
        client: str,
        connection: int,
        version: int,
        decide: Decide,
    ) -> Future[TxnReply]:
        """Ask the machine of a transactional id that must exist."""
        reply: Future[TxnReply] = self._loop.create_future()
        if not transactional_id:
            return _fail(reply, ErrorCode.INVALID_REQUEST)

        def decide_in_time(hosted: HostedTransaction, fresh: int) -> Decision:
            if _is_late(hosted, connection, version):
                return Decision(response=TxnReply(ErrorCode.NETWORK_EXCEPTION))
            decision = decide(hosted, fresh)
            if decision.response is not None and decision.response.error is ErrorCode.NONE:
                hosted.connection = max(hosted.connection, connection)
            return decision

        self._guard(reply, partial(self._begin, transactional_id, client, decide_in_time, reply))
        return reply

    def _begin(self, transactional_id: str, client: str, decide: Decide, reply: Future[TxnReply], fresh: int) -> None:
        """Ask the machine of a transactional id that must exist."""
        hosted = self.runtime.home(transactional_id).hosted.get(transactional_id)
        if hosted is None:
            _fail(reply, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return
        if client:
            hosted.client = client
        again = partial(self._begin, transactional_id, client, decide, reply)
        self.runtime.ask(hosted, self._step(decide, fresh, reply, again), partial(answer_once, reply))

    def _guard(self, reply: Future[TxnReply], begin: Callable[[int], None]) -> None:
        """Call `begin`; an error of finding the transactional id is the answer."""
        try:
            begin(NONE)
        except KafkaError as error:
            _fail(reply, error.code)

    def _step(
        self, decide: Decide, fresh: int, reply: Future[TxnReply] | None, again: Callable[[int], None]
    ) -> Callable[[HostedTransaction], Decision]:
        """A step of a machine, which begins again if it needs a fresh producer id.

        Args:
            decide: asks the machine.
            fresh: a producer id, or -1.
            reply: the answer of the request; None if there is no request.
            again: gets a fresh producer id, and asks for the step once more.
        """

        def step(hosted: HostedTransaction) -> Decision:
            decision = decide(hosted, fresh)
            if decision is not NEED_PRODUCER_ID:
                return decision
            self._with_producer_id(reply, again)
            return Decision()

        return step

    def _with_producer_id(self, reply: Future[TxnReply] | None, then: Callable[[int], None]) -> None:
        """Get a producer id, then go on."""

        async def get() -> None:
            try:
                then(await self._next_producer_id())
            except KafkaError as error:
                if reply is not None:
                    # What Kafka answers when no block of producer ids can be had; it is retriable.
                    found = error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                    _fail(reply, error.code if found else ErrorCode.COORDINATOR_NOT_AVAILABLE)

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
        partition = TopicPartition(TRANSACTIONS_TOPIC, self.runtime.partition_for(transactional_id))
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
        home = TopicPartition(TRANSACTIONS_TOPIC, self.runtime.partition_for(transactional_id))
        try:
            frame = await self._questions.ask(leader, request, _ADD_VERSION, [home])
            if frame is None:
                return dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR)
            response = decode_response(AddPartitionsToTxnResponse, _ADD_VERSION, frame)
        except (OSError, DecodeError) as error:
            log.debug("the coordinator does not answer", node_id=leader, reason=str(error) or type(error).__name__)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        if response.error_code != ErrorCode.NONE:
            # Each Produce of a transaction asks, so that clients set the rate of this line.
            code = _known(response.error_code).name
            self._lines.add(log.error, "the coordinator refuses to verify", "", node_id=leader, error=code)
            return dict.fromkeys(partitions, ErrorCode.INVALID_TXN_STATE)
        found = {
            TopicPartition(topic.name, each.partition_index): _for_producers(_known(each.partition_error_code))
            for result in response.results_by_transaction
            if result.transactional_id == transactional_id
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        return {each: found.get(each, ErrorCode.INVALID_TXN_STATE) for each in partitions}

    # What follows from decisions

    def encode(self, hosted: HostedTransaction, record: Metadata | None) -> tuple[bytes, bytes | None]:
        """See :class:`~barnabas_broker.coordinators.runtime.Shard`, for this and the methods below."""
        return transaction_key(hosted.name), None if record is None else transaction_value(record)

    def refusal(self, error: ErrorCode) -> TxnReply:
        return TxnReply(error)

    def publish(self, hosted: HostedTransaction, event: Event) -> None:
        if isinstance(event, SendMarkers):
            written = partial(self._markers_written, hosted)
            if event.partitions:
                wanted, epoch = partial(self.runtime.wanted, hosted), hosted.home.leader_epoch
                self.markers.send(Marker(hosted.name, epoch, event, wanted, written))
            else:
                written(event.partitions)
        elif isinstance(event, Ended):
            self._ended(hosted, event)
        elif isinstance(event, Completed):
            log.debug("transaction complete", transactional_id=hosted.name, state=hosted.machine.state.value)
        else:
            self._refused(hosted, event)

    def applied(self, hosted: HostedTransaction) -> None:
        if hosted.machine.state is TransactionState.ONGOING:
            if hosted.name not in hosted.home.open:
                hosted.opened = self._now()
                hosted.home.open[hosted.name] = hosted
        elif hosted.home.open.pop(hosted.name, None) is not None:
            hosted.warned = False

    def _markers_written(self, hosted: HostedTransaction, partitions: Collection[TopicPartition]) -> None:
        self.runtime.insist(hosted, lambda hosted: hosted.machine.markers_written(partitions, self._wall_ms()))

    def _ended(self, hosted: HostedTransaction, effect: Ended) -> None:
        self.metrics.ended["commit" if effect.committed else "abort", effect.cause.value] += 1
        if hosted.warned or effect.cause is not Cause.CLIENT:
            self._publish(ended_event(hosted.name, effect, hosted.client, self._wall_ms()))
        if effect.committed:
            self._timed_out.committed(hosted.name)
            return
        facts = self._facts(hosted, effect.before)
        if effect.cause is Cause.TIMEOUT:
            open_ms = self._open_ms(hosted)
            self._timed_out.aborted(hosted.name, hosted.host, effect.before.timeout_ms, open_ms, self._now())
            log.warning(_ABORTED[effect.cause], **facts)
        else:
            self._fold(_ABORTED[effect.cause], facts)

    def _refused(self, hosted: HostedTransaction, effect: RefusedStep) -> None:
        self.metrics.refused[effect.error.name] += 1
        facts: dict[str, Hashable] = {
            "transactional_id": hosted.name,
            "state": effect.state.value,
            "error": effect.error.name,
            "client_id": hosted.client,
        }
        self._fold(f"a client asks to {effect.asked} a transaction, which its state does not allow", facts)

    def _fold(self, event: str, facts: dict[str, Hashable]) -> None:
        """Log what a client may repeat without end."""
        client_id = facts.pop("client_id")
        self._lines.add(log.info, event, "" if client_id is None else str(client_id), **facts)

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
            "transactional_id": hosted.name,
            "producer_id": metadata.producer_id,
            "producer_epoch": metadata.producer_epoch,
            "client_id": hosted.client,
            "open_ms": self._open_ms(hosted),
            "timeout_ms": metadata.timeout_ms,
            "partitions": partition_names(metadata.partitions),
        }

    # Time

    def _check_open(self) -> Iterator[None]:
        """Abort the transactions whose timeout is over, and report those that have been open for long."""
        self.refused_markers.tick()
        self._lines.tick()
        for number, hosted in enumerate(self._all_open(), 1):
            machine, open_ms = hosted.machine, self._open_ms(hosted)
            if not self.runtime.wanted(hosted):
                pass
            elif machine.overdue(open_ms):
                self._abort_overdue(hosted, NONE)
            elif not hosted.warned and open_ms > max(machine.timeout_ms * _LONG, _LONG_MS):
                hosted.warned = True
                self.metrics.slow += 1
                self._publish(slow_event(hosted.name, machine.metadata, hosted.client, self._wall_ms()))
                log.warning(
                    "transaction is open for long: read_committed consumers get no later records of its partitions",
                    **self._facts(hosted, machine.metadata),
                )
            if not number % _WRITTEN_STEP:
                yield

    def _abort_overdue(self, hosted: HostedTransaction, fresh: int) -> None:
        def decide(hosted: HostedTransaction, fresh: int) -> Decision:
            return hosted.machine.abort_overdue(self._open_ms(hosted), fresh, self._wall_ms())

        self.runtime.do(hosted, self._step(decide, fresh, None, partial(self._abort_overdue, hosted)))

    def _expire(self) -> Iterator[None]:
        """Delete the transactional ids that were not used for ``transactional.id.expiration.ms``."""
        unused = self._config[TRANSACTIONAL_ID_EXPIRATION_MS]
        for home in list(self.runtime.partitions.values()):
            for number, hosted in enumerate(list(home.hosted.values()), 1):
                self.runtime.do(hosted, lambda hosted: hosted.machine.expire(unused, self._wall_ms()))
                if not number % _WRITTEN_STEP:
                    yield
            yield

    # Partitions

    def partition(self, index: int, leader_epoch: int) -> TransactionPartition:
        return TransactionPartition(index, leader_epoch)

    def replay(self, report: Report, start: int) -> TransactionReplay:
        return TransactionReplay(report, start)

    def restore(self, home: TransactionPartition, replay: TransactionReplay) -> Iterator[None]:
        for number, (name, machine) in enumerate(replay.transactions.items(), 1):
            hosted = home.hosted[name] = HostedTransaction(home, machine)
            if machine.state is TransactionState.ONGOING:
                # From here on the time of day does not matter. A start in the future was written by another clock.
                hosted.opened = self._now() - max(self._wall_ms() - machine.metadata.start_ms, 0) / 1000
                home.open[name] = hosted
            if not number % _STEP:
                yield

    def resume(self, home: TransactionPartition) -> Iterator[None]:
        # Clients may use the other ids meanwhile; these wait until their markers are written.
        decided = [hosted for hosted in home.hosted.values() if hosted.machine.ending]
        for number, hosted in enumerate(decided, 1):
            self.runtime.do(hosted, lambda hosted: hosted.machine.resume())
            if not number % _WRITTEN_STEP:
                yield

    def unloaded(self, home: TransactionPartition) -> None:
        home.open.clear()

    async def close(self) -> None:
        """Append what was collected, answer all requests, and stop."""
        closed = self.runtime.close()
        await self.markers.close()
        await closed
        self._write_events()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_ABORTED: Final = {
    Cause.CLIENT: "transaction aborted by its client",
    Cause.TIMEOUT: "transaction aborted: its timeout is over",
    Cause.FENCED: "transaction aborted: a new producer has taken over its transactional id",
}


def _fail(reply: Future[TxnReply], error: ErrorCode) -> Future[TxnReply]:
    """Answer a request with an error."""
    answer_once(reply, TxnReply(error))
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
