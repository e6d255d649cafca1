"""The settings for scenarios, the same for Apache Kafka and Barnabas."""

from collections.abc import Mapping
from typing import Final

from tests.interop.behaviour.language import Server

_SHORT: Final = {
    "group.consumer.assignment.interval.ms": 0,
    "group.min.session.timeout.ms": 100,
    "offsets.topic.num.partitions": 1,
}

SETTINGS: Final[Mapping[Server, Mapping[str, str | int | bool]]] = {
    "plain": {**_SHORT, "group.initial.rebalance.delay.ms": 0},
    # An initial rebalance delay, small groups of one protocol, no automatic creation and no deletion of topics.
    "strict": {
        **_SHORT,
        "auto.create.topics.enable": False,
        "delete.topic.enable": False,
        "group.consumer.max.size": 2,
        "group.consumer.migration.policy": "disabled",
        "group.initial.rebalance.delay.ms": 1500,
        "group.max.size": 2,
    },
    # The default number of partitions of __consumer_offsets. No other groups run under this setting, because the
    # scenarios check the ends of partitions.
    "sharded": {"offsets.topic.num.partitions": 50},
    # Offsets that expire soon.
    "expiring": {"offsets.retention.check.interval.ms": 200},
}
