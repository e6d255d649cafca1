"""OAUTHBEARER: a client proves who it is by a token (RFC 7628, KIP-255), and tokens that are not signed.

Pure. The client sends its token in one message. A token that is refused is answered with a JSON text; the client
acknowledges it, and the exchange fails then. How a signed token is checked is in
:mod:`barnabas_broker.security.tokens`, which needs optional packages; the exchange takes any :data:`Check`.

Tokens without a signature, which anybody can write, are accepted only where the configuration names Kafka's
``OAuthBearerUnsecuredValidatorCallbackHandler``: for tests and development.

Sources: Kafka's ``OAuthBearerSaslServer``, ``OAuthBearerClientInitialResponse``, ``ClaimValidationUtils``,
``OAuthBearerUnsecuredValidatorCallbackHandler``.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from barnabas_broker.security.sasl import Authenticated, AuthenticationFailed, Exchange

OAUTHBEARER: Final = "OAUTHBEARER"
#: The class that Kafka's configurations name for it.
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
#: Maximum characters of a token. Those of common providers have one to eight thousand.
LONGEST_TOKEN: Final = 32_768
_LONGEST_NAME: Final = 100
#: What ends each part of a message.
_END: Final = "\x01"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x21-\x7e \t\r\n]+"
_MESSAGE: Final = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:[A-Za-z]+={_VALUE}\x01)*)\x01")
_AUTH: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_FAILED: Final = (
    f"Authentication failed during authentication due to invalid credentials with SASL mechanism {OAUTHBEARER}"
)
#: The times of tokens, in ms, are not later.
_LATEST: Final = 2**53


class TokenRefused(Exception):
    """A token is not valid. The text is for the log, and has no part of the token.

    Args:
        reason: why.
        missing: the scopes that it lacks, as Kafka writes them; "" if it is refused for another reason.
    """

    def __init__(self, reason: str, missing: str = "") -> None:
        super().__init__(reason)
        self.missing = missing


class Token(NamedTuple):
    """A token that is valid.

    Attributes:
        user: whom it is for.
        expires_ms: when it ends, in ms since 1970.
    """

    user: str
    expires_ms: int


#: Checks a token: whom it is for. Raises :exc:`TokenRefused`.
Check = Callable[[str], Token]


class FirstMessage(NamedTuple):
    """Message of a client: its token, and the user as which it wants to act ("" for that of the token)."""

    token: str
    acting_as: str


def read(message: bytes) -> FirstMessage | None:
    """Read the message of a client; None if it is not valid."""
    try:
        found = _MESSAGE.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    pairs = [pair.partition("=") for pair in found[2].split(_END) if pair]
    auth = _AUTH.fullmatch(next((value for name, _, value in reversed(pairs) if name == "auth"), ""))
    if auth is None or auth[1].lower() != "bearer":
        return None
    return FirstMessage(auth[2], found[1] or "")


def bearer(check: Check) -> Exchange:
    """The exchange of OAUTHBEARER.

    Args:
        check: checks the token.

    Raises:
        AuthenticationFailed: the message is not valid, or the token is refused.
    """
    first = read((yield b""))
    if first is None:
        raise AuthenticationFailed(_FAILED)
    try:
        token = check(first.token)
    except TokenRefused as refused:
        answer = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
        if refused.missing:
            answer = f'{{"status":"insufficient_scope", "scope":{json.dumps(refused.missing)}}}'
        yield answer.encode()
        # Whatever the client says to it.
        raise AuthenticationFailed(answer, reason=str(refused)) from None
    if first.acting_as not in ("", token.user):
        wanted, user = first.acting_as[:_LONGEST_NAME], token.user[:_LONGEST_NAME]
        raise AuthenticationFailed(
            f"Authentication failed: Client requested an authorization id ({wanted}) that is different from the "
            f"token's principal name ({user})",
            token.user,
        )
    return Authenticated(token.user, b"", token.expires_ms)


# Claims


class ClaimNames(NamedTuple):
    """The names of claims.

    Attributes:
        user: whom a token is for.
        scope: what it is for.
    """

    user: str = "sub"
    scope: str = "scope"


class TokenRules(NamedTuple):
    """Requirements on the claims of a token.

    Attributes:
        audiences: one of these; empty if it must not be for an audience.
        issuer: who made it; "" for anybody whose key is in the set.
        names: the names of claims.
        skew_ms: by how much clocks may differ.
    """

    audiences: tuple[str, ...]
    issuer: str
    names: ClaimNames
    skew_ms: int


def user_of(claims: Mapping[str, Any], names: ClaimNames) -> str:
    """The user name in a token's claims.

    Raises:
        TokenRefused: it does not say so.
    """
    user = claims.get(names.user)
    if not isinstance(user, str) or not user.strip():
        raise TokenRefused(f"it has no claim {names.user} with a name")
    return user.strip()


def scopes_of(claims: Mapping[str, Any], names: ClaimNames) -> frozenset[str]:
    """The scopes in a token's claims; a text counts as one, as in Kafka.

    Raises:
        TokenRefused: a scope is empty, or there twice.
    """
    given = claims.get(names.scope)
    values = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    scopes = {value.strip() for value in values if isinstance(value, str)}
    if len(scopes) != len(values) or "" in scopes:
        raise TokenRefused(f"its claim {names.scope} is not valid")
    return frozenset(scopes)


def check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int, *, issued: bool) -> int:
    """Check when a token is valid.

    A token that is over is refused even within `skew_ms`: the session that it begins would be over as well.

    Args:
        claims: ``exp``, and ``iat`` and ``nbf`` if there are any.
        now_ms: the time, in ms since 1970.
        skew_ms: by how much clocks may differ.
        issued: whether ``iat`` is required.

    Returns:
        When it ends, in ms since 1970.

    Raises:
        TokenRefused: it is not valid now.
    """
    expires = _time(claims, "exp")
    begins, since = _time(claims, "nbf"), _time(claims, "iat")
    if expires is None:
        raise TokenRefused("it has no claim exp")
    if since is None and issued:
        raise TokenRefused("it has no claim iat")
    if expires <= now_ms:
        raise TokenRefused("it has expired")
    if max(begins or 0, 0) > now_ms + skew_ms:
        raise TokenRefused("it is not valid yet")
    if expires < max(begins or 0, since or 0):
        raise TokenRefused("it ends before it begins")
    return expires


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    """A time of a token, in ms since 1970; None if it has none."""
    value = claims.get(name)
    if value is None:
        return None
    # Not a boolean, nor NaN or an infinite time, which JSON has in Python.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value * 1000 < _LATEST:
        raise TokenRefused(f"its claim {name} is not a time")
    return int(value * 1000)


# Tokens without a signature


class UnsecuredTokens:
    """Reads tokens that are not signed: a client is whom its token names.

    Args:
        names: the names of claims.
        required: scopes that a token must have.
        skew_ms: by how much clocks may differ.
        wall_ms: the time of day, in ms.
    """

    def __init__(self, names: ClaimNames, required: tuple[str, ...], skew_ms: int, wall_ms: Callable[[], int]) -> None:
        self._names = names
        self._required = required
        self._skew_ms = skew_ms
        self._wall_ms = wall_ms

    def __call__(self, token: str) -> Token:
        """Check a token.

        Raises:
            TokenRefused: it is not one without a signature, or it is not valid now.
        """
        parts = token.split(".")
        if len(token) > LONGEST_TOKEN or len(parts) != 3 or parts[2]:
            raise TokenRefused("it is not a token without a signature")
        header, claims = read_object(parts[0]), read_object(parts[1])
        if header.get("alg") != "none":
            raise TokenRefused("its algorithm is not none")
        user = user_of(claims, self._names)
        if self._wall_ms() + self._skew_ms < (_time(claims, "iat") or 0):
            raise TokenRefused("it is not valid yet")
        expires = check_times(claims, self._wall_ms(), self._skew_ms, issued=False)
        missing = [scope for scope in self._required if scope not in scopes_of(claims, self._names)]
        if missing:
            raise TokenRefused(f"it lacks the scope {missing[0]}", f"[{', '.join(self._required)}]")
        return Token(user, expires)


def read_object(part: str, refusal: str = "it cannot be read") -> dict[str, Any]:
    """Read a JSON object in base64, a part of a token.

    Raises:
        TokenRefused: with `refusal`: it is none.
    """
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused(refusal) from None
    if not isinstance(found, dict):
        raise TokenRefused(refusal)
    return found
