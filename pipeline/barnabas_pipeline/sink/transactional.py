"""The sink with transactions: each micro-batch is written once, directly to Kafka, and invisible until it is committed.

Spark may repeat a task, and a micro-batch with the same id, until its commit has succeeded and is recorded in the
checkpoint. Therefore:

1. **A task writes in one transaction**, and leaves it open. Its transactional id is made of the query's id and the
   number of the task's partition, so another attempt of the task fences the earlier one and aborts its transaction. The
   last thing in the transaction is an offset, committed to the group with the same name: the micro-batch's id, with a
   digest of the rows. So the brokers can answer whether the transaction of a micro-batch is committed.
2. **The driver decides.** Its commit asks the coordinators whether all transactions are still open. Then it writes a
   file with the decision to the checkpoint location: transactional ids, producer ids, epochs. Until then a repeat of
   the micro-batch starts from nothing: its tasks abort what there is. From then on it only completes. The decision is
   on disk before the first transaction ends, so a driver that is killed between two ends leaves no doubt.
3. **The driver ends the transactions** with the producer ids and epochs of the tasks. It asks for no producer id, which
   would abort them. Each end can be repeated. The offset shows what became of one that was refused.
4. **A repeat of a decided micro-batch** writes nothing: its tasks find the decision and only compute their digest. A
   task whose transaction is gone (aborted at its timeout, or by a task of another driver) looks at its offset. If the
   transaction was not committed, it writes its rows again. The driver takes the new transaction into the decision if
   all tasks have the rows that they had before; otherwise a row may have moved from one task to another: an error.

A second driver of the same query (one that was thought dead) cannot commit what tasks of the newer one have fenced, and
a decision that it wrote earlier is completed by the newer one. A task that knows of no decision still looks at its
offset after it has fenced the earlier transaction, so it never writes again what a late driver has committed.

A group per task, not per query: Kafka refuses offsets of partitions that do not exist, and a query may have more tasks
than its topic has partitions. The decision is not kept as an offset's metadata, which is limited to 4 KiB.

Limits: a transaction must live until its micro-batch is decided, and then until it is committed:
``kafka.transaction.timeout.ms``. The brokers forget a group's offsets after ``offsets.retention.minutes``.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas_client.logs import logger
from barnabas_client.structs import OffsetAndMetadata, PreparedTransaction, TopicPartition
from barnabas_client.sync import Producer
from barnabas_pipeline.brokers.remote import Remote, remote_for
from barnabas_pipeline.sink.checkpoint_folder import CheckpointFolder
from barnabas_pipeline.sink.decision import (
    Decision,
    DifferentRowsError,
    RowDigest,
    TaskOutcome,
    file_name,
    newest,
    older,
)
from barnabas_pipeline.sink.options import WriteOptions
from barnabas_pipeline.sink.records import SinkRecord, to_records
from barnabas_pipeline.sink.sending import acknowledged, send
from barnabas_protocol.wire import Buffer

_log: Final = logger("barnabas_pipeline")

#: The sink's folder in the checkpoint location.
FOLDER: Final = "barnabas-transactions"
#: How long a failed task may take to abort its transaction, in ms. The next attempt aborts it in any case.
_STOP_MS: Final = 10_000
#: Properties that Spark sets for all tasks of a micro-batch: ``StreamExecution.scala``, ``MicroBatchExecution.scala``.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class TaskIdentity(NamedTuple):
    """A task: its query, its micro-batch, and its number among the tasks of it."""

    query: str
    batch: int
    task: int


def identity_of_task() -> TaskIdentity:
    """Return the identity of the task that runs in this worker.

    Raises:
        RuntimeError: Spark has not passed it.
    """
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    batch = None if context is None else context.getLocalProperty(_BATCH)
    if context is None or not query or batch is None or not batch.isdecimal():
        raise RuntimeError(
            f"Spark has not passed the properties {_QUERY} and {_BATCH} to the task, so its transaction would have no "
            "name. To do: write with exactlyOnce=true, which does not need them"
        )
    return TaskIdentity(query, int(batch), context.partitionId())


class TransactionalWriter(DataSourceStreamArrowWriter):
    """The writer of ``df.writeStream`` with ``exactlyOnce=transactional``.

    Args:
        options: the sink's.
        checkpoint: the query's checkpoint location.
    """

    def __init__(self, options: WriteOptions, checkpoint: str) -> None:
        self._options = options
        self._location = f"{checkpoint.rstrip('/')}/{FOLDER}"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task in a transaction, and leave it open.

        Raises:
            KafkaError: the brokers refused it, or another attempt has fenced this one.
            ValueError: a row cannot be written.
            RuntimeError: Spark has not said which task this is, or the decision's file is damaged.
        """
        return self.write_as(identity_of_task(), iterator)

    def write_as(self, identity: TaskIdentity, rows: Iterator[Any]) -> TaskOutcome:
        """Write the rows of this task; raises as :meth:`write`."""
        remote = remote_for(self._options.settings)
        return TransactionalTask(self._options, remote, self._decisions(), identity).write(rows)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Commit the transactions of a micro-batch, or the rest of them.

        Raises:
            KafkaError: the brokers cannot be reached; the repeat of the micro-batch continues.
            RuntimeError: a transaction was aborted before it could be committed, or files are damaged.
        """
        self._driver().commit(_outcomes(messages), batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Abort transactions after a task or the commit has failed, except those that are decided."""
        self._driver().abort(_outcomes(messages), batch_id)

    def _decisions(self) -> "DecisionFiles":
        return DecisionFiles(CheckpointFolder(self._location))

    def _driver(self) -> "TransactionalDriver":
        return TransactionalDriver(remote_for(self._options.settings), self._decisions())


