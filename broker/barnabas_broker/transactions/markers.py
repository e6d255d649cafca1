"""Sends markers to the leaders of the partitions, again and again until each one is written. A shell.

Markers for one broker go in one request at a time; those that come meanwhile wait and go together in the next one.
What fails is tried again with back-off, and at once when another broker leads the partition; a request that a former
leader does not answer is given up. Source: Kafka's ``TransactionMarkerChannelManager`` and
``TransactionMarkerRequestCompletionHandler``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

from barnabas_broker.backoff import jittered
from barnabas_broker.coordinators.leader_requests import LeaderRequests
from barnabas_broker.coordinators.ports import Peers
from barnabas_broker.logs import logger
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.ports import Leader, WriteMarkers
from barnabas_broker.transactions.transaction import SendMarkers
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logger("transactions")

#: Partitions that a log line names.
_MOST_NAMES: Final = 10
#: The version of WriteTxnMarkers between brokers.
_VERSION: Final = 2
#: Partitions in one request, about; a single transaction may have more.
_AT_ONCE: Final = 2_000
#: Seconds before another attempt: the first pause, and the longest.
_RETRY_SECONDS: Final = (0.05, 5.0)
#: Attempts after which it is worth a warning: about ten seconds.
_MANY: Final = 8
#: Errors that say that the partition has no such transaction any more.
_NOTHING_TO_END: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


class Marker:
    """The markers of one transaction.

    Args:
        transactional_id: whose.
        coordinator_epoch: the leader epoch of the coordinator's partition.
        effect: the producer, the outcome and the partitions.
        wanted: whether this broker still coordinates the transaction.
        written: called with partitions that have their marker.
    """

    __slots__ = ("coordinator_epoch", "effect", "transactional_id", "wanted", "written")

    def __init__(
        self,
        transactional_id: str,
        coordinator_epoch: int,
        effect: SendMarkers,
        wanted: Callable[[], bool],
        written: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.coordinator_epoch = coordinator_epoch
        self.effect = effect
        self.wanted = wanted
        self.written = written


class _Part:
    """Some partitions of a transaction, on their way to one leader; -1 if they have none."""

    __slots__ = ("attempts", "leader", "marker", "partitions")

    def __init__(self, marker: Marker, leader: int, partitions: list[TopicPartition], attempts: int) -> None:
        self.marker = marker
        self.leader = leader
        self.partitions = partitions
        self.attempts = attempts


class MarkerSender:
    """Sends markers until :meth:`close`.

    Args:
        node_id: this broker.
        leader: of a partition.
        write: writes the markers of partitions that this broker leads.
        peers: the other brokers.
        timeout: seconds that a request may take.
    """

    def __init__(self, node_id: int, leader: Leader, write: WriteMarkers, peers: Peers, timeout: float) -> None:
        self._node_id = node_id
        self._leader = leader
        self._write = write
        self._timeout = timeout
        self._queues: dict[int, deque[_Part]] = {}
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._requests = LeaderRequests(leader, peers, timeout)
        #: Parts that wait for another attempt.
        self._waiting: dict[_Part, asyncio.TimerHandle] = {}
        self._closed = False
        self._backoff = jittered(*_RETRY_SECONDS, seed="markers")

    @property
    def pending(self) -> int:
        """Markers that are not written yet."""
        parts = [part for queue in self._queues.values() for part in queue]
        return sum(len(part.partitions) for part in (*parts, *self._waiting))

    def send(self, marker: Marker) -> None:
        """Write the markers of a transaction; `marker.written` is called later, not now."""
        self._route(marker, sorted(marker.effect.partitions), 0)

    def leaders_changed(self) -> None:
        """Try again at once what waits for, or was sent to, a former leader.

        What waits for a leader that still leads keeps its pause: while ISRs change, images follow each other quickly.
        What another coordinator sends now is dropped.
        """
        self._requests.leaders_changed()
        for part in list(self._waiting):
            moved: list[TopicPartition] = []
            stay: list[TopicPartition] = []
            if part.marker.wanted():
                for each in part.partitions:
                    (stay if self._leader(each) == part.leader else moved).append(each)
            if moved:
                part.partitions = stay
                self._route(part.marker, moved, part.attempts)
            if not stay:
                self._waiting.pop(part).cancel()

    async def close(self) -> None:
        """Stop. The next coordinator, or this one after its restart, sends what is not written."""
        self._closed = True
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        self._queues.clear()
        workers = list(self._workers.values())
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _route(self, marker: Marker, partitions: Iterable[TopicPartition], attempts: int) -> None:
        """Queue each partition for its leader."""
        if self._closed or not marker.wanted():
            return
        by_leader: dict[int | None, list[TopicPartition]] = {}
        for each in partitions:
            by_leader.setdefault(self._leader(each), []).append(each)
        for leader, some in by_leader.items():
            if leader is None:
                log.info(
                    "markers dropped: the partitions were deleted",
                    transactional_id=marker.transactional_id,
                    partitions=partition_names(some),
                )
                asyncio.get_running_loop().call_soon(marker.written, some)
            elif leader < 0:
                self._wait(_Part(marker, leader, some, attempts + 1), ErrorCode.LEADER_NOT_AVAILABLE.name)
            else:
                self._queues.setdefault(leader, deque()).append(_Part(marker, leader, some, attempts))
                if leader not in self._workers:
                    # It starts before the answer to EndTxn is sent. If it started afterwards, the client's next
                    # transaction would often find this one without its markers, and wait to try again.
                    self._workers[leader] = asyncio.get_running_loop().create_task(self._work(leader))

    def _wait(self, part: _Part, reason: str) -> None:
        """Try again later."""
        if self._closed:
            return
        delay = self._backoff.pause_after(part.attempts)
        if part.attempts == _MANY:
            log.warning(
                "markers cannot be written: the partitions' last stable offset does not advance until they are",
                transactional_id=part.marker.transactional_id,
                partitions=partition_names(part.partitions),
                reason=reason,
            )
        self._waiting[part] = asyncio.get_running_loop().call_later(delay, self._again, part)

    def _again(self, part: _Part) -> None:
        if self._waiting.pop(part, None) is not None:
            self._route(part.marker, part.partitions, part.attempts)

    async def _work(self, leader: int) -> None:
        """Send what is queued for a broker."""
        queue = self._queues[leader]
        try:
            while queue:
                parts: list[_Part] = []
                count = 0
                while queue and count < _AT_ONCE:
                    part = queue.popleft()
                    if part.marker.wanted():
                        parts.append(part)
                        count += len(part.partitions)
                if parts:
                    await self._send(leader, parts)
        finally:
            # Here, not in a callback: what is queued next needs a new worker.
            del self._workers[leader]
            if not queue:
                self._queues.pop(leader, None)

    async def _send(self, leader: int, parts: list[_Part]) -> None:
        request = WriteTxnMarkersRequest(markers=[_writable(part) for part in parts])
        try:
            if leader == self._node_id:
                async with asyncio.timeout(self._timeout):
                    response = await self._write(request)
            else:
                partitions = [each for part in parts for each in part.partitions]
                frame = await self._requests.ask(leader, request, _VERSION, partitions)
                if frame is None:
                    for part in parts:
                        self._route(part.marker, part.partitions, part.attempts)
                    return
                response = decode_response(WriteTxnMarkersResponse, _VERSION, frame)
        except (OSError, DecodeError, KafkaError) as error:
            self._failed(parts, str(error) or type(error).__name__)
        except Exception:
            # Nothing else sends these markers: they must be tried again, whatever the problem is.
            log.exception("markers cannot be sent", leader=leader)
            self._failed(parts, "an unexpected error")
        else:
            self._answered(parts, response)

    def _failed(self, parts: list[_Part], reason: str) -> None:
        for part in parts:
            self._wait(_Part(part.marker, part.leader, part.partitions, part.attempts + 1), reason)

    def _answered(self, parts: list[_Part], response: WriteTxnMarkersResponse) -> None:
        codes = {
            (result.producer_id, TopicPartition(topic.name, each.partition_index)): each.error_code
            for result in response.markers
            for topic in result.topics
            for each in topic.partitions
        }
        for part in parts:
            marker = part.marker
            written: list[TopicPartition] = []
            failed: dict[TopicPartition, int] = {}
            for partition in part.partitions:
                code = codes.get((marker.effect.producer_id, partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                if code in _NOTHING_TO_END:
                    log.warning(
                        "marker refused: the partition has no such transaction any more",
                        transactional_id=marker.transactional_id,
                        partition=str(partition),
                        error=ErrorCode(code).name,
                    )
                if code == ErrorCode.NONE or code in _NOTHING_TO_END:
                    written.append(partition)
                else:
                    failed[partition] = code
            if written and marker.wanted():
                marker.written(written)
            if failed:
                reason = ", ".join(sorted({_name(code) for code in failed.values()}))
                self._wait(_Part(marker, part.leader, list(failed), part.attempts + 1), reason)


def _writable(part: _Part) -> WritableTxnMarker:
    effect = part.marker.effect
    topics: dict[str, list[int]] = {}
    for topic, partition in part.partitions:
        topics.setdefault(topic, []).append(partition)
    return WritableTxnMarker(
        producer_id=effect.producer_id,
        producer_epoch=effect.producer_epoch,
        transaction_result=effect.committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=part.marker.coordinator_epoch,
        transaction_version=effect.version,
    )


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def partition_names(partitions: Collection[TopicPartition]) -> str:
    """Partitions for a log line."""
    shown = ",".join(map(str, sorted(partitions)[:_MOST_NAMES]))
    more = len(partitions) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
