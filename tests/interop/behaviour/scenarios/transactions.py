"""The transaction coordinator: producer ids and epochs, partitions and groups, the end of a transaction, its states.

Every version, its error paths first. What the log and its readers make of transactions is in `transactional_records`.
"""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import add_group, end_transaction, init_transactions, make_topic, when
from tests.interop.behaviour.language import Ask, Family, Scenario, Step, ask, flat

A, G, E = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN
D, L, F = ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.FIND_COORDINATOR
INITS, ADDS, BY_BROKERS, GROUPS, ENDS = range(6), range(4), (4, 5), range(5), range(6)
#: The versions of EndTxn of the first version of transactions, and of the second (KIP-890).
CLASSIC, SECOND = 4, 5
#: One more than transaction.max.timeout.ms.
TOO_LONG: Final = 900_001


def _init(version: int = 4, *, pid: Any = -1, epoch: Any = -1, timeout: int = 60_000, **options: Any) -> Step:
    """InitProducerId, compared."""
    content = {"transactional_id": "$group", "transaction_timeout_ms": timeout}
    return ask(
        ApiKey.INIT_PRODUCER_ID,
        version,
        **{**content, **when(version >= 3, producer_id=pid, producer_epoch=epoch), **options},
    )


def _add(version: int = 3, *partitions: int, topic: str = "$topic", verify: bool = False, **options: Any) -> Step:
    """AddPartitionsToTxn of one topic."""
    topics = [{"name": topic, "partitions": list(partitions or (0,))}]
    who = {
        "transactional_id": options.pop("transactional_id", "$group"),
        "producer_id": options.pop("pid", "$pid"),
        "producer_epoch": options.pop("epoch", "$epoch"),
        "topics": options.pop("topics", topics),
    }
    if version >= 4:
        return ask(A, version, transactions=[{**who, "verify_only": verify}], **options)
    return ask(A, version, **{f"v3_and_below_{key}": value for key, value in who.items()}, **options)


def _begun(version: int = 3) -> Step:
    """A transaction with partition 0."""
    path = "results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code"
    return _add(version, until={path: 0}, quiet=True)


def _describe(*transactional_ids: str, **options: Any) -> Ask:
    return ask(D, 0, transactional_ids=list(transactional_ids or ("$group",)), **options)


def _until(state: str) -> Step:
    return _describe(until={"transaction_states.0.transaction_state": state}, quiet=True)


def _listed(version: int, **content: Any) -> Step:
    return ask(L, version, only={"transaction_states.transactional_id": "$group"}, **content)


def _ended(committed: bool = True, version: int = CLASSIC) -> list[Step]:
    """A transaction, ended, with its markers written."""
    return [_begun(), end_transaction(committed, version), _until("CompleteCommit" if committed else "CompleteAbort")]


def _again(version: int = 4) -> Step:
    """Another producer of the same transactional id, whose epoch is saved as `epoch2`."""
    return _init(version, save={"pid2": "producer_id", "epoch2": "producer_epoch"}, until={"error_code": 0})


def _scenario(title: str, *steps: Any) -> Scenario:
    return Scenario(title, flat(make_topic(partitions=3), init_transactions(), *steps))


def _end(version: int, committed: bool = True, **options: Any) -> Step:
    return end_transaction(committed, version, quiet=False, **options)


def _inits() -> tuple[Scenario, ...]:
    def each(title: str, *steps: Any, version: int) -> Scenario:
        return _scenario(f"InitProducerId v{version}: {title}", *steps)

    return (
        *(each("of a transactional id, then again", _init(v), _init(v), version=v) for v in INITS),
        *(each("an empty id, of a transactional producer", _init(v, transactional_id=""), version=v) for v in INITS),
        *(
            each(f"a timeout of {timeout} ms", _init(v, timeout=timeout), version=v)
            for timeout in (TOO_LONG, 0, -1)
            for v in INITS
        ),
        *(each("aborts an open transaction", _begun(), _init(v), _again(), _describe(), version=v) for v in INITS),
        *(each("its own id and epoch", _init(v, pid="$pid", epoch="$epoch"), version=v) for v in (3, 4, 5)),
        *(
            each(
                "its own id and epoch twice, as after a lost answer",
                _init(v, pid="$pid", epoch="$epoch"),
                _init(v, pid="$pid", epoch="$epoch"),
                version=v,
            )
            for v in (3, 4, 5)
        ),
        *(
            each("an old epoch after a new producer", _again(), _init(v, pid="$pid", epoch="$epoch"), version=v)
            for v in (3, 4, 5)
        ),
        *(each("an epoch of the future", _init(v, pid="$pid", epoch=9), version=v) for v in (3, 4, 5)),
        *(each("another producer id", _init(v, pid=987_654_321, epoch=0), version=v) for v in (3, 4, 5)),
        *(each("its id without an epoch", _init(v, pid="$pid"), version=v) for v in (3, 4, 5)),
        *(each("its epoch without an id", _init(v, epoch=0), version=v) for v in (3, 4, 5)),
        *(
            each(
                "an unknown transactional id, with an id and an epoch",
                _init(v, pid="$pid", epoch="$epoch", transactional_id="$group-b"),
                version=v,
            )
            for v in (3, 4, 5)
        ),
        *(
            each(
                "its own id and epoch, with an open transaction",
                _begun(),
                _init(v, pid="$pid", epoch="$epoch"),
                _until("CompleteAbort"),
                _init(v, pid="$pid", epoch="$epoch"),
                version=v,
            )
            for v in (3, 4, 5)
        ),
        *(
            each(f"after a transaction of version {second + 1}", _ended(True, CLASSIC + second), _init(v), version=v)
            for v in (0, 4, 5)
            for second in (0, 1)
        ),
    )


