"""SCRAM in the broker: the credentials of users, and the exchange (RFC 5802, RFC 7677).

Pure. The broker stores no password, but two keys that are derived from it: with :attr:`ScramCredential.stored_key` it
checks a client's proof, and with :attr:`ScramCredential.server_key` it proves that it knows the user. Channel binding
is not served, nor are delegation tokens (``tokenauth=true``, KIP-48).

A user who does not exist gets a challenge as well, with a salt that is always the same for a name, and fails only with
the proof: names cannot be tried out. Kafka refuses such a user at once.

Source: Kafka's ``ScramSaslServer``.
"""

import base64
import binascii
import hmac
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from barnabas_broker.security.sasl import Authenticated, AuthenticationFailed, Exchange
from barnabas_protocol.scram import LEAST_ITERATIONS, ScramMechanism, exclusive_or

_ENCODED: Final = r"[A-Za-z0-9+/]+={0,2}"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
#: The authorization id, the name, the nonce, and the extensions.
_FIRST: Final = re.compile(rf"n,(?:a=([^,\0]+))?,(n=([^,\0]+),r=({_NONCE})(,[^\0]*)?)", re.DOTALL)
#: All but the proof; the nonce; the proof.
_FINAL: Final = re.compile(rf"(c=({_ENCODED}),r=({_NONCE})(?:,[A-Za-z]=[^,\0]*)*),p=({_ENCODED})", re.DOTALL)
#: The reason of a failure in the log. Apache Kafka 4 refuses these clients, too (CVE-2024-56128).
OLD_LIBRDKAFKA: Final = (
    "its last message has the nonce of the client twice, which RFC 5802 forbids, as librdkafka before 2.6.1 does "
    "(kcat 1.7.1 of Debian 12): use a newer librdkafka, or PLAIN over TLS"
)
#: ``n,,`` in base64, or with an authorization id.
_BINDING: Final = re.compile(rb"n,(?:a=[^,]+)?,")
_ESCAPED: Final = re.compile(r"=(?:2C|3D)|=")
_SALT_BYTES: Final = 16
_FAILED: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"


class ScramCredential(NamedTuple):
    """Credential made of a user's password, as Kafka stores it.

    Attributes:
        salt: random bytes.
        stored_key: the hash of the client's key.
        server_key: the server's key.
        iterations: rounds of the hash function.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    @classmethod
    def of_salted(cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> "ScramCredential":
        """The credential of a salted password, which a client has derived."""
        stored = mechanism.stored_key(mechanism.client_key(salted))
        return cls(salt, stored, mechanism.server_key(salted), iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = LEAST_ITERATIONS
    ) -> "ScramCredential":
        """The credential of a password. This takes some milliseconds."""
        return cls.of_salted(mechanism, mechanism.salted(password, salt, iterations), salt, iterations)


class ScramUsers:
    """The users of a mechanism, and what others get in place of a credential.

    Args:
        mechanism: the mechanism.
        credentials: by user.
        secret: what the salts of users who do not exist are made of; the same on all brokers and after a restart.
    """

    def __init__(self, mechanism: ScramMechanism, credentials: Mapping[str, ScramCredential], secret: bytes) -> None:
        self.mechanism = mechanism
        self._credentials = credentials
        self._secret = secret
        self._decoys = _Decoys(mechanism, secret, credentials.values())

    def __repr__(self) -> str:
        return f"ScramUsers({self.mechanism.title}, {len(self._credentials)})"

    def find(self, user: str) -> tuple[ScramCredential, bool]:
        """The credential of a user, and whether there is such a user; both are found in the same time."""
        decoy = self._decoys.of(user)
        known = self._credentials.get(user)
        return (decoy, False) if known is None else (known, True)


class _Decoys:
    """Credentials of users who do not exist: no password fits them, and they look like those of users who do.

    A name always gets the same salt. Its length, its letters and the iterations are those of a share of the users that
    is chosen by the name, so that a change of one user changes them for few names only.
    """

    def __init__(self, mechanism: ScramMechanism, secret: bytes, credentials: Iterable[ScramCredential]) -> None:
        self._mechanism = mechanism
        self._secret = secret
        shapes = Counter((each.iterations, len(each.salt), _is_text(each.salt)) for each in credentials)
        self._shapes = sorted(shapes) or [(LEAST_ITERATIONS, _SALT_BYTES, False)]
        self._bounds = list(accumulate(shapes[each] for each in self._shapes))

    def of(self, user: str) -> ScramCredential:
        name = user.encode("utf-8", "surrogatepass")
        seed = hmac.digest(self._secret, b"salt " + name, "sha512")
        total = self._bounds[-1]
        place = int.from_bytes(seed[:8], "big") * total >> 64
        chosen = next((at for at, bound in enumerate(self._bounds) if place < bound), 0)
        iterations, size, text = self._shapes[chosen]
        salt = seed[8:]
        while len(salt) < size:
            salt += hmac.digest(self._secret, salt + name, "sha512")
        salt = salt[:size]
        if text:
            salt = bytes(_LETTERS[byte % len(_LETTERS)] for byte in salt)
        key = self._mechanism.signature(self._secret, b"key " + name)
        return ScramCredential(salt, key, key, iterations)


#: Kafka's own programs make salts of these letters.
_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def _is_text(salt: bytes) -> bool:
    return all(byte in _LETTERS for byte in salt)


def scram(users: ScramUsers, nonce: str) -> Exchange:
    """The exchange of SCRAM.

    Args:
        users: the users of the mechanism.
        nonce: a random text of printable characters without commas.

    Raises:
        AuthenticationFailed: a message is not valid, or the client does not know the password.
    """
    mechanism = users.mechanism
    failed = (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism.title}"
    )
    first = _FIRST.fullmatch(_text((yield b""), failed))
    if first is None:
        raise AuthenticationFailed(failed)
    acting_as, bare, name, theirs, extensions = first.groups()
    user = _unescaped(name)
    if user is None:
        raise AuthenticationFailed(failed)
    if acting_as is not None and _unescaped(acting_as) != user:
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username", user
        )
    if extensions and "tokenauth=true" in extensions.split(","):
        raise AuthenticationFailed(failed, user)
    credential, exists = users.find(user)
    both = theirs + nonce
    salt = base64.b64encode(credential.salt).decode()
    challenge = f"r={both},s={salt},i={credential.iterations}"
    final = _FINAL.fullmatch(_text((yield challenge.encode()), failed, user))
    if final is not None and final[3] == theirs + both:
        raise AuthenticationFailed(failed, user, OLD_LIBRDKAFKA)
    if final is None or final[3] != both or not _BINDING.fullmatch(_decoded(final[2])):
        raise AuthenticationFailed(failed, user)
    signed = f"{bare},{challenge},{final[1]}".encode()
    signature = mechanism.signature(credential.stored_key, signed)
    proof = _decoded(final[4])
    if len(proof) != len(signature):
        raise AuthenticationFailed(failed, user)
    stored = mechanism.stored_key(exclusive_or(proof, signature))
    if not hmac.compare_digest(stored, credential.stored_key) or not exists:
        raise AuthenticationFailed(failed, user)
    verifier = base64.b64encode(mechanism.signature(credential.server_key, signed)).decode()
    return Authenticated(user, f"v={verifier}".encode())


def _text(message: bytes, failed: str, user: str = "") -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise AuthenticationFailed(failed, user) from None


def _unescaped(name: str) -> str | None:
    """A name as it was before a client wrote its commas and equals signs as =2C and =3D; None if it has others."""
    if any(found == "=" for found in _ESCAPED.findall(name)):
        return None
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
