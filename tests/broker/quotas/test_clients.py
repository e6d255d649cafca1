"""Which quota applies to a client, and for how long it has to wait."""

import math

import pytest

from barnabas_broker.quotas import clients
from barnabas_broker.quotas.clients import ClientQuotas, MutationQuota, milliseconds
from barnabas_broker.quotas.entities import QuotaEntity, QuotaKey, entity_of
from barnabas_broker.quotas.rates import Window
from barnabas_protocol.errors import ErrorCode, KafkaError

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
#: The levels of quotas, the most specific one first, as Kafka documents them.
LEVELS: tuple[QuotaEntity, ...] = (
    entity_of({"user": "ada", "client-id": "app"}.items()),
    entity_of({"user": "ada", "client-id": None}.items()),
    entity_of({"user": "ada"}.items()),
    entity_of({"user": None, "client-id": "app"}.items()),
    entity_of({"user": None, "client-id": None}.items()),
    entity_of({"user": None}.items()),
    entity_of({"client-id": "app"}.items()),
    entity_of({"client-id": None}.items()),
)


def quotas() -> ClientQuotas:
    return ClientQuotas(Window(), Window())


def test_the_most_specific_level_counts() -> None:
    made = quotas()
    for limit, level in enumerate(LEVELS, 1):
        made.set(level, PRODUCE, limit)
    for limit, level in enumerate(LEVELS, 1):
        found = made.produces.limits.of("ada", "app")
        assert found is not None
        assert found[1] == limit
        made.set(level, PRODUCE, None)
    assert made.produces.limits.of("ada", "app") is None
    assert not made.active


@pytest.mark.parametrize(
    ("level", "who"),
    [
        (0, ("ada", "app")),
        (1, ("ada", "app")),
        (2, ("ada", None)),
        (3, ("ada", "app")),
        (4, ("ada", "app")),
        (5, ("ada", None)),
        (6, (None, "app")),
        (7, (None, "app")),
    ],
)
def test_clients_share_the_quota_of_their_level(level: int, who: tuple[str | None, str | None]) -> None:
    made = quotas()
    made.set(LEVELS[level], PRODUCE, 5)
    assert made.produces.limits.of("ada", "app") == (who, 5)


@pytest.mark.parametrize("level", [0, 1, 3, 4, 6, 7])
def test_a_client_without_an_id_has_no_quota_of_clients(level: int) -> None:
    made = quotas()
    made.set(LEVELS[level], PRODUCE, 5)
    assert made.produces.limits.of("ada", "") is None


def test_the_clients_of_a_user_share_its_quota_and_others_have_their_own() -> None:
    made = quotas()
    made.set(entity_of({"user": None}.items()), PRODUCE, 100)
    assert made.produces.record("ada", "one", 1000, 5.0) == 0
    assert made.produces.record("ada", "two", 1000, 5.0) == 10
    assert made.produces.record("eve", "one", 1000, 5.0) == 0


def test_quotas_of_addresses_and_unknown_keys_are_none_of_clients() -> None:
    made = quotas()
    made.set(entity_of({"ip": "10.0.0.1"}.items()), QuotaKey.CONNECTION_CREATION_RATE, 5)
    assert not made.active


def test_a_throttled_fetch_counts_nothing() -> None:
    made = quotas()
    made.set(entity_of({"client-id": None}.items()), QuotaKey.CONSUMER_BYTE_RATE, 100)
    assert made.fetches.most("u", "c") == 1000
    assert made.fetch("u", "c", 1000, 0.0) == 0
    wait = made.fetch("u", "c", 500, 0.0)
    assert wait == 5
    assert made.fetches.throttled == 1
    # What was held back was not used.
    assert made.fetch("u", "c", 0, 0.0) == 0
    assert made.fetches.record("u", "c", 100, 0.0) == 1


