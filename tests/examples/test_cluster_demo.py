"""The cluster demo, shortened: two brokers are killed under load, and no acknowledged record is lost."""

import pytest

from barnabas_client import ConsumerRecord
from examples.cluster.demo import run
from examples.cluster.load import PARTITIONS, TOPIC, Ledger, judge
from tests.cluster.harness import need_etcd


@pytest.mark.cluster
async def test_nothing_is_lost_when_leaders_are_killed(capfd: pytest.CaptureFixture[str]) -> None:
    need_etcd()
    assert await run(rate=200, calm=0.5)
    out = capfd.readouterr().out
    assert out.count("is killed with kill -9") == 2
    assert out.count("next acknowledgement after ") == 2
    assert "Each acknowledged record is in the topic once and in order." in out


def record(number: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord(TOPIC, number % PARTITIONS, offset, 0, 0, None, b"%d" % number, ())


def ledger(*numbers: int) -> Ledger:
    kept = Ledger(sent=[0.0] * 100)
    for number in numbers:
        kept.acknowledge(number, number // PARTITIONS)
        kept.consume(number)
    return kept


def test_lost_and_misplaced_records_are_detected() -> None:
    first, second = record(0, 0), record(PARTITIONS, 1)
    both = ledger(0, PARTITIONS)
    assert judge(both, {0: [first, second]}).kept
    assert judge(both, {0: [first]}).found == 1
    assert not judge(both, {0: [first]}).kept
    assert judge(both, {0: [first, second, record(0, 2)]}).twice == 1
    assert not judge(both, {0: [first, second, record(0, 2)]}).kept
    swapped = {0: [record(PARTITIONS, 0), record(0, 1)]}
    assert judge(both, swapped).out_of_order == 1
    assert judge(both, swapped).wrong_offset == 2


def test_unconsumed_records_are_detected() -> None:
    kept = Ledger(sent=[0.0])
    kept.acknowledge(0, 0)
    assert judge(kept, {0: [record(0, 0)]}).not_consumed == 1
    assert not judge(kept, {0: [record(0, 0)]}).kept


def test_a_demo_without_records_fails() -> None:
    assert not judge(Ledger(), {}).kept
