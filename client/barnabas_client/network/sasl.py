"""SASL: the messages by which this client proves who it is.

Pure. An exchange is a generator: it yields the messages to send, receives the answers, and ends when the broker has
accepted. PLAIN (RFC 4616) sends the password, so use it over TLS. SCRAM (RFC 5802, RFC 7677) does not: both sides prove
that they know it, and a broker that does not is refused.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Generator
from typing import Final

#: Sends the messages, receives the answers.
Exchange = Generator[bytes, bytes, None]

#: The hash functions of the mechanisms of SCRAM.
SCRAM: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *SCRAM)
#: Rounds of the hash function: fewer are not safe (as in Kafka), more would only keep this client busy.
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 1_000_000
_FIRST: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/]+=*),i=([0-9]{1,9})(?:,.*)?", re.DOTALL)
_LAST: Final = re.compile(r"v=([A-Za-z0-9+/]+=*)(?:,.*)?", re.DOTALL)


class SaslError(Exception):
    """The broker's answer is not valid, or it does not know the password."""


def exchange(mechanism: str, user: str, password: str, nonce: Callable[[], str]) -> Exchange:
    """The exchange of a mechanism.

    Args:
        mechanism: one of :data:`MECHANISMS`.
        user: who this client is.
        password: the user's.
        nonce: makes a random text of printable characters without commas.
    """
    return plain(user, password) if mechanism == "PLAIN" else scram(SCRAM[mechanism], user, password, nonce())


def plain(user: str, password: str) -> Exchange:
    """PLAIN: one message with everything."""
    yield f"\0{user}\0{password}".encode()


def scram(algorithm: str, user: str, password: str, nonce: str) -> Exchange:
    """SCRAM with a hash function of Python's `hashlib`.

    Raises:
        SaslError: the answer is not valid, or the broker does not know the password.
    """
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    answer = yield f"n,,{first}".encode()
    found = _FIRST.fullmatch(_text(answer))
    if found is None:
        raise SaslError("the broker's first message of SCRAM is not valid")
    both, iterations = found[1], int(found[3])
    if not both.startswith(nonce) or both == nonce:
        raise SaslError("the broker's nonce of SCRAM does not continue this client's")
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise SaslError(f"the broker asks for {iterations} iterations of SCRAM, not {LEAST_ITERATIONS} or more")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), _decoded(found[2]), iterations)
    key = hmac.digest(salted, b"Client Key", algorithm)
    final = f"c=biws,r={both}"
    message = f"{first},{_text(answer)},{final}".encode()
    signature = hmac.digest(hashlib.new(algorithm, key).digest(), message, algorithm)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    verifier = _LAST.fullmatch(_text(answer))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    if verifier is None or not hmac.compare_digest(_decoded(verifier[1]), expected):
        raise SaslError("the broker has not proved that it knows the password")


def _text(answer: bytes) -> str:
    try:
        return answer.decode("utf-8")
    except UnicodeDecodeError:
        raise SaslError("the broker's message of SCRAM is not text") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("the broker's message of SCRAM is not base64") from None
