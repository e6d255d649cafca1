"""Quotas in the cluster image: changes, their stored form, and what is refused."""

import math

import pytest

from barnabas_broker.cluster.controller import QuotaAlteration, alter_quotas
from barnabas_broker.cluster.controller.quotas import LONGEST
from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import Image
from barnabas_broker.cluster.image_diff import difference
from barnabas_broker.cluster.quotas import ClientQuotaRemoved, ClientQuotaSet, QuotaEvent
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.quotas.entities import QuotaEntity, entity_of
from barnabas_protocol.errors import ErrorCode, KafkaError

EMPTY = Image("cluster")
ADA = entity_of([("user", "ada")])
APP = entity_of([("user", None), ("client-id", "app")])


def alteration(entity: QuotaEntity, **values: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity, list(values.items()))


def changed(image: Image, *alterations: QuotaAlteration) -> Image:
    events, outcome = alter_quotas(image, alterations)
    assert set(outcome.values()) == {None}
    return image.apply_all(events)


def refused(entity: QuotaEntity, **values: float | None) -> str:
    events, outcome = alter_quotas(EMPTY, [alteration(entity, **values)])
    error = outcome[entity]
    assert not events
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.INVALID_REQUEST
    return error.message


def test_quotas_are_set_changed_and_removed() -> None:
    image = changed(EMPTY, alteration(ADA, producer_byte_rate=1024, request_percentage=12.5), alteration(APP))
    assert image.quotas == {ADA: {"producer_byte_rate": 1024, "request_percentage": 12.5}}
    image = changed(image, alteration(ADA, producer_byte_rate=2048, request_percentage=None, consumer_byte_rate=None))
    assert image.quotas == {ADA: {"producer_byte_rate": 2048}}
    assert not alter_quotas(image, [alteration(ADA, producer_byte_rate=2048)])[0]
    assert changed(image, alteration(ADA, producer_byte_rate=None)).quotas == {}


def test_an_entity_that_is_given_twice_is_changed_once() -> None:
    events, outcome = alter_quotas(
        EMPTY, [alteration(ADA, producer_byte_rate=1), alteration(ADA, producer_byte_rate=2)]
    )
    assert events == [ClientQuotaSet(ADA, "producer_byte_rate", 1)]
    error = outcome[ADA]
    assert error is not None
    assert error.message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=ada})"


def test_a_key_that_is_given_twice_is_refused() -> None:
    events, outcome = alter_quotas(
        EMPTY, [QuotaAlteration(ADA, [("producer_byte_rate", 1.0), ("producer_byte_rate", 1.0)])]
    )
    assert not events
    assert outcome[ADA] is not None


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ((), "Invalid empty client quota entity"),
        ((("user", ""),), "Empty user not supported"),
        ((("group", "g"),), "Unhandled client quota entity type: group"),
        ((("ip", "1.2.3.4"), ("user", "ada")), "Invalid quota entity combination"),
        ((("ip", "nowhere"),), "nowhere is not a valid IP or resolvable host."),
        ((("user", "x" * (LONGEST + 1)),), f"must have at most {LONGEST} bytes"),
    ],
)
def test_wrong_entities(entity: QuotaEntity, message: str) -> None:
    assert message in refused(entity, producer_byte_rate=1)


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, -math.inf, math.inf, math.nan])
@pytest.mark.parametrize("key", ["producer_byte_rate", "request_percentage"])
def test_quotas_are_above_zero(key: str, value: float) -> None:
    assert refused(ADA, **{key: value}) == f"Quota {key} must be greater than 0, and finite"


def test_whole_numbers() -> None:
    assert refused(ADA, producer_byte_rate=1.5) == "producer_byte_rate cannot be a fractional value."
    assert "too large for a LONG" in refused(ADA, consumer_byte_rate=1e30)
    assert "too large for an INT" in refused(entity_of([("ip", None)]), connection_creation_rate=2.0**31)
    image = changed(EMPTY, alteration(ADA, request_percentage=12.5, controller_mutation_rate=0.001))
    assert image.quotas[ADA] == {"request_percentage": 12.5, "controller_mutation_rate": 0.001}


def test_keys_of_other_entities() -> None:
    assert refused(ADA, connection_creation_rate=1) == "Invalid configuration key connection_creation_rate"
    assert refused(entity_of([("ip", "::1")]), producer_byte_rate=1) == "Invalid configuration key producer_byte_rate"
    assert refused(ADA, nothing=1) == "Invalid configuration key nothing"


def test_the_image_comes_back_from_its_events_and_its_differences() -> None:
    image = changed(EMPTY, alteration(ADA, producer_byte_rate=1, request_percentage=12.5), alteration(APP))
    image = changed(image, alteration(APP, consumer_byte_rate=5))
    stored = [event_from_json(event_to_json(event)) for event in image.snapshot()]
    assert EMPTY.apply_all(stored) == image
    for old, new in ((EMPTY, image), (image, EMPTY), (changed(image, alteration(ADA, producer_byte_rate=7)), image)):
        assert old.apply_all(difference(old, new)).quotas == new.quotas


@pytest.mark.parametrize(
    "event", [ClientQuotaSet(APP, "request_percentage", math.inf), ClientQuotaRemoved(ADA, "producer_byte_rate")]
)
def test_the_stored_form(event: QuotaEvent) -> None:
    line = event_to_json(event)
    assert "Infinity" not in line
    assert event_from_json(line) == event


@pytest.mark.parametrize(
    "line",
    [
        '{"event":"ClientQuotaSet","entity":{},"key":"producer_byte_rate","value":1}',
        '{"event":"ClientQuotaSet","entity":{"user":1},"key":"producer_byte_rate","value":1}',
        '{"event":"ClientQuotaSet","entity":{"group":"g"},"key":"producer_byte_rate","value":1}',
        '{"event":"ClientQuotaSet","entity":{"user":"a"},"key":"other","value":1}',
        '{"event":"ClientQuotaSet","entity":{"user":"a"},"key":"producer_byte_rate","value":"nan"}',
        '{"event":"ClientQuotaSet","entity":{"user":"a"},"key":"producer_byte_rate","value":0}',
        '{"event":"ClientQuotaSet","entity":{"user":"a"},"key":"producer_byte_rate"}',
        '{"event":"ClientQuotaRemoved","entity":["user"],"key":"producer_byte_rate"}',
    ],
)
def test_damaged_lines(line: str) -> None:
    with pytest.raises(StoreError):
        event_from_json(line)
