"""The records of a group in ``__consumer_offsets``, of Apache Kafka and of Barnabas, as data that can be compared."""

import asyncio
import time
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.group_records import (
    CONSUMER_KEYS,
    GROUP_KEY,
    group_record,
    key_type,
    read_consumer_record,
    read_group_value,
)
from barnabas_protocol.schema import Struct
from barnabas_protocol.wire import Buffer
from tests.interop.behaviour.language import Scenario
from tests.interop.behaviour.runner import Player, warm_up
from tests.interop.server import Server

#: Seconds for reading the records.
PATIENCE = 30.0
#: Fields that differ from run to run.
VARYING = {"current_state_timestamp", "assignment_timestamp", "metadata_hash", "timestamp", "version"}


def normal(value: Any, names: dict[Any, str]) -> Any:
    """A record's field as plain data, without what differs from run to run."""
    if isinstance(value, Struct):
        return {
            each.name: normal(getattr(value, each.name), names) for each in value.FIELDS if each.name not in VARYING
        }
    if isinstance(value, list):
        return [normal(each, names) for each in value]
    if isinstance(value, str):
        for known in sorted((each for each in names if isinstance(each, str)), key=len, reverse=True):
            value = value.replace(known, f"<{names[known]}>")
        return value
    value = bytes(value) if isinstance(value, Buffer) else value
    return names.get(value, value) if isinstance(value, bytes) else value


def classic(value: GroupMetadataValue, names: dict[Any, str]) -> Any:
    """The record of a classic group, with its members in the order of their names.

    Kafka writes them in the order of a hash map, which follows from the random part of their ids.
    """
    found = normal(value, names)
    found["members"].sort(key=repr)
    return found


def records_of(server: Server, player: Player) -> list[tuple[int, Any, Any]]:
    """The group's records: type, key and value. Records of one kind that follow each other are sorted."""
    names = {value: name for name, value in player.saved.items() if isinstance(value, str | bytes) and value}
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
                found.append((kind, "", None if value is None else classic(read_group_value(bytes(value)), names)))
            elif kind in CONSUMER_KEYS:
                value = None if value is None else bytes(value)
                read, content = read_consumer_record(kind, key, value)
                if getattr(read, "group_id", "") == player.saved["group"]:
                    ours = group_record((read, content))
                    assert ours == (key, value), f"{read} {content}: we would write {ours}, not {(key, value)}"
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