def test_a_consumer_that_takes_too_much_time_gets_no_records() -> None:
    made = quotas()
    made.set(entity_of({"client-id": None}.items()), QuotaKey.REQUEST_PERCENTAGE, 1)
    assert made.requests.record("u", "c", 100, 0.0) == 1.0  # never longer than a sample
    assert made.fetch("u", "c", 10, 0.0) == 1.0
    assert (made.requests.throttled, made.fetches.throttled) == (1, 0)


def test_mutations_are_refused_when_the_bucket_is_empty() -> None:
    made = quotas()
    made.set(entity_of({"user": None}.items()), QuotaKey.CONTROLLER_MUTATION_RATE, 2)
    strict = MutationQuota(made.mutations, "u", "c", strict=True)
    strict.record(32, 0.0)  # 22 tokens: what is too much at once is accepted
    assert strict.throttle_ms(0.0) == 0
    with pytest.raises(KafkaError) as refused:
        strict.record(1, 0.0)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert strict.throttle_ms(0.0) == 5000
    assert strict.throttle_ms(1.5) == 3500
    assert strict.throttle_ms(60.0) == 0
    MutationQuota(made.mutations, "u", "c", strict=True).record(1, 5.0)


def test_older_clients_only_wait() -> None:
    made = quotas()
    made.set(entity_of({"user": None}.items()), QuotaKey.CONTROLLER_MUTATION_RATE, 2)
    lenient = MutationQuota(made.mutations, "u", "c", strict=False)
    lenient.record(32, 0.0)
    assert lenient.throttle_ms(0.0) == 5000
    lenient.record(2, 0.0)
    assert lenient.throttle_ms(0.0) == 6000


@pytest.mark.parametrize("limit", [5e-324, 1e-9, 1.0, 1e18, float(2**63), math.inf])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e12])
def test_extreme_quotas_give_waits_that_the_protocol_can_say(limit: float, value: float) -> None:
    made = quotas()
    for key in made.kinds:
        made.set(entity_of({"client-id": None}.items()), key, limit)
    waits = [made.produces.record("u", "c", value, 0.0), made.fetch("u", "c", int(value), 0.0)]
    waits += [made.mutations.record("u", "c", int(value), 0.0, strict=strict) for strict in (False, True)]
    assert all(0 <= milliseconds(wait) < 2**31 for wait in waits)
    assert made.fetches.most("u", "c") > 0


def test_a_million_client_ids_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST", 1000)
    made = quotas()
    for key in made.kinds:
        made.set(entity_of({"client-id": None}.items()), key, 100)
    for number in range(5_000):
        made.produces.record("u", f"client-{number}", 10, number / 1000)
        made.mutations.record("u", f"client-{number}", 10, number / 1000, strict=True)
    assert len(made.produces) == len(made.mutations) == 1000


def test_what_no_longer_counts_is_forgotten() -> None:
    made = quotas()
    for key in made.kinds:
        made.set(entity_of({"client-id": None}.items()), key, 100)
    for number in range(500):
        made.produces.record("u", f"client-{number}", 10, number / 100)
        made.mutations.record("u", f"client-{number}", 10, number / 100, strict=True)
    made.tick(8.0)
    assert (len(made.produces), len(made.mutations)) == (500, 0)
    made.tick(13.0)
    assert len(made.produces) == 299
    made.tick(16.0)
    assert len(made.produces) == 0


def test_long_client_ids_are_not_kept() -> None:
    made = quotas()
    made.set(entity_of({"client-id": None}.items()), PRODUCE, 100)
    assert made.produces.record("u", "x" * 32_000, 1000, 0.0) == 0
    assert made.produces.record("u", "x" * 32_000, 1000, 0.0) == 10
    assert made.produces.record("u", "x" * 31_999 + "y", 1000, 0.0) == 0
    assert all(len(client or "") < 200 for _, client in made.produces._used)


def test_a_changed_quota_counts_at_once() -> None:
    made = quotas()
    entity = entity_of({"client-id": "c"}.items())
    made.set(entity, PRODUCE, 100)
    assert made.produces.record("u", "c", 2000, 0.0) == 10
    made.set(entity, PRODUCE, 400)
    assert made.produces.record("u", "c", 0, 0.0) == 0
