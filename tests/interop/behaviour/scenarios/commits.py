"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import alone, commit, heartbeat, join, leave, make_topic, pair, settled, sync
from tests.interop.behaviour.language import Difference, Family, Scenario, Step, Subscription, ask, flat

C, F, X = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE


def _fetch(version: int = 7, *partitions: int, topics: Any = (), group: str = "$group", **options: Any) -> Step:
    """OffsetFetch of one group, in any version. `topics` None requests all topics."""
    if topics == ():
        topics = [{"name": "$topic", "partition_indexes": list(partitions or (0,))}]
    if version >= 8:
        return ask(F, version, groups=[{"group_id": group, "topics": topics}], **options)
    return ask(F, version, group_id=group, topics=topics, **options)


def _delete(*partitions: int, topic: str = "$topic", group: str = "$group") -> Step:
    parts = [{"partition_index": n} for n in partitions]
    return ask(X, 0, group_id=group, topics=[{"name": topic, "partitions": parts}])


def _commits(title: str, *steps: Any) -> Scenario:
    return Scenario(title, flat(make_topic(partitions=2), *steps))


def _subscribed(*topics: str) -> list[Step]:
    """A stable group of type "consumer" whose only member has a decodable subscription."""
    return [
        join(metadata=Subscription(topics), quiet=True),
        sync("$a_id", shares={"$a_id": b""}, quiet=True),
    ]


