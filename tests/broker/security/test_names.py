"""The subject of a certificate as text, compared with what Java writes; and hostile bytes."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.security.names import subject

KEY = ec.generate_private_key(ec.SECP256R1())
Attribute, Part = x509.NameAttribute, x509.RelativeDistinguishedName


def certificate(*parts: x509.RelativeDistinguishedName) -> bytes:
    begin = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    name = x509.Name(parts)
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 5, begin, begin + datetime.timedelta(days=9999))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def one(kind: x509.ObjectIdentifier, value: str, encoded: _ASN1Type | None = None) -> x509.RelativeDistinguishedName:
    return Part([Attribute(kind, value, encoded)])


# What X500Principal.getName of a JDK 17 writes for the same certificates.
@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], ""),
        (
            [
                one(NameOID.COUNTRY_NAME, "DE"),
                one(NameOID.ORGANIZATION_NAME, "A, B"),
                one(NameOID.EMAIL_ADDRESS, "x@y.z"),
                Part([Attribute(NameOID.COMMON_NAME, " duke "), Attribute(NameOID.USER_ID, "u")]),
            ],
            "CN=\\ duke\\ +UID=u,1.2.840.113549.1.9.1=#16057840792e7a,O=A\\, B,C=DE",
        ),
        (
            [
                one(NameOID.DOMAIN_COMPONENT, "org"),
                one(NameOID.STREET_ADDRESS, "#1 x"),
                one(NameOID.TITLE, "Dr"),
                one(NameOID.STATE_OR_PROVINCE_NAME, "ST"),
                one(NameOID.LOCALITY_NAME, "L"),
                one(NameOID.ORGANIZATIONAL_UNIT_NAME, "OU"),
                one(NameOID.SERIAL_NUMBER, "123"),
            ],
            "2.5.4.5=#1303313233,OU=OU,L=L,ST=ST,2.5.4.12=#0c024472,STREET=\\#1 x,DC=org",
        ),
        ([one(NameOID.COMMON_NAME, "a", _ASN1Type.BMPString)], "CN=\\00a"),
        ([one(NameOID.COMMON_NAME, '<a>;"\\=+ é漢', _ASN1Type.UTF8String)], 'CN=\\<a\\>\\;\\"\\\\\\=\\+ é漢'),
        ([one(NameOID.COMMON_NAME, "  ")], "CN=\\ \\ "),
    ],
)
def test_a_subject_is_written_as_java_writes_it(parts: list[x509.RelativeDistinguishedName], text: str) -> None:
    assert subject(certificate(*parts)) == text


def test_a_certificate_that_is_cut_off_anywhere_is_refused() -> None:
    whole = certificate(one(NameOID.COMMON_NAME, "duke"))
    for size in range(len(whole)):
        with pytest.raises(ValueError, match="cut off"):
            subject(whole[:size])


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_certificate_or_refused(data: bytes) -> None:
    try:
        assert isinstance(subject(data), str)
    except ValueError:
        pass


WHOLE = certificate(one(NameOID.COMMON_NAME, "duke"), one(NameOID.EMAIL_ADDRESS, "a@b.c"))


@given(changes=st.dictionaries(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), min_size=1, max_size=5))
def test_a_damaged_certificate_is_read_or_refused(changes: dict[int, int]) -> None:
    data = bytearray(WHOLE)
    for at, byte in changes.items():
        data[at] = byte
    try:
        assert isinstance(subject(bytes(data)), str)
    except ValueError:
        pass


def test_a_certificate_of_any_size_is_not_read() -> None:
    with pytest.raises(ValueError, match="at most 1048576 bytes"):
        subject(bytes(2**20 + 1))
