"""Subscriptions: which clients shall push what."""

import pytest

from barnabas_broker.telemetry import MetricsSubscription, MetricsSubscriptions, PushingClient

SHOP = PushingClient(b"sixteen bytes...", "shop", "librdkafka", "2.16.1", "10.0.0.1", 4711)


@pytest.mark.parametrize(
    "match",
    [
        "",
        "client_id=shop",
        "client_id=sh.*",
        " client_id = shop ",
        "client_software_name=librdkafka,client_software_version=2\\.1.*",
        "client_source_address=10\\.0\\..*,client_source_port=47..",
        "client_instance_id=c2l4dGVlbiBieXRlcy4uLg",
        "client_id=other,client_id=shop",
    ],
)
def test_clients_that_match(match: str) -> None:
    assert MetricsSubscription.of({"match": match}).matches(SHOP)


@pytest.mark.parametrize(
    "match", ["client_id=sho", "client_id=hop", "client_id=shop,client_source_port=1", "client_id="]
)
def test_clients_that_do_not_match(match: str) -> None:
    assert not MetricsSubscription.of({"match": match}).matches(SHOP)


def test_a_long_text_matches_nothing() -> None:
    assert not MetricsSubscription.of({"match": "client_id=.*"}).matches(SHOP._replace(client_id="a" * 1_001))


def test_of_a_long_text_no_more_is_kept_than_matches_nothing() -> None:
    client = PushingClient.of(bytes(16), "a" * 32_000, f"{'b' * 32_000} {'c' * 32_000}", "10.0.0.1", 4711)
    assert [len(text) for text in client[1:4]] == [1_001] * 3
    assert PushingClient.of(bytes(16), "shop", "", "10.0.0.1", 4711)[1:4] == ("shop", "unknown", "unknown")


def test_a_client_pushes_what_any_subscription_asks_for() -> None:
    each = {
        "a": {"metrics": "a.,b.", "interval.ms": "2000"},
        "b": {"metrics": "b.,c.", "interval.ms": "1000"},
        "other": {"metrics": "*", "interval.ms": "100", "match": "client_id=other"},
    }
    wanted = MetricsSubscriptions(each).wanted(SHOP)
    assert (wanted.metrics, wanted.interval_ms) == (("a.", "b.", "c."), 1000)
    assert wanted.wants("a.x") and not wanted.wants("x.a.")
    everything = MetricsSubscriptions(each).wanted(SHOP._replace(client_id="other"))
    assert (everything.metrics, everything.interval_ms) == (("*",), 100)
    assert everything.wants("x")


def test_without_a_subscription_nothing_is_pushed() -> None:
    wanted = MetricsSubscriptions({}).wanted(SHOP)
    assert (wanted.metrics, wanted.interval_ms) == ((), 300_000)
    assert not wanted.wants("a")


def test_another_subscription_has_another_id() -> None:
    one, other = {"a": {"metrics": "a."}}, {"a": {"metrics": "a.", "interval.ms": "1000"}}
    ids = {
        MetricsSubscriptions(each).wanted(client).subscription_id for each in (one, other) for client in (SHOP, OTHER)
    }
    assert len(ids) == 4
    assert MetricsSubscriptions(one).wanted(SHOP) == MetricsSubscriptions(one).wanted(SHOP)


OTHER = SHOP._replace(client_instance_id=bytes(range(16)))


def test_configuration_of_another_version_counts_as_none() -> None:
    assert MetricsSubscriptions({"a": {"new": "key"}, "b": {"metrics": "b."}}).wanted(SHOP).metrics == ("b.",)


def test_subscriptions_that_stay_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"a": {"metrics": "a."}}
    before = MetricsSubscriptions(first)
    monkeypatch.delattr(MetricsSubscription, "of")
    assert MetricsSubscriptions(dict(first), before).wanted(SHOP).metrics == ("a.",)
