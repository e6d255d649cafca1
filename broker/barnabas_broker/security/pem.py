"""PEM: certificates and keys as text (RFC 7468, KIP-651).

Pure. Kafka takes PEM with any white space, such as one long line in a properties file; OpenSSL wants lines of 64
characters, so the text is laid out anew.
"""

import base64
import re
from typing import Final

#: Maximum characters of a store; a bundle of all public certification authorities has 200 thousand.
LARGEST: Final = 4 * 1024 * 1024
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----([^-]*)-----END \1-----")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+=*")
_JKS: Final = b"\xfe\xed\xfe\xed"


class PemError(ValueError):
    """A text without what it should have; the message says what is missing."""


def blocks(text: str) -> list[tuple[str, str]]:
    """The blocks of a PEM text: what each is, such as ``CERTIFICATE``, and the block as OpenSSL reads it.

    Raises:
        PemError: the text is too long, or what is in a block is not base64.
    """
    if len(text) > LARGEST:
        raise PemError(f"it has more than {LARGEST} characters")
    found = []
    for match in _BLOCK.finditer(text):
        kind, body = match.groups()
        if ":" in body:  # a key that is encrypted in OpenSSL's old form has lines of headers
            found.append((kind, match[0]))
            continue
        data = "".join(body.split())
        if not _BASE64.fullmatch(data):
            raise PemError(f"its {kind} is not base64")
        lines = "\n".join(data[at : at + 64] for at in range(0, len(data), 64))
        found.append((kind, f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"))
    return found


def certificates(text: str) -> str:
    """The certificates of a text, one after the other.

    Raises:
        PemError: there is none.
    """
    found = [
        block for kind, block in blocks(text) if kind in ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
    ]
    if not found:
        raise PemError("it has no certificate (BEGIN CERTIFICATE)")
    return "".join(found)


def first_certificate(text: str) -> bytes:
    """The first certificate of a text (DER): the one that the key belongs to.

    Raises:
        PemError: there is none.
    """
    found = certificates(text).partition("-----BEGIN ")[2].partition("-----\n")[2].partition("-----END ")[0]
    return base64.b64decode(found)


def private_key(text: str) -> str:
    """The private key of a text.

    Raises:
        PemError: there is none, or more than one.
    """
    found = [block for kind, block in blocks(text) if kind.endswith("PRIVATE KEY")]
    if len(found) != 1:
        raise PemError(
            "it has no private key (BEGIN PRIVATE KEY)" if not found else f"it has {len(found)} private keys"
        )
    return found[0]


def decode(data: bytes, path: str) -> str:
    """The text of a file.

    Raises:
        PemError: it is a store of Java's; the message has the command that converts it.
    """
    target = f"{path.removesuffix('.jks').removesuffix('.p12').removesuffix('.pfx')}"
    if data.startswith(_JKS):
        raise PemError(
            f"it is in the format JKS. To do: keytool -importkeystore -srckeystore {path} -destkeystore {target}.p12 "
            f"-deststoretype PKCS12, then openssl pkcs12 -in {target}.p12 -out {target}.pem"
        )
    if data.startswith(b"\x30\x82"):
        raise PemError(f"it is in the format PKCS12 or DER. To do: openssl pkcs12 -in {path} -out {target}.pem")
    return data.decode("utf-8", "replace")
