"""The subject of a certificate as text, compared with what Java writes; and hostile bytes."""

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.security.pem import first_certificate
from barnabas_broker.security.x509_names import Hosts, hosts, subject
from tests.certificates import Authority

KEY = ec.generate_private_key(ec.SECP256R1())
Attribute, Part = x509.NameAttribute, x509.RelativeDistinguishedName


def certificate(*parts: x509.RelativeDistinguishedName, extension: x509.ExtensionType | None = None) -> bytes:
    begin = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    name = x509.Name(parts)
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 5, begin, begin + datetime.timedelta(days=9999))
    if extension is not None:
        builder = builder.add_extension(extension, critical=False)
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
        assert isinstance(hosts(data), Hosts)
    except ValueError:
        pass


NAMED = x509.SubjectAlternativeName([x509.DNSName("a.example.com"), x509.IPAddress(ipaddress.ip_address("::1"))])
WHOLE = certificate(one(NameOID.COMMON_NAME, "duke"), one(NameOID.EMAIL_ADDRESS, "a@b.c"), extension=NAMED)


@given(changes=st.dictionaries(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), min_size=1, max_size=5))
def test_a_damaged_certificate_is_read_or_refused(changes: dict[int, int]) -> None:
    data = bytearray(WHOLE)
    for at, byte in changes.items():
        data[at] = byte
    try:
        assert isinstance(subject(bytes(data)), str)
        assert isinstance(hosts(bytes(data)), Hosts)
    except ValueError:
        pass


def test_a_certificate_of_any_size_is_not_read() -> None:
    with pytest.raises(ValueError, match="at most 1048576 bytes"):
        subject(bytes(2**20 + 1))


def names_host(server: ssl.SSLContext, authority: Authority, host: str) -> bool:
    """Whether OpenSSL takes the certificate of `server` for one of `host`: a handshake in memory."""
    client = ssl.create_default_context(cafile=authority.trust)
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(here, there, server_hostname=host), server.wrap_bio(there, here, server_side=True)]
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                if error.verify_code not in (62, 64):  # the host name, the address
                    raise
                return False
    return True


HOSTS = ("localhost", "LocalHost", "a.example.com", "b.a.example.com", "example.com", "127.0.0.1", "10.0.0.7", "::1")


@pytest.mark.parametrize(
    "given",
    [
        ("localhost", "127.0.0.1"),
        ("a.example.com",),
        ("*.example.com", "10.0.0.7"),
        ("*.a.example.com", "::1"),
        ("0:0:0:0:0:0:0:1",),
        ("A.Example.COM", "example.com"),
        ("someone@example.com",),
    ],
    ids=str,
)
@pytest.mark.parametrize("common_name", [None, "localhost", "127.0.0.1"])
def test_the_hosts_of_a_certificate_are_those_that_openssl_accepts(
    tmp_path: Path, given: tuple[str, ...], common_name: str | None
) -> None:
    authority = Authority(tmp_path)
    file = authority.issue("broker", *given, common_name=common_name)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    found = hosts(first_certificate(file.read_text()))
    for host in HOSTS:
        assert found.include(host) is names_host(server, authority, host), (host, found)
