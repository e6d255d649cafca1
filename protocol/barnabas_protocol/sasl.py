"""SASL: the messages by which a client proves who it is; brokers are clients of each other, too.

Pure. An exchange is a generator: it yields the messages to send, receives the answers, and ends when the broker has
accepted. PLAIN (RFC 4616) sends the password, and OAUTHBEARER (RFC 7628) a token, so use them over TLS. SCRAM
(RFC 5802, RFC 7677) does not: both sides prove that they know the password, and a broker that does not is refused.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Generator, Mapping
from typing import Final

from barnabas_protocol.scram import LEAST_ITERATIONS, ScramMechanism, exclusive_or

#: Sends the messages, receives the answers.
Exchange = Generator[bytes, bytes, None]

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
#: The mechanisms that need a user and a password.
MECHANISMS: Final = (PLAIN, *(each.title for each in ScramMechanism))
#: Rounds of SCRAM that a client accepts: more than Kafka allows, but not more than about a second's work.
MOST_ITERATIONS: Final = 1_000_000
_FIRST: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/]+=*),i=([0-9]{1,9})(?:,.*)?", re.DOTALL)
_LAST: Final = re.compile(r"v=([A-Za-z0-9+/]+=*)(?:,.*)?", re.DOTALL)


_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class SaslError(Exception):
    """The broker's answer is not valid, or it does not know the password; or a token cannot be sent."""


def exchange(mechanism: str, user: str, password: str, nonce: Callable[[], str]) -> Exchange:
    """The exchange of a mechanism.

    Args:
        mechanism: one of :data:`MECHANISMS`.
        user: who this client is.
        password: the user's.
        nonce: makes a random text of printable characters without commas.
    """
    if mechanism == PLAIN:
        return plain(user, password)
    return scram(ScramMechanism.of(mechanism), user, password, nonce())


def plain(user: str, password: str) -> Exchange:
    """PLAIN: one message with everything."""
    yield f"\0{user}\0{password}".encode()


def bearer(token: str, extensions: Mapping[str, str]) -> Exchange:
    """OAUTHBEARER: one message with the token. The broker answers nothing, or why it refuses the token.

    Args:
        token: the token.
        extensions: what else is sent, by name.

    Raises:
        SaslError: the token or an extension has other characters than it may have, at once; or the broker refuses the
            token and goes on. The text has no part of the token.
    """
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise SaslError("the token is empty, or has characters that no token has")
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise SaslError(f"the extension {name!r} must have a name of letters, not auth, and a value of ASCII text")
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    return _bearer(f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode())


def _bearer(message: bytes) -> Exchange:
    answer = yield message
    if answer:
        # The client has read it; the broker refuses the login with the same text.
        yield b"\x01"
        raise SaslError("the broker refuses the token, and goes on")


def scram(mechanism: ScramMechanism, user: str, password: str, nonce: str) -> Exchange:
    """SCRAM: a message with the name, and one with the proof.

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
    salted = mechanism.salted(password, _decoded(found[2]), iterations)
    key = mechanism.client_key(salted)
    final = f"c=biws,r={both}"
    message = f"{first},{_text(answer)},{final}".encode()
    proof = exclusive_or(key, mechanism.signature(mechanism.stored_key(key), message))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    verifier = _LAST.fullmatch(_text(answer))
    expected = mechanism.signature(mechanism.server_key(salted), message)
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
