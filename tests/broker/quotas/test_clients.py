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


def test_many_client_ids_take_bounded_memory() -> None:
    made = quotas()
    for key in made.kinds:
        made.set(entity_of({"client-id": None}.items()), key, 100)
    for number in range(2 * clients.MOST):
        made.produces.record("u", f"client-{number}", 10, number / clients.MOST)
        made.mutations.record("u", f"client-{number}", 10, number / clients.MOST, strict=True)
    assert len(made.produces) == len(made.mutations) == clients.MOST


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> ClientQuotas:
    """Quotas with room for few users and clients; each client has a quota, and so has ada."""
    monkeypatch.setattr(clients, "MOST", 100)
    made = quotas()
    for key in made.kinds:
        made.set(entity_of({"client-id": None}.items()), key, 100)
        made.set(entity_of({"user": "ada"}.items()), key, 100)
    return made


def invent(made: ClientQuotas, now: float, size: int = 10, count: int = 1000) -> None:
    """Another user invents client ids."""
    for number in range(count):
        made.produces.record("eve", f"invented-{number}", size, now)
        made.requests.record("eve", f"invented-{number}", size, now)
        made.fetch("eve", f"invented-{number}", size, now)
        made.mutations.record("eve", f"invented-{number}", size, now, strict=True)


def test_a_client_over_its_quota_stays_so_whatever_client_ids_others_invent(few: ClientQuotas) -> None:
    assert few.produces.record("bob", "app", 2000, 0.0) == 10
    assert few.requests.record("bob", "app", 2000, 0.0) == 1
    few.mutations.record("bob", "app", 2000, 0.0, strict=True)
    invent(few, 1.0)
    assert few.produces.wait("bob", "app", 2.0) == 10
    assert few.requests.wait("bob", "app", 2.0) == 1
    assert few.mutations.record("bob", "app", 1, 2.0, strict=True) == pytest.approx(7)


def test_a_consumer_that_waits_does_not_begin_anew(few: ClientQuotas) -> None:
    assert few.fetch("bob", "app", 1000, 0.0) == 0
    assert few.fetch("bob", "app", 500, 0.0) == 5
    invent(few, 1.0)
    assert few.fetch("bob", "app", 500, 1.0) > 0
    # When it no longer has to wait, it may be forgotten.
    few.tick(7.0)
    invent(few, 7.0)
    assert few.fetch("bob", "app", 1000, 7.0) == 0


def test_client_ids_take_no_room_from_users(few: ClientQuotas) -> None:
    assert few.produces.record("ada", "one", 900, 0.0) == 0
    invent(few, 0.0)
    assert few.produces.record("ada", "two", 200, 0.0) == 1


def test_without_room_the_clients_of_a_user_are_measured_together(few: ClientQuotas) -> None:
    invent(few, 0.0, size=2000, count=100)  # all of them are over their quotas
    assert few.produces.record("eve", "more", 2000, 0.0) == 10
    assert few.produces.record("eve", "yet more", 10, 0.0) > 10
    assert few.produces.record("bob", "app", 1000, 0.0) == 0
    assert few.produces.record("bob", "app", 1000, 0.0) == 10
    assert len(few.produces) == 102
    # Those that have their place keep it.
    assert few.produces.wait("eve", "invented-0", 0.0) == 10


def test_without_room_further_users_are_measured_together(few: ClientQuotas) -> None:
    few.set(entity_of({"user": None}.items()), PRODUCE, 100)
    for number in range(1000):
        few.produces.record(f"user-{number}", "app", 2000, 0.0)
    assert len(few.produces) == 101
    assert few.produces.wait("user-0", "app", 0.0) == 10
    assert few.produces.wait("user-5000", "app", 0.0) > 1000
    # Nothing of it counts for ever.
    assert few.produces.wait("user-5000", "app", 12.0) == 0
    for second in range(12, 15):
        few.tick(second)
    assert len(few.produces) == 0


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
    assert all(len(client or "") < 200 for _, client in made.produces._used._clients._free)


def test_a_changed_quota_counts_at_once() -> None:
    made = quotas()
    entity = entity_of({"client-id": "c"}.items())
    made.set(entity, PRODUCE, 100)
    assert made.produces.record("u", "c", 2000, 0.0) == 10
    made.set(entity, PRODUCE, 400)
    assert made.produces.record("u", "c", 0, 0.0) == 0