def _outcomes(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    return [message for message in messages if isinstance(message, TaskOutcome)]


class DecisionFiles:
    """The decisions in the checkpoint location. The newest is kept.

    Args:
        folder: of the sink.
    """

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder

    def read(self, query: str | None) -> Decision | None:
        """Return the newest decision.

        Args:
            query: None for any. A decision of another query is ignored: the checkpoint was begun anew in its folder.

        Raises:
            RuntimeError: its file is damaged.
        """
        name = newest(self._folder.names())
        if name is None:
            return None
        try:
            found = Decision.of_json(self._folder.read(name))
        except (ValueError, TypeError, KeyError) as error:
            raise RuntimeError(
                f"{self._folder}/{name} is damaged ({error}): it is not known which transactions were to be committed. "
                "To do: restore the checkpoint location from a copy, or compare topic and query by hand"
            ) from error
        return found if query in (None, found.query) else None

    def write(self, decision: Decision) -> None:
        """Store a decision; it is on disk when this returns."""
        with self._folder.writing(file_name(decision)) as file:
            file.write(decision.to_json())

    def clean(self, decision: Decision) -> None:
        """Delete the older ones. A newer one is that of another driver, which has gone on."""
        for name in older(self._folder.names(), file_name(decision)):
            self._folder.delete(name)


class TransactionalTask:
    """Writes the rows of one task.

    Args:
        options: the sink's.
        remote: the brokers.
        decisions: of the query.
        identity: of the task.
    """

    def __init__(self, options: WriteOptions, remote: Remote, decisions: DecisionFiles, identity: TaskIdentity) -> None:
        self._options = options
        self._remote = remote
        self._decisions = decisions
        self._identity = identity
        self._digest = RowDigest()

    def write(self, rows: Iterator[Any]) -> TaskOutcome:
        """Write Arrow record batches, unless the micro-batch is decided and this task has nothing left to write."""
        first = self._next(rows)
        if first is None:
            return self._outcome()
        if self._is_kept():
            return self._discard(first, rows)
        query, batch, task = self._identity
        name = f"{self._options.transactional_id_prefix}-{query}-{task}"
        producer = self._remote.new_producer(name)
        # From here on, all earlier transactions with this name are over.
        producer.start()
        try:
            committed = self._remote.run(self._remote.committed_in(name, stable=False))
            if committed is not None and committed.offset >= batch:
                # A later micro-batch says nothing about the rows of this one.
                return self._discard(first, rows, committed.metadata if committed.offset == batch else None)
            return self._outcome(self._send(producer, name, first, rows))
        finally:
            # A transaction that is not prepared is aborted.
            producer.stop(timeout_ms=_STOP_MS)

    def _is_kept(self) -> bool:
        """Whether the transaction of an earlier attempt is to be committed, or is committed."""
        query, batch, task = self._identity
        decision = self._decisions.read(query)
        if decision is None or decision.batch < batch:
            return False
        decided = decision.tasks.get(task)
        if decision.batch > batch or decided is None:
            return True
        return bool(self._remote.run(self._remote.open_transactions([decided.prepared])))

    def _outcome(self, prepared: PreparedTransaction | None = None, committed: str | None = None) -> TaskOutcome:
        return TaskOutcome(self._identity.query, self._identity.task, str(self._digest), prepared, committed)

    def _next(self, rows: Iterator[Any]) -> list[SinkRecord] | None:
        """Return the records of the next record batch that has any, and add them to the digest."""
        for batch in rows:
            records = list(to_records(batch, self._options.topic))
            for record in records:
                self._digest.add(record)
            if records:
                return records
        return None

    def _discard(
        self, records: list[SinkRecord] | None, rows: Iterator[Any], committed: str | None = None
    ) -> TaskOutcome:
        while records is not None:
            records = self._next(rows)
        return self._outcome(committed=committed)

    def _send(
        self, producer: Producer[Buffer, Buffer], name: str, first: list[SinkRecord], rows: Iterator[Any]
    ) -> PreparedTransaction:
        """Send all records, one record batch while the next one is read; then the micro-batch's id."""
        producer.begin_transaction()
        sending = send(producer, first)
        while (records := self._next(rows)) is not None:
            acknowledged(sending)
            sending = send(producer, records)
        acknowledged(sending)
        # Partition 0 exists in each topic; the group has no other use.
        place = TopicPartition(first[0].topic, 0)
        mark = OffsetAndMetadata(self._identity.batch, str(self._digest))
        producer.send_offsets_to_transaction({place: mark}, name)
        return producer.prepare_transaction()


class TransactionalDriver:
    """Decides about micro-batches, and ends their transactions.

    Args:
        remote: the brokers.
        decisions: of the query.
    """

    def __init__(self, remote: Remote, decisions: DecisionFiles) -> None:
        self._remote = remote
        self._decisions = decisions

    def commit(self, outcomes: Sequence[TaskOutcome], batch: int) -> None:
        """Commit a micro-batch, or the part of it that is not committed yet.

        Args:
            outcomes: of its tasks in this attempt.
            batch: the id of the micro-batch.

        Raises:
            KafkaError: the brokers cannot be reached, or refused; a second call continues.
            RuntimeError: a transaction was aborted before it could be committed; the message says what to do.
        """
        decision = self._decisions.read(outcomes[0].query if outcomes else None)
        if decision is not None and decision.batch > batch:
            return
        try:
            decision = self._decided(decision, outcomes, batch)
        except DifferentRowsError as error:
            raise RuntimeError(
                f"{error}. To do: compare topic and query by hand, and start with another checkpoint location; for a "
                "query whose rows differ from run to run use exactlyOnce=true, and raise kafka.transaction.timeout.ms"
            ) from error
        if decision is not None:
            self._remote.run(self._complete(decision))
            self._decisions.clean(decision)

    def _decided(self, known: Decision | None, outcomes: Sequence[TaskOutcome], batch: int) -> Decision | None:
        """Return the decision about a micro-batch, stored before; None if no task has written anything."""
        if known is None or known.batch < batch:
            decision, before = Decision.first(outcomes, batch), set()
        else:
            _log.warning("a micro-batch was decided before: completing it", batch=batch)
            decision, before = known.continued(outcomes), set(known.tasks.values())
        if decision is not None and decision is not known:
            self._check_open(decision, {one.prepared for one in set(decision.tasks.values()) - before})
            self._decisions.write(decision)
        return decision

    def abort(self, outcomes: Sequence[TaskOutcome], batch: int) -> None:
        """Abort the transactions of a micro-batch that are not decided; those that remain time out."""
        decision = self._decisions.read(outcomes[0].query if outcomes else None)
        kept = set() if decision is None else {one.prepared for one in decision.tasks.values()}
        dropped = {one.prepared for one in outcomes if one.prepared is not None} - kept
        for prepared, error in self._remote.run(self._remote.end_transactions(dropped, committed=False)).items():
            _log.warning("a transaction could not be aborted", name=prepared.transactional_id, reason=str(error))

    def _check_open(self, decision: Decision, prepared: set[PreparedTransaction]) -> None:
        lost = prepared - self._remote.run(self._remote.open_transactions(prepared))
        for one in sorted(lost):
            raise RuntimeError(
                f"micro-batch {decision.batch}: the transaction of {one.transactional_id!r} was aborted before it was "
                "decided, by its timeout or by a second attempt of its task. To do: restart the query; raise "
                f"kafka.transaction.timeout.ms ({self._remote.settings.transaction_timeout_ms} ms) if micro-batches "
                "take that long, and switch off spark.speculation"
            )

    async def _complete(self, decision: Decision) -> None:
        refused = await self._remote.end_transactions((one.prepared for one in decision.tasks.values()), committed=True)
        for prepared, error in refused.items():
            committed = await self._remote.committed_in(prepared.transactional_id, stable=True)
            if committed is None or committed.offset < decision.batch:
                raise RuntimeError(
                    f"micro-batch {decision.batch} is decided, but the transaction of {prepared.transactional_id!r} "
                    f"was aborted before it could be committed ({error}). To do: restart the query, which writes it "
                    "again, and raise kafka.transaction.timeout.ms"
                ) from error
