"""New certificates by IncrementalAlterConfigs: what is accepted, what is refused, and what is shown of it."""

import logging
import os
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from barnabas_broker.broker import BrokerServer
from barnabas_broker.security.pem import first_certificate
from barnabas_broker.security.x509_names import alternative_names
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersionsResponse
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tests.broker.conftest import StartBroker
from tests.broker.server.test_tls import ASK, connect, port, trusting
from tests.certificates import NAMES, Authority
from tests.wire import Wire

KEYSTORE: Final = "listener.name.ssl.ssl.keystore.location"
TRUST: Final = "listener.name.ssl.ssl.truststore.location"
CHAIN: Final = "listener.name.ssl.ssl.keystore.certificate.chain"
KEY: Final = "listener.name.ssl.ssl.keystore.key"
SET, DELETE = 0, 1


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


Start = Callable[..., Any]


@pytest.fixture
def start(authority: Authority, start_broker: StartBroker) -> Start:
    """Start a broker with the listeners PLAINTEXT and SSL, whose certificate is named CN=broker."""
    keystore = authority.issue("broker", common_name="broker", unit="Unit")

    async def begin(**settings: str) -> BrokerServer:
        given = {"ssl_keystore_location": str(keystore), "ssl_truststore_location": str(authority.trust), **settings}
        return await start_broker(listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **given)

    return begin


async def change(
    broker: BrokerServer,
    values: dict[str, str | None],
    name: str | None = None,
    *,
    operation: int = SET,
    only: bool = False,
) -> tuple[int, str]:
    configs = [
        IncrementalAlterableConfig(name=key, config_operation=operation, value=value) for key, value in values.items()
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=4, resource_name=str(broker.node_id) if name is None else name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only)
    async with await Wire.connect(port(broker, "PLAINTEXT")) as wire:
        (answer,) = (await wire.ask(request, 1, IncrementalAlterConfigsResponse)).responses
    return answer.error_code, answer.error_message or ""


async def described(broker: BrokerServer) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=4, resource_name=str(broker.node_id), configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    async with await Wire.connect(port(broker, "PLAINTEXT")) as wire:
        (result,) = (await wire.ask(request, 4, DescribeConfigsResponse)).results
    return {row.name: row for row in result.configs}


async def shown(broker: BrokerServer, authority: Authority) -> bytes:
    """The certificate that a new connection gets."""
    async with await connect(broker, trusting(authority)) as wire:
        found: bytes = wire.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found


def der(path: Path) -> bytes:
    return first_certificate(path.read_text())


async def test_a_new_file_for_new_connections(start: Start, authority: Authority, tmp_path: Path) -> None:
    broker = await start()
    async with await connect(broker, trusting(authority)) as before:
        first = await shown(broker, authority)
        # More alternative names than before.
        new = authority.issue("new", *NAMES, "more.example.com", common_name="broker", unit="Unit")
        assert await change(broker, {KEYSTORE: str(new)}) == (0, "")
        assert await shown(broker, authority) == der(new) != first
        assert not before.writer.is_closing()
    row = (await described(broker))[KEYSTORE]
    assert (row.value, row.is_sensitive, row.read_only, row.config_source) == (str(new), False, False, 2)
    assert [(each.name, each.source) for each in row.synonyms] == [
        (KEYSTORE, 2),
        ("ssl.keystore.location", 4),
        ("ssl.keystore.location", 5),
    ]
    # Without the key, what was given before the start counts again, if its certificate may take the place.
    code, text = await change(broker, {KEYSTORE: None}, operation=DELETE)
    assert code == ErrorCode.INVALID_REQUEST
    assert "lacks 1 of the alternative names of the present one" in text
    assert await shown(broker, authority) == der(new)


