"""The records of an upgrade and a downgrade are those of Apache Kafka, in its order."""

from typing import Any

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.common import join as join_classic
from tests.interop.behaviour.common import leave, sync
from tests.interop.behaviour.language import Scenario
from tests.interop.behaviour.scenarios.consumer_groups import beat
from tests.interop.behaviour.scenarios.migration import KIND, M, Story, synced
from tests.interop.behaviour.servers import SETTINGS
from tests.interop.group_records import played
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.timeout(300)]


def upgraded_and_downgraded() -> Scenario:
    """Dynamic members: an upgrade, a whole reconciliation, and a downgrade by a member that leaves."""
    story = Story(6).classic("a", "b")
    story.then(
        story.join(),
        story.rejoin("a", 0, 2, 4),
        synced("a", 2),
        story.rejoin("b", 1, 3, 5),
        synced("b", 2),
        story.rejoin("a", 0, 2),
        synced("a", 3),
        story.rejoin("b", 1, 3),
        synced("b", 3),
        beat(M, 3, on="m", topic_partitions=[]),
        leave(("$b_id", None), on="b"),
        beat(M, 4, on="m"),
        beat(M, -1, on="m"),
    )
    return story.scenario("records of dynamic members")


def static_there_and_back() -> Scenario:
    """Static members: each takes its own place with the other protocol."""
    story = Story().classic("a", "b", instances={"a": "i", "b": "j"})
    story.then(
        story.join(instance_id="i"),
        join_classic(on="c", version=9, instance="i", metadata=story.subscription()),
        sync("$c_id", 2, on="c", version=5, instance="i", **KIND),
    )
    return story.scenario("records of static members")


@pytest.fixture(scope="module")
def both(needs_jars: None) -> Any:
    settings = SETTINGS["plain"]
    with ApacheKafka(settings) as kafka, BarnabasBroker(settings) as ours:
        yield kafka, ours


def test_records_are_kafkas(both: tuple[Server, Server]) -> None:
    kafka, ours = both
    scenario = upgraded_and_downgraded()
    assert played(ours, scenario) == played(kafka, scenario)


def test_records_of_static_members_are_kafkas_after_compaction(both: tuple[Server, Server]) -> None:
    """Kafka first writes a static member with its new id, and what the request changes once more"""
    kafka, ours = both
    scenario = static_there_and_back()

    def newest(server: Server) -> dict[str, Any]:
        return {repr((kind, key)): value for kind, key, value in played(server, scenario)}

    assert newest(ours) == newest(kafka)
