"""The family `security`: what is drawn is measured, and the ratio is that of each turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.bench.families import security
from tests.bench.targets import BARNABAS, Target


@contextmanager
def running(target: Target, certificates: security.Certificates, *, secured: bool = False) -> Iterator[Any]:
    tls = {key: f"localhost:{number}" for number, key in enumerate(security.HANDSHAKES, 1)}
    yield security.Secured(cast(Any, SimpleNamespace(pid=7)), "plain:1", "login:2", tls)


def load(program: str, *args: str | int | float) -> dict[str, Any]:
    if program == "secured":
        # The second server is slower in each turn, and the machine in the third.
        return {str(depth): [[100.0, 50.0], [200.0, 100.0], [10.0, 5.0]] for depth in security.DEPTHS}
    if program == "handshakes":
        return {"rate": 150.0, "cpu": 0.001, "p50": 0.002, "p99": 0.003}
    return {"count": 1_000, "seconds": 0.5}


def test_what_is_drawn_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "_running", running)
    monkeypatch.setattr(security, "load", load)
    for name in ("create_topic", "delete_topic"):
        monkeypatch.setattr(security, name, lambda *args: None)
    table = security.measure([BARNABAS], 2, quick=False)
    for chart in security.CHARTS:
        for row in chart.rows.values():
            assert len(table.samples(row, BARNABAS.name)) == 2, row
    assert table.samples("Heartbeat v4, depth 16, ratio", BARNABAS.name) == [0.5, 0.5]
    assert table.samples("handshakes/s, RSA 2048, mutual", BARNABAS.name) == [150.0, 150.0]
    assert table.samples(security._throughput("produce", tls=True), BARNABAS.name) == [2e6, 2e6]
    # Fewer handshakes than were asked for have a row.
    assert "one at a time, RSA 2048, handshakes/s made" in table.markdown()
