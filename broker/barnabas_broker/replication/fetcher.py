"""The follower's loop: one fetcher per leader broker, one Fetch at a time for all partitions that follow it.

What comes is appended as it is, offsets and epochs included. A partition that fails (no leader there yet, a log that
cannot be written) rests for ``replica.fetch.backoff.ms`` while the others go on; a connection that fails rests as a
whole.
"""

import asyncio
from collections.abc import Callable
from typing import Final

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
from barnabas_broker.replication.following import VERSION, Asking, Key, Position, truncation_offset
from barnabas_broker.replication.link import Link
from barnabas_broker.replication.partition import Hosted
from barnabas_broker.storage import TopicPartition
from barnabas_broker.storage.epochs import UNDEFINED
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.hot import decode_fetch_response
from barnabas_protocol.messages.fetch import FetchResponse, PartitionData

log = logger("replication")

#: Where a broker listens: host and port; None while it is not there.
Address = Callable[[int], tuple[str, int] | None]
#: Errors that a change of leaders explains; the image is on its way.
_EXPECTED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Fetchers:
    """All fetchers of this broker.

    Args:
        config: the broker's configuration.
        node_id: this broker.
        address: where other brokers are.
        broker_epoch: which life of this broker it is, as the cluster counts (KIP-903).
        wall_ms: the time of day, in ms.
    """

    def __init__(
        self,
        config: Config,
        node_id: int,
        address: Address,
        broker_epoch: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.node_id = node_id
        self.address = address
        self.broker_epoch = broker_epoch
        self.wall_ms = wall_ms
        self._fetchers: dict[int, _Fetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def follow(self, hosted: Hosted, leader: int) -> None:
        """Let a partition follow `leader`; -1 lets it follow nobody."""
        where = hosted.log.topic_partition
        before = self._leaders.pop(where, None)
        if before is not None and before != leader:
            self._fetchers[before].drop(where)
        if leader < 0:
            return
        self._leaders[where] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = _Fetcher(self, leader)
        fetcher.add(where, hosted)

    async def close(self) -> None:
        """End them all."""
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._leaders.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers))


