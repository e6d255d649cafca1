"""The polls of a share consumer.

A poll that finds nothing in the buffer has every leader fetch (:mod:`barnabas_client.shares.leader`), and returns what
comes first. Nothing is fetched ahead: a record that waits here would use up the time of its lock. What a fetch has
brought beyond one poll is kept until the locks expire, and is then left to other members.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, Final, Generic

from barnabas_client.config import ShareAcquireMode
from barnabas_client.errors import (
    CorruptRecordError,
    IllegalStateError,
    RecordDeserializationError,
    WakeupError,
    error_for,
)
from barnabas_client.logs import logger
from barnabas_client.membership.heartbeats import Partitions, TopicIdPartition
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.serialization import Conversion
from barnabas_client.shares.config import ShareConsumerConfig
from barnabas_client.shares.leader import Leader
from barnabas_client.shares.membership import ShareMembership
from barnabas_client.shares.records import AcquiredRow, Part, ShareRecord, acquired_rows, are_valid
from barnabas_client.shares.session import Acknowledgement, LeaderSession, Limits, Run
from barnabas_client.structs import K, TopicPartition, V
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.share_fetch import ShareFetchResponse

_log: Final = logger("barnabas_client.shares")

#: The acquire modes in a request (KIP-1206).
_ACQUIRE_MODES: Final[Mapping[ShareAcquireMode, int]] = {"batch_optimized": 0, "record_limit": 1}


class _Delivery:
    """Records of a partition from one fetch; takes their acknowledgements.

    Args:
        polls: that fetch.
        leader: of the partition.
        where: the partition.
        parts: its records.
        lock: seconds that the locks last, from now on.
    """

    def __init__(
        self,
        polls: "SharePolls[Any, Any]",
        leader: Leader,
        where: TopicIdPartition,
        parts: Iterator[Part],
        lock: float,
    ) -> None:
        self.parts = parts
        self.lock = lock
        self.until = asyncio.get_running_loop().time() + lock
        self.rows: deque[AcquiredRow] = deque()
        self._polls = polls
        self._leader = leader
        self._where = where
        self._number = leader.session.number

    def hand_over(self, offset: int, kind: Acknowledgement) -> Awaitable[None] | None:
        """See :class:`Holder`."""
        self._polls.check_explicit()
        if kind is not Acknowledgement.RENEW:
            self.say(Run(offset, offset, kind))
            return None
        if self._ended:
            raise _session_has_ended()
        self.say(Run(offset, offset, kind))
        return self._leader.flushed(self._where)

    def say(self, run: Run) -> None:
        """See :class:`Holder`."""
        if not self._ended:
            self._leader.acknowledge(self._where, run)
        elif run.kind is not Acknowledgement.GAP:
            self._polls.refused({self._where: _session_has_ended()})

    @property
    def _ended(self) -> bool:
        """Whether the session that has acquired the records has ended."""
        return self._number != self._leader.session.number


class SharePolls(Generic[K, V]):
    """Records of a share consumer on their way from the leaders to polls, and acknowledgements on the way back.

    Args:
        config: settings of the consumer.
        member_id: of the consumer in its group.
        check: raises an error if the consumer does not run, or reads nothing.

    Attributes:
        hungry: whether a poll waits for records; leaders read it.
        limits: of the next fetch; leaders read it.
        failure: the error of the membership, which polls raise until the next subscription.
    """

    def __init__(self, config: ShareConsumerConfig, member_id: str, check: Callable[[], None]) -> None:
        self._config = config
        self._member_id = member_id
        self._check = check
        self._conversion = Conversion(config.key_deserializer, config.value_deserializer)
        self._network: Network | None = None
        self._membership: ShareMembership | None = None
        self._leaders: dict[int, Leader] = {}
        self._buffer: deque[_Delivery] = deque()
        self._untaken: deque[ShareRecord[K, V]] = deque()  # of polls that were cancelled: the next one returns them
        self._delivered: list[ShareRecord[K, V]] = []  # what the next poll accepts
        self._waiting = 0
        self._arrived = asyncio.Event()
        self._error: KafkaError | None = None  # for the next poll
        self._refusal: KafkaError | None = None  # for the next commit
        self._woken = self._stopped = self._runs = False
        self.failure: KafkaError | None = None
        self.hungry = False
        self.limits = self._limits(config.max_poll_records, config.share_acquire_mode)

    def start(self, network: Network, membership: ShareMembership) -> None:
        """Fetch what is assigned.

        Args:
            network: connected.
            membership: has the assignment, and calls :meth:`assignment_changed` and :meth:`fail`.
        """
        self._network, self._membership = network, membership

    def stop(self) -> None:
        """End the polls that wait, after the consumer has stopped."""
        self._stopped = True
        self._notify()

    async def close(self) -> None:
        """Send what was acknowledged, and end the sessions, which gives back the other records."""
        await asyncio.gather(*(leader.close() for leader in self._leaders.values()))

    async def cancel(self) -> None:
        """End everything at once."""
        self._buffer.clear()
        for leader in self._leaders.values():
            await leader.cancel()

    # Polls.

    def wake_up(self) -> None:
        """End the poll that waits, or the next one, with `WakeupError`."""
        self._woken = True
        self._notify()

    async def commit(self) -> None:
        """See :meth:`ShareConsumer.commit`."""
        self.accept_delivered()
        await self.flush()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    async def take(self, timeout: float | None, limit: int) -> list[ShareRecord[K, V]]:
        """Take up to `limit` records, waiting up to `timeout` seconds for the first.

        Raises:
            KafkaError: see :meth:`ShareConsumer.getone`.
        """
        self._check()
        self.accept_delivered()
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self._waiting += 1
        try:
            while True:
                self._check()
                self._raise_errors()
                taken = await self._from_buffer(limit)
                if taken:
                    return taken
                self._raise_errors()
                self.hungry = True
                self._wake_leaders()
                async with asyncio.timeout_at(deadline):
                    await self._arrived.wait()
        except TimeoutError:
            return []
        finally:
            self._waiting -= 1

    async def _from_buffer(self, limit: int) -> list[ShareRecord[K, V]]:
        """Take up to `limit` records whose locks have not expired."""
        taken: list[ShareRecord[K, V]] = []
        now = asyncio.get_running_loop().time()
        while self._untaken and len(taken) < limit:
            one = self._untaken.popleft()
            if one._holder is not None and now < one._holder.until:
                taken.append(one)
        try:
            while len(taken) < limit and self._buffer and self._error is None:
                delivery = self._buffer[0]
                if now >= delivery.until:
                    self._buffer.popleft()
                elif delivery.rows:
                    await self._take_row(delivery, delivery.rows.popleft(), taken)
                else:
                    self._next_part(delivery)
                    await asyncio.sleep(0)
        except BaseException:
            # The poll was cancelled: the records are for the next one.
            self._untaken.extendleft(reversed(taken))
            raise
        if self._implicit:
            self._delivered += taken
        return taken

    def give_back(self, records: Collection[ShareRecord[K, V]]) -> None:
        """The program has not received records of the last poll: the next one returns them."""
        self._delivered = [one for one in self._delivered if one not in records]
        self._untaken.extendleft(reversed(list(records)))

    def _next_part(self, delivery: _Delivery) -> None:
        """Decode the next part of the first delivery."""
        part = next(delivery.parts, None)
        if part is None:
            self._buffer.popleft()
            return
        for run in part.runs:
            delivery.say(run)
        delivery.rows.extend(part.rows)
        self._error = self._error or part.error

    async def _take_row(self, delivery: _Delivery, row: AcquiredRow, taken: list[ShareRecord[K, V]]) -> None:
        """Deserialize a record. If a deserializer raises, the record is released, and the next poll raises."""
        given, offset = row.record, row.record.offset
        try:
            key, value, _ = await self._conversion.convert(given.topic, given.key, given.value, given.headers)
        except Exception as error:
            delivery.say(Run(offset, offset, Acknowledgement.RELEASE))
            self._error = RecordDeserializationError(given.topic_partition, offset, error)
            self._error.__cause__ = error
        except BaseException:
            delivery.rows.appendleft(row)
            raise
        else:
            taken.append(ShareRecord(given._replace(key=key, value=value), row.delivery_count, delivery))

    def accept_delivered(self) -> None:
        """Accept what the last poll returned, if acknowledgement is implicit."""
        delivered, self._delivered = self._delivered, []
        for record in delivered:
            if record._holder is not None:
                record._holder.say(Run(record.offset, record.offset, Acknowledgement.ACCEPT))

    def _raise_errors(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def check_explicit(self) -> None:
        """Refuse an acknowledgement by the program if it is implicit, or the consumer was stopped.

        Raises:
            IllegalStateError: see above.
        """
        self._check()
        if self._implicit:
            raise IllegalStateError(
                'this share consumer acknowledges records itself. To do: give it share_acknowledgement_mode="explicit"'
            )

    def _limits(self, max_records: int, mode: ShareAcquireMode) -> Limits:
        return Limits(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=self._config.fetch_max_bytes,
            max_records=max_records,
            acquire_mode=_ACQUIRE_MODES[mode],
        )

    @property
    def _implicit(self) -> bool:
        """Whether polls accept what the last one returned. During a run, the run acknowledges."""
        return not self._runs and self._config.share_acknowledgement_mode == "implicit"

    # Runs.

    def begin_run(self) -> None:
        """A run begins, which acknowledges its records itself."""
        self.accept_delivered()
        self._runs = True

    def end_run(self) -> None:
        """The run has ended."""
        self._runs = False
        self.limits = self._limits(self._config.max_poll_records, self._config.share_acquire_mode)

    async def acquire(self, most: int) -> list[ShareRecord[K, V]]:
        """See :class:`RunConsumer`."""
        self.limits = self._limits(min(most, self._config.max_poll_records), "record_limit")
        return await self.take(None, sys.maxsize)

    async def buffered(self) -> list[ShareRecord[K, V]]:
        """See :class:`RunConsumer`."""
        return await self._from_buffer(sys.maxsize)

    async def flush(self) -> None:
        """See :class:`RunConsumer`."""
        await asyncio.gather(*(leader.flushed() for leader in self._leaders.values()))

    # What leaders and the membership report.

    def partitions(self, node_id: int) -> Partitions:
        """See :class:`LeaderOwner`."""
        if self._network is None or self._membership is None:
            return frozenset()
        cluster = self._network.cluster
        return frozenset(one for one in self._membership.assigned if _leader(cluster, one) == node_id)

    def arrived(self, leader: Leader, response: ShareFetchResponse) -> None:
        """See :class:`LeaderOwner`."""
        lock = response.acquisition_lock_timeout_ms / 1000
        names = {} if self._network is None else self._network.cluster.names
        for topic in response.responses:
            for part in topic.partitions:
                where = TopicIdPartition(bytes(topic.topic_id), part.partition_index)
                tp = TopicPartition(names.get(where.topic_id, "?"), where.partition)
                code = ErrorCode.of(part.error_code)
                if code != ErrorCode.NONE and not code.retriable:
                    self.raise_once(error_for(code, f"fetch from {tp}", part.error_message))
                if not part.acquired_records:
                    continue
                if not are_valid(part.acquired_records):
                    self.raise_once(CorruptRecordError(f"the ranges of acquired records of {tp} are invalid"))
                    continue
                rows = acquired_rows(tp, part.records, part.acquired_records, check_crcs=self._config.check_crcs)
                self._buffer.append(_Delivery(self, leader, where, rows, lock))
        if self._buffer or not self._waiting:
            self.hungry = False
        if self._buffer:
            self._notify()

    def refused(self, refused: Mapping[TopicIdPartition, KafkaError]) -> None:
        """See :class:`LeaderOwner`."""
        error = next(iter(refused.values()))
        self._refusal = self._refusal or error
        _log.warning("acknowledgements were refused or lost", group=self._config.group_id, reason=str(error))

    def raise_once(self, error: KafkaError) -> None:
        """See :class:`LeaderOwner`."""
        self._error = self._error or error
        self._notify()

    def fail(self, error: KafkaError) -> None:
        """The membership has failed: polls raise, until the next subscription."""
        self.failure = error
        self._notify()

    def _notify(self) -> None:
        """Wake the polls that wait."""
        self._arrived.set()
        self._arrived.clear()

    def assignment_changed(self) -> None:
        """The assignment may have changed, or the leader of a partition."""
        network, membership = self._network, self._membership
        if network is None or membership is None or self._stopped:
            return
        cluster = network.cluster
        for one in membership.assigned:
            node_id = _leader(cluster, one)
            if node_id < 0:
                network.want_refresh()
            elif node_id not in self._leaders:
                session = LeaderSession(self._config.group_id, self._member_id)
                self._leaders[node_id] = Leader(node_id, network, session, self)
        self._wake_leaders()

    def _wake_leaders(self) -> None:
        for leader in self._leaders.values():
            leader.wake()


def _session_has_ended() -> KafkaError:
    return error_for(ErrorCode.INVALID_RECORD_STATE, "acknowledge records", "the share session has ended")


def _leader(cluster: Cluster, where: TopicIdPartition) -> int:
    """The node id of the leader of a partition; -1 if it is not known."""
    name = cluster.names.get(where.topic_id)
    info = None if name is None else cluster.partition(TopicPartition(name, where.partition))
    return -1 if info is None else info.leader
