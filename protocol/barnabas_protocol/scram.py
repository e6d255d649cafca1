"""SCRAM: its mechanisms, and what is derived from a password (RFC 5802, RFC 7677).

Pure. Client and broker compute the same: the client from the password, the broker from the two keys that it stores.
Passwords and names are taken as they are, in UTF-8, as Kafka does, without the normalization of the RFC.
"""

import hashlib
import hmac
from enum import IntEnum
from typing import Final

#: Bounds for the rounds of the hash function, as Kafka has them.
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384


class ScramMechanism(IntEnum):
    """A mechanism, with Kafka's code."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def title(self) -> str:
        """Its name in SASL, such as "SCRAM-SHA-256"."""
        return self.name.replace("_", "-")

    @property
    def algorithm(self) -> str:
        """Its hash function, by the name that `hashlib` has for it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def size(self) -> int:
        """Bytes of a hash, and so of each key."""
        return hashlib.new(self.algorithm).digest_size

    @classmethod
    def of(cls, title: str) -> "ScramMechanism":
        """The mechanism with this name in SASL.

        Raises:
            ValueError: there is none.
        """
        for each in cls:
            if each.title == title:
                return each
        raise ValueError(f"{title!r} is not one of {', '.join(each.title for each in cls)}")

    # Of a password

    def salted(self, password: str, salt: bytes, iterations: int) -> bytes:
        """The salted password: what takes time, once for each login of a client."""
        return hashlib.pbkdf2_hmac(self.algorithm, password.encode(), salt, iterations)

    def client_key(self, salted: bytes) -> bytes:
        """The client's key, of a salted password."""
        return hmac.digest(salted, b"Client Key", self.algorithm)

    def server_key(self, salted: bytes) -> bytes:
        """The server's key, of a salted password."""
        return hmac.digest(salted, b"Server Key", self.algorithm)

    def stored_key(self, client_key: bytes) -> bytes:
        """The stored key: the hash of the client's key, which the server keeps."""
        return hashlib.new(self.algorithm, client_key).digest()

    def signature(self, key: bytes, message: bytes) -> bytes:
        """The signature of an exchange by a stored key, or by the server's key."""
        return hmac.digest(key, message, self.algorithm)


def exclusive_or(one: bytes, other: bytes) -> bytes:
    """A key and its signature make a proof, and a proof and the signature the key."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
