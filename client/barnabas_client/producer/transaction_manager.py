"""Runs the transactions of a producer: the clock, the requests and the futures of its :class:`TransactionMachine`.

The sender asks :meth:`TransactionManager.may_send` before it sends to a partition, and reports batches that failed; the
producer calls the rest.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas_client.errors import KafkaTimeoutError
from barnabas_client.logs import logger
from barnabas_client.network.connection import api_versions_request
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import NO_ID
from barnabas_client.network.network import Network
from barnabas_client.network.retries import jitter, retry_backoff
from barnabas_client.producer.accumulator import Accumulator
from barnabas_client.producer.receipts import give_up
from barnabas_client.producer.transaction import (
    Ask,
    DropBatches,
    Effect,
    Offsets,
    Reject,
    Resolve,
    SendBatches,
    TransactionMachine,
    TransactionState,
    UseEpoch,
)
from barnabas_client.structs import ConsumerGroupMetadata, PreparedTransaction, TopicPartition
from barnabas_client.tasks import BackgroundTasks, reject, resolve
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

_log: Final = logger("barnabas_client.producer.transactions")

#: Seconds before the first retry while the markers of the previous transaction are being written, as in Kafka.
_CONCURRENT: Final = 0.02

_Start = Callable[["asyncio.Future[None]", float], list[Effect]]


class TransactionManager:
    """The transactions of one producer.

    Args:
        network: the cluster.
        accumulator: the batches.
        transactional_id: the name of the producer's transactions.
        timeout_ms: after which the coordinator aborts one.

    Attributes:
        send_batches: called when batches may be sent.
    """

    def __init__(self, network: Network, accumulator: Accumulator, transactional_id: str, timeout_ms: int) -> None:
        first, most = network.config.retry_backoff_ms / 1000, network.config.retry_backoff_max_ms / 1000
        self._machine = TransactionMachine(
            transactional_id,
            timeout_ms,
            retry_backoff(network.config),
            Backoff(min(first, _CONCURRENT), most, jitter),
            api_versions_request(),
        )
        self._network = network
        self._accumulator = accumulator
        self._max_block_ms = accumulator.config.max_block_ms
        self._tasks = BackgroundTasks(self._broken)
        self._timer: asyncio.TimerHandle | None = None
        self._hurrying = False
        self._logged = self._machine.state
        self.send_batches: Callable[[], None] = _nothing

    @property
    def open(self) -> bool:
        """Whether there is a transaction that is neither being committed nor aborted."""
        return self._machine.open

    @property
    def failed(self) -> bool:
        """Whether nothing is possible any more."""
        return self._machine.state is TransactionState.FATAL_ERROR

    @property
    def completing(self) -> bool:
        """Whether a transaction is being committed or aborted."""
        return self._machine.completing

    @property
    def implicit(self) -> bool:
        """Whether leaders add partitions to transactions: the cluster has transaction version 2."""
        return self._machine.implicit

    @property
    def transactional_id(self) -> str:
        """The name of the producer's transactions."""
        return self._machine.transactional_id

    async def close(self) -> None:
        """End all tasks."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    # Calls of the program: see :class:`TransactionMachine`.

    async def initialize(self) -> None:
        """Get a producer id.

        Raises:
            KafkaTimeoutError: not within `max_block_ms`.
            KafkaError: the coordinator refused it.
        """
        await self._wait(f"initialize transactional id {self.transactional_id!r}", self._machine.initialize)

    def begin(self) -> None:
        """Begin a transaction; see :meth:`TransactionMachine.begin`."""
        self._machine.begin(_now())
        self._log()

    def check_send(self) -> None:
        """Refuse a record outside of a transaction; see :meth:`TransactionMachine.check_send`."""
        self._machine.check_send()

    def add(self, tp: TopicPartition) -> None:
        """A record for this partition is in a batch."""
        if not self._machine.knows(tp):
            self._act(self._machine.add(tp, _now()))

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        """Commit offsets of a group in the transaction.

        Raises:
            KafkaTimeoutError: not within `max_block_ms`.
            KafkaError: it was refused, and the transaction can only be aborted.
        """
        cluster = self._network.cluster
        ids = {tp.topic: cluster.topic_id(tp.topic) for tp in offsets}
        known = None if NO_ID in ids.values() else ids
        await self._wait(
            f"commit offsets of group {group.group_id!r} in a transaction",
            lambda ticket, now: self._machine.send_offsets(ticket, offsets, group, now, known),
        )

    async def commit(self) -> None:
        """Commit the transaction.

        Raises:
            KafkaTimeoutError: not within `max_block_ms`; it goes on.
            KafkaError: it was not committed.
        """
        await self._wait(f"commit a transaction of {self.transactional_id!r}", self._machine.commit)

    def prepare(self) -> PreparedTransaction:
        """Leave the transaction open; see :meth:`TransactionMachine.prepare`."""
        prepared = self._machine.prepare()
        self._log()
        return prepared

    async def abort(self) -> None:
        """Abort the transaction.

        Raises:
            KafkaTimeoutError: not within `max_block_ms`; it goes on.
            KafkaError: the producer has failed.
        """
        await self._wait(f"abort a transaction of {self.transactional_id!r}", self._machine.abort)

    async def finish(self) -> None:
        """Abort an open transaction; wait for one that is being committed or aborted."""
        if self.open:
            _log.warning("aborting a transaction: the producer stops", transactional_id=self.transactional_id)
            await self.abort()
        elif self._machine.state is TransactionState.COMMITTING:
            await self.commit()
        elif self.completing:
            await self.abort()

    # Calls of the sender.

    def may_send(self, tp: TopicPartition) -> bool:
        """Whether batches of a partition may be sent."""
        return self._machine.may_send(tp)

    def batch_failed(self, error: KafkaError) -> None:
        """A batch was not written, or not acknowledged in time."""
        self._act(self._machine.batch_failed(error, _now()))

    def progressed(self) -> None:
        """Batches are acknowledged or have failed."""
        if self._machine.completing and self._accumulator.is_idle():
            self._act(self._machine.settled(_now(), gap=self._accumulator.must_reset))

    # Inside.

    async def _wait(self, what: str, start: _Start) -> None:
        """Start something, and wait for at most `max_block_ms`."""
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._act(start(ticket, _now()))
        self.progressed()
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                await ticket
        except TimeoutError as error:
            self._machine.abandon(ticket)
            last = self._machine.last_error
            raise KafkaTimeoutError(
                f"{what}: not within max_block_ms ({self._max_block_ms} ms)"
                f"{'' if last is None else f'; the last attempt: {last}'}. To do: check the brokers; the attempt goes "
                "on, so the same call can be made again"
            ) from error
        except asyncio.CancelledError:
            self._machine.abandon(ticket)
            raise

    def _act(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Ask):
                self._tasks.spawn(self._ask(effect), name="barnabas-transaction")
            elif isinstance(effect, Resolve):
                resolve(effect.ticket, None)
            elif isinstance(effect, Reject):
                reject(effect.ticket, effect.error)
            elif isinstance(effect, UseEpoch):
                self._accumulator.begin_epoch(effect.producer_id, effect.producer_epoch)
            elif isinstance(effect, DropBatches):
                give_up(self._accumulator.drop_waiting(maybe_written=effect.maybe_written), effect.error)
        if any(isinstance(effect, SendBatches | UseEpoch | DropBatches) for effect in effects):
            self.send_batches()
        self._hurry()
        self._log()
        self._set_timer()

    def _hurry(self) -> None:
        """Let no batch linger while the transaction completes."""
        if self._hurrying != self._machine.completing:
            self._hurrying = self._machine.completing
            self._accumulator.flushing += 1 if self._hurrying else -1
            self.send_batches()

    def _log(self) -> None:
        state, machine = self._machine.state, self._machine
        if state is self._logged:
            return
        self._logged = state
        facts = {"transactional_id": self.transactional_id, "state": state.value}
        if state is TransactionState.FATAL_ERROR:
            _log.error("the transactional producer has failed", reason=str(machine.error), **facts)
        elif state is TransactionState.ABORTABLE_ERROR:
            _log.warning("a transaction has failed", reason=str(machine.error), **facts)
        else:
            _log.debug("transactional producer", producer_id=machine.producer_id, epoch=machine.producer_epoch, **facts)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = self._machine.next_deadline()
        self._timer = None if at is None else asyncio.get_running_loop().call_at(at, self._tick)

    def _tick(self) -> None:
        self._act(self._machine.tick(_now()))

    async def _ask(self, ask: Ask) -> None:
        network, seconds = self._network, self._network.config.request_timeout
        try:
            if ask.coordinator is None:
                response = await network.ask_any(ask.request, ask.answer)
            else:
                address = (ask.coordinator.host, ask.coordinator.port)
                connection = await network.connections.open(address, Purpose.GROUP)
                response = await connection.ask(ask.request, ask.answer, timeout=seconds, at_most=ask.at_most)
        except KafkaError as error:
            self._act(self._machine.unanswered(error, _now()))
        else:
            if isinstance(response, TxnOffsetCommitResponse) and _knows_no_id(response):
                self._network.want_refresh()
            self._act(self._machine.answered(response, _now()))
        self.progressed()

    def _broken(self, error: BaseException) -> None:
        """A task raised, which is a bug: end with an error, so that the program does not wait for ever."""
        _log.error("a transaction failed", exc_info=error)
        failure = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"a transaction failed: {error!r}. To do: report this as a bug"
        )
        self._act(self._machine.broken(failure, _now()))


def _knows_no_id(response: TxnOffsetCommitResponse) -> bool:
    """Whether the coordinator does not know the id of a topic: this client's metadata may be old."""
    return any(one.error_code == ErrorCode.UNKNOWN_TOPIC_ID for topic in response.topics for one in topic.partitions)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _nothing() -> None:
    pass
