"""Three minutes of faults under load; `python -m tests.cluster.nemesis --minutes 30` runs for longer."""

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.local_etcd import free_port
from tests.checker.history import Kind, Outcome
from tests.cluster.harness import Etcd
from tests.cluster.hosts import namespaces_work
from tests.cluster.load import with_outcome
from tests.cluster.nemesis import HEAL_SECONDS, Nemesis, trial

SECONDS = float(os.environ.get("BARNABAS_NEMESIS_SECONDS", "180"))

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(SECONDS + 6 * HEAL_SECONDS)]


async def test_no_fault_causes_an_anomaly(etcd: Etcd, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    cuttable = namespaces_work()
    if not cuttable:
        print("no network is cut: that needs root and ip")
    print(f"seed {seed}: python -m tests.cluster.nemesis --minutes {SECONDS / 60:g} --seed {seed}")
    history, wrong = await trial(tmp_path, SECONDS, seed, cuttable=cuttable)
    assert not wrong, "\n".join(wrong)
    for kind in (Kind.SEND, Kind.COMMIT, Kind.COMMITTED, Kind.TXN, Kind.GAIN, Kind.SETTLE):
        assert with_outcome(history, Outcome.OK, kind), f"no {kind.value} succeeded"


async def test_a_topic_is_not_created_while_no_broker_listens() -> None:
    """All brokers were stopped just before: the nemesis tries again."""
    stand = cast(Any, SimpleNamespace(bootstrap=f"127.0.0.1:{free_port()}"))
    assert not await Nemesis(stand, random.Random(1), print)._create("topic")
