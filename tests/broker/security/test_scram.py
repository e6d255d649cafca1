"""SCRAM in the broker: the examples of the RFCs, clients that lie, and users who do not exist."""

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.security.sasl import Authenticated, AuthenticationFailed, Exchange
from barnabas_broker.security.scram import OLD_LIBRDKAFKA, ScramCredential, ScramUsers, scram
from barnabas_protocol.sasl import SaslError
from barnabas_protocol.sasl import scram as client_of
from barnabas_protocol.scram import LEAST_ITERATIONS, ScramMechanism

SHA_256, SHA_512 = ScramMechanism
SECRET = b"secret of the cluster"
ADA = ScramCredential.of_password(SHA_256, "lovelace", b"0123456789abcdef")


def users(*names: str, mechanism: ScramMechanism = SHA_256, credential: ScramCredential = ADA) -> ScramUsers:
    return ScramUsers(mechanism, dict.fromkeys(names, credential), SECRET)


def opened(known: ScramUsers, nonce: str = "broker") -> Exchange:
    exchange = scram(known, nonce)
    assert next(exchange) == b""
    return exchange


def finish(exchange: Exchange, message: bytes) -> Authenticated:
    with pytest.raises(StopIteration) as done:
        exchange.send(message)
    found: Authenticated = done.value.value
    return found


def log_in(known: ScramUsers, user: str, password: str) -> Authenticated:
    client, broker = client_of(known.mechanism, user, password, "nonce"), opened(known)
    who = finish(broker, client.send(broker.send(next(client))))
    with pytest.raises(StopIteration):
        client.send(who.answer)
    return who


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = users("user", credential=ScramCredential.of_password(SHA_256, "pencil", salt))
    exchange = opened(known, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    challenge = exchange.send(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    proof = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert finish(exchange, proof) == Authenticated("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", ["ada", "zoë", "a=b,c", "=2C", " "])
def test_a_client_and_the_broker(mechanism: ScramMechanism, name: str) -> None:
    credential = ScramCredential.of_password(mechanism, "pä,ss", b"salt", 5000)
    assert log_in(users(name, mechanism=mechanism, credential=credential), name, "pä,ss").user == name


@pytest.mark.parametrize(("user", "password"), [("ada", "hush"), ("eve", "lovelace")])
def test_a_wrong_password_and_an_unknown_user_fail_alike(user: str, password: str) -> None:
    known = users("ada")
    client, broker = client_of(SHA_256, user, password, "nonce"), opened(known)
    final = client.send(broker.send(next(client)))
    with pytest.raises(AuthenticationFailed) as failed:
        broker.send(final)
    assert str(failed.value) == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert failed.value.user == user


def challenge_of(known: ScramUsers, user: str) -> tuple[bytes, int]:
    challenge = opened(known).send(f"n,,n={user},r=nonce".encode()).decode()
    _, salt, iterations = challenge.split(",")
    return base64.b64decode(salt.removeprefix("s=")), int(iterations.removeprefix("i="))


def test_an_unknown_user_gets_the_same_salt_each_time() -> None:
    one, other = users("ada"), users("ada", "bob")
    assert challenge_of(one, "eve") == challenge_of(one, "eve") == challenge_of(other, "eve")
    assert challenge_of(one, "eve") != challenge_of(one, "mallory")
    assert challenge_of(ScramUsers(SHA_256, {"ada": ADA}, b"another cluster"), "eve") != challenge_of(one, "eve")


@pytest.mark.parametrize(
    ("salt", "iterations", "check"),
    [
        (b"0123456789abcdefghijklmn" + b"o", 8192, bytes.isalnum),
        (bytes(range(100, 131)), 16_384, lambda salt: not salt.isalnum()),
    ],
)
def test_an_unknown_user_looks_like_a_known_one(salt: bytes, iterations: int, check: Callable[[bytes], bool]) -> None:
    credential = ScramCredential.of_password(SHA_256, "lovelace", salt, iterations)
    fake, rounds = challenge_of(users("ada", credential=credential), "eve")
    assert (len(fake), rounds) == (len(salt), iterations)
    assert check(fake)


def test_unknown_users_are_spread_over_the_kinds_of_users() -> None:
    other = ScramCredential.of_password(SHA_256, "lovelace", b"0123456789", 8192)
    known = ScramUsers(SHA_256, {"ada": ADA, "bob": ADA, "cyd": ADA, "dan": other}, SECRET)
    kinds = [challenge_of(known, f"user{number}")[1] for number in range(400)]
    assert set(kinds) == {4096, 8192}
    assert 50 < kinds.count(8192) < 150
    # Another user changes few of them.
    more = ScramUsers(SHA_256, {f"x{number}": ADA if number % 4 else other for number in range(40)}, SECRET)
    assert sum(challenge_of(more, f"user{number}")[1] != kind for number, kind in enumerate(kinds)) < 40


def test_without_any_user_there_is_a_challenge_too() -> None:
    salt, iterations = challenge_of(users(), "eve")
    assert (len(salt), iterations) == (16, LEAST_ITERATIONS)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,",
        b"n,,n=ada",
        b"n,,n=,r=nonce",
        b"n,,r=nonce,n=ada",
        b"n,,n=ada,r=",
        b"n,,n=a=b,r=nonce",
        b"n,,n=ada=2,r=nonce",
        b"y,,n=ada,r=nonce",
        b"p=tls-unique,,n=ada,r=nonce",
        b"n,a=eve,n=ada,r=nonce",
        b"n,,m=x,n=ada,r=nonce",
        b"n,,n=ada,r=nonce,tokenauth=true",
        b"n,,n=ada,r=no\0nce",
        b"\0ada\0lovelace",
    ],
)
def test_first_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="Authentication failed"):
        opened(users("ada")).send(message)


