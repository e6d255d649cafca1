"""The limits of connections, without connections."""

import pytest

from barnabas_broker.quotas import connections
from barnabas_broker.quotas.connections import Admitted, ConnectionLimits, ConnectionQuotas, RefusedSocket
from barnabas_broker.quotas.entities import QuotaKey, entity_of
from barnabas_broker.quotas.rates import Window


def test_an_address_over_its_quota_stays_so_whatever_addresses_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 100)
    quotas = ConnectionQuotas(ConnectionLimits(), Window())
    quotas.set(entity_of([("ip", None)]), QuotaKey.CONNECTION_CREATION_RATE, 1)
    for _ in range(10):
        assert isinstance(quotas.open("A", "10.0.0.1", 0.0), Admitted)
    assert isinstance(quotas.open("A", "10.0.0.1", 0.0), RefusedSocket)
    for number in range(1000):
        quotas.open("A", f"2001:db8::{number:x}", 0.0)
    assert isinstance(quotas.open("A", "10.0.0.1", 0.0), RefusedSocket)
    quotas.tick(12.0)
    assert isinstance(quotas.open("A", "10.0.0.1", 12.0), Admitted)


def test_without_room_further_addresses_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 3)
    quotas = ConnectionQuotas(ConnectionLimits(), Window())
    quotas.set(entity_of([("ip", None)]), QuotaKey.CONNECTION_CREATION_RATE, 1)
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        for _ in range(11):
            last = quotas.open("A", address, 0.0)
        assert isinstance(last, RefusedSocket)
    admitted = [isinstance(quotas.open("A", f"10.0.1.{number}", 0.0), Admitted) for number in range(20)]
    assert admitted == [True] * 10 + [False] * 10
