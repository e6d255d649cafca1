"""Bytes of the embedded consumer protocol: what clients send is read, and what they read is written."""

import pytest

from barnabas_broker.groups.embedded_protocol import assignment_of, read_assignment, read_subscription
from tests.broker.groups.support import assignment, owned_subscription


def test_bytes_are_read_and_written_as_the_clients_do() -> None:
    assert assignment_of({"t": [2, 0]}, 0) == assignment(t=[0, 2])
    read = read_subscription(owned_subscription({"t": [1, 2]}, "u", "t"))
    assert read == (frozenset(("t", "u")), {"t": frozenset((1, 2))}, None, b"")
    with_rack = owned_subscription({}, "t") + (5).to_bytes(4, "big") + b"\x00\x02ab"
    assert read_subscription(b"\x00\x03" + with_rack[2:]).rack_id == "ab"
    assert read_assignment(b"") == ({}, b"")
    with pytest.raises(ValueError, match="no subscription"):
        read_subscription(b"\x00")
    with pytest.raises(ValueError, match="version -1"):
        read_assignment(b"\xff\xff\x00\x00")
