"""The driver's part of the exactly-once sink: it writes what was staged, and knows what is written.

See :mod:`barnabas_pipeline.exactly_once` for the whole. Files, beside those that were staged: ``plan-N`` while
micro-batch N is being written, ``done-N`` when it is.
"""

import asyncio
import logging
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from crc32c import crc32c

from barnabas_client.errors import error_for
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.commit_plan import Done, Entry, Plan, Staged
from barnabas_pipeline.remote import Remote
from barnabas_pipeline.staging import Folder
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records import check_crc, iter_batches
from barnabas_protocol.records.batches import CRC_START

_log: Final = logging.getLogger("barnabas_pipeline")

#: Producer id, epoch and base sequence in a batch's head.
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
_CRC: Final = struct.Struct(">I")
#: The newest Produce version that names topics.
_NAMES: Final = 12
_FOREVER: Final = 2_147_483_647


class Committer:
    """Writes micro-batches.

    Args:
        folder: of the query: whatever it knows is there.
        remote: where to write.
    """

    def __init__(self, folder: Folder, remote: Remote) -> None:
        self._folder = folder
        self._remote = remote

    def commit(self, staged: Sequence[Staged], batch: int) -> None:
        """Write a micro-batch, or the rest of it, or nothing, by what is written already.

        Args:
            staged: by its tasks, this time.
            batch: its id.

        Raises:
            KafkaError: it cannot be written now. Called again with the same id it goes on.
            RuntimeError: it cannot be known any more what is written, or files are damaged; the message says which.
        """
        done = self._done()
        if batch > done.batch:
            plan = self._plan(batch)
            if plan is None:
                plan = self._make_plan(staged, batch, done)
                written = dict.fromkeys(plan.first, 0)
            else:
                _log.warning("micro-batch %d was begun before: going on with it", batch)
                written = {tp: self._written(plan, tp) for tp in plan.first}
            self._remote.run(lambda remote: self._send(remote, plan, written))
            done = plan.done(done)
            self._write(f"done-{batch}", done.to_json())
        self._clean(done.batch)

    def abort(self, staged: Sequence[Staged], batch: int) -> None:
        """Forget what was staged, unless the plan of the micro-batch needs it."""
        plan = self._plan(batch)
        needed = set() if plan is None else {entry.file for entry in plan.entries}
        for one in staged:
            if one.file is not None and one.file not in needed:
                self._folder.delete(one.file)

    # Files.

    def _done(self) -> Done:
        batches = self._numbered("done-")
        return Done() if not batches else self._load(f"done-{max(batches)}", Done.of_json)

    def _plan(self, batch: int) -> Plan | None:
        return self._load(f"plan-{batch}", Plan.of_json) if batch in self._numbered("plan-") else None

    def _numbered(self, prefix: str) -> list[int]:
        numbers = [name.removeprefix(prefix) for name in self._folder.names() if name.startswith(prefix)]
        return [int(number) for number in numbers if number.isdecimal()]

    def _load(self, name: str, read: Any) -> Any:
        try:
            return read(self._folder.read(name))
        except (ValueError, TypeError, KeyError) as error:
            raise RuntimeError(
                f"{self._folder}/{name} is damaged ({error}): without it nobody knows what of the micro-batch is "
                "written. To do: restore the checkpoint location from a copy, or compare topic and query by hand"
            ) from error

    def _write(self, name: str, text: bytes) -> None:
        with self._folder.writing(name) as file:
            file.write(text)

    def _clean(self, batch: int) -> None:
        """Delete what no micro-batch needs any more: all but the file that says what is done."""
        for name in self._folder.names():
            if name != f"done-{batch}":
                self._folder.delete(name)

    # Before sending.

    def _make_plan(self, staged: Sequence[Staged], batch: int, done: Done) -> Plan:
        entries = [entry for one in staged for entry in one.entries]
        partitions = sorted({entry.tp for entry in entries})
        producer_id, epoch = done.producer_id, done.producer_epoch
        if producer_id < 0:
            producer_id, epoch = self._remote.run(_producer_id)
        plan = Plan(
            batch,
            producer_id,
            epoch,
            entries,
            {tp: done.following.get(tp, 0) for tp in partitions},
            self._remote.latest(partitions),
        )
        self._write(f"plan-{batch}", plan.to_json())
        return plan

    def _written(self, plan: Plan, tp: TopicPartition) -> int:
        """How many of a partition's batches are in it: up to the last one that is found."""
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
                f"whether micro-batch {plan.batch} is written to {tp} cannot be known any more: it would be behind "
                f"offset {plan.ends[tp]}, and records up to offset {first} have been deleted since. To do: look for "
                f"its records by hand; if they are there, or not wanted, remove {self._folder}/plan-{plan.batch} "
                "together with this micro-batch's rows, or start with another checkpoint location"
            )
        return written

    # Sending.

    async def _send(self, remote: Remote, plan: Plan, written: dict[TopicPartition, int]) -> None:
        """All partitions side by side, each batch of one after the other."""

        async def one(tp: TopicPartition, batches: Sequence[tuple[int, Entry]]) -> None:
            for sequence, entry in batches[written[tp] :]:
                data = await asyncio.to_thread(self._staged, plan, entry, sequence)
                await remote.trying(partial(_produce, remote, tp, data), remote.settings.delivery_timeout_ms / 1000)

        try:
            async with asyncio.TaskGroup() as group:
                for tp, batches in plan.by_partition().items():
                    group.create_task(one(tp, batches))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    def _staged(self, plan: Plan, entry: Entry, sequence: int) -> bytearray:
        """A batch out of its file, with its producer and its place in the order."""
        try:
            with self._folder.opened(entry.file) as file:
                data = bytearray(file.read_at(entry.size, entry.at))
            check_crc(data)
        except (DecodeError, OSError) as error:
            raise RuntimeError(
                f"{self._folder}/{entry.file} is damaged ({error}): the rest of micro-batch {plan.batch} cannot be "
                "written. To do: restore the checkpoint location from a copy"
            ) from error
        _PRODUCER.pack_into(data, _PRODUCER_AT, plan.producer_id, plan.producer_epoch, sequence)
        _CRC.pack_into(data, CRC_START - 4, crc32c(memoryview(data)[CRC_START:]))
        return data


