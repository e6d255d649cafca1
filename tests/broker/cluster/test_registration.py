"""What brokers write about themselves, and what others may have written there."""

import pytest

from barnabas_broker.cluster.kv import KeyEntry
from barnabas_broker.cluster.registration import BrokerRegistration, LiveBrokers, read_registration

ME = BrokerRegistration(3, {"PLAINTEXT": ("host", 9092)}, "rack", "incarnation", "directory", epoch=7)


def test_what_was_written_is_read() -> None:
    assert read_registration(KeyEntry("/live/broker/3", ME.to_json(), 7, 9)) == ME


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        ME.to_json().replace(b"9092", b"Infinity"),
        ME.to_json().replace(b"9092", b"65536"),
        ME.to_json().replace(b'"node_id":3', b'"node_id":1e999'),
        ME.to_json().replace(b'{"PLAINTEXT":["host",9092]}', b"{}"),
        b"[" * 100_000,
        b"9" * 5000,
    ],
)
def test_what_no_broker_writes_is_nobody(value: bytes) -> None:
    living = LiveBrokers("/live/")
    living.listed([KeyEntry("/live/broker/3", value, 7, 9), KeyEntry("/live/controller", value, 7, 9)])
    assert living.available() == {}
    assert living.controller is None


def test_a_broker_in_the_place_of_another_is_nobody() -> None:
    living = LiveBrokers("/live/")
    living.listed([KeyEntry("/live/broker/4", ME.to_json(), 7, 9), KeyEntry("/live/broker/3/x", ME.to_json(), 7, 9)])
    assert living.available() == {}
