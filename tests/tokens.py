"""A provider of tokens for tests: its key, its set of keys as a file, and the tokens that it signs."""

import base64
import functools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER: Final = "https://issuer.example.com"
AUDIENCE: Final = "kafka"


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@functools.cache
def first_key() -> rsa.RSAPrivateKey:
    """The key that providers begin with: making one takes a second."""
    return rsa_key()


def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    """The entry of a key in a set."""
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), **more}


def claims(user: str = "ada", seconds: float = 300, now: float | None = None, **more: Any) -> dict[str, Any]:
    """What a token says; a claim that is None is left out."""
    began = time.time() if now is None else now
    given = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": began, "exp": began + seconds, **more}
    return {name: value for name, value in given.items() if value is not None}


def encoded(value: Mapping[str, Any] | bytes) -> str:
    """JSON in base64, as tokens have it."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def unsecured(**more: Any) -> str:
    """A token without a signature."""
    return f"{encoded({'alg': 'none'})}.{encoded(claims(**more))}."


class TokenMaker:
    """A provider of tokens.

    Args:
        folder: for its set of keys.
    """

    def __init__(self, folder: Path) -> None:
        self.key = first_key()
        self.kid = "first"
        self.file = folder / "jwks.json"
        self.write()

    @property
    def url(self) -> str:
        """Where the set of keys is."""
        return self.file.as_uri()

    @property
    def keys(self) -> bytes:
        """The set of keys."""
        return json.dumps({"keys": [jwk(self.key, kid=self.kid, use="sig", alg="RS256")]}).encode()

    def write(self) -> None:
        """Write the set of keys."""
        self.file.write_bytes(self.keys)

    def rotate(self) -> None:
        """Take another key from now on."""
        self.key, self.kid = rsa_key(), f"{self.kid}-next"
        self.write()

    def token(self, user: str = "ada", seconds: float = 300, **more: Any) -> str:
        """A token that is valid."""
        return jwt.encode(claims(user, seconds, **more), self.key, "RS256", {"kid": self.kid})

    def settings(self, listener: str) -> dict[str, str]:
        """The keys of a broker's listener that takes the tokens."""
        prefix = f"listener.name.{listener.lower()}."
        return {
            f"{prefix}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.url,
            f"{prefix}oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{prefix}oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
        }
