"""The messages of SASL: the examples of the RFCs, and brokers that lie."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_protocol.sasl import MECHANISMS, SaslError, exchange, plain, scram
from barnabas_protocol.scram import ScramMechanism


def test_plain() -> None:
    messages = plain("zoë", "pä,ss")
    assert next(messages) == "\0zoë\0pä,ss".encode()
    with pytest.raises(StopIteration):
        messages.send(b"")


def test_the_example_of_rfc_7677() -> None:
    messages = scram(ScramMechanism.SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert next(messages) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = messages.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        messages.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


class ScramBroker:
    """The other side of SCRAM, as RFC 5802 describes it."""

    def __init__(self, mechanism: str, password: str, iterations: int = 4096) -> None:
        self.algorithm = ScramMechanism.of(mechanism).algorithm
        self.salt = b"salt of the broker"
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac(self.algorithm, password.encode(), self.salt, iterations)
        self.user = ""

    def first(self, message: bytes) -> bytes:
        self.bare = message.decode().removeprefix("n,,")
        name, nonce = self.bare.split(",r=")
        self.user = name.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
        salt = base64.b64encode(self.salt).decode()
        self.challenge = f"r={nonce}more,s={salt},i={self.iterations}"
        return self.challenge.encode()

    def last(self, message: bytes) -> bytes:
        without, _, proof = message.decode().rpartition(",p=")
        signed = f"{self.bare},{self.challenge},{without}".encode()
        key = hmac.digest(self.salted, b"Client Key", self.algorithm)
        stored = hashlib.new(self.algorithm, key).digest()
        signature = hmac.digest(stored, signed, self.algorithm)
        shown = bytes(one ^ other for one, other in zip(base64.b64decode(proof), signature, strict=True))
        assert hashlib.new(self.algorithm, shown).digest() == stored
        server = hmac.digest(self.salted, b"Server Key", self.algorithm)
        return b"v=" + base64.b64encode(hmac.digest(server, signed, self.algorithm))


@pytest.mark.parametrize("mechanism", [each.title for each in ScramMechanism])
@settings(max_examples=20)  # each of them takes thousands of rounds of the hash function
@given(user=st.text(min_size=1), password=st.text(min_size=1))
def test_both_sides_agree(mechanism: str, user: str, password: str) -> None:
    user, password = (text.encode("utf-8", "replace").decode() for text in (user, password))
    broker = ScramBroker(mechanism, password)
    messages = exchange(mechanism, user, password, lambda: "nonce")
    final = messages.send(broker.first(next(messages)))
    assert broker.user == user
    with pytest.raises(StopIteration):
        messages.send(broker.last(final))


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    broker, other = ScramBroker("SCRAM-SHA-256", "right"), ScramBroker("SCRAM-SHA-256", "wrong")
    messages = exchange("SCRAM-SHA-256", "ada", "right", lambda: "nonce")
    final = messages.send(broker.first(next(messages)))
    broker.last(final)
    server = hmac.digest(other.salted, b"Server Key", "sha256")
    with pytest.raises(SaslError, match="has not proved that it knows the password"):
        messages.send(b"v=" + base64.b64encode(hmac.digest(server, b"x", "sha256")))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "first message of SCRAM is not valid"),
        (b"\xff", "is not text"),
        (b"e=other-error", "first message of SCRAM is not valid"),
        (b"m=x,r=nonce1,s=AAAA,i=4096", "first message of SCRAM is not valid"),
        (b"r=nonce,s=AAAA,i=4096", "does not continue this client's"),
        (b"r=other1,s=AAAA,i=4096", "does not continue this client's"),
        (b"r=nonce1,s=AAAA,i=4095", "asks for 4095 iterations"),
        (b"r=nonce1,s=AAAA,i=999999999", "asks for 999999999 iterations"),
        (b"r=nonce1,s=AAAAA,i=4096", "is not base64"),
    ],
)
def test_answers_that_are_refused(answer: bytes, said: str) -> None:
    messages = scram(ScramMechanism.SCRAM_SHA_256, "ada", "hush", "nonce")
    next(messages)
    with pytest.raises(SaslError, match=said):
        messages.send(answer)


@given(mechanism=st.sampled_from(MECHANISMS), answers=st.lists(st.binary(), min_size=3, max_size=3))
def test_no_bytes_are_a_proof(mechanism: str, answers: list[bytes]) -> None:
    messages = exchange(mechanism, "ada", "hush", lambda: "nonce")
    next(messages)
    if mechanism == "PLAIN":
        return
    refused = False
    for answer in answers:
        try:
            messages.send(answer)
        except SaslError:
            refused = True
            break
    assert refused
