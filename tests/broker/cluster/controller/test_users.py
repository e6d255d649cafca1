"""Users of SCRAM in the cluster image: what may be changed, and how it is stored."""

import json

import pytest

from barnabas_broker.cluster.controller import Deletion, Upsertion, add_users, alter_users
from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.image_diff import difference
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.cluster.users import ScramCredentialDeleted, ScramCredentialSet, ScramSecretSet
from barnabas_broker.security.scram import ScramCredential
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.scram import ScramMechanism

SHA_256, SHA_512 = ScramMechanism
EMPTY = Image("cluster")


def secret() -> bytes:
    return b"a new secret"


def upsertion(user: str = "ada", mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt") -> Upsertion:
    return Upsertion(user, mechanism, iterations, salt, b"s" * 32)


def with_users(*changes: Upsertion) -> Image:
    return EMPTY.apply_all(alter_users(EMPTY, [], changes, secret)[0])


def test_a_credential_as_kafka_stores_it() -> None:
    events, outcome = alter_users(EMPTY, [], [upsertion()], secret)
    credential = ScramCredential.of_salted(SHA_256, b"s" * 32, b"salt", 4096)
    assert events == [ScramSecretSet(b"a new secret"), ScramCredentialSet("ada", SHA_256, credential)]
    assert outcome == {"ada": None}
    image = EMPTY.apply_all(events)
    assert image.users.of(SHA_256) == {"ada": credential}
    assert image.users.of(SHA_512) == {}


def test_the_secret_comes_once() -> None:
    events, _ = alter_users(with_users(upsertion()), [], [upsertion("bob")], secret)
    assert [type(event) for event in events] == [ScramCredentialSet]
    image = with_users(upsertion()).apply_all([ScramCredentialDeleted("ada", SHA_256)])
    assert (dict(image.users.credentials), image.users.secret) == ({}, b"a new secret")


@pytest.mark.parametrize(
    ("deletions", "upsertions", "expected"),
    [
        ([Deletion("ada", 1)], [], {"ada": None}),
        ([Deletion("ada", 2)], [], {"ada": ErrorCode.RESOURCE_NOT_FOUND}),
        ([Deletion("eve", 1)], [], {"eve": ErrorCode.RESOURCE_NOT_FOUND}),
        ([Deletion("", 1)], [], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([Deletion("ada", 0)], [], {"ada": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([], [upsertion(iterations=4095)], {"ada": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion(iterations=16_385)], {"ada": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion(iterations=16_384)], {"ada": None}),
        ([], [upsertion(mechanism=3)], {"ada": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([], [upsertion("")], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion("x" * 1025)], {"x" * 1025: ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion(salt=bytes(1025))], {"ada": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion(), upsertion(mechanism=2)], {"ada": ErrorCode.DUPLICATE_RESOURCE}),
        ([Deletion("ada", 1)], [upsertion()], {"ada": ErrorCode.DUPLICATE_RESOURCE}),
        ([Deletion("ada", 1), Deletion("ada", 1)], [], {"ada": ErrorCode.DUPLICATE_RESOURCE}),
        # The first error of a user stays.
        ([Deletion("ada", 0)], [upsertion()], {"ada": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([Deletion("ada", 1)], [upsertion("bob"), upsertion("eve", 9)], {"ada": None, "bob": None, "eve": 33}),
    ],
)
def test_changes(deletions: list[Deletion], upsertions: list[Upsertion], expected: dict[str, int | None]) -> None:
    events, outcome = alter_users(with_users(upsertion()), deletions, upsertions, secret)
    assert {user: error and error.code for user, error in outcome.items()} == expected
    assert len(events) == sum(code is None for code in expected.values())


def test_users_who_exist_are_not_added() -> None:
    new = {(user, SHA_512): ScramCredential.of_salted(SHA_512, b"x", b"", 4096) for user in ("ada", "bob")}
    events, added = add_users(with_users(upsertion()), new, secret)
    assert added == ["bob"]
    assert events == [ScramCredentialSet("bob", SHA_512, new["bob", SHA_512])]
    assert [type(event) for event in add_users(EMPTY, new, secret)[0]] == [ScramSecretSet, *[ScramCredentialSet] * 2]


def test_events_are_stored_and_read() -> None:
    image = with_users(upsertion(), upsertion("zoë", 2))
    events: list[Event] = [*image.snapshot(), ScramCredentialDeleted("ada", SHA_256)]
    assert [event_from_json(event_to_json(event)) for event in events] == events
    assert EMPTY.apply_all(image.snapshot()) == image


def test_the_difference_of_two_images() -> None:
    old = with_users(upsertion(), upsertion("bob"))
    new = old.apply_all(
        [ScramCredentialDeleted("ada", SHA_256), *with_users(upsertion("cyd", 2)).users.events_from(EMPTY.users)]
    )
    assert old.apply_all(difference(old, new)) == new
    assert difference(new, new) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stored_key", "00"),
        ("server_key", "x" * 64),
        ("salt", 5),
        ("iterations", "4096"),
        ("iterations", True),
        ("mechanism", "PLAIN"),
        ("user", ""),
        ("user", None),
    ],
)
def test_a_damaged_event_is_refused_without_its_keys(field: str, value: object) -> None:
    line = event_to_json(with_users(upsertion()).snapshot()[-2])
    fields = json.loads(line)
    assert fields["event"] == "ScramCredentialSet"
    with pytest.raises(StoreError) as refused:
        event_from_json(json.dumps(fields | {field: value}))
    assert fields["server_key"] not in str(refused.value)
    assert fields["stored_key"] not in str(refused.value)


def test_nothing_secret_is_shown() -> None:
    image = with_users(upsertion())
    shown = repr((image, image.snapshot(), upsertion()))
    assert "a new secret" not in shown
    assert "ssss" not in shown
    assert str(image.users.of(SHA_256)["ada"].server_key) not in shown