def _additions() -> tuple[Scenario, ...]:
    def each(title: str, *steps: Any, version: int) -> Scenario:
        return _scenario(f"AddPartitionsToTxn v{version}: {title}", *steps)

    every = (*ADDS, *BY_BROKERS)
    return (
        *(each("some partitions, some again", _add(v, 0, 1), _add(v, 1, 2), _describe(), version=v) for v in every),
        *(each("an old epoch", _again(), _add(v), version=v) for v in every),
        *(each("an epoch of the future", _add(v, epoch=9), version=v) for v in every),
        *(each("another producer id", _add(v, pid=987_654_321), version=v) for v in every),
        *(each("an unknown transactional id", _add(v, transactional_id="$group-b"), version=v) for v in every),
        *(each("an empty transactional id", _add(v, transactional_id=""), version=v) for v in every),
        *(each("an unknown topic", _add(v, topic="unknown"), _describe(), version=v) for v in every),
        *(each("a known partition and an unknown one", _add(v, 0, 9), _describe(), version=v) for v in every),
        *(each("a negative partition", _add(v, -1), version=v) for v in (0, 3, 4, 5)),
        *(each("no partitions", _add(v, topics=[]), _describe(), version=v) for v in every),
        *(each("the offsets topic", _add(v, topic="__consumer_offsets"), version=v) for v in every),
        *(each("the transactions topic", _add(v, topic="__transaction_state"), version=v) for v in every),
        *(
            each("after the end, version 2, with the old epoch", _ended(True, SECOND), _add(v), version=v)
            for v in every
        ),
        *(
            each("after the end, version 1, begins the next", _ended(), _add(v, 1), _describe(), version=v)
            for v in ADDS
        ),
        *(
            each("only verified, some are missing", _begun(), _add(v, 0, 1, verify=True), _describe(), version=v)
            for v in BY_BROKERS
        ),
        *(each("only verified, nothing is open", _add(v, 0, verify=True), version=v) for v in BY_BROKERS),
        *(
            each("only verified, an old epoch", _begun(), _again(), _add(v, 0, verify=True), version=v)
            for v in BY_BROKERS
        ),
        *(
            each("only verified, an unknown topic", _add(v, topic="unknown", verify=True), version=v)
            for v in BY_BROKERS
        ),
        *(
            each("only verified, an unknown id", _add(v, transactional_id="$group-b", verify=True), version=v)
            for v in BY_BROKERS
        ),
    )


def _offsets() -> tuple[Scenario, ...]:
    def each(title: str, *steps: Any, version: int) -> Scenario:
        return _scenario(f"AddOffsetsToTxn v{version}: {title}", *steps)

    def add(version: int, **options: Any) -> Step:
        return add_group(version, until=False, **options)

    return (
        *(each("a group, twice", add(v), add(v), _describe(), version=v) for v in GROUPS),
        *(each("an empty group id", add(v, group=""), version=v) for v in GROUPS),
        *(each("an old epoch", _again(), add(v), version=v) for v in GROUPS),
        *(each("an epoch of the future", add(v, producer_epoch=9), version=v) for v in GROUPS),
        *(each("another producer id", add(v, producer_id=987_654_321), version=v) for v in GROUPS),
        *(each("an unknown transactional id", add(v, transactional_id="$group-b"), version=v) for v in GROUPS),
        *(each("an empty transactional id", add(v, transactional_id=""), version=v) for v in GROUPS),
        *(
            each("after the end, version 2, with the old epoch", _ended(True, SECOND), add(v), version=v)
            for v in GROUPS
        ),
    )


