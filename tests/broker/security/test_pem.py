"""PEM text as Kafka takes it, laid out as OpenSSL reads it."""

import re
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.security.pem import PemError, blocks, certificates, decode, private_key
from tests.certificates import Authority


def test_any_white_space_will_do(tmp_path: Path) -> None:
    text = Authority(tmp_path).issue("broker").read_text()
    one_line = re.sub(r"(?<=[A-Za-z0-9+/=])\n(?=[A-Za-z0-9+/=])", " ", text).replace("\n", " ")
    assert "\n" not in one_line
    assert [kind for kind, _ in blocks(one_line)] == [kind for kind, _ in blocks(text)]
    assert certificates(one_line) == certificates(text)
    (tmp_path / "again.pem").write_text(private_key(one_line) + certificates(one_line))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "again.pem")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA", "no certificate"),
        ("-----BEGIN CERTIFICATE-----\nA*A\n-----END CERTIFICATE-----", "CERTIFICATE is not base64"),
        ("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", "CERTIFICATE is not base64"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "no certificate"),
        ("x" * (4 * 2**20 + 1), "more than 4194304 characters"),
    ],
)
def test_a_text_without_certificates_is_refused(text: str, said: str) -> None:
    with pytest.raises(PemError, match=said):
        certificates(text)


def test_one_private_key_is_wanted() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    assert private_key(key) == key
    with pytest.raises(PemError, match="it has 2 private keys"):
        private_key(key + key)
    with pytest.raises(PemError, match="no private key"):
        private_key("")


def test_stores_of_java_are_refused_with_the_command_that_converts_them() -> None:
    with pytest.raises(
        PemError, match=r"keytool -importkeystore -srckeystore /k\.jks -destkeystore /k\.p12 .*/k\.pem$"
    ):
        decode(b"\xfe\xed\xfe\xed\0\0", "/k.jks")
    with pytest.raises(PemError, match=r"openssl pkcs12 -in /k\.p12 -out /k\.pem$"):
        decode(b"\x30\x82\x01\x02", "/k.p12")


@given(text=st.text(alphabet="-BEGINENDCERTIFICATE PRIVATEKEY\n:A=+"))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (certificates, private_key):
        try:
            assert read(text).startswith("-----BEGIN ")
        except PemError:
            pass