def test_an_authorization_id_that_is_the_user() -> None:
    assert opened(users("ada")).send(b"n,a=ada,n=ada,r=nonce").startswith(b"r=noncebroker,s=")


def test_extensions_that_kafka_ignores() -> None:
    assert opened(users("ada")).send(b"n,,n=ada,r=nonce,tokenauth=false").startswith(b"r=noncebroker,s=")


def right_answer(known: ScramUsers) -> tuple[Exchange, bytes]:
    client, broker = client_of(SHA_256, "ada", "lovelace", "nonce"), opened(known)
    return broker, client.send(broker.send(next(client)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"r=noncebroker", b"r=noncebrokeR"),
        (b"r=noncebroker", b"r=nonce"),
        (b"c=biws", b"c=cD10bHMtdW5pcXVlLCw="),
        (b"c=biws", b"c=!"),
        (b",p=", b",p=AA"),
        (b",p=", b",q="),
        (b",p=", b",x=\0,p="),
    ],
)
def test_last_messages_that_are_refused(old: bytes, new: bytes) -> None:
    broker, final = right_answer(users("ada"))
    assert old in final
    with pytest.raises(AuthenticationFailed):
        broker.send(final.replace(old, new))


def test_a_client_with_an_old_librdkafka_is_named_in_the_log() -> None:
    broker, final = right_answer(users("ada"))
    with pytest.raises(AuthenticationFailed, match="due to invalid credentials") as raised:
        broker.send(final.replace(b"r=noncebroker", b"r=noncenoncebroker"))
    assert raised.value.reason == OLD_LIBRDKAFKA


def test_a_proof_of_the_wrong_size() -> None:
    broker, final = right_answer(users("ada"))
    with pytest.raises(AuthenticationFailed):
        broker.send(final[: final.index(b",p=")] + b",p=AAAA")


@settings(max_examples=300, deadline=None)
@given(first=st.binary(max_size=60), last=st.binary(max_size=60))
def test_no_other_message_is_accepted(first: bytes, last: bytes) -> None:
    for exchange, message in ((opened(users("ada")), first), (right_answer(users("ada"))[0], last)):
        with pytest.raises(AuthenticationFailed):
            exchange.send(message)


def test_the_client_refuses_a_broker_that_does_not_know_the_user() -> None:
    client, broker = client_of(SHA_256, "ada", "lovelace", "nonce"), opened(users("ada"))
    client.send(broker.send(next(client)))
    with pytest.raises(SaslError):
        client.send(b"v=AAAA")


def test_keys_are_not_shown() -> None:
    shown = f"{ADA!r} {ADA} {users('ada')!r}"
    for secret in (ADA.salt, ADA.stored_key, ADA.server_key):
        assert repr(secret)[2:-1] not in shown
    assert "iterations=4096" in shown
