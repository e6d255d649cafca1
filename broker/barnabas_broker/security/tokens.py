"""Signed tokens: JSON Web Tokens, and the keys by which they are checked (RFC 7519, RFC 7517, KIP-768).

Pure. Imported only where OAUTHBEARER is configured, because it needs PyJWT and cryptography (``barnabas[oauth]``).

A key has the algorithms that it may be used with: its own ``alg``, otherwise those of its kind. All are asymmetric, so
that a token is never checked with a public key as if it were a password, and ``none`` is not among them. Which key is
taken depends on the token's ``kid``; what else its header says of keys (``jku``, ``jwk``, ``x5u``) is not read.

Sources: Kafka's ``BrokerJwtValidator`` and its library, jose4j.
"""

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from barnabas_broker.security.bearer import (
    LONGEST_TOKEN,
    Token,
    TokenRefused,
    TokenRules,
    check_times,
    read_object,
    scopes_of,
    user_of,
)
from barnabas_protocol.printable import printable

#: Maximum bytes of a set of keys, and keys.
LARGEST_SET: Final = 1024 * 1024
MOST_KEYS: Final = 200
_LONGEST_HEADER: Final = 4096
_LONGEST_KID: Final = 1000
#: The sizes of RSA keys, in bits: the check of a signature takes longer than 1 ms with larger ones.
_RSA_BITS: Final = range(2048, 8192 + 1)
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
#: Keys that are tried for a token without a kid.
_TRIES: Final = 5
_SHOWN: Final = 100
_NOT_A_TOKEN: Final = "it is not a JSON Web Token"

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class KeysRefused(ValueError):
    """A text is not a set of keys; the message says why, and has no key."""


class TokenKey(NamedTuple):
    """A key by which tokens are checked.

    Attributes:
        kid: its id; "" if it has none.
        algorithms: that it may be used with.
        key: the public key.
    """

    kid: str
    algorithms: tuple[str, ...]
    key: PublicKey


class UnknownKey(TokenRefused):
    """None of the keys fits a token; there may be a newer set that has one."""


class KeySet:
    """The keys of a provider of tokens.

    Args:
        keys: the keys.
    """

    def __init__(self, keys: tuple[TokenKey, ...]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    @classmethod
    def of_json(cls, text: bytes) -> "KeySet":
        """Read a JWK set. Keys that are not for signatures, or of a kind that is not served, are left out.

        This takes some milliseconds for many keys.

        Raises:
            KeysRefused: it is not one, or has no key that can be used.
        """
        if len(text) > LARGEST_SET:
            raise KeysRefused(f"it has more than {LARGEST_SET} bytes")
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            raise KeysRefused("it is not JSON") from None
        entries = given.get("keys") if isinstance(given, dict) else None
        if not isinstance(entries, list):
            raise KeysRefused('it is not a JWK set: {"keys": [...]}')
        if len(entries) > MOST_KEYS:
            raise KeysRefused(f"it has more than {MOST_KEYS} keys")
        keys = tuple(key for each in entries if isinstance(each, dict) and (key := _key(each)) is not None)
        if not keys:
            raise KeysRefused("it has no RSA, EC or Ed25519 key for signatures")
        return cls(keys)

    def find(self, algorithm: str, kid: str | None) -> list[TokenKey]:
        """The keys that a token may be signed by."""
        found = [key for key in self._keys if algorithm in key.algorithms and kid in (None, key.kid)]
        return found[:_TRIES]


def _key(entry: dict[str, Any]) -> TokenKey | None:
    """A key of a set; None if it cannot be used."""
    if entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
        return None
    # Not a private key, even if the set has it.
    public: dict[str, Any] = {name: entry[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in entry}
    kid, wanted = entry.get("kid", ""), entry.get("alg")
    try:
        key = jwt.PyJWK(public).key
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        return None
    algorithms = _algorithms(key)
    if wanted is not None:
        algorithms = tuple(each for each in algorithms if each == wanted)
    if not isinstance(kid, str) or not algorithms:
        return None
    return TokenKey(kid, algorithms, key)


def _algorithms(key: object) -> tuple[str, ...]:
    """The algorithms that a key may be used with; none if it is not strong enough, or would take long."""
    if isinstance(key, rsa.RSAPublicKey):
        return _RSA if key.key_size in _RSA_BITS else ()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return (_CURVES[key.curve.name],) if key.curve.name in _CURVES else ()
    return ("EdDSA",) if isinstance(key, ed25519.Ed25519PublicKey) else ()


class SignedTokens:
    """Checks tokens.

    Args:
        rules: what they must say.
        keys: the keys now; None while there are none.
        wall_ms: the time of day, in ms.
        missing: called if a token has a key that is not among them.
    """

    def __init__(
        self,
        rules: TokenRules,
        keys: Callable[[], KeySet | None],
        wall_ms: Callable[[], int],
        missing: Callable[[], None],
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._wall_ms = wall_ms
        self._missing = missing

    def __call__(self, token: str) -> Token:
        """Check a token.

        Raises:
            TokenRefused: it is not valid.
        """
        keys = self._keys()
        if keys is None:
            raise TokenRefused("the keys of the provider are not known yet (sasl.oauthbearer.jwks.endpoint.url)")
        try:
            return check(token, keys, self._rules, self._wall_ms())
        except UnknownKey:
            self._missing()
            raise


def check(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> Token:
    """Check a token: its signature first, then what it says.

    Args:
        token: the token.
        keys: those that may have signed it.
        rules: what it must say.
        now_ms: the time, in ms since 1970.

    Raises:
        TokenRefused: it is not valid; :exc:`UnknownKey` if none of the keys may have signed it.
    """
    if len(token) > LONGEST_TOKEN:
        raise TokenRefused(f"it has more than {LONGEST_TOKEN} characters")
    header = _header(token)
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(kid, str | None) or len(kid or "") > _LONGEST_KID:
        raise TokenRefused("its header is not valid")
    if "crit" in header or header.get("b64", True) is not True:
        raise TokenRefused("its header asks for extensions")
    found = keys.find(algorithm, kid)
    if not found:
        shown = printable(f"{algorithm[:_SHOWN]}, kid {kid[:_SHOWN]}" if kid is not None else algorithm[:_SHOWN])
        raise UnknownKey(f"no key of the provider is for it (algorithm {shown})")
    claims = _claims(token, found, rules)
    expires = check_times(claims, now_ms, rules.skew_ms, issued=True)
    scopes_of(claims, rules.names)
    return Token(user_of(claims, rules.names), expires)


def _claims(token: str, keys: list[TokenKey], rules: TokenRules) -> dict[str, Any]:
    """The claims of a token, if one of the keys has signed it."""
    for key in keys:
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=list(rules.audiences) or None,
                issuer=rules.issuer or None,
                # The times are checked here, by the clock that is given.
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except jwt.InvalidSignatureError:
            continue
        except jwt.PyJWTError as error:
            raise TokenRefused(printable(str(error)[:_SHOWN])) from None
        except (ValueError, RecursionError):
            raise TokenRefused("it cannot be read") from None
    raise TokenRefused("its signature is wrong")


def _header(token: str) -> dict[str, Any]:
    part = token.partition(".")[0]
    if token.count(".") != 2 or len(part) > _LONGEST_HEADER:
        raise TokenRefused(_NOT_A_TOKEN)
    return read_object(part, _NOT_A_TOKEN)
