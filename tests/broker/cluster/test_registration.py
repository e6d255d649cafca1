"""What brokers write about themselves, and what others may have written there."""

import pytest

from barnabas_broker.cluster.kv import Entry
from barnabas_broker.cluster.registration import Living, Registration, read_registration

ME = Registration(3, {"PLAINTEXT": ("host", 9092)}, "rack", "incarnation", "directory", epoch=7)


def test_what_was_written_is_read() -> None:
    assert read_registration(Entry("/live/broker/3", ME.to_json(), 7, 9)) == ME


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
    living = Living("/live/")
    living.listed([Entry("/live/broker/3", value, 7, 9), Entry("/live/controller", value, 7, 9)])
    assert living.members() == {}
    assert living.controller is None


def test_a_broker_in_the_place_of_another_is_nobody() -> None:
    living = Living("/live/")
    living.listed([Entry("/live/broker/4", ME.to_json(), 7, 9), Entry("/live/broker/3/x", ME.to_json(), 7, 9)])
    assert living.members() == {}