async def test_the_same_name_again_reads_the_file_again(
    start: Start, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start()
    new = authority.issue("new", common_name="broker", unit="Unit")
    assert await change(broker, {KEYSTORE: str(new)}) == (0, "")
    renewed = authority.issue("renewed", common_name="broker", unit="Unit")
    os.replace(renewed, new)
    assert await change(broker, {KEYSTORE: str(new)}) == (0, "")
    assert await shown(broker, authority) == der(new)
    # With another name it is not taken, and an error says so.
    os.replace(authority.issue("other", common_name="other", unit="Unit"), new)
    before = await shown(broker, authority)
    caplog.clear()
    assert await change(broker, {KEYSTORE: str(new)}) == (0, "")
    assert await shown(broker, authority) == before
    lines: list[Any] = [record.msg for record in caplog.records if record.levelno == logging.ERROR]
    assert [line["event"] for line in lines] == ["certificates not reloaded, the earlier ones stay"]


async def test_text_in_place_of_files_is_never_shown(
    start: Start, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(
        ssl_keystore_location="", **(texts(authority.issue("broker", common_name="broker", unit="Unit")))
    )
    new = authority.issue("new", common_name="broker", unit="Unit")
    given = {f"listener.name.ssl.{key.replace('_', '.')}": value for key, value in (texts(new)).items()}
    with caplog.at_level(logging.DEBUG):
        assert await change(broker, {**given, "listener.name.ssl.ssl.key.password": "hush-hush"}) == (0, "")
    assert await shown(broker, authority) == der(new)
    rows = await described(broker)
    for name in (CHAIN, KEY, "listener.name.ssl.ssl.key.password"):
        assert (rows[name].value, rows[name].is_sensitive) == (None, True)
        assert {each.value for each in rows[name].synonyms} == {None}
    assert "PRIVATE KEY" not in caplog.text
    assert "hush-hush" not in caplog.text
    assert "PRIVATE KEY" not in repr(rows)


def texts(path: Path) -> dict[str, str]:
    whole = path.read_text()
    key, _, chain = whole.partition("-----BEGIN CERTIFICATE")
    return {"ssl_keystore_certificate_chain": f"-----BEGIN CERTIFICATE{chain}", "ssl_keystore_key": key}


async def test_what_is_set_stays_after_a_restart(start: Start, authority: Authority, tmp_path: Path) -> None:
    broker = await start()
    new = authority.issue("new", *NAMES, "more.example.com", common_name="broker", unit="Unit")
    assert await change(broker, {KEYSTORE: str(new)}) == (0, "")
    await broker.stop()
    broker = await start()
    assert await shown(broker, authority) == der(new)
    await broker.stop()
    # A file that is gone does not keep the broker from starting.
    new.unlink()
    broker = await start()
    assert await shown(broker, authority) == der(tmp_path / "broker.pem")


async def test_a_new_trust_store_counts_for_new_connections(start: Start, authority: Authority, tmp_path: Path) -> None:
    broker = await start(ssl_client_auth="required")
    other = Authority(tmp_path, "other")
    client = other.issue("client", "client@example.com")
    both = tmp_path / "both.pem"
    both.write_text(authority.trust.read_text() + other.trust.read_text())
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await ping(broker, trusting(authority, client))
    assert await change(broker, {TRUST: str(both)}) == (0, "")
    await ping(broker, trusting(authority, client))


async def ping(broker: BrokerServer, context: ssl.SSLContext) -> None:
    async with await connect(broker, context) as wire:
        await wire.ask(ASK, 3, ApiVersionsResponse)


async def test_what_is_refused_changes_nothing(start: Start, authority: Authority, tmp_path: Path) -> None:
    broker = await start()
    before = await shown(broker, authority)
    other = authority.issue("other", common_name="other", unit="Unit")
    fewer = authority.issue("fewer", "localhost", common_name="broker", unit="Unit")
    mixed = tmp_path / "mixed.pem"
    mixed.write_text((texts(other))["ssl_keystore_key"] + (texts(fewer))["ssl_keystore_certificate_chain"])
    large = tmp_path / "large.pem"
    with large.open("wb") as file:
        file.truncate(5 * 1024 * 1024)
    os.mkfifo(tmp_path / "pipe")
    for values, said in (
        (
            {KEYSTORE: str(other)},
            "the listener SSL is for CN=broker,.*, and the new one for CN=other,",
        ),
        ({KEYSTORE: str(fewer)}, "lacks 1 of the alternative names of the present one"),
        ({KEYSTORE: str(mixed)}, "key values mismatch"),
        ({KEYSTORE: str(tmp_path / "missing.pem")}, "it cannot be read: No such file"),
        ({KEYSTORE: "a\0b"}, "it cannot be read: not a path"),
        ({KEYSTORE: str(large)}, "it must be a file of at most"),
        ({KEYSTORE: str(tmp_path / "pipe")}, "it must be a file of at most"),
        ({KEYSTORE: "/dev/zero"}, "it must be a file of at most"),
        ({KEYSTORE: str(tmp_path)}, "it must be a file of at most"),
        ({KEYSTORE: ""}, "has no certificate"),
        ({TRUST: str(other), KEYSTORE: str(authority.trust)}, "has no private key"),
        ({CHAIN: "x", KEY: "y"}, "give either"),
        ({KEY: "hush"}, "give either"),
        ({"listener.name.ssl.ssl.keystore.type": "JKS"}, "listener.name.ssl.ssl.keystore.type='JKS': only PEM"),
        (
            {"ssl.keystore.location": str(other)},
            "updated only per-listener using the listener prefix",
        ),
        ({"listener.name.ssl.ssl.client.auth": "none"}, "Cannot update these configs dynamically"),
        ({"listener.name.none.ssl.keystore.location": str(other)}, "Cannot update these configs dynamically"),
        ({"listener.name.ssl.ssl.keystore.password": "hush"}, "Cannot update these configs dynamically"),
    ):
        code, text = await change(broker, dict(values))
        assert code == ErrorCode.INVALID_REQUEST, values
        assert re.search(said, text), text
        assert "hush" not in text
        assert await shown(broker, authority) == before
    code, text = await change(broker, {KEYSTORE: str(other)}, "")
    assert (code, "broker id must be specified" in text) == (ErrorCode.INVALID_REQUEST, True)
    assert not [name for name in await described(broker) if name.startswith("listener.name.")]


async def test_a_check_alone_changes_nothing(start: Start, authority: Authority) -> None:
    broker = await start()
    before = await shown(broker, authority)
    new = authority.issue("new", common_name="broker", unit="Unit")
    assert await change(broker, {KEYSTORE: str(new)}, only=True) == (0, "")
    code, _ = await change(broker, {KEYSTORE: str(authority.issue("o", common_name="o", unit="Unit"))}, only=True)
    assert code == ErrorCode.INVALID_REQUEST
    assert await shown(broker, authority) == before


async def test_a_trust_store_cannot_be_added(start: Start, authority: Authority) -> None:
    broker = await start(ssl_truststore_location="")
    code, text = await change(broker, {TRUST: str(authority.trust)})
    assert code == ErrorCode.INVALID_REQUEST
    assert "has no trust store, and none can be added while it is open" in text


async def test_brokers_must_be_able_to_connect_to_each_other(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    broker = await start(security_inter_broker_protocol="SSL")
    other = Authority(tmp_path, "other")
    moved = other.issue("moved", common_name="broker", unit="Unit")
    code, text = await change(broker, {KEYSTORE: str(moved)})
    assert code == ErrorCode.INVALID_REQUEST
    assert "brokers with the present and with the new certificates of the listener SSL could not connect" in text
    # Step by step they can.
    both = tmp_path / "both.pem"
    both.write_text(authority.trust.read_text() + other.trust.read_text())
    for values in ({TRUST: str(both)}, {KEYSTORE: str(moved)}, {TRUST: str(other.trust)}):
        assert await change(broker, dict(values)) == (0, "")
    assert await shown(broker, other) == der(moved)


def test_alternative_names_are_those_of_the_certificate(authority: Authority) -> None:
    for names in (("a.example.com",), (*NAMES, "*.example.com", "ada@example.com", "::1")):
        certificate = der(authority.issue("x", *names))
        found = x509.load_der_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        assert len(alternative_names(certificate)) == len(found.value) == len(names)
        for cut in range(len(certificate)):
            with pytest.raises(ValueError, match=r"."):
                alternative_names(certificate[:cut])
