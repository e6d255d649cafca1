"""Registrations of brokers, valid and invalid."""

from dataclasses import replace

import pytest

from barnabas_broker.cluster.kv import KeyEntry
from barnabas_broker.cluster.registration import MOST_LOST, BrokerRegistration, LiveBrokers, read_registration

ME = BrokerRegistration(3, {"PLAINTEXT": ("host", 9092)}, "rack", "incarnation", "directory", epoch=7)


def test_a_registration_is_read_back() -> None:
    assert read_registration(KeyEntry("/live/broker/3", ME.to_json(), 7, 9)) == ME


def test_a_registration_names_the_replicas_that_have_lost_records() -> None:
    me = replace(ME, lost=((bytes(range(16)), 0), (bytes(range(16)), 7), (bytes(16), 1)))
    entry = KeyEntry("/live/broker/3", me.to_json(), 7, 9)
    living = LiveBrokers("/live/")
    living.listed([entry])
    assert read_registration(entry) == me
    assert living.lost() == {3: frozenset(me.lost)}


def test_the_registration_of_many_lost_replicas_is_small() -> None:
    topics = [number.to_bytes(16, "big") for number in range(MOST_LOST)]
    assert len(replace(ME, lost=tuple((topic, 99) for topic in topics)).to_json()) < 100_000


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
        ME.to_json().replace(b'"lost":{}', b'"lost":[1]'),
        ME.to_json().replace(b'"lost":{}', b'"lost":{"xy":[1]}'),
        ME.to_json().replace(b'"lost":{}', b'"lost":{"00":[1e999]}'),
        ME.to_json().replace(b'"lost":{}', b'"lost":{"00":7}'),
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
