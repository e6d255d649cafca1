"""The records of an upgrade and a downgrade are those of Apache Kafka, in its order."""

import asyncio
import time
from itertools import groupby
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas_broker.groups.records import CONSUMER_KEYS, GROUP_KEY, key_type, read_consumer_record, read_group_value
from barnabas_protocol.schema import Struct
from barnabas_protocol.wire import Buffer
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.common import join as join_classic
from tests.interop.behaviour.common import leave, sync
from tests.interop.behaviour.language import Scenario
from tests.interop.behaviour.runner import Player, warm_up
from tests.interop.behaviour.scenarios.consumer_groups import beat
from tests.interop.behaviour.scenarios.migration import KIND, M, Story, synced
from tests.interop.behaviour.servers import SETTINGS
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.timeout(300)]

#: Seconds for reading the records.
PATIENCE = 30.0
#: Fields that differ from run to run.
VARYING = {"current_state_timestamp", "assignment_timestamp", "metadata_hash"}


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


def normal(value: Any, names: dict[Any, str]) -> Any:
    """A record's field as plain data, without what differs from run to run."""
    if isinstance(value, Struct):
        return {
            each.name: normal(getattr(value, each.name), names) for each in value.FIELDS if each.name not in VARYING
        }
    if isinstance(value, list):
        return [normal(each, names) for each in value]
    value = bytes(value) if isinstance(value, Buffer) else value
    return names.get(value, value) if isinstance(value, str | bytes) else value


def records_of(server: Server, player: Player) -> list[tuple[int, Any, Any]]:
    """The group's records: type, key and value. Records of one kind that follow each other are sorted."""
    names = {value: name for name, value in player.saved.items() if isinstance(value, str | bytes)}
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "reader", "log_level": 0})
    try:
        consumer.assign([TopicPartition("__consumer_offsets", 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition("__consumer_offsets", 0), PATIENCE)
        found = []
        position, deadline = -1, time.monotonic() + PATIENCE
        while position < end - 1:
            assert time.monotonic() < deadline, f"{position} of {end}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            assert message.error() is None
            position = message.offset() or 0
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            kind = key_type(key)
            if kind == GROUP_KEY and player.saved["group"].encode() in key:
                found.append((kind, "", None if value is None else normal(read_group_value(bytes(value)), names)))
            elif kind in CONSUMER_KEYS:
                read, content = read_consumer_record(kind, key, None if value is None else bytes(value))
                if getattr(read, "group_id", "") == player.saved["group"]:
                    found.append((kind, normal(read, names), None if content is None else normal(content, names)))
    finally:
        consumer.close()
    runs = groupby(found, key=lambda each: (each[0], each[2] is None))
    return [each for _, run in runs for each in sorted(run, key=repr)]


def played(server: Server, scenario: Scenario) -> list[tuple[int, Any, Any]]:
    async def play() -> Player:
        await warm_up(int(server.bootstrap_servers.rpartition(":")[2]))
        player = Player(int(server.bootstrap_servers.rpartition(":")[2]))
        await player.play(scenario)
        return player

    return records_of(server, asyncio.run(play()))


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