SCENARIOS: Final = (
    *(
        _commits(f"OffsetCommit v{version}: in a group", alone(), commit("$a_id", 1, version=version), _fetch(7))
        for version in range(2, 10)
    ),
    *(
        _commits(f"OffsetFetch v{version}: what is committed and what is not", commit(), _fetch(version, 0, 1))
        for version in range(1, 10)
    ),
    *(
        _commits(f"OffsetFetch v{version}: all partitions", commit(), commit(partition=1), _fetch(version, topics=None))
        for version in (2, 5, 7, 8, 9)
    ),
    *(_commits(f"OffsetFetch v{version}: an unknown partition", commit(), _fetch(version, 9)) for version in (1, 7, 9)),
    *(_commits(f"OffsetFetch v{version}: no topics", commit(), _fetch(version, topics=[])) for version in (1, 7, 9)),
    *(Scenario(f"OffsetFetch v{version}: an empty group id", (_fetch(version, group=""),)) for version in (1, 7, 9)),
    *(
        _commits(f"OffsetFetch v{version}: stable offsets", commit(), _fetch(version, require_stable=True))
        for version in (7, 9)
    ),
    _commits(
        "OffsetFetch v8: several groups",
        commit(),
        commit(group="$group-b", offset=9),
        ask(
            F,
            8,
            groups=[
                {"group_id": group, "topics": [{"name": "$topic", "partition_indexes": [0]}]}
                for group in ("$group", "$group-b", "$group-c")
            ],
        ),
    ),
    Scenario("OffsetFetch v8: no groups", (ask(F, 8, groups=[]),)),
    *(
        _commits(
            f"OffsetFetch v9: member {member!r} with epoch {epoch} of a classic group",
            alone(),
            commit("$a_id", 1),
            ask(
                F,
                9,
                groups=[
                    {
                        "group_id": "$group",
                        "member_id": member,
                        "member_epoch": epoch,
                        "topics": [{"name": "$topic", "partition_indexes": [0]}],
                    }
                ],
            ),
        )
        for member, epoch in (("$a_id", 1), ("nobody", 1), ("$a_id", 7))
    ),
    *(
        _commits(f"OffsetCommit v{version}: an unknown topic", commit(topic="$topic-b", version=version))
        for version in (2, 6, 9)
    ),
    _commits("OffsetCommit v7: an unknown topic and an unknown member", alone(), commit("nobody", 1, topic="$topic-b")),
    *(
        _commits(f"OffsetCommit v{version}: an unknown partition", commit(partition=7, version=version))
        for version in (2, 9)
    ),
    _commits("OffsetCommit v7: a negative partition", commit(partition=-1)),
    _commits("OffsetCommit v7: an illegal topic", commit(topic="a/b")),
    *(
        _commits(f"OffsetCommit v{version}: too much metadata", commit(metadata="x" * 4097, version=version))
        for version in (2, 9)
    ),
    _commits("OffsetCommit v7: as much metadata as is allowed", commit(metadata="x" * 4096)),
    _commits("OffsetCommit v7: null metadata", commit(metadata=None), _fetch()),
    _commits("OffsetCommit v7: a negative offset", commit(offset=-5), _fetch()),
    _commits("OffsetCommit v7: offset -1", commit(), commit(offset=-1), _fetch()),
    _commits("OffsetCommit v7: an older offset than before", commit(offset=9), commit(offset=3), _fetch()),
    _commits("OffsetCommit v7: an empty group id", commit(group="")),
    _commits("OffsetCommit v7: generation -2", commit("x", -2)),
    _commits("OffsetCommit v9: a member without a generation", alone(), commit("$a_id", -1, version=9)),
    _commits("OffsetCommit v7: nothing", ask(C, 7, group_id="$group", topics=[])),
    _commits("OffsetCommit v7: it extends a member's session", alone(), commit("$a_id", 1), heartbeat("$a_id")),
    *(
        _commits(
            f"OffsetCommit v{version}: a leader epoch",
            ask(
                C,
                version,
                group_id="$group",
                topics=[
                    {
                        "name": "$topic",
                        "partitions": [
                            {
                                "partition_index": 0,
                                "committed_offset": 4,
                                "committed_leader_epoch": 3,
                                "committed_metadata": "",
                            }
                        ],
                    }
                ],
            ),
            _fetch(5),
        )
        for version in (6, 9)
    ),
    _commits(
        "OffsetCommit v7: one valid, one too long, one unknown",
        ask(
            C,
            7,
            group_id="$group",
            topics=[
                {
                    "name": "$topic",
                    "partitions": [
                        {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""},
                        {"partition_index": 1, "committed_offset": 1, "committed_metadata": "x" * 5000},
                        {"partition_index": 6, "committed_offset": 1, "committed_metadata": ""},
                    ],
                }
            ],
        ),
        _fetch(7, 0, 1),
    ),
    _commits(
        "Offsets are deleted with their topic",
        commit(),
        ask(ApiKey.DELETE_TOPICS, 5, topic_names=["$topic"], timeout_ms=10_000, quiet=True),
        _fetch(7, topics=None, until={"topics.length": 0}),
    ),
    _commits("OffsetDelete v0: a simple group", commit(), commit(partition=1), _delete(0), _fetch(7, 0, 1)),
    _commits("OffsetDelete v0: what is not committed", commit(), _delete(1)),
    _commits("OffsetDelete v0: an unknown partition", commit(), _delete(8)),
    _commits("OffsetDelete v0: an unknown topic", commit(), _delete(0, topic="$topic-b")),
    _commits("OffsetDelete v0: an unknown group", _delete(0)),
    Scenario(
        "OffsetDelete v0: an empty group id",
        flat(make_topic(), commit(group="", quiet=True), _delete(0, group="")),
    ),
    _commits("OffsetDelete v0: nothing", commit(), ask(X, 0, group_id="$group", topics=[])),
    _commits(
        "OffsetDelete v0: the group subscribes to it", _subscribed("$topic"), commit("$a_id", 1), _delete(0), _fetch()
    ),
    _commits(
        "OffsetDelete v0: the group subscribes to something else",
        _subscribed("other"),
        commit("$a_id", 1),
        _delete(0),
        _fetch(),
    ),
    _commits(
        "OffsetDelete v0: a group of another type with members",
        join(kind="connect", quiet=True),
        sync("$a_id", quiet=True),
        commit("$a_id", 1),
        _delete(0),
        _fetch(),
    ),
    _commits(
        "OffsetDelete v0: an empty group",
        _subscribed("$topic"),
        commit("$a_id", 1),
        leave(("$a_id", None), quiet=True),
        _delete(0),
        _fetch(),
    ),
    _commits(
        "Offsets of a group outlive its members",
        pair(),
        settled(),
        commit("$a_id", 2),
        leave(("$a_id", None), ("$b_id", None), quiet=True),
        _fetch(),
    ),
)

DIFFERENCES: Final = (
    Difference(
        "A commit is checked for its member before its topics",
        "Kafka checks the topics first. Both refuse the commit.",
        (("OffsetCommit v7: an unknown topic and an unknown member", "*.error_code"),),
    ),
)

FAMILY: Final = Family("Committed offsets", SCENARIOS, DIFFERENCES)
