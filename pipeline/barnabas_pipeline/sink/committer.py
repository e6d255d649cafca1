"""The driver's part of the exactly-once sink: it sends staged batches, and records what is written.

:mod:`barnabas_pipeline.sink.exactly_once` describes the protocol. Files beside the staged ones: ``plan-N`` while
micro-batch N is being written, ``done-N`` once it is written.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from barnabas_client.errors import error_for
from barnabas_client.logs import logger
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.remote import Remote
from barnabas_pipeline.sink.checkpoint_folder import CheckpointFolder
from barnabas_pipeline.sink.commit_plan import CommitPlan, CommitState, StagedBatch, StagedFile
from barnabas_protocol.errors import DecodeError, ErrorCode
from barnabas_protocol.records import check_crc, iter_batches
from barnabas_protocol.records.batches import CRC_START
from barnabas_protocol.records.checksums import crc32c

T = TypeVar("T")

_log: Final = logger("barnabas_pipeline")

#: Producer id, producer epoch and base sequence in the header of a record batch.
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
_CRC: Final = struct.Struct(">I")


class Committer:
    """Writes micro-batches.

    Args:
        folder: the sink's folder of the query; all state is there.
        remote: the brokers to write to.
    """

    def __init__(self, folder: CheckpointFolder, remote: Remote) -> None:
        self._folder = folder
        self._remote = remote

    def commit(self, staged: Sequence[StagedFile], batch: int) -> None:
        """Write a micro-batch, or the part of it that is not written yet.

        Args:
            staged: what its tasks staged in this attempt.
            batch: the id of the micro-batch.

        Raises:
            KafkaError: it cannot be written now; a second call with the same id continues.
            RuntimeError: it is no longer known what is written, or files are damaged; the message says which.
        """
        done = self._done()
        if batch > done.batch:
            plan = self._plan(batch)
            if plan is None:
                plan = self._make_plan(staged, batch, done)
                written = dict.fromkeys(plan.first, 0)
            else:
                _log.warning("a micro-batch was begun before: continuing it", batch=batch)
                written = {tp: self._written(plan, tp) for tp in plan.first}
            self._remote.run(self._send(plan, written))
            done = plan.done(done)
            self._write(f"done-{batch}", done.to_json())
        self._clean(done.batch)

    def abort(self, staged: Sequence[StagedFile], batch: int) -> None:
        """Delete what was staged, unless the plan of the micro-batch needs it."""
        plan = self._plan(batch)
        needed = set() if plan is None else {entry.file for entry in plan.batches}
        for one in staged:
            if one.file is not None and one.file not in needed:
                self._folder.delete(one.file)

    # Files.

    def _done(self) -> CommitState:
        batches = self._numbered("done-")
        return CommitState() if not batches else self._load(f"done-{max(batches)}", CommitState.of_json)

    def _plan(self, batch: int) -> CommitPlan | None:
        return self._load(f"plan-{batch}", CommitPlan.of_json) if batch in self._numbered("plan-") else None

    def _numbered(self, prefix: str) -> list[int]:
        numbers = [name.removeprefix(prefix) for name in self._folder.names() if name.startswith(prefix)]
        return [int(number) for number in numbers if number.isdecimal()]

    def _load(self, name: str, read: Callable[[bytes], T]) -> T:
        try:
            return read(self._folder.read(name))
        except (ValueError, TypeError, KeyError) as error:
            raise RuntimeError(
                f"{self._folder}/{name} is damaged ({error}): it is no longer known which part of the micro-batch is "
                "written. To do: restore the checkpoint location from a copy, or compare topic and query by hand"
            ) from error

    def _write(self, name: str, text: bytes) -> None:
        with self._folder.writing(name) as file:
            file.write(text)

    def _clean(self, batch: int) -> None:
        """Delete all files but the one that records what is done."""
        for name in self._folder.names():
            if name != f"done-{batch}":
                self._folder.delete(name)

    # Before sending.

    def _make_plan(self, staged: Sequence[StagedFile], batch: int, done: CommitState) -> CommitPlan:
        batches = [entry for one in staged for entry in one.batches]
        partitions = sorted({entry.tp for entry in batches})
        producer_id, epoch = done.producer_id, done.producer_epoch
        if producer_id < 0:
            producer_id, epoch = self._remote.init_producer_id()
        plan = CommitPlan(
            batch,
            producer_id,
            epoch,
            batches,
            {tp: done.following.get(tp, 0) for tp in partitions},
            self._remote.latest(partitions),
        )
        self._write(f"plan-{batch}", plan.to_json())
        return plan

    def _written(self, plan: CommitPlan, tp: TopicPartition) -> int:
        """Return how many of a partition's batches are written: all up to the last one found."""
        places = {base: number for number, (base, _) in enumerate(plan.by_partition()[tp])}
        position, end = plan.ends[tp], self._remote.latest([tp])[tp]
        first = self._remote.earliest([tp])[tp]
        lost, position = first > position, max(first, position)
        written = 0
        while position < end:
            answer = self._remote.start_fetch(tp, position, self._remote.settings.max_partition_fetch_bytes).result()
            if answer.error != ErrorCode.NONE:
                raise error_for(answer.error, f"look for what is written of micro-batch {plan.batch} in {tp}")
            for head, _ in iter_batches(answer.data.records or b"", partial_ok=True):
                position = max(position, head.next_offset)
                ours = (head.producer_id, head.producer_epoch) == (plan.producer_id, plan.producer_epoch)
                if ours and head.base_sequence in places:
                    written = max(written, places[head.base_sequence] + 1)
        if lost and not written:
            raise RuntimeError(
                f"it is no longer known whether micro-batch {plan.batch} is written to {tp}: it would be after offset "
                f"{plan.ends[tp]}, and records up to offset {first} have been deleted since. To do: look for its "
                f"records by hand; if they exist, or are not wanted, remove {self._folder}/plan-{plan.batch} together "
                "with this micro-batch's rows, or start with another checkpoint location"
            )
        return written

    # Sending.

    async def _send(self, plan: CommitPlan, written: dict[TopicPartition, int]) -> None:
        """Send all partitions concurrently, and the batches of each in order."""

        async def send_partition(tp: TopicPartition, batches: Sequence[tuple[int, StagedBatch]]) -> None:
            for sequence, batch in batches[written[tp] :]:
                await self._remote.produce(tp, await asyncio.to_thread(self._read, plan, batch, sequence))

        try:
            async with asyncio.TaskGroup() as group:
                for tp, batches in plan.by_partition().items():
                    group.create_task(send_partition(tp, batches))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    def _read(self, plan: CommitPlan, batch: StagedBatch, sequence: int) -> bytearray:
        """Read a batch from its file, and set its producer id, epoch and base sequence."""
        try:
            with self._folder.opened(batch.file) as file:
                data = bytearray(file.read_at(batch.size, batch.at))
            check_crc(data)
        except (DecodeError, OSError) as error:
            raise RuntimeError(
                f"{self._folder}/{batch.file} is damaged ({error}): the rest of micro-batch {plan.batch} cannot be "
                "written. To do: restore the checkpoint location from a copy"
            ) from error
        _PRODUCER.pack_into(data, _PRODUCER_AT, plan.producer_id, plan.producer_epoch, sequence)
        _CRC.pack_into(data, CRC_START - 4, crc32c(memoryview(data)[CRC_START:]))
        return data
