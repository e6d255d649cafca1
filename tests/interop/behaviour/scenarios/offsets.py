"""Offsets of a log: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import fetch, make_topic, produce
from tests.interop.behaviour.language import START, Difference, Family, Scenario, Step, ask, flat, spread

L, E, R = ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS
LATEST, EARLIEST, LARGEST, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


def _list(timestamp: int, version: int = 7, *, partition: int = 0, topic: str = "$topic", **more: Any) -> Step:
    one: dict[str, Any] = {"partition_index": partition, "timestamp": timestamp}
    if "current_leader_epoch" in more:
        one["current_leader_epoch"] = more.pop("current_leader_epoch")
    return ask(L, version, replica_id=-1, topics=[{"name": topic, "partitions": [one]}], **more)


def _epoch(epoch: int, version: int = 3, *, partition: int = 0, topic: str = "$topic", **more: Any) -> Step:
    one = {"partition": partition, "leader_epoch": epoch, **more}
    return ask(E, version, topics=[{"topic": topic, "partitions": [one]}])


def _delete(offset: int, version: int = 2, *, partition: int = 0, topic: str = "$topic") -> Step:
    parts = [{"partition_index": partition, "offset": offset}]
    return ask(R, version, topics=[{"name": topic, "partitions": parts}], timeout_ms=1000)


def _filled(title: str, *steps: Step, **configs: Any) -> Scenario:
    """A scenario with two batches, four records one second apart."""
    later = produce("c", "d", start=START + 10_000)
    return Scenario(title, flat(make_topic(**configs), produce("a", "b"), later, *steps))


SCENARIOS: Final = (
    *(_filled(f"ListOffsets v{version}: latest", _list(LATEST, version)) for version in range(1, 12)),
    *(_filled(f"ListOffsets v{version}: earliest", _list(EARLIEST, version)) for version in spread(L, 1)),
    *(_filled(f"ListOffsets v{version}: the largest timestamp", _list(LARGEST, version)) for version in (1, 6, 7, 11)),
    *(_filled(f"ListOffsets v{version}: earliest local", _list(LOCAL, version)) for version in (7, 8, 11)),
    *(_filled(f"ListOffsets v{version}: latest tiered", _list(TIERED, version)) for version in (8, 9, 11)),
    *(_filled(f"ListOffsets v{version}: earliest pending upload", _list(PENDING, version)) for version in (10, 11)),
    *(_filled(f"ListOffsets v{version}: a time in the log", _list(START + 1500, version)) for version in (1, 7, 11)),
    _filled("ListOffsets v7: a time exactly", _list(START + 1000)),
    _filled("ListOffsets v7: a time before the log", _list(0)),
    _filled("ListOffsets v7: a time after the log", _list(START + 60_000)),
    _filled("ListOffsets v7: a time that is none", _list(-9)),
    _filled("ListOffsets v2: read committed", _list(LATEST, 2, isolation_level=1)),
    _filled("ListOffsets v7: a time, read committed", _list(START, isolation_level=1)),
    _filled("ListOffsets v7: the current leader epoch", _list(LATEST, current_leader_epoch=0)),
    _filled("ListOffsets v7: a leader epoch of the future", _list(LATEST, current_leader_epoch=4)),
    *(Scenario(f"ListOffsets v{version}: an unknown topic", (_list(LATEST, version),)) for version in spread(L, 1)),
    _filled("ListOffsets v7: an unknown partition", _list(LATEST, partition=6)),
    Scenario("ListOffsets v7: an illegal topic", (_list(LATEST, topic="a/b"),)),
    Scenario(
        "ListOffsets v7: an empty log", flat(make_topic(), _list(LATEST), _list(EARLIEST), _list(LARGEST), _list(5))
    ),
    Scenario(
        "ListOffsets v7: the same partition twice",
        flat(
            make_topic(),
            ask(
                L,
                7,
                replica_id=-1,
                topics=[
                    {
                        "name": "$topic",
                        "partitions": [
                            {"partition_index": 0, "timestamp": -1},
                            {"partition_index": 0, "timestamp": -2},
                        ],
                    }
                ],
            ),
        ),
    ),
    *(_filled(f"OffsetForLeaderEpoch v{version}: the current one", _epoch(0, version)) for version in spread(E, 2)),
    _filled("OffsetForLeaderEpoch v3: one of the future", _epoch(7)),
    _filled("OffsetForLeaderEpoch v3: none", _epoch(-1)),
    _filled("OffsetForLeaderEpoch v3: a leader epoch of the future", _epoch(0, current_leader_epoch=3)),
    _filled("OffsetForLeaderEpoch v3: an unknown partition", _epoch(0, partition=6)),
    *(
        Scenario(f"OffsetForLeaderEpoch v{version}: an unknown topic", (_epoch(0, version),))
        for version in spread(E, 2)
    ),
    Scenario("OffsetForLeaderEpoch v3: an empty log", flat(make_topic(), _epoch(0))),
    *(
        _filled(f"DeleteRecords v{version}", _delete(3, version), _list(EARLIEST), _list(LATEST), fetch(3))
        for version in spread(R)
    ),
    _filled("DeleteRecords v2: all", _delete(-1), _list(EARLIEST), _list(LATEST), _list(START)),
    _filled("DeleteRecords v2: none", _delete(0), _list(EARLIEST)),
    _filled("DeleteRecords v2: backwards", _delete(3), _delete(1)),
    _filled("DeleteRecords v2: beyond the end", _delete(5)),
    _filled("DeleteRecords v2: a negative offset", _delete(-2)),
    _filled("DeleteRecords v2: an unknown partition", _delete(1, partition=8)),
    Scenario(
        "DeleteRecords v2: a topic that is only compacted",
        flat(make_topic(cleanup__policy="compact"), produce(("k", "v")), _delete(1)),
    ),
    *(Scenario(f"DeleteRecords v{version}: an unknown topic", (_delete(1, version),)) for version in spread(R)),
    Scenario("DeleteRecords v2: the offsets topic", (_delete(0, topic="__consumer_offsets"),)),
    _filled("DeleteRecords v2: then later segments only", _delete(3), _epoch(0), _list(LARGEST)),
)

DIFFERENCES: Final[tuple[Difference, ...]] = ()

FAMILY: Final = Family("Offsets of a log", SCENARIOS, DIFFERENCES)