async def _producer_id(remote: Remote) -> tuple[int, int]:
    """A new producer id and its epoch."""

    async def ask() -> tuple[int, int]:
        network = await remote.network()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_FOREVER)
        response = await network.ask_any(request, InitProducerIdResponse)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, "get a producer id")
        return response.producer_id, response.producer_epoch

    return await remote.trying(ask)


async def _produce(remote: Remote, tp: TopicPartition, batch: bytearray) -> None:
    """Send a batch to the leader of its partition. One that the broker has already is as good."""
    network = await remote.network()
    cluster = await remote.knowing(network, tp)
    leader = cluster.leader(tp)
    if leader is None:
        await network.refresh()
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"write to {tp}")
    settings = remote.settings
    request = ProduceRequest(
        acks=-1,
        timeout_ms=settings.request_timeout_ms,
        topic_data=[
            TopicProduceData(name=tp.topic, partition_data=[PartitionProduceData(index=tp.partition, records=batch)])
        ],
    )
    seconds = settings.request_timeout_ms / 1000 * 1.5  # the broker may wait for replicas nearly all of it
    response = await network.ask(leader, request, ProduceResponse, timeout=seconds, at_most=_NAMES)
    answers = [answer for topic in response.responses for answer in topic.partition_responses]
    if len(answers) != 1:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"write to {tp}: the broker's answer does not mention it")
    code = ErrorCode.of(answers[0].error_code)
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return
    if code.refreshes_metadata:
        await network.refresh()
    raise error_for(answers[0].error_code, f"write to {tp}", answers[0].error_message)
