"""Registrations of brokers, valid and invalid."""

import pytest

from barnabas_broker.cluster.kv import KeyEntry
from barnabas_broker.cluster.registration import BrokerRegistration, LiveBrokers, read_registration

ME = BrokerRegistration(3, {"PLAINTEXT": ("host", 9092)}, "rack", "incarnation", "directory", epoch=7)


def test_a_registration_is_read_back() -> None:
    assert read_registration(KeyEntry("/live/broker/3", ME.to_json(), 7, 9)) == ME


def test_a_registration_of_an_earlier_version_is_not_intact() -> None:
    found = read_registration(KeyEntry("/live/broker/3", ME.to_json().replace(b',"intact":[-1,-1]', b""), 7, 9))
    assert found == ME


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
        ME.to_json().replace(b'"intact":[-1,-1]', b'"intact":[1e999,1]'),
        ME.to_json().replace(b'"intact":[-1,-1]', b'"intact":[1]'),
        b"[" * 100_000,
        b"9" * 5000,
    ],
)
def test_an_invalid_registration_is_ignored(value: bytes) -> None:
    living = LiveBrokers("/live/")
    living.listed([KeyEntry("/live/broker/3", value, 7, 9), KeyEntry("/live/controller", value, 7, 9)])
    assert living.available() == {}
    assert living.controller is None


def test_a_registration_at_another_brokers_key_is_ignored() -> None:
    living = LiveBrokers("/live/")
    living.listed([KeyEntry("/live/broker/4", ME.to_json(), 7, 9), KeyEntry("/live/broker/3/x", ME.to_json(), 7, 9)])
    assert living.available() == {}
