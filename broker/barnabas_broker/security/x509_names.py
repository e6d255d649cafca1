"""The names of a certificate: its subject, as text, exactly as Java writes it, its alternative names, and its hosts.

Pure. Kafka's principals are such names, and rules and ACLs compare them as text, so that each character counts: the
parts in the order of RFC 2253, which is the reverse of the certificate's, types that the RFC does not know as numbers
with the value in hexadecimal, and Java's escapes. Python's own form of a subject does not say how a value was encoded,
so the certificate is read here. The caller has verified it; still every length is checked.

Sources: RFC 2253, RFC 6125, X.690; the behaviour of ``javax.security.auth.x500.X500Principal.getName``.
"""

import ipaddress
from collections.abc import Iterator
from typing import Final, NamedTuple

#: Maximum bytes of a certificate: TLS limits a chain to 16 MiB, OpenSSL a handshake message to less.
LARGEST: Final = 1024 * 1024

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_ID: Final = 0x06
_OCTETS: Final = 0x04
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
#: The kinds of alternative names that clients compare with a host.
_DNS_NAME: Final = 0x82
_ADDRESS: Final = 0x87
_COMMON_NAME: Final = "2.5.4.3"
#: Printable, T61, IA5, General, BMP and UTF8 strings: what Java takes for text.
_TEXTS: Final = frozenset((0x13, 0x14, 0x16, 0x1B, 0x1E, 0x0C))
#: The types that RFC 2253 names.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class _Value(NamedTuple):
    """An encoded value: its tag, its contents, and where it ends in what surrounds it."""

    tag: int
    content: bytes
    end: int
    whole: bytes


def subject(certificate: bytes) -> str:
    """The subject of a certificate (DER) as RFC 2253 writes it; "" for one without.

    Raises:
        ValueError: the bytes are not a certificate.
    """
    fields = _fields(certificate)
    names = [list(_values(_expect(each, _SET))) for each in _values(_expect(fields[4], _SEQUENCE))]
    return ",".join("+".join(map(_attribute, each)) for each in reversed(names))


class Hosts(NamedTuple):
    """The hosts that a certificate is for.

    Attributes:
        names: in lower case; one that begins with ``*.`` is for all with one label more.
        addresses: as Python writes them.
    """

    names: frozenset[str]
    addresses: frozenset[str]

    def include(self, host: str) -> bool:
        """Whether a host, by name or address, is among them."""
        try:
            return str(ipaddress.ip_address(host)) in self.addresses
        except ValueError:
            name = host.lower().rstrip(".")
        return name in self.names or f"*.{name.partition('.')[2]}" in self.names


def hosts(certificate: bytes) -> Hosts:
    """The hosts that a certificate (DER) is for, as clients check it; without alternative names, its common name.

    Raises:
        ValueError: the bytes are not a certificate.
    """
    alternatives = list(_alternatives(certificate))
    names = {each.content for each in alternatives if each.tag == _DNS_NAME}
    addresses = {each.content for each in alternatives if each.tag == _ADDRESS and len(each.content) in (4, 16)}
    if not names:
        names = set(_common_names(certificate))
    return Hosts(
        frozenset(each.decode("utf-8", "replace").lower().rstrip(".") for each in names),
        frozenset(str(ipaddress.ip_address(each)) for each in addresses),
    )


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """The alternative names of a certificate (DER), each as it is encoded.

    Raises:
        ValueError: the bytes are not a certificate.
    """
    return frozenset(each.whole for each in _alternatives(certificate))


def _alternatives(certificate: bytes) -> Iterator[_Value]:
    for field in _fields(certificate):
        if field.tag != _EXTENSIONS:
            continue
        for extension in _values(_expect(_value(field.content, 0), _SEQUENCE)):
            # An id, whether it is critical, and the value in an octet string.
            parts = list(_values(_expect(extension, _SEQUENCE)))
            if len(parts) >= 2 and _object_id(_expect(parts[0], _OBJECT_ID)) == _ALTERNATIVE_NAMES:
                names = _value(_expect(parts[-1], _OCTETS), 0)
                yield from _values(_expect(names, _SEQUENCE))
                return


def _common_names(certificate: bytes) -> Iterator[bytes]:
    for part in _values(_expect(_fields(certificate)[4], _SEQUENCE)):
        for attribute in _values(_expect(part, _SET)):
            kind, value = _pair(attribute)
            if kind == _COMMON_NAME:
                yield value.content


def _fields(certificate: bytes) -> list[_Value]:
    """Serial number, signature, issuer, validity, subject, and what follows.

    Raises:
        ValueError: the bytes are not a certificate.
    """
    if len(certificate) > LARGEST:
        raise ValueError(f"a certificate has at most {LARGEST} bytes")
    body = _expect(_value(_expect(_value(certificate, 0), _SEQUENCE), 0), _SEQUENCE)
    fields = list(_values(body))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 5:
        raise ValueError("the certificate has no subject")
    return fields


def _value(data: bytes, at: int) -> _Value:
    """The value that begins at `at`.

    Raises:
        ValueError: it is cut off, or of a form that certificates do not have.
    """
    if at + 2 > len(data):
        raise ValueError("the certificate is cut off")
    tag, size = data[at], data[at + 1]
    start = at + 2
    if tag & 0x1F == 0x1F or size == 0x80:
        raise ValueError("the certificate has a tag or a length of a form that is not DER")
    if size > 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + size
    if end > len(data):
        raise ValueError("the certificate is cut off")
    return _Value(tag, data[start:end], end, data[at:end])


def _values(data: bytes) -> Iterator[_Value]:
    at = 0
    while at < len(data):
        each = _value(data, at)
        yield each
        at = each.end


def _expect(value: _Value, tag: int) -> bytes:
    if value.tag != tag:
        raise ValueError(f"the certificate has a value of type {value.tag:#x} in place of {tag:#x}")
    return value.content


def _pair(attribute: _Value) -> tuple[str, _Value]:
    """The type and the value of a part of a name.

    Raises:
        ValueError: it has none.
    """
    parts = list(_values(_expect(attribute, _SEQUENCE)))
    if len(parts) != 2:
        raise ValueError("the certificate has a name without a value")
    return _object_id(_expect(parts[0], _OBJECT_ID)), parts[1]


def _attribute(attribute: _Value) -> str:
    kind, value = _pair(attribute)
    keyword = _KEYWORDS.get(kind)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or kind}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _object_id(content: bytes) -> str:
    if not content or content[-1] & 0x80:
        raise ValueError("the certificate has a type that is cut off")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    plain = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    # Spaces at either end are escaped as well, one by one.
    lead = len(plain) - len(plain.lstrip(" \r"))
    if lead == len(plain):
        return "".join(f"\\{each}" for each in plain)
    trail = len(plain) - len(plain.rstrip(" \r"))
    head, tail = plain[:lead], plain[len(plain) - trail :]
    middle = plain[lead : len(plain) - trail]
    return "".join(f"\\{each}" for each in head) + middle + "".join(f"\\{each}" for each in tail)
