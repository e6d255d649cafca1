"""The settings that scenarios are played under, alike for Apache Kafka and for Barnabas."""

from collections.abc import Mapping
from typing import Final

from tests.interop.behaviour.language import Server

_SHORT: Final = {"group.min.session.timeout.ms": 100, "offsets.topic.num.partitions": 1}

SETTINGS: Final[Mapping[Server, Mapping[str, str | int | bool]]] = {
    "plain": {**_SHORT, "group.initial.rebalance.delay.ms": 0},
    # A group waits for company, is full soon, and little comes into being or goes by itself.
    "strict": {
        **_SHORT,
        "auto.create.topics.enable": False,
        "delete.topic.enable": False,
        "group.initial.rebalance.delay.ms": 1500,
        "group.max.size": 2,
    },
    # As many partitions for the offsets of groups as there are by default; no other group is here than those whose
    # partition is looked at.
    "sharded": {"offsets.topic.num.partitions": 50},
    # Offsets that expire soon.
    "expiring": {"offsets.retention.check.interval.ms": 200},
}