class _Fetcher:
    """Follows one leader broker, as long as there is something to follow."""

    def __init__(self, all_of_them: Fetchers, leader: int) -> None:
        self._shared = all_of_them
        self._leader = leader
        config = all_of_them.config
        self._backoff = config[REPLICA_FETCH_BACKOFF_MS] / 1000
        self._timeout = (config[REPLICA_SOCKET_TIMEOUT_MS] + config[REPLICA_FETCH_WAIT_MAX_MS]) / 1000
        self._asking = Asking(
            all_of_them.node_id,
            config[REPLICA_FETCH_WAIT_MAX_MS],
            config[REPLICA_FETCH_MIN_BYTES],
            config[REPLICA_FETCH_RESPONSE_MAX_BYTES],
            config[REPLICA_FETCH_MAX_BYTES],
        )
        self._partitions: dict[TopicPartition, Hosted] = {}
        self._resting: dict[TopicPartition, asyncio.TimerHandle] = {}
        self._something = asyncio.Event()
        self._complained = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher-{leader}")

    def add(self, where: TopicPartition, hosted: Hosted) -> None:
        self._partitions[where] = hosted
        self._wake(where)

    def drop(self, where: TopicPartition) -> None:
        self._partitions.pop(where, None)
        rest = self._resting.pop(where, None)
        if rest is not None:
            rest.cancel()

    async def close(self) -> None:
        for where in list(self._resting):
            self.drop(where)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _rest(self, where: TopicPartition) -> None:
        if where in self._partitions and where not in self._resting:
            loop = asyncio.get_running_loop()
            self._resting[where] = loop.call_later(self._backoff, self._wake, where)

    def _wake(self, where: TopicPartition) -> None:
        rest = self._resting.pop(where, None)
        if rest is not None:
            rest.cancel()
        self._something.set()

    def _positions(self) -> dict[Key, tuple[TopicPartition, Hosted, Position]]:
        positions = {}
        for where, hosted in self._partitions.items():
            if where not in self._resting:
                followed = hosted.log
                last = followed.leader_epochs.epoch_for(followed.log_end_offset - 1) if followed.log_end_offset else -1
                position = Position(hosted.leader_epoch, followed.log_end_offset, last, followed.log_start_offset)
                positions[Key(followed.topic_id, where.partition)] = (where, hosted, position)
        return positions

    async def _run(self) -> None:
        while True:
            await self._something.wait()
            address = self._shared.address(self._leader)
            if address is not None:
                try:
                    await self._follow(*address)
                except (OSError, DecodeError, KafkaError) as error:
                    self._complain(str(error) or type(error).__name__)
                except Exception:
                    # A bug in one turn must not leave the partitions without a fetcher for good.
                    log.exception("leader is followed anew after a failure", leader=self._leader)
            await asyncio.sleep(self._backoff)

    def _complain(self, reason: str) -> None:
        if not self._complained:
            self._complained = True
            log.warning("leader cannot be followed", leader=self._leader, reason=reason)

    async def _follow(self, host: str, port: int) -> None:
        link = await Link.open(host, port, f"broker-{self._shared.node_id}-fetcher", self._timeout)
        self._asking.reset()
        try:
            while True:
                asked = self._positions()
                if not asked:
                    self._something.clear()
                    await self._something.wait()
                    continue
                positions = {key: position for key, (_, _, position) in asked.items()}
                request = self._asking.request(positions, self._shared.broker_epoch())
                frame = await link.ask(request, VERSION, self._timeout)
                response = decode_fetch_response(VERSION, frame)
                if self._complained:
                    self._complained = False
                    log.info("leader is followed again", leader=self._leader)
                self._take(response, asked)
        finally:
            link.close()

    def _take(self, response: FetchResponse, asked: dict[Key, tuple[TopicPartition, Hosted, Position]]) -> None:
        error = ErrorCode.of(response.error_code)
        if not self._asking.answered(error, response.session_id):
            return
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        for topic in response.responses:
            for answer in topic.partitions:
                key = Key(bytes(topic.topic_id), answer.partition_index)
                if key not in asked:
                    raise DecodeError(f"the leader answers for partition {key}, which was not asked for")
                where, hosted, position = asked[key]
                if self._partitions.get(where) is not hosted or hosted.leader_epoch != position.leader_epoch:
                    continue  # it follows another by now
                try:
                    self._take_one(hosted, position, answer)
                except KafkaError as failure:
                    level = log.debug if failure.code in _EXPECTED else log.warning
                    level("partition not followed", partition=str(where), error=failure.code.name, reason=str(failure))
                    self._asking.repeat(key)
                    self._rest(where)

    def _take_one(self, hosted: Hosted, position: Position, answer: PartitionData) -> None:
        followed, error = hosted.log, ErrorCode.of(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset > position.offset:
            # What would come next is gone at the leader: begin where it begins.
            log.warning("follower starts afresh", partition=str(followed.topic_partition), at=answer.log_start_offset)
            followed.truncate_fully_and_start_at(answer.log_start_offset, self._shared.wall_ms())
            followed.set_high_watermark(answer.log_start_offset)
            return
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        if answer.diverging_epoch is not None:
            if answer.diverging_epoch.end_offset < UNDEFINED:
                raise DecodeError(f"epoch {answer.diverging_epoch.epoch} ends at {answer.diverging_epoch.end_offset}")
            self._truncate(hosted, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
            return
        if answer.records:
            if followed.log_end_offset != position.offset:
                return  # what was asked for has been overtaken
            followed.append_as_follower(answer.records, now_ms=self._shared.wall_ms())
        mark = min(answer.high_watermark, followed.log_end_offset)
        if mark > followed.high_watermark:
            followed.set_high_watermark(mark)
        if answer.log_start_offset > followed.log_start_offset:
            followed.start_at(min(answer.log_start_offset, followed.log_end_offset))

    def _truncate(self, hosted: Hosted, epoch: int, end_offset: int) -> None:
        followed = hosted.log
        offset = truncation_offset(
            followed.leader_epochs, followed.log_end_offset, followed.high_watermark, epoch, end_offset
        )
        level = log.error if offset < followed.high_watermark else log.info
        level(
            "follower is cut back to what its leader has",
            partition=str(followed.topic_partition),
            leader_epoch=hosted.leader_epoch,
            end=followed.log_end_offset,
            at=offset,
            high_watermark=followed.high_watermark,
        )
        if offset >= followed.log_end_offset:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "both logs seem to agree, and the leader says no")
        followed.truncate_to(offset)
