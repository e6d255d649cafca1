"""Fetch: read the available records, or wait for more (long poll).

The request's session is resolved first, then every partition is read once. If the event loop would have to wait for the
disk, a thread reads the data into the page cache, and all partitions are read again. If there are fewer than
``min_bytes`` and no partition has an error, the fetch waits on its partitions until enough is appended or
``max_wait_ms`` is over, and reads again.

A consumer that is over its quota gets an empty response, and the time to wait (KIP-219).
"""

import asyncio
from collections.abc import Awaitable
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import Final

from barnabas_broker.cluster.image import Image
from barnabas_broker.config.keys import FETCH_MAX_BYTES
from barnabas_broker.groups.stuck import Watch, WatchedFetch
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.leader_hints import LeaderHint, leader_hint
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.handlers.topic_names import topic_name
from barnabas_broker.quotas.clients import milliseconds
from barnabas_broker.replication.fetch_sessions import CachedPartition, FetchContext, TopicKey
from barnabas_broker.replication.replica import DelayedFetch, Replica
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.server.memory_pool import Reserved
from barnabas_broker.slicer import Work
from barnabas_broker.steps import Steps
from barnabas_broker.storage.transaction_index import InOffsetOrder
from barnabas_explain.members import Partition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.hot.fetch import chain, encode_aborted, encode_fetch_response
from barnabas_protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchNodeEndpoint,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.uuids import uuid_text
from barnabas_protocol.wire import Encoded

_BY_ID: Final = 13
#: The first version in which errors name the leader (KIP-951).
_FIRST_WITH_LEADERS: Final = 16
_READ_COMMITTED: Final = 1
_NONE: Final[frozenset[str]] = frozenset()
#: A Fetch waits for long from so many milliseconds on.
_LONG_WAIT_MS: Final = 5_000
#: Aborted transactions that are encoded in one step.
_ABORTED_STEP: Final = 256
_NOT_HERE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)


@stepwise
def handle_fetch(context: RequestContext, request: FetchRequest) -> Steps[FetchResponse | Awaitable[FetchResponse]]:
    """Answer Fetch, at once or when enough is available."""
    now = asyncio.get_running_loop().time()
    fetch = yield from context.services.fetch_sessions.resolve(request, context.version, now)
    if fetch.error is not ErrorCode.NONE:
        return FetchResponse(error_code=fetch.error, session_id=0, responses=[])
    reading = _Reading(context, request, fetch)
    if not reading.follows:
        is_committed = request.isolation_level == _READ_COMMITTED
        reading.watched = context.services.groups.fetches.fetched(
            context.client, is_committed=is_committed, connection=context.peer.number
        )
    enough = yield from reading.read()
    if reading.loading:
        return _when_loaded(context, reading)
    if enough or request.max_wait_ms <= 0:
        return reading.response()
    return reading.wait()


async def _when_loaded(context: RequestContext, reading: "_Reading") -> FetchResponse:
    """Read when the data is in the page cache; there is data then, so the fetch need not wait for more."""
    await asyncio.wait(reading.loading)
    return await context.sliced(reading.read_again())


