"""The part of the consumer that is about places: pauses, positions, offsets, lag and commits.

:class:`~barnabas_client.consumer.consumer.Consumer` is the whole. Sources: ``KafkaConsumer.java``, aiokafka's
``AIOKafkaConsumer``.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from barnabas_client.checks import Offset, is_int64, mapped, offsets_of, partitions_of
from barnabas_client.consumer.commits import CommitCallback
from barnabas_client.consumer.core import ConsumerCore
from barnabas_client.consumer.offsets import EARLIEST, LATEST, list_offsets
from barnabas_client.consumer.subscription import Needed
from barnabas_client.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

#: Seconds that an answer to a fetch may take beyond `fetch_max_wait_ms`, and still tell of the present.
_FETCH_TAKES: Final = 0.5


V = TypeVar("V")


class ConsumerPlaces:
    """Where a consumer stands, and where its group does."""

    _core: ConsumerCore

    # Flow control.

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these partitions until they are resumed; they stay assigned and keep their buffers.

        Raises:
            IllegalStateError: one is not assigned.
        """
        for tp in partitions_of("pause", partitions):
            self._core.subscription.state(tp).paused = True
        self._core.changed()

    def resume(self, *partitions: TopicPartition) -> None:
        """End a pause.

        Raises:
            IllegalStateError: one is not assigned.
        """
        for tp in partitions_of("resume", partitions):
            self._core.subscription.state(tp).paused = False
        self._core.changed()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(tp for tp, state in self._core.subscription.states.items() if state.paused)

    # Positions.

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that a poll will return; waits until it is known.

        Raises:
            IllegalStateError: the partition is not assigned.
            KafkaTimeoutError: it is not known within `request_timeout_ms`.
            NoOffsetForPartitionError: nothing is committed and ``auto_offset_reset="none"``.
        """
        (tp,) = partitions_of("position", (partition,))
        state = self._core.subscription.state(tp)
        if state.position is None:
            await self._core.until_positions([tp], f"position of {tp}")
        position = self._core.subscription.state(tp).position
        assert position is not None
        return position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Polls return nothing of what was fetched before.

        Raises:
            IllegalStateError: the partition is not assigned.
            ValueError: something else than an offset.
        """
        (tp,) = partitions_of("seek", (partition,))
        if not is_int64(offset):
            raise ValueError(f"seek({tp}, {offset!r}): give an offset of at least 0")
        self._core.subscription.state(tp).seek(offset)
        self._core.changed()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record of these partitions, of all assigned ones if none is given.

        Raises:
            IllegalStateError: one is not assigned.
            KafkaTimeoutError: the start was not found within `request_timeout_ms`.
        """
        await self._reset("seek_to_beginning", partitions, Needed.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record of these partitions, of all assigned ones if none is given.

        Raises:
            IllegalStateError: one is not assigned.
            KafkaTimeoutError: the end was not found within `request_timeout_ms`.
        """
        await self._reset("seek_to_end", partitions, Needed.LATEST)

    async def _reset(self, what: str, partitions: tuple[TopicPartition, ...], to: Needed) -> None:
        core = self._core
        core.check_running()
        chosen = partitions_of(what, partitions) or tuple(core.subscription.states)
        for state in [core.subscription.state(tp) for tp in chosen]:
            state.need(to)
        core.changed()
        await core.until_positions(chosen, what)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Go on at what the group committed for these partitions, for all assigned ones if none is given; where
        nothing is committed, as `auto_offset_reset` says.

        Returns:
            The new positions.

        Raises:
            IllegalOperationError: there is no group.
            IllegalStateError: a partition is not assigned.
            KafkaTimeoutError: they were not found within `request_timeout_ms`.
            NoOffsetForPartitionError: nothing is committed and ``auto_offset_reset="none"``.
        """
        core = self._core
        assert core.store
        chosen = partitions_of("seek_to_committed", partitions) or tuple(core.subscription.states)
        await self._reset("seek_to_committed", chosen, Needed.COMMITTED)
        return {tp: await self.position(tp) for tp in chosen}

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record that consumers may see, as of the last fetch; None before it.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._core.subscription.state(partition).high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the first record whose transaction is still open, or the end if none is, as of the last fetch;
        None before it.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._core.subscription.state(partition).last_stable_offset

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When the last answer to a fetch of this partition came, in milliseconds since 1970; None before it.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._core.subscription.state(partition).fetched_at

    async def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """How many offsets each partition has between this consumer's position and its end.

        The end is that of the records that polls may return: the high watermark, with
        ``isolation_level="read_committed"`` the last stable offset. It is taken from the last fetch; where that is
        longer ago than a fetch takes (nothing was fetched yet, the partition is paused, its buffer is full) the leader
        is asked. Records that polls have returned do not count, committed or not: a group's lag as others see it, from
        its commits, is that of ``barnabas groups describe``. In compacted topics there are fewer records than offsets.

        Args:
            partitions: these; all assigned ones if none is given.

        Raises:
            IllegalStateError: one is not assigned.
            KafkaTimeoutError: a position or an end was not found within `request_timeout_ms`.
            NoOffsetForPartitionError: nothing is committed and ``auto_offset_reset="none"``.
            KafkaError: a partition may not be read.
        """
        core = self._core
        core.check_running()
        chosen = partitions_of("lag", partitions) or tuple(core.subscription.states)
        await core.until_positions(chosen, "lag")
        committed = core.config.read_committed
        fresh = asyncio.get_running_loop().time() - core.config.fetch_max_wait_ms / 1000 - _FETCH_TAKES
        states = [core.subscription.state(tp) for tp in chosen]
        old = [one.tp for one in states if one.measured_at < fresh or one.lag(read_committed=committed) is None]
        ends = await self.end_offsets(old) if old else {}
        lags = {}
        for tp in chosen:
            state = core.subscription.state(tp)
            if tp in ends and state.position is not None:
                lags[tp] = max(0, ends[tp] - state.position)
            else:
                lags[tp] = state.lag(read_committed=committed) or 0
        return lags

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not.

        Raises:
            KafkaError: they could not be had within `request_timeout_ms`.
        """
        found = await self._list(
            "beginning_offsets", dict.fromkeys(partitions_of("beginning_offsets", partitions), EARLIEST)
        )
        return {tp: one.offset for tp, one in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition, assigned or not.

        Raises:
            KafkaError: they could not be had within `request_timeout_ms`.
        """
        found = await self._list("end_offsets", dict.fromkeys(partitions_of("end_offsets", partitions), LATEST))
        return {tp: one.offset for tp, one in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after a time, for each partition, assigned or not; None if there is none.

        Args:
            timestamps: milliseconds since 1970.

        Raises:
            ValueError: a negative timestamp.
            KafkaError: they could not be had within `request_timeout_ms`.
        """
        for tp, time in mapped("offsets_for_times", timestamps).items():
            if isinstance(time, bool) or not isinstance(time, int):
                raise TypeError(f"offsets_for_times: {time!r} for {tp}: give milliseconds since 1970")
            if time < 0:
                raise ValueError(f"offsets_for_times: {time} for {tp}: give milliseconds since 1970")
        found = await self._list("offsets_for_times", timestamps)
        return {tp: one if one.offset >= 0 else None for tp, one in found.items()}

    async def _list(self, what: str, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        network, config = self._core.network, self._core.config
        partitions = partitions_of(what, times)
        if network.watch_also(tp.topic for tp in partitions):
            await network.refresh()
        timeout = self._core.client.request_timeout
        return await list_offsets(network, times, read_committed=config.read_committed, timeout=timeout)

    # Commits.

    async def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None) -> None:
        """Commit and wait until it is durable.

        Args:
            offsets: for each partition the offset of the next record to read: alone, with metadata, or as
                `OffsetAndMetadata`. If None, the positions of all assigned partitions: everything that polls returned.

        Raises:
            IllegalOperationError: there is no group.
            CommitFailedError: this consumer is no member of the group any more.
            RebalanceInProgressError: the group is rebalancing; poll, then commit again.
            KafkaTimeoutError: it did not succeed within `request_timeout_ms`.
            TypeError, ValueError: an offset that is none.
        """
        core = self._core
        await core.commits.commit(core.subscription.positions() if offsets is None else offsets_of("commit", offsets))

    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit in the background, once. If it fails, the next commit covers it: at the end call :meth:`commit`, which
        waits for those in the background first.

        Args:
            offsets: as for :meth:`commit`.
            callback: called in the event loop with the offsets, and None or the error; it may be a coroutine function.
                Without one a failure is logged.

        Raises:
            IllegalOperationError: there is no group.
            TypeError, ValueError: an offset that is none; a callback that cannot be called.
        """
        core = self._core
        if callback is not None and not callable(callback):
            raise TypeError(f"commit_async: callback is {callback!r}: give a function of offsets and error")
        made = core.subscription.positions() if offsets is None else offsets_of("commit", offsets)
        core.commits.in_background(made, callback)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed for a partition, None if it has not.

        Raises:
            IllegalOperationError: there is no group.
            KafkaError: it could not be had within `request_timeout_ms`.
        """
        found = await self.committed_offsets(partition)
        offset = found[partition]
        return None if offset is None else offset.offset

    async def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions, with metadata; None where it has not.

        Raises:
            IllegalOperationError: there is no group.
            KafkaError: it could not be had within `request_timeout_ms`.
        """
        core = self._core
        chosen = partitions_of("committed", partitions)
        return await core.store.committed(chosen, timeout=core.client.request_timeout)
