"""Topics and what Kafka 4.3.1 computes for them (``Utils.computeTopicHash``, ``computeGroupHash``)."""

from typing import Any, Final

from barnabas_broker.groups.consumer.assignment import Topic


def some_topics() -> list[Topic]:
    return [
        Topic(bytes(range(16)), "orders", 3),
        Topic(bytes(range(255, 239, -1)), "Payments.eu_1", 2, (("east", "west"), ("west", "west", "east"))),
        Topic(bytes(15) + b"\x01", "x", 1, ((),)),
        Topic(b"\x80" + bytes(15), "long" * 60, 100, (("a" * 300, ""),) * 100),
    ]


#: Computed by Kafka; ``tests/interop/test_server_assignors.py`` checks that.
HASHES: Final[dict[str, Any]] = {
    "topics": {
        "orders": 7505420903485085114,
        "Payments.eu_1": -617349294712051691,
        "x": -4094849632328021651,
        "long" * 60: -7068403443943254496,
    },
    "group": -5842947639943207325,
}
