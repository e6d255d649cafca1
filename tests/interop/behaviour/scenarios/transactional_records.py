"""Records of transactions: Produce with a transactional id, read_committed, markers, and the state of producers."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import end_transaction, fetch, init_transactions, make_topic, produce
from tests.interop.behaviour.language import Batch, Difference, Family, Scenario, Step, ask, flat

P, A, W = ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS
#: The versions of Produce that have a transactional id, and the first of them that adds its partitions (KIP-890).
PRODUCES, ADDS = range(3, 14), 12
LATEST, EARLIEST, LARGEST = -1, -2, -3


def _batch(*values: str, sequence: int = 0, epoch: int = 0, pid: Any = "$pid", transactional: bool = True) -> Batch:
    return Batch(values or ("a", "b"), producer_id=pid, epoch=epoch, sequence=sequence, transactional=transactional)


def _send(
    batch: Batch, version: int = 9, *, partition: int = 0, transactional_id: str | None = "$group", **options: Any
) -> Step:
    """Produce with a transactional id."""
    topic = {"name": "$topic"} if version < 13 else {"topic_id": "$topic_id"}
    data = [{**topic, "partition_data": [{"index": partition, "records": batch}]}]
    content = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 30_000, "topic_data": data}
    return ask(P, version, **{**content, **options})


def _begun(*partitions: int, epoch: Any = "$epoch", pid: Any = "$pid") -> Step:
    """AddPartitionsToTxn."""
    return ask(
        A,
        3,
        v3_and_below_transactional_id="$group",
        v3_and_below_producer_id=pid,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[{"name": "$topic", "partitions": list(partitions or (0,))}],
        until={"results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code": 0},
        quiet=True,
    )


def _ended(committed: bool, version: int = 3) -> list[Step]:
    """EndTxn, and the wait for all markers."""
    state = "CompleteCommit" if committed else "CompleteAbort"
    return [
        end_transaction(committed, version),
        ask(
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            transactional_ids=["$group"],
            until={"transaction_states.0.transaction_state": state},
            quiet=True,
        ),
    ]


def _again(**save: str) -> Step:
    """Another producer of the transactional id: the transaction of the first is aborted when this succeeds."""
    content: dict[str, Any] = {"transactional_id": "$group", "transaction_timeout_ms": 60_000}
    content |= {"producer_id": -1, "producer_epoch": -1}
    return ask(ApiKey.INIT_PRODUCER_ID, 4, **content, until={"error_code": 0}, save=save, quiet=True)


def _read(version: int = 12, offset: int = 0, *, committed: bool = True, **options: Any) -> Step:
    return fetch(offset, version=version, isolation_level=int(committed), **options)


def _list(timestamp: int, version: int = 7, *, committed: bool = True) -> Step:
    parts = [{"partition_index": 0, "timestamp": timestamp}]
    topics = [{"name": "$topic", "partitions": parts}]
    return ask(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics, isolation_level=int(committed))


def _producers(*partitions: int) -> Step:
    topics = [{"name": "$topic", "partition_indexes": list(partitions or (0,))}]
    return ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)


def _mark(
    version: int = 1,
    *partitions: int,
    committed: bool = True,
    pid: Any = "$pid",
    epoch: int = 0,
    topic: str = "$topic",
    **more: Any,
) -> Step:
    """WriteTxnMarkers of one transaction."""
    marker = {
        "producer_id": pid,
        "producer_epoch": epoch,
        "transaction_result": committed,
        "topics": [{"name": topic, "partition_indexes": list(partitions or (0,))}],
        "coordinator_epoch": 0,
        **more,
    }
    return ask(W, version, markers=[marker])


def _scenario(title: str, *steps: Any) -> Scenario:
    return Scenario(title, flat(make_topic(partitions=2), init_transactions(), *steps))


def _produces() -> tuple[Scenario, ...]:
    def each(title: str, *steps: Any, version: int) -> Scenario:
        return _scenario(f"Produce v{version}: {title}", *steps)

    def begun(version: int) -> list[Step]:
        return [] if version >= ADDS else [_begun()]

    return (
        *(each("in a transaction", *begun(v), _send(_batch(), v), _read(), version=v) for v in PRODUCES),
        *(each("nothing was added", _send(_batch(), v), _read(committed=False), version=v) for v in range(3, ADDS)),
        *(each("another partition was added", _begun(1), _send(_batch(), v), version=v) for v in range(3, ADDS)),
        *(
            each("after the end, with the epoch of version 1", _begun(), _ended(True), _send(_batch(), v), version=v)
            for v in PRODUCES
        ),
        *(
            each(
                f"sequences of the transaction before, {what}, {'committed' if committed else 'aborted'}",
                _begun(),
                _send(_batch(), 9),
                _ended(committed),
                _begun(),
                _send(_batch(*values, sequence=sequence), 9),
                _read(committed=False),
                _send(_batch("next", sequence=2), 9),
                _ended(True),
                _read(),
                version=9,
            )
            for committed in (False, True)
            for what, values, sequence in (("all", ("c", "d"), 0), ("some", ("c",), 1))
        ),
        *(
            each(
                "after the end, with the old epoch of version 2",
                *begun(v),
                _send(_batch(), v, quiet=True),
                _ended(True, 5),
                _send(_batch(sequence=2), v),
                _read(committed=False),
                version=v,
            )
            for v in PRODUCES
        ),
        *(
            each(
                "the next transaction of version 2",
                *begun(v),
                _send(_batch(), v),
                _ended(True, 5),
                *([] if v >= ADDS else [_begun(epoch=1)]),
                _send(_batch("c", epoch=1), v),
                _read(),
                version=v,
            )
            for v in (3, 9, 11, 12, 13)
        ),
        *(
            each(
                "an old epoch",
                *begun(v),
                _send(_batch(), v, quiet=True),
                _again(),
                _send(_batch(sequence=2), v),
                version=v,
            )
            for v in PRODUCES
        ),
        *(each("an epoch of the future", _begun(), _send(_batch(epoch=9), v), version=v) for v in PRODUCES),
        *(each("another producer id", _begun(), _send(_batch(pid=987_654_321), v), version=v) for v in PRODUCES),
        *(
            each("another transactional id", _begun(), _send(_batch(), v, transactional_id="$group-b"), version=v)
            for v in PRODUCES
        ),
        *(
            each("an empty transactional id", _begun(), _send(_batch(), v, transactional_id=""), version=v)
            for v in (9, 13)
        ),
        *(
            each("no transactional id", _begun(), _send(_batch(), v, transactional_id=None), version=v)
            for v in PRODUCES
        ),
        *(
            each("a batch that is not transactional", _begun(), _send(_batch(transactional=False), v), version=v)
            for v in (3, 9, 11, 12, 13)
        ),
        *(
            each(
                "a batch that is not transactional in an open transaction",
                _begun(),
                _send(_batch(), v, quiet=True),
                _send(_batch(sequence=2, transactional=False), v),
                version=v,
            )
            for v in (9, 13)
        ),
        *(
            each(
                "a batch that is not transactional after the end of a transaction",
                _begun(),
                _send(_batch(), v, quiet=True),
                _ended(True),
                _send(_batch(sequence=2, transactional=False), v, transactional_id=None),
                version=v,
            )
            for v in (9, 13)
        ),
        *(
            each("a gap in the sequence", _begun(), _send(_batch(), v), _send(_batch(sequence=5), v), version=v)
            for v in (9, 12, 13)
        ),
        *(
            each("a first batch in mid sequence", _begun(), _send(_batch(sequence=5), v), version=v)
            for v in (9, 12, 13)
        ),
        *(each("a batch again", _begun(), _send(_batch(), v), _send(_batch(), v), version=v) for v in (9, 12, 13)),
        *(each("an unknown partition", _begun(), _send(_batch(), v, partition=7), version=v) for v in (9, 12, 13)),
        *(each("acks=1", _begun(), _send(_batch(), v, acks=1), version=v) for v in (9, 12)),
        *(
            each(
                "two partitions, one was not added",
                _begun(),
                ask(
                    P,
                    v,
                    transactional_id="$group",
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=[
                        {
                            "name": "$topic",
                            "partition_data": [{"index": 0, "records": _batch()}, {"index": 1, "records": _batch()}],
                        }
                    ],
                ),
                version=v,
            )
            for v in (9, 11, 12)
        ),
        *(
            each(
                "two producers in one request",
                _begun(0, 1),
                ask(
                    P,
                    v,
                    transactional_id="$group",
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=[
                        {
                            "name": "$topic",
                            "partition_data": [
                                {"index": 0, "records": _batch()},
                                {"index": 1, "records": _batch(pid=987_654_321)},
                            ],
                        }
                    ],
                ),
                version=v,
            )
            for v in (9, 12)
        ),
    )


def _readers() -> tuple[Scenario, ...]:
    def open_and(*steps: Any) -> list[Step]:
        """Two plain records, a transaction of two, and one more plain record behind its first."""
        return list(flat(produce("x", "y"), _begun(), _send(_batch(), quiet=True), produce("z"), *steps))

    return (
        *(
            _scenario(f"Fetch v{v}: an open transaction", *open_and(_read(v), _read(v, committed=False)))
            for v in range(4, 19)
        ),
        *(_scenario(f"Fetch v{v}: an aborted transaction", *open_and(_ended(False), _read(v))) for v in range(4, 19)),
        *(
            _scenario(
                f"Fetch v{v}: a committed transaction", *open_and(_ended(True), _read(v), _read(v, committed=False))
            )
            for v in (4, 11, 12, 13, 18)
        ),
        _scenario("Fetch v12: at the last stable offset", *open_and(_read(12, 2))),
        _scenario("Fetch v12: between the last stable offset and the end", *open_and(_read(12, 3), _read(12, 5))),
        _scenario("Fetch v12: beyond the end", *open_and(_read(12, 9))),
        _scenario(
            "Fetch v12: behind an aborted transaction",
            *open_and(_ended(False), _read(12, 4), _read(12, 5), _read(12, 6)),
        ),
        _scenario(
            "Fetch v12: two aborted transactions and a committed one",
            *open_and(_ended(False)),
            _begun(),
            _send(_batch("c", sequence=2), quiet=True),
            _ended(True),
            _begun(),
            _send(_batch("d", sequence=3), quiet=True),
            _ended(False),
            _read(),
            _read(12, 6),
        ),
        _scenario(
            "Fetch v12: two transactions that overlap, both aborted",
            _begun(),
            _send(_batch(), quiet=True),
            _other(),
            _send(_batch("c", pid="$pid2"), transactional_id="$group-b", quiet=True),
            _other_ended(),
            _read(),
            _ended(False),
            _read(),
            _read(12, 2),
            _read(12, 3),
            _read(12, 4),
        ),
        _scenario(
            "Fetch v12: an ended transaction without records", _begun(), _ended(True), _read(), _read(committed=False)
        ),
        *(
            _scenario(
                f"ListOffsets v{v}: an open transaction",
                *open_and(*(_list(t, v, committed=c) for t in (LATEST, EARLIEST) for c in (True, False))),
            )
            for v in range(2, 12)
        ),
        *(
            _scenario(f"ListOffsets v{v}: the largest timestamp, an open transaction", *open_and(_list(LARGEST, v)))
            for v in (7, 8, 11)
        ),
        *(
            _scenario(
                f"ListOffsets v{v}: a time beyond the last stable offset",
                produce("x", start=1_000),
                _begun(),
                _send(_batch(), quiet=True),
                _list(2_000, v),
                _list(2_000, v, committed=False),
                _list(1_000, v),
            )
            for v in (2, 7, 11)
        ),
        *(
            _scenario(
                f"ListOffsets v{v}: after a{' commit' if committed else 'n abort'}",
                *open_and(_ended(committed), _list(LATEST, v)),
            )
            for v in (2, 7, 11)
            for committed in (True, False)
        ),
        _scenario(
            "DeleteRecords v2: in an open transaction",
            *open_and(
                ask(
                    ApiKey.DELETE_RECORDS,
                    2,
                    topics=[{"name": "$topic", "partitions": [{"partition_index": 0, "offset": 3}]}],
                    timeout_ms=10_000,
                ),
                _read(12, 3),
                _list(LATEST),
                _ended(False),
                _read(12, 3),
            ),
        ),
        _scenario("DescribeProducers v0: an open transaction", *open_and(_producers(0, 1))),
        _scenario("DescribeProducers v0: a committed transaction", *open_and(_ended(True), _producers())),
        _scenario("DescribeProducers v0: an aborted transaction", *open_and(_ended(False), _producers())),
        _scenario("DescribeProducers v0: a transaction of version 2", *open_and(_ended(True, 5), _producers())),
        _scenario("DescribeProducers v0: added, nothing written", _begun(), _producers()),
        _scenario("DescribeProducers v0: ended, nothing written", _begun(), _ended(True), _producers()),
    )


def _other() -> list[Step]:
    """The producer of another transactional id, in a transaction with partition 0."""
    content: dict[str, Any] = {
        "transactional_id": "$group-b",
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return [
        ask(ApiKey.INIT_PRODUCER_ID, 4, **content, until={"error_code": 0}, save={"pid2": "producer_id"}, quiet=True),
        ask(
            A,
            3,
            v3_and_below_transactional_id="$group-b",
            v3_and_below_producer_id="$pid2",
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[{"name": "$topic", "partitions": [0]}],
            until={"results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code": 0},
            quiet=True,
        ),
    ]


def _other_ended() -> list[Step]:
    return [
        end_transaction(False, transactional_id="$group-b", producer_id="$pid2", producer_epoch=0),
        ask(
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            transactional_ids=["$group-b"],
            until={"transaction_states.0.transaction_state": "CompleteAbort"},
            quiet=True,
        ),
    ]


def _markers() -> tuple[Scenario, ...]:
    def each(title: str, *steps: Any, version: int) -> Scenario:
        return _scenario(f"WriteTxnMarkers v{version}: {title}", *steps)

    scenarios: list[Scenario] = []
    for v in (1, 2):
        opened = [_begun(), _send(_batch(), quiet=True)]
        scenarios += (
            *(
                each(
                    f"{'commit' if committed else 'abort'} an open transaction",
                    opened,
                    _mark(v, committed=committed),
                    _read(),
                    _producers(),
                    version=v,
                )
                for committed in (True, False)
            ),
            each("the same twice", opened, _mark(v), _mark(v), _read(), version=v),
            each("an old epoch", opened, _again(), _mark(v), _read(), version=v),
            each("a newer epoch", opened, _mark(v, epoch=5), _read(), _producers(), version=v),
            each("a negative epoch", opened, _mark(v, epoch=-1), _read(), version=v),
            each("an unknown producer id", _mark(v, pid=987_654_321), _read(committed=False), version=v),
            each("nothing was written", _begun(), _mark(v), _read(committed=False), _producers(), version=v),
            each("an unknown partition", opened, _mark(v, 0, 9), _read(), version=v),
            each("an unknown topic", _mark(v, topic="unknown"), version=v),
            each(
                "an older coordinator", opened, _mark(v, coordinator_epoch=5), _mark(v, coordinator_epoch=4), version=v
            ),
            each("no partitions", opened, ask(W, v, markers=[]), _read(), version=v),
        )
    return (
        *scenarios,
        *(
            _scenario(
                f"WriteTxnMarkers v2: of version {transactions} of transactions, epoch {epoch}",
                _begun(),
                _send(_batch(), quiet=True),
                _mark(2, epoch=epoch, transaction_version=transactions),
                _read(),
            )
            for transactions in (0, 1, 2)
            for epoch in (0, 1, 2)
        ),
    )


SCENARIOS: Final = (*_produces(), *_readers(), *_markers())

#: Commits with a newer epoch than that of a transaction, and the fields that then differ in a Fetch.
_NEWER: Final = (
    "WriteTxnMarkers v[12]: a newer epoch",
    "WriteTxnMarkers v2: of version [01] of transactions, epoch [12]",
    "WriteTxnMarkers v2: of version 2 of transactions, epoch 2",
)
_READ: Final = ("high_watermark", "last_stable_offset", "records")

DIFFERENCES: Final = (
    Difference(
        "Records with the sequence numbers of an ended transaction are UNKNOWN_PRODUCER_ID",
        "Kafka acknowledges them as duplicates, and loses them. librdkafka sends such records after it has aborted "
        "records whose answer was lost; with this error it aborts the transaction, and goes on with a new epoch.",
        (("Produce v9: sequences of the transaction before, *", "11 PRODUCE*"),),
    ),
    Difference(
        "A producer that was in a transaction of a partition writes nothing else there: INVALID_TXN_STATE",
        "A transactional producer never does. Kafka refuses it only while a transaction is open: another client can "
        "take the sequence numbers of the next transaction, which is then refused.",
        (("Produce v*: a batch that is not transactional after the end of a transaction", "10 PRODUCE*"),),
    ),
    Difference(
        "Fetch lists aborted transactions in the order of their first offsets",
        "Kafka lists them in the order in which they ended. Consumers sort them.",
        (("Fetch v12: two transactions that overlap, both aborted", "*.aborted_transactions"),),
    ),
    Difference(
        "OFFSET_OUT_OF_RANGE comes with the log start offset",
        "A consumer that has fallen behind need not request it.",
        (("Fetch v12: beyond the end", "*.log_start_offset"),),
    ),
    Difference(
        "The last stable offset is never below the log start offset",
        "In Kafka it is, after DeleteRecords has deleted the beginning of an open transaction. Nothing can be read "
        "there.",
        (
            ("DeleteRecords v2: in an open transaction", "*.last_stable_offset"),
            ("DeleteRecords v2: in an open transaction", "*LIST_OFFSETS*.offset"),
        ),
    ),
    Difference(
        "A marker with a negative epoch is INVALID_PRODUCER_EPOCH",
        "Kafka answers UNKNOWN_SERVER_ERROR. Neither writes it.",
        (("WriteTxnMarkers v[12]: a negative epoch", "*.error_code"),),
    ),
    Difference(
        "A commit does not end a transaction of an older epoch",
        "It is that of another transaction: the coordinator has lost the one that is open. Kafka commits both. An "
        "abort ends it.",
        tuple(
            (scenario, f"{path}*")
            for scenario in _NEWER
            for path in (
                "8 WRITE_TXN_MARKERS",
                *(f"9 FETCH v12.responses.<topic>.partitions.0.{field}" for field in _READ),
            )
        )
        + tuple((scenario, "10 DESCRIBE_PRODUCERS*") for scenario in _NEWER[:1]),
    ),
)

FAMILY: Final = Family("Records in transactions", SCENARIOS, DIFFERENCES)