def _ends() -> tuple[Scenario, ...]:
    def each(title: str, *steps: Any, version: int) -> Scenario:
        return _scenario(f"EndTxn v{version}: {title}", *steps)

    scenarios: list[Scenario] = []
    for v in ENDS:
        for committed in (True, False):
            what, done = ("commit", "CompleteCommit") if committed else ("abort", "CompleteAbort")
            other = "abort" if committed else "commit"
            # In version 2, to abort nothing is a transaction, too.
            waited = [_until(done)] if v == SECOND and not committed else []
            scenarios += (
                each(f"{what} nothing", _end(v, committed), *waited, _describe(), version=v),
                each(f"{what}", _begun(), _end(v, committed), _until(done), _describe(), version=v),
                each(f"{what} twice", _begun(), _end(v, committed), _until(done), _end(v, committed), version=v),
                each(
                    f"{what}, then {other}",
                    _begun(),
                    _end(v, committed),
                    _until(done),
                    _end(v, not committed),
                    version=v,
                ),
                each(f"{what}, an old epoch", _begun(), _again(), _end(v, committed), version=v),
                each(f"{what}, an epoch of the future", _begun(), _end(v, committed, producer_epoch=9), version=v),
                each(f"{what}, another producer id", _begun(), _end(v, committed, producer_id=987_654_321), version=v),
                each(
                    f"{what}, an unknown transactional id", _end(v, committed, transactional_id="$group-b"), version=v
                ),
                each(f"{what}, an empty transactional id", _end(v, committed, transactional_id=""), version=v),
                each(f"{what} after a new producer aborted nothing", _again(), _end(v, committed), version=v),
                each(
                    f"{what} late, in the next transaction",
                    _ended(True, v),
                    _begun() if v < SECOND else _next(),
                    _end(v, committed),
                    *([_until(done)] if v < SECOND else []),
                    _describe(),
                    version=v,
                ),
            )
    return tuple(scenarios)


def _next() -> Step:
    """Begin the transaction after one of version 2, whose epoch is one more."""
    path = "results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code"
    return _add(3, epoch=1, until={path: 0}, quiet=True)


def _tools() -> tuple[Scenario, ...]:
    states = ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
    return (
        _scenario("DescribeTransactions v0: empty", _describe()),
        _scenario("DescribeTransactions v0: ongoing", _begun(), _describe()),
        _scenario("DescribeTransactions v0: with a group", _begun(), add_group(), _describe()),
        _scenario("DescribeTransactions v0: an unknown transactional id", _describe("$group-b")),
        _scenario("DescribeTransactions v0: an empty transactional id", _describe("")),
        _scenario("DescribeTransactions v0: two, one of them unknown", _describe("$group", "$group-b")),
        _scenario("DescribeTransactions v0: the same twice", _describe("$group", "$group")),
        _scenario("DescribeTransactions v0: none", ask(D, 0)),
        *(_scenario(f"ListTransactions v{v}: empty", _listed(v)) for v in range(3)),
        *(_scenario(f"ListTransactions v{v}: ongoing", _begun(), _listed(v)) for v in range(3)),
        *(
            _scenario(f"ListTransactions v2: of the state {state}", _begun(), _listed(2, state_filters=[state]))
            for state in states
        ),
        *(
            _scenario(f"ListTransactions v{v}: of a state that is none", _listed(v, state_filters=["Lost", "Empty"]))
            for v in range(3)
        ),
        *(
            _scenario(f"ListTransactions v{v}: of its producer", _listed(v, producer_id_filters=["$pid"]))
            for v in range(3)
        ),
        _scenario("ListTransactions v2: of another producer", _listed(2, producer_id_filters=[987_654_321])),
        *(
            _scenario(f"ListTransactions v{v}: longer than {least} ms", _begun(), _listed(v, duration_filter=least))
            for v in (1, 2)
            for least in (-1, -5, 3_600_000)
        ),
        *(
            _scenario(f"ListTransactions v2: the pattern {pattern!r}", _listed(2, transactional_id_pattern=pattern))
            for pattern in ("$group", "group-.*", "group", "GROUP-.*", "", "(", "[a-z]+-[0-9a-f]{12}", "group-.*|other")
        ),
        *(
            _scenario(
                f"FindCoordinator v{v} of a transactional id",
                ask(
                    F, v, key_type=1, **({"coordinator_keys": ["$group", "$group-b"]} if v >= 4 else {"key": "$group"})
                ),
            )
            for v in range(1, 7)
        ),
        *(
            _scenario(
                f"FindCoordinator v{v} of an empty transactional id",
                ask(F, v, key_type=1, **({"coordinator_keys": [""]} if v >= 4 else {"key": ""})),
            )
            for v in (1, 3, 4, 6)
        ),
    )


SCENARIOS: Final = (*_inits(), *_additions(), *_offsets(), *_ends(), *_tools())

FAMILY: Final = Family("Transactions", SCENARIOS)
