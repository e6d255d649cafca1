"""Offsets committed in transactions: TxnOffsetCommit, and OffsetFetch of stable offsets."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import add_group, alone, commit, end_transaction, init_transactions, make_topic
from tests.interop.behaviour.language import Family, Scenario, Step, ask, flat

T, F = ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_FETCH
VERSIONS: Final = range(7)


def _txn(
    version: int = 3,
    *,
    offset: int = 6,
    partition: int = 0,
    topic: str = "$topic",
    group: str = "$group",
    name: str = "$group",
    producer: Any = "$pid",
    epoch: Any = "$epoch",
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "why",
    **options: Any,
) -> Step:
    """TxnOffsetCommit of one partition."""
    who: dict[str, Any] = {}
    if version >= 3:
        who = {"member_id": member, "generation_id_or_member_epoch": generation, "group_instance_id": instance}
    part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    return ask(
        T,
        version,
        transactional_id=name,
        group_id=group,
        producer_id=producer,
        producer_epoch=epoch,
        topics=[{**_named(version, topic), "partitions": [part]}],
        **options,
        **who,
    )


def _named(version: int, topic: str) -> dict[str, Any]:
    """A topic by its name, from version 6 on by its id."""
    if version < 6:
        return {"name": topic}
    return {"topic_id": "$topic_id" if topic == "$topic" else topic if topic.startswith("$") else b"no topic has it!"}


def _fetch(version: int = 8, *partitions: int, stable: bool = True, topics: Any = (), **options: Any) -> Step:
    """OffsetFetch of the group, of stable offsets or of committed ones."""
    if topics == ():
        topics = [{"name": "$topic", "partition_indexes": list(partitions or (0,))}]
    if version >= 8:
        groups = [{"group_id": "$group", "topics": topics}]
        return ask(F, version, groups=groups, require_stable=stable, **options)
    return ask(F, version, group_id="$group", topics=topics, require_stable=stable, **options)


def _ended(offset: int) -> Step:
    """Wait for the marker."""
    path = "groups.0.topics.0.partitions.0"
    return _fetch(8, until={f"{path}.error_code": 0, f"{path}.committed_offset": offset})


def _scenario(title: str, *steps: Any) -> Scenario:
    return Scenario(title, flat(make_topic(partitions=2), init_transactions(), *steps))


SCENARIOS: Final = (
    *(
        _scenario(
            f"TxnOffsetCommit v{version}: committed",
            add_group(),
            _txn(version),
            _fetch(),
            end_transaction(True),
            _ended(6),
        )
        for version in range(5)
    ),
    *(
        _scenario(
            f"TxnOffsetCommit v{version}: aborted",
            commit(),
            add_group(),
            _txn(version),
            _fetch(),
            end_transaction(False),
            _ended(5),
        )
        for version in range(5)
    ),
    *(_scenario(f"TxnOffsetCommit v{version}: no transaction", _txn(version), _fetch()) for version in range(5)),
    *(
        _scenario(
            f"TxnOffsetCommit v{version}: committed, version 2 of transactions",
            _txn(version),
            _fetch(),
            end_transaction(True, version=5),
            _ended(6),
        )
        for version in (5, 6)
    ),
    _scenario(
        "TxnOffsetCommit v6: a topic that was deleted and created again",
        ask(ApiKey.DELETE_TOPICS, 6, timeout_ms=30_000, topics=[{"name": "$topic"}], quiet=True),
        ask(
            ApiKey.METADATA,
            12,
            topics=[{"name": "$topic"}],
            allow_auto_topic_creation=False,
            until={"topics.0.error_code": 3},
            quiet=True,
        ),
        make_topic(save="new_id"),
        _txn(6),
        _fetch(),
        _txn(6, topic="$new_id"),
        _fetch(stable=False),
    ),
    _scenario(
        "TxnOffsetCommit v6: a topic that exists, and one that does not",
        ask(
            T,
            6,
            transactional_id="$group",
            group_id="$group",
            producer_id="$pid",
            producer_epoch="$epoch",
            topics=[
                {
                    **_named(6, topic),
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                }
                for topic in ("$topic", "unknown")
            ],
        ),
    ),
    *(
        _scenario(f"TxnOffsetCommit v{version}: an unknown partition", add_group(), _txn(version, partition=7))
        for version in VERSIONS
    ),
    *(
        _scenario(f"TxnOffsetCommit v{version}: an unknown topic", add_group(), _txn(version, topic="unknown"))
        for version in VERSIONS
    ),
    *(
        _scenario(f"TxnOffsetCommit v{version}: an empty group id", add_group(), _txn(version, group=""))
        for version in VERSIONS
    ),
    *(
        _scenario(f"TxnOffsetCommit v{version}: another epoch", add_group(), _txn(version, epoch=9))
        for version in range(5)
    ),
    *(
        _scenario(
            f"TxnOffsetCommit v{version}: a transactional id and a producer that do not exist",
            add_group(),
            _txn(version, name="$group-other", producer=999, epoch=999),
            _fetch(),
        )
        for version in VERSIONS
    ),
    *(
        _scenario(
            f"TxnOffsetCommit v{version}: a transactional id that does not exist",
            add_group(),
            _txn(version, name="$group-other"),
            _fetch(),
        )
        for version in VERSIONS
    ),
    *(
        _scenario(
            f"TxnOffsetCommit v{version}: a producer id that does not exist",
            add_group(),
            _txn(version, producer=999),
            _fetch(),
        )
        for version in VERSIONS
    ),
    *(
        _scenario(f"TxnOffsetCommit v{version}: large metadata", add_group(), _txn(version, metadata="m" * 5000))
        for version in (0, 3, 4)
    ),
    _scenario("TxnOffsetCommit v3: a member", alone(), add_group(), _txn(member="$a_id", generation=1)),
    _scenario("TxnOffsetCommit v3: an unknown member", alone(), add_group(), _txn(member="other", generation=1)),
    _scenario("TxnOffsetCommit v3: an old generation", alone(), add_group(), _txn(member="$a_id", generation=0)),
    _scenario("TxnOffsetCommit v3: a member without a generation", alone(), add_group(), _txn(member="$a_id")),
    _scenario("TxnOffsetCommit v3: a generation without a member", alone(), add_group(), _txn(generation=1)),
    _scenario("TxnOffsetCommit v3: an unknown instance", alone(), add_group(), _txn(instance="i", generation=1)),
    _scenario("TxnOffsetCommit v3: no member, in a group with members", alone(), add_group(), _txn()),
    _scenario("TxnOffsetCommit v3: a generation of a group that does not exist", add_group(), _txn(generation=3)),
    _scenario(
        "A later commit outside of the transaction stays",
        add_group(),
        _txn(),
        commit(offset=9),
        end_transaction(True),
        _ended(9),
    ),
    *(
        _scenario(
            f"OffsetFetch v{version}: pending offsets",
            commit(),
            add_group(),
            _txn(),
            _txn(partition=1),
            _fetch(version, 0, 1),
            _fetch(version, 0, 1, stable=False),
            _fetch(version, topics=None),
        )
        for version in (7, 8, 9)
    ),
    _scenario(
        "OffsetDelete v0: a pending offset",
        add_group(),
        _txn(),
        ask(
            ApiKey.OFFSET_DELETE,
            0,
            group_id="$group",
            topics=[{"name": "$topic", "partitions": [{"partition_index": 0}]}],
        ),
        _fetch(),
        end_transaction(True),
        _fetch(),
    ),
    _scenario(
        "DeleteGroups v2: a group with a pending offset",
        add_group(),
        _txn(),
        ask(ApiKey.DELETE_GROUPS, 2, groups_names=["$group"]),
        _fetch(),
        end_transaction(True),
        _fetch(),
    ),
)

FAMILY: Final = Family("Offsets in transactions", SCENARIOS)
