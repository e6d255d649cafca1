"""What a broker says about an etcd that does not answer, answers slowly, or refuses changes."""

from collections.abc import Awaitable

import pytest

from barnabas_broker.cluster.kv import Created, KvError, KvUnavailable, Lease, Put
from barnabas_broker.cluster.kv_health import SLOW_SECONDS, KvHealth, WatchedKv
from barnabas_broker.conditions import ConditionName
from tests.sim.etcd_model import EtcdModel, ModelKv

NOSPACE = "etcd at h:1: etcdserver: mvcc: database space exceeded"


def names(health: KvHealth) -> list[ConditionName]:
    return [each.name for each in health.conditions()]


def test_two_requests_without_an_answer_count_as_an_unreachable_etcd_until_one_is_answered() -> None:
    health = KvHealth()
    health.unavailable("etcd at h:1: no leader")
    assert names(health) == []
    health.unavailable("etcd at h:1: no leader")
    (condition,) = health.conditions()
    assert condition.name is ConditionName.METADATA_UNREACHABLE
    assert condition.ready, "all brokers have this condition: it must not take all of them out of a load balancer"
    assert condition.text.startswith("etcd at h:1: no leader. No leader can change")
    assert "etcdctl endpoint status" in condition.text
    health.answered(0.01, change=False)
    assert names(health) == []


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (NOSPACE, "`etcdctl alarm disarm`"),
        ("etcd at h:1: etcdserver: corrupt cluster", "`etcdctl endpoint hashkv --cluster`"),
        ("etcd at h:1: etcdserver: permission denied", "`etcdctl role grant-permission"),
        ("etcd at h:1: etcdserver: authentication failed, invalid user ID or password", "etcd.password.file"),
        ("etcd at h:1: etcdserver: user name is empty", "set etcd.user"),
        ("etcd at h:1: something new", "etcdctl endpoint status"),
    ],
)
def test_a_refused_change_says_what_is_not_possible_and_what_to_do(reason: str, remedy: str) -> None:
    health = KvHealth()
    health.refused(reason, change=True)
    (condition,) = health.conditions()
    assert condition.name is ConditionName.METADATA_READ_ONLY
    assert reason in condition.text
    assert "No leader can change" in condition.text
    assert remedy in condition.text
    health.answered(0.01, change=False)
    assert names(health) == [ConditionName.METADATA_READ_ONLY], "reads are answered by an etcd without space"
    health.answered(0.01, change=True)
    assert names(health) == []


def test_a_refused_read_or_revocation_is_no_condition() -> None:
    health = KvHealth()
    health.refused("lease not found", change=False)
    assert names(health) == []


def test_an_alarm_is_a_condition_before_anything_is_refused() -> None:
    health = KvHealth()
    health.alarmed(frozenset({"NOSPACE"}))
    (condition,) = health.conditions()
    assert condition.name is ConditionName.METADATA_READ_ONLY
    assert "`etcdctl defrag --cluster`" in condition.text
    health.refused(NOSPACE, change=True)
    assert names(health) == [ConditionName.METADATA_READ_ONLY]
    health.alarmed(frozenset())
    assert names(health) == []


def test_answers_are_slow_if_three_in_a_row_are() -> None:
    health = KvHealth()
    for took in (SLOW_SECONDS, SLOW_SECONDS, None):
        health.answered(took, change=False)
    assert names(health) == [], "the size of a large answer says nothing"
    health.answered(2 * SLOW_SECONDS, change=False)
    (condition,) = health.conditions()
    assert condition.name is ConditionName.METADATA_SLOW
    assert f"etcd takes {SLOW_SECONDS:.2f} s to answer" in condition.text
    health.answered(0.001, change=False)
    assert names(health) == []


class FullKv(ModelKv):
    """An etcd without space."""

    full = True

    async def grant(self, ttl: int) -> Lease:
        if self.full:
            raise KvError(NOSPACE)
        return await super().grant(ttl)


async def test_each_condition_is_logged_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    model = FullKv(EtcdModel(), lambda: 0.0)
    kv = WatchedKv(model, lambda: 0.0)

    async def failed(call: Awaitable[object]) -> None:
        with pytest.raises(KvError):
            await call

    def logged(level: str, condition: str) -> int:
        return sum(each.levelname == level and condition in each.getMessage() for each in caplog.records)

    with caplog.at_level("INFO"):
        for _ in range(5):
            await failed(kv.grant(2))
        assert logged("ERROR", "metadata_read_only") == 1
        assert "alarm disarm" in caplog.text
        model.cut_off = True
        for _ in range(5):
            await failed(kv.range("k"))
        assert logged("ERROR", "metadata_unreachable") == 1
        model.cut_off, model.full = False, False
        await kv.range("k")
        await kv.grant(2)
        assert (await kv.txn([Created("k", 0)], [Put("k", b"v")])).done
    assert logged("ERROR", "metadata") == 2
    assert logged("INFO", "metadata_unreachable") == logged("INFO", "metadata_read_only") == 1


async def test_errors_are_passed_on() -> None:
    model = ModelKv(EtcdModel(), lambda: 0.0)
    kv = WatchedKv(model, lambda: 0.0)
    model.cut_off = True
    with pytest.raises(KvUnavailable):
        await kv.revoke(1)
