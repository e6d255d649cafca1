"""Fetch, with and without a session."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import fetch, make_topic, produce
from tests.interop.behaviour.language import Difference, Family, Hear, Scenario, Step, ask, flat

F: Final = ApiKey.FETCH


def _filled(title: str, *steps: Step, **configs: Any) -> Scenario:
    """A scenario with three batches, six records."""
    return Scenario(
        f"Fetch: {title}",
        flat(make_topic(**configs), produce("a", "b"), produce("c", "d"), produce("e", "f"), *steps),
    )


def _session(*partitions: int, epoch: int, session: Any = 0, version: int = 12, offset: int = 0, **more: Any) -> Step:
    parts = [{"partition": n, "fetch_offset": offset, "partition_max_bytes": 1_000_000} for n in partitions]
    named = {"topic": "$topic"} if version < 13 else {"topic_id": "$topic_id"}
    content: dict[str, Any] = {"topics": [{**named, "partitions": parts}] if partitions else []}
    content |= {"max_wait_ms": 0, "min_bytes": 0, "session_id": session, "session_epoch": epoch}
    return ask(F, version, **(content | more))


_OPEN: Final[dict[str, Any]] = {"save": {"session": "session_id"}}


def _sessions(title: str, *steps: Step) -> Scenario:
    return Scenario(
        f"Fetch session: {title}", flat(make_topic(partitions=2), produce("a"), produce("b", partition=1), *steps)
    )


SCENARIOS: Final = (
    *(
        Scenario(f"Fetch v{version}", flat(make_topic(), produce("a", "b"), produce("c"), fetch(0, version=version)))
        for version in range(4, 19)
    ),
    _filled("from the middle of a batch", fetch(3)),
    _filled("from the end", fetch(6)),
    *(_filled(f"v{version}: beyond the end", fetch(7, version=version)) for version in (4, 12, 13, 18)),
    _filled("a negative offset", fetch(-1)),
    *(
        _filled(
            f"v{version}: before the start",
            ask(
                ApiKey.DELETE_RECORDS,
                2,
                topics=[{"name": "$topic", "partitions": [{"partition_index": 0, "offset": 4}]}],
                timeout_ms=1000,
                quiet=True,
            ),
            fetch(1, version=version),
            fetch(4, version=version),
        )
        for version in (4, 5, 12)
    ),
    _filled("one byte of a partition, which is one batch", fetch(0, partition_max_bytes=1)),
    _filled("one byte in all, which is one batch", fetch(0, max_bytes=1)),
    _filled("no bytes at all", fetch(0, max_bytes=0, partition_max_bytes=0)),
    _filled("room for one batch and a half", fetch(0, partition_max_bytes=110)),
    *(_filled(f"v{version}: read committed", fetch(0, version=version, isolation_level=1)) for version in (4, 12, 17)),
    _filled("an isolation level that is none", fetch(0, isolation_level=7)),
    *(
        Scenario(f"Fetch v{version}: an unknown topic", (fetch(0, version=version, topic="$topic"),))
        for version in (4, 12)
    ),
    *(
        Scenario(f"Fetch v{version}: an unknown topic id", (fetch(0, version=version, topic_id=b"0123456789abcdef"),))
        for version in (13, 18)
    ),
    Scenario("Fetch v13: the zero topic id", (fetch(0, version=13, topic_id=bytes(16)),)),
    *(_filled(f"v{version}: an unknown partition", fetch(0, version=version, partition=9)) for version in (4, 12, 13)),
    _filled("a negative partition", fetch(0, partition=-1)),
    _filled("the current leader epoch", fetch(0, current_leader_epoch=0)),
    _filled("a leader epoch of the future", fetch(0, current_leader_epoch=5)),
    _filled("the last fetched epoch", fetch(6, last_fetched_epoch=0)),
    _filled("a last fetched epoch of the future", fetch(6, last_fetched_epoch=3)),
    _filled("beyond the end of its last epoch", fetch(9, last_fetched_epoch=0)),
    Scenario("Fetch: no topics", (ask(F, 12, topics=[], max_wait_ms=0, min_bytes=0),)),
    _filled("waits for what is not there, in vain", fetch(6, max_wait_ms=100, min_bytes=1)),
    Scenario(
        "Fetch: waits for what comes",
        flat(
            make_topic(),
            fetch(0, max_wait_ms=30_000, min_bytes=1, later=True, on="b"),
            produce("late"),
            Hear("b"),
        ),
    ),
    Scenario(
        "Fetch: an error ends the wait",
        flat(make_topic(), fetch(3, max_wait_ms=30_000, min_bytes=1)),
    ),
    Scenario(
        "Fetch: the same partition twice",
        flat(
            make_topic(),
            produce("a"),
            ask(
                F,
                11,
                max_wait_ms=0,
                min_bytes=0,
                topics=[
                    {
                        "topic": "$topic",
                        "partitions": [
                            {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000},
                            {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1000},
                        ],
                    }
                ],
            ),
        ),
    ),
    _filled(
        "as a follower that is none",
        ask(
            F,
            11,
            replica_id=5,
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                {"topic": "$topic", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
            ],
        ),
    ),
    *(
        _sessions(
            f"v{version}: all, then only what is new",
            _session(0, 1, epoch=0, version=version, **_OPEN),
            _session(epoch=1, session="$session", version=version),
            produce("c", partition=1),
            _session(epoch=2, session="$session", version=version),
        )
        for version in (7, 12, 13, 18)
    ),
    _sessions(
        "a partition's offset moves",
        _session(0, 1, epoch=0, **_OPEN),
        _session(0, epoch=1, session="$session", offset=1),
    ),
    _sessions(
        "a partition is forgotten",
        _session(0, 1, epoch=0, **_OPEN),
        _session(
            epoch=1,
            session="$session",
            forgotten_topics_data=[{"topic": "$topic", "partitions": [0]}],
        ),
        produce("c"),
        produce("d", partition=1),
        _session(epoch=2, session="$session"),
    ),
    _sessions("an epoch too far", _session(0, epoch=0, **_OPEN), _session(epoch=5, session="$session")),
    _sessions("an unknown id", _session(0, epoch=1, session=123_456)),
    _sessions(
        "closed",
        _session(0, epoch=0, **_OPEN),
        _session(epoch=-1, session="$session"),
        _session(epoch=1, session="$session"),
    ),
    _sessions("none is wanted", _session(0, epoch=-1)),
    _sessions(
        "an error is in every response",
        _session(0, 7, epoch=0, **_OPEN),
        _session(epoch=1, session="$session"),
        _session(epoch=2, session="$session"),
    ),
    _sessions("by name, then by id", _session(0, epoch=0, **_OPEN), _session(epoch=1, session="$session", version=13)),
    Scenario("Fetch session: without partitions", (ask(F, 12, topics=[], session_id=0, session_epoch=0),)),
)

DIFFERENCES: Final = (
    Difference(
        "OFFSET_OUT_OF_RANGE comes with the log start offset",
        "A consumer that has fallen behind need not request it.",
        (
            *(
                (f"Fetch: {title}", "*.log_start_offset")
                for title in (
                    "v1[238]: beyond the end",
                    "v5: before the start",
                    "v12: before the start",
                    "a negative offset",
                    "an error ends the wait",
                )
            ),
        ),
    ),
    Difference(
        "An unknown isolation level counts as read_uncommitted",
        "Kafka answers UNKNOWN_SERVER_ERROR.",
        (("Fetch: an isolation level that is none", "*"),),
    ),
    Difference(
        "A fetch without partitions opens no fetch session",
        "Kafka opens an empty one.",
        (("Fetch session: without partitions", "*.session_id"),),
    ),
)

FAMILY: Final = Family("Fetch", SCENARIOS, DIFFERENCES)
