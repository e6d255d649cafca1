"""The rows of a cluster beside another program: both are warmed up, and measured alike."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.bench.families import cluster
from tests.bench.targets import BARNABAS, Target

pytestmark = pytest.mark.cluster

WARM_UP = [("pace", "paced"), ("rate", "transactions-first")]
MEASURED = [("pace", "paced"), ("pace", "paced"), ("rate", "transactions-1"), ("rate", "transactions-100")]
ROWS = [
    *(f"{rate} records/s, {part}" for rate in ("500", "2,000") for part in ("p50", "p99")),
    *(f"transactions/s, {records} each" for records in ("1 record", "100 records")),
]


@contextmanager
def others(nodes: int) -> Iterator[str]:
    """Three brokers that stand for another program."""
    assert nodes == cluster.NODES
    made = cluster._cluster(None)
    with asyncio.Runner() as runner:
        brokers = runner.run(made.__aenter__())
        try:
            yield cluster._addresses(brokers)
        finally:
            runner.run(made.__aexit__(None, None, None))


def test_each_cluster_is_warmed_up_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[tuple[str, str, str]] = []

    def load(program: str, verb: str, addresses: str, topic: str, *numbers: int) -> dict[str, Any]:
        loads.append((addresses, verb, topic))
        return {"p50": 0.001, "p99": 0.002, "count": 100, "seconds": 2.0}

    monkeypatch.setattr(cluster, "load", load)
    table = cluster.measure([BARNABAS, Target("another", BARNABAS.run, cluster=others)], 1, True)
    clusters = [*dict.fromkeys(addresses for addresses, _, _ in loads)]
    assert [len(addresses.split(",")) for addresses in clusters] == [cluster.NODES] * 2
    for each in clusters:
        assert [load[1:] for load in loads if load[0] == each] == [*WARM_UP, *MEASURED]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.markdown().splitlines()[2:]]
    assert rows == ROWS