class _Reading:
    """One fetch, from its first read to its response.

    Attributes:
        follows: whether a follower fetches, and not a consumer.
        loading: what a thread reads into the page cache, after which everything is read again.
        watched: the fetch, if partitions of the client are watched.
    """

    __slots__ = (
        "_again",
        "_by_id",
        "_committed",
        "_context",
        "_fetch",
        "_follower",
        "_in_memory",
        "_leaders",
        "_limited",
        "_min_bytes",
        "_most",
        "_readable",
        "_replicas",
        "_request",
        "_reserved",
        "_size",
        "_topics",
        "follows",
        "loading",
        "watched",
    )

    def __init__(self, context: RequestContext, request: FetchRequest, fetch: FetchContext) -> None:
        self._context = context
        self._request = request
        self._fetch = fetch
        self._by_id = context.version >= _BY_ID
        self._replicas: list[Replica] = []
        #: The leaders that errors name, by node id.
        self._leaders: dict[int, LeaderHint] = {}
        self._topics: list[FetchableTopicResponse] = []
        self.watched: WatchedFetch | None = None
        self._size = 0
        #: Bytes of it that are not in files; they count until the response is encoded, and then by the connection.
        self._in_memory = 0
        self._reserved: Reserved | None = None
        self.loading: list[asyncio.Future[None]] = []
        #: Whether this is not the first read, which loads what is not in the page cache and records a follower's
        #: position.
        self._again = False
        state = request.replica_state
        #: Node id and broker epoch of the follower that fetches; -1 for consumers.
        self._follower = (request.replica_id, -1) if state is None else (state.replica_id, state.replica_epoch)
        #: Whether a `read_committed` consumer fetches. Followers fetch everything.
        self._committed = request.isolation_level == _READ_COMMITTED and self._follower[0] < 0
        #: Topics that the client may read, as far as it was asked; None if it may read all.
        self.follows = self._follower[0] >= 0
        self._readable = _readable(context, follows=self.follows)
        quotas = context.services.quotas
        #: Whether a quota may apply.
        self._limited = quotas.active and self._follower[0] < 0
        self._most = min(request.max_bytes, context.services.config[FETCH_MAX_BYTES])
        if self._limited:
            # What is more than the quota of a whole window would always be held back.
            self._most = int(min(self._most, quotas.fetches.most(context.principal.name, context.client_id)))
        self._min_bytes = min(request.min_bytes, self._most)

    def read(self) -> Steps[bool]:
        """Read every partition; the consecutive partitions of a topic share an entry of the response.

        Returns:
            Whether the response need not wait.
        """
        services = self._context.services
        image, responses = services.cluster.image, services.responses
        topics, last = self._start() if self._again else self._topics, None
        left = self._most
        at_once = not self._fetch.wanted
        for (target, _), wanted in self._fetch.wanted.items():
            if last is not None:
                self._reserve()
                yield
            if target != last:
                topics.append(FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id, partitions=[]))
                last = target
            before = self._size
            answer = yield from self._read_partition(image, target, wanted, min(left, responses.left))
            topics[-1].partitions.append(answer)
            left -= self._size - before
            at_once = at_once or answer.error_code != ErrorCode.NONE or answer.diverging_epoch is not None
        self._again = True
        if self._in_memory:
            self._reserve()
        return at_once or self._size >= self._min_bytes

    def _start(self) -> list[FetchableTopicResponse]:
        self._replicas, self._size, self._in_memory = [], 0, 0
        self._reserve()
        self._topics = []
        return self._topics

    def _reserve(self) -> None:
        """Count what was read, because others may read before this is encoded."""
        if self._reserved is not None:
            self._reserved.set(self._in_memory)
        elif self._in_memory:
            self._reserved = Reserved(self._context.services.responses)
            self._reserved.set(self._in_memory)

    def read_again(self) -> Steps[FetchResponse]:
        """Read every partition, and respond with what is there."""
        yield from self.read()
        return self.response()

    def _read_partition(
        self, image: Image, target: TopicKey, wanted: CachedPartition, left: int
    ) -> Steps[PartitionData]:
        try:
            name = topic_name(image, target.topic, target.topic_id, by_id=self._by_id)
            if self._readable is not None and name not in self._readable and not self._may_read(name):
                self._denied(name)
                return _nothing(wanted.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            replica = self._context.services.replicas.find(name, wanted.partition)
            replica.check_epoch(wanted.leader_epoch)
        except KafkaError as error:
            return self._not_here(target, wanted.partition, error.code)
        self._replicas.append(replica)
        watch = self._watch((name, wanted.partition), wanted.fetch_offset, replica)
        log = replica.log
        mark = log.high_watermark
        follows, committed = self._follower[0] >= 0, self._committed
        stable = log.last_stable_offset
        end = log.log_end_offset if follows else stable if committed else mark
        if self.watched is not None:
            self.watched.answered((name, wanted.partition), end)
        answer = PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=mark,
            last_stable_offset=stable,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if committed else None,
            records=b"",
        )
        try:
            if wanted.last_fetched_epoch >= 0:
                epoch, end_offset = log.epoch_end_offset(wanted.last_fetched_epoch)
                if epoch < 0:
                    return _nothing(wanted.partition, ErrorCode.OFFSET_OUT_OF_RANGE)  # no leader here had that epoch
                if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
                    answer.diverging_epoch = FetchEpochEndOffset(epoch=epoch, end_offset=end_offset)
                    return answer
            if follows and not self._again:
                self._record_position(replica, wanted)
                answer.high_watermark, answer.last_stable_offset = replica.high_watermark, log.last_stable_offset
            if wanted.fetch_offset == end:
                return answer
            if wanted.fetch_offset == log.log_start_offset and not follows and not self._again:
                context = self._context
                place = name, wanted.partition
                context.services.groups.fetches.from_start(context.client, place, wanted.fetch_offset)
            # The first partition that has data gives at least one batch, so that a batch over the limits gets through.
            limit = min(wanted.max_bytes, left)
            if not self._again:
                loading = log.warm(wanted.fetch_offset, min(wanted.max_bytes, self._request.max_bytes))
                if loading is not None:
                    self.loading.append(loading)
            if (limit > 0 or not self._size) and not self.loading:
                if committed:
                    parts, aborted = yield from log.read_committed(wanted.fetch_offset, limit, min_one=not self._size)
                    answer.aborted_transactions = yield from self._list(aborted)
                else:
                    parts = log.read(wanted.fetch_offset, limit, end, min_one=not self._size)
                answer.records = chain(parts)
                if watch is not None and parts:
                    size, most = sum(map(len, parts)), self._request.max_bytes
                    watch.delivered(size, most if size > most else wanted.max_bytes)
                for part in parts:
                    self._size += len(part)
                    if isinstance(part, memoryview):
                        self._in_memory += len(part)
        except KafkaError as error:
            nothing = _nothing(wanted.partition, error.code)
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                nothing.log_start_offset = log.log_start_offset
                if not follows:
                    context = self._context
                    offsets, place = (log.log_start_offset, end), (name, wanted.partition)
                    context.services.groups.fetches.out_of_range(context.client, place, wanted.fetch_offset, offsets)
            return nothing
        return answer

    def _not_here(self, target: TopicKey, partition: int, code: ErrorCode) -> PartitionData:
        """An error of a partition, with its leader if that is another broker."""
        nothing = _nothing(partition, code)
        topic = target.topic_id if self._by_id else target.topic
        hint = leader_hint(self._context, code, topic, partition)
        if hint is not None and self._context.version >= _FIRST_WITH_LEADERS:
            nothing.current_leader = FetchLeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.epoch)
            self._leaders[hint.node_id] = hint
        return nothing

    def _watch(self, place: Partition, offset: int, replica: Replica) -> Watch | None:
        """The counts of a partition, if it is watched; this Fetch counts once."""
        if self.watched is None:
            return None
        if self._again:
            return self.watched.watches.get(place)
        return self.watched.asks(place, offset, replica.leader_epoch)

    def _may_read(self, topic: str) -> bool:
        """Whether the client may read a topic. A follower, which may not read all, may read none."""
        return self._follower[0] < 0 and self._context.allows(acls.READ, acls.TOPIC, topic)

    def _denied(self, topic: str) -> None:
        """The client may not read a topic: if it is a member of a group, its group gets nothing of it."""
        if not self.follows and not self._again:
            context = self._context
            context.services.groups.fetches.denied(context.client, topic, str(context.principal))

    def _list(self, aborted: InOffsetOrder) -> Steps[list[AbortedTransaction]]:
        """The aborted transactions of a partition, encoded some at a time: there may be hundreds of thousands."""
        encoded, left, version = bytearray(), iter(aborted), self._context.version
        while some := [(each.producer_id, each.first_offset) for each in islice(left, _ABORTED_STEP)]:
            encoded += encode_aborted(some, version)
            yield
        self._in_memory += len(encoded)
        return Encoded(len(aborted), encoded)

    def _record_position(self, replica: Replica, wanted: CachedPartition) -> None:
        """Record the fetch position of a follower, once per fetch."""
        log = replica.log
        if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            return  # the read answers with the error
        node_id, broker_epoch = self._follower
        replicas = self._context.services.replicas
        directory = uuid_text(wanted.follower_directory) if any(wanted.follower_directory) else ""
        replicas.follower_fetched(
            replica, node_id, broker_epoch, wanted.fetch_offset, wanted.follower_log_start, directory
        )

    def wait(self) -> "asyncio.Future[FetchResponse]":
        """The response, when enough is available or the time is over."""
        loop = asyncio.get_running_loop()
        delayed = DelayedFetch(self._min_bytes - self._size)
        # It is read again when there is enough: until then it takes no memory.
        replicas, _ = self._replicas, self._start()
        answered: asyncio.Future[FetchResponse] = loop.create_future()
        waiting = []
        for replica in replicas:
            if self._committed:
                replica.wait_committed(delayed)
                waiting.append(replica.waiting_committed)
            else:
                waiting.append(replica.following if self._follower[0] >= 0 else replica.waiting)
                waiting[-1][delayed] = None

        slicer, peer = self._context.services.slicer, self._context.peer

        def woken(_: "asyncio.Future[None]") -> None:
            timer.cancel()
            for queue in waiting:
                queue.pop(delayed, None)
            if answered.done():
                return
            began = slicer.now()
            if not slicer.starts(began):
                self._context.sliced(self.read_again()).add_done_callback(read)
                return
            try:
                response = slicer.run(self.read_again(), peer)
                if isinstance(response, Work):
                    response.add_done_callback(read)
                else:
                    answered.set_result(response)
            except Exception as error:
                answered.set_exception(error)
            finally:
                seconds = slicer.now() - began
                slicer.did(seconds)
                peer.spent += seconds

        def read(response: "asyncio.Future[FetchResponse]") -> None:
            if answered.done():
                return
            try:
                answered.set_result(response.result())
            except Exception as error:
                answered.set_exception(error)

        over = delayed.wake
        if self._min_bytes > 1 and self._request.max_wait_ms >= _LONG_WAIT_MS and replicas and not self.follows:
            over = partial(self._over, delayed, replicas[0].log.topic_partition.topic)
        timer = loop.call_later(self._request.max_wait_ms / 1000, over)
        delayed.woken.add_done_callback(woken)
        return answered

    def _over(self, delayed: DelayedFetch, topic: str) -> None:
        """The time is over, and there are fewer than `min_bytes`: records that are there have waited for it."""
        context, min_bytes = self._context, self._min_bytes
        if not delayed.woken.done() and delayed.missing < min_bytes:
            context.services.groups.fetches.waited(context.client, topic, min_bytes, self._request.max_wait_ms)
        delayed.wake()

    def response(self) -> FetchResponse:
        """The response with what was read; without it, if the client is over its quota."""
        if self._limited:
            context, services = self._context, self._context.services
            wait = services.quotas.fetch(context.principal.name, context.client_id, self._size, services.now())
            if wait > 0:
                services.groups.fetches.throttled(context.client)
                session_id = services.fetch_sessions.held_back(self._fetch)
                self._start()
                return FetchResponse(
                    throttle_time_ms=milliseconds(wait),
                    error_code=ErrorCode.NONE,
                    session_id=session_id,
                    responses=[],
                )
        response = FetchResponse(error_code=ErrorCode.NONE, session_id=0, responses=self._topics)
        if self._leaders:
            response.node_endpoints = [
                FetchNodeEndpoint(node_id=node, host=hint.host, port=hint.port, rack=hint.rack)
                for node, hint in self._leaders.items()
            ]
        self._fetch.trim(response)
        return response


def _readable(context: RequestContext, *, follows: bool) -> AbstractSet[str] | None:
    """Topics that a client may read, as far as it was asked; None if it may read all, as other brokers may."""
    access = context.access
    if access is None or (follows and context.allows_on_cluster(acls.CLUSTER_ACTION)):
        return None
    return _NONE if follows else access.readable


def _follows(request: FetchRequest) -> bool:
    """Whether a follower fetches."""
    state = request.replica_state
    return (request.replica_id if state is None else state.replica_id) >= 0


def _nothing(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if code in _NOT_HERE else None,
        records=b"",
    )


ROUTES: Final = (
    Route(
        ApiKey.FETCH,
        handle_fetch,
        (
            requires((acls.READ, acls.TOPIC), when="a consumer fetches"),
            requires((acls.CLUSTER_ACTION, acls.CLUSTER), when="a follower fetches"),
        ),
        versions="4-18",
        encode=encode_fetch_response,
        # A response is large, and its size is known when there is data: those that wait would all be read at once.
        alone=True,
        exempt=_follows,
    ),
)
